"""mytorch: a PyTorch-compatible deep learning library over NumPy and CuPy.

Importing it needs NumPy and ml_dtypes, nothing else. Where things are: docs/architecture.md.
"""

import sys

from .base import config

config.share_cores()  # before NumPy is loaded

from . import autograd, backend, ops, random
from ._array import Array, Size
from ._tensor import Face as Tensor
from .autograd import enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled
from .backend import device, get_default_device, set_default_device
from .base import dtypes
from .base.config import fused
from .base.dtypes import (
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
from .base.dtypes import bool_ as bool
from .base.dtypes import default_dtype as get_default_dtype
from .base.dtypes import float32 as float
from .base.dtypes import int32 as int
from .ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

ops.attach(globals())

from . import cuda, fft, linalg, nn, optim, special, utils
from ._tensor_str import set_printoptions
from .compat import install, install_as_torch, install_paths
from .cuda.graphs import compile_step
from .ops import foreach
from .version import __version__, banner

install(globals())
globals().update(foreach.FUNCTIONS)
del install, foreach

# What few programs use is imported at first access: name -> its module.
_LAZY = {
    "accelerate": "accelerate",
    "amp": "amp",
    "distributions": "distributions",
    "func": "func",
    "distributed": "distributed",
    "models": "models",
    "profiler": "profiler",
    "quasirandom": "quasirandom",
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


install_paths()
del install_paths
