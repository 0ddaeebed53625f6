"""Reading and writing files. Knows tensors, not layers: `nn` enters its classes of tensors in `TENSOR_CLASSES`."""

from .._tensor import Tensor

TENSOR_CLASSES: dict[str, type[Tensor]] = {}  # "parameter" and "buffer"
STORAGE_CLASSES: dict[str, type] = {}  # "typed" and "untyped", entered by compat/storage.py


def kind_of(tensor: Tensor) -> str | None:
    """The name in `TENSOR_CLASSES` of a tensor's class; None for a plain Tensor."""
    return next((kind for kind, cls in TENSOR_CLASSES.items() if isinstance(tensor, cls)), None)
