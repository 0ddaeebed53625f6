"""Datasets from files made here, and from nothing."""

import gzip
import hashlib
import os
import pickle
import struct
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.utils.data import DataLoader
from mytorch.vision import transforms as T
from mytorch.vision.datasets import (
    CIFAR10,
    CIFAR100,
    KMNIST,
    MNIST,
    DatasetFolder,
    Digits,
    FashionMNIST,
    ImageFolder,
    SyntheticDigits,
    Toy2D,
    VisionDataset,
)
from mytorch.vision.datasets.cifar import read_batch
from mytorch.vision.datasets.files import check_integrity, download, md5_of
from mytorch.vision.datasets.mnist import read_idx

CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def idx_bytes(array):
    head = bytes([0, 0, CODES[array.dtype.name], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_mnist(root, rng, sizes=(20, 10), name="MNIST", zipped=False):
    """Writes the four files; returns their content."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    made = {}
    for prefix, n in zip(("train", "t10k"), sizes, strict=True):
        images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, n, dtype=np.uint8)
        for part, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = idx_bytes(array)
            path = folder / f"{prefix}-{part}-ubyte{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(data) if zipped else data)
        made[prefix] = images, labels
    return made


def sums(folder):
    return [(p.name, hashlib.md5(p.read_bytes()).hexdigest()) for p in sorted(folder.iterdir())]


@pytest.fixture
def without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_of_every_dtype_are_read(tmp_path, rng, dtype, suffix):
    array = (rng.standard_normal((3, 4, 5)) * 50).astype(dtype)
    path = tmp_path / f"numbers{suffix}"
    path.write_bytes(gzip.compress(idx_bytes(array)) if suffix else idx_bytes(array))
    found = read_idx(path)
    assert found.dtype == array.dtype
    assert (found == array).all()


def test_broken_idx_files_are_refused(tmp_path):
    path = tmp_path / "x"
    for data, message in (
        (b"PK\3\4", "expected an IDX file"),
        (idx_bytes(np.zeros((2, 3), np.uint8))[:-1], "expected 6 bytes .*got 5"),
        (idx_bytes(np.zeros((2, 3), np.uint8))[:7], "is truncated"),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=message):
            read_idx(path)


class Answer:
    """A fake result of urlopen: a file of bytes."""

    def __init__(self, data):
        self.parts = [data, b""]

    def read(self, size):
        return self.parts.pop(0)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def serve(monkeypatch, contents):
    """Replaces urlopen by a dict of answers; returns the list of requested URLs."""
    asked = []

    def urlopen(request, timeout):
        asked.append(request.full_url)
        if request.full_url not in contents:
            raise urllib.error.URLError("no network")
        return Answer(contents[request.full_url])

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return asked


def test_download_tries_mirrors_and_keeps_complete_files(tmp_path, monkeypatch):
    good = hashlib.md5(b"good").hexdigest()
    asked = serve(monkeypatch, {"http://b/f": b"bad", "http://c/f": b"good"})
    path = str(tmp_path / "sub" / "f")
    download(["http://a/f", "http://b/f", "http://c/f"], path, good)
    assert asked == ["http://a/f", "http://b/f", "http://c/f"]
    assert check_integrity(path, good)
    assert os.listdir(tmp_path / "sub") == ["f"]
    download(["http://a/f"], path, good)
    assert len(asked) == 3  # it was there


def test_download_without_network_raises_a_hint_and_leaves_no_files(tmp_path, monkeypatch):
    serve(monkeypatch, {"http://b/f": b"bad"})
    with pytest.raises(RuntimeError, match=r"f could not be downloaded. Check the network(.|\n)*no network(.|\n)*MD5"):
        download(["http://a/f", "http://b/f"], str(tmp_path / "f"), "0" * 32)
    assert os.listdir(tmp_path) == []


# -- MNIST ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MNIST, FashionMNIST, KMNIST])
def test_mnist_reads_its_files(tmp_path, rng, kind):
    made = write_mnist(tmp_path, rng, name=kind.__name__)
    for train, prefix in ((True, "train"), (False, "t10k")):
        data = kind(str(tmp_path), train=train)
        images, labels = made[prefix]
        assert data.data.dtype is mytorch.uint8
        assert data.targets.dtype is mytorch.int64
        assert (data.data.numpy() == images).all()
        assert data.targets.tolist() == labels.tolist()
        picture, target = data[3]
        assert (np.asarray(picture) == images[3]).all()
        assert target == labels[3]
        assert isinstance(target, int)
        assert len(data.classes) == len(data.class_to_idx) == 10


def test_mnist_items_are_pil_images_or_arrays(tmp_path, rng, request):
    write_mnist(tmp_path, rng)
    image = pytest.importorskip("PIL.Image")
    data = MNIST(tmp_path)
    assert isinstance(data[0][0], image.Image)
    assert data[0][0].mode == "L"
    with_pillow = T.ToTensor()(data[0][0])
    request.getfixturevalue("without_pillow")
    assert isinstance(data[0][0], np.ndarray)
    assert (T.ToTensor()(data[0][0]) == with_pillow).all()


def test_zipped_mnist_is_checked_against_its_sums(tmp_path, rng, monkeypatch):
    made = write_mnist(tmp_path, rng, zipped=True)
    with pytest.raises(RuntimeError, match="damaged or a different file"):
        MNIST(str(tmp_path))
    monkeypatch.setattr(MNIST, "resources", sums(tmp_path / "MNIST" / "raw"))
    assert (MNIST(str(tmp_path)).data.numpy() == made["train"][0]).all()


def test_mnist_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="Dataset not found.*download=True"):
        MNIST(str(tmp_path))
    asked = serve(monkeypatch, {})
    with pytest.raises(RuntimeError, match="train-images-idx3-ubyte.gz could not be downloaded"):
        MNIST(str(tmp_path), download=True)
    assert asked == [mirror + "train-images-idx3-ubyte.gz" for mirror in MNIST.mirrors]


def test_mnist_download_fetches_a_split_once(tmp_path, rng, monkeypatch):
    source = tmp_path / "there"
    made = write_mnist(source, rng, zipped=True)
    files = {p.name: p.read_bytes() for p in (source / "MNIST" / "raw").iterdir()}
    monkeypatch.setattr(MNIST, "resources", sums(source / "MNIST" / "raw"))
    asked = serve(monkeypatch, {MNIST.mirrors[0] + name: data for name, data in files.items()})
    here = str(tmp_path / "here")
    train, test = MNIST.splits(root=here)
    assert (train.data.numpy() == made["train"][0]).all()
    assert (test.data.numpy() == made["t10k"][0]).all()
    assert len(asked) == 4
    MNIST.splits(root=here)
    assert len(asked) == 4


def test_splits_with_transforms_as_pynorch_has_them(tmp_path, rng):
    made = write_mnist(tmp_path, rng)
    transform = T.Compose([T.ToTensor(), T.Reshape([-1, 784, 1])])
    target_transform = T.Compose([T.ToTensor()])
    train, test = mytorch.vision.datasets.MNIST.splits(
        transform=transform, target_transform=target_transform, root=str(tmp_path)
    )
    assert (len(train), len(test)) == (20, 10)
    inputs, target = next(iter(DataLoader(train, batch_size=4)))
    assert tuple(inputs.shape) == (4, 1, 784, 1)
    np.testing.assert_allclose(inputs.numpy().ravel(), made["train"][0][:4].ravel() / 255, rtol=1e-6)
    assert target.tolist() == made["train"][1][:4].tolist()


def test_printing_a_dataset(tmp_path, rng):
    write_mnist(tmp_path, rng)
    text = repr(MNIST(str(tmp_path), train=False, transform=T.ToTensor()))
    assert text.split("\n    ") == [
        "Dataset MNIST",
        "Number of datapoints: 10",
        f"Root location: {tmp_path}",
        "Split: Test",
        "StandardTransform\nTransform: ToTensor()",
    ]


def test_joint_transforms_exclude_the_others():
    class One(VisionDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return self._changed(1, 2)

    assert One(transforms=lambda x, y: (y, x))[0] == (2, 1)
    with pytest.raises(ValueError, match="Only transforms or"):
        One(transforms=lambda x, y: (x, y), transform=lambda x: x)


# -- CIFAR ----------------------------------------------------------------------------------------------------------


def write_cifar(root, rng, kind, monkeypatch):
    """Writes batches of four images and sets their checksums in the class."""
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    made = {}
    for name, _ in [*kind.train_list, *kind.test_list]:
        batch = {
            "data": rng.integers(0, 256, (4, 3072), dtype=np.uint8),
            kind._labels_key: rng.integers(0, 10, 4).tolist(),
            "batch_label": name,
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
        made[name] = batch
    names = [f"class {i}" for i in range(10)]
    (folder / kind.meta[0]).write_bytes(pickle.dumps({kind._names_key: names}, protocol=2))
    for attribute in ("train_list", "test_list"):
        monkeypatch.setattr(kind, attribute, [(n, md5_of(folder / n)) for n, _ in getattr(kind, attribute)])
    monkeypatch.setattr(kind, "meta", (kind.meta[0], md5_of(folder / kind.meta[0])))
    return made


@pytest.mark.parametrize("kind", [CIFAR10, CIFAR100])
def test_cifar_reads_its_batches(tmp_path, rng, kind, monkeypatch):
    made = write_cifar(tmp_path, rng, kind, monkeypatch)
    for train, names in ((True, kind.train_list), (False, kind.test_list)):
        data = kind(str(tmp_path), train=train)
        pixels = np.concatenate([made[n]["data"] for n, _ in names]).reshape(-1, 3, 32, 32)
        assert len(data) == len(pixels)
        assert data.data.shape == (len(pixels), 32, 32, 3)
        picture, target = data[1]
        assert (T.functional.convert_image_dtype(T.ToTensor()(picture), mytorch.uint8).numpy() == pixels[1]).all()
        assert target == made[names[0][0]][kind._labels_key][1]
        assert data.classes[2] == "class 2"
        assert data.class_to_idx["class 2"] == 2


def test_damaged_cifar_is_refused(tmp_path, rng, monkeypatch):
    write_cifar(tmp_path, rng, CIFAR10, monkeypatch)
    with open(tmp_path / CIFAR10.base_folder / "test_batch", "ab") as file:
        file.write(b"!")
    with pytest.raises(RuntimeError, match="test_batch is damaged"):
        CIFAR10(str(tmp_path), train=False)
    with pytest.raises(RuntimeError, match="Dataset not found"):
        CIFAR10(str(tmp_path / "elsewhere"))


def test_cifar_download_unpacks_the_archive(tmp_path, rng, monkeypatch):
    write_cifar(tmp_path / "there", rng, CIFAR10, monkeypatch)
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "there" / CIFAR10.base_folder, CIFAR10.base_folder)
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5_of(archive))
    asked = serve(monkeypatch, {CIFAR10.url: archive.read_bytes()})
    for _ in range(2):
        assert len(CIFAR10(str(tmp_path / "here"), download=True)) == 20
    assert asked == [CIFAR10.url]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, None])
def test_cifar_archives_hold_regular_files(tmp_path, monkeypatch, kind):
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        if kind is not None:
            member = tarfile.TarInfo(f"{CIFAR10.base_folder}/data_batch_1")
            member.type, member.linkname = kind, "/etc/hostname"
            tar.addfile(member)
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5_of(archive))
    serve(monkeypatch, {CIFAR10.url: archive.read_bytes()})
    with pytest.raises(RuntimeError, match="expected a regular file"):
        CIFAR10(str(tmp_path / "here"), download=True)


def test_batches_admit_nothing_but_arrays(tmp_path):
    path = tmp_path / "batch"
    for evil in (os.system, eval, np.load, pickle.loads):
        path.write_bytes(pickle.dumps({"data": evil}))
        with pytest.raises(pickle.UnpicklingError, match="expected only NumPy arrays"):
            read_batch(path)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for protocol in (2, 3, 4):
        path.write_bytes(pickle.dumps({"data": array, "names": ["a"], "pair": (1, 2.0, b"xyz")}, protocol=protocol))
        found = read_batch(path)
        assert (found["data"] == array).all()
        assert found["pair"] == (1, 2.0, b"xyz")


# -- made here ------------------------------------------------------------------------------------------------------


def test_digits_are_scikit_learns(monkeypatch):
    sets = pytest.importorskip("sklearn.datasets").load_digits()
    train, test = Digits(), Digits(train=False)
    assert (len(train), len(test)) == (1437, 360)
    np.testing.assert_array_equal(test.data.numpy(), np.rint(sets.images[::5] * 255 / 16))
    assert test.targets.tolist() == sets.target[::5].tolist()
    assert train.targets[0].item() == sets.target[1]
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        Digits()


def test_synthetic_digits_are_reproducible_and_distinguishable():
    train, test = SyntheticDigits(size=600), SyntheticDigits(train=False, size=200)
    assert (train.data == SyntheticDigits(size=600).data).all()
    assert tuple(train.data.shape) == (600, 28, 28)
    assert set(train.targets.tolist()) == set(range(10))
    assert not (train.data[:200] == test.data).all()
    flat, known = (d.data.numpy().reshape(len(d), -1).astype(float) for d in (test, train))
    nearest = ((flat[:, None] - known[None]) ** 2).sum(-1).argmin(1)
    assert (train.targets.numpy()[nearest] == test.targets.numpy()).mean() > 0.5  # chance is 0.1
    picture, target = train[0]
    assert np.asarray(picture).shape == (28, 28)
    assert target == train.targets[0].item()
    with pytest.raises(ValueError, match="at least 12"):
        SyntheticDigits(image_size=8)


@pytest.mark.parametrize("kind", Toy2D.KINDS)
def test_toy_data_follow_their_rules(kind):
    data = Toy2D(kind, 200)
    x, y = data.points.numpy().T
    truth = {
        "simple": x < 0.5,
        "diag": x + y < 0.5,
        "split": (x < 0.2) | (x > 0.8),
        "xor": ((x < 0.5) & (y > 0.5)) | ((x > 0.5) & (y < 0.5)),
        "circle": (x - 0.5) ** 2 + (y - 0.5) ** 2 > 0.1,
        "spiral": np.arange(200) >= 100,
    }[kind]
    assert (data.targets.numpy() == truth).all()
    assert len(data) == 200
    assert 0 < data.targets.float().mean().item() < 1
    point, target = data[7]
    assert point.tolist() == [x[7], y[7]]
    assert target.item() == truth[7]


def test_spiral_is_minitorchs():
    n = 20
    points = []
    for sign, swap in ((1, False), (-1, True)):
        for i in range(5, 5 + n // 2):
            t = sign * 10.0 * i / (n // 2)
            a, b = t * np.cos(t) / 20 + 0.5, t * np.sin(t) / 20 + 0.5
            points.append((b, a) if swap else (a, b))
    np.testing.assert_allclose(Toy2D("spiral", n).points.numpy(), points, rtol=1e-5)


def test_toy_data_errors():
    with pytest.raises(ValueError, match="expected kind to be one of simple"):
        Toy2D("moons")
    with pytest.raises(ValueError, match="even size"):
        Toy2D("spiral", 11)


# -- folders --------------------------------------------------------------------------------------------------------


def test_image_folder(tmp_path, rng):
    image = pytest.importorskip("PIL.Image")
    pixels = rng.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    for i, name in enumerate(("cat/1.png", "cat/deep/2.png", "ant/x.PNG", "dog/y.png", "dog/z.png")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels[i]).save(path, format="png")
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    data = ImageFolder(str(tmp_path), transform=T.ToTensor())
    assert data.classes == ["ant", "cat", "dog"]
    assert data.targets == [0, 1, 1, 2, 2]
    assert [os.path.basename(p) for p, _ in data.imgs] == ["x.PNG", "1.png", "2.png", "y.png", "z.png"]
    np.testing.assert_allclose(data[0][0].numpy(), pixels[2].transpose(2, 0, 1) / 255, rtol=1e-6)
    (tmp_path / "eel").mkdir()
    with pytest.raises(FileNotFoundError, match="no valid file for the class eel"):
        ImageFolder(str(tmp_path))
    assert len(ImageFolder(str(tmp_path), allow_empty=True)) == 5
    with pytest.raises(FileNotFoundError, match="Couldn't find any class folder"):
        ImageFolder(str(tmp_path / "eel"))


def test_dataset_folder_with_a_custom_loader(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "n.txt").write_text("7")
    (tmp_path / "a" / "n.md").write_text("8")

    def read(path):
        return int(Path(path).read_text())

    assert list(DatasetFolder(str(tmp_path), read, extensions=".txt")) == [(7, 0)]
    assert [x for x, _ in DatasetFolder(str(tmp_path), read, is_valid_file=lambda p: True)] == [8, 7]
    with pytest.raises(ValueError, match="cannot be None or not None"):
        DatasetFolder(str(tmp_path), read)
