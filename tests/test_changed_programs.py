"""Cases that generated programs found, compared with PyTorch or with float64: each is one rule, with all of its forms."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("factor", [1.37, (1.0, 1.4), (0.9, 1.2)])
def test_antialiased_axes_of_equal_sizes_are_copied(mode, factor, torch, rng):
    values = rng.standard_normal((1, 2, 3, 2))
    mine, theirs = (
        L.nn.functional.interpolate(L.tensor(values), scale_factor=factor, mode=mode, antialias=True)
        for L in (mytorch, torch)
    )
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


HALF_GRADIENTS = {
    "softmax": lambda x: x.softmax(0), "log_softmax": lambda x: x.log_softmax(0), "var": lambda x: x.var(), "var 1": lambda x: x.var(1),
    "std": lambda x: x.std(), "logsumexp": lambda x: x.logsumexp(0), "norm": lambda x: x.norm(3, 1), "norm 2": lambda x: x.norm(),
}  # fmt: skip


@loop
@pytest.mark.cpu_only  # GPU kernels round at other places
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", HALF_GRADIENTS)
def test_gradients_of_reductions_in_half_precision(name, dtype, rng):
    """The error, relative to the element or to a hundredth of the largest one, is that of a few roundings."""
    function, half = HALF_GRADIENTS[name], getattr(mytorch, dtype)
    given = mytorch.tensor(rng.standard_normal((4, 33))).to(half)
    up = mytorch.tensor(rng.standard_normal(tuple(function(given).shape))).to(half)
    found = []
    for dtype in (half, mytorch.float64):
        x = given.to(dtype).detach().requires_grad_()
        found.append(mytorch.autograd.grad(function(x), x, up.to(dtype))[0].double().numpy())
    scale = np.maximum(np.abs(found[1]), np.abs(found[1]).max() / 100)
    assert (np.abs(found[0] - found[1]) / scale).max() < (0.1 if half is mytorch.bfloat16 else 0.02)


@loop
@pytest.mark.parametrize("scale", [1e-20, 1e-4, 1.0, 89.0])
@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_gradients_of_hyperbolic_functions(name, scale, rng):
    values = (rng.standard_normal(9).clip(-1, 1) * scale).astype(np.float32)
    x = mytorch.tensor(values).requires_grad_()
    g = mytorch.autograd.grad(getattr(mytorch, name)(x).sum(), x)[0].numpy()
    want = {"sinh": np.cosh, "cosh": np.sinh}[name](values.astype(np.float64))
    np.testing.assert_allclose(g, want, rtol=1e-5)


@loop
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
def test_distances_of_small_numbers_have_finite_gradients(dtype, scale, rng):
    F = mytorch.nn.functional
    for function in (F.normalize, lambda x: F.cosine_similarity(x, x * 2), lambda x: F.pairwise_distance(x, x * 1)):
        x = mytorch.tensor(rng.standard_normal((3, 33)) * scale).to(getattr(mytorch, dtype)).requires_grad_()
        y = function(x)
        y.sum().backward()
        assert y.dtype is x.dtype
        assert mytorch.isfinite(x.grad).all()


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf"), 0.0])
def test_clipping_of_complex_gradients(norm_type, torch, rng):
    values = rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3))
    found = []
    for L in (mytorch, torch):
        p = L.tensor(values, requires_grad=True)
        p.grad = p.detach() * 2
        total = L.nn.utils.clip_grad_norm_([p], 0.5, norm_type)
        found.append((str(total.dtype).split(".")[-1], float(total), np.asarray(p.grad.tolist())))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_adagrad_starts_later_groups_at_the_initial_value(dtype, torch):
    found = []
    for L in (mytorch, torch):
        p, q = (L.ones(2, dtype=getattr(L, dtype)).requires_grad_() for _ in range(2))
        optimizer = L.optim.Adagrad([p], lr=0.1, initial_accumulator_value=0.5)
        optimizer.add_param_group({"params": [q]})
        for _ in range(2):
            p.grad, q.grad = p.detach() * 3, q.detach() * 3
            optimizer.step()
        found.append(np.asarray([p.tolist(), q.tolist()]))
    np.testing.assert_allclose(*found, rtol=1e-9)


PROGRAMS = {
    "renorm_ twice": lambda L, y: y.renorm_(2, 0, 1.0).mul_(2).renorm_(2, 1, 1.0),
    "fill_ with a tensor": lambda L, y: y.fill_(L.tensor(2.0, requires_grad=True)),
    "copy_ of a tensor": lambda L, y: y.copy_(L.ones(2, 3, requires_grad=True) * 2),
    "1 / y": lambda L, y: (1 / y).mul_(3).masked_fill_(y > 0, 2.0),
    "beta of 0": lambda L, y: L.addmm(y, L.ones(2, 2), L.ones(2, 3), beta=0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_after_changes(name, torch, rng):
    values = rng.standard_normal((2, 3)).astype(np.float32)
    found = []
    for L in (mytorch, torch):
        x = L.tensor(values).requires_grad_()
        y = PROGRAMS[name](L, x * 1)
        y.backward(L.tensor(values[::-1].copy()))
        assert x.grad is not None
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-7)


def test_layouts_of_results(torch):
    for L in (mytorch, torch):
        assert L.nn.Fold((4, 5), (2, 2), padding=1)(L.zeros(2, 8, 30)).is_contiguous()
        packed = L.nn.utils.rnn.pack_padded_sequence(
            L.zeros(3, 4, 2), [2, 4, 3], batch_first=True, enforce_sorted=False
        )
        assert L.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0].is_contiguous()


REFUSED = {
    "hardtanh": lambda L: L.nn.functional.hardtanh(L.ones(2, dtype=L.uint8)),
    "narrow": lambda L: L.tensor(1.0).narrow(0, 0, 1),
    "fill_diagonal_": lambda L: L.zeros(3).fill_diagonal_(1),
    "fill_diagonal_ of a box": lambda L: L.zeros(2, 3, 2).fill_diagonal_(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_pytorch(name, torch):
    for L in (mytorch, torch):
        with pytest.raises(RuntimeError):
            REFUSED[name](L)


def test_a_dirichlet_of_one_coordinate_is_one():
    draws = mytorch.distributions.Dirichlet(mytorch.tensor([1e-3], dtype=mytorch.float64)).sample((50,))
    assert mytorch.isfinite(draws).all()


@loop
@pytest.mark.cpu_only  # a GPU draws other numbers
@pytest.mark.parametrize("count", [3, 17, 1000, 40000])
@pytest.mark.parametrize("bounds", [(-0.7, 0.7), (0, 3.3), (-(3**-0.5), 3**-0.5), (1e-3, 5), (100, 101.3)])
def test_seeded_uniform_numbers_are_equal(count, bounds, torch):
    mine, theirs = (L.empty(count) for L in (mytorch, torch))
    for L, x in ((mytorch, mine), (torch, theirs)):
        L.manual_seed(count)
        x.uniform_(*bounds)
    assert mine.tolist() == theirs.tolist()


@loop
@pytest.mark.cpu_only
@pytest.mark.parametrize("layer", [lambda nn: nn.Linear(7, 5), lambda nn: nn.Conv2d(3, 4, 3), lambda nn: nn.LSTM(3, 4)])
def test_seeded_layers_are_equal(layer, torch):
    states = []
    for L in (mytorch, torch):
        L.manual_seed(3)
        states.append({k: v.tolist() for k, v in layer(L.nn).state_dict().items()})
    assert states[0] == states[1]


@loop
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("exponents", ["int64", "int32", "int8", "uint8"])
def test_ldexp(dtype, exponents, torch, rng):
    values = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 3.4e38, 1e-40, 1e300, 5e-324], 200)
    powers = rng.integers(-2500, 2500, 200) if exponents == "int64" else rng.integers(-128, 128, 200)
    powers, found = powers if exponents != "uint8" else abs(powers), []
    for L in (mytorch, torch):
        x = L.tensor(values).to(getattr(L, dtype)).requires_grad_()
        found.append(L.ldexp(x, L.tensor(powers).to(getattr(L, exponents))))
    mine, theirs = (y.detach().double().numpy() for y in found)
    np.testing.assert_allclose(mine, theirs, rtol={"float64": 1e-15, "float32": 1e-6}.get(dtype, 0.01), atol=1e-300)
    if dtype == "float64" and exponents != "int64":  # PyTorch computes 2 ** exponent in the dtype of the exponent here
        x = mytorch.tensor(values, requires_grad=True)
        upstream = rng.standard_normal(200)
        y = mytorch.ldexp(x, mytorch.tensor(powers).to(getattr(mytorch, exponents)))
        (gradient,) = mytorch.autograd.grad(y, x, mytorch.tensor(upstream))
        np.testing.assert_allclose(gradient.numpy(), upstream * 2.0**powers, rtol=1e-15)


def test_einsum_without_a_sum_is_a_view():
    x = mytorch.arange(8.0).reshape(2, 2, 2)
    views = mytorch.einsum("ijk->kij", x), mytorch.einsum("bii->bi", x)
    x[0, 0, 0] = 9.0
    assert views[0][0, 0, 0] == views[1][0, 0] == 9
    y = mytorch.ones(2, 3, requires_grad=True)
    z = mytorch.einsum("ij->", y)
    z.backward()
    assert "Backward" in type(z.grad_fn).__name__  # also after the graph was freed


@loop
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "float32"])
def test_results_in_out_have_no_graph(name, dtype):
    x, out = mytorch.ones(2, 3, requires_grad=True), mytorch.empty(0, dtype=getattr(mytorch, dtype))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        getattr(mytorch, name)(x, 0, out=out)


def test_dtypes_with_0d_tensors(torch):
    found = []
    for L in (torch, mytorch):
        F, x, y, bytes_ = L.nn.functional, L.ones(3), L.tensor(2.0, dtype=L.float64), L.tensor([3, 4], dtype=L.int8)
        results = [
            F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y), F.linear(bytes_, bytes_), L.block_diag(x, y),
            L.block_diag(x.half(), L.tensor(2.0)), L.block_diag(x, L.tensor(1j)), L.cumulative_trapezoid(bytes_[:0]),
        ]  # fmt: skip
        found.append([(str(r.dtype).rpartition(".")[2], r.tolist()) for r in results])
    assert found[0] == found[1]


CHANGES = "t_() unsqueeze_(0) squeeze_() transpose_(0,1) swapaxes_(0,1) set_(L.ones(4))".split()


@loop
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("change", [*CHANGES, "data = L.ones(5)", "data = L.ones(2, 2, 2)"])
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (1, 1), (3, 1)])
def test_gradients_are_not_added_to_one_of_another_shape(shape, change, create_graph):
    x = mytorch.ones(shape, requires_grad=True)
    (x * x).sum().backward(create_graph=create_graph)
    with mytorch.no_grad():
        exec(f"x.{change}", {"x": x, "L": mytorch})
    if tuple(x.shape) == shape:
        (x * x).sum().backward()
    else:
        with pytest.raises(RuntimeError, match="of shape"):
            (x * x).sum().backward()
        x.grad = None
        (x * x).sum().backward()
    assert tuple(x.grad.shape) == tuple(x.shape)


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("count", [3, 500, 5000, 20_011])
@pytest.mark.cpu_only
def test_samples_of_many_categories(count, dtype, torch):
    found = []
    for L in (mytorch, torch):
        L.manual_seed(3)
        weights = L.rand(count).to(getattr(L, dtype)) + 0.01
        found.append(L.multinomial(weights, 2000, replacement=True).tolist())
    assert found[0] == found[1]


@loop
@pytest.mark.parametrize("exponent", [-1, -2])
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_negative_exponents_of_integers(dtype, exponent, torch):
    """A number is refused, and a tensor without axes is not."""
    for L in (mytorch, torch):
        x = L.tensor([1, 2, 3]).to(getattr(L, dtype))
        for call in (lambda x=x: x**exponent, lambda x=x: x.pow(exponent), lambda L=L, x=x: L.pow(x, exponent)):
            with pytest.raises(RuntimeError, match="negative integer powers"):
                call()
    values = [(L.tensor([1, 2, 3]) ** L.tensor(exponent, dtype=L.int8)).tolist() for L in (mytorch, torch)]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    "call", "random_(3) normal_() uniform_() bernoulli_(0.5) exponential_() cauchy_() geometric_(0.4)".split()
)
def test_refused_calls_draw_nothing(call, torch):
    for L in (mytorch, torch):
        x = L.ones(2, 3).requires_grad_()
        L.manual_seed(0)
        first = L.rand(1).tolist()
        L.manual_seed(0)
        with pytest.raises(RuntimeError, match="leaf"):
            eval(f"x[0].{call}", {"x": x})
        assert L.rand(1).tolist() == first
