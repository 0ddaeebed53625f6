"""Padding with constants, reflections, edge values or wrap-around. Negative widths crop."""

import numpy as np

from ..arrays import Namespace, config, dtypes
from .dispatch.bind import public_function
from .dispatch.op import op
from .dispatch.precision import in_precision
from .indexing import read_along
from .movement import laid_out_as


@op(dtype="same", name="pad")
def _pad(xp, input, *, widths, value=0.0):
    if not isinstance(xp, Namespace):
        return xp.pad(input, widths, constant_values=input.dtype.type(value))
    shape = [n + before + behind for n, (before, behind) in zip(input.shape, widths, strict=True)]
    # Faster than NumPy's `pad`.
    out = xp.full(shape, input.dtype.type(value), input.dtype) if value else xp.zeros(shape, input.dtype)
    out[tuple(slice(before, before + n) for n, (before, _) in zip(input.shape, widths, strict=True))] = input
    return out


@op(dtype="same", name="unpad")
def _unpad(xp, g, *, widths):
    """Returns a copy of the inner part of a padded array."""
    return g[tuple(slice(a, n - b) for (a, b), n in zip(widths, g.shape, strict=True))].copy("K")


_pad.grad(input=lambda g, widths, xp: xp.call(_unpad, g, widths=widths))
_unpad.grad(g=lambda g, widths, xp: xp.call(_pad, g, widths=widths))

_MODES = {"reflect": "reflect", "replicate": None, "circular": "wrap"}


@public_function
def pad(input, pad, mode="constant", value=None):
    """Pads a tensor along its last axes.

    Args:
        pad: widths (last axis before, last axis after, second to last axis before, …). Negative widths crop.
        mode: "constant" (default), "reflect", "replicate" or "circular".
        value: fill value of mode "constant" (default: 0).

    Raises:
        RuntimeError: an odd number of widths, too many widths for the axes, or a width that is too large for the mode.
        NotImplementedError: an unknown mode.

    Example:
        >>> F.pad(tensor([1.0, 2.0]), (1, 2), value=9.0).tolist()
        [9.0, 1.0, 2.0, 9.0, 9.0]
        >>> F.pad(tensor([[1.0, 2.0, 3.0]]), (2, 0), mode="reflect").tolist()
        [[3.0, 2.0, 1.0, 2.0, 3.0]]

    See also: `nn.ZeroPad2d`, `nn.ReflectionPad2d`.
    """
    widths, given = [int(w) for w in pad], input
    if len(widths) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(widths) // 2 > input.ndim:
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but got padding length {len(widths)} and input of dimension {input.ndim}"
        )
    if mode not in ("constant", *_MODES):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    pairs = [(0, 0)] * (input.ndim - len(widths) // 2) + list(zip(widths[-2::-2], widths[::-2], strict=True))
    d = len(widths) // 2
    if config.pytorch_mode and mode != "constant" and not (0 < d < 4 and input.ndim in (d + 1, d + 2)):
        raise NotImplementedError(
            f"pad: expected an input of {d + 1} or {d + 2} dimensions for {len(widths)} widths in mode {mode}, got {input.ndim}."
        )
    if mode == "replicate":
        return laid_out_as(given, _replicated.get(d, _replicate)(input, pairs)) if any(widths) else input.clone()
    if mode == "reflect" and 0 in input.shape[-d - 1 :]:
        raise RuntimeError(
            f"Expected {d + 1}D or {d + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
            f"input, but got: {list(input.shape)}"
        )
    if any(w < 0 for w in widths):
        crop = tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, input.shape, strict=True))
        if any(s.stop < s.start for s in crop):
            raise RuntimeError(f"pad: expected widths that crop at most the shape {tuple(input.shape)}, got {widths}.")
        input = input[crop]
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if not any(a or b for a, b in pairs):
        return input.clone()
    if mode == "constant":
        value = 0.0 if value is None else value
        if type(value) is complex and input.dtype.numpy.kind != "c":
            raise TypeError("pad(): argument 'value' (position 4) must be float, not complex")
        if type(value) is int and value < 0 and input.dtype.numpy.kind == "u":
            raise RuntimeError(f"value cannot be converted to type {input.dtype.name}_t without overflow")
        value = dtypes.fitting(value, input.dtype)
        return laid_out_as(input, _pad(input, widths=tuple(pairs), value=value))
    for (a, b), n in zip(pairs, input.shape, strict=True):
        limit = n - 1 if mode == "reflect" else n
        if (a or b) and max(a, b) > limit:
            raise RuntimeError(
                f"Padding size should be less than the corresponding input dimension, but got: padding ({a}, {b}) for a size of {n} in mode {mode}"
            )
    if mode == "reflect":
        return laid_out_as(given, _reflected.get(d, _select)(input, pairs, _MODES[mode]))
    return _select(input, pairs, _MODES[mode])


def _replicate(input, pairs):
    """Crops and copies at once: positions past an end read the end."""
    for axis, (a, b) in enumerate(pairs):
        if a or b:
            if input.shape[axis] == 0:
                raise RuntimeError(
                    f"Expected a non-empty axis to replicate, but got input of shape {list(input.shape)}"
                )
            order = np.arange(-a, input.shape[axis] + b).clip(0, input.shape[axis] - 1)
            input = read_along(input, axis, order)
    return input


def _select(input, pairs, mode):
    """Selects the elements of each axis by index, in the order of `np.pad`."""
    for axis, (a, b) in enumerate(pairs):
        if a or b:
            input = read_along(input, axis, np.pad(np.arange(input.shape[axis]), (a, b), mode=mode))
    return input


_replicated = {d: in_precision(name=f"replication_pad{d}d")(_replicate) for d in (1, 2, 3)}
_reflected = {d: in_precision(name=f"reflection_pad{d}d")(_select) for d in (1, 2)}
