#!/bin/sh
# Fetches the jars of scripts/NAME/pom.xml into VENV/NAME and checks the SHA-256 of each.
#
#   scripts/jars.sh VENV NAME            (RECORD=1 writes the list of checksums anew)
#
#   s3-server   the S3 server of the tests
#   s3a         what Spark needs to read and write S3
#   jdbc        PostgreSQL's JDBC driver, a client of the tests
set -eu
name=$2
here=$(cd "$(dirname "$0")/$name" && pwd)
venv=$(cd "$1" && pwd)
lib=$venv/$name
sums=$here/jars.sha256

checked() {
    [ -d "$lib" ] && cd "$lib" && sha256sum --check --status --strict "$sums" &&
        [ "$(ls | wc -l)" = "$(wc -l <"$sums")" ]
}

if [ -z "${RECORD:-}" ] && (checked); then exit 0; fi
command -v mvn >/dev/null || { echo "$name: mvn is missing; install maven" >&2; exit 1; }
echo "$name: fetching the jars of scripts/$name/pom.xml"
rm -rf "$lib"
JAVA_HOME=$(cat "$venv/java-home" 2>/dev/null || echo "${JAVA_HOME:-}") \
    mvn --batch-mode --quiet -Dstyle.color=never --file "$here/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$lib" ||
    { rm -rf "$lib"; echo "$name: Maven could not fetch them" >&2; exit 1; }
if [ -n "${RECORD:-}" ]; then
    cd "$lib" && sha256sum -- *.jar >"$sums"
    exit 0
fi
(checked) || { rm -rf "$lib"; echo "$name: the jars are not those of $sums" >&2; exit 1; }
