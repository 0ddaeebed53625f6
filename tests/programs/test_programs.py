"""The same program under both libraries: equal seeds give equal weights, and the losses agree over 20 steps."""

import numpy as np
import pytest

import mytorch
from tests.programs.families import FAMILIES
from tests.programs.more import MORE


@pytest.mark.parametrize("program", FAMILIES + MORE, ids=lambda f: f.__name__)
def test_losses_agree(program, torch):
    if "einops" in program.__name__:
        pytest.importorskip("einops")
    losses = []
    for lib in (mytorch, torch):
        lib.manual_seed(0)
        losses.append(program(lib))
    np.testing.assert_allclose(*losses, rtol=1e-4, atol=1e-5)
