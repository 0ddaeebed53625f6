"""A step of an LSTM or a GRU between its matrix products by NumPy, for other numbers than float32 and without Numba.

The functions are those of `kernels/numba/rnn.py`; sigmoid(x) is tanh(x / 2) / 2 + 1/2, so that all gates are one call of tanh.
"""

import numpy as np


def _sigmoid(x):
    """In place."""
    x *= 0.5
    np.tanh(x, x)
    x *= 0.5
    x += 0.5


def _parts(x, width):
    return [x[:, i : i + width] for i in range(0, x.shape[1], width)]


def lstm(x, gates, c, c_next, h_next):
    """c_next, h_next and, in place of their sums, the gates."""
    gates += x
    width = c.shape[1]
    i, f, g, o = _parts(gates, width)
    _sigmoid(gates[:, : 2 * width])
    np.tanh(g, g)
    _sigmoid(o)
    np.multiply(f, c, c_next)
    c_next += i * g
    np.tanh(c_next, h_next)
    h_next *= o


def lstm_backward(g_out, g_h, g_c, gates, c, gz):
    """The gradients of the gates' sums, gz, and of the cells before the step, in place of g_c."""
    width = c.shape[1]
    i, f, g, o = _parts(gates, width)
    gi, gf, gg, go = _parts(gz, width)
    t = np.tanh(f * c + i * g)
    gh = g_h + g_out
    np.multiply(gh, t, go)
    gh *= o
    t *= t
    g_c += gh * (1 - t)
    np.multiply(g_c, g, gi)
    np.multiply(g_c, c, gf)
    np.multiply(g_c, i, gg)
    slope = 1 - gates
    slope *= gates
    gg *= 1 - g * g
    gi *= slope[:, :width]
    gf *= slope[:, width : 2 * width]
    go *= slope[:, 3 * width :]
    g_c *= f


def gru(x, bias, gates, h, h_next):
    """h_next and, in place of the hidden state's part of r, z, n: r, z, n and the hidden part of n."""
    width = h.shape[1]
    sums = gates[:, : 3 * width]
    sums += bias
    r, _, new, inner = _parts(gates, width)
    rz = gates[:, : 2 * width]
    rz += x[:, : 2 * width]
    _sigmoid(rz)
    inner[...] = new
    new *= r
    new += x[:, 2 * width :]
    np.tanh(new, new)
    np.subtract(h, new, h_next)
    h_next *= gates[:, width : 2 * width]
    h_next += new


def gru_backward(g_out, g_h, gates, h, gx, g_inner):
    """The gradients of the input's and the hidden state's part of the gates; what reaches h by the way of z in place of g_h."""
    width = h.shape[1]
    r, z, new, inner = _parts(gates, width)
    gr, gz, gn = _parts(gx, width)
    g_h += g_out
    np.multiply(g_h, 1 - z, gn)
    gn *= 1 - new * new
    np.subtract(h, new, gz)
    gz *= g_h
    np.multiply(gn, inner, gr)
    rz = gates[:, : 2 * width]
    gx[:, : 2 * width] *= rz - rz * rz
    g_inner[...] = gx
    g_inner[:, 2 * width :] *= r
    g_h *= z
