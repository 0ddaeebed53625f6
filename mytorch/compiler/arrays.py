"""Arrays that record the operations on them.

A `TracedArray` wraps a NumPy array and behaves like it. Each operation runs on the wrapped array, and is added to the `Tape`
as a `Step`. So a program runs once with real numbers, and leaves a list of array operations. `gpu.py` does the same with
arrays of CuPy.

The library treats a TracedArray as an array of a registered device (`arrays/others.py`), so all gradient formulas and
update rules accept it. A conversion to a Python number or to a NumPy array raises `Untraceable`, because the list of
operations would then depend on the values.

The inputs of a tape are copies, so recording changes nothing that a program can see.
"""

import operator
import threading
import types
import weakref
from typing import Any

import numpy as np

from ..arrays import CPU
from ..arrays.namespaces import ON_NUMPY, Namespace, numpy_ns
from ..arrays.others import BY_ARRAY
from ..ops.dispatch.overlap import overlaps_itself

ndarray = np.ndarray


class Untraceable(RuntimeError):
    """Raised if a program cannot be traced. The message contains the reason."""


class Ref:
    """A value in the arguments of a Step: the number of an array of the tape."""

    __slots__ = ("index",)

    def __init__(self, index):
        self.index = index

    def __repr__(self):
        return f"%{self.index}"


class HostNumber:
    """A Python number in the arguments of a Step that each replay computes again."""

    __slots__ = ("index",)

    def __init__(self, index):
        self.index = index

    def __repr__(self):
        return f"#{self.index}"


class Value:
    """The description of an array of a tape.

    Attributes:
        shape, dtype, strides: layout of the array.
        storage: number of the memory that the array is in. Views share the storage of their base.
        is_view: True if the array is a view of an earlier value.
        scalar: True if NumPy returned a scalar, which was converted to a 0-d array.
    """

    __slots__ = ("dtype", "is_view", "scalar", "shape", "storage", "strides")

    def __init__(self, array, storage, is_view, scalar=False):
        self.shape, self.dtype, self.strides = array.shape, array.dtype, array.strides
        self.storage, self.is_view, self.scalar = storage, is_view, scalar

    @property
    def size(self):
        return int(np.prod(self.shape, dtype=np.int64))

    def __repr__(self):
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


class Step:
    """One operation of a tape: `function(*args, **kwargs)`.

    Attributes:
        function: the function of NumPy, of NumPy's namespace, or of a kernel.
        args, kwargs: the arguments, with `Ref` for arrays.
        results: the result: a Ref, or a nested tuple of Refs.
        writes: numbers of the storages that the function changes.
    """

    __slots__ = ("args", "function", "kwargs", "results", "writes")

    def __init__(self, function, args, kwargs, results, writes):
        self.function, self.args, self.kwargs, self.results = function, args, kwargs, results
        self.writes = writes

    @property
    def name(self):
        owner = getattr(self.function, "__self__", None)
        name = getattr(self.function, "__name__", None) or type(self.function).__name__
        return f"{owner.__name__}.{name}" if isinstance(owner, np.ufunc) else name

    def refs(self):
        """Returns the numbers of the arrays that the step reads."""
        return refs_in((self.args, self.kwargs))

    def storage(self, values):
        """Returns the storage that contains the result."""
        outs = self.outs()
        return self.writes[0] if self.writes else values[outs[0]].storage

    def outs(self):
        """Returns the numbers of the results."""
        return refs_in(self.results)


def leaves(x):
    """Yields the values in nested tuples, lists, dicts and slices."""
    if isinstance(x, dict):
        x = x.values()
    elif isinstance(x, slice):
        x = (x.start, x.stop, x.step)
    elif not isinstance(x, (tuple, list)):
        yield x
        return
    for item in x:
        yield from leaves(item)


def refs_in(x):
    """Returns the numbers of all Refs in nested arguments."""
    return [leaf.index for leaf in leaves(x) if type(leaf) is Ref]


def numbers_in(x):
    """Returns the numbers in nested arguments that each run computes again."""
    return [leaf for leaf in leaves(x) if type(leaf) is HostNumber or hasattr(leaf, "text")]


def mapped(x, function):
    """Returns a copy of nested tuples, lists, dicts and slices with `function` applied to all other values."""
    if isinstance(x, (tuple, list)):
        items = [mapped(item, function) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {k: mapped(v, function) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(*(mapped(v, function) for v in (x.start, x.stop, x.step)))
    return function(x)


def owner(array):
    """Returns the array that owns the memory of an array."""
    kind = type(array) if not isinstance(array, ndarray) else ndarray
    while True:
        base = array.base
        if type(base).__name__ == "DummyArray":  # of NumPy's as_strided
            base = base.base
        if not isinstance(base, kind):
            return array
        array = base


def strided(buffer, offset, value):
    """Returns an array in a buffer, with the layout of a value. Its first element is at the offset."""
    return ndarray(value.shape, value.dtype, buffer, offset, value.strides)


def placed(buffer, offset, value):
    """Returns an array as `strided`, but its memory begins at the offset, also if strides are negative."""
    if 0 not in value.shape:
        offset -= sum((n - 1) * s for n, s in zip(value.shape, value.strides, strict=True) if s < 0)
    return strided(buffer, offset, value)


def layout_bytes(value):
    """Returns the size of the memory of an array in bytes."""
    if 0 in value.shape:
        return 0
    return sum((n - 1) * abs(s) for n, s in zip(value.shape, value.strides, strict=True)) + value.dtype.itemsize


def empty_like(value):
    """Returns a new array with the layout of a value."""
    if 0 in value.shape:
        return np.empty_like(strided(np.empty(0, np.uint8), 0, value))
    return placed(np.empty(layout_bytes(value), np.uint8), 0, value)


def copy_of(array):
    """Returns a copy with the same strides, also of an array that is not dense."""
    result = array.copy("K")
    if result.strides == array.strides:
        return result
    result = empty_like(array)
    if not overlaps_itself(array):
        np.copyto(result, array)
        return result
    window = tuple(slice(0, 1) if s == 0 else slice(None) for s in array.strides)
    if overlaps_itself(array[window]):
        raise Untraceable("an array has overlapping elements")
    np.copyto(result[window], array[window])
    return result


# Attributes of NumPy arrays that depend on the elements.
_ELEMENTS = frozenset("item tolist tobytes dump dumps tofile data ctypes flat nonzero compress".split())
# Functions whose results depend only on shapes and dtypes.
_STATIC = {
    np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.may_share_memory, np.shares_memory, np.iscomplexobj,
    np.isrealobj, np.broadcast_shapes, np.isscalar,
}  # fmt: skip
# Functions whose results have shapes that depend on elements.
_SHAPED_BY_ELEMENTS = {
    np.nonzero, np.flatnonzero, np.argwhere, np.unique, np.extract, np.compress, np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d,
    np.bincount, np.trim_zeros, ndarray.nonzero, ndarray.compress,
}  # fmt: skip
# Functions, by name, that change their first argument.
_WRITES_FIRST = frozenset(
    "copyto put place putmask fill_diagonal put_along_axis scatter_add scatter_max scatter_min add_rows add_matmul at fill "
    "add_along put_along max_along min_along prod_along "
    "sort partition itemset setfield setitem _numpy_scatter_add _numpy_add_rows _numpy_add_matmul".split()
)
# Functions, by name, whose result is a shape, or memory that a run allocates by the shape in the trace.
_SHAPES = frozenset("broadcast_shapes empty empty_like".split())
_current = threading.local()


def current_tape():
    """Returns the tape that this thread records, or None."""
    return getattr(_current, "tape", None)


class Tape:
    """A list of array operations.

    Attributes:
        values: the `Value` of each array.
        steps: the steps.
        inputs: numbers of the inputs.
        constants: {number of a value: raw array} for arrays that formulas created without an operation on an input.
        numbers: {expression: its position} for the Python numbers that each run computes again; see updates.py.
        conditions: {expression: bool} for comparisons of these numbers that must have the same result in each run.
    """

    traced: type  # the class of its arrays
    library = np
    namespace: Any = None  # set below
    static, shaped = _STATIC, _SHAPED_BY_ELEMENTS

    def __init__(self):
        self.values, self.steps, self.inputs, self.constants = [], [], [], {}
        self._of = {}  # id of a raw array -> its TracedArray
        self._first = weakref.WeakValueDictionary()  # storage -> its first array, the base of its views
        self._lost = {}  # storage -> the base of its views after the first array was freed
        self.count = 0  # number of storages
        self.numbers, self.conditions = {}, {}

    @staticmethod
    def is_array(x):
        """Returns True for a raw array of the library of the tape."""
        return isinstance(x, ndarray)

    @staticmethod
    def function(name):
        """Returns the function of NumPy with a name."""
        return getattr(np, name)

    @staticmethod
    def method(array, name):
        """Returns the method of an array as a function; raises AttributeError for other names."""
        return getattr(ndarray, name)

    @staticmethod
    def copy_if_writable(array):
        """Returns a copy of an array that a function may change; None for a read-only array."""
        return array.copy() if array.flags.writeable else None

    @staticmethod
    def copy_of(array):
        """Returns a copy with the same strides."""
        return copy_of(array)

    def input(self, raw):
        """Returns a copy of an array as the next input."""
        traced = self._add(self.copy_of(raw), self._new_storage(), False)
        self.inputs.append(traced.index)
        return traced

    def lift(self, raw):
        """Returns the TracedArray of a constant."""
        found = self._of.get(id(raw))
        if found is None:
            found = self._of[id(raw)] = self._add(raw, self._new_storage(), False)
            self.constants[found.index] = raw
        return found

    def _new_storage(self):
        self.count += 1
        return self.count - 1

    def _add(self, array, storage, is_view, scalar=False, root=None):
        self.values.append(Value(array, storage, is_view, scalar))
        traced = self.traced(self, array, len(self.values) - 1, storage, owner(array) if root is None else root)
        if not is_view:
            self._first[storage] = traced
        return traced

    def base_of(self, storage):
        """Returns one object for the memory of a storage: its first array, or a substitute if that was freed."""
        first = self._first.get(storage)
        return first if first is not None else self._lost.setdefault(storage, _Root())

    def _before_write(self, traced):
        if overlaps_itself(traced.value):
            raise Untraceable("an array with overlapping elements is changed in place")
        if traced.storage in {self.values[i].storage for i in self.constants}:
            raise Untraceable("a constant is changed in place")

    def call(self, function, args, kwargs=None, check=False):
        """Runs a function on arrays, adds it to the tape, and returns its result as TracedArrays.

        Args:
            args, kwargs: the arguments, with TracedArrays.
            check: find out which arguments the function changes.
        """
        kwargs = kwargs or {}
        arrays = []

        def lower(x):
            if isinstance(x, TracedArray):
                if x.tape is not self:
                    raise Untraceable("an array of another trace is used")
                arrays.append(x)
                return x.value
            if self.is_array(x):
                return lower(self.lift(x))
            if hasattr(x, "text"):
                return x.value
            return x.module if isinstance(x, TraceNamespace) else x

        plain_args, plain_kwargs = mapped(args, lower), mapped(kwargs, lower)
        out = kwargs.get("out")
        written = [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None]
        name = getattr(function, "__name__", "")
        if name in _WRITES_FIRST and function not in (np.sort, np.partition):
            written.append(args[0])
        written = [x if isinstance(x, TracedArray) else self.lift(x) for x in written]
        for x in written:
            self._before_write(x)
        before = []
        if check:
            before = [(x, copy) for x in arrays if (copy := self.copy_if_writable(x.value)) is not None]
        _current.tape = None  # operations inside the function are part of this step
        try:
            result = function(*plain_args, **plain_kwargs)
        finally:
            _current.tape = self
        for x, old in before:
            if old.tobytes() != x.value.tobytes():
                self._before_write(x)
                written.append(x)
        if name in _SHAPES:
            self._require_equal(args, kwargs)
        if function in self.static:
            return result
        if function in self.shaped or (function is operator.getitem and _has_mask(plain_args[1])):
            raise Untraceable(_reason("the shape of a result"))
        if result is None and not written:
            raise Untraceable(f"it is unknown which array {name} changes")
        first = len(self.values)
        wrapped = self._wrap(result, arrays, written)
        if any(value.is_view for value in self.values[first:]):
            self._require_equal(args, kwargs)

        def refs(x):
            if isinstance(x, TracedArray):
                return Ref(x.index)
            if self.is_array(x):
                return Ref(self.lift(x).index)
            if hasattr(x, "text"):
                return HostNumber(self.numbers.setdefault(x.text, len(self.numbers)))
            return x.module if isinstance(x, TraceNamespace) else x

        if not written and any(wrapped is x for x in arrays):
            return wrapped
        writes = tuple({x.storage for x in written})
        args, kwargs, results = mapped(tuple(args), refs), mapped(kwargs, refs), mapped(wrapped, refs)
        self.steps.append(Step(function, args, kwargs, results, writes))
        return wrapped

    def _require_equal(self, args, kwargs):
        """Adds the condition that numbers in arguments, which determine a layout, are the same in each run."""
        for number in numbers_in((args, kwargs)):
            self.conditions[f"({number.text} == {number.value!r})"] = True

    def _wrap(self, result, arrays, written):
        if isinstance(result, (tuple, list)):
            known, items = list(arrays), []  # results may share memory, such as the gradients of q, k and v
            for item in result:
                items.append(self._wrap(item, known, written))
                known += [items[-1]] if isinstance(items[-1], TracedArray) else []
            return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
        scalar = isinstance(result, np.generic)
        if scalar:
            result = np.asarray(result)
        if not self.is_array(result):
            if result is None:
                return None
            raise Untraceable(f"a value of type {type(result).__name__} depends on the elements of an array")
        root = owner(result)
        for x in arrays:
            if x.value is result:
                return x
        for x in arrays:
            if x.root is root:
                return self._add(result, x.storage, True, root=root)
        return self._add(result, self._new_storage(), False, scalar, root)

    def __enter__(self):
        _current.tape = self
        return self

    def __exit__(self, *error):
        _current.tape = None


def _has_mask(index):
    """Returns True if an index contains a mask, so that the shape of the result depends on its elements."""
    items = index if isinstance(index, tuple) else (index,)
    return any(getattr(x, "dtype", 0) == np.bool_ and not isinstance(x, np.generic) for x in items)


def _plain(x):
    def lower(item):
        return (
            item.value if isinstance(item, TracedArray) else item.module if isinstance(item, TraceNamespace) else item
        )

    return mapped(x, lower)


def on_values(function, args, kwargs):
    """Calls a function on the values of TracedArrays, without recording it."""
    return function(*_plain(args), **_plain(kwargs))


def record_call(function, args, kwargs=None):
    """Records a function that can change its arguments, as one step. Without a trace in this thread, only calls it."""
    tape = current_tape()
    return on_values(function, args, kwargs or {}) if tape is None else tape.call(function, args, kwargs, check=True)


def _reason(what):
    return f"{what} needs the elements of an array, which a trace does not know"


class TracedArray:
    """A NumPy array whose operations are recorded on a tape."""

    __slots__ = ("__weakref__", "index", "root", "storage", "tape", "value")
    __array_priority__ = 2000

    def __init__(self, tape, value, index, storage, root):
        self.tape, self.value, self.index, self.storage, self.root = tape, value, index, storage, root

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    itemsize = property(lambda self: self.value.itemsize)
    nbytes = property(lambda self: self.value.nbytes)
    strides = property(lambda self: self.value.strides)
    flags = property(lambda self: self.value.flags)

    @property
    def base(self):
        """The array that owns the memory; None if this array does."""
        first = self.tape.base_of(self.storage)
        return None if first is self else first

    @property
    def T(self):
        return self.tape.call(self.tape.method(self, "transpose"), (self,))

    @property
    def mT(self):
        return self.tape.call(self.tape.method(self, "swapaxes"), (self, -1, -2))

    @property
    def real(self):
        return self.tape.call(_real, (self,))

    @property
    def imag(self):
        return self.tape.call(_imag, (self,))

    def __getattr__(self, name):
        if name[:2] == "__":
            raise AttributeError(name)
        if name in _ELEMENTS:
            raise Untraceable(_reason(f"`{name}`"))
        method = self.tape.method(self.value, name)
        return lambda *args, **kwargs: self.tape.call(method, (self, *args), kwargs)

    def __getitem__(self, index):
        if type(index) is tuple and isinstance(self.value[_plain(index)], np.generic):
            index = (*index, ...)  # a view, as in the forward function of the op "slice"
        return self.tape.call(operator.getitem, (self, index))

    def __setitem__(self, index, value):
        self.tape.call(operator.setitem, (self, index, value))

    def __len__(self):
        return len(self.value)

    def __iter__(self):
        return iter([self[i] for i in range(len(self.value))])

    def __array__(self, dtype=None, copy=None):
        raise Untraceable(_reason("a conversion to NumPy"))

    def __bool__(self):
        raise Untraceable(_reason("a condition"))

    def __int__(self):
        raise Untraceable(_reason("`int`, `float` or `item`"))

    __index__ = __float__ = __complex__ = __int__

    def __contains__(self, x):
        raise Untraceable(_reason("`in`"))

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return self.tape.call(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return self.tape.call(function, args, kwargs)

    def __pow__(self, other):
        if type(other) in (int, float) and self.value.dtype.kind in "fc":
            fast = {1.0: np.positive, -1.0: np.reciprocal, 0.5: np.sqrt, 2.0: np.square}.get(float(other))
            if fast is not None:  # as NumPy's operator does
                return self.tape.call(fast, (self,))
        return self.tape.call(np.power, (self, other))

    def __repr__(self):
        return f"TracedArray(%{self.index}, {self.value.dtype}, {self.value.shape})"

    __hash__ = object.__hash__


class _Root:
    """The base of views of an array that was freed."""

    base = None


def _real(x):
    return x.real


def _imag(x):
    return x.imag


def _operators():
    names = (
        "add subtract:sub multiply:mul true_divide:truediv floor_divide:floordiv remainder:mod matmul bitwise_and:and "
        "bitwise_or:or bitwise_xor:xor left_shift:lshift right_shift:rshift"
    )
    for name in names.split():
        name, _, short = name.partition(":")
        short = short or name
        setattr(TracedArray, f"__{short}__", lambda a, b, f=name: a.tape.call(a.tape.function(f), (a, b)))
        setattr(TracedArray, f"__r{short}__", lambda a, b, f=name: a.tape.call(a.tape.function(f), (b, a)))

        def in_place(a, b, f=name):
            a.tape.call(a.tape.function(f), (a, b), {"out": (a,)})
            return a

        setattr(TracedArray, f"__i{short}__", in_place)
    TracedArray.__rpow__ = lambda a, b: a.tape.call(a.tape.function("power"), (b, a))
    TracedArray.__ipow__ = lambda a, b: (a.tape.call(a.tape.function("power"), (a, b), {"out": (a,)}), a)[1]
    for name in "less:lt less_equal:le greater:gt greater_equal:ge equal:eq not_equal:ne".split():
        name, _, short = name.partition(":")
        setattr(TracedArray, f"__{short}__", lambda a, b, f=name: a.tape.call(a.tape.function(f), (a, b)))
    for name in "negative:neg positive:pos absolute:abs invert:invert".split():
        name, _, short = name.partition(":")
        setattr(TracedArray, f"__{short}__", lambda a, f=name: a.tape.call(a.tape.function(f), (a,)))


_operators()


class TraceNamespace(Namespace):
    """The namespace of TracedArrays: functions of NumPy's namespace that record their calls."""

    kind = "trace"
    device = CPU
    half_in_float32 = True

    def __init__(self, module=numpy_ns):
        super().__init__(module)
        for name in vars(Namespace):  # methods that NumPy's namespace replaces
            if name[0] != "_" and name in vars(module) and isinstance(module, Namespace):
                self.__dict__[name] = _recorded(
                    lambda *args, _name=name, **kwargs: getattr(module, _name)(*args, **kwargs), name
                )

    def __getattr__(self, name):
        value = getattr(self.module, name)
        if isinstance(value, (types.ModuleType, types.SimpleNamespace)):
            value = TraceNamespace(value)
        elif callable(value) and not isinstance(value, type):
            value = _recorded(value)
        self.__dict__[name] = value
        return value

    def address(self, array):
        return array.value.__array_interface__["data"][0]

    def on_numpy(self, function, *arrays):
        """Records a function of NumPy arrays as one step."""
        tape = current_tape()
        return function(*arrays) if tape is None else tape.call(function, arrays)

    def asarray(self, x, dtype=None, **options):
        """Returns x as an array. Python numbers become constants."""
        if isinstance(x, TracedArray):
            return x if dtype is None or x.dtype == dtype else x.astype(dtype)
        tape = current_tape()
        found = self.module.asarray(x, dtype, **options)
        return found if tape is None else tape.lift(found)

    def __repr__(self):
        return "<namespace of traced arrays>"


def _recorded(function, name=None):
    def call(*args, **kwargs):
        tape = current_tape()
        return function(*args, **kwargs) if tape is None else tape.call(function, args, kwargs)

    call.__name__ = name or getattr(function, "__name__", "function")
    if name:
        function.__name__ = name
    return call


trace_ns = TraceNamespace()
Tape.traced, Tape.namespace = TracedArray, trace_ns
ON_NUMPY.add(trace_ns)
BY_ARRAY[TracedArray] = trace_ns
