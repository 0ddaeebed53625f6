"""Runs of programs on the CPU.

A run works on a list with one slot for each value. The inputs come first. Constants, and small results in one block of memory, are
in their slots from the beginning. Each call of the program fills further slots: machine code (`native.py`) writes to arrays that
exist, and functions of NumPy and kernels return new arrays. Large arrays are freed after their last use.
"""

import functools

import numpy as np

from ..arrays.namespaces import numpy_ns
from . import native
from .arrays import (
    HostNumber,
    Ref,
    Untraceable,
    copy_of,
    empty_like,
    layout_bytes,
    mapped,
    numbers_in,
    owner,
    placed,
    refs_in,
)
from .program import is_dense, plan_memory

ndarray = np.ndarray
_EMPTY = {np.empty, np.empty_like}
SMALL = 1 << 15  # bytes; smaller results have a fixed position in the block of memory of an instance


class Instance:
    """A program with memory for one run at a time.

    Attributes:
        template: the slots at the start of a run.
        calls: functions that receive the slots.
    """

    def __init__(self, program):
        self.program = program
        self.numbers = {}  # (number, dtype) -> (slot, the 0-d array that contains it)
        self.example = {}  # number of a value -> an array with its layout, for the generation of code
        values, kept = program.values, {program.values[i].storage for i in program.results}
        self.hidden = {  # values in the memory of another value, at an unknown place
            i for step in program.steps if not program.is_view(step) for i in step.outs()
            if values[i].is_view and i not in step.refs()
        }  # fmt: skip
        descriptions = self._described({})
        fixed = {
            values[step.results.index].storage
            for step, description in zip(program.steps, descriptions, strict=True)
            if (description is not None or _writes_to(step.function) or step.function in _EMPTY)
            and isinstance(step.results, Ref)
            and not step.writes
        }
        fixed = {
            s for s in fixed & program.own.keys() - kept if layout_bytes(values[program.own[s]]) < SMALL
        }  # fmt: skip
        positions, size = plan_memory(program, fixed)
        block = np.empty(size + 64, np.uint8)
        start = -block.__array_interface__["data"][0] % 64
        self.block = block[start : start + size]
        arrays = {s: placed(self.block, offset, values[program.own[s]]) for s, offset in positions.items()}
        self.example.clear()
        descriptions = self._described(arrays)
        self.template = [None] * len(values)
        for index, raw in program.constants.items():
            self.template[index] = raw
        self.fixed = {i for i, value in enumerate(values) if value.storage in positions and i not in self.hidden}
        for index in self.fixed & self.example.keys():
            self.template[index] = self.example[index]
        self.template.append(self.block)
        self.template += [array for _, array in self.numbers.values()]
        for slot, key in enumerate(self.numbers, len(values) + 1):
            self.numbers[key] = slot, self.numbers[key][1]
        self.plain = len(self.template)  # slots of the numbers as Python objects, for kernels
        self.template += [None] * len(program.numbers)
        self.made = {*program.inputs, *program.constants, *self.fixed}
        self.views = {step.results.index: step for step in program.steps if program.is_view(step)}
        self.module, self.calls = native.Module(), []
        self._build(descriptions)
        if self.module.runs:
            functions = self.module.build()
            self.calls = [call.bound(functions) if type(call) is _NativeCall else call for call in self.calls]
        self.copied = [self._is_shared(i) for i in program.results]
        del self.module, self.example, self.made, self.views, self.hidden

    def run(self, inputs, found=()):
        """Runs the program. Returns the results, which nothing else refers to.

        Args:
            inputs: raw arrays, a list that is empty afterward.
            found: the numbers of the run, see `updates.py`.
        """
        slots = self.template.copy()
        slots[: len(inputs)] = inputs
        inputs.clear()
        if found:
            slots[self.plain :] = found
            for (index, _), (_, array) in self.numbers.items():
                array.fill(found[index])
        for call in self.calls:
            call(slots)
        return [
            copy_of(slots[i]) if copied else slots[i]
            for i, copied in zip(self.program.results, self.copied, strict=True)
        ]

    def _is_shared(self, index):
        program, storage = self.program, self.program.values[index].storage
        same = sum(program.values[i].storage == storage for i in program.results)
        return same > 1 or program.values[index].is_view or storage in program.outside

    # -- examples

    def _described(self, fixed):
        """Returns the description of each step for `native.py`, or None. Fills `example`."""
        program, example, found = self.program, self.example, []
        for index in program.inputs:
            example[index] = empty_like(program.values[index])
        example.update(program.constants)
        for step in program.steps:
            args, kwargs = mapped(step.args, self._example_of(step)), mapped(step.kwargs, self._example_of(step))
            if program.is_view(step):
                example[step.results.index] = np.asarray(step.function(*args, **kwargs))
                found.append(None)
                continue
            for index in step.outs():
                value = program.values[index]
                if index not in example:
                    own = fixed.get(value.storage)
                    example[index] = own if own is not None and not value.is_view else empty_like(value)
            if self._dtype_of_numbers(step) is None and numbers_in((step.args, step.kwargs)):
                found.append(None)
                continue
            hidden = self.hidden.isdisjoint((*step.refs(), *step.outs()))
            single = isinstance(step.results, (Ref, type(None))) and hidden and native.available()
            out = None if step.writes or not single else example[step.results.index]
            found.append(native.described(step.function, args, kwargs, out) if single else None)
        return found

    def _dtype_of_numbers(self, step):
        """Returns the dtype of the 0-d arrays from which a ufunc of floats reads numbers; None if a step gets Python numbers."""
        if not isinstance(step.function, np.ufunc):
            return None
        dtypes = [self.program.values[i].dtype for i in step.refs()]
        return next((dtype for dtype in dtypes if dtype.kind in "fc"), None)

    def _example_of(self, step):
        dtype = self._dtype_of_numbers(step)

        def lower(x):
            if type(x) is Ref:
                return self.example[x.index]
            if type(x) is HostNumber and dtype is None:
                return 1
            if type(x) is HostNumber:
                return self.numbers.setdefault((x.index, dtype), (None, np.zeros((), dtype)))[1]
            return x

        return lower

    # -- calls

    def _build(self, descriptions):
        program, run = self.program, []
        for position, (step, description) in enumerate(zip(program.steps, descriptions, strict=True)):
            if program.is_view(step) or step.function in _EMPTY:
                continue  # created when another step needs it
            if description is not None:
                description.storage = step.storage(program.values)
                run.append((position, description))
                continue
            self._finish(run)
            for index in step.refs():
                self._need(index)
            self.calls.append(self._python_call(step))
            self.made.update(step.outs())
            self._drop_after([position])
        self._finish(run)
        for index in program.results:
            self._need(index)

    def _need(self, index):
        """Adds the calls that create a view."""
        if index in self.made:
            return
        self.made.add(index)
        if index not in self.views:
            self.calls.append(functools.partial(_allocate, index, _allocation(self.program.values[index])))
            return
        step = self.views[index]
        for base in step.refs():
            self._need(base)
        self.calls.append(self._python_call(step))

    def _finish(self, run):
        """Adds the call of the machine code of some steps."""
        if not run:
            return
        program, new = self.program, []
        for position, _ in run:
            step = program.steps[position]
            for index in (*step.refs(), *step.outs()):
                storage = program.values[index].storage
                root = program.own.get(storage, index)
                if root not in self.made and storage not in program.outside:
                    new.append((root, _allocation(program.values[root])))
                    self.made.add(root)
        name = self.module.add(native.Run(run, _Slots(self), program.last_use.get, self.module))
        self.calls.append(_NativeCall(name, new))
        self._drop_after([position for position, _ in run])
        run.clear()

    def _drop_after(self, positions):
        """Adds a call that frees large arrays after their last use."""
        program = self.program
        indices = [i for position in positions for i in program.ends.get(position, ())]
        indices = [i for i in indices if i not in self.fixed and i not in program.constants]
        if any(layout_bytes(program.values[i]) >= SMALL for i in indices):
            self.calls.append(functools.partial(_drop, indices))

    def _python_call(self, step):
        program = self.program
        dtype = self._dtype_of_numbers(step)

        def lower(x):
            if type(x) is HostNumber and dtype is None:
                return Ref(self.plain + x.index)
            return Ref(self.numbers[x.index, dtype][0]) if type(x) is HostNumber else x

        args, kwargs = list(mapped(step.args, lower)), mapped(step.kwargs, lower)
        function, results = step.function, step.results
        if isinstance(results, Ref) and not step.writes and results.index not in step.refs():
            if results.index in self.fixed and not program.is_view(step):
                if not _writes_to(function):
                    function = functools.partial(_copied, self.template[results.index], function)
                elif function is numpy_ns.matmul:
                    args = [*args[:2], results]
                else:
                    kwargs = {**kwargs, "out": results}
        refs = [(k, x.index) for k, x in enumerate(args) if type(x) is Ref]
        nested = any(type(x) in (tuple, list, slice, dict) and refs_in(x) for x in args)
        if nested or refs_in(kwargs):
            get = functools.partial(_looked_up, args, kwargs)
        else:
            get = functools.partial(_arguments, args, refs, kwargs)
        if results is None:
            return functools.partial(_call, function, get)
        if isinstance(results, Ref):
            value = program.values[results.index]
            return functools.partial(_call_and_store, function, get, results.index, value, value.strides)
        return functools.partial(_call_and_store_all, function, get, results, program.values)


def _arguments(args, refs, kwargs, slots):
    args = args.copy()
    for k, index in refs:
        args[k] = slots[index]
    return args, kwargs


def _looked_up(args, kwargs, slots):
    def lower(x):
        return slots[x.index] if type(x) is Ref else x

    return mapped(args, lower), mapped(kwargs, lower)


def _call(function, get, slots):
    args, kwargs = get(slots)
    function(*args, **kwargs)


def _call_and_store(function, get, index, value, strides, slots):
    args, kwargs = get(slots)
    found = function(*args, **kwargs)
    if type(found) is not ndarray or found.strides != strides:
        found = _laid_out(found, value, function)
    slots[index] = found


def _call_and_store_all(function, get, results, values, slots):
    args, kwargs = get(slots)
    _store(results, function(*args, **kwargs), values, slots, function)


def _store(results, found, values, slots, function):
    if isinstance(results, Ref):
        slots[results.index] = _laid_out(found, values[results.index], function)
        return
    for inner, item in zip(results or (), found or (), strict=True):
        if inner is not None:
            _store(inner, item, values, slots, function)


def _laid_out(found, value, function):
    """Returns a result with the layout that it had in the trace."""
    found = np.asarray(found)
    if found.shape != value.shape or found.dtype != value.dtype:
        raise Untraceable(f"a result of {getattr(function, '__name__', function)} has another shape or dtype")
    if found.strides == value.strides or not found.size:
        return found
    if all(n == 1 or a == b for n, a, b in zip(found.shape, found.strides, value.strides, strict=True)):
        return np.lib.stride_tricks.as_strided(found, value.shape, value.strides)
    result = empty_like(value)
    np.copyto(result, found)
    return result


def _allocate(index, allocate, slots):
    slots[index] = allocate()


def _drop(indices, slots):
    for i in indices:
        slots[i] = None


def _allocation(value):
    """Returns a function that allocates an array with the layout of a value."""
    if is_dense(value) and all(a >= b for a, b in zip(value.strides, value.strides[1:], strict=False)):
        return functools.partial(np.empty, value.shape, value.dtype)
    if is_dense(value) and len(value.shape) == 2:
        return functools.partial(np.empty, value.shape, value.dtype, "F")
    return functools.partial(empty_like, value)


def _writes_to(function):
    """Returns True if a function can write its result to an array that exists."""
    return (isinstance(function, np.ufunc) and function.nout == 1) or function is numpy_ns.matmul


def _copied(target, function, *args, **kwargs):
    np.copyto(target, function(*args, **kwargs))
    return target


class _NativeCall:
    """A call of a function that is not compiled yet."""

    def __init__(self, name, new):
        self.name, self.new = name, new

    def bound(self, functions):
        """Returns the call, after the compilation."""
        if self.new:
            return functools.partial(_run_native, functions[self.name], self.new)
        function = functions[self.name]
        return lambda slots: function(id(slots))


def _run_native(function, new, slots):
    for index, allocate in new:
        slots[index] = allocate()
    function(id(slots))


class _Slots:
    """The places of arrays for a function: (number of a slot, offset in bytes)."""

    def __init__(self, instance):
        self.block = instance.block
        program, values = instance.program, instance.program.values
        self.owners = {id(owner(self.block)): (len(values), instance.block)}
        for index, array in instance.example.items():
            root = program.own.get(values[index].storage, index)
            if id(owner(array)) not in self.owners and not (values[index].is_view and root != index):
                self.owners[id(owner(array))] = index, array
        for slot, array in instance.numbers.values():
            self.owners[id(array)] = slot, array

    def __call__(self, array):
        slot, first = self.owners[id(owner(array))]
        return slot, array.__array_interface__["data"][0] - first.__array_interface__["data"][0]
