"""Gradient clipping."""

import math

import numpy as np

from ..._array import Array
from ...backend import ndarray, xp_of
from ...optim.together import multi_kernels
from ...tensor import Tensor


def _gradients(parameters):
    """The Arrays of the gradients of one tensor or several, those that are there."""
    parameters = [parameters] if isinstance(parameters, (Tensor, Array)) else parameters
    grads = [p.grad for p in parameters if p.grad is not None]
    return [g._data if isinstance(g, Tensor) else g for g in grads]


def _total(grads, norm_type):
    """The joint norm of raw arrays, a 0-d raw array of float32 or wider; no synchronisation."""
    if not grads:
        return np.zeros((), np.float32)
    raws = [g._array for g in grads]
    xp = xp_of(raws[0])
    module = multi_kernels(raws) if norm_type == 2.0 else None
    if module is not None:  # on a GPU: all of them in one launch
        state = xp.empty(module.PLACES, np.float32)
        module.norm(module.table_of(xp, raws), state, which=0)
        return state[module.NORM : module.NORM + 1].reshape(())
    wide = [r if r.dtype.itemsize > 2 else r.astype(np.float32) for r in raws]
    if norm_type == math.inf:
        return xp.max(xp.stack([xp.max(xp.abs(r)) for r in wide]))
    if norm_type == 2.0:
        flat = [r.reshape(-1) for r in wide]
        return xp.sqrt(sum(xp.dot(r, r) for r in flat))
    norms = xp.stack([xp.sum(xp.abs(r) ** norm_type) ** (1.0 / norm_type) for r in wide])
    return xp.sum(norms**norm_type) ** (1.0 / norm_type)


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of several tensors taken as one vector, a 0-d Tensor."""
    tensors = [tensors] if isinstance(tensors, (Tensor, Array)) else list(tensors)
    arrays = [t._data if isinstance(t, Tensor) else t for t in tensors]
    total = Tensor._wrap(xp_of(arrays[0]._array).asarray(_total(arrays, float(norm_type)))) if arrays else Tensor(0.0)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. "
            "To disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scale gradients in place by max_norm / total_norm, if that is below 1."""
    grads = _gradients(parameters)
    if not grads:
        return
    norm = total_norm._data._array if isinstance(total_norm, Tensor) else np.asarray(total_norm)
    xp = xp_of(grads[0]._array)
    scale = xp.minimum(max_norm / (norm + 1e-6), 1.0)  # 1e-6: as torch.nn.utils
    raws = [g._array for g in grads]
    module = multi_kernels(raws)
    if module is not None:
        state = xp.empty(module.PLACES, np.float32)
        state[module.CLIP : module.CLIP + 1] = scale
        module.clip(module.table_of(xp, raws), state, which=0)
        for g in grads:
            g._bump()
        return
    if isinstance(scale, (float, np.floating, ndarray)) and scale >= 1.0:
        return
    for g in grads:
        raw = g._array
        raw *= raw.dtype.type(scale) if xp.module is np else scale.astype(raw.dtype)
        g._bump()


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale gradients in place so that their joint norm is at most max_norm; return the norm before.

    Args:
        parameters: tensors whose `.grad` is not None are used; or one tensor.
        max_norm: in the units of the gradient (after unscaling, if a GradScaler is in use).
        norm_type: 2, inf, or another order.
        error_if_nonfinite: raise if the norm is NaN or infinite.
        foreach: accepted; all gradients are treated together anyway.

    Returns:
        A 0-d Tensor on the gradients' device. No synchronisation: `.item()` would be one.

    Source: Pascanu et al., 2013, section 3.2.
    """
    parameters = [parameters] if isinstance(parameters, (Tensor, Array)) else list(parameters)
    grads = _gradients(parameters)
    raws = [g._array for g in grads]
    module = multi_kernels(raws) if norm_type == 2.0 and not error_if_nonfinite else None
    if module is not None:  # three launches for all of them
        xp = xp_of(raws[0])
        table, state = module.table_of(xp, raws), xp.empty(module.PLACES, np.float32)
        module.norm(table, state, float(max_norm), which=0)
        module.clip(table, state, which=0)
        for g in grads:
            g._bump()
        return Tensor._wrap(state[module.NORM : module.NORM + 1].reshape(()))
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, float(max_norm), total, foreach)
    return total


clip_grad_norm = clip_grad_norm_


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Limit every gradient element to [-clip_value, clip_value], in place."""
    for g in _gradients(parameters):
        raw = g._array
        xp_of(raw).clip(raw, -clip_value, clip_value, out=raw)
        g._bump()


