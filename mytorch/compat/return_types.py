"""`torch.return_types`: the classes of results with several named tensors, such as `torch.max(x, 0)`.

The classes are named tuples of the modules that compute the results. In PyTorch mode they print as in PyTorch, and their
constructors accept one sequence of all fields.
"""

import functools
import importlib
import sys
from collections import namedtuple

from ..arrays import config

_MODULES = "ops.reduction ops.indexing ops.sorting ops.special ops.decompositions linalg".split()
_LATER = "geqrf histogramdd lu_unpack qr svd triangular_solve".split()  # of functional.py
_classes = []
_PREFIX = {"linalg": "linalg_"}


def _text(self):
    fields = [f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)]
    if not config.pytorch_mode:
        return f"{type(self).__name__}({', '.join(fields)})"
    return f"torch.return_types.{type(self).__name__}(\n" + ",\n".join(fields) + ")"


def _with_sequences(make):
    def __new__(cls, *values, **fields):
        return make(cls, *(values[0] if len(values) == 1 and not fields else values), **fields)

    return __new__


def add(kind, name):
    """Makes a named tuple one of PyTorch's classes.

    Args:
        kind: the class.
        name: its name in `torch.return_types`.

    Returns:
        The class.
    """
    kind.__name__ = kind.__qualname__ = name
    kind.__module__ = "torch.return_types" if config.pytorch_mode else __name__
    kind.__repr__ = _text
    kind.__new__ = _with_sequences(kind.__new__)
    kind.n_fields = kind.n_sequence_fields = len(kind._fields)
    kind.n_unnamed_fields = 0
    globals()[name] = kind
    _classes.append(kind)
    return kind


def __getattr__(name):
    if name in _LATER:
        getattr(sys.modules["mytorch"], name)  # defines them
    if name not in globals():
        raise AttributeError(f"module 'torch.return_types' has no attribute {name!r}", name=name)
    return globals()[name]


def install():
    """Adds the classes of the core, in PyTorch mode."""
    for kind in _classes:
        kind.__module__ = "torch.return_types"
    if "max" in globals():
        return
    for home in _MODULES:
        values = vars(importlib.import_module(f"mytorch.{home}")).values()
        groups = [list(value.values()) if type(value) is dict else [value] for value in values]
        for kind in [kind for group in groups for kind in group]:
            if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
                add(kind, _PREFIX.get(home, "") + kind.__name__)
    _separate_slogdet(importlib.import_module("mytorch.linalg"))


def _separate_slogdet(linalg):
    """Gives the results of `torch.linalg.slogdet`, which is the function `torch.slogdet` here, another class."""
    function = linalg.slogdet
    kind = add(namedtuple("linalg_slogdet", globals()["slogdet"]._fields), "linalg_slogdet")

    @functools.wraps(function)
    def slogdet(*args, **kwargs):
        return kind(function(*args, **kwargs))

    linalg.slogdet = slogdet
