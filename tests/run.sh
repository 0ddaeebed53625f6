#!/usr/bin/env bash
# Run all tests with one process per core, or run pytest with the given arguments:
#     bash tests/run.sh tests/test_ops.py --cell softmax
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -u
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
. "$root/.ci/python.sh"
find_python "$root" test numpy ml_dtypes safetensors tqdm pytest pytest_timeout xdist || exit 1
cd "$root" || exit 1
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
if [ $# = 0 ]; then
    set -- -n auto
fi
exec "$PYTHON" -m pytest "$@"
