"""Devices that other packages bring: a library of arrays, registered under a name (devices.py); docs/extending.md has one."""

import functools
from types import ModuleType, SimpleNamespace
from typing import Any

from .namespaces import Namespace, ndarray, numpy_ns

BY_NAME = {}  # what is registered, by the device's name …
BY_ARRAY = {}  # … and by the class of its arrays


class Library(Namespace):
    """The namespace of a registered library, and how its arrays come and go.

    Attributes:
        kind: the device's name; device: the device itself. from_cpu, to_cpu: the copies.
    """

    device: Any = None

    def __init__(self, name, module, from_cpu, to_cpu, own):
        super().__init__(module, kind=name, from_cpu=from_cpu, to_cpu=to_cpu, **own)

    def __getattr__(self, name):
        found = getattr(self.module, name, None)
        if found is None:
            found = self._through_cpu(getattr(numpy_ns, name))
        self.__dict__[name] = found
        return found

    def _through_cpu(self, thing):
        """What the library lacks, done by NumPy on copies: a function, or each of a module's; what it writes into is copied back."""
        if isinstance(thing, ModuleType | SimpleNamespace):
            functions = {k: self._through_cpu(v) for k, v in vars(thing).items() if k[0] != "_"}
            return Library(self.kind, _Nothing, self.from_cpu, self.to_cpu, functions)
        if isinstance(thing, type) or not callable(thing):
            return thing

        @functools.wraps(thing)
        def on_cpu(*args, **kwargs):
            given = [(a, self._down(a)) for a in args]
            before = [(a, there, there.copy()) for a, there in given if type(a) in BY_ARRAY]
            out = kwargs.pop("out", None)
            result = thing(*[there for _, there in given], **{k: self._down(v) for k, v in kwargs.items()})
            for a, there, old in before:
                if there.tobytes() != old.tobytes():
                    a[...] = self.from_cpu(there)
            if out is None:
                return self._up(result)
            out[...] = self._up(result)
            return out

        return on_cpu

    def _down(self, x):
        if type(x) in BY_ARRAY:
            return self.to_cpu(x)
        return type(x)(map(self._down, x)) if type(x) in (tuple, list) else x

    def _up(self, x):
        if isinstance(x, ndarray | numpy_ns.generic):
            return self.from_cpu(numpy_ns.asarray(x))
        return type(x)(map(self._up, x)) if type(x) in (tuple, list) else x


_Nothing = SimpleNamespace(__name__="nothing")
