"""Functions of `nn.functional` that are composed of several ops."""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import config, dtypes
from ..arrays.arguments import same_arguments
from ..arrays.array import on_input_device
from ..arrays.errors import kind, warn
from ..arrays.memory_format import iterator
from ..arrays.tensor import Tensor, is_tensor
from .activation import _relu, _relu_squared, celu, elu, gelu, hardtanh, leaky_relu, rrelu, selu, sigmoid, silu, tanh
from .activation import threshold as _threshold
from .conv import DIMS, conv1d
from .creation import arange, zeros
from .dispatch.bind import spelled
from .dispatch.inplace import check_writable, overwrite
from .dispatch.precision import in_precision
from .dispatch.refused import check_dtypes
from .dispatch.unwrap import raw_of
from .dropout import dropout as _dropout
from .dropout import dropout_mask
from .elementwise import named, where
from .linalg import _linear
from .linear_activation import ACTIVATIONS, linear_activation
from .linear_activation import gelu_mlp as _gelu_mlp
from .movement import cat, laid_by, stack
from .normalization import rms_norm
from .padding import pad as _pad
from .random import bernoulli_mask
from .resample import interpolate
from .rotary import rotary


def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *, act_func: str | None = None, auto: bool = False,
    fused: bool | None = None,
) -> Tensor:  # fmt: skip
    """Applies a linear transformation to the input, and optionally an activation.

        result = input @ weight.T + bias

    Args:
        input: (…, in).
        weight: (out, in), or (in,) for a single output.
        bias: (out,) or () (default: None).
        act_func: None, "relu", "gelu", "silu", "tanh", "sigmoid" or "relu_squared" (default: None).
        auto: if True, composes the op of other ops and differentiates these (default: False). The result is the same.

    Shape:
        result: (…, out).

    Raises:
        RuntimeError: the last size of `input` differs from the last size of `weight`.
        ValueError: an unknown activation.

    Example:
        >>> F.linear(tensor([1.0, 2.0]), tensor([[1.0, 1.0], [0.0, -1.0]]), tensor([0.5, 0.5])).tolist()
        [3.5, -1.5]

    See also: `nn.Linear`.
    """
    try:
        x, w = input._mt_data._array, weight._mt_data._array
    except AttributeError:  # Arrays
        for place, (name, value) in enumerate({"input": input, "weight": weight}.items(), 1):
            if not is_tensor(value):
                raise TypeError(
                    f"linear(): argument '{name}' (position {place}) must be Tensor, not {kind(value)}"
                ) from None
        x, w = raw_of(input), raw_of(weight)
    if w.ndim < 2:
        if not w.ndim:
            raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {x.ndim}D and 0D")
        product = input * weight
        out = product.sum(-1, dtype=product.dtype)  # sums of integers keep their dtype, as in dot
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
    """Computes the MLP of a transformer: two linear layers with a GELU between them.

        result = linear(gelu(linear(input, weight1, bias1), approximate), weight2, bias2)

    On a GPU, the matrix multiplications compute a tanh-approximated GELU. The exact GELU needs a separate pass.

    Args:
        input: (…, in).
        weight1: (hidden, in).
        weight2: (out, hidden).
        bias1: (hidden,) (default: None).
        bias2: (out,) (default: None).
        approximate: "none" (default) or "tanh", as in `gelu`.

    Raises:
        RuntimeError: sizes that do not fit, or another approximation.

    Example:
        >>> F.gelu_mlp(tensor([30.0, 20.0]), mytorch.ones(4, 2), mytorch.ones(1, 4))
        tensor([200.00000])
    """
    tanh = approximate == "tanh" and input.device.type != "cpu" and weight1.ndim == weight2.ndim == 2
    fits = tanh and input.shape[-1:] == weight1.shape[1:] and weight2.shape[1:] == weight1.shape[:1]
    if fits and _gelu_mlp.kernels.allowed(input.device.type, fused) is not None:
        return _gelu_mlp(input, weight1, weight2, bias1, bias2, fused=fused)
    hidden = gelu(linear(input, weight1, bias1, fused=fused), approximate, fused=fused)
    return linear(hidden, weight2, bias2, fused=fused)


def activation_named(name: str, fused: bool | None = None) -> Callable[..., Tensor]:
    """Returns the activation function with a name. `fused` is passed to activations that have a kernel.

    Raises:
        ValueError: an unknown name.
    """
    known = {"relu": relu, "gelu": gelu, "silu": silu, "tanh": tanh, "sigmoid": sigmoid, "relu_squared": relu_squared}
    if name not in known:
        raise ValueError(f"act_func is {name!r}; expected one of {', '.join(known)}.")
    kernels = fused is not None and name in ACTIVATIONS
    return functools.partial(known[name], fused=fused) if kernels else known[name]


@in_precision("widest")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Applies a bilinear transformation to two inputs.

        result[k] = input1 @ weight[k] @ input2 + bias[k]

    Args:
        input1: (…, in1).
        input2: (…, in2).
        weight: (out, in1, in2).
        bias: (out,) (default: None).

    Shape:
        result: (…, out).

    Raises:
        RuntimeError: the shapes do not fit.

    Example:
        >>> F.bilinear(tensor([1.0, 2.0]), tensor([3.0]), mytorch.ones(1, 2, 1)).tolist()
        [9.0]

    See also: `nn.Bilinear`.
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
    """Applies the squared rectified linear unit to each element.

        result = max(input, 0)^2

    Source: So et al., Primer, 2021.

    Example:
        >>> F.relu_squared(tensor([-1.0, 3.0])).tolist()
        [0.0, 9.0]
    """
    if input.device.type == "cpu" and fused is not True:
        return relu(input, auto=auto).square()
    return _relu_squared(input, fused=fused, auto=auto)


def _drop(input, shape, p, training, inplace, name, fused=None, auto=False):
    """Multiplies by a mask of `shape` (None: of the input) that is 0 with probability p and 1 / (1 - p) otherwise."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0 or not input.numel():
        return input
    if input.dtype.category < dtypes.FLOAT:
        check_dtypes("dropout", (input._mt_data,))
    if inplace and input.device.type == "cpu" and fused is not True:
        return input.mul_(Tensor._wrap(bernoulli_mask(input, shape, p)))
    if inplace:
        return overwrite(input, _drop(input, shape, p, training, False, name, fused, auto), "inplace=True")
    if shape is None:
        return _dropout(input, mask=dropout_mask(_dropout, input, shape, p, fused), fused=fused, auto=auto)
    return _dropout(input, mask=bernoulli_mask(input, shape, p))


@spelled(dropout_p="p")
def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, fused: bool | None = None,
    auto: bool = False,
) -> Tensor:  # fmt: skip
    """Sets elements to zero during training, each with probability `p`.

        result = input * mask / (1 - p)

    Args:
        p: probability that an element is set to zero (default: 0.5).
        training: if False, returns `input` unchanged (default: True).

    Raises:
        ValueError: `p` is not between 0 and 1.

    Source: Srivastava et al., 2014.

    Example:
        >>> F.dropout(mytorch.ones(3), p=0.5, training=False).tolist()
        [1.0, 1.0, 1.0]

    See also: `nn.Dropout`.
    """
    return _drop(input, None, p, training, inplace, "dropout", fused, auto)


def relu(input: Tensor, inplace: bool = False, *, auto: bool = False, fused: bool | None = None) -> Tensor:
    """Applies the rectified linear unit to each element.

        result = max(input, 0)

    See also: `nn.ReLU`.
    """
    if inplace and not auto and fused is not True:
        return input.relu_()
    out = _relu.fast_call(input) if fused is None and not auto else _relu.dispatch(input, fused=fused, auto=auto)
    return overwrite(input, out, "inplace=True") if inplace else out


def _channel_dropout(d):
    @named(f"dropout{d}d", **DIMS[d])
    def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        """Sets whole channels to zero during training, each with probability `p`.

        A channel is a slice of the last {axes}. The other channels are scaled by 1 / (1 - p).

        Args:
            input: {shape}. As in PyTorch, `dropout2d` reads three axes as (N, C, L).
            p: probability that a channel is set to zero (default: 0.5).
            training: if False, returns `input` unchanged (default: True).

        Raises:
            ValueError: `p` is not between 0 and 1.
            RuntimeError: `input` has too few dimensions, or `dropout1d` has more than three.

        See also: `nn.Dropout{d}d`.
        """
        if input.ndim < 2 - d // 3 or (d == 1 and input.ndim > 3):
            raise RuntimeError(f"dropout{d}d: expected {'2D or 3D' if d == 1 else 'larger'} input, got {input.ndim}D.")
        if config.pytorch_mode and (input.ndim not in (d + 1, d + 2) or input.ndim == 3):
            warn(
                f"dropout{d}d: Received a {input.ndim}-D input to dropout{d}d, which is deprecated. Use dropout for single elements, "
                f"and an input with {d + 1} or {d + 2} dimensions to drop channels."
            )
        # The axes that index channels, as in PyTorch. For dropout2d, three axes are (N, C, L).
        lead = input.ndim - 1 if d == 1 else 2 if d == 2 or input.ndim == 5 else 1
        shape = (*tuple(input.shape)[:lead], *(1,) * (input.ndim - lead))
        return _drop(input, shape, p, training, inplace, f"dropout{d}d")

    return dropout


dropout1d, dropout2d, dropout3d = (_channel_dropout(d) for d in (1, 2, 3))


@on_input_device
def _alpha(input, p, training, shape):
    """Replaces elements by selu's negative limit, then scales and shifts to keep the mean and variance."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    limit = -1.7580993408473766
    kept = Tensor._wrap(bernoulli_mask(input, shape, p) != 0)
    scale = ((1 - p) * (1 + p * limit**2)) ** -0.5 if p < 1 else 0.0
    return laid_by(iterator, where(kept, input, limit) * scale + (-limit * p * scale), input)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Applies dropout that keeps the mean and variance of selu activations.

    Args:
        p: probability that an element is dropped (default: 0.5).
        training: if False, returns `input` unchanged (default: False).
        inplace: write the result into `input` (default: False).

    Raises:
        ValueError: `p` is not between 0 and 1.

    Source: Klambauer et al., 2017.

    Example:
        >>> F.alpha_dropout(mytorch.ones(2), p=0.5, training=False).tolist()
        [1.0, 1.0]

    See also: `nn.AlphaDropout`, `nn.functional.selu`.
    """
    if inplace:
        check_writable(input, "inplace=True")
    out = _alpha(input, p, training, None)
    return overwrite(input, out, "inplace=True") if inplace else out


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Applies `alpha_dropout` to whole channels.

    Args:
        input: (N, C, …).
        p: probability that a channel is dropped (default: 0.5).
        training: if False, returns `input` unchanged (default: False).
        inplace: write the result into `input` (default: False).

    Raises:
        RuntimeError: `input` has fewer than two axes.
        ValueError: `p` is not between 0 and 1.

    See also: `nn.FeatureAlphaDropout`.
    """
    if 0.0 <= p <= 1.0 and (p in (0.0, 1.0) or not input.numel()):
        return input * 0 if training and p == 1.0 else input
    if inplace:
        check_writable(input, "inplace=True")
    out = _alpha(input, p, training, _of_channels(input, training))
    return overwrite(input, out, "inplace=True") if inplace else out


def _of_channels(input, training):
    """Returns the shape of a mask with one element for each channel of each sample."""
    if training and input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*input.shape[:2], *(1,) * (input.ndim - 2))


def feature_dropout(input: Tensor, p: float, train: bool, inplace: bool = False) -> Tensor:
    """Applies `dropout` to whole channels, which are the slices along the first two axes.

    Args:
        input: (N, C, …).
        p: probability that a channel is set to zero.
        train: if False, returns `input` unchanged.

    Raises:
        RuntimeError: `input` has fewer than two axes.
        ValueError: `p` is not between 0 and 1.
    """
    shape = _of_channels(input, train and 0.0 < p < 1.0 and input.numel())
    return _drop(input, shape, p, train, inplace, "feature_dropout")


def rmsnorm(
    input: Tensor, weight: Tensor | None = None, eps: float | None = None, training: bool = True, *,
    fused: bool | None = None, auto: bool = False,
) -> Tensor:  # fmt: skip
    """Applies RMS normalization over the last axis.

        result = input / sqrt(mean(input^2) + eps) * weight

    Args:
        input: (…, C).
        weight: factors of the last axis, (C,) (default: None).
        eps: added to the mean square (default: the machine epsilon of the dtype).
        training: ignored (default: True).

    Example:
        >>> F.rmsnorm(tensor([1.0, -1.0]), eps=0.0).tolist()
        [1.0, -1.0]

    See also: `nn.functional.rms_norm`.
    """
    return rms_norm(input, (input.shape[-1],), weight, eps, fused=fused, auto=auto)


def precompute_rotary_cos_sin(
    head_dim: int, max_position_embeddings: int, base: float = 10000.0, *, scaling_factor: float = 1.0, device=None,
    dtype: dtypes.dtype | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Computes the cosines and sines of rotary position embeddings.

        angle[t, i] = t / scaling_factor / base^(2 * i / head_dim)

    Args:
        head_dim: size of an attention head.
        max_position_embeddings: number of positions.
        base: base of the frequencies (default: 10000.0).
        scaling_factor: divisor of the positions, to extend the context beyond the training length (default: 1.0).
        device: device of the tables (default: the default device).
        dtype: dtype of the tables (default: float32).

    Returns:
        (cos, sin), each of shape (1, max_position_embeddings, head_dim).

    Source: Su et al., 2021.

    Example:
        >>> cos, sin = F.precompute_rotary_cos_sin(4, 8)
        >>> cos.shape
        mytorch.Size([1, 8, 4])

    See also: `nn.functional.apply_rotary_pos_embed`.
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
    """Rotates queries and keys by the angles of their positions.

        result = x * cos + concatenate(-second half of x, first half of x) * sin

    Args:
        q: queries, (B, H, T, D).
        k: keys, (B, H, T, D).
        cos: cosines, (B, T, D), or a shape that broadcasts to it.
        sin: sines, of the same shape as `cos`.
        unsqueeze_dim: position of the new axis for the heads in `cos` and `sin` (default: 1).

    Returns:
        (rotated queries, rotated keys).

    Example:
        >>> cos, sin = F.precompute_rotary_cos_sin(4, 8)
        >>> q, k = F.apply_rotary_pos_embed(mytorch.ones(1, 2, 8, 4), mytorch.ones(1, 2, 8, 4), cos, sin)
        >>> q[0, 0, 0].tolist()  # position 0 is not rotated
        [1.0, 1.0, 1.0, 1.0]
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
for _name, _variant in _IN_PLACE.items():
    _doc = same_arguments(
        f"In-place variant of `{_name}`: writes the result into `input`.",
        globals()[_name.replace("threshold", "_threshold")],
        "inplace",
        "fused",
        "auto",  # the variants have none
    )
    globals()[f"{_name}_"] = named(f"{_name}_", _doc)(_variant)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """Pads a tensor with a constant.

    Args:
        pad: widths (last axis before, last axis after, second to last axis before, …). Negative widths crop.
        value: fill value (default: 0).

    Example:
        >>> mytorch.constant_pad_nd(tensor([1.0]), (1, 1)).tolist()
        [0.0, 1.0, 0.0]

    See also: `nn.functional.pad`.
    """
    return _pad(input, list(pad), "constant", value)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Applies a convolution over time to a sequence with the time as first axis.

    Args:
        input: (T, N, C).
        weight: (K, C, out).
        bias: (out,).
        pad: number of zeros at both ends of the time axis (default: 0).

    Shape:
        result: (T + 2 * pad - K + 1, N, out).

    Raises:
        RuntimeError: `input` or `weight` does not have three axes.

    Example:
        >>> F.conv_tbc(mytorch.ones(3, 1, 1), mytorch.ones(2, 1, 1), mytorch.zeros(1)).flatten().tolist()
        [2.0, 2.0]
    """
    if input.ndim != 3 or weight.ndim != 3:
        raise RuntimeError(
            f"conv_tbc: Input must have 3 dims: time, batch, in_channel, got {input.ndim} and a {weight.ndim}-d weight."
        )
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def _warn_of_upsample(name: str) -> None:
    warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")


def upsample_nearest(input: Tensor, size=None, scale_factor=None) -> Tensor:
    """Resizes the spatial axes with nearest-neighbor interpolation. Deprecated; use `interpolate`.

    Args:
        input: (N, C, …).
        size: output size of the spatial axes.
        scale_factor: factor of the spatial sizes. Give either `size` or `scale_factor`.
    """
    _warn_of_upsample("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size=None, scale_factor=None) -> Tensor:
    """Resizes images with bilinear interpolation and aligned corners. Deprecated; use `interpolate`.

    Args:
        input: (N, C, H, W).
        size: output size (H, W).
        scale_factor: factor of both sizes. Give either `size` or `scale_factor`.
    """
    _warn_of_upsample("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """Checks that a value is an int or two numbers.

    Args:
        arg: the value.
        arg_name: name of the argument, for the message.
        message: error message with a placeholder `{}` for the name.

    Raises:
        AssertionError: the check fails.
    """
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: dtypes.dtype | None = None,
) -> Tensor:  # fmt: skip
    """Computes several matrix multiplications at once.

    A 3-d operand holds one matrix per group. A 2-d operand is split at the positions `offs`.

    Args:
        mat_a: (G, M, K), or (M, K). A 2-d operand is split along M, or along K if `mat_b` is 2-d too.
        mat_b: (G, K, N), or (K, N). A 2-d operand is split along N, or along K if `mat_a` is 2-d too.
        offs: end position of each group, (G,) integers. Required if an operand is 2-d, otherwise not allowed.
        bias: not supported; must be None.
        out_dtype: dtype of the result (default: the dtype of the operands).

    Returns:
        (G, M, N) for two 3-d or two 2-d operands; otherwise (M, N).

    Raises:
        RuntimeError: `offs` is missing or not allowed, a bias is given, or the axes do not fit.

    Example:
        >>> a, b = mytorch.ones(3, 2), mytorch.ones(2, 2, 1)  # rows 0 and 1 use b[0], row 2 uses b[1]
        >>> F.grouped_mm(a, b, offs=mytorch.tensor([2, 3], dtype=mytorch.int32)).flatten().tolist()
        [2.0, 2.0, 2.0]
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
            out = cat([mat_a[g] @ mat_b[:, s] for g, s in enumerate(spans)], 1)
    return out if out_dtype is None else out.to(out_dtype)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Converts class indices to one-hot vectors.

    Args:
        tensor: class indices, of shape (…).
        num_classes: number of classes; -1 uses the largest index plus one (default: -1).

    Returns:
        An int64 tensor of shape (…, num_classes) with a single 1 in each row.

    Raises:
        RuntimeError: an index is negative or not less than `num_classes`. On a GPU, this is checked only if `num_classes`
            is -1, since the check must wait for the GPU.

    Example:
        >>> F.one_hot(tensor([0, 2]), num_classes=3).tolist()
        [[1, 0, 0], [0, 0, 1]]
    """
    if tensor.dtype.category != dtypes.INT or (config.pytorch_mode and tensor.dtype is not dtypes.int64):
        raise RuntimeError(f"one_hot is only applicable to index tensors of integer dtype, got {tensor.dtype}.")
    num_classes = operator.index(num_classes)
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
