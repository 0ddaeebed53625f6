#!/usr/bin/env bash
# Run the full tier of the tests, the fast tier, or pytest with the given arguments:
#     bash tests/run.sh                                    # every test, one process per core
#     bash tests/run.sh --fast                             # the tests of tests/fast.txt, one process per core
#     bash tests/run.sh tests/test_ops.py --cell softmax
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -u
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
. "$root/.ci/python.sh"
find_python "$root" test numpy ml_dtypes safetensors tqdm pytest pytest_timeout xdist || exit 1
cd "$root" || exit 1
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
# The tests start several hundred processes, which would all compile the library's source again.
unset PYTHONDONTWRITEBYTECODE
if [ "${1:-}" = --fast ]; then
    shift
    mapfile -t fast < <(grep -v '^#' tests/fast.txt | grep .)
    set -- -n auto --dist loadgroup "${fast[@]}" "$@"
elif [ $# = 0 ]; then
    # Compiles each kernel once. Otherwise every process that comes to a kernel before it is in Numba's cache compiles it.
    "$PYTHON" -m mytorch.cli warmup >/dev/null
    set -- -n auto --dist loadgroup
fi
exec "$PYTHON" -m pytest "$@"
