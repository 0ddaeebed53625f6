"""Names of `torch` that are neither ops nor layers: settings, windows, typed constructors, aliases.

`install(namespace)` puts them into the `mytorch` module; `install_as_torch()` lets `import torch` find mytorch.
"""

import math
import sys
import types

import numpy as np

from . import dtypes, functional, jit
from .kernels import threads
from .nn import functional as F
from .ops import METHODS, PUBLIC
from .ops.creation import as_tensor, empty, from_numpy, linspace
from .ops.special import special_functions
from .tensor import Tensor

contiguous_format, preserve_format = "contiguous_format", "preserve_format"
channels_last, channels_last_3d = "channels_last", "channels_last_3d"
strided = "strided"
_matmul_precision = ["highest"]
_deterministic = [True]


def get_default_device():
    """The device of tensors that are created without naming one."""
    from . import backend

    return backend._default_device


def set_default_tensor_type(t):
    """Set the default dtype by a type such as `mytorch.DoubleTensor`."""
    dtypes.set_default_dtype(t if isinstance(t, dtypes.dtype) else t.own_dtype)


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Accepted: CPU results do not vary from run to run."""
    _deterministic[0] = bool(mode)


def are_deterministic_algorithms_enabled():
    """What `use_deterministic_algorithms` was last told."""
    return _deterministic[0]


def set_float32_matmul_precision(precision):
    """Accepted: "highest", "high" or "medium"; CPU products are in full float32."""
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"set_float32_matmul_precision: expected 'highest', 'high' or 'medium', got {precision!r}.")
    _matmul_precision[0] = precision


def get_float32_matmul_precision():
    """What was last set."""
    return _matmul_precision[0]


def broadcast_shapes(*shapes):
    """The shape that tensors of the given shapes broadcast to."""
    from ._array import Size

    try:
        return Size(np.broadcast_shapes(*[(s,) if isinstance(s, int) else tuple(s) for s in shapes]))
    except ValueError:
        raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {list(shapes)}") from None


def typename(obj):
    """The full name of an object's type."""
    return obj.type() if isinstance(obj, Tensor) else f"{type(obj).__module__}.{type(obj).__qualname__}"


def is_storage(obj):
    """False: memory has no object of its own here."""
    return False


def result_type(tensor1, tensor2):
    """The dtype of an operation on two tensors or numbers."""
    ranks = ([], [], [])
    for t in (tensor1, tensor2):
        if hasattr(t, "dtype") and hasattr(t, "ndim"):
            ranks[0 if t.ndim else 1].append(dtypes.as_dtype(t.dtype))
        else:
            ranks[2].append(dtypes.of_number(t))
    return dtypes.result_type(*ranks)


def logspace(start, end, steps, base=10.0, *, dtype=None, device=None, requires_grad=False):
    """base to the powers of `steps` evenly spaced numbers from start to end."""
    out = (base ** linspace(start, end, steps, dtype=dtypes.float64)).to(dtype or dtypes.default_dtype())
    return out.requires_grad_() if requires_grad else out


def range(start=0, end=None, step=1, **options):
    """The numbers from start to end, end included, as floats."""
    start, end = (0, start) if end is None else (start, end)
    n = math.floor((end - start) / step) + 1
    return linspace(start, start + step * (n - 1), n, **options)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A tensor over a buffer's memory."""
    out = Tensor._wrap(np.frombuffer(buffer, dtypes.as_numpy(dtype), count, offset))
    return out.requires_grad_() if requires_grad else out


def empty_strided(size, stride, *, dtype=None, device=None, requires_grad=False):
    """An uninitialised tensor of a size and strides (in elements)."""
    length = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    return empty(length, dtype=dtype, device=device, requires_grad=requires_grad).as_strided(size, stride)


def from_dlpack(ext_tensor):
    """A tensor over the memory of any object that speaks DLPack."""
    if hasattr(ext_tensor, "__dlpack_device__") and ext_tensor.__dlpack_device__()[0] == 2:
        from .backend import cupy_ns

        return Tensor._wrap(cupy_ns().from_dlpack(ext_tensor))
    return Tensor._wrap(np.from_dlpack(ext_tensor))


def _window(name, make):
    def window(window_length, periodic=True, *args, dtype=None, device=None, requires_grad=False):
        n = window_length + 1 if periodic and window_length > 1 else window_length
        raw = make(n, *args)[:window_length].astype(dtypes.as_numpy(dtype or dtypes.default_dtype()))
        return from_numpy(np.ascontiguousarray(raw))

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"The {name.replace('_', ' ')}."
    return window


hann_window, hamming_window = _window("hann_window", np.hanning), _window("hamming_window", np.hamming)
blackman_window, bartlett_window = _window("blackman_window", np.blackman), _window("bartlett_window", np.bartlett)


class _Typed:
    """A constructor such as FloatTensor: sizes, or data, as one dtype."""

    def __init__(self, name, own_dtype):
        self.name = name
        self.own_dtype = own_dtype

    def __call__(self, *args):
        if args and not isinstance(args[0], int):
            return as_tensor(args[0], dtype=self.own_dtype, copy=True)
        return empty(*(args or (0,)), dtype=self.own_dtype)

    def __repr__(self):
        return f"<type 'mytorch.{self.name}'>"

    def __instancecheck__(self, obj):
        return isinstance(obj, Tensor) and obj.dtype is self.own_dtype


_TYPES = {
    "Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16, "Long": dtypes.int64,
    "Int": dtypes.int32, "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8, "Bool": dtypes.bool_,
}  # fmt: skip

_FROM_FUNCTIONAL = (
    "adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear binary_cross_entropy_with_logits celu "
    "channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity "
    "ctc_loss dropout embedding group_norm hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss max_pool1d "
    "max_pool2d max_pool3d pairwise_distance pixel_shuffle pixel_unshuffle poisson_nll_loss prelu rms_norm rrelu selu "
    "triplet_margin_loss hardshrink threshold"
).split()



def _module(name, contents, doc):
    module = types.ModuleType(f"mytorch.{name}", doc)
    module.__dict__.update(contents)
    sys.modules[f"mytorch.{name}"] = module
    return module


def install(namespace):
    """Put the names of this module, and aliases of ops and functions, into `namespace`."""
    own = {k: v for k, v in globals().items() if not k.startswith("_") and getattr(v, "__module__", __name__) == __name__}
    for skip in ("install", "install_as_torch"):
        own.pop(skip)
    names = {k: v for k, v in own.items() if callable(v) or isinstance(v, str)}
    names.update({f"{k}Tensor": _Typed(f"{k}Tensor", d) for k, d in _TYPES.items()})
    names.update({k: getattr(F, k) for k in _FROM_FUNCTIONAL})
    names.update(functional.FUNCTIONS)
    for k, v in functional.METHODS.items():
        setattr(Tensor, k, v)
    names.update(
        compile=jit.compile, detach=lambda input: input.detach(), get_num_threads=threads.get_num_threads,
        set_num_threads=threads.set_num_threads, get_device=METHODS["get_device"], fill=lambda input, value: input.clone().fill_(value),
        detach_=lambda input: input.detach_(), zero_=METHODS["zero_"],
    )  # fmt: skip
    for k in PUBLIC:  # torch.exp_(x) and its kin
        if k in METHODS and k + "_" in METHODS:
            names.setdefault(k + "_", METHODS[k + "_"])
    for k, v in names.items():
        namespace.setdefault(k, v)
    namespace["special"] = _module("special", special_functions(), "Special functions, with `torch.special`'s names.")
    for k, v in (("inf", math.inf), ("nan", math.nan), ("pi", math.pi), ("e", math.e), ("newaxis", None)):
        namespace.setdefault(k, v)
    state = types.SimpleNamespace
    namespace["backends"] = _module(
        "backends",
        {
            "cudnn": state(benchmark=False, deterministic=True, enabled=False, allow_tf32=False, is_available=lambda: False),
            "cuda": state(matmul=state(allow_tf32=False), is_built=lambda: False),
            "mps": state(is_available=lambda: False, is_built=lambda: False),
            "mkldnn": state(enabled=False, is_available=lambda: False),
        },
        "Settings of PyTorch's backends, accepted; this library has none of them.",
    )
    namespace["version"] = _module("version", {"cuda": None, "__version__": namespace["__version__"]}, "Versions.")


def install_as_torch():
    """Let `import torch`, and its submodules, find mytorch in this process, for programs that are not to be changed.

    Raises:
        RuntimeError: PyTorch was imported already.
    """
    import importlib

    mine = sys.modules["mytorch"]
    if sys.modules.get("torch", mine) is not mine:
        raise RuntimeError("install_as_torch: torch was imported already; call this before.")
    for name in ("amp", "distributions", "serialization", "cuda", "jit", "autograd.function", "autograd.functional", "utils.checkpoint", "nn.utils.rnn", "optim.lr_scheduler"):
        importlib.import_module(f"mytorch.{name}")
    for name, module in list(sys.modules.items()):
        if name == "mytorch" or name.startswith("mytorch."):
            sys.modules["torch" + name[len("mytorch") :]] = module


