"""Replay: a program bound to memory.

An `Instance` allocates the block of memory of a program and creates the arrays of all values in it. Views are created once,
since memory does not move. Each other step becomes a call without arguments, such as `partial(numpy.add, a, b, out)`.
"""

import functools
import operator
import sys

import numpy as np

from ..backend.namespaces import numpy_ns
from ..numerics import blocks
from . import native
from .arrays import HostNumber, Ref, Untraceable, mapped, owner
from .native import described
from .program import layout_bytes

ndarray = np.ndarray


def strided(buffer, offset, value):
    """Returns an array in a buffer, with the layout of a value. Its first element is at the offset."""
    return ndarray(value.shape, value.dtype, buffer, offset, value.strides)


def placed(buffer, offset, value):
    """Returns an array as `strided`, but its memory begins at the offset, also if strides are negative."""
    if 0 not in value.shape:
        offset -= sum((n - 1) * s for n, s in zip(value.shape, value.strides, strict=True) if s < 0)
    return strided(buffer, offset, value)


LOOSE = 1 << 15  # bytes from which results of kernels are used without a copy


class Instance:
    """A program with memory.

    Args:
        program: the program.

    Attributes:
        arrays: {number of a value: array}.
        forward, backward: the calls of both parts.
        grads, counts: gradients of the last call as Arrays, and the numbers of references to them; see `count`.
    """

    grads = counts = None

    def __init__(self, program):
        self.program = program
        values = program.values
        self.block = np.empty(program.size + 64, np.uint8)
        start = -self.block.__array_interface__["data"][0] % 64
        self.origin = self.block.__array_interface__["data"][0] + start
        self.arrays = arrays = {}
        self.tables = []
        self.numbers = {}  # (number, dtype) -> the 0-d array that contains it
        self.resets = []
        written = {s for step in program.steps for s in step.writes}
        constants = {}
        for index, array, raw in program.captured:
            if array is not None or values[index].storage not in written:
                arrays[index] = raw
                continue
            root = owner(raw)  # a constant that the program changes: each call starts with its first values
            if id(root) not in constants:
                constants[id(root)] = root.copy(), root
                self.resets.append(functools.partial(np.copyto, *constants[id(root)]))
            copy = constants[id(root)][0]
            offset = raw.__array_interface__["data"][0] - root.__array_interface__["data"][0]
            if copy.strides != root.strides:
                raise Untraceable("a constant with gaps in memory is changed")
            arrays[index] = raw if raw is root else strided(copy, offset, values[index])
            if raw is root:
                arrays[index] = copy
        for index in (*program.inputs, *program.upstream):
            arrays[index] = empty_like(values[index])
        self.positions = {s: start + offset for s, offset in program.positions.items()}
        self.forward, self.backward = [], []
        self.loose = {}  # arrays of loose storages during a run
        steps = program.steps
        if program.loose is None:
            fixed = dict(arrays)
            program.loose = {}
            program.loose = self._loose_storages([self._call(step) for step in steps])
            arrays.clear()
            arrays.update(fixed)
        calls = [self._call(step) for step in steps]  # (call, description) pairs, or None
        self.module = native.Module()
        for part, (start, end) in enumerate(((0, program.forward), (program.forward, len(steps)))):
            (self.backward if part else self.forward).extend(self._native(calls, start, end))
        if self.module.runs:
            functions = self.module.build()
            self.functions = functions
            program.native = {key: (functions[name], specs) for key, (name, specs) in program.native.items()}
        for part in (self.forward, self.backward):
            for position, call in enumerate(part):
                if type(call) is _NativeCall:
                    part[position] = call.bound(self)
        del self.module

    def _loose_storages(self, calls):
        """Returns {storage: number of its first value} for large results of kernels and other functions.

        These functions allocate their results. Copies to memory at fixed positions would take time, so the arrays are used
        themselves. Steps that read them look them up in each run.
        """
        program, found = self.program, {}
        named = [i for step in program.steps if step.kind in ("host", "check") for i in step.refs()]
        kept = {program.values[i].storage for i in (*program.results(), *named)}
        for step, call in zip(program.steps, calls, strict=True):
            if call is None or call[1] is not None or getattr(call[0], "func", None) not in (_copied, _several):
                continue
            for i in step.outs():
                value = program.values[i]
                if (
                    not value.is_view
                    and value.storage in program.own
                    and value.storage not in kept
                    and 0 not in value.strides
                ):
                    if layout_bytes(value) >= LOOSE:
                        found.setdefault(value.storage, i)
        return found

    def _touches_loose(self, step):
        loose, values = self.program.loose, self.program.values
        return bool(loose) and any(values[i].storage in loose for i in (*step.refs(), *step.outs()))

    def _lookup(self, x):
        if type(x) is Ref:
            loose = self.program.values[x.index].storage in self.program.loose
            return self.loose[x.index] if loose else self.arrays[x.index]
        return x

    def _run_loose(self, step):
        """Runs a step with the current arrays of loose storages."""
        args, kwargs = mapped(step.args, self._lookup), mapped(step.kwargs, self._lookup)
        values, loose = self.program.values, self.program.loose
        outs = step.outs()
        if len(outs) == 1 and isinstance(step.results, Ref) and values[outs[0]].storage not in loose:
            call = _into(step.function, args, kwargs, self.arrays[outs[0]]) if not step.writes else None
            call = call or functools.partial(step.function, *args, **kwargs)
            call()
        else:
            self._keep(step.results, step.function(*args, **kwargs))

    def run_forward(self, given):
        """Runs the forward part on raw arrays as arguments."""
        program = self.program
        for index, raw in zip(program.inputs, given, strict=True):
            np.copyto(self.arrays[index], raw)
        if program.numbers or program.counters:
            self.update_numbers()
        for call in self.resets:
            call()
        for call in self.forward:
            call()

    def store_input(self, k, raw):
        """Copies an argument that the program changed back to the array of the caller."""
        np.copyto(raw, self.arrays[self.program.inputs[k]])

    def result(self, index):
        """Returns a copy of a result."""
        return copy_of(self.arrays[index])

    def release(self):
        """Ends a call. The memory is kept for the next one."""

    def run_backward(self, upstream, keep_graph):
        """Runs the backward part. Returns the gradients.

        Args:
            upstream: gradients of the outputs; None for outputs without a gradient.
            keep_graph: True if backward may run again; backward reuses the memory of the forward part.
        """
        program, arrays = self.program, self.arrays
        before = (self.block.copy(), {i: copy_of(array) for i, array in self.loose.items()}) if keep_graph else None
        for index, g in zip(program.upstream, upstream, strict=True):
            if g is None:
                arrays[index][...] = 0
            else:
                np.copyto(arrays[index], g)
        if any(g is None for g in upstream):
            self.run_backward_without({i for i, g in zip(program.upstream, upstream, strict=True) if g is None})
        else:
            for call in self.backward:
                call()
        found = [arrays[i].copy() for i in program.gradients]
        if before is not None:
            self.block[...] = before[0]
            self.loose.update(before[1])
        return found

    def run_backward_without(self, undefined):
        """Runs the backward part, step by step, if some outputs have no gradient.

        Values that depend on no other gradient are set to zero. They are not computed, because the product of a zero
        gradient and an infinite derivative is NaN. An eager backward pass does not visit these operations.

        Args:
            undefined: numbers of the values of the missing gradients.
        """
        program, values = self.program, self.program.values
        zero = {values[i].storage for i in undefined}
        live = {values[i].storage for i in program.upstream} - zero
        for step in program.steps[program.forward :]:
            read = {values[i].storage for i in step.refs()}
            written = {*step.writes, *(values[i].storage for i in step.outs())}
            is_zero = not zero.isdisjoint(read) and live.isdisjoint(read)
            # A result in memory that existed before, without earlier contents of this step, is also set to zero.
            replaced = not step.writes or ("out" in step.kwargs and zero.isdisjoint(written))
            if program.is_view(step):
                if self._touches_loose(step):
                    self._run_loose(step)
            elif is_zero and replaced:
                for i in step.outs():
                    self._set_to_zero(i)
            else:
                self._run_loose(step)
            if is_zero:
                zero |= written
            elif not live.isdisjoint(read):
                zero -= written
                live |= written

    def _set_to_zero(self, index):
        if self.program.values[index].storage in self.program.loose:
            self.loose[index] = empty_like(self.program.values[index])
        self._lookup(Ref(index))[...] = 0

    def _keep(self, results, found):
        if results is None or found is None:
            return
        if isinstance(results, Ref):
            value = self.program.values[results.index]
            if value.storage not in self.program.loose:
                target = self.arrays[results.index]
                if target is not found:
                    np.copyto(target, found, "unsafe")
                return
            if found.strides != value.strides and found.size:
                found, source = empty_like(value), found
                found[...] = source
            self.loose[results.index] = found
            return
        for inner, item in zip(results, found, strict=True):
            if inner is not None:
                self._keep(inner, item)

    def _drop_after(self, position):
        """Returns a call that frees loose arrays after their last use, or None."""
        program = self.program
        ends = {s for s in program.loose if program.last_use(s) == position}
        indices = [i for i, value in enumerate(program.values) if value.storage in ends] if ends else ()
        return functools.partial(_drop, self.loose, indices) if indices else None

    def _native(self, calls, start, end):
        """Returns the calls of a part of the program. Consecutive steps with a description become one function."""
        program, found, run = self.program, [], []

        def finish():
            self._finish(run, found)
            for position, _ in run:
                drop = self._drop_after(position)
                if drop:
                    found.append(drop)
            run.clear()

        for position in range(start, end):
            if calls[position] is None:
                continue
            call, description = calls[position]
            if description is not None and native.available():
                description.storage = program.steps[position].storage(program.values)
                run.append((position, description))
            else:
                finish()
                found.append(call)
                drop = self._drop_after(position)
                if drop:
                    found.append(drop)
        finish()
        return found

    def _finish(self, run, found):
        """Adds the function of a run of steps."""
        if not run:
            return
        program, key = self.program, run[0][0]
        if key not in program.native:  # compiled when all runs are known
            slots = _Slots(self)
            name = self.module.add(native.Run(run, slots, program.last_use, self.module))
            program.native[key] = name, slots.specs
        function, specs = program.native[key]
        table = np.array([self._address(spec) for spec in specs], np.int64)
        self.tables.append(table)
        address = table.__array_interface__["data"][0]
        loose = [(slot, index) for slot, (kind, index) in enumerate(specs) if kind == "loose"]
        found.append(_NativeCall(function, address, table, loose))

    def _address(self, spec):
        kind, key = spec
        if kind == "block":
            return self.origin
        if kind == "function":
            return key
        if kind == "loose":
            return 0
        array = self.arrays[key] if kind == "value" else self.numbers[key]
        return owner(array).__array_interface__["data"][0]

    def _call(self, step):
        program, arrays = self.program, self.arrays
        dtype = next((program.values[i].dtype for i in step.refs() if program.values[i].dtype.kind in "fc"), np.float64)

        def lower(x):
            if type(x) is Ref:
                return arrays[x.index]
            return self._number(x.index, np.dtype(dtype)) if type(x) is HostNumber else x

        args, kwargs = mapped(step.args, lower), mapped(step.kwargs, lower)
        if step.kind == "check":
            return functools.partial(_check, args[0], kwargs["expected"]), None
        touches = self._touches_loose(step)
        if step.kind == "host":
            return _host_call(step, [arrays[r.index] for r in step.args]), None
        if program.is_view(step):
            self._set(step.results, step.function(*args, **kwargs), step)
            return (functools.partial(self._run_loose, step), None) if touches else None
        outs = step.outs()
        fresh = []
        for index in outs:
            value = program.values[index]
            if index in arrays:
                continue
            if value.is_view:
                raise Untraceable(f"{step.name} returns new memory and a view of an argument")
            if value.storage in program.loose:
                arrays[index] = empty_like(value)  # gives the layout; a run uses the array in `loose`
            else:
                arrays[index] = placed(self.block, self.positions[value.storage], value)
            fresh.append(index)
        plain = step.kind == "array"
        if touches:
            out = arrays[outs[0]] if fresh and isinstance(step.results, Ref) else None
            description = (
                described(step.function, args, kwargs, out) if plain and (out is not None or not fresh) else None
            )
            return functools.partial(self._run_loose, step), description
        if not fresh:
            return functools.partial(step.function, *args, **kwargs), (
                plain and described(step.function, args, kwargs, None)
            ) or None
        if isinstance(step.results, Ref):
            out = arrays[outs[0]]
            call = _into(step.function, args, kwargs, out)
            return call and (call, (plain and described(step.function, args, kwargs, out)) or None)
        return functools.partial(_several, step.function, args, kwargs, mapped(step.results, lower)), None

    def _number(self, index, dtype):
        return self.numbers.setdefault((index, dtype), np.zeros((), dtype))

    def count(self, k):
        """Returns the numbers of references to a gradient: to its Array, to its raw array and to the memory."""
        return sys.getrefcount(self.grads[k]), sys.getrefcount(self.grads[k]._array), sys.getrefcount(self.block)

    def update_numbers(self):
        """Computes the numbers of optimizers for the next run, and counts the step."""
        found = [compute() for compute in self.program.numbers]
        for (index, _), array in self.numbers.items():
            array.fill(found[index])
        for raw in self.program.counters:
            raw.fill(raw.item() + 1)  # an addition of 0-d arrays takes longer

    def _set(self, results, found, step):
        if isinstance(results, Ref):
            if results.index not in self.arrays:
                value = self.program.values[results.index]
                found = np.asarray(found)
                if found.shape != value.shape or found.strides != value.strides:
                    raise Untraceable(f"{step.name} has another layout than in the trace")
                self.arrays[results.index] = found
            return
        for inner, item in zip(results, found, strict=True):
            if inner is not None:
                self._set(inner, item, step)


class _Slots:
    """The table of addresses of a function: the block of the instance, other memory, and functions."""

    def __init__(self, instance):
        self.instance = instance
        self.specs, self.known = [], {}
        self.owners = {id(instance.block): ("block", None)}
        loose, values = instance.program.loose, instance.program.values
        for index, array in instance.arrays.items():
            first = loose.get(values[index].storage)
            self.owners.setdefault(id(owner(array)), ("value", index) if first is None else ("loose", first))
        for key, array in instance.numbers.items():
            self.owners[id(array)] = "number", key

    def __call__(self, array):
        root = owner(array)
        spec = self.owners[id(root)]
        origin = self.instance.origin if spec[0] == "block" else root.__array_interface__["data"][0]
        return self._slot(spec), array.__array_interface__["data"][0] - origin

    def function(self, address):
        """Returns the slot of the address of a function."""
        return self._slot(("function", address))

    def _slot(self, spec):
        if spec not in self.known:
            self.known[spec] = len(self.specs)
            self.specs.append(spec)
        return self.known[spec]


def copy_of(array):
    """Returns a copy with the same strides, also of an array that is not dense."""
    result = array.copy("K")
    if result.strides == array.strides:
        return result
    if not array.size:
        return strided(np.empty(0, np.uint8), 0, array)
    result = _dense(array)
    np.copyto(result, array)
    return result


def empty_like(value):
    """Returns a new array with the layout of a value."""
    return np.empty_like(strided(np.empty(0, np.uint8), 0, value)) if 0 in value.shape else _dense(value)


def _dense(value):
    return placed(np.empty(layout_bytes(value), np.uint8), 0, value)


_CASTS = {ndarray.copy, ndarray.astype}
_EMPTY = {np.empty, np.empty_like}


def _into(function, args, kwargs, out):
    """Returns a call that runs a function and writes its result to `out`."""
    if isinstance(function, np.ufunc) and "out" not in kwargs and function.nout == 1:
        return functools.partial(function, *args, **{**kwargs, "out": out})
    if function in _EMPTY:
        return None
    if function in native.FILLED:
        return functools.partial(out.fill, native.FILLED[function])
    if function in _CASTS and isinstance(args[0], ndarray):
        return functools.partial(np.copyto, out, args[0], "unsafe")
    owner_of = getattr(function, "__self__", None)
    if isinstance(owner_of, np.ufunc) and function.__name__ == "reduce" and len(args) < 4:
        return functools.partial(function, *args, **{**kwargs, "out": out})
    if function is numpy_ns.matmul:
        return functools.partial(function, args[0], args[1], out)
    if function is numpy_ns.sum and args[0].size < blocks.LARGE and args[0].itemsize > 2:
        return _sum(out, *args, **kwargs)
    if function is np.concatenate:
        return functools.partial(function, *args, **{**kwargs, "out": out})
    return functools.partial(_copied, out, function, args, kwargs)


class Different(Exception):
    """Raised if a condition has another result than in the trace."""


def _check(array, expected):
    if bool(array) is not expected:
        raise Different


def _sum(out, x, axis=None, dtype=None, keepdims=False):
    return functools.partial(np.add.reduce, x, axis, dtype, out, keepdims)


def _drop(loose, indices):
    for i in indices:
        loose.pop(i, None)


class _NativeCall:
    """A call of a function that is not compiled yet."""

    def __init__(self, function, address, table, loose):
        self.function, self.address, self.table, self.loose = function, address, table, loose

    def bound(self, instance):
        """Returns the call, after the compilation."""
        function = self.function
        if isinstance(function, str):
            function = instance.functions[function]
        if self.loose:
            return functools.partial(_with_loose, function, self.address, self.table, self.loose, instance.loose)
        return functools.partial(function, self.address)


def _with_loose(function, address, table, slots, loose):
    for slot, index in slots:
        table[slot] = loose[index].__array_interface__["data"][0]
    function(address)


def _copied(out, function, args, kwargs):
    _copy_all((out,), (function(*args, **kwargs),))


def _several(function, args, kwargs, outs):
    _copy_all(outs, function(*args, **kwargs))


def _copy_all(outs, results):
    for out, result in zip(outs, results, strict=True):
        if isinstance(out, (tuple, list)):
            _copy_all(out, result)
        elif out is not None and out is not result:
            if out.shape != np.shape(result):
                raise Untraceable(f"the shape of a result changed from {out.shape} to {np.shape(result)}")
            np.copyto(out, result, "unsafe")


def _host_call(step, arrays):
    """Returns the call of an optimizer's update, with the gradients of the program."""
    from .._array import Array
    from ..engine.mode import no_grad

    update = step.function
    pairs = [(p, Array._wrap(g)) for p, g in zip(update.params, arrays, strict=False)]
    optimizer, group = update.optimizer, update.group

    def call():
        for p, g in pairs:
            p._edge.grad = g
        with no_grad():
            optimizer.update_group(group)

    return call


setitem = operator.setitem
