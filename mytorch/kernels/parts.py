"""The one place that divides NumPy's work on large arrays among the library's threads.

NumPy computes on one thread. Since an element of an elementwise function depends on no other element, and a row of a reduction on no
other row, both can be computed part by part, on several threads. A ufunc writes each part into the result. A function that is composed of
several steps returns a new array, which is copied, so a composed function of one step is not divided.

A call is divided if it takes long enough, see `threads.pays`.

The results have the same bits in both cases and for any number of threads: the parts begin at multiples of 64 elements, so that
vector instructions process the same elements together.
"""

import math
import sys
from functools import lru_cache, partial

import numpy as np

from ..arrays import blocks, memory_format
from . import threads
from .registry import ROWS

LEAST = blocks.SHARED  # elements of a result from which dividing can pay
BLOCK = 1 << 17  # most elements of a part of a composed function: its intermediate results stay in the cache
STEPS = 2  # a composed function pays `threads.WORTH` for each part and step, so it needs as many times that
_FEATURES = getattr(sys.modules.get("numpy._core._multiarray_umath"), "__cpu_features__", {})
# Functions that NumPy computes one number at a time on this processor, and their numbers of operands. numba/vectors.py computes several.
SCALAR: dict[str, int] = {}
if sys.platform == "linux" and _FEATURES.get("AVX2") and not _FEATURES.get("AVX512_SKX"):
    SCALAR = dict.fromkeys("exp expm1 exp2 log log1p log2 log10 sin cos tan sinh cosh tanh".split(), 1)
    SCALAR |= dict.fromkeys("arcsin arccos arctan arcsinh arccosh arctanh".split(), 1)
    SCALAR["arctan2"] = 2
# Elementwise ops of one step that is not a ufunc, or that is a compiled function, which divides its work itself.
WHOLE = frozenset("clamp deg2rad erf erfc hardtanh rad2deg reciprocal round sign where".split())
WHOLE |= {name.replace("arc", "a") for name in SCALAR}
_BY_ROWS: frozenset[np.ufunc] = frozenset(blocks.OF_TWO + blocks.OF_ONE)  # functions with a kernel


def elementwise(name, function, *operands, ufunc=None):
    """Returns function(*operands) for a function in which each element depends on the elements at the same position.

    Args:
        name: what the function is known by; calls with the same name and dtype are expected to take the same time.
        function: a ufunc, or a composed function, which may raise or return an operand.
        operands: NumPy arrays, which broadcast, and values of other types.
        ufunc: the ufunc that does the same for floats, or None.
    """
    arrays = [a for a in operands if type(a) is np.ndarray]
    step = function if ufunc is None else ufunc
    if (result := by_rows(step, operands)) is not None:
        return result
    if threads.get_num_threads() == 1 or not arrays:
        return function(*operands)
    size, key = broadcast_size(*[a.shape for a in arrays]), (name, max(arrays, key=np.size).dtype)
    pays = threads.pays(key, size, 1 if type(step) is np.ufunc else STEPS)
    if size < LEAST or not pays:
        return threads.undivided(pays, key, max(size, 1), function, *operands)
    arrays = [a for a in operands if _is_array(a)]
    if ufunc is not None:
        floats = all(a.dtype.kind == "f" and a.itemsize > 2 for a in operands if type(a) is np.ndarray)
        function = ufunc if floats else function
    single = type(function) is np.ufunc
    shape = arrays[0].shape
    flat = all(a.flags.c_contiguous and a.shape == shape for a in arrays)
    if not flat:
        try:
            shape = np.broadcast_shapes(*[a.shape for a in arrays])
        except ValueError:
            return function(*operands)  # raises NumPy's error
    size = math.prod(shape)
    count = _count(size) if single else max(threads.get_num_threads(), -(-size // BLOCK))
    example = _example(function, operands)
    base = getattr(example, "base", None)
    if type(example) is not np.ndarray or any(base is a or base is a.base is not None for a in arrays):
        return function(*operands)
    if flat:
        to = out = np.empty(shape, example.dtype)
    else:
        # PyTorch's order of axes in memory, with the outermost axis first.
        strides = memory_format.iterated_strides(shape, operands)
        axes = tuple(sorted(range(len(shape)), key=lambda axis: (-strides[axis], shape[axis] > 1)))
        to = np.empty([shape[axis] for axis in axes], example.dtype)
        out = to.transpose(memory_format.inverse(axes))
        operands = [
            a.reshape((1,) * (to.ndim - a.ndim) + a.shape).transpose(axes) if _is_array(a) else a for a in operands
        ]
    threads.run(partial(_into if single else _copied, function), _cut(count, to, operands))
    return out


def by_rows(function, operands, out=None):
    """Returns function(*operands) or writes it into `out` by a kernel; None if there is none for these arrays."""
    if function not in _BY_ROWS or function.nin != len(operands) or type(operands[0]) is not np.ndarray:
        return None
    x = operands[0]
    if len(operands) == 2:
        y = operands[1]
        if type(y) in (int, float) and x.dtype.kind == "f":
            y = np.asarray(y, x.dtype)
        if type(y) is not np.ndarray:
            return None
        operands = x, y
    size = broadcast_size(*[a.shape for a in (*operands, *(() if out is None else (out,)))])
    if not size or (out is not None and size != out.size):
        return None  # NumPy raises an error
    kernel = ROWS.find("cpu", None, operands, {"out": out, "function": function})
    return None if kernel is None else kernel.forward(np, *operands, out=out, function=function)


@lru_cache(1024)
def broadcast_size(*shapes):
    """Returns the number of elements of arrays of these shapes after broadcasting; 0 for shapes that do not broadcast."""
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return 0


def _example(function, operands):
    """Returns the result for empty operands, which has the dtype of the result. None if the function does not accept them."""
    try:
        return function(*[a[(slice(0),) * a.ndim] if _is_array(a) else a for a in operands])
    except Exception:
        return None


def _is_array(a):
    return type(a) is np.ndarray and a.ndim > 0


def update(function, out, *operands):
    """Calls a ufunc with `out=`. An operand may be `out` itself, and any other one that shares memory with it is read before the first write."""
    key, can = (function, out.dtype), _can_divide(out, operands)
    if can and by_rows(function, operands, out) is not None:
        return
    pays = threads.pays(key, out.size)
    if pays and can:
        threads.run(partial(_into, function), _cut(_count(out.size), out, operands))
    else:
        threads.undivided(pays, key, out.size, function, *operands, out=out)


def assign(out, source, write=blocks.write):
    """Executes write(out, source), by default out[...] = source."""
    key, can = (write, out.dtype, getattr(source, "dtype", None)), _can_divide(out, (source,))
    if can and by_rows(np.positive, (source,), out) is not None:
        return
    pays = threads.pays(key, out.size)
    if pays and can:
        threads.run(write, _cut(_count(out.size), out, (source,)))
    else:
        threads.undivided(pays, key, out.size, write, out, source)


def copied(x, dtype=None, order="K"):
    """Returns a copy of an array, as `x.astype(dtype, order)`."""
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    if x.size < LEAST or threads.get_num_threads() == 1:
        return x.astype(dtype, order)
    key = blocks.write, dtype, x.dtype
    pays = threads.pays(key, x.size)
    if not pays:
        return threads.undivided(pays, key, x.size, x.astype, dtype, order)
    out = np.empty_like(x, dtype, order)
    assign(out, x)
    return out


def rows(function, x, axis, keepdims, merge=None):
    """Returns function(x, axis, keepdims), a reduction.

    The parts are ranges of an axis that is not reduced. If the order of the elements does not matter, they may also be ranges of a reduced
    axis, and a ufunc merges their results.

    Args:
        axis: an axis, a tuple of axes, or None for all.
        merge: the ufunc, or None if the order matters.
    """
    if x.size < LEAST or threads.get_num_threads() == 1:
        return function(x, axis, keepdims)
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in (axis if type(axis) is tuple else (axis,))]
    usable = [a for a in range(x.ndim) if x.shape[a] > 1 and (merge is not None or a not in axes)]
    if not usable:
        return function(x, axis, keepdims)
    key = function, x.dtype, x.ndim - 1 in axes
    pays = threads.pays(key, x.size)
    if not pays:
        return threads.undivided(pays, key, x.size, function, x, axis, keepdims)
    along = max(usable, key=lambda a: abs(x.strides[a]))
    calls = _slices(_count(x.size), along, x, ())
    parts = [None] * len(calls)

    def reduce(i, part):
        parts[i] = function(part, axis, keepdims)

    threads.run(reduce, [(i, part) for i, (part,) in enumerate(calls)])
    if along in axes:
        return merge.reduce(np.stack(parts), 0)
    return np.concatenate(parts, along if keepdims else along - sum(a < along for a in axes))


def _count(size):
    """Returns the number of parts of a ufunc's work: two for each thread, so that a busy core delays only a part."""
    return min(2 * threads.get_num_threads(), max(2 * size // LEAST, 2))


def _can_divide(out, operands):
    """Returns True if a write into `out` can be divided: it is large, and no part overlaps what another part reads or writes."""
    if out.size < LEAST or threads.get_num_threads() == 1:
        return False
    extent = out.itemsize
    for step, n in sorted((abs(step), n) for step, n in zip(out.strides, out.shape, strict=True) if n > 1):
        if step < extent:  # `out` may overlap itself
            return False
        extent += step * (n - 1)
    for a in operands:
        if _is_array(a) and (a.ndim > out.ndim or (not _is_same(a, out) and np.may_share_memory(a, out))):
            return False
    return True


def _is_same(a, b):
    """Returns True if two arrays are the same elements of the same memory."""
    if a is b:
        return True
    start, other = (x.__array_interface__["data"][0] for x in (a, b))
    return start == other and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype


def _cut(count, out, operands):
    """Returns the arguments of the calls of about `count` parts: a part of `out`, and the parts of the operands, which broadcast."""
    shape, values = out.shape, (out, *operands)
    arrays = list(map(_is_array, values))
    if all(not sliced or (a.flags.c_contiguous and a.shape == shape) for a, sliced in zip(values, arrays, strict=True)):
        values = [(a.reshape(-1) if sliced else a, sliced) for a, sliced in zip(values, arrays, strict=True)]
        step = -(-out.size // (64 * count)) * 64
        return [
            [a[start : start + step] if sliced else a for a, sliced in values] for start in range(0, out.size, step)
        ]
    # The outermost axis that is long enough keeps the parts contiguous.
    order = sorted(range(out.ndim), key=lambda axis: -abs(out.strides[axis]))
    along = next((a for a in order if shape[a] >= count), max(order, key=lambda a: shape[a]))
    return _slices(count, along, out, operands)


def _slices(count, along, out, operands):
    size = out.shape[along]
    step = -(-size // count)
    if out.strides[along] == out.itemsize:
        step = -(-step // 64) * 64
    columns = []
    for a in (out, *operands):
        axis = along - out.ndim + a.ndim if _is_array(a) else -1
        if axis < 0 or a.shape[axis] == 1 != size:
            columns.append([a] * -(-size // step))
        else:
            before = (slice(None),) * axis
            columns.append([a[(*before, slice(start, start + step))] for start in range(0, size, step)])
    return list(zip(*columns, strict=True))


def _into(function, out, *operands):
    function(*operands, out=out)


def _copied(function, out, *operands):
    out[...] = function(*operands)
