"""Recording of a profile: ops of its thread, backward nodes, ranges, selected kernels, and allocated and freed arrays.

Without an active profile, nothing is recorded. Ops check `mode.profile` together with autocast, backward selects its type of
walk once, and `Kernels.find` records its choices only while a profile is active.
"""

import functools
import os
import sys
import threading
import time
import weakref
from typing import Any

from ..arrays import memory_owner, ndarray
from ..arrays.errors import PACKAGE, stack
from ..autograd.mode import ModeSwitch, get_mode, reset_mode, set_mode
from ..autograd.node import Leaf, OutputEdge
from ..autograd.walk import Walk, raw
from ..kernels.registry import Kernels
from .events import BACKWARD, FORWARD, USER, EventList, FunctionEvent
from .flops import count_flops

_open = threading.local()  # .events: running events of this thread, innermost last


def _running():
    return _open.__dict__.setdefault("events", [])


class profile(ModeSwitch):
    """Measures the ops of this thread, backward nodes and `record_function` ranges within a `with` block.

    Args:
        enabled: if False, nothing is measured.
        record_shapes: record the shapes of inputs (`key_averages(group_by_input_shape=True)`).
        profile_memory: record the memory of results, gradients and parameters.
        with_stack: record the source lines of each op.
        with_flops: count the floating-point operations of matrix products, convolutions and attention (`event.flops`).
        options: other options of PyTorch, which must be False or None.

    Raises:
        NotImplementedError: for an unsupported option.
    """

    def __init__(
        self, enabled: bool = True, *, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, **options: Any,
    ):  # fmt: skip
        super().__init__()
        self.with_flops = with_flops
        asked = [name for name, value in options.items() if value and name not in ("use_cpu", "use_kineto")]
        if asked:
            raise NotImplementedError(f"profile: {', '.join(asked)} is not supported.")
        self.enabled = self.active = enabled
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.module = ""  # path of the running module
        self._clear()

    def _clear(self):
        """Delete all events."""
        self._found = EventList()  # in order of their start
        self._nodes = weakref.WeakKeyDictionary()  # node -> event of its forward
        self._blocks = []  # blocks of memory, in order of discovery
        self._held = {}  # id of the memory's owner -> its Block, while it exists

    def _changes(self):
        return {"profile": self if self.enabled else get_mode().profile}

    def clone(self):
        return self

    def __enter__(self):
        _Noted.begin()
        return super().__enter__()

    def __exit__(self, *exc):
        super().__exit__(*exc)
        _Noted.end()
        self._held = {}

    # -- recording ---------------------------------------------------------------------------------------------

    def begin(self, name: str, scope: Any = USER, shapes: Any = ()) -> FunctionEvent:
        """Starts an event within the running event.

        Args:
            name: name of the event.
            scope: scope of the event.
            shapes: shapes of the inputs.
        """
        running = _running()
        event = FunctionEvent(name, scope, threading.get_native_id(), len(self._found))
        event.input_shapes, event.module = list(shapes), self.module
        if self.with_stack and scope != BACKWARD:
            event.stack = _stack()
        if running:
            event.cpu_parent = running[-1]
            running[-1].cpu_children.append(event)
        running.append(event)
        self._found.append(event)
        event.start = _now()
        return event

    def end(self, event: FunctionEvent) -> None:
        """Ends an event, and inner events that an exception has left open.

        Args:
            event: result of `begin`.
        """
        running = _running()
        if event in running:
            for ended in running[running.index(event) :]:
                ended.end = ended.end or _now()
            del running[running.index(event) :]

    def run(self, op, inputs, fused, attrs):
        """Run an op as an event that includes the ops it calls."""
        token = set_mode(get_mode().replace(profile=None))
        if not self.active:
            try:
                return op.dispatch(*inputs, fused=fused, **attrs)
            finally:
                reset_mode(token)
        for x in inputs if self.profile_memory else ():
            if _raw(x) is not None:
                self.hold(_raw(x), "PARAMETER" if type(getattr(x, "_mt_edge", None)) is Leaf else "INPUT", None)
        shapes = [list(getattr(x, "shape", ())) for x in inputs] if self.record_shapes else ()
        event = self.begin(op.name, FORWARD, shapes)
        try:
            result = op.dispatch(*inputs, fused=fused, **attrs)
            event.end = _now()
            if self.with_flops:
                event.flops = count_flops(op, inputs, result, attrs)
            for out in result if isinstance(result, (tuple, list)) else (result,):
                self._made(event, out)
            return result
        finally:
            self.end(event)
            reset_mode(token)

    def _made(self, event, out):
        """Record a result: its node, for backward, and its memory."""
        edge = getattr(out, "_mt_edge", None)
        if edge is not None:
            node = edge.node if type(edge) is OutputEdge else edge
            if node not in self._nodes:  # otherwise it is the node of an unchanged input
                event.sequence_nr = event.id
                self._nodes[node] = event
        if self.profile_memory and _raw(out) is not None:
            self.hold(_raw(out), "TEMPORARY" if edge is None else "ACTIVATION", event)

    def walk(self, *options: Any) -> Walk:
        """Returns the walk for backward."""
        return _MeasuredWalk(self, *options)

    def hold(self, array: Any, category: str, event: FunctionEvent | None, sure: bool = False) -> None:
        """Records a raw array's memory until it is freed, if it is unknown.

        Args:
            category: a category of profiler.memory.
            event: event that allocated the memory; None for earlier memory.
            sure: change the category of known memory.
        """
        owner = memory_owner(array)
        block = self._held.get(id(owner))
        if block is not None:
            block.category = category if sure else block.category
            return
        size = getattr(owner, "nbytes", None)
        size = getattr(owner, "size", None) if size is None else size  # CuPy's memory stores its bytes as size
        if isinstance(size, int):
            block = Block(
                size, category, "cpu" if isinstance(array, ndarray) else "cuda", None if event is None else _now()
            )
            try:
                block.owner = weakref.ref(owner, functools.partial(self._freed, id(owner)))
            except TypeError:  # bytes or a mapped file
                return
            self._held[id(owner)] = block
            self._blocks.append(block)
            _count(block, block.size, event)

    def _freed(self, key, _):
        block = self._held.pop(key, None)
        if block is not None and self.active:
            block.end = _now()
            running = _running()
            _count(block, -block.size, running[-1] if running else None)

    # -- results -----------------------------------------------------------------------------------------------

    def events(self) -> EventList:
        """Returns all events in order of their start."""
        return self._found

    @property
    def function_events(self) -> EventList:
        """All events in order of their start."""
        return self._found

    @property
    def self_cpu_time_total(self) -> float:
        """The total time in microseconds."""
        return self._found.self_cpu_time_total

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False, *,
        group_by_module: bool = False,
    ) -> EventList:  # fmt: skip
        """Returns the averages of the events.

        Args:
            group_by_stack_n: group by this number of stack lines.
            group_by_overload_name: ignored.
        """
        return self._found.key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name, group_by_module=group_by_module
        )

    def total_average(self) -> Any:
        """Returns one average over all events."""
        return self._found.total_average()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """Returns the averages as text.

        Args:
            sort_by: field to sort by.
            row_limit: maximum number of rows; -1 for all.
            **options: options of `EventList.table`.
        """
        return self.key_averages().table(sort_by, row_limit, **options)

    def export_chrome_trace(self, path: str | os.PathLike) -> None:
        """Writes the events as JSON for chrome://tracing and ui.perfetto.dev, gzipped if the name ends in ".gz".

        Args:
            path: path of the file.
        """
        memory, total = [], 0
        for when, change in sorted((t, c) for b in self._blocks for t, c in ((b.start, b.size), (b.end, -b.size)) if t):
            total += change
            memory.append((when, change, total))
        options = {name: int(getattr(self, name)) for name in ("record_shapes", "profile_memory", "with_stack")}
        self._found.export_chrome_trace(path, memory, {**options, **getattr(self, "_metadata", {})})

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes the stacks with a number for each; see EventList.export_stacks.

        Args:
            path: path of the file.
            metric: "self_cpu_time_total" or "self_cuda_time_total".

        Raises:
            ValueError: for another metric, or without with_stack.
        """
        if not self.with_stack:
            raise ValueError("export_stacks: no stacks were recorded. Use profile(with_stack=True).")
        self._found.export_stacks(path, metric)


class Block:
    """A block of memory: its size in bytes, category, device, and start and end time (None: outside the profile)."""

    end: float | None = None
    owner: Any = None

    def __init__(self, size, category, device, start):
        self.size, self.category, self.device, self.start = size, category, device, start


class _MeasuredWalk(Walk):
    """A walk of backward whose nodes are events."""

    def __init__(self, profile, *options):
        super().__init__(*options)
        self.profile = profile

    def visit_node(self, node, g):
        profile = self.profile
        if g is None or not profile.active:
            return super().visit_node(node, g)
        shapes = [list(x.shape) for x in (g if type(g) is list else [g]) if x is not None]
        event = profile.begin(node.name(), BACKWARD, shapes if profile.record_shapes else ())
        event.forward = forward = profile._nodes.get(node)
        if forward is not None:
            event.sequence_nr, event.stack, event.module = forward.sequence_nr, forward.stack, forward.module
        vjp = node.plan.vjp
        if vjp is not None and vjp is not (node.op.reference.vjp and node.op.reference.vjp.function):
            event.fused[_short(vjp.__module__)] += 1
        try:
            super().visit_node(node, g)
            event.end = _now()
            if profile.profile_memory and self.arithmetic is raw:
                for parent in node.parents:
                    if self.grads.get(parent) is not None and type(self.grads[parent]) is not list:
                        profile.hold(self.grads[parent], "AUTOGRAD_DETAIL", event)
        finally:
            profile.end(event)

    def visit_leaf(self, leaf, g):
        profile = self.profile
        if not profile.active:
            return super().visit_leaf(leaf, g)
        event = profile.begin(leaf.name(), BACKWARD, [list(g.shape)] if profile.record_shapes else ())
        try:
            super().visit_leaf(leaf, g)
            event.end = _now()
            if profile.profile_memory and _raw(leaf.grad) is not None:
                profile.hold(_raw(leaf.grad), "GRADIENT", event, sure=True)
        finally:
            profile.end(event)


class _Noted:
    """A replacement of `Kernels.find` while a profile is active, which records the choice in the running event."""

    plain = Kernels.find
    count, lock = 0, threading.Lock()

    @classmethod
    def begin(cls):
        """Count one more active profile."""
        with cls.lock:
            cls.count += 1
            Kernels.find = cls.find

    @classmethod
    def end(cls):
        """Count one less active profile."""
        with cls.lock:
            cls.count -= 1
            Kernels.find = Kernels.find if cls.count else cls.plain

    def find(self, device, fused, arrays, options):
        module = _Noted.plain(self, device, fused, arrays, options)
        if _running():
            why = (
                f"no: {self.why_not(device, fused, arrays, options)}"
                if module is None
                else _short(self.of[device].path)
            )
            _running()[-1].fused[why] += 1
        return module


def _short(path):
    return path.removeprefix("mytorch.kernels.")


def _count(block, change, event):
    if event is not None:
        field = "self_cpu_memory_usage" if block.device == "cpu" else "self_device_memory_usage"
        setattr(event, field, getattr(event, field) + change)


def _raw(x):
    """Return the raw array of a Tensor or an Array, otherwise None."""
    return getattr(getattr(x, "_mt_data", x), "_array", None)


def _now():
    return time.perf_counter() * 1e6


_INSIDE = tuple(
    os.path.join(PACKAGE, x)
    for x in "arrays autograd func.py kernels nn/module.py ops optim/optimizer.py profiler".split()
)


def _stack():
    """Return the source lines of an op's call, innermost first, without this library's internals."""
    return [f"{_near(file)}({line}): {name}" for file, line, name, _ in stack() if not file.startswith(_INSIDE)]


@functools.cache
def _near(path):
    """Return a file name relative to its folder in Python's search path."""
    folders = [folder + os.sep for folder in sys.path if folder and path.startswith(folder + os.sep)]
    return path[len(max(folders, key=len, default="")) :]


class record_function:
    """A named range: within a `profile`, the block (or decorated function) is an event with this name.

    Args:
        name: name of the event.
        args: accepted for compatibility.
    """

    def __init__(self, name: str, args: str | None = None):
        self.name = name

    def __enter__(self):
        self._profile = get_mode().profile
        begin = getattr(self._profile, "begin", None)
        self._event = begin(self.name) if begin is not None and self._profile.active else None
        return self

    def __exit__(self, *exc):
        if self._event is not None:
            self._profile.end(self._event)

    def __call__(self, function):
        @functools.wraps(function)
        def measured(*args, **kwargs):
            with record_function(self.name):
                return function(*args, **kwargs)

        return measured


__all__ = ["profile", "record_function"]
