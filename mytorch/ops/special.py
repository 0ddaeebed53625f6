"""More functions of one or two numbers: inverse and hyperbolic trigonometry, gamma and error functions, and the like."""

import math
from collections import namedtuple

import numpy as np

from .._array import on_input_device
from ..backend import numeric as numeric
from ..backend import xp_of
from ..base import dtypes
from ..base.errors import kind
from ..tensor import Tensor
from .bind import public
from .core import op
from .elementwise import cast, log, where
from .elementwise import pow as _pow
from .precision import in_precision
from .raw import raw_of
from .reduction import wide


def _simple(name, gradient, *more, forward=None, text="", autocast="promote"):
    """A unary op by NumPy's function of its own (or another) name, with its gradient."""

    def run(xp, input):
        return (forward or (lambda xp, x: getattr(xp, name)(x)))(xp, input)

    record = op(dtype="float", name=name, autocast=autocast)(run)
    record.__doc__ = record.caller.__doc__ = text or f"The {name} of input, elementwise."
    if gradient is not None:
        record.grad(input=gradient)
    public(name=name, names=more)(record)
    return record


def _numpy_name(name):
    return lambda xp, x: getattr(xp, name)(x)


asin = _simple(
    "asin",
    lambda g, input, xp: g / xp.sqrt(1.0 - input * input),
    "arcsin",
    forward=_numpy_name("arcsin"),
    autocast="float32",
)
acos = _simple(
    "acos",
    lambda g, input, xp: -g / xp.sqrt(1.0 - input * input),
    "arccos",
    forward=_numpy_name("arccos"),
    autocast="float32",
)
atan = _simple("atan", lambda g, input: g / (input * input + 1.0), "arctan", forward=_numpy_name("arctan"))
sinh = _simple("sinh", lambda g, input, xp: g * (xp.exp(input) + xp.exp(-input)) * 0.5, autocast="float32")
cosh = _simple("cosh", lambda g, input, xp: g * (xp.exp(input) - xp.exp(-input)) * 0.5, autocast="float32")
asinh = _simple(
    "asinh", lambda g, input, xp: g / xp.sqrt(input * input + 1.0), "arcsinh", forward=_numpy_name("arcsinh")
)
acosh = _simple(
    "acosh", lambda g, input, xp: g / xp.sqrt(input * input - 1.0), "arccosh", forward=_numpy_name("arccosh")
)
atanh = _simple("atanh", lambda g, input: g / (1.0 - input * input), "arctanh", forward=_numpy_name("arctanh"))
deg2rad = _simple("deg2rad", lambda g: g * (math.pi / 180), text="Degrees as radians.")
rad2deg = _simple("rad2deg", lambda g: g * (180 / math.pi), text="Radians as degrees.")

_SQRT_PI = math.sqrt(math.pi)
erfc = _simple("erfc", lambda g, input, xp: g * (xp.exp(-(input * input)) * (-2 / _SQRT_PI)), text="1 - erf(input).",
               forward=lambda xp, x: xp.erfc(x))  # fmt: skip


def _on_cpu(function):
    """A function of NumPy arrays as an op's forward on either device: a GPU's arrays make the trip to the CPU."""

    def run(xp, *arrays):
        if xp.module is np:
            return function(*arrays)
        return xp.asarray(function(*(xp.asnumpy(a) for a in arrays)))

    return run


erfinv = _simple("erfinv", lambda g, out, xp: g * (xp.exp(out * out) * (_SQRT_PI / 2)), text="The inverse of erf.",
                 forward=_on_cpu(numeric.erfinv), autocast="float32")  # fmt: skip


@op(dtype="float", name="polygamma")
def _polygamma(xp, input, *, n):
    """The n-th derivative of digamma, n >= 1."""
    return _on_cpu(lambda x: numeric.polygamma(n, x))(xp, input)


_polygamma.grad(input=lambda g, input, n, xp: g * xp.call(_polygamma, input, n=n + 1))
digamma = _simple("digamma", lambda g, input, xp: g * xp.call(_polygamma, input, n=1), text="The derivative of lgamma.",
                  forward=_on_cpu(numeric.digamma))  # fmt: skip
lgamma = _simple("lgamma", lambda g, input, xp: g * xp.call(digamma, input), text="The logarithm of |gamma(input)|.",
                 forward=_on_cpu(numeric.lgamma))  # fmt: skip


@public(method=False)
def polygamma(n, input):
    """The n-th derivative of digamma.

    Raises:
        RuntimeError: a negative n.
    """
    if not isinstance(n, int):
        raise TypeError(f"polygamma(): argument 'n' (position 1) must be int, not {kind(n)}")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return digamma.caller(input) if n == 0 else _polygamma(input, n=n)


@public(function=False, name="polygamma")
def _polygamma_method(self, n):
    """The n-th derivative of digamma."""
    return polygamma(n, self)


def _bessel(name, gradient, text):
    record = op(dtype="float", name=name)(lambda xp, input: _on_cpu(getattr(numeric, name))(xp, input))
    record.__doc__ = record.caller.__doc__ = text
    return record.grad(input=gradient)


i1 = _bessel(
    "i1",
    lambda g, input, out, xp: (
        g * xp.where(input == 0, 0.5, xp.call(_i0, input) - out / xp.where(input == 0, 1.0, input))
    ),
    "The modified Bessel function of order one.",
)
_i0 = _bessel("i0", lambda g, input, xp: g * xp.call(i1, input), "The modified Bessel function of order zero.")
i1e = _bessel(
    "i1e",
    lambda g, input, out, xp: (
        g
        * (
            xp.where(
                input == 0, 0.5, xp.call(i0e, input) - out * (xp.sign(input) + 1 / xp.where(input == 0, 1.0, input))
            )
        )
    ),
    "exp(-|input|) i1(input).",
)
i0e = _bessel(
    "i0e", lambda g, input, out, xp: g * (xp.call(i1e, input) - xp.sign(input) * out), "exp(-|input|) i0(input)."
)
i0 = public(name="i0")(_i0)


@public()
@in_precision(None)
def logit(input, eps=None):
    """log(input / (1 - input)), of input limited to [eps, 1 - eps] if eps is given."""
    x = input if eps is None else input.clamp(eps, 1 - eps)
    return log.caller(x / (1 - x))


@public()
def sinc(input):
    """sin(pi x) / (pi x), and 1 at 0."""
    x = input * math.pi
    safe = where(x == 0, 1.0, x)
    return where(x == 0, 1.0, safe.sin() / safe)


def _pair(name, forward, x=None, y=None, dtype="promote", names=(), text="", bind=True):
    """A binary op with the gradients of both inputs."""
    record = op(dtype=dtype, name=name)(forward)
    record.__doc__ = record.caller.__doc__ = text
    formulas = {k: v for k, v in (("input", x), ("other", y)) if v is not None}
    if formulas:
        record.grad(**formulas)
    if bind:
        public(name=name, names=names)(record)
    return record


atan2 = _pair(
    "atan2", lambda xp, input, other: xp.arctan2(input, other),
    lambda g, input, other: g * other / (input * input + other * other),
    lambda g, input, other: -g * input / (input * input + other * other),
    dtype="float", names=("arctan2",), text="The angle of the point (other, input), in (-pi, pi].",
)  # fmt: skip
hypot = _pair(
    "hypot", lambda xp, input, other: xp.hypot(input, other),
    lambda g, input, out: g * (input / out), lambda g, other, out: g * (other / out), dtype="float", text="sqrt(input^2 + other^2).",
)  # fmt: skip


def _complex_logaddexp(xp, input, other):
    """logaddexp; for complex numbers about the one with the larger real part."""
    if not xp.is_complex(input):
        return xp.logaddexp(input, other)
    first = xp.where(input.real >= other.real, input, other)
    second = xp.where(input.real >= other.real, other, input)
    return first + xp.log1p(xp.exp(second - first))


logaddexp = _pair(
    "logaddexp", _complex_logaddexp,
    lambda g, input, out, xp: g * xp.exp(input - out), lambda g, other, out, xp: g * xp.exp(other - out), dtype="float",
    text="log(exp(input) + exp(other)), without overflow.",
)  # fmt: skip
logaddexp2 = _pair(
    "logaddexp2", lambda xp, input, other: xp.logaddexp2(input, other),
    lambda g, input, out, xp: g * xp.exp((input - out) * math.log(2)), lambda g, other, out, xp: g * xp.exp((other - out) * math.log(2)),
    dtype="float", text="log2(2^input + 2^other), without overflow.",
)  # fmt: skip
copysign = _pair(
    "copysign", lambda xp, input, other: xp.copysign(input, other),
    lambda g, input, out, xp: g * xp.sign(input) * xp.sign(xp.detach(out)), dtype="float", text="|input| with the sign of other.",
)  # fmt: skip
nextafter = _pair(
    "nextafter",
    lambda xp, input, other: xp.nextafter(input, other),
    lambda g: g,
    lambda g: g * 0,
    text="The next number after input towards other.",
)
heaviside = _pair(
    "heaviside",
    lambda xp, input, other: xp.where(input == 0, other, (input > 0).astype(input.dtype)),
    text="0 below zero, 1 above, other at zero.",
)
gcd = _pair("gcd", lambda xp, input, other: xp.gcd(input, other), text="The greatest common divisor of integers.")
lcm = _pair("lcm", lambda xp, input, other: xp.lcm(input, other), text="The least common multiple of integers.")
fmax = _pair(
    "fmax",
    lambda xp, input, other: xp.fmax(input, other),
    lambda g, input, other, xp: xp.where((input >= other) | (other != other), g, 0.0),
    lambda g, input, other, xp: xp.where((input >= other) | (other != other), 0.0, g),
    text="The larger of two; a NaN gives way to a number.",
)
fmin = _pair(
    "fmin",
    lambda xp, input, other: xp.fmin(input, other),
    lambda g, input, other, xp: xp.where((input <= other) | (other != other), g, 0.0),
    lambda g, input, other, xp: xp.where((input <= other) | (other != other), 0.0, g),
    text="The smaller of two; a NaN gives way to a number.",
)


@public()
def ldexp(input, other):
    """input * 2^other."""
    return input * (cast(other, dtypes.default_dtype()) if other.dtype.category < dtypes.FLOAT else other).exp2()


_Frexp = namedtuple("frexp", "mantissa exponent")


@public(inplace=False)
@on_input_device
def frexp(input):
    """(mantissa, exponent) with input = mantissa * 2^exponent and the mantissa in [1/2, 1)."""
    raw = raw_of(input)
    xp = xp_of(raw)
    exponent = xp.asarray(xp.frexp(raw.astype(np.float64))[1])
    scale = xp.asarray(xp.ldexp(xp.ones(raw.shape), -exponent)).astype(raw.dtype)
    return _Frexp(input * Tensor._wrap(scale), Tensor._wrap(exponent.astype(np.int32)))


@public()
def float_power(input, exponent):
    """input to the power exponent, in float64."""
    wide = dtypes.float64
    if any(getattr(t, "dtype", wide).is_complex or isinstance(t, complex) for t in (input, exponent)):
        wide = dtypes.complex128
    return _pow(*(cast(t, wide) if hasattr(t, "dtype") else t for t in (input, exponent)))


@public(inplace=False)
@on_input_device
def signbit(input):
    """True where the sign bit is set."""
    if not input.dtype.is_floating_point:
        return input < 0
    raw = raw_of(input)
    return Tensor._wrap(xp_of(raw).asarray(xp_of(raw).signbit(raw)))


@public(inplace=False)
def isposinf(input):
    """True where input is +infinity."""
    return input == math.inf


@public(inplace=False)
def isneginf(input):
    """True where input is -infinity."""
    return input == -math.inf


@public(inplace=False)
def isreal(input):
    """True where the imaginary part is zero."""
    return input.imag == 0 if input.dtype.is_complex else input == input


@public(inplace=False)
@on_input_device
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """True where an element is among test_elements."""
    like = elements if hasattr(elements, "_data") else test_elements
    xp = xp_of(raw_of(like))
    x, y = (wide(xp, raw_of(t) if hasattr(t, "_data") else xp.asarray(t)) for t in (elements, test_elements))
    return Tensor._wrap(xp.asarray(xp.isin(x, y, assume_unique=assume_unique, invert=invert)))


def _incomplete(name, sign, text):
    """An incomplete gamma function; differentiable in its second argument only, as in PyTorch."""

    def density(g, input, other, xp):
        return g * xp.exp((input - 1) * xp.log(other) - other - xp.call(lgamma, input)) * sign

    return _pair(
        name,
        lambda xp, input, other: _on_cpu(getattr(numeric, name))(xp, input, other),
        None,
        density,
        dtype="float",
        text=text,
    )


igamma = _incomplete("igamma", 1.0, "The regularised lower incomplete gamma function P(input, other).")
igammac = _incomplete("igammac", -1.0, "The regularised upper incomplete gamma function Q(input, other).")

_zeta = _pair(
    "zeta", lambda xp, input, other: _on_cpu(numeric.zeta)(xp, input, other), None,
    lambda g, input, other, xp: -g * input * xp.call(_zeta, input + 1, other), dtype="float", bind=False,
    text="Hurwitz's zeta function: the sum of (k + other)^-input over k >= 0.",
)  # fmt: skip
_erfcx = op(dtype="float", name="erfcx")(lambda xp, input: _on_cpu(numeric.erfcx)(xp, input))
_erfcx.__doc__ = "exp(input^2) erfc(input)."
_erfcx.grad(input=lambda g, input, out: g * (input * out * 2 - 2 / _SQRT_PI))


@in_precision(None)
def _log_ndtr(input):
    """The logarithm of the normal distribution function, also far in its lower tail."""
    low = input < -1
    z = input * math.sqrt(0.5)
    tail = log.caller(_erfcx.caller(-where(low, z, 0.0)) * 0.5) - where(low, z, 0.0).square()
    return where(low, tail, (erfc.caller(where(low, 0.0, z)) * -0.5).log1p())


@public()
def mvlgamma(input, p):
    """The logarithm of the multivariate gamma function of dimension p."""
    total = p * (p - 1) / 4 * math.log(math.pi)
    out = lgamma.caller(input)
    for j in range(1, p):
        out = out + lgamma.caller(input - j / 2)
    return out + total


@in_precision(None)
def _ndtri(p):
    return erfinv.caller(p * 2 - 1) * math.sqrt(2)


@in_precision(None)
def _entr(input):
    """-input * log(input), 0 at 0, -infinity below."""
    input = input if input.dtype.category >= dtypes.FLOAT else cast(input, dtypes.default_dtype())
    return where(input == 0, 0.0, where(input < 0, -math.inf, -input * log.caller(where(input > 0, input, 1.0))))
