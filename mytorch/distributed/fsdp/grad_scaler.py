"""ShardedGradScaler: a GradScaler for sharded gradients, as in `torch.distributed.fsdp.sharded_grad_scaler`."""

from typing import Any

from ...amp import GradScaler
from ..process_group import Group, is_initialized, resolve
from ..tensor.rules import any_process


class ShardedGradScaler(GradScaler):
    """A GradScaler for sharded gradients: if one process finds an overflow, all processes skip the step.

    Args:
        device: "cuda" or "cpu" (default: "cuda").
        init_scale: initial scale (default: 65536).
        growth_factor: factor of the scale after `growth_interval` steps without an overflow (default: 2).
        backoff_factor: factor of the scale after an overflow (default: 0.5).
        growth_interval: number of steps without an overflow before the scale grows (default: 2000).
        enabled: False disables the scaler (default: True).
        process_group: the processes that share the gradients (default: all).
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Group = None,
    ):
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._group = process_group

    def _unscale(self, optimizer: Any) -> Any:
        found = super()._unscale(optimizer)  # type: ignore[misc]
        return any_process(found, resolve(self._group)) if is_initialized() else found


__all__ = ["ShardedGradScaler"]
