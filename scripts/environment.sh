# Sourced by the scripts beside it: makes .venv with what is needed and starts at once when nothing changed.
# Usage: prepare serve | prepare dev

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv="$root/.venv"

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "polybus: Python 3.11 or newer is needed" >&2
    exit 2
}

prepare() {
    local purpose=$1 extras=$1 wanted python
    [ "$purpose" = serve ] && extras=arrow,postgres,build
    wanted=$(cat pyproject.toml scripts/environment.sh | cksum)
    if [ "$(cat "$venv/.ready-$purpose" 2>/dev/null)" != "$wanted" ]; then
        # Whatever fails here ends the script, also one that goes on after failures: it must not count as done.
        if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
            python=$(find_python) || exit
            "$python" -m venv "$venv" || exit
        fi
        echo "polybus: installing what '$purpose' needs into .venv ..."
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$extras]" || exit
        rm -f "$venv"/.ready-*
        echo "$wanted" >"$venv/.ready-$purpose"
        [ "$purpose" = dev ] && echo "$wanted" >"$venv/.ready-serve"
    fi
    [ "${POLYBUS_BUILD:-auto}" = plain ] || "$venv/bin/python" scripts/compile.py || true
}
