"""Grids of images, image files, and the import of the module."""

import importlib.machinery
import re
import subprocess
import sys

import numpy as np
import pytest

import mytorch
from mytorch.compat import removed
from mytorch.vision.utils import make_grid, save_image


def test_grid_has_images_in_rows(rng):
    x = rng.random((5, 3, 4, 6)).astype(np.float32)
    out = make_grid(mytorch.tensor(x), nrow=3, padding=2, pad_value=0.5).numpy()
    assert out.shape == (3, 2 * 6 + 2, 3 * 8 + 2)
    expected = np.full(out.shape, 0.5, np.float32)
    for i, picture in enumerate(x):
        top, left = 2 + 6 * (i // 3), 2 + 8 * (i % 3)
        expected[:, top : top + 4, left : left + 6] = picture
    assert (out == expected).all()
    assert (make_grid([mytorch.tensor(p) for p in x], nrow=3, pad_value=0.5).numpy() == expected).all()


def test_one_channel_becomes_three_and_one_image_stays():
    x = mytorch.rand(4, 1, 5, 5)
    grid = make_grid(x)
    assert tuple(grid.shape) == (3, 9, 4 * 7 + 2)
    assert (grid[0] == grid[2]).all()
    assert tuple(make_grid(x[0]).shape) == (3, 5, 5)
    assert tuple(make_grid(x[0, 0]).shape) == (3, 5, 5)


def test_normalising():
    x = mytorch.stack([mytorch.linspace(-1, 1, 25), mytorch.linspace(0, 4, 25)]).reshape(2, 1, 5, 5)
    whole = make_grid(x, normalize=True, padding=0)
    assert (whole.min().item(), whole.max().item()) == (0.0, 1.0)
    assert whole[0, 0, 5].item() == pytest.approx(0.2)
    each = make_grid(x, normalize=True, scale_each=True, padding=0)
    assert each[0, 0, 0].item() == each[0, 0, 5].item() == 0.0
    assert each[0, 4, 4].item() == each[0, 4, 9].item() == 1.0
    limited = make_grid(x, normalize=True, value_range=(0, 2), padding=0)
    assert limited[0, 0, 0].item() == 0.0
    assert limited[0, 2, 7].item() == 1.0
    assert x.min().item() == -1.0


def test_grid_errors():
    with pytest.raises(TypeError, match="tensor or list of tensors expected"):
        make_grid(np.zeros((2, 3, 4, 4)))
    with pytest.raises(ValueError, match="got shape"):
        make_grid(mytorch.zeros(2, 2, 3, 4, 4))


@pytest.mark.parametrize("name", ["x.png", "x.PNG", "x.bmp"])
def test_saved_images_are_read_back(tmp_path, rng, name):
    image = pytest.importorskip("PIL.Image")
    x = rng.random((3, 7, 9)).astype(np.float32) * 1.2 - 0.1
    save_image(mytorch.tensor(x), tmp_path / name)
    with image.open(tmp_path / name) as found:
        expected = np.floor(x.clip(0, 1) * 255 + 0.5).transpose(1, 2, 0)
        assert found.mode == "RGB"
        assert np.abs(np.asarray(found) - expected).max() <= 1


def test_png_needs_no_pillow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    save_image(mytorch.rand(6, 1, 5, 5), str(tmp_path / "x.png"), nrow=3)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ImportError, match="pip install pillow"):
        save_image(mytorch.rand(1, 5, 5), str(tmp_path / "x.jpg"))


def test_the_module_is_imported_when_asked_for():
    code = (
        "import sys, mytorch; assert 'mytorch.vision' not in sys.modules; "
        "mytorch.vision.datasets.MNIST; mytorch.vision.transforms.functional; assert not sys.modules.get('PIL'); print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


def test_names_of_torchvision_have_advice():
    """Names that only torchvision has, as attributes and in imports."""
    install = "pip install --no-deps torch{}==.*python -m mytorch"
    for module, name in (
        ("models", "swin_t"),
        ("transforms", "v2"),
        ("ops", "MLP"),
        ("datasets", "FakeData"),
        ("", "tv_tensors"),
    ):
        home = f"mytorch.vision.{module}".rstrip(".")
        with pytest.raises(AttributeError, match=install.format("vision")):
            getattr(sys.modules[home], name)
        with pytest.raises(ModuleNotFoundError, match=install.format("vision")):
            exec(f"from {home} import {name}")
    for module in ("functional", "transforms"):
        with pytest.raises(ModuleNotFoundError, match=install.format("audio")):
            __import__(f"mytorch.audio.{module}")
    with pytest.raises(ModuleNotFoundError, match=r"Use torchvision.models.feature_extraction: pip install"):
        __import__("mytorch.fx.feature_extraction")


def test_removed_names_have_advice():
    for path, text in removed.REMOVED.items():
        home, _, name = f"mytorch.{path}".rpartition(".")
        with pytest.raises(AttributeError, match=re.escape(text)):
            getattr(importlib.import_module(home), name)


@pytest.mark.parametrize("name", ["torchvision", "torchaudio"])
def test_packages_that_are_not_installed_have_advice(name):
    if importlib.machinery.PathFinder.find_spec(name):
        pytest.skip(f"{name} is installed")
    code = f"import mytorch; mytorch.install_as_torch()\nimport importlib.util\nprint(importlib.util.find_spec({name!r}))\nimport {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "None\n"
    assert f"ModuleNotFoundError: import {name}" in done.stderr
    assert f"pip install --no-deps {name}==" in done.stderr
