"""save and load: PyTorch's own files, and safetensors.

`save` writes PyTorch's zip format (files/archive.py) without running pickle; a name that ends in `.safetensors` gives
a safetensors file, in whose metadata what contained the tensors (dicts, lists, numbers, …) is a JSON tree in which
`{"$tensor": name}` stands for a tensor. Every file is written under another name first and renamed when it is
complete, so a crash leaves the old file or the new one. `load` reads both, and runs no code from either.

The formats: https://docs.pytorch.org/docs/main/notes/serialization.html,
https://github.com/huggingface/safetensors#format
"""

import json
import math
import os
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from enum import Enum
from typing import Any, BinaryIO, Literal

import numpy as np

from . import files
from ._array import Array, Size
from ._tensor import Tensor
from .backend import CPU, DeviceLike, as_device, to_device
from .backend import device as device_class
from .base import dtypes
from .files import archive
from .files.archive import TENSOR_CLASSES, add_safe_globals, clear_safe_globals, get_safe_globals, kind_of, safe_globals
from .files.limits import set_load_limit
from .files.writing import atomic_file, atomic_write

PathOrFile = str | os.PathLike | BinaryIO
MapLocation = DeviceLike | dict[str, str] | Callable | None
MAP_LOCATION = MapLocation
FORMAT = "mytorch"
_MAX_HEADER = 100_000_000  # bytes; safetensors' own limit

_NAMES = {
    "F64": dtypes.float64, "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
    "I64": dtypes.int64, "I32": dtypes.int32, "I16": dtypes.int16, "I8": dtypes.int8,
    "U64": dtypes.uint64, "U32": dtypes.uint32, "U16": dtypes.uint16, "U8": dtypes.uint8,
    "BOOL": dtypes.bool_, "C64": dtypes.complex64,
}  # fmt: skip
_CODES = {d: code for code, d in _NAMES.items()}


_mmap_flags = [2]  # MAP_PRIVATE
_mmap_modes: dict[int, Literal["r+", "c"]] = {1: "r+", 2: "c"}  # MAP_SHARED, MAP_PRIVATE -> NumPy's names


class LoadEndianness(Enum):
    """Byte orders of files."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_endianness: list[LoadEndianness | None] = [None]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Say in which byte order files are that do not say it, as those of PyTorch before 2.1: little, if None.

    Raises:
        TypeError: something else than None or a LoadEndianness.
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _endianness[0] = endianness
    order = "little" if endianness is None else endianness.name.lower()
    archive.load_order[0] = (sys.byteorder if order == "native" else order).encode()


def get_default_load_endianness() -> LoadEndianness | None:
    """What was last set."""
    return _endianness[0]


def set_default_mmap_options(flags: int) -> None:
    """Say what `load(mmap=True)` does with changes: `mmap.MAP_PRIVATE` keeps them in memory, `mmap.MAP_SHARED` writes them to the file.

    Raises:
        ValueError: another flag.
    """
    if flags not in _mmap_modes:
        raise ValueError(
            f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, got {flags}"
        )
    _mmap_flags[0] = flags


def get_default_mmap_options() -> int:
    """What was last set."""
    return _mmap_flags[0]


# -- safetensors ----------------------------------------------------------------------------------


def _cpu_array(value, name):
    """The contiguous CPU array of a Tensor, Array or ndarray."""
    inner = getattr(value, "_data", value)
    raw = inner._array if isinstance(inner, Array) else inner
    if not hasattr(raw, "dtype") or not hasattr(raw, "shape"):
        raise TypeError(f"save_safetensors: {name!r} is {type(value).__name__}; expected a tensor.")
    raw = to_device(raw, CPU)
    raw = np.ascontiguousarray(raw).reshape(raw.shape)
    return raw if raw.dtype.byteorder != ">" else raw.astype(raw.dtype.newbyteorder("<"))


def save_safetensors(
    tensors: Mapping[str, Tensor], path: PathOrFile, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a dict of named tensors as a safetensors file, atomically.

    Args:
        tensors: Tensors, Arrays or ndarrays by name.
        path: a file name, or a binary file to write to.
        metadata: a dict of strings to keep with them.

    Raises:
        TypeError: a value is no tensor, or of a dtype that the format has no code for.
    """
    arrays = {name: _cpu_array(value, name) for name, value in tensors.items()}
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": {str(k): str(v) for k, v in metadata.items()}}
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # so that all are aligned
    end = 0
    for name in order:
        raw = arrays[name]
        d = dtypes.from_numpy(raw.dtype)
        if d not in _CODES:
            raise TypeError(f"save_safetensors: {name!r} has dtype {d.name}, which safetensors can't hold; cast it.")
        header[name] = {"dtype": _CODES[d], "shape": list(raw.shape), "data_offsets": [end, end + raw.nbytes]}
        end += raw.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    with nullcontext(path) if hasattr(path, "write") else atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(arrays[name].reshape(-1).view(np.uint8).data)


def _no_twins(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _read_header(content, name):
    """The header of safetensors content (entries by name), its metadata, and where the data begins.

    Raises:
        ValueError: it is not such content, or it is cut short.
    """
    size = int.from_bytes(bytes(content[:8]), "little")
    if len(content) < 8 or size > min(_MAX_HEADER, len(content) - 8) or bytes(content[8:9]) != b"{":
        raise ValueError(f"load: {name} is not a safetensors file, or it is cut short.")
    try:
        header = json.loads(bytes(content[8 : 8 + size]).decode(), object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"load: {name} is not a safetensors file: its header can't be read ({error}).") from None
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError(f"load: {name} is damaged: its metadata is no dict of strings.")
    return header, metadata, 8 + size


def _read_entry(entry):
    """(dtype, shape, start, stop) of a header's entry.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    d, shape, (start, stop) = _NAMES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    if any(type(n) is not int or not 0 <= n < 1 << 63 for n in (*shape, start, stop)):
        raise ValueError
    return d, shape, start, stop


def read_safetensors(content: Any, name: str = "the file") -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of safetensors content by name, and its metadata.

    Args:
        content: a bytes-like object or a uint8 array; the arrays lie in its memory where they can.
        name: for error messages.

    Raises:
        ValueError: the content is damaged, foreign or cut short; its tensors don't lie one behind the other, without
            holes, to its end, as the format demands.
    """
    header, metadata, base = _read_header(content, name)
    data = np.frombuffer(content, np.uint8)[base:]
    arrays, spans = {}, []
    for key, entry in header.items():
        try:
            d, shape, start, stop = _read_entry(entry)
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"load: {name} describes {key[:99]!r} as {repr(entry)[:300]}, which can't be read."
            ) from None
        if not start <= stop <= data.size or math.prod(shape) * d.itemsize != stop - start:
            raise ValueError(
                f"load: {name} is cut short or damaged: {key!r} should span bytes {start} to {stop} of {data.size}."
            )
        try:
            arrays[key] = data[start:stop].view(d.numpy).reshape(shape)
        except (ValueError, OverflowError) as error:  # too many axes, or too long ones
            raise ValueError(f"load: {name} describes {key[:99]!r} with a shape that can't be had ({error}).") from None
        spans.append((start, stop, key))
    end = 0
    for start, stop, key in sorted(spans):
        if start != end:
            what = "overlaps what lies before it" if start < end else f"lies behind a hole of {start - end} bytes"
            raise ValueError(f"load: {name} is damaged: {key[:99]!r} {what}.")
        end = stop
    if end != data.size:
        raise ValueError(f"load: {name} is damaged: {data.size - end} bytes follow its tensors.")
    return arrays, metadata


def load_safetensors(path: str | os.PathLike, device: DeviceLike | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file: a state dict.

    Raises:
        ValueError: the file is damaged, foreign or cut short.
    """
    arrays, metadata = read_safetensors(np.fromfile(path, np.uint8), str(path))
    where = as_device(device)
    return _with_aliases({key: Tensor._wrap(to_device(raw.copy(), where)) for key, raw in arrays.items()}, metadata)


def _with_aliases(tensors, metadata):
    """Tie the tensors again that were one; `save_state_dict`'s metadata maps a name to the first of its tensor's names."""
    for name, kept in metadata.items():
        if name in tensors and kept in tensors:
            ours, theirs = tensors[name], tensors[kept]
            if ours.shape == theirs.shape and ours.dtype == theirs.dtype:
                tensors[name] = theirs
    return tensors


def save_state_dict(
    state: Mapping[str, Tensor], path: str | os.PathLike, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a state dict as safetensors, every name with its numbers; the metadata says which names are tied to which.

    Args:
        state: tensors by name.
        path: the file, replaced in one step.
        metadata: words to keep with them.
    """
    aliases, names = {}, {}
    for name, tensor in state.items():
        first = names.setdefault(id(getattr(tensor, "_data", tensor)), name)
        if first != name:
            aliases[name] = first
    save_safetensors(state, path, {**(metadata or {}), **aliases})


# -- trees ----------------------------------------------------------------------------------------


class _Writer:
    """Turns an object into a JSON tree, setting its tensors aside under names."""

    def __init__(self):
        self.tensors = {}
        self.names = {}  # id of an array -> name: what is saved twice is kept once
        self.kept = []

    def tree(self, x, path):
        if x is None or type(x) in (bool, int, str) or (type(x) is float and math.isfinite(x)):
            return x
        if isinstance(x, Tensor):
            mark = {"$tensor": self.name_of(x._data, path), "kind": kind_of(x)}
            mark["requires_grad"] = x.requires_grad and x.is_leaf
            return {key: value for key, value in mark.items() if value}
        if isinstance(x, (Array, np.ndarray)):
            return {"$tensor": self.name_of(x, path), "kind": "array" if isinstance(x, Array) else "numpy"}
        for mark, (kinds, encode, _) in _VALUES.items():
            if isinstance(x, kinds):
                return {mark: encode(x)}
        if isinstance(x, dict):
            return self.tree_of_dict(x, path)
        if isinstance(x, (list, tuple, set, frozenset)):
            items = [self.tree(item, f"{path}{i}.") for i, item in enumerate(x)]
            if isinstance(x, list):
                return items
            return {next(mark for mark, kind in _SEQUENCES.items() if isinstance(x, kind)): items}
        if isinstance(x, os.PathLike):
            return os.fspath(x)
        where = path.rstrip(".") or "the object"
        hint = "; save its state_dict() instead" if hasattr(x, "state_dict") else ""
        raise TypeError(
            f"save: {where} is {type(x).__name__}, which can't be saved: only tensors, numbers, strings, and dicts, "
            f"lists, tuples and sets of them{hint}."
        )

    def tree_of_dict(self, x, path):
        ordered = isinstance(x, OrderedDict)
        if all(type(k) is str and not k.startswith("$") for k in x):
            items = {k: self.tree(v, f"{path}{k}.") for k, v in x.items()}
            return {"$ordered": list(items.items())} if ordered else items
        pairs = [[self.tree(k, f"{path}key."), self.tree(v, f"{path}{k}.")] for k, v in x.items()]
        return {"$ordered" if ordered else "$dict": pairs}

    def name_of(self, array, path):
        """The name under which the array is kept; a second reference gets the first one's."""
        if id(array) not in self.names:
            name = path.rstrip(".") or "tensor"
            while name in self.tensors or name == "__metadata__":
                name += "_"
            self.tensors[name] = array
            self.names[id(array)] = name
            self.kept.append(array)
        return self.names[id(array)]


def _number(pair):
    """A NumPy scalar; of numbers only, since text or bytes could be of any size."""
    known = pair[0] in dtypes._BY_NAME
    d = dtypes.as_numpy(pair[0]) if known else np.dtype(pair[0])
    if not known and d.kind not in "biufc":
        raise ValueError(f"a number's dtype is {d}")
    return d.type(pair[1])


_SEQUENCES = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
_VALUES = {  # mark -> (classes, how they become JSON, how it becomes them)
    "$number": (np.generic, lambda x: [x.dtype.name, x.item()], _number),
    "$float": (float, repr, float),  # inf and nan, which JSON lacks
    "$complex": (complex, lambda x: [x.real, x.imag], lambda v: complex(*v)),
    "$bytes": ((bytes, bytearray), lambda x: x.hex(), bytes.fromhex),
    "$size": (Size, list, Size),
    "$dtype": (dtypes.dtype, lambda x: x.name, dtypes.as_dtype),
    "$device": (device_class, str, archive.named_device),
}


def _build(x, take):
    """The object of a tree; `take(name, kind, requires_grad)` gives its tensors."""
    if isinstance(x, list):
        return [_build(item, take) for item in x]
    if not isinstance(x, dict):
        return x
    mark = next(iter(x), "")
    if not mark.startswith("$"):
        return {k: _build(v, take) for k, v in x.items()}
    value = x[mark]
    if mark == "$tensor":
        return take(value, x.get("kind"), x.get("requires_grad", False))
    if mark in ("$dict", "$ordered"):
        pairs = [(_build(k, take), _build(v, take)) for k, v in value]
        return OrderedDict(pairs) if mark == "$ordered" else dict(pairs)
    if mark in _SEQUENCES:
        return _SEQUENCES[mark](_build(item, take) for item in value)
    if mark not in _VALUES:
        raise ValueError(f"load: the file holds a {mark!r}, which this version doesn't know.")
    return _VALUES[mark][2](value)


def save_tree(obj: Any, f: PathOrFile) -> None:
    """Write an object as safetensors, with its containers as JSON in the metadata: no pickle, whatever the name; for `load`.

    Args:
        obj: tensors, arrays, numbers, strings, None, and dicts, lists and tuples of them.
        f: a file name (the file is replaced atomically), or a binary file.

    Raises:
        TypeError: something in obj is of another kind.
    """
    writer = _Writer()
    tree = writer.tree(obj, "")
    save_safetensors(writer.tensors, f, {"format": FORMAT, "tree": json.dumps(tree, separators=(",", ":"))})


def save(
    obj: Any,
    f: PathOrFile,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write an object to a file, atomically, in PyTorch's format: `torch.load(f, weights_only=True)` reads it.

    Tensors are kept with their dtype, class (Parameter or Buffer), requires_grad and device; those that lie in
    one memory share it again after loading; an Array comes back as a Tensor. A name that ends in `.safetensors`
    gives a safetensors file that holds the same object, with its containers in the metadata.

    Args:
        obj: a tensor, number, string, None, dtype, device, ndarray, or dicts, lists, tuples and sets of them, or
            objects of classes that were given to `add_safe_globals`.
        f: a file name, or a binary file to write to.
        _use_new_zipfile_serialization: False: the format of before PyTorch 1.6.

    Raises:
        TypeError: something in obj is of another kind; the message says where. Nothing is written.
        ValueError: another pickle_module than Python's, or another pickle_protocol than 2.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> mytorch.save({"weight": tensor([1.0, 2.0]), "epoch": 3}, file)
    """
    if pickle_module not in (None, pickle):
        raise ValueError(f"save: pickle_module={pickle_module.__name__} is not supported: the pickle is written here.")
    if pickle_protocol != 2:
        raise ValueError(f"save: pickle_protocol must be 2, which PyTorch writes, got {pickle_protocol}.")
    if not _use_new_zipfile_serialization:
        with nullcontext(f) if hasattr(f, "write") else atomic_file(f) as file:
            files.legacy.write(obj, file)
    elif hasattr(f, "write"):
        archive.write(obj, f)
    elif str(f).endswith(".safetensors"):
        save_tree(obj, f)
    else:
        with atomic_file(f) as file:
            archive.write(obj, file, archive.root_name(f))


def load(
    f: PathOrFile,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
    **pickle_load_args,
) -> Any:
    """Read what `save` or PyTorch wrote, or a safetensors file (a state dict).

    Args:
        f: a file name, or a binary file.
        map_location: the device on which tensors shall lie, a dict from the devices they were saved on to such,
            or a function (storage, name of its device) -> storage, a flat tensor; by default where they were saved.
        weights_only: whatever it says, nothing is made but tensors, plain containers and objects of classes that
            were given to `add_safe_globals`.
        mmap: read a file's tensors when they are used, through the system's memory map; changes stay in memory, unless
            `set_default_mmap_options` says otherwise.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, foreign, or cut short; mmap of a file object; another pickle_module.
        RuntimeError: it holds something that is neither tensor nor plain container; the message names it. Or the
            tensors' device is not here.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> mytorch.save({"weight": tensor([1.0, 2.0]), "epoch": 3}, file)
        >>> state = mytorch.load(io.BytesIO(file.getvalue()))
        >>> state["weight"].tolist(), state["epoch"]
        ([1.0, 2.0], 3)
    """
    if pickle_module not in (None, pickle) or pickle_load_args.keys() - {"encoding"}:
        raise ValueError(
            "load: pickle_module and its arguments are not supported: the pickle is read here, and runs no code."
        )
    if hasattr(f, "read"):
        if mmap:
            raise ValueError("f must be a file path in order to use the mmap argument")
        content, name = np.frombuffer(f.read(), np.uint8), getattr(f, "name", "the file")
    else:
        name = os.fspath(f)
        if mmap and os.path.getsize(name):
            content = np.asarray(np.memmap(name, np.uint8, _mmap_modes[_mmap_flags[0]]))
        else:
            content = np.fromfile(name, np.uint8)
    return load_content(content, name, map_location, not mmap, pickle_load_args.get("encoding", "utf-8"))


def load_content(
    content: np.ndarray, name: str, map_location: MapLocation = None, copy: bool = True, encoding: str = "utf-8"
) -> Any:
    """What `load` gives for a file of this name with these bytes (uint8).

    Args:
        content: the bytes; without `copy` the tensors lie in them.
        name: for error messages.
        map_location: as in `load`.
        copy: give the tensors memory of their own.
        encoding: of Python 2's strings.
    """
    first = bytes(content[:9])
    if first[:4] == b"PK\x03\x04":
        return archive.read(content, name, map_location, copy, encoding)
    if (
        first[:1] == b"\x80" and first[2:5] == b"\x8a\nl"
    ):  # PyTorch before 1.6 begins with a pickled integer of ten bytes
        return files.legacy.read(content, name, map_location, encoding)
    if first[:1] == b"\x80" and first[8:] != b"{":
        raise ValueError(
            f"load: {name} is a bare pickle, which is not read because it can run code; PyTorch 1.6 and later "
            "write zip files, which are."
        )
    move = archive.placer("cpu" if map_location is None else map_location)

    def place(raw):
        return Tensor._wrap(move(raw.copy() if copy else raw, "cpu"))

    arrays, metadata = read_safetensors(content, name)
    if metadata.get("format") != FORMAT or "tree" not in metadata:
        return _with_aliases({key: place(raw) for key, raw in arrays.items()}, metadata)
    placed, copies = {}, {}

    def take(key, kind, requires_grad):
        if key not in arrays:
            raise ValueError(f"load: {name} is damaged: it mentions {key!r}, which it doesn't hold.")
        if kind == "numpy":
            if key not in copies:  # once, however often the tree mentions it
                copies[key] = arrays[key].copy()
            return copies[key]
        if key not in placed:
            placed[key] = place(arrays[key])._data
        if kind == "array":
            return placed[key]
        tensor = Tensor._of(placed[key])
        if kind == "parameter":
            return TENSOR_CLASSES[kind](tensor, requires_grad)
        if kind == "buffer":
            return TENSOR_CLASSES[kind](tensor)
        return tensor.requires_grad_() if requires_grad else tensor

    try:
        return _build(json.loads(metadata["tree"]), take)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError, AssertionError) as error:
        text = str(error)[:300]
        raise ValueError(text if text.startswith("load: ") else f"load: {name} is damaged: {text}.") from None


def write_json(path: str | os.PathLike, values: Mapping[str, Any]) -> None:
    """Write a dict as an indented JSON file, atomically."""
    atomic_write(path, (json.dumps(values, indent=2) + "\n").encode())


__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "load_safetensors", "safe_globals",
    "save", "save_safetensors", "save_state_dict", "set_load_limit",
]  # fmt: skip
