"""Functions of neural networks, usually imported as `F`. They are defined in `mytorch.ops`."""

from .. import _extensions
from ..ops import functional as _functional
from ..ops import multihead
from ..ops.dispatch.bind import found_by_pickle as _found_by_pickle
from ..ops.dispatch.bind import public_function as _public_function
from . import linear_cross_entropy as _losses

__path__: list[str] = []  # for `torch.nn.functional.grad`, which is nn/grad.py
_FOUND = {name: getattr(_functional, name) for names in _functional.NAMES.values() for name in names.split()}
for _module, _name in ((_losses, "linear_cross_entropy"), (multihead, "multi_head_attention_forward")):
    _FOUND[_name] = _found_by_pickle(_public_function(getattr(_module, _name)), _name, __name__)
globals().update(_FOUND)
__getattr__, __dir__ = _extensions.lazy(__name__)

__all__ = [*_FOUND]
