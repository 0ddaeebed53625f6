"""Token files: a flat sequence of token numbers on disk, with a header that says what it is.

Layout: 32 bytes of header (magic, version, bytes per token, token count, vocabulary size), then the tokens,
little-endian, uint16 or, for vocabularies above 65536, uint32. Files are written under a temporary name,
flushed and renamed, so a reader sees a whole file or none.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

import numpy as np

from ...serialization import atomic_file

MAGIC = b"MYTOKENS"
VERSION = 1
_HEADER = struct.Struct("<8sIIQQ")  # magic, version, itemsize, token count, vocabulary size
HEADER_BYTES = _HEADER.size


class TokenFileError(ValueError):
    """A file that is not a whole token file; the message says why."""


class TokenWriter:
    """Writes a token file chunk by chunk; a context manager.

    Args:
        path: where it shall be.
        vocab_size: how many different tokens there are; it decides the dtype.

    Nothing is at `path` until the block ends without an exception.
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
        """Append tokens, a sequence or array of ints.

        Raises:
            ValueError: a token is negative or not below vocab_size.
        """
        array = np.asarray(tokens)
        if array.size and (array.min() < 0 or array.max() >= self.vocab_size):
            raise ValueError(
                f"TokenWriter: tokens must lie in [0, {self.vocab_size}), got {array.min()} to {array.max()}."
            )
        self._file.write(array.astype(self.dtype).tobytes())
        self.count += array.size

    def __exit__(self, kind, error, trace):
        if kind is None:
            self._file.seek(0)
            self._file.write(_HEADER.pack(MAGIC, VERSION, self.dtype.itemsize, self.count, self.vocab_size))
        return self._context.__exit__(kind, error, trace)


def write_tokens(path: str | os.PathLike, tokens: Sequence[int] | np.ndarray, vocab_size: int) -> None:
    """Write a whole token file at once.

    Args:
        path: the file.
        tokens: the numbers.
        vocab_size: above the largest; decides between 16 and 32 bits.
    """
    with TokenWriter(path, vocab_size) as writer:
        writer.write(tokens)


def read_header(path: str | os.PathLike) -> tuple[np.dtype, int, int]:
    """(dtype, token count, vocabulary size) of a token file.

    Raises:
        TokenFileError: it is too short, foreign, of a later version, or truncated.
    """
    size = os.path.getsize(path)
    if size < HEADER_BYTES:
        raise TokenFileError(f"{path} is no token file: it has {size} bytes, the header alone has {HEADER_BYTES}.")
    with open(path, "rb") as file:
        magic, version, itemsize, count, vocab_size = _HEADER.unpack(file.read(HEADER_BYTES))
    if magic != MAGIC:
        raise TokenFileError(
            f"{path} is no token file: it begins with {magic!r} instead of {MAGIC!r}. Make it with prepare_data/."
        )
    if version != VERSION or itemsize not in (2, 4):
        raise TokenFileError(
            f"{path} has format version {version} ({itemsize} bytes a token); this library reads version {VERSION}."
        )
    expected = HEADER_BYTES + count * itemsize
    if size != expected:
        what = "truncated" if size < expected else "longer than its header says"
        raise TokenFileError(f"{path} is {what}: {count} tokens need {expected} bytes, it has {size}.")
    return np.dtype(f"<u{itemsize}"), count, vocab_size


def read_vocab_size(data: str | os.PathLike) -> int:
    """Reads the vocabulary size of a data folder with the token files train.bin and val.bin.

    Raises:
        FileNotFoundError: a file is missing.
    """
    for name in ("train.bin", "val.bin"):
        if not os.path.isfile(os.path.join(data, name)):
            raise FileNotFoundError(
                f"There is no {os.path.join(data, name)}; make it with one of the scripts in prepare_data/."
            )
    return read_header(os.path.join(data, "train.bin"))[2]


def read_tokens(path: str | os.PathLike) -> np.ndarray:
    """The tokens of a file, as a read-only memory map.

    Raises:
        FileNotFoundError: there is no such file.
        TokenFileError: see `read_header`.
    """
    dtype, count, _ = read_header(path)
    if not count:
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=HEADER_BYTES, shape=(count,))


class RandomBlocks:
    """Batches of random blocks of a token file, each a function of its number: a dataset for a language model.

    Sample j depends on the seed and on j only. So a run that resumes with other batch sizes or numbers of processes
    continues with the samples that were not used yet: set `first` to the number of used samples.

    Item i is a pair (inputs, targets) of int64 arrays (batch_size, block_size) with the samples from
    `first + i * batch_size` on. The targets are the inputs shifted by one token.

    Args:
        path: a token file.
        block_size: tokens in a block.
        batch_size: blocks in an item.
        length: the number of items.
        seed: seed of the random positions.
        first: the number of the first sample.

    Raises:
        ValueError: the file has not more than block_size tokens.

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
                f"{path} holds {len(self.tokens)} tokens, too few for a context of {block_size}; "
                "use a longer text or a smaller context."
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


class TokenBlocks:
    """Random blocks of a token file, as a language model is trained on.

    Args:
        path: a token file.
        block_size: tokens in a block.
        seed: of the draws; the state can be saved and restored, so that training resumes exactly.

    Raises:
        ValueError: the file has not more than block_size tokens.
    """

    def __init__(self, path: str | os.PathLike, block_size: int, seed: int = 0):
        self.tokens = read_tokens(path)
        self.block_size = int(block_size)
        if len(self.tokens) <= self.block_size:
            raise ValueError(
                f"{path} holds {len(self.tokens)} tokens; a context of {block_size} needs more than {block_size} of them. "
                "Use a longer text or a shorter context."
            )
        self.vocab_size = read_header(path)[2]
        self._random = np.random.Generator(np.random.PCG64(seed))

    def batch(self, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, targets), int64 arrays (batch_size, block_size); targets are the inputs one token on."""
        starts = self._random.integers(0, len(self.tokens) - self.block_size, size=batch_size)
        window = np.arange(self.block_size + 1)
        rows = self.tokens[starts[:, None] + window].astype(np.int64)
        return rows[:, :-1], rows[:, 1:]

    def state_dict(self) -> dict:
        """Where the draws are; plain data."""
        return dict(self._random.bit_generator.state)

    def load_state_dict(self, state: dict) -> None:
        """Continue from a state."""
        self._random.bit_generator.state = state
