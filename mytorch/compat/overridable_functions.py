"""Lists and names of the functions that classes and modes can override, for `torch.overrides`."""

import sys
from types import FunctionType

from .. import fft, linalg, special
from .._extensions import TORCH_ONLY, torch_names
from ..arrays import config
from ..arrays.overriding import IGNORED, asks
from ..arrays.tensor import Tensor
from ..nn import functional as F
from ..ops.dispatch.bind import PUBLIC


def _public_functions(module):
    """Yields (name, function) for the overridable functions of a module."""
    for name in getattr(module, "__all__", dir(module)):
        if not name.startswith("_") and name not in IGNORED:
            value = getattr(module, name, None)
            if type(value) is FunctionType and config.is_own(value):
                yield name, value


def get_ignored_functions():
    """Returns the public functions that cannot be overridden."""
    top = sys.modules["mytorch"]
    found = {vars(top).get(name) for name in IGNORED} | {vars(Tensor).get(name) for name in IGNORED}
    return {function for function in found if callable(function)}


def get_overridable_functions():
    """Returns {module or class: overridable functions}."""
    top, found, without = sys.modules["mytorch"], {}, ("compat.paths", "compat.stubs", *TORCH_ONLY)
    more = [name for name, home in torch_names()["mytorch"].items() if home not in without]
    functions = [getattr(top, name, None) for name in (*PUBLIC, *more) if name not in IGNORED]
    found[top] = [f for f in functions if asks(f)]
    for module in (F, linalg, fft, special):
        found[module] = [f for _, f in _public_functions(module) if asks(f)]
    found[Tensor] = [f for n, f in vars(Tensor).items() if type(f) is FunctionType and n not in IGNORED]
    return found


def resolve_name(f):
    """Returns the full name of a function, such as "torch.add"."""
    owner = getattr(f, "__self__", None)
    if isinstance(owner, property):
        name = next((n for n, value in vars(Tensor).items() if value is owner), None)
        return name and f"torch.Tensor.{name}.{f.__name__}"
    name = getattr(f, "__name__", None)
    homes = {"torch": sys.modules["mytorch"], "torch.nn.functional": F, "torch.linalg": linalg, "torch.Tensor": Tensor}
    homes.update({"torch.fft": fft, "torch.special": special})
    return next((f"{home}.{name}" for home, place in homes.items() if vars(place).get(name) is f), None)
