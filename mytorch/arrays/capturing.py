"""Support for the capture of CUDA graphs by code with values from the CPU; `cuda/graphs.py` captures.

A replay launches the captured kernels again, with the same arguments and addresses. Values that change from step to step
must be in GPU memory, and must be updated before each replay:

* `upload` copies values from the CPU to the GPU. During capture, the copy is part of the graph, so each replay copies the
  same values from memory that the graph keeps. `constant` copies values once, if no replay changes them.
* `Capture.before_replay(call)` runs a function on the CPU before each replay. For example, an optimizer writes its
  learning rate. The function raises `Stale` if the graph is out of date because of other hyperparameters or memory.
* `Capture.generators` are the random generators that the step draws from. Each replay increases their offsets.

`current` is the current capture. The step first runs a few times without capture, with `recording` False, to allocate
memory and state. Then it is captured.
"""

import threading
from typing import Any

import numpy as np

from .errors import CaptureError

current: Any = None  # a Capture; `is_recording` is True for the thread that captures only


class Stale(Exception):
    """Raised if a graph must be captured again; the message contains the reason."""


class Capture:
    """One capture, including the runs before it.

    Attributes:
        recording: True while the stream is captured, False during the runs before it.
        kept: references to objects that the graph uses.
        constants: pairs (device array, its values); see `constant`.
        updates: functions to run before each replay.
        generators: random generators that the step draws from.
        advanced: random generators with an offset that each replay increases.
        thread: the thread that captures. Other threads use other streams, and their work is not part of the graph.
    """

    def __init__(self, recording):
        self.recording = recording
        self.thread = threading.get_ident()
        self.kept = []
        self.constants = []
        self.updates = []
        self.generators = set()
        self.advanced = set()

    def before_replay(self, call):
        """Registers a function that runs on the CPU before each replay."""
        self.updates.append(call)

    def send_constants(self):
        """Copies the values of constants to the GPU after the capture."""
        for there, host in self.constants:
            there.set(host)
        for there, _ in self.constants[-1:]:
            there.device.synchronize()  # a replay may be on any stream


def is_preparing():
    """Returns True during a capture and during the runs before it."""
    return current is not None


def is_recording():
    """Returns True if the kernels of this thread are captured into a graph."""
    return current is not None and current.recording and current.thread == threading.get_ident()


def refuse(what, remedy):
    """Raises an error during a capture, for operations that a graph cannot contain.

    Args:
        what: name of the operation.
        remedy: advice to the user.

    Raises:
        CaptureError: kernels are captured into a graph.
    """
    if is_recording():
        raise CaptureError(f"{what} can't be captured into a CUDA graph: {remedy}")


def note_draw(generator):
    """Adds a random generator to the generators of the current capture."""
    if current is not None and current.thread == threading.get_ident():
        current.generators.add(generator)


def upload(xp, host):
    """Copies a NumPy array to the GPU. During a capture, each replay copies it again."""
    if not is_recording():
        return xp.asarray(host)
    pinned = xp.empty_pinned(host.shape, host.dtype)
    pinned[...] = host
    there = xp.empty(host.shape, host.dtype)
    copy_pinned(xp, there, pinned)
    current.kept += [pinned, there]
    return there


def constant(xp, host):
    """Copies a NumPy array of constants to the GPU.

    During a capture, the copy is not part of the graph. The result is outside of the memory of the graph, which replays
    use for several arrays.
    """
    if not is_recording():
        return xp.asarray(host)
    with xp.cuda.using_allocator(xp.get_default_memory_pool().malloc):
        there = xp.empty(host.shape, host.dtype)
    current.kept.append(there)
    current.constants.append((there, host))
    return there


def copy_pinned(xp, out, array):
    """Copies between a contiguous device array and contiguous page-locked host memory, without waiting.

    It uses the current stream. CUDA can capture this copy. The methods of CuPy (`get`, `set`, `copy_from_host_async`)
    raise an error during a capture.
    """
    runtime = xp.cuda.runtime
    if isinstance(out, np.ndarray):
        ends = out.ctypes.data, array.data.ptr, out.nbytes, runtime.memcpyDeviceToHost
    else:
        ends = out.data.ptr, array.ctypes.data, out.nbytes, runtime.memcpyHostToDevice
    if out.size:
        runtime.memcpyAsync(*ends, xp.cuda.get_current_stream().ptr)
