"""WAV files as tensors. In PyTorch mode, the package torchaudio itself has features of sound."""

import os
import struct
from contextlib import nullcontext
from typing import Any

import numpy as np

from .._extensions import lazy
from ..arrays.tensor import Tensor
from ..ops.creation import as_tensor
from .writing import atomic_file

__all__ = ["load", "save"]

_PATH, _EXTENSIBLE = (str, os.PathLike), 0xFFFE
_ADVICE = "Convert the file to a WAV file with PCM or float samples, for example with `ffmpeg -i FILE out.wav`."
# (format code, bits) -> dtype in the file; 24 bits are read as bytes.
_KINDS = {(1, 8): "u1", (1, 16): "<i2", (1, 24): "u1", (1, 32): "<i4", (3, 32): "<f4", (3, 64): "<f8"}
_DEFAULTS = {"float64": (3, 64), "float32": (3, 32), "int32": (1, 32), "int16": (1, 16), "uint8": (1, 8)}
__path__: list[str] = []  # for the advice about torchaudio's modules
__getattr__, __dir__ = lazy(__name__)


def _fail(rule, got):
    raise ValueError(f"load: expected {rule}, got {got}. {_ADVICE}")


def _read_header(file):
    """Reads the chunks up to the samples, and checks each size: (format code, channels, rate, bits, number of bytes)."""
    start = file.read(12)
    if len(start) < 12 or start[:4] != b"RIFF" or start[8:] != b"WAVE":
        _fail("a WAV file (RIFF … WAVE)", f"a file that begins with {start[:12]!r}")
    here, end, form = file.tell(), file.seek(0, os.SEEK_END), (0,) * 6
    while True:
        file.seek(here)
        head = file.read(8)
        if len(head) < 8:
            _fail("a chunk 'data'", "the end of the file")
        kind, size, left = head[:4], int.from_bytes(head[4:], "little"), end - here - 8
        if kind == b"data":
            break
        if size > left or (kind == b"fmt " and size < 16):
            _fail(f"16 to {left} bytes in chunk {kind!r}", f"{size}")
        if kind == b"fmt ":
            content = file.read(min(size, 40))
            form = struct.unpack("<HHIIHH", content[:16])
            if form[0] == _EXTENSIBLE and len(content) >= 26:
                form = (int.from_bytes(content[24:26], "little"), *form[1:])
        here += 8 + size + size % 2
    code, channels, rate, _, align, bits = form
    if (code, bits) not in _KINDS or channels < 1 or rate < 1 or align != channels * bits // 8:
        got = f"format {code}, {bits} bits, {channels} channels, {align} bytes for each time, {rate} Hz"
        _fail("samples of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits", got)
    # Programs that write to a pipe store 0 or 0xFFFFFFFF as the size. The samples then end with the file.
    size = left if size in (0, 0xFFFFFFFF) else size
    if size > left:
        _fail(f"at most {left} bytes of samples", f"{size}; the file is truncated")
    return code, channels, rate, bits, size // align * align


def load(uri: Any, normalize: bool = True) -> tuple[Tensor, int]:
    """Reads a WAV file: (waveform (channels, time), samples per second).

    Args:
        uri: path or binary file object.
        normalize: return float32 values from -1 to 1. If False, integers remain; 24 bits are the high bits of int32.

    Raises:
        ValueError: if the file is not a WAV file with PCM or float samples.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> mytorch.audio.save(file, mytorch.zeros(2, 100), 8000)
        >>> _ = file.seek(0)
        >>> mytorch.audio.load(file)[0].shape
        mytorch.Size([2, 100])
    """
    with open(uri, "rb") if isinstance(uri, _PATH) else nullcontext(uri) as file:
        code, channels, rate, bits, size = _read_header(file)
        raw = np.frombuffer(file.read(size), _KINDS[code, bits])
    if bits == 24:
        wide = np.zeros((raw.size // 3, 4), np.uint8)
        wide[:, 1:] = raw.reshape(-1, 3)
        raw = wide.reshape(-1).view("<i4")
    samples = np.ascontiguousarray(raw.reshape(-1, channels).T).astype(raw.dtype.newbyteorder("="))
    return as_tensor(_normalized(samples) if normalize else samples), rate


def _normalized(samples):
    """Converts samples to float32 from -1 to 1."""
    if samples.dtype == np.uint8:
        return (samples.astype(np.float32) - 128) / 128
    scale = 2.0 ** (8 * samples.dtype.itemsize - 1) if samples.dtype.kind == "i" else 1
    return (samples / scale).astype(np.float32)


def _encoded(samples, code, bits):
    """Converts samples, (time, channels) of any supported dtype, to bytes."""
    if code == 3:
        return samples.astype(_KINDS[code, bits]).tobytes()
    if samples.dtype.kind == "f":
        scaled = np.round(np.nan_to_num(samples.astype(np.float64)) * 2.0 ** (bits - 1))
        values = np.clip(scaled, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype(np.int64)
    else:
        values = samples.astype(np.int64) - (128 if samples.dtype == np.uint8 else 0)
        more = bits - 8 * samples.dtype.itemsize
        values = values << more if more >= 0 else values >> -more
    if bits == 24:
        return np.ascontiguousarray(values.astype("<i4").reshape(-1, 1).view(np.uint8)[:, :3]).tobytes()
    return (values + 128 if bits == 8 else values).astype(_KINDS[code, bits]).tobytes()


def save(uri: Any, src: Tensor, sample_rate: int, bits_per_sample: int | None = None) -> None:
    """Writes a waveform to a WAV file. A file at the path is replaced when the new file is complete.

    Args:
        uri: path or binary file object.
        src: (channels, time), or (time,) for one channel; float32, float64, int32, int16 or uint8. Floats are clipped to
            [-1, 1] if the samples of the file are integers.
        sample_rate: samples per second.
        bits_per_sample: 8, 16, 24 or 32, for integers in the file (default: the dtype of src).

    Raises:
        TypeError: if src has another dtype.
        ValueError: if the shape, the number of bits or the file name is not supported.
    """
    if isinstance(uri, _PATH) and not os.fspath(uri).lower().endswith(".wav"):
        raise ValueError(f"save: expected a file name that ends with .wav, got {os.fspath(uri)!r}. {_ADVICE}")
    if src.dtype.name not in _DEFAULTS:
        raise TypeError(f"save: expected src of dtype {', '.join(_DEFAULTS)}, got {src.dtype}. Use src.float().")
    if src.ndim not in (1, 2):
        raise ValueError(f"save: expected src (channels, time) or (time,), got shape {tuple(src.shape)}.")
    code, bits = _DEFAULTS[src.dtype.name] if bits_per_sample is None else (1, bits_per_sample)
    if (code, bits) not in _KINDS:
        raise ValueError(f"save: expected bits_per_sample of 8, 16, 24, 32 or None, got {bits_per_sample}.")
    samples = np.atleast_2d(src.detach().cpu().numpy()).T
    channels = samples.shape[1]
    if not 1 <= channels <= 65535 or not 1 <= sample_rate < 2**32:
        raise ValueError(f"save: expected 1 to 65535 channels and a positive rate, got {channels} and {sample_rate}.")
    content = _encoded(np.ascontiguousarray(samples), code, bits)
    align = channels * bits // 8
    form = struct.pack("<IHHIIHH", 16, code, channels, sample_rate, sample_rate * align % 2**32, align, bits)
    count = b"" if code == 1 else b"fact" + struct.pack("<II", 4, len(samples))
    body = b"WAVEfmt " + form + count + b"data" + struct.pack("<I", len(content))
    total = len(body) + len(content) + len(content) % 2
    if total >= 2**32:
        raise ValueError(f"save: expected less than 4 GiB, got {total} bytes. Write several files.")
    with atomic_file(uri) if isinstance(uri, _PATH) else nullcontext(uri) as file:
        file.write(b"RIFF" + struct.pack("<I", total) + body + content + b"\0" * (len(content) % 2))
