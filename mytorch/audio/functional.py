"""Audio operations as functions: spectrograms, mel scales, resampling, masks and companding. Filters are in `filtering`.

A waveform is a tensor (…, time), a spectrogram a tensor (…, frequencies, frames). Every function accepts any number of
leading axes and is differentiable, unless its docstring excludes gradients.
"""

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import fft
from .._tensor import Tensor
from ..base import dtypes
from ..compat.functional import istft, stft
from ..nn import functional as F
from ..ops.complex import angle, polar
from ..ops.creation import as_tensor
from ..ops.elementwise import maximum, where
from ..ops.movement import cat
from ..ops.random import rand
from .filtering import (
    allpass_biquad,
    band_biquad,
    bandpass_biquad,
    bandreject_biquad,
    bass_biquad,
    biquad,
    deemphasis,
    equalizer_biquad,
    filtfilt,
    gain,
    highpass_biquad,
    lfilter,
    lowpass_biquad,
    preemphasis,
    treble_biquad,
)

__all__ = [
    "DB_to_amplitude", "add_noise", "allpass_biquad", "amplitude_to_DB", "band_biquad", "bandpass_biquad", "bandreject_biquad",
    "bass_biquad", "biquad", "compute_deltas", "convolve", "create_dct", "deemphasis", "edit_distance", "equalizer_biquad",
    "fftconvolve", "filtfilt", "gain", "griffinlim", "highpass_biquad", "inverse_spectrogram", "lfilter", "linear_fbanks",
    "lowpass_biquad", "mask_along_axis", "mask_along_axis_iid", "melscale_fbanks", "mu_law_decoding", "mu_law_encoding",
    "phase_vocoder", "pitch_shift", "preemphasis", "resample", "spectral_centroid", "spectrogram", "speed", "treble_biquad",
]  # fmt: skip


# -- spectrograms --------------------------------------------------------------------------------------------------


def _normalization(normalized, name):
    """Return "window", "frame_length" or None for the argument `normalized`."""
    if normalized in (True, False):
        return "window" if normalized else None
    if normalized not in ("window", "frame_length"):
        raise ValueError(f"{name}: expected normalized to be a bool, 'window' or 'frame_length', got {normalized!r}.")
    return normalized


def spectrogram(
    waveform: Tensor, pad: int, window: Tensor, n_fft: int, hop_length: int, win_length: int, power: float | None,
    normalized: bool | str, center: bool = True, pad_mode: str = "reflect", onesided: bool = True,
    return_complex: bool | None = None,
) -> Tensor:  # fmt: skip
    """Computes |STFT(waveform)| ** power, or the complex spectrum.

    Args:
        waveform: (…, time).
        pad: number of zeros to add on both sides.
        window: (win_length,).
        n_fft: number of samples in a frame.
        hop_length: number of samples between frames.
        win_length: length of the window.
        power: exponent of the magnitude, such as 1 or 2; None returns the complex spectrum.
        normalized: "window" or True divides by the norm of the window, "frame_length" by sqrt(n_fft).
        center: center frame t at t * hop_length, with padding.
        pad_mode: mode of this padding; see `nn.functional.pad`.
        onesided: return only the first n_fft // 2 + 1 frequencies.
        return_complex: ignored by torchaudio; must be None or True.

    Shape: (…, time) to (…, frequencies, frames).

    Returns:
        Tensor: real, or complex if power is None.

    Example:
        >>> wave, window = mytorch.ones(2, 400), mytorch.hann_window(64)
        >>> mytorch.audio.functional.spectrogram(wave, 0, window, 64, 32, 64, 2.0, False).shape
        mytorch.Size([2, 33, 13])
    """
    if return_complex is False:
        raise ValueError(
            "spectrogram: expected return_complex None or True, got False. Use .view_as_real() on the result."
        )
    form = _normalization(normalized, "spectrogram")
    flat = F.pad(waveform, (pad, pad)).reshape(-1, waveform.shape[-1] + 2 * pad)
    out = stft(
        flat, n_fft, hop_length, win_length, window, center, pad_mode, form == "frame_length", onesided, return_complex=True
    )  # fmt: skip
    out = out.reshape(*waveform.shape[:-1], *out.shape[-2:])
    if form == "window":
        out = out / window.square().sum().sqrt()
    if power is None:
        return out
    return out.abs() if power == 1 else out.abs() ** power


def inverse_spectrogram(
    spectrogram: Tensor, length: int | None, pad: int, window: Tensor, n_fft: int, hop_length: int, win_length: int,
    normalized: bool | str, center: bool = True, pad_mode: str = "reflect", onesided: bool = True,
) -> Tensor:  # fmt: skip
    """Computes the waveform with the closest complex spectrum (least squares over overlapping frames).

    Args:
        spectrogram: complex (…, frequencies, frames).
        length: number of samples of the result, or None.
        pad: number of zeros that were added on both sides; they are removed if length is not None.
        window: (win_length,).
        n_fft: number of samples in a frame.
        hop_length: number of samples between frames.
        win_length: length of the window.
        normalized: normalization of the spectrogram; see `spectrogram`.
        center: the frames are centered.
        pad_mode: ignored, as in torchaudio; the padding is removed.
        onesided: the spectrum has n_fft // 2 + 1 frequencies.

    Raises:
        ValueError: if the spectrum is not complex.
    """
    form = _normalization(normalized, "inverse_spectrogram")
    if not spectrogram.dtype.is_complex:
        raise ValueError(
            f"inverse_spectrogram: expected a complex spectrogram, got {spectrogram.dtype}. Compute it with power=None."
        )
    if form == "window":
        spectrogram = spectrogram * window.square().sum().sqrt()
    flat = spectrogram.reshape(-1, *spectrogram.shape[-2:])
    total = None if length is None else length + 2 * pad
    out = istft(flat, n_fft, hop_length, win_length, window, center, form == "frame_length", onesided, total)
    if pad > 0 and length is not None:
        out = out[:, pad:-pad]
    return out.reshape(*spectrogram.shape[:-2], out.shape[-1])


def griffinlim(
    specgram: Tensor, window: Tensor, n_fft: int, hop_length: int, win_length: int, power: float, n_iter: int,
    momentum: float, length: int | None, rand_init: bool,
) -> Tensor:  # fmt: skip
    """Computes a waveform from a spectrogram of magnitudes. Source: Griffin and Lim, 1984; Perraudin et al., 2013.

    Args:
        specgram: (…, frequencies, frames).
        window: (win_length,).
        n_fft: number of samples in a frame.
        hop_length: number of samples between frames.
        win_length: length of the window.
        power: exponent of the magnitudes in specgram.
        n_iter: number of iterations.
        momentum: momentum of the fast algorithm, at least 0 and less than 1.
        length: number of samples of the result, or None.
        rand_init: start with random phases.

    Raises:
        ValueError: if momentum is out of range.
    """
    if not 0 <= momentum < 1:
        raise ValueError(f"griffinlim: expected momentum from 0 to less than 1, got {momentum}.")
    momentum = momentum / (1 + momentum)
    shape = specgram.shape
    magnitude = specgram.reshape(-1, *shape[-2:]) ** (1 / power)
    kind = dtypes.complex128 if magnitude.dtype is dtypes.float64 else dtypes.complex64
    noise = (
        rand(*magnitude.shape, dtype=kind, device=magnitude.device) if rand_init else magnitude.new_ones(()).to(kind)
    )
    phase, before = noise.expand(magnitude.shape), None
    for _ in range(n_iter):
        wave = istft(magnitude * phase, n_fft, hop_length, win_length, window, length=length)
        rebuilt = stft(wave, n_fft, hop_length, win_length, window, return_complex=True)
        phase = rebuilt if before is None or momentum == 0 else rebuilt - before * momentum
        phase, before = phase / (phase.abs() + 1e-16), rebuilt
    wave = istft(magnitude * phase, n_fft, hop_length, win_length, window, length=length)
    return wave.reshape(*shape[:-2], wave.shape[-1])


def spectral_centroid(
    waveform: Tensor, sample_rate: int, pad: int, window: Tensor, n_fft: int, hop_length: int, win_length: int
) -> Tensor:
    """Computes the mean frequency of each frame, weighted by magnitude.

    Args:
        waveform: (…, time).
        sample_rate: samples per second.
        pad: number of zeros to add on both sides.
        window: (win_length,).
        n_fft: number of samples in a frame.
        hop_length: number of samples between frames.
        win_length: length of the window.

    Shape: (…, time) to (…, frames).
    """
    magnitude = spectrogram(waveform, pad, window, n_fft, hop_length, win_length, 1.0, False)
    hertz = _like(np.linspace(0, sample_rate // 2, n_fft // 2 + 1)[:, None], magnitude)
    return (hertz * magnitude).sum(-2) / magnitude.sum(-2)


def phase_vocoder(complex_specgrams: Tensor, rate: float, phase_advance: Tensor) -> Tensor:
    """Changes the speed of a complex spectrogram without changing its pitch.

    Args:
        complex_specgrams: complex (…, frequencies, frames).
        rate: factor of the speed; 2 returns half of the frames.
        phase_advance: expected change of the phase between frames, (frequencies, 1).

    Returns:
        Tensor: complex (…, frequencies, ceil(frames / rate)).
    """
    if rate == 1.0:
        return complex_specgrams
    if not rate > 0:
        raise ValueError(f"phase_vocoder: expected rate > 0, got {rate}.")
    frames = complex_specgrams.shape[-1]
    steps = np.arange(0, frames, rate)
    index, padded = steps.astype(np.int64), F.pad(complex_specgrams, (0, 2))
    first, second = padded[..., index], padded[..., index + 1]
    advance = angle(second) - angle(first) - phase_advance
    advance = advance - 2 * math.pi * (advance / (2 * math.pi)).round() + phase_advance
    phase = cat([angle(complex_specgrams[..., :1]), advance[..., :-1]], -1).cumsum(-1)
    share = _like(steps % 1.0, phase)
    return polar(share * second.abs() + (1 - share) * first.abs(), phase)


# -- scales of frequencies and of loudness -------------------------------------------------------------------------


def _like(values, tensor):
    return as_tensor(values, dtype=tensor.dtype, device=tensor.device)


_LINEAR, _LOG_START, _LOG_STEP = 200 / 3, 1000.0, math.log(6.4) / 27  # Slaney's scale: linear below 1000 Hz


def _mel(hertz, scale):
    hertz = np.asarray(hertz, np.float64)
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    high = _LOG_START / _LINEAR + np.log(np.maximum(hertz, _LOG_START) / _LOG_START) / _LOG_STEP
    return np.where(hertz < _LOG_START, hertz / _LINEAR, high)


def _hertz(mels, scale):
    if scale == "htk":
        return 700 * (10 ** (mels / 2595) - 1)
    knee = _LOG_START / _LINEAR
    return np.where(mels < knee, mels * _LINEAR, _LOG_START * np.exp(_LOG_STEP * (np.maximum(mels, knee) - knee)))


def _triangles(frequencies, corners):
    """Return filters (frequencies, len(corners) - 2), which rise from a corner to the next one and fall to the one after."""
    slopes = corners - frequencies[:, None]
    widths = np.diff(corners)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))


def melscale_fbanks(
    n_freqs: int, f_min: float, f_max: float, n_mels: int, sample_rate: int, norm: str | None = None,
    mel_scale: str = "htk",
) -> Tensor:  # fmt: skip
    """Computes triangular filters that are equally wide on the mel scale.

    Args:
        n_freqs: number of frequencies from 0 to sample_rate // 2.
        f_min: lowest frequency in hertz.
        f_max: highest frequency in hertz.
        n_mels: number of filters.
        sample_rate: samples per second.
        norm: "slaney" divides each filter by its width, so that all filters have the same area.
        mel_scale: "htk": 2595 log10(1 + f / 700), or "slaney": linear below 1000 Hz, logarithmic above.

    Returns:
        Tensor: (n_freqs, n_mels). `spectrogram.transpose(-1, -2) @ filters` applies the filters.

    Raises:
        ValueError: if norm or mel_scale is unknown.

    Example:
        >>> mytorch.audio.functional.melscale_fbanks(5, 0.0, 4000.0, 2, 8000).shape
        mytorch.Size([5, 2])
    """
    if norm not in (None, "slaney"):
        raise ValueError(f"melscale_fbanks: expected norm None or 'slaney', got {norm!r}.")
    if mel_scale not in ("htk", "slaney"):
        raise ValueError(f"melscale_fbanks: expected mel_scale 'htk' or 'slaney', got {mel_scale!r}.")
    low, high = _mel([f_min, f_max], mel_scale)
    corners = _hertz(np.linspace(low, high, n_mels + 2), mel_scale)
    filters = _triangles(np.linspace(0, sample_rate // 2, n_freqs), corners)
    if norm == "slaney":
        filters = filters * (2 / (corners[2:] - corners[:-2]))
    if not filters.max(0, initial=0).all():
        warnings.warn(
            f"melscale_fbanks: at least one mel filter is zero. The number of filters, {n_mels}, may be too large, "
            f"or the number of frequencies, {n_freqs}, too small.",
            stacklevel=2,
        )
    return as_tensor(filters, dtype=dtypes.default_dtype())


def linear_fbanks(n_freqs: int, f_min: float, f_max: float, n_filter: int, sample_rate: int) -> Tensor:
    """Computes triangular filters that are equally wide in hertz.

    Args:
        n_freqs: number of frequencies from 0 to sample_rate // 2.
        f_min: lowest frequency in hertz.
        f_max: highest frequency in hertz.
        n_filter: number of filters.
        sample_rate: samples per second.

    Returns:
        Tensor: (n_freqs, n_filter).
    """
    frequencies = np.linspace(0, sample_rate // 2, n_freqs)
    return as_tensor(_triangles(frequencies, np.linspace(f_min, f_max, n_filter + 2)), dtype=dtypes.default_dtype())


def create_dct(n_mfcc: int, n_mels: int, norm: str | None) -> Tensor:
    """Computes the matrix of the discrete cosine transform (type 2), (n_mels, n_mfcc).

    Args:
        n_mfcc: number of coefficients.
        n_mels: number of inputs.
        norm: "ortho" for an orthogonal transform, or None.

    Raises:
        ValueError: if norm is unknown.
    """
    if norm not in (None, "ortho"):
        raise ValueError(f"create_dct: expected norm None or 'ortho', got {norm!r}.")
    matrix = np.cos(math.pi / n_mels * (np.arange(n_mels)[:, None] + 0.5) * np.arange(n_mfcc))
    if norm is None:
        matrix *= 2
    else:
        matrix[:, :1] *= math.sqrt(0.5)
        matrix *= math.sqrt(2 / n_mels)
    return as_tensor(matrix, dtype=dtypes.default_dtype())


def amplitude_to_DB(
    x: Tensor, multiplier: float, amin: float, db_multiplier: float, top_db: float | None = None
) -> Tensor:
    """Computes multiplier * (log10(max(x, amin)) - db_multiplier): decibels.

    Args:
        x: amplitudes or powers.
        multiplier: 10 for powers, 20 for amplitudes.
        amin: smallest value of x to distinguish.
        db_multiplier: log10 of the reference value.
        top_db: raise values that are more than top_db below the maximum. For four axes, each item has its own maximum.

    Example:
        >>> mytorch.audio.functional.amplitude_to_DB(tensor([1.0, 0.1, 0.0]), 10.0, 1e-10, 0.0, 80.0)
        tensor([  0., -10., -80.])
    """
    out = multiplier * x.clamp(min=amin).log10() - multiplier * db_multiplier
    if top_db is None:
        return out
    channels = x.shape[-3] if x.ndim > 2 else 1
    blocks = out.reshape(-1, channels, *x.shape[-2:])
    return maximum(blocks, blocks.amax((-3, -2, -1), keepdim=True) - top_db).reshape(x.shape)


def DB_to_amplitude(x: Tensor, ref: float, power: float) -> Tensor:
    """Computes ref * (10 ** (x / 10)) ** power, from decibels.

    Args:
        x: decibels.
        ref: reference value.
        power: 1 returns powers, 0.5 amplitudes.
    """
    return ref * (10.0 ** (0.1 * x)) ** power


def mu_law_encoding(x: Tensor, quantization_channels: int) -> Tensor:
    """Compresses a waveform to integers from 0 to quantization_channels - 1. It has no gradient.

    Args:
        x: waveform with values from -1 to 1.
        quantization_channels: number of integers.

    Example:
        >>> mytorch.audio.functional.mu_law_encoding(tensor([-1.0, 0.0, 0.5, 1.0]), 256)
        tensor([  0, 128, 239, 255])
    """
    if not x.is_floating_point():
        x = x.to(dtypes.default_dtype())
    mu = quantization_channels - 1.0
    compressed = x.sign() * (mu * x.abs()).log1p() / math.log1p(mu)
    return ((compressed + 1) / 2 * mu + 0.5).to(dtypes.int64)


def mu_law_decoding(x_mu: Tensor, quantization_channels: int) -> Tensor:
    """Expands integers of `mu_law_encoding` to a waveform.

    Args:
        x_mu: integers from 0 to quantization_channels - 1.
        quantization_channels: number of integers.
    """
    if not x_mu.is_floating_point():
        x_mu = x_mu.to(dtypes.default_dtype())
    mu = quantization_channels - 1.0
    x = x_mu / mu * 2 - 1.0
    return x.sign() * ((x.abs() * math.log1p(mu)).exp() - 1.0) / mu


def compute_deltas(specgram: Tensor, win_length: int = 5, mode: str = "replicate") -> Tensor:
    """Computes the slope of each row over win_length frames.

    Args:
        specgram: (…, frequencies, frames).
        win_length: number of frames, at least 3.
        mode: mode of the padding; see `nn.functional.pad`.

    Raises:
        ValueError: if win_length is less than 3.
    """
    if win_length < 3:
        raise ValueError(f"compute_deltas: expected win_length >= 3, got {win_length}.")
    n = (win_length - 1) // 2
    weights = _like(np.arange(-n, n + 1) / (n * (n + 1) * (2 * n + 1) / 3), specgram).reshape(1, 1, -1)
    rows = F.pad(specgram.reshape(1, -1, specgram.shape[-1]), (n, n), mode=mode)
    return F.conv1d(rows.transpose(0, 1), weights).reshape(specgram.shape)


# -- resampling ----------------------------------------------------------------------------------------------------


@functools.lru_cache(64)
def _sinc_kernel(before, after, width, rolloff, method, beta):
    """Return the filters (after, 1, taps) of a change of the rate from `before` to `after`, and the padding on the left."""
    cutoff = min(before, after) * rolloff
    side = math.ceil(width * before / cutoff)
    kernel = np.empty((after, 1, 2 * side + before), np.float64)
    block = max(1, 2**20 // kernel.shape[-1])
    for start in range(0, after, block):  # rows in blocks limit the temporary memory
        rows = np.arange(start, min(start + block, after))[:, None, None]
        # The time of each tap relative to each new sample, in zero crossings of the sinc function.
        time = np.clip((np.arange(-side, side + before) / before - rows / after) * cutoff, -width, width)
        if method == "sinc_interp_hann":
            window = np.cos(time * math.pi / width / 2) ** 2
        else:
            window = np.i0(beta * np.sqrt(1 - (time / width) ** 2)) / np.i0(beta)
        kernel[start : start + block] = np.sinc(time) * window * (cutoff / before)
    return kernel, side


def _resampling(orig_freq, new_freq, width, rolloff, method, beta):
    """Check the arguments of `resample`, and return the reduced rates with the kernel and its padding."""
    if not (int(orig_freq) == orig_freq > 0 and int(new_freq) == new_freq > 0):
        raise ValueError(f"resample: expected positive integer frequencies, got {orig_freq} and {new_freq}.")
    if width <= 0:
        raise ValueError(f"resample: expected lowpass_filter_width > 0, got {width}.")
    if not 0 < rolloff <= 1:
        raise ValueError(f"resample: expected rolloff above 0 and at most 1, got {rolloff}.")
    if method not in ("sinc_interp_hann", "sinc_interp_kaiser"):
        raise ValueError(
            f"resample: expected resampling_method 'sinc_interp_hann' or 'sinc_interp_kaiser', got {method!r}."
        )
    common = math.gcd(int(orig_freq), int(new_freq))
    before, after = int(orig_freq) // common, int(new_freq) // common
    beta = 14.769656459379492 if beta is None else float(beta)
    # Large filters, of rates without a common divisor, are not cached.
    compute = _sinc_kernel if before * after <= 2**20 else _sinc_kernel.__wrapped__
    return before, after, *compute(before, after, width, float(rolloff), method, beta)


def _resample(waveform, before, after, kernel, side):
    length = waveform.shape[-1]
    flat = F.pad(waveform.reshape(-1, 1, length), (side, side + before))
    out = F.conv1d(flat, kernel, stride=before).transpose(1, 2)
    out = out.reshape(flat.shape[0], -1)[:, : -(-after * length // before)]
    return out.reshape(*waveform.shape[:-1], out.shape[-1])


def resample(
    waveform: Tensor, orig_freq: int, new_freq: int, lowpass_filter_width: int = 6, rolloff: float = 0.99,
    resampling_method: str = "sinc_interp_hann", beta: float | None = None,
) -> Tensor:  # fmt: skip
    """Changes the number of samples per second, with windowed sinc interpolation.

    Args:
        waveform: (…, time).
        orig_freq: samples per second of the waveform.
        new_freq: samples per second of the result.
        lowpass_filter_width: number of zero crossings of the sinc function on each side; more are sharper and slower.
        rolloff: highest frequency of the filter, relative to the lower Nyquist frequency.
        resampling_method: window of the sinc function, "sinc_interp_hann" or "sinc_interp_kaiser".
        beta: shape of the Kaiser window (default: 14.769656459379492).

    Returns:
        Tensor: (…, ceil(time * new_freq / orig_freq)).

    Raises:
        TypeError: if the waveform is not a float tensor.
        ValueError: if an argument is out of range.

    Example:
        >>> mytorch.audio.functional.resample(mytorch.ones(2, 16000), 16000, 11025).shape
        mytorch.Size([2, 11025])
    """
    if not waveform.is_floating_point():
        raise TypeError(f"resample: expected a float waveform, got {waveform.dtype}. Convert it with .float().")
    before, after, kernel, side = _resampling(
        orig_freq, new_freq, lowpass_filter_width, rolloff, resampling_method, beta
    )
    return waveform if before == after else _resample(waveform, before, after, _like(kernel, waveform), side)


def speed(
    waveform: Tensor, orig_freq: int, factor: float, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Changes the speed of a waveform, and with it the pitch: (result, lengths of the results).

    Args:
        waveform: (…, time).
        orig_freq: samples per second.
        factor: factor of the speed.
        lengths: number of valid samples of each waveform, or None.
    """
    source, target = int(factor * orig_freq), int(orig_freq)
    common = math.gcd(source, target)
    source, target = source // common, target // common
    if lengths is not None:
        lengths = (lengths * target / source).ceil().to(lengths.dtype)
    return resample(waveform, source, target), lengths


def pitch_shift(
    waveform: Tensor, sample_rate: int, n_steps: int, bins_per_octave: int = 12, n_fft: int = 512,
    win_length: int | None = None, hop_length: int | None = None, window: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Changes the pitch of a waveform without changing its length.

    Args:
        waveform: (…, time).
        sample_rate: samples per second.
        n_steps: number of steps to raise the pitch; negative numbers lower it.
        bins_per_octave: number of steps in an octave.
        n_fft: number of samples in a frame.
        win_length: length of the window (default: n_fft).
        hop_length: number of samples between frames (default: win_length // 4).
        window: (win_length,) (default: a Hann window).
    """
    from ..compat.names import hann_window

    win_length = n_fft if win_length is None else win_length
    hop_length = win_length // 4 if hop_length is None else hop_length
    window = _like(hann_window(win_length), waveform) if window is None else window
    length, rate = waveform.shape[-1], 2.0 ** (-n_steps / bins_per_octave)
    flat = waveform.reshape(-1, length)
    spectrum = stft(flat, n_fft, hop_length, win_length, window, return_complex=True)
    advance = _like(np.linspace(0, math.pi * hop_length, spectrum.shape[-2])[:, None], waveform)
    stretched = phase_vocoder(spectrum, rate, advance)
    out = istft(stretched, n_fft, hop_length, win_length, window, length=round(length / rate))
    out = resample(out, int(sample_rate / rate), sample_rate)[:, :length]
    out = F.pad(out, (0, length - out.shape[-1]))
    return out.reshape(waveform.shape)


# -- masks and mixtures --------------------------------------------------------------------------------------------


def _checked_axis(axis, ndim, least, name):
    if ndim < least:
        raise ValueError(f"{name}: expected a spectrogram with at least {least} axes, got {ndim}.")
    if axis % ndim not in (ndim - 2, ndim - 1) or not -ndim <= axis < ndim:
        raise ValueError(f"{name}: expected axis {ndim - 2} (frequencies) or {ndim - 1} (frames), got {axis}.")
    return axis % ndim - ndim


def _mask(specgram, mask_param, mask_value, axis, p, shape, name):
    """Replace a random range of an axis; `shape` is the shape of the independent random numbers."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: expected p from 0 to 1, got {p}.")
    size = specgram.shape[axis]
    longest = mask_param if p == 1.0 else min(mask_param, int(size * p))
    if longest < 1:
        return specgram
    like = {"device": specgram.device, "dtype": specgram.dtype if specgram.is_floating_point() else dtypes.float32}
    width = rand(shape, **like) * longest
    start = rand(shape, **like) * (size - width)
    start, width = start.to(dtypes.int64), width.to(dtypes.int64)
    index = as_tensor(np.arange(size), device=specgram.device)
    mask = (index >= start[..., None]) & (index < (start + width)[..., None])
    mask = mask[..., None, :] if axis == -1 else mask[..., :, None]
    return (
        where(mask, mask_value, specgram) if isinstance(mask_value, Tensor) else specgram.masked_fill(mask, mask_value)
    )


def mask_along_axis(specgram: Tensor, mask_param: int, mask_value: float, axis: int, p: float = 1.0) -> Tensor:
    """Replaces a random range of frequencies or frames, the same for all items.

    Args:
        specgram: (…, frequencies, frames).
        mask_param: the range is shorter than this number.
        mask_value: new value.
        axis: one of the last two axes.
        p: maximum fraction of the axis.

    Raises:
        ValueError: if axis or p is out of range.
    """
    axis = _checked_axis(axis, specgram.ndim, 2, "mask_along_axis")
    return _mask(specgram, mask_param, mask_value, axis, p, (1,), "mask_along_axis").reshape(specgram.shape)


def mask_along_axis_iid(
    specgrams: Tensor, mask_param: int, mask_value: float | Tensor, axis: int, p: float = 1.0
) -> Tensor:
    """Replaces a random range of frequencies or frames in each item independently.

    Args:
        specgrams: (…, frequencies, frames), with at least three axes.
        mask_param: a range is shorter than this number.
        mask_value: new value.
        axis: one of the last two axes.
        p: maximum fraction of the axis.

    Raises:
        ValueError: if axis or p is out of range.
    """
    axis = _checked_axis(axis, specgrams.ndim, 3, "mask_along_axis_iid")
    return _mask(specgrams, mask_param, mask_value, axis, p, tuple(specgrams.shape[:-2]), "mask_along_axis_iid")


def _matching(x, y, mode, name):
    if x.ndim != y.ndim or any(a != b and 1 not in (a, b) for a, b in zip(x.shape[:-1], y.shape[:-1], strict=True)):
        raise ValueError(f"{name}: expected leading axes that broadcast, got {tuple(x.shape)} and {tuple(y.shape)}.")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"{name}: expected mode 'full', 'valid' or 'same', got {mode!r}.")
    if not x.shape[-1] or not y.shape[-1]:
        raise ValueError(f"{name}: expected at least one sample, got {tuple(x.shape)} and {tuple(y.shape)}.")


def _trimmed(full, n, m, mode):
    length = {"full": n + m - 1, "valid": max(n, m) - min(n, m) + 1, "same": n}[mode]
    start = (full.shape[-1] - length) // 2
    return full[..., start : start + length]


def fftconvolve(x: Tensor, y: Tensor, mode: str = "full") -> Tensor:
    """Convolves waveforms along the last axis, with Fourier transforms.

    Args:
        x: (…, N).
        y: (…, M).
        mode: "full" (N + M - 1 samples), "valid" (max(N, M) - min(N, M) + 1) or "same" (N).

    Raises:
        ValueError: if the shapes do not broadcast, or mode is unknown.
    """
    _matching(x, y, mode, "fftconvolve")
    n = x.shape[-1] + y.shape[-1] - 1
    full = fft.irfft(fft.rfft(x, n) * fft.rfft(y, n), n)
    return _trimmed(full, x.shape[-1], y.shape[-1], mode)


def convolve(x: Tensor, y: Tensor, mode: str = "full") -> Tensor:
    """Convolves waveforms along the last axis, with sums.

    Args:
        x: (…, N).
        y: (…, M).
        mode: "full" (N + M - 1 samples), "valid" (max(N, M) - min(N, M) + 1) or "same" (N).

    Raises:
        ValueError: if the shapes do not broadcast, or mode is unknown.
    """
    _matching(x, y, mode, "convolve")
    n, m = x.shape[-1], y.shape[-1]
    lead = np.broadcast_shapes(tuple(x.shape[:-1]), tuple(y.shape[:-1]))
    long, short = (x, y) if n >= m else (y, x)
    count = math.prod(lead)
    long = long.expand(*lead, max(n, m)).reshape(1, count, max(n, m))
    short = short.expand(*lead, min(n, m)).reshape(count, 1, min(n, m)).flip(-1)
    full = F.conv1d(long, short, padding=min(n, m) - 1, groups=count)
    return _trimmed(full.reshape(*lead, n + m - 1), n, m, mode)


def add_noise(waveform: Tensor, noise: Tensor, snr: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Adds noise with a given ratio of the energies.

    Args:
        waveform: (…, time).
        noise: (…, time).
        snr: energy of the waveform divided by energy of the noise, in decibels, (…).
        lengths: number of valid samples of each waveform, (…), or None.

    Raises:
        ValueError: if the shapes do not match.
    """
    shapes = [tuple(x.shape[:-1]) for x in (waveform, noise)] + [
        tuple(x.shape) for x in (snr, lengths) if x is not None
    ]
    if len(set(shapes)) > 1 or waveform.shape[-1] != noise.shape[-1]:
        raise ValueError(
            f"add_noise: expected equal shapes of waveform and noise, and snr and lengths of shape {shapes[0]}, got noise "
            f"{tuple(noise.shape)} and {shapes[2:]}."
        )
    signal, other = waveform, noise
    if lengths is not None:
        valid = as_tensor(np.arange(waveform.shape[-1]), device=waveform.device) < lengths[..., None]
        signal, other = waveform * valid, noise * valid
    ratio = 10 * (signal.square().sum(-1).log10() - other.square().sum(-1).log10())
    return waveform + 10 ** ((ratio - snr) / 20)[..., None] * noise


def edit_distance(seq1: Sequence[Any], seq2: Sequence[Any]) -> int:
    """Computes the smallest number of insertions, deletions and substitutions between two sequences (Levenshtein).

    Args:
        seq1: first sequence.
        seq2: second sequence.

    Example:
        >>> mytorch.audio.functional.edit_distance("kitten", "sitting")
        3
    """
    row = list(range(len(seq2) + 1))
    for i, a in enumerate(seq1):
        before, row = row, [i + 1]
        for j, b in enumerate(seq2):
            row.append(min(before[j] + (a != b), before[j + 1] + 1, row[j] + 1))
    return row[-1]
