"""DLPack: exchange of arrays between libraries without a copy. NumPy and CuPy implement it. This module adds bare capsules, and
bfloat16, which NumPy's DLPack does not support: it is exported as uint16 with the dtype code changed.

Source: https://dmlc.github.io/dlpack/latest/c_api.html
"""

import ctypes

import ml_dtypes
import numpy as np

from .gpu import cupy_ns

_UNSIGNED, _BFLOAT, _CPU = 1, 4, 1
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_HEADERS = {b"dltensor": 0, b"dltensor_versioned": 32}  # bytes of the capsule's structure before its DLTensor


class _Start(ctypes.Structure):
    """The first fields of a DLTensor, up to its dtype."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    ]  # fmt: skip


_name_of, _pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _look(capsule):
    """Returns the DLTensor in a capsule.

    Raises:
        RuntimeError: the capsule was consumed already, or is not a DLPack capsule.
    """
    name = _name_of(capsule)
    if name not in _HEADERS:
        raise RuntimeError(f"from_dlpack: the capsule is {name!r}; a DLPack capsule can be consumed only once.")
    return _Start.from_address(_pointer_of(capsule, name) + _HEADERS[name])


class _Capsule:
    """A capsule as an object with the methods of the DLPack protocol."""

    def __init__(self, capsule, start):
        self.capsule, self.device = capsule, (start.device, start.device_id)

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


class _Writable:
    """A writable view of an array's memory, which it keeps alive."""

    def __init__(self, raw):
        self.raw = raw
        self.__array_interface__ = {**raw.__array_interface__, "data": (raw.__array_interface__["data"][0], False)}


def to_dlpack(raw, stream=None, **kwargs):
    """Returns a DLPack capsule of a raw array's memory.

    Raises:
        TypeError: the stream is not an int.
    """
    if stream is not None and type(stream) is not int:
        raise TypeError(f"stream must be ``int`` or ``none``, got {type(stream).__name__}")
    if not isinstance(raw, np.ndarray):
        return raw.__dlpack__(stream=stream, **kwargs)
    if raw.dtype != _BFLOAT16:
        return raw.__dlpack__(**kwargs)
    capsule = raw.view(np.uint16).__dlpack__(**kwargs)
    _look(capsule).code = _BFLOAT
    return capsule


def from_dlpack(source):
    """Returns a raw array that shares the memory of an object with the DLPack protocol, or of a capsule."""
    if hasattr(source, "__dlpack__"):
        if source.__dlpack_device__()[0] != _CPU:
            return cupy_ns().from_dlpack(source)
        source = source.__dlpack__()
    start = _look(source)
    if start.device != _CPU:
        return cupy_ns().from_dlpack(_Capsule(source, start))
    is_bfloat = start.code == _BFLOAT
    if is_bfloat:
        # Let NumPy import the bits as uint16; the view at the end has the right dtype.
        start.code = _UNSIGNED
    raw = np.from_dlpack(_Capsule(source, start))
    if any(stride < 0 for stride in raw.strides):
        raise ValueError(f"from_dlpack: expected no negative strides, got {raw.strides}. Copy the array.")
    if not raw.flags.writeable:  # capsules of the first version have no flags, and NumPy makes them read-only
        raw = np.asarray(_Writable(raw))
    return raw.view(_BFLOAT16) if is_bfloat else raw
