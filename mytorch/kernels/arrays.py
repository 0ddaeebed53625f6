"""Compiled loops that replace functions of NumPy's namespace for large arrays, in every op and gradient formula.

Such a kernel has `accepts` and `forward` with the function's arguments, and no gradient, since the function is not an op.
"""

from functools import partial

import numpy as np

from ..arrays import numpy_ns
from ..arrays.blocks import LARGE
from . import blas, parts
from .registry import Kernels

COMPILED = {}  # name of a function in NumPy's namespace -> its kernels, for tests


def _compiled(name, path, divided=None):
    """Replaces the function of this name in numpy_ns. The new function uses a kernel if its first argument is large.

    If the kernel does not support the arguments, it calls `divided`, the function in parts, by default the function itself.
    """
    plain, kernels = getattr(numpy_ns, name), Kernels(name, cpu="mytorch.kernels.numba." + path)
    COMPILED[name] = kernels

    def function(x, *rest, **options):
        # Small arrays go straight to NumPy: the search for a kernel would take longer than the function.
        if getattr(x, "size", 0) >= LARGE:
            kernel = kernels.find("cpu", None, (x, *rest), options)
            if kernel is not None:
                return kernel.forward(numpy_ns, x, *rest, **options)
            if divided is not None:
                return divided(x, *rest, **options)
        return plain(x, *rest, **options)

    function.__doc__ = plain.__doc__
    numpy_ns.extend(**{name: function})


for _name, _path in {
    "gather": "indexing:gather", "add_along": "indexing:add_along", "add_rows": "indexing:add_rows",
    **{name: f"indexing:{name}" for name in ("put_along", "max_along", "min_along", "prod_along")},
    "erf": "special:erf", "erfc": "special:erfc", "large_where": "choice", "sign": "rectifier:sign", "clip": "rectifier:clip", "top": "topk", "half_product": "bf16",
    "prod": "sums:prod", "large_sum": "sums:sum", "sum_of_squares": "sums:sum_of_squares",
    "sum_of_magnitudes": "sums:sum_of_magnitudes", "squared_deviations": "sums:squared_deviations",
    "flipped": "indexing:flipped", "take_last": "indexing:take_last", "cumsum": "scans:cumsum", "cumprod": "scans:cumprod", "running_best": "scans:running_best",
}.items():  # fmt: skip
    _compiled(_name, _path)


def _cast(x, dtype):
    return parts.copied(x.real if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb" else x, dtype)


_compiled("cast", "cast", _cast)


def _in_parts(name, *operands, out=None):
    if out is None:
        return parts.elementwise(name, getattr(np, name), *operands)
    parts.update(getattr(np, name), out, *operands)
    return out


for _name in parts.SCALAR:
    _compiled(_name, f"vectors:{_name}", partial(_in_parts, _name))


def _by_rows(name, ufunc):
    """Replaces the function of this name, which is a ufunc for floats. The new function divides large arrays among the threads."""
    plain = getattr(numpy_ns, name)

    def function(x):
        result = parts.by_rows(ufunc, (x,)) if x.size >= LARGE else None
        return plain(x) if result is None else result

    function.__doc__ = plain.__doc__
    numpy_ns.extend(**{name: function})


_by_rows("reciprocal", np.reciprocal)
_by_rows("rint", np.rint)
numpy_ns.extend(large_copy=parts.assign, large_reduction=parts.rows, large_product=blas.product)
