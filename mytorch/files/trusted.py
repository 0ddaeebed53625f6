"""Files with objects of any class, such as whole modules: `save` writes them, and `load(f, weights_only=False)` reads them.

`Pickler` writes tensors in PyTorch's format, and all other objects as Python's pickle does. Classes of the library have
PyTorch's names in the file, such as `torch.nn.modules.linear.Linear`, so each library reads the classes of the other one.
Reading such a file can run any code that its author wrote.
"""

import functools
import importlib
import io
import pickle
import sys
from types import FunctionType
from typing import Any, ClassVar

from .. import _extensions
from ..arrays import config, device, dtypes
from ..arrays.array import Array, Size
from ..arrays.tensor import Tensor
from ..compat import class_names, paths, stubs
from ..ops import functional
from . import archive
from .storage import TypedStorage, UntypedStorage


def name_of(x, name=None):
    """Returns the module and the name of a class or function in files. For those of the library, they are PyTorch's."""
    name = name or getattr(x, "__qualname__", None) or x.__name__
    home = pickle.whichmodule(x, name)
    if home.partition(".")[0] != "mytorch":
        return home, name
    if isinstance(x, type):
        known = class_names.home_of(x)
    else:
        known = "torch.nn.functional" if getattr(functional, name, None) is x else None
    return known or "torch" + home.removeprefix("mytorch"), name


def among(allowed, module, name):
    """Returns the class or function that PyTorch has at a path, if it is one of those that are allowed; otherwise None."""
    if all(getattr(value, "__name__", None) != name.rpartition(".")[2] for value in allowed):
        return None
    try:
        found = getattr(importlib.import_module("mytorch" + module.removeprefix("torch")), name)
    except (ImportError, AttributeError):
        return None
    return found if any(found is value for value in allowed) else None


class Pickler(archive.Pickler):
    """Writes a pickle of protocol 2 with objects of any class, and collects its storages."""

    def save(self, x, save_persistent_id=True):
        """Save one object."""
        if isinstance(x, (TypedStorage, UntypedStorage)):
            x = self._of_storage(x)
        elif isinstance(x, dtypes.dtype):
            x = archive._global("torch", x.name)
        elif isinstance(x, tuple) and archive.is_result(x):
            x = tuple(x)
        pickle._Pickler.save(self, x, save_persistent_id)

    def save_global(self, x, name=None):
        """Write the name of a class or function."""
        home, own = name_of(x, name)
        if home.partition(".")[0] == "torch" and "." not in own:
            self.write(f"c{home}\n{own}\n".encode())
            self.memoize(x)
        else:
            super().save_global(x, name)

    dispatch: ClassVar[dict[Any, Any]] = {**archive.Pickler.dispatch, FunctionType: save_global}

    def reducer_override(self, x):
        """Return the representation of a tensor; NotImplemented for other objects."""
        if isinstance(x, Tensor):
            return self._tensor(x) if config.is_own(type(x)) else self._subclass(x)
        for kind in (Array, Size, device):
            if isinstance(x, kind):
                return archive._REDUCERS[kind](self, x)
        return NotImplemented

    def _subclass(self, x):
        if type(x).__reduce_ex__ is not Tensor.__reduce_ex__:
            return x.__reduce_ex__(2)
        rebuild, args = self._strided(x._mt_data._array, bool(x.requires_grad))
        state = {name: value for name, value in x._extra_state().items() if not name.startswith("_")}
        return archive._REBUILD_TYPE, (rebuild, type(x), args, state)


def _rebuild_from_type(rebuild, kind, args, state):
    tensor = rebuild(*args)
    if kind is not Tensor:
        tensor = tensor.as_subclass(kind)
    return archive._with_state(tensor, state) if type(state) is not tuple or any(state) else tensor


@functools.cache
def unpickler(base):
    """Returns a class that reads a pickle of a trusted file.

    Args:
        base: the class `Unpickler` of a pickle module.
    """

    class Unpickler(base):
        def __init__(self, content, storage_of, budget, encoding="utf-8"):
            super().__init__(io.BytesIO(content), encoding=encoding)
            self.storage_of, self.budget, self.file_name = storage_of, budget, budget.name
            makers = archive._Unpickler._makers(self)
            self.makers = {
                key: make for key, make in makers.items() if key[0].startswith("torch._") or key[1] == "_get_layout"
            }
            self.makers["torch._tensor", "_rebuild_from_type_v2"] = _rebuild_from_type

        def find_class(self, module, name):
            """Return the class or function of a name. PyTorch's names are names of this library."""
            if (module, name) in self.makers:
                return self.makers[module, name]
            if module == "torch" and name in archive._STORAGES:
                return archive._StorageClass(archive._STORAGES[name])
            if module == "torch.storage" and name in ("UntypedStorage", "TypedStorage"):
                return archive._StorageClass(dtypes.uint8, "UntypedStorage")
            if (module, name) == ("torch._C", "_VariableFunctionsClass"):
                return sys.modules["mytorch"]  # a function of `torch` is an attribute of this class in PyTorch's files
            if f"{module}.{name}".removeprefix("torch.") in stubs.FOUND:
                return _extensions.load(stubs.FOUND[f"{module}.{name}".removeprefix("torch.")])
            for theirs, ours in paths.ALIASES:
                if module == theirs or module.startswith(theirs + "."):
                    module = ours + module[len(theirs) :]
            return super().find_class(module, name)

        persistent_load = archive._Unpickler.persistent_load

    return Unpickler
