"""Machine code for runs of array operations, through LLVM.

`Run` collects consecutive steps that it can translate: elementwise operations, copies, sums, small matrix products. Elementwise steps
over one shape become one loop nest (`_Loop`): intermediate results stay in registers and are stored only if a later step
reads them. The code receives the list of arrays of a run, and reads the addresses from the array objects.

Functions such as `exp` and small products call the loops of NumPy's ufuncs, so results are equal to the last bit.
Only sums are computed in another order, with float64 partial sums for float32.

Without llvmlite, which the `cpu` extra installs, steps run as calls of NumPy.
"""

import ctypes
import functools
import operator
import os
import struct
import threading

import numpy as np

from ..arrays.namespaces import numpy_ns
from ..kernels import blas

try:
    import llvmlite.binding as llvm
except ImportError:
    llvm = None

ndarray = np.ndarray
TYPES = {
    "float32": "float", "float64": "double", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "i8", "bool": "i8",
    "uint64": "i64",
}  # fmt: skip
FILLED = {np.zeros: 0, np.zeros_like: 0, np.ones: 1, np.ones_like: 1}  # the value of all elements of the result
TRACED = f"{__package__}.arrays"
SMALL_PRODUCT = 9216  # up to this size, `_numpy_matmul` calls `np.matmul`
# Offsets of fields of C structs, which the headers of Python and NumPy declare: `ob_item` of a list, `data` of an array.
_ITEMS, _DATA = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t), object.__basicsize__
_lock = threading.Lock()


class _Unsupported(Exception):
    """Raised if a step has no translation."""


def _type(dtype):
    try:
        return TYPES[dtype.name]
    except KeyError:
        raise _Unsupported(dtype.name) from None


# -- operations -------------------------------------------------------------------------------------------------------

_FLOAT = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
_INT = {"add": "add", "subtract": "sub", "multiply": "mul"}
_COMPARE = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne"}
# ufuncs that are computed by NumPy's own loops, on contiguous arrays
_LOOPS = frozenset(
    "exp log tanh sin cos expm1 log1p exp2 log2 sinh cosh arctan arcsin arccos arctanh arcsinh arccosh power cbrt log10 tan logaddexp".split()
)


# ufuncs with translated reductions -> kinds of dtypes. The order of their arguments has no effect on the result.
_FOLDS = {"maximum": "fiu", "minimum": "fiu", "logical_and": "b", "logical_or": "b"}


class _Code:
    """The text of a function in LLVM's language."""

    def __init__(self):
        self.lines, self.count, self.declared = [], 0, set()

    def new(self):
        self.count += 1
        return f"%t{self.count}"

    def emit(self, text):
        self.lines.append("  " + text)

    def value(self, text):
        name = self.new()
        self.emit(f"{name} = {text}")
        return name

    def label(self, name):
        self.lines.append(f"{name}:")


def constant(x, dtype):
    """Returns a number as a constant of a dtype."""
    if dtype.kind == "f":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(dtype.type(x))))[0]:016X}"
    return str(int(dtype.type(x)))


def convert(code, x, source, target):
    """Converts a value between dtypes, as NumPy's `astype` does."""
    if source == target:
        return x
    a, b = _type(source), _type(target)
    if target.kind == "b":
        if source.kind == "f":
            return code.value(f"zext i1 {code.value(f'fcmp une {a} {x}, 0.0')} to i8")
        return code.value(f"zext i1 {code.value(f'icmp ne {a} {x}, 0')} to i8")
    if source.kind == "f":
        if target.kind == "f":
            return code.value(f"{'fpext' if target.itemsize > source.itemsize else 'fptrunc'} {a} {x} to {b}")
        raise _Unsupported("conversion of floats to integers")  # undefined for values out of range
    if target.kind == "f":
        return code.value(f"{'uitofp' if source.kind in 'ub' else 'sitofp'} {a} {x} to {b}")
    if target.itemsize > source.itemsize:
        return code.value(f"{'zext' if source.kind in 'ub' else 'sext'} {a} {x} to {b}")
    return code.value(f"trunc {a} {x} to {b}") if target.itemsize < source.itemsize else x


def compute(code, name, args, dtype):
    """Emits one elementwise operation on values of one dtype. Returns its value; comparisons return i8."""
    kind, t = dtype.kind, _type(dtype)
    if name in _COMPARE:
        word = _COMPARE[name]
        if kind == "f":
            word = {"ne": "une"}.get(word, "o" + word)
            bit = code.value(f"fcmp {word} {t} {args[0]}, {args[1]}")
        else:
            sign = "" if word in ("eq", "ne") else "u" if kind in "ub" else "s"
            bit = code.value(f"icmp {sign}{word} {t} {args[0]}, {args[1]}")
        return code.value(f"zext i1 {bit} to i8")
    if name in ("logical_and", "logical_or", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor"):
        if (kind != "b" and name.startswith("logical")) or kind == "f":
            raise _Unsupported(name)
        return code.value(f"{name.rpartition('_')[2]} {t} {args[0]}, {args[1]}")
    if name in ("logical_not", "invert") and kind == "b":
        return code.value(f"xor i8 {args[0]}, 1")
    if kind == "f":
        return _float(code, name, args, t)
    if kind == "i" or (kind == "u" and name in _INT):
        if name in _INT:
            return code.value(f"{_INT[name]} {t} {args[0]}, {args[1]}")
        if name in ("maximum", "minimum"):
            bit = code.value(f"icmp s{'gt' if name == 'maximum' else 'lt'} {t} {args[0]}, {args[1]}")
            return code.value(f"select i1 {bit}, {t} {args[0]}, {t} {args[1]}")
        if name == "negative":
            return code.value(f"sub {t} 0, {args[0]}")
        if name == "positive":
            return args[0]
    raise _Unsupported(name)


def _float(code, name, args, t):
    suffix = "f32" if t == "float" else "f64"
    if name in _FLOAT:
        return code.value(f"{_FLOAT[name]} {t} {args[0]}, {args[1]}")
    x = args[0]
    if name in ("maximum", "minimum"):
        order = code.value(f"fcmp o{'ge' if name == 'maximum' else 'le'} {t} {x}, {args[1]}")
        bit = code.value(f"or i1 {order}, {code.value(f'fcmp uno {t} {x}, 0.0')}")
        return code.value(f"select i1 {bit}, {t} {x}, {t} {args[1]}")
    if name == "negative":
        return code.value(f"fneg {t} {x}")
    if name == "positive":
        return x
    if name == "square":
        return code.value(f"fmul {t} {x}, {x}")
    if name == "reciprocal":
        return code.value(f"fdiv {t} {constant(1.0, np.dtype('f4'))}, {x}")
    if name in ("sqrt", "absolute", "fabs", "floor", "ceil", "trunc", "rint"):
        full = f"@llvm.{'fabs' if name == 'absolute' else name}.{suffix}"
        code.declared.add(f"declare {t} {full}({t})")
        return code.value(f"call {t} {full}({t} {x})")
    if name == "isfinite":
        size = code.value(f"call {t} @llvm.fabs.{suffix}({t} {x})")
        code.declared.add(f"declare {t} @llvm.fabs.{suffix}({t})")
        return code.value(f"zext i1 {code.value(f'fcmp olt {t} {size}, 0x7FF0000000000000')} to i8")
    if name == "isnan":
        return code.value(f"zext i1 {code.value(f'fcmp uno {t} {x}, 0.0')} to i8")
    raise _Unsupported(name)


# -- steps ------------------------------------------------------------------------------------------------------------


class Elementwise:
    """out = name(*inputs), elementwise. Inputs are arrays, or Python numbers."""

    def __init__(self, name, inputs, out, dtypes):
        self.name, self.out = name, out
        self.inputs = [np.broadcast_to(x, out.shape) if isinstance(x, ndarray) else x for x in inputs]
        self.dtypes = dtypes  # of the computation: inputs and result
        for dtype in (*dtypes, out.dtype, *(x.dtype for x in inputs if isinstance(x, ndarray))):
            _type(dtype)

    def emit(self, code, load):
        """Emits the operation. `load(array)` returns the value of an array at the current position."""
        *kinds, result = self.dtypes
        args = []
        for x, dtype in zip(self.inputs, kinds, strict=True):
            args.append(convert(code, load(x), x.dtype, dtype) if isinstance(x, ndarray) else constant(x, dtype))
        if self.name == "copy":
            value = args[0]
        elif self.name == "where":
            bit = code.value(f"icmp ne i8 {args[0]}, 0")
            t = _type(kinds[1])
            value = code.value(f"select i1 {bit}, {t} {args[1]}, {t} {args[2]}")
        else:
            value = compute(code, self.name, args, kinds[0])
        return convert(code, value, result, self.out.dtype)


class Reduction:
    """out = the sum of x over axes, divided by `divisor`; or another ufunc in `_FOLDS` over the axes."""

    def __init__(self, x, axes, out, divisor=1, name="add"):
        self.x, self.axes, self.out, self.divisor, self.name = x, axes, out, divisor, name
        if x.dtype != out.dtype or x.dtype.kind not in ("f" if name == "add" else _FOLDS[name]) or x.size == 0:
            raise _Unsupported("a reduction of these dtypes")
        _type(x.dtype)


class Product:
    """out = a @ b, by the inner loop of NumPy's `matmul`, which calls BLAS."""

    def __init__(self, a, b, out):
        if not (a.ndim == b.ndim == 2 and a.dtype == b.dtype == out.dtype and a.dtype.char in "fd"):
            raise _Unsupported("a product of these arrays")
        if np.may_share_memory(a, out) or np.may_share_memory(b, out):
            raise _Unsupported("a product that replaces its argument")
        count = a.size * b.shape[1]
        few = a.shape[0] * b.shape[1] <= blas.PLACED_TURNED and count < blas.TURNED and b.size < blas.WEIGHTS
        whole = few or b.strides[0] >= b.strides[1]
        # Up to this size, `blas.product` calls `np.matmul`. For larger products it may use several threads.
        if count > SMALL_PRODUCT and (count > blas.SINGLE or 1 in (*a.shape, b.shape[1]) or not whole):
            raise _Unsupported("a product of this size")
        self.arrays = a, b, out
        (m, k), n = a.shape, b.shape[1]
        self.sizes = 1, m, k, n
        self.steps = 0, 0, 0, *a.strides, *b.strides, *out.strides
        self.address, self.data = ufunc_loop("matmul", a.dtype.char * 3)


class LoopCall:
    """out = ufunc(*inputs), by NumPy's loop."""

    def __init__(self, name, inputs, out, dtypes):
        if any(not isinstance(x, ndarray) or x.dtype != out.dtype or x.shape != out.shape for x in inputs):
            raise _Unsupported("a function of these arrays")
        if (
            any(d != out.dtype for d in dtypes)
            or not all(x.flags.c_contiguous for x in (*inputs, out))
            or out.dtype.char not in "fd"
        ):
            raise _Unsupported("a function of strided arrays")
        self.arrays = *inputs, out
        self.sizes = (out.size,)
        self.steps = (out.itemsize,) * len(self.arrays)
        self.address, self.data = ufunc_loop(name, out.dtype.char * (len(inputs) + 1))


@functools.cache
def ufunc_loop(name, types):
    """Returns (function, data): the addresses of a ufunc's inner loop for these type characters.

    They are fields of PyUFuncObject, which NumPy's header `ufuncobject.h` documents.
    """
    ufunc = getattr(np, name)
    wanted = types[:-1] + "->" + types[-1]
    if wanted not in ufunc.types:
        raise _Unsupported(name)
    position = ufunc.types.index(wanted)
    base = id(ufunc) + object.__basicsize__ + 4 * ctypes.sizeof(ctypes.c_int)
    functions, data = (ctypes.c_void_p.from_address(base + i * 8).value for i in range(2))
    read = lambda array: ctypes.c_void_p.from_address(array + 8 * position).value if array else None  # noqa: E731
    return read(functions), read(data) or 0


def _basic(index):
    items = index if type(index) is tuple else (index,)
    return all(isinstance(i, (int, slice, type(None), type(...))) and not isinstance(i, bool) for i in items)


def _sum(out, x, axis=None, dtype=None, keepdims=False):
    if dtype is not None:
        raise _Unsupported("a sum with a dtype")
    return Reduction(x, _axes(axis, x.ndim), out)


def _mean(out, x, axis=None, keepdims=False):
    return Reduction(x, _axes(axis, x.ndim), out, divisor=x.size // max(out.size, 1))


def _reduce(name, out, x, axis=0, dtype=None, _out=None, keepdims=False, **others):
    if dtype is not None or others:
        raise _Unsupported("a reduction with options")
    return Reduction(x, _axes(axis, x.ndim), out, name=name)


# reductions of the namespace -> ufunc
_WHOLE = {numpy_ns.max: "maximum", numpy_ns.min: "minimum", numpy_ns.all: "logical_and", numpy_ns.any: "logical_or"}


def _axes(axis, ndim):
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(a % ndim for a in axes))


def described(function, args, kwargs, out):
    """Returns the description of a step, or None if it has no translation.

    Args:
        function, args, kwargs: the call, with the arrays of an instance.
        out: the array of its result; None if it only changes an argument.
    """
    try:
        return _described(function, args, dict(kwargs), out)
    except (_Unsupported, TypeError, ValueError, OverflowError):
        return None


def _described(function, args, kwargs, out):
    if isinstance(function, np.ufunc):
        into = kwargs.pop("out", None)
        into = into[0] if isinstance(into, tuple) else into
        out = into if into is not None else out
        if kwargs or out is None or function.nout != 1 or not 0 < function.nin < 3 or function.signature is not None:
            if function is np.matmul and not kwargs:
                return Product(args[0], args[1], out)
            raise _Unsupported(function.__name__)
        return _ufunc(function, args[: function.nin], out)
    if function is operator.setitem:
        x, index, value = args
        if not _basic(index):
            raise _Unsupported("an index array")
        return _copy(
            value, x[index] if type(x[index]) is ndarray else x[(*(index if type(index) is tuple else (index,)), ...)]
        )
    if out is None:
        raise _Unsupported("no result")
    if function in (ndarray.copy, ndarray.astype, np.ascontiguousarray, np.copy) or _is_cast(function):
        return _copy(args[0], out)
    if function in (numpy_ns.where, np.where) and len(args) == 3:
        condition, x, y = args
        if isinstance(condition, (bool, np.bool_)):
            return _copy(x if condition else y, out)
        if not isinstance(condition, ndarray) or condition.dtype != bool:
            raise _Unsupported("a condition that is not bool")
        return Elementwise("where", [condition, x, y], out, [condition.dtype, out.dtype, out.dtype, out.dtype])
    if function is numpy_ns.matmul:
        return Product(args[0], args[1], out)
    if function is numpy_ns.sum:
        return _sum(out, *args, **kwargs)
    if function is numpy_ns.mean:
        return _mean(out, *args, **kwargs)
    if function is ndarray.sum:
        return _sum(out, args[0], *args[1:], **kwargs)
    if function in _WHOLE:
        return _reduce(_WHOLE[function], out, *args, **({"axis": None} if len(args) == 1 else {}) | kwargs)
    ufunc = getattr(function, "__self__", None)
    if isinstance(ufunc, np.ufunc) and (ufunc is np.add or ufunc.__name__ in _FOLDS) and function.__name__ == "reduce":
        return _reduce(ufunc.__name__, out, *args, **kwargs)
    if function in FILLED:
        return _copy(FILLED[function], out)
    raise _Unsupported(getattr(function, "__name__", ""))


def _is_cast(function):
    """Returns True for the method `cast` of a namespace, as a trace records it."""
    return (getattr(function, "__module__", None), getattr(function, "__name__", None)) == (TRACED, "cast")


def _copy(x, out):
    if isinstance(x, np.generic):
        x = x.item()
    kind = out.dtype if not isinstance(x, ndarray) else x.dtype
    if isinstance(x, ndarray) and x.dtype.kind == "f" and out.dtype.kind in "iu":
        raise _Unsupported("a conversion of floats to integers")
    if isinstance(x, ndarray) and np.may_share_memory(x, out):
        raise _Unsupported("a copy within one array")
    return Elementwise("copy", [x], out, [kind, kind])


def _ufunc(function, args, out):
    name = function.__name__
    if any(not isinstance(x, (ndarray, int, float, np.generic)) for x in args):
        raise _Unsupported("an argument")
    signature = tuple(
        x.dtype if isinstance(x, (ndarray, np.generic)) else type(x) if type(x) is not bool else np.dtype(bool)
        for x in args
    )
    dtypes = function.resolve_dtypes((*signature, None))
    args = [x.item() if isinstance(x, np.generic) else x for x in args]
    if name in _LOOPS:
        return LoopCall(name, args, out, dtypes)
    result = Elementwise(name, args, out, list(dtypes))
    result.emit(_Code(), lambda x: "%x")  # raises if the operation is not supported
    return result


# -- runs -------------------------------------------------------------------------------------------------------------


def _wide(item):
    """Returns the type in which a reduction computes: float64 for sums."""
    return "double" if item.name == "add" else _type(item.x.dtype)


def _place(array):
    return array.__array_interface__["data"][0]


def _same_place(a, b):
    return a.shape == b.shape and _key(a) == _key(b)


def _key(x):
    """Returns the identity of an array of a loop: address, strides of the axes that are longer than 1, dtype."""
    return _place(x), tuple([s if n > 1 else 0 for s, n in zip(x.strides, x.shape, strict=True)]), x.dtype.char


class _Loop:
    """A loop nest over elementwise steps of one shape."""

    def __init__(self, shape):
        self.shape = shape
        self.steps = []
        self.reads, self.writes = [], []

    def accepts(self, step):
        """Returns True if the step may run in the same loop: at each position, it only needs values at that position."""
        if step.out.shape != self.shape:
            return False
        arrays = [x for x in step.inputs if isinstance(x, ndarray)]
        for x in arrays:
            if any(np.may_share_memory(x, w) and not _same_place(x, w) for w in self.writes):
                return False
        return not any(
            np.may_share_memory(step.out, r) and not _same_place(step.out, r)
            for r in (*self.reads, *self.writes, *arrays)
        )

    def add(self, step):
        self.steps.append(step)
        self.reads += [x for x in step.inputs if isinstance(x, ndarray)]
        self.writes.append(step.out)


class Run:
    """Consecutive steps that become one function.

    Args:
        items: (position of a step, its description) pairs.
        slots: function from an array to (number of a slot of the list, offset in bytes).
        last_use: function from a storage to the position of the last step that uses it.
    """

    def __init__(self, items, slots, last_use, module):
        self.slots, self.module = slots, module
        self.code = code = _Code()
        self.loops = 0
        self.bases = {}
        self.parameters = None  # addresses that the current loop nest receives; None outside of loop nests
        blocks, current = [], None
        for position, item in items:
            if isinstance(item, Elementwise) and item.out.size:
                if current is None or not current.accepts(item):
                    current = _Loop(item.out.shape)
                    blocks.append(current)
                current.add(item)
                current.end = position
            elif not isinstance(item, Elementwise):
                current = None
                blocks.append(item)
        for block in blocks:
            if isinstance(block, _Loop):
                self._outlined(lambda block=block: self._emit_loop(block, last_use))
            elif isinstance(block, Reduction):
                self._outlined(lambda block=block: self._emit_reduction(block))
            else:
                self._emit_call(block)
        code.emit("ret void")

    def _outlined(self, emit):
        """Emits a loop nest as a function. Equal nests, as in the layers of a network, share the function."""
        main, self.code = self.code, _Code()
        self.parameters, self.loops = {}, 0
        emit()
        nest, self.code = self.code, main
        parameters, self.parameters = self.parameters, None
        name = self.module.function(nest, len(parameters), self.loops)
        addresses = [f"ptr {self._at(slot, offset)}" for slot, offset in parameters]
        main.emit(f"call void @{name}({', '.join(addresses)})")

    # -- addresses

    def pointer(self, array):
        """Emits the address of the first element of an array."""
        place = self.slots(array)
        if self.parameters is not None:
            return f"%p{self.parameters.setdefault(place, len(self.parameters))}"
        return self._at(*place)

    def _at(self, slot, offset):
        return self.code.value(f"getelementptr inbounds i8, ptr {self._base(slot)}, i64 {offset}")

    def _base(self, slot):
        if slot not in self.bases:
            where = f"%base{slot}"
            self.bases[slot] = [
                f"  %at{slot} = getelementptr inbounds ptr, ptr %items, i64 {slot}",
                f"  %array{slot} = load ptr, ptr %at{slot}, align 8",
                f"  %data{slot} = getelementptr inbounds i8, ptr %array{slot}, i64 {_DATA}",
                f"  {where} = load ptr, ptr %data{slot}, align 8",
            ]
        return f"%base{slot}"

    def _element(self, pointer, array, indices, strides):
        """Emits the address of an element. Strides are in bytes."""
        code = self.code
        for index, stride in zip(indices, strides, strict=True):
            if stride == 0 or index is None:
                continue
            size = array.itemsize
            if stride % size == 0:
                step = stride // size
                at = index if step == 1 else code.value(f"mul nsw i64 {index}, {step}")
                pointer = code.value(f"getelementptr inbounds {_type(array.dtype)}, ptr {pointer}, i64 {at}")
            else:
                at = code.value(f"mul nsw i64 {index}, {stride}")
                pointer = code.value(f"getelementptr inbounds i8, ptr {pointer}, i64 {at}")
        return pointer

    # -- loops

    def _nest(self, sizes, body, parallel=True):
        """Emits nested loops around `body(indices)`. With `parallel`, iterations are independent."""
        code, opened = self.code, []
        indices = []
        for size in sizes:
            if size == 1:
                indices.append("0")
                continue
            self.loops += 1
            n = self.loops
            before = f"pre{n}"
            code.emit(f"br label %{before}")
            code.label(before)
            code.emit(f"br label %loop{n}")
            code.label(f"loop{n}")
            code.emit(f"%i{n} = phi i64 [ 0, %{before} ], [ %next{n}, %latch{n} ]")
            indices.append(f"%i{n}")
            opened.append((n, size))
        body(indices)
        for n, size in reversed(opened):
            code.emit(f"br label %latch{n}")
            code.label(f"latch{n}")
            code.emit(f"%next{n} = add nuw nsw i64 %i{n}, 1")
            more = code.value(f"icmp ult i64 %next{n}, {size}")
            inner = n == opened[-1][0] and parallel
            code.emit(f"br i1 {more}, label %loop{n}, label %done{n}{f', !llvm.loop !loop{n}.' if inner else ''}")
            code.label(f"done{n}")

    def _emit_loop(self, loop, last_use):
        code = self.code
        arrays, known = [], {}

        key = _key
        for step in loop.steps:
            for x in (*[x for x in step.inputs if isinstance(x, ndarray)], step.out):
                if key(x) not in known:
                    known[key(x)] = len(arrays)
                    arrays.append(x)
        order = sorted(range(len(loop.shape)), key=lambda d: [-abs(x.strides[d]) for x in loop.writes[-1:]])
        sizes = [loop.shape[d] for d in order]
        strides = [[x.strides[d] for d in order] for x in arrays]
        sizes, strides = _collapsed(sizes, strides)
        stored = {}
        for step in loop.steps:
            stored[key(step.out)] = step
        keep = {k for k, step in stored.items() if last_use(step.storage) > loop.end}
        pointers, uniform = {}, {}
        for x, own in zip(arrays, strides, strict=True):
            pointers[key(x)] = self.pointer(x)
            if not any(own) and key(x) not in stored:
                uniform[key(x)] = code.value(f"load {_type(x.dtype)}, ptr {pointers[key(x)]}, align {x.itemsize}")

        def body(indices):
            registers = dict(uniform)

            def element(x):
                return self._element(pointers[key(x)], x, indices, strides[known[key(x)]])

            def load(x):
                if key(x) not in registers:
                    registers[key(x)] = code.value(
                        f"load {_type(x.dtype)}, ptr {element(x)}, align {x.itemsize}, !llvm.access.group !2"
                    )
                return registers[key(x)]

            for step in loop.steps:
                registers[key(step.out)] = step.emit(code, load)
            for k, x in [(k, stored[k].out) for k in stored if k in keep]:
                code.emit(
                    f"store {_type(x.dtype)} {registers[k]}, ptr {element(x)}, align {x.itemsize}, !llvm.access.group !2"
                )

        self._nest(sizes, body)

    def _emit_reduction(self, item):
        code, x, out = self.code, item.x, item.out
        kept = [d for d in range(x.ndim) if d not in item.axes]
        t, wide = _type(x.dtype), _wide(item)
        source, target = self.pointer(x), self.pointer(out)
        flat = out.reshape([x.shape[d] for d in kept]) if out.size else out
        inner = sorted(item.axes, key=lambda d: -abs(x.strides[d]))
        last = x.ndim - 1
        if (
            kept
            and last in kept
            and x.shape[last] > 1
            and x.strides[last] == x.itemsize
            and flat.strides[-1] == flat.itemsize
        ):
            return self._emit_column_sums(item, source, target, flat, kept, inner)
        sizes, (steps,) = _collapsed([x.shape[d] for d in inner], [[x.strides[d] for d in inner]])

        def body(indices):
            base = self._element(source, x, indices, [x.strides[d] for d in kept])
            total = self._accumulate(base, item, sizes, steps)
            if item.divisor != 1:
                total = code.value(f"fdiv {wide} {total}, {constant(item.divisor, np.dtype('f8'))}")
            if t != wide:
                total = code.value(f"fptrunc {wide} {total} to {t}")
            code.emit(f"store {t} {total}, ptr {self._element(target, out, indices, flat.strides)}, align {x.itemsize}")

        self._nest([x.shape[d] for d in kept], body, parallel=False)

    def _first(self, item, pointer):
        """Emits the value that a reduction starts with: 0, or its first element, which may occur twice."""
        t = _type(item.x.dtype)
        return "0.0" if item.name == "add" else self.code.value(f"load {t}, ptr {pointer}, align {item.x.itemsize}")

    def _fold(self, item, total, value):
        """Emits one addition in float64, or another operation of `_FOLDS`. Returns its result."""
        t, kind = _type(item.x.dtype), item.x.dtype.kind
        if item.name == "add":
            value = value if t == "double" else self.code.value(f"fpext {t} {value} to double")
            return self.code.value(f"fadd reassoc double {total}, {value}")
        if kind == "b":
            return self.code.value(f"{item.name.rpartition('_')[2]} {t} {total}, {value}")
        word = item.name if kind == "f" else {"i": "s", "u": "u"}[kind] + item.name[:3]
        function = f"@llvm.{word}.{t.replace('float', 'f32').replace('double', 'f64')}"
        self.code.declared.add(f"declare {t} {function}({t}, {t})")
        return self.code.value(f"call {t} {function}({t} {total}, {t} {value})")

    def _accumulate(self, base, item, sizes, steps):
        """Emits the loops of a reduction to one number. Returns its result."""
        code, x, t, wide = self.code, item.x, _type(item.x.dtype), _wide(item)
        first = self._first(item, base)
        *outer, size = sizes
        *far, near = steps

        def inner(pointer, total):
            self.loops += 1
            n = self.loops
            code.emit(f"br label %pre{n}")
            code.label(f"pre{n}")
            code.emit(f"br label %loop{n}")
            code.label(f"loop{n}")
            code.emit(f"%i{n} = phi i64 [ 0, %pre{n} ], [ %next{n}, %loop{n} ]")
            position = len(code.lines)
            at = self._element(pointer, x, [f"%i{n}"], [near])
            value = self._fold(item, f"%s{n}", code.value(f"load {t}, ptr {at}, align {x.itemsize}"))
            code.lines.insert(position, f"  %s{n} = phi {wide} [ {total}, %pre{n} ], [ {value}, %loop{n} ]")
            code.emit(f"%next{n} = add nuw nsw i64 %i{n}, 1")
            more = code.value(f"icmp ult i64 %next{n}, {size}")
            code.emit(f"br i1 {more}, label %loop{n}, label %done{n}")
            code.label(f"done{n}")
            return value

        if not outer:
            return inner(base, first)
        code.emit(f"store {wide} {first}, ptr %sums, align 8")

        def body(indices):
            pointer = self._element(base, x, indices, far)
            total = code.value(f"load {wide}, ptr %sums, align 8")
            code.emit(f"store {wide} {inner(pointer, total)}, ptr %sums, align 8")

        self._nest(outer, body, parallel=False)
        return code.value(f"load {wide}, ptr %sums, align 8")

    def _emit_column_sums(self, item, source, target, flat, kept, inner):
        """Sums over leading axes: blocks of columns are added row by row, so that memory is read in order."""
        code, x, out = self.code, item.x, item.out
        t, wide = _type(x.dtype), _wide(item)
        *before, last = kept
        width = 64
        columns = x.shape[last]

        def block(indices, first, count):
            base = self._element(source, x, indices, [x.strides[d] for d in before])
            base = self._element(base, x, [first], [x.itemsize])

            def at_sums(j):
                return code.value(f"getelementptr inbounds {wide}, ptr %sums, i64 {j[0]}")

            def clear(j):
                code.emit(
                    f"store {wide} {self._first(item, self._element(base, x, j, [x.itemsize]))}, ptr {at_sums(j)}"
                )

            self._nest([count], clear)

            def row(at):
                pointer = self._element(base, x, at, [x.strides[d] for d in inner])

                def add(j):
                    slot = at_sums(j)
                    value = code.value(
                        f"load {t}, ptr {self._element(pointer, x, j, [x.itemsize])}, align {x.itemsize}, !llvm.access.group !2"
                    )
                    total = code.value(f"load {wide}, ptr {slot}, !llvm.access.group !2")
                    code.emit(f"store {wide} {self._fold(item, total, value)}, ptr {slot}, !llvm.access.group !2")

                self._nest([count], add)

            self._nest([x.shape[d] for d in inner], row, parallel=False)
            there = self._element(target, out, indices, flat.strides[:-1])
            there = self._element(there, out, [first], [out.itemsize])

            def store(j):
                total = code.value(f"load {wide}, ptr {at_sums(j)}")
                if item.divisor != 1:
                    total = code.value(f"fdiv double {total}, {constant(item.divisor, np.dtype('f8'))}")
                if t != wide:
                    total = code.value(f"fptrunc double {total} to {t}")
                code.emit(
                    f"store {t} {total}, ptr {self._element(there, out, j, [out.itemsize])}, align {out.itemsize}"
                )

            self._nest([count], store)

        def body(indices):
            full, rest = divmod(columns, width)
            if full:
                self._nest(
                    [full], lambda b: block(indices, code.value(f"mul nsw i64 {b[0]}, {width}"), width), parallel=False
                )
            if rest:
                block(indices, str(full * width), rest)

        self._nest([x.shape[d] for d in before], body, parallel=False)

    # -- calls

    def _emit_call(self, item):
        """Emits a call of the inner loop of a ufunc: function(addresses, sizes, steps, data)."""
        code = self.code
        values = [("args", f"ptr {self.pointer(x)}") for x in item.arrays]
        values += [("size", f"i64 {n}") for n in item.sizes] + [("steps", f"i64 {n}") for n in item.steps]
        counts = dict.fromkeys(("args", "size", "steps"), 0)
        for name, value in values:
            code.emit(
                f"store {value}, ptr {code.value(f'getelementptr inbounds i64, ptr %{name}, i64 {counts[name]}')}, align 8"
            )
            counts[name] += 1
        function = code.value(f"inttoptr i64 {item.address} to ptr")
        data = code.value(f"inttoptr i64 {item.data} to ptr") if item.data else "null"
        code.emit(f"call void {function}(ptr %args, ptr %size, ptr %steps, ptr {data})")

    def text(self, name):
        """Returns the function in LLVM's language."""
        bases = [line for lines in self.bases.values() for line in lines]
        head = [
            f"define void @{name}(ptr %list) {{",
            "entry:",
            f"  %listed = getelementptr inbounds i8, ptr %list, i64 {_ITEMS}",
            "  %items = load ptr, ptr %listed, align 8",
            "  %args = alloca [4 x ptr], align 16",
            "  %steps = alloca [9 x i64], align 16",
            "  %size = alloca [4 x i64], align 16",
            *bases,
        ]
        self.module.declared |= self.code.declared
        return "\n".join([*head, *self.code.lines, "}"])


class Module:
    """The functions of a program: one for each run, and one for each kind of loop nest in them."""

    def __init__(self):
        self.names, self.texts, self.runs = {}, [], []
        self.declared, self.loops = set(), 0

    def function(self, nest, parameters, loops):
        """Returns the name of the function of a loop nest."""
        text = "\n".join(nest.lines)
        name = self.names.get(text)
        if name is None:
            name = self.names[text] = f"nest{len(self.names)}"
            self.declared |= nest.declared
            for n in range(loops, 0, -1):
                text = text.replace(f"!loop{n}.", f"!{9 + self.loops + n}")
            self.loops += loops
            sums = "  %sums = alloca [64 x double], align 64\n" if "%sums" in text else ""
            given = ", ".join(f"ptr %p{i}" for i in range(parameters))
            self.texts.append(
                f"define internal void @{name}({given}) noinline {{\nentry:\n{sums}{text}\n  ret void\n}}"
            )
        return name

    def add(self, run):
        """Adds the function of a run. Returns its name."""
        name = f"run{len(self.runs)}"
        self.runs.append(run.text(name))
        return name

    def build(self):
        """Compiles the functions. Returns {name of a run: function of the address of a list of arrays}."""
        loops = [f"!{9 + n} = distinct !{{!{9 + n}, !1, !3}}" for n in range(1, self.loops + 1)]
        # Without !3, LLVM unrolls short loops completely before it vectorizes loops.
        metadata = [
            *loops,
            '!1 = !{!"llvm.loop.parallel_accesses", !2}',
            "!2 = distinct !{}",
            '!3 = !{!"llvm.loop.unroll.disable"}',
        ]
        return build(
            "\n".join([*self.texts, *self.runs, *sorted(self.declared), *metadata]),
            [f"run{i}" for i in range(len(self.runs))],
        )


def _collapsed(sizes, strides):
    """Merges loops over memory that all arrays traverse contiguously."""
    sizes, strides = list(sizes), [list(s) for s in strides]
    d = len(sizes) - 2
    while d >= 0:
        if sizes[d] == 1 or sizes[d + 1] == 1 or all(s[d] == s[d + 1] * sizes[d + 1] for s in strides):
            for s in strides:
                s[d] = s[d] if sizes[d + 1] == 1 else s[d + 1]
                del s[d + 1]
            sizes[d] *= sizes[d + 1]
            del sizes[d + 1]
        d -= 1
    return sizes or [1], [s or [0] for s in strides]


@functools.cache
def _target():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


def _machine():
    """Returns a new description of this processor. An engine owns the one that it gets."""
    features = llvm.get_host_cpu_features().flatten()
    return _target().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)


_engines = []  # keeps the code alive


def build(text, names, kind=ctypes.CFUNCTYPE(None, ctypes.c_void_p)):
    """Compiles a module. Returns {name: function}, by default functions of the address of a list of arrays."""
    with _lock:
        module = llvm.parse_assembly(text)
        machine = _machine()
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(3)
        for name in ("loop_vectorization", "slp_vectorization", "loop_interleaving", "loop_unrolling"):
            setattr(options, name, True)
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(module, passes)
        engine = llvm.create_mcjit_compiler(module, _machine())
        engine.finalize_object()
        _engines.append(engine)
        return {name: kind(engine.get_function_address(name)) for name in names}


def available():
    """Returns True if machine code can be made: llvmlite is installed, on a 64-bit system, and not disabled.

    `MYTORCH_COMPILE=numpy` disables it.
    """
    usable = llvm is not None and hasattr(llvm, "create_pass_builder") and ctypes.sizeof(ctypes.c_void_p) == 8
    return usable and os.environ.get("MYTORCH_COMPILE") != "numpy"
