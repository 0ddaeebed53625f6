"""`torch.testing`: `assert_close`, with PyTorch's tolerances and messages, and `make_tensor`."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..arrays import CPU, dtypes
from ..arrays.array import Array
from ..arrays.tensor import Tensor
from ..ops.creation import as_tensor, from_numpy
from ..ops.random import rand, randint

__path__: list[str] = []  # PyTorch's module is a package
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True, check_dtype=True,
    check_layout=True, check_stride=False, msg=None,
):  # fmt: skip
    """Checks that |actual - expected| <= atol + rtol * |expected|, and that shapes, dtypes and devices are equal.

    Args:
        actual: Tensor, Array, NumPy array or number, or a sequence or mapping of these.
        expected: expected values, like actual.
        allow_subclasses: ignored.
        rtol: relative tolerance (default: by dtype, 1.3e-6 for float32 and 0 for integers).
        atol: absolute tolerance (default: by dtype, 1e-5 for float32 and 0 for integers).
        equal_nan: treat NaN as equal to NaN.
        check_device: compare devices.
        check_dtype: compare dtypes.
        check_layout: ignored.
        check_stride: ignored.
        msg: text to replace the report, or a function of the report.

    Raises:
        AssertionError: if they differ; the message contains the number of different elements and the greatest difference.
        ValueError: if only one of rtol and atol is given.

    Example:
        >>> mytorch.testing.assert_close(tensor([1.0]), tensor([1.0 + 1e-7]))
    """
    if (rtol is None) != (atol is None):
        raise ValueError("Both 'rtol' and 'atol' must be either specified or unspecified.")
    tolerances = None if rtol is None else (rtol, atol)
    report = _difference(actual, expected, tolerances, equal_nan, check_device, check_dtype, "")
    if report is not None:
        raise AssertionError(report if msg is None else msg(report) if callable(msg) else msg)


def _difference(actual, expected, tolerances, equal_nan, check_device, check_dtype, where):
    """Return a report of the first difference between two values or their items, or None if they are close."""
    checks = tolerances, equal_nan, check_device, check_dtype
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if actual.keys() != expected.keys():
            return f"The keys of the mappings do not match:\n{sorted(map(str, actual))} != {sorted(map(str, expected))}"
        pairs = [(key, actual[key], expected[key]) for key in expected]
    elif all(isinstance(x, Sequence) and not isinstance(x, str) for x in (actual, expected)):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
        pairs = list(zip(range(len(expected)), actual, expected, strict=True))
    else:
        return _array_difference(actual, expected, *checks, where)
    reports = (_difference(a, b, *checks, f"{where}[{key!r}]") for key, a, b in pairs)
    return next((report for report in reports if report is not None), None)


def _array_difference(actual, expected, tolerances, equal_nan, check_device, check_dtype, where):
    numbers = not any(isinstance(x, (Tensor, Array, np.ndarray)) for x in (actual, expected))
    a, b = (as_tensor(x, dtype=dtypes.float64 if type(x) is float else None).detach() for x in (actual, expected))
    item = f"\n\nThe failure occurred for item {where}" if where else ""
    for name, wanted in (("shape", True), ("device", check_device), ("dtype", check_dtype and not numbers)):
        x, y = getattr(a, name), getattr(b, name)
        if wanted and x != y:
            return f"The values for attribute '{name}' do not match: {x} != {y}.{item}"
    common = dtypes.promote_types(a.dtype, b.dtype)
    rtol, atol = tolerances or max(_TOLERANCES.get(d.name, (0.0, 0.0)) for d in (a.dtype, b.dtype))
    floating = common.category == dtypes.FLOAT
    wide = (
        np.int64 if common.category <= dtypes.INT else np.float32 if floating and common.itemsize <= 2 else common.numpy
    )
    x, y = (np.asarray(t.to(device=CPU).to(common).to(dtypes.as_dtype(wide))) for t in (a, b))
    equal = x == y
    with np.errstate(all="ignore"):
        apart, size = np.abs(x - y), np.abs(y)
    if equal_nan:
        equal |= np.isnan(x) & np.isnan(y)
    close = equal | (np.isfinite(apart) & (apart <= atol + rtol * size))
    if close.all():
        return None
    if numbers:
        with np.errstate(all="ignore"):
            relative = apart / size
        return (
            f"Scalars are not {'close' if rtol or atol else 'equal'}!\n\nExpected {expected} but got {actual}.\n"
            f"Absolute difference: {apart.item()} (up to {atol} allowed)\n"
            f"Relative difference: {float(relative)} (up to {rtol} allowed){item}"
        )
    return _report(close, apart, size, rtol, atol) + item


def _report(close, apart, size, rtol, atol):
    with np.errstate(all="ignore"):
        relative = np.where(size == 0, np.where(apart == 0, 0.0, np.inf), apart / size)
    lines = [f"Tensor-likes are not {'close' if rtol or atol else 'equal'}!", ""]
    bad = int((~close).sum())
    lines.append(f"Mismatched elements: {bad} / {close.size} ({100 * bad / close.size:.1f}%)")
    for word, values, allowed in (("absolute", apart, atol), ("relative", relative, rtol)):
        values = np.where(close, values.dtype.type(0), values)
        flat = int(np.argmax(np.where(np.isnan(values), np.inf, values)))
        at = tuple(int(i) for i in np.unravel_index(flat, values.shape))
        limit = f" (up to {allowed} allowed)" if rtol or atol else ""
        place = f" at index {at}" if values.ndim else ""
        lines.append(f"Greatest {word} difference: {values.reshape(-1)[flat].item()}{place}{limit}")
    return "\n".join(lines)


def make_tensor(*shape, dtype, device=None, low=None, high=None, requires_grad=False, **unused):
    """Returns a tensor of random numbers in [low, high).

    Args:
        low: lower bound (default: -9 for floats and signed integers, otherwise 0).
        high: upper bound (default: 9 for floats and signed integers, 10 for uint8, 2 for bool).
        requires_grad: the result requires grad.

    Example:
        >>> mytorch.testing.make_tensor((2, 3), dtype=mytorch.int64, low=0, high=5).shape
        mytorch.Size([2, 3])
    """
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    dtype = dtypes.as_dtype(dtype)
    if dtype is dtypes.bool_:
        return randint(0, 2, shape).to(device=device or CPU, dtype=dtype)
    signed = dtype.is_signed
    low, high = (-9 if signed else 0) if low is None else low, (9 if signed else 10) if high is None else high
    if dtype.category == dtypes.INT:
        out = randint(int(low), int(high), shape).to(dtype)
    elif dtype.is_complex:
        parts = [np.asarray(rand(shape, dtype=dtypes.float64)) * (high - low) + low for _ in range(2)]
        out = from_numpy(np.asarray(parts[0] + 1j * parts[1])).to(dtype)
    else:
        out = (rand(shape, dtype=dtypes.float64) * (high - low) + low).to(dtype)
    out = out if device is None else out.to(device)
    return out.requires_grad_(requires_grad)
