#!/bin/sh
# Runs the tests in two processes side by side: the oracles keep one core busy, most others wait
# for processes to start. With arguments it is plain pytest.
#
#   scripts/test.sh VENV [pytest arguments]
set -u
pytest="$1/bin/pytest"
shift
[ $# -eq 0 ] || exec "$pytest" "$@"

heavy="tests/oracle tests/golden/compute tests/unit/compute tests/crash/test_views_crash.py"
heavy="$heavy tests/crash/test_cluster_crash.py tests/integration/test_clusters.py"
heavy="$heavy tests/crash/test_spark_crash.py tests/integration/test_spark_cluster.py"
heavy="$heavy tests/crash/test_server_crash.py tests/integration/test_slt.py"
heavy="$heavy tests/integration/test_console.py tests/integration/test_demo.py tests/crash/test_kafka_crash.py"
log=$(mktemp)
# shellcheck disable=SC2086
"$pytest" $heavy >"$log" 2>&1 &
other=$!
trap 'kill $other 2>/dev/null; exit 130' INT TERM

set --
for folder in $heavy; do set -- "$@" "--ignore=$folder"; done
"$pytest" "$@"
first=$?
wait $other
second=$?
echo "The other half ($heavy):"
cat "$log"
rm -f "$log"
[ "$first" -eq 0 ] && [ "$second" -eq 0 ]
