"""Transfer of Python objects between processes: as JSON and raw tensors, without pickle.

Supported are all values that `serialization.save_tree` writes: numbers, strings, None, dicts, lists, tuples, tensors
and arrays.
"""

import io
from typing import Any

import numpy as np

from ..arrays import CPU, as_device, on, to_device
from ..files.serialization import load, save_tree
from .engine import Engine


def encode(obj: Any, function: str = "distributed") -> bytes:
    """Return an object as bytes.

    Args:
        obj: the object.
        function: name of the function that the user called, for error messages.

    Raises:
        TypeError: if it contains something other than plain data and tensors.
    """
    file = io.BytesIO()
    save_tree(obj, file, function)
    return file.getvalue()


def decode(content: bytes) -> Any:
    """Return the object that `encode` received; tensors are on the CPU.

    Raises:
        ValueError: if the bytes have another format, such as a PyTorch file, which contains a pickle.
    """
    content = bytes(content)
    if content[:4] == b"PK\x03\x04":
        raise ValueError("distributed: expected an encoded object from another process, got an archive.")
    return load(io.BytesIO(content))


def _empty(engine: Engine, *shape: int, dtype: type[np.generic] = np.uint8):
    """Return an array on the engine's device, and a function that copies CPU arrays to that device."""
    device = as_device("cuda") if engine.device_type == "cuda" else CPU
    xp, there = on(device)
    with there:
        return xp.empty(shape, dtype), lambda x: to_device(x, device)


def all_gather_bytes(engine: Engine, content: bytes, label: str = "all_gather_object") -> list[bytes]:
    """Return the bytes of every process, in order of ranks."""
    sizes, put = _empty(engine, engine.size, dtype=np.int64)
    engine.all_gather(sizes, put(np.array([len(content)], np.int64)), label).wait()
    sizes = to_device(sizes, CPU)
    mine = np.zeros(max(int(sizes.max()), 1), np.uint8)
    mine[: len(content)] = np.frombuffer(content, np.uint8)
    everyone, put = _empty(engine, engine.size, mine.size)
    engine.all_gather(everyone, put(mine), label).wait()
    return [row[:n].tobytes() for row, n in zip(to_device(everyone, CPU), sizes, strict=True)]


def broadcast_bytes(engine: Engine, content: bytes, root: int, label: str = "broadcast_object_list") -> bytes:
    """Return the bytes of process `root` on every process; other processes' `content` is ignored."""
    here = engine.rank == root
    size, put = _empty(engine, 1, dtype=np.int64)
    size[0] = len(content) if here else 0
    engine.broadcast(size, root, label).wait()
    data = put(np.frombuffer(content, np.uint8).copy() if here else np.zeros(int(size[0]), np.uint8))
    if data.size:
        engine.broadcast(data, root, label).wait()
    return to_device(data, CPU).tobytes()
