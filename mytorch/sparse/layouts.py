"""Creation functions for sparse layouts: `zeros` and `empty` with `layout=`, and functions such as `zeros_like` of sparse tensors.

The functions of the core create dense tensors. This module replaces them by functions that read `layout` first.
"""

import functools
import sys

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..backend import as_device, on
from ..backend.memory_format import preserve_format, strided
from ..base import dtypes
from ..dispatch.bind import found_by_pickle
from ..ops.movement import as_shape
from .array import SparseArray, _words, emptied, is_sparse, raw_of
from .links import build, pattern_of, values_of
from .pattern import COMPRESSED, Pattern, sparse_coo, sparse_csr

_SPARSE = (sparse_coo, *COMPRESSED)


def empty_of(name, size, layout, dtype=None, device=None, dense_dim=0):
    """Returns a sparse tensor without elements.

    Args:
        name: name of the function, for errors.
        size: sizes of all dimensions.
        layout: a sparse layout.
        dtype: dtype of the values (default: the default dtype).
        device: device of the tensor (default: the default device).
        dense_dim: number of dense dimensions (default: 0).

    Raises:
        RuntimeError: a size is negative, or a compressed layout with fewer than two sparse dimensions.
    """
    size = tuple(int(n) for n in size)
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(size)}")
    xp, there = on(as_device(device))
    dtype = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    sparse, dense = size[: len(size) - dense_dim], size[len(size) - dense_dim :]
    with there:
        values = Tensor._wrap(xp.zeros((0, *dense), dtype.numpy))
        if layout is sparse_coo:
            return build(values, Pattern(sparse_coo, sparse, xp.zeros((len(sparse), 0), np.int64), coalesced=True))
        if len(sparse) < 2:
            raise RuntimeError(
                f"torch.{name}: Only batched sparse compressed (non-block) tensors are supported, but got size {list(size)}. "
                "Use layout sparse_coo."
            )
        *batch, n, m = sparse
        pointers = xp.zeros((*batch, (n if layout is sparse_csr else m) + 1), np.int64)
        return build(values, Pattern(layout, sparse, pointers=pointers, inner=xp.zeros((*batch, 0), np.int64)))


def _wants_sparse(layout):
    return isinstance(layout, str) and layout in _SPARSE


def _of_size(name, before):
    """Returns `zeros` or `empty` for all layouts."""

    @functools.wraps(before)
    def function(*size, layout=None, **options):
        out = options.get("out")
        if not _wants_sparse(layout) and not is_sparse(out):
            return before(*size, **options) if layout is None else before(*size, layout=layout, **options)
        shape = as_shape((options.get("size", options.get("shape")),) if not size else size)
        if out is not None:
            if not is_sparse(out) or layout not in (None, out.layout):
                raise RuntimeError(f"{name}: expected out of layout {layout!r}, got {out.layout!r}.")
            raw_of(out)._set(*_parts(empty_of(name, shape, out.layout, out.dtype, out.device)))
            return out.requires_grad_() if options.get("requires_grad") else out
        _refuse(name, options)
        made = empty_of(name, shape, layout, options.get("dtype"), options.get("device"))
        return made.requires_grad_(options.get("requires_grad", False))

    return function


def _parts(x):
    return raw_of(x).pattern, raw_of(x).values


def _refuse(name, options):
    if options.get("memory_format") is not None:
        raise RuntimeError(
            f"{name}: memory format option is only supported by strided tensors, got {options['memory_format']!r}. Omit memory_format."
        )
    if options.get("pin_memory"):
        raise NotImplementedError(f"{name}: expected pin_memory=False for a sparse layout, got True.")


def _new(name, of_size, before):
    """Returns `new_zeros` or `new_empty` for all layouts."""

    @functools.wraps(before)
    def method(self, *size, layout=None, dtype=None, device=None, **options):
        layout = self.layout if layout is None and is_sparse(self) else layout
        if not _wants_sparse(layout):
            options.update({} if layout is None else {"layout": layout})
            return before(self, *size, dtype=dtype, device=device, **options)
        dtype, device = dtype or self.dtype, device or self.device
        return of_size(*size, layout=layout, dtype=dtype, device=device, **options)

    return method


def _like(name, of_size, before):
    """Returns `zeros_like` or `empty_like` for all layouts."""

    @functools.wraps(before)
    def function(input, *, layout=None, **options):
        sparse = is_sparse(input)
        layout = input.layout if layout is None and sparse else layout
        if not sparse and not _wants_sparse(layout):
            return before(input, **options) if layout is None else before(input, layout=layout, **options)
        options = {"dtype": input.dtype, "device": input.device} | {k: v for k, v in options.items() if v is not None}
        if not _wants_sparse(layout):
            if options.get("memory_format") is preserve_format:  # a sparse tensor has no order of axes in memory
                del options["memory_format"]
            return of_size(tuple(input.shape), **options)
        _refuse(name, options)
        grad = options.pop("requires_grad", False)
        options.pop("pin_memory", None)
        if sparse and layout == input.layout:
            made = Tensor._wrap(SparseArray.of(*emptied(raw_of(input)))).to(options["device"], options["dtype"])
        elif sparse and name == "empty_like":
            raise RuntimeError(
                f"empty_like with different sparse layout is not supported (self is {_words(raw_of(input))} but you requested "
                f"{layout!r}). Use zeros_like."
            )
        else:
            made = empty_of(name, input.shape, layout, dense_dim=input.dense_dim() if sparse else 0, **options)
        return made.requires_grad_(grad)

    return function


def _of_elements(name, before):
    """Returns functions such as `full_like` for CSR and CSC tensors: the result has the positions of the input."""

    @functools.wraps(before)
    def function(input, *args, layout=None, **options):
        if not is_sparse(input):
            return before(input, *args, **options) if layout is None else before(input, *args, layout=layout, **options)
        if pattern_of(input).layout is sparse_coo or layout not in (None, input.layout):
            raise NotImplementedError(
                f"{name}: expected a dense tensor, got {_words(raw_of(input))}. Call to_dense() first."
            )
        _refuse(name, options)
        grad = options.pop("requires_grad", False)
        values = before(values_of(input).detach(), *args, **options)
        return build(values, pattern_of(input)).requires_grad_(grad)

    return function


def install():
    """Replaces the functions of the library and the methods of tensors."""
    library = vars(sys.modules["mytorch"])

    def put(name, function):
        library[name] = found_by_pickle(function, name)

    for name in ("zeros", "empty"):
        before, before_like = library[name], library[name + "_like"]
        put(name, _of_size(name, before))
        put(name + "_like", _like(name + "_like", library[name], before_like))
        for cls in (Tensor, Array):
            method = _new("new_" + name, library[name], getattr(cls, "new_" + name))
            setattr(cls, "new_" + name, method)
        found_by_pickle(Tensor.__dict__["new_" + name], f"Tensor.new_{name}")
    for name in ("ones_like", "full_like", "rand_like", "randn_like", "randint_like"):
        put(name, _of_elements(name, library[name]))


def layout_of(x):
    """Returns the layout of a tensor."""
    return pattern_of(x).layout if is_sparse(x) else strided
