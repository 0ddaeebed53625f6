"""Layers: modules that hold parameters and call ops. A module's `__all__` says which of its names are found here."""

# ruff: noqa: F403, F405 - names are listed once, where they are defined; `__init__.pyi` lists them for type checkers

from .. import _extensions
from . import attention, common_types, functional, grad, graphed, init, parallel, utils
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

__all__ = [name for name in globals() if not name.startswith("_")]

__getattr__, __dir__ = _extensions.lazy(
    __name__, names={"nn.sync_batch_norm": "SyncBatchNorm"}
)  # which imports mytorch.distributed
