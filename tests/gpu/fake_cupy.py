"""A fake CuPy over NumPy, which runs the GPU code without a GPU.

It has exactly the functions, arguments and array attributes of a CuPy release (`cupy_names.json`). As in CuPy, its arrays do not
mix with NumPy arrays and are not converted implicitly. It does not simulate kernels or speed.
"""

import contextlib
import ctypes
import json
import mmap
import os
import sys
import types
import weakref
from pathlib import Path

import fake_pool
import numpy as np
from cupy_loops import OPERATORS, TABLE, as_cupy, loop_for

NAMES = json.loads(Path(__file__).with_name("cupy_names.json").read_text())


def unwrap(x):
    """Converts fake arrays in nested tuples, lists and dicts to NumPy arrays; raises an error for a NumPy array."""
    if isinstance(x, ndarray):
        return x._a
    if isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}: a NumPy array was given to a CuPy function")
    if isinstance(x, (tuple, list)):
        return type(x)(unwrap(v) for v in x) if type(x) in (tuple, list) else x
    return {k: unwrap(v) for k, v in x.items()} if isinstance(x, dict) else x


def wrap(x):
    if isinstance(x, (np.ndarray, np.generic)):
        return ndarray(np.asarray(x))
    if isinstance(x, tuple) and type(x) is not tuple and hasattr(x, "_fields"):
        return type(x)(*(wrap(v) for v in x))
    return type(x)(wrap(v) for v in x) if isinstance(x, (tuple, list)) else x


# -- devices: an array is on the device that was current at its creation, and only usable while this device is current ---------

_count = int(os.environ.get("FAKE_CUPY_DEVICES", "1"))
_current = 0


class CUDARuntimeError(RuntimeError):
    """Raised by CuPy for a CUDA error."""


def _arrays_in(x):
    if isinstance(x, ndarray):
        if _late:
            catch_up()  # the GPU does things in order
        yield x
    elif isinstance(x, (tuple, list)):
        for item in x:
            yield from _arrays_in(item)
    elif isinstance(x, dict):
        yield from _arrays_in(list(x.values()))


def check(*inputs, result=None):
    """Raises an error for an array that is not on the current device. Creating a view is always allowed."""
    if _count == 1 and not _late:
        return
    wrong = [a for a in _arrays_in(inputs) if a._device != _current]
    if not wrong or (isinstance(result, np.ndarray) and _is_view(result, wrong[0]._a)):
        return
    if isinstance(result, (tuple, list)) and all(_is_view(r, wrong[0]._a) for r in result):
        return
    raise ValueError(
        f"Array device must be same as the current device: array device = {wrong[0]._device} while current = {_current}"
    )


def _is_view(a, of):
    return isinstance(a, np.ndarray) and (np.may_share_memory(a, of) or a.size == of.size == 0)


def _set_device(number):
    global _current
    if not 0 <= number < _count:
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    _current = number


# -- graphs: captured calls are recorded and run at each launch -----------------------------------------------------------

_tape = None
_memory = []  # memory allocated during capture, which belongs to the graph


class CaptureRefused(RuntimeError):
    """Raised for operations that CUDA forbids on a stream during capture."""


def run(call, mutates=False):
    """Returns the result of `call`, a function of NumPy arrays; during capture, records it and delays changes of arrays."""
    if _tape is None and not _is_late():
        return call()
    todo = _queue() if _tape is None else _tape
    if mutates:
        todo.append(call)
        return None
    result = _solid(call())
    if _tape is None:
        result = _in_blocks(result)
    todo.append(lambda: _refresh(result, call()))
    return result


def _solid(x):
    """NumPy's scalars as arrays, which have memory."""
    if isinstance(x, np.generic):
        return np.asarray(x)
    return type(x)(map(_solid, x)) if type(x) in (tuple, list) else x


def _refresh(old, new):
    if isinstance(old, (tuple, list)):
        for a, b in zip(old, new, strict=True):
            _refresh(a, b)
    elif isinstance(old, np.ndarray) and not (isinstance(new, np.ndarray) and np.may_share_memory(old, new)):
        old[...] = new


# -- a GPU behind the host: memory that is free is used again at once, and other streams than the default stream are late --------


class _Block(bytearray):
    """Memory of a stream. It is free when the last array in it dies, even if late work still uses it."""


_free = None  # (stream, bytes) -> free blocks; None: all streams work at once, and no memory is used twice
_queues = {}  # stream -> [number of finished calls, calls to do]
_switches = []  # the streams that are late, or None for all but the default stream


@contextlib.contextmanager
def behind(*late):
    """Within the block, these streams work as late as possible, and freed memory is given to the next array of its stream.

    Args:
        late: addresses of streams (default: all but the default stream).
    """
    global _free
    before, _free = _free, {}
    _switches.append(late or None)
    try:
        yield
    finally:
        drain()
        _switches.pop()
        _free = before


def _is_late(pointer=None):
    if not _switches:
        return False
    pointer = _current_stream().ptr if pointer is None else pointer
    return pointer != 0 if _switches[-1] is None else pointer in _switches[-1]


def _queue(pointer=None):
    """Returns the calls that a stream still has to do."""
    return _queues.setdefault(_current_stream().ptr if pointer is None else pointer, [0, []])[1]


def _given_to(pointer):
    """Returns the number of calls that a stream was given."""
    done, todo = _queues.get(pointer, (0, ()))
    return done + len(todo)


def drain(pointer=None, until=None):
    """Lets a stream, or all streams, do the calls that they were given, up to number `until`."""
    for key in list(_queues) if pointer is None else [pointer] if pointer in _queues else []:
        queue = _queues[key]
        while queue[1] and (until is None or queue[0] < until):
            call = queue[1].pop(0)
            queue[0] += 1
            call()


def _block(nbytes):
    """Returns memory for a new array of the current stream: the block that was freed last, if one of this size is free."""
    free = _free.setdefault((_current_stream().ptr, nbytes), [])
    return free.pop() if free else _Block(max(nbytes, 1))


def _in_blocks(x, copy=False):
    """Moves NumPy arrays that own their memory into blocks."""
    if type(x) in (tuple, list):
        return type(x)(_in_blocks(v, copy) for v in x)
    if type(x) is not np.ndarray or not x.flags.owndata or not x.nbytes:
        return x
    block = np.ndarray(x.shape, x.dtype, _block(x.nbytes), order="F" if x.flags.fnc else "C")
    if copy:
        run(lambda: np.copyto(block, x), mutates=True)
    return block


class HiddenWait(AssertionError):
    """The host waited for the GPU within `no_sync`."""


_forbidden = False


@contextlib.contextmanager
def no_sync():
    """Within the block, any call that makes the host wait for the GPU raises HiddenWait."""
    global _forbidden
    before, _forbidden = _forbidden, True
    try:
        yield
    finally:
        _forbidden = before


# -- copies between page-locked memory and the GPU: done when something on the GPU needs them, or the host waits -----------------

_late = []  # pending work of the stream
_done = _given = 0


def _later(memory, copy):
    """Delays a copy from or to page-locked memory; the memory must still exist when the copy runs."""
    global _given
    if _tape is not None:
        return run(copy, mutates=True)
    alive = weakref.ref(memory)

    def checked():
        if alive() is None:
            raise AssertionError("page-locked memory was freed before a copy was done")
        copy()

    if _is_late():
        return _queue().append(checked)
    _late.append(checked)
    _given += 1


def catch_up():
    """Runs the delayed copies."""
    global _done
    while _late:
        _late.pop(0)()
    _done = _given


class PinnedMemoryPointer(mmap.mmap):
    """Page-locked memory: a separate buffer."""

    def __new__(cls, size):
        return mmap.mmap.__new__(cls, -1, max(size, 1))


_pinned = weakref.WeakSet()


def _empty_pinned(shape, dtype=float, order="C"):
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    memory = PinnedMemoryPointer(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
    _pinned.add(memory)
    return np.ndarray(shape, dtype, buffer=memory, order=order)


def _pinned_at(address):
    for memory in _pinned:
        start = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
        if start <= address < start + len(memory):
            return memory
    return None


def refuse_copy(direction):
    """CuPy's copies between host and device cannot be captured, although CUDA supports it."""
    if _tape is not None:
        raise RuntimeError(f"the current stream is capturing, so {direction} transfers are disallowed")


def _memcpy_async(dst, src, size, kind, stream):
    """cudaMemcpyAsync between page-locked memory and the GPU."""
    if stream != _current_stream().ptr:
        raise AssertionError("a copy on another stream than the current one")
    memory = _pinned_at(src if kind == 1 else dst)
    if memory is None:
        raise AssertionError("memcpyAsync was given host memory that is not page-locked")
    _later(memory, lambda: ctypes.memmove(dst, src, size))


def waits(what):
    """Marks a wait of the host for the GPU, which raises an error during capture and inside `no_sync`."""
    if _forbidden:
        raise HiddenWait(what)
    catch_up()
    if _tape is None:
        drain()
    if _tape is not None:
        raise CaptureRefused(
            f"cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing ({what})"
        )


class _Graph:
    def __init__(self, tape, memory):
        self._tape, self._memory = tape, memory

    def launch(self, stream=None):
        if _tape is not None:
            raise CaptureRefused("a graph was launched while a stream is captured")
        catch_up()
        for call in self._tape:
            call()

    def upload(self, stream=None):
        return None

    def debug_dot_str(self, flags=0):
        return "digraph dot {\n}\n"


def _begin_capture():
    global _tape, _memory
    if _tape is not None:
        raise CaptureRefused("the stream is being captured already")
    _tape, _memory = [], []
    launch = sys.modules.get("mytorch.kernels.launch")
    if launch is not None:
        interpret = launch.interpret
        launch.interpret = lambda *args: run(lambda: interpret(*args), mutates=True)
        _tape_end.append(lambda: setattr(launch, "interpret", interpret))


_tape_end = []


def _end_capture():
    global _tape
    tape, _tape = _tape, None
    while _tape_end:
        _tape_end.pop()()
    return _Graph(tape, _memory)


class _Current:
    """Base class of objects that can be current: devices and streams."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def use(self):
        return self

    def synchronize(self):
        waits("synchronize")


class _Device(_Current):
    def __init__(self, id=None):
        self.id = _current if id is None else id
        self.compute_capability = "90"
        self._before = []

    def __enter__(self):
        self._before.append(_current)
        return self.use()

    def __exit__(self, *error):
        _set_device(self._before.pop())

    def use(self):
        _set_device(self.id)
        return self

    def __eq__(self, other):
        return isinstance(other, _Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)


class _Flags:
    def __init__(self, a):
        self.c_contiguous = a.flags.c_contiguous
        self.f_contiguous = a.flags.f_contiguous
        self.owndata = a.flags.owndata


class _Piece:
    """A piece of the pool's memory, the same object for all arrays in it."""

    def __init__(self, owner):
        self._a = owner
        self.ptr, self.size = owner.__array_interface__["data"][0], -(-owner.nbytes // 512) * 512
        if _free is not None and isinstance(owner.base, _Block):
            free = _free.setdefault((_current_stream().ptr, owner.nbytes), [])
            weakref.finalize(self, free.append, owner.base).atexit = False


_pieces = weakref.WeakValueDictionary()


class _Memory:
    def __init__(self, array):
        self._array = array
        self._a = array._a

    @property
    def mem(self):
        return self._array._piece

    @property
    def ptr(self):
        return self._a.__array_interface__["data"][0]

    def copy_from_host_async(self, mem, size, stream=None):
        refuse_copy("H2D")
        check(self._array)
        memory = _pinned_at(mem)
        if memory is None:
            raise AssertionError("copy_from_host_async was given memory that is not page-locked")
        _later(memory, lambda a=self._a: ctypes.memmove(a.__array_interface__["data"][0], mem, size))


class ndarray:
    """An array "on the GPU": a NumPy array that only this module looks into."""

    __array_priority__ = 100
    __hash__ = None

    def __init__(self, a, dtype=None, memptr=None):
        if memptr is not None:  # a vector over allocated memory, which has exactly the requested size
            whole = memptr.mem._a.ravel(order="K").view(np.uint8)
            a = whole[: min(a[0] * np.dtype(dtype).itemsize, whole.size)].view(dtype)
        if _free is not None and _tape is None:
            a = _in_blocks(a, copy=True)
        self._a = a
        if _tape is not None:
            _memory.append(a)
        self.base = None
        owner = a
        while getattr(owner, "base", None) is not None and not isinstance(owner.base, _Block):
            owner = owner.base
        self._device = _current
        if owner is not a and isinstance(owner, np.ndarray):
            self.base = _owner_of(owner)
            self._device = self.base._device
        else:
            known = _owners.get(id(a))
            if known is not None and known._a is a:  # a function gave its argument back
                self._device = known._device
            fake_pool.allocate(a)
            _owners[id(a)] = self
        root = owner if isinstance(owner, np.ndarray) else a
        piece = _pieces.get(id(root))
        self._piece = piece if piece is not None and piece._a is root else _pieces.setdefault(id(root), _Piece(root))
        if memptr is not None:
            self.base = None

    device = property(lambda self: _Device(self._device))
    shape = property(lambda self: self._a.shape)
    dtype = property(lambda self: self._a.dtype)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    itemsize = property(lambda self: self._a.itemsize)
    nbytes = property(lambda self: self._a.nbytes)
    strides = property(lambda self: self._a.strides)
    flags = property(lambda self: _Flags(self._a))
    data = property(_Memory)
    T = property(lambda self: wrap(self._a.T))
    real = property(
        lambda self: wrap(self._a.real),
        lambda self, v: run(lambda a=self._a, v=unwrap(v): setattr(a, "real", v), mutates=True),
    )
    imag = property(
        lambda self: wrap(self._a.imag),
        lambda self, v: run(lambda a=self._a, v=unwrap(v): setattr(a, "imag", v), mutates=True),
    )
    __cuda_array_interface__ = property(lambda self: {**self._a.__array_interface__, "version": 3})

    def __array__(self, *args, **kwargs):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        if ufunc.__name__ not in NAMES["functions"][""]:
            return NotImplemented
        if out is not None:
            kwargs["out"] = unwrap(out)
        check(inputs, out)
        raw = unwrap(list(inputs))
        typed = method == "__call__" and out is None and "dtype" not in kwargs
        result = run(
            lambda: (
                as_cupy(ufunc.__name__, raw, ufunc(*raw, **kwargs)) if typed else getattr(ufunc, method)(*raw, **kwargs)
            ),
            mutates=out is not None,
        )
        if out is None:
            return wrap(result)
        return out[0] if len(out) == 1 else out

    def __array_function__(self, function, kinds, args, kwargs):
        name = function.__name__
        if name not in NAMES["functions"][""]:
            raise TypeError(f"CuPy has no {name}")
        return getattr(module, name)(*args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("_") or name not in NAMES["ndarray"]:
            raise AttributeError(f"CuPy's ndarray has no attribute {name!r}")
        a = self._a  # late work keeps the NumPy array, but not this object, with which the memory is freed
        method = getattr(a, name)

        def call(*args, **kwargs):
            if name in ("item", "tolist", "tobytes"):
                waits(name)
                return method(*args, **kwargs)
            raw, named = unwrap(list(args)), unwrap(kwargs)
            typed = name in TABLE and "dtype" not in kwargs and "out" not in kwargs
            mutates = name in ("fill", "sort", "partition", "put") or "out" in kwargs
            check(self if mutates else (), args, kwargs)
            result = run(
                lambda: as_cupy(name, [a], method(*raw, **named)) if typed else method(*raw, **named), mutates=mutates
            )
            check(self, args, kwargs, result=result)
            return wrap(result)

        return call

    def get(self, stream=None, order="C", out=None, blocking=True):
        if not blocking and out is not None:
            memory = _pinned_at(out.__array_interface__["data"][0])
            if memory is None and out.size:
                raise AssertionError("get(blocking=False) was given memory that is not page-locked")
            _later(memory, lambda a=self._a: np.copyto(out, a))
            return out
        waits("get")
        _compact(self._a)
        if out is not None:
            out[...] = self._a
            return out
        return self._a.copy(order=order)

    def set(self, arr, stream=None):
        refuse_copy("H2D")
        if not isinstance(arr, np.ndarray) or self.dtype != arr.dtype:
            raise TypeError("set takes NumPy arrays of the same dtype only")
        if self.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        if _pinned_at(arr.__array_interface__["data"][0]) is not None:
            raise AssertionError("set reads page-locked memory later, but the memory has no reference")
        catch_up()
        self._a[...] = arr

    def __getitem__(self, index):
        check(index)
        index = _index(index)
        if any(
            isinstance(i, np.ndarray) and i.dtype == bool for i in (index if isinstance(index, tuple) else (index,))
        ):
            waits("a mask as an index")
        items = index if isinstance(index, tuple) else (index,)
        if not any(isinstance(i, (np.ndarray, list)) for i in items) and Ellipsis not in items:
            index = (*items, ...)  # NumPy returns a number here, CuPy returns a view
        result = run(lambda a=self._a: a[index])
        check(self, result=result)
        return wrap(result)

    def __setitem__(self, index, value):
        check(self, index, value)
        index, value = _index(index), unwrap(value)
        run(lambda a=self._a: a.__setitem__(index, value), mutates=True)

    def __len__(self):
        return len(self._a)

    def __bool__(self):
        waits("bool()")
        return bool(self._a)

    def __int__(self):
        waits("int()")
        return int(self._a)

    def __float__(self):
        waits("float()")
        return float(self._a)

    def __complex__(self):
        waits("complex()")
        return complex(self._a)

    def __iter__(self):
        return (self[i] for i in range(len(self._a)))

    def __repr__(self):
        return repr(self._a)

    def __dlpack__(self, *args, **kwargs):
        return self._a.__dlpack__(max_version=kwargs.get("max_version"))

    def __dlpack_device__(self):
        return (2, self._device)


_owners = weakref.WeakValueDictionary()


def _owner_of(a):
    """Returns the unique fake array of a NumPy array that owns memory, so `base` can be compared by identity."""
    found = _owners.get(id(a))
    return found if found is not None and found._a is a else ndarray(a)


def _index(index):
    items = index if isinstance(index, tuple) else (index,)
    out = []
    for item in items:
        if isinstance(item, ndarray):
            item = item._a
        out.append(item)
    return tuple(out) if isinstance(index, tuple) else out[0]


def _operator(name):
    def forward(self, *others):
        for other in others:
            if isinstance(other, np.ndarray):
                raise TypeError(f"Unsupported type {type(other)}")
        if name.strip("_") in ("matmul", "rmatmul"):
            cublas()
        check(self, others)
        raw = unwrap(list(others))
        in_place = name.startswith("__i") and name != "__invert__"
        plain = name.strip("_") if name.strip("_") in OPERATORS else name.strip("_")[1:]
        inputs = [self._a, *raw] if name == f"__{plain}__" else [*raw, self._a]
        typed = (
            plain in OPERATORS
            and not in_place
            and all(isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)) for x in raw)
        )
        method = getattr(self._a, name)
        result = run(
            lambda: as_cupy(OPERATORS[plain], inputs, method(*raw)) if typed else method(*raw), mutates=in_place
        )
        if in_place:
            return self
        return result if result is NotImplemented else wrap(result)

    return forward


for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    for _form in (f"__{_name}__", f"__r{_name}__", f"__i{_name}__"):
        setattr(ndarray, _form, _operator(_form))
for _name in "lt le gt ge eq ne neg pos abs invert divmod rdivmod".split():
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


def cublas():
    """CuPy refuses its own calls of cuBLAS under capture."""
    if _tape is not None:
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


SORTS = ("sort", "argsort", "lexsort", "msort", "partition", "argpartition", "unique", "sort_complex", "isin")


def _through_where(own):
    """clip, tril and triu have no loop for bfloat16 and return float32."""
    return lambda x, *args, **kwargs: own(x.astype(np.float32) if x.dtype.kind == "V" else x, *args, **kwargs)


linalg_errors = "ignore"


def _silent(own):
    """Returns numbers instead of an error for a singular matrix, unless `errstate(linalg="raise")` is active."""

    def solver(*args):
        if own.__name__ == "solve" and args[1].ndim > 1 and args[0].shape[:-1] != args[1].shape[:-1]:
            raise ValueError("a must have (..., M, M) shape and b must have (..., M, K) for multidimensional b")
        try:
            return own(*args)
        except np.linalg.LinAlgError:
            if linalg_errors == "raise":
                raise
            return np.full_like(args[-1], np.nan)

    return solver


@contextlib.contextmanager
def _errstate(*, linalg):
    global linalg_errors
    before, linalg_errors = linalg_errors, linalg
    try:
        yield
    finally:
        linalg_errors = before


STRICT = {
    **dict.fromkeys(("clip", "tril", "triu"), _through_where),
    **dict.fromkeys(("cholesky", "inv", "solve"), _silent),
}  # fmt: skip


class _Functions(types.ModuleType):
    """A module of NumPy functions, restricted to the names and arguments of CuPy."""

    def __init__(self, name, table, numpy_module):
        super().__init__(name)
        self._table, self._numpy = table, numpy_module

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._table:
            found = getattr(self._numpy, name, None)
            if (
                isinstance(found, type)
                or isinstance(found, (float, type(None)))
                and name in ("newaxis", "pi", "inf", "nan", "e")
            ):
                return found
            raise AttributeError(f"module 'cupy' has no attribute {name!r}")
        own = STRICT.get(name, lambda function: function)(getattr(self._numpy, name))
        allowed = self._table[name]

        def function(*args, **kwargs):
            if allowed is not None and "kwargs" not in allowed:
                for key in kwargs:
                    if key not in allowed:
                        raise TypeError(f"cupy.{name}() got an unexpected keyword argument {key!r}")
            out = kwargs.get("out")
            if name in SORTS and any(x.dtype.name == "bfloat16" for x in args if isinstance(x, ndarray)):
                raise NotImplementedError("Sorting arrays with dtype 'bfloat16' is not supported")  # Thrust's
            if name in ("matmul", "dot", "vdot", "inner", "tensordot", "einsum"):
                cublas()
            if name in ("concatenate", "stack", "hstack", "vstack") and len(args[0]) > 8:
                refuse_copy("H2D")  # a table of addresses
            if name == "empty" and isinstance(
                getattr(fake_pool.get_allocator(), "__self__", None), fake_pool.DefaultPool
            ):
                return ndarray(own(*args, **kwargs))  # outside a graph's pool: no replay writes other things there
            if name in ("nonzero", "flatnonzero", "argwhere", "unique", "compress", "extract") or (
                name == "where" and len(args) == 1
            ):
                waits(name)
            if name in ("array", "asarray", "ascontiguousarray", "asfortranarray", "asanyarray"):
                blocking = kwargs.pop("blocking", False)
                if hasattr(args[0], "__cuda_array_interface__") and not isinstance(args[0], ndarray):
                    args = (_at(args[0].__cuda_array_interface__), *args[1:])
                if isinstance(args[0], ndarray):
                    if args[0]._device != _current:
                        return ndarray(np.array(own(args[0]._a, *args[1:], **kwargs)))  # a copy between devices
                    made = run(lambda: own(args[0]._a, *args[1:], **kwargs))
                    return args[0] if made is args[0]._a else ndarray(made)
                host = own(*args, **kwargs)
                if _tape is not None or blocking:
                    waits("a copy from the host")
                elif (
                    isinstance(args[0], np.ndarray)
                    and (memory := _pinned_at(host.__array_interface__["data"][0])) is not None
                ):
                    there = np.empty_like(host)  # straight from where the caller may write next
                    _later(memory, lambda: np.copyto(there, host))
                    return ndarray(there)
                return ndarray(np.array(host))  # a copy "on the GPU", by way of CuPy's own page-locked memory
            raw, named = unwrap(list(args)), unwrap(kwargs)
            mutates = isinstance(out, ndarray) or name in ("copyto", "put", "place", "put_along_axis", "fill_diagonal")
            typed = name in TABLE and out is None and "dtype" not in kwargs
            count = len(TABLE[name][0][0]) if typed else 0
            if mutates:
                check(args, kwargs)
            else:
                list(_arrays_in((args, kwargs)))  # copies that were put off
            result = run(
                lambda: (
                    as_cupy(name, raw[:count] if len(raw) >= count else [], own(*raw, **named))
                    if typed
                    else own(*raw, **named)
                ),
                mutates,
            )
            check(args, kwargs, result=result)
            return out if isinstance(out, ndarray) else wrap(result)

        function.__name__ = name
        return function


class _Strides(_Functions):
    """CuPy's as_strided returns arrays without a reference to the owner of the memory."""

    def __getattr__(self, name):
        function = super().__getattr__(name)

        def strided(*args, **kwargs):
            made = function(*args, **kwargs)
            made.base = None
            return made

        return strided


class _Generator:
    def __init__(self, seed):
        self._g = np.random.Generator(np.random.PCG64(seed))
        self._device = _current

    def __getattr__(self, name):
        if name.startswith("_") or name not in NAMES["generator"]:
            raise AttributeError(f"cupy.random.Generator has no {name!r}")
        draw = getattr(self._g, name)
        if self._device != _current:
            raise ValueError("a generator is used while another device is current")
        return lambda *args, **kwargs: (
            check(args, kwargs) or wrap(np.asarray(draw(*unwrap(list(args)), **unwrap(kwargs))))
        )


class _Stream(_Current):
    null = None

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=0):
        self.ptr = 0 if null or _Stream.null is None else id(self)
        self.device_id = -1 if self.ptr == 0 else _current

    def begin_capture(self, mode=None):
        _begin_capture()

    def end_capture(self):
        return _end_capture()

    def is_capturing(self):
        return _tape is not None

    def record(self, event=None):
        event = event or _Event()
        event.record(self)
        return event

    def wait_event(self, event):
        self.matches()
        stream, until = event._stream, event._number
        if _is_late(self.ptr):
            _queue(self.ptr).append(lambda: drain(stream, until))
        else:
            drain(stream, until)

    @property
    def done(self):
        return not _queue(self.ptr)

    def matches(self):
        """Refuse a stream of another device than the current one."""
        if self.device_id not in (-1, _current):
            raise RuntimeError(
                f"This stream was created on device {self.device_id}, but the current device is {_current}"
            )

    def __enter__(self):
        """Stores the current object, as CuPy does; `__exit__` restores it even after a call of `use`."""
        self.matches()
        _entered().append(self)
        _entered_on.append(_current)
        return self.use()

    def __exit__(self, *error):
        device = _entered_on.pop()
        _entered(device).pop()
        before = _entered(device)[-1]
        _streams[_current if before.device_id < 0 else before.device_id] = before

    def use(self):
        self.matches()
        _streams[_current if self.device_id < 0 else self.device_id] = self
        return self


_Stream.null = _Stream(null=True)
_streams, _stacks, _entered_on = (
    {},
    {},
    [],
)  # of each device: the current one, and those entered; the devices of all entered


def _entered(device=-1):
    """The streams of a device that were entered, and below them the null stream."""
    return _stacks.setdefault(_current if device < 0 else device, [_Stream.null])


def _current_stream(device_id=-1):
    return _streams.get(_current if device_id < 0 else device_id, _Stream.null)


def _compact(a):
    """A strided array is copied first, within `with stream` of the null stream."""
    if not (a.flags.c_contiguous or a.flags.f_contiguous):
        with _Stream.null:
            pass


class _Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self._mark = 0
        self._stream, self._number = 0, 0
        self._device = _current
        self.ptr = id(self)

    @property
    def done(self):
        return _done >= self._mark and _queues.get(self._stream, (self._number,))[0] >= self._number

    def record(self, stream=None):
        (stream or _current_stream()).matches()
        if self._device != _current:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
        self._mark = _given
        self._stream = (stream or _current_stream()).ptr
        self._number = _given_to(self._stream)

    def synchronize(self):
        waits("synchronize")


def _at(interface):
    """The array whose memory an object's __cuda_array_interface__ names."""
    address = interface["data"][0]
    for owner in list(_owners.values()):
        start = owner._a.__array_interface__["data"][0]
        if start <= address < start + max(owner._a.nbytes, 1):
            memory = owner._a.reshape(-1).view(np.uint8)[address - start :]
            found = np.ndarray(
                interface["shape"], np.dtype(interface["typestr"]), memory, strides=interface.get("strides")
            )
            return ndarray(found)
    raise ValueError("no array has the address of this __cuda_array_interface__")


def _from_dlpack(x):
    found = ndarray(np.from_dlpack(x))
    kind, number = x.__dlpack_device__()
    if kind != 2:
        raise TypeError("CuPy takes DLPack's tensors on a GPU only")
    found._device = number
    return found


def _asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    waits("asnumpy")
    _compact(a._a if isinstance(a, ndarray) else np.asarray(a))
    return np.array(a._a if isinstance(a, ndarray) else a, order=order)


def _scatter(ufunc, kinds):
    """cupyx's scatter functions, for the dtypes that CuPy has atomic operations for."""

    def scatter(a, slices, value):
        items = slices if isinstance(slices, tuple) else (slices,)
        if a.dtype.char not in kinds and any(isinstance(i, ndarray) and i.dtype.kind in "iu" for i in items):
            raise TypeError(f"cupy.{ufunc.__name__}.at does not support {a.dtype} as data type")
        check(a, slices, value)
        run(lambda i=_index(slices), v=unwrap(value): ufunc.at(a._a, i, v), mutates=True)

    return scatter


def _special(function, x):
    check(x)
    dtype = loop_for(f"special.{function.__name__}", [x._a])[1][0]
    return wrap(run(lambda: np.asarray(np.frompyfunc(function, 1, 1)(x._a)).astype(dtype).reshape(x.shape)))


def install(devices=None):
    """Makes `import cupy` return the fake CuPy.

    Args:
        devices: number of fake GPUs (default: the environment variable FAKE_CUPY_DEVICES, or 1).
    """
    import math

    global _count
    _count = _count if devices is None else devices
    for name in ("fake_cupy", "fake_pool", "cupy_loops", "fake_cublaslt", "fake_cudnn"):
        if name in sys.modules:  # traces know the functions of a package by this name
            vars(sys.modules[name])["__name__"] = f"cupy.{name}"
    sys.modules.setdefault("cudnn", None)  # the real one would take these addresses for a GPU's
    np.seterr(all="ignore")  # CuPy does not warn
    tables = NAMES["functions"]
    global module
    module = _Functions("cupy", tables[""], np)
    module.__version__ = NAMES["cupy"]
    module.ndarray = ndarray
    module.asnumpy = _asnumpy
    module.linalg = _Functions("cupy.linalg", tables["linalg"], np.linalg)
    module.fft = _Functions("cupy.fft", tables["fft"], np.fft)
    module.lib = types.SimpleNamespace(
        stride_tricks=_Strides("cupy.lib.stride_tricks", tables["lib.stride_tricks"], np.lib.stride_tricks)
    )
    module.random = types.SimpleNamespace(
        default_rng=_Generator,
        Generator=lambda bits: _Generator(bits),
        XORWOW=lambda seed=None: seed,
        Philox4x3210=lambda seed=None: seed,
    )
    module.from_dlpack = _from_dlpack
    fake_pool.current = lambda: _current
    pool, pinned = fake_pool.DefaultPool(), fake_pool.MemoryPool()
    module.get_default_memory_pool, module.get_default_pinned_memory_pool = lambda: pool, lambda: pinned
    module.get_array_module = lambda *args: module if any(isinstance(a, ndarray) for a in args) else np
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: _count, getDevice=lambda: _current, setDevice=_set_device, memGetInfo=fake_pool.mem_get_info, runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13000, getDeviceProperties=lambda i: {"name": b"fake", "totalGlobalMem": fake_pool.TOTAL, "multiProcessorCount": 1, "major": 9, "minor": 0},
        deviceSynchronize=lambda: waits("deviceSynchronize"), memcpyAsync=_memcpy_async, memcpyHostToDevice=1, memcpyDeviceToHost=2,
    )  # fmt: skip
    cuda = types.ModuleType("cupy.cuda")
    cuda.__dict__.update(
        runtime=runtime, Device=_Device, Stream=_Stream, ExternalStream=_Stream, Event=_Event, MemoryPointer=lambda mem, offset: types.SimpleNamespace(mem=mem, ptr=mem.ptr + offset), MemoryPool=fake_pool.MemoryPool, using_allocator=fake_pool.using_allocator, get_current_stream=_current_stream,
        get_elapsed_time=lambda a, b: 0.0, PinnedMemoryPointer=PinnedMemoryPointer, memory=types.SimpleNamespace(OutOfMemoryError=fake_pool.OutOfMemoryError),
        is_available=lambda: True, MemoryHook=fake_pool.MemoryHook, get_allocator=fake_pool.get_allocator, set_allocator=fake_pool.set_allocator,
    )  # fmt: skip
    module.cuda = cuda
    nvtx = types.ModuleType("cupy.cuda.nvtx")
    nvtx.log, nvtx.available = [], True
    nvtx.RangePush = lambda message, id_color=-1: nvtx.log.append(message)
    nvtx.RangePop = lambda: nvtx.log.append(None)
    nvtx.Mark = lambda message, id_color=-1: nvtx.log.append(message)
    sys.modules["cupy.cuda.nvtx"] = nvtx
    runtime.deviceCanAccessPeer = lambda device, peer: int(device != peer)
    cupyx = types.ModuleType("cupyx")
    cupyx.scatter_add = _scatter(np.add, "iefdIQL")
    cupyx.scatter_max, cupyx.scatter_min = _scatter(np.maximum, "ifdIQL"), _scatter(np.minimum, "ifdIQL")
    cupyx.empty_pinned, cupyx.errstate = _empty_pinned, _errstate
    special = types.ModuleType("cupyx.scipy.special")
    special.erf = lambda x: _special(math.erf, x)
    special.erfc = lambda x: _special(math.erfc, x)
    cupyx.scipy = types.SimpleNamespace(special=special)
    nccl = types.ModuleType("cupy.cuda.nccl")
    nccl.available = False  # and no attribute of cupy.cuda until it is imported
    sys.modules.update(
        {
            "cupy": module,
            "cupy.cuda": cuda,
            "cupy.cuda.nccl": nccl,
            "cupyx": cupyx,
            "cupyx.scipy": types.ModuleType("cupyx.scipy"),
            "cupyx.scipy.special": special,
        }
    )
    return module


module = None
