"""Transforms against NumPy, PyTorch's functions and Pillow; draws against PyTorch's generator."""

import math
import pickle
import sys

import numpy as np
import pytest

import mytorch
from mytorch.utils.data import DataLoader
from mytorch.vision import transforms as T
from mytorch.vision.datasets import SyntheticDigits
from mytorch.vision.transforms import functional as F


@pytest.fixture
def pixels(rng):
    """Returns a uint8 image (H, W, 3)."""
    return rng.integers(0, 256, (37, 53, 3), dtype=np.uint8)


@pytest.fixture
def image(pixels):
    return pytest.importorskip("PIL.Image").fromarray(pixels)


def as_chw(pixels):
    return mytorch.tensor(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def difference(a, b):
    return np.abs(np.asarray(a).astype(float) - np.asarray(b).astype(float))


# -- kinds ----------------------------------------------------------------------------------------------------------


def test_transforms_keep_the_kind_of_image(pixels, image):
    expected = pixels[:, ::-1]
    for picture in (pixels, image, as_chw(pixels)):
        out = F.hflip(picture)
        assert type(out) is type(picture)
        found = out.numpy().transpose(1, 2, 0) if isinstance(out, mytorch.Tensor) else np.asarray(out)
        assert (found == expected).all()
    grey = F.hflip(pixels[:, :, 0])
    assert (grey == expected[:, :, 0]).all()
    batch = mytorch.tensor(pixels[None].transpose(0, 3, 1, 2))
    assert (F.hflip(batch).numpy()[0].transpose(1, 2, 0) == expected).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F", "I;16"])
def test_pil_modes_come_back(image, mode):
    picture = (
        image.convert("L").convert("I").convert("I;16")
        if mode == "I;16"
        else image.convert("RGBA").convert(mode)
        if mode == "LA"
        else image.convert(mode)
    )
    out = F.vflip(F.vflip(picture))
    assert out.mode == mode
    assert (np.asarray(out) == np.asarray(picture)).all()


def test_objects_that_are_not_images_are_rejected(image):
    for bad in ("cat.png", [1, 2], np.zeros(3), mytorch.zeros(3), 3):
        with pytest.raises(TypeError, match="hflip"):
            F.hflip(bad)
    with pytest.raises(ValueError, match=r"convert\('RGB'\)"):
        F.hflip(image.convert("P"))


def test_to_tensor(pixels, image):
    expected = (pixels.transpose(2, 0, 1) / 255).astype(np.float32)
    for picture in (pixels, image):
        out = T.ToTensor()(picture)
        assert out.dtype is mytorch.float32
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
    wide = pixels[:, :, 0].astype(np.float64) * 3
    assert T.ToTensor()(wide).dtype is mytorch.float64
    assert (T.ToTensor()(wide).numpy()[0] == wide).all()
    assert T.ToTensor()(image.convert("1")).dtype is mytorch.bool
    assert (T.PILToTensor()(image).numpy() == pixels.transpose(2, 0, 1)).all()
    for number, dtype in ((3, mytorch.int64), (0.5, mytorch.float32), (np.int32(2), mytorch.int32)):
        assert T.ToTensor()(number).dtype is dtype
        assert T.ToTensor()(number).item() == number
    with pytest.raises(TypeError, match="PIL Image or ndarray"):
        T.ToTensor()(mytorch.zeros(3, 2, 2))
    with pytest.raises(TypeError, match="should be PIL Image"):
        T.PILToTensor()(pixels)


def test_to_tensor_copies(pixels):
    before = pixels.astype(np.float32)
    out = T.ToTensor()(before)
    out.zero_()
    assert before.any()


def test_to_pil_image(pixels, image):
    for picture in (pixels, as_chw(pixels), as_chw(pixels).float() / 255):
        out = T.ToPILImage()(picture)
        assert out.mode == "RGB"
        assert (difference(out, pixels) <= 1).all()
    assert T.ToPILImage()(as_chw(pixels)[0]).mode == "L"
    assert T.ToPILImage("HSV")(as_chw(pixels)).mode == "HSV"
    assert T.ToPILImage()(pixels[:, :, 0].astype(np.int32)).mode == "I"
    with pytest.raises(ValueError, match="mode CMYK"):
        T.ToPILImage("CMYK")(pixels)
    with pytest.raises(ValueError, match="2/3 dimensional"):
        T.ToPILImage()(mytorch.zeros(1, 2, 3, 4))


def test_without_pillow(monkeypatch, pixels):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert T.Resize(10)(pixels).shape == (10, 14, 3)
    with pytest.raises(ImportError, match="pip install pillow"):
        T.ToPILImage()(pixels)


def test_convert_image_dtype():
    full = {"uint8": 255, "int16": 32767, "int32": 2**31 - 1, "int64": 2**63 - 1, "bool": 1, "float32": 1, "float64": 1}
    for old, top in full.items():
        for new, expected in full.items():
            ends = mytorch.tensor([0, top], dtype=getattr(mytorch, old)).reshape(1, 1, 2)
            if (old, new) in (("float32", "int32"), ("float32", "int64"), ("float64", "int64")):
                with pytest.raises(RuntimeError, match="cannot be performed safely"):
                    F.convert_image_dtype(ends, getattr(mytorch, new))
                continue
            out = T.ConvertImageDtype(getattr(mytorch, new))(ends)
            assert out.dtype is getattr(mytorch, new)
            assert out[0, 0, 0].item() == 0
            if "float" not in old and "float" not in new and expected > top:
                expected = top * ((expected + 1) // (top + 1))
            assert out[0, 0, 1].item() == pytest.approx(expected, rel=1e-6)
    levels = mytorch.arange(256).to(mytorch.uint8).reshape(1, 16, 16)
    there = F.convert_image_dtype(levels, mytorch.float32)
    assert (F.convert_image_dtype(there, mytorch.uint8) == levels).all()


def test_dimensions(pixels, image):
    for picture in (pixels, image, as_chw(pixels)):
        assert F.get_dimensions(picture) == [3, 37, 53]


# -- numbers --------------------------------------------------------------------------------------------------------


def test_normalize(rng):
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    mean, std = [0.1, 0.2, 0.3], [1.0, 2.0, 3.0]
    expected = (x - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    t = mytorch.tensor(x)
    np.testing.assert_allclose(T.Normalize(mean, std)(t).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert (t.numpy() == x).all()
    T.Normalize(mean, std, inplace=True)(t)
    np.testing.assert_allclose(t.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(T.Normalize(0.5, 2.0)(mytorch.tensor(x)).numpy(), (x - 0.5) / 2, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="std evaluated to zero"):
        F.normalize(t, mean, [1.0, 0.0, 1.0])
    with pytest.raises(TypeError, match="float tensor"):
        F.normalize(t.long(), mean, std)
    with pytest.raises(ValueError, match="expected 1 or 3 numbers .*got 2"):
        F.normalize(t, [0.0, 0.0], std)
    with pytest.raises(ValueError, match="tensor image of size"):
        F.normalize(t[0, 0], [0.0], [1.0])


def test_reshape_lambda_compose(pixels):
    t = T.Compose([T.ToTensor(), T.Reshape([-1, 53, 1]), T.Lambda(lambda x: x * 2)])
    assert tuple(t(pixels).shape) == (3 * 37, 53, 1)
    assert repr(T.Compose([T.ToTensor(), T.Normalize([0.5], [0.5])])) == (
        "Compose(\n    ToTensor()\n    Normalize(mean=[0.5], std=[0.5])\n)"
    )
    with pytest.raises(TypeError, match="lambd should be callable"):
        T.Lambda(3)


# -- place ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize(
    ("padding", "sides"), [(2, (2, 2, 2, 2)), ([3], (3, 3, 3, 3)), ((1, 4), (1, 4, 1, 4)), ([1, 2, 3, 4], (1, 2, 3, 4))]
)
def test_pad(pixels, mode, padding, sides):
    left, top, right, bottom = sides
    expected = np.pad(pixels, ((top, bottom), (left, right), (0, 0)), mode=mode)
    assert (T.Pad(padding, padding_mode=mode)(pixels) == expected).all()


def test_pad_with_a_color_negative_borders_and_errors(pixels):
    out = F.pad(pixels, 1, fill=(1, 2, 3))
    assert (out[0] == (1, 2, 3)).all()
    assert (out[1:-1, 1:-1] == pixels).all()
    assert (F.pad(pixels, 1, fill=9)[:, -1] == 9).all()
    for mode in ("constant", "edge"):
        cropped = F.pad(pixels, [-1, 2, -3, -4], padding_mode=mode)
        assert (cropped[2:] == pixels[:-4, 1:-3]).all()
        assert cropped.shape == (37 + 2 - 4, 53 - 4, 3)
    with pytest.raises(ValueError, match="constant, edge, reflect or symmetric"):
        F.pad(pixels, 1, padding_mode="wrap")
    with pytest.raises(ValueError, match="1, 2, or 4 element"):
        T.Pad((1, 2, 3))


def test_crop_reaches_outside(pixels):
    padded = np.pad(pixels, ((5, 5), (5, 5), (0, 0)))
    for top, left, height, width in ((3, 4, 10, 11), (-3, -4, 10, 60), (30, 50, 10, 8), (-2, 5, 41, 5)):
        assert (F.crop(pixels, top, left, height, width) == padded[top + 5 :, left + 5 :][:height, :width]).all()


def test_center_crop(pixels):
    assert (T.CenterCrop((7, 11))(pixels) == pixels[15:22, 21:32]).all()
    assert (T.CenterCrop(37)(pixels) == pixels[:, 8:45]).all()
    out = F.center_crop(pixels, (41, 11))
    assert (out[2:39] == pixels[:, 21:32]).all()
    assert not out[:2].any()
    assert not out[39:].any()


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(20, 30), (50, 80), (20, 80), (37, 10)])
def test_resize_is_pytorchs(torch, rng, antialias, mode, size):
    x = rng.standard_normal((2, 3, 37, 53))
    expected = torch.nn.functional.interpolate(
        torch.tensor(x), size, mode=mode, antialias=antialias, align_corners=False
    )
    found = T.Resize(size, T.InterpolationMode(mode), antialias=antialias)(mytorch.tensor(x))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9, atol=1e-10)
    small = (x * 40 + 128).clip(0, 255).astype(np.uint8)
    expected = torch.nn.functional.interpolate(
        torch.tensor(small).float(), size, mode=mode, antialias=antialias, align_corners=False
    )
    found = F.resize(mytorch.tensor(small), size, mode, antialias=antialias)
    assert found.dtype is mytorch.uint8
    assert difference(found.numpy(), expected.round().clamp(0, 255).numpy()).max() <= 1


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_resize_to_the_nearest_is_pytorchs(torch, rng, mode):
    x = rng.integers(0, 256, (2, 3, 37, 53), dtype=np.uint8)
    expected = torch.nn.functional.interpolate(torch.tensor(x), (20, 80), mode=mode)
    assert (F.resize(mytorch.tensor(x), (20, 80), mode).numpy() == expected.numpy()).all()


@pytest.mark.parametrize(("number", "tolerance"), [(1, 2), (2, 1), (3, 2), (4, 1), (5, 1)])
def test_resize_is_pillows(image, number, tolerance):
    image = image.point(lambda x: 64 + x // 2)  # Pillow rounds and clips after each axis
    for size in ((20, 30), (60, 70)):
        assert difference(F.resize(image, size, number), image.resize(size[::-1], number)).max() <= tolerance


def test_resize_of_the_shorter_side(pixels):
    assert F.resize(pixels, 20).shape == (20, 28, 3)
    assert F.resize(pixels.transpose(1, 0, 2), [20]).shape == (28, 20, 3)
    assert F.resize(pixels, 20, max_size=25).shape == (17, 25, 3)
    assert F.resize(pixels, 37) is not None
    with pytest.raises(ValueError, match="max_size should only be passed"):
        F.resize(pixels, (3, 4), max_size=5)
    with pytest.raises(ValueError, match="strictly greater"):
        F.resize(pixels, 20, max_size=20)
    with pytest.raises(ValueError, match="1 or 2 element"):
        F.resize(pixels, (1, 2, 3))


def test_resize_has_gradients():
    x = mytorch.randn(1, 6, 7, dtype=mytorch.float64, requires_grad=True)
    for antialias in (True, False):
        assert mytorch.autograd.gradcheck(lambda t, a=antialias: F.resize(t, (4, 9), "bilinear", antialias=a), (x,))


# -- color ----------------------------------------------------------------------------------------------------------


# -- chance ---------------------------------------------------------------------------------------------------------


def draw(torch, low, high):
    return torch.empty(1).uniform_(low, high).item()


def test_flips_draw_as_pytorch(torch, pixels):
    mytorch.manual_seed(5)
    torch.manual_seed(5)
    for kind, axis in ((T.RandomHorizontalFlip, 1), (T.RandomVerticalFlip, 0)):
        flip = kind(p=0.4)
        for _ in range(20):
            flipped = (torch.rand(1) < 0.4).item()
            assert (flip(pixels) == (np.flip(pixels, axis) if flipped else pixels)).all()


def test_crops_draw_as_pytorch(torch, pixels):
    crop = T.RandomCrop((20, 31), padding=2)
    padded = np.pad(pixels, ((2, 2), (2, 2), (0, 0)))
    mytorch.manual_seed(5)
    torch.manual_seed(5)
    for _ in range(5):
        i, j = torch.randint(0, 41 - 20 + 1, (1,)).item(), torch.randint(0, 57 - 31 + 1, (1,)).item()
        assert (crop(pixels) == padded[i : i + 20, j : j + 31]).all()


def test_random_crop_of_small_images(pixels):
    with pytest.raises(ValueError, match="larger than input image size"):
        T.RandomCrop(40)(pixels)
    assert T.RandomCrop((60, 70), pad_if_needed=True)(pixels).shape == (60, 70, 3)
    assert (T.RandomCrop((37, 53))(pixels) == pixels).all()


def test_resized_crops_draw_as_pytorch(torch, pixels):
    t = T.RandomResizedCrop(16, scale=(0.3, 0.9))
    mytorch.manual_seed(5)
    torch.manual_seed(5)
    for _ in range(5):
        while True:
            area = 37 * 53 * draw(torch, 0.3, 0.9)
            ratio = math.exp(draw(torch, math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if w <= 53 and h <= 37:
                break
        i, j = torch.randint(0, 37 - h + 1, (1,)).item(), torch.randint(0, 53 - w + 1, (1,)).item()
        assert (t(pixels) == F.resize(pixels[i : i + h, j : j + w], (16, 16))).all()
    long = np.zeros((2, 100, 3), np.uint8)
    assert T.RandomResizedCrop.get_params(long, (1.0, 1.0), (0.9, 1.1)) == (0, 49, 2, 2)


def test_equal_seeds_give_equal_images(pixels):
    t = T.Compose([T.RandomResizedCrop(20), T.RandomHorizontalFlip(), T.RandomCrop(16)])
    outs = []
    for seed in (1, 1, 2):
        mytorch.manual_seed(seed)
        outs.append(t(pixels))
    assert (outs[0] == outs[1]).all()
    assert not (outs[0] == outs[2]).all()


def test_transforms_go_to_workers_and_draw_there_by_the_seed():
    t = T.Compose([T.RandomCrop(20, padding=2), T.RandomHorizontalFlip(), T.ToTensor(), T.Resize(10)])
    assert repr(pickle.loads(pickle.dumps(t))) == repr(t)
    data = SyntheticDigits(size=24, transform=t)
    epochs = []
    for _ in range(2):
        mytorch.manual_seed(3)
        epochs.append(mytorch.cat([x for x, _ in DataLoader(data, 4, num_workers=2)]))
    assert (epochs[0] == epochs[1]).all()


def test_transforms_fit_into_sequential():
    module = mytorch.nn.Sequential(T.CenterCrop(4), T.RandomVerticalFlip(p=1.0))
    x = mytorch.rand(3, 8, 8)
    assert (module(x) == x[:, 2:6, 2:6].flip(1)).all()
