"""Matrix products on the CPU: BLAS computes them on one thread, and large products are divided among the library's own threads.

OpenBLAS's threads spin after each product, see `threads.py`. So OpenBLAS is set to one thread during the library's products, and
back to the program's number afterward. Another BLAS (Accelerate, MKL) is not changed and computes each product as a whole.
"""

import contextlib
import ctypes
import functools
import os
import threading

import numpy as np

from . import parts, threads
from .registry import Kernels

SINGLE = 64**3  # up to this number of multiplications, OpenBLAS uses one thread anyway, except for vectors
# numba/linear.py is faster than BLAS for few rows and a weight of at least SMALL numbers. Where OpenBLAS multiplies in place, it is
# faster for one row and WEIGHTS numbers, or for FAR_ROWS rows and FAR numbers, which do not stay in the cache between products.
SMALL, WEIGHTS, FAR, FAR_ROWS = 1 << 14, 1 << 16, 1 << 23, 4
# Up to FEW rows, `(w @ aᵀ)ᵀ` is up to twice as fast as `a @ wᵀ`, for which OpenBLAS repacks all of the larger w. It repacks from
# TURNED multiplications on.
FEW, TURNED = 64, 9 << 14
CACHED = 2**13  # float32 numbers that stay in the first-level cache next to the other matrix
LARGE = 2**23  # multiplications from which a product uses several threads
COMPILED = 3 << 19  # the same where a compiled kernel divides it, see numba/gemm.py
BALANCED = (
    2**26
)  # multiplications from which there are two chunks for each thread, in case another program occupies a core
# On these processors (with AVX-512), OpenBLAS multiplies small matrices in place, without repacking: products of up to PLACED
# multiplications, and if the second matrix is column-major, results of up to PLACED_TURNED numbers.
IN_PLACE, PLACED, PLACED_TURNED = ("SkylakeX", "Cooperlake", "SapphireRapids"), 10**6, 1200

_PRODUCTS = Kernels("matrix products", cpu="mytorch.kernels.numba.gemm")
_FEW_ROWS = Kernels("matrix products of few rows", cpu="mytorch.kernels.numba.linear")
_gemms = {}  # character of a dtype -> address of OpenBLAS's function for products of 64-bit sizes
_counts = None  # OpenBLAS's functions that get and set its number of threads; () for another BLAS
_in_place = False  # True if OpenBLAS has the in-place kernels


def _openblas():
    """Returns (get, set) of the OpenBLAS that NumPy is linked to; () for another BLAS."""
    global _counts, _in_place
    if _counts is None:
        _counts = ()
        library = ctypes.PyDLL(np._core._multiarray_umath.__file__)  # also searches the libraries it depends on
        for form in ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads"):
            with contextlib.suppress(AttributeError):
                get, put = library[form.format("get")], library[form.format("set")]
                get.argtypes, get.restype, put.argtypes, put.restype = (), ctypes.c_int, (ctypes.c_int,), None
                _counts = get, put
                core = library[form.format("get").replace("num_threads", "corename")]
                core.argtypes, core.restype = (), ctypes.c_char_p
                _in_place = core().decode() in IN_PLACE
                for char, name in ("f", "cblas_sgemm64_"), ("d", "cblas_dgemm64_"):
                    with contextlib.suppress(AttributeError):
                        function = library[("scipy_" if form.startswith("scipy") else "") + name]
                        _gemms[char] = ctypes.cast(function, ctypes.c_void_p).value
                break
    return _counts


def gemm(char):
    """Returns the address of OpenBLAS's product of matrices of a dtype; None for other dtypes, and without OpenBLAS."""
    return _gemms.get(char) if _counts or _openblas() else None


class one_thread:
    """Context in which NumPy's products use one BLAS thread. The last context that ends restores BLAS's number of threads."""

    __slots__ = ("counts",)
    inside, before, lock = 0, 1, threading.Lock()

    def __enter__(self):
        get, put = _counts or _openblas() or (lambda: 1, None)
        with one_thread.lock:
            if not one_thread.inside:
                one_thread.before = get()
                self.counts = one_thread.before > 1  # False if there is nothing to restore
                if self.counts:
                    put(1)
            else:
                self.counts = True
            one_thread.inside += self.counts

    def __exit__(self, *_):
        if self.counts:
            with one_thread.lock:
                one_thread.inside -= 1
                if not one_thread.inside:
                    _counts[1](one_thread.before)


def _in_child():
    """Resets the counter in a forked child, which has none of the threads that were computing products."""
    one_thread.lock = threading.Lock()
    if one_thread.inside:
        one_thread.inside = 0
        _counts[1](one_thread.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def run(function, calls):
    """Calls threads.run(function, calls) with one BLAS thread per call."""
    with one_thread():
        threads.run(function, calls)


def product(a, b, out=None):
    """Returns np.matmul(a, b, out), computed on the library's own threads if the product is large."""
    if _counts is None:  # `_in_place` must be known at the first product, so that each product is computed in one way
        _openblas()
    multiplications = a.size * b.shape[-1]
    if a.shape[-1] == 1 and a.ndim > 1 < b.ndim:  # outer products: one multiplication per element, no sum
        return parts.elementwise("mul", np.multiply, a, b) if out is None else np.multiply(a, b, out)
    turned = a.ndim == b.ndim == 2 and b.strides[0] == b.itemsize < b.strides[1]  # a @ wᵀ for a C-ordered weight w
    if turned and (kernel := _few_rows(b.T, a, out)) is not None:
        return kernel.forward(np, b.T, a, out)
    if multiplications >= COMPILED and threads.get_num_threads() > 1 and a.ndim == 2:
        address, count = gemm(a.dtype.char), threads.get_num_threads()
        kernel = _PRODUCTS.find("cpu", None, (a, b, out), {"address": address})
        if kernel is not None:
            chunks = 2 * count if multiplications >= BALANCED else count
            with one_thread():
                return kernel.forward(np, a, b, out, address=address, chunks=chunks, width=width)
    if turned and out is None and len(a) <= FEW and a.dtype == b.dtype:
        few = _by_few_rows(a, b, multiplications)
        if few is not None:
            return few
    # Products that OpenBLAS computes on one thread anyway, and dtypes that BLAS does not support, go to NumPy directly.
    single = multiplications <= SINGLE and a.ndim > 1 and a.shape[-2] > 1 and b.shape[-1] > 1
    if (
        (single and (a.shape[-2] * b.shape[-1] <= PLACED_TURNED or b.strides[-2] >= b.strides[-1]))
        or a.ndim < 2
        or b.ndim < 2
        or a.dtype != b.dtype
        or a.dtype.char not in "fd"
        or not (_counts or _openblas())
    ):
        return np.matmul(a, b, out)
    if out is None:
        if a.ndim == 2 == b.ndim:
            shape = a.shape[0], b.shape[1]
        else:
            shape = *np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]
        out = np.empty(shape, a.dtype)
    if single:
        return matmul(a, b, out)
    if multiplications < LARGE or threads.get_num_threads() == 1:
        with one_thread():
            return matmul(a, b, out)
    run(matmul, _cut(a, b, out, min(2 * threads.get_num_threads(), 2 * multiplications // LARGE)))
    return out


def matmul(a, b, out):
    """Returns np.matmul(a, b, out) on one thread; for few rows, in blocks of columns that OpenBLAS multiplies in place.

    Repacking a weight takes as long as the products of 16 rows, see IN_PLACE.
    """
    width = _block(a, b)
    if not width:
        return np.matmul(a, b, out)
    # View b and out as batches of column blocks, without copying. The remaining columns are a separate product.
    rest = b.shape[1] % width
    b_full, out_full = (b[:, :-rest], out[:, :-rest]) if rest else (b, out)
    b_blocks = b_full.reshape(len(b), -1, width).transpose(1, 0, 2)
    np.matmul(a, b_blocks, out_full.reshape(len(a), -1, width).transpose(1, 0, 2))
    if rest:
        np.matmul(a, b[:, -rest:], out[:, -rest:])
    return out


def repeated(b):
    """Returns a function (a, out) like `matmul`, for many products with the same b of few rows.

    numba/linear.py reads a copy of bᵀ. OpenBLAS multiplies a block of b in place from the first-level cache if the rows of the block
    are not far apart, so the blocks of columns are copied once, each to contiguous memory.
    """
    if _counts is None:
        _openblas()
    if not _in_place and b.size >= SMALL:
        weight = np.ascontiguousarray(b.T)
        kernel = _few_rows(weight, weight[:1], None)
        if kernel is not None:
            return lambda a, out: kernel.forward(np, weight, a, out) if len(a) <= FEW else matmul(a, b, out)
    inner, columns = b.shape
    width = next(
        (w for w in range(min(CACHED // (inner or 1), columns - 1) // 16 * 16, 31, -16) if columns % w == 0), 0
    )
    if not width or not _in_place or b.dtype.char != "f":
        return lambda a, out: matmul(a, b, out)
    blocks = np.ascontiguousarray(b.reshape(inner, columns // width, width).transpose(1, 0, 2))

    def product(a, out):
        if not 1 < len(a) * inner * width <= PLACED:
            return matmul(a, b, out)
        np.matmul(a, blocks, out.reshape(len(out), -1, width).transpose(1, 0, 2))
        return out

    return product


def _block(a, b):
    """Returns the columns of a @ b to compute at a time; 0 for all at once: many rows, or too narrow blocks."""
    return width(a, b, b.shape[1]) if a.ndim == b.ndim == 2 else 0


def width(a, b, columns):
    """Returns the result of `_block` for this number of columns of b, a matrix."""
    if not _in_place or a.dtype.char != "f":
        return 0
    return _width(*a.shape, columns, b.strides[0] < b.strides[1])


@functools.lru_cache(4096)
def _width(rows, inner, columns, turned):
    """Returns the result of `_block` for matrices of these sizes, of which the second is column-major if `turned`."""
    if turned:
        few, most, least = rows, min(PLACED // (rows * inner or 1), PLACED_TURNED // (rows or 1)), 8
    else:
        few, most, least = 2 * min(rows, inner), PLACED // (rows * inner or 1), 48
    if not (1 < rows and 1 < few <= FEW and inner >= 2 and least <= most < columns):
        return 0
    width = most // 16 * 16 or 8
    # Equal blocks if possible: a narrow last block takes as long as a whole one.
    return next((w for w in range(width, least - 1, -16) if columns % w == 0), width)


def _few_rows(weight, rows, out):
    """Returns the kernel of `rows @ weightᵀ` if it is faster than BLAS, else None."""
    if not _in_place:
        fits = 0 < len(rows) <= FEW and weight.size >= SMALL
    else:
        fits = 0 < len(rows) <= (FAR_ROWS if weight.size > FAR else 1) and weight.size >= WEIGHTS
    return _FEW_ROWS.find("cpu", None, (weight, rows, out), {}) if fits else None


def _by_few_rows(a, b, multiplications):
    """Returns a @ b for few rows and a column-major b by other calls of BLAS that are faster; None if there are none."""
    if _block(a, b):
        return None
    transpose = TURNED <= multiplications and len(a) > 1
    if a.dtype.char not in "fd" or not (transpose or len(a) == 1) or not (_counts or _openblas()):
        return None
    if multiplications >= LARGE and threads.get_num_threads() > 1:
        return None
    with one_thread():
        return np.ascontiguousarray(np.matmul(b.T, a.T).T) if transpose else np.matmul(a, b)


def _cut(a, b, out, chunks):
    """Divides a product into the arguments of `chunks` products, along the batch or the longer axis of the matrix."""
    if out.ndim > 2 and len(out) >= chunks and a.ndim == b.ndim and len(a) == len(b):
        return [(a[i:j], b[i:j], out[i:j]) for i, j in bounds(len(out), chunks)]
    rows, columns = out.shape[-2:]
    if rows >= columns:
        return [(a[..., i:j, :], b, out[..., i:j, :]) for i, j in bounds(rows, chunks)]
    return [(a, b[..., i:j], out[..., i:j]) for i, j in bounds(columns, chunks)]


def bounds(length, chunks):
    """Returns (begin, end) of the chunks of an axis; for long axes at multiples of 16, the block size of BLAS."""
    step = 16 if length >= 32 * chunks else 1
    ends = [length * c // chunks // step * step for c in range(1, chunks)] + [length]
    return [(i, j) for i, j in zip([0, *ends], ends, strict=False) if i < j]
