"""Models with sharded parameters, gradients and optimizer state, as in `torch.distributed.fsdp`."""

from .fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from .parameters import MixedPrecisionPolicy, OffloadPolicy

__all__ = [
    "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard", "register_fsdp_forward_method",
]  # fmt: skip
