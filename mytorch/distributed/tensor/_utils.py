"""Sizes and positions of the local parts of DTensors, under the name of the module in PyTorch."""

from .redistribution import local_shape, rows_of


def compute_local_shape_and_global_offset(global_shape, mesh, placements, skip_offset=False):
    """Returns the shape of this process's part of a DTensor, and the position of its first element.

    Args:
        global_shape: shape of the whole tensor.
        mesh: the device mesh.
        placements: one placement for each dimension of the mesh.
        skip_offset: if True, the position is an empty tuple (default: False).

    Returns:
        Tuple (shape, position). Along a dimension in which the part is empty, the position is the size of the tensor.
    """
    shape = tuple(global_shape)
    local = tuple(local_shape(shape, mesh, placements))
    if skip_offset:
        return local, ()
    sizes, coordinate = tuple(mesh.shape), mesh.get_coordinate()
    first = [rows_of(placements, sizes, coordinate, dim, n)[:1] for dim, n in enumerate(shape)]
    return local, tuple(int(rows[0]) if len(rows) else n for rows, n in zip(first, shape, strict=True))
