"""The class of the namespaces `xp` that ops are written over, and the namespace of NumPy.

An op is written once, over a namespace `xp` with NumPy's names. `numpy_ns` is for arrays in CPU memory, and `cupy_ns` (gpu.py)
is for arrays on a GPU. A third one over Tensors (`autograd/tensor_ns.py`) differentiates gradient formulas. This
file and gpu.py hide the differences between NumPy and CuPy, so that no op needs to check its device.
"""

import functools
import itertools
import math
import warnings

import numpy as np

from . import blocks, special
from .einsum import einsum

ndarray = np.ndarray


# 1/0, log(0) and inf - inf are values here, as in PyTorch, without a warning. The filter applies only to
# this library's modules, so NumPy's settings and the user's code are not changed.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"mytorch\.")


class Namespace:
    """An array module with additional functions that have priority. Names are looked up in the module once.

    Attributes:
        half_in_float32: ops on half precision compute in float32 and round once, see ops/dispatch/half.py.
    """

    half_in_float32 = False

    def __init__(self, module, **own):
        self.module = module
        self.__dict__.update(own)

    def __getattr__(self, name):
        value = getattr(self.module, name)
        self.__dict__[name] = value
        return value

    def __repr__(self):
        return f"<namespace over {self.module.__name__}>"

    def extend(self, **functions):
        """Adds functions, and replaces functions with the same names."""
        self.__dict__.update(functions)

    def astype(self, x, dtype):
        """Returns x as the NumPy dtype `dtype`; x itself if it has this dtype."""
        return x if x.dtype == dtype else self.cast(x, dtype)

    def cast(self, x, dtype):
        """Returns a copy of x as the NumPy dtype `dtype`; the real part of complex numbers if `dtype` is real."""
        if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
            x = x.real
        return x.astype(dtype)

    def on_numpy(self, function, *arrays):
        """Calls a function of NumPy arrays. Arrays on a GPU are copied to the CPU for it."""
        if self.module is np:
            return function(*arrays)
        return self.asarray(function(*(self.asnumpy(a) for a in arrays)))

    def detach(self, x):
        """Returns x without its graph. Raw arrays have none, so this is x. Formulas use it for comparisons."""
        return x

    def conj(self, x):
        """Returns the complex conjugate; x itself if it is real or a Python number."""
        return x.conj() if getattr(x, "dtype", None) is not None and x.dtype.kind == "c" else x

    def is_complex(self, x):
        """Returns True if x has a complex dtype."""
        return x.dtype.kind == "c"

    def sign(self, x):
        """Returns -1, 0 or 1, and 0 for NaN, as PyTorch does; z / |z| for complex numbers, unlike NumPy 1 and CuPy."""
        kind = x.dtype.kind if hasattr(x, "dtype") else ""
        if kind == "f":
            return self.subtract(x > 0, x < 0, dtype=x.dtype)
        if kind == "V":
            return ((x > 0).view("int8") - (x < 0).view("int8")).astype(x.dtype)
        if kind != "c":
            return self.module.sign(x)
        size = abs(x)
        return x / self.where(size == 0, 1, size)

    def gather(self, x, index, dim):
        """Returns x's elements at `index` along `dim`, and at the same position along the other axes."""
        return x[self.grid(index, dim)]

    def add_along(self, out, index, dim, src):
        """out += src at `index` along `dim`, in place; indices may repeat."""
        self.scatter_add(out, self.grid(index, dim), src)

    def put_along(self, out, index, dim, src):
        """out = src at `index` along `dim`, in place."""
        out[self.grid(index, dim)] = src

    def max_along(self, out, index, dim, src):
        """out = maximum(out, src) at `index` along `dim`, in place."""
        self.scatter_max(out, self.grid(index, dim), src)

    def min_along(self, out, index, dim, src):
        """out = minimum(out, src) at `index` along `dim`, in place."""
        self.scatter_min(out, self.grid(index, dim), src)

    def prod_along(self, out, index, dim, src):
        """out *= src at `index` along `dim`, in place, on a CPU."""
        np.multiply.at(out, self.grid(index, dim), src)

    def add_rows(self, out, rows, values):
        """out[rows[i]] += values[i], in place. Rows are not negative and may repeat."""
        self.scatter_add(out, rows, values)

    def grid(self, index, dim):
        """Returns the full index tuple: `index` along `dim`, and the own position along the other axes."""
        indices = []
        for d, n in enumerate(index.shape):
            shape = [1] * index.ndim
            shape[d] = n
            indices.append(index if d == dim else self.arange(n).reshape(shape))
        return tuple(indices)

    def sum_of_squares(self, x, axis=None, keepdims=False):
        """Returns the sum of |x|^2 over axes."""
        return self.sum(x * x if x.dtype.kind != "c" else abs(x) ** 2, axis=axis, keepdims=keepdims)

    def sum_of_magnitudes(self, x, axis=None, keepdims=False):
        """Returns the sum of |x| over axes."""
        return self.sum(self.absolute(x), axis=axis, keepdims=keepdims)

    def squared_deviations(self, x, axis=None, keepdims=False):
        """Returns the sum of |x - mean|^2 over axes."""
        few = x.dtype.kind == "f" and (x.size < blocks.LARGE or self.kind == "cpu")
        # On a CPU, and for small arrays, float64 is exact enough and costs little.
        x = x.astype(np.float64) if few else x
        total = self.sum(x, axis=axis, keepdims=True)
        n = max(x.size // max(total.size, 1), 1)
        centered = x - total / n
        squares = self.sum_of_squares(centered, axis, keepdims=keepdims)
        if few:
            return squares
        # Corrects the rounding error of the mean (Chan, Golub and LeVeque, 1983).
        residual = self.absolute(self.sum(centered, axis=axis, keepdims=keepdims))
        return self.maximum(squares - residual * residual / n, 0)

    def call(self, op, *arrays, **attrs):
        """Runs another op's forward within a forward or a formula. Returns its first output."""
        out = op.call_within(self, *arrays, **attrs)
        return out[0] if op.residuals else out


def _numpy_scatter_add(x, index, values):
    """NumPy's unbuffered addition. Several index arrays are converted to flat positions, because NumPy has a fast loop for them."""
    if type(index) is tuple and len(index) == x.ndim > 1 and x.flags.c_contiguous and values.dtype == x.dtype:
        if all(getattr(i, "dtype", np.dtype(bool)).kind in "iu" for i in index) and values.size >= blocks.LARGE:
            flat = np.ravel_multi_index(np.broadcast_arrays(*index), x.shape, mode="wrap")
            if flat.shape == values.shape:
                x, index, values = x.reshape(-1), flat.reshape(-1), values.reshape(-1)
    if x.itemsize > 2 or x.dtype.kind not in "fV":
        np.add.at(x, index, values)
    else:
        wide = x.astype(np.float32)
        np.add.at(wide, index, values.astype(np.float32))
        x[...] = wide


def _numpy_add_rows(out, rows, values):
    """Adds rows: sorts them and sums each run of equal rows at once, which is faster than unbuffered addition."""
    if len(rows) < 32 or values.shape[1] < 4 or values.itemsize == 2:
        _numpy_scatter_add(out, rows, values)
        return
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(starts, append=len(rows))
    once = counts == 1
    single, several = order[starts[once]], order[np.repeat(~once, counts)]
    out[rows[single]] += values[single]  # sums of one row would take longer
    if several.size:
        starts = np.cumsum(counts[~once]) - counts[~once]
        out[rows[several[starts]]] += np.add.reduceat(values[several], starts, axis=0)


def _numpy_einsum(spec, *arrays):
    """Einstein sum: by matrix products if they are faster, by NumPy's loops for integers and small arrays."""
    if arrays[0].dtype.kind in "fc" and sum(a.size for a in arrays) > 2048:
        return einsum(numpy_ns, spec, *arrays)
    return np.einsum(spec, *arrays, optimize=len(arrays) > 2)


def _numpy_matmul(a, b, out=None):
    """NumPy's product. Half precision is multiplied in float32, since NumPy has no fast routine for it."""
    if a.dtype.itemsize == 2 and a.dtype.kind in "fV":
        product = numpy_ns.half_product(a, b)
        if out is None:
            return product
        out[...] = product
        return out
    if a.size * b.shape[-1] > 9216:  # BLAS may use several threads
        return numpy_ns.large_product(a, b, out)
    return np.matmul(a, b, out)


def _half_product(a, b, bias=None):
    product = _numpy_matmul(numpy_ns.cast(a, np.float32), numpy_ns.cast(b, np.float32))
    if bias is not None:
        product += bias
    return numpy_ns.cast(product, a.dtype)


def _numpy_add_matmul(total, a, b):
    """total += a @ b."""
    total += _numpy_matmul(a, b)


def _numpy_sum(x, axis=None, dtype=None, keepdims=False):
    """NumPy's sum without its Python wrapper. Half precision is summed in float32."""
    if x.size < blocks.LARGE and (x.itemsize != 2 or dtype is not None):
        return np.add.reduce(x, axis, dtype, None, keepdims)
    return numpy_ns.large_sum(x, axis, dtype, keepdims)


def _large_sum(x, axis=None, dtype=None, keepdims=False):
    if dtype is None and x.dtype.itemsize == 2 and x.dtype.kind in "fV":
        return numpy_ns.cast(np.asarray(numpy_ns.sum(numpy_ns.cast(x, np.float32), axis, None, keepdims)), x.dtype)
    if dtype is None and x.dtype.kind in "iu":
        return numpy_ns.large_reduction(_sum_of_integers, x, axis, keepdims, np.add)
    return blocks.add_reduce(x, axis, dtype, keepdims)


def _sum_of_integers(x, axis, keepdims):
    return np.add.reduce(x, axis, None, None, keepdims)


def _numpy_where(condition, x, y):
    """NumPy's `where`; large arrays use `large_where`."""
    large = getattr(condition, "size", 0) >= blocks.LARGE
    return numpy_ns.large_where(condition, x, y) if large else np.where(condition, x, y)


def ascontiguousarray(x):
    """NumPy's `ascontiguousarray`, with faster copies of large arrays."""
    if x.size < blocks.LARGE or x.flags.c_contiguous:
        return np.ascontiguousarray(x)
    out = np.empty(x.shape, x.dtype)
    numpy_ns.large_copy(out, x, blocks.write_row_major)
    return out


def reshape(x, shape):
    """NumPy's `reshape`, with faster copies of large arrays."""
    return blocks.reshape(x, shape, ascontiguousarray)


def _reduction(ufunc):
    """Returns a reduction by a NumPy ufunc without NumPy's Python wrapper."""
    exact = None if ufunc is np.multiply else ufunc

    def plain(x, axis, keepdims):
        return ufunc.reduce(x, axis, None, None, keepdims)

    def reduce(x, axis=None, keepdims=False):
        if x.size >= blocks.LARGE:
            return numpy_ns.large_reduction(plain, x, axis, keepdims, exact)
        return ufunc.reduce(x, axis, None, None, keepdims)

    return reduce


def _position(method):
    """Returns `argmax` or `argmin` from the method of NumPy arrays."""

    def plain(x, axis, keepdims):
        if axis is None or axis in (-1, x.ndim - 1):
            return method(x, axis, None, keepdims=keepdims)
        # NumPy moves the axis to the end, too, but with a slower copy.
        found = method(ascontiguousarray(np.moveaxis(x, axis, -1)), -1)
        return np.expand_dims(found, axis) if keepdims else found

    def position(x, axis=None, keepdims=False):
        if x.size >= blocks.LARGE:
            return numpy_ns.large_reduction(plain, x, axis, keepdims)
        return method(x, axis, None, keepdims=keepdims)

    return position


def _numpy_running_best(x, axis, largest):
    """Returns the position of the largest (or smallest) element so far along an axis; of equal ones the last. NaN wins."""
    x = np.moveaxis(x, axis, 0)
    best = (np.maximum if largest else np.minimum).accumulate(x, 0)
    # Position where x equals the running best, otherwise 0; a running maximum then gives the last of these positions.
    positions = ((x == best) | (x != x)) * np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1))
    return np.ascontiguousarray(np.moveaxis(np.maximum.accumulate(positions, 0), 0, axis))


def _numpy_mean(x, axis=None, keepdims=False):
    """NumPy's mean, by `_numpy_sum`."""
    total = _numpy_sum(x, axis, None, keepdims)
    return total / (x.size // max(total.size, 1)) if total.size else total


def _numpy_reciprocal(x):
    """NumPy's reciprocal; large arrays of floats by a division, for which NumPy has vector instructions."""
    return np.true_divide(1, x) if x.size >= blocks.LARGE and x.dtype.kind == "f" else np.reciprocal(x)


def _numpy_broadcast_to(x, shape):
    """NumPy's broadcast view, read-only if it repeats elements, with a fast path for contiguous x, such as gradients of sums."""
    added = len(shape) - x.ndim
    if type(x) is ndarray and x.flags.c_contiguous and x.size and x.dtype.kind != "V" and added >= 0:
        strides = [0] * added
        for n, target, stride in zip(x.shape, shape[added:], x.strides, strict=True):
            if n == target:
                strides.append(stride)
            elif n == 1:
                strides.append(0)
            else:
                return np.broadcast_to(x, shape)  # raises NumPy's error
        out = ndarray(shape, x.dtype, x, 0, strides)
        if out.size != x.size:
            out.flags.writeable = False
        return out
    out = np.broadcast_to(x, shape)
    return x.reshape(shape) if out.size == x.size and out.size else out


def duplicate(x, order="C"):
    """Returns x.copy(order). Large arrays on the CPU are copied by several threads."""
    if type(x) is not ndarray or x.size < blocks.SHARED:
        return x.copy(order)
    out = np.empty_like(x, order=order)
    numpy_ns.large_copy(out, x)
    return out


def concatenate(arrays, axis=0):
    """NumPy's `concatenate`. Large arrays are copied by several threads."""
    first = arrays[0]
    if all(x.size < blocks.SHARED for x in arrays) or any(
        x.dtype != first.dtype or x.ndim != first.ndim for x in arrays
    ):
        return np.concatenate(arrays, axis)
    axis %= first.ndim
    ends = list(itertools.accumulate([x.shape[axis] for x in arrays]))
    out, prefix = (
        np.empty((*first.shape[:axis], ends[-1], *first.shape[axis + 1 :]), first.dtype),
        (slice(None),) * axis,
    )
    for x, end in zip(arrays, ends, strict=True):
        numpy_ns.large_copy(out[(*prefix, slice(end - x.shape[axis], end))], x)
    return out


def _numpy_stack(arrays, axis=0):
    """NumPy's `stack` without its checks."""
    prefix = (slice(None),) * (axis if axis >= 0 else axis + arrays[0].ndim + 1)
    return concatenate([x[(*prefix, None)] for x in arrays], len(prefix))


@functools.lru_cache(64)
def _own_places(shape, dim):
    """Returns the positions along each axis except `dim`, shaped to broadcast to `shape`."""
    return [np.arange(n).reshape(n, *(1,) * (len(shape) - d - 1)) if d != dim else None for d, n in enumerate(shape)]


def _numpy_grid(index, dim):
    """`Namespace.grid` with a cache, since the same shapes occur repeatedly."""
    indices = list(_own_places(index.shape, dim))
    indices[dim] = index
    return tuple(indices)


def _numpy_expand_dims(x, axis):
    """NumPy's `expand_dims` for one axis, without its Python wrapper."""
    at = axis if axis >= 0 else axis + x.ndim + 1
    return x.reshape((*x.shape[:at], 1, *x.shape[at:]))


def _numpy_nonzero(x):
    """NumPy's `nonzero`, which is fast for a vector of bools, and slow for several axes and other dtypes."""
    vector = np.ravel(x)
    rest, found = np.nonzero(vector if x.dtype.kind == "b" else vector != 0)[0], []
    for size in x.shape[:0:-1]:  # from the last axis
        whole = rest // size
        found.append(rest - whole * size)
        rest = whole
    return rest, *reversed(found)


def _numpy_take_along_axis(x, index, axis):
    """NumPy's `take_along_axis`, with a fast path for one element per row."""
    if x.ndim == 2 and axis in (-1, 1) and index.shape == (len(x), 1):
        return x[np.arange(len(x))[:, None], index]
    return np.take_along_axis(x, index, axis)


numpy_ns = Namespace(
    np,
    kind="cpu",
    half_in_float32=True,
    all=_reduction(np.logical_and),
    any=_reduction(np.logical_or),
    argmax=_position(ndarray.argmax),
    argmin=_position(ndarray.argmin),
    broadcast_to=_numpy_broadcast_to,
    expand_dims=_numpy_expand_dims,
    squeeze=lambda x, axis: x.squeeze(axis),
    take_along_axis=_numpy_take_along_axis,
    nonzero=_numpy_nonzero,
    running_best=_numpy_running_best,
    concatenate=concatenate,
    cumsum=functools.partial(blocks.accumulate, np.add),
    cumprod=functools.partial(blocks.accumulate, np.multiply),
    max=_reduction(np.maximum),
    # NumPy's own functions compute one element at a time.
    deg2rad=lambda x: x * (math.pi / 180),
    rad2deg=lambda x: x * (180 / math.pi),
    reciprocal=_numpy_reciprocal,
    mean=_numpy_mean,
    min=_reduction(np.minimum),
    prod=_reduction(np.multiply),
    matmul=_numpy_matmul,
    large_product=np.matmul,  # kernels/blas.py replaces this function
    half_product=_half_product,
    add_matmul=_numpy_add_matmul,
    reshape=reshape,
    ascontiguousarray=ascontiguousarray,
    tril=blocks.tril,
    triu=blocks.triu,
    where=_numpy_where,
    grid=_numpy_grid,
    # kernels/arrays.py replaces the next four.
    flipped=lambda x, axes: np.flip(x, axes).copy(),
    take_last=lambda x, rows: x.take(rows, -1),
    large_copy=lambda out, x, write=blocks.write: write(out, x),
    large_reduction=lambda reduce, x, axis, keepdims, merge=None: reduce(x, axis, keepdims),
    large_where=blocks.where,
    stack=_numpy_stack,
    top=blocks.top,
    sum=_numpy_sum,
    large_sum=_large_sum,
    swapaxes=ndarray.swapaxes,
    transpose=ndarray.transpose,
    erf=special.erf,
    erfc=special.erfc,
    fmod=special.fmod,
    remainder=special.remainder,
    floor_divide=special.floor_divide,
    scatter_add=_numpy_scatter_add,
    add_rows=_numpy_add_rows,
    scatter_max=np.maximum.at,
    scatter_min=np.minimum.at,
    einsum=_numpy_einsum,
)
ON_NUMPY = {numpy_ns}  # namespaces whose functions run on NumPy arrays; traces add another one
