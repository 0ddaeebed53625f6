"""Dropout with a stored random mask, or with a `DropoutSeed` for a kernel.

On the CPU a mask is an array. On a GPU a kernel needs only (seed, offset), which are stored in device memory, and the
number of the draw. Forward and backward generate the same bits from them, so no mask is stored. A captured training
step draws new numbers at each replay after `Generator.advance` raises the offset.
"""

from typing import Any, NamedTuple

import numpy as np

from ..arrays.memory_format import iterator
from ..kernels.registry import device_type
from .dispatch.op import op
from .dispatch.unwrap import raw_of
from .random import bernoulli_mask, generator_for


class DropoutSeed(NamedTuple):
    """Describes the dropout mask of one call, which kernels generate themselves.

    Attributes:
        p: probability that an element is dropped.
        state: int64 (2,) in device memory: seed and offset.
        call: number of the draw since the generator was seeded.
        module: the kernel module. Its function `mask` makes the mask for the reference implementation.
    """

    p: float
    state: Any
    call: int
    module: Any

    @property
    def arguments(self):
        """Returns (p, state, call), the arguments of the kernels."""
        return self.p, self.state, self.call


def dropout_mask(op, like, shape, p, fused=None):
    """Returns a DropoutSeed if the op's kernel generates its own random bits and may be used; otherwise a raw mask.

    The mask is 0 with probability p and 1 / (1 - p) otherwise. It has the given shape (None: the shape and order in memory of `like`) and
    the dtype of `like`.
    """
    module = op.kernels.allowed(device_type(raw_of(like)), fused)
    if not getattr(module, "draws", False):
        return bernoulli_mask(like, shape, p)
    return DropoutSeed(p, *generator_for(like.device).next_subsequence(), module)


def materialize(mask, shape, dtype):
    """Returns the mask as a raw array of a NumPy dtype."""
    return (
        mask.module.mask(*mask.arguments, shape, dtype)
        if isinstance(mask, DropoutSeed)
        else mask.astype(dtype, copy=False)
    )


@op(name="dropout", dtype="same", layout=iterator)
def dropout(xp, input, *, mask):
    """Computes input * mask."""
    return input * materialize(mask, input.shape, np.dtype(getattr(input.dtype, "numpy", input.dtype)))


dropout.grad(
    input=lambda g, mask, shape, xp: (
        g * xp.asarray(materialize(mask, shape, np.dtype(getattr(g.dtype, "numpy", g.dtype))))
    )
)
dropout.register_kernel(cuda="mytorch.kernels.triton.dropout")
