"""Functions with arbitrary Python code: regions are compiled, with the eager results."""

import copy
import random

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.compiler import explain, set_stance
from mytorch.nn import functional as F

pytestmark = pytest.mark.cpu_only

# Statements after the layers of a block, and statements that stop the recording of a network.
ENDS = ["x", "F.gelu(x) * x", "self.norm(x)", "F.dropout(x, 0.3, self.training)", "x + x.mean(-1, keepdim=True)"]
STOPS = [
    "x = x if x.sum().item() < 3 else x * 0.5",
    "self.seen = x.detach().abs().sum().item()",
    "x = x + float(x.detach().mean())",
    "self.calls.append(len(x))",
    "x.requires_grad and x.register_hook(lambda g: g * 0.5)",
    "x = x * np.random.default_rng(3).random()",
]


class Block(nn.Module):
    """Two layers with a residual connection, and a random end."""

    def __init__(self, width, end, nested, draw):
        super().__init__()
        self.first, self.second, self.norm = (
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
            nn.LayerNorm(width),
        )
        self.calls = []
        source = f"def forward(self, x):\n    x = x + self.second(F.silu(self.first(self.norm(x))))\n    x = {end}\n"
        self.inner = nn.ModuleList(Network(draw, width, 1) for _ in range(nested))
        source += "    for inner in self.inner:\n        x = inner(x)\n    return x\n"
        space = {"F": F}
        exec(source, space)
        self.run = space["forward"]

    def forward(self, x):
        return self.run(self, x)


class Network(nn.Module):
    """Blocks in a loop with a statement that cannot be recorded."""

    def __init__(self, draw, width, depth):
        super().__init__()
        nested = [int(depth > 1 and draw.random() < 0.4) for _ in range(depth)]
        self.blocks = nn.ModuleList(Block(width, draw.choice(ENDS), n, draw) for n in nested)
        self.calls, self.stop = [], draw.choice(STOPS)
        space = {"F": F, "np": np}
        exec(f"def stop(self, x):\n    {self.stop}\n    return x", space)
        self.run = space["stop"]

    def forward(self, x):
        for block in self.blocks:
            x = self.run(self, block(x))
        return x


def train(model, forward, steps, shapes):
    """Returns losses and parameters of a short training run, in which an evaluation follows each step."""
    optimizer = mytorch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    mytorch.manual_seed(1)
    found = []
    for step in range(steps):
        x = mytorch.tensor(np.random.default_rng(step).standard_normal(shapes[step % len(shapes)]).astype("float32"))
        x.requires_grad_(step % 2 == 0)
        optimizer.zero_grad()
        loss = forward(x).square().mean()
        loss.backward()
        optimizer.step()
        model.eval()
        with mytorch.no_grad():
            found += [loss.item(), forward(x).sum().item(), None if x.grad is None else x.grad.numpy()]
        model.train()
    return [*found, *(p.detach().numpy() for p in model.parameters())]


def test_random_networks_train_as_in_eager_mode():
    traced = 0
    for seed in range(12):
        draw = random.Random(seed)
        width, depth = draw.choice([1, 3, 8]), draw.choice([1, 2, 3])
        mytorch.manual_seed(seed)
        model = Network(draw, width, depth)
        other = copy.deepcopy(model)
        shapes = draw.choice([[(2, width)], [(4, width), (1, width)], [(2, 3, width)], [(0, 2, width)]])
        if draw.random() < 0.5:
            compiled = mytorch.compile(other)
        else:
            compiled = mytorch.compile(lambda x, model=other: model(x) * (1 + 0 * x.sum().item()))
        expected, result = train(model, model, 8, shapes), train(other, compiled, 8, shapes)
        for a, b in zip(expected, result, strict=True):
            assert (a is None) == (b is None), f"network {seed}"
            if a is not None:
                np.testing.assert_allclose(b, a, 1e-4, 1e-5, err_msg=f"network {seed}")
        assert "forward" not in other.blocks[0].__dict__
        traced += "a program of" in explain(compiled)
    assert traced > 6


def test_a_step_that_returns_a_number_compiles_the_model():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = mytorch.optim.Adam(model.parameters(), 0.01)
    other = copy.deepcopy(model)
    other_optimizer = mytorch.optim.Adam(other.parameters(), 0.01)

    def run(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    step = mytorch.compile_step(lambda x: run(other, other_optimizer, x))
    for _ in range(6):
        x = mytorch.randn(4, 3)
        assert step(x) == pytest.approx(run(model, optimizer, x), rel=1e-5)
    assert explain(step).count("a program of") == 2


def test_second_derivatives_and_hooks_work_as_in_eager_mode():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    seen = []
    model[0].register_forward_hook(lambda module, args, out: seen.append(out.shape))

    def penalty(x):
        x = x.requires_grad_()
        (g,) = mytorch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (g.norm() - 1).square() * (1 + 0 * g.sum().item())

    compiled = mytorch.compile(penalty)
    for call in range(5):
        x = mytorch.randn(4, 3)
        results = []
        for function in (penalty, compiled):
            model.zero_grad()
            function(x.clone()).backward()
            results.append([p.grad.numpy().copy() for p in model.parameters() if p.grad is not None])
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)
        assert len(seen) == 2 * (call + 1)


def test_gradients_of_arguments_that_the_function_itself_computes():
    w = mytorch.tensor([2.0, 3.0], requires_grad=True)

    @mytorch.compile
    def f(x):
        (x * x * w).sum().backward()
        return x.detach() * 2

    for _ in range(4):
        x = mytorch.randn(2, requires_grad=True)
        f(x)
        np.testing.assert_allclose(x.grad.numpy(), (2 * x * w).detach().numpy(), 1e-6)
        base = mytorch.randn(2, requires_grad=True)
        f(base * 3)
        np.testing.assert_allclose(base.grad.numpy(), (18 * base * w).detach().numpy(), 1e-6)


def test_the_limit_of_forms():
    w = mytorch.ones(1, requires_grad=True)
    f = mytorch.compile(lambda n: (mytorch.ones(n) * w).sum().backward(), recompile_limit=2)
    for n in (2, 2, 3, 3, 4, 4, 5, 2, 3):
        w.grad = None
        f(n)
        assert w.grad.tolist() == [n]
    assert len(f._mt_regions.programs) == 2
    assert "it has 2 forms" in explain(f)


def test_a_number_that_differs_becomes_an_input():
    w = mytorch.ones(3, requires_grad=True)
    f = mytorch.compile(lambda factor: ((w * w) * factor).sum().backward())
    for factor in (2.0, 3.0, 4.0, -0.0, 0.0, 5.0, float("nan"), 6.0):
        w.grad = None
        f(factor)
        np.testing.assert_array_equal(w.grad.numpy(), [2 * factor] * 3)
    assert len(f._mt_regions.programs) == 2
    assert explain(f).count("#0") == 1


def test_stances():
    w = mytorch.ones(1, requires_grad=True)

    @mytorch.compile
    def f(n):
        (mytorch.ones(n) * w).sum().backward()

    with set_stance("force_eager"):
        f(2)
    assert explain(f) == "not called yet"
    f(2)
    with set_stance("fail_on_recompile"):
        f(2)
        with pytest.raises(RuntimeError, match="Detected recompile"):
            f(3)
    with set_stance("eager_on_recompile"):
        f(3)
    assert len(f._mt_regions.programs) == 1
    run = set_stance("fail_on_recompile")(f)
    f(3)
    run(3)
    with pytest.raises(RuntimeError, match="Detected recompile"):
        run(4)
    set_stance("force_eager")
    f(4)
    set_stance("default")
    assert len(f._mt_regions.programs) == 2
    with pytest.raises(ValueError, match="expected stance in"):
        set_stance("lazy")
    with pytest.raises(NotImplementedError, match="skip_guard_eval_unsafe"):
        set_stance("default", skip_guard_eval_unsafe=True)
