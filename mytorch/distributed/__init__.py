"""Several processes, with PyTorch's names: process groups, collectives, and what trains a model on them.

    mytorch.distributed.init_process_group()          # in a script started by `mytorchrun launch`
    model = mytorch.nn.parallel.DistributedDataParallel(model)

Two engines move the bytes: NCCL between GPUs (`nccl.py`), MPI between CPUs (`mpi.py`).
"""

from .. import _extensions
from .collectives import *  # noqa: F403
from .collectives import _all_gather_base, _reduce_scatter_base
from .engine import ReduceOp
from .process_group import *  # noqa: F403
from .work import DistBackendError, DistError, Future, Work

reduce_op = ReduceOp

__getattr__, __dir__ = _extensions.lazy(__name__)
