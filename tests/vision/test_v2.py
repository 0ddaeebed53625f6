"""The transforms of torchvision v2, and image files."""

import numpy as np
import pytest

import mytorch
from mytorch import vision
from mytorch.vision.transforms import v2
from mytorch.vision.transforms.v2 import functional as F


def _picture(*shape, dtype=np.uint8):
    return mytorch.tensor(np.random.default_rng(0).integers(0, 256, shape).astype(dtype))


def test_samples_are_changed_alike_and_labels_pass():
    mytorch.manual_seed(0)
    x = _picture(3, 9, 11)
    chain = v2.Compose([v2.RandomCrop(5), v2.RandomHorizontalFlip(0.5), v2.ToDtype(mytorch.float32, scale=True)])
    for _ in range(5):
        out = chain({"a": x, "b": [x, 7], "label": "cat"})
        assert out["a"].tolist() == out["b"][0].tolist()
        assert out["b"][1] == 7
        assert out["label"] == "cat"
        assert out["a"].shape == (3, 5, 5)
        assert out["a"].dtype is mytorch.float32


def test_blur_is_a_convolution_with_a_bell():
    x = _picture(2, 3, 7, 9).double()
    weights = np.exp(-0.5 * (np.arange(-2, 3) / 1.2) ** 2)
    weights /= weights.sum()
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (2, 2), (1, 1)), "reflect")
    narrow = np.exp(-0.5 * (np.arange(-1, 2) / 0.7) ** 2)
    narrow /= narrow.sum()
    rows = sum(weights[k] * padded[:, :, k : k + 7] for k in range(5))
    expected = sum(narrow[k] * rows[..., k : k + 9] for k in range(3))
    np.testing.assert_allclose(F.gaussian_blur(x, [3, 5], [0.7, 1.2]).numpy(), expected, rtol=1e-10)
    with pytest.raises(ValueError, match="odd and positive"):
        F.gaussian_blur(x, 4)


def test_conversions():
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    image = F.to_image(array)
    assert image.shape == (3, 2, 4)
    assert image[1, 0, 0] == 1
    assert F.to_dtype(image, mytorch.float32, scale=True).max().item() == pytest.approx(23 / 255)
    assert F.to_dtype(image, mytorch.float32).max().item() == 23
    grey = F.rgb_to_grayscale(image)
    assert F.grayscale_to_rgb(grey).shape == (3, 2, 4)
    assert F.get_size(image) == [2, 4]
    assert F.solarize(image, 10)[1, 0, 0] == 1
    assert F.posterize(image, 4)[2, 1, 3] == 16
    assert [tuple(c.shape) for c in F.five_crop(_picture(3, 6, 8), 4)] == [(3, 4, 4)] * 5


def test_image_files(tmp_path):
    pytest.importorskip("PIL")
    x = _picture(3, 5, 7)
    vision.io.write_png(x, tmp_path / "x.png")
    assert vision.io.read_image(tmp_path / "x.png").tolist() == x.tolist()
    assert vision.io.decode_png(vision.io.read_file(tmp_path / "x.png")).tolist() == x.tolist()
    assert vision.io.read_image(tmp_path / "x.png", vision.io.ImageReadMode.GRAY).shape == (1, 5, 7)
    assert vision.io.decode_jpeg(vision.io.encode_jpeg(x), "RGB").shape == (3, 5, 7)
