"""mytorch: a PyTorch-compatible deep learning library over NumPy and CuPy.

Importing it needs NumPy and ml_dtypes, nothing else. Where things are: docs/architecture.md.
"""

import sys

from . import config

config.share_cores()  # before NumPy is loaded

from . import autograd, backend, dtypes, ops, random
from ._array import Array, Size
from .autograd import enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled
from .backend import device, set_default_device
from .config import fused
from .dtypes import (
    bfloat16,
    can_cast,
    cdouble,
    cfloat,
    complex64,
    complex128,
    double,
    dtype,
    finfo,
    float16,
    float32,
    float64,
    half,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    set_default_dtype,
    short,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .dtypes import bool_ as bool
from .dtypes import default_dtype as get_default_dtype
from .dtypes import float32 as float
from .dtypes import int32 as int
from .ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .tensor import Tensor

ops.attach(globals())

from . import cuda, fft, jit, linalg, nn, optim, utils
from .compat import install, install_as_torch
from .cuda.graphs import compile_step
from .optim import foreach as _foreach
from .optim import lr_scheduler
from .printing import set_printoptions

__version__ = "0.1.0"
install(globals())
del install
globals().update(_foreach.FUNCTIONS)
sys.modules[f"{__name__}.lr_scheduler"] = lr_scheduler

# What few programs use is imported when it is first asked for: name -> its module.
_LAZY = {
    "accelerate": "accelerate",
    "amp": "amp",
    "distributions": "distributions",
    "func": "func",
    "distributed": "distributed",
    "models": "models",
    "profiler": "profiler",
    "serialization": "serialization",
    "vision": "vision",
    "Accelerator": "accelerate",
    "GradScaler": "amp",
    "autocast": "amp",
    "get_autocast_dtype": "amp",
    "is_autocast_enabled": "amp",
    "load": "serialization",
    "save": "serialization",
    "vmap": "func",
}


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module 'mytorch' has no attribute '{name}'")
    from importlib import import_module

    module = import_module(f"mytorch.{_LAZY[name]}")
    value = module if name == _LAZY[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_LAZY})
