"""A step of an LSTM or a GRU between its matrix products, forward and backward, in one pass each.

x (n, gates * H) is the input's part of the gates; the other arrays are rows of those that `kernels/rnn.py` allocates.
"""

import numpy as np

from .common import exp, inlined, kernel

_ONE, _TWO = np.float32(1.0), np.float32(2.0)


@inlined
def _sigmoid(x):
    return _ONE / (_ONE + exp(-x))


@inlined
def _tanh(x):
    return _ONE - _TWO / (exp(x + x) + _ONE)


@kernel
def lstm(x, gates, c, c_next, h_next):
    """One step: `gates` holds h weightᵀ at first, and the gates i, f, g, o (rows, 4 width) after it."""
    rows, width = c.shape
    for r in range(rows):  # loops of few arrays each, or the compiler does not vectorise them
        for j in range(2 * width):
            gates[r, j] = _sigmoid(x[r, j] + gates[r, j])
        for j in range(2 * width, 3 * width):
            gates[r, j] = _tanh(x[r, j] + gates[r, j])
        for j in range(3 * width, 4 * width):
            gates[r, j] = _sigmoid(x[r, j] + gates[r, j])
        for j in range(width):
            c_next[r, j] = gates[r, width + j] * c[r, j] + gates[r, j] * gates[r, 2 * width + j]
        for j in range(width):
            h_next[r, j] = gates[r, 3 * width + j] * _tanh(c_next[r, j])


@kernel
def lstm_backward(g_out, g_h, g_c, gates, c, gz):
    """The gradients of the gates' sums, gz, and of the cells before the step, in place of g_c; g_out is added to g_h."""
    rows, width = c.shape
    f, g, o = width, 2 * width, 3 * width  # where the gates begin
    for r in range(rows):  # loops of few arrays each, as in forward
        for j in range(width):
            g_h[r, j] += g_out[r, j]
        for j in range(width):
            gz[r, j] = _tanh(gates[r, f + j] * c[r, j] + gates[r, j] * gates[r, g + j])
        for j in range(width):
            g_c[r, j] += g_h[r, j] * gates[r, o + j] * (_ONE - gz[r, j] * gz[r, j])
        for j in range(width):
            gz[r, o + j] = g_h[r, j] * gz[r, j] * gates[r, o + j] * (_ONE - gates[r, o + j])
        for j in range(width):
            gz[r, g + j] = g_c[r, j] * gates[r, j] * (_ONE - gates[r, g + j] * gates[r, g + j])
        for j in range(width):
            gz[r, f + j] = g_c[r, j] * c[r, j] * gates[r, f + j] * (_ONE - gates[r, f + j])
        for j in range(width):
            gz[r, j] = g_c[r, j] * gates[r, g + j] * gates[r, j] * (_ONE - gates[r, j])
        for j in range(width):
            g_c[r, j] *= gates[r, f + j]


@kernel
def gru(x, bias, gates, h, h_next):
    """`gates` (n, 4H) holds the hidden state's part of r, z, n before, and r, z, n and the hidden part of n afterwards."""
    rows, width = h.shape
    for i in range(rows):
        for j in range(2 * width):
            gates[i, j] = _sigmoid(x[i, j] + gates[i, j] + bias[j])
        for j in range(width):
            gates[i, 3 * width + j] = gates[i, 2 * width + j] + bias[2 * width + j]
        for j in range(width):
            gates[i, 2 * width + j] = _tanh(x[i, 2 * width + j] + gates[i, j] * gates[i, 3 * width + j])
        for j in range(width):
            new = gates[i, 2 * width + j]
            h_next[i, j] = new + gates[i, width + j] * (h[i, j] - new)


@kernel
def gru_backward(g_out, g_h, gates, h, gx, g_inner):
    """The gradients of the input's and the hidden state's part of the gates; what reaches h by the way of z in place of g_h."""
    rows, width = h.shape
    for i in range(rows):
        for j in range(width):
            r = gates[i, j]
            z = gates[i, width + j]
            new = gates[i, 2 * width + j]
            gh = g_h[i, j] + g_out[i, j]
            gn = gh * (_ONE - z) * (_ONE - new * new)
            gz = gh * (h[i, j] - new) * z * (_ONE - z)
            gr = gn * gates[i, 3 * width + j] * r * (_ONE - r)
            gx[i, j] = gr
            gx[i, width + j] = gz
            gx[i, 2 * width + j] = gn
            g_inner[i, j] = gr
            g_inner[i, width + j] = gz
            g_inner[i, 2 * width + j] = gn * r
            g_h[i, j] = gh * z
