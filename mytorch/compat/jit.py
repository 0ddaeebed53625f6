"""`torch.jit`, which has no effect because mytorch has no TorchScript. Each function warns once."""

import builtins
import types
from typing import Any, Dict, Final, List, Optional, Tuple, Union, get_args, get_origin  # noqa: F401, UP035 (`jit.annotations` has them)

from ..arrays.errors import warn_once
from ..nn.module import Module

__path__: list[str] = []  # for the import of `jit.annotations`
# In an annotation, a number that stands for a list of equal numbers.
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = BroadcastingList5 = (
    BroadcastingList6
) = list


def _say(name):
    warn_once(
        f"{name} returns its argument unchanged, because mytorch has no TorchScript. Use mytorch.compile for speed, and "
        "torch.export to save a program."
    )


def _refuse_save(self, f, _extra_files=None):
    """Raises an error, because there are no scripted modules."""
    raise NotImplementedError("save: scripted modules are not supported. Save m.state_dict() with torch.save instead.")


def _without_save(obj):
    """Returns `obj`. From now on, modules have a method `save` that explains why they cannot be saved."""
    if builtins.isinstance(obj, Module) and not hasattr(Module, "save"):
        Module.save = _refuse_save
    return obj


def script(obj=None, *args, **kwargs):
    """Returns obj unchanged."""
    _say("jit.script")
    return _without_save(obj)


def trace(func, example_inputs=None, *args, **kwargs):
    """Returns func unchanged."""
    _say("jit.trace")
    return _without_save(func)


def ignore(obj=None, *args, **kwargs):
    """Returns obj unchanged, also as a decorator with arguments."""
    return obj if callable(obj) else lambda f: f


export = unused = ignore


def is_scripting():
    """Returns False."""
    return False


def is_tracing():
    """Returns False."""
    return False


def isinstance(obj, target_type):
    """Returns True if obj has a type, or one of several types; parameters of `List[…]` and others are checked, too."""
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, one) for one in target_type)
    origin, inner = get_origin(target_type), get_args(target_type)
    if origin in (Union, types.UnionType):
        return any(isinstance(obj, one) for one in inner)
    if target_type is None:
        return obj is None
    if origin is None:
        return target_type is Any or builtins.isinstance(obj, target_type)
    if not builtins.isinstance(obj, origin):
        return False
    if origin is dict:
        return all(isinstance(k, inner[0]) and isinstance(v, inner[1]) for k, v in obj.items())
    if origin is tuple:
        return len(obj) == len(inner) and all(map(isinstance, obj, inner))
    return all(isinstance(item, inner[0]) for item in obj)


class ScriptModule(Module):
    """The class of PyTorch's scripted modules, for `isinstance`; it has no instances."""


class ScriptFunction:
    """The class of PyTorch's scripted functions, for `isinstance`; it has no instances."""


RecursiveScriptModule = TopLevelTracedModule = TracedModule = ScriptModule
script_method = script_if_tracing = _script_if_tracing = interface = _overload = _overload_method = ignore


class TracerWarning(Warning):
    """PyTorch's warning about tracing, for filters of warnings; it is never issued."""


def annotate(the_type, the_value):
    """Returns the_value."""
    return the_value


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """Returns mod unchanged."""
    return mod


optimize_for_inference = freeze


def fork(func, *args, **kwargs):
    """Calls func(*args, **kwargs) immediately; `wait` returns the result."""
    return func(*args, **kwargs)


def wait(future):
    """Returns the result of `fork`."""
    return future


def load(f, map_location=None, _extra_files=None):
    """Raises an error, because scripted modules are programs.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("jit.load: scripted modules are not supported. Save a state dict instead.")


def save(m, f, _extra_files=None):
    """Raises an error, because there are no scripted modules.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("jit.save: scripted modules are not supported. Save m.state_dict() instead.")
