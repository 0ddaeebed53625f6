"""Sparse tensors, as in `torch.sparse`: tensors that store only some of their elements.

A sparse tensor is a Tensor over a SparseArray, which has a pattern (the positions of the elements) and values.

* `pattern.py`: Pattern, the positions and all that is derived from them.
* `array.py`: SparseArray, the raw array.
* `links.py`: the links between a sparse tensor and its values in the autograd graph.
* `operators.py`: the operations of the library on sparse tensors. `products.py`: matrix products.
* `creation.py`: functions that create sparse tensors. `methods.py`: methods of tensors.
* `updates.py`: sparse gradients of embeddings, and optimizers with sparse gradients.
"""

from .. import _extensions
from . import layouts, methods, updates
from .array import is_sparse
from .creation import (
    check_sparse_tensor_invariants,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
    spdiags,
)
from .functions import addmm, as_sparse_gradcheck, log_softmax, mm, sampled_addmm, softmax, sum
from .pattern import sparse_coo, sparse_csc, sparse_csr

__all__ = [
    "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags",
    "sum",
]  # fmt: skip

__getattr__, __dir__ = _extensions.lazy(__name__)
