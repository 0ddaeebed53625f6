"""GGUF files, in which llama.cpp keeps models: metadata, and tensors of floats or of whole numbers in blocks with a scale.

    magic "GGUF", version, counts | metadata: key, type, value | tensors: name, shape, type, offset | padding | the tensors

Everything that a file declares is compared with its size before memory is taken for it.

Source: the GGUF specification of ggml; the blocks: ggml-common.h.
"""

import mmap
import os
import struct
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # of struct
_STRING, _ARRAY = 8, 9


class Entry(NamedTuple):
    """A tensor as the file declares it; the shape is in NumPy's order, the offset from the file's beginning."""

    shape: tuple[int, ...]
    kind: str
    offset: int
    nbytes: int


class _Kind(NamedTuple):
    name: str
    numbers: int  # in a block
    nbytes: int  # of a block
    unpack: Callable[[np.ndarray], np.ndarray]  # uint8 (blocks, nbytes) to float32 (blocks, count)


def _half(blocks, at):
    """The float16 at a place of each block, as float32 (blocks, 1)."""
    return blocks[:, at : at + 2].copy().view("<f2").astype("float32")


def _nibbles(codes):
    """(blocks, n) bytes as (blocks, 2n): all low halves, then all high ones."""
    return np.concatenate([codes & 15, codes >> 4], axis=1).astype("float32")


def _fifth_bits(blocks, at):
    """The highest of 32 numbers' five bits, in four bytes of each block."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little").astype("float32") * 16.0


def _pairs(codes):
    """(blocks, 64) bytes as (blocks, 16, 16) numbers of two bits."""
    return (codes.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], "uint8")[:, None] & 3).reshape(-1, 16, 16)


def _q2_k(blocks):
    """256 numbers of two bits in 16 groups, with scales and minima of four."""
    scale, least = _half(blocks, 80) * (blocks[:, :16] & 15), _half(blocks, 82) * (blocks[:, :16] >> 4)
    return (scale[:, :, None] * _pairs(blocks[:, 16:80]) - least[:, :, None]).reshape(-1, 256)


def _q3_k(blocks):
    """256 numbers of three bits, two of them in one place and one in another, in 16 groups with scales of 6 bits."""
    above = (blocks[:, None, :32] >> np.arange(8, dtype="uint8")[:, None] & 1).reshape(-1, 16, 16)
    packed = blocks[:, 96:108]
    high = (packed[:, None, 8:] >> np.array([0, 2, 4, 6], "uint8")[:, None] & 3).reshape(-1, 16)
    scale = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1) | high << 4
    codes = (_pairs(blocks[:, 32:96]) | above << 2).astype("float32") - 4.0
    return (_half(blocks, 108) * (scale.astype("float32") - 32.0))[:, :, None] * codes


def _grouped(blocks, at, above=0):
    """256 numbers of four bits, from a byte on, and what is `above` them, in 8 groups with scales and minima of 6 bits."""
    packed = blocks[:, 4:16]
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    least = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], axis=1)
    codes = blocks[:, at:].reshape(-1, 4, 1, 32)
    codes = np.concatenate([codes & 15, codes >> 4], axis=2).reshape(-1, 8, 32) | above
    scale, least = _half(blocks, 0) * scale, _half(blocks, 2) * least
    return (scale[:, :, None] * codes - least[:, :, None]).reshape(-1, 256)


def _q5_k(blocks):
    return _grouped(blocks, 48, (blocks[:, None, 16:48] >> np.arange(8, dtype="uint8")[:, None] & 1) << 4)


def _q6_k(blocks):
    """256 numbers of 6 bits, four of them below and two above, in 16 groups with scales of 8 bits."""
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], "uint8")[:, None] & 3
    codes = (low | high << 4).reshape(-1, 16, 16).astype("float32") - 32.0
    scale = blocks[:, 192:208].view("int8") * _half(blocks, 208)
    return (scale[:, :, None] * codes).reshape(-1, 256)


_KINDS = {
    0: _Kind("F32", 1, 4, lambda b: b.view("<f4")),
    1: _Kind("F16", 1, 2, lambda b: b.view("<f2").astype("float32")),
    2: _Kind("Q4_0", 32, 18, lambda b: (_nibbles(b[:, 2:]) - 8.0) * _half(b, 0)),
    3: _Kind("Q4_1", 32, 20, lambda b: _nibbles(b[:, 4:]) * _half(b, 0) + _half(b, 2)),
    6: _Kind("Q5_0", 32, 22, lambda b: (_nibbles(b[:, 6:]) + _fifth_bits(b, 2) - 16.0) * _half(b, 0)),
    7: _Kind("Q5_1", 32, 24, lambda b: (_nibbles(b[:, 8:]) + _fifth_bits(b, 4)) * _half(b, 0) + _half(b, 2)),
    8: _Kind("Q8_0", 32, 34, lambda b: b[:, 2:].view("int8") * _half(b, 0)),
    10: _Kind("Q2_K", 256, 84, _q2_k),
    11: _Kind("Q3_K", 256, 110, _q3_k),
    12: _Kind("Q4_K", 256, 144, lambda b: _grouped(b, 16)),
    13: _Kind("Q5_K", 256, 176, _q5_k),
    14: _Kind("Q6_K", 256, 210, _q6_k),
    30: _Kind("BF16", 1, 2, lambda b: (b.view("<u2").astype("uint32") << 16).view("float32")),
}
_BY_NAME = {kind.name: kind for kind in _KINDS.values()}


class GGUFFile:
    """A GGUF file: its metadata, and its tensors, each read when it is asked for.

    Args:
        path: the file.

    Attributes:
        metadata: a dict. tensors: an Entry for each name.

    Raises:
        FileNotFoundError: there is none. ValueError: it is damaged, foreign, or of a kind that is not known.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        with open(path, "rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            if self._size < 24:
                self._refuse("it ends within its header")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        if self._take(4) != b"GGUF":
            self._refuse('it does not begin with "GGUF"')
        if (version := self._number("I")) not in (2, 3):
            self._refuse(f"it is of version {version}; 2 and 3 are known (of little-endian numbers)")
        tensors, pairs = self._count(24), self._count(13)
        self.metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string()
            self.metadata[key] = self._value(self._number("I"))
        found = [self._entry() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 8 or alignment % 8:
            self._refuse(f"general.alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        self.tensors = {name: self._placed(name, start, *rest) for name, *rest in found}
        if len(self.tensors) < len(found):
            self._refuse("two tensors have one name")

    def _refuse(self, why):
        raise ValueError(f"{self.path} is no GGUF file that can be read: {why}.")

    def _take(self, count):
        if count > self._size - self._at:
            self._refuse(f"{count:,} bytes are declared at {self._at:,}, of {self._size:,}")
        self._at += count
        return self._bytes[self._at - count : self._at]

    def _number(self, code):
        return struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0]

    def _count(self, least):
        """How many things of at least so many bytes follow."""
        count = self._number("Q")
        if count * least > self._size:
            self._refuse(f"{count:,} entries are declared, in {self._size:,} bytes")
        return count

    def _string(self):
        return self._take(self._number("Q")).decode("utf-8", "replace")

    def _value(self, kind, nested=False):
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY or nested:
            self._refuse(f"a value is of type {kind}" if kind != _ARRAY else "an array holds arrays")
        of = self._number("I")
        if of not in _NUMBERS:
            return [self._value(of, nested=True) for _ in range(self._count(8))]
        count = self._number("Q")
        return list(struct.unpack(f"<{count}{_NUMBERS[of]}", self._take(count * struct.calcsize(_NUMBERS[of]))))

    def _entry(self):
        name, dimensions = self._string(), self._number("I")
        if not 0 < dimensions <= 4:
            self._refuse(f"{name} has {dimensions} dimensions; 1 to 4 are possible")
        shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _placed(self, name, start, shape, number, offset):
        if number not in _KINDS:
            known = ", ".join(_BY_NAME)
            self._refuse(f"{name} is stored as type {number} of ggml's; {known} are known")
        kind = _KINDS[number]
        if not all(shape) or shape[-1] % kind.numbers:
            self._refuse(f"{name}, {kind.name}, has the shape {shape}")
        nbytes = prod(shape) // kind.numbers * kind.nbytes
        if start + offset + nbytes > self._size:
            self._refuse(f"{name}, {nbytes:,} bytes at {start + offset:,}, lies beyond its {self._size:,}")
        return Entry(shape, kind.name, start + offset, nbytes)

    def read(self, name: str) -> np.ndarray:
        """A tensor's numbers as float32; a copy."""
        entry = self.tensors[name]
        kind = _BY_NAME[entry.kind]
        raw = np.frombuffer(self._bytes, np.uint8, entry.nbytes, entry.offset).reshape(-1, kind.nbytes)
        return np.ascontiguousarray(kind.unpack(raw), np.float32).reshape(entry.shape).copy()
