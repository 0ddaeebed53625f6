"""Definitions of all operations with their gradients; `mytorch/ops/dispatch/` runs, records and binds them.

The files imported here define functions of `mytorch` and methods of tensors. The others, which `nn.functional`, `fft` and
`special` use, are imported on first use. `everything.py` imports all files.
"""

from .. import _extensions
from ..autograd import backward_call as _backward  # binds methods of Tensor
from . import (
    activation,
    complex,
    creation,
    decompositions,
    elementwise,
    indexing,
    linalg,
    memory,
    movement,
    padding,
    random,
    reduction,
    scatter,
    shapes,
    sorting,
    special,
)
from .dispatch.bind import METHODS, PUBLIC, attach

__getattr__, __dir__ = _extensions.lazy(
    __name__,
    "attention composites conv dropout embedding everything fft foreach functional gated linear_activation linear_loss loss "
    "multihead normalization pool quantized_linear regions resample rnn rotary windows",
)
