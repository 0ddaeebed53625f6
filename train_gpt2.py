"""Train a GPT-2, as nanoGPT trains its own, or with --architecture a Llama, Qwen, Mistral or mixture of experts.

    python train_gpt2.py --path_to_data data/shakespeare --model_size small --context_length 256 …
    python train_gpt2.py --init_from a_hugging_face_directory --path_to_data data/mine --max_lr 5e-5 …    (fine-tuning)
    python train_gpt2.py --init_from a_hugging_face_directory --path_to_data data/mine --lora_r 8 …       (LoRA)
    mytorchrun launch --num_gpus 2 train_gpt2.py --path_to_data …      (or --cpu --nproc_per_node 2)

Everything that belongs to a run lies in <working_directory>/<project_name>[/<run_name>]: `checkpoint_N`,
`final_checkpoint`, `log.jsonl`, `loss.png`. A checkpoint holds the model's arguments, the options of the training
(`model_meta.json`) and the tokenizer, beside what continues it. Ctrl-C (or SIGTERM) finishes the step under way and
leaves a checkpoint from which `--resume_from_checkpoint latest` continues exactly, also with other numbers of
processes, batch sizes or accumulation steps: the data's place is counted in samples.
"""

import contextlib
import json
import math
import os
import shutil
import signal
import time
from importlib import util
from pathlib import Path

import numpy as np

import mytorch
from mytorch.accelerate import Accelerator
from mytorch.accelerate.training_state import is_complete, newest_checkpoint
from mytorch.accelerate.utils import tqdm
from mytorch.cli.arguments import ArgumentParser, run_script
from mytorch.models import GPT2, GPT2Config, Llama, LlamaConfig, from_pretrained, lora
from mytorch.models.gpt2 import SIZES
from mytorch.models.llama import NANOCHAT
from mytorch.optim import AdamW
from mytorch.optim.lr_scheduler import CosineLRScheduler
from mytorch.serialization import atomic_write, write_json
from mytorch.utils.data import DataLoader
from mytorch.utils.data.tokens import read_header, read_tokens

ARCHITECTURES = {  # options of LlamaConfig
    "gpt2": None,
    "llama": {},
    "qwen": {"qk_norm": True, "tie_embeddings": True},
    "mistral": {},  # its window is half of the context
    "moe": {"num_experts": 8},
    "nanochat": NANOCHAT,
}


def parse(argv=None):
    """(the flags, the parser for further complaints); `args.given` names those that the command line has."""
    p = ArgumentParser(description=__doc__.splitlines()[0])

    def add(name, default=None, help=None, **options):
        if isinstance(default, (int, float)) and not isinstance(default, bool):
            options.setdefault("type", type(default))
        p.add_argument(f"--{name}", default=default, help=help, **options)

    def switch(name, help):
        p.add_argument(f"--{name}", action="store_true", help=help)

    add("project_name", "GPT2Trainer", "folder under the working directory")
    add("run_name", help="folder under the project's; also the run's name in Weights & Biases")
    add("working_directory", "work_dir", "where projects lie")
    add("checkpoint_iterations", 10000, "iterations between checkpoints")
    switch("always_save_checkpoint", "keep every checkpoint instead of the newest one")
    resume = 'path or name of a checkpoint, or "latest"; flags that are not given are the checkpoint\'s'
    add("resume_from_checkpoint", help=resume, metavar="CHECKPOINT")
    switch("overwrite", "replace the run that lies in the project's folder")

    add("architecture", "gpt2", "which model; qwen is Qwen 3, moe is Mixtral", choices=list(ARCHITECTURES))
    add(
        "init_from",
        help="fine-tune: begin with the model of a Hugging Face directory or a GGUF file, whatever its size",
    )
    add(
        "lora_r",
        type=int,
        help="fine-tune small matrices of this rank beside the frozen weights (LoRA), with --init_from",
    )
    add("lora_alpha", type=float, help="how much they count, compared with the rank; by default twice as much")
    add("lora_dropout", 0.0, "dropout before them")
    add(
        "lora_target_modules",
        nargs="+",
        metavar="NAME",
        help="layers that get them; by default c_attn, or q_proj and v_proj",
    )
    add("context_length", 1024, "tokens in a sequence")
    add("model_size", "base", "layers, heads and width", choices=list(SIZES))
    add("dropout_p", 0.0, "dropout probability")
    switch("use_bias", "biases in linear layers and layer norms (gpt2)")
    add("activation", "gelu", "exact GELU, or GPT-2's approximation (gpt2)", choices=["gelu", "gelu_tanh"])
    switch("fused", "use fused kernels wherever there are any; by default where they pay")

    add("path_to_data", help="folder with train.bin, val.bin and tokenizer.json (needed, but for resuming)")
    add("num_workers", 0, "processes that read data; a batch costs microseconds, so none")

    add("train_iterations", 150000, "optimizer steps")
    switch("use_chinchilla", "as many iterations as show 20 tokens for each parameter")
    add("eval_interval", 2000, "iterations between evaluations")
    add("eval_iterations", 200, "batches in an evaluation")
    add("batch_size", 256, "sequences in a step of one process")
    add(
        "batch_size_per_gpu",
        type=int,
        help="sequences in one forward pass, instead of --batch_size over accumulation steps",
    )
    add("gradient_accumulation_steps", 16, "forward passes in a step")
    add("tokens_per_batch", type=int, help="tokens in a step of all processes; sets the accumulation steps")

    add("max_lr", 6e-4, "learning rate after the warm-up")
    add("min_lr", 6e-5, "learning rate at the end")
    add("warmup_steps", 2000, "iterations of the warm-up")
    add("weight_decay", 0.1, "of matrices and embeddings")
    add("max_grad_norm", 1.0, "gradients are scaled down to it; 0 for no limit")
    add("beta1", 0.9, "AdamW's decay of the mean gradient")
    add("beta2", 0.95, "AdamW's decay of the mean square")

    precisions = ["no", "fp16", "bf16"]
    add("mixed_precision", "no", "fp16 if no value", nargs="?", const="fp16", choices=precisions)
    switch("cuda_graph", "from the fourth iteration on, replay the step as a CUDA graph (one GPU)")
    switch("enable_gradient_checkpointing", "recompute activations in backward")
    add(
        "peak_tflops",
        type=float,
        help="10**12 operations a second that a device could do, for MFU; by default what is known of it",
    )
    add("log_iter", 100, "iterations between lines of log")
    switch("log_wandb", "log to Weights & Biases, or to a file where it is not installed")
    add("seed", 1337, "of weights, dropout and batches")
    add("device", help='"cpu", "cuda" or "cuda:N"; by default a GPU if there is one')
    args, args.given = p.parse_given(argv)
    for name, value in vars(args).items():
        if type(value) is int and value < 1 and name not in ("num_workers", "warmup_steps", "seed"):
            p.error(f"--{name} is {value}; expected at least 1")
    if args.architecture != "gpt2" and (others := args.given & {"use_bias", "activation"}):
        p.error(f"--{others.pop()} is for --architecture gpt2; this is {args.architecture}")
    if args.init_from and (others := args.given & {"architecture", "model_size", "use_bias", "activation"}):
        p.error(f"--{others.pop()} is what --init_from {args.init_from} says; leave it out")
    if not args.resume_from_checkpoint and (others := {name for name in args.given if name.startswith("lora_")}):
        if "lora_r" not in others or not args.init_from:
            p.error(f"--{min(others)} goes with --lora_r and --init_from")
    if args.path_to_data is None and not args.resume_from_checkpoint:
        p.error("--path_to_data is needed: a folder that one of the scripts in prepare_data/ has made")
    return args, p


# What a run has of its own each time; the rest of the flags are kept in its checkpoints.
OWN = {
    "project_name", "run_name", "working_directory", "resume_from_checkpoint", "overwrite", "num_workers", "device",
    "cuda_graph", "log_wandb", "given", "peak_tflops",
}  # fmt: skip
CPU_SPEED = 1e11  # operations in a second, of two to four cores
PEAKS = {  # TFLOP/s of float32 products and of half precision's, by a part of the GPU's name
    "H100": (67, 989), "H200": (67, 989), "A100": (19.5, 312), "L4": (30.3, 121), "V100": (15.7, 125), "T4": (8.1, 65),
    "4090": (82.6, 165), "3090": (35.6, 71),
}  # fmt: skip
SHAPE = (
    "architecture",
    "init_from",
    "model_size",
    "context_length",
    "use_bias",
    "activation",
    "lora_r",
    "lora_alpha",
    "lora_dropout",
    "lora_target_modules",
)  # flags that the weights depend on


def read_meta(checkpoint):
    """The model's arguments and the options of the training of a checkpoint.

    Raises:
        FileNotFoundError: neither the checkpoint nor its project's folder has them.
    """
    for folder in (checkpoint, checkpoint.parent):
        if (folder / "model_meta.json").is_file():
            return json.loads((folder / "model_meta.json").read_text())
    raise FileNotFoundError(f"There is no {checkpoint / 'model_meta.json'}; it is no checkpoint of train_gpt2.py.")


def inherit(args, saved, error):
    """Take over a checkpoint's flags but for those on the command line; a sentence for each that differs."""
    for name, value in saved.items():
        if name in OWN or not hasattr(args, name):
            continue
        if name not in args.given:
            setattr(args, name, value)
        elif getattr(args, name) != value:
            if name in SHAPE:
                error(
                    f"--{name} {getattr(args, name)} can't be had in resuming: the checkpoint's is {value}; leave it "
                    "out, or begin another --project_name"
                )
            yield f"Resuming with --{name} {getattr(args, name)}; the checkpoint had {value}."


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
    """Micro-batches of random blocks: sample j depends on the seed and j alone, whoever makes it and in which batch.

    Item i: samples first + i * batch_size and so on, as (inputs, targets), int64 arrays (batch_size, block_size);
    targets are the inputs one token on.
    """

    def __init__(self, path, block_size, batch_size, length, seed, first=0):
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
        self.first = first

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if not 0 <= i < self.length:
            raise IndexError(i)
        counter, skipped = divmod(self.first + i * self.batch_size, 4)  # each count of Philox's gives four numbers
        numbers = np.random.Philox(key=self.seed, counter=counter).random_raw(skipped + self.batch_size)[skipped:]
        starts = (numbers % np.uint64(len(self.tokens) - len(self.window) + 1)).astype(np.int64)
        rows = self.tokens[starts[:, None] + self.window].astype(np.int64)
        return rows[:, :-1], rows[:, 1:]


def ignore_interrupts(worker):
    """Ctrl-C reaches the whole process group; the loader's workers leave it to the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def load_data(args, accelerator):
    """(blocks to train on, blocks to validate on)."""
    data, block = Path(args.path_to_data), (args.context_length, args.micro_batch_size)
    own_seed = args.seed + 1_000_003 * accelerator.rank
    count = args.train_iterations * args.gradient_accumulation_steps * accelerator.num_processes  # taken in turn
    training = RandomBlocks(data / "train.bin", *block, count, args.seed)
    return training, RandomBlocks(data / "val.bin", *block, args.eval_iterations, own_seed + 1)


def read_vocab_size(data):
    """The vocabulary of a data folder, rounded up to a multiple of 64, which suits matrix units; small ones stay.

    Raises:
        FileNotFoundError: the folder is not complete.
    """
    for name in ("train.bin", "val.bin"):
        if not (data / name).is_file():
            raise FileNotFoundError(f"There is no {data / name}; make it with one of the scripts in prepare_data/.")
    size = read_header(data / "train.bin")[2]
    return -(-size // 64) * 64 if size > 1024 else size


def make_model(args, saved, data):
    """The model to train: a fresh one, that of --init_from, or, in resuming, of the shape that the checkpoint's has.

    Raises:
        ValueError: the data has another vocabulary, or sequences longer than the model's context.
    """
    kind, config = (GPT2 if args.architecture == "gpt2" else Llama), None
    vocab_size = read_vocab_size(data)
    if not args.init_from:
        config = make_config(args, saved["model"]["vocab_size"] if saved else vocab_size)
        if config.vocab_size != vocab_size:
            raise ValueError(f"--path_to_data {data} has another vocabulary than the checkpoint was trained with.")
        return kind(config)
    changes = {
        "dropout_p": args.dropout_p,
        "gradient_checkpointing": args.enable_gradient_checkpointing,
        "fused": args.fused or None,
    }
    if saved:
        model = kind(kind.config_class.from_dict({**saved["model"], **changes}))
    else:
        model = from_pretrained(args.init_from, **changes)
        args.architecture = "gpt2" if isinstance(model, GPT2) else "llama"
        if "context_length" not in args.given:
            args.context_length = min(args.context_length, model.config.context_length)
    size, context = model.config.vocab_size, model.config.context_length
    if read_header(data / "train.bin")[2] > size:
        raise ValueError(f"--path_to_data {data} has {vocab_size} tokens, the model of --init_from {args.init_from} {size}; "
                         "prepare the text with --tokenizer and that directory.")  # fmt: skip
    if args.context_length > context:
        raise ValueError(
            f"--context_length {args.context_length}: the model of --init_from {args.init_from} has {context}."
        )
    if args.lora_r:
        lora.inject(model, args.lora_target_modules, args.lora_r, args.lora_alpha, args.lora_dropout)
    return model


def make_config(args, vocab_size):
    own = {"use_bias": args.use_bias, "activation": args.activation}
    if args.architecture != "gpt2":
        own = dict(ARCHITECTURES[args.architecture])
        if args.architecture == "mistral":
            own["sliding_window"] = max(1, args.context_length // 2)
    return (GPT2Config if args.architecture == "gpt2" else LlamaConfig).sized(
        args.model_size,
        vocab_size=vocab_size,
        context_length=args.context_length,
        dropout_p=args.dropout_p,
        gradient_checkpointing=args.enable_gradient_checkpointing,
        fused=args.fused or None,
        **own,
    )


def peak_flops(args, device):
    """Operations a second that a device could do at most, in the precision of its products; None where it is not known.

    A GPU's are its maker's, without sparsity; a CPU's what a large product does.
    """
    if args.peak_tflops is not None:
        return args.peak_tflops * 1e12
    if device.type == "cuda":
        name = mytorch.cuda.get_device_name(device)
        found = [peaks for part, peaks in PEAKS.items() if part in name]
        return found[0][args.mixed_precision != "no"] * 1e12 if found else None
    a = mytorch.ones(1024, 1024)
    best = math.inf
    for _ in range(3):
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    return 2 * 1024**3 / best


def make_optimizer(args, model):
    """AdamW, and its schedule: a linear warm-up, then half a cosine."""
    groups, betas = model.parameter_groups(args.weight_decay), (args.beta1, args.beta2)
    optimizer = AdamW(groups, lr=args.max_lr, betas=betas, fused=args.fused or None)
    return optimizer, CosineLRScheduler(optimizer, args.max_lr, args.min_lr, args.train_iterations, args.warmup_steps)


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


def clear_project(folder, overwrite, removes):
    """Make room for a new run: with `overwrite`, the process that `removes` takes away the checkpoints in the folder.

    Raises:
        FileExistsError: there is one.
    """
    if overwrite:
        for path in folder.iterdir() if removes and folder.is_dir() else ():
            if is_complete(path):
                shutil.rmtree(path)
    elif (newest := newest_checkpoint(folder)) is not None:
        raise FileExistsError(
            f"{newest} is there already: --resume_from_checkpoint latest goes on with that run, --overwrite replaces "
            "it, another --project_name begins beside it."
        )


class Interrupt:
    """Remembers a Ctrl-C or SIGTERM until the step is done; a second one ends the program at once."""

    def __init__(self, speaks=True):
        self.signal, self.speaks = None, speaks
        self.before = {s: signal.signal(s, self) for s in (signal.SIGINT, signal.SIGTERM)}

    def __call__(self, number, frame):
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        if self.speaks:
            os.write(2, b"\nFinishing this step; Ctrl-C again quits without saving.\n")  # print may be under way

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


class Log:
    """log.jsonl: a JSON object for each line of log and each evaluation."""

    def __init__(self, path, iteration, writes=True):
        self.path = path
        self.records, self.unwritten = [], ""
        if not writes:
            return
        if iteration and path.is_file():
            lines = [
                json.loads(line)
                for line in path.read_text().splitlines()
                if line.startswith("{") and line.endswith("}")
            ]
            self.records = [r for r in lines if r["iteration"] <= iteration]
        atomic_write(path, "".join(json.dumps(r) + "\n" for r in self.records).encode())

    def write(self, **record):
        self.records.append(record)
        self.unwritten += json.dumps(record) + "\n"
        with contextlib.suppress(OSError), open(self.path, "a") as file:  # a full disk: with the next line
            file.write(self.unwritten)
            self.unwritten = ""

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


class Trainer:
    """The training loop, and what it needs: what a step is, what is logged, evaluated and saved.

    Its own state is the number of iterations done, and of samples that all processes have seen in them.
    """

    def __init__(self, args, folder, accelerator, model, optimizer, scheduler, training, validation):
        self.args, self.folder, self.accelerator = args, folder, accelerator
        self.training, self.validation = training, validation
        self.iteration, self.samples = 0, 0
        self.saved = self.checkpoint = None  # the iteration of the newest checkpoint, and its path
        self.last = None  # the last step's loss and gradient norm
        self.model, self.optimizer, self.scheduler = accelerator.prepare(model, optimizer, scheduler)
        accelerator.register_for_checkpointing(self)

    @property
    def samples_per_step(self):
        """Of all processes together."""
        return self.args.batch_size * self.accelerator.num_processes

    def state_dict(self):
        return {"iteration": self.iteration, "samples": self.samples}

    def load_state_dict(self, state):
        self.iteration = state["iteration"]
        self.samples = state.get("samples", self.iteration * self.samples_per_step)

    def resume(self, checkpoint):
        """Continue from a checkpoint, with the schedule and the decay that the flags say."""
        args = self.args
        self.accelerator.load_state(checkpoint)
        plan = {"max_lr": args.max_lr, "min_lr": args.min_lr, "warmup_steps": args.warmup_steps}
        self.scheduler.load_state_dict({**plan, "total_steps": args.train_iterations})
        for group, fresh in zip(
            self.optimizer.param_groups, self.model.parameter_groups(args.weight_decay), strict=True
        ):
            group.update(weight_decay=fresh["weight_decay"], betas=(args.beta1, args.beta2))
        self.accelerator.print(f"Resuming after {self.iteration} iterations.")
        self.saved, self.checkpoint = self.iteration, checkpoint

    def batches(self):
        """The micro-batches of this process, from where the samples are."""
        self.training.first = self.samples
        own = mytorch.Generator().manual_seed(self.args.seed)  # nothing is drawn from the model's generator
        loader = DataLoader(
            self.training, None, num_workers=self.args.num_workers, worker_init_fn=ignore_interrupts, generator=own
        )
        return iter(self.accelerator.prepare(loader))

    def train(self):
        """Train until all iterations are done; returns the number of the signal that interrupted it, or None."""
        args = self.args
        self.log = Log(self.folder / "log.jsonl", self.iteration, writes=self.accelerator.is_main_process)
        self.interrupt = Interrupt(speaks=self.accelerator.is_main_process)
        self.bar = tqdm(total=args.train_iterations, initial=self.iteration, unit="it", dynamic_ncols=True)
        step = mytorch.compile_step(self.step) if args.cuda_graph else self.step
        self.model.train()
        self.warn_if_long()
        self.peak = peak_flops(args, self.accelerator.device)
        batches = self.batches()
        self.since, self.done, self.shown = time.perf_counter(), 0, 0.0  # for the speed
        try:
            while self.iteration < args.train_iterations and not self.interrupt.seen(self.accelerator):
                lr = self.optimizer.param_groups[0]["lr"]
                loss, grad_norm = step([next(batches) for _ in range(args.gradient_accumulation_steps)])
                self.scheduler.step()
                self.iteration += 1
                self.samples += self.samples_per_step
                self.done += 1
                self.bar.update()
                self.last = loss, grad_norm
                if self.accelerator.device.type == "cpu" or self.is_time_for(args.log_iter, last=True):
                    self.check_finite()
                self.report(loss, lr, grad_norm)
                if self.is_time_for(args.eval_interval, last=True):
                    self.evaluate()
                if self.is_time_for(args.checkpoint_iterations, last=False):
                    self.save_checkpoint()
        finally:
            self.bar.close()
            self.interrupt.restore()
        return self.interrupt.signal if self.iteration < args.train_iterations else None

    def step(self, batches):
        """Gradients of all micro-batches, clipped, and the update: (mean loss, gradient norm)."""
        total = 0.0
        for x, y in batches:
            loss = self.model(x, y)
            self.accelerator.backward(loss)
            total = total + loss.detach()
        grad_norm = self.accelerator.clip_grad_norm_(self.args.max_grad_norm or math.inf)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total / self.args.gradient_accumulation_steps, grad_norm

    def check_finite(self):
        """Stop where the last step's numbers are not finite; on a GPU, asking waits for the step.

        Raises:
            FloatingPointError: with what to do.
        """
        loss, norm = self.last or (0.0, 0.0)
        if self.accelerator.scaler is None:  # all processes have one norm, which shows what any loss is
            wrong = None if math.isfinite(float(norm)) else ("gradient norm", float(norm))
        else:  # the scaler leaves out steps whose gradients overflow
            loss = self.accelerator.gather_for_metrics(loss)
            wrong = None if math.isfinite(loss) else ("loss", loss)
        if wrong is not None:
            kept = f"{self.checkpoint} is as it was; resume from it" if self.checkpoint else "nothing was saved; begin"
            raise FloatingPointError(
                f"the {wrong[0]} is {wrong[1]} after iteration {self.iteration}: the training has diverged and stops. "
                f"{kept} with a smaller --max_lr than {self.args.max_lr:g}."
            )

    def warn_if_long(self):
        """Before the first step: say about how long a CPU takes for all, if that is more than an hour."""
        tokens = (self.args.train_iterations - self.iteration) * self.args.batch_size * self.args.context_length
        hours = 6 * self.model.num_parameters() * tokens / CPU_SPEED / 3600
        if hours > 1 and self.accelerator.device.type == "cpu":
            self.accelerator.print(
                f"On a CPU that computes {CPU_SPEED / 1e9:.0f} GFLOP/s this takes about {hours:,.0f} hours; "
                "--model_size demo --context_length 64 --batch_size 12 --gradient_accumulation_steps 1 "
                "--train_iterations 2500 --max_lr 4e-3 --warmup_steps 100 takes minutes."
            )

    def is_time_for(self, interval, last):
        """Whether this iteration is a multiple of the interval; `last`: whether the last one counts, too, or never."""
        if self.iteration == self.args.train_iterations:
            return last
        return self.iteration % interval == 0

    @contextlib.contextmanager
    def off_the_clock(self):
        """A block whose time does not count for the speed."""
        began = time.perf_counter()
        yield
        self.since += time.perf_counter() - began

    def report(self, loss, lr, grad_norm):
        """Show a step on the progress bar, and every log_iter steps as a line of log."""
        logs = self.is_time_for(self.args.log_iter, last=True)
        if not logs and (self.bar.disable or time.perf_counter() - self.shown <= 0.5):
            return
        loss = self.accelerator.gather_for_metrics(loss)
        norm = float(grad_norm)  # a GPU is behind: only now have the steps been done
        self.shown = time.perf_counter()
        tokens = self.done * self.args.batch_size * self.args.context_length * self.accelerator.num_processes
        rate = int(tokens / max(self.shown - self.since, 1e-9))
        text = f"loss {loss:.3f}, lr {lr:.1e}, grad norm {norm:.2f}, {rate:,} tokens/s"
        self.bar.set_postfix_str(text, refresh=False)
        if logs:
            self.accelerator.print(
                f"Iter: {self.iteration:6d} | Loss: {loss:7.4f} | LR: {lr:9.2e} | GradNorm: {norm:7.3f} | Toks/Sec: {rate:6d}"
                + (f" | MFU: {self.mfu(rate):5.1%}" if self.peak else "")
            )
            self.record(
                loss=loss,
                lr=lr,
                grad_norm=norm,
                tokens_per_second=rate,
                **({"mfu": self.mfu(rate)} if self.peak else {}),
            )
            self.since, self.done = time.perf_counter(), 0

    def mfu(self, rate):
        """The share of what the devices could do that so many tokens a second need (model FLOPs utilization)."""
        flops = rate * self.model.flops_per_token(self.args.context_length)
        return round(flops / (self.peak * self.accelerator.num_processes), 4)

    def record(self, **values):
        if self.accelerator.is_main_process:
            self.log.write(iteration=self.iteration, **values)
        self.accelerator.log(values, step=self.iteration)

    def evaluate(self):
        """Measure the loss on the validation blocks and log it, unless interrupted."""
        self.accelerator.print("Evaluating!")
        with self.off_the_clock():
            loss = self.validation_loss()
            if loss is not None:
                self.accelerator.print(f"Validation Loss: {loss:.4f}")
                self.record(validation_loss=loss)

    @mytorch.no_grad()
    def validation_loss(self):
        """The mean loss over all validation blocks, or None if interrupted."""
        total, model, accelerator = 0.0, self.model, self.accelerator
        model.eval()
        count, shown = len(self.validation), 0.0
        for i in range(count):
            if not self.bar.disable and time.perf_counter() - shown > 0.2:
                self.bar.set_postfix_str(f"evaluating, {i} of {count} batches")
                shown = time.perf_counter()
            if self.interrupt.seen(accelerator):
                model.train()
                return None
            x, y = (mytorch.from_numpy(part).to(accelerator.device) for part in self.validation[i])
            total += accelerator.gather_for_metrics(model(x, y))
        model.train()
        return total / count

    def save_checkpoint(self):
        """Write checkpoint_N, if there is none of this iteration yet."""
        if self.saved == self.iteration:
            return
        limit = None if self.args.always_save_checkpoint else 1
        with self.off_the_clock():
            self.save(f"checkpoint_{self.iteration}", limit)

    def save(self, name, limit=None):
        """Write a checkpoint of numbers that are finite."""
        self.check_finite()
        self.checkpoint = self.accelerator.save_state(self.folder / name, total_limit=limit)
        self.saved = self.iteration

    def finish(self, signal):
        """Save, plot and say how it ended; returns the exit code."""
        accelerator = self.accelerator
        if signal is None:
            self.save("final_checkpoint")
        else:
            self.save_checkpoint()
        if accelerator.is_main_process:
            self.log.plot(self.folder / "loss.png")
            if self.args.lora_r and signal is None:
                lora.save_adapter(self.model, self.folder / "adapter", str(self.args.init_from))
                accelerator.print(f"The adapter is in {self.folder / 'adapter'}, in PEFT's form.")
            elif self.args.init_from and signal is None:
                self.model.save_pretrained(self.folder / "hugging_face")
                accelerator.print(f"The model is in {self.folder / 'hugging_face'}, too, in Hugging Face's form.")
        accelerator.end_training()
        if signal is not None:
            accelerator.print(
                f"Interrupted after {self.iteration} iterations; the same command with "
                "--resume_from_checkpoint latest continues."
            )
            return 128 + signal
        if accelerator.device.type == "cuda":  # what pools and graphs hold only grows
            free, total = mytorch.cuda.mem_get_info(accelerator.device)
            accelerator.print(f"Peak memory: {(total - free) / 2**30:.2f} GiB of {total / 2**30:.2f} GiB")
        accelerator.print("Completed Training!!!")
        return 0


def write_meta(data, meta, folder):
    """What inference_gpt2.py and resuming need besides weights and state."""
    folder.mkdir(parents=True, exist_ok=True)
    if (data / "tokenizer.json").is_file():
        shutil.copyfile(data / "tokenizer.json", folder / "tokenizer.json")
    write_json(folder / "model_meta.json", meta)


def check_tokenizer(data, checkpoint):
    """Refuse data of another tokenizer than a checkpoint's.

    Raises:
        ValueError: they differ.
    """
    ours, theirs = data / "tokenizer.json", checkpoint / "tokenizer.json"
    if ours.is_file() and theirs.is_file() and json.loads(ours.read_text()) != json.loads(theirs.read_text()):
        raise ValueError(f"--path_to_data {data} was made with another tokenizer than {checkpoint} was trained with.")


def main(argv=None):
    args, parser = parse(argv)
    folder = Path(args.working_directory) / args.project_name / (args.run_name or "")
    checkpoint, changes, saved = None, [], {}
    if args.resume_from_checkpoint:
        checkpoint = find_checkpoint(folder, args.resume_from_checkpoint)
        saved = read_meta(checkpoint)
        changes = list(inherit(args, saved["training"], parser.error))
    try:
        accelerator = Accelerator(
            mixed_precision=args.mixed_precision, log_wandb=args.log_wandb, project_dir=folder, device=args.device
        )
    except RuntimeError as error:
        if args.device is None:
            raise
        parser.error(f"--device {args.device}: {error}")
    processes, data = accelerator.num_processes, Path(args.path_to_data)
    settle_batches(args, processes, parser.error)
    if args.cuda_graph and (accelerator.device.type != "cuda" or processes > 1):
        parser.error(f"--cuda_graph is for one GPU; this is {processes} processes on {accelerator.device.type}")
    accelerator.gradient_accumulation_steps = args.gradient_accumulation_steps

    mytorch.manual_seed(args.seed)
    model = make_model(args, saved, data)
    training = {name: value for name, value in vars(args).items() if name not in OWN}
    meta = {"format": 1, "architecture": args.architecture, "model": model.config.to_dict(), "training": training}
    accelerator.print(f"Total Trainable Parameters: {model.num_parameters(only_trainable=True):,}")
    if args.use_chinchilla:
        args.train_iterations = math.ceil(
            20 * model.num_parameters() / (args.batch_size * args.context_length * processes)
        )
        accelerator.print(f"Training for {args.train_iterations:,} iterations: 20 tokens for each parameter.")
    if args.min_lr > args.max_lr:
        parser.error(f"--min_lr {args.min_lr:g} exceeds --max_lr {args.max_lr:g}")
    if args.warmup_steps > args.train_iterations:
        parser.error(f"--warmup_steps {args.warmup_steps} exceeds --train_iterations {args.train_iterations}")

    trainer = Trainer(args, folder, accelerator, model, *make_optimizer(args, model), *load_data(args, accelerator))
    if accelerator.rank:
        mytorch.manual_seed(args.seed + 1_000_003 * accelerator.rank)  # dropout of its own
    if checkpoint is not None:
        check_tokenizer(data, checkpoint)
        for sentence in changes:
            accelerator.print(sentence)
        trainer.resume(checkpoint)
        if trainer.iteration >= args.train_iterations:
            accelerator.print(
                f"{checkpoint} has {trainer.iteration} of --train_iterations {args.train_iterations} already: nothing "
                "is trained and nothing written."
            )
            return 0
    else:
        clear_project(folder, args.overwrite, removes=accelerator.is_main_process)
    if accelerator.is_main_process:
        write_meta(data, meta, folder)
    accelerator.register_save_state_pre_hook(lambda models, weights, directory: write_meta(data, meta, Path(directory)))
    accelerator.init_tracker(args.project_name, args.run_name, meta["training"])
    return trainer.finish(trainer.train())


if __name__ == "__main__":
    run_script(main)
