"""Parameters as one vector, and back."""

from ...graph.mode import no_grad
from ...ops.movement import cat


def parameters_to_vector(parameters):
    """All parameters, flattened and joined."""
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Copy the pieces of a vector into the parameters."""
    start = 0
    with no_grad():
        for p in parameters:
            n = p.numel()
            p.data = vec.detach()[start : start + n].reshape(p.shape).clone()
            start += n
