"""Audio transforms as modules, with torchaudio's names. `functional` contains the same operations as functions."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from .._tensor import Tensor
from ..base import dtypes
from ..compat.names import hann_window
from ..linalg import lstsq
from ..nn import Module
from ..ops.creation import as_tensor, linspace
from ..ops.random import randint
from . import functional as F

__all__ = [
    "LFCC",
    "MFCC",
    "AddNoise",
    "AmplitudeToDB",
    "ComputeDeltas",
    "Convolve",
    "Deemphasis",
    "FFTConvolve",
    "Fade",
    "FrequencyMasking",
    "GriffinLim",
    "InverseMelScale",
    "InverseSpectrogram",
    "MelScale",
    "MelSpectrogram",
    "MuLawDecoding",
    "MuLawEncoding",
    "PitchShift",
    "Preemphasis",
    "Resample",
    "SpecAugment",
    "SpectralCentroid",
    "Spectrogram",
    "Speed",
    "SpeedPerturbation",
    "TimeMasking",
    "TimeStretch",
    "Vol",
]  # fmt: skip

Window = Callable[..., Tensor]


class _Framed(Module):
    """Base class of the transforms that divide a waveform into frames, with the buffer `window`."""

    def _frame(self, n_fft, win_length, hop_length, window_fn, wkwargs):
        self.n_fft = n_fft
        self.win_length = n_fft if win_length is None else win_length
        self.hop_length = self.win_length // 2 if hop_length is None else hop_length
        self.register_buffer("window", window_fn(self.win_length, **(wkwargs or {})))


class Spectrogram(_Framed):
    """Computes the magnitudes of the spectra of windowed frames; see `functional.spectrogram`.

    Args:
        n_fft: number of samples in a frame.
        win_length: length of the window (default: n_fft).
        hop_length: number of samples between frames (default: win_length // 2).
        pad: number of zeros to add on both sides.
        window_fn: function of the length that returns the window.
        power: exponent of the magnitude; None returns the complex spectrum.
        normalized: "window" or True divides by the norm of the window, "frame_length" by sqrt(n_fft).
        wkwargs: other arguments of window_fn.
        center: center frame t at t * hop_length.
        pad_mode: mode of the padding for centered frames.
        onesided: return only the first n_fft // 2 + 1 frequencies.
        return_complex: ignored by torchaudio; must be None or True.

    Shape: (…, time) to (…, n_fft // 2 + 1, frames).

    Example:
        >>> mytorch.audio.transforms.Spectrogram(n_fft=64)(mytorch.ones(2, 320)).shape
        mytorch.Size([2, 33, 11])
    """

    def __init__(
        self, n_fft: int = 400, win_length: int | None = None, hop_length: int | None = None, pad: int = 0,
        window_fn: Window = hann_window, power: float | None = 2.0, normalized: bool | str = False,
        wkwargs: dict[str, Any] | None = None, center: bool = True, pad_mode: str = "reflect", onesided: bool = True,
        return_complex: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._frame(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.pad, self.power, self.normalized = pad, power, normalized
        self.center, self.pad_mode, self.onesided, self.return_complex = center, pad_mode, onesided, return_complex

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns the spectrogram.

        Args:
            waveform: (…, time).
        """
        frame = self.window, self.n_fft, self.hop_length, self.win_length
        options = self.center, self.pad_mode, self.onesided, self.return_complex
        return F.spectrogram(waveform, self.pad, *frame, self.power, self.normalized, *options)


class InverseSpectrogram(_Framed):
    """Computes the waveform with the closest complex spectrum; see `functional.inverse_spectrogram`.

    Args:
        n_fft: number of samples in a frame.
        win_length: length of the window (default: n_fft).
        hop_length: number of samples between frames (default: win_length // 2).
        pad: number of zeros that were added on both sides; they are removed if forward has a length.
        window_fn: function of the length that returns the window.
        normalized: normalization of the spectrogram.
        wkwargs: other arguments of window_fn.
        center: the frames are centered.
        pad_mode: ignored, as in torchaudio; the padding is removed.
        onesided: the spectrum has n_fft // 2 + 1 frequencies.
    """

    def __init__(
        self, n_fft: int = 400, win_length: int | None = None, hop_length: int | None = None, pad: int = 0,
        window_fn: Window = hann_window, normalized: bool | str = False, wkwargs: dict[str, Any] | None = None,
        center: bool = True, pad_mode: str = "reflect", onesided: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self._frame(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.pad, self.normalized, self.center, self.pad_mode, self.onesided = (
            pad,
            normalized,
            center,
            pad_mode,
            onesided,
        )

    def forward(self, spectrogram: Tensor, length: int | None = None) -> Tensor:
        """Returns the waveform (…, time).

        Args:
            spectrogram: complex (…, frequencies, frames).
            length: number of samples of the result, or None.
        """
        frame = self.window, self.n_fft, self.hop_length, self.win_length
        options = self.normalized, self.center, self.pad_mode, self.onesided
        return F.inverse_spectrogram(spectrogram, length, self.pad, *frame, *options)


class GriffinLim(_Framed):
    """Computes a waveform from a spectrogram of magnitudes; see `functional.griffinlim`.

    Args:
        n_fft: number of samples in a frame.
        n_iter: number of iterations.
        win_length: length of the window (default: n_fft).
        hop_length: number of samples between frames (default: win_length // 2).
        window_fn: function of the length that returns the window.
        power: exponent of the magnitudes.
        wkwargs: other arguments of window_fn.
        momentum: momentum of the fast algorithm, at least 0 and less than 1.
        length: number of samples of the result, or None.
        rand_init: start with random phases.
    """

    def __init__(
        self, n_fft: int = 400, n_iter: int = 32, win_length: int | None = None, hop_length: int | None = None,
        window_fn: Window = hann_window, power: float = 2.0, wkwargs: dict[str, Any] | None = None,
        momentum: float = 0.99, length: int | None = None, rand_init: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 <= momentum < 1:
            raise ValueError(f"GriffinLim: expected momentum from 0 to less than 1, got {momentum}.")
        self._frame(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.n_iter, self.power, self.momentum, self.length, self.rand_init = n_iter, power, momentum, length, rand_init

    def forward(self, specgram: Tensor) -> Tensor:
        """Returns the waveform (…, time).

        Args:
            specgram: magnitudes (…, frequencies, frames).
        """
        frame = self.window, self.n_fft, self.hop_length, self.win_length
        return F.griffinlim(specgram, *frame, self.power, self.n_iter, self.momentum, self.length, self.rand_init)


class SpectralCentroid(_Framed):
    """Computes the mean frequency of each frame; see `functional.spectral_centroid`.

    Args:
        sample_rate: samples per second.
        n_fft: number of samples in a frame.
        win_length: length of the window (default: n_fft).
        hop_length: number of samples between frames (default: win_length // 2).
        pad: number of zeros to add on both sides.
        window_fn: function of the length that returns the window.
        wkwargs: other arguments of window_fn.
    """

    def __init__(
        self, sample_rate: int, n_fft: int = 400, win_length: int | None = None, hop_length: int | None = None,
        pad: int = 0, window_fn: Window = hann_window, wkwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._frame(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.sample_rate, self.pad = sample_rate, pad

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns the frequencies (…, frames).

        Args:
            waveform: (…, time).
        """
        frame = self.window, self.n_fft, self.hop_length, self.win_length
        return F.spectral_centroid(waveform, self.sample_rate, self.pad, *frame)


class AmplitudeToDB(Module):
    """Converts powers or magnitudes to decibels; see `functional.amplitude_to_DB`.

    Args:
        stype: "power" or "magnitude".
        top_db: raise values that are more than top_db below the maximum.

    Raises:
        ValueError: if stype is unknown or top_db is negative.
    """

    def __init__(self, stype: str = "power", top_db: float | None = None) -> None:
        super().__init__()
        if stype not in ("power", "magnitude"):
            raise ValueError(f"AmplitudeToDB: expected stype 'power' or 'magnitude', got {stype!r}.")
        if top_db is not None and top_db < 0:
            raise ValueError(f"AmplitudeToDB: expected top_db None or at least 0, got {top_db}.")
        self.stype, self.top_db = stype, top_db
        self.multiplier = 10.0 if stype == "power" else 20.0
        self.amin, self.ref_value = 1e-10, 1.0
        self.db_multiplier = math.log10(max(self.amin, self.ref_value))

    def forward(self, x: Tensor) -> Tensor:
        """Returns decibels.

        Args:
            x: powers or magnitudes.
        """
        return F.amplitude_to_DB(x, self.multiplier, self.amin, self.db_multiplier, self.top_db)


class MelScale(Module):
    """Applies mel filters to a spectrogram; see `functional.melscale_fbanks`. The filters are the buffer `fb`.

    Args:
        n_mels: number of filters.
        sample_rate: samples per second.
        f_min: lowest frequency in hertz.
        f_max: highest frequency in hertz (default: sample_rate // 2).
        n_stft: number of frequencies of the spectrogram.
        norm: "slaney" or None.
        mel_scale: "htk" or "slaney".

    Shape: (…, n_stft, frames) to (…, n_mels, frames).

    Raises:
        ValueError: if f_min is greater than f_max.
    """

    def __init__(
        self, n_mels: int = 128, sample_rate: int = 16000, f_min: float = 0.0, f_max: float | None = None,
        n_stft: int = 201, norm: str | None = None, mel_scale: str = "htk",
    ) -> None:  # fmt: skip
        super().__init__()
        self.n_mels, self.sample_rate, self.norm, self.mel_scale = n_mels, sample_rate, norm, mel_scale
        self.f_min, self.f_max = f_min, float(sample_rate // 2) if f_max is None else f_max
        if f_min > self.f_max:
            raise ValueError(f"{type(self).__name__}: expected f_min <= f_max, got {f_min} and {self.f_max}.")
        self.register_buffer("fb", F.melscale_fbanks(n_stft, f_min, self.f_max, n_mels, sample_rate, norm, mel_scale))

    def forward(self, specgram: Tensor) -> Tensor:
        """Returns the sums of the filters.

        Args:
            specgram: (…, frequencies, frames).
        """
        return (specgram.transpose(-1, -2) @ self.fb).transpose(-1, -2)


class InverseMelScale(MelScale):
    """Estimates a spectrogram from mel sums, by least squares; negative values become 0.

    Args:
        n_stft: number of frequencies of the spectrogram.
        n_mels: number of filters.
        sample_rate: samples per second.
        f_min: lowest frequency in hertz.
        f_max: highest frequency in hertz (default: sample_rate // 2).
        norm: "slaney" or None.
        mel_scale: "htk" or "slaney".
        driver: algorithm of torchaudio, "gels", "gelsy", "gelsd" or "gelss". All give the solution of least norm here.

    Shape: (…, n_mels, frames) to (…, n_stft, frames).
    """

    def __init__(
        self, n_stft: int, n_mels: int = 128, sample_rate: int = 16000, f_min: float = 0.0, f_max: float | None = None,
        norm: str | None = None, mel_scale: str = "htk", driver: str = "gels",
    ) -> None:  # fmt: skip
        if driver not in ("gels", "gelsy", "gelsd", "gelss"):
            raise ValueError(f"InverseMelScale: expected driver 'gels', 'gelsy', 'gelsd' or 'gelss', got {driver!r}.")
        super().__init__(n_mels, sample_rate, f_min, f_max, n_stft, norm, mel_scale)
        self.n_stft, self.driver = n_stft, driver

    def forward(self, melspec: Tensor) -> Tensor:
        """Returns the spectrogram.

        Args:
            melspec: (…, n_mels, frames).
        """
        flat = melspec.reshape(-1, *melspec.shape[-2:])
        if flat.shape[1] != self.n_mels:
            raise ValueError(f"InverseMelScale: expected (…, {self.n_mels}, frames), got {tuple(melspec.shape)}.")
        driver = "gelsd" if self.fb.device.type == "cpu" else "gels"
        solution = lstsq(self.fb.transpose(-1, -2)[None].expand(len(flat), -1, -1), flat, driver=driver).solution
        return solution.relu().reshape(*melspec.shape[:-2], -1, melspec.shape[-1])


class MelSpectrogram(Module):
    """Computes a spectrogram on the mel scale: `Spectrogram`, then `MelScale`.

    Args:
        sample_rate: samples per second.
        n_fft: number of samples in a frame.
        win_length: length of the window (default: n_fft).
        hop_length: number of samples between frames (default: win_length // 2).
        f_min: lowest frequency in hertz.
        f_max: highest frequency in hertz (default: sample_rate // 2).
        pad: number of zeros to add on both sides.
        n_mels: number of filters.
        window_fn: function of the length that returns the window.
        power: exponent of the magnitude.
        normalized: divide by the norm of the window.
        wkwargs: other arguments of window_fn.
        center: center frame t at t * hop_length.
        pad_mode: mode of the padding for centered frames.
        onesided: ignored by torchaudio; must be None or True.
        norm: "slaney" or None.
        mel_scale: "htk" or "slaney".

    Shape: (…, time) to (…, n_mels, frames).

    Example:
        >>> mel = mytorch.audio.transforms.MelSpectrogram(8000, n_fft=256, n_mels=20)
        >>> mel(mytorch.ones(1, 8000)).shape
        mytorch.Size([1, 20, 63])
    """

    def __init__(
        self, sample_rate: int = 16000, n_fft: int = 400, win_length: int | None = None, hop_length: int | None = None,
        f_min: float = 0.0, f_max: float | None = None, pad: int = 0, n_mels: int = 128, window_fn: Window = hann_window,
        power: float = 2.0, normalized: bool = False, wkwargs: dict[str, Any] | None = None, center: bool = True,
        pad_mode: str = "reflect", onesided: bool | None = None, norm: str | None = None, mel_scale: str = "htk",
    ) -> None:  # fmt: skip
        super().__init__()
        if onesided is False:
            raise ValueError("MelSpectrogram: expected onesided None or True, got False. Mel filters use one side.")
        self.spectrogram = Spectrogram(
            n_fft, win_length, hop_length, pad, window_fn, power, normalized, wkwargs, center, pad_mode
        )
        self.sample_rate, self.n_fft, self.n_mels, self.f_min, self.f_max = sample_rate, n_fft, n_mels, f_min, f_max
        self.win_length, self.hop_length = self.spectrogram.win_length, self.spectrogram.hop_length
        self.pad, self.power, self.normalized = pad, power, normalized
        self.mel_scale = MelScale(n_mels, sample_rate, f_min, f_max, n_fft // 2 + 1, norm, mel_scale)

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns the mel spectrogram.

        Args:
            waveform: (…, time).
        """
        return self.mel_scale(self.spectrogram(waveform))


class _Cepstrum(Module):
    """Base class of MFCC and LFCC: decibels or logarithms of filter sums, and a cosine transform."""

    def _transform(self, count, filters, dct_type, norm, logarithm):
        if dct_type != 2:
            raise ValueError(f"{type(self).__name__}: expected dct_type 2, got {dct_type}.")
        if count > filters:
            raise ValueError(
                f"{type(self).__name__}: expected at most {filters} coefficients (number of filters), got {count}."
            )
        self.dct_type, self.norm, self.logarithm, self.top_db = dct_type, norm, logarithm, 80.0
        self.amplitude_to_DB = AmplitudeToDB("power", self.top_db)
        self.register_buffer("dct_mat", F.create_dct(count, filters, norm))

    def _coefficients(self, sums):
        sums = (sums + 1e-6).log() if self.logarithm else self.amplitude_to_DB(sums)
        return (sums.transpose(-1, -2) @ self.dct_mat).transpose(-1, -2)


class MFCC(_Cepstrum):
    """Computes mel-frequency cepstral coefficients.

    Args:
        sample_rate: samples per second.
        n_mfcc: number of coefficients.
        dct_type: type of the cosine transform; must be 2.
        norm: "ortho" or None.
        log_mels: use logarithms instead of decibels.
        melkwargs: arguments of `MelSpectrogram`.

    Shape: (…, time) to (…, n_mfcc, frames).

    Raises:
        ValueError: if n_mfcc is greater than the number of mel filters, or dct_type is not 2.
    """

    def __init__(
        self, sample_rate: int = 16000, n_mfcc: int = 40, dct_type: int = 2, norm: str = "ortho", log_mels: bool = False,
        melkwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sample_rate, self.n_mfcc, self.log_mels = sample_rate, n_mfcc, log_mels
        mel = MelSpectrogram(sample_rate, **(melkwargs or {}))
        self._transform(n_mfcc, mel.n_mels, dct_type, norm, log_mels)
        self.MelSpectrogram = mel

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns the coefficients.

        Args:
            waveform: (…, time).
        """
        return self._coefficients(self.MelSpectrogram(waveform))


class LFCC(_Cepstrum):
    """Computes cepstral coefficients of filters that are equally wide in hertz.

    Args:
        sample_rate: samples per second.
        n_filter: number of filters.
        f_min: lowest frequency in hertz.
        f_max: highest frequency in hertz (default: sample_rate // 2).
        n_lfcc: number of coefficients.
        dct_type: type of the cosine transform; must be 2.
        norm: "ortho" or None.
        log_lf: use logarithms instead of decibels.
        speckwargs: arguments of `Spectrogram`.

    Shape: (…, time) to (…, n_lfcc, frames).
    """

    def __init__(
        self, sample_rate: int = 16000, n_filter: int = 128, f_min: float = 0.0, f_max: float | None = None,
        n_lfcc: int = 40, dct_type: int = 2, norm: str = "ortho", log_lf: bool = False,
        speckwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sample_rate, self.n_filter, self.n_lfcc, self.log_lf = sample_rate, n_filter, n_lfcc, log_lf
        self.f_min, self.f_max = f_min, float(sample_rate // 2) if f_max is None else f_max
        spectrogram = Spectrogram(**(speckwargs or {}))
        filters = F.linear_fbanks(spectrogram.n_fft // 2 + 1, f_min, self.f_max, n_filter, sample_rate)
        self.register_buffer("filter_mat", filters)
        self._transform(n_lfcc, n_filter, dct_type, norm, log_lf)
        self.Spectrogram = spectrogram

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns the coefficients.

        Args:
            waveform: (…, time).
        """
        sums = (self.Spectrogram(waveform).transpose(-1, -2) @ self.filter_mat).transpose(-1, -2)
        return self._coefficients(sums)


class MuLawEncoding(Module):
    """Compresses a waveform to integers; see `functional.mu_law_encoding`.

    Args:
        quantization_channels: number of integers.
    """

    def __init__(self, quantization_channels: int = 256) -> None:
        super().__init__()
        self.quantization_channels = quantization_channels

    def forward(self, x: Tensor) -> Tensor:
        """Returns integers.

        Args:
            x: waveform with values from -1 to 1.
        """
        return F.mu_law_encoding(x, self.quantization_channels)


class MuLawDecoding(Module):
    """Expands integers to a waveform; see `functional.mu_law_decoding`.

    Args:
        quantization_channels: number of integers.
    """

    def __init__(self, quantization_channels: int = 256) -> None:
        super().__init__()
        self.quantization_channels = quantization_channels

    def forward(self, x_mu: Tensor) -> Tensor:
        """Returns a waveform.

        Args:
            x_mu: the integers.
        """
        return F.mu_law_decoding(x_mu, self.quantization_channels)


class Resample(Module):
    """Changes the number of samples per second; see `functional.resample`. The filter is computed once.

    Args:
        orig_freq: samples per second of the waveform.
        new_freq: samples per second of the result.
        resampling_method: "sinc_interp_hann" or "sinc_interp_kaiser".
        lowpass_filter_width: number of zero crossings on each side.
        rolloff: highest frequency of the filter, relative to the lower Nyquist frequency.
        beta: shape of the Kaiser window (default: 14.769656459379492).
        dtype: dtype of the filter (default: the default float dtype).
    """

    def __init__(
        self, orig_freq: int = 16000, new_freq: int = 16000, resampling_method: str = "sinc_interp_hann",
        lowpass_filter_width: int = 6, rolloff: float = 0.99, beta: float | None = None, *, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.orig_freq, self.new_freq, self.resampling_method = orig_freq, new_freq, resampling_method
        self.lowpass_filter_width, self.rolloff, self.beta = lowpass_filter_width, rolloff, beta
        options = lowpass_filter_width, rolloff, resampling_method, beta
        self._before, self._after, kernel, self._side = F._resampling(orig_freq, new_freq, *options)
        if self._before != self._after:
            dtype = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)
            self.register_buffer("kernel", as_tensor(kernel, dtype=dtype))

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns (…, ceil(time * new_freq / orig_freq)).

        Args:
            waveform: (…, time), of the dtype of the filter.
        """
        if self._before == self._after:
            return waveform
        return F._resample(waveform, self._before, self._after, self.kernel, self._side)


class Speed(Module):
    """Changes the speed of a waveform, and with it the pitch; see `functional.speed`.

    Args:
        orig_freq: samples per second.
        factor: factor of the speed.
    """

    def __init__(self, orig_freq: int, factor: float) -> None:
        super().__init__()
        self.orig_freq, self.factor = orig_freq, factor

    def forward(self, waveform: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Returns (result, lengths of the results).

        Args:
            waveform: (…, time).
            lengths: number of valid samples of each waveform, or None.
        """
        return F.speed(waveform, self.orig_freq, self.factor, lengths)


class SpeedPerturbation(Module):
    """Changes the speed by a randomly chosen factor.

    Args:
        orig_freq: samples per second.
        factors: the factors.

    Source: Ko et al., 2015.
    """

    def __init__(self, orig_freq: int, factors: Sequence[float]) -> None:
        super().__init__()
        self.orig_freq, self.factors = orig_freq, list(factors)

    def forward(self, waveform: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Returns (result, lengths of the results).

        Args:
            waveform: (…, time).
            lengths: number of valid samples of each waveform, or None.
        """
        factor = self.factors[int(randint(0, len(self.factors), (1,), device="cpu")[0])]
        return F.speed(waveform, self.orig_freq, factor, lengths)


class PitchShift(Module):
    """Changes the pitch of a waveform without changing its length; see `functional.pitch_shift`.

    Args:
        sample_rate: samples per second.
        n_steps: number of steps to raise the pitch.
        bins_per_octave: number of steps in an octave.
        n_fft: number of samples in a frame.
        win_length: length of the window (default: n_fft).
        hop_length: number of samples between frames (default: win_length // 4).
        window_fn: function of the length that returns the window.
        wkwargs: other arguments of window_fn.
    """

    def __init__(
        self, sample_rate: int, n_steps: int, bins_per_octave: int = 12, n_fft: int = 512, win_length: int | None = None,
        hop_length: int | None = None, window_fn: Window = hann_window, wkwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sample_rate, self.n_steps, self.bins_per_octave, self.n_fft = sample_rate, n_steps, bins_per_octave, n_fft
        self.win_length = n_fft if win_length is None else win_length
        self.hop_length = self.win_length // 4 if hop_length is None else hop_length
        self.register_buffer("window", window_fn(self.win_length, **(wkwargs or {})))

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns a waveform of the same shape.

        Args:
            waveform: (…, time).
        """
        frame = self.n_fft, self.win_length, self.hop_length, self.window
        return F.pitch_shift(waveform, self.sample_rate, self.n_steps, self.bins_per_octave, *frame)


class TimeStretch(Module):
    """Changes the speed of a complex spectrogram without changing its pitch; see `functional.phase_vocoder`.

    Args:
        hop_length: number of samples between frames (default: n_freq - 1).
        n_freq: number of frequencies.
        fixed_rate: factor of the speed, or None to pass it to each call.
    """

    def __init__(self, hop_length: int | None = None, n_freq: int = 201, fixed_rate: float | None = None) -> None:
        super().__init__()
        self.fixed_rate = fixed_rate
        hop_length = n_freq - 1 if hop_length is None else hop_length
        self.register_buffer("phase_advance", linspace(0, math.pi * hop_length, n_freq)[..., None])

    def forward(self, complex_specgrams: Tensor, overriding_rate: float | None = None) -> Tensor:
        """Returns the stretched spectrogram.

        Args:
            complex_specgrams: complex (…, frequencies, frames).
            overriding_rate: factor of the speed, instead of fixed_rate.

        Raises:
            ValueError: if no factor is given.
        """
        rate = self.fixed_rate if overriding_rate is None else overriding_rate
        if rate is None:
            raise ValueError(
                "TimeStretch: expected a factor of the speed, got None. Pass fixed_rate or overriding_rate."
            )
        return F.phase_vocoder(complex_specgrams, rate, self.phase_advance)


class Fade(Module):
    """Raises the volume at the start of a waveform, and lowers it at the end.

    Args:
        fade_in_len: number of samples at the start.
        fade_out_len: number of samples at the end.
        fade_shape: "linear", "exponential", "logarithmic", "quarter_sine" or "half_sine".

    Raises:
        ValueError: if fade_shape is unknown.
    """

    def __init__(self, fade_in_len: int = 0, fade_out_len: int = 0, fade_shape: str = "linear") -> None:
        super().__init__()
        if fade_shape not in _SHAPES:
            raise ValueError(f"Fade: expected fade_shape {', '.join(map(repr, _SHAPES))}, got {fade_shape!r}.")
        self.fade_in_len, self.fade_out_len, self.fade_shape = fade_in_len, fade_out_len, fade_shape

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns a waveform of the same shape.

        Args:
            waveform: (…, time).

        Raises:
            ValueError: if the waveform is shorter than one of the ramps.
        """
        length = waveform.shape[-1]
        if max(self.fade_in_len, self.fade_out_len) > length:
            raise ValueError(
                f"Fade: expected at least {max(self.fade_in_len, self.fade_out_len)} samples (fade_in_len, fade_out_len), "
                f"got {length}."
            )
        volume = waveform.new_ones(length)
        if self.fade_in_len:
            volume[: self.fade_in_len] *= self._ramp(self.fade_in_len, waveform)
        if self.fade_out_len:
            volume[length - self.fade_out_len :] *= self._ramp(self.fade_out_len, waveform).flip(0)
        return volume * waveform

    def _ramp(self, length, like):
        ramp = linspace(0, 1, length, dtype=like.dtype, device=like.device)
        return _SHAPES[self.fade_shape](ramp).clamp(0, 1)


_SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "exponential": lambda x: 2 ** (x - 1) * x,
    "logarithmic": lambda x: (0.1 + x).log10() + 1,
    "quarter_sine": lambda x: (x * math.pi / 2).sin(),
    "half_sine": lambda x: (x * math.pi - math.pi / 2).sin() / 2 + 0.5,
}


class Vol(Module):
    """Changes the volume of a waveform, and clips the result to [-1, 1].

    Args:
        gain: factor of the amplitude or of the power, or decibels.
        gain_type: "amplitude", "power" or "db".

    Raises:
        ValueError: if gain_type is unknown, or the factor is negative.
    """

    def __init__(self, gain: float, gain_type: str = "amplitude") -> None:
        super().__init__()
        if gain_type not in ("amplitude", "power", "db"):
            raise ValueError(f"Vol: expected gain_type 'amplitude', 'power' or 'db', got {gain_type!r}.")
        if gain_type != "db" and gain < 0:
            raise ValueError(f"Vol: expected gain >= 0 for gain_type {gain_type!r}, got {gain}.")
        if gain_type == "power" and gain == 0:
            raise ValueError("Vol: expected gain > 0 for gain_type 'power', got 0. Use gain_type 'amplitude'.")
        self.gain, self.gain_type = gain, gain_type

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns a waveform of the same shape.

        Args:
            waveform: (…, time).
        """
        if self.gain_type == "amplitude":
            return (waveform * self.gain).clamp(-1, 1)
        decibels = self.gain if self.gain_type == "db" else 10 * math.log10(self.gain)
        return F.gain(waveform, decibels).clamp(-1, 1)


class _Masking(Module):
    """Base class of FrequencyMasking and TimeMasking."""

    axis: int

    def __init__(self, mask_param: int, iid_masks: bool, p: float = 1.0) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: expected p from 0 to 1, got {p}.")
        self.mask_param, self.iid_masks, self.p = mask_param, iid_masks, p

    def forward(self, specgram: Tensor, mask_value: float | Tensor = 0.0) -> Tensor:
        """Returns a spectrogram with a masked range.

        Args:
            specgram: (…, frequencies, frames).
            mask_value: value of the range.
        """
        function: Any = F.mask_along_axis_iid if self.iid_masks else F.mask_along_axis
        return function(specgram, self.mask_param, mask_value, specgram.ndim + self.axis, self.p)


class FrequencyMasking(_Masking):
    """Replaces a random range of frequencies.

    Args:
        freq_mask_param: the range is shorter than this number.
        iid_masks: choose an independent range for each item.

    Source: Park et al., 2019.
    """

    axis = -2

    def __init__(self, freq_mask_param: int, iid_masks: bool = False) -> None:
        super().__init__(freq_mask_param, iid_masks)


class TimeMasking(_Masking):
    """Replaces a random range of frames.

    Args:
        time_mask_param: the range is shorter than this number.
        iid_masks: choose an independent range for each item.
        p: maximum fraction of the frames.

    Source: Park et al., 2019.
    """

    axis = -1

    def __init__(self, time_mask_param: int, iid_masks: bool = False, p: float = 1.0) -> None:
        super().__init__(time_mask_param, iid_masks, p)


class SpecAugment(Module):
    """Replaces random ranges of frames and of frequencies.

    Args:
        n_time_masks: number of ranges of frames.
        time_mask_param: a range of frames is shorter than this number.
        n_freq_masks: number of ranges of frequencies.
        freq_mask_param: a range of frequencies is shorter than this number.
        iid_masks: choose independent ranges for each item.
        p: maximum fraction of an axis for one range.
        zero_masking: replace by 0 instead of the mean of the spectrogram.

    Source: Park et al., 2019.
    """

    def __init__(
        self, n_time_masks: int, time_mask_param: int, n_freq_masks: int, freq_mask_param: int, iid_masks: bool = True,
        p: float = 1.0, zero_masking: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.n_time_masks, self.time_mask_param = n_time_masks, time_mask_param
        self.n_freq_masks, self.freq_mask_param = n_freq_masks, freq_mask_param
        self.iid_masks, self.p, self.zero_masking = iid_masks, p, zero_masking

    def forward(self, specgram: Tensor) -> Tensor:
        """Returns a spectrogram with masked ranges.

        Args:
            specgram: (…, frequencies, frames).
        """
        value: Any = 0.0 if self.zero_masking else specgram.mean()
        function: Any = F.mask_along_axis_iid if self.iid_masks and specgram.ndim > 2 else F.mask_along_axis
        for count, longest, axis in (
            (self.n_time_masks, self.time_mask_param, specgram.ndim - 1),
            (self.n_freq_masks, self.freq_mask_param, specgram.ndim - 2),
        ):
            for _ in range(count):
                specgram = function(specgram, longest, value, axis, self.p)
        return specgram


class ComputeDeltas(Module):
    """Computes the slope of each row of a spectrogram; see `functional.compute_deltas`.

    Args:
        win_length: number of frames, at least 3.
        mode: mode of the padding.
    """

    def __init__(self, win_length: int = 5, mode: str = "replicate") -> None:
        super().__init__()
        self.win_length, self.mode = win_length, mode

    def forward(self, specgram: Tensor) -> Tensor:
        """Returns the slopes, of the same shape.

        Args:
            specgram: (…, frequencies, frames).
        """
        return F.compute_deltas(specgram, self.win_length, self.mode)


class _Emphasis(Module):
    function: Callable[..., Tensor]

    def __init__(self, coeff: float = 0.97) -> None:
        super().__init__()
        self.coeff = coeff

    def forward(self, waveform: Tensor) -> Tensor:
        """Returns a waveform of the same shape.

        Args:
            waveform: (…, time).
        """
        return self.function(waveform, self.coeff)


class Preemphasis(_Emphasis):
    """Computes y[n] = x[n] - coeff * x[n - 1].

    Args:
        coeff: the coefficient.
    """

    function = staticmethod(F.preemphasis)


class Deemphasis(_Emphasis):
    """Computes y[n] = x[n] + coeff * y[n - 1], and clips the result to [-1, 1].

    Args:
        coeff: the coefficient.
    """

    function = staticmethod(F.deemphasis)


class Convolve(Module):
    """Convolves waveforms with sums; see `functional.convolve`.

    Args:
        mode: "full", "valid" or "same".
    """

    function: Callable[..., Tensor] = staticmethod(F.convolve)

    def __init__(self, mode: str = "full") -> None:
        super().__init__()
        if mode not in ("full", "valid", "same"):
            raise ValueError(f"{type(self).__name__}: expected mode 'full', 'valid' or 'same', got {mode!r}.")
        self.mode = mode

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the convolution.

        Args:
            x: (…, N).
            y: (…, M).
        """
        return self.function(x, y, self.mode)


class FFTConvolve(Convolve):
    """Convolves waveforms with Fourier transforms; see `functional.fftconvolve`.

    Args:
        mode: "full", "valid" or "same".
    """

    function = staticmethod(F.fftconvolve)


class AddNoise(Module):
    """Adds noise with a given ratio of the energies; see `functional.add_noise`."""

    def forward(self, waveform: Tensor, noise: Tensor, snr: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Returns a waveform of the same shape.

        Args:
            waveform: (…, time).
            noise: (…, time).
            snr: ratio in decibels, (…).
            lengths: number of valid samples of each waveform, or None.
        """
        return F.add_noise(waveform, noise, snr, lengths)
