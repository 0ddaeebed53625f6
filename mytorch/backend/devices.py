"""Devices: what names them, which is the default one, and which GPU is the current one."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..base.errors import DeviceError
from . import gpu
from .gpu import cupy_ns
from .meta import NO_DATA, MetaArray, meta_ns
from .namespaces import ndarray, numpy_ns
from .others import BY_ARRAY, BY_NAME, Library

KINDS = ["cpu", "cuda", "meta", "mps", "xpu"]  # that can be named; arrays lie on the first two and on registered ones
_before = []  # default devices to go back to


class device:
    """Where a tensor's memory is: `device("cpu")`, `device("cuda")`, `device("cuda", 1)`, `device(1)`.

    Equal to the string that names it, so `x.device == "cpu"` holds.
    """

    __slots__ = ("index", "type")
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
                raise RuntimeError(f"device: {type!r} already has an index, and index={index} was given too.")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: {type!r}; expected one like 'cpu' or 'cuda:0'.")
            index = int(number)
        if name not in KINDS:
            raise RuntimeError(f"Expected one of {', '.join(KINDS)} device type at start of device string: {name}")
        self.type = name
        self.index = index

    def __repr__(self):
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other):
        if isinstance(other, str):
            return str(self) == other
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self):
        return hash(str(self))

    def __reduce__(self):
        return device, (self.type, self.index)

    def __enter__(self):
        """Make this the default device for a block."""
        _before.append(_default_device)
        set_default_device(self)
        return self

    def __exit__(self, *_):
        set_default_device(_before.pop())


CPU = device("cpu")
META = device("meta")
DeviceLike = device | str | int  # what names a device


_cuda_devices = {}


def as_device(like):
    """The device that `like` names; None is the default device; 'cuda' is the current GPU.

    Raises:
        DeviceError: a GPU is named and there is none, or not so many.
    """
    if like is None:
        return _default_device
    if like is CPU:
        return CPU
    where = like if isinstance(like, device) else device(like)
    if where.type == "cpu":
        return CPU
    if where.type in BY_NAME and not where.index:
        return BY_NAME[where.type].device
    if where.type == "meta":
        return META
    if where.type != "cuda":
        raise DeviceError(f"device '{where}' can't be used: arrays lie on a CPU or CUDA.")
    xp = cupy_ns()
    index = xp.cuda.runtime.getDevice() if where.index is None else where.index
    count = xp.cuda.runtime.getDeviceCount()
    if index >= count:
        raise DeviceError(
            f"device 'cuda:{index}' was requested, but {count} GPU{'s are' if count > 1 else ' is'} visible."
        )
    return _cuda_device(index)


def _cuda_device(index):
    if index not in _cuda_devices:
        _cuda_devices[index] = device("cuda", index)
    return _cuda_devices[index]


_default_device = CPU


def set_default_device(where):
    """Make `where` the device of tensors that are created without naming one."""
    global _default_device
    _default_device = CPU
    _default_device = as_device(where) if where is not None else CPU


def get_default_device():
    """The device of tensors that are created without naming one."""
    return _default_device


def device_of(raw):
    """The device of a raw array."""
    if isinstance(raw, ndarray):
        return (raw.home or META) if type(raw) is MetaArray else CPU
    return BY_ARRAY[type(raw)].device if type(raw) in BY_ARRAY else _cuda_device(raw.device.id)


_NOTHING = nullcontext()


def device_guard(raw):
    """A context in which the device of a raw array is the current one."""
    return raw.device if gpu.several_gpus and isinstance(raw, cupy_ns().ndarray) else _NOTHING


def assign(raw, value):
    """raw[...] = value, whichever GPU is the current one."""
    if type(value) is MetaArray and type(raw) is not MetaArray:
        raise NotImplementedError(NO_DATA)
    if gpu.several_gpus:
        with device_guard(raw):
            raw[...] = value
    else:
        raw[...] = value


def restore_device():
    """A context at whose end the GPU is the current one that is so now, whatever `follow` does in it."""
    return cupy_ns().cuda.Device() if gpu.several_gpus else _NOTHING


def set_device_of(raw):
    """Make the GPU on which a raw array lies the current one; called where there are `several_gpus`, within `staying`."""
    if isinstance(raw, cupy_ns().ndarray) and raw.device.id != cupy_ns().cuda.runtime.getDevice():
        raw.device.use()


def on(where):
    """(namespace, context manager) in which `xp.empty` and friends allocate on the device `where`."""
    if where.type in ("cpu", "meta"):
        return numpy_ns if where.type == "cpu" else meta_ns, _NOTHING
    if where.type in BY_NAME:
        return BY_NAME[where.type], _NOTHING
    xp = cupy_ns()
    return xp, xp.cuda.Device(where.index) if gpu.several_gpus else _NOTHING


def register_device(
    name: str, module: Any, *, from_cpu: Callable[[Any], Any], to_cpu: Callable[[Any], Any], **functions: Callable
) -> None:
    """Make a library of arrays a device, which tensors can be made on, moved to and trained on.

    Args:
        name: of the device's type: `tensor.to(name)`, `mytorch.device(name)`.
        module: functions with NumPy's names over its arrays; `module.ndarray` is their class, which has NumPy's attributes,
            methods and operators. What gives a view there has to give one here, with `base`. Functions that it lacks run on the CPU.
        from_cpu: its array, a copy of a NumPy array. to_cpu: the reverse.
        functions: further ones of the namespace that operations are written over, or others in the module's place; among them
            `address(array)`, where its first element lies, which `data_ptr` and `storage_offset` ask for.

    Raises:
        ValueError: a name that is taken, or no name.
    """
    if name in KINDS or not name.isidentifier():
        raise ValueError(f"register_device: expected a name that no device has, got {name!r}.")
    KINDS.append(name)
    BY_NAME[name] = BY_ARRAY[module.ndarray] = library = Library(name, module, from_cpu, to_cpu, functions)
    library.device = device(name)
