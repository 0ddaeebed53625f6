"""MNIST and the datasets that come in its format.

An idx file: two zero bytes, one for the dtype, one for the number of axes; a big-endian 32-bit size for each
axis; then the numbers, big-endian.
"""

import gzip
import math
import os
import struct
import zlib

import numpy as np

from ...files.limits import Budget
from .base import Change, SplitInMemory
from .files import check_integrity, download, require_sum

_IDX_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path):
    """The array in an idx file, gzipped if its name ends so, in native byte order.

    Raises:
        ValueError: not an idx file, or not a whole one. RuntimeError: it would take more memory than `files.limits` allows.
    """
    size = os.path.getsize(path)
    opener = gzip.open if os.fspath(path).endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_DTYPES:
                raise ValueError(f"{path} is not an idx file: it begins with {head!r}.")
            dtype, ndim = np.dtype(_IDX_DTYPES[head[2]]), head[3]
            sizes = file.read(4 * ndim)
            if len(sizes) < 4 * ndim:
                raise ValueError(f"{path} ends within its header.")
            shape = struct.unpack(f">{ndim}I", sizes)
            expected = math.prod(shape) * dtype.itemsize
            Budget(path, size).take(expected, f"an array of shape {shape}")
            data = file.read(expected + 1)  # one more than it should hold, however much is packed in it
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged: {error}.") from None
    if len(data) != expected:
        held = f"more than {expected}" if len(data) > expected else len(data)
        raise ValueError(f"{path} holds {held} bytes of numbers; its shape {shape} needs {expected}.")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


class MNIST(SplitInMemory):
    """Handwritten digits, 28 x 28: 60,000 to train, 10,000 to test.

    Args:
        root: the folder whose `MNIST/raw` holds the idx files (`train-images-idx3-ubyte` and so on, as they are
            or gzipped; a gzipped file's MD5 sum is checked).
        train: the training set, or the test set.
        transform, target_transform: functions of each picture and of each target.
        download: get the files first if they are not there.

    Attributes:
        data: uint8 tensor (N, 28, 28).
        targets: int64 tensor (N,).

    Items are (picture, int): a PIL image of mode L, or a uint8 array (28, 28) where Pillow is not installed.

    Raises:
        RuntimeError: the files are not there, are damaged, or can't be downloaded.

    Source: LeCun, Cortes, Burges, http://yann.lecun.com/exdb/mnist.
    """

    root: str | os.PathLike[str]
    mirrors = ["https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ]
    classes = [
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four",
        "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine",
    ]  # fmt: skip

    def __init__(
        self, root: str | os.PathLike, train: bool = True, transform: Change | None = None,
        target_transform: Change | None = None, download: bool = False,
    ):  # fmt: skip
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        images, labels = (self._read(name, md5) for name, md5 in self._wanted())
        if len(images) != len(labels):
            raise RuntimeError(f"{self.raw_folder}: {len(images)} pictures, but {len(labels)} labels.")
        self._hold(images, labels)

    @classmethod
    def splits(
        cls, transform: Change | None = None, target_transform: Change | None = None, root: str | os.PathLike = "data",
        download: bool = True,
    ) -> "tuple[MNIST, MNIST]":  # fmt: skip
        """The training and the test set, downloaded into `root` first if they are not there.

        Args:
            transform: applied to a picture.
            target_transform: applied to a label.
            root: where the files lie.
            download: fetch what is not there.
        """
        train, test = (cls(root, train, transform, target_transform, download) for train in (True, False))
        return train, test

    @property
    def raw_folder(self) -> str:
        """Where the files lie."""
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class, by its name."""
        return {name: i for i, name in enumerate(self.classes)}

    def _wanted(self):
        prefix = "train" if self.train else "t10k"
        return [(name, md5) for name, md5 in self.resources if name.startswith(prefix)]

    def _path(self, name):
        return os.path.join(self.raw_folder, name)

    def _check_exists(self):
        return all(
            check_integrity(self._path(name.removesuffix(".gz"))) or check_integrity(self._path(name), md5)
            for name, md5 in self._wanted()
        )

    def _read(self, name, md5):
        plain, zipped = self._path(name.removesuffix(".gz")), self._path(name)
        if os.path.isfile(plain):
            return read_idx(plain)
        if os.path.isfile(zipped):
            require_sum(zipped, md5)
            return read_idx(zipped)
        raise RuntimeError(
            f"Dataset not found: there is no {plain}, nor a .gz of it. You can use download=True to download it"
        )

    def download(self) -> None:
        """Get the files of this split that are not there, from the first mirror that has them."""
        if not self._check_exists():
            for name, md5 in self._wanted():
                download([mirror + name for mirror in self.mirrors], self._path(name), md5)


class FashionMNIST(MNIST):
    """Pictures of clothes in MNIST's format; as `MNIST`. Source: Xiao, Rasul, Vollgraf, 2017."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """Cursive Japanese characters in MNIST's format; as `MNIST`. Source: Clanuwat et al., 2018."""

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    ]
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
