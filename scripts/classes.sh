#!/bin/sh
# Keeps Spark's classes in VENV/spark-classes.jsa, with which its JVM starts in half the time.
#
#   scripts/classes.sh VENV
#
# Written anew when the jars or the Java are others. Without it everything works, only slower.
set -eu
venv=$(cd "$1" && pwd)
archive=$venv/spark-classes.jsa
for each in "$venv/.setup-done" "$venv/java-home" "$venv/kafka-spark"; do
    if [ "$each" -nt "$archive" ]; then rm -f "$archive"; fi
done
[ -e "$archive" ] || "$venv/bin/python" -m tidemark.compute.warm ||
    echo "setup: without it Spark starts more slowly" >&2
