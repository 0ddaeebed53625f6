"""`torch.profiler`: time and memory of a training step, by op, by module and by line.

    with profile(with_modules=True, profile_memory=True) as p:
        loss = model(x).sum()
        loss.backward()
    print(p.key_averages().table(sort_by="self_cpu_time_total"))
    p.export_chrome_trace("trace.json")
    p.export_memory_timeline("memory.html")

Times are CPU times around each op and each backward node; outstanding work of a GPU is not included. The recording is in
profiler/autograd_profiler.py.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from .. import cuda
from ..arrays.errors import warn
from ..nn import module as _modules
from ..optim import optimizer as _optimizers
from .autograd_profiler import _now, _raw, record_function
from .autograd_profiler import profile as _profile
from .events import MODULE
from .memory import timeline, write_timeline


class ProfilerActivity(Enum):
    """Activities to measure: only the CPU."""

    CPU = 0
    CUDA = 1


def kineto_available() -> bool:
    """Returns False, because PyTorch's kernel profiler is not included."""
    return False


def supported_activities() -> set[ProfilerActivity]:
    """Returns the supported activities."""
    return {ProfilerActivity.CPU}


class ProfilerAction(Enum):
    """Actions of a profiler in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Returns a schedule: a function of the step that returns a ProfilerAction, in cycles of waiting, warmup and recording.

    Args:
        wait: number of steps to wait in a cycle.
        warmup: number of warmup steps in a cycle.
        active: number of recorded steps in a cycle.
        repeat: number of cycles; 0 for no limit.
        skip_first: number of steps before the first cycle.
        skip_first_wait: if not 0, the first cycle does not wait.
    """

    def action(step):
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        step += wait if skip_first_wait else 0
        cycle, place = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """Returns a function that writes the trace of a profile to a folder.

    Args:
        dir_name: the folder, which is created if missing.
        worker_name: start of the file name (default: "worker").
        use_gzip: write a ".gz" file.
    """

    def write(prof):
        os.makedirs(dir_name, exist_ok=True)
        name = f"{worker_name or 'worker'}.{time.time_ns()}.pt.trace.json" + ".gz" * use_gzip
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return write


def _name_of_step(optimizer):
    return f"Optimizer.step#{type(optimizer).__name__}.step"


class profile(_profile):
    """Measures ops, backward nodes, optimizer steps and `record_function` ranges within a `with` block.

    Args:
        activities: None, or a list with ProfilerActivity.CPU.
        schedule: function of the step number that returns a ProfilerAction, see `schedule`; None records all steps. `step()`
            ends a step.
        on_trace_ready: function of the profile, called at the end of each recorded cycle.
        record_shapes: record the shapes of inputs (`key_averages(group_by_input_shape=True)`).
        profile_memory: record allocated and freed memory with its category (`export_memory_timeline`).
        with_stack: record the source lines of each op (`key_averages(group_by_stack_n=1)`, `export_stacks`).
        with_flops: count the floating-point operations of matrix products, convolutions and attention (`event.flops`).
        with_modules: record the calls of modules, and the module of each op and node
            (`key_averages(group_by_module=True)`).
        acc_events: keep the events of all cycles, instead of the last cycle only.
        options: other options of PyTorch, which must be False or None.

    Raises:
        NotImplementedError: for ProfilerActivity.CUDA if there is a GPU, and for other options of PyTorch.

    Example:
        >>> with mytorch.profiler.profile() as p:
        ...     x = mytorch.ones(2).exp().exp()
        >>> [(event.key, event.count) for event in p.key_averages() if event.key == "exp"]
        [('exp', 2)]
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        acc_events: bool = False,
        **options: Any,
    ):
        super().__init__(record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, **options)
        if activities is not None and ProfilerActivity.CUDA in activities:
            if cuda.is_available():
                raise NotImplementedError(
                    "profile: ProfilerActivity.CUDA is not supported. Use the GPU vendor's profiler."
                )
            warn("CUDA is not available, disabling CUDA profiling")
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready, self.acc_events, self.with_modules = on_trace_ready, acc_events, with_modules
        self.record_steps = schedule is not None
        self.step_num, self.current_action, self.active = 0, self.schedule(0), False
        self._step = None  # range of the current step
        self._calls = []  # (event, names of the modules below, previous path) of the running modules
        self._metadata = {}

    # -- steps ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts measuring, like entering the `with` block."""
        self.__enter__()

    def stop(self) -> None:
        """Stops measuring, like leaving the `with` block."""
        self.__exit__(None, None, None)

    def __enter__(self):
        super().__enter__()
        self._handles = [
            _optimizers.register_optimizer_step_pre_hook(self._before_step),
            _optimizers.register_optimizer_step_post_hook(self._after_step),
        ]
        self._hooked_before = _modules._hooked_globally[0]
        if self.with_modules:
            self._handles.append(_modules.register_module_forward_pre_hook(self._before_module))
            self._handles.append(_modules.register_module_forward_hook(self._after_module, always_call=True))
        self._turn(ProfilerAction.NONE, self.current_action)
        return self

    def __exit__(self, *exc):
        for handle in self._handles:
            handle.remove()
        _modules._hooked_globally[0] = self._hooked_before
        self._turn(self.current_action, None)
        super().__exit__(*exc)

    def step(self) -> None:
        """Marks the start of the next step."""
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self.schedule(self.step_num)
        self._turn(before, self.current_action)

    def _turn(self, before, after):
        """Change from one action to the next; None is the end."""
        recording = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        ends = before == ProfilerAction.RECORD_AND_SAVE or (before == ProfilerAction.RECORD and after not in recording)
        self.active = after in recording and before in recording and not ends
        if ends and self.on_trace_ready is not None:
            self.on_trace_ready(self)
        if after in recording:
            if not self.active and not self.acc_events:
                self._clear()
            self.active = True
            if self.record_steps:
                self._step = record_function(f"ProfilerStep#{self.step_num}").__enter__()

    # -- modules and optimizers ------------------------------------------------------------------------------------

    def _before_module(self, module, args):
        if not self.active:
            return
        names = self._calls[-1][1] if self._calls else {}
        if module not in names:
            top = f"{self.module}.{type(module).__name__}" if self.module else type(module).__name__
            names = {**names, **{m: f"{top}.{n}" if n else top for n, m in module.named_modules()}}
        before, self.module = self.module, names[module]
        self._calls.append((self.begin(f"nn.Module: {self.module}", MODULE), names, before, module))

    def _after_module(self, module, args, output):
        if any(module is m for *_, m in self._calls):
            while self._calls:
                event, _, self.module, ended = self._calls.pop()
                self.end(event)
                if ended is module:
                    break

    def _before_step(self, optimizer, args, kwargs):
        if self.active:
            self.begin(_name_of_step(optimizer))

    def _after_step(self, optimizer, args, kwargs):
        name = _name_of_step(optimizer)
        event = next((e for e in reversed(self._found) if e.name == name and not e.end), None)
        if event is None:
            return
        event.end = _now()
        for x in [x for state in optimizer.state.values() for x in state.values()] if self.profile_memory else ():
            if _raw(x) is not None:
                self.hold(_raw(x), "OPTIMIZER_STATE", event, sure=True)
        self.end(event)

    # -- results ---------------------------------------------------------------------------------------------------

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a key and a text to the trace.

        Args:
            value: the text.
        """
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds a key and a JSON value to the trace.

        Args:
            value: the value as JSON text.
        """
        self._metadata[key] = json.loads(value)

    def export_memory_timeline(self, path: str | os.PathLike, device: str | None = None) -> None:
        """Writes the memory over time by category: parameters, optimizer state, inputs, temporaries, activations, gradients.

        The arrays that ops, backward and optimizers receive and return are counted. Arrays within one op are not.

        Args:
            path: path of the file. ".html" and ".svg" files are images. ".json" and ".json.gz" files contain
                [microseconds, [[0, bytes of each category], …]].
            device: "cpu" or "cuda:0" (default: the device with more memory in use).

        Raises:
            ValueError: without profile_memory, or for another file type.
        """
        if not self.profile_memory:
            raise ValueError("export_memory_timeline: no memory was recorded. Use profile(profile_memory=True).")
        kinds = [block.device for block in self._blocks]
        kind = device.partition(":")[0] if device else "cuda" if kinds.count("cuda") else "cpu"
        write_timeline(path, *timeline([b for b in self._blocks if b.device == kind], self._found), kind)


__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "supported_activities",
    "tensorboard_trace_handler",
]  # fmt: skip


class itt:
    """`torch.profiler.itt`: marks for Intel's profiler, which is not supported."""

    @staticmethod
    def is_available():
        """Returns False."""
        return False
