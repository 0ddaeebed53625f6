"""Optimizers and learning rate schedulers, compared with PyTorch."""

import re
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.optim import lr_scheduler
from tests.loops import loop

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "dampening": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.5, "eps": 1e-4}),
    ("AdamW", {"lr": 0.01, "amsgrad": True}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("Adadelta", {"lr": 1.0, "rho": 0.8, "weight_decay": 0.01}),
    ("Adamax", {"lr": 0.01, "weight_decay": 0.01}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.01}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.01}),
    ("Rprop", {"lr": 0.01}),
    ("ASGD", {"lr": 0.01, "weight_decay": 0.01, "t0": 20}),
]
SHAPES = [(4, 5), (7,), (), (300, 70)]


def _pair(torch, name, options, fused=None):
    values = [np.asarray(np.random.randn(*s), np.float32) for s in SHAPES]
    mine = [mytorch.nn.Parameter(mytorch.tensor(v)) for v in values]
    theirs = [torch.nn.Parameter(torch.tensor(v)) for v in values]
    extra = {} if fused is None or name not in ("SGD", "Adam", "AdamW") else {"fused": fused}
    return (
        mine,
        theirs,
        getattr(mytorch.optim, name)(mine, **options, **extra),
        getattr(torch.optim, name)(theirs, **options),
    )


def _give(mine, theirs, torch):
    for p, q in zip(mine, theirs, strict=True):
        g = np.asarray(np.random.randn(*p.shape), np.float32)
        p.grad, q.grad = mytorch.tensor(g), torch.tensor(g)


def _same(mine, theirs, tol=2e-5):
    for p, q in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(p.numpy(force=True), q.detach().numpy(), rtol=tol, atol=tol)


@loop
@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_hundred_steps(name, options, fused, torch):
    mine, theirs, a, b = _pair(torch, name, options, fused)
    for _ in range(100):
        _give(mine, theirs, torch)
        a.step()
        b.step()
    _same(mine, theirs)


def test_the_guide_lists_the_optimizers_with_a_kernel():
    text = (Path(__file__).parents[2] / "docs/gpu.md").read_text()
    listed = re.search(r"\* Optimizers: (.*)", text)[1]
    with_kernel = {name for name, cls in vars(mytorch.optim).items() if getattr(cls, "launch", None) is not None}
    assert set(re.split(", | and ", listed)) == with_kernel


@loop
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_compiled_steps_equal_the_plain_rule(name, options):
    start = np.random.default_rng(0).standard_normal((3, 90, 80)).astype(np.float32)
    ends = []
    for fused in (None, False):
        p = mytorch.nn.Parameter(mytorch.tensor(start[0]))
        view = mytorch.nn.Parameter(mytorch.tensor(start[0]).T)  # not contiguous: the plain rule
        optimizer = getattr(mytorch.optim, name)([p, view], **options)
        with mytorch.fused(fused):
            for g in start[1:]:
                p.grad, view.grad = mytorch.tensor(g), mytorch.tensor(g).T
                optimizer.step()
        ends += [p.detach().numpy(), view.detach().numpy().T]
    for end in ends:
        np.testing.assert_allclose(end, ends[-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_parameters_of_one_group_have_different_step_counts(name, options, torch):
    """One parameter is frozen for three steps, and the state of PyTorch is resumed. Numbers of a step follow each step count."""
    mine, theirs, a, b = _pair(torch, name, options)

    def run(steps, frozen=None):
        for _ in range(steps):
            _give(mine, theirs, torch)
            if frozen is not None:
                mine[frozen].grad = theirs[frozen].grad = None
            a.step()
            b.step()
            _same(mine, theirs)

    run(2)
    run(3, frozen=1)
    run(2)
    a.load_state_dict(b.state_dict())
    run(2, frozen=0)
    run(2)
    for p, q in zip(mine, theirs, strict=True):
        if "step" in b.state[q]:
            assert float(a.state[p]["step"]) == float(b.state[q]["step"])


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "ASGD"])
def test_the_numbers_of_a_step_are_computed_once_for_each_step_count(name):
    params = [mytorch.nn.Parameter(mytorch.ones(3)) for _ in range(5)]
    rule, counts = getattr(mytorch.optim, name), []

    class Counting(rule):
        def numbers(self, group, t):
            counts.append(t)
            return super().numbers(group, t)

    optimizer = Counting(params)
    for p in params:
        p.grad = mytorch.ones(3)
    optimizer.step()
    params[2].grad = None
    optimizer.step()
    params[2].grad = mytorch.ones(3)
    optimizer.step()
    assert counts == [1, 2, 3, 2]


@loop
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS[3:])
def test_state_dicts_are_exchanged_with_torch(name, options, torch):
    mine, theirs, a, b = _pair(torch, name, options)
    for _ in range(3):
        _give(mine, theirs, torch)
        a.step()
        b.step()
    fresh = getattr(mytorch.optim, name)(mine, **options)
    fresh.load_state_dict(b.state_dict())
    _give(mine, theirs, torch)
    fresh.step()
    b.step()
    _same(mine, theirs)
    saved = a.state_dict()
    assert list(saved) == ["state", "param_groups"]
    assert saved["param_groups"][0]["params"] == [0, 1, 2, 3]


def test_groups_with_different_options(torch):
    values = [np.random.randn(3).astype(np.float32) for _ in range(2)]
    mine = [mytorch.nn.Parameter(mytorch.tensor(v)) for v in values]
    theirs = [torch.nn.Parameter(torch.tensor(v)) for v in values]

    def groups(p):
        return [{"params": [p[0]], "weight_decay": 0.5}, {"params": [p[1]], "lr": 0.3}]

    a, b = mytorch.optim.AdamW(groups(mine), lr=0.1), torch.optim.AdamW(groups(theirs), lr=0.1)
    for _ in range(5):
        _give(mine, theirs, torch)
        a.step()
        b.step()
    _same(mine, theirs)


def test_written_the_pytorch_way(torch):
    def lion(lib):
        class Lion(lib.optim.Optimizer):
            def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1):
                super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

            @lib.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is None:
                            continue
                        grad, state = p.grad, self.state[p]
                        if len(state) == 0:
                            state["exp_avg"] = lib.zeros_like(p)
                        m = state["exp_avg"]
                        p.data.mul_(1 - group["lr"] * group["weight_decay"])
                        update = m.clone().mul_(group["betas"][0]).add(grad, alpha=1 - group["betas"][0]).sign_()
                        p.add_(update, alpha=-group["lr"])
                        m.mul_(group["betas"][1]).add_(grad, alpha=1 - group["betas"][1])

        return Lion

    values = [np.asarray(np.random.randn(*s), np.float32) for s in SHAPES]
    mine = [mytorch.nn.Parameter(mytorch.tensor(v)) for v in values]
    theirs = [torch.nn.Parameter(torch.tensor(v)) for v in values]
    a, b = lion(mytorch)(mine), lion(torch)(theirs)
    for _ in range(20):
        _give(mine, theirs, torch)
        a.step()
        b.step()
    _same(mine, theirs)


def test_refusals():
    p = mytorch.nn.Parameter(mytorch.ones(2))
    with pytest.raises(ValueError, match="empty parameter list"):
        mytorch.optim.SGD([], lr=0.1)
    with pytest.raises(TypeError, match="iterable of Tensors"):
        mytorch.optim.SGD(p, lr=0.1)
    with pytest.raises(ValueError, match="Invalid learning rate"):
        mytorch.optim.Adam([p], lr=-1)
    with pytest.raises(ValueError, match="non-leaf"):
        mytorch.optim.SGD([p * 2], lr=0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        mytorch.optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)
    with pytest.raises(RuntimeError, match="`fused` does not support `differentiable`"):
        mytorch.optim.AdamW([p], differentiable=True, fused=True)


DIFFERENTIABLE = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True}),
    ("Adagrad", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adadelta", {"lr": 1.0}),
    ("Adamax", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1, "decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.1}),
    ("Rprop", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1}),
]


def _two_steps(L, name, options, start, slope):
    """Returns the result of two steps from `start` with the gradients slope² and -0.5 slope²."""
    p = start.clone()
    optimizer = getattr(L.optim, name)([p], **options)
    for factor in (1.0, -0.5):
        p.grad = slope * slope * factor
        optimizer.step()
    return p


@loop
@pytest.mark.parametrize(("name", "options"), DIFFERENTIABLE)
def test_a_differentiable_step_steps_as_pytorchs_and_has_the_derivatives_of_finite_differences(torch, name, options):
    rng = np.random.default_rng(0)
    start, slope = (rng.uniform(0.3, 2.0, 5) for _ in range(2))
    theirs = _two_steps(torch, name, options, torch.tensor(start), torch.tensor(slope))
    leaves = [mytorch.tensor(x, requires_grad=True) for x in (start, slope)]

    def walk(start, slope):
        return _two_steps(mytorch, name, {**options, "differentiable": True}, start, slope)

    np.testing.assert_allclose(walk(*leaves).detach().numpy(), theirs.numpy(), rtol=1e-8)
    assert mytorch.autograd.gradcheck(walk, leaves)


def test_every_rule_with_the_option_has_a_differentiable_step():
    """Also the rules that PyTorch does not have."""
    rng = np.random.default_rng(0)
    rules = {
        n: c for n, c in vars(mytorch.optim).items() if isinstance(c, type) and issubclass(c, mytorch.optim.Optimizer)
    }
    rules = {
        n
        for n, c in rules.items()
        if c.options is not None and "differentiable" in {**c.options.positional, **c.options.keywords}
    }
    assert {name for name, _ in DIFFERENTIABLE} | {"Lion"} <= rules
    for name in rules:
        leaves = [mytorch.tensor(rng.uniform(0.3, 2.0, 5), requires_grad=True) for _ in range(2)]
        options = {"lr": 0.1, "differentiable": True}
        assert mytorch.autograd.gradcheck(lambda *x, name=name, o=options: _two_steps(mytorch, name, o, *x), leaves), (
            name
        )


def test_a_learning_rate_is_learned_through_a_differentiable_step():
    p, lr = mytorch.ones(3).clone(), mytorch.tensor(0.5, requires_grad=True)
    optimizer = mytorch.optim.SGD([p], lr=lr, differentiable=True)
    p.grad = mytorch.tensor([1.0, 2.0, 3.0])
    optimizer.step()
    p.sum().backward()
    assert lr.grad.item() == -6


def test_beta_spellings_and_closure():
    p = mytorch.nn.Parameter(mytorch.ones(2))
    optimizer = mytorch.optim.AdamW([p], lr=0.1, beta1=0.8, beta2=0.9)
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2


def test_a_step_is_noticed_by_backward():
    p = mytorch.nn.Parameter(mytorch.ones(2))
    loss = (p * p).sum()
    p.grad = mytorch.ones(2)
    mytorch.optim.AdamW([p]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        loss.backward()


SCHEDULES = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.3}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.2, "total_iters": 7}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 12, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 0.4, "total_steps": 45, "cycle_momentum": False}),
    (
        "OneCycleLR",
        {"max_lr": 0.4, "total_steps": 45, "three_phase": True, "anneal_strategy": "linear", "cycle_momentum": False},
    ),
    (
        "CyclicLR",
        {
            "base_lr": 0.01,
            "max_lr": 0.3,
            "step_size_up": 4,
            "step_size_down": 6,
            "mode": "triangular2",
            "cycle_momentum": False,
        },
    ),
    (
        "CyclicLR",
        {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 4, "mode": "exp_range", "gamma": 0.9, "cycle_momentum": False},
    ),
    ("LambdaLR", {"lr_lambda": lambda e: 0.95**e}),
    ("MultiplicativeLR", {"lr_lambda": lambda e: 0.95}),
]


@loop
@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_schedules(name, options, torch):
    rates = []
    for lib, schedule in ((mytorch, lr_scheduler), (torch, torch.optim.lr_scheduler)):
        p = lib.nn.Parameter(lib.ones(1))
        optimizer = lib.optim.SGD([{"params": [p]}, {"params": [lib.nn.Parameter(lib.ones(1))], "lr": 0.5}], lr=0.1)
        scheduler = getattr(schedule, name)(optimizer, **options)
        seen = []
        for _ in range(40):
            optimizer.step()
            scheduler.step()
            seen.append([g["lr"] for g in optimizer.param_groups])
        rates.append(seen)
    np.testing.assert_allclose(*rates, rtol=1e-9)


def test_cosine_with_warmup():
    p = mytorch.nn.Parameter(mytorch.ones(1))
    optimizer = mytorch.optim.SGD([p], lr=1.0)
    schedule = lr_scheduler.CosineLRScheduler(optimizer, max_lr=1e-3, min_lr=1e-4, total_steps=100, warmup_steps=10)
    rates = []
    for _ in range(101):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    assert np.argmax(rates) == 10
    assert rates[10] == 1e-3
    assert abs(rates[100] - 1e-4) < 1e-12
    twin = lr_scheduler.CosineLRScheduler(optimizer, 1e-3, 1e-4, 100, 10)
    twin.load_state_dict(schedule.state_dict())
    assert twin.step_count == 101


def _schedule_pair(torch, build):
    rates = []
    for lib, schedule in ((mytorch, lr_scheduler), (torch, torch.optim.lr_scheduler)):
        optimizer = lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=0.1, momentum=0.9)
        rates.append(build(schedule, optimizer))
    np.testing.assert_allclose(*rates, rtol=1e-9)


def test_plateau(torch):
    metrics = [1.0, 0.9, 0.95, 0.94, 0.93, 0.92, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]

    def build(schedule, optimizer):
        s = schedule.ReduceLROnPlateau(optimizer, patience=2, cooldown=1, factor=0.5)
        seen = []
        for m in metrics:
            s.step(m)
            seen.append(optimizer.param_groups[0]["lr"])
        return seen

    _schedule_pair(torch, build)


@pytest.mark.filterwarnings("ignore")
def test_chained_and_sequential(torch):
    def chained(schedule, optimizer):
        s = schedule.ChainedScheduler([schedule.ConstantLR(optimizer, 0.1, 3), schedule.ExponentialLR(optimizer, 0.9)])
        return _rates(s, optimizer)

    def sequential(schedule, optimizer):
        first, second = schedule.LinearLR(optimizer, 0.1, total_iters=5), schedule.CosineAnnealingLR(optimizer, 20)
        return _rates(schedule.SequentialLR(optimizer, [first, second], [5]), optimizer)

    _schedule_pair(torch, chained)
    _schedule_pair(torch, sequential)


def _rates(schedule, optimizer):
    seen = []
    for _ in range(25):
        optimizer.step()
        schedule.step()
        seen.append(optimizer.param_groups[0]["lr"])
    return seen


LBFGS = [
    {}, {"lr": 0.3}, {"history_size": 2}, {"max_iter": 3}, {"max_iter": 9, "max_eval": 4}, {"tolerance_grad": 0.5},
    {"tolerance_change": 0.02}, {"tolerance_grad": 0.0, "tolerance_change": 0.0, "max_iter": 12},
]  # fmt: skip


@loop
@pytest.mark.parametrize("options", LBFGS)
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("scale", [0.3, 20.0])
def test_lbfgs_takes_pytorchs_steps(scale, search, options, torch, rng):
    """Parameters, losses, evaluations and state: near the minimum, and far away, where a line search has to come back."""
    matrix, target, start = rng.standard_normal((5, 4)), rng.standard_normal(5), rng.standard_normal((2, 2)) * scale
    found = []
    for L in (mytorch, torch):
        A, b = L.tensor(matrix), L.tensor(target)
        parts = [L.nn.Parameter(L.tensor(row)) for row in start]
        optimizer = L.optim.LBFGS(parts, **{"lr": 0.1, "max_iter": 5, **options}, line_search_fn=search)
        seen = []

        def closure():
            optimizer.zero_grad()  # noqa: B023 - called at once
            x = L.cat(parts)  # noqa: B023
            loss = (A @ x - b).square().sum() + (x - x.roll(1)).pow(4).sum()  # noqa: B023
            loss.backward()
            seen.append(loss.item())  # noqa: B023
            return loss

        for _ in range(3):
            seen.append(optimizer.step(closure).item())
            seen += [p.item() for part in parts for p in part.detach()]
        state = optimizer.state[parts[0]]
        seen += [
            state["func_evals"],
            state["n_iter"],
            state["H_diag"],
            state["t"],
            len(state["old_dirs"]),
            float(state["prev_loss"]),
        ]
        found.append([float(number) for number in seen])
    assert len(found[0]) == len(found[1])
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-9)


@pytest.mark.cpu_only
@pytest.mark.parametrize("name", "Adam AdamW RMSprop Adadelta Adamax NAdam RAdam ASGD Rprop Lion".split())
def test_capturable_is_refused_on_the_cpu(name):
    p = mytorch.nn.Parameter(mytorch.ones(3))
    optimizer = getattr(mytorch.optim, name)([p], capturable=True)
    optimizer.step()  # nothing to update
    p.grad = mytorch.ones(3)
    with pytest.raises(AssertionError, match="capturable"):
        optimizer.step()


@pytest.mark.cpu_only
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_computes_in_the_dtype_of_the_parameters(search, dtype, torch):
    found = []
    for L in (mytorch, torch):
        p = L.nn.Parameter(L.tensor([1.0, -2.0, 3.0]).to(getattr(L, dtype)))
        optimizer = L.optim.LBFGS([p], lr=0.1, max_iter=3, line_search_fn=search)

        def closure(p=p, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        state = optimizer.state[p]
        kept = [state["d"], state["H_diag"], *state["ro"], *state["old_stps"]]
        found.append((p.tolist(), [(str(t.dtype).rpartition(".")[2], t.tolist()) for t in kept]))
    assert found[0][0] == found[1][0] or search
    assert [name for name, _ in found[0][1]] == [name for name, _ in found[1][1]]


def test_lbfgs_of_complex_parameters_of_several_dtypes():
    params = [
        mytorch.nn.Parameter(mytorch.ones(n, dtype=d)) for n, d in ((2, mytorch.complex64), (3, mytorch.complex128))
    ]
    optimizer = mytorch.optim.LBFGS(params)

    def closure():
        optimizer.zero_grad()
        loss = sum((abs(p - 2j) ** 2).sum().double() for p in params)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert all(abs(p.detach() - 2j).max().item() < 1e-6 for p in params)


@loop
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "dampening": 0.3}, {"weight_decay": 0.1, "nesterov": True}],
)
def test_momentum_has_the_dtype_of_the_parameter(options, dtype):
    p = mytorch.nn.Parameter(mytorch.ones(3, dtype=getattr(mytorch, dtype)))
    optimizer = mytorch.optim.SGD([p], lr=0.1, momentum=0.9, **options)
    for _ in range(2):
        p.grad = mytorch.ones_like(p)
        optimizer.step()
        assert optimizer.state[p]["momentum_buffer"].dtype == p.dtype
