#!/bin/sh
# Installs what the tests use besides Python: psql and a PostgreSQL server, openssl and curl, protoc, Chromium,
# Maven and with it an S3 server, Kafka, a schema registry, the jars with which Spark reads S3 and Kafka, and the
# JDBC driver; and dbt. System packages come with apt-get where possible.
#
#   scripts/test-deps.sh VENV
set -eu
here=$(dirname "$0")

install() {
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" = 0 ]; then sudo=; else sudo="sudo -n"; fi
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1 && return
    $sudo apt-get update -qq >/dev/null 2>&1 || return 1
    $sudo apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

have_postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

if ! command -v psql >/dev/null; then
    echo "psql is missing; installing postgresql-client"
    install postgresql-client || true
fi
command -v psql >/dev/null ||
    "$here/untested.sh" "$1" "sessions of the real psql (install postgresql-client)"

for program in openssl curl; do
    if ! command -v $program >/dev/null; then
        echo "$program is missing; installing it"
        install $program || true
    fi
    command -v $program >/dev/null ||
        "$here/untested.sh" "$1" "TLS and HTTP as programs see them (install $program)"
done

if ! command -v protoc >/dev/null; then
    echo "protoc is missing; installing protobuf-compiler"
    install protobuf-compiler || true
fi
command -v protoc >/dev/null ||
    "$here/untested.sh" "$1" "the Protobuf example of docs/kafka.md (install protobuf-compiler)"

if ! command -v chromium >/dev/null; then
    echo "chromium is missing; installing it"
    install chromium || true
fi
command -v chromium >/dev/null ||
    "$here/untested.sh" "$1" "the console in a browser (install chromium)"

if ! have_postgres; then
    echo "initdb is missing; installing postgresql"
    install postgresql || true
fi
have_postgres || "$here/untested.sh" "$1" "consensus in PostgreSQL (install a PostgreSQL server)"

jars() { "$here/jars.sh" "$@"; }
kafka() { jars "$1" kafka && jars "$1" kafka-spark && "$here/kafka-registry.sh" "$1"; }
all_jars() { jars "$1" s3-server && jars "$1" s3a && jars "$1" jdbc && kafka "$1"; }
if ! command -v mvn >/dev/null && ! all_jars "$1" 2>/dev/null; then
    echo "mvn is missing; installing maven"
    install maven || true
fi
jars "$1" s3-server ||
    "$here/untested.sh" "$1" "blobs in S3 (install Maven, with access to a Maven repository)"
jars "$1" s3a ||
    "$here/untested.sh" "$1" "Spark on S3 (install Maven, with access to a Maven repository)"
jars "$1" jdbc ||
    "$here/untested.sh" "$1" "clients by JDBC (install Maven, with access to a Maven repository)"
kafka "$1" ||
    "$here/untested.sh" "$1" "Kafka (install Maven, with access to a Maven repository)"
"$here/dbt.sh" "$1" || "$here/untested.sh" "$1" "dbt (needs a Python package index)"
"$here/classes.sh" "$1"
