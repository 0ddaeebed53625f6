"""Recursive filters of waveforms (…, time)."""

import math
from typing import Any

import numpy as np

from .._tensor import Tensor
from ..autograd.function import Function
from ..dispatch.unwrap import raw_of, to_cpu
from ..nn import functional as F
from ..ops.creation import as_tensor
from ..ops.movement import stack

_BLOCK = 256  # samples that one matrix product filters


class _Recursion(Function):
    """y[n] = x[n] - sum_k a[k] y[n - k], for rows (B, time) and coefficients (B, order) of each row."""

    @staticmethod
    def forward(ctx, x: Any, a: Any) -> Any:
        y = _recurse(x, a)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad: Any) -> Any:
        a, y = ctx.saved_tensors
        # The adjoint of the filter is the same filter, applied to the reversed time.
        back = _Recursion.apply(grad.flip(-1), a).flip(-1)
        order, length = a.shape[-1], y.shape[-1]
        delayed = F.pad(y, (order, 0))
        grads = [-(back * delayed[:, order - k : order - k + length]).sum(-1) for k in range(1, order + 1)]
        return back, stack(grads, -1)


def _recurse(x, a):
    """Run the recursion in blocks: one product for all blocks from zero states, and one small product for each block.

    The results are computed in float64 and rounded once.
    """
    rows, length = x.shape
    order = a.shape[1]
    block = max(min(_BLOCK, length), order)
    free, initial = _responses(to_cpu(raw_of(a)).astype(np.float64), block)
    free, initial = (as_tensor(m, device=x.device) for m in (free, initial))
    count = -(-length // block)
    parts = F.pad(x.double(), (0, count * block - length)).reshape(rows, count, block)
    out = parts @ free.transpose(1, 2)  # (rows, count, block), from zero states
    state, states = out[:, 0, -order:] * 0, []
    ends, step = out[:, :, -order:], initial[:, -order:].transpose(1, 2)
    for i in range(count):
        states.append(state)
        state = ends[:, i] + (state[:, None] @ step)[:, 0]
    out = out + stack(states, 1) @ initial.transpose(1, 2)
    return out.reshape(rows, count * block)[:, :length].to(x.dtype)


def _responses(a, block):
    """Return the matrices from a block of inputs (B, block, block) and from the previous outputs (B, block, order)."""
    rows, order = a.shape
    # The recursion for unit inputs: column 0 is an impulse, and column 1 + j is the previous output y[j - order].
    start = np.zeros((rows, order, 1 + order))
    start[:, :, 1:] = np.eye(order)
    history = np.concatenate([start, np.zeros((rows, block, 1 + order))], 1)
    for n in range(block):
        history[:, order + n] = -(a[:, :, None] * history[:, n : n + order][:, ::-1]).sum(1)
        if n == 0:
            history[:, order, 0] += 1
    impulse = history[:, order:, 0]
    delay = np.arange(block)[:, None] - np.arange(block)
    return np.where(delay >= 0, impulse[:, np.maximum(delay, 0)], 0.0), history[:, order:, 1:]


def lfilter(waveform: Tensor, a_coeffs: Tensor, b_coeffs: Tensor, clamp: bool = True, batching: bool = True) -> Tensor:
    """Applies a filter: a[0] y[n] = sum_k b[k] x[n - k] - sum_(k > 0) a[k] y[n - k].

    Args:
        waveform: (…, time).
        a_coeffs: coefficients of the outputs, (order + 1,), or (filters, order + 1) for several filters.
        b_coeffs: coefficients of the inputs, of the same shape.
        clamp: clip the result to [-1, 1].
        batching: for several filters, filter i is applied to channel i of (…, filters, time). If False, each filter is
            applied to the whole waveform.

    Returns:
        Tensor: (…, time), or (…, filters, time).

    Raises:
        ValueError: if the shapes do not match, or a[0] is 0.

    Example:
        >>> x = tensor([1.0, 0.0, 0.0, 0.0])
        >>> mytorch.audio.functional.lfilter(x, tensor([1.0, -0.5]), tensor([1.0, 0.0]))
        tensor([1.0000, 0.5000, 0.2500, 0.1250])
    """
    if a_coeffs.shape != b_coeffs.shape or a_coeffs.ndim not in (1, 2) or not a_coeffs.shape[-1]:
        raise ValueError(
            f"lfilter: expected a_coeffs and b_coeffs of one shape (order + 1,) or (filters, order + 1), got "
            f"{tuple(a_coeffs.shape)} and {tuple(b_coeffs.shape)}."
        )
    if not to_cpu(raw_of(a_coeffs))[..., 0].all():
        raise ValueError("lfilter: expected a_coeffs with a first coefficient different from 0, got 0.")
    several = a_coeffs.ndim == 2
    filters = a_coeffs.shape[0] if several else 1
    if several and batching and (waveform.ndim < 2 or waveform.shape[-2] != filters):
        raise ValueError(
            f"lfilter: expected a waveform (…, {filters}, time) for {filters} filters, got {tuple(waveform.shape)}. "
            "Use batching=False to apply all filters to one waveform."
        )
    lead, length = tuple(waveform.shape[:-1]), waveform.shape[-1]
    if several and not batching:
        waveform, lead = waveform[..., None, :].expand(*lead, filters, length), (*lead, filters)
    if not waveform.numel():
        return waveform.clone()
    rows = waveform.reshape(math.prod(lead) // filters, filters, length)
    a, b = (c.reshape(filters, -1) / a_coeffs.reshape(filters, -1)[:, :1] for c in (a_coeffs, b_coeffs))
    order = a.shape[1] - 1
    inputs = F.conv1d(F.pad(rows, (order, 0)), b.flip(-1)[:, None], groups=filters)
    each = a[:, 1:].expand(rows.shape[0], filters, order).reshape(rows.shape[0] * filters, order)
    out = _Recursion.apply(inputs.reshape(len(each), length), each) if order else inputs
    out = out.reshape(*lead, length)
    return out.clamp(-1.0, 1.0) if clamp else out


def filtfilt(waveform: Tensor, a_coeffs: Tensor, b_coeffs: Tensor, clamp: bool = True) -> Tensor:
    """Applies a filter forward and backward in time, so that the phase does not change.

    Args:
        waveform: (…, time).
        a_coeffs: coefficients of the outputs; see `lfilter`.
        b_coeffs: coefficients of the inputs.
        clamp: clip the result to [-1, 1].
    """
    forward = lfilter(waveform, a_coeffs, b_coeffs, clamp=False).flip(-1)
    return lfilter(forward, a_coeffs, b_coeffs, clamp).flip(-1)


def preemphasis(waveform: Tensor, coeff: float = 0.97) -> Tensor:
    """Computes y[n] = x[n] - coeff * x[n - 1], with y[0] = x[0].

    Args:
        waveform: (…, time).
        coeff: the coefficient.
    """
    return waveform - coeff * F.pad(waveform, (1, 0))[..., :-1]


def deemphasis(waveform: Tensor, coeff: float = 0.97) -> Tensor:
    """Computes y[n] = x[n] + coeff * y[n - 1], the inverse of `preemphasis`, and clips the result to [-1, 1].

    Args:
        waveform: (…, time).
        coeff: the coefficient.
    """
    a, b = (as_tensor(c, dtype=waveform.dtype, device=waveform.device) for c in ([1.0, -coeff], [1.0, 0.0]))
    return lfilter(waveform, a, b)


def gain(waveform: Tensor, gain_db: float = 1.0) -> Tensor:
    """Multiplies a waveform by 10 ** (gain_db / 20).

    Args:
        waveform: the waveform.
        gain_db: decibels.
    """
    return waveform if gain_db == 0 else waveform * 10 ** (gain_db / 20)


def biquad(waveform: Tensor, b0: Any, b1: Any, b2: Any, a0: Any, a1: Any, a2: Any) -> Tensor:
    """Applies a filter of order 2 and clips the result to [-1, 1]; see `lfilter`.

    Args:
        waveform: (…, time).
        b0: coefficient of x[n], a number or a 0-d tensor.
        b1: coefficient of x[n - 1].
        b2: coefficient of x[n - 2].
        a0: coefficient of y[n].
        a1: coefficient of y[n - 1].
        a2: coefficient of y[n - 2].
    """
    like = {"dtype": waveform.dtype, "device": waveform.device}
    a, b = (stack([as_tensor(c, **like).reshape(()) for c in three]) for three in ((a0, a1, a2), (b0, b1, b2)))
    return lfilter(waveform, a, b)


def _angle(waveform, sample_rate, frequency, Q):
    """Return (cos w, alpha, sin w) as tensors: w is the frequency in radians per sample, alpha = sin(w) / (2 Q)."""
    frequency, Q = (as_tensor(v, dtype=waveform.dtype, device=waveform.device) for v in (frequency, Q))
    w = 2 * math.pi * frequency / sample_rate
    return w.cos(), w.sin() / 2 / Q, w.sin()


_BIQUAD = """

    Args:
        waveform: (…, time).
        sample_rate: samples per second.
        {frequency}: {meaning} in hertz, a number or a tensor with a gradient.
        Q: quality factor; larger values are sharper.{more}

    Source: R. Bristow-Johnson, "Cookbook formulae for audio equalizer biquad filter coefficients".
    """


def _described(frequency="central_freq", meaning="center frequency", more=""):
    """Complete the docstring of a biquad filter."""

    def complete(function):
        function.__doc__ += _BIQUAD.format(frequency=frequency, meaning=meaning, more=more)
        return function

    return complete


@_described("cutoff_freq", "cutoff frequency")
def lowpass_biquad(
    waveform: Tensor, sample_rate: int, cutoff_freq: float | Tensor, Q: float | Tensor = 0.707
) -> Tensor:
    """Removes high frequencies."""
    cos, alpha, _ = _angle(waveform, sample_rate, cutoff_freq, Q)
    side = (1 - cos) / 2
    return biquad(waveform, side, 1 - cos, side, 1 + alpha, -2 * cos, 1 - alpha)


@_described("cutoff_freq", "cutoff frequency")
def highpass_biquad(
    waveform: Tensor, sample_rate: int, cutoff_freq: float | Tensor, Q: float | Tensor = 0.707
) -> Tensor:
    """Removes low frequencies."""
    cos, alpha, _ = _angle(waveform, sample_rate, cutoff_freq, Q)
    side = (1 + cos) / 2
    return biquad(waveform, side, -1 - cos, side, 1 + alpha, -2 * cos, 1 - alpha)


@_described(more="\n        const_skirt_gain: the maximum is Q instead of 1.")
def bandpass_biquad(
    waveform: Tensor, sample_rate: int, central_freq: float | Tensor, Q: float | Tensor = 0.707,
    const_skirt_gain: bool = False,
) -> Tensor:  # fmt: skip
    """Retains the frequencies around a center."""
    cos, alpha, sin = _angle(waveform, sample_rate, central_freq, Q)
    top = sin / 2 if const_skirt_gain else alpha
    return biquad(waveform, top, 0.0, -top, 1 + alpha, -2 * cos, 1 - alpha)


@_described()
def bandreject_biquad(
    waveform: Tensor, sample_rate: int, central_freq: float | Tensor, Q: float | Tensor = 0.707
) -> Tensor:
    """Removes the frequencies around a center."""
    cos, alpha, _ = _angle(waveform, sample_rate, central_freq, Q)
    return biquad(waveform, 1.0, -2 * cos, 1.0, 1 + alpha, -2 * cos, 1 - alpha)


@_described()
def allpass_biquad(
    waveform: Tensor, sample_rate: int, central_freq: float | Tensor, Q: float | Tensor = 0.707
) -> Tensor:
    """Changes the phases of frequencies and not their magnitudes."""
    cos, alpha, _ = _angle(waveform, sample_rate, central_freq, Q)
    return biquad(waveform, 1 - alpha, -2 * cos, 1 + alpha, 1 + alpha, -2 * cos, 1 - alpha)


@_described("center_freq", more="\n        gain: decibels at the center.")
def equalizer_biquad(
    waveform: Tensor, sample_rate: int, center_freq: float | Tensor, gain: float | Tensor, Q: float | Tensor = 0.707
) -> Tensor:
    """Raises or lowers the frequencies around a center."""
    cos, alpha, _ = _angle(waveform, sample_rate, center_freq, Q)
    factor = _root(waveform, gain)
    up, down = alpha * factor, alpha / factor
    return biquad(waveform, 1 + up, -2 * cos, 1 - up, 1 + down, -2 * cos, 1 - down)


def _root(waveform, gain):
    """Return the square root of the amplitude of a gain in decibels."""
    return 10 ** (as_tensor(gain, dtype=waveform.dtype, device=waveform.device) / 40)


def _shelf(waveform, sample_rate, gain, frequency, Q, sign):
    """Apply a shelf filter to low (sign 1) or high (sign -1) frequencies."""
    cos, alpha, _ = _angle(waveform, sample_rate, frequency, Q)
    factor, cos = _root(waveform, gain), sign * cos
    slope, low, high = 2 * factor.sqrt() * alpha, factor - 1, factor + 1
    b = factor * (high - low * cos + slope), sign * 2 * factor * (low - high * cos), factor * (high - low * cos - slope)
    a = high + low * cos + slope, sign * -2 * (low + high * cos), high + low * cos - slope
    return biquad(waveform, *b, *a)


@_described(more="\n        gain: decibels below the center.")
def bass_biquad(
    waveform: Tensor, sample_rate: int, gain: float | Tensor, central_freq: float | Tensor = 100,
    Q: float | Tensor = 0.707,
) -> Tensor:  # fmt: skip
    """Raises or lowers low frequencies."""
    return _shelf(waveform, sample_rate, gain, central_freq, Q, 1)


@_described(more="\n        gain: decibels above the center.")
def treble_biquad(
    waveform: Tensor, sample_rate: int, gain: float | Tensor, central_freq: float | Tensor = 3000,
    Q: float | Tensor = 0.707,
) -> Tensor:  # fmt: skip
    """Raises or lowers high frequencies."""
    return _shelf(waveform, sample_rate, gain, central_freq, Q, -1)


@_described(
    more="\n        noise: the input is noise instead of pitched sound, which selects a different width of the band."
)
def band_biquad(
    waveform: Tensor, sample_rate: int, central_freq: float | Tensor, Q: float | Tensor = 0.707, noise: bool = False
) -> Tensor:
    """Retains the frequencies around a center, as the effect `band` of SoX."""
    frequency, Q = (as_tensor(v, dtype=waveform.dtype, device=waveform.device) for v in (central_freq, Q))
    radius_squared = (-2 * math.pi * (frequency / Q) / sample_rate).exp()
    a1 = -4 * radius_squared / (1 + radius_squared) * (2 * math.pi * frequency / sample_rate).cos()
    b0 = (1 - a1 * a1 / (4 * radius_squared)).sqrt() * (1 - radius_squared)
    if noise:
        b0 = (((1 + radius_squared) ** 2 - a1 * a1) * (1 - radius_squared) / (1 + radius_squared)).sqrt()
    return biquad(waveform, b0, 0.0, 0.0, 1.0, a1, radius_squared)
