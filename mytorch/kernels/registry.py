"""Which kernel runs, and why not: the one answer for ops, dropout, random numbers, losses, optimizers and clipping.

`Kernels` names the kernels of one thing, at most one for each kind of device, and imports them on first use. A kernel is a
module, or an object in one that holds several ("mytorch.kernels.triton.norm:rms_norm"). Whoever has a kernel asks `find` and
does without where it gets None. `fused` says what is wanted:

* True: a kernel wherever it can run; where none can, one warning with the reason.
* False: none.
* None: the policy of `mytorch.fused(…)` and `MYTORCH_FUSED`, whose default takes a kernel where its own `pays` says that it
  is the faster one.

A kernel has `accepts(*arrays, **options)`: can it run these? And, where that depends, `pays(*arrays, **options)`: is it faster
there? `better(*arrays, **options)` gives another to run instead, or None. `LEAST` says the usual reason alone: from how many elements
of the first array on. `TAKES` says in words what it accepts, `why_not()` why a library's can't run here (Triton's ask launch.py).
What else it has is between it and who calls it; those of ops have `forward`, `vjp` and `residuals` as in dispatch/op.py. A `forward`
that meets values which it does not take returns None, and the reference runs.
"""

import importlib

from ..backend import ndarray, numpy_ns, xp_of
from ..base import config, hooks
from ..base.errors import warn
from . import blas

_warned = set()
SMALL = 128  # elements below which no kernel of a CPU pays, so that small things do without Numba's import
UNFIT = "the kernel does not take these shapes, dtypes or options"


def _policy(fused):
    """`fused`, or what holds where it is None."""
    if fused is None:
        return config.fused_policy.get()
    if fused is True or fused is False:
        return fused
    raise TypeError(f"fused must be True, False or None, got {type(fused).__name__}.")


def _no_kernel(device):
    return f"there is no kernel for {'the CPU' if device == 'cpu' else 'a GPU'}"


def _unfit(module):
    takes = getattr(module, "TAKES", None)
    return f"the kernel takes {takes} only" if takes else UNFIT


class LazyKernel:
    """A kernel module, or an object in one ("module:name"), imported on first use; a failed import is kept with its reason.

    Attributes:
        module: what was imported; None before, and where that failed. problem: why it failed, or None.
        least, pays, better: its LEAST; the other two, or None.
    """

    def __init__(self, path, device):
        self.path = path
        self.device = device
        self.module = self.problem = self.pays = self.better = None
        self.least = SMALL if device == "cpu" else 0

    def load(self):
        """The module, imported now if it was not; None where that fails."""
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
                self.pays, self.better = getattr(module, "pays", None), getattr(module, "better", None)
                self.least = max(self.least, getattr(module, "LEAST", 0))
                self.module = module  # at last: another thread may be looking
        return self.module


class Kernels:
    """The kernels of one op, update rule or draw: its name, for the warning, and where the modules are, `cpu=` and `cuda=`."""

    def __init__(self, name, **paths):
        self.name = name
        self.of = {}
        self.add(**paths)

    def add(self, **paths):
        """Name the kernel modules of further kinds of device, or others in their place."""
        self.of.update({device: LazyKernel(path, device) for device, path in paths.items()})

    def allowed(self, device, fused=None, problem=None):
        """The kernel module for a kind of device if it is there and `fused` allows it, else None; nothing is asked of it.

        Args:
            device: "cpu" or "cuda". problem: why the caller knows that it can't run, if so.
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
        """The kernel module to run on these arrays with these options; None for the reference."""
        policy = _policy(fused)
        kernel = self.of.get(device)
        if policy is None and kernel is not None and kernel.least:
            if kernel.module is None and arrays[0].size >= kernel.least:
                kernel.load()  # which says how few elements are too few: the first call must not choose otherwise than the next
            if arrays[0].size < kernel.least:
                return None
        module = (kernel and policy is not False and kernel.module) or self.allowed(device, fused)
        if module is None:
            return None
        if kernel.better is not None and (better := kernel.better(*arrays, **options)):
            return better
        if module.accepts(*arrays, **options):
            return module if policy or kernel.pays is None or kernel.pays(*arrays, **options) else None
        if fused is True:
            self.warn(_unfit(module))
        return None

    def why_not(self, device, fused, arrays, options):
        """Why `find` gave None."""
        policy, kernel = _policy(fused), self.of.get(device)
        if policy is False:
            return "fused=False"
        if kernel is None or kernel.problem is not None:
            return kernel.problem if kernel else _no_kernel(device)
        if policy is None and kernel.least and arrays[0].size < kernel.least:
            return f"fewer than {kernel.least} elements"
        return "does not pay here" if kernel.module.accepts(*arrays, **options) else _unfit(kernel.module)

    def warn(self, reason):
        """Say, once for each reason, that fused=True runs the reference."""
        if (self.name, reason) not in _warned:
            _warned.add((self.name, reason))
            warn(f"fused=True: {self.name} uses the reference because {reason}.")


def device_type(raw):
    """The kind of device that a raw array lies on: "cpu", "cuda", or a registered one's name."""
    return "cpu" if isinstance(raw, ndarray) else xp_of(raw).kind


RANDOM = Kernels("random numbers", cpu="mytorch.kernels.numba.random", cuda="mytorch.kernels.triton.random")
CUDNN_ATTENTION = Kernels("attention by cuDNN", cuda="mytorch.kernels.cudnn")
CACHE = Kernels("appending to a KV cache", cuda="mytorch.kernels.triton.cache")
_MULTI_TENSOR = Kernels("the update of all parameters at once", cuda="mytorch.kernels.triton.multi")


def multi_tensor(raws, fused=None):
    """The kernels that update, clip or unscale all of some raw arrays in one launch; None on a CPU, and where they can't."""
    if not raws or device_type(raws[0]) != "cuda":
        return None
    return _MULTI_TENSOR.find("cuda", fused, (raws,), {})


def _products(cupy):
    """CuPy's namespace gets its matrix products from here, when a GPU is first used."""
    return importlib.import_module("mytorch.kernels.products").functions(cupy)


hooks.cupy_functions.append(_products)
numpy_ns.extend(large_product=blas.product)
