"""Gradient clipping."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...arrays import device_guard, device_of, hooks, to_device, xp_of
from ...arrays.array import Array
from ...arrays.errors import warn_as_pytorch
from ...arrays.overriding import NOTHING
from ...arrays.tensor import Tensor
from ...kernels.registry import multi_tensor
from ...ops.reduction import to_acc_type

Tensors = Tensor | Iterable[Tensor]


def _of_shards(name, tensors, *args):
    """Returns the result of a function of this module for DTensors; NOTHING for other tensors."""
    return NOTHING if hooks.clip_sharded is None else hooks.clip_sharded(name, tensors, *args)


def _gradients(parameters):
    """Returns the Arrays of all gradients that are not `None`."""
    parameters = [parameters] if isinstance(parameters, (Tensor, Array)) else parameters
    grads = [p.grad for p in parameters if p.grad is not None]
    return [g._mt_data if isinstance(g, Tensor) else g for g in grads]


def _by_device(grads):
    """Returns lists of Arrays, one list for each device."""
    groups = {}
    for g in grads:
        groups.setdefault(device_of(g._array), []).append(g)
    return list(groups.values())


def _total(grads, norm_type):
    """Returns the joint norm of Arrays, a 0-d raw array on the first device, without synchronization."""
    if not grads:
        return np.zeros((), np.float32)
    parts = []
    for group in _by_device(grads):
        with device_guard(group[0]._array):
            parts.append(_norm([g._array for g in group], norm_type))
    if len(parts) == 1:
        return parts[0]
    first = device_of(parts[0])
    with device_guard(parts[0]):
        return _norm([to_device(part, first) for part in parts], norm_type)


def _norm(raws, norm_type):
    """Returns the joint norm of raw arrays on one device."""
    xp = xp_of(raws[0])
    module = multi_tensor(raws) if norm_type == 2.0 else None
    if module is not None:  # on a GPU, one launch for all tensors
        state = xp.empty(module.PLACES, np.float32)
        module.norm(module.table_of(xp, raws), state, which=0)
        return module.one(state, module.NORM).reshape(())
    # Squares of 16-bit numbers would overflow or underflow.
    wide = [to_acc_type(r) for r in raws]
    wide = [xp.abs(r) if r.dtype.kind == "c" else r for r in wide]
    if norm_type == math.inf:
        if not all(r.size for r in wide):
            raise RuntimeError(
                "linalg.vector_norm cannot compute the inf norm on an empty tensor because the operation does not have an identity"
            )
        return xp.max(xp.stack([xp.max(xp.abs(r)) for r in wide]))
    if norm_type == 2.0:
        flat = [r.reshape(-1) for r in wide]
        return xp.sqrt(sum(xp.dot(r, r) for r in flat))
    if norm_type == 0:  # the number of tensors with a nonzero element, as in PyTorch
        return xp.sum(xp.stack([xp.any(r != 0) for r in wide])).astype(np.result_type(*[r.dtype for r in wide]))
    norms = xp.stack([xp.sum(xp.abs(r) ** norm_type) ** (1.0 / norm_type) for r in wide])
    return xp.sum(norms**norm_type) ** (1.0 / norm_type)


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Returns the norm of several tensors, as if they were one vector.

    Args:
        tensors: one tensor or several.
        norm_type: order of the norm. `inf` selects the largest magnitude (default: 2.0).
        error_if_nonfinite: if True, raises an error if the norm is NaN or infinite (default: False).
        foreach: accepted for compatibility, without effect.

    Returns:
        A 0-d Tensor.

    Raises:
        RuntimeError: the norm is NaN or infinite, and `error_if_nonfinite` is True.

    Example:
        >>> nn.utils.get_total_norm([tensor([3.0]), tensor([4.0])]).item()
        5.0
    """
    tensors = [tensors] if isinstance(tensors, (Tensor, Array)) else list(tensors)
    if (found := _of_shards("get_total_norm", tensors, norm_type, error_if_nonfinite)) is not NOTHING:
        return found
    arrays = [t._mt_data if isinstance(t, Tensor) else t for t in tensors]
    total = Tensor._make(0.0)
    if arrays:
        raw = _total(arrays, float(norm_type))
        with device_guard(arrays[0]._array):
            total = Tensor._wrap(xp_of(arrays[0]._array).asarray(raw))
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. "
            "To disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Multiplies gradients by max_norm / total_norm in place, if that is below 1.

    Args:
        parameters: one tensor or several.
        max_norm: largest joint norm.
        total_norm: joint norm of the gradients, from `get_total_norm`.
        foreach: accepted for compatibility, without effect.

    Example:
        >>> p = nn.Parameter(mytorch.zeros(2))
        >>> (p * tensor([3.0, 4.0])).sum().backward()
        >>> nn.utils.clip_grads_with_norm_(p, max_norm=1.0, total_norm=tensor(5.0))
        >>> p.grad
        Array([0.60000 0.80000], dtype=float32)
    """
    parameters = [parameters] if isinstance(parameters, (Tensor, Array)) else list(parameters)
    if (found := _of_shards("clip_grads_with_norm_", parameters, max_norm, total_norm)) is not NOTHING:
        return found
    grads = _gradients(parameters)
    if not grads:
        return
    norm = total_norm._mt_data._array if isinstance(total_norm, Tensor) else np.asarray(total_norm)
    with device_guard(norm):
        xp = xp_of(norm)
        scale = xp.asarray(xp.minimum(max_norm / (norm + 1e-6), 1.0))  # 1e-6 as in torch.nn.utils
    for group in _by_device(grads):
        with device_guard(group[0]._array):
            _scale(group, to_device(scale, device_of(group[0]._array)))


def _scale(grads, scale):
    """Multiplies Arrays on one device by a 0-d array, in place."""
    raws = [g._array for g in grads]
    xp = xp_of(raws[0])
    module = multi_tensor(raws)
    if module is not None:
        state = xp.empty(module.PLACES, np.float32)
        module.one(state, module.CLIP)[...] = scale
        module.clip(module.table_of(xp, raws), state, which=0)
    elif xp.module is not np or not scale >= 1.0:  # NaN is written into the gradients, as in PyTorch
        for raw in raws:
            raw *= scale.astype(raw.dtype)
    else:
        return
    for g in grads:
        g._bump()


def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scales gradients in place so that their joint norm is at most `max_norm`.

    Use it between `backward` and `step` when single batches give huge gradients: it keeps their direction, unlike
    `clip_grad_value_`.

    Args:
        parameters: one tensor or several. Tensors without a gradient are skipped.
        max_norm: largest joint norm. With a `GradScaler`, call `unscale_` first.
        norm_type: order of the norm. `inf` selects the largest magnitude (default: 2.0).
        error_if_nonfinite: if True, raises an error if the norm is NaN or infinite (default: False).
        foreach: accepted for compatibility, without effect.

    Returns:
        The joint norm before clipping, a 0-d Tensor on the device of the gradients. The function does not synchronize
        the device.

    Raises:
        RuntimeError: the norm is NaN or infinite, and `error_if_nonfinite` is True.

    Source: Pascanu et al., 2013, section 3.2.

    Example:
        >>> p = nn.Parameter(mytorch.zeros(2))
        >>> (p * tensor([3.0, 4.0])).sum().backward()
        >>> nn.utils.clip_grad_norm_(p, 1.0).item()
        5.0
        >>> p.grad
        Array([0.60000 0.80000], dtype=float32)
    """
    parameters = [parameters] if isinstance(parameters, (Tensor, Array)) else list(parameters)
    if (found := _of_shards("clip_grad_norm_", parameters, max_norm, norm_type, error_if_nonfinite)) is not NOTHING:
        return found
    grads = _gradients(parameters)
    raws = [g._array for g in grads]
    module = multi_tensor(raws) if norm_type == 2.0 and not error_if_nonfinite else None
    if module is not None:  # three launches for all gradients
        with device_guard(raws[0]):
            xp = xp_of(raws[0])
            table, state = module.table_of(xp, raws), xp.empty(module.PLACES, np.float32)
            module.norm(table, state, float(max_norm), which=0)
            module.clip(table, state, which=0)
            norm = module.one(state, module.NORM).reshape(())
        for g in grads:
            g._bump()
        return Tensor._wrap(norm)
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, float(max_norm), total, foreach)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """Is the older name of `clip_grad_norm_`.

    Args:
        args: arguments of `clip_grad_norm_`.
        kwargs: further arguments of `clip_grad_norm_`.
    """
    warn_as_pytorch("nn.utils.clip_grad_norm is deprecated. Use nn.utils.clip_grad_norm_ instead.", FutureWarning)
    return clip_grad_norm_(*args, **kwargs)


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clips each element of the gradients to [-clip_value, clip_value], in place.

    Use it when single elements are huge and the direction may change; `clip_grad_norm_` keeps the direction and is more
    common.

    Args:
        parameters: one tensor or several. Tensors without a gradient are skipped.
        clip_value: largest magnitude.
        foreach: accepted for compatibility, without effect.

    Example:
        >>> p = nn.Parameter(mytorch.zeros(2))
        >>> (p * tensor([3.0, -0.5])).sum().backward()
        >>> nn.utils.clip_grad_value_(p, 1.0)
        >>> p.grad.tolist()
        [1.0, -0.5]
    """
    parameters = [parameters] if isinstance(parameters, (Tensor, Array)) else list(parameters)
    if (found := _of_shards("clip_grad_value_", parameters, clip_value)) is not NOTHING:
        return found
    for g in _gradients(parameters):
        raw = g._array
        with device_guard(raw):
            raw[...] = xp_of(raw).clip(raw, -clip_value, clip_value)
        g._bump()
