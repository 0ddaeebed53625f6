"""Ops that work element by element: arithmetic, powers, exponentials, rounding, comparison, choice.

Most are a row of a table: `unary` and `binary` make an op's record from its name, a line of documentation, the array function
that computes it and its derivatives, and bind it to the API.
"""

import math

import numpy as np

from .._tensor import Tensor
from ..backend import is_raw, ndarray
from ..base import dtypes
from ..base.errors import kind
from ..dispatch.bind import public
from ..dispatch.half import once_rounded
from ..dispatch.op import op, to_dtype
from ..dispatch.operands import NUMBERS
from ..numerics.blocks import LARGE


def documented(text, name, example):
    """A docstring with an example: "[4, 9]; 2 -> [2.0, 4.5]" calls mytorch's `name` with a tensor and a number."""
    if example is None:
        return text
    given, result = example.split(" -> ")
    arguments = ", ".join(f"tensor({a})" if a[0] == "[" else a for a in given.split("; "))
    return f"{text}\n\nExample:\n    >>> mytorch.{name}({arguments}).tolist()\n    {result}\n"


def named(name, doc):
    """Decorate a function of a family with its own name and docstring."""

    def give(function):
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc
        return function

    return give


def unary(
    name, text, example=None, gradient=None, *, forward=None, dtype="float", autocast="promote", xp_name=None, **binding
):
    """The record of an op of one input, bound to the API.

    Args:
        name, text, example: of the op, and what makes its docstring.
        gradient: the gradient formula of its input; None for none.
        forward: a function of (xp, input), or the name of one of xp's, if it is not the op's own.
        dtype, autocast, xp_name: as `op` has them. binding: as `public` has it.
    """
    if forward is None or isinstance(forward, str):
        xp_name = forward or name

        def forward(xp, input):
            return getattr(xp, xp_name)(input)

    forward.__doc__ = documented(text, name, example)
    record = op(name=name, dtype=dtype, autocast=autocast, xp_name=xp_name, elementwise=True)(forward)
    return public(**binding)(record if gradient is None else record.grad(input=gradient))


def binary(name, text, forward, example=None, *, input=None, other=None, dtype="promote", xp_name=None, **binding):
    """The record of an op of two inputs, as `unary`; `input` and `other` are their gradient formulas."""
    if isinstance(forward, str):
        xp_name = forward

        def forward(xp, input, other):
            return getattr(xp, xp_name)(input, other)

    forward.__doc__ = documented(text, name, example)
    record = op(name=name, dtype=dtype, xp_name=xp_name, elementwise=True)(forward)
    return public(**binding)(record if input is None else record.grad(input=input, other=other))


# -- arithmetic ---------------------------------------------------------------------------------------


def _subtract(xp, input, other):
    try:
        return xp.subtract(input, other)
    except TypeError as error:
        if "boolean subtract" not in str(error):
            raise
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
        ) from None


def _divider(divide):
    """A forward that refuses to divide integers by zero; on a GPU, as in PyTorch, the result is then undefined.

    Raises:
        RuntimeError: an integer divisor is zero.
    """

    def checked(xp, input, other):
        whole = type(other) is int or (isinstance(other, ndarray) and other.dtype.kind in "biu")
        if whole and input.size and not (other.all() if type(other) is not int else other or input.dtype.kind in "fcV"):
            raise RuntimeError("ZeroDivisionError: integer division or remainder by zero")
        return divide(xp, input, other)

    return checked


def _truncated(xp, input, other):
    if np.result_type(input, other).kind in "iu":
        quotient = xp.floor_divide(input, other)
        return quotient + ((quotient < 0) & (quotient * other != input))
    return xp.trunc(xp.true_divide(input, other))


def zero(g):
    """The gradient of a step function, as PyTorch has it."""
    return g * 0


# fmt: off
_add = binary("add", "input + other.", "add", input=lambda g: g, other=lambda g: g,
              dunder="__add__", reflected=True, inplace=False)
_sub = binary("sub", "input - other.", _subtract, input=lambda g: g, other=lambda g: -g,
              xp_name="subtract", dunder="__sub__", inplace=False)
mul = binary("mul", "input * other, elementwise, with broadcasting.", "multiply", "[[1], [2]]; [3, 4] -> [[3, 4], [6, 8]]",
             input=lambda g, other: g * other, other=lambda g, input: g * input,
             names=("multiply",), dunder="__mul__", reflected=True)
_div = binary("div", "input / other, elementwise; integers become the default float dtype.", "true_divide", dtype="float",
              input=lambda g, other: g / other, other=lambda g, other, out: -g * (out / other),
              dunder="__truediv__", inplace=False)
floor_divide = binary("floor_divide", "The largest whole number not above input / other.",
                      _divider(lambda xp, x, y: xp.floor_divide(x, y)), "[7, -7]; 2 -> [3, -4]", dunder="__floordiv__")
remainder = binary("remainder", "input modulo other, with the sign of other (Python's %).",
                   _divider(lambda xp, x, y: xp.remainder(x, y)), "[7, -7]; 3 -> [1, 2]", dunder="__mod__",
                   input=lambda g: g, other=lambda g, input, other, xp: -g * xp.floor(xp.detach(input / other)))
fmod = binary("fmod", "The remainder of input / other, with the sign of input (C's fmod).",
              _divider(lambda xp, x, y: xp.fmod(x, y)), "[7, -7]; 3 -> [1, -1]",
              input=lambda g: g, other=lambda g, input, other, xp: -g * xp.trunc(xp.detach(input / other)))
# fmt: on
_divide_floor = op(name="_divide_floor", elementwise="exact")(_divider(lambda xp, x, y: xp.floor_divide(x, y)))
_divide_floor.grad(input=zero, other=zero)
_divide_trunc = op(name="_divide_trunc", elementwise="exact")(_divider(_truncated)).grad(input=zero, other=zero)
mul.keeps_python_scalars_float32 = _div.keeps_python_scalars_float32 = True


@public(dunder="__pow__", spellings={"exponent": "other"})
@op(name="pow", autocast="float32", elementwise=True)
def pow(xp, input, other):
    """input raised to the power other, elementwise.

    Raises:
        RuntimeError: integers to one negative integer power (to a tensor of such, only 1 and -1 are not 0).

    Example:
        >>> mytorch.pow(tensor([1.0, 2.0, 3.0]), 2).tolist()
        [1.0, 4.0, 9.0]
    """
    if not is_raw(input) or not is_raw(other) or input.dtype.kind not in "biu":
        return input**other
    if input.dtype.kind == "b":
        return input | ~other  # only False ** True is False
    negative = other < 0
    on_cpu = isinstance(other, ndarray)
    if on_cpu and not negative.any():  # on a GPU the answer would have to be waited for
        return input**other
    if on_cpu and not other.ndim:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    units = xp.where(input == 1, 1, xp.where(input == -1, 1 - 2 * (other % 2), 0)).astype(input.dtype)
    return xp.where(negative, units, input ** xp.where(negative, 0, other).astype(other.dtype))


pow.grad(
    input=lambda g, input, other, xp: xp.where(other == 0, 0.0, g * (other * input ** (other - 1))),
    other=lambda g, input, other, out, xp: g * xp.where((input == 0) & (other >= 0), 0.0, out * xp.log(input)),
)


def _with_alpha(name, record, symbol, example):
    text = f"input {symbol} alpha * other; also, as older programs have it, `{name}(input, alpha, other)`."

    @named(name, documented(text, name, example))
    def function(input, other, tensor=None, *, alpha=1):
        if tensor is not None:
            other, alpha = tensor, other
        return record.fast_call(input, other if alpha == 1 and type(alpha) is int else _scaled(input, other, alpha))

    return function


add = public()(_with_alpha("add", _add, "+", "[1, 2]; [10, 20]; alpha=2 -> [21, 42]"))
sub = public(names=("subtract",))(_with_alpha("sub", _sub, "-", "[1, 2]; [10, 20] -> [-9, -18]"))


def _scaled(input, other, alpha):
    """alpha * other.

    Raises:
        RuntimeError: a fractional alpha for integers, a bool for numbers.
    """
    if isinstance(alpha, float) and not any(
        getattr(t, "dtype", dtypes.int64).category >= dtypes.FLOAT for t in (input, other)
    ):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if getattr(input, "dtype", None) is dtypes.bool_ is getattr(other, "dtype", None):
        alpha = bool(alpha)
    elif isinstance(alpha, bool):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if alpha == 1:
        return other
    if isinstance(input, Tensor) and isinstance(other, Tensor) and input.dtype is not other.dtype:
        kinds = [[t.dtype for t in (input, other) if bool(t.ndim) is having] for having in (True, False)]
        other = cast(other, dtypes.result_type(*kinds, []))  # the result's dtype, for bytes times alpha may overflow
    return mul.fast_call(other, alpha)


@public()
def rsub(input, other, *, alpha=1):
    """other - alpha * input.

    Args:
        input: what is subtracted.
        other: what it is subtracted from.
        alpha: factor of input.
    """
    return _sub.fast_call(other, _scaled(other, input, alpha))


@public(names=("divide", "true_divide"))
def div(input, other, *, rounding_mode=None):
    """input / other; `rounding_mode` "trunc" rounds the quotient towards zero, "floor" down.

    Args:
        input: the dividend.
        other: the divisor, which broadcasts.
        rounding_mode: None, "trunc" or "floor".

    Raises:
        RuntimeError: another rounding mode.

    Example:
        >>> mytorch.div(tensor([7, -7]), 2).tolist()
        [3.5, -3.5]
        >>> mytorch.div(tensor([7, -7]), 2, rounding_mode="trunc").tolist()
        [3, -3]
    """
    record = {None: _div, "floor": _divide_floor, "trunc": _divide_trunc}.get(rounding_mode)
    if record is None:
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {rounding_mode!r}"
        )
    return record.fast_call(input, other)


@public(names=("negative",), dunder="__neg__")
@op(xp_name="negative", elementwise=True)
def neg(xp, input):
    """-input.

    Example:
        >>> mytorch.neg(tensor([1, -2])).tolist()
        [-1, 2]
    """
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


def _sgn_grad(g, input, out, xp):
    size = xp.abs(input)
    along = out * xp.real(g * xp.conj(out))
    return xp.where(size == 0, 0.0, (g - along) / xp.where(size == 0, 1.0, size))


_sgn = op(name="sgn", holomorphic=False)(lambda xp, input: xp.sign(input)).grad(input=_sgn_grad)


@public()
def sgn(input):
    """The sign; for complex numbers, the number of modulus 1 in its direction (0 for 0)."""
    return _sgn.fast_call(input) if input.dtype.is_complex else sign.fast_call(input)


# -- functions of one number -----------------------------------------------------------------------------


def _unless(kinds, function):
    """A forward by one of xp's functions; dtypes of these kinds stay as they are."""
    return lambda xp, input: input if input.dtype.kind in kinds else getattr(xp, function)(input)


# fmt: off
abs = unary("abs", "The absolute value; for complex numbers the modulus.", "[-1.0, 2.0] -> [1.0, 2.0]",
            lambda g, input, xp: g * xp.sign(input),  # NumPy 2 gives z / |z| for complex z
            forward="absolute", dtype="promote", names=("absolute",), dunder="__abs__")
sign = unary("sign", "-1, 0 or 1.", "[-3.0, 0.0, 5.0] -> [-1.0, 0.0, 1.0]", zero, forward=_unless("b", "sign"), dtype="promote")
reciprocal = unary("reciprocal", "1 / input.", "[2.0, 4.0] -> [0.5, 0.25]", lambda g, out: -g * (out * out), autocast="float32")
square = unary("square", "input * input.", "[-2.0, 3.0] -> [4.0, 9.0]", lambda g, input: g * (input * 2),
               forward=lambda xp, input: xp.square(input if input.dtype.kind != "b" else input.astype(np.int64)),
               dtype="promote", autocast="float32", xp_name="square")
sqrt = unary("sqrt", "The square root.", "[4.0, 9.0] -> [2.0, 3.0]", lambda g, out: g / (out * 2))
rsqrt = unary("rsqrt", "1 / sqrt(input).", "[4.0, 16.0] -> [0.5, 0.25]", lambda g, out: g * (out * out * out) * -0.5,
              forward=lambda xp, input: xp.reciprocal(xp.sqrt(input)), autocast="float32")
exp = unary("exp", "e to the power input.", "[0.0] -> [1.0]", lambda g, out: g * out, autocast="float32")
exp2 = unary("exp2", "2 to the power input.", "[0.0] -> [1.0]", lambda g, out: g * out * math.log(2))
expm1 = unary("expm1", "exp(input) - 1, exact near zero.", "[0.0] -> [0.0]", lambda g, out: g * (out + 1), autocast="float32")
log = unary("log", "The natural logarithm.", "[1.0] -> [0.0]", lambda g, input: g / input, autocast="float32")
log2 = unary("log2", "The logarithm to base 2.", "[1.0] -> [0.0]", lambda g, input: g / (input * math.log(2)),
             autocast="float32")
log10 = unary("log10", "The logarithm to base 10.", "[1.0] -> [0.0]", lambda g, input: g / (input * math.log(10)),
              autocast="float32")
log1p = unary("log1p", "log(1 + input), exact near zero.", "[0.0] -> [0.0]", lambda g, input: g / (input + 1), autocast="float32")
erf = unary("erf", "The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to input.", "[0.0] -> [0.0]",
            lambda g, input, xp: g * (xp.exp(-(input * input)) * (2 / math.sqrt(math.pi))))
sin = unary("sin", "The sine of an angle in radians.", "[0.0] -> [0.0]", lambda g, input, xp: g * xp.cos(input))
cos = unary("cos", "The cosine of an angle in radians.", "[0.0] -> [1.0]", lambda g, input, xp: -g * xp.sin(input))
tan = unary("tan", "The tangent of an angle in radians.", "[0.0] -> [0.0]", lambda g, out: g * (out * out + 1), autocast="float32")
floor = unary("floor", "The largest whole number not above input.", "[1.5, -1.5] -> [1.0, -2.0]", zero,
              forward=_unless("iub", "floor"), dtype="promote", xp_name="floor")
ceil = unary("ceil", "The smallest whole number not below input.", "[1.5, -1.5] -> [2.0, -1.0]", zero,
             forward=_unless("iub", "ceil"), dtype="promote", xp_name="ceil")
trunc = unary("trunc", "input without its fractional part.", "[1.5, -1.5] -> [1.0, -1.0]", zero,
              forward=_unless("iub", "trunc"), dtype="promote", xp_name="trunc", names=("fix",))
# fmt: on


@op(name="round", elementwise=True)
def _round(xp, input, *, decimals=0):
    if input.dtype.kind in "iub":
        return input.copy()
    if decimals == 0:
        return xp.rint(input)
    ten = 10.0**decimals
    return xp.rint(input * ten) / ten


_round.grad(input=zero)


@public()
def round(input, *, decimals=0):
    """The nearest whole number, halves to even; or the nearest multiple of 10**-decimals.

    Example:
        >>> mytorch.round(tensor([0.5, 1.5, -2.7])).tolist()
        [0.0, 2.0, -3.0]
    """
    return _round(input, decimals=decimals)


@public()
def frac(input):
    """The fractional part, with the sign of input."""
    return input - trunc.fast_call(input)


# -- choice ----------------------------------------------------------------------------------------------


@op(promoted=("input", "other"), name="where", elementwise="exact")
def _where(xp, condition, input, other):
    return xp.where(condition, input, other)


_where.grad(
    input=lambda g, condition, xp: xp.where(condition, g, 0.0),
    other=lambda g, condition, xp: xp.where(condition, 0.0, g),
)


@public(method=False)
def where(condition, input=None, other=None):
    """input where condition holds, else other; with condition alone, its nonzero indices.

    Args:
        condition: bool, which broadcasts with the others.
        input: a tensor or number.
        other: a tensor or number.

    Example:
        >>> x = tensor([-1.0, 2.0])
        >>> mytorch.where(x > 0, x, 0.0).tolist()
        [0.0, 2.0]
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    dtype = condition.dtype
    if dtype is not dtypes.bool_ and dtype is not dtypes.uint8:
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {dtype}")
    if type(input) in NUMBERS and type(other) in NUMBERS:  # of the default dtype, not of NumPy's
        dtype = dtypes.result_type([], [], [dtypes.of_number(x) for x in (input, other)])
        input = Tensor._wrap(np.asarray(input, dtype.numpy)).to(condition.device)
    return _where.fast_call(condition, input, other)


@public(name="where", function=False)
def where_method(self, condition, other):
    """self where condition holds, else other."""
    return where(condition, self, other)


def _share(g, chosen, tie, xp):
    """The gradient of a choice: whole where this input was chosen, half at a tie."""
    return g * xp.where(tie, 0.5, xp.where(chosen, 1.0, 0.0))


# fmt: off
maximum = binary("maximum", "The larger of two, elementwise; NaN if either is. Equal values share the gradient.", "maximum",
                 "[1.0, 5.0]; [2.0, 3.0] -> [2.0, 5.0]",
                 input=lambda g, input, other, xp: _share(g, input > other, input == other, xp),
                 other=lambda g, input, other, xp: _share(g, other > input, input == other, xp))
minimum = binary("minimum", "The smaller of two, elementwise; NaN if either is. Equal values share the gradient.", "minimum",
                 "[1.0, 5.0]; [2.0, 3.0] -> [1.0, 3.0]",
                 input=lambda g, input, other, xp: _share(g, input < other, input == other, xp),
                 other=lambda g, input, other, xp: _share(g, other < input, input == other, xp))
# fmt: on


@op(name="clamp", elementwise="exact")
def _clamp(xp, input, min=None, max=None):
    if isinstance(min, (int, float)) and isinstance(max, (int, float)) and input.dtype.kind == "f":
        low, high = input.dtype.type(min), input.dtype.type(max)
        large = math.prod(input.shape) >= LARGE
        return xp.clip(input, low, high) if large else xp.minimum(xp.maximum(input, low), high)
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

    Args:
        min: lower bound.
        max: upper bound.

    Raises:
        RuntimeError: both bounds are missing.

    Example:
        >>> mytorch.clamp(tensor([-1.0, 0.5, 2.0]), 0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    if min is None and max is None:
        raise RuntimeError("clamp: at least one of 'min' or 'max' must not be None.")
    return _clamp(input, min, max)


@public()
def clamp_min(input, min):
    """input, but at least min."""
    return clamp(input, min=min)


@public()
def clamp_max(input, max):
    """input, but at most max."""
    return clamp(input, max=max)


def _with_value(name, symbol, record, example):
    text = (
        f"input + value * tensor1 {symbol} tensor2; also, as older programs have it, "
        f"`{name}(input, value, tensor1, tensor2)`."
    )

    @public()
    @named(name, documented(text, name, example))
    def function(input, tensor1, tensor2, tensor=None, *, value=1):
        if tensor is not None:
            value, tensor1, tensor2 = tensor1, tensor2, tensor
        if record is _div and all(
            getattr(t, "dtype", dtypes.float32).category < dtypes.FLOAT for t in (tensor1, tensor2)
        ):
            raise RuntimeError(
                "Integer division with addcdiv is no longer supported; use (input + value * torch.trunc(tensor1 / tensor2)) for "
                "the older behaviour, or true_divide"
            )
        return scaled(input, tensor1, tensor2, value)

    @once_rounded
    def scaled(input, tensor1, tensor2, value):
        change = record.fast_call(tensor1, tensor2)
        return input + (change if value == 1 else change * value)

    return function


addcmul = _with_value("addcmul", "*", mul, "[1.0]; [2.0]; [3.0]; value=10 -> [61.0]")
addcdiv = _with_value("addcdiv", "/", _div, "[1.0]; [6.0]; [3.0]; value=10 -> [21.0]")


# -- comparison and logic (no gradient) -------------------------------------------------------------------


def _compare(name, function, symbol, result, *names):
    text, example = f"input {symbol} other, elementwise, as bools.", f"[1, 2, 3]; 2 -> [{result}]"
    return binary(name, text, function, example, names=names, dunder=f"__{name}__")


def _bitwise(name, symbol, text, example):
    function, reflected = name if "shift" not in name else name[8:], "shift" not in name
    text = f"{text}, elementwise, of integers or bools."
    return binary(name, text, function, example, dunder=f"__{symbol}__", reflected=reflected)


def _logical(name, result):
    def forward(xp, input, other):
        return getattr(xp, name)(input != 0, other != 0)

    example = f"[True, True, False]; [True, False, False] -> [{result}]"
    return binary(name, f"Elementwise {name[8:]} of truth values.", forward, example)


def _test(name, text, result, for_integers=False):
    def forward(xp, input):
        return xp.full(input.shape, for_integers) if input.dtype.kind in "iub" else getattr(xp, name)(input)

    example = f"[1.0, np.inf, np.nan] -> [{result}]"
    return unary(name, text, example, forward=forward, dtype="promote", inplace=False, xp_name=name)


eq = _compare("eq", "equal", "==", "False, True, False")
ne = _compare("ne", "not_equal", "!=", "True, False, True", "not_equal")
lt = _compare("lt", "less", "<", "True, False, False", "less")
le = _compare("le", "less_equal", "<=", "True, True, False", "less_equal")
gt = _compare("gt", "greater", ">", "False, False, True", "greater")
ge = _compare("ge", "greater_equal", ">=", "False, True, True", "greater_equal")

bitwise_and = _bitwise("bitwise_and", "and", "Bits set in both", "[6, 3]; 2 -> [2, 2]")
bitwise_or = _bitwise("bitwise_or", "or", "Bits set in either", "[6, 1]; 2 -> [6, 3]")
bitwise_xor = _bitwise("bitwise_xor", "xor", "Bits set in exactly one", "[6, 1]; 2 -> [4, 3]")
bitwise_left_shift = _bitwise("bitwise_left_shift", "lshift", "Bits moved to the left by other", "[1, 3]; 2 -> [4, 12]")
bitwise_right_shift = _bitwise(
    "bitwise_right_shift", "rshift", "Bits moved to the right by other", "[4, 12]; 2 -> [1, 3]"
)
bitwise_not = unary(
    "bitwise_not", "Every bit flipped; bools negated.", "[0, 5] -> [-1, -6]",
    forward="invert", dtype="promote", dunder="__invert__",
)  # fmt: skip

logical_and = _logical("logical_and", "True, False, False")
logical_or = _logical("logical_or", "True, True, False")
logical_xor = _logical("logical_xor", "False, True, False")
logical_not = unary(
    "logical_not", "True where input is zero.", "[0, 5] -> [True, False]",
    forward=lambda xp, input: input == 0, dtype="promote",
)  # fmt: skip

isnan = _test("isnan", "True where input is NaN.", "False, False, True")
isinf = _test("isinf", "True where input is infinite.", "False, True, False")
isfinite = _test("isfinite", "True where input is neither infinite nor NaN.", "True, False, False", for_integers=True)


@public(inplace=False)
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """True where |input - other| <= atol + rtol * |other|.

    Args:
        other: the second tensor, which broadcasts with input.
        rtol: tolerance relative to other.
        atol: absolute tolerance.
        equal_nan: count NaN as equal to NaN.

    Raises:
        RuntimeError: a negative tolerance. TypeError: one that requires grad.

    Example:
        >>> mytorch.isclose(tensor([1.0, 1.0]), tensor([1.0 + 1e-7, 1.1])).tolist()
        [True, False]
    """
    if getattr(rtol, "requires_grad", False) or getattr(atol, "requires_grad", False):
        raise TypeError("isclose(): rtol and atol must be numbers, not tensors that require grad")
    if not (rtol >= 0 and atol >= 0):
        raise RuntimeError(f"isclose: rtol and atol must be greater than or equal to zero, but got {rtol} and {atol}")
    if input.dtype is dtypes.bool_:
        return input == other
    close = (input - other).abs() <= atol + rtol * other.abs()
    close = close & isfinite.fast_call(other) | (input == other)
    return close | (isnan.fast_call(input) & isnan.fast_call(other)) if equal_nan else close


@public(inplace=False)
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether `isclose` holds everywhere, as a Python bool.

    Args:
        rtol, atol: the tolerance is atol + rtol * |other|. equal_nan: whether NaN equals NaN.
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public(inplace=False)
def equal(input, other):
    """Whether two tensors have the same shape and the same values, as a Python bool."""
    return tuple(input.shape) == tuple(other.shape) and bool((input == other).all())


@op(name="nan_to_num", elementwise="exact")
def _nan_to_num(xp, input, *, nan=0.0, posinf=None, neginf=None):
    if input.dtype.kind in "iub":
        return input.copy()
    if input.dtype.kind == "c":
        parts = (
            _nan_to_num.forward(xp, part, nan=nan, posinf=posinf, neginf=neginf) for part in (input.real, input.imag)
        )
        return xp.stack(tuple(parts), axis=-1).view(input.dtype)[..., 0]
    info = dtypes.finfo(input.dtype)
    input = xp.where(input != input, input.dtype.type(nan), input)
    input = xp.where(input == math.inf, input.dtype.type(info.max if posinf is None else posinf), input)
    return xp.where(input == -math.inf, input.dtype.type(info.min if neginf is None else neginf), input)


_nan_to_num.grad(input=lambda g, input, xp: xp.where(xp.isfinite(xp.detach(input)), g, 0.0))


@public()
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    """Replace NaN by `nan` and the infinities by the given values, or the dtype's largest.

    Args:
        nan, posinf, neginf: the numbers to write; None is the dtype's largest or smallest.

    Example:
        >>> mytorch.nan_to_num(tensor([np.nan, 1.0])).tolist()
        [0.0, 1.0]
    """
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
