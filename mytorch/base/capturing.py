"""What a CUDA graph under capture asks of those whose numbers come from the CPU; `cuda/graphs.py` captures.

A graph launches again what was launched while it was captured, with the same arguments and addresses. So what differs
from step to step must lie in the device's memory, and be brought up to date before each replay:

* `upload` copies numbers from the CPU into device memory. Under capture the copy is part of the graph, from memory that
  the graph keeps, so it brings the same numbers at each replay. `constant` does it once, for what no replay changes.
* `Capture.before_replay(call)` runs a function on the CPU before each replay: an optimizer writes its learning rate.
  It raises `Stale` if the graph no longer does what the program says (other hyperparameters, replaced memory).
* `Capture.generators` are those that were drawn from; their offset is raised at each replay.

`current` is the capture under way: the step is run as usual a few times first (`recording` is False), in which what must
be there is made, and is then captured.
"""

from typing import Any

import numpy as np

from .errors import CaptureError

current: Any = None  # a Capture


class Stale(Exception):
    """A graph that must be captured again; the message says why."""


class Capture:
    """One capture, or the run that prepares it.

    Attributes:
        recording: whether the stream is being captured, rather than the step run to prepare it.
        kept: what the graph's launches refer to, and nothing else would keep.
        updates: functions to run before each replay.
        generators: random generators that were drawn from. advanced: those whose offset a replay raises.
    """

    def __init__(self, recording):
        self.recording = recording
        self.kept = []
        self.constants = []  # (device array, its numbers): see `constant`
        self.updates = []
        self.generators = set()
        self.advanced = set()

    def before_replay(self, call):
        """Run `call()` on the CPU before each replay."""
        self.updates.append(call)

    def send_constants(self):
        """Bring the constants' numbers there, once and for all, when nothing is captured any more."""
        for there, host in self.constants:
            there.set(host)
        for there, _ in self.constants[-1:]:
            there.device.synchronize()  # a replay may be on any stream


def is_preparing():
    """Whether a capture is under way, or the run before it."""
    return current is not None


def is_recording():
    """Whether what is launched now goes into a graph."""
    return current is not None and current.recording


def refuse(what, remedy):
    """Raise the error for what a graph can't hold.

    Raises:
        CaptureError: if something is being captured.
    """
    if is_recording():
        raise CaptureError(f"{what} can't be captured into a CUDA graph: {remedy}")


def note_draw(generator):
    """Note that a random generator was drawn from."""
    if current is not None:
        current.generators.add(generator)


def upload(xp, host):
    """A device array of a NumPy array's numbers; under capture, copied again at each replay."""
    if not is_recording():
        return xp.asarray(host)
    pinned = xp.empty_pinned(host.shape, host.dtype)
    pinned[...] = host
    there = xp.empty(host.shape, host.dtype)
    copy_pinned(xp, there, pinned)
    current.kept += [pinned, there]
    return there


def constant(xp, host):
    """A device array of numbers that nothing will change. Under capture it is no part of the graph, and lies outside its
    memory, of which replays use each piece for several things."""
    if not is_recording():
        return xp.asarray(host)
    with xp.cuda.using_allocator(xp.get_default_memory_pool().malloc):
        there = xp.empty(host.shape, host.dtype)
    current.kept.append(there)
    current.constants.append((there, host))
    return there


def copy_pinned(xp, out, array):
    """Copy between a contiguous device array and contiguous page-locked host memory, on the current stream, without waiting.

    CUDA lets such a copy be captured; CuPy's own methods for it (`get`, `set`, `copy_from_host_async`) refuse to.
    """
    runtime = xp.cuda.runtime
    if isinstance(out, np.ndarray):
        ends = out.ctypes.data, array.data.ptr, out.nbytes, runtime.memcpyDeviceToHost
    else:
        ends = out.data.ptr, array.ctypes.data, out.nbytes, runtime.memcpyHostToDevice
    if out.size:
        runtime.memcpyAsync(*ends, xp.cuda.get_current_stream().ptr)
