"""Sobol's sequences: points that fill the unit cube more evenly than random ones, with `torch.quasirandom`'s names."""

from functools import cache
from pathlib import Path

import numpy as np

from .base import dtypes
from .dispatch.unwrap import raw_of
from .ops import random
from .ops.creation import tensor
from .ops.movement import cat

__all__ = ["SobolEngine"]

MAXBIT = 30
MAXDIM = 21201
MAXDEGREE = 18


@cache
def _joe_kuo():
    """Joe and Kuo's table: a primitive polynomial for each dimension, as its bits, and the first (odd) numbers m_1, m_2, …

    A polynomial of degree s comes with s numbers, the k-th below 2^k. In the file the polynomials are differences, and of the
    numbers there are the bits without the last, for all dimensions the second numbers, then the third, ….
    """
    with np.load(Path(__file__).with_suffix(".npz")) as file:
        polynomials = 1 + 2 * np.cumsum(file["steps"], dtype=np.int64)
        bits = np.unpackbits(file["bits"])
    degrees = np.maximum(np.frexp(polynomials)[1] - 1, 1)
    numbers = np.zeros((MAXDIM, MAXDEGREE), np.int64)
    numbers[:, 0] = 1
    for k in range(1, MAXDEGREE):
        rows = degrees > k
        used = rows.sum() * k
        numbers[rows, k] = 1 + (bits[:used].reshape(-1, k) @ (2 << np.arange(k)))
        bits = bits[used:]
    return polynomials, degrees, numbers


def _directions(dimension):
    """The direction numbers of the first dimensions, (dimension, MAXBIT): m_k 2^(MAXBIT - k), by Bratley and Fox's recurrence."""
    polynomials, degrees, numbers = (part[:dimension] for part in _joe_kuo())
    m = np.ones((dimension, MAXBIT), np.int64)
    for degree in range(1, degrees.max() + 1):
        rows = np.flatnonzero(degrees == degree)
        rows = rows[rows > 0]  # the first dimension is van der Corput's: all ones
        polynomial, part = polynomials[rows], numbers[rows]
        part = np.pad(part[:, :degree], ((0, 0), (0, MAXBIT - degree)))
        for j in range(degree, MAXBIT):
            part[:, j] = part[:, j - degree]
            for k in range(1, degree + 1):
                part[:, j] ^= (polynomial >> (degree - k) & 1) * (part[:, j - k] << k)
        m[rows] = part
    return m << np.arange(MAXBIT - 1, -1, -1)


class SobolEngine:
    """Draws a Sobol sequence, if wanted scrambled: PyTorch's points, also from equal seeds.

    Sources: Joe and Kuo, 2008, Constructing Sobol sequences with better two-dimensional projections (direction numbers D(6));
    Owen, 1998, Scrambling Sobol' and Niederreiter-Xing points.

    Args:
        dimension: how many coordinates a point has, 1 to 21201.
        scramble: scramble the bits and shift the points; the sequence is then random, and as even.
        seed: of the scrambling; by default the global generator draws it.

    Raises:
        ValueError: the dimension is out of range.
    """

    MAXBIT = MAXBIT
    MAXDIM = MAXDIM

    def __init__(self, dimension, scramble=False, seed=None):
        if not 1 <= dimension <= MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {MAXDIM}], got {dimension}")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        state, shift = _directions(dimension), np.zeros(dimension, np.int64)
        if scramble:
            state, shift = self._scrambled(state)
        self.sobolstate, self.shift = tensor(state), tensor(shift)
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def _scrambled(self, state):
        generator = None if self.seed is None else random.Generator().manual_seed(self.seed)

        def bits(*shape):
            return raw_of(random.randint(2, (self.dimension, *shape), generator=generator, device="cpu"))

        shift = bits(MAXBIT) @ (1 << np.arange(MAXBIT))
        places = np.arange(MAXBIT - 1, -1, -1)
        matrices = np.tril(bits(MAXBIT, MAXBIT), -1) + np.eye(MAXBIT, dtype=np.int64)
        digits = (state[:, :, None] >> places & 1).astype(np.float32)  # exact: sums of at most 30 ones, by BLAS
        digits = digits @ matrices.astype(np.float32).swapaxes(1, 2)
        return (digits.astype(np.int64) & 1) @ (1 << places), shift

    def draw(self, n=1, out=None, dtype=None):
        """The next `n` points, (n, dimension), in `dtype` (the default dtype) or into `out`."""
        dtype = dtypes.default_dtype() if dtype is None else dtype
        start, count = max(self.num_generated - 1, 0), n - (self.num_generated == 0)
        steps = np.arange(start, start + count)
        which = np.frexp(~steps & (steps + 1))[1] - 1  # the rightmost zero of each step's number
        rows = raw_of(self.sobolstate).T[which]
        points = np.bitwise_xor.accumulate(np.concatenate([raw_of(self.quasi)[None], rows]))
        self.quasi = tensor(points[-1])
        result = tensor(points[1:] * 2.0**-MAXBIT, dtype=dtype)
        if self.num_generated == 0:
            result = cat([self._first_point.to(dtype), result])
        self.num_generated += n
        return result if out is None else out.resize_as_(result).copy_(result)

    def draw_base2(self, m, out=None, dtype=None):
        """The next 2^m points, where so many keep the number of all that were drawn a power of two; else a ValueError."""
        n, total = 2**m, self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been "
                f"previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self):
        """Back to the first point."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n):
        """Leave `n` points out, at the cost of one."""
        start = max(self.num_generated - 1, 0)
        end = self.num_generated + n - 1
        changed = (start ^ start >> 1) ^ (end ^ end >> 1)  # the bits in which the steps' Gray codes differ
        columns = [k for k in range(MAXBIT) if changed >> k & 1]
        raw_of(self.quasi)[...] ^= np.bitwise_xor.reduce(raw_of(self.sobolstate)[:, columns], axis=1)
        self.num_generated += n
        return self

    def __repr__(self):
        words = [f"dimension={self.dimension}"] + ["scramble=True"] * self.scramble
        return f"SobolEngine({', '.join(words + [f'seed={self.seed}'] * (self.seed is not None))})"
