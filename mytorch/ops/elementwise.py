"""Ops that work element by element: arithmetic, powers, exponentials, rounding, comparison, choice."""

import math

import numpy as np

from ..backend import is_raw, ndarray
from ..base import dtypes
from ..base.errors import kind
from .bind import public
from .core import op, to_dtype

# -- arithmetic ---------------------------------------------------------------------------------------


@public(dunder="__add__", reflected=True, inplace=False)
@op(name="add")
def _add(xp, input, other):
    """input + other."""
    return xp.add(input, other)


_add.grad(input=lambda g: g, other=lambda g: g)


@public(dunder="__sub__", inplace=False)
@op(name="sub")
def _sub(xp, input, other):
    """input - other."""
    try:
        return xp.subtract(input, other)
    except TypeError as error:
        if "boolean subtract" not in str(error):
            raise
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
        ) from None


_sub.grad(input=lambda g: g, other=lambda g: -g)


@public(names=("multiply",), dunder="__mul__", reflected=True)
@op()
def mul(xp, input, other):
    """input * other, elementwise, with broadcasting."""
    return xp.multiply(input, other)


mul.grad(input=lambda g, other: g * other, other=lambda g, input: g * input)


@public(dunder="__truediv__", inplace=False)
@op(name="div", dtype="float")
def _div(xp, input, other):
    """input / other, elementwise; integers become the default float dtype."""
    return xp.true_divide(input, other)


_div.grad(input=lambda g, other: g / other, other=lambda g, other, out: -g * (out / other))


@public(dunder="__pow__", spellings={"exponent": "other"})
@op(name="pow", autocast="float32")
def pow(xp, input, other):
    """input raised to the power other, elementwise.

    Raises:
        RuntimeError: integers to one negative integer power (to a tensor of such, only 1 and -1 are not 0).
    """
    if not is_raw(input) or not is_raw(other) or input.dtype.kind not in "biu":
        return input**other
    if input.dtype.kind == "b":
        return input | ~other  # only False ** True is False
    negative = other < 0
    here = isinstance(other, ndarray)
    if here and not negative.any():  # on a GPU the answer would have to be waited for
        return input**other
    if here and not other.ndim:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    units = xp.where(input == 1, 1, xp.where(input == -1, 1 - 2 * (other % 2), 0)).astype(input.dtype)
    return xp.where(negative, units, input ** xp.where(negative, 0, other).astype(other.dtype))


pow.grad(
    input=lambda g, input, other, xp: xp.where(other == 0, 0.0, g * (other * input ** (other - 1))),
    other=lambda g, input, other, out, xp: g * xp.where((input == 0) & (other >= 0), 0.0, out * xp.log(input)),
)


@public()
def add(input, other, tensor=None, *, alpha=1):
    """input + alpha * other; also, as older programs have it, `add(input, alpha, other)`."""
    if tensor is not None:
        other, alpha = tensor, other
    return _add.caller(input, other if alpha == 1 else _scaled(input, other, alpha))


@public(names=("subtract",))
def sub(input, other, tensor=None, *, alpha=1):
    """input - alpha * other; also, as older programs have it, `sub(input, alpha, other)`."""
    if tensor is not None:
        other, alpha = tensor, other
    return _sub.caller(input, other if alpha == 1 else _scaled(input, other, alpha))


def _scaled(input, other, alpha):
    """alpha * other.

    Raises:
        RuntimeError: a fractional alpha for integers.
    """
    if isinstance(alpha, float) and not any(
        getattr(t, "dtype", dtypes.int64).category >= dtypes.FLOAT for t in (input, other)
    ):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    return mul.caller(other, alpha)


@public()
def rsub(input, other, *, alpha=1):
    """other - alpha * input."""
    return _sub.caller(other, input if alpha == 1 else mul.caller(input, alpha))


@public(names=("divide", "true_divide"))
def div(input, other, *, rounding_mode=None):
    """input / other; `rounding_mode` "trunc" rounds the quotient towards zero, "floor" down.

    Raises:
        RuntimeError: another rounding mode.
    """
    if rounding_mode is None:
        return _div.caller(input, other)
    if rounding_mode == "floor":
        return _divide_floor.caller(input, other)
    if rounding_mode == "trunc":
        return _divide_trunc.caller(input, other)
    raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {rounding_mode!r}")


def _check_divisor(input, other):
    """Refuse to divide integers by zero; on a GPU, as in PyTorch, the result is then undefined.

    Raises:
        RuntimeError: an integer divisor is zero.
    """
    if isinstance(other, ndarray) and other.dtype.kind in "biu" and not other.all() and input.size:
        raise RuntimeError("ZeroDivisionError: integer division or remainder by zero")


@public(dunder="__floordiv__")
@op()
def floor_divide(xp, input, other):
    """The largest whole number not above input / other."""
    _check_divisor(input, other)
    return xp.floor_divide(input, other)


@op()
def _divide_floor(xp, input, other):
    """floor_divide, with a gradient of zeros, as PyTorch's div has."""
    _check_divisor(input, other)
    return xp.floor_divide(input, other)


_divide_floor.grad(input=lambda g: g * 0, other=lambda g: g * 0)


@op()
def _divide_trunc(xp, input, other):
    """input / other rounded towards zero; integers stay integers."""
    _check_divisor(input, other)
    if np.result_type(input, other).kind in "iu":
        quotient = xp.floor_divide(input, other)
        return quotient + ((quotient < 0) & (quotient * other != input))
    return xp.trunc(xp.true_divide(input, other))


_divide_trunc.grad(input=lambda g: g * 0, other=lambda g: g * 0)


@public(dunder="__mod__")
@op()
def remainder(xp, input, other):
    """input modulo other, with the sign of other (Python's %)."""
    _check_divisor(input, other)
    return xp.remainder(input, other)


remainder.grad(input=lambda g: g, other=lambda g, input, other, xp: -g * xp.floor(xp.detach(input / other)))


@public()
@op()
def fmod(xp, input, other):
    """The remainder of input / other, with the sign of input (C's fmod)."""
    _check_divisor(input, other)
    return xp.fmod(input, other)


fmod.grad(input=lambda g: g, other=lambda g, input, other, xp: -g * xp.trunc(xp.detach(input / other)))


@public(names=("negative",), dunder="__neg__")
@op()
def neg(xp, input):
    """-input."""
    if input.dtype.kind == "b":
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported; use the `~` operator instead."
        )
    return xp.negative(input)


neg.grad(input=lambda g: -g)


@public(dunder="__pos__")
def positive(input):
    """input itself."""
    return input


@public()
@op(dtype="float", autocast="float32")
def reciprocal(xp, input):
    """1 / input."""
    return xp.reciprocal(input)


reciprocal.grad(input=lambda g, out: -g * (out * out))


@public()
@op(autocast="float32")
def square(xp, input):
    """input * input."""
    return xp.square(input if input.dtype.kind != "b" else input.astype(np.int64))


square.grad(input=lambda g, input: g * (input * 2))


@public(names=("absolute",), dunder="__abs__")
@op()
def abs(xp, input):
    """The absolute value; for complex numbers the modulus."""
    return xp.absolute(input)


abs.grad(input=lambda g, input, xp: g * xp.sign(input))  # NumPy 2 gives z / |z| for complex z


@public()
@op()
def sign(xp, input):
    """-1, 0 or 1."""
    return input if input.dtype.kind == "b" else xp.sign(input)


sign.grad(input=lambda g: g * 0)


def _sgn_grad(g, input, out, xp):
    size = xp.abs(input)
    along = out * xp.real(g * xp.conj(out))
    return xp.where(size == 0, 0.0, (g - along) / xp.where(size == 0, 1.0, size))


@op(name="sgn", holomorphic=False)
def _sgn(xp, input):
    return xp.sign(input)


_sgn.grad(input=_sgn_grad)


@public()
def sgn(input):
    """The sign; for complex numbers, the number of modulus 1 in its direction (0 for 0)."""
    return _sgn.caller(input) if input.dtype.is_complex else sign.caller(input)


# -- powers, exponentials, logarithms ------------------------------------------------------------------


@public()
@op(dtype="float")
def sqrt(xp, input):
    """The square root."""
    return xp.sqrt(input)


sqrt.grad(input=lambda g, out: g / (out * 2))


@public()
@op(dtype="float", autocast="float32")
def rsqrt(xp, input):
    """1 / sqrt(input)."""
    return xp.reciprocal(xp.sqrt(input))


rsqrt.grad(input=lambda g, out: g * (out * out * out) * -0.5)


@public()
@op(dtype="float", autocast="float32")
def exp(xp, input):
    """e to the power input."""
    return xp.exp(input)


exp.grad(input=lambda g, out: g * out)


@public()
@op(dtype="float")
def exp2(xp, input):
    """2 to the power input."""
    return xp.exp2(input)


exp2.grad(input=lambda g, out: g * out * math.log(2))


@public()
@op(dtype="float", autocast="float32")
def expm1(xp, input):
    """exp(input) - 1, exact near zero."""
    return xp.expm1(input)


expm1.grad(input=lambda g, out: g * (out + 1))


@public()
@op(dtype="float", autocast="float32")
def log(xp, input):
    """The natural logarithm."""
    return xp.log(input)


log.grad(input=lambda g, input: g / input)


@public()
@op(dtype="float", autocast="float32")
def log2(xp, input):
    """The logarithm to base 2."""
    return xp.log2(input)


log2.grad(input=lambda g, input: g / (input * math.log(2)))


@public()
@op(dtype="float", autocast="float32")
def log10(xp, input):
    """The logarithm to base 10."""
    return xp.log10(input)


log10.grad(input=lambda g, input: g / (input * math.log(10)))


@public()
@op(dtype="float", autocast="float32")
def log1p(xp, input):
    """log(1 + input), exact near zero."""
    return xp.log1p(input)


log1p.grad(input=lambda g, input: g / (input + 1))


@public()
@op(dtype="float")
def erf(xp, input):
    """The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to input."""
    return xp.erf(input)


erf.grad(input=lambda g, input, xp: g * (xp.exp(-(input * input)) * (2 / math.sqrt(math.pi))))


@public(name="xlogy")
@op(dtype="float", name="xlogy")
def _xlogy(xp, input, other):
    """input * log(other), and 0 where input is 0."""
    if not is_raw(other):
        other = xp.asarray(other, dtype=input.dtype)
    return xp.where(input == 0, xp.where(other != other, other, 0.0), input * xp.log(other))


_xlogy.grad(
    input=lambda g, input, other, xp: g * xp.where((input == 0) & (other <= 0), 0.0, xp.log(other)),
    other=lambda g, input, other: g * (input / other),
)
xlogy = _xlogy.caller


# -- trigonometry ----------------------------------------------------------------------------------------


@public()
@op(dtype="float")
def sin(xp, input):
    """The sine of an angle in radians."""
    return xp.sin(input)


sin.grad(input=lambda g, input, xp: g * xp.cos(input))


@public()
@op(dtype="float")
def cos(xp, input):
    """The cosine of an angle in radians."""
    return xp.cos(input)


cos.grad(input=lambda g, input, xp: -g * xp.sin(input))


@public()
@op(dtype="float", autocast="float32")
def tan(xp, input):
    """The tangent of an angle in radians."""
    return xp.tan(input)


tan.grad(input=lambda g, out: g * (out * out + 1))


# -- rounding --------------------------------------------------------------------------------------------


def _rounding(xp, name, input):
    """Round a float array; integers are whole already."""
    return input if input.dtype.kind in "iub" else getattr(xp, name)(input)


@public()
@op()
def floor(xp, input):
    """The largest whole number not above input."""
    return _rounding(xp, "floor", input)


@public()
@op()
def ceil(xp, input):
    """The smallest whole number not below input."""
    return _rounding(xp, "ceil", input)


@public(names=("fix",))
@op()
def trunc(xp, input):
    """input without its fractional part."""
    return _rounding(xp, "trunc", input)


@op(name="round")
def _round(xp, input, *, decimals=0):
    if input.dtype.kind in "iub":
        return input.copy()
    if decimals == 0:
        return xp.rint(input)
    ten = 10.0**decimals
    return xp.rint(input * ten) / ten


for _flat in (floor, ceil, trunc, _round):
    _flat.grad(input=lambda g: g * 0)


@public()
def round(input, *, decimals=0):
    """The nearest whole number, halves to even; or the nearest multiple of 10**-decimals."""
    return _round(input, decimals=decimals)


@public()
def frac(input):
    """The fractional part, with the sign of input."""
    return input - trunc.caller(input)


# -- choice ----------------------------------------------------------------------------------------------


@op(promoted=("input", "other"), name="where")
def _where(xp, condition, input, other):
    return xp.where(condition, input, other)


_where.grad(
    input=lambda g, condition, xp: xp.where(condition, g, 0.0),
    other=lambda g, condition, xp: xp.where(condition, 0.0, g),
)


@public(method=False)
def where(condition, input=None, other=None):
    """input where condition holds, else other; with condition alone, its nonzero indices."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if condition.dtype is not dtypes.bool_ and condition.dtype is not dtypes.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}"
        )
    return _where(condition, input, other)


@public(name="where", function=False)
def where_method(self, condition, other):
    """self where condition holds, else other."""
    return where(condition, self, other)


@public()
@op()
def maximum(xp, input, other):
    """The larger of two, elementwise; NaN if either is. Equal values share the gradient."""
    return xp.maximum(input, other)


@public()
@op()
def minimum(xp, input, other):
    """The smaller of two, elementwise; NaN if either is. Equal values share the gradient."""
    return xp.minimum(input, other)


def _share(g, mine, tie, xp):
    """The gradient of a choice: whole where mine was chosen, half at a tie."""
    return g * xp.where(tie, 0.5, xp.where(mine, 1.0, 0.0))


maximum.grad(
    input=lambda g, input, other, xp: _share(g, input > other, input == other, xp),
    other=lambda g, input, other, xp: _share(g, other > input, input == other, xp),
)
minimum.grad(
    input=lambda g, input, other, xp: _share(g, input < other, input == other, xp),
    other=lambda g, input, other, xp: _share(g, other < input, input == other, xp),
)


@op(name="clamp")
def _clamp(xp, input, min=None, max=None):
    if min is not None:
        input = xp.maximum(input, min)
    return input if max is None else xp.minimum(input, max)


def _inside(input, min, max):
    """Where clamp left the input alone; the bounds themselves belong to it."""
    if min is None:
        return input <= max
    return input >= min if max is None else (input >= min) & (input <= max)


_clamp.grad(
    input=lambda g, input, min, max, xp: xp.where(_inside(input, min, max), g, 0.0),
    min=lambda g, input, min, max, xp: xp.where((input < min) if max is None else (input < min) & (min < max), g, 0.0),
    max=lambda g, input, min, max, xp: xp.where((input > max) if min is None else (input > max) | (max < min), g, 0.0),
)


@public(names=("clip",))
def clamp(input, min=None, max=None):
    """input limited to [min, max]; either bound may be a number, a tensor, or left out.

    Raises:
        ValueError: both bounds are missing.
    """
    if min is None and max is None:
        raise ValueError("clamp: at least one of 'min' or 'max' must not be None.")
    return _clamp(input, min, max)


@public()
def clamp_min(input, min):
    """input, but at least min."""
    return clamp(input, min=min)


@public()
def clamp_max(input, max):
    """input, but at most max."""
    return clamp(input, max=max)


@public()
def lerp(input, end, weight):
    """input + weight * (end - input)."""
    return input + (end - input) * weight


@public()
def addcmul(input, tensor1, tensor2, tensor=None, *, value=1):
    """input + value * tensor1 * tensor2; also, as older programs have it, `addcmul(input, value, tensor1, tensor2)`."""
    if tensor is not None:
        value, tensor1, tensor2 = tensor1, tensor2, tensor
    product = tensor1 * tensor2
    return input + (product if value == 1 else product * value)


@public()
def addcdiv(input, tensor1, tensor2, tensor=None, *, value=1):
    """input + value * tensor1 / tensor2; also, as older programs have it, `addcdiv(input, value, tensor1, tensor2)`."""
    if tensor is not None:
        value, tensor1, tensor2 = tensor1, tensor2, tensor
    quotient = tensor1 / tensor2
    return input + (quotient if value == 1 else quotient * value)


# -- comparison and logic (no gradient) -------------------------------------------------------------------


def _comparison(name, dunder, symbol, *more):
    @public(names=more, dunder=dunder)
    @op(name=name)
    def compare(xp, input, other):
        return getattr(xp, compare_with)(input, other)

    compare_with = {
        "eq": "equal",
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
    }[name]
    compare.__doc__ = compare.caller.__doc__ = f"input {symbol} other, elementwise, as bools."
    return compare


eq = _comparison("eq", "__eq__", "==")
ne = _comparison("ne", "__ne__", "!=", "not_equal")
lt = _comparison("lt", "__lt__", "<", "less")
le = _comparison("le", "__le__", "<=", "less_equal")
gt = _comparison("gt", "__gt__", ">", "greater")
ge = _comparison("ge", "__ge__", ">=", "greater_equal")


def _bits(name, ufunc, dunder, text):
    @public(dunder=dunder, reflected="shift" not in name)
    @op(name=name)
    def bitwise(xp, input, other):
        return getattr(xp, ufunc)(input, other)

    bitwise.__doc__ = bitwise.caller.__doc__ = f"{text}, elementwise, of integers or bools."
    return bitwise


bitwise_and = _bits("bitwise_and", "bitwise_and", "__and__", "Bits set in both")
bitwise_or = _bits("bitwise_or", "bitwise_or", "__or__", "Bits set in either")
bitwise_xor = _bits("bitwise_xor", "bitwise_xor", "__xor__", "Bits set in exactly one")
bitwise_left_shift = _bits("bitwise_left_shift", "left_shift", "__lshift__", "input shifted left by other bits")
bitwise_right_shift = _bits("bitwise_right_shift", "right_shift", "__rshift__", "input shifted right by other bits")


@public(dunder="__invert__")
@op()
def bitwise_not(xp, input):
    """Every bit flipped; bools negated."""
    return xp.invert(input)


def _logical(name):
    @public()
    @op(name=name)
    def logical(xp, input, other):
        return getattr(xp, name)(input != 0, other != 0)

    logical.__doc__ = logical.caller.__doc__ = f"Elementwise {name[8:]} of truth values."
    return logical


logical_and, logical_or, logical_xor = _logical("logical_and"), _logical("logical_or"), _logical("logical_xor")


@public()
@op()
def logical_not(xp, input):
    """True where input is zero."""
    return input == 0


def _test(name, text, for_integers):
    @public(inplace=False)
    @op(name=name)
    def test(xp, input):
        if input.dtype.kind in "iub":
            return xp.full(input.shape, for_integers)
        return getattr(xp, name)(input)

    test.__doc__ = test.caller.__doc__ = text
    return test


isnan = _test("isnan", "True where input is NaN.", False)
isinf = _test("isinf", "True where input is infinite.", False)
isfinite = _test("isfinite", "True where input is neither infinite nor NaN.", True)


@public(inplace=False)
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """True where |input - other| <= atol + rtol * |other|."""
    if input.dtype is dtypes.bool_:
        return input == other
    close = (input - other).abs() <= atol + rtol * other.abs()
    close = close & isfinite.caller(other) | (input == other)
    return close | (isnan.caller(input) & isnan.caller(other)) if equal_nan else close


@public(inplace=False)
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether `isclose` holds everywhere, as a Python bool."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public(inplace=False)
def equal(input, other):
    """Whether two tensors have the same shape and the same values, as a Python bool."""
    return tuple(input.shape) == tuple(other.shape) and bool((input == other).all())


@op(name="nan_to_num")
def _nan_to_num(xp, input, *, nan=0.0, posinf=None, neginf=None):
    if input.dtype.kind in "iub":
        return input.copy()
    info = dtypes.finfo(input.dtype)
    input = xp.where(input != input, input.dtype.type(nan), input)
    input = xp.where(input == math.inf, input.dtype.type(info.max if posinf is None else posinf), input)
    return xp.where(input == -math.inf, input.dtype.type(info.min if neginf is None else neginf), input)


_nan_to_num.grad(input=lambda g, input, xp: xp.where(xp.isfinite(xp.detach(input)), g, 0.0))


@public()
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    """Replace NaN by `nan` and the infinities by the given values, or the dtype's largest."""
    return _nan_to_num(input, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@public(function=False, inplace=False)
def type_as(self, other):
    """self as other's dtype."""
    return self.to(other.dtype)


def cast(x, dtype):
    """x as `dtype`; x itself where it has it already. The cast is recorded.

    Raises:
        TypeError: x is not a tensor.
    """
    if not hasattr(x, "dtype"):
        raise TypeError(f"cast: expected a Tensor, got {kind(x)}.")
    return x if x.dtype is dtype else to_dtype(x, dtype=dtype)
