#!/bin/sh
# Installs the system packages that the tests use: psql, with apt-get where possible.
#
#   scripts/test-deps.sh VENV
set -eu
here=$(dirname "$0")

install_psql() {
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" = 0 ]; then sudo=; else sudo="sudo -n"; fi
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get install -y -qq --no-install-recommends postgresql-client >/dev/null 2>&1 && return
    $sudo apt-get update -qq >/dev/null 2>&1 || return 1
    $sudo apt-get install -y -qq --no-install-recommends postgresql-client >/dev/null
}

if ! command -v psql >/dev/null; then
    echo "psql is missing; installing postgresql-client"
    install_psql || true
fi
command -v psql >/dev/null ||
    "$here/untested.sh" "$1" "sessions of the real psql (install postgresql-client)"
