"""PyTorch's layout of printed tensors, which `set_printoptions(layout="torch")` selects.

The text is equal to the text of PyTorch, character by character.
"""

import math

import numpy as np

from ..arrays import CPU, config, dtypes
from ..arrays.printing import _options, dtype_is_plain, tangents_of, to_host


def format_tensor(tensor):
    """Returns text such as `tensor([[...]], requires_grad=True)`, with `grad_fn` and device if necessary."""
    return _str_intern(tensor)


def _str_intern(tensor, *, tensor_contents=None):
    """Returns the text of a tensor. `tensor_contents` replaces the text of the numbers."""
    cls = type(tensor)
    prefix = "tensor(" if config.is_own(cls) else f"{cls.__name__}("
    suffixes = []
    if tensor.device is not CPU:
        suffixes.append(f"device='{tensor.device}'")
    empty = tensor.numel() == 0 or tensor.is_meta
    if tensor.is_meta or (empty and tensor.ndim != 1) or not _options["edgeitems"]:
        suffixes.append(f"size={tuple(tensor.shape)}")
    if not dtype_is_plain(tensor.dtype) or (empty and tensor.dtype is not dtypes.default_dtype()):
        suffixes.append(f"dtype={tensor.dtype}")
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    suffixes += [f"tangent={t}" for t in tangents_of(tensor)]
    text = tensor_contents or ("..." if tensor.is_meta else _tensor_str(tensor, len(prefix)))
    return _with_suffixes(prefix + text, suffixes, len(prefix))


def _tensor_str(self, indent):
    """Returns the text of the numbers of a tensor, without "tensor(" and suffixes."""
    return _numbers(to_host(self._mt_data._array), indent)


class _PrintOptions:
    """The print options that `set_printoptions` sets, as attributes."""

    def __getattr__(self, name):
        if name not in _options or name == "layout":
            raise AttributeError(f"'PrinterOptions' object has no attribute {name!r}")
        return _options[name]

    def __setattr__(self, name, value):
        if name not in _options or name == "layout":
            raise AttributeError(f"'PrinterOptions' object has no attribute {name!r}")
        _options[name] = value


PRINT_OPTS = _PrintOptions()


def _add_suffixes(tensor_str, suffixes, indent, force_newline=False):
    """Appends the suffixes and the closing parenthesis. With `force_newline`, the first suffix begins a new line."""
    if force_newline and suffixes:
        text = f"{tensor_str},\n{' ' * indent}{suffixes[0]}"
        return _with_suffixes(text, suffixes[1:], indent)
    return _with_suffixes(tensor_str, suffixes, indent)


def _with_suffixes(text, suffixes, indent):
    """Appends the suffixes. A suffix that exceeds the line width begins a new line."""
    length = len(text) - text.rfind("\n") + 1  # counts two characters more than the line has, as PyTorch does
    for suffix in suffixes:
        if length + len(suffix) + 2 > _options["linewidth"]:
            text += ",\n" + " " * indent + suffix
            length = indent + len(suffix)
        else:
            text += ", " + suffix
            length += len(suffix) + 2
    return text + ")"


class _Column:
    """The format of the real or imaginary parts, and their width, chosen from the numbers that are shown."""

    def __init__(self, values):
        self.is_float = values.dtype.kind == "f"
        self.whole, self.scientific, self.width = True, False, 1
        self.precision = _options["precision"]
        if not self.is_float:
            self.width = max((len(str(v)) for v in values.reshape(-1).tolist()), default=1)
            return
        values = values[np.isfinite(values) & (values != 0)]  # zeros, inf and NaN don't widen the columns
        if values.size == 0:
            return
        sizes = np.abs(values).astype(np.float64)
        low, high = float(sizes.min()), float(sizes.max())
        self.whole = bool((sizes == np.ceil(sizes)).all())
        self.scientific = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
        if _options["sci_mode"] is not None:
            self.scientific = _options["sci_mode"]
        self.width = max(len(self(v)) for v in values.tolist())

    def __call__(self, value):
        if not self.is_float:
            text = str(value)
        elif self.scientific:
            text = f"{value:.{self.precision}e}"
        elif self.whole:
            text = f"{value:.0f}" + ("." if math.isfinite(value) else "")
        else:
            text = f"{value:.{self.precision}f}"
        return text.rjust(self.width)


class _Complex:
    """The format of complex numbers: one column for the real parts and one for the imaginary parts."""

    def __init__(self, values):
        self.real, self.imag = _Column(values.real), _Column(values.imag)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value):
        imag = self.imag(value.imag).lstrip() + "j"
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


def _numbers(values, indent):
    """Returns the text of an array, without a prefix."""
    if values.size == 0:
        return "[]"
    edge = _options["edgeitems"]
    summarize = values.size > _options["threshold"]
    shown = values
    if summarize:
        for axis, n in enumerate(values.shape):
            if n > 2 * edge:
                shown = shown.take([*range(edge), *range(n - edge, n)], axis)
    column = (_Complex if values.dtype.kind == "c" else _Column)(shown)
    if values.ndim == 0:
        return column(values.item())
    return _rows(values, column, indent, summarize)


def _rows(values, column, indent, summarize):
    edge = _options["edgeitems"]
    n = values.shape[0]
    cut = summarize and n > 2 * edge
    if values.ndim == 1:
        if summarize and not edge:
            cells = ["..."]
        elif cut:
            cells = [*map(column, values[:edge].tolist()), " ...", *map(column, values[-edge:].tolist())]
        else:
            cells = [column(value) for value in values.tolist()]
        per_line = max(1, (_options["linewidth"] - indent) // (column.width + 2))
        lines = [", ".join(cells[i : i + per_line]) for i in range(0, len(cells), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [*range(edge), *range(n - edge, n)] if cut else range(n)
    parts = [_rows(values[i], column, indent + 1, summarize) for i in rows]
    if cut:
        parts.insert(edge, "...")
    return "[" + ("," + "\n" * (values.ndim - 1) + " " * (indent + 1)).join(parts) + "]"
