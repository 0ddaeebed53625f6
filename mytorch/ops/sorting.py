"""Order statistics, running products and extremes, counting, searching, uniqueness, and other reductions."""

import builtins
import functools
import math
from collections import namedtuple

import numpy as np

from ..arrays import NO_DATA, ON_NUMPY, MetaArray, blocks, dtypes, numpy_ns, xp_of
from ..arrays.array import on_input_device
from ..arrays.errors import warn
from ..arrays.tensor import Tensor
from ..kernels import parts
from ..kernels.registry import Kernels
from .complex import complex as complex_of
from .dispatch.bind import public
from .dispatch.half import once_rounded
from .dispatch.op import op, own
from .dispatch.out import write_out
from .dispatch.precision import in_precision
from .dispatch.refused import refuses
from .dispatch.unwrap import on_device_of, raw_of, to_cpu
from .elementwise import cast, ceil, floor, isnan, named, where, without_derivative
from .elementwise import round as round_half_even
from .movement import _flip, cat, contiguous
from .reduction import (
    accumulated,
    axes_of,
    for_means,
    in_own_dtype,
    normalize_dim,
    normalize_dims,
    spread,
    to_acc_type,
    vector_norm,
)
from .reduction import mean as mean_of
from .reduction import sum as sum_of
from .special import lerp

_pairs = {name: namedtuple(name, "values indices") for name in "median mode kthvalue cummax cummin nanmedian".split()}
_AMinMax, _Histogram = namedtuple("aminmax", "min max"), namedtuple("histogram", "hist bin_edges")


@op(dtype="same", name="prod", autocast="float32")
def _prod(xp, input, *, dim=None, keepdim=False):
    return xp.asarray(xp.prod(input, axis=axes_of(dim, input.ndim), keepdims=keepdim)).astype(input.dtype, copy=False)


def _prod_grad(g, input, out, shape, dim, keepdim, xp):
    """g times the product of all the others: of those before, and of those after, so that zeros do no harm."""
    if not len(shape):
        return g
    g = spread(xp, g, shape, dim, keepdim)
    if dim is None:
        return g * xp.reshape(_others(xp, xp.reshape(input, (math.prod(shape),)), 0), shape)
    return g * _others(xp, input, dim[0])


_SEARCHES = Kernels("searches in sorted sequences", cpu="mytorch.kernels.numba.searching:positions")
_PRODUCTS_OF_OTHERS = Kernels("products of all other elements", cpu="mytorch.kernels.numba.scans:others")


def _others(xp, x, d):
    n = x.shape[d]
    if n == 0:
        return x
    if xp is numpy_ns and x.size >= blocks.LARGE:
        if (kernel := _PRODUCTS_OF_OTHERS.find("cpu", None, (x, d), {})) is not None:
            return kernel.forward(xp, x, d)
    lead = (slice(None),) * d
    one = xp.ones_like(x[(*lead, slice(0, 1))])
    before = xp.call(_cumprod, xp.concatenate([one, x[(*lead, slice(0, n - 1))]], axis=d), dim=d)
    behind = xp.flip(x[(*lead, slice(1, n))], d)
    after = xp.flip(xp.call(_cumprod, xp.concatenate([one, behind], axis=d), dim=d), d)
    return before * after


_prod.grad(input=_prod_grad)


@public(inplace=False)
def prod(input, dim=None, keepdim=False, *, dtype=None):
    """Multiplies all elements, or the elements along a dimension. Integers become int64. Gradients are exact at zeros.

    Args:
        dim: dimension to reduce (default: None, all).
        dtype: dtype to which `input` is cast first (default: None).

    Example:
        >>> mytorch.prod(tensor([2, 3, 4])).item()
        24
    """
    input = accumulated(input, dtype)
    return _prod(input, dim=normalize_dims(dim, input.ndim, "prod"), keepdim=keepdim)


@public(inplace=False)
def cumprod(input, dim, *, dtype=None):
    """Computes the cumulative product along a dimension.

    Args:
        dtype: dtype to which `input` is cast first (default: None).

    Example:
        >>> mytorch.cumprod(tensor([1, 2, 3, 4]), dim=0).tolist()
        [1, 2, 6, 24]
    """
    return _products(accumulated(input, dtype, "cumprod"), normalize_dim(dim, input.ndim))


in_own_dtype(cumprod, "cumprod_")


@in_precision("float32")
def _products(input, dim):
    return _cumprod(input, dim=dim)


@op(dtype="same", name="cumprod", autocast="float32", half="everywhere")
def _cumprod(xp, input, *, dim):
    return xp.cumprod(input, axis=dim).astype(input.dtype, copy=False) if input.ndim else input.copy()


def _cumprod_grad(g, input, out, dim, shape, xp):
    if not len(shape):
        return g
    raw = raw_of(out)
    if not bool(((raw == 0) | (raw - raw != 0)).any()):
        return xp.flip(xp.cumsum(xp.flip(g * out, dim), axis=dim), dim) / input
    grads = []  # zeros and infinities cannot be divided out: each element's gradient from the products without it
    n = shape[dim]
    lead = (slice(None),) * dim
    for i in range(n):
        before = input[(*lead, slice(0, i))]
        after = input[(*lead, slice(i + 1, n))]
        start = xp.call(_prod, before, dim=(dim,), keepdim=True) if i else xp.ones_like(input[(*lead, slice(0, 1))])
        rest = xp.call(_cumprod, after, dim=dim) if i + 1 < n else after
        products = xp.concatenate([xp.ones_like(start), rest], axis=dim) * start
        grads.append(xp.sum(products * g[(*lead, slice(i, n))], axis=dim, keepdims=True))
    return xp.concatenate(grads, axis=dim)


_cumprod.grad(input=_cumprod_grad)


def _running(name, better):
    @on_input_device
    @named(name, better=better, indices=[0, 1, 1] if name == "cummax" else [0, 0, 2])
    def running(input, dim):
        """Computes the running {better} along a dimension.

        Args:
            dim: dimension along which to compute.

        Returns:
            A named tuple (values, indices). The indices are the positions of the extreme elements.

        Example:
            >>> mytorch.{name}(tensor([2.0, 3.0, 1.0]), 0).indices.tolist()
            {indices}
        """
        d = normalize_dim(dim, input.ndim)
        if input.ndim == 0:
            return _pairs[name](input.clone(), on_device_of(np.zeros((), np.int64), input))
        xp = xp_of(raw_of(input))
        if xp is numpy_ns:
            indices = Tensor._wrap(xp.running_best(raw_of(input), d, better == "maximum"))
            return _pairs[name](input.gather(d, indices), indices)
        raw = xp.moveaxis(raw_of(input), d, 0)
        place = xp.zeros(raw.shape, np.int64)
        best = raw[:1].copy()
        for i in range(1, raw.shape[0]):
            beats = (raw[i] == getattr(xp, better)(raw[i], best[0])) | (raw[i] != raw[i])
            best[0] = xp.where(beats, raw[i], best[0])
            place[i] = xp.where(beats, i, place[i - 1])
        indices = Tensor._wrap(xp.ascontiguousarray(xp.moveaxis(place, 0, d)))
        return _pairs[name](input.gather(d, indices), indices)

    return public(inplace=False)(refuses("c")(running))


cummax, cummin = _running("cummax", "maximum"), _running("cummin", "minimum")


@public(inplace=False)
@in_precision(None)
def logcumsumexp(input, dim):
    """Computes the logarithm of the cumulative sum of exponentials along a dimension.

    Example:
        >>> mytorch.logcumsumexp(tensor([0.0, 0.0, 0.0]), dim=0).exp().round().tolist()
        [1.0, 2.0, 3.0]
    """
    d = normalize_dim(dim, input.ndim)
    if input.ndim == 0:
        return input.clone()
    if not input.dtype.is_complex:
        return _logcumsumexp(input, dim=d)
    if not input.shape[d]:
        return input.clone()
    peak = input.detach().real.amax(d, keepdim=True)
    return (input - peak).exp().cumsum(d).log() + peak


@op(dtype="float", name="logcumsumexp", autocast="float32", half="forward")
def _logcumsumexp(xp, input, *, dim):
    if xp in ON_NUMPY:
        return np.logaddexp.accumulate(input, dim, dtype=np.float64).astype(input.dtype, copy=False)
    step, lead, n = 1, (slice(None),) * dim, input.shape[dim]
    while step < n:  # by doubling: every element takes in the one that is `step` before it
        later = xp.logaddexp(input[(*lead, slice(step, n))], input[(*lead, slice(0, n - step))])
        input, step = xp.concatenate([input[(*lead, slice(0, step))], later], axis=dim), 2 * step
    return input


@op(dtype="same", name="scaled_cumsum", holomorphic=False)
def _scaled_cumsum(xp, x, scale, total, *, dim):
    """Returns the sums over j <= i of x[j] exp(scale[j] - total[i]), without overflow."""

    def part(x):
        logs = xp.where(x > 0, xp.log(xp.where(x > 0, x, 1.0)) + scale, -math.inf)
        return xp.exp(_logcumsumexp.forward(xp, logs, dim=dim) - total)

    return part(x) - part(-x)


def _transposed_cumsum(g, scale, total, dim, xp):
    """Returns the sums over i >= j of g[i] exp(scale[j] - total[i])."""
    g, scale, total = (xp.flip(x, dim) for x in (g, -scale, -total))
    return xp.call(_flip, xp.call(_scaled_cumsum, g, total, scale, dim=dim), dims=(dim,))


_scaled_cumsum.grad(
    x=_transposed_cumsum,
    scale=lambda g, x, scale, total, dim, xp: x * _transposed_cumsum(g, scale, total, dim, xp),
    total=lambda g, out: -g * out,
)
_logcumsumexp.grad(input=lambda g, input, out, dim, xp: _transposed_cumsum(g, input, out, dim, xp))


# -- order statistics ------------------------------------------------------------------------------------------------


def _picked(name, input, d, keepdim, indices):
    """(values, indices) of the elements at `indices` along an axis."""
    values = (input if input.ndim else input.reshape(1)).gather(d, indices)
    if not keepdim or input.ndim == 0:
        values, indices = own(values.squeeze(d)), own(indices.squeeze(d))
    return _pairs[name](values, contiguous(indices))


def _check_size(name, shape, d):
    if not shape[d]:
        raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _kth(name, input, dim, keepdim, place):
    """The element at `place(n)` in the order of each row of n."""
    d = normalize_dim(dim, input.ndim)
    x = input.detach() if input.ndim else input.detach().reshape(1)
    _check_size(name, x.shape, d)
    if x.dtype is dtypes.bool_:
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'. Cast the input to uint8.")
    raw, place = raw_of(x), place(x.shape[d])
    found = blocks.kth(np.moveaxis(raw, d, -1), place) if type(raw) is np.ndarray and raw.size >= blocks.KEYED else None
    found = x.argsort(d, stable=True).narrow(d, place, 1) if found is None else Tensor._wrap(np.expand_dims(found, d))
    if name == "median" and x.dtype.is_floating_point:  # the first NaN, if there is one
        lost = isnan.fast_call(x)
        found = where(lost.any(d, keepdim=True), lost.long().argmax(d, keepdim=True), found)
    return _picked(name, input, d, keepdim, found)


@op(dtype="same", name="median")
def _median_of_all(xp, input, value):
    """`value`, with a gradient that all elements equal to it share."""
    return value


def _share(g, input, value, xp):
    equal = (input == value) | ((input != input) & (value != value))
    return xp.where(equal, g / xp.sum(equal), 0.0)


_median_of_all.grad(input=_share)


@public(inplace=False)
@refuses("bc")
def median(input, dim=None, keepdim=False):
    """Returns the median of all elements or along a dimension.

    For an even number of elements, the result is the lower of the two middle elements. If an element is NaN, the result is NaN.

    Args:
        dim: dimension to reduce (default: None, all).

    Returns:
        A tensor. With a dimension, a named tuple (values, indices).

    Example:
        >>> mytorch.median(tensor([4, 1, 3, 2])).item()
        2
    """
    if dim is None:
        if not input.numel():
            number = input.dtype.category >= dtypes.FLOAT
            if number:
                return input.sum() + math.nan
            return input.new_full((), input.dtype is dtypes.bool_ or np.iinfo(input.dtype.numpy).min)
        if input.dtype is dtypes.bool_:
            raise NotImplementedError("\"median_cpu\" not implemented for 'Bool'. Cast the input to uint8.")
        ordered = input.detach().reshape(-1).sort().values  # NaNs last
        middle = ordered[(ordered.shape[0] - 1) // 2]
        if not input.dtype.is_floating_point:
            return middle.clone()  # without the memory of all elements
        return _median_of_all(input, where(isnan.fast_call(ordered[-1]), ordered[-1], middle))
    return _kth("median", input, dim, keepdim, lambda n: (n - 1) // 2)


@public(inplace=False)
@refuses("bc")
def nanmedian(input, dim=None, keepdim=False):
    """Returns the median of the elements that are not NaN.

    Args:
        dim: dimension to reduce (default: None, all).

    Example:
        >>> mytorch.nanmedian(tensor([1.0, float("nan"), 3.0, 4.0])).item()
        3.0
    """
    if dim is None:
        flat = input.reshape(-1)
        kept = ~isnan.fast_call(flat)
        return median(flat[kept] if kept.any() or not flat.shape[0] else flat)
    d = normalize_dim(dim, input.ndim)
    x = input.detach() if input.ndim else input.detach().reshape(1)
    _check_size("nanmedian", x.shape, d)
    counts = (~isnan.fast_call(x)).sum(d, keepdim=True)
    order = x.argsort(d, stable=True)
    return _picked("nanmedian", input, d, keepdim, order.gather(d, ((counts - 1) // 2).clamp(min=0)))


@public(inplace=False)
@refuses("bc")
def kthvalue(input, k, dim=-1, keepdim=False):
    """Returns the k-th smallest element along a dimension.

    Use it for one order statistic, and `topk` for the largest or smallest few.

    Args:
        k: rank, starting from 1.
        dim: dimension to reduce (default: -1).

    Returns:
        A named tuple (values, indices).

    Example:
        >>> values, indices = mytorch.kthvalue(tensor([30, 10, 20]), 2)
        >>> values.item(), indices.item()
        (20, 2)
    """
    n = input.shape[dim] if input.ndim else 1
    if n and not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}: k={k} for {n} elements")
    return _kth("kthvalue", input, dim, keepdim, lambda n: k - 1)


@public(inplace=False)
@on_input_device
@refuses("c")
def mode(input, dim=-1, keepdim=False):
    """Returns the most frequent element along a dimension, and its last position.

    If several elements are equally frequent, the function returns the smallest of them.

    Args:
        dim: dimension to reduce (default: -1).

    Raises:
        IndexError: the dimension has size 0.

    Example:
        >>> mytorch.mode(tensor([1, 2, 2, 3])).values.item()
        2
    """
    d = normalize_dim(dim, input.ndim)
    raw = np.atleast_1d(to_cpu(input))
    _check_size("mode", raw.shape, d)
    raw = np.moveaxis(raw, d, -1)
    flat = to_acc_type(raw).reshape(-1, raw.shape[-1])
    places = np.zeros(len(flat), np.int64)
    for i, row in enumerate(flat):
        # Each NaN counts for itself, because it equals no element.
        _, kinds, counts = np.unique(row, return_inverse=True, return_counts=True, equal_nan=False)
        places[i] = np.flatnonzero(kinds.reshape(-1) == np.argmax(counts))[-1]
    indices = on_device_of(np.expand_dims(places.reshape(raw.shape[:-1]), d if input.ndim else 0), input)
    return _picked("mode", input, d, keepdim, indices)


# Rounding of a position between two elements; the others interpolate. `round` takes the even neighbor of a half.
_ROUNDED = {"lower": floor, "higher": ceil, "nearest": round_half_even}


def _checked_quantiles(q, interpolation):
    """Checks the arguments of a quantile.

    Raises:
        RuntimeError: a quantile is not between 0 and 1, or the interpolation is unknown.
    """
    if interpolation not in _ROUNDED and interpolation not in ("linear", "midpoint"):
        raise RuntimeError(
            f"quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    raw_q = np.asarray(to_cpu(q), np.float64)
    if raw_q.ndim > 1:
        raise RuntimeError("quantile() q must be a scalar or 1D tensor")
    if not ((raw_q >= 0) & (raw_q <= 1)).all():
        raise RuntimeError("quantile() q values must be in the range [0, 1]")


def _quantile(input, q, dim, keepdim, interpolation, ignore_nan):
    _checked_quantiles(q, interpolation)
    if not input.dtype.is_floating_point or (hasattr(q, "dtype") and q.dtype is not input.dtype):
        raise RuntimeError(
            f"quantile() input tensor must be of a floating point dtype, and q of the same one; got {input.dtype} and "
            f"{getattr(q, 'dtype', type(q).__name__)}"
        )
    dim = dim if dim is None else normalize_dim(dim, input.ndim)
    rows = input.reshape(-1) if dim is None or input.ndim == 0 else input.movedim(dim, -1)
    n = rows.shape[-1]
    if not input.numel():
        raise RuntimeError("quantile() input tensor must be non-empty")
    ordered = rows.sort(-1).values  # NaNs come last
    lost = isnan.fast_call(ordered)
    # PyTorch computes positions in the precision of the elements. float32 is exact for as many elements as PyTorch accepts.
    exact = ordered.dtype if n <= 1 << 24 else dtypes.float64
    shares = (cast(q, exact) if isinstance(q, Tensor) else ordered.new_tensor(q, dtype=exact)).reshape(-1)
    if ignore_nan:
        at = shares * (n - 1 - lost.sum(-1, keepdim=True)).clamp(min=0)
    else:
        at = where(lost[..., -1:], n - 1.0, shares * (n - 1))  # a NaN, if there is one
    if interpolation in _ROUNDED:
        out = ordered.gather(-1, _ROUNDED[interpolation](at).long())
    else:
        low = floor(at)
        share = cast(at - low, ordered.dtype) if interpolation == "linear" else ordered.new_full(at.shape, 0.5)
        out = lerp(*(ordered.gather(-1, i.long()) for i in (low, ceil(at))), share)
    out = out.movedim(-1, 0)
    if keepdim and input.ndim:
        out = out.reshape(-1, *(1,) * input.ndim) if dim is None else out.unsqueeze(dim + 1)
    return own(out if getattr(q, "ndim", 0) else out[0])


@public(inplace=False)
@in_precision()
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """Computes quantiles of all elements or along a dimension.

    Args:
        q: quantile between 0 and 1, or a vector of quantiles, which becomes the first dimension.
        dim: dimension to reduce (default: None, all).
        interpolation: "linear" (default), "lower", "higher", "midpoint" or "nearest".

    Raises:
        RuntimeError: a quantile is not between 0 and 1, the interpolation is unknown, or there are no elements.

    Example:
        >>> mytorch.quantile(tensor([1.0, 2.0, 4.0]), 0.25).item()
        1.5
    """
    return _quantile(input, q, dim, keepdim, interpolation, False)


@public(inplace=False)
@in_precision()
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """Computes quantiles of the elements that are not NaN.

    Args:
        q: quantile between 0 and 1, or a vector of quantiles, which becomes the first dimension.
        dim: dimension to reduce (default: None, all).
        interpolation: "linear" (default), "lower", "higher", "midpoint" or "nearest".
    """
    return _quantile(input, q, dim, keepdim, interpolation, True)


@public(inplace=False)
def aminmax(input, *, dim=None, keepdim=False):
    """Returns (smallest, largest) of all elements or along a dimension.

    Args:
        dim: dimension to reduce (default: None, all).

    Example:
        >>> smallest, largest = mytorch.aminmax(tensor([3, 1, 2]))
        >>> smallest.item(), largest.item()
        (1, 3)
    """
    dims = () if dim is None else dim
    return _AMinMax(input.amin(dims, keepdim), input.amax(dims, keepdim))


@op(dtype="same", name="nansum", elementwise=True)
def _zero_for_nan(xp, input):
    return xp.where(input == input, input, input.dtype.type(0))


# A product, as in PyTorch: the gradient of `nanmean` of nothing but NaN is NaN.
_zero_for_nan.grad(input=lambda g, input, xp: g * xp.astype(input == input, g.dtype))


@public(inplace=False)
@in_precision(None)
def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """Sums elements, with NaN counted as 0.

    Args:
        dim: dimension or dimensions to reduce (default: None, all).
        dtype: dtype to which `input` is cast first (default: None).

    Example:
        >>> mytorch.nansum(tensor([1.0, float("nan"), 3.0])).item()
        4.0
    """
    if input.dtype.is_complex:
        raise RuntimeError("nansum does not support complex inputs")
    if input.dtype.is_floating_point and dtype is not None and dtypes.as_dtype(dtype).is_complex:
        raise NotImplementedError("nansum does not support complex dtypes")
    x = _zero_for_nan.fast_call(input) if input.dtype.is_floating_point else input
    return sum_of(x, dim, keepdim, dtype=dtype)


@public(inplace=False)
@in_precision(None)
@refuses("BI")
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """Averages the elements that are not NaN.

    Args:
        dim: dimension or dimensions to reduce (default: None, all).
        dtype: dtype to which `input` is cast first (default: None).

    Example:
        >>> mytorch.nanmean(tensor([1.0, float("nan"), 3.0])).item()
        2.0
    """
    if input.dtype.is_complex:
        raise RuntimeError("nanmean does not support complex inputs")
    input = for_means(input, dtype, "nanmean")
    kept = ~isnan.fast_call(input)
    return nansum(input, dim, keepdim) / sum_of(kept, dim, keepdim)


# -- counting and searching --------------------------------------------------------------------------------------------


@public(inplace=False)
@on_input_device
def bincount(input, weights=None, minlength=0):
    """Counts the occurrences of each integer 0, 1, …, or sums their weights.

    Args:
        input: vector of non-negative integers.
        weights: weight of each element (default: None, counts).
        minlength: smallest length of the result (default: 0).

    Raises:
        RuntimeError: `input` is not a vector of non-negative integers.

    Example:
        >>> mytorch.bincount(tensor([0, 2, 2])).tolist()
        [1, 0, 2]
    """
    raw = raw_of(input)
    integers = raw.ndim == 1 and raw.dtype.kind in "iu"
    # As unsigned integers, negative numbers are large, so that one pass finds both ends of the range.
    largest = int(raw.view(f"u{raw.itemsize}").max()) if integers and raw.size else 0
    if not integers or (raw.dtype.kind == "i" and largest >= 1 << 8 * raw.itemsize - 1):
        error = RuntimeError if raw.dtype.kind in "iu" else NotImplementedError
        raise error("bincount only supports 1-d non-negative integral inputs; it is not implemented for others.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if largest == (1 << 63) - 1:
        raise RuntimeError("bincount: maximum value of input overflowed, it should be < 9223372036854775807")
    if weights is not None and tuple(getattr(weights, "shape", ())) != raw.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if not raw.size:  # PyTorch counts, also with weights
        return type(input)._wrap(xp_of(raw).zeros(minlength, np.int64))
    found = xp_of(raw).bincount(raw, weights=raw_of(weights), minlength=minlength)
    single = weights is not None and raw_of(weights).dtype == np.float32
    counts = Tensor._wrap(found.astype(np.float32) if single else found)
    return counts if weights is None else without_derivative(counts, weights, name="bincount")


@public(inplace=False)
@on_input_device
@refuses("ci")
def histc(input, bins=100, min=0, max=0):
    """Counts the elements in intervals of equal width.

    Args:
        bins: number of intervals (default: 100).
        min: lower end of the range; elements outside are not counted (default: 0).
        max: upper end of the range (default: 0). If both ends are equal, the range is the range of the data.

    Raises:
        RuntimeError: `bins` is not positive, or the range is empty or not finite.

    Example:
        >>> mytorch.histc(tensor([1.0, 2.0, 1.0]), bins=2, min=0, max=4).tolist()
        [2.0, 1.0]
    """
    raw = to_cpu(input).reshape(-1)
    min, max = (v.item() if isinstance(v, Tensor) else v for v in (min, max))
    low, high = (raw.min(), raw.max()) if min == max and raw.size else (min, max)
    if low == high:
        low, high = low - 1, high + 1
    if not (bins > 0 and -np.inf < low < high < np.inf):
        raise RuntimeError(f"histc: needs bins > 0 and finite min < max, got bins={bins}, min={low} and max={high}")
    return on_device_of(np.histogram(raw, bins=bins, range=(low, high))[0].astype(raw.dtype), input)


@public(inplace=False)
def histogram(input, bins=100, *, range=None, weight=None, density=False, out=None):
    """Computes a histogram.

    Args:
        bins: number of intervals, or the edges (default: 100).
        range: (lowest, highest) (default: the range of the data).
        weight: weight of each element (default: None).
        density: if True, the integral of the histogram is 1 (default: False).
        out: two tensors that receive the results, of the dtype of `input`.

    Returns:
        (counts, edges).

    Raises:
        RuntimeError: dtypes, shapes or bounds that do not fit.
        TypeError: both edges and a range.

    Example:
        >>> hist, edges = mytorch.histogram(tensor([0.0, 0.5, 1.0, 1.0]), bins=2)
        >>> hist.tolist(), edges.tolist()
        ([1.0, 3.0], [0.0, 0.5, 1.0])
    """
    if out is not None:
        return write_out(
            histogram(input, bins, range=range, weight=weight, density=density), out, "histogram", exact=True
        )
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"histogram is not implemented for {input.dtype}")
    for given, word in ((bins, "bins tensors"), (weight, "weight tensor")):
        if hasattr(given, "dtype") and given.dtype is not input.dtype:
            raise RuntimeError(f"histogram(): input tensor and {word} should have the same dtype")
    if isinstance(weight, (bool, int, float)):
        raise TypeError(f"histogram(): weight must be a tensor, not {type(weight).__name__}.")
    if weight is not None and weight.shape != input.shape:
        raise RuntimeError(
            "histogram(): if weight tensor is provided it should have the same shape as the input tensor"
        )
    if hasattr(bins, "dtype") and range is not None:
        raise TypeError("histogram() received an invalid combination of arguments: edges and a range")
    if hasattr(bins, "dtype") and bins.ndim != 1:
        raise RuntimeError(f"histogram(): bins tensor should have one dimension, but got {bins.ndim} dimensions")
    if (bins.numel() if hasattr(bins, "dtype") else bins) < 1:
        raise RuntimeError("histogram(): bins must be > 0, and a bins tensor should have at least 1 element")
    if range is not None and range[0] > range[1]:
        raise RuntimeError("histogram(): min should not exceed max")
    raw, sources = to_cpu(input).reshape(-1), [t for t in (input, bins, weight) if isinstance(t, Tensor)]
    bins = to_cpu(bins) if hasattr(bins, "_mt_data") else bins
    weights = None if weight is None else to_cpu(weight).reshape(-1)
    if range is None and isinstance(bins, int) and raw.size and not np.isfinite([raw.min(), raw.max()]).all():
        raise RuntimeError(f"histogram(): dimension 0's range [{raw.min()}, {raw.max()}] is not finite")
    counts, edges = np.histogram(raw, bins=bins, range=range, weights=weights, density=density)
    found = (on_device_of(a.astype(raw.dtype), input) for a in (counts, edges))
    for source in sources:
        found = [without_derivative(result, source, name="histogram") for result in found]
    return _Histogram(*found)


@public(inplace=False, spellings={"input": "values", "self": "values"})
@on_input_device
@refuses("bc")
def searchsorted(sorted_sequence, values, *, out_int32=False, right=False, side=None, sorter=None):
    """Returns the insertion positions of values that keep a sorted sequence sorted.

    Args:
        sorted_sequence: tensor that is ascending along its last axis.
        values: values to insert.
        out_int32: if True, returns int32 instead of int64 (default: False).
        right: if True, returns the position after equal elements, otherwise before (default: False).
        side: "right" or "left": another form of `right`.
        sorter: indices that sort `sorted_sequence` (default: None).

    Raises:
        RuntimeError: there is no axis to search, `sorter` has another shape, or `side` is unknown.

    Example:
        >>> mytorch.searchsorted(tensor([1, 3, 5]), tensor([0, 3, 6])).tolist()
        [0, 1, 3]
    """
    seq = raw_of(sorted_sequence)
    xp = xp_of(seq)
    if type(raw_of(values)) is MetaArray and type(seq) is not MetaArray:
        raise NotImplementedError(NO_DATA)
    if seq.ndim == 0 or (sorter is not None and tuple(sorter.shape) != seq.shape):
        raise RuntimeError(
            f"searchsorted: the sorted sequence needs an axis, and a sorter its shape; got {list(seq.shape)}"
            + ("" if sorter is None else f" and {list(sorter.shape)}")
        )
    if sorter is not None:
        seq = xp.take_along_axis(seq, raw_of(sorter), -1)
    seq, wanted = (to_acc_type(seq), to_acc_type(raw_of(values) if hasattr(values, "_mt_data") else xp.asarray(values)))
    side = side or ("right" if right else "left")
    if side not in ("left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    kernel = None
    if xp is numpy_ns and wanted.size >= blocks.LARGE:
        kernel = _SEARCHES.find("cpu", None, (wanted, seq), {"right": side == "right"})
    if kernel is not None:
        found = kernel.forward(xp, wanted, seq, right=side == "right")
    elif seq.ndim == 1:
        search = functools.partial(xp.searchsorted, seq, side=side)
        found = xp.asarray(parts.elementwise("searchsorted", search, wanted) if xp is numpy_ns else search(wanted))
    else:
        if seq.shape[:-1] != wanted.shape[:-1]:
            raise RuntimeError(
                f"searchsorted: sequences of {list(seq.shape)} need values of as many rows, got {list(wanted.shape)}"
            )
        rows = [a.reshape(math.prod(a.shape[:-1]), a.shape[-1]) for a in (seq, wanted)]
        found = [xp.searchsorted(r, v, side) for r, v in zip(*rows, strict=True)]
        found = xp.stack(found).reshape(wanted.shape) if found else xp.zeros(wanted.shape, np.int64)
    return Tensor._wrap(found.astype(np.int32 if out_int32 else np.int64, copy=False))


@public(inplace=False)
@refuses("c")
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """Returns the number of the interval between boundaries that contains each element.

    Args:
        boundaries: ascending boundaries, (n,).
        out_int32: if True, returns int32 instead of int64 (default: False).
        right: if True, an element that equals a boundary belongs to the next interval (default: False).

    Example:
        >>> mytorch.bucketize(tensor([0, 3, 6]), tensor([1, 3, 5])).tolist()
        [0, 1, 3]
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"bucketize: boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def _slice_dim(input, dim, name):
    if dim is None:
        return None
    if input.ndim == 0:
        raise IndexError(f"{name}: dim {dim} was specified, but the tensor has no dimensions.")
    dim, shape = normalize_dim(dim, input.ndim), input.shape
    if 0 in (*shape[:dim], *shape[dim + 1 :]):
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    return dim


@public(inplace=False)
@refuses("c")
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """Returns the distinct elements, or distinct slices along a dimension, sorted.

    Args:
        sorted: ignored; the result is always sorted.
        return_inverse: if True, also returns the position of each element of `input` in the result (default: False).
        return_counts: if True, also returns the number of occurrences (default: False).
        dim: dimension of the slices (default: None, the elements of the flattened input).

    Raises:
        IndexError: `dim` for a 0-d tensor.
        RuntimeError: another dimension than `dim` has size 0.

    Example:
        >>> values, counts = mytorch.unique(tensor([3, 1, 3]), return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 3], [1, 2])
    """
    raw, dim = to_cpu(input), _slice_dim(input, dim, "unique")
    found = _counted(raw, return_inverse) if dim is None else None
    if found is None and dim is None and not (return_inverse or return_counts):
        values = np.unique(to_acc_type(raw), equal_nan=False).astype(raw.dtype, copy=False)
        return without_derivative(on_device_of(values, input), input, name="unique")
    # NumPy does not sort the NaNs of bfloat16 to the end.
    values, inverse, counts = found or _unique_slices(to_acc_type(raw), dim)
    values = values.astype(raw.dtype, copy=False)
    shape = raw.shape if dim is None else (raw.shape[dim],)
    inverse = inverse.reshape(shape) if return_inverse else None
    return _chosen(input, values, inverse, counts, return_inverse, return_counts)


def _compare_slices(rows):
    """Returns the lexicographical comparison of the rows at two positions, which skips NaN."""

    def compare(i, j):
        signs = (rows[i] > rows[j]).astype(int) - (rows[i] < rows[j])
        decisive = signs[signs != 0]
        return int(decisive[0]) if decisive.size else 0

    return compare


def _unique_slices(raw, dim):
    """Returns (values, inverse, counts) of elements, or of slices along `dim`. NaN differs from every value."""
    if dim is None or not (raw.dtype.kind in "fc" and np.isnan(raw).any()):
        return np.unique(raw, False, True, True, axis=dim, equal_nan=False)
    slices = np.moveaxis(raw, dim, 0)
    # Comparisons with NaN are False, so slices with NaN stay where they are, as in PyTorch.
    order = builtins.sorted(
        range(len(slices)), key=functools.cmp_to_key(_compare_slices(slices.reshape(len(slices), -1)))
    )
    rows = slices[order].reshape(len(slices), -1)
    starts = np.append(True, (rows[1:] != rows[:-1]).any(1))
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = np.cumsum(starts) - 1
    values = np.moveaxis(slices[order][starts], 0, dim)
    return values, inverse, np.diff(np.append(np.flatnonzero(starts), len(rows)))


def _counted(raw, return_inverse):
    """Returns (values, inverse, counts) of integers in a small range by counting instead of sorting; otherwise None."""
    if raw.dtype.kind not in "iu" or raw.dtype == np.uint64 or raw.size < blocks.LARGE:
        return None
    low, high = int(raw.min()), int(raw.max())
    if high - low >= raw.size:
        return None
    places = raw.reshape(-1).astype(np.int64) - low
    counts = np.bincount(places)
    there = counts > 0
    values = (np.flatnonzero(there) + low).astype(raw.dtype)
    return values, (np.cumsum(there) - 1)[places] if return_inverse else None, counts[there]


def _chosen(input, values, inverse, counts, return_inverse, return_counts):
    out = [without_derivative(on_device_of(values, input), input, name="unique")]
    if return_inverse:
        out.append(on_device_of(inverse.astype(np.int64), input))
    if return_counts:
        out.append(on_device_of(counts.astype(np.int64), input))
    return tuple(out) if len(out) > 1 else out[0]


@public(inplace=False)
@refuses("c")
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Removes consecutive duplicates: keeps the first element of each run of equal elements.

    Args:
        return_inverse: if True, also returns the position of each element of `input` in the result (default: False).
        return_counts: if True, also returns the length of each run (default: False).
        dim: dimension along which slices are compared (default: None, compares the elements of the flattened input).

    Returns:
        The tensor without duplicates, or a tuple with this tensor and the requested inverse and counts, in this order.

    Raises:
        IndexError: if `input` is a 0-d tensor and `dim` is not None.

    Example:
        >>> values, counts = mytorch.unique_consecutive(tensor([1, 1, 2, 1]), return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 2, 1], [2, 1, 1])

    See also: `unique`.
    """
    raw, dim = to_cpu(input), _slice_dim(input, dim, "unique_consecutive")
    x = raw.reshape(-1) if dim is None else np.moveaxis(raw, dim, 0)
    rows = x.reshape(len(x), math.prod(x.shape[1:]))
    starts = np.concatenate(([True], (rows[1:] != rows[:-1]).any(1))) if len(x) else np.zeros(0, bool)
    values = x[starts] if dim is None else np.moveaxis(x[starts], 0, dim)
    inverse = np.cumsum(starts) - 1
    counts = np.diff(np.append(np.flatnonzero(starts), len(x)))
    return _chosen(
        input, values, inverse.reshape(raw.shape) if dim is None else inverse, counts, return_inverse, return_counts
    )


@public(inplace=False)
def msort(input):
    """Sorts along the first axis."""
    return input.sort(0).values


# -- differences and sums ------------------------------------------------------------------------------------------------


@public(inplace=False)
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Computes the differences of adjacent elements along a dimension, n times.

    Args:
        n: number of repetitions (default: 1).
        dim: dimension along which to compute (default: -1).
        prepend: tensor to join before `input` first (default: None).
        append: tensor to join after `input` first (default: None).

    Example:
        >>> mytorch.diff(tensor([1, 4, 9])).tolist()
        [3, 5]
    """
    for p in (prepend, append):
        if p is not None and not hasattr(p, "ndim"):
            raise TypeError(f"diff(): prepend and append must be Tensor, not {type(p).__name__}")
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n == 0:
        return input.clone()
    if any(p is not None and p.ndim != input.ndim for p in (prepend, append)):
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = normalize_dim(dim, input.ndim)
    parts = [p for p in (prepend, input, append) if p is not None]
    x = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(builtins.min(n, x.shape[dim])):
        after, before = x.narrow(dim, 1, x.shape[dim] - 1), x.narrow(dim, 0, x.shape[dim] - 1)
        x = after != before if x.dtype is dtypes.bool_ else after - before
    return x


def _trapezoids(y, x, dx, dim):
    """Returns the areas under y between adjacent points along `dim`."""
    n = y.shape[dim]
    if x is not None and dx is not None:
        raise TypeError("trapezoid() received an invalid combination of arguments: both x and dx")
    if isinstance(dx, complex):
        raise RuntimeError("trapezoid: Currently, we only support dx as a real number.")
    if n == 0:
        return y * 1.0
    if x is not None and x.ndim == 1 and x.shape[0] != n:
        raise RuntimeError(f"trapezoid: There must be one `x` value for each sample point, got {x.shape[0]} for {n}")
    if x is not None:
        along = [1] * (y.ndim - dim % y.ndim - 1) if x.ndim == 1 else []
        widths = diff(x, dim=dim if x.ndim > 1 else -1)
        widths = widths.reshape(-1, *along) if along else widths
    else:
        widths = 1.0 if dx is None else dx
    y = y * 1.0 if y.dtype.category < dtypes.FLOAT else y  # sums of bytes overflow
    return (y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) * 0.5 * widths


@public(inplace=False, names=("trapz",))
@refuses("B")
def trapezoid(y, x=None, *, dx=None, dim=-1):
    """Computes the integral along a dimension by the trapezoidal rule.

    Args:
        y: values.
        x: coordinates of the values (default: None, evenly spaced).
        dx: distance of the values, if `x` is not given (default: 1).

    Example:
        >>> mytorch.trapezoid(tensor([0.0, 1.0, 2.0])).item()
        2.0
    """
    return _trapezoids(y, x, dx, dim).sum(dim)


@public(inplace=False)
@refuses("B")
def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """Computes the cumulative integral along a dimension by the trapezoidal rule.

    Args:
        y: values.
        x: coordinates of the values (default: None, evenly spaced).
        dx: distance of the values, if `x` is not given (default: 1).
    """
    return _trapezoids(y, x, dx, dim).cumsum(dim)


@public(inplace=False)
@in_precision("float32")
def dist(input, other, p=2):
    """Computes the p-norm of input - other.

    Args:
        other: second tensor, which broadcasts with `input`.
        p: order of the norm (default: 2).

    Example:
        >>> mytorch.dist(tensor([0.0, 0.0]), tensor([3.0, 4.0])).item()
        5.0
    """
    return vector_norm(input - other, ord=float(p))


@public()
@in_precision("float32")
@once_rounded
def renorm(input, p, dim, maxnorm):
    """Scales slices along a dimension down to a maximal p-norm.

    Args:
        p: order of the norm.
        maxnorm: largest norm.
    """
    others = tuple(d for d in range(input.ndim) if d != normalize_dim(dim, input.ndim))
    if not (p > 0 and maxnorm >= 0 and input.ndim > 1):
        raise RuntimeError(
            f"renorm: expected p > 0, maxnorm >= 0 and an input of 2 axes at least, got {p}, {maxnorm} and {input.ndim} axes"
        )
    if input.requires_grad:
        input = input.clone()  # `renorm_` overwrites the input, which the gradient of the norm reads
    norms = input.detach().norm(p, others, keepdim=True)
    above = norms > maxnorm
    if not maxnorm:
        return contiguous(input * where(above, 0.0, 1.0))
    if input.requires_grad:  # of the slices that are scaled: the norm of an infinite one has no finite gradient
        norms = where(above, input, 0.0).norm(p, others, keepdim=True)
    return contiguous(input / where(above, (norms + 1e-7) / maxnorm, 1.0))  # a product's gradient would overflow sooner


@public(inplace=False)
@refuses("B")
def cov(input, *, correction=1, fweights=None, aweights=None):
    """Computes the covariance matrix of variables in rows and observations in columns.

    Args:
        correction: number subtracted from the number of observations (default: 1).
        fweights: number of times that each observation counts, integers (default: None).
        aweights: weight of each observation (default: None).

    Raises:
        RuntimeError: `input` has more than two axes, or weights do not fit, are negative or sum to zero.

    Example:
        >>> mytorch.cov(tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    x = input.reshape(1, input.numel()) if input.ndim < 2 else input
    x = x if x.dtype.category >= dtypes.FLOAT else cast(x, dtypes.default_dtype())
    weights = None
    for w, name in ((fweights, "fweights"), (aweights, "aweights")):
        if w is None:
            continue
        if not isinstance(w, Tensor):
            raise TypeError(f"cov(): argument '{name}' must be Tensor, not {type(w).__name__}")
        if w.ndim != 1 or w.shape[0] != x.shape[1]:
            raise RuntimeError(
                f"cov(): expected {name} to have one element for each of {x.shape[1]} observations, got shape {tuple(w.shape)}"
            )
        if (w.dtype.category == dtypes.INT) is not (name == "fweights"):
            wanted = "integral" if name == "fweights" else "floating point"
            raise RuntimeError(
                f"cov(): expected {name} to have {wanted} dtype but got {name} with {w.dtype.name} dtype"
            )
        if bool((w < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
        weights = w if weights is None else weights * w
    if weights is None:
        total, average, scaled = x.shape[1], mean_of(x, 1, True), None
        free = total - correction
    else:
        total = weights.sum()
        if not float(total):
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        average = (x * weights).sum(1, keepdim=True) / total
        free = total - correction if aweights is None else total - correction * (weights * aweights).sum() / total
    centred = x - average
    scaled = centred if weights is None else centred * weights
    if (free if weights is None else float(free.detach())) <= 0:
        warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.")
        free = 0 if weights is None else free.clamp(min=0)
    return ((centred @ scaled.mH) / free).squeeze()


@public(inplace=False)
@refuses("B")
def corrcoef(input):
    """Computes the correlation matrix of variables in rows.

    Example:
        >>> mytorch.corrcoef(tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]])).round().tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    c = cov(input)
    if c.ndim == 0:
        return c / c
    d = (c.real if c.dtype.is_complex else c).diagonal().sqrt()
    out = c / d.unsqueeze(1) / d.unsqueeze(0)
    if out.dtype.is_complex:
        return complex_of(out.real.clip(-1, 1), out.imag.clip(-1, 1))
    return out.clip(-1, 1)


@public(inplace=False)
def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Computes derivatives by second-order central differences, one-sided at the ends.

    Args:
        spacing: distance of the samples, one for each dimension, or tensors of coordinates (default: 1).
        dim: dimension or dimensions (default: None, all).
        edge_order: order of the differences at the ends, 1 or 2 (default: 1).

    Returns:
        A tuple with one tensor for each dimension.

    Raises:
        RuntimeError: spacings that do not fit, or a dimension shorter than edge_order + 1.

    Example:
        >>> (slope,) = mytorch.gradient(tensor([1.0, 4.0, 9.0, 16.0]))
        >>> slope.tolist()
        [3.0, 4.0, 6.0, 7.0]
    """
    spacing = 1 if spacing is None else spacing
    listed = isinstance(spacing, (tuple, list))
    if dim is None and listed and len(spacing) != input.ndim:
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = {input.ndim}', but got a list of {len(spacing)}"
        )
    dims = range(input.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    dims = [normalize_dim(d, input.ndim) for d in dims]
    if len(set(dims)) < len(dims) or input.dtype is dtypes.uint8:
        raise RuntimeError(f"torch.gradient: each axis once, and no uint8; got dim={dim} and {input.dtype}")
    steps = list(spacing) if listed else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError(f"torch.gradient expected one spacing for each of {len(dims)} axes, got {len(steps)}")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    x = input if input.dtype.category >= dtypes.FLOAT else cast(input, dtypes.default_dtype())
    return tuple(_slope(x, d, step, edge_order) for d, step in zip(dims, steps, strict=True))


def _edge_slope(h, slopes, d, near, next):
    """Returns the slope at an end, from the slopes in the two adjacent intervals and their lengths."""
    a, b, s, t = h.narrow(d, near, 1), h.narrow(d, next, 1), slopes.narrow(d, near, 1), slopes.narrow(d, next, 1)
    return s + (s - t) * a / (a + b)


def _slope(x, d, step, edge_order):
    """Finite differences along one axis; `step` is a number or the coordinates."""
    n = x.shape[d]
    if n < edge_order + 1:
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    if hasattr(step, "ndim") and step.ndim:
        h = diff(step)
    else:
        h = x.new_full((n - 1,), float(step) if not isinstance(step, complex) else step)
    h = h.reshape([-1 if i == d else 1 for i in range(x.ndim)])

    slopes = (x.narrow(d, 1, n - 1) - x.narrow(d, 0, n - 1)) / h
    left, right = h.narrow(d, 0, n - 2), h.narrow(d, 1, n - 2)
    if hasattr(step, "ndim") and step.ndim:
        inner = (slopes.narrow(d, 1, n - 2) * left + slopes.narrow(d, 0, n - 2) * right) / (left + right)
    else:
        inner = (x.narrow(d, 2, n - 2) - x.narrow(d, 0, n - 2)) / (left + right)
    if edge_order == 1:
        first, last = slopes.narrow(d, 0, 1), slopes.narrow(d, n - 2, 1)
    else:
        first, last = _edge_slope(h, slopes, d, 0, 1), _edge_slope(h, slopes, d, n - 2, n - 3)
    return cat([first, inner, last], d)
