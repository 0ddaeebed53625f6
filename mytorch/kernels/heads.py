"""How the arrays of attention lie in memory, so that splitting and joining heads is no copy."""

from ..backend import address


def by_time(xp, like, width):
    """An array (B, H, L, width) laid out as (B, L, H, width): joining the heads again is then no copy."""
    batch, heads, length, _ = like.shape
    return xp.empty((batch, length, heads, width), like.dtype).swapaxes(1, 2)


def side_by_side(xp, q, k, v):
    """Three arrays for the gradients of q, k, v (B, H, L, D) in one (B, L, 3 H D), if these lie so themselves, as the slices
    of one linear layer's output: the layer's gradient is then there without a copy. None otherwise."""
    batch, heads, length, width = q.shape
    columns, size = heads * width, q.itemsize
    steps = (length * 3 * columns * size, width * size, 3 * columns * size, size)
    same = q.shape == k.shape == v.shape and q.strides == k.strides == v.strides == steps
    if not same or address(k) - address(q) != columns * size or address(v) - address(k) != columns * size:
        return None
    joined = xp.empty((batch, length, 3, heads, width), q.dtype)
    return [joined[:, :, i].swapaxes(1, 2) for i in range(3)]
