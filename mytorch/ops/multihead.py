"""Multi-head attention over projected inputs, as a function of its parameters."""

import math

from ..arrays import dtypes
from ..arrays.tensor import Tensor
from .activation import softmax
from .attention import scaled_dot_product_attention
from .composites import dropout, linear
from .creation import zeros
from .movement import cat
from .padding import pad


def _as_added(mask, dtype, name):
    """Converts a bool mask, True where attention is NOT allowed, to numbers that are added to the scores."""
    if mask is None:
        return None
    if mask.dtype is dtypes.bool_:
        return zeros(*mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)
    if not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask.to(dtype)


def _check_dims(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Returns True if the inputs have a batch axis. Raises AssertionError if their numbers of axes do not fit."""
    if query.ndim not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor"
        )
    d = query.ndim
    kind = "batched (3-D)" if d == 3 else "unbatched (2-D)"
    if key.ndim != d or value.ndim != d:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {d}-D"
            f" but found {key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != d - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {d - 1}-D"
            f" but found {key_padding_mask.ndim}-D tensor instead"
        )
    if attn_mask is not None and attn_mask.ndim not in (2, 3):
        raise AssertionError(
            f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.ndim}-D tensor instead"
        )
    if d == 2 and attn_mask is not None and attn_mask.ndim == 3:
        want = (num_heads, query.shape[0], key.shape[0])
        if tuple(attn_mask.shape) != want:
            raise AssertionError(f"Expected `attn_mask` shape to be {want} but got {attn_mask.shape}")
    return d == 3


def _check_sizes(query, key, value, wanted, num_heads, separate):
    """Raises AssertionError if sizes do not fit. With `separate`, key and value may have different sizes."""
    embed_dim = query.shape[2]
    if embed_dim != wanted:
        raise AssertionError(f"was expecting embedding dimension of {wanted}, but got {embed_dim}")
    if embed_dim % num_heads:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if separate and tuple(key.shape[:2]) != tuple(value.shape[:2]):
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    if not separate and tuple(key.shape) != tuple(value.shape):
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _mask_of_heads(mask, n, heads, sizes):
    """Returns a mask (L, S) or (N * heads, L, S) as (N, heads, L, S)."""
    if mask is None:
        return None
    want = sizes if mask.ndim == 2 else (n * heads, *sizes)
    if tuple(mask.shape) != want:
        raise RuntimeError(f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {want}.")
    return mask.reshape(n, heads, *sizes) if mask.ndim == 3 else mask


def _with_padding(mask, padding, sizes):
    """Adds the padding mask of the keys, (N, S), to the attention mask."""
    if padding is None:
        return mask
    if tuple(padding.shape) != sizes:
        raise AssertionError(f"Expected key_padded_mask.shape to be {sizes}, but got {tuple(padding.shape)}")
    padding = padding.reshape(sizes[0], 1, 1, -1)
    return padding if mask is None else mask + padding


def _projected(query, key, value, packed, separate, bias, fused):
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    if packed is not None and query is key and key is value:
        return linear(query, packed, bias, fused=fused).chunk(3, -1)
    weights = separate if packed is None else packed.chunk(3)
    return tuple(linear(x, w, b, fused=fused) for x, w, b in zip((query, key, value), weights, biases, strict=True))


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = True,
    is_causal: bool = False, *, fused: bool | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Computes multi-head attention, including the input and output projections.

        head_i = attention(query @ Wq_i.T, key @ Wk_i.T, value @ Wv_i.T)
        result = concatenate(head_1, …, head_h) @ out_proj_weight.T + out_proj_bias

    Args:
        query: queries, (L, N, E) or (L, E).
        key: keys, (S, N, E) or (S, E). With separate weights, the last size may differ.
        value: values, (S, N, E) or (S, E). With separate weights, the last size may differ.
        embed_dim_to_check: expected E.
        num_heads: number of heads; must divide E.
        in_proj_weight: (3E, E), or None with `use_separate_proj_weight`.
        in_proj_bias: (3E,), or None.
        bias_k: additional key (1, 1, E), or None.
        bias_v: additional value (1, 1, E), or None.
        add_zero_attn: if True, adds a key and a value of zeros.
        dropout_p: dropout probability of the attention weights during training.
        out_proj_weight: (E, E).
        out_proj_bias: (E,), or None.
        training: if True, applies dropout (default: True).
        key_padding_mask: (N, S): True, or a number to add, where a key is padding (default: None).
        need_weights: if True, also returns the attention weights (default: True).
        attn_mask: (L, S) or (N * num_heads, L, S): True, or a number to add, where attention is not allowed (default: None).
        use_separate_proj_weight: if True, uses the following three weights instead of `in_proj_weight` (default: False).
        q_proj_weight: (E, E), projection of the queries.
        k_proj_weight: (E, size of a key), projection of the keys.
        v_proj_weight: (E, size of a value), projection of the values.
        static_k: (N * num_heads, S, E / num_heads), used instead of the projected keys (default: None).
        static_v: (N * num_heads, S, E / num_heads), used instead of the projected values (default: None).
        average_attn_weights: if True, returns the weights averaged over the heads (default: True).
        is_causal: hint that `attn_mask` is the causal mask (default: False).
        fused: True requires a fused kernel for attention, or for softmax if the weights are needed. False runs the
            reference, also for the projections. See `mytorch.fused`.

    Returns:
        (output, weights). Without `need_weights`, weights is `None`; otherwise (N, L, S), or (N, num_heads, L, S)
        if they are not averaged.

    Raises:
        AssertionError: shapes that do not fit.
        RuntimeError: a mask of a wrong shape, or `is_causal` without a mask.

    See also: `nn.MultiheadAttention`, `nn.functional.scaled_dot_product_attention`.
    """
    batched = _check_dims(query, key, value, key_padding_mask, attn_mask, num_heads)
    same_qk, same_kv = query is key, key is value
    if not batched:
        query = query.unsqueeze(1)
        key = query if same_qk else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    length, n, embed_dim = query.shape
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    head_dim = embed_dim // num_heads
    mask = _mask_of_heads(_as_added(attn_mask, query.dtype, "attn_mask"), n, num_heads, (length, key.shape[0]))
    padding = _as_added(key_padding_mask, query.dtype, "key_padding_mask")

    packed = None if use_separate_proj_weight else in_proj_weight
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    if packed is None and any(w is None for w in separate):
        raise AssertionError(
            "multi_head_attention_forward: expected q_proj_weight, k_proj_weight and v_proj_weight with "
            "use_separate_proj_weight=True, got None for at least one."
        )
    linear_fused = False if fused is False else None
    q, k, v = _projected(query, key, value, packed, separate, in_proj_bias, linear_fused)  # (L, N, E), (S, N, E)
    extra = 0
    if (bias_k is None) != (bias_v is None):
        raise AssertionError("multi_head_attention_forward: expected both bias_k and bias_v, or neither, got one.")
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        k, v = cat([k, bias_k.expand(1, n, embed_dim)]), cat([v, bias_v.expand(1, n, embed_dim)])
        extra += 1
    q, k, v = (t.reshape(len(t), n, num_heads, head_dim).permute(1, 2, 0, 3) for t in (q, k, v))  # (N, H, L, D)
    k = k if static_k is None else _static(static_k, n, num_heads, head_dim, "static_k")
    v = v if static_v is None else _static(static_v, n, num_heads, head_dim, "static_v")
    if add_zero_attn:
        k, v = (cat([t, t.new_zeros(n, num_heads, 1, head_dim)], 2) for t in (k, v))
        extra += 1
    if extra:
        mask = None if mask is None else pad(mask, (0, extra))
        padding = None if padding is None else pad(padding, (0, extra))
    mask = _with_padding(mask, padding, (n, k.shape[2]))
    p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = (q * (1.0 / math.sqrt(head_dim))) @ k.transpose(-2, -1)
        weights = softmax(scores if mask is None else scores + mask.to(scores.dtype), -1, fused=fused)
        weights = dropout(weights, p, fused=fused) if p else weights
        out = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights if batched else weights.squeeze(0)
    else:
        out = scaled_dot_product_attention(q, k, v, mask, p, fused=fused)
    out = out.permute(2, 0, 1, 3).reshape(length, n, embed_dim)
    out = linear(out, out_proj_weight, out_proj_bias, fused=linear_fused)
    return (out if batched else out.squeeze(1)), weights


def _static(tensor, n, heads, width, name):
    """Returns (N * heads, S, D) as (N, heads, S, D)."""
    if tensor.shape[0] != n * heads:
        raise AssertionError(f"expecting {name}.size(0) of {n * heads}, but got {tensor.shape[0]}")
    if tensor.shape[2] != width:
        raise AssertionError(f"expecting {name}.size(2) of {width}, but got {tensor.shape[2]}")
    return tensor.reshape(n, heads, *tensor.shape[1:])
