"""Updates of one parameter, its gradient and its state in a single pass; NumPy needs up to fifteen passes.

Each element is read once, updated in registers and written once. All loops use these float32 numbers:

* `pull`: coupled weight decay, the share of p that is added to the gradient.
* `shrink`: decoupled weight decay, a factor on p (AdamW).
* `rest`, `rest1`, `rest2`: 1 - alpha or 1 - beta, rounded once from float64. In `rest * d * d` the first product is
  small, so that d² does not overflow, as in PyTorch.
"""

import functools

import numpy as np

from ..threads import split
from .common import exact, in_order

TAKES = "contiguous float32 arrays on the CPU"
_FLOAT32 = np.dtype(np.float32)


def accepts(*arrays):
    """Accepts contiguous float32 arrays on the CPU."""
    for a in arrays:
        if type(a) is not np.ndarray or a.dtype != _FLOAT32 or not a.flags.c_contiguous:
            return False
    return True


# np.float32() costs more than a small update: keep the converted numbers between steps.
@functools.lru_cache(64)
def _rounded(*numbers):
    return tuple(map(np.float32, numbers))


def update(loop, arrays, *numbers):
    """Runs a loop over flattened arrays of one size, with the numbers rounded to float32."""
    split(loop, arrays[0].size, [a.reshape(-1) for a in arrays], *_rounded(*numbers))


@in_order
def sgd(p, g, lr, pull):
    """p -= lr * (g + pull * p)."""
    for i in range(p.size):
        p[i] -= lr * (g[i] + pull * p[i])


@in_order
def momentum(p, g, average, lr, pull, decay, share, ahead):
    """average = decay * average + share * d; p -= lr * (average + ahead * (d + decay * average - average))."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        # `share` is 1 - dampening. `ahead` is 1 for Nesterov momentum, which uses d + decay * average, and 0 otherwise.
        a = decay * average[i] + share * d
        average[i] = a
        p[i] -= lr * (a + ahead * (d + decay * a - a))


@in_order
def adam(p, g, m, v, beta1, beta2, rest1, rest2, eps, shrink, pull, step_size, scale):
    """m and v are the running means of d and d². p = p * shrink - step_size * m / (sqrt(v) * scale + eps)."""
    for i in range(p.size):
        x = p[i] * shrink
        d = g[i] + pull * x
        a = beta1 * m[i] + rest1 * d
        b = beta2 * v[i] + rest2 * d * d
        m[i] = a
        v[i] = b
        # Bias correction is in the two numbers: step_size = lr / (1 - beta1^t), scale = 1 / sqrt(1 - beta2^t).
        p[i] = x - step_size * a / (np.sqrt(b) * scale + eps)


@in_order
def amsgrad(p, g, m, v, top, beta1, beta2, rest1, rest2, eps, shrink, pull, step_size, scale):
    """Adam with `top`, the elementwise maximum of all v so far, instead of v (Reddi et al., 2018)."""
    for i in range(p.size):
        x = p[i] * shrink
        d = g[i] + pull * x
        a = beta1 * m[i] + rest1 * d
        b = beta2 * v[i] + rest2 * d * d
        # AMSGrad: the denominator never decreases.
        c = max(top[i], b)
        m[i] = a
        v[i] = b
        top[i] = c
        p[i] = x - step_size * a / (np.sqrt(c) * scale + eps)


@in_order
def rmsprop(p, g, v, lr, pull, alpha, rest, eps):
    """v is the running mean of d²; p -= lr * d / (sqrt(v) + eps)."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        b = alpha * v[i] + rest * d * d
        v[i] = b
        p[i] -= lr * d / (np.sqrt(b) + eps)


@in_order
def adagrad(p, g, total, lr, pull, eps):
    """total is the sum of d²; p -= lr * d / (sqrt(total) + eps)."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        b = total[i] + d * d
        total[i] = b
        p[i] -= lr * d / (np.sqrt(b) + eps)


@exact
def adadelta(p, g, v, delta, lr, pull, rho, rest, eps):
    """p -= lr * step, where step = sqrt(delta + eps) / sqrt(v + eps) * d; v and delta are running means of d² and step²."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        b = rho * v[i] + rest * d * d
        # Units cancel: the step has the units of p, so lr is dimensionless (Zeiler, 2012).
        step = np.sqrt(delta[i] + eps) / np.sqrt(b + eps) * d
        v[i] = b
        delta[i] = rho * delta[i] + rest * step * step
        p[i] -= lr * step


@in_order
def adamax(p, g, m, u, lr, pull, rest1, beta2, eps):
    """u = max(beta2 * u, |d| + eps); p -= lr * m / u, m being the running mean of d."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        # m += (1 - beta1) (d - m), the form of torch.lerp.
        a = m[i] + rest1 * (d - m[i])
        # The infinity norm instead of the second moment needs no bias correction.
        b = max(beta2 * u[i], abs(d) + eps)
        m[i] = a
        u[i] = b
        p[i] -= lr * a / b


@in_order
def two_shares(p, g, m, v, shrink, pull, rest1, beta2, rest2, scale, eps, of_gradient, of_mean, plain):
    """NAdam and RAdam: p = p * shrink - (of_gradient * d + of_mean * m) / (sqrt(v) * scale + eps) - plain * m.

    RAdam uses plain * m alone in the first steps, while the variance of v is unknown.
    """
    for i in range(p.size):
        x = p[i] * shrink
        d = g[i] + pull * x
        a = m[i] + rest1 * (d - m[i])
        b = beta2 * v[i] + rest2 * d * d
        m[i] = a
        v[i] = b
        p[i] = x - (of_gradient * d + of_mean * a) / (np.sqrt(b) * scale + eps) - plain * a
