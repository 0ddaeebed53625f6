"""Copies between the CPU and GPUs, and page-locked memory."""

import math
from collections import deque

from ..base import capturing
from . import gpu
from .devices import CPU, META, device_guard, device_of, on
from .gpu import cupy_ns, out_of_memory, xp_of
from .meta import hollow
from .namespaces import ndarray
from .others import BY_ARRAY, BY_NAME


def to_device(raw, where, non_blocking=False):
    """The raw array on the device `where`: itself if it is there already, else a copy.

    Args:
        non_blocking: between page-locked CPU memory and a GPU, return before the copy has finished; it is ordered on the
            current stream. What comes to the CPU lies in page-locked memory then, and may be read when the stream is done.
    """
    here = device_of(raw)
    if here is where:
        return raw
    if where is META:
        return hollow(raw.shape, raw.dtype)
    if here is META:
        raw.item()  # which refuses
    if here.type in BY_NAME:
        return to_device(xp_of(raw).to_cpu(raw), where)
    if where.type in BY_NAME:
        return on(where)[0].from_cpu(to_device(raw, CPU))
    if where.type == "cpu":
        return _to_cpu_later(raw) if non_blocking else _to_cpu(raw)
    xp, there = on(where)
    try:
        with there:
            if here is not CPU:
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
    with device_guard(raw):  # CuPy's own copy of a strided array makes another stream the current one, and leaves it so
        return xp.asnumpy(xp.ascontiguousarray(raw))


def _staged(xp, raw):
    """A copy of a CPU array on the current GPU, through page-locked memory of CuPy's own, without waiting.

    Raises:
        CaptureError: it is being captured into a CUDA graph, and holds more than one number.
    """
    if raw.size > 1:
        capturing.refuse(
            "a copy from the CPU",
            "it would bring the same numbers at each replay. Make the tensor before, or pass it as an argument.",
        )
    return capturing.upload(xp, raw)


def is_pinned(raw):
    """Whether a raw array lies in page-locked memory, from which a GPU copies while the CPU goes on."""
    if not gpu.is_loaded():
        return False
    while isinstance(raw, ndarray):
        raw = raw.base
    return isinstance(raw, cupy_ns().cuda.PinnedMemoryPointer)


def pinned(raw):
    """A raw CPU array in page-locked memory: itself if it lies there, else a copy.

    Raises:
        RuntimeError: it is on a GPU.
        DeviceError: there is no GPU, whose driver locks the memory.
    """
    if not isinstance(raw, ndarray):
        raise RuntimeError(f"pin_memory: only CPU tensors can be pinned, this one is on {device_of(raw)}.")
    xp = cupy_ns()
    if is_pinned(raw):
        return raw
    out = xp.empty_pinned(raw.shape, raw.dtype)
    out[...] = raw
    return out


_in_flight = deque()  # (event, CPU array) of copies that may not be done: the memory must not be used for anything else


def _hold(stream, array):
    """Keep a CPU array until what a stream has been given so far is done, or as long as the graph that captures it."""
    if capturing.is_recording():
        capturing.current.kept.append(array)
        return
    while _in_flight and _in_flight[0][0].done:
        _in_flight.popleft()
    _in_flight.append((stream.record(), array))


def _to_gpu_later(xp, raw):
    out = xp.empty(raw.shape, raw.dtype)
    fill_later(out, raw)
    return out


def fill_later(out, pinned):
    """Copy contiguous page-locked memory into a contiguous array on the current GPU without waiting."""
    if out.size:
        capturing.copy_pinned(cupy_ns(), out, pinned)
        _hold(cupy_ns().cuda.get_current_stream(), pinned)


def _to_cpu_later(raw, out=None):
    xp = cupy_ns()
    with device_guard(raw):
        out = xp.empty_pinned(raw.shape, raw.dtype) if out is None else out
        if raw.size:
            capturing.copy_pinned(xp, out, xp.ascontiguousarray(raw))
            _hold(xp.cuda.get_current_stream(), out)
    return out


def copy_later(raw, out):
    """Copy an array on a GPU into page-locked memory without waiting; False where it can't be done so."""
    fits = is_pinned(out) and out.flags.c_contiguous and out.shape == raw.shape and out.dtype == raw.dtype
    if fits:
        _to_cpu_later(raw, out)
    return fits


def _from_other_gpu(xp, raw):
    """A copy on the current GPU. Its stream waits for what makes the array, and the array's for the copy, so that neither
    reads or reuses memory too early."""
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
    """What holds the memory that a view looks into, the same object for all its views: an array, or CuPy's block of memory,
    since what its as_strided makes does not know whose memory it is."""
    if type(raw) is not ndarray and type(raw) not in BY_ARRAY and hasattr(raw, "data") and hasattr(raw.data, "mem"):
        return raw.data.mem
    while getattr(raw, "base", None) is not None:
        raw = raw.base
    return raw


def row_major(shape):
    """The strides, in elements, of a contiguous array of this shape."""
    return tuple(math.prod([max(n, 1) for n in shape[i + 1 :]]) for i in range(len(shape)))


def storage_bytes(raw):
    """All bytes of the memory that an array is a view of, as a vector that shares it."""
    if device_of(raw) is META:
        raw.item()  # which refuses
    root = base = raw
    while base is not None:
        root, base = (base if isinstance(base, type(raw)) else root), getattr(base, "base", None)
    if isinstance(raw, ndarray) or type(raw) in BY_ARRAY:
        return root.ravel(order="K").view("u1")
    xp, memory = xp_of(raw), raw.data.mem
    if root.flags.c_contiguous and root.data.mem is memory and -(-root.nbytes // 512) * 512 == memory.size:
        return root.reshape(-1).view("u1")
    # made by as_strided: the whole block of memory, whose size CuPy has rounded up
    return xp.ndarray((memory.size,), "u1", xp.cuda.MemoryPointer(memory, 0)).view()


def laid_out(g, owned, tensor):
    """A gradient with the channels last in memory where its tensor's are, as in PyTorch; a copy, unless it is `owned` and lies so."""
    raw = g if tensor is None else tensor._data._array
    order = (0, *range(2, g.ndim), 1)
    if raw.flags.c_contiguous or not raw.transpose(order).flags.c_contiguous:
        return g if owned else g.copy()
    there = g.transpose(order)
    there = there if owned and there.flags.c_contiguous else there.copy()
    return there.transpose(0, g.ndim - 1, *range(1, g.ndim - 1))
