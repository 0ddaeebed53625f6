"""PyTorch's files of before 1.6: five pickles one after the other (a magic number, the protocol, the machine's byte order, the
object, the keys of its storages), then each storage's number of elements and bytes. They are read as the archive's pickle is:
with nothing but tensors, plain containers and trusted classes at hand.
"""

import io
import pickle
import pickletools
import sys

import numpy as np

from ..backend import CPU, to_device
from ..files.archive import Pickler, guarded, placer, storage_like, unpickle
from ..files.limits import Budget

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


def write(obj, file):
    """Write an object to a binary file.

    Raises:
        TypeError: something in obj can't be saved; the message says where.
    """
    content = io.BytesIO()
    pickler = Pickler(content, views=True)
    pickler.dump(obj)
    machine = {
        "protocol_version": _PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}
    }  # fmt: skip
    for value in (_MAGIC, _PROTOCOL, machine):
        file.write(pickle.dumps(value, 2))
    file.write(content.getvalue())
    file.write(pickle.dumps([str(key) for key in range(len(pickler.storages))], 2))
    for memory in pickler.storages:
        raw = to_device(memory, CPU)
        file.write(np.int64(raw.size).astype("<i8").tobytes())
        file.write((raw if sys.byteorder == "little" else raw.byteswap()).tobytes())


def _skip(file):
    """The next pickle of a file, whose opcodes are looked at, not run."""
    start = file.tell()
    for _ in pickletools.genops(file):
        pass
    stop = file.tell()
    file.seek(start)
    return file.read(stop - start)


def read(content, name, map_location=None, encoding="utf-8"):
    """The object in such a file.

    Args:
        content: its bytes, an array of uint8.
        name: for error messages.
        map_location: see `serialization.load`.
        encoding: of Python 2's strings.

    Raises:
        ValueError: the file is damaged or foreign. RuntimeError: it holds what is refused, or lies on a device that is not here.
    """
    file, budget = io.BytesIO(content), Budget(name, len(content))

    def run():
        parts = [_skip(file) for _ in range(5)]
        magic, protocol, machine, _, keys = (None if i == 3 else unpickle(p, None, budget) for i, p in enumerate(parts))
        if (magic, protocol) != (_MAGIC, _PROTOCOL):
            raise ValueError(f"load: {name} is a pickle, but none of PyTorch's.")
        known = _declared(parts[3], budget, len(content))
        swapped = machine["little_endian"] is not (sys.byteorder == "little")
        place, raws, storages = placer(map_location), {}, {}
        for key in keys:
            dtype, count = known[key]
            (said,) = np.frombuffer(file.read(8), "<i8")
            if said != count:
                raise ValueError(f"storage {key[:99]!r} has {said} elements, and {count} are said")
            raw = np.frombuffer(file.read(count * dtype.itemsize), dtype.numpy, count)
            raws[key] = raw.byteswap() if swapped else raw.copy()

        def storage_of(key, cls, location, count):
            if key not in storages:
                storages[key] = storage_like(place(raws[key], location), cls)
            return storages[key]

        return unpickle(parts[3], storage_of, budget, encoding)

    return guarded(run, name)


def _declared(part, budget, size):
    """{key: (dtype, number of elements)} of the storages that the object's pickle refers to; they must fit into `size` bytes."""
    known = {}

    def storage_of(key, cls, location, count):
        known.setdefault(key, (cls.dtype, count))
        if count < 0 or sum(d.itemsize * n for d, n in known.values()) > size:
            raise ValueError(f"storage {key[:99]!r} is said to have {count} elements")
        return storage_like(np.zeros(count, cls.dtype.numpy), cls)

    unpickle(part, storage_of, budget)
    return known
