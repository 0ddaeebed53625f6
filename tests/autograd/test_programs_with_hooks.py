"""Random programs of views, in-place changes, hooks, several backward passes, second derivatives and changed gradients, compared with PyTorch.

Each seed is one program. After each statement, values, dtypes, strides and flags of all tensors and of their gradients are compared, and what
the hooks saw. A program ends where PyTorch raises an error about a graph. `python -m tests.autograd.test_programs_with_hooks 7` shows program 7.
"""

import copy
import random
import sys

import numpy as np
import pytest

import mytorch
from mytorch.arrays import config
from tests.loops import loop

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.cpu_only]

VIEWS = """[0]|[1:]|[:, 1]|[:, ::2]|.t()|.view(-1)|.diagonal()|.unsqueeze(0)|.unbind()[1]|.split(2)[0]|.narrow(1, 0, 2)|.movedim(0, 1)
.as_strided((2, 2), (1, 3))|.select(1, 2)|.flatten()|.squeeze()|.real|.detach()|.data|.mT|.hsplit(3)[0]|[:]|.unflatten(0, (3, 1))"""
CHANGES = """.mul_(2)|.add_(1.5)|.sin_()|.exp_()|.zero_()|.fill_(0.5)|.copy_({s})|.neg_()|.clamp_(-0.5, 0.5)|.mul_({s})|.add_({s}, alpha=2)|.tanh_()
.relu_()|.square_()|.masked_fill_({x} > 0, 0.25)|.addcmul_({s}, {s})|.lerp_({s}, 0.3)|.pow_(2)|.requires_grad_()|.detach_()|.cumsum_(0)|.triu_()
.index_fill_(0, L.tensor([0]), 0.5)|.mul_({x})|.transpose_(0, -1)|.unsqueeze_(0)|.abs_()|.xlogy_({s})|.hypot_({s})|.fill_diagonal_(2)|.normal_()"""
RESULTS = """.sin()| * 2| ** 2|.tanh()|.sum(0)|.sum()|.mean(-1)|.clone()|.softmax(-1)|.cumsum(0)|.contiguous()|.norm()|.prod()|.max(0)[0]|.std(0)
.sort(-1)[0]|.abs()| + k|.flip(0)|.repeat(2, 1)|.square()|.pow(3)|.cumprod(-1)|.matmul(c)|.tril()|.masked_select({x} > 0)|.float().double()"""
HOOKS = """{x}.register_hook(lambda g: g * 2)|{x}.register_hook(lambda g: log.append(g.clone().detach()))|{x}.retain_grad()|h{m}.remove()
{x}.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone().detach()))|{x}.grad_fn.register_hook(lambda gi, go: log.append(len(gi)))
{x}.grad_fn.register_prehook(lambda go: tuple(g * 3 for g in go))|{x}.register_hook(lambda g: g @ w if g.shape == w.shape else g)
{x}.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))|h{n} = {x}.register_hook(lambda g: -g)"""
BACKWARD = """{l}.backward(retain_graph=True)|{l}.backward()|{l}.backward(create_graph=True)|{l}.backward(inputs=[a, w], retain_graph=True)
{x}.backward({x}.detach().clone(), create_graph=True)|L.autograd.backward([{l}, {y}.sum()], retain_graph=True)|v{n} = a.grad * 2|a.grad.zero_()
v{n} = L.autograd.grad({l}, [a], create_graph=True, allow_unused=True)[0]|v{n} = a.grad.clone()|a.grad = None|a.grad.add_({x})|a.grad.detach_()
v{n} = L.autograd.grad({l}, [b, w], create_graph=True, materialize_grads=True)[1]|a.grad.mul_(w)|a.grad[0] = b[1]|w.grad.t().mul_(a)
with L.no_grad(): a -= 0.1 * a.grad|a.grad = L.ones_like(a)|a.data.mul_(0.5)|L.nn.utils.clip_grad_norm_([a, w], 0.5)|a.grad.requires_grad_()
o = L.optim.SGD([a, b, w], 0.1, momentum=0.9); o.step(); o.zero_grad(set_to_none=False)|o = L.optim.Adam([a, w], 0.1); o.step(); o.zero_grad()"""
FUNCTIONS = """v{n} = Square.apply({x})|v{n}, u{n} = Two.apply({x}, 2.5)|v{n} = Dirty.apply({x})|v{n} = checkpoint(lambda t: (t.sin() * a).exp(), {x})
v{n}, u{n} = Products.apply({x}, {y})|v{n} = checkpoint(lambda t: t.mul_(2).sin(), {x} * 1)|v{n} = L.func.grad(lambda t: (t.sin() * {y}).sum())({x})
v{n} = L.func.jacfwd(lambda t: t.mul(2).add_(w).sin().sum(-1))({x})|v{n} = L.func.hessian(lambda t: (t.clone().mul_(t) * t).sum())({x})
v{n} = L.func.vjp(lambda t: t.sin() * w, {x})[1](L.ones(3, 3, dtype=L.float64))[0]|v{n} = L.func.jvp(lambda t: t.mul(2).sin_() * t, ({x},), ({x}.cos(),))[1]"""
LOSSES = "{x}.sum()|{x}.square().sum()|{x}.sin().sum()|({x} * {x}).mean()|{x}.norm()|({x}.sum() * {y}.sum())"
REGIONS = (
    "",
    "",
    "",
    "with L.no_grad(): ",
    "with L.enable_grad(): ",
    "with L.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t): ",
)
HEAD = """
values = np.random.default_rng(0)
def data(*s): return L.from_numpy(np.round(values.standard_normal(s), 2))
def checkpoint(f, *args): return L.utils.checkpoint.checkpoint(f, *args, use_reentrant=False)
class Square(L.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x * x
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; return 2 * x * g
class Two(L.autograd.Function):
    @staticmethod
    def forward(ctx, x, k): ctx.k = k; y = x.sin(); ctx.save_for_backward(x, y); return y, x * k
    @staticmethod
    def backward(ctx, g, h): x, y = ctx.saved_tensors; return g * x.cos() + ctx.k * h + 0 * y, None
class Dirty(L.autograd.Function):
    @staticmethod
    def forward(ctx, x): x.mul_(3); ctx.mark_dirty(x); return x
    @staticmethod
    def backward(ctx, g): return g * 3
class Products(L.autograd.Function):
    @staticmethod
    def forward(x, w): return x @ w, x + 0
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g, h): x, w = ctx.saved_tensors; return g @ w.t() + h, x.t() @ g
a = data(3, 3).requires_grad_(); b = data(3, 3).requires_grad_(); c = data(3, 3); w = L.nn.Parameter(data(3, 3)); k = data(3)
y = a * b; z = (a @ w).tanh(); log = []
"""


def _program(seed):
    r = random.Random(seed)

    def of(lines):
        return r.choice(lines.replace("\n", "|").split("|"))

    names, computed, lines = list("abwckyz"), ["y", "z"], []
    for n in range(r.randint(5, 14)):
        x = r.choice(computed if r.random() < 0.7 else names)
        kind = r.random()
        if kind < 0.16:
            line = f"v{n} = {{x}}{of(VIEWS)}"
        elif kind < 0.4:
            line = f"{{x}}{of(VIEWS) if r.random() < 0.5 else ''}{of(CHANGES)}"
        elif kind < 0.55:
            line = f"v{n} = {{x}}{of(RESULTS)}"
        elif kind < 0.6:
            line = f"v{n} = {{x}} {r.choice('+*-/@')} {{y}}"
        else:
            line = of(HOOKS if kind < 0.7 else BACKWARD if kind < 0.9 else FUNCTIONS)
        line = line.replace("{l}", of(LOSSES))
        for place, text in {
            "x": x,
            "y": r.choice(names),
            "s": r.choice("ckab" + x[:1] * (len(x) == 1)),
            "n": n,
            "m": r.randint(0, n),
        }.items():
            line = line.replace("{" + place + "}", str(text))
        lines.append(r.choice(REGIONS) * (0.16 < kind < 0.6) + line)
        if line.startswith(f"v{n}"):
            names.append(f"v{n}")
            computed.append(f"v{n}")
    return [*lines, f"{computed[-1]}.sum().backward()"]


def _seen(x, tensor, with_gradient=True):
    if not isinstance(x, tensor):
        return x
    try:
        flags = x.requires_grad, x.is_leaf, tuple(x.shape), x.stride()
    except RuntimeError:  # a view whose base was changed
        return "refused"
    gradient = x.grad if with_gradient and x.is_leaf else None
    return flags, None if gradient is None else _seen(gradient, tensor, False), np.array(x.detach().numpy())


def _same(mine, theirs):
    if isinstance(theirs, (tuple, list)):
        return type(mine) is type(theirs) and len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(theirs, np.ndarray):
        return mine.dtype == theirs.dtype and np.allclose(mine, theirs, rtol=1e-8, atol=1e-10, equal_nan=True)
    return mine == theirs


def _unusual(error, line):
    """Whether a program ends at an error: it is about the graph, a known difference, or came in the middle of a backward pass."""
    words = (
        "modified by an inplace",
        "single memory",
        "Batching rule",
        "view was created",
        "leaf node",
        "detached in-place",
        "is a view and",
    )
    return (
        isinstance(error, AssertionError)
        or "ackward" in line
        or "step()" in line
        or any(w in str(error) for w in words)
    )


@loop
@pytest.mark.parametrize("seed", range(150))
def test_programs_of_hooks_and_changed_gradients(seed, torch, monkeypatch):
    monkeypatch.setattr(config, "pytorch_mode", True)
    programs = []
    for L in (torch, mytorch):
        scope = {"L": L, "np": np}
        L.manual_seed(seed)
        exec(HEAD, scope)
        programs.append((scope, L.Tensor))
    for line in _program(seed):
        errors = []
        for scope, _ in programs:
            try:
                exec(line, scope)
                errors.append(None)
            except Exception as error:  # noqa: BLE001  both libraries have to refuse
                errors.append(error)
        theirs, mine = errors
        if theirs is not None and (mine is None or _unusual(theirs, line)):
            return
        assert (mine is None) == (theirs is None), (line, mine)
        (theirs, kind), (mine, own) = programs
        for name, value in theirs.items():
            if isinstance(value, kind) or name == "log":
                values = [
                    [_seen(v, t) for v in (s[name] if name == "log" else [s[name]])]
                    for s, t in ((mine, own), (theirs, kind))
                ]
                if "refused" in values[1]:
                    return
                assert _same(*values), (line, name, *values)


GRADIENTS = {
    "add_": lambda L, p, q: p.grad.add_(q * 3), "mul_": lambda L, p, q: p.grad.mul_(q), "item": lambda L, p, q: p.grad.__setitem__(0, q[0] * 3),
    "view": lambda L, p, q: p.grad[:1].mul_(q[:1]), "copy_": lambda L, p, q: p.grad.copy_(q), "zero_": lambda L, p, q: p.grad.zero_(),
    "assigned": lambda L, p, q: setattr(p, "grad", q * 2), "later": lambda L, p, q: _later(L, p, q), "leaf": lambda L, p, q: p.grad.requires_grad_(),
    "detach_": lambda L, p, q: p.grad.detach_(), "zero_grad": lambda L, p, q: L.optim.SGD([p], 0.1).zero_grad(set_to_none=False),
    "step": lambda L, p, q: L.optim.Adam([p], 0.1).step(), "clip": lambda L, p, q: L.nn.utils.clip_grad_norm_([p], 0.1), "none": lambda L, p, q: None,
    "constant": lambda L, p, q: p.detach_(), "frozen": lambda L, p, q: p.requires_grad_(False),
}  # fmt: skip


def _later(L, p, q):
    p.grad = L.ones(2, dtype=L.float64)
    p.grad.mul_(q)


@loop
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("change", GRADIENTS)
def test_gradients_that_join_a_graph_keep_it(change, recorded, torch, monkeypatch):
    monkeypatch.setattr(config, "pytorch_mode", True)
    results = []
    for L in (torch, mytorch):
        p = L.tensor([1.0, 2.0], dtype=L.float64, requires_grad=True)
        q = L.tensor([3.0, -1.0], dtype=L.float64, requires_grad=True)
        (p**3).sum().backward(create_graph=recorded)
        held = p.grad
        GRADIENTS[change](L, p, q)
        found = [p.grad is held, _seen(p.grad, L.Tensor), _seen(held, L.Tensor)]
        if p.requires_grad:
            (p**2).sum().backward()
            found += [p.grad is held, _seen(p.grad, L.Tensor)]
        if p.grad.requires_grad and p.requires_grad and change != "step":  # a step changes values that backward needs
            found += [_seen(g, L.Tensor) for g in L.autograd.grad(p.grad.sum(), [p, q], allow_unused=True)]
        copied = copy.deepcopy(p.grad.detach())
        found.append(sorted(copied.__dict__))
        results.append(found)
    assert _same(results[1], results[0]), results


if __name__ == "__main__":
    print("\n".join(_program(int(sys.argv[1]))))
