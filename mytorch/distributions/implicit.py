"""Gamma and Dirichlet draws with exact gradients, by implicit reparameterization.

A draw x with distribution function F(x; a) has the derivative dx/da = -(dF/da) / (dF/dx), because it keeps its quantile
(Figurnov et al., 2018). dF/da is an integral over either tail. In the tail where the integrand has one sign, no
cancellation occurs. The integral is computed there by quadrature, to eight digits or more (PyTorch's
approximations have three).
"""

import numpy as np

from ..arrays import dtypes
from ..arrays.special import digamma
from ..arrays.tensor import Tensor
from ..ops.movement import broadcast_tensors
from ..ops.random import standard_gamma
from ..ops.special import lgamma
from .utils import finfo

# Integrals of f over [0, inf) with s = exp(t - exp(-t)): exponentially dense nodes near 0, for integrands that decay like
# exp(-s) or faster. Source: Takahasi and Mori, 1974.
_STEP = 0.08
_T = np.arange(-3.4, 3.8, _STEP)
_NODES = np.exp(_T - np.exp(-_T))
_WEIGHTS = _STEP * _NODES * (1 + np.exp(-_T))
_BLOCK = 4096  # number of draws per block: a few megabytes of nodes


def _scale(slope, curvature):
    """Solve slope * s + curvature * s^2 / 2 = 1 for s."""
    return 2 / (slope + np.sqrt(slope * slope + 2 * curvature))


def _integral(f, width):
    """Integrate f, a function of columns s, over [0, inf); f decays to about 1/e at width."""
    return (f(width[:, None] * _NODES) * _WEIGHTS).sum(-1) * width


def _split(low, below, above, *arrays):
    """Evaluate below(…) where `low` is True, and above(…) elsewhere."""
    out = np.empty(low.shape)
    for side, f in ((low, below), (~low, above)):
        out[side] = f(*(v[side] for v in arrays))
    return out


def _gamma_below(x, a, c):
    """Integrate with t = x exp(-s), by parts once to keep precision for small a."""
    X, A, C = x[:, None], a[:, None], c[:, None]

    def f(s):
        return (s + C) * np.exp(X * -np.expm1(-s) - (A + 1) * s)

    return x / a * (c + x * _integral(f, _scale(a + 1 - x, x)))


def _gamma_above(x, a, c):
    """Integrate with t = x exp(s)."""
    X, A, over = x[:, None], a[:, None], (1 / a - c)[:, None]  # over = log x - psi(a)

    def f(s):
        return (s + over) * np.exp(A * s - X * np.expm1(np.minimum(s, 700)))

    return x * _integral(f, _scale(x - a, x))


def _gamma_block(x, a):
    c = digamma(a + 1) - np.log(x)
    return _split(c > 0, _gamma_below, _gamma_above, x, a, c)


def _along(x, a, b, sign):
    """Return f(s) = (log t at logit(x) + sign * s, density of logits there divided by the density at x)."""
    log_x, log_y = np.log(x)[:, None], np.log1p(-x)[:, None]
    z, a, b = log_x - log_y, a[:, None], b[:, None]

    def f(s):
        logit = np.maximum(z + sign * s, -700)
        log_t = -np.log1p(np.exp(-logit))
        return log_t, np.exp(a * (log_t - log_x) + b * (log_t - logit - log_y))

    return f


def _beta_below(x, a, b, c1, c2):
    """Integrate by parts once, as for the gamma distribution."""
    there, c = _along(x, a, b, -1), c2[:, None]

    def f(s):
        log_t, ratio = there(s)
        return np.exp(log_t) * (c - log_t) * ratio

    width = _scale(np.abs(a + 1 - (a + b + 1) * x), (a + b) * x * (1 - x))
    tail = _integral(f, np.maximum(width, 1 / (a + 1)))
    return (c1 - np.log(x) + (a + b) * tail) / a


def _beta_above(x, a, b, c1, c2):
    there, c = _along(x, a, b, 1), (c1 - 1 / a)[:, None]  # psi(a) - psi(a + b)

    def f(s):
        log_t, ratio = there(s)
        return (log_t - c) * ratio

    width = _scale(np.abs((a + b) * x - a), (a + b) * x * (1 - x))
    return _integral(f, np.maximum(width, 1 / b))


def _beta_block(x, a, b):
    """Return dz/da for z = logit(x), for draws x from Beta(a, b)."""
    c1 = digamma(a + 1) - digamma(a + b)
    c2 = c1 - 1 / (a + b)  # psi(a + 1) - psi(a + b + 1)
    return _split(np.log(x) < c2, _beta_below, _beta_above, x, a, b, c1, c2)


def _cdf_below(x, a):
    X, A = x[:, None], a[:, None]
    tail = _integral(lambda s: np.exp(X * -np.expm1(-s) - (A + 1) * s), _scale(a + 1 - x, x))
    return (1 + x * tail) / a


def _cdf_above(x, a):
    X, A = x[:, None], a[:, None]
    return -_integral(lambda s: np.exp(A * s - X * np.expm1(np.minimum(s, 700))), _scale(x - a, x))


def _cdf_block(x, a):
    """Return P(a, x), or P - 1 for x above a + 1/2, divided by x times the density."""
    return _split(x < a + 0.5, _cdf_below, _cdf_above, x, a)


def _in_blocks(f, *arrays):
    arrays = np.broadcast_arrays(*(np.asarray(a, np.float64) for a in arrays))
    flat = [a.reshape(-1) for a in arrays]
    out = np.empty(flat[0].shape)
    for i in range(0, len(out), _BLOCK):
        out[i : i + _BLOCK] = f(*(a[i : i + _BLOCK] for a in flat))
    return out.reshape(arrays[0].shape)


def gamma_gradient(x, a):
    """Return dx/da of draws x from Gamma(a, 1), as NumPy arrays."""
    return _in_blocks(_gamma_block, x, a)


def beta_gradient(x, a, b):
    """Return dx/da of draws x from Beta(a, b), as NumPy arrays."""
    x = np.asarray(x, np.float64)
    return x * (1 - x) * _in_blocks(_beta_block, x, a, b)


def _host(tensor):
    return tensor.detach().cpu().numpy().astype(np.float64)


def _like(array, tensor):
    return Tensor._wrap(np.asarray(array)).to(tensor.device).to(tensor.dtype)


def _slope(array, tensor):
    """Returns slopes in the dtype of a tensor, without infinities.

    They are multiplied by zero, which adds a gradient without changing the value. For concentrations near the smallest number of a
    dtype, the formulas overflow.
    """
    most = finfo(tensor).max
    return _like(np.nan_to_num(array, nan=0.0).clip(-most, most), tensor)


def gamma_draw(concentration, shape):
    """Draw from Gamma(concentration, 1) with gradients for the concentration."""
    alpha = concentration.expand(shape)
    drawn = Tensor._wrap(standard_gamma(alpha.detach()))
    drawn = drawn.clamp(min=finfo(drawn).tiny)
    if not alpha.requires_grad:
        return drawn
    slope = _slope(gamma_gradient(_host(drawn), _host(alpha)), alpha)
    return drawn + slope * (alpha - alpha.detach())  # adds the gradient `slope` without changing the value


def gamma_cdf(x, a):
    """Return the distribution function of Gamma(a, 1) at x, with gradients for both."""
    x, a = broadcast_tensors(x, a)
    raw_x, raw_a = _host(x), _host(a)
    inside = np.clip(raw_x, np.finfo(np.float64).tiny, 1e300)
    log_gamma = lgamma.fast_call(Tensor._wrap(raw_a))._mt_data._array
    x_density = np.exp(raw_a * np.log(inside) - inside - log_gamma)
    part = _in_blocks(_cdf_block, inside, raw_a) * x_density
    value = np.where(raw_x <= 0, 0.0, np.where(inside < raw_a + 0.5, part, 1 + part))
    out = _like(value, x)
    if not (x.requires_grad or a.requires_grad):
        return out
    density = np.where(raw_x < 0, 0.0, np.minimum(x_density / inside, 1e300))
    slope = -density * gamma_gradient(inside, raw_a)
    return out + _like(density, x) * (x - x.detach()) + _slope(slope, a) * (a - a.detach())


def dirichlet_draw(concentration, shape):
    """Draw from Dirichlet(concentration) with gradients for the concentration.

    If concentration j increases, x_j changes like a draw from Beta(a_j, sum of the others), and the other coordinates
    shrink in proportion.
    """
    alpha = concentration.expand(shape)
    gammas = gamma_draw(alpha.detach().to(dtypes.float64), shape)  # all could underflow in float32, and some in float64
    gammas = gammas.clamp(min=np.finfo(np.float64).tiny)
    drawn = (gammas / gammas.sum(-1, keepdim=True)).to(alpha.dtype)
    drawn = drawn.clamp(finfo(alpha).tiny, 1 - finfo(alpha).eps / 2)
    if not alpha.requires_grad:
        return drawn
    x, a = _host(drawn), _host(alpha)
    x = np.clip(x, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).eps / 2)
    slope = _in_blocks(_beta_block, x, a, a.sum(-1, keepdims=True) - a) * x  # dx_j/da_j / (1 - x_j)
    moved = _slope(slope, alpha) * (alpha - alpha.detach())
    return drawn + moved - drawn * moved.sum(-1, keepdim=True)
