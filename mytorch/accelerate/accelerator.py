"""Accelerator: hides devices, processes and precision from a training loop."""

import builtins
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import _extensions
from ..amp import GradScaler, autocast
from ..arrays.array import Array
from ..arrays.dtypes import bfloat16, float16, float32
from ..arrays.tensor import Tensor, is_tensor
from ..distributed.environment import master
from ..files.serialization import save, save_state_dict
from ..nn import Module
from ..nn.utils import clip_grad_norm_, clip_grad_value_
from ..ops.creation import full
from ..ops.movement import cat
from ..optim import Optimizer
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
    """Runs a training loop on any number of processes, in float32 or mixed precision, with gradient accumulation.

        accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            accelerator.backward(loss_fn(model(x), y))
            norm = accelerator.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_grad:
                ...  # a step is complete

    Args:
        num_gpus: expected number of processes; a different number raises (default: set by the launcher).
        rank: rank of this process (default: set by the launcher).
        gradient_accumulation_steps: number of backward passes per step (default: 1). You may change it later.
        mixed_precision: "no" (or False, the default), "fp16" (or True), or "bf16". Parameters, gradients and
            optimizer state stay in float32. The launcher's MYTORCHRUN_MIXED_PRECISION takes precedence.
        log_wandb: log to Weights & Biases, or to a file if wandb is not installed (default: False).
        master_addr: address of the first process (default: set by the launcher).
        master_port: port of the first process (default: set by the launcher).
        project_dir: directory of the trackers' files.
        total_limit: number of numbered checkpoints that `save_state` keeps (default: all).
        device: device of this process (default: its GPU, or the CPU without a GPU).
        cpu: if True, use the CPU.
        scaler_options: dict of arguments for `amp.GradScaler`.
        ddp_options: dict with any of `bucket_cap_mb`, `find_unused_parameters`, `broadcast_buffers` and `comm_hook`,
            which have the same meaning as in DistributedDataParallel.
        split_batches: split each batch of a loader over the processes. If False, each process gets whole batches.
        log_with: "wandb" (or "all"), "tensorboard", "jsonl", a list of these, or an object with `log` and `finish`.
        fsdp: True, a dict of options or a `FullyShardedDataParallelPlugin` shards parameters, gradients and optimizer state
            over the processes (default: None).

    With several processes, every process creates an Accelerator and runs the same loop on its part of the data.
    The last backward of a step averages the gradients over processes. `prepare` returns the model itself, not a wrapper.

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
        ValueError: if mixed_precision is unknown, or gradient_accumulation_steps is less than 1.
        RuntimeError: if num_gpus differs from the number of started processes.
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
        fsdp: Any = None,
    ):
        chosen = os.environ.get("MYTORCHRUN_MIXED_PRECISION", "").lower()
        if chosen not in ("", "no"):
            mixed_precision = chosen
        if mixed_precision not in _PRECISIONS:
            raise ValueError(
                f"Accelerator: expected mixed_precision to be False, True, 'no', 'fp16' or 'bf16', got {mixed_precision!r}."
            )
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.state = ProcessState("cpu" if cpu else device, rank, num_gpus, master_addr, master_port)
        address, port = master()
        self.master_addr = master_addr or address
        self.master_port = int(master_port or port)
        self.ddp_options = dict(ddp_options or {})
        unknown = set(self.ddp_options) - {"bucket_cap_mb", "find_unused_parameters", "broadcast_buffers", "comm_hook"}
        if unknown:
            raise ValueError(f"Accelerator: ddp_options has unknown keys: {', '.join(sorted(unknown))}.")
        self.half = _PRECISIONS[mixed_precision]
        self.fsdp = _extensions.plugin("distributed.fsdp:FullyShardedDataParallelPlugin", fsdp)
        self.scaler = GradScaler(self.device.type, **(scaler_options or {})) if self.half is float16 else None
        self.split_batches = split_batches
        if log_wandb or os.environ.get("MYTORCHRUN_LOG_WANDB") == "1":
            log_with = "wandb" if log_with is None else log_with
        self.log_with = known_trackers(log_with)
        self.project_dir = project_dir
        self.total_limit = total_limit
        self.step_counter = 0  # number of backward passes
        self.grad_norm: Tensor | None = None
        self._models, self._optimizers, self._schedulers, self._loaders, self._custom = [], [], [], [], []
        self._unscaled, self._stepped = set(), set()
        self._trackers = []
        self._trigger = False
        self._reducers = {}  # id of the model -> Reducer
        self._quiet = 0  # depth of no_sync blocks
        self._save_hooks = []
        self._active = []  # loaders under iteration, innermost last

    # -- processes and devices --------------------------------------------------------------------

    @property
    def device(self):
        """The device of this process."""
        return self.state.device

    @property
    def num_processes(self) -> int:
        """The number of processes that train together."""
        return self.state.num_processes

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self.state.rank

    process_index = rank

    @property
    def local_process_index(self) -> int:
        """The rank of this process among the processes on its machine."""
        return self.state.local_rank

    @property
    def is_main_process(self) -> Flag:
        """True in the process with rank 0. `is_main_process()` is the same."""
        return self.state.is_main_process

    @property
    def is_local_main_process(self) -> Flag:
        """True in the first process of each machine. `is_local_main_process()` is the same."""
        return self.state.is_local_main_process

    is_last_process = property(lambda self: self.rank == self.num_processes - 1)
    use_distributed = property(lambda self: self.num_processes > 1)

    @property
    def mixed_precision(self) -> str:
        """The precision: "no", "fp16" or "bf16"."""
        return {None: "no", float16: "fp16", bfloat16: "bf16"}[self.half]

    @property
    def gradient_accumulation_steps(self) -> int:
        """The number of backward passes per step; you may change it."""
        return self._accumulation

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"Accelerator: expected gradient_accumulation_steps of at least 1, got {n}.")
        self._accumulation = int(n)

    @property
    def sync_gradients(self) -> bool:
        """True if the last backward completed the gradients of a step."""
        return self.step_counter % self._accumulation == 0

    sync_grad = sync_gradients

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """True if the last optimizer step was skipped because gradients had overflowed."""
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    def env(self) -> None:
        """Prints the launch configuration on the main process."""
        master = f"\n  master: {self.master_addr}:{self.master_port}" if self.use_distributed else ""
        self.print(
            f"Launch Configuration:\n  device: {self.device}\n  processes: {self.num_processes}\n"
            f"  mixed precision: {self.mixed_precision}\n  gradient accumulation steps: {self._accumulation}{master}"
        )

    # -- preparing --------------------------------------------------------------------------------

    def prepare(self, *objects: Any) -> Any:
        """Prepares models, optimizers, loaders and schedulers for the loop, in any order and number.

        Args:
            *objects: the objects. Objects of other types are returned unchanged.

        Returns:
            The same objects or their replacements, in the same order; a single object for one argument.
        """
        if self.fsdp is not None:
            self.fsdp.prepare(self, objects)
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
        """Moves a model to this process's device, with forward in mixed precision and outputs in float32.

        Args:
            model: the model, which is changed in place and returned.
        """
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
        """Copy the model to all processes, and average its gradients."""
        if self.num_processes == 1 or self.fsdp is not None:
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
        """Return True if the next backward is the last of a step, which averages the gradients."""
        return (self.step_counter + 1) % self._accumulation == 0 and not self._quiet

    def prepare_optimizer(self, optimizer: Optimizer | AcceleratedOptimizer) -> AcceleratedOptimizer:
        """Returns an optimizer that steps only when the gradients of a step are complete."""
        if not isinstance(optimizer, AcceleratedOptimizer):
            optimizer = AcceleratedOptimizer(optimizer, self)
        return _add(self._optimizers, optimizer)

    def prepare_data_loader(self, loader: DataLoader | AcceleratedLoader) -> AcceleratedLoader:
        """Returns a loader with this process's part of the data, on this process's device.

        Args:
            loader: the DataLoader.
        """
        if not isinstance(loader, AcceleratedLoader):
            loader = AcceleratedLoader(loader, self.device, self.state, self._active, self.split_batches)
        return _add(self._loaders, loader)

    prepare_dataloaders = prepare_data_loader

    def prepare_scheduler(self, scheduler: Any) -> AcceleratedScheduler:
        """Returns a learning-rate scheduler that steps only after an optimizer has stepped."""
        if not isinstance(scheduler, AcceleratedScheduler):
            scheduler = AcceleratedScheduler(scheduler, self)
        return _add(self._schedulers, scheduler)

    def unwrap_model(self, model: Module, keep_fp32_wrapper: bool = True) -> Module:
        """Returns the model inside a DistributedDataParallel.

        Args:
            model: the model or its wrapper.
            keep_fp32_wrapper: if False, restore the original forward without mixed precision.
        """
        if type(model).__name__ == "DistributedDataParallel":
            model = model.module
        if not keep_fp32_wrapper and "_full_forward" in model.__dict__:
            del model.__dict__["forward"], model.__dict__["_full_forward"]
        return model

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Adds objects to the checkpoints of `save_state` and `load_state`.

        Args:
            *objects: objects with `state_dict` and `load_state_dict`.

        Raises:
            ValueError: if an object lacks one of the two methods.
        """
        for x in objects:
            if not hasattr(x, "state_dict") or not hasattr(x, "load_state_dict"):
                raise ValueError(
                    f"register_for_checkpointing: expected an object with state_dict and load_state_dict, got "
                    f"{type(x).__name__}."
                )
            self._custom.append(x)

    def free_memory(self, *objects: Any) -> list[None]:
        """Releases all prepared objects.

        Args:
            *objects: any objects.

        Returns:
            A list with one None per argument, for `model, optimizer = accelerator.free_memory(model, optimizer)`.
        """
        for reducer in self._reducers.values():
            reducer.remove()
        for kept in (self._models, self._optimizers, self._schedulers, self._loaders, self._custom, self._reducers):
            kept.clear()
        self.step_counter = 0
        return [None for _ in objects]

    clear = free_memory

    # -- the step ---------------------------------------------------------------------------------

    def autocast(self) -> autocast:
        """Returns the autocast context of the forward of prepared models."""
        return autocast(self.device.type, self.half, enabled=self.half is not None)

    @contextlib.contextmanager
    def accumulate(self, *models: Module) -> Iterator[None]:
        """Runs a block as one backward pass of a step. The last batch of a loader completes the step.

        Without this block, an incomplete step at the end of an epoch continues in the next epoch.

        Args:
            *models: accepted for compatibility.
        """
        if self._active and self._active[-1].end_of_dataloader:
            self.step_counter += -(self.step_counter + 1) % self._accumulation
        yield

    @contextlib.contextmanager
    def no_sync(self, model: Module | None = None) -> Iterator[None]:
        """Runs a block without averaging its gradients over processes. With a single process it has no effect.

        Args:
            model: accepted for compatibility.
        """
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """Adds the gradients of loss / gradient_accumulation_steps; in float16 they are scaled.

        Args:
            loss: the loss of this process.
            **kwargs: arguments of `Tensor.backward`.
        """
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

    def drop_step(self) -> None:
        """Forgets the backward passes of an incomplete step: its gradients and its number of backward passes.

        Use it when a training loop ends between the micro-batches of a step. Call it on all processes.
        """
        for optimizer in self._optimizers:
            getattr(optimizer, "optimizer", optimizer).zero_grad()
        if self.fsdp is not None:
            self.fsdp.drop_gradients(self._models)
        self.step_counter -= self.step_counter % self._accumulation
        self._unscaled.clear()

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Divides the gradients by the loss scale, once per step.

        Args:
            optimizer: an optimizer or a list of optimizers (default: all).
        """
        if self.scaler is None:
            return
        for each in self._optimizers if optimizer is None else [optimizer]:
            inner = getattr(each, "optimizer", each)
            if id(inner) not in self._unscaled:
                self._unscaled.add(id(inner))
                self.scaler.unscale_(inner)

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Notes that an optimizer has stepped. After the last optimizer, the loss scale is updated."""
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
        """Scales the gradients so that their joint norm is at most max_norm. Does nothing while gradients accumulate.

        `clip_grad_norm_(max_norm)` clips the gradients of all prepared models, and `clip_grad_norm_(parameters, max_norm)`
        clips the gradients of the given parameters.

        Args:
            parameters: tensors with gradients to clip (default: parameters of all prepared models).
            max_norm: maximum norm.
            norm_type: order of the norm; inf for the maximum absolute value.

        Returns:
            The norm before clipping (0-d Tensor), also stored in `grad_norm`. While gradients accumulate, the norm of the
            last step.
        """
        if max_norm is None:
            parameters, max_norm = None, 1.0 if parameters is None else parameters
        if self.sync_gradients:
            self.unscale_gradients()
            parameters = self._parameters() if parameters is None else parameters
            self.grad_norm = clip_grad_norm_(parameters, max_norm, norm_type)
        return self.grad_norm

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Clips each element of the gradients to ±clip_value. Does nothing while gradients accumulate.

        Args:
            parameters: tensors with gradients to clip.
            clip_value: maximum absolute value.
        """
        if self.sync_gradients:
            self.unscale_gradients()
            clip_grad_value_(parameters, clip_value)

    # -- communication ----------------------------------------------------------------------------

    def gather(self, tensor: Any) -> Any:
        """Concatenates the tensors of all processes along the first axis.

        Args:
            tensor: a tensor, or nested lists, tuples and dicts of tensors.
        """
        return map_tensors(lambda t: Tensor._of(self.state.gather(_data(t))), tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Gathers the results of a batch over processes, without the padding of the last batch.

        Args:
            input_data: tensors to concatenate, or a 0-d tensor or number. For a number, the mean is returned as a float.
            use_gather_object: gather Python objects instead of tensors.
        """
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
        """Return the number of gathered items without padding, or None for all."""
        loader = self._active[-1] if self._active else None
        return loader.remainder or None if loader is not None and loader.end_of_dataloader else None

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """Returns the sum or mean of the processes' tensors, times `scale`.

        Args:
            tensor: a tensor, or nested lists, tuples and dicts of tensors.
            reduction: "sum", "mean" or "none".
            scale: factor of the result.
        """

        def one(t):
            out = Tensor._of(self.state.all_reduce(_data(t).__deepcopy__({}), reduction))
            return out if scale == 1.0 else out * scale

        return map_tensors(one, tensor)

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Any:
        """Pads a tensor along `dim` to the largest size among processes.

        Args:
            tensor: a tensor, or a container of tensors.
            dim: axis of different sizes.
            pad_index: value of the padding.
            pad_first: pad at the start instead of the end.
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
        """Yields this process's share of the inputs.

        If the number of items is not divisible, the first processes get one more item.

        Args:
            inputs: a list, tuple or tensor, or a dict of these.
            apply_padding: repeat the last item so that all shares have the same length.
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
        """Waits until all processes reach this call."""
        self.state.barrier()

    @contextlib.contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Runs a block on the main process before the other processes."""
        if not self.is_main_process:
            self.wait_for_everyone()
        yield
        if self.is_main_process:
            self.wait_for_everyone()

    local_main_process_first = main_process_first

    def on_main_process(self, function: Callable) -> Callable:
        """Decorates a function that runs on the main process only."""

        @functools.wraps(function)
        def only_there(*args, **kwargs):
            return function(*args, **kwargs) if self.is_main_process else None

        return only_there

    on_local_main_process = on_main_process

    def set_trigger(self) -> None:
        """Sets a flag that `check_trigger` reports on every process."""
        self._trigger = True

    def check_trigger(self) -> bool:
        """Returns True if any process has set the flag, and clears the flag."""
        seen, self._trigger = self._trigger, False
        if self.num_processes > 1:
            flag = Array(np.array([seen], np.int32), device=self.device)
            seen = bool(self.state.all_reduce(flag, "max").item())
        return seen

    # -- output -----------------------------------------------------------------------------------

    def print(self, *args: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
        """Prints like Python's `print`, on the main process only, without breaking a progress bar of tqdm.

        Args:
            *args: values to print.
            sep: text between the values.
            end: text after the last value.
            file: file to write to (default: standard output).
            flush: flush the file.
        """
        if not self.is_main_process:
            return
        bars = sys.modules.get("tqdm")
        if bars is not None:
            bars.tqdm.write(sep.join(map(str, args)), file=file or sys.stdout, end=end)
        else:
            builtins.print(*args, sep=sep, end=end, file=file, flush=flush)

    def init_tracker(self, project_name: str, run_name: str | None = None, config: dict | None = None) -> None:
        """Starts a run with each tracker of `log_with`. Without wandb, Weights & Biases is replaced by a file.

        Args:
            config: options to store with the run.
        """
        if not self.is_main_process:
            return
        for kind in self.log_with:
            tracker, sentence = open_tracker(kind, project_name, run_name, config, self.project_dir or ".")
            self._trackers.append(tracker)
            if sentence:
                self.print(sentence)

    def init_trackers(self, project_name: str, config: dict | None = None, init_kwargs: dict | None = None) -> None:
        """Starts the trackers like `init_tracker`, with Hugging Face's arguments.

        Args:
            config: options to store with the run.
            init_kwargs: `{"wandb": {"name": run_name}}` sets the name of the run.
        """
        self.init_tracker(project_name, (init_kwargs or {}).get("wandb", {}).get("name"), config)

    def get_tracker(self, name: str | None = None, unwrap: bool = False) -> Any:
        """Returns a tracker that `init_tracker` started, or None.

        Args:
            name: name of the tracker (default: the first tracker).
            unwrap: accepted for compatibility.
        """
        return next((t for t in self._trackers if name in (None, getattr(t, "name", None))), None)

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        """Logs a dict of numbers. Does nothing without `log_with`.

        Args:
            values: names and numbers.
            step: number of the step.

        Raises:
            RuntimeError: if `init_tracker` was not called.
        """
        if not self.log_with or not self.is_main_process:
            return
        if not self._trackers:
            raise RuntimeError("Accelerator.log: no run was started. Call init_tracker(project_name) first.")
        for tracker in self._trackers:
            tracker.log(values, step=step)

    def end_training(self) -> None:
        """Waits for all processes and closes the trackers."""
        self.wait_for_everyone()
        while self._trackers:
            self._trackers.pop().finish()

    # -- checkpoints ------------------------------------------------------------------------------

    def save_state(self, output_dir: str | Path, save_model_only: bool = False, total_limit: int | None = None) -> Path:
        """Writes a checkpoint directory atomically: an interrupted call leaves no partial checkpoint.

        Args:
            output_dir: the directory. An existing checkpoint in it is replaced.
            save_model_only: save only the weights.
            total_limit: number of checkpoints to keep, among names that differ only in the number (default: all).

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
        """Registers a function to call before a checkpoint is saved, on the main process.

        Args:
            hook: function of (models, weights, directory). `weights` are the models' state dicts. The function may write
                to the directory.
        """
        self._save_hooks.append(hook)

    def load_state(self, input_dir: str | Path) -> None:
        """Restores the state that `save_state` wrote. Prepare the same objects first.

        Args:
            input_dir: the directory.

        Raises:
            FileNotFoundError: if the directory or a file in it is missing.
        """
        self.print(f"Loading Checkpoint From {input_dir}")
        training_state.read_state(self, input_dir)

    def save(self, obj: Any, f: Any) -> None:
        """Calls `mytorch.save` on the main process only.

        Args:
            obj: the object.
            f: path or file object.
        """
        if self.is_main_process:
            save(obj, f)

    def save_model(self, model: Module, save_directory: str | Path) -> None:
        """Writes the weights of a model to `model.safetensors` in a directory."""
        if self.is_main_process:
            Path(save_directory).mkdir(parents=True, exist_ok=True)
            save_state_dict(model.state_dict(), Path(save_directory) / "model.safetensors")

    def get_state_dict(self, model: Module) -> dict[str, Tensor]:
        """Returns the state dict of a model.

        Args:
            model: the model or its wrapper.
        """
        return model.state_dict()

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> SkippingLoader:
        """Returns a loader that skips its first batches, to continue an epoch.

        Args:
            dataloader: the loader.
            num_batches: number of batches to skip.
        """
        return SkippingLoader(dataloader, num_batches)


def _data(t):
    return t._mt_data if isinstance(t, Tensor) else t


def _add(objects, x):
    """Add an object to a list unless the list contains it, and return the object."""
    if not any(x is known for known in objects):
        objects.append(x)
    return x


def _to_float32(x):
    return x.to(float32) if isinstance(x, Tensor) and x.dtype in (float16, bfloat16) else x
