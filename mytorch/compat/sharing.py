"""Tensors in memory that several processes share: `share_memory_`, `is_shared`, `Module.share_memory`.

The memory is a mapped file without a name: processes that are forked inherit it, and queues, pipes and the arguments of spawned processes
pass its file descriptor. The operating system frees it when the last process that uses it ends.
"""

import gc
import mmap
import os
import tempfile
import weakref
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen

import numpy as np

from ..arrays import address, dtypes, memory_owner, ndarray, storage_bytes
from ..arrays.array import Array

_ALIGNMENT = 64  # bytes
_regions = weakref.WeakValueDictionary()  # (device, inode) of the file -> Region


class Region(mmap.mmap):
    """A block of shared memory; the arrays over it keep it alive."""

    fd = None

    def __del__(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _map(fd, size):
    """Returns the region of a file descriptor, which the region closes."""
    status = os.fstat(fd)
    key = status.st_dev, status.st_ino
    region = _regions.get(key)
    if region is not None:
        if fd != region.fd:
            os.close(fd)
        return region
    region = _regions[key] = Region(fd, size)
    region.fd = fd
    return region


def _new_region(size):
    if not hasattr(reduction, "DupFd"):
        raise NotImplementedError("share_memory_: expected a POSIX system, got Windows.")
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mytorch")
    else:
        with tempfile.TemporaryFile() as file:  # deleted already: it has no name
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return _map(fd, size)


def region_of(raw):
    """Returns the region that a raw array is in; None if its memory is not shared."""
    while isinstance(raw, (ndarray, memoryview)):
        raw = raw.base if isinstance(raw, ndarray) else raw.obj
    return raw if isinstance(raw, Region) else None


def is_shared(self):
    """Returns True if the tensor is in memory that several processes share, or on a GPU."""
    raw = self._mt_data._array
    return type(raw) is not ndarray or region_of(raw) is not None


def share_memory_(self):
    """Moves the memory of a CPU tensor, with all its views, to memory that several processes share.

    Processes that are started later, and processes that receive the tensor through `mytorch.multiprocessing`, read and write the
    same memory. Tensors that are not shared are copied. The method has no effect on a GPU.

    Returns:
        This tensor.

    Raises:
        NotImplementedError: the system is Windows.
    """
    share([self])
    return self


def share(tensors):
    """Moves the memory of several tensors to one region of shared memory.

    Args:
        tensors: Tensors or Arrays.
    """
    owners = {}
    for tensor in tensors:
        raw = tensor._mt_data._array
        if type(raw) is ndarray and raw.size and region_of(raw) is None:
            owner = memory_owner(raw)
            owners[id(owner)] = owner
    if not owners:
        return
    offsets, size = {}, 0
    memory = {key: storage_bytes(owner) for key, owner in owners.items()}
    for key, old in memory.items():
        offsets[key] = size
        size += -(-old.size // _ALIGNMENT) * _ALIGNMENT
    region = _new_region(size)
    shared = {}
    for key, old in memory.items():
        shared[key] = ndarray(old.size, np.uint8, region, offsets[key])
        shared[key][...] = old
    _register()
    for array in _objects():  # every Array over the old memory, such as views
        if type(array) is Array and type(array._array) is ndarray:
            raw = array._array
            key = id(memory_owner(raw))
            if key in shared:
                array._array = ndarray(
                    raw.shape, raw.dtype, shared[key], address(raw) - address(memory[key]), raw.strides
                )


def _objects():
    """Returns the objects that the garbage collector knows, also those of a program that called `gc.freeze`."""
    if not gc.get_freeze_count():
        return gc.get_objects()
    gc.collect()  # garbage that is frozen would never be freed
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()


def _share_with(self, tensors):
    """Moves this tensor and others to one region of shared memory, which needs one file descriptor."""
    share([self, *tensors])


def _register():
    """Lets queues, pipes and spawned processes pass shared arrays without a copy."""
    reduction.ForkingPickler.register(Array, _reduce)


def _reduce(array):
    raw = array._array
    region = region_of(raw) if type(raw) is ndarray else None
    if region is None:
        return array.__reduce__()
    offset = address(raw) - address(np.frombuffer(region, np.uint8))
    dtype = dtypes.from_numpy(raw.dtype).name
    return _rebuild, (_handle(region.fd), len(region), offset, dtype, raw.shape, raw.strides)


def _handle(fd):
    """Returns an object that passes a file descriptor to another process when it is pickled."""
    process = get_spawning_popen()
    if process is not None and process.method == "spawn" and fd in process._fds:
        return process.DupFd(fd)  # the new process inherits the descriptor once
    return reduction.DupFd(fd)


def _rebuild(handle, size, offset, dtype, shape, strides):
    _register()
    region = _map(handle.detach(), size)
    return Array._wrap(ndarray(shape, dtypes.as_numpy(dtypes.as_dtype(dtype)), region, offset, strides))
