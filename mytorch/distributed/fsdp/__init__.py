"""Models with sharded parameters, gradients and optimizer state, as in `torch.distributed.fsdp`."""

from ... import _extensions
from .accelerating import FullyShardedDataParallelPlugin
from .grad_scaler import ShardedGradScaler
from .parameters import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from .sharding import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from .wrapper import (
    BackwardPrefetch,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)

__all__ = [
    "BackwardPrefetch", "CPUOffloadPolicy", "FSDPModule", "FullStateDictConfig", "FullyShardedDataParallel", "FullyShardedDataParallelPlugin",
    "MixedPrecision", "MixedPrecisionPolicy", "OffloadPolicy", "ShardedGradScaler", "ShardedStateDictConfig",
    "ShardingStrategy", "StateDictType", "UnshardHandle", "fully_shard", "register_fsdp_forward_method",
]  # fmt: skip

__getattr__, __dir__ = _extensions.lazy(__name__, "wrap")
