"""What a transformer's block can join: its addition and the norm that follows it, the layers of its MLP."""

from .._tensor import Tensor
from ..engine.mode import get_mode
from . import functional as F
from .activation import GELU
from .linear import Linear
from .module import Module, is_plain
from .normalization import LayerNorm


class AddLayerNorm(LayerNorm):
    """(x + branch, the layer norm of that sum), in one pass on a GPU; see `F.add_layer_norm`.

    Blocks that end with `x + branch` and begin with a norm hand on x and branch instead, and let this add them.
    Under a GPU's autocast the norm comes in half precision, as the linear layer that follows would cast it.

    Example:
        >>> total, normed = mytorch.nn.residual.AddLayerNorm(2)(tensor([[1.0, 2.0]]), tensor([[2.0, -2.0]]))
        >>> total.tolist(), normed.round().tolist()
        ([[3.0, 0.0]], [[1.0, -1.0]])
    """

    def forward(  # type: ignore[override]
        self, x: Tensor, branch: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The sum and its norm; (x, its norm) where there is nothing to add."""
        policy = get_mode().autocast
        casts = policy is not None and x.device.type == policy.device_type == "cuda" and x.dtype.itemsize <= 4
        dtype = policy.dtype if casts else None
        return (x, super().forward(x, dtype=dtype)) if branch is None else super().forward(branch, x, dtype=dtype)


def mlp(x: Tensor, first: Module, gelu: Module, last: Module) -> Tensor:
    """last(gelu(first(x))); on a GPU by `F.gelu_mlp`, where calling Linear, GELU and Linear does no more than they say."""
    plain = all(map(is_plain, (first, gelu, last), (Linear, GELU, Linear)))
    if x.device.type == "cpu" or not plain:
        return last(gelu(first(x)))
    weights = first.weight, last.weight, first.bias, last.bias
    return F.gelu_mlp(x, *weights, approximate=gelu.approximate, fused=first.fused)
