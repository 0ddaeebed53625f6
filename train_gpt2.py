"""Train or fine-tune a language model: GPT-2 as in nanoGPT, Llama, Qwen, Mistral or a mixture of experts.

    python train_gpt2.py --path_to_data data/shakespeare --model_size small --context_length 256 …
    python train_gpt2.py --init_from a_hugging_face_directory --path_to_data data/mine --lora_r 8 …     (LoRA)
    mytorchrun launch --num_gpus 2 train_gpt2.py --path_to_data …      (or --cpu --nproc_per_node 2)

The files of a run are in <working_directory>/<project_name>[/<run_name>]: `checkpoint_N`, `final_checkpoint`, `log.jsonl`
and `loss.png`. A checkpoint contains the weights, the optimizer state, the tokenizer and the flags (`model_meta.json`).

Ctrl-C and SIGTERM finish the current micro-batch and save a checkpoint of the last complete step. `--resume_from_checkpoint latest`
continues the run exactly, also with another number of processes, batch size or number of accumulation steps.
"""

import contextlib
import dataclasses
import math
from pathlib import Path

import mytorch
from mytorch import accelerate
from mytorch.accelerate import Accelerator, Interrupt, Progress, RunLog, Throughput, mean_loss
from mytorch.cli.arguments import ArgumentParser, command_line, flag, flags_to_save, inherit_flags, run_script, switch
from mytorch.models import GPT2, Llama, from_pretrained, fuse_, lora, run_files
from mytorch.models.tokenizer import load_tokenizer
from mytorch.optim import AdamW
from mytorch.optim.lr_scheduler import CosineLRScheduler
from mytorch.utils.data import DataLoader, RandomBlocks, read_vocab_size

FASTER = "--model_size demo --context_length 64 --batch_size 12 --gradient_accumulation_steps 1 --train_iterations 2500 --max_lr 4e-3 --warmup_steps 100 takes minutes."  # advice for CPUs
STOPPING = "\nStopping after this {}; Ctrl-C again quits without saving.\n"


# fmt: off
@dataclasses.dataclass
class Flags:  # checkpoints contain no flags with saved=False; flags with fixed=True can't change when a run resumes
    project_name: str = flag("GPT2Trainer", "name of the project's folder in the working directory", saved=False)
    run_name: str | None = flag(help="name of the run's folder in the project's folder, and of the run in Weights & Biases (default: no folder)", saved=False)
    working_directory: str = flag("work_dir", "folder that contains the projects", saved=False)
    checkpoint_iterations: int = flag(10000, "number of iterations between checkpoints")
    always_save_checkpoint: bool = switch("keep all checkpoints (default: only the newest)")
    resume_from_checkpoint: str | None = flag(help='path or name of a checkpoint, or "latest"; other flags default to the values in the checkpoint (default: a new run)', saved=False, metavar="CHECKPOINT")
    overwrite: bool = switch("replace the existing run in the project's folder", saved=False)
    architecture: str = flag("gpt2", "model architecture; qwen is Qwen 3, moe is Mixtral", choices=list(run_files.ARCHITECTURES), fixed=True)
    init_from: str | None = flag(help="pretrained model to fine-tune: a Hugging Face directory, the folder of a run, or a GGUF file (default: a new model)", fixed=True)
    lora_r: int | None = flag(help="rank of LoRA matrices; trains LoRA matrices only, requires --init_from (default: no LoRA)", fixed=True)
    lora_alpha: float | None = flag(help="LoRA alpha (default: 2 x --lora_r)", fixed=True)
    lora_dropout: float = flag(0.0, "dropout probability of the inputs of LoRA matrices (default: 0.0)", fixed=True)
    lora_target_modules: list[str] | None = flag(help="names of the layers that get LoRA matrices (default: c_attn for GPT-2, q_proj v_proj for Llama)", nargs="+", metavar="NAME", fixed=True)  # noqa: RUF009
    context_length: int = flag(1024, "number of tokens in a sequence", fixed=True)
    model_size: str = flag("base", 'model size; with GPT-2\'s vocabulary, base has 124M parameters (published as "GPT-2 small") and small has 30M; with 65 characters, small has 10.7M', choices=list(run_files.SIZES), fixed=True)
    dropout_p: float = flag(0.0, "dropout probability (default: 0.0)")
    use_bias: bool = switch("use biases in linear layers and layer norms (gpt2 only)", fixed=True)
    activation: str = flag("gelu", "activation of the MLPs: exact GELU or its tanh approximation (gpt2 only)", choices=["gelu", "gelu_tanh"], fixed=True)
    fused: bool = switch("use a fused kernel for each op that has one (default: where the kernel is faster)")
    path_to_data: str | None = flag(help="folder with train.bin, val.bin and tokenizer.json (required unless resuming)")
    num_workers: int = flag(0, "number of processes that read data; 0 reads in the training process (default: 0)", saved=False)
    train_iterations: int = flag(150000, "number of optimizer steps")
    use_chinchilla: bool = switch("train on 20 tokens per parameter; overrides --train_iterations")
    eval_interval: int = flag(2000, "number of iterations between evaluations")
    eval_iterations: int = flag(200, "number of batches in an evaluation")
    batch_size: int = flag(256, "number of sequences in an optimizer step of one process")
    batch_size_per_gpu: int | None = flag(help="number of sequences in a forward pass (default: --batch_size / --gradient_accumulation_steps)")
    gradient_accumulation_steps: int = flag(16, "number of forward passes in an optimizer step")
    tokens_per_batch: int | None = flag(help="number of tokens in an optimizer step of all processes; overrides --gradient_accumulation_steps (default: none)")
    max_lr: float = flag(6e-4, "learning rate at the end of the warm-up")
    min_lr: float = flag(6e-5, "learning rate at the last iteration")
    warmup_steps: int = flag(2000, "number of iterations of the learning rate warm-up")
    weight_decay: float = flag(0.1, "weight decay of linear and embedding weights")
    max_grad_norm: float = flag(1.0, "maximum norm of the gradients, for clipping; 0 disables clipping")
    beta1: float = flag(0.9, "AdamW's decay rate of the first moment")
    beta2: float = flag(0.95, "AdamW's decay rate of the second moment")
    mixed_precision: str = flag("no", "dtype of mixed precision; the flag without a value means fp16", nargs="?", const="fp16", choices=["no", "fp16", "bf16"])
    cuda_graph: bool = switch("replay the training step as a CUDA graph from the fourth iteration on (one GPU only)", saved=False)
    enable_gradient_checkpointing: bool = switch("recompute activations during backward to save memory")
    peak_tflops: float | None = flag(help="peak speed of the device in TFLOP/s, for MFU (default: known for common GPUs; no MFU on a CPU)", saved=False)
    shard: bool = switch("shard the parameters, the gradients and the optimizer state over the processes", saved=False)
    no_export: bool = switch("don't write the trained model as a Hugging Face directory", saved=False)
    log_iter: int = flag(100, "number of iterations between log lines")
    log_wandb: bool = switch("log to Weights & Biases, or to a file if wandb is not installed", saved=False)
    seed: int = flag(1337, "random seed of weights, dropout and batches")
    yes: bool = switch("train on a CPU even if it is expected to take more than a day", saved=False)
    device: str | None = flag(help='device: "cpu", "cuda" or "cuda:N" (default: a GPU if one is available)', saved=False)
    micro_batch_size: int = 0  # number of sequences in a forward pass; not a flag: settle_batches computes it
# fmt: on


def parse(argv=None):
    """Returns the flags and the parser. The parser's `error` reports invalid combinations that `main` finds later."""
    p = ArgumentParser(description=__doc__.splitlines()[0])
    args, given = p.parse_flags(Flags, argv)
    for name, value in vars(args).items():
        if type(value) is int and value < 1 and name not in ("num_workers", "warmup_steps", "seed", "micro_batch_size"):
            p.error(f"--{name}: expected at least 1, got {value}")
    if args.architecture != "gpt2" and (others := given & {"use_bias", "activation"}):
        p.error(f"--{others.pop()}: expected --architecture gpt2, got --architecture {args.architecture}")
    if args.init_from and (others := given & {"architecture", "model_size", "use_bias", "activation"}):
        p.error(f"--{others.pop()}: expected no value with --init_from, which sets it; remove the flag")
    if not args.resume_from_checkpoint and (others := {name for name in given if name.startswith("lora_")}):
        if "lora_r" not in others or not args.init_from:
            p.error("--lora_r requires --init_from, and the other --lora_ flags require --lora_r")
    if args.path_to_data is None and not args.resume_from_checkpoint:
        p.error("--path_to_data: expected a folder, got none; make one with a script in prepare_data/")
    args.given = given
    return args, p


def settle_batches(args, processes, error):
    """Sets micro_batch_size, gradient_accumulation_steps and batch_size from the flags for batches."""
    size, steps = args.batch_size, args.gradient_accumulation_steps
    if args.batch_size_per_gpu is None and size % steps:
        error(f"--batch_size: expected a multiple of --gradient_accumulation_steps {steps}, got {size}")
    args.micro_batch_size = args.batch_size_per_gpu or size // steps
    if args.tokens_per_batch is not None:
        steps = args.tokens_per_batch / (args.micro_batch_size * args.context_length * processes)
        args.gradient_accumulation_steps = max(1, round(steps))
    args.batch_size = args.micro_batch_size * args.gradient_accumulation_steps


def make_model(args, saved, data):
    """Returns a new model, the model that a checkpoint's metadata describe, or the model of --init_from."""
    tokens = read_vocab_size(data)
    vocab_size = -(-tokens // 64) * 64 if tokens > 1024 else tokens  # multiples of 64 are faster on GPUs
    options = {"dropout_p": args.dropout_p, "gradient_checkpointing": args.enable_gradient_checkpointing}
    options["fused"] = args.fused or None
    if not args.init_from:
        if saved and saved["model"]["vocab_size"] != vocab_size:
            expected = saved["model"]["vocab_size"]
            text = f"the checkpoint's vocabulary size {expected}, got {vocab_size} in {data}"
            raise ValueError(f"--path_to_data: expected {text}. Prepare the text with the checkpoint's tokenizer.")
        if args.architecture == "gpt2":
            options.update(use_bias=args.use_bias, activation=args.activation)
        shape = args.architecture, args.model_size, args.context_length
        config = run_files.config_of(*shape, vocab_size=vocab_size, **options)
        return GPT2(config) if args.architecture == "gpt2" else Llama(config)
    if saved:
        model = run_files.model_of(saved, **options)
    else:
        model = from_pretrained(args.init_from, **options)
        args.architecture = "gpt2" if isinstance(model, GPT2) else "llama"
        if "context_length" not in args.given:
            args.context_length = min(args.context_length, model.config.context_length)
        if run_files.is_run(args.init_from):
            run_files.check_tokenizer(data, args.init_from)
    run_files.check_limits(model.config, tokens, args.context_length, data, args.init_from)
    if args.lora_r:
        lora.inject(model, args.lora_target_modules, args.lora_r, args.lora_alpha, args.lora_dropout)
    return model


class Trainer:
    """The training loop. Its state is the number of iterations and the number of samples that all processes used."""

    def __init__(self, args, folder, accelerator, model):
        self.args, self.folder, self.accelerator = args, folder, accelerator
        groups, betas = model.parameter_groups(args.weight_decay), (args.beta1, args.beta2)
        optimizer = AdamW(groups, lr=args.max_lr, betas=betas, fused=args.fused or None)
        plan = args.max_lr, args.min_lr, args.train_iterations, args.warmup_steps  # a warm-up, then half a cosine
        scheduler = CosineLRScheduler(optimizer, *plan)
        data, block = Path(args.path_to_data), (args.context_length, args.micro_batch_size)
        count = args.train_iterations * args.gradient_accumulation_steps * accelerator.num_processes
        self.training = RandomBlocks(data / "train.bin", *block, count, args.seed)  # processes take turns
        seed = args.seed + 1_000_003 * accelerator.rank + 1  # processes validate on different blocks
        self.validation = RandomBlocks(data / "val.bin", *block, args.eval_iterations, seed)
        self.samples_per_step = args.batch_size * accelerator.num_processes
        self.iteration, self.samples = 0, 0
        self.saved = self.checkpoint = None  # the iteration and the path of the newest checkpoint
        self.last = (0.0, 0.0)  # loss and gradient norm of the last step
        self.model, self.optimizer, self.scheduler = accelerator.prepare(model, optimizer, scheduler)
        accelerator.register_for_checkpointing(self)

    def state_dict(self):
        return {"iteration": self.iteration, "samples": self.samples}

    def load_state_dict(self, state):
        self.iteration = state["iteration"]
        self.samples = state.get("samples", self.iteration * self.samples_per_step)

    def resume(self, checkpoint):
        """Loads a checkpoint. The flags set the schedule, the weight decay and the betas."""
        args = self.args
        self.accelerator.load_state(checkpoint)
        plan = {"max_lr": args.max_lr, "min_lr": args.min_lr, "warmup_steps": args.warmup_steps}
        self.scheduler.load_state_dict({**plan, "total_steps": args.train_iterations})
        fresh = self.model.parameter_groups(args.weight_decay)
        for group, new in zip(self.optimizer.param_groups, fresh, strict=True):
            group.update(weight_decay=new["weight_decay"], betas=(args.beta1, args.beta2))
        self.accelerator.print(f"Resuming after {self.iteration} iterations.")
        self.saved, self.checkpoint = self.iteration, checkpoint

    def batches(self):
        """Iterates over the remaining micro-batches of this process."""
        self.training.first = self.samples
        options = {"num_workers": self.args.num_workers, "worker_init_fn": accelerate.ignore_interrupts}
        options["generator"] = mytorch.Generator().manual_seed(self.args.seed)  # not the model's generator
        return iter(self.accelerator.prepare(DataLoader(self.training, None, **options)))

    def train(self):
        """Trains for the remaining iterations. Returns the number of the signal that interrupted training, or None."""
        args, accelerator, device = self.args, self.accelerator, self.accelerator.device
        step = mytorch.compile_step(self.step) if args.cuda_graph else self.step
        peak = accelerate.peak_flops(device, args.mixed_precision != "no", args.peak_tflops)
        tokens, flops = self.samples_per_step * args.context_length, self.model.flops_per_token(args.context_length)
        self.speed = Throughput(tokens, flops, (peak or 0.0) * accelerator.num_processes)
        self.log = RunLog(self.folder / "log.jsonl", self.iteration, writes=accelerator.is_main_process)
        total = args.train_iterations
        bar = self.progress = Progress(accelerator, self.log, self.speed, total, self.iteration, args.log_iter)
        # A captured step is one launch, so it can't end early.
        self.can_drop = args.gradient_accumulation_steps > 1 and not args.cuda_graph
        with Interrupt(accelerator, STOPPING.format("micro-batch" if self.can_drop else "step")) as self.interrupt, bar:
            self.model.train()
            batches = self.batches()
            self.speed.restart()
            while self.iteration < total and not self.interrupt.received():
                lr = self.optimizer.param_groups[0]["lr"]
                restore = accelerate.keep_random_states() if self.can_drop else None
                done = step([next(batches) for _ in range(args.gradient_accumulation_steps)])
                if done is None:
                    accelerator.drop_step()
                    restore()
                    break
                self.last = loss, grad_norm = done
                self.scheduler.step()
                self.iteration += 1
                self.samples += self.samples_per_step
                if device.type == "cpu" or bar.is_line(self.iteration):  # on a GPU the check synchronizes
                    self.check_finite()
                bar.step(self.iteration, loss, lr, grad_norm)
                is_last = self.iteration == total
                if is_last or self.iteration % args.eval_interval == 0:
                    self.evaluate()
                if not is_last and self.iteration % args.checkpoint_iterations == 0:
                    self.save()
        return self.interrupt.signal if self.iteration < total else None

    def step(self, batches):
        """Accumulates gradients, clips them and updates the weights.

        Returns:
            The mean loss and the gradient norm, or None if an interruption ended the step between two micro-batches.
        """
        total = 0.0
        for i, (x, y) in enumerate(batches):
            if i and self.can_drop and self.interrupt.received():
                return None
            loss = self.model(x, y)
            self.accelerator.backward(loss)
            total = total + loss.detach()
        grad_norm = self.accelerator.clip_grad_norm_(self.args.max_grad_norm or math.inf)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total / self.args.gradient_accumulation_steps, grad_norm

    def evaluate(self):
        """Logs the mean loss over the validation blocks, unless interrupted."""
        self.accelerator.print("Evaluating!")
        with self.speed.paused():
            loss = mean_loss(self.accelerator, self.model, self.validation, self.interrupt, self.progress)
            if loss is not None:
                self.accelerator.print(f"Validation Loss: {loss:.4f}")
                self.progress.record(self.iteration, validation_loss=loss)

    def check_finite(self):
        """Stops if the loss or the gradient norm of the last step is not finite."""
        advice = f"Resume from {self.checkpoint}" if self.checkpoint else "No checkpoint was saved. Start again"
        text = f" after iteration {self.iteration}: the training has diverged. {advice} with a smaller --max_lr"
        accelerate.check_finite(self.accelerator, *self.last, f"{text} than {self.args.max_lr:g}.")

    def save(self, name=None):
        """Saves a checkpoint if there is none of this iteration. Only the newest checkpoint_N is kept by default."""
        if name is None and self.saved == self.iteration:
            return
        self.check_finite()
        path = self.folder / (name or f"checkpoint_{self.iteration}")
        limit = None if name or self.args.always_save_checkpoint else 1
        with self.speed.paused():
            self.checkpoint = self.accelerator.save_state(path, total_limit=limit)
            if name and self.args.shard:  # inference_gpt2.py reads whole weights
                self.accelerator.save_model(self.model, path)
        self.saved = self.iteration

    def finish(self, signal):
        """Saves the last checkpoint, plots the losses and prints the outcome. Returns the exit code."""
        accelerator, folder, args = self.accelerator, self.folder, self.args
        if signal is not None and not self.iteration:
            accelerator.end_training()
            accelerator.print(
                "Interrupted before the first step was complete, so there is nothing to save. The same command starts again."
            )
            return 128 + signal
        self.save("final_checkpoint" if signal is None else None)
        if accelerator.is_main_process:
            self.log.plot(folder / "loss.png", ylabel="cross-entropy")
        if signal is None and not args.no_export:
            if self.model.tokenizer is None and (file := Path(args.path_to_data) / "tokenizer.json").is_file():
                with contextlib.suppress(ImportError):  # a tokenizer of a package that is not installed
                    self.model.tokenizer = load_tokenizer(file)
            run_files.save_fine_tuned(accelerator, self.model, folder, args.init_from, bool(args.lora_r))
        accelerator.end_training()
        if signal is not None:
            command = command_line(__file__, args, "working_directory", "project_name", "run_name", "device")
            launcher = " with the same launcher" if accelerator.num_processes > 1 else ""
            text = f"Interrupted after {self.iteration} iterations. To continue, run{launcher}:\n  {command}"
            accelerator.print(f"{text}{' --yes' if args.yes else ''} --resume_from_checkpoint latest")
            return 128 + signal
        if accelerator.device.type == "cuda":  # memory of pools and graphs is never released
            free, total = (size / 2**30 for size in mytorch.cuda.mem_get_info(accelerator.device))
            accelerator.print(f"Peak memory: {total - free:.2f} GiB of {total:.2f} GiB")
        accelerator.print("Completed Training!!!")
        return 0


def check_data(data, context_length):
    """Checks that the token files exist and contain more tokens than a sequence.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is invalid or too short.
    """
    read_vocab_size(data)
    for name in ("train.bin", "val.bin"):
        RandomBlocks(data / name, context_length, 1, 1, 0)


def check_time(args, accelerator, parameters, done, error):
    """Prints the expected time of the remaining iterations on a CPU if it is long, and refuses more than a day without --yes."""
    todo = (args.train_iterations - done) * args.batch_size * args.context_length
    hours = accelerate.warn_if_long(accelerator, 6 * parameters * todo, FASTER)
    if hours > 24 and not args.yes:
        error(
            f"expected a run of at most a day on a CPU, got about {hours / 24:,.0f} days. Use --yes to train all the same"
        )


def main(argv=None):
    args, parser = parse(argv)
    folder = Path(args.working_directory) / args.project_name / (args.run_name or "")
    checkpoint, differing, saved = None, [], {}
    if args.resume_from_checkpoint:
        checkpoint = accelerate.find_checkpoint(folder, args.resume_from_checkpoint)
        saved = run_files.read_meta(checkpoint)
        differing = inherit_flags(args, args.given, saved["training"])
        for name, ours, theirs, _ in [flag for flag in differing if flag[3]]:
            text = f"expected the checkpoint's value {theirs}, got {ours}"
            parser.error(f"--{name}: {text}; remove the flag, or start a new run with another --project_name")
    options = {"mixed_precision": args.mixed_precision, "log_wandb": args.log_wandb, "project_dir": folder}
    options["fsdp"] = args.shard
    try:
        accelerator = Accelerator(device=args.device, **options)
    except RuntimeError as error:
        if args.device is None:
            raise
        parser.error(f"--device {args.device}: {error}")
    processes, data = accelerator.num_processes, Path(args.path_to_data)
    settle_batches(args, processes, parser.error)
    if args.cuda_graph and (accelerator.device.type != "cuda" or processes > 1):
        parser.error(f"--cuda_graph: expected one process on a GPU, got {processes} on {accelerator.device.type}")
    accelerator.gradient_accumulation_steps = args.gradient_accumulation_steps
    if not args.init_from or "context_length" in args.given:  # otherwise the pretrained model sets the length
        check_data(data, args.context_length)
    model, done = None, accelerate.steps_of(checkpoint) if checkpoint else 0
    mytorch.manual_seed(args.seed)
    if args.init_from:
        model = make_model(args, saved, data)
        check_data(data, args.context_length)
    with mytorch.device("meta"):  # counts the parameters without memory for them
        parameters = (model or make_model(args, saved, data)).num_parameters()
    if args.use_chinchilla:
        seen = args.batch_size * args.context_length * processes  # tokens in an iteration
        args.train_iterations = math.ceil(20 * parameters / seen)
        accelerator.print(f"Training for {args.train_iterations:,} iterations: 20 tokens for each parameter.")
    check_time(args, accelerator, parameters, done, parser.error)
    model = fuse_(model or make_model(args, saved, data))
    meta = {"format": 1, "architecture": args.architecture, "model": model.config.to_dict()}
    meta["training"] = flags_to_save(args)
    accelerator.print(f"Total Trainable Parameters: {model.num_parameters(only_trainable=True):,}")
    if args.min_lr > args.max_lr:
        parser.error(f"--min_lr: expected at most --max_lr {args.max_lr:g}, got {args.min_lr:g}")
    if args.warmup_steps > args.train_iterations:
        parser.error(f"--warmup_steps: expected at most {args.train_iterations} iterations, got {args.warmup_steps}")
    trainer = Trainer(args, folder, accelerator, model)
    if accelerator.rank:
        mytorch.manual_seed(args.seed + 1_000_003 * accelerator.rank)  # dropout differs between processes
    with accelerate.exclusive(folder, accelerator.is_main_process):
        if checkpoint is not None:
            run_files.check_tokenizer(data, checkpoint)
            for name, ours, theirs, _ in differing:
                accelerator.print(f"Resuming with --{name} {ours}; the checkpoint had {theirs}.")
            trainer.resume(checkpoint)
            if trainer.iteration >= args.train_iterations:
                text = f"{checkpoint} has {trainer.iteration} iterations, --train_iterations is {args.train_iterations}"
                accelerator.print(f"Nothing to train: {text}.")
                return 0
        elif args.overwrite and accelerator.is_main_process:
            accelerate.remove_checkpoints(folder)
        elif not args.overwrite and (newest := accelerate.newest_checkpoint(folder)) is not None:
            text = f"expected a new project, got one with the checkpoint {newest}"
            ways = (
                "Use --resume_from_checkpoint latest to continue, --overwrite to replace it, or another --project_name"
            )
            raise FileExistsError(f"--project_name: {text}. {ways}.")
        if accelerator.is_main_process:
            run_files.write_meta(folder, meta, data)
        accelerator.register_save_state_pre_hook(lambda models, weights, path: run_files.write_meta(path, meta, data))
        accelerator.init_tracker(args.project_name, args.run_name, meta["training"])
        return trainer.finish(trainer.train())


if __name__ == "__main__":
    run_script(main)
