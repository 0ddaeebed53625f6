"""More functions of one or two numbers: inverse and hyperbolic trigonometry, gamma and error functions and others."""

import math
from collections import namedtuple

import numpy as np

from ..arrays import Namespace, dtypes, is_raw, special, xp_of
from ..arrays.array import on_input_device
from ..arrays.errors import kind
from ..arrays.memory_format import iterator
from ..arrays.tensor import Tensor, is_tensor
from .dispatch.bind import public
from .dispatch.inplace import overwrite
from .dispatch.op import op
from .dispatch.out import write_out
from .dispatch.precision import in_precision
from .dispatch.refused import refuses
from .dispatch.unwrap import raw_of
from .elementwise import cast, documented, log, no_derivative, where, zero
from .elementwise import pow as _pow
from .movement import contiguous
from .reduction import to_acc_type


def _apply(xp, function, *arrays):
    """Calls the namespace's function of that name, or a function of NumPy arrays."""
    return xp.on_numpy(function, *arrays) if callable(function) else getattr(xp, function)(*arrays)


def _lcm(a, b):
    """The absolute value, also of multiples that overflow."""
    return np.abs(np.lcm(a, b))


def _op(name, function, doc, *names, binary=False, dtype="float", autocast="promote", bind=True):
    """The record of an elementwise op that is one function (see `_apply`), and further names for it."""
    forward = (
        (lambda xp, input, other: _apply(xp, function, input, other))
        if binary
        else (lambda xp, input: _apply(xp, function, input))
    )
    forward.array_function = function if isinstance(function, str) else None
    if binary:
        record = op(dtype=dtype, name=name, elementwise="exact" if name == "nextafter" else True, layout=iterator)(
            forward
        )
    else:
        record = op(dtype=dtype, name=name, autocast=autocast, elementwise=True)(forward)
    record.__doc__ = doc
    if bind:
        public(name=name, names=names)(record)
    return record


# -- of one number --------------------------------------------------------------------------------------------------

asin = _op("asin", "arcsin", "Computes the inverse sine of each element, in radians. Real numbers outside of [-1, 1] give NaN.", "arcsin", autocast="float32")  # fmt: skip
asin.grad(input=lambda g, input, xp: g / xp.sqrt(1.0 - input * input))
acos = _op("acos", "arccos", "Computes the inverse cosine of each element, in radians. Real numbers outside of [-1, 1] give NaN.", "arccos", autocast="float32")  # fmt: skip
acos.grad(input=lambda g, input, xp: -g / xp.sqrt(1.0 - input * input))
atan = _op("atan", "arctan", "Computes the inverse tangent of each element, in radians.", "arctan")
atan.grad(input=lambda g, input: g / (input * input + 1.0))
sinh = _op("sinh", "sinh", "Computes the hyperbolic sine of each element.", autocast="float32")
cosh = _op("cosh", "cosh", "Computes the hyperbolic cosine of each element.", autocast="float32")
sinh.grad(input=lambda g, input, xp: g * xp.call(cosh, input))
cosh.grad(input=lambda g, input, xp: g * xp.call(sinh, input))
asinh = _op("asinh", "arcsinh", "Computes the inverse hyperbolic sine of each element.", "arcsinh")
asinh.grad(input=lambda g, input, xp: g / xp.sqrt(input * input + 1.0))
acosh = _op("acosh", "arccosh", "Computes the inverse hyperbolic cosine of each element.", "arccosh")


def _acosh_grad(g, input, xp):
    low, high = input - 1.0, input + 1.0
    if "complex" in str(input.dtype):
        return g / (xp.sqrt(low) * xp.sqrt(high))  # holds in all quadrants
    return g / xp.sqrt(low * high + 0.0)  # a number for input < -1, too, as in PyTorch; -0.0 + 0.0 is 0.0


acosh.grad(input=_acosh_grad)
atanh = _op("atanh", "arctanh", "Computes the inverse hyperbolic tangent of each element.", "arctanh")
atanh.grad(input=lambda g, input: g / (1.0 - input * input))
deg2rad = _op("deg2rad", "deg2rad", "Converts degrees to radians: input * pi / 180.")
deg2rad.grad(input=lambda g: g * (math.pi / 180))
rad2deg = _op("rad2deg", "rad2deg", "Converts radians to degrees: input * 180 / pi.")
rad2deg.grad(input=lambda g: g * (180 / math.pi))

_SQRT_PI = math.sqrt(math.pi)
erfc = _op("erfc", "erfc", "Computes 1 - erf(input), accurately for large inputs.")
erfc.grad(input=lambda g, input, xp: g * (xp.exp(-(input * input)) * (-2 / _SQRT_PI)))
erfinv = _op("erfinv", special.erfinv, "Computes the inverse of erf, elementwise.", autocast="float32")
erfinv.grad(input=lambda g, out, xp: g * (xp.exp(out * out) * (_SQRT_PI / 2)))
_ndtri = _op("ndtri", special.ndtri, "Computes the quantile of the normal distribution.", bind=False)
_ndtri.grad(input=lambda g, out, xp: g * (xp.exp(out * out * 0.5) * math.sqrt(2 * math.pi)))
_erfcx = _op("erfcx", special.erfcx, "Computes exp(input^2) * erfc(input).", bind=False)
_erfcx.grad(input=lambda g, input, out: g * (input * out * 2 - 2 / _SQRT_PI))


@op(dtype="float", name="polygamma", elementwise=True)
def _polygamma(xp, input, *, n):
    """The n-th derivative of digamma, n >= 1."""
    return _apply(xp, lambda x: special.polygamma(n, x), input)


_polygamma.grad(input=lambda g, input, n, xp: g * xp.call(_polygamma, input, n=n + 1))
digamma = _op("digamma", special.digamma, "Computes the derivative of lgamma, elementwise.")
digamma.grad(input=lambda g, input, xp: g * xp.call(_polygamma, input, n=1))
lgamma = _op("lgamma", special.lgamma, "Computes log |gamma(input)|.")
lgamma.grad(input=lambda g, input, xp: g * xp.call(digamma, input))


@public(method=False)
def polygamma(n, input):
    """Computes the n-th derivative of the digamma function.

    Args:
        n: order of the derivative.

    Raises:
        RuntimeError: `n` is negative.
    """
    if not isinstance(n, int):
        raise TypeError(f"polygamma(): argument 'n' (position 1) must be int, not {kind(n)}")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return digamma.fast_call(input) if n == 0 else _polygamma(input, n=n)


@public(function=False, name="polygamma")
def _polygamma_method(self, n):
    """The n-th derivative of digamma."""
    return polygamma(n, self)


i1 = _op("i1", special.i1, "Computes the modified Bessel function of order one.", bind=False)
i1e = _op("i1e", special.i1e, "Computes exp(-|input|) * i1(input).", bind=False)
i0 = _op("i0", special.i0, "Computes the modified Bessel function of order zero.")
i0.grad(input=lambda g, input, xp: g * xp.call(i1, input))
i0e = _op("i0e", special.i0e, "Computes exp(-|input|) * i0(input).", bind=False)
i0e.grad(input=lambda g, input, out, xp: g * (xp.call(i1e, input) - xp.sign(input) * out))
i1.grad(input=lambda g, input, out, xp: g * xp.where(input == 0, 0.5, xp.call(i0, input) - _over(xp, out, input)))
i1e.grad(
    input=lambda g, input, out, xp: (
        g * xp.where(input == 0, 0.5, xp.call(i0e, input) - out * xp.sign(input) - _over(xp, out, input))
    )
)


def _over(xp, out, x):
    """out / x where x is not 0."""
    return out / xp.where(x == 0, 1.0, x)


@op(dtype="float", name="logit", elementwise=True)
def _logit(xp, input, *, eps=None):
    x = input if eps is None else xp.clip(input, input.dtype.type(eps), input.dtype.type(1 - eps))
    return xp.log(x / (1.0 - x))


def _logit_grad(g, input, eps, xp):
    low, beyond = (0.0, math.nan) if eps is None else (eps, 0.0)
    return xp.where((input < low) | (input > 1 - low), beyond, g / (input * (1.0 - input)))


_logit.grad(input=_logit_grad)


@public()
def logit(input, eps=None):
    """Computes log(input / (1 - input)).

    Args:
        input: probabilities.
        eps: limits `input` to [eps, 1 - eps] first (default: None).
    """
    return _logit.fast_call(input, eps)


@public()
def sinc(input):
    """Computes sin(pi * input) / (pi * input), and 1 at 0."""
    return _sinc.fast_call(input)


@op(dtype="float", name="sinc", elementwise=True, half="everywhere")
def _sinc(xp, input):
    x = input * math.pi
    return xp.where(x == 0, 1.0, xp.sin(x) / xp.where(x == 0, 1.0, x))


def _sinc_grad(g, input, xp):
    """The derivative (cos x - sin(x) / x) / x with x = pi * input. Near 0 its series is used, since the difference would cancel."""
    x = input * math.pi
    near = xp.absolute(x) < 0.1
    safe, square = xp.where(near, 1.0, x), xp.where(near, x * x, 0.0)
    series = -x * (1 / 3 - square * (1 / 30 - square * (1 / 840 - square * (1 / 45360 - square / 3991680))))
    return g * xp.where(near, series, (xp.cos(safe) - xp.sin(safe) / safe) / safe) * math.pi


_sinc.grad(input=_sinc_grad)


# -- of two numbers -------------------------------------------------------------------------------------------------


def _over_square(x, input, other, xp):
    """x / (input^2 + other^2), and 0 at the origin."""
    square = input * input + other * other
    return xp.where(square == 0, 0.0, x / xp.where(square == 0, 1.0, square))


atan2 = _op("atan2", "arctan2", "Computes the angle of the point (other, input), in (-pi, pi].", "arctan2", binary=True)
atan2.grad(
    input=lambda g, input, other, xp: g * _over_square(other, input, other, xp),
    other=lambda g, input, other, xp: -g * _over_square(input, input, other, xp),
)
hypot = _op("hypot", "hypot", "Computes sqrt(input^2 + other^2).", binary=True)
hypot.grad(input=lambda g, input, out: g * (input / out), other=lambda g, other, out: g * (other / out))
hypot.register_kernel(cpu="mytorch.kernels.numba.arithmetic:hypot")


@public()
@op(dtype="float", elementwise=True)
def logaddexp(xp, input, other):
    """Computes log(exp(input) + exp(other)), without overflow."""
    if not xp.is_complex(input):
        return xp.logaddexp(input, other)
    first = xp.where(input.real >= other.real, input, other)
    second = xp.where(input.real >= other.real, other, input)
    return first + xp.log1p(xp.exp(second - first))


def _share_of(g, input, other, base, xp):
    """g times base^input / (base^input + base^other)."""
    return g / (1.0 + xp.exp((other - input) * math.log(base)))


logaddexp.grad(
    input=lambda g, input, other, xp: _share_of(g, input, other, math.e, xp),
    other=lambda g, input, other, xp: _share_of(g, other, input, math.e, xp),
)
logaddexp.register_kernel(cpu="mytorch.kernels.numba.activation:logaddexp")
logaddexp2 = _op("logaddexp2", "logaddexp2", "Computes log2(2^input + 2^other), without overflow.", binary=True)
logaddexp2.grad(
    input=lambda g, input, other, xp: _share_of(g, input, other, 2.0, xp),
    other=lambda g, input, other, xp: _share_of(g, other, input, 2.0, xp),
)
copysign = _op("copysign", "copysign", "Returns |input| with the sign of other.", binary=True)
copysign.grad(input=lambda g, input, out, xp: g * xp.sign(input) * xp.sign(xp.detach(out)), other=zero)
nextafter = _op("nextafter", "nextafter", "Returns the next floating-point number after input in the direction of other.", binary=True, dtype="promote")  # fmt: skip
nextafter.grad(input=lambda g, input, other, xp: xp.where(input == other, 0.0, g), other=zero)
gcd = _op("gcd", "gcd", "Computes the greatest common divisor of integers, elementwise.", binary=True, dtype="promote")
lcm = _op("lcm", _lcm, "Computes the least common multiple of integers, elementwise.", binary=True, dtype="promote")
fmax = _op("fmax", "fmax", "Returns the larger of two elements, ignoring NaN if one is a number.", binary=True, dtype="promote")  # fmt: skip
fmax.grad(
    input=lambda g, input, other, xp: xp.where((input >= other) | (other != other), g, 0.0),
    other=lambda g, input, other, xp: xp.where((input >= other) | (other != other), 0.0, g),
)
fmin = _op("fmin", "fmin", "Returns the smaller of two elements, ignoring NaN if one is a number.", binary=True, dtype="promote")  # fmt: skip
fmin.grad(
    input=lambda g, input, other, xp: xp.where((input <= other) | (other != other), g, 0.0),
    other=lambda g, input, other, xp: xp.where((input <= other) | (other != other), 0.0, g),
)


@public(spellings={"values": "other"})
def heaviside(input, other, *, out=None):
    """Computes the Heaviside step function: 0 for negative elements, 1 for positive elements, `other` at 0.

    Args:
        other: value at 0.

    Raises:
        RuntimeError: complex numbers, or different dtypes.
    """
    if not hasattr(other, "dtype"):
        raise TypeError(f"heaviside: expected values to be a tensor, got {kind(other)}. Use torch.tensor(value).")
    if input.dtype.is_complex or other.dtype.is_complex or (out is not None and out.dtype.is_complex):
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if input.dtype is not other.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    found = _heaviside(input, other)
    return found if out is None else write_out(found, out, "heaviside")


@op(name="heaviside", elementwise=True)
def _heaviside(xp, input, other):
    return xp.where(input == 0, other, (input > 0).astype(input.dtype))


_heaviside.grad(input=no_derivative("heaviside"), other=no_derivative("heaviside"))


def _gamma_density(sign):
    """The derivative of an incomplete gamma function by its second argument; PyTorch has none by the first."""
    return lambda g, input, other, xp: g * xp.exp((input - 1) * xp.log(other) - other - xp.call(lgamma, input)) * sign


igamma = _op("igamma", special.igamma, "Computes the regularized lower incomplete gamma function P(input, other).", binary=True)  # fmt: skip
igamma.grad(input=no_derivative("igamma: input"), other=_gamma_density(1.0))
igammac = _op("igammac", special.igammac, "Computes the regularized upper incomplete gamma function Q(input, other) = 1 - P(input, other).", binary=True)  # fmt: skip
igammac.grad(input=no_derivative("igammac: input"), other=_gamma_density(-1.0))
_zeta = _op("zeta", special.zeta, "Computes the Hurwitz zeta function: the sum of (k + other)^-input over k >= 0.", binary=True, bind=False)  # fmt: skip
_zeta.grad(input=no_derivative("zeta"), other=lambda g, input, other, xp: -g * input * xp.call(_zeta, input + 1, other))


def _times_log(name, text, log, at, example=None):
    """Defines the op of input times a logarithm. `log` is the logarithm of `at(other)`. The result is 0 where input is 0."""

    def forward(xp, input, other):
        if not is_raw(other):
            other = xp.asarray(other, dtype=input.dtype)
        return xp.where(input == 0, xp.where(other != other, other, 0.0), input * log(xp, other))

    forward.__doc__ = documented(text, name, example)
    record = op(name=name, dtype="float", elementwise=True)(forward)
    return record.grad(  # as in the result, a factor of 0 times the logarithm of a negative number is 0
        input=lambda g, input, other, xp: xp.where((input == 0) & (at(other) <= 0), 0.0, xp.call(record, g, other)),
        other=lambda g, input, other: g * (input / at(other)),
    )


_xlogy = _times_log(
    "xlogy", "Computes input * log(other), and 0 where input is 0.", lambda xp, other: xp.log(other), lambda other: other,
    "[0.0, 2.0]; [0.0, 1.0] -> [0.0, 0.0]",
)  # fmt: skip
xlogy = public()(_xlogy).fast_call
_xlog1py = _times_log(
    "special_xlog1py", "Computes input * log(1 + other), and 0 where input is 0.", lambda xp, other: xp.log1p(other), lambda other: other + 1
)  # fmt: skip


@public()
def ldexp(input, other):
    """Computes input * 2^other for each element.

    Args:
        other: tensor of exponents. Broadcasts with `input`.
    """
    if other.dtype.category >= dtypes.FLOAT:
        return input * other.exp2()
    if not input.dtype.is_floating_point:
        return input * cast(other, dtypes.default_dtype()).exp2()
    # No power that is used is 0 or infinite: inf * 2^-2000 is inf, and 1e300 * 2^-1100 is not 0.
    exponent, product = cast(other, dtypes.int64).clamp(-2100, 2100), cast(input, dtypes.float64)
    first = exponent // 3
    second = (exponent - first) // 2
    for part in (first, second, exponent - first - second):
        product = product * cast(part, dtypes.float64).exp2()
    return cast(product, input.dtype)


return_types = {"frexp": namedtuple("frexp", ("mantissa", "exponent"))}


@public(inplace=False)
@on_input_device
def frexp(input, *, out=None):
    """Splits each element into a mantissa and an exponent: input = mantissa * 2^exponent.

    Args:
        input: tensor of a floating point dtype.
        out: two tensors that receive the result, with the dtype of `input` and int32 (default: new tensors).

    Returns:
        A named tuple (mantissa, exponent). The absolute value of each mantissa is in [1/2, 1), or 0.

    Raises:
        RuntimeError: the dtype is not a floating point dtype, or the dtypes of `out` differ.
    """
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes, got {input.dtype}")
    if out is not None:
        return write_out(frexp(input), out, "frexp", exact=True)
    raw = raw_of(input)
    xp = xp_of(raw)
    exponent = xp.asarray(xp.frexp(raw.astype(np.float64))[1])
    half = exponent // 2  # in two steps: the power that a denormal number is divided by may overflow
    scales = (xp.asarray(xp.ldexp(xp.ones(raw.shape), -e)).astype(raw.dtype) for e in (half, exponent - half))
    mantissa = input * Tensor._wrap(next(scales)) * Tensor._wrap(next(scales))
    return return_types["frexp"](mantissa, Tensor._wrap(iterator(exponent.astype(np.int32), (raw,))))


@public(inplace=False)
def float_power(input, exponent):
    """Raises each element to a power, in float64.

    Args:
        input: base.
        exponent: exponent, a tensor or a number.
    """
    if not any(hasattr(t, "dtype") for t in (input, exponent)):
        raise TypeError("float_power(): expected a tensor as base or exponent, got two numbers")
    result = dtypes.float64
    if any(getattr(t, "dtype", result).is_complex or isinstance(t, complex) for t in (input, exponent)):
        result = dtypes.complex128
    return _pow(*(cast(t, result) if hasattr(t, "dtype") else t for t in (input, exponent)))


@public(function=False, inplace=False)
def float_power_(input, exponent):
    """In place: see `float_power`.

    Raises:
        RuntimeError: the dtype of `input` is not that of the result, float64 or complex128.
    """
    result = float_power(input, exponent)
    if input.dtype is not result.dtype:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {input.dtype} but the operation's result requires dtype {result.dtype}"
        )
    return overwrite(input, result, "float_power_")


@public(inplace=False)
@on_input_device
@refuses("c")
def signbit(input):
    """Returns True for each element with a sign bit: negative numbers and -0.0."""
    if not input.dtype.is_floating_point:
        return input < 0
    raw = raw_of(input)
    return Tensor._wrap(xp_of(raw).asarray(xp_of(raw).signbit(raw)))


@public(inplace=False)
@refuses("C")
def isposinf(input, *, out=None):
    """Returns True for each element that is +infinity.

    Args:
        out: bool tensor that receives the result (default: a new tensor).
    """
    return _signed_infinity("isposinf", input, math.inf, out)


@public(inplace=False)
@refuses("C")
def isneginf(input, *, out=None):
    """Returns True for each element that is -infinity.

    Args:
        out: bool tensor that receives the result (default: a new tensor).
    """
    return _signed_infinity("isneginf", input, -math.inf, out)


def _signed_infinity(name, input, infinity, out):
    if input.dtype.is_complex:
        raise RuntimeError(f"{name} does not support complex inputs.")
    if out is not None and out.dtype is not dtypes.bool_:
        raise RuntimeError(f"{name} does not support non-boolean outputs.")
    found = input == infinity
    return found if out is None else write_out(found, out, name)


@public(inplace=False)
def isreal(input):
    """Returns True for each element with an imaginary part of zero."""
    return input.imag == 0 if input.dtype.is_complex else (input == input) | (input != input)


@public(inplace=False)
@on_input_device
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Tests which elements are in a set.

    Args:
        elements: elements to test, a tensor or a number.
        test_elements: the set, a tensor or a number.
        assume_unique: True if both contain no duplicates (default: False).
        invert: if True, tests which elements are not in the set (default: False).

    Example:
        >>> mytorch.isin(tensor([1, 2, 3]), tensor([2])).tolist()
        [False, True, False]
    """
    like = elements if hasattr(elements, "_mt_data") else test_elements
    xp = xp_of(raw_of(like))
    x, y = (to_acc_type(raw_of(t) if hasattr(t, "_mt_data") else xp.asarray(t)) for t in (elements, test_elements))
    return Tensor._wrap(xp.asarray(xp.isin(x, y, assume_unique=assume_unique, invert=invert)))


@in_precision(None)
def _log_ndtr(input):
    """Computes the logarithm of the normal cumulative distribution function, accurately also for small values."""
    input = input if input.dtype.category >= dtypes.FLOAT else cast(input, dtypes.default_dtype())
    low = input < -1
    z = input * math.sqrt(0.5)
    tail = log.fast_call(_erfcx.fast_call(-where(low, z, 0.0)) * 0.5) - where(low, z, 0.0).square()
    return where(low, tail, (erfc.fast_call(where(low, 0.0, z)) * -0.5).log1p())


@public()
@refuses("B")
def mvlgamma(input, p):
    """Computes the logarithm of the multivariate gamma function.

    Args:
        p: dimension.

    Raises:
        RuntimeError: `p` is less than 1.
    """
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
    total = p * (p - 1) / 4 * math.log(math.pi)
    out = lgamma.fast_call(input)
    for j in range(1, p):
        out = out + lgamma.fast_call(input - j / 2)
    return contiguous(out + total)


@op(dtype="float", name="entr", elementwise=True)
def _entropy(xp, input):
    inside = input > 0
    below = xp.where(input < 0, -math.inf, input)  # 0 and NaN stay
    return xp.where(inside, -input * xp.log(xp.where(inside, input, 1.0)), below)


_entropy.grad(input=lambda g, input, xp: g * (-1.0 - xp.log(input)))


def _entr(input):
    """Computes -input * log(input): 0 at 0, -infinity for negative elements.

    Example:
        >>> mytorch.special.entr(tensor([0.0, 1.0])).abs().tolist()
        [0.0, 0.0]
    """
    return _entropy.fast_call(input)


@op(name="lerp", dtype="float", elementwise=True)
def _lerp(xp, input, end, *, weight):
    """Starts from the nearer end, as PyTorch does, so that weights 0 and 1 give the ends exactly."""
    near, share = (input, weight) if abs(weight) < 0.5 else (end, weight - 1)
    out = xp.subtract(end, input)
    if not isinstance(xp, Namespace):
        return near + out * share
    out *= share  # in place, to save memory traffic
    out += near
    return out


_lerp.grad(input=lambda g, weight: g * (1 - weight), end=lambda g, weight: g * weight)
_lerp.register_kernel(cpu="mytorch.kernels.numba.arithmetic:lerp")


@op(name="lerp_by_tensor", grad_name="Lerp", dtype="float", elementwise=True, half="everywhere")
def _lerp_by_tensor(xp, input, end, weight):
    near = xp.absolute(weight) < 0.5
    return xp.where(near, input, end) + (end - input) * xp.where(near, weight, weight - 1)


_lerp_by_tensor.grad(
    input=lambda g, weight: g * (1 - weight),
    end=lambda g, weight: g * weight,
    weight=lambda g, input, end: g * (end - input),
)
_lerp_by_tensor.register_kernel(cpu="mytorch.kernels.numba.arithmetic:lerp_by_tensor")


@public()
@refuses("bi")
def lerp(input, end, weight):
    """Interpolates linearly between two tensors.

        result = input + weight * (end - input)

    Args:
        input: result for weight 0.
        end: result for weight 1.
        weight: a number or a tensor.

    Example:
        >>> mytorch.lerp(tensor([0.0, 10.0]), tensor([4.0, 20.0]), 0.5).tolist()
        [2.0, 15.0]
    """
    dtype = input.dtype
    if end.dtype is not dtype or (type(weight) is not float and getattr(weight, "dtype", dtype) is not dtype):
        word, other = ("end", end) if end.dtype is not dtype else ("weight", weight)
        raise RuntimeError(f"expected dtype {dtype} for `{word}` but got dtype {other.dtype}")
    return (_lerp_by_tensor if is_tensor(weight) else _lerp).fast_call(input, end, weight)
