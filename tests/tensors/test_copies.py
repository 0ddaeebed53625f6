"""Arrays large enough to be copied in strips, compared with PyTorch: triangles and column-major arrays."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop


@loop
@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("shape", [(257, 263), (130, 1025), (3, 2, 65, 259), (70000, 1), (1, 70000), (0, 300)])
@pytest.mark.parametrize("diagonal", [-70, -1, 0, 63, 300])
def test_triangle_is_pytorchs(name, shape, diagonal, torch):
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, *shape), np.float32)
    x[..., -1:, -1:] = np.nan  # omitted elements become zero, even NaN
    for view in (lambda t: t, lambda t: t.transpose(-1, -2), lambda t: t[..., ::2, 1:]):
        mine, truth = mytorch.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        results = [getattr(view(t), name)(diagonal) for t in (mine, truth)]
        for result, upstream in zip(results, (mytorch.tensor(g), torch.tensor(g)), strict=True):
            result.backward(view(upstream))
        np.testing.assert_array_equal(results[0].detach().numpy(), results[1].detach().numpy())
        np.testing.assert_array_equal(mine.grad.numpy(), truth.grad.numpy())


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("keepdim", [False, True])
def test_largest_along_an_axis_keeps_its_shape(dim, keepdim, torch):
    x = np.random.default_rng(1).standard_normal((5, 3, 7), np.float32)
    mine, truth = mytorch.tensor(x).max(dim, keepdim), torch.tensor(x).max(dim, keepdim)
    for a, b in zip(mine, truth, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "complex64"])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((2, 3, 96, 95), (0, 2, 3, 1)),  # color planes
        ((2, 17, 64, 64), (0, 2, 3, 1)),  # planes whose elements share the cache's sets
        ((3, 31, 33, 35), (0, 2, 3, 1)),
        ((259, 512), (1, 0)),
        ((301, 257), (1, 0)),
        ((5, 130, 129), (0, 2, 1)),
    ],
)
def test_copies_of_column_major_arrays(shape, dims, dtype, torch, rng):
    values = rng.standard_normal(shape, np.float32) * 50
    theirs = torch.tensor(values).to(getattr(torch, dtype)).permute(dims)
    mine = mytorch.tensor(values).to(getattr(mytorch, dtype)).permute(dims)
    for lib, x in (torch, theirs), (mytorch, mine):
        assert x.contiguous().is_contiguous(), lib.__name__
    np.testing.assert_array_equal(mine.contiguous().numpy(), theirs.contiguous().numpy())
    np.testing.assert_array_equal(mine.flip(0).reshape(-1).numpy(), theirs.flip(0).reshape(-1).numpy())
