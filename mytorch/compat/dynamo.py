"""Names of `torch._dynamo` that also have an effect in programs that run eagerly."""

from .overrides import TorchFunctionMode


class TransformGetItemToIndex(TorchFunctionMode):
    """A context in which `x[i]` accepts tensors as indices, also in a function that `vmap` runs. mytorch always accepts them."""
