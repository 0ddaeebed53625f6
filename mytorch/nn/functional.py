"""The functional twins of the layers: names of ops as `F`, and the few composites that are no op."""

import functools
import warnings

from ..base import dtypes
from ..ops.activation import (
    _relu_squared,
    celu,
    elu,
    gelu,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    masked_softmax,
    mish,
    prelu,
    relu6,
    rrelu,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
)
from ..ops.activation import relu as _relu
from ..ops.activation import threshold as _threshold
from ..ops.attention import scaled_dot_product_attention
from ..ops.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ..ops.creation import arange, zeros
from ..ops.dropout import dropout as _dropout
from ..ops.dropout import dropout_mask
from ..ops.elementwise import where
from ..ops.embedding import embedding, embedding_bag
from ..ops.gated import geglu, reglu, swiglu
from ..ops.inplace import overwrite
from ..ops.linalg import _linear
from ..ops.linear_activation import ACTIVATIONS, linear_activation
from ..ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    pairwise_distance,
    pdist,
    poisson_nll_loss,
    raw_of,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from ..ops.movement import cat, stack
from ..ops.normalization import (
    add_layer_norm,
    add_rms_norm,
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)
from ..ops.padding import pad
from ..ops.padding import pad as _pad
from ..ops.pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from ..ops.precision import in_precision
from ..ops.random import bernoulli_mask
from ..ops.resample import (
    affine_grid,
    channel_shuffle,
    fold,
    grid_sample,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
    unfold,
    upsample,
)
from ..ops.rotary import rotary
from ..tensor import Tensor


def linear(input, weight, bias=None, *, act_func=None, fused=None):
    """input @ weightᵀ + bias, and an activation on top if `act_func` names one.

    Args:
        input: (…, in). weight: (out, in), or (in,) for one output. bias: (out,) or ().
        act_func: None, "relu", "gelu", "silu", "tanh", "sigmoid" or "relu_squared".

    Raises:
        RuntimeError: the sizes of input and weight differ.
        ValueError: an activation that is not known.
    """
    if weight.ndim == 1:
        out = (input * weight).sum(-1)
        return out if bias is None else out + bias
    if input.shape[-1] != weight.shape[1]:
        rows = input.numel() // max(input.shape[-1], 1)
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{input.shape[-1]} and {weight.shape[1]}x{weight.shape[0]})"
        )
    if act_func in ACTIVATIONS and input.device.type != "cpu":
        return linear_activation(input, weight, bias, activation=act_func, fused=fused)
    out = _linear(input, weight, bias, fused=fused) if bias is not None else _linear(input, weight, fused=fused)
    return out if act_func is None else activation_named(act_func, fused)(out)


def activation_named(name, fused=None):
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
def bilinear(input1, input2, weight, bias=None):
    """y_k = input1ᵀ weight_k input2 + bias_k: (…, in1) and (…, in2) to (…, out), weight (out, in1, in2)."""
    left = (input1.unsqueeze(-2).unsqueeze(-2) @ weight).squeeze(-2)  # (…, out, in2)
    out = (left @ input2.unsqueeze(-1)).squeeze(-1)
    return out if bias is None else out + bias


def relu_squared(input, *, fused=None):
    """relu(input) squared. Source: So et al., Primer, 2021."""
    if input.device.type == "cpu" and fused is not True:
        return relu(input).square()
    return _relu_squared(input, fused=fused)


def _drop(input, shape, p, training, inplace, name, fused=None):
    """Multiply by a mask of `shape` that is 0 with probability p and 1 / (1 - p) otherwise."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if inplace and input.device.type == "cpu" and fused is not True:
        return input.mul_(Tensor._wrap(bernoulli_mask(input, shape, p)))
    if inplace:
        return overwrite(input, _drop(input, shape, p, training, False, name, fused), "inplace=True")
    if shape == tuple(input.shape):
        return _dropout(input, mask=dropout_mask(_dropout, input, shape, p, fused), fused=fused)
    return _dropout(input, mask=bernoulli_mask(input, shape, p))


def dropout(input, p=0.5, training=True, inplace=False, *, fused=None):
    """Each element zeroed with probability p and the others scaled by 1 / (1 - p), while training.

    Raises:
        ValueError: p lies outside [0, 1].
    Source: Srivastava et al., 2014.
    """
    return _drop(input, tuple(input.shape), p, training, inplace, "dropout", fused)


def relu(input, inplace=False, *, fused=None):
    """max(input, 0); `inplace` writes it into the input."""
    if inplace:
        return input.relu_() if fused is not True else overwrite(input, _relu(input, fused=True), "inplace=True")
    return _relu(input, fused=fused)


def _channel_dropout(d):
    def dropout(input, p=0.5, training=True, inplace=False):
        shape = (*tuple(input.shape)[: input.ndim - d], *(1,) * d)
        return _drop(input, shape, p, training, inplace, f"dropout{d}d")

    dropout.__name__ = dropout.__qualname__ = f"dropout{d}d"
    dropout.__doc__ = f"Whole channels, all of their last {d} axes, zeroed with probability p while training."
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


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout for selu networks. Source: Klambauer et al., 2017."""
    return _alpha(input, p, training, tuple(input.shape))


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """`alpha_dropout` of whole channels."""
    return _alpha(input, p, training, (*input.shape[:2], *(1,) * (input.ndim - 2)))


def rmsnorm(input, weight=None, eps=None, training=True, *, fused=None):
    """RMS norm over the last axis."""
    return rms_norm(input, (input.shape[-1],), weight, eps, fused=fused)


def precompute_rotary_cos_sin(head_dim, max_position_embeddings, base=10000.0):
    """Tables (cos, sin), each (max_position_embeddings, head_dim), of the rotary angles. Source: Su et al., 2021."""
    frequencies = base ** (arange(0, head_dim, 2).float() * (-1.0 / head_dim))
    angles = arange(max_position_embeddings).float().unsqueeze(1) * frequencies
    angles = cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def _rotate_half(x):
    a, b = x.chunk(2, -1)
    return cat([-b, a], dim=-1)


def apply_rotary_pos_embed(q, k, cos, sin, unsqueeze_dim=1, *, fused=None):
    """q and k turned by the angles whose cos and sin are given, which broadcast after `unsqueeze_dim`."""
    if cos.ndim == 3:  # (B, T, D): an axis for the heads
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    if (q.device.type != "cpu" or fused is True) and not (cos.requires_grad or sin.requires_grad):
        tables = {"cos": raw_of(cos), "sin": raw_of(sin), "fused": fused}
        return rotary(q, **tables), rotary(k, **tables)
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


def hardtanh_(input, min_val=-1.0, max_val=1.0):
    """In-place version of `hardtanh`."""
    return hardtanh(input, min_val, max_val, True)


def relu_(input):
    """In-place version of `relu`."""
    return relu(input, inplace=True)


def elu_(input, alpha=1.0):
    """In-place version of `elu`."""
    return elu(input, alpha, inplace=True)


def celu_(input, alpha=1.0):
    """In-place version of `celu`."""
    return celu(input, alpha, inplace=True)


def selu_(input):
    """In-place version of `selu`."""
    return selu(input, inplace=True)


def leaky_relu_(input, negative_slope=0.01):
    """In-place version of `leaky_relu`."""
    return leaky_relu(input, negative_slope, inplace=True)


def rrelu_(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
    """In-place version of `rrelu`."""
    return rrelu(input, lower, upper, training, inplace=True)


def threshold_(input, threshold, value):
    """In-place version of `threshold`."""
    return _threshold(input, threshold, value, inplace=True)


def constant_pad_nd(input, pad, value=0):
    """`input` with `pad` (pairs of widths, the last axis first; negative ones crop) filled with `value`."""
    return _pad(input, list(pad), "constant", value)


def conv_tbc(input, weight, bias, pad=0):
    """Convolution over time of (T, N, C) with weight (K, C, out): a tensor (T', N, out).

    Raises:
        RuntimeError: other than three axes.
    """
    if input.ndim != 3 or weight.ndim != 3:
        raise RuntimeError(
            f"conv_tbc: Input must have 3 dims: time, batch, in_channel, got {input.ndim} and a {weight.ndim}-d weight."
        )
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def upsample_nearest(input, size=None, scale_factor=None):
    """The older name of `interpolate(mode="nearest")`."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """The older name of `interpolate(mode="bilinear", align_corners=True)`."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def assert_int_or_pair(arg, arg_name, message):
    """Refuse what is neither an int nor two numbers.

    Raises:
        AssertionError: with the message, formatted with the argument's name.
    """
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
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
    if not cut:
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


def one_hot(tensor, num_classes=-1):
    """Class indices (…) as an int64 tensor (…, num_classes) with a single 1 in each row.

    Args:
        num_classes: the largest index plus one if -1.

    Raises:
        RuntimeError: an index is negative or not below num_classes; on a GPU it is looked for only if num_classes is -1,
            since the answer would have to be waited for.
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
    return (tensor.unsqueeze(-1) == arange(num_classes, device=tensor.device)).to(dtypes.int64)


# These call functions of this module, by `F.`; so they come last.
from .linear_cross_entropy import linear_cross_entropy  # noqa: E402
from .multihead import multi_head_attention_forward  # noqa: E402

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "add_layer_norm",
    "add_rms_norm",
    "affine_grid",
    "alpha_dropout",
    "apply_rotary_pos_embed",
    "assert_int_or_pair",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "constant_pad_nd",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gaussian_nll_loss",
    "geglu",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "grouped_mm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "masked_softmax",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "precompute_rotary_cos_sin",
    "prelu",
    "reglu",
    "relu",
    "relu6",
    "relu_",
    "relu_squared",
    "rms_norm",
    "rmsnorm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "swiglu",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
