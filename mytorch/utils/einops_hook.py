"""Tells einops of our tensors when a program imports it, whichever of the two comes first.

einops knows the frameworks whose backend classes exist; ours (utils/einops.py) can be defined only once einops is
there. So its import is watched, and nothing is imported for programs that don't use it.
"""

import importlib
import sys
from importlib.util import find_spec

_WATCHED = "einops._backends"


def _register():
    importlib.import_module("mytorch.utils.einops")


class _Loader:
    """The module's own loader, with our registration after it."""

    def __init__(self, inner):
        self.inner = inner

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        self.inner.exec_module(module)
        _register()


class _Finder:
    """Steps in for the one module that is watched, once."""

    def find_spec(self, name, path=None, target=None):
        if name != _WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def watch() -> None:
    """Register with einops now if it is loaded, else when it is."""
    if _WATCHED in sys.modules:
        _register()
    elif not any(type(f).__name__ == "_Finder" and type(f).__module__ == __name__ for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
