"""Memory that a stream may still use, and that nothing else refers to.

A GPU runs behind the CPU. CuPy's pool gives a freed block to the next array of the same stream at once, which is right as
long as only that stream uses the block. Pinned memory, and arrays that another stream uses, need more: `hold` keeps an
object until the work that a stream has so far is done, and `use_on` does the same for an array that the program still has.
"""

import sys
from collections import deque

from . import capturing

_held = deque()  # (event, object): kept until the event has happened
_used = {}  # id of a memory block -> (the block, the streams other than its own that use it)


def _references(entry):
    return sys.getrefcount(entry[0])


_ALONE = _references((object(),))  # what `_references` returns for a block that only `_used` refers to


def hold(event, held):
    """Keeps an object until an event has happened, or as long as the capturing graph."""
    if capturing.is_recording():
        capturing.current.kept.append(held)
        return
    _drop_done()
    _held.append((event(), held))


def _drop_done():
    while _held and _held[0][0].done:
        _held.popleft()


def use_on(raw, stream):
    """Keeps the memory of a CuPy array from reuse until the work that `stream` has when the last array in it dies is done.

    CuPy's blocks have no weak references and return to the pool before a finalizer could run. So the block is kept here, and
    `collect` looks for blocks without another reference.

    Args:
        stream: a `cuda.Stream`.
    """
    memory = raw.data.mem
    if capturing.is_recording():
        capturing.current.kept.append(memory)
        return
    _used.setdefault(id(memory), (memory, set()))[1].add(stream)
    del memory
    collect()


def collect(wait=False):
    """Returns memory to the pool that no array and no stream uses any more.

    Args:
        wait: wait for the streams, so that all memory without an array is returned.
    """
    if capturing.is_recording():  # querying an event of a capturing stream would end the capture
        return
    for key in [key for key, entry in list(_used.items()) if _references(entry) <= _ALONE]:
        memory, streams = _used.pop(key, (None, ()))
        for stream in streams:
            _held.append((stream.record_event()._event, memory))
        del memory
    while wait and _held:
        _held.popleft()[0].synchronize()
    _drop_done()
