"""`torch.types`: type names for annotations."""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from collections.abc import Sequence
from os import PathLike

from ..arrays import device as _device
from ..arrays.array import Size
from ..arrays.dtypes import dtype as _dtype  # noqa: F401
from ..arrays.tensor import Tensor

Number = _int | _float | _bool
Device = _device | str | _int | None
FileLike = str | PathLike
_size = Size | Sequence[_int]
_TensorOrTensors = Tensor | Sequence[Tensor]
