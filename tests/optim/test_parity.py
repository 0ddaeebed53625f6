"""Optimizers against PyTorch: steps, state layout, hooks, saving, subclasses, `_foreach_` functions, averages of weights."""

import copy
import importlib
import inspect
import pickle
import warnings

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")

RULES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.01}),
    ("AdamW", {"lr": 0.1}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.01}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.01, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.01}),
    ("Rprop", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "t0": 2}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01}),
    ("Adadelta", {"lr": 0.1}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.01}),
    ("Adafactor", {"lr": 0.1, "d": 2.0, "eps": (1e-6, 1e-2)}),
    ("Muon", {"lr": 0.1}),
    ("Muon", {"lr": 0.1, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
]
IDS = [f"{n}-{i}" for i, (n, _) in enumerate(RULES)]
REAL = [r for r in RULES if r[0] not in ("Adafactor", "Muon")]


def _twins(name, options, shapes, dtype=np.float32, named=False):
    rng = np.random.default_rng(0)
    first = [
        rng.standard_normal(s) + (1j * rng.standard_normal(s) if np.dtype(dtype).kind == "c" else 0) for s in shapes
    ]
    made = []
    for L in (torch, mytorch):
        ps = [L.nn.Parameter(L.tensor(np.asarray(x).astype(dtype))) for x in first]
        pairs = [(f"p{i}", p) for i, p in enumerate(ps)] if named else ps
        made.append((ps, getattr(L.optim, name)(pairs, **options)))
    return made


def _steps(made, count, seed=1):
    for t in range(count):
        rng = np.random.default_rng(seed + t)
        grads = [rng.standard_normal(tuple(p.shape)) for p in made[0][0]]
        if made[0][0][0].is_complex():
            grads = [g + 1j * rng.standard_normal(g.shape) for g in grads]
        for (ps, optimizer), L in zip(made, (torch, mytorch), strict=True):
            for p, g in zip(ps, grads, strict=True):
                p.grad = L.tensor(g).to(p.dtype)
            optimizer.step()


def _host(x):
    return np.asarray(x.detach().resolve_conj().numpy() if isinstance(x, torch.Tensor) else x.detach())


def _compare(made, rtol=2e-5, atol=2e-6):
    for a, b in zip(made[0][0], made[1][0], strict=True):
        np.testing.assert_allclose(_host(b), _host(a), rtol=rtol, atol=atol)


@loop
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("name", "options"), RULES, ids=IDS)
def test_steps_agree(name, options, maximize):
    if maximize and name == "Muon":
        pytest.skip("it has no such option")
    options = {**options, "maximize": True} if maximize else options
    made = _twins(name, options, [(4, 3), (3, 5)] if name == "Muon" else [(4, 3), (5,), (2, 3, 4)])
    _steps(made, 6)
    _compare(made, **({"rtol": 2e-2, "atol": 2e-2} if name == "Muon" else {}))  # its products are in bfloat16


@loop
@pytest.mark.parametrize(("name", "options"), REAL, ids=lambda x: x if isinstance(x, str) else "")
def test_complex_parameters(name, options):
    made = _twins(name, options, [(4, 3), (5,)], np.complex64)
    _steps(made, 5)
    _compare(made, 1e-4, 1e-5)
    kinds = (
        [
            {k: np.asarray(_host(v)).dtype.kind for k, v in s.items()}
            for s in (made[0][1].state_dict()["state"][0], made[1][1].state_dict()["state"].get(0, {}))
        ]
        if made[0][1].state_dict()["state"]
        else [0, 0]
    )
    assert kinds[0] == kinds[1]


@loop
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("name", "options"), RULES, ids=IDS)
def test_state_dict_has_pytorchs_layout(name, options, named):
    made = _twins(name, options, [(4, 3), (2, 2)], named=named)
    _steps(made, 5)
    theirs, mine = (m[1].state_dict() for m in made)
    assert mine["param_groups"] == theirs["param_groups"]
    assert [list(g) for g in mine["param_groups"]] == [list(g) for g in theirs["param_groups"]]

    def layout(state):
        return {
            i: [
                (k, str(v.dtype).split(".")[-1], tuple(v.shape)) if hasattr(v, "dtype") else (k, type(v))
                for k, v in s.items()
            ]
            for i, s in state.items()
        }

    assert layout(mine["state"]) == layout(theirs["state"])
    for i, values in theirs["state"].items():
        for key, value in values.items():
            # Parameters do not show all of it: ASGD, for example, never reads the average that it stores.
            np.testing.assert_allclose(_host(mine["state"][i][key]), np.asarray(value), 1e-4, 1e-6, err_msg=key)


@loop
@pytest.mark.parametrize(("name", "options"), RULES, ids=IDS)
def test_pytorchs_state_is_taken_over(name, options):
    made = _twins(name, options, [(4, 3), (2, 2)])
    _steps(made, 3)
    loaded = _twins(name, options, [(4, 3), (2, 2)])
    for a, b in zip(made[0][0], loaded[1][0], strict=True):
        b.data = a.detach().numpy().copy()
    loaded[1][1].load_state_dict(made[0][1].state_dict())
    both = [made[0], loaded[1]]
    _steps(both, 3, seed=9)
    _compare(both, **({"rtol": 2e-2, "atol": 2e-2} if name == "Muon" else {"rtol": 1e-4, "atol": 1e-5}))


@loop
@pytest.mark.parametrize(("name", "options"), RULES, ids=IDS)
def test_copies_and_pickles_go_on_alike(name, options):
    ps, optimizer = _twins(name, options, [(4, 3)])[1]
    (ps[0] * ps[0]).sum().backward()
    optimizer.step()
    before = np.array(_host(ps[0]))
    results = []
    for again in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: x):
        (p,), twin = again((ps, optimizer))
        assert twin.param_groups[0]["params"][0] is p
        np.testing.assert_array_equal(before, _host(p))
        p.grad = mytorch.ones(4, 3)
        twin.step()
        results.append(np.array(_host(p)))
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[2])


@loop
@pytest.mark.parametrize("name", sorted({n for n, _ in RULES} | {"LBFGS", "SparseAdam"}))
def test_signatures_agree(name):
    theirs, mine = (
        list(inspect.signature(getattr(L.optim, name).__init__).parameters.values()) for L in (torch, mytorch)
    )
    mine = [p for p in mine if p.name not in ("beta1", "beta2")]  # MyTorch's names, besides PyTorch's
    assert [(p.name, p.default, p.kind) for p in mine] == [(p.name, p.default, p.kind) for p in theirs]


@loop
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": -1}),
        ("SGD", {"nesterov": True}),
        ("Adam", {"betas": (1.0, 0.9)}),
        ("Adam", {"fused": True, "foreach": True}),
        ("Adam", {"fused": True, "differentiable": True}),
        ("NAdam", {"momentum_decay": -1}),
        ("Adafactor", {"beta2_decay": 1.0}),
        ("Adafactor", {"d": 0.5}),
        ("Muon", {"adjust_lr_fn": "other"}),
        ("SparseAdam", {"eps": 0.0}),
        ("SparseAdam", {"lr": 0.0}),
    ],
)
def test_invalid_options_raise_the_same_errors_as_pytorch(name, options):
    errors = []
    for L in (torch, mytorch):
        with pytest.raises((ValueError, RuntimeError)) as caught:
            getattr(L.optim, name)([L.nn.Parameter(L.ones(2, 2))], **options)
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


def test_tensor_lr_and_its_limits():
    made = []
    for L in (torch, mytorch):
        p = L.nn.Parameter(L.ones(3))
        optimizer = L.optim.AdamW([p], lr=L.tensor(0.1))
        scheduler = L.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for _ in range(3):
            p.grad = L.ones(3)
            optimizer.step()
            scheduler.step()
        made.append(([p], optimizer))
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.0125)
        with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
            L.optim.SGD([p], lr=L.ones(2))
        with pytest.raises(ValueError, match="lr as a Tensor is not supported for capturable=False and foreach=True"):
            L.optim.AdamW([p], lr=L.tensor(0.1), foreach=True)
        others = made[-1][0]
        for kind in ("SGD", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"):
            q = L.nn.Parameter(L.ones(3))
            optimizer = getattr(L.optim, kind)([q], lr=L.tensor(0.1), foreach=True)
            q.grad = L.ones(3)
            optimizer.step()
            others.append(q)
    _compare(made)


_RATES = "SGD Adagrad Adadelta Adamax NAdam RAdam RMSprop Rprop ASGD".split()


@pytest.mark.parametrize("name", _RATES)
def test_a_tensor_as_lr_together_with_foreach(name):
    made = []
    for L in (torch, mytorch):
        p = L.nn.Parameter(L.ones(2, 3))
        made.append(([p], getattr(L.optim, name)([p], lr=L.tensor(0.1), foreach=True)))
    _steps(made, 4)
    _compare(made)


@pytest.mark.parametrize("options", [{}, {"momentum_decay": 0.5}, {"betas": (0.3, 0.5)}])
def test_nadam_rounds_its_product_to_float32(options):
    made = _twins("NAdam", options, [(3, 4)], np.float64)
    _steps(made, 6)
    _compare(made, 1e-12, 1e-12)


def test_groups_are_checked_as_pytorch_checks_them():
    for L in (torch, mytorch):
        p, q = L.nn.Parameter(L.ones(2)), L.nn.Parameter(L.ones(2))
        optimizer = L.optim.SGD([("p", p)], lr=0.1)
        assert optimizer.defaults["lr"] == 0.1
        with pytest.raises(ValueError, match="with/without names"):
            optimizer.add_param_group({"params": [q]})
        with pytest.raises(ValueError, match="with/without names"):
            L.optim.SGD([("p", p), q], lr=0.1)
        with pytest.raises(ValueError, match="more than one parameter group"):
            optimizer.add_param_group({"params": [("again", p)]})
        with pytest.raises(TypeError, match="sets"):
            L.optim.SGD([{"params": {p}}], lr=0.1)
        with pytest.raises(TypeError, match="iterable of Tensors or dicts"):
            L.optim.SGD(p, lr=0.1)
        with pytest.raises(ValueError, match="non-leaf"):
            L.optim.SGD([p * 2], lr=0.1)
        with pytest.raises(TypeError, match="can only optimize Tensors"):
            L.optim.SGD([1], lr=0.1)
        with pytest.warns(UserWarning, match="duplicate parameters"):
            L.optim.SGD([p, p], lr=0.1)
        optimizer.add_param_group({"params": [("q", q)], "lr": 0.5})
        assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.5]
        assert "Parameter Group 1\n" in repr(optimizer)
    assert optimizer.state_dict()["param_groups"][1]["param_names"] == ["q"]


def test_repr_is_pytorchs():
    texts = [repr(L.optim.Adam([L.nn.Parameter(L.ones(2))], lr=0.1)) for L in (torch, mytorch)]
    for line in texts[0].splitlines():
        assert line in texts[1]


def test_hooks_are_called_in_pytorchs_order():
    logs = []
    for L in (torch, mytorch):
        module, log = importlib.import_module(f"{L.__name__}.optim.optimizer"), []
        p = L.nn.Parameter(L.ones(2))
        p.grad = L.ones(2)
        o = L.optim.SGD([p], lr=0.1)
        handles = [
            module.register_optimizer_step_pre_hook(lambda *a, log=log: log.append(("global pre", len(a[1])))),
            module.register_optimizer_step_post_hook(lambda *a, log=log: log.append("global post")),
        ]
        o.register_step_pre_hook(lambda opt, args, kwargs, log=log: log.append(("pre", args[0] is opt, kwargs)))
        o.register_step_post_hook(lambda opt, args, kwargs, log=log: log.append("post"))
        o.register_state_dict_pre_hook(lambda opt, log=log: log.append("sd pre"))
        o.register_state_dict_post_hook(lambda opt, sd, log=log: log.append(("sd post", sorted(sd))))
        o.register_state_dict_post_hook(lambda opt, sd: {**sd, "more": 1})
        o.register_load_state_dict_pre_hook(lambda opt, sd, log=log: log.append(("load pre", "more" in sd)))
        o.register_load_state_dict_pre_hook(lambda opt, sd, log=log: log.append("first"), prepend=True)
        o.register_load_state_dict_post_hook(lambda opt, log=log: log.append("load post"))
        o.step()
        o.load_state_dict(o.state_dict())
        for handle in handles:
            handle.remove()
        o.register_step_pre_hook(lambda opt, args, kwargs: 3)
        with pytest.raises(RuntimeError, match="must return None or a tuple"):
            o.step()
        logs.append(log)
    assert logs[0] == logs[1]


def _lion(L):
    class Lion(L.optim.Optimizer):
        def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0):
            super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

        @L.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with L.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    grad = p.grad
                    if grad.is_sparse:
                        raise RuntimeError("no sparse gradients")
                    state = self.state[p]
                    if len(state) == 0:
                        state["exp_avg"] = L.zeros_like(p, memory_format=L.preserve_format)
                    m = state["exp_avg"]
                    p.data.mul_(1 - group["lr"] * group["weight_decay"])
                    update = m.clone().mul_(beta1).add_(grad, alpha=1 - beta1).sign_()
                    p.add_(update, alpha=-group["lr"])
                    m.mul_(beta2).add_(grad, alpha=1 - beta2)
            return loss

    return Lion


def test_an_optimizer_written_for_pytorch():
    made = []
    for L in (torch, mytorch):
        p = L.nn.Parameter(L.tensor(np.arange(6, dtype=np.float32)))
        o = _lion(L)([p], weight_decay=0.1)
        losses = []
        for _ in range(4):

            def closure(o=o, p=p):
                o.zero_grad()
                loss = ((p - 2) ** 2).sum()
                loss.backward()
                return loss

            losses.append(float(o.step(closure).detach()))
        again = _lion(L)([p], weight_decay=0.1)
        again.load_state_dict(o.state_dict())
        assert type(again.state[p]["exp_avg"]) is L.Tensor
        p.grad = L.ones(6)
        again.step()
        made.append(([p], o, losses))
    assert made[0][2] == pytest.approx(made[1][2], rel=1e-5)
    _compare([m[:2] for m in made])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lion_is_the_rule_written_for_pytorch(dtype):
    rng = np.random.default_rng(0)
    start, grads = rng.standard_normal((3, 4)), rng.standard_normal((6, 3, 4))
    made = []
    for L, kind in ((torch, _lion(torch)), (mytorch, mytorch.optim.Lion)):
        p = L.nn.Parameter(L.tensor(start, dtype=getattr(L, dtype)))
        o = kind([p], lr=0.03, betas=(0.9, 0.95), weight_decay=0.1)
        for g in grads:
            p.grad = L.tensor(g, dtype=getattr(L, dtype))
            o.step()
        made.append((p.detach().numpy(), o.state[p]["exp_avg"].numpy()))
    for a, b in zip(*made, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5)


LISTS = [
    ("abs", ()), ("sqrt", ()), ("neg", ()), ("exp", ()), ("sign", ()), ("reciprocal", ()), ("rsqrt", ()), ("log", ()),
    ("add", (2.0,)), ("add", ([1.0, 2.0],)), ("add", ("T",)), ("sub", ("T",)), ("mul", (3.0,)), ("mul", ("T",)), ("div", ("T",)),
    ("div", (2.0,)), ("pow", (2.0,)), ("maximum", ("T",)), ("minimum", (1.0,)), ("clamp_min", (1.0,)), ("clamp_max", ([1.0, 0.5],)),
    ("addcmul", ("T", "T", 0.5)), ("addcmul", ("T", "T", [0.5, 2.0])), ("addcdiv", ("T", "T", 0.5)), ("lerp", ("T", 0.3)), ("lerp", ("T", "T")),
]  # fmt: skip


@loop
@pytest.mark.parametrize(("name", "args"), LISTS, ids=lambda x: x if isinstance(x, str) else "")
def test_foreach(name, args):
    rng = np.random.default_rng(0)
    lists = [[rng.random(s).astype(np.float32) + 0.5 for s in ((2, 3), (4,))] for _ in range(4)]
    results = []
    for L in (torch, mytorch):
        mine = [[L.tensor(x) for x in xs] for xs in lists]
        given = [mine[i + 1] if a == "T" else a for i, a in enumerate(args)]
        out = getattr(L, f"_foreach_{name}")(mine[0], *given)
        assert isinstance(out, (list, tuple))
        assert len(getattr(L, f"_foreach_{name}_")(mine[0], *given)) == len(mine[0])
        results.append([*out, *mine[0]])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(_host(b), _host(a), rtol=2e-6)


def test_foreach_norm_copy_zero_and_alpha():
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (4,))]
    results = []
    for L in (torch, mytorch):
        a, b = [L.tensor(x) for x in xs], [L.zeros(2, 3), L.zeros(4)]
        out = [*L._foreach_norm(a), *L._foreach_norm(a, 1), *L._foreach_max(a)]
        L._foreach_copy_(b, a)
        L._foreach_add_(b, a, alpha=0.5)
        L._foreach_zero_(a)
        results.append([*out, *a, *b])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(_host(b), _host(a), rtol=1e-6)
    with pytest.raises(RuntimeError, match="same number"):
        mytorch._foreach_add([mytorch.ones(2)], [mytorch.ones(2), mytorch.ones(2)])
    with pytest.raises(TypeError):
        mytorch._foreach_sqrt(mytorch.ones(2))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_adam_refuses_dense_gradients_and_steps_rows():
    for L in (torch, mytorch):
        p = L.nn.Parameter(L.ones(3, 2))
        p.grad = L.ones(3, 2)
        with pytest.raises(
            RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"
        ):
            L.optim.SparseAdam([p]).step()
    q = torch.nn.Parameter(torch.ones(4, 2))
    theirs = torch.optim.SparseAdam([q], lr=0.1)
    mine = mytorch.optim.SparseAdam([mytorch.nn.Parameter(mytorch.ones(4, 2))], lr=0.1)
    raw, state = np.ones((4, 2), np.float32), {}
    for t in range(4):
        rows, values = np.array([0, (t % 3) + 1]), np.random.default_rng(t).standard_normal((2, 2)).astype(np.float32)
        q.grad = torch.sparse_coo_tensor(torch.tensor(rows)[None], torch.tensor(values), (4, 2))
        theirs.step()
        mine.update_at(raw, (rows,), values, state, mine.param_groups[0])
    np.testing.assert_allclose(raw, _host(q), rtol=1e-5)
    assert list(state) == list(theirs.state_dict()["state"][0])


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 3])
def test_swalr(strategy, epochs):
    seen = []
    for L in (torch, mytorch):
        o = L.optim.SGD(
            [{"params": [L.nn.Parameter(L.ones(1))]}, {"params": [L.nn.Parameter(L.ones(1))], "lr": 0.5}], lr=0.1
        )
        s = L.optim.swa_utils.SWALR(o, [0.05, 0.7], anneal_epochs=epochs, anneal_strategy=strategy)
        log = [s.get_last_lr()]
        for _ in range(5):
            o.step()
            s.step()
            log.append(s.get_last_lr())
        seen.append(log)
        with pytest.raises(ValueError, match="anneal_strategy"):
            L.optim.swa_utils.SWALR(o, 0.1, anneal_strategy="other")
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["swa", "ema", "multi", "own", "buffers"])
def test_averaged_model_and_update_bn(kind):
    results = []
    for L in (torch, mytorch):
        S = L.optim.swa_utils
        L.manual_seed(0)
        model = L.nn.Sequential(L.nn.Linear(3, 4), L.nn.BatchNorm1d(4), L.nn.Linear(4, 1))
        options = {
            "swa": {},
            "ema": {"avg_fn": S.get_ema_avg_fn(0.9)},
            "multi": {"multi_avg_fn": S.get_ema_multi_avg_fn(0.9)},
            "own": {"avg_fn": lambda a, p, n: 0.3 * a + 0.7 * p},
            "buffers": {"multi_avg_fn": S.get_ema_multi_avg_fn(0.5), "use_buffers": True},
        }[kind]
        averaged = S.AveragedModel(model, **options)
        o = L.optim.SGD(model.parameters(), lr=0.1)
        batches = [L.tensor(np.random.default_rng(t).standard_normal((5, 3)).astype(np.float32)) for t in range(4)]
        for x in batches:
            o.zero_grad()
            model(x).square().mean().backward()
            o.step()
            averaged.update_parameters(model)
        S.update_bn([(x, 0) for x in batches], averaged)
        results.append({k: _host(v) for k, v in averaged.state_dict().items()})
    assert list(results[0]) == list(results[1])
    for k in results[0]:
        np.testing.assert_allclose(results[1][k], results[0][k], rtol=2e-5, atol=1e-6)
    with pytest.raises(AssertionError, match="Only one"):
        mytorch.optim.swa_utils.AveragedModel(model, avg_fn=len, multi_avg_fn=len)


def test_modules_have_pytorchs_paths():
    for path, name in (
        ("optim.optimizer", "Optimizer"), ("optim.adam", "Adam"), ("optim.adamw", "AdamW"), ("optim.sgd", "SGD"), ("optim.lbfgs", "LBFGS"),
        ("optim.rmsprop", "RMSprop"), ("optim.adagrad", "Adagrad"), ("optim.nadam", "NAdam"), ("optim.sparse_adam", "SparseAdam"),
        ("optim.lr_scheduler", "_LRScheduler"), ("lr_scheduler", "CosineLRScheduler"), ("optim.swa_utils", "SWALR"),
    ):  # fmt: skip
        assert hasattr(importlib.import_module(f"mytorch.{path}"), name)
    from mytorch.lr_scheduler import StepLR

    assert StepLR is mytorch.optim.lr_scheduler.StepLR


def test_no_warnings_when_made():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, options in RULES:
            getattr(mytorch.optim, name)([mytorch.nn.Parameter(mytorch.ones(2, 2))], **options)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_lbfgs_walks_pytorchs_path(search, dtype):
    """Compares every loss of the closure, and the final state, on the Rosenbrock function."""
    seen, states, made = [], [], []
    for L in (torch, mytorch):
        start = np.array([-1.2, 1.0, 0.5, 2.0], np.float64)
        p = L.nn.Parameter(L.tensor(start.view(dtype)))
        o = L.optim.LBFGS([p], lr=1 if search else 0.002, max_iter=8, history_size=5, line_search_fn=search)
        losses = []

        def closure(p=p, o=o, losses=losses, L=L):
            o.zero_grad()
            x = L.view_as_real(p).reshape(-1) if p.is_complex() else p
            loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
            loss.backward()
            losses.append(float(loss.detach()))
            return loss

        for _ in range(4):
            o.step(closure)
        seen.append(losses)
        made.append(([p], o))
        states.append(o.state_dict()["state"][0])
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-6, atol=1e-9)
    assert set(states[1]) == set(states[0])
    for name in ("n_iter", "func_evals"):
        assert states[1][name] == states[0][name]
    assert [len(states[i]["old_dirs"]) for i in (0, 1)] == [5, 5]
    np.testing.assert_allclose(_host(states[1]["d"]), _host(states[0]["d"]), rtol=1e-5, atol=1e-9)
    again = mytorch.optim.LBFGS(made[1][0], history_size=5)
    again.load_state_dict(made[0][1].state_dict())
    np.testing.assert_allclose(
        _host(again.state[made[1][0][0]]["old_dirs"][2]), _host(states[0]["old_dirs"][2]), rtol=1e-6
    )


def test_lbfgs_refuses_groups_and_other_searches():
    p = mytorch.nn.Parameter(mytorch.ones(2))
    with pytest.raises(ValueError, match="parameter groups"):
        mytorch.optim.LBFGS([{"params": [p]}, {"params": [mytorch.nn.Parameter(mytorch.ones(1))]}])
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        mytorch.optim.LBFGS([p], line_search_fn="armijo").step(lambda: (p * p).sum())


def _made(lib, name, options):
    """Returns the class of the error that the constructor raises, or None."""
    try:
        getattr(lib.optim, name)([lib.nn.Parameter(lib.ones(2, 2))], **options)
    except Exception as error:
        return type(error).__name__
    return None


@pytest.mark.filterwarnings("ignore")
def test_limits_of_options_are_pytorchs(torch):
    """Each number among the options of each optimizer, at and around the limits of what it may be."""
    classes = {n: c for n, c in vars(torch.optim).items() if inspect.isclass(c) and hasattr(mytorch.optim, n)}
    del classes["Optimizer"], classes["SparseAdam"]
    failed = []
    for name, cls in classes.items():
        for option, parameter in inspect.signature(cls).parameters.items():
            default = parameter.default
            if isinstance(default, tuple):
                values = [
                    (*default[:k], v, *default[k + 1 :]) for k in range(len(default)) for v in (0.0, -0.1, 1.0, 1.5)
                ]
            elif type(default) in (int, float):
                values = [type(default)(v) for v in (0.0, -0.1, 1.0, 1.5)]
            else:
                continue
            for value in values:
                mine, theirs = (_made(lib, name, {option: value}) for lib in (mytorch, torch))
                failed += [(name, option, value, mine, theirs)] * (mine != theirs)
    assert len(classes) > 12
    assert not failed
