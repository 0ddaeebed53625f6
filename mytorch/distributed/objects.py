"""Python objects between processes: as JSON, with tensors as they are; never as pickles.

What `serialization.save_tree` can write can be sent: numbers, strings, None, dicts, lists, tuples, tensors, arrays.
"""

import io

import numpy as np

from ..backend import CPU, as_device, on, to_device
from ..serialization import load, save_tree


def encode(obj):
    """An object as bytes.

    Raises:
        TypeError: it holds something that is neither plain data nor a tensor.
    """
    file = io.BytesIO()
    save_tree(obj, file)
    return file.getvalue()


def decode(content):
    """The object that `encode` was given; tensors come back on the CPU.

    Raises:
        ValueError: it is something else, such as a file of PyTorch's, which holds a pickle.
    """
    content = bytes(content)
    if content[:4] == b"PK\x03\x04":
        raise ValueError("distributed: a process sent an archive where an object was expected; it is not read.")
    return load(io.BytesIO(content))


def _where(engine):
    """The device of the engine's arrays."""
    return as_device("cuda") if engine.device_type == "cuda" else CPU


def _to_engine(engine, host):
    return to_device(host, _where(engine))


def _empty(engine, shape, dtype):
    xp, there = on(_where(engine))
    with there:
        return xp.empty(shape, dtype)


def _host(raw):
    return to_device(raw, CPU)


def all_gather_bytes(engine, content, label="all_gather_object"):
    """The bytes of every process, in order."""
    size = _to_engine(engine, np.array([len(content)], np.int64))
    sizes = _empty(engine, (engine.size,), np.int64)
    engine.all_gather(sizes, size, label).wait()
    sizes = _host(sizes)
    longest = max(int(sizes.max()), 1)
    mine = np.zeros(longest, np.uint8)
    mine[: len(content)] = np.frombuffer(content, np.uint8)
    everyone = _empty(engine, (engine.size, longest), np.uint8)
    engine.all_gather(everyone, _to_engine(engine, mine), label).wait()
    everyone = _host(everyone)
    return [everyone[i, :n].tobytes() for i, n in enumerate(sizes)]


def broadcast_bytes(engine, content, root, label="broadcast_object_list"):
    """The bytes of process `root`, on every process; elsewhere `content` is not read."""
    here = engine.rank == root
    size = _to_engine(engine, np.array([len(content) if here else 0], np.int64))
    engine.broadcast(size, root, label).wait()
    n = int(_host(size)[0])
    host = np.frombuffer(content, np.uint8).copy() if here else np.zeros(n, np.uint8)
    data = _to_engine(engine, host)
    if n:
        engine.broadcast(data, root, label).wait()
    return _host(data).tobytes()
