"""The loops of `numerics/rejection.py`, and of a permutation, compiled; results and order of draws are the same."""

import numpy as np

from ...numerics import rejection
from .common import exact

gamma, poisson, binomial = (exact(draw) for draw in (rejection.gamma, rejection.poisson, rejection.binomial))


@exact
def permute(order, words):
    """Swap each element of int64 `order` with one of those from it on, chosen by a word of 32 bits."""
    n = len(order)
    for i in range(n - 1):
        j = i + words[i] % np.uint32(n - i)
        order[i], order[j] = order[j], order[i]
