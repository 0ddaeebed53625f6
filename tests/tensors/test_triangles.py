"""Triangles of matrices large enough to be copied in strips, beside PyTorch."""

import numpy as np
import pytest
import torch

import mytorch


@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("shape", [(257, 263), (130, 1025), (3, 2, 65, 259), (70000, 1), (1, 70000), (0, 300)])
@pytest.mark.parametrize("diagonal", [-70, -1, 0, 63, 300])
def test_triangle_is_pytorchs(name, shape, diagonal):
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, *shape), np.float32)
    x[..., -1:, -1:] = np.nan  # what is left out is zero, whatever it was
    for view in (lambda t: t, lambda t: t.transpose(-1, -2), lambda t: t[..., ::2, 1:]):
        mine, truth = mytorch.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        results = [getattr(view(t), name)(diagonal) for t in (mine, truth)]
        for result, upstream in zip(results, (mytorch.tensor(g), torch.tensor(g)), strict=True):
            result.backward(view(upstream))
        np.testing.assert_array_equal(results[0].detach().numpy(), results[1].detach().numpy())
        np.testing.assert_array_equal(mine.grad.numpy(), truth.grad.numpy())


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("keepdim", [False, True])
def test_largest_along_an_axis_keeps_its_shape(dim, keepdim):
    x = np.random.default_rng(1).standard_normal((5, 3, 7), np.float32)
    mine, truth = mytorch.tensor(x).max(dim, keepdim), torch.tensor(x).max(dim, keepdim)
    for a, b in zip(mine, truth, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
