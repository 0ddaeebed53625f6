"""The part of the thread pool that runs in machine code, without the GIL: threads wait, and compute chunks of kernels.

A thread that needs the GIL to start a chunk starts 15 microseconds late, and as late for each further chunk. So `divide` writes a job into
memory that all threads poll, and they take its chunks by an atomic counter: in 2 microseconds instead of 20.

There is one job at a time. It is in cells of `state`, each in a cache line of its own:

* BUSY: 1 while a thread divides a job; another thread that wants to divide one meanwhile computes all chunks itself.
* JOB: 1 while threads may begin to help. A thread first counts itself in INSIDE and then reads JOB; the thread that divides the job
  first sets JOB to 0 and then waits until INSIDE is 0. So no thread reads a job that has ended.
* NEXT: the next chunk. CHUNKS, SIZE, HELPERS: number of chunks, `size` of `threads.split`, and most threads that help.
* RESULT: 1 if a chunk returned a true value. FAILED: 1 if a chunk raised an exception.
* TASK: address of the function that computes a chunk. It reads the arguments of the kernel, which are behind the cells.
* POSTED, ENDED: the counters of jobs of Python functions that kernels/threads.py submits, and of threads that finished them.
"""

import platform
import time

import numpy as np
from llvmlite import ir
from numba import typeof, types
from numba.core import cgutils
from numba.extending import intrinsic

from ...arrays import hooks
from .. import threads
from ..threads import ENDED, LINE, POSTED, cells
from .cache import cached
from .common import exact, exact_inlined

BUSY, JOB, INSIDE, NEXT, CHUNKS, SIZE, HELPERS, RESULT, FAILED, TASK, ARGUMENTS = (LINE * i for i in range(2, 13))
LATE, REFUSED = -1, -2  # outcomes of a job
_ROOM = cells.nbytes - 8 * ARGUMENTS  # bytes for the arguments
GRACE = 120  # polls, about 40 nanoseconds each
_HAS_PAUSE = platform.machine() in ("x86_64", "AMD64")
_STATE = types.Array(types.int64, 1, "C")
_INT, _BYTES = ir.IntType(64), ir.IntType(8).as_pointer()
_CHUNK = ir.FunctionType(ir.VoidType(), [_INT.as_pointer(), _INT])  # (cells, chunk)


def _cells(context, builder, signature, arguments):
    return context.make_array(signature.args[0])(context, builder, arguments[0]).data


def _cell(builder, cells, index):
    return builder.gep(cells, [ir.Constant(_INT, index) if isinstance(index, int) else index])


@intrinsic
def _read(typing_context, state, index):
    """Returns state[index] by an atomic read, after a pause instruction that frees the core for its other hardware thread."""

    def generate(context, builder, signature, arguments):
        if _HAS_PAUSE:
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, pause, "llvm.x86.sse2.pause"), [])
        cell = _cell(builder, _cells(context, builder, signature, arguments), arguments[1])
        return builder.load_atomic(cell, "seq_cst", 8)

    return types.int64(state, types.int64), generate


def _exchange(operation):
    @intrinsic
    def exchange(typing_context, state, index, value):
        """Atomically adds to state[index], or replaces it, and returns the old value."""

        def generate(context, builder, signature, arguments):
            cell = _cell(builder, _cells(context, builder, signature, arguments), arguments[1])
            return builder.atomic_rmw(operation, cell, arguments[2], "seq_cst")

        return types.int64(state, types.int64, types.int64), generate

    return exchange


_add, _put = _exchange("add"), _exchange("xchg")


@intrinsic
def _call_task(typing_context, state, chunk):
    """Computes a chunk of the current job."""

    def generate(context, builder, signature, arguments):
        cells = _cells(context, builder, signature, arguments)
        task = builder.inttoptr(builder.load(_cell(builder, cells, TASK)), _CHUNK.as_pointer())
        builder.call(task, [cells, arguments[1]])
        return context.get_dummy_value()

    return types.void(state, types.int64), generate


def _part(context, builder, kind, value, chunk, chunks, size):
    """Returns a chunk of an array along its first axis; the bounds are those of `threads.cut`."""
    array = context.make_array(kind)(context, builder, value)
    shape, strides = (cgutils.unpack_tuple(builder, a, kind.ndim) for a in (array.shape, array.strides))

    def bound(c):
        at = builder.udiv(builder.mul(shape[0], c), chunks)
        aligned = builder.and_(at, ir.Constant(_INT, -64))
        inner = builder.and_(builder.icmp_unsigned("==", shape[0], size), builder.icmp_unsigned("<", c, chunks))
        return builder.select(inner, aligned, at)

    begin, end = bound(chunk), bound(builder.add(chunk, ir.Constant(_INT, 1)))
    length, start = builder.sub(end, begin), builder.bitcast(array.data, _BYTES)
    array.data = builder.bitcast(builder.gep(start, [builder.mul(begin, strides[0])]), array.data.type)
    rows = builder.select(cgutils.is_null(builder, shape[0]), length.type(1), shape[0])
    array.nitems = builder.mul(builder.udiv(array.nitems, rows), length)
    array.shape = cgutils.pack_array(builder, [length, *shape[1:]])
    return array._getvalue()


def _borrowed(context, builder, kind, value):
    """Returns an array without its counter of references, which would pass between the threads all the time."""
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    return array._getvalue()


def _sliced(kind):
    """Returns the type of a chunk of an array: rows of a column-major matrix have gaps between its columns."""
    return kind.copy(layout="A") if kind.layout == "F" and kind.ndim > 1 else kind


@intrinsic
def _submit(typing_context, state, address, result, arrays, constants):
    """Writes a job for the kernel at an address into the state. `result` has the type of the kernel's result: None or a bool."""

    def generate(context, builder, signature, arguments):
        cells = _cells(context, builder, signature, arguments)
        kinds = [*map(_sliced, arrays.types), *constants.types]
        values = [
            _borrowed(context, builder, kind, builder.extract_value(arguments[i], j))
            for i, group in ((3, arrays), (4, constants))
            for j, kind in enumerate(group.types)
        ]
        record = ir.LiteralStructType([_INT, *(value.type for value in values)])
        if context.get_abi_sizeof(record) > _ROOM:
            raise NotImplementedError("the arguments of the kernel do not fit")

        task = ir.Function(builder.module, _CHUNK, builder.module.get_unique_name("task"))
        task.linkage = "internal"
        inside = ir.IRBuilder(task.append_basic_block())
        own, chunk = task.args
        chunks, size = (inside.load(_cell(inside, own, index)) for index in (CHUNKS, SIZE))
        place = inside.bitcast(_cell(inside, own, ARGUMENTS), record.as_pointer())
        loaded = [inside.load(cgutils.gep_inbounds(inside, place, 0, j)) for j in range(len(values) + 1)]
        function = inside.inttoptr(loaded.pop(0), context.call_conv.get_function_type(result, kinds).as_pointer())
        for j, kind in enumerate(arrays.types):
            loaded[j] = _part(context, inside, kind, loaded[j], chunk, chunks, size)
        status, value = context.call_conv.call_function(inside, function, result, kinds, loaded)
        one = ir.Constant(_INT, 1)
        with inside.if_then(status.is_error):
            inside.atomic_rmw("or", _cell(inside, own, FAILED), one, "seq_cst")
        if result != types.none:
            with inside.if_then(cgutils.is_not_null(inside, value)):
                inside.atomic_rmw("or", _cell(inside, own, RESULT), one, "seq_cst")
        inside.ret_void()

        place = builder.bitcast(_cell(builder, cells, ARGUMENTS), record.as_pointer())
        for j, value in enumerate([arguments[1], *values]):
            builder.store(value, cgutils.gep_inbounds(builder, place, 0, j))
        builder.store(builder.ptrtoint(task, _INT), _cell(builder, cells, TASK))
        return context.get_dummy_value()

    return types.void(state, address, result, arrays, constants), generate


@exact_inlined
def _work(state):
    """Computes chunks of the current job until none is left."""
    chunk = _add(state, NEXT, 1)
    while chunk < state[CHUNKS]:
        _call_task(state, chunk)
        chunk = _add(state, NEXT, 1)


@exact_inlined
def _finish(state, looks):
    while _read(state, INSIDE) > 0:
        looks -= 1
        if looks <= 0:
            return LATE
    outcome = 2 * state[FAILED] + state[RESULT]
    _put(state, BUSY, 0)
    return outcome


@exact
def _divided(state, address, result, chunks, size, helpers, looks, arrays, constants):
    if _put(state, BUSY, 1) != 0:
        return REFUSED
    state[NEXT] = state[RESULT] = state[FAILED] = 0
    state[CHUNKS], state[SIZE], state[HELPERS] = chunks, size, helpers
    _submit(state, address, result, arrays, constants)
    _put(state, JOB, 1)
    _work(state)
    _put(state, JOB, 0)
    return _finish(state, looks)


@cached(types.int64(_STATE, types.int64), nogil=True)
def finish(state, looks):
    """Waits for the threads that help with the current job, and ends it.

    Returns:
        LATE if they need longer than this number of looks; otherwise 1 if a chunk returned a true value, plus 2 if one failed.
    """
    return _finish(state, looks)


@cached(types.int64(_STATE, types.int64, types.int64, types.int64), nogil=True)
def watch(state, index, seen, looks):
    """Polls state[index] until it differs from `seen`, at most `looks` times, and returns it."""
    now = seen
    while now == seen and looks > 0:
        now = _read(state, index)
        looks -= 1
    return now


@cached(types.int64(_STATE, types.int64, types.int64), nogil=True)
def rest(state, seen, looks):
    """Increments ENDED, and polls for a job of a Python function, whose counter POSTED it returns. Meanwhile it helps with other jobs.

    The thread that submits a job of a Python function holds the GIL until its own chunk begins. If another thread requested the GIL
    before, it would sleep and wake up too late. So it polls for a few more microseconds first.
    """
    _add(state, ENDED, 1)
    left = looks
    while left > 0:
        now = _read(state, POSTED)
        if now != seen:
            watch(state, POSTED, now, GRACE)
            return now
        if _read(state, JOB):
            if _add(state, INSIDE, 1) < state[HELPERS] and _read(state, JOB):
                _work(state)
                left = looks
            _add(state, INSIDE, -1)
        left -= 1
    return seen


_RESULTS = {types.none: None, types.boolean: False}  # types of results of kernels -> a value of the type
_prepared = {}  # kernel and types of its arguments -> (address of its machine code, value of _RESULTS); None if it cannot be divided


def _type(value):
    """Returns what determines Numba's type of a value, in less time than Numba needs."""
    if type(value) is np.ndarray:
        return value.dtype.char, value.ndim, value.flags.num
    return tuple(map(_type, value)) if type(value) is tuple else type(value)


def _prepare(kernel, arrays, constants):
    if not hasattr(kernel, "overloads"):
        return None
    kinds = (*(_sliced(typeof(a)) for a in arrays), *map(typeof, constants))
    kernel.compile(kinds)
    compiled = kernel.overloads[kinds]
    if (result := compiled.signature.return_type) not in _RESULTS:
        return None
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name), _RESULTS[result]


def divide(kernel, chunks, size, helpers, arrays, constants):
    """Calls kernel(*chunks of the arrays, *constants) for each chunk, with this number of helping threads.

    Returns:
        True if any call returned a true value; None if the kernel cannot be divided here, or another thread divides one.
    """
    arguments = *arrays, *constants
    key = kernel, tuple(map(_type, arguments)), len(arrays)
    if key not in _prepared:
        _prepared[key] = _prepare(kernel, arrays, constants)
    if _prepared[key] is None:
        return None
    outcome = _divided(cells, *_prepared[key], chunks, size or 0, helpers, threads.LOOKS, arrays, constants)
    if outcome == REFUSED:
        return None
    if outcome == LATE:  # other programs occupy the cores of the threads that help
        try:
            outcome = _sleep()
        finally:  # also after Ctrl-C: they use the arrays
            outcome = outcome if outcome >= 0 else _sleep()
    if outcome >= 2:
        return kernel(*arguments)  # which raises the exception
    return outcome == 1


def _sleep():
    while (outcome := finish(cells, threads.LOOKS)) == LATE:
        time.sleep(1e-4)
    return outcome


hooks.watch, hooks.rest, hooks.divide = watch, rest, divide
