"""Saving and loading of tensors: PyTorch files and safetensors files.

`save` writes PyTorch's zip format (files/archive.py) without the module `pickle`. If the file name ends in
`.safetensors`, it writes a safetensors file. Its metadata stores the containers (dicts, lists, numbers, …) as a JSON tree.
In the tree, `{"$tensor": name}` represents a tensor.

Each file is first written under another name and renamed when it is complete. After a crash, the file is either the old
or the new one. `load` reads both formats and never executes code from a file.

File formats: https://docs.pytorch.org/docs/main/notes/serialization.html,
https://github.com/huggingface/safetensors#format
"""

import json
import math
import os
import pickle
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from enum import Enum
from pathlib import PurePath
from typing import Any, BinaryIO, Literal

import numpy as np

from .. import files
from ..arrays import CPU, DeviceLike, as_device, config, dtypes, to_device
from ..arrays import device as device_class
from ..arrays.array import Array, Size
from ..arrays.tensor import Tensor
from . import archive
from .archive import TENSOR_CLASSES, add_safe_globals, clear_safe_globals, get_safe_globals, kind_of, safe_globals
from .limits import check_regular, set_load_limit
from .writing import atomic_file, atomic_write

PathOrFile = str | os.PathLike | BinaryIO
MapLocation = DeviceLike | dict[str, str] | Callable | None
MAP_LOCATION = MapLocation
FORMAT = "mytorch"
DEFAULT_PROTOCOL = 2
_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors library

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
    """Byte order of a file."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_endianness: list[LoadEndianness | None] = [None]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets the byte order of files that do not store it. PyTorch stores it since version 2.1.

    Args:
        endianness: the byte order; None for little-endian.

    Raises:
        TypeError: `endianness` is not None or a `LoadEndianness`.
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _endianness[0] = endianness
    order = "little" if endianness is None else endianness.name.lower()
    archive.load_order[0] = (sys.byteorder if order == "native" else order).encode()


def get_default_load_endianness() -> LoadEndianness | None:
    """Returns the byte order that `set_default_load_endianness` set."""
    return _endianness[0]


def set_default_mmap_options(flags: int) -> None:
    """Sets the mode of memory maps of `load(mmap=True)`.

    Args:
        flags: `mmap.MAP_PRIVATE` keeps changes of the tensors in memory; `mmap.MAP_SHARED` writes them to the file.

    Raises:
        ValueError: `flags` is another flag.
    """
    if flags not in _mmap_modes:
        raise ValueError(
            f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, got {flags}"
        )
    _mmap_flags[0] = flags


def get_default_mmap_options() -> int:
    """Returns the flag that `set_default_mmap_options` set."""
    return _mmap_flags[0]


class EmptyFileError(ValueError, EOFError):
    """A file is empty."""


class OtherFileError(ValueError, pickle.UnpicklingError):
    """A file has none of the formats."""


# -- safetensors ----------------------------------------------------------------------------------


def _cpu_array(value, name):
    """Returns a contiguous NumPy array of the elements of a Tensor, Array or ndarray."""
    inner = getattr(value, "_mt_data", value)
    raw = inner._array if isinstance(inner, Array) else inner
    if not hasattr(raw, "dtype") or not hasattr(raw, "shape"):
        raise TypeError(f"save_safetensors: {name!r} is {type(value).__name__}; expected a tensor.")
    raw = to_device(raw, CPU)
    raw = np.ascontiguousarray(raw).reshape(raw.shape)
    return raw if raw.dtype.byteorder != ">" else raw.astype(raw.dtype.newbyteorder("<"))


def save_safetensors(
    tensors: Mapping[str, Tensor], path: PathOrFile, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a dict of named tensors to a safetensors file. The file is replaced atomically.

    Args:
        tensors: dict {name: Tensor, Array or ndarray}.
        path: file name, or a binary file.
        metadata: dict of strings that the file also stores.

    Raises:
        TypeError: a value is not a tensor, or the format does not support its dtype.
    """
    arrays = {name: _cpu_array(value, name) for name, value in tensors.items()}
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": {str(k): str(v) for k, v in metadata.items()}}
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # aligns all tensors
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


def _without_duplicates(pairs):
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name occurs twice")
    return entries


def _read_header(content, name):
    """Returns the header of a safetensors file (a dict of entries), its metadata, and the offset of the data.

    Raises:
        ValueError: the content is not a safetensors file, or it is truncated.
    """
    size = int.from_bytes(bytes(content[:8]), "little")
    if len(content) < 8 or size > min(_MAX_HEADER, len(content) - 8) or bytes(content[8:9]) != b"{":
        raise OtherFileError(f"load: {name} is not a PyTorch file and not a safetensors file, or it is truncated.")
    try:
        header = json.loads(bytes(content[8 : 8 + size]).decode(), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"load: {name} is not a safetensors file: its header can't be read ({error}).") from None
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError(f"load: {name} is damaged: its metadata is not a dict of strings.")
    return header, metadata, 8 + size


def _read_entry(entry):
    """Returns (dtype, shape, start, stop) of an entry of the header.

    Raises:
        KeyError, TypeError, ValueError: the entry is damaged.
    """
    d, shape, (start, stop) = _NAMES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    if any(type(n) is not int or not 0 <= n < 1 << 63 for n in (*shape, start, stop)):
        raise ValueError
    return d, shape, start, stop


def read_safetensors(content: Any, name: str = "the file") -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads the content of a safetensors file.

    Args:
        content: a bytes-like object or a uint8 array. The returned arrays share its memory if possible.
        name: name of the file for error messages.

    Returns:
        A tuple (dict {name: array}, metadata).

    Raises:
        ValueError: the content is damaged or truncated, or it is not a safetensors file. The format requires that the
            tensors fill the data without gaps.
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
                f"load: {name} is truncated or damaged: {key!r} should span bytes {start} to {stop} of {data.size}."
            )
        try:
            arrays[key] = data[start:stop].view(d.numpy).reshape(shape)
        except (ValueError, OverflowError) as error:  # too many axes, or axes that are too long
            raise ValueError(f"load: {name} describes {key[:99]!r} with an invalid shape ({error}).") from None
        spans.append((start, stop, key))
    end = 0
    for start, stop, key in sorted(spans):
        if start != end:
            fault = "overlaps the tensor before it" if start < end else f"follows a gap of {start - end} bytes"
            raise ValueError(f"load: {name} is damaged: {key[:99]!r} {fault}.")
        end = stop
    if end != data.size:
        raise ValueError(f"load: {name} is damaged: {data.size - end} bytes follow its tensors.")
    return arrays, metadata


def load_safetensors(path: str | os.PathLike, device: DeviceLike | None = None) -> dict[str, Tensor]:
    """Reads a safetensors file.

    Args:
        path: file name.
        device: device of the tensors (default: the default device).

    Returns:
        A dict {name: tensor}.

    Raises:
        ValueError: the file is damaged or truncated, or it is not a safetensors file.
    """
    check_regular(path)
    arrays, metadata = read_safetensors(np.fromfile(path, np.uint8), str(path))
    where = as_device(device)
    return _with_aliases({key: Tensor._wrap(to_device(raw.copy(), where)) for key, raw in arrays.items()}, metadata)


def _with_aliases(tensors, metadata):
    """Shares tensors that were saved under several names.

    The metadata that `save_state_dict` writes maps each further name of a tensor to its first name.
    """
    for name, kept in metadata.items():
        if name in tensors and kept in tensors:
            ours, theirs = tensors[name], tensors[kept]
            if ours.shape == theirs.shape and ours.dtype == theirs.dtype:
                tensors[name] = theirs
    return tensors


def save_state_dict(
    state: Mapping[str, Tensor], path: str | os.PathLike, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a state dict to a safetensors file, including all names of shared tensors.

    The metadata stores which names share a tensor, and `load_safetensors` shares them again.

    Args:
        state: dict {name: tensor}.
        path: file name. The file is replaced atomically.
        metadata: dict of strings that the file also stores.
    """
    aliases, names = {}, {}
    for name, tensor in state.items():
        first = names.setdefault(id(getattr(tensor, "_mt_data", tensor)), name)
        if first != name:
            aliases[name] = first
    save_safetensors(state, path, {**(metadata or {}), **aliases})


# -- trees ----------------------------------------------------------------------------------------


class _Writer:
    """Converts an object to a JSON tree, and collects its tensors by name."""

    def __init__(self, function="save"):
        self.function = function  # that the user called
        self.tensors = {}
        self.names = {}  # id of an array -> name, so that each array is stored once
        self.kept = []

    def tree(self, x, path):
        if x is None or type(x) in (bool, int, str) or (type(x) is float and math.isfinite(x)):
            return x
        if isinstance(x, Tensor):
            mark = {"$tensor": self.name_of(x._mt_data, path), "kind": kind_of(x)}
            mark["requires_grad"] = x.requires_grad
            return {key: value for key, value in mark.items() if value}
        if isinstance(x, (Array, np.ndarray)):
            return {"$tensor": self.name_of(x, path), "kind": "array" if isinstance(x, Array) else "numpy"}
        for mark, (kinds, encode, _) in _VALUES.items():
            if isinstance(x, kinds):
                return {mark: encode(x)}
        if type(x) in (dict, *_MAPPINGS.values()):
            return self.tree_of_dict(x, path)
        if type(x) is list or type(x) in _SEQUENCES.values():
            items = [self.tree(item, f"{path}{i}.") for i, item in enumerate(x)]
            if type(x) is list:
                return items
            return {next(mark for mark, kind in _SEQUENCES.items() if type(x) is kind): items}
        where = path.rstrip(".") or "the object"
        verb = "save" if self.function == "save" else "send"
        hint = f"; {verb} its state_dict() instead" if hasattr(x, "state_dict") else ""
        raise TypeError(
            f"{self.function}: {where} is {type(x).__name__}, which can't be {'saved' if verb == 'save' else 'sent'}. Expected tensors, numbers, strings, or dicts, "
            f"lists, tuples and sets of them{hint}."
        )

    def tree_of_dict(self, x, path):
        if type(x) is dict and all(type(k) is str and not k.startswith("$") for k in x):
            return {k: self.tree(v, f"{path}{k}.") for k, v in x.items()}
        pairs = [[self.tree(k, f"{path}key."), self.tree(v, f"{path}{k}.")] for k, v in x.items()]
        return {next((mark for mark, kind in _MAPPINGS.items() if type(x) is kind), "$dict"): pairs}

    def name_of(self, array, path):
        """Returns the name of an array in the file. All references to an array have the same name."""
        if id(array) not in self.names:
            name = path.rstrip(".") or "tensor"
            while name in self.tensors or name == "__metadata__":
                name += "_"
            self.tensors[name] = array
            self.names[id(array)] = name
            self.kept.append(array)
        return self.names[id(array)]


def _number(pair):
    """Returns a NumPy scalar of a numeric dtype. Text and bytes are refused, because they can have any size."""
    known = pair[0] in dtypes._BY_NAME
    d = dtypes.as_numpy(pair[0]) if known else np.dtype(pair[0])
    if not known and d.kind not in "biufc":
        raise ValueError(f"a number's dtype is {d}")
    return d.type(pair[1])


_MAPPINGS = {"$ordered": OrderedDict, "$counter": Counter}
_SEQUENCES = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
_VALUES = {  # mark -> (classes, function to JSON, function from JSON)
    "$number": (np.generic, lambda x: [x.dtype.name, x.item()], _number),
    "$float": (float, repr, float),  # inf and nan, which JSON lacks
    "$complex": (complex, lambda x: [x.real, x.imag], lambda v: complex(*v)),
    "$bytes": ((bytes, bytearray), lambda x: x.hex(), bytes.fromhex),
    "$size": (Size, list, Size),
    "$dtype": (dtypes.dtype, lambda x: x.name, dtypes.as_dtype),
    "$path": (PurePath, lambda x: [type(x).__name__, *x.parts], archive.named_path),
    "$device": (device_class, str, archive.named_device),
}


def _build(x, take):
    """Returns the object that a JSON tree describes; `take(name, kind, requires_grad)` returns its tensors."""
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
    if mark == "$dict" or mark in _MAPPINGS:
        pairs = {_build(k, take): _build(v, take) for k, v in value}
        return _MAPPINGS.get(mark, dict)(pairs)
    if mark in _SEQUENCES:
        return _SEQUENCES[mark](_build(item, take) for item in value)
    if mark not in _VALUES:
        raise ValueError(f"load: the file contains a {mark!r}, which this version does not support.")
    return _VALUES[mark][2](value)


def save_tree(obj: Any, f: PathOrFile, function: str = "save") -> None:
    """Writes an object to a safetensors file. The metadata stores its containers as JSON. `load` reads the file.

    Args:
        obj: tensors, arrays, numbers, strings, None, and dicts, lists and tuples of these.
        f: file name with any ending, or a binary file. A named file is replaced atomically.
        function: name of the function in error messages.

    Raises:
        TypeError: the object contains another type.
    """
    writer = _Writer(function)
    tree = writer.tree(obj, "")
    save_safetensors(writer.tensors, f, {"format": FORMAT, "tree": json.dumps(tree, separators=(",", ":"))})


def save(
    obj: Any,
    f: PathOrFile,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Saves an object to a file in PyTorch's format. `torch.load(f, weights_only=True)` can read it.

    The file stores the dtype, the class (Tensor, Parameter or Buffer), `requires_grad` and the device of each tensor.
    Tensors that share memory share it again after loading. An Array is loaded as a Tensor. If the file name ends in
    `.safetensors`, the object is saved as a safetensors file.

    Args:
        obj: a tensor, number, string, None, dtype, device or ndarray, or dicts, lists, tuples and sets of these. Other
            objects that Python can pickle, such as a whole module, require `load(f, weights_only=False)`.
        f: file name, or a binary file. A named file is replaced atomically.
        pickle_module: must be None or `pickle`, since the file is written without it.
        pickle_protocol: for compatibility with PyTorch. Files have protocol 2.
        _use_new_zipfile_serialization: False for the format of PyTorch before version 1.6 (default: True).

    Raises:
        TypeError, PicklingError: the object contains an object that cannot be pickled. No file is written.
        ValueError: `pickle_module` or `pickle_protocol` has another value.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> mytorch.save({"weight": tensor([1.0, 2.0]), "epoch": 3}, file)
        >>> mytorch.load(io.BytesIO(file.getvalue()))["epoch"]
        3
    """
    if pickle_module not in (None, pickle):
        raise ValueError(f"save: pickle_module={pickle_module.__name__} is not supported. Leave it out.")
    if pickle_protocol not in range(6):
        raise ValueError(f"save: expected a pickle_protocol from 0 to 5, got {pickle_protocol}.")
    if not hasattr(f, "write") and not isinstance(f, (str, os.PathLike)):
        raise AttributeError(f"save: expected a path or a file with the method `write`, got {type(f).__name__}.")
    if not hasattr(f, "write") and str(f).endswith(".safetensors") and _use_new_zipfile_serialization:
        save_tree(obj, f)
        return
    name = "archive" if hasattr(f, "write") else archive.root_name(f)
    with atomic_file(f) if isinstance(f, (str, os.PathLike)) else nullcontext(f) as file:
        if _use_new_zipfile_serialization:
            archive.write(obj, file, name)
        else:
            files.legacy.write(obj, file)


def load(
    f: PathOrFile,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args,
) -> Any:
    """Loads an object from a file that `save` or PyTorch wrote, or the state dict of a safetensors file.

    By default, loading never executes code from the file. It creates only tensors, plain containers, and objects of classes
    that were passed to `add_safe_globals`. With `weights_only=False`, it creates objects of any class, such as whole
    modules, as Python's pickle does. **A malicious file can then execute any code**, so use it only for files that you trust.

    Args:
        f: file name, or a binary file.
        map_location: device of the tensors (default: the device of each tensor when it was saved). It can also be a dict
            {saved device: device}, or a function (storage, name of the saved device) -> storage.
        pickle_module: module whose `Unpickler` reads the file, if `weights_only` is False (default: `pickle`).
        weights_only: False to create objects of any class from a file that you trust (default: True; False if
            `pickle_module` is given).
        mmap: map the file into memory and read tensors when they are used. Changes stay in memory, unless
            `set_default_mmap_options` selects another mode (default: False).
        pickle_load_args: `encoding`, for files of Python 2.

    Returns:
        The saved object.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, truncated or of another format, or an argument is not supported.
        UnpicklingError: the file contains an object of another class, which the message names. It is also a RuntimeError.
        RuntimeError: the device of a tensor is not available, or `pickle_module` is given with `weights_only=True`.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> mytorch.save({"weight": tensor([1.0, 2.0]), "epoch": 3}, file)
        >>> state = mytorch.load(io.BytesIO(file.getvalue()))
        >>> state["weight"].tolist(), state["epoch"]
        ([1.0, 2.0], 3)
    """
    if pickle_module is not None and weights_only:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if pickle_load_args.keys() - {"encoding"}:
        raise ValueError(f"load: expected only the pickle argument 'encoding', got {', '.join(pickle_load_args)}.")
    done = None
    trusted = (pickle_module or pickle) if weights_only is False or pickle_module is not None else None
    if hasattr(f, "read"):
        if mmap:
            raise ValueError("f must be a file path in order to use the mmap argument")
        if config.pytorch_mode and not (hasattr(f, "seek") and hasattr(f, "tell")):
            raise AttributeError(
                f"load: expected a file with the methods `seek` and `tell`, got {type(f).__name__}. torch.load reads only files that are "
                "seekable. Load the data into a buffer like io.BytesIO first."
            )
        start = f.tell() if hasattr(f, "seek") and hasattr(f, "tell") else None
        content, name = np.frombuffer(f.read(), np.uint8), getattr(f, "name", "the file")
        if start is not None:
            opened: Any = f
            done = lambda size: opened.seek(start + size)  # noqa: E731
    elif not isinstance(f, (str, os.PathLike)):
        raise AttributeError(f"load: expected a path or a file with the method `read`, got {type(f).__name__}.")
    else:
        name = os.fspath(f)
        check_regular(name)
        if mmap and os.path.getsize(name):
            content = np.asarray(np.memmap(name, np.uint8, _mmap_modes[_mmap_flags[0]]))
        else:
            content = np.fromfile(name, np.uint8)
    return load_content(content, name, map_location, not mmap, pickle_load_args.get("encoding", "utf-8"), trusted, done)


def load_content(
    content: np.ndarray, name: str, map_location: MapLocation = None, copy: bool = True, encoding: str = "utf-8",
    trusted: Any = None, done: Callable | None = None,
) -> Any:  # fmt: skip
    """Loads an object from the bytes of a file.

    Args:
        content: the bytes, a uint8 array.
        name: name of the file for error messages.
        map_location: as in `load`.
        copy: copy the tensors; if False, they share the memory of `content` (default: True).
        encoding: encoding of the strings of Python 2.
        trusted: the pickle module that reads a trusted file; None if the file must not run code (default: None).
        done: function of the number of bytes that were read, for formats that other contents may follow.
    """
    if not content.size:
        raise EmptyFileError(
            f"load: {name} is empty. It is not a PyTorch file and not a safetensors file, or it is truncated."
        )
    first = bytes(content[:9])
    if first[:4] == b"PK\x03\x04":
        return archive.read(content, name, map_location, copy, encoding, trusted)
    if (
        first[:1] == b"\x80" and first[2:5] == b"\x8a\nl"
    ):  # PyTorch before 1.6 begins with a pickled integer of ten bytes
        result, size = files.legacy.read(content, name, map_location, encoding, trusted)
        if done is not None:
            done(size)
        return result
    if first[:1] == b"\x80" and first[8:] != b"{":
        raise OtherFileError(
            f"load: {name} is a bare pickle, which is not supported because it can run code. Save it again with "
            "PyTorch 1.6 or later, which writes zip files."
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
            raise ValueError(f"load: {name} is damaged: the tensor {key!r} is missing.")
        if kind == "numpy":
            if key not in copies:  # one copy for all references
                copies[key] = arrays[key].copy()
            return copies[key]
        if key not in placed:
            placed[key] = place(arrays[key])._mt_data
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
    """Writes a dict to an indented JSON file. The file is replaced atomically."""
    atomic_write(path, (json.dumps(values, indent=2) + "\n").encode())


__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "load_safetensors", "safe_globals",
    "save", "save_safetensors", "save_state_dict", "set_load_limit",
]  # fmt: skip
