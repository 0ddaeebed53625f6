"""`torch.jit` and `torch.compile`, which change nothing here: everything stays eager. Each says so once."""

import warnings

_said = set()


def _say(name):
    if name not in _said:
        _said.add(name)
        warnings.warn(f"{name} returns its argument unchanged: mytorch is eager throughout.", UserWarning, stacklevel=3)


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
