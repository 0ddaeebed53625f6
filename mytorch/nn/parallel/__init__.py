"""Training on several devices: DistributedDataParallel and DataParallel."""

from ... import _extensions
from .data_parallel import DataParallel, data_parallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]

__getattr__, __dir__ = _extensions.lazy(
    __name__, "scatter_gather", names={"nn.parallel.distributed": "DistributedDataParallel"}
)
