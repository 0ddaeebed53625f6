"""Page-locked memory and asynchronous copies.

`test_checks.py` runs this file over the fake CuPy, which delays each copy as long as possible and checks that its memory still
exists. On a GPU, run it by hand.
"""

import gc
import sys

import factories
import numpy as np
import pytest

import mytorch
from mytorch import cuda

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason="needs a GPU, or the fake")
FACTORIES = {**factories.ALL, "ones_like": lambda **k: mytorch.ones_like(mytorch.zeros(2), **k)}


@pytest.fixture
def waiting(monkeypatch):
    """Returns `no_sync` of the fake CuPy, in which waiting for the GPU raises an error; on a GPU, a null context."""
    import contextlib

    fake = sys.modules.get("fake_cupy")
    return contextlib.nullcontext if fake is None else fake.no_sync


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_pin(name):
    x = FACTORIES[name](pin_memory=True)
    assert x.is_pinned()
    assert x.device.type == "cpu"
    assert not FACTORIES[name]().is_pinned()
    with pytest.raises(RuntimeError, match="only CPU tensors"):
        FACTORIES[name](pin_memory=True, device="cuda")


def test_pin_memory():
    x = mytorch.arange(6.0).reshape(2, 3)
    y = x.pin_memory()
    assert not x.is_pinned()
    assert y.is_pinned()
    assert y.tolist() == x.tolist()
    assert y.pin_memory() is y
    assert y[1:].is_pinned()
    assert y.t().is_pinned()
    assert y.data.is_pinned()
    assert not (y + 1).is_pinned()
    assert not y.clone().is_pinned()
    assert mytorch.zeros(0, 3).pin_memory().shape == (0, 3)
    assert mytorch.ones(3, dtype=mytorch.bfloat16).pin_memory().float().tolist() == [1.0] * 3
    with pytest.raises(RuntimeError, match="only CPU tensors can be pinned"):
        x.cuda().pin_memory()
    w = mytorch.ones(2, requires_grad=True)
    (w * 2).pin_memory().sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]


def test_to_the_gpu_without_waiting(waiting):
    for dtype in (mytorch.float32, mytorch.int64, mytorch.bfloat16, mytorch.bool):
        x = mytorch.arange(12).reshape(3, 4).to(dtype).pin_memory()
        with waiting():
            y = x.to("cuda", non_blocking=True)
            z = x.cuda(non_blocking=True)
            doubled = y.float() * 2
        assert y.float().tolist() == x.float().tolist()
        assert z.dtype is dtype
        assert doubled.tolist() == (x.float() * 2).tolist()
    turned = mytorch.arange(6.0).reshape(2, 3).pin_memory().t()
    assert turned.to("cuda", non_blocking=True).tolist() == turned.tolist()
    assert mytorch.zeros(0).pin_memory().to("cuda", non_blocking=True).shape == (0,)


def test_pinned_memory_outlives_the_copy(waiting):
    moved = []
    with waiting():
        for i in range(20):
            x = mytorch.full((1000,), float(i), pin_memory=True)
            moved.append(x.to("cuda", non_blocking=True))
            del x
            gc.collect()
    assert [y[-1].item() for y in moved] == [float(i) for i in range(20)]


def test_memory_is_let_go_when_copies_are_done():
    from mytorch import arrays as backend

    cuda.synchronize()
    for _ in range(5):
        mytorch.ones(10, pin_memory=True).to("cuda", non_blocking=True)
        cuda.synchronize()
    assert len(backend.in_flight._held) <= 1


def test_a_blocking_copy_may_be_overwritten():
    x = mytorch.ones(5).pin_memory()
    y = x.to("cuda")
    x.zero_()
    assert y.tolist() == [1.0] * 5
    x = mytorch.ones(5)  # and so may pageable memory in any case
    y = x.to("cuda", non_blocking=True)
    x.zero_()
    assert y.tolist() == [1.0] * 5


def test_small_arrays_go_to_the_gpu_without_waiting(waiting):
    with waiting():
        y = mytorch.tensor([1.0, 2.0, 3.0], device="cuda")
        z = mytorch.ones(3).to("cuda") + y * mytorch.tensor(2.0)
        w = y[mytorch.tensor([0, 2])]
    assert z.tolist() == [3.0, 5.0, 7.0]
    assert w.tolist() == [1.0, 3.0]


def test_to_the_host_without_waiting(waiting):
    x = mytorch.arange(6.0, device="cuda").reshape(2, 3)
    with waiting():
        y = x.to("cpu", non_blocking=True)
        z = x.t().to("cpu", non_blocking=True)
    assert y.is_pinned()
    cuda.synchronize()
    assert y.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert z.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert not x.cpu().is_pinned()
    with waiting():
        x.to("cpu", non_blocking=True)
        gc.collect()
    cuda.synchronize()


def test_into_given_memory(waiting):
    host = mytorch.zeros(4, pin_memory=True)
    with waiting():
        host.copy_(mytorch.arange(4.0, device="cuda"), non_blocking=True)
    cuda.synchronize()
    assert host.tolist() == [0.0, 1.0, 2.0, 3.0]
    static = mytorch.zeros(4, device="cuda")
    with waiting():
        static.copy_(host, non_blocking=True)
    assert static.tolist() == [0.0, 1.0, 2.0, 3.0]
    for there in (
        mytorch.zeros(4),
        mytorch.zeros(4, dtype=mytorch.float64).pin_memory(),
        mytorch.zeros(2, 4).pin_memory(),
    ):
        there.copy_(static, non_blocking=True)  # not page-locked, of another dtype or shape: waits
        assert (there.double() == mytorch.arange(4.0).double()).all()


def test_gradients_that_come_back_are_there():
    x = mytorch.ones(3, requires_grad=True)
    (x.to("cuda", non_blocking=True) * mytorch.tensor([1.0, 2.0, 3.0], device="cuda")).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 3.0]
    y = mytorch.ones(3, device="cuda", requires_grad=True)
    host = y.to("cpu", non_blocking=True)
    cuda.synchronize()
    (host * 2).sum().backward()
    assert y.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_pin_their_batches(workers, waiting):
    data = mytorch.utils.data.TensorDataset(mytorch.arange(12.0).reshape(6, 2), mytorch.arange(6))
    loader = mytorch.utils.data.DataLoader(data, 2, pin_memory=True, num_workers=workers)
    seen = []
    for x, y in loader:
        assert x.is_pinned()
        assert y.is_pinned()
        with waiting():
            x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
        seen += y.tolist()
        assert x[:, 0].tolist() == [2.0 * i for i in y.tolist()]
    assert seen == list(range(6))
    named = mytorch.utils.data.DataLoader([{"a": 1.0, "s": "x"}], pin_memory=True)
    assert next(iter(named))["a"].is_pinned()


def test_offloaded_activations_are_pinned():
    x = mytorch.arange(3.0, device="cuda").requires_grad_()
    with mytorch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [0.0, 2.0, 4.0]
    assert np.isfinite(y.item())
