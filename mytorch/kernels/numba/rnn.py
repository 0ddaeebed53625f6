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
    rows, width = c.shape
    for r in range(rows):
        for j in range(width):
            i = _sigmoid(x[r, j] + gates[r, j])
            f = _sigmoid(x[r, width + j] + gates[r, width + j])
            g = _tanh(x[r, 2 * width + j] + gates[r, 2 * width + j])
            o = _sigmoid(x[r, 3 * width + j] + gates[r, 3 * width + j])
            new = f * c[r, j] + i * g
            gates[r, j] = i
            gates[r, width + j] = f
            gates[r, 2 * width + j] = g
            gates[r, 3 * width + j] = o
            c_next[r, j] = new
            h_next[r, j] = o * _tanh(new)


@kernel
def lstm_backward(g_out, g_h, g_c, gates, c, gz):
    """The gradients of the gates' sums, gz, and of the cells before the step, in place of g_c."""
    rows, width = c.shape
    for r in range(rows):
        for j in range(width):
            i = gates[r, j]
            f = gates[r, width + j]
            g = gates[r, 2 * width + j]
            o = gates[r, 3 * width + j]
            before = c[r, j]
            t = _tanh(f * before + i * g)
            gh = g_h[r, j] + g_out[r, j]
            gc = g_c[r, j] + gh * o * (_ONE - t * t)
            gz[r, j] = gc * g * i * (_ONE - i)
            gz[r, width + j] = gc * before * f * (_ONE - f)
            gz[r, 2 * width + j] = gc * i * (_ONE - g * g)
            gz[r, 3 * width + j] = gh * t * o * (_ONE - o)
            g_c[r, j] = gc * f


@kernel
def gru(x, bias, gates, h, h_next):
    """`gates` (n, 4H) holds the hidden state's part of r, z, n before, and r, z, n and the hidden part of n afterwards."""
    rows, width = h.shape
    for i in range(rows):
        for j in range(width):
            r = _sigmoid(x[i, j] + gates[i, j] + bias[j])
            z = _sigmoid(x[i, width + j] + gates[i, width + j] + bias[width + j])
            inner = gates[i, 2 * width + j] + bias[2 * width + j]
            new = _tanh(x[i, 2 * width + j] + r * inner)
            gates[i, j] = r
            gates[i, width + j] = z
            gates[i, 2 * width + j] = new
            gates[i, 3 * width + j] = inner
            h_next[i, j] = new + z * (h[i, j] - new)


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
