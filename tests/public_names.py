"""The public callables of the library, for tests that sweep over all of them."""

import importlib
import inspect
import pkgutil

import mytorch

# Packages without functions for users, and packages that need a terminal or a GPU.
INTERNAL = "arrays cli compat compiler kernels ops playground tools".split()
INTERNAL_FILES = {
    f"mytorch.autograd.{name}"
    for name in "backward_call batching forward_mode mode node own_node saved tensor_ns walk".split()
}
NEEDS_PACKAGES = {"mytorch.utils.tensorboard.writer"}


def modules():
    """Yields the public modules of the library."""
    yield mytorch
    for info in pkgutil.walk_packages(mytorch.__path__, "mytorch."):
        parts = info.name.split(".")
        if (
            any(p.startswith("_") for p in parts)
            or parts[1] in INTERNAL
            or info.name in {*NEEDS_PACKAGES, *INTERNAL_FILES}
        ):
            continue
        yield importlib.import_module(info.name)


def callables():
    """Yields (module, name, value) of each public function and class, once."""
    seen = set()
    for module in modules():
        for name in sorted(dir(module)):
            value = getattr(module, name, None)
            ours = str(getattr(value, "__module__", None)).startswith("mytorch")
            if name.startswith("_") or not callable(value) or inspect.ismodule(value) or not ours or id(value) in seen:
                continue
            seen.add(id(value))
            yield module.__name__, name, value
