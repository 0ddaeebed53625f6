"""PyTorch's legacy constructors: `torch.Tensor(x)` in PyTorch mode, `torch.FloatTensor(x)` and `x.new(y)`.

An integer or a Size is the size of an uninitialized tensor. A tensor or a storage of the right dtype shares its memory with
the result. Other data is copied to the dtype of the constructor.
"""

import copyreg
import operator
from collections.abc import Sequence

import numpy as np

from ..arrays import config, dtypes
from ..arrays.array import Array, Size, as_raw
from ..arrays.overriding import in_state, is_constructed, overriding, state
from ..arrays.tensor import Tensor
from ..arrays.tensor import create as _create
from ..files.storage import TypedStorage, UntypedStorage
from ..ops.creation import empty
from ..ops.movement import as_shape


def construct(dtype, args, device=None, any_dtype=False, size=None):
    """Returns the tensor of a legacy constructor.

    Args:
        dtype: dtype of the result.
        args: positional arguments of the constructor.
        device: device argument of the constructor, which must be the CPU (default: None).
        any_dtype: a tensor of another dtype keeps its dtype (default: False).
        size: shape of an uninitialized tensor (default: None).

    Raises:
        RuntimeError: another device, a storage of another dtype, or a device for data that exists.
        TypeError: the data is not a sequence, or a tensor has another dtype.
    """
    if device is not None and not str(device).startswith("cpu"):
        raise RuntimeError(f"legacy constructor expects device type: cpu but device type: {device} was passed")
    if size is not None or not args:
        return empty(size or (0,), dtype=dtype)
    data = args[0]
    if isinstance(data, (Tensor, Array)):
        if device is not None:
            raise RuntimeError(
                "Tensor: expected no device for a tensor, got one. Use torch.tensor(…) or torch.as_tensor(…)."
            )
        if data.dtype is not dtype and not any_dtype:
            raise TypeError(f"expected a tensor of {dtype} (got {data.dtype}). Convert it with .to({dtype}).")
        return data.view_as(data) if isinstance(data, Tensor) else Tensor._of(data)
    if isinstance(data, (TypedStorage, UntypedStorage)):
        return empty(0, dtype=dtype).set_(data)
    if len(args) > 1 or type(data) is int or isinstance(data, Size) or _is_size(data):
        sizes = [operator.index(n) for n in args] if len(args) > 1 or not isinstance(data, Size) else data
        return empty(as_shape(tuple(sizes)), dtype=dtype)
    if isinstance(data, str) or not (isinstance(data, (Sequence, np.ndarray, range)) or hasattr(data, "__array__")):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    if isinstance(data, np.generic) or getattr(data, "ndim", 1) == 0:
        raise TypeError(f"new(): data must be a sequence (got {type(data).__module__}.{type(data).__name__})")
    return Tensor._wrap(as_raw(data, None, dtype))


def _is_size(data):
    """Returns True for a NumPy integer, or a 0-d array of integers."""
    return getattr(data, "ndim", 1) == 0 and getattr(data, "dtype", np.dtype(object)).kind in "iu"


def initialize(self, *args, **kwargs):
    """`Tensor.__init__` in PyTorch mode. Arguments that PyTorch does not have use the original method."""
    if type(self) is not Tensor and is_constructed(self, Tensor.__new__, args or kwargs):
        return
    if overriding.on and not state.subclasses_off:
        with in_state(subclasses_off=True):
            return initialize(self, *args, **kwargs)
    if kwargs.keys() - {"device", "size"} or (len(args) > 1 and type(args[0]) is not int):
        return _create(self, *args, **kwargs)
    made = construct(dtypes.default_dtype(), args, any_dtype=True, **kwargs)
    self._mt_data, self._mt_edge, self._mt_view = made._mt_data, made._mt_edge, made._mt_view


initialize.__wrapped__ = _create  # type: ignore[attr-defined]  # inspect.signature follows it


def _fix_weakref(self):
    """Does nothing: weak references to objects of Python need no repair."""


def new(self, *args, device=None):
    """Creates a tensor of the same dtype, of the given sizes or with the given data.

    Args:
        args: sizes, or data.
        device: device of an uninitialized tensor (default: the device of this tensor).
    """
    if not args or type(args[0]) is int or isinstance(args[0], Size):
        return self.new_empty(*(args or (0,)), device=device)
    made = construct(self.dtype, args, device)
    return made if isinstance(args[0], (Tensor, Array)) else made.to(self.device)


_cdata = property(id, doc="A number that identifies the tensor; in PyTorch, the address of its C++ object.")


class _Typed(type):
    """Metaclass of constructors such as FloatTensor, from sizes or data, with one dtype; `isinstance` checks the dtype."""

    def __new__(mcs, name, own_dtype):
        return super().__new__(mcs, name, (), {"own_dtype": own_dtype, "dtype": own_dtype, "__module__": "torch"})

    def __init__(cls, name, own_dtype):
        super().__init__(name, (), {})

    def __call__(cls, *args, device=None, size=None):
        return construct(cls.own_dtype, args, device, size=size)

    def __repr__(cls):
        return f"<type '{config.torch_name()}.{cls.__name__}'>"

    def __instancecheck__(cls, obj):
        return isinstance(obj, Tensor) and obj.dtype is cls.own_dtype


def _typed(name):
    """Returns a typed constructor, for pickle."""
    return TORCH_NAMES["mytorch"][name]


copyreg.pickle(_Typed, lambda cls: (_typed, (cls.__name__,)))


class _SparseTyped(_Typed):
    """Metaclass of constructors such as `torch.sparse.FloatTensor`, from indices and values, or from sizes."""

    def __call__(cls, *args, device=None):
        from ..sparse import sparse_coo_tensor  # loaded on first use

        options = {"dtype": cls.own_dtype, "device": device}
        if args and isinstance(args[0], Tensor):
            return sparse_coo_tensor(*args, **options)
        return sparse_coo_tensor(
            size=args[0] if len(args) == 1 and type(args[0]) is not int else args or (0,), **options
        )

    def __repr__(cls):
        return f"<type '{config.torch_name()}.sparse.{cls.__name__}'>"

    def __instancecheck__(cls, obj):
        return super().__instancecheck__(obj) and obj.is_sparse


def _sparse_typed(name):
    """Returns a typed constructor of sparse tensors, for pickle."""
    return TORCH_NAMES["mytorch.sparse"][name]


copyreg.pickle(_SparseTyped, lambda cls: (_sparse_typed, (cls.__name__,)))


_TYPES = {word: dtypes.as_dtype(name) for name, word in dtypes.TYPE_WORDS.items() if not name.startswith("complex")}

TORCH_NAMES = {
    "mytorch": {f"{k}Tensor": _Typed(f"{k}Tensor", d) for k, d in _TYPES.items()},
    "mytorch.sparse": {f"{k}Tensor": _SparseTyped(f"{k}Tensor", d) for k, d in _TYPES.items() if k != "Bool"},
}
