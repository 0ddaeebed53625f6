"""Containers of modules and parameters: sequences, lists and dictionaries."""

import operator
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import chain
from typing import Any

from ..arrays.tensor import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Container(Module):
    """Stores named submodules. Deprecated, use `nn.Module`.

    Args:
        kwargs: modules by name.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     container = nn.Container(first=nn.ReLU())
        >>> container.first
        ReLU()

    See also: `nn.ModuleDict`, `nn.Sequential`.
    """

    def __init__(self, **kwargs: Module) -> None:
        super().__init__()
        text = "All of its functionality is now implemented in `nn.Module`. Subclass that instead."
        warnings.warn(f"`nn.Container` is deprecated. {text}", FutureWarning, stacklevel=2)
        for name, module in kwargs.items():
            self.add_module(name, module)


def _position(index, size):
    """Returns an index counted from the start. Raises `IndexError` if it is out of range."""
    index = operator.index(index)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for {size} elements")
    return index % size


class _Sequence(Module):
    """The base class of Sequential and ModuleList: submodules whose names are their positions."""

    _modules: dict[str, Module]

    def _key(self, index):
        return list(self._modules)[_position(index, len(self))]

    def _renumber(self, modules):
        self._modules = {str(i): m for i, m in enumerate(modules)}

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._part(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        for key in list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]:
            delattr(self, key)
        self._renumber(self)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __iadd__(self, modules: Iterable[Module]):
        return self.extend(modules)

    def append(self, module: Module):
        """Adds a module at the end. Returns self."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]):
        """Adds several modules at the end. Returns self."""
        for module in modules:
            self.append(module)
        return self

    def pop(self, key: int | slice) -> Module:
        """Removes the module at a position and returns it."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Sequence):
    """Applies modules one after the other.

    Use it when each layer's output is the next layer's input. Write a `Module` with a `forward` for anything else.

    Args:
        args: modules, or one `OrderedDict` of named modules.

    Shape:
        Input: the shape that the first module expects.
        Output: the shape that the last module returns.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.ReLU())
        >>> model(tensor([[[-1.0, 2.0]]])).tolist()
        [[0.0, 2.0]]

    See also: `nn.ModuleList`.
    """

    def __init__(self, *args: Module | OrderedDict[str, Module]) -> None:
        super().__init__()
        named: Any = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def _part(self, items):
        return type(self)(OrderedDict(items))

    def __add__(self, other: "Sequential") -> "Sequential":
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def _check_factor(self, times):
        if not isinstance(times, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueError(f"Non-positive multiplication factor {times} for {type(self)}")

    def __mul__(self, times: int) -> "Sequential":
        self._check_factor(times)
        return Sequential(*(list(self) * times))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> "Sequential":
        self._check_factor(times)
        return self.extend(list(self) * (times - 1))

    def insert(self, index: int, module: Module) -> "Sequential":
        """Inserts a module before position `index`. Returns self."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}, got {type(module).__name__}")
        modules = list(self)
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"Index out of range: {index}, expected -{len(modules)} to {len(modules)}")
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Sequence):
    """Stores modules in a list and registers them as submodules.

    Unlike the modules of a Python list, the modules of this list appear in `parameters()`, `state_dict()` and `to()` of
    the parent module.

    Use it in place of a Python list, whose layers an optimizer would not find. Your `forward` decides in which order
    they run.

    Args:
        modules: initial modules (default: None).

    Example:
        >>> layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
        >>> len(layers), len(list(layers.parameters()))
        (3, 6)

    See also: `nn.Sequential`, `nn.ModuleDict`, `nn.ParameterList`.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _key(self, index):
        return str(_position(index, len(self)))

    def _part(self, items):
        return type(self)(module for _, module in items)

    def __add__(self, other: Iterable[Module]) -> "ModuleList":
        return ModuleList(chain(self, other))

    def extend(self, modules: Iterable[Module]) -> "ModuleList":
        """Adds several modules at the end. Returns self.

        Raises:
            TypeError: `modules` is not iterable.
        """
        if not hasattr(modules, "__iter__"):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        return super().extend(modules)

    def insert(self, index: int, module: Module) -> None:
        """Inserts a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def __repr__(self) -> str:
        """Returns the text that PyTorch prints. Equal neighbors are printed once, with the range of their positions."""
        texts = [repr(m) for m in self]
        if not texts:
            return f"{self._get_name()}()"
        runs, start = [], 0
        for i in range(1, len(texts) + 1):
            if i == len(texts) or texts[i] != texts[start]:
                runs.append((start, i - 1, texts[start]))
                start = i
        lines = []
        for first, last, text in runs:
            label = f"({first})" if first == last else f"({first}-{last})"
            times = "" if first == last else f"{last - first + 1} x "
            head, *rest = text.split("\n")
            lines.append("\n".join([f"{label}: {times}{head}", *("  " + line for line in rest)]))
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """Stores modules in a dictionary and registers them as submodules.

    The parameters of the modules are parameters of this module. Iteration follows the order of insertion.

    Use it in place of a Python dict, whose layers an optimizer would not find, to choose a layer by its name.

    Args:
        modules: initial modules: a mapping from names to modules, or (name, module) pairs (default: None).

    Example:
        >>> heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 3)})
        >>> [name for name, _ in heads.named_parameters()]
        ['a.weight', 'a.bias', 'b.weight', 'b.bias']

    See also: `nn.ModuleList`, `nn.ParameterDict`.
    """

    _modules: dict[str, Module]

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Removes the module of a key and returns it."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """Returns the names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Returns the (name, module) pairs."""
        return self._modules.items()

    def values(self) -> Iterable[Module]:
        """Returns the modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules from a mapping or from (name, module) pairs.

        Raises:
            TypeError: `modules` is neither a mapping nor an iterable of pairs.
            ValueError: an element does not have length 2.
        """
        for key, module in _pairs(modules, "ModuleDict"):
            self[key] = module


def _pairs(source, name):
    """Returns the (key, value) pairs of a mapping or of an iterable of pairs."""
    if not hasattr(source, "__iter__"):
        kind = type(source).__name__
        raise TypeError(f"{name}.update should be called with an iterable of key/value pairs, but got {kind}")
    if hasattr(source, "items"):
        return list(source.items())
    pairs = list(source)
    for i, pair in enumerate(pairs):
        if not hasattr(pair, "__iter__"):
            raise TypeError(f"{name} update sequence element #{i} should be Iterable; is {type(pair).__name__}")
        if len(pair) != 2:
            raise ValueError(f"{name} update sequence element #{i} has length {len(pair)}; 2 is required")
    return pairs


def _as_parameter(value):
    """Returns a Parameter for a tensor, and any other value unchanged."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _described(name, value):
    """Returns one line of the `repr` of a parameter container."""
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    size = "x".join(str(n) for n in value.shape)
    where = "" if value.device.type == "cpu" else f" ({value.device})"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"  ({name}): {kind} containing: [{value.dtype!r} of size {size}{where}]"


class ParameterList(Module):
    """Stores parameters in a list and registers them. Tensors that you add become parameters.

    Use it in place of a Python list of parameters, which an optimizer would not find.

    Args:
        values: initial parameters, tensors or other objects (default: None).

    Example:
        >>> weights = nn.ParameterList([mytorch.zeros(2), mytorch.ones(3)])
        >>> [tuple(p.shape) for p in weights.parameters()]
        [(2,), (3,)]

    See also: `nn.ParameterDict`, `nn.ModuleList`.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, str(_position(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_position(index, len(self))), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, values: Iterable[Any]) -> "ParameterList":
        return self.extend(values)

    def append(self, value: Any) -> "ParameterList":
        """Adds a value at the end. Returns self."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> "ParameterList":
        """Adds several values at the end. Returns self.

        Raises:
            TypeError: `values` is a tensor or is not iterable.
        """
        if not hasattr(values, "__iter__") or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_described(i, value) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called. Use its parameters in the forward of a module.")


class ParameterDict(Module):
    """Stores parameters in a dictionary and registers them. Tensors that you add become parameters.

    Args:
        parameters: initial values: a mapping from names to values, or (name, value) pairs (default: None).

    Example:
        >>> weights = nn.ParameterDict({"a": mytorch.zeros(2), "b": mytorch.ones(3)})
        >>> [(name, tuple(p.shape)) for name, p in weights.named_parameters()]
        [('a', (2,)), ('b', (3,))]

    See also: `nn.ParameterList`, `nn.ModuleDict`.
    """

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, str(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, str(key), _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, str(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> "ParameterDict":
        """Returns a ParameterDict with the same values."""
        return ParameterDict(OrderedDict(self.items()))

    get = Mapping.get
    setdefault = MutableMapping.setdefault

    def clear(self) -> None:
        """Removes all values."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Removes the value of a key and returns it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes the last (key, value) pair and returns it."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> "ParameterDict":
        """Returns a ParameterDict with one value for several keys."""
        return ParameterDict(dict.fromkeys(keys, default))

    def keys(self) -> Iterable[str]:
        """Returns the keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Returns the (key, value) pairs."""
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Iterable[Any]:
        """Returns the values."""
        return (self[k] for k in self._keys)

    def update(self, parameters: "ParameterDict | Mapping[str, Any] | Iterable[tuple[str, Any]]") -> None:
        """Adds values from a mapping or from (key, value) pairs. A plain dict is sorted by key.

        Raises:
            TypeError: `parameters` is neither a mapping nor an iterable of pairs.
            ValueError: an element does not have length 2.
        """
        if isinstance(parameters, dict) and not isinstance(parameters, OrderedDict):
            parameters = sorted(parameters.items())
        for key, value in _pairs(parameters, "ParameterDict"):
            self[key] = value

    def __or__(self, other: "ParameterDict") -> "ParameterDict":
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other: "ParameterDict") -> "ParameterDict":
        merged = other.copy()
        merged.update(self)
        return merged

    def __ior__(self, other: "ParameterDict") -> "ParameterDict":
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_described(key, value) for key, value in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called. Use its parameters in the forward of a module.")
