"""Calls return correct results or raise errors, compared with PyTorch: no wrong numbers, invalid memory reads or hangs."""

import threading

import numpy as np
import pytest

import mytorch
import mytorch.nn.functional as F
from mytorch import linalg
from tests.loops import loop

INF, NAN = float("inf"), float("nan")


def both(torch, call):
    """Calls a function in both libraries; returns NumPy arrays, or the kind of error."""
    found = []
    for lib in (mytorch, torch):
        try:
            out = call(lib)
            out = out if isinstance(out, (tuple, list)) else [out]
            found.append([np.asarray(o.detach() if hasattr(o, "detach") else o) for o in out])
        except Exception as error:
            found.append(type(error).__mro__[-3] if isinstance(error, np.linalg.LinAlgError) else type(error))
    return found


def assert_same(torch, call, **tolerance):
    """Equal results, or errors on both sides."""
    mine, theirs = both(torch, call)
    assert isinstance(mine, list) == isinstance(theirs, list), f"{mine}, PyTorch: {theirs}"
    for a, b in zip(mine, theirs, strict=True) if isinstance(mine, list) else ():
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7, **tolerance)


def assert_refused(torch, call):
    """Checks that both libraries raise the same kind of error, and that mytorch's message is not a raw NumPy message."""
    with pytest.raises(Exception, match=".") as theirs:
        call(torch)
    with pytest.raises(theirs.type if theirs.type in (RuntimeError, ValueError, TypeError, IndexError) else Exception):
        call(mytorch)


BAD_SIZES = [{"dilation": -1}, {"dilation": 0}, {"stride": 0}, {"stride": -1}, {"padding": -1}]


@loop
@pytest.mark.parametrize("bad", [*BAD_SIZES, {"groups": 0}, {"groups": -1}, {"stride": 1.5}], ids=str)
@pytest.mark.parametrize(
    "name", ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
)
def test_convolutions_reject_arguments_that_read_outside_of_memory(name, bad, torch):
    d = int(name[-2])
    for weight in ((1, 1, *(2,) * d), (1, 1, *(0,) * d)):
        assert_refused(
            torch, lambda lib, w=weight: getattr(lib.nn.functional, name)(lib.ones(1, 1, *(4,) * d), lib.ones(w), **bad)
        )


@loop
@pytest.mark.parametrize(
    "bad", [{"kernel_size": 0}, {"kernel_size": -1}, *({"kernel_size": 2, **bad} for bad in BAD_SIZES)], ids=str
)
@pytest.mark.parametrize(
    "name", ["max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "unfold"]
)
def test_pools_and_unfold_refuse_such_windows(name, bad, torch):
    if "dilation" in bad and name.startswith("avg"):
        pytest.skip("takes no dilation")
    d = 2 if name == "unfold" else int(name[-2])
    assert_refused(torch, lambda lib: getattr(lib.nn.functional, name)(lib.ones(1, 1, *(4,) * d), **bad))


@pytest.mark.parametrize("sizes", [(1, 4, 8), (1, 5, 9), (4, 8), (3,)], ids=str)
def test_fold_refuses_columns_that_do_not_fit(sizes, torch):
    assert_refused(torch, lambda lib: lib.nn.functional.fold(lib.ones(sizes), (4, 4), 2))


@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_matrices_with_infinities_never_reach_lapack(value):
    A = mytorch.tensor([[value, 1.0], [1.0, 2.0]])
    for call in (
        linalg.svdvals, linalg.svd, linalg.pinv, linalg.cond, linalg.matrix_rank, linalg.eigh, linalg.eig, linalg.eigvals,
        lambda A: linalg.lstsq(A, A), lambda A: linalg.matrix_norm(A, 2), lambda A: linalg.matrix_norm(A, "nuc"),
        lambda A: linalg.svd(mytorch.cat([A, A])), lambda A: linalg.pinv(A, hermitian=True), lambda A: A.norm("nuc"),
    ):  # fmt: skip
        with pytest.raises(linalg.LinAlgError, match="non-finite"):
            call(A)
    with pytest.raises(linalg.LinAlgError, match="positive-definite"):
        linalg.cholesky(A * NAN)
    assert not np.isfinite(linalg.matrix_exp(A).numpy()).all()


EDGE = [-INF, -1e30, -104.0, -88.0, -20.0, -1e-3, -1e-40, 0.0, 1e-40, 1.0, 20.0, 88.0, 1e30, INF, NAN]


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "name",
    [
        "sigmoid",
        "silu",
        "softplus",
        "logsigmoid",
        "tanh",
        "mish",
        "gelu",
        "hardswish",
        "elu",
        "softsign",
        "threshold",
        "hardtanh",
    ],
)
def test_activations_keep_their_tails(name, dtype, torch):
    options = {"threshold": 0.5, "value": 3.0} if name == "threshold" else {}
    small = [x for x in EDGE if not np.isfinite(x) or abs(x) < 60000 or dtype != "float16"]

    def call(lib):
        x = lib.tensor(small).to(getattr(lib, dtype)).requires_grad_()
        function = getattr(lib.nn.functional, name, None) or getattr(lib, name)
        y = function(x, **options)
        y.sum().backward()
        return y.float(), x.grad.float()

    mine, theirs = both(torch, call)
    loose = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 2e-5)
    for a, b, what in zip(mine, theirs, ("value", "gradient"), strict=True):
        given = np.array(small)
        finite = np.isfinite(b) & ~np.isnan(given) if what == "gradient" else given != (INF if name == "gelu" else 0.5)
        np.testing.assert_allclose(a[finite], b[finite], rtol=loose, atol=1e-37 if loose < 1e-3 else 1e-6, err_msg=what)


def test_running_log_sum_exp_keeps_small_summands(torch, rng):
    for values in ([0.0, 5.0, 120.0], [-INF, 1.0, -INF, 800.0, 3.0], rng.standard_normal((3, 5)) * 300, [INF, 1.0]):

        def call(lib, values=values):
            x = lib.tensor(values, dtype=lib.float64, requires_grad=True)
            y = lib.logcumsumexp(x, -1)
            (y[..., ::2] * 0.5 - y[..., 1::2].sum()).sum().backward()
            return y, x.grad

        assert_same(torch, call)
    x = mytorch.randn(2, 3, dtype=mytorch.float64, requires_grad=True)
    assert mytorch.autograd.gradgradcheck(lambda x: mytorch.logcumsumexp(x, 1), (x,))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e30])
def test_cross_entropy_of_large_logits(scale, fused, torch, rng):
    values, target = rng.standard_normal((64, 512)).astype("float32") * 3 + np.float32(scale), rng.integers(0, 512, 64)
    target[::7] = -100

    def call(lib):
        x = lib.tensor(values, requires_grad=True)
        more = {"fused": fused} if lib is mytorch else {}
        loss = lib.nn.functional.cross_entropy(x, lib.tensor(target), **more)
        loss.backward()
        return loss, x.grad

    assert_same(torch, call)


@pytest.mark.parametrize("fused", [True, False])
def test_nothing_is_learned_from_a_batch_of_padding(fused, torch):
    for function in ("cross_entropy", "nll_loss"):

        def call(lib, function=function):
            x = lib.ones(3, 4, requires_grad=True)
            more = {"fused": fused} if lib is mytorch and function == "cross_entropy" else {}
            loss = getattr(lib.nn.functional, function)(x, lib.full((3,), -100), **more)
            loss.backward()
            return loss, x.grad

        assert_same(torch, call)
        assert not call(mytorch)[1].any()


@pytest.mark.parametrize("width", [5, 64, 150])
@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1e30), ("float64", 1e200), ("bfloat16", 1e30)])
@pytest.mark.parametrize("fused", [True, False])
def test_a_variance_that_overflows_never_looks_like_zeros(fused, dtype, scale, width, rng):
    """PyTorch returns 0 or NaN, depending on the number of whole SIMD vectors in a row; the true values are not zeros."""
    rows = mytorch.tensor(rng.standard_normal((8, width)) * scale, dtype=getattr(mytorch, dtype), requires_grad=True)
    fused = {"fused": fused and dtype == "float32"}
    out = F.layer_norm(rows, (width,), **fused)
    out.backward(mytorch.ones_like(out))
    wide = np.asarray(rows.detach().to(mytorch.float64))
    true = (wide / scale - (wide / scale).mean(-1, keepdims=True)) / (wide / scale).std(-1, keepdims=True)
    tolerance = 1e-2 if dtype == "bfloat16" else 1e-4
    for found in (out, F.group_norm(rows.reshape(4, 2, width), 2, **fused).reshape(8, width)):
        values = np.asarray(found.detach().to(mytorch.float64))
        assert np.isnan(values).all() or np.abs(values - true).max() < 2 * tolerance


@pytest.mark.parametrize("size", [3, 20_000])
@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_gradients_at_nan_are_the_same_by_kernel_and_not(name, size, torch, rng):
    values, upstream = rng.standard_normal((2, size)).astype(np.float32)
    values[:3] = NAN, 0, -INF

    def call(lib):
        x = lib.tensor(values, requires_grad=True)
        getattr(lib.nn.functional, name)(x).backward(lib.tensor(upstream))
        return x.grad

    assert_same(torch, call)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_the_same_fused_and_not(approximate, torch):
    for fused in (True, False):
        edge = [x for x in EDGE if x != INF]  # of which PyTorch makes NaN in some builds
        mine = F.gelu(mytorch.tensor(edge), approximate=approximate, fused=fused).numpy()
        theirs = torch.nn.functional.gelu(torch.tensor(edge), approximate=approximate).numpy()
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=1e-7)


@pytest.mark.filterwarnings("ignore")
def test_options_that_were_not_heard(torch):
    x, A = [[0.1, 2.0], [3.0, -1.0]], np.arange(24.0).reshape(2, 3, 4) + 1j

    def losses(lib):
        F, t = lib.nn.functional, lib.tensor([0, 1])
        x_, p = lib.tensor(x), lib.tensor([[0.2, 0.8], [0.5, 0.5]])
        return [
            F.cross_entropy(x_, t, reduce=False), F.cross_entropy(x_, t, size_average=False),
            F.kl_div(x_, p, 0), F.kl_div(x_, p, 1), F.kl_div(x_, p, reduce=0),
        ]  # fmt: skip

    assert_same(torch, losses)
    assert_same(torch, lambda lib: [lib.adjoint(lib.tensor(A)).resolve_conj(), lib.linalg.diagonal(lib.tensor(A))])
    assert_same(
        torch,
        lambda lib: [lib.nn.functional.lp_pool1d(lib.tensor([[1.0, 2.0, -3.0, 4.0]]), p, 2) for p in (INF, -INF, 1.5)],
    )
    for lengths in (((0, 4), (2, 1)), ((0, 4), (0, 1)), ((1, 4), (2, 1)), ((4, 0), (0, 0))):

        def ctc(lib, lengths=lengths):
            steps = lib.tensor(np.linspace(-1, 1, 24).reshape(4, 2, 3)).log_softmax(-1)
            return lib.nn.functional.ctc_loss(steps, lib.tensor([[1, 2], [1, 0]]), *lengths, reduction="none")

        assert_same(torch, ctc)


def test_gradients_at_zero(torch):
    def call(lib):
        x = lib.zeros(1, 1, 4, 4, requires_grad=True)
        lib.nn.functional.lp_pool2d(x, 2, 2).sum().backward()
        y, z = lib.zeros(2, requires_grad=True), lib.zeros(2, requires_grad=True)
        lib.atan2(y, z).sum().backward()
        return x.grad, y.grad, z.grad

    assert_same(torch, call)


# -- views, and memory that is shared ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (3, 2)])
@pytest.mark.parametrize("take", ["unbind", "split", "chunk"])
def test_one_of_several_views_is_refused_after_its_base_was_changed(take, shape, torch):
    def call(lib):
        y = lib.ones(shape, requires_grad=True) * 1
        part = getattr(y, take)(*(() if take == "unbind" else (2,)))[0]
        y.mul_(3)
        return part.sum().backward()

    assert_refused(torch, call)


def test_slices_of_a_vector_are_views():
    x = mytorch.zeros(3)
    x.unbind()[1].fill_(2.0)
    assert x.tolist() == [0.0, 2.0, 0.0]


@pytest.mark.parametrize(
    "write",
    [
        "y[:2].mul_(y[1:])",
        "y[:2].copy_(y[1:])",
        "y[:2].add_(y[1:])",
        "m.add_(m.t())",
        "m.add_(m[0])",
        "m.lerp_(m.t(), 0.5)",
        "m.copy_(m.t())",
    ],
)
def test_writing_into_an_input_is_rejected(write, torch):
    def call(lib):
        return eval(write, {"y": lib.arange(3.0), "m": lib.arange(4.0).reshape(2, 2)})

    assert_refused(torch, call)


def test_setitem_from_overlapping_memory_is_refused(torch):
    def call(lib):
        y = lib.arange(3.0)
        y[:2] = y[1:]

    assert_refused(torch, call)


@pytest.mark.parametrize(
    "write", ["y.mul_(y)", "y[::2].mul_(y[:2])", "m[:, 0].mul_(m[:, 1])", "m[0].mul_(m[1])", "m.mul_(m)"]
)
def test_gradients_of_writing_next_to_an_input(write, torch):
    def call(lib):
        x = lib.arange(3.0).requires_grad_()
        w = lib.arange(4.0).reshape(2, 2).requires_grad_()
        y, m = x + 1, w + 1
        eval(write, {"y": y, "m": m})
        (y.pow(2).sum() + m.pow(2).sum()).backward()
        return y, m, x.grad, w.grad

    mine, theirs = both(torch, call)
    if isinstance(theirs, list):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b)


def test_constants_written_in_place_keep_the_graph(torch):
    def call(lib):
        x = lib.ones(3, requires_grad=True)
        a, b, c = x * 1, x * 1, x * 1
        with lib.no_grad():
            a.zero_()
            b.copy_(lib.full((3,), 2.0))
        c.copy_(lib.full((3,), 5.0))
        assert all(t.requires_grad for t in (a, b, c))
        (a * 2 + b * 3 + c * 4).sum().backward()
        return x.grad

    assert_same(torch, call)


def test_a_view_outlives_a_new_shape_of_its_base():
    y = mytorch.ones(3, 3, requires_grad=True) * 1
    row = y[0]
    y.t_()
    assert row.tolist() == [1.0, 1.0, 1.0]
    row.sum().backward()
    x = mytorch.arange(6.0).reshape(2, 3).requires_grad_()
    z = (x * 1).transpose_(0, 1)
    z[0].mul_(2)
    (z * mytorch.arange(6.0).reshape(3, 2)).sum().backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [[0, 2, 4], [2, 3, 5]])


def test_gradients_of_threads_onto_one_leaf_all_arrive():
    leaf = mytorch.zeros(50_000, requires_grad=True)

    def work():
        for _ in range(30):
            (leaf * 1.0).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert np.unique(np.asarray(leaf.grad)).tolist() == [240.0]


# -- single numbers ------------------------------------------------------------------------------------------------------


def test_gradients_where_functions_end(torch):
    # Not at NaN: PyTorch's gradient of logit is 0 in its vectorized loop and NaN in the scalar loop. The result depends on
    # the processor and on the position.
    points = [-0.5, 0.0, 0.1, 0.3, 0.9, 1.0, 1.5, -INF, INF]
    for name, options in (("logit", {}), ("logit", {"eps": 0.1}), ("entr", {})):

        def call(lib, name=name, options=options):
            x = lib.tensor(points, dtype=lib.float64, requires_grad=True)
            y = getattr(lib.special, name)(x, **options)
            y.backward(lib.arange(1.0, 10.0, dtype=lib.float64))
            return y, x.grad

        assert_same(torch, call)
        x = mytorch.tensor([NAN], requires_grad=True)
        getattr(mytorch.special, name)(x, **options).backward()
        assert np.isnan(x.grad.item())


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (70, 301), (4,)], ids=str)
def test_median_along_an_axis_is_nan_where_a_nan_is(shape, torch, rng):
    values = rng.permutation(np.prod(shape)).reshape(shape).astype("float32")
    values[rng.random(shape) < 1.5 / shape[-1]] = NAN
    for dim in range(len(shape)):
        assert_same(torch, lambda lib, dim=dim: [*lib.median(lib.tensor(values), dim)])
        assert_same(torch, lambda lib, dim=dim: [*lib.tensor(values).median(dim, keepdim=True)])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
def test_matrix_exp_keeps_the_digits_of_its_dtype(scale, torch, rng):
    A = np.stack([rng.standard_normal((5, 5)) * scale * s for s in (1.0, 1e-2, 0.0, 3.0)])
    exact = torch.linalg.matrix_exp(torch.tensor(A)).numpy()
    found = linalg.matrix_exp(mytorch.tensor(A, dtype=mytorch.float32)).numpy()
    size = np.abs(exact).max((1, 2), keepdims=True)
    assert (np.abs(found - exact) / size).max() < 3e-6 * max(scale, 1)
    np.testing.assert_allclose(
        linalg.matrix_exp(mytorch.tensor(A)).numpy() / size, exact / size, atol=3e-14 * max(scale, 1)
    )

    def call(lib):
        x = lib.tensor(A / scale, requires_grad=True)
        lib.linalg.matrix_exp(x).backward(lib.tensor(A))
        return x.grad

    assert_same(torch, call)
    assert linalg.matrix_exp(mytorch.zeros(0, 3, 3)).shape == (0, 3, 3)


def test_singular_values_that_are_equal_or_zero_have_gradients(torch):
    for A in (np.zeros((5, 3)), np.eye(4), np.ones((2, 3, 4)), np.eye(3) * (1 + 2j)):

        def call(lib, A=A):
            x = lib.tensor(A, requires_grad=True)
            lib.linalg.svdvals(x).sum().backward()
            return x.grad

        mine, theirs = both(torch, call)
        assert np.isfinite(mine[0]).all()
        if A.ndim == 2 and A.any():  # of zeros and equal rows, any subgradient
            np.testing.assert_allclose(mine[0], theirs[0], atol=1e-12)


def test_complex_log_sum_exp_is_the_principal_one(torch, rng):
    z = rng.standard_normal((5, 7)) * 9 + 9j * rng.standard_normal((5, 7))

    def call(lib):
        x = lib.tensor(z, requires_grad=True)
        y = lib.logsumexp(x, 1)
        y.backward(lib.tensor(z[:, 0]))
        return y, x.grad

    assert_same(torch, call)


def test_results_by_shape_and_option(torch, rng):
    a, b, z = (
        rng.standard_normal(5),
        rng.random((2, 5)),
        rng.standard_normal((10, 4)) + 1j * rng.standard_normal((10, 4)),
    )
    assert_same(torch, lambda lib: lib.nn.functional.multilabel_soft_margin_loss(lib.tensor(a), lib.tensor(b)))
    window = np.hanning(12)[1:-1]
    assert_same(torch, lambda lib: lib.istft(lib.tensor(z), 10, window=lib.tensor(window)))
    assert_same(torch, lambda lib: lib.istft(lib.tensor(z), 10, window=lib.tensor(window + 0j), return_complex=True))
    for call in (
        lambda lib: lib.where(lib.tensor([True, False]), 1.0, 2.0), lambda lib: lib.where(lib.tensor([True, False]), 1, 2),
        lambda lib: lib.tensor([1, 2, 3]).cumprod(0, dtype=lib.int16), lambda lib: lib.tensor([1, 2, 3]).cumsum(0, dtype=lib.int16),
    ):  # fmt: skip
        mine, theirs = both(torch, call)
        assert mine[0].dtype == theirs[0].dtype
        np.testing.assert_array_equal(mine[0], theirs[0])


def test_filling_and_integrating_keep_to_the_dtype(torch):
    for call in (
        lambda lib: lib.ones(5, dtype=lib.int64).index_fill(0, lib.tensor([1]), 6.5),
        lambda lib: lib.full((5,), 2**62 + 1).index_fill(0, lib.tensor([1]), lib.tensor(6.0)),
        lambda lib: lib.ones(5, dtype=lib.float16).index_fill(0, lib.tensor([1]), lib.tensor(6.0)),
    ):
        mine, theirs = both(torch, call)
        assert mine[0].dtype == theirs[0].dtype
        np.testing.assert_array_equal(mine[0], theirs[0])
    area = mytorch.trapezoid(mytorch.tensor([[252, 249], [0, 255]], dtype=mytorch.uint8))  # PyTorch's sums overflow
    assert area.tolist() == [250.5, 127.5]


def test_tensors_without_elements_are_answered(torch):
    assert_same(torch, lambda lib: lib.median(lib.ones(3, 0)))
    assert_same(torch, lambda lib: lib.median(lib.ones(0, dtype=lib.int64)))
    assert_same(torch, lambda lib: lib.nanmedian(lib.full((3,), NAN)))
    x = mytorch.ones(0, 6, 11, requires_grad=True)
    norm = mytorch.nn.InstanceNorm1d(6, affine=True, track_running_stats=True)
    norm(x).sum().backward()
    assert x.grad.shape == (0, 6, 11)
    assert norm.running_mean.tolist() == [0.0] * 6

    for call in (
        lambda lib: lib.nn.functional.batch_norm(lib.ones(0), lib.ones(0), lib.ones(0), training=True),
        lambda lib: lib.nn.functional.adaptive_max_pool1d(lib.ones(2, 3, 4), 0, True),
        lambda lib: lib.nn.functional.adaptive_max_pool2d(lib.ones(2, 3, 4, 4), (0, 2)),
        lambda lib: lib.nn.functional.group_norm(lib.ones(2, 6, 0), 3),
        lambda lib: lib.nn.functional.local_response_norm(lib.ones(2, 0, 6, 8), 2),
        lambda lib: lib.nn.functional.feature_alpha_dropout(lib.ones(0), 0.5, True),
        lambda lib: lib.nn.functional.feature_alpha_dropout(lib.ones(3), 1.0, True),
        lambda lib: lib.linalg.cholesky(lib.ones(2, 0, 1)),
        lambda lib: lib.linalg.matrix_rank(lib.ones(0, 5, 1), hermitian=True),
        lambda lib: lib.bernoulli(lib.tensor(0.0)), lambda lib: lib.ones(2).all(dim=[]), lambda lib: lib.ones(2).bool().any(dim=(), keepdim=True),
        lambda lib: lib.normal(lib.ones(2), lib.zeros(2).double()),
    ):  # fmt: skip
        assert_same(torch, call)
        mine, theirs = both(torch, call)
        assert not isinstance(mine, list) or [(x.dtype, x.shape) for x in mine] == [(x.dtype, x.shape) for x in theirs]


# -- refusals ------------------------------------------------------------------------------------------------------------


def test_gradients_of_writing_into_windows_that_overlap(torch, rng):
    start, up = rng.standard_normal(5), rng.standard_normal(5)

    def call(lib):
        x = lib.tensor(start, requires_grad=True)
        y = x * 1.5
        y.unfold(0, 3, 1).clamp_(-1, 1)
        (y * lib.tensor(up)).sum().backward()
        return y, x.grad

    assert_same(torch, call)


def test_earlier_views_keep_their_graph_when_the_base_is_detached(torch):
    def call(lib):
        x = lib.ones(3).requires_grad_()
        y = x * 2
        view = y[1:]
        y.detach_()
        (view * 3).sum().backward()
        return x.grad, y.requires_grad

    assert_same(torch, call)


def test_a_median_shares_its_gradient_among_equals(torch):
    def call(lib, values):
        x = lib.tensor(values, requires_grad=True)
        x.median().backward()
        return x.grad

    for values in ([2.0, 1.0, 2.0, 2.0, 5.0], [1.0, NAN, 3.0, NAN], [[-1.0], [-1.0]]):
        assert_same(torch, lambda lib, v=values: call(lib, v))


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_triangular_systems_are_solved_by_substitution(upper, unit, left, torch, rng):
    A, B = rng.standard_normal((2, 5, 5)) + 3 * np.eye(5), rng.standard_normal((5, 5))
    up = rng.standard_normal((2, 5, 5))

    def call(lib):
        a, b = (lib.tensor(x, requires_grad=True) for x in (A, B))
        x = lib.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit, left=left)
        x.backward(lib.tensor(up))
        return x, a.grad, b.grad

    assert_same(torch, call)
    huge = np.array([[1.0, 0, 0], [-1.5, 1, 0], [-5.4, -4.8, 1]])
    right = np.array(
        [[7.0, 0, -1e30], [5.0, 2, -3], [-8.0, -4, -5]]
    )  # a column of another size does not affect the others
    assert_same(torch, lambda lib: lib.linalg.solve_triangular(lib.tensor(huge), lib.tensor(right), upper=False))
    singular = np.array([[2.0, 1], [0, 0]])
    assert_same(
        torch, lambda lib: lib.linalg.solve_triangular(lib.tensor(singular), lib.ones(2, 1).double(), upper=True)
    )
    for factor in (np.tril(A), np.triu(A)):
        assert_same(torch, lambda lib, f=factor: lib.cholesky_solve(lib.tensor(B), lib.tensor(f), upper=upper))


def test_second_derivatives_of_triangular_systems(rng):
    a, b = (mytorch.tensor(rng.standard_normal((3, 3)) + 2 * np.eye(3), requires_grad=True) for _ in range(2))
    for upper, unit in ((True, False), (False, True)):
        solve = lambda a, b, u=upper, o=unit: linalg.solve_triangular(a, b, upper=u, unitriangular=o)  # noqa: E731
        assert mytorch.autograd.gradgradcheck(solve, (a, b))


def test_numbers_at_the_edges_of_their_range(torch):
    F_ = lambda lib: lib.nn.functional  # noqa: E731
    t = lambda lib, *v, dtype="float64": lib.tensor(v, dtype=getattr(lib, dtype))  # noqa: E731
    for value in (INF, -INF, NAN, 3.0):  # one number, no axis
        assert_same(
            torch,
            lambda lib, v=value: (
                lib.softmax(lib.tensor(v), 0),
                lib.log_softmax(lib.tensor(v), 0),
                F_(lib).softmin(lib.tensor(v), 0),
            ),
        )
    for dtype, tiny in (("float64", 1e-310), ("float32", 1e-40), ("float16", 1e-7)):
        assert_same(
            torch, lambda lib, d=dtype, v=tiny: [x.double() for x in lib.frexp(t(lib, v, -v, 1.5, 0.0, NAN, dtype=d))]
        )
    for dtype in ("float64", "float32"):
        assert_same(torch, lambda lib, d=dtype: lib.angle(t(lib, -1.0, -INF, INF, NAN, 0.0, dtype=d)))
    assert mytorch.angle(mytorch.tensor(-1.0, dtype=mytorch.float64)).item() == np.pi
    assert_same(
        torch,
        lambda lib: F_(lib).gaussian_nll_loss(t(lib, 1.0, 2.0), t(lib, 0.0, 1.0), t(lib, INF, 0.0), reduction="none"),
    )
    assert_same(torch, lambda lib: lib.gradient(t(lib, 1.0, 2.0, 4.0), spacing=0)[0])
    assert_same(torch, lambda lib: lib.linalg.vander(t(lib, -INF, 2.0), N=3))
    assert mytorch.lerp(mytorch.tensor([1e8]), mytorch.tensor([0.1]), 1.0).item() == np.float32(0.1)
    for weight in (0.2, 0.7, 1.0, -3.0):
        assert_same(torch, lambda lib, w=weight: lib.lerp(t(lib, 1.0, 5.0), t(lib, INF, 2.0), w))
        assert_same(torch, lambda lib, w=weight: lib.lerp(t(lib, 1.0, 5.0), t(lib, INF, 2.0), t(lib, w, w)))


def test_logaddexp_of_infinity_has_a_gradient(torch):
    def call(lib, name):
        a, b = (lib.tensor(v, requires_grad=True) for v in ([INF, 1.0, -INF, 2.0], [3.0, INF, 0.0, 2.0]))
        getattr(lib, name)(a, b).sum().backward()
        return a.grad, b.grad

    for name in ("logaddexp", "logaddexp2"):
        assert_same(torch, lambda lib, n=name: call(lib, n))


def test_lu_of_whole_numbers_is_that_of_floats():
    A = mytorch.tensor([[1, 7, 3], [2, 2, 9], [3, 5, 4]])
    for mine, wanted in zip(mytorch.linalg.lu(A), mytorch.linalg.lu(A.float()), strict=True):
        assert mine.tolist() == wanted.tolist()


def test_feature_dropout_drops_whole_channels(torch):
    def call(lib):
        lib.manual_seed(3)
        return lib.feature_dropout(lib.ones(2, 4, 3, 2), 0.5, True)

    assert_same(torch, call)


REFUSED = """
t(2, 3, 4).H; t(3).median(7); lib.tensordot(t(2, 2), t(2, 2), -2); lib.tensordot(t(2, 2), t(2, 2), ((0, 1), (0,)))
lib.movedim(t(2, 3), (0, 1), (1, -1)); lib.rot90(t(2, 3), 1, (0, -2)); lib.rot90(t(2, 3), 1, (0, 1, 1)); t().split(2)
lib.unravel_index(i(3), (-1, 2)); lib.searchsorted(t(), t(2)); lib.searchsorted(t(3), t(2), sorter=i(2))
lib.searchsorted(t(3), t(2), side="nothing"); lib.unique_consecutive(t(), dim=0); lib.unique(t(), dim=0); lib.mode(t(0), 0)
lib.histc(t(3), 3, 3, 0); lib.histc(t(3), -1, 0, 3); lib.cov(t(2), aweights=True); lib.bincount(i(3), minlength=-1)
lib.nanquantile(t(3), float("nan")); lib.combinations(t(2, 2)); lib.cartesian_prod(t(2), t()); lib.meshgrid(t(2, 2), indexing="ij")
lib.isclose(t(2), t(2), rtol=-1.0); lib.put(t(3), lib.zeros(1, dtype=lib.uint8), t(1)); lib.cross(t(2, 2), t(2, 2))
lib.diagonal_scatter(t(3, 3), t()); t(3).scatter(0, i(3), t(3), reduce="nothing"); lib.randn(5, -1); lib.randint(3, (-1,))
lib.norm(t(2, 2), "mean"); lib.norm(t(2, 2, 2), "nuc", [1]); lib.linalg.qr(t(3)); lib.linalg.lu(t(3)); lib.linalg.vander(t(3), N=1)
lib.linalg.matrix_norm(t(2, 2), "fro", [-1]); lib.linalg.pinv(t(3, 2), hermitian=True); lib.linalg.lstsq(t(3, 2), t(2, 3, 2))
lib.linalg.lu_solve(t(3, 3), i(1).int() + 3, t(3, 1)); lib.lu_unpack(t(3, 3), i(3).int() + 7); lib.linalg.householder_product(t(3, 3), t(3, 3))
lib.linalg.householder_product(t(2, 3), t(2)); lib.linalg.tensorsolve(t(2, 3, 6), t(2, 3), dims=2); lib.linalg.matrix_rank(t(3))
F.bilinear(t(2, 3), t(1, 3), t(4, 3, 3)); F.linear(t(), t(2, 2)); F.margin_ranking_loss(t(5), t(5), t(2, 5)); F.interpolate(t(1, 1, 3), scale_factor=INF)
F.cosine_embedding_loss(t(5), t(5), t(5)); F.multi_margin_loss(t(3, 5), i(1, 3)); F.multilabel_margin_loss(t(2, 5), i(5))
F.triplet_margin_loss(t(2, 3), t(2, 3), t(2, 3), margin=-1.0); F.triplet_margin_loss(t(2, 3), t(2, 3), t(3)); F.feature_alpha_dropout(t(3), training=True)
F.fractional_max_pool2d(t(1, 4, 4), 2, output_ratio=(float("nan"), 0.5)); F.ctc_loss(t(4, 2, 3), i(2, 2), i(1) + 2, i(2) + 1)
x[::0].fill_(1); x.__setitem__(slice(None, None, 0), 1.0); lib.empty_permuted((1, 2), (0, 5)); lib.nn.GroupNorm(0, 4)
lib.histogramdd(t(5, 2), [3]); lib.histogram(t(3), 2, weight=True); lib.histogram(t(3), t(1, 3)); lib.allclose(t(2), t(2), atol=float("nan"))
lib.take_along_dim(t(5, 7), i(5, 5), 0); lib.tensordot(t(2, 2), t(2, 2), [[0], [0], [0]]); lib.tensordot(t(2, 2), t(2, 2), [[0], [7]]); t(3).repeat(-1); t(2, 3).sum_to_size(-1, 1)
lib.scatter_reduce(t(5, 5), 0, lib.zeros(5, 3, dtype=lib.int64), t(5, 2), "amin"); lib.nanquantile(t(), 0.5, dim=1); lib.quantile(t(), 0.5, dim=1)
lib.repeat_interleave(t(3), i(3), output_size=7); lib.zeros(0, 3).__setitem__(([0, 0, 0], [-1, 0, 2]), t(0)); F.pdist(t(3, 2), float("nan"))
F.huber_loss(t(3), t(3), delta=float("nan")); F.rrelu(t(3), INF, 0.0); F.gaussian_nll_loss(t(), t(5), t(1)); F.multilabel_margin_loss(t(5), i(2, 5))
lib.index_fill(t(3), 0, i(1), t(2)); setattr(t(3).requires_grad_(), "data", i(3)); setattr(t(3).requires_grad_() * 2, "data", i(3))
lib.gradient(t(3, 3), dim=[0, -2]); lib.gradient(t(3).byte()); lib.searchsorted(t(2, 0), t(0)); F.cosine_similarity(t(3), t(3), 0, NAN)
lib.linalg.ldl_factor(t(3, 3).half()); lib.linalg.lu_factor(t(3, 3).bool()); lib.tensordot(t(2, 1), t(0, 3), [[0], [1]]); lib.tensordot(t(2), t(3), 1)
F.multilabel_margin_loss(t(), i() + 100); F.ctc_loss(t(9, 2, 5), i(3) + 1, i(2) + 9, i(2) + 2); lib.meshgrid(); lib.pinverse(t(3)); lib.bernoulli(t(2) * 2); lib.normal(t(2), NAN); lib.normal(0.0, t(2) * NAN); lib.bernoulli(-t(2)); t(2).bernoulli_(t(2) * float("nan")); t(2).bernoulli_(2.0)
F.multi_margin_loss(t(2, 3), i(2), p=0); F.multilabel_margin_loss(t(2, 3), t(2, 3) / 2); lib.index_add(t(1), 0, i(1), t()); lib.index_add(t(), 0, i(1), t(1))
lib.bincount(i(3), weights=1); lib.histogramdd(t(3, 1), [2], weight=True); lib.diff(t(3), 0, prepend=1); lib.linalg.tensorinv(t(2, 3, 6), ind=-1)
lib.triangular_solve(t(3, 2), i(3, 3)); t(3).unfold(0, 2, 0); t().unfold(0, 1, -1); t(3).unfold(0, -1, 1); t(3).resize_(1, -2); lib.geqrf(t(3, 3).half())
lib.ormqr(t(5, 1), t(5), t(5, 5)); lib.take(t(3), lib.zeros(1, dtype=lib.uint8)); lib.cross(t(2, 3), t(2, 1)); lib.cdist(t(2, 3), t(2, 3), float("nan"))
lib.linalg.solve_triangular(t(3, 3), t(3), upper=True); lib.linalg.solve_triangular(t(3, 3), t(2, 3), upper=True); lib.cholesky_solve(t(3), t(3, 3))
lib.cholesky_solve(t(5, 1), t(6, 5)); lib.linalg.ldl_solve(t(2, 2), i(2).int(), t(2, 1)); lib.linalg.ldl_solve(t(2, 2), i(2).int() + 3, t(2, 1))
lib.addmv(i(2), i(2, 2), i(2), beta=float("nan")); lib.baddbmm(i(1), i(1, 2, 2), i(1, 2, 2), alpha=INF); F.batch_norm(t(2, 3), t(3), t(3), 1)
lib.scatter_reduce(t(2), 0, i(0), t(0), "nothing"); x[lib.zeros(0, dtype=lib.bool)]; x.index_put((lib.zeros(0, dtype=lib.bool),), t(4), True)
lib.feature_dropout(t(3), 0.5, True); lib.histogramdd(t(5, 2), [2, 0]); F.ctc_loss(t(5, 1, 3), i(1, 1, 2), i(1) + 5, i(1) + 2); x.view(2, 2)[:, 1:].detach().add_(t(3))
F.ctc_loss(t(9, 2, 5), i(1, 3) + 1, i(2) + 9, i(2) + 2); lib.linspace(t(1), 0, 3); lib.linspace(0, t(1), 3)
lib.masked_fill(t(3), t(3).bool(), t() * 1j); lib.masked_scatter(t(3), t(3), t(3))
"""


@loop
@pytest.mark.parametrize("call", [c for c in REFUSED.replace("\n", "; ").split("; ") if c])
@pytest.mark.filterwarnings("ignore")
def test_invalid_arguments_raise_clear_errors(call, torch):
    def run(lib):
        names = {"t": lib.ones, "i": lambda *n: lib.zeros(n, dtype=lib.int64), "x": lib.ones(4)}
        return eval(call, {"lib": lib, "F": lib.nn.functional, "INF": INF, "NAN": NAN, **names})

    with pytest.raises(Exception, match=".") as theirs:
        run(torch)
    with pytest.raises((RuntimeError, ValueError, TypeError, IndexError)) as mine:
        run(mytorch)
    own_words = pytest.importorskip("tests.fuzzing").own_words

    assert own_words(mine.value) or theirs.type is mine.type, mine.value


@pytest.mark.parametrize("lib_of", ["add", "sub", "rsub"])
def test_alpha_times_bytes_is_taken_in_the_results_dtype(lib_of, torch):
    def run(lib):
        few = lib.tensor([4, 250, 255], dtype=lib.uint8)
        wide = [
            lib.tensor([1.0, 2, 3]),
            lib.tensor([1, 2, 3]),
            lib.tensor(1000),
            lib.tensor([7, 8, 9], dtype=lib.uint8),
        ]
        pairs = [(few, w) if lib_of == "rsub" else (w, few) for w in wide]
        return [getattr(lib, lib_of)(a, b, alpha=3) for a, b in pairs]

    for mine, theirs in zip(run(mytorch), run(torch), strict=True):
        assert str(mine.dtype)[8:] == str(theirs.dtype)[6:]
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_normal_quantiles_keep_the_lower_tail(torch):
    p = np.concatenate([np.logspace(-300, -1.5, 40), np.linspace(0.015, 1, 41)])
    for given in (p, p.astype("float32"), np.array([0, 1, 2, -(2**31)])):
        mine, theirs = (lib.special.ndtri(lib.tensor(given)).numpy() for lib in (mytorch, torch))
        np.testing.assert_allclose(mine, theirs, rtol=2e-6 if theirs.dtype == np.float32 else 1e-10, atol=1e-7)
    (x, y), slopes = (
        [lib.tensor(p[:-1]).requires_grad_() for lib in (mytorch, torch)],
        np.random.default_rng(0).random(80),
    )
    mytorch.special.ndtri(x).backward(mytorch.tensor(slopes))
    torch.special.ndtri(y).backward(torch.tensor(slopes))
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9)


def test_a_view_keeps_its_graph_when_it_is_written_into_without_recording(torch):
    def run(lib):
        x = lib.ones(2, 2).requires_grad_()
        base = x * 1.5
        view = base.permute(0, 1)
        base.mul_(2)
        with lib.no_grad():
            view.lerp_(base, 0.5)
        (base * 2 + view * 3).sum().backward()
        return view.requires_grad, x.grad.tolist()

    assert run(mytorch) == run(torch)


def test_errors_for_empty_inputs_and_nan(torch):
    for lib in (mytorch, torch):
        values, places = lib.mode(lib.tensor(NAN))
        assert np.isnan(values.item())
        assert places.item() == 0
    for dtype in ("uint8", "int32", "float32"):
        mine, theirs = (lib.median(lib.zeros(0, dtype=getattr(lib, dtype))) for lib in (mytorch, torch))
        assert str(mine.dtype)[8:] == str(theirs.dtype)[6:]
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_one_of_several_views_of_a_constant_takes_no_graph():
    x, grown = mytorch.zeros(2), mytorch.ones(1).requires_grad_() * 1
    with pytest.raises(RuntimeError, match="one of several views"):
        x.split(1)[0].add_(grown)


def test_istft_of_a_complex_window(rng, torch):
    frames, window = (rng.standard_normal((*s, 2)) @ [1, 1j] for s in ((10, 6), (10,)))
    mine, theirs = (
        lib.istft(lib.tensor(frames), 10, window=lib.tensor(window + 1), center=False, return_complex=True)
        for lib in (mytorch, torch)
    )
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-10)


def test_batch_norm_of_nothing_asks_for_a_weight_for_each_channel():
    with pytest.raises(RuntimeError, match="weight should contain 6 elements not 1"):
        mytorch.nn.BatchNorm2d(1, track_running_stats=False)(mytorch.zeros(0, 6, 8, 9))


def test_statistics_without_weights_or_edges_raise_errors():
    for weights in ({"fweights": mytorch.zeros(3, dtype=mytorch.int64)}, {"aweights": mytorch.zeros(3)}):
        with pytest.raises(RuntimeError, match="weights sum to zero"):
            mytorch.cov(mytorch.ones(2, 3), **weights)
    with pytest.raises(RuntimeError, match="at least one edge for each axis"):
        mytorch.histogramdd(mytorch.ones(4, 2), [mytorch.empty(0), mytorch.arange(3.0)])


# Functions with a bounded range -> the bounds, which rounding must not exceed: a probability of 1 + 2^-22 is refused elsewhere.
BOUNDED = {
    "erf": (-1, 1), "tanh": (-1, 1), "sin": (-1, 1), "cos": (-1, 1), "sigmoid": (0, 1), "erfc": (0, 2), "special.ndtr": (0, 1),
    "special.erfcx": (0, INF), "atan": (-1.5707964, 1.5707964), "asinh": (-INF, INF), "softsign": (-1, 1), "log_sigmoid": (-INF, 0),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_bounded_functions_stay_within_their_bounds(dtype):
    x = mytorch.linspace(-9, 9, 200_001, dtype=mytorch.float64).to(getattr(mytorch, dtype))
    for name, (low, high) in BOUNDED.items():
        module = mytorch.special if name.startswith("special.") else mytorch
        f = getattr(module, name.removeprefix("special."), None) or getattr(
            F, {"log_sigmoid": "logsigmoid"}.get(name, name)
        )
        for values in (x, x[::7], x.reshape(3, -1).T, x[-3:]):
            y = f(values).double()
            assert low <= y.min() <= y.max() <= high, (name, y.min(), y.max())
    for loc, scale in ((0.0, 1.0), (0.3, 0.7)):
        y = mytorch.distributions.Normal(loc, scale).cdf(x.float())
        assert 0 <= y.min() <= y.max() <= 1


def test_erf_of_numpy_stays_within_its_bounds():
    from mytorch.arrays import special

    x = np.linspace(-4.1, 4.1, 200_001, dtype=np.float32)
    assert np.abs(special.erf(x)).max() == 1


@loop
@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (4, 2)])
@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_products_leave_out_the_element_itself(shape, seed):
    """The products of the others, also where the product itself is infinite or zero."""
    x = np.random.RandomState(seed).choice([INF, -INF, 1e50, 1e-50, 0.0, 2.0, -3.0], shape)
    t = mytorch.tensor(x, requires_grad=True)
    with np.errstate(all="ignore"):
        others = [np.prod(np.delete(x, i, 0), 0) for i in range(len(x))]
        runs = [
            np.sum([np.prod(np.delete(x[: k + 1], i, 0), 0) for k in range(i, len(x))], axis=0) for i in range(len(x))
        ]
    for call, expected in ((lambda t: t.prod(0), others), (lambda t: t.cumprod(0), runs)):
        (grad,) = mytorch.autograd.grad(call(t).sum(), t)
        np.testing.assert_allclose(grad.numpy(), expected, rtol=1e-12)


def test_gradients_of_products_that_overflow():
    t = mytorch.tensor([1e200, 1e200, 1e-200], dtype=mytorch.float64, requires_grad=True)
    assert mytorch.autograd.grad(t.prod(0), t)[0].tolist() == [1.0, 1.0, INF]
    assert mytorch.autograd.grad(t.cumprod(0)[2], t)[0].tolist() == [1.0, 1.0, INF]


def test_integers_and_orders_at_the_end_of_their_range():
    values = [2**62, 2**62 - 1, 2**63 - 1, -(2**63) + 1]
    a, b = (mytorch.tensor(v) for v in zip(*[(x, y) for x in values for y in values], strict=True))
    assert bool((mytorch.lcm(a, b) >= 0).all())
    for dtype, value in (("uint8", 256), ("uint8", -1), ("int8", 128), ("int16", 1e9), ("int64", NAN)):
        with pytest.raises(RuntimeError, match="cannot be converted"):
            F.pad(mytorch.ones(2, dtype=getattr(mytorch, dtype)), (1, 1), value=value)
    for n in (1, 2, 5):
        assert mytorch.polygamma(n, mytorch.tensor([INF, 1e300], dtype=mytorch.float64)).abs().max().item() < 1e-299


@loop
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_order_of_16_bit_floats_is_that_of_float32(dtype, seed):
    values = np.random.RandomState(seed).choice([NAN, INF, -INF, 0.0, 1.0, -2.0], (5, 4)).astype(np.float32)
    wide = mytorch.tensor(values)
    narrow = wide.to(getattr(mytorch, dtype))
    for call in (
        lambda x: x.unique(),
        lambda x: x.unique(return_inverse=True, return_counts=True),
        lambda x: x.unique(dim=1, return_inverse=True),
        lambda x: x.unique_consecutive(return_counts=True),
        lambda x: x.mode(0),
        lambda x: x.median(1),
        lambda x: x.kthvalue(2, 0),
        lambda x: x.sort(0, descending=True, stable=True),
        lambda x: x.topk(2, 1).values,
        lambda x: x.argsort(0, stable=True),
        lambda x: x.msort(),
        lambda x: x.cummax(0),
        lambda x: (x.argmax(0), x.argmin()),
    ):
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (call(narrow), call(wide))), strict=True):
            np.testing.assert_array_equal(np.asarray(a.float()), np.asarray(b.float()))


@loop
@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_of_no_channels_are_zero(dims, kernel):
    x = mytorch.ones(3, 0, *[4] * dims, requires_grad=True)
    weight = mytorch.ones(2, 0, *[kernel] * dims, requires_grad=True)
    out = getattr(F, f"conv{dims}d")(x, weight)
    assert out.shape == (3, 2, *[5 - kernel] * dims)
    assert not out.any()
    out.sum().backward()
    assert (x.grad.shape, weight.grad.shape) == (x.shape, weight.shape)
