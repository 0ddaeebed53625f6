"""`torch.ops.load_library` for the compiled libraries of torchvision and torchaudio.

The files are never opened. Their operators are functions of this library.
"""

import os
from pathlib import Path

import numpy as np

from ..autograd import grad as gradients
from ..autograd.mode import enable_grad
from ..ops import library, regions
from ..ops.creation import as_tensor, zeros_like
from ..ops.dispatch.unwrap import raw_of, to_cpu

_BLOCK = 256  # samples that one matrix product filters
loaded_libraries = set()


def load_library(path):
    """Registers the operators of a compiled library, which are known by the name of its file.

    Args:
        path: path of the file, such as ".../torchvision/_C.so".

    Raises:
        OSError: the library has no operators here.
    """
    path = Path(path)
    name = f"{path.parent.name}/{path.name.partition('.')[0]}"
    if name not in _LIBRARIES:
        raise OSError(
            f"load_library: expected one of {', '.join(_LIBRARIES)}, got {os.fspath(path)!r}. mytorch cannot load compiled libraries; "
            "register the operators with torch.library.custom_op."
        )
    for operator, function in _LIBRARIES[name].items():
        if f"{operator}" not in library._OPERATORS:
            library.CustomOpDef(operator, function)
    loaded_libraries.add(os.fspath(path))


def _deform_conv2d(
    input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, n_weight_grps, n_offset_grps, use_mask
):  # fmt: skip
    options = (stride_h, stride_w), (pad_h, pad_w), (dil_h, dil_w)
    return regions.deform_conv2d(input, offset, weight, bias, *options, mask=mask if use_mask else None)


def _deform_conv2d_backward(
    grad, input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups,
    use_mask,
):  # fmt: skip
    options = stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask
    with enable_grad():
        leaves = [x.detach().requires_grad_() for x in (input, weight, offset, mask, bias)]
        found = gradients(_deform_conv2d(*leaves, *options), leaves, grad, allow_unused=True)
    return tuple(zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True))


def _lfilter_core_loop(input_signal_windows, a_coeffs_flipped, padded_output_waveform):
    a = to_cpu(raw_of(a_coeffs_flipped)).astype(np.float64)[:, -2::-1]  # without the first coefficient, which is 1
    signal, output = to_cpu(raw_of(input_signal_windows)), padded_output_waveform
    order, length = a.shape[1], signal.shape[2]
    before = to_cpu(raw_of(output))[:, :, :order]
    filtered = _recurse(signal, a, before) if order and length else signal
    output[:, :, order:] = as_tensor(filtered.astype(signal.dtype), device=output.device)


def _overdrive_core_loop(waveform, temp, last_in, last_out, output_waveform):
    signal, last_in, last_out = (to_cpu(raw_of(x)) for x in (temp, last_in, last_out))
    steps = np.diff(signal, axis=1, prepend=last_in[:, None])
    filtered = _recurse(steps[:, None], np.array([[-0.995]]), last_out[:, None, None])[:, 0]
    output_waveform.copy_(waveform * 0.5 + as_tensor(filtered.astype(signal.dtype), device=waveform.device) * 0.75)


def _recurse(x, a, before):
    """Computes y[t] = x[t] - sum_k a[k] y[t - 1 - k] in float64 for x (N, channels, time).

    Blocks of samples are filtered by a product with the impulse response. A small product for each block adds the response to the
    results before the block.

    Args:
        x: the signal.
        a: coefficients (channels, order).
        before: results before the first, (N, channels, order).
    """
    count, channels, length = x.shape
    order = a.shape[1]
    block = max(min(_BLOCK, length), order)
    free, initial = _responses(a, block)  # (channels, block, block), (channels, block, order)
    blocks = -(-length // block)
    parts = np.zeros((channels, count, blocks * block))
    parts[:, :, :length] = x.transpose(1, 0, 2)
    parts = parts.reshape(channels, count * blocks, block) @ free.transpose(0, 2, 1)
    out = parts.reshape(channels, count, blocks, block)
    state = before.transpose(1, 0, 2)
    for i in range(blocks):
        out[:, :, i] += state @ initial.transpose(0, 2, 1)
        state = out[:, :, i, -order:]
    return out.reshape(channels, count, blocks * block)[:, :, :length].transpose(1, 0, 2)


def _responses(a, block):
    """Returns the matrices from a block of inputs (channels, block, block) and from the previous outputs (channels, block, order)."""
    channels, order = a.shape
    # The recursion for unit inputs: column 0 is an impulse, and column 1 + j is the previous output y[j - order].
    start = np.zeros((channels, order, 1 + order))
    start[:, :, 1:] = np.eye(order)
    history = np.concatenate([start, np.zeros((channels, block, 1 + order))], 1)
    for n in range(block):
        history[:, order + n] = -(a[:, :, None] * history[:, n : n + order][:, ::-1]).sum(1)
        if n == 0:
            history[:, order, 0] += 1
    impulse = history[:, order:, 0]
    delay = np.arange(block)[:, None] - np.arange(block)
    return np.where(delay >= 0, impulse[:, np.maximum(delay, 0)], 0.0), history[:, order:, 1:]


_POOLED = "roi_align ps_roi_align ps_roi_pool roi_pool"
_VISION = {name: getattr(regions, name) for name in ("nms", *_POOLED.split())}
_VISION |= {f"_{name}_backward": getattr(regions, f"{name}_backward") for name in _POOLED.split()}
_VISION |= {"deform_conv2d": _deform_conv2d, "_deform_conv2d_backward": _deform_conv2d_backward}
_VISION |= {"_cuda_version": lambda: -1, "qnms": None, "qroi_align": None}  # no quantized tensors
_AUDIO = {"_lfilter_core_loop": _lfilter_core_loop, "_overdrive_core_loop": _overdrive_core_loop}
# Folder and name of the file -> {operator: function}; None for an operator without an implementation.
_LIBRARIES = {
    "torchvision/_C": {f"torchvision::{name}": function for name, function in _VISION.items()},
    "lib/_torchaudio": {"_torchaudio::cuda_version": lambda: None, "_torchaudio::is_align_available": lambda: False},
    "lib/libtorchaudio": {f"torchaudio::{name}": function for name, function in _AUDIO.items()},
}
