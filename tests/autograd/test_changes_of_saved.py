"""In-place changes of arrays that were saved for backward, under checkpointing, hooks on saved tensors and transforms.

The truth is the same program with copies, so that the change reaches no saved array. A program may raise an error, but must not give
another gradient. In PyTorch, 1,000 of these programs give wrong gradients without an error, because it does not check the versions of
tensors that hooks keep.
"""

import numpy as np
import pytest

import mytorch
from mytorch.autograd.graph import save_on_cpu, saved_tensors_hooks
from mytorch.utils.checkpoint import checkpoint
from tests.loops import loop

F = mytorch.nn.functional
HALF = mytorch.tensor([0.5], dtype=mytorch.float64)
OPS = {
    "mul": lambda x: x * x, "div": lambda x: x / (x + 2), "pow": lambda x: x**3, "maximum": lambda x: mytorch.maximum(x, HALF),
    "minimum": lambda x: mytorch.minimum(x, HALF), "cat": lambda x: mytorch.cat([x, x * 2]), "where": lambda x: mytorch.where(x > 0.5, x, x * x),
    "clamp": lambda x: x.clamp(0.4, 1.0), "take": lambda x: x.take(mytorch.tensor([0, 1, 1])), "matmul": lambda x: x @ x.mT,
    "lerp": lambda x: x.lerp(x * 2, 0.3), "addcmul": lambda x: mytorch.addcmul(x, x, x), "prelu": lambda x: F.prelu(x - 0.5, HALF),
    "layer_norm": lambda x: F.layer_norm(x, (3,)), "amax": lambda x: x.amax(0, keepdim=True) * x, "prod": lambda x: x.prod(0, keepdim=True),
    "norm": lambda x: x.norm(dim=0, keepdim=True), "std": lambda x: x.std(0, keepdim=True), "index": lambda x: x[:, mytorch.tensor([0, 0])],
    **{n: lambda x, n=n: getattr(x, n)(0) for n in "softmax cumsum cumprod logsumexp".split()},
    **{n: lambda x, n=n: getattr(x, n)() for n in "sin exp tanh sigmoid sqrt square abs relu erf expm1 reciprocal rsqrt log sinh".split()},
}  # fmt: skip
CHANGES = {
    "mul_": lambda t: t.mul_(2.5), "mul_ of itself": lambda t: t.mul_(t.detach() * 2), "add_": lambda t: t.add_(1.5),
    "zero_": lambda t: t.zero_(), "exp_": lambda t: t.exp_(), "square_": lambda t: t.square_(), "item": lambda t: t.__setitem__(0, 3.0),
    "masked_fill_": lambda t: t.masked_fill_(t > 0.6, 0.25),
}  # fmt: skip


def hooked(pack):
    def run(f, x):
        with saved_tensors_hooks(pack, lambda t: t):
            return f(x)

    return run


def on_cpu(f, x):
    with save_on_cpu():
        return f(x)


MODES = {
    "plain": lambda f, x: f(x),
    "checkpoint": lambda f, x: checkpoint(f, x, use_reentrant=False),
    "nested": lambda f, x: checkpoint(
        lambda a: checkpoint(f, a.sin() + 1, use_reentrant=False) * 2, x, use_reentrant=False
    ),
    "reentrant": lambda f, x: checkpoint(f, x, use_reentrant=True),
    "hooks": hooked(lambda t: t),
    "hooks that detach": hooked(lambda t: t.detach()),
    "save_on_cpu": on_cpu,
    "vmap": lambda f, x: mytorch.func.vmap(f)(x[None]),
}


def gradient(mode, op, change, target, after, values, upstream, copies):
    def program(x):
        x = x * 1.25
        y = OPS[op](x.clone() if copies else x)
        t = x if target == "input" else y.clone() if copies else y
        CHANGES[change](t)
        return OPS[after](t).sin().sum() + (y.sum() if target == "input" else 0)

    x = mytorch.tensor(values, requires_grad=True)
    z = MODES[mode](program, x)
    if mode == "reentrant":
        (z * upstream).sum().backward()
        return x.grad.numpy()
    return mytorch.autograd.grad(z, x, mytorch.full_like(z, upstream))[0].numpy()


@loop
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("mode", MODES)
def test_gradients_after_changes_in_place(op, mode, rng):
    values, upstream, wrong = rng.random((2, 3)) + 0.1, float(rng.standard_normal()), []
    turn = list(OPS).index(op) + list(MODES).index(mode)
    for change in list(CHANGES)[turn % 2 :: 2]:
        for target in ("input", "output"):
            given = change, target, "mul" if len(change) % 2 else "sin", values, upstream
            try:
                found = gradient(mode, op, *given, False)
            except mytorch.arrays.errors.InPlaceError:
                if mode not in ("plain", "vmap", "reentrant"):
                    raise
                continue
            if not np.allclose(found, gradient(mode, op, *given, True), rtol=1e-9, atol=1e-12):
                wrong.append((change, target))
    assert not wrong


@loop
@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "NAdam", "LBFGS", "Muon"])
@pytest.mark.parametrize("read", ["reciprocal", "index", "cross_entropy"])
def test_steps_after_graphs_that_are_kept(name, read):
    """An optimizer changes parameters while a graph that saved them is alive. The graph keeps the values before the step."""
    p = mytorch.nn.Parameter(mytorch.rand(2, 3) + 0.5)
    optimizer = getattr(mytorch.optim, name)([p], lr=0.1)
    loss = {
        "reciprocal": lambda: 1 / p, "index": lambda: p[:, mytorch.tensor([0, 2])].sum(1),
        "cross_entropy": lambda: F.cross_entropy(p, mytorch.tensor([0, 2])),
    }[read]().sum()  # fmt: skip
    (before,) = mytorch.autograd.grad(loss, p, retain_graph=True)
    p.grad = before.clone()
    optimizer.step((lambda: loss.detach()) if name == "LBFGS" else None)
    if name != "LBFGS":
        (after,) = mytorch.autograd.grad(loss, p)
        assert after.tolist() == before.tolist()
