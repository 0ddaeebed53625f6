"""Guards: the Python values that a traced program read.

A trace is valid as long as the program would take the same path again. `collect` walks the objects that a function can
reach: its globals, closure, default arguments, the attributes of objects and modules, and lists and dicts. It returns a list
of guards, each of which compares one entry of a dict or list with its former value. A comparison takes about 50 ns.
"""

import array
import collections
import contextvars
import enum
import itertools
import operator
import os
import sys
import types

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..backend import device
from ..base import dtypes
from ..nn import module
from ..ops.random import Generator
from ..optim.optimizer import Optimizer
from .arrays import Untraceable

HERE = __name__.partition(".")[0]
MOST = 50_000  # guards of one function
# Values that are compared by equality. Other objects are compared by identity.
VALUES = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    type(...),
    tuple,
    frozenset,
    range,
    slice,
    np.dtype,
    dtypes.dtype,
    device,
)
# A program cannot change the state of objects of these packages: namespaces and kernels, which a replay calls again.
_MACHINERY = (f"{HERE}.backend", f"{HERE}.kernels", "numba")
_ATOMS = (*VALUES, enum.Enum, np.generic, type, types.BuiltinFunctionType, types.ModuleType, Generator)
_HOOKS = frozenset(
    "_forward_pre_hooks _forward_hooks _backward_hooks _backward_pre_hooks _forward_pre_hooks_with_kwargs _forward_hooks_with_kwargs "
    "_forward_hooks_always_called".split()
)
_MISSING = object()
_STANDARD = frozenset(sys.stdlib_module_names) | {HERE, "numpy", "torch", "numba", "ml_dtypes"}


def is_foreign(name):
    """Returns True for a module name of the standard library, of this library or of NumPy."""
    return (name or "").partition(".")[0] in _STANDARD and name != "__main__"


class TooMuch(Untraceable):
    """Raised if a function can reach values that cannot be guarded. The functions that it calls may reach less."""


class Guards:
    """The guards of a function.

    Args:
        reads_groups: the program reads the parameter groups of optimizers.
        executed: the code objects that the program executes; None if they are unknown. Without them, each function that
            the program can reach counts as called.

    Attributes:
        entries: (container, key, value) for values in dicts, lists and cells.
        lengths: (container, length).
        tensors: the tensors that the function can reach.
        iterators: True if the function can reach an iterator, which `next` advances.
        names: the names in the code of the functions.
        skipped: the code objects of functions without guards, because they are not in `executed`.
    """

    def __init__(self, reads_groups=False, executed=None):
        self.entries, self.lengths, self.tensors, self.iterators = [], [], [], False
        self.reads_groups, self.executed, self.names, self.skipped = reads_groups, executed, set(), set()
        self._seen = {}

    def reached(self):
        """Returns the objects that the function can reach."""
        return self._seen.values()

    def collect(self, *roots):
        """Adds all that the roots can reach. Returns self."""
        todo = list(roots)
        while todo:
            value = todo.pop()
            if id(value) in self._seen:
                continue
            if isinstance(value, _ATOMS) and not isinstance(value, (tuple, type)):
                continue
            self._seen[id(value)] = value  # the reference keeps the id unique
            if len(self.entries) > MOST:
                raise TooMuch(f"the function can reach more than {MOST:,} Python values")
            todo.extend(self._inside(value))
        return self

    def _inside(self, value):
        """Adds the guards of one object. Returns the objects in it."""
        if isinstance(value, (Tensor, Array)):
            if isinstance(value, Tensor):
                self.tensors.append(value)
                attributes = Tensor._extra_state(value)
                self.entries += [(value.__dict__, key, item) for key, item in attributes.items()]
                if value._edge is None:  # it can have a gradient, which is in its dict
                    self.lengths.append((value.__dict__, len(value.__dict__)))
                    if "_grad" in value.__dict__:
                        self.entries.append((value.__dict__, "_grad", value.__dict__["_grad"]))
                return list(attributes.values())
            return ()
        if isinstance(value, (dict, types.MappingProxyType)):
            return self._items(value)
        if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            if isinstance(value, (list, collections.deque)):
                self.lengths.append((value, len(value)))
                self.entries += [(value, i, item) for i, item in enumerate(value)]
            elif isinstance(value, set) and not value:
                self.lengths.append((value, 0))
            elif isinstance(value, set):
                self.entries.append((_Copied(frozenset, value), None, frozenset(value)))
            return list(value)
        if isinstance(value, (bytearray, memoryview)):
            self.entries.append((_Copied(bytes, value), None, bytes(value)))
            return ()
        if isinstance(value, (np.ndarray, array.array)):
            raise TooMuch("the function can reach a NumPy array, and its elements can change")
        if (type(value).__module__ or "").startswith(_MACHINERY):
            return ()
        if isinstance(value, contextvars.ContextVar):
            self.entries.append((_Variable(value), None, value.get(_MISSING)))
            return ()
        if isinstance(value, types.MethodType):
            return value.__self__, value.__func__
        if isinstance(value, types.FunctionType):
            return () if is_foreign(value.__module__) and not value.__closure__ else self._function(value)
        if isinstance(value, type):
            return () if is_foreign(value.__module__) else self._class(value)
        if isinstance(value, Optimizer):  # its options are read when a step runs, unless the program reads them, too
            for group in value.param_groups:
                self.tensors += group["params"]
            return value.param_groups if self.reads_groups else ()
        if isinstance(value, (np.random.Generator, np.random.RandomState)):
            raise TooMuch("the function can reach a random generator of NumPy")
        if type(value).__name__ == "cython_function_or_method":
            raise TooMuch(f"it is unknown if {value.__name__} has side effects")
        if hasattr(value, "__next__"):
            self.iterators = True
            return ()
        if (type(value).__module__ or "").startswith(__package__):  # a compiled function or module
            return [value._orig_mod] if hasattr(value, "_orig_mod") else [getattr(value, "function", None)]
        found = [type(value)]
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            # Without a registered hook, which sets `_hooked`, calls do not read these dicts.
            unused = _HOOKS if isinstance(value, module.Module) and own.get("_hooked") is False else ()
            found += self._items(own, unused)
        for cls in type(value).__mro__:
            slots = cls.__dict__.get("__slots__", ()) if not is_foreign(cls.__module__) else ()
            for name in (slots,) if isinstance(slots, str) else slots:
                if name[:2] != "__" and hasattr(value, name):
                    found.append(getattr(value, name))
                    self.entries.append((_Attributes(value), name, found[-1]))
        if hasattr(value, "__wrapped__"):
            found.append(value.__wrapped__)
        if isinstance(value, types.SimpleNamespace) or type(value).__name__ == "partial":
            found += [getattr(value, name, None) for name in ("func", "args", "keywords")]
        return found

    def _items(self, mapping, unused=()):
        if isinstance(mapping, dict) and type(mapping).__getitem__ is not dict.__getitem__:
            mapping = _Stored(mapping)
        self.lengths.append((mapping, len(mapping)))
        self.entries += [(mapping, key, item) for key, item in mapping.items() if key not in unused]
        return [item for key, item in mapping.items() if key not in unused]

    def _function(self, function):
        found = []
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            self.entries.append((_Attributes(cell), "cell_contents", content))
            found.append(content)
        if is_foreign(function.__module__):
            return found
        if self.executed is not None and function.__code__ not in self.executed:
            self.skipped.add(function.__code__)
            return ()
        found += [*(function.__defaults__ or ()), *function.__dict__.values()]
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self.entries.append((_Attributes(function), name, getattr(function, name)))
        if function.__kwdefaults__:
            found += self._items(function.__kwdefaults__)
        names, keywords, codes = set(), set(), [function.__code__]
        while codes:
            code = codes.pop()
            names.update(code.co_names)
            codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
            names.update(c for c in code.co_consts if isinstance(c, str))  # names for `getattr`
            keywords.update(c for t in code.co_consts if isinstance(t, tuple) for c in t if isinstance(c, str))
        self.names |= names | keywords
        if not names.isdisjoint(("environ", "environb", "getenv")):
            found += self._items(os.environ._data)
        if "param_groups" in names and not self.reads_groups:
            raise ReadsGroups
        for name in names:
            value = function.__globals__.get(name, _MISSING)
            if value is _MISSING:
                continue
            self.entries.append((function.__globals__, name, value))
            found.append(value)
            if isinstance(value, types.ModuleType) and not is_foreign(value.__name__):
                for inner in names:
                    item = vars(value).get(inner, _MISSING)
                    if item is not _MISSING:
                        self.entries.append((vars(value), inner, item))
                        found.append(item)
        return found

    def _class(self, cls):
        found = [base for base in cls.__mro__[1:] if not is_foreign(base.__module__)]
        for name, value in vars(cls).items():
            if name[:2] == "__" and name not in ("__call__", "__init__"):
                continue
            self.entries.append((vars(cls), name, value))
            inner = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            found += [f for f in (value.fget, value.fset) if f] if isinstance(value, property) else [inner]
        return found

    def changed(self):
        """Returns a description of the first change, or None."""
        for container, length in self.lengths:
            if len(container) != length:
                return f"the size of a {type(container).__name__} changed from {length} to {len(container)}"
        for container, key, value in self.entries:
            try:
                now = container[key]
            except (KeyError, IndexError):
                return f"{key!r} was removed"
            if now is not value and not (isinstance(now, VALUES) and type(now) is type(value) and _equal(now, value)):
                return f"{key!r} changed"
        return None

    def add(self, container, key, value):
        """Adds a guard of one entry of a container."""
        self.entries.append((container, key, value))

    def prepare(self):
        """Prepares `hold`: all entries of one container, or all attributes of one object, are read by one call."""
        groups = {}
        for entry in self.entries:
            container = entry[0]
            getter, owner = operator.itemgetter, container
            if type(container) is _Attributes:
                getter, owner = operator.attrgetter, container.owner
            groups.setdefault((getter, id(owner)), (owner, []))[1].append(entry)
        single = [entries[0] for _, entries in groups.values() if len(entries) == 1]
        self._columns = tuple(zip(*single, strict=True)) or ((), (), ())
        self._getters, self._values = [], []
        for (getter, _), (owner, entries) in groups.items():
            if len(entries) > 1:
                self._getters.append((getter(*(key for _, key, _ in entries)), owner))
                self._values += [value for _, _, value in entries]
        self._sized, self._lengths = [c for c, _ in self.lengths], [n for _, n in self.lengths]

    def hold(self):
        """Returns True if nothing changed."""
        try:
            containers, keys, values = self._columns
            grouped = itertools.chain.from_iterable([get(owner) for get, owner in self._getters])
            if all(map(operator.is_, grouped, self._values)) and all(
                map(operator.is_, map(operator.getitem, containers, keys), values)
            ):
                return list(map(len, self._sized)) == self._lengths
            for container, key, value in self.entries:
                now = container[key]
                if now is not value and not (
                    isinstance(now, VALUES) and type(now) is type(value) and _equal(now, value)
                ):
                    return False
            for container, length in self.lengths:
                if len(container) != length:
                    return False
        except (KeyError, IndexError, AttributeError, ValueError):
            return False
        return True


def _equal(a, b):
    if a == b:  # 0.0 and -0.0 are different, and (1,) and (True,)
        return type(a) not in (float, complex, tuple, frozenset) or repr(a) == repr(b)
    return a != a and b != b


class ReadsGroups(Exception):
    """Raised if the program names the parameter groups of optimizers, so that they must be guarded."""


def guards_of(*roots, executed=None):
    """Returns the guards of all that the roots can reach; `executed` as in `Guards`."""
    hooks = [value for name, value in vars(module).items() if name.startswith("_global_")]  # hooks of all modules
    try:
        return Guards(executed=executed).collect(*roots, *hooks)
    except ReadsGroups:
        return Guards(True, executed).collect(*roots, *hooks)


class _Attributes:
    """The attributes of an object, or the content of a closure's cell, with the interface of a dict."""

    __slots__ = ("owner",)

    def __init__(self, owner):
        self.owner = owner

    def __getitem__(self, key):
        try:
            return getattr(self.owner, key)
        except (AttributeError, ValueError):  # an empty cell of a closure raises ValueError
            raise KeyError(key) from None


class _Stored:
    """The stored items of a subclass of dict that computes the results of `[]`."""

    __slots__ = ("mapping",)

    def __init__(self, mapping):
        self.mapping = mapping

    def __getitem__(self, key):
        return dict.__getitem__(self.mapping, key)

    def __len__(self):
        return dict.__len__(self.mapping)

    def items(self):
        return dict.items(self.mapping)

    def values(self):
        return dict.values(self.mapping)


class _Copied:
    """An immutable copy of a container, with the interface of a dict."""

    __slots__ = ("container", "copy")

    def __init__(self, copy, container):
        self.copy, self.container = copy, container

    def __getitem__(self, key):
        return self.copy(self.container)


class _Variable:
    """The value of a context variable, with the interface of a dict."""

    __slots__ = ("variable",)

    def __init__(self, variable):
        self.variable = variable

    def __getitem__(self, key):
        return self.variable.get(_MISSING)
