"""Activation functions: rectifiers, sigmoids, the GELU family, softmax.

Each op and its gradient come first, followed by the function with PyTorch's arguments.
"""

import math

import numpy as np

from ..arrays import config, dtypes, numpy_ns
from ..arrays.blocks import LARGE
from ..arrays.errors import warn
from ..arrays.memory_format import contiguous_format, in_rows
from .creation import empty_like
from .dispatch.bind import public
from .dispatch.half import once_rounded
from .dispatch.inplace import check_writable, original, overwrite
from .dispatch.op import op
from .dispatch.precision import in_precision
from .dispatch.unwrap import shape_of
from .elementwise import cast, unary, where, without_derivative
from .movement import contiguous
from .random import rrelu_slopes
from .reduction import normalize_dim

_SQRT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


def _sigmoid_of(xp, input):
    """Returns 1 / (1 + exp(-input)), whose lower tail is exp(input)."""
    return 1.0 / (xp.exp(-input) + 1.0)


def _rectified(xp, input):
    return xp.maximum(input, input.dtype.type(0))


def _within(input, lambd):
    """Returns a mask of the elements with magnitude at most lambd."""
    return (input >= -lambd) & (input <= lambd)


def _masked(xp, mask, g):
    """Returns g where the mask is True and 0 elsewhere.

    NumPy computes this ten times faster with bits: a mask is 0 or 1, and its negation is 0 or all ones. Large arrays have a loop.
    """
    if xp is numpy_ns and 0 < g.ndim and g.size < LARGE and g.dtype == np.float32:
        return (g.view(np.int32) & -mask.view(np.int8)).view(np.float32)
    return xp.where(mask, g, 0.0)


def _activation(name, forward, gradient, **options):
    """Defines the op of an activation from its forward function and the gradient of its input."""
    return op(name=name, **{"elementwise": True, **options})(forward).grad(input=gradient)


def _applied(call, input, inplace, name="inplace=True", **options):
    """Calls an op with a tensor. Writes the result into the tensor if `inplace` is True."""
    return overwrite(input, call(original(input), **options), name) if inplace else call(input, **options)


_tanh = unary(
    "tanh", "Computes the hyperbolic tangent of each element.", "[0.0] -> [0.0]", lambda g, out: g * (1.0 - out * out)
)
_sigmoid = unary(
    "sigmoid",
    "Computes the logistic sigmoid of each element: 1 / (1 + exp(-input)).",
    "[0.0] -> [0.5]",
    lambda g, out: g * (out * (1.0 - out)),
    forward=_sigmoid_of,
    half="everywhere",  # exp overflows in float16
)
tanh, sigmoid = _tanh.fast_call, _sigmoid.fast_call
_sigmoid.register_kernel(cpu="mytorch.kernels.numba.activation:sigmoid")
_tanh.signature_extras = _sigmoid.signature_extras = ("auto", "fused", "out")


def _precise_sigmoid(xp, input):
    """Sigmoid whose derivative, s (1 - s), is computed from the smaller of s and 1 - s, so that it does not vanish."""
    small = xp.call(_sigmoid, xp.where(input > 0, -input, input))
    return xp.where(input > 0, 1.0 - small, small)


_relu = _activation(
    "relu", _rectified, lambda g, out, xp: _masked(xp, out != 0, g), grad_name="ReLU", elementwise="exact"
)
_relu.register_kernel(cpu="mytorch.kernels.numba.rectifier:relu")


@public()
def relu(input, *, fused=None):
    """Applies the rectified linear unit to each element.

        result = max(input, 0)

    See also: `nn.ReLU`.
    """
    return _relu.fast_call(input) if fused is None else _relu.dispatch(input, fused=fused)


@op(name="gelu", grad_name="GELU", elementwise=True)
def _gelu(xp, input, *, approximate="none"):
    if approximate == "tanh":
        inner = (input * input * (_TANH_CUBE * _TANH_SCALE) + _TANH_SCALE) * input
        return input * (xp.tanh(inner) * 0.5 + 0.5)
    return input * (xp.erf(input * _SQRT_HALF) * 0.5 + 0.5)


def _gelu_grad(g, input, approximate, xp):
    if approximate == "tanh":
        square = input * input
        t = xp.tanh((square * (_TANH_CUBE * _TANH_SCALE) + _TANH_SCALE) * input)
        slope = square * (3 * _TANH_CUBE * _TANH_SCALE) + _TANH_SCALE
        return g * ((t + 1.0) * 0.5 + input * (1.0 - t * t) * slope * 0.5)
    density = xp.exp(input * input * -0.5) * _DENSITY
    return g * (xp.erf(input * _SQRT_HALF) * 0.5 + 0.5 + input * density)


_gelu.grad(input=_gelu_grad)
_gelu.register_kernel(cpu="mytorch.kernels.numba.gelu", cuda="mytorch.kernels.triton.activation:gelu")


def gelu(input, approximate="none", *, fused=None, auto=False):
    """Applies the Gaussian error linear unit to each element.

        result = input * P(Z <= input), where Z is standard normal
        result = input / 2 * (1 + tanh(sqrt(2 / pi) * (input + 0.044715 * input^3)))    with approximate="tanh"

    Raises:
        RuntimeError: another approximation.

    See also: `nn.GELU`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}.")
    return _gelu.fast_call(input, approximate, fused=fused, auto=auto)


def _silu_grad(g, input, xp):
    s = xp.call(_sigmoid, input)
    return g * (s * (input * (1.0 - s) + 1.0))


_silu = _activation("silu", lambda xp, input: input * xp.call(_sigmoid, input), _silu_grad, grad_name="SiLU")
_silu.register_kernel(cpu="mytorch.kernels.numba.activation:silu", cuda="mytorch.kernels.triton.activation:silu")


def silu(input, inplace=False, *, fused=None, auto=False):
    """Applies the sigmoid linear unit, also called swish, to each element.

        result = input * sigmoid(input)

    Source: Elfwing et al., 2017.

    See also: `nn.SiLU`.
    """
    return _applied(_silu.fast_call, input, inplace, fused=fused, auto=auto)


def _relu_squared_forward(xp, input):
    rectified = _rectified(xp, input)
    return rectified * rectified


_relu_squared = _activation(
    "relu_squared", _relu_squared_forward, lambda g, input, xp: xp.where(input > 0, g * input * 2.0, 0.0)
)
_relu_squared.register_kernel(cuda="mytorch.kernels.triton.activation:relu_squared")


# -- softmax -------------------------------------------------------------------------------------------------------


def _peak(xp, x, dim):
    """Returns the largest element of each row; -inf for empty rows."""
    return (
        xp.max(x, axis=dim, keepdims=True)
        if x.shape[dim]
        else xp.full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), -math.inf, x.dtype)
    )


@op(dtype="float", name="softmax", autocast="float32", half="everywhere")
def _softmax(xp, input, *, dim, dtype=None):
    wanted = input.dtype if dtype is None else dtype.numpy
    if input.ndim == 0:
        return xp.asarray(xp.exp(input - input), wanted)  # 1 for finite inputs, otherwise NaN
    e = input - _peak(xp, input, dim)
    e = xp.exp(e, out=e)
    e = xp.divide(e, xp.sum(e, axis=dim, keepdims=True), out=e)
    return xp.astype(e, wanted)


def _softmax_grad(g, out, dim, xp):
    weighted = g * out
    if len(out.shape) == 0:
        return weighted * 0.0
    return weighted - out * xp.sum(weighted, axis=dim, keepdims=True)


_softmax.grad(input=_softmax_grad)
_softmax.register_kernel(cpu="mytorch.kernels.numba.softmax", cuda="mytorch.kernels.triton.softmax:softmax")


@public(inplace=False)
def softmax(input, dim=None, dtype=None, *, axis=None, fused=None, auto=False):
    """Scales elements to probabilities that sum to 1 along a dimension.

        result = exp(input) / sum(exp(input))

    The maximum is subtracted first, so large inputs do not overflow.

    Args:
        dim: dimension along which the elements sum to 1. Without it, PyTorch's deprecated rule applies, with a
            warning: 0 for tensors with 0, 1 or 3 dimensions, otherwise 1.
        dtype: dtype to which `input` is cast first (default: no cast).
        axis: another name of `dim`.

    Example:
        >>> F.softmax(tensor([[1.0, 1.0], [0.0, -np.inf]]), dim=1).tolist()
        [[0.5, 0.5], [1.0, 0.0]]

    See also: `nn.Softmax`. For a loss, use `nn.functional.cross_entropy`, which expects logits.
    """
    return _along(_softmax, input, dim if axis is None else axis, dtype, fused, auto)


def _along(record, input, dim, dtype, fused, auto):
    """Runs softmax or log_softmax along a dimension.

    On a GPU the op itself casts half precision to float32, since it computes in float32 anyway.
    """
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
        if (
            dtype is not dtypes.float32
            or input.dtype not in (dtypes.float16, dtypes.bfloat16)
            or input.device.type == "cpu"
        ):
            input, dtype = cast(input, dtype), None
    ndim = len(shape_of(input))
    if dim is None:
        warn(
            f"Implicit dimension choice for {record.name} has been deprecated. Change the call to include dim=X as an argument."
        )
    dim = normalize_dim((0 if ndim in (0, 1, 3) else 1) if dim is None else dim, ndim)
    return record.fast_call(input, dim, dtype, fused=fused, auto=auto)


@op(dtype="float", name="log_softmax", autocast="float32", half="everywhere")
def _log_softmax(xp, input, *, dim, dtype=None):
    wanted = input.dtype if dtype is None else dtype.numpy
    if input.ndim == 0:
        return xp.asarray(input - input, wanted)
    shifted = input - _peak(xp, input, dim)
    shifted -= xp.log(xp.sum(xp.exp(shifted), axis=dim, keepdims=True))
    return xp.astype(shifted, wanted)


def _log_softmax_grad(g, out, dim, xp):
    if len(out.shape) == 0:
        return g * 0.0
    return g - xp.exp(out) * xp.sum(g, axis=dim, keepdims=True)


_log_softmax.grad(input=_log_softmax_grad)
_log_softmax.register_kernel(cpu="mytorch.kernels.numba.log_softmax", cuda="mytorch.kernels.triton.softmax:log_softmax")


@public(inplace=False)
def log_softmax(input, dim=None, dtype=None, *, axis=None, fused=None, auto=False):
    """Computes the logarithm of softmax along a dimension, in one stable step.

        result = input - log(sum(exp(input)))

    Use it in place of `softmax(x).log()`, which is -inf for small probabilities.

    Args:
        dim: dimension along which the probabilities sum to 1. Without it, the rule of `softmax` applies.
        dtype: dtype to which `input` is cast first (default: no cast).
        axis: another name of `dim`.

    Example:
        >>> F.log_softmax(tensor([0.0, -np.inf]), 0).tolist()
        [0.0, -inf]

    See also: `nn.LogSoftmax`, `nn.functional.nll_loss`.
    """
    return _along(_log_softmax, input, dim if axis is None else axis, dtype, fused, auto)


@op(dtype="float", name="masked_softmax", autocast="float32", promoted=("input",), half="everywhere")
def _masked_softmax(xp, input, mask=None, *, causal=False, dtype=None):
    """Computes softmax of scores (…, L, S) along the last axis."""
    scores = input
    if mask is not None:
        scores = xp.where(mask, scores, -math.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = xp.where(xp.arange(scores.shape[-1]) <= xp.arange(scores.shape[-2])[:, None], scores, -math.inf)
    peak = xp.max(scores, axis=-1, keepdims=True)
    e = xp.exp(scores - xp.where(peak == -math.inf, 0.0, peak))
    total = xp.sum(e, axis=-1, keepdims=True)
    return xp.astype(e / xp.where(total == 0, 1.0, total), input.dtype if dtype is None else dtype.numpy)


def _masked_softmax_grad(g, out, xp):
    return _softmax_grad(g, out, -1, xp)


_masked_softmax.grad(input=_masked_softmax_grad, mask=_masked_softmax_grad)
_masked_softmax.register_kernel(cuda="mytorch.kernels.triton.softmax:masked_softmax")


def masked_softmax(input, mask=None, causal=False, dim=-1, *, dtype=None, fused=None, auto=False):
    """Computes softmax over the scores that a mask allows. A GPU needs one pass.

    Args:
        input: scores.
        mask: bool mask, True where a score is used, or floats to add to the scores (default: None). Broadcasts to `input`.
        causal: if True, row i of the last two axes uses the scores 0 to i only (default: False).
        dim: dimension along which the probabilities sum to 1 (default: -1).
        dtype: dtype of the result (default: the dtype of `input`, float32 under a GPU's autocast).

    Returns:
        A tensor of the shape of `input`. A row without any allowed score is 0; softmax of -inf would be NaN.

    Raises:
        RuntimeError: the mask does not broadcast to `input`.
        ValueError: `causal` with a `dim` other than the last, or with fewer than two axes.

    Example:
        >>> F.masked_softmax(tensor([[0.0, 0.0], [0.0, 0.0]]), causal=True).tolist()
        [[1.0, 0.0], [0.5, 0.5]]

    See also: `nn.functional.scaled_dot_product_attention`.
    """
    dim = normalize_dim(dim, input.ndim)
    if causal and (dim != input.ndim - 1 or input.ndim < 2):
        raise ValueError(
            f"masked_softmax: expected dim=-1 and at least two axes with causal=True, got dim={dim} of {input.ndim} axes."
        )
    shape = tuple(input.shape)
    if mask is not None:
        fits = mask.ndim <= len(shape) and all(m in (1, n) for m, n in zip(mask.shape[::-1], shape[::-1], strict=False))
        if not fits:
            raise RuntimeError(
                f"masked_softmax: expected a mask that broadcasts to the input's shape {shape}, got shape {tuple(mask.shape)}."
            )
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    if input.ndim == 0:
        return masked_softmax(input.reshape(1), mask, dtype=dtype, fused=fused, auto=auto).reshape(())
    if dim == input.ndim - 1:
        return _masked_softmax(input, mask, causal=bool(causal), dtype=dtype, fused=fused, auto=auto)
    if mask is not None:
        mask = mask.reshape((1,) * (input.ndim - mask.ndim) + tuple(mask.shape)).movedim(dim, -1)
    return _masked_softmax(input.movedim(dim, -1), mask, causal=False, dtype=dtype, fused=fused, auto=auto).movedim(
        -1, dim
    )


# -- more rectifiers and squashing functions -------------------------------------------------------------------


# fmt: off
_leaky_relu = _activation(
    "leaky_relu", lambda xp, input, *, slope: xp.where(input > 0, input, input * slope),
    lambda g, input, slope, xp: xp.where(input > 0, g, g * slope), grad_name="LeakyReLU").register_kernel(cpu="mytorch.kernels.numba.rectifier:leaky_relu")
_hardtanh = _activation(
    "hardtanh", lambda xp, input, *, low, high: xp.clip(input, input.dtype.type(low), input.dtype.type(high)),
    lambda g, input, low, high, xp: _masked(xp, ~((input <= low) | (input >= high)), g), elementwise="exact", half="cpu").register_kernel(cpu="mytorch.kernels.numba.rectifier:hardtanh")
_hardsigmoid = _activation(
    "hardsigmoid", lambda xp, input: xp.clip(input * (1.0 / 6) + 0.5, input.dtype.type(0), input.dtype.type(1)),
    lambda g, input, xp: xp.where((input > -3) & (input < 3), g * (1.0 / 6), 0.0)).register_kernel(cpu="mytorch.kernels.numba.rectifier:hardsigmoid")
_hardswish = _activation(
    "hardswish", lambda xp, input: input * _hardsigmoid.forward(xp, input),
    lambda g, input, xp: g * xp.where(input <= -3, 0.0, xp.where(input >= 3, 1.0, input * (1.0 / 3) + 0.5))).register_kernel(cpu="mytorch.kernels.numba.rectifier:hardswish")
_hardshrink = _activation(
    "hardshrink", lambda xp, input, *, lambd: xp.where(_within(input, lambd), input.dtype.type(0), input),
    lambda g, input, lambd, xp: _masked(xp, ~_within(input, lambd), g), elementwise="exact", half="cpu").register_kernel(cpu="mytorch.kernels.numba.rectifier:hardshrink")
_softshrink = _activation(
    "softshrink", lambda xp, input, *, lambd: input - xp.clip(input, -lambd, lambd),
    lambda g, input, lambd, xp: _masked(xp, ~_within(input, lambd), g)).register_kernel(cpu="mytorch.kernels.numba.rectifier:softshrink")
_threshold = _activation(
    "threshold", lambda xp, input, *, level, value: xp.where(input <= level, input.dtype.type(value), input),
    lambda g, input, level, xp: _masked(xp, ~(input <= level), g), elementwise="exact", half="cpu").register_kernel(cpu="mytorch.kernels.numba.rectifier:threshold")
_logsigmoid = _activation(
    "logsigmoid", lambda xp, input: xp.minimum(input, input.dtype.type(0)) - xp.log1p(xp.exp(-xp.absolute(input))),
    lambda g, input, xp: g * _precise_sigmoid(xp, -input), layout=in_rows).register_kernel(cpu="mytorch.kernels.numba.activation:logsigmoid")
# fmt: on


def _elu_forward(xp, input, *, alpha, scale=1.0, rate=1.0):
    low = xp.expm1(xp.minimum(input, input.dtype.type(0)) * rate)
    return xp.where(input > 0, input * scale, low * (alpha * scale))


def _elu_grad(g, input, alpha, scale, rate, xp):
    return g * xp.where(input <= 0, scale * alpha * rate * xp.exp(xp.minimum(input, 0.0) * rate), scale)


def _softplus_forward(xp, input, *, beta, limit):
    scaled = input * beta
    soft = (xp.log1p(xp.exp(-xp.absolute(scaled))) - xp.minimum(-scaled, scaled.dtype.type(0))) / beta
    return xp.where(scaled > limit, input, soft)


def _softplus_grad(g, input, beta, limit, xp):
    return g * xp.where(input * beta > limit, 1.0, _precise_sigmoid(xp, input * beta))


_elu = _activation("elu", _elu_forward, _elu_grad).register_kernel(cpu="mytorch.kernels.numba.activation:elu")
_softplus = _activation("softplus", _softplus_forward, _softplus_grad, autocast="float32").register_kernel(
    cpu="mytorch.kernels.numba.activation:softplus"
)


def leaky_relu(input, negative_slope=0.01, inplace=False, *, fused=None, auto=False):
    """Applies a rectifier with a small slope for negative elements.

        result = input                      if input > 0
        result = negative_slope * input     otherwise

    Raises:
        RuntimeError: in backward, in PyTorch mode, for a negative slope in place: PyTorch has no derivative there.

    See also: `nn.LeakyReLU`.
    """
    out = _leaky_relu(original(input) if inplace else input, slope=negative_slope, fused=fused, auto=auto)
    if inplace and negative_slope < 0 and config.pytorch_mode:
        message = "leaky_relu: no derivative in place with a negative slope; call out-of-place version instead."
        out = without_derivative(out, input, name="leaky_relu", message=message)
    return overwrite(input, out, "inplace=True") if inplace else out


def elu(input, alpha=1.0, inplace=False, *, fused=None, auto=False):
    """Applies the exponential linear unit to each element.

        result = input                          if input > 0
        result = alpha * (exp(input) - 1)       otherwise

    See also: `nn.ELU`.
    """
    return _applied(_elu, input, inplace, alpha=alpha, fused=fused, auto=auto)


def celu(input, alpha=1.0, inplace=False, *, fused=None, auto=False):
    """Applies the continuously differentiable exponential linear unit to each element.

        result = max(0, input) + min(0, alpha * (exp(input / alpha) - 1))

    See also: `nn.CELU`.
    """
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _applied(
        _elu.named("Elu", "CeluBackward0"), input, inplace, alpha=alpha, rate=1.0 / alpha, fused=fused, auto=auto
    )


def selu(input, inplace=False, *, fused=None, auto=False):
    """Applies the scaled exponential linear unit, which keeps mean 0 and variance 1 from layer to layer.

        result = 1.0507 * input                             if input > 0
        result = 1.0507 * 1.6733 * (exp(input) - 1)         otherwise

    See also: `nn.SELU`, `nn.functional.alpha_dropout`.
    """
    return _applied(_elu, input, inplace, alpha=1.6732632423543772, scale=1.0507009873554805, fused=fused, auto=auto)


@in_precision("half", composes=True)
def prelu(input, weight):
    """Applies a rectifier with a learned slope for negative elements.

        result = input              if input > 0
        result = weight * input     otherwise

    Args:
        weight: slope for negative elements: one number, or one for each channel (dimension 1).

    Raises:
        RuntimeError: `weight` has several dimensions, or several elements, but not one for each channel.

    Source: He et al., 2015.

    Example:
        >>> F.prelu(tensor([-4.0, 2.0]), tensor([0.25])).tolist()
        [-1.0, 2.0]

    See also: `nn.PReLU`.
    """
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if weight.numel() > 1:
        if input.ndim < 2 or input.shape[1] != weight.numel():
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.numel()} and input of shape {tuple(input.shape)}."
            )
        weight = weight.reshape(1, -1, *(1,) * (input.ndim - 2))
    return where(input > 0, input, input * weight.reshape(weight.shape if weight.numel() > 1 else ()))


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False, *, generator=None):
    """Applies a leaky rectifier with random slopes during training.

        result = input              if input > 0
        result = slope * input      otherwise

    In training, the slope of each element is drawn uniformly from [lower, upper]. In evaluation it is (lower + upper) / 2.

    Args:
        lower: lower bound of the slopes (default: 1/8).
        upper: upper bound of the slopes (default: 1/3).
        training: if True, draws random slopes (default: False).

    Raises:
        RuntimeError: a bound is not finite, or `lower` is larger than `upper`.

    Example:
        >>> F.rrelu(tensor([-4.0, 2.0]), lower=0.25, upper=0.25).tolist()
        [-1.0, 2.0]

    See also: `nn.RReLU`.
    """
    if not -math.inf < lower <= upper < math.inf:
        raise RuntimeError(f"rrelu: expected finite bounds with lower <= upper, got {lower} and {upper}.")
    if not training:
        out = leaky_relu(input, (lower + upper) / 2, inplace)
        return out if inplace else contiguous(out)
    if inplace:
        check_writable(input, "rrelu_")
    slopes = rrelu_slopes(input, lower, upper, generator)
    out = contiguous(where(input > 0, input, input * slopes))
    return overwrite(input, out, "inplace=True") if inplace else out


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False, *, fused=None, auto=False):
    """Limits each element to [min_val, max_val]. The gradient is 0 at the bounds.

        result = min(max(input, min_val), max_val)

    Raises:
        ValueError: `min_val` is greater than `max_val`.

    See also: `nn.Hardtanh`.
    """
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val, got {min_val} and {max_val}")
    if min_val < 0 and input.dtype is dtypes.uint8:
        raise RuntimeError(f"hardtanh: cannot do hardtanh on an unsigned type with negative limits, got {min_val}")
    return _applied(_hardtanh, input, inplace, low=min_val, high=max_val, fused=fused, auto=auto)


def relu6(input, inplace=False, *, fused=None, auto=False):
    """Limits each element to [0, 6].

        result = min(max(input, 0), 6)

    See also: `nn.ReLU6`.
    """
    return hardtanh(input, 0.0, 6.0, inplace, fused=fused, auto=auto)


def hardsigmoid(input, inplace=False, *, fused=None, auto=False):
    """Applies a piecewise linear approximation of sigmoid to each element.

        result = min(max(input / 6 + 1 / 2, 0), 1)

    See also: `nn.Hardsigmoid`.
    """
    return _applied(_hardsigmoid, input, inplace, fused=fused, auto=auto)


def hardswish(input, inplace=False, *, fused=None, auto=False):
    """Applies a piecewise approximation of swish to each element.

        result = input * hardsigmoid(input)

    See also: `nn.Hardswish`.
    """
    return _applied(_hardswish, input, inplace, fused=fused, auto=auto)


@public(method=False, inplace=False)
def hardshrink(input, lambd=0.5, *, fused=None, auto=False):
    """Sets elements of small magnitude to 0.

        result = input      if |input| > lambd
        result = 0          otherwise

    See also: `nn.Hardshrink`.
    """
    if input.dtype in (dtypes.float16, dtypes.bfloat16):  # PyTorch rounds lambd to the dtype of the input
        lambd = float(input.dtype.numpy.type(lambd))
    return _hardshrink(input, lambd=lambd, fused=fused, auto=auto)


def softshrink(input, lambd=0.5, *, fused=None, auto=False, out=None):
    """Moves each element toward 0 by `lambd`, and sets smaller elements to 0.

        result = sign(input) * max(|input| - lambd, 0)

    Raises:
        RuntimeError: `lambd` is negative.

    See also: `nn.Softshrink`.
    """
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return _softshrink(input, lambd=lambd, fused=fused, auto=auto, out=out)


def tanhshrink(input, *, fused=None, auto=False):
    """Subtracts the hyperbolic tangent from each element.

        result = input - tanh(input)

    See also: `nn.Tanhshrink`.
    """
    return input - tanh(input, fused=fused, auto=auto)


@public(method=False, inplace=False)
def threshold(input, threshold, value, inplace=False, *, fused=None, auto=False):
    """Replaces elements at or below a threshold.

        result = input      if input > threshold
        result = value      otherwise

    See also: `nn.Threshold`.
    """
    return _applied(_threshold, input, inplace, "threshold_", level=threshold, value=value, fused=fused, auto=auto)


def softplus(input, beta=1.0, threshold=20.0, *, fused=None, auto=False, out=None):
    """Applies a smooth approximation of relu to each element.

        result = log(1 + exp(beta * input)) / beta

    See also: `nn.Softplus`.
    """
    return _softplus(input, beta=beta, limit=threshold, fused=fused, auto=auto, out=out)


def softsign(input, *, auto=False):
    """Applies the softsign function to each element.

        result = input / (1 + |input|)

    See also: `nn.Softsign`.
    """
    return input / (input.abs() + 1.0)


def logsigmoid(input, *, fused=None, auto=False, out=None):
    """Computes the logarithm of sigmoid of each element, without overflow.

        result = log(1 / (1 + exp(-input)))

    See also: `nn.LogSigmoid`.
    """
    return _logsigmoid(input, fused=fused, auto=auto, out=out)


@in_precision(None)
def mish(input, inplace=False, *, fused=None, auto=False):
    """Applies the mish function to each element.

        result = input * tanh(softplus(input))

    See also: `nn.Mish`.
    """
    if inplace:
        check_writable(input, "mish_")  # before the hooks of a view become part of the result
    source = input.clone() if inplace else input  # the products save it
    out = _mish(source, fused=fused, auto=auto)
    return overwrite(input, out, "inplace=True") if inplace else out


@once_rounded
def _mish(input, **how):
    return input * tanh(softplus(input, **how))


def glu(input, dim=-1, *, fused=None, auto=False):
    """Multiplies the first half of the input by the sigmoid of the second half.

        result = a * sigmoid(b), where a and b are the halves of input along dim

    Raises:
        RuntimeError: the size of the dimension is odd.

    See also: `nn.GLU`, `nn.functional.swiglu`.
    """
    if input.ndim == 0 or input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim] if input.ndim else 0}"
        )
    return _gated(*input.chunk(2, dim), fused=fused, auto=auto)


@once_rounded
def _gated(a, b, **how):
    return a * sigmoid(b, **how)


def softmin(input, dim=None, dtype=None, *, fused=None, auto=False):
    """Computes softmax of the negated input.

        result = exp(-input) / sum(exp(-input))

    Args:
        dim: dimension along which the elements sum to 1. Without it, the rule of `softmax` applies.
        dtype: dtype to which `input` is cast first (default: no cast).

    Example:
        >>> F.softmin(tensor([0.0, np.inf]), dim=0).tolist()
        [1.0, 0.0]

    See also: `nn.Softmin`.
    """
    return softmax(-input, dim, dtype, fused=fused, auto=auto)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """Draws a sample from the Gumbel-softmax distribution, a differentiable approximation of one-hot samples.

        result = softmax((logits + Gumbel noise) / tau)

    Use it when a network chooses one of several options and the choice has to pass gradients.

    Args:
        logits: unnormalized log-probabilities.
        tau: temperature (default: 1). Samples approach one-hot vectors as it approaches 0.
        hard: if True, returns one-hot vectors with the gradient of the soft sample (default: False).
        eps: ignored; for compatibility with older versions of PyTorch.
        dim: dimension along which the sample sums to 1 (default: -1).

    Source: Jang et al., 2017.

    Example:
        >>> F.gumbel_softmax(tensor([[0.0, 0.0, 0.0]]), hard=True).sum().item()
        1.0
    """
    gumbels = -empty_like(logits.detach(), memory_format=contiguous_format).exponential_().log()
    soft = softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    best = soft.detach().argmax(dim, keepdim=True)
    one_hot = soft.detach() * 0
    one_hot = one_hot.scatter(dim, best, 1.0)
    return one_hot - soft.detach() + soft
