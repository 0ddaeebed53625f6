"""Tensors on a GPU that is not the current GPU: results are correct and on the same GPU, and the current GPU does not change.

`test_checks.py` runs this file over a fake CuPy with two GPUs, which rejects arrays of other GPUs than the current one. On a
machine with two GPUs, run it by hand.
"""

import copy
import importlib
import io
import os
import sys

import factories
import numpy as np
import pytest

import mytorch
from mytorch import cuda, nn
from mytorch.nn import functional as F

pytestmark = pytest.mark.skipif(cuda.device_count() < 2, reason="needs two GPUs, or the fake CuPy")
ONE = "cuda:1"


@pytest.fixture(autouse=True)
def current_stays():
    """Checks that a test does not change the current GPU."""
    yield
    assert cuda.current_device() == 0
    assert mytorch.zeros(1, device="cuda").device == mytorch.device("cuda:0")


@pytest.fixture(autouse=True)
def kernels_run_where_their_arrays_lie(monkeypatch):
    """Rejects arrays of other GPUs than the current one in Triton's interpreter, which accepts any address."""
    fake = sys.modules.get("fake_cupy")
    if fake is None or os.environ.get("TRITON_INTERPRET") != "1":
        return
    launch = importlib.import_module("mytorch.kernels.launch")
    interpret = launch.interpret

    def checked(kernel, grid, args, options):
        fake.check(args)
        interpret(kernel, grid, args, options)

    monkeypatch.setattr(launch, "interpret", checked)


def on_one(x):
    return x.device == mytorch.device(ONE)


FACTORIES = {
    **factories.ALL,
    "Tensor": lambda **k: mytorch.Tensor([1.0, 2.0], **k),
    "as_tensor": lambda **k: mytorch.as_tensor(np.ones(3, np.float32), **k),
    "ones": lambda **k: mytorch.ones(2, **k),
    "zeros_like": lambda **k: mytorch.zeros_like(mytorch.ones(3), **k),
    "rand_like": lambda **k: mytorch.rand_like(mytorch.ones(3), **k),
    "Linear": lambda **k: nn.Linear(3, 2, **k).weight,
    "Embedding": lambda **k: nn.Embedding(3, 2, **k).weight,
    "Conv2d": lambda **k: nn.Conv2d(3, 2, 3, **k).weight,
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name):
    for device in (ONE, mytorch.device("cuda", 1), 1):
        assert on_one(FACTORIES[name](device=device))
    with cuda.device(1):
        assert on_one(FACTORIES[name](device="cuda"))
        assert cuda.current_device() == 1
    assert FACTORIES[name](device="cuda").device == mytorch.device("cuda:0")


def test_moving():
    x = mytorch.arange(6.0).reshape(2, 3)
    y = x.to(ONE)
    assert on_one(y)
    assert on_one(x.cuda(1))
    assert y.to(ONE) is y
    assert y.cuda(1) is y
    assert y.cuda().device == mytorch.device("cuda:0")
    with cuda.device(1):
        assert y.cuda() is y
        assert on_one(x.cuda())
    for device in ("cuda:0", "cpu"):
        moved = y.to(device)
        assert moved.device == mytorch.device(device)
        assert moved.tolist() == x.tolist()
        assert on_one(moved.to(y.device))
    assert on_one(y.t().to(ONE).contiguous())
    assert y.t().to("cuda:0").tolist() == x.t().tolist()
    assert (y + 1).cpu().tolist() == (x + 1).tolist()
    assert on_one(mytorch.zeros_like(y))
    assert on_one(y.new_zeros(3))
    z = mytorch.zeros(2, 3, device="cuda:0")
    z.copy_(y)
    assert z.device == mytorch.device("cuda:0")
    assert z.tolist() == x.tolist()
    w = x.to(ONE).requires_grad_()
    w.to("cuda:0").mul(2).sum().backward()
    assert on_one(w.grad)
    assert w.grad.tolist() == [[2.0] * 3] * 2


def test_mixing_is_refused():
    with pytest.raises(RuntimeError, match="same device"):
        mytorch.ones(3, device=ONE) + mytorch.ones(3, device="cuda:0")
    with pytest.raises(RuntimeError, match="generator"):
        mytorch.rand(3, device=ONE, generator=mytorch.Generator("cuda:0"))
    for call in (
        lambda: mytorch.zeros(2, device="cuda:2"),
        lambda: mytorch.zeros(2).cuda(5),
        lambda: cuda.set_device(2),
        lambda: cuda.device(3),
    ):
        with pytest.raises(RuntimeError, match="2 GPUs are visible"):
            call()
    assert (mytorch.ones(3, device=ONE) * mytorch.tensor(2.0)).tolist() == [2.0] * 3  # a number may join any


def test_set_device_and_context():
    cuda.set_device(1)
    try:
        assert cuda.current_device() == 1
        assert on_one(mytorch.zeros(2, device="cuda"))
        with cuda.device(0), cuda.device(1):
            assert cuda.current_device() == 1
        assert cuda.current_device() == 1
        with cuda.device(None):
            assert cuda.current_device() == 1
    finally:
        cuda.set_device(0)


OPS = {
    "matmul": lambda x: x @ x.t(),
    "softmax": lambda x: x.softmax(-1),
    "index": lambda x: x[[0, 2]],
    "mask": lambda x: x[x > 0],
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "scatter": lambda x: mytorch.zeros_like(x).scatter(1, x.argsort(1), x),
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(2).values,
    "cumsum": lambda x: x.cumsum(0),
    "cummax": lambda x: x.cummax(0).values,
    "einsum": lambda x: mytorch.einsum("ij,kj->ik", x, x),
    "cat": lambda x: mytorch.cat([x, x * 2]),
    "where": lambda x: mytorch.where(x > 0, x, 0.0),
    "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(1),
    "layer_norm": lambda x: F.layer_norm(x, (5,)),
    "gelu": lambda x: F.gelu(x),
    "conv": lambda x: F.conv1d(x[None], x[:2, None, :3].expand(2, 4, 3)),
    "pool": lambda x: F.max_pool1d(x[None], 2),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2.0),
    "pad": lambda x: F.pad(x, (1, 2)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "cross_entropy": lambda x: F.cross_entropy(x, mytorch.tensor([0, 1, 2, 3], device=x.device)),
    "nll": lambda x: F.nll_loss(x.log_softmax(1), mytorch.tensor([0, 1, 2, 3], device=x.device)),
    "svd": lambda x: mytorch.linalg.svdvals(x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "pdist": lambda x: F.pdist(x),
    "erf": lambda x: x.erf(),
    "std": lambda x: x.std(),
    "double": lambda x: (x.double() * x.int()).float(),
    "in_place": lambda x: _changed(x.clone()),
    "fft": lambda x: mytorch.fft.rfft(x).abs(),
}


def _changed(x):
    x[0] = 1.0
    x[:, 1] += 2.0
    x.add_(x * 2).clamp_(max=3.0)
    x[x > 2] = 0.5
    x.fill_diagonal_(0.25)
    return x


@pytest.mark.parametrize("name", OPS)
def test_ops_and_gradients(name):
    rng = np.random.default_rng(0)
    raw = rng.standard_normal((4, 5)).astype(np.float32)
    found = []
    for device in ("cpu", ONE):
        x = mytorch.tensor(raw, device=device).requires_grad_()
        out = OPS[name](x)
        assert out.device == mytorch.device(device)
        g = mytorch.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)).astype(np.float32), device=device)
        out.backward(g)
        assert x.grad.device == mytorch.device(device)
        found.append((out.detach().cpu().numpy(), x.grad.cpu().numpy()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_second_derivatives():
    x = mytorch.tensor([0.3, -1.0, 2.0], device=ONE).requires_grad_()
    (g,) = mytorch.autograd.grad((x**3 * x.sin()).sum(), x, create_graph=True)
    g.exp().sum().backward()
    y = mytorch.tensor([0.3, -1.0, 2.0]).requires_grad_()
    (h,) = mytorch.autograd.grad((y**3 * y.sin()).sum(), y, create_graph=True)
    h.exp().sum().backward()
    assert on_one(x.grad)
    np.testing.assert_allclose(x.grad.cpu().numpy(), y.grad.numpy(), rtol=1e-5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, x):
        x = self.norm(self.conv(self.embed(x).transpose(1, 2))).transpose(1, 2)
        return self.head(self.layer(self.rnn(x)[0]))


OPTIMIZERS = [
    "SGD",
    "Adam",
    "AdamW",
    "Adagrad",
    "RMSprop",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "Rprop",
    "ASGD",
    "Adafactor",
]


def _train(model, device, optimizer, steps=3):
    made = getattr(mytorch.optim, optimizer)(model.parameters(), lr=1e-2)
    schedule = mytorch.optim.lr_scheduler.StepLR(made, 1, 0.9)
    x = mytorch.tensor(np.random.default_rng(0).integers(0, 11, (3, 6)), device=device)
    losses = []
    for _ in range(steps):
        made.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
        loss.backward()
        made.step()
        schedule.step()
        losses.append(loss.item())
    return losses, made


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training(optimizer):
    mytorch.manual_seed(0)
    model = Net()
    other = copy.deepcopy(model).to(ONE)
    assert all(on_one(p) for p in [*other.parameters(), *other.buffers()])
    want, first = _train(model, "cpu", optimizer)
    got, second = _train(other, ONE, optimizer)
    np.testing.assert_allclose(got, want, rtol=2e-3)
    twin = copy.deepcopy(other)
    assert all(on_one(p) for p in twin.parameters())
    fresh = getattr(mytorch.optim, optimizer)(twin.parameters(), lr=1e-2)
    fresh.load_state_dict(second.state_dict())
    file = io.BytesIO()
    mytorch.save({"model": other.state_dict(), "optimizer": second.state_dict()}, file)
    file.seek(0)
    loaded = mytorch.load(file, map_location=ONE)
    assert all(on_one(t) for t in loaded["model"].values())
    twin.load_state_dict(loaded["model"])


def test_a_model_over_two_gpus():
    mytorch.manual_seed(0)
    first, second = nn.Linear(4, 8).to("cuda:0"), nn.Linear(8, 2).to(ONE)
    optimizer = mytorch.optim.AdamW([*first.parameters(), *second.parameters()], lr=0.1)
    x = mytorch.randn(5, 4, device="cuda:0")
    losses = []
    for _ in range(3):
        out = second(first(x).relu().to(ONE))
        assert on_one(out)
        loss = (out**2).mean()
        optimizer.zero_grad()
        loss.backward()
        assert first.weight.grad.device == mytorch.device("cuda:0")
        assert on_one(second.weight.grad)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_dropout_and_checkpointing():
    mytorch.manual_seed(3)
    x = mytorch.ones(64, device=ONE, requires_grad=True)
    out = mytorch.utils.checkpoint.checkpoint(lambda x: F.dropout(x * 2, 0.5), x, use_reentrant=False)
    out.sum().backward()
    assert on_one(x.grad)
    assert mytorch.equal(x.grad, out.detach())


def test_generators_of_each_gpu():
    mytorch.manual_seed(5)
    first, second = mytorch.rand(9, device="cuda:0"), mytorch.rand(9, device=ONE)
    assert first.tolist() == second.tolist()  # as in PyTorch: all are seeded alike
    states = cuda.get_rng_state_all()
    a = mytorch.randn(3, device=ONE).tolist()
    cuda.set_rng_state(states[1], ONE)
    assert mytorch.randn(3, device=ONE).tolist() == a
    assert mytorch.poisson(mytorch.full((3,), 4.0, device=ONE)).device == mytorch.device(ONE)
    assert on_one(mytorch.multinomial(mytorch.ones(5, device=ONE), 3))
    generator = mytorch.Generator(ONE).manual_seed(2)
    assert on_one(mytorch.rand(3, device=ONE, generator=generator))
    assert generator.clone_state().get_state().tolist() == generator.get_state().tolist()


def test_streams_and_events_of_each_gpu():
    s = cuda.Stream(device=ONE)
    assert s.device == mytorch.device(ONE)
    assert cuda.current_stream(ONE) == cuda.default_stream(ONE)
    with cuda.stream(s):
        assert cuda.current_device() == 1
        assert cuda.current_stream() == s
        x = mytorch.ones(3, device=ONE) * 2
    assert cuda.current_stream(ONE) == cuda.default_stream(ONE)
    event = s.record_event()
    event.wait(cuda.current_stream("cuda:0"))
    cuda.current_stream().wait_stream(s)
    event.synchronize()
    assert event.query()
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    begin.record(s)
    end.record(s)
    s.synchronize()
    cuda.synchronize(ONE)
    assert begin.elapsed_time(end) >= 0
    assert x.tolist() == [2.0] * 3
    assert cuda.Event().query()


def test_interchange():
    x = mytorch.arange(4.0, device=ONE)
    y = mytorch.from_dlpack(x)
    assert on_one(y)
    y[0] = 9.0
    assert x[0].item() == 9.0
    assert x.__dlpack_device__() == (2, 1)
    assert x.__cuda_array_interface__["shape"] == (4,)

    class Other:
        __cuda_array_interface__ = x.__cuda_array_interface__

    assert mytorch.as_tensor(Other(), device=ONE).tolist() == x.tolist()
    assert on_one(mytorch.as_tensor(Other(), device=ONE))
    assert mytorch.as_tensor(Other(), device="cuda:0").device == mytorch.device("cuda:0")


def test_looking_at_values():
    x = mytorch.tensor([[1.0, 2.0], [3.0, 4.0]], device=ONE)
    assert x[1, 0].item() == 3.0
    assert float(x.sum()) == 10.0
    assert bool((x > 0).all())
    assert "cuda:1" in repr(x)
    assert mytorch.equal(x, x.clone())
    assert mytorch.allclose(x, x + 0)
    assert [row.tolist() for row in x] == x.tolist()
    assert np.power(x.data, 2).device == mytorch.device(ONE)
    assert on_one(mytorch.Tensor(x.data * 2))
    assert x.nonzero().shape == (4, 2)
    assert x.unique().tolist() == [1.0, 2.0, 3.0, 4.0]


def test_generation():
    from mytorch.models import GPT2, GPT2Config

    mytorch.manual_seed(0)
    model = GPT2(GPT2Config(vocab_size=13, context_length=8, num_layers=1, num_heads=2, embed_dim=8)).to(ONE).eval()
    prompt = mytorch.tensor([[1, 2, 3]], device=ONE)
    out = model.generate(prompt, 4, seed=1)
    assert on_one(out)
    assert (out == model.generate(prompt, 4, seed=1, use_cache=False)).all()
    for token in model.stream(prompt, 2, stop=5):
        assert on_one(token)
        assert cuda.current_device() == 0
