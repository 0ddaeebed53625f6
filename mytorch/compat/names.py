"""Names of `torch` that are not in the core: settings, windows, constructors, aliases. `TORCH_NAMES` lists them."""

import builtins
import math
import sys
from functools import partial

import numpy as np

from ..arrays import config, dlpack, dtypes, errors
from ..arrays.array import Size
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..ops import METHODS, PUBLIC
from ..ops.creation import check_layout, empty, finish, from_numpy, full, linspace, ones_like, zeros_like
from ..ops.dispatch.bind import public_names
from ..ops.dispatch.out import takes_out
from ..ops.dispatch.unwrap import raw_of
from ..ops.random import bernoulli_mask

_warn_always = [False]


def set_default_tensor_type(t):
    """Sets the default dtype by a type such as `mytorch.DoubleTensor`, or its name."""
    errors.warn(
        "set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives."
    )
    if isinstance(t, str) and t.endswith("Tensor"):
        t = getattr(sys.modules["mytorch"], t.rpartition(".")[2])
    dtypes.set_default_dtype(t if isinstance(t, dtypes.dtype) else t.own_dtype)


def set_float32_matmul_precision(precision):
    """Sets the precision of float32 matrix multiplications on a GPU. On the CPU it is always float32.

    Args:
        precision: "highest" (float32), or "high" or "medium" (TF32, a 10-bit mantissa, which is much faster).
    """
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"set_float32_matmul_precision: expected 'highest', 'high' or 'medium', got {precision!r}.")
    config.float32_matmul_precision = precision


def get_float32_matmul_precision():
    """Returns the precision of `set_float32_matmul_precision`."""
    return config.float32_matmul_precision


def broadcast_shapes(*shapes):
    """Returns the broadcast shape of several shapes.

    Example:
        >>> mytorch.broadcast_shapes((2, 1), (3,))
        mytorch.Size([2, 3])
    """
    try:
        return Size(np.broadcast_shapes(*[(s,) if isinstance(s, int) else tuple(s) for s in shapes]))
    except ValueError:
        raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {list(shapes)}") from None


def typename(obj):
    """Returns the full name of a class or a function, or of the type of any other object."""
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    return f"{named.__module__}.{named.__qualname__}".removeprefix("builtins.")


def result_type(tensor1, tensor2):
    """Returns the dtype of an operation on two tensors or numbers.

    Example:
        >>> mytorch.result_type(tensor([1]), 2.5)
        mytorch.float32
    """
    ranks = ([], [], [])
    for t in (tensor1, tensor2):
        if hasattr(t, "dtype") and hasattr(t, "ndim"):
            ranks[0 if t.ndim else 1].append(dtypes.as_dtype(t.dtype))
        else:
            ranks[2].append(dtypes.of_number(t))
    return dtypes.result_type(*ranks)


def logspace(
    start,
    end,
    steps,
    base=10.0,
    *,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
):
    """Returns a vector with base raised to `steps` evenly spaced exponents from start to end.

    Args:
        start: first exponent.
        end: last exponent.
        steps: number of elements.
        base: base of the powers.
        out: tensor for the result.
        dtype: see `mytorch.tensor`.
        device: see `mytorch.tensor`.
        requires_grad: see `mytorch.tensor`.
    """
    check_layout(layout)
    ends = linspace(
        start, end, 2, dtype=dtype if out is None else out.dtype
    )  # in the dtype of the result, as in PyTorch
    exponents = linspace(
        *(ends if steps > 1 else (start, end)),
        steps,
        dtype=dtypes.complex128 if ends.dtype.is_complex else dtypes.float64,
    )
    found = raw_of((base**exponents).to(ends.dtype).to(device=device))
    return finish(found, requires_grad, out, pin_memory)


def scalar_tensor(s, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """Returns a 0-d tensor of a number, in the default dtype without `dtype`.

    Args:
        s: the number.
        dtype: see `mytorch.tensor`.
        layout: must be strided.
        device: see `mytorch.tensor`.
        pin_memory: see `mytorch.tensor`.
        requires_grad: see `mytorch.tensor`.
    """
    options = {"layout": layout, "device": device, "requires_grad": requires_grad, "pin_memory": pin_memory}
    return full((), s, dtype=dtype or dtypes.default_dtype(), **options)


def empty_permuted(
    size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """Returns an uninitialized tensor with a given order of the axes in memory.

    Args:
        size: shape of the result.
        physical_layout: axes from the outermost to the innermost in memory.
        dtype: see `mytorch.tensor`.
        device: see `mytorch.tensor`.
        requires_grad: see `mytorch.tensor`.
    """
    if sorted(physical_layout) != list(builtins.range(len(size))):
        raise RuntimeError(f"empty_permuted: expected a permutation of {len(size)} axes, got {physical_layout}.")
    shape = [size[d] for d in physical_layout]
    inner = empty(shape, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)
    back = sorted(builtins.range(len(size)), key=lambda d: physical_layout[d])
    return inner.permute(back).requires_grad_(requires_grad)


@takes_out
def nuclear_norm(input, dim=None, keepdim=False):
    """Returns the nuclear norm, the sum of the singular values. The second argument may be `keepdim`."""
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return input.norm("nuc", dim, keepdim)


@takes_out
def frobenius_norm(input, dim=None, keepdim=False):
    """Returns the Frobenius norm, the root of the sum of squares over `dim`."""
    return input.norm("fro", dim, keepdim)


def cond(pred, true_fn, false_fn, operands=()):
    """Calls true_fn(*operands) or false_fn(*operands), depending on `pred`.

    Args:
        pred: a bool, or a tensor with one element.
        true_fn: function for True.
        false_fn: function for False.
        operands: arguments of the function.
    """
    return (true_fn if bool(pred) else false_fn)(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """Calls body_fn repeatedly on its results while cond_fn returns True.

    Args:
        cond_fn: function of the values that returns a bool.
        body_fn: function of the values that returns the next values.
        carried_inputs: tuple of the initial values.
    """
    while bool(cond_fn(*carried_inputs)):
        carried_inputs = body_fn(*carried_inputs)
    return tuple(carried_inputs)


def is_warn_always_enabled():
    """Returns True if warnings that are normally issued once are issued every time."""
    return _warn_always[0]


def set_warn_always(b):
    """Has no effect on this library's warnings, which follow Python's filters."""
    _warn_always[0] = bool(b)


def set_flush_denormal(mode):
    """Returns False, because Python cannot set this mode of the processor."""
    return False


def is_anomaly_check_nan_enabled():
    """Returns True if `autograd.detect_anomaly` is enabled with `check_nan`."""
    return get_mode().anomaly == "nan"


def get_num_interop_threads():
    """Returns 1, because operations run one after another."""
    return 1


def set_num_interop_threads(n):
    """Does nothing, because operations run one after another."""


def range(start=0, end=None, step=1, **options):
    """Returns the floats from start to end, including end.

    Args:
        start: first number, or the last number without `end`.
        end: last number.
        step: difference between numbers.
    """
    errors.warn(
        "range is deprecated, because its behavior is inconsistent with Python's range builtin. Use arange instead, which "
        "leaves out its end."
    )
    start, end = (0, start) if end is None else (start, end)
    n = math.floor((end - start) / step) + 1
    return linspace(start, start + step * (n - 1), n, **options)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """Returns a tensor over the memory of a buffer.

    Args:
        buffer: bytes, a bytearray, an array or another buffer.
        dtype: dtype of the elements.
        count: number of elements; -1 for all.
        offset: number of bytes to skip.
        requires_grad: see `mytorch.tensor`.

    Raises:
        ValueError: if the buffer is too short, or the object is not a buffer.
    """
    try:
        size, length = dtypes.as_numpy(dtype).itemsize, memoryview(buffer).nbytes
    except TypeError:
        raise ValueError(f"object of type {type(buffer).__name__} does not implement Python buffer protocol") from None
    if not length or not count:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} bytes) - 1"
        )
    if count < 0 and (length - offset) % size:
        raise ValueError(
            f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({size})"
        )
    if count > 0 and offset + count * size > length:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than actual "
            f"buffer length ({length} bytes)"
        )
    raw = np.frombuffer(buffer, dtypes.as_numpy(dtype), count, offset)
    if not raw.flags.writeable:
        errors.warn(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. Copy it to write to it."
        )
    out = Tensor._wrap(raw)
    return out.requires_grad_() if requires_grad else out


def empty_strided(size, stride, *, dtype=None, device=None, requires_grad=False):
    """Returns an uninitialized tensor with given strides.

    Args:
        size: shape of the result.
        stride: stride of each axis in elements.
        dtype: see `mytorch.tensor`.
        device: see `mytorch.tensor`.
        requires_grad: see `mytorch.tensor`.
    """
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    length = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    return empty(length, dtype=dtype, device=device, requires_grad=requires_grad).as_strided(size, stride)


def from_dlpack(ext_tensor):
    """Returns a tensor over the memory of an object with DLPack support, or of a capsule from `to_dlpack`."""
    return Tensor._wrap(dlpack.from_dlpack(ext_tensor))


def to_dlpack(tensor):
    """Returns a DLPack capsule of a tensor's memory. Other libraries also accept the tensor itself."""
    return tensor.__dlpack__()


def _sampled(make, n, periodic, dtype, layout, device, requires_grad, pin_memory):
    """Compute a window of n points; a periodic one is a window of n + 1 points without its last."""
    if dtype is not None and not dtypes.as_dtype(dtype).is_floating_point:
        raise RuntimeError(f"expected a floating-point dtype for a window, got {dtype}")
    check_layout(layout)
    raw = make(n + 1 if periodic and n > 1 else n)[:n].astype(dtypes.as_numpy(dtype or dtypes.default_dtype()))
    window = from_numpy(np.ascontiguousarray(raw)).to(device)
    return (window.pin_memory() if pin_memory else window).requires_grad_(requires_grad)


def _window(name, make):
    def window(
        window_length, periodic=True, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
    ):
        return _sampled(make, window_length, periodic, dtype, layout, device, requires_grad, pin_memory)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"Returns the {name.replace('_', ' ').capitalize()} with `window_length` points; one period of it if `periodic`."
    return window


hann_window, blackman_window = _window("hann_window", np.hanning), _window("blackman_window", np.blackman)
bartlett_window = _window("bartlett_window", np.bartlett)


def hamming_window(
    window_length,
    periodic=True,
    alpha=0.54,
    beta=0.46,
    *,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
):
    """Returns the Hamming window alpha - beta * cos(2 pi t / (n - 1)).

    Args:
        window_length: number of points n.
        periodic: omit the last point of a window of n + 1 points.
        alpha: constant part.
        beta: amplitude of the cosine.
        dtype: see `mytorch.tensor`.
        layout: must be strided.
        device: see `mytorch.tensor`.
        requires_grad: see `mytorch.tensor`.
    """

    def make(n):
        return alpha - beta * np.cos(2 * math.pi * np.arange(n) / (n - 1)) if n > 1 else np.ones(n)

    return _sampled(make, window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


def kaiser_window(
    window_length,
    periodic=True,
    beta=12.0,
    *,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
):
    """Returns the Kaiser window with shape parameter beta.

    Args:
        window_length: number of points n.
        periodic: omit the last point of a window of n + 1 points.
        beta: shape parameter; larger is narrower.
        dtype: see `mytorch.tensor`.
        layout: must be strided.
        device: see `mytorch.tensor`.
        requires_grad: see `mytorch.tensor`.
    """
    make = partial(np.kaiser, beta=beta)
    return _sampled(make, window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


def detach(input: Tensor) -> Tensor:
    """Returns `input.detach()`."""
    return input.detach()


def detach_(input: Tensor) -> Tensor:
    """Detaches input in place and returns it."""
    return input.detach_()


def fill(input: Tensor, value) -> Tensor:
    """Returns a copy of input filled with a value."""
    return input.clone().fill_(value)


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Computes `dropout`, and returns the result and a mask that is True for the elements that stay.

    Args:
        p: probability that an element is set to zero.
        train: if False, all elements stay.
    """
    if train is False or p == 0 or not input.numel():
        return input.clone(), ones_like(input, dtype=dtypes.bool_)
    if p == 1:
        return zeros_like(input), zeros_like(input, dtype=dtypes.bool_)
    kept = bernoulli_mask(input, None, p)  # type: ignore[arg-type]
    return input * Tensor._wrap(kept), Tensor._wrap(kept != 0)


def _names():
    """Return {name: value} of the names that this file adds to the `mytorch` module."""
    own = {k: v for k, v in globals().items() if getattr(v, "__module__", None) == __name__}
    names = {k: v for k, v in own.items() if callable(v) and not k.startswith("_")}
    names.update({d.name: d for d in dtypes.FLOAT8})
    names.update(
        get_device=METHODS["get_device"],
        zero_=METHODS["zero_"],
        fill_=METHODS["fill_"], resize_as_=METHODS["resize_as_"],
        has_mkl=False, has_lapack=True, has_openmp=False, has_spectral=True,
        chalf=dtypes.complex32,
    )  # fmt: skip
    for k in PUBLIC:  # torch.exp_(x) and similar functions
        if k in METHODS and k + "_" in METHODS:
            names.setdefault(k + "_", METHODS[k + "_"])
    return public_names(names)


TORCH_NAMES = {"mytorch": _names()}
