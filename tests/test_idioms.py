"""Spellings and habits of published PyTorch programs, each checked against PyTorch."""

import subprocess
import sys

import numpy as np
import pytest

import mytorch
from tests.loops import loop

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_sizes_make_an_uninitialised_tensor(torch):
    for sizes in ((3,), (3, 4), (2, 3, 4), (1, 2, 3, 4, 5), (mytorch.Size([2, 3]),), ()):
        found = mytorch.Tensor(*sizes)
        expected = torch.Tensor(*[torch.Size(s) if isinstance(s, tuple) else s for s in sizes])
        assert tuple(found.shape) == tuple(expected.shape)
        assert found.dtype is mytorch.float32
    assert mytorch.Tensor(3.5).item() == 3.5
    assert mytorch.Tensor([2, 3]).tolist() == [2.0, 3.0]
    assert mytorch.Tensor([2.0], True).requires_grad
    with pytest.raises(TypeError):
        mytorch.Tensor(3, "a")


@pytest.mark.parametrize(
    "name",
    "sum mean prod amax amin cumsum cumprod logsumexp sort argsort median unsqueeze softmax std_mean count_nonzero".split(),
)
def test_axis_is_dim(name, torch):
    for call in (lambda L, x: getattr(L, name)(x, axis=1), lambda L, x: getattr(x, name)(axis=1)):
        found, expected = (call(L, L.tensor(X)) for L in (mytorch, torch))
        if isinstance(expected, tuple):
            found, expected = found[0], expected[0]
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
        if name == "std_mean":
            break  # no method


def test_keepdims_is_keepdim(torch):
    for name in ("prod", "amax", "logsumexp"):
        assert getattr(mytorch.tensor(X), name)(axis=0, keepdims=True).shape == (1, 4)
    with pytest.raises(TypeError):
        mytorch.tensor(X).cumprod(dim=0, axis=1)


def test_variable_is_a_tensor():
    w = mytorch.ones(2, requires_grad=True)
    x = mytorch.autograd.Variable(w)
    assert isinstance(x, mytorch.autograd.Variable)
    assert isinstance(x, mytorch.Tensor)
    assert not x.requires_grad
    assert mytorch.autograd.Variable(mytorch.ones(2), requires_grad=True).requires_grad
    x.fill_(3.0)
    assert w.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce_from_minus_infinity(include_self, torch):
    index = np.array([0, 0, 2, 2, 2])
    source = np.random.default_rng(1).standard_normal(5).astype(np.float32)
    results = []
    for L in (mytorch, torch):
        start = L.full((4,), float("-inf"), requires_grad=True)
        src = L.tensor(source, requires_grad=True)
        out = start.scatter_reduce(0, L.tensor(index), src, reduce="amax", include_self=include_self)
        out.backward(L.arange(1.0, 5.0))
        results.append((out.detach().numpy(), start.grad.numpy(), src.grad.numpy()))
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_masks_of_the_lowest_float_do_not_warn():
    """A sum that overflows, in deciding on a kernel, is not the user's concern."""
    script = (
        "import mytorch as L, mytorch.nn.functional as F; x = L.full((64, 64), L.finfo(L.float32).min);"
        "F.softmax(x, -1); F.cross_entropy(x, L.zeros(64).long())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_complex_draws_have_both_parts(torch):
    for draw in (
        lambda L: L.randn(3, 4, dtype=L.complex64),
        lambda L: L.randn(3, dtype=L.complex128),
        lambda L: L.rand(2, 3, dtype=L.complex64),
        lambda L: L.zeros(5, dtype=L.complex64).normal_(1.0, 2.0),
        lambda L: L.randn((), dtype=L.complex64),
    ):
        results = []
        for L in (mytorch, torch):
            L.manual_seed(0)
            results.append(draw(L).numpy())
        np.testing.assert_allclose(*results, rtol=1e-6)


@loop
@pytest.mark.parametrize(("a", "b"), [((2, 3), (4,)), ((2, 1, 3), (5, 2)), ((3,), (2,)), ((4, 3), (2, 3, 3))])
@pytest.mark.parametrize("name", ["add", "mul", "lt", "maximum", "atan2", "pow"])
def test_shapes_that_do_not_fit(a, b, name, torch):
    messages = []
    for L in (mytorch, torch):
        with pytest.raises(RuntimeError) as error:
            getattr(L, name)(L.ones(a), L.ones(b))
        messages.append(str(error.value))
    assert messages[0].startswith(messages[1])  # the message of mytorch also contains the shapes


def test_type_takes_a_tensor_type():
    x = mytorch.arange(3)
    assert x.type(mytorch.DoubleTensor).dtype is mytorch.float64
    assert x.type("torch.FloatTensor").dtype is mytorch.float32
    assert x.type(mytorch.float16).dtype is mytorch.float16
    assert x.type(mytorch.zeros(1).type()).dtype is mytorch.float32


def test_cuda_amp_by_its_old_name():
    from mytorch.cuda.amp import GradScaler, autocast

    with autocast(enabled=False):
        assert (mytorch.ones(2) @ mytorch.ones(2)).dtype is mytorch.float32
    scaler = GradScaler(enabled=False)
    assert scaler.scale(mytorch.ones(1)).item() == 1.0
    assert mytorch.cuda.amp.autocast is autocast


def test_complex_numbers_print_without_their_dtype(torch):
    numbers = [1 + 2.5j, 0.5 - 1.25j]
    mytorch.set_printoptions(layout="torch")
    try:
        assert repr(mytorch.tensor(numbers, device="cpu")) == repr(torch.tensor(numbers))
    finally:
        mytorch.set_printoptions(layout="mytorch")


def test_data_and_gradients_have_the_methods_of_tensors(torch):
    asked = []
    for L in (mytorch, torch):
        w = L.tensor([1.0, 2.0], requires_grad=True)
        (w * w).sum().backward()
        grad = w.grad.detach()
        grad.mul_(2.0)
        w.grad.detach_()
        w.grad.requires_grad_(False)
        asked.append([
            grad.tolist(), w.grad.tolist(), isinstance(grad, L.Tensor), L.is_tensor(w.data), w.grad.is_sparse, w.grad.data.is_sparse, w.data.is_cuda and L is torch,
            w.grad.grad, w.grad.nbytes, w.data.itemsize, f"{w.grad.norm():.3f}", f"{w.data.sum():8.2f}",
        ])  # fmt: skip
    assert asked[0] == asked[1]
    x = mytorch.tensor([1.0, 2.0]).data.clone().requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_settings_of_attention_and_default_type():
    cuda = mytorch.backends.cuda
    cuda.enable_flash_sdp(False)
    assert not cuda.flash_sdp_enabled()
    assert cuda.math_sdp_enabled()
    cuda.enable_flash_sdp(True)
    with pytest.warns(UserWarning, match="set_default_dtype"):
        mytorch.set_default_tensor_type("torch.DoubleTensor")
    try:
        assert mytorch.zeros(1).dtype is mytorch.float64
    finally:
        mytorch.set_default_dtype(mytorch.float32)


def test_bools_are_not_subtracted(torch):
    messages = []
    for L in (mytorch, torch):
        with pytest.raises(RuntimeError) as error:
            L.tensor([True]) - L.tensor([False])
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_pinv_takes_rcond_second(torch):
    """A relative bound, as in PyTorch: 1 is negligible compared with 4 at 0.5, and would not be below 0.5 itself."""
    for arguments in ((0.5,), (0.5, True), (0.1,), ()):
        found = mytorch.linalg.pinv(mytorch.tensor([[4.0, 0.0], [0.0, 1.0]]), *arguments)
        expected = torch.linalg.pinv(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), *arguments)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-6)


def test_stacks_are_captured_and_made_code_is_shown():
    """Tests the functions behind `torch.utils._traceback`."""
    import traceback

    from mytorch.utils._traceback import CapturedTraceback, format_traceback_short, report_compile_source_on_error

    noted = CapturedTraceback.extract()
    assert "test_stacks_are_captured" in noted.format()[-1]
    assert CapturedTraceback.format_all([noted]) == [noted.format()]
    text = "def f():\n    1 / 0  # HERE\n"
    made = {"__compile_source__": text}
    exec(text, made)
    with pytest.raises(ZeroDivisionError) as error, report_compile_source_on_error():
        made["f"]()
    assert "HERE" in "".join(traceback.format_tb(error.value.__traceback__))
    assert format_traceback_short(error.value.__traceback__).endswith("in f")
