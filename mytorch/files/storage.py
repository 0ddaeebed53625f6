"""Storages as in `torch.storage`: the memory of tensors as bytes (UntypedStorage) or as elements (TypedStorage).

Tensors do not refer to a storage. A storage is created when a program requests it, since each view refers to its base
array. Two storages share memory if their `_cdata`, the address, is equal.
"""

import copy
import sys
import weakref

import numpy as np

from .. import _extensions
from ..arrays import MetaArray, address, as_device, device_of, dtypes, storage_bytes, to_device, xp_of
from ..arrays.array import Array
from ..arrays.errors import warn
from ..arrays.meta import hollow
from ..arrays.tensor import Tensor, is_tensor
from ..ops.creation import check_layout
from ..ops.dispatch.bind import public_names
from ..ops.dispatch.layouts import other_layout
from ..ops.dispatch.unwrap import raw_of, to_cpu

__all__ = ["TypedStorage", "UntypedStorage"]


def _on_cpu_only(what, storage):
    if storage.device.type != "cpu":
        raise RuntimeError(f"{what} is only available on CPU")


class _Storage:
    """Base class of both storages: a one-dimensional array `_raw`, and methods that use it."""

    @property
    def _array(self):
        return self._raw

    @property
    def is_cuda(self):
        """True if the memory is on a GPU."""
        return self.device.type == "cuda"

    @property
    def filename(self):
        """The path of the file that is mapped into this memory, or None."""
        raw = self._raw
        while raw is not None and not isinstance(raw, np.memmap):
            raw = getattr(raw, "base", None)
        return None if raw is None else str(raw.filename)

    def _fix_weakref(self):
        """Does nothing: weak references to objects of Python need no repair."""

    def __sizeof__(self):
        return object.__sizeof__(self) + self.nbytes()

    def nbytes(self):
        """Returns the size in bytes."""
        return self.size() * self.element_size()

    def __len__(self):
        return self.size()

    def __iter__(self):
        return iter(self.tolist())

    def tolist(self):
        """Returns the elements as a list of Python numbers."""
        return to_cpu(self._raw).tolist()

    def is_shared(self):
        """Returns True if several processes share the memory, or if it is on a GPU."""
        return self.is_cuda or Array._wrap(self._raw).is_shared()

    def is_pinned(self, device="cuda"):
        """Returns False. Use `Tensor.pin_memory` for page-locked memory."""
        return False

    def share_memory_(self):
        """Moves the memory, and the tensors over it, to memory that several processes share. Returns this storage."""
        _on_cpu_only("share_memory_", self)
        key = (address(self._raw), self._raw.size)
        array = Array._wrap(self._raw)
        array.share_memory_()
        self._raw = array._array
        if _IN_USE.pop(key, None) is self:
            _IN_USE[address(self._raw), self._raw.size] = self
        return self

    def _share_fd_cpu_(self, *args):
        _on_cpu_only("_share_fd_cpu_", self)
        raise NotImplementedError("_share_fd_cpu_: the handles of shared memory are internal.")

    _share_filename_cpu_ = _share_fd_cpu_

    def elements(self, dtype):
        """Returns the memory as a raw one-dimensional array of a dtype. A TypedStorage requires its own dtype."""
        own = getattr(self, "dtype", dtype) or dtypes.uint8
        if dtype not in (None, own):
            raise RuntimeError(f"Expected a Storage of type {dtype} or an UntypedStorage, but got type {own}")
        raw, kind = self._raw.view(np.uint8), dtypes.as_numpy(own)
        return raw[: raw.size // kind.itemsize * kind.itemsize].view(kind)

    def __array__(self, dtype=None, copy=None):
        return to_cpu(self.elements(None))

    def _copied(self, raw):
        raise NotImplementedError

    def clone(self):
        """Returns a copy of this storage."""
        return self._copied(self._raw.copy())

    def cpu(self):
        """Returns this storage if it is on the CPU, or a copy on the CPU."""
        return self if self.device.type == "cpu" else self._copied(to_cpu(self._raw))

    def cuda(self, device=None, non_blocking=False):
        """Returns this storage or a copy on a GPU.

        Args:
            device: the GPU (default: the current GPU).
            non_blocking: for compatibility with PyTorch.
        """
        return self._copied(to_device(self._raw, as_device("cuda" if device is None else device)))

    def _write_file(self, f, is_real_file, save_size, element_size):
        f.write(self.cpu()._raw.tobytes())

    def __getitem__(self, index):
        raw = self._raw
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        if isinstance(index, slice):
            return self._sliced(raw[index])
        if not isinstance(index, int):
            raise TypeError(f"can't index a {type(self)} with {type(index)}")
        if not -len(raw) <= index < len(raw):
            raise IndexError(f"index {index} out of range for storage of size {len(raw)}")
        return to_cpu(raw[index : index + 1 or None])[0].item()

    def _sliced(self, raw):
        raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")

    def __setitem__(self, index, value):
        if isinstance(value, _Storage):
            raise RuntimeError(f"cannot set item with value type {type(value)}")
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        self._raw[index] = value

    def fill_(self, value):
        """Sets all elements to a number. Returns this storage."""
        self[:] = value
        return self

    def copy_(self, source, non_blocking=None):
        """Copies the elements of another storage of the same size. Returns this storage.

        Args:
            source: the other storage.
            non_blocking: for compatibility with PyTorch.

        Raises:
            RuntimeError: sizes in bytes differ.
        """
        if source.nbytes() != self.nbytes():
            raise RuntimeError(
                f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes"
            )
        there = to_device(source._raw, self.device)
        self._raw[...] = there.astype(self._raw.dtype)
        return self

    def __repr__(self):
        values = "".join(f" {v}\n" for v in self.tolist())
        name = type(self).__name__
        return f"{values}[torch.storage.{name}({self._described()}device={self.device}) of size {len(self)}]"

    def _described(self):
        return ""

    def __copy__(self):
        return self.clone()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = self._over(copy.deepcopy(Array._wrap(self._raw), memo)._array)
        return memo[id(self)]


_IN_USE = weakref.WeakValueDictionary()  # (address, bytes) -> UntypedStorage, which keeps the memory alive


class UntypedStorage(_Storage):
    """The memory of a tensor as bytes. `Tensor.untyped_storage` returns it.

    Args:
        size_or_sequence: number of bytes, or a sequence of bytes (default: 0 bytes).
        device: device of the memory (default: "cpu").

    Example:
        >>> mytorch.tensor([1, 2], dtype=mytorch.int16).untyped_storage().tolist()
        [1, 0, 2, 0]
    """

    def __init__(self, *size_or_sequence, device=None):
        if len(size_or_sequence) > 1:
            raise RuntimeError("UntypedStorage: Too many positional arguments")
        self.device = _device(device)
        given = size_or_sequence[0] if size_or_sequence else 0
        raw = np.empty(given, np.uint8) if isinstance(given, int) else np.array(given, np.uint8)
        self._raw = to_device(raw, self.device)

    @classmethod
    def _of(cls, raw):
        self = cls.__new__(cls)
        self._raw, self.device = raw, device_of(raw)
        return self

    @classmethod
    def _under(cls, raw):
        """Returns the storage of the memory of an array: the same object as long as there is a reference to it."""
        if type(raw) is MetaArray:
            return cls._of(hollow(raw.nbytes, np.uint8))
        whole = storage_bytes(raw)
        key = (address(whole), whole.size)
        if not whole.size:
            return cls._of(whole)
        found = _IN_USE.get(key)
        if found is None:
            found = _IN_USE[key] = cls._of(whole)
        return found

    def _copied(self, raw):
        return UntypedStorage._of(raw)

    _over = _of

    def _sliced(self, raw):
        if type(raw) is np.ndarray and raw.size and raw.flags.c_contiguous:
            raw = np.frombuffer(raw, np.uint8)  # its own base, so that tensors over it have this storage
        return self._of(raw)

    @staticmethod
    def from_buffer(buffer, byte_order=None, dtype=None, count=-1, offset=0):
        """Returns a storage with a copy of the bytes of a buffer, in the byte order of this machine.

        Args:
            buffer: bytes, a bytearray, an array, …
            byte_order: "native", "little" or "big"; required if elements have several bytes.
            dtype: dtype of the elements (default: uint8).
            count: number of elements to copy; -1 for all (default: -1).
            offset: number of bytes to skip (default: 0).

        Raises:
            ValueError: `byte_order` is missing, or the number of bytes is not a multiple of the element size.
        """
        kind = dtypes.as_numpy(dtype or dtypes.uint8)
        if kind.itemsize > 1 and byte_order not in ("native", "little", "big"):
            raise ValueError(f"from_buffer: byte_order must be 'native', 'little' or 'big', got {byte_order!r}.")
        raw = np.frombuffer(buffer, np.uint8, count if count < 0 else count * kind.itemsize, offset)
        if raw.size % kind.itemsize:
            raise ValueError(f"from_buffer: expected a multiple of {kind.itemsize} bytes for {dtype}, got {raw.size}.")
        raw = raw.reshape(-1, kind.itemsize)
        if byte_order not in (None, "native", sys.byteorder):
            raw = raw[:, ::-1]
        return UntypedStorage._of((raw != 0 if dtype is dtypes.bool_ else raw).astype(np.uint8).reshape(-1))

    @staticmethod
    def from_file(filename, shared=False, nbytes=0):
        """Returns the bytes of a file, which is mapped into memory.

        Args:
            filename: path of the file.
            shared: True writes changes to the file, which is created or extended if needed (default: False).
            nbytes: number of bytes to map.
        """
        if not nbytes:
            return UntypedStorage()
        if shared:
            with open(filename, "ab") as file:
                file.truncate(max(nbytes, file.tell()))
        raw = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        return UntypedStorage._of(raw.view(np.ndarray))

    @property
    def _cdata(self):
        return self.data_ptr()

    def data_ptr(self):
        """Returns the address of the first byte."""
        return address(self._raw) if self._raw.size and self.device.type != "meta" else 0

    def size(self):
        """Returns the number of bytes."""
        return self._raw.size

    def element_size(self):
        """Returns 1, the size of an element in bytes."""
        return 1

    def type(self, dtype=None):
        """Returns the name of this class in PyTorch."""
        return "torch.cuda.UntypedStorage" if self.is_cuda else "torch.storage.UntypedStorage"

    def untyped(self):
        """Returns this storage."""
        return self

    def byteswap(self, dtype):
        """Reverses the bytes of each element in place. For a complex dtype, reverses the bytes of both parts.

        Args:
            dtype: dtype of the elements.
        """
        size = dtypes.as_dtype(dtype).to_real().itemsize
        whole = self._raw[: self._raw.size // size * size].reshape(-1, size)
        whole[...] = whole[:, ::-1].copy()

    def resize_(self, size):
        """Changes the size to `size` bytes. Existing tensors keep the old memory. Returns this storage."""
        if self.device.type == "meta":
            self._raw = hollow(size, np.uint8)
            return self
        grown = xp_of(self._raw).empty(size, np.uint8)
        n = min(size, self.size())
        grown[:n] = self._raw[:n]
        _IN_USE.pop((self.data_ptr(), self.size()), None)
        self._raw = grown
        return self


def _device(given):
    where = as_device("cpu" if given is None else given)
    if where.type not in ("cpu", "cuda", "meta"):
        raise RuntimeError(f"Storage device not recognized: {where}")
    return where


class TypedStorage(_Storage):
    """The memory of a tensor as elements of a dtype. Deprecated in PyTorch: use `UntypedStorage`.

    Args:
        args: number of elements, or a sequence of elements (default: 0 elements).
        wrap_storage: an UntypedStorage to use instead of new memory.
        dtype: dtype of the elements (default: the default dtype). Required with `wrap_storage`.
        device: device of the memory (default: "cpu"). Not allowed with `wrap_storage`.
    """

    is_sparse = False

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        _check_arguments("TypedStorage", args, wrap_storage)
        if wrap_storage is not None:
            if dtype is None:
                raise RuntimeError("TypedStorage: Argument 'dtype' must be specified with 'wrap_storage'")
            if not isinstance(dtype, dtypes.dtype):
                raise TypeError(f"TypedStorage: Argument 'dtype' must be torch.dtype, not {type(dtype)}")
            if device is not None:
                raise RuntimeError(
                    "TypedStorage: Argument 'device' should not be specified when 'wrap_storage' is given"
                )
            _check_untyped("TypedStorage: Argument 'wrap_storage'", wrap_storage)
            self._untyped_storage, self.dtype = wrap_storage, dtype
            return
        self.dtype = dtype or dtypes.default_dtype()
        where = _device(device)
        given = args[0] if args else 0
        given = int(given) if isinstance(given, np.integer) else given
        if is_tensor(given) or not (isinstance(given, int) or hasattr(given, "__len__")):
            raise TypeError(f"TypedStorage: Argument type not recognized: {type(given)}")
        if isinstance(given, str):
            raise TypeError("TypedStorage: invalid data type 'str'")
        kind = dtypes.as_numpy(self.dtype)
        if isinstance(given, int):
            self._untyped_storage = UntypedStorage(given * kind.itemsize, device=where)
        else:
            raw = np.asarray(given).astype(kind)
            self._untyped_storage = UntypedStorage._of(to_device(raw.view(np.uint8), where))

    @property
    def _raw(self):
        if self.device.type == "meta":
            return hollow(self.size(), dtypes.as_numpy(self.dtype))
        return self._untyped_storage._raw[: self.size() * self.element_size()].view(dtypes.as_numpy(self.dtype))

    @staticmethod
    def _over(raw):
        return TypedStorage(wrap_storage=UntypedStorage._of(raw.view(np.uint8)), dtype=dtypes.from_numpy(raw.dtype))

    def _copied(self, raw):
        return self._over(raw)

    @property
    def device(self):
        """The device of the memory."""
        return self._untyped_storage.device

    @property
    def _cdata(self):
        return self._untyped_storage._cdata

    def _described(self):
        return f"dtype={self.dtype}, "

    def untyped(self):
        """Returns the UntypedStorage of this memory."""
        return self._untyped_storage

    def data_ptr(self):
        """Returns the address of the first element."""
        return self._untyped_storage.data_ptr()

    def size(self):
        """Returns the number of elements."""
        return self._untyped_storage.size() // self.element_size()

    def element_size(self):
        """Returns the size of an element in bytes."""
        return dtypes.as_numpy(self.dtype).itemsize

    def resize_(self, size):
        """Changes the size to `size` elements. Existing tensors keep the old memory."""
        self._untyped_storage.resize_(size * self.element_size())

    def pickle_storage_type(self):
        """Returns the name of the dtype in files."""
        return _dtype_to_storage_type_map()[self.dtype]

    def type(self, dtype=None, non_blocking=False):
        """Returns the name of the class in PyTorch, or a copy converted to a dtype.

        Args:
            dtype: dtype of the copy (default: return the name).
            non_blocking: for compatibility with PyTorch.
        """
        if dtype is None:
            return f"torch.{'cuda.' if self.is_cuda else ''}{self.pickle_storage_type()}"
        kind = dtypes.as_numpy(dtype)
        raw = self._raw
        raw = raw.real if raw.dtype.kind == "c" and kind.kind != "c" else raw
        return TypedStorage(wrap_storage=UntypedStorage._of(raw.astype(kind).view(np.uint8)), dtype=dtype)

    def __eq__(self, other):
        if not isinstance(other, TypedStorage):
            return NotImplemented
        return self.dtype is other.dtype and self.tolist() == other.tolist()

    __hash__ = object.__hash__


def _cast(kind):
    def method(self):
        return self.type(kind)

    method.__doc__ = f"Returns a copy converted to {kind.name}."
    return method


for _name, _word in dtypes.TYPE_WORDS.items():
    _method = {"Complex": "complex"}.get(_word, _word.lower().replace("complex", "complex_"))
    setattr(TypedStorage, _method, _cast(dtypes.as_dtype(_name)))


def _check_arguments(name, args, wrap_storage):
    if wrap_storage is not None and args:
        raise RuntimeError(f"{name}: No positional arguments should be given when using 'wrap_storage'")
    if len(args) > 1:
        raise RuntimeError(f"{name}: Too many positional arguments given")


def _check_untyped(what, storage):
    if not isinstance(storage, UntypedStorage):
        raise TypeError(f"{what} must be UntypedStorage, got {type(storage)}")


def _dtype_to_storage_type_map():
    return {dtypes.as_dtype(name): f"{word}Storage" for name, word in dtypes.TYPE_WORDS.items()}


def untyped_storage(self):
    """Returns the memory of this tensor as an `UntypedStorage`. Views of the same tensor have the same storage.

    Example:
        >>> x = mytorch.zeros(4)
        >>> x[2:].untyped_storage().nbytes()
        16
    """
    if (other := other_layout("untyped_storage", self)) is not None:
        return other(self)
    return UntypedStorage._under(raw_of(self))


def _typed_storage(self):
    """Returns the memory of this tensor as a TypedStorage."""
    return TypedStorage(wrap_storage=untyped_storage(self), dtype=self.dtype)


def storage(self):
    """Returns the memory of this tensor as a `TypedStorage`. Deprecated: use `untyped_storage`."""
    _warn_typed_storage_removal()
    return _typed_storage(self)


_warned = [False]


def _warn_typed_storage_removal():
    if not _warned[0] or _always_warn_typed_storage_removal:
        _warned[0] = True
        warn(
            "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
            "class. Use tensor.untyped_storage() instead of tensor.storage()."
        )


_always_warn_typed_storage_removal = False


def _get_always_warn_typed_storage_removal():
    return _always_warn_typed_storage_removal


def _set_always_warn_typed_storage_removal(always_warn):
    global _always_warn_typed_storage_removal
    _always_warn_typed_storage_removal = always_warn


def is_storage(obj):
    """Returns True for results of `Tensor.storage` and `Tensor.untyped_storage`."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


def from_file(
    filename, shared=False, size=0, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """Returns a vector over the bytes of a file.

    Args:
        filename: path of the file.
        shared: write changes to the file.
        size: number of elements.
        dtype: see `mytorch.tensor`.
        device: see `mytorch.tensor`.
        requires_grad: see `mytorch.tensor`.
    """
    dtype = dtypes.as_dtype(dtype or dtypes.default_dtype())
    check_layout(layout)
    if pin_memory:
        raise RuntimeError("from_file: expected pin_memory=False, got True. The memory of a file cannot be pinned.")
    raw = UntypedStorage.from_file(filename, shared, size * dtype.itemsize).elements(dtype)
    return Tensor._wrap(raw).to(device=device).requires_grad_(requires_grad)


TORCH_NAMES = {"mytorch": public_names({"is_storage": is_storage, "from_file": from_file})}
__getattr__, __dir__ = _extensions.lazy(__name__)
