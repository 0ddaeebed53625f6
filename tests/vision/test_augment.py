"""Warps, changes of values and automatic policies, compared with formulas and with torchvision where it is installed."""

import numpy as np
import pytest

import mytorch
from mytorch.vision import transforms as T
from mytorch.vision.transforms import functional as F
from mytorch.vision.transforms import v2


def _image(*shape, dtype=np.uint8, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(dtype)


def test_affine_maps_move_pixels():
    x = mytorch.tensor(_image(3, 9, 11))
    np.testing.assert_array_equal(F.affine(x, 0, [2, -1], 1.0, 0).numpy()[:, :8, 2:], x.numpy()[:, 1:, :9])
    square = x[:, :, :9]
    np.testing.assert_array_equal(F.affine(square, 90, [0, 0], 1.0, 0).numpy(), np.rot90(square.numpy(), -1, (1, 2)))
    np.testing.assert_array_equal(F.affine(x, 30, [0, 0], 1.0, 0).numpy(), F.rotate(x, -30).numpy())
    ramp = mytorch.tensor(np.mgrid[:20, :30].astype(np.float64))  # a linear image stays linear inside
    result = F.affine(ramp, 20, [1, 2], 1.3, [5.0, 8.0], T.InterpolationMode.BILINEAR).numpy()[:, 8:12, 12:18]
    assert np.abs(np.diff(result, 2, axis=1)).max() < 1e-4
    filled = F.affine(x, 0, [20, 0], 1.0, 0, fill=[1.0, 2.0, 3.0])
    assert filled[:, 4, 5].tolist() == [1, 2, 3]


def test_perspectives_move_the_corners():
    x = mytorch.tensor(np.random.default_rng(0).random((1, 30, 40)))
    corners = [[0, 0], [40, 0], [40, 30], [0, 30]]
    np.testing.assert_allclose(F.perspective(x, corners, corners).numpy(), x.numpy(), atol=1e-5)
    doubled = F.perspective(x, [[10, 10], [20, 10], [20, 20], [10, 20]], [[10, 10], [30, 10], [30, 30], [10, 30]])
    expected = F.resize(x[:, 10:20, 10:20], [20, 20])
    np.testing.assert_allclose(doubled.numpy()[:, 12:28, 12:28], expected.numpy()[:, 2:18, 2:18], atol=1e-5)


def test_displacements_move_pixels():
    x = mytorch.tensor(_image(2, 3, 8, 10))
    shift = np.zeros((1, 8, 10, 2))
    shift[..., 0] = 2 * 2 / 10
    np.testing.assert_array_equal(F.elastic_transform(x, mytorch.tensor(shift)).numpy()[..., :8], x.numpy()[..., 2:])
    assert T.ElasticTransform(20.0, 0.7)(x).shape == x.shape


@pytest.mark.parametrize("warp", ["affine", "perspective", "elastic", "sharpness", "autocontrast"])
def test_warps_have_gradients(warp):
    x = mytorch.tensor(np.random.default_rng(1).random((2, 5, 6)), requires_grad=True)
    bilinear = T.InterpolationMode.BILINEAR
    calls = {
        "affine": lambda x: F.affine(x, 20, [1, 0], 0.9, [3.0, 4.0], bilinear),
        "perspective": lambda x: F.perspective(x, [[0, 0], [5, 0], [5, 4], [0, 4]], [[1, 0], [5, 1], [4, 4], [0, 3]]),
        "elastic": lambda x: F.elastic_transform(x, mytorch.full((1, 5, 6, 2), 0.1).double()),
        "sharpness": lambda x: F.adjust_sharpness(x, 0.5),
        "autocontrast": lambda x: F.autocontrast(x * 0.5 + 0.2)[:, 1:4],
    }
    assert mytorch.autograd.gradcheck(calls[warp], (x,), atol=1e-4)


def test_values_are_changed():
    x = _image(2, 3, 7, 9)
    image = mytorch.tensor(x)
    np.testing.assert_array_equal(F.solarize(image, 100).numpy(), np.where(x >= 100, 255 - x, x))
    for bits in range(9):
        np.testing.assert_array_equal(F.posterize(image, bits).numpy(), x >> (8 - bits) << (8 - bits))
    small = mytorch.tensor(x // 4 + 50)
    stretched = F.autocontrast(small)
    assert (stretched.amin((-2, -1)) == 0).all()
    assert (stretched.amax((-2, -1)) >= 254).all()
    assert F.autocontrast(image * 0 + 9).tolist() == (image * 0 + 9).tolist()
    weights = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
    blurred = x.astype(float)
    for i, j in np.ndindex(5, 7):
        blurred[..., i + 1, j + 1] = (x[..., i : i + 3, j : j + 3] * weights).sum((-2, -1))
    np.testing.assert_allclose(F.adjust_sharpness(image, 0.0).numpy(), blurred, atol=0.51)
    assert F.adjust_sharpness(image, 1.0).tolist() == image.tolist()


def test_equalized_images_have_a_flat_histogram():
    dark = (np.random.default_rng(0).random((1, 64, 64)) ** 3 * 200).astype(np.uint8)
    result = F.equalize(mytorch.tensor(dark)).numpy()
    counts = np.histogram(result, 8, (0, 256))[0]
    assert counts.max() < 2.5 * counts.min()
    assert (np.diff(result.reshape(-1)[np.argsort(dark.reshape(-1), kind="stable")].astype(int)) >= 0).all()
    flat = mytorch.full((1, 4, 4), 7, dtype=mytorch.uint8)
    assert F.equalize(flat).tolist() == flat.tolist()


def test_crops():
    x = mytorch.tensor(_image(3, 6, 8))
    five = T.FiveCrop(4)(x)
    assert [c.shape for c in five] == [(3, 4, 4)] * 5
    assert five[3].tolist() == x[:, 2:, 4:].tolist()
    ten = T.TenCrop((4, 3), vertical_flip=True)(x)
    assert len(ten) == 10
    assert ten[5].tolist() == x.flip(-2)[:, :4, :3].tolist()


POLICIES = [
    T.RandAugment(4), T.TrivialAugmentWide(), *(T.AutoAugment(policy) for policy in T.AutoAugmentPolicy), T.AugMix(),
    T.AugMix(all_ops=False, chain_depth=2), T.RandomAffine(20, (0.2, 0.1), (0.5, 2.0), (-5, 5, -9, 9)), T.RandomPerspective(p=1.0),
    T.GaussianBlur(3), T.RandomEqualize(), T.RandomInvert(), T.RandomAutocontrast(), T.RandomPosterize(3), T.RandomSolarize(90),
    T.RandomAdjustSharpness(2.0), T.ElasticTransform(),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_policies_keep_the_type_and_follow_the_seed(number):
    pytest.importorskip("PIL")
    transform = POLICIES[number]
    x = mytorch.tensor(_image(3, 40, 33) // 2 + 40)
    for image in (x, x.permute(1, 2, 0).numpy(), F.to_pil_image(x)):
        results = []
        for seed in (0, *range(8)):
            mytorch.manual_seed(seed)
            result = transform(image)
            assert type(result) is type(image)
            results.append(np.asarray(result.tolist() if isinstance(result, mytorch.Tensor) else result))
        assert (results[0] == results[1]).all()
        assert results[0].shape == np.asarray(image).shape
        assert any((result != results[0]).any() for result in results)
    sample = getattr(v2, type(transform).__name__)
    assert sample.__doc__ == type(transform).__doc__


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: F.affine(x, 0, [0, 0], 0.0, 0), "scale > 0"),
        (
            lambda x: F.affine(x, 0, [0, 0], 1.0, 0, T.InterpolationMode.BICUBIC),
            "'nearest' or 'bilinear', got 'bicubic'",
        ),
        (lambda x: F.perspective(x, [[0, 0]], [[0, 0]]), "four points"),
        (lambda x: F.elastic_transform(x, mytorch.zeros(1, 2, 2, 2)), "displacement"),
        (lambda x: F.equalize(x.float()), "dtype uint8"),
        (lambda x: F.posterize(x, 9), "bits from 0 to 8"),
        (lambda x: F.solarize(x, 300), "at most 255"),
        (lambda x: F.five_crop(x, 100), "bigger than"),
        (lambda x: T.RandAugment(magnitude=40), "magnitude from 0 to 30"),
        (lambda x: T.RandomAffine(-1), "positive"),
        (lambda x: T.RandomAffine(1, translate=(2, 0)), "between 0 and 1"),
        (lambda x: T.AugMix(0), "severity"),
    ],
)
def test_bad_arguments_are_named(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call(mytorch.tensor(_image(3, 5, 6)))


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_equal_to_torchvision(mode):
    torch, other = pytest.importorskip("torch"), pytest.importorskip("torchvision.transforms.functional")
    generator = np.random.default_rng(0)
    x = generator.random((3, 20, 31)).astype(np.float32)
    for _ in range(10):
        values = generator.uniform(-180, 180), [3, -2], generator.uniform(0.5, 2), [10.0, -20.0]
        expected = other.affine(torch.tensor(x), *values, other.InterpolationMode(mode)).numpy()
        result = F.affine(mytorch.tensor(x), *values, T.InterpolationMode(mode)).numpy()
        assert (np.abs(result - expected) > 1e-3).mean() < 0.01
