"""Order statistics, running products and extremes, counting, searching, uniqueness, and other reductions."""

import builtins
import math
import warnings
from collections import namedtuple

import numpy as np

from .._array import on_input_device
from ..backend import xp_of
from ..base import dtypes
from ..tensor import Tensor
from .bind import public
from .complex import complex as complex_of
from .core import op
from .elementwise import cast, isnan, where
from .movement import cat, stack
from .precision import in_precision
from .raw import on_device_of, raw_of, to_cpu
from .reduction import axes_of, normalize_dim, normalize_dims, spread, vector_norm, wide
from .reduction import mean as mean_of
from .reduction import sum as sum_of

_pairs = {
    name: namedtuple(name, ("values", "indices"))
    for name in ("median", "mode", "kthvalue", "cummax", "cummin", "nanmedian")
}


@op(dtype="same", name="prod", autocast="float32", autocast_cpu="float32")
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


def _others(xp, x, d):
    n = x.shape[d]
    if n == 0:
        return x
    lead = (slice(None),) * d
    one = x[(*lead, slice(0, 1))] * 0 + 1.0
    before = xp.call(_cumprod, xp.concatenate([one, x[(*lead, slice(0, n - 1))]], axis=d), dim=d)
    behind = xp.flip(x[(*lead, slice(1, n))], d)
    after = xp.flip(xp.call(_cumprod, xp.concatenate([one, behind], axis=d), dim=d), d)
    return before * after


_prod.grad(input=_prod_grad)


@public(inplace=False)
def prod(input, dim=None, keepdim=False, *, dtype=None):
    """The product of all elements or along `dim`; integers as int64. The gradient is right at zeros too."""
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    elif input.dtype.category < dtypes.FLOAT:
        input = cast(input, dtypes.int64)
    return _prod(input, dim=normalize_dims(dim, input.ndim, "prod"), keepdim=keepdim)


@public()
def cumprod(input, dim, *, dtype=None):
    """The running product along one axis."""
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    elif input.dtype.category < dtypes.FLOAT:
        input = cast(input, dtypes.int64)
    return _cumprod(input, dim=normalize_dim(dim, input.ndim))


@op(dtype="same", name="cumprod", autocast="float32")
def _cumprod(xp, input, *, dim):
    return xp.cumprod(input, axis=dim) if input.ndim else input.copy()


def _cumprod_grad(g, input, out, dim, shape, xp):
    if not len(shape):
        return g
    safe = xp.where(input == 0, 1.0, input)
    plain = xp.flip(xp.cumsum(xp.flip(g * out, dim), axis=dim), dim) / safe
    if not bool((raw_of(input) == 0).any()):
        return plain
    pieces = []  # with zeros about: each element's gradient from the products that leave it out
    n = shape[dim]
    lead = (slice(None),) * dim
    for i in range(n):
        before = input[(*lead, slice(0, i))]
        after = input[(*lead, slice(i + 1, n))]
        start = xp.call(_prod, before, dim=(dim,), keepdim=True) if i else input[(*lead, slice(0, 1))] * 0 + 1.0
        rest = xp.call(_cumprod, after, dim=dim) if i + 1 < n else after
        ones = start * 0 + 1.0
        products = xp.concatenate([ones, rest], axis=dim) * start
        pieces.append(xp.sum(products * g[(*lead, slice(i, n))], axis=dim, keepdims=True))
    return xp.concatenate(pieces, axis=dim)


_cumprod.grad(input=_cumprod_grad)


def _running(name, better):
    @on_input_device
    def running(input, dim):
        d = normalize_dim(dim, input.ndim)
        if input.ndim == 0:
            return _pairs[name](input.clone(), on_device_of(np.zeros((), np.int64), input))
        xp = xp_of(raw_of(input))
        raw = xp.moveaxis(raw_of(input), d, 0)
        place = xp.zeros(raw.shape, np.int64)
        best = raw[:1].copy()
        for i in range(1, raw.shape[0]):
            beats = better(raw[i], best[0]) | (raw[i] != raw[i])
            best[0] = xp.where(beats, raw[i], best[0])
            place[i] = xp.where(beats, i, place[i - 1])
        indices = Tensor._wrap(xp.ascontiguousarray(xp.moveaxis(place, 0, d)))
        return _pairs[name](input.gather(d, indices), indices)

    running.__name__ = name
    running.__doc__ = (
        f"The running {'maximum' if name == 'cummax' else 'minimum'} along an axis and where it was: (values, indices)."
    )
    return public(inplace=False)(running)


cummax, cummin = _running("cummax", lambda a, b: a >= b), _running("cummin", lambda a, b: a <= b)


@public(inplace=False)
@in_precision(None)
def logcumsumexp(input, dim):
    """log of the running sum of exponentials along an axis."""
    d = normalize_dim(dim, input.ndim)
    if input.ndim == 0:
        return input.clone()
    if input.dtype.is_complex:
        peak = input.detach().real.amax(d, keepdim=True)
        return (input - peak).exp().cumsum(d).log() + peak
    peak = input.detach().amax(d, keepdim=True)
    peak = where(peak.isfinite(), peak, 0.0)
    return (input - peak).exp().cumsum(d).log() + peak


# -- order statistics ------------------------------------------------------------------------------------------------


def _picked(name, input, dim, keepdim, choose):
    """(values, indices) of the element of each row that `choose` finds in the sorted row."""
    d = normalize_dim(dim, input.ndim)
    x = input.reshape(1) if input.ndim == 0 else input
    order = x.detach().argsort(d, stable=True)
    k = choose(x.shape[d])
    indices = order.narrow(d, k, 1)
    values = x.gather(d, indices)
    if not keepdim or input.ndim == 0:
        values, indices = values.squeeze(d), indices.squeeze(d)
    return _pairs[name](values, indices)


@public(inplace=False)
def median(input, dim=None, keepdim=False):
    """The lower median of all elements; along `dim`, a named tuple (values, indices). NaN if there is one."""
    if dim is None:
        ordered = input.reshape(-1).sort().values  # NaNs last
        middle = ordered[(ordered.shape[0] - 1) // 2]
        return where(isnan.caller(ordered[-1]), ordered[-1], middle) if input.dtype.is_floating_point else middle
    return _picked("median", input, dim, keepdim, lambda n: (n - 1) // 2)


@public(inplace=False)
def nanmedian(input, dim=None, keepdim=False):
    """As median, without the NaNs."""
    if dim is None:
        flat = input.reshape(-1)
        return median(flat[~isnan.caller(flat)])
    d = normalize_dim(dim, input.ndim)
    counts = (~isnan.caller(input)).sum(d, keepdim=True)
    order = input.detach().argsort(d, stable=True)
    indices = order.gather(d, ((counts - 1) // 2).clamp(min=0))
    values = input.gather(d, indices)
    return _pairs["nanmedian"](values if keepdim else values.squeeze(d), indices if keepdim else indices.squeeze(d))


@public(inplace=False)
def kthvalue(input, k, dim=-1, keepdim=False):
    """The k-th smallest element (from 1) along `dim`: a named tuple (values, indices)."""
    n = input.shape[dim] if input.ndim else 1
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}: k={k} for {n} elements")
    return _picked("kthvalue", input, dim, keepdim, lambda n: k - 1)


@public(inplace=False)
@on_input_device
def mode(input, dim=-1, keepdim=False):
    """The most frequent element along `dim` (the smallest of several) and the last place it has."""
    d = normalize_dim(dim, input.ndim)
    raw = np.moveaxis(np.atleast_1d(to_cpu(input)), d, -1)
    flat = raw.reshape(-1, raw.shape[-1])
    places = np.zeros(len(flat), np.int64)
    for i, row in enumerate(flat):
        values, counts = np.unique(row, return_counts=True)
        places[i] = np.flatnonzero(row == values[np.argmax(counts)])[-1]
    indices = on_device_of(np.expand_dims(places.reshape(raw.shape[:-1]), d if input.ndim else 0), input)
    x = input.reshape(1) if input.ndim == 0 else input
    values = x.gather(d, indices)
    if not keepdim or input.ndim == 0:
        values, indices = values.squeeze(d), indices.squeeze(d)
    return _pairs["mode"](values, indices)


def _quantile_shares(q, interpolation):
    """(what a place between two elements makes of the second one's share, the quantiles as an array)."""
    ways = {
        "linear": lambda f: f,
        "lower": lambda f: f * 0,
        "higher": lambda f: (f > 0) * 1.0,
        "midpoint": lambda f: (f > 0) * 0.5,
        "nearest": lambda f: (f > 0.5) * 1.0,
    }
    if interpolation not in ways:
        raise RuntimeError(
            f"quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    raw_q = np.atleast_1d(np.asarray(to_cpu(q) if hasattr(q, "_data") else q, np.float64))
    if ((raw_q < 0) | (raw_q > 1)).any():
        raise RuntimeError("quantile() q values must be in the range [0, 1]")
    return ways[interpolation], raw_q


def _stacked(out, input, q, dim, d, keepdim):
    """Quantiles with (keepdim) or without the axis they were taken along, one after the other if q is a vector."""
    if dim is None:
        out = [o.reshape([1] * input.ndim if keepdim else []) for o in out]
    elif not keepdim or input.ndim == 0:
        out = [o.squeeze(d) for o in out]
    return out[0] if not hasattr(q, "ndim") or q.ndim == 0 else stack(out, 0)


@public(inplace=False)
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """The q-quantiles (q a number or a vector, which becomes the first axis) of all elements or along `dim`.

    Raises:
        RuntimeError: a q outside [0, 1], an unknown interpolation, or no elements.
    """
    weights, raw_q = _quantile_shares(q, interpolation)
    x, d = (input.reshape(-1), 0) if dim is None or input.ndim == 0 else (input, normalize_dim(dim, input.ndim))
    n = x.shape[d]
    if n == 0:
        raise RuntimeError("quantile() input tensor must be non-empty")
    ordered = x.sort(d).values
    bad = isnan.caller(x).any(d, keepdim=True)
    out = []
    for value in raw_q:
        at = value * (n - 1)
        low = math.floor(at)
        a, b = ordered.narrow(d, low, 1), ordered.narrow(d, math.ceil(at), 1)
        fraction = at - low
        if interpolation == "nearest":  # halves go to the even neighbour
            share = float(round(at) - low)
        else:
            share = float(weights(np.float64(fraction)))
        out.append(where(bad, math.nan, a + (b - a) * share))
    return _stacked(out, input, q, dim, d, keepdim)


@public(inplace=False)
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """As quantile, without the NaNs; NaN for a row of nothing else."""
    weights, raw_q = _quantile_shares(q, interpolation)
    x, d = (input.reshape(-1), 0) if dim is None or input.ndim == 0 else (input, normalize_dim(dim, input.ndim))
    ordered = x.sort(d).values  # NaNs come last
    n = (~isnan.caller(x)).sum(d, keepdim=True)
    out = []
    for value in raw_q:
        at = (n - 1).to(dtypes.float64) * float(value)
        low = at.floor()
        share = weights(at - low).to(x.dtype)
        a = ordered.gather(d, low.long().clamp(min=0))
        b = ordered.gather(d, at.ceil().long().clamp(min=0))
        out.append(where(n == 0, math.nan, a + (b - a) * share))
    return _stacked(out, input, q, dim, d, keepdim)


@public(inplace=False)
def aminmax(input, *, dim=None, keepdim=False):
    """(smallest, largest) of all elements or along `dim`."""
    dims = () if dim is None else dim
    return namedtuple("aminmax", ("min", "max"))(input.amin(dims, keepdim), input.amax(dims, keepdim))


@public(inplace=False)
@in_precision(None)
def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """The sum, NaNs counting as 0."""
    return sum_of(
        where(isnan.caller(input), 0.0, input) if input.dtype.is_floating_point else input, dim, keepdim, dtype=dtype
    )


@public(inplace=False)
@in_precision(None)
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean of what is not NaN."""
    kept = ~isnan.caller(input)
    return nansum(input, dim, keepdim, dtype=dtype) / sum_of(kept, dim, keepdim)


# -- counting and searching --------------------------------------------------------------------------------------------


@public(inplace=False)
@on_input_device
def bincount(input, weights=None, minlength=0):
    """How often each number 0, 1, … occurs in a vector of non-negative integers, or the sums of their weights."""
    raw = raw_of(input)
    if raw.ndim != 1 or raw.dtype.kind not in "iu" or (raw.size and raw.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    found = xp_of(raw).bincount(raw, weights=None if weights is None else raw_of(weights), minlength=minlength)
    return Tensor._wrap(
        found if weights is None else found.astype(np.float64 if raw_of(weights).dtype != np.float32 else np.float32)
    )


@public(inplace=False)
@on_input_device
def histc(input, bins=100, min=0, max=0):
    """How many elements fall into each of `bins` equal intervals from min to max (of the data, if both are 0)."""
    raw = to_cpu(input).reshape(-1)
    low, high = (raw.min(), raw.max()) if min == 0 and max == 0 and raw.size else (min, max)
    if low == high:
        low, high = low - 1, high + 1
    return on_device_of(np.histogram(raw, bins=bins, range=(low, high))[0].astype(raw.dtype), input)


@public(inplace=False)
def histogram(input, bins, *, range=None, weight=None, density=False):
    """(counts, edges) of a histogram; bins is a number or the edges."""
    raw = to_cpu(input).reshape(-1)
    edges = to_cpu(bins) if hasattr(bins, "_data") else bins
    weights = None if weight is None else to_cpu(weight).reshape(-1)
    counts, edges = np.histogram(raw, bins=edges, range=range, weights=weights, density=density)
    pair = namedtuple("histogram", ("hist", "bin_edges"))
    return pair(on_device_of(counts.astype(raw.dtype), input), on_device_of(edges.astype(raw.dtype), input))


@public(inplace=False, spellings={"input": "values", "self": "values"})
@on_input_device
def searchsorted(sorted_sequence, values, *, out_int32=False, right=False, side=None, sorter=None):
    """Where values would be inserted into sorted rows to keep them sorted."""
    seq = raw_of(sorted_sequence)
    xp = xp_of(seq)
    if sorter is not None:
        seq = xp.take_along_axis(seq, raw_of(sorter), -1)
    seq, wanted = wide(xp, seq), wide(xp, raw_of(values) if hasattr(values, "_data") else xp.asarray(values))
    side = side or ("right" if right else "left")
    if seq.ndim == 1:
        found = xp.asarray(xp.searchsorted(seq, wanted, side))
    else:
        rows, asked = seq.reshape(-1, seq.shape[-1]), wanted.reshape(-1, wanted.shape[-1])
        found = xp.stack([xp.searchsorted(r, v, side) for r, v in zip(rows, asked, strict=True)]).reshape(wanted.shape)
    return Tensor._wrap(found.astype(np.int32 if out_int32 else np.int64))


@public(inplace=False)
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The number of the interval between boundaries that each element falls into."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@public(inplace=False)
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements (or slices along `dim`), sorted; optionally where each went, and how often it came."""
    raw = to_cpu(input)
    values, inverse, counts = np.unique(raw, return_inverse=True, return_counts=True, axis=dim)
    shape = raw.shape if dim is None else (raw.shape[dim],)
    return _chosen(input, values, inverse.reshape(shape), counts, return_inverse, return_counts)


def _chosen(input, values, inverse, counts, return_inverse, return_counts):
    out = [on_device_of(values, input)]
    if return_inverse:
        out.append(on_device_of(inverse.astype(np.int64), input))
    if return_counts:
        out.append(on_device_of(counts.astype(np.int64), input))
    return tuple(out) if len(out) > 1 else out[0]


@public(inplace=False)
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements (or slices) without those that equal the one before."""
    raw = to_cpu(input)
    x = raw.reshape(-1) if dim is None else np.moveaxis(raw, dim, 0)
    rows = x.reshape(len(x), -1)
    starts = np.concatenate(([True], (rows[1:] != rows[:-1]).any(1))) if len(x) else np.zeros(0, bool)
    values = x[starts] if dim is None else np.moveaxis(x[starts], 0, dim)
    inverse = np.cumsum(starts) - 1
    counts = np.diff(np.append(np.flatnonzero(starts), len(x)))
    return _chosen(
        input, values, inverse.reshape(raw.shape) if dim is None else inverse, counts, return_inverse, return_counts
    )


@public(inplace=False)
def msort(input):
    """Sorted along the first axis."""
    return input.sort(0).values


# -- differences and sums ------------------------------------------------------------------------------------------------


@public(inplace=False)
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Differences of neighbours along `dim`, n times."""
    if n == 0:
        return input.clone()
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    parts = [p for p in (prepend, input, append) if p is not None]
    x = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(builtins.min(n, x.shape[dim])):
        size = x.shape[dim]
        x = (
            x.narrow(dim, 1, size - 1) - x.narrow(dim, 0, size - 1)
            if x.dtype is not dtypes.bool_
            else x.narrow(dim, 1, size - 1) != x.narrow(dim, 0, size - 1)
        )
    return x


@public(inplace=False, names=("trapz",))
def trapezoid(y, x=None, *, dx=None, dim=-1):
    """The integral along `dim` by the trapezoid rule."""
    n = y.shape[dim]
    means = (y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) * 0.5
    if x is None:
        return (means * (1.0 if dx is None else dx)).sum(dim)
    return (means * diff(x, dim=dim if x.ndim > 1 else -1)).sum(dim)


@public(inplace=False)
def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """The running integral along `dim` by the trapezoid rule."""
    n = y.shape[dim]
    means = (y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) * 0.5
    return (means * (diff(x, dim=dim if x.ndim > 1 else -1) if x is not None else 1.0 if dx is None else dx)).cumsum(
        dim
    )


@public(inplace=False)
@in_precision("float32")
def dist(input, other, p=2):
    """The p-norm of input - other."""
    return vector_norm(input - other, ord=float(p))


@public()
@in_precision("float32")
def renorm(input, p, dim, maxnorm):
    """input with its slices along `dim` scaled down to p-norm maxnorm."""
    others = tuple(d for d in range(input.ndim) if d != normalize_dim(dim, input.ndim))
    norms = input.norm(p, others, keepdim=True)
    return input * where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)


@public(inplace=False)
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of variables in rows, observations in columns.

    Args:
        correction: subtracted from the number of observations.
        fweights: how often each observation counts (integers). aweights: how much.

    Raises:
        RuntimeError: more than two axes, or weights that do not fit or are negative.
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
        if w.ndim != 1 or w.shape[0] != x.shape[1]:
            raise RuntimeError(
                f"cov(): expected {name} to have one element for each of {x.shape[1]} observations, got shape {tuple(w.shape)}"
            )
        if bool((w < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
        weights = w if weights is None else weights * w
    if weights is None:
        total, average, scaled = x.shape[1], mean_of(x, 1, True), None
        free = total - correction
    else:
        total = weights.sum()
        average = (x * weights).sum(1, keepdim=True) / total
        free = total - correction if aweights is None else total - correction * (weights * aweights).sum() / total
    centred = x - average
    scaled = centred if weights is None else centred * weights
    if (free if weights is None else float(free.detach())) <= 0:
        warnings.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
            UserWarning,
            stacklevel=3,
        )
        free = 0 if weights is None else free.clamp(min=0)
    return ((centred @ scaled.mH) / free).squeeze()


@public(inplace=False)
def corrcoef(input):
    """The correlation matrix of variables in rows."""
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
    """Second-order central differences along each axis of `dim` (all by default), one-sided at the ends: a tuple.

    Args:
        spacing: the step, or one for each axis, or the coordinates along each axis as tensors.
        edge_order: 1 or 2, the order of the differences at the ends.

    Raises:
        RuntimeError: spacings that do not fit the axes, or an axis shorter than edge_order + 1.
    """
    if spacing is None:
        spacing = 1
    if dim is None:
        count = len(spacing) if isinstance(spacing, (tuple, list)) else None
        dims = list(range(input.ndim)) if count is None or count == input.ndim else None
        if dims is None:
            raise RuntimeError(
                f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = {input.ndim}', but got a list of {count}"
            )
    else:
        dims = [normalize_dim(d, input.ndim) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    steps = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError(f"torch.gradient expected one spacing for each of {len(dims)} axes, got {len(steps)}")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    x = input if input.dtype.category >= dtypes.FLOAT else cast(input, dtypes.default_dtype())
    return tuple(_slope(x, d, step, edge_order) for d, step in zip(dims, steps, strict=True))


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

    def at(start, count):
        return x.narrow(d, start, count)

    jumps = at(1, n - 1) - at(0, n - 1)
    slopes = jumps / h
    left, right = h.narrow(d, 0, n - 2), h.narrow(d, 1, n - 2)
    inner = (slopes.narrow(d, 1, n - 2) * left + slopes.narrow(d, 0, n - 2) * right) / (left + right)
    if edge_order == 1:
        first, last = slopes.narrow(d, 0, 1), slopes.narrow(d, n - 2, 1)
    else:
        a, b = h.narrow(d, 0, 1), h.narrow(d, 1, 1)
        s, t = slopes.narrow(d, 0, 1), slopes.narrow(d, 1, 1)
        first = s + (s - t) * a / (a + b)
        a, b = h.narrow(d, n - 2, 1), h.narrow(d, n - 3, 1)
        s, t = slopes.narrow(d, n - 2, 1), slopes.narrow(d, n - 3, 1)
        last = s + (s - t) * a / (a + b)
    return cat([first, inner, last], d)
