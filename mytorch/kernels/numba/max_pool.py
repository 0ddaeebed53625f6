"""Max pooling in one to three dimensions and its gradient: float32, one channel of one image at a time.

Forward processes a row of the output and loops over the positions of a window. It saves the number of the position of
each maximum, like the reference. Backward adds each gradient at the saved position.
"""

import math

import numpy as np

from ..threads import split
from .common import exact, exact_inlined, is_float32


@exact_inlined
def _row(line, best, chosen, t, stride):
    """Compares one position of all windows of a row: the elements of `line` with the given stride. NaN wins."""
    for j in range(best.size):
        v = line[j * stride]
        better = (v > best[j]) | (v != v)
        best[j] = v if better else best[j]
        chosen[j] = t if better else chosen[j]


@exact
def _fwd(x, out, chosen, sizes, outs, kernel, stride, padding, dilation):
    depth, height, width = sizes
    for n in range(len(x)):
        plane = x[n]
        for row in range(outs[0] * outs[1]):
            z, y = row // outs[1] * stride[0] - padding[0], row % outs[1] * stride[1] - padding[1]
            best, best_at = out[n, row], chosen[n, row]
            first = True
            # Position t of the windows is one row of the input: a vectorized loop over the windows of the output row.
            for t in range(kernel[0] * kernel[1] * kernel[2]):
                a, b = z + t // (kernel[1] * kernel[2]) * dilation[0], y + t // kernel[2] % kernel[1] * dilation[1]
                if a < 0 or a >= depth or b < 0 or b >= height:
                    continue
                if first:
                    _begin(best, best_at, t - t % kernel[2], width, stride[2], padding[2], dilation[2])
                    first = False
                # Windows begin … end - 1 have this position inside the input.
                shift = t % kernel[2] * dilation[2] - padding[2]
                begin = 0 if shift >= 0 else (-shift + stride[2] - 1) // stride[2]
                end = 0 if shift >= width else min(outs[2], (width - 1 - shift) // stride[2] + 1)
                if begin < end:
                    line = plane[(a * height + b) * width + shift + begin * stride[2] :]
                    row_best, row_chosen = best[begin:end], best_at[begin:end]
                    if stride[2] == 1:  # a constant stride lets the compiler use vector loads
                        _row(line, row_best, row_chosen, np.int16(t), 1)
                    elif stride[2] == 2:
                        _row(line, row_best, row_chosen, np.int16(t), 2)
                    else:
                        _row(line, row_best, row_chosen, np.int16(t), stride[2])


@exact_inlined
def _begin(best, best_at, t, width, stride, padding, dilation):
    """Initializes the windows of a row with -inf at their first position inside the input."""
    for j in range(len(best)):
        outside = padding - j * stride
        best[j] = np.float32(-np.inf)
        best_at[j] = t + ((outside + dilation - 1) // dilation if outside > 0 else 0)


@exact
def _bwd(g, chosen, gx, steps, sizes, outs, stride, padding):
    for n in range(len(g)):
        to = gx[n]
        to[:] = np.float32(0.0)
        for row in range(outs[0] * outs[1]):
            z, y = row // outs[1] * stride[0] - padding[0], row % outs[1] * stride[1] - padding[1]
            begin = (z * sizes[1] + y) * sizes[2] - padding[2]
            for j in range(outs[2]):
                to[begin + j * stride[2] + steps[chosen[n, row, j]]] += g[n, row, j]


def accepts(input, *, out_size, kernel, stride, padding, dilation):
    """Accepts a float32 input that is not empty, with windows that each contain an input position."""
    sides = zip(input.shape[2:], kernel, padding, dilation, strict=True)
    known = is_float32(input) and input.size > 0 and math.prod(kernel) < 1 << 15  # positions are int16
    return known and all(p <= d * (k - 1) and d <= n for n, k, p, d in sides)


def _in_three(input, out_size, kernel, stride, padding, dilation):
    """Returns (sizes, outs, kernel, stride, padding, dilation), extended to three axes."""
    one = (1,) * (3 - len(kernel))
    rows = (one + tuple(s) for s in (input, out_size, kernel, stride))
    return (*rows, (0,) * len(one) + tuple(padding), one + tuple(dilation))


def forward(xp, input, *, out_size, kernel, stride, padding, dilation):
    """Returns the maxima, and the number of the position of each in its window."""
    sizes, outs, *geometry = _in_three(input.shape[2:], out_size, kernel, stride, padding, dilation)
    planes, rows = math.prod(input.shape[:2]), outs[0] * outs[1]
    out, chosen = np.empty((planes, rows, outs[2]), np.float32), np.empty((planes, rows, outs[2]), np.int16)
    x = np.ascontiguousarray(input).reshape(planes, -1)
    split(_fwd, x.size, (x, out, chosen), sizes, outs, *geometry)
    shape = (*input.shape[:2], *out_size)
    return out.reshape(shape), chosen.reshape(shape)


def vjp(g, chosen, shape, kernel, stride, padding, dilation):
    """Returns the gradient of the input."""
    sizes, outs, kernel, stride, padding, dilation = _in_three(
        shape[2:], g.shape[2:], kernel, stride, padding, dilation
    )
    # Offset in the input of each position of a window, relative to the window's corner.
    z, y, x = np.indices(kernel).reshape(3, -1) * np.array(dilation)[:, None]
    planes, rows = math.prod(shape[:2]), (-1, outs[0] * outs[1], outs[2])
    gx = np.empty((planes, math.prod(sizes)), np.float32)
    arrays = np.ascontiguousarray(g).reshape(rows), np.ascontiguousarray(chosen).reshape(rows), gx
    split(_bwd, gx.size, arrays, (z * sizes[1] + y) * sizes[2] + x, sizes, outs, stride, padding)
    return (gx.reshape(shape),)
