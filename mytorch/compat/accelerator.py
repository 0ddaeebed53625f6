"""`torch.accelerator`: the GPU, if there is one."""

from .. import cuda
from ..arrays import as_device

is_available, device_count, synchronize = cuda.is_available, cuda.device_count, cuda.synchronize
current_device_index, set_device_index, empty_cache = cuda.current_device, cuda.set_device, cuda.empty_cache
memory_allocated, max_memory_allocated = cuda.memory_allocated, cuda.max_memory_allocated
memory_reserved, max_memory_reserved = cuda.memory_reserved, cuda.max_memory_reserved
reset_peak_memory_stats, current_stream, set_stream = cuda.reset_peak_memory_stats, cuda.current_stream, cuda.set_stream
current_device_idx, set_device_idx = current_device_index, set_device_index


def current_accelerator(check_available=False):
    """Returns the device type of the accelerator, or None without one."""
    return as_device("cuda") if is_available() else None
