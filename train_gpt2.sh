#!/usr/bin/env bash
# Train a GPT-2: bash train_gpt2.sh demo | text FILE | shakespeare | owt [flags…]
#
# The demo requires only Python. It creates a virtual environment in .venv if NumPy or another dependency is missing,
# prepares Moby-Dick (included in examples/), trains for three to five minutes on the CPU and generates text.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -u
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

usage() {
    cat <<'TEXT'
Usage: bash train_gpt2.sh demo|text FILE|shakespeare|owt [flags…] [-- flags of train_gpt2.py…]
  demo                         0.8M parameters, Moby-Dick, on the CPU (three to five minutes)
  text FILE                    your own text, with a model that fits the text, this machine and the time
  shakespeare                  10.7M parameters, tiny Shakespeare, on a GPU; with --cpu 0.8M parameters on the CPU
  owt                          124M parameters, OpenWebText, on GPUs
Flags:
  --minutes N                  training time, for text (default: 10)
  --encoding E                 encoding of FILE, for text (default: utf-8)
  --yes                        training on a CPU that is expected to take more than a day
  --mixed_precision            fp16 mixed precision (MYTORCHRUN_MIXED_PRECISION overrides the dtype)
  --fused                      fused kernels for all ops that have one (default: where the kernel is faster)
  --batch_size N               number of sequences in an optimizer step of one process
  --cuda_graph                 replay of each training step as a CUDA graph (one GPU only)
  --gradient_checkpointing     recomputation of activations during backward, to save memory
  --num_gpus N                 number of processes, one for each GPU (default: 1)
  --cpu                        training on the CPU
  --cpu --nproc_per_node N     training with N processes on the CPU, over MPI (default: 1)
  --distributed                use of the launcher for one process, too
  --host H                     address of the first process (default: 127.0.0.1)
  --port P                     port of the first process (default: a free port)
  --triton_autotune            search for the fastest configuration of each Triton kernel
  --log_wandb                  logging to Weights & Biases
  --resume_from_checkpoint C   path of the checkpoint to resume from, or latest
  --overwrite                  replacement of the existing run in the project's folder
  --disable_dlpack             no effect; accepted for compatibility
TEXT
}

target="${1:-}"
case "$target" in
    demo | shakespeare | owt) shift ;;
    text)
        shift
        if [ $# -lt 1 ] || [ "${1#-}" != "$1" ]; then
            echo "train_gpt2.sh: text: expected a text file, got ${1:-none}. For example: bash train_gpt2.sh text book.txt" >&2
            exit 1
        fi
        text="$1"
        shift
        ;;
    -h | --help | help) usage; exit 0 ;;
    "") echo "train_gpt2.sh: expected demo, text, shakespeare or owt, got no target" >&2; usage >&2; exit 1 ;;
    *) echo "train_gpt2.sh: expected demo, text, shakespeare or owt, got $target" >&2; usage >&2; exit 1 ;;
esac

num_gpus=1
distributed=0
cpu=0
processes=1
host=127.0.0.1
port=
flags=()
planning=()
given=$#
value_of() {
    if [ "$2" -lt 2 ]; then
        echo "train_gpt2.sh: $1: expected a value, got none" >&2
        usage >&2
        exit 1
    fi
}
while [ $# -gt 0 ]; do
    case "$1" in
        --disable_dlpack) ;;
        --minutes | --encoding)
            value_of "$1" $#
            if [ "$target" != text ]; then
                echo "train_gpt2.sh: $1: expected the target text, got $target" >&2
                exit 1
            fi
            planning+=("$1" "$2")
            shift
            ;;
        --mixed_precision | --fused | --cuda_graph | --log_wandb | --overwrite | --yes) flags+=("$1") ;;
        --gradient_checkpointing) flags+=(--enable_gradient_checkpointing) ;;
        --resume_from_checkpoint) value_of "$1" $#; flags+=("$1" "$2"); shift ;;
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
        *)
            usage >&2
            echo "train_gpt2.sh: expected a flag of the list above, got $1. Put flags of train_gpt2.py after --" >&2
            exit 1
            ;;
    esac
    shift
done

. "$root/.ci/python.sh"
find_python "$root" "" numpy ml_dtypes safetensors tqdm || exit 1
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

if ! [ -w . ]; then
    echo "train_gpt2.sh: expected a writable folder for data and work_dir, got $PWD. Run from another folder:" >&2
    echo "  bash $root/train_gpt2.sh $target" >&2
    exit 1
fi

# The hyperparameters of nanoGPT's CPU example, with a learning rate four times as large.
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
            echo "No GPU was found. Training this model (10.7M parameters) takes hours on a CPU." >&2
            echo "To train a small model in minutes, run: bash train_gpt2.sh shakespeare --cpu" >&2
        fi
        preset=(--project_name gpt2-small-shakespeare --model_size small --context_length 256 --batch_size 32
            --gradient_accumulation_steps 1 --train_iterations 2500 --eval_interval 1000 --eval_iterations 200
            --max_lr 1e-3 --min_lr 1e-4 --warmup_steps 500 --weight_decay 0.1 --max_grad_norm 1.0
            --beta1 0.9 --beta2 0.95 --dropout_p 0.0 --log_iter 25)
        ;;
    text*)
        name="$(basename -- "$text")"
        name="${name%.*}"
        data="data/${name:-text}"
        preset=(--project_name "text-${name:-text}")
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

# The folder of the run: the last value of each flag counts.
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

# A finished run is sampled from, an interrupted run continues, and a new one is planned.
train=1
if [ "$target" = demo ] && [ "$given" = 0 ] && [ -f "$folder/$project$run/final_checkpoint/accelerator.json" ]; then
    train=0
elif [ "$target" = text ]; then
    [ "$cpu" = 1 ] && planning+=(--device cpu)
    case " ${flags[*]+${flags[*]}} " in *" --overwrite "*) planning+=(--overwrite) ;; esac
    "$PYTHON" "$root/prepare_data/plan_text.py" --input_file "$text" --path_to_save "$data" --run "$folder/$project$run" \
        ${planning[@]+"${planning[@]}"}
    case $? in
        0) ;;
        10) train=0 ;;
        11) flags+=(--resume_from_checkpoint latest) ;;
        *) exit 1 ;;
    esac
    while IFS= read -r line; do
        [ "${line#\# }" = "$line" ] && preset+=("$line")
    done <"$data/plan.txt"
fi

if [ ! -f "$data/train.bin" ] || [ ! -f "$data/val.bin" ]; then
    case "$target" in
        demo) "$PYTHON" "$root/prepare_data/prepare_demo.py" --path_to_save "$data" || exit 1 ;;
        shakespeare) "$PYTHON" "$root/prepare_data/prepare_shakespeare.py" --path_to_save "$data" || exit 1 ;;
        owt)
            echo "train_gpt2.sh: expected prepared data in $data, got none. To prepare the data, run:" >&2
            echo "  python prepare_data/prepare_owt.py --num_proc 8 --path_to_save $data" >&2
            exit 1
            ;;
    esac
fi

launch=("$PYTHON")
if [ "$processes" != 1 ] || { [ "$cpu" = 1 ] && [ "$distributed" = 1 ]; }; then
    launch=("$PYTHON" -m mytorch.distributed.run --nproc_per_node "$processes" --master_addr "$host" ${port:+--master_port "$port"})
    [ "$cpu" = 1 ] && launch+=(--cpu)
elif [ "$cpu" = 1 ]; then
    flags=(--device cpu ${flags[@]+"${flags[@]}"})
elif [ "$num_gpus" -gt 1 ] 2>/dev/null || [ "$distributed" = 1 ]; then
    launch=("$PYTHON" -m mytorch.distributed.launch --num_gpus "$num_gpus" --master_addr "$host" ${port:+--master_port "$port"})
elif ! [ "$num_gpus" = 1 ]; then
    echo "train_gpt2.sh: --num_gpus: expected an integer of at least 1, got $num_gpus" >&2
    exit 1
fi

if [ "$train" = 1 ]; then
    "${launch[@]}" "$root/train_gpt2.py" --working_directory work_dir --path_to_data "$data" "${preset[@]}" \
        ${flags[@]+"${flags[@]}"} || exit $?
fi

if [ "$target" = demo ] || [ "$target" = text ]; then
    prompt=() example="--prompt 'The '"
    [ "$target" = demo ] && prompt=(--prompt "Call me ") example="--prompt 'The whale '"
    [ "$train" = 0 ] && echo "The run in $folder/$project$run is complete. To train it again, add --overwrite."
    echo
    "$PYTHON" "$root/inference_gpt2.py" "$folder/$project$run/" --device cpu --temperature 0.7 --topk 15 \
        --max_tokens_gen 600 --seed 1 ${prompt[@]+"${prompt[@]}"} || exit $?
    script="$root/inference_gpt2.py" python="$PYTHON"
    [ "$root" = "$PWD" ] && script=inference_gpt2.py
    echo
    case "$PYTHON" in
        */.venv/bin/python | */mytorch/venv/bin/python)
            echo "Python and the dependencies are in ${PYTHON%/bin/python}. Activate the environment in this terminal:"
            echo "  source ${PYTHON%python}activate"
            python=python
            ;;
    esac
    echo "To generate more text, run:"
    echo "  $python $script $folder/$project$run/ --temperature 0.7 --topk 15 --max_tokens_gen 600 $example"
    if [ "$target" = demo ]; then
        echo "To train on your own text, run:"
        echo "  bash ${script%inference_gpt2.py}train_gpt2.sh text book.txt"
    else
        echo "To use the model in Python:"
        echo "  from mytorch.models import from_pretrained"
        echo "  model = from_pretrained($(printf "'%s'" "$folder/$project$run"))"
        echo "To train for longer, run:"
        echo "  bash ${script%inference_gpt2.py}train_gpt2.sh text $(printf %q "$text") --minutes 60 --overwrite"
    fi
fi
