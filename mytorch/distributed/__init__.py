"""Distributed training with PyTorch's API: process groups, collectives and `DistributedDataParallel`.

    mytorch.distributed.init_process_group()          # in a script started by `mytorchrun launch`
    model = mytorch.nn.parallel.DistributedDataParallel(model)

Two backends transfer the data: NCCL between GPUs (`nccl.py`) and MPI between CPUs (`mpi.py`).
"""

from .. import _extensions
from .collectives import *  # noqa: F403
from .collectives import _all_gather_base, _reduce_scatter_base
from .engine import ReduceOp
from .process_group import *  # noqa: F403
from .work import DistBackendError, DistError, Future, Work

reduce_op = ReduceOp

__getattr__, __dir__ = _extensions.lazy(__name__)
