"""CUDA graphs: captured steps equal separate steps, and operations that cannot be captured raise an error.

The tests run with `pytest --device cuda` on a GPU, and over the fake CuPy with Triton's interpreter (`test_fake_cupy.py` starts
both). In the fake CuPy, a graph is a list of calls that run at each launch.
"""

import os

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.arrays.errors import CaptureError
from mytorch.cuda import CUDAGraph, graph, make_graphed_callables
from mytorch.nn import functional as F

HERE = mytorch.get_default_device().type == "cuda"
STAND_IN = HERE and os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [] if STAND_IN else [pytest.mark.gpu, pytest.mark.skipif(not HERE, reason="wants pytest --device cuda")]
rng = np.random.default_rng(0)


def model(dropout=0.0):
    mytorch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(dropout), nn.Linear(16, 5))


def batches(count, rows=7):
    draw = np.random.default_rng(1)
    return [
        (mytorch.tensor(draw.standard_normal((rows, 6)).astype(np.float32)), mytorch.tensor(draw.integers(0, 5, rows)))
        for _ in range(count)
    ]


OPTIMIZERS = {
    "adamw": lambda p: optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "adam amsgrad": lambda p: optim.Adam(p, lr=1e-2, amsgrad=True),
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "lion": lambda p: optim.Lion(p, lr=1e-2, weight_decay=0.1),
}


def train(make, steps, compiled, warmup=2, schedule=True):
    net = model()
    optimizer = make(net.parameters())
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2, 0.7) if schedule else None

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return {"loss": loss, "norm": norm}

    run = mytorch.compile_step(step, warmup=warmup) if compiled else step
    losses = []
    for x, y in batches(steps):
        result = run(x, y)
        losses.append((result["loss"], result["norm"]))
        if scheduler is not None:
            scheduler.step()
    return [[t.item() for t in pair] for pair in losses], net, optimizer


def adamw_step():
    """A network, its optimizer, and a function of a batch that trains it, as `train(OPTIMIZERS["adamw"], …)` does."""
    net = model()
    optimizer = OPTIMIZERS["adamw"](net.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss

    return net, optimizer, step


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_captured_step_trains_like_an_eager_one(name):
    want, net, optimizer = train(OPTIMIZERS[name], 8, False)
    got, twin, other = train(OPTIMIZERS[name], 8, True)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(b.detach().cpu().numpy(), a.detach().cpu().numpy(), rtol=2e-4, atol=2e-6)
    mine, theirs = optimizer.state_dict(), other.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    for number, state in mine["state"].items():
        for key, value in state.items():
            np.testing.assert_allclose(
                theirs["state"][number][key].cpu().numpy(), value.cpu().numpy(), rtol=2e-3, atol=2e-6
            )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_network_with_its_channels_last(name):
    """Parameters that are not in row-major order are captured too, also after loading moments in row-major order."""
    draw = np.random.default_rng(1)
    data = [mytorch.tensor(draw.standard_normal((4, 3, 5, 5)).astype(np.float32)) for _ in range(8)]
    ends = []
    for last in (False, True):
        mytorch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 2, 3))
        if last:
            net = net.to(memory_format=mytorch.channels_last)
        optimizer = OPTIMIZERS[name](net.parameters())

        def step(x, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            return loss

        run = mytorch.compile_step(step, warmup=2) if last else step
        losses = [run(x).item() for x in data[:4]]
        saved = optimizer.state_dict()
        if last:
            assert not net[0].weight.is_contiguous()
            for state in saved["state"].values():
                state.update({key: value.contiguous() for key, value in state.items() if key != "step"})
        optimizer.load_state_dict(saved)
        losses += [step(x).item() for x in data[4:]]
        ends.append([losses, *[p.detach().cpu().numpy() for p in net.parameters()]])
    for plain, other in zip(*ends, strict=True):
        np.testing.assert_allclose(other, plain, rtol=2e-4, atol=2e-6)


def test_the_graph_replays_instead_of_calling():
    calls = []
    x = mytorch.ones(3)

    @mytorch.compile_step(warmup=2)
    def double(x):
        calls.append(1)
        return x * 2

    results = [double(x * i) for i in range(6)]
    assert len(calls) == 3  # twice as it is, once for the capture
    assert [r.tolist()[0] for r in results] == [0, 2, 4, 6, 8, 10]  # each result is its own


def test_other_shapes_and_values_get_separate_graphs():
    calls = []

    @mytorch.compile_step(warmup=1)
    def f(x, scale=1.0):
        calls.append(x.shape)
        return x.sum() * scale

    for _ in range(3):
        assert [f(mytorch.ones(n)).item() for n in (4, 5)] == [4, 5]
        assert f(mytorch.ones(4), scale=3.0).item() == 12
    assert len(calls) == 6


def test_dropout_draws_new_numbers_at_each_replay():
    @mytorch.compile_step(warmup=1)
    def drop(x):
        return F.dropout(x, 0.5)

    x = mytorch.ones(200)
    masks = [drop(x).tolist() for _ in range(6)]
    assert len({tuple(m) for m in masks}) == 6
    mean = np.mean([np.mean(m) for m in masks])
    assert 0.8 < mean < 1.2


def test_draws_do_not_depend_on_whether_a_step_is_replayed():
    """A resumed run that captures its graph again therefore draws the same numbers."""

    def run(count, warmup, state=None):
        @mytorch.compile_step(warmup=warmup)
        def drop(x):
            return F.dropout(x, 0.5) + F.dropout(x, 0.25)

        mytorch.manual_seed(3)
        if state is not None:
            mytorch.cuda.set_rng_state(state, mytorch.ones(1).device)
        out = []
        for _ in range(count):
            out.append(drop(mytorch.ones(50)).tolist())
            out.append(F.dropout(mytorch.ones(40), 0.5).tolist())  # outside of the step
        return out, mytorch.cuda.get_rng_state(mytorch.ones(1).device)

    want, _ = run(6, 9)
    assert run(6, 1)[0] == want
    first, state = run(3, 1)
    rest, _ = run(3, 1, state)
    assert first + rest == want
    assert len({str(x) for x in want}) == 12


def test_a_batch_may_come_from_the_cpu():
    @mytorch.compile_step(warmup=1)
    def f(x):
        return x + 1

    for i in range(4):
        x = mytorch.full((3,), float(i), device="cpu")
        assert f(x).tolist() == [i + 1.0] * 3


def test_changed_options_are_captured_again():
    net = model()
    optimizer = optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.0)
    calls = []

    @mytorch.compile_step(warmup=1)
    def step(x, y):
        calls.append(1)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    ((x, y),) = batches(1)
    for _ in range(4):
        step(x, y)
    assert len(calls) == 2
    optimizer.param_groups[0]["weight_decay"] = 50.0  # p *= 1 - 0.01 * 50
    before = [p.detach().clone() for p in net.parameters()]
    step(x, y)
    assert len(calls) == 3
    for p, b in zip(net.parameters(), before, strict=True):
        np.testing.assert_allclose(p.detach().cpu().numpy(), b.cpu().numpy() / 2, atol=0.05)
    for _ in range(3):
        step(x, y)
    assert len(calls) == 4


def test_a_loaded_state_is_captured_again():
    steps = 9
    want, _, _ = train(OPTIMIZERS["adamw"], steps, False, schedule=False)
    net, optimizer, step = adamw_step()
    step = mytorch.compile_step(step, warmup=1)
    losses, saved = [], None
    data = batches(steps)
    for i in range(steps):
        losses.append(step(*data[i]).item())
        if i == 3:
            saved = {k: v.clone() for k, v in net.state_dict().items()}, _copied(optimizer.state_dict())
    np.testing.assert_allclose(losses, [w[0] for w in want], rtol=2e-5)
    net.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    again = [step(*data[i]).item() for i in range(4, steps)]
    np.testing.assert_allclose(again, losses[4:], rtol=2e-5)


def _copied(tree):
    from mytorch.utils._pytree import tree_map

    return tree_map(lambda x: x.__deepcopy__({}) if hasattr(x, "__deepcopy__") else x, tree)


@pytest.mark.parametrize("dtype", [mytorch.float16, mytorch.bfloat16])
def test_mixed_precision_with_a_scaler(dtype):
    def run(compiled, poison=5):
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2)
        scaler = mytorch.amp.GradScaler("cuda", init_scale=256.0, growth_interval=3)

        def step(x, y, factor):
            optimizer.zero_grad()
            with mytorch.autocast("cuda", dtype=dtype):
                loss = F.cross_entropy(net(x).float(), y) * factor
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss

        call = mytorch.compile_step(step, warmup=2) if compiled else step
        trace = []
        for i, (x, y) in enumerate(batches(10)):
            factor = mytorch.tensor(float("inf") if i == poison else 1.0)
            loss = call(x, y, factor)
            trace.append(
                (
                    min(loss.item(), 1e9),
                    scaler.get_scale(),
                    *(s["step"].item() for s in list(optimizer.state_dict()["state"].values())[:1]),
                )
            )
        return trace, [p.detach().cpu().numpy() for p in net.parameters()]

    (want, weights), (got, twins) = run(False), run(True)
    np.testing.assert_allclose(got, want, rtol=1e-3 if dtype is mytorch.float16 else 1e-2)
    assert [row[1] for row in got] == [256.0, 256.0, 512.0, 512.0, 512.0, 256.0, 256.0, 256.0, 512.0, 512.0]
    assert [row[2] for row in got] == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9]  # a step that is left out does not count
    for a, b in zip(weights, twins, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-2, atol=2e-3)


def test_calls_that_wait_for_the_gpu_are_rejected():
    @mytorch.compile_step(warmup=1)
    def f(x):
        return x * 2 if x.sum().item() > 0 else x

    x = mytorch.ones(3)
    f(x)
    with pytest.raises(CaptureError, match=r"waits for the GPU.*\.item\(\)"):
        f(x)
    assert mytorch.ones(2).sum().item() == 2  # and all is as before
    assert not mytorch.cuda.is_current_stream_capturing()


def test_a_batch_may_come_from_page_locked_memory():
    @mytorch.compile_step(warmup=1)
    def f(x):
        return x + 1

    for i in range(6):  # the memory of each is free for the next before the copy may be done
        assert f(mytorch.full((3,), float(i), device="cpu").pin_memory()).tolist() == [i + 1.0] * 3


def test_many_tensors_are_joined():
    @mytorch.compile_step(warmup=1)
    def f(x):
        return mytorch.cat([x * i for i in range(20)]), mytorch.stack([x + i for i in range(70)], -1)

    for i in range(3):
        joined, stacked = f(mytorch.full((2,), float(i)))
        assert joined.tolist() == [float(i * k) for k in range(20) for _ in range(2)]
        assert stacked.tolist() == [[float(i + k) for k in range(70)]] * 2


def test_page_locked_memory_is_copied_at_each_replay():
    there = mytorch.zeros(3, device="cpu").pin_memory()
    back = mytorch.zeros(3, device="cpu").pin_memory()

    @mytorch.compile_step(warmup=1)
    def f(x):
        y = x * there.to("cuda", non_blocking=True)
        back.copy_(y, non_blocking=True)
        return y + 0

    for i in range(4):
        there.fill_(float(i))
        assert f(mytorch.full((3,), 2.0)).tolist() == [2.0 * i] * 3
        mytorch.cuda.synchronize()
        assert back.tolist() == [2.0 * i] * 3


def test_data_from_the_cpu_is_refused_and_constants_are_not():
    @mytorch.compile_step(warmup=1)
    def f(x):
        return x + mytorch.tensor([1.0, 2.0, 3.0])

    @mytorch.compile_step(warmup=1)
    def g(x):
        return x * mytorch.tensor(3.0) + mytorch.tensor(1.0, device="cpu")

    x = mytorch.ones(3)
    f(x)
    with pytest.raises(CaptureError, match="a copy from the CPU can't be captured .* pass it as an argument"):
        f(x)
    for i in range(4):
        assert g(x * i).tolist() == [3.0 * i + 1] * 3


def test_an_optimizer_that_counts_on_the_host_is_refused():
    net = model()
    optimizer = optim.Adagrad(net.parameters())

    @mytorch.compile_step(warmup=1)
    def step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    ((x, y),) = batches(1)
    step(x, y)
    with pytest.raises(CaptureError, match="step of Adagrad.*AdamW.*can be captured"):
        step(x, y)


def test_bad_arguments():
    with pytest.raises(ValueError, match="expected warmup of at least 1, got 0"):
        mytorch.compile_step(lambda x: x, warmup=0)
    step = mytorch.compile_step(lambda x, how: x)
    with pytest.raises(CaptureError, match="hashable"):
        step(mytorch.ones(2), how=set())
    with pytest.raises(CaptureError, match="requires_grad"):
        mytorch.compile_step(lambda x: x)(mytorch.ones(2, requires_grad=True))


def test_graph_objects():
    x = mytorch.zeros(4)
    g = CUDAGraph()
    with pytest.raises(RuntimeError, match="the graph is empty"):
        g.replay()
    with pytest.raises(RuntimeError, match="non-default stream"):
        g.capture_begin()
    with graph(g):
        assert mytorch.cuda.is_current_stream_capturing()
        y = x * 2 + 1
    for value in (1.0, 5.0):
        x.fill_(value)
        g.replay()
        assert y.tolist() == [2 * value + 1] * 4
    second = CUDAGraph()
    with graph(second, pool=g.pool()):
        z = x - 1
    second.replay()
    assert z.tolist() == [4.0] * 4
    g.reset()
    with pytest.raises(RuntimeError, match="the graph is empty"):
        g.replay()


def test_the_first_step_of_an_optimizer_can_not_be_captured():
    net = model()
    optimizer = optim.AdamW(net.parameters())
    ((x, y),) = batches(1)
    F.cross_entropy(net(x), y).backward()
    with pytest.raises(CaptureError, match="first step of AdamW"), graph(CUDAGraph()):
        optimizer.step()


def test_graphed_callables():
    net, head = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Linear(8, 3)
    eager = mytorch.randn(5, 6, requires_grad=True)

    def loss_and_gradients(first, second, x):
        for p in [*net.parameters(), *head.parameters()]:
            p.grad = None
        out = second(first(x))
        loss = (out * out).sum()
        loss.backward()
        return loss.item(), [t.grad.cpu().numpy().copy() for t in (x, *net.parameters(), *head.parameters())]

    inputs = [mytorch.tensor(rng.standard_normal((5, 6)).astype(np.float32), requires_grad=True) for _ in range(3)]
    want = [loss_and_gradients(net, head, x) for x in inputs]
    first, second = make_graphed_callables((net, head), ((eager,), (mytorch.randn(5, 8, requires_grad=True),)))
    assert first is net
    for x in inputs:
        x.grad = None
    for x, (loss, grads) in zip(inputs, want, strict=True):
        got, found = loss_and_gradients(first, second, x)
        assert abs(got - loss) < 1e-4 * abs(loss)
        for a, b in zip(found, grads, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="expected an input with"):
        first(mytorch.randn(4, 6, requires_grad=True))
    assert first.eval()(mytorch.randn(4, 6)).shape == (4, 8)  # eager in another mode


def test_steps_outside_of_the_capture_go_on():
    want, _, _ = train(OPTIMIZERS["adamw"], 8, False, schedule=False)
    _, _, step = adamw_step()
    compiled = mytorch.compile_step(step, warmup=1)
    losses = [(step if i in (0, 4, 5) else compiled)(x, y).item() for i, (x, y) in enumerate(batches(8))]
    np.testing.assert_allclose(losses, [w[0] for w in want], rtol=2e-5)


def test_memory_of_graphs_is_counted():
    x = mytorch.ones(1 << 16)
    g = CUDAGraph()
    before = mytorch.cuda.memory_allocated()
    with graph(g):
        y = (x + 1) * 2
    held = mytorch.cuda.memory_allocated() - before
    assert (
        held >= 1.9 * x.nbytes
    )  # (the capture collects garbage first) y, and x + 1, whose memory belongs to the graph
    assert mytorch.cuda.memory_reserved() >= mytorch.cuda.memory_allocated()
    del y, g
    assert mytorch.cuda.memory_allocated() < before + x.nbytes


def test_batches_from_the_cpu_are_copied_without_waiting_and_none_is_lost():
    """Each goes through one of two page-locked buffers, which is not written again before the GPU has read it."""
    seen = mytorch.zeros(5)

    @mytorch.compile_step
    def step(x):
        seen.add_(x)
        return x * 2

    given = np.random.default_rng(2).standard_normal((12, 5)).astype(np.float32)
    results = []
    for row in given:
        batch = mytorch.tensor(row, device="cpu")
        results.append(step(batch))
        batch.fill_(np.nan)
    np.testing.assert_array_equal(np.stack([r.numpy(force=True) for r in results]), given * 2)
    np.testing.assert_allclose(seen.numpy(force=True), given.sum(0), rtol=1e-5)
    (form,) = step._mt_graphs._forms.values()
    assert [len(b.used) for b in form.buffers] == [2]


def test_tables_are_sent_once_and_are_outside_the_graphs_memory():
    net = model()
    optimizer = optim.AdamW(net.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()

    compiled = mytorch.compile_step(step)
    data = batches(6)
    for x, y in data[:4]:
        compiled(x, y)
    (form,) = compiled._mt_graphs._forms.values()
    constants = form.graph._capture.constants
    assert len(constants) >= 2
    for x, y in data[4:]:
        compiled(x, y)
    for there, host in constants:
        np.testing.assert_array_equal(there.get(), host)
    assert not [
        kept for kept in form.graph._capture.kept if isinstance(kept, np.ndarray)
    ]  # nothing is sent at a replay
