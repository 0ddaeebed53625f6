"""The compiled pooling, batch norm and rectifiers of the CPU compared with PyTorch in float64, with a random gradient."""

import numpy as np
import pytest

import mytorch
from mytorch.arrays import address
from mytorch.kernels.heads import laid_out_as, side_by_side
from mytorch.kernels.registry import Kernels
from mytorch.kernels.threads import everything

torch = pytest.importorskip("torch")
pytest.importorskip("numba", reason="there is no kernel without it")
softmax = pytest.importorskip("mytorch.kernels.numba.softmax")
pytestmark = pytest.mark.cpu_only


def compare(call, *arrays, tolerance=2e-5):
    """Returns output and gradients of call(library, *tensors): mytorch's kernels in float32, PyTorch in float64."""
    found = []
    for lib, dtype in ((mytorch, mytorch.float32), (torch, torch.float64)):
        tensors = [lib.tensor(a, dtype=dtype).requires_grad_() for a in arrays]
        out = call(lib, *tensors)
        out.backward(lib.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape)), dtype=dtype))
        found.append([t.detach().numpy() for t in (out, *(t.grad for t in tensors))])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(np.abs(b).max(initial=0), 1))


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def with_kernel(lib, **options):
    return {**options, "fused": True} if lib is mytorch else options


@pytest.mark.parametrize(
    ("d", "size", "options"),
    [
        (1, (17,), {"kernel_size": 3}),
        (1, (9,), {"kernel_size": 4, "stride": 3, "padding": 2, "ceil_mode": True}),
        (2, (8, 14), {"kernel_size": 2}),
        (2, (11, 12), {"kernel_size": 3, "stride": 2, "padding": 1}),
        (2, (11, 40), {"kernel_size": (5, 3), "stride": (1, 2), "padding": (2, 0), "dilation": (1, 3)}),
        (2, (7, 7), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
        (2, (5, 5), {"kernel_size": 3, "stride": 3, "padding": 1, "dilation": 2}),
        (3, (5, 6, 7), {"kernel_size": (2, 3, 2), "stride": 2, "padding": 1}),
    ],
)
def test_max_pool(d, size, options):
    compare(
        lambda lib, x: getattr(lib.nn.functional, f"max_pool{d}d")(x, **with_kernel(lib, **options)),
        random(3, 5, *size),
    )


def test_max_pool_finds_where_the_maxima_are_also_of_infinities_and_nan():
    x = random(2, 3, 9, 10)
    x[0, 0, :5, :5], x[0, 1, 2, 3], x[1, 2, 4, 4] = -np.inf, np.nan, np.inf
    found = [
        lib.nn.functional.max_pool2d(lib.tensor(x), 3, 2, 1, return_indices=True, **with_kernel(lib))
        for lib in (mytorch, torch)
    ]
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 9, 7), (2, 5, 33), (3, 2, 3, 4, 5)])
def test_batch_norm(shape, affine, training):
    c = shape[1]

    def call(lib, x, *parameters):
        running = [lib.tensor(a, dtype=x.dtype) for a in (np.arange(c) / 10, np.arange(c) + 0.5)]
        out = lib.nn.functional.batch_norm(x, *running, *parameters, training=training, **with_kernel(lib))
        return out + sum(r.sum() for r in running)

    compare(call, random(*shape) * 3 + 5, *((random(c), random(c) + 1) if affine else ()), tolerance=1e-4)


def test_batch_norm_of_numbers_far_from_zero():
    x = random(8, 3, 20, 20) + 1000
    found = [lib.nn.functional.batch_norm(lib.tensor(x), None, None, training=True) for lib in (mytorch, torch)]
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), atol=2e-3)


@pytest.mark.parametrize("name", ["group_norm", "instance_norm"])
def test_norms_scale_and_shift_channels(name):
    groups = (2,) if name == "group_norm" else ()
    compare(
        lambda lib, x, w, b: getattr(lib.nn.functional, name)(x, *groups, weight=w, bias=b),
        random(3, 4, 9, 5), random(4), random(4), tolerance=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(70, 101), (0, 3), ()])
def test_rectifiers(shape):
    functions = [
        lambda lib, x: lib.nn.functional.relu(x, **with_kernel(lib)),
        lambda lib, x: lib.nn.functional.leaky_relu(x, 0.2, **with_kernel(lib)),
        lambda lib, x: lib.nn.functional.hardswish(3 * x, **with_kernel(lib)),
        lambda lib, x: lib.nn.functional.hardsigmoid(3 * x, **with_kernel(lib)),
        lambda lib, x: lib.nn.functional.hardtanh(x, -0.7, 0.4, **with_kernel(lib)),
        lambda lib, x: lib.nn.functional.hardshrink(x, 0.4, **with_kernel(lib)),
        lambda lib, x: lib.nn.functional.softshrink(x, 0.4, **with_kernel(lib)),
        lambda lib, x: lib.nn.functional.threshold(x, 0.2, -3.0, **with_kernel(lib)),
        lambda lib, x: lib.nn.functional.smooth_l1_loss(x, 0 * x, beta=0.7, reduction="none"),
        lambda lib, x: lib.nn.functional.huber_loss(2 * x, 0 * x, delta=1.3, reduction="none"),
    ]
    for function in functions:
        compare(function, random(*shape))
        compare(lambda lib, x: function(lib, x.T), random(*shape)) if len(shape) == 2 else None


@pytest.mark.parametrize("shape", [(70, 301), (0, 3), ()])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_each_element(shape, reduction):
    for name, options in {"mse": {}, "huber": {"delta": 0.3}, "smooth_l1": {"beta": 0.2}}.items():

        def loss(lib, x, y, name=name, options=options):
            function = getattr(lib.nn.functional, f"{name}_loss")
            return function(x, y, reduction=reduction, **with_kernel(lib, **options))

        compare(loss, random(*shape), 0.5 * random(*shape).T.reshape(shape))

    def logistic(lib, x, y):
        function = lib.nn.functional.binary_cross_entropy_with_logits
        return function(9 * x, y, reduction=reduction, **with_kernel(lib))

    compare(logistic, random(*shape), np.abs(np.tanh(random(*shape))))
    compare(lambda lib, x, y: logistic(lib, x.T, y.T), random(5, 7), random(5, 7))


@pytest.mark.parametrize("upstream", ["random", "broadcast", "by row"])
@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_gradients_of_losses_in_one_pass(name, needs, upstream):
    arrays = random(301, 70).T, np.abs(np.tanh(random(70, 301)))
    g = {"random": random(70, 301), "broadcast": np.full((1, 1), 0.7), "by row": random(70, 1)}[upstream]

    def gradients(lib, dtype):
        x, y = (lib.tensor(a, dtype=dtype).requires_grad_(n) for a, n in zip(arrays, needs, strict=True))
        loss = getattr(lib.nn.functional, name)(x, y, reduction="none", **with_kernel(lib))
        loss.backward(lib.tensor(g, dtype=dtype).expand(70, 301))
        return [None if t.grad is None else t.grad.numpy() for t in (x, y)]

    found, expected = gradients(mytorch, mytorch.float32), gradients(torch, torch.float64)
    with everything():
        divided = gradients(mytorch, mytorch.float32)
    for ours, parts, theirs, needed in zip(found, divided, expected, needs, strict=True):
        assert (ours is not None) == (theirs is not None) == needed
        if needed:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(ours, parts)


def test_losses_of_infinities_and_nan():
    x = np.array([np.inf, -np.inf, np.nan, 1e38, -1e38, 100.0, -100.0, 0.0, 1e-8] * 2000, np.float32)
    for name in ("mse_loss", "huber_loss", "binary_cross_entropy_with_logits"):
        found = []
        for lib in (mytorch, torch):
            a = lib.tensor(x, requires_grad=True)
            out = getattr(lib.nn.functional, name)(a, lib.full((len(x),), 0.5), reduction="none")
            out.sum().backward()
            found.append((out.detach().numpy(), a.grad.numpy()))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_losses_are_differentiated_twice_and_of_shapes_that_broadcast():
    for name in ("mse_loss", "huber_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits"):
        found = []
        for lib in (mytorch, torch):
            x, y = (lib.tensor(a).requires_grad_() for a in (random(30, 99), np.abs(np.tanh(random(30, 99)))))
            loss = getattr(lib.nn.functional, name)(x, y, reduction="sum", **with_kernel(lib))
            gx, gy = lib.autograd.grad(loss, (x, y), create_graph=True)
            (gx.square().sum() + (gx * gy).sum()).backward()
            found.append([t.detach().numpy() for t in (gx, gy, x.grad, y.grad)])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    with pytest.warns(UserWarning, match="target size"):
        compare(lambda lib, x, y: lib.nn.functional.mse_loss(x, y), random(4, 3), random(4, 1))


CORNERS = np.array([-6, -3, -1, -0.5, 0, 0.5, 1, 3, 6], np.float32)
STEPWISE = (
    ("relu6",), ("hardtanh",), ("hardtanh", 0.5, 0.5), ("hardsigmoid",), ("hardshrink", 0.5), ("hardshrink", -1.0), ("softshrink", 0.5),
    ("threshold", 0.5, 7.0), ("threshold", -np.inf, 2.0),
)  # fmt: skip


def test_rectifiers_let_nan_through():
    x = np.array([np.nan, -np.inf, np.inf, -0.0, 1.0] * 2000, np.float32)
    for name in ("relu", "leaky_relu", "hardswish"):
        ours, theirs = (getattr(lib.nn.functional, name)(lib.tensor(x)).numpy() for lib in (mytorch, torch))
        np.testing.assert_array_equal(ours, theirs)
    x = np.concatenate([x, CORNERS])
    for name, *options in STEPWISE:
        found = []
        for lib, fused in ((mytorch, {}), (mytorch, {"fused": False}), (torch, {})):
            leaf = lib.tensor(x).requires_grad_()
            out = getattr(lib.nn.functional, name)(leaf, *options, **fused)
            out.backward(lib.arange(float(len(x))))
            found.append((out.detach().numpy(), leaf.grad.numpy()))
        for ours, reference, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(ours.view(np.int32), reference.view(np.int32), err_msg=name)
            # PyTorch's own gradient at NaN depends on the position in the array.
            np.testing.assert_allclose(ours[x == x], theirs[x == x], rtol=1e-6, err_msg=name)
    x = x[: -len(CORNERS)]
    ours, theirs = (
        lib.nn.functional.smooth_l1_loss(lib.tensor(x), lib.zeros(len(x)), reduction="none").numpy()
        for lib in (mytorch, torch)
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_bounds_in_half_precision_do_not_depend_on_the_size(dtype):
    """Numbers at the bounds, in an array of a few numbers and in a large one, which a kernel computes."""
    for bound in (0.1, 0.3, 0.7, 1 / 3, 2.1):
        for name, *options in (
            ("hardtanh", -bound, bound),
            ("hardshrink", bound),
            ("softshrink", bound),
            ("threshold", bound, 7 * bound),
        ):
            found = []
            for lib, times in ((mytorch, 1), (mytorch, 3000), (torch, 1)):
                x = lib.tensor([bound, -bound, 1.5 * bound, 0.0] * times).to(getattr(lib, dtype)).requires_grad_()
                out = getattr(lib.nn.functional, name)(x, *options)
                out.backward(lib.ones_like(out))
                found.append((out[:4].tolist(), x.grad[:4].tolist()))
            assert found[0] == found[1], (name, bound)
            # PyTorch rounds the bound of softshrink in backward, and not in forward.
            compared = 1 if name == "softshrink" else 2
            assert found[0][:compared] == found[2][:compared], (name, bound)


ARITHMETIC = (
    lambda lib, x, y, z, w: lib.rsqrt(x),
    lambda lib, x, y, z, w: lib.hypot(x, y),
    lambda lib, x, y, z, w: lib.lerp(x, y, 0.3),
    lambda lib, x, y, z, w: lib.lerp(x, y, -1.7),
    lambda lib, x, y, z, w: lib.lerp(x, y, w),
    lambda lib, x, y, z, w: lib.addcmul(x, y, z),
    lambda lib, x, y, z, w: lib.addcmul(x, y, z, value=0.3),
    lambda lib, x, y, z, w: lib.addcdiv(x, y, z, value=-2),
)


@pytest.mark.parametrize("function", range(len(ARITHMETIC)))
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_arithmetic_of_several_steps(function, dtype):
    """With special values: the bits of NumPy, and the numbers and gradients of PyTorch."""
    corners = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 0.5, -0.5]
    arrays = [np.concatenate([np.roll(corners, i), random(9001)]).astype(np.float32) for i in range(4)]
    for shapes in (
        [slice(None)] * 4,
        [(None, slice(None)), slice(None), slice(None), slice(None)],
        [slice(1, None, 2)] * 4,
    ):
        found = []
        for lib, fused in ((mytorch, None), (mytorch, False), (torch, None)):
            leaves = [
                lib.tensor(a)[s].to(getattr(lib, dtype)).detach().requires_grad_()
                for a, s in zip(arrays, shapes, strict=True)
            ]
            with mytorch.fused(fused):
                out = ARITHMETIC[function](lib, *leaves)
                out.backward(lib.ones_like(out))
            found.append([t.detach().numpy() for t in (out, *[x.grad for x in leaves if x.grad is not None])])
        for ours, reference in zip(*found[:2], strict=True):
            both = (ours == reference) & (np.signbit(ours) == np.signbit(reference))
            assert (both | (ours != ours) & (reference != reference)).all()
        # PyTorch's gradients in float16 overflow in steps that are computed in float32 here.
        for ours, theirs in zip(*found[1:], strict=True) if dtype != "float16" else [(found[0][0], found[2][0])]:
            np.testing.assert_allclose(ours, theirs, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("times", [1, 3000])
def test_the_sign_of_nan_is_zero_as_pytorchs(dtype, times):
    x = [np.nan, -np.inf, np.inf, -0.0, 1.0, -2.5] * times
    ours, theirs = (lib.tensor(x, dtype=getattr(lib, dtype)).sign().tolist() for lib in (mytorch, torch))
    assert ours == theirs


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize(
    "bounds", [(-1, 2), (-np.inf, 0), (3, -3), (np.nan, 1), (None, 1.5), (-0.5, None), (1, np.nan)]
)
def test_clamp_round_and_reciprocal_of_large_arrays_are_pytorchs(dtype, bounds):
    x = random(101, 203) * 4
    x[:3, :4] = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    x = np.arange(-10000, 10503).reshape(101, 203) if dtype == "int64" else x
    bounds = [None if b is None or (dtype == "int64" and b * 0 != 0) else b for b in bounds]
    for function in (lambda t: t.clamp(*bounds), lambda t: t.round(), lambda t: t.reciprocal()):
        for view in (lambda t: t, lambda t: t.t(), lambda t: t[::2, 3:]):
            if bounds == [None, None]:
                continue
            theirs, ours = (function(view(lib.tensor(x).to(getattr(lib, dtype)))) for lib in (torch, mytorch))
            with everything():
                divided = function(view(mytorch.tensor(x).to(getattr(mytorch, dtype))))
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
            np.testing.assert_array_equal(divided.numpy(), theirs.numpy())
            assert tuple(ours.stride()) == theirs.stride()


def test_gradients_where_a_mask_holds_are_the_same_by_bits():
    with mytorch.fused(False):
        for name in ("relu", "hardtanh", "hardshrink", "softshrink"):
            compare(lambda lib, x: getattr(lib.nn.functional, name)(x.T), random(31, 17))


def test_the_first_call_chooses_as_the_next_does():
    """The first call loads the kernel. Only then is the minimum number of elements known."""
    kernels = Kernels("gelu", cpu="mytorch.kernels.numba.gelu")
    few, many = (np.zeros((n, 15), np.float32) for n in (32, 128))
    for _ in range(2):
        assert kernels.find("cpu", None, (few,), {}) is None
    for _ in range(2):
        assert kernels.find("cpu", None, (many,), {}) is not None


@pytest.mark.parametrize("L", [1, 3, 8])
@pytest.mark.parametrize("shape", [(1, 2, 7, 64, 64), (2, 3, 5, 33, 17), (3, 1, 1, 128, 128), (1, 1, 40, 16, 5)])
def test_a_few_queries_attend_to_a_cache(L, shape):
    """(batch, heads, keys, width, width of the values)"""
    B, H, S, E, Ev = shape
    compare(
        lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k[:, :, 2 : S + 2], v[:, :, 2 : S + 2], is_causal=L == S == 1, **with_kernel(lib)
        ),
        *(random(*sizes) for sizes in ((B, L, H, E), (B, H, S + 3, E), (B, H, S + 3, Ev))),
    )


@pytest.mark.parametrize("shape", [(16, 9), (300, 130)])
@pytest.mark.parametrize("odd", [float("inf"), -float("inf"), float("nan")])
def test_softmax_and_cross_entropy_with_infinities_and_nan_are_pytorchs(shape, odd):
    """If any thread of a kernel finds NaN or a row with an infinite maximum, the reference computes the whole result."""
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, *shape)).astype(np.float32)
    x[-2, 3] = odd
    if odd == -float("inf"):  # -inf is what masks write, so the kernels compute it
        x[rng.random(shape) < 0.5] = odd
    assert (softmax.forward(None, x, dim=1) is None) == (odd != -float("inf"))
    assert softmax.forward(None, np.full(shape, odd, np.float32), dim=1) is None
    target = rng.integers(0, shape[1], shape[0])
    for run in (
        lambda lib, x: x.softmax(-1),
        lambda lib, x: x.log_softmax(-1),
        lambda lib, x: x.logsumexp(-1, keepdim=True),
        lambda lib, x: lib.nn.functional.cross_entropy(x, lib.tensor(target), reduction="none"),
    ):
        found = []
        for lib in (mytorch, torch):
            given = lib.tensor(x, requires_grad=True)
            out = run(lib, given)
            out.backward(lib.tensor(g[:, : out.shape[1]] if out.ndim == 2 else g[:, 0]))
            found.append((out.detach().numpy(), given.grad.numpy()))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(
    ("L", "S", "left"), [(9, 9, 0), (300, 300, 40), (280, 150, 130), (300, 100, 40), (20, 40, 7), (270, 270, 500)]
)
def test_windows_of_attention(L, S, left):
    def attend(lib, q, k, v):
        F = lib.nn.functional
        if lib is mytorch:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, window=(left, 0), **with_kernel(lib))
        ahead = torch.arange(S) - torch.arange(L)[:, None]
        seen = (ahead <= 0) & (ahead >= -left)
        some = seen.any(1, keepdim=True)  # a query that sees no key returns zeros
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen | ~some) * some

    compare(attend, random(1, 2, L, 8), random(1, 2, S, 8), random(1, 2, S, 5))


@pytest.mark.parametrize(
    ("L", "causal", "dropout"), [(13, True, False), (40, False, True), (300, True, False), (9, True, True)]
)
def test_heads_of_one_layer_are_split_and_joined_without_a_copy(L, causal, dropout):
    """Output and gradients have the memory layout of the inputs: the heads of one position are adjacent, and q, k and v share an array."""

    def attend(lib, x):
        q, k, v = (part.reshape(2, L, 3, 5).transpose(1, 2) for part in x.split(15, 2))
        options = with_kernel(lib)
        out = lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **options)
        if lib is mytorch:
            assert out.transpose(1, 2).is_contiguous()
        return out

    compare(attend, random(2, L, 45))
    if dropout:  # random mask: with the same mask, the reference returns the same result
        found = []
        for fused in (True, False):
            mytorch.manual_seed(3)
            x = mytorch.tensor(random(2, L, 45), requires_grad=True)
            q, k, v = (part.reshape(2, L, 3, 5).transpose(1, 2) for part in x.split(15, 2))
            out = mytorch.nn.functional.scaled_dot_product_attention(q, k, v, None, 0.3, causal, fused=fused)
            out.backward(mytorch.tensor(random(2, 3, L, 5)))
            found.append((out.detach().numpy(), x.grad.numpy()))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3), (1, 0, 3, 2)])
def test_gradients_in_one_array_have_the_strides_of_the_inputs(order):
    """Batch, heads and time may have any order of strides. `side_by_side` returns None for other layouts."""
    sizes = np.array((2, 3, 4, 5))[list(order)]
    back = np.argsort(order)
    whole = np.zeros((*sizes[:2], 3, *sizes[2:]), np.float32)
    q, k, v = (whole[:, :, i].transpose(back) for i in range(3))
    found = side_by_side(np, q, k, v)
    assert [a.strides for a in found] == [q.strides] * 3
    assert [address(a) - address(found[0]) for a in found] == [address(a) - address(q) for a in (q, k, v)]
    if order[3] == 3:
        assert laid_out_as(np, q, 7).transpose(order).flags.c_contiguous
    assert side_by_side(np, q, k, np.zeros_like(v)) is side_by_side(np, q, q, q) is None
    shared = np.broadcast_to(q[:, :1], q.shape)
    assert side_by_side(np, shared, shared, shared) is None
    assert laid_out_as(np, shared, 6).shape == (2, 3, 4, 6)


@pytest.mark.parametrize("tiles", ["registers", "AMX"])
def test_products_in_bfloat16(rng, monkeypatch, tiles):
    bf16 = pytest.importorskip("mytorch.kernels.numba.bf16")
    if not (bf16._AMX if tiles == "AMX" else bf16._HERE):
        pytest.skip("the processor does not have the instructions")
    monkeypatch.setattr(bf16, "_AMX", tiles == "AMX")
    half, threads = mytorch.bfloat16.numpy, mytorch.get_num_threads()
    try:
        for rows, inner, columns, batch in [
            (64, 64, 64, (2,)),
            (33, 65, 31, ()),
            (1, 3, 5, (3, 2)),
            (100, 78, 129, ()),
        ]:
            for turned, count in ((False, 1), (True, 3)):
                mytorch.set_num_threads(count)
                a, b = (
                    rng.standard_normal((*batch, *shape)).astype(half) for shape in ((rows, inner), (columns, inner))
                )
                b = b.swapaxes(-1, -2) if turned else np.ascontiguousarray(b.swapaxes(-1, -2))
                for factor, bias in ((b, None), (b[(0,) * len(batch)], rng.standard_normal(columns).astype(half))):
                    assert bf16.accepts(a, factor, bias)
                    found = bf16.forward(np, a, factor, bias).astype(np.float64)
                    wide, other = a.astype(np.float64), factor.astype(np.float64)
                    wanted = wide @ other + (0 if bias is None else bias.astype(np.float64))
                    # One rounding to 8 bits, and float32 sums.
                    error = np.abs(found - wanted) - np.abs(wanted) * 2**-8
                    assert (error <= 1e-6 * (np.abs(wide) @ np.abs(other) + 1)).all()
    finally:
        mytorch.set_num_threads(threads)
    a, b = np.ones((40, 64), half), np.ones((64, 40), half)
    a[3, 5], b[7, 9], a[8] = np.nan, np.inf, 0
    found = bf16.forward(np, a, b).astype(np.float32)
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("shape", "groups"), [((3, 12, 7, 9), 4), ((2, 6, 133), 3), ((2, 8, 4, 4, 4), 8), ((1, 4, 2570), 2)]
)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_group_norm_of_numbers_far_from_zero(shape, groups, affine, last):
    def call(lib, x, *parameters):
        # The channels are last in memory, as after a transposition.
        x = x.transpose(1, -1).contiguous().transpose(1, -1) if last else x
        return lib.nn.functional.group_norm(x, groups, *parameters, **with_kernel(lib))

    compare(call, random(*shape) + 300, *([random(shape[1]) + 1, random(shape[1])] if affine else []), tolerance=1e-4)


EXPONENTIALS = {
    "elu": lambda lib, x: lib.nn.functional.elu(x, 1.3),
    "selu": lambda lib, x: lib.nn.functional.selu(x),
    "celu": lambda lib, x: lib.nn.functional.celu(x, 0.75),
    "softplus": lambda lib, x: lib.nn.functional.softplus(x),
    "softplus with beta": lambda lib, x: lib.nn.functional.softplus(x, 2.5, 15.0),
    "logsigmoid": lambda lib, x: lib.nn.functional.logsigmoid(x),
    "logaddexp": lambda lib, x: lib.logaddexp(x, x.flip(0)),
}
SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-30,
    -1e-7,
    88.3,
    -87.4,
    -100.0,
    19.99,
    20.0,
    3e38,
    -3e38,
    -0.3465,
    -0.34657,
]


@pytest.mark.parametrize("name", EXPONENTIALS)
def test_functions_with_exponentials_are_as_accurate_as_those_of_pytorch(name):
    rng = np.random.default_rng(0)
    x = np.concatenate([SPECIAL, *(rng.standard_normal(2000) * scale for scale in (1e-3, 1.0, 30.0))]).astype(
        np.float32
    )
    g, found = rng.standard_normal(x.size), []
    for lib, dtype in ((mytorch, "float32"), (torch, "float32"), (torch, "float64")):
        leaf = lib.tensor(x, dtype=getattr(lib, dtype)).requires_grad_()
        out = EXPONENTIALS[name](lib, leaf)
        out.backward(lib.tensor(g, dtype=getattr(lib, dtype)))
        found.append([a.detach().double().numpy() for a in (out, leaf.grad)])
    for own, theirs, exact in zip(*found, strict=True):
        finite = np.isfinite(own)
        np.testing.assert_array_equal(own[~finite], theirs[~finite])
        ours, bound, scale = (
            np.abs(a) for a in (own[finite] - exact[finite], theirs[finite] - exact[finite], exact[finite])
        )
        # Numbers below 1e-37 may vanish, and beta * x is rounded before the exponential.
        assert (ours <= 1e-37 + 4e-7 * scale + 2 * np.max(bound / np.maximum(scale, 1e-37)) * scale).all()


PAIRS = [
    ((300, 40), (40,)), ((300, 40), (300, 1)), ((300, 1), (1, 40)), ((8, 16, 5, 7), (16, 1, 1)), ((8, 30, 17), (8, 1, 17)),
    ((2, 1, 3, 50), (4, 1, 50)), ((200, 1, 5, 1), (1, 7, 1, 20)), ((2, 1, 90), (3, 1, 1, 90)), ((150,), ()), ((150, 0), (1, 1)),
    ((130, 3), (3,)), ((1, 400), (400,)), ((4500, 130), (130,)), ((4500, 20), (4500, 1)),
]  # fmt: skip


def _special(rng, shape, dtype):
    x = rng.standard_normal(shape).astype(dtype)
    if x.size > 20:
        x.reshape(-1)[[0, 3, 5, 9, 11, 12, 13]] = 0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -1.5
    return x


def _bits_equal(found, expected, what):
    assert found.shape == expected.shape
    bits = f"u{expected.itemsize}"
    np.testing.assert_array_equal(
        np.ascontiguousarray(found).view(bits), np.ascontiguousarray(expected).view(bits), what
    )


@pytest.fixture
def counted(monkeypatch):
    """Divides small arrays among two threads, and counts the calls of the kernel that computes rows."""
    from mytorch.kernels import parts, registry, threads

    monkeypatch.setattr(parts, "LEAST", 100)
    kernel, calls = registry.ROWS.of["cpu"].load(), []
    forward = kernel.forward

    def noted(*arguments, **options):
        result = forward(*arguments, **options)
        calls.append(result is not None)
        return result

    monkeypatch.setattr(kernel, "forward", noted)
    with threads.everything(), np.errstate(all="ignore"):
        yield parts, calls


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "true_divide"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arithmetic_by_rows_has_numpys_bits(name, dtype, counted):
    """Both orders, operands that broadcast, expanded, sliced, reversed and transposed ones, numbers, in place, special values."""
    (parts, calls), rng, function = counted, np.random.default_rng(0), getattr(np, name)
    for shapes in (*PAIRS, ((40, 30), (40, 30))):
        x, y = (_special(rng, shape, dtype) for shape in shapes)
        out = np.broadcast_shapes(*shapes)
        wide = _special(rng, (*out[:-1], 2 * out[-1] + 3), dtype)[..., 1 : 1 + out[-1]]
        pairs = [(x, y), (y, x), (np.broadcast_to(x, out), np.broadcast_to(y, out)), (wide, y), (y, wide), (wide, wide)]
        pairs += [(wide, 2.5), (wide[::-1], x), (np.ascontiguousarray(wide.T).T, y), (wide.T, wide.T), (x, 3)]
        for pair in pairs:
            what = f"{shapes} {[getattr(a, 'strides', a) for a in pair]}"
            _bits_equal(parts.elementwise(name, function, *pair), function(*pair), what)
            if pair[0].shape == out and pair[0].flags.writeable:
                changed, expected = pair[0].copy("K"), pair[0].copy("K")
                parts.update(function, changed, changed, pair[1])
                function(expected, pair[1], out=expected)
                _bits_equal(changed, expected, what)
    assert sum(calls) > 100


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", "negative absolute square reciprocal sqrt floor ceil trunc rint".split())
def test_functions_by_rows_have_numpys_bits(name, dtype, counted):
    (parts, calls), rng, function = counted, np.random.default_rng(0), getattr(np, name)
    for shape in ((40, 30), (7, 5, 33), (1000,), (3, 200), (60, 3)):
        wide = _special(rng, (*shape[:-1], 2 * shape[-1] + 3), dtype)[..., 1 : 1 + shape[-1]]
        for x in (wide.copy(), 1000 * wide, wide, wide[::-1], wide.T, np.broadcast_to(wide, (4, *shape))):
            _bits_equal(parts.elementwise(name, function, x), function(x), f"{shape} {x.strides}")
            changed = x.copy("K")
            parts.update(function, changed, changed)
            _bits_equal(changed, function(x), f"in place, {shape} {x.strides}")
    assert sum(calls) > 15


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "bool", "complex64"])
def test_copies_by_rows(dtype, counted):
    """Between slices of other arrays; what is around them does not change."""
    (parts, calls), rng = counted, np.random.default_rng(0)
    for shape in ((40, 30), (7, 5, 33), (1000,), (60, 3), (2, 3, 4, 50)):
        source = rng.integers(0, 99, (*shape[:-1], 2 * shape[-1] + 3)).astype(dtype)[..., 1 : 1 + shape[-1]]
        for x in (source.copy(), source, source[::-1], source[..., ::-1], source[:1]):
            around = np.full((*shape[:-1], shape[-1] + 9), 77, dtype)
            expected = around.copy()
            parts.assign(around[..., 4 : 4 + shape[-1]], x)
            expected[..., 4 : 4 + shape[-1]] = x
            np.testing.assert_array_equal(around, expected, f"{shape} {x.strides}")
    assert sum(calls) > (10 if dtype != "complex64" else 5)


def test_rows_that_do_not_fit_raise_numpys_errors(counted):
    parts, _ = counted
    for small, large in (((1, 400), (5, 400)), ((5, 1, 40), (5, 3, 40)), ((3, 400), (2, 400))):
        to, x = np.zeros(small, np.float32), np.ones(large, np.float32)
        with pytest.raises(ValueError, match="broadcast"):
            parts.update(np.add, to, to, x)
        with pytest.raises(ValueError, match="broadcast"):
            parts.assign(to, x)
        assert not to.any()
    with pytest.raises(ValueError, match="could not be broadcast"):
        parts.elementwise("add", np.add, np.ones((3, 400), np.float32), np.ones((2, 400), np.float32))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_gradients_of_large_arrays_that_broadcast(name):
    """The same gradients as of expanded copies."""
    for shapes in (((300, 400), (400,)), ((300, 1), (400,)), ((4, 300, 100), (300, 1))):
        x, y = (mytorch.randn(*shape).requires_grad_() for shape in shapes)
        out = getattr(mytorch, name)(x, y)
        g = mytorch.randn(*out.shape)
        found = mytorch.autograd.grad(out, (x, y), g)
        copies = [a.detach().expand(out.shape).clone().requires_grad_() for a in (x, y)]
        whole = mytorch.autograd.grad(getattr(mytorch, name)(*copies), copies, g)
        for a, b in zip(found, whole, strict=True):
            expected = mytorch.Tensor.sum_to_size(b, *a.shape)
            mytorch.testing.assert_close(a, expected, rtol=1e-4, atol=1e-3)
