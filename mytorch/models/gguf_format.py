"""GGUF files, the model format of llama.cpp: metadata, and tensors of floats or of quantized blocks with scales.

    magic "GGUF", version, counts | metadata: key, type, value | tensors: name, shape, type, offset | padding | the tensors

`write` writes the same format. When a file is read, all declared sizes are compared with the size of the file before memory is allocated.
Source: the GGUF specification of ggml; the blocks: ggml-common.h.
"""

import mmap
import os
import struct
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..files.limits import check_regular
from ..files.writing import atomic_file

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # of struct
_STRING, _ARRAY = 8, 9


class Entry(NamedTuple):
    """A tensor as declared in the file, with the shape in NumPy's order and the offset from the start of the file."""

    shape: tuple[int, ...]
    kind: str
    offset: int
    nbytes: int


class _Kind(NamedTuple):
    name: str
    numbers: int  # per block
    nbytes: int  # per block
    unpack: Callable[[np.ndarray], np.ndarray]  # uint8 (blocks, nbytes) to float32 (blocks, numbers)


def _half(blocks, at):
    """Return the float16 at an offset of each block, as float32 (blocks, 1)."""
    return blocks[:, at : at + 2].copy().view("<f2").astype("float32")


def _nibbles(codes):
    """Split (blocks, n) bytes into (blocks, 2n) nibbles: all low nibbles, then all high nibbles."""
    return np.concatenate([codes & 15, codes >> 4], axis=1).astype("float32")


def _fifth_bits(blocks, at):
    """Return the highest of the five bits of 32 numbers, stored in four bytes of each block."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little").astype("float32") * 16.0


def _pairs(codes):
    """Split (blocks, 64) bytes into (blocks, 16, 16) numbers of two bits."""
    return (codes.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], "uint8")[:, None] & 3).reshape(-1, 16, 16)


def _q2_k(blocks):
    """Unpack 256 numbers of two bits in 16 groups, with scales and minima of four bits."""
    scale, least = _half(blocks, 80) * (blocks[:, :16] & 15), _half(blocks, 82) * (blocks[:, :16] >> 4)
    return (scale[:, :, None] * _pairs(blocks[:, 16:80]) - least[:, :, None]).reshape(-1, 256)


def _q3_k(blocks):
    """Unpack 256 numbers of three bits (two low bits and one high bit, stored separately) in 16 groups with 6-bit scales."""
    above = (blocks[:, None, :32] >> np.arange(8, dtype="uint8")[:, None] & 1).reshape(-1, 16, 16)
    packed = blocks[:, 96:108]
    high = (packed[:, None, 8:] >> np.array([0, 2, 4, 6], "uint8")[:, None] & 3).reshape(-1, 16)
    scale = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1) | high << 4
    codes = (_pairs(blocks[:, 32:96]) | above << 2).astype("float32") - 4.0
    return (_half(blocks, 108) * (scale.astype("float32") - 32.0))[:, :, None] * codes


def _grouped(blocks, at, above=0):
    """Unpack 256 numbers of four bits plus the higher bits `above`, in 8 groups with 6-bit scales and minima."""
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
    """Unpack 256 numbers of 6 bits (four low bits and two high bits, stored separately) in 16 groups with 8-bit scales."""
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
    """A GGUF file: its metadata, and its tensors, which are read on demand.

    Args:
        path: path of the file.

    Attributes:
        metadata: dict of the metadata.
        tensors: dict of an Entry for each name.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the file is damaged, not a GGUF file, or of an unsupported kind.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        check_regular(path, "GGUFFile")
        with open(path, "rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            if self._size < 24:
                self._refuse("the header is truncated")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        if self._take(4) != b"GGUF":
            self._refuse('expected "GGUF" at the start')
        if (version := self._number("I")) not in (2, 3):
            self._refuse(f"expected version 2 or 3 (little-endian), got {version}")
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
            self._refuse("two tensors have the same name")
        end = 0
        for name, entry in sorted(self.tensors.items(), key=lambda item: item[1].offset):
            if entry.offset < end:
                self._refuse(f"the data of {name} overlap the data of another tensor")
            end = entry.offset + entry.nbytes

    def _refuse(self, why):
        raise ValueError(f"{self.path} cannot be read as a GGUF file: {why}.")

    def _take(self, count):
        if count > self._size - self._at:
            self._refuse(f"it declares {count:,} bytes at {self._at:,}, but has {self._size:,} bytes")
        self._at += count
        return self._bytes[self._at - count : self._at]

    def _number(self, code):
        return struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0]

    def _count(self, least):
        """Read a number of entries and check that the file has `least` bytes for each."""
        count = self._number("Q")
        if count * least > self._size:
            self._refuse(f"it declares {count:,} entries, but has {self._size:,} bytes")
        return count

    def _string(self):
        return self._take(self._number("Q")).decode("utf-8", "replace")

    def _value(self, kind, nested=False):
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY or nested:
            self._refuse(f"a value has the unknown type {kind}" if kind != _ARRAY else "an array contains arrays")
        of = self._number("I")
        if of not in _NUMBERS:
            return [self._value(of, nested=True) for _ in range(self._count(8))]
        count = self._number("Q")
        return list(struct.unpack(f"<{count}{_NUMBERS[of]}", self._take(count * struct.calcsize(_NUMBERS[of]))))

    def _entry(self):
        name, dimensions = self._string(), self._number("I")
        if not 0 < dimensions <= 4:
            self._refuse(f"expected 1 to 4 dimensions, got {dimensions} for {name}")
        shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _placed(self, name, start, shape, number, offset):
        if number not in _KINDS:
            known = ", ".join(_BY_NAME)
            self._refuse(f"expected a ggml type in {known}, got {number} for {name}")
        kind = _KINDS[number]
        if not all(shape) or shape[-1] % kind.numbers:
            self._refuse(f"{name} of type {kind.name} has the invalid shape {shape}")
        nbytes = prod(shape) // kind.numbers * kind.nbytes
        if start + offset + nbytes > self._size:
            self._refuse(
                f"{name}, {nbytes:,} bytes at {start + offset:,}, exceeds the {self._size:,} bytes of the file"
            )
        return Entry(shape, kind.name, start + offset, nbytes)

    def read(self, name: str) -> np.ndarray:
        """Return a copy of a tensor's numbers as float32.

        Args:
            name: name of the tensor.
        """
        entry = self.tensors[name]
        kind = _BY_NAME[entry.kind]
        raw = np.frombuffer(self._bytes, np.uint8, entry.nbytes, entry.offset).reshape(-1, kind.nbytes)
        return np.ascontiguousarray(kind.unpack(raw), np.float32).reshape(entry.shape).copy()


# -- writing ------------------------------------------------------------------------------------------


def _q8_0(x):
    """Pack float32 numbers into blocks of 32 bytes and a float16 scale, rounded away from zero as in ggml."""
    blocks = x.reshape(-1, 32)
    scale = abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        codes = blocks * np.where(scale == 0, np.float32(0), 1 / scale)
    codes = np.trunc(codes + np.copysign(np.float32(0.5), codes)).astype("int8")
    return np.concatenate([scale.astype("<f2").view("uint8"), codes.view("uint8")], axis=1)


_PACK: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F32": lambda x: x.astype("<f4"),
    "F16": lambda x: x.astype("<f2"),
    "Q8_0": _q8_0,
}


class Planned(NamedTuple):
    """A tensor to write: its shape, its type in the file, and a function that returns its numbers as a float32 array."""

    shape: tuple[int, ...]
    kind: str
    numbers: Callable[[], np.ndarray]


def _text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _packed(value):
    """Return (number of the type, bytes) of a metadata value. Integers are unsigned, except in lists, as in llama.cpp's files."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return _STRING, _text(value)
    if value and all(isinstance(item, int) for item in value):
        kind, items = 5, np.array(value, "<i4").tobytes()
    else:
        kind, items = _STRING, b"".join(map(_text, value))
    return _ARRAY, struct.pack("<IQ", kind, len(value)) + items


def write(path: str | os.PathLike, metadata: Mapping[str, Any], tensors: Mapping[str, Planned]) -> None:
    """Write a GGUF file of version 3 atomically. Only one tensor at a time is in memory.

    Args:
        path: path of the file.
        metadata: bools, integers, floats, strings, and lists of integers or of strings.
        tensors: the tensors by name, of the kinds F32, F16 and Q8_0 (whose rows are multiples of 32).

    Raises:
        ValueError: if a number exceeds the range of float16.
    """
    head, at = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))], 0
    for key, value in metadata.items():
        kind, content = _packed(value)
        head += [_text(key), struct.pack("<I", kind), content]
    numbers = {kind.name: number for number, kind in _KINDS.items()}
    for name, (shape, kind, _) in tensors.items():
        head += [_text(name), struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])]
        head.append(struct.pack("<IQ", numbers[kind], at))
        nbytes = prod(shape) // _BY_NAME[kind].numbers * _BY_NAME[kind].nbytes
        at += -(-nbytes // 32) * 32
    with atomic_file(path) as file:
        start = b"".join(head)
        file.write(start + bytes(-len(start) % 32))
        for name, planned in tensors.items():
            x = planned.numbers()
            with np.errstate(over="ignore"):
                data = _PACK[planned.kind](x)
            scales = (
                data if planned.kind == "F16" else data[:, :2].copy().view("<f2") if planned.kind == "Q8_0" else None
            )
            if scales is not None and not np.isfinite(scales).all():
                raise ValueError(
                    f'save_gguf: expected numbers in the range of float16, got others in {name}. Use "F32".'
                )
            file.write(data.tobytes())
            file.write(bytes(-data.nbytes % 32))
