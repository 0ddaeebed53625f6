"""Layers, losses and containers. This package exports the names in `__all__` of its modules."""

# ruff: noqa: F403, F405 - names are listed once, where they are defined; `__init__.pyi` lists them for type checkers

from .. import _extensions
from . import attention, common_types, functional, init, parallel, utils
from .activation import *
from .adaptive import *
from .containers import *
from .conv import *
from .dropout import *
from .embedding import *
from .layer import Docstring as _Docstring
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

# Spellings of older programs.
GeLU = GELU
SoftMax = Softmax
CrossEntropy = CrossEntropyLoss
Layernorm = LayerNorm

for _layer in [v for v in globals().values() if isinstance(v, type) and issubclass(v, Module)]:
    _layer.__doc__ = _Docstring(_layer.__doc__)  # type: ignore[assignment]

__all__ = [name for name in globals() if not name.startswith("_")]

# Loaded on first use, because they import mytorch.cuda and mytorch.distributed.
__getattr__, __dir__ = _extensions.lazy(__name__, "graphed grad", names={"nn.sync_batch_norm": "SyncBatchNorm"})
