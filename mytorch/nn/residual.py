"""A layer norm that also computes the preceding residual addition, for fused transformer blocks."""

from typing import Any

from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from .normalization import LayerNorm


class AddLayerNorm(LayerNorm):
    """Normalizes the sum of a residual stream and a branch, in one pass on a GPU.

    With autocast on a GPU, the norm has 16-bit precision, because the following linear layer would cast it anyway.

    Shape:
        Input: (*, normalized_shape), and optionally a branch of the same shape.
        Output: the same shape as the input. With a branch, a tuple of two tensors of this shape.

    Example:
        >>> total, normed = mytorch.nn.residual.AddLayerNorm(2)(tensor([[1.0, 2.0]]), tensor([[2.0, -2.0]]))
        >>> total.tolist(), normed.round().tolist()
        ([[3.0, 0.0]], [[1.0, -1.0]])

    See also: `nn.functional.add_layer_norm`, `nn.LayerNorm`.
    """

    def forward(self, x: Tensor, branch: Tensor | None = None) -> Any:  # type: ignore[override]
        """Returns the norm of `x`. With a branch, returns the tuple (x + branch, norm of the sum).

        Args:
            x: the residual stream.
            branch: tensor to add to `x` first.
        """
        policy = get_mode().autocast
        casts = policy is not None and x.device.type == policy.device_type == "cuda" and x.dtype.itemsize <= 4
        dtype = policy.dtype if casts else None
        return super().forward(x, dtype=dtype) if branch is None else super().forward(branch, x, dtype=dtype)
