# Sourced by the scripts that a new user runs first: finds a Python that can do the job, or makes one.
#
# find_python ROOT EXTRA MODULE…: sets PYTHON to an interpreter that can import every MODULE. That is the
# current python3 if it can; else ROOT/.venv, into which the project is installed with the extra EXTRA
# (none if empty).

find_python() {
    local root="$1" extra="$2"
    shift 2
    local imports="import $(echo "$*" | sed 's/ /, /g')"
    local candidate
    for candidate in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "$root/.venv/bin/python" python3 python; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 \
            && (cd "$root" && "$candidate" -c "$imports") >/dev/null 2>&1; then
            PYTHON="$candidate"
            return 0
        fi
    done
    local base=""
    for candidate in python3 python; do
        if command -v "$candidate" >/dev/null 2>&1; then
            base="$candidate"
            break
        fi
    done
    if [ -z "$base" ]; then
        echo "Python 3.10 or newer is needed, and no python3 was found." >&2
        return 1
    fi
    if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        echo "Python 3.10 or newer is needed; $base is $("$base" -V 2>&1 | cut -d' ' -f2)." >&2
        return 1
    fi
    if ! "$base" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        echo "This Python lacks venv or pip; on Debian and Ubuntu: apt-get install python3-venv python3-pip." >&2
        return 1
    fi
    # One builder at a time; a half-made environment is made anew.
    local lock="$root/.venv.lock"
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$lock"
        flock 9
    fi
    PYTHON="$root/.venv/bin/python"
    if ! (cd "$root" && "$PYTHON" -c "$imports") >/dev/null 2>&1; then
        echo "Making a virtual environment in .venv and installing the project into it …" >&2
        if ! "$PYTHON" -c 'import pip' >/dev/null 2>&1; then
            rm -rf "$root/.venv"
            "$base" -m venv "$root/.venv" || return 1
        fi
        local target="$root"
        [ -n "$extra" ] && target="$root[$extra]"
        if ! "$PYTHON" -m pip install -q --disable-pip-version-check "$target" >&2; then
            echo "Installing the project failed; the messages of pip are above." >&2
            return 1
        fi
    fi
    if command -v flock >/dev/null 2>&1; then
        flock -u 9
        rm -f "$lock"
    fi
    return 0
}
