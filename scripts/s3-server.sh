#!/bin/sh
# Fetches the S3 server of the tests into VENV/s3-server and checks every jar's SHA-256.
#
#   scripts/s3-server.sh VENV            (RECORD=1 writes the list of checksums anew)
set -eu
here=$(cd "$(dirname "$0")/s3-server" && pwd)
venv=$(cd "$1" && pwd)
lib=$venv/s3-server
sums=$here/jars.sha256

checked() {
    [ -d "$lib" ] && cd "$lib" && sha256sum --check --status --strict "$sums" &&
        [ "$(ls | wc -l)" = "$(wc -l <"$sums")" ]
}

if [ -z "${RECORD:-}" ] && (checked); then exit 0; fi
command -v mvn >/dev/null || { echo "s3-server: mvn is missing" >&2; exit 1; }
echo "s3-server: fetching S3Proxy (24 MB)"
rm -rf "$lib"
JAVA_HOME=$(cat "$venv/java-home" 2>/dev/null || echo "${JAVA_HOME:-}") \
    mvn --batch-mode --quiet --file "$here/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$lib" ||
    { rm -rf "$lib"; echo "s3-server: Maven could not fetch it" >&2; exit 1; }
if [ -n "${RECORD:-}" ]; then
    cd "$lib" && sha256sum -- *.jar >"$sums"
    exit 0
fi
(checked) || { rm -rf "$lib"; echo "s3-server: the jars are not those of $sums" >&2; exit 1; }
