"""Compiled functions on a GPU: traces of CuPy arrays, and their replay.

A `GpuTape` records the operations on CuPy arrays as a `Tape` does on NumPy arrays. A `GpuInstance` replays a program: each step calls
its function again, and CuPy's memory pool provides the memory of the results. Consecutive elementwise steps become one Triton
kernel, also with sums and maxima of rows (`groups.py`). The updates of optimizers run as usual.

Replays can be captured into a CUDA graph, for example by `compile_step`.
"""

import functools
import types
from collections import Counter

import numpy as np

from .. import backend
from ..backend import cupy_ns, devices
from ..backend.namespaces import Namespace
from ..backend.others import BY_ARRAY
from ..base.config import temporarily
from ..dispatch.overlap import overlaps_itself
from ..dispatch.record import RECORDS
from . import groups
from .arrays import (
    _SHAPED_BY_ELEMENTS,
    _STATIC,
    DrawNumber,
    Ref,
    Step,
    Tape,
    TracedArray,
    TraceNamespace,
    Untraceable,
    _recorded,
    current_tape,
    mapped,
    owner,
)
from .program import is_dense, layout_bytes
from .replay import Different, Instance, _host_call
from .tracing import _TraceKernel

KIND = "trace:cuda"  # of the namespace of traces, for which kernels are registered
_PLAIN = frozenset("cuda using_allocator get_default_memory_pool".split())  # not operations on arrays


@functools.cache
def named(name, function):
    """Returns a function with NumPy's name."""

    def call(*args, **kwargs):
        return function(*args, **kwargs)

    call.__name__ = name
    call.in_groups = True  # see groups.py
    return call


@functools.cache
def _method(name):
    def call(array, *args, **kwargs):
        return getattr(array, name)(*args, **kwargs)

    call.__name__ = name
    call.in_groups = True
    return call


class GpuTape(Tape):
    """A list of operations on the arrays of the current GPU."""

    kind, records_updates = "cuda", False

    def __init__(self, where=lambda: None):
        super().__init__(where)
        self.library = cupy_ns()
        self.device = backend.as_device("cuda")
        register()
        namespace().device = self.device
        self.static, self.shaped = (
            {named(f.__name__, getattr(self.library, f.__name__)) for f in functions if hasattr(self.library, f.__name__)}
            for functions in (_STATIC, _SHAPED_BY_ELEMENTS)
        )  # fmt: skip

    def accepts(self, raw):
        return self.is_array(raw) and raw.device.id == self.device.index

    def is_array(self, x):
        return isinstance(x, self.library.ndarray)

    def function(self, name):
        return named(name, getattr(self.library, name))

    @staticmethod
    def method(array, name):
        getattr(array, name)  # raises AttributeError
        return _method(name)

    @staticmethod
    def copy_if_writable(array):
        return None if overlaps_itself(array) else array.copy()

    @staticmethod
    def overlap(a, b):
        return np.shares_memory(_Place(a), _Place(b))

    def replaced(self):
        return temporarily(devices, cupy_ns=namespace)

    def _wrap(self, result, arrays, written):
        if not isinstance(result, (tuple, list)):
            return super()._wrap(result, arrays, written)
        known, items = list(arrays), []  # results may be in one array, such as the gradients of q, k and v
        for item in result:
            items.append(self._wrap(item, known, written))
            known += [items[-1]] if isinstance(items[-1], TracedArray) else []
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)

    def subsequence(self, draw):
        """Records the draw of a `DropoutSeed`.

        Args:
            draw: the method `next_subsequence` of a generator.

        Returns:
            The state of the generator as a TracedGpuArray, and a `DrawNumber`.
        """
        state, call = draw()
        traced, number = self._add(state, self._new_storage(), False), DrawNumber(call)
        self.steps.append(Step(draw, (), {}, (Ref(traced.index), number), (), "draw", self.where()))
        return traced, number


class _Place:
    """The addresses of an array for `np.shares_memory`, which does not read memory."""

    def __init__(self, array):
        self.__array_interface__ = {
            "data": (array.data.ptr, False),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"|V{array.itemsize}",
            "version": 3,
        }


class TracedGpuArray(TracedArray):
    """A CuPy array that records the operations on it."""

    __slots__ = ()

    device = property(lambda self: self.value.device)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if method != "__call__":
            raise Untraceable(f"{ufunc.__name__}.{method} is called on an array of CuPy")
        return self.tape.call(self.tape.function(ufunc.__name__), inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return self.tape.call(self.tape.function(function.__name__), args, kwargs)

    def __pow__(self, other):
        return self.tape.call(self.tape.function("power"), (self, other))


GpuTape.traced = TracedGpuArray


class GpuTraceNamespace(TraceNamespace):
    """The namespace of TracedGpuArrays: functions of CuPy's namespace that record their calls."""

    kind = KIND
    half_in_float32 = False

    def __getattr__(self, name):
        value = getattr(self.module, name)
        if name in _PLAIN or isinstance(value, type):
            return value
        if callable(value):
            value = _recorded(named(name, value))
        elif isinstance(value, (types.ModuleType, types.SimpleNamespace, Namespace)):
            value = GpuTraceNamespace(value)
        self.__dict__[name] = value
        return value

    def address(self, array):
        return array.value.data.ptr

    def on_numpy(self, function, *arrays):
        call = functools.partial(self.module.on_numpy, function)
        tape = current_tape()
        return call(*arrays) if tape is None else tape.call(call, arrays)


@functools.cache
def namespace():
    """Returns the namespace of TracedGpuArrays."""
    found = BY_ARRAY[TracedGpuArray] = GpuTraceNamespace(cupy_ns())
    return found


@functools.cache
def register():
    """Registers the GPU kernels of all ops for TracedGpuArrays."""
    for op in list(RECORDS.values()):
        if "cuda" in op.fused_on:
            op.kernels.of[KIND] = _TraceKernel(op, op.kernels.of["cuda"])
            op.fused_on = frozenset({*op.fused_on, KIND})


def copy_of(array, value=None):
    """Returns a copy of an array with the strides of a value (default: of the array)."""
    value = array if value is None else value
    if 0 not in value.shape and is_dense(value):
        copy = groups.allocate(value)
    else:  # gaps, or elements that share memory
        xp, size = cupy_ns(), value.dtype.itemsize
        first = sum((1 - n) * s for n, s in zip(value.shape, value.strides, strict=True) if s < 0)
        memory = xp.empty(layout_bytes(value) // size, value.dtype)[first // size :]
        copy = xp.lib.stride_tricks.as_strided(memory, value.shape, value.strides)
    copy[...] = array
    return copy


def _same_layout(array, value):
    """Returns True if the strides of the axes with more than one element are equal."""
    return not array.size or all(
        n == 1 or a == b for n, a, b in zip(array.shape, array.strides, value.strides, strict=True)
    )


# -- replay -----------------------------------------------------------------------------------------------------------


class GpuInstance:
    """A program with the arrays of one call; see `Instance`.

    Attributes:
        arrays: {number of a value: array}, from the start of the call to the last use of the array.
    """

    grads = None  # gradients are never kept in the memory of an instance

    def __init__(self, program):
        self.program = program
        if program.calls is None:
            program.calls = _calls(program)
        self.arrays = {}
        self.written = written = {s for step in program.steps for s in step.writes}
        if any(array is None and program.values[i].storage in written for i, array, _ in program.captured):
            raise Untraceable("a constant is changed in place")

    def run_forward(self, given):
        """Runs the forward part on raw arrays as arguments."""
        program = self.program
        self.arrays = {index: raw for index, _, raw in program.captured}
        self.arrays.update(zip(program.inputs, given, strict=True))
        for call in program.calls[0]:
            call(self.arrays)

    def store_input(self, k, raw):
        """Does nothing, because the program changed the argument itself."""

    def result(self, index):
        """Returns the array of a result of the forward part, which nothing else uses."""
        return self._alone(index, self.program.read_in_backward)

    def _alone(self, index, used):
        """Returns an array, copied if its storage is in `used`, or belongs to the caller or to several results."""
        program, array = self.program, self.arrays[index]
        storage = program.values[index].storage
        shared = storage in used or storage in program.outside or program.result_counts[storage] > 1
        return copy_of(array) if shared else array

    def release(self):
        """Frees the arrays of the call."""
        self.arrays = {}

    def run_backward(self, upstream, keep_graph):
        """Runs the backward part. Returns the gradients.

        Args:
            upstream: gradients of the outputs; None for outputs without a gradient.
            keep_graph: True if backward may run again.
        """
        program, values = self.program, self.program.values
        forward = arrays = self.arrays
        before = []
        if keep_graph:  # memory of the forward part that backward changes
            changed = {s for step in program.steps[program.forward :] for s in step.writes} - program.outside
            roots = {id(root): root for i, x in arrays.items() if values[i].storage in changed for root in (owner(x),)}
            before = [(root, root.copy()) for root in roots.values()]
            self.arrays = arrays = dict(arrays)
        for index, g in zip(program.upstream, upstream, strict=True):
            value = values[index]
            if g is None:
                arrays[index] = groups.allocate(value)
                arrays[index].fill(0)
            elif g.strides != value.strides or value.storage in self.written:
                arrays[index] = groups.allocate(value)
                arrays[index][...] = g
            else:
                arrays[index] = g
        if any(g is None for g in upstream):
            undefined = {index for index, g in zip(program.upstream, upstream, strict=True) if g is None}
            self.run_backward_without(undefined)
        else:
            for call in program.calls[1]:
                call(arrays)
        found = [self._alone(i, program.alive_at_backward) for i in program.gradients]
        self.arrays = forward
        for root, copy in before:
            root[...] = copy
        return found

    def _lookup(self, x):
        return self.arrays[x.index] if type(x) is Ref else x

    def _run_loose(self, step):
        _StepCall(self.program, step)(self.arrays)

    def _touches_loose(self, step):
        return True

    def _set_to_zero(self, index):
        array = self.arrays.get(index)
        if array is None:
            self.arrays[index] = array = groups.allocate(self.program.values[index])
        array[...] = 0

    run_backward_without = Instance.run_backward_without


def _calls(program):
    """Returns the calls of the forward and of the backward part: functions of the arrays of an instance."""
    values, parts = program.values, []
    program.read_in_backward = {values[i].storage for step in program.steps[program.forward :] for i in step.refs()}
    in_forward = {values[i].storage for step in program.steps[: program.forward] for i in step.outs()}
    program.alive_at_backward = in_forward & program.read_in_backward
    results = [values[i].storage for i in program.results()]
    program.result_counts = Counter(results)
    program.ends = {}  # position of a step -> numbers of the values in storages with their last use there
    for i, value in enumerate(program.values):
        if value.storage in program.used():
            program.ends.setdefault(program.last_use(value.storage), []).append(i)
    fuses = groups.available()
    for start, end in ((0, program.forward), (program.forward, len(program.steps))):
        calls, group = [], groups.Group(program)
        for position in range(start, end):
            step = program.steps[position]
            if fuses and group.add(step, position):
                continue
            if program.is_view(step) and not group.makes(step.refs()):
                calls.append(_StepCall(program, step))
                group.before.append(position)
                continue
            calls += _group_calls(program, group)
            group = groups.Group(program)
            if not (fuses and group.add(step, position)):
                calls.append(_StepCall(program, step))
                calls += _drops(program, [position])
        parts.append(calls + _group_calls(program, group))
    return parts


def _group_calls(program, group):
    """Returns the calls of a group."""
    if not group.items:
        return _drops(program, group.before)
    call = group.call()
    end = max(group.positions)
    if call is None:
        calls = [_StepCall(program, program.steps[p]) for p in sorted(group.positions)]
    else:
        stored = set(call.arrays)
        calls = [call]
        for _, step, base, _ in group.views:
            if base in stored and program.last_use(program.values[base].storage) > end:
                calls.append(_StepCall(program, step))
                stored.add(step.results.index)
    return calls + _drops(program, [*group.positions, *group.before])


def _drops(program, positions):
    """Returns calls that free the arrays with the last use at one of the positions."""
    indices = [i for position in positions for i in program.ends.get(position, ())]
    return [functools.partial(_drop, indices)] if indices else []


def _drop(indices, arrays):
    for i in indices:
        arrays.pop(i, None)


class _StepCall:
    """The call of a step."""

    def __init__(self, program, step):
        self.step, self.values = step, program.values

    def __call__(self, arrays):
        step = self.step

        def lower(x):
            return arrays[x.index] if type(x) is Ref else arrays[x] if type(x) is DrawNumber else x

        if step.kind == "host":
            _host_call(step, [arrays[r.index] for r in step.args])()
            return
        args, kwargs = mapped(step.args, lower), mapped(step.kwargs, lower)
        if step.kind == "check":
            if bool(args[0]) is not kwargs["expected"]:
                raise Different
            return
        self._store(arrays, step.results, step.function(*args, **kwargs))

    def _store(self, arrays, results, found):
        if results is None or found is None:
            return
        if isinstance(results, Ref):
            value = self.values[results.index]
            if found.shape != value.shape:
                raise Untraceable(
                    f"the shape of a result of {self.step.name} changed from {value.shape} to {found.shape}"
                )
            if found.strides != value.strides and not _same_layout(found, value):
                if value.is_view:
                    raise Untraceable(f"{self.step.name} has another layout than in the trace")
                found = copy_of(found, value)
            arrays[results.index] = found
            return
        if type(results) is DrawNumber:
            arrays[results] = found
            return
        for inner, item in zip(results, found, strict=True):
            if inner is not None:
                self._store(arrays, inner, item)
