"""Train a GPT-2, as nanoGPT trains its own.

    python train_gpt2.py --path_to_data data/shakespeare --model_size small --context_length 256 …
    mytorchrun launch --num_gpus 2 train_gpt2.py --path_to_data …      (or --cpu --nproc_per_node 2)

Everything that belongs to a run lies in <working_directory>/<project_name>[/<run_name>]: `checkpoint_N`,
`final_checkpoint`, `model_meta.json`, `tokenizer.json`, `log.jsonl`, `loss.png`. Ctrl-C (or SIGTERM) finishes the
step under way and leaves a checkpoint from which `--resume_from_checkpoint latest` continues exactly.
"""

import argparse
import json
import math
import shutil
import signal
import sys
import time
from importlib import util
from pathlib import Path

import numpy as np
from tqdm import tqdm

import mytorch
from mytorch.accelerate import Accelerator
from mytorch.accelerate.checkpoint import is_complete, newest_checkpoint
from mytorch.models import GPT2, GPT2Config
from mytorch.models.gpt2 import SIZES
from mytorch.optim import AdamW
from mytorch.optim.lr_scheduler import CosineLRScheduler
from mytorch.serialization import write_json
from mytorch.utils.data import DataLoader
from mytorch.utils.data.tokens import read_header, read_tokens


def parse(argv=None):
    p = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = p.add_argument
    add("--project_name", default="GPT2Trainer", help="folder under the working directory")
    add("--run_name", help="folder under the project's; also the run's name in Weights & Biases")
    add("--working_directory", default="work_dir", help="where projects lie")
    add("--checkpoint_iterations", type=int, default=10000, help="iterations between checkpoints")
    add("--always_save_checkpoint", action="store_true", help="keep every checkpoint instead of the newest one")
    add("--resume_from_checkpoint", metavar="CHECKPOINT", help='path or name of a checkpoint, or "latest"')
    add("--context_length", type=int, default=1024, help="tokens in a sequence")
    add("--model_size", choices=list(SIZES), default="base", help="layers, heads and width")
    add("--dropout_p", type=float, default=0.0, help="dropout probability")
    add("--use_bias", action="store_true", help="biases in linear layers and layer norms")
    add("--activation", choices=["gelu", "gelu_tanh"], default="gelu", help="exact GELU, or GPT-2's approximation")
    add("--fused", action="store_true", help="use fused kernels wherever there are any; by default where they pay")
    add("--path_to_data", required=True, help="folder with train.bin, val.bin and tokenizer.json")
    add("--num_workers", type=int, default=0, help="processes that read data; a batch costs microseconds, so none")
    add("--train_iterations", type=int, default=150000, help="optimizer steps")
    add("--use_chinchilla", action="store_true", help="as many iterations as show 20 tokens for each parameter")
    add("--eval_interval", type=int, default=2000, help="iterations between evaluations")
    add("--eval_iterations", type=int, default=200, help="batches in an evaluation")
    add("--batch_size", type=int, default=256, help="sequences in a step of one process")
    add(
        "--batch_size_per_gpu",
        type=int,
        help="sequences in one forward pass, instead of --batch_size over accumulation steps",
    )
    add("--gradient_accumulation_steps", type=int, default=16, help="forward passes in a step")
    add("--tokens_per_batch", type=int, help="tokens in a step of all processes; sets the accumulation steps")
    add("--max_lr", type=float, default=6e-4, help="learning rate after the warm-up")
    add("--min_lr", type=float, default=6e-5, help="learning rate at the end")
    add("--warmup_steps", type=int, default=2000, help="iterations of the warm-up")
    add("--weight_decay", type=float, default=0.1, help="of matrices and embeddings")
    add("--max_grad_norm", type=float, default=1.0, help="gradients are scaled down to it; 0 for no limit")
    add("--beta1", type=float, default=0.9, help="AdamW's decay of the mean gradient")
    add("--beta2", type=float, default=0.95, help="AdamW's decay of the mean square")
    add(
        "--mixed_precision",
        nargs="?",
        const="fp16",
        default="no",
        choices=["no", "fp16", "bf16"],
        help="fp16 if no value",
    )
    add(
        "--cuda_graph",
        action="store_true",
        help="from the fourth iteration on, replay the step as a CUDA graph (one GPU)",
    )
    add("--enable_gradient_checkpointing", action="store_true", help="recompute activations in backward")
    add("--log_iter", type=int, default=100, help="iterations between lines of log")
    add("--log_wandb", action="store_true", help="log to Weights & Biases, or to a file where it is not installed")
    add("--seed", type=int, default=1337, help="of weights, dropout and batches")
    add("--device", help='"cpu", "cuda" or "cuda:N"; by default a GPU if there is one')
    args = p.parse_args(argv)
    for name, value in vars(args).items():
        if type(value) is int and value < 1 and name not in ("num_workers", "warmup_steps", "seed"):
            p.error(f"--{name} is {value}; expected at least 1")
    return args, p


def settle_batches(args, processes, error):
    """Set args.micro_batch_size, gradient_accumulation_steps and batch_size from the flags that speak of them."""
    if args.batch_size_per_gpu is not None:
        args.micro_batch_size = args.batch_size_per_gpu
    else:
        args.micro_batch_size, rest = divmod(args.batch_size, args.gradient_accumulation_steps)
        if rest:
            error(
                f"--batch_size {args.batch_size} is not divisible by --gradient_accumulation_steps "
                f"{args.gradient_accumulation_steps}; choose a multiple of it"
            )
    if args.tokens_per_batch is not None:
        tokens = args.micro_batch_size * args.context_length * processes
        args.gradient_accumulation_steps = max(1, round(args.tokens_per_batch / tokens))
    args.batch_size = args.micro_batch_size * args.gradient_accumulation_steps


class RandomBlocks:
    """Micro-batches of random blocks: the i-th depends on the seed and i alone, so any process can make it.

    Item i: (inputs, targets), int64 arrays (batch_size, block_size); targets are the inputs one token on.
    """

    def __init__(self, path, block_size, batch_size, length, seed):
        self.tokens = read_tokens(path)
        if len(self.tokens) <= block_size:
            raise ValueError(
                f"{path} holds {len(self.tokens)} tokens, too few for a context of {block_size}; "
                "use a longer text or a smaller --context_length."
            )
        self.window = np.arange(block_size + 1)
        self.batch_size = batch_size
        self.length = length
        self.seed = seed

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if not 0 <= i < self.length:
            raise IndexError(i)
        draw = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, i]))
        starts = draw.integers(0, len(self.tokens) - len(self.window) + 1, size=(self.batch_size, 1))
        rows = self.tokens[starts + self.window].astype(np.int64)
        return rows[:, :-1], rows[:, 1:]


class Progress:
    """What a checkpoint keeps beside the accelerator's own: the iterations done."""

    def __init__(self):
        self.iteration = 0

    def state_dict(self):
        return {"iteration": self.iteration}

    def load_state_dict(self, state):
        self.iteration = state["iteration"]


class Interrupt:
    """Remembers a Ctrl-C or SIGTERM until the step is done; a second one ends the program at once."""

    def __init__(self):
        self.signal = None
        self.before = {s: signal.signal(s, self) for s in (signal.SIGINT, signal.SIGTERM)}

    def __call__(self, number, frame):
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number

    def seen(self, accelerator):
        """Whether any process got a signal; all processes ask at the same place, so they stop together."""
        if accelerator.num_processes > 1:
            mine = mytorch.tensor([self.signal or 0], device=accelerator.device)
            number = int(accelerator.gather(mine).max())
            self.signal = number or self.signal  # one that came just now is seen next time
            return number > 0
        return self.signal is not None

    def restore(self):
        for number, handler in self.before.items():
            signal.signal(number, handler)


def ignore_interrupts(worker):
    """Ctrl-C reaches the whole process group; the loader's workers leave it to the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def find_checkpoint(folder, wanted):
    """The checkpoint directory that `wanted` means: a path, a name in `folder`, or "latest".

    Raises:
        FileNotFoundError: there is none.
    """
    if wanted == "latest":
        found = newest_checkpoint(folder)
        if found is None:
            raise FileNotFoundError(f"There is no checkpoint in {folder} to resume from.")
        return found
    for path in (Path(wanted), folder / wanted):
        if is_complete(path):
            return path
    raise FileNotFoundError(f"There is no complete checkpoint {wanted}, neither as a path nor in {folder}.")


class Log:
    """log.jsonl: a JSON object for each line of log and each evaluation."""

    def __init__(self, path, iteration, writes=True):
        self.path = path
        self.records = []
        if not writes:
            return
        if iteration and path.is_file():
            lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
            self.records = [r for r in lines if r["iteration"] <= iteration]
        path.write_text("".join(json.dumps(r) + "\n" for r in self.records))

    def write(self, **record):
        self.records.append(record)
        with open(self.path, "a") as file:
            file.write(json.dumps(record) + "\n")

    def plot(self, path):
        """Draw the losses, where matplotlib is installed."""
        if util.find_spec("matplotlib") is None or not self.records:
            return
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(xlabel="iteration", ylabel="cross-entropy")
        for key, label in (("loss", "training"), ("validation_loss", "validation")):
            points = [(r["iteration"], r[key]) for r in self.records if key in r]
            if points:
                axes.plot(*zip(*points, strict=True), label=label, marker="o" if key != "loss" else None)
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(path, dpi=120)


@mytorch.no_grad()
def evaluate(model, batches, accelerator, interrupt):
    """The mean loss over all batches, or None if interrupted."""
    model.eval()
    total = 0.0
    for i in range(len(batches)):
        if interrupt.seen(accelerator):
            model.train()
            return None
        x, y = (mytorch.from_numpy(part).to(accelerator.device) for part in batches[i])
        total += accelerator.gather_for_metrics(model(x, y))
    model.train()
    return total / len(batches)


def main(argv=None):
    args, parser = parse(argv)
    folder = Path(args.working_directory) / args.project_name / (args.run_name or "")
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision, log_wandb=args.log_wandb, project_dir=folder, device=args.device
    )
    settle_batches(args, accelerator.num_processes, parser.error)
    if args.cuda_graph and (accelerator.device.type != "cuda" or accelerator.num_processes > 1):
        parser.error(
            f"--cuda_graph is for one GPU; this is {accelerator.num_processes} processes on {accelerator.device.type}"
        )
    accelerator.gradient_accumulation_steps = args.gradient_accumulation_steps
    mytorch.manual_seed(args.seed)
    data = Path(args.path_to_data)
    for name in ("train.bin", "val.bin"):
        if not (data / name).is_file():
            raise FileNotFoundError(f"There is no {data / name}; make it with one of the scripts in prepare_data/.")
    vocab_size = read_header(data / "train.bin")[2]
    if vocab_size > 1024:  # a multiple of 64 suits matrix units; small vocabularies stay what they are
        vocab_size = -(-vocab_size // 64) * 64
    config = GPT2Config.sized(
        args.model_size,
        vocab_size=vocab_size,
        context_length=args.context_length,
        dropout_p=args.dropout_p,
        use_bias=args.use_bias,
        activation=args.activation,
        gradient_checkpointing=args.enable_gradient_checkpointing,
        fused=args.fused or None,
    )
    model = GPT2(config)
    tokens_per_step = args.batch_size * args.context_length * accelerator.num_processes
    accelerator.print(f"Total Trainable Parameters: {model.num_parameters():,}")
    if args.use_chinchilla:
        args.train_iterations = math.ceil(20 * model.num_parameters() / tokens_per_step)
        accelerator.print(f"Training for {args.train_iterations:,} iterations: 20 tokens for each parameter.")
    if args.warmup_steps > args.train_iterations:
        parser.error(f"--warmup_steps {args.warmup_steps} exceeds --train_iterations {args.train_iterations}")

    accumulation = args.gradient_accumulation_steps
    own_seed = args.seed + 1_000_003 * accelerator.rank
    micro_batches = args.train_iterations * accumulation * accelerator.num_processes  # processes take them in turn
    blocks = RandomBlocks(data / "train.bin", args.context_length, args.micro_batch_size, micro_batches, args.seed)
    validation = RandomBlocks(
        data / "val.bin", args.context_length, args.micro_batch_size, args.eval_iterations, own_seed + 1
    )
    loader = DataLoader(blocks, batch_size=None, num_workers=args.num_workers, worker_init_fn=ignore_interrupts)
    optimizer = AdamW(
        model.parameter_groups(args.weight_decay),
        lr=args.max_lr,
        betas=(args.beta1, args.beta2),
        fused=args.fused or None,
    )
    scheduler = CosineLRScheduler(optimizer, args.max_lr, args.min_lr, args.train_iterations, args.warmup_steps)
    progress = Progress()
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    accelerator.register_for_checkpointing(progress)
    if accelerator.rank:
        mytorch.manual_seed(own_seed)  # dropout of its own
    if args.resume_from_checkpoint:
        accelerator.load_state(find_checkpoint(folder, args.resume_from_checkpoint))
        accelerator.print(f"Resuming after {progress.iteration} iterations.")
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder / "log.jsonl", progress.iteration, writes=accelerator.is_main_process)
    if accelerator.is_main_process:
        if (data / "tokenizer.json").is_file():
            shutil.copyfile(data / "tokenizer.json", folder / "tokenizer.json")
        write_json(folder / "model_meta.json", {"format": 1, "model": config.to_dict(), "training": vars(args)})
    accelerator.init_tracker(args.project_name, args.run_name, vars(args))

    def save(name, limit=None):
        accelerator.save_state(folder / name, total_limit=limit)

    interrupt = Interrupt()
    bar = tqdm(
        total=args.train_iterations,
        initial=progress.iteration,
        unit="it",
        dynamic_ncols=True,
        disable=None if accelerator.is_main_process else True,  # None: shown on a terminal only
    )
    validation_loss = None
    saved = progress.iteration if args.resume_from_checkpoint else None
    model.train()
    batches = iter(loader)
    since, done, shown = time.perf_counter(), 0, 0.0

    def train_step(batches):
        """Gradients of all micro-batches, clipped, and the update: (mean loss, gradient norm)."""
        total = 0.0
        for x, y in batches:
            loss = model(x, y)
            accelerator.backward(loss)
            total = total + loss.detach()
        grad_norm = accelerator.clip_grad_norm_(args.max_grad_norm or math.inf)
        optimizer.step()
        optimizer.zero_grad()
        return total / accumulation, grad_norm

    if args.cuda_graph:
        train_step = mytorch.compile_step(train_step)
    try:
        while progress.iteration < args.train_iterations and not interrupt.seen(accelerator):
            lr = optimizer.param_groups[0]["lr"]
            step_loss, grad_norm = train_step([next(batches) for _ in range(accumulation)])
            scheduler.step()
            progress.iteration += 1
            iteration = progress.iteration
            done += 1
            bar.update()

            logs = iteration % args.log_iter == 0 or iteration == args.train_iterations
            if logs or (not bar.disable and time.perf_counter() - shown > 0.5):
                loss = accelerator.gather_for_metrics(step_loss)
                norm = float(grad_norm)  # a GPU is behind: only now have the steps been done
                now = time.perf_counter()
                rate = int(done * tokens_per_step / max(now - since, 1e-9))
                bar.set_postfix_str(
                    f"loss {loss:.3f}, lr {lr:.1e}, grad norm {norm:.2f}, {rate:,} tokens/s", refresh=False
                )
                shown = now
            if logs:
                accelerator.print(
                    f"Iter: {iteration:6d} | Loss: {loss:7.4f} | LR: {lr:9.2e} | GradNorm: {norm:7.3f} | Toks/Sec: {rate:6d}"
                )
                record = {"loss": loss, "lr": lr, "grad_norm": norm, "tokens_per_second": rate}
                if accelerator.is_main_process:
                    log.write(iteration=iteration, **record)
                accelerator.log(record, step=iteration)
                since, done = time.perf_counter(), 0
            if iteration % args.eval_interval == 0 or iteration == args.train_iterations:
                accelerator.print("Evaluating!")
                began = time.perf_counter()
                validation_loss = evaluate(model, validation, accelerator, interrupt)
                if validation_loss is not None:
                    accelerator.print(f"Validation Loss: {validation_loss:.4f}")
                    if accelerator.is_main_process:
                        log.write(iteration=iteration, validation_loss=validation_loss)
                    accelerator.log({"validation_loss": validation_loss}, step=iteration)
                since += time.perf_counter() - began
            if iteration % args.checkpoint_iterations == 0 and iteration < args.train_iterations:
                began = time.perf_counter()
                save(f"checkpoint_{iteration}", None if args.always_save_checkpoint else 1)
                saved = iteration
                since += time.perf_counter() - began
    finally:
        bar.close()
        interrupt.restore()

    if progress.iteration < args.train_iterations:
        if saved != progress.iteration:
            save(f"checkpoint_{progress.iteration}", None if args.always_save_checkpoint else 1)
        if accelerator.is_main_process:
            log.plot(folder / "loss.png")
        accelerator.end_training()
        accelerator.print(
            f"Interrupted after {progress.iteration} iterations; the same command with "
            "--resume_from_checkpoint latest continues."
        )
        return 128 + interrupt.signal
    save("final_checkpoint")
    if accelerator.is_main_process:
        log.plot(folder / "loss.png")
    accelerator.end_training()
    if accelerator.device.type == "cuda":  # what pools and graphs hold only grows
        free, total = mytorch.cuda.mem_get_info(accelerator.device)
        accelerator.print(f"Peak memory: {(total - free) / 2**30:.2f} GiB of {total / 2**30:.2f} GiB")
    accelerator.print("Completed Training!!!")
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except (FileNotFoundError, ValueError) as error:
        print(f"train_gpt2.py: {error}", file=sys.stderr)
        code = 1
    sys.exit(code)
