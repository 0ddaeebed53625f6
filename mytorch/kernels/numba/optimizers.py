"""A parameter's update in one pass over it, its gradient and its state; the plain rules make up to fifteen.

Every element is read once, updated in registers, written once. Each function takes what a rule of `optim/` has at hand, and
its loop the same as float32 numbers; `pull` is the share of p that is added to the gradient (coupled weight decay), `shrink` the
factor on p (decoupled).
"""

import functools

import numpy as np

from ..threads import split
from .common import kernel

TAKES = "contiguous float32 arrays on the CPU"
_FLOAT32 = np.dtype(np.float32)


def accepts(*arrays):
    """Contiguous float32 arrays in the CPU's memory."""
    for a in arrays:
        if type(a) is not np.ndarray or a.dtype != _FLOAT32 or not a.flags.c_contiguous:
            return False
    return True


@functools.lru_cache(64)
def _rounded(*numbers):
    return tuple(map(np.float32, numbers))


def update(loop, arrays, *numbers):
    """Run a loop over whole arrays of one size, with numbers rounded once."""
    split(loop, arrays[0].size, [a.reshape(-1) for a in arrays], *_rounded(*numbers))


@kernel
def sgd(p, g, lr, pull):
    """p -= lr * (g + pull * p), pull being the weight decay."""
    for i in range(p.size):
        p[i] -= lr * (g[i] + pull * p[i])


@kernel
def momentum(p, g, average, lr, pull, decay, share, ahead):
    """average = decay * average + share * d; p -= lr * (average + ahead * (d + decay * average - average))."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        a = decay * average[i] + share * d
        average[i] = a
        p[i] -= lr * (a + ahead * (d + decay * a - a))


@kernel
def adam(p, g, m, v, beta1, beta2, rest1, rest2, eps, shrink, pull, step_size, scale):
    """m and v are running means of d and d²; p -= step_size * m / (sqrt(v) * scale + eps), where p was shrunk first."""
    for i in range(p.size):
        x = p[i] * shrink
        d = g[i] + pull * x
        a = beta1 * m[i] + rest1 * d
        b = beta2 * v[i] + rest2 * d * d
        m[i] = a
        v[i] = b
        p[i] = x - step_size * a / (np.sqrt(b) * scale + eps)


@kernel
def amsgrad(p, g, m, v, top, beta1, beta2, rest1, rest2, eps, shrink, pull, step_size, scale):
    """As adam, with the largest v so far, `top`, in the place of v."""
    for i in range(p.size):
        x = p[i] * shrink
        d = g[i] + pull * x
        a = beta1 * m[i] + rest1 * d
        b = beta2 * v[i] + rest2 * d * d
        c = max(top[i], b)
        m[i] = a
        v[i] = b
        top[i] = c
        p[i] = x - step_size * a / (np.sqrt(c) * scale + eps)


@kernel
def rmsprop(p, g, v, lr, pull, alpha, rest, eps):
    """v is the running mean of d²; p -= lr * d / (sqrt(v) + eps)."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        b = alpha * v[i] + rest * d * d
        v[i] = b
        p[i] -= lr * d / (np.sqrt(b) + eps)


@kernel
def adagrad(p, g, total, lr, pull, eps):
    """total is the sum of d²; p -= lr * d / (sqrt(total) + eps)."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        b = total[i] + d * d
        total[i] = b
        p[i] -= lr * d / (np.sqrt(b) + eps)


@kernel
def adadelta(p, g, v, delta, lr, pull, rho, rest, eps):
    """p -= lr * step, where step = sqrt(delta + eps) / sqrt(v + eps) * d; v and delta are running means of d² and step²."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        b = rho * v[i] + rest * d * d
        step = np.sqrt(delta[i] + eps) / np.sqrt(b + eps) * d
        v[i] = b
        delta[i] = rho * delta[i] + rest * step * step
        p[i] -= lr * step


@kernel
def adamax(p, g, m, u, lr, pull, rest1, beta2, eps):
    """u = max(beta2 * u, |d| + eps); p -= lr * m / u, m being the running mean of d."""
    for i in range(p.size):
        d = g[i] + pull * p[i]
        a = m[i] + rest1 * (d - m[i])
        b = max(beta2 * u[i], abs(d) + eps)
        m[i] = a
        u[i] = b
        p[i] -= lr * a / b


@kernel
def two_shares(p, g, m, v, shrink, pull, rest1, beta2, rest2, scale, eps, of_gradient, of_mean, plain):
    """NAdam's and RAdam's step: (of_gradient * d + of_mean * m) / (sqrt(v) * scale + eps) + plain * m."""
    for i in range(p.size):
        x = p[i] * shrink
        d = g[i] + pull * x
        a = m[i] + rest1 * (d - m[i])
        b = beta2 * v[i] + rest2 * d * d
        m[i] = a
        v[i] = b
        p[i] = x - (of_gradient * d + of_mean * a) / (np.sqrt(b) * scale + eps) - plain * a
