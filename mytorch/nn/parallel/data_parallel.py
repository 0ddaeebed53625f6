"""DataParallel, which runs its module on one device."""

from collections.abc import Sequence
from typing import Any

from ...arrays.errors import warn_once
from ..module import Module


class DataParallel(Module):
    """Runs a module on one device, and warns once.

    In PyTorch, `DataParallel` divides a batch among the GPUs of one process. Here, use `DistributedDataParallel` with
    one process for each GPU. Programs that wrap their model in `DataParallel` run on one device.

    Args:
        module: the model.
        device_ids: `None`, or a list with one device.
        output_device: accepted for compatibility, without effect.
        dim: accepted for compatibility, without effect (default: 0).

    Shape:
        Input: the shape that the module expects.
        Output: the shape that the module returns.

    Raises:
        NotImplementedError: `device_ids` contains several devices.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     model = nn.DataParallel(nn.Linear(3, 2))
        >>> tuple(model(mytorch.zeros(4, 3)).shape)
        (4, 2)

    See also: `nn.parallel.DistributedDataParallel`.
    """

    def __init__(self, module: Module, device_ids: Sequence | None = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(
                f"DataParallel: expected at most one device in device_ids, got {list(device_ids)}. Start one process for "
                "each device with `mytorchrun launch` and use DistributedDataParallel."
            )
        self.module = module
        self.dim = dim
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device
        warn_once("DataParallel runs the module on one device. Use DistributedDataParallel for several devices.")

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Sequence | None = None, output_device: Any = None, dim: int = 0,
    module_kwargs: dict | None = None,
) -> Any:  # fmt: skip
    """Calls a module on one device, as `DataParallel` does.

    Args:
        module: the model.
        inputs: the input, or a tuple of inputs.
        device_ids: `None`, or a list with one device.
        output_device: accepted for compatibility, without effect.
        dim: accepted for compatibility, without effect (default: 0).
        module_kwargs: keyword arguments of the module.

    Raises:
        NotImplementedError: `device_ids` contains several devices.
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
