"""How the library's own threads wait without the interpreter's lock, see kernels/threads.py."""

import platform

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ...base import hooks

_CELL = types.Array(types.int64, 1, "C")
GRACE = 120  # looks, of about 40 nanoseconds each
_HAS_PAUSE = platform.machine() in ("x86_64", "AMD64")


def _pointer(context, builder, signature, arguments):
    return context.make_array(signature.args[0])(context, builder, arguments[0]).data


@intrinsic
def _read(typing_context, cell):
    """cell[0] as another thread last wrote it, after a pause that leaves the core to its other hardware thread."""

    def generate(context, builder, signature, arguments):
        if _HAS_PAUSE:
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, pause, "llvm.x86.sse2.pause"), [])
        return builder.load_atomic(_pointer(context, builder, signature, arguments), "acquire", 8)

    return types.int64(cell), generate


@intrinsic
def _count(typing_context, cell):
    """Add 1 to cell[0], which other threads may do at the same time; what it was."""

    def generate(context, builder, signature, arguments):
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", _pointer(context, builder, signature, arguments), one, "release")

    return types.int64(cell), generate


@njit(types.int64(_CELL, types.int64, types.int64), nogil=True, cache=True)
def watch(cell, seen, looks):
    """cell[0] as soon as it is no longer `seen`, or after so many looks at it."""
    now = seen
    while now == seen and looks > 0:
        now = _read(cell)
        looks -= 1
    return now


@njit(types.int64(_CELL, _CELL, types.int64, types.int64), nogil=True, cache=True)
def rest(ended, posted, seen, looks):
    """Count one more that has ended its work, and watch for what is posted next.

    Who posts it holds Python's lock until its own chunk begins. A thread that asked for the lock before would sleep, and be woken
    too late: so it looks the other way for some microseconds.
    """
    _count(ended)
    now = watch(posted, seen, looks)
    if now != seen:
        watch(posted, now, GRACE)
    return now


hooks.watch, hooks.rest = watch, rest
