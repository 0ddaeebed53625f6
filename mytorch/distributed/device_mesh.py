"""DeviceMesh: processes in a grid with named dimensions, and one process group for each line of the grid.

mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
mesh["tp"].get_group()    # the 4 processes that share this process's position in "dp"
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor
from .process_group import Group, ProcessGroup, default_group, init_process_group, is_initialized, member_of, new_group


class DeviceMesh:
    """Processes in a grid, with one process group for each dimension.

    Every process creates the same meshes in the same order. Prefer `init_device_mesh`.

    Args:
        device_type: "cpu" or "cuda".
        mesh: global ranks, as nested lists, an array or a tensor.
        mesh_dim_names: names of the dimensions (default: no names).

    Attributes:
        device_type: "cpu" or "cuda".
        mesh: tensor of the global ranks.
        mesh_dim_names: names of the dimensions, or None.

    Raises:
        ValueError: a rank does not exist or is repeated, or the names do not fit the dimensions.

    Example:
        >>> import mytorch.distributed as dist
        >>> dist.init_process_group()
        >>> mesh = dist.device_mesh.DeviceMesh("cpu", [0], mesh_dim_names=("dp",))
        >>> mesh.size(), mesh.get_local_rank("dp")
        (1, 0)
        >>> dist.destroy_process_group()
    """

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None):
        ranks = np.asarray(mesh.tolist() if hasattr(mesh, "tolist") else mesh, np.int64)
        self._begin(device_type, ranks.reshape(-1) if ranks.ndim == 0 else ranks, mesh_dim_names)
        world = default_group()
        flat = self._ranks.reshape(-1).tolist()
        if len(set(flat)) != len(flat) or not all(0 <= r < world.size() for r in flat):
            raise ValueError(f"DeviceMesh: expected different ranks from 0 to {world.size() - 1}, got {flat}.")
        self._groups = [self._new_groups(i) for i in range(self.ndim)]

    def _begin(self, device_type, ranks, names):
        names = None if names is None else tuple(names)
        if device_type not in ("cpu", "cuda"):
            raise ValueError(f"DeviceMesh: expected device_type to be 'cpu' or 'cuda', got {device_type!r}.")
        if names is not None and (len(names) != ranks.ndim or len(set(names)) != len(names)):
            raise ValueError(
                f"DeviceMesh: expected {ranks.ndim} different names, one for each dimension, got mesh_dim_names={names}."
            )
        self.device_type, self.mesh_dim_names, self._ranks = device_type, names, ranks
        self._root: DeviceMesh | None = None
        self._flattened: dict[str, DeviceMesh] = {}

    def _new_groups(self, dim):
        """Creates the groups of one dimension, in all processes in the same order; returns this process's group."""
        world, mine = default_group(), None
        lines = np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim])
        for line in lines.tolist():
            if line == list(range(world.size())):
                return world
            group = new_group(line)
            if isinstance(group, ProcessGroup):
                mine = group
        return mine

    @classmethod
    def _view_of(cls, root, ranks, names, groups):
        """Returns a mesh over existing groups."""
        self = cls.__new__(cls)
        self._begin(root.device_type, ranks, names)
        self._groups, self._root = groups, root
        return self

    @classmethod
    def from_group(
        cls, group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None
    ) -> DeviceMesh:
        """Returns a mesh over existing process groups.

        Args:
            group: a process group, or one for each dimension of `mesh`.
            device_type: "cpu" or "cuda".
            mesh: global ranks (default: the ranks of the group). Required for several groups.
            mesh_dim_names: names of the dimensions.

        Raises:
            ValueError: `mesh` is missing or does not fit the groups.
        """
        groups = list(group) if isinstance(group, (list, tuple)) else [member_of(group)]
        if mesh is None and len(groups) != 1:
            raise ValueError(f"DeviceMesh.from_group: expected a mesh for {len(groups)} groups, got None.")
        ranks = np.asarray(groups[0].ranks if mesh is None else mesh, np.int64)
        if ranks.ndim != len(groups):
            raise ValueError(f"DeviceMesh.from_group: expected {ranks.ndim} groups for the mesh, got {len(groups)}.")
        self = cls.__new__(cls)
        self._begin(device_type, ranks, mesh_dim_names)
        self._groups = groups
        return self

    # -- shape -----------------------------------------------------------------------------------

    @property
    def mesh(self) -> Tensor:
        """The global ranks, an integer tensor."""
        return Tensor._wrap(self._ranks.copy())

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self._ranks.shape

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Returns the number of processes, in the mesh or in one dimension.

        Args:
            mesh_dim: number or name of the dimension (default: the whole mesh).
        """
        return self._ranks.size if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def _dim(self, mesh_dim):
        """Returns the number of a dimension that is given by name or number."""
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(
                    f"DeviceMesh: expected one of the names {self.mesh_dim_names}, got {mesh_dim!r}. Pass mesh_dim_names to "
                    "init_device_mesh."
                )
            return self.mesh_dim_names.index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"DeviceMesh: expected a dimension from 0 to {self.ndim - 1}, got {mesh_dim}.")
        return mesh_dim % self.ndim

    # -- this process ------------------------------------------------------------------------------

    def get_rank(self) -> int:
        """Returns the global rank of this process."""
        return default_group().rank()

    def get_coordinate(self) -> list[int] | None:
        """Returns the position of this process in the mesh, or None outside of it."""
        where = np.argwhere(self._ranks == self.get_rank())
        return where[0].tolist() if len(where) else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Returns the position of this process in one dimension.

        Args:
            mesh_dim: number or name of the dimension. A mesh of one dimension does not need it.

        Raises:
            RuntimeError: the mesh has several dimensions and `mesh_dim` is None, or this process is not in the mesh.
        """
        dim, coordinate = self._only(mesh_dim, "get_local_rank"), self.get_coordinate()
        if coordinate is None:
            raise RuntimeError(f"DeviceMesh.get_local_rank: rank {self.get_rank()} is not in the mesh {self}.")
        return coordinate[dim]

    def _only(self, mesh_dim, who):
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(f"DeviceMesh.{who}: expected mesh_dim for a mesh of {self.ndim} dimensions, got None.")
        return self._dim(0 if mesh_dim is None else mesh_dim)

    def get_group(self, mesh_dim: int | str | None = None) -> Group:
        """Returns the process group of this process along one dimension.

        Args:
            mesh_dim: number or name of the dimension. A mesh of one dimension does not need it.

        Raises:
            RuntimeError: the mesh has several dimensions and `mesh_dim` is None.
        """
        return self._groups[self._only(mesh_dim, "get_group")]

    def get_all_groups(self) -> list[Group]:
        """Returns the process groups of this process, one for each dimension."""
        return list(self._groups)

    # -- sub-meshes ----------------------------------------------------------------------------------

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """Returns the sub-mesh with the named dimensions that contains this process."""
        names = (names,) if isinstance(names, str) else tuple(names)
        if len(names) == 1 and names[0] in self._flattened:
            return self._flattened[names[0]]
        dims = [self._dim(name) for name in names]
        if dims != sorted(set(dims)):
            raise KeyError(f"DeviceMesh: expected names in the order of {self.mesh_dim_names}, got {names}.")
        coordinate = self.get_coordinate() or [0] * self.ndim
        index = tuple(slice(None) if i in dims else coordinate[i] for i in range(self.ndim))
        return DeviceMesh._view_of(self._root or self, self._ranks[index], names, [self._groups[d] for d in dims])

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """Returns a mesh of one dimension with the processes of this mesh. Every process of the root mesh calls it."""
        root = self._root or self
        name = mesh_dim_name or "_".join(self.mesh_dim_names or [str(i) for i in range(self.ndim)])
        if self.ndim == 1 and mesh_dim_name in (None, *(self.mesh_dim_names or ())):
            return self
        if name not in root._flattened:
            kept = [i for i, n in enumerate(root.mesh_dim_names or ()) if n in (self.mesh_dim_names or ())]
            kept = kept or list(range(root.ndim))
            lines = np.moveaxis(root._ranks, kept, range(-len(kept), 0)).reshape(-1, self.size())
            mine = None
            for line in lines.tolist():
                if sorted(line) == list(range(default_group().size())):
                    mine = line, default_group()
                    continue
                group = new_group(line)
                if isinstance(group, ProcessGroup):
                    mine = line, group
            ranks, group = mine or (self._ranks.reshape(-1).tolist(), None)  # type: ignore[assignment]
            root._flattened[name] = DeviceMesh._view_of(root, np.asarray(ranks, np.int64), (name,), [group])
        return root._flattened[name]

    def __eq__(self, other):
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        mine, theirs = ((m.device_type, m.mesh_dim_names, m.shape, m._ranks.tolist()) for m in (self, other))
        return mine == theirs

    def __hash__(self):
        return hash((self.device_type, self.mesh_dim_names, self.shape, self._ranks.tobytes()))

    def __repr__(self):
        names = self.mesh_dim_names or tuple(range(self.ndim))
        sizes = ", ".join(f"{name}={size}" for name, size in zip(names, self.shape, strict=True))
        return f"DeviceMesh(({sizes}), device: {self.device_type!r}, ranks: {self._ranks.tolist()})"


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """Returns a mesh of all processes in row-major order. The default process group is created if it does not exist.

    Args:
        device_type: "cpu" or "cuda".
        mesh_shape: size of each dimension. The product is the number of processes.
        mesh_dim_names: names of the dimensions, for sub-meshes such as `mesh["tp"]` (default: no names).

    Raises:
        ValueError: the shape does not have as many positions as there are processes, or the names do not fit.

    Example:
        >>> mesh = mytorch.distributed.device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
        >>> mesh["tp"].size(), mesh.get_coordinate()
        (1, [0, 0])
        >>> mytorch.distributed.destroy_process_group()
    """
    shape = tuple(int(n) for n in mesh_shape)
    if not is_initialized():
        init_process_group()
    world = default_group().size()
    if not shape or any(n < 1 for n in shape) or math.prod(shape) != world:
        raise ValueError(
            f"init_device_mesh: expected a mesh_shape with {world} positions, one for each process, got {shape} with "
            f"{math.prod(shape)}. Change mesh_shape, or start {math.prod(shape)} processes."
        )
    return DeviceMesh(device_type, np.arange(world).reshape(shape), mesh_dim_names=mesh_dim_names)


__all__ = ["DeviceMesh", "init_device_mesh"]
