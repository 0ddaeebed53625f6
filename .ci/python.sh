# Sourced by the scripts that a new user runs first: finds a Python that can do the job, or makes one.
#
# find_python ROOT EXTRA MODULE…: sets PYTHON to an interpreter that can import every MODULE. That is the
# current python3 if it can; else that of ROOT/.venv, into which the project is installed with the extra EXTRA
# (none if empty). Where ROOT can't be written, ~/.cache/mytorch/venv stands for ROOT/.venv.

find_python() {
    local root="$1" extra="$2" venv="$1/.venv"
    [ -w "$root" ] || venv="${XDG_CACHE_HOME:-$HOME/.cache}/mytorch/venv"
    shift 2
    local imports="import $(echo "$*" | sed 's/ /, /g')"
    local candidate
    for candidate in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "$venv/bin/python" python3 python; do
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
    mkdir -p "$(dirname "$venv")" || return 1
    # One builder at a time; a half-made environment is made anew.
    local lock="$venv.lock"
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$lock" || return 1
        flock 9
    fi
    PYTHON="$venv/bin/python"
    if ! (cd "$root" && "$PYTHON" -c "$imports") >/dev/null 2>&1; then
        local what="NumPy, ml_dtypes, safetensors and tqdm (about 100 MB)"
        [ "$extra" = test ] && what="what the tests compare with and run under: PyTorch, transformers, datasets, Numba, mypy, … (about 2 GB, minutes)"
        echo "Making a virtual environment in $venv, and installing this project there with $what …" >&2
        if ! "$PYTHON" -c 'import pip' >/dev/null 2>&1; then
            rm -rf "$venv"
            "$base" -m venv "$venv" || return 1
        fi
        local source="$root" copy=""
        if ! [ -w "$root" ]; then # pip builds in the source's folder
            copy="$(mktemp -d)" && cp -r "$root"/{mytorch,pyproject.toml,README.md,LICENSE} "$copy" || return 1
            chmod -R u+w "$copy"
            source="$copy"
        fi
        "$PYTHON" -m pip install -q --disable-pip-version-check "$source${extra:+[$extra]}" >&2
        local failed=$?
        [ -n "$copy" ] && rm -rf "$copy"
        if [ $failed != 0 ]; then
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
