"""Conversion of parameters to one vector, and back."""

from collections.abc import Iterable

from ...arrays.tensor import Tensor
from ...autograd.mode import no_grad
from ...ops.movement import cat


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Flattens and concatenates parameters.

    Example:
        >>> tuple(nn.utils.parameters_to_vector(nn.Linear(3, 2).parameters()).shape)
        (8,)

    See also: `nn.utils.vector_to_parameters`.
    """
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies the elements of a vector into parameters, in order.

    Args:
        vec: the vector.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> nn.utils.vector_to_parameters(mytorch.zeros(8), layer.parameters())
        >>> layer.bias.tolist()
        [0.0, 0.0]

    See also: `nn.utils.parameters_to_vector`.
    """
    start = 0
    with no_grad():
        for p in parameters:
            n = p.numel()
            p.data = vec.detach()[start : start + n].reshape(p.shape).clone()
            start += n
