"""Reading and writing files."""

from .. import _extensions
from .._parameter import Buffer, Parameter
from .._tensor import Tensor

TENSOR_CLASSES: dict[str, type[Tensor]] = {"parameter": Parameter, "buffer": Buffer}
__getattr__, __dir__ = _extensions.lazy(__name__, "archive limits writing")


def kind_of(tensor: Tensor) -> str | None:
    """The name in `TENSOR_CLASSES` of a tensor's class; None for a plain Tensor."""
    return next((kind for kind, cls in TENSOR_CLASSES.items() if isinstance(tensor, cls)), None)
