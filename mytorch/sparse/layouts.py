"""Creation functions for sparse layouts: `zeros` and `empty` with `layout=`, and functions such as `zeros_like` of sparse tensors."""

import numpy as np

from ..arrays import as_device, dtypes, on
from ..arrays.memory_format import preserve_format, strided
from ..arrays.tensor import Tensor
from ..ops import creation, random
from ..ops.dispatch.layouts import implements, refusal
from ..ops.movement import as_shape
from .array import SparseArray, emptied, is_sparse, raw_of, words
from .links import build, pattern_of, values_of
from .pattern import COMPRESSED, LAYOUTS, Pattern, sparse_coo, sparse_csr


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


def _of_size(name):
    @implements(name, layouts=LAYOUTS)
    def function(*size, layout=None, out=None, dtype=None, device=None, requires_grad=False, **options):
        shape = as_shape((options.get("size", options.get("shape")),) if not size else size)
        if out is None:
            _refuse(name, options)
            return empty_of(name, shape, layout, dtype, device).requires_grad_(requires_grad)
        if not is_sparse(out) or layout not in (None, out.layout):
            raise RuntimeError(f"{name}: expected out of layout {layout!r}, got {out.layout!r}.")
        made = raw_of(empty_of(name, shape, out.layout, out.dtype, out.device))
        raw_of(out)._set(made.pattern, made.values)
        return out.requires_grad_() if requires_grad else out


def _refuse(name, options):
    if options.get("memory_format") is not None:
        raise RuntimeError(
            f"{name}: memory format option is only supported by strided tensors, got {options['memory_format']!r}. Omit memory_format."
        )
    if options.get("pin_memory"):
        raise NotImplementedError(f"{name}: expected pin_memory=False for a sparse layout, got True.")


def _like(name):
    @implements(name + "_like", layouts=LAYOUTS)
    def function(input, *, layout=None, dtype=None, device=None, requires_grad=False, **options):
        layout = input.layout if layout is None else layout
        dtype, device = dtype or input.dtype, device or input.device
        if layout == strided:  # a sparse tensor has no order of axes in memory
            if options.get("memory_format") == preserve_format:
                options["memory_format"] = None
            of_size = getattr(creation, name)
            return of_size(tuple(input.shape), dtype=dtype, device=device, requires_grad=requires_grad, **options)
        _refuse(name + "_like", options)
        if input.layout == layout:
            made = Tensor._wrap(SparseArray.of(*emptied(raw_of(input)))).to(device, dtype)
        elif is_sparse(input) and name == "empty":
            raise RuntimeError(
                f"empty_like with different sparse layout is not supported (self is {words(raw_of(input))} but you requested "
                f"{layout!r}). Use zeros_like."
            )
        else:
            made = empty_of(
                name + "_like",
                input.shape,
                layout,
                dtype,
                device,
                dense_dim=input.dense_dim() if is_sparse(input) else 0,
            )
        return made.requires_grad_(requires_grad)


def _of_elements(name, before):
    """Defines functions such as `full_like` for CSR and CSC tensors: the result has the positions of the input."""

    @implements(name, layouts=COMPRESSED)
    def function(input, *args, layout=None, requires_grad=False, **options):
        if layout not in (None, input.layout):
            raise refusal(name, input.layout)
        _refuse(name, options)
        values = before(values_of(input).detach(), *args, **options)
        return build(values, pattern_of(input)).requires_grad_(requires_grad)


for _name in ("zeros", "empty"):
    _of_size(_name)
    _like(_name)
for _name, _module in (
    ("ones", creation),
    ("full", creation),
    ("rand", random),
    ("randn", random),
    ("randint", random),
):
    _of_elements(_name + "_like", getattr(_module, _name + "_like"))
