"""Matrix products that threads divide in machine code, each chunk by OpenBLAS: float32 and float64.

Since BLAS is called by its address and not through NumPy, no thread needs the GIL. So dividing pays for smaller products.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .. import threads
from .common import exact

_INT, _ENUM = ir.IntType(64), ir.IntType(32)
_ROW_MAJOR, _COLUMN_MAJOR, _PLAIN, _TRANSPOSED = 101, 102, 111, 112  # of cblas.h


@intrinsic
def _call(typing_context, address, order, a_form, b_form, m, n, k, a, a_step, b, b_step, out, out_step):
    """Calls cblas_?gemm: out = a @ b for (m, k) and (k, n) matrices whose rows or columns are `step` elements apart."""

    def generate(context, builder, signature, values):
        address, *forms, m, n, k, a, a_step, b, b_step, out, out_step = values
        datas = [
            context.make_array(signature.args[i])(context, builder, x).data for i, x in ((7, a), (9, b), (11, out))
        ]
        pointer = datas[0].type
        arguments = [_ENUM] * 3 + [_INT] * 3 + [pointer.pointee, *[pointer, _INT] * 2, pointer.pointee, pointer, _INT]
        function = builder.inttoptr(address, ir.FunctionType(ir.VoidType(), arguments).as_pointer())
        one, zero = ir.Constant(pointer.pointee, 1), ir.Constant(pointer.pointee, 0)
        forms = [builder.trunc(form, _ENUM) for form in forms]
        a, b, out = datas
        builder.call(function, [*forms, m, n, k, one, a, a_step, b, b_step, zero, out, out_step])
        return context.get_dummy_value()

    integers = [types.int64] * 3
    return types.void(types.int64, *integers, *integers, a, types.int64, b, types.int64, out, types.int64), generate


@exact
def _multiply(a, out, b, step, address):
    """Computes out = a @ b, `step` rows at a time."""
    size = a.itemsize
    by_row, a_by_row, b_by_row = out.strides[1] == size, a.strides[1] == size, b.strides[1] == size
    order = _ROW_MAJOR if by_row else _COLUMN_MAJOR
    a_form = _PLAIN if a_by_row == by_row else _TRANSPOSED
    b_form = _PLAIN if b_by_row == by_row else _TRANSPOSED
    for i in range(0, len(a), step):
        x, to = a[i : i + step], out[i : i + step]
        _call(
            address, order, a_form, b_form, len(x), b.shape[1], b.shape[0],
            x, x.strides[0 if a_by_row else 1] // size, b, b.strides[0 if b_by_row else 1] // size,
            to, to.strides[0 if by_row else 1] // size,
        )  # fmt: skip


def _is_plain(x):
    """Returns True if BLAS accepts a matrix without a copy: its rows or columns are contiguous and do not overlap."""
    (rows, columns), (down, right), size = x.shape, x.strides, x.itemsize
    return rows > 1 < columns and (
        (right == size and down >= columns * size) or (down == size and right >= rows * size)
    )


def accepts(a, b, out, *, address):
    """Accepts matrices of one dtype with rows or columns that are contiguous, and the address of a function of BLAS."""
    return (
        address is not None
        and a.ndim == b.ndim == 2
        and a.dtype == b.dtype
        and a.shape[1] == b.shape[0]
        and _is_plain(a)
        and _is_plain(b)
        and (out is None or _is_plain(out))
    )


def forward(xp, a, b, out, *, address, chunks, width):
    """Returns a @ b, in `out` if it is given.

    Args:
        address: address of OpenBLAS's function for the dtype.
        chunks: number of chunks of the longer axis of the result.
        width: function of a, b and a number of columns that returns how many of them OpenBLAS should compute at a time; 0 for all.
    """
    out = np.empty((len(a), b.shape[1]), a.dtype) if out is None else out
    rows, columns = out.shape
    if rows >= columns:
        x, y, to, step = a, b, out, rows
    else:
        x, y, to, step = b.T, a.T, out.T, width(a, b, -(-columns // chunks)) or columns
    threads.in_chunks(_multiply, chunks, (x, to), y, step, address, size=len(x))
    return out
