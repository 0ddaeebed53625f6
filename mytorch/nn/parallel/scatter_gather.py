"""`torch.nn.parallel.scatter_gather`: parts of a batch on several devices."""

from ...arrays.tensor import Tensor
from ...ops.movement import cat


def is_namedtuple(obj):
    """Returns True for a named tuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_fields") and hasattr(obj, "_asdict")


def scatter(inputs, target_gpus, dim=0):
    """Returns one object per device, whose tensors are parts of the tensors in `inputs`.

    Args:
        inputs: a tensor, or a list, tuple or dict with tensors. Other objects are repeated.
        target_gpus: the devices.
        dim: dimension along which tensors are split (default: 0).
    """
    count = len(target_gpus)
    if isinstance(inputs, Tensor):
        parts = inputs.chunk(count, dim)
        return [part.to(device) for part, device in zip(parts, target_gpus, strict=False)]
    if is_namedtuple(inputs):
        return [type(inputs)(*items) for items in zip(*(scatter(x, target_gpus, dim) for x in inputs), strict=False)]
    if isinstance(inputs, (list, tuple)) and inputs:
        return [type(inputs)(items) for items in zip(*(scatter(x, target_gpus, dim) for x in inputs), strict=False)]
    if isinstance(inputs, dict) and inputs:
        columns = [[(key, part) for part in scatter(value, target_gpus, dim)] for key, value in inputs.items()]
        return [type(inputs)(items) for items in zip(*columns, strict=False)]
    return [inputs for _ in target_gpus]


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    """Returns the positional and the keyword arguments of each device.

    Args:
        inputs: tuple of positional arguments.
        kwargs: dict of keyword arguments, or None.
        target_gpus: the devices.
        dim: see `scatter`.
    """
    args = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(args), len(named))
    return tuple(args + [()] * (count - len(args))), tuple(named + [{}] * (count - len(named)))


def gather(outputs, target_device, dim=0):
    """Returns the object whose tensors join the tensors of several objects.

    Args:
        outputs: objects of the same structure, such as the results of several devices.
        target_device: device of the result.
        dim: dimension along which tensors are joined (default: 0).
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        parts = [part.to(target_device) for part in outputs]
        return cat([part.reshape(1) if part.ndim == 0 else part for part in parts], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([item[key] for item in outputs], target_device, dim)) for key in first)
    items = [gather(list(parts), target_device, dim) for parts in zip(*outputs, strict=True)]
    return type(first)(*items) if is_namedtuple(first) else type(first)(items)
