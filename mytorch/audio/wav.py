"""Reading and writing WAV files as tensors."""

import os
import struct
from contextlib import nullcontext
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from .._tensor import Tensor
from ..base import dtypes
from ..files.writing import atomic_file
from ..ops.creation import as_tensor

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_ADVICE = "Only WAV files with PCM or float samples are supported. Convert the file, for example with `ffmpeg -i FILE out.wav`."
# (encoding, bits) -> dtype in the file; 24 bits are read as bytes.
_KINDS: dict[tuple[str, int], str] = {
    ("PCM_U", 8): "u1", ("PCM_S", 16): "<i2", ("PCM_S", 24): "u1", ("PCM_S", 32): "<i4", ("PCM_F", 32): "<f4",
    ("PCM_F", 64): "<f8",
}  # fmt: skip


@dataclass
class AudioMetaData:
    """Properties of an audio file.

    Args:
        sample_rate: samples per second.
        num_frames: number of samples of each channel.
        num_channels: number of channels.
        bits_per_sample: number of bits of a sample.
        encoding: "PCM_S" (signed), "PCM_U" (unsigned) or "PCM_F" (float).
    """

    sample_rate: int
    num_frames: int
    num_channels: int
    bits_per_sample: int
    encoding: str


def _opened(uri: Any) -> Any:
    """Return a context manager with a binary file, for a path or a file object."""
    return open(uri, "rb") if isinstance(uri, (str, os.PathLike)) else nullcontext(uri)


def _name(uri):
    return repr(os.fspath(uri)) if isinstance(uri, (str, os.PathLike)) else "the file object"


def _check_format(format, function):
    if format is not None and format.lower() != "wav":
        raise ValueError(f"{function}: expected format 'wav' or None, got {format!r}. {_ADVICE}")


def _remaining(file: IO[bytes]) -> int:
    """Return the number of bytes after the position."""
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end - here


def _read_header(file, name, function) -> AudioMetaData:
    """Read the chunks before the samples. The position is then the first sample.

    Every size is compared with the size of the file, so that a damaged header cannot cause large reads.
    """

    def fail(rule, got):
        raise ValueError(f"{function}: expected {rule} in {name}, got {got}. {_ADVICE}")

    start = file.read(12)
    if len(start) < 12 or start[:4] != b"RIFF" or start[8:] != b"WAVE":
        fail("a WAV file (RIFF … WAVE)", f"a file that begins with {start[:12]!r}")
    form: tuple[int, ...] | None = None
    while True:
        head = file.read(8)
        if len(head) < 8:
            fail("a chunk 'data'", "the end of the file")
        kind, size = head[:4], int.from_bytes(head[4:], "little")
        if kind == b"data":
            break
        left = _remaining(file)
        if size > left:
            fail(f"at most {left} bytes in chunk {kind!r}", f"{size}")
        if kind == b"fmt ":
            if size < 16:
                fail("a chunk 'fmt ' of at least 16 bytes", f"{size}")
            content = file.read(min(size, 40))
            file.seek(size - len(content), os.SEEK_CUR)
            form = struct.unpack("<HHIIHH", content[:16])
            if form[0] == _EXTENSIBLE and len(content) >= 26:
                form = (int.from_bytes(content[24:26], "little"), *form[1:])
        else:
            file.seek(size, os.SEEK_CUR)
        file.seek(size % 2, os.SEEK_CUR)
    if form is None:
        fail("a chunk 'fmt ' before the samples", "none")
    code, channels, rate, _, align, bits = form  # type: ignore[misc]
    encoding = {_PCM: "PCM_U" if bits == 8 else "PCM_S", _FLOAT: "PCM_F"}.get(code, "")
    if (encoding, bits) not in _KINDS:
        fail("samples of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits", f"format {code} with {bits} bits")
    if channels < 1 or rate < 1 or align != channels * bits // 8:
        fail("consistent numbers of channels and bytes", f"{channels} channels, {align} bytes per frame, {rate} Hz")
    left = _remaining(file)
    # Programs that write to a pipe store 0 or 0xFFFFFFFF as the size. The samples then end with the file.
    size = left if size in (0, 0xFFFFFFFF) else size
    if size > left:
        fail(f"at most {left} bytes of samples", f"{size}; the file is truncated")
    return AudioMetaData(rate, size // align, channels, bits, encoding)


def info(uri: Any, format: str | None = None) -> AudioMetaData:
    """Returns the properties of a WAV file.

    Args:
        uri: path or binary file object.
        format: "wav" or None.

    Raises:
        ValueError: if the file is not a WAV file with PCM or float samples.
    """
    _check_format(format, "info")
    with _opened(uri) as file:
        return _read_header(file, _name(uri), "info")


def load(
    uri: Any, frame_offset: int = 0, num_frames: int = -1, normalize: bool = True, channels_first: bool = True,
    format: str | None = None,
) -> tuple[Tensor, int]:  # fmt: skip
    """Reads a WAV file: (waveform, samples per second).

    Args:
        uri: path or binary file object.
        frame_offset: number of samples to skip.
        num_frames: maximum number of samples to read; -1 reads all samples.
        normalize: return float32 values from -1 to 1. If False, integers remain integers; 24 bits become the high bits of
            int32.
        channels_first: return (channels, time) instead of (time, channels).
        format: "wav" or None.

    Raises:
        ValueError: if the file is not a WAV file with PCM or float samples, or a number is out of range.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> mytorch.audio.save(file, mytorch.zeros(2, 100), 8000)
        >>> _ = file.seek(0)
        >>> waveform, rate = mytorch.audio.load(file)
        >>> waveform.shape, rate
        (mytorch.Size([2, 100]), 8000)
    """
    _check_format(format, "load")
    if frame_offset < 0:
        raise ValueError(f"load: expected frame_offset >= 0, got {frame_offset}.")
    if num_frames < -1 or num_frames == 0:
        raise ValueError(f"load: expected num_frames > 0, or -1 for all samples, got {num_frames}.")
    with _opened(uri) as file:
        meta = _read_header(file, _name(uri), "load")
        width = meta.bits_per_sample // 8 * meta.num_channels
        first = min(frame_offset, meta.num_frames)
        count = meta.num_frames - first if num_frames == -1 else min(num_frames, meta.num_frames - first)
        file.seek(first * width, os.SEEK_CUR)
        raw = np.frombuffer(file.read(count * width), _KINDS[meta.encoding, meta.bits_per_sample])
    if meta.bits_per_sample == 24:
        wide = np.zeros((raw.size // 3, 4), np.uint8)
        wide[:, 1:] = raw.reshape(-1, 3)
        raw = wide.reshape(-1).view("<i4")
    samples = raw.reshape(-1, meta.num_channels)
    samples = np.ascontiguousarray(samples.T if channels_first else samples)
    samples = samples.astype(samples.dtype.newbyteorder("="), copy=True)
    return as_tensor(_normalized(samples) if normalize else samples), meta.sample_rate


def _normalized(samples):
    """Convert samples to float32 from -1 to 1."""
    if samples.dtype == np.uint8:
        return (samples.astype(np.float32) - 128) / 128
    if samples.dtype.kind == "i":
        return (samples / 2.0 ** (8 * samples.dtype.itemsize - 1)).astype(np.float32)
    return samples.astype(np.float32)


def _encoded(samples, encoding, bits):
    """Convert samples, (time, channels) of any supported dtype, to bytes of the encoding."""
    if encoding == "PCM_F":
        values = samples if samples.dtype.kind == "f" else _normalized(samples)
        return values.astype(_KINDS[encoding, bits]).tobytes()
    own = 8 * samples.dtype.itemsize
    if samples.dtype.kind == "f":
        scaled = np.round(np.nan_to_num(samples.astype(np.float64)) * 2.0 ** (bits - 1))
        values = np.clip(scaled, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype(np.int64)
    else:
        values = samples.astype(np.int64) - (128 if samples.dtype == np.uint8 else 0)
        values = values << (bits - own) if bits >= own else values >> (own - bits)
    if bits == 8:
        values += 128
    if bits == 24:
        return np.ascontiguousarray(values.astype("<i4").reshape(-1, 1).view(np.uint8)[:, :3]).tobytes()
    return values.astype(_KINDS[encoding, bits]).tobytes()


_DEFAULTS = {"float64": ("PCM_F", 64), "float32": ("PCM_F", 32), "int32": ("PCM_S", 32), "int16": ("PCM_S", 16), "uint8": ("PCM_U", 8)}  # fmt: skip


def save(
    uri: Any, src: Tensor, sample_rate: int, channels_first: bool = True, format: str | None = None,
    encoding: str | None = None, bits_per_sample: int | None = None,
) -> None:  # fmt: skip
    """Writes a waveform to a WAV file. A file at the path is replaced when the new file is complete.

    Args:
        uri: path or binary file object.
        src: (channels, time), or (time,) for one channel; float32, float64, int32, int16 or uint8. Floats are clipped to
            [-1, 1] if the samples of the file are integers.
        sample_rate: samples per second.
        channels_first: src is (channels, time) instead of (time, channels).
        format: "wav" or None.
        encoding: "PCM_S", "PCM_U" or "PCM_F" (default: the type of src).
        bits_per_sample: 8, 16, 24, 32 or 64 (default: the size of src, or the first that the encoding supports).

    Raises:
        TypeError: if src has another dtype.
        ValueError: if the shape, the encoding or the file name is not supported.
    """
    _check_format(format, "save")
    if isinstance(uri, (str, os.PathLike)) and format is None:
        ending = os.path.splitext(os.fspath(uri))[1].lower()
        if ending not in (".wav", ".wave"):
            raise ValueError(
                f"save: expected a file name that ends with .wav, got {os.fspath(uri)!r}. Pass format='wav' to use this name. {_ADVICE}"
            )
    name = src.dtype.name if src.dtype is not dtypes.bool_ else "bool"
    if name not in _DEFAULTS:
        raise TypeError(
            f"save: expected src of dtype {', '.join(_DEFAULTS)}, got {src.dtype}. Convert it with .float()."
        )
    if src.ndim not in (1, 2):
        raise ValueError(f"save: expected src (channels, time) or (time,), got shape {tuple(src.shape)}.")
    own, bits = _DEFAULTS[name]
    encoding = encoding or ("PCM_U" if bits_per_sample == 8 else own if bits_per_sample in (None, bits) else "PCM_S")
    if bits_per_sample is None:
        fitting = [b for e, b in _KINDS if e == encoding]
        bits_per_sample = bits if bits in fitting else next(iter(fitting), None)
    if (encoding, bits_per_sample) not in _KINDS:
        kinds = ", ".join(f"{e} with {b}" for e, b in _KINDS)
        raise ValueError(f"save: expected one of {kinds} bits, got {encoding} with {bits_per_sample}.")
    samples = src.detach().cpu().numpy()
    samples = samples[:, None] if samples.ndim == 1 else samples.T if channels_first else samples
    channels = samples.shape[1]
    if not 1 <= channels <= 65535 or not 1 <= sample_rate < 2**32:
        raise ValueError(f"save: expected 1 to 65535 channels and a positive rate, got {channels} and {sample_rate}.")
    content = _encoded(np.ascontiguousarray(samples), encoding, bits_per_sample)
    align = channels * bits_per_sample // 8
    code = _FLOAT if encoding == "PCM_F" else _PCM
    form = struct.pack("<HHIIHH", code, channels, sample_rate, sample_rate * align % 2**32, align, bits_per_sample)
    extra = b"" if code == _PCM else b"fact" + struct.pack("<II", 4, len(samples))
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + extra + b"data" + struct.pack("<I", len(content))
    total = len(body) + len(content) + len(content) % 2
    if total >= 2**32:
        raise ValueError(f"save: expected less than 4 GiB, got {total} bytes. Write several files.")
    whole = b"RIFF" + struct.pack("<I", total) + body + content + b"\0" * (len(content) % 2)
    with atomic_file(uri) if isinstance(uri, (str, os.PathLike)) else nullcontext(uri) as file:
        file.write(whole)
