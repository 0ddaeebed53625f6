"""Models on several devices: DistributedDataParallel and DataParallel."""

from .data_parallel import DataParallel

__all__ = ["DataParallel", "DistributedDataParallel"]


def __getattr__(name):
    if name == "DistributedDataParallel":
        from .distributed import DistributedDataParallel

        return DistributedDataParallel
    raise AttributeError(f"module 'mytorch.nn.parallel' has no attribute '{name}'")
