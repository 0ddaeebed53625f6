"""Devices: their names, the default device, and the current GPU."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from . import gpu
from .errors import DeviceError
from .gpu import cupy_ns
from .meta import NO_DATA, MetaArray, meta_ns
from .namespaces import ndarray, numpy_ns
from .others import BY_ARRAY, BY_NAME, Library

# Valid device types; arrays exist on cpu, cuda, meta and registered devices.
KINDS = ["cpu", "cuda", "meta", "mps", "xpu"]
_before = []  # stack of default devices, for `with device(…)`


class device:
    """The device of a tensor's memory: `device("cpu")`, `device("cuda")`, `device("cuda", 1)`, `device(1)`.

    Devices of the same type and index are equal. As in PyTorch, a device is not equal to its name; compare `x.device.type`.
    """

    __slots__ = ("index", "type")
    __module__ = "mytorch"  # the name that signatures show
    index: int | None
    type: str

    def __init__(self, type: "str | int | device", index: int | None = None) -> None:
        if isinstance(type, device):
            index, type = type.index if index is None else index, type.type
        elif isinstance(type, int) and not isinstance(type, bool):
            if type < 0:
                raise RuntimeError(f"Device index must not be negative, got {type}")
            index, type = type, "cuda"
        elif not isinstance(type, str):
            raise TypeError(f"device: expected a string like 'cpu' or 'cuda:0', got {type!r}.")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"device: expected either 'type:index' or an index, got {type!r} and index={index}.")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: {type!r}; expected a name like 'cpu' or 'cuda:0'.")
            index = int(number)
        if name not in KINDS:
            usable = [kind for kind in KINDS if kind not in ("mps", "xpu")]  # these two have names, but no tensors
            raise RuntimeError(f"Expected one of {', '.join(usable)} device type at start of device string: {name}")
        self.type = name
        self.index = index

    def __repr__(self):
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other):
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self):
        return hash(str(self))

    def __reduce__(self):
        return device, (self.type, self.index)

    def __enter__(self):
        """Makes this the default device of a `with` block."""
        _before.append(_default_device)
        set_default_device(self)
        return self

    def __exit__(self, *_):
        set_default_device(_before.pop())


CPU = device("cpu")
META = device("meta")
DeviceLike = device | str | int  # types that `as_device` accepts


_cuda_devices = {}


def as_device(like):
    """Returns the device that `like` names. None is the default device, and 'cuda' the current GPU.

    Raises:
        DeviceError: the named GPU does not exist.
    """
    if like is None:
        return _default_device
    if like is CPU:
        return CPU
    target = like if isinstance(like, device) else device(like)
    if target.type == "cpu":
        return CPU
    if target.type in BY_NAME and not target.index:
        return BY_NAME[target.type].device
    if target.type == "meta":
        return META
    if target.type != "cuda":
        raise DeviceError(f"device '{target}' is not supported; use 'cpu' or 'cuda'.")
    xp = cupy_ns()
    index = xp.cuda.runtime.getDevice() if target.index is None else target.index
    count = xp.cuda.runtime.getDeviceCount()
    if index >= count:
        raise DeviceError(
            f"device 'cuda:{index}' does not exist: {count} GPU{'s are' if count > 1 else ' is'} visible."
        )
    return _cuda_device(index)


def _cuda_device(index):
    if index not in _cuda_devices:
        _cuda_devices[index] = device("cuda", index)
    return _cuda_devices[index]


_default_device = CPU


def set_default_device(where):
    """Makes `where` the device of tensors that are created without a device argument."""
    global _default_device
    _default_device = CPU
    _default_device = as_device(where) if where is not None else CPU


def get_default_device():
    """Returns the device of tensors that are created without a device argument."""
    return _default_device


def device_of(raw):
    """Returns the device of a raw array."""
    if isinstance(raw, ndarray):
        return (raw.home or META) if type(raw) is MetaArray else CPU
    return BY_ARRAY[type(raw)].device if type(raw) in BY_ARRAY else _cuda_device(raw.device.id)


_NOTHING = nullcontext()


def device_guard(raw):
    """Returns a context in which the device of a raw array is the current GPU."""
    return raw.device if gpu.several_gpus and isinstance(raw, cupy_ns().ndarray) else _NOTHING


def copied(raw):
    """Returns a copy of an array in row-major order, also if the array is not on the current GPU."""
    with device_guard(raw):
        return raw.copy()


def assign(raw, value):
    """Assigns raw[...] = value, also if raw is not on the current GPU."""
    if type(value) is MetaArray and type(raw) is not MetaArray:
        raise NotImplementedError(NO_DATA)
    if gpu.several_gpus:
        with device_guard(raw):
            raw[...] = value
    else:
        raw[...] = value


def restore_device():
    """Returns a context that restores the current GPU at its end."""
    return cupy_ns().cuda.Device() if gpu.several_gpus else _NOTHING


def set_device_of(raw):
    """Makes the GPU of a raw array the current GPU. Called only with `several_gpus`, within `restore_device`."""
    if isinstance(raw, cupy_ns().ndarray) and raw.device.id != cupy_ns().cuda.runtime.getDevice():
        raw.device.use()


def on(where):
    """Returns (namespace, context manager) with which `xp.empty` and similar functions allocate on the device `where`."""
    if where.type in ("cpu", "meta"):
        return numpy_ns if where.type == "cpu" else meta_ns, _NOTHING
    if where.type in BY_NAME:
        return BY_NAME[where.type], _NOTHING
    xp = cupy_ns()
    return xp, xp.cuda.Device(where.index) if gpu.several_gpus else _NOTHING


def register_device(
    name: str, module: Any, *, from_cpu: Callable[[Any], Any], to_cpu: Callable[[Any], Any], **functions: Callable
) -> None:
    """Registers an array library as a device, on which tensors can be created and trained.

    Args:
        name: name of the device type: `tensor.to(name)`, `mytorch.device(name)`.
        module: functions with NumPy's names for the library's arrays. `module.ndarray` is the array class, with NumPy's
            attributes, methods and operators. Functions that return views in NumPy must return views with `base`. Missing
            functions run on the CPU.
        from_cpu: function that copies a NumPy array to an array of the library.
        to_cpu: function that copies an array of the library to a NumPy array.
        functions: additional functions of the namespace, which replace functions of the module. `address(array)` returns
            the address of the first element, for `data_ptr` and `storage_offset`.

    Raises:
        ValueError: if the name is taken or not an identifier.
    """
    if name in KINDS or not name.isidentifier():
        raise ValueError(f"register_device: expected a name that no device has, got {name!r}.")
    KINDS.append(name)
    BY_NAME[name] = BY_ARRAY[module.ndarray] = library = Library(name, module, from_cpu, to_cpu, functions)
    library.device = device(name)
