#!/bin/sh
# Prints the first Python >= 3.11 among $PYTHON (alone, if set) or the usual names.
set -eu
for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        command -v "$python"
        exit 0
    fi
done
echo "tidemark needs Python 3.11 or newer; tried: ${PYTHON:-python3 python3.13 python3.12 python3.11}." >&2
echo "Install one, or name it: make setup PYTHON=/path/to/python3.12" >&2
exit 1
