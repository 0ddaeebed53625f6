"""Sending batches from a worker to its parent through a socket, with large batches in shared memory.

A message is pickled with the memory of its arrays kept apart (pickle protocol 5). Then it is laid out as one frame: the
sizes of the parts, the pickle, the arrays. A small frame is sent through the socket. A large frame is written to a
segment: an anonymous file in memory, which both sides map. Its descriptor is sent with its first frame.

The arrays of the parent are views of the mapping. When the last of them is deleted, the parent marks the segment as free
in its next task to the worker. The worker then uses the segment again, which is many times faster than new memory.

A segment has no name. So nothing remains if a process dies: the system frees the segment with its last descriptor and
mapping. On systems without anonymous files, everything is sent through the socket.

The pickles that are read here come from the same program: both ends are a parent and the child that it started, and the
socket between them has no name that another process could connect to.
"""

import io
import mmap
import os
import pickle
import struct
import threading
import weakref
from multiprocessing import reduction

import numpy as np

SHARED_BYTES = 1 << 16  # below, copying through the socket is faster
SPARE = 4  # free segments that a worker keeps
LEASES = 128  # each holds a descriptor; a program that keeps more batches than that gets copies
ALIGN = 64

_HAS_SHARED = hasattr(os, "memfd_create")
_leases = set()
_forks = 0


def _before_fork():
    """Retires the segments of batches that are alive, since a child process may continue to use these batches."""
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


class _Segment:
    """The worker's side of a segment."""

    def __init__(self, number, size):
        self.number = number
        self.descriptor = os.memfd_create("mytorch-batch")
        self.size = size
        self.mapping = None

    def fill(self, parts):
        """Writes the parts one after another."""
        if self.mapping is None:  # writing to a new file is faster than touching new pages
            with open(self.descriptor, "wb", closefd=False) as file:
                file.writelines(parts)
            os.ftruncate(self.descriptor, self.size)
            self.mapping = mmap.mmap(self.descriptor, self.size)
            return
        memory = np.frombuffer(self.mapping, np.uint8)
        start = 0
        for part in parts:
            memory[start : start + len(part)] = np.frombuffer(part, np.uint8)
            start += len(part)

    def close(self):
        """Releases this side of the segment."""
        if self.mapping is not None:
            self.mapping.close()
        os.close(self.descriptor)


class Sender:
    """The worker's end of its connection."""

    def __init__(self, connection):
        self.connection = connection
        self.used = {}  # number -> segment that the parent has
        self.free = []
        self.count = 0
        self.lock = threading.Lock()

    def take_back(self, free, retired):
        """Marks segments that the parent no longer needs as free. Retired segments must not be written again."""
        with self.lock:
            self.free += [self.used.pop(number) for number in free]
            for number in retired:
                self.used.pop(number).close()

    def send(self, message):
        """Sends any object that can be pickled.

        Raises:
            Exception: pickling failed; nothing was sent.
            OSError: the parent is gone, or there is no memory.
        """
        parts = _frame(message)
        total = sum(len(part) for part in parts)
        if total < SHARED_BYTES or not _HAS_SHARED:
            self.connection.send_bytes(b"".join((b"\0" * ALIGN, *parts)))
            return
        with self.lock:
            segment, discarded = self._choose(total)
        is_new = segment.mapping is None
        try:
            segment.fill(parts)
        except OSError:
            segment.close()
            self.free += discarded
            raise
        with self.lock:
            self.used[segment.number] = segment
        note = (segment.number, total, is_new, [old.number for old in discarded])
        self.connection.send_bytes(b"S" + pickle.dumps(note))
        if is_new:
            reduction.send_handle(self.connection, segment.descriptor, None)
        for old in discarded:
            old.close()

    def _choose(self, total):
        """Returns the smallest free segment that fits, or a new one, and the segments to release."""
        self.free.sort(key=lambda segment: segment.size)
        fitting = [segment for segment in self.free if segment.size >= total]
        if fitting:
            self.free.remove(fitting[0])
            discarded, self.free = self.free[:-SPARE], self.free[-SPARE:]
            return fitting[0], discarded
        discarded, self.free = self.free, []
        self.count += 1
        return _Segment(self.count, -(-total // mmap.PAGESIZE) * mmap.PAGESIZE), discarded


class Receiver:
    """The parent's end of a worker's connection."""

    def __init__(self, connection):
        self.connection = connection
        self.mappings = {}
        self.died = []  # (number, forks when it was lent) of segments whose arrays have died

    def take_died(self):
        """Returns the numbers of segments for `Sender.take_back`: (free, retired)."""
        died = [self.died.pop() for _ in range(len(self.died))]
        free = [number for number, forks in died if forks == _forks]
        retired = [number for number, forks in died if forks != _forks]
        for number in retired:
            del self.mappings[number]
        return free, retired

    def receive(self):
        """Receives the next message. Its arrays are writable.

        Raises:
            EOFError, OSError: the worker is gone.
        """
        frame = self.connection.recv_bytes()
        if frame[:1] != b"S":
            return _load(memoryview(bytearray(frame))[ALIGN:])
        number, total, is_new, discarded = pickle.loads(frame[1:])
        for old in discarded:
            del self.mappings[old]
        if is_new:
            descriptor = reduction.recv_handle(self.connection)
            try:
                self.mappings[number] = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)
        lease = np.frombuffer(self.mappings[number], np.uint8, total)
        token = object()
        end = weakref.finalize(lease, _end_lease, self.died, number, _forks, token)
        end.atexit = False
        if len(_leases) < LEASES:
            _leases.add(token)
            return _load(memoryview(lease))
        return _load(memoryview(bytearray(lease)))


def _end_lease(died, number, forks, token):
    _leases.discard(token)
    died.append((number, forks))


def _frame(message):
    """Returns the frame of a message in chunks: the table of sizes, the pickle, the arrays, each padded."""
    buffers = []
    file = io.BytesIO()
    reduction.ForkingPickler(file, 5, True, buffers.append).dump(message)
    chunks = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
    table = struct.pack(f"<{len(chunks) + 1}Q", len(chunks), *(len(chunk) for chunk in chunks))
    parts = []
    for chunk in (table, *chunks):
        parts += [chunk, bytes(-len(chunk) % ALIGN)]
    return [part for part in parts if len(part)]


def _load(frame):
    """Returns the message in a frame. Its arrays are views of the frame."""
    (count,) = struct.unpack_from("<Q", frame)
    chunks = []
    start = 8 * (count + 1)
    for size in struct.unpack_from(f"<{count}Q", frame, 8):
        start += -start % ALIGN
        chunks.append(frame[start : start + size])
        start += size
    return pickle.loads(chunks[0], buffers=chunks[1:])
