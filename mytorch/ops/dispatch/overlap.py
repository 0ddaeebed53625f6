"""Checks for operations that write to memory that they also read."""

import math

import numpy as np

from ...arrays import CPU, MetaArray, address, assign, device_of, ndarray, numpy_ns, to_device, xp_of
from ...arrays.array import Array
from ...arrays.memory_format import layout_of, strided

ADDING = frozenset(("index_add_", "scatter_add_", "index_put_"))  # assignments are not written by `adopt`


def refuse_shared(tensor, name, overlapping=False):
    """Checks that the elements of a tensor that is written to do not share memory, as in an expanded tensor.

    Raises:
        RuntimeError: several elements share memory.
    """
    raw = tensor._mt_data._array
    if overlapping or shares_places(raw):
        raise RuntimeError(
            f"{name}: unsupported operation: more than one element of the written-to tensor refers to a single memory "
            "location. Please clone() the tensor before performing the operation."
        )


def shares_places(raw):
    """Returns True if all elements along an axis of an array share memory."""
    return 0 in raw.strides and raw.size and any(s == 0 and n > 1 for s, n in zip(raw.strides, raw.shape, strict=True))


def refuse_overlap(tensor, other, name, region=None, elementwise=True):
    """Checks that a tensor that is written to does not partly overlap a tensor that is read, as PyTorch does.

    Args:
        tensor: the tensor that is written to.
        other: the tensor that is read.
        name: name of the function.
        region: raw array of the part of `tensor` that is written to (default: all of it).
        elementwise: True if each element is read before its position is written, so that equal memory is allowed.

    Raises:
        RuntimeError: both tensors are dense, and they share memory without having the same elements in the same order.
    """
    # Tensors that share memory share a version counter, so unequal counters rule an overlap out without a look at addresses.
    counter = tensor._mt_data._version_counter
    other = getattr(other, "_mt_data", other)
    if not elementwise and other is getattr(tensor, "_mt_data", tensor):
        counter = (
            tensor.shared_version_counter() if isinstance(tensor, Array) else tensor._mt_data.shared_version_counter()
        )
    if counter is None or type(other) is not Array or other._version_counter is not counter:
        return
    a, b = tensor._mt_data._array if region is None else region, other._array
    if isinstance(a, MetaArray) or type(a) is not type(b) or not a.size or not b.size or layout_of(a) is not strided:
        return
    (a_begin, a_end), (b_begin, b_end) = _span(a), _span(b)
    # Between tensors with gaps, such as the even and the odd columns, equal spans need not mean equal elements, and PyTorch does not
    # refuse them either.
    dense = a_end - a_begin == a.nbytes and b_end - b_begin == b.nbytes
    # An assignment broadcasts the value to the region first, so only the axes with several elements count.
    steps = [raw.strides if region is None else _steps(raw) for raw in (a, b)]
    same = elementwise and (a_begin, a_end, steps[0]) == (b_begin, b_end, steps[1])
    if dense and a_begin < b_end and b_begin < a_end and not same:
        raise RuntimeError(
            f"{name}: unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


def _steps(raw):
    """Returns the sizes and strides of the axes with several elements."""
    return [(n, s) for n, s in zip(raw.shape, raw.strides, strict=True) if n != 1]


def _span(raw):
    """Returns the first and the last address of the memory of an array."""
    reaches = [(n - 1) * s for n, s in zip(raw.shape, raw.strides, strict=True)]
    begin = address(raw)
    return begin + sum(min(r, 0) for r in reaches), begin + sum(max(r, 0) for r in reaches) + raw.itemsize


def outside(xp, g, steps):
    """Returns the gradient g with zeros in the region that the view ops `steps` select."""
    # The view ops select the region of a mask instead of computing which positions they mean, so every view op works here.
    kind = _kind_of_marks(g, steps)
    one = 1 + 1j if kind is np.complex128 else 1
    if steps[0][0].name == "as_strided":  # which reads memory, so the mask has the layout of the tensor
        begin, strides, places = steps[0][1]["memory"]
        memory = np.full(places, one, kind)
        mask = np.lib.stride_tricks.as_strided(memory[begin:], g.shape, [s * memory.itemsize for s in strides])
    else:
        mask = np.full(g.shape, one, kind)
    _region(mask, steps)[...] = 0
    if kind is np.complex128:  # the region can be the real parts only
        real, imag = (xp.where(xp.asarray(m != 0), part, 0.0) for m, part in ((mask.real, g.real), (mask.imag, g.imag)))
        return real + imag * 1j
    return xp.where(xp.asarray(mask != 0), g, 0.0)


def _kind_of_marks(g, steps):
    """Returns the dtype of an array that follows the view ops in place of g: bool, or complex and real numbers if an op reinterprets them."""
    if not any(step.name in ("view_as_real", "view_as_complex") for step, _ in steps):
        return np.bool_
    return np.complex128 if str(g.dtype).rpartition(".")[2].startswith("complex") else np.float64


def overlaps_itself(raw):
    """Returns True if several elements of an array share memory, as in overlapping windows."""
    # From the smallest stride on: an axis whose stride exceeds the reach of all smaller ones steps over them, so nothing repeats.
    reach = 0
    for stride, n in sorted((abs(s), n) for s, n in zip(raw.strides, raw.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def write_overlapping(raw, value, name):
    """Writes a result into an array whose elements share memory. Returns a mask of the elements that changed.

    An element that the function did not select must not restore the memory that another element changed. Functions that
    add to elements add the changes of all elements that share memory.
    """
    if type(raw) is not ndarray:  # on a GPU, where the order of writes to one position is not defined
        reach = sum((n - 1) * stride for n, stride in zip(raw.shape, raw.strides, strict=True))
        memory = xp_of(raw).lib.stride_tricks.as_strided(raw, (reach // raw.itemsize + 1,), (raw.itemsize,))
        there = to_device(memory, CPU)
        view = np.lib.stride_tricks.as_strided(there, raw.shape, raw.strides)
        changed = write_overlapping(view, to_device(value, CPU), name)
        assign(memory, to_device(there, device_of(raw)))
        return changed
    changed = value != raw
    if name in ADDING:
        places = _places(raw.shape, [stride // raw.itemsize for stride in raw.strides]).reshape(-1)
        memory = np.lib.stride_tricks.as_strided(raw, (int(places.max()) + 1,), (raw.itemsize,))
        if raw.dtype.kind == "b":
            np.logical_or.at(memory, places, value.reshape(-1))
        else:
            np.add.at(memory, places, (value - raw).reshape(-1))
    else:
        raw[changed] = value[changed]
    return changed


def _places(shape, strides):
    """Returns the position of each element in memory, counted from the first element."""
    places = np.zeros(shape, np.int64)
    for axis, stride in enumerate(strides):
        places += (np.arange(shape[axis]) * stride).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return places


def where_written(xp, g, written, steps, changed=None):
    """Returns the gradient of the region that the view ops `steps` select.

    If several elements share a position, only the last one that was changed has a gradient.

    Args:
        xp: the namespace.
        g: gradient of the base.
        written: gradient of the region.
        steps: the view ops.
        changed: mask of the changed elements (default: all).
    """
    kind, count = _kind_of_marks(g, steps), math.prod(g.shape)
    if not written.size or not overlaps_itself(_region(np.empty(g.shape, kind), steps)):
        return written
    # Each element, or each part of a complex element, gets a unique number.
    unique = np.arange(2.0 * count).view(kind) if kind is np.complex128 else np.arange(float(count))
    places = _region(unique.reshape(g.shape), steps)
    numbers = places.real.astype(np.int64).reshape(-1)
    last = np.empty(numbers.max() + 1, np.int64)
    order = np.arange(numbers.size)
    later = order if changed is None else np.argsort(changed.reshape(-1), kind="stable")
    last[numbers[later]] = later
    return xp.where(xp.asarray((last[numbers] == order).reshape(places.shape)), written, 0.0)


def _region(x, steps):
    for step, attrs in steps:
        x = step.forward(numpy_ns, x, **attrs)
    return x
