"""In-place methods: results, and what they refuse, against PyTorch."""

import numpy as np
import pytest

import mytorch


@pytest.mark.filterwarnings("ignore:This overload")
@pytest.mark.parametrize("name", ["add", "sub", "add_", "sub_", "addcmul", "addcdiv", "addcmul_", "addcdiv_"])
def test_factor_before_the_tensors(torch, rng, name):
    x, y, z = rng.standard_normal((3, 2, 3))
    more = (y, z) if name.startswith("addc") else (y,)
    theirs = getattr(torch.tensor(x), name)(-0.5, *map(torch.tensor, more))
    ours = getattr(mytorch.tensor(x), name)(-0.5, *map(mytorch.tensor, more))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())
