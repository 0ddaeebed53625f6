#!/usr/bin/env bash
# All that a machine with a GPU should show at once, in under 9 minutes: bash benchmarks/gpu_day.sh LOGS [flags of gpu_check.py…]
#
# benchmarks/gpu_check.py, the tests marked gpu, and a short training by train_gpt2.py, each with a time limit of its own; what
# they say goes to LOGS. DATA is a folder of prepare_data's (data/shakespeare if there is one), else a text that Python has.
# With --rehearse no GPU is needed: everything runs small, over the stand-in of tests/gpu.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
[ $# -ge 1 ] || { echo "Usage: bash benchmarks/gpu_day.sh LOGS [flags of gpu_check.py…]" >&2; exit 1; }
mkdir -p "$1" || exit 1
logs="$(cd "$1" && pwd)"
shift
python="${PYTHON:-python3}"
data="${DATA:-data/shakespeare}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
failed=0

part() { # name, seconds, command…: its output to LOGS/name.log, the end of it here
    local name="$1" limit="$2" begun=$SECONDS code=0
    shift 2
    timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 || code=$?
    echo "== $name: exit $code after $((SECONDS - begun)) s"
    tail -n 40 "$logs/$name.log"
    [ "$code" = 0 ] || failed=1
}

train=(train_gpt2.py --model_size small --context_length 256 --batch_size 32 --train_iterations 300 --eval_interval 300 --eval_iterations 10 --log_iter 25 --warmup_steps 20)
case " $* " in *" --rehearse "*)
    export TRITON_INTERPRET=1 OMP_NUM_THREADS=1
    train=(tests/gpu/over_stand_in.py train_gpt2.py --model_size demo --context_length 8 --batch_size 2 --train_iterations 6 --eval_interval 6 --eval_iterations 1 --log_iter 1 --warmup_steps 2) ;;
esac
part gpu_check 350 "$python" benchmarks/gpu_check.py --seconds 335 --output "$logs/gpu_check.json" "$@"
part pytest 120 "$python" -m pytest -p no:cacheprovider -q -m gpu --tb=short -rs tests/gpu tests/kernels tests/distributed/test_nccl.py
if [ ! -f "$data/train.bin" ]; then
    data="$work/data"
    part data 15 "$python" prepare_data/prepare_demo.py --path_to_save "$data"
fi
part train 50 "$python" "${train[@]}" --device cuda --mixed_precision bf16 --cuda_graph --max_lr 1e-3 --min_lr 1e-4 \
    --gradient_accumulation_steps 1 --path_to_data "$data" --working_directory "$work" --project_name gpu-day
exit $failed
