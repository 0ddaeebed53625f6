"""Backward passes of compiled functions on a GPU: tapes of CuPy arrays, and their runs.

A `GpuTape` records the operations on CuPy arrays as a `Tape` does on NumPy arrays. A `GpuInstance` runs a program: each step calls
its function again, and CuPy's memory pool provides the memory of the results. Consecutive elementwise steps become one Triton
kernel, also with sums and maxima of rows (`groups.py`). The updates of optimizers run as usual.

Runs can be captured into a CUDA graph, for example by `compile_step`.
"""

import functools
import types
from collections import Counter

from .. import arrays as backend
from ..arrays import cupy_ns
from ..arrays.namespaces import Namespace
from ..arrays.others import BY_ARRAY
from ..ops.dispatch.overlap import overlaps_itself
from . import groups
from .arrays import (
    _SHAPED_BY_ELEMENTS,
    _STATIC,
    HostNumber,
    Ref,
    Tape,
    TracedArray,
    TraceNamespace,
    Untraceable,
    _recorded,
    current_tape,
    layout_bytes,
    mapped,
)
from .program import is_dense

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

    def __init__(self):
        super().__init__()
        self.library, self.namespace = cupy_ns(), namespace()
        self.device = self.namespace.device = backend.as_device("cuda")
        self.static, self.shaped = (
            {named(f.__name__, getattr(self.library, f.__name__)) for f in functions if hasattr(self.library, f.__name__)}
            for functions in (_STATIC, _SHAPED_BY_ELEMENTS)
        )  # fmt: skip

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
    def copy_of(array):
        return copy_of(array)


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

    kind = "trace:cuda"
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
    """A program on the GPU; see `Instance`."""

    def __init__(self, program):
        self.program = program
        self.calls, fuses, group = [], groups.available(), groups.Group(program)
        for position, step in enumerate(program.steps):
            if fuses and group.add(step, position):
                continue
            if program.is_view(step) and not group.makes(step.refs()):
                self.calls.append(_StepCall(program, step))
                group.before.append(position)
                continue
            self.calls += _group_calls(program, group)
            group = groups.Group(program)
            if not (fuses and group.add(step, position)):
                self.calls.append(_StepCall(program, step))
                self.calls += _drops(program, [position])
        self.calls += _group_calls(program, group)

    def run(self, inputs, found=()):
        """Runs the program. Returns the results, which nothing else refers to.

        Args:
            inputs: raw arrays, a list that is empty afterward.
            found: the numbers of the run, see `updates.py`.
        """
        program, values = self.program, self.program.values
        arrays = {**program.constants, **dict(zip(program.inputs, inputs, strict=True)), "numbers": found}
        inputs.clear()
        for call in self.calls:
            call(arrays)
        counts = Counter(values[i].storage for i in program.results)
        return [
            copy_of(arrays[i]) if values[i].storage in program.outside or counts[values[i].storage] > 1 else arrays[i]
            for i in program.results
        ]


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
            if base in stored and program.last_use[program.values[base].storage] > end:
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
            return arrays[x.index] if type(x) is Ref else arrays["numbers"][x.index] if type(x) is HostNumber else x

        args, kwargs = mapped(step.args, lower), mapped(step.kwargs, lower)
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
        for inner, item in zip(results, found, strict=True):
            if inner is not None:
                self._store(arrays, inner, item)
