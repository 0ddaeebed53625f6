"""PyTorch's file format: a zip archive with a pickle of the object and one entry of raw bytes per storage.

Python's pickle machinery never handles unknown objects here. The writer emits only the opcodes for tensors and plain
containers, which `torch.load(f, weights_only=True)` reads. The reader supports only the globals of these contents and
refuses all others by name, so reading a file cannot run code. `add_safe_globals` adds further classes for both.

Layout of the archive: `<root>/data.pkl`, `<root>/data/<key>`, `<root>/byteorder`, `<root>/version` and others. All are
uncompressed, and the bytes of each entry start at a multiple of 64.
"""

import copyreg
import functools
import io
import pickle
import re
import struct
import sys
import weakref
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..arrays import (
    CPU,
    address,
    as_device,
    config,
    cuda_available,
    device_of,
    dtypes,
    owner_of,
    row_major,
    spanned,
    storage_bytes,
    to_device,
    xp_of,
)
from ..arrays import device as device_class
from ..arrays.array import Array, Size
from ..arrays.memory_format import layout
from ..arrays.parameter import Buffer, Parameter
from ..arrays.tensor import Tensor
from .limits import Budget

_STORAGES = {f"{word}Storage": dtypes.as_dtype(name) for name, word in dtypes.TYPE_WORDS.items()}
_STORAGE_NAMES = {d: name for name, d in _STORAGES.items()}
_ALIGNMENT = 64
TENSOR_CLASSES: dict[str, type[Tensor]] = {"parameter": Parameter, "buffer": Buffer}
load_order = [b"little"]  # byte order of files without this entry, such as files of PyTorch before 2.1
SafeGlobal = Callable | tuple[Callable, str]  # a class or function, optionally with its name in files


def kind_of(tensor: Tensor) -> str | None:
    """Returns the name in `TENSOR_CLASSES` of a tensor's class; None for a plain Tensor."""
    return next((kind for kind, cls in TENSOR_CLASSES.items() if isinstance(tensor, cls)), None)


# -- trusted classes -------------------------------------------------------------------------------

_safe = {}


def _full_name(value):
    return f"{value.__module__}.{value.__qualname__}"


def _named(values):
    """Return {full name: value}; an entry may be a pair (value, name) with another name. Classes and functions of the
    library have PyTorch's names in files."""
    found = {}
    for v in values:
        if isinstance(v, tuple):
            found[v[1]] = v[0]
            continue
        if config.is_own(v):
            module, own = sys.modules[__package__].trusted.name_of(v)
            found[f"{module}.{own}"] = v
        found[_full_name(v)] = v
    return found


def add_safe_globals(safe_globals: Iterable[SafeGlobal]) -> None:
    """Allows `save` and `load` to write and create objects of these classes, and to call these functions.

    Args:
        safe_globals: list of classes and functions, or of pairs (class or function, name in files).
    """
    _safe.update(_named(safe_globals))


def get_safe_globals() -> list:
    """Returns the list of allowed classes and functions."""
    return list(_safe.values())


def clear_safe_globals() -> None:
    """Clears the list of allowed classes and functions."""
    _safe.clear()


@contextmanager
def safe_globals(safe_globals: Iterable[SafeGlobal]) -> Iterator[None]:
    """Allows classes and functions within a `with` block; see `add_safe_globals`.

    Args:
        safe_globals: list of classes and functions, or of pairs (class or function, name in files).
    """
    before = dict(_safe)
    _safe.update(_named(safe_globals))
    try:
        yield
    finally:
        _safe.clear()
        _safe.update(before)


# -- writing -----------------------------------------------------------------------------------------


class OtherObjectError(TypeError):
    """An object is neither a tensor nor a plain container. `load` reads it only from a file that the user trusts."""


class _Global(NamedTuple):
    """A function or class that the pickle contains by name."""

    module: str
    name: str

    def __call__(self):
        """Make the object callable, as the pickle module requires for functions."""


_global = functools.cache(_Global)  # one object per name, so that the pickle contains the name once


class _Storage(NamedTuple):
    """The memory of tensors, as represented in the pickle."""

    kind: str
    cls: _Global
    key: str
    location: str
    size: int


_REBUILD = _global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_UNTYPED = _global("torch._utils", "_rebuild_tensor_v3")
_REBUILD_PARAMETER = _global("torch._utils", "_rebuild_parameter")
_REBUILD_PARAMETER_WITH_STATE = _global("torch._utils", "_rebuild_parameter_with_state")
_REBUILD_TYPE = _global("torch._tensor", "_rebuild_from_type_v2")
_NUMPY = "numpy._core.multiarray"
_PLAIN = {type(None), bool, int, float, str, dict, list, tuple, _Global}
# Classes that a file may refer to but cannot call. `_FACTORIES` are the defaults of a defaultdict.
_CLASSES = {("torch", "Tensor"): Tensor, ("torch.nn.parameter", "Parameter"): Parameter}
_FACTORIES = {bool, int, float, str, bytes, list, dict, tuple, set, frozenset, OrderedDict, Counter}
_PATHS = {kind.__name__: kind for kind in (PurePath, PurePosixPath, PureWindowsPath, Path, PosixPath, WindowsPath)}


class Pickler(pickle._Pickler):
    """Writes a pickle of protocol 2, and collects its storages.

    It is based on Python's own pickler in Python. `reducer_override` defines the representation of every object except
    plain values and containers, so the pickler never determines it.
    """

    def __init__(self, file, views=False):
        super().__init__(file, protocol=2)
        self.views = views  # before PyTorch 1.6 a storage could be a part of another storage
        self.storages = []  # raw arrays, flat and contiguous
        self.keys = {}  # (address of the memory, size, dtype) -> key
        self.dtypes = {}  # address of the memory -> dtype of its elements in the file

    def save(self, x, save_persistent_id=True):
        """Save one object.

        Raises:
            TypeError: if the object cannot be saved.
        """
        if type(x) is int and x.bit_length() > 2040:
            raise TypeError(f"save: expected integers of at most 2040 bits, got {x.bit_length()} bits.")
        x = self._of_storage(x) if hasattr(type(x), "_write_file") else _named_in_files(x)
        super().save(x, save_persistent_id)

    def save_global_name(self, x):
        """Write a name without checking that it exists."""
        self.write(f"c{x.module}\n{x.name}\n".encode())
        self.memoize(x)

    dispatch: ClassVar[dict[Any, Any]] = {**pickle._Pickler.dispatch, _Global: save_global_name}

    def persistent_id(self, x):
        """Return the representation of a storage."""
        if type(x) is not _Storage:
            return None
        return (*x, None) if self.views else tuple(x)

    def reducer_override(self, x):
        """Return the representation of an object: (function, arguments, state, list items, dict items)."""
        if type(x) in _PLAIN:
            return NotImplemented
        if isinstance(x, Tensor):
            return self._tensor(x)
        if _is_safe(type(x)):
            return self._trusted(x)
        for kind, reduce in _REDUCERS.items():
            if isinstance(x, kind):
                return reduce(self, x)
        if type(x) in (OrderedDict, Counter):
            versions = vars(x) if type(x) is OrderedDict else None  # of a state dict
            return _global("collections", type(x).__name__), (), versions or None, None, iter(x.items())
        if type(x) is defaultdict and (x.default_factory is None or x.default_factory in _FACTORIES):
            factory = x.default_factory
            named = factory and _global(
                "collections" if factory in (OrderedDict, Counter) else "__builtin__", factory.__name__
            )
            return _global("collections", "defaultdict"), (named,), None, None, iter(x.items())
        if type(x) in (set, frozenset):
            return _global("__builtin__", type(x).__name__), (list(x),)
        raise OtherObjectError(type(x).__name__)

    def _trusted(self, x):
        """Represent an object of a trusted class by its own __reduce_ex__."""
        function, args, state, *rest = (*x.__reduce_ex__(2), None, None, None)[:5]
        if any(part is not None for part in rest) or not (function is copyreg.__newobj__ or _is_safe(function)):
            raise OtherObjectError(type(x).__name__)
        return function, args, state

    def _tensor(self, x):
        requires_grad = bool(x.requires_grad)
        kind = kind_of(x)
        state = {name: value for name, value in x._extra_state().items() if not name.startswith("_")}
        if kind == "parameter":
            args = x._mt_data, requires_grad, OrderedDict()
            return (_REBUILD_PARAMETER_WITH_STATE, (*args, state)) if state else (_REBUILD_PARAMETER, args)
        rebuild, args = self._strided(x._mt_data._array, requires_grad)
        if kind == "buffer":
            state.update(persistent=getattr(x, "persistent", True), _is_buffer=True)
        return (_REBUILD_TYPE, (rebuild, _global("torch", "Tensor"), args, state)) if state else (rebuild, args)

    def _of_storage(self, x):
        """Return the representation of a storage object."""
        untyped = not hasattr(x, "dtype")
        cls = _global("torch.storage", "UntypedStorage") if untyped else _global("torch", x.pickle_storage_type())
        return _Storage("storage", cls, self._key_of(x._raw, x._raw.dtype), str(device_of(x._raw)), x._raw.size)

    def _strided(self, raw, requires_grad=False):
        """Return the function and arguments that rebuild a tensor: (storage, offset, size, stride, requires_grad, hooks). For
        a storage without dtype, the dtype is added. Sparse arrays represent themselves."""
        if hasattr(raw, "in_file"):
            return _global("torch._utils", "_rebuild_sparse_tensor"), raw.in_file()
        dtype = dtypes.from_numpy(raw.dtype)
        memory, offset, strides = _memory_of(raw)
        if dtype in _STORAGE_NAMES:
            rebuild, extra = _REBUILD, ()
            cls, size = _global("torch", _STORAGE_NAMES[dtype]), memory.size
        else:
            rebuild, extra = _REBUILD_UNTYPED, (dtype,)
            cls, size = _global("torch.storage", "UntypedStorage"), memory.size * raw.itemsize
        storage = _Storage("storage", cls, self._key_of(memory, raw.dtype), str(device_of(raw)), size)
        return rebuild, (storage, offset, tuple(raw.shape), strides, requires_grad, OrderedDict(), *extra)

    def _key_of(self, memory, dtype):
        place = (address(memory), memory.size, dtype) if memory.size else object()
        if memory.size and self.dtypes.setdefault(address(memory), dtype) != dtype:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        if place not in self.keys:
            self.keys[place] = str(len(self.storages))
            self.storages.append(memory)
        return self.keys[place]

    def _ndarray(self, x):
        if x.dtype.kind not in "biufcSUV" or x.dtype.names:
            raise OtherObjectError(f"ndarray of dtype {x.dtype}")
        state = (1, x.shape, x.dtype, False, np.ascontiguousarray(x).tobytes())
        return _global(_NUMPY, "_reconstruct"), (_global("numpy", "ndarray"), (0,), b"b"), state

    def _text(self, x):
        name = _global("_codecs", "encode") if isinstance(x, bytes) else _global("__builtin__", "bytearray")
        return name, (x.decode("latin1"), "latin1")


def _named_in_files(x):
    """Return the representation of an object that has a name in files."""
    if isinstance(x, dtypes.dtype):
        return _global("torch", x.name)
    if isinstance(x, tuple) and is_result(x):
        return tuple(x)
    return _global_of(x) if _is_safe(x) else x


_REDUCERS = {  # representations of objects, by type
    Array: lambda pickler, x: pickler._strided(x._array),
    Size: lambda _, x: (_global("torch", "Size"), (tuple(x),)),
    (bytes, bytearray): Pickler._text,
    complex: lambda _, x: (_global("__builtin__", "complex"), (x.real, x.imag)),
    device_class: lambda _, x: (_global("torch", "device"), (str(x),)),
    PurePath: lambda _, x: (_global("pathlib", type(x).__name__), x.parts),
    layout: lambda _, x: (_global("torch.serialization", "_get_layout"), (repr(x),)),
    np.ndarray: Pickler._ndarray,
    np.generic: lambda _, x: (_global(_NUMPY, "scalar"), (x.dtype, x.tobytes())),
    np.dtype: lambda _, x: (_global("numpy", "dtype"), (x.name if x.kind == "V" else x.str, False, True)),
}


def is_result(x):
    """Return True for the result of a function with several tensors. Its class has a name in files in PyTorch mode only."""
    return not config.pytorch_mode and config.is_own(type(x)) and not isinstance(x, (Size, _Storage, _Global))


def _is_safe(value):
    return any(value is v for v in _safe.values())


def _global_of(value):
    name = next(n for n, v in _safe.items() if v is value)
    module, _, own = name.rpartition(".")
    if "__qualname__" in dir(value) and name == _full_name(value):
        module, own = value.__module__, value.__qualname__
    return _global(module, own)


def _memory_of(raw):
    """Return the flat contiguous memory of an array, and its offset and strides in elements.

    Tensors of a file share memory if its owner is one contiguous block. An array with negative strides, or with elements at odd
    addresses, is copied.
    """
    owner, size = owner_of(raw), raw.itemsize
    if owner is None and isinstance(raw, np.ndarray) and raw.size and all(s >= 0 and not s % size for s in raw.strides):
        whole = storage_bytes(raw)  # of another dtype
        if not whole.size % size and not (address(raw) - address(whole)) % size:
            owner = whole.view(raw.dtype)
    if owner is None:
        return xp_of(raw).ascontiguousarray(raw).reshape(-1), 0, row_major(raw.shape)
    flat = (owner if owner.flags.c_contiguous else owner.T).reshape(-1)
    return flat, (address(raw) - address(flat)) // size, tuple(s // size for s in raw.strides)


def pickled(obj, views=False):
    """Return the pickle of an object, and the Pickler with its storages.

    Args:
        obj: the object.
        views: see `Pickler`.
    """
    content = io.BytesIO()
    pickler = Pickler(content, views)
    try:
        pickler.dump(obj)
    except OtherObjectError:
        content = io.BytesIO()
        pickler = sys.modules[__package__].trusted.Pickler(content, views)
        try:
            pickler.dump(obj)
        except (pickle.PicklingError, AttributeError) as error:
            if not re.match("Can't (pickle|get) ", str(error)):
                raise
            advice = "Save a state dict, or define the function or class at the top level of a module."
            raise type(error)(f"save: {str(error).rstrip('.')}. {advice}") from error
    return content.getvalue(), pickler


def write(obj, file, name="archive"):
    """Write an object to a binary file in PyTorch's format.

    Args:
        obj: the object.
        file: the file. It is written from its current position on, without a jump back.
        name: root folder of the archive.

    Raises:
        TypeError, PicklingError: if an object cannot be saved.
    """
    content, pickler = pickled(obj)
    with zipfile.ZipFile(_Stream(file), "w", zipfile.ZIP_STORED) as archive:
        put = _Entries(archive, name)
        put("data.pkl", content)
        put(".format_version", b"1")
        put(".storage_alignment", str(_ALIGNMENT).encode())
        put("byteorder", b"little")
        for key, memory in enumerate(pickler.storages):
            raw = to_device(memory, CPU)
            if raw.dtype.byteorder == ">" or np.little_endian is False:
                raw = raw.astype(raw.dtype.newbyteorder("<"))
            put(f"data/{key}", raw.view(np.uint8).data if raw.size else b"")
        put("version", b"3\n")


class _Stream:
    """A file that is written from start to end, such as a compressed file."""

    def __init__(self, file):
        self.write = file.write
        self.flush = getattr(file, "flush", bool)


class _Entries:
    """Writes the entries of an archive, with padding so that their bytes are aligned."""

    def __init__(self, archive, root):
        self.archive = archive
        self.root = root

    def __call__(self, name, content):
        entry = zipfile.ZipInfo(f"{self.root}/{name}", (1980, 1, 1, 0, 0, 0))
        entry.file_size = memoryview(content).nbytes
        large = entry.file_size * 1.05 > zipfile.ZIP64_LIMIT
        start = self.archive.start_dir + 30 + len(entry.filename.encode()) + 4 + (20 if large else 0)
        padding = -start % _ALIGNMENT
        entry.extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding  # "FB", as in PyTorch's writer
        with self.archive.open(entry, "w", force_zip64=large) as out:
            out.write(content)


# -- reading -----------------------------------------------------------------------------------------


class _StorageClass:
    """A storage class in a pickle, with the dtype that its name implies."""

    def __init__(self, dtype, name="TypedStorage"):
        self.dtype = dtype
        self.name = name


_NODES = 100  # maximum values in the tuples of a key: hashing visits each value, even if it is shared


def _keys(keys):
    """Return the keys if they can be hashed in a short time.

    Raises:
        ValueError: if a tuple has too many values, or an integer could make all hashes equal.
    """
    for key in keys:
        if type(key) is str:
            continue
        waiting, seen = [key], 0
        while waiting:
            x = waiting.pop()
            if isinstance(x, tuple):
                seen += len(x)
                if seen > _NODES:
                    raise ValueError(f"expected at most {_NODES} values in a key, got a longer tuple")
                waiting.extend(x)
            elif isinstance(x, int) and x.bit_length() > 64:
                raise ValueError("expected integers of at most 64 bits in a key, got a longer one")
    return keys


class RefusedError(RuntimeError, pickle.UnpicklingError):
    """A file contains an object that is not loaded by default, because it could run code."""


class _Unpickler(pickle._Unpickler):
    """Runs the pickle of a PyTorch file with tensors, plain containers and trusted classes only.

    It is based on Python's own unpickler in Python, because BUILD must be checked, and the memory of repeated objects
    must be counted.
    """

    def __init__(self, content, storage_of, budget, encoding="utf-8"):
        self.content = io.BytesIO(content)
        super().__init__(self.content, encoding=encoding)
        self.storage_of = storage_of
        self.budget = budget
        self.file_name = budget.name

    def load(self):
        """Return the object. The memo contains references to this unpickler, which would keep the file's bytes alive."""
        try:
            return super().load()
        finally:
            vars(self).clear()

    def find_class(self, module, name):
        """Return the replacement of a global. Functions are created for each file, so a pickle cannot change ours."""
        module = {"__builtin__": "builtins"}.get(module, module)  # protocol 2 uses Python 2's names
        if f"{module}.{name}" in _safe:
            return _safe[f"{module}.{name}"]
        if module == "torch" and name in _STORAGES:
            return _StorageClass(_STORAGES[name])
        if module in ("torch", "torch.storage") and name in ("UntypedStorage", "TypedStorage"):
            return _StorageClass(dtypes.uint8, "UntypedStorage")
        if module == "torch" and name in dtypes._BY_NAME:
            return dtypes.as_dtype(name)
        if (module, name) in _CLASSES:
            return _CLASSES[module, name]
        found = self._makers().get((module.replace("numpy.core", "numpy._core"), name))
        if (
            found is None and _safe and module.partition(".")[0] == "torch"
        ):  # another path of an allowed class or function
            found = sys.modules[__package__].trusted.among(_safe.values(), module, name)
        if found is None and module in ("builtins", "collections"):
            found = next((kind for kind in _FACTORIES if (kind.__module__, kind.__name__) == (module, name)), None)
        if found is None:
            raise RefusedError(
                f"load: {self.file_name} contains {module[:99]}.{name[:99]}, which is refused, because it could run code. Only "
                "tensors and plain containers are loaded. Save the state_dict() instead, or use add_safe_globals for a class "
                "that you trust. If you trust the whole file, use load(f, weights_only=False), which can run any code in it."
            )
        return found

    def _makers(self):
        def container(kind, keys=lambda items: items):
            def make(items=()):
                self.budget.take(64 * len(items), f"a {kind.__name__}")
                _keys(keys(items))
                return kind(items)

            make.kind = kind
            return make

        def rebuild(*args, **options):
            return _rebuild(*args, **options, budget=self.budget)

        def with_default(factory=None):
            factory = getattr(factory, "kind", factory)
            if factory is not None and factory not in _FACTORIES and not _is_safe(factory):
                raise RefusedError(f"load: {self.file_name} contains a defaultdict with a default that is refused.")
            return defaultdict(factory)

        def parameter(data, requires_grad, hooks, state=None):
            made = TENSOR_CLASSES["parameter"](data, requires_grad)
            return made if state is None else _with_state(made, state)

        return {
            ("torch._utils", "_rebuild_tensor"): lambda *args: rebuild(*args),
            ("torch._utils", "_rebuild_tensor_v2"): lambda *args: rebuild(*args[:5], metadata=args[6:]),
            ("torch._utils", "_rebuild_tensor_v3"): lambda *args: rebuild(*args[:5], dtype=args[6], metadata=args[7:]),
            ("torch._utils", "_rebuild_parameter"): parameter,
            ("torch._utils", "_rebuild_parameter_with_state"): parameter,
            ("torch._tensor", "_rebuild_from_type_v2"): lambda made, _, args, state: _with_state(made(*args), state),
            ("torch._utils", "_rebuild_sparse_tensor"): lambda *args: (
                None if self.budget.declaring else sys.modules[__package__].sparse.rebuilt(*args)
            ),
            ("torch.serialization", "_get_layout"): lambda name: sys.modules[__package__].sparse.layout_of(name),
            ("torch", "Size"): container(Size),
            ("torch", "device"): named_device,
            ("collections", "OrderedDict"): container(OrderedDict, lambda items: [key for key, _ in items]),
            ("collections", "Counter"): container(Counter),
            ("collections", "defaultdict"): with_default,
            **{
                (module, name): functools.partial(lambda *args: named_path(args), name)
                for module in ("pathlib", "pathlib._local")
                for name in _PATHS
            },
            ("builtins", "set"): container(set),
            ("builtins", "frozenset"): container(frozenset),
            ("builtins", "complex"): lambda *args: complex(*args),
            ("builtins", "bytearray"): lambda text="", *encoding: bytearray(
                self._counted(text.encode("latin1") if isinstance(text, str) else text)
            ),
            ("_codecs", "encode"): lambda text, encoding: self._counted(text).encode("latin1"),
            (_NUMPY, "_reconstruct"): lambda kind, shape, code: np.ndarray((0,), np.int8),
            (_NUMPY, "scalar"): lambda dtype, content: np.frombuffer(self._counted(content), dtype, 1)[0],
            ("numpy", "ndarray"): lambda *args: None,
            ("numpy", "dtype"): lambda name, *args: _numpy_dtype(name),
        }

    def _counted(self, content):
        """Count the memory of text or bytes before they are copied.

        Raises:
            TypeError: if the content is neither text nor bytes.
        """
        if not isinstance(content, (str, bytes, bytearray)):
            raise TypeError(f"expected text or bytes, got {type(content).__name__}")
        self.budget.take(len(content), "text and bytes")
        return content

    def _check_call(self, function):
        if isinstance(function, type) and not _is_safe(function):
            raise RefusedError(f"load: {self.file_name} calls {function.__name__}, which is refused.")

    def load_reduce(self):
        """Call a function."""
        self._check_call(self.stack[-2])
        super().load_reduce()

    def load_newobj(self):
        """Create an object of a class."""
        self._check_call(self.stack[-2])
        super().load_newobj()

    def load_newobj_ex(self):
        """Create an object of a class with keywords."""
        self._check_call(self.stack[-3])
        super().load_newobj_ex()

    def _instantiate(self, klass, args):
        self._check_call(klass)
        super()._instantiate(klass, args)

    def load_build(self):
        """Set the state of the object below the top of the stack: attributes of trusted objects and OrderedDicts."""
        found, state = self.stack[-2], self.stack[-1]
        if isinstance(found, np.ndarray):
            _, shape, dtype, fortran, content = self.stack.pop()
            if not isinstance(content, bytes):
                raise RefusedError(f"load: {self.file_name} contains an ndarray of objects, which is refused.")
            order = "F" if fortran else "C"
            flat = np.frombuffer(self._counted(content), dtype)
            self.stack[-1] = flat.reshape(shape, order=order).copy(order)
        elif isinstance(found, np.dtype):
            self.stack.pop()
            if any(part is not None for part in state[2:5]) or state[8:]:
                raise RefusedError(
                    f"load: {self.file_name} contains an ndarray of structures or dates, which is refused."
                )
            self.stack[-1] = found.newbyteorder(state[1]) if state[1] in (">", "<") else found
        elif type(found) is OrderedDict and isinstance(state, dict):
            self.stack.pop()
            found.__dict__.update({k: v for k, v in state.items() if not hasattr(OrderedDict, k)})
        elif _is_safe(type(found)):
            super().load_build()
        else:
            raise RefusedError(f"load: {self.file_name} sets the state of a {type(found).__name__}, which is refused.")

    @staticmethod
    def _items(opcode, kind, below, keys):
        """Return an opcode that adds items to a container of type `kind` (None: a new one) or a trusted one. The container is `below`
        the top of the stack (None: below a mark). `keys` selects the items to hash."""

        def load(self):
            x = None if kind is None else self.metastack[-1][-1] if below is None else self.stack[-below]
            if kind is not None and not isinstance(x, kind) and not _is_safe(type(x)):
                raise ValueError(f"it adds items to a {type(x).__name__}")
            _keys(self.stack[keys])
            pickle._Unpickler.dispatch[opcode[0]](self)

        return opcode[0], load

    def load_bytearray8(self):
        """Load bytes after checking their size."""
        (n,) = struct.unpack("<Q", self.read(8))
        if n > self.content.getbuffer().nbytes:
            raise EOFError(f"{n} bytes are declared, but fewer follow")
        self.append(bytearray(self.read(n)))

    @staticmethod
    def _new(kind, opcode, nbytes):  # one byte in the file needs many bytes in memory
        def load(self):
            self.budget.take(nbytes, f"empty {kind}s")
            pickle._Unpickler.dispatch[opcode[0]](self)

        return opcode[0], load

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.REDUCE[0]: load_reduce, pickle.NEWOBJ[0]: load_newobj, pickle.NEWOBJ_EX[0]: load_newobj_ex,
        pickle.BUILD[0]: load_build, pickle.BYTEARRAY8[0]: load_bytearray8,
        **dict([
            _items(pickle.APPEND, list, 2, slice(0)), _items(pickle.APPENDS, list, None, slice(0)),
            _items(pickle.SETITEM, dict, 3, slice(-2, -1)), _items(pickle.SETITEMS, dict, None, slice(0, None, 2)),
            _items(pickle.ADDITEMS, set, None, slice(None)),
            _items(pickle.DICT, None, None, slice(0, None, 2)), _items(pickle.FROZENSET, None, None, slice(None)),
        ]),
        **dict([_new("list", pickle.EMPTY_LIST, 64), _new("dict", pickle.EMPTY_DICT, 72), _new("set", pickle.EMPTY_SET, 224)]),
    }  # fmt: skip

    def persistent_load(self, key):
        """Return the storage for ("storage", class, key, location, number of elements). Before PyTorch 1.6, (key, offset, size)
        of a part may follow."""
        if isinstance(key, tuple):  # Python 2's strings may be bytes
            key = tuple(part.decode("ascii") if isinstance(part, bytes) else part for part in key)
        good = (
            isinstance(key, tuple) and len(key) in (5, 6) and key[0] == "storage" and isinstance(key[1], _StorageClass)
        )
        if not good or not isinstance(key[2], (str, int)) or not isinstance(key[3], str) or type(key[4]) is not int:
            raise RuntimeError(f"load: {self.file_name} refers to a {type(key).__name__}, expected a storage.")
        storage = self.storage_of(str(key[2]), key[1], key[3], key[4])
        if key[5:] in ((), (None,)):
            return storage
        _, offset, size = key[5]
        if not 0 <= offset <= offset + size <= storage._array.size:
            raise ValueError(f"elements {offset} to {offset + size} of a storage of {storage._array.size}")
        part = storage_like(storage._array[offset : offset + size], key[1])
        self.storage_of.references.append(weakref.ref(part))
        return part


class _Memory:
    """The memory of tensors in a file. It becomes a storage if the file refers to the storage itself."""

    def __init__(self, raw, name):
        self._array = raw
        self._name = name

    def become_storage(self):
        real = getattr(sys.modules[__package__].storage, self._name)._over(self._array)
        vars(self).clear()
        self.__class__ = type(real)
        vars(self).update(vars(real))

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.become_storage()
        return getattr(self, name)


def storage_like(raw, cls):
    """Return the memory over a flat raw array, for a class in a pickle."""
    return _Memory(raw, cls.name)


def unpickle(content, storage_of, budget, encoding="utf-8", trusted=None):
    """Return the object in a pickle.

    Args:
        content: bytes of the pickle.
        storage_of: function of (key, class, location, number of elements) that returns a storage.
        budget: memory limit.
        encoding: encoding of Python 2's strings.
        trusted: the pickle module that reads a trusted file; None if the file must not run code.
    """
    kind = _Unpickler if trusted is None else sys.modules[__package__].trusted.unpickler(trusted.Unpickler)
    memories = {}  # id of a memory -> the memory, and the object that the pickle refers to

    def memory_of(*key):
        memory = storage_of(*key)
        return memories.setdefault(id(memory), (memory, _Memory(memory._array, memory._name)))[1]

    memory_of.references = references = []
    unpickler = kind(content, memory_of, budget, encoding)
    result = unpickler.load()
    del unpickler  # which refers to all objects of the pickle
    references += [weakref.ref(memory) for _, memory in memories.values()]
    memories.clear()
    for reference in references:
        memory = reference()
        if memory is not None:  # a storage in the result
            memory.become_storage()
    return result


def named_device(*args):
    """Return the device for a name in a file.

    Raises:
        ValueError: if there is no such device.
    """
    try:
        return device_class(*args)
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def named_path(parts):
    """Return the path for the name of its class and its parts. A path of another system has no access to files."""
    kind = _PATHS[parts[0]]
    if kind in (PosixPath, WindowsPath) and type(Path()) is not kind:
        kind = _PATHS[f"Pure{parts[0]}"]
    return kind(*(str(part) for part in parts[1:]))


def _numpy_dtype(name):
    """Return the NumPy dtype of numbers or text for a name.

    Raises:
        ValueError: for dtypes of Python objects or structures.
    """
    if not isinstance(name, str):
        raise ValueError(f"load: expected the name of an ndarray's dtype, got {type(name).__name__}.")
    found = dtypes._BY_NAME[name].numpy if name in dtypes._BY_NAME else np.dtype(name)
    if found.hasobject or found.names:
        raise ValueError(f"load: an ndarray of dtype {found} is refused.")
    return found


def _with_state(tensor, state):
    """Return a tensor with the attributes that were saved with it; a Buffer if the attributes require it."""
    if isinstance(state, tuple):  # (of __dict__, of slots)
        state = state[0]
    if isinstance(state, dict) and state.get("_is_buffer"):
        return TENSOR_CLASSES["buffer"](tensor, persistent=state.get("persistent", True))
    if isinstance(state, dict):
        tensor.__dict__.update({k: v for k, v in state.items() if isinstance(k, str) and not k.startswith("_")})
    return tensor


def _rebuild(storage, offset, size, stride, requires_grad=False, *, dtype=None, metadata=(), budget):
    """Return the tensor that views a storage (an Array) with the given sizes and strides, in elements.

    Views of a storage share memory. A view that overlaps itself, such as a result of expand, is not writable.
    """
    raw = storage._array if dtype is None else storage._array.view(dtypes.as_numpy(dtype))
    size, stride = tuple(size), tuple(stride)
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else offset - 1
    if offset < 0 or last >= raw.size or any(s < 0 for s in stride):
        raise ValueError(f"a tensor of shape {size} exceeds its storage of {raw.size} elements")
    view = xp_of(raw).lib.stride_tricks.as_strided(raw[offset:], size, [s * raw.itemsize for s in stride])
    if offset == 0 and view.size == raw.size and view.flags.c_contiguous:
        view = raw.reshape(size)
    elif isinstance(view, np.ndarray) and not _is_apart(size, stride):
        view.flags.writeable = False
    for mark in metadata[0] if metadata and metadata[0] else ():
        budget.take(view.nbytes, f"a tensor of shape {size}")
        view = view.conj() if mark == "conj" else -view
    tensor = Tensor._wrap(view)
    return tensor.requires_grad_() if requires_grad else tensor


def _is_apart(size, stride):
    """Return True if no two elements share memory."""
    reach = 0
    for s, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n > 1):
        if s <= reach:
            return False
        reach += (n - 1) * s
    return True


def read(content, name, map_location=None, copy=True, encoding="utf-8", trusted=None):
    """Return the object in a PyTorch file.

    Args:
        content: bytes of the file, an array of uint8.
        name: name of the file for messages.
        map_location: see `serialization.load`.
        copy: copy the tensors; if False, they are views of `content`.
        encoding: encoding of Python 2's strings.
        trusted: see `unpickle`.

    Raises:
        ValueError: if the file is damaged or not a PyTorch file.
        RuntimeError: if the file contains refused objects, exceeds the memory limit of `limits`, or needs a missing device.
    """
    budget = Budget(name, len(content))
    try:
        archive = zipfile.ZipFile(_Bytes(content))
        _check_members(archive, len(content))
    except Exception as error:  # zipfile raises many types
        raise ValueError(f"load: {name} is a damaged zip file ({_short(error)}).") from None
    members = archive.namelist()
    pickles = [m for m in members if m.endswith("/data.pkl") or m == "data.pkl"]
    if len(pickles) != 1:
        raise ValueError(f"load: expected a PyTorch file, got the zip file {name} without data.pkl.")
    root = pickles[0].removesuffix("data.pkl")
    if root + "constants.pkl" in members:
        raise RuntimeError(f"load: {name} is a TorchScript program. Save the state_dict() instead.")

    def entry(member, what="its pickle"):
        try:
            return _entry(archive, content, member, budget)
        except RuntimeError:
            raise
        except Exception as error:
            raise ValueError(f"load: {name} is damaged: {what} cannot be read ({_short(error)}).") from None

    order = load_order[0]
    if root + "byteorder" in members:
        order = bytes(entry(root + "byteorder", "its byte order"))
    place, storages = placer(map_location), {}

    def storage_of(key, cls, location, numel):
        dtype = cls.dtype
        if key not in storages:
            raw = entry(f"{root}data/{key}", f"storage {key[:99]!r}")
            if raw.size != numel * dtype.itemsize:
                raise ValueError(
                    f"storage {key[:99]!r} has {raw.size} bytes, expected {numel} elements of {dtype.name}"
                )
            # A storage in a mapped file is only this part of the file.
            raw = raw.copy() if copy else spanned(raw) if raw.size else raw
            raw = raw.view(dtype.numpy)
            storages[key] = storage_like(place(raw.byteswap() if order == b"big" else raw, location), cls)
        return storages[key]

    return guarded(lambda: unpickle(bytes(entry(pickles[0])), storage_of, budget, encoding, trusted), name, trusted)


def guarded(run, name, trusted=None):
    """Call `run`, which reads a file of this name; convert unexpected errors to a ValueError with a clear message.

    Errors in a trusted file are not converted, since they can be errors of the program's own classes.
    """
    if trusted is not None:
        return run()
    try:
        return run()
    except RecursionError:
        raise ValueError(f"load: {name} is damaged: its objects are nested too deeply.") from None
    except (RuntimeError, MemoryError):
        raise
    except Exception as error:  # operations on invalid operands raise many types
        text = _short(error)
        raise ValueError(
            text if text.startswith("load: ") else f"load: {name} is damaged: its pickle cannot be read ({text})."
        ) from None


def _short(error):
    text = str(error)
    return text if text.startswith("load: ") else f"{type(error).__name__}: {text}"[:300]


def _check_members(archive, size):
    """Check the entries of an archive: no overlaps, no repeated names, no unusual compression, no end beyond the file.

    Raises:
        ValueError: if an entry is invalid.
    """
    end, names = 0, set()
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        start, end = end, entry.header_offset + 30 + entry.compress_size
        if entry.header_offset < start or end > size or entry.filename in names:
            raise ValueError(f"entry {entry.filename[:99]!r} overlaps another entry or is repeated")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & 1:
            raise ValueError(f"entry {entry.filename[:99]!r} has an unsupported compression")
        if entry.compress_type == zipfile.ZIP_STORED and entry.compress_size != entry.file_size:
            raise ValueError(f"entry {entry.filename[:99]!r} has two different sizes")
        names.add(entry.filename)


class _Bytes(io.RawIOBase):
    """A readable file over an array of bytes, without a copy."""

    def __init__(self, content):
        self.view = memoryview(content)
        self.position = 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=0):
        self.position = max(0, offset + (0, self.position, len(self.view))[whence])
        return self.position

    def readinto(self, out):
        part = self.view[self.position : self.position + len(out)]
        out[: len(part)] = part
        self.position += len(part)
        return len(part)


def _entry(archive, content, name, budget):
    """Return the bytes of an entry, as a view of the content if it is not compressed."""
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED:
        budget.take(entry.file_size, f"unpacking {name[:99]!r}")
        return np.frombuffer(archive.read(name), np.uint8)
    head = bytes(content[entry.header_offset : entry.header_offset + 30])
    if head[:4] != b"PK\x03\x04" or len(head) < 30:
        raise ValueError("its header is damaged")
    start = entry.header_offset + 30 + sum(struct.unpack("<HH", head[26:30]))
    if start + entry.file_size > len(content):
        raise ValueError("it is truncated")
    return content[start : start + entry.file_size]


def placer(map_location):
    """Return a function of (raw CPU array, location in the file) that returns the array on the device of `map_location`."""
    if callable(map_location) and not isinstance(map_location, device_class):

        def asked(raw, location):
            moved = map_location(Tensor._wrap(raw), location)
            return _there(raw, location) if moved is None else getattr(moved, "_mt_data", moved)._array

        return asked
    if isinstance(map_location, dict):
        table = {str(device_class(k)): v for k, v in map_location.items()}
        return lambda raw, location: _there(raw, table.get(location, location))
    if map_location is None:
        return lambda raw, location: _there(raw, location if location == "cpu" else named_device(location))
    return lambda raw, location: _there(raw, map_location)


def _there(raw, location):
    """Return a raw array on the device with the given name.

    Raises:
        RuntimeError: if the device is not available.
    """
    if location == "cpu":
        return raw
    where = device_class(location)
    if where.type == "cuda" and not cuda_available():
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but cuda.is_available() is False. On a machine without "
            "a GPU, use load with map_location='cpu' to map its storages to the CPU."
        )
    return to_device(raw, as_device(where))


def root_name(path):
    """Return the root folder of an archive for a file name, as in PyTorch."""
    return Path(path).stem or "archive"
