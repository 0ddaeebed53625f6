"""CIFAR-10 and CIFAR-100, from the original files, which are pickles of Python 2."""

import os
import pickle
import tarfile

import numpy as np

from ...files.writing import atomic_write
from .base import Change, SplitInMemory
from .files import check_integrity, download, require_sum


def _bytes_of(text, encoding):
    """Decode bytes in pickles that Python 3 writes for older versions."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"expected the encoding 'latin1' in a pickle of images, got {encoding!r}.")
    return text.encode("latin1")


class _ArraysOnly(pickle.Unpickler):
    """Unpickler that accepts only NumPy arrays and Python's containers, and raises for any other name."""

    _RECONSTRUCT = np.zeros(1).__reduce__()[0]  # NumPy's function, whose module depends on the version

    def find_class(self, module, name):
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return self._RECONSTRUCT
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return _bytes_of
        raise pickle.UnpicklingError(f"expected only NumPy arrays in a pickle of images, got {module}.{name}.")


def read_batch(path):
    """Return the dict in a batch file, with arrays, numbers, strings and lists.

    Raises:
        pickle.UnpicklingError: if the file contains any other object.
    """
    with open(path, "rb") as file:
        return _ArraysOnly(file, encoding="latin1").load()


class CIFAR10(SplitInMemory):
    """The CIFAR-10 dataset: 32 x 32 color images of ten classes, 50,000 for training and 10,000 for testing.

    Args:
        root: folder that contains `cifar-10-batches-py`. The MD5 sums of its files are checked.
        train: if True, use the training set, otherwise the test set.
        transform: function of the image.
        target_transform: function of the target.
        download: download and unpack missing files.

    Attributes:
        data: uint8 array (N, 32, 32, 3).
        targets: list of N ints.

    Items are (image, int). The image is a PIL image of mode RGB, or a uint8 array (32, 32, 3) without Pillow.

    Raises:
        RuntimeError: if files are missing or damaged, or the download fails.

    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """

    root: str | os.PathLike[str]
    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename = "cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list = [
        ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ]
    test_list = [("test_batch", "40351d587109b95175f43aff81a1287e")]
    meta = ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888")
    _names_key, _labels_key = "label_names", "labels"

    def __init__(
        self, root: str | os.PathLike, train: bool = True, transform: Change | None = None,
        target_transform: Change | None = None, download: bool = False,
    ):  # fmt: skip
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        batches = [self._read(*entry) for entry in (self.train_list if train else self.test_list)]
        pixels = np.concatenate([batch["data"] for batch in batches])
        self.data = np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))  # (N, H, W, C)
        self.targets = [int(label) for batch in batches for label in batch[self._labels_key]]
        self.classes = list(self._read(*self.meta)[self._names_key])
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def _path(self, name):
        return os.path.join(self.root, self.base_folder, name)

    def _read(self, name, md5):
        path = self._path(name)
        if not os.path.isfile(path):
            raise RuntimeError(f"Dataset not found: {path} does not exist. You can use download=True to download it")
        require_sum(path, md5)
        return read_batch(path)

    def _check_integrity(self):
        return all(check_integrity(self._path(n), md5) for n, md5 in [*self.train_list, *self.test_list, self.meta])

    def download(self) -> None:
        """Downloads the archive and unpacks the required files, unless they exist."""
        if self._check_integrity():
            return
        archive = os.path.join(self.root, self.filename)
        download([self.url], archive, self.tgz_md5)
        os.makedirs(os.path.join(self.root, self.base_folder), exist_ok=True)
        with tarfile.open(archive) as tar:
            for name, _ in [*self.train_list, *self.test_list, self.meta]:
                path = f"{self.base_folder}/{name}"
                member = tar.getmember(path) if path in tar.getnames() else None
                content = tar.extractfile(member) if member is not None and member.isfile() else None
                if content is None:
                    raise RuntimeError(f"{archive}: expected a regular file {path}, got a link, a folder or no file.")
                atomic_write(self._path(name), content.read())


class CIFAR100(CIFAR10):
    """The CIFAR-100 dataset, like `CIFAR10` with 100 classes, in the folder `cifar-100-python`."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename = "cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = [("train", "16019d7e3df5f24257cddd939b257f8d")]
    test_list = [("test", "f0ef6b0ae62326f3e7ffdfab6717acfc")]
    meta = ("meta", "7973b15100ade9c7d40fb424638fde48")
    _names_key, _labels_key = "fine_label_names", "fine_labels"
