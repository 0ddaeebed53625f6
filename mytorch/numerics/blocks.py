"""NumPy's functions in blocks, for large arrays: choices and transposed copies stay in cache, and sums keep their digits.

NumPy adds pairwise along the fastest axis alone; along others it adds one row after the other, so that float32 loses a digit
with every tenfold length. Here such an axis is added in groups of 16, their sums again in blocks, and so on.
"""

import numpy as np

LARGE = 1 << 13  # elements from which a way other than NumPy's own is worth its calls
_BLOCK = 1 << 14
_GROUP = 16
_STRIP = 64  # rows
_BITS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def as_bits(x):
    """x seen as integers of its size; x itself if it holds such or has no such size."""
    return x.view(_BITS[x.itemsize]) if x.itemsize in _BITS else x


def chosen(condition, x, y):
    """x and y as flat arrays of one dtype, or of one element, for a choice by `condition`; None if NumPy is to choose."""
    if type(condition) is not np.ndarray or condition.dtype != bool or not condition.flags.c_contiguous:
        return None
    kind = next((a.dtype for a in (x, y) if type(a) is np.ndarray and a.ndim), None)
    if kind is None or kind.kind not in "fV" or kind.itemsize not in _BITS:
        return None
    found = []
    for a in (x, y):
        if isinstance(a, (int, float)):
            found.append(np.full(1, a, kind))
        elif getattr(a, "dtype", None) != kind or not (
            a.size == 1 or (a.shape == condition.shape and a.flags.c_contiguous)
        ):
            return None
        else:
            found.append(np.asarray(a).reshape(-1))
    return found


def where(condition, x, y):
    """NumPy's `where` for large arrays: floats are chosen by their bits, as NumPy's loop stumbles over conditions that alternate."""
    parts = chosen(condition, x, y)
    return np.where(condition, x, y) if parts is None else by_bits(condition, *parts)


def by_bits(condition, x, y):
    """What `chosen` gave, chosen: y ^ ((x ^ y) & mask)."""
    out = np.empty(condition.size, x.dtype)
    mask, whole = condition.reshape(-1).view(np.int8), np.empty(_BLOCK, _BITS[x.itemsize])
    x, y, bits = as_bits(x), as_bits(y), as_bits(out)
    for start in range(0, out.size, _BLOCK):
        part = slice(start, min(start + _BLOCK, out.size))
        to, m = bits[part], whole[: part.stop - start]
        a, b = (v if v.size == 1 else v[part] for v in (x, y))
        np.negative(mask[part], out=m, dtype=m.dtype)
        np.bitwise_xor(a, b, out=to)
        to &= m
        to ^= b
    return out.reshape(condition.shape)


def ascontiguousarray(x):
    """NumPy's; what lies in columns is copied in strips of a cache line where that is quicker, an image's few colours one by one.

    It is where elements of a row fall into the same few sets of the cache: by strides of a high power of two, and in large matrices.
    """
    if x.size < LARGE or x.flags.c_contiguous:
        return np.ascontiguousarray(x)
    width, step, few = max(32 // x.itemsize, 1), x.strides[-1], x.shape[-1] <= 4
    falls_together = step % (512 if x.ndim == 2 else 2048) == 0 or (x.ndim == 2 and x.nbytes >= 1 << 25)
    in_columns = any(s == x.itemsize and n >= width for s, n in zip(x.strides, x.shape, strict=True))
    if step == x.itemsize or not in_columns or not (few or falls_together):
        return np.ascontiguousarray(x)
    out = np.empty(x.shape, x.dtype)
    width = 1 if few else width
    for start in range(0, x.shape[-1], width):
        out[..., start : start + width] = x[..., start : start + width]
    return out


def reshape(x, shape):
    """NumPy's; a copy that can't be avoided is made as `ascontiguousarray` makes it."""
    if x.size < LARGE or x.flags.c_contiguous:
        return x.reshape(shape)
    try:
        return np.reshape(x, shape, copy=False)
    except (TypeError, ValueError):  # NumPy before 2.1 knows no `copy`
        return ascontiguousarray(x).reshape(shape) if _KNOWS_COPY else x.reshape(shape)


_KNOWS_COPY = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def tril(x, k=0):
    """NumPy's; of large matrices what lies left of the diagonal is copied in strips of rows, and only the rest chosen."""
    return _triangle(np.tril, x, k, lambda start, stop: slice(0, start))


def triu(x, k=0):
    """NumPy's, as `tril`."""
    return _triangle(np.triu, x, k, lambda start, stop: slice(stop, None))


def _triangle(by_mask, x, k, whole):
    """A triangle in strips: of each, the columns `whole(start, stop)` as they are, `by_mask` on those that the diagonal crosses."""
    if x.size < 8 * LARGE or x.shape[-1] < 4 * _STRIP:
        return by_mask(x, k)
    out = np.zeros(x.shape, x.dtype)
    rows, columns = x.shape[-2:]
    for top in range(0, rows, _STRIP):
        strip = (..., slice(top, top + _STRIP))
        start, stop = (min(max(r + k, 0), columns) for r in (top, min(top + _STRIP, rows)))
        for part, copied in ((whole(start, stop), True), (slice(start, stop), False)):
            to, of = out[(*strip, part)], x[(*strip, part)]
            to[...] = of if copied else by_mask(of, top + k - start)
    return out


def add_reduce(x, axis, dtype=None, keepdims=False):
    """np.add.reduce; floats in large arrays are added in blocks along every axis but the fastest."""
    if x.size < LARGE or x.dtype.kind not in "fc":
        return np.add.reduce(x, axis, dtype, None, keepdims)
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    fastest = min((abs(s) for s, n in zip(x.strides, x.shape, strict=True) if n > 1), default=0)
    for a in axes:
        if x.shape[a] > 2 * _GROUP and abs(x.strides[a]) > fastest:
            a %= x.ndim
            if axis is None and _all_in_one(x):
                break
            return _in_groups(x, a, axis, dtype, keepdims)
    return np.add.reduce(x, axis, dtype, None, keepdims)


def _all_in_one(x):
    """Whether NumPy sees all of x as one axis."""
    return x.flags.c_contiguous or x.flags.f_contiguous


def _in_groups(x, a, axis, dtype, keepdims):
    """The sum, with axis a in groups first."""
    lead, whole = (slice(None),) * a, x.shape[a] // _GROUP * _GROUP
    groups = x[(*lead, slice(0, whole))].reshape(*x.shape[:a], whole // _GROUP, _GROUP, *x.shape[a + 1 :])
    sums = np.add.reduce(groups, a + 1, dtype)
    if sums.dtype == np.float32 and sums.shape[a] >= 1024:
        total = add_reduce(sums.astype(np.float64), axis, None, keepdims)
    else:
        total = add_reduce(sums, axis, dtype, keepdims)
    if whole < x.shape[a]:
        total = total + np.add.reduce(x[(*lead, slice(whole, None))], axis, dtype, None, keepdims)
    return total.astype(sums.dtype, copy=False)


def sort_keys(x, descending=False):
    """int64 keys along the last axis, which order as x does and hold each element's position in their lower half, so that ties
    keep their order; None where x is small, holds NaN, or more than 32 bits say."""
    if x.size < LARGE or x.shape[-1] >= 1 << 31 or x.dtype.kind not in "fViu":
        return None
    if x.dtype.kind in "fV":
        if x.itemsize > 4 or np.isnan(x).any():
            return None
        bits = (x.astype(np.float32) + np.float32(0)).view(np.int32)  # -0 is 0
        bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    else:
        low, high = int(x.min()), int(x.max())
        if high - low >= 1 << 31:
            return None
        bits = x - x.dtype.type(low) if low else x
    keys = (~bits if descending and x.dtype.kind in "fV" else (high - low) - bits if descending else bits).astype(
        np.int64
    )
    keys <<= 32
    keys |= np.arange(x.shape[-1])
    return keys


def top(x, k, largest):
    """The positions of the k largest or smallest along the last axis, in order; None where a whole sort is as good."""
    keys = sort_keys(x, largest) if 0 < k < x.shape[-1] // 4 else None
    if keys is None:
        return None
    keys.partition(k - 1, -1)
    return np.sort(keys[..., :k], -1) & 0xFFFFFFFF


def kth(x, place):
    """The position of the element at `place` in the order of each row, of equal ones in theirs; None as `sort_keys`."""
    keys = sort_keys(x)
    if keys is not None:
        keys.partition(place, -1)
        keys = keys[..., place] & 0xFFFFFFFF
    return keys


def accumulate(ufunc, x, axis=None):
    """Running sums or products, float32 ones with float64 in between, as PyTorch's."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    wide = np.float64 if x.dtype == np.float32 else np.complex128 if x.dtype == np.complex64 else None
    return ufunc.accumulate(x, axis) if wide is None else ufunc.accumulate(x, axis, wide).astype(x.dtype)
