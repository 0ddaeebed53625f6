"""The compiled convolutions of the CPU compared with PyTorch in float64: every parameter, odd sizes, all gradients."""

import random

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")
pytest.importorskip("numba", reason="there is no kernel without it")
pytestmark = pytest.mark.cpu_only


def results(lib, name, arrays, up, options, dtype):
    """Returns the output and the gradients of the inputs as float64 arrays; `up` creates the gradient of the output."""
    tensors = [None if a is None else lib.tensor(a, dtype=dtype).requires_grad_() for a in arrays]
    out = getattr(lib.nn.functional, name)(*tensors, **options)
    out.backward(lib.tensor(up(tuple(out.shape)), dtype=dtype))
    return [t.detach().numpy().astype(np.float64) for t in (out, *(t.grad for t in tensors if t is not None))]


def compare(name, x, w, bias=None, seed=0, fused=True, **options):
    """Compares output and gradients on random arrays; the tolerance grows with the number of summands."""
    rng = np.random.default_rng(seed)
    arrays = [None if shape is None else rng.standard_normal(shape).astype(np.float32) for shape in (x, w, bias)]

    def up(shape):
        return np.random.default_rng(seed + 1).standard_normal(shape).astype(np.float32)

    ours = results(mytorch, name, arrays, up, {**options, "fused": fused}, mytorch.float32)
    theirs = results(torch, name, arrays, up, options, torch.float64)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=3e-6 * np.sqrt(max(up(()).size, b.size, 64)))


CASES = [
    ("conv1d", (3, 5, 50), (7, 5, 4), (7,), {"stride": 2, "padding": 3, "dilation": 2}),
    ("conv2d", (2, 3, 9, 13), (17, 3, 3, 3), (17,), {"padding": 1}),
    (
        "conv2d",
        (2, 4, 11, 8),
        (6, 2, 3, 5),
        None,
        {"stride": (2, 3), "padding": (0, 4), "dilation": (2, 1), "groups": 2},
    ),
    ("conv2d", (2, 6, 10, 9), (6, 1, 7, 7), (6,), {"padding": 3, "groups": 6}),
    ("conv2d", (2, 3, 9, 9), (12, 1, 3, 3), (12,), {"stride": 3, "groups": 3}),
    ("conv2d", (3, 8, 9, 9), (16, 8, 1, 1), None, {"stride": 2}),
    ("conv2d", (1, 2, 40, 70), (4, 2, 5, 5), (4,), {"padding": 2}),
    ("conv2d", (1, 300, 7, 7), (40, 300, 3, 3), None, {"padding": 1}),
    ("conv2d", (2, 2, 3, 3), (2, 2, 2, 2), (2,), {"padding": 4}),
    ("conv3d", (2, 3, 5, 6, 7), (4, 3, 3, 2, 3), (4,), {"stride": (2, 1, 2), "padding": 1}),
    ("conv_transpose1d", (2, 5, 9), (5, 3, 4), (3,), {"stride": 3, "padding": 1, "output_padding": 2}),
    ("conv_transpose2d", (2, 8, 5, 4), (8, 9, 4, 4), (9,), {"stride": 2, "padding": 1}),
    ("conv_transpose2d", (2, 6, 5, 4), (6, 2, 3, 2), None, {"stride": (3, 1), "dilation": (1, 2), "groups": 3}),
    ("conv_transpose2d", (2, 4, 3, 3), (4, 4, 1, 1), (4,), {"stride": 3, "output_padding": 2}),
    ("conv_transpose3d", (1, 4, 3, 2, 4), (4, 2, 3, 3, 3), (2,), {"stride": 2, "padding": 1, "output_padding": 1}),
]


@loop
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("name", "x", "w", "bias", "options"), CASES)
def test_convolution_and_its_gradients(name, x, w, bias, options, fused):
    compare(name, x, w, bias, fused=fused, **options)


def test_images_that_share_a_product_in_several_chunks():
    compare("conv2d", (7, 200, 13, 11), (3, 200, 3, 3), (3,), fused=False, padding=(1, 2), stride=(1, 2))
    compare("conv_transpose2d", (7, 3, 9, 9), (3, 150, 3, 3), (150,), fused=False, stride=2, padding=1)


def test_few_positions_are_left_to_products():
    from mytorch.kernels.numba import convolution as kernels

    weight = np.empty((128, 64, 4, 4), np.float32)
    geometry = {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    assert not kernels.convolution.is_faster(np.empty((32, 64, 8, 8), np.float32), weight, **geometry)
    assert kernels.convolution.is_faster(np.empty((32, 64, 64, 64), np.float32), weight, **geometry)


def test_convolutions_of_random_geometry():
    draw = random.Random(0)
    for seed in range(60):
        d, groups, samples = draw.choice([1, 2, 2, 3]), draw.choice([1, 1, 2, 3]), draw.choice([1, 2, 5])
        channels = [groups * draw.choice(sizes) for sizes in ([1, 2, 3, 5], [1, 2, 4, 5, 9, 17])]
        kernel, stride = ([draw.choice(sizes) for _ in range(d)] for sizes in ([1, 2, 3, 4, 7], [1, 1, 2, 3]))
        padding, dilation = ([draw.choice(sizes) for _ in range(d)] for sizes in ([0, 1, 2, 5], [1, 1, 2]))
        size = [
            draw.randint(max(1, b * (k - 1) + 1 - 2 * p), 15) for k, p, b in zip(kernel, padding, dilation, strict=True)
        ]
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        bias = draw.choice([None, (channels[1],)])
        if draw.random() < 0.5:
            compare(
                f"conv{d}d",
                (samples, channels[0], *size),
                (channels[1], channels[0] // groups, *kernel),
                bias,
                seed,
                **geometry,
            )
        elif all(
            (n - 1) * s + b * (k - 1) >= 2 * p
            for n, s, b, k, p in zip(size, stride, dilation, kernel, padding, strict=True)
        ):
            shape = (channels[0], channels[1] // groups, *kernel)
            compare(f"conv_transpose{d}d", (samples, channels[0], *size), shape, bias, seed, **geometry)


def test_several_threads_share_images_and_channels():
    threads = mytorch.get_num_threads()
    try:
        mytorch.set_num_threads(3)
        compare("conv2d", (5, 16, 30, 31), (33, 16, 3, 3), (33,), padding=1)
        compare("conv2d", (1, 16, 30, 31), (33, 16, 3, 3), (33,), padding=1)
        compare("conv2d", (4, 128, 6, 6), (200, 128, 3, 3), None, padding=1)
        compare("conv2d", (3, 128, 30, 30), (144, 128, 3, 3), None, stride=2)
        compare("conv2d", (2, 40, 30, 31), (40, 1, 3, 3), (40,), groups=40, stride=2)
    finally:
        mytorch.set_num_threads(threads)


def test_a_convolution_of_no_samples_and_of_views():
    x, w = mytorch.randn(0, 3, 8, 8), mytorch.randn(4, 3, 3, 3).requires_grad_()
    out = mytorch.nn.functional.conv2d(x.requires_grad_(), w, fused=True)
    out.sum().backward()
    assert (*out.shape,) == (0, 4, 6, 6)
    assert (*x.grad.shape,) == (0, 3, 8, 8)
    assert not w.grad.numpy().any()
    x, w = mytorch.randn(2, 8, 9, 3).permute(0, 3, 1, 2), mytorch.randn(3, 3, 3, 4).permute(3, 0, 1, 2)
    expected = torch.nn.functional.conv2d(torch.from_numpy(x.numpy()), torch.from_numpy(w.numpy()))
    np.testing.assert_allclose(mytorch.nn.functional.conv2d(x, w, fused=True).numpy(), expected.numpy(), atol=1e-5)


def test_second_derivatives_of_a_compiled_convolution():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 6, 5), (4, 3, 3, 3))]
    found = []
    for lib in (mytorch, torch):
        x, w = (lib.tensor(a).requires_grad_() for a in arrays)
        out = lib.nn.functional.conv2d(x, w, stride=2, padding=1)
        gx, gw = lib.autograd.grad((out**3).sum(), (x, w), create_graph=True)
        found.append([g.numpy() for g in lib.autograd.grad((gx**2).sum() + (gw**2).sum(), (x, w))])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(b).max())
