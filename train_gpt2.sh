#!/usr/bin/env bash
# Train a GPT-2: bash train_gpt2.sh demo | shakespeare | owt [flags…]
#
# demo needs nothing but Python: it makes an environment beside itself if NumPy and the like are not installed, prepares
# Moby-Dick (examples/), trains for two or three minutes on the CPU and samples.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -u
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

usage() {
    cat <<'TEXT'
Usage: bash train_gpt2.sh demo|shakespeare|owt [flags…] [-- flags of train_gpt2.py…]
  --mixed_precision            train in 16 bits (fp16, or what "mytorchrun config" says)
  --fused                      use fused kernels
  --batch_size N               sequences per step and process
  --cuda_graph                 replay each step as a CUDA graph (one GPU)
  --gradient_checkpointing     recompute activations in backward
  --num_gpus N                 processes, one for each GPU
  --cpu                        on the CPU; shakespeare: a small model, in minutes
  --cpu --nproc_per_node N     N processes on the CPU, over MPI
  --distributed                use the launcher even for one process
  --host H, --port P           address of the first process (127.0.0.1, 13333)
  --triton_autotune            let Triton try kernel configurations
  --log_wandb                  log to Weights & Biases
  --overwrite                  replace the run that lies in the project's folder
  --disable_dlpack             accepted, and changes nothing: arrays are not handed over by DLPack here
TEXT
}

target="${1:-}"
case "$target" in
    demo | shakespeare | owt) shift ;;
    -h | --help | help) usage; exit 0 ;;
    "") echo "Error: no target given" >&2; usage >&2; exit 1 ;;
    *) echo "Error: Unknown argument $target" >&2; usage >&2; exit 1 ;;
esac

num_gpus=1
distributed=0
cpu=0
processes=1
host=127.0.0.1
port=13333
flags=()
value_of() {
    if [ "$2" -lt 2 ]; then
        echo "Error: $1 needs a value" >&2
        usage >&2
        exit 1
    fi
}
while [ $# -gt 0 ]; do
    case "$1" in
        --disable_dlpack) ;;
        --mixed_precision | --fused | --cuda_graph | --log_wandb | --overwrite) flags+=("$1") ;;
        --gradient_checkpointing) flags+=(--enable_gradient_checkpointing) ;;
        --batch_size) value_of "$1" $#; flags+=(--batch_size "$2"); shift ;;
        --num_gpus) value_of "$1" $#; num_gpus="$2"; shift ;;
        --host) value_of "$1" $#; host="$2"; shift ;;
        --port) value_of "$1" $#; port="$2"; shift ;;
        --distributed) distributed=1 ;;
        --cpu) cpu=1 ;;
        --nproc_per_node) value_of "$1" $#; processes="$2"; shift ;;
        --triton_autotune) export TRITON_AUTOTUNE_MODE=max TRITON_FLASH_AUTOTUNE_MODE=max ;;
        --) shift; flags+=("$@"); break ;;
        -h | --help) usage; exit 0 ;;
        *) echo "Error: Unknown argument $1" >&2; usage >&2; exit 1 ;;
    esac
    shift
done

. "$root/.ci/python.sh"
find_python "$root" "" numpy ml_dtypes safetensors tqdm || exit 1
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

if ! [ -w . ]; then
    echo "Error: $PWD can't be written, and data and work_dir are made there; from another folder:" >&2
    echo "  bash $root/train_gpt2.sh $target" >&2
    exit 1
fi

# nanoGPT's recipe for a CPU, with four times its learning rate.
small=(--model_size demo --context_length 64 --batch_size 12
    --gradient_accumulation_steps 1 --train_iterations 2100 --eval_interval 700 --eval_iterations 20
    --max_lr 4e-3 --min_lr 4e-4 --warmup_steps 100 --weight_decay 0.1 --max_grad_norm 1.0
    --beta1 0.9 --beta2 0.99 --dropout_p 0.0 --log_iter 100)
case "$target$cpu" in
    demo*)
        data=data/demo
        preset=(--project_name gpt2-demo "${small[@]}")
        ;;
    shakespeare1)
        data=data/shakespeare
        preset=(--project_name gpt2-demo-shakespeare "${small[@]}")
        ;;
    shakespeare0)
        data=data/shakespeare
        if ! "$PYTHON" -c 'import sys, mytorch; sys.exit(not mytorch.cuda.is_available())' 2>/dev/null; then
            echo "There is no GPU here, and this recipe (10.7M parameters) takes hours on a CPU." >&2
            echo "A small model in minutes: bash train_gpt2.sh shakespeare --cpu" >&2
        fi
        preset=(--project_name gpt2-small-shakespeare --model_size small --context_length 256 --batch_size 32
            --gradient_accumulation_steps 1 --train_iterations 2500 --eval_interval 1000 --eval_iterations 200
            --max_lr 1e-3 --min_lr 1e-4 --warmup_steps 500 --weight_decay 0.1 --max_grad_norm 1.0
            --beta1 0.9 --beta2 0.95 --dropout_p 0.0 --log_iter 25)
        ;;
    owt*)
        data=data/openwebtext
        preset=(--project_name gpt2-base-owt --model_size base --context_length 1024 --batch_size 96
            --gradient_accumulation_steps 6 --train_iterations 600000 --eval_interval 1000 --eval_iterations 200
            --max_lr 6e-4 --min_lr 6e-5 --warmup_steps 2000 --weight_decay 0.1 --max_grad_norm 1.0
            --beta1 0.9 --beta2 0.95 --dropout_p 0.0 --log_iter 25 --checkpoint_iterations 10000
            --always_save_checkpoint)
        ;;
esac

if [ ! -f "$data/train.bin" ] || [ ! -f "$data/val.bin" ]; then
    case "$target" in
        demo) "$PYTHON" "$root/prepare_data/prepare_demo.py" --path_to_save "$data" || exit 1 ;;
        shakespeare) "$PYTHON" "$root/prepare_data/prepare_shakespeare.py" --path_to_save "$data" || exit 1 ;;
        owt)
            echo "There is no $data; first: python prepare_data/prepare_owt.py --num_proc 8 --path_to_save $data" >&2
            exit 1
            ;;
    esac
fi

launch=("$PYTHON")
if [ "$processes" != 1 ] || { [ "$cpu" = 1 ] && [ "$distributed" = 1 ]; }; then
    launch=("$PYTHON" -m mytorch.distributed.run --nproc_per_node "$processes" --master_addr "$host" --master_port "$port")
    [ "$cpu" = 1 ] && launch+=(--cpu)
elif [ "$cpu" = 1 ]; then
    flags=(--device cpu ${flags[@]+"${flags[@]}"})
elif [ "$num_gpus" -gt 1 ] 2>/dev/null || [ "$distributed" = 1 ]; then
    launch=("$PYTHON" -m mytorch.distributed.launch --num_gpus "$num_gpus" --master_addr "$host" --master_port "$port")
elif ! [ "$num_gpus" = 1 ]; then
    echo "Error: --num_gpus is $num_gpus; a positive whole number is wanted" >&2
    exit 1
fi

"${launch[@]}" "$root/train_gpt2.py" --working_directory work_dir --path_to_data "$data" "${preset[@]}" \
    ${flags[@]+"${flags[@]}"} || exit $?

# Where the run lies: what the flags say, the last of each.
folder=work_dir
run=""
all=("${preset[@]}" ${flags[@]+"${flags[@]}"})
for ((i = 0; i < ${#all[@]}; i++)); do
    case "${all[$i]}" in
        --project_name | --working_directory | --run_name) name="${all[$i]}" value="${all[$((i + 1))]:-}" ;;
        --project_name=* | --working_directory=* | --run_name=*) name="${all[$i]%%=*}" value="${all[$i]#*=}" ;;
        *) continue ;;
    esac
    case "$name" in
        --project_name) project="$value" ;;
        --working_directory) folder="$value" ;;
        --run_name) run="/$value" ;;
    esac
done

if [ "$target" = demo ]; then
    echo
    "$PYTHON" "$root/inference_gpt2.py" "$folder/$project$run/" --device cpu --temperature 0.7 --topk 15 \
        --max_tokens_gen 600 --seed 1 --prompt "Call me " || exit $?
    script="$root/inference_gpt2.py" python="$PYTHON"
    [ "$root" = "$PWD" ] && script=inference_gpt2.py
    echo
    case "$PYTHON" in
        */.venv/bin/python | */mytorch/venv/bin/python)
            echo "Python and what it needs are in ${PYTHON%/bin/python}; for this terminal:"
            echo "  source ${PYTHON%python}activate"
            python=python
            ;;
    esac
    echo "Sample more:"
    echo "  $python $script $folder/$project$run/ --temperature 0.7 --topk 15 --prompt 'The whale '"
    echo "Then Shakespeare, as README.md says, or your own text:"
    echo "  bash ${script%inference_gpt2.py}train_gpt2.sh shakespeare --cpu"
fi
