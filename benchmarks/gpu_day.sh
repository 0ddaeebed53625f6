#!/usr/bin/env bash
# Run the GPU checks and benchmarks when there is little time on a GPU:
#
#     bash benchmarks/gpu_day.sh LOGS first|second|long [options of gpu_check.py]
#
# first: what must be known first, in at most 7 minutes: versions and a smoke test, training steps of GPT-2 124M (eager and
#        captured), the correctness of all kernels, PyTorch on the same GPU, the main kernels, a small model, profiles, parity.
# second: in at most 3 minutes, what failed in the first (--earlier LOGS/results.jsonl), then tuned steps, products and block sizes.
# long: everything else, without a time limit.
#
# The folder LOGS receives four files: results.json, results.jsonl (each figure as soon as it is known), results.txt (all output of
# the sections) and log.txt (what this script prints, with the failures last). The exit status is 0 if everything ran and nothing
# failed. If a folder .whl exists (benchmarks/fetch_wheels.sh), its packages are used.
#
# With --rehearse, everything runs at small sizes over the fake CuPy of tests/gpu, without a GPU.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
case "${2:-}" in first) seconds=415 ;; second) seconds=175 ;; long) seconds=0 ;; *)
    echo "Usage: bash benchmarks/gpu_day.sh LOGS first|second|long [options of gpu_check.py]" >&2
    exit 1 ;;
esac
mkdir -p "$1" || exit 1
logs="$(cd "$1" && pwd)"
part="$2"
shift 2
python="${PYTHON:-python3}"
begun=$SECONDS
exec > >(tee "$logs/log.txt") 2>&1
printer=$!
site=
if compgen -G '.whl/*.whl' >/dev/null; then
    site="$(mktemp -d)"
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .whl/*.whl ||
        echo "The packages of .whl cannot be installed; everything else is measured without them."
fi
case " $* " in *" --rehearse "*) seconds=0 ;; esac
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${site:+:$site}${PYTHONPATH:+:$PYTHONPATH}"
command -v nvidia-smi >/dev/null && nvidia-smi -L
"$python" benchmarks/gpu_check.py --day "$part" --seconds "$seconds" --output "$logs/results.json" "$@" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM INT # gpu_check.py ends the section, and writes what it has
code=0
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child" || code=$?; done
[ -z "$site" ] || rm -rf "$site"
echo "==== $part: exit $code after $((SECONDS - begun)) s"
exec >&- 2>&-
wait "$printer" 2>/dev/null
exit "$code"
