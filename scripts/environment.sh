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

# The little that a bus needs to start. Bytecode is left to the first imports, and no tool to build with is fetched.
install_serve() {
    local pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile)
    "${pip[@]}" "setuptools>=77" && POLYBUS_BUILD=plain "${pip[@]}" --no-build-isolation -e .
}

install_dev() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[dev]"
}

prepare() {
    local purpose=$1 wanted python
    wanted=$(cat pyproject.toml scripts/environment.sh | cksum)
    if [ "$(cat "$venv/.ready-$purpose" 2>/dev/null)" != "$wanted" ]; then
        # Whatever fails here ends the script, also one that goes on after failures: it must not count as done.
        if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
            python=$(find_python) || exit
            echo "polybus: making an environment in .venv ..."
            "$python" -m venv "$venv" || exit
        fi
        echo "polybus: installing what '$purpose' needs into .venv ..."
        "install_$purpose" || exit
        rm -f "$venv"/.ready-*
        echo "$wanted" >"$venv/.ready-$purpose"
        if [ "$purpose" = dev ]; then
            echo "$wanted" >"$venv/.ready-serve"
            touch "$venv/.ready-more"
        fi
    fi
    [ "$purpose" = serve ] || [ "${POLYBUS_BUILD:-auto}" = plain ] || "$venv/bin/python" scripts/compile.py || true
}

# Packages that few need at once and the compiled build: beside the bus that becomes of this process, unless it is told
# to run what is not there yet.
finish_setup() {
    local finish=("$venv/bin/python" "$root/scripts/finish_setup.py")
    case "${POLYBUS_BUILD:-auto} $*" in
    compiled* | *postgresql:*) "${finish[@]}" || exit ;;
    *) ("${finish[@]}" --beside $$ &) ;;
    esac
}
