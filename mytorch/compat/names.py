"""Names of `torch` that the core lacks: settings, windows, typed constructors, aliases. `NAMES` lists them."""

import builtins
import math
import sys

import numpy as np

from .. import autograd, linalg, storage
from .._array import Size
from .._tensor import Tensor
from ..backend import dlpack
from ..base import config, dtypes, errors
from ..dispatch.out import takes_out
from ..dispatch.unwrap import raw_of
from ..engine.mode import get_mode
from ..nn import functional as F
from ..ops import METHODS, PUBLIC, foreach
from ..ops.composites import feature_dropout
from ..ops.creation import as_tensor, empty, finish, from_numpy, full, linspace
from ..ops.embedding import embedding_renorm_
from . import deterministic, functional, jit

_warn_always = [False]


def set_default_tensor_type(t):
    """Set the default dtype by a type such as `mytorch.DoubleTensor`, or its name."""
    errors.warn(
        "set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives."
    )
    if isinstance(t, str) and t.endswith("Tensor"):
        t = getattr(sys.modules["mytorch"], t.rpartition(".")[2])
    dtypes.set_default_dtype(t if isinstance(t, dtypes.dtype) else t.own_dtype)


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Leave out the GPU's kernels whose sums are added up in the order that it happens; all else is the same in every run. What `empty` makes is filled while it holds, as PyTorch does.

    See `utils.deterministic.fill_uninitialized_memory`.
    """
    deterministic.use(mode, warn_only)


def are_deterministic_algorithms_enabled():
    """What `use_deterministic_algorithms` was last told."""
    return deterministic.mode > 0


def is_deterministic_algorithms_warn_only_enabled():
    """What `use_deterministic_algorithms` was last told as `warn_only`."""
    return deterministic.warn_only


def set_deterministic_debug_mode(debug_mode):
    """0 or "default", 1 or "warn", 2 or "error": `use_deterministic_algorithms` by number."""
    words = ("default", "warn", "error")
    if isinstance(debug_mode, str) and debug_mode not in words:
        raise RuntimeError(f"invalid value of debug_mode, expected one of {', '.join(words)}, but got {debug_mode}")
    level = words.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if not isinstance(level, int):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if level not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode():
    """0, 1 or 2, as `set_deterministic_debug_mode` has it."""
    return (1 if deterministic.warn_only else 2) if deterministic.mode else 0


def set_float32_matmul_precision(precision):
    """How exact float32 products are on a GPU: "highest" (float32), or "high" or "medium" (TF32: 10 bits of mantissa, much quicker).

    Products on the CPU are always in float32.
    """
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"set_float32_matmul_precision: expected 'highest', 'high' or 'medium', got {precision!r}.")
    config.float32_matmul_precision = precision


def get_float32_matmul_precision():
    """What was last set."""
    return config.float32_matmul_precision


def broadcast_shapes(*shapes):
    """The shape that tensors of the given shapes broadcast to."""
    try:
        return Size(np.broadcast_shapes(*[(s,) if isinstance(s, int) else tuple(s) for s in shapes]))
    except ValueError:
        raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {list(shapes)}") from None


def typename(obj):
    """The full name of an object's type."""
    return obj.type() if isinstance(obj, Tensor) else f"{type(obj).__module__}.{type(obj).__qualname__}"


def is_storage(obj):
    """Whether an object is what `Tensor.storage` or `Tensor.untyped_storage` returns."""
    return isinstance(obj, (storage.TypedStorage, storage.UntypedStorage))


def result_type(tensor1, tensor2):
    """The dtype of an operation on two tensors or numbers."""
    ranks = ([], [], [])
    for t in (tensor1, tensor2):
        if hasattr(t, "dtype") and hasattr(t, "ndim"):
            ranks[0 if t.ndim else 1].append(dtypes.as_dtype(t.dtype))
        else:
            ranks[2].append(dtypes.of_number(t))
    return dtypes.result_type(*ranks)


def logspace(start, end, steps, base=10.0, *, out=None, dtype=None, device=None, requires_grad=False, **named):
    """base to the powers of `steps` evenly spaced numbers from start to end.

    Args:
        start: exponent of the first.
        end: exponent of the last.
        steps: how many.
        base: of the powers.
        out: tensor to write the result into.
        dtype, device, requires_grad: as for `mytorch.tensor`.
    """
    like = linspace(start, end, 0, dtype=dtype if out is None else out.dtype)
    exponents = linspace(start, end, steps, dtype=dtypes.complex128 if like.dtype.is_complex else dtypes.float64)
    found = raw_of((base**exponents).to(like.dtype).to(device=device))
    return finish(found, requires_grad, out)


def scalar_tensor(s, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A 0-d tensor of a number, of the default dtype if none is given.

    Args:
        s: the number.
        dtype, layout, device, pin_memory, requires_grad: as for `mytorch.tensor`.
    """
    return full((), s, dtype=dtype or dtypes.default_dtype(), device=device, requires_grad=requires_grad)


def empty_permuted(size, physical_layout, *, dtype=None, device=None, requires_grad=False, **named):
    """An uninitialised tensor of a size, whose axes lie in memory in the given order.

    Args:
        size: shape of the result.
        physical_layout: the axes, outermost in memory first.
        dtype, device, requires_grad: as for `mytorch.tensor`.
    """
    if sorted(physical_layout) != list(builtins.range(len(size))):
        raise RuntimeError(f"empty_permuted: {physical_layout} is no order of the {len(size)} axes of {size}.")
    inner = empty([size[d] for d in physical_layout], dtype=dtype, device=device)
    back = sorted(builtins.range(len(size)), key=lambda d: physical_layout[d])
    return inner.permute(back).requires_grad_(requires_grad)


def from_file(filename, shared=False, size=0, *, dtype=None, device=None, requires_grad=False, **named):
    """A vector over a file's bytes; `shared` writes go to the file.

    Args:
        filename: the path.
        shared: write changes back.
        size: number of elements.
        dtype, device, requires_grad: as for `mytorch.tensor`.
    """
    raw = np.memmap(filename, dtypes.as_numpy(dtype or dtypes.default_dtype()), "r+" if shared else "c", shape=(size,))
    return Tensor._wrap(np.asarray(raw)).requires_grad_(requires_grad)


def vander(x, N=None, increasing=False):
    """The powers of a vector's elements, N columns, falling (or rising).

    Args:
        x: a vector.
        N: columns; len(x) by default.
        increasing: powers rise from left to right.
    """
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    if N is not None and N < 0:
        raise RuntimeError("N must be non-negative.")
    columns = len(x) if N is None else N
    out = linalg.vander(x, N=max(columns, 2))[:, :columns]
    return out if increasing else out.flip(-1)


@takes_out
def nuclear_norm(input, dim=None, keepdim=False):
    """The sum of the singular values."""
    return input.norm("nuc", dim, keepdim)


@takes_out
def frobenius_norm(input, dim=None, keepdim=False):
    """The root of the sum of squares over `dim`."""
    return input.norm("fro", dim, keepdim)


def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """`nn.functional.grid_sample` with modes as numbers.

    Args:
        input: as in `grid_sample`.
        grid: as in `grid_sample`.
        interpolation_mode: 0 bilinear, 1 nearest, 2 bicubic.
        padding_mode: 0 zeros, 1 border, 2 reflection.
        align_corners: as in `grid_sample`.
    """
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    for mode, known, what in ((interpolation_mode, modes, "interpolation"), (padding_mode, paddings, "padding")):
        if mode not in (0, 1, 2):
            raise ValueError(f"grid_sampler: {what}_mode must be 0, 1 or 2 (of {known}), got {mode!r}.")
    return F.grid_sample(input, grid, modes[interpolation_mode], paddings[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) or false_fn(*operands), as `pred`, a bool or a tensor of one, says.

    Args:
        pred: which one.
        true_fn: called if pred holds.
        false_fn: called if not.
        operands: the arguments of either.
    """
    return (true_fn if bool(pred) else false_fn)(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """body_fn again and again on what it returned, while cond_fn holds.

    Args:
        cond_fn: of the carried values, a bool.
        body_fn: of the carried values, their next ones.
        carried_inputs: the first ones, a tuple.
    """
    while bool(cond_fn(*carried_inputs)):
        carried_inputs = body_fn(*carried_inputs)
    return tuple(carried_inputs)


def is_warn_always_enabled():
    """Whether warnings that are usually given once come every time."""
    return _warn_always[0]


def set_warn_always(b):
    """Accepted; this library's own warnings follow Python's filters."""
    _warn_always[0] = bool(b)


def set_flush_denormal(mode):
    """False: Python cannot set the processor's mode."""
    return False


def is_anomaly_check_nan_enabled():
    """Whether `autograd.detect_anomaly` is on; it always looks for NaN."""
    return get_mode().anomaly


def get_num_interop_threads():
    """1: operations run one after the other."""
    return 1


def set_num_interop_threads(n):
    """Accepted: operations run one after the other."""


def range(start=0, end=None, step=1, **options):
    """The numbers from start to end, end included, as floats.

    Args:
        start: the first.
        end: the last that may come; start if it is alone.
        step: their distance.
    """
    errors.warn(
        "range is deprecated, because its behavior is inconsistent with Python's range builtin. Use arange instead, which "
        "leaves out its end."
    )
    start, end = (0, start) if end is None else (start, end)
    n = math.floor((end - start) / step) + 1
    return linspace(start, start + step * (n - 1), n, **options)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A tensor over a buffer's memory.

    Args:
        buffer: bytes, a bytearray, an array, ….
        dtype: of the elements.
        count: elements to take; -1 for all.
        offset: bytes to skip.
        requires_grad: as for `mytorch.tensor`.

    Raises:
        ValueError: the buffer does not hold as many elements.
    """
    size, length = dtypes.as_numpy(dtype).itemsize, memoryview(buffer).nbytes
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
    """An uninitialised tensor of a size and strides (in elements).

    Args:
        size: shape of the result.
        stride: elements from one index to the next, for each axis.
        dtype, device, requires_grad: as for `mytorch.tensor`.
    """
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    length = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    return empty(length, dtype=dtype, device=device, requires_grad=requires_grad).as_strided(size, stride)


def from_dlpack(ext_tensor):
    """A tensor over the memory of any object that speaks DLPack, or of a capsule that `to_dlpack` made."""
    return Tensor._wrap(dlpack.from_dlpack(ext_tensor))


def to_dlpack(tensor):
    """A DLPack capsule of a tensor's memory. Prefer handing over the tensor itself."""
    return tensor.__dlpack__()


def _sampled(make, n, periodic, dtype, device, requires_grad):
    """A window of n points; a periodic one is one of n + 1 without its last."""
    if dtype is not None and not dtypes.as_dtype(dtype).is_floating_point:
        raise RuntimeError(f"a window expects a floating point dtype, got {dtype}")
    raw = make(n + 1 if periodic and n > 1 else n)[:n].astype(dtypes.as_numpy(dtype or dtypes.default_dtype()))
    return from_numpy(np.ascontiguousarray(raw)).to(device).requires_grad_(requires_grad)


def _window(name, make):
    def window(window_length, periodic=True, *, dtype=None, layout=None, device=None, requires_grad=False):
        return _sampled(make, window_length, periodic, dtype, device, requires_grad)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"The {name.replace('_', ' ')} of that many points; one period of it if `periodic`."
    return window


hann_window, blackman_window = _window("hann_window", np.hanning), _window("blackman_window", np.blackman)
bartlett_window = _window("bartlett_window", np.bartlett)


def hamming_window(
    window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None, device=None, requires_grad=False
):
    """The Hamming window alpha - beta * cos(2 pi t / (n - 1)).

    Args:
        window_length: n.
        periodic: leave out the last point of a window of n + 1.
        alpha: the constant part.
        beta: height of the cosine.
        dtype, layout, device, requires_grad: as for `mytorch.tensor`.
    """

    def make(n):
        return alpha - beta * np.cos(2 * math.pi * np.arange(n) / (n - 1)) if n > 1 else np.ones(n)

    return _sampled(make, window_length, periodic, dtype, device, requires_grad)


def kaiser_window(
    window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, requires_grad=False
):
    """The Kaiser window of shape beta.

    Args:
        window_length: n.
        periodic: leave out the last point of a window of n + 1.
        beta: larger is narrower.
        dtype, layout, device, requires_grad: as for `mytorch.tensor`.
    """
    return _sampled(lambda n: np.kaiser(n, beta), window_length, periodic, dtype, device, requires_grad)


class _Typed(type):
    """The kind of constructors such as FloatTensor: sizes, or data, as one dtype; `isinstance` looks at the dtype."""

    def __new__(mcs, name, own_dtype):
        return super().__new__(mcs, name, (), {"own_dtype": own_dtype, "dtype": own_dtype, "__module__": "torch"})

    def __init__(cls, name, own_dtype):
        super().__init__(name, (), {})

    def __call__(cls, *args):
        if args and not isinstance(args[0], int):
            return as_tensor(args[0], dtype=cls.own_dtype, copy=True)
        return empty(*(args or (0,)), dtype=cls.own_dtype)

    def __repr__(cls):
        return f"<type '{config.torch_name()}.{cls.__name__}'>"

    def __instancecheck__(cls, obj):
        return isinstance(obj, Tensor) and obj.dtype is cls.own_dtype


_TYPES = {word: dtypes.as_dtype(name) for name, word in dtypes.TYPE_WORDS.items() if not name.startswith("complex")}


def _names():
    """Returns {name: value} of what this file adds to the `mytorch` module."""
    own = {k: v for k, v in globals().items() if getattr(v, "__module__", None) == __name__}
    names = {k: v for k, v in own.items() if callable(v) and not k.startswith("_")}
    names.update({f"{k}Tensor": _Typed(f"{k}Tensor", d) for k, d in _TYPES.items()})
    names.update({k: takes_out(v) for k, v in functional.FUNCTIONS.items()})
    names.update({d.name: d for d in dtypes.FLOAT8}, **storage.CLASSES, Storage=storage.CLASSES["FloatStorage"])
    names.update(
        compile=jit.compile, detach=lambda input: input.detach(), get_device=METHODS["get_device"],
        fill=lambda input, value: input.clone().fill_(value), detach_=lambda input: input.detach_(), zero_=METHODS["zero_"],
        fill_=METHODS["fill_"], resize_as_=METHODS["resize_as_"], affine_grid_generator=F.affine_grid,
        set_anomaly_enabled=autograd.set_detect_anomaly, is_anomaly_enabled=autograd.is_anomaly_enabled,
        dropout_=lambda input, p, train: F.dropout(input, p, train, inplace=True),
        feature_dropout=lambda input, p, train: feature_dropout(input, p, train),
        feature_dropout_=lambda input, p, train: feature_dropout(input, p, train, inplace=True),
        alpha_dropout_=lambda input, p, train: F.alpha_dropout(input, p, train, inplace=True),
        feature_alpha_dropout_=lambda input, p, train: F.feature_alpha_dropout(input, p, train, inplace=True),
        embedding_renorm_=embedding_renorm_, has_mkl=False, has_lapack=True, has_openmp=False, has_spectral=True,
        chalf=dtypes.complex32, **foreach.FUNCTIONS,
    )  # fmt: skip
    for k in PUBLIC:  # torch.exp_(x) and similar functions
        if k in METHODS and k + "_" in METHODS:
            names.setdefault(k + "_", METHODS[k + "_"])
    return names


NAMES = _names()
