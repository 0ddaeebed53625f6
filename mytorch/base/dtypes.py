"""The dtypes, their names, and PyTorch's rules for promoting them.

A `dtype` is one of a fixed set of objects, so dtypes can be compared with `is`. NumPy accepts a
dtype wherever it wants one of its own (`np.zeros(3, mytorch.float32)`), and `==` accepts NumPy's.
bfloat16 is `ml_dtypes.bfloat16`.

Promotion follows PyTorch (https://pytorch.org/docs/stable/tensor_attributes.html): values fall into
three ranks, tensors with dimensions, 0-d tensors, Python numbers; a lower rank changes the result's
dtype only when its category (bool < integer < float < complex) is higher, and a Python float that
does so brings the default dtype.
"""

import ml_dtypes
import numpy as np

from . import config

_BY_NUMPY = {}
_BY_NAME = {}


# The words of PyTorch's type names, as in FloatTensor.
TYPE_WORDS = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
    "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}  # fmt: skip


class dtype:
    """The kind of a tensor's elements.

    Attributes:
        name: as in `mytorch.float32`, without the module.
        numpy: the NumPy dtype.
        itemsize: bytes per element.
    """

    __slots__ = ("category", "dtype", "is_complex", "is_floating_point", "is_signed", "itemsize", "name", "numpy")
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
        """NumPy's scalar type, as a NumPy dtype has it."""
        return self.numpy.type

    def __repr__(self):
        return f"{config.torch_name()}.{self.name}"

    def __eq__(self, other):
        if isinstance(other, dtype):
            return self is other
        try:
            return self.numpy == np.dtype(other)
        except TypeError:
            return NotImplemented

    def __hash__(self):
        return hash(self.numpy)

    def __reduce__(self):
        return as_dtype, (self.name,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def to_real(self):
        """The real dtype whose pairs make up this complex one; a real dtype is its own."""
        return {complex64: float32, complex128: float64}.get(self, self)

    def to_complex(self):
        """The complex dtype whose parts have this dtype.

        Raises:
            RuntimeError: an integer dtype.
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

# PyTorch's half-precision complex numbers: a name to compare with, which no tensor has.
chalf = complex32 = object.__new__(dtype)
_pair = np.dtype([("real", np.float16), ("imag", np.float16)])
for _name, _value in {
    "name": "complex32", "numpy": _pair, "dtype": _pair, "itemsize": 4, "category": COMPLEX, "is_complex": True,
    "is_floating_point": False, "is_signed": True,
}.items():  # fmt: skip
    setattr(complex32, _name, _value)

half, double, long, short, cfloat, cdouble = float16, float64, int64, int16, complex64, complex128
ALL = tuple(_BY_NUMPY.values())
FLOAT8 = tuple(  # to keep numbers in, and to cast from
    dtype._make(name, getattr(ml_dtypes, name), FLOAT)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
)

_BY_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}  # as PyTorch reads `dtype=float`
_default = float32


def default_dtype():
    """The dtype of new floating point tensors; float32 unless `set_default_dtype` changed it."""
    return _default


def set_default_dtype(d):
    """Make `d`, a floating point dtype, the dtype of tensors made from Python floats.

    Raises:
        TypeError: `d` is not a floating point dtype.
    """
    global _default
    d = as_dtype(d)
    if not d.is_floating_point:
        raise TypeError(f"set_default_dtype: only floating point dtypes are supported, {d} is not one.")
    _default = d


def from_numpy(numpy_dtype):
    """The dtype of a NumPy dtype.

    Raises:
        TypeError: no tensor can have it (strings, objects, dates, float128 …).
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
    """The dtype that `like` names: a dtype, a name, a NumPy dtype or scalar type, float, int, bool."""
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
        raise TypeError(f"{like!r} is not a dtype; expected one like mytorch.float32 or 'float32'.") from None


def as_numpy(like):
    """The NumPy dtype that `like` names; see `as_dtype`."""
    return like.numpy if type(like) is dtype else as_dtype(like).numpy


_LADDER = {d: i for i, d in enumerate((uint8, int8, int16, int32, int64))}


def promote_types(type1, type2):
    """The smallest dtype, by PyTorch's table, that holds the values of both.

    Unlike NumPy, an integer and a float give that float (int64 with float16: float16), and float16
    with bfloat16 gives float32.
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
    """The dtype a Python or NumPy number would give a tensor made of it."""
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
    """The dtype of an operation on tensors with dimensions, on 0-d tensors and on Python numbers.

    Args:
        dimensioned, zero_dim, numbers: dtypes of the three ranks; any may be empty.
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


def refuse_mixed(op_name, found):
    """Raise what PyTorch does where a product's inputs, of which one dtype is wanted, have those in `found`.

    Raises:
        RuntimeError: they differ.
    """
    first = found[0]
    other = next((d for d in found if d is not first), first)
    if other is first:
        return
    words, names = [[table.get(d.name, d.name) for d in (first, other)] for table in (TYPE_WORDS, _C_NAMES)]
    if op_name == "linear" and len(found) > 2:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {words[0]} and {words[1]}")
    if op_name == "convolution":
        what = "bias" if found[-1] is other and len(found) > 2 else "weight"
        raise RuntimeError(f"Input type ({names[0]}) and {what} type ({names[1]}) should be the same")
    if op_name == "einsum":
        raise RuntimeError(f"expected scalar type {words[0]} but found {words[1]}")
    raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}")


def can_cast(from_, to):
    """Whether PyTorch would cast implicitly from one dtype to the other in an in-place result."""
    a, b = as_dtype(from_), as_dtype(to)
    return a.category <= b.category


class finfo:
    """Numerical limits of a floating point dtype: bits, eps, max, min, tiny, smallest_normal, resolution."""

    def __init__(self, type: dtype | None = None) -> None:
        self._of = as_dtype(type or _default).to_real()
        if not self._of.is_floating_point:
            raise TypeError(f"finfo: {self._of} is not a floating point dtype; use iinfo.")
        info = ml_dtypes.finfo(self._of.numpy)
        self.bits, self.dtype = info.bits, self._of.name
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(info.resolution)

    def __repr__(self):
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """Numerical limits of an integer dtype: bits, max, min."""

    def __init__(self, type: dtype) -> None:
        d = as_dtype(type)
        if d.category != INT:
            raise TypeError(f"iinfo: {d} is not an integer dtype; use finfo.")
        info = np.iinfo(d.numpy)
        self.bits, self.max, self.min, self.dtype = info.bits, int(info.max), int(info.min), d.name

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
