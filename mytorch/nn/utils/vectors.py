"""Parameters as one vector, and back."""

from collections.abc import Iterable

from ..._tensor import Tensor
from ...engine.mode import no_grad
from ...ops.movement import cat


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, flattened and joined.

    Example:
        >>> tuple(nn.utils.parameters_to_vector(nn.Linear(3, 2).parameters()).shape)
        (8,)
    """
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy a vector into the parameters, one after the other."""
    start = 0
    with no_grad():
        for p in parameters:
            n = p.numel()
            p.data = vec.detach()[start : start + n].reshape(p.shape).clone()
            start += n
