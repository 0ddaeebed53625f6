"""Convolutions in one, two and three dimensions, and transposed convolutions.

A convolution is a matrix product (im2col): each window of the input becomes a column, and the weight multiplies the
columns. Three ops, each linear in both inputs, are each other's gradients:

    convolve(x, w)            the convolution itself
    convolve_input(g, w)      its gradient for x: the columns wᵀ g, added at the positions of their windows (col2im)
    convolve_weight(g, x)     its gradient for w: g times the transposed columns of x

So second derivatives need no further ops, and a transposed convolution is `convolve_input` used as forward.
"""

import math
import operator
from itertools import product

import numpy as np

from ..arrays import ON_NUMPY, Namespace
from ..arrays.errors import require_tensor, shapes
from ..arrays.memory_format import channels_of_any
from .dispatch.op import op
from .elementwise import named
from .padding import pad

CACHED = 1 << 20  # elements of the columns of a chunk: 4 MB of float32


def _padded(xp, x, padding):
    """Returns x with zeros around its spatial axes."""
    if not any(padding):
        return x
    return xp.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))


def out_size(n, k, stride, padding, dilation):
    """Returns the output size of an axis: floor((n + 2 padding - dilation (k - 1) - 1) / stride) + 1."""
    return (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1


def windows(xp, x, kernel, stride, dilation, out=None):
    """Returns all windows of a padded (N, C, *spatial) array as a view (N, C, *kernel, *out). `out`: only the first windows."""
    d = len(kernel)
    out = out or [(n - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i, n in enumerate(x.shape[2:])]
    strides = x.strides
    # Strides of the view: one step inside a window is `dilation` elements, one window further is `stride` elements.
    shape = (*x.shape[:2], *kernel, *out)
    steps = (
        *strides[:2],
        *(strides[2 + i] * dilation[i] for i in range(d)),
        *(strides[2 + i] * stride[i] for i in range(d)),
    )
    return xp.lib.stride_tricks.as_strided(x, shape, steps)


def _columns(xp, x, kernel, stride, padding, dilation, groups, out=None):
    """Returns the windows as columns (N, G, C/G * prod(kernel), prod(out))."""
    n, c = x.shape[:2]
    # 1 × 1 windows: the input is already the matrix of columns.
    if all(k == 1 for k in kernel) and all(s == 1 for s in stride) and not any(padding):
        return x.reshape(n, groups, c // groups, math.prod(x.shape[2:]))
    padded = _padded(xp, x, padding)
    if isinstance(xp, Namespace):
        view = windows(xp, padded, kernel, stride, dilation, out)
    else:
        out = out or [
            out_size(n, *sizes, 0, dil)
            for n, *sizes, dil in zip(padded.shape[2:], kernel, stride, dilation, strict=True)
        ]
        # Over Tensors there are no strided views: stack one slice per position of the window.
        slices = [padded[(..., *tap_slices(position, out, stride, dilation))] for position in taps(kernel)]
        view = xp.reshape(xp.stack(slices, axis=2), (n, c, *kernel, *out))
    return view.reshape(n, groups, c // groups * math.prod(kernel), math.prod(view.shape[2 + len(kernel) :]))


def _share(xp, n, groups, kernel, each):
    """Returns True if several images should share a product: on a CPU, if the columns of several images fit into the cache.

    `each` is the number of elements of one image's columns. With a separate product for each image, BLAS would repack the
    whole weight for only a few columns.
    """
    return xp in ON_NUMPY and groups == 1 and n > 1 and max(kernel) > 1 and 4 * each <= CACHED


def _images_last(xp, x):
    """Returns x (N, C, *spatial) with the image axis last in memory: one element of all images is contiguous."""
    return np.moveaxis(xp.ascontiguousarray(x.reshape(len(x), -1).T).reshape(*x.shape[1:], len(x)), -1, 0)


def _as_rows(x):
    """Returns the result of `_images_last` as a matrix (C, positions * N), without a copy."""
    return np.moveaxis(x, 0, -1).reshape(x.shape[1], math.prod(x.shape[2:]) * len(x))


def _shared_columns(xp, x, kernel, stride, padding, dilation, out):
    """Returns the windows of all images as columns of one matrix (C * prod(kernel), prod(out) * N)."""
    sizes = [n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)]
    # With images last in memory, the view below has N contiguous elements per position, so its copy is fast.
    padded = np.moveaxis(xp.zeros((x.shape[1], *sizes, len(x)), x.dtype), -1, 0)
    padded[_within(padding, x.shape[2:])] = _images_last(xp, x)
    view = np.moveaxis(windows(xp, padded, kernel, stride, dilation, out), 0, -1)
    return view.reshape(x.shape[1] * math.prod(kernel), math.prod(out) * len(x))


def _within(padding, sizes):
    """Returns the slices of an input of these sizes inside its padding."""
    return (slice(None), slice(None), *(slice(p, p + n) for p, n in zip(padding, sizes, strict=True)))


def taps(kernel):
    """Returns all positions within a window."""
    return list(product(*map(range, kernel)))


def tap_slices(position, out, stride, dilation):
    """Returns the elements at one position of all windows in the padded array, as a strided slice for each axis."""
    return tuple(
        slice(p * dilation[i], p * dilation[i] + (out[i] - 1) * stride[i] + 1, stride[i])
        for i, p in enumerate(position)
    )


def _chunks(xp, n, each):
    """Divides the batch into slices whose columns fit into the CPU's cache. A GPU processes the whole batch."""
    step = max(CACHED // max(each, 1) if xp in ON_NUMPY else n, 1)
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


@op(name="convolution", grad_name="Conv{d}d", autocast="half", layout=channels_of_any)
def convolve(xp, input, weight, bias=None, *, stride, padding, dilation, groups):
    """Returns the convolution of (N, C, *spatial) with (O, C / groups, *kernel)."""
    kernel, n = weight.shape[2:], input.shape[0]
    out = [
        out_size(n, k, *geometry)
        for n, k, *geometry in zip(input.shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    # The weight as one matrix (outputs, inputs * taps) per group.
    rows = weight.reshape(1, groups, weight.shape[0] // groups, math.prod(weight.shape[1:]))
    if not isinstance(xp, Namespace):  # over Tensors: no in-place writes
        result = xp.matmul(rows, _columns(xp, input, kernel, stride, padding, dilation, groups))
        result = xp.reshape(result, (n, weight.shape[0], *out))
        return result if bias is None else result + xp.reshape(bias, (-1, *(1,) * len(kernel)))
    result = xp.empty((n, weight.shape[0], *out), input.dtype)
    split = result.reshape(n, groups, rows.shape[2], math.prod(out))
    if groups == math.prod(out) == 1:  # a single window per image: one product for the whole batch
        columns = _columns(xp, input, kernel, stride, padding, dilation, 1).reshape(n, rows.shape[3])
        split[:, 0, :, 0] = xp.matmul(columns, rows[0, 0].T)
    elif _share(xp, n, groups, kernel, rows.shape[3] * math.prod(out)):
        for chunk in _chunks(xp, n, rows.shape[3] * math.prod(out)):
            # One product for the images of a chunk; its result has the images last, so transpose it.
            columns = _shared_columns(xp, input[chunk], kernel, stride, padding, dilation, out)
            part = result[chunk].reshape(-1, rows.shape[2] * math.prod(out))
            part[...] = xp.matmul(rows[0, 0], columns).reshape(part.shape[1], len(part)).T
    else:
        for chunk in _chunks(xp, n, groups * rows.shape[3] * math.prod(out)):
            xp.matmul(rows, _columns(xp, input[chunk], kernel, stride, padding, dilation, groups), split[chunk])
    if bias is not None:
        result += bias.reshape(-1, *(1,) * len(kernel))
    return result


@op(name="convolution_input", grad_name="ConvTranspose{d}d", autocast="half", layout=channels_of_any)
def convolve_input(xp, g, weight, bias=None, *, shape, stride, padding, dilation, groups):
    """Returns the gradient of a convolution's input of the given spatial `shape`."""
    kernel, out, n = weight.shape[2:], g.shape[2:], g.shape[0]
    channels, each = weight.shape[1] * groups, weight.shape[0] // groups
    # The transposed weight maps a gradient to the columns: (inputs * taps, outputs) per group.
    columns_of = xp.swapaxes(weight.reshape(1, groups, each, math.prod(weight.shape[1:])), -1, -2)
    split = g.reshape(n, groups, each, math.prod(out))
    if all(k == 1 for k in kernel) and all(s == 1 for s in stride) and not any(padding):
        result = xp.matmul(columns_of, split).reshape(n, channels, *shape)
    else:
        sizes, k = [s + 2 * p for s, p in zip(shape, padding, strict=True)], math.prod(kernel)
        share = _share(xp, n, groups, kernel, channels * k * math.prod(out))
        padded = (
            np.moveaxis(xp.zeros((channels, *sizes, n), g.dtype), -1, 0)
            if share
            else xp.zeros((n, channels, *sizes), g.dtype)
        )
        for chunk in _chunks(xp, n, channels * k * math.prod(out)):
            part = padded[chunk]
            if share:
                columns = xp.matmul(columns_of[0, 0], _as_rows(_images_last(xp, g[chunk])))
                columns = np.moveaxis(columns.reshape(channels, k, *out, len(part)), -1, 0)
            else:
                columns = xp.matmul(columns_of, split[chunk]).reshape(len(part), channels, k, *out)
            # col2im: windows overlap, but each position t of all windows is one strided slice without overlap.
            for t, position in enumerate(taps(kernel)):
                part[(slice(None), slice(None), *tap_slices(position, out, stride, dilation))] += columns[:, :, t]
        # Drop the gradient of the padding.
        result = padded[_within(padding, shape)]
        result = xp.ascontiguousarray(result) if share else result
    if bias is not None:
        result = result + bias.reshape(-1, *(1,) * len(kernel))
    return result


@op(name="convolution_weight")
def convolve_weight(xp, g, input, *, kernel, stride, padding, dilation, groups):
    """Returns the gradient of a convolution's weight."""
    n, channels = input.shape[:2]
    outs, out = g.shape[1], math.prod(g.shape[2:])
    rows = g.reshape(n, groups, outs // groups, out)
    if groups == out == 1:
        columns = _columns(xp, input, kernel, stride, padding, dilation, 1, g.shape[2:])
        columns = columns.reshape(n, channels * math.prod(kernel))
        return xp.matmul(xp.swapaxes(g.reshape(n, outs), 0, 1), columns).reshape(outs, channels, *kernel)
    # Sums over images: half precision accumulates in float32.
    dtype = np.result_type(g.dtype, np.float32)
    total = xp.zeros((groups, outs // groups, channels // groups * math.prod(kernel)), dtype)
    for chunk in _chunks(xp, n, channels * math.prod(kernel) * out):
        if _share(xp, n, groups, kernel, channels * math.prod(kernel) * out):
            columns = _shared_columns(xp, input[chunk], kernel, stride, padding, dilation, g.shape[2:])
            total[0] += xp.matmul(_as_rows(_images_last(xp, g[chunk])), columns.T)
            continue
        columns = _columns(xp, input[chunk], kernel, stride, padding, dilation, groups, g.shape[2:])
        total += xp.sum(xp.matmul(rows[chunk], xp.swapaxes(columns, -1, -2)).astype(dtype, copy=False), axis=0)
    return total.astype(g.dtype, copy=False).reshape(outs, channels // groups, *kernel)


def _over_positions(xp, g):
    return xp.sum(g, axis=(0, *range(2, len(g.shape))))


def _geometry(stride, padding, dilation, groups):
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


convolve.grad(
    input=lambda g, weight, shapes, stride, padding, dilation, groups, xp: xp.call(
        convolve_input, g, weight, shape=tuple(shapes[0][2:]), **_geometry(stride, padding, dilation, groups)
    ),
    weight=lambda g, input, shapes, stride, padding, dilation, groups, xp: xp.call(
        convolve_weight, g, input, kernel=tuple(shapes[1][2:]), **_geometry(stride, padding, dilation, groups)
    ),
    bias=lambda g, xp: _over_positions(xp, g),
)
convolve.register_kernel(
    cpu="mytorch.kernels.numba.convolution:convolution", cuda="mytorch.kernels.triton.conv:convolution"
)


def _cropped_to(x, shape):
    """Returns the first `shape` elements of x. With output_padding, the convolution may have more windows than the input."""
    return x if tuple(x.shape) == tuple(shape) else x[tuple(slice(n) for n in shape)]


convolve_input.grad(
    g=lambda up, weight, shapes, stride, padding, dilation, groups, xp: _cropped_to(
        xp.call(convolve, up, weight, **_geometry(stride, padding, dilation, groups)), shapes[0]
    ),
    weight=lambda up, g, shapes, stride, padding, dilation, groups, xp: xp.call(
        convolve_weight, g, up, kernel=tuple(shapes[1][2:]), **_geometry(stride, padding, dilation, groups)
    ),
    bias=lambda up, xp: _over_positions(xp, up),
)
convolve_input.register_kernel(
    cpu="mytorch.kernels.numba.convolution:conv_transpose", cuda="mytorch.kernels.triton.conv:conv_transpose"
)


def _convolve_weight_vjp(up, g, input, shapes, stride, padding, dilation, groups, needs, xp):
    geometry = _geometry(stride, padding, dilation, groups)
    return (
        _cropped_to(xp.call(convolve, input, up, **geometry), shapes[0]) if needs[0] else None,
        xp.call(convolve_input, g, up, shape=tuple(shapes[1][2:]), **geometry) if needs[1] else None,
    )


convolve_weight.vjp(_convolve_weight_vjp)


def several(value, d, name):
    """Returns a number or d numbers as a tuple of d ints.

    Raises:
        RuntimeError: a different number of values.
    """
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(values) not in (1, d):
        raise RuntimeError(f"{name}: expected one number or {d}, got {values}.")
    try:
        values = tuple(map(operator.index, values))
    except TypeError:
        raise TypeError(f"{name}: expected an int or {d} of them, got {value!r}.") from None
    return values * d if len(values) == 1 else values


def check_window(name, *, kernel=(), stride=(), dilation=(), padding=()):
    """Checks that windows have positive sizes and strides, and a padding that is not negative.

    Raises:
        RuntimeError: a size, stride or dilation below 1, or a negative padding.
    """
    for word, values in (("kernel size", kernel), ("stride", stride), ("dilation", dilation)):
        if values and min(values) <= 0:
            raise RuntimeError(f"{name}: {word} should be greater than zero, but got {values}")
    if padding and min(padding) < 0:
        raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {padding}")


def _check_weight(name, input, weight, bias, outs, groups):
    """Checks groups, weight and bias of a convolution to `outs` channels."""
    if groups <= 0:
        raise RuntimeError(f"{name}: non-positive groups is not supported, got {groups}")
    message = f"{name}: Given groups={groups}, weight of size {list(weight.shape)}"
    if weight.shape[0] < groups or weight.shape[0] % groups:
        raise RuntimeError(
            f"{message}, expected weight to be at least {groups} at dimension 0, and divisible by it, but got {weight.shape[0]}"
        )
    if bias is not None and not hasattr(bias, "shape"):
        raise TypeError(f"{name}(): argument 'bias' must be Tensor, not {type(bias).__name__}")
    if bias is not None and tuple(bias.shape) != (outs,):
        raise RuntimeError(
            f"{message}, expected bias to be 1-dimensional with {outs} elements, but got bias of size {list(bias.shape)} instead"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(
            f"{name}: Only zero batch or zero channel inputs are supported, but got input shape: {list(input.shape)}"
        )


DIMS = {  # the fields of docstrings of functions of d spatial axes
    d: {
        "d": d, "axes": f"{d} axes" if d > 1 else "axis", "sizes": sizes, "kernel": kernel, "each": f"one number or {pair}" if d > 1 else "one number",
        "shape": f"(N, C, {sizes}) or (C, {sizes})", "twos": ", 2" * d, "threes": ", 3" * d, "fours": ", 4" * d,
        "taps": 2**d, "count": 4**d, "last": 4**d - 1, "mean": (4**d - 1) / 2,
    }
    for d, sizes, kernel, pair in (
        (1, "L", "K", ""), (2, "H, W", "kH, kW", "(height, width)"), (3, "D, H, W", "kD, kH, kW", "(depth, height, width)")
    )
}  # fmt: skip


def _convolution(d):
    name = f"conv{d}d"

    @named(name, **DIMS[d])
    def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, fused=None, auto=False):
        """Applies a {d}-d convolution (cross-correlation) to the input.

            result[o, i] = bias[o] + sum_{{c, k}} weight[o, c, k] * input[c, stride * i + dilation * k - padding]

        Args:
            input: (N, C, {sizes}) or (C, {sizes}).
            weight: kernels, (O, C / groups, {kernel}).
            bias: bias of each output channel, (O,) (default: None).
            stride: step of the window, {each} (default: 1).
            padding: number of zeros added at both ends of an axis, {each}, or "valid" (0) or "same" (default: 0).
                "same" keeps the size and requires a stride of 1.
            dilation: step between the elements of a window, {each} (default: 1).
            groups: number of groups of channels that are convolved separately (default: 1).

        Shape:
            result: (N, O, …), where each size is floor((n + 2 * padding - dilation * (k - 1) - 1) / stride) + 1.

        Raises:
            RuntimeError: channels, groups or sizes do not fit.
            ValueError: an unknown padding mode.

        Example:
            >>> x, w = mytorch.ones(1, 1{threes}), mytorch.ones(5, 1{twos})
            >>> F.{name}(x, w).shape
            mytorch.Size([1, 5{twos}])

        See also: `nn.Conv{d}d`.
        """
        require_tensor(name, input)
        stride, dilation = several(stride, d, name), several(dilation, d, name)
        single = input.ndim == d + 1
        if single:
            input = input.unsqueeze(0)
        if input.ndim != d + 2 or weight.ndim != d + 2:
            raise RuntimeError(
                f"{name}: expected a {d + 1}-d or {d + 2}-d input and a {d + 2}-d weight, got shapes {shapes(input, weight)}."
            )
        if input.shape[1] != weight.shape[1] * groups:
            raise RuntimeError(
                f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have "
                f"{weight.shape[1] * groups} channels, but got {input.shape[1]} channels instead"
            )
        check_window(name, kernel=tuple(weight.shape[2:]), stride=stride, dilation=dilation)
        _check_weight(name, input, weight, bias, weight.shape[0], groups)
        if isinstance(padding, str):
            input, padding = _named_padding(input, padding, weight.shape[2:], stride, dilation, name)
        padding = several(padding, d, name)
        check_window(name, padding=padding)
        sizes = [n + 2 * p for n, p in zip(input.shape[2:], padding, strict=True)]
        reach = [dil * (k - 1) + 1 for k, dil in zip(weight.shape[2:], dilation, strict=True)]
        if any(n < k for n, k in zip(sizes, reach, strict=True)):
            raise RuntimeError(
                f"{name}: Calculated padded input size per channel: ({' x '.join(map(str, sizes))}). Kernel size: "
                f"({' x '.join(map(str, reach))}). Kernel size can't be greater than actual input size"
            )
        out = convolve(input, weight, bias, **_geometry(stride, padding, dilation, groups), fused=fused, auto=auto)
        return out.squeeze(0) if single else out

    return conv


def _named_padding(input, padding, kernel, stride, dilation, name):
    if padding == "valid":
        return input, 0
    if padding != "same":
        raise ValueError(f"{name}: Invalid padding string {padding!r}, should be one of 'valid', 'same'")
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [dil * (k - 1) for dil, k in zip(dilation, kernel, strict=True)]
    if any(t % 2 for t in total):  # odd total: the extra zero is added at the end, as in PyTorch
        widths = [w for t in reversed(total) for w in (0, t % 2)]
        input = pad(input, widths)
    return input, tuple(t // 2 for t in total)


def _transposed(d):
    name = f"conv_transpose{d}d"

    @named(name, **DIMS[d])
    def conv_transpose(
        input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *, fused=None, auto=False
    ):
        """Applies a {d}-d transposed convolution to the input.

        Each input element adds a scaled copy of the kernel to the output. This is the gradient of `conv{d}d` for its input.

        Args:
            input: (N, C, {sizes}) or (C, {sizes}).
            weight: kernels, (C, O / groups, {kernel}).
            bias: bias of each output channel, (O,) (default: None).
            stride: step between the copies in the output, {each} (default: 1).
            padding: number of elements removed at both ends of an output axis, {each} (default: 0).
            output_padding: number of elements added at the end of an output axis, {each} (default: 0).
            groups: number of groups of channels that are convolved separately (default: 1).
            dilation: step between the elements of a kernel, {each} (default: 1).

        Shape:
            result: (N, O, …), where each size is (n - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1.

        Raises:
            RuntimeError: channels, groups or sizes do not fit.

        Example:
            >>> x, w = mytorch.ones(1, 1{twos}), mytorch.ones(1, 5{twos})
            >>> F.{name}(x, w).shape, F.{name}(x, w).max().item()
            (mytorch.Size([1, 5{threes}]), {taps}.0)

        See also: `nn.ConvTranspose{d}d`.
        """
        stride, padding, dilation = several(stride, d, name), several(padding, d, name), several(dilation, d, name)
        require_tensor(name, input)
        extra = several(output_padding, d, name)
        single = input.ndim == d + 1
        if single:
            input = input.unsqueeze(0)
        if input.ndim != d + 2 or weight.ndim != d + 2 or input.shape[1] != weight.shape[0]:
            raise RuntimeError(
                f"{name}: given weight of size {list(weight.shape)}, expected input{list(input.shape)} to have {weight.shape[0]} channels"
            )
        check_window(name, kernel=tuple(weight.shape[2:]), stride=stride, dilation=dilation, padding=padding)
        _check_weight(name, input, weight, bias, weight.shape[1] * groups, groups)
        if min(extra) < 0:
            raise RuntimeError(f"{name}: negative output_padding is not supported, got {extra}")
        if any(e >= max(s, dil) for e, s, dil in zip(extra, stride, dilation, strict=True)):
            raise RuntimeError(
                f"output padding must be smaller than either stride or dilation, but got {extra} with stride {stride} and dilation {dilation}"
            )
        shape = tuple(
            (n - 1) * s - 2 * p + dil * (k - 1) + e + 1
            for n, k, s, p, dil, e in zip(
                input.shape[2:], weight.shape[2:], stride, padding, dilation, extra, strict=True
            )
        )
        if min(shape) <= 0:
            raise RuntimeError(
                f"{name}: Given input size per channel: {tuple(input.shape[2:])}. Calculated output size per channel: {shape}. "
                "Output size is too small"
            )
        geometry = _geometry(stride, padding, dilation, groups)
        out = convolve_input(input, weight, bias, shape=shape, **geometry, fused=fused, auto=auto)
        return out.squeeze(0) if single else out

    return conv_transpose


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed, (1, 2, 3))
