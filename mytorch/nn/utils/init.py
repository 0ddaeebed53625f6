"""Making a module without spending time on its initial values."""

import inspect
from typing import Any

from .. import init
from ..module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """A module of class `module_cls` whose drawn parameters hold whatever their memory held.

    Meanwhile the initialisers of `nn.init` do nothing, so no random numbers are drawn. Ones and zeros stay.

    Raises:
        RuntimeError: not a Module's class, or one that takes no `device`.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    with init.skipped():
        module = module_cls(*args, **kwargs)
    return module
