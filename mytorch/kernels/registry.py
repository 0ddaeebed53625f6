"""Selection of kernels for ops, dropout, random numbers, losses, optimizers and clipping, and the reasons against a kernel.

`Kernels` names the kernels of one op or function, at most one for each type of device, and imports them on first use. A kernel is a
module, or an object in a module ("mytorch.kernels.triton.norm:rms_norm"). The function `find` returns a kernel, or None for the
reference. `fused` is the user's choice:

* True: a kernel wherever it can run; otherwise one warning with the reason.
* False: no kernel.
* None: the policy of `mytorch.fused(…)` and `MYTORCH_FUSED`. The default policy uses a kernel if its `is_faster` returns True.

Attributes of a kernel:

* `accepts(*arrays, **options)`: returns True if the kernel supports the arguments.
* `is_faster(*arrays, **options)`, optional: returns True if the kernel is faster than the reference.
* `better(*arrays, **options)`, optional: returns another kernel to run instead, or None.
* `LEAST`, optional: smallest size of the first array with a faster kernel.
* `TAKES`, optional: a description of the supported arguments, for messages.
* `why_not()`, optional: the reason if a required library cannot be used. For Triton kernels, launch.py has it.
* `forward`, `residuals`, and `vjp` or `formulas` (one for each input) for kernels of ops, see ops/dispatch/record.py. A `forward` that finds unsupported values returns None,
  and the reference runs.
"""

import importlib

from ..arrays import config, hooks, ndarray, xp_of
from ..arrays.errors import warn

_warned = set()
SMALL = 128  # with fewer elements, no CPU kernel is used, so that small programs do not import Numba
UNFIT = "the kernel does not support these shapes, dtypes or options"


def _policy(fused):
    """Returns `fused`, or the current policy if it is None."""
    if fused is None:
        return config.fused_policy.get()
    if fused is True or fused is False:
        return fused
    raise TypeError(f"fused must be True, False or None, got {type(fused).__name__}.")


def _no_kernel(device):
    return f"there is no kernel for {'the CPU' if device == 'cpu' else 'a GPU'}"


def _as_float32(x):
    """Returns a view of a float32 zero with the shape of a float array, and any other value unchanged."""
    floats = getattr(getattr(x, "dtype", None), "kind", None) in ("f", "V")  # NumPy reports bfloat16 as void
    return xp_of(x).broadcast_to(xp_of(x).zeros((), "float32"), x.shape) if floats else x


def _unfit(module, device, arrays, options):
    """Explains why a kernel does not support the arguments: the dtype, if float32 arrays are supported."""
    if takes := getattr(module, "TAKES", None):
        return f"the kernel supports only {takes}"
    single = [_as_float32(x) for x in arrays]
    dtypes = [a.dtype.name for a, b in zip(arrays, single, strict=True) if a is not b and a.dtype != b.dtype]
    if dtypes and module.accepts(*single, **options):
        return f"{dtypes[0]} is not supported on {'CPU' if device == 'cpu' else 'GPU'}"
    return UNFIT


class LazyKernel:
    """A kernel module, or an object in a module ("module:name"), imported on first use.

    Attributes:
        module: the imported kernel; None before the import, or if it failed.
        problem: the reason of the failure, or None.
        least: LEAST of the kernel.
        is_faster: function of the kernel, or None.
        better: function of the kernel, or None.
    """

    def __init__(self, path, device):
        self.path = path
        self.device = device
        self.module = self.problem = self.is_faster = self.better = None
        self.least = SMALL if device == "cpu" else 0

    def load(self):
        """Returns the kernel, imported if necessary; None if the import fails."""
        if self.module is None and self.problem is None:
            path, _, name = self.path.partition(":")
            try:
                module = importlib.import_module(path)
                if self.device == "cuda":
                    asked = module if hasattr(module, "why_not") else importlib.import_module("mytorch.kernels.launch")
                    self.problem = asked.why_not()
            except ImportError as error:
                package = (error.name or "").partition(".")[0]
                self.problem = f"{package or path} is not installed" if package != "mytorch" else str(error)
            if self.problem is None:
                module = getattr(module, name) if name else module
                self.is_faster = getattr(module, "is_faster", None) or getattr(module, "pays", None)  # older
                self.better = getattr(module, "better", None)
                self.least = max(self.least, getattr(module, "LEAST", 0))
                self.module = module  # last, since other threads check only this attribute
        return self.module


class Kernels:
    """The kernels of one op, update rule or draw: a name for warnings, and the paths of the modules, `cpu=` and `cuda=`."""

    def __init__(self, name, **paths):
        self.name = name
        self.of = {}
        self.add(**paths)

    def add(self, **paths):
        """Adds or replaces the kernel modules of types of devices."""
        self.of.update({device: LazyKernel(path, device) for device, path in paths.items()})

    def allowed(self, device, fused=None, problem=None):
        """Returns the kernel for a type of device if it exists and `fused` allows it, otherwise None. `accepts` is not called.

        Args:
            device: "cpu" or "cuda".
            fused: see the module's docstring.
            problem: a known reason against the kernel, or None.
        """
        if _policy(fused) is False:
            return None
        kernel = self.of.get(device)
        module = None
        if kernel is None:
            problem = _no_kernel(device)
        elif problem is None:
            module = kernel.module or kernel.load()
            problem = kernel.problem
        if problem is not None and fused is True:
            self.warn(problem)
        return module

    def find(self, device, fused, arrays, options):
        """Returns the kernel for these arrays and options; None for the reference."""
        policy = _policy(fused)
        kernel = self.of.get(device)
        if policy is None and kernel is not None and kernel.least:
            if kernel.module is None and arrays[0].size >= kernel.least:
                kernel.load()  # reads LEAST, so that the first call makes the same choice as later calls
            if arrays[0].size < kernel.least:
                return None
        module = (kernel and policy is not False and kernel.module) or self.allowed(device, fused)
        if module is None:
            return None
        if kernel.better is not None and (better := kernel.better(*arrays, **options)):
            return better
        if module.accepts(*arrays, **options):
            return module if policy or kernel.is_faster is None or kernel.is_faster(*arrays, **options) else None
        if fused is True:
            self.warn(_unfit(module, device, arrays, options))
        return None

    def why_not(self, device, fused, arrays, options):
        """Explains why `find` returned None."""
        policy, kernel = _policy(fused), self.of.get(device)
        if policy is False:
            return "fused=False"
        if kernel is None or kernel.problem is not None:
            return kernel.problem if kernel else _no_kernel(device)
        if policy is None and kernel.least and arrays[0].size < kernel.least:
            return f"fewer than {kernel.least} elements"
        fits = kernel.module.accepts(*arrays, **options)
        return "slower than the reference" if fits else _unfit(kernel.module, device, arrays, options)

    def warn(self, reason):
        """Warns, once for each reason, that fused=True runs the reference."""
        if (self.name, reason) not in _warned:
            _warned.add((self.name, reason))
            warn(f"fused=True: {self.name} uses the reference because {reason}.")


def device_type(raw):
    """Returns the type of a raw array's device: "cpu", "cuda", or the name of a registered device."""
    return "cpu" if isinstance(raw, ndarray) else xp_of(raw).kind


RANDOM = Kernels("random numbers", cpu="mytorch.kernels.numba.random", cuda="mytorch.kernels.triton.random")
ROWS = Kernels("arithmetic and copies", cpu="mytorch.kernels.numba.rows")
CUDNN_ATTENTION = Kernels("attention by cuDNN", cuda="mytorch.kernels.cudnn.attention")
CUDNN_CONVOLUTIONS = Kernels("convolutions by cuDNN", cuda="mytorch.kernels.cudnn.convolution")
CACHE = Kernels("appending to a KV cache", cuda="mytorch.kernels.triton.kv_cache")
_MULTI_TENSOR = Kernels("the update of all parameters at once", cuda="mytorch.kernels.triton.multi")


def multi_tensor(raws, fused=None):
    """Returns the kernels that update, clip or unscale several raw arrays in one launch; None on a CPU or if unsupported."""
    if not raws or device_type(raws[0]) != "cuda":
        return None
    return _MULTI_TENSOR.find("cuda", fused, (raws,), {})


def _products(cupy):
    """Returns the matrix products of CuPy's namespace. Called when a GPU is first used."""
    return importlib.import_module("mytorch.kernels.products").functions(cupy)


hooks.cupy_functions.append(_products)
