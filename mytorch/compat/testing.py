"""`torch.testing`: `assert_close`, with PyTorch's tolerances and messages, and `make_tensor`."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import CPU, dtypes
from ..arrays.array import Array
from ..arrays.memory_format import strided
from ..arrays.tensor import Tensor
from ..ops.complex import view_as_real
from ..ops.creation import as_tensor, empty
from ..ops.random import randint

__path__: list[str] = []  # PyTorch's module is a package
_NUMBERS = int, float, complex, np.number, np.bool_
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True, check_dtype=True,
    check_layout=True, check_stride=False, msg=None,
):  # fmt: skip
    """Checks that |actual - expected| <= atol + rtol * |expected|, and that shapes, dtypes, devices and layouts are equal.

    Args:
        actual: Tensor, Array, NumPy array, number or None, or a sequence or mapping of these.
        expected: expected values, of the same or a related type.
        allow_subclasses: accept an object of a subclass and one of its base class. Otherwise the types must be equal.
        rtol: relative tolerance (default: by dtype, 1.3e-6 for float32 and 0 for integers).
        atol: absolute tolerance (default: by dtype, 1e-5 for float32 and 0 for integers).
        equal_nan: treat NaN as equal to NaN.
        check_device: compare devices.
        check_dtype: compare dtypes, of numbers their types.
        check_layout: compare layouts. If False, sparse tensors are compared as dense ones.
        check_stride: compare the strides of strided tensors.
        msg: text to replace the report, or a function of the report.

    Raises:
        AssertionError: if they differ; the message contains the number of different elements and the greatest difference.
        TypeError: for objects of unrelated types, and for other objects than the above.
        ValueError: if only one of rtol and atol is given.

    Example:
        >>> mytorch.testing.assert_close(tensor([1.0]), tensor([1.0 + 1e-7]))
    """
    attributes = compared(device=check_device, dtype=check_dtype, layout=check_layout, stride=check_stride)
    report = difference(actual, expected, Checks(tolerances(rtol, atol), equal_nan, allow_subclasses, attributes))
    if report is not None:
        raise AssertionError(report if msg is None else msg(report) if callable(msg) else msg)


def tolerances(rtol, atol):
    """Return (rtol, atol), or None for those of the dtypes."""
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    return None if rtol is None else (rtol, atol)


def compared(**wanted):
    """Return the names of the attributes to compare: the shape, and those whose argument is true."""
    return ["shape", *(name for name, is_wanted in wanted.items() if is_wanted)]


class Checks(NamedTuple):
    """What `assert_close` compares."""

    tolerances: tuple[float, float] | None
    equal_nan: bool
    allow_subclasses: bool
    attributes: list[str]
    # As assertEqual of PyTorch's test cases: numbers equal tensors, and other objects are compared by ==.
    relaxed: bool = False


def difference(actual, expected, checks, where=""):
    """Return a report of the first difference between two values or their items, or None if they are close."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if actual.keys() != expected.keys():
            lines = ["The keys of the mappings do not match:"]
            for word, present, other in (("Missing", expected, actual), ("Additional", actual, expected)):
                if only := sorted(present.keys() - other.keys(), key=str):
                    lines.append(f"{word} keys in the actual mapping: {only}")
            return "\n".join(lines)
        pairs = [(key, actual[key], expected[key]) for key in expected]
    elif all(isinstance(x, Sequence) and not isinstance(x, str) for x in (actual, expected)):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
        pairs = list(zip(range(len(expected)), actual, expected, strict=True))
    else:
        report = _single_difference(actual, expected, checks)
        return report + f"\n\nThe failure occurred for item {where}" if report and where else report
    reports = (difference(a, b, checks, f"{where}[{key!r}]") for key, a, b in pairs)
    return next((report for report in reports if report is not None), None)


def _single_difference(actual, expected, checks):
    types = type(actual), type(expected)
    if actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual} is not {expected}"
    is_number, is_array = ([issubclass(t, kinds) for t in types] for kinds in (_NUMBERS, (Tensor, Array, np.ndarray)))
    if checks.relaxed:
        if any(is_number) and any(is_array):
            actual, expected = (x.item() if array else x for x, array in zip((actual, expected), is_array, strict=True))
            return _single_difference(actual, expected, checks)
        if not all(is_number) and not all(is_array):
            return None if actual == expected else f"Object comparison failed: {actual} != {expected}"
    booleans = [issubclass(t, (bool, np.bool_)) for t in types]
    if any(booleans) if checks.relaxed and all(is_number) else all(booleans):
        return None if bool(actual) is bool(expected) else f"Booleans mismatch: {actual} is not {expected}"
    numbers, arrays = all(is_number), all(is_array)
    related = checks.relaxed or issubclass(types[0], types[1]) or issubclass(types[1], types[0])
    if not numbers and not (arrays and (related if checks.allow_subclasses else types[0] is types[1])):
        raise TypeError(f"No comparison pair was able to handle inputs of type {types[0]} and {types[1]}.")
    if numbers:
        if checks.relaxed:
            checks = checks._replace(tolerances=checks.tolerances or _TOLERANCES["float32"])
        elif "dtype" in checks.attributes and types[0] is not types[1]:
            return f"The (d)types do not match: {types[0]} != {types[1]}."
        return _value_difference(*(as_tensor(x, dtype=dtypes.float64 if type(x) is float else None) for x in (actual, expected)),
                                 checks, numbers=(actual, expected))  # fmt: skip
    a, b = (x.detach() if isinstance(x, Tensor) else as_tensor(x) for x in (actual, expected))
    sparse = [x.layout is not strided for x in (a, b)]
    for name in checks.attributes:
        x, y = getattr(a, name), getattr(b, name)
        if name == "stride":
            if any(sparse):
                continue
            name, x, y = "stride()", x(), y()
        if x != y:
            return f"The values for attribute '{name}' do not match: {x} != {y}."
    if a.is_meta or b.is_meta:
        return None
    if all(sparse) and a.layout is b.layout:
        return _sparse_difference(a, b, checks)
    return _value_difference(
        *(x.to_dense() if is_sparse else x for x, is_sparse in zip((a, b), sparse, strict=True)), checks
    )


def _sparse_difference(a, b, checks):
    if a.is_sparse:
        kind, parts = "COO", ("indices", "values")
        a, b = a.coalesce(), b.coalesce()
    else:
        kind = str(a.layout).rpartition("sparse_")[2].upper()
        indices = ("crow_indices", "col_indices") if kind in ("CSR", "BSR") else ("ccol_indices", "row_indices")
        parts = (*indices, "values")
    if a._nnz() != b._nnz():
        return f"The number of specified values in sparse {kind} tensors does not match: {a._nnz()} != {b._nnz()}"
    for part in parts:
        report = _value_difference(getattr(a, part)(), getattr(b, part)(), checks)
        if report is not None:
            return report.replace("Tensor-likes", f"Sparse {kind} {part}", 1)
    return None


def _value_difference(a, b, checks, numbers=None):
    common = dtypes.promote_types(a.dtype, b.dtype)
    rtol, atol = checks.tolerances or max(_TOLERANCES.get(d.name, (0.0, 0.0)) for d in (a.dtype, b.dtype))
    floating = common.category == dtypes.FLOAT
    wide = (
        np.int64 if common.category <= dtypes.INT else np.float32 if floating and common.itemsize <= 2 else common.numpy
    )
    x, y = (np.asarray(t.to(device=CPU).to(common).to(dtypes.as_dtype(wide))) for t in (a, b))
    equal = x == y
    with np.errstate(all="ignore"):
        apart, size = np.abs(x - y), np.abs(y)
    if checks.equal_nan:
        equal |= np.isnan(x) & np.isnan(y)
    close = equal | (np.isfinite(apart) & (apart <= atol + rtol * size))
    if close.all():
        return None
    if numbers is None:
        return _report(close, apart, size, rtol, atol)
    with np.errstate(all="ignore"):
        relative = apart / size
    return (
        f"Scalars are not {'close' if rtol or atol else 'equal'}!\n\nExpected {numbers[1]} but got {numbers[0]}.\n"
        f"Absolute difference: {apart.item()} (up to {atol} allowed)\n"
        f"Relative difference: {float(relative)} (up to {rtol} allowed)"
    )


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


def _bounds(dtype, low, high):
    """Return the given or default bounds of `make_tensor`, within the range of a dtype."""
    exact = dtype.category in (dtypes.BOOL, dtypes.INT)
    if dtype is dtypes.bool_:
        least, most = 0, 2
    elif exact:
        info = dtypes.iinfo(dtype)
        least, most = info.min, info.max + (dtype is not dtypes.int64)  # randint's bound is an int64, too
    else:
        info = dtypes.finfo(dtype)
        least, most = info.min, info.max
    low = (0 if dtype is dtypes.bool_ else -9) if low is None else low
    high = (2 if dtype is dtypes.bool_ else 10 if exact else 9) if high is None else high
    if low != low or high != high:
        raise ValueError(f"make_tensor: expected numbers for low and high, got {low} and {high}")
    if low > high or (low == high and (exact or dtype.itemsize == 1)):
        raise ValueError(f"make_tensor: expected low < high, got {low} and {high}")
    if high < least or low >= most:
        raise ValueError(f"make_tensor: expected an interval within [{least}, {most}) for {dtype}, got [{low}, {high})")
    low, high = (min(max(bound, least), most) for bound in (low, high))
    return (math.ceil(low), math.ceil(high)) if exact else (low, high)


def make_tensor(
    *shape, dtype, device=None, low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False,
    memory_format=None,
):  # fmt: skip
    """Returns a tensor of random numbers in [low, high), which are PyTorch's for the same seed.

    Args:
        low: lower bound (default: 0 for bool and unsigned integers, otherwise -9). Bounds outside the range of the dtype are clamped.
        high: upper bound (default: 2 for bool, 10 for integers, otherwise 9).
        requires_grad: the result requires grad. Needs a floating or complex dtype.
        noncontiguous: the result is every second element of a tensor with a last dimension twice as long.
        exclude_zero: zeros become 1, or the smallest normal number of a floating dtype.
        memory_format: layout of the result, such as `mytorch.channels_last`.

    Raises:
        ValueError: for an empty interval, bounds of NaN or outside the dtype's range, `requires_grad` of integers, or both
            `noncontiguous` and `memory_format`.

    Example:
        >>> mytorch.testing.make_tensor((2, 3), dtype=mytorch.int64, low=0, high=5).shape
        mytorch.Size([2, 3])
    """
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    dtype = dtypes.as_dtype(dtype)
    exact = dtype.category in (dtypes.BOOL, dtypes.INT)
    if noncontiguous and memory_format is not None:
        raise ValueError("make_tensor: expected noncontiguous or memory_format, got both")
    if requires_grad and exact:
        raise ValueError(f"make_tensor: requires_grad expected a floating or complex dtype, got {dtype}")
    noncontiguous = noncontiguous and math.prod(shape) > 1
    shape = (*shape[:-1], 2 * shape[-1]) if noncontiguous else shape
    low, high = _bounds(dtype, low, high)
    if exact:
        out = randint(low, high, shape, dtype=dtype, device=device)
    else:
        drawn = empty(shape, dtype=dtypes.float32 if dtype.itemsize == 1 else dtype, device=device)
        numbers = view_as_real(drawn) if dtype.is_complex else drawn
        if high - low < dtypes.finfo(dtype).max:
            numbers.uniform_(low, high)
        else:
            numbers.uniform_(low / 2, high / 2).mul_(2)
        out = drawn.to(dtype)
    if noncontiguous:
        out = out[..., 1::2]
    elif memory_format is not None:
        out = out.clone(memory_format=memory_format)
    if exclude_zero:
        out[out == 0] = 1 if exact else dtypes.finfo(dtype).tiny
    return out.requires_grad_(requires_grad and dtype.itemsize > 1)  # PyTorch has no gradients of 8-bit floats
