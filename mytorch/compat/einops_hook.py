"""Registers mytorch's tensors with einops when a program imports einops.

einops supports each framework that has a subclass of its `AbstractBackend`. The subclass for mytorch
(`compat/einops_backend.py`) can be defined only after einops is imported. `mytorch/_extensions.py` passes the import of
`einops._backends` to this file.
"""

from importlib import import_module
from importlib.machinery import PathFinder


def register():
    """Defines the backend; einops must be imported already."""
    import_module("mytorch.compat.einops_backend")


class _Loader:
    """The loader of einops, followed by the registration."""

    def __init__(self, inner):
        self.inner = inner

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        self.inner.exec_module(module)
        register()


def find_spec(name, path=None):
    """Returns the import system's description of `einops._backends`, with the registration added; None without einops."""
    spec = PathFinder.find_spec(name, path)
    if spec is not None and spec.loader is not None:
        spec.loader = _Loader(spec.loader)
    return spec
