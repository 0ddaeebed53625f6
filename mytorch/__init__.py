"""mytorch: a PyTorch-compatible deep learning library over NumPy and CuPy.

`import mytorch` loads the core: tensors, dtypes, devices, operations on tensors, and backward. All other names are
imported when a program first uses them: the packages of `_MODULES`, the names of `_NAMES`, and the names of the
extension packages, which are listed in `_extensions.py`. Overview: docs/architecture.md.
"""

import sys
from math import e, inf, nan, pi

from . import _extensions, ops, random
from . import arrays as backend
from .arrays import device, dtypes, get_default_device, set_default_device
from .arrays.array import Array, Size
from .arrays.config import fused
from .arrays.dtypes import (
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
from .arrays.dtypes import bool_ as bool
from .arrays.dtypes import default_dtype as get_default_dtype
from .arrays.dtypes import float32 as float
from .arrays.dtypes import int32 as int
from .arrays.errors import OutOfMemoryError
from .arrays.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    legacy_contiguous_format,
    memory_format,
    preserve_format,
    strided,
)
from .arrays.printing import set_printoptions
from .arrays.tensor import Tensor
from .autograd import tensor_ns as _tensor_ns  # enables backward(create_graph=True)
from .autograd.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .kernels.threads import get_num_threads, set_num_threads
from .ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .version import __version__, banner

newaxis = None
ops.attach(globals())  # functions such as `mytorch.exp`, methods such as `Tensor.exp`
_extensions.install(Tensor, Array)

_MODULES = "accelerate amp autograd cuda distributed fft files func linalg nn optim special utils"
_NAMES = {
    "accelerate": "Accelerator",
    "amp": "GradScaler autocast get_autocast_dtype is_autocast_enabled",
    "func": "vmap",
    "ops.functional": """
        adaptive_avg_pool1d affine_grid avg_pool1d bilinear
        celu celu_ channel_shuffle constant_pad_nd conv1d conv2d conv3d conv_tbc
        conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity logsigmoid
        max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pairwise_distance pixel_shuffle
        pixel_unshuffle prelu relu_ rms_norm selu selu_ softplus threshold_""",
    "files.serialization": "load save serialization=",
}
__getattr__, __dir__ = _extensions.lazy(__name__, _MODULES, _NAMES)
