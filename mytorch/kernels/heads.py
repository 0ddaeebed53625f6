"""Memory layouts of attention's arrays. With them, splitting and joining heads needs no copy."""

from ..arrays import address


def by_time(xp, like, width):
    """Returns a new array (B, H, L, width) stored as (B, L, H, width), so that joining the heads needs no copy."""
    batch, heads, length, _ = like.shape
    return xp.empty((batch, length, heads, width), like.dtype).swapaxes(1, 2)


def laid_out_as(xp, x, width):
    """Returns a new array (…, width) with the same order of axes in memory as x."""
    return xp.empty_like(x, shape=(*x.shape[:-1], width))


def side_by_side(xp, q, k, v):
    """Returns arrays for the gradients of q, k and v as slices of one array, if q, k and v are slices of one array.

    This is the case for the output of one linear layer, (B, L, 3 H D) or (L, B, 3 H D). The gradient of the layer's output
    then needs no copy. Returns None for other layouts.
    """
    # Equal distances between the three addresses: an array with a leading axis of 3 covers them.
    gap = address(k) - address(q)
    if not (q.shape == k.shape == v.shape and q.strides == k.strides == v.strides and address(v) - address(k) == gap):
        return None
    three = xp.lib.stride_tricks.as_strided(q, (3, *q.shape), (gap, *q.strides))
    joined = xp.empty_like(three)
    return list(joined) if joined.strides == three.strides else None
