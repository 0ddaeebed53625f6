"""Ops that reduce axes: sums, means, extremes, norms; and running sums."""

import math
import operator
from collections import namedtuple

import numpy as np

from .._tensor import is_tensor
from ..base import dtypes
from ..base.errors import kind, warn
from ..dispatch.bind import public
from ..dispatch.op import op
from .elementwise import cast, documented, named
from .elementwise import maximum as _maximum
from .elementwise import minimum as _minimum


def normalize_dims(dim, ndim, name):
    """The axes that `dim` names (None, an int, or several) as a sorted tuple of non-negative ints, or None.

    Raises:
        IndexError: an axis is out of range.
        RuntimeError: an axis is named twice.
    """
    if dim is None or (isinstance(dim, (tuple, list)) and not len(dim)):
        return None
    if not isinstance(dim, (tuple, list)):
        return (normalize_dim(dim, ndim),)
    dims = tuple(dim)
    found = tuple(sorted(normalize_dim(d, ndim) for d in dims))
    if len(set(found)) != len(found):
        raise RuntimeError(f"{name}: dim {dims} appears multiple times in the list of dims")
    return found


def normalize_dim(dim, ndim):
    """One axis as a non-negative int; a 0-d tensor has the axes 0 and -1, as in PyTorch.

    Raises:
        IndexError: it is out of range.
        TypeError: it is not an int.
    """
    if type(dim) is int and -ndim <= dim < ndim:
        return dim + ndim if dim < 0 else dim
    bound = ndim or 1
    try:
        d = operator.index(dim)
    except TypeError:
        raise TypeError(f"argument 'dim' must be int, not {kind(dim)} ({dim!r}).") from None
    if not -bound <= d < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {d})")
    return d + bound if d < 0 else d


def axes_of(dim, ndim):
    """`dim` for NumPy: a 0-d array has no axis 0."""
    return None if dim is None or ndim == 0 else dim


def spread(xp, g, shape, dim, keepdim):
    """Repeat a reduced array along the axes that were reduced."""
    if dim is not None and not keepdim:
        g = xp.reshape(g, tuple(1 if i in dim else n for i, n in enumerate(shape)) if len(shape) else ())
    elif dim is None and len(shape):
        g = xp.reshape(g, (1,) * len(shape))
    return xp.broadcast_to(g, shape)


def to_acc_type(xp, x):
    """16-bit floats as float32: sums are accumulated there, as PyTorch does."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def count(shape, dim):
    """How many elements are reduced into one."""
    return math.prod(shape) if dim is None else math.prod(shape[d] for d in dim) if shape else 1


@op(dtype="same", name="sum", autocast="float32")
def _sum(xp, input, *, dim=None, keepdim=False):
    if input.dtype.kind in "fc" and input.dtype.itemsize != 2:
        return xp.sum(input, dim if input.ndim else None, keepdims=keepdim)
    if input.dtype.kind == "b":
        return xp.asarray(xp.count_nonzero(input), np.int64)
    x = to_acc_type(xp, input)
    return xp.sum(x, axis=axes_of(dim, x.ndim), keepdims=keepdim).astype(input.dtype, copy=False)


_sum.grad(input=lambda g, shape, dim, keepdim, xp: spread(xp, g, shape, dim, keepdim))


@public(inplace=False)
def sum(input, dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=None):
    """The sum over all elements, or over the axes `dim`.

    Integers and bools are summed as int64; `dtype` casts before summing.

    Args:
        dim: an axis or several; None for all. keepdim: keep the reduced axes, with size 1.
        dtype: to which input is cast first.

    Example:
        >>> x = tensor([[1, 2, 3], [4, 5, 6]])
        >>> mytorch.sum(x).item(), mytorch.sum(x, 0).tolist()
        (21, [5, 7, 9])
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    elif input.dtype.category < dtypes.FLOAT:
        counted = input.dtype.category == dtypes.BOOL and dim is None and not keepdim
        input = input if counted else cast(input, dtypes.int64)
    return _sum.fast_call(input, dim if dim is None else normalize_dims(dim, input.ndim, "sum"), keepdim)


@op(dtype="same", name="mean")
def _mean(xp, input, *, dim=None, keepdim=False):
    x = to_acc_type(xp, input)
    n = count(x.shape, dim)
    total = xp.sum(x, axis=axes_of(dim, x.ndim), keepdims=keepdim)
    return (total / n if n else total * math.nan).astype(input.dtype, copy=False)


_mean.grad(
    input=lambda g, shape, dim, keepdim, xp: spread(xp, g * (1 / max_(count(shape, dim), 1)), shape, dim, keepdim)
)


def max_(a, b):
    """Python's max; the module's own `max` is the op."""
    return a if a > b else b


@public(inplace=False)
def mean(input, dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=None):
    """The mean over all elements, or over the axes `dim`.

    Args:
        dim: an axis or several; None for all. keepdim: keep the reduced axes, with size 1.
        dtype: to which input is cast first.

    Raises:
        RuntimeError: input holds integers and no floating point `dtype` is given.

    Example:
        >>> mytorch.mean(tensor([[1.0, 2.0], [3.0, 6.0]]), 1, keepdim=True).tolist()
        [[1.5], [4.5]]
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    elif input.dtype.category < dtypes.FLOAT:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {input.dtype.name}"
        )
    return _mean.fast_call(input, dim if dim is None else normalize_dims(dim, input.ndim, "mean"), keepdim)


@op(dtype="same", name="var")
def _var(xp, input, *, dim=None, keepdim=False, correction=1):
    x = to_acc_type(xp, input)
    n = count(x.shape, dim)
    total = xp.squared_deviations(x, axes_of(dim, x.ndim), keepdims=keepdim)
    free = n - correction
    if free <= 0:
        warn(
            "var(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
            "divided by output numel)."
        )
    return (total / free if free > 0 else total * math.nan).astype(total.dtype if x.dtype.kind == "c" else input.dtype)


def _var_grad(g, input, shape, dim, keepdim, correction, xp):
    mean = xp.mean(input, axis=axes_of(dim, len(shape)), keepdims=True)
    free = count(shape, dim) - correction
    scale = 2.0 / free if free > 0 else math.nan
    return spread(xp, g * scale, shape, dim, keepdim) * (input - mean)


_var.grad(input=_var_grad)


def _correction(unbiased, correction, dim):
    """PyTorch's two spellings: `unbiased` (also as the only positional argument) and `correction`."""
    if isinstance(dim, bool):
        unbiased, dim = dim, None
    if unbiased is not None and correction is not None:
        raise TypeError("var: give either unbiased or correction, not both.")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    return correction, dim


@public(inplace=False)
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None, axis=None, keepdims=None):
    """The variance over `dim`: squared deviations from the mean, summed, over (n - correction).

    Args:
        dim: the axes; all by default.
        correction: 1 (Bessel's) by default; `unbiased=False` is correction=0.

    Example:
        >>> mytorch.var(tensor([1.0, 2.0, 3.0])).item()
        1.0
    """
    correction, dim = _correction(unbiased, correction, dim if axis is None else axis)
    keepdim = keepdim if keepdims is None else keepdims
    return _var.fast_call(input, normalize_dims(dim, input.ndim, "var"), keepdim, correction)


@public(inplace=False)
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None, axis=None, keepdims=None):
    """The square root of `var`; its gradient is 0, not NaN, where the deviation is 0.

    Args:
        dim: an axis or several; None for all. keepdim: keep the reduced axes, with size 1.
        correction: the sum of squares is divided by n - correction; 1 by default. unbiased: correction 1 or 0.

    Example:
        >>> mytorch.std(tensor([1.0, 3.0]), correction=0).item()
        1.0
    """
    return _root(var(input, dim, unbiased, keepdim, correction=correction, axis=axis, keepdims=keepdims))


@op(dtype="float", name="std")
def _root(xp, input):
    return xp.sqrt(input)


_root.grad(input=lambda g, out, xp: xp.where(out == 0, 0.0, g / (out * 2)))


@public(inplace=False)
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(variance, mean) over `dim`.

    Args:
        dim: the axes; all if None.
        unbiased: correction=1 if True, 0 if False.
        correction: what is taken off the number of elements; 1 by default.
    """
    fixed, axes = _correction(unbiased, correction, dim)
    return var(input, axes, keepdim=keepdim, correction=fixed), mean(input, axes, keepdim)


@public(inplace=False)
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(standard deviation, mean) over `dim`.

    Args:
        dim: the axes; all if None.
        unbiased: correction=1 if True, 0 if False.
        correction: what is taken off the number of elements; 1 by default.
    """
    fixed, axes = _correction(unbiased, correction, dim)
    return std(input, axes, keepdim=keepdim, correction=fixed), mean(input, axes, keepdim)


# -- products and running sums ----------------------------------------------------------------------------


@op(dtype="same", name="cumsum", autocast="float32")
def _cumsum(xp, input, *, dim, reverse=False):
    if input.ndim == 0:
        return input.copy()
    x = to_acc_type(xp, input)
    if reverse:
        return xp.flip(xp.cumsum(xp.flip(x, dim), axis=dim), dim).astype(input.dtype, copy=False)
    return xp.cumsum(x, axis=dim).astype(input.dtype, copy=False)


_cumsum.grad(input=lambda g, dim, reverse, xp: xp.call(_cumsum, g, dim=dim, reverse=not reverse))


@public()
def cumsum(input, dim=None, *, dtype=None, axis=None):
    """The running sum along one axis.

    Args:
        dim: the axis. dtype: to which input is cast first.

    Example:
        >>> mytorch.cumsum(tensor([1, 2, 3]), 0).tolist()
        [1, 3, 6]
    """
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    elif input.dtype.category < dtypes.FLOAT:
        input = cast(input, dtypes.int64)
    return _cumsum(input, dim=normalize_dim(dim if axis is None else axis, input.ndim))


# -- extremes ----------------------------------------------------------------------------------------------


def _refuse_empty(input, dims, name):
    if 0 in (input.shape if dims is None else [input.shape[d] for d in dims if d < input.ndim]):
        wanted = "be specified for input.numel() == 0" if dims is None else "have non-zero size"
        error = RuntimeError if dims is None and name in ("max", "min") else IndexError
        raise error(f"{name}(): Expected reduction dim to {wanted}; the tensor has shape {tuple(input.shape)}.")


def _extreme(name, of, word, example):
    """(record, function) of amax or amin: the extreme over any axes; ties share the gradient."""

    @op(dtype="same", name=name)
    def record(xp, input, *, dim=None, keepdim=False):
        return getattr(xp, of)(input, axis=axes_of(dim, input.ndim), keepdims=keepdim)

    def gradient(g, input, out, shape, dim, keepdim, xp):
        best = input == spread(xp, out, shape, dim, keepdim)
        best = xp.astype(best, g.dtype)
        ties = xp.sum(best, axis=axes_of(dim, len(shape)), keepdims=True)
        return spread(xp, g, shape, dim, keepdim) * (best / ties)

    @public(inplace=False)
    @named(
        name,
        documented(f"The {word} value over some axes.\n\nArgs:\n    dim: the axes; all by default.", name, example),
    )
    def extreme(input, dim=(), keepdim=False):
        dims = normalize_dims(dim, input.ndim, name)
        _refuse_empty(input, dims, name)
        return record.fast_call(input, dims, keepdim)

    return record.grad(input=gradient), extreme


_amax, amax = _extreme("amax", "max", "largest", "[[1.0, 5.0], [7.0, 2.0]]; 1 -> [5.0, 7.0]")
_amin, amin = _extreme("amin", "min", "smallest", "[[1.0, 5.0], [7.0, 2.0]]; 1 -> [1.0, 2.0]")


def _indexed(name, arg):
    """max, min along one axis with their positions; the gradient goes to that position."""

    @op(dtype="same", outputs=("values", "indices"), name=name)
    def extreme(xp, input, *, dim, keepdim=False):
        if input.ndim == 0:
            return input.copy(), xp.zeros((), np.int64)
        where = xp.expand_dims(getattr(xp, arg)(input, axis=dim), dim)
        values = xp.take_along_axis(input, where, axis=dim)
        if not keepdim:
            values, where = xp.squeeze(values, dim), xp.squeeze(where, dim)
        return values, where

    return extreme.grad(input=lambda g, indices, shape, dim, keepdim, xp: place(xp, g, indices, shape, dim, keepdim))


def place(xp, g, indices, shape, dim, keepdim):
    """Zeros of `shape` with g at `indices` along the axis `dim`."""
    if not len(shape):
        return g
    if not keepdim:
        g, indices = xp.expand_dims(g, dim), xp.expand_dims(indices, dim)
    return xp.call(put_along, g, indices, shape=shape, dim=dim)


@op(dtype="same", integers=("index",))
def put_along(xp, src, index, *, shape, dim):
    """Zeros of `shape`, with src written at distinct `index` along `dim`."""
    out = xp.zeros(shape, src.dtype)
    xp.put_along_axis(out, index, src, axis=dim)
    return out


put_along.grad(src=lambda g, index, dim, xp: xp.take_along_axis(g, index, axis=dim))

_max, _min = _indexed("max", "argmax"), _indexed("min", "argmin")
return_types = {name: namedtuple(name, ("values", "indices")) for name in ("max", "min")}


def _max_or_min(name, word, along, over_all, of_two, example):
    text = (
        f"The {word} element; with `dim`, a named tuple (values, indices) along that axis; with another tensor, "
        f"the elementwise {name}imum."
    )

    @public(inplace=False)
    @named(name, documented(text, name, example))
    def extreme(input, dim=None, keepdim=False, *, other=None, axis=None, keepdims=None):
        if axis is not None or keepdims is not None:
            dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
        if is_tensor(dim):
            other = dim
        if other is not None:
            return of_two(input, other)
        if dim is None:
            _refuse_empty(input, None, name)
            return over_all(input)
        d = normalize_dim(dim, input.ndim)
        _refuse_empty(input, (d,), name)
        return return_types[name](*along(input, dim=d, keepdim=keepdim))

    return extreme


max = _max_or_min("max", "largest", _max, _amax.named("Max").fast_call, _maximum.fast_call, "[[1, 5], [7, 2]] -> 7")
min = _max_or_min("min", "smallest", _min, _amin.named("Min").fast_call, _minimum.fast_call, "[[1, 5], [7, 2]] -> 1")


def _arg(name, word, example):
    @op(dtype="same", name=name)
    def position(xp, input, *, dim=None, keepdim=False):
        if dim is None or input.ndim == 0:
            found = xp.asarray(getattr(xp, name)(input))
            return found.reshape((1,) * input.ndim) if keepdim else found
        found = xp.asarray(getattr(xp, name)(input, axis=dim))
        return xp.expand_dims(found, dim) if keepdim else found

    @public(inplace=False)
    @named(name, documented(f"The index (int64) of the {word} element, of all or along `dim`.", name, example))
    def arg(input, dim=None, keepdim=False, *, axis=None, keepdims=None):
        dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
        d = None if dim is None else normalize_dim(dim, input.ndim)
        _refuse_empty(input, None if d is None else (d,), name)
        return position.fast_call(input, d, keepdim)

    return arg


argmax = _arg("argmax", "largest", "[[1, 5], [7, 2]]; 1 -> [1, 0]")
argmin = _arg("argmin", "smallest", "[[1, 5], [7, 2]]; 1 -> [0, 1]")


def _truth(name, example):
    @op(dtype="same", name=name)
    def test(xp, input, *, dim=None, keepdim=False):
        true = input if input.dtype.kind == "b" else input != 0
        return xp.asarray(getattr(xp, name)(true, axes_of(dim, input.ndim), keepdims=keepdim))

    @public(inplace=False)
    @named(name, documented(f"Whether {name} element is nonzero, of all or along `dim`.", name, example))
    def truth(input, dim=None, keepdim=False, *, axis=None, keepdims=None):
        dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
        none = isinstance(dim, (tuple, list)) and not dim  # no axis at all, where other reductions take every one
        found = input != 0 if none else test.fast_call(input, normalize_dims(dim, input.ndim, name), keepdim)
        return cast(found, dtypes.uint8) if input.dtype is dtypes.uint8 else found  # as PyTorch

    return truth


all = _truth("all", "[[0, 1], [2, 3]]; 1 -> [False, True]")
any = _truth("any", "[[0, 1], [0, 0]]; 1 -> [True, False]")


@public(inplace=False)
def count_nonzero(input, dim=None):
    """How many elements are not zero, in all or along `dim`.

    Example:
        >>> mytorch.count_nonzero(tensor([[0, 1], [2, 3]]), 0).tolist()
        [1, 2]
    """
    return (input if input.dtype.category == dtypes.BOOL else input != 0).sum(dim)


# -- log-sum-exp and norms -----------------------------------------------------------------------------------


@op(dtype="float", name="logsumexp", autocast="float32")
def _logsumexp(xp, input, *, dim=None, keepdim=False):
    axis = axes_of(dim, input.ndim)
    if not input.size:
        return xp.log(xp.sum(input, axis=axis, keepdims=keepdim))
    peak = xp.max(xp.real(input) if xp.is_complex(input) else input, axis=axis, keepdims=True)
    peak = xp.where(xp.isfinite(peak), peak, peak.dtype.type(0))
    total = xp.log(xp.sum(xp.exp(input - peak), axis=axis, keepdims=True)) + peak
    return total if keepdim or (dim is None and input.ndim == 0) else xp.squeeze(total, axis)


_logsumexp.grad(
    input=lambda g, input, out, shape, dim, keepdim, xp: (
        spread(xp, g, shape, dim, keepdim)
        * xp.exp(input - spread(xp, xp.where(xp.isfinite(xp.detach(out)), out, 0.0), shape, dim, keepdim))
    )
)


@public(inplace=False)
def logsumexp(input, dim, keepdim=False):
    """log(sum(exp(input))) over the axes `dim`, without overflow.

    Args:
        dim: the axes.

    Example:
        >>> mytorch.logsumexp(tensor([1000.0, -1000.0]), 0).item()
        1000.0
    """
    return _logsumexp.fast_call(input, normalize_dims(dim, input.ndim, "logsumexp"), keepdim)


@op(dtype="float", name="norm", autocast="float32")
def vector_norm(xp, input, *, ord=2.0, dim=None, keepdim=False):
    """The ord-norm of the elements along `dim`: (sum of |x|^ord)^(1/ord), with the limits at 0 and infinity."""
    x = to_acc_type(xp, input)
    axis = axes_of(dim, x.ndim)
    x = xp.absolute(x) if ord != 2 or x.dtype.kind not in "fV" else x
    if ord == math.inf:
        out = xp.max(x, axis=axis, keepdims=keepdim)
    elif ord == -math.inf:
        out = xp.min(x, axis=axis, keepdims=keepdim)
    elif ord == 0:
        out = xp.sum((x != 0).astype(x.dtype), axis=axis, keepdims=keepdim)
    elif ord == 1:
        out = xp.sum(x, axis=axis, keepdims=keepdim)
    elif ord == 2:
        out = xp.sqrt(xp.sum_of_squares(x, axis, keepdims=keepdim))
    else:
        out = xp.sum(x**ord, axis=axis, keepdims=keepdim) ** (1 / ord)
    return xp.asarray(out).astype(
        x.dtype if x.dtype.itemsize != 4 or input.dtype.itemsize != 2 else input.dtype, copy=False
    )


def _norm_grad(g, input, out, shape, ord, dim, keepdim, xp):
    if ord == 2:
        return input * spread(xp, xp.where(out == 0, 0.0, g / xp.where(out == 0, 1.0, out)), shape, dim, keepdim)
    g, norm = spread(xp, g, shape, dim, keepdim), spread(xp, out, shape, dim, keepdim)
    if ord in (math.inf, -math.inf):
        best = xp.astype(xp.abs(input) == norm, g.dtype)
        ties = xp.sum(best, axis=axes_of(dim, len(shape)), keepdims=True)
        return g * xp.sign(input) * (best / ties)
    if ord == 0:
        return input * 0
    if ord == 1:
        return g * xp.sign(input)
    safe = xp.where(norm == 0, 1.0, norm)
    magnitude = xp.abs(input)
    magnitude = xp.where(magnitude == 0, 1.0, magnitude)
    return g * xp.where(input == 0, 0.0, xp.sign(input) * magnitude ** (ord - 1) * safe ** (1 - ord))


vector_norm.grad(input=_norm_grad)
