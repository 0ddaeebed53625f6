"""One step of an LSTM or a GRU between its matrix products with NumPy, for dtypes other than float32 and without Numba.

The functions are the same as in `kernels/numba/rnn.py`. All results are written into existing arrays.
"""

import numpy as np


def _sigmoid(x):
    """Computes sigmoid(x) = tanh(x / 2) / 2 + 1 / 2 in place. It cannot overflow, unlike exp(-x)."""
    x *= 0.5
    np.tanh(x, x)
    x *= 0.5
    x += 0.5


def _parts(x, width):
    return [x[:, i : i + width] for i in range(0, x.shape[1], width)]


def lstm(x, gates, c, c_next, h_next):
    """Computes c_next and h_next, and replaces the sums in `gates` by the gates."""
    gates += x
    width = c.shape[1]
    # Views of the four gates.
    i, f, g, o = _parts(gates, width)
    _sigmoid(gates[:, : 2 * width])
    np.tanh(g, g)
    _sigmoid(o)
    # c' = f c + i g, then h' = o tanh(c').
    np.multiply(f, c, c_next)
    c_next += i * g
    np.tanh(c_next, h_next)
    h_next *= o


def lstm_backward(g_out, g_h, g_c, gates, c, gz):
    """Computes gz, the gradient of the gates before their activations, and replaces g_c by the gradient of the cells before."""
    width = c.shape[1]
    i, f, g, o = _parts(gates, width)
    gi, gf, gg, go = _parts(gz, width)
    t = np.tanh(f * c + i * g)
    gh = g_h + g_out
    np.multiply(gh, t, go)
    gh *= o
    t *= t
    # t is tanh(c')²: the gradient through h' = o tanh(c').
    g_c += gh * (1 - t)
    np.multiply(g_c, g, gi)
    np.multiply(g_c, c, gf)
    np.multiply(g_c, i, gg)
    # Multiply by the derivatives of the activations: s (1 - s) for i, f, o and 1 - tanh² for g.
    slope = 1 - gates
    slope *= gates
    gg *= 1 - g * g
    gi *= slope[:, :width]
    gf *= slope[:, width : 2 * width]
    go *= slope[:, 3 * width :]
    g_c *= f


def gru(x, bias, gates, h, h_next):
    """Computes h_next, and replaces the hidden share of r, z, n by r, z, n and the hidden share of n."""
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
    # h' = n + z (h - n).
    np.subtract(h, new, h_next)
    h_next *= gates[:, width : 2 * width]
    h_next += new


def gru_backward(g_out, g_h, gates, h, gx, g_inner):
    """Computes gx and g_inner, and replaces g_h by the gradient that reaches h directly through z."""
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
    # The two shares have the same gradient, except that the hidden share of n is multiplied by r.
    g_inner[...] = gx
    g_inner[:, 2 * width :] *= r
    g_h *= z
