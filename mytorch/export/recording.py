"""Recording: runs a model with real values and lists the operations that it calls.

A `Recording` is an interpreter of ops (ops/dispatch/interpreter.py). It identifies values by their raw arrays, so results of
operations are recognized wherever they are used. Functions that work on raw arrays, such as `arange` and `nms`, are recorded as
one call each.
"""

import linecache

import numpy as np

from ..arrays import is_raw, xp_of
from ..arrays.array import Array
from ..arrays.errors import stack
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..compat import overrides
from ..ops import creation, padding, regions, resample
from ..ops.dispatch import interpreter
from ..ops.dispatch.op import Op
from ..ops.dispatch.record import RECORDS
from ..ops.dispatch.unwrap import raw_of, to_cpu
from ..ops.elementwise import to_dtype
from ..ops.rnn import gru_layer, lstm_layer, rnn_layer
from ..utils import _pytree as pytree

_PACKAGE = __file__.rpartition("export")[0]


def atoms():
    """Returns the functions that are recorded as one call: they work on raw arrays, or a file format has the same function."""
    found = [creation.arange, creation.full, creation.full_like, creation.eye, creation.linspace]
    found += [
        creation.zeros,
        creation.ones,
        creation.empty,
        creation.zeros_like,
        creation.ones_like,
        creation.empty_like,
    ]
    found += [regions.nms, regions.batched_nms, regions.roi_align, resample.interpolate, resample.grid_sample]
    found.append(padding.pad)
    methods = vars(Tensor)
    found += [methods[name] for name in ("new_zeros", "new_ones", "new_empty", "new_full", "nonzero")]
    return found


class Value:
    """A result in a recording: output `part` of entry number `entry`, or an input (entry None)."""

    __slots__ = ("entry", "name", "part")

    def __init__(self, entry, part=None, name=None):
        self.entry, self.part, self.name = entry, part, name

    @property
    def key(self):
        """A key that is equal in other recordings of the same program."""
        return (self.entry, self.part, self.name)


class Constant:
    """An array that no recorded operation computed."""

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array


class Entry:
    """One recorded call.

    Attributes:
        target: an Op or a function.
        args: positional arguments with `Value`s and `Constant`s.
        kwargs: keyword arguments.
        results: raw arrays of the results.
        several: True if the call returns a tuple.
        line: (file, line number, name of the function) of the program.
    """

    def __init__(self, target, args, kwargs, results, several, line):
        self.target, self.args, self.kwargs = target, args, kwargs
        self.results, self.several, self.line = results, several, line

    @property
    def name(self):
        """Name of the operation."""
        return self.target.name if isinstance(self.target, Op) else self.target.__name__


def line_of_program():
    """Returns (file, line number, function) of the innermost frame outside of the library, or in a `forward` of its models."""
    for file, line, function, _ in stack():
        if not file.startswith(_PACKAGE) or file.startswith((f"{_PACKAGE}models", f"{_PACKAGE}vision")):
            return file, line, function
    return "<unknown>", 0, ""


def describe(line):
    """Returns a source line for messages, with the file, line, function and code."""
    path, number, function = line
    text = linecache.getline(path, number).strip()
    return f"{path}:{number} in {function}" + (f": {text}" if text else "")


class Recording(interpreter.Interpreter):
    """One run of a model.

    Args:
        named: {name: tensor} of parameters and buffers.
        inputs: {name: tensor} of the inputs.
    """

    def __init__(self, named, inputs):
        super().__init__()
        self.entries, self.values, self.keep = [], {}, []
        self.views, self.stale = {}, {}
        self.shapes = {}
        for name, tensor in [*named.items(), *inputs.items()]:
            self.define(raw_of(tensor), Value(None, name=name))
        self.busy = False
        self.attributes = {id(raw_of(tensor)) for tensor in named.values()}

    # -- values -----------------------------------------------------------------------------------------------------

    def define(self, raw, value):
        """Sets the value of a raw array."""
        self.values[id(raw)] = value
        self.keep.append(raw)  # so that its id stays unique
        self.shapes.setdefault(value.key, tuple(raw.shape))

    def value(self, raw):
        """Returns the Value of a raw array; a view of memory that was overwritten is computed again. None if unknown."""
        if id(raw) in self.stale:
            base, steps = self.stale.pop(id(raw))
            found = self.value(base)
            current = base
            for op, attrs in steps:
                current = op.forward(xp_of(current), current, **attrs)
                found = self.add(op, (found,), attrs, (current,), False)[0]
            self.define(raw, found)
            return found
        return self.values.get(id(raw))

    def encoded(self, tree):
        """Returns arguments with Values and Constants for tensors and arrays."""

        def encode(x):
            raw = x._mt_data._array if isinstance(x, Tensor) else x._array if isinstance(x, Array) else x
            if isinstance(raw, np.ndarray) or is_raw(raw):
                found = self.value(raw)
                return found if found is not None else Constant(raw)
            return x

        return _map(tree, encode)

    def add(self, target, args, kwargs, raws, several):
        """Appends an entry, and returns the Values of its results."""
        args, kwargs = self.encoded(tuple(args)), self.encoded(dict(kwargs))
        number = len(self.entries)
        self.entries.append(Entry(target, args, kwargs, raws, several, line_of_program()))
        values = []
        for i, raw in enumerate(raws):
            value = Value(number, i if several else None)
            values.append(value)
            self.shapes[value.key] = tuple(raw.shape)
            self.keep.append(raw)
        return values

    # -- interpreter ------------------------------------------------------------------------------------------------

    def __call__(self, record, inputs, fused, attrs):
        with self.outside():
            out = record.dispatch(*inputs, fused=fused, **attrs)
        if self.busy:
            return out
        outs = out if record.outputs else (out,)
        raws = [raw_of(o) for o in outs]
        target, arguments = RECORDS.get(record.name, record), inputs
        if record.name in _RECURRENT and attrs["sizes"].count(inputs[0].shape[1]) == inputs[0].shape[0]:
            target = _RECURRENT[record.name]
            attrs = {k: v for k, v in attrs.items() if k != "sizes"}
        values = self.add(target, arguments, attrs, raws, bool(record.outputs))
        for tensor, raw, value in zip(outs, raws, values, strict=True):
            if any(raw is raw_of(x) for x in inputs if isinstance(x, (Tensor, Array))):
                continue  # an operation without an effect returned its input
            self.define(raw, value)
            if isinstance(tensor, Tensor) and tensor._mt_view is not None:
                base, _, steps = tensor._mt_view
                self.views[id(raw)] = (raw, raw_of(base), steps)
        return out

    def call(self, function, args, kwargs):
        """Runs and records a function of `atoms`."""
        if self.busy:
            return function(*args, **kwargs)
        self.busy = True
        try:
            out = function(*args, **kwargs)
        finally:
            self.busy = False
        several = isinstance(out, (tuple, list))
        raws = [raw_of(o) for o in (out if several else (out,))]
        for raw, value in zip(raws, self.add(function, args, kwargs, raws, several), strict=True):
            self.define(raw, value)
        return out

    def adopt(self, tensor, result):
        """Records an in-place change."""
        if self.busy:
            return
        raw = raw_of(tensor)
        if result is None:
            value = self.add(
                creation.full,
                (tuple(raw.shape), raw.reshape(-1)[0].item() if raw.size else 0),
                {"dtype": tensor.dtype},
                (raw,),
                False,
            )[0]
        else:
            source = raw_of(result)
            value = self.value(source)
            if value is None:
                value = self.add(constant, (Constant(np.array(to_cpu(raw))),), {}, (raw,), False)[0]
            elif source.dtype != raw.dtype:
                value = self.add(to_dtype, (value,), {"dtype": tensor.dtype}, (raw,), False)[0]
        self.write(tensor, raw, value)

    def write(self, tensor, raw, value):
        """Sets a new value for the memory of a tensor, and for all other arrays that share this memory."""
        self.values[id(raw)] = value
        self.shapes.setdefault(value.key, tuple(raw.shape))
        self.keep.append(raw)
        self.stale.pop(id(raw), None)
        view = self.views.get(id(raw))
        if view is not None:
            _, base, steps = view
            before = self.value(base)
            if before is None or steps is None:
                self.refuse("a change in place of a view that was made by a function with several results")
            changed = self.add(write_region, (before, value), {"steps": tuple(steps)}, (base,), False)[0]
            self.values[id(base)] = changed
        else:
            base = raw
        if id(base) in self.attributes:
            self.refuse("a change in place of a parameter or buffer")
        for other, other_base, steps in list(self.views.values()):
            if other_base is base and other is not raw:
                if steps is None:
                    self.refuse(
                        "a change in place of a tensor with views that were made by a function with several results"
                    )
                self.stale[id(other)] = (base, steps)

    def set_item(self, tensor, index, value):
        """Records `tensor[index] = value`."""
        if self.busy:
            return
        raw = raw_of(tensor)
        before = self.value(raw)
        before = before if before is not None else Constant(np.array(to_cpu(raw)))
        new = self.add(set_item, (before, index, value), {}, (raw,), False)[0]
        self.write(tensor, raw, new)

    def refuse(self, action):
        """Raises an error for an operation that cannot be recorded."""
        raise NotImplementedError(
            f"export: expected operations that can be recorded, got {action} at {describe(line_of_program())}. Use an operation without a change in place."
        )


def lstm(x, h, c, weight, projection=None, reverse=False):
    """Runs one direction of one LSTM layer on sequences of equal length."""
    return lstm_layer(x, h, c, weight, projection, sizes=(x.shape[1],) * x.shape[0], reverse=reverse)


def gru(x, h, weight, bias, reverse=False):
    """Runs one direction of one GRU layer on sequences of equal length."""
    return gru_layer(x, h, weight, bias, sizes=(x.shape[1],) * x.shape[0], reverse=reverse)


def rnn(x, h, weight, reverse=False, relu=False):
    """Runs one direction of one simple recurrent layer on sequences of equal length."""
    return rnn_layer(x, h, weight, sizes=(x.shape[1],) * x.shape[0], reverse=reverse, relu=relu)


_RECURRENT = {"lstm": lstm, "gru": gru, "rnn": rnn}


def constant(value):
    """Returns a constant."""
    return value


def write_region(input, src, steps):
    """Returns a copy of a tensor, in which a region has new values.

    Args:
        src: the new values.
        steps: ((op, attributes), …), the operations that select the region.
    """
    out = input.clone()
    region = out
    for op, attrs in steps:
        region = op(region, **attrs)
    region.copy_(src)
    return out


def set_item(input, index, value):
    """Returns a copy of a tensor, in which `input[index]` has new values.

    Args:
        value: a number or tensor.
    """
    out = input.clone()
    out[index] = value
    return out


def _map(tree, function):
    """Applies a function to the leaves of nested tuples, lists, dicts and slices."""
    if isinstance(tree, tuple):
        return tuple(_map(item, function) for item in tree)
    if isinstance(tree, list):
        return [_map(item, function) for item in tree]
    if isinstance(tree, dict):
        return {key: _map(item, function) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(_map(item, function) for item in (tree.start, tree.stop, tree.step)))
    return function(tree)


class _Calls(overrides.TorchFunctionMode):
    """Receives the calls of the functions of `atoms`."""

    def __init__(self, recording):
        self.recording, self._only = recording, set(atoms())

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.recording.call(func, args, kwargs or {})


def record(function, named, inputs, args, kwargs):
    """Runs a function and records its operations.

    Args:
        named: {name: tensor} of parameters and buffers.
        inputs: {name: tensor} of the inputs.
        args: the positional arguments, with the tensors of `inputs`.

    Returns:
        (recording, leaves of the result, structure of the result)
    """
    recording = Recording(named, inputs)
    with no_grad(), _Calls(recording), interpreter.interpreting(recording):
        out = function(*args, **kwargs)
    leaves, spec = pytree.tree_flatten(out)
    return recording, recording.encoded(leaves), leaves, spec
