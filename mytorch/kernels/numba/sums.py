"""Sums along rows of float32, also of squares, and products: blocks of a few hundred in float32, their sums in float64."""

import math

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import kernel

_BLOCK = 512


@kernel
def _sums(x, out):
    rows, width = x.shape
    for r in range(rows):
        row, total = x[r], 0.0
        for start in range(0, width, _BLOCK):
            block = row[start : min(start + _BLOCK, width)]
            part = np.float32(0.0)
            for i in range(len(block)):
                part += block[i]
            total += part
        out[r] = total


@kernel
def _sums_of_squares(x, out):
    rows, width = x.shape
    for r in range(rows):
        row, total = x[r], 0.0
        for start in range(0, width, _BLOCK):
            block = row[start : min(start + _BLOCK, width)]
            part = np.float32(0.0)
            for i in range(len(block)):
                part += block[i] * block[i]
            total += part
        out[r] = total


@kernel
def _products(x, out):
    rows, width = x.shape
    for r in range(rows):
        row, total = x[r], 1.0
        for i in range(width):
            total *= row[i]
        out[r] = total


def _rows_of(x, axis):
    """How many of x's last axes are summed; None if others are."""
    if axis is None:
        return x.ndim
    axes = sorted({a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)})
    return len(axes) if axes == list(range(x.ndim - len(axes), x.ndim)) else None


def _accepts(x, axis=None, dtype=None, keepdims=False):
    return (
        x.dtype == np.float32
        and dtype is None
        and x.flags.c_contiguous
        and bool(_rows_of(x, axis))
        and _width(x, axis) >= 32
    )


def _width(x, axis):
    return math.prod(x.shape[x.ndim - _rows_of(x, axis) :])


def _run(sums, whole=False):
    def run(xp, x, axis=None, dtype=None, keepdims=False):
        n, width = _rows_of(x, axis), _width(x, axis)
        rows = x.reshape(-1, width)
        kept = x.shape[: x.ndim - n] + ((1,) * n if keepdims else ())
        parts = len(rows)
        if not whole and parts < 16 and width >= 1 << 16:  # several threads can share a row
            parts = len(rows) * 64 if width % 64 == 0 else parts
        out = np.empty(parts, np.float64)
        split(sums, x.size, (rows.reshape(parts, -1), out))
        total = (out if whole else out.reshape(len(rows), -1).sum(1)).astype(np.float32).reshape(kept)
        return total if kept else total[()]

    return run


sum = Kernel(accepts=_accepts, forward=_run(_sums))
sum_of_squares = Kernel(accepts=_accepts, forward=_run(_sums_of_squares))
prod = Kernel(accepts=_accepts, forward=_run(_products, whole=True))
