"""Unusual sizes: pooling windows larger than the input, channel dropout, and the accuracy of erfinv."""

import itertools
import time

import numpy as np
import pytest

import mytorch
import mytorch.nn.functional as F


def same(torch, name, shape, *arguments, **options):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    results = []
    for lib, functions in ((mytorch, F), (torch, torch.nn.functional)):
        leaf = lib.tensor(x).requires_grad_()
        out = getattr(functions, name)(leaf, *arguments, **options)
        out, indices = out if isinstance(out, tuple) else (out, None)
        (out * out).sum().backward()
        results.append((out.detach().numpy(), leaf.grad.numpy(), None if indices is None else indices.tolist()))
    (mine, my_grad, my_indices), (theirs, their_grad, their_indices) = results
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(my_grad, their_grad, rtol=1e-4, atol=1e-5)
    assert my_indices == their_indices


@pytest.mark.parametrize("kernel", [3, 6, 20, (20, 3), (2, 9)])
def test_windows_larger_than_the_input(torch, kernel):
    for stride, padding, ceil_mode in itertools.product((None, 1, 30), (0, 1), (False, True)):
        side = min((kernel, kernel) if isinstance(kernel, int) else kernel)
        if not ceil_mode and (max((kernel, kernel) if isinstance(kernel, int) else kernel) > 5 or side > 5):
            padding = side // 2
        options = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode}
        try:
            torch.nn.functional.max_pool2d(torch.zeros(2, 3, 5, 7), kernel, **options)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                F.max_pool2d(mytorch.zeros(2, 3, 5, 7), kernel, **options)
            continue
        same(torch, "max_pool2d", (2, 3, 5, 7), kernel, **options, return_indices=True)
        for count_include_pad in (True, False):
            same(torch, "avg_pool2d", (2, 3, 5, 7), kernel, **options, count_include_pad=count_include_pad)


def test_the_cost_of_a_window_depends_on_the_input(torch):
    start = time.process_time()
    for name in ("avg_pool2d", "max_pool2d"):
        same(torch, name, (2, 3, 16, 16), 2000, ceil_mode=True)
        same(torch, name, (1, 1, 16, 16), 3000, padding=1500)
    assert time.process_time() - start < 5


@pytest.mark.slow
def test_indices_of_windows_with_more_than_32767_elements(torch):
    same(torch, "max_pool2d", (1, 1, 200, 200), 200, return_indices=True)
    same(torch, "max_pool2d", (1, 1, 200, 400), 200, return_indices=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_erfinv_is_as_accurate_as_pytorchs(torch, dtype):
    random = np.random.default_rng(0)
    close = 1 - 10.0 ** -random.uniform(0, 16, 5000)
    y = np.concatenate([random.uniform(-1, 1, 20_000), close, -close, 10.0 ** -random.uniform(0, 300, 1000)])
    y = np.concatenate([y, [0.0, -0.0, 0.85, -0.85, 1, -1, 2, -2, np.nan, np.inf, -np.inf]]).astype(dtype)
    mine, theirs = mytorch.erfinv(mytorch.tensor(y)).numpy(), torch.erfinv(torch.tensor(y)).numpy()
    assert mine.dtype == dtype
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
    np.testing.assert_array_equal(np.isinf(mine), np.isinf(theirs))
    assert np.array_equal(np.signbit(mine[~np.isnan(mine)]), np.signbit(theirs[~np.isnan(mine)]))
    normal = np.isfinite(theirs) & (np.abs(theirs) > np.finfo(dtype).tiny)
    np.testing.assert_allclose(mine[normal], theirs[normal], rtol=1e-15 if dtype == "float64" else 2.4e-7)
    assert mytorch.erfinv(mytorch.tensor(0.5)).shape == ()
    assert mytorch.erfinv(mytorch.zeros(0)).shape == (0,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d"])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (2, 3, 4), (2, 3, 4, 2), (2, 3, 4, 2, 3), (2, 3, 4, 2, 3, 2)])
def test_channel_dropout_of_unusual_shapes(torch, name, shape):
    results = []
    for lib, functions in ((torch, torch.nn.functional), (mytorch, F)):
        lib.manual_seed(0)
        try:
            results.append(getattr(functions, name)(lib.ones(shape), 0.5, True).tolist())
        except RuntimeError:
            results.append("error")
    assert results[0] == results[1]
