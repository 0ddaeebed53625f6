"""Matrix products of CuPy's namespace on a GPU: `matmul`, `dot`, `einsum` and `linear`.

cuBLASLt (`cublas.py`) is used if it can be loaded, for float16, bfloat16, float32 and float64. CuPy computes all other
products. CuPy raises an error during the capture of a CUDA graph. Triton then computes them instead.
`MYTORCH_GEMM=cublaslt|cupy|triton`, read once, selects one library where it can be used, for measurements.
"""

import importlib
import math
import os
import warnings

import numpy as np

from ..arrays.einsum import einsum
from ..arrays.errors import DeviceError
from . import cublas

CHOICES = ("cublaslt", "cupy", "triton")


def functions(cp):
    """Returns {name: function} for a namespace over the module `cp`.

    Raises:
        ValueError: MYTORCH_GEMM has an unknown value.
    """
    products = Products(cp, os.environ.get("MYTORCH_GEMM") or None)
    names = "matmul add_matmul dot einsum linear weight_gradients linear_gelu gelu_gradients".split()
    return {name: getattr(products, name) for name in names}


class Products:
    """Products of a namespace over the module `cp`, computed by the library `choice`, by default the fastest available one."""

    def __init__(self, cp, choice=None):
        if choice not in (None, *CHOICES):
            raise ValueError(f"MYTORCH_GEMM is {choice!r}; it takes one of {', '.join(CHOICES)}.")
        self.cp, self.choice = cp, choice
        self.trouble, self.warned = ([], set())  # error of loading cuBLASLt; products whose warning was already shown

    def __getattr__(self, name):
        """Returns CuPy's other functions, for `einsum`."""
        return getattr(self.cp, name)

    def by_lt(self, a, b):
        """Returns True if cuBLASLt should multiply a and b."""
        return self.choice in (None, "cublaslt") and not self.trouble and cublas.takes(a, b)

    def attempt(self, function, a, b, *rest, **options):
        """Returns the result of a cuBLASLt function; None if it is not selected, not available or unsupported, with one warning."""
        if not self.by_lt(a, b):
            return None
        try:
            return function(a, b, *rest, **options)
        except DeviceError as error:
            if self.choice == "cublaslt":
                raise
            self.trouble.append(error)
            warnings.warn(f"{error} CuPy multiplies matrices instead.", UserWarning, stacklevel=3)
        except cublas.Unsupported as error:  # raised before anything was written
            if (function, a.dtype) not in self.warned:
                self.warned.add((function, a.dtype))
                warnings.warn(f"{error} Another library multiplies instead.", UserWarning, stacklevel=3)
        return None

    def matmul(self, a, b, out=None):
        """Returns a @ b with NumPy's semantics."""
        cp, choice, product = self.cp, self.choice, self.attempt(cublas.matmul, a, b, out)
        if product is None and (choice == "triton" or (choice is None and cp.cuda.get_current_stream().is_capturing())):
            product = _by_triton(cp, a, b, out)
        if product is None:
            product = cp.matmul(a, b) if out is None else cp.matmul(a, b, out=out)
        return product

    def add_matmul(self, total, a, b):
        """total += a @ b, summed in float32 and rounded once to total's dtype."""
        if not cublas.writes(a.dtype, total.dtype) or self.attempt(cublas.matmul, a, b, total, accumulate=True) is None:
            total += self.matmul(a, b)

    def linear(self, x, weight, bias=None):
        """Returns x @ weightᵀ + bias."""
        out = self.attempt(cublas.linear, x, weight, bias) if bias is None or bias.dtype == x.dtype else None
        if out is None:
            out = self.matmul(_rows(x), weight.T).reshape(*x.shape[:-1], weight.shape[0])
            if bias is not None:
                out += bias
        return out

    def weight_gradients(self, g, x):
        """Returns gᵀ @ x and the sum of g over its rows from one kernel; None if there is no such kernel."""
        return self.attempt(cublas.weight_gradients, g, x)

    def linear_gelu(self, x, weight, bias=None):
        """Returns gelu(before, "tanh") and before = x @ weightᵀ + bias from one kernel; None if there is no such kernel."""
        fits = weight.shape[0] % 8 == 0 and (bias is None or bias.dtype == x.dtype)
        return self.attempt(cublas.linear, x, weight, bias, activation="gelu_tanh", before=True) if fits else None

    def gelu_gradients(self, g, weight, before, bias):
        """Returns (g @ weight) gelu'(before, "tanh") and, with `bias`, its sum over rows from one kernel; None if there is none."""
        return self.attempt(cublas.gelu_gradients, g, weight, before, bias) if cublas.in_eights(before) else None

    def dot(self, a, b):
        """Returns the inner product of vectors or the product of matrices, with NumPy's semantics."""
        return self.matmul(a, b) if a.ndim == b.ndim and a.ndim in (1, 2) else self.cp.dot(a, b)

    def einsum(self, spec, *arrays):
        """Returns NumPy's einsum of an explicit spec without an ellipsis."""
        if all(self.by_lt(a, arrays[0]) for a in arrays):
            return einsum(self, spec, *arrays)
        return self.cp.einsum(spec, *arrays)


def _rows(x):
    """Returns x as a matrix whose rows are the last axis."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _by_triton(cp, a, b, out):
    """Returns the product computed by Triton's kernel; None for unsupported arrays."""
    if a.ndim < 2 or b.ndim < 2 or a.dtype != b.dtype or a.dtype.name not in ("float16", "bfloat16", "float32"):
        return None
    if b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (cp.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b))
    product = importlib.import_module("mytorch.kernels.triton.matmul").product(cp, a, b)
    if out is None:
        return product
    out[...] = product
    return out
