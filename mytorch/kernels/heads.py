"""How the arrays of attention lie in memory, so that splitting and joining heads is no copy."""

from ..backend import address


def by_time(xp, like, width):
    """An array (B, H, L, width) laid out as (B, L, H, width): joining the heads again is then no copy."""
    batch, heads, length, _ = like.shape
    return xp.empty((batch, length, heads, width), like.dtype).swapaxes(1, 2)


def laid_out_as(xp, x, width):
    """An array (…, width) whose axes lie in memory in the order of x's: (B, H, L, E) may lie by time or by batch first."""
    return xp.empty_like(x, shape=(*x.shape[:-1], width))


def side_by_side(xp, q, k, v):
    """Three arrays for the gradients of q, k, v in one, if these lie so themselves, as the slices of one linear layer's output
    (B, L, 3 H D) or (L, B, 3 H D): the layer's gradient is then there without a copy. None otherwise."""
    gap = address(k) - address(q)
    if not (q.shape == k.shape == v.shape and q.strides == k.strides == v.strides and address(v) - address(k) == gap):
        return None
    three = xp.lib.stride_tricks.as_strided(q, (3, *q.shape), (gap, *q.strides))
    joined = xp.empty_like(three)
    return list(joined) if joined.strides == three.strides else None
