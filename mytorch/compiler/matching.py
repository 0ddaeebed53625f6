"""Comparisons that run before a program: is everything as it was when the program was recorded?

`Source` collects comparisons as Python statements without loops, and makes a function of them, as `dataclasses` does for the methods of a
class. `Layouts` compares the memory layout of arrays, in machine code if that is available.
"""

import ctypes
import functools
import math
import types

import numpy as np

from ..arrays import device_of, is_raw
from ..arrays.namespaces import Namespace
from ..kernels.kernel import Kernel
from . import native
from .arrays import Untraceable

ndarray = np.ndarray
_ALIGNED, _WRITEABLE = 0x100, 0x400  # flags in NumPy's header ndarraytypes.h
_ATOMS = (int, bool, str, type(None), type(...), type)
# Objects that are equal only to themselves.
_OBJECTS = (np.dtype, Namespace, Kernel, types.ModuleType, types.FunctionType)


class _Array:
    """Stands for an array in the description of saved values."""


class Varying:
    """Stands for a number that differs between calls in the description of saved values.

    Attributes:
        kind: int or float.
    """

    def __init__(self, kind):
        self.kind = kind


ARRAY = _Array()


def same(a, b):
    """Returns True if two values are equal in type and bits."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is float:
        return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
    if kind is tuple or kind is list:
        return len(a) == len(b) and all(map(same, a, b))
    if kind is slice:
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if kind is complex:
        return same((a.real, a.imag), (b.real, b.imag))
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return (kind in _ATOMS or isinstance(a, np.dtype)) and a == b


def items_of(value):
    """Returns the items of a tuple, a list or a slice; None for other values."""
    if isinstance(value, (tuple, list)):
        return value
    return (value.start, value.stop, value.step) if type(value) is slice else None


def rebuilt(value, items):
    """Returns a tuple, a list or a slice like `value` with other items."""
    items = list(items)
    return (
        slice(*items)
        if type(value) is slice
        else type(value)(*items)
        if hasattr(value, "_fields")
        else type(value)(items)
    )


def described(value):
    """Returns the description of a saved value: the value itself, with `ARRAY` for arrays.

    Raises:
        Untraceable: the value is an object of an unknown type.
    """
    if is_raw(value):
        return ARRAY
    if type(value) in (*_ATOMS, float, complex) or isinstance(value, (np.generic, type, *_OBJECTS)):
        return value
    items = items_of(value)
    if items is None:
        raise Untraceable(f"an operation saves an object of type {type(value).__name__}")
    return rebuilt(value, map(described, items))


def merged(new, old):
    """Returns a description that both descriptions fit, with `Varying` for different numbers; None if there is none."""
    if new is old or same(new, old):
        return new
    if type(new) in (int, float) and type(old) is type(new):
        return Varying(type(new))
    if type(old) is Varying:
        return old if type(new) is old.kind else None
    a, b = items_of(new), items_of(old)
    if a is None or type(new) is not type(old) or len(a) != len(b):
        return None
    items = [None if x is None and y is None else merged(x, y) for x, y in zip(a, b, strict=True)]
    fits = all(item is not None or x is None for item, x in zip(items, a, strict=True))
    return rebuilt(new, items) if fits else None


def inputs_in(value, description, found):
    """Returns True if a saved value has a description. Appends its arrays and varying numbers to `found`."""
    if description is ARRAY:
        found.append(value)
        return is_raw(value)
    if type(description) is Varying:
        found.append(value)
        return type(value) is description.kind
    items = items_of(description)
    if items is None or value is description:
        return same(value, description)
    if type(value) is not type(description):
        return False
    values = items_of(value)
    return len(values) == len(items) and all(inputs_in(a, b, found) for a, b in zip(values, items, strict=True))


def markers(description):
    """Returns the `ARRAY` and `Varying` objects of a description, in order."""
    if description is ARRAY or type(description) is Varying:
        return [description]
    return [marker for item in items_of(description) or () for marker in markers(item)]


class Source:
    """A function that compares its arguments with constants: it returns None at the first difference."""

    def __init__(self, name, arguments):
        self.lines = [f"def {name}({arguments}):", " try:"]
        self.name, self.count = name, 0
        self.constants = {"same": same, "inputs_in": inputs_in, "INTS": {int}}

    def constant(self, value):
        """Returns the name of a constant."""
        self.count += 1
        self.constants[f"k{self.count}"] = value
        return f"k{self.count}"

    def add(self, text):
        """Adds a statement."""
        self.lines.append(f"  {text}")

    def require(self, *conditions):
        """Adds conditions."""
        self.add(f"if not ({' and '.join(conditions)}): return None")

    def equal(self, text, value):
        """Returns the condition that an expression has a value."""
        if value is None or value is True or value is False:
            return f"{text} is {value}"
        k = self.constant(value)
        if type(value) is tuple and {*map(type, value)} == {int}:  # a shape
            return f"(type({text}) is tuple and {text} == {k} and {{*map(type, {text})}} == INTS)"
        return f"({text} is {k} or same({text}, {k}))"

    def function(self, result):
        """Returns the function, which returns the expression `result`."""
        self.add(f"return {result}")
        self.lines += [" except (AttributeError, KeyError, TypeError, ValueError):", "  return None"]
        exec("\n".join(self.lines), self.constants)
        return self.constants[self.name]


class Layouts:
    """The shapes, strides and dtypes of arrays.

    Args:
        written: positions of the arrays that a program changes.
        alone: require that arrays own their memory.
    """

    def __init__(self, arrays, written=(), alone=False):
        self.expected, self.written, self.alone = self._of(arrays), frozenset(written), alone
        self.check = None
        if native.available() and all(type(a) is ndarray for a in arrays):
            table = [len(arrays)]
            for k, a in enumerate(arrays):
                flags = _ALIGNED | (_WRITEABLE if k in self.written else 0)
                table += [id(ndarray), id(a.dtype), flags, alone, a.ndim, *a.shape, *a.strides]
            self.table = np.array(table, np.int64)
            self.address, self.check = self.table.__array_interface__["data"][0], _native_check()

    @staticmethod
    def _of(arrays):
        return [(type(a), a.shape, a.strides, a.dtype, device_of(a)) for a in arrays]

    def hold(self, arrays):
        """Returns True if a list of arrays has these layouts."""
        if self.check is not None:
            return self.check(id(arrays), self.address) != 0
        if not all(map(is_raw, arrays)) or self._of(arrays) != self.expected:
            return False
        flags = [a.flags for a in arrays if type(a) is ndarray]
        return (
            all(f.aligned for f in flags)
            and all(arrays[k].flags.writeable for k in self.written if type(arrays[k]) is ndarray)
            and not (self.alone and any(a.base is not None for a in arrays))
        )


@functools.cache
def _native_check():
    """Returns a function of the addresses of a list and of a table of `Layouts`, which compares fields of PyArrayObject."""
    head = object.__basicsize__
    data = head + 8
    code = native._Code()

    def at(base, offset):
        return code.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(base, offset, kind="i64"):
        return code.value(f"load {kind}, ptr {at(base, offset)}")

    def require(condition, then):
        code.emit(f"br i1 {condition}, label %{then}, label %differs")
        code.label(then)

    def equal(a, b):
        return code.value(f"icmp eq i64 {a}, {b}")

    code.label("entry")
    size, count = load("%list", head), load("%table", 0)
    first, items = at("%table", 8), load("%list", head + 8, "ptr")
    require(equal(size, count), "start")
    code.emit("br label %arrays")
    code.label("arrays")
    code.emit("%i = phi i64 [ 0, %start ], [ %i_next, %next ]")
    code.emit(f"%t = phi ptr [ {first}, %start ], [ %t_next, %next ]")
    code.emit(f"br i1 {code.value(f'icmp ult i64 %i, {count}')}, label %array, label %equal")
    code.label("array")
    a = load(items, code.value("mul i64 %i, 8"), "ptr")
    require(equal(load(a, head - 8), load("%t", 0)), "fields")
    flags, wanted = code.value(f"zext i32 {load(a, data + 40, 'i32')} to i64"), load("%t", 16)
    conditions = [
        equal(load(a, data + 32), load("%t", 8)),
        equal(code.value(f"and i64 {flags}, {wanted}"), wanted),
        code.value(f"or i1 {equal(load(a, data + 24), 0)}, {equal(load('%t', 24), 0)}"),
        equal(code.value(f"sext i32 {load(a, data, 'i32')} to i64"), axes := load("%t", 32)),
    ]
    require(functools.reduce(lambda x, y: code.value(f"and i1 {x}, {y}"), conditions), "axes")
    dims, strides, size = load(a, data + 8, "ptr"), load(a, data + 16, "ptr"), code.value(f"mul i64 {axes}, 8")
    wanted_dims = at("%t", 40)
    wanted_strides = at(wanted_dims, size)
    code.emit(f"%t_next = getelementptr i8, ptr {wanted_strides}, i64 {size}")
    code.emit("br label %axis")
    code.label("axis")
    code.emit("%d = phi i64 [ 0, %axes ], [ %d_next, %same ]")
    code.emit(f"br i1 {code.value(f'icmp ult i64 %d, {size}')}, label %compare, label %next")
    code.label("compare")
    same_size = equal(load(dims, "%d"), load(wanted_dims, "%d"))
    require(code.value(f"and i1 {same_size}, {equal(load(strides, '%d'), load(wanted_strides, '%d'))}"), "same")
    code.emit("%d_next = add i64 %d, 8")
    code.emit("br label %axis")
    code.label("next")
    code.emit("%i_next = add i64 %i, 1")
    code.emit("br label %arrays")
    code.label("equal")
    code.emit("ret i64 1")
    code.label("differs")
    code.emit("ret i64 0")
    text = "\n".join(["define i64 @check(ptr %list, ptr %table) {", *code.lines, "}"])
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)  # with the GIL
    return native.build(text, ["check"], kind)["check"]
