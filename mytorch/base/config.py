"""Settings that are read once from the environment and can be changed at run time.

`MYTORCH_FUSED=0|1|auto` sets the policy for ops that have a fused kernel: `auto` (the default) uses a
kernel where its own `accepts` says that it is faster, `1` wherever it can run, `0` never.
"""

import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar

_WORDS = {"0": False, "off": False, "false": False, "1": True, "on": True, "true": True, "auto": None}


def share_cores():
    """Let the processes that MPI's own launcher started on this machine share its cores: each gets its part of BLAS's threads.

    It has to run before NumPy is loaded; `OMP_NUM_THREADS`, where it is set, is left alone. (`mytorchrun` sets it itself.)
    """
    sizes = [os.environ.get(name, "") for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")]
    nearby = max((int(size) for size in sizes if size.isdigit()), default=1)
    if nearby > 1 and "OMP_NUM_THREADS" not in os.environ and "numpy" not in sys.modules:
        os.environ["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // nearby, 1))


def _policy_from_environment():
    word = os.environ.get("MYTORCH_FUSED", "auto").lower()
    if word not in _WORDS:
        raise ValueError(f"MYTORCH_FUSED is {word!r}; it takes one of {sorted(_WORDS)}.")
    return _WORDS[word]


float32_matmul_precision = "highest"  # "high" and "medium" let a GPU multiply float32 in TF32; see compat/names.py
convolution_tf32 = True  # and its convolutions; PyTorch's `backends.cudnn.allow_tf32`
check_indices = os.environ.get("MYTORCH_CHECK_INDICES", "0") not in ("", "0")  # those on a GPU too, which waits for it
deterministic = False  # kernels whose sums are added up in the order that it happens are left out
fill_uninitialized = False  # what `empty` makes is filled with NaN, or the largest number
pytorch_mode = False  # set by install_as_torch: `.grad` and `.data` are Tensors, and what PyTorch refuses is refused
fused_policy = ContextVar("fused_policy", default=_policy_from_environment())  # noqa: B039


def torch_name():
    """The module's name as users see it: in `repr` of dtypes and sizes."""
    return "torch" if pytorch_mode else "mytorch"


@contextmanager
def holding(variable, value):
    """A block in which a ContextVar has a value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def temporarily(owner, **values):
    """A block in which attributes have other values."""
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def fused(enabled=True):
    """Set the policy for fused kernels within a block: True, False, or None for automatic."""
    return holding(fused_policy, enabled)
