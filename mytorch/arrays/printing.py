"""Text representation of tensors and arrays.

The default layout has five decimals and blanks between numbers. `set_printoptions(layout="torch")`, or another print
option of PyTorch, selects PyTorch's layout, with commas, four decimals, and columns of the same width
(`compat/tensor_str.py`). Both layouts show the dtype if it is not the default, and the size of an empty tensor.
"""

import math
import sys

import numpy as np

from . import CPU, dtypes, to_device
from .memory_format import layout_of, strided

_DEFAULTS = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_options = {"layout": "mytorch", **_DEFAULTS}


def set_printoptions(
    precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None, *, layout=None
):
    """Sets the text representation of tensors. All options except `layout` select PyTorch's layout.

    Args:
        precision: number of decimals (default: 4).
        threshold: number of elements above which a tensor is summarized (default: 1000).
        edgeitems: number of elements at both ends of each dimension in a summary (default: 3).
        linewidth: characters per line (default: 80).
        profile: "default", "short" or "full", which set the options above.
        sci_mode: True for scientific notation, False for decimal notation (default: depends on the values).
        layout: "mytorch" or "torch".

    Raises:
        ValueError: `layout` or `profile` has another value.

    Example:
        >>> mytorch.set_printoptions(precision=2)
        >>> mytorch.tensor([1.0, 0.5])
        tensor([1.00, 0.50])
        >>> mytorch.set_printoptions(profile="default", layout="mytorch")
    """
    if layout not in (None, "mytorch", "torch"):
        raise ValueError(f"set_printoptions: layout is {layout!r}; expected 'mytorch' or 'torch'.")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    given = {k: v for k, v in given.items() if v is not None}
    if profile is not None:
        profiles = {
            "default": _DEFAULTS,
            "short": {**_DEFAULTS, "precision": 2, "edgeitems": 2},
            "full": {**_DEFAULTS, "threshold": math.inf},
        }
        if profile not in profiles:
            raise ValueError(f"set_printoptions: profile is {profile!r}; expected one of {', '.join(profiles)}.")
        _options.update(profiles[profile])
    _options.update(given)
    if sci_mode is not None or profile is not None:
        _options["sci_mode"] = sci_mode
    if layout is not None:
        _options["layout"] = layout
    elif given or profile is not None or sci_mode is not None:
        _options["layout"] = "torch"


def in_torch_layout():
    """Returns True if PyTorch's layout is selected."""
    return _options["layout"] == "torch"


def tangents_of(tensor):
    """Returns the tangents of a tensor in forward mode. A view has the tangents of its base."""
    base = getattr(tensor, "_base", None)
    levels = {
        **getattr(base, "__dict__", {}).get("_tangents", {}),
        **getattr(tensor, "__dict__", {}).get("_tangents", {}),
    }
    return [t for t in (level.tangent(tensor) for level in levels) if t is not None]


def format_tensor(tensor):
    """Returns text such as `tensor([[…]], requires_grad=True)`, with `grad_fn` and device if necessary."""
    if layout_of(tensor._mt_data._array) is not strided:
        return tensor._mt_data._array.text(tensor)
    if _options["layout"] == "torch":
        return sys.modules["mytorch"]._torch_layout.format_tensor(tensor)
    suffix = []
    empty = tensor.numel() == 0 or tensor.is_meta
    if empty:
        suffix.append(f"size={tuple(tensor.shape)}")
    if not dtype_is_plain(tensor.dtype) or (empty and tensor.dtype is dtypes.int64):
        suffix.append(f"dtype={tensor.dtype.name}")
    if tensor.grad_fn is not None:
        suffix.append(f"grad_fn=<{tensor.grad_fn.label}>")
    elif tensor.requires_grad:
        suffix.append("requires_grad=True")
    suffix += [f"tangent={t}" for t in tangents_of(tensor)]
    if tensor.device is not CPU:
        suffix.append(f"device={tensor.device}")
    text = "..." if tensor.is_meta else _numbers(tensor._mt_data._array, 7)
    return f"tensor({', '.join([text, *suffix])})"


def dtype_is_plain(dtype):
    """Returns True for a dtype that printed tensors do not show."""
    own = dtypes.default_dtype()
    complex_own = dtypes.complex128 if own is dtypes.float64 else dtypes.complex64
    return dtype in (own, complex_own, dtypes.int64, dtypes.bool_)


def format_array(array):
    """Returns text such as `Array([[…]], dtype=float32)`. In PyTorch's layout, an Array looks like a tensor."""
    if array.is_meta:
        return f"Array(..., size={tuple(array.shape)}, dtype={array.dtype.name}, device=meta)"
    if _options["layout"] == "torch" or layout_of(array._array) is not strided:
        return format_tensor(array.detach())
    where = "" if array.device is CPU else f", device='{array.device}'"
    size = "" if array.numel() else f", size={tuple(array.shape)}"
    return f"Array({_numbers(array._array, 6)}{size}, dtype={array.dtype.name}{where})"


def to_host(raw):
    """Returns an array in the memory of the CPU, with a dtype that NumPy can print."""
    host = to_device(raw, CPU)
    return host.astype(np.float32) if host.dtype.kind == "V" else host


def _numbers(raw, indent):
    text = np.array2string(to_host(raw), separator=" ", precision=5, floatmode="fixed", max_line_width=80)
    return text.replace("\n", "\n" + " " * indent)
