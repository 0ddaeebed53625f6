"""Special functions that NumPy lacks, over NumPy arrays.

erf of float32 and half precision is evaluated in float32 by a rational approximation, in blocks, so that intermediate
results stay in the cache. The other functions are computed in float64, also in blocks, and rounded once. For float64 inputs, erf,
erfc and lgamma call the C library, and the Bessel functions use their series. For other inputs, polynomials replace both.
"""

import functools
import math

import numpy as np

from .blocks import LARGE

FEW = 64  # up to this number of elements, calling the C library for each number is faster
BLOCK = 1 << 17  # bytes of a block: several blocks fit into the second-level cache

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


def in_double(function, quick=None, single=False):
    """Decorator: lets a function of flat float64 arrays accept any shape and float dtype. The result is rounded once.

    Args:
        function: the function. It is called for blocks that stay in the cache.
        quick: a function with the accuracy of float32, which is faster for more than a few elements of all dtypes except float64.
        single: `quick` is a function of float32 arrays.
    """

    @functools.wraps(function)
    def rounded(*arrays):
        dtype = next(a.dtype for a in arrays if hasattr(a, "dtype"))
        arrays = np.broadcast_arrays(*arrays)
        out = np.empty(arrays[0].shape, dtype)
        flat, arrays = out.reshape(-1), [a.reshape(-1) for a in arrays]
        exact = quick is None or dtype == np.float64 or flat.size <= FEW
        inner, wide = (function, np.float64) if exact else (quick, np.float32 if single else np.float64)
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, step := BLOCK // np.dtype(wide).itemsize):
                flat[start : start + step] = inner(*[a[start : start + step].astype(wide) for a in arrays])
        return out

    return rounded


def _erf32(x):
    # Beyond ±4, erf rounds to ±1 in float32, and the approximation is not valid.
    np.clip(x, np.float32(-4), np.float32(4), out=x)
    square = x * x
    denominator = horner(_ERF_Q, square, np.empty_like(x))
    x *= horner(_ERF_P, square, np.empty_like(x))
    x /= denominator
    return np.clip(x, np.float32(-1), np.float32(1), out=x)  # which rounding exceeds near ±4


# 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.
erf = in_double(np.frompyfunc(math.erf, 1, 1), _erf32, single=True)


# -- gamma functions and Bessel functions: in float64, vectorized --------------------------------------------------


@functools.cache
def _fit(function, degree):
    """Returns the coefficients, highest power first, of a polynomial that interpolates `function` in the Chebyshev points of [-1, 1].

    Source: Trefethen, Approximation Theory and Approximation Practice, 2013. The error is close to the smallest possible error.
    """
    series = np.polynomial.Chebyshev.interpolate(function, degree)
    return tuple(series.convert(kind=np.polynomial.Polynomial).coef[::-1].tolist())


# B(2k) / (2k)! for k = 1 … 7, the coefficients of the Euler-Maclaurin formula.
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)


@in_double
def zeta(s, q):
    """Returns the Hurwitz zeta function, the sum of (k + q)^-s over k >= 0, for s > 1."""
    pole = (q <= 0) & (q == np.floor(q))
    out = np.where((s == 1) | (~(s < 1) & pole), np.inf, np.nan)
    out[(s > 1) & (q == np.inf)] = 0
    regular = np.flatnonzero((s > 1) & ~pole & (q != np.inf) & ((q > 0) | (s == np.floor(s))))
    if regular.size:
        s, q = s[regular], q[regular]
        out[regular] = _zeta_by_reflection(s, q) if (q < 0).any() else _euler_maclaurin(s, q)
    return out


def _euler_maclaurin(s, q):
    """Returns the Hurwitz zeta function for s > 1 and q > 0 by the Euler-Maclaurin formula."""
    s = float(s[0]) if (s == s[0]).all() else s  # NumPy has fast loops for some powers that are numbers
    # The first 12 terms directly, so that w = q + 12 is large enough for the asymptotic remainder.
    total = sum(1 / (q + k) ** s for k in range(12))
    w = q + 12
    power = 1 / w**s
    total += power * (w / (s - 1) + 0.5)
    # Remainder: w^(1-s) / (s-1) + w^-s / 2 + sum of B(2k)/(2k)! s (s+1) … (s+2k-2) w^(-s-2k+1).
    factor = s = np.minimum(s, 1e18)  # infinity would give inf * 0
    power /= w
    for k, b in enumerate(_BERNOULLI):
        total += b * factor * power
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2)
        power /= w * w
    return total


def _zeta_by_reflection(s, q):
    """Returns the Hurwitz zeta function of integers s > 1. For q < 0, it follows from the value at 1 - q.

    With n = s - 1 and the cotangent c of pi q: zeta(s, q) = (-1)^n (zeta(s, 1 - q) + pi^s P_n(c) / n!), where pi^n P_n(c) is the
    n-th derivative of c by q: P_0 = c, P_{k+1} = -(1 + c²) P_k'.
    """
    result = _euler_maclaurin(s, np.where(q < 0, 1 - q, q))
    negative = np.flatnonzero(q < 0)
    for order in np.unique(s[negative]):
        at = negative[s[negative] == order]
        fraction = q[at] - np.rint(q[at])
        if order > 60:  # only the two terms next to 0 matter
            result[at] = fraction**-order + (fraction - np.copysign(1, fraction)) ** -order
            continue
        n = int(order) - 1
        polynomial = np.polynomial.Polynomial([0.0, 1.0])
        for _ in range(n):
            polynomial = np.polynomial.Polynomial([-1.0, 0.0, -1.0]) * polynomial.deriv()
        # tan has period pi: only the fraction of q matters, which is exact for large q.
        derivative = polynomial(1 / np.tan(np.pi * fraction)) * (np.pi**order / math.factorial(n))
        result[at] = (result[at] + derivative) * (-1.0) ** n
    return result


@in_double
def digamma(x):
    """Returns the derivative of log gamma: a recurrence, then the asymptotic series; reflection below 0."""
    low = x < 0
    # Reflection: digamma(x) = digamma(1 - x) - pi / tan(pi x).
    y = np.where(low, 1 - x, x) if low.any() else x
    # Recurrence: digamma(y) = digamma(y + 10) - the sum of 1 / (y + k) over k < 10. The terms k and 9 - k are added first:
    # (2 y + 9) / (y² + 9 y + k (9 - k)).
    z = np.minimum(y, 1e100)
    u = z * (z + 9)
    total = sum(1 / (u + k * (9 - k)) for k in range(5)) * (-9 - 2 * z)
    y = y + 10
    s = 1 / (y * y)
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))))
    out = total + np.log(y) - 0.5 / y - series
    if low.any():
        # tan has period pi: only the fraction of x matters, which is exact for large x. The poles are NaN.
        fraction = x - np.rint(x)
        out = np.where(low, np.where(fraction == 0, np.nan, out - np.pi / np.tan(np.pi * fraction)), out)
    return np.where(x == 0, np.copysign(np.inf, -x), out)


def polygamma(n, x):
    """Returns the n-th derivative of digamma, n >= 1: (-1)^(n+1) n! zeta(n + 1, x)."""
    return (zeta(n + 1.0, x) * ((-1.0) ** (n + 1) * math.factorial(n))).astype(x.dtype)


# AS 241 (Wichura, 1988): the normal quantile by three rational functions, numerator over denominator, for the center, the
# tails and the far tails. Highest power first.
_QUANTILE = (
    ((2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125,
      1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
     (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077,
      687.1870074920579083, 42.313330701600911252, 1.0)),
    ((7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
      3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
     (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
      0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0)),
    ((2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
      0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
     (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
      0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0)),
)  # fmt: skip


def _rational(coefficients, x):
    numerator, denominator = (horner(part, x, np.empty_like(x)) for part in coefficients)
    return np.divide(numerator, denominator, out=numerator)


def _quantile(q, tail):
    """Returns the normal quantile of the probability p, from q = p - 1/2 and tail = min(p, 1 - p)."""
    # Center, |q| <= 0.425: q times a rational function of q².
    out = _rational(_QUANTILE[0], 0.180625 - np.minimum(q * q, 0.180625))  # finite for the other elements, too
    out *= q
    # Tails: a rational function of sqrt(-log(tail)). NaN if the probability is outside of [0, 1].
    out[~(tail >= 0)] = np.nan
    place = np.flatnonzero((np.abs(q) > 0.425) & (tail >= 0))
    tail = tail[place]
    r = np.sqrt(-np.log(tail))
    quantile = _rational(_QUANTILE[1], r - 1.6)
    far = np.flatnonzero(r > 5)
    quantile[far] = _rational(_QUANTILE[2], r[far] - 5)
    out[place] = np.copysign(np.where(tail == 0, np.inf, quantile), q[place])
    return out


ndtri = in_double(lambda p: _quantile(p - 0.5, np.minimum(p, 1 - p)))
# The inverse of erf is the normal quantile of (1 + y) / 2 over sqrt(2).
erfinv = in_double(lambda y: _quantile(0.5 * y, (1 - np.abs(y)) * 0.5) / math.sqrt(2))


_erfc64 = np.frompyfunc(math.erfc, 1, 1)


def _erfcx64(x):
    """Returns exp(x^2) erfc(x): directly up to 25, then by its asymptotic series, since exp(x^2) would overflow."""
    near, far = np.minimum(x, 25.0), np.maximum(x, 25.0)
    t = 1 / (2 * far * far)
    series = (1 - t * (1 - 3 * t * (1 - 5 * t * (1 - 7 * t)))) / (far * math.sqrt(math.pi))
    return np.where(x < 25, np.exp(near * near) * _erfc64(near).astype(np.float64), series)


def _scaled_erfcx(t):
    """Returns (1 + 2 z) erfcx(z) for z = 3 (1 + t) / (1 - t), which maps [-1, 1] to [0, inf]."""
    z = 3 * (1 + t) / (1 - t)
    return (1 + 2 * z) * _erfcx64(z)


def erfcx_coefficients():
    """Returns the coefficients, highest power first, of (1 + 2z) erfcx(z) as a polynomial of t = (z - 3) / (z + 3)."""
    return _fit(_scaled_erfcx, 14)


def _erfcx_of_positive(z):
    """Returns erfcx(z) for z >= 0, with the accuracy of float32."""
    z = np.minimum(z, 1e300)
    t = (z - 3) / (z + 3)
    out = horner(erfcx_coefficients(), t, np.empty_like(t))
    return np.divide(out, 2 * z + 1, out=out)


def _erfc32(x):
    z = np.minimum(np.abs(x), 12.0)  # erfc(12) rounds to 0 in float32
    out = _erfcx_of_positive(z)
    out *= np.exp(-z * z)
    # erfc(-z) = 2 - erfc(z).
    sign = np.copysign(1.0, x)
    return out * sign + (1 - sign)


def _erfcx32(x):
    out = _erfcx_of_positive(np.abs(x))
    low = np.flatnonzero(x < 0)
    out[low] = 2 * np.exp(x[low] ** 2) - out[low]
    return out


erfc = in_double(_erfc64, _erfc32)
erfcx = in_double(_erfcx64, _erfcx32)


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


@functools.cache
def _bessel_cores(order):
    """Returns two functions on [-1, 1]: I_order(x) / x^order with x² = 32 (1 + t), and sqrt(x) exp(-x) I_order(x) with x = 16 / (1 + t)."""

    def near(z):
        return _bessel_i(order, z) * np.exp(z) / z**order

    def far(z):
        return _bessel_i(order, z) * np.sqrt(z)

    return lambda t: near(np.sqrt(32 * (1 + t))), lambda t: far(16 / (1 + t))


def _bessel32(order, scaled, x):
    """Returns I_order(x), times exp(-|x|) if `scaled`, with the accuracy of float32."""
    near, far = _bessel_cores(order)
    z = np.minimum(np.abs(x), 8.0)
    out = horner(_fit(near, 12), z * z * (1 / 32) - 1, np.empty_like(x))
    if scaled:
        out *= np.exp(-z)
    if order:
        out *= np.copysign(z, x)
        out += 0.0  # 0 at -0, as in PyTorch
    place = np.flatnonzero(np.abs(x) > 8)
    if place.size:
        z = np.abs(x[place])
        tail = horner(_fit(far, 8), 16 / z - 1, np.empty_like(z)) / np.sqrt(z)
        tail = tail if scaled else tail * np.exp(z)
        out[place] = np.copysign(tail, x[place]) if order else tail
    return out


def _bessel(order, scaled):
    exact = functools.partial(_bessel_i, order)
    return in_double(
        exact if scaled else lambda x: exact(x) * np.exp(np.abs(x)), functools.partial(_bessel32, order, scaled)
    )


# The modified Bessel functions of the first kind, and the same times exp(-|x|), which do not overflow.
i0, i0e, i1, i1e = (_bessel(order, scaled) for order in (0, 1) for scaled in (False, True))

_lgamma64 = np.frompyfunc(lambda v: math.inf if abs(v) > 2e305 or (v <= 0 and v % 1 == 0) else math.lgamma(v), 1, 1)


def _lgamma32(x):
    """Returns log |gamma(x)| with an absolute error of a few units of 1e-15: a recurrence, Stirling's series, and reflection below 0."""
    y = np.minimum(np.abs(x), 4e38)  # infinity would give inf - inf
    # gamma(y) = gamma(y + 8) / (y (y + 1) … (y + 7)). The factors k and 7 - k are multiplied first: y² + 7 y + k (7 - k).
    u = y * (y + 7)
    product = u * 2.0**-8
    for k in (1, 2, 3):
        product *= u + k * (7 - k)
    w = y + 8
    inverse = 1 / w
    out = horner(_STIRLING, inverse * inverse, u)
    out *= inverse
    out += (w - 0.5) * (np.log(w) - 1) + (0.5 * math.log(2 * math.pi) - 0.5 - 8 * math.log(2))
    out -= np.log(product)
    out[(x == 1) | (x == 2)] = 0.0
    low = np.flatnonzero(x < 0)
    if low.size:
        # Reflection: gamma(-y) gamma(y) = -pi / (y sin(pi y)). With the tangent t of half an angle, its sine is 2 t / (1 + t²).
        y = y[low]
        t = np.tan(np.abs(y - np.rint(y)) * (0.5 * np.pi))
        out[low] = np.log(np.pi * (1 + t * t) / (2 * t * y)) - out[low]
    return out


# B(2k) / (2k (2k - 1)) for k = 8 … 1, the coefficients of Stirling's series.
_STIRLING = (-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
lgamma = in_double(_lgamma64, _lgamma32)


def _lower_series(a, x):
    """Returns the regularized lower incomplete gamma function by its power series, for x < a + 1."""
    # sum of x^n / (a (a + 1) … (a + n)), each term from the one before.
    term, n = 1 / a, a.copy()
    total = term.copy()
    for i in range(500 + int(10 * math.sqrt(a.max()))):
        n += 1
        term *= x
        term /= n
        total += term
        if i % 4 == 0 and not (term > total * 1e-17).any():
            break
    return total * np.exp(a * np.log(x) - x - _lgamma32(a))


def _upper_fraction(a, x):
    """Returns the regularized upper incomplete gamma function by a continued fraction, for x >= a + 1."""
    # Lentz algorithm. All denominators are positive for x >= a + 1.
    b = x + 1 - a
    c, d = 1e300, 1 / b
    h, live = d.copy(), True
    for i in range(1, 500 + int(10 * math.sqrt(a.max()))):
        numerator = i * (a - i)
        b += 2
        d = 1 / (d * numerator + b)
        c = numerator / c + b
        step = d * c
        h *= np.where(live, step, 1.0)
        # Each element ends by itself, so that its digits do not depend on the other elements.
        live &= np.abs(step - 1) > 4e-16
        if i % 4 == 0 and not live.any():
            break
    return h * np.exp(a * np.log(x) - x - _lgamma32(a))


def _near_normal(sign, a, x):
    """Returns P(a, x) for a sign of -1 and Q(a, x) for a sign of 1. The absolute error is about 0.001 a^-1.5, so a must be large.

    Source: Temme, The asymptotic expansion of the incomplete gamma functions, 1979, with the first term of the remainder.
    """
    mu = (x - a) / a
    near = np.abs(mu) < 1e-3
    # eta²/2 = mu - log(1 + mu), by its series near 0.
    eta = np.copysign(np.sqrt(2 * (mu - np.log1p(mu))), mu)
    eta = np.where(near, mu * (1 - mu * (1 / 3 - mu * (7 / 36 - mu * (73 / 540)))), eta)
    term = np.where(near, eta / 12 - 1 / 3, 1 / mu - 1 / eta) * np.exp(-0.5 * a * eta * eta) / np.sqrt(2 * np.pi * a)
    return 0.5 * _erfc64(sign * eta * np.sqrt(0.5 * a)).astype(np.float64) + sign * term


def _incomplete(upper, a, x):
    """Returns the regularized incomplete gamma function P(a, x), or Q(a, x) if `upper`. Source: Press et al., Numerical Recipes, 6.2."""
    # Limits: P(a, 0) = P(inf, x) = 0 and P(0, x) = P(a, inf) = 1.
    out = np.where((a >= 0) & (x >= 0), 0.0, np.nan)
    out[(a >= 0) & (x > 0) & ((a == 0) | np.isinf(x))] = 1.0
    out[((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))] = np.nan
    if upper:
        out = 1 - out
    regular = (x > 0) & (a > 0) & np.isfinite(x) & np.isfinite(a)
    large = a > 1e5
    near_normal = functools.partial(_near_normal, 1 if upper else -1)
    methods = ((x < a + 1, _lower_series, False), (x >= a + 1, _upper_fraction, True), (large, near_normal, upper))
    for place, method, above in methods:
        place = np.flatnonzero(place & regular & (large == (method is near_normal)))
        if place.size:
            value = method(a[place], x[place])
            out[place] = value if above == upper else 1 - value
    return out


igamma, igammac = (in_double(functools.partial(_incomplete, upper)) for upper in (False, True))


# -- remainders -----------------------------------------------------------------------------------------------------


def _by_quotient(ufunc, finish):
    """Returns np.fmod, np.remainder or np.floor_divide with a vectorized computation of large float32 arrays."""

    def quick(x, y):
        # The quotients of float32 numbers below 2^22 are exact enough in float64: rounding never reaches an integer, and the product
        # of the integer and y is exact.
        quotient = x / y
        out = finish(x, y, quotient)
        odd = np.flatnonzero(~(np.abs(quotient) < 2.0**22) | np.isinf(y))
        out[odd] = ufunc(x[odd].astype(np.float32), y[odd].astype(np.float32))
        return out

    blocked = in_double(ufunc, quick)

    @functools.wraps(ufunc)
    def divide(x, y):
        if getattr(x, "size", 0) < LARGE or x.dtype != np.float32 or getattr(y, "dtype", x.dtype) != x.dtype:
            return ufunc(x, y)
        return blocked(x, np.asarray(y, x.dtype))

    return divide


fmod = _by_quotient(np.fmod, lambda x, y, quotient: np.copysign(x - np.trunc(quotient) * y, x))
remainder = _by_quotient(np.remainder, lambda x, y, quotient: np.copysign(x - np.floor(quotient) * y, y))
floor_divide = _by_quotient(np.floor_divide, lambda x, y, quotient: np.floor(quotient))
