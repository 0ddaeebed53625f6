"""MNIST and other datasets in the IDX format.

An IDX file starts with two zero bytes, a byte for the dtype, and a byte for the number of axes. A 32-bit size for each
axis and the numbers follow. All are big-endian.
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
    """Return the array in an IDX file, which may be gzipped (.gz), in native byte order.

    Raises:
        ValueError: if the file is not an IDX file or is truncated.
        RuntimeError: if it requires more memory than `files.limits` allows.
    """
    size = os.path.getsize(path)
    opener = gzip.open if os.fspath(path).endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_DTYPES:
                raise ValueError(f"read_idx: expected an IDX file, got {path}, which starts with {head!r}.")
            dtype, ndim = np.dtype(_IDX_DTYPES[head[2]]), head[3]
            sizes = file.read(4 * ndim)
            if len(sizes) < 4 * ndim:
                raise ValueError(f"read_idx: the header of {path} is truncated.")
            shape = struct.unpack(f">{ndim}I", sizes)
            expected = math.prod(shape) * dtype.itemsize
            Budget(path, size).take(expected, f"an array of shape {shape}")
            data = file.read(expected + 1)  # one byte more, to detect excess data without unpacking all of it
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"read_idx: {path} is damaged: {error}.") from None
    if len(data) != expected:
        held = f"more than {expected}" if len(data) > expected else len(data)
        raise ValueError(f"read_idx: expected {expected} bytes of numbers for shape {shape}, got {held} in {path}.")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


class MNIST(SplitInMemory):
    """The MNIST dataset: handwritten 28 x 28 digits, 60,000 for training and 10,000 for testing.

    Args:
        root: folder that contains `MNIST/raw` with the IDX files (`train-images-idx3-ubyte` and others), plain or gzipped. The
            MD5 sums of gzipped files are checked.
        train: if True, use the training set, otherwise the test set.
        transform: function of the image.
        target_transform: function of the target.
        download: download missing files.

    Attributes:
        data: uint8 tensor (N, 28, 28).
        targets: int64 tensor (N,).

    Items are (image, int). The image is a PIL image of mode L, or a uint8 array (28, 28) without Pillow.

    Raises:
        RuntimeError: if files are missing or damaged, or the download fails.

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
            raise RuntimeError(
                f"{self.raw_folder}: expected equal numbers of images and labels, got {len(images)} and {len(labels)}."
            )
        self._hold(images, labels)

    @classmethod
    def splits(
        cls, transform: Change | None = None, target_transform: Change | None = None, root: str | os.PathLike = "data",
        download: bool = True,
    ) -> "tuple[MNIST, MNIST]":  # fmt: skip
        """Returns the training set and the test set, after downloading missing files.

        Args:
            transform: function of the image.
            target_transform: function of the target.
            root: folder of the datasets.
            download: download missing files.
        """
        train, test = (cls(root, train, transform, target_transform, download) for train in (True, False))
        return train, test

    @property
    def raw_folder(self) -> str:
        """The folder of the IDX files."""
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class by name."""
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
            f"Dataset not found: neither {plain} nor {plain}.gz exists. You can use download=True to download it"
        )

    def download(self) -> None:
        """Downloads the missing files of this split from the first mirror that provides them."""
        if not self._check_exists():
            for name, md5 in self._wanted():
                download([mirror + name for mirror in self.mirrors], self._path(name), md5)


class FashionMNIST(MNIST):
    """Images of clothes in MNIST's format, with the arguments of `MNIST`. Source: Xiao, Rasul, Vollgraf, 2017."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """Cursive Japanese characters in MNIST's format, with the arguments of `MNIST`. Source: Clanuwat et al., 2018."""

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    ]
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
