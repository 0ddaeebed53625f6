"""NumPy functions in blocks for large arrays: `where` and transposed copies stay in the cache, and sums are more accurate.

NumPy uses pairwise summation only along the axis with the smallest stride. Along other axes it adds one row after the other, so
float32 loses a digit for each factor of 10 in length. Here, such an axis is summed in groups of 16, then the sums again, and so on.
"""

import numpy as np

LARGE = 1 << 13  # from this number of elements on, blocks are faster than one call of NumPy's function
SHARED = 1 << 16  # from this number of elements on, several threads can copy faster than one
KEYED = 1 << 10  # from this number of elements on, sorting integer keys is faster than a stable argsort
# Functions of NumPy that kernels/numba/rows.py computes; np.positive stands for a copy.
OF_TWO = np.add, np.subtract, np.multiply, np.true_divide
OF_ONE = np.positive, np.negative, np.absolute, np.square, np.reciprocal, np.sqrt, np.floor, np.ceil, np.trunc, np.rint
_BLOCK = 1 << 14  # elements of a block of `by_bits`: three blocks of float32 fit into the second-level cache
_GROUP = 16  # elements of a group of a sum
_STRIP = 64  # rows of a strip of a triangle
_BITS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def as_bits(x):
    """Returns a view of x as integers of its item size; x itself if there is no such integer dtype."""
    return x.view(_BITS[x.itemsize]) if x.itemsize in _BITS else x


def chosen(condition, x, y):
    """Returns x and y as flat arrays of one dtype or one element, for `by_bits`; None if NumPy's `where` should be used."""
    if type(condition) is not np.ndarray or condition.dtype != bool or not condition.flags.c_contiguous:
        return None
    dtype = next((a.dtype for a in (x, y) if type(a) is np.ndarray and a.ndim), None)
    if dtype is None or dtype.kind not in "fV" or dtype.itemsize not in _BITS:
        return None
    operands = []
    for a in (x, y):
        if isinstance(a, (int, float)):
            operands.append(np.full(1, a, dtype))
        elif getattr(a, "dtype", None) != dtype or not (
            a.size == 1 or (a.shape == condition.shape and a.flags.c_contiguous)
        ):
            return None
        else:
            operands.append(np.asarray(a).reshape(-1))
    return operands


def where(condition, x, y):
    """NumPy's `where` for large arrays. Floats are selected by bit operations, since NumPy's loop suffers from mispredicted branches."""
    parts = chosen(condition, x, y)
    return np.where(condition, x, y) if parts is None else by_bits(condition, *parts)


def by_bits(condition, x, y):
    """Selects between the operands that `chosen` returned, without branches: y ^ ((x ^ y) & mask)."""
    out = np.empty(condition.size, x.dtype)
    mask, buffer = condition.reshape(-1).view(np.int8), np.empty(_BLOCK, _BITS[x.itemsize])
    x, y, bits = as_bits(x), as_bits(y), as_bits(out)
    for start in range(0, out.size, _BLOCK):
        part = slice(start, min(start + _BLOCK, out.size))
        to, m = bits[part], buffer[: part.stop - start]
        a, b = (v if v.size == 1 else v[part] for v in (x, y))
        # True = 1 becomes -1, all bits set; False stays 0.
        np.negative(mask[part], out=m, dtype=m.dtype)
        np.bitwise_xor(a, b, out=to)
        to &= m
        to ^= b
    return out.reshape(condition.shape)


def write(out, x):
    """Copies x into an array."""
    out[...] = x


def write_row_major(out, x):
    """Copies x into a contiguous array of its shape and dtype.

    Rows without gaps are copied as single elements. Transposed arrays are copied in strips of a cache line, if the elements of a row
    map to the same few sets of the cache: for strides that are multiples of a high power of two, and for large matrices. Images with
    a few channels are copied channel by channel.
    """
    width, step, few = max(32 // x.itemsize, 1), x.strides[-1], x.shape[-1] <= 4
    conflicts = step % (512 if x.ndim == 2 else 2048) == 0 or (x.ndim == 2 and x.nbytes >= 1 << 25)
    in_columns = any(s == x.itemsize and n >= width for s, n in zip(x.strides, x.shape, strict=True))
    if step == x.itemsize:
        row = f"V{x.itemsize * x.shape[-1]}"
        out.view(row)[...] = x.view(row)
        return
    if not in_columns or not (few or conflicts):
        out[...] = x
        return
    width = 1 if few else width
    for start in range(0, x.shape[-1], width):
        out[..., start : start + width] = x[..., start : start + width]


def reshape(x, shape, ascontiguousarray):
    """NumPy's `reshape`. If a copy is necessary, it is made by `ascontiguousarray`."""
    if x.size < LARGE or x.flags.c_contiguous:
        return x.reshape(shape)
    try:
        return np.reshape(x, shape, copy=False)
    except (TypeError, ValueError):  # TypeError: NumPy before 2.1 has no `copy`
        return ascontiguousarray(x).reshape(shape) if _KNOWS_COPY else x.reshape(shape)


_KNOWS_COPY = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def tril(x, k=0):
    """NumPy's `tril`. In large matrices, the part left of the diagonal is copied in strips of rows, and only the rest is masked."""
    return _triangle(np.tril, x, k, lambda start, stop: slice(0, start))


def triu(x, k=0):
    """NumPy's `triu`, computed like `tril`."""
    return _triangle(np.triu, x, k, lambda start, stop: slice(stop, None))


def _triangle(by_mask, x, k, full):
    """Computes a triangle in strips: copies the columns `full(start, stop)`, and calls `by_mask` for columns on the diagonal."""
    if x.size < 8 * LARGE or x.shape[-1] < 4 * _STRIP:
        return by_mask(x, k)
    out = np.zeros(x.shape, x.dtype)
    rows, columns = x.shape[-2:]
    for top in range(0, rows, _STRIP):
        strip = (..., slice(top, top + _STRIP))
        # The diagonal crosses columns start … stop of this strip of rows.
        start, stop = (min(max(r + k, 0), columns) for r in (top, min(top + _STRIP, rows)))
        for part, copied in ((full(start, stop), True), (slice(start, stop), False)):
            to, source = out[(*strip, part)], x[(*strip, part)]
            to[...] = source if copied else by_mask(source, top + k - start)
    return out


def add_reduce(x, axis, dtype=None, keepdims=False):
    """np.add.reduce, with floats of large arrays summed in groups along all axes except the one with the smallest stride."""
    if x.size < LARGE or x.dtype.kind not in "fc":
        return np.add.reduce(x, axis, dtype, None, keepdims)
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    fastest = min((abs(s) for s, n in zip(x.strides, x.shape, strict=True) if n > 1), default=0)
    # One axis at a time: `_in_groups` calls this function again for the remaining axes.
    for a in axes:
        if x.shape[a] > 2 * _GROUP and abs(x.strides[a]) > fastest:
            a %= x.ndim
            if axis is None and _all_in_one(x):
                break
            return _in_groups(x, a, axis, dtype, keepdims)
    return np.add.reduce(x, axis, dtype, None, keepdims)


def _all_in_one(x):
    """Returns True if NumPy sums all of x as one axis, which is pairwise."""
    return x.flags.c_contiguous or x.flags.f_contiguous


def _in_groups(x, a, axis, dtype, keepdims):
    """Returns the sum over `axis`, with axis a summed in groups of 16 first."""
    prefix, full = (slice(None),) * a, x.shape[a] // _GROUP * _GROUP
    groups = x[(*prefix, slice(0, full))].reshape(*x.shape[:a], full // _GROUP, _GROUP, *x.shape[a + 1 :])
    sums = np.add.reduce(groups, a + 1, dtype)
    # Very long axes: the few remaining sums are added in float64.
    if sums.dtype == np.float32 and sums.shape[a] >= 1024:
        total = add_reduce(sums.astype(np.float64), axis, None, keepdims)
    else:
        total = add_reduce(sums, axis, dtype, keepdims)
    if full < x.shape[a]:
        total = total + np.add.reduce(x[(*prefix, slice(full, None))], axis, dtype, None, keepdims)
    return total.astype(sums.dtype, copy=False)


def sort_keys(x, descending=False):
    """Returns int64 keys that sort like x along its last axis, with the element's position in the lower 32 bits.

    The positions keep the order of ties, and make argsort a plain sort. Returns None if x is small, contains NaN, or needs more
    than 32 bits.
    """
    if x.size < KEYED or x.shape[-1] >= 1 << 31 or x.dtype.kind not in "fViu":
        return None
    if x.dtype.kind in "fV":
        if x.itemsize > 4 or np.isnan(x).any():
            return None
        bits = (x.astype(np.float32) + np.float32(0)).view(np.int32)  # adding 0 turns -0 into 0
        # Floats sort like their bits as integers, except that negative ones are reversed: flip their lower bits.
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
    """Returns the sorted positions of the k largest or smallest along the last axis; None if a full sort is as fast."""
    keys = sort_keys(x, largest) if 0 < k < x.shape[-1] // 4 else None
    if keys is None:
        return None
    keys.partition(k - 1, -1)
    return np.sort(keys[..., :k], -1) & 0xFFFFFFFF


def kth(x, place):
    """Returns the position of the element of rank `place` in each row, with a stable order; None as in `sort_keys`."""
    keys = sort_keys(x)
    if keys is not None:
        keys.partition(place, -1)
        keys = keys[..., place] & 0xFFFFFFFF
    return keys


def accumulate(ufunc, x, axis=None):
    """Returns running sums or products. float32 accumulates in float64, like PyTorch."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    wide = np.float64 if x.dtype == np.float32 else np.complex128 if x.dtype == np.complex64 else None
    return ufunc.accumulate(x, axis) if wide is None else ufunc.accumulate(x, axis, wide).astype(x.dtype)
