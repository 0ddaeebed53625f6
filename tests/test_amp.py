import contextlib
import math

import numpy as np
import pytest

import mytorch
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.amp import GradScaler, autocast, custom_bwd, custom_fwd, get_autocast_dtype, is_autocast_enabled
from tests.loops import loop

HALVES = [mytorch.float16, mytorch.bfloat16]
HERE = mytorch.get_default_device().type


@pytest.mark.parametrize("dtype", HALVES)
def test_products_run_in_half_and_losses_in_float32(dtype):
    a, w = mytorch.randn(4, 4), mytorch.randn(4, 4)
    with autocast(HERE, dtype):
        product = a @ w
        assert product.dtype is dtype
        assert F.linear(a, w).dtype is dtype
        assert F.scaled_dot_product_attention(a[None], a[None], a[None]).dtype is dtype
        assert F.cross_entropy(product, mytorch.tensor([0, 1, 2, 3])).dtype is mytorch.float32
        assert (product + a).dtype is mytorch.float32
        assert (product + product).dtype is dtype
        assert F.relu(product).dtype is dtype
    assert (a @ w).dtype is mytorch.float32


ON_CPU = {
    "matmul": lambda L, a, b: a @ b,
    "linear": lambda L, a, b: L.nn.functional.linear(a, b),
    "conv1d": lambda L, a, b: L.nn.functional.conv1d(a[None], b[:, :, None]),
    "conv_transpose1d": lambda L, a, b: L.nn.functional.conv_transpose1d(a[None], b[:, :, None]),
    "attention": lambda L, a, b: L.nn.functional.scaled_dot_product_attention(a[None], b[None], b[None]),
    "einsum": lambda L, a, b: L.einsum("ij,jk->ik", a, b),
    "exp": lambda L, a, b: a.exp(),
    "softmax": lambda L, a, b: L.softmax(a, 1),
    "log_softmax": lambda L, a, b: L.log_softmax(a, 1),
    "sum": lambda L, a, b: a.sum(),
    "mean": lambda L, a, b: a.mean(),
    "prod": lambda L, a, b: a.prod(),
    "cumsum": lambda L, a, b: a.cumsum(0),
    "layer_norm": lambda L, a, b: L.nn.functional.layer_norm(a, (4,)),
    "norm": lambda L, a, b: a.norm(),
    "cross_entropy": lambda L, a, b: L.nn.functional.cross_entropy(a, L.tensor([0, 1, 2, 3])),
    "add": lambda L, a, b: a + b,
    "cat": lambda L, a, b: L.cat([a, b]),
    "log": lambda L, a, b: a.abs().log(),
    "inverse": lambda L, a, b: L.linalg.inv(a),
    "logsumexp": lambda L, a, b: L.logsumexp(a, 1),
    "batch_norm": lambda L, a, b: L.nn.functional.batch_norm(a, None, None, training=True),
}


@loop
@pytest.mark.cpu_only
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ON_CPU)
def test_precision_on_the_cpu_is_pytorchs(torch, name, half):
    numbers = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    for given in ("float32", half):
        found = []
        for L in (torch, mytorch):
            a, b = (L.tensor(x).to(getattr(L, given)) for x in numbers)
            with L.autocast("cpu", dtype=getattr(L, half)):
                out = ON_CPU[name](L, a, b)
            found.append((str(out.dtype).split(".")[-1], out.float().numpy()))
        assert found[0][0] == found[1][0]
        np.testing.assert_allclose(found[1][1], found[0][1], rtol=0.03, atol=0.03)


def test_older_names_for_the_gpu():
    from mytorch.cuda.amp import GradScaler as Scaler
    from mytorch.cuda.amp import autocast as cuda_autocast
    from mytorch.cuda.amp import custom_fwd

    assert mytorch.cuda.amp.custom_fwd is custom_fwd
    if HERE == "cpu":  # both are disabled, as in PyTorch
        with pytest.warns(UserWarning, match="CUDA is not available"), cuda_autocast():
            assert not is_autocast_enabled()
        with pytest.warns(UserWarning, match="CUDA is not available"):
            scaler = Scaler(2.0)
        assert not scaler.is_enabled()
        assert scaler.scale(mytorch.ones(1)).item() == 1
        return
    with cuda_autocast():
        assert is_autocast_enabled("cuda")
        assert get_autocast_dtype("cuda") is mytorch.float16
    assert Scaler(2.0).get_scale() == 2.0

    @cuda_autocast(dtype=mytorch.bfloat16)
    def dtype():
        return get_autocast_dtype("cuda")

    assert dtype() is mytorch.bfloat16


def test_values_are_those_of_the_casts_written_by_hand():
    a, w = mytorch.randn(5, 8), mytorch.randn(3, 8)
    with autocast(HERE, mytorch.float16):
        out = F.linear(a, w)
    assert (out == F.linear(a.half(), w.half())).all()


def test_float64_and_integers_are_left_alone():
    with autocast(HERE, mytorch.float16):
        d = mytorch.randn(2, 2).double()
        assert (d @ d).dtype is mytorch.float64
        i = mytorch.ones(2, 2).long()
        assert (i @ i).dtype is mytorch.int64


def test_defaults_nesting_and_switching_off():
    a = mytorch.randn(2, 2, device="cpu")
    assert not is_autocast_enabled("cpu")
    with autocast("cpu"):
        assert is_autocast_enabled("cpu")
        assert not is_autocast_enabled("cuda")
        assert (a @ a).dtype is mytorch.bfloat16
        with autocast("cpu", mytorch.float16):
            assert (a @ a).dtype is mytorch.float16
        with autocast("cpu", enabled=False):
            assert (a @ a).dtype is mytorch.float32
        assert (a @ a).dtype is mytorch.bfloat16
    with pytest.warns(UserWarning, match="CUDA is not available") if HERE == "cpu" else contextlib.nullcontext():
        on_gpu = autocast("cuda")
    with on_gpu:
        assert is_autocast_enabled("cuda") == (HERE != "cpu")
        assert (a @ a).dtype is mytorch.float32  # a is on the CPU
    assert get_autocast_dtype("cpu") is mytorch.bfloat16
    assert get_autocast_dtype("cuda") is mytorch.float16


def test_autocast_decorates_functions():
    @autocast(HERE, mytorch.float16)
    def product(a):
        return a @ a

    assert product(mytorch.randn(2, 2)).dtype is mytorch.float16
    assert not is_autocast_enabled(HERE)


def test_other_devices_and_dtypes_are_refused():
    with pytest.raises(RuntimeError, match="device_type must be one of cuda, cpu, got 'tpu'"):
        autocast("tpu")
    with pytest.raises(ValueError, match="dtype must be float16 or bfloat16, got float64"):
        autocast(HERE, mytorch.float64)


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_of_parameters_are_float32_and_near_the_full_ones(dtype):
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    x, y = mytorch.randn(8, 16), mytorch.randint(0, 4, (8,))
    F.cross_entropy(model(x), y).backward()
    expected = [p.grad.numpy().copy() for p in model.parameters()]
    model.zero_grad()
    with autocast(HERE, dtype):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    for p, e in zip(model.parameters(), expected, strict=True):
        assert p.grad.dtype is mytorch.float32
        assert np.abs(p.grad.numpy() - e).max() < 0.02 * np.abs(e).max() + 1e-3


def test_a_weight_is_cast_once_in_a_block_and_again_after_a_change(monkeypatch):
    from mytorch import amp

    casts = []  # of the weight
    real = amp.to_dtype

    def counting(x, dtype):
        casts.extend([x] if x is w else [])
        return real(x, dtype=dtype)

    monkeypatch.setattr(amp, "to_dtype", counting)
    w = nn.Parameter(mytorch.randn(3, 3))
    a = mytorch.randn(3, 3).half()
    with autocast(HERE, mytorch.float16):
        first = F.linear(a, w)
        with autocast(HERE, mytorch.float16):
            F.linear(a, w)
        assert len(casts) == 1
        with mytorch.no_grad():
            F.linear(a, w)
            assert len(casts) == 2  # without a graph: another cast, which must not be used with one
            w.add_(1.0)
        second = F.linear(a, w)
        assert len(casts) == 3
        assert (first != second).any()
        (first + second).sum().backward()
    assert w.grad is not None
    with autocast(HERE, mytorch.float16):
        F.linear(a, w)
    assert len(casts) == 4
    with autocast(HERE, mytorch.float16, cache_enabled=False):
        F.linear(a, w)
        F.linear(a, w)
    assert len(casts) == 6


def test_custom_forward_and_backward_keep_their_precision():
    seen = {}

    class Product(mytorch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type=HERE, cast_inputs=mytorch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            seen["forward"] = (a @ b).dtype
            return a @ b

        @staticmethod
        @custom_bwd(device_type=HERE)
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen["backward"] = is_autocast_enabled(HERE)
            return g @ b.T, a.T @ g

    a = mytorch.randn(2, 2, requires_grad=True)
    with autocast(HERE, mytorch.float16):
        out = Product.apply(a, mytorch.randn(2, 2))
        out.sum().backward()
    assert seen == {"forward": mytorch.float32, "backward": False}


# -- GradScaler ------------------------------------------------------------------------------------


def setup(scaler_options=None, lr=0.1):
    p = nn.Parameter(mytorch.ones(3))
    return p, mytorch.optim.SGD([p], lr=lr), GradScaler(HERE, **(scaler_options or {}))


def test_scaled_steps_are_those_without_scaling():
    p, optimizer, scaler = setup()
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale((p * mytorch.arange(3)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    np.testing.assert_allclose(p.detach().numpy(), 1 - 0.3 * np.arange(3), rtol=1e-6)


def test_tiny_half_precision_gradients_survive_by_scaling():
    x = mytorch.full((4, 4), 0.1)
    w = nn.Parameter(mytorch.ones(4, 4))

    def gradient(scale):
        w.grad = None
        with autocast(HERE, mytorch.float16):
            out = F.linear(x, w)
        (out.float() * 1e-8 * scale).sum().backward()
        return w.grad.numpy() / scale

    assert (gradient(1.0) == 0).any() or np.abs(gradient(1.0) / 4e-9 - 1).max() > 0.1
    np.testing.assert_allclose(gradient(65536.0), 4e-9, rtol=0.01)


def test_step_is_skipped_after_overflow_and_the_scale_shrinks():
    p, optimizer, scaler = setup({"init_scale": 1024.0})
    p.grad = mytorch.tensor([1.0, math.inf, 1.0])
    scaler.step(optimizer)
    assert scaler.found_inf(optimizer)
    scaler.update()
    assert (p == 1).all()
    assert scaler.get_scale() == 512.0
    p.grad = mytorch.tensor([1.0, math.nan, 1.0])
    scaler.step(optimizer)
    scaler.update()
    assert (p == 1).all()
    assert scaler.get_scale() == 256.0


def test_the_scale_grows_after_the_interval_and_an_overflow_restarts_it():
    p, optimizer, scaler = setup({"init_scale": 8.0, "growth_interval": 3})
    scales = []
    for i in range(8):
        p.grad = mytorch.full((3,), math.inf if i == 1 else 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [8, 4, 4, 4, 8, 8, 8, 16]


def test_unscale_lets_gradients_be_clipped():
    p, optimizer, scaler = setup({"init_scale": 128.0})
    scaler.scale((p * 10).sum()).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_([p], 1.0)
    assert norm.item() == pytest.approx(10 * 3**0.5)
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose(p.detach().numpy(), 1 - 0.1 / 3**0.5, rtol=1e-5)


def test_methods_out_of_order_are_refused():
    p, optimizer, scaler = setup()
    with pytest.raises(RuntimeError, match="No inf checks were recorded prior to update"):
        scaler.update()
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called on this optimizer"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"being called after step\(\)"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, lambda: None)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="growth factor must be > 1"):
        GradScaler(HERE, growth_factor=1.0)
    with pytest.raises(ValueError, match="backoff factor must be < 1"):
        GradScaler(HERE, backoff_factor=1.0)
    with pytest.raises(TypeError, match="device must be 'cuda' or 'cpu'"):
        GradScaler(65536.0)


def test_half_precision_gradients_are_not_unscaled():
    p = nn.Parameter(mytorch.ones(2).half())
    optimizer, scaler = mytorch.optim.SGD([p], lr=0.1), GradScaler(HERE)
    p.grad = mytorch.ones(2).half()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(optimizer)


def test_disabled_it_does_nothing():
    p, optimizer, scaler = setup({"enabled": False})
    loss = p.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}
    np.testing.assert_allclose(p.detach().numpy(), 0.9, rtol=1e-6)


def test_state_dict_has_pytorchs_names_and_comes_back(torch):
    _, _, scaler = setup({"init_scale": 4.0, "growth_interval": 7})
    state = scaler.state_dict()
    assert set(state) == set(torch.amp.GradScaler("cpu").state_dict())
    other = GradScaler(HERE)
    other.load_state_dict({**state, "_growth_tracker": 3})
    assert other.state_dict() == {**state, "_growth_tracker": 3}
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        other.load_state_dict({})


def test_nested_outputs_are_scaled():
    _, _, scaler = setup({"init_scale": 2.0})
    a, (b, c) = scaler.scale([mytorch.ones(()), (mytorch.ones(()), mytorch.ones(()).half())])
    assert (a.item(), b.item(), c.item()) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="must be a Tensor or an iterable of Tensors"):
        scaler.scale(1.0)


def test_the_scaler_follows_pytorchs(torch):
    rng = np.random.default_rng(0)
    start = rng.standard_normal(4).astype(np.float32)
    mine, theirs = nn.Parameter(mytorch.tensor(start)), torch.nn.Parameter(torch.tensor(start))
    optimizers = mytorch.optim.SGD([mine], lr=0.01), torch.optim.SGD([theirs], lr=0.01)
    options = {"init_scale": 2.0**10, "growth_interval": 4}
    scalers = GradScaler(HERE, **options), torch.amp.GradScaler("cpu", **options)
    for i in range(20):
        factor = math.inf if i in (3, 4, 13) else float(rng.standard_normal())
        for p, optimizer, scaler in zip((mine, theirs), optimizers, scalers, strict=True):
            optimizer.zero_grad()
            scaler.scale((p * p * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scalers[0].get_scale() == scalers[1].get_scale()
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-5)


def test_gradients_of_weights_that_a_gpu_casts_are_not_rounded():
    x, w, b = mytorch.randn(6, 5, 8), mytorch.randn(4, 8, requires_grad=True), mytorch.randn(4, requires_grad=True)
    if x.device.type == "cpu":
        pytest.skip("for a GPU, or its fake")
    g = mytorch.randn(6, 5, 4).bfloat16()
    half = x.bfloat16().float().cpu().numpy().astype(np.float64).reshape(-1, 8)
    want = g.float().cpu().numpy().astype(np.float64).reshape(-1, 4).T @ half
    for bias in (None, b):
        w.grad = None
        with mytorch.autocast("cuda", mytorch.bfloat16):
            out = mytorch.nn.functional.linear(x, w, bias)
        out.backward(g)
        got = w.grad.cpu().numpy()
        assert w.grad.dtype is mytorch.float32
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("takes_scaler", [False, True])
def test_optimizers_that_handle_overflow_themselves(takes_scaler):
    """These optimizers step in any case; they receive the scaler or the overflow flag."""
    seen = []

    class Own(mytorch.optim.Optimizer):
        _step_supports_amp_scaling = True

        def __init__(self, params):
            super().__init__(params, {})

        if takes_scaler:

            def step(self, closure=None, *, grad_scaler=None):
                seen.append(grad_scaler)
        else:

            def step(self, closure=None):
                seen.append((self.grad_scale.item(), self.found_inf.item()))

    p = mytorch.nn.Parameter(mytorch.ones(1))
    optimizer, scaler = Own([p]), mytorch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale((p * np.inf).sum()).backward()
    with pytest.warns(FutureWarning, match="stop passing itself") if takes_scaler else contextlib.nullcontext():
        scaler.step(optimizer)
    assert seen == [scaler if takes_scaler else (1.0, 1.0)]
    assert not hasattr(optimizer, "found_inf")


def test_the_cpu_module():
    """`torch.cpu`, whose names for mixed precision are deprecated."""
    from mytorch import cpu

    assert cpu.is_available()
    assert cpu.device_count() == 1
    with pytest.warns(FutureWarning, match=r"torch.cpu.amp.GradScaler\(args...\)` is deprecated"):
        assert isinstance(cpu.amp.GradScaler(init_scale=2.0), mytorch.amp.GradScaler)
    with pytest.warns(FutureWarning, match="deprecated"), cpu.amp.autocast():
        assert mytorch.is_autocast_enabled("cpu")
