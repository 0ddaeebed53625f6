"""Devices of other array libraries, registered under a name (`devices.py`). docs/extending.md contains an example."""

import functools
from types import ModuleType, SimpleNamespace
from typing import Any

from .namespaces import Namespace, ndarray, numpy_ns

BY_NAME = {}  # name of the device -> Library
BY_ARRAY = {}  # class of its arrays -> Library


class Library(Namespace):
    """The namespace of a registered library, with copies from and to the CPU.

    Attributes:
        kind: name of the device.
        device: the device.
        from_cpu: function that copies from the CPU.
        to_cpu: function that copies to the CPU.
    """

    device: Any = None

    def __init__(self, name, module, from_cpu, to_cpu, own):
        super().__init__(module, kind=name, from_cpu=from_cpu, to_cpu=to_cpu, **own)

    def __getattr__(self, name):
        value = getattr(self.module, name, None)
        if value is None:
            value = self._through_cpu(getattr(numpy_ns, name))
        self.__dict__[name] = value
        return value

    def _through_cpu(self, thing):
        """Returns a missing function (or module of functions), computed by NumPy on copies. Changed arguments are copied back."""
        if isinstance(thing, ModuleType | SimpleNamespace):
            functions = {k: self._through_cpu(v) for k, v in vars(thing).items() if k[0] != "_"}
            return Library(self.kind, _Nothing, self.from_cpu, self.to_cpu, functions)
        if isinstance(thing, type) or not callable(thing):
            return thing

        @functools.wraps(thing)
        def on_cpu(*args, **kwargs):
            pairs = [(a, self._down(a)) for a in args]
            before = [(a, on_host, on_host.copy()) for a, on_host in pairs if type(a) in BY_ARRAY]
            out = kwargs.pop("out", None)
            result = thing(*[on_host for _, on_host in pairs], **{k: self._down(v) for k, v in kwargs.items()})
            for a, on_host, old in before:
                if on_host.tobytes() != old.tobytes():
                    a[...] = self.from_cpu(on_host)
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
