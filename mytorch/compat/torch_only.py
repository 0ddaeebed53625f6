"""Names at the top of `torch` for its compiler, dispatcher or other devices, with equivalents for an eager library."""

import builtins
import functools
import math

from .. import amp, cuda
from ..arrays import dtypes
from ..arrays.overridable import overridable
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..ops.creation import arange
from ..ops.dispatch.unwrap import raw_of
from ..ops.movement import stack
from ..ops.normalization import normalized
from ..ops.padding import pad
from ..ops.random import standard_gamma
from . import cpu
from .futures import Future  # noqa: F401 (`torch.Future`)


def _check(cond, message=None):
    """Raise a RuntimeError with the message, or the result of a function, unless cond is True."""
    _check_with(RuntimeError, cond, message)


def _check_with(error_type, cond, message=None):
    """Raise an error of the given type unless cond is True; see `_check`."""
    if not isinstance(cond, builtins.bool):
        advice = ". For tensor conditions, use torch._check_tensor_all() to assert that all elements are true."
        given = f"a Tensor{advice}" if isinstance(cond, Tensor) else str(type(cond))
        raise TypeError(f"cond must be a bool, but got {given}")
    if not cond:
        if message is not None and not callable(message):
            raise TypeError("message must be a callable")
        raise error_type("Expected cond to be True, but got False." if message is None else str(message()))


_check_index, _check_value, _check_type, _check_not_implemented = (
    functools.partial(_check_with, error) for error in (IndexError, ValueError, TypeError, NotImplementedError)
)


def _check_is_size(i, message=None, *, max=None):
    _check(bool(i >= 0) and (max is None or i <= max), message)


@overridable
def _assert(condition, message):
    """Raise an AssertionError with the message unless the condition is True."""
    if not condition:
        raise AssertionError(message)


def _weight_norm(v, g, dim=0):
    """Return g * v / |v|, with one norm for each index of a dimension, or one norm in total for dim=-1."""
    return normalized(v, g, dim)


def _check_tensor_all_with(error_type, cond, message=None):
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    _check_with(error_type, bool(raw_of(cond).all()), message)


def _check_tensor_all(cond, message=None):
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert_async(input, assert_msg="Expected Tensor with single nonzero value, but got zero"):
    """Raise a RuntimeError if the only element is zero."""
    if not bool(input):
        raise RuntimeError(assert_msg)


def sym_not(a):
    """Returns not a."""
    return not a


def sym_ite(b, t, f):
    """Returns t if b else f."""
    return t if b else f


def sym_sum(args):
    """Returns the sum of numbers."""
    return builtins.sum(args)


sym_int, sym_float, sym_max, sym_min, sym_sqrt = builtins.int, builtins.float, builtins.max, builtins.min, math.sqrt


class _Symbolic:
    """PyTorch's symbolic number for tracing; sizes are plain ints here."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(
            f"torch.{cls.__name__}: mytorch has no symbolic numbers, because the sizes of tensors are ints. Use "
            "mytorch.fx to trace, and export.Dim for sizes that vary."
        )


SymInt, SymFloat, SymBool = (type(name, (_Symbolic,), {}) for name in ("SymInt", "SymFloat", "SymBool"))


def _convert_indices_from_coo_to_csr(input, size, *, out_int32=False):
    """Returns the row pointers (size + 1,) of sorted row indices."""
    counts = input.to(dtypes.int64).bincount(minlength=size).cumsum(0)
    result = pad(counts, (1, 0))
    return result.to(dtypes.int32 if out_int32 else dtypes.int64)


def _convert_indices_from_csr_to_coo(crow_indices, col_indices, *, out_int32=False, transpose=False):
    """Returns the row and column indices (2, n) of row pointers; with `transpose`, the columns are first."""
    counts = crow_indices.to(dtypes.int64).diff()
    rows = arange(counts.shape[0], device=counts.device).repeat_interleave(counts)
    columns = col_indices.to(dtypes.int64)
    result = stack([columns, rows] if transpose else [rows, columns])
    return result.to(dtypes.int32 if out_int32 else dtypes.int64)


class PyTorchFileReader:
    """PyTorch's file reader; use `load` instead."""


def is_autocast_cpu_enabled():
    """Returns True if autocast is enabled on the CPU."""
    return amp.is_autocast_enabled("cpu")


def get_autocast_cpu_dtype():
    """Returns the autocast dtype on the CPU."""
    return amp.get_autocast_dtype("cpu")


def get_autocast_gpu_dtype():
    """Returns the autocast dtype on GPUs."""
    return amp.get_autocast_dtype("cuda")


def clear_autocast_cache():
    """Deletes the casts of parameters that the current `autocast` block has stored."""
    policy = get_mode().autocast
    if policy is not None and policy.cache is not None:
        policy.cache.clear()


def get_device_module(device=None):
    """Returns `mytorch.cuda` or `mytorch.cpu` for a device or its name."""
    kind = str(getattr(device, "type", device) or "cpu").partition(":")[0]
    return cuda if kind == "cuda" else cpu


def _softmax_backward_data(grad_output, output, dim, input_dtype):
    """Compute the gradient of softmax from its result."""
    inner = grad_output * output
    return (inner - output * inner.sum(dim, keepdim=True)).to(input_dtype)


def _element_size(dtype):
    """Return the number of bytes per element of a dtype."""
    return dtypes.as_dtype(dtype).itemsize


def _sample_dirichlet(input, generator=None):
    """Draws from Dirichlet distributions with the given concentrations, without gradients."""
    gammas = Tensor._wrap(standard_gamma(input.detach().to(dtypes.float64), generator))
    gammas = gammas.clamp(min=1e-307)  # those of tiny concentrations are all zero
    return (gammas / gammas.sum(-1, keepdim=True)).to(input.dtype)


Stream, Event = cuda.Stream, cuda.Event
NAMES = {
    k: v for k, v in list(vars().items())
    if k not in ("NAMES", "builtins", "functools", "amp", "cuda", "dtypes", "raw_of", "normalized", "overridable", "pad", "get_mode", "arange", "stack", "standard_gamma", "Tensor", "_Symbolic", "_element_size")
    and not k.startswith("__")
}  # fmt: skip
TORCH_NAMES = {"mytorch": NAMES}
