"""`torch.jit` and `torch.compile`, which change nothing here: everything stays eager. Each says so once."""

from typing import Any, Dict, Final, List, Optional, Tuple, Union  # noqa: F401, UP035 (`jit.annotations` has them)

from ..base.errors import warn_once
from ..nn.module import Module

__path__: list[str] = []  # PyTorch has `jit.annotations`


def _say(name):
    warn_once(f"{name} returns its argument unchanged: mytorch is eager throughout.")


def script(obj=None, *args, **kwargs):
    """obj unchanged."""
    _say("jit.script")
    return obj


def trace(func, example_inputs=None, *args, **kwargs):
    """func unchanged."""
    _say("jit.trace")
    return func


def ignore(obj=None, *args, **kwargs):
    """obj unchanged; also as a decorator with arguments."""
    return obj if callable(obj) else lambda f: f


export = unused = ignore


def is_scripting():
    """False."""
    return False


def is_tracing():
    """False."""
    return False


def compile(model=None, **options):
    """model unchanged; also as a decorator with arguments."""
    _say("compile")
    return (lambda m: m) if model is None else model


class ScriptModule(Module):
    """What PyTorch's `jit.script` makes of a layer; nothing here does."""


class ScriptFunction:
    """What PyTorch's `jit.script` makes of a function; nothing here does."""


RecursiveScriptModule = TopLevelTracedModule = TracedModule = ScriptModule
script_method = script_if_tracing = _script_if_tracing = interface = ignore


def annotate(the_type, the_value):
    """the_value."""
    return the_value


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """mod unchanged."""
    return mod


optimize_for_inference = freeze


def fork(func, *args, **kwargs):
    """What func(*args, **kwargs) returns, at once; `wait` gives it back."""
    return func(*args, **kwargs)


def wait(future):
    """What `fork` returned."""
    return future


def load(f, map_location=None, _extra_files=None):
    """Not here: such files hold programs.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("jit.load: scripted modules are programs of PyTorch's own; save a state dict instead.")


def save(m, f, _extra_files=None):
    """Not here.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("jit.save: there are no scripted modules; save m.state_dict() instead.")
