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
from . import cublas

CHOICES = ("cublaslt", "cupy", "triton")


def functions(cp):
    """{name: function} for a namespace over the module `cp`.

    Raises:
        ValueError: MYTORCH_GEMM is another word.
    """
    choice = os.environ.get("MYTORCH_GEMM") or None
    if choice not in (None, *CHOICES):
        raise ValueError(f"MYTORCH_GEMM is {choice!r}; it takes one of {', '.join(CHOICES)}.")
    trouble, warned = [], set()  # why cuBLASLt can't be used; what was said of products that it can't make

    def lt(a, b):
        """Whether cuBLASLt is to multiply a and b."""
        return choice in (None, "cublaslt") and not trouble and cublas.takes(a, b)

    def attempt(function, a, b, *rest, **options):
        """What cuBLASLt makes of it; None if it is not asked, not there, or not able to, which is said once."""
        if not lt(a, b):
            return None
        try:
            return function(a, b, *rest, **options)
        except DeviceError as error:
            if choice == "cublaslt":
                raise
            trouble.append(error)
            warnings.warn(f"{error} CuPy multiplies matrices instead.", UserWarning, stacklevel=3)
        except cublas.Unsupported as error:  # raised before anything was written
            if (function, a.dtype) not in warned:
                warned.add((function, a.dtype))
                warnings.warn(f"{error} Another library multiplies instead.", UserWarning, stacklevel=3)
        return None

    def matmul(a, b, out=None):
        """a @ b, as NumPy's."""
        product = attempt(cublas.matmul, a, b, out)
        if product is None and (choice == "triton" or (choice is None and cp.cuda.get_current_stream().is_capturing())):
            product = _by_triton(cp, a, b, out)
        if product is None:
            product = cp.matmul(a, b) if out is None else cp.matmul(a, b, out=out)
        return product

    def add_matmul(total, a, b):
        """total += a @ b, summed in float32 and rounded once to total's dtype."""
        if not cublas.writes(a.dtype, total.dtype) or attempt(cublas.matmul, a, b, total, accumulate=True) is None:
            total += matmul(a, b)

    def linear(x, weight, bias=None):
        """x @ weightᵀ + bias."""
        out = attempt(cublas.linear, x, weight, bias) if bias is None or bias.dtype == x.dtype else None
        if out is None:
            out = matmul(_rows(x), weight.T).reshape(*x.shape[:-1], weight.shape[0])
            if bias is not None:
                out += bias
        return out

    def weight_gradients(g, x):
        """gᵀ @ x with the sum of g's rows, by one kernel; None if there is none for them."""
        return attempt(cublas.weight_gradients, g, x)

    def dot(a, b):
        """The inner product of vectors, or the product of matrices, as NumPy's."""
        return matmul(a, b) if a.ndim == b.ndim and a.ndim in (1, 2) else cp.dot(a, b)

    def sum_products(spec, *arrays):
        """NumPy's einsum of an explicit spec without dots."""
        if all(lt(a, arrays[0]) for a in arrays):
            return einsum(namespace, spec, *arrays)
        return cp.einsum(spec, *arrays)

    namespace = _Names(cp, matmul)
    return {
        "matmul": matmul, "add_matmul": add_matmul, "dot": dot, "einsum": sum_products, "linear": linear,
        "weight_gradients": weight_gradients,
    }  # fmt: skip


def _rows(x):
    """x as a matrix of its last axis."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


class _Names:
    """CuPy's functions with another product."""

    def __init__(self, cp, matmul):
        self.cp, self.matmul = cp, matmul

    def __getattr__(self, name):
        return getattr(self.cp, name)


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


def einsum(xp, spec, *arrays):
    """Sums of products as matrix products and elementwise ones, two operands at a time.

    Args:
        xp: namespace with matmul. spec: as NumPy's, with "->" and without dots. arrays: one dtype.

    Returns:
        An array with the axes that follow "->".
    """
    terms, output = spec.split("->")
    terms, arrays = terms.split(","), list(arrays)
    if len(arrays) > 2:
        shapes = [np.broadcast_to(np.float32(0), a.shape) for a in arrays]
        order = np.einsum_path(spec, *shapes, optimize="greedy")[0][1:]
    else:
        order = [tuple(range(len(arrays)))]
    for places in order:
        taken = [(terms[i], arrays[i]) for i in places]
        terms, arrays = ([x for i, x in enumerate(xs) if i not in places] for xs in (terms, arrays))
        term, array = taken.pop(0)
        while taken:
            other = taken.pop(0)
            keep = set(output).union(*terms, *(t for t, _ in taken))
            left = _alone(xp, term, array, keep.union(other[0]))
            term, array = _pair(xp, *left, *_alone(xp, *other, keep.union(left[0])), keep)
        terms.append(term)
        arrays.append(array)
    term, array = _alone(xp, terms[0], arrays[0], set(output))
    return xp.transpose(array, [term.index(c) for c in output])


def _alone(xp, term, array, keep):
    """One operand with repeated axes made one, and the axes that nobody else has summed."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            first = term.index(c)
            second = term.index(c, first + 1)
            array = xp.diagonal(array, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + c
    lone = tuple(i for i, c in enumerate(term) if c not in keep)
    if lone:
        array = xp.sum(array, axis=lone)
        term = "".join(c for c in term if c in keep)
    return term, array


def _pair(xp, left, a, right, b, keep):
    """The product of two operands over what both have, summed over what `keep` lacks."""
    batch = [c for c in left if c in right and c in keep]
    inner = [c for c in left if c in right and c not in keep]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    size = dict(zip(left + right, a.shape + b.shape, strict=True))
    term = "".join(batch + rows + columns)
    a = _arranged(xp, left, a, batch, rows, inner)
    b = _arranged(xp, right, b, batch, inner, columns)
    product = xp.matmul(a, b) if inner else a * b
    return term, xp.reshape(product, tuple(size[c] for c in term))


def _arranged(xp, term, array, batch, rows, columns):
    """An operand as (*batch, rows, columns), each group one axis."""
    groups = [[c] for c in batch] + [rows, columns]
    array = xp.transpose(array, [term.index(c) for group in groups for c in group])
    size = dict(zip((c for group in groups for c in group), array.shape, strict=True))
    shape = [1] * len(groups)
    for i, group in enumerate(groups):
        for c in group:
            shape[i] *= size[c]
    return array if tuple(shape) == array.shape else xp.reshape(array, tuple(shape))
