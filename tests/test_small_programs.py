"""Random programs of views, in-place writes, detached tensors and several backward calls, and what a sweep of such programs found.

Each seed is one program, which runs in both libraries; all flags of all tensors are compared after each statement. The statements leave out
what docs/differences.md lists: views that are created under no_grad, and in-place changes that PyTorch refuses because backward needs the
values.
"""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

STATEMENTS = """mul add sin view slice select expand transpose unsqueeze change change change assign no_grad detach clone backward backward
grad zero diagonal copy broadcast fill new cat""".split()


def _program(L, seed):
    """Runs the program and returns its observations after each statement; an error ends it."""
    rng = np.random.default_rng(seed)

    def pick(options):
        return options[int(rng.integers(len(options)))]

    def drawn(shape):
        return L.tensor(np.round(rng.standard_normal(shape), 3))

    shape = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    leaves = [drawn(shape).requires_grad_(rng.random() < 0.7) for _ in range(2)]
    pool, seen = [*leaves, leaves[0] * 1.5], []
    for _ in range(int(rng.integers(5, 15))):
        what, a, b = pick(STATEMENTS), pick(pool), pick(pool)
        try:
            made = _statement(L, what, a, b, pick, drawn)
        except RuntimeError as error:
            return seen, (what, error)
        if made is not None and 0 < made.numel() < 200:
            pool.append(made)
        flags = [
            (t.requires_grad, t.is_leaf, t._version, t.grad_fn is None, t._is_view(), t.storage_offset()) for t in pool
        ]
        values = [np.array(t.detach().numpy()) for t in pool]
        grads = [None if t.grad is None else (np.array(t.grad.numpy()), t.grad.stride()) for t in leaves if t.is_leaf]
        seen.append((what, flags, values, grads))
    return seen, None


def _statement(L, what, a, b, pick, drawn):
    if what == "mul":
        return a * b
    if what == "add":
        return a + b * pick([1, 2.0])
    if what == "sin":
        return pick([L.sin, L.exp, L.tanh, L.square])(a * 0.5)
    if what == "view":
        return a.view_as(a)
    if what == "slice":
        return a[pick([0, 1]) :] if a.ndim else a[None]
    if what == "select":
        return a.select(0, -1) if a.ndim else a.view_as(a)
    if what == "expand":
        return a.unsqueeze(0).expand(2, *a.shape)
    if what == "transpose":
        return a.transpose(0, -1)
    if what == "unsqueeze":
        return a.unsqueeze(-1)
    if what == "change":
        name = pick(["mul_", "add_", "sub_", "neg_", "zero_"])
        getattr(a, name)(*([pick([2.0, b.detach()])] if name in ("mul_", "add_", "sub_") else []))
    if what == "assign":
        a[pick([0, -1, slice(None, 1), Ellipsis])] = pick([1.5, b, b.detach()])
    if what == "no_grad":
        with L.no_grad():
            pick([a.zero_, lambda: a.mul_(2)])()
    if what == "detach":
        return a.detach()
    if what == "clone":
        return a.clone()
    if what == "backward":
        a.backward(drawn(a.shape), retain_graph=False)
    if what == "grad":
        return L.autograd.grad(a, [b], drawn(a.shape), retain_graph=True, allow_unused=True)[0]
    if what == "zero" and a.is_leaf:
        a.grad = None
    if what == "diagonal":
        return a.diagonal() if a.ndim == 2 else a[..., -1:]
    if what == "copy":
        a.copy_(b)
    if what == "broadcast":
        return a + drawn((2, *(1 for _ in a.shape)))
    if what == "fill":
        a.fill_(pick([0.0, 1.5]))
    if what == "new":
        return a.detach().clone().requires_grad_(pick([True, False]))
    if what == "cat":
        return L.cat([a, a])
    return None


@loop
@pytest.mark.parametrize("seed", range(150))
def test_programs(seed, torch):
    ours, theirs = _program(mytorch, seed), _program(torch, seed)
    for (what, *found), (name, *expected) in zip(ours[0], theirs[0], strict=False):
        assert (what, found[0]) == (name, expected[0])
        for x, y in zip(found[1], expected[1], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
        for x, y in zip(found[2], expected[2], strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                np.testing.assert_allclose(x[0], y[0], rtol=1e-9, atol=1e-12)
                assert x[1] == y[1]
    if theirs[1] is None:
        assert ours[1] is None, ours[1]
    elif len(ours[0]) == len(
        theirs[0]
    ):  # a longer run of ours: values that backward needs are copied before they change
        assert isinstance(ours[1][1], type(theirs[1][1]))


VIEWS = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "chunk": lambda x: x.chunk(2, -1)[1],
    "unbind": lambda x: x.unbind(0)[1],
    "split": lambda x: x.split(1, -1)[2],
    "diagonal of a part": lambda x: x.tensor_split(2, -1)[0].diagonal(),
    "part of a part": lambda x: x.chunk(2, 0)[1].unbind(-1)[2],
    "expanded part": lambda x: x.hsplit(3)[1].expand(2, -1, -1),
}


@loop
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_a_tensor_that_requires_gradients_later(name):
    """The gradient reaches the base, whether the view is one result of a function or one of several."""
    values, later = np.arange(6.0).reshape(2, 3), mytorch.zeros(2, 3, dtype=mytorch.float64)
    view = VIEWS[name](later)
    with mytorch.no_grad():
        later.copy_(mytorch.tensor(values))
    later.requires_grad_()
    assert view.requires_grad
    up = mytorch.randn(*view.shape, dtype=mytorch.float64)
    (view * view * up).sum().backward()
    first = mytorch.tensor(values, requires_grad=True)
    view = VIEWS[name](first)
    (view * view * up).sum().backward()
    np.testing.assert_array_equal(later.grad.numpy(), first.grad.numpy())
    assert np.any(later.grad.numpy())


WRITES = ["x[:1] = x[0]", "x[0, :] = x[:, :]", "x[:] = x.view(3)", "x[0] = x", "x[...] = x.t().t()", "x[:, None] = x[None]", "x[:, 1:] = x[:, :-1]",
          "x[:, :2] = x[:, 1:]", "x.copy_(x[0])", "x.view(3)[:] = x", "x.view(3)[1:] = x[0, :2]"]  # fmt: skip


@pytest.mark.cpu_only  # on a GPU, nothing is refused: the value is read before it is overwritten
@loop
@pytest.mark.parametrize("statement", WRITES)
def test_writes_of_own_elements(statement, torch):
    """Equal memory in the same order is allowed, also with axes of size 1, and memory that overlaps in part is refused."""
    results = []
    for L in (mytorch, torch):
        x = L.tensor([[1.0, 2.0, 3.0]])
        try:
            exec(statement, {"x": x})
            results.append(x.tolist())
        except RuntimeError as error:
            results.append("refused" if "single memory location" in str(error) else repr(error))
    assert results[0] == results[1]


REFUSED = """L.ones(2).mean(dtype=L.int64) | L.mean(L.ones(2, 2), 0, dtype=L.bool) | L.norm(L.ones(2), dtype=L.int64) | L.ones(2).norm(dtype=L.int32)
L.linalg.vector_norm(L.ones(2), dtype=L.int64) | F.linear(L.ones(2, 2), L.tensor(2.0)) | F.linear(L.tensor(1.0), L.ones(2, 2))
L.cdist(L.ones(3), L.ones(3)) | L.cdist(L.tensor(1.0), L.ones(2, 3)) | L.diff(L.ones(2, 3), prepend=L.ones(3)) | L.diff(L.ones(3), append=L.ones(1, 3))
L.tensordot(L.tensor(1.0), L.ones(2), 1) | L.tensordot(L.ones(2, 2), L.ones(2), 2)"""


@loop
@pytest.mark.parametrize("call", [call.strip() for line in REFUSED.splitlines() for call in line.split("|")])
def test_refused_calls(call, torch):
    with pytest.raises(Exception) as expected:
        eval(call, {"L": torch, "F": torch.nn.functional})
    with pytest.raises(type(expected.value)):
        eval(call, {"L": mytorch, "F": mytorch.nn.functional})


def test_a_loss_of_a_single_number_is_refused():
    with pytest.raises(ValueError, match="expected target of shape"):
        mytorch.nn.functional.cross_entropy(mytorch.tensor(2.0), mytorch.tensor(1))


@loop
@pytest.mark.parametrize(
    "dtype",
    "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 bool complex64 complex128".split(),
)
def test_names_of_types(dtype, torch):
    ours, theirs = (L.zeros(2, dtype=getattr(L, dtype)).type().split(".")[-1] for L in (mytorch, torch))
    assert ours == theirs


MODULES = {
    "Conv2d": (lambda nn: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 5, 4)),
    "grouped": (lambda nn: nn.Conv2d(4, 4, 2, groups=2), (2, 4, 3, 5)),
    "strided": (lambda nn: nn.Conv2d(3, 2, 3, stride=2), (2, 3, 6, 7)),
    "ConvTranspose2d": (lambda nn: nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1), (2, 4, 4, 3)),
    "several": (
        lambda nn: nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 2)),
        (2, 3, 4, 5),
    ),
}


@loop
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_modules_with_channels_last(name, last, torch):
    """`to(memory_format=...)` reorders the parameters in place, and results and gradients have PyTorch's layouts."""
    make, shape = MODULES[name]
    rng = np.random.default_rng(3)
    x, values, up = rng.standard_normal(shape), [], None
    results = []
    for L in (mytorch, torch):
        module = make(L.nn).double()
        order = L.channels_last
        before = list(map(id, module.parameters()))
        assert module.to(memory_format=order) is module
        assert list(map(id, module.parameters())) == before
        values = values or [rng.standard_normal(tuple(p.shape)) for p in module.parameters()]
        with L.no_grad():
            for p, value in zip(module.parameters(), values, strict=True):
                p.copy_(L.tensor(value))
        inputs = L.tensor(x)
        inputs = (inputs.contiguous(memory_format=order) if last else inputs).requires_grad_()
        optimizer = L.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        seen = []
        for _ in range(2):
            y = module(inputs)
            up = rng.standard_normal(tuple(y.shape)) if up is None else up
            optimizer.zero_grad()
            y.backward(L.tensor(up))
            optimizer.step()
            grads = [p.grad for p in module.parameters()]
            seen += [
                (np.array(t.detach().cpu().numpy()), t.stride()) for t in (y, inputs.grad, *module.parameters(), *grads)
            ]
        module.to(memory_format=L.contiguous_format)
        seen += [(None, t.stride()) for p in module.parameters() for t in (p, p.grad)]
        results.append(seen)
    for (ours, strides), (theirs, expected) in zip(*results, strict=True):
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)
        assert strides == expected


def test_other_orders_of_parameters():
    module = mytorch.nn.ModuleList([mytorch.nn.Conv3d(2, 3, 2), mytorch.nn.Linear(2, 3)]).to(
        memory_format=mytorch.channels_last_3d
    )
    assert [p.stride() for p in module.parameters()] == [(16, 1, 8, 4, 2), (1,), (2, 1), (1,)]
    with pytest.raises(RuntimeError, match="rank 4"):
        module.to(memory_format=mytorch.channels_last)


@loop
@pytest.mark.parametrize("name", ["Gamma", "Chi2", "InverseGamma"])
def test_gradients_of_a_distribution_function_at_one_number(name):
    """A distribution with 0-d parameters has the same gradients as one with parameters of one element."""
    found = []
    for shape in ((), (1,)):
        parameters = [mytorch.full(shape, v, dtype=mytorch.float64, requires_grad=True) for v in (1.3, 0.7)]
        family = getattr(mytorch.distributions, name)(*parameters[: 1 if name == "Chi2" else 2])
        value = mytorch.full(shape, 0.4, dtype=mytorch.float64, requires_grad=True)
        family.cdf(value).sum().backward()
        found.append([t.grad.item() for t in (value, *parameters) if t.grad is not None])
    assert found[0] == found[1]
    assert all(found[0])
