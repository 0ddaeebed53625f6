"""Construction of modules without initial values."""

import inspect
from typing import Any

from .. import init
from ..module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """Creates a module without drawing its initial values, which saves time.

    The parameters that would be drawn contain arbitrary numbers. Parameters that start at one or zero keep these
    values.

    Args:
        module_cls: class of the module.
        args: arguments of its constructor.
        kwargs: keyword arguments of its constructor.

    Raises:
        RuntimeError: `module_cls` is not a Module class, or has no parameter `device`.

    Example:
        >>> layer = nn.utils.skip_init(nn.Linear, 3, 2)
        >>> tuple(layer.weight.shape)
        (2, 3)
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    with init.skipped():
        module = module_cls(*args, **kwargs)
    return module
