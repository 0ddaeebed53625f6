"""Reductions: sums, means, extremes, norms, and running sums."""

import functools
import math
import operator
from collections import namedtuple

import numpy as np

from ..arrays import dtypes, numpy_ns
from ..arrays.errors import kind, warn
from ..arrays.namespaces import duplicate
from ..arrays.tensor import is_tensor
from .dispatch.bind import METHODS, public
from .dispatch.half import is_half
from .dispatch.inplace import in_place
from .dispatch.op import op
from .elementwise import cast, named, shown
from .elementwise import maximum as _maximum
from .elementwise import minimum as _minimum


def normalize_dims(dim, ndim, name):
    """Returns the axes that `dim` selects (None, an int, or several) as a sorted tuple of non-negative ints, or None.

    Raises:
        IndexError: an axis is out of range.
        RuntimeError: an axis occurs twice.
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
    """Returns one axis as a non-negative int. As in PyTorch, a 0-d tensor has the axes 0 and -1.

    Raises:
        IndexError: the axis is out of range.
        TypeError: the axis is not an int.
    """
    if type(dim) is int and -ndim <= dim < ndim:
        return dim + ndim if dim < 0 else dim
    bound = ndim or 1
    try:
        d = operator.index(None if type(dim) is bool else dim)
    except TypeError:
        raise TypeError(f"argument 'dim' must be int, not {kind(dim)} ({dim!r}).") from None
    if not -bound <= d < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {d})")
    return d + bound if d < 0 else d


def axes_of(dim, ndim):
    """Returns `dim` for NumPy, where a 0-d array has no axis 0."""
    return None if dim is None or ndim == 0 else dim


def spread(xp, g, shape, dim, keepdim):
    """Repeats a reduced array along the reduced axes."""
    if dim is not None and not keepdim:
        g = xp.reshape(g, tuple(1 if i in dim else n for i, n in enumerate(shape)) if len(shape) else ())
    elif dim is None and len(shape):
        g = xp.reshape(g, (1,) * len(shape))
    return xp.broadcast_to(g, shape)


def to_acc_type(x):
    """Returns 16-bit floats as float32, for computations outside of ops."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def count(shape, dim):
    """Returns the number of elements that are reduced to one element."""
    return math.prod(shape) if dim is None else math.prod(shape[d] for d in dim) if shape else 1


@op(dtype="same", name="sum", autocast="float32", half="forward")
def _sum(xp, input, *, dim=None, keepdim=False):
    if input.dtype.kind == "b":
        return xp.asarray(xp.count_nonzero(input), np.int64)
    total = xp.sum(input, dim if input.ndim else None, keepdims=keepdim)
    return total if input.dtype.kind in "fc" else total.astype(input.dtype, copy=False)


_sum.grad(input=lambda g, shape, dim, keepdim, xp: spread(xp, g, shape, dim, keepdim))


@public(inplace=False)
def sum(input, dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=None):
    """Sums all elements, or the elements along one or more dimensions. Integers and bools are summed as int64.

    Args:
        dim: dimension or dimensions to reduce (default: None, all).
        dtype: dtype to which `input` is cast first (default: None).

    Example:
        >>> x = tensor([[1, 2, 3], [4, 5, 6]])
        >>> mytorch.sum(x).item(), mytorch.sum(x, 0).tolist()
        (21, [5, 7, 9])
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
    boolean = dtype is not None and dtypes.as_dtype(dtype) is dtypes.bool_
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    if boolean or (dtype is None and input.dtype.category < dtypes.FLOAT):
        counted = input.dtype.category == dtypes.BOOL and dim is None and not keepdim
        input = input if counted else cast(input, dtypes.int64)
    out = _sum.fast_call(input, dim if dim is None else normalize_dims(dim, input.ndim, "sum"), keepdim)
    return cast(out, dtypes.bool_) if boolean else out


@op(dtype="same", name="mean", half="forward")
def _mean(xp, input, *, dim=None, keepdim=False):
    n = count(input.shape, dim)
    total = xp.sum(input, axis=axes_of(dim, input.ndim), keepdims=keepdim)
    return (total / n if n else total * math.nan).astype(input.dtype, copy=False)


def _mean_grad(g, shape, dim, keepdim, xp):
    # Each element of the gradient has separate memory, as in PyTorch, which divides after it repeats.
    part = 1 / max_(count(shape, dim), 1)
    if xp is numpy_ns:
        return duplicate(spread(xp, np.asarray(g * part, g.dtype), shape, dim, keepdim))
    return spread(xp, g, shape, dim, keepdim) * part


_mean.grad(input=_mean_grad)


def max_(a, b):
    """Python's `max`; `max` in this module is the op."""
    return a if a > b else b


def for_means(input, dtype, name="mean"):
    """Returns the input of a mean in the dtype of the result.

    Raises:
        RuntimeError: the dtype is neither floating-point nor complex.
    """
    given = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    if given.category < dtypes.FLOAT:
        raise RuntimeError(
            f"{name}(): could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a floating point "
            f"or complex dtype. Got: {given.name}"
        )
    return input if dtype is None else cast(input, given)


def accumulated(input, dtype, name=None):
    """Returns the input of a product or a cumulative sum in the dtype of the result: the given one, or int64 for integers.

    Args:
        name: name of a function that refuses bool.

    Raises:
        NotImplementedError: the function refuses the dtype.
    """
    if dtype is None:
        return cast(input, dtypes.int64) if input.dtype.category < dtypes.FLOAT else input
    if name is not None and dtypes.as_dtype(dtype) is dtypes.bool_:
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'. Use another dtype.")
    return cast(input, dtypes.as_dtype(dtype))


@public(inplace=False)
def mean(input, dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=None):
    """Averages all elements, or the elements along one or more dimensions.

    Args:
        dim: dimension or dimensions to reduce (default: None, all).
        dtype: dtype to which `input` is cast first (default: None).

    Raises:
        RuntimeError: `dtype`, or without it the dtype of `input`, is not a floating-point or complex dtype.

    Example:
        >>> mytorch.mean(tensor([[1.0, 2.0], [3.0, 6.0]]), 1, keepdim=True).tolist()
        [[1.5], [4.5]]
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
    input = for_means(input, dtype)
    return _mean.fast_call(input, dim if dim is None else normalize_dims(dim, input.ndim, "mean"), keepdim)


def _variance(xp, input, dim, keepdim, correction):
    """Returns the variance; on a CPU in float64, where squares of large or small numbers neither overflow nor vanish."""
    n = count(input.shape, dim)
    total = xp.squared_deviations(input, axes_of(dim, input.ndim), keepdims=keepdim)
    free = n - correction
    if free <= 0:
        warn(
            "var(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
            "divided by output numel)."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        return total / (free if free > 0 else 0) if n else total * math.nan


@op(dtype="same", name="var", half="everywhere")
def _var(xp, input, *, dim=None, keepdim=False, correction=1):
    total = _variance(xp, input, dim, keepdim, correction)
    return total.astype(total.dtype if input.dtype.kind == "c" else input.dtype)


def _centered(xp, input, axes):
    """Returns input - mean. The second subtraction corrects the rounding error of a large mean."""
    centered = input - xp.mean(input, axis=axes, keepdims=True)
    error = xp.mean(centered, axis=axes, keepdims=True)
    return centered - xp.where(error - error == 0, error, 0.0)  # 0 for a mean that is infinite


def _var_grad(g, input, shape, dim, keepdim, correction, xp):
    free = count(shape, dim) - correction
    centered = _centered(xp, input, axes_of(dim, len(shape)))
    if free <= 0 and dim is None:  # 2 / 0 * (input - mean)
        return g * xp.where(centered == 0, math.nan, math.inf)
    scale = 2.0 / free if free else math.inf
    return spread(xp, g * scale, shape, dim, keepdim) * centered


_var.grad(input=_var_grad)


def _correction(unbiased, correction, dim):
    """Returns the correction from PyTorch's arguments `correction` and `unbiased`, which may be the only positional argument."""
    if isinstance(dim, bool):
        unbiased, dim = dim, None
    if unbiased is not None and correction is not None:
        raise TypeError("var: give either unbiased or correction, not both.")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    return correction, dim


@public(inplace=False)
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None, axis=None, keepdims=None):
    """Computes the variance of all elements or along dimensions.

        result = sum((input - mean)^2) / (n - correction)

    Args:
        dim: dimension or dimensions to reduce (default: None, all).
        unbiased: older form of `correction`: True is 1, False is 0.
        correction: number subtracted from the number of elements n (default: 1, the unbiased variance).

    Example:
        >>> mytorch.var(tensor([1.0, 2.0, 3.0])).item()
        1.0
    """
    correction, dim = _correction(unbiased, correction, dim if axis is None else axis)
    keepdim = keepdim if keepdims is None else keepdims
    return _var.fast_call(input, normalize_dims(dim, input.ndim, "var"), keepdim, correction)


@public(inplace=False)
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None, axis=None, keepdims=None):
    """Computes the standard deviation of all elements or along dimensions: the square root of `var`.

    The gradient is 0, not NaN, where the deviation is 0.

    Args:
        dim: dimension or dimensions to reduce (default: None, all).
        unbiased: older form of `correction`: True is 1, False is 0.
        correction: number subtracted from the number of elements (default: 1).

    Example:
        >>> mytorch.std(tensor([1.0, 3.0]), correction=0).item()
        1.0
    """
    correction, dim = _correction(unbiased, correction, dim if axis is None else axis)
    keepdim = keepdim if keepdims is None else keepdims
    return _std.fast_call(input, normalize_dims(dim, input.ndim, "std"), keepdim, correction)


@op(dtype="same", name="std", half="everywhere")
def _std(xp, input, *, dim=None, keepdim=False, correction=1):
    out = xp.sqrt(_variance(xp, input, dim, keepdim, correction))
    return out if input.dtype.kind == "c" else out.astype(input.dtype)


def _std_grad(g, input, out, shape, dim, keepdim, correction, xp):
    free = count(shape, dim) - correction
    scale = xp.where(out == 0, 0.0, g * (1.0 / free if free > 0 else math.nan))
    units = _centered(xp, input, axes_of(dim, len(shape))) / spread(
        xp, xp.where(out == 0, 1.0, out), shape, dim, keepdim
    )
    return units * spread(xp, scale, shape, dim, keepdim)


_std.grad(input=_std_grad)


@public(inplace=False)
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Computes the variance and the mean of all elements or along dimensions.

    Args:
        dim: dimension or dimensions to reduce (default: None, all).
        unbiased: older form of `correction`: True is 1, False is 0.
        correction: number subtracted from the number of elements (default: 1).

    Returns:
        (variance, mean).

    Example:
        >>> var, mean = mytorch.var_mean(tensor([1.0, 2.0, 3.0]))
        >>> var.item(), mean.item()
        (1.0, 2.0)
    """
    fixed, axes = _correction(unbiased, correction, dim)
    return var(input, axes, keepdim=keepdim, correction=fixed), mean(input, axes, keepdim)


@public(inplace=False)
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Computes the standard deviation and the mean of all elements or along dimensions.

    Args:
        dim: dimension or dimensions to reduce (default: None, all).
        unbiased: older form of `correction`: True is 1, False is 0.
        correction: number subtracted from the number of elements (default: 1).

    Returns:
        (standard deviation, mean).

    Example:
        >>> std, mean = mytorch.std_mean(tensor([1.0, 2.0, 3.0]))
        >>> std.item(), mean.item()
        (1.0, 2.0)
    """
    fixed, axes = _correction(unbiased, correction, dim)
    return std(input, axes, keepdim=keepdim, correction=fixed), mean(input, axes, keepdim)


# -- products and running sums ----------------------------------------------------------------------------


@op(dtype="same", name="cumsum", autocast="float32", half="everywhere")
def _cumsum(xp, input, *, dim, reverse=False):
    if input.ndim == 0:
        return input.copy()
    if reverse:
        return xp.flip(xp.cumsum(xp.flip(input, dim), axis=dim), dim).astype(
            input.dtype
        )  # a copy has no negative strides
    return xp.cumsum(input, axis=dim).astype(input.dtype, copy=False)


_cumsum.grad(input=lambda g, dim, reverse, xp: xp.call(_cumsum, g, dim=dim, reverse=not reverse))


def in_own_dtype(function, name):
    """Binds the in-place variant of a cumulative function, which computes in the dtype of the tensor."""

    @functools.wraps(function)
    def cumulative(input, *args, dtype=None, **kwargs):
        if dtype is not None and dtypes.as_dtype(dtype) is not input.dtype:
            raise RuntimeError(
                f"Bad in-place call: input tensor dtype {dtypes.word_of(input.dtype)} and output tensor dtype "
                f"{dtypes.word_of(dtypes.as_dtype(dtype))} should match"
            )
        return function(input, *args, dtype=input.dtype, **kwargs)

    METHODS[name] = in_place(cumulative, name)


@public(inplace=False)
def cumsum(input, dim=None, *, dtype=None, axis=None):
    """Computes the cumulative sum along a dimension.

    Args:
        dim: dimension along which to sum.
        dtype: dtype to which `input` is cast first (default: None).

    Example:
        >>> mytorch.cumsum(tensor([1, 2, 3]), 0).tolist()
        [1, 3, 6]
    """
    input = accumulated(input, dtype, "cumsum")
    return _cumsum(input, dim=normalize_dim(dim if axis is None else axis, input.ndim))


in_own_dtype(cumsum, "cumsum_")


# -- extremes ----------------------------------------------------------------------------------------------


def _refuse_empty(input, dims, name):
    if 0 in (input.shape if dims is None else [input.shape[d] for d in dims if d < input.ndim]):
        wanted = "be specified for input.numel() == 0" if dims is None else "have non-zero size"
        error = RuntimeError if dims is None and name in ("amax", "amin", "aminmax", "max", "min") else IndexError
        raise error(f"{name}(): Expected reduction dim to {wanted}; the tensor has shape {tuple(input.shape)}.")


def _extreme(name, of, word, example):
    """Returns (op, function) of amax or amin. Equal elements share the gradient."""

    @op(dtype="same", name=name)
    def record(xp, input, *, dim=None, keepdim=False):
        return getattr(xp, of)(input, axis=axes_of(dim, input.ndim), keepdims=keepdim)

    def gradient(g, input, out, shape, dim, keepdim, xp):
        best = input == spread(xp, out, shape, dim, keepdim)
        best = xp.astype(best, g.dtype)
        ties = xp.sum(best, axis=axes_of(dim, len(shape)), keepdims=True)
        return spread(xp, g, shape, dim, keepdim) * (best / ties)

    @public(inplace=False)
    @named(name, word=word, **shown(name, example))
    def extreme(input, dim=(), keepdim=False):
        """Returns the {word} elements over one or more dimensions. Equal elements share the gradient evenly.

        Args:
            dim: dimension or dimensions to reduce (default: all).

        Example:
            >>> {call}
            {result}
        """
        dims = normalize_dims(dim, input.ndim, name)
        _refuse_empty(input, dims, name)
        return record.fast_call(input, dims, keepdim)

    @op(dtype="same", name=f"{of}_of_all", grad_name=of.capitalize())
    def over_all(xp, input):
        return getattr(xp, of)(input)

    def gradient_of_all(g, input, out, xp):
        best = (input == out) | ((input != input) & (out != out))  # NaN is the extreme of NaN
        return xp.where(best, g / xp.sum(xp.astype(best, g.dtype)), 0.0)

    return record.grad(input=gradient), extreme, over_all.grad(input=gradient_of_all)


_amax, amax, _max_of_all = _extreme("amax", "max", "largest", "[[1.0, 5.0], [7.0, 2.0]]; 1 -> [5.0, 7.0]")
_amin, amin, _min_of_all = _extreme("amin", "min", "smallest", "[[1.0, 5.0], [7.0, 2.0]]; 1 -> [1.0, 2.0]")


def _indexed(name, arg):
    """Returns the op of max or min along one axis with positions. The gradient goes to the position."""

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
    """Returns zeros of `shape` with g at `indices` along the axis `dim`."""
    if not len(shape):
        return g
    if not keepdim:
        g, indices = xp.expand_dims(g, dim), xp.expand_dims(indices, dim)
    return xp.call(put_along, g, indices, shape=shape, dim=dim)


@op(dtype="same", integers=("index",))
def put_along(xp, src, index, *, shape, dim):
    """Returns zeros of `shape` with src at distinct positions `index` along `dim`."""
    out = xp.zeros(shape, src.dtype)
    xp.put_along_axis(out, index, src, axis=dim)
    return out


put_along.grad(src=lambda g, index, dim, xp: xp.take_along_axis(g, index, axis=dim))

_max, _min = _indexed("max", "argmax"), _indexed("min", "argmin")
return_types = {name: namedtuple(name, ("values", "indices")) for name in ("max", "min")}


def _max_or_min(name, word, along, over_all, of_two, example):
    @public(inplace=False)
    @named(name, word=word, indices=[1, 0] if name == "max" else [0, 1], **shown(name, example))
    def extreme(input, dim=None, keepdim=False, *, other=None, axis=None, keepdims=None):
        """Returns the {word} element of a tensor, of each slice along a dimension, or of two tensors elementwise.

        Args:
            dim: dimension to reduce, or a second tensor (default: None, all elements).
            other: second tensor, for the elementwise {name}imum (default: None).

        Returns:
            A tensor. With a dimension, a named tuple (values, indices).

        Example:
            >>> {call}
            {result}
            >>> mytorch.{name}(tensor([[1, 5], [7, 2]]), dim=1).indices.tolist()
            {indices}
        """
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


max = _max_or_min("max", "largest", _max, _max_of_all.fast_call, _maximum.fast_call, "[[1, 5], [7, 2]] -> 7")
min = _max_or_min("min", "smallest", _min, _min_of_all.fast_call, _minimum.fast_call, "[[1, 5], [7, 2]] -> 1")


def _arg(name, word, example):
    @op(dtype="same", name=name)
    def position(xp, input, *, dim=None, keepdim=False):
        if dim is None or input.ndim == 0:
            found = xp.asarray(getattr(xp, name)(input))
            return found.reshape((1,) * input.ndim) if keepdim else found
        found = xp.asarray(getattr(xp, name)(input, axis=dim))
        return xp.expand_dims(found, dim) if keepdim else found

    @public(inplace=False)
    @named(name, word=word, **shown(name, example))
    def arg(input, dim=None, keepdim=False, *, axis=None, keepdims=None):
        """Returns the int64 index of the {word} element, in the flattened tensor or along a dimension.

        Args:
            dim: dimension to reduce (default: None, the flattened tensor).

        Example:
            >>> {call}
            {result}
        """
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
    @named(name, word="all elements are" if name == "all" else "any element is", **shown(name, example))
    def truth(input, dim=None, keepdim=False, *, axis=None, keepdims=None):
        """Tests if {word} nonzero.

        Args:
            dim: dimension or dimensions to reduce (default: None, all).

        Returns:
            A bool tensor; for a uint8 input, a uint8 tensor.

        Example:
            >>> {call}
            {result}
        """
        dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
        none = isinstance(dim, (tuple, list)) and not dim  # no axis at all, where other reductions take every one
        found = input != 0 if none else test.fast_call(input, normalize_dims(dim, input.ndim, name), keepdim)
        return cast(found, dtypes.uint8) if input.dtype is dtypes.uint8 else found  # as PyTorch

    return truth


all = _truth("all", "[[0, 1], [2, 3]]; 1 -> [False, True]")
any = _truth("any", "[[0, 1], [0, 0]]; 1 -> [True, False]")


@public(inplace=False)
def count_nonzero(input, dim=None):
    """Counts the elements that are not zero, in the whole tensor or along dimensions.

    Args:
        dim: dimension or dimensions to reduce (default: None, all).

    Example:
        >>> mytorch.count_nonzero(tensor([[0, 1], [2, 3]]), 0).tolist()
        [1, 2]
    """
    return (input if input.dtype.category == dtypes.BOOL else input != 0).sum(dim)


# -- log-sum-exp and norms -----------------------------------------------------------------------------------


@op(dtype="float", name="logsumexp", autocast="float32", half="forward")
def _logsumexp(xp, input, *, dim=None, keepdim=False):
    axis = axes_of(dim, input.ndim)
    if not input.size:
        return xp.log(xp.sum(input, axis=axis, keepdims=keepdim))
    peak = xp.max(xp.real(input) if xp.is_complex(input) else input, axis=axis, keepdims=True)
    peak = xp.where(xp.isfinite(peak), peak, peak.dtype.type(0))
    e = input - peak
    e = xp.exp(e, out=e) if input.ndim else xp.exp(e)
    total = xp.log(xp.sum(e, axis=axis, keepdims=True)) + peak
    return total if keepdim or (dim is None and input.ndim == 0) else xp.squeeze(total, axis)


_logsumexp.grad(
    input=lambda g, input, out, shape, dim, keepdim, xp: (
        spread(xp, g, shape, dim, keepdim) * xp.exp(input - spread(xp, out, shape, dim, keepdim))
    )
)
_logsumexp.register_kernel(cpu="mytorch.kernels.numba.log_softmax:logsumexp")


@public(inplace=False)
def logsumexp(input, dim, keepdim=False):
    """Computes the logarithm of the sum of exponentials along dimensions, without overflow.

        result = log(sum(exp(input)))

    Use it in place of `x.exp().sum().log()`, which overflows for elements above 88 in float32.

    Args:
        dim: dimension or dimensions to reduce.

    Example:
        >>> mytorch.logsumexp(tensor([1000.0, -1000.0]), 0).item()
        1000.0
    """
    return _logsumexp.fast_call(input, normalize_dims(dim, input.ndim, "logsumexp"), keepdim)


@op(dtype="float", name="norm", autocast="float32", half="everywhere")
def vector_norm(xp, input, *, ord=2.0, dim=None, keepdim=False):
    """Computes the norm of the elements along `dim`, with the limits for orders 0 and infinity.

    result = (sum of |x|^ord)^(1 / ord)
    """
    x, axis = input, axes_of(dim, input.ndim)
    if (ord < 0 or ord == math.inf) and not count(x.shape, dim):
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor or dimension, because the operation has no identity"
        )
    x = xp.absolute(x) if ord not in (1, 2) or x.dtype.kind != "f" else x
    if ord == math.inf:
        out = xp.max(x, axis=axis, keepdims=keepdim)
    elif ord == -math.inf:
        out = xp.min(x, axis=axis, keepdims=keepdim)
    elif ord == 0:
        out = xp.sum((x != 0).astype(x.dtype), axis=axis, keepdims=keepdim)
    elif ord == 1:
        out = xp.sum_of_magnitudes(x, axis, keepdims=keepdim)
    elif ord == 2:
        out = xp.sqrt(xp.sum_of_squares(x, axis, keepdims=keepdim))
    else:
        # `**` of a scalar of NumPy would be rounded differently.
        out = xp.power(xp.sum(xp.power(x, ord), axis=axis, keepdims=keepdim), 1 / ord)
    return xp.asarray(out).astype(x.dtype, copy=False)


def _norm_grad(g, input, out, shape, ord, dim, keepdim, xp):
    if ord == 2:
        return input * spread(xp, xp.where(out == 0, 0.0, g / xp.where(out == 0, 1.0, out)), shape, dim, keepdim)
    g, norm = spread(xp, g, shape, dim, keepdim), spread(xp, out, shape, dim, keepdim)
    if ord in (math.inf, -math.inf):
        size = xp.abs(input)
        best = xp.astype((size == norm) | ((size != size) & (norm != norm)), g.dtype)
        ties = xp.sum(best, axis=axes_of(dim, len(shape)), keepdims=True)
        return g * xp.sign(input) * (best / ties)
    if ord == 0:
        return input * 0
    if ord == 1:
        return g * xp.sign(input)
    safe = xp.where(norm == 0, 1.0, norm)
    magnitude = xp.abs(input)
    magnitude = xp.where(magnitude == 0, 1.0, magnitude)
    factor = xp.where(norm == 0, 0.0, safe ** (1 - ord))  # a zero makes the norm of a negative order zero
    return g * factor * xp.where(input == 0, 0.0, xp.sign(input) * magnitude ** (ord - 1))


vector_norm.grad(input=_norm_grad)
