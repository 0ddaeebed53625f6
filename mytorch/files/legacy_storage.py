"""The classes of storages with a dtype in their name, such as `torch.FloatStorage`. Their objects are TypedStorages."""

import copyreg

from ..arrays.dtypes import as_numpy
from .storage import TypedStorage, UntypedStorage, _check_arguments, _check_untyped, _dtype_to_storage_type_map


class _LegacyMeta(type):
    dtype = None
    _cuda = False

    def __instancecheck__(cls, obj):
        if cls.dtype is None:
            return isinstance(obj, TypedStorage)
        return isinstance(obj, TypedStorage) and obj.dtype is cls.dtype and obj.is_cuda == cls._cuda


def _class_of(name, cuda):
    """Returns a class named by dtype, for pickle."""
    return (CUDA_CLASSES if cuda else CLASSES)[name]


copyreg.pickle(_LegacyMeta, lambda cls: (_class_of, (cls.__name__, cls._cuda)))


class _LegacyStorage(metaclass=_LegacyMeta):
    """Base class of the classes named by dtype, such as `FloatStorage`. Their objects are TypedStorages."""

    _cuda = False

    def __new__(cls, *args, wrap_storage=None, **named):
        if cls is _LegacyStorage:
            raise RuntimeError("Only child classes of _LegacyStorage can be instantiated")
        for word in named:
            if word in ("device", "dtype"):
                raise RuntimeError(f"{cls.__name__}: '{word}' cannot be specified; TypedStorage takes it.")
            raise TypeError(f"{cls.__name__} got an unexpected keyword argument '{word}'")
        _check_arguments(cls.__name__, args, wrap_storage)
        if wrap_storage is not None:
            _check_untyped(f"{cls.__name__}: 'wrap_storage'", wrap_storage)
            if wrap_storage.is_cuda != cls._cuda:
                raise RuntimeError(f"Device of 'wrap_storage' must be {'cuda' if cls._cuda else 'cpu'}")
            return TypedStorage(wrap_storage=wrap_storage, dtype=cls.dtype)
        return TypedStorage(*args, dtype=cls.dtype, device="cuda" if cls._cuda else "cpu")

    @classmethod
    def from_buffer(cls, *args, **named):
        """Returns a storage with a copy of the elements of a buffer; see `UntypedStorage.from_buffer` for the arguments."""
        if cls._cuda:
            raise RuntimeError("from_buffer: Not available for CUDA storage")
        return TypedStorage(wrap_storage=UntypedStorage.from_buffer(*args, dtype=cls.dtype, **named), dtype=cls.dtype)

    @classmethod
    def from_file(cls, filename, shared=False, size=0):
        """Returns the elements of a file, which is mapped into memory; see `UntypedStorage.from_file`.

        Args:
            filename: path of the file.
            shared: True writes changes to the file, which is created or extended if needed (default: False).
            size: number of elements to map.
        """
        if cls._cuda:
            raise RuntimeError("from_file: Not available for CUDA storage")
        untyped = UntypedStorage.from_file(filename, shared, size * as_numpy(cls.dtype).itemsize)
        return TypedStorage(wrap_storage=untyped, dtype=cls.dtype)

    @classmethod
    def _new_shared_filename(cls, manager, obj, size):
        raise RuntimeError("_new_shared_filename: Not available for CUDA storage" if cls._cuda else "not available")

    @classmethod
    def _new_with_weak_ptr(cls, *args):
        raise RuntimeError("_new_with_weak_ptr: Not available for CUDA storage" if cls._cuda else "not available")


def _classes(module, cuda):
    where, names = {"_cuda": cuda, "__module__": module}, _dtype_to_storage_type_map().items()
    return {name: _LegacyMeta(name, (_LegacyStorage,), {"dtype": kind, **where}) for kind, name in names}


CLASSES, CUDA_CLASSES = _classes("torch", False), _classes("torch.cuda", True)
TORCH_NAMES = {"mytorch": {**CLASSES, "Storage": CLASSES["FloatStorage"]}, "mytorch.cuda": CUDA_CLASSES}
_storage_classes = {UntypedStorage, TypedStorage, *CLASSES.values(), *CUDA_CLASSES.values()}


def storage_type(self):
    """Returns the class of the storage of this tensor, such as `FloatStorage`."""
    return (CUDA_CLASSES if self.is_cuda else CLASSES)[_dtype_to_storage_type_map()[self.dtype]]
