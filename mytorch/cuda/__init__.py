"""`torch.cuda`: devices, streams, memory, random states and CUDA graphs of the GPU.

Without CuPy or a GPU, `is_available()` is False and the counts are 0. Functions that require a GPU raise an error with the
reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

from .. import _extensions
from .. import arrays as backend
from ..arrays import DeviceLike
from ..arrays.errors import OutOfMemoryError
from ..arrays.tensor import Tensor
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
    """Returns True if CuPy is installed and finds a GPU.

    Example:
        >>> device = "cuda" if mytorch.cuda.is_available() else "cpu"
    """
    return backend.cuda_available()


device_count = backend.device_count
StreamContext = AbstractContextManager  # type of the result of `stream`


def current_device() -> int:
    """Returns the number of the current GPU."""
    return index_of(None)


def set_device(device: DeviceLike) -> None:
    """Selects the current GPU.

    Args:
        device: the GPU.
    """
    backend.cupy_ns().cuda.Device(backend.as_device(device).index).use()


def device(device: DeviceLike | None) -> AbstractContextManager:
    """Returns a context manager that selects a GPU.

    Args:
        device: the GPU; None does not change the current GPU.
    """
    return nullcontext() if device is None else backend.on(backend.as_device(device))[1]


def get_device_name(device: DeviceLike | None = None) -> str:
    """Returns the name of a GPU.

    Args:
        device: the GPU (default: the current GPU).
    """
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """Returns the compute capability (major, minor) of a GPU.

    Args:
        device: the GPU (default: the current GPU).
    """
    capability = backend.cupy_ns().cuda.Device(index_of(device)).compute_capability
    return int(capability[:-1]), int(capability[-1])


def get_device_properties(device: DeviceLike | None = None) -> SimpleNamespace:
    """Returns the name, memory and number of multiprocessors of a GPU, with PyTorch's attribute names.

    Args:
        device: the GPU (default: the current GPU).
    """
    found = backend.cupy_ns().cuda.runtime.getDeviceProperties(index_of(device))
    major, minor = get_device_capability(device)
    return SimpleNamespace(
        name=found["name"].decode(), total_memory=found["totalGlobalMem"], multi_processor_count=found["multiProcessorCount"],
        major=major, minor=minor,
    )  # fmt: skip


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Returns True if a GPU is available. Every GPU supports bfloat16, from compute capability 8 in hardware.

    Args:
        including_emulation: accepted for compatibility.
    """
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_initialized() -> bool:
    """Returns True if CuPy is loaded and has found a GPU."""
    return is_available()


def init() -> None:
    """Loads CuPy. Otherwise, CuPy is loaded on first use."""
    backend.cupy_ns()


def _lazy_call(callable, **kwargs):
    """Call a function that requires a GPU, if there is one."""
    if is_available():
        callable()


def ipc_collect() -> None:
    """Does nothing, because processes do not share memory. Accepted for compatibility."""


def seed() -> None:
    """Seeds the generator of the current GPU with random data of the operating system. No effect without a GPU."""
    if is_available():
        _generator("cuda").seed()


def seed_all() -> None:
    """Seeds the generators of all GPUs with one random number of the operating system."""
    if is_available():
        manual_seed_all(_generator("cuda").seed())


def initial_seed() -> int:
    """Returns the last seed of the current GPU's generator."""
    return _generator("cuda").initial_seed()


def synchronize(device: DeviceLike | None = None) -> None:
    """Waits for all work on a GPU. No effect without a GPU.

    Args:
        device: the GPU (default: the current GPU).
    """
    if is_available():
        backend.cupy_ns().cuda.Device(None if device is None else backend.as_device(device).index).synchronize()


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current GPU. No effect without a GPU."""
    if is_available():
        _generator("cuda").manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs."""
    for i in range(device_count()):
        _generator(i).manual_seed(seed)


def _generator(device: DeviceLike) -> Generator:
    return generator_for(backend.as_device(device))


def get_rng_state(device: DeviceLike = "cuda") -> Tensor:
    """Returns the state of a GPU's generator, a uint8 tensor on the CPU.

    Args:
        device: the GPU.
    """
    return _generator(device).get_state()


def set_rng_state(new_state: Tensor, device: DeviceLike = "cuda") -> None:
    """Restores the state of a GPU's generator.

    Args:
        new_state: result of `get_rng_state`.
        device: the GPU.
    """
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """Returns the states of the generators of all GPUs."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Restores the states of the generators of all GPUs.

    Args:
        new_states: result of `get_rng_state_all`.
    """
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def device_of(obj: Tensor) -> AbstractContextManager:
    """Returns a context manager that selects the GPU of a tensor. No effect for a tensor on the CPU.

    Args:
        obj: the tensor.
    """
    return device(obj.device if obj.is_cuda else None)


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Returns True if a GPU can access the memory of another GPU directly.

    Args:
        device: the GPU.
        peer_device: the other GPU.
    """
    numbers = [backend.as_device(d).index for d in (device, peer_device)]
    return bool(backend.cupy_ns().cuda.runtime.deviceCanAccessPeer(*numbers))


__getattr__, __dir__ = _extensions.lazy(__name__)
