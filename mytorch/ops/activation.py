"""Activation functions: rectifiers, sigmoids, the GELU family, softmax."""

import math

import numpy as np

from ..base import dtypes
from .bind import public
from .core import op
from .elementwise import cast, where
from .inplace import overwrite
from .precision import in_precision
from .reduction import normalize_dim


@op(name="relu")
def _relu(xp, input):
    return xp.maximum(input, input.dtype.type(0))


_relu.grad(input=lambda g, out, xp: xp.where(out > 0, g, 0.0))


@public()
def relu(input, *, fused=None):
    """max(input, 0)."""
    return _relu.caller(input) if fused is None else _relu(input, fused=fused)


@op(dtype="float", name="sigmoid")
def _sigmoid(xp, input):
    half = input * 0.5
    return xp.tanh(half) * 0.5 + 0.5  # exact at both ends, without overflow


_sigmoid.grad(input=lambda g, out: g * (out * (1.0 - out)))


@public()
def sigmoid(input, *, fused=None):
    """1 / (1 + exp(-input))."""
    return _sigmoid.caller(input) if fused is None else _sigmoid(input, fused=fused)


@op(dtype="float", name="tanh")
def _tanh(xp, input):
    return xp.tanh(input)


_tanh.grad(input=lambda g, out: g * (1.0 - out * out))


@public()
def tanh(input):
    """The hyperbolic tangent."""
    return _tanh.caller(input)


_SQRT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


@op(name="gelu")
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
_gelu.fuse(cpu="mytorch.kernels.numba.gelu", cuda="mytorch.kernels.triton.activation:gelu")


@public(method=False, function=False)
def gelu(input, approximate="none", *, fused=None):
    """input * P(Z <= input) for a standard normal Z; `approximate="tanh"` is GPT-2's formula.

    Raises:
        RuntimeError: another approximation.
    Source: Hendrycks and Gimpel, 2016.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}.")
    return _gelu(input, approximate=approximate, fused=fused)


@op(name="silu")
def _silu(xp, input):
    return input * (xp.tanh(input * 0.5) * 0.5 + 0.5)


def _silu_grad(g, input, xp):
    s = xp.tanh(input * 0.5) * 0.5 + 0.5
    return g * (s * (input * (1.0 - s) + 1.0))


_silu.grad(input=_silu_grad)
_silu.fuse(cuda="mytorch.kernels.triton.activation:silu")


@public(method=False, function=False)
def silu(input, inplace=False, *, fused=None):
    """input * sigmoid(input), also called swish."""
    return _maybe_inplace(input, _silu(input, fused=fused), inplace)


@op(name="relu_squared")
def _relu_squared(xp, input):
    kept = xp.maximum(input, input.dtype.type(0))
    return kept * kept


_relu_squared.grad(input=lambda g, input, xp: xp.where(input > 0, g * input * 2.0, 0.0))
_relu_squared.fuse(cuda="mytorch.kernels.triton.activation:relu_squared")


# -- softmax -------------------------------------------------------------------------------------------------------


def _peak(xp, x, dim):
    """The largest element of each row; -inf of rows without any."""
    return (
        xp.max(x, axis=dim, keepdims=True)
        if x.shape[dim]
        else xp.full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), -math.inf, x.dtype)
    )


@op(dtype="float", name="softmax", autocast="float32")
def _softmax(xp, input, *, dim, dtype=None):
    wanted = input.dtype if dtype is None else dtype.numpy
    if input.ndim == 0:
        return xp.ones_like(input, dtype=wanted)
    x = input.astype(np.float32) if input.dtype.itemsize == 2 else input
    e = x - _peak(xp, x, dim)
    xp.exp(e, out=e)
    e /= xp.sum(e, axis=dim, keepdims=True)
    return e.astype(wanted, copy=False)


def _softmax_grad(g, out, dim, xp):
    weighted = g * out
    if len(out.shape) == 0:
        return weighted * 0.0
    return weighted - out * xp.sum(weighted, axis=dim, keepdims=True)


_softmax.grad(input=_softmax_grad)
_softmax.fuse(cpu="mytorch.kernels.numba.softmax", cuda="mytorch.kernels.triton.softmax:softmax")


@public(inplace=False)
def softmax(input, dim=None, dtype=None, *, axis=None, fused=None):
    """exp(input) / sum(exp(input)) along `dim`, without overflow.

    Args:
        dim: the axis whose elements sum to 1; if not given, PyTorch's rule (0 for 0-, 1- and 3-d
            tensors, else 1).
        dtype: cast to this first.
    """
    return _along(_softmax, input, dim if axis is None else axis, dtype, fused)


def _along(record, input, dim, dtype, fused):
    """Softmax or its logarithm; a cast of half precision to float32 is left to the op, which computes in float32 anyway."""
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
        if (
            dtype is not dtypes.float32
            or input.dtype not in (dtypes.float16, dtypes.bfloat16)
            or input.device.type == "cpu"
        ):
            input, dtype = cast(input, dtype), None
    if dim is None:
        dim = 0 if input.ndim in (0, 1, 3) else 1
    dim = normalize_dim(dim, input.ndim)
    return record(input, dim=dim, fused=fused) if dtype is None else record(input, dim=dim, dtype=dtype, fused=fused)


@op(dtype="float", name="log_softmax", autocast="float32")
def _log_softmax(xp, input, *, dim, dtype=None):
    wanted = input.dtype if dtype is None else dtype.numpy
    if input.ndim == 0:
        return xp.zeros_like(input, dtype=wanted)
    x = input.astype(np.float32) if input.dtype.itemsize == 2 else input
    shifted = x - _peak(xp, x, dim)
    shifted -= xp.log(xp.sum(xp.exp(shifted), axis=dim, keepdims=True))
    return shifted.astype(wanted, copy=False)


def _log_softmax_grad(g, out, dim, xp):
    if len(out.shape) == 0:
        return g * 0.0
    return g - xp.exp(out) * xp.sum(g, axis=dim, keepdims=True)


_log_softmax.grad(input=_log_softmax_grad)
_log_softmax.fuse(cuda="mytorch.kernels.triton.softmax:log_softmax")


@public(inplace=False)
def log_softmax(input, dim=None, dtype=None, *, axis=None, fused=None):
    """log(softmax(input)) along `dim`, in one stable step. Arguments as softmax."""
    return _along(_log_softmax, input, dim if axis is None else axis, dtype, fused)


@op(dtype="float", name="masked_softmax", autocast="float32", promoted=("input",))
def _masked_softmax(xp, input, mask=None, *, causal=False, dtype=None):
    """Softmax of scores (…, L, S) along the last axis."""
    scores = xp.astype(input, np.float32) if input.dtype.itemsize == 2 else input
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
_masked_softmax.fuse(cuda="mytorch.kernels.triton.softmax:masked_softmax")


def masked_softmax(input, mask=None, causal=False, dim=-1, *, dtype=None, fused=None):
    """Softmax of the scores that a mask, causality, or both leave; on a GPU in one pass.

    Args:
        input: (…, L, S), or any shape without `causal`.
        mask: broadcasts to input: bool, True where a score counts, or a float to add first.
        causal: row i of the last two axes counts scores 0 … i.
        dtype: of the result, computed in float32 at least; input's if not given (float32 under a GPU's autocast).

    Returns:
        input's shape; a row in which nothing counts gives zeros, where softmax of -inf alone would give NaN.

    Raises:
        RuntimeError: a mask that doesn't broadcast to input.
        ValueError: `causal` along another axis than the last, or without an axis before it.
    """
    dim = normalize_dim(dim, input.ndim)
    if causal and (dim != input.ndim - 1 or input.ndim < 2):
        raise ValueError(
            f"masked_softmax: causal=True wants dim=-1 and two axes at least, got dim={dim} of {input.ndim} axes."
        )
    shape = tuple(input.shape)
    if mask is not None:
        fits = mask.ndim <= len(shape) and all(m in (1, n) for m, n in zip(mask.shape[::-1], shape[::-1], strict=False))
        if not fits:
            raise RuntimeError(
                f"masked_softmax: a mask of shape {tuple(mask.shape)} doesn't broadcast to the input's {shape}."
            )
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    if input.ndim == 0:
        return masked_softmax(input.reshape(1), mask, dtype=dtype, fused=fused).reshape(())
    if dim == input.ndim - 1:
        return _masked_softmax(input, mask, causal=bool(causal), dtype=dtype, fused=fused)
    if mask is not None:
        mask = mask.reshape((1,) * (input.ndim - mask.ndim) + tuple(mask.shape)).movedim(dim, -1)
    return _masked_softmax(input.movedim(dim, -1), mask, causal=False, dtype=dtype, fused=fused).movedim(-1, dim)


# -- more rectifiers and squashing functions -------------------------------------------------------------------
# Each is a record of forward and gradient; the function after it has PyTorch's arguments.


def _activation(gradient, **kwargs):
    """A record from a forward, with its gradient; `fused` is accepted by all."""

    def make(forward):
        return op(**kwargs)(forward).grad(input=gradient)

    return make


@_activation(lambda g, input, slope, xp: xp.where(input > 0, g, g * slope), name="leaky_relu")
def _leaky_relu(xp, input, *, slope):
    return xp.where(input > 0, input, input * slope)


@public(method=False, function=False)
def leaky_relu(input, negative_slope=0.01, inplace=False):
    """input where positive, else negative_slope * input."""
    return _maybe_inplace(input, _leaky_relu(input, slope=negative_slope), inplace)


def _maybe_inplace(input, out, inplace):
    """`inplace=True` writes the result into the input."""
    return overwrite(input, out, "inplace=True") if inplace else out


@_activation(
    lambda g, input, alpha, scale, rate, xp: (
        g * xp.where(input > 0, scale, scale * alpha * rate * xp.exp(xp.minimum(input, 0.0) * rate))
    ),
    name="elu",
)
def _elu(xp, input, *, alpha, scale=1.0, rate=1.0):
    low = xp.expm1(xp.minimum(input, input.dtype.type(0)) * rate)
    return xp.where(input > 0, input * scale, low * (alpha * scale))


def elu(input, alpha=1.0, inplace=False):
    """input where positive, else alpha * (exp(input) - 1). Source: Clevert et al., 2016."""
    return _maybe_inplace(input, _elu(input, alpha=alpha), inplace)


def celu(input, alpha=1.0, inplace=False):
    """input where positive, else alpha * (exp(input / alpha) - 1). Source: Barron, 2017."""
    return _maybe_inplace(input, _elu(input, alpha=alpha, rate=1.0 / alpha), inplace)


def selu(input, inplace=False):
    """A scaled elu that keeps mean 0 and variance 1. Source: Klambauer et al., 2017."""
    return _maybe_inplace(input, _elu(input, alpha=1.6732632423543772, scale=1.0507009873554805), inplace)


@in_precision("half")
def prelu(input, weight):
    """input where positive, else weight * input; one weight, or one for each channel (axis 1). Source: He et al., 2015."""
    if weight.numel() > 1:
        if input.ndim < 2 or input.shape[1] != weight.numel():
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.numel()} and input of shape {tuple(input.shape)}."
            )
        weight = weight.reshape(1, -1, *(1,) * (input.ndim - 2))
    return where(input > 0, input, input * weight.reshape(weight.shape if weight.numel() > 1 else ()))


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """A leaky relu whose slope is drawn for each element while training, and the mean of both bounds otherwise."""
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = input.detach().clone().uniform_(lower, upper)
    return _maybe_inplace(input, where(input >= 0, input, input * slopes), inplace)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """input limited to [min_val, max_val]; the gradient is 0 at the bounds."""
    return _maybe_inplace(input, _hardtanh(input, low=min_val, high=max_val), inplace)


@_activation(lambda g, input, low, high, xp: xp.where((input > low) & (input < high), g, 0.0), name="hardtanh")
def _hardtanh(xp, input, *, low, high):
    return xp.clip(input, input.dtype.type(low), input.dtype.type(high))


def relu6(input, inplace=False):
    """input limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


@_activation(lambda g, input, xp: xp.where((input > -3) & (input < 3), g * (1.0 / 6), 0.0), name="hardsigmoid")
def _hardsigmoid(xp, input):
    return xp.clip(input * (1.0 / 6) + 0.5, input.dtype.type(0), input.dtype.type(1))


def hardsigmoid(input, inplace=False):
    """input / 6 + 1 / 2, limited to [0, 1]."""
    return _maybe_inplace(input, _hardsigmoid(input), inplace)


@_activation(
    lambda g, input, xp: g * xp.where(input <= -3, 0.0, xp.where(input >= 3, 1.0, input * (1.0 / 3) + 0.5)),
    name="hardswish",
)
def _hardswish(xp, input):
    return input * xp.clip(input * (1.0 / 6) + 0.5, input.dtype.type(0), input.dtype.type(1))


def hardswish(input, inplace=False):
    """input * hardsigmoid(input). Source: Howard et al., 2019."""
    return _maybe_inplace(input, _hardswish(input), inplace)


@_activation(lambda g, input, lambd, xp: xp.where((input > lambd) | (input < -lambd), g, 0.0), name="hardshrink")
def _hardshrink(xp, input, *, lambd):
    return xp.where((input > lambd) | (input < -lambd), input, input.dtype.type(0))


@public(method=False, inplace=False)
def hardshrink(input, lambd=0.5):
    """input where its magnitude is above lambd, else 0."""
    return _hardshrink(input, lambd=lambd)


@_activation(lambda g, input, lambd, xp: xp.where((input > lambd) | (input < -lambd), g, 0.0), name="softshrink")
def _softshrink(xp, input, *, lambd):
    return xp.where(input > lambd, input - lambd, xp.where(input < -lambd, input + lambd, input.dtype.type(0)))


def softshrink(input, lambd=0.5):
    """input drawn towards 0 by lambd."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return _softshrink(input, lambd=lambd)


def tanhshrink(input):
    """input - tanh(input)."""
    return input - tanh(input)


@_activation(lambda g, input, level, xp: xp.where(input > level, g, 0.0), name="threshold")
def _threshold(xp, input, *, level, value):
    return xp.where(input > level, input, input.dtype.type(value))


@public(method=False, inplace=False)
def threshold(input, threshold, value, inplace=False):
    """input where it is above the threshold, else value."""
    return _maybe_inplace(input, _threshold(input, level=threshold, value=value), inplace)


def _sigmoid_of(xp, x):
    return xp.tanh(x * 0.5) * 0.5 + 0.5


@_activation(
    lambda g, input, beta, limit, xp: g * xp.where(input * beta > limit, 1.0, _sigmoid_of(xp, input * beta)),
    name="softplus",
    autocast="float32",
)
def _softplus(xp, input, *, beta, limit):
    scaled = input * beta
    soft = (xp.log1p(xp.exp(-xp.absolute(scaled))) + xp.maximum(scaled, input.dtype.type(0))) / beta
    return xp.where(scaled > limit, input, soft)


def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta * input)) / beta; input itself above threshold / beta."""
    return _softplus(input, beta=beta, limit=threshold)


def softsign(input):
    """input / (1 + |input|)."""
    return input / (input.abs() + 1.0)


@_activation(lambda g, input, xp: g * _sigmoid_of(xp, -input), name="logsigmoid")
def _logsigmoid(xp, input):
    return xp.minimum(input, input.dtype.type(0)) - xp.log1p(xp.exp(-xp.absolute(input)))


def logsigmoid(input):
    """log(sigmoid(input)), without overflow."""
    return _logsigmoid(input)


@in_precision(None)
def mish(input, inplace=False):
    """input * tanh(softplus(input)). Source: Misra, 2019."""
    return _maybe_inplace(input, input * tanh(softplus(input)), inplace)


def glu(input, dim=-1):
    """The first half along dim times the sigmoid of the second. Source: Dauphin et al., 2017."""
    if input.ndim == 0 or input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim] if input.ndim else 0}"
        )
    a, b = input.chunk(2, dim)
    return a * sigmoid(b)


def softmin(input, dim=None, dtype=None, *, fused=None):
    """softmax(-input)."""
    return softmax(-input, dim, dtype, fused=fused)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample of a relaxed one-hot variable; `hard` rounds it, with the gradient of the soft one. Source: Jang et al., 2017."""
    uniform = logits.detach().clone().uniform_(0, 1)
    gumbels = -(-(uniform.clamp(min=1e-20)).log()).clamp(min=1e-20).log()
    soft = softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    best = soft.detach().argmax(dim, keepdim=True)
    one_hot = soft.detach() * 0
    one_hot = one_hot.scatter(dim, best, 1.0)
    return one_hot - soft.detach() + soft
