"""A layer norm that also computes the residual addition before it, for fused transformer blocks."""

from typing import Any

from .._tensor import Tensor
from ..engine.mode import get_mode
from .normalization import LayerNorm


class AddLayerNorm(LayerNorm):
    """LayerNorm whose second argument is added to the input first, in one pass on a GPU; see `F.add_layer_norm`.

    Under a GPU's autocast the norm has half precision, because the linear layer that follows would cast it.

    Example:
        >>> total, normed = mytorch.nn.residual.AddLayerNorm(2)(tensor([[1.0, 2.0]]), tensor([[2.0, -2.0]]))
        >>> total.tolist(), normed.round().tolist()
        ([[3.0, 0.0]], [[1.0, -1.0]])
    """

    def forward(self, x: Tensor, branch: Tensor | None = None) -> Any:  # type: ignore[override]
        """Returns the norm of `x`; with a branch `(x + branch, the norm of the sum)`."""
        policy = get_mode().autocast
        casts = policy is not None and x.device.type == policy.device_type == "cuda" and x.dtype.itemsize <= 4
        dtype = policy.dtype if casts else None
        return super().forward(x, dtype=dtype) if branch is None else super().forward(branch, x, dtype=dtype)
