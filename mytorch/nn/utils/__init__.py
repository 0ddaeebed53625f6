"""Utilities for modules and parameters: clipping, parametrization, normalization, pruning, packed sequences.

Names are imported on first use, except functions with the name of their file, which would otherwise be the file after its import.
"""

from ... import _extensions
from .spectral_norm import remove_spectral_norm, spectral_norm
from .weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm", "parameters_to_vector",
    "parametrizations", "parametrize", "prune", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init",
    "spectral_norm", "stateless", "vector_to_parameters", "weight_norm",
]  # fmt: skip

__getattr__, __dir__ = _extensions.lazy(
    __name__,
    "clip fusion init memory_format parametrizations parametrize prune rnn stateless",
    {
        "nn.utils.clip": "clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ get_total_norm",
        "nn.utils.fusion": "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights",
        "nn.utils.init": "skip_init",
        "nn.utils.vectors": "parameters_to_vector vector_to_parameters",
    },
)
