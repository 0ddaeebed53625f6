"""Methods about a tensor's memory and kind, and PyTorch's other spellings of methods."""

import numpy as np

from .._array import Array, as_raw
from ..tensor import Tensor
from .bind import METHODS, _attribute, public
from .creation import _raw
from .inplace import check_writable
from .movement import as_shape, split
from .random import _drawn, _fill


@public(function=False, inplace=False)
def resize_(self, *sizes, memory_format=None):
    """Give self another shape in place; elements that are new are not initialised."""
    shape = as_shape(sizes)
    raw = _raw(self)
    need = int(np.prod(shape))
    flat = raw.reshape(-1)
    if need > flat.size:
        grown = np.empty(need, raw.dtype)
        grown[: flat.size] = flat
        flat = grown
    _replace(self, flat[:need].reshape(shape))
    return self


def _replace(self, raw):
    if isinstance(self, Array):
        self._array = raw
    else:
        self._data = Array._wrap(raw)


@public(function=False, inplace=False)
def resize_as_(self, other):
    """`resize_` to other's shape."""
    return resize_(self, tuple(other.shape))


@public(function=False, inplace=False)
def set_(self, source=None):
    """Let self use source's memory, shape and dtype."""
    _replace(self, _raw(source) if source is not None else np.empty(0, _raw(self).dtype))
    return self


@public(function=False, inplace=False)
def apply_(self, callable):
    """Replace every element by callable(element), on the CPU; slow."""
    check_writable(self, "apply_")
    raw = _raw(self)
    raw[...] = np.vectorize(callable, otypes=[raw.dtype])(raw) if raw.size else raw
    return self


@public(function=False, inplace=False)
def map_(self, tensor, callable):
    """Replace every element by callable(own element, tensor's element); slow."""
    raw = _raw(self)
    raw[...] = np.vectorize(callable, otypes=[raw.dtype])(raw, _raw(tensor))
    return self


@public(function=False, inplace=False)
def fill_diagonal_(self, fill_value, wrap=False):
    """Write a value along the diagonal."""
    check_writable(self, "fill_diagonal_")
    np.fill_diagonal(_raw(self), fill_value, wrap)
    (self if isinstance(self, Array) else self._data)._bump()
    return self


@public(function=False, inplace=False)
def new(self, *args):
    """A tensor of self's dtype: of the given sizes, or with the given data."""
    if args and not isinstance(args[0], int):
        return Tensor._wrap(as_raw(args[0], None, self.dtype))
    return self.new_empty(*args)


@public(inplace=False)
def is_same_size(input, other):
    """Whether two tensors have the same shape."""
    return tuple(input.shape) == tuple(other.shape)


@public(inplace=False)
def is_nonzero(input):
    """Whether the only element is not zero."""
    return bool(input)


@public(inplace=False)
def is_conj(input):
    """False: conjugates are never lazy here."""
    return False


@public(inplace=False)
def is_neg(input):
    """False: negations are never lazy here."""
    return False


@public(inplace=False)
def is_inference(input):
    """False: inference mode makes ordinary tensors here."""
    return False


@public(inplace=False)
def is_signed(input):
    """Whether the dtype holds negative numbers."""
    return input.dtype.is_signed


def _constant(name, value):
    def method(self, *args):
        return value(self) if callable(value) else value

    method.__name__ = name
    method.__doc__ = f"PyTorch's `{name}`."
    public(function=False, inplace=False)(method)


_constant("is_pinned", False)
_constant("is_shared", False)
_constant("is_coalesced", False)
_constant("share_memory_", lambda self: self)
_constant("to_dense", lambda self: self)
_constant("record_stream", None)
_constant("module_load", lambda self: self)


@public(inplace=False)
def split_with_sizes(input, split_sizes, dim=0):
    """`split` into pieces of the given sizes."""
    return split(input, list(split_sizes), dim)


METHODS["unsafe_chunk"] = METHODS["chunk"]
METHODS["unsafe_split"] = METHODS["split"]
METHODS["narrow_copy"] = public(name="narrow_copy", inplace=False)(lambda input, dim, start, length: input.narrow(dim, start, length).clone())
METHODS["narrow_copy"].__doc__ = "A copy of `narrow`."


def conj_physical_(self):
    """Take the complex conjugate in place."""
    return self.copy_(self.conj())


METHODS["conj_physical_"] = conj_physical_


# -- in-place draws -----------------------------------------------------------------------------------------------------


def _unit(self, generator):
    raw, source = _drawn(self, generator)
    return raw, 1.0 - source.uniform(raw.shape, np.float64)  # in (0, 1]


@public(function=False, inplace=False)
def exponential_(self, lambd=1.0, *, generator=None):
    """Fill in place with exponential numbers of the given rate."""
    raw, u = _unit(self, generator)
    return _fill(self, (-np.log(u) / lambd).astype(raw.dtype), "exponential_")


@public(function=False, inplace=False)
def geometric_(self, p, *, generator=None):
    """Fill in place with the number of trials up to the first success of probability p."""
    raw, u = _unit(self, generator)
    return _fill(self, np.maximum(np.ceil(np.log(u) / np.log1p(-p)), 1).astype(raw.dtype), "geometric_")


@public(function=False, inplace=False)
def cauchy_(self, median=0.0, sigma=1.0, *, generator=None):
    """Fill in place with Cauchy numbers."""
    raw, u = _unit(self, generator)
    return _fill(self, (median + sigma * np.tan(np.pi * (u - 0.5))).astype(raw.dtype), "cauchy_")


@public(function=False, inplace=False)
def log_normal_(self, mean=1.0, std=2.0, *, generator=None):
    """Fill in place with exp of normal numbers."""
    raw, source = _drawn(self, generator)
    return _fill(self, np.exp(source.normal(raw.shape, raw.dtype, mean, std)), "log_normal_")


def standard_gamma(shape_parameter, generator=None):
    """Gamma numbers of the given shape parameters and rate 1, as a raw array."""
    raw, source = _drawn(shape_parameter, generator)
    return source._source.standard_gamma(raw.astype(np.float64)).astype(raw.dtype)


@public(inplace=False, method=False)
def poisson(input, generator=None):
    """Poisson numbers of the given rates."""
    raw, source = _drawn(input, generator)
    return Tensor._wrap(source._source.poisson(raw).astype(raw.dtype))


_attribute("mH", lambda self: self.mT.conj())
_attribute("layout", lambda self: "strided")
_attribute("names", lambda self: (None,) * self.ndim)
