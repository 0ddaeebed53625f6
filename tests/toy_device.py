"""A device registered from outside the package, for tests and as a template: a custom array class with separate memory.

`arrays` represents the library of an accelerator: a class with the attributes, methods and operators of NumPy arrays, and functions
with NumPy's names. Both call NumPy here. Mixing them with NumPy arrays raises an error, as for two separate memories.
"""

import operator
import types

import numpy as np

from mytorch.arrays import register_device

calls = []  # functions that ran on the device


def down(x):
    """Converts the device arrays in x to NumPy arrays."""
    if isinstance(x, ToyArray):
        return x._a
    if isinstance(x, np.ndarray) and x.ndim:
        raise TypeError("a NumPy array was given to the toy device")
    if isinstance(x, dict):
        return {k: down(v) for k, v in x.items()}
    return type(x)(map(down, x)) if type(x) in (tuple, list) else x


def up(x, inputs=()):
    """Converts NumPy results to device arrays; a result that shares memory with one of `inputs` becomes its view."""
    if isinstance(x, (np.ndarray, np.generic)):
        whole = x if isinstance(x, np.ndarray) else None
        while whole is not None and isinstance(whole.base, np.ndarray):
            whole = whole.base
        for given in inputs:
            if isinstance(given, ToyArray) and whole is given.root._a:
                return given if x is given._a else ToyArray(x, given.root)
        return ToyArray(np.asarray(x))
    return type(x)(up(v, inputs) for v in x) if type(x) in (tuple, list) else x


def on_device(function):
    """A function of NumPy's over this library's arrays."""

    def call(*args, **kwargs):
        calls.append(getattr(function, "__name__", "method"))
        return up(function(*down(args), **down(kwargs)), (*args, *kwargs.values()))

    return call


class ToyArray:
    """An array on the device."""

    __array_ufunc__ = None  # NumPy's arrays leave operators to this class, which refuses them

    def __init__(self, array, root=None):
        self._a, self.base = array, root
        while root is None and isinstance(array.base, np.ndarray):  # find the owner of the memory
            array = array.base
        self.root = root if root is not None else self if array is self._a else ToyArray(array)
        if self.root is not self:
            self.base = self.root

    def __getattr__(self, name):
        if name in ("data", "__array_interface__", "__array__"):  # NumPy cannot look into the device's memory
            raise AttributeError(name)
        value = getattr(self._a, name)
        if callable(value):
            return lambda *args, **kwargs: up(value(*down(args), **down(kwargs)), (self,))
        return up(value, (self,)) if name in ("T", "real", "imag") else value

    def __getitem__(self, index):
        return up(self._a[down(index)], (self,))

    def __setitem__(self, index, value):
        self._a[down(index)] = down(value)

    def __len__(self):
        return len(self._a)

    def __bool__(self):
        return bool(self._a)

    def __int__(self):
        return int(self._a)

    def __float__(self):
        return float(self._a)

    def __index__(self):
        return operator.index(self._a)


def _operators():
    names = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift lt le gt ge eq ne neg pos abs invert".split()
    for name in names:
        plain = getattr(operator, f"__{name}__")
        setattr(ToyArray, f"__{name}__", on_device(plain))
        setattr(ToyArray, f"__r{name}__", on_device(lambda a, b, plain=plain: plain(b, a)))

        def in_place(self, other, plain=getattr(operator, f"__i{name}__", None)):
            self._a = plain(self._a, down(other))
            return self

        setattr(ToyArray, f"__i{name}__", in_place)


_operators()
ToyArray.__hash__ = object.__hash__


class ToyLibrary(types.ModuleType):
    """The functions of the device: a selection of NumPy's functions. The backend computes all others on the CPU."""

    ndarray = ToyArray
    own = set(
        "add subtract multiply divide exp log sqrt sin cos tanh abs maximum minimum sum mean max min argmax matmul where zeros ones "
        "empty full arange zeros_like ones_like empty_like full_like asarray broadcast_to transpose swapaxes moveaxis expand_dims "
        "squeeze reshape concatenate stack isfinite sign".split()
    )

    def __getattr__(self, name):
        if name not in self.own:
            raise AttributeError(name)
        return on_device(getattr(np, name))


def register(name="toy"):
    """Make it a device of the library."""
    register_device(
        name,
        ToyLibrary("toy"),
        from_cpu=lambda array: ToyArray(array.copy()),
        to_cpu=lambda array: array._a.copy(),
        address=lambda array: array._a.__array_interface__["data"][0],
        lib=types.SimpleNamespace(
            stride_tricks=types.SimpleNamespace(as_strided=on_device(np.lib.stride_tricks.as_strided))
        ),
    )
