#!/bin/sh
# Fetches the schema registry of development and tests, Apicurio Registry, into VENV/kafka-registry
# and checks its SHA-256. It also answers under the REST interface of Confluent's registry.
#
#   scripts/kafka-registry.sh VENV
#
# 3.0.9 runs on Java 17, 3.3 needs 21. Its parent pom is not to be had, so jars.sh cannot resolve it;
# only the old `get` takes an archive without looking at poms.
set -eu
artifact=io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all
sum=2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43
name=apicurio-registry-app-3.0.9-all.tar.gz
lib=$(cd "$1" && pwd)/kafka-registry

checked() { echo "$sum  $lib/$name" | sha256sum --check --status --strict 2>/dev/null; }

if checked; then exit 0; fi
command -v mvn >/dev/null || { echo "kafka-registry: mvn is missing; install maven" >&2; exit 1; }
echo "kafka-registry: fetching $artifact"
rm -rf "$lib" && mkdir "$lib"
JAVA_HOME=$(cat "$1/java-home" 2>/dev/null || echo "${JAVA_HOME:-}") \
    mvn --batch-mode --quiet -Dstyle.color=never \
    org.apache.maven.plugins:maven-dependency-plugin:2.8:get \
    -Dartifact=$artifact -Dtransitive=false -Ddest="$lib/$name" ||
    { rm -rf "$lib"; echo "kafka-registry: Maven could not fetch it" >&2; exit 1; }
checked || { rm -rf "$lib"; echo "kafka-registry: $name is not the one we know" >&2; exit 1; }
