"""In-place operations and views, against PyTorch."""

import math

import numpy as np
import pytest

import mytorch
from mytorch.ops import everything  # noqa: F401 - defines the records of all operations
from mytorch.ops.dispatch.record import RECORDS
from tests.loops import loop


def both(program, torch, *inputs):
    """Runs a program under both libraries; compares the results and the gradients of the inputs."""
    results = []
    for lib in (mytorch, torch):
        leaves = [lib.tensor(x, requires_grad=True) for x in inputs]
        out = program(lib, *leaves)
        up = lib.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)))
        (out * up).sum().backward()
        results.append([out.detach().numpy(), *(None if t.grad is None else np.asarray(t.grad) for t in leaves)])
    for mine, theirs in zip(*results, strict=True):
        if theirs is None:
            assert mine is None
        else:
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)


A, B = np.random.default_rng(2).standard_normal((2, 3, 4))


def program_chain(lib, a, b):
    x = a * 1
    x += b
    x.mul_(b)
    x -= 1
    return x.exp_()


def program_row_of_base(lib, a, b):
    x = a * 2
    y = x[0]
    y.add_(b[1])
    return x * 3


def program_view_made_before(lib, a, b):
    x = a * 2
    early = x[:, 1:]
    x.mul_(b)
    return early * 2


def program_view_of_view(lib, a, b):
    x = a.clone()
    y = x.t()[1]
    y.copy_(b[:, 2] * 3)
    return x


def program_setitem(lib, a, b):
    x = a * 1
    x[1] = b[0] * 2
    x[:, ::2] = 0.5
    x[x > 1] = 1.0
    return x


def program_setitem_on_view(lib, a, b):
    x = a * 1
    x[1:][:, 2] = b[:2, 0]
    return x


def program_fill_constant(lib, a, b):
    x = lib.zeros(3, 4, dtype=lib.float64)
    x[0] = a[0]
    x[1:] = b[1:] * 2
    return x


def program_masked(lib, a, b):
    x = a * 1
    x.masked_fill_(b.detach() > 0, 0.0)
    return x


def program_relu_inplace(lib, a, b):
    return (a * b).relu_() + a


def program_reshape_view(lib, a, b):
    x = a * 1
    x.view(-1)[3:7] += b.reshape(-1)[:4]
    return x


PROGRAMS = [v for k, v in sorted(globals().items()) if k.startswith("program_")]


@loop
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs(program, torch):
    both(program, torch, A, B)


def test_changed_after_saving_raises():
    x = mytorch.ones(3, requires_grad=True)
    y = x * 1
    z = y.exp()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


INDEXED = {
    "gather": lambda lib, x, i: x.gather(1, i),
    "index": lambda lib, x, i: x[i[0]],
    "two_indices": lambda lib, x, i: x[0, :, None][i[0], i[1] * 0],
    "index_select": lambda lib, x, i: x.index_select(1, i[0]),
    "take": lambda lib, x, i: x.take(i),
    "scatter": lambda lib, x, i: lib.zeros(3, 3).scatter(1, i, x),
    "scatter_add": lambda lib, x, i: lib.zeros(3, 3).scatter_add(1, i, x),
    "scatter_reduce": lambda lib, x, i: lib.zeros(3, 3).scatter_reduce(1, i, x, "amax"),
    "scatter_products": lambda lib, x, i: lib.ones(3, 3).scatter_reduce(1, i, x, "prod"),
    "index_add": lambda lib, x, i: lib.zeros(3, 3).index_add(1, i[0], x),
    "index_put": lambda lib, x, i: lib.zeros(3, 3).index_put((i[0],), x, accumulate=True),
    "setitem": lambda lib, x, i: lib.zeros(3, 3).index_put((i[0],), x),
    "embedding": lambda lib, x, i: lib.nn.functional.embedding(i, x),
    "embedding_bag": lambda lib, x, i: lib.nn.functional.embedding_bag(i, x),
    "cross_entropy": lambda lib, x, i: lib.nn.functional.cross_entropy(x, i[0]),
    "nll_loss": lambda lib, x, i: lib.nn.functional.nll_loss(x, i[0], ignore_index=1),
    "multi_margin_loss": lambda lib, x, i: lib.nn.functional.multi_margin_loss(x, i[0]),
    "take_along_dim": lambda lib, x, i: lib.take_along_dim(x, i, 0),
    "index_copy": lambda lib, x, i: lib.zeros(3, 3).index_copy(0, i[0], x),
    "self_of_scatter": lambda lib, x, i: x.scatter(1, i, lib.ones(3, 3)),
    "self_of_scatter_add": lambda lib, x, i: x.scatter_add(1, i, lib.ones(3, 3)),
    "self_of_index_add": lambda lib, x, i: x.index_add(1, i[0], lib.ones(3, 3)),
    "unpool": lambda lib, x, i: lib.nn.functional.max_unpool1d(x[None], i[None], 2),
}


# The gradient is the upstream gradient, or PyTorch computes another index from the index.
NOT_READ = ("self_of_scatter_add", "self_of_index_add", "take_along_dim")


@loop
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_that_backward_reads_is_not_to_be_changed(name, torch):
    for lib in (torch, mytorch):
        for change in (lambda i: None, lambda i: i.add_(1)):
            x = lib.tensor([[3.0, 1, 2], [4, 6, 5], [7, 8, 9]], requires_grad=True)
            index = lib.tensor([[0, 2, 1], [1, 0, 0], [2, 2, 0]])
            out = INDEXED[name](lib, x, index).sum()
            if change(index) is None or name in NOT_READ:
                out.backward()
            else:
                with pytest.raises(RuntimeError, match="modified by an inplace"):
                    out.backward()


SAMPLES = {  # op with index inputs -> shapes of its other inputs, shapes of its indices, attributes
    "cross_entropy": ([(3, 4)], [(3,)], {}),
    "embedding": ([(3, 4)], [(2, 3)], {"padding_idx": 1}),
    "embedding_backward": ([(5, 4)], [(5,)], {"padding_idx": None, "scale_grad_by_freq": False, "shape": (3, 4)}),
    "gather": ([(3, 4)], [(5, 2)], {"dim": 0}),
    "index": ([(3, 4)], [(2,), (5, 2)], {"layout": ("array", "array")}),
    "index_write": ([(3, 2, 4), (5, 2)], [(5,), (5,)], {"layout": ("array", slice(None), "array")}),
    "index_zeros": ([(5, 2)], [(5,), (5,)], {"layout": ("array", slice(None), "array"), "shape": (3, 2, 4)}),
    "linear_cross_entropy": ([(3, 2), (4, 2), (4,)], [(3,)], {}),
    "nll": ([(3, 4)], [(3,)], {}),
    "put_along": ([(3, 4)], [(3, 4)], {"dim": 0, "shape": (3, 4)}),
    "scatter": ([(3, 4), (3, 4)], [(3, 4)], {"dim": 0}),
    "scatter_add": ([(3, 4), (3, 4)], [(3, 4)], {"dim": 0}),
    "scatter_extreme": ([(3, 4), (3, 4)], [(3, 4)], {"dim": 0, "largest": True, "include_self": False}),
    "scatter_zeros": ([(3, 4)], [(3, 4)], {"dim": 0, "shape": (3, 4)}),
}
WITH_INDICES = [
    pytest.param(record, i, id=f"{record.name}-{name}")
    for record in RECORDS.values()
    if record.integers and record.is_differentiable
    for i, name in enumerate(record.inputs[: record.floats])
]


@loop
@pytest.mark.parametrize(("record", "i"), WITH_INDICES)
def test_every_op_watches_the_indices_that_its_gradient_names(record, i):
    """If only the input i requires grad, changing an index in place is an error exactly if the gradient of that input names it."""
    shapes, sizes, attrs = SAMPLES[record.name]
    watched = set(record.integers) & set(record.reference.plan(1 << i).names)
    for call in (record.fast_call, record.dispatch):
        for changed in (None, *range(len(sizes))):
            inputs = [mytorch.rand(*shape, requires_grad=j == i) for j, shape in enumerate(shapes)]
            indices = [mytorch.arange(math.prod(size)).reshape(size) % 3 for size in sizes]
            out = call(*inputs, *indices, **attrs)
            assert len(out.grad_fn.next_functions) == record.floats
            if changed is not None:
                indices[changed].add_(0)
            if changed is not None and watched:
                with pytest.raises(RuntimeError, match="modified by an inplace"):
                    out.sum().backward()
            else:
                out.sum().backward()
                assert inputs[i].grad.shape == inputs[i].shape


@pytest.mark.parametrize("value", [1.0, [5.0, 6.0]], ids=["number", "tensor"])
def test_writing_into_one_of_several_windows_writes_into_all_that_share_its_places(value, torch):
    found = []
    for lib in (mytorch, torch):
        x = lib.tensor([[-1.0, 2, 3, 4]], requires_grad=True)
        given = lib.tensor(value, requires_grad=True)
        base = x * 1.5
        row = base[-1]
        windows = row.unfold(0, 2, 1)
        windows[1] = given if isinstance(value, list) else value
        total = sum((t * lib.arange(1.0, t.numel() + 1).reshape(t.shape)).sum() for t in (base, row, windows))
        grads = lib.autograd.grad(total, [x, given] if isinstance(value, list) else [x])
        found.append([windows.tolist(), *(g.tolist() for g in grads)])
    assert found[0] == found[1]


def test_a_leaf_turned_round_under_no_grad_gets_a_gradient_of_its_new_shape(torch):
    for lib in (mytorch, torch):
        x = lib.ones(3, 2).requires_grad_()
        with lib.no_grad():
            x.t_()
        (x * lib.arange(6.0).reshape(2, 3)).sum().backward()
        assert x.grad.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_hooks_that_keep_a_copy_of_an_index_let_it_be_changed():
    x, index = mytorch.ones(3, requires_grad=True), mytorch.tensor([2, 2, 0])
    with mytorch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        out = x.gather(0, index)
    index.fill_(1)
    out.sum().backward()
    assert x.grad.tolist() == [1, 0, 2]


def test_unsaved_tensors_may_be_changed():
    x = mytorch.ones(3, requires_grad=True)
    y = x + 1
    y.mul_(2)
    y.sum().backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [2, 2, 2])


def test_leaf_refuses():
    x = mytorch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="view of a leaf"):
        x[0:2].mul_(2)
    with mytorch.no_grad():
        x.add_(1)
    assert x.sum().item() == 6


def test_expanded_memory_refuses():
    with pytest.raises(RuntimeError, match="single memory"):
        mytorch.ones(1).expand(3).add_(1)


def test_shapes_and_dtypes_that_do_not_fit():
    with pytest.raises(RuntimeError, match="broadcast shape"):
        mytorch.ones(3).add_(mytorch.ones(2, 3))
    with pytest.raises(RuntimeError, match="can't be cast"):
        mytorch.ones(3, dtype=mytorch.int64).add_(0.5)


def test_detach_shares_memory_and_versions():
    x = mytorch.ones(3, requires_grad=True)
    y = x.exp()
    z = y * y
    y.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.sum().backward()


def test_views_share_memory():
    x = mytorch.zeros(2, 3)
    x[0].fill_(1)
    x.t()[2].add_(5)
    x.reshape(-1)[0] = 7
    np.testing.assert_array_equal(x.numpy(), [[7, 1, 6], [0, 0, 5]])


def test_random_programs(torch):
    """Random sequences of in-place operations on views of two tensors have the same values and gradients as in PyTorch."""
    for seed in range(60):
        both(_random_program(seed), torch, A, B)


def _random_program(seed):
    def program(lib, a, b):
        rng = np.random.default_rng(seed)
        x = a * 1
        views = [x]
        for _ in range(6):
            target = views[rng.integers(len(views))]
            choice = rng.integers(7)
            if choice == 0 and target.ndim > 1:
                views.append(target[int(rng.integers(target.shape[0]))])
            elif choice == 1 and target.ndim > 1:
                views.append(target.transpose(0, 1))
            elif choice == 2 and target.shape[0] > 1:
                views.append(target[1:])
            elif choice == 3:
                target.mul_(1.5)
            elif choice == 4:
                target.add_(b.reshape(-1)[: target.shape[-1]] * 0.5)
            elif choice == 5:
                target[0] = b.reshape(-1)[0]
            else:
                target.sub_(target.detach().clone() * 0.25)
        out = x * 2
        for v in views[1:]:
            out = out + v.sum() * 0.1
        return out

    return program


WRITES = {
    "masked_scatter_": lambda x, s, L: x.masked_scatter_(x > 0, s),
    "masked_fill_": lambda x, s, L: x.masked_fill_(x > 0, s[0]),
    "index_fill_": lambda x, s, L: x.index_fill_(0, L.tensor([0]), s[0]),
    "index_add_": lambda x, s, L: x.index_add_(0, L.tensor([0]), s[:1]),
    "index_copy_": lambda x, s, L: x.index_copy_(0, L.tensor([0]), s[:1]),
    "index_put_": lambda x, s, L: x.index_put_((L.tensor([0]),), s[:1]),
    "put_": lambda x, s, L: x.put_(L.tensor([0]), s[:1]),
    "scatter_": lambda x, s, L: x.scatter_(0, L.tensor([0]), s),
    "scatter_add_": lambda x, s, L: x.scatter_add_(0, L.tensor([0]), s),
    "scatter_reduce_": lambda x, s, L: x.scatter_reduce_(0, L.tensor([0]), s, "sum"),
    "index_reduce_": lambda x, s, L: x.index_reduce_(0, L.tensor([0]), s[:1], "prod"),
    "add_": lambda x, s, L: x.add_(s),
    "copy_": lambda x, s, L: x.copy_(s),
}


@loop
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("source", ["same", "view", "shifted", "apart"])
def test_a_source_that_shares_memory_is_refused_where_pytorch_refuses_it(torch, name, source):
    def program(L):
        base = L.tensor(np.random.default_rng(0).standard_normal(6))
        x = base[:4]
        s = {"same": x, "view": x.view(4), "shifted": base[1:5], "apart": x.clone()}[source]
        try:
            WRITES[name](x, s, L)
        except RuntimeError:
            return "refused"
        # PyTorch's masked_scatter_ reads elements that it has already written.
        return "accepted" if name == "masked_scatter_" and source != "apart" else base.tolist()

    assert program(mytorch) == program(torch)
