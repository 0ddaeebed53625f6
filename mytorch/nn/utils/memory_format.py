"""Memory formats of convolution weights: PyTorch's names, which change nothing, as arrays have one layout here."""

from typing import Any

from ..module import Module


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """The module as it is: the layout of weights is no choice here."""
    return module


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """The module as it is: the layout of weights is no choice here."""
    return module
