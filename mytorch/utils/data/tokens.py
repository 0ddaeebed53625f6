"""Token files: a header and a sequence of token numbers on disk.

The header has 32 bytes: magic, version, bytes per token, token count, vocabulary size. The tokens follow as
little-endian uint16 or, for vocabularies above 65536, uint32. Files are written under a temporary name, flushed and
renamed. So a reader never sees an incomplete file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

import numpy as np

from ...files.serialization import atomic_file

MAGIC = b"MYTOKENS"
VERSION = 1
_HEADER = struct.Struct("<8sIIQQ")  # magic, version, itemsize, token count, vocabulary size
HEADER_BYTES = _HEADER.size


class TokenFileError(ValueError):
    """Raised for a file that is not a complete token file. The message contains the reason."""


class TokenWriter:
    """Writes a token file in chunks. It is a context manager.

    The file appears at `path` when the block ends without an exception.

    Args:
        path: path of the file.
        vocab_size: number of different tokens, which determines the dtype.

    Example:
        >>> import tempfile
        >>> from mytorch.utils.data.tokens import TokenWriter, read_tokens
        >>> path = tempfile.mkdtemp() + "/train.bin"
        >>> with TokenWriter(path, vocab_size=10) as writer:
        ...     writer.write([1, 2])
        ...     writer.write([3])
        >>> read_tokens(path).tolist()
        [1, 2, 3]
    """

    def __init__(self, path: str | os.PathLike, vocab_size: int):
        self.path = os.fspath(path)
        self.vocab_size = int(vocab_size)
        self.dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
        self.count = 0

    def __enter__(self) -> TokenWriter:
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        self._context = atomic_file(self.path)
        self._file = self._context.__enter__()
        self._file.write(b"\0" * HEADER_BYTES)
        return self

    def write(self, tokens: Sequence[int] | np.ndarray) -> None:
        """Appends tokens.

        Args:
            tokens: sequence or array of integers.

        Raises:
            ValueError: a token is negative or not less than `vocab_size`.
        """
        array = np.asarray(tokens)
        if array.size and (array.min() < 0 or array.max() >= self.vocab_size):
            raise ValueError(
                f"TokenWriter: expected tokens from 0 to {self.vocab_size - 1}, got {array.min()} to {array.max()}."
            )
        self._file.write(array.astype(self.dtype).tobytes())
        self.count += array.size

    def __exit__(self, kind, error, trace):
        if kind is None:
            self._file.seek(0)
            self._file.write(_HEADER.pack(MAGIC, VERSION, self.dtype.itemsize, self.count, self.vocab_size))
        return self._context.__exit__(kind, error, trace)


def write_tokens(path: str | os.PathLike, tokens: Sequence[int] | np.ndarray, vocab_size: int) -> None:
    """Writes a whole token file.

    Args:
        path: path of the file.
        vocab_size: number of different tokens, which determines the dtype.

    Raises:
        ValueError: a token is negative or not less than `vocab_size`.
    """
    with TokenWriter(path, vocab_size) as writer:
        writer.write(tokens)


def read_header(path: str | os.PathLike) -> tuple[np.dtype, int, int]:
    """Returns (dtype, token count, vocabulary size) of a token file.

    Args:
        path: path of the file.

    Raises:
        TokenFileError: the file is too short, truncated, of a later version, or not a token file.
    """
    size = os.path.getsize(path)
    if size < HEADER_BYTES:
        raise TokenFileError(f"{path}: expected a token file, got {size} bytes. The header has {HEADER_BYTES} bytes.")
    with open(path, "rb") as file:
        magic, version, itemsize, count, vocab_size = _HEADER.unpack(file.read(HEADER_BYTES))
    if magic != MAGIC:
        raise TokenFileError(
            f"{path}: expected a token file, which begins with {MAGIC!r}, got {magic!r}. Make it with prepare_data/."
        )
    if version != VERSION or itemsize not in (2, 4):
        raise TokenFileError(
            f"{path}: expected format version {VERSION}, got version {version} with {itemsize} bytes per token."
        )
    expected = HEADER_BYTES + count * itemsize
    if size != expected:
        what = "truncated" if size < expected else "longer than its header declares"
        raise TokenFileError(f"{path} is {what}: expected {expected} bytes for {count} tokens, got {size}.")
    return np.dtype(f"<u{itemsize}"), count, vocab_size


def read_vocab_size(data: str | os.PathLike) -> int:
    """Returns the vocabulary size of a data folder with the token files train.bin and val.bin.

    Args:
        data: path of the folder.

    Raises:
        FileNotFoundError: a file is missing.
    """
    for name in ("train.bin", "val.bin"):
        if not os.path.isfile(os.path.join(data, name)):
            raise FileNotFoundError(
                f"expected a token file at {os.path.join(data, name)}, got nothing. Make it with a script in prepare_data/."
            )
    return read_header(os.path.join(data, "train.bin"))[2]


def read_tokens(path: str | os.PathLike) -> np.ndarray:
    """Returns the tokens of a file as a read-only memory map.

    Args:
        path: path of the file.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenFileError: the file is invalid; see `read_header`.
    """
    dtype, count, _ = read_header(path)
    if not count:
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=HEADER_BYTES, shape=(count,))


class RandomBlocks:
    """Dataset of batches of random blocks of a token file, for language models.

    Sample j depends only on the seed and on j. So a run that resumes with another batch size or number of processes
    continues with the samples that were not used yet: set `first` to the number of used samples.

    Item i is a pair (inputs, targets) of int64 arrays (batch_size, block_size) with the samples from
    `first + i * batch_size` on. The targets are the inputs shifted by one token.

    Args:
        path: path of a token file.
        block_size: number of tokens in a block.
        batch_size: number of blocks in an item.
        length: number of items.
        seed: seed of the random positions.
        first: number of the first sample (default: 0).

    Raises:
        ValueError: the file does not have more than `block_size` tokens.

    Example:
        >>> import tempfile
        >>> from mytorch.utils.data.tokens import RandomBlocks, write_tokens
        >>> path = tempfile.mkdtemp() + "/train.bin"
        >>> write_tokens(path, range(100), vocab_size=100)
        >>> inputs, targets = RandomBlocks(path, block_size=8, batch_size=4, length=10, seed=0)[0]
        >>> inputs.shape, bool((targets == inputs + 1).all())
        ((4, 8), True)
    """

    def __init__(
        self, path: str | os.PathLike, block_size: int, batch_size: int, length: int, seed: int, first: int = 0
    ):
        self.tokens = read_tokens(path)
        if len(self.tokens) <= block_size:
            raise ValueError(
                f"{path}: expected more than {block_size} tokens for a context of {block_size}, got {len(self.tokens)}. "
                "Use a longer text or a shorter context."
            )
        self.window = np.arange(block_size + 1)
        self.batch_size, self.length, self.seed, self.first = batch_size, length, seed, first

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if not 0 <= i < self.length:
            raise IndexError(i)
        counter, skipped = divmod(self.first + i * self.batch_size, 4)  # each count of Philox gives four numbers
        numbers = np.random.Philox(key=self.seed, counter=counter).random_raw(skipped + self.batch_size)[skipped:]
        starts = (numbers % np.uint64(len(self.tokens) - len(self.window) + 1)).astype(np.int64)
        rows = self.tokens[starts[:, None] + self.window].astype(np.int64)
        return rows[:, :-1], rows[:, 1:]
