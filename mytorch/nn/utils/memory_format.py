"""Memory formats of convolution weights: PyTorch's names, which change nothing, as arrays have one layout here."""


def convert_conv2d_weight_memory_format(module, memory_format):
    """The module: the layout of its Conv2d weights is no choice here, as that of `channels_last` tensors is none."""
    return module


def convert_conv3d_weight_memory_format(module, memory_format):
    """The module: the layout of its Conv3d weights is no choice here, as that of `channels_last_3d` tensors is none."""
    return module
