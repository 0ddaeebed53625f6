"""All operations. Each file defines some, with their gradients; `bind` gives them their names."""

from . import (
    activation,
    attention,
    complex,
    conv,
    creation,
    elementwise,
    embedding,
    indexing,
    inplace,
    linalg,
    loss,
    movement,
    normalization,
    padding,
    pool,
    random,
    reduction,
    resample,
    rnn,
    scatter,
    shapes,
    sorting,
    special,
    tensor_ns,
)
from .bind import METHODS, PUBLIC, attach
