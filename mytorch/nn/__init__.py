"""Layers: modules that hold parameters and call ops. A layer's module says in its `__all__` what is found here."""

# ruff: noqa: F403, F405 - that is the point

from . import (
    activation,
    adaptive,
    attention,
    common_types,
    containers,
    conv,
    dropout,
    embedding,
    functional,
    grad,
    init,
    lazy,
    linear,
    linear_cross_entropy,
    loss,
    module,
    normalization,
    padding,
    parallel,
    parameter,
    pool,
    rnn,
    transformer,
    utils,
    vision,
)
from .activation import *
from .adaptive import *
from .containers import *
from .conv import *
from .dropout import *
from .embedding import *
from .lazy import *
from .linear import *
from .linear_cross_entropy import *
from .loss import *
from .module import *
from .normalization import *
from .padding import *
from .parallel import DataParallel
from .parameter import *
from .pool import *
from .rnn import *
from .transformer import *
from .vision import *

# The older texts' spellings.
GeLU = GELU
SoftMax = Softmax
CrossEntropy = CrossEntropyLoss
Layernorm = LayerNorm

__all__ = ["CrossEntropy", "DataParallel", "GeLU", "Layernorm", "SoftMax"]
__all__ += ["attention", "common_types", "functional", "grad", "init", "parallel", "utils"]
__all__ += activation.__all__
__all__ += adaptive.__all__
__all__ += containers.__all__
__all__ += conv.__all__
__all__ += dropout.__all__
__all__ += embedding.__all__
__all__ += lazy.__all__
__all__ += linear.__all__
__all__ += linear_cross_entropy.__all__
__all__ += loss.__all__
__all__ += module.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += parameter.__all__
__all__ += pool.__all__
__all__ += rnn.__all__
__all__ += transformer.__all__
__all__ += vision.__all__
