"""ShardedGradScaler: a GradScaler for sharded gradients, as in `torch.distributed.fsdp.sharded_grad_scaler`."""

from typing import Any

import numpy as np

from ...amp import GradScaler
from ...arrays.tensor import Tensor
from .. import collectives
from ..engine import ReduceOp
from ..process_group import Group, is_initialized, resolve
from ..tensor.dtensor import local_access


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
        with local_access():
            found = super()._unscale(optimizer)  # type: ignore[misc]
        if not is_initialized():
            return found
        if isinstance(found, (bool, np.bool_)):
            group = resolve(self._group)
            where = "cpu" if group is None else group.engine.device_type
            flag = Tensor._wrap(np.array([found], np.int32)).to(where)
            collectives.all_reduce(flag, ReduceOp.MAX, group)
            return bool(flag.item())
        collectives.all_reduce(Tensor._wrap(found), ReduceOp.MAX, resolve(self._group))
        return found


__all__ = ["ShardedGradScaler"]
