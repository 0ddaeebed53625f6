"""Elementwise ops: arithmetic, powers, exponentials, rounding, comparison, choice.

Most ops are a row of a table. `unary` and `binary` define an op from its name, a line of documentation, its array
function and its derivatives, and bind it to the API.
"""

import math

import numpy as np

from ..arrays import CPU, Namespace, config, device_of, dtypes, is_raw, ndarray, numpy_ns
from ..arrays.blocks import LARGE
from ..arrays.errors import kind
from ..arrays.memory_format import in_rows, iterator
from ..arrays.tensor import Tensor
from .dispatch.bind import METHODS, public, with_numbers_between
from .dispatch.op import op, to_dtype
from .dispatch.operands import NUMBERS
from .dispatch.refused import refuses, takes_tensors


def shown(name, example):
    """Returns the fields {call} and {result} of a docstring: "[4, 9]; 2 -> [2.0, 4.5]" passes a tensor and a number."""
    given, result = example.split(" -> ")
    arguments = ", ".join(f"tensor({a})" if a[0] == "[" else a for a in given.split("; "))
    return {"call": f"mytorch.{name}({arguments}).tolist()", "result": result}


def documented(text, name, example):
    """Returns a docstring of a summary and an example, which `shown` describes."""
    return (
        text
        if example is None
        else f"{text}\n\nExample:\n    >>> {{call}}\n    {{result}}\n".format(**shown(name, example))
    )


def named(name, doc=None, **fields):
    """Gives a function of a family its own name and docstring. Without `doc`, `fields` fill its docstring's placeholders."""

    def give(function):
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc or (function.__doc__ or "").format(name=name, **fields)
        return function

    return give


def unary(
    name, text, example=None, gradient=None, *, forward=None, dtype="float", autocast="promote", xp_name=None, half=None, **binding
):  # fmt: skip
    """Defines an op of one input and binds it to the API.

    Args:
        name: name of the op.
        text: summary for the docstring.
        example: example for the docstring; see `shown`.
        gradient: gradient formula of the input; None if there is no gradient.
        forward: function of (xp, input), or the name of an array function (default: the function called `name`).
        dtype: as in `op`.
        autocast: as in `op`.
        xp_name: as in `op`.
        half: as in `op`.
        binding: as in `public`.
    """
    if forward is None or isinstance(forward, str):
        xp_name = forward or name

        def forward(xp, input):
            return getattr(xp, xp_name)(input)

        forward.array_function = xp_name

    forward.__doc__ = documented(text, name, example)
    record = op(name=name, dtype=dtype, autocast=autocast, xp_name=xp_name, elementwise=True, half=half)(forward)
    return public(**binding)(record if gradient is None else record.grad(input=gradient))


def binary(
    name, text, forward, example=None, *, input=None, other=None, dtype="promote", xp_name=None, wide=False, **binding
):
    """Defines an op of two inputs and binds it to the API; see `unary`.

    `input` and `other` are their gradient formulas. With `wide`, Python numbers are not rounded to half precision;
    with "other", only the second input.
    """
    if isinstance(forward, str):
        xp_name = forward

        def forward(xp, input, other):
            return getattr(xp, xp_name)(input, other)

        forward.array_function = xp_name

    forward.__doc__ = documented(text, name, example)
    record = op(name=name, dtype=dtype, xp_name=xp_name, elementwise=True)(forward)
    record.keeps_python_scalars_float32 = wide  # before `public` makes copies of the record with other names
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
    """Returns a forward that raises for a division of integers by zero. On a GPU, as in PyTorch, the result is undefined.

    Raises:
        RuntimeError: an integer divisor is zero.
    """

    def checked(xp, input, other):
        whole = type(other) is int or (is_raw(other) and device_of(other) is CPU and other.dtype.kind in "biu")
        if whole and input.size and not (other.all() if type(other) is not int else other or input.dtype.kind in "fcV"):
            raise RuntimeError("ZeroDivisionError: integer division or remainder by zero")
        return divide(xp, input, other)

    return checked


def _truncated(xp, input, other):
    if np.result_type(input, other).kind in "iu":
        quotient = xp.floor_divide(input, other)
        return quotient + ((quotient < 0) & (quotient * other != input))
    return xp.trunc(xp.true_divide(input, other))


def _log1p(xp, input):
    """Returns log(1 + input). For complex numbers, the real part is accurate near zero, too."""
    if type(input) is not ndarray or input.dtype.kind != "c":
        return xp.log1p(input)
    x, y, out = input.real, input.imag, np.empty_like(input)
    near = np.hypot(x, y) < 0.5
    small = np.where(near, x * (2 + x) + y * y, 0)
    with np.errstate(divide="ignore"):
        out.real = np.where(near, np.where(small == 0, x, 0.5 * np.log1p(small)), np.log(np.hypot(x + 1, y)))
    out.imag = np.arctan2(y, x + 1)
    return out


def zero(g, xp):
    """Returns the gradient of a step function: zeros, also where the upstream gradient is infinite or NaN."""
    if isinstance(xp, Namespace):
        return xp.zeros(g.shape, g.dtype)
    return xp.where((g == g) & (g != g), g, 0.0)  # part of the graph of a second derivative


def no_derivative(name, message=None):
    """Returns a gradient formula that raises an error, for an input that has no derivative; a RuntimeError with a message."""

    def formula(g):
        if message is not None:
            raise RuntimeError(message)
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

    return formula


@op(dtype="same", layout=None)
def without_derivative(xp, result, input, *, name, message=None):
    """Returns `result`, the result of a function of `input` without a derivative. Its differentiation raises an error."""
    return result


without_derivative.grad(result=lambda g: g, input=lambda g, name, message: no_derivative(name, message)(g))


def _as_ufunc(name, formula):
    """Returns a gradient formula after noting which function of NumPy's namespace computes it in one step, for large arrays."""
    formula.ufunc = getattr(numpy_ns, name)
    return formula


# fmt: off
_add = binary("add", "Adds two tensors.", "add", input=lambda g: g, other=lambda g: g,
              dunder="__add__", reflected=True, inplace=False)
_sub = binary("sub", "Subtracts two tensors.", _subtract, input=lambda g: g, other=lambda g: -g,
              xp_name="subtract", dunder="__sub__", inplace=False)
mul = binary("mul", "Multiplies two tensors elementwise, with broadcasting.", "multiply", "[[1], [2]]; [3, 4] -> [[3, 4], [6, 8]]",
             input=_as_ufunc("multiply", lambda g, other: g * other), other=_as_ufunc("multiply", lambda g, input: g * input),
             wide=True, names=("multiply",), dunder="__mul__", reflected=True)
_div = binary("div", "Divides two tensors elementwise. Integers become the default floating-point dtype.", "true_divide", dtype="float",
              input=_as_ufunc("true_divide", lambda g, other: g / other), other=lambda g, input, other: -g * ((input / other) / other),
              wide=True, dunder="__truediv__", inplace=False)
floor_divide = binary("floor_divide", "Divides elementwise and rounds down.",
                      _divider(lambda xp, x, y: xp.floor_divide(x, y)), "[7, -7]; 2 -> [3, -4]", dunder="__floordiv__",
                      input=no_derivative("floor_divide"), other=no_derivative("floor_divide"), wide="other")
remainder = binary("remainder", "Computes input modulo other, with the sign of other, as Python's `%` operator.",
                   _divider(lambda xp, x, y: xp.remainder(x, y)), "[7, -7]; 3 -> [1, 2]", dunder="__mod__",
                   input=lambda g: g, other=lambda g, input, other, xp: -g * xp.floor(xp.detach(input / other)))
fmod = binary("fmod", "Computes the remainder of input / other, with the sign of input, as fmod in C.",
              _divider(lambda xp, x, y: xp.fmod(x, y)), "[7, -7]; 3 -> [1, -1]",
              input=lambda g: g, other=lambda g, input, other, xp: -g * xp.trunc(xp.detach(input / other)))
# fmt: on
_divided_by = METHODS["__rtruediv__"]


def _number_over(self, other):
    """Divides a number or an array by a tensor as PyTorch does, so that backward needs the reciprocal and not the tensor."""
    if type(other) not in NUMBERS:
        return reciprocal(self) * other if is_raw(other) else _divided_by(self, other)
    inverse = reciprocal(self)
    # The product is a separate tensor: the program may overwrite it, while backward reads the reciprocal.
    return inverse if other == 1 and not inverse.requires_grad else inverse * other


METHODS["__rtruediv__"] = _number_over
_divide_floor = op(name="_divide_floor", elementwise="exact")(_divider(lambda xp, x, y: xp.floor_divide(x, y)))
_divide_floor.grad(input=zero, other=zero)
_divide_trunc = op(name="_divide_trunc", elementwise="exact")(_divider(_truncated)).grad(input=zero, other=zero)


def _powers_in_memory(out, raws, attrs):
    """The layout of a power: PyTorch follows the operands, but allocates the powers of a number in row-major order."""
    return (iterator if hasattr(raws[0], "strides") else in_rows)(out, raws, attrs)


@public(dunder="__pow__", spellings={"exponent": "other"})
@op(name="pow", autocast="float32", elementwise=True, layout=_powers_in_memory)
def pow(xp, input, other):
    """Raises each element to a power.

        result = input ^ other

    Args:
        input: base.
        other: exponent, a tensor or a number. Broadcasts with `input`.

    Raises:
        RuntimeError: integers to a negative integer power. With a tensor of exponents, the results are 0, 1 or -1 instead.

    Example:
        >>> mytorch.pow(tensor([1.0, 2.0, 3.0]), 2).tolist()
        [1.0, 4.0, 9.0]
    """
    kind = input.dtype.kind if hasattr(input, "dtype") else None  # on a GPU, a number is a scalar of NumPy
    if kind == "b":
        return input | ~other  # only False ** True is False
    if not is_raw(other) or kind not in ("i", "u"):
        # NumPy's power is slow for 3.
        cube = type(other) in (int, float) and other == 3 and is_raw(input) and input.dtype.kind == "f"
        return input * input * input if cube else input**other
    input = xp.asarray(input)
    negative = other < 0
    on_cpu = device_of(other) is CPU
    if on_cpu and not negative.any():  # on a GPU the answer would have to be waited for
        return input**other
    units = xp.where(input == 1, 1, xp.where(input == -1, 1 - 2 * (other % 2), 0)).astype(input.dtype)
    return xp.where(negative, units, input ** xp.where(negative, 0, other).astype(other.dtype))


def _of_kind(number, out, xp):
    """Returns a number as an array of the dtype of `out`, so that logarithms of negative numbers can be complex."""
    return number if hasattr(number, "shape") else xp.ones_like(out) * number


def _pow_input(g, input, other, xp):
    """Returns g other input^(other - 1). An exponent of 0 is replaced, so that the second derivative at 0 ** 0 is 0, not NaN."""
    if not hasattr(other, "shape"):
        return g * (other * input ** (other - 1)) if other else xp.zeros_like(g)
    constant = other == 0
    other = xp.where(constant, 1.0, other)
    return xp.where(constant, 0.0, g * (other * input ** (other - 1)))


def _pow_other(g, input, other, out, xp):
    base = _of_kind(input, out, xp)
    constant = (base == 0) & (other.real >= 0)
    return g * xp.where(constant, 0.0, out * xp.log(xp.where(constant, 1.0, base)))


pow.grad(input=_pow_input, other=_pow_other)


def _with_alpha(name, record, symbol, example):
    @named(name, verb=name.capitalize(), symbol=symbol, **shown(name, example))
    def function(input, other, tensor=None, *, alpha=1):
        """{verb}s two tensors, or a tensor and a number.

            result = input {symbol} alpha * other

        Args:
            input: first tensor.
            other: second tensor or number. Broadcasts with `input`.
            tensor: for the deprecated call `{name}(input, alpha, other)`.
            alpha: factor of `other` (default: 1).

        Example:
            >>> {call}
            {result}
        """
        if tensor is not None:
            other, alpha = tensor, other
        return record.fast_call(input, other if alpha == 1 and type(alpha) is int else _scaled(input, other, alpha))

    return function


add = public()(_with_alpha("add", _add, "+", "[1, 2]; [10, 20]; alpha=2 -> [21, 42]"))
sub = public(names=("subtract",))(_with_alpha("sub", _sub, "-", "[1, 2]; [10, 20] -> [-9, -18]"))


def _common_dtype(*tensors):
    """Returns the dtype of the result of an operation on tensors."""
    return dtypes.result_type(*[[t.dtype for t in tensors if bool(t.ndim) is having] for having in (True, False)], [])


def _scaled(input, other, alpha):
    """Computes alpha * other.

    Raises:
        RuntimeError: a fractional alpha for integers, or a bool for numbers.
    """
    category = max(t.dtype.category if hasattr(t, "dtype") else dtypes.of_number(t).category for t in (input, other))
    if isinstance(alpha, float) and category < dtypes.FLOAT:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and category < dtypes.COMPLEX:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if getattr(input, "dtype", None) is dtypes.bool_ is getattr(other, "dtype", None):
        alpha = bool(alpha)
    elif isinstance(alpha, bool):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if alpha == 1:
        return other
    if type(other) in NUMBERS:  # stays a number, which does not change the dtype of a 0-d tensor
        dtype = dtypes.result_type([input.dtype], [], [dtypes.of_number(other)])
        product = other * dtypes.fitting(alpha, dtype)
        return bool(product) if dtype is dtypes.bool_ else product
    if category < dtypes.FLOAT or other.dtype.itemsize == 2:
        fitted = dtypes.fitting(
            alpha, dtypes.promote_types(*(getattr(t, "dtype", other.dtype) for t in (input, other)))
        )
        alpha = fitted if category < dtypes.FLOAT else alpha
    if isinstance(input, Tensor) and isinstance(other, Tensor) and input.dtype is not other.dtype:
        other = cast(other, _common_dtype(input, other))  # the result's dtype, for bytes times alpha may overflow
    return mul.fast_call(other, alpha)


@public()
def rsub(input, other, alpha=1):
    """Subtracts `input` from `other`.

        result = other - alpha * input

    Args:
        input: subtrahend.
        other: minuend, a tensor or a number.
        alpha: factor of `input` (default: 1).
    """
    return _sub.fast_call(other, _scaled(other, input, alpha))


@public(names=("divide", "true_divide"))
def div(input, other, *, rounding_mode=None):
    """Divides two tensors, or a tensor and a number.

        result = input / other

    Args:
        input: dividend.
        other: divisor. Broadcasts with `input`.
        rounding_mode: None (default), "trunc" to round the quotient toward zero, or "floor" to round it down.

    Raises:
        RuntimeError: an unknown rounding mode.

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
    """Negates each element.

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
@refuses("B")
def positive(input):
    """Returns the input unchanged."""
    return input


def _sgn_grad(g, input, out, xp):
    size = xp.abs(input)
    along = out * xp.real(g * xp.conj(out))
    return xp.where(size == 0, 0.0, (g - along) / xp.where(size == 0, 1.0, size))


_sgn = op(name="sgn", holomorphic=False, layout=iterator)(lambda xp, input: xp.sign(input)).grad(input=_sgn_grad)


@public()
def sgn(input):
    """Returns the sign of each element. For a complex number z this is z / |z|, and 0 for 0.

    Example:
        >>> mytorch.sgn(tensor([2j, -3 + 0j])).tolist()
        [1j, (-1+0j)]
    """
    return _sgn.fast_call(input) if input.dtype.is_complex else sign.named("Sign", "SgnBackward0").fast_call(input)


# -- functions of one number -----------------------------------------------------------------------------


def _doubled(input):
    """Returns 2 input, in a recorded backward as the power that PyTorch computes, so that further derivatives are 0 and not an error."""
    return input * 2 if is_raw(input) else input**1 * 2


def _unless(kinds, function):
    """Returns a forward that applies an array function, except to some kinds of dtypes."""
    return lambda xp, input: input.copy() if input.dtype.kind in kinds else getattr(xp, function)(input)


# fmt: off
abs = unary("abs", "Computes the absolute value of each element. For complex numbers, this is the modulus.", "[-1.0, 2.0] -> [1.0, 2.0]",
            lambda g, input, xp: g * xp.sign(input),  # NumPy 2 gives z / |z| for complex z
            forward="absolute", dtype="promote", names=("absolute",), dunder="__abs__")
sign = unary("sign", "Returns the sign of each element: -1, 0 or 1.", "[-3.0, 0.0, 5.0] -> [-1.0, 0.0, 1.0]", zero, forward=_unless("b", "sign"), dtype="promote")
reciprocal = unary("reciprocal", "Computes the reciprocal of each element.", "[2.0, 4.0] -> [0.5, 0.25]", lambda g, out: -g * (out * out), autocast="float32")
square = unary("square", "Computes the square of each element.", "[-2.0, 3.0] -> [4.0, 9.0]", lambda g, input: g * _doubled(input),
               forward=lambda xp, input: xp.square(input if input.dtype.kind != "b" else input.astype(np.int64)),
               dtype="promote", autocast="float32", xp_name="square")
sqrt = unary("sqrt", "Computes the square root of each element.", "[4.0, 9.0] -> [2.0, 3.0]", lambda g, out: g / (out * 2))
rsqrt = unary("rsqrt", "Computes 1 / sqrt(input) for each element. Zero gives inf, and negative real numbers give NaN.", "[4.0, 16.0] -> [0.5, 0.25]", lambda g, out: g * (out * out * out) * -0.5,
              forward=lambda xp, input: xp.reciprocal(xp.sqrt(input)), autocast="float32").register_kernel(cpu="mytorch.kernels.numba.arithmetic:rsqrt")
exp = unary("exp", "Computes the exponential of each element.", "[0.0] -> [1.0]", lambda g, out: g * out, autocast="float32")
exp2 = unary("exp2", "Computes 2 to the power of each element.", "[0.0] -> [1.0]", lambda g, out: g * out * math.log(2))
expm1 = unary("expm1", "Computes exp(input) - 1, accurately near zero.", "[0.0] -> [0.0]", lambda g, out: g * (out + 1), autocast="float32")
log = unary("log", "Computes the natural logarithm of each element.", "[1.0] -> [0.0]", lambda g, input: g / input, autocast="float32")
log2 = unary("log2", "Computes the logarithm to base 2 of each element.", "[1.0] -> [0.0]", lambda g, input: g / (input * math.log(2)),
             autocast="float32")
log10 = unary("log10", "Computes the logarithm to base 10 of each element.", "[1.0] -> [0.0]", lambda g, input: g / (input * math.log(10)),
              autocast="float32")
log1p = unary("log1p", "Computes log(1 + input), accurately near zero.", "[0.0] -> [0.0]", lambda g, input: g / (input + 1),
              forward=_log1p, autocast="float32", xp_name="log1p")
erf = unary("erf", "Computes the error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to input.", "[0.0] -> [0.0]",
            lambda g, input, xp: g * (xp.exp(-(input * input)) * (2 / math.sqrt(math.pi))))
sin = unary("sin", "Computes the sine of each element, in radians.", "[0.0] -> [0.0]", lambda g, input, xp: g * xp.cos(input))
cos = unary("cos", "Computes the cosine of each element, in radians.", "[0.0] -> [1.0]", lambda g, input, xp: -g * xp.sin(input))
tan = unary("tan", "Computes the tangent of each element, in radians.", "[0.0] -> [0.0]", lambda g, out: g * (out * out + 1), autocast="float32")
floor = unary("floor", "Rounds each element down to an integer.", "[1.5, -1.5] -> [1.0, -2.0]", zero,
              forward=_unless("iub", "floor"), dtype="promote", xp_name="floor")
ceil = unary("ceil", "Rounds each element up to an integer.", "[1.5, -1.5] -> [2.0, -1.0]", zero,
             forward=_unless("iub", "ceil"), dtype="promote", xp_name="ceil")
trunc = unary("trunc", "Removes the fractional part of each element.", "[1.5, -1.5] -> [1.0, -1.0]", zero,
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
    """Rounds each element to the nearest integer, and halves to the nearest even integer.

    Args:
        decimals: number of digits after the decimal point; may be negative (default: 0).

    Example:
        >>> mytorch.round(tensor([0.5, 1.5, -2.7])).tolist()
        [0.0, 2.0, -3.0]
    """
    return _round.fast_call(input, decimals)


@public()
@refuses("bi")
def frac(input):
    """Returns the fractional part of each element, with the sign of the element.

    Example:
        >>> mytorch.frac(tensor([1.25, -1.25])).tolist()
        [0.25, -0.25]
    """
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
    """Selects elements from two tensors by a condition.

    Use it to choose between two results. Gradients flow into both, so a NaN in the one that is not chosen can reach the
    gradient.

    Args:
        condition: bool tensor. Broadcasts with the other arguments.
        input: tensor or number to use where the condition is True.
        other: tensor or number to use where the condition is False.

    Returns:
        The selected elements. With `condition` alone, the indices of its nonzero elements.

    Example:
        >>> x = tensor([-1.0, 2.0])
        >>> mytorch.where(x > 0, x, 0.0).tolist()
        [0.0, 2.0]
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    dtype = condition.dtype
    if dtype is not dtypes.bool_ and dtype is not dtypes.uint8:
        raise RuntimeError(
            f"mytorch.where expected condition to be a boolean tensor, but got a tensor with dtype {dtype}"
        )
    if type(input) in NUMBERS and type(other) in NUMBERS:  # of the default dtype, not of NumPy's
        dtype = dtypes.result_type([], [], [dtypes.of_number(x) for x in (input, other)])
        input = Tensor._wrap(np.asarray(input, dtype.numpy)).to(condition.device)
    return _where.fast_call(condition, input, other)


@public(name="where", function=False)
def where_method(self, condition, other):
    """Returns this tensor's elements where the condition is True, and elements of `other` elsewhere.

    Args:
        condition: bool tensor.
        other: tensor or number.
    """
    return where(condition, self, other)


def _share(g, lost, tie, xp):
    """Returns the gradient of a choice: none if the other input was chosen, half for equal values, all for NaN."""
    return xp.where(tie, g * 0.5, xp.where(lost, 0.0, g))


# fmt: off
maximum = binary("maximum", "Returns the larger of two elements, or NaN if one is NaN. Equal values share the gradient.", "maximum",
                 "[1.0, 5.0]; [2.0, 3.0] -> [2.0, 5.0]",
                 input=lambda g, input, other, xp: _share(g, input < other, input == other, xp),
                 other=lambda g, input, other, xp: _share(g, other < input, input == other, xp))
minimum = binary("minimum", "Returns the smaller of two elements, or NaN if one is NaN. Equal values share the gradient.", "minimum",
                 "[1.0, 5.0]; [2.0, 3.0] -> [1.0, 3.0]",
                 input=lambda g, input, other, xp: _share(g, input > other, input == other, xp),
                 other=lambda g, input, other, xp: _share(g, other > input, input == other, xp))
# fmt: on


@op(name="clamp", elementwise="exact")
def _clamp(xp, input, min=None, max=None):
    if input.dtype.kind == "f" and isinstance(min, _BOUNDS) and isinstance(max, _BOUNDS):
        number = input.dtype.type
        min, max = min if min is None else number(min), max if max is None else number(max)
        if math.prod(input.shape) >= LARGE:  # NumPy's `maximum` of an array and a number takes four times as long
            return xp.clip(input, number(-math.inf) if min is None else min, number(math.inf) if max is None else max)
    if min is not None:
        input = xp.maximum(input, min)
    return input if max is None else xp.minimum(input, max)


_BOUNDS = int, float, type(None)


def _inside(input, min, max):
    """Returns a mask of the elements that clamp left unchanged, including elements at the bounds."""
    if min is None:
        return input <= max
    return input >= min if max is None else (input >= min) & (input <= max)


_clamp.grad(
    input=lambda g, input, min, max, xp: xp.where(_inside(input, min, max), g, 0.0),
    min=lambda g, input, min, max, xp: xp.where((input < min) if max is None else (input < min) & (min < max), g, 0.0),
    max=lambda g, input, min, max, xp: xp.where((input > max) if min is None else (input > max) | (max < min), g, 0.0),
)


_clamp_min, _clamp_max = (_clamp.named("Clamp", f"Clamp{bound}Backward") for bound in ("Min", "Max"))


@public(names=("clip",))
def clamp(input, min=None, max=None):
    """Limits each element to the range [min, max].

        result = min(max(input, min), max)

    Args:
        min: lower bound, a number or a tensor (default: None, no bound).
        max: upper bound, a number or a tensor (default: None, no bound).

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
    """Limits each element to at least `min`.

    Args:
        min: lower bound.

    Example:
        >>> mytorch.clamp_min(tensor([-1.0, 2.0]), 0.0).tolist()
        [0.0, 2.0]
    """
    return _clamp_min(input, min)


@public()
def clamp_max(input, max):
    """Limits each element to at most `max`.

    Args:
        max: upper bound.

    Example:
        >>> mytorch.clamp_max(tensor([-1.0, 2.0]), 0.0).tolist()
        [-1.0, 0.0]
    """
    return _clamp_max(input, None, max)


def _times(x, value):
    return x if value == 1 else x * value


def _combined(name, function, tensor2):
    """Defines the op input + value * tensor1 (*, /) tensor2 from the array function and the gradient of its second argument."""

    @op(name=name, elementwise=True, half="everywhere")
    def combined(xp, input, tensor1, tensor2, *, value=1):
        return input + getattr(xp, function)(_times(tensor1, value), tensor2)

    combined.register_kernel(cpu=f"mytorch.kernels.numba.arithmetic:{name}")
    return combined.grad(
        input=lambda g: g,
        tensor1=lambda g, tensor2, value, xp: getattr(xp, function)(_times(g, value), tensor2),
        tensor2=tensor2,
    )


def _with_value(name, symbol, record, combined, example):
    @public()
    @with_numbers_between("value")
    @named(name, symbol=symbol, what="product" if symbol == "*" else "quotient", **shown(name, example))
    def function(input, tensor1, tensor2, *, value=1):
        """Adds the scaled {what} of two tensors to a tensor.

            result = input + value * tensor1 {symbol} tensor2

        Args:
            input: summand.
            tensor1: first tensor of the {what}.
            tensor2: second tensor of the {what}.
            value: factor of the {what} (default: 1).

        Example:
            >>> {call}
            {result}
        """
        if isinstance(value, Tensor):
            value = value.item()
        if record is _div and integers(tensor1, tensor2):
            raise RuntimeError(
                "Integer division with addcdiv is no longer supported; use (input + value * torch.trunc(tensor1 / tensor2)) for "
                "the older behavior, or true_divide"
            )
        given = [getattr(t, "dtype", None) for t in (input, tensor1, tensor2)]
        if None not in given and len({*given}) > 1:  # the product has the precision of the result
            common = _common_dtype(input, tensor1, tensor2)
            tensor1, tensor2 = cast(tensor1, common), cast(tensor2, common)
        if isinstance(value, complex) and not any(getattr(t, "is_complex", bool)() for t in (input, tensor1, tensor2)):
            raise RuntimeError("value cannot be converted to a real dtype without overflow")
        if integers(input, tensor1, tensor2):
            dtype = _common_dtype(input, tensor1, tensor2)
            value = dtypes.fitting(value, dtype)
            return input + record.fast_call(tensor1 if value == 1 else cast(tensor1, dtype) * value, tensor2)
        return combined.fast_call(input, tensor1, tensor2, value)

    def integers(*tensors):
        return all(getattr(t, "dtype", dtypes.float32).category < dtypes.FLOAT for t in tensors)

    return function


_addcmul = _combined("addcmul", "multiply", lambda g, tensor1, value: g * _times(tensor1, value))
_addcdiv = _combined(
    "addcdiv", "true_divide", lambda g, tensor1, tensor2, value: -g * (_times(tensor1, value) / tensor2 / tensor2)
)
addcmul = _with_value("addcmul", "*", mul, _addcmul, "[1.0]; [2.0]; [3.0]; value=10 -> [61.0]")
addcdiv = _with_value("addcdiv", "/", _div, _addcdiv, "[1.0]; [6.0]; [3.0]; value=10 -> [21.0]")


# -- comparison and logic (no gradient) -------------------------------------------------------------------


def _compare(name, function, symbol, result, *names):
    text, example = f"Computes input {symbol} other elementwise; returns bools.", f"[1, 2, 3]; 2 -> [{result}]"
    return binary(name, text, function, example, names=names, dunder=f"__{name}__")


def _bitwise(name, symbol, text, example):
    function, reflected = name if "shift" not in name else name[8:], "shift" not in name
    text = f"{text}, for integers or bools."
    return binary(name, text, function, example, dunder=f"__{symbol}__", reflected=reflected)


def _logical(name, result):
    def forward(xp, input, other):
        return getattr(xp, name)(input != 0, other != 0)

    example = f"[True, True, False]; [True, False, False] -> [{result}]"
    return binary(
        name,
        f"Computes the logical {name[8:]} of each pair of elements, where nonzero elements are True.",
        forward,
        example,
    )


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

bitwise_and = _bitwise("bitwise_and", "and", "Computes the bitwise and", "[6, 3]; 2 -> [2, 2]")
bitwise_or = _bitwise("bitwise_or", "or", "Computes the bitwise or", "[6, 1]; 2 -> [6, 3]")
bitwise_xor = _bitwise("bitwise_xor", "xor", "Computes the bitwise exclusive or", "[6, 1]; 2 -> [4, 3]")
bitwise_left_shift = _bitwise(
    "bitwise_left_shift", "lshift", "Shifts the bits of input left by other", "[1, 3]; 2 -> [4, 12]"
)
bitwise_right_shift = _bitwise(
    "bitwise_right_shift", "rshift", "Shifts the bits of input right by other", "[4, 12]; 2 -> [1, 3]"
)
bitwise_not = unary(
    "bitwise_not", "Inverts the bits of each element. Bools are negated.", "[0, 5] -> [-1, -6]",
    forward="invert", dtype="promote",
)  # fmt: skip


@public(name="__invert__", function=False, inplace=False)
def _invert(self):
    """Returns `bitwise_not` of integers and bools."""
    if self.dtype.category > dtypes.INT:
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return bitwise_not(self)


logical_and = _logical("logical_and", "True, False, False")
logical_or = _logical("logical_or", "True, True, False")
logical_xor = _logical("logical_xor", "False, True, False")
logical_not = unary(
    "logical_not", "Tests which elements are zero.", "[0, 5] -> [True, False]",
    forward=lambda xp, input: input == 0, dtype="promote",
)  # fmt: skip

isnan = _test("isnan", "Tests which elements are NaN.", "False, False, True")
isinf = _test("isinf", "Tests which elements are infinite.", "False, True, False")
isfinite = _test(
    "isfinite", "Tests which elements are neither infinite nor NaN.", "True, False, False", for_integers=True
)


@public(inplace=False)
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Tests elementwise if two tensors are equal within a tolerance.

        result = |input - other| <= atol + rtol * |other|

    Args:
        other: second tensor. Broadcasts with `input`.
        rtol: relative tolerance (default: 1e-5).
        atol: absolute tolerance (default: 1e-8).
        equal_nan: if True, NaN equals NaN (default: False).

    Raises:
        RuntimeError: a tolerance is negative.
        TypeError: a tolerance requires grad.

    Example:
        >>> mytorch.isclose(tensor([1.0, 1.0]), tensor([1.0 + 1e-7, 1.1])).tolist()
        [True, False]
    """
    if getattr(rtol, "requires_grad", False) or getattr(atol, "requires_grad", False):
        raise TypeError("isclose(): rtol and atol must be numbers, not tensors that require grad")
    if not (rtol >= 0 and atol >= 0):
        raise RuntimeError(f"isclose: rtol and atol must be greater than or equal to zero, but got {rtol} and {atol}")
    if config.pytorch_mode and input.dtype is not other.dtype:
        raise RuntimeError(f"isclose: {input.dtype} did not match {other.dtype}. Convert one of the inputs.")
    if input.dtype is dtypes.bool_:
        return input == other
    close = (input - other).abs() <= atol + rtol * other.abs()
    close = close & isfinite.fast_call(other) | (input == other)
    return close | (isnan.fast_call(input) & isnan.fast_call(other)) if equal_nan else close


@public(inplace=False)
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Returns True if two tensors are equal within a tolerance; see `isclose`.

    Args:
        input: first tensor.
        other: second tensor.
        rtol: relative tolerance (default: 1e-5).
        atol: absolute tolerance (default: 1e-8).
        equal_nan: if True, NaN equals NaN (default: False).

    Example:
        >>> mytorch.allclose(tensor([1.0]), tensor([1.0 + 1e-7]))
        True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public(inplace=False)
@takes_tensors("other")
def equal(input, other):
    """Returns True if two tensors have the same shape and equal elements.

    Args:
        other: the second tensor.

    Example:
        >>> mytorch.equal(tensor([1, 2]), tensor([1, 2]))
        True
    """
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
    info, number = dtypes.finfo(input.dtype), input.dtype.type
    if posinf is None and neginf is None:
        out = _clamp.forward(xp, input, float(info.min), float(info.max))
    else:
        out = xp.where(input == math.inf, number(info.max if posinf is None else posinf), input)
        out = xp.where(input == -math.inf, number(info.min if neginf is None else neginf), out)
    return xp.where(input != input, number(nan), out)


_nan_to_num.grad(input=lambda g, input, xp: xp.where(xp.isfinite(xp.detach(input)), g, 0.0))


@public()
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    """Replaces NaN and infinities by numbers.

    Args:
        nan: replacement of NaN (default: 0.0).
        posinf: replacement of positive infinity (default: the largest number of the dtype).
        neginf: replacement of negative infinity (default: the smallest number of the dtype).

    Example:
        >>> mytorch.nan_to_num(tensor([np.nan, 1.0])).tolist()
        [0.0, 1.0]
    """
    return _nan_to_num(input, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@public(function=False, inplace=False)
def type_as(self, other):
    """Casts this tensor to the dtype of another tensor.

    Example:
        >>> tensor([1, 2]).type_as(tensor(0.5)).tolist()
        [1.0, 2.0]
    """
    return self.to(other.dtype)


def cast(x, dtype):
    """Casts x to a dtype; returns x itself if it already has the dtype. Autograd records the cast.

    Raises:
        TypeError: x is not a tensor.
    """
    if not hasattr(x, "dtype"):
        raise TypeError(f"cast: expected a Tensor, got {kind(x)}.")
    return x if x.dtype is dtype else to_dtype(x, dtype=dtype)
