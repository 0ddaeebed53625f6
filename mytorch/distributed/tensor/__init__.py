"""Tensors that several processes store together, and tensor parallelism, as in `torch.distributed.tensor`.

mesh = init_device_mesh("cpu", (2,))
weight = distribute_tensor(weight, mesh, [Shard(0)])
"""

from ... import _extensions
from ..device_mesh import DeviceMesh, init_device_mesh
from .dtensor import DTensor, distribute_module, distribute_tensor, empty, full, ones, rand, randn, zeros
from .placement_types import Partial, Placement, Replicate, Shard
from .rules import RULES as _RULES  # fills the table

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty",
    "full", "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip

__getattr__, __dir__ = _extensions.lazy(__name__, "parallel")
