"""One step of an LSTM or a GRU between its matrix products, one pass each for forward and backward.

x (n, gates * H) is the input's share of the gates. The other arrays are rows of the arrays that `kernels/rnn.py` allocates.
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


@inlined
def _add_sigmoid(z, x):
    for j in range(len(z)):
        z[j] = _sigmoid(x[j] + z[j])


@inlined
def _add_tanh(z, x):
    for j in range(len(z)):
        z[j] = _tanh(x[j] + z[j])


@kernel
def lstm(x, gates, c, c_next, h_next):
    """Computes one step. `gates` (rows, 4 width) contains h weightᵀ before, and the gates i, f, g, o after the step."""
    rows, width = c.shape
    f, g, o = width, 2 * width, 3 * width  # first column of each gate; i begins at 0
    for r in range(rows):  # short loops over few arrays from 0: otherwise the compiler does not vectorize them
        z, before, after, h = gates[r], c[r], c_next[r], h_next[r]
        _add_sigmoid(z[:g], x[r, :g])
        _add_tanh(z[g:o], x[r, g:o])
        _add_sigmoid(z[o:], x[r, o:])
        for j in range(width):
            # c' = f c + i g, then h' = o tanh(c').
            after[j] = z[f + j] * before[j] + z[j] * z[g + j]
        for j in range(width):
            h[j] = z[o + j] * _tanh(after[j])


@kernel
def lstm_backward(g_out, g_h, g_c, gates, c, gz):
    """Computes gz, the gradient of the gates before their activations, and replaces g_c by the gradient of the cells before the step.

    g_out is added to g_h.
    """
    rows, width = c.shape
    f, g, o = width, 2 * width, 3 * width  # first column of each gate; i begins at 0
    for r in range(rows):  # short loops, as in forward
        for j in range(width):
            g_h[r, j] += g_out[r, j]
        for j in range(width):
            # gz temporarily contains tanh(c').
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
    """Computes one step. `gates` (n, 4H) contains the hidden share of r, z, n before; r, z, n and the hidden share of n after."""
    rows, width = h.shape
    for i in range(rows):
        z, before, after = gates[i], h[i], h_next[i]
        new, inner, x_new, b_new = z[2 * width : 3 * width], z[3 * width :], x[i, 2 * width :], bias[2 * width :]
        for j in range(2 * width):
            z[j] += bias[j]
        _add_sigmoid(z[: 2 * width], x[i, : 2 * width])
        for j in range(width):
            inner[j] = new[j] + b_new[j]
        for j in range(width):
            new[j] = z[j] * inner[j]
        _add_tanh(new, x_new)
        for j in range(width):
            # h' = (1 - z) n + z h.
            after[j] = new[j] + z[width + j] * (before[j] - new[j])


@kernel
def gru_backward(g_out, g_h, gates, h, gx, g_inner):
    """Computes gx and g_inner, the gradients of the input's and the hidden share of the gates.

    g_h is replaced by the gradient that reaches h directly through z.
    """
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
