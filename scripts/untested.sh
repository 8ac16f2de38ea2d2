#!/bin/sh
# Says that something cannot be checked on this machine: fatal under CI, else a loud line
# now and again at the end of `make test`.
#
#   scripts/untested.sh VENV "what is not tested, and what would enable it"
set -eu
echo "NOT TESTED HERE: $2" >&2
if [ -n "${CI:-}" ]; then
    echo "CI is set, so that is a failure." >&2
    exit 1
fi
echo "NOT TESTED HERE: $2" >>"$1/untested"
