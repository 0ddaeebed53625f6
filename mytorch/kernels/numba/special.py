"""erf and erfc, one pass each. NaN stays NaN.

float32 uses the approximations of mytorch/arrays/special.py, within their bounds, and float64 the functions of the C library.
"""

import math

import numpy as np

from ...arrays.special import erfcx_coefficients
from ..kernel import Kernel
from .common import each, exact, float_of_bits, is_float32, with_nan
from .common import erf as inner_erf

ERFCX = erfcx_coefficients()


@with_nan
def _erf(x, out):
    for i in range(x.size):
        v = x[i]
        y = inner_erf(v)
        out[i] = v if v != v else y


@with_nan
def _erfc(x, out):
    for i in range(x.size):
        v = np.float64(x[i])
        z = min(abs(v), 11.0)  # erfc(11) rounds to 0 in float32
        t = (z - 3.0) / (z + 3.0)
        p = ERFCX[0]
        for c in ERFCX[1:]:
            p = p * t + c
        # exp(-z²) = 2^n e^r with |r| <= ln2 / 2, and the Taylor series of e^r.
        s = -z * z
        n = np.floor(s * 1.4426950408889634 + 0.5)
        r = s - n * 0.6931471805599453
        e = 1 / 40320
        for c in (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
            e = e * r + c
        # 2^n in two factors, since n may be below the smallest exponent of float32.
        half = np.int32(n) >> np.int32(1)
        e *= np.float64(float_of_bits((half + np.int32(127)) << np.int32(23)))
        e *= np.float64(float_of_bits((np.int32(n) - half + np.int32(127)) << np.int32(23)))
        y = e * p / (1.0 + 2.0 * z)
        y = 2.0 - y if v < 0.0 else y
        out[i] = x[i] if v != v else np.float32(y)


@exact
def _erf64(x, out):
    for i in range(x.size):
        out[i] = math.erf(x[i])


@exact
def _erfc64(x, out):
    for i in range(x.size):
        out[i] = math.erfc(x[i])


def _kernel(single, double):
    return Kernel(
        accepts=lambda x: is_float32(x) or x.dtype == np.float64,
        forward=lambda xp, x: each(single if x.dtype == np.float32 else double, x),
    )


erf, erfc = _kernel(_erf, _erf64), _kernel(_erfc, _erfc64)
