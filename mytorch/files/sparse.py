"""Sparse tensors in PyTorch's files."""

from ..arrays.memory_format import strided
from ..sparse.creation import sparse_compressed_tensor, sparse_coo_tensor
from ..sparse.pattern import sparse_coo, sparse_csc, sparse_csr

_LAYOUTS = {repr(layout): layout for layout in (strided, sparse_coo, sparse_csr, sparse_csc)}


def layout_of(name):
    """Returns the layout with a name such as "torch.sparse_coo".

    Raises:
        RuntimeError: another name.
    """
    if name not in _LAYOUTS:
        raise RuntimeError(f"load: expected one of the layouts {', '.join(_LAYOUTS)}, got {str(name)[:99]!r}.")
    return _LAYOUTS[name]


def rebuilt(layout, data):
    """Returns a sparse tensor from its parts in a file, after the checks of a new tensor.

    Args:
        data: (indices, values, size, is coalesced) of COO, (pointers, indices, values, size) of CSR and CSC.

    Raises:
        RuntimeError: the parts are not a sparse tensor.
    """
    if layout == sparse_coo and isinstance(data, tuple) and len(data) in (3, 4):
        indices, values, size, *coalesced = data
        return sparse_coo_tensor(indices, values, tuple(size), is_coalesced=bool(coalesced and coalesced[0]) or None)
    if layout in (sparse_csr, sparse_csc) and isinstance(data, tuple) and len(data) == 4:
        pointers, inner, values, size = data
        return sparse_compressed_tensor(pointers, inner, values, tuple(size), layout=layout)
    raise RuntimeError(f"load: expected the parts of a sparse tensor, got layout {layout!r} and {type(data).__name__}.")
