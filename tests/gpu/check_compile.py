"""Compiled functions on a GPU: results, gradients, random numbers and in-place changes equal the eager ones.

Runs on a GPU, and over the fake CuPy, once without kernels and once with Triton's interpreter.
"""

import os
import warnings

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.compiler import explain, gpu
from mytorch.nn import functional as F
from tests.compiler import test_generated as generated

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SEED = int(os.environ.get("MYTORCH_PROGRAMS_SEED", "12"))
COUNT = int(os.environ.get("MYTORCH_PROGRAMS", "30" if INTERPRETED else "60"))


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch):
    """The GPU is the default device, and `numpy` copies from it."""
    for cls in (mytorch.Tensor, mytorch.arrays.array.Array):
        monkeypatch.setattr(cls, "numpy", lambda self, _numpy=cls.numpy: _numpy(self.cpu()))
    with mytorch.device("cuda"):
        yield


def calls_of(compiled):
    """Returns the calls of the last backward program."""
    assert compiled._mt_regions.programs, explain(compiled)
    return [call for call in compiled._mt_regions.programs[-1].free[0].calls if not hasattr(call, "func")]


def test_random_programs_give_the_eager_results():
    failed, traced = [], 0
    for number in range(COUNT):
        case = generated.Case(SEED, number)
        problem, function = generated.difference(case, not INTERPRETED)
        traced += bool(function._mt_regions.programs)
        if problem:
            failed.append(f"--- program {number}\n{case.source}{problem}")
    assert not failed, f"{len(failed)} of {COUNT}\n" + "\n".join(failed[:10])
    assert traced > COUNT / 6, f"only {traced} of {COUNT} programs have regions"


class Block(nn.Module):
    """A layer with a GELU, dropout and a normalization that are written out."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm, self.drop = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8), nn.Dropout(0.3)
        self.gain = nn.Parameter(mytorch.ones(8))

    def forward(self, x):
        h = self.up(self.norm(x))
        h = 0.5 * h * (1 + mytorch.tanh(0.79788 * (h + 0.044715 * h * h * h)))
        x = x + self.drop(self.down(h))
        return x * mytorch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.gain


def losses_of(compiled, dtype=None, captured=False):
    """Returns the losses of a training, and the model."""
    mytorch.manual_seed(1)
    net = nn.Sequential(Block(), Block())
    model = mytorch.compile(net) if compiled else net
    optimizer = mytorch.optim.AdamW(net.parameters(), lr=1e-2)

    def step(x):
        optimizer.zero_grad()
        with mytorch.autocast("cuda", dtype, enabled=dtype is not None):
            loss = F.mse_loss(model(x).float(), x * 0.5)
        loss.backward()
        optimizer.step()
        return loss

    if captured:
        step = mytorch.compile_step(step, warmup=4)
    draw, losses = np.random.default_rng(0), []
    for _ in range(9):
        losses.append(step(mytorch.tensor(draw.standard_normal((4, 5, 8)).astype("float32"))).item())
    return losses, model


@pytest.mark.parametrize("dtype", [None, mytorch.bfloat16])
def test_a_model_trains_as_an_eager_one(dtype):
    expected, _ = losses_of(False, dtype)
    found, model = losses_of(True, dtype)
    backward = calls_of(model._mt_compiled)
    np.testing.assert_allclose(found, expected, 1e-6 if dtype is None else 2e-2)
    if INTERPRETED:
        assert sum(type(call).__name__ == "GroupCall" for call in backward) >= 4
        assert len(backward) < 80


@pytest.mark.skipif(not INTERPRETED, reason="optimizers need kernels during a capture")
def test_a_compiled_model_in_a_captured_step():
    expected, _ = losses_of(False, captured=True)
    found, model = losses_of(True, captured=True)
    calls_of(model._mt_compiled)
    np.testing.assert_allclose(found, expected, 1e-6)


def test_backward_runs_twice_and_for_some_outputs():
    def function(x, w):
        h = (x * w).exp_()
        h = h / h.sum(-1, keepdim=True)
        return h * 2, (h * w).sum()

    compiled = mytorch.compile(function)
    draw = np.random.default_rng(0)
    for call in range(5):
        numbers = [draw.standard_normal(shape).astype("float32") for shape in ((3, 70), (70,), (3, 70))]
        grads = []
        for f in (function, compiled):
            x, w, g = (mytorch.tensor(n, requires_grad=k < 2) for k, n in enumerate(numbers))
            first, second = f(x, w)
            if call % 2:
                first.backward(g, retain_graph=True)
                first.backward(g, retain_graph=True)
            second.backward()
            grads.append([x.grad.numpy(), w.grad.numpy(), first.detach().numpy()])
        for mine, theirs in zip(*grads, strict=True):
            np.testing.assert_allclose(mine, theirs, 2e-5, 1e-6)
    calls_of(compiled)


def test_gradients_do_not_share_memory_with_later_calls():
    w = mytorch.ones(5, requires_grad=True)
    compiled = mytorch.compile(lambda x: (w * x * 2 + w).sum().backward())
    kept = []
    for call in range(5):
        w.grad = None
        compiled(mytorch.full((5,), float(call)))
        kept.append(w.grad)
    kept[-1].zero_()
    assert [g.numpy().tolist() for g in kept] == [[2.0 * call + 1] * 5 for call in range(4)] + [[0.0] * 5]
    calls_of(compiled)


def test_tensors_on_several_devices_run_eagerly():
    w = mytorch.ones(3, requires_grad=True)
    compiled = mytorch.compile(lambda x: (w.to("cpu") * x).sum().backward())
    for _ in range(4):
        w.grad = None
        compiled(mytorch.ones(3, device="cpu"))
        assert w.grad.numpy().tolist() == [1.0] * 3
    assert "runs eagerly" in explain(compiled)


def test_a_trace_leaves_no_trace_arrays():
    net = Block()
    compiled = mytorch.compile(net)
    for _ in range(4):
        compiled(mytorch.ones(2, 8)).sum().backward()
    calls_of(compiled._mt_compiled)
    raws = [t._mt_data._array for t in (*net.parameters(), *(p.grad for p in net.parameters() if p.grad is not None))]
    assert not any(isinstance(raw, gpu.TracedGpuArray) for raw in raws)


def test_a_step_without_a_tensor_on_the_gpu_is_not_captured_and_says_so():
    x = mytorch.ones(3)
    step = mytorch.compile_step(lambda factor: x * factor)
    on_cpu = mytorch.compile_step(lambda factor: mytorch.ones(3) * factor)
    with mytorch.device("cpu"):
        with pytest.warns(UserWarning, match="captured as a CUDA graph only if an argument is a tensor on the GPU"):
            assert [step(2.0).sum().item() for _ in range(5)] == [6.0] * 5
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [on_cpu(2.0).sum().item() for _ in range(5)] == [6.0] * 5
