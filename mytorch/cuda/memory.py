"""Statistics of GPU memory."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict

from .. import arrays as backend
from ..arrays import DeviceLike, in_flight
from ..arrays.arguments import describe
from ..arrays.errors import warn
from .streams import index_of

_peak = defaultdict(int)  # device number -> maximum bytes in use
_now = defaultdict(int)  # device number -> bytes in use, counted by the hook
_most_held = defaultdict(int)  # device number -> maximum bytes in the pool before it was emptied
_hooked = threading.local()  # CuPy's hooks belong to a thread
graphs = weakref.WeakSet()  # captured CUDA graphs, which have separate pools


def _pool():
    return backend.cupy_ns().get_default_memory_pool()


def _of(device, count):
    """Return a count of the pool for one device, plus the bytes of all CUDA graphs."""
    if not backend.cuda_available():
        return 0
    pools = {id(pool): pool for pool in (graph.pool() for graph in graphs) if pool is not None}
    in_flight.collect()
    with backend.cupy_ns().cuda.Device(index_of(device)):
        return getattr(_pool(), count)() + sum(pool.total_bytes() for pool in pools.values())


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Returns the bytes of GPU memory in use by arrays and captured graphs."""
    used = _of(device, "used_bytes")
    if backend.cuda_available():
        number = index_of(device)
        _peak[number] = max(_peak[number], used)
    return used


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Returns the bytes of GPU memory in the pool, in use or free, and in captured graphs."""
    return _of(device, "total_bytes")


def _watch():
    """Count the pool's use at each allocation, to find its peak.

    Querying the pool is slow, because it adds up all blocks. It is queried only for a possible new peak.
    """
    if getattr(_hooked, "hook", None) or not backend.cuda_available():
        return
    cupy = backend.cupy_ns()

    class Peak(cupy.cuda.MemoryHook):
        name = "mytorch-peak"

        def malloc_postprocess(self, **event):
            if not event["mem_ptr"]:  # the allocation failed
                return
            number = event["device_id"]
            _now[number] += event["mem_size"]
            if _now[number] > _peak[number]:
                _now[number] = _of(number, "used_bytes")
                _peak[number] = max(_peak[number], _now[number])

        def free_postprocess(self, **event):
            _now[event["device_id"]] -= event["mem_size"]

    _hooked.hook = Peak().__enter__()


def _end_watch():
    """Remove this thread's hook, which costs two Python calls per allocation."""
    hook, _hooked.hook = getattr(_hooked, "hook", None), None
    if hook is not None:
        hook.__exit__(None, None, None)


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """Returns the maximum number of bytes in use since `reset_peak_memory_stats`.

    `reset_peak_memory_stats` starts counting and this call ends it, because counting takes about a millisecond of a small
    training step. Otherwise, the result is the maximum seen by `memory_allocated` and this function.
    """
    _end_watch()
    used = memory_allocated(device)
    return max(_peak[index_of(device)], used) if backend.cuda_available() else 0


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Resets the peak, and counts this thread's allocations until `max_memory_allocated` is called."""
    if backend.cuda_available():
        _watch()
        number = index_of(device)
        _peak[number] = _now[number] = _of(device, "used_bytes")
        _most_held[number] = 0


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """Returns the maximum bytes of the pool since `reset_peak_memory_stats`. The pool shrinks only in `empty_cache`."""
    return max(_most_held[index_of(device)], memory_reserved(device)) if backend.cuda_available() else 0


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """Returns the (free, total) bytes of a GPU."""
    cuda = backend.cupy_ns().cuda
    with cuda.Device(index_of(device)):
        return cuda.runtime.memGetInfo()


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Returns the available statistics with PyTorch's names."""
    return {
        "allocated_bytes.all.current": memory_allocated(device),
        "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": memory_reserved(device),
        "reserved_bytes.all.peak": max_memory_reserved(device),
    }


def memory_summary(device: DeviceLike | None = None, abbreviated: bool = False) -> str:
    """Returns the statistics of `memory_stats` as text.

    Args:
        abbreviated: accepted for compatibility.
    """
    return "\n".join(f"{name:32} {value / 2**20:12.1f} MiB" for name, value in memory_stats(device).items())


def empty_cache() -> None:
    """Returns free GPU memory to the system. No effect without a GPU."""
    if backend.cuda_available():
        in_flight.collect()
        for number in range(backend.device_count()):
            with backend.cupy_ns().cuda.Device(number):
                _most_held[number] = max(_most_held[number], _pool().total_bytes())
                _pool().free_all_blocks()
        backend.cupy_ns().get_default_pinned_memory_pool().free_all_blocks()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike | None = None) -> None:
    """Limits the pool to a fraction of a GPU's memory.

    Args:
        fraction: fraction from 0 to 1.

    Raises:
        ValueError: if fraction is not from 0 to 1.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    with backend.cupy_ns().cuda.Device(index_of(device)):
        _pool().set_limit(fraction=fraction)


def reset_max_memory_allocated(device: DeviceLike | None = None) -> None:
    """Resets the peak; an older name of `reset_peak_memory_stats`."""
    name = "torch.cuda.reset_max_memory_allocated"
    warn(f"{name} now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak memory stats.", FutureWarning)
    reset_peak_memory_stats(device)


describe(globals(), device="the GPU (default: the current GPU).")
