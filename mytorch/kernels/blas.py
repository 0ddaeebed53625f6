"""Matrix products on the CPU: BLAS computes them on one thread, and large ones are cut over the library's own threads.

OpenBLAS's threads spin after each product, see threads.py; so it is told to use one while it works for us, and the program's
number again afterwards. Another BLAS (Accelerate, MKL) is left alone: it takes each product whole.
"""

import contextlib
import ctypes
import os
import threading

import numpy as np

from ..backend import numpy_ns
from . import threads

SINGLE = 64**3  # multiplications up to which OpenBLAS takes one thread by itself, but for a vector
WEIGHTS, ROWS = 1 << 16, 8  # from how many weights, up to how many rows numba/linear.py is quicker than BLAS
FAR = 1 << 23  # weights that come from memory at each product
FEW = 64  # rows up to which `a @ wᵀ` is quicker as `(w @ aᵀ)ᵀ`, up to twice: OpenBLAS would lay out all of the larger w anew
TURNED = 9 << 14  # multiplications from which it does
LARGE = 2**22  # multiplications from which a product is worth several threads
# On these processors (those with AVX-512) OpenBLAS multiplies where the matrices lie, instead of laying them out anew, in products
# of up to so many multiplications, whose result has up to so many numbers where the second matrix lies column by column.
IN_PLACE, PLACED, PLACED_TURNED = ("SkylakeX", "Cooperlake", "SapphireRapids"), 10**6, 1200

_counts = None  # OpenBLAS's functions that get and set its number of threads; () where there are none
_in_place = False  # whether it has the kernels for that


def _openblas():
    """(get, set) of the OpenBLAS that NumPy brought along; () for another BLAS."""
    global _counts, _in_place
    if _counts is None:
        _counts = ()
        library = ctypes.PyDLL(np._core._multiarray_umath.__file__)  # looks into the libraries it depends on, too
        for form in ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads"):
            with contextlib.suppress(AttributeError):
                get, put = library[form.format("get")], library[form.format("set")]
                get.argtypes, get.restype, put.argtypes, put.restype = (), ctypes.c_int, (ctypes.c_int,), None
                _counts = get, put
                core = library[form.format("get").replace("num_threads", "corename")]
                core.argtypes, core.restype = (), ctypes.c_char_p
                _in_place = core().decode() in IN_PLACE
                break
    return _counts


class one_thread:
    """A context in which NumPy's products take one thread of BLAS; the last one that ends gives BLAS its own number back."""

    inside, before, lock = 0, 1, threading.Lock()

    def __enter__(self):
        get, put = _counts or _openblas() or (lambda: 1, None)
        with one_thread.lock:
            if not one_thread.inside:
                one_thread.before = get()
                if one_thread.before > 1:
                    put(1)
            one_thread.inside += 1

    def __exit__(self, *_):
        with one_thread.lock:
            one_thread.inside -= 1
            if not one_thread.inside and one_thread.before > 1:
                _counts[1](one_thread.before)


def _in_child():
    """The threads whose products were under way are not in a forked child."""
    one_thread.lock = threading.Lock()
    if one_thread.inside:
        one_thread.inside = 0
        if one_thread.before > 1:
            _counts[1](one_thread.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def run(function, calls):
    """threads.run(function, calls), while each call has one thread of BLAS."""
    with one_thread():
        threads.run(function, calls)


def product(a, b, out=None):
    """np.matmul(a, b, out), on the library's own threads if it is large."""
    multiplications = a.size * b.shape[-1]
    if a.shape[-1] == 1 and a.ndim > 1 < b.ndim:  # outer products
        return np.multiply(a, b, out)
    if (
        out is None
        and a.ndim == b.ndim == 2
        and len(a) <= FEW
        and b.strides[0] == b.itemsize < b.strides[1]
        and a.dtype == b.dtype
    ):
        few = _by_few_rows(a, b.T, multiplications)
        if few is not None:
            return few
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
        lead = a.shape[:-2] if a.ndim == 2 == b.ndim else np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*lead, a.shape[-2], b.shape[-1]), a.dtype)
    if single:
        return matmul(a, b, out)
    if multiplications < LARGE or threads.get_num_threads() == 1:
        with one_thread():
            return matmul(a, b, out)
    run(matmul, _cut(a, b, out, min(2 * threads.get_num_threads(), 2 * multiplications // LARGE)))
    return out


def matmul(a, b, out):
    """np.matmul(a, b, out) on one thread; for few rows in blocks of columns that OpenBLAS multiplies where they lie.

    To lay a weight out anew takes as long as 16 rows of products, see IN_PLACE.
    """
    width = _block(a, b)
    if not width:
        return np.matmul(a, b, out)
    whole = b.shape[1] // width * width
    of_b, of_out = (x[:, :whole].reshape(len(x), -1, width).transpose(1, 0, 2) for x in (b, out))
    np.matmul(a, of_b, of_out)
    if whole < b.shape[1]:
        np.matmul(a, b[:, whole:], out[:, whole:])
    return out


def _block(a, b):
    """How many columns of a @ b OpenBLAS should compute at a time; 0 where it should take all: many rows, or blocks too narrow."""
    if not _in_place or a.ndim != 2 or b.ndim != 2 or a.dtype.char != "f":
        return 0
    (rows, inner), columns = a.shape, b.shape[1]
    if b.strides[0] < b.strides[1]:
        few, most, least = rows, min(PLACED // (rows * inner or 1), PLACED_TURNED // (rows or 1)), 8
    else:
        few, most, least = 2 * min(rows, inner), PLACED // (rows * inner or 1), 48
    fits = 1 < rows and 1 < few <= FEW and inner >= 2 and least <= most < columns
    return (most // 16 * 16 or 8) if fits else 0


def _by_few_rows(a, w, multiplications):
    """a @ wᵀ of few rows, where there is a quicker way than BLAS's own; None where there is none."""
    if 0 < len(a) <= (ROWS if not _in_place else 4 if w.size > FAR else 1) and w.size >= WEIGHTS:
        return numpy_ns.rows_product(w, a)
    if _block(a, w.T):
        return None
    turned = TURNED <= multiplications and len(a) > 1
    if a.dtype.char not in "fd" or not (turned or len(a) == 1) or not (_counts or _openblas()):
        return None
    if multiplications >= LARGE and threads.get_num_threads() > 1:
        return None
    with one_thread():
        return np.ascontiguousarray(np.matmul(w, a.T).T) if turned else np.matmul(a, w.T)


def _cut(a, b, out, chunks):
    """The arguments of `chunks` products that make one: along the batch's first axis, or the longer one of the matrix."""
    if out.ndim > 2 and len(out) >= chunks and a.ndim == b.ndim and len(a) == len(b):
        return [(a[i:j], b[i:j], out[i:j]) for i, j in bounds(len(out), chunks)]
    rows, columns = out.shape[-2:]
    if rows >= columns:
        return [(a[..., i:j, :], b, out[..., i:j, :]) for i, j in bounds(rows, chunks)]
    return [(a, b[..., i:j], out[..., i:j]) for i, j in bounds(columns, chunks)]


def bounds(length, chunks):
    """(begin, end) of the chunks of an axis: at multiples of 16, of which BLAS's blocks are made, where it is long."""
    step = 16 if length >= 32 * chunks else 1
    ends = [length * c // chunks // step * step for c in range(1, chunks)] + [length]
    return [(i, j) for i, j in zip([0, *ends], ends, strict=False) if i < j]
