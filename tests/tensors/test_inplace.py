"""In-place methods: results and errors, compared with PyTorch."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop


@loop
@pytest.mark.filterwarnings("ignore:This overload")
@pytest.mark.parametrize("name", ["add", "sub", "add_", "sub_", "addcmul", "addcdiv", "addcmul_", "addcdiv_"])
def test_factor_before_the_tensors(torch, rng, name):
    x, y, z = rng.standard_normal((3, 2, 3))
    more = (y, z) if name.startswith("addc") else (y,)
    theirs = getattr(torch.tensor(x), name)(-0.5, *map(torch.tensor, more))
    ours = getattr(mytorch.tensor(x), name)(-0.5, *map(mytorch.tensor, more))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal_is_differentiated(torch, rng, wrap):
    x, g = rng.standard_normal((2, 5, 3))
    grads = []
    for library in (torch, mytorch):
        leaf = library.tensor(x, requires_grad=True)
        y = (leaf * leaf).fill_diagonal_(2.0, wrap)
        (y * library.tensor(g)).sum().backward()
        grads.append(leaf.grad.numpy())
    np.testing.assert_allclose(grads[1], grads[0])


def test_leaf_is_not_resized(torch):
    for library in (torch, mytorch):
        with pytest.raises(RuntimeError, match="requires? grad"):
            library.ones(2, requires_grad=True).resize_(3)


def test_bools_are_accumulated_into_windows(torch):
    found = []
    for L in (torch, mytorch):
        x = L.tensor([True, False, False, False])
        x.unfold(0, 2, 1).index_put_((L.tensor([0, -1]),), L.tensor([[False, True], [False, True]]), accumulate=True)
        found.append(x.tolist())
    assert found[0] == found[1]
