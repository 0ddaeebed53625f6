"""Sobol points, in both libraries."""

import numpy as np
import pytest

import mytorch


def engines(torch, dimension, **options):
    return [L.quasirandom.SobolEngine(dimension, **options) for L in (mytorch, torch)]


@pytest.mark.parametrize("scramble", [False, True])
@pytest.mark.parametrize("dimension", [1, 3, 60])
def test_points_are_pytorchs(torch, dimension, scramble):
    """Draws, continues, skips and resets, in three dtypes."""
    mine, theirs = engines(torch, dimension, scramble=scramble, seed=5)
    assert repr(mine) == repr(theirs)
    for n, kind in ((1, "float32"), (7, "float64"), (20, "float32"), (1, "float16")):
        a, b = mine.draw(n, dtype=getattr(mytorch, kind)), theirs.draw(n, dtype=torch.float64)
        assert a.shape == (n, dimension)
        assert str(a.dtype).endswith(kind)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3 if kind == "float16" else 1e-7)
        mine.fast_forward(n), theirs.fast_forward(n)
    for e in (mine, theirs):
        e.reset().fast_forward(5).fast_forward(1)
    np.testing.assert_array_equal(mine.draw(3).numpy(), theirs.draw(3).numpy())
    np.testing.assert_array_equal(mine.quasi.numpy(), theirs.quasi.numpy())
    mine.reset(), theirs.reset()
    out = mytorch.empty(0)
    assert mine.draw_base2(3, out=out) is out
    np.testing.assert_array_equal(out.numpy(), theirs.draw_base2(3).numpy())
    with pytest.raises(ValueError, match="power of 2"):
        mine.draw_base2(2)


def test_direction_numbers_are_pytorchs(torch):
    """All dimensions: the table that the package carries."""
    mine, theirs = engines(torch, mytorch.quasirandom.SobolEngine.MAXDIM)
    np.testing.assert_array_equal(mine.sobolstate.numpy(), theirs.sobolstate.numpy())
    for dimension in (0, mine.MAXDIM + 1):
        with pytest.raises(ValueError, match="range of dimensionality"):
            mytorch.quasirandom.SobolEngine(dimension)
