"""All of a group's parameters at once: where they lie on a GPU, one kernel launch takes the place of hundreds.

The kernels are `kernels/triton/multi.py`; what they can't take (half-precision moments, arrays with gaps, no Triton)
goes the plain road, a parameter at a time.
"""

import importlib
import warnings

import numpy as np

from .. import config
from ..backend import device_of, ndarray, xp_of
from ..tensor import Tensor

_module = None
_problem = None
_warned = set()


def is_host(raw):
    """Whether a raw array lies in the CPU's memory."""
    return isinstance(raw, ndarray)


def multi_kernels(raws, fused=None):
    """The kernels' module if these raw arrays lie on a GPU and it can take them, else None.

    `fused` is True (warn once, with the reason, where it can't), False (None at once) or None (the policy of `config`).
    """
    global _module, _problem
    asked = config.fused_policy.get() if fused is None else fused
    if asked is False or not raws or is_host(raws[0]):
        return None
    if _module is None and _problem is None:
        try:
            _module = importlib.import_module("mytorch.kernels.triton.multi")
            _problem = importlib.import_module("mytorch.kernels.launch").why_not()
        except ImportError as error:
            _problem = f"{error.name} is not installed"
    reason = _problem
    if reason is None:
        dtype, where = raws[0].dtype, device_of(raws[0])
        known = dtype.name in ("float32", "float16", "bfloat16")
        if known and all(r.flags.c_contiguous and r.dtype == dtype and device_of(r) is where for r in raws):
            return _module
        reason = "the arrays have gaps, several dtypes or devices, or float64 elements"
    if fused is True and reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"fused=True: parameters are updated one by one because {reason}.", UserWarning, stacklevel=4)
    return None


def group_together(group):
    """(module, parameters, raw parameters, raw gradients) if one launch can update the whole group, else None.

    Parameters are float32, as their moments are then; gradients may have another dtype, all the same.
    """
    if not group["params"] or is_host(group["params"][0]._data._array):
        return None
    params = [p for p in group["params"] if p.grad is not None]
    raws = [p._data._array for p in params]
    module = multi_kernels(raws, group.get("fused"))
    if module is None or raws[0].dtype != np.float32:
        return None
    grads = [(p.grad._data if isinstance(p.grad, Tensor) else p.grad)._array for p in params]
    if multi_kernels(grads, group.get("fused")) is None or any(g.shape != r.shape for g, r in zip(grads, raws, strict=True)):
        return None
    return module, params, raws, grads


def state_for(module, raws, lr, step):
    """The numbers in device memory that a step reads; see multi.new_state."""
    return module.new_state(xp_of(raws[0]), lr=lr, step=step)
