"""The Accelerator: a training loop is written once, against it."""

import builtins
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._array import Array
from .._tensor import Tensor, is_tensor
from ..amp import GradScaler, autocast
from ..base.dtypes import bfloat16, float16, float32
from ..distributed.environment import master
from ..nn import Module
from ..nn.utils import clip_grad_norm_, clip_grad_value_
from ..ops.creation import full
from ..ops.movement import cat
from ..optim import Optimizer
from ..serialization import save, save_state_dict
from ..utils.data import DataLoader
from . import training_state
from .loader import AcceleratedLoader, SkippingLoader, map_tensors
from .optimizer import AcceleratedOptimizer, AcceleratedScheduler
from .state import Flag, ProcessState
from .tracking import known_trackers, open_tracker

_PRECISIONS = {
    False: None, None: None, "no": None, "fp32": None, True: float16, "fp16": float16, "bf16": bfloat16,
}  # fmt: skip


class Accelerator:
    """Runs a training loop in one or two precisions, with gradients accumulated over several batches.

        accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            accelerator.backward(loss_fn(model(x), y))
            norm = accelerator.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_grad:
                ...  # a whole step is done

    Args:
        gradient_accumulation_steps: backward passes that make one step; settable.
        mixed_precision: False or "no"; "fp16" (or True), with the loss scaled; "bf16". Parameters, gradients
            and optimizer state stay in float32. The launcher's MYTORCHRUN_MIXED_PRECISION wins.
        log_wandb: send what `log` gets to Weights & Biases; to a file where wandb is not installed.
        project_dir: where trackers write.
        total_limit: how many numbered checkpoints `save_state` keeps beside each other; None for all.
        device: where to compute; by default this process's GPU, or the CPU where there is none. cpu=True: the CPU.
        scaler_options: arguments for `amp.GradScaler`.
        ddp_options: for several processes: a dict with any of bucket_cap_mb, find_unused_parameters,
            broadcast_buffers and comm_hook, as DistributedDataParallel has them.
        split_batches: a loader's batch is shared by the processes, instead of each getting one of that size.
        log_with: "wandb" (or "all"), "tensorboard", "jsonl", a list of these, or an object with `log` and `finish`.
        num_gpus, rank, master_addr, master_port: by default what the launcher has put in the environment.

    Under a launcher every process makes an Accelerator and runs the same loop on its part of the data: gradients
    are averaged over processes in the last backward of a step. The prepared model is the model itself, not a
    wrapper.

    Example:
        >>> accelerator = mytorch.accelerate.Accelerator(gradient_accumulation_steps=2, cpu=True)
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> layer, optimizer = accelerator.prepare(layer, optim.SGD(layer.parameters()))
        >>> for _ in range(2):
        ...     accelerator.backward(layer(mytorch.ones(1, 1)).sum())
        ...     accelerator.sync_gradients, layer.weight.grad.item()
        (False, 0.5)
        (True, 1.0)

    Raises:
        ValueError: another mixed_precision, or fewer than one accumulation step.
        RuntimeError: num_gpus is not the number of processes that were started.
    """

    def __init__(
        self,
        num_gpus: int | None = None,
        rank: int | None = None,
        gradient_accumulation_steps: int = 1,
        mixed_precision: bool | str | None = False,
        log_wandb: bool = False,
        master_addr: str | None = None,
        master_port: int | None = None,
        *,
        project_dir: str | Path | None = None,
        total_limit: int | None = None,
        device: Any = None,
        cpu: bool = False,
        scaler_options: dict[str, Any] | None = None,
        ddp_options: dict[str, Any] | None = None,
        split_batches: bool = False,
        log_with: Any = None,
    ):
        chosen = os.environ.get("MYTORCHRUN_MIXED_PRECISION", "").lower()
        if chosen not in ("", "no"):
            mixed_precision = chosen
        if mixed_precision not in _PRECISIONS:
            raise ValueError(
                f"Accelerator: mixed_precision is {mixed_precision!r}; expected False, True, 'no', 'fp16' or 'bf16'."
            )
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.state = ProcessState("cpu" if cpu else device, rank, num_gpus, master_addr, master_port)
        address, port = master()
        self.master_addr = master_addr or address
        self.master_port = int(master_port or port)
        self.ddp_options = dict(ddp_options or {})
        unknown = set(self.ddp_options) - {"bucket_cap_mb", "find_unused_parameters", "broadcast_buffers", "comm_hook"}
        if unknown:
            raise ValueError(f"Accelerator: ddp_options has {', '.join(sorted(unknown))}, which it does not know.")
        self.half = _PRECISIONS[mixed_precision]
        self.scaler = GradScaler(self.device.type, **(scaler_options or {})) if self.half is float16 else None
        self.split_batches = split_batches
        if log_wandb or os.environ.get("MYTORCHRUN_LOG_WANDB") == "1":
            log_with = "wandb" if log_with is None else log_with
        self.log_with = known_trackers(log_with)
        self.project_dir = project_dir
        self.total_limit = total_limit
        self.step_counter = 0  # backward passes so far
        self.grad_norm: Tensor | None = None
        self._models, self._optimizers, self._schedulers, self._loaders, self._custom = [], [], [], [], []
        self._unscaled, self._stepped = set(), set()
        self._trackers = []
        self._trigger = False
        self._reducers = {}  # by id of the model
        self._quiet = 0  # depth of no_sync blocks
        self._save_hooks = []
        self._active = []  # loaders that are being iterated over, the innermost last

    # -- who and where ----------------------------------------------------------------------------

    @property
    def device(self):
        """Where this process computes."""
        return self.state.device

    @property
    def num_processes(self) -> int:
        """How many processes train together."""
        return self.state.num_processes

    @property
    def rank(self) -> int:
        """This process's number."""
        return self.state.rank

    process_index = rank

    @property
    def local_process_index(self) -> int:
        """This process's number on its machine."""
        return self.state.local_rank

    @property
    def is_main_process(self) -> Flag:
        """Whether this is the first process; may be called, too."""
        return self.state.is_main_process

    @property
    def is_local_main_process(self) -> Flag:
        """Whether this is the first process of its machine; may be called, too."""
        return self.state.is_local_main_process

    is_last_process = property(lambda self: self.rank == self.num_processes - 1)
    use_distributed = property(lambda self: self.num_processes > 1)

    @property
    def mixed_precision(self) -> str:
        """ "no", "fp16" or "bf16"."""
        return {None: "no", float16: "fp16", bfloat16: "bf16"}[self.half]

    @property
    def gradient_accumulation_steps(self) -> int:
        """Backward passes that make one step; settable."""
        return self._accumulation

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"Accelerator: gradient_accumulation_steps is {n}; expected at least 1.")
        self._accumulation = int(n)

    @property
    def sync_gradients(self) -> bool:
        """Whether the last backward completed a step's gradients."""
        return self.step_counter % self._accumulation == 0

    sync_grad = sync_gradients

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether an optimizer's last step was left out because gradients had overflowed."""
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    def env(self) -> None:
        """Print how this process was launched, on the main process."""
        master = f"\n  master: {self.master_addr}:{self.master_port}" if self.use_distributed else ""
        self.print(
            f"Launch Configuration:\n  device: {self.device}\n  processes: {self.num_processes}\n"
            f"  mixed precision: {self.mixed_precision}\n  gradient accumulation steps: {self._accumulation}{master}"
        )

    # -- preparing --------------------------------------------------------------------------------

    def prepare(self, *objects: Any) -> Any:
        """Models, optimizers, loaders and schedules, in any order and number, made ready for the loop.

        Other objects come back as they are.

        Returns:
            The same objects, or what stands for them, in the same order; a single one if one was given.
        """
        prepared = [self._prepare_one(x) for x in objects]
        return prepared[0] if len(prepared) == 1 else prepared

    def _prepare_one(self, x):
        if isinstance(x, Module):
            return self.prepare_model(x)
        if isinstance(x, (Optimizer, AcceleratedOptimizer)):
            return self.prepare_optimizer(x)
        if isinstance(x, (DataLoader, AcceleratedLoader)):
            return self.prepare_data_loader(x)
        if isinstance(x, AcceleratedScheduler) or all(hasattr(x, n) for n in ("optimizer", "step", "state_dict")):
            return self.prepare_scheduler(x)
        return x

    def prepare_model(self, model: Module) -> Module:
        """The model on this process's device, its forward in mixed precision and its outputs in float32."""
        model.to(self.device)
        if self.half is not None and "_full_forward" not in model.__dict__:
            full = model.forward

            @functools.wraps(full)
            def forward(*args, **kwargs):
                with self.autocast():
                    return map_tensors(_to_float32, full(*args, **kwargs))

            object.__setattr__(model, "_full_forward", full)
            object.__setattr__(model, "forward", forward)
        if not any(model is m for m in self._models):
            self._models.append(model)
            self._replicate(model)
        return model

    def _replicate(self, model):
        """Make the model the same in all processes, and have its gradients averaged."""
        if self.num_processes == 1:
            return
        from ..distributed.process_group import resolve
        from ..distributed.reducer import replicate
        from ..nn.parallel.distributed import DistributedDataParallel

        if isinstance(model, DistributedDataParallel):
            return
        if not any(p.requires_grad for p in model.parameters()):
            return
        options = self.ddp_options
        cap, unused = int(options.get("bucket_cap_mb", 25) * (1 << 20)), options.get("find_unused_parameters", False)
        buffers = options.get("broadcast_buffers", True)
        reducer = replicate(model, resolve(None), cap_bytes=cap, find_unused=unused, buffers=buffers)
        if options.get("comm_hook") is not None:
            reducer.hook = (None, options["comm_hook"])
        self._reducers[id(model)] = reducer
        model.register_forward_pre_hook(
            lambda module, args: reducer.before_forward(self._completes_step(), module.training)
        )
        model.register_forward_hook(lambda module, args, out: reducer.after_forward(out))

    def _completes_step(self):
        """Whether the next backward is the last of a step, in which processes exchange gradients."""
        return (self.step_counter + 1) % self._accumulation == 0 and not self._quiet

    def prepare_optimizer(self, optimizer: Optimizer | AcceleratedOptimizer) -> AcceleratedOptimizer:
        """The optimizer, stepping only when a step's gradients are complete."""
        if not isinstance(optimizer, AcceleratedOptimizer):
            optimizer = AcceleratedOptimizer(optimizer, self)
        return _add(self._optimizers, optimizer)

    def prepare_data_loader(self, loader: DataLoader | AcceleratedLoader) -> AcceleratedLoader:
        """The loader, its batches on this process's device."""
        if not isinstance(loader, AcceleratedLoader):
            loader = AcceleratedLoader(loader, self.device, self.state, self._active, self.split_batches)
        return _add(self._loaders, loader)

    prepare_dataloaders = prepare_data_loader

    def prepare_scheduler(self, scheduler: Any) -> AcceleratedScheduler:
        """The schedule, going on only when an optimizer has stepped."""
        if not isinstance(scheduler, AcceleratedScheduler):
            scheduler = AcceleratedScheduler(scheduler, self)
        return _add(self._schedulers, scheduler)

    def unwrap_model(self, model: Module, keep_fp32_wrapper: bool = True) -> Module:
        """The model itself, out of a DistributedDataParallel; with its own forward again if `keep_fp32_wrapper` is False."""
        if type(model).__name__ == "DistributedDataParallel":
            model = model.module
        if not keep_fp32_wrapper and "_full_forward" in model.__dict__:
            del model.__dict__["forward"], model.__dict__["_full_forward"]
        return model

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save and load these too: anything with `state_dict` and `load_state_dict`.

        Raises:
            ValueError: one has not.
        """
        for x in objects:
            if not hasattr(x, "state_dict") or not hasattr(x, "load_state_dict"):
                raise ValueError(
                    f"register_for_checkpointing: {type(x).__name__} has no state_dict and load_state_dict."
                )
            self._custom.append(x)

    def free_memory(self, *objects: Any) -> list[None]:
        """Forget all prepared objects; returns a None for each given."""
        for reducer in self._reducers.values():
            reducer.remove()
        for kept in (self._models, self._optimizers, self._schedulers, self._loaders, self._custom, self._reducers):
            kept.clear()
        self.step_counter = 0
        return [None for _ in objects]

    clear = free_memory

    # -- the step ---------------------------------------------------------------------------------

    def autocast(self) -> autocast:
        """The context in which prepared models run forward."""
        return autocast(self.device.type, self.half, enabled=self.half is not None)

    @contextlib.contextmanager
    def accumulate(self, *models: Module) -> Iterator[None]:
        """A block that is one of the backward passes of a step; the one on a loader's last batch completes it.

        Without this block, a step that an epoch's end leaves incomplete goes on in the next one.
        """
        if self._active and self._active[-1].end_of_dataloader:
            self.step_counter += -(self.step_counter + 1) % self._accumulation
        yield

    @contextlib.contextmanager
    def no_sync(self, model: Module | None = None) -> Iterator[None]:
        """A block whose gradients are not yet exchanged; alone, nothing is to be left out."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """Gradients of loss / gradient_accumulation_steps, added up; scaled if in float16."""
        if self._stepped:
            self._end_step()
        if self._accumulation > 1:
            loss = loss / self._accumulation
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        for reducer in self._reducers.values():
            reducer.sync = self._completes_step()
        loss.backward(**kwargs)
        self.step_counter += 1

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Divide the gradients of the optimizers (all, if none is given) by the scale; once for each step."""
        if self.scaler is None:
            return
        for each in self._optimizers if optimizer is None else [optimizer]:
            inner = getattr(each, "optimizer", each)
            if id(inner) not in self._unscaled:
                self._unscaled.add(id(inner))
                self.scaler.unscale_(inner)

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Note that an optimizer has done its step; when all have, the scale is updated."""
        self._stepped.add(id(optimizer))
        if len(self._stepped) == len(self._optimizers):
            self._end_step()

    def _end_step(self):
        self.scaler.update()
        self._stepped.clear()
        self._unscaled.clear()

    def _parameters(self):
        return [p for model in self._models for p in model.parameters()]

    def clip_grad_norm_(
        self, parameters: Any = None, max_norm: float | None = None, norm_type: float = 2.0
    ) -> Tensor | None:
        """Scale the gradients to a joint norm of at most max_norm; nothing while gradients accumulate.

        `clip_grad_norm_(max_norm)` takes the parameters of all prepared models, and
        `clip_grad_norm_(parameters, max_norm)` the given ones.

        Args:
            parameters: the tensors whose gradients count; those of all prepared models if left out.
            max_norm: largest norm allowed.
            norm_type: order of the norm, inf for the largest element.

        Returns:
            The norm before (0-d Tensor), also kept as `grad_norm`; while accumulating, that of the last step.
        """
        if max_norm is None:
            parameters, max_norm = None, 1.0 if parameters is None else parameters
        if self.sync_gradients:
            self.unscale_gradients()
            parameters = self._parameters() if parameters is None else parameters
            self.grad_norm = clip_grad_norm_(parameters, max_norm, norm_type)
        return self.grad_norm

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Limit each element of the gradients to ±clip_value; nothing while gradients accumulate."""
        if self.sync_gradients:
            self.unscale_gradients()
            clip_grad_value_(parameters, clip_value)

    # -- between processes ------------------------------------------------------------------------

    def gather(self, tensor: Any) -> Any:
        """The tensors of all processes joined along the first axis, through nested containers."""
        return map_tensors(lambda t: Tensor._of(self.state.gather(_data(t))), tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """A single number's mean over processes as a float; batches joined, without the last one's padding."""
        if use_gather_object:
            parts = self.state.gather_objects(input_data)
            gathered = [item for part in parts for item in part] if isinstance(input_data, list) else parts
            return gathered[: self._kept()]
        if isinstance(input_data, (float, int)) or (is_tensor(input_data) and input_data.ndim == 0):
            where = self.device if self.num_processes > 1 and self.device.type == "cuda" else "cpu"
            number = Array(np.array(float(input_data), np.float64), device=where)
            return float(self.state.all_reduce(number, "mean").item())
        gathered, kept = self.gather(input_data), self._kept()
        return gathered if kept is None else map_tensors(lambda t: t[:kept], gathered)

    def _kept(self):
        """How many of the gathered items are no padding; None where all are."""
        loader = self._active[-1] if self._active else None
        return loader.remainder or None if loader is not None and loader.end_of_dataloader else None

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """The sum or mean of the processes' tensors, times scale, through nested containers.

        Args:
            tensor: a tensor, or lists, tuples and dicts of them.
            reduction: "sum", "mean", or "none".
            scale: factor of the result.
        """

        def one(t):
            out = Tensor._of(self.state.all_reduce(_data(t).__deepcopy__({}), reduction))
            return out if scale == 1.0 else out * scale

        return map_tensors(one, tensor)

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Any:
        """The tensor padded along `dim` to the largest size among processes; alone, itself.

        Args:
            tensor: a tensor, or a container of them.
            dim: the axis whose sizes may differ.
            pad_index: what to fill with.
            pad_first: fill before instead of after.
        """
        if self.num_processes == 1:
            return tensor

        def one(t):
            if t.ndim <= dim:
                return t
            size = max(self.state.gather_objects(t.shape[dim]))
            if size == t.shape[dim]:
                return t
            shape = [size - n if i == dim else n for i, n in enumerate(t.shape)]
            padding = full(shape, pad_index, dtype=t.dtype, device=t.device)
            whole = Tensor._of(_data(t))
            return cat([padding, whole] if pad_first else [whole, padding], dim)

        return map_tensors(one, tensor)

    @contextlib.contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """This process's share of a list, tuple, dict of these, or tensor; alone, all of it.

        The first processes get one item more where it does not divide; with apply_padding the others repeat
        their last.
        """
        if self.num_processes == 1:
            yield inputs
            return

        def share(x):
            size, more = divmod(len(x), self.num_processes)
            start = self.rank * size + min(self.rank, more)
            end = start + size + (self.rank < more)
            mine = x[start:end]
            if apply_padding and more and self.rank >= more:
                last = x[max(end - 1, 0) : max(end, 1)]
                mine = cat([mine, last]) if isinstance(x, Tensor) else mine + last
            return mine

        yield {key: share(value) for key, value in inputs.items()} if isinstance(inputs, dict) else share(inputs)

    def wait_for_everyone(self) -> None:
        """Wait until every process is here."""
        self.state.barrier()

    @contextlib.contextmanager
    def main_process_first(self) -> Iterator[None]:
        """A block that the main process runs before the others."""
        if not self.is_main_process:
            self.wait_for_everyone()
        yield
        if self.is_main_process:
            self.wait_for_everyone()

    local_main_process_first = main_process_first

    def on_main_process(self, function: Callable) -> Callable:
        """A function that only the main process runs."""

        @functools.wraps(function)
        def only_there(*args, **kwargs):
            return function(*args, **kwargs) if self.is_main_process else None

        return only_there

    on_local_main_process = on_main_process

    def set_trigger(self) -> None:
        """Set a mark that `check_trigger` sees on every process."""
        self._trigger = True

    def check_trigger(self) -> bool:
        """Whether any process has set the mark; takes it away."""
        seen, self._trigger = self._trigger, False
        if self.num_processes > 1:
            flag = Array(np.array([seen], np.int32), device=self.device)
            seen = bool(self.state.all_reduce(flag, "max").item())
        return seen

    # -- telling ----------------------------------------------------------------------------------

    def print(self, *args: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
        """As Python's print, on the main process only; a progress bar of tqdm is left whole."""
        if not self.is_main_process:
            return
        bars = sys.modules.get("tqdm")
        if bars is not None:
            bars.tqdm.write(sep.join(map(str, args)), file=file or sys.stdout, end=end)
        else:
            builtins.print(*args, sep=sep, end=end, file=file, flush=flush)

    def init_tracker(self, project_name: str, run_name: str | None = None, config: dict | None = None) -> None:
        """Begin a run with each of log_with's, Weights & Biases as a file where it is not installed.

        Args:
            project_name: the project.
            run_name: the run's name in it.
            config: options to keep with the run.
        """
        if not self.is_main_process:
            return
        for kind in self.log_with:
            tracker, sentence = open_tracker(kind, project_name, run_name, config, self.project_dir or ".")
            self._trackers.append(tracker)
            if sentence:
                self.print(sentence)

    def init_trackers(self, project_name: str, config: dict | None = None, init_kwargs: dict | None = None) -> None:
        """As `init_tracker`, with Hugging Face's arguments.

        Args:
            project_name: the project.
            config: options to keep with the run.
            init_kwargs: {"wandb": {"name": …}}, the run's name.
        """
        self.init_tracker(project_name, (init_kwargs or {}).get("wandb", {}).get("name"), config)

    def get_tracker(self, name: str | None = None, unwrap: bool = False) -> Any:
        """The tracker of a name that `init_tracker` began, the first without one; None if there is none."""
        return next((t for t in self._trackers if name in (None, getattr(t, "name", None))), None)

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        """Log a dict of numbers; nothing without log_with.

        Raises:
            RuntimeError: `init_tracker` was not called.
        """
        if not self.log_with or not self.is_main_process:
            return
        if not self._trackers:
            raise RuntimeError("Accelerator.log: call init_tracker(project_name, run_name, config) first.")
        for tracker in self._trackers:
            tracker.log(values, step=step)

    def end_training(self) -> None:
        """Wait for everyone and close the trackers."""
        self.wait_for_everyone()
        while self._trackers:
            self._trackers.pop().finish()

    # -- checkpoints ------------------------------------------------------------------------------

    def save_state(self, output_dir: str | Path, save_model_only: bool = False, total_limit: int | None = None) -> Path:
        """Write a checkpoint directory: it is complete, or not there.

        Args:
            output_dir: the directory; an earlier checkpoint there is replaced.
            save_model_only: the weights alone.
            total_limit: keep only so many directories of this name with other numbers at its end.

        Returns:
            The directory, as a Path.
        """
        path = Path(output_dir)
        ranks = None if save_model_only else training_state.collect(self)
        if self.is_main_process:
            self.print(f"Saving Checkpoint to {output_dir}")
            size = training_state.least_size(self, ranks)
            training_state.replace_directory(
                path, lambda partial: training_state.write_state(self, partial, ranks), size
            )
            limit = self.total_limit if total_limit is None else total_limit
            if limit is not None:
                training_state.keep_newest(path, limit)
        self.wait_for_everyone()
        return path

    def register_save_state_pre_hook(self, hook: Callable) -> None:
        """Have `save_state` call hook(models, weights, directory) before a checkpoint, in whose directory it may write.

        Only the main process calls it; `weights` are the models' state dicts.
        """
        self._save_hooks.append(hook)

    def load_state(self, input_dir: str | Path) -> None:
        """Continue exactly where `save_state` wrote its directory; the same objects must have been prepared.

        Raises:
            FileNotFoundError: the directory, or a file in it, is missing.
        """
        self.print(f"Loading Checkpoint From {input_dir}")
        training_state.read_state(self, input_dir)

    def save(self, obj: Any, f: Any) -> None:
        """`mytorch.save`, on the main process only."""
        if self.is_main_process:
            save(obj, f)

    def save_model(self, model: Module, save_directory: str | Path) -> None:
        """Write a model's weights as `model.safetensors` in a directory."""
        if self.is_main_process:
            Path(save_directory).mkdir(parents=True, exist_ok=True)
            save_state_dict(model.state_dict(), Path(save_directory) / "model.safetensors")

    def get_state_dict(self, model: Module) -> dict[str, Tensor]:
        """The model's state dict."""
        return model.state_dict()

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> SkippingLoader:
        """The loader without its first batches, for an epoch that goes on in the middle."""
        return SkippingLoader(dataloader, num_batches)


def _data(t):
    return t._data if isinstance(t, Tensor) else t


def _add(objects, x):
    """Put an object into a list, unless it is there; returns it."""
    if not any(x is known for known in objects):
        objects.append(x)
    return x


def _to_float32(x):
    return x.to(float32) if isinstance(x, Tensor) and x.dtype in (float16, bfloat16) else x
