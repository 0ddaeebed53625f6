"""LSTM, GRU and simple recurrent layers on the CPU: a whole sequence in place, in memory that is allocated once.

The reference (`ops/rnn.py`) allocates arrays in every step. Here, the states of all steps are in one array, in the order of the
steps: step k reads states[k] and writes states[k + 1]. The products write the gates in place. Backward computes the gradient of
the weight in one product at the end, instead of one in each step. The work between the products is one pass by Numba if it is
installed and the dtype is float32 (`kernels/numba/rnn.py`), otherwise a few NumPy calls.

The sequences do not depend on each other, so each thread computes all steps of a part of them.

Each layer is an object with the functions of a kernel; T steps, N sequences, H hidden units.
"""

import functools
import importlib

import numpy as np

from . import blas, registry, threads

LEAST = 2**19  # multiplications of a step for each thread; with fewer, Python takes most of the time


@functools.cache
def _loops():
    """Returns the compiled loops, or None."""
    return registry.LazyKernel("mytorch.kernels.numba.rnn", "cpu").load()


def _cells(dtype):
    """Returns the module that computes a step between its products."""
    return (_loops() if dtype == np.float32 else None) or importlib.import_module("mytorch.kernels.rnn_numpy")


def _accepts(*arrays, **options):
    return all(type(a) is np.ndarray and a.dtype == arrays[0].dtype and a.dtype.char in "fd" and a.size for a in arrays)


def _order(sizes, reverse, first, end):
    """Returns (k, t, active rows, other rows) for each step: its number, its time, and slices of the rows from `first` to `end`."""
    count, found = len(sizes), []
    for k, t in enumerate(range(count - 1, -1, -1) if reverse else range(count)):
        active = min(max(sizes[t], first), end)
        found.append((k, t, slice(first, active), slice(active, end)))
    return found


def _run(function, weight, rows):
    """Calls function(first row, end row) for the parts of the rows, on several threads if the products are large enough."""
    parts = min(threads.get_num_threads(), rows, rows * weight.size // LEAST)
    if parts > 1:
        blas.run(function, blas.bounds(rows, parts))
    else:
        with blas.one_thread():  # too small for several threads, and so is each product
            function(0, rows)


def _states(first, count):
    """Returns an array for the states before each step and after the last step."""
    states = np.empty((count + 1, *first.shape), first.dtype)
    states[0] = first
    return states


def _in_time(states, sizes, reverse):
    """Returns the outputs of the steps in the order of time, with zeros for rows that were not active."""
    out = np.array(states[:0:-1] if reverse else states[1:])
    for t, n in enumerate(sizes):
        out[t, n:] = 0
    return out


def _weight_gradient(gz, hiddens, reverse):
    """Returns the sum over t of gz[t]ᵀ @ (state before step t), as one product over all steps."""
    before = hiddens[-2::-1] if reverse else hiddens[:-1]
    return blas.product(gz.reshape(-1, gz.shape[2]).T, before.reshape(-1, before.shape[2]))


class LSTM:
    """One direction of an LSTM layer over a whole sequence."""

    residuals = ("gates", "cells", "hiddens")

    @staticmethod
    def accepts(x, h, c, weight, projection=None, **options):
        return projection is None and _accepts(x, h, c, weight)

    @staticmethod
    def forward(xp, x, h, c, weight, projection=None, *, sizes, reverse=False):
        cells = _cells(x.dtype)
        x, weight_t = np.ascontiguousarray(x), np.ascontiguousarray(weight.T)
        gates, h, c = np.empty(x.shape, x.dtype), _states(h, len(x)), _states(c, len(x))
        multiply = blas.repeated(weight_t)

        def run(first, end):
            for k, t, n, others in _order(sizes, reverse, first, end):
                multiply(h[k, n], gates[k, n])
                cells.lstm(x[t, n], gates[k, n], c[k, n], c[k + 1, n], h[k + 1, n])
                # Rows whose sequence has ended keep their state.
                h[k + 1, others], c[k + 1, others] = h[k, others], c[k, others]

        _run(run, weight, h.shape[1])
        return _in_time(h, sizes, reverse), h[-1].copy(), c[-1].copy(), gates, c, h

    @staticmethod
    def vjp(g, weight, gates, cells, hiddens, sizes, reverse, needs):
        step = _cells(gates.dtype).lstm_backward
        g_out, g_h, g_c = np.ascontiguousarray(g[0]), g[1].copy(), g[2].copy()
        gx, multiply = np.zeros(gates.shape, gates.dtype), blas.repeated(weight)

        def run(first, end):
            for k, t, n, _ in reversed(_order(sizes, reverse, first, end)):
                step(g_out[t, n], g_h[n], g_c[n], gates[k, n], cells[k, n], gx[t, n])
                multiply(gx[t, n], g_h[n])

        _run(run, weight, len(g_h))
        return gx, g_h, g_c, _weight_gradient(gx, hiddens, reverse) if needs[3] else None, None


class GRU:
    """One direction of a GRU layer over a whole sequence."""

    residuals = ("gates", "hiddens")

    @staticmethod
    def accepts(x, h, weight, bias, **options):
        return _accepts(x, h, weight, bias)

    @staticmethod
    def forward(xp, x, h, weight, bias, *, sizes, reverse=False):
        cells, width = _cells(x.dtype), h.shape[1]
        x, weight_t, bias = np.ascontiguousarray(x), np.ascontiguousarray(weight.T), np.ascontiguousarray(bias)
        gates, h = np.empty((*x.shape[:2], 4 * width), x.dtype), _states(h, len(x))
        multiply = blas.repeated(weight_t)

        def run(first, end):
            for k, t, n, others in _order(sizes, reverse, first, end):
                multiply(h[k, n], gates[k, n, : 3 * width])
                cells.gru(x[t, n], bias, gates[k, n], h[k, n], h[k + 1, n])
                h[k + 1, others] = h[k, others]

        _run(run, weight, h.shape[1])
        return _in_time(h, sizes, reverse), h[-1].copy(), gates, h

    @staticmethod
    def vjp(g, weight, gates, hiddens, sizes, reverse):
        step = _cells(gates.dtype).gru_backward
        g_out, g_h = np.ascontiguousarray(g[0]), g[1].copy()
        gx, g_inner = np.zeros((2, *gates.shape[:2], len(weight)), gates.dtype)
        product, multiply = np.empty_like(g_h), blas.repeated(weight)

        def run(first, end):
            for k, t, n, _ in reversed(_order(sizes, reverse, first, end)):
                step(g_out[t, n], g_h[n], gates[k, n], hiddens[k, n], gx[t, n], g_inner[t, n])
                g_h[n] += multiply(g_inner[t, n], product[n])

        _run(run, weight, len(g_h))
        return gx, g_h, _weight_gradient(g_inner, hiddens, reverse), g_inner.sum((0, 1))


class RNN:
    """One direction of a plain recurrent layer over a whole sequence."""

    residuals = ("hiddens",)

    @staticmethod
    def accepts(x, h, weight, **options):
        return _accepts(x, h, weight)

    @staticmethod
    def forward(xp, x, h, weight, *, sizes, reverse=False, relu=False):
        h, weight_t = _states(h, len(x)), np.ascontiguousarray(weight.T)
        multiply = blas.repeated(weight_t)

        def run(first, end):
            for k, t, n, others in _order(sizes, reverse, first, end):
                z = multiply(h[k, n], h[k + 1, n])
                z += x[t, n]
                np.maximum(z, 0, out=z) if relu else np.tanh(z, out=z)
                h[k + 1, others] = h[k, others]

        _run(run, weight, h.shape[1])
        return _in_time(h, sizes, reverse), h[-1].copy(), h

    @staticmethod
    def vjp(g, weight, hiddens, sizes, reverse, relu):
        g_out, g_h = g[0], g[1].copy()
        gx = np.zeros((*g_out.shape[:2], len(weight)), weight.dtype)
        slope = hiddens > 0 if relu else 1 - hiddens * hiddens
        multiply = blas.repeated(weight)

        def run(first, end):
            for k, t, n, _ in reversed(_order(sizes, reverse, first, end)):
                gh = np.add(g_h[n], g_out[t, n], g_h[n])
                np.multiply(gh, slope[k + 1, n], gx[t, n])
                multiply(gx[t, n], gh)

        _run(run, weight, len(g_h))
        return gx, g_h, _weight_gradient(gx, hiddens, reverse)
