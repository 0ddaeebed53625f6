"""More functions of one or two numbers: inverse and hyperbolic trigonometry, gamma and error functions, and the like."""

import math

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from .bind import PUBLIC, public
from .core import op
from .elementwise import cast, exp, log, where


def _simple(name, gradient, *more, forward=None, text=""):
    """A unary op by NumPy's function of its own (or another) name, with its gradient."""

    def run(xp, input):
        return (forward or (lambda xp, x: getattr(xp, name)(x)))(xp, input)

    record = op(dtype="float", name=name)(run)
    record.__doc__ = record.caller.__doc__ = text or f"The {name} of input, elementwise."
    if gradient is not None:
        record.grad(input=gradient)
    public(name=name, names=more)(record)
    return record


def _numpy_name(name):
    return lambda xp, x: getattr(xp, name)(x)


asin = _simple("asin", lambda g, input, xp: g / xp.sqrt(1.0 - input * input), "arcsin", forward=_numpy_name("arcsin"))
acos = _simple("acos", lambda g, input, xp: -g / xp.sqrt(1.0 - input * input), "arccos", forward=_numpy_name("arccos"))
atan = _simple("atan", lambda g, input: g / (input * input + 1.0), "arctan", forward=_numpy_name("arctan"))
sinh = _simple("sinh", lambda g, input, xp: g * (xp.exp(input) + xp.exp(-input)) * 0.5)
cosh = _simple("cosh", lambda g, input, xp: g * (xp.exp(input) - xp.exp(-input)) * 0.5)
asinh = _simple("asinh", lambda g, input, xp: g / xp.sqrt(input * input + 1.0), "arcsinh", forward=_numpy_name("arcsinh"))
acosh = _simple("acosh", lambda g, input, xp: g / xp.sqrt(input * input - 1.0), "arccosh", forward=_numpy_name("arccosh"))
atanh = _simple("atanh", lambda g, input: g / (1.0 - input * input), "arctanh", forward=_numpy_name("arctanh"))
deg2rad = _simple("deg2rad", lambda g: g * (math.pi / 180), text="Degrees as radians.")
rad2deg = _simple("rad2deg", lambda g: g * (180 / math.pi), text="Radians as degrees.")

_SQRT_PI = math.sqrt(math.pi)
erfc = _simple("erfc", lambda g, input, xp: g * (xp.exp(-(input * input)) * (-2 / _SQRT_PI)), text="1 - erf(input).",
               forward=lambda xp, x: _c_function(math.erfc, x))  # fmt: skip


def _c_function(f, x):
    """A function of the C library, element by element, rounded to x's dtype."""
    return np.asarray(np.frompyfunc(f, 1, 1)(x.astype(np.float64)), dtype=np.float64).astype(x.dtype).reshape(x.shape)


def _guard(f, at_error):
    def guarded(v):
        try:
            return f(v)
        except (ValueError, OverflowError):
            return at_error(v)

    return guarded


def _erfinv(y):
    """By Giles' approximation (2012), then two Newton steps."""
    if y <= -1 or y >= 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    w = -math.log((1 - y) * (1 + y))
    if w < 5:
        w -= 2.5
        terms = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
    else:
        w = math.sqrt(w) - 3
        terms = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)
    p = 0.0
    for c in terms:
        p = p * w + c
    x = p * y
    for _ in range(2):
        x -= (math.erf(x) - y) / (2 / _SQRT_PI * math.exp(-x * x))
    return x


erfinv = _simple("erfinv", lambda g, out, xp: g * (xp.exp(out * out) * (_SQRT_PI / 2)), text="The inverse of erf.",
                 forward=lambda xp, x: _c_function(_erfinv, x))  # fmt: skip


def _digamma(x):
    if x == 0:
        return math.copysign(math.inf, -x)
    if x < 0:
        if x == math.floor(x):
            return math.nan
        return _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    s = 1 / (x * x)
    return total + math.log(x) - 0.5 / x - s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (5 / 660)))))


def _trigamma(x):
    if x <= 0:
        if x == math.floor(x):
            return math.inf
        return -_trigamma(1 - x) + (math.pi / math.sin(math.pi * x)) ** 2
    total = 0.0
    while x < 10:
        total += 1 / (x * x)
        x += 1
    s = 1 / (x * x)
    return total + 1 / x + s / 2 + s / x * (1 / 6 - s * (1 / 30 - s * (1 / 42 - s / 30)))


@op(dtype="float", name="trigamma")
def _trigamma_op(xp, input):
    return _c_function(_trigamma, input)


digamma = _simple("digamma", lambda g, input, xp: g * xp.call(_trigamma_op, input), text="The derivative of lgamma.",
                  forward=lambda xp, x: _c_function(_digamma, x))  # fmt: skip
lgamma = _simple("lgamma", lambda g, input, xp: g * xp.call(digamma, input), text="The logarithm of |gamma(input)|.",
                 forward=lambda xp, x: _c_function(_guard(math.lgamma, lambda v: math.inf), x))  # fmt: skip


@public()
def polygamma(n, input):
    """The n-th derivative of digamma, for n up to 1."""
    if n == 0:
        return digamma.caller(input)
    if n == 1:
        return _trigamma_op.caller(input)
    raise NotImplementedError(f"polygamma: n={n} is not supported; 0 and 1 are.")


@public()
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
logaddexp = _pair(
    "logaddexp", lambda xp, input, other: xp.logaddexp(input, other),
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
nextafter = _pair("nextafter", lambda xp, input, other: xp.nextafter(input, other), text="The next number after input towards other.")
heaviside = _pair("heaviside", lambda xp, input, other: xp.where(input == 0, other, (input > 0).astype(input.dtype)), text="0 below zero, 1 above, other at zero.")
gcd = _pair("gcd", lambda xp, input, other: xp.gcd(input, other), text="The greatest common divisor of integers.")
lcm = _pair("lcm", lambda xp, input, other: xp.lcm(input, other), text="The least common multiple of integers.")
fmax = _pair("fmax", lambda xp, input, other: xp.fmax(input, other), lambda g, input, other, xp: xp.where((input >= other) | (other != other), g, 0.0), lambda g, input, other, xp: xp.where((input >= other) | (other != other), 0.0, g), text="The larger of two; a NaN gives way to a number.")
fmin = _pair("fmin", lambda xp, input, other: xp.fmin(input, other), lambda g, input, other, xp: xp.where((input <= other) | (other != other), g, 0.0), lambda g, input, other, xp: xp.where((input <= other) | (other != other), 0.0, g), text="The smaller of two; a NaN gives way to a number.")


@public()
def ldexp(input, other):
    """input * 2^other."""
    return input * (cast(other, dtypes.default_dtype()) if other.dtype.category < dtypes.FLOAT else other).exp2()


@public(inplace=False)
def frexp(input):
    """(mantissa, exponent) with input = mantissa * 2^exponent and the mantissa in [1/2, 1)."""
    mantissa, exponent = np.frexp(input._data._array)
    return Tensor._wrap(mantissa), Tensor._wrap(exponent.astype(np.int32))


@public()
def float_power(input, exponent):
    """input to the power exponent, in float64."""
    return cast(input, dtypes.float64) ** exponent if hasattr(input, "dtype") else input ** cast(exponent, dtypes.float64)


@public()
def sgn(input):
    """The sign; for complex numbers, the number of modulus 1 in its direction."""
    return input.sign() if not input.dtype.is_complex else where(input == 0, 0, input / input.abs())


@public(inplace=False)
def signbit(input):
    """True where the sign bit is set."""
    return Tensor._wrap(np.signbit(input._data._array)) if input.dtype.is_floating_point else input < 0


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
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """True where an element is among test_elements."""
    x = elements._data._array if hasattr(elements, "_data") else np.asarray(elements)
    y = test_elements._data._array if hasattr(test_elements, "_data") else np.asarray(test_elements)
    return Tensor._wrap(np.asarray(np.isin(x, y, assume_unique=assume_unique, invert=invert)))


@public(inplace=False)
def i0(input):
    """The modified Bessel function of order zero."""
    return Tensor._wrap(np.i0(input._data._array).astype(input._data._array.dtype))


@public()
def mvlgamma(input, p):
    """The logarithm of the multivariate gamma function of dimension p."""
    total = p * (p - 1) / 4 * math.log(math.pi)
    out = lgamma.caller(input)
    for j in range(1, p):
        out = out + lgamma.caller(input - j / 2)
    return out + total


def _entr(input):
    """-input * log(input), 0 at 0, -infinity below."""
    return where(input == 0, 0.0, where(input < 0, -math.inf, -input * log.caller(where(input > 0, input, 1.0))))


def special_functions():
    """The functions of the `special` module, by name."""
    names = ("erf", "erfc", "erfinv", "exp2", "expm1", "log1p", "digamma", "polygamma", "logit", "sinc", "xlogy", "i0", "round", "softmax", "log_softmax", "logsumexp")
    table = {n: PUBLIC[n] for n in names if n in PUBLIC}
    table.update(
        gammaln=lgamma.caller, psi=digamma.caller, expit=PUBLIC["sigmoid"], multigammaln=mvlgamma, entr=_entr,
        ndtr=lambda x: (erfc.caller(x * -math.sqrt(0.5))) * 0.5, ndtri=lambda p: erfinv.caller(p * 2 - 1) * math.sqrt(2),
        log_ndtr=lambda x: log.caller(erfc.caller(x * -math.sqrt(0.5)) * 0.5),
        xlog1py=lambda x, y: PUBLIC["xlogy"](x, y + 1), erfcx=lambda x: exp.caller(x * x) * erfc.caller(x),
    )  # fmt: skip
    return table
