# Sourced by train_gpt2.sh and tests/run.sh: finds a Python with the dependencies, or creates a virtual environment.
#
# find_python ROOT EXTRA MODULE… sets PYTHON to an interpreter that can import every MODULE: the active environment, the
# environment ROOT/.venv, or python3. If none of them can, installs the project with the extra EXTRA (none if empty)
# into ROOT/.venv, or into ~/.cache/mytorch/venv if ROOT is not writable.

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
        echo "find_python: expected Python 3.10 or newer, got no python3. Install Python." >&2
        return 1
    fi
    if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        echo "find_python: expected Python 3.10 or newer, got $base $("$base" -V 2>&1 | cut -d' ' -f2). Install a newer one." >&2
        return 1
    fi
    if ! "$base" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        echo "find_python: expected venv and pip, got $base without them. On Debian and Ubuntu, run:" >&2
        echo "  apt-get install python3-venv python3-pip" >&2
        return 1
    fi
    mkdir -p "$(dirname "$venv")" || return 1
    # One process at a time creates the environment. An incomplete environment is created again.
    local lock="$venv.lock"
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$lock" || return 1
        flock 9
    fi
    PYTHON="$venv/bin/python"
    if ! (cd "$root" && "$PYTHON" -c "$imports") >/dev/null 2>&1; then
        local what="NumPy, ml_dtypes, safetensors and tqdm (about 100 MB)"
        [ "$extra" = test ] && what="the packages that the tests require: PyTorch, transformers, datasets, Numba, mypy, … (about 2 GB, takes minutes)"
        echo "Making a virtual environment in $venv and installing this project and $what …" >&2
        if ! "$PYTHON" -c 'import pip' >/dev/null 2>&1; then
            rm -rf "$venv"
            "$base" -m venv "$venv" || return 1
        fi
        local source="$root" copy=""
        if ! [ -w "$root" ]; then # pip writes to the source folder
            copy="$(mktemp -d)" && cp -r "$root"/{mytorch,pyproject.toml,README.md,LICENSE} "$copy" || return 1
            chmod -R u+w "$copy"
            source="$copy"
        fi
        "$PYTHON" -m pip install -q --disable-pip-version-check "$source${extra:+[$extra]}" >&2
        local failed=$?
        [ -n "$copy" ] && rm -rf "$copy"
        if [ $failed != 0 ]; then
            echo "find_python: the installation failed. See the messages of pip above." >&2
            return 1
        fi
    fi
    if command -v flock >/dev/null 2>&1; then
        flock -u 9
        rm -f "$lock"
    fi
    return 0
}
