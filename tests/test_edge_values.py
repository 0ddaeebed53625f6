"""Empty operands, NaN and infinities, integer dtypes and invalid arguments, compared with PyTorch."""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

NAN, INF = float("nan"), float("inf")


def gradient(lib, function, values, dtype=None):
    x = lib.tensor(values, dtype=dtype and getattr(lib, dtype)).requires_grad_()
    result = function(x)
    (result.sum() if result.ndim else result).backward()
    return np.asarray(x.grad.tolist())


def compare(torch, program):
    mine, theirs = program(mytorch), program(torch)
    if hasattr(mine, "dtype") and hasattr(theirs, "tolist"):
        assert str(mine.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        assert tuple(mine.shape) == tuple(theirs.shape)
        mine, theirs = np.asarray(mine.tolist()), np.asarray(theirs.tolist())
    np.testing.assert_allclose(mine, theirs, rtol=1e-6, equal_nan=True)


EQUATIONS = {
    "bij,bjk->bik": ((0, 3, 4), (0, 4, 2)),
    "ij,jk->ik": ((3, 0), (0, 2)),
    "i,i->": ((0,), (0,)),
    "ij,j->i": ((3, 1), (0,)),
    "ii->i": ((0, 0),),
    "...i,i->...": ((2, 0, 3), (3,)),
    "ij,kj->ik": ((1, 2), (0, 2)),
    "ij->": ((0, 5),),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_of_empty_operands(torch, equation):
    compare(torch, lambda L: L.einsum(equation, *[L.ones(shape) for shape in EQUATIONS[equation]]))


ROWS = [1.0, NAN, 2.0], [NAN, NAN, 1.0], [1.0, 1.0, 0.0], [INF, INF, 1.0], [-INF, -INF], [-INF, 1.0], [NAN, INF]
REDUCTIONS = {
    **{name: (lambda name: lambda x: getattr(x, name)())(name) for name in "min max amin amax median mean".split()},
    **{f"{name} along": (lambda name: lambda x: getattr(x, name)(0)[0])(name) for name in "min max median cummax".split()},
    "logsumexp": lambda x: x.logsumexp(0),
    "softmax": lambda x: x.softmax(0)[0],
}  # fmt: skip


@loop
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_gradients_at_nan_and_infinity(torch, name, row):
    compare(torch, lambda L: gradient(L, REDUCTIONS[name], row))


def integers(L, dtype="int32"):
    return L.tensor([1, 2], dtype=getattr(L, dtype))


PROGRAMS = {
    "index_fill of bool": lambda L: L.tensor([True, False]).index_fill(0, L.tensor([0]), 1),
    "index_fill_ of bool": lambda L: L.tensor([True, False]).index_fill_(0, L.tensor([1]), 1),
    "index_fill of integers": lambda L: integers(L).index_fill(0, L.tensor([1]), 2.7),
    "masked_fill of bool": lambda L: L.tensor([True, False]).masked_fill(L.tensor([True, False]), 0),
    "addcmul of integers": lambda L: L.addcmul(integers(L), integers(L), integers(L), value=2.5),
    "addcmul of large numbers": lambda L: L.addcmul(L.ones(2), L.tensor([1e20, 2.0]), L.tensor([1e20, 3.0]), value=1e-3),
    "addcdiv": lambda L: L.addcdiv(L.ones(2), L.tensor([1.0, 2.0]), L.tensor([3.0, 7.0]), value=0.3),
    "ldexp of bfloat16": lambda L: L.ldexp(L.ones(2, dtype=L.bfloat16), integers(L)),
    "ldexp of float16": lambda L: L.ldexp(L.ones(2, dtype=L.float16), integers(L)),
    "ldexp of integers": lambda L: L.ldexp(integers(L), integers(L)),
    "reversed": lambda L: reversed(L.arange(6).reshape(3, 2)),
    "reversed 0-d": lambda L: reversed(L.tensor(1)),
    "searchsorted in empty rows": lambda L: L.searchsorted(L.zeros(2, 0), L.ones(2, 3)),
    "searchsorted of no rows": lambda L: L.searchsorted(L.zeros(0, 3), L.ones(0, 2)),
    "searchsorted in an empty row": lambda L: L.searchsorted(L.zeros(0), L.tensor([1.0, 2.0])),
    "norm of empty rows": lambda L: L.linalg.norm(L.zeros(2, 0), dim=1),
    "norm of an empty matrix": lambda L: L.linalg.matrix_norm(L.zeros(2, 0, 3)),
    "gradient of quantile by q": lambda L: gradient(L, lambda q: L.quantile(L.tensor([1.0, 5.0, 2.0, 9.0]), q), [0.3, 0.6]),
    "gradient of nanquantile by q": lambda L: gradient(
        L, lambda q: L.nanquantile(L.tensor([1.0, 5.0, NAN, 9.0]), q), [0.3, 0.6]
    ),
    "embedding_bag": lambda L: bag(L),
    "gather by an empty index": lambda L: gradient(L, lambda x: x.gather(0, L.zeros(0, dtype=L.int64)) * 2, [[1.0, 2.0]]),
    "spectral norm of an empty matrix": lambda L: L.linalg.norm(L.zeros(3, 0), 2),
}  # fmt: skip


NORMS = [
    (function, order, shape, dim)
    for function in ("linalg.norm", "linalg.vector_norm", "norm")
    for order in (INF, -INF, 0, 1, 2, -1, 3.0, "fro", "nuc")
    for shape, dim in (
        ((2, 0), 1),
        ((2, 0), 0),
        ((0,), None),
        ((2, 0, 3), (1, 2)),
        ((2, 3), []),
        ((2, 3), ()),
        ((3, 0), None),
    )
    if not (function == "linalg.vector_norm" and isinstance(order, str))
]


ALONG = """
    max min amax amin argmax argmin aminmax mode median nanmedian sort argsort cummax cummin cumsum cumprod logcumsumexp logsumexp sum mean
    nanmean nansum prod std var norm any all count_nonzero softmax log_softmax diff std_mean var_mean quantile nanquantile
    linalg.vector_norm nn.functional.normalize topk kthvalue
""".split()


@loop
@pytest.mark.parametrize("name", ALONG)
@pytest.mark.filterwarnings("ignore")
def test_along_a_dimension_of_an_empty_tensor(name, torch):
    """Results, or the class of the error."""
    first = {"quantile": (0.5,), "nanquantile": (0.5,), "topk": (0,), "kthvalue": (1,)}.get(name, ())
    for shape in ((0,), (0, 0), (0, 3), (3, 0), (2, 0, 3), ()):
        for dim in range(-1, max(len(shape), 1)):
            found = []
            for lib in (mytorch, torch):
                function = lib
                for part in name.split("."):
                    function = getattr(function, part)
                try:
                    result = function(lib.zeros(shape), *first, dim=dim)
                except (RuntimeError, IndexError, ValueError) as error:
                    found.append(type(error))
                    continue
                result = result if isinstance(result, tuple) else (result,)
                found.append([(str(r.dtype).rpartition(".")[2], tuple(r.shape), str(r.tolist())) for r in result])
            assert found[0] == found[1], f"{shape}, dim={dim}"


def test_norms_of_empty_tensors(torch):
    for function, order, shape, dim in NORMS:
        results = []
        for L in (mytorch, torch):
            norm = L.norm if function == "norm" else getattr(L.linalg, function[7:])
            try:
                results.append(norm(L.ones(shape), order, dim=dim).tolist())
            except (RuntimeError, IndexError):
                results.append("refused")
        np.testing.assert_equal(*results, err_msg=str((function, order, shape, dim)))


def test_linspace_of_integers(torch):
    """The numbers start from the ends in the integer dtype. A multiple of the step that rounds to an integer may differ by 1."""
    rng = np.random.default_rng(0)
    for name in ("linspace", "logspace"):
        different = 0
        for _ in range(300):
            a, b, n = int(rng.integers(-20, 20)), int(rng.integers(-50, 50)), int(rng.integers(0, 20))
            a, b = (a, b) if name == "linspace" else (a // 10, b // 10)
            dtype = ["int64", "int32", "int16", "float64"][rng.integers(4)]
            a, b = [(a, b), (a / 3, b / 7)][rng.integers(2)]
            for ends in ((a, b), "t"):
                mine, theirs = (
                    getattr(L, name)(
                        *(ends if ends != "t" else map(L.tensor, (a, b))), n, dtype=getattr(L, dtype)
                    ).tolist()
                    for L in (mytorch, torch)
                )
                gaps = np.abs(np.subtract(mine, theirs))
                assert dtype != "float64" or np.all(gaps <= 1e-5 * np.abs(theirs) + 1e-6)
                different += np.count_nonzero(gaps > 0) if dtype != "float64" else 0
                assert name == "logspace" or np.all(gaps <= 1)
        assert different <= 12
    for L in (mytorch, torch):
        with pytest.raises(RuntimeError):
            L.linspace(0, 300, 4, dtype=L.uint8)
        with pytest.raises(NotImplementedError):
            L.linspace(0, 1, 2, dtype=L.bool)


@pytest.mark.parametrize("name", ["normal_", "zero_", "eq_", "logical_not_", "random_", "bernoulli_", "sign_"])
def test_constants_written_in_place_have_a_gradient_of_zeros(torch, name):
    def program(L):
        x = L.ones(3).requires_grad_()
        y = x * 2
        getattr(y, name)(*([0] if name == "eq_" else []))
        y.sum().backward()
        return x.grad

    mine = program(mytorch)
    assert mine.tolist() == [0, 0, 0]
    if name != "logical_not_":  # PyTorch keeps the graph of the old values
        assert program(torch).tolist() == [0, 0, 0]


def bag(L):
    layer = L.nn.EmbeddingBag(3, 2, padding_idx=1, max_norm=1.0)
    with L.no_grad():
        layer.weight[:] = L.tensor([[0.0, 5.0], [0.0, 5.0], [0.0, 0.5]])
    layer(L.tensor([[0, 1, 2]]))
    return layer.weight.detach()


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_dtypes(torch, name):
    compare(torch, PROGRAMS[name])


@loop
@pytest.mark.parametrize("scale", [3e19, 1e-20, 1e18])
@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adadelta", "Adagrad"])
@pytest.mark.parametrize("n", [2, 5000])
def test_optimizers_with_large_and_small_gradients(torch, name, scale, n):
    def parameters(L):
        p = L.nn.Parameter(L.linspace(1, 2, n))
        optimizer = getattr(L.optim, name)([p], lr=0.1)
        for i in range(3):
            p.grad = L.linspace(-1, 1, n) * scale * (i + 1)
            optimizer.step()
        return p.detach()

    compare(torch, parameters)


def function_that_returns_a_list(L):
    class Product(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return [g, g]

    x = L.ones(1).requires_grad_()
    Product.apply(x, x).backward()


INVALID = {
    "int16 index": lambda L: L.arange(3)[L.tensor([0], dtype=L.int16)],
    "float index": lambda L: L.arange(3)[L.tensor([0.5])],
    "no inputs": lambda L: L.autograd.grad(L.ones(1).requires_grad_().sum(), []),
    "celu of alpha 0": lambda L: L.nn.functional.celu(L.ones(2), alpha=0.0),
    "shift of floats": lambda L: L.ones(2) << 1,
    "in-place shift of floats": lambda L: L.ones(2).__ilshift__(1),
    "in-place and of floats": lambda L: L.ones(2).__iand__(1),
    "autocast dtype": lambda L: L.get_autocast_dtype("mean"),
    "list of gradients": function_that_returns_a_list,
    "dtype of normal numbers with means": lambda L: L.normal(L.zeros(2), 1.0, dtype=L.float64),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments(torch, name):
    with pytest.raises(Exception) as theirs:
        INVALID[name](torch)
    with pytest.raises(theirs.type):
        INVALID[name](mytorch)


BATCHES = {
    "cholesky_ex": lambda L, A: L.linalg.cholesky_ex(A),
    "cholesky_ex upper": lambda L, A: L.linalg.cholesky_ex(A, upper=True),
    "inv_ex": lambda L, A: L.linalg.inv_ex(A),
    "solve_ex": lambda L, A: L.linalg.solve_ex(A, L.ones(4, 2, 3, dtype=A.dtype)),
    "solve_ex of vectors": lambda L, A: L.linalg.solve_ex(A, L.ones(4, 2, dtype=A.dtype)),
    "det": lambda L, A: (L.linalg.det(A),),
}


@pytest.mark.parametrize("name", BATCHES)
def test_singular_matrices_do_not_affect_others_of_the_batch(torch, name):
    matrices = np.array(
        [[[2.0, 1.0], [1.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]], [[4.0, 2.0], [2.0, 5.0]]]
    )
    results = []
    for lib in (mytorch, torch):
        A = lib.tensor(matrices).requires_grad_()
        out = BATCHES[name](lib, A)
        (out[0][0].sum() + out[0][3].sum()).backward()
        results.append([*(np.asarray(t.tolist()) for t in out), np.asarray(A.grad.tolist())])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine[[0, 3]], theirs[[0, 3]], rtol=1e-9)


@pytest.mark.parametrize("n", range(5))
def test_polygamma_of_negative_numbers(torch, n):
    x = [-300.7, -30.3, -12.5, -4.2, -1.5, -1e-3, 1e-3, 0.5, 2.0, 30.0, 300.0]
    compare(torch, lambda L: L.polygamma(n, L.tensor(x, dtype=L.float64)))


def test_gradient_of_sinc_near_zero():
    """The derivative of sinc is -pi^2 x / 3 (1 - pi^2 x^2 / 10) up to the fourth power of x."""
    x = np.array([1e-30, 1e-12, 1e-8, 1e-5, 1e-3, -1e-4, 0.0])
    expected = -(np.pi**2) * x / 3 * (1 - (np.pi * x) ** 2 / 10)
    np.testing.assert_allclose(gradient(mytorch, lambda t: t.sinc(), x.tolist(), "float64"), expected, rtol=1e-9)
    np.testing.assert_allclose(gradient(mytorch, lambda t: t.sinc(), x.tolist()), expected, rtol=1e-6)


PAIRS = [1.0, 1e30, NAN, 1.0, INF, INF, -INF, 2.0], [1.0, 1e30, 1.0, NAN, INF, 1.0, 1.0, 3.0]


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2"])
def test_gradients_of_pairs_at_ties_nan_and_infinity(torch, name):
    compare(
        torch,
        lambda L: gradient(L, lambda x: getattr(L, name)(x, L.tensor(PAIRS[1], dtype=L.float64)), PAIRS[0], "float64"),
    )


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout", "dropout", "dropout2d"])
def test_dropout_in_place(torch, name):
    def program(L):
        L.manual_seed(0)
        x = L.ones(2, 3, 4, 4)
        y = getattr(L.nn.functional, name)(x, 0.5, True, inplace=True)
        assert y is x
        return x

    compare(torch, program)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles(torch, name, interpolation):
    rng = np.random.default_rng(0)
    for shape in ((5,), (3, 4), (2, 3, 4), (1,), ()):
        for values in (rng.standard_normal(shape), np.where(rng.random(shape) < 0.3, NAN, rng.standard_normal(shape))):
            for q in (0.3, [0.1, 0.5, 0.9], [0.0, 1.0], []):
                for dim in (None, 0, -1):
                    for keepdim in (False, True):

                        def program(L, gradient=False):
                            at = L.tensor(q, dtype=L.float64) if isinstance(q, list) else q
                            x = L.tensor(values, dtype=L.float64, requires_grad=True)
                            out = getattr(L, name)(x, at, dim, keepdim, interpolation=interpolation)
                            g = L.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)), dtype=L.float64)
                            return L.autograd.grad(out, x, g)[0] if gradient else out.detach()

                        compare(torch, program)
                        compare(torch, lambda L: program(L, gradient=True))


def test_no_dtype_equals_none():
    names = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
    assert not any(getattr(mytorch, name) == None for name in names)  # noqa: E711


SELECTIONS = {
    **{name: (lambda L, x, y, name=name: getattr(L, name)(x)) for name in "floor ceil round trunc frac sign sgn".split()},
    **{name: (lambda L, x, y, name=name: getattr(L, name)(x, y)) for name in "maximum minimum fmax fmin xlogy nextafter".split()},
    **{name: (lambda L, x, y, name=name: getattr(x, name)()) for name in "max min median nanmedian".split()},
    **{name: (lambda L, x, y, name=name: getattr(L.nn.functional, name)(x)) for name in "relu relu6 elu selu celu hardtanh".split()},
    "clamp": lambda L, x, y: L.clamp(x, -1, 1),
    "where": lambda L, x, y: L.where(x > y, x, y),
    "masked_fill": lambda L, x, y: x.masked_fill(x > y, 2.0),
    "div_floor": lambda L, x, y: L.div(x, y, rounding_mode="floor"),
    "sort": lambda L, x, y: x.sort().values,
    "max_dim": lambda L, x, y: x.max(0).values,
}  # fmt: skip


@loop
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SELECTIONS)
def test_an_element_that_is_not_selected_has_no_gradient(torch, name):
    """A gradient of zero is zero for an infinite upstream gradient, too: a product with 0 would be NaN."""
    points = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, INF] + ([] if name in ("median", "sort") else [NAN])
    pairs = np.array([(a, b) for a in points for b in (-2.0, 0.0, 0.5, 1.0, INF)])

    def program(L, upstream):
        x, y = (L.tensor(pairs[:, i].copy(), requires_grad=True) for i in (0, 1))
        out = SELECTIONS[name](L, x, y)
        grads = L.autograd.grad(out, (x, y), L.full_like(out, upstream), allow_unused=True)
        return np.stack([(g + 0.0).numpy() for g in grads if g is not None])

    for upstream in (0.7, INF, NAN):
        np.testing.assert_allclose(program(mytorch, upstream), program(torch, upstream), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"])
def test_pairs_of_other_dtypes_are_not_viewed_as_complex_numbers(dtype):
    with pytest.raises(RuntimeError):  # NotImplementedError is a RuntimeError
        mytorch.view_as_complex(mytorch.ones(3, 2).to(getattr(mytorch, dtype)))


REFUSED = {
    "a complex tolerance of pinv": lambda L: L.linalg.pinv(L.eye(2), rtol=L.tensor(0.1j)),
    "a complex tolerance of matrix_rank": lambda L: L.linalg.matrix_rank(L.eye(2), atol=L.tensor(0.1j)),
    "float_power_ of float32": lambda L: L.ones(2).float_power_(2),
    "float_power_ of float64": lambda L: L.full((2,), 3.0, dtype=L.float64).float_power_(2).tolist(),
    "a complex number as a float": lambda L: float(L.tensor(1j)),
    "a complex number as an int": lambda L: int(L.tensor(2 + 1j)),
    "a real complex number as a float": lambda L: float(L.tensor(2 + 0j)),
    "a view with a wider dtype": lambda L: L.ones(3, 3).view(L.float64),
    "a view with a wider dtype of a part": lambda L: L.ones(3, 6)[:, 1:5].view(L.float64),
    "a view with a wider dtype of rows with gaps": lambda L: L.ones(3, 5)[:, :4].view(L.float64),
    "a view with a wider dtype of every second row": lambda L: L.ones(4, 4)[::2].view(L.float64).shape == (2, 2),
    "flip without dimensions": lambda L: L.ones(2, 2).flip(),
    "a number as a view": lambda L: L.asarray(2.0, copy=False),
    "a NumPy scalar as a view": lambda L: L.asarray(np.float32(2.0), copy=False),
    "a list as a buffer": lambda L: L.frombuffer([1, 2], dtype=L.float32),
    "a complex norm into a complex tensor": lambda L: L.linalg.vector_norm(
        L.ones(3, dtype=L.complex64), dtype=L.complex64, out=L.empty((), dtype=L.complex64)
    ),
    "a complex norm into a real tensor": lambda L: L.linalg.vector_norm(
        L.ones(3, dtype=L.complex64), dtype=L.complex64, out=L.empty(())
    ).tolist(),
    "a sum into another dtype": lambda L: L.sum(L.ones(3), 0, dtype=L.float64, out=L.empty(())),
}


@pytest.mark.parametrize("name", REFUSED)
def test_classes_of_errors(name, torch):
    found = []
    for lib in (mytorch, torch):
        try:
            found.append(REFUSED[name](lib))
        except Exception as error:
            found.append(type(error))
    assert found[0] == found[1]


def test_numbers_instead_of_tensors(torch):
    """Functions that accept two numbers, and options that are tensors with one element."""
    for lib in (mytorch, torch):
        x, two = lib.tensor([1.0, 2.0]), lib.tensor(2.0)
        assert [lib.mul(6, 4).item(), lib.mul(6, 2.5).item(), lib.floor_divide(6, 4).item()] == [24, 15.0, 1]
        assert x.addcmul(x, x, value=two).tolist() == [3.0, 10.0]
        assert x.addcdiv(x, x, value=two).tolist() == [3.0, 4.0]
        with pytest.raises(TypeError):
            lib.float_power(2.0, 3.0)
