"""Memory formats of convolution weights."""

from typing import Any

from ..conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..module import Module


def _convert(module, memory_format, classes):
    for layer in module.modules():
        if isinstance(layer, classes):
            weight = layer.weight.detach()
            layer.weight.data = weight.clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Converts the weights of all Conv2d and ConvTranspose2d layers of a module to a memory format, in place.

    Args:
        memory_format: `mytorch.channels_last` or `mytorch.contiguous_format`.

    Returns:
        The module.

    Example:
        >>> layer = nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(4, 8, 3), mytorch.channels_last)
        >>> layer.weight.stride()
        (36, 1, 12, 4)
    """
    return _convert(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Converts the weights of all Conv3d and ConvTranspose3d layers of a module to a memory format, in place.

    Args:
        memory_format: `mytorch.channels_last_3d` or `mytorch.contiguous_format`.

    Returns:
        The module.
    """
    return _convert(module, memory_format, (Conv3d, ConvTranspose3d))
