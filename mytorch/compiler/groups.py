"""Groups of array operations on a GPU as one Triton kernel.

A `Group` collects consecutive elementwise steps over one shape, and sums and maxima over the last axis of that shape. Its kernel reads each
array once, keeps intermediate results in registers, and stores only results that later steps use.

* Without reductions, a program of the kernel computes BLOCK elements.
* With reductions, a program computes whole rows, as a tile (ROWS, BLOCK). A result of a reduction is a column (ROWS, 1).

Each operation rounds to the dtype of its result, and products are not fused with sums. So results are equal to the results of CuPy's
functions to the last bit. Only sums have another order. Functions such as `exp` are from CUDA's library, which CuPy calls too.

Shapes and strides are constants in the source of a kernel. Equal sources are compiled once.
"""

import importlib
import math

import numpy as np

from ..arrays import cupy_ns
from ..kernels.registry import _policy
from .arrays import Ref
from .native import _collapsed
from .program import is_dense

LONGEST = 8192  # longest row of a reduction
BLOCK = 1024
_TYPES = {
    "float16": "tl.float16", "bfloat16": "tl.bfloat16", "float32": "tl.float32", "float64": "tl.float64", "bool": "tl.int1",
    "int8": "tl.int8", "int16": "tl.int16", "int32": "tl.int32", "int64": "tl.int64", "uint8": "tl.uint8",
}  # fmt: skip
_HALF = ("float16", "bfloat16")
_BOOL = np.dtype(bool)
# Operations on floats and integers; {0} and {1} are the arguments.
_ARITHMETIC = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "square": "{0} * {0}", "positive": "{0}",
}  # fmt: skip
_COMPARE = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!="}
_LOGIC = {
    f"{kind}_{name}": sign
    for kind in ("logical", "bitwise")
    for name, sign in {"and": "&", "or": "|", "xor": "^"}.items()
}
_TESTS = {"isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")', "isfinite": 'tl.abs({0}) < float("inf")'}
# Functions on floats: NumPy's name -> the name in CUDA's library (libdevice).
LIBRARY = {
    "exp": "exp", "log": "log", "tanh": "tanh", "sin": "sin", "cos": "cos", "expm1": "expm1", "log1p": "log1p", "exp2": "exp2",
    "log2": "log2", "sinh": "sinh", "cosh": "cosh", "arctan": "atan", "power": "pow", "erf": "erf", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "rint": "rint", "log10": "log10", "cbrt": "cbrt",
}  # fmt: skip
_ARITY = {
    **dict.fromkeys((*_ARITHMETIC, *LIBRARY, *_TESTS), 1),
    **dict.fromkeys("negative absolute sqrt reciprocal logical_not invert copy ascontiguousarray".split(), 1),
    **dict.fromkeys("add subtract multiply divide true_divide maximum minimum power".split(), 2),
    **dict.fromkeys((*_COMPARE, *_LOGIC), 2),
    "where": 3,
}
_REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min"}


def available():
    """Returns True if Triton can be used, and kernels are not disabled."""
    if _policy(None) is False:
        return False
    try:
        return _launch().why_not() is None
    except ImportError:
        return False


def _launch():
    return importlib.import_module("mytorch.kernels.launch")


class Item:
    """One step of a group.

    Attributes:
        name: name of the operation.
        args: numbers of values as `Ref`, or Python numbers.
        out: number of the value of the result.
        dtype: dtype of the computation.
        in_place: True if the result is stored in an array that exists.
        reduces: True for a reduction.
    """

    def __init__(self, name, args, out, dtype, in_place=False, reduces=False):
        self.name, self.args, self.out, self.dtype = name, args, out, dtype
        self.in_place, self.reduces = in_place, reduces


def described(program, step):
    """Returns the Item of a step, or None if groups do not support it."""
    if not isinstance(step.results, Ref) or not hasattr(step.function, "in_groups"):
        return None
    values, name, kwargs = program.values, step.name, dict(step.kwargs)
    out = values[step.results.index]
    arrays = [values[i] for i in step.refs()]
    if 0 in out.shape or not all(x.dtype.name in _TYPES and _in_elements(x) for x in (*arrays, out)):
        return None
    if name in _REDUCTIONS:
        return _reduction(step, name, out, values)
    into = kwargs.pop("out", None)
    into = into[0] if isinstance(into, tuple) else into
    if into is not None and not (isinstance(into, Ref) and into.index == step.results.index):
        return None
    if step.writes and into is None:
        return None
    if into is None and not is_dense(out):
        return None
    args = step.args
    if name == "astype":
        if kwargs.keys() - {"copy", "order"} or len(args) != 2 or not _converts(arrays[0].dtype, out.dtype):
            return None
        return Item("copy", args[:1], step.results.index, out.dtype)
    if name in ("copy", "ascontiguousarray"):
        return Item("copy", args[:1], step.results.index, out.dtype) if out.dtype == arrays[0].dtype else None
    if kwargs or len(args) != _ARITY.get(name):
        return None
    if not all(isinstance(x, (Ref, bool, int, float, np.number, np.bool_)) for x in args):
        return None
    chosen = args[1:] if name == "where" else args
    if name == "where" and not (isinstance(args[0], Ref) and values[args[0].index].dtype.kind == "b"):
        return None
    dtype = _common(chosen, values)
    if dtype is None or not _supports(name, dtype):
        return None
    result = _BOOL if name in _COMPARE or name in _TESTS or name == "logical_not" else dtype
    if result != out.dtype and (into is None or not _converts(result, out.dtype)):
        return None
    return Item(name, args, step.results.index, dtype, into is not None)


def allocate(value):
    """Returns a new array with the layout of a value, which has no gaps."""
    order = sorted(range(len(value.shape)), key=lambda d: (-value.strides[d], d))
    array = cupy_ns().empty([value.shape[d] for d in order], value.dtype)
    return array.transpose([order.index(d) for d in range(len(order))]) if order else array


def _in_elements(value):
    return all(s % value.dtype.itemsize == 0 for s in value.strides)


def _converts(source, target):
    """Returns True if a conversion has one result: not for floats out of the range of integers, and no double rounding."""
    if _is_float(source) and target.kind in "iu":
        return False
    return not (source.name == "float64" and target.name in _HALF)


def _is_float(dtype):
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _common(args, values):
    """Returns the dtype of the computation, or None."""
    dtypes = [values[x.index].dtype for x in args if isinstance(x, Ref)]
    scalars = [x if type(x) in (bool, int, float) else x.item() for x in args if not isinstance(x, Ref)]
    if not dtypes or any(type(x) is complex for x in scalars):
        return None
    if any(d.name == "bfloat16" for d in dtypes):
        return dtypes[0] if all(d == dtypes[0] for d in dtypes) else None
    try:
        found = np.result_type(*dtypes, *scalars)
    except (OverflowError, TypeError):
        return None
    return found if found.name in _TYPES and all(_converts(d, found) for d in dtypes) else None


def _supports(name, dtype):
    if name in _COMPARE or name in ("where", "logical_not"):
        return True
    if name in _LOGIC:
        return dtype.kind == "b" or (dtype.kind in "iu" and name.startswith("bitwise"))
    if name == "invert":
        return dtype.kind == "b"
    if name in _ARITHMETIC or name in ("maximum", "minimum", "negative", "absolute"):
        return _is_float(dtype) or dtype.kind == "i" or (dtype.kind == "u" and name in _ARITHMETIC)
    return _is_float(dtype)


def _reduction(step, name, out, values):
    if not step.args or not isinstance(step.args[0], Ref):
        return None
    x = values[step.args[0].index]
    names = ("axis", "dtype", "out", "keepdims") if name in ("sum", "mean") else ("axis", "out", "keepdims")
    options = {**dict(zip(names, step.args[1:], strict=False)), **step.kwargs}
    axis = options.get("axis")
    axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else axis
    if options.get("dtype") is not None or options.get("out") is not None or options.keys() - set(names):
        return None
    last = len(x.shape) - 1
    if last < 0 or not (axis in (-1, last) or (axis is None and last == 0)):
        return None
    if not _is_float(x.dtype) or out.dtype != x.dtype or x.shape[-1] > LONGEST or 0 in x.shape:
        return None
    return Item(_REDUCTIONS[name], step.args[:1], step.results.index, x.dtype, reduces=True)


class Group:
    """Consecutive steps that become one kernel."""

    def __init__(self, program):
        self.program, self.values = program, program.values
        self.items, self.views, self.positions, self.steps = [], [], [], []
        self.before = []  # positions of views that are created before the kernel is launched
        self.shape, self.rows = None, False
        self.known = {}  # number of a value that the group computes -> its shape
        self.accesses, self.written = {}, set()  # storage -> numbers of values; storages

    def makes(self, indices):
        """Returns True if the group computes one of the values."""
        return any(i in self.known for i in indices)

    def add(self, step, position):
        """Adds a step if possible. Returns True if it was added."""
        if self.program.is_view(step):
            return self._add_view(step, position)
        item = described(self.program, step)
        if item is None or not self._fits(item):
            return False
        storages = {}
        for i in (*[x.index for x in item.args if isinstance(x, Ref)], item.out):
            storages.setdefault(self.values[i].storage, set()).add(i)
        written = {self.values[item.out].storage} if item.in_place else set()
        for storage, indices in storages.items():
            together = indices | self.accesses.get(storage, set())
            if len(together) > 1 and storage in (written | self.written):
                return False  # another part of memory that is changed
        for storage, indices in storages.items():
            self.accesses.setdefault(storage, set()).update(indices)
        self.written |= written
        if self.shape is None:
            self.shape = self.values[item.args[0].index if item.reduces else item.out].shape
        self.rows |= item.reduces
        self.known[item.out] = self.values[item.out].shape
        self.items.append(item)
        self.steps.append(step)
        self.positions.append(position)
        return True

    def _fits(self, item):
        shape = self.values[item.out].shape
        if item.reduces:
            x = item.args[0].index
            full = self.values[x].shape
            return self.shape in (None, full) and self.known.get(x, full) == full
        if self.shape is None:
            return True
        if shape != self.shape and not (self.rows and shape in self._row_shapes()):
            return False
        for x in item.args:
            if isinstance(x, Ref) and x.index in self.known:
                given = self.known[x.index]
                column = shape == self.shape and self.rows and given == (*self.shape[:-1], 1)
                if given != shape and not column:
                    return False
        return True

    def _row_shapes(self):
        return self.shape[:-1], (*self.shape[:-1], 1)

    def _add_view(self, step, position):
        """Adds a view of a column: with or without the last axis of size 1, or repeated along that axis."""
        if not self.rows or step.writes or not isinstance(step.results, Ref) or self.shape in self._row_shapes():
            return False
        bases = [i for i in step.refs() if i in self.known]
        out = self.values[step.results.index]
        if len(step.refs()) != 1 or len(bases) != 1 or self.values[bases[0]].storage in self.written:
            return False
        base = self.known[bases[0]]
        repeats = out.shape == self.shape and base == (*self.shape[:-1], 1) and out.strides[-1] == 0
        if not repeats and not (out.shape in self._row_shapes() and base in self._row_shapes()):
            return False
        self.known[step.results.index] = out.shape
        self.views.append((position, step, bases[0], step.results.index))
        self.positions.append(position)
        self.accesses.setdefault(out.storage, set()).add(step.results.index)
        return True

    def call(self):
        """Returns the call of the kernel, or None if the steps should run one by one."""
        return GroupCall(self) if len(self.items) > 1 else None

    def stored(self):
        """Returns the numbers of the values that the kernel stores."""
        last, end = self.program.last_use, max(self.positions)
        found = [item.out for item in self.items if last[self.values[item.out].storage] > end]
        return list(dict.fromkeys(found))


class GroupCall:
    """The launch of the kernel of a group: a function of the arrays of an instance."""

    def __init__(self, group):
        self.values = group.values
        source = Source(group)
        self.arrays = source.arrays
        made = {item.out for item in group.items if not item.in_place}
        self.made = [i for i in source.stored if i in made]
        self.kernel = importlib.import_module("mytorch.kernels.triton.generated").kernel(source.text)
        self.grid, self.options = source.grid, source.options
        self.names = ", ".join(item.name for item in group.items)

    def __call__(self, arrays):
        for i in self.made:
            arrays[i] = allocate(self.values[i])
        try:
            _launch().launch(self.kernel, self.grid, *[arrays[i] for i in self.arrays], **self.options)
        except Exception as error:
            raise RuntimeError(f"the kernel of {self.names} failed: {error}") from error


class Source:
    """The source of the kernel of a group.

    Attributes:
        text: the source.
        arrays: numbers of the values that the kernel receives.
        stored: numbers of the values that it stores.
        grid, options: arguments of the launch.
    """

    def __init__(self, group):
        self.group, self.values, self.rows = group, group.values, group.rows
        self.arrays, self.lines, self.loaded = [], [], {}
        self.registers, self.count = {}, 0
        self.stored = group.stored()
        *self.leading, self.width = group.shape if self.rows else (*group.shape, 1)
        computed = {out for _, _, _, out in group.views}
        reads = []  # (value, shape that it is broadcast to)
        for item in group.items:
            shape = group.shape if item.reduces else self.values[item.out].shape
            reads += [(x.index, shape) for x in item.args if isinstance(x, Ref) and x.index not in computed]
            computed.add(item.out)
        reads += [(i, self.values[i].shape) for i in self.stored]
        self.strides = {key: self._broadcast(*key) for key in dict.fromkeys(reads)}
        keys = list(self.strides)
        sizes, collapsed = _collapsed(self.leading, [self.strides[key][:-1] for key in keys])
        self.sizes = sizes
        self.leading_strides = dict(zip(keys, collapsed, strict=True))
        self.total = math.prod(sizes)
        furthest = [
            sum((n - 1) * abs(s) for n, s in zip((*sizes, self.width), (*self.leading_strides[k], self.strides[k][-1]), strict=True))
            for k in keys
        ]  # fmt: skip
        self.long = max([self.total * self.width, *furthest]) >= 2**31 - 2**16
        self._body()
        pointers = ", ".join(f"p{k}" for k in range(len(self.arrays)))
        options = "ROWS: tl.constexpr, BLOCK: tl.constexpr" if self.rows else "BLOCK: tl.constexpr"
        body = "\n".join(f"    {line}" for line in (*self._indices(), *self.lines))
        self.text = f"def group({pointers}, {options}):\n{body}\n"
        self._choose_launch()

    def _choose_launch(self):
        launch = _launch()
        if self.rows:
            block = launch.power_of_2(max(self.width, 16))
            rows = max(1, BLOCK // block)
            self.options = {"ROWS": rows, "BLOCK": block, "num_warps": min(max(rows * block // 512, 2), 16)}
            self.grid = (launch.cdiv(self.total, rows),)
        else:
            self.options = {"BLOCK": BLOCK, "num_warps": 4}
            self.grid = (launch.cdiv(self.total, BLOCK),)
        self.options["enable_fp_fusion"] = False

    def _broadcast(self, index, shape):
        """Returns the strides, in elements, of a value along the axes of the group; the last one is the axis of rows."""
        value = self.values[index]
        strides = [0 if n == 1 else s // value.dtype.itemsize for n, s in zip(value.shape, value.strides, strict=True)]
        strides = [0] * (len(shape) - len(strides)) + strides
        if not self.rows:
            return [*strides, 0]
        full = self.group.shape
        if shape == full:
            return strides
        return [*strides[: len(full) - 1], 0]

    def _indices(self):
        wide = ".to(tl.int64)" if self.long else ""
        if self.rows:
            yield f"i = tl.program_id(0){wide} * ROWS + tl.arange(0, ROWS)[:, None]"
            yield "c = tl.arange(0, BLOCK)[None, :]"
            yield f"row = i < {self.total}"
            yield f"inside = row & (c < {self.width})"
        else:
            yield f"i = tl.program_id(0){wide} * BLOCK + tl.arange(0, BLOCK)"
            yield f"inside = i < {self.total}"
        rest = "i"
        for d in range(len(self.sizes) - 1, -1, -1):
            if d:
                yield f"i{d} = {rest} % {self.sizes[d]}"
                yield f"r{d} = {rest} // {self.sizes[d]}"
                rest = f"r{d}"
            else:
                yield f"i0 = {rest}"

    def _pointer(self, index):
        if index not in self.arrays:
            self.arrays.append(index)
        return f"p{self.arrays.index(index)}"

    def _place(self, key):
        """Returns the address and the mask of the elements of a value."""
        leading, last = self.leading_strides[key], self.strides[key][-1]
        parts = [f"i{d} * {s}" if s != 1 else f"i{d}" for d, s in enumerate(leading) if s]
        if last:
            parts.append(f"c * {last}" if last != 1 else "c")
        mask = "inside" if not self.rows or last else "row"
        zero = "i0 * 0" if not parts or (self.rows and not any(leading)) else None
        if zero:
            parts.insert(0, zero)  # for the shape of the tile
        return f"{self._pointer(key[0])} + {' + '.join(parts)}", mask

    def _new(self, text):
        self.count += 1
        self.lines.append(f"x{self.count} = {text}")
        return f"x{self.count}"

    def _read(self, index, shape):
        """Returns the register of a value."""
        if index in self.registers:
            return self.registers[index]
        key = index, shape
        if key not in self.loaded:
            address, mask = self._place(key)
            dtype = self.values[index].dtype
            load = f"tl.load({address}, mask={mask}, other=0)"
            load = f"{load} != 0" if dtype.kind == "b" else f"{load}.to(tl.float32)" if dtype.name in _HALF else load
            self.loaded[key] = self._new(load)
        return self.loaded[key]

    def _body(self):
        views = {out: base for _, _, base, out in self.group.views}
        for item in self.group.items:
            shape = self.group.shape if item.reduces else self.values[item.out].shape
            args = []
            for x in item.args:
                if isinstance(x, Ref):
                    at = x.index
                    while at in views:
                        at = views[at]
                    args.append((self._read(at, shape), self.values[at].dtype))
                else:
                    args.append((x, None))
            text, dtype = self._operation(item, args)
            self.registers[item.out] = self._new(convert(text, dtype, self.values[item.out].dtype))
        for index in self.stored:
            key = index, self.values[index].shape
            address, mask = self._place(key)
            register, dtype = self.registers[index], self.values[index].dtype
            if dtype.kind == "b":
                register = f"({register}).to(tl.int8)"
            elif dtype.name in _HALF:
                register = f"{register}.to({_TYPES[dtype.name]})"
            one = self.rows and self.strides[key][-1] == 0  # a column
            if one and self.values[index].shape == self.group.shape:
                mask = "row"
            self.lines.append(f"tl.store({address}, {register}, mask={mask})")

    def _operation(self, item, args):
        """Returns the expression of an operation, and the dtype of its result before rounding."""
        name, dtype = item.name, item.dtype
        if item.reduces:
            return self._reduce(name, args[0][0], dtype), dtype
        if name == "copy":
            return args[0]
        if name == "where":
            (condition, _), *chosen = args
            a, b = (self._operand(x, d, dtype) for x, d in chosen)
            return f"tl.where({condition}, {a}, {b})", dtype
        given = [self._operand(x, d, dtype) for x, d in args]
        if name in _COMPARE:
            given = [f"{x}.to(tl.int8)" for x in given] if dtype.kind == "b" else given
            return f"{given[0]} {_COMPARE[name]} {given[1]}", _BOOL
        if name in _TESTS:
            return _TESTS[name].format(*given), _BOOL
        if name in ("logical_not", "invert"):
            return f"{given[0]} == 0", _BOOL
        if name in _LOGIC:
            return f"{given[0]} {_LOGIC[name]} {given[1]}", dtype
        text = _expression(name, given, dtype)
        return f"({text}){_rounded(dtype)}", dtype

    def _operand(self, x, source, dtype):
        if source is not None:
            return convert(x, source, dtype)
        if dtype.kind == "b":
            return f"tl.full((), {int(bool(x))}, tl.int1)"
        if not _is_float(dtype):
            return f"tl.full((), {int(x)}, {_TYPES[dtype.name]})"
        number = float(dtype.type(x))
        text = repr(number) if math.isfinite(number) else f'float("{number}")'
        kind = "tl.float64" if dtype.name == "float64" else "tl.float32"
        if number == 0 and math.copysign(1, number) < 0:  # `full` ignores the sign of zero
            return f"(tl.full((), -1.0, {kind}) * 0.0)"
        return f"tl.full((), {text}, {kind})"

    def _reduce(self, name, x, dtype):
        if name in ("sum", "mean"):
            total = self._new(f"tl.sum(tl.where(inside, {x}, 0.0), axis=1, keep_dims=True)")
            if name == "mean":
                number = self._operand(
                    float(self.width), None, np.dtype("float64" if dtype.name == "float64" else "float32")
                )
                total = self._new(f"{total} / {number}" if dtype.name == "float64" else f"tl.div_rn({total}, {number})")
            return f"{total}{_rounded(dtype)}"
        sign = "-" if name == "max" else ""
        best = self._new(f'tl.{name}(tl.where(inside & ({x} == {x}), {x}, float("{sign}inf")), axis=1, keep_dims=True)')
        nan = self._new(f"tl.max(tl.where(inside & ({x} != {x}), 1, 0), axis=1, keep_dims=True)")
        return f'tl.where({nan} != 0, float("nan"), {best})'


def convert(x, source, target):
    """Returns the expression of a register in another dtype. Half precision is in float32 registers, rounded."""
    if source is None or source == target:
        return x
    if target.kind == "b":
        return f"({x}) != 0"
    if target.name in _HALF:
        return f"({x}).to(tl.float32){_rounded(target)}"
    if source.name in _HALF and target.name == "float32":
        return x
    return f"({x}).to({_TYPES[target.name]})"


def _rounded(dtype):
    return f".to({_TYPES[dtype.name]}).to(tl.float32)" if dtype.name in _HALF else ""


def _expression(name, given, dtype):
    is_float = _is_float(dtype)
    if name in _ARITHMETIC:
        return _ARITHMETIC[name].format(*given)
    if name in ("maximum", "minimum"):
        nan = ", propagate_nan=tl.PropagateNan.ALL" if is_float else ""
        return f"tl.{name}({given[0]}, {given[1]}{nan})"
    if name == "negative":
        return f"{given[0]} * -1.0" if is_float else f"-({given[0]})"  # Triton negates by 0 - x, and 0 - 0 is not -0
    if name == "absolute":
        return f"tl.abs({given[0]})"
    if name == "sqrt":
        return f"tl.sqrt({given[0]})" if dtype.name == "float64" else f"tl.sqrt_rn({given[0]})"
    if name == "reciprocal":
        return (
            f"1.0 / {given[0]}" if dtype.name == "float64" else f"tl.div_rn(tl.full((), 1.0, tl.float32), {given[0]})"
        )
    if name in ("divide", "true_divide"):
        a, b = given
        return f"({a}) / ({b})" if dtype.name == "float64" else f"tl.div_rn({a}, {b})"
    return f"library.{LIBRARY[name]}({', '.join(given)})"
