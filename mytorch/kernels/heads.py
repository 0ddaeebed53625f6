"""How the arrays of attention lie in memory, so that splitting and joining heads is no copy."""

from ..backend import address


def by_time(xp, like, width):
    """An array (B, H, L, width) laid out as (B, L, H, width): joining the heads again is then no copy."""
    batch, heads, length, _ = like.shape
    return xp.empty((batch, length, heads, width), like.dtype).swapaxes(1, 2)


def laid_out_as(xp, x, width):
    """An array (…, width) whose leading axes lie in memory in the order of x's: (B, H, L, E) may lie by time or by batch first."""
    order = [i for i in _outermost_first(x) if i != x.ndim - 1]
    return xp.empty((*(x.shape[i] for i in order), width), x.dtype).transpose(*_undone(order), x.ndim - 1)


def side_by_side(xp, q, k, v):
    """Three arrays for the gradients of q, k, v in one, if these lie so themselves, as the slices of one linear layer's output
    (B, L, 3 H D) or (L, B, 3 H D): the layer's gradient is then there without a copy. None otherwise."""
    gap = address(k) - address(q)
    if not (q.shape == k.shape == v.shape and q.strides == k.strides == v.strides and address(v) - address(k) == gap):
        return None
    order, before = _outermost_first(q), sum(stride > gap for stride in q.strides)
    sizes = [q.shape[i] for i in order]
    joined = xp.empty((*sizes[:before], 3, *sizes[before:]), q.dtype)
    parts = [joined[(slice(None),) * before + (i,)].transpose(_undone(order)) for i in range(3)]
    return parts if parts[0].strides == q.strides and joined.strides[before] == gap else None


def _outermost_first(x):
    """The axes of x by their strides, the longest first."""
    return sorted(range(x.ndim), key=lambda i: -x.strides[i])


def _undone(order):
    """The permutation that takes axes in this order back to 0, 1, 2, …"""
    return sorted(range(len(order)), key=order.__getitem__)
