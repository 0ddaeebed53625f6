"""Names at the top of `torch` that belong to its compiler, dispatcher or other devices, and what an eager library has for them."""

import builtins
import functools
import math

from .. import amp, cuda
from ..base import dtypes
from ..dispatch.unwrap import raw_of
from . import cpu, jit


def _check(cond, message=None):
    """Raise a RuntimeError with the message (a function that makes it) unless cond holds."""
    _check_with(RuntimeError, cond, message)


def _check_with(error_type, cond, message=None):
    """As `_check`, with another kind of error."""
    if not cond:
        raise error_type("Expected cond to be True, but got False." if message is None else str(message()))


_check_index, _check_value, _check_type, _check_not_implemented = (
    functools.partial(_check_with, error) for error in (IndexError, ValueError, TypeError, NotImplementedError)
)


def _check_is_size(i, message=None, *, max=None):
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type, cond, message=None):
    _check_with(error_type, bool(raw_of(cond).all()), message)


def _check_tensor_all(cond, message=None):
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert_async(input, assert_msg="Expected Tensor with single nonzero value, but got zero"):
    """Raise a RuntimeError if the only element is zero."""
    if not bool(input):
        raise RuntimeError(assert_msg)


def sym_not(a):
    """not a."""
    return not a


def sym_ite(b, t, f):
    """t if b else f."""
    return t if b else f


def sym_sum(args):
    """The sum of some numbers."""
    return builtins.sum(args)


sym_int, sym_float, sym_max, sym_min, sym_sqrt = builtins.int, builtins.float, builtins.max, builtins.min, math.sqrt


class _Symbolic:
    """A number that PyTorch's tracer does not know yet; sizes are plain ints here."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(f"torch.{cls.__name__} is for tracing; sizes are plain Python numbers in mytorch.")


SymInt, SymFloat, SymBool = (type(name, (_Symbolic,), {}) for name in ("SymInt", "SymFloat", "SymBool"))


class PyTorchFileReader:
    """PyTorch's reader of its own files, which `load` reads here."""


def is_autocast_cpu_enabled():
    """Whether autocast is on for the CPU."""
    return amp.is_autocast_enabled("cpu")


def get_autocast_cpu_dtype():
    """The dtype of autocast on the CPU."""
    return amp.get_autocast_dtype("cpu")


def get_autocast_gpu_dtype():
    """The dtype of autocast on GPUs."""
    return amp.get_autocast_dtype("cuda")


def get_device_module(device=None):
    """`mytorch.cuda`, or `mytorch.cpu`, for a device or its name."""
    kind = str(getattr(device, "type", device) or "cpu").partition(":")[0]
    return cuda if kind == "cuda" else cpu


def _softmax_backward_data(grad_output, output, dim, input_dtype):
    """The gradient of softmax from its result."""
    inner = grad_output * output
    return (inner - output * inner.sum(dim, keepdim=True)).to(input_dtype)


def _element_size(dtype):
    """Bytes of an element of a dtype."""
    return dtypes.as_dtype(dtype).itemsize


ScriptModule, ScriptFunction = jit.ScriptModule, jit.ScriptFunction
Stream, Event = cuda.Stream, cuda.Event
NAMES = {
    k: v for k, v in list(vars().items())
    if k not in ("NAMES", "builtins", "functools", "amp", "cuda", "dtypes", "raw_of", "jit", "_Symbolic", "_element_size")
    and not k.startswith("__")
}  # fmt: skip
