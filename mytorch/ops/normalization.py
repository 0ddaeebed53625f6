"""Normalization: layer norm, RMS norm, batch norm, group norm, instance norm and related functions."""

import math

import numpy as np

from ..arrays import ON_NUMPY, Namespace, config, numpy_ns, xp_of
from ..arrays.array import on_input_device
from ..arrays.dtypes import FLOAT, as_dtype, finfo, float32, promote_types
from ..arrays.errors import require_tensor
from ..arrays.memory_format import channels
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..kernels.registry import device_type
from .dispatch.half import once_rounded, once_rounded_on_cpu
from .dispatch.op import op
from .dispatch.refused import check_dtypes, refuse_grad
from .dispatch.unwrap import shape_of
from .padding import pad
from .pool import avg_pool1d
from .reduction import to_acc_type


def _check(name, input, *parameters):
    """Checks that inputs are tensors. In PyTorch mode, parameters must have the dtype of the input, as in PyTorch.

    16-bit inputs may have float32 parameters.
    """
    require_tensor(name, input)
    if input.dtype.category != FLOAT:
        check_dtypes(name, (input._mt_data,))
    if config.pytorch_mode:
        for p in parameters:
            if p is not None and p.dtype is not input.dtype and (p.dtype is not float32 or input.dtype.itemsize != 2):
                raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")


def _rows(xp, x, width):
    """Returns x as rows (N, width)."""
    return xp.reshape(x, (math.prod(x.shape) // width if width else 0, width))


def _like(xp, out, input, dtype):
    """Returns `out` in the shape of `input`, cast to `dtype` or, if that is None, to the dtype of `input`."""
    return xp.astype(xp.reshape(out, input.shape), input.dtype if dtype is None else dtype.numpy)


def _normed(xp, x, eps):
    """Returns rows with mean 0 and variance 1, their former means, and the factors that they were multiplied by."""
    if xp in ON_NUMPY and x.dtype == np.float32:  # the rounding error of a large mean would be a part of the deviations
        with np.errstate(invalid="ignore", over="ignore"):
            mean = np.add.reduce(x, -1, np.float64, None, True) / x.shape[-1]
            centred = (x - mean).astype(np.float32)
            mean = mean.astype(np.float32)
    else:
        mean = xp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    if xp not in ON_NUMPY:
        rstd = 1.0 / xp.sqrt(
            variance + (variance * 0.0 + eps)
        )  # NaN where it overflows, which is not to look like zeros
    elif not np.logical_or.reduce(np.isinf(variance), None):
        rstd = 1.0 / np.sqrt(variance + eps)
    else:
        mean, rstd = _wide_statistics(x, -1, eps)
        centred = x - mean
    return centred * rstd, mean, rstd


def _wide_statistics(x, axes, eps):
    """Returns mean and 1 / sqrt(variance + eps), computed in float64, for numbers whose squares overflow."""
    wide, scale = _scaled(x, axes)
    mean = wide.mean(axis=axes, keepdims=True)
    return (mean * scale).astype(x.dtype), _rstd_of(wide - mean, scale, axes, eps).astype(x.dtype)


def _rstd_of(x, scale, axes, eps):
    """Returns 1 / sqrt(mean((scale x)^2) + eps) without overflow, for numbers x of at most 1."""
    return 1.0 / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + eps / scale / scale) / scale


def _scaled(x, axes):
    """Returns numbers in float64, divided by the largest one so that their squares do not overflow, and the divisor."""
    wide = x.astype(np.float64)
    scale = np.abs(wide).max(axis=axes, keepdims=True)
    scale[scale == 0] = 1.0
    return wide / scale, scale


def _normed_grad(xp, g, normed, rstd):
    """Computes the gradient of the rows passed to `_normed`."""
    along = xp.mean(g * normed, axis=-1, keepdims=True)
    return (g - xp.mean(g, axis=-1, keepdims=True) - normed * along) * rstd


@op(name="layer_norm", dtype="same", residuals=("mean", "rstd"), autocast="float32", half="everywhere")
def _layer_norm(xp, input, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    out, mean, rstd = _normed(xp, _rows(xp, input, width), eps)
    if weight is not None:
        out = out * xp.reshape(weight, (-1,))
    if bias is not None:
        out = out + xp.reshape(bias, (-1,))
    return _like(xp, out, input, dtype), mean, rstd


def _layer_norm_vjp(g, input, weight, shapes, mean, rstd, width, needs, xp):
    normed, g = (_rows(xp, input, width) - mean) * rstd, _rows(xp, g, width)
    gx = None
    if needs[0]:
        gw = g if weight is None else g * xp.reshape(weight, (-1,))
        gx = xp.reshape(_normed_grad(xp, gw, normed, rstd), shapes[0])
    g_weight = xp.reshape(xp.sum(g * normed, axis=0), shapes[1]) if needs[1] else None
    g_bias = xp.reshape(xp.sum(g, axis=0), shapes[2]) if needs[2] else None
    return gx, g_weight, g_bias


_layer_norm.vjp(_layer_norm_vjp)
_layer_norm.register_kernel(cpu="mytorch.kernels.numba.layer_norm", cuda="mytorch.kernels.triton.norm:layer_norm")


def _width(input, normalized_shape, weight, bias, name):
    """Returns the number of elements that are normalized together, and checks the shapes."""
    if type(normalized_shape) is tuple:
        shape = normalized_shape
    else:
        shape = tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)
    if not shape or shape_of(input)[-len(shape) :] != shape:
        raise RuntimeError(
            f"{name}: given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], "
            f"but got input of size {list(input.shape)}"
        )
    if (weight is not None and shape_of(weight) != shape) or (bias is not None and shape_of(bias) != shape):
        label, p = ("weight", weight) if weight is not None and shape_of(weight) != shape else ("bias", bias)
        raise RuntimeError(
            f"{name}: expected {label} to be of the same shape as normalized_shape, but got {tuple(p.shape)} and {shape}."
        )
    return math.prod(shape)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, *, dtype=None, fused=None, auto=False):
    """Normalizes the last axes to mean 0 and variance 1, then scales and shifts them.

        result = (input - mean) / sqrt(var + eps) * weight + bias

    Statistics of 16-bit inputs are computed in float32.

    Args:
        input: (…, *normalized_shape).
        normalized_shape: shape of the axes to normalize.
        weight: factors, of shape `normalized_shape` (default: None).
        bias: summands, of shape `normalized_shape` (default: None).
        eps: added to the variance (default: 1e-5).
        dtype: dtype of the result (default: the dtype of `input`, float32 under a GPU's autocast).

    Raises:
        RuntimeError: the last axes of `input`, or `weight` or `bias`, do not have the shape `normalized_shape`.

    Source: Ba, Kiros and Hinton, 2016.

    Example:
        >>> F.layer_norm(tensor([[1.0, 3.0], [0.0, 8.0]]), (2,), eps=0.0).tolist()
        [[-1.0, 1.0], [-1.0, 1.0]]

    See also: `nn.LayerNorm`.
    """
    _check("layer_norm", input, weight, bias)
    width = _width(input, normalized_shape, weight, bias, "layer_norm")
    dtype = None if dtype is None else as_dtype(dtype)
    return _layer_norm.fast_call(input, weight, bias, width, eps, dtype, fused=fused, auto=auto)


def _dtype(like):
    return None if like is None else as_dtype(like)


@op(
    name="rms_norm", grad_name="RMSNorm", dtype="same", residuals=("rstd",), autocast="float32", layout=channels, half="everywhere"
)  # fmt: skip
def _rms_norm(xp, input, weight=None, *, width, eps, dtype=None):
    x = _rows(xp, input, width)
    square = xp.mean(x * x, axis=-1, keepdims=True)
    rstd = 1.0 / xp.sqrt(square + eps)
    if xp in ON_NUMPY and np.isinf(square).any():
        wide, scale = _scaled(x, -1)
        rstd = _rstd_of(wide, scale, -1, eps).astype(x.dtype)
    out = x * rstd
    if weight is not None:
        out = out * xp.reshape(weight, (-1,))
    return _like(xp, out, input, dtype), rstd


def _rms_norm_vjp(g, input, weight, shapes, rstd, width, needs, xp):
    normed, g = _rows(xp, input, width) * rstd, _rows(xp, g, width)
    gx = None
    if needs[0]:
        gw = g if weight is None else g * xp.reshape(weight, (-1,))
        gx = xp.reshape((gw - normed * xp.mean(gw * normed, axis=-1, keepdims=True)) * rstd, shapes[0])
    g_weight = xp.reshape(xp.sum(g * normed, axis=0), shapes[1]) if needs[1] else None
    return gx, g_weight


_rms_norm.vjp(_rms_norm_vjp)
_rms_norm.register_kernel(cuda="mytorch.kernels.triton.norm:rms_norm")


def rms_norm(input, normalized_shape, weight=None, eps=None, *, dtype=None, fused=None, auto=False):
    """Divides the last axes by their root mean square, then scales them.

        result = input / sqrt(mean(input^2) + eps) * weight

    Args:
        input: (…, *normalized_shape).
        normalized_shape: shape of the axes to normalize.
        weight: factors, of shape `normalized_shape` (default: None).
        eps: added to the mean square (default: the machine epsilon of the dtype, at least of float32).
        dtype: dtype of the result (default: the dtype of `input`, float32 under a GPU's autocast).

    Raises:
        RuntimeError: the last axes of `input`, or `weight`, do not have the shape `normalized_shape`.

    Source: Zhang and Sennrich, 2019.

    Example:
        >>> F.rms_norm(tensor([1.0, -1.0, 1.0, -1.0]), (4,), eps=0.0).tolist()
        [1.0, -1.0, 1.0, -1.0]

    See also: `nn.RMSNorm`.
    """
    width = _width(input, normalized_shape, weight, None, "rms_norm")
    eps = finfo(promote_types(input.dtype, float32)).eps if eps is None else eps
    return _rms_norm(input, weight, width=width, eps=eps, dtype=_dtype(dtype), fused=fused, auto=auto)


# -- with the residual added ------------------------------------------------------------------------------------
# A transformer block ends with `x = x + block(norm(x))`, and the next block starts with the norm of x. A GPU computes both
# in one pass, forward and backward: backward adds the gradient of the sum while it writes the gradient of the norm.


def _sum_of(xp, input, residual):
    """Returns input + residual in the wider of their dtypes; `input` itself if it already is the sum."""
    if residual is None:
        return input
    dtype = promote_types(as_dtype(input.dtype), as_dtype(residual.dtype)).numpy
    return xp.astype(xp.astype(input, dtype) + xp.astype(residual, dtype), dtype)


@op(
    name="add_layer_norm", dtype="same", outputs=("total", "out"), differentiable=2, undefined_grads=True, saves_sum=True,
    residuals=("mean", "rstd"), autocast="float32", promoted=("input", "residual"), half="everywhere",
)  # fmt: skip
def _add_layer_norm(xp, input, residual, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    total = _sum_of(xp, input, residual)
    return total, *_layer_norm.forward(xp, total, weight, bias, width=width, eps=eps, dtype=dtype)


def _residual_vjp(vjp, g, shapes, needs, **saved):
    """Computes the gradients of (input, residual, *parameters) from the gradients of the sum and its norm. One may be missing."""
    g_total, g_out = g
    gx, *g_parameters = (None,) * (len(shapes) - 1)
    if g_out is not None:
        gx, *g_parameters = vjp(g_out, shapes=(shapes[0], *shapes[2:]), needs=(True, *needs[2:]), **saved)
    gx = (g_total if gx is None else gx if g_total is None else gx + g_total)[...]  # a view, since two inputs get it
    return gx, gx, *g_parameters


def _add_layer_norm_vjp(g, total, weight, shapes, mean, rstd, width, needs, xp):
    saved = {"input": total, "weight": weight, "mean": mean, "rstd": rstd, "width": width, "xp": xp}
    return _residual_vjp(_layer_norm_vjp, g, shapes, needs, **saved)


_add_layer_norm.vjp(_add_layer_norm_vjp)
_add_layer_norm.register_kernel(cuda="mytorch.kernels.triton.norm:add_layer_norm")


def add_layer_norm(
    input, residual, normalized_shape, weight=None, bias=None, eps=1e-5, *, dtype=None, fused=None, auto=False
):
    """Adds a residual and applies layer normalization to the sum. A GPU needs one pass.

        total = input + residual
        result = (total - mean) / sqrt(var + eps) * weight + bias

    Args:
        input: (…, *normalized_shape).
        residual: tensor of the shape of `input`. The sum has the wider of both dtypes.
        normalized_shape: shape of the axes to normalize.
        weight: factors, of shape `normalized_shape` (default: None).
        bias: summands, of shape `normalized_shape` (default: None).
        eps: added to the variance (default: 1e-5).
        dtype: dtype of the norm (default: as in `layer_norm`).

    Returns:
        (sum, layer norm of the sum).

    Raises:
        RuntimeError: the shapes differ, or do not end with `normalized_shape`.

    Example:
        >>> total, normed = F.add_layer_norm(tensor([1.0, 2.0]), tensor([0.0, 1.0]), (2,), eps=0.0)
        >>> total.tolist(), normed.tolist()
        ([1.0, 3.0], [-1.0, 1.0])
    """
    width = _width(input, normalized_shape, weight, bias, "add_layer_norm")
    options = {"width": width, "eps": eps, "dtype": _dtype(dtype), "fused": fused, "auto": auto}
    return _with_residual(_add_layer_norm, _layer_norm, input, residual, (weight, bias), options)


def _with_residual(record, norm, input, residual, parameters, options):
    """Returns (input + residual, its norm), computed by one op on a GPU and by two ops on a CPU."""
    if tuple(input.shape) != tuple(residual.shape):
        raise RuntimeError(
            f"{record.name}: expected input and residual of one shape, got {tuple(input.shape)} and {tuple(residual.shape)}."
        )
    if input.device.type != "cpu":
        return record(input, residual, *parameters, **options)
    total = input + residual
    return total, norm(total, *parameters, **options)


@op(
    name="add_rms_norm", dtype="same", outputs=("total", "out"), differentiable=2, undefined_grads=True, saves_sum=True, residuals=("rstd",),
    autocast="float32", promoted=("input", "residual"), half="everywhere",
)  # fmt: skip
def _add_rms_norm(xp, input, residual, weight=None, *, width, eps, dtype=None):
    total = _sum_of(xp, input, residual)
    return total, *_rms_norm.forward(xp, total, weight, width=width, eps=eps, dtype=dtype)


def _add_rms_norm_vjp(g, total, weight, shapes, rstd, width, needs, xp):
    saved = {"input": total, "weight": weight, "rstd": rstd, "width": width, "xp": xp}
    return _residual_vjp(_rms_norm_vjp, g, shapes, needs, **saved)


_add_rms_norm.vjp(_add_rms_norm_vjp)
_add_rms_norm.register_kernel(cuda="mytorch.kernels.triton.norm:add_rms_norm")


def add_rms_norm(input, residual, normalized_shape, weight=None, eps=None, *, dtype=None, fused=None, auto=False):
    """Adds a residual and applies RMS normalization to the sum. A GPU needs one pass.

        total = input + residual
        result = total / sqrt(mean(total^2) + eps) * weight

    Args:
        input: (…, *normalized_shape).
        residual: tensor of the shape of `input`. The sum has the wider of both dtypes.
        normalized_shape: shape of the axes to normalize.
        weight: factors, of shape `normalized_shape` (default: None).
        eps: added to the mean square (default: as in `rms_norm`).
        dtype: dtype of the norm (default: as in `rms_norm`).

    Returns:
        (sum, RMS norm of the sum).

    Raises:
        RuntimeError: the shapes differ, or do not end with `normalized_shape`.

    Example:
        >>> total, normed = F.add_rms_norm(tensor([1.0, -2.0]), tensor([1.0, 0.0]), (2,), eps=0.0)
        >>> total.tolist(), normed.tolist()
        ([2.0, -2.0], [1.0, -1.0])
    """
    width = _width(input, normalized_shape, weight, None, "add_rms_norm")
    eps = finfo(promote_types(promote_types(input.dtype, residual.dtype), float32)).eps if eps is None else eps
    options = {"width": width, "eps": eps, "dtype": _dtype(dtype), "fused": fused, "auto": auto}
    return _with_residual(_add_rms_norm, _rms_norm, input, residual, (weight,), options)


# -- statistics over the batch ------------------------------------------------------------------------------


def _channels(xp, p, ndim):
    """Reshapes a vector with one element per channel so that it multiplies (N, C, …)."""
    return xp.reshape(p, (1, -1) + (1,) * (ndim - 2))


def _channel_sum(xp, g, other=None):
    """Sums g, or g * other, over each channel. On a CPU this is a product of rows, without an array of all products."""
    if xp in ON_NUMPY and other is not None:
        places = math.prod(g.shape[2:])
        rows, columns = g.reshape(*g.shape[:2], 1, places), other.reshape(*g.shape[:2], places, 1)
        return np.matmul(rows, columns).reshape(g.shape[:2]).sum(0)
    return xp.sum(g if other is None else g * other, axis=(0, *range(2, len(g.shape))))


@op(name="batch_norm", residuals=("mean", "rstd"), promoted=("input",), layout=channels, half="everywhere")
def _batch_norm(xp, input, weight=None, bias=None, *, eps=1e-5, stats=None):
    """Applies batch norm with the statistics of the batch. `stats` passes (mean, variance) that are already known."""
    axes = (0, *range(2, len(input.shape)))
    if stats is not None and isinstance(xp, Namespace):
        mean, var = (s.reshape((1, -1) + (1,) * (input.ndim - 2)) for s in stats)
        centred = input - mean
    else:
        mean = xp.mean(input, axis=axes, keepdims=True)
        centred = input - mean
        var = xp.mean(centred * centred, axis=axes, keepdims=True)
    rstd = 1.0 / xp.sqrt(var + eps)
    if xp in ON_NUMPY and np.isinf(var).any():
        mean, rstd = _wide_statistics(input, axes, eps)
        centred = input - mean
    if weight is not None:
        out = centred * (rstd * _channels(xp, weight, len(input.shape)))
    else:
        out = centred * rstd
    if bias is not None:
        out = out + _channels(xp, bias, len(input.shape))
    return xp.astype(out, input.dtype), mean, rstd


def _batch_norm_vjp(g, input, weight, mean, rstd, needs, xp):
    n = math.prod(input.shape) // max(input.shape[1], 1)
    normed = (input - mean) * rstd
    g_sum, gn_sum = (_channels(xp, s, len(input.shape)) for s in (_channel_sum(xp, g), _channel_sum(xp, g, normed)))
    gx = None
    if needs[0]:
        scale = rstd if weight is None else rstd * _channels(xp, weight, len(input.shape))
        gx = (g - (g_sum + normed * gn_sum) * (1.0 / n)) * scale
    return (gx, xp.reshape(gn_sum, (-1,)) if needs[1] else None, xp.reshape(g_sum, (-1,)) if needs[2] else None)


_batch_norm.vjp(_batch_norm_vjp)
_batch_norm.register_kernel(
    cpu="mytorch.kernels.numba.batch_norm:batch_norm", cuda="mytorch.kernels.triton.batch_norm:batch_norm"
)


@op(name="channel_affine", promoted=("input",), layout=channels, half="everywhere")
def _channel_affine(xp, input, scale, shift):
    """Computes input * scale + shift for each channel (axis 1), with vectors (C,)."""
    ndim = len(input.shape)
    out = input * _channels(xp, scale, ndim)
    out = np.add(out, _channels(xp, shift, ndim), out=out) if xp is numpy_ns else out + _channels(xp, shift, ndim)
    return xp.astype(out, input.dtype)


def _channel_affine_vjp(g, input, scale, shapes, needs, xp):
    return (
        g * _channels(xp, scale, len(input.shape)) if needs[0] else None,
        xp.reshape(_channel_sum(xp, g, input), shapes[1]) if needs[1] else None,
        xp.reshape(_channel_sum(xp, g), shapes[2]) if needs[2] else None,
    )


_channel_affine.vjp(_channel_affine_vjp)
_channel_affine.register_kernel(
    cpu="mytorch.kernels.numba.batch_norm:channel_affine", cuda="mytorch.kernels.triton.batch_norm:channel_affine"
)


def _batch_statistics(xp, raw, kernel):
    """Returns the mean and the variance of each channel."""
    if kernel is not None:
        return kernel.statistics(raw)
    x, axes = to_acc_type(raw), (0, *range(2, raw.ndim))
    mean = xp.mean(x, axis=axes, keepdims=True)
    return mean.reshape(-1), xp.mean(xp.square(x - mean), axis=axes)


@on_input_device
def batch_norm(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, *, fused=None,
    auto=False,
):  # fmt: skip
    """Normalizes each channel (axis 1) over the batch, then scales and shifts it.

        result = (input - mean) / sqrt(var + eps) * weight + bias

    Training uses the statistics of the batch and updates the running statistics in place:
    `running = (1 - momentum) * running + momentum * batch`, with the unbiased variance. Evaluation uses the running statistics.

    Args:
        input: (N, C) or (N, C, …).
        running_mean: running means, (C,); None does not track them.
        running_var: running variances, (C,); None does not track them.
        weight: factor of each channel, (C,) (default: None).
        bias: summand of each channel, (C,) (default: None).
        training: if True, uses the statistics of the batch (default: False).
        momentum: weight of the new statistics in the running average (default: 0.1).
        eps: added to the variance (default: 1e-5).

    Raises:
        ValueError: training with a single value per channel.

    Source: Ioffe and Szegedy, 2015.

    Example:
        >>> x = tensor([[1.0, 0.0], [3.0, 8.0]])
        >>> F.batch_norm(x, None, None, training=True, eps=1e-12).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]

    See also: `nn.BatchNorm1d`, `nn.BatchNorm2d`.
    """
    _check("batch_norm", input, weight, bias)
    refuse_grad("batch_norm", training, running_mean=running_mean, running_var=running_var)
    if (transform := get_mode().interpreter) and hasattr(transform, "tangent") and transform.tangent(input) is not None:
        if any(t is not None and transform.tangent(t) is not None for t in (running_mean, running_var)):
            raise RuntimeError(
                "batch_norm is not differentiable wrt running_mean and running_var. Use detach() for them."
            )
    if input.ndim >= 2 and input.shape[1]:
        _check_channels(input.shape[1], running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not input.numel():  # nothing to count: the running means stay
        out = input * 1 if input.ndim < 2 or not input.shape[1] else _affine(input * 1, weight, bias)
        return out.to(input.dtype)
    if input.ndim < 2:
        raise RuntimeError(
            f"batch_norm: expected at least 2 axes, (N, C, …), got an input of shape {list(input.shape)}"
        )
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: evaluation needs running_mean and running_var.")
        out = _batch_norm_in_evaluation(input, running_mean, running_var, weight, bias, eps, fused=fused, auto=auto)
        return out.to(input.dtype)
    if eps <= 0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    n = math.prod(input.shape) // input.shape[1]
    if n == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {tuple(input.shape)}")
    raw = input._mt_data._array
    parameters = [None if p is None else p._mt_data._array for p in (weight, bias)]
    kernel = _batch_norm.kernels.find(device_type(raw), fused, (raw, *parameters), {"eps": eps})
    mean, var = _batch_statistics(xp_of(raw), raw, kernel)
    for running, batch in ((running_mean, mean), (running_var, var * (n / (n - 1)))):
        if running is not None:
            kept = running._mt_data._array
            kept *= 1 - momentum
            kept += (momentum * batch).astype(kept.dtype)
            running._mt_data._bump()
    return _batch_norm(input, weight, bias, eps=eps, stats=(mean, var), fused=fused, auto=auto)


@once_rounded
def _batch_norm_in_evaluation(input, running_mean, running_var, weight, bias, eps, **how):
    scale = (running_var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shift = shift if bias is None else shift + bias
    return _channel_affine(input, scale, shift, **how)


@op(
    name="group_norm",
    grad_name="NativeGroupNorm",
    dtype="same",
    residuals=("mean", "rstd"),
    autocast="float32",
    layout=channels,
    half="everywhere",
)
def _group_norm(xp, input, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    out, mean, rstd = _normed(xp, xp.reshape(input, (input.shape[0] * num_groups, -1)), eps)
    out = xp.reshape(out, input.shape)
    if weight is not None:
        out = out * _channels(xp, weight, len(input.shape))
    if bias is not None:
        out = out + _channels(xp, bias, len(input.shape))
    return _like(xp, out, input, dtype), mean, rstd


def _group_norm_vjp(g, input, weight, shapes, mean, rstd, num_groups, needs, xp):
    shape = shapes[0]
    rows = (shape[0] * num_groups, -1)
    axes = (0, *range(2, len(shape)))
    normed = (xp.reshape(input, rows) - mean) * rstd
    gx = None
    if needs[0]:
        gw = xp.reshape(g if weight is None else g * _channels(xp, weight, len(shape)), rows)
        gx = xp.reshape(_normed_grad(xp, gw, normed, rstd), shape)
    g_weight = xp.sum(g * xp.reshape(normed, shape), axis=axes) if needs[1] else None
    return gx, g_weight, xp.sum(g, axis=axes) if needs[2] else None


_group_norm.vjp(_group_norm_vjp)
_group_norm.register_kernel(cpu="mytorch.kernels.numba.group_norm", cuda="mytorch.kernels.triton.norm:group_norm")


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, *, fused=None, auto=False):
    """Normalizes groups of channels of each sample, then scales and shifts each channel.

        result = (input - mean of the group) / sqrt(variance of the group + eps) * weight + bias

    Args:
        input: (N, C, …).
        num_groups: number of groups; must divide C.
        weight: factor of each channel, (C,) (default: None).
        bias: summand of each channel, (C,) (default: None).
        eps: added to the variance (default: 1e-5).

    Raises:
        RuntimeError: the number of channels is not divisible by `num_groups`.

    Source: Wu and He, 2018.

    Example:
        >>> x = tensor([[1.0, 3.0, 0.0, 8.0]])  # one sample, four channels in two groups
        >>> F.group_norm(x, 2, eps=0.0).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]

    See also: `nn.GroupNorm`.
    """
    _check("group_norm", input, weight, bias)
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if input.ndim < 2 or input.shape[1] % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(input.shape)} "
            f"and num_groups={num_groups}"
        )
    _check_channels(input.shape[1], weight=weight, bias=bias)
    if math.prod(input.shape) == num_groups:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {tuple(input.shape)}")
    if not input.numel():
        return _affine(input * 1, weight, bias).to(input.dtype)
    return _group_norm(input, weight, bias, num_groups=num_groups, eps=eps, fused=fused, auto=auto)


def _check_channels(channels, **vectors):
    """Checks that statistics and factors have one element for each channel."""
    for name, vector in vectors.items():
        if vector is not None and not hasattr(vector, "shape"):
            raise TypeError(f"argument '{name}' must be Tensor, not {type(vector).__name__}")
        if vector is not None and shape_of(vector) != (channels,):
            raise RuntimeError(f"{name} should contain {channels} elements not {math.prod(shape_of(vector))}")


def _affine(out, weight, bias):
    if weight is not None and bias is not None and weight.dtype == bias.dtype == out.dtype:
        return _channel_affine(out, weight, bias)
    shape = (1, -1) + (1,) * (out.ndim - 2)
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5, *,
    fused=None, auto=False,
):  # fmt: skip
    """Normalizes each channel of each sample over its positions, then scales and shifts it.

        result = (input - mean) / sqrt(var + eps) * weight + bias

    Args:
        input: (N, C, …).
        running_mean: running means, (C,) (default: None).
        running_var: running variances, (C,) (default: None).
        weight: factor of each channel, (C,) (default: None).
        bias: summand of each channel, (C,) (default: None).
        use_input_stats: if False, uses the running statistics instead of the statistics of `input` (default: True).
        momentum: weight of the new statistics in the running average (default: 0.1).
        eps: added to the variance (default: 1e-5).

    Raises:
        ValueError: `use_input_stats` with a single position.

    Source: Ulyanov et al., 2016.

    Example:
        >>> F.instance_norm(tensor([[[1.0, 3.0], [0.0, 8.0]]]), eps=0.0).tolist()
        [[[-1.0, 1.0], [-1.0, 1.0]]]

    See also: `nn.InstanceNorm1d`, `nn.InstanceNorm2d`.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps, fused=fused, auto=auto)
    _check_channels(input.shape[1], running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not input.numel():
        return _affine(input * 1, weight, bias).to(input.dtype) if input.shape[1] else input.clone()
    if math.prod(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {tuple(input.shape)}")
    refuse_grad("instance_norm", True, running_mean=running_mean, running_var=running_var)
    if running_mean is not None and input.numel():
        flat = input.detach().flatten(2)
        for running, batch in ((running_mean, flat.mean(-1)), (running_var, flat.var(-1))):
            running.data.mul_(1 - momentum).add_(batch.mean(0), alpha=momentum)
    if input.device.type != "cpu":  # as groups of one channel, in the input's dtype also under autocast
        return _group_norm(
            input.contiguous(),
            weight,
            bias,
            num_groups=input.shape[1],
            eps=eps,
            dtype=input.dtype,
            fused=fused,
            auto=auto,
        )
    rows = input.flatten(2)
    # A scale and a shift in float32 do not change the dtype of a half-precision input.
    mixed = weight is not None and input.dtype.itemsize == 2 and weight.dtype is not input.dtype
    if mixed and get_mode().autocast is None:
        rows = rows.to(weight.dtype)
    out = _layer_norm(rows, width=rows.shape[-1], eps=eps, fused=fused, auto=auto)
    out = _affine(out.reshape(input.shape), weight, bias)
    return out.to(input.dtype) if mixed and get_mode().autocast is None else out


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0, *, auto=False):
    """Divides each element by a power of the mean square of neighboring channels.

        result = input / (k + alpha * mean of input^2 over `size` channels)^beta

    Args:
        input: (N, C, …).
        size: number of neighboring channels, centered at the element's channel.
        alpha: factor of the mean square (default: 1e-4).
        beta: exponent (default: 0.75).
        k: summand (default: 1.0).

    Raises:
        ValueError: `input` has fewer than 3 axes.

    Source: Krizhevsky et al., 2012.

    Example:
        >>> F.local_response_norm(mytorch.ones(1, 1, 1), size=1, alpha=1.0, beta=1.0).item()
        0.5

    See also: `nn.LocalResponseNorm`.
    """
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    squares = (input * input).movedim(1, -1)
    flat = pad(squares.reshape(-1, 1, squares.shape[-1]), (size // 2, (size - 1) // 2))
    means = avg_pool1d(flat, size, 1, auto=auto).reshape(squares.shape).movedim(-1, 1)
    return input / (means * alpha + k) ** beta


@once_rounded_on_cpu
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """Divides vectors along a dimension by their norm.

        result = input / max(norm(input, p), eps)

    Args:
        p: order of the norm (default: 2.0).
        dim: dimension or dimensions of a vector (default: 1).
        eps: smallest divisor (default: 1e-12).

    Example:
        >>> F.normalize(tensor([[0.0, 4.0]])).tolist()
        [[0.0, 1.0]]
    """
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """Returns the norm over all dimensions except one, which keeps its position.

    Args:
        v: the tensor.
        pow: order of the norm (default: 2).
        dim: dimension that stays. -1 computes the norm over all dimensions (default: 0).
    """
    if dim == -1:
        return v.norm(pow)
    return v.norm(pow, tuple(d for d in range(v.ndim) if d != dim), keepdim=True)


def normalized(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Returns g * v / |v|, with one norm for each index of dimension `dim`, or one norm in total if it is -1."""
    return v * (g / norm_except_dim(v, dim=dim))
