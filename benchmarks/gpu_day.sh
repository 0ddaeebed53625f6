#!/usr/bin/env bash
# Run the GPU checks, benchmarks and tests in three independent parts of at most 9 minutes:
#
#     bash benchmarks/gpu_day.sh LOGS [a|b|c|all] [options of gpu_check.py]
#
# a: training steps (eager, captured and tuned), parity with PyTorch, a profile, correctness, and a short run of train_gpt2.py.
# b: kernels, matrix multiplication, block sizes, memcheck, and the tests marked gpu, each in a separate process, eight at a time.
# c: the same steps and kernels in PyTorch, and the other precisions.
#
# Each section has a time limit. The output is written to the folder LOGS. Environment variables:
#
# DATA: a folder with prepared data (default: data/shakespeare if it exists, otherwise the text of prepare_demo.py).
# WHEELS: a folder with wheels of pytest, if pytest is not installed.
#
# With --rehearse, everything runs at small sizes over the fake CuPy of tests/gpu, without a GPU.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
[ $# -ge 1 ] || { echo "Usage: bash benchmarks/gpu_day.sh LOGS [a|b|c|all] [flags of gpu_check.py…]" >&2; exit 1; }
mkdir -p "$1" || exit 1
logs="$(cd "$1" && pwd)"
shift
parts="a b c"
case "${1:-}" in a | b | c) parts="$1"; shift ;; all) shift ;; esac
python="${PYTHON:-python3}"
data="${DATA:-data/shakespeare}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
failed=0

part() { # name, seconds, command…: writes the output to LOGS/name.log and prints its end
    local name="$1" limit="$2" begun=$SECONDS code=0
    shift 2
    timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 || code=$?
    echo "== $name: exit $code after $((SECONDS - begun)) s"
    tail -n 60 "$logs/$name.log"
    [ "$code" = 0 ] || failed=1
}

small_training() {
    if [ ! -f "$data/train.bin" ]; then
        data="$work/data"
        part data 15 "$python" prepare_data/prepare_demo.py --path_to_save "$data"
    fi
    part train 45 "$python" "${train[@]}" --device cuda --mixed_precision bf16 --cuda_graph --max_lr 1e-3 --min_lr 1e-4 \
        --gradient_accumulation_steps 1 --path_to_data "$data" --working_directory "$work" --project_name gpu-day
}

gpu_tests() { # a separate process and time limit for each test, so a hang or a lost GPU affects one test only
    if ! "$python" -c 'import pytest' 2>/dev/null && [ -n "${WHEELS:-}" ]; then
        "$python" -m pip install -q --no-index --find-links "$WHEELS" --target "$work/pytest" pytest && PYTHONPATH+=":$work/pytest"
    fi
    mkdir -p "$logs/pytest"
    local run=("$python" -m pytest -c /dev/null --rootdir "$PWD" -p no:cacheprovider -q -W ignore --tb=short -rs)
    timeout 60 "${run[@]}" --collect-only -m gpu -k "not test_on_the_gpu" tests/gpu tests/kernels tests/distributed/test_nccl.py \
        >"$logs/pytest/collected.log" 2>&1
    grep -F '::' "$logs/pytest/collected.log" >"$work/tests"
    one() {
        local log="$1" code=0
        shift
        timeout -k 5 100 "$@" >"$log" 2>&1 || code=$?
        echo "exit $code: ${*: -1}: $(tail -n 1 "$log")"
        return "$code"
    }
    local -a running=()
    local number=0 bad=0 test
    while IFS= read -r test; do
        number=$((number + 1))
        one "$logs/pytest/$number.log" "${run[@]}" "$test" &
        running+=($!)
        if [ "${#running[@]}" -ge "${SIDE_BY_SIDE:-8}" ]; then
            wait "${running[0]}" || bad=$((bad + 1))
            running=("${running[@]:1}")
        fi
    done <"$work/tests"
    for test in ${running[@]+"${running[@]}"}; do wait "$test" || bad=$((bad + 1)); done
    echo "== pytest: $number tests, $bad failed"
    [ "$number" -gt 0 ] && [ "$bad" = 0 ] || failed=1
}

train=(train_gpt2.py --model_size small --context_length 256 --batch_size 32 --train_iterations 300 --eval_interval 300 --eval_iterations 10 --log_iter 25 --warmup_steps 20)
limit=460
case " $* " in *" --rehearse "*)
    export TRITON_INTERPRET=1 OMP_NUM_THREADS=1
    train=(tests/gpu/with_fake_cupy.py train_gpt2.py --model_size demo --context_length 8 --batch_size 2 --train_iterations 6 --eval_interval 6 --eval_iterations 1 --log_iter 1 --warmup_steps 2) ;;
esac
for name in $parts; do
    begun=$SECONDS
    [ "$name" = b ] && limit=320
    part "gpu_check_$name" "$((limit + 15))" "$python" benchmarks/gpu_check.py --day "$name" --seconds "$limit" --output "$logs/gpu_check_$name.json" "$@"
    limit=460
    [ "$name" = a ] && small_training
    [ "$name" = b ] && gpu_tests
    echo "==== part $name: $((SECONDS - begun)) s"
done
exit $failed
