"""Special functions that NumPy lacks, over NumPy arrays.

erf of float32 and half precision is evaluated in float32 by a rational approximation, in blocks, so that intermediate
results stay in the cache. erf of float64 calls the C library. The other functions are computed in float64.
"""

import functools
import math

import numpy as np

FEW = 64  # up to this number of elements, calling the C library for each number is faster
BLOCK = 32768  # elements of a block: four float32 blocks fit into a second-level cache

# Rational minimax approximation of erf on [-4, 4], as in Eigen's and XLA's float erf: odd numerator over even denominator.
_ERF_P = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
          -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
_ERF_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
          -1.42647390514189e-02)  # fmt: skip


def horner(coefficients, x, out):
    """Evaluates a polynomial by Horner's scheme, in place: out = c[0] * x**n + … + c[n]."""
    np.multiply(x, coefficients[0], out=out)
    for c in coefficients[1:-1]:
        out += c
        out *= x
    out += coefficients[-1]
    return out


def erf_block(x, out, square, denominator):
    """Computes erf of a float32 block in `out`, with two scratch blocks of the same size."""
    # Beyond ±4, erf rounds to ±1 in float32, and the approximation is not valid.
    np.clip(x, np.float32(-4), np.float32(4), out=out)
    np.multiply(out, out, out=square)
    horner(_ERF_Q, square, denominator)
    out /= denominator
    horner(_ERF_P, square, denominator)
    out *= denominator
    return out


_erf64 = np.frompyfunc(math.erf, 1, 1)


def erf(x):
    """Returns the error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x, in x's dtype."""
    x = np.asarray(x)
    if x.dtype == np.float64 or x.size <= FEW:
        return np.asarray(_erf64(x), dtype=x.dtype)
    if x.dtype != np.float32:
        return erf(x.astype(np.float32)).astype(x.dtype)
    flat = np.ascontiguousarray(x).reshape(-1)
    out = np.empty_like(flat)
    square, denominator = np.empty((2, min(BLOCK, max(flat.size, 1))), np.float32)
    for start in range(0, flat.size, BLOCK):
        stop = min(start + BLOCK, flat.size)
        n = stop - start
        erf_block(flat[start:stop], out[start:stop], square[:n], denominator[:n])
    return out.reshape(x.shape)


# -- gamma functions and Bessel functions: in float64, vectorized --------------------------------------------------


def in_double(function):
    """Decorator: lets a function of float64 arrays accept any float dtype. The result is rounded once."""

    @functools.wraps(function)
    def rounded(*arrays):
        dtype = next(a.dtype for a in arrays if hasattr(a, "dtype"))
        wide = np.broadcast_arrays(*[np.asarray(a).astype(np.float64) for a in arrays])
        with np.errstate(all="ignore"):
            return np.asarray(function(*wide)).astype(dtype)

    return rounded


# B(2k) / (2k)! for k = 1 … 7, the coefficients of the Euler-Maclaurin formula.
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)


@in_double
def zeta(s, q):
    """Returns the Hurwitz zeta function, the sum of (k + q)^-s over k >= 0, for s > 1, by the Euler-Maclaurin formula."""
    total = np.zeros_like(q)
    pole = (q <= 0) & (q == np.floor(q))
    # The first 12 terms directly, so that w = q + 12 is large enough for the asymptotic remainder.
    for k in range(12):
        total = total + (q + k) ** -s
    w = q + 12
    total = total + w ** (1 - s) / (s - 1) + 0.5 * w**-s
    # Remainder: w^(1-s) / (s-1) + w^-s / 2 + sum of B(2k)/(2k)! s (s+1) … (s+2k-2) w^(-s-2k+1).
    factor, power = s, w ** (-s - 1)
    for k, b in enumerate(_BERNOULLI):
        total = total + b * factor * power
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2)
        power = power / (w * w)
    bad = (q < 0) & (s != np.floor(s))
    return np.where(s < 1, np.nan, np.where((s == 1) | pole, np.inf, np.where(bad, np.nan, total)))


@in_double
def digamma(x):
    """Returns the derivative of log gamma: recurrence up to 10, then the asymptotic series; reflection below 0."""
    pole = (x < 0) & (x == np.floor(x))
    low = x < 0
    # Reflection: digamma(x) = digamma(1 - x) - pi / tan(pi x).
    y = np.where(low, 1 - x, x)
    total = np.zeros_like(y)
    # Recurrence: digamma(y) = digamma(y + 1) - 1 / y, until y is at least 10.
    for _ in range(10):
        small = y < 10
        total = total - np.where(small, 1 / np.where(small, y, 1), 0)
        y = np.where(small, y + 1, y)
    s = 1 / (y * y)
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))))
    out = total + np.log(y) - 0.5 / y - series
    # tan has period pi: only the fraction of x matters, which is exact for large x.
    fraction = x - np.floor(x)
    out = np.where(low, out - np.pi / np.tan(np.pi * fraction), out)
    return np.where(pole, np.nan, np.where(x == 0, np.copysign(np.inf, -x), out))


def polygamma(n, x):
    """Returns the n-th derivative of digamma, n >= 1: (-1)^(n+1) n! zeta(n + 1, x)."""
    return (zeta(n + 1.0, x) * ((-1.0) ** (n + 1) * math.factorial(n))).astype(x.dtype)


@in_double
def erfinv(y):
    """Returns the inverse of erf: the approximation of Giles (2012), then two Newton steps."""
    inside = np.abs(y) < 1
    safe = np.where(inside, y, 0.0)
    # Two polynomials in w = -log(1 - y²): one for the center (w < 5), one for the tails.
    w = -np.log((1 - safe) * (1 + safe))
    near, far = w - 2.5, np.sqrt(w) - 3
    a = np.zeros_like(y)
    for c in (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
        -0.00417768164, 0.246640727, 1.50140941,
    ):  # fmt: skip
        a = a * near + c
    b = np.zeros_like(y)
    for c in (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682,
    ):  # fmt: skip
        b = b * far + c
    x = np.where(w < 5, a, b) * safe
    # Newton: x -= (erf(x) - y) / erf'(x). Each step doubles the number of correct digits.
    for _ in range(2):
        tail = np.abs(x) > 1  # in the tails, erf rounds to 1: compare erfc(x) with 1 - |y|
        error = np.where(tail, np.sign(x) * ((1 - np.abs(safe)) - erfc(np.abs(x))), erf(x) - safe)
        x = x - error / (2 / math.sqrt(math.pi) * np.exp(-x * x))
    return np.where(inside, x, np.where(np.abs(y) == 1, np.copysign(np.inf, y), np.nan))


_erfc64 = np.frompyfunc(math.erfc, 1, 1)


def erfc(x):
    """Returns 1 - erf(x), accurate also where the result is small."""
    x = np.asarray(x)
    return np.asarray(_erfc64(x), dtype=np.float64).astype(x.dtype)


@in_double
def erfcx(x):
    """Returns exp(x^2) erfc(x): directly up to 25, then by its asymptotic series, since exp(x^2) would overflow."""
    small = x < 25
    near = np.where(small, x, 0.0)
    far = np.where(small, 25.0, x)
    t = 1 / (2 * far * far)
    series = (1 - t * (1 - 3 * t * (1 - 5 * t * (1 - 7 * t)))) / (far * math.sqrt(math.pi))
    return np.where(small, np.exp(near * near) * erfc(near), series)


def _bessel_i(order, x):
    """Returns exp(-|x|) I_order(x): the power series up to 30, in which all terms are positive; then the asymptotic series."""
    z = np.abs(x)
    near, far = np.minimum(z, 30.0), np.maximum(z, 30.0)
    quarter = near * near / 4
    # sum of (x/2)^(2k + order) / (k! (k + order)!), each term from the one before.
    term = total = (near / 2) ** order / math.factorial(order)
    for k in range(1, 80):
        term = term * quarter / (k * (k + order))
        total = total + term
    series = total * np.exp(-near)
    # Hankel's asymptotic expansion (Abramowitz and Stegun, 9.7.1).
    mu, part, tail = 4.0 * order * order, np.ones_like(far), np.ones_like(far)
    for k in range(1, 20):
        part = -part * (mu - (2 * k - 1) ** 2) / (k * 8 * far)
        tail = tail + part
    out = np.where(z <= 30, series, tail / (math.sqrt(2 * math.pi) * np.sqrt(far)))
    return np.sign(x) * out if order % 2 else out


@in_double
def i0(x):
    """Returns the modified Bessel function of the first kind of order 0."""
    return _bessel_i(0, x) * np.exp(np.abs(x))


@in_double
def i0e(x):
    """Returns exp(-|x|) i0(x), which does not overflow."""
    return _bessel_i(0, x)


@in_double
def i1(x):
    """Returns the modified Bessel function of the first kind of order 1."""
    return _bessel_i(1, x) * np.exp(np.abs(x))


@in_double
def i1e(x):
    """Returns exp(-|x|) i1(x), which does not overflow."""
    return _bessel_i(1, x)


_lgamma64 = np.frompyfunc(lambda v: math.inf if v == -math.inf or (v <= 0 and v % 1 == 0) else math.lgamma(v), 1, 1)


@in_double
def lgamma(x):
    """Returns log |gamma(x)|, computed by the C library."""
    return np.asarray(_lgamma64(x), dtype=np.float64)


def _lower_series(a, x):
    """Returns the regularized lower incomplete gamma function by its power series, for x < a + 1."""
    # sum of x^n / (a (a + 1) … (a + n)), each term from the one before.
    term = total = 1 / np.where(a == 0, 1, a)
    n = a.copy()
    for _ in range(500):
        n = n + 1
        term = term * x / n
        total = total + term
        if not (np.abs(term) > np.abs(total) * 1e-17).any():
            break
    return total * np.exp(a * np.log(x) - x - lgamma(a))


def _upper_fraction(a, x):
    """Returns the regularized upper incomplete gamma function by a continued fraction, for x >= a + 1."""
    # Modified Lentz algorithm; `tiny` replaces zero denominators.
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(x, 1 / tiny), 1 / np.where(b == 0, tiny, b)
    h = d
    for i in range(1, 500):
        an = -i * (i - a)
        b = b + 2
        d = an * d + b
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + an / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        step = d * c
        h = h * step
        if not (np.abs(step - 1) > 1e-16).any():
            break
    return h * np.exp(a * np.log(x) - x - lgamma(a))


def _incomplete(a, x):
    """Returns the (lower, upper) regularized incomplete gamma functions. Source: Press et al., Numerical Recipes, 6.2."""
    series = x < a + 1
    plain = (x > 0) & (a > 0) & np.isfinite(x) & np.isfinite(a)
    # Each method gets harmless arguments for the elements of the other, so that it converges quickly.
    near = _lower_series(np.where(plain & series, a, 1.0), np.where(plain & series, x, 0.5))
    far = _upper_fraction(np.where(plain & ~series, a, 1.0), np.where(plain & ~series, x, 3.0))
    lower = np.where(series, near, 1 - far)
    upper = np.where(series, 1 - near, far)
    bad = (x < 0) | (a < 0) | np.isnan(x) | np.isnan(a) | ((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))
    # Limits: P(a, 0) = P(inf, x) = 0 and P(0, x) = P(a, inf) = 1.
    zero = (x == 0) | np.isinf(a)
    full = (a == 0) | np.isinf(x)
    lower = np.where(plain, lower, np.where(zero, 0.0, np.where(full, 1.0, lower)))
    upper = np.where(plain, upper, np.where(zero, 1.0, np.where(full, 0.0, upper)))
    return np.where(bad, np.nan, lower), np.where(bad, np.nan, upper)


@in_double
def igamma(a, x):
    """Returns the regularized lower incomplete gamma function P(a, x)."""
    return _incomplete(a, x)[0]


@in_double
def igammac(a, x):
    """Returns the regularized upper incomplete gamma function Q(a, x)."""
    return _incomplete(a, x)[1]
