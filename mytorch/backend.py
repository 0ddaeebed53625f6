"""NumPy and CuPy behind one namespace, and the devices that they stand for.

An op is written once, over a namespace `xp` with NumPy's names: `numpy_ns` for arrays in host memory,
`cupy_ns` for arrays on a GPU, and a third one over Tensors (`ops/tensor_ns.py`) when an op's formula is
itself to be differentiated. What the two libraries do not share is mended here, so that no op asks
where it runs. This is the only file that imports CuPy, and it does so on first use.
"""

import ctypes
import importlib
import os
import sys
import warnings
from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from . import capturing, special
from .errors import DeviceError, OutOfMemoryError

ndarray = np.ndarray


def keep_freed_memory():
    """Ask the C library to keep freed memory for the next step instead of handing it back to the system.

    A training step frees and takes the same arrays again and again. glibc's malloc returns the large ones
    each time, and the page faults of getting them back cost a third of a small model's step. It keeps up to
    1 GB from here on. MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ in the environment win; elsewhere
    than on glibc nothing happens.
    """
    if sys.platform != "linux" or "MALLOC_TRIM_THRESHOLD_" in os.environ or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    if mallopt(mmap_threshold, 256 << 20) or mallopt(mmap_threshold, 32 << 20):  # 32 MB: older releases' limit
        mallopt(trim_threshold, 1 << 30)


keep_freed_memory()

# 1/0, log(0) and inf - inf are values here, as in PyTorch, not events worth a warning. The filter is
# bound to this library's modules, so NumPy's own settings and a user's code are left alone.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"mytorch\.")


class Namespace:
    """An array module with our additions in front; names are looked up in the module once."""

    def __init__(self, module, **own):
        self.module = module
        self.__dict__.update(own)

    def __getattr__(self, name):
        value = getattr(self.module, name)
        self.__dict__[name] = value
        return value

    def __repr__(self):
        return f"<namespace over {self.module.__name__}>"

    def astype(self, x, dtype):
        """x as the NumPy dtype `dtype`; x itself where it has it already."""
        return x if x.dtype == dtype else x.astype(dtype)

    def detach(self, x):
        """x without its graph; raw arrays have none. Formulas use it to choose, not to compute."""
        return x

    def conj(self, x):
        """The complex conjugate; x itself if it is real, or a number."""
        return x.conj() if getattr(x, "dtype", None) is not None and x.dtype.kind == "c" else x

    def is_complex(self, x):
        """Whether x holds complex numbers."""
        return x.dtype.kind == "c"

    def sign(self, x):
        """-1, 0 or 1; for complex numbers z / |z|, which NumPy 1 and CuPy define otherwise."""
        if getattr(x, "dtype", None) is None or x.dtype.kind != "c":
            return self.module.sign(x)
        size = abs(x)
        return x / self.where(size == 0, 1, size)

    def call(self, op, *arrays, **attrs):
        """Run another op's forward within a forward or a formula; returns its output alone."""
        out = op.forward(self, *arrays, **attrs)
        return out[0] if op.residuals else out


def _numpy_scatter_add(x, index, values):
    np.add.at(x, index, values)


def _numpy_einsum(spec, *arrays):
    """NumPy's einsum; half precision in float32, rounded once."""
    kind = arrays[0].dtype
    if kind.itemsize == 2 and kind.kind in "fV":
        return np.einsum(spec, *(a.astype(np.float32) for a in arrays), optimize=len(arrays) > 2).astype(kind)
    return np.einsum(spec, *arrays, optimize=len(arrays) > 2)


def _numpy_matmul(a, b, out=None):
    """NumPy's product; in half precision by way of float32, as NumPy has no fast routine for it (and, for
    bfloat16, gives float32 back)."""
    if a.dtype.itemsize == 2 and a.dtype.kind in "fV":
        product = np.matmul(a.astype(np.float32), b.astype(np.float32))
        if out is None:
            return product.astype(a.dtype)
        out[...] = product
        return out
    return np.matmul(a, b, out)


def _numpy_add_matmul(total, a, b):
    """total += a @ b."""
    total += _numpy_matmul(a, b)


def _numpy_sum(x, axis=None, dtype=None, keepdims=False):
    """NumPy's sum without its Python wrapper (whose warnings are not ours to silence); half precision is
    added up in float32."""
    if dtype is None and x.dtype.itemsize == 2 and x.dtype.kind in "fV":
        return np.asarray(np.add.reduce(x, axis, np.float32, None, keepdims)).astype(x.dtype)
    return np.add.reduce(x, axis, dtype, None, keepdims)


def _numpy_prod(x, axis=None, keepdims=False):
    """NumPy's product without its Python wrapper, as `_numpy_sum`."""
    return np.multiply.reduce(x, axis, None, None, keepdims)


def _numpy_cumsum(x, axis=None):
    return np.add.accumulate(x.reshape(-1) if axis is None else x, 0 if axis is None else axis)


def _numpy_cumprod(x, axis=None):
    return np.multiply.accumulate(x.reshape(-1) if axis is None else x, 0 if axis is None else axis)


def _numpy_mean(x, axis=None, keepdims=False):
    """NumPy's mean, as `_numpy_sum`."""
    total = _numpy_sum(x, axis, None, keepdims)
    return total / (x.size // max(total.size, 1)) if total.size else total


numpy_ns = Namespace(
    np,
    cumsum=_numpy_cumsum,
    cumprod=_numpy_cumprod,
    mean=_numpy_mean,
    prod=_numpy_prod,
    matmul=_numpy_matmul,
    add_matmul=_numpy_add_matmul,
    sum=_numpy_sum,
    erf=special.erf,
    erfc=special.erfc,
    scatter_add=_numpy_scatter_add,
    scatter_max=np.maximum.at,
    scatter_min=np.minimum.at,
    einsum=_numpy_einsum,
)
_cupy_ns = None
_cupy_problem = None
several = False  # whether more than one GPU is visible, so that arrays may lie on another than the current one


def _widened(function, back):
    """A function of an array that CuPy can't do, or not well, in 16 bits: of the array in float32; `back`: cast the result back."""

    def widened(x, *args, **kwargs):
        if x.dtype.itemsize > 2 or x.dtype.kind not in "fV":
            return function(x, *args, **kwargs)
        found = function(x.astype(np.float32), *args, **kwargs)
        return found.astype(x.dtype) if back else found

    return widened


_ATOMIC = tuple(map(np.dtype, ("int32", "uint32", "uint64", "float32", "float64")))


def _scatter(function, adds):
    """CuPy's scatter_add, scatter_max or scatter_min for every dtype; CUDA has atomic operations for few."""

    def scatter(x, index, values):
        kind = x.dtype
        if kind in _ATOMIC:
            function(x, index, values)
        elif kind.kind == "c":
            function(x.real, index, values.real)
            function(x.imag, index, values.imag)
        elif kind == np.int64 and adds:  # two's complement
            function(x.view(np.uint64), index, values.astype(kind, copy=False).view(np.uint64))
        elif kind == np.int64:
            high = np.uint64(1 << 63)  # with the sign turned, they are in order as unsigned numbers
            wide = x.view(np.uint64) ^ high
            function(wide, index, values.astype(kind, copy=False).view(np.uint64) ^ high)
            x[...] = (wide ^ high).view(kind)
        else:
            wide = x.astype(np.float32 if kind.kind in "fV" else np.int32)
            function(wide, index, values.astype(wide.dtype))
            x[...] = wide.astype(kind)

    return scatter


def _cupy_where(xp):
    """CuPy's where, which has no loop for bfloat16 and would give float32: the same bits as uint16."""

    def where(condition, *chosen):
        kinds = [x.dtype for x in chosen if hasattr(x, "dtype")]
        if not any(kind.kind == "V" for kind in kinds):
            return xp.where(condition, *chosen)
        kind = np.result_type(*kinds)
        if kind.kind != "V":
            return xp.where(condition, *chosen)
        bits = [
            x.astype(kind, copy=False).view(np.uint16)
            if hasattr(x, "dtype")
            else int(np.array(x, kind).view(np.uint16))
            for x in chosen
        ]
        return xp.where(condition, *bits).astype(np.uint16, copy=False).view(kind)

    return where


def _kept(function):
    """CuPy's clip, tril or triu, which have no loop for bfloat16 and would give float32: rounded back, without loss."""

    def kept(x, *args):
        return function(x, *args).astype(x.dtype, copy=False) if x.dtype.kind == "V" else function(x, *args)

    return kept


def _cupy_linalg(cp, errstate):
    """CuPy's linalg, which by default gives numbers for matrices that NumPy and PyTorch raise LinAlgError for, and does not
    broadcast in `solve`."""

    def checked(function):
        def raising(*args):
            with errstate(linalg="raise"):
                return function(*args)

        return raising

    def solve(a, b):
        if b.ndim > 1:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            a, b = cp.broadcast_to(a, batch + a.shape[-2:]), cp.broadcast_to(b, batch + b.shape[-2:])
        return cp.linalg.solve(a, b)

    return Namespace(cp.linalg, cholesky=checked(cp.linalg.cholesky), inv=checked(cp.linalg.inv), solve=checked(solve))


def _cupy_joins(cp):
    """CuPy's concatenate and stack; more than 8 arrays under capture in groups, since CuPy sends a table of their addresses to
    the GPU, which it refuses then."""

    def concatenate(arrays, axis=0):
        while len(arrays) > 8 and capturing.is_recording():
            arrays = [cp.concatenate(arrays[i : i + 8], axis) for i in range(0, len(arrays), 8)]
        return cp.concatenate(arrays, axis)

    def stack(arrays, axis=0):
        return concatenate([cp.expand_dims(x, axis) for x in arrays], axis)

    return {"concatenate": concatenate, "stack": stack}


def _cupy_as_strided(cp):
    def as_strided(x, shape, strides):
        """CuPy's as_strided; a view of its result, so that it does not seem to have memory of its own."""
        return cp.lib.stride_tricks.as_strided(x, shape, strides).view()

    return SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))


def explaining(cp, allocator):
    """An allocator of CuPy's that says what helps where memory runs out; before, it frees what the default pool holds in vain."""

    def allocate(size):
        try:
            return allocator(size)
        except MemoryError:
            cp.get_default_memory_pool().free_all_blocks()
        try:
            return allocator(size)
        except MemoryError as error:
            raise out_of_memory(error) from None

    return allocate


def _load_cupy():
    """Import CuPy and build its namespace; remember why where that fails."""
    global _cupy_ns, _cupy_problem, several
    if _cupy_ns is not None or _cupy_problem is not None:
        return
    try:
        cp = importlib.import_module("cupy")
        if cp.cuda.runtime.getDeviceCount() == 0:
            raise RuntimeError("no CUDA device is visible")
        cupyx = importlib.import_module("cupyx")
        cupy_special = importlib.import_module("cupyx.scipy.special")
    except ImportError:
        _cupy_problem = "CuPy is not installed (pip install mytorch[cuda12] or mytorch[cuda13])"
    except Exception as error:  # CuPy raises its own classes when the driver is missing or too old
        _cupy_problem = f"CuPy found no usable GPU ({error})"
    else:
        _cupy_ns = Namespace(
            cp,
            erf=_widened(cupy_special.erf, back=True),
            erfc=_widened(cupy_special.erfc, back=True),
            scatter_add=_scatter(cupyx.scatter_add, adds=True),
            scatter_max=_scatter(cupyx.scatter_max, adds=False),
            scatter_min=_scatter(cupyx.scatter_min, adds=False),
            where=_cupy_where(cp),
            sort=_widened(cp.sort, back=True),
            argsort=_widened(cp.argsort, back=False),
            partition=_widened(cp.partition, back=True),
            cumsum=_widened(cp.cumsum, back=True),
            cumprod=_widened(cp.cumprod, back=True),
            clip=_kept(cp.clip),
            tril=_kept(cp.tril),
            triu=_kept(cp.triu),
            linalg=_cupy_linalg(cp, cupyx.errstate),
            lib=_cupy_as_strided(cp),
            **_cupy_joins(cp),
            empty_pinned=cupyx.empty_pinned,
            **importlib.import_module("mytorch.kernels.products").functions(cp),
        )
        cp.cuda.set_allocator(explaining(cp, cp.cuda.get_allocator()))
        several = cp.cuda.runtime.getDeviceCount() > 1


def cupy_ns():
    """The namespace over CuPy.

    Raises:
        DeviceError: CuPy or a GPU is missing; the message says which and what to do.
    """
    if _cupy_ns is None:
        _load_cupy()
        if _cupy_ns is None:
            raise DeviceError(f"device 'cuda' can't be used: {_cupy_problem}.")
    return _cupy_ns


def cuda_available():
    """Whether `cupy_ns` would succeed."""
    _load_cupy()
    return _cupy_ns is not None


def device_count():
    """How many GPUs are visible; 0 without CuPy."""
    return cupy_ns().cuda.runtime.getDeviceCount() if cuda_available() else 0


def xp_of(raw):
    """The namespace of a raw array."""
    return numpy_ns if isinstance(raw, ndarray) else cupy_ns()


def address(raw):
    """Where a raw array's first element lies in memory."""
    return raw.__array_interface__["data"][0] if isinstance(raw, ndarray) else raw.data.ptr


def is_raw(x):
    """Whether x is an array that a Tensor can lie over: NumPy's or CuPy's."""
    return isinstance(x, ndarray) or (_cupy_ns is not None and isinstance(x, _cupy_ns.module.ndarray))


def looks_like_cupy(x):
    """Whether x is a CuPy array, also before this library has loaded CuPy."""
    return type(x).__module__.partition(".")[0] == "cupy" and hasattr(x, "data")


class device:
    """Where a tensor's memory is: `device("cpu")`, `device("cuda")`, `device("cuda", 1)`, `device(1)`.

    Equal to the string that names it, so `x.device == "cpu"` holds.
    """

    __slots__ = ("index", "type")

    def __init__(self, type, index=None):
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        elif isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        elif not isinstance(type, str):
            raise TypeError(f"device: expected a string like 'cpu' or 'cuda:0', got {type!r}.")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"device: {type!r} already has an index, and index={index} was given too.")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: {type!r}; expected one like 'cpu' or 'cuda:0'.")
            index = int(number)
        if name not in ("cpu", "cuda"):
            raise RuntimeError(f"Expected one of cpu, cuda device type at start of device string: {name}")
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


CPU = device("cpu")
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
    xp = cupy_ns()
    index = xp.cuda.runtime.getDevice() if where.index is None else where.index
    count = xp.cuda.runtime.getDeviceCount()
    if index >= count:
        raise DeviceError(
            f"device 'cuda:{index}' was asked for, but {count} GPU{'s are' if count > 1 else ' is'} visible."
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


def device_of(raw):
    """The device of a raw array."""
    return CPU if isinstance(raw, ndarray) else _cuda_device(raw.device.id)


_NOTHING = nullcontext()


def device_guard(raw):
    """A context in which the device of a raw array is the current one."""
    return raw.device if several and isinstance(raw, _cupy_ns.ndarray) else _NOTHING


def assign(raw, value):
    """raw[...] = value, whichever GPU is the current one."""
    if several:
        with device_guard(raw):
            raw[...] = value
    else:
        raw[...] = value


def staying():
    """A context at whose end the GPU is the current one that is so now, whatever `follow` does in it."""
    return _cupy_ns.cuda.Device() if several else _NOTHING


def follow(raw):
    """Make the GPU on which a raw array lies the current one; called where `several` are visible, within `staying`."""
    if isinstance(raw, _cupy_ns.ndarray) and raw.device.id != _cupy_ns.cuda.runtime.getDevice():
        raw.device.use()


def on(where):
    """(namespace, context manager) in which `xp.empty` and friends allocate on the device `where`."""
    if where.type == "cpu":
        return numpy_ns, _NOTHING
    xp = cupy_ns()
    return xp, xp.cuda.Device(where.index) if several else _NOTHING


def out_of_memory(error):
    """The OutOfMemoryError to raise for CuPy's: what was asked for, what is in use, and what helps."""
    xp = cupy_ns()
    number = xp.cuda.runtime.getDevice()
    free, total = xp.cuda.runtime.memGetInfo()
    pool = xp.get_default_memory_pool()
    gib = 2**30
    return OutOfMemoryError(
        f"CUDA out of memory. {error} GPU {number} has {total / gib:.2f} GiB, of which {free / gib:.2f} GiB are free; the arrays of "
        f"this process use {pool.used_bytes() / gib:.2f} GiB and its pool holds {pool.total_bytes() / gib:.2f} GiB. A smaller batch, "
        "gradient accumulation, mixed precision or gradient checkpointing needs less; cuda.empty_cache() gives other processes "
        "what the pool holds free."
    )


def to_device(raw, where, non_blocking=False):
    """The raw array on the device `where`: itself if it is there already, else a copy.

    Args:
        non_blocking: between page-locked host memory and a GPU, return before the copy has finished; it is ordered on the
            current stream. What comes to the host lies in page-locked memory then, and may be read when the stream is done.
    """
    here = device_of(raw)
    if here is where:
        return raw
    if where.type == "cpu":
        return _to_host_later(raw) if non_blocking else cupy_ns().asnumpy(raw)
    xp, there = on(where)
    try:
        with there:
            if here is not CPU:
                return _from_other_gpu(xp, raw)
            if non_blocking and is_pinned(raw) and raw.flags.c_contiguous:
                return _to_gpu_later(xp, raw)
            if is_pinned(raw) and not capturing.is_recording():
                return xp.asarray(raw, blocking=True)
            return _staged(xp, raw)
    except MemoryError as error:
        raise out_of_memory(error) from None


def _staged(xp, raw):
    """A copy of a host array on the current GPU, through page-locked memory of CuPy's own, without waiting.

    Raises:
        CaptureError: it is being captured into a CUDA graph, and holds more than one number.
    """
    if raw.size > 1:
        capturing.refuse(
            "a copy from the CPU",
            "it would bring the same numbers at each replay. Make the tensor before, or pass it as an argument.",
        )
    return capturing.upload(xp, raw)


def is_pinned(raw):
    """Whether a raw array lies in page-locked host memory, from which a GPU copies while the CPU goes on."""
    if _cupy_ns is None:
        return False
    while isinstance(raw, ndarray):
        raw = raw.base
    return isinstance(raw, _cupy_ns.cuda.PinnedMemoryPointer)


def pinned(raw):
    """A raw host array in page-locked memory: itself if it lies there, else a copy.

    Raises:
        RuntimeError: it is on a GPU.
        DeviceError: there is no GPU, whose driver locks the memory.
    """
    if not isinstance(raw, ndarray):
        raise RuntimeError(f"pin_memory: only CPU tensors can be pinned, this one is on {device_of(raw)}.")
    xp = cupy_ns()
    if is_pinned(raw):
        return raw
    out = xp.empty_pinned(raw.shape, raw.dtype)
    out[...] = raw
    return out


_in_flight = (
    deque()
)  # (event, host array) of copies that may not be done: the memory must not be used for anything else


def _hold(stream, host):
    """Keep a host array until what a stream has been given so far is done, or as long as the graph that captures it."""
    if capturing.is_recording():
        capturing.current.kept.append(host)
        return
    while _in_flight and _in_flight[0][0].done:
        _in_flight.popleft()
    _in_flight.append((stream.record(), host))


def _to_gpu_later(xp, raw):
    out = xp.empty(raw.shape, raw.dtype)
    fill_later(out, raw)
    return out


def fill_later(out, pinned):
    """Copy contiguous page-locked host memory into a contiguous array on the current GPU without waiting."""
    if out.size:
        capturing.copy_pinned(cupy_ns(), out, pinned)
        _hold(cupy_ns().cuda.get_current_stream(), pinned)


def _to_host_later(raw, out=None):
    xp = cupy_ns()
    with device_guard(raw):
        out = xp.empty_pinned(raw.shape, raw.dtype) if out is None else out
        if raw.size:
            capturing.copy_pinned(xp, out, xp.ascontiguousarray(raw))
            _hold(xp.cuda.get_current_stream(), out)
    return out


def copy_later(raw, out):
    """Copy an array on a GPU into page-locked host memory without waiting; False where it can't be done so."""
    fits = is_pinned(out) and out.flags.c_contiguous and out.shape == raw.shape and out.dtype == raw.dtype
    if fits:
        _to_host_later(raw, out)
    return fits


def _from_other_gpu(xp, raw):
    """A copy on the current GPU. Its stream waits for what makes the array, and the array's for the copy, so that neither
    reads or reuses memory too early."""
    with raw.device:
        made = xp.cuda.get_current_stream().record()
    stream = xp.cuda.get_current_stream()
    stream.wait_event(made)
    copy = xp.asarray(raw)
    copied = stream.record()
    with raw.device:
        xp.cuda.get_current_stream().wait_event(copied)
    return copy
