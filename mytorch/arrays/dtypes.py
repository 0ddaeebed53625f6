"""The dtypes, their names, and PyTorch's rules of type promotion.

A `dtype` is one of a fixed set of objects, so you can compare dtypes with `is`. NumPy functions accept these dtypes
(`np.zeros(3, mytorch.float32)`), and `==` accepts NumPy dtypes. bfloat16 is `ml_dtypes.bfloat16`.

Promotion follows PyTorch (https://pytorch.org/docs/stable/tensor_attributes.html). Values have one of three ranks:
tensors with dimensions, tensors without dimensions, and Python numbers. A lower rank changes the dtype of the result only
if its category is higher (bool < integer < float < complex). If a Python float does so, the result has the default dtype.
"""

import functools
import math

import ml_dtypes
import numpy as np

from . import config

_BY_NUMPY = {}
_BY_NAME = {}


# Names of dtypes in the type names of PyTorch, as in FloatTensor.
TYPE_WORDS = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
    "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}  # fmt: skip


def word_of(dtype):
    """Returns the word for a dtype in PyTorch's messages, such as "Float"; its name if there is none."""
    return TYPE_WORDS.get(dtype.name, dtype.name)


class dtype:
    """The type of the elements of a tensor, such as `mytorch.float32`.

    There is one object for each dtype. `dtype(like)` returns the object for a name, a NumPy dtype or a Python type.

    Args:
        like: a dtype, a name such as "float32", a NumPy dtype, or `bool`, `int`, `float` or `complex`.

    Attributes:
        name: the name, such as "float32".
        numpy: the NumPy dtype.
        itemsize: size of an element in bytes.
        is_floating_point: True for floating point dtypes.
        is_complex: True for complex dtypes.
        is_signed: False for bool and unsigned integers.

    Example:
        >>> mytorch.dtype("float16").itemsize, mytorch.int64.is_signed
        (2, True)
    """

    __slots__ = ("category", "dtype", "is_complex", "is_floating_point", "is_signed", "itemsize", "name", "numpy")
    __module__ = "mytorch"  # the name that signatures show
    name: str
    itemsize: int
    category: int
    is_floating_point: bool
    is_complex: bool
    is_signed: bool

    def __new__(cls, like):
        return as_dtype(like)

    @classmethod
    def _make(cls, name, scalar_type, category, *aliases):
        self = object.__new__(cls)
        self.name = name
        self.numpy = self.dtype = np.dtype(scalar_type)
        self.itemsize = self.numpy.itemsize
        self.category = category
        self.is_floating_point = category == FLOAT
        self.is_complex = category == COMPLEX
        self.is_signed = name not in ("bool", "uint8", "uint16", "uint32", "uint64")
        _BY_NUMPY[self.numpy] = self
        for word in (name, *aliases):
            _BY_NAME[word] = self
        return self

    @property
    def type(self):
        """The NumPy scalar type."""
        return self.numpy.type

    def __repr__(self):
        return f"{config.torch_name()}.{self.name}"

    def __eq__(self, other):
        if isinstance(other, np.dtype) or (isinstance(other, type) and issubclass(other, np.generic)):
            return self.numpy == other
        return self is other

    def __hash__(self):
        return hash(self.numpy)

    def __reduce__(self):
        return as_dtype, (self.name,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def to_real(self):
        """Returns the dtype of the real part of a complex dtype. Returns other dtypes unchanged."""
        return {complex64: float32, complex128: float64}.get(self, self)

    def to_complex(self):
        """Returns the complex dtype whose real and imaginary parts have this dtype.

        Raises:
            RuntimeError: this dtype is an integer dtype.
        """
        if self.category < FLOAT:
            raise RuntimeError(f"to_complex: no complex dtype has parts of {self}")
        return {float32: complex64, float64: complex128}.get(self, self if self.is_complex else complex64)


BOOL, INT, FLOAT, COMPLEX = range(4)

bool_ = dtype._make("bool", np.bool_, BOOL)
uint8 = dtype._make("uint8", np.uint8, INT)
uint16 = dtype._make("uint16", np.uint16, INT)
uint32 = dtype._make("uint32", np.uint32, INT)
uint64 = dtype._make("uint64", np.uint64, INT)
int8 = dtype._make("int8", np.int8, INT)
int16 = dtype._make("int16", np.int16, INT, "short")
int32 = dtype._make("int32", np.int32, INT, "int")
int64 = dtype._make("int64", np.int64, INT, "long")
float16 = dtype._make("float16", np.float16, FLOAT, "half")
bfloat16 = dtype._make("bfloat16", ml_dtypes.bfloat16, FLOAT)
float32 = dtype._make("float32", np.float32, FLOAT, "float")
float64 = dtype._make("float64", np.float64, FLOAT, "double")
complex64 = dtype._make("complex64", np.complex64, COMPLEX, "cfloat")
complex128 = dtype._make("complex128", np.complex128, COMPLEX, "cdouble")


class _HalfComplex(dtype):
    """Half-precision complex numbers: programs can compare with this dtype, but tensors cannot have it."""

    __slots__ = ()

    def __reduce__(self):
        return "complex32"


chalf = complex32 = object.__new__(_HalfComplex)
for _name, _value in {
    "name": "complex32", "numpy": np.dtype("f2, f2"), "itemsize": 4, "category": COMPLEX, "is_complex": True, "is_floating_point": False, "is_signed": True,
}.items():  # fmt: skip
    setattr(complex32, _name, _value)

half, double, long, short, cfloat, cdouble = float16, float64, int64, int16, complex64, complex128
ALL = tuple(_BY_NUMPY.values())
FLOAT8 = tuple(  # for storage and casts only
    dtype._make(name, getattr(ml_dtypes, name), FLOAT)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
)

_BY_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}  # as PyTorch reads `dtype=float`
_default = float32


def default_dtype():
    """Returns the dtype of new floating point tensors: float32, unless `set_default_dtype` changed it."""
    return _default


def set_default_dtype(d):
    """Sets the dtype of tensors that are created from Python floats, or without a dtype.

    Args:
        d: a floating point dtype.

    Raises:
        TypeError: `d` is not a floating point dtype.

    Example:
        >>> mytorch.set_default_dtype(mytorch.float64)
        >>> mytorch.tensor([1.0]).dtype
        mytorch.float64
        >>> mytorch.set_default_dtype(mytorch.float32)
    """
    global _default
    d = as_dtype(d)
    if not d.is_floating_point:
        raise TypeError(f"set_default_dtype: only floating point dtypes are supported, {d} is not one.")
    _default = d


def from_numpy(numpy_dtype):
    """Returns the dtype for a NumPy dtype.

    Raises:
        TypeError: tensors do not support the NumPy dtype (strings, objects, dates, float128, …).
    """
    found = _BY_NUMPY.get(numpy_dtype)
    if found is None:
        found = _BY_NUMPY.get(numpy_dtype.newbyteorder("="))
    if found is None:
        raise TypeError(
            f"can't make a tensor of numpy dtype {numpy_dtype}; the supported ones are "
            + ", ".join(d.name for d in ALL)
            + "."
        )
    return found


def as_dtype(like):
    """Returns the dtype for `like`: a dtype, a name, a NumPy dtype or scalar type, or a Python type."""
    if type(like) is dtype:
        return like
    found = _BY_PYTHON.get(like) if isinstance(like, type) else None
    if found is None and isinstance(like, str):
        found = _BY_NAME.get(like.removeprefix("mytorch.").removeprefix("torch."))
    if found is not None:
        return found
    try:
        return from_numpy(np.dtype(like))
    except TypeError:
        if isinstance(like, dtype):
            raise NotImplementedError(f"{like.name}: expected a dtype of tensors. Use complex64.") from None
        raise TypeError(f"{like!r} is not a dtype; expected one like mytorch.float32 or 'float32'.") from None


def as_numpy(like):
    """Returns the NumPy dtype for `like`; see `as_dtype`."""
    return like.numpy if type(like) is dtype else as_dtype(like).numpy


_LADDER = {d: i for i, d in enumerate((uint8, int8, int16, int32, int64))}


def promote_types(type1, type2):
    """Returns the dtype of the result of an operation on tensors of two dtypes, by PyTorch's rules.

    An integer with a float gives the float, unlike in NumPy: int64 with float16 gives float16. float16 with bfloat16
    gives float32.

    Args:
        type1: a dtype.
        type2: a dtype.

    Raises:
        RuntimeError: promotion of the dtypes is not supported, such as uint16 with int16.

    Example:
        >>> mytorch.promote_types(mytorch.int64, mytorch.float16)
        mytorch.float16
    """
    a, b = as_dtype(type1), as_dtype(type2)
    if a is b:
        return a
    if a.category != b.category:
        low, high = (a, b) if a.category < b.category else (b, a)
        if high is complex64 and low is float64:
            return complex128
        return high
    if a.category == FLOAT:
        if {a, b} == {float16, bfloat16}:
            return float32
        return a if a.itemsize > b.itemsize else b
    if a.category == COMPLEX:
        return complex128
    if a not in _LADDER or b not in _LADDER:  # uint16, uint32, uint64
        wide, other = (a, b) if a.itemsize >= b.itemsize else (b, a)
        if not other.is_signed and not (wide.is_signed and wide.itemsize == other.itemsize):
            return wide
        raise RuntimeError(f"Promotion for {a.name} and {b.name} is not supported; cast one of them with .to(dtype).")
    if uint8 in (a, b):
        signed = b if a is uint8 else a
        return int16 if signed is int8 else signed
    return a if _LADDER[a] > _LADDER[b] else b


def of_number(value):
    """Returns the dtype of a tensor that is created from a Python or NumPy number."""
    kind = type(value)
    if kind is bool:
        return bool_
    if kind is int:
        return int64
    if kind is float:
        return _default
    if kind is complex:
        return _default.to_complex()
    if isinstance(value, np.generic):
        return from_numpy(value.dtype)
    raise TypeError(f"expected a number, got {kind.__name__}.")


def result_type(dimensioned, zero_dim, numbers):
    """Returns the dtype of an operation on tensors with dimensions, tensors without dimensions, and Python numbers.

    Args:
        dimensioned: dtypes of the tensors with dimensions; can be empty.
        zero_dim: dtypes of the tensors without dimensions; can be empty.
        numbers: dtypes of the Python numbers; can be empty.
    """
    result = None
    for rank in (dimensioned, zero_dim, numbers):
        best = None
        for d in rank:
            best = d if best is None else promote_types(best, d)
        if best is None:
            continue
        if result is None:
            result = best
        elif best.category > result.category:
            if best.category == COMPLEX and result.category == FLOAT:
                best = result.to_complex()
            result = best
    return result


_C_NAMES = {
    "float32": "float",
    "float64": "double",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "int64": "long int",
}


_C_NUMBERS = {**_C_NAMES, "int64": "int64_t", "int32": "int", "complex64": "c10::complex<float>"}


@functools.cache
def _bounds(dtype):
    """Returns the smallest and the largest number of a dtype. As in PyTorch, unsigned dtypes accept -1, which wraps."""
    if dtype.category == FLOAT:
        return -float(finfo(dtype).max), float(finfo(dtype).max)
    info = iinfo(dtype)
    return info.min or -info.max, info.max


def fitting(value, dtype, fill=False):
    """Converts a Python number to the values of a dtype, as PyTorch converts the numbers that it writes to tensors.

    Fractions are dropped. For unsigned dtypes, negative numbers of their range wrap.

    Args:
        value: the number.
        fill: True to round to float16 and bfloat16 without a check, as for a single element (default: False).

    Raises:
        RuntimeError: the number is out of range.
    """
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        raise OverflowError("int too big to convert" if value > 0 else "can't convert negative int to unsigned")
    if dtype is bool_:
        return bool(value)
    if dtype.category == COMPLEX:
        fits, parts = True, (value.real, value.imag)
        if dtype is complex64:
            largest = _bounds(float32)[1]
            fits = all(abs(part) <= largest or not math.isfinite(part) for part in parts)
    elif fits := type(value) is not complex or not value.imag:
        value = value.real if type(value) is complex else value
        if fill and dtype.category == FLOAT and dtype.itemsize == 2:
            return float(value)
        low, high = _bounds(dtype)
        low = 0 if low == -high and type(value) is float and dtype.category < FLOAT else low
        fits = low <= value <= high or (dtype.category == FLOAT and not math.isfinite(value))
        if fits and dtype.category < FLOAT:
            value = int(value) & high if low == -high else int(value)  # of an unsigned dtype
        elif type(value) is int:
            value = float(value)
    if not fits:
        name = _C_NUMBERS.get(dtype.name, f"{dtype.name}_t")
        raise RuntimeError(f"value cannot be converted to type {name} without overflow")
    return value


def refuse_mixed(op_name, found):
    """Raises the error of PyTorch if the inputs of a matrix product have different dtypes.

    Args:
        found: dtypes of the inputs.

    Raises:
        RuntimeError: dtypes differ.
    """
    first = found[0]
    other = next((d for d in found if d is not first), first)
    if other is first:
        return
    words, names = list(map(word_of, (first, other))), [_C_NAMES.get(d.name, d.name) for d in (first, other)]
    if op_name == "linear" and len(found) > 2:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {words[0]} and {words[1]}")
    if op_name == "convolution":
        what = "bias" if found[-1] is other and len(found) > 2 else "weight"
        raise RuntimeError(f"Input type ({names[0]}) and {what} type ({names[1]}) should be the same")
    if op_name == "einsum":
        raise RuntimeError(f"expected scalar type {words[0]} but found {words[1]}")
    raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}")


def can_cast(from_, to):
    """Returns True if an in-place operation can store a result of dtype `from_` in a tensor of dtype `to`.

    Args:
        from_: dtype of the result.
        to: dtype of the tensor.

    Example:
        >>> mytorch.can_cast(mytorch.float32, mytorch.int64)
        False
    """
    a, b = as_dtype(from_), as_dtype(to)
    return a.category <= b.category


class finfo:
    """Numerical limits of a floating point dtype.

    Args:
        type: a floating point or complex dtype (default: the default dtype).

    Attributes:
        bits: number of bits.
        eps: difference between 1.0 and the next larger number.
        max: largest number.
        min: smallest (most negative) number.
        tiny: smallest positive normal number; also `smallest_normal`.
        resolution: approximate decimal resolution.
        dtype: name of the dtype.

    Raises:
        TypeError: the dtype is an integer dtype.

    Example:
        >>> mytorch.finfo(mytorch.float16).max
        65504.0
    """

    def __init__(self, type: dtype | None = None) -> None:
        self._of = as_dtype(type or _default).to_real()
        if not self._of.is_floating_point:
            raise TypeError(f"finfo: {self._of} is not a floating point dtype; use iinfo.")
        info = ml_dtypes.finfo(self._of.numpy)
        self.bits, self.dtype = info.bits, self._of.name
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = 10.0 ** -int(info.nmant * math.log10(2))

    def __eq__(self, other):
        return type(other) is finfo and self._of is other._of

    __hash__ = object.__hash__

    def __repr__(self):
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """Numerical limits of an integer dtype.

    Args:
        type: an integer dtype.

    Attributes:
        bits: number of bits.
        max: largest number.
        min: smallest number.
        dtype: name of the dtype.

    Raises:
        TypeError: the dtype is not an integer dtype.

    Example:
        >>> mytorch.iinfo(mytorch.int8).max
        127
    """

    def __init__(self, type: dtype) -> None:
        d = as_dtype(type)
        if d.category != INT:
            raise TypeError(f"iinfo: {d} is not an integer dtype; use finfo.")
        info = np.iinfo(d.numpy)
        self.bits, self.max, self.min, self.dtype = info.bits, int(info.max), int(info.min), d.name

    def __eq__(self, other):
        return type(other) is iinfo and self.dtype == other.dtype

    __hash__ = object.__hash__

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
