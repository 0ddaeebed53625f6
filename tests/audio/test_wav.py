"""WAV files: encodings, damaged files, and replacement of files."""

import io
import struct
import wave

import numpy as np
import pytest

import mytorch
from mytorch import audio

pytestmark = pytest.mark.cpu_only


def _bytes(src, rate=8000, **options):
    file = io.BytesIO()
    audio.save(file, src, rate, **options)
    return file.getvalue()


@pytest.mark.parametrize("bits", [8, 16, 24, 32, None])
@pytest.mark.parametrize(("channels", "length"), [(1, 0), (1, 1), (2, 7), (3, 1000)])
def test_files_round_trip(tmp_path, bits, channels, length):
    x = np.random.default_rng(bits or 0).uniform(-1, 1, (channels, length)).astype(np.float32)
    path = tmp_path / "sound.wav"
    audio.save(path, mytorch.tensor(x), 44100, bits_per_sample=bits)
    result, rate = audio.load(path)
    assert rate == 44100
    assert result.shape == (channels, length)
    assert result.dtype is mytorch.float32
    np.testing.assert_allclose(result.numpy(), x, atol=2.0 ** (1 - min(bits, 24)) if bits else 0)
    if bits is not None:  # the module of Python reads integers only
        with wave.open(str(path)) as file:
            assert file.getparams()[:4] == (channels, bits // 8, 44100, length)
            content = file.readframes(length)
        if bits == 16:
            expected = np.frombuffer(content, "<i2").reshape(-1, channels).T
            np.testing.assert_array_equal(audio.load(path, normalize=False)[0].numpy(), expected)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "float64"])
def test_dtypes_are_kept(dtype):
    kind = np.dtype(dtype)
    generator = np.random.default_rng(0)
    limits = (0.0, 1.0) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
    x = generator.uniform(*limits, (2, 50)).astype(kind)
    result, _ = audio.load(io.BytesIO(_bytes(mytorch.tensor(x))), normalize=False)
    assert result.dtype.name == dtype
    np.testing.assert_array_equal(result.numpy(), x)
    floats = audio.load(io.BytesIO(_bytes(mytorch.tensor(x))))[0]
    wider = audio.load(io.BytesIO(_bytes(mytorch.tensor(x), bits_per_sample=32)))[0]
    np.testing.assert_allclose(wider.numpy(), floats.numpy(), atol=1e-7)


def test_integers_are_clipped_and_one_channel_has_no_axis():
    x = mytorch.tensor([2.0, -2.0, float("nan"), 0.5])
    result = audio.load(io.BytesIO(_bytes(x, bits_per_sample=16)), normalize=False)[0]
    assert result.tolist() == [[32767, -32768, 0, 16384]]


def test_extensible_headers_and_other_chunks():
    plain = _bytes(mytorch.tensor([[0.25, -0.5]]), bits_per_sample=16)
    form = struct.pack("<HHIIHH", 0xFFFE, 1, 8000, 16000, 2, 16) + struct.pack("<HHI", 22, 16, 0) + b"\x01" + b"\0" * 15
    body = b"WAVE" + b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"fmt " + struct.pack("<I", 40) + form + plain[36:]
    assert audio.load(io.BytesIO(b"RIFF" + struct.pack("<I", len(body)) + body))[0].tolist() == [[0.25, -0.5]]
    piped = plain[:40] + b"\xff" * 4 + plain[44:]  # a program that writes to a pipe does not know the size
    assert audio.load(io.BytesIO(piped))[0].tolist() == [[0.25, -0.5]]


def test_damaged_files_raise_one_error():
    content = _bytes(mytorch.tensor(np.linspace(-1, 1, 60, dtype=np.float32).reshape(2, 30)), bits_per_sample=16)
    for end in range(len(content)):
        with pytest.raises(ValueError, match="load: expected"):
            audio.load(io.BytesIO(content[:end]))
    generator = np.random.default_rng(0)
    for _ in range(2000):
        damaged = bytearray(content)
        for place in generator.integers(0, 60, 3):
            damaged[place] = generator.integers(0, 256)
        try:
            result, _ = audio.load(io.BytesIO(bytes(damaged)))
        except ValueError:
            continue
        assert result.numel() <= len(content)
    with pytest.raises(ValueError, match=r"expected a WAV file.*ffmpeg"):
        audio.load(io.BytesIO(b"ID3\x03" + b"\0" * 100))


def test_files_are_replaced_when_complete(tmp_path, monkeypatch):
    path = tmp_path / "sound.wav"
    audio.save(path, mytorch.zeros(1, 5), 8000)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("stop")))
    with pytest.raises(OSError, match="stop"):
        audio.save(path, mytorch.ones(1, 9), 8000)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda p: audio.save(p / "a.mp3", mytorch.zeros(1, 2), 8000), ValueError, "ends with .wav"),
        (lambda p: audio.save(p / "a.wav", mytorch.zeros(1, 2, 3), 8000), ValueError, "channels, time"),
        (lambda p: audio.save(p / "a.wav", mytorch.zeros(1, 2).long(), 8000), TypeError, "dtype"),
        (
            lambda p: audio.save(p / "a.wav", mytorch.zeros(1, 2), 8000, bits_per_sample=12),
            ValueError,
            "bits_per_sample",
        ),
        (lambda p: audio.save(p / "a.wav", mytorch.zeros(1, 2), 0), ValueError, "positive rate"),
        (lambda p: audio.load(p / "a.wav"), FileNotFoundError, "a.wav"),
    ],
)
def test_bad_arguments_are_named(tmp_path, call, kind, text):
    with pytest.raises(kind, match=text):
        call(tmp_path)
    assert not list(tmp_path.iterdir())
