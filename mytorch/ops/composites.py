"""Functions of `nn.functional` that are made of several ops, and so have no record of their own."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._tensor import Tensor, is_tensor
from ..base import dtypes
from ..base.errors import kind, warn
from ..dispatch.bind import spelled
from ..dispatch.inplace import overwrite
from ..dispatch.precision import in_precision
from .activation import _relu, _relu_squared, celu, elu, gelu, hardtanh, leaky_relu, rrelu, selu, sigmoid, silu, tanh
from .activation import threshold as _threshold
from .conv import conv1d
from .creation import arange, zeros
from .dropout import dropout as _dropout
from .dropout import dropout_mask
from .elementwise import named, where
from .linalg import _linear
from .linear_activation import ACTIVATIONS, linear_activation
from .linear_activation import gelu_mlp as _gelu_mlp
from .loss import raw_of
from .movement import cat, stack
from .normalization import rms_norm
from .padding import pad as _pad
from .random import bernoulli_mask
from .resample import interpolate
from .rotary import rotary


def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *, act_func: str | None = None, auto: bool = False,
    fused: bool | None = None,
) -> Tensor:  # fmt: skip
    """input @ weightᵀ + bias, and an activation on top if `act_func` names one.

    Args:
        input: (…, in). weight: (out, in), or (in,) for one output. bias: (out,) or ().
        act_func: None, "relu", "gelu", "silu", "tanh", "sigmoid" or "relu_squared".
        auto: compose it of other ops, for autograd to differentiate; the result is the same.

    Raises:
        RuntimeError: the sizes of input and weight differ.
        ValueError: an activation that is not known.

    Example:
        >>> F.linear(tensor([1.0, 2.0]), tensor([[1.0, 1.0], [0.0, -1.0]]), tensor([0.5, 0.5])).tolist()
        [3.5, -1.5]
    """
    try:
        x, w = input._data._array, weight._data._array
    except AttributeError:  # Arrays
        for place, (name, value) in enumerate({"input": input, "weight": weight}.items(), 1):
            if not is_tensor(value):
                raise TypeError(
                    f"linear(): argument '{name}' (position {place}) must be Tensor, not {kind(value)}"
                ) from None
        x, w = raw_of(input), raw_of(weight)
    if w.ndim == 1:
        out = (input * weight).sum(-1)
        return out if bias is None else out + bias
    if not x.ndim or x.shape[-1] != w.shape[1]:
        if not x.ndim:
            raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are 0D and {w.ndim}D")
        sizes = f"{math.prod(x.shape[:-1])}x{x.shape[-1]} and {w.shape[1]}x{w.shape[0]}"
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({sizes})")
    if act_func in ACTIVATIONS and input.device.type != "cpu":
        return linear_activation(input, weight, bias, activation=act_func, fused=fused, auto=auto)
    out = _linear.fast_call(input, weight, bias, fused=fused, auto=auto)
    return out if act_func is None else activation_named(act_func, fused)(out, auto=auto)


def gelu_mlp(
    input: Tensor, weight1: Tensor, weight2: Tensor, bias1: Tensor | None = None, bias2: Tensor | None = None, *,
    approximate: str = "none", fused: bool | None = None,
) -> Tensor:  # fmt: skip
    """linear(gelu(linear(input, weight1, bias1), approximate), weight2, bias2): a transformer's MLP.

    On a GPU the products' own kernels apply GELU by tanh and its slope; exact GELU is a pass of its own.

    Args:
        input: (…, in). weight1: (hidden, in). weight2: (out, hidden). bias1: (hidden,). bias2: (out,).
        approximate: as `gelu`.

    Raises:
        RuntimeError: sizes that do not fit, or another approximation.

    Example:
        >>> round(F.gelu_mlp(tensor([3.0, 2.0]), mytorch.ones(4, 2), mytorch.ones(1, 4)).item(), 3)
        20.0
    """
    tanh = approximate == "tanh" and input.device.type != "cpu" and weight1.ndim == weight2.ndim == 2
    fits = tanh and input.shape[-1:] == weight1.shape[1:] and weight2.shape[1:] == weight1.shape[:1]
    if fits and _gelu_mlp.kernels.allowed(input.device.type, fused) is not None:
        return _gelu_mlp(input, weight1, weight2, bias1, bias2, fused=fused)
    hidden = gelu(linear(input, weight1, bias1, fused=fused), approximate, fused=fused)
    return linear(hidden, weight2, bias2, fused=fused)


def activation_named(name: str, fused: bool | None = None) -> Callable[..., Tensor]:
    """The activation function of a name; `fused` goes to those that have a kernel.

    Raises:
        ValueError: there is none.
    """
    known = {"relu": relu, "gelu": gelu, "silu": silu, "tanh": tanh, "sigmoid": sigmoid, "relu_squared": relu_squared}
    if name not in known:
        raise ValueError(f"act_func is {name!r}; expected one of {', '.join(known)}.")
    kernels = fused is not None and name in ACTIVATIONS
    return functools.partial(known[name], fused=fused) if kernels else known[name]


@in_precision("widest")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_k = input1ᵀ weight_k input2 + bias_k: (…, in1) and (…, in2) to (…, out), weight (out, in1, in2).

    Args:
        input1: (…, in1).
        input2: (…, in2).
        weight: (out, in1, in2).
        bias: (out,).

    Raises:
        RuntimeError: shapes that do not fit.
    """
    if input1.shape[:-1] != input2.shape[:-1] or weight.ndim != 3:
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match, or the weight is not 3-D: got {list(input1.shape)}, "
            f"{list(input2.shape)} and weight {list(weight.shape)}"
        )
    left = (input1.unsqueeze(-2).unsqueeze(-2) @ weight).squeeze(-2)  # (…, out, in2)
    out = (left @ input2.unsqueeze(-1)).squeeze(-1)
    return out if bias is None else out + bias


def relu_squared(input: Tensor, *, fused: bool | None = None, auto: bool = False) -> Tensor:
    """relu(input) squared. Source: So et al., Primer, 2021."""
    if input.device.type == "cpu" and fused is not True:
        return relu(input, auto=auto).square()
    return _relu_squared(input, fused=fused, auto=auto)


def _drop(input, shape, p, training, inplace, name, fused=None, auto=False):
    """Multiply by a mask of `shape` that is 0 with probability p and 1 / (1 - p) otherwise."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if inplace and input.device.type == "cpu" and fused is not True:
        return input.mul_(Tensor._wrap(bernoulli_mask(input, shape, p)))
    if inplace:
        return overwrite(input, _drop(input, shape, p, training, False, name, fused, auto), "inplace=True")
    if shape == tuple(input.shape):
        return _dropout(input, mask=dropout_mask(_dropout, input, shape, p, fused), fused=fused, auto=auto)
    return _dropout(input, mask=bernoulli_mask(input, shape, p))


@spelled(dropout_p="p")
def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, fused: bool | None = None,
    auto: bool = False,
) -> Tensor:  # fmt: skip
    """Each element zeroed with probability p and the others scaled by 1 / (1 - p), while training.

    Args:
        p: the probability. training: False returns input as it is. inplace: write into input.
        fused: True asks for a kernel, False for the reference, None takes whichever is faster.

    Raises:
        ValueError: p lies outside [0, 1].
    Source: Srivastava et al., 2014.
    """
    return _drop(input, tuple(input.shape), p, training, inplace, "dropout", fused, auto)


def relu(input: Tensor, inplace: bool = False, *, auto: bool = False, fused: bool | None = None) -> Tensor:
    """max(input, 0); `inplace` writes it into the input."""
    if inplace and not auto and fused is not True:
        return input.relu_()
    out = _relu.fast_call(input) if fused is None and not auto else _relu.dispatch(input, fused=fused, auto=auto)
    return overwrite(input, out, "inplace=True") if inplace else out


def _channel_dropout(d):
    @named(f"dropout{d}d", f"Whole channels, all of their last {d} axes, zeroed with probability p while training.")
    def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        spatial = 1 if d == 2 and input.ndim == 3 else d  # three axes are (N, C, L), as in PyTorch
        shape = (*tuple(input.shape)[: input.ndim - spatial], *(1,) * spatial)
        return _drop(input, shape, p, training, inplace, f"dropout{d}d")

    return dropout


dropout1d, dropout2d, dropout3d = (_channel_dropout(d) for d in (1, 2, 3))


def _alpha(input, p, training, shape):
    """Dropout to selu's negative limit, with the scale and shift that keep mean and variance."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    limit = -1.7580993408473766
    kept = Tensor._wrap(bernoulli_mask(input, shape, p) != 0)
    scale = ((1 - p) * (1 + p * limit**2)) ** -0.5 if p < 1 else 0.0
    return where(kept, input, limit) * scale + (-limit * p * scale)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for selu networks. Source: Klambauer et al., 2017.

    Args:
        p: share of elements that are dropped.
        training: False returns input.
    """
    return _alpha(input, p, training, tuple(input.shape))


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels.

    Args:
        p: share of channels that are dropped.
        training: False returns input.

    Raises:
        RuntimeError: fewer than two axes.
    """
    if 0.0 <= p <= 1.0 and (p in (0.0, 1.0) or not input.numel()):
        return input * 0 if training and p == 1.0 else input
    return _alpha(input, p, training, _of_channels(input, training))


def _of_channels(input, training):
    """The shape of a mask with one element for each of a sample's channels."""
    if training and input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*input.shape[:2], *(1,) * (input.ndim - 2))


def feature_dropout(input: Tensor, p: float, train: bool, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels: all that lies behind the first two axes.

    Args:
        p: share of channels that are dropped.
        train: False returns input.
        inplace: write into input.

    Raises:
        RuntimeError: fewer than two axes.
    """
    shape = _of_channels(input, train and 0.0 < p < 1.0 and input.numel())
    return _drop(input, shape, p, train, inplace, "feature_dropout")


def rmsnorm(
    input: Tensor, weight: Tensor | None = None, eps: float | None = None, training: bool = True, *,
    fused: bool | None = None, auto: bool = False,
) -> Tensor:  # fmt: skip
    """RMS norm over the last axis.

    Args:
        weight: factors of the last axis.
        eps: added to the mean square.
        training: accepted.
    """
    return rms_norm(input, (input.shape[-1],), weight, eps, fused=fused, auto=auto)


def precompute_rotary_cos_sin(
    head_dim: int, max_position_embeddings: int, base: float = 10000.0, *, scaling_factor: float = 1.0, device=None,
    dtype: dtypes.dtype | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Tables (cos, sin), each (1, max_position_embeddings, head_dim), of the rotary angles. Source: Su et al., 2021.

    Args:
        scaling_factor: positions are divided by it, to reach further than a model was trained for.
        device, dtype: of the tables.
    """
    frequencies = base ** (arange(0, head_dim, 2).float() * (-1.0 / head_dim))
    angles = (arange(max_position_embeddings).float() / scaling_factor).unsqueeze(1) * frequencies
    angles = cat([angles, angles], dim=-1).unsqueeze(0)
    return angles.cos().to(device=device, dtype=dtype), angles.sin().to(device=device, dtype=dtype)


def _rotate_half(x):
    a, b = x.chunk(2, -1)
    return cat([-b, a], dim=-1)


def apply_rotary_pos_embed(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1, *, fused: bool | None = None
) -> tuple[Tensor, Tensor]:
    """q and k turned by the angles whose cos and sin are given, which broadcast after `unsqueeze_dim`.

    Args:
        q: (B, H, T, D).
        k: (B, H, T, D).
        cos: (B, T, D), or what broadcasts.
        sin: as cos.
        unsqueeze_dim: where cos and sin lack the heads' axis.
    """
    if cos.ndim == 3:  # (B, T, D): an axis for the heads
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    if (q.device.type != "cpu" or fused is True) and not (cos.requires_grad or sin.requires_grad):
        tables = {"cos": raw_of(cos), "sin": raw_of(sin), "fused": fused}
        return rotary(q, **tables), rotary(k, **tables)
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


_IN_PLACE = {  # the functions that PyTorch also has with an underscore
    "celu": lambda input, alpha=1.0: celu(input, alpha, True),
    "elu": lambda input, alpha=1.0: elu(input, alpha, True),
    "hardtanh": lambda input, min_val=-1.0, max_val=1.0: hardtanh(input, min_val, max_val, True),
    "leaky_relu": lambda input, negative_slope=0.01: leaky_relu(input, negative_slope, True),
    "relu": lambda input: relu(input, True),
    "rrelu": lambda input, lower=1.0 / 8, upper=1.0 / 3, training=False: rrelu(input, lower, upper, training, True),
    "selu": lambda input: selu(input, True),
    "threshold": lambda input, threshold, value: _threshold(input, threshold, value, True),
}
for _name, _twin in _IN_PLACE.items():
    globals()[f"{_name}_"] = named(f"{_name}_", f"In-place version of `{_name}`.")(_twin)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`input` with `pad` (pairs of widths, the last axis first; negative ones crop) filled with `value`.

    Args:
        pad: widths (before, after), the last axis first.
        value: what to fill with.
    """
    return _pad(input, list(pad), "constant", value)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution over time of (T, N, C) with weight (K, C, out): a tensor (T', N, out).

    Args:
        input: (T, N, C).
        weight: (K, C, out).
        bias: (out,).
        pad: zeros at both ends.

    Raises:
        RuntimeError: other than three axes.
    """
    if input.ndim != 3 or weight.ndim != 3:
        raise RuntimeError(
            f"conv_tbc: Input must have 3 dims: time, batch, in_channel, got {input.ndim} and a {weight.ndim}-d weight."
        )
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def _warn_of_upsample(name: str) -> None:
    warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")


def upsample_nearest(input: Tensor, size=None, scale_factor=None) -> Tensor:
    """The older name of `interpolate(mode="nearest")`.

    Args:
        size: of the spatial axes.
        scale_factor: factor of their sizes.
    """
    _warn_of_upsample("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size=None, scale_factor=None) -> Tensor:
    """The older name of `interpolate(mode="bilinear", align_corners=True)`.

    Args:
        size: (H, W).
        scale_factor: factor of both.
    """
    _warn_of_upsample("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """Refuse what is neither an int nor two numbers.

    Raises:
        AssertionError: with the message, formatted with the argument's name.
    """
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: dtypes.dtype | None = None,
) -> Tensor:  # fmt: skip
    """Several matrix products at once, of 2-d operands that are cut at `offs` and of 3-d ones.

    Args:
        mat_a: (G, M, K), or (M, K) of which group g has the rows (or, if mat_b is 2-d, the columns) before offs[g].
        mat_b: (G, K, N), or (K, N), cut likewise along N (or K).
        offs: (G,) integers, the end of each group; needed if an operand is 2-d.
        out_dtype: of the result.

    Returns:
        (G, M, N) for two 3-d or two 2-d operands; else (M, N).

    Raises:
        RuntimeError: offs is missing or superfluous, a bias is given, or axes don't fit.
    """
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet")
    if mat_a.ndim not in (2, 3) or mat_b.ndim not in (2, 3):
        raise RuntimeError(
            f"grouped_mm: mat_a and mat_b have to be 2 or 3 dimensional, got {mat_a.ndim} and {mat_b.ndim}."
        )
    cut = mat_a.ndim == 2 or mat_b.ndim == 2
    if cut != (offs is not None):
        raise RuntimeError(
            f"grouped_mm: Have to {'' if cut else 'not '}provide offsets{' if one of the matrices is 2d' if cut else ' for 3d matrices'}."
        )
    if offs is None:
        out = mat_a @ mat_b
    else:
        ends = [int(e) for e in offs]
        spans = [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        if mat_a.ndim == mat_b.ndim:
            out = stack([mat_a[:, s] @ mat_b[s] for s in spans])
        elif mat_a.ndim == 2:
            out = cat([mat_a[s] @ mat_b[g] for g, s in enumerate(spans)])
        else:
            out = cat([mat_a[g] @ mat_b[:, s] for g, s in enumerate(spans)], -1)
    return out if out_dtype is None else out.to(out_dtype)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Class indices (…) as an int64 tensor (…, num_classes) with a single 1 in each row.

    Args:
        num_classes: the largest index plus one if -1.

    Raises:
        RuntimeError: an index is negative or not below num_classes; on a GPU it is looked for only if num_classes is -1,
            since the answer would have to be waited for.

    Example:
        >>> F.one_hot(tensor([0, 2]), num_classes=3).tolist()
        [[1, 0, 0], [0, 0, 1]]
    """
    if tensor.dtype.category != dtypes.INT:
        raise RuntimeError(f"one_hot is only applicable to index tensors of integer dtype, got {tensor.dtype}.")
    if tensor.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return zeros(*tensor.shape, num_classes, dtype=dtypes.int64, device=tensor.device)
    if num_classes == -1 or not tensor.is_cuda:
        if int(tensor.min()) < 0:
            raise RuntimeError("Class values must be non-negative.")
        largest = int(tensor.max())
        if num_classes == -1:
            num_classes = largest + 1
        elif largest >= num_classes:
            raise RuntimeError(
                f"Class values must be smaller than num_classes: {largest} with num_classes={num_classes}."
            )
    if not tensor.is_cuda:  # where every index is known to be within
        out = np.zeros((*tensor.shape, num_classes), np.int64)
        out.reshape(-1)[np.arange(tensor.numel()) * num_classes + raw_of(tensor).reshape(-1)] = 1
        return Tensor._wrap(out)
    return (tensor.unsqueeze(-1) == arange(num_classes, device=tensor.device)).to(dtypes.int64)
