"""Weighted sums of a few elements at given indices, used by grid_sample (`ops/resample.py`), and both gradients; float32 and float64.

    out[n, c, p] = sum over k of  weight[n, k, p] * x[n, c, index[n, k, p]]

Each channel is copied into a buffer with one more element, 0. An index outside the image refers to this element, so the loops
have no branch and the compiler vectorizes the reads.
"""

import numpy as np

from ..kernel import Kernel
from ..threads import split
from .common import kernel


@kernel
def _fwd(x, out, image, weight, index):
    """Computes rows of out (images * channels, points). `image` is the image of each row."""
    size = x.shape[1]
    channel = np.zeros(size + 1, x.dtype)
    for r in range(len(x)):
        channel[:size] = x[r]
        total, weights, indices = out[r], weight[image[r]], index[image[r]]
        total[:] = 0
        # The corners k in the outer loop: the inner one runs along contiguous weights and indices.
        for k in range(len(weights)):
            w, index_k = weights[k], indices[k]
            for p in range(len(total)):
                total[p] += w[p] * channel[index_k[p]]


@kernel
def _bwd(g, x, weight, index, gx, gw):
    """Computes gx, and gw as a sum over the channels of an image; the threads divide the images."""
    size = x.shape[2]
    channel, sums = np.zeros(size + 1, x.dtype), np.zeros(size + 1, x.dtype)
    for n in range(len(x)):
        gw[n] = 0
        for c in range(x.shape[1]):
            channel[:size] = x[n, c]
            sums[:] = 0
            up = g[n, c]
            for k in range(weight.shape[1]):
                w, at, to = weight[n, k], index[n, k], gw[n, k]
                # Gradient of the weight: a gather, which the compiler vectorizes.
                for p in range(len(up)):
                    to[p] += up[p] * channel[at[p]]
                # Gradient of x: a scatter-add in a separate loop, since it cannot be vectorized.
                for p in range(len(up)):
                    sums[at[p]] += up[p] * w[p]
            gx[n, c] = sums[:size]


def _accepts(x, weight, *, index):
    return x.dtype == weight.dtype and x.dtype.char in "fd" and x.size > 0 < weight.size


def _forward(xp, x, weight, *, index):
    out = np.empty((*x.shape[:2], weight.shape[2]), x.dtype)
    rows = [np.ascontiguousarray(a).reshape(-1, a.shape[2]) for a in (x, out)]
    image = np.arange(len(rows[0])) // x.shape[1]
    weight, index = np.ascontiguousarray(weight), np.ascontiguousarray(index).view(np.uint64)
    split(_fwd, out.size * weight.shape[1], (*rows, image), weight, index)
    return out


def _vjp(g, x, weight, index):
    gx, gw = np.empty(x.shape, x.dtype), np.empty(weight.shape, x.dtype)
    g, x, weight, index = map(np.ascontiguousarray, (g, x, weight, index))
    split(_bwd, g.size * weight.shape[1], (g, x, weight, index.view(np.uint64), gx, gw))
    return gx, gw


sampled = Kernel(accepts=_accepts, forward=_forward, vjp=_vjp)
