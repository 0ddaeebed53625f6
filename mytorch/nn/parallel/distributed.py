"""DistributedDataParallel by PyTorch's module path; it is imported when it is asked for."""


def __getattr__(name):
    if name == "DistributedDataParallel":
        from ...distributed.ddp import DistributedDataParallel

        return DistributedDataParallel
    raise AttributeError(f"module 'mytorch.nn.parallel.distributed' has no attribute '{name}'")
