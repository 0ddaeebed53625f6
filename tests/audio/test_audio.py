"""Audio functions and transforms compared with PyTorch, with formulas in NumPy, and with torchaudio where it is installed."""

import math
import subprocess
import sys

import numpy as np
import pytest

import mytorch
from mytorch.audio import functional as F
from mytorch.audio import transforms as T


def _noise(*shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


SPECTRA = [
    {}, {"power": 1.0}, {"power": None}, {"power": 1.5, "n_fft": 101, "hop_length": 31}, {"normalized": True, "win_length": 300},
    {"normalized": "frame_length", "pad": 5}, {"center": False}, {"onesided": False, "pad_mode": "constant", "n_fft": 64},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SPECTRA)))
def test_spectrograms_equal_pytorchs_transform(number):
    torch = pytest.importorskip("torch")
    options = SPECTRA[number]
    transform = T.Spectrogram(**options).double()
    data = _noise(2, 3, 900, seed=number)
    x, y = mytorch.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    window = torch.tensor(transform.window.numpy())
    norm = options.get("normalized", False)
    frames = torch.stft(
        torch.nn.functional.pad(y, [options.get("pad", 0)] * 2).reshape(6, -1), transform.n_fft, transform.hop_length,
        transform.win_length, window, options.get("center", True), options.get("pad_mode", "reflect"),
        norm == "frame_length", options.get("onesided", True), return_complex=True,
    )  # fmt: skip
    frames = frames.reshape(2, 3, *frames.shape[1:]) / (window.square().sum().sqrt() if norm is True else 1)
    power = options.get("power", 2.0)
    expected, result = frames if power is None else frames.abs() ** power, transform(x)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-9)
    upstream = _noise(*expected.shape, seed=1).astype(np.complex128 if power is None else np.float64)
    result.backward(mytorch.tensor(upstream))
    expected.backward(torch.tensor(upstream))
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"normalized": True}, {"normalized": "frame_length", "n_fft": 101}])
@pytest.mark.parametrize("length", [None, 850])
def test_inverse_spectrograms_restore_the_waveform(options, length):
    x = mytorch.tensor(_noise(2, 1000), requires_grad=True)
    pair = T.Spectrogram(power=None, **options).double(), T.InverseSpectrogram(**options).double()
    result = pair[1](pair[0](x), length)
    assert result.shape[-1] == (length or result.shape[-1])
    assert result.shape[-1] > 800
    np.testing.assert_allclose(result.detach().numpy(), x.detach().numpy()[:, : result.shape[-1]], atol=1e-6)
    upstream = mytorch.tensor(_noise(*result.shape, seed=2))
    result.backward(upstream)  # the pair is the identity, so the gradient is the upstream gradient
    np.testing.assert_allclose(x.grad.numpy()[:, : result.shape[-1]], upstream.numpy(), atol=1e-5)


def _mel(f, scale):
    if scale == "htk":
        return 2595 * math.log10(1 + f / 700)
    return f * 3 / 200 if f < 1000 else 15 + 27 * math.log(f / 1000) / math.log(6.4)


@pytest.mark.parametrize("scale", ["htk", "slaney"])
@pytest.mark.parametrize("norm", [None, "slaney"])
def test_mel_filters_are_triangles_of_equal_width_on_the_scale(scale, norm):
    low, high, rate, count, bins = 50.0, 7000.0, 16000, 20, 257
    filters = F.melscale_fbanks(bins, low, high, count, rate, norm, scale).numpy()
    step = (_mel(high, scale) - _mel(low, scale)) / (count + 1)
    corners = []
    for i in range(count + 2):  # inverts the scale by bisection
        a, b = 0.0, 8000.0
        for _ in range(60):
            middle = (a + b) / 2
            a, b = (middle, b) if _mel(middle, scale) < _mel(low, scale) + i * step else (a, middle)
        corners.append(a)
    for j in range(count):
        left, top, right = corners[j : j + 3]
        for i, f in enumerate(np.linspace(0, rate / 2, bins)):
            value = max(0.0, min((f - left) / (top - left), (right - f) / (right - top)))
            assert filters[i, j] == pytest.approx(value * (2 / (right - left) if norm else 1), rel=1e-5, abs=1e-6)


def test_mel_filters_that_are_too_narrow_warn():
    with pytest.warns(UserWarning, match="mel filter is zero"):
        F.melscale_fbanks(20, 0.0, 8000.0, 60, 16000)


def test_cosine_transforms_are_orthogonal():
    matrix = F.create_dct(13, 13, "ortho").numpy()
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(13), atol=1e-6)
    n, k = 3, 2
    assert F.create_dct(5, 7, None)[n, k].item() == pytest.approx(2 * math.cos(math.pi / 7 * (n + 0.5) * k))


def test_cepstral_coefficients_are_transformed_decibels():
    x = mytorch.tensor(_noise(2, 3000, dtype=np.float32))
    transform = T.MFCC(8000, 13, melkwargs={"n_fft": 256, "n_mels": 30})
    mel = T.MelSpectrogram(8000, 256, n_mels=30)(x).numpy().astype(np.float64)
    decibels = 10 * np.log10(np.maximum(mel, 1e-10))
    decibels = np.maximum(decibels, decibels.max() - 80)
    expected = np.einsum("bmt,mk->bkt", decibels, F.create_dct(13, 30, "ortho").numpy())
    np.testing.assert_allclose(transform(x).numpy(), expected, rtol=1e-4, atol=1e-3)
    assert list(transform.state_dict()) == [
        "dct_mat",
        "MelSpectrogram.spectrogram.window",
        "MelSpectrogram.mel_scale.fb",
    ]
    assert T.LFCC(8000, 30, n_lfcc=9)(x).shape == (2, 9, 16)


def test_decibels_have_a_floor_for_each_item():
    x = np.abs(_noise(3, 2, 4, 5)) ** 8
    result = F.amplitude_to_DB(mytorch.tensor(x), 10.0, 1e-10, 0.3, 20.0).numpy()
    for item, values in zip(result, x, strict=True):
        expected = 10 * (np.log10(np.maximum(values, 1e-10)) - 0.3)
        np.testing.assert_allclose(item, np.maximum(expected, expected.max() - 20), rtol=1e-9)
    back = F.DB_to_amplitude(F.amplitude_to_DB(mytorch.tensor(x), 20.0, 1e-30, 0.0), 1.0, 0.5)
    np.testing.assert_allclose(back.numpy(), x, rtol=1e-9)


@pytest.mark.parametrize("channels", [16, 256, 4096])
def test_companding_is_inverted_within_its_error(channels):
    x = mytorch.linspace(-1, 1, 501, dtype=mytorch.float64)
    codes = F.mu_law_encoding(x, channels)
    assert codes.min() == 0
    assert codes.max() == channels - 1
    assert codes.dtype is mytorch.int64
    assert bool((codes.diff() >= 0).all())
    error = (F.mu_law_decoding(codes.double(), channels) - x).abs()
    mu = channels - 1
    bound = (x.abs() + 1 / mu) * math.expm1(math.log(channels) / mu) * 1.0001
    assert bool((error <= bound).all())


@pytest.mark.parametrize("method", ["hann", "kaiser"])
@pytest.mark.parametrize("rates", [(3, 2), (2, 3), (441, 160), (7, 7), (1, 4)])
@pytest.mark.parametrize("length", [1, 50, 333])
def test_resampling_is_a_sum_of_windowed_sinc_functions(rates, method, length):
    old, new = rates
    x = _noise(2, length)
    result = F.resample(mytorch.tensor(x), old, new, resampling_method=f"sinc_interp_{method}").numpy()
    assert result.shape == (2, -(-new * length // old))
    if old == new:
        return
    cutoff = 0.99 * min(old, new) / old
    time = np.arange(result.shape[1])[:, None] * old / new - np.arange(length)
    t = np.clip(time * cutoff, -6, 6)
    beta = 14.769656459379492
    window = np.cos(t * np.pi / 12) ** 2 if method == "hann" else np.i0(beta * np.sqrt(1 - t**2 / 36)) / np.i0(beta)
    np.testing.assert_allclose(result, x @ (np.sinc(t) * window * cutoff).T, atol=1e-9)


def test_resampling_keeps_a_tone_and_has_gradients():
    seconds = np.arange(8000) / 8000
    tone = mytorch.tensor(np.sin(2 * np.pi * 440 * seconds))
    result = T.Resample(8000, 11025, lowpass_filter_width=32, dtype=mytorch.float64)(tone).numpy()
    expected = np.sin(2 * np.pi * 440 * np.arange(11025) / 11025)
    np.testing.assert_allclose(result[400:-400], expected[400:-400], atol=2e-3)
    x = mytorch.tensor(_noise(2, 9), requires_grad=True)
    assert mytorch.autograd.gradcheck(lambda x: F.resample(x, 3, 2), (x,))


def _filtered(x, a, b):
    y = np.zeros_like(x)
    for n in range(len(x)):
        total = sum(b[k] * x[n - k] for k in range(len(b)) if n >= k)
        y[n] = (total - sum(a[k] * y[n - k] for k in range(1, len(a)) if n >= k)) / a[0]
    return y


@pytest.mark.parametrize("length", [0, 1, 2, 5, 255, 256, 257, 700])
@pytest.mark.parametrize("order", [0, 1, 3])
def test_filters_equal_the_recursion(length, order):
    generator = np.random.default_rng(length + order)
    a = np.stack([np.atleast_1d(np.poly(generator.uniform(-0.95, 0.95, order))) * 1.5 for _ in range(2)])
    b, x = generator.standard_normal(a.shape), generator.standard_normal((3, 2, length))
    arguments = mytorch.tensor(x), mytorch.tensor(a), mytorch.tensor(b)
    each = F.lfilter(*arguments, clamp=False).numpy()
    every = F.lfilter(arguments[0][:, 0], *arguments[1:], clamp=False, batching=False).numpy()
    assert each.shape == x.shape
    assert every.shape == (3, 2, length)
    for i, j in np.ndindex(3, 2):
        np.testing.assert_allclose(each[i, j], _filtered(x[i, j], a[j], b[j]), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(every[i, j], _filtered(x[i, 0], a[j], b[j]), rtol=1e-9, atol=1e-9)
    assert length == 0 or F.lfilter(*arguments).abs().max() <= 1


def test_filters_have_first_and_second_derivatives():
    x = mytorch.tensor(_noise(2, 7), requires_grad=True)
    a = mytorch.tensor([1.2, -0.5, 0.3], dtype=mytorch.float64, requires_grad=True)
    b = mytorch.tensor([0.5, 0.2, -0.4], dtype=mytorch.float64, requires_grad=True)

    def run(x, a, b):
        return F.lfilter(x, a, b, clamp=False)

    assert mytorch.autograd.gradcheck(run, (x, a, b))
    assert mytorch.autograd.gradgradcheck(run, (x, a, b))
    frequency = mytorch.tensor(900.0, dtype=mytorch.float64, requires_grad=True)
    assert mytorch.autograd.gradcheck(lambda f: F.lowpass_biquad(x.detach() * 0.1, 8000, f), (frequency,))


def _response(name, frequency, *args, **kwargs):
    """Returns the factor of the amplitude that a filter has at a frequency, from its response to an impulse."""
    impulse = mytorch.zeros(4000, dtype=mytorch.float64)
    impulse[0] = 0.1
    response = getattr(F, name)(impulse, 8000, *args, **kwargs).numpy() * 10
    return abs((response * np.exp(-2j * np.pi * frequency / 8000 * np.arange(4000))).sum())


def test_biquads_have_their_responses():
    half = math.sqrt(0.5)
    for name in ("lowpass_biquad", "highpass_biquad"):
        assert _response(name, 1000, 1000.0, Q=half) == pytest.approx(half, rel=1e-6)
    assert _response("lowpass_biquad", 0, 1000.0) == pytest.approx(1, rel=1e-6)
    assert _response("highpass_biquad", 4000, 1000.0) == pytest.approx(1, rel=1e-6)
    assert _response("bandpass_biquad", 1000, 1000.0) == pytest.approx(1, rel=1e-6)
    assert _response("bandpass_biquad", 1000, 1000.0, 3.0, True) == pytest.approx(3, rel=1e-6)
    assert _response("bandreject_biquad", 1000, 1000.0) == pytest.approx(0, abs=1e-9)
    for frequency in (0, 300, 1000, 3999):
        assert _response("allpass_biquad", frequency, 1000.0) == pytest.approx(1, rel=1e-6)
    assert _response("equalizer_biquad", 1000, 1000.0, 6.0) == pytest.approx(10 ** (6 / 20), rel=1e-6)
    assert _response("bass_biquad", 0, -6.0, 500.0) == pytest.approx(10 ** (-6 / 20), rel=1e-6)
    assert _response("treble_biquad", 4000, 4.0, 1500.0) == pytest.approx(10 ** (4 / 20), rel=1e-6)
    assert _response("band_biquad", 1000, 1000.0, 5.0) == pytest.approx(1, rel=0.02)
    x = mytorch.tensor(_noise(3, 50) * 0.1)
    np.testing.assert_allclose(F.deemphasis(F.preemphasis(x)).numpy(), x.numpy(), atol=1e-9)
    a, b = mytorch.tensor([1.0, -0.5]).double(), mytorch.tensor([0.5, 0.0]).double()
    forward = F.filtfilt(x, a, b)
    np.testing.assert_allclose(
        F.filtfilt(x.flip(-1), a, b).flip(-1)[:, 20:30].numpy(), forward[:, 20:30].numpy(), atol=1e-4
    )


@pytest.mark.parametrize("iid", [False, True])
def test_masks_are_one_short_range(iid):
    mytorch.manual_seed(3)
    x = mytorch.ones(5, 2, 40, 60)
    widths = set()
    for _ in range(20):
        for transform, axis, longest in ((T.FrequencyMasking(12, iid), 2, 12), (T.TimeMasking(30, iid, 0.25), 3, 15)):
            result = transform(x, 7.0)
            masked = (result == 7).numpy()
            rows = masked.any(5 - axis).reshape(10, -1)
            assert (masked.all(5 - axis) == masked.any(5 - axis)).all()
            for row in rows:
                assert row.sum() < longest
                assert np.diff(np.flatnonzero(row)).max(initial=1) == 1
            widths.add(int(rows[0].sum()))
            assert iid or (rows == rows[0]).all()
            assert not iid or len({row.tobytes() for row in rows}) > 1
    assert len(widths) > 5
    augmented = T.SpecAugment(2, 20, 2, 10)(mytorch.tensor(_noise(4, 40, 60)))
    assert augmented.shape == (4, 40, 60)
    grad = mytorch.ones(2, 8, 9, requires_grad=True)
    masked = F.mask_along_axis_iid(grad, 6, 0.0, 2)
    masked.sum().backward()
    np.testing.assert_array_equal(grad.grad.numpy(), (masked != 0).numpy())


@pytest.mark.parametrize("rate", [0.5, 1.0, 1.3, 2.0])
def test_stretched_tones_keep_their_pitch(rate):
    tone = mytorch.tensor(np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000), dtype=mytorch.float32)
    spectrum = T.Spectrogram(power=None)(tone)
    stretched = T.TimeStretch(fixed_rate=rate)(spectrum)
    assert stretched.shape == (201, math.ceil(spectrum.shape[1] / rate))
    wave = T.InverseSpectrogram()(stretched)
    level = np.abs(np.fft.rfft(wave.numpy()[2000:-2000] * np.hanning(len(wave) - 4000)))
    assert np.argmax(level) / (len(wave) - 4000) * 16000 == pytest.approx(1000, abs=5)
    shifted = F.pitch_shift(tone, 16000, 12)
    level = np.abs(np.fft.rfft(shifted.numpy()[1000:-1000]))
    assert np.argmax(level) / 14000 * 16000 == pytest.approx(2000, rel=0.02)


def test_griffin_lim_finds_a_waveform_of_the_spectrogram():
    mytorch.manual_seed(0)
    wave = mytorch.tensor(np.sin(np.arange(4000) * 0.3) * np.sin(np.arange(4000) * 0.002), dtype=mytorch.float32)
    magnitude = T.Spectrogram(128, power=1.0)(wave)
    result = T.GriffinLim(128, power=1.0, n_iter=40)(magnitude)
    error = (T.Spectrogram(128, power=1.0)(result) - magnitude).norm() / magnitude.norm()
    assert error < 0.15


def test_other_functions():
    x, y = _noise(2, 3, 11), _noise(2, 1, 4, seed=1)
    for mode in ("full", "same", "valid"):
        for function in (F.convolve, F.fftconvolve):
            result = function(mytorch.tensor(x), mytorch.tensor(y), mode).numpy()
            np.testing.assert_allclose(result[1, 2], np.convolve(x[1, 2], y[1, 0], mode), atol=1e-9)
    wave, noise = mytorch.tensor(x), mytorch.tensor(_noise(2, 3, 11, seed=4))
    added = F.add_noise(wave, noise, mytorch.full((2, 3), 7.0).double()) - wave
    ratio = 10 * np.log10((x**2).sum(-1) / (added.numpy() ** 2).sum(-1))
    np.testing.assert_allclose(ratio, 7.0)
    line = mytorch.arange(20.0).expand(2, 3, 20)
    np.testing.assert_allclose(F.compute_deltas(line, 7)[..., 3:-3].numpy(), 1, rtol=1e-5)
    assert F.speed(wave, 100, 2.0, mytorch.tensor([11, 5]))[1].tolist() == [6, 3]
    tone = mytorch.tensor(np.sin(2 * np.pi * 2000 * np.arange(4000) / 16000))
    centroid = T.SpectralCentroid(16000).double()(tone)
    np.testing.assert_allclose(centroid[3:-3].numpy(), 2000, rtol=0.01)
    faded = T.Fade(3, 5, "half_sine")(mytorch.ones(2, 10))
    assert faded[0, 0] == 0
    assert faded[0, -1] == 0
    assert faded[1, 4] == 1
    np.testing.assert_allclose(T.Vol(-6.0, "db")(mytorch.ones(3)).numpy(), 10 ** (-0.3))
    spectrum = mytorch.tensor(np.abs(_noise(201, 5, dtype=np.float32)))
    mel = T.MelScale(32, norm="slaney")(spectrum)
    again = T.MelScale(32, norm="slaney")(T.InverseMelScale(201, 32, norm="slaney")(mel))
    np.testing.assert_allclose(again.numpy(), mel.numpy(), rtol=0.3)


def test_transforms_learn():
    """The parameters of a layer before the transform get finite gradients, also for silence."""
    layer = mytorch.nn.Conv1d(1, 2, 5, padding=2)
    for wave in (mytorch.zeros(2, 1, 4000), mytorch.tensor(_noise(2, 1, 4000, dtype=np.float32))):
        for transform in (T.MFCC(8000, 10, melkwargs={"n_mels": 20}), T.MelSpectrogram(8000, n_mels=20, power=1.0)):
            layer.zero_grad()
            transform(layer(wave)).square().mean().backward()
            assert bool(layer.weight.grad.isfinite().all())


CALLS = [
    (lambda: F.resample(mytorch.ones(4, dtype=mytorch.int16), 2, 1), TypeError, "float waveform"),
    (lambda: F.resample(mytorch.ones(4), 0, 1), ValueError, "positive integer frequencies"),
    (lambda: F.resample(mytorch.ones(4), 2, 1, resampling_method="linear"), ValueError, "resampling_method"),
    (lambda: F.melscale_fbanks(5, 0.0, 1.0, 2, 10, "l2"), ValueError, "norm"),
    (lambda: F.melscale_fbanks(5, 0.0, 1.0, 2, 10, None, "bark"), ValueError, "mel_scale"),
    (lambda: F.lfilter(mytorch.ones(4), mytorch.ones(2), mytorch.ones(3)), ValueError, "one shape"),
    (lambda: F.lfilter(mytorch.ones(4), mytorch.zeros(2), mytorch.ones(2)), ValueError, "different from 0"),
    (lambda: F.lfilter(mytorch.ones(3, 4), mytorch.ones(2, 2), mytorch.ones(2, 2)), ValueError, "batching=False"),
    (lambda: F.mask_along_axis(mytorch.ones(3, 4), 2, 0.0, 5), ValueError, "axis"),
    (lambda: F.mask_along_axis_iid(mytorch.ones(3, 4), 2, 0.0, 1), ValueError, "at least 3 axes"),
    (lambda: F.inverse_spectrogram(mytorch.ones(3, 4), None, 0, mytorch.ones(4), 4, 2, 4, False), ValueError, "complex"),
    (lambda: T.TimeStretch()(mytorch.ones(201, 3).to(mytorch.complex64)), ValueError, "overriding_rate"),
    (lambda: T.MFCC(n_mfcc=30, melkwargs={"n_mels": 23}), ValueError, "at most 23"),
    (lambda: T.Fade(fade_shape="square"), ValueError, "fade_shape"),
    (lambda: T.Fade(20)(mytorch.ones(5)), ValueError, "at least 20 samples"),
    (lambda: T.Vol(-1.0), ValueError, "gain >= 0"),
    (lambda: T.AmplitudeToDB("energy"), ValueError, "stype"),
    (lambda: F.convolve(mytorch.ones(2), mytorch.ones(2), "circular"), ValueError, "mode"),
    (lambda: F.compute_deltas(mytorch.ones(2, 3), 2), ValueError, "win_length >= 3"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_bad_arguments_are_named(number):
    call, kind, text = CALLS[number]
    with pytest.raises(kind, match=text):
        call()


def test_equal_to_torchaudio():
    torch = pytest.importorskip("torch")
    torchaudio = pytest.importorskip("torchaudio")
    x = _noise(2, 3, 2400, dtype=np.float32)
    for make in (
        lambda T: T.MelSpectrogram(n_mels=40, norm="slaney", mel_scale="slaney"),
        lambda T: T.MFCC(n_mfcc=20, melkwargs={"n_mels": 40}),
        lambda T: T.Resample(16000, 11025, "sinc_interp_kaiser"),
        lambda T: T.PitchShift(16000, 12),
        lambda T: T.ComputeDeltas(7),
    ):
        expected = make(torchaudio.transforms)(torch.tensor(x)).detach().numpy()
        result = make(T)(mytorch.tensor(x)).numpy()
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.cpu_only
def test_programs_import_torchaudio():
    code = """
import importlib.machinery, importlib.util
import mytorch
mytorch.install_as_torch()
if importlib.machinery.PathFinder.find_spec("torchaudio") is None:
    assert importlib.util.find_spec("torchaudio") is None  # packages that look for torchaudio use their own code
import torch, torchaudio
import torchaudio.functional as F
from torchaudio.transforms import MelSpectrogram
assert torchaudio is mytorch.audio and torchaudio.__version__ == "2.11.0" and F is mytorch.audio.functional
assert MelSpectrogram(n_mels=32)(torch.randn(1, 4000)).shape == (1, 32, 21)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
