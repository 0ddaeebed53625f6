"""vmap by batching rules, compared with PyTorch and with one call per index."""

import numpy as np
import pytest

import mytorch
from mytorch import func
from tests import test_ops
from tests.loops import loop

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.cpu_only
RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 3, 4))
W = RNG.standard_normal((4, 4))
INDEX = RNG.integers(0, 3, (5, 2))


def written(L, a):
    a[0] = 1.0
    a[1, 1:] = a[2, :3]
    return a.add_(1).mul_(a)


def through_closure(L, x, w):
    w = w.clone().requires_grad_()
    L.vmap(lambda a: (a @ w).sin().sum())(x).square().sum().backward()
    return w.grad


def kernel(w):
    return w.reshape(2, 2, 4)[:, :1].expand(2, 3, 4)[..., :2]


def per_sample(function, *dims):
    """The gradients by w of function(F, w, a sample, …) for each sample."""

    def run(L, x, w, i):
        own = L.func.grad(lambda v, *samples: function(L.nn.functional, v, *samples))
        return L.vmap(own, in_dims=(None, *dims))(w, *(x, i)[: len(dims)])

    return run


CASES = {
    "axes": lambda L, x, w, i: L.vmap(lambda a: a.sum(0), in_dims=1, out_dims=-1)(x),
    "matrices": lambda L, x, w, i: L.vmap(lambda a: (a @ w) @ a[0] + (w @ a[1])[:3])(x),
    "linear": lambda L, x, w, i: L.vmap(lambda a: L.nn.functional.linear(a, a, a[:, 0]))(x),
    "rows": lambda L, x, w, i: L.vmap(lambda a: a.softmax(-1) + L.nn.functional.layer_norm(a, (4,), w[0], a[1]))(x),
    "index": lambda L, x, w, i: L.vmap(lambda a, j: a[j] + w[j] + a[j[0]])(x, i),
    "gather": lambda L, x, w, i: L.vmap(lambda a, j: a.gather(0, j[:, None].expand(2, 4)))(x, i),
    "embedding": lambda L, x, w, i: L.vmap(lambda j: L.nn.functional.embedding(j, w), out_dims=1)(i),
    "joined": lambda L, x, w, i: L.vmap(lambda a: L.cat([a, w]) + L.stack([a[0], w[0]], -1).sum())(x),
    "einsum": lambda L, x, w, i: L.vmap(lambda a: L.einsum("ij,jk->ik", a, w))(x),
    "loss": lambda L, x, w, i: L.vmap(lambda a, j: L.nn.functional.cross_entropy(a[:2], j))(x, i),
    "convolution": lambda L, x, w, i: L.vmap(lambda a: L.nn.functional.conv1d(a[None], kernel(w)))(x),
    "kernels": lambda L, x, w, i: L.vmap(lambda a: L.nn.functional.conv1d(a[None], a[None, :, :2], a[:1, 0]))(x),
    "pooling": lambda L, x, w, i: L.vmap(lambda a: L.nn.functional.max_pool1d(a[None], 2))(x),
    "views": lambda L, x, w, i: L.vmap(lambda a: a.reshape(-1, 2).T.unsqueeze(0).expand(2, 2, 6).flatten())(x),
    "parts": lambda L, x, w, i: L.vmap(lambda a: a.split(2, 1)[1] + a.unbind(1)[0].unsqueeze(1) + a.diagonal().sum())(
        x
    ),
    "extremes": lambda L, x, w, i: L.vmap(lambda a: a.max(0).values + a.sort(0)[0] + a.amax() + a.topk(2, 1)[0].sum())(
        x
    ),
    "choice": lambda L, x, w, i: L.vmap(lambda a: L.where(a > 0, a, w[0]).masked_fill(a > 1, 7.0).clamp(-1, 3))(x),
    "moments": lambda L, x, w, i: L.vmap(lambda a: a.norm() + a.std() + a.var(0).sum() + a.logsumexp(0).mean())(x),
    "made": lambda L, x, w, i: L.vmap(lambda a: a + L.zeros_like(a) + L.arange(4, device=a.device) + a.new_ones(4))(x),
    "written": lambda L, x, w, i: L.vmap(lambda a: written(L, a.clone()))(x),
    "nested": lambda L, x, w, i: L.vmap(L.vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(0, 1))(x, x[:, 0].T),
    "two batches": lambda L, x, w, i: L.vmap(lambda b: L.vmap(lambda a: a @ b)(x), out_dims=2)(w),
    "attention": lambda L, x, w, i: L.vmap(
        lambda a: L.nn.functional.scaled_dot_product_attention(a[None], a[None], a[None], is_causal=True)
    )(x),
    "chunks": lambda L, x, w, i: L.vmap(lambda a: a @ w, chunk_size=2, out_dims=1)(x),
    "grad": lambda L, x, w, i: L.vmap(L.func.grad(lambda a: a.sin().prod()))(x),
    "grad of grad": lambda L, x, w, i: L.vmap(
        L.func.grad(lambda a: L.func.grad(lambda b: b.sin().square().sum())(a).sum())
    )(x),
    "hessian": lambda L, x, w, i: L.vmap(L.func.hessian(lambda a: (a.sin() * a).sum() ** 2))(x[:, 0]),
    "jvp inside": lambda L, x, w, i: L.vmap(lambda a: L.func.jvp(lambda b: b.sin() * b.sum(), (a,), (a,))[1])(x),
    "jvp outside": lambda L, x, w, i: L.func.jvp(L.vmap(lambda b: b.sin() * b.sum()), (x,), (x,))[1],
    "grad outside": lambda L, x, w, i: L.func.grad(lambda v: L.vmap(lambda a: (a @ v).sin().sum())(x).prod())(w),
    "closure": lambda L, x, w, i: through_closure(L, x, w),
    "per sample": per_sample(lambda F, v, a: F.gelu(F.linear(a, v, v[0])).square().mean(), 0),
    "per sample, norm": per_sample(lambda F, v, a: F.layer_norm(a @ v, (4,), v[0], v[1]).square().sum(), 0),
    "per sample, loss": per_sample(lambda F, v, a, j: F.cross_entropy((a @ v)[:2], j), 0, 0),
    "per sample, kernel": per_sample(lambda F, v, a: F.conv1d(a[None], kernel(v)).square().sum(), 0),
    "per sample, table": per_sample(lambda F, v, a, j: (F.embedding(j, v).square() * a[:2]).sum(), 0, 0),
    "per sample, pool": per_sample(lambda F, v, a: F.max_pool1d((a @ v)[None], 2).square().sum(), 0),
    "the same noise": lambda L, x, w, i: L.vmap(lambda a: L.nn.functional.dropout(L.ones_like(a)), randomness="same")(
        x
    ).std(0),
}


@pytest.fixture
def at_once(monkeypatch):
    def refuse(*_):
        raise AssertionError("vmap calls the function for each index")

    monkeypatch.setattr(func, "_one_by_one", refuse)


@loop
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_one_call_equals_pytorch(name, at_once):
    want, got = (CASES[name](L, L.tensor(X), L.tensor(W), L.tensor(INDEX)) for L in (torch, mytorch))
    assert tuple(got.shape) == tuple(want.shape)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-11)


def one_by_one(function, tensors, dims):
    rows = [function(*[t if d is None else t[b] for t, d in zip(tensors, dims, strict=True)]) for b in range(3)]
    return [mytorch.stack(list(parts)) for parts in zip(*rows, strict=True)]


@loop
@pytest.mark.parametrize(("row", "shapes", "attrs"), test_ops.FIRST)
def test_every_op_equals_one_call_per_index(row, shapes, attrs, rng):
    inputs = [test_ops._inputs(test_ops._values(row, shapes, rng), mytorch) for _ in range(3)]

    def call(*tensors):
        outs = test_ops._outputs(test_ops._call(row, mytorch, list(tensors), attrs))
        return tuple(o for o in outs if isinstance(o, mytorch.Tensor))

    for dims in {(0,) * len(shapes), (0, *[None] * (len(shapes) - 1))}:
        tensors = [mytorch.stack(list(parts)) for parts in zip(*inputs, strict=True)]
        tensors = [t if d == 0 else t[0] for t, d in zip(tensors, dims, strict=True)]
        want = one_by_one(call, tensors, dims)
        for mine, theirs in zip(func.vmap(call, dims, randomness="same")(*tensors), want, strict=True):
            assert mine.dtype is theirs.dtype
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-8)


def test_a_function_that_looks_at_numbers_is_called_for_each_index():
    x = mytorch.tensor([[1.0, 2.0], [-1.0, 3.0]])
    assert func.vmap(lambda a: a * 2 if a[0] > 0 else a.sum())(x[:1]).tolist() == [[2.0, 4.0]]
    assert func.vmap(lambda a: a + float(a[0]))(x).tolist() == [[2.0, 3.0], [-2.0, 2.0]]


def test_shared_inputs_are_not_changed():
    kept = mytorch.ones(2)
    x = mytorch.tensor([[1.0, 2.0], [3.0, 4.0]])

    def run(a):
        copy = kept.clone()
        copy += a
        copy[0] = a[1]
        return copy

    assert func.vmap(run)(x).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert kept.tolist() == [1.0, 1.0]


def test_an_input_that_was_written_to_is_not_written_to_again():
    x = mytorch.zeros(2, 3)
    with pytest.raises(NotImplementedError):
        func.vmap(lambda a: a.add_(1) * float(a[0]))(x)
    assert x.tolist() == [[1.0] * 3] * 2


RANDOM = {
    "dropout": lambda L, a: L.nn.functional.dropout(a + 1),
    "dropout1d": lambda L, a: L.nn.functional.dropout1d(a[None] + 1),
    "alpha_dropout": lambda L, a: L.nn.functional.alpha_dropout(a, training=True),
    "rrelu": lambda L, a: L.nn.functional.rrelu(a - 1, training=True),
    "gumbel_softmax": lambda L, a: L.nn.functional.gumbel_softmax(a),
    "rand_like": lambda L, a: L.rand_like(a),
    "randn_like": lambda L, a: L.randn_like(a),
    "randint_like": lambda L, a: L.randint_like(a, 100),
    "bernoulli": lambda L, a: L.bernoulli(a * 0 + 0.5),
    "normal": lambda L, a: L.normal(a, 1.0),
    "rand": lambda L, a: a + L.rand(8),
    "randperm": lambda L, a: a + L.randperm(8),
    "uniform_": lambda L, a: (a * 1).uniform_(),
    "exponential_": lambda L, a: (a * 1).exponential_(),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_refused_unless_allowed(name):
    for L in (mytorch,) if name == "rrelu" else (torch, mytorch):  # which PyTorch's vmap does not have
        x = L.zeros(4, 8)
        with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
            L.vmap(lambda a, L=L: RANDOM[name](L, a))(x)
        for randomness in ("same", "different"):
            if (L, randomness) == (torch, "same") and name in ("bernoulli", "normal"):
                continue  # PyTorch refuses parameters that differ between the samples
            L.manual_seed(0)
            rows = L.vmap(lambda a, L=L: RANDOM[name](L, a), randomness=randomness)(x).reshape(4, 8).tolist()
            assert (rows == [rows[0]] * 4) is (randomness == "same"), (L.__name__, randomness)
    assert func.vmap(lambda a: mytorch.nn.functional.dropout(a, training=False))(x).tolist() == x.tolist()


WITH_GENERATOR = {
    "rand": lambda L, a, g: a + L.rand(20, generator=g),
    "randn": lambda L, a, g: a + L.randn(20, generator=g),
    "randint": lambda L, a, g: a + L.randint(1000, (20,), generator=g),
    "randperm": lambda L, a, g: a + L.randperm(20, generator=g),
    "normal of a size": lambda L, a, g: a + L.normal(0.0, 1.0, (20,), generator=g),
    "shared multinomial": lambda L, a, g: a + L.multinomial(L.ones(1000), 20, generator=g),
    "shared bernoulli": lambda L, a, g: a + L.bernoulli(L.full((20,), 0.5), generator=g),
    "shared normal": lambda L, a, g: a + L.normal(L.zeros(20), L.ones(20), generator=g),
    "shared poisson": lambda L, a, g: a + L.poisson(L.full((20,), 50.0), generator=g),
    "uniform_": lambda L, a, g: (a * 1).uniform_(generator=g),
    "normal_": lambda L, a, g: (a * 1).normal_(generator=g),
    "bernoulli_": lambda L, a, g: (a * 1).bernoulli_(generator=g),
    "exponential_": lambda L, a, g: (a * 1).exponential_(generator=g),
    "random_": lambda L, a, g: (a * 1).random_(1000, generator=g),
}


@pytest.mark.parametrize("name", WITH_GENERATOR)
@pytest.mark.parametrize("chunk_size", [None, 1, 2, 3])
@pytest.mark.parametrize("own", [False, True])
def test_random_numbers_of_any_generator(name, chunk_size, own):
    """The rule of `randomness` holds for each generator, and `same` draws PyTorch's numbers once."""
    found = {}
    for L in (torch, mytorch):
        generator = L.Generator().manual_seed(5) if own else None
        L.manual_seed(5)

        def run(randomness, L=L, generator=generator):
            f = L.vmap(lambda a: WITH_GENERATOR[name](L, a, generator), randomness=randomness, chunk_size=chunk_size)
            return f(L.zeros(4, 20)).tolist()

        with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
            run("error")
        found[L] = run("same")
        if L is mytorch or not (own and chunk_size):  # PyTorch's chunks rewind the default generator only
            assert found[L] == found[L][:1] * 4
        # the generator has moved on as by one call, and each further call draws other numbers
        assert len({tuple(row) for row in [*run("different"), found[L][0]]}) == 5
    np.testing.assert_allclose(found[mytorch][0], found[torch][0], rtol=1e-5, atol=1e-6)


def test_jacfwd_obeys_randomness():
    for L in (torch, mytorch):
        x = L.rand(3, 4)
        with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
            L.func.jacfwd(lambda a, L=L: a * L.rand(4))(x)
        same = L.func.jacfwd(lambda a, L=L: a * L.rand(4), randomness="same")(x).sum((2, 3))
        assert bool((same == same[0]).all())
        # each column has other numbers, so the columns of a broadcast factor differ
        other = L.func.jacfwd(lambda a, L=L: a.sum() * L.rand(1), randomness="different")(x)
        assert len(set(other.flatten().tolist())) == 12


STRUCTURES = {  # what PyTorch refuses, and what it accepts although it looks unusual
    "in_dims list": lambda L, x: L.vmap(L.mul, [0, 0])(x, x),
    "in_dims str": lambda L, x: L.vmap(L.mul, "lol")(x, x),
    "in_dims None": lambda L, x: L.vmap(L.sin, None)(x),
    "in_dims short": lambda L, x: L.vmap(L.mul, (0,))(x, x),
    "in_dims long": lambda L, x: L.vmap(L.mul, (0, 0, 0))(x, x),
    "in_dims nested short": lambda L, x: L.vmap(lambda z: z[0] + z[1], ([0],))([x, x]),
    "in_dims nested kind": lambda L, x: L.vmap(lambda z: z[0] + z[1], ((0, 0),))([x, x]),
    "in_dims nested": lambda L, x: L.vmap(lambda z: z[0] + z[1], ([0, None],))([x, x[0]]),
    "in_dims dict": lambda L, x: L.vmap(lambda z: z["a"] + z["b"], ({"a": 0, "b": 1},))({"a": x, "b": x.T}),
    "in_dims other keys": lambda L, x: L.vmap(lambda z: z["a"], ({"c": 0},))({"a": x}),
    "out_dims of one result": lambda L, x: L.vmap(L.sin, out_dims=(1,))(x),
    "out_dims list": lambda L, x: L.vmap(L.sin, out_dims=[1])(x),
    "out_dims long": lambda L, x: L.vmap(L.sin, out_dims=(1, 0))(x),
    "out_dims kind": lambda L, x: L.vmap(lambda a: [a, a], out_dims=(1, 0))(x),
    "out_dims nested": lambda L, x: L.vmap(lambda a: [a, (a, x)], out_dims=[1, (0, None)])(x),
    "out_dims None of the batch": lambda L, x: L.vmap(L.sin, out_dims=None)(x),
    "out_dims None of a value": lambda L, x: L.vmap(lambda a: (a, x.sum(), "word"), out_dims=(0, None, None))(x),
    "a number": lambda L, x: L.vmap(lambda a: (a, 1))(x),
    "chunk_size 0": lambda L, x: L.vmap(L.sin, chunk_size=0)(x),
    "chunk_size -1": lambda L, x: L.vmap(L.sin, chunk_size=-1)(x),
    "jacrev chunk_size 0": lambda L, x: L.func.jacrev(L.sin, chunk_size=0)(x),
    "jacrev chunk_size 2": lambda L, x: L.func.jacrev(L.sin, chunk_size=2)(x),
    "jacrev of complex": lambda L, x: L.func.jacrev(L.conj)(x + 1j),
    "jacrev to complex": lambda L, x: L.func.jacrev(lambda a: a + 1j)(x),
    "jacfwd of complex": lambda L, x: L.func.jacfwd(L.conj)(x + 1j),
    "jacfwd to complex": lambda L, x: L.func.jacfwd(lambda a: a + 1j)(x),
    "vjp of None": lambda L, x: L.func.vjp(lambda a: None, x),
    "vjp of nothing": lambda L, x: L.func.vjp(lambda a: (), x),
    "vjp of a number": lambda L, x: L.func.vjp(lambda a: 1.0, x),
    "jvp of None": lambda L, x: L.func.jvp(lambda a: None, (x,), (x,)),
    "jvp of nothing": lambda L, x: L.func.jvp(lambda a: (), (x,), (x,)),
    "jvp of a number": lambda L, x: L.func.jvp(lambda a: 1.0, (x,), (x,)),
    "jvp by a number": lambda L, x: L.func.jvp(L.sin, (1.0,), (x,)),
    "jvp along a number": lambda L, x: L.func.jvp(L.sin, (x,), (1.0,)),
    "jacrev of None": lambda L, x: L.func.jacrev(lambda a: None)(x),
    "jacfwd of nothing": lambda L, x: L.func.jacfwd(lambda a: ())(x),
    "view of strided samples": lambda L, x: L.vmap(lambda a: a.view(6), in_dims=1)(
        L.stack([x, x, x], 1).transpose(0, 2)
    ),
    "view of dense samples": lambda L, x: L.vmap(lambda a: a.view(6), in_dims=1)(L.stack([x, x, x], 0).transpose(0, 1)),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_are_accepted_or_refused_as_in_pytorch(name):
    outcomes = []
    for L in (torch, mytorch):
        try:
            found = STRUCTURES[name](L, L.arange(6.0).reshape(2, 3))
            leaves = L.utils._pytree.tree_flatten(found)[0]
            outcomes.append([leaf if isinstance(leaf, str) else np.asarray(leaf).round(5).tolist() for leaf in leaves])
        except Exception as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]


def test_no_data_leaves_a_tensor_without_elements():
    kept = mytorch.ones(3)
    for write in (
        lambda: kept.copy_(mytorch.zeros(3, device="meta")),
        lambda: kept.__setitem__(0, mytorch.zeros((), device="meta")),
    ):
        with pytest.raises(NotImplementedError, match="no data"):
            write()
    assert kept.tolist() == [1.0] * 3


# -- scatter_reduce ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce_with_any_batched_argument(torch, reduce, include_self):
    rng = np.random.default_rng(3)
    for in_dims in ((0, 0, 0), (None, 0, None), (0, None, None), (None, None, 0), (0, 0, None)):
        shape, dim = rng.integers(1, 5, 2), int(rng.integers(2))
        small = np.minimum(shape, rng.integers(1, 5, 2))
        small[dim] = rng.integers(1, 6)
        arrays = [
            rng.integers(-3, 4, (3, *shape)).astype(np.float32),  # with ties
            rng.integers(-3, 4, (3, *small)).astype(np.float32),
            rng.integers(0, shape[dim], (3, *small)),
        ]
        tangents = [rng.standard_normal(a.shape[1:]).astype(np.float32) for a in arrays[:2]]
        results = []
        for lib in (torch, mytorch):

            def program(x, src, index, lib=lib):
                return lib.scatter_reduce(x, dim, index, src, reduce, include_self=include_self)

            args = [lib.from_numpy((a if d == 0 else a[0]).copy()) for a, d in zip(arrays, in_dims, strict=True)]
            results.append([lib.func.vmap(program, in_dims=in_dims)(*args).numpy()])
            x, src, index = (lib.from_numpy(a[0].copy()) for a in arrays)
            if reduce != "prod":  # PyTorch's tangent of products is 0
                duals = (x, src), tuple(map(lib.from_numpy, tangents))
                out = lib.func.jvp(lambda x, src, index=index: program(x, src, index), *duals)  # noqa: B023
                results[-1] += [t.numpy() for t in out]
        for theirs, mine in zip(*results, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dims", [(), (0,), (-1,), (0, 1)])
def test_flip_along_no_axes_reverses_nothing(dims):
    x = mytorch.arange(12.0).reshape(2, 3, 2)
    expected = mytorch.stack([mytorch.flip(row, dims) for row in x])
    assert mytorch.vmap(lambda row: mytorch.flip(row, dims))(x).tolist() == expected.tolist()


def scaling(lib, calls, rule=True, error=None):
    """A Function whose `vmap` notes its calls and differs from `forward`, so that it's visible which one ran."""

    class Scaled(lib.autograd.Function):
        generate_vmap_rule = rule == "both"

        @staticmethod
        def forward(x, y, factor):
            return x * y * factor, x.sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:2])

        @staticmethod
        def backward(ctx, g, _):
            x, y = ctx.saved_tensors
            return g * y, g * x, None

        if rule:

            @staticmethod
            def vmap(info, in_dims, x, y, factor):
                if error:
                    raise error
                calls.append((info.batch_size, info.randomness, [d is None for d in in_dims]))
                x, y = (t if d is None else t.movedim(d, 0) for t, d in zip((x, y), in_dims[:2], strict=True))
                return (x * y * factor * 10, lib.ones(2)), (0, None)

    return Scaled.apply


def test_vmap_of_a_function_uses_its_own_rule():
    numbers = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
    upstream = RNG.standard_normal((3, 4))
    found = []
    for lib in (mytorch, torch):
        calls = []
        f = scaling(lib, calls)
        x, y = (lib.tensor(a.tolist(), dtype=lib.float64) for a in numbers)
        x.requires_grad_()
        out, ones = lib.func.vmap(f, in_dims=(1, None, None), out_dims=(1, 0), randomness="same")(x, y[:, 0], 2)
        found.append([out.tolist(), tuple(ones.shape)])
        found[-1] += [
            g.tolist() for g in lib.autograd.grad(out, (x,), lib.tensor(upstream.tolist(), dtype=lib.float64))
        ]
        twice = lib.func.vmap(lib.func.vmap(lambda a, b: f(a, b, 1)[0], in_dims=(0, None)), in_dims=(None, 0))(
            x[0].detach(), y[0]
        )
        found[-1] += [twice.tolist(), calls[0]]
    for mine, theirs in zip(*found, strict=True):
        if isinstance(mine, list):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)
        else:
            assert mine == theirs


def test_mistakes_in_the_rule_of_a_function_are_errors():
    x = mytorch.ones(3)
    with pytest.raises(ZeroDivisionError):
        mytorch.vmap(scaling(mytorch, [], error=ZeroDivisionError()), (0, 0, None))(x, x, 1)
    with pytest.raises(RuntimeError, match="both generate_vmap_rule=True and"):
        mytorch.vmap(scaling(mytorch, [], rule="both"), (0, 0, None))(x, x, 1)
    assert mytorch.vmap(scaling(mytorch, [], rule=False), (0, 0, None))(x, x, 2)[0].tolist() == [2, 2, 2]


RESIZED = {
    "smaller": lambda a: a.clone().resize_(1) * 2,
    "same size": lambda a: a.clone().resize_(2, 2) * 2,
    "of a result": lambda a: (a * 3).resize_(1, 4) + 1,
    "as": lambda a: (a * 3).resize_as_(mytorch.zeros(2, 1)),
    "set_": lambda a: (a * 3).set_(mytorch.ones(3)) * 2,
    "set_ to nothing": lambda a: (a * 3).set_(),
    "with room": lambda a: mytorch.empty(0).resize_(4).copy_(a),
    "larger": lambda a: (a * 3).resize_(6)[:4],
}


@pytest.mark.parametrize("name", RESIZED)
def test_other_memory_of_a_tensor_of_the_batch(name):
    """Each sample has its own memory, as in a call for each sample."""
    xs = mytorch.arange(12.0).reshape(3, 4) + 1
    got = mytorch.func.vmap(RESIZED[name])(xs)
    assert mytorch.equal(got, mytorch.stack([RESIZED[name](x) for x in xs]))
    for change in (lambda a: a.clone().resize_(1), lambda a: a.clone().set_(mytorch.zeros(2))):
        with pytest.raises(RuntimeError, match="forward grad"):
            mytorch.func.jvp(change, (xs[0],), (xs[1],))


ASSIGNED = {
    "index": lambda L, a, v: L.index_put(a, (L.tensor([1, 0]),), v), "mask": lambda L, a, v: L.index_put(a, (a.detach() > 0,), v[0, 0]),
    "rows": lambda L, a, v: written_at(a, L.tensor([2, 0]), v), "slice": lambda L, a, v: written_at(a, slice(1), v[0]),
    "pair": lambda L, a, v: written_at(a, (L.tensor([2, 0]), L.tensor([0, 3])), v[:, 0]), "put": lambda L, a, v: L.put(a, L.tensor([1, 5]), v[0, :2]),
    "mixed": lambda L, a, v: written_at(a, (slice(1, None), L.tensor([0, 3])), v[:, :2]), "number": lambda L, a, v: written_at(a, [0, 2], 3.0),
    "masked_fill": lambda L, a, v: L.masked_fill(a, a.detach() > 0, v[0, 0]), "index_fill": lambda L, a, v: L.index_fill(a, 0, L.tensor([1]), v[0, 0]),
    "index_copy": lambda L, a, v: L.index_copy(a, 0, L.tensor([2, 0]), v), "scatter": lambda L, a, v: L.scatter(a, 0, L.tensor([[2, 1]]), v[:1, :2]),
    "masked_scatter": lambda L, a, v: L.masked_scatter(a, a.detach() > 0, v.expand(3, 2, 4).reshape(-1)),
    "fill_diagonal": lambda L, a, v: a.clone().fill_diagonal_(2.0), "accumulate": lambda L, a, v: L.index_put(a, (L.tensor([1, 1]),), v, accumulate=True),
}  # fmt: skip


def written_at(a, index, value):
    a = a.clone()
    a[index] = value
    return a


@loop
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of PyTorch
@pytest.mark.parametrize("name", ASSIGNED)
def test_batched_gradients_of_assignments(name):
    """A batch of gradients passes an assignment as each of them does: with `vmap`, `is_grads_batched` and a vectorized Jacobian."""
    results = []
    for L in (mytorch, torch):
        a, v = L.tensor(X[0]), L.tensor(X[1, :2])
        grads = L.stack([a.cos(), a.square() + 1])
        out, back = L.func.vjp(lambda a, v, L=L: ASSIGNED[name](L, a, v).sin(), a, v)
        found = [L.stack(g) for g in zip(*(back(g) for g in grads), strict=True)]
        batched = L.vmap(back)(grads) if L is mytorch else found
        y = ASSIGNED[name](L, a.requires_grad_() * 1, v).sin()
        batched = [*batched, L.autograd.grad(y, a, grads, is_grads_batched=True, retain_graph=True)[0]]
        batched += (L.func.jacrev(lambda a, L=L: ASSIGNED[name](L, a, v).sin())(a.detach()),)
        results.append([np.asarray(t.tolist()) for t in (*found, found[0], *batched)])
    mine, theirs = results
    for one, batch in zip(mine[:3], mine[3:6], strict=True):
        np.testing.assert_allclose(batch, one, rtol=1e-12)
    np.testing.assert_allclose(mine[-1], theirs[-1], rtol=1e-12)
    for one, other in zip(mine[:3], theirs[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
