"""parallelize_module: applies a plan of parallel styles to the submodules of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fnmatch import fnmatchcase

from ....nn.module import Module
from ...device_mesh import DeviceMesh
from .style import ParallelStyle

Plan = ParallelStyle | dict[str, ParallelStyle]


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: Plan | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divides the parameters of a model over the processes of a mesh, in place.

    Args:
        module: the model.
        device_mesh: mesh of one dimension, such as `mesh["tp"]`.
        parallelize_plan: {path of a submodule: style}, or a style for `module`. Paths may contain wildcards, such as
            "layers.*.attn". An empty path is the module itself.
        src_data_rank: accepted for compatibility. The first process of the mesh sends its parameters to the others.

    Returns:
        The module. Tied parameters stay tied.

    Raises:
        ValueError: a path matches no submodule, or the mesh has several dimensions.
        TypeError: a style is not a ParallelStyle.

    Example:
        >>> from mytorch.distributed.tensor import init_device_mesh
        >>> from mytorch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        >>> mesh = init_device_mesh("cpu", (1,))
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        >>> model[0].weight.placements, tuple(model(mytorch.ones(3, 4)).shape)
        ((Shard(dim=0),), (3, 2))
        >>> mytorch.distributed.destroy_process_group()
    """
    if not isinstance(device_mesh, DeviceMesh):
        raise ValueError(f"parallelize_module: expected a DeviceMesh, got {type(device_mesh).__name__}.")
    plan = parallelize_plan if isinstance(parallelize_plan, dict) else {"": parallelize_plan}
    named = dict(module.named_modules())
    todo = []
    for path, style in plan.items():
        if not isinstance(style, ParallelStyle):
            raise TypeError(f"parallelize_module: expected a ParallelStyle for {path!r}, got {type(style).__name__}.")
        parts = path.split(".")
        found = [
            name
            for name in named
            if len(name.split(".")) == len(parts) and all(map(fnmatchcase, name.split("."), parts))
        ]
        if not found:
            raise ValueError(
                f"parallelize_module: expected paths of submodules of {type(module).__name__}, got {path!r}, which matches "
                "none. Check model.named_modules()."
            )
        todo += [(named[name], style) for name in found]
    for part, style in todo:
        style._apply(part, device_mesh)
    return module


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Computes cross-entropies of logits that are divided by classes without gathering them.

    `F.cross_entropy` of a DTensor with `Shard(-1)` does so with and without this context, which exists for compatibility.
    """
    yield


__all__ = ["loss_parallel", "parallelize_module"]
