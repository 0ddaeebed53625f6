"""Compiled loops of `arrays/rejection.py` and of a permutation, with the same results and order of draws."""

import numpy as np

from ...arrays import rejection
from .common import exact

gamma, poisson, binomial = (exact(draw) for draw in (rejection.gamma, rejection.poisson, rejection.binomial))


@exact
def permute(order, words):
    """Shuffles int64 `order` (Fisher-Yates): swaps each element with a random element at or after it."""
    n = len(order)
    for i in range(n - 1):
        j = i + words[i] % np.uint32(n - i)
        order[i], order[j] = order[j], order[i]
