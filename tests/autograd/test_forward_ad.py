"""Forward mode: dual tensors and func.jvp, compared with PyTorch."""

import importlib
import pkgutil

import numpy as np
import pytest

import mytorch
import mytorch.ops
from mytorch.autograd import forward_ad, mode
from mytorch.ops.dispatch.op import Op
from tests.loops import loop

torch = pytest.importorskip("torch")
BOTH = (mytorch, torch)
RNG = np.random.default_rng(5)


def _draw(shape, dtype, shift=0.3):
    x = RNG.random(shape) + shift
    return (x + 1j * RNG.random(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def _numpy(t):
    return t.detach().resolve_conj().numpy() if isinstance(t, torch.Tensor) else t.detach().numpy()


def _flat(tree):
    return [leaf for part in tree for leaf in _flat(part)] if isinstance(tree, (tuple, list)) else [tree]


def _agree(mine, theirs, rtol=1e-6):
    mine, theirs = _flat(mine), _flat(theirs)
    assert len(mine) == len(theirs)
    for m, t in zip(mine, theirs, strict=True):
        assert (m is None) == (t is None)
        if m is not None:
            assert tuple(m.shape) == tuple(t.shape)
            np.testing.assert_allclose(_numpy(m), _numpy(t), rtol=rtol, atol=1e-9)


def _dual(function, shapes, dtype=np.float64):
    """Calls a function of (library, duals) in both libraries; returns primals and tangents."""
    primals, tangents = ([_draw(s, dtype, shift) for s in shapes] for shift in (0.3, -0.5))
    found = []
    for L in BOTH:
        A = L.autograd.forward_ad
        with A.dual_level():
            duals = [A.make_dual(L.tensor(p), L.tensor(t)) for p, t in zip(primals, tangents, strict=True)]
            found.append([tuple(A.unpack_dual(o)) for o in _flat(function(L, *duals))])
    return found


def _written(L, x):
    z = L.zeros(3, 4, dtype=x.dtype)
    z[1:] = x[:2]
    z[0, 1] = 5.0
    return z


OPS = {
    "arithmetic": (lambda L, x, y: (x * y.exp() - y / x, 2 - x, x + 1), (3, 4), (4,)),
    "matmul": (lambda L, x, y: (x @ y).softmax(-1), (3, 4), (4, 5)),
    "views": (lambda L, x: x.T[1:].reshape(-1).sum() + x.permute(1, 0).expand(2, 4, 3), (3, 4)),
    "layer_norm": (lambda L, x, w, b: L.nn.functional.layer_norm(x, (4,), w, b), (3, 4), (4,), (4,)),
    "conv2d": (lambda L, x, w, b: L.nn.functional.conv2d(x, w, b, padding=1), (2, 3, 5, 5), (4, 3, 3, 3), (4,)),
    "batch_norm": (lambda L, x, w, b: L.nn.functional.batch_norm(x, None, None, w, b, True), (6, 4), (4,), (4,)),
    "cross_entropy": (lambda L, x: L.nn.functional.cross_entropy(x, L.tensor([1, 0, 2])), (3, 4)),
    "nll_loss": (lambda L, x: L.nn.functional.nll_loss(x, L.tensor([1, 0, 2])), (3, 4)),
    "attention": (lambda L, q, k: L.nn.functional.scaled_dot_product_attention(q, k, k * 2), (2, 5, 4), (2, 5, 4)),
    "linalg": (lambda L, x: (L.linalg.svdvals(x), L.linalg.inv(x @ x.mT + L.eye(3))), (3, 4)),
    "eigh": (lambda L, x: L.linalg.eigvalsh(x @ x.mT), (3, 3)),
    "several": (lambda L, x: [a * a for a in x.split(2)], (5, 4)),
    "sorted": (lambda L, x: (*x.sort(1), *x.max(1), *x.topk(2)), (5, 4)),
    "choice": (lambda L, x, y: L.where(x > y, x, y * y).clamp(0.4, 1.0), (5, 4), (5, 4)),
    "index": (lambda L, x: x[L.tensor([0, 2, 2])], (5, 4)),
    "scans": (lambda L, x: x.cumsum(0).prod(1), (5, 4)),
    "pow": (lambda L, x, y: x**y, (5, 4), (4,)),
    "norms": (lambda L, x: x.std(0) + x.var(0) + x.norm() + x.logsumexp(0), (5, 4)),
    "constant": (lambda L, x: (x > 0.5, x.floor()), (5, 4)),
    "in place": (lambda L, x: x.clone().mul_(x).add_(1).sin_(), (5, 4)),
    "filled": (lambda L, x: (x * 2).fill_(3.0), (5, 4)),
    "setitem": (_written, (3, 4)),
    "pad": (lambda L, x: L.nn.functional.pad(x, (1, 2), value=5.0), (3, 3)),
    "max_pool2d": (lambda L, x: L.nn.functional.max_pool2d(x, 2), (1, 2, 4, 4)),
    "embedding": (lambda L, w: L.nn.functional.embedding(L.tensor([1, 0, 1]), w), (3, 4)),
    "cat": (lambda L, x, y: (L.cat([x, y, x]), L.stack([x, x])), (3, 4), (2, 4)),
    "dtypes": (lambda L, x, y: x * 2 + y.float(), (3, 4), (3, 4)),
    "fft": (lambda L, x: L.fft.fft(x).abs(), (3, 5)),
    "empty": (lambda L, x: x.sum(0) * x.mean(), (0, 3)),
    "non-contiguous": (lambda L, x: x.T[::2].mul(3).reshape(-1), (3, 5)),
}
COMPLEX = {
    "product": (lambda L, x, y: (x * y.exp() - y / x) @ y, (3, 4), (4,)),
    "abs": (lambda L, x: (x.abs(), x.conj() * x, x.real * 2, x.angle()), (3,)),
    "fft": (lambda L, x: L.fft.ifft(x) + x.sum(0), (3, 4)),
    "inv": (lambda L, x: L.linalg.inv(x), (3, 3)),
    "views": (lambda L, x: (L.view_as_real(x), x**3), (3, 3)),
}


@loop
@pytest.mark.parametrize("name", OPS)
def test_tangents_follow(name):
    function, *shapes = OPS[name]
    _agree(*_dual(function, shapes))


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_tangents_follow(name):
    function, *shapes = COMPLEX[name]
    _agree(*_dual(function, shapes, np.complex128))


def _block(L, x):
    x = (x - x.mean(-1, keepdim=True)) / x.std(
        -1, keepdim=True
    )  # layer_norm's second derivative is not right in PyTorch
    x = x.sin() @ x.mT
    return L.nn.functional.gelu(x).softmax(-1).exp().mean(0)


NESTED = {
    "jvp of jvp": lambda f, g, x, v: f.jvp(lambda a: f.jvp(g, (a,), (v,)), (x,), (v * 2,)),
    "jvp of grad": lambda f, g, x, v: f.jvp(f.grad(lambda a: (g(a) ** 2).sum()), (x,), (v,)),
    "grad of jvp": lambda f, g, x, v: f.grad(lambda a: (f.jvp(g, (a,), (v,))[1] ** 2).sum())(x),
    "jvp of vjp": lambda f, g, x, v: f.jvp(lambda a: f.vjp(g, a)[1](g(v))[0], (x,), (v,)),
    "jvp of jvp of grad": lambda f, g, x, v: f.jvp(
        lambda a: f.jvp(f.grad(lambda b: (g(b) ** 2).sum()), (a,), (v,))[1], (x,), (v,)
    ),
    "jacfwd": lambda f, g, x, v: f.jacfwd(lambda a, b: (g(a), a * b), argnums=(0, 1))(x, v),
    "jacfwd with aux": lambda f, g, x, v: f.jacfwd(lambda a: (g(a), a.sum()), has_aux=True)(x),
    "hessian": lambda f, g, x, v: f.hessian(lambda a: (g(a) ** 2).sum())(x),
    "jacfwd of jacfwd": lambda f, g, x, v: f.jacfwd(f.jacfwd(lambda a: a.prod(0)))(x),
    "jacrev of jacfwd": lambda f, g, x, v: f.jacrev(f.jacfwd(lambda a: a.prod(0)))(x),
}


@loop
@pytest.mark.parametrize("name", NESTED)
def test_levels_nest(name):
    x, v = _draw((2, 3), np.float64), _draw((2, 3), np.float64, -0.5)
    mine, theirs = (NESTED[name](L.func, lambda a, L=L: _block(L, a), L.tensor(x), L.tensor(v)) for L in BOTH)
    _agree(mine, theirs)


def test_reverse_over_forward_reaches_primal_and_tangent():
    x, v = _draw((3, 4), np.float64), _draw((3, 4), np.float64)
    found = []
    for L in BOTH:
        a, b = L.tensor(x, requires_grad=True), L.tensor(v, requires_grad=True)
        if L is torch:  # PyTorch's forward mode overwrites values that its backward needs here
            primal, tangent = torch.autograd.functional.jvp(lambda a: _block(torch, a), a, b, create_graph=True)
        else:
            with L.autograd.forward_ad.dual_level():
                primal, tangent = L.autograd.forward_ad.unpack_dual(_block(L, L.autograd.forward_ad.make_dual(a, b)))
        found.append((primal, tangent, L.autograd.grad((primal * tangent).sum(), (a, b))))
    _agree(*found)


def test_a_module_runs_forward_over_its_parameters():
    x = _draw((5, 4), np.float32)
    found = []
    for L in BOTH:
        L.manual_seed(0)
        net = L.nn.Sequential(L.nn.Linear(4, 6), L.nn.ReLU(), L.nn.LayerNorm(6), L.nn.Linear(6, 2))
        weights = {n: p.detach() for n, p in net.named_parameters()}
        ones = {n: L.ones_like(p) for n, p in weights.items()}
        found.append(
            L.func.jvp(lambda w, net=net, L=L: L.func.functional_call(net, w, (L.tensor(x),)), (weights,), (ones,))
        )
    _agree(*found, rtol=1e-4)


def test_a_custom_function_has_its_own_jvp():
    found = []
    x, v = _draw((4,), np.float64), _draw((4,), np.float64)
    for L in BOTH:

        class Cube(L.autograd.Function):
            @staticmethod
            def forward(ctx, a, scale):
                ctx.save_for_forward(a)
                ctx.save_for_backward(a)
                ctx.scale = scale
                return a**3 * scale

            @staticmethod
            def backward(ctx, g):
                return 3 * ctx.saved_tensors[0] ** 2 * g * ctx.scale, None

            @staticmethod
            def jvp(ctx, t, _):
                return 3 * ctx.saved_tensors[0] ** 2 * t * ctx.scale

        A = L.autograd.forward_ad
        with A.dual_level():
            a = L.tensor(x, requires_grad=True)
            out = A.unpack_dual(Cube.apply(A.make_dual(a, L.tensor(v)), 2.0).sin())
        found.append((out.primal, out.tangent, L.autograd.grad(out.primal.sum(), a)))
    _agree(*found)


def test_a_custom_function_without_jvp_raises_an_error():
    class Twice(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

    with pytest.raises(NotImplementedError, match="must implement the jvp function"):
        mytorch.func.jvp(Twice.apply, (mytorch.ones(2),), (mytorch.ones(2),))


def test_views_and_in_place_results_share_tangents():
    for L in BOTH:
        A = L.autograd.forward_ad
        primal, tangent = L.ones(2, 3), L.full((2, 3), 2.0)
        with A.dual_level():
            dual = A.make_dual(primal, tangent)
            assert A.unpack_dual(dual).tangent is tangent
            dual[0].mul_(3)
            assert A.unpack_dual(dual).tangent.tolist() == [[6.0] * 3, [2.0] * 3]
            assert tangent.tolist() == [[6.0] * 3, [2.0] * 3]
            assert A.unpack_dual(primal).tangent is None
            base = L.zeros(3, 2)
            view = base.t()
            view.copy_(dual)
            assert A.unpack_dual(base).tangent.tolist() == [[6.0, 2.0]] * 3
            base.mul_(2)
            assert A.unpack_dual(view).tangent.tolist() == [[12.0] * 3, [4.0] * 3]
            assert A.unpack_dual(dual.detach()).tangent is None
            assert "tangent=" in repr(dual)
            with L.no_grad():
                assert not A.unpack_dual(dual * 3).tangent.requires_grad
        assert A.unpack_dual(dual).tangent is None
        assert "tangent=" not in repr(dual)


ORDERS = {
    "in order": lambda L, x: L.tensor(x),
    "transposed": lambda L, x: L.tensor(x.T.copy()).mT,
    "with gaps": lambda L, x: L.tensor(np.repeat(x, 2, 1))[:, ::2],
    "expanded": lambda L, x: L.tensor(x[:1].copy()).expand(*x.shape),
}
VIEWS = {
    "as_strided": lambda x: x.as_strided((x.shape[0] * x.shape[1],), (1,)),
    "as_strided in twos": lambda x: x.mT.as_strided((x.shape[0] * x.shape[1] - 1, 2), (1, 1)),
    "view": lambda x: x.view(-1) if x.is_contiguous() else x.mT,
    "flatten": lambda x: x.flatten(),
}


@loop
@pytest.mark.parametrize("shape", [(2, 2), (1, 2), (2, 1), (2, 3), (3, 2), (3, 3)])
@pytest.mark.parametrize("primal", ["in order", "transposed"])
@pytest.mark.parametrize("tangent", ORDERS)
def test_tangents_of_any_layout_follow_views(shape, primal, tangent, rng):
    primals, tangents = rng.standard_normal((2, *shape))
    for view in VIEWS.values():
        found, strides = [], []
        for L in BOTH:
            A = L.autograd.forward_ad
            with A.dual_level():
                given = ORDERS[tangent](L, tangents)
                dual = A.make_dual(ORDERS[primal](L, primals), given)
                if tangent != "expanded":
                    given.mul_(2)  # a tangent of the primal's layout is not copied
                own = A.unpack_dual(dual).tangent
                strides.append([step for n, step in zip(shape, own.stride(), strict=True) if n > 1])
                # also of a sum, because the result of an op may have a tangent in another order, too
                found += [tuple(A.unpack_dual(view(x))) for x in (dual, dual * 1 + given)]
        _agree(found[:2], found[2:])
        assert strides[0] == strides[1]


def test_invalid_calls_are_rejected():
    for L in BOTH:
        A = L.autograd.forward_ad
        x = L.ones(2)
        with pytest.raises(RuntimeError):
            A.make_dual(x, x)
        with A.dual_level() as level:
            assert level == 0
            dual = A.make_dual(x, x)
            with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported"):
                A.enter_dual_level()
            with pytest.raises(RuntimeError, match="different size"):
                A.make_dual(x, L.ones(3))
            with pytest.raises(ValueError, match="Expected primal to be floating point"):
                A.make_dual(L.ones(2, dtype=L.int64), x)
            with pytest.raises(RuntimeError, match="forward gradient at the same level"):
                A.make_dual(x, dual)
            with pytest.raises(RuntimeError, match="out= function"):
                L.add(x, x, out=dual)
        with pytest.raises(RuntimeError):
            A.exit_dual_level()


def test_tangents_die_with_their_tensors():
    import weakref

    with mytorch.autograd.forward_ad.dual_level():
        tangent = mytorch.ones(2)
        dual = mytorch.autograd.forward_ad.make_dual(mytorch.ones(2), tangent)
        reference = weakref.ref(tangent)
        del tangent
        assert reference() is not None
        del dual
        assert reference() is None


def test_gradcheck_sees_a_wrong_tangent():
    class Wrong(mytorch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def jvp(ctx, t):
            return t * 2.1

    x = mytorch.tensor(_draw((3,), np.float64), requires_grad=True)
    z = mytorch.tensor(_draw((3,), np.complex128), requires_grad=True)
    check = mytorch.autograd.gradcheck
    assert check(lambda a, b: (a * b.abs(), b.exp()), (x, z), check_forward_ad=True)
    assert mytorch.autograd.gradgradcheck(lambda a: a.sin().cumsum(0), (x,), check_fwd_over_rev=True)
    with pytest.raises(
        RuntimeError, match="Jacobian computed with forward mode mismatch for output 0 with respect to input 0"
    ):
        check(Wrong.apply, (x,), check_forward_ad=True, check_backward_ad=False)


# -- in place ---------------------------------------------------------------------------------------------------------

MAKERS = {
    "clone": lambda lib, a: a.clone(), "add": lambda lib, a: a + 1, "copy": lambda lib, a: a.to(lib.float32, copy=True),
    "relu": lambda lib, a: a.relu(), "clamp": lambda lib, a: a.clamp(-100, 100), "cat": lambda lib, a: lib.cat([a]),
    "sum": lambda lib, a: a.reshape(4, 1).sum(1), "repeat": lambda lib, a: a.repeat(1), "neg": lambda lib, a: -(-a),
    "where": lambda lib, a: lib.where(a > -9, a, 0.0), "index": lambda lib, a: a[lib.tensor([0, 1, 2, 3])],
    "cumsum": lambda lib, a: a.view(4, 1).cumsum(1)[:, 0], "tril": lambda lib, a: a.view(1, 4).tril(5)[0],
    "dropout": lambda lib, a: lib.nn.functional.dropout(a, 0.0), "complex": lambda lib, a: lib.complex(a, a * 0).real.clone(),
}  # fmt: skip
CHANGES = {
    "mul": lambda lib, b: b.mul_(3), "slice": lambda lib, b: b[::2].mul_(3), "setitem": lambda lib, b: b.__setitem__(0, b[1] * 2),
    "as_strided": lambda lib, b: lib.as_strided(b, (2,), (2,), 0).mul_(3), "fill": lambda lib, b: b.fill_(0),
    "copy": lambda lib, b: b.copy_(b * 2), "masked_fill": lambda lib, b: b.masked_fill_(b > 2, 0.0),
    "index_add": lambda lib, b: b.index_add_(0, lib.tensor([0]), b[1:2] * 1), "chunk": lambda lib, b: b.chunk(2)[1].add_(b[:2]),
}  # fmt: skip


@loop
@pytest.mark.parametrize("maker", MAKERS)
def test_a_change_in_place_does_not_reach_the_tangents_of_the_inputs(maker):
    for change in CHANGES.values():
        results = []
        for lib in (torch, mytorch):
            x, tangent = lib.tensor([1.0, 2.0, 3.0, 4.0]), lib.tensor([1.0, 10.0, 100.0, 1000.0])

            def program(a, lib=lib, change=change):
                b = MAKERS[maker](lib, a)
                change(lib, b)
                return a + b

            out = lib.func.jvp(program, (x,), (tangent,))
            results.append([t.tolist() for t in (*out, tangent)])
        assert results[0] == results[1]


POOLS = {
    "max_pool1d": (3, {"kernel_size": 2, "stride": 1, "padding": 1}),
    "max_pool2d": (4, {"kernel_size": (2, 3), "dilation": (1, 2), "stride": 1}),
    "max_pool3d": (5, {"kernel_size": 2, "ceil_mode": True}),
    "avg_pool1d": (3, {"kernel_size": 3, "ceil_mode": True}),
    "avg_pool2d": (4, {"kernel_size": 3, "padding": 1, "count_include_pad": False}),
    "avg_pool3d": (5, {"kernel_size": 2, "stride": 1}),
    "adaptive_max_pool2d": (4, {"output_size": (2, 3)}),
    "adaptive_avg_pool2d": (4, {"output_size": (2, 3)}),
    "lp_pool2d": (4, {"norm_type": 3, "kernel_size": 2}),
}


@loop
@pytest.mark.parametrize("name", POOLS)
def test_forward_over_reverse_of_pools(name):
    """The tangent of a gradient in the direction of its upstream gradient needs a gradient of the gradient's transpose."""
    ndim, options = POOLS[name]
    x = _draw((2, 3, 5, 6, 4)[:ndim], np.float64)

    def program(L):
        pool = lambda x: getattr(L.nn.functional, name)(x, **options)  # noqa: E731
        c = np.random.default_rng(1).standard_normal(tuple(pool(L.tensor(x)).shape))
        push = lambda x, c: L.func.vjp(pool, x)[1](c)[0]  # noqa: E731
        return L.func.jvp(push, (L.tensor(x), L.tensor(c)), (L.tensor(x[::-1].copy()), L.tensor(c[::-1].copy())))

    _agree(*(program(L) for L in BOTH), rtol=1e-9)


def test_ops_without_a_gradient():
    """An op without a formula has a zero tangent, so these ops return integers or have a kernel with its own gradient."""
    names = set()
    for info in pkgutil.walk_packages(mytorch.ops.__path__, "mytorch.ops."):
        for value in vars(importlib.import_module(info.name)).values():
            if type(value) is Op and not value.is_differentiable:
                names.add(value.name)
    integers = (
        "all any argmax argmin eq ne lt le gt ge isfinite isinf isnan logical_and logical_not logical_or logical_xor"
    )
    bits = "bitwise_and bitwise_not bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm"
    assert names <= {*integers.split(), *bits.split(), "_view_dtype", "elementwise_loss"}
    assert len(names) > 20


def test_a_level_that_ends_leaves_nothing_in_the_mode():
    before = mode.get_mode().interpreter
    forward_ad.enter_dual_level()
    assert mode.get_mode().interpreter is not before
    forward_ad.exit_dual_level()
    assert mode.get_mode().interpreter is before


DISABLED = {  # with tangents disabled for a part of the function
    "a product": lambda L, x, off: x * off(lambda: x * 2),
    "in place": lambda L, x, off: (y := x * 1, off(lambda: y.mul_(2)), y)[2],
    "an assignment": lambda L, x, off: (y := x * 1, off(lambda: y.__setitem__(0, 5.0)), y)[2],
    "softmax": lambda L, x, off: x - off(lambda: L.softmax(x, 0)),
    "a view": lambda L, x, off: x * off(lambda: x.flip(0)[:1]),
    "a matrix": lambda L, x, off: off(lambda: x[:, None] @ x[None]) @ x,
    "everything": lambda L, x, off: off(lambda: x.sin()),
}


@pytest.mark.parametrize("name", DISABLED)
@pytest.mark.parametrize("way", ["jvp", "nested", "dual level", "disabled outside", "vmap"])
def test_tangents_can_be_disabled(name, way):
    def run(L):
        ad, x = L.autograd.forward_ad, L.tensor([0.5, -1.0, 2.0])

        def off(part):
            with ad._set_fwd_grad_enabled(False):
                return part()

        def f(x):
            return DISABLED[name](L, x, off)

        t = L.tensor([1.0, 2.0, 3.0])
        if way == "jvp":
            return L.func.jvp(f, (x,), (t,))[1]
        if way == "vmap":
            return L.vmap(lambda v: L.func.jvp(f, (x,), (v,))[1])(L.stack([t, x]))
        if way == "nested":
            return L.func.jvp(lambda x: L.func.jvp(f, (x,), (t,))[1], (x,), (t,))[1]
        if way == "disabled outside":
            with ad._set_fwd_grad_enabled(False):
                return L.func.jvp(f, (x,), (t,))[1]
        with ad.dual_level():
            tangent = ad.unpack_dual(f(ad.make_dual(x, t))).tangent
            return L.zeros(3) if tangent is None else tangent

    want, found = run(torch), run(mytorch)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
