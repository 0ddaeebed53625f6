"""Tensor parallelism: the parameters of a layer are divided over processes, as in `torch.distributed.tensor.parallel`."""

from .api import loss_parallel, parallelize_module
from .style import (
    ColwiseParallel,
    FusedColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel", "FusedColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput",
    "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module",
]  # fmt: skip
