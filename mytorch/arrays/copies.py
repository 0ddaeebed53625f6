"""Copies between the CPU and GPUs, and page-locked memory."""

import math

import numpy as np

from . import capturing, gpu, in_flight
from .devices import CPU, META, device_guard, device_of, on
from .gpu import address, cupy_ns, out_of_memory, xp_of
from .meta import hollow
from .namespaces import ndarray
from .others import BY_ARRAY, BY_NAME


def to_device(raw, where, non_blocking=False):
    """Returns the raw array on the device `where`, copied only if it is on another device.

    Args:
        non_blocking: between pinned CPU memory and a GPU, return before the copy has finished. The copy is ordered on the
            current stream. A copy to the CPU then has pinned memory, and may be read after the stream has finished.
    """
    source = device_of(raw)
    if source is where:
        return raw
    if where is META:
        return hollow(raw.shape, raw.dtype)
    if source is META:
        raw.item()  # raises: a meta array has no data
    # Registered devices copy to and from the CPU only.
    if source.type in BY_NAME:
        return to_device(xp_of(raw).to_cpu(raw), where)
    if where.type in BY_NAME:
        return on(where)[0].from_cpu(to_device(raw, CPU))
    if where.type == "cpu":
        return _to_cpu_later(raw) if non_blocking else _to_cpu(raw)
    xp, context = on(where)
    try:
        with context:
            if source is not CPU:
                return _from_other_gpu(xp, raw)
            if non_blocking and is_pinned(raw) and raw.flags.c_contiguous:
                return _to_gpu_later(xp, raw)
            if is_pinned(raw) and not capturing.is_recording():
                return xp.asarray(raw, blocking=True)
            return _staged(xp, raw)
    except MemoryError as error:
        raise out_of_memory(error) from None


def _to_cpu(raw):
    xp = cupy_ns()
    if raw.flags.c_contiguous:
        return xp.asnumpy(raw)
    with device_guard(raw):  # CuPy's copy of a strided array changes the current stream and does not restore it
        return xp.asnumpy(xp.ascontiguousarray(raw))


def _staged(xp, raw):
    """Copies a CPU array to the current GPU through CuPy's pinned memory, without waiting.

    Raises:
        CaptureError: a CUDA graph is being captured, and the array has more than one element.
    """
    if raw.size > 1:
        capturing.refuse(
            "a copy from the CPU",
            "it would bring the same numbers at each replay. Make the tensor before, or pass it as an argument.",
        )
    return capturing.upload(xp, raw)


def is_pinned(raw):
    """Returns True if a raw array has pinned memory. A GPU can copy from it while the CPU continues."""
    if not gpu.is_loaded():
        return False
    # The memory's owner is at the end of the chain of views.
    while isinstance(raw, ndarray):
        raw = raw.base
    return isinstance(raw, cupy_ns().cuda.PinnedMemoryPointer)


def pinned(raw):
    """Returns a raw CPU array in pinned memory, copied only if it is not pinned.

    Raises:
        RuntimeError: the array is on a GPU.
        DeviceError: there is no GPU. Its driver pins the memory.
    """
    if not isinstance(raw, ndarray):
        raise RuntimeError(f"pin_memory: only CPU tensors can be pinned, got one on {device_of(raw)}.")
    xp = cupy_ns()
    if is_pinned(raw):
        return raw
    out = xp.empty_pinned(raw.shape, raw.dtype)
    out[...] = raw
    return out


def _to_gpu_later(xp, raw):
    out = xp.empty(raw.shape, raw.dtype)
    fill_later(out, raw)
    return out


def fill_later(out, pinned):
    """Copies contiguous pinned memory into a contiguous array on the current GPU without waiting."""
    if out.size:
        capturing.copy_pinned(cupy_ns(), out, pinned)
        in_flight.hold(cupy_ns().cuda.get_current_stream().record, pinned)


def _to_cpu_later(raw, out=None):
    xp = cupy_ns()
    with device_guard(raw):
        out = xp.empty_pinned(raw.shape, raw.dtype) if out is None else out
        if raw.size:
            capturing.copy_pinned(xp, out, xp.ascontiguousarray(raw))
            in_flight.hold(xp.cuda.get_current_stream().record, out)
    return out


def copy_later(raw, out):
    """Copies an array on a GPU into pinned memory without waiting. Returns False if this is not possible."""
    fits = is_pinned(out) and out.flags.c_contiguous and out.shape == raw.shape and out.dtype == raw.dtype
    if fits:
        _to_cpu_later(raw, out)
    return fits


def _from_other_gpu(xp, raw):
    """Copies an array from another GPU to the current GPU.

    The current stream waits for the kernels that write the array. The stream of the other GPU waits for the copy, so
    that the memory is not reused too early.
    """
    with raw.device:
        written = xp.cuda.get_current_stream().record()
    stream = xp.cuda.get_current_stream()
    stream.wait_event(written)
    copy = xp.asarray(raw)
    copied = stream.record()
    with raw.device:
        xp.cuda.get_current_stream().wait_event(copied)
    return copy


def memory_owner(raw):
    """Returns the owner of a view's memory, the same object for all views: an array, or CuPy's memory block.

    CuPy's as_strided loses the base array, so the block identifies the memory. Within vmap, it is the owner of the batch's memory.
    """
    while getattr(raw, "batch", None) is not None:
        raw = raw.value._mt_data._array
    if type(raw) is not ndarray and type(raw) not in BY_ARRAY and hasattr(raw, "data") and hasattr(raw.data, "mem"):
        return raw.data.mem
    while getattr(raw, "base", None) is not None:
        raw = raw.base
    return raw


def owner_of(raw):
    """Returns the array that owns the memory of a view, or None.

    It is None if the owner is not one contiguous block of the same dtype, or if the strides of the view are negative.
    """
    owner = base = raw
    while base is not None:  # NumPy's as_strided sets `.base` to a helper object, so look one level deeper
        owner, base = (base if isinstance(base, type(raw)) else owner), getattr(base, "base", None)
    fits = owner.dtype == raw.dtype and owner.size and (owner.flags.c_contiguous or owner.flags.f_contiguous)
    return owner if fits and all(s >= 0 and s % raw.itemsize == 0 for s in raw.strides) else None


def row_major(shape):
    """Returns the strides, in elements, of a contiguous array of this shape."""
    return tuple(math.prod([max(n, 1) for n in shape[i + 1 :]]) for i in range(len(shape)))


class _Span:
    """The bytes between the first and the last element of an array, which it keeps alive, for `np.asarray`."""

    def __init__(self, raw):
        self.raw = raw
        low = high = raw.__array_interface__["data"][0]
        for n, stride in zip(raw.shape, raw.strides, strict=True):
            low, high = low + min(0, (n - 1) * stride), high + max(0, (n - 1) * stride)
        self.__array_interface__ = {
            "data": (low, not raw.flags.writeable), "shape": (high + raw.itemsize - low,), "typestr": "|u1", "version": 3,
        }  # fmt: skip


def spanned(raw):
    """Returns the bytes from the first to the last element of a nonempty array as a vector without a base array."""
    return np.asarray(_Span(raw))


def storage_bytes(raw):
    """Returns all bytes of the memory of an array's base as a vector that shares the memory."""
    if device_of(raw) is META:
        raw.item()  # raises: a meta array has no data
    root = base = raw
    while base is not None:
        root, base = (base if isinstance(base, type(raw)) else root), getattr(base, "base", None)
    if isinstance(raw, ndarray) or type(raw) in BY_ARRAY:
        flat = root.ravel(order="K")
        # An array of another library can be strided without a base in NumPy; `ravel` would copy it.
        return flat.view("u1") if address(flat) == address(root) or not root.size else spanned(root)
    xp, memory = xp_of(raw), raw.data.mem
    if root.flags.c_contiguous and root.data.mem is memory and -(-root.nbytes // 512) * 512 == memory.size:
        return root.reshape(-1).view("u1")
    # A view by as_strided: return the whole memory block, whose size CuPy has rounded up.
    return xp.ndarray((memory.size,), "u1", xp.cuda.MemoryPointer(memory, 0)).view()
