"""Dropout, and where its random bits come from: a drawn mask, or a `DropoutSeed` for a kernel.

On the CPU a mask is an array. On a GPU a kernel needs only (seed, offset), which lie in device memory, and the number
of the draw: forward and backward make the same bits from them, so no mask is stored, and a captured training step
draws new numbers at each replay once the offset is raised (`Generator.advance`).
"""

import numpy as np

from ..dispatch.op import op
from .random import bernoulli_mask, generator_for


class DropoutSeed:
    """The dropout mask of one call, before there is one.

    Attributes:
        p: share of elements that are dropped.
        state: int64 (2,) in the device's memory: seed and offset.
        call: the number of the draw since the generator was seeded.
        module: the kernel module; its `mask` makes the mask where the reference wants it.
    """

    __slots__ = ("call", "module", "p", "state")

    def __init__(self, p, state, call, module):
        self.p = p
        self.state = state
        self.call = call
        self.module = module

    @property
    def arguments(self):
        """(p, state, call), as the kernels take them."""
        return self.p, self.state, self.call


def dropout_mask(op, like, shape, p, fused=None):
    """A DropoutSeed, if op's kernel for like's device makes its own random bits and may be used; else a raw mask.

    The mask is 0 with probability p and 1 / (1 - p) otherwise, of the given shape and like's dtype.
    """
    module = op.kernels.allowed(like.device.type, fused)
    if not getattr(module, "draws", False):
        return bernoulli_mask(like, shape, p)
    return DropoutSeed(p, *generator_for(like.device).next_subsequence(), module)


def materialize(mask, shape, dtype):
    """The raw mask itself, of a NumPy dtype."""
    return (
        mask.module.mask(*mask.arguments, shape, dtype)
        if isinstance(mask, DropoutSeed)
        else mask.astype(dtype, copy=False)
    )


@op(name="dropout", dtype="same")
def dropout(xp, input, *, mask):
    """input * mask."""
    return input * materialize(mask, input.shape, np.dtype(getattr(input.dtype, "numpy", input.dtype)))


dropout.grad(
    input=lambda g, mask, shape, xp: (
        g * xp.asarray(materialize(mask, shape, np.dtype(getattr(g.dtype, "numpy", g.dtype))))
    )
)
dropout.register_kernel(cuda="mytorch.kernels.triton.dropout")
