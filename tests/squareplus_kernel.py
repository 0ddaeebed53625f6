"""A kernel for an op of a user's program, shown in docs/change_an_op.md."""

import numpy as np

from mytorch.kernels.numba.common import each, is_float32, kernel


@kernel
def _forward(x, out):
    for i in range(x.size):
        out[i] = (x[i] + np.sqrt(x[i] * x[i] + np.float32(4))) * np.float32(0.5)


@kernel
def _backward(g, x, out):
    for i in range(x.size):
        slope = np.float32(1) + x[i] / np.sqrt(x[i] * x[i] + np.float32(4))
        out[i] = g[i] * np.float32(0.5) * slope


def accepts(input):
    return is_float32(input)


def forward(xp, input):
    return each(_forward, input)


def vjp(g, input):
    return (each(_backward, g, input),)
