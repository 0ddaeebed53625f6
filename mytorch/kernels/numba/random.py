"""Compiled loops of the Mersenne Twister, of `arrays/rejection.py`, of a permutation and of `multinomial`, with the same results and
order of draws.

NumPy draws the words of the Mersenne Twister one at a time. Here, 624 words are computed at once in loops that the compiler vectorizes
(Matsumoto and Nishimura, 1998).
"""

import numpy as np

from ...arrays import rejection
from .common import exact, exact_inlined

gamma, poisson, binomial = (exact(draw) for draw in (rejection.gamma, rejection.poisson, rejection.binomial))


@exact
def permute(order, words):
    """Shuffles int64 `order` (Fisher-Yates): swaps each element with a random element at or after it."""
    n = len(order)
    for i in range(n - 1):
        j = i + words[i] % np.uint32(n - i)
        order[i], order[j] = order[j], order[i]


@exact
def choose(weights, points, out):
    """Writes, for each row of `points`, the indices at which the cumulative probabilities of a row of `weights` reach them."""
    rows, n = weights.shape
    edges, half = np.empty((4, n), weights.dtype), 1
    while 2 * half < n:
        half *= 2
    for start in range(0, rows, 4):
        # Each sum waits for the sum before, so four rows are added at a time. With fewer rows left, the last one is repeated.
        r1, r2, r3 = min(start + 1, rows - 1), min(start + 2, rows - 1), min(start + 3, rows - 1)
        a = b = c = d = weights.dtype.type(0)
        for i in range(n):
            a += weights[start, i]
            b += weights[r1, i]
            c += weights[r2, i]
            d += weights[r3, i]
            edges[0, i], edges[1, i], edges[2, i], edges[3, i] = a, b, c, d
        for r in range(min(4, rows - start)):
            total = edges[r, n - 1]
            for i in range(n):
                edges[r, i] /= total
            for p in range(points.shape[1]):
                point, index, step = points[start + r, p], 0, half
                while step:
                    # Branch-free selection. The last edge is never below a point: it is 1, and a point is less.
                    later = min(index + step, n - 1)
                    index = later if edges[r, later - 1] < point else index
                    step //= 2
                out[start + r, p] = index


_WORDS, _LATER = 624, 397  # size of the state, and distance of the words that are combined


@exact_inlined
def _twisted(word, following, later):
    # Numba computes with 64 bits. Results are narrowed, so that loops are vectorized for 32 bits.
    mixed = np.uint32((word & np.uint32(0x80000000)) | (following & np.uint32(0x7FFFFFFF)))
    odd = np.uint32(np.uint32(0) - np.uint32(following & np.uint32(1))) & np.uint32(0x9908B0DF)
    return np.uint32(later ^ (mixed >> np.uint32(1)) ^ odd)


@exact
def words(state, out):
    """Fills `out` (uint32) with the next words of a state, the 624 words and the position of the next one, and changes the state."""
    position, done = np.int64(state[_WORDS]), 0
    while done < out.size:
        if position == _WORDS:
            for k in range(_WORDS - _LATER):
                i = np.uint64(k)  # an unsigned index is not negative, so the compiler vectorizes the loop
                state[i] = _twisted(state[i], state[i + np.uint64(1)], state[i + np.uint64(_LATER)])
            for k in range(_LATER - 1):
                i, later = np.uint64(k + _WORDS - _LATER), np.uint64(k)
                state[i] = _twisted(state[i], state[i + np.uint64(1)], state[later])
            state[_WORDS - 1] = _twisted(state[_WORDS - 1], state[0], state[_LATER - 1])
            position = 0
        count = min(_WORDS - position, out.size - done)
        drawn, to = state[position : position + count], out[done : done + count]
        for i in range(count):
            word = drawn[i]
            word = np.uint32(word ^ (word >> np.uint32(11)))
            word = np.uint32(word ^ ((word << np.uint32(7)) & np.uint32(0x9D2C5680)))
            word = np.uint32(word ^ ((word << np.uint32(15)) & np.uint32(0xEFC60000)))
            to[i] = word ^ (word >> np.uint32(18))
        position += count
        done += count
    state[_WORDS] = position
