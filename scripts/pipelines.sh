#!/bin/sh
# Installs what Spark Declarative Pipelines need besides our own requirements into VENV/pipelines,
# a folder of their own: only the baseline of `tidemark bench views` has it on its path.
#
#   scripts/pipelines.sh VENV
set -eu
venv=$(cd "$1" && pwd)
requirements=$(cd "$(dirname "$0")/../requirements" && pwd)/pipelines.txt
lib=$venv/pipelines

if cmp -s "$requirements" "$lib/.installed"; then exit 0; fi
echo "pipelines: installing requirements/pipelines.txt"
rm -rf "$lib"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
    --target "$lib" -r "$requirements" ||
    { rm -rf "$lib"; echo "pipelines: pip could not install them" >&2; exit 1; }
cp "$requirements" "$lib/.installed"
