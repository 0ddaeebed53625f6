"""Which library multiplies arrays on a GPU: `matmul`, `dot`, `einsum` and `linear` of CuPy's namespace.

cuBLASLt by `cublas.py` where it loads, for float16, bfloat16, float32 and float64. CuPy has the rest: other dtypes, and
everything where the library is missing; during the capture of a CUDA graph, when CuPy refuses, Triton multiplies
instead. `MYTORCH_GEMM=cublaslt|cupy|triton`, read once, makes one of them do what it can, for measuring.
"""

import importlib
import math
import os
import warnings

import numpy as np

from ..base.errors import DeviceError
from ..numerics.einsum import einsum
from . import cublas

CHOICES = ("cublaslt", "cupy", "triton")


def functions(cp):
    """{name: function} for a namespace over the module `cp`.

    Raises:
        ValueError: MYTORCH_GEMM is another word.
    """
    products = Products(cp, os.environ.get("MYTORCH_GEMM") or None)
    names = "matmul add_matmul dot einsum linear weight_gradients linear_gelu gelu_gradients".split()
    return {name: getattr(products, name) for name in names}


class Products:
    """The products of a namespace over the module `cp`, by the library `choice`, or, if that is None, the quickest that is there."""

    def __init__(self, cp, choice=None):
        if choice not in (None, *CHOICES):
            raise ValueError(f"MYTORCH_GEMM is {choice!r}; it takes one of {', '.join(CHOICES)}.")
        self.cp, self.choice = cp, choice
        self.trouble, self.warned = (
            [],
            set(),
        )  # why cuBLASLt can't be used; what was said of products that it can't make

    def __getattr__(self, name):
        """CuPy's other functions, for `einsum`."""
        return getattr(self.cp, name)

    def by_lt(self, a, b):
        """Whether cuBLASLt is to multiply a and b."""
        return self.choice in (None, "cublaslt") and not self.trouble and cublas.takes(a, b)

    def attempt(self, function, a, b, *rest, **options):
        """What cuBLASLt makes of it; None if it is not asked, not there, or not able to, which is said once."""
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
        """a @ b, as NumPy's."""
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
        """x @ weightᵀ + bias."""
        out = self.attempt(cublas.linear, x, weight, bias) if bias is None or bias.dtype == x.dtype else None
        if out is None:
            out = self.matmul(_rows(x), weight.T).reshape(*x.shape[:-1], weight.shape[0])
            if bias is not None:
                out += bias
        return out

    def weight_gradients(self, g, x):
        """gᵀ @ x with the sum of g's rows, by one kernel; None if there is none for them."""
        return self.attempt(cublas.weight_gradients, g, x)

    def linear_gelu(self, x, weight, bias=None):
        """gelu(before, "tanh") and before = x @ weightᵀ + bias, by one kernel; None if there is none for them."""
        fits = weight.shape[0] % 8 == 0 and (bias is None or bias.dtype == x.dtype)
        return self.attempt(cublas.linear, x, weight, bias, activation="gelu_tanh", before=True) if fits else None

    def gelu_gradients(self, g, weight, before, bias):
        """(g @ weight) gelu'(before, "tanh") and, with `bias`, its sum over rows, by one kernel; None if there is none for them."""
        return self.attempt(cublas.gelu_gradients, g, weight, before, bias) if cublas.in_eights(before) else None

    def dot(self, a, b):
        """The inner product of vectors, or the product of matrices, as NumPy's."""
        return self.matmul(a, b) if a.ndim == b.ndim and a.ndim in (1, 2) else self.cp.dot(a, b)

    def einsum(self, spec, *arrays):
        """NumPy's einsum of an explicit spec without dots."""
        if all(self.by_lt(a, arrays[0]) for a in arrays):
            return einsum(self, spec, *arrays)
        return self.cp.einsum(spec, *arrays)


def _rows(x):
    """x as a matrix of its last axis."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _by_triton(cp, a, b, out):
    """The product by Triton's kernel; None if that doesn't take such arrays."""
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
