#!/bin/sh
# Runs pyright. Its wheel carries everything where a Node wheel exists for the platform;
# elsewhere it downloads Node first, which may not be possible.
#
#   scripts/pyright.sh VENV
set -eu
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1
if "$1/bin/pyright" --version >/dev/null 2>&1; then
    exec "$1/bin/pyright"
fi
exec "$(dirname "$0")/untested.sh" "$1" "types (pyright does not start: no Node wheel and no download)"
