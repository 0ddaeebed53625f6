"""Functions that let the library's own threads wait without the GIL, see kernels/threads.py."""

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...arrays import hooks
from .cache import cached

_CELL = types.Array(types.int64, 1, "C")
GRACE = 120  # polls, about 40 nanoseconds each
_HAS_PAUSE = platform.machine() in ("x86_64", "AMD64")


def _pointer(context, builder, signature, arguments):
    return context.make_array(signature.args[0])(context, builder, arguments[0]).data


@intrinsic
def _read(typing_context, cell):
    """Returns cell[0] by an atomic read, after a pause instruction that frees the core for its other hardware thread."""

    def generate(context, builder, signature, arguments):
        if _HAS_PAUSE:
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, pause, "llvm.x86.sse2.pause"), [])
        # acquire: later loads see all writes of the other thread before its release.
        return builder.load_atomic(_pointer(context, builder, signature, arguments), "acquire", 8)

    return types.int64(cell), generate


@intrinsic
def _count(typing_context, cell):
    """Atomically adds 1 to cell[0] and returns the old value."""

    def generate(context, builder, signature, arguments):
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", _pointer(context, builder, signature, arguments), one, "release")

    return types.int64(cell), generate


@cached(types.int64(_CELL, types.int64, types.int64), nogil=True)
def watch(cell, seen, looks):
    """Polls cell[0] until it differs from `seen`, at most `looks` times, and returns it."""
    now = seen
    while now == seen and looks > 0:
        now = _read(cell)
        looks -= 1
    return now


@cached(types.int64(_CELL, _CELL, types.int64, types.int64), nogil=True)
def rest(ended, posted, seen, looks):
    """Increments `ended`, and polls `posted` for the next job.

    The thread that submits a job holds the GIL until its own chunk begins. If another thread requested the GIL before, it would
    sleep and wake up too late. So it polls for a few more microseconds first.
    """
    _count(ended)
    now = watch(posted, seen, looks)
    if now != seen:
        watch(posted, now, GRACE)
    return now


hooks.watch, hooks.rest = watch, rest
