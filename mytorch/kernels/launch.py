"""Launches Triton kernels on raw arrays. Only this file uses Triton's launcher.

    launch(kernel, grid, x, out, n, BLOCK=1024, num_warps=4)

`kernel` is a `@triton.jit` function, `grid` a tuple of one to three numbers. Positional arguments follow the
kernel's signature: raw arrays, numbers and None. The arrays belong to CuPy, or to NumPy in Triton's interpreter. Keyword
arguments are its constexprs and Triton's options (`num_warps`, `num_stages`).

* **No PyTorch.** Triton's own driver reads stream and device from PyTorch, or uses the default stream.
  `_make_driver` returns Triton's driver with CuPy's current device and stream. Launches are thus ordered with CuPy's
  own kernels and can be captured into a CUDA graph.
* **Little CPU time.** Triton inspects every argument at each launch. `launch` caches the compiled forms of each kernel by
  the properties on which Triton specializes: dtypes, divisibility of pointers and sizes by 16, sizes equal to 1, and
  constants. It starts a cached form directly with plain addresses.
* **Tuning.** `tuned` measures the candidates of a kernel once for each device and size, and stores the choice in
  a file for later processes. Triton itself caches compiled code (`TRITON_CACHE_DIR`).
* **Without a GPU**, `TRITON_INTERPRET=1` (set before this module is imported) runs the same kernels on NumPy
  memory, one program after the other. This is slow, but accurate enough for tests.
"""

import contextlib
import functools
import hashlib
import importlib
import inspect
import json
import os
import statistics
import sys
import tempfile
import types
import warnings
from pathlib import Path

import numpy as np

# Fuse a * b + c, independent of the default of the Triton release.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
import triton

from ..arrays import address, cupy_ns

INTERPRET = os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")

_TYPES = {  # name of a NumPy dtype -> Triton's name of the pointer's element type
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "bool": "i8", "int8": "i8", "uint8": "u8",
    "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
}  # fmt: skip
_type_of = {}  # the same by dtype object, since hashing a dtype is faster than reading its name


def type_name(dtype):
    """Returns Triton's name of a NumPy dtype.

    Raises:
        TypeError: Triton does not support the dtype.
    """
    name = _type_of.get(dtype)
    if name is None:
        if dtype.name not in _TYPES:
            raise TypeError(f"launch: Triton has no dtype for {dtype.name}; it takes {', '.join(_TYPES)}.")
        name = _type_of[dtype] = _TYPES[dtype.name]
    return name


class Pointer:
    """An array in the form that Triton's JIT reads: an address and an element type."""

    __slots__ = ("address", "array", "dtype")

    def __init__(self, array):
        self.array = array  # keeps the memory alive
        self.address = array.data.ptr
        self.dtype = type_name(array.dtype)

    def data_ptr(self):
        """Returns the address."""
        return self.address


class CpuPointer:
    """An array in CPU memory in the form that Triton's interpreter reads.

    The interpreter copies arguments by methods of a PyTorch tensor and its storage. This object is both, and its methods
    return the array's own memory.
    """

    device = "cpu"

    def __init__(self, array):
        self.array = array
        self.dtype = type_name(array.dtype)

    def data_ptr(self):
        """Returns the address."""
        return address(self.array)

    def untyped_storage(self, *given):
        """Returns the storage, which is not copied."""
        return self

    cpu = copy_ = set_ = untyped_storage

    def storage_offset(self):
        """Returns the offset from the start of the storage."""
        return 0

    def size(self):
        """Returns the shape of the array."""
        return self.array.shape

    def stride(self):
        """Returns the strides of the array in elements."""
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def new_empty(self, count, device=None):
        """Returns the tensor that the interpreter fills with `set_`."""
        return CpuPointer(self.array)


# -- the driver -------------------------------------------------------------------------------------------------------


def _make_driver():
    """Returns Triton's CUDA driver with CuPy's current device and stream."""
    home = importlib.import_module("triton.backends.nvidia.driver")
    cuda = cupy_ns().cuda
    runtime = cuda.runtime

    class Driver(home.CudaDriver):
        def __init__(self):
            self.utils = home.CudaUtils()
            self.launcher_cls = home.CudaLauncher
            self.get_current_device = runtime.getDevice
            self.set_current_device = runtime.setDevice
            self.get_current_stream = lambda device=None: cuda.get_current_stream().ptr
            self.get_device_capability = capability

        def get_benchmarker(self):
            return lambda call, quantiles=None, **kwargs: [milliseconds(call)] * len(quantiles or [0])

        def get_empty_cache_for_benchmark(self):
            return cupy_ns().empty(64 << 20, np.int32)

        def clear_cache(self, cache):
            cache.fill(0)

    def capability(device):
        number = cuda.Device(device).compute_capability  # "90"
        return int(number[:-1]), int(number[-1])

    return Driver()


_trouble = None
_device = None  # runtime.getDevice, once the driver is set
_stream = None  # cuda.get_current_stream


def start():
    """Makes Triton use CuPy's device and stream. The first launch calls this function.

    Raises:
        DeviceError: CuPy or a GPU is missing.
    """
    global _device, _stream
    if _device is None:
        cuda = cupy_ns().cuda
        _spare_pytorch()
        triton.runtime.driver.set_active(_make_driver())
        _stream = cuda.get_current_stream
        _device = cuda.runtime.getDevice


def _spare_pytorch():
    """Provides a fake `torch` module while Triton's native code looks up PyTorch's Tensor class, once.

    Otherwise Triton would import an installed PyTorch, which takes seconds and memory in each process.
    """
    specialize = getattr(importlib.import_module("triton._C.libtriton"), "native_specialize_impl", None)
    if specialize is None or "torch" in sys.modules:
        return
    backend_class = importlib.import_module("triton.backends.nvidia.compiler").CUDABackend
    fake = sys.modules["torch"] = types.ModuleType("torch")
    fake.Tensor = type("Tensor", (), {})
    try:
        with contextlib.suppress(TypeError):  # other releases have different arguments
            specialize(backend_class, 1, False, True, True)
    finally:
        if sys.modules.get("torch") is fake:
            del sys.modules["torch"]


def why_not():
    """Returns the reason if no kernel can be launched, otherwise None. Warns the first time.

    Triton compiles a part of its driver with the system's C compiler, which may be missing.
    """
    global _trouble
    if INTERPRET or _device is not None or _trouble is not None:
        return _trouble
    try:
        start()
    except Exception as error:  # errors of compiler, linker and driver have no common class
        _trouble = f"Triton can't be started ({type(error).__name__}: {error})"
        warnings.warn(f"{_trouble}; ops on the GPU run without kernels.", UserWarning, stacklevel=2)
    return _trouble


def is_capturing():
    """Returns True if the current stream is being captured into a CUDA graph; then nothing can be measured."""
    return not INTERPRET and bool(cupy_ns().cuda.get_current_stream().is_capturing())


# -- launching --------------------------------------------------------------------------------------------------------

_compiled = {}  # id of a kernel -> {specialization: (run, function, metadata, constants)}


def launch(kernel, grid, *args, **options):
    """Launches `kernel` on `grid`, see the module's docstring. Returns without waiting.

    Raises:
        TypeError: Triton does not support the dtype of an array.
    """
    if INTERPRET:
        if 0 not in grid:
            interpret(kernel, grid, args, options)
        return
    if _device is None:
        start()
    if 0 in grid:
        return
    # The key has the properties on which Triton specializes the machine code; `plain` are the arguments of the launch.
    key, plain = [_device(), *options.items()], []
    for a in args:
        kind = type(a)
        if kind is int:
            # Triton compiles size 1 as a constant, and distinguishes multiples of 16 and 32-bit from 64-bit integers.
            key.append(a if a == 1 else (a & 15 == 0, -0x80000000 <= a < 0x80000000))
            plain.append(a)
        elif kind is float or a is None:
            key.append(kind)
            plain.append(a)
        else:
            try:
                address = a.data.ptr
            except AttributeError:
                if not isinstance(a, np.generic):
                    takes = "arrays on the GPU, numbers and None"
                    raise TypeError(f"launch: a kernel takes {takes}; it was given {kind.__name__}.") from None
                return launch(kernel, grid, *map(_plain, args), **options)
            key.append((a.dtype, address & 15 == 0))
            plain.append(address)
    key = tuple(key)
    forms = _compiled.get(id(kernel))  # kernels live as long as their modules; hashing one takes a lock
    if forms is None:
        forms = _compiled[id(kernel)] = {}
    form = forms.get(key)
    if form is None:
        forms[key] = _first_launch(kernel, grid, args, options)
        return
    run, function, metadata, constants = form
    x, y, z = (*grid, 1, 1)[:3]
    run(x, y, z, _stream().ptr, function, metadata, None, None, None, *plain, *constants)


def interpret(kernel, grid, args, options):
    """Runs a kernel in Triton's interpreter."""
    with np.errstate(all="ignore"):  # masked elements may overflow
        kernel[grid](*[CpuPointer(a) if hasattr(a, "dtype") else a for a in map(_plain, args)], **options)


def _plain(a):
    """Converts NumPy scalars to Python numbers."""
    return a.item() if isinstance(a, np.generic) else a


def _first_launch(kernel, grid, args, options):
    """Launches through Triton's JIT, which compiles the kernel or reads its cache. Returns the form for later launches."""
    wrapped = [Pointer(a) if hasattr(a, "dtype") else a for a in args]
    compiled = kernel[grid](*wrapped, **options)
    names = kernel.arg_names[len(args) :]
    return compiled.run, compiled.function, compiled.packed_metadata, [options[name] for name in names]


# -- sizes ------------------------------------------------------------------------------------------------------------


def cdiv(a, b):
    """Returns a / b, rounded up."""
    return -(-a // b)


def power_of_2(n):
    """Returns the smallest power of 2 that is at least n and at least 1."""
    return 1 << max(n - 1, 0).bit_length()


def processors():
    """Returns the number of multiprocessors of the current device; 4 in the interpreter."""
    if INTERPRET:
        return 4
    start()
    device = _device()
    if device not in _processors:
        _processors[device] = int(cupy_ns().cuda.runtime.getDeviceProperties(device)["multiProcessorCount"])
    return _processors[device]


_processors = {}

# -- tuning -----------------------------------------------------------------------------------------------------------

MODES = ("none", "medium", "max")
_choices = {}  # (file, key) -> the chosen candidate
_sources = {}


def mode_for(variable="TRITON_AUTOTUNE_MODE"):
    """Returns the tuning mode: "none" (use the first candidate), "medium" or "max".

    It is read from the given environment variable, or from `TRITON_AUTOTUNE_MODE` if that is not set.

    Raises:
        ValueError: the mode is unknown.
    """
    word = os.environ.get(variable) or os.environ.get("TRITON_AUTOTUNE_MODE") or "none"
    if word not in MODES:
        raise ValueError(f"{variable} is {word!r}; it takes one of {', '.join(MODES)}.")
    return word


def milliseconds(call, repeats=10):
    """Returns the median time of `call()` on the current stream in ms, measured by events. It waits for the stream."""
    cuda = cupy_ns().cuda
    stream = cuda.get_current_stream()
    call()
    times = []
    for _ in range(repeats):
        begin, end = cuda.Event(), cuda.Event()
        begin.record(stream)
        call()
        end.record(stream)
        end.synchronize()
        times.append(cuda.get_elapsed_time(begin, end))
    return statistics.median(times)


def tuned(kernel, key, candidates, attempt, variable="TRITON_AUTOTUNE_MODE", measure=None):
    """Returns the fastest of some candidates (dicts of options) for a kernel at the sizes of `key`.

    Args:
        kernel: the kernel; its source is a part of the cache key.
        key: tuple of strings and numbers; round the sizes, so that not every length is tuned.
        candidates: {"none": [the default], "medium": […], "max": […]}; each mode includes those before it.
        attempt: called with a candidate; runs the kernel, possibly several times.
        variable: the environment variable that holds the mode.
        measure: function of a call, giving its time; `milliseconds` if not given.

    The default is taken in the interpreter, and during graph capture where nothing has been measured yet. A candidate that does not run (too
    much shared memory) loses.
    """
    mode = mode_for(variable)
    default = candidates["none"][0]
    if mode == "none" or (INTERPRET and measure is None):
        return default
    path = _cache_file()
    name = f"{_source(kernel)}:{mode}:{'x'.join(str(part) for part in key)}"
    choice = _choices.get((path, name))
    if choice is None:
        choice = _read(path).get(name)
        if choice is None:
            if is_capturing():
                return default
            tried = [c for m in MODES[: MODES.index(mode) + 1] for c in candidates.get(m, [])]
            choice = _quickest(tried, attempt, measure or milliseconds)
            _write(path, name, choice)
        _choices[path, name] = choice
    return choice


def _quickest(candidates, attempt, measure):
    times = []
    for candidate in candidates:
        try:
            times.append(measure(lambda c=candidate: attempt(c)))
        except Exception as error:  # Triton's OutOfResources, PTX and driver errors have no common class
            if len(candidates) == 1:
                raise
            times.append(float("inf"))
            last = error
    if min(times) == float("inf"):
        count = len(candidates)
        raise RuntimeError(f"none of {count} candidates for a kernel could run; the last error: {last}") from last
    return candidates[times.index(min(times))]


def _source(kernel):
    """A hash of a kernel's file and of Triton's version: helper functions count too."""
    function = getattr(kernel, "fn", kernel)
    home = inspect.getsourcefile(function)
    if home not in _sources:
        text = Path(home).read_bytes() + triton.__version__.encode()
        _sources[home] = hashlib.sha256(text).hexdigest()[:16]
    return f"{function.__name__}-{_sources[home]}"


def _cache_file():
    """Returns the file of the tuning choices: one per type of device, in the user's cache directory."""
    home = os.environ.get("MYTORCH_CACHE_DIR")
    home = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mytorch"
    if INTERPRET:
        return home / "autotune-interpreter.json"
    start()
    return home / f"autotune-{_device_name(_device())}.json"


@functools.cache
def _device_name(device):
    """Returns the name of a GPU, cached because the query is slow."""
    return cupy_ns().cuda.runtime.getDeviceProperties(device)["name"].decode().replace(" ", "-")


def _read(path):
    """The choices kept so far; an unreadable file counts as empty."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path, name, choice):
    """Add a choice to the file, which other processes may read or replace at the same time."""
    with contextlib.suppress(OSError):  # a read-only home costs the next process some seconds, no more
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {**_read(path), name: choice}
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            json.dump(kept, file, indent=1, sort_keys=True)
        os.replace(file.name, path)
