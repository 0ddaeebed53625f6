"""Sobol sequences, as in `torch.quasirandom`: points that fill the unit cube more evenly than random points."""

from functools import cache
from pathlib import Path

import numpy as np

from ..arrays import dtypes
from ..ops import random
from ..ops.creation import tensor
from ..ops.dispatch.unwrap import raw_of
from ..ops.movement import cat

__all__ = ["SobolEngine"]

MAXBIT = 30
MAXDIM = 21201
MAXDEGREE = 18


@cache
def _joe_kuo():
    """Returns the table of Joe and Kuo: for each dimension a primitive polynomial and the initial numbers m_1, m_2, …

    A polynomial of degree s has s odd numbers, the k-th below 2^k. The file stores the differences of the polynomials. It
    stores the bits of the numbers without the last bit: the second numbers of all dimensions, then the third, and so on.
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
    """Returns the direction numbers m_k 2^(MAXBIT - k), of shape (dimension, MAXBIT), by the recurrence of Bratley and Fox."""
    polynomials, degrees, numbers = (part[:dimension] for part in _joe_kuo())
    m = np.ones((dimension, MAXBIT), np.int64)
    for degree in range(1, degrees.max() + 1):
        rows = np.flatnonzero(degrees == degree)
        rows = rows[rows > 0]  # the first dimension is the van der Corput sequence: all ones
        polynomial, part = polynomials[rows], numbers[rows]
        part = np.pad(part[:, :degree], ((0, 0), (0, MAXBIT - degree)))
        for j in range(degree, MAXBIT):
            part[:, j] = part[:, j - degree]
            for k in range(1, degree + 1):
                part[:, j] ^= (polynomial >> (degree - k) & 1) * (part[:, j - k] << k)
        m[rows] = part
    return m << np.arange(MAXBIT - 1, -1, -1)


class SobolEngine:
    """Draws points of a Sobol sequence. For the same seed, PyTorch draws the same points.

    Args:
        dimension: number of coordinates of a point, 1 to 21201.
        scramble: scramble the bits and shift the points randomly, which keeps the points evenly distributed
            (default: False).
        seed: seed of the scrambling (default: random numbers of the global generator).

    Raises:
        ValueError: the dimension is out of range.

    Example:
        >>> mytorch.quasirandom.SobolEngine(dimension=2).draw(3).tolist()
        [[0.0, 0.0], [0.5, 0.5], [0.75, 0.25]]

    Source: Joe and Kuo, Constructing Sobol sequences with better two-dimensional projections, 2008 (direction numbers
    D(6)). Owen, Scrambling Sobol' and Niederreiter-Xing points, 1998.
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
        """Draws the next points of the sequence.

        Args:
            n: number of points (default: 1).
            out: tensor for the result.
            dtype: dtype of the result (default: the default dtype).

        Returns:
            A tensor of shape (n, dimension).
        """
        dtype = dtypes.default_dtype() if dtype is None else dtype
        start, count = max(self.num_generated - 1, 0), n - (self.num_generated == 0)
        steps = np.arange(start, start + count)
        which = np.frexp(~steps & (steps + 1))[1] - 1  # position of the rightmost zero bit of each step
        rows = raw_of(self.sobolstate).T[which]
        points = np.bitwise_xor.accumulate(np.concatenate([raw_of(self.quasi)[None], rows]))
        self.quasi = tensor(points[-1])
        result = tensor(points[1:] * 2.0**-MAXBIT, dtype=dtype)
        if self.num_generated == 0:
            result = cat([self._first_point.to(dtype), result])
        self.num_generated += n
        return result if out is None else out.resize_as_(result).copy_(result)

    def draw_base2(self, m, out=None, dtype=None):
        """Draws the next 2^m points of the sequence.

        Args:
            m: exponent of the number of points.
            out: tensor for the result.
            dtype: dtype of the result (default: the default dtype).

        Raises:
            ValueError: the total number of points would not be a power of 2.
        """
        n, total = 2**m, self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been "
                f"previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self):
        """Returns to the first point of the sequence."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n):
        """Skips points, in the time of drawing one point.

        Args:
            n: number of points to skip.
        """
        start = max(self.num_generated - 1, 0)
        end = self.num_generated + n - 1
        changed = (start ^ start >> 1) ^ (end ^ end >> 1)  # bits that differ between the Gray codes of both steps
        columns = [k for k in range(MAXBIT) if changed >> k & 1]
        raw_of(self.quasi)[...] ^= np.bitwise_xor.reduce(raw_of(self.sobolstate)[:, columns], axis=1)
        self.num_generated += n
        return self

    def __repr__(self):
        words = [f"dimension={self.dimension}"] + ["scramble=True"] * self.scramble
        return f"SobolEngine({', '.join(words + [f'seed={self.seed}'] * (self.seed is not None))})"
