"""Pooling over windows: max, average, Lp, adaptive and fractional pooling, and unpooling.

A window has few positions. So each op loops over the positions and processes all windows at once: position t of
all windows is a strided slice of the input.
"""

import functools
import math

import numpy as np

from ..arrays import ON_NUMPY, Namespace, config, dtypes, xp_of
from ..arrays.arguments import same_arguments
from ..arrays.array import on_input_device
from ..arrays.errors import alert_nondeterministic
from ..arrays.memory_format import channels_of_pool, in_rows
from ..arrays.tensor import Tensor
from .conv import DIMS, check_window, several, tap_slices, taps
from .creation import elements
from .dispatch.half import once_rounded_on_cpu
from .dispatch.op import op, own
from .dispatch.precision import in_precision
from .dispatch.unwrap import on_device_of, watched
from .elementwise import named, where
from .movement import contiguous, laid_by, laid_out_as
from .random import rand


def _sizes(shape, kernel, stride, padding, dilation, ceil_mode):
    """Returns the number of windows along each axis."""
    out = []
    for n, k, s, p, d in zip(shape, kernel, stride, padding, dilation, strict=True):
        reach = n + 2 * p - d * (k - 1) - 1
        count = (-(-reach // s) if ceil_mode else reach // s) + 1
        if ceil_mode and (count - 1) * s >= n + p:  # drop a window that begins after the input and its left padding
            count -= 1
        out.append(count)
    return tuple(out)


def _crop(shape, out, kernel, stride, padding):
    """Returns (kernel, padding) without the window positions that are in the padding for every window: less work for large windows."""
    cropped = []
    for n, o, k, s, p in zip(shape, out, kernel, stride, padding, strict=True):
        # Windows begin at -p, …, (o - 1) s - p. Position t of a window is in the input for some window if begin + t is in [0, n).
        low = max(0, p - (o - 1) * s) if k > n else 0
        cropped.append((min(k, n + p) - low, p - low))
    return tuple(zip(*cropped, strict=True))


def _enclose(xp, x, out, kernel, stride, padding, dilation, fill):
    """Returns x padded with `fill`, so that all windows fit. With ceil_mode, the right side needs more than `padding`."""
    widths = [(0, 0), (0, 0)]
    for n, o, k, s, p, d in zip(x.shape[2:], out, kernel, stride, padding, dilation, strict=True):
        need = (o - 1) * s + d * (k - 1) + 1
        widths.append((p, max(need - n - p, 0)))
    if any(a or b for a, b in widths):
        x = xp.pad(x, widths, constant_values=x.dtype.type(fill))
    return x


@op(dtype="same", outputs=("out", "chosen"), name="max_pool", grad_name="MaxPool{d}d", layout=channels_of_pool)
def _max_pool(xp, input, *, out_size, kernel, stride, padding, dilation):
    """Returns the maximum of each window, and the number of its position in the window."""
    low = -math.inf if input.dtype.kind in "fV" else np.iinfo(input.dtype).min
    x = _enclose(xp, input, out_size, kernel, stride, padding, dilation, low)
    best = chosen = None
    index_dtype = np.min_scalar_type(-math.prod(kernel))
    for t, position in enumerate(taps(kernel)):
        value = x[(slice(None), slice(None), *tap_slices(position, out_size, stride, dilation))]
        if best is None:
            best, chosen = value.copy(), xp.zeros(value.shape, index_dtype)
        else:
            # NaN wins over numbers, as in PyTorch.
            better = (value > best) | (value != value)
            best = xp.maximum(best, value)
            # T increases, so a maximum replaces a slower masked copy.
            chosen = xp.maximum(chosen, better.astype(index_dtype) * t)
    return best, chosen


def _within(position, out, x_shape, stride, padding, dilation):
    """Returns for one position: the windows in which it is inside the input, and the slices of the input that it covers."""
    windows, source = [], []
    for p, o, n, s, pad, d in zip(position, out, x_shape, stride, padding, dilation, strict=True):
        # Position p of window i is input element i * s + offset. Solve 0 <= i * s + offset < n for i.
        offset = p * d - pad
        first = max(0, -(offset // s)) if offset < 0 else 0
        last = min(o, (n - 1 - offset) // s + 1)
        last = max(last, first)
        windows.append(slice(first, last))
        begin = first * s + offset
        source.append(slice(begin, begin + max((last - first - 1) * s + 1, 0), s) if last > first else slice(0, 0))
    return (slice(None), slice(None), *windows), (slice(None), slice(None), *source)


@op(dtype="same", name="max_pool_backward")
def _max_pool_scatter(xp, g, *, chosen, shape, kernel, stride, padding, dilation):
    """Adds the gradient of each window at the chosen position."""
    gx = xp.zeros(shape, g.dtype)
    for t, position in enumerate(taps(kernel)):
        windows, source = _within(position, g.shape[2:], shape[2:], stride, padding, dilation)
        # Each slice has no duplicates, so += is safe. Windows that chose another position add 0.
        gx[source] += g[windows] * (chosen[windows] == t)
    return gx


@op(dtype="same", name="max_pool_gather")
def _max_pool_pick(xp, x, *, chosen, kernel, stride, padding, dilation):
    """Returns the element of each window at the chosen position: the gradient of `_max_pool_scatter`."""
    out = xp.zeros(chosen.shape, x.dtype)
    for t, position in enumerate(taps(kernel)):
        windows, source = _within(position, chosen.shape[2:], x.shape[2:], stride, padding, dilation)
        out[windows] += x[source] * (chosen[windows] == t)
    return out


def _geometry(kernel, stride, padding, dilation):
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}


_max_pool.grad(
    input=lambda g, chosen, shape, kernel, stride, padding, dilation, xp: xp.call(
        _max_pool_scatter, g, chosen=chosen, shape=shape, **_geometry(kernel, stride, padding, dilation)
    )
)
_max_pool.register_kernel(cpu="mytorch.kernels.numba.max_pool", cuda="mytorch.kernels.triton.pool:max_pool")
_max_pool_scatter.grad(
    g=lambda g, chosen, kernel, stride, padding, dilation, xp: xp.call(
        _max_pool_pick, g, chosen=chosen, **_geometry(kernel, stride, padding, dilation)
    )
)
_max_pool_pick.grad(
    x=lambda g, chosen, shape, kernel, stride, padding, dilation, xp: xp.call(
        _max_pool_scatter, g, chosen=chosen, shape=shape, **_geometry(kernel, stride, padding, dilation)
    )
)


def _flat_positions(chosen, shape, kernel, stride, padding, dilation):
    """Converts positions in windows to positions in the flattened spatial axes, int64: PyTorch's indices."""
    d = len(kernel)
    within = xp_of(chosen).unravel_index(chosen.astype(np.int64), kernel)
    flat = 0
    for i in range(d):
        o = xp_of(chosen).arange(chosen.shape[2 + i]).reshape((-1,) + (1,) * (d - 1 - i))
        flat = flat * shape[2 + i] + (o * stride[i] - padding[i] + within[i] * dilation[i])
    return flat


def _batched(input, d, name):
    """Returns (input with a batch axis, True if the axis was added)."""
    if input.ndim == d + 1:
        return input.unsqueeze(0), True
    if input.ndim != d + 2 or (0 in input.shape[1:] and "adaptive" not in name):
        raise RuntimeError(
            f"{name}: Expected {d + 1}D or {d + 2}D (batch mode) tensor with optional 0 dim batch size for input, "
            f"but got: {list(input.shape)}"
        )
    return input, False


def _windows(kernel_size, stride, padding, d, name):
    """Returns (kernel, stride, padding), each as d ints. The default stride is the kernel size.

    Raises:
        RuntimeError: the padding is more than half a window, or `check_window` fails.
    """
    kernel, padding = several(kernel_size, d, name), several(padding, d, name)
    stride = kernel if stride is None or stride in ((), []) else several(stride, d, name)
    check_window(name, kernel=kernel, stride=stride, padding=padding)
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise RuntimeError(
            f"{name}: pad should be at most half of effective kernel size, but got pad={padding}, kernel_size={kernel}"
        )
    return kernel, stride, padding


def _max_pooling(d):
    name = f"max_pool{d}d"

    values = in_precision(name=name)(_max_pool.fast_call)

    @on_input_device
    @named(name, **DIMS[d])
    def max_pool(
        input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False, *, fused=None,
        auto=False,
    ):  # fmt: skip
        """Computes the maximum of each window of the last {axes}.

        Args:
            input: {shape}.
            kernel_size: size of a window, {each}.
            stride: step between windows, {each} (default: `kernel_size`).
            padding: number of -inf elements added at both ends of an axis, {each} (default: 0).
            dilation: step between the elements of a window, {each} (default: 1).
            ceil_mode: if True, the last window may extend past the end (default: False).
            return_indices: if True, also returns the positions of the maxima in the flattened axes (default: False).

        Example:
            >>> F.{name}(mytorch.arange({count}.0).reshape(1{fours}), 4).item()
            {last}.0

        See also: `nn.MaxPool{d}d`.
        """
        kernel, stride, padding = _windows(kernel_size, stride, padding, d, name)
        dilation = several(dilation, d, name)
        check_window(name, dilation=dilation)
        x, single = _batched(input, d, name)
        out_size = _sizes(x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
        if any(o <= 0 for o in out_size):
            raise RuntimeError(
                f"{name}: the input {tuple(input.shape)} is smaller than the window {kernel}; the output size {out_size} is too small."
            )
        if dilation == (1,) * d:
            kernel, padding = _crop(x.shape[2:], out_size, kernel, stride, padding)
        geometry = _geometry(kernel, stride, padding, dilation)
        pool = _max_pool if return_indices else values
        pooled, chosen = pool(x, out_size=out_size, **geometry, fused=fused, auto=auto)
        out = pooled.squeeze(0) if single else pooled
        if d == 1 and not return_indices and not out.requires_grad:
            out = contiguous(out)
        if not return_indices:
            return out
        indices = Tensor._wrap(_flat_positions(chosen._mt_data._array, tuple(x.shape), **geometry))
        indices = indices.squeeze(0) if single else laid_by(channels_of_pool, indices, x)
        # backward uses `chosen` instead of the indices
        return out, Tensor._of(watched(indices._mt_data._array, chosen))

    return max_pool


def _channels_of_means(out, raws, _attrs=None):
    """Returns a result in its layout: means over three axes are in row-major order."""
    return in_rows(out) if raws[0].ndim > 4 else channels_of_pool(out, raws)


@op(dtype="same", name="avg_pool", grad_name="AveragePool{d}d", layout=_channels_of_means, half="cpu")
def _sum_pool(xp, input, *, out_size, kernel, stride, padding, scale):
    """Returns the sum of each window times `scale` (a number, or an array of the output's spatial shape)."""
    one = (1,) * len(kernel)
    x = _enclose(xp, input, out_size, kernel, stride, padding, one, 0)
    total = None
    for position in taps(kernel):
        value = x[(slice(None), slice(None), *tap_slices(position, out_size, stride, one))]
        total = value if total is None else total + value
    return xp.astype(total * xp.asarray(scale), input.dtype)


@op(dtype="same", name="avg_pool_backward", half="cpu")
def _sum_pool_spread(xp, g, *, shape, kernel, stride, padding, scale):
    """Adds the gradient of each window times `scale` at all its positions."""
    gx = xp.zeros(shape, g.dtype)
    scaled = (g * xp.asarray(scale)).astype(g.dtype, copy=False)
    one = (1,) * len(kernel)
    for position in taps(kernel):
        windows, source = _within(position, g.shape[2:], shape[2:], stride, padding, one)
        gx[source] += scaled[windows]
    return gx


_sum_pool.grad(
    input=lambda g, shape, kernel, stride, padding, scale, xp: xp.call(
        _sum_pool_spread, g, shape=shape, kernel=kernel, stride=stride, padding=padding, scale=scale
    )
)
_sum_pool.register_kernel(cuda="mytorch.kernels.triton.pool:avg_pool")
_sum_pool_spread.grad(
    g=lambda g, shapes, kernel, stride, padding, scale, xp: xp.call(
        _sum_pool, g, out_size=tuple(shapes[0][2:]), kernel=kernel, stride=stride, padding=padding, scale=scale
    )
)


def _counts(shape, out_size, kernel, stride, padding, count_include_pad):
    """Returns the divisor of the mean of each window."""
    counts = np.ones(())
    for n, o, k, s, p in zip(shape, out_size, kernel, stride, padding, strict=True):
        begin = np.arange(o) * s - p
        end = np.minimum(begin + k, n + p)
        if not count_include_pad:
            begin, end = np.maximum(begin, 0), np.minimum(end, n)
        # The count is a product over the axes, built up as an outer product.
        counts = counts[..., None] * (end - begin)
    return counts


def _avg_pooling(d):
    name = f"avg_pool{d}d"

    @in_precision()
    @named(name, **DIMS[d])
    def avg_pool(
        input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None,
        *, fused=None, auto=False,
    ):  # fmt: skip
        """Computes the mean of each window of the last {axes}.

        Args:
            input: {shape}.
            kernel_size: size of a window, {each}.
            stride: step between windows, {each} (default: `kernel_size`).
            padding: number of zeros added at both ends of an axis, {each} (default: 0).
            ceil_mode: if True, the last window may extend past the end (default: False).
            count_include_pad: if True, the mean counts padded zeros (default: True).
            divisor_override: divisor to use instead of the number of elements (default: None).

        Example:
            >>> F.{name}(mytorch.arange({count}.0).reshape(1{fours}), 4).item()
            {mean}

        See also: `nn.AvgPool{d}d`.
        """
        kernel, stride, padding = _windows(kernel_size, stride, padding, d, name)
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        x, single = _batched(input, d, name)
        out_size = _sizes(x.shape[2:], kernel, stride, padding, (1,) * d, ceil_mode)
        if any(o <= 0 for o in out_size):
            raise RuntimeError(f"{name}: the input {tuple(input.shape)} is smaller than the window {kernel}.")
        if divisor_override:
            scale = 1.0 / divisor_override
        elif not ceil_mode and (count_include_pad or not any(padding)):
            scale = 1.0 / math.prod(kernel)
        else:
            scale = 1.0 / _counts(x.shape[2:], out_size, kernel, stride, padding, count_include_pad)
        kernel, padding = _crop(x.shape[2:], out_size, kernel, stride, padding)
        options = {"out_size": out_size, "kernel": kernel, "stride": stride, "padding": padding, "scale": scale}
        out = _sum_pool(x, **options, fused=fused, auto=auto)
        return own(out.squeeze(0)) if single else out

    return avg_pool


max_pool1d, max_pool2d, max_pool3d = map(_max_pooling, (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pooling, (1, 2, 3))


def _lp_pooling(d, average, highest):
    name = f"lp_pool{d}d"

    @named(name, **DIMS[d])
    def lp_pool(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        """Computes the p-norm of each window of the last {axes}.

            result = (sum of x^p)^(1/p)

        Args:
            input: {shape}.
            norm_type: order p of the norm, not 0. With infinity, the result is the maximum magnitude.
            kernel_size: size of a window, {each}.
            stride: step between windows, {each} (default: `kernel_size`).
            ceil_mode: if True, the last window may extend past the end (default: False).

        Example:
            >>> F.{name}(mytorch.ones(1{fours}), 1, 4).item()
            {count}.0

        See also: `nn.LPPool{d}d`.
        """
        p, k = float(norm_type), math.prod(several(kernel_size, d, name))
        if p == 0:
            raise ZeroDivisionError(f"{name}: expected a norm_type other than 0, got {norm_type}.")
        if math.isinf(p):
            sign = math.copysign(1, p)
            return highest(input.abs() * sign, kernel_size, stride, 0, 1, ceil_mode) * sign
        means = average(input**p, kernel_size, stride, 0, ceil_mode)
        return (means.detach().sign() * means.abs().relu() * k) ** (1.0 / p)

    return lp_pool


lp_pool1d, lp_pool2d, lp_pool3d = map(
    _lp_pooling, (1, 2, 3), (avg_pool1d, avg_pool2d, avg_pool3d), (max_pool1d, max_pool2d, max_pool3d)
)


# -- adaptive: one window per output element -------------------------------------------------------------------------------


def _targets(input, output_size, d, name):
    sizes = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * d
    if isinstance(output_size, (tuple, list)) and input.ndim <= len(sizes):
        raise ValueError(f"Input dimension should be at least {len(sizes) + 1}")
    if len(sizes) != d or input.ndim not in (d + 1, d + 2):
        raise RuntimeError(
            f"{name}: expected a {d + 1}-d or {d + 2}-d input and {d} output sizes, got {tuple(input.shape)} and {sizes}."
        )
    if not input.dtype.is_floating_point and not input.dtype.is_complex:
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype}')
    if 0 in input.shape[-d - ("max" in name) :]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(input.shape)}"
        )
    sizes = tuple(n if s is None else several(s, 1, name)[0] for s, n in zip(sizes, input.shape[-d:], strict=True))
    if min(sizes) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received {sizes}")
    elements((*input.shape[:-d], *sizes), input.dtype.itemsize)  # raises an error for a result that is too large
    return sizes


def bounds(n, out):
    """Returns begin and end of `out` windows that together cover an axis of n: floor(i n / out) to ceil((i + 1) n / out)."""
    return [(i * n // out, -((-(i + 1) * n) // out)) for i in range(out)]


def averaging_matrix(n, out):
    """Returns a matrix (out, n) whose row i computes the mean of window i."""
    matrix = np.zeros((out, n))
    for i, (a, b) in enumerate(bounds(n, out)):
        matrix[i, a:b] = 1.0 / (b - a)
    return matrix


def _rows_of(matrix, taps):
    """Returns the elements of a matrix at `taps` (True or False) as (columns, weights, used), one row for each of its rows.

    Rows with fewer elements repeat their first column and divide its weight. `used` is False for rows without elements.
    """
    counts = np.count_nonzero(taps, 1)[:, None]
    place = np.arange(max(counts.max(initial=1), 1))
    columns = np.argsort(~taps, 1, kind="stable")[:, : len(place)]
    columns = np.where(place < counts, columns, columns[:, :1])
    weights = np.take_along_axis(matrix, columns, 1)
    repeated = (place == 0) | (place >= counts)
    return columns, np.where(repeated, weights / repeated.sum(1, keepdims=True), weights), counts > 0


@op(name="along", dtype="float")
def _along(xp, input, *, matrix, taps, axis):
    """Returns `matrix` times the vectors along a negative axis. Elements outside of `taps` have no effect, even NaN and infinity."""
    if xp in ON_NUMPY:
        # A product is faster. It is right unless an element is NaN or infinite.
        lead, rest = input.shape[:axis], input.shape[input.ndim + axis + 1 :]
        factor = matrix.astype(input.dtype)
        if math.prod(rest) == 1:  # the last axis: one product instead of one per vector
            out = xp.matmul(input.reshape(math.prod(lead), input.shape[axis]), factor.T)
        else:
            out = xp.matmul(factor, input.reshape(*lead, input.shape[axis], math.prod(rest)))
        with np.errstate(invalid="ignore", over="ignore"):
            finite = np.isfinite(xp.sum(out))
        if finite:
            return out.reshape(*lead, len(matrix), *rest)
    columns, weights, used = (xp.asarray(a) for a in _rows_of(matrix, taps))
    rest = (1,) * (-axis - 1)
    terms = xp.take(input, columns, axis=axis) * weights.reshape(*weights.shape, *rest).astype(input.dtype)
    return xp.where(used.reshape(-1, *rest), xp.sum(terms, axis=axis), input.dtype.type(0))


def _along_transposed(g, matrix, taps, axis, xp):
    run = functools.partial(_along.forward, xp) if isinstance(xp, Namespace) else _along.fast_call
    return run(g, matrix=matrix.T, taps=taps.T, axis=axis)


_along.grad(input=_along_transposed)
_along.reruns = True


@in_precision(None)
def along(input, axis, matrix, taps=None):
    """Applies a matrix (out, n) along one axis, which then has `out` elements.

    Args:
        taps: True for the elements of the matrix that count, by default those that are not zero. PyTorch also multiplies by some
            weights that are zero, which is NaN for infinite elements.
    """
    return _along.fast_call(
        input, matrix, matrix != 0 if taps is None else taps, axis if axis < 0 else axis - input.ndim
    )


def _even_window(input, sizes):
    """Returns the size of `sizes` equal windows that cover the last axes; None if they cannot be equal."""
    axes = tuple(zip(input.shape[-len(sizes) :], sizes, strict=True))
    return None if any(s == 0 or n % s for n, s in axes) else tuple(n // s for n, s in axes)


def _pooled_to_nothing(input, sizes, name):
    """Returns an empty result. Its backward raises, as in PyTorch."""

    def refuse(grad):
        raise RuntimeError(
            f"{name}_backward(): Expected grad_output to have non-zero size for non-batch dimensions, but grad_output has sizes "
            f"{list(grad.shape)} with an empty dimension"
        )

    d = len(sizes)
    out = input.flatten(-d)[..., :0].reshape(*input.shape[:-d], *sizes)
    if out.requires_grad:
        out.register_hook(refuse)
    return out


def _adaptive_avg(d, pool):
    name = f"adaptive_avg_pool{d}d"

    @in_precision()
    @named(name, **DIMS[d])
    @once_rounded_on_cpu
    def adaptive(input, output_size):
        """Averages windows of the last {axes}. The sizes of the windows follow from the output size.

        Args:
            input: {shape}.
            output_size: output size, {each}. None keeps the size of an axis.

        Example:
            >>> F.{name}(mytorch.arange({count}.0).reshape(1{fours}), 1).item()
            {mean}

        See also: `nn.AdaptiveAvgPool{d}d`.
        """
        sizes = _targets(input, output_size, d, name)
        if 0 in sizes:
            return _pooled_to_nothing(input, sizes, name)
        window = _even_window(input, sizes)
        if window is not None:
            out = pool(input, window) if math.prod(window) < 32 else _by_window(input, sizes).mean(-1)
            return laid_by(_channels_of_means, out, input)
        out = input
        for axis, size in enumerate(sizes, input.ndim - d):
            if input.shape[axis] != size:
                out = along(out, axis, averaging_matrix(input.shape[axis], size))
        return laid_by(_channels_of_means, out, input) if input.ndim == d + 2 else contiguous(out)

    return adaptive


def _adaptive_max(d, pool):
    name = f"adaptive_max_pool{d}d"

    @in_precision()
    @named(name, **DIMS[d])
    def adaptive(input, output_size, return_indices=False):
        """Computes maxima of windows of the last {axes}. The sizes of the windows follow from the output size.

        Args:
            input: {shape}.
            output_size: output size, {each}. None keeps the size of an axis.
            return_indices: if True, also returns the positions of the maxima in the flattened axes (default: False).

        Example:
            >>> F.{name}(mytorch.arange({count}.0).reshape(1{fours}), 1).item()
            {last}.0

        See also: `nn.AdaptiveMaxPool{d}d`.
        """
        sizes = _targets(input, output_size, d, name)
        window = _even_window(input, sizes)
        if 0 in sizes:
            values = _pooled_to_nothing(input, sizes, name)
            return (values, values.long()) if return_indices else values
        if window is not None and math.prod(window) < 32:
            return pool(input, window, return_indices=return_indices)
        values, places = (
            contiguous(x) if d == 3 or input.ndim == d + 1 else laid_by(channels_of_pool, x, input)
            for x in _window_maxima(input, sizes)
        )
        return (values, places) if return_indices else values

    return adaptive


def _by_window(x, sizes):
    """Returns the windows of the last axes, each as one row. Shorter windows repeat their last element."""
    lead, split = x.ndim - len(sizes), []
    for axis, size in enumerate(sizes, lead):
        begin, end = np.array(bounds(x.shape[axis], size)).T[..., None]
        index = np.minimum(begin + np.arange((end - begin).max()), end - 1)
        split += index.shape
        if index.size > x.shape[axis]:
            x = x.index_select(axis, on_device_of(index.reshape(-1), x))
    # (…, windows 1, length 1, windows 2, length 2, …): first all windows, then all lengths.
    order = (*range(lead), *range(lead, lead + len(split), 2), *range(lead + 1, lead + len(split), 2))
    return x.reshape(*x.shape[:lead], *split).permute(order).flatten(-len(sizes))


def _window_maxima(input, sizes):
    """Returns the maxima of windows of any sizes, and their flat positions. The gradient is added at the positions."""
    d, flat = len(sizes), input.flatten(-len(sizes))
    windows = _by_window(input.detach(), sizes)
    chosen = windows.max(-1).indices  # the first NaN of a window; PyTorch chooses the last one
    if windows.dtype.is_floating_point:
        lost = windows != windows
        chosen = where(lost.any(-1), windows.shape[-1] - 1 - lost.flip(-1).long().argmax(-1), chosen)
    places = _by_window(on_device_of(np.arange(flat.shape[-1]).reshape(input.shape[-d:]), input), sizes)
    places = places.expand(*chosen.shape, -1).gather(-1, chosen[..., None])[..., 0]
    return own(flat.gather(-1, places.flatten(-d)).reshape(places.shape)), own(places)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(
    _adaptive_avg, (1, 2, 3), (avg_pool1d, avg_pool2d, avg_pool3d)
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(
    _adaptive_max, (1, 2, 3), (max_pool1d, max_pool2d, max_pool3d)
)


# -- unpooling --------------------------------------------------------------------------------------------------


def _unpooled_size(requested, default, stride, name):
    """Returns the requested output size of unpooling, which must be within one stride of the default.

    Raises:
        ValueError: the size is out of range, or has the wrong number of axes.
    """
    if requested is None:
        return default
    d, requested = len(default), tuple(requested)
    if len(requested) not in (d, d + 2):
        raise ValueError(
            f"{name}: output_size should be a sequence containing {d} or {d + 2} elements, but it has a length of '{len(requested)}'"
        )
    size = requested[-d:]
    for i, (n, expected, s) in enumerate(zip(size, default, stride, strict=True)):
        if not expected - s < n < expected + s:
            raise ValueError(
                f'{name}: invalid output_size "{size}" (dim {i} must be between {expected - s} and {expected + s})'
            )
    return size


def _unpooling(d):
    name = f"max_unpool{d}d"

    @in_precision()
    @named(name, **DIMS[d])
    def max_unpool(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        """Inverts `max_pool{d}d` partially: writes the maxima to their positions and zeros elsewhere.

        Args:
            input: maxima, {shape}.
            indices: positions of the maxima, as returned by `max_pool{d}d` with return_indices=True.
            kernel_size: size of a window, {each}.
            stride: step between windows, {each} (default: `kernel_size`).
            padding: padding of the windows, {each} (default: 0).
            output_size: size of the result (default: the smallest size that gives this many windows).

        Raises:
            ValueError: `output_size` differs from the default by a stride or more.
            RuntimeError: the shapes of `input` and `indices` differ.

        Example:
            >>> x = mytorch.arange({count}.0).reshape(1{fours})
            >>> values, indices = F.max_pool{d}d(x, 2, return_indices=True)
            >>> F.{name}(values, indices, 2).shape == x.shape
            True

        See also: `nn.MaxUnpool{d}d`.
        """
        kernel, padding = several(kernel_size, d, name), several(padding, d, name)
        stride = kernel if stride is None or stride in ((), []) else several(stride, d, name)
        _batched(input, d, name)
        alert_nondeterministic(f"max_unpooling{max(d, 2)}d_forward_out")
        if config.pytorch_mode and indices.dtype is not dtypes.int64:
            raise RuntimeError(
                f"{name}: expected indices of dtype int64, got {indices.dtype}. Convert them with long()."
            )
        if tuple(input.shape) != tuple(indices.shape):
            raise RuntimeError(
                f"{name}: Expected shape of indices to be the shape of the input tensor ({list(input.shape)}) but got "
                f"indices tensor with shape: {list(indices.shape)}"
            )
        default = tuple(
            (n - 1) * s - 2 * p + k for n, s, p, k in zip(input.shape[-d:], stride, padding, kernel, strict=True)
        )
        for i, n in enumerate(default):
            if n < 0:
                raise ValueError(
                    f"max_unpooling: output_size must contain non-negative spatial dimensions, but got output_size[{i}]={n}"
                )
        size = _unpooled_size(output_size, default, stride, name)
        lead = tuple(input.shape[:-d])
        flat = input.flatten(len(lead))
        out = input.new_zeros(*lead, math.prod(size))
        out = out.scatter(-1, indices.flatten(len(lead)), flat).reshape(*lead, *size)
        return laid_out_as(input, out) if d == 2 else out

    return max_unpool


max_unpool1d, max_unpool2d, max_unpool3d = (_unpooling(d) for d in (1, 2, 3))


# -- fractional: windows at random positions --------------------------------------------------------------------


def _starts(xp, samples, n, out, kernel):
    """Returns the begins of `out` windows of `kernel` on an axis of n: pseudo-random steps from one number in [0, 1).

    Args:
        samples: (N, C). Returns an int64 array (N, C, out).
    """
    last = n - kernel
    steps = samples.dtype.type(last) / samples.dtype.type(max(out - 1, 1))
    u = samples[..., None]
    i = xp.arange(out).astype(samples.dtype)
    # floor((i + u) s) - floor(u s): steps of floor(s) or ceil(s), in a pattern that depends on u.
    starts = ((i + u) * steps).astype(np.int64) - (u * steps).astype(np.int64)
    starts[..., -1] = last
    return starts


def _fractional_sizes(input, output_size, output_ratio, d, name):
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_size is not None:
        return several(output_size, d, name)
    ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * d
    if len(ratios) != d:
        raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
    if not all(0 < r < 1 for r in ratios):
        raise RuntimeError(f"{name}: expected output_ratio between 0 and 1, got {output_ratio}.")
    return tuple(int(n * r) for n, r in zip(input.shape[-d:], ratios, strict=True))


def _fractional_places(x, u, sizes, kernel):
    """Returns the flat position of the maximum of each window. The numbers u determine the begins of the windows."""
    xp, (batch, channels, *spatial), d = xp_of(x), x.shape, len(sizes)
    u = u[..., ::-1] if d == 2 else u  # PyTorch uses the first number for the last axis
    starts = [_starts(xp, u[..., i], n, o, k) for i, (n, o, k) in enumerate(zip(spatial, sizes, kernel, strict=True))]
    flat_x = x.reshape(batch, channels, math.prod(x.shape[2:]))
    best = argmax = None
    for position in taps(kernel):
        flat = 0
        for i, p in enumerate(position):
            position_i = (starts[i] + p).reshape(batch, channels, *(sizes[i] if j == i else 1 for j in range(d)))
            flat = flat * spatial[i] + position_i
        flat = flat.reshape(batch, channels, math.prod(sizes))
        value = xp.take_along_axis(flat_x, flat, -1)
        if best is None:
            best, argmax = value, flat
        else:
            better = (value > best) | (value != value)
            best, argmax = xp.where(better, value, best), xp.where(better, flat, argmax)
    return argmax


def _fractional_pooling(d):
    name = f"fractional_max_pool{d}d"

    @on_input_device
    def fractional_with_indices(
        input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
    ):
        for word, sizes in (("kernel_size", kernel_size), ("output_size", output_size)):
            if isinstance(sizes, (tuple, list)) and len(sizes) != d:
                raise RuntimeError(f"{name}: {word} must either be a single int or a tuple of {d} ints")
        sizes = _fractional_sizes(input, output_size, output_ratio, d, name)
        kernel = several(kernel_size, d, name)
        check_window(name, kernel=kernel)
        x, single = _batched(input, d, name)
        spatial = tuple(x.shape[2:])
        if 0 in sizes:
            values = _pooled_to_nothing(input, sizes, name)
            return values, values.long()
        for n, o, k in zip(spatial, sizes, kernel, strict=True):
            if o < 0 or o + k - 1 > n:
                raise RuntimeError(
                    f"{name}: the window {kernel} is too large for the input {spatial} and the output {sizes}."
                )
        samples = rand(*x.shape[:2], d, dtype=x.dtype, device=x.device) if _random_samples is None else _random_samples
        if tuple(samples.shape) != (*x.shape[:2], d):
            raise RuntimeError(
                f"{name}: expected _random_samples of shape {(*x.shape[:2], d)}, got {tuple(samples.shape)}."
            )
        lead = tuple(x.shape[:2])
        indices = Tensor._wrap(_fractional_places(x._mt_data._array, samples._mt_data._array, sizes, kernel))
        out = x.flatten(len(lead)).gather(-1, indices).reshape(*lead, *sizes)
        indices = indices.reshape(*lead, *sizes)
        return (own(out.squeeze(0)), own(indices.squeeze(0))) if single else (own(out), own(indices))

    def fractional(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        """Computes the maxima of windows of the last {axes} at pseudo-random positions.

        Args:
            input: {shape}.
            kernel_size: size of a window, {each}.
            output_size: number of windows, {each}. Give either `output_size` or `output_ratio`.
            output_ratio: number of windows as a fraction of the input size, between 0 and 1.
            return_indices: {returned}.
            _random_samples: (N, C, {d}) numbers in [0, 1) that determine the positions (default: random).

        Returns:
            The maxima, or (maxima, positions of the maxima in the flattened axes).

        Raises:
            ValueError: neither `output_size` nor `output_ratio` is given.
            RuntimeError: the windows are too large, or an output ratio is not between 0 and 1.

        Source: Graham, Fractional max-pooling, 2014.

        Example:
            >>> F.fractional_max_pool{d}d(mytorch.ones(1, 1{fours}), 2, output_size=2).shape
            mytorch.Size([1, 1{twos}])

        See also: `nn.FractionalMaxPool{d}d`.
        """
        found = fractional_with_indices(input, kernel_size, output_size, output_ratio, return_indices, _random_samples)
        return found if return_indices else found[0]

    fractional_with_indices.__doc__ = fractional.__doc__
    named(name + "_with_indices", returned="ignored; the positions are always returned", **DIMS[d])(
        fractional_with_indices
    )
    named(name, returned="if True, also returns the positions of the maxima (default: False)", **DIMS[d])(fractional)
    return in_precision()(fractional_with_indices), in_precision()(fractional)


fractional_max_pool2d_with_indices, fractional_max_pool2d = _fractional_pooling(2)
fractional_max_pool3d_with_indices, fractional_max_pool3d = _fractional_pooling(3)


def _with_indices(pool, count):
    """Returns the variant of a max-pooling function that returns (maxima, positions)."""

    @functools.wraps(pool)
    def pool_with_indices(*args, **kwargs):
        kwargs.pop("return_indices", None)
        return pool(*args[:count], **kwargs, return_indices=True)

    pool_with_indices.__wrapped__ = pool  # for its signature
    doc = same_arguments(
        f"Runs `{pool.__name__}` and returns (maxima, positions of the maxima).", pool, "return_indices"
    )
    doc += "    return_indices: ignored.\n"
    return named(pool.__name__ + "_with_indices", doc)(pool_with_indices)


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    _with_indices(pool, 6) for pool in (max_pool1d, max_pool2d, max_pool3d)
)
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    _with_indices(pool, 2) for pool in (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d)
)
