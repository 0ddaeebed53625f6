"""Recurrent layers over a whole sequence as one op, with an explicit backward pass through time.

One matrix multiplication outside the op (`F.linear`) computes the input's share of all gates for all steps. The loop
contains only one small multiplication with the hidden state per step. In step t, the first `sizes[t]` rows are active:
the rows of a packed batch are sorted by length.
"""

from .dispatch.op import op


def _sigmoid(xp, x):
    return 1.0 / (xp.exp(-x) + 1.0)


def _steps(count, reverse):
    return range(count - 1, -1, -1) if reverse else range(count)


def _put(xp, parts, order):
    """Stacks the results of the steps in the order of time."""
    return xp.stack([parts[t] for t in order], 0)


def _mix(xp, new, old, n):
    """Returns the new values for the first n rows and the old values for the other rows."""
    return new if n == old.shape[0] else xp.concatenate([new, old[n:]], 0)


def _rest(xp, x, rows):
    """Returns x, padded with zeros to `rows` rows."""
    if x.shape[0] == rows:
        return x
    return xp.concatenate([x, xp.zeros((rows - x.shape[0], *x.shape[1:]), x.dtype)], 0)


@op(
    name="lstm", outputs=("out", "h_n", "c_n"), differentiable=3, residuals=("gates", "cells", "hiddens"),
    autocast="half",
)  # fmt: skip
def lstm_layer(xp, x, h, c, weight, projection=None, *, sizes, reverse=False):
    """Computes one direction of one LSTM layer.

    Inputs: x (T, N, 4H) is the share of input and biases in the gates. The states are h (N, P) and c (N, H). The weight
    has shape (4H, P), the projection (P, H) or None. Gates are in the order i, f, g, o.
    """
    width = c.shape[1]
    outs, gates, cells, hiddens = {}, {}, {}, {}
    for t in _steps(x.shape[0], reverse):
        n = sizes[t]
        # Backward needs the states before each step.
        cells[t], hiddens[t] = c, h
        # All four gates in one product: z (n, 4H).
        z = x[t][:n] + xp.matmul(h[:n], xp.transpose(weight))
        i, f = _sigmoid(xp, z[:, :width]), _sigmoid(xp, z[:, width : 2 * width])
        g, o = xp.tanh(z[:, 2 * width : 3 * width]), _sigmoid(xp, z[:, 3 * width :])
        # c' = f c + i g and h' = o tanh(c').
        new_c = f * c[:n] + i * g
        new_h = o * xp.tanh(new_c)
        if projection is not None:
            new_h = xp.matmul(new_h, xp.transpose(projection))
        gates[t] = _rest(xp, xp.concatenate([i, f, g, o], 1), x.shape[1])
        outs[t] = _rest(xp, new_h, x.shape[1])
        # Rows whose sequence has ended keep their state.
        h, c = _mix(xp, new_h, h, n), _mix(xp, new_c, c, n)
    order = range(x.shape[0])
    return _put(xp, outs, order), h, c, _put(xp, gates, order), _put(xp, cells, order), _put(xp, hiddens, order)


def _lstm_vjp(g, x, weight, projection, shapes, gates, cells, hiddens, sizes, reverse, needs, xp):
    g_out, g_h, g_c = (a.copy() for a in g)
    width = cells.shape[2]
    gx = xp.zeros(shapes[0], gates.dtype)
    g_weight = xp.zeros(shapes[3], gates.dtype)
    g_projection = None if projection is None else xp.zeros(projection.shape, gates.dtype)
    # Backward through time: g_h and g_c are the gradients of the states after step t.
    for t in reversed(list(_steps(shapes[0][0], reverse))):
        n = sizes[t]
        i, f, c, o = (gates[t][:n, k * width : (k + 1) * width] for k in range(4))
        c_before = cells[t][:n]
        tanh_c = xp.tanh(f * c_before + i * c)
        gh = g_h[:n] + g_out[t][:n]
        if projection is not None:
            g_projection += xp.matmul(xp.transpose(gh), o * tanh_c)
            gh = xp.matmul(gh, projection)
        # Gradient of c': from the next step, and from h' = o tanh(c').
        gc = g_c[:n] + gh * o * (1 - tanh_c * tanh_c)
        # Gradients of the gates i, f, g, o before their activations: s' = s (1 - s), tanh' = 1 - tanh².
        gz = xp.concatenate(
            [gc * c * i * (1 - i), gc * c_before * f * (1 - f), gc * i * (1 - c * c), gh * tanh_c * o * (1 - o)], 1
        )
        gx[t][:n] = gz
        g_weight += xp.matmul(xp.transpose(gz), hiddens[t][:n])
        # Gradients of the states before this step.
        g_h[:n] = xp.matmul(gz, weight)
        g_c[:n] = gc * f
    return gx, g_h, g_c, g_weight, g_projection


lstm_layer.vjp(_lstm_vjp)
lstm_layer.register_kernel(cpu="mytorch.kernels.rnn:LSTM")


@op(
    name="gru", outputs=("out", "h_n"), differentiable=2, residuals=("gates", "hiddens"), autocast="half",
)  # fmt: skip
def gru_layer(xp, x, h, weight, bias, *, sizes, reverse=False):
    """Computes one direction of one GRU layer: x (T, N, 3H) from the input, h (N, H), weight (3H, H), bias (3H,).

    Gates are in the order r, z, n. The hidden share of n, including its bias, is multiplied by r.
    """
    width = h.shape[1]
    outs, gates, hiddens = {}, {}, {}
    for t in _steps(x.shape[0], reverse):
        n = sizes[t]
        hiddens[t] = h
        inner = xp.matmul(h[:n], xp.transpose(weight)) + bias
        rz = _sigmoid(xp, x[t][:n, : 2 * width] + inner[:, : 2 * width])
        r, z = rz[:, :width], rz[:, width:]
        new = xp.tanh(x[t][:n, 2 * width :] + r * inner[:, 2 * width :])
        # h' = (1 - z) n + z h.
        out = new + z * (h[:n] - new)
        gates[t] = _rest(xp, xp.concatenate([r, z, new, inner[:, 2 * width :]], 1), x.shape[1])
        outs[t] = _rest(xp, out, x.shape[1])
        h = _mix(xp, out, h, n)
    order = range(x.shape[0])
    return _put(xp, outs, order), h, _put(xp, gates, order), _put(xp, hiddens, order)


def _gru_vjp(g, weight, shapes, gates, hiddens, sizes, reverse, xp):
    g_out, g_h = (a.copy() for a in g)
    width = hiddens.shape[2]
    gx = xp.zeros(shapes[0], gates.dtype)
    g_weight, g_bias = xp.zeros(shapes[2], gates.dtype), xp.zeros(shapes[3], gates.dtype)
    for t in reversed(list(_steps(shapes[0][0], reverse))):
        n = sizes[t]
        r, z, new, inner = (gates[t][:n, k * width : (k + 1) * width] for k in range(4))
        h = hiddens[t][:n]
        gh = g_h[:n] + g_out[t][:n]
        # Gradients of n, z and r before their activations.
        g_new = gh * (1 - z) * (1 - new * new)
        gz = gh * (h - new) * z * (1 - z)
        gr = g_new * inner * r * (1 - r)
        gx[t][:n] = xp.concatenate([gr, gz, g_new], 1)
        # The hidden share of n is multiplied by r, so its gradient is too.
        g_inner = xp.concatenate([gr, gz, g_new * r], 1)
        g_weight += xp.matmul(xp.transpose(g_inner), h)
        g_bias += xp.sum(g_inner, axis=0)
        # h reaches h' directly through z, and through all gates.
        g_h[:n] = gh * z + xp.matmul(g_inner, weight)
    return gx, g_h, g_weight, g_bias


gru_layer.vjp(_gru_vjp)
gru_layer.register_kernel(cpu="mytorch.kernels.rnn:GRU")


@op(
    name="rnn", outputs=("out", "h_n"), differentiable=2, residuals=("outs", "hiddens"), autocast="half",
)  # fmt: skip
def rnn_layer(xp, x, h, weight, *, sizes, reverse=False, relu=False):
    """Computes one direction of one simple recurrent layer: h = tanh(x[t] + h weightᵀ), or with relu."""
    outs, hiddens = {}, {}
    for t in _steps(x.shape[0], reverse):
        n = sizes[t]
        hiddens[t] = h
        z = x[t][:n] + xp.matmul(h[:n], xp.transpose(weight))
        new = xp.maximum(z, 0.0) if relu else xp.tanh(z)
        outs[t] = _rest(xp, new, x.shape[1])
        h = _mix(xp, new, h, n)
    order = range(x.shape[0])
    out = _put(xp, outs, order)
    return out, h, out, _put(xp, hiddens, order)


def _rnn_vjp(g, weight, shapes, outs, hiddens, sizes, reverse, relu, xp):
    g_out, g_h = (a.copy() for a in g)
    gx, g_weight = xp.zeros(shapes[0], outs.dtype), xp.zeros(shapes[2], outs.dtype)
    for t in reversed(list(_steps(shapes[0][0], reverse))):
        n = sizes[t]
        out = outs[t][:n]
        gh = g_h[:n] + g_out[t][:n]
        # The derivatives of relu and tanh follow from their outputs.
        gz = gh * (out > 0) if relu else gh * (1 - out * out)
        gx[t][:n] = gz
        g_weight += xp.matmul(xp.transpose(gz), hiddens[t][:n])
        g_h[:n] = xp.matmul(gz, weight)
    return gx, g_h, g_weight


rnn_layer.vjp(_rnn_vjp)
rnn_layer.register_kernel(cpu="mytorch.kernels.rnn:RNN")
