"""What of a GPU's memory is in use."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict

from .. import backend
from ..backend import DeviceLike
from ..base.errors import warn
from .streams import index_of

_peak = defaultdict(int)  # device number -> most bytes seen in use
_now = defaultdict(int)  # device number -> bytes in use, counted by the hook
_most_held = defaultdict(int)  # device number -> most bytes that the pool held before it was emptied
_hooked = threading.local()  # CuPy keeps hooks for each thread
graphs = weakref.WeakSet()  # captured CUDA graphs, whose pools nobody else allocates from


def _pool():
    return backend.cupy_ns().get_default_memory_pool()


def _of(device, count):
    """A count of the pool's, for one device (the pool answers for the current one), with all that CUDA graphs hold."""
    if not backend.cuda_available():
        return 0
    pools = {id(pool): pool for pool in (graph.pool() for graph in graphs) if pool is not None}
    with backend.cupy_ns().cuda.Device(index_of(device)):
        return getattr(_pool(), count)() + sum(pool.total_bytes() for pool in pools.values())


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes of GPU memory in use by arrays and captured graphs."""
    used = _of(device, "used_bytes")
    if backend.cuda_available():
        number = index_of(device)
        _peak[number] = max(_peak[number], used)
    return used


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes of GPU memory held by the pool, in use or free, and by captured graphs."""
    return _of(device, "total_bytes")


def _watch():
    """Count the pool's use at each allocation, so that its peak is known.

    The pool itself adds up all that is in use when it is asked, so it is asked only where there may be a new peak.
    """
    if getattr(_hooked, "hook", None) or not backend.cuda_available():
        return
    cupy = backend.cupy_ns()

    class Peak(cupy.cuda.MemoryHook):
        name = "mytorch-peak"

        def malloc_postprocess(self, **event):
            if not event["mem_ptr"]:  # it failed
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
    """Take this thread's hook away: with one, each allocation makes two detours through Python."""
    hook, _hooked.hook = getattr(_hooked, "hook", None), None
    if hook is not None:
        hook.__exit__(None, None, None)


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most bytes in use from `reset_peak_memory_stats` to now.

    The reset starts the watch and this call ends it, since watching takes a millisecond of a small training step. Before and
    afterwards, it is the most that a call of `memory_allocated` or of this function has seen.
    """
    _end_watch()
    used = memory_allocated(device)
    return max(_peak[index_of(device)], used) if backend.cuda_available() else 0


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Forget the peak, and watch this thread's allocations until `max_memory_allocated` is called."""
    if backend.cuda_available():
        _watch()
        number = index_of(device)
        _peak[number] = _now[number] = _of(device, "used_bytes")
        _most_held[number] = 0


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most bytes that the pool held since `reset_peak_memory_stats`: it only grows until `empty_cache`."""
    return max(_most_held[index_of(device)], memory_reserved(device)) if backend.cuda_available() else 0


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU, as CUDA sees it."""
    cuda = backend.cupy_ns().cuda
    with cuda.Device(index_of(device)):
        return cuda.runtime.memGetInfo()


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """The figures that there are, under PyTorch's names."""
    return {
        "allocated_bytes.all.current": memory_allocated(device),
        "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": memory_reserved(device),
        "reserved_bytes.all.peak": max_memory_reserved(device),
    }


def memory_summary(device: DeviceLike | None = None, abbreviated: bool = False) -> str:
    """The figures of `memory_stats` as lines of text."""
    return "\n".join(f"{name:32} {value / 2**20:12.1f} MiB" for name, value in memory_stats(device).items())


def empty_cache() -> None:
    """Give freed GPU memory back to the system; nothing to give without a GPU."""
    if backend.cuda_available():
        for number in range(backend.device_count()):
            with backend.cupy_ns().cuda.Device(number):
                _most_held[number] = max(_most_held[number], _pool().total_bytes())
                _pool().free_all_blocks()
        backend.cupy_ns().get_default_pinned_memory_pool().free_all_blocks()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike | None = None) -> None:
    """Let the pool take at most this share of a GPU's memory.

    Raises:
        ValueError: a fraction outside 0 to 1.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    with backend.cupy_ns().cuda.Device(index_of(device)):
        _pool().set_limit(fraction=fraction)


def reset_max_memory_allocated(device: DeviceLike | None = None) -> None:
    """The older name of `reset_peak_memory_stats`."""
    name = "torch.cuda.reset_max_memory_allocated"
    warn(f"{name} now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak memory stats.", FutureWarning)
    reset_peak_memory_stats(device)
