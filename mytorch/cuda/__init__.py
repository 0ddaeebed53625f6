"""The GPU's side of PyTorch's API: what is there, which is current, waiting, memory, seeds.

Without CuPy or a GPU, `is_available()` is False, the counts are 0, and what needs a GPU says why there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

from .. import _extensions, backend
from .._tensor import Tensor
from ..backend import DeviceLike
from ..base.errors import OutOfMemoryError
from ..ops.random import Generator, generator_for
from .graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .streams import Event, Stream, current_stream, default_stream, index_of, set_stream, stream


def is_available() -> bool:
    """Whether CuPy is installed and sees a GPU.

    Example:
        >>> device = "cuda" if mytorch.cuda.is_available() else "cpu"
    """
    return backend.cuda_available()


device_count = backend.device_count
StreamContext = AbstractContextManager  # what `stream` returns


def current_device() -> int:
    """The number of the current GPU."""
    return index_of(None)


def set_device(device: DeviceLike) -> None:
    """Make a GPU the current one."""
    backend.cupy_ns().cuda.Device(backend.as_device(device).index).use()


def device(device: DeviceLike | None) -> AbstractContextManager:
    """A context manager in which a GPU is the current one; None changes nothing."""
    return nullcontext() if device is None else backend.on(backend.as_device(device))[1]


def get_device_name(device: DeviceLike | None = None) -> str:
    """The name of a GPU."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """(major, minor) compute capability of a GPU."""
    capability = backend.cupy_ns().cuda.Device(index_of(device)).compute_capability
    return int(capability[:-1]), int(capability[-1])


def get_device_properties(device: DeviceLike | None = None) -> SimpleNamespace:
    """A GPU's name, memory and number of multiprocessors, with PyTorch's attribute names."""
    found = backend.cupy_ns().cuda.runtime.getDeviceProperties(index_of(device))
    major, minor = get_device_capability(device)
    return SimpleNamespace(
        name=found["name"].decode(), total_memory=found["totalGlobalMem"], multi_processor_count=found["multiProcessorCount"],
        major=major, minor=minor,
    )  # fmt: skip


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU is there; CuPy computes bfloat16 on any, from compute capability 8 in hardware."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_initialized() -> bool:
    """Whether CuPy is loaded and found a GPU."""
    return is_available()


def init() -> None:
    """Load CuPy now; else it is loaded when first used."""
    backend.cupy_ns()


def _lazy_call(callable, **kwargs):
    """Call something for which the GPU has to be there, if it is."""
    if is_available():
        callable()


def ipc_collect() -> None:
    """Accepted: no memory is shared between processes."""


def seed() -> None:
    """Seed the current GPU's generator from the operating system; nothing to seed without one."""
    if is_available():
        _generator("cuda").seed()


def seed_all() -> None:
    """Seed the generators of all GPUs with one seed from the operating system."""
    if is_available():
        manual_seed_all(_generator("cuda").seed())


def initial_seed() -> int:
    """The seed that the current GPU's generator last started from."""
    return _generator("cuda").initial_seed()


def synchronize(device: DeviceLike | None = None) -> None:
    """Wait for all work on a GPU; nothing to wait for without one."""
    if is_available():
        backend.cupy_ns().cuda.Device(None if device is None else backend.as_device(device).index).synchronize()


def manual_seed(seed: int) -> None:
    """Seed the current GPU's generator; nothing to seed without one."""
    if is_available():
        _generator("cuda").manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all GPUs."""
    for i in range(device_count()):
        _generator(i).manual_seed(seed)


def _generator(device: DeviceLike) -> Generator:
    return generator_for(backend.as_device(device))


def get_rng_state(device: DeviceLike = "cuda") -> Tensor:
    """The state of a GPU's generator, a uint8 tensor on the CPU."""
    return _generator(device).get_state()


def set_rng_state(new_state: Tensor, device: DeviceLike = "cuda") -> None:
    """Go on from a state that `get_rng_state` returned."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs' generators, in order."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Go on from the states that `get_rng_state_all` returned."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def device_of(obj: Tensor) -> AbstractContextManager:
    """A context manager in which the GPU of a tensor is the current one; one on the CPU changes nothing."""
    return device(obj.device if obj.is_cuda else None)


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether one GPU can read another's memory directly."""
    numbers = [backend.as_device(d).index for d in (device, peer_device)]
    return bool(backend.cupy_ns().cuda.runtime.deviceCanAccessPeer(*numbers))


__getattr__, __dir__ = _extensions.lazy(__name__, "amp nvtx")
