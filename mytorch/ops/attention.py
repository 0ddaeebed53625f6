"""Scaled dot-product attention: the reference with masks, causality, windows, grouped queries and dropout."""

import math

from ..arrays import config, dtypes
from ..arrays.errors import shapes
from ..arrays.tensor import is_tensor
from ..autograd.mode import get_mode
from ..kernels.registry import CACHE, device_type
from .dispatch.bind import spelled
from .dispatch.errors import broadcast
from .dispatch.op import op
from .dispatch.unwrap import shape_of
from .dropout import dropout_mask, materialize


@op(
    name="scaled_dot_product_attention", grad_name="SDPA", residuals=("probabilities",), autocast="half",
    promoted=("query", "key", "value"), layout=None,
)  # fmt: skip
def _attention(xp, query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Computes softmax(query @ keyᵀ * scale + mask) @ value. `keep` is the scaled dropout mask, a DropoutSeed, or None."""
    if not key.shape[-3:-2] == query.shape[-3:-2] == value.shape[-3:-2]:
        key, value = _shared(xp, key, query), _shared(xp, value, query)
    scores = xp.matmul(query * scale, xp.swapaxes(key, -1, -2))  # (…, L, S)
    if softcap is not None:
        scores = xp.tanh(scores / softcap) * softcap
    allowed = band(xp, scores.shape[-2], scores.shape[-1], causal, window)
    if allowed is not None:
        scores = xp.where(allowed, scores, -math.inf)
    if mask is not None:
        scores = xp.where(mask, scores, -math.inf) if mask.dtype == bool else scores + mask
    if not scores.shape[-1]:  # no keys
        return xp.matmul(scores, value), scores
    peak = xp.max(scores, axis=-1, keepdims=True)
    peak = xp.where(peak == -math.inf, 0.0, peak)
    e = xp.exp(scores - peak)
    total = xp.sum(e, axis=-1, keepdims=True)
    p = e / xp.where(total == 0, 1.0, total)  # a row with nothing to attend to gives zeros
    dropped = p if keep is None else p * materialize(keep, tuple(p.shape), _raw_dtype(p))
    return xp.matmul(dropped, value), p


def _raw_dtype(x):
    return getattr(x.dtype, "numpy", x.dtype)


def _shared(xp, x, query):
    """Repeats the heads of (…, Hk, S, E) for the queries' heads that share them: (…, H, S, E). One head is broadcast."""
    if x.ndim < 3 or query.ndim < 3 or x.shape[-3] in (1, query.shape[-3]) or query.shape[-3] == 1:
        return x
    *lead, heads, length, width = x.shape
    groups = query.shape[-3] // heads
    repeated = xp.broadcast_to(xp.reshape(x, (*lead, heads, 1, length, width)), (*lead, heads, groups, length, width))
    return xp.reshape(repeated, (*lead, heads * groups, length, width))


def _gathered(xp, g, shape):
    """Computes the gradient of the input of `_shared`. The engine sums the gradient of a head that is broadcast."""
    if len(shape) < 3 or shape[-3] in (1, g.shape[-3]):
        return g
    *lead, heads, length, width = g.shape
    return xp.sum(xp.reshape(g, (*lead, shape[-3], heads // shape[-3], length, width)), axis=-3)


def band(xp, rows, columns, causal, window):
    """Returns a bool mask (rows, columns) of the keys that each query may attend to, or None if it may attend to all.

    With `causal`, query i sees key j only if j <= i. As in PyTorch, this aligns the upper left corner. With a window
    (left, right), it sees the key only if i - left <= j <= i + right. A bound of -1 means no bound.
    """
    if not causal and window is None:
        return None
    ahead = xp.arange(columns)[None, :] - xp.arange(rows)[:, None]
    allowed = ahead <= 0 if causal else ahead <= columns
    if window is not None:
        left, right = window
        if left >= 0:
            allowed = allowed & (ahead >= -left)
        if right >= 0:
            allowed = allowed & (ahead <= right)
    return allowed


def _attention_vjp(g, query, key, value, probabilities, keep, scale, softcap, needs, xp):
    p = probabilities
    keep = None if keep is None else materialize(keep, tuple(p.shape), _raw_dtype(p))
    shapes_of = key.shape, value.shape
    key, value = _shared(xp, key, query), _shared(xp, value, query)
    dropped = p if keep is None else p * keep
    gp = xp.matmul(g, xp.swapaxes(value, -1, -2))
    if keep is not None:
        gp = gp * keep
    weighted = gp * p
    gs = g_mask = weighted - p * xp.sum(weighted, axis=-1, keepdims=True)  # gradient of the scores
    if softcap is not None:
        bent = xp.tanh(xp.matmul(query * (scale / softcap), xp.swapaxes(key, -1, -2)))
        gs = gs * (1.0 - bent * bent)
    gq = xp.matmul(gs, key) * scale if needs[0] else None
    gk = _gathered(xp, xp.matmul(xp.swapaxes(gs, -1, -2), query) * scale, shapes_of[0]) if needs[1] else None
    gv = _gathered(xp, xp.matmul(xp.swapaxes(dropped, -1, -2), g), shapes_of[1]) if needs[2] else None
    return gq, gk, gv, g_mask if needs[3] else None


_attention.vjp(_attention_vjp)
_attention.register_kernel(cpu="mytorch.kernels.numba.attention", cuda="mytorch.kernels.triton.attention")


def _is_mask(dtype, query, strict):
    """Returns True if a mask may have a dtype. `strict` requires bool, float32, or the dtype of the query."""
    if strict:
        return dtype in (dtypes.bool_, dtypes.float32, query)
    return dtype is dtypes.bool_ or dtype.is_floating_point


@spelled(Q="query", K="key", V="value")
def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, *, causal=None,
    window=None, softcap=None, fused=None, auto=False,
):  # fmt: skip
    """Computes scaled dot-product attention.

        result = softmax(query @ key.T * scale + mask) @ value

    Use it in place of softmax and two products: a kernel computes the scores in blocks and never stores them all.
    `flex_attention` is for scores that you change.

    Args:
        query: queries.
        attn_mask: bool mask, True where attention is allowed, or floats to add to the scores (default: None). Broadcasts
            to (…, H, L, S). Floats can express ALiBi: slope (H, 1, 1) times (key position - query position).
        dropout_p: dropout probability of the attention weights (default: 0.0). It applies in any module mode.
        is_causal: if True, query i attends to keys 0 to i only (default: False).
        scale: factor for the scores (default: 1 / sqrt(E)).
        enable_gqa: if True, H may be a multiple of Hk; each key head then serves H / Hk query heads (default: False).
        causal: another name of `is_causal`.
        window: width w, or (left, right): query i attends to keys i - left to i + right only (default: None, all keys).
        softcap: replaces scores x, before masking, by softcap * tanh(x / softcap) (default: None, no change).

    Shape:
        query: (…, H, L, E).
        key: (…, Hk, S, E).
        value: (…, Hk, S, Ev).
        result: (…, H, L, Ev).

    Returns:
        The weighted sums of the values. For a query that may not attend to any key, they are 0.

    Raises:
        RuntimeError: both `attn_mask` and `is_causal`, shapes that do not fit, or a `dropout_p` outside [0, 1].

    Source: Vaswani et al., 2017; window: Beltagy et al., 2020; grouped queries: Ainslie et al., 2023; ALiBi: Press et al., 2022;
        softcap: Gemma team, Gemma 2, 2024.

    Example:
        >>> q, k = tensor([[1.0, 0.0]]), tensor([[0.0, 1.0], [0.0, 3.0]])  # both keys are orthogonal to the query
        >>> F.scaled_dot_product_attention(q, k, tensor([[2.0], [4.0]])).tolist()
        [[3.0]]

    See also: `nn.MultiheadAttention`.
    """
    is_causal = is_causal if causal is None else causal
    if attn_mask is not None and hasattr(attn_mask, "attention_window"):  # nn.attention.bias
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        attn_mask, window = None, attn_mask.attention_window
        is_causal, window = (True, None) if window[1] == 0 else (False, window)
    strict = config.pytorch_mode and get_mode().autocast is None
    if strict:
        dtypes.refuse_mixed("scaled_dot_product_attention", [x.dtype for x in (query, key, value)])
    if attn_mask is not None and not _is_mask(attn_mask.dtype, query.dtype, strict):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{attn_mask.dtype} and  query.dtype: {query.dtype} instead."
        )
    if attn_mask is not None and is_causal:
        raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if not 0.0 <= dropout_p <= 1.0:
        raise RuntimeError(f"scaled_dot_product_attention: expected dropout_p between 0 and 1, got {dropout_p}.")
    q, k, v = shape_of(query), shape_of(key), shape_of(value)
    if min(len(q), len(k), len(v)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        raise RuntimeError(
            "scaled_dot_product_attention: expected shapes (…, L, E), (…, S, E) and (…, S, Ev), "
            f"got {shapes(query, key, value)}."
        )
    one_query = False
    if not enable_gqa or q[-3:-2] == k[-3:-2] == v[-3:-2]:
        lead = broadcast(q[:-2], k[:-2])  # of the scores
        if v[:-2] != lead:
            broadcast(lead, v[:-2])
    elif min(len(q), len(k), len(v)) < 3:
        raise RuntimeError(
            f"scaled_dot_product_attention: expected heads with enable_gqa=True, (…, H, L, E), got {shapes(query, key, value)}."
        )
    else:
        for heads, word in ((k[-3], "key"), (v[-3], "value")):
            if not heads or q[-3] % heads:
                raise RuntimeError(
                    f"scaled_dot_product_attention: expected a number of query heads that is a multiple of the number of {word} heads, "
                    f"got {q[-3]} and {heads}."
                )
        if k[-3] != v[-3]:
            key, value = _share_heads(key, q[-3] // k[-3]), _share_heads(value, q[-3] // v[-3])
            k = shape_of(key)
        groups, lead = q[-3] // k[-3], (*broadcast(q[:-3], k[:-3]), q[-3])
        one_query = q[-2] == 1 and _sees_all_keys(k[-2], attn_mask, is_causal, window)
        if one_query:  # the queries that share a key head become the rows of one head, so no key is copied
            query, is_causal, window = query.reshape(*q[:-3], k[-3], groups, q[-1]), False, None
            q = shape_of(query)
            lead = (*lead[:-1], q[-3])
        elif query.device.type == "cpu":  # the GPU's kernel reads a shared head where it is
            key, value = _share_heads(key, groups), _share_heads(value, groups)
    if softcap is not None and not softcap > 0:
        raise RuntimeError(f"scaled_dot_product_attention: expected a positive softcap, got {softcap}.")
    if isinstance(window, int):
        window = (window, 0 if is_causal else window)
    keep = None if dropout_p == 0.0 else dropout_mask(_attention, query, (*lead, q[-2], k[-2]), dropout_p, fused)
    if is_tensor(attn_mask) and attn_mask.ndim < 2:
        attn_mask = attn_mask.expand(q[-2], k[-2])
    scale = 1.0 / math.sqrt(max(q[-1], 1)) if scale is None else float(scale)
    out = _attention.fast_call(
        query, key, value, attn_mask, keep=keep, causal=bool(is_causal), window=window, scale=scale, softcap=softcap,
        fused=fused, auto=auto,
    )  # fmt: skip
    return out.reshape(*out.shape[:-3], -1, 1, v[-1]) if one_query else out


def _sees_all_keys(keys, mask, is_causal, window):
    """Returns True if a single query sees all `keys`, except keys that a mask hides from all heads alike."""
    if keys > 1 and (is_causal or window is not None):
        return False
    return mask is None or mask.ndim < 2 or (mask.shape[-2] == 1 and (mask.ndim == 2 or mask.shape[-3] == 1))


def _share_heads(x, groups):
    """Repeats each head of (…, Hk, S, E) `groups` times in a row: (…, Hk * groups, S, E)."""
    *lead, heads, length, width = x.shape
    return x.unsqueeze(-3).expand(*lead, heads, groups, length, width).reshape(*lead, heads * groups, length, width)


def append_to_cache(keys, values, k, v, at):
    """Writes new keys and values into a cache, on a GPU in one kernel launch. Autograd does not record this.

        keys[:, :, at : at + T] = k
        values[:, :, at : at + T] = v

    Args:
        keys: cached keys (B, H, capacity, D).
        values: cached values (B, H, capacity, D).
        k: new keys (B, H, T, D).
        v: new values (B, H, T, D).
        at: first new position.
    """
    stores, new = (keys._mt_data._array, values._mt_data._array), (k._mt_data._array, v._mt_data._array)
    length = new[0].shape[2]
    found = CACHE.find(device_type(stores[0]), None, (*new, *stores), {}) if length else None
    if found is not None:
        found.append(*new, *stores, at)
        return
    for store, rows in zip(stores, new, strict=True):
        store[:, :, at : at + length] = rows
