"""PyTorch's file format before 1.6: five pickles, then the number of elements and the bytes of each storage.

The pickles contain a magic number, the protocol, the byte order, the object, and the keys of its storages. Reading is restricted to tensors, plain containers and
trusted classes, as for archives.
"""

import io
import pickle
import pickletools
import sys

import numpy as np

from ..arrays import CPU, to_device
from .archive import guarded, pickled, placer, storage_like, unpickle
from .limits import Budget

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


def write(obj, file):
    """Write an object to a binary file.

    Raises:
        TypeError: if an object cannot be saved; the message contains its position.
    """
    content, pickler = pickled(obj, views=True)
    machine = {
        "protocol_version": _PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}
    }  # fmt: skip
    for value in (_MAGIC, _PROTOCOL, machine):
        file.write(pickle.dumps(value, 2))
    file.write(content)
    file.write(pickle.dumps([str(key) for key in range(len(pickler.storages))], 2))
    for memory in pickler.storages:
        raw = to_device(memory, CPU)
        file.write(np.int64(raw.size).astype("<i8").tobytes())
        file.write((raw if sys.byteorder == "little" else raw.byteswap()).tobytes())


def _skip(file):
    """Return the next pickle of a file. Its opcodes are parsed but do not run."""
    start = file.tell()
    for _ in pickletools.genops(file):
        pass
    stop = file.tell()
    file.seek(start)
    return file.read(stop - start)


def read(content, name, map_location=None, encoding="utf-8", trusted=None):
    """Return the object in a file of this format, and the number of bytes that it takes. Other contents may follow.

    Args:
        content: bytes of the file, an array of uint8.
        name: name of the file for messages.
        map_location: see `serialization.load`.
        encoding: encoding of Python 2's strings.
        trusted: see `archive.unpickle`.

    Raises:
        ValueError: if the file is damaged or not a PyTorch file.
        RuntimeError: if the file contains refused objects, or needs a missing device.
    """
    file, budget = io.BytesIO(content), Budget(name, len(content))

    def run():
        parts = [_skip(file) for _ in range(5)]
        magic, protocol, machine, _, keys = (None if i == 3 else unpickle(p, None, budget) for i, p in enumerate(parts))
        if (magic, protocol) != (_MAGIC, _PROTOCOL):
            raise ValueError(f"load: expected a PyTorch file, got another pickle in {name}.")
        known = _declared(parts[3], budget, len(content), trusted)
        swapped = machine["little_endian"] is not (sys.byteorder == "little")
        place, raws, storages = placer(map_location), {}, {}
        for key in keys:
            dtype, count = known[key]
            (said,) = np.frombuffer(file.read(8), "<i8")
            if said != count:
                raise ValueError(f"storage {key[:99]!r} has {said} elements, expected {count}")
            raw = np.frombuffer(file.read(count * dtype.itemsize), dtype.numpy, count)
            raws[key] = raw.byteswap() if swapped else raw.copy()

        def storage_of(key, cls, location, count):
            if key not in storages:
                storages[key] = storage_like(place(raws[key], location), cls)
            return storages[key]

        return unpickle(parts[3], storage_of, budget, encoding, trusted), file.tell()

    return guarded(run, name, trusted)


def _declared(part, budget, size, trusted):
    """Return {key: (dtype, number of elements)} of the pickle's storages, which must fit into `size` bytes."""
    known = {}

    def storage_of(key, cls, location, count):
        known.setdefault(key, (cls.dtype, count))
        if count < 0 or sum(d.itemsize * n for d, n in known.values()) > size:
            raise ValueError(f"storage {key[:99]!r} has an invalid number of elements, {count}")
        return storage_like(np.zeros(count, cls.dtype.numpy), cls)

    budget.declaring = True
    unpickle(part, storage_of, budget, trusted=trusted)
    budget.declaring = False
    return known
