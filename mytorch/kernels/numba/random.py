"""The loops of `backend/rejection.py`, compiled; results and order of draws are the same."""

from numba import njit

from ...backend import rejection

gamma, poisson, binomial = (
    njit(cache=True, nogil=True, error_model="numpy")(draw)
    for draw in (rejection.gamma, rejection.poisson, rejection.binomial)
)
