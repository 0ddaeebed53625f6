"""Sending batches between processes: small ones through the socket, large ones in shared memory.

A message is pickled with its arrays' memory kept apart (pickle protocol 5), then laid out as one frame: the
sizes of the parts, the pickle, the arrays. A small frame is sent as it is. A large one is written to an
anonymous file in memory, whose descriptor is sent; the receiver maps it, and the arrays are views of the
mapping. Such a file has no name, so nothing is left behind, whoever dies: the system frees it with the last
descriptor and mapping. Where the system has no such files, everything goes through the socket.
"""

import io
import mmap
import os
import pickle
import struct
import weakref
from multiprocessing import reduction

SHARED_BYTES = 1 << 16  # below, copying through the socket is quicker than a file
MAPPINGS = 128  # each holds a descriptor; a program that keeps more batches than that gets copies
ALIGN = 64

_HAS_SHARED = hasattr(os, "memfd_create")
_mappings = weakref.WeakSet()


def send(connection, message):
    """Send any picklable object; `receive` takes it.

    Raises:
        Exception: whatever pickling it raised; nothing was sent then.
        OSError: the other side is gone, or there is no memory.
    """
    parts = _parts(message)
    total = sum(len(part) for part in parts)
    if total < SHARED_BYTES or not _HAS_SHARED:
        connection.send_bytes(b"".join((b"\0" * ALIGN, *parts)))
        return
    descriptor = os.memfd_create("mytorch-batch")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            for part in parts:
                file.write(part)
        connection.send_bytes(struct.pack("<Q", total))
        reduction.send_handle(connection, descriptor, None)
    finally:
        os.close(descriptor)


def receive(connection):
    """The next message; its arrays are writable.

    Raises:
        EOFError, OSError: the other side is gone.
    """
    frame = connection.recv_bytes()
    if len(frame) >= ALIGN:
        return _load(memoryview(bytearray(frame))[ALIGN:])
    (total,) = struct.unpack("<Q", frame)
    descriptor = reduction.recv_handle(connection)
    try:
        mapping = mmap.mmap(descriptor, total)
    finally:
        os.close(descriptor)
    if len(_mappings) >= MAPPINGS:
        with mapping:
            return _load(memoryview(bytearray(mapping)))
    _mappings.add(mapping)
    return _load(memoryview(mapping))


def _parts(message):
    """The frame of a message in pieces: the table of sizes, the pickle, the arrays, each padded."""
    buffers = []
    file = io.BytesIO()
    reduction.ForkingPickler(file, 5, True, buffers.append).dump(message)
    pieces = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
    table = struct.pack(f"<{len(pieces) + 1}Q", len(pieces), *(len(piece) for piece in pieces))
    parts = []
    for piece in (table, *pieces):
        parts += [piece, bytes(-len(piece) % ALIGN)]
    return parts


def _load(frame):
    """The message in a frame, its arrays views of it."""
    (count,) = struct.unpack_from("<Q", frame)
    pieces = []
    start = 8 * (count + 1)
    for size in struct.unpack_from(f"<{count}Q", frame, 8):
        start += -start % ALIGN
        pieces.append(frame[start : start + size])
        start += size
    return pickle.loads(pieces[0], buffers=pieces[1:])
