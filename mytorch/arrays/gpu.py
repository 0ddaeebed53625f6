"""The namespace of CuPy, with functions that CuPy lacks or that differ from NumPy. Only this file imports CuPy, on first use."""

import importlib
from types import SimpleNamespace

import numpy as np

from . import capturing, hooks, in_flight
from .errors import NoGPUError, OutOfMemoryError
from .meta import MetaArray, meta_ns
from .namespaces import Namespace, ndarray, numpy_ns
from .others import BY_ARRAY

_cupy_ns = None
problem = None  # the reason if CuPy cannot be used
several_gpus = False  # True if more than one GPU is visible: arrays may then be on a GPU that is not the current one


def _widened(function, back=True):
    """Returns a function that converts half precision to float32 first. `back`: convert the result back."""

    def widened(x, *args, **kwargs):
        if x.dtype.itemsize > 2 or x.dtype.kind not in "fV":
            return function(x, *args, **kwargs)
        result = function(x.astype(np.float32), *args, **kwargs)
        return result.astype(x.dtype) if back else result

    return widened


# The dtypes for which CUDA has atomic additions, maxima and minima.
_ATOMIC = tuple(map(np.dtype, ("int32", "uint32", "uint64", "float32", "float64")))


def _scatter(function, adds=False):
    """Returns CuPy's scatter_add, scatter_max or scatter_min for all dtypes. CUDA has atomic operations for few dtypes."""

    def scatter(x, index, values):
        kind = x.dtype
        if kind in _ATOMIC:
            function(x, index, values)
        elif kind.kind == "c":
            function(x.real, index, values.real)
            function(x.imag, index, values.imag)
        elif kind == np.int64 and adds:  # signed and unsigned addition have the same bits in two's complement
            function(x.view(np.uint64), index, values.astype(kind, copy=False).view(np.uint64))
        elif kind == np.int64:
            high = np.uint64(1 << 63)  # with the sign bit flipped, unsigned order equals signed order
            wide = x.view(np.uint64) ^ high
            function(wide, index, values.astype(kind, copy=False).view(np.uint64) ^ high)
            x[...] = (wide ^ high).view(kind)
        else:
            wide = x.astype(np.float32 if kind.kind in "fV" else np.int32)
            function(wide, index, values.astype(wide.dtype))
            x[...] = wide.astype(kind)

    return scatter


def _cupy_where(xp):
    """Returns CuPy's `where` with support for bfloat16, selected as uint16. CuPy itself would return float32."""

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
    """Returns CuPy's clip, tril or triu with bfloat16 results. CuPy returns float32, which converts back exactly."""

    def kept(x, *args):
        return function(x, *args).astype(x.dtype, copy=False) if x.dtype.kind == "V" else function(x, *args)

    return kept


def _cupy_linalg(cp, errstate):
    """Returns CuPy's linalg with NumPy's behavior: LinAlgError for singular matrices, and broadcasting in `solve`."""

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
    """Returns CuPy's concatenate and stack, in groups of 8 arrays during a capture.

    For more arrays, CuPy copies a table of addresses to the GPU, which is not allowed during a capture.
    """

    def concatenate(arrays, axis=0):
        while len(arrays) > 8 and capturing.is_recording():
            arrays = [cp.concatenate(arrays[i : i + 8], axis) for i in range(0, len(arrays), 8)]
        return cp.concatenate(arrays, axis)

    def stack(arrays, axis=0):
        return concatenate([cp.expand_dims(x, axis) for x in arrays], axis)

    return {"concatenate": concatenate, "stack": stack}


def _cupy_as_strided(cp):
    def as_strided(x, shape, strides):
        """CuPy's as_strided, as a view, so that the result does not appear to own its memory."""
        return cp.lib.stride_tricks.as_strided(x, shape, strides).view()

    return SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))


def explaining(cp, allocator):
    """Returns an allocator that frees unused blocks of the default pool if memory runs out, and then raises a helpful error."""

    def allocate(size):
        try:
            return allocator(size)
        except MemoryError:
            in_flight.collect(wait=True)
            cp.get_default_memory_pool().free_all_blocks()
        try:
            return allocator(size)
        except MemoryError as error:
            raise out_of_memory(error) from None

    return allocate


def out_of_memory(error):
    """Returns an OutOfMemoryError for CuPy's error: the request, the memory in use, and possible remedies."""
    xp = cupy_ns()
    number = xp.cuda.runtime.getDevice()
    free, total = xp.cuda.runtime.memGetInfo()
    pool = xp.get_default_memory_pool()
    gib = 2**30
    return OutOfMemoryError(
        f"CUDA out of memory. {error} GPU {number} has {total / gib:.2f} GiB, of which {free / gib:.2f} GiB are free. The arrays of "
        f"this process use {pool.used_bytes() / gib:.2f} GiB, and its pool holds {pool.total_bytes() / gib:.2f} GiB. Use a smaller "
        "batch, gradient accumulation, mixed precision or gradient checkpointing. cuda.empty_cache() returns the free part of the "
        "pool to the system."
    )


def _load_cupy():
    """Imports CuPy and creates its namespace, or stores the reason in `problem`."""
    global _cupy_ns, problem, several_gpus
    if _cupy_ns is not None or problem is not None:
        return
    try:
        cp = importlib.import_module("cupy")
        if cp.cuda.runtime.getDeviceCount() == 0:
            raise RuntimeError("no NVIDIA GPU found")
        cupyx = importlib.import_module("cupyx")
        cupy_special = importlib.import_module("cupyx.scipy.special")
    except ImportError:
        from shutil import which

        install = "run `pip install cupy-cuda13x[ctk]`, or cupy-cuda12x[ctk] for a driver before 580"
        if which("nvidia-smi"):
            problem = f"CuPy is not installed; {install}"
        else:
            problem = f"CuPy is not installed, and no NVIDIA GPU was found. Use the CPU, or on a machine with a GPU, {install}"
    except Exception as error:  # CuPy raises its own classes when the driver is missing or too old
        problem = f"CuPy found no usable GPU ({error})"
    else:
        _cupy_ns = Namespace(
            cp,
            kind="cuda",
            **{name: _widened(getattr(cupy_special, name)) for name in ("erf", "erfc")},
            **{name: _widened(getattr(cp, name)) for name in ("sort", "partition", "cumsum", "cumprod")},
            argsort=_widened(cp.argsort, back=False),
            **{name: _kept(getattr(cp, name)) for name in ("clip", "tril", "triu")},
            scatter_add=_scatter(cupyx.scatter_add, adds=True),
            **{name: _scatter(getattr(cupyx, name)) for name in ("scatter_max", "scatter_min")},
            where=_cupy_where(cp),
            linalg=_cupy_linalg(cp, cupyx.errstate),
            lib=_cupy_as_strided(cp),
            **_cupy_joins(cp),
            empty_pinned=cupyx.empty_pinned,
            **{name: function for functions in hooks.cupy_functions for name, function in functions(cp).items()},
        )
        cp.cuda.set_allocator(explaining(cp, cp.cuda.get_allocator()))
        several_gpus = cp.cuda.runtime.getDeviceCount() > 1


def cupy_ns():
    """Returns the namespace of CuPy.

    Raises:
        NoGPUError: CuPy or a GPU is missing.
    """
    if _cupy_ns is None:
        _load_cupy()
        if _cupy_ns is None:
            raise NoGPUError(f"device 'cuda' can't be used: {problem}.")
    return _cupy_ns


def is_loaded():
    """Returns True if CuPy was loaded; False before the first use of a GPU."""
    return _cupy_ns is not None


def cuda_available():
    """Returns True if CuPy and a GPU are usable."""
    _load_cupy()
    return _cupy_ns is not None


def device_count():
    """Returns the number of visible GPUs; 0 without CuPy."""
    return cupy_ns().cuda.runtime.getDeviceCount() if cuda_available() else 0


def xp_of(raw):
    """Returns the namespace of a raw array."""
    if isinstance(raw, ndarray):
        return meta_ns if type(raw) is MetaArray else numpy_ns
    return BY_ARRAY[type(raw)] if type(raw) in BY_ARRAY else cupy_ns()


def address(raw):
    """Returns the address of the first element of a raw array."""
    if isinstance(raw, ndarray):
        return raw.__array_interface__["data"][0]
    return BY_ARRAY[type(raw)].address(raw) if type(raw) in BY_ARRAY else raw.data.ptr


def is_raw(x):
    """Returns True if x is an array of NumPy, CuPy or a registered library."""
    if isinstance(x, ndarray) or (_cupy_ns is not None and isinstance(x, _cupy_ns.module.ndarray)):
        return True
    return type(x) in BY_ARRAY


def looks_like_cupy(x):
    """Returns True if x is a CuPy array, also before this library has loaded CuPy."""
    return type(x).__module__.partition(".")[0] == "cupy" and hasattr(x, "data")
