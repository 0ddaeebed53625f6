"""A device that is registered from outside the package: tests/toy_device.py, compared with the CPU."""

import io
import sys
from types import ModuleType

import pytest

import mytorch
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.arrays import others, register_device
from mytorch.arrays.devices import KINDS
from mytorch.ops.dispatch.op import op
from mytorch.ops.random import _gpu_generators
from tests import toy_device
from tests.samples import ROWS
from tests.test_ops import _call, _inputs, _values

pytestmark = pytest.mark.cpu_only


@pytest.fixture(autouse=True, scope="module")
def toy():
    toy_device.register()
    yield
    KINDS.remove("toy")
    others.BY_ARRAY.pop(others.BY_NAME.pop("toy").module.ndarray)
    _gpu_generators.pop("toy", None)


def test_tensors_move_and_are_shown(rng):
    x = mytorch.tensor(rng.normal(size=(3, 4)))
    y = x.to("toy")
    assert y.device == mytorch.device("toy")
    assert (y.is_cuda, y.type(), y.get_device()) == (False, "mytorch.toy.DoubleTensor", -1)
    assert str(y[0, :1] * 0) == "tensor([0.00000], dtype=float64, device=toy)"
    assert mytorch.equal(y.cpu(), x)
    assert mytorch.zeros(2, device="toy").device.type == mytorch.zeros_like(y).device.type == "toy"
    with pytest.raises(mytorch.arrays.errors.DeviceError, match="expected all tensors to be on the same device"):
        x + y
    assert (y + mytorch.tensor(1.0)).device.type == "toy"  # numbers join any device


def test_views_share_the_devices_memory():
    x = mytorch.arange(12.0).reshape(3, 4).to("toy")
    x.T[1].mul_(10)
    x[0].add_(1)
    assert x.tolist() == [[1, 11, 3, 4], [4, 50, 6, 7], [8, 90, 10, 11]]
    assert x[1:, ::2].storage_offset() == 4


ALL = [row for row in ROWS if not row.listed]


@pytest.mark.parametrize("rows", [ALL[i::8] for i in range(8)], ids=range(8))
def test_every_op_equals_the_cpu(rows, rng):
    """Forward and gradients of the first sample of every row."""
    for row in rows:
        values, attrs = _values(row, row.shapes, rng), row.settings()[0]
        found = []
        for device in ("cpu", "toy"):
            inputs = [t.detach().to(device) for t in _inputs(values, mytorch)]
            if row.grad:
                inputs = [t.requires_grad_() if t.is_floating_point() else t for t in inputs]
            mytorch.manual_seed(0)
            with mytorch.device(device):
                out = _call(row, mytorch, inputs, attrs)
            outs = [o for o in (out if isinstance(out, tuple | list) else [out]) if isinstance(o, mytorch.Tensor)]
            assert all(o.device.type == device for o in outs), row.name
            if row.grad and outs[0].requires_grad:
                outs[0].backward(mytorch.ones_like(outs[0]))
            found.append([o.detach().cpu() for o in outs] + [t.grad.cpu() for t in inputs if t.grad is not None])
        for on_cpu, on_toy in zip(*found, strict=True):
            assert mytorch.allclose(on_cpu, on_toy, rtol=1e-9, atol=1e-12, equal_nan=True), row.name


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        x = F.max_pool2d(F.gelu(self.norm(self.conv(x))), 2).flatten(2)
        return self.out(self.attention(x, x, x)[0].mean(dim=1))


def test_training_gives_the_cpus_losses(rng):
    images, labels = mytorch.tensor(rng.normal(size=(8, 1, 8, 8)), dtype=mytorch.float32), mytorch.arange(8) % 3
    losses = []
    for device in ("cpu", "toy"):
        mytorch.manual_seed(0)
        net = Net().to(device)
        optimizer = mytorch.optim.AdamW(net.parameters(), lr=1e-2)
        losses.append([])
        for _ in range(4):
            loss = F.cross_entropy(net(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_random_numbers_follow_the_seed():
    draws = []
    for _ in range(2):
        mytorch.manual_seed(3)
        draws.append(F.dropout(mytorch.ones(64, device="toy"), 0.5) + mytorch.randn(64, device="toy"))
    assert mytorch.equal(*draws)
    assert not mytorch.equal(draws[0], mytorch.randn(64, device="toy"))


def test_saved_tensors_come_back():
    file, x = io.BytesIO(), mytorch.arange(3.0).to("toy")
    mytorch.save({"x": x}, file)
    file.seek(0)
    assert mytorch.load(file, map_location="cpu")["x"].tolist() == [0, 1, 2]
    file.seek(0)
    assert mytorch.load(file)["x"].device.type == "toy"


def test_a_record_has_a_kernel_for_it(monkeypatch):
    @op()
    def thrice(xp, input):
        return input * 3

    thrice.grad(input=lambda g: g * 3)
    kernel = ModuleType("toy_kernels")
    kernel.accepts = lambda input: True
    kernel.forward = lambda xp, input: toy_device.calls.append("thrice") or input + input + input
    monkeypatch.setitem(sys.modules, "toy_kernels", kernel)
    thrice.register_kernel(toy="toy_kernels")
    x = mytorch.ones(2, device="toy", requires_grad=True)
    thrice(x).sum().backward()
    assert "thrice" in toy_device.calls
    assert x.grad.tolist() == [3, 3]
    assert thrice(mytorch.ones(2)).tolist() == [3, 3]


def test_missing_functions_run_on_the_cpu():
    library = others.BY_NAME["toy"]
    assert not hasattr(library.module, "cumsum")
    x = mytorch.arange(4.0).to("toy")
    assert x.cumsum(0).tolist() == [0, 1, 3, 6]
    assert x.scatter_add(0, mytorch.tensor([0, 0]).to("toy"), mytorch.ones(2).to("toy")).tolist() == [2, 1, 2, 3]
    assert mytorch.linalg.inv(mytorch.eye(2).to("toy") * 2).tolist() == [[0.5, 0], [0, 0.5]]


@pytest.mark.parametrize("name", ["toy", "cpu", "cuda", "a b", ""])
def test_names_that_are_taken_or_none_are_refused(name):
    with pytest.raises(ValueError, match="expected a name that no device has"):
        register_device(name, toy_device.ToyLibrary("other"), from_cpu=abs, to_cpu=abs)


def test_an_unregistered_device_is_rejected():
    with pytest.raises(RuntimeError, match="device type at start of device string: npu"):
        mytorch.ones(2, device="npu")
