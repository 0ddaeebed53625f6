"""Compiled loops of the Mersenne Twister, of `arrays/rejection.py` and of a permutation, with the same results and order of draws.

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


_WORDS, _LATER = 624, 397  # size of the state, and distance of the words that are combined


@exact_inlined
def _twisted(word, following, later):
    mixed = (word & np.uint32(0x80000000)) | (following & np.uint32(0x7FFFFFFF))
    odd = np.uint32(0x9908B0DF) if mixed & np.uint32(1) else np.uint32(0)
    return later ^ (mixed >> np.uint32(1)) ^ odd


@exact
def words(state, out):
    """Fills `out` (uint32) with the next words of a state, the 624 words and the position of the next one, and changes the state."""
    position, done = np.int64(state[_WORDS]), 0
    while done < out.size:
        if position == _WORDS:
            for i in range(_WORDS - _LATER):
                state[i] = _twisted(state[i], state[i + 1], state[i + _LATER])
            for i in range(_WORDS - _LATER, _WORDS - 1):
                state[i] = _twisted(state[i], state[i + 1], state[i + _LATER - _WORDS])
            state[_WORDS - 1] = _twisted(state[_WORDS - 1], state[0], state[_LATER - 1])
            position = 0
        count = min(_WORDS - position, out.size - done)
        for i in range(count):
            word = state[position + i]
            word ^= word >> np.uint32(11)
            word ^= (word << np.uint32(7)) & np.uint32(0x9D2C5680)
            word ^= (word << np.uint32(15)) & np.uint32(0xEFC60000)
            out[done + i] = word ^ (word >> np.uint32(18))
        position += count
        done += count
    state[_WORDS] = position
