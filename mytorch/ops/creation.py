"""Making tensors from numbers and arrays, and turning them into other kinds: dtype, device, NumPy, Python."""

import builtins
import math
import operator

import numpy as np

from .._array import Array, as_raw, place_for
from .._tensor import Tensor, is_tensor
from ..backend import (
    CPU,
    NO_DATA,
    address,
    as_device,
    assign,
    copy_later,
    device,
    is_pinned,
    ndarray,
    numpy_ns,
    on,
    out_of_memory,
    pinned,
    storage_bytes,
    to_device,
)
from ..backend.memory_format import axes_in_memory, channel_axes, in_order, lies_in, preserve_format
from ..base import config, dtypes
from ..base.errors import kind, warn
from ..dispatch.bind import _attribute, public
from ..dispatch.inplace import adopt, check_writable, set_edge
from ..dispatch.op import op
from ..dispatch.operands import is_operand
from ..dispatch.overlap import refuse_overlap
from ..dispatch.unwrap import raw_of
from ..engine.mode import get_mode
from .elementwise import cast, named
from .movement import _permute, as_shape

# -- from data -----------------------------------------------------------------------------------------------


@public(method=False)
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A new leaf tensor with a copy of `data`: numbers, nested lists, arrays or tensors.

    Python floats become the default dtype, ints int64, bools bool; arrays keep their dtype.

    Args:
        pin_memory: put it into page-locked memory, from which copies to a GPU need not be waited for.

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
    raw = as_raw(data, place_for(data, device), dtype)
    inner = getattr(data, "_data", data)
    shared = raw is (inner._array if isinstance(inner, Array) else inner) or getattr(raw, "base", None) is not None
    if shared and not isinstance(data, (int, float, bool, complex, list, tuple)):
        raw = raw.copy()
    return finish(raw, requires_grad, pin=pin_memory)


@public(method=False, names=("asarray",), spellings={"obj": "data"})
def as_tensor(data, dtype=None, device=None, *, copy=None, requires_grad=False):
    """`data` as a tensor, sharing memory (and the graph) where dtype and device already fit.

    Args:
        data: a tensor, an array, or nested sequences of numbers.
        dtype, device: of the result; by default those of data. copy: True always copies.

    Example:
        >>> mytorch.as_tensor(np.array([1.0, 2.0])).dtype
        mytorch.float64
    """
    if isinstance(data, Tensor):
        found = data.to(device=device, dtype=dtype, copy=bool(copy))
        return found.detach().requires_grad_() if requires_grad and not found.requires_grad else found
    raw = as_raw(data, place_for(data, device), dtype)
    return finish(raw.copy() if copy else raw, requires_grad)


@public(method=False)
def from_numpy(ndarray):
    """A tensor that shares a NumPy array's memory.

    Raises:
        TypeError: not a NumPy array, or of a dtype that tensors don't have.
        ValueError: negative strides.

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
    dtypes.from_numpy(ndarray.dtype)
    if not ndarray.flags.writeable:
        warn(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors (non-writable). Copy it "
            "to write to it."
        )
    return Tensor._wrap(ndarray)


public(method=False)(is_tensor)


# -- what all creation functions share -------------------------------------------------------------------------


def finish(raw, requires_grad, out=None, pin=False):
    """A new raw array as a tensor: in `out` if that is given, in page-locked memory if `pin`."""
    if out is not None:  # keeps its dtype, and its shape where a range fits into it
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
    """Refuse a negative one."""
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")


def size_and_pin(name, size, named):
    """The shape that `*size` or `size=` gives, and whether `pin_memory` is set; refuses any other keyword.

    PyTorch's layout and names are accepted, and change nothing here.
    """
    shape = as_shape(named.pop("size", named.pop("shape", size)))
    for word in ("layout", "names"):
        named.pop(word, None)
    pin = named.pop("pin_memory", False)
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
    check_sizes(shape)
    return shape, pin


def like(input, dtype=None, device=None):
    """The dtype and device of a tensor made like input, where none are given."""
    return {"dtype": input.dtype if dtype is None else dtype, "device": input.device if device is None else device}


def _default(dtype):
    return dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)


def elements(shape, itemsize):
    """How many elements a shape has, refused where their bytes or strides are no int64.

    Raises:
        RuntimeError: they are none.
    """
    if math.prod(max(n, 1) for n in shape) >= 1 << 63:
        raise RuntimeError(f"Stride calculation overflowed with sizes={list(shape)}")
    n = math.prod(shape)
    if n * itemsize >= 1 << 63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    return n


def _filled(make, shape, dtype, device, requires_grad, out=None, pin=False):
    """A tensor of `make(xp, shape, dtype)`, on a device."""
    check_sizes(shape)
    xp, there = on(as_device(device))
    try:
        with there:
            return finish(make(xp, shape, _default(dtype).numpy), requires_grad, out, pin)
    except ValueError:
        elements(shape, _default(dtype).itemsize)
        raise
    except MemoryError as error:
        if xp is numpy_ns:
            raise
        raise out_of_memory(error) from None


# -- constant and sequential -----------------------------------------------------------------------------------


def uninitialized(raw):
    """A raw array whose elements mean nothing, filled with NaN or the largest number if the program asked for that."""
    if config.fill_uninitialized:
        raw.fill(np.nan if raw.dtype.kind in "fcV" else True if raw.dtype.kind == "b" else np.iinfo(raw.dtype).max)
    return raw


def _constant(name, text, show, shown, shown_like):
    """The functions `name`, of a size, and `name_like`, of a tensor's size, dtype and device."""

    def make(xp, shape, dtype):
        raw = getattr(xp, name)(shape, dtype)
        return uninitialized(raw) if name == "empty" else raw

    def of_size(*size, out=None, dtype=None, device=None, requires_grad=False, memory_format=None, **named):
        shape, pin = size_and_pin(name, size, named)
        laid_out = in_order(make, channel_axes(len(shape), memory_format))
        return _filled(laid_out, shape, dtype, device, requires_grad, out, pin)

    def of_input(
        input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None, pin_memory=False
    ):
        shape = tuple(input.shape)
        laid_out = in_order(make, axes_in_memory(raw_of(input), memory_format))
        return _filled(laid_out, shape, requires_grad=requires_grad, pin=pin_memory, **like(input, dtype, device))

    of_size.__name__ = of_size.__qualname__ = name
    of_size.__doc__ = f"""A tensor of the given size (ints, or one tuple of them), {text}.

    Example:
        >>> mytorch.{name}(2){show}
        {shown}
    """
    of_input.__name__ = of_input.__qualname__ = name + "_like"
    of_input.__doc__ = f"""A tensor of input's size, dtype and device, {text}.

    Example:
        >>> mytorch.{name}_like(tensor([7, 8, 9])){show}
        {shown_like}
    """
    return public(method=False)(of_size), public(method=False)(of_input)


zeros, zeros_like = _constant("zeros", "filled with 0", ".tolist()", [0.0, 0.0], [0, 0, 0])
ones, ones_like = _constant("ones", "filled with 1", ".tolist()", [1.0, 1.0], [1, 1, 1])
empty, empty_like = _constant("empty", "not initialised", ".shape", "mytorch.Size([2])", "mytorch.Size([3])")


@public(method=False)
def full(
    size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
    names=None,
):  # fmt: skip
    """A tensor of the given size filled with one value, whose kind gives the dtype.

    Args:
        size: the shape. fill_value: a number, or a tensor of one element.
        dtype, device, requires_grad: of the result. pin_memory: page-locked, for copies to a GPU.

    Example:
        >>> mytorch.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
    """
    if is_tensor(fill_value):
        dtype = fill_value.dtype if dtype is None else dtype
        fill_value = fill_value.item()
    dtype = dtypes.of_number(fill_value) if dtype is None else dtype
    shape = as_shape((size,))
    return _filled(lambda xp, s, d: xp.full(s, fill_value, d), shape, dtype, device, requires_grad, out, pin_memory)


@public(method=False)
def full_like(
    input, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None,
    pin_memory=False,
):  # fmt: skip
    """A tensor of input's size, dtype and device filled with one value.

    Args:
        fill_value: the number.
        dtype, layout, device, requires_grad, memory_format, pin_memory: as for `mytorch.tensor`.

    Example:
        >>> mytorch.full_like(tensor([1.0, 2.0]), 3).tolist()
        [3.0, 3.0]
    """
    out = empty_like(input, memory_format=memory_format, pin_memory=pin_memory, **like(input, dtype, device))
    return out.fill_(fill_value).requires_grad_(requires_grad)


def _number(x):
    return x.item() if isinstance(x, (Tensor, Array, np.generic)) else x


@public(method=False)
def arange(
    start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """The numbers from start (0 if only one is given) up to but not including end, `step` apart.

    int64 if all three are ints, else the default dtype.

    Args:
        start: the first number. end: the first one left out. step: the distance, negative to count down.
        dtype, device, requires_grad: of the result.

    Raises:
        RuntimeError: step is 0 or leads away from end.

    Example:
        >>> mytorch.arange(1, 7, 2).tolist()
        [1, 3, 5]
    """
    start, end, step = _number(start), _number(end), _number(step)
    if end is None:
        start, end = 0, start
    if dtype is not None and dtypes.as_dtype(dtype).category == dtypes.INT:
        start, end, step = int(start), int(end), int(step)  # as PyTorch
    if step == 0 or step != step:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is None:
        dtype = dtypes.default_dtype() if any(isinstance(v, float) for v in (start, end, step)) else dtypes.int64
    if (end - start) / step >= 1 << 63:
        raise RuntimeError(f"invalid size, possible overflow: the range {start} -> {end} has too many numbers")
    exact = np.int64 if all(isinstance(v, int) for v in (start, end, step)) else np.float64
    xp, there = on(as_device(device))
    with there:
        numbers = xp.arange(math.ceil((end - start) / step), dtype=exact) * step + start
        raw = numbers.astype(dtypes.as_dtype(dtype).numpy, copy=False)
    return finish(raw, requires_grad, out, pin_memory)


@public(method=False)
def linspace(
    start, end, steps, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """`steps` numbers from start to end, both included, evenly spaced.

    Args:
        start, end: the first and the last number. steps: how many.
        dtype, device, requires_grad: of the result.

    Example:
        >>> mytorch.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
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
        raw = xp.linspace(number(start), number(end), steps)
        raw = (xp.trunc(raw) if d.category < dtypes.FLOAT else raw).astype(d.numpy)
    return finish(raw, requires_grad, out, pin_memory)


@public(method=False)
def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """An (n, m) matrix with ones on the diagonal; m is n if not given.

    Args:
        n: rows.
        m: columns; n by default.
        out: tensor to write the result into.
        dtype, layout, device, requires_grad, pin_memory: as for `mytorch.tensor`.

    Example:
        >>> mytorch.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    shape = (n, n if m is None else m)
    return _filled(lambda xp, shape, d: xp.eye(*shape, dtype=d), shape, dtype, device, requires_grad, out, pin_memory)


# -- new_* methods -----------------------------------------------------------------------------------------------


def _new(make):
    @public(function=False, inplace=False)
    @named("new_" + make.__name__, f"As `mytorch.{make.__name__}`, with self's dtype and device by default.")
    def method(self, *size, dtype=None, device=None, requires_grad=False, **named):
        return make(*size, requires_grad=requires_grad, **like(self, dtype, device), **named)


for _make in (zeros, ones, empty, full):
    _new(_make)


@public(function=False, inplace=False)
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """As `mytorch.tensor`, with self's dtype and device by default.

    Args:
        data: numbers, nested lists, an array.
        dtype: self's by default.
        device: self's by default.
        requires_grad: as for `mytorch.tensor`.
    """
    return tensor(data, requires_grad=requires_grad, **like(self, dtype, device))


# -- dtype and device --------------------------------------------------------------------------------------------


@op(dtype="same")
def _to_device(xp, input, *, where, home, non_blocking):
    return to_device(input, where, non_blocking)


_to_device.grad(input=lambda g, where, home, xp: xp.call(_to_device, g, where=home, home=where, non_blocking=False))


@public(function=False, inplace=False)
def to(self, *args, **named):
    """self on another device or as another dtype; self itself if nothing has to change.

    Args:
        *args: a dtype, a device, a device and a dtype, or another tensor, whose dtype and device are taken; then,
            or by name, `non_blocking` and `copy`.

    Example:
        >>> mytorch.tensor([1, 2]).to(mytorch.float64).dtype
        mytorch.float64
    """
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
    return result if memory_format in (None, preserve_format) else result.contiguous(memory_format)


def _cast_method(name, d):
    @public(function=False, inplace=False)
    @named(name, f"self as {d.name}.")
    def method(self, memory_format=None):
        result = cast(self, d)
        return result if memory_format in (None, preserve_format) else result.contiguous(memory_format)

    return method


for _word, _dtype in (
    ("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
    ("long", dtypes.int64), ("int", dtypes.int32), ("short", dtypes.int16), ("char", dtypes.int8),
    ("byte", dtypes.uint8), ("bool", dtypes.bool_), ("cfloat", dtypes.complex64), ("cdouble", dtypes.complex128),
):  # fmt: skip
    _cast_method(_word, _dtype)


@public(function=False, inplace=False)
def astype(self, dtype):
    """self as `dtype`, NumPy's spelling of `to`."""
    return cast(self, dtypes.as_dtype(dtype))


@public(function=False, inplace=False)
def type(self, dtype=None):
    """The type's name, as "torch.FloatTensor" is in PyTorch; with a dtype, or such a name or type, self cast to it."""
    words = dtypes.TYPE_WORDS
    if dtype is not None:
        dtype = getattr(dtype, "own_dtype", dtype)
        if isinstance(dtype, str) and dtype.endswith("Tensor"):
            word = dtype.rpartition(".")[2].removesuffix("Tensor")
            dtype = next((name for name, known in words.items() if known == word), dtype)
        return cast(self, dtypes.as_dtype(dtype))
    prefix = "" if self.device.type == "cpu" else f"{self.device.type}."
    return f"{config.torch_name()}.{prefix}{words.get(self.dtype.name, self.dtype.name)}Tensor"


@public(function=False, inplace=False)
def cpu(self, memory_format=None):
    """self in CPU memory."""
    return to(self, CPU)


@public(function=False, inplace=False)
def cuda(self, device=None, non_blocking=False, memory_format=None):
    """self on a GPU, the current one by default.

    Args:
        device: a GPU's number or "cuda:0"; the current one by default.
        non_blocking: do not wait for a copy from page-locked memory.
        memory_format: order of the axes in memory.
    """
    return to(self, "cuda" if device is None else device, non_blocking=non_blocking)


# -- to Python and NumPy --------------------------------------------------------------------------------------------


@public(function=False, inplace=False)
def numpy(self, *, force=False):
    """The NumPy array underneath, sharing memory; of a tensor on a GPU a copy.

    Args:
        force: also for tensors that require grad.

    Raises:
        RuntimeError: the tensor requires grad, and gradients are being recorded.
        TypeError: it lies on a GPU, under `install_as_torch`, as PyTorch refuses that.

    Example:
        >>> mytorch.tensor([1.5, 2.0]).numpy().sum().item()
        3.5
    """
    if not force and self.requires_grad and get_mode().grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    raw = raw_of(self)
    if config.pytorch_mode and not isinstance(raw, ndarray) and not force:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return to_device(raw, CPU)


@public(function=False, inplace=False)
def item(self):
    """The only element, as a Python number.

    Raises:
        RuntimeError: there is not exactly one.

    Example:
        >>> mytorch.tensor([2.5]).item()
        2.5
    """
    raw = raw_of(self)
    if raw.size != 1:
        raise RuntimeError(f"a Tensor with {raw.size} elements cannot be converted to Scalar")
    value = raw.item()
    return value if isinstance(value, (int, float, bool, complex)) else float(value)


@public(function=False, inplace=False)
def tolist(self):
    """The elements as nested lists of Python numbers.

    Example:
        >>> mytorch.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
    """
    raw = to_device(raw_of(self), CPU)
    return (raw.astype(np.float32) if raw.dtype.kind == "V" else raw).tolist()


@public(function=False, inplace=False, name="__bool__")
def truth(self):
    """Whether the only element is not zero.

    Raises:
        RuntimeError: there are several.
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
        return convert(item(self))

    method.__name__ = dunder
    method.__doc__ = f"`{convert.__name__}(self)`, for a tensor of one element."
    public(function=False, inplace=False)(method)


for _dunder, _convert in (("__float__", float), ("__int__", int), ("__complex__", complex)):
    _number_method(_dunder, _convert)


@public(function=False, inplace=False, name="__index__")
def index(self):
    """The element as an index; there must be one, and a whole number.

    Raises:
        TypeError: several elements, or a fraction.
    """
    if raw_of(self).size != 1 or self.dtype.category > dtypes.INT:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return operator.index(item(self))


@public(function=False, inplace=False, name="__format__")
def format_(self, spec):
    """A tensor or Array of no dimension formats as its number."""
    if raw_of(self).ndim == 0:
        return format(item(self), spec)
    return str(self) if not spec else object.__format__(self, spec)


@public(function=False, inplace=False, name="__iter__")
def iterate(self):
    """The slices along the first axis."""
    if raw_of(self).ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@public(function=False, inplace=False, name="__contains__")
def contains(self, element):
    """Whether any element equals the given one.

    Raises:
        RuntimeError: it is neither a number nor a tensor.
    """
    if not is_operand(element):
        raise RuntimeError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {builtins.type(element)}."
        )
    return bool((self == element).any())


# -- shape and memory ---------------------------------------------------------------------------------------------


@public(function=False, inplace=False)
def size(self, dim=None):
    """The shape, or one of its numbers."""
    return self.shape if dim is None else self.shape[dim]


@public(function=False, inplace=False, names=("ndimension",))
def dim(self):
    """The number of axes."""
    return raw_of(self).ndim


@public(names=("nelement",), inplace=False)
def numel(input):
    """The number of elements."""
    return raw_of(input).size


@public(function=False, inplace=False)
def element_size(self):
    """Bytes per element."""
    return raw_of(self).itemsize


@public(function=False, inplace=False)
def stride(self, dim=None):
    """How many elements apart neighbours along each axis lie in memory."""
    raw = raw_of(self)
    strides = tuple(s // raw.itemsize for s in raw.strides)
    return strides if dim is None else strides[dim]


@public(function=False, inplace=False)
def storage_offset(self):
    """The position of the first element in the memory that this tensor is a view of."""
    raw = raw_of(self)
    return (address(raw) - address(storage_bytes(raw))) // raw.itemsize if raw.size else 0


@public(function=False, inplace=False)
def is_contiguous(self, memory_format=None):
    """Whether the elements lie in memory without gaps, in row-major order or that of a memory format."""
    raw = raw_of(self)
    return raw.flags.c_contiguous if memory_format is None else lies_in(raw, memory_format)


@public(function=False, inplace=False)
def data_ptr(self):
    """The address of the first element; 0 if there is none."""
    raw = raw_of(self)
    return address(raw) if raw.size else 0


@public(function=False, inplace=False)
def get_device(self):
    """The GPU's number; -1 for the CPU."""
    where = self.device
    return -1 if where.index is None else where.index


@public(inplace=False)
def is_floating_point(input):
    """Whether the dtype is a floating point one."""
    return input.dtype.is_floating_point


@public(inplace=False)
def is_complex(input):
    """Whether the dtype is a complex one."""
    return input.dtype.is_complex


@public(inplace=False, function=False)
def pin_memory(self, device=None):
    """A copy in page-locked CPU memory, from which `to("cuda", non_blocking=True)` copies while the program goes on.

    self, if it lies there. `device` is accepted: all GPUs take the same memory.

    Raises:
        RuntimeError: self is on a GPU, or there is none.
    """
    if is_pinned(raw_of(self)):
        return self
    if not self.requires_grad:
        return (Array if isinstance(self, Array) else Tensor)._wrap(pinned(raw_of(self)))
    out = self.clone()
    out._data._array = pinned(raw_of(self))
    return out


@public(name="is_pinned", function=False, inplace=False)
def is_pinned_(self, device=None):
    """Whether it lies in page-locked CPU memory."""
    return is_pinned(raw_of(self))


# -- in place -----------------------------------------------------------------------------------------------------


@public(function=False, inplace=False, spellings={"other": "src"})
def copy_(self, src, non_blocking=False):
    """Copy src, which may broadcast and be of another dtype or device, into self; returns self."""
    check_writable(self, "copy_")
    if not is_tensor(src):
        src = Tensor._wrap(as_raw(src))
    if isinstance(raw_of(self), ndarray) and not isinstance(raw_of(src), ndarray):
        records = get_mode().grad and (self.requires_grad or src.requires_grad)
        if non_blocking and not records and copy_later(raw_of(src), raw_of(self)):
            self._data._bump()
            return self
        non_blocking = False  # what comes next reads it
    src = to(src, self.device, non_blocking=non_blocking)
    refuse_overlap(self, src, "copy_")
    if tuple(src.shape) != tuple(self.shape):
        src = src.expand(*self.shape)
    return adopt(self, cast(src, self.dtype) if src.dtype.category > self.dtype.category else src, "copy_")


@public(function=False, inplace=False)
def fill_(self, value):
    """Fill with one value; returns self."""
    check_writable(self, "fill_")
    if is_tensor(value):
        return copy_(self, value)
    array = self._data
    assign(array._array, value)
    array._bump()
    mode = get_mode()
    if mode.interpreter:
        mode.interpreter.adopt(self, None)
    if isinstance(self, Tensor) and mode.grad and self._edge is not None and not self.is_leaf:
        set_edge(self, (self * 0)._edge)
    return self


@public(function=False, inplace=False)
def zero_(self):
    """Fill with 0; returns self."""
    return fill_(self, 0)


def _of_matrices(self, name, least=2, most=math.inf):
    """self, if it has as many axes as the attribute `name` takes.

    Raises:
        RuntimeError: it has not.
    """
    if not least <= self.ndim <= most or (least == 0 and self.ndim == 1):
        raise RuntimeError(
            f"tensor.{name} is only supported on matrices{' or batches of matrices' * (most > 2)}. Got {self.ndim}-D tensor."
        )
    return self


_attribute("T", lambda self: _permute.fast_call(self, tuple(range(self.ndim))[::-1]))
_attribute("mT", lambda self: _of_matrices(self, "mT").transpose(-2, -1))
_attribute("H", lambda self: _of_matrices(self, "H", 0, 2).transpose(-2, -1).conj() if self.ndim else self)
_attribute("is_cpu", lambda self: isinstance(raw_of(self), ndarray))
