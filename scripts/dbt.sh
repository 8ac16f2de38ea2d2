#!/bin/sh
# Installs dbt into VENV/dbt, an environment of its own, for the tests.
#
#   scripts/dbt.sh VENV
set -eu
venv=$(cd "$1" && pwd)
requirements=$(cd "$(dirname "$0")/../requirements" && pwd)/dbt.txt
own=$venv/dbt

if cmp -s "$requirements" "$own/.installed"; then exit 0; fi
echo "dbt: installing requirements/dbt.txt"
rm -rf "$own"
"$venv/bin/python" -m venv "$own"
"$own/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
    -r "$requirements" || { rm -rf "$own"; echo "dbt: pip could not install it" >&2; exit 1; }
cp "$requirements" "$own/.installed"
