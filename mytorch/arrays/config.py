"""Settings that are read once from the environment and can be changed at run time.

`MYTORCH_FUSED=0|1|auto` sets the policy for ops with a fused kernel. With `auto` (the default), the kernel runs if it is
expected to be faster. With `1`, it runs if it supports the inputs. With `0`, it never runs.
"""

import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar

_WORDS = {"0": False, "off": False, "false": False, "1": True, "on": True, "true": True, "auto": None}


def share_cores():
    """Divides the cores of this machine among the processes of an MPI launcher, by the number of BLAS threads.

    Call it before NumPy is loaded. It does not change `OMP_NUM_THREADS` if it is already set, as by `mytorchrun`.
    """
    sizes = [os.environ.get(name, "") for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")]
    nearby = max((int(size) for size in sizes if size.isdigit()), default=1)
    if nearby > 1 and "OMP_NUM_THREADS" not in os.environ and "numpy" not in sys.modules:
        os.environ["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // nearby, 1))


def _policy_from_environment():
    word = os.environ.get("MYTORCH_FUSED", "auto").lower()
    if word not in _WORDS:
        raise ValueError(f"MYTORCH_FUSED: expected one of {sorted(_WORDS)}, got {word!r}.")
    return _WORDS[word]


float32_matmul_precision = "highest"  # "high" and "medium" allow TF32 on a GPU; see compat/names.py
cudnn_enabled = True  # use cuDNN for convolutions, if it is installed; `backends.cudnn.enabled`
cudnn_deterministic = False  # `backends.cudnn.deterministic`
convolution_tf32 = True  # allow TF32 in convolutions; `backends.cudnn.allow_tf32` in PyTorch
check_indices = os.environ.get("MYTORCH_CHECK_INDICES", "0") not in ("", "0")  # check indices on a GPU, which waits
deterministic = False  # do not run kernels with an unspecified order of summation
deterministic_alert = ""  # "error" or "warn": for operations without a deterministic implementation
fill_uninitialized = False  # fill the results of `empty` with NaN, or with the largest integer
pytorch_mode = False  # set by install_as_torch: `.grad` and `.data` are Tensors, and errors match PyTorch
packages = ["mytorch"]  # first part of the `__module__` of the library's classes; in PyTorch mode also "torch"
fused_policy = ContextVar("fused_policy", default=_policy_from_environment())  # noqa: B039


def is_own(kind):
    """Returns True for a class or function of the library."""
    return (kind.__module__ or "").partition(".")[0] in packages


def torch_name():
    """Returns the name of the module in the `repr` of dtypes and sizes."""
    return "torch" if pytorch_mode else "mytorch"


@contextmanager
def holding(variable, value):
    """Sets a ContextVar in a `with` block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def temporarily(owner, **values):
    """Sets attributes of an object in a `with` block."""
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def fused(enabled=True):
    """Sets the policy for fused kernels in a `with` block.

    Args:
        enabled: True to run each kernel that supports the inputs; False to run no kernel. None to run a kernel if it
            is expected to be faster (default: True). An argument `fused` of an op overrides the policy.

    Example:
        >>> x = mytorch.randn(4, 8)
        >>> with mytorch.fused(False):
        ...     y = nn.functional.softmax(x, dim=-1)
    """
    return holding(fused_policy, enabled)
