"""Compiled loops in place of NumPy's functions, for large arrays: whatever calls them through NumPy's namespace gets them.

A kernel here has `accepts` and `forward` of the function's own arguments, and no gradient, since it computes nothing new.
"""

from ..backend import numpy_ns
from ..numerics.blocks import LARGE
from .registry import Kernels

COMPILED = {}  # name of a function in NumPy's namespace -> its kernels, for tests


def _compiled(name, path):
    """Let numpy_ns's function of this name ask for a kernel where its first argument is large."""
    plain, kernels = getattr(numpy_ns, name), Kernels(name, cpu="mytorch.kernels.numba." + path)
    COMPILED[name] = kernels

    def function(x, *rest, **options):
        if getattr(x, "size", 0) >= LARGE:
            kernel = kernels.find("cpu", None, (x, *rest), options)
            if kernel is not None:
                return kernel.forward(numpy_ns, x, *rest, **options)
        return plain(x, *rest, **options)

    function.__doc__ = plain.__doc__
    numpy_ns.extend(**{name: function})


for _name, _path in {
    "gather": "indexing:gather", "add_along": "indexing:add_along", "add_rows": "indexing:add_rows",
    **{name: f"indexing:{name}" for name in ("put_along", "max_along", "min_along")},
    "large_where": "choice", "sign": "rectifier:sign", "top": "topk", "half_product": "bf16",
    "cast": "cast", "prod": "sums:prod", "large_sum": "sums:sum", "sum_of_squares": "sums:sum_of_squares",
    "squared_deviations": "sums:squared_deviations",
    "rows_product": "linear", "cumsum": "scans:cumsum", "cumprod": "scans:cumprod", "running_best": "scans:running_best",
}.items():  # fmt: skip
    _compiled(_name, _path)
