"""The public interface of the graph, compared with PyTorch: nodes, hooks, saved tensors, edges, checkpointing, batched gradients."""

import gc
import weakref

import numpy as np
import pytest

import mytorch
from mytorch import autograd, nn

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).standard_normal((3, 4))
W = np.random.default_rng(1).standard_normal((4, 2))
G = np.random.default_rng(2).standard_normal((3, 2))
BOTH = [torch, mytorch]


def _host(x):
    return np.asarray(x.detach())


def _same(results, **options):
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(_host(b), _host(a), **{"rtol": 1e-7, "atol": 1e-9, **options})


def test_nodes_have_names():
    for L in BOTH:
        x = L.tensor(X, requires_grad=True)
        y = (x * 2).sum()
        node = y.grad_fn
        assert node.name() == "SumBackward0"
        ((inner, index),) = node.next_functions
        assert (inner.name(), index) == ("MulBackward0", 0)
        (leaf, _), (constant, _) = inner.next_functions
        assert constant is None
        assert leaf.name() == "torch::autograd::AccumulateGrad"
        assert leaf.next_functions == ()
        assert leaf.variable is x
        node.metadata["note"] = 3
        assert y.grad_fn.metadata == {"note": 3}
        assert isinstance(node, L.autograd.graph.Node)
        values, places = x.max(1)
        assert values.grad_fn is not None
        assert places.grad_fn is None
        a, b = L.unbind(x)[:2]
        assert a.grad_fn is b.grad_fn
        assert (a.output_nr, b.output_nr) == (0, 1)


def test_node_hooks_see_and_replace_gradients():
    results = []
    for L in BOTH:
        x, w = L.tensor(X, requires_grad=True), L.tensor(W, requires_grad=True)
        seen = []
        h = x @ w
        y = (h * 3).sum()
        h.grad_fn.register_prehook(lambda go, seen=seen: seen.extend(g * 1 for g in go) or (go[0] * 2,))
        handle = h.grad_fn.register_hook(
            lambda gi, go, seen=seen: seen.extend(g * 1 for g in (*gi, *go)) or (gi[0] + 1, gi[1])
        )
        leaf = h.grad_fn.next_functions[1][0]
        leaf.register_hook(lambda gi, go, seen=seen: seen.append(go[0] * 1) or None)
        leaf.register_prehook(lambda go: (go[0] * 10,))
        y.backward(retain_graph=True)
        handle.remove()
        y.backward()
        results.append([*seen, x.grad, w.grad])
    assert len(results[0]) == len(results[1])
    _same(results)


def test_saved_tensors_hooks_pack_and_unpack():
    results = []
    for L in BOTH:
        x, w = L.tensor(X, requires_grad=True), L.tensor(W, requires_grad=True)
        packed, unpacked = [], []

        def pack(t, packed=packed):
            packed.append(t)
            return t.numpy().copy() if isinstance(t, mytorch.Tensor) else t.detach().numpy().copy()

        def unpack(value, unpacked=unpacked, L=L):
            unpacked.append(value)
            return L.tensor(value * 2)

        with L.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = ((x @ w).tanh() * L.tensor(G)).sum()
        (x * 1.0).exp().sum().backward()
        assert len(packed) == 4
        assert repr(y)
        assert y.grad_fn.next_functions
        assert not unpacked
        y.backward()
        assert 0 < len(unpacked) <= 4
        results.append([x.grad, w.grad])
    _same(results)


def test_saved_tensors_hooks_of_functions_lists_and_second_derivatives():
    for L in BOTH:

        class Cube(L.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return 3 * x**2 * g

        x = L.tensor(X, requires_grad=True)
        count = []
        with L.autograd.graph.saved_tensors_hooks(lambda t, count=count: count.append(t.shape) or t, lambda t: t):
            y = Cube.apply(L.cat([x, x * x, x])).sum() + L.nn.functional.softmax(x, 1).square().sum()
        assert count
        (g,) = L.autograd.grad(y, x, create_graph=True)
        (h,) = L.autograd.grad(g.square().sum(), x)
        if L is torch:
            expected = h
    np.testing.assert_allclose(_host(h), _host(expected), rtol=1e-6)


def test_save_on_cpu_disabling_and_mutation():
    for L in BOTH:
        graph = L.autograd.graph
        for options in ({}, {"pin_memory": True}):
            x = L.tensor(X, requires_grad=True)
            with graph.save_on_cpu(**options):
                y = (x * x).sum()
            y.backward()
            np.testing.assert_allclose(_host(x.grad), 2 * X)
        with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
            with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
        with graph.allow_mutation_on_saved_tensors():
            a = L.tensor(X, requires_grad=True)
            b = a.clone()
            out = (b**2).sum()
            b.sin_()
            out.backward()
        np.testing.assert_allclose(_host(a.grad), 2 * X)
        with pytest.raises(RuntimeError, match="modifying its input"):
            with graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t):
                a.exp()


@pytest.mark.parametrize("mode", ["all", "any"])
def test_hooks_on_several_gradients(mode):
    logs = []
    for L in BOTH:
        log = []
        a, b, c = (L.tensor(X, requires_grad=True) for _ in range(3))

        def hook(grads, log=log):
            grads = grads if isinstance(grads, list) else [grads]
            log.append(
                [None if g is None else round(float(g.sum()), 6) for g in grads] if mode == "all" else len(grads)
            )

        handle = L.autograd.graph.register_multi_grad_hook((a, b, c), hook, mode=mode)
        (a * 2 + b * 3).sum().backward()
        (a * b * c).sum().backward()
        handle.remove()
        (a * b * c).sum().backward()
        logs.append(log)
        with pytest.raises(ValueError, match="Expects mode to be one of"):
            L.autograd.graph.register_multi_grad_hook((a,), hook, mode="some")
    assert logs[0] == logs[1]
    assert len(logs[0]) == 2


def test_gradient_edges_replace_tensors():
    for L in BOTH:
        x = L.tensor(X, requires_grad=True)
        h = x * 2
        y = (h * h).sum()
        edge = L.autograd.graph.get_gradient_edge(h)
        del h
        (g,) = L.autograd.grad(y, edge, retain_graph=True)
        np.testing.assert_allclose(_host(g), 4 * X)
        (g,) = L.autograd.grad(edge, x, L.ones(3, 4, dtype=L.float64))
        np.testing.assert_allclose(_host(g), 2 * np.ones((3, 4)))
        parts = L.unbind(x * 1)
        (g,) = L.autograd.grad((parts[1] * 5).sum(), L.autograd.graph.get_gradient_edge(parts[1]))
        np.testing.assert_allclose(_host(g), 5 * np.ones(4))
        with pytest.raises(RuntimeError, match="does not require grad"):
            L.autograd.graph.get_gradient_edge(L.ones(1))


def test_batched_and_materialized_gradients():
    results = []
    for L in BOTH:
        x, unused = L.tensor(X, requires_grad=True), L.tensor(W, requires_grad=True)
        y = x.sin().sum(1)
        rows = L.eye(3, dtype=L.float64)
        first = L.autograd.grad(y, x, rows, is_grads_batched=True, retain_graph=True)
        second = L.autograd.grad(y, (x, unused), rows[0], materialize_grads=True)
        results.append([*first, *second])
    _same(results)
    z = x.sum(1)
    with pytest.raises(RuntimeError, match="not have been used"):
        autograd.grad(z, (x, unused), mytorch.eye(3, dtype=mytorch.float64), is_grads_batched=True)


def _block(L, w):
    def run(x, scale=1.0, extra=None):
        h = L.nn.functional.dropout((x @ w).tanh(), 0.5) * scale
        h = L.nn.functional.softmax(h + h.exp(), -1)
        return {"h": h, "more": [h * 2 if extra is None else h * extra["e"]]}

    return run


@pytest.mark.cpu_only
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_gives_the_same_gradients(use_reentrant):
    from mytorch.utils.checkpoint import checkpoint

    found = []
    for way in ("plain", "checkpointed"):
        mytorch.manual_seed(3)
        x, w = mytorch.tensor(X, requires_grad=True), mytorch.tensor(W, requires_grad=True)
        block = _block(mytorch, w)

        def run(t, block=block):
            out = block(t)
            return out["h"], out["more"][0]

        h, more = run(x) if way == "plain" else checkpoint(run, x, use_reentrant=use_reentrant)
        ((h * mytorch.tensor(G)).sum() + more.square().sum()).backward()
        found.append([x.grad, w.grad])
    _same(found)


@pytest.mark.cpu_only
def test_checkpoint_without_reentrance_takes_everything():
    from mytorch.utils.checkpoint import checkpoint

    found = []
    for way in ("plain", "checkpointed"):
        mytorch.manual_seed(3)
        x, w, e = (mytorch.tensor(v, requires_grad=True) for v in (X, W, G))
        block = _block(mytorch, w)
        args = {"scale": 0.5, "extra": {"e": e}}
        out = block(x, **args) if way == "plain" else checkpoint(block, x, use_reentrant=False, **args)
        loss = (out["h"] * out["more"][0]).sum()
        first = autograd.grad(loss, (x, w, e), create_graph=True)
        second = autograd.grad(first[0].square().sum(), (x, w))
        found.append([*first, *second])
    _same(found)


def test_checkpoint_keeps_no_activations_and_stops_early():
    import gc
    import weakref

    from mytorch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    arrays, calls = [], []

    def run(x):
        h = x.exp()
        arrays.append(weakref.ref(h._mt_data))
        calls.append("first half")
        y = h * h
        calls.append("second half")
        return y.sum()

    for enable, expected in ((True, 3), (False, 4)):
        calls.clear()
        x = mytorch.tensor(X, requires_grad=True)
        with set_checkpoint_early_stop(enable):
            y = checkpoint(run, x, use_reentrant=False)
            gc.collect()
            assert arrays[-1]() is None
            y.backward()
        np.testing.assert_allclose(_host(x.grad), 2 * np.exp(2 * X))
        assert len(calls) in (expected, 4)


# Outermost first: c checkpoints, g differentiates.
NESTED = "cf gcf gccf gcgf cggcf gcgcf gcggcf gcgcgcf".split()


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("inner", ["plain", "with backward"])
def test_gradients_within_checkpoints(inner, early_stop, torch):
    """A checkpointed function that runs backward itself runs again before its first run has ended."""

    def value(library, nesting):
        module = __import__(f"{library.__name__}.utils.checkpoint", fromlist=["checkpoint"])

        def function(x):
            if inner == "with backward":
                library.autograd.grad(x.sin().exp().sin(), x)
            return x.sin().exp().sin()

        def differentiated(f):
            def run(x):
                with library.enable_grad():
                    return library.autograd.grad(f(x), x, create_graph=True)[0]

            return run

        for letter in reversed(nesting[:-1]):
            before = function
            if letter == "g":
                function = differentiated(before)
            else:
                function = lambda x, f=before: module.checkpoint(f, x, use_reentrant=False)  # noqa: E731
        with module.set_checkpoint_early_stop(early_stop):
            x = library.tensor(0.3, dtype=library.float64, requires_grad=True)
            y = function(x)
            return y.item(), library.autograd.grad(y, x)[0].item()

    for nesting in NESTED:
        np.testing.assert_allclose(value(mytorch, nesting), value(torch, nesting), rtol=1e-12, err_msg=nesting)


def test_checkpoint_detects_differences_and_rejects_unsupported_options():
    from mytorch.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

    x = mytorch.tensor(X, requires_grad=True)
    state = {"calls": 0}

    def shapes(t):
        state["calls"] += 1
        return (t[: state["calls"]].exp() * 2).sum()

    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(shapes, x, use_reentrant=False).backward()

    def fewer(t):
        state["calls"] += 1
        return t.exp().sum() if state["calls"] % 2 else t.exp().tanh().sum()

    state["calls"] = 1
    with pytest.raises(CheckpointError, match="different number of tensors"):
        checkpoint(fewer, x, use_reentrant=False).backward()
    entered = []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *exc):
            pass

    checkpoint(
        lambda t: t.exp().sum(), x, use_reentrant=False, context_fn=lambda: (Context("forward"), Context("again"))
    ).backward()
    assert entered == ["forward", "again"]
    with pytest.raises(ValueError, match="context_fn"):
        checkpoint(lambda t: t, x, use_reentrant=True, context_fn=lambda: None)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: y"):
        checkpoint(lambda t, y: t, x, use_reentrant=True, y=1)
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(lambda t: t, x, determinism_check="some")
    layers = [mytorch.nn.Linear(4, 4, dtype=mytorch.float64) for _ in range(5)]
    model = mytorch.nn.Sequential(*layers)
    for reentrant in (True, False):
        found = []
        for run in (lambda t: model(t), lambda t, r=reentrant: checkpoint_sequential(model, 2, t, use_reentrant=r)):
            x.grad = None
            model.zero_grad()
            run(x).square().sum().backward()
            found.append([x.grad, *(p.grad for p in model.parameters())])
        _same(found)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("restricted", ["grad", "inputs"])
def test_a_reentrant_checkpoint_refuses_gradients_of_some_tensors_only(restricted, nested):
    """Its second backward would also add to the gradients of the other leaves."""
    from mytorch.utils.checkpoint import checkpoint

    w, x = mytorch.randn(3, requires_grad=True), mytorch.randn(3, requires_grad=True)
    y = checkpoint(lambda t: t * w, x, use_reentrant=True)
    if nested:
        y = checkpoint(lambda t: t.sin(), y, use_reentrant=False)
    with pytest.raises(RuntimeError, match="use_reentrant=True, torch.utils.checkpoint is incompatible"):
        mytorch.autograd.grad(y.sum(), [x]) if restricted == "grad" else y.sum().backward(inputs=[x])
    assert w.grad is None
    assert x.grad is None


def test_queued_callbacks_run_at_the_end_of_backward():
    seen = []
    queue = mytorch.autograd.Variable._execution_engine.queue_callback

    class Queues(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            queue(lambda: (seen.append(x.grad.tolist()), queue(lambda: seen.append("last"))))
            return g * 2

    x = mytorch.ones(1, requires_grad=True)
    Queues.apply(x).sum().backward()
    assert seen == [[2.0], "last"]
    with pytest.raises(RuntimeError, match="during backward"):
        queue(print)


def test_old_names():
    from mytorch.autograd import Variable
    from mytorch.autograd.grad_mode import no_grad

    v = Variable(mytorch.ones(2), requires_grad=True)
    assert isinstance(v, Variable)
    assert isinstance(v, mytorch.Tensor)
    assert v.requires_grad
    assert no_grad is mytorch.no_grad


def test_save_for_backward_rejects_objects_other_than_tensors():
    for L in BOTH:

        class Wrong(L.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(3)
                return x * 1

            @staticmethod
            def backward(ctx, g):
                return g

        with pytest.raises(TypeError, match="save_for_backward can only save variables, but argument 0 is of type int"):
            Wrong.apply(L.ones(2, requires_grad=True))


def test_pack_hooks_meet_parameters_and_places_in_the_graph():
    """A hook that treats parameters differently, as one that moves activations away, has to recognize them."""
    p, x, seen = nn.Parameter(mytorch.tensor([0.5, 2.0])), mytorch.tensor([1.5, 3.0]), []

    def pack(t):
        seen.append((t is p, isinstance(t, nn.Parameter), type(t.grad_fn).__name__ if t.grad_fn else None))
        assert not mytorch.is_grad_enabled()
        return t

    with mytorch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = p * p
        z = (y * x).exp() * y
    assert seen[:2] == [(True, True, None)] * 2
    names = [name for *_, name in seen[2:]]
    assert names[0] is None
    assert {"ExpBackward0", "MulBackward0"} <= {*names}
    reference = weakref.ref(z)
    z.sum().backward()
    want = p.detach().clone().requires_grad_()
    ((want * want * x).exp() * want * want).sum().backward()
    assert mytorch.allclose(p.grad, want.grad)
    gc.disable()  # an output that a hook keeps does not keep itself alive
    try:
        del z
        assert reference() is None
    finally:
        gc.enable()


def test_pack_hooks_keep_the_parameter_before_a_change():
    p = nn.Parameter(mytorch.tensor([0.5, 2.0]))
    with mytorch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = (p * p).sum()
    with mytorch.no_grad():
        p.mul_(10)
    y.backward()
    assert p.grad.tolist() == [1.0, 4.0]


RESULTS = {  # of a checkpointed function of x (3,) and w (3,)
    "one": lambda x, w: (x * w).sin(),
    "two": lambda x, w: ((x * w).sin(), x + w),
    "an unused one": lambda x, w: (x * w, w.exp()),
    "a constant": lambda x, w: (x * w, w.detach() + 1),
    "an integer tensor": lambda x, w: (x * w, (x > 0).long()),
    "a number": lambda x, w: (x * w, 3),
    "None first": lambda x, w: (None, x * w),
    "a word between": lambda x, w: (x * w, "word", w * 2),
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("used", ["all", "first", "last"])
def test_results_of_checkpointed_functions(name, reentrant, used):
    outcomes = []
    for L in BOTH:
        x, w = (L.tensor(a, requires_grad=True) for a in (X[:3] + 0.5, X[:3] * 2 - 1))
        found = L.utils.checkpoint.checkpoint(RESULTS[name], x, w, use_reentrant=reentrant)
        found = found if isinstance(found, tuple) else (found,)
        tensors = [t for t in found if isinstance(t, L.Tensor) and t.requires_grad]
        tensors = {"all": tensors, "first": tensors[:1], "last": tensors[-1:]}[used]
        sum((t * (i + 2)).square().sum() for i, t in enumerate(tensors)).backward()
        outcomes.append([len(found)] + [None if t.grad is None else _host(t.grad) for t in (x, w)])
    assert outcomes[0][0] == outcomes[1][0]
    for mine, theirs in zip(outcomes[0][1:], outcomes[1][1:], strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)
