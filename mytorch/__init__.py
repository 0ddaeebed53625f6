"""mytorch: a PyTorch-compatible deep learning library over NumPy and CuPy.

`import mytorch` loads the core: tensors, dtypes, devices, operations on tensors, and backward. All other names are
imported when a program first uses them: the packages of `_MODULES`, the names of `_NAMES`, and the names of the
extension packages, which are listed in `_extensions.py`. Overview: docs/architecture.md.
"""

import sys

from .base import config

config.share_cores()  # before NumPy is loaded

from math import e, inf, nan, pi

from . import _extensions, backend, ops, random
from ._array import Array, Size
from ._tensor import Tensor
from ._tensor_str import set_printoptions
from .backend import device, get_default_device, set_default_device
from .backend.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    legacy_contiguous_format,
    memory_format,
    preserve_format,
    strided,
)
from .base import dtypes
from .base.config import fused
from .base.dtypes import (
    bfloat16,
    can_cast,
    cdouble,
    cfloat,
    complex32,
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
from .base.errors import OutOfMemoryError
from .engine.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .kernels.threads import get_num_threads, set_num_threads
from .ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .transforms import tensor_ns as _tensor_ns  # enables backward(create_graph=True)
from .version import __version__, banner

newaxis = None
ops.attach(globals())  # functions such as `mytorch.exp`, methods such as `Tensor.exp`
_extensions.install(Tensor, Array)

_MODULES = "accelerate amp autograd cuda distributed fft files func linalg nn optim serialization special utils"
_NAMES = {
    "accelerate": "Accelerator",
    "amp": "GradScaler autocast get_autocast_dtype is_autocast_enabled",
    "func": "vmap",
    "nn.functional": """
        adaptive_avg_pool1d adaptive_max_pool1d affine_grid alpha_dropout avg_pool1d batch_norm bilinear
        celu celu_ channel_shuffle constant_pad_nd conv1d conv2d conv3d conv_tbc
        conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity dropout
        embedding feature_alpha_dropout group_norm instance_norm layer_norm logsigmoid
        max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pairwise_distance pixel_shuffle
        pixel_unshuffle prelu relu_ rms_norm rrelu rrelu_ selu selu_ softplus threshold_""",
    "serialization": "load save",
}
__getattr__, __dir__ = _extensions.lazy(__name__, _MODULES, _NAMES)
