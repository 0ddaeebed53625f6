"""DataParallel: for one device, the module itself."""

from collections.abc import Sequence
from typing import Any

from ...base.errors import warn_once
from ..module import Module


class DataParallel(Module):
    """A module as it is, on one device; it says so once.

    PyTorch's DataParallel cuts a batch over the GPUs of one process, which is slower than one process for each
    GPU. Programs that wrap their model in it run here on one device.

    Args:
        module: the model.
        device_ids, output_device: None, or one device.

    Raises:
        NotImplementedError: several devices are named; use DistributedDataParallel.
    """

    def __init__(self, module: Module, device_ids: Sequence | None = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(
                f"DataParallel: device_ids names {len(device_ids)} devices, and one process drives one here; start one process "
                "for each with `mytorchrun launch` and use DistributedDataParallel."
            )
        self.module = module
        self.dim = dim
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device
        warn_once("DataParallel runs the module on one device; for several, use DistributedDataParallel.")

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's forward."""
        return self.module(*inputs, **kwargs)
