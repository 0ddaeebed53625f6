"""Creation of tensors from numbers and arrays, and conversion to another dtype or device, to NumPy and Python."""

import builtins
import math
import operator

import numpy as np

from ..arrays import (
    CPU,
    NO_DATA,
    MetaArray,
    address,
    as_device,
    assign,
    config,
    copy_later,
    device,
    device_guard,
    dlpack,
    dtypes,
    is_pinned,
    ndarray,
    numpy_ns,
    on,
    out_of_memory,
    pinned,
    row_major,
    storage_bytes,
    to_device,
)
from ..arrays.array import Array, as_raw, place_for
from ..arrays.errors import HostMemoryError, kind, require_tensor, warn, warn_as_pytorch
from ..arrays.memory_format import (
    axes_in_memory,
    channel_axes,
    element_strides,
    in_order,
    layout_of,
    lies_in,
    preserve,
    preserve_format,
    strided,
    suggested_format,
)
from ..arrays.overriding import NOTHING, metadata, overriding
from ..arrays.tensor import Tensor, is_tensor
from ..autograd.mode import get_mode
from .dispatch.bind import _attribute, public, public_function
from .dispatch.inplace import adopt, check_writable, named_constant, record_fill
from .dispatch.layouts import creation, other_layout
from .dispatch.op import name_node, op
from .dispatch.operands import NUMBERS, is_operand
from .dispatch.overlap import refuse_overlap
from .dispatch.unwrap import raw_of
from .elementwise import cast, named
from .movement import _permute, as_shape, several_or_named

# -- from data -----------------------------------------------------------------------------------------------


@public(method=False)
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """Creates a leaf tensor with a copy of data.

    Python floats become the default dtype, ints int64, and bools bool. Arrays keep their dtype.

    Use it for data of your own, such as lists: it always copies. `as_tensor` and `from_numpy` share memory.

    Args:
        data: numbers, nested lists, arrays or tensors.
        dtype: dtype of the result (default: inferred from `data`).
        device: device of the result (default: the default device).
        pin_memory: if True, uses page-locked memory for fast copies to a GPU (default: False).

    Example:
        >>> x = mytorch.tensor([[1, 2], [3, 4]])
        >>> x.shape, x.dtype
        (mytorch.Size([2, 2]), mytorch.int64)
    """
    if isinstance(data, Tensor):
        warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than mytorch.tensor(sourceTensor)."
        )
    if config.pytorch_mode and isinstance(data, (list, tuple)) and data and isinstance(data[0], np.ndarray):
        warn(
            "Creating a tensor from a list of numpy.ndarrays is extremely slow in PyTorch. Convert the list to a single "
            "numpy.ndarray with numpy.array() first."
        )
    raw = as_raw(data, place_for(data, device), dtype)
    inner = getattr(data, "_mt_data", data)
    shared = raw is (inner._array if isinstance(inner, Array) else inner) or getattr(raw, "base", None) is not None
    if shared and not isinstance(data, (int, float, bool, complex, list, tuple)):
        raw = (
            raw_of(data.detach().clone())
            if isinstance(data, Tensor) and raw is inner._array
            else raw.copy(*["K"] * isinstance(raw, ndarray))
        )
    return finish(raw, requires_grad, pin=pin_memory)


@public(method=False)
def as_tensor(data, dtype=None, device=None):
    """Converts data to a tensor. If dtype and device fit, the result shares memory and the autograd graph with the data.

    Use it in functions that accept tensors, arrays and lists alike, without copies where none is needed.

    Args:
        data: a tensor, an array, or nested sequences of numbers.
        dtype: dtype of the result (default: the dtype of `data`).
        device: device of the result (default: the device of `data`).

    Example:
        >>> mytorch.as_tensor(np.array([1.0, 2.0])).dtype
        mytorch.float64
    """
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    data = dlpack.from_dlpack(data) if data.__class__.__name__ == "PyCapsule" else data
    return Tensor._wrap(as_raw(data, place_for(data, device), dtype))


@public(method=False)
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None):
    """Converts an object to a tensor, as the array API standard defines it.

    Use it where code is written for several array libraries, or must not copy (`copy=False`). `as_tensor` is shorter otherwise.

    Args:
        obj: a tensor, an array, or nested sequences of numbers.
        dtype: dtype of the result (default: the dtype of `obj`).
        device: device of the result (default: the device of `obj`).
        copy: True copies always, False never (default: None, only if necessary).
        requires_grad: with False, the result of a non-leaf tensor is detached. Otherwise, the flag of the result is set, which is
            `obj` itself where nothing is copied (default: None, as in `obj`).

    Raises:
        ValueError: `copy=False`, but another dtype or device is asked for, or `obj` is a sequence.

    Example:
        >>> x = mytorch.ones(2)
        >>> mytorch.asarray(x, copy=False) is x
        True
    """
    if copy is False and isinstance(obj, (list, tuple)):
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    if copy is False and isinstance(obj, np.generic):
        raise RuntimeError("can't alias NumPy scalars.")
    if copy is False and isinstance(obj, (int, float, complex)):
        raise ValueError("can't alias a number into a tensor.")
    found = obj if isinstance(obj, Tensor) else as_tensor(obj)
    if copy is False and dtype not in (None, found.dtype):
        mine, other = map(dtypes.word_of, (found.dtype, dtypes.as_dtype(dtype)))
        raise ValueError(f"can't alias tensor with dtype '{mine}' into dtype '{other}'.")
    if copy is False and device is not None and as_device(device) != found.device:
        raise ValueError(f"can't alias tensor from device '{found.device}' to '{as_device(device)}'.")
    found = found.to(device=device, dtype=dtype, copy=bool(copy))
    if requires_grad is None:
        return found
    return found.detach() if not requires_grad and not found.is_leaf else found.requires_grad_(requires_grad)


@public(method=False)
def from_numpy(ndarray):
    """Creates a tensor that shares the memory of a NumPy array.

    Use it for large arrays: nothing is copied, so changes appear on both sides.

    Args:
        ndarray: the array.

    Raises:
        TypeError: `ndarray` is not a NumPy array, or has a dtype that tensors do not support.
        ValueError: a stride is negative.

    Example:
        >>> x = np.zeros(2)
        >>> y = mytorch.from_numpy(x)
        >>> x[0] = 5
        >>> y.tolist()
        [5.0, 0.0]
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {kind(ndarray)})")
    if any(s < 0 for s in ndarray.strides):
        raise ValueError("from_numpy: some of the strides of the given numpy array are negative; make a copy() first.")
    if any(s % ndarray.itemsize for s in ndarray.strides):
        raise ValueError(
            "from_numpy: given numpy array strides not a multiple of the element byte size; make a copy() first."
        )
    dtypes.from_numpy(ndarray.dtype)
    if not ndarray.flags.writeable:
        warn(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors (non-writable). Copy it "
            "to write to it."
        )
    return Tensor._wrap(ndarray)


public(method=False)(is_tensor)


# -- functions that all creation functions use -------------------------------------------------------------------------


def finish(raw, requires_grad, out=None, pin=False, dtype=None):
    """Returns a new raw array as a tensor: in `out` if it is given, in page-locked memory if `pin` is True.

    Raises:
        RuntimeError: `out` does not have the dtype that the caller asked for.
    """
    if out is not None:  # keeps its dtype, and its shape where a range fits into it
        if dtype is not None and out.dtype is not dtypes.as_dtype(dtype):
            raise RuntimeError(f"dtype {dtypes.as_dtype(dtype)} does not match dtype of out parameter ({out.dtype})")
        if raw.ndim == 1 and out.numel() == raw.size:
            raw = raw.reshape(tuple(out.shape))
        elif tuple(out.shape) != raw.shape:
            if raw.ndim == 1 and out.numel():
                warn(
                    f"The number of elements in the out tensor of shape {list(out.shape)} is {out.numel()}, the computed number "
                    f"of elements is {raw.size}. The out tensor will be resized to a vector of that length."
                )
            out.resize_(raw.shape)
        return out.copy_(Tensor._wrap(raw))
    result = Tensor._wrap(pinned(raw) if pin else raw)
    return result.requires_grad_() if requires_grad else result


def check_sizes(shape):
    """Raises RuntimeError for a negative size."""
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")


def size_and_pin(name, size, named):
    """Returns the shape that `*size`, `size=` or `shape=` gives, and whether `pin_memory` is set.

    Raises:
        TypeError: another keyword, except `layout=mytorch.strided`.
    """
    check_layout(named.pop("layout", None))
    pin = named.pop("pin_memory", False)
    shape = as_shape(several_or_named(name, size, named, "size", "shape") if named else size)
    check_sizes(shape)
    return shape, pin


def check_layout(layout):
    """Raises TypeError for any layout except `mytorch.strided`."""
    if layout is not None and layout is not strided:
        raise TypeError(f"layout: expected mytorch.strided, got {layout!r}. Call to_sparse() on the result.")


def like(input, dtype=None, device=None, layout=None):
    """Returns the dtype and device of a tensor that is created like `input`."""
    check_layout(layout)
    return {"dtype": input.dtype if dtype is None else dtype, "device": input.device if device is None else device}


def _default(dtype):
    return dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)


def elements(shape, itemsize):
    """Returns the number of elements of a shape, and checks that its bytes and strides are int64 numbers.

    Raises:
        RuntimeError: they are larger.
    """
    if math.prod(max(n, 1) for n in shape) >= 1 << 63:
        raise RuntimeError(f"Stride calculation overflowed with sizes={list(shape)}")
    n = math.prod(shape)
    if n * itemsize >= 1 << 63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    return n


def _filled(make, shape, dtype, device, requires_grad, out=None, pin=False, inferred=False):
    """Returns a tensor of `make(xp, shape, dtype)` on a device. `out` has this dtype unless it is `inferred`."""
    check_sizes(shape)
    xp, there = on(as_device(device))
    try:
        with there:
            return finish(make(xp, shape, _default(dtype).numpy), requires_grad, out, pin, None if inferred else dtype)
    except ValueError:
        elements(shape, _default(dtype).itemsize)
        raise
    except MemoryError as error:
        raise (HostMemoryError(str(error)) if xp is numpy_ns else out_of_memory(error)) from None


# -- constant and sequential -----------------------------------------------------------------------------------


def uninitialized(raw):
    """Returns an uninitialized raw array, filled with NaN or the largest number if the program enabled that."""
    if config.fill_uninitialized:
        raw.fill(np.nan if raw.dtype.kind in "fcV" else True if raw.dtype.kind == "b" else np.iinfo(raw.dtype).max)
    return raw


def _constant(name, text, show, shown, shown_like):
    """Returns the functions `name`, which has a size, and `name_like`, which uses the properties of another tensor."""

    def make(xp, shape, dtype):
        raw = getattr(xp, name)(shape, dtype)
        return uninitialized(raw) if name == "empty" else raw

    @named(name, text=text, show=show, shown=shown)
    def of_size(*size, out=None, dtype=None, device=None, requires_grad=False, memory_format=None, **named):
        """Creates {text} of a given size.

        Args:
            size: shape, as separate integers or as one tuple.
            dtype: dtype of the result (default: the default floating-point dtype).
            device: device of the result (default: the default device).

        Example:
            >>> mytorch.{name}(2){show}
            {shown}
        """
        if (named or out is not None) and (other := creation(name, named.get("layout"), out)) is not None:
            options = {"out": out, "dtype": dtype, "device": device, "memory_format": memory_format}
            return other(*size, requires_grad=requires_grad, **options, **named)
        shape, pin = size_and_pin(name, size, named)
        laid_out = in_order(make, channel_axes(len(shape), memory_format))
        return _filled(laid_out, shape, dtype, device, requires_grad, out, pin)

    @named(name + "_like", text=text, show=show, shown=shown_like)
    def of_input(
        input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None, pin_memory=False
    ):
        """Creates {text} with the size, dtype and device of another tensor.

        Args:
            input: the other tensor.
            dtype: dtype of the result (default: the dtype of `input`).
            device: device of the result (default: the device of `input`).

        Example:
            >>> mytorch.{name}(tensor([7, 8, 9])){show}
            {shown}
        """
        dense = layout is None and isinstance(input._mt_data._array, ndarray)
        if not dense and (other := creation(name + "_like", layout, input)) is not None:
            options = {"dtype": dtype, "layout": layout, "device": device, "memory_format": memory_format}
            return other(input, requires_grad=requires_grad, pin_memory=pin_memory, **options)
        shape = tuple(input.shape)
        laid_out = in_order(make, axes_in_memory(raw_of(input), memory_format))
        return _filled(
            laid_out, shape, requires_grad=requires_grad, pin=pin_memory, **like(input, dtype, device, layout)
        )

    return public(method=False)(public_function(of_size)), public(method=False)(public_function(of_input))


zeros, zeros_like = _constant("zeros", "a tensor filled with 0", ".tolist()", [0.0, 0.0], [0, 0, 0])
ones, ones_like = _constant("ones", "a tensor filled with 1", ".tolist()", [1.0, 1.0], [1, 1, 1])
empty, empty_like = _constant("empty", "an uninitialized tensor", ".shape", "mytorch.Size([2])", "mytorch.Size([3])")


@public(method=False)
@public_function
def full(
    size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
):  # fmt: skip
    """Creates a tensor of a given size filled with one value.

    Args:
        size: shape of the result.
        fill_value: a number, or a tensor with one element.
        dtype: dtype of the result (default: inferred from `fill_value`).
        device: device of the result (default: the default device).

    Example:
        >>> mytorch.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
    """
    check_layout(layout)
    inferred = dtype is None
    if is_tensor(fill_value):
        dtype = fill_value.dtype if dtype is None else dtype
        fill_value = fill_value.item()
    dtype = dtypes.of_number(fill_value) if dtype is None else dtype
    shape = as_shape((size,))
    fill_value = dtypes.fitting(fill_value, dtypes.as_dtype(dtype), math.prod(shape) == 1)
    return _filled(
        lambda xp, s, d: xp.full(s, fill_value, d), shape, dtype, device, requires_grad, out, pin_memory, inferred
    )


@public(method=False)
@public_function
def full_like(
    input, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None,
    pin_memory=False,
):  # fmt: skip
    """Creates a tensor filled with one value, with the size, dtype and device of another tensor.

    Args:
        input: the other tensor.
        dtype: dtype of the result (default: the dtype of `input`).
        device: device of the result (default: the device of `input`).

    Example:
        >>> mytorch.full_like(tensor([1.0, 2.0]), 3).tolist()
        [3.0, 3.0]
    """
    if (other := other_layout("full_like", input)) is not None:
        options = {"dtype": dtype, "layout": layout, "device": device, "memory_format": memory_format}
        return other(input, fill_value, requires_grad=requires_grad, pin_memory=pin_memory, **options)
    out = empty_like(input, memory_format=memory_format, pin_memory=pin_memory, **like(input, dtype, device, layout))
    return out.fill_(fill_value).requires_grad_(requires_grad)


def _number(x):
    return x.item() if isinstance(x, (Tensor, Array, np.generic)) else x


@public(method=False)
@public_function
def arange(
    start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """Creates a 1-d tensor of numbers from `start` to `end`, excluding `end`, with a constant step.

    Use it for integers. With a float step, rounding decides whether the end is reached, so `linspace` is safer.

    Args:
        start: first number (default: 0). A single argument is `end`.
        end: upper bound, which is excluded.
        step: difference of two numbers; may be negative (default: 1).
        dtype: dtype of the result (default: int64 if all arguments are ints, otherwise the default dtype).
        device: device of the result (default: the default device).

    Raises:
        RuntimeError: `step` is 0 or has the wrong sign.

    Example:
        >>> mytorch.arange(1, 7, 2).tolist()
        [1, 3, 5]
    """
    check_layout(layout)
    start, end, step, count = _number(start), _number(end), _number(step), None
    asked = dtype
    if end is None:
        start, end = 0, start
    if dtype is not None and dtypes.as_dtype(dtype).category == dtypes.INT:
        # PyTorch counts the steps before it rounds the three numbers, except for int64.
        count = (end - start) / step if dtypes.as_dtype(dtype) is not dtypes.int64 and step else None
        if count is not None and 0 <= count < 1 << 63:
            count = math.ceil(count)
        start, end, step, whole = int(start), int(end), int(step), bool(step)
        if step == 0 and whole and count is None:
            raise ValueError("step must be nonzero")
    elif dtype is not None and dtypes.as_dtype(dtype) in (dtypes.bool_, dtypes.complex64, dtypes.complex128):
        word = dtypes.word_of(dtypes.as_dtype(dtype))
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{word}'. Cast the result.")
    if count is None and (step == 0 or step != step):
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is None:
        dtype = dtypes.default_dtype() if any(isinstance(v, float) for v in (start, end, step)) else dtypes.int64
    if count is None and (end - start) / step >= 1 << 63:
        raise RuntimeError(f"invalid size, possible overflow: the range {start} -> {end} has too many numbers")
    exact = np.int64 if all(isinstance(v, int) for v in (start, end, step)) else np.float64
    xp, there = on(as_device(device))
    with there:
        count = math.ceil((end - start) / step) if count is None else count
        numbers = xp.arange(count, dtype=exact)
        numbers = numbers if step == 1 else numbers * step  # most ranges need no further pass
        numbers = numbers if start == 0 else numbers + start
        raw = numbers.astype(dtypes.as_dtype(dtype).numpy, copy=False)
    return finish(raw, requires_grad, out, pin_memory, asked)


@public(method=False)
@public_function
def linspace(
    start, end, steps, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """Creates a 1-d tensor of evenly spaced numbers from `start` to `end`, including both.

    Use it when you know the number of elements, and `arange` when you know the step.

    Args:
        start: first number.
        end: last number.
        steps: number of elements.
        device: device of the result (default: the default device).

    Example:
        >>> mytorch.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    check_layout(layout)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    if getattr(start, "ndim", 0) or getattr(end, "ndim", 0):
        raise RuntimeError(f"linspace only supports 0-dimensional start and end tensors, but got {start} and {end}")
    start, end = _number(start), _number(end)
    d = _default(dtype if out is None or dtype is not None else out.dtype)
    number = float
    if isinstance(start, complex) or isinstance(end, complex):
        number, inferred = complex, dtypes.default_dtype().to_complex()
        if dtype is not None and not d.is_complex:
            raise RuntimeError(f"torch.linspace(): inferred dtype {inferred} can't be safely cast to passed dtype {d}")
        d = d if d.is_complex else inferred
    xp, there = on(as_device(device))
    with there:
        raw = (
            _integers(xp, start, end, steps, d)
            if d.category < dtypes.FLOAT
            else xp.linspace(number(start), number(end), steps)
        )
        raw = raw.astype(d.numpy)
    return finish(raw, requires_grad, out, pin_memory, dtype)


def _integers(xp, start, end, steps, dtype):
    """Returns evenly spaced numbers between two integers, truncated. As in PyTorch, the second half is counted from the end."""
    if dtype.category == dtypes.BOOL:
        raise NotImplementedError("\"linspace_cpu\" not implemented for 'Bool'")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"linspace: expected finite numbers for {dtype}, got {start} and {end}.")
    start, end = (tensor(int(v), dtype=dtype).item() for v in (start, end))
    i, step = xp.arange(steps), (end - start) / builtins.max(steps - 1, 1)
    return xp.trunc(xp.where(i < builtins.max(steps // 2, 1), start + step * i, end - step * (steps - 1 - i)))


@public(method=False)
@public_function
def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Creates a matrix with ones on the diagonal and zeros elsewhere.

    Args:
        n: number of rows.
        m: number of columns (default: n).
        device: device of the result (default: the default device).

    Example:
        >>> mytorch.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    check_layout(layout)
    shape = (n, n if m is None else m)
    return _filled(lambda xp, shape, d: xp.eye(*shape, dtype=d), shape, dtype, device, requires_grad, out, pin_memory)


# -- new_* methods -----------------------------------------------------------------------------------------------


def _new(make):
    @public(function=False, inplace=False)
    @named(
        "new_" + make.__name__, f"Runs `mytorch.{make.__name__}` with the dtype and device of this tensor as defaults."
    )
    def method(self, *size, dtype=None, device=None, requires_grad=False, **named):
        if (layout := layout_of(raw_of(self))) is not strided:
            named.setdefault("layout", layout)
        return make(*size, requires_grad=requires_grad, **like(self, dtype, device), **named)


for _make in (zeros, ones, empty, full):
    _new(_make)


@public(function=False, inplace=False)
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """Creates a tensor as `mytorch.tensor` does, with the dtype and device of this tensor as defaults.

    Args:
        data: numbers, nested lists or an array.
        dtype: dtype of the result (default: the dtype of this tensor).
        device: device of the result (default: the device of this tensor).
        requires_grad: if True, autograd records operations on the result (default: False).

    Example:
        >>> mytorch.zeros(2, dtype=mytorch.float64).new_tensor([1, 2]).dtype
        mytorch.float64
    """
    return tensor(data, requires_grad=requires_grad, **like(self, dtype, device))


# -- dtype and device --------------------------------------------------------------------------------------------


def _in_same_order(out, raws, attrs):
    """Returns a copy on another device with PyTorch's strides. A copy that may not have finished stays as it is."""
    if attrs["non_blocking"]:
        return out
    with device_guard(out):
        return preserve(out, raws)


@op(dtype="same", layout=_in_same_order)
def _to_device(xp, input, *, where, home, non_blocking):
    return to_device(input, where, non_blocking)


_to_device.grad(input=lambda g, where, home, xp: xp.call(_to_device, g, where=home, home=where, non_blocking=False))


@public(function=False, inplace=False)
def to(self, *args, **named):
    """Returns this tensor on another device or with another dtype; the tensor itself if nothing changes.

    Args:
        *args: a dtype, a device, a device and a dtype, or another tensor, for its dtype and device. Followed by
            `non_blocking` and `copy`, which may also be keywords.

    Example:
        >>> mytorch.tensor([1, 2]).to(mytorch.float64).dtype
        mytorch.float64
    """
    where = dtype = memory_format = other = None
    non_blocking = copy = False
    if named:
        where, dtype = named.pop("device", None), named.pop("dtype", None)
        non_blocking, copy = named.pop("non_blocking", False), named.pop("copy", False)
        memory_format = named.pop("memory_format", None)
        other = named.pop("other", None)
        if named:
            raise TypeError(f"to() got an unexpected keyword argument '{next(iter(named))}'")
    flags = []
    for a in args:
        if isinstance(a, dtypes.dtype):
            dtype = a
        elif isinstance(a, bool):
            flags.append(a)
        elif isinstance(a, (int, device)) or (isinstance(a, str) and a not in dtypes._BY_NAME):
            where = a
        elif is_tensor(a):
            other = a
        elif a is not None:
            dtype = a
    if flags:
        non_blocking, copy = (*flags, copy)[:2]
    if other is not None:
        where, dtype = other.device, other.dtype
    result = self
    if dtype is not None:
        result = cast(result, dtypes.as_dtype(dtype))
    if where is not None and as_device(where) is not result.device:
        if result.is_meta:
            raise NotImplementedError(NO_DATA)
        result = _to_device(result, where=as_device(where), home=result.device, non_blocking=non_blocking)
    if copy and result is self:
        result = result.clone(memory_format=memory_format)
    return _formatted(result, self, memory_format)


def _formatted(result, source, memory_format):
    """Returns a result of `to` in a memory format. A tensor that did not change stays as it is if its format is similar."""
    if memory_format in (None, preserve_format):
        return result
    if result is source and memory_format == suggested_format(raw_of(source)):
        return result
    return result.contiguous(memory_format)


def _cast_method(name, d):
    @public(function=False, inplace=False)
    @named(name, f"Casts the tensor to {d.name}.")
    def method(self, memory_format=None):
        return _formatted(cast(self, d), self, memory_format)

    return method


for _word, _dtype in (
    ("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
    ("long", dtypes.int64), ("int", dtypes.int32), ("short", dtypes.int16), ("char", dtypes.int8),
    ("byte", dtypes.uint8), ("bool", dtypes.bool_), ("cfloat", dtypes.complex64), ("cdouble", dtypes.complex128),
):  # fmt: skip
    _cast_method(_word, _dtype)


@public(function=False, inplace=False)
def astype(self, dtype):
    """Casts this tensor to a dtype. This is NumPy's name of `to`."""
    return cast(self, dtypes.as_dtype(dtype))


@public(function=False, inplace=False)
def type(self, dtype=None):
    """Returns the name of the type, such as "torch.FloatTensor" in PyTorch. With an argument, casts this tensor.

    Args:
        dtype: a dtype, or the name of a type (default: None).
    """
    words = dtypes.TYPE_WORDS
    if dtype is not None:
        dtype = dtypes.default_dtype() if dtype is Tensor else getattr(dtype, "own_dtype", dtype)
        if isinstance(dtype, str) and dtype.endswith("Tensor"):
            word = dtype.rpartition(".")[2].removesuffix("Tensor")
            dtype = next((name for name, known in words.items() if known == word), dtype)
        return cast(self, dtypes.as_dtype(dtype))
    prefix = "" if self.device.type == "cpu" else f"{self.device.type}."
    word = words.get(self.dtype.name) or self.dtype.name.replace("uint", "UInt")  # PyTorch has no class of this name
    return f"{config.torch_name()}.{prefix}{word}Tensor"


@public(function=False, inplace=False)
def cpu(self, memory_format=None):
    """Returns this tensor in CPU memory.

    Args:
        memory_format: order of the axes in memory.
    """
    return to(self, CPU)


@public(function=False, inplace=False)
def cuda(self, device=None, non_blocking=False, memory_format=None):
    """Returns this tensor on a GPU.

    Args:
        device: number of a GPU, or a device such as "cuda:0" (default: the current GPU).
        non_blocking: if True, does not wait for a copy from page-locked memory (default: False).
        memory_format: order of the axes in memory.
    """
    return to(self, "cuda" if device is None else device, non_blocking=non_blocking)


# -- to Python and NumPy --------------------------------------------------------------------------------------------


@public(function=False, inplace=False)
def numpy(self, *, force=False):
    """Returns the elements as a NumPy array. The array shares the memory of a CPU tensor; a GPU tensor is copied.

    Args:
        force: if True, also converts tensors that require grad (default: False).

    Raises:
        RuntimeError: the tensor requires grad, and autograd is recording.
        TypeError: the tensor is on a GPU, in PyTorch mode.

    Example:
        >>> mytorch.tensor([1.5, 2.0]).numpy().sum().item()
        3.5
    """
    if not force and self.requires_grad and get_mode().grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    raw = raw_of(self)
    if not isinstance(raw, ndarray) and (other := other_layout("numpy", self)) is not None:
        return other(self, force=force)
    if config.pytorch_mode and not isinstance(raw, ndarray) and not force:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )
    if config.pytorch_mode and raw.dtype.kind == "V":
        raise TypeError(f"numpy: expected a dtype of NumPy, got {self.dtype}. Convert the tensor with float() first.")
    return to_device(raw, CPU)


@public(function=False, inplace=False)
@metadata
def item(self):
    """Returns the only element as a Python number.

    Raises:
        RuntimeError: the tensor does not have exactly one element.

    Example:
        >>> mytorch.tensor([2.5]).item()
        2.5
    """
    if overriding.modes and (found := overriding.ask(item, (self,))) is not NOTHING:
        return found
    raw = raw_of(self)
    if raw.size != 1:
        raise RuntimeError(f"a Tensor with {raw.size} elements cannot be converted to Scalar")
    value = raw.item()
    return value if isinstance(value, (int, float, bool, complex)) else float(value)


@public(function=False, inplace=False)
@metadata
def tolist(self):
    """Returns the elements as nested lists of Python numbers.

    Example:
        >>> mytorch.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
    """
    if overriding.modes and (found := overriding.ask(tolist, (self,))) is not NOTHING:
        return found
    raw = raw_of(self)
    if not isinstance(raw, ndarray) and (other := other_layout("tolist", self)) is not None:
        return other(self)
    raw = to_device(raw, CPU)
    return (raw.astype(np.float32) if raw.dtype.kind == "V" else raw).tolist()


@public(function=False, inplace=False, name="__bool__")
def truth(self):
    """Returns True if the only element is not zero.

    Raises:
        RuntimeError: there are several elements.
    """
    raw = raw_of(self)
    if raw.size != 1:
        raise RuntimeError(
            f"Boolean value of Tensor with {'no values' if raw.size == 0 else 'more than one value'} is ambiguous"
        )
    return bool(raw)


def _number_method(dunder, convert):
    def method(self):
        if raw_of(self).size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        value = item(self)
        if isinstance(value, complex) and convert is not complex:
            if value.imag:
                raise RuntimeError(f"value cannot be converted to {convert.__name__} without overflow: it is complex")
            value = value.real
        return convert(value)

    method.__name__ = dunder
    method.__doc__ = f"Converts a tensor with one element to {convert.__name__}."
    public(function=False, inplace=False)(method)


for _dunder, _convert in (("__float__", float), ("__int__", int), ("__complex__", complex)):
    _number_method(_dunder, _convert)


@public(function=False, inplace=False, name="__index__")
def index(self):
    """Returns the only element as an index.

    Raises:
        TypeError: there are several elements, or the element is not an integer.
    """
    if raw_of(self).size != 1 or self.dtype.category > dtypes.INT:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return operator.index(item(self))


@public(function=False, inplace=False, name="__format__")
def format_(self, spec):
    """Formats a 0-d tensor or Array as its number."""
    if raw_of(self).ndim == 0:
        return format(item(self), spec)
    return str(self) if not spec else object.__format__(self, spec)


@public(function=False, inplace=False, name="__iter__")
def iterate(self):
    """Iterates over the slices along the first axis."""
    if raw_of(self).ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@public(function=False, inplace=False, name="__contains__")
def contains(self, element):
    """Returns True if any element equals a value.

    Raises:
        RuntimeError: the value is neither a number nor a tensor.
    """
    if not is_operand(element):
        raise RuntimeError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {builtins.type(element)}."
        )
    return bool((self == element).any())


# -- shape and memory ---------------------------------------------------------------------------------------------


@public(function=False, inplace=False)
@metadata
def size(self, dim=None):
    """Returns the shape, or the size of one dimension.

    Args:
        dim: the dimension (default: None, all).

    Example:
        >>> mytorch.ones(2, 3).size(1)
        3
    """
    if overriding.modes and (found := overriding.ask(size, (self, dim))) is not NOTHING:
        return found
    return self.shape if dim is None else self.shape[dim]


@public(function=False, inplace=False, names=("ndimension",))
@metadata
def dim(self):
    """Returns the number of dimensions.

    Example:
        >>> mytorch.zeros(2, 3).dim()
        2
    """
    if overriding.modes and (found := overriding.ask(dim, (self,))) is not NOTHING:
        return found
    return self._mt_data._array.ndim  # called often, and `raw_of` takes 30 ns


@public(names=("nelement",), inplace=False)
@metadata
def numel(input):
    """Returns the number of elements."""
    if overriding.modes and (found := overriding.ask(numel, (input,))) is not NOTHING:
        return found
    require_tensor("numel", input)
    return raw_of(input).size


@public(function=False, inplace=False)
@metadata
def element_size(self):
    """Returns the number of bytes per element.

    Example:
        >>> mytorch.zeros(2, dtype=mytorch.float64).element_size()
        8
    """
    if overriding.modes and (found := overriding.ask(element_size, (self,))) is not NOTHING:
        return found
    return raw_of(self).itemsize


@public(function=False, inplace=False)
@metadata
def stride(self, dim=None):
    """Returns the strides: the number of elements in memory from one index to the next, along each axis.

    Args:
        dim: a single axis (default: None, all).

    Example:
        >>> mytorch.zeros(2, 3).stride(), mytorch.zeros(2, 3).T.stride()
        ((3, 1), (1, 3))
    """
    if overriding.modes and (found := overriding.ask(stride, (self, dim))) is not NOTHING:
        return found
    raw = raw_of(self)
    if not isinstance(raw, ndarray) and (other := other_layout("stride", self)) is not None:
        return other(self, dim)
    strides = element_strides(raw)  # NumPy's can be negative for axes of size 1
    if not raw.size and not any(strides):  # NumPy's strides of some empty arrays
        strides = row_major(raw.shape)
    return strides if dim is None else strides[dim]


@public(function=False, inplace=False)
@metadata
def storage_offset(self):
    """Returns the position of the first element in the memory that this tensor is a view of.

    Example:
        >>> mytorch.arange(5)[2:].storage_offset()
        2
    """
    if overriding.modes and (found := overriding.ask(storage_offset, (self,))) is not NOTHING:
        return found
    raw = raw_of(self)
    has_data = raw.size and not isinstance(raw, MetaArray)
    return (address(raw) - address(storage_bytes(raw))) // raw.itemsize if has_data else 0


@public(function=False, inplace=False)
@metadata
def is_contiguous(self, memory_format=None):
    """Returns True if the elements are in memory without gaps, in row-major order or in the order of a memory format.

    Args:
        memory_format: a memory format (default: None, row-major).

    Example:
        >>> mytorch.zeros(2, 3).is_contiguous(), mytorch.zeros(2, 3).T.is_contiguous()
        (True, False)
    """
    if overriding.modes and (found := overriding.ask(is_contiguous, (self, memory_format))) is not NOTHING:
        return found
    raw = raw_of(self)
    if memory_format is None and raw.flags.c_contiguous:
        return True
    if not isinstance(raw, ndarray) and (other := other_layout("is_contiguous", self)) is not None:
        return other(self, memory_format)
    return False if memory_format is None else lies_in(raw, memory_format)


@public(function=False, inplace=False)
@metadata
def data_ptr(self):
    """Returns the address of the first element; 0 for an empty tensor."""
    if overriding.modes and (found := overriding.ask(data_ptr, (self,))) is not NOTHING:
        return found
    raw = raw_of(self)
    if not isinstance(raw, ndarray) and (other := other_layout("data_ptr", self)) is not None:
        return other(self)
    return address(raw) if raw.size else 0


@public(function=False, inplace=False)
@metadata
def get_device(self):
    """Returns the number of the GPU; -1 for the CPU."""
    if overriding.modes and (found := overriding.ask(get_device, (self,))) is not NOTHING:
        return found
    where = self.device
    return -1 if where.index is None else where.index


@public(inplace=False)
@metadata
def is_floating_point(input):
    """Returns True if the dtype is a floating-point dtype.

    Example:
        >>> mytorch.is_floating_point(tensor([1.0])), mytorch.is_floating_point(tensor([1]))
        (True, False)
    """
    if overriding.modes and (found := overriding.ask(is_floating_point, (input,))) is not NOTHING:
        return found
    return input.dtype.is_floating_point


@public(inplace=False)
@metadata
def is_complex(input):
    """Returns True if the dtype is a complex dtype.

    Example:
        >>> mytorch.is_complex(tensor([1j]))
        True
    """
    if overriding.modes and (found := overriding.ask(is_complex, (input,))) is not NOTHING:
        return found
    return input.dtype.is_complex


@public(inplace=False, function=False)
def pin_memory(self, device=None):
    """Copies this tensor to page-locked CPU memory. `to("cuda", non_blocking=True)` can copy from it asynchronously.

    Returns the tensor itself if it already is in page-locked memory.

    Args:
        device: ignored; all GPUs use the same memory.

    Raises:
        RuntimeError: the tensor is on a GPU, or there is no GPU.
    """
    if is_pinned(raw_of(self)):
        return self
    if not self.requires_grad:
        return (Array if isinstance(self, Array) else Tensor)._wrap(pinned(raw_of(self)))
    out = self.clone()
    out._mt_data._array = pinned(raw_of(self))
    return out


@public(name="is_pinned", function=False, inplace=False)
def is_pinned_(self, device=None):
    """Returns True if the tensor is in page-locked CPU memory."""
    return is_pinned(raw_of(self))


# -- in place -----------------------------------------------------------------------------------------------------


@public(function=False, inplace=False, spellings={"other": "src"})
def copy_(self, src, non_blocking=False):
    """Copies the elements of another tensor into this tensor and returns this tensor.

    Args:
        src: tensor that broadcasts to this tensor, of any dtype and device.
        non_blocking: if True, does not wait for a copy from page-locked memory (default: False).
    """
    if src is self and 0 in self._mt_data._array.strides and not (get_mode().grad and self.requires_grad):
        self._mt_data._bump()  # allowed although elements share memory
        return self
    check_writable(self, "copy_")
    if not is_tensor(src):
        src = Tensor._wrap(as_raw(src))
    raw, source = self._mt_data._array, src._mt_data._array
    dense = isinstance(raw, ndarray), isinstance(source, ndarray)
    if dense != (True, True) and (other := other_layout("copy_", self, src)) is not None:
        return other(self, src, non_blocking)
    if dense == (True, False):
        records = get_mode().grad and (self.requires_grad or src.requires_grad)
        if non_blocking and not records and copy_later(source, raw):
            self._mt_data._bump()
            return self
        non_blocking = False  # the next statement reads it
    src = to(src, self.device, non_blocking=non_blocking)
    refuse_overlap(self, src, "copy_")
    if tuple(src.shape) != tuple(self.shape) or src.requires_grad:  # a new node: hooks of self do not change src
        src = name_node(src.expand(self.shape), "Copy", "CopyBackwards")
        if self.requires_grad and get_mode().grad and src.dtype.category <= self.dtype.category:
            # The gradient of the former values is 0, not None.
            src = named_constant(self, cast(src, self.dtype), "CopyBackwards")
    return adopt(self, cast(src, self.dtype) if src.dtype.category > self.dtype.category else src, "copy_")


@public(function=False, inplace=False)
def fill_(self, value):
    """Fills the tensor with a value and returns the tensor.

    Args:
        value: a number or a 0-d tensor.

    Example:
        >>> mytorch.zeros(2).fill_(3).tolist()
        [3.0, 3.0]
    """
    check_writable(self, "fill_")
    if is_tensor(value):
        if value.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions."
            )
        return copy_(self, value)
    if value is None or isinstance(value, str):
        raise TypeError(f"fill_: expected a number or a 0-d tensor, got {kind(value)}.")
    assign(
        self._mt_data._array,
        dtypes.fitting(value, self.dtype, self.numel() == 1) if isinstance(value, NUMBERS) else value,
    )
    return record_fill(self, "FillBackward2")


@public(function=False, inplace=False)
def zero_(self):
    """Fills the tensor with zeros and returns the tensor.

    Example:
        >>> tensor([1, 2]).zero_().tolist()
        [0, 0]
    """
    check_writable(self, "zero_")
    assign(self._mt_data._array, 0)
    return record_fill(self, "ZeroBackward0")


def _of_matrices(self, name, least=2, most=math.inf):
    """Returns the tensor if it has the number of axes that the attribute `name` requires.

    Raises:
        RuntimeError: it has another number of axes.
    """
    if self.ndim and not max(least, 2) <= self.ndim <= most:
        raise RuntimeError(
            f"tensor.{name} is only supported on matrices{' or batches of matrices' * (most > 2)}. Got {self.ndim}-D tensor."
        )
    return self


def _of_last_two(self):
    return self.transpose(-2, -1) if self.ndim else _permute.fast_call(self, ())


def _expected_matrix(self):
    if self.ndim not in (1, 2):
        warn_as_pytorch(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated. Consider `x.mT` to transpose "
            "batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        )
    return self


_attribute(
    "T", lambda self: _permute.fast_call(_expected_matrix(self), tuple(range(self.ndim))[::-1]),
    doc="A view with reversed dimensions.",
)  # fmt: skip
_attribute(
    "mT", lambda self: _of_last_two(_of_matrices(self, "mT")), doc="A view with the last two dimensions exchanged."
)
_attribute(
    "H", lambda self: _of_matrices(self, "H", 0, 2).transpose(-2, -1).conj() if self.ndim else self,
    doc="The conjugate transpose of a matrix.",
)  # fmt: skip
_attribute("is_cpu", lambda self: self.device.type == "cpu", doc="True if the tensor is on the CPU.")
