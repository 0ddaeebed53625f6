"""Layers: modules that hold parameters and call ops."""

from . import functional, init, utils
from .activation import GELU, ReLU, Sigmoid, Softmax, Tanh
from .containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .dropout import Dropout
from .embedding import Embedding
from .linear import Bilinear, Flatten, Identity, Linear, Unflatten
from .loss import CrossEntropyLoss
from .module import Module
from .normalization import LayerNorm, RMSNorm
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

# The older texts' spellings.
GeLU = GELU
SoftMax = Softmax
CrossEntropy = CrossEntropyLoss
Layernorm = LayerNorm

__all__ = [
    "GELU",
    "Bilinear",
    "Buffer",
    "CrossEntropy",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GeLU",
    "Identity",
    "LayerNorm",
    "Layernorm",
    "Linear",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "SoftMax",
    "Softmax",
    "Tanh",
    "Unflatten",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "init",
    "utils",
]
