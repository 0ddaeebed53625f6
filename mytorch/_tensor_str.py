"""How tensors and arrays print.

The default is this library's own layout: five decimals, blanks between numbers, as its texts show it. `set_printoptions(layout="torch")`, or any of PyTorch's own options, switches to PyTorch's: commas,
four decimals, one column width for all. Both name the dtype where it is not the default one, and an empty tensor's size.
"""

import math

import numpy as np

from .backend import CPU, to_device
from .base import dtypes

_DEFAULTS = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_options = {"layout": "mytorch", **_DEFAULTS}


def set_printoptions(
    precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None, *, layout=None
):
    """Choose how tensors print.

    Args:
        precision, threshold, edgeitems, linewidth, sci_mode: PyTorch's options; giving one switches to its layout.
        profile: "default", "short" or "full".
        layout: "mytorch" or "torch".

    Raises:
        ValueError: another layout or profile.
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
    """Whether PyTorch's layout was chosen."""
    return _options["layout"] == "torch"


def format_tensor(tensor):
    """`tensor([[…]], requires_grad=True)`, with grad_fn or device where there are such."""
    suffix = []
    torch_layout = _options["layout"] == "torch"
    if tensor.device is not CPU:
        suffix.append(f"device='{tensor.device}'" if torch_layout else f"device={tensor.device}")
    empty = tensor.numel() == 0 or tensor.is_meta
    if empty and (tensor.ndim != 1 or not torch_layout):
        suffix.append(f"size={tuple(tensor.shape)}")
    if not _dtype_is_plain(tensor.dtype) or (empty and tensor.dtype is dtypes.int64):
        suffix.append(f"dtype={tensor.dtype if torch_layout else tensor.dtype.name}")
    if tensor.grad_fn is not None:
        suffix.append(f"grad_fn=<{tensor.grad_fn.name() if torch_layout else tensor.grad_fn.label}>")
    elif tensor.requires_grad:
        suffix.append("requires_grad=True")
    suffix += [f"tangent={t}" for t in getattr(tensor, "__dict__", {}).get("_tangents", {}).values()]
    if not torch_layout and tensor.device is not CPU:
        suffix = [*suffix[1:], suffix[0]]
    if tensor.is_meta:
        return "tensor(" + ", ".join(["...", *suffix]) + ")"
    numbers = _torch_numbers(tensor._data._array, 7) if torch_layout else _numbers(tensor._data._array, 7)
    return "tensor(" + ", ".join([numbers, *suffix]) + ")"


def _dtype_is_plain(dtype):
    own = dtypes.default_dtype()
    complex_own = dtypes.complex128 if own is dtypes.float64 else dtypes.complex64
    return dtype in (own, complex_own, dtypes.int64, dtypes.bool_)


def format_array(array):
    """`Array([[…]], dtype=float32)`; in PyTorch's layout as the tensor that it would be there."""
    if array.is_meta:
        return f"Array(..., size={tuple(array.shape)}, dtype={array.dtype.name}, device=meta)"
    if _options["layout"] == "torch":
        return format_tensor(array.detach())
    where = "" if array.device is CPU else f", device='{array.device}'"
    size = "" if array.numel() else f", size={tuple(array.shape)}"
    return f"Array({_numbers(array._array, 6)}{size}, dtype={array.dtype.name}{where})"


def _host(raw):
    host = to_device(raw, CPU)
    return host.astype(np.float32) if host.dtype.kind == "V" else host


def _numbers(raw, indent):
    text = np.array2string(_host(raw), separator=" ", precision=5, floatmode="fixed", max_line_width=80)
    return text.replace("\n", "\n" + " " * indent)


# -- PyTorch's layout --------------------------------------------------------------------------------------------------


class _Formatter:
    """How each number is written, and how wide the widest is; decided from the numbers that are shown."""

    def __init__(self, values):
        self.kind = values.dtype.kind
        self.whole, self.scientific, self.width = True, False, 1
        self.precision = _options["precision"]
        if self.kind not in "fc":
            self.width = max((len(str(v)) for v in values.reshape(-1).tolist()), default=1)
            return
        flat = np.abs(values[np.isfinite(values) & (values != 0)].astype(np.float64))
        if flat.size == 0:
            self.width = max((len(self(v)) for v in values.reshape(-1).tolist()), default=1)
            return
        self.whole = bool((flat == np.ceil(flat)).all())
        low, high = float(flat.min()), float(flat.max())
        self.scientific = high / low > 1000.0 or high > 1.0e8 or (low < 1.0e-4 and not self.whole)
        if _options["sci_mode"] is not None:
            self.scientific = _options["sci_mode"]
        finite = values[np.isfinite(values) & (values != 0)]  # the others don't widen the columns
        self.width = max(len(self(v)) for v in finite.tolist())

    def __call__(self, value):
        if self.kind == "b" or self.kind in "iu":
            return str(value)
        if self.kind == "c":
            return f"{value.real:.{self.precision}f}{value.imag:+.{self.precision}f}j"
        if self.scientific:
            return f"{value:.{self.precision}e}"
        if self.whole:
            return f"{value:.0f}" + ("" if not math.isfinite(value) else ".")
        return f"{value:.{self.precision}f}"


def _torch_numbers(raw, indent):
    values = _host(raw)
    if values.size == 0:
        return "[]"
    summarise = values.size > _options["threshold"]
    shown = values
    if summarise:
        edge = _options["edgeitems"]
        for axis, n in enumerate(values.shape):
            if n > 2 * edge:
                shown = shown.take([*range(edge), *range(n - edge, n)], axis)
    write = _Formatter(shown)
    if values.ndim == 0:
        return write(values.item())
    return _rows(values, write, indent, summarise)


def _rows(values, write, indent, summarise):
    edge = _options["edgeitems"]
    n = values.shape[0]
    cut = summarise and n > 2 * edge
    if values.ndim == 1:
        items = values[:edge].tolist() + ["..."] + values[-edge:].tolist() if cut else values.tolist()
        cells = [" ..." if v == "..." else write(v).rjust(write.width) for v in items]
        per_line = max(1, math.floor((_options["linewidth"] - indent) / (write.width + 2)))
        lines = [", ".join(cells[i : i + per_line]) for i in range(0, len(cells), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    parts = [
        _rows(values[i], write, indent + 1, summarise)
        for i in (range(n) if not cut else [*range(edge), *range(n - edge, n)])
    ]
    if cut:
        parts.insert(edge, "...")
    return "[" + ("," + "\n" * (values.ndim - 1) + " " * (indent + 1)).join(parts) + "]"
