"""The GPU's side of PyTorch's API: what is there, which is current, waiting, memory, seeds.

Without CuPy or a GPU, `is_available()` is False, the counts are 0, and what needs a GPU says why there is none.
"""

from contextlib import nullcontext

from .. import backend
from ..ops.random import generator_for


def is_available():
    """Whether CuPy is installed and sees a GPU."""
    return backend.cuda_available()


def device_count():
    """How many GPUs are visible."""
    return backend.cupy_ns().cuda.runtime.getDeviceCount() if is_available() else 0


def current_device():
    """The number of the current GPU."""
    return backend.cupy_ns().cuda.runtime.getDevice()


def set_device(device):
    """Make a GPU the current one."""
    backend.cupy_ns().cuda.Device(backend.as_device(device).index).use()


def device(device):
    """A context manager in which a GPU is the current one; None changes nothing."""
    return nullcontext() if device is None else backend.on(backend.as_device(device))[1]


def get_device_name(device=None):
    """The name of a GPU."""
    index = current_device() if device is None else backend.as_device(device).index
    return backend.cupy_ns().cuda.runtime.getDeviceProperties(index)["name"].decode()


def get_device_capability(device=None):
    """(major, minor) compute capability of a GPU."""
    index = current_device() if device is None else backend.as_device(device).index
    capability = backend.cupy_ns().cuda.Device(index).compute_capability
    return int(capability[:-1]), int(capability[-1])


def synchronize(device=None):
    """Wait for all work on a GPU; nothing to wait for without one."""
    if is_available():
        backend.cupy_ns().cuda.Device(None if device is None else backend.as_device(device).index).synchronize()


def empty_cache():
    """Give freed GPU memory back to the system; nothing to give without a GPU."""
    if is_available():
        backend.cupy_ns().get_default_memory_pool().free_all_blocks()


def memory_allocated(device=None):
    """Bytes of GPU memory in use by arrays."""
    return backend.cupy_ns().get_default_memory_pool().used_bytes() if is_available() else 0


def memory_reserved(device=None):
    """Bytes of GPU memory held by the pool, in use or free."""
    return backend.cupy_ns().get_default_memory_pool().total_bytes() if is_available() else 0


def manual_seed(seed):
    """Seed the current GPU's generator; nothing to seed without one."""
    if is_available():
        generator_for(backend.as_device("cuda")).manual_seed(seed)


def manual_seed_all(seed):
    """Seed the generators of all GPUs."""
    for i in range(device_count()):
        generator_for(backend.as_device(f"cuda:{i}")).manual_seed(seed)


def __getattr__(name):
    if name != "amp":
        raise AttributeError(f"module 'mytorch.cuda' has no attribute {name!r}")
    from importlib import import_module

    return import_module("mytorch.cuda.amp")
