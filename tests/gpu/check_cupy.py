"""Differences between CuPy and NumPy that the library hides. `test_checks.py` runs this file over the fake CuPy."""

import numpy as np
import pytest

import mytorch
from mytorch import cuda

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason="needs a GPU, or the fake")


def on_gpu(values, dtype=mytorch.float32):
    return mytorch.tensor(values, dtype=dtype, device="cuda")


def test_functions_without_bfloat16_in_cupy():
    x = on_gpu([[3.0, -1.0, 2.0], [0.5, 8.0, -4.0]], mytorch.bfloat16)
    assert x.sort().values.tolist() == [[-1.0, 2.0, 3.0], [-4.0, 0.5, 8.0]]
    assert x.argsort(descending=True).tolist() == [[0, 2, 1], [1, 0, 2]]
    assert x.topk(1).values.dtype is mytorch.bfloat16
    assert x.median(-1).values.tolist() == [2.0, 0.5]
    assert mytorch.isin(x, x[0]).tolist() == [[True] * 3, [False] * 3]
    assert mytorch.searchsorted(x[0].sort().values, x[0]).tolist() == [2, 0, 1]
    for out in (
        x.tril(), x.triu(), x.cumprod(-1), x.cumsum(-1), x.prod(-1), x.amax(-1), x.argmax(-1).to(x.dtype), mytorch.where(x > 0, x, 0.0),
        mytorch.nn.functional.hardtanh(x), mytorch.nn.functional.hardswish(x), mytorch.nn.functional.hardsigmoid(x), x.clamp(-1, 1),
        mytorch.nn.functional.pad(x, (1, 1)), x.nan_to_num(), x.diagonal(),
    ):  # fmt: skip
        assert out.dtype is mytorch.bfloat16
        assert out._mt_data._array.dtype == mytorch.bfloat16.numpy


def test_copies_between_the_cpu_and_a_gpu():
    x = mytorch.arange(3.0)
    there = x.to("cuda")
    assert there.is_cuda
    assert (there.numpy() == x.numpy()).all()
    assert there.cpu().tolist() == [0.0, 1.0, 2.0]


def test_views_made_by_as_strided_are_views():
    x = on_gpu(np.arange(9.0).reshape(3, 3)).requires_grad_()
    y = x * 1
    y.diagonal().mul_(2.0)
    y.sum().backward()
    assert x.grad.tolist() == (np.ones((3, 3)) + np.eye(3)).tolist()
    z = on_gpu(np.arange(6.0))
    z.unfold(0, 2, 2)[1].zero_()
    assert z.tolist() == [0.0, 1.0, 0.0, 0.0, 4.0, 5.0]
    even = z.as_strided((3,), (2,))
    assert even.as_strided((6,), (1,), 0).tolist() == z.tolist()
    assert even[1:].storage_offset() == 2
    a, b = z.requires_grad_().split(3)
    (a * 2 + b).sum().backward()
    assert z.grad.tolist() == [2.0] * 3 + [1.0] * 3


def test_matrices_that_cannot_be_handled_raise():
    singular = mytorch.zeros(2, 2, device="cuda")
    for call in (mytorch.linalg.cholesky, mytorch.linalg.inv, lambda m: mytorch.linalg.solve(m, m)):
        with pytest.raises(mytorch.linalg.LinAlgError):
            call(singular)
    assert mytorch.linalg.cholesky_ex(singular).info.item() == 1


def test_solve_broadcasts():
    a, b = on_gpu([[2.0, 0.0], [0.0, 4.0]]), mytorch.ones(3, 2, 1, device="cuda")
    assert mytorch.linalg.solve(a, b)[:, :, 0].tolist() == [[0.5, 0.25]] * 3


def test_a_stream_may_be_entered_within_itself():
    outside, side = cuda.current_stream(), cuda.Stream()
    with side:
        with side:
            assert cuda.current_stream() == side
        assert cuda.current_stream() == side
    assert cuda.current_stream() == outside
