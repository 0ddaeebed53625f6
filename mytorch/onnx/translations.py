"""Translations of operations to ONNX. `TABLE` maps each op or function to a function of (call, *args, **kwargs).

Arguments are `Value`s for tensors, names of vectors with one element or Python numbers for sizes, and constants.
"""

import math
import operator
from typing import Any

import numpy as np

from ..arrays import dtypes
from ..arrays.tensor import Tensor
from ..export import building, recording
from ..ops import creation, padding, regions, resample
from ..ops.indexing import ARRAY


class Unsupported(NotImplementedError):
    """Raised for operations and arguments without a translation."""


class Value:
    """A tensor of the ONNX graph.

    Attributes:
        name: its name.
        dtype: name of its dtype.
        shape: sizes; None for dynamic sizes.
        example: sizes of the example.
        array: the array of a constant, otherwise None.
        node: the node of the exported graph, or None.
    """

    def __init__(self, name, dtype, shape, example, array=None, node=None):
        self.name, self.dtype, self.shape, self.example, self.array, self.node = (
            name,
            dtype,
            shape,
            example,
            array,
            node,
        )

    @property
    def ndim(self):
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self):
        """True for floating-point dtypes."""
        return "float" in self.dtype


class Size:
    """A size in the ONNX graph: the name of a vector with one integer, or of one float; and its value for the example."""

    example = None

    def __init__(self, name, is_float=False):
        self.name, self.is_float = name, is_float


class Call:
    """One operation to translate.

    Attributes:
        w: the Writer.
        dtype: name of the dtype of the result.
        shape: sizes of the result; None for dynamic sizes.
        example: sizes of the result for the example.
        values: function from a node to its Value.
    """

    def __init__(self, writer, node, values=None):
        self.w, self.node, self.values = writer, node, values
        self.dtype, self.shape = node.meta.get("dtype"), node.meta.get("shape")
        self.example = node.meta.get("example_shape")

    def used(self, part):
        """Returns True if a part of a result with several parts is used."""
        return any(user.args[1] == part for user in self.node.users)

    def tensor(self, x, dtype=None):
        """Returns the name of a tensor or number, converted to a dtype."""
        dtype = dtype or self.dtype
        if isinstance(x, Value):
            return x.name if x.dtype == dtype else self.w.cast(x.name, dtype)
        if isinstance(x, Size):
            scalar = self.w.op("Squeeze", x.name) if not x.is_float else x.name
            return self.w.cast(scalar, dtype)
        return self.w.constant(np.asarray(x, dtypes.as_dtype(dtype).numpy))

    def like(self, x, number):
        """Returns the name of a number as a constant with the dtype of a Value."""
        return self.tensor(number, x.dtype if isinstance(x, Value) else x)

    def ints(self, values):
        """Returns the name of a vector of sizes."""
        values = (values,) if isinstance(values, (int, Size)) else values
        return self.w.concat_ints([v.name if isinstance(v, Size) else int(v) for v in values])

    def common(self, *values):
        """Returns the dtype to which operands of a comparison are converted."""
        ranks = ([], [], [])
        for v in values:
            if isinstance(v, Value):
                ranks[0 if v.ndim else 1].append(dtypes.as_dtype(v.dtype))
            else:
                ranks[2].append(dtypes.of_number(0 if isinstance(v, Size) else v))
        return dtypes.result_type(*ranks).name


TABLE: dict[Any, Any] = {}  # name of an op, or a function -> its translation


def rule(*targets):
    """Registers the translation of ops, given by name, and of functions."""

    def give(function):
        for target in targets:
            TABLE[target] = function
        return function

    return give


# -- elementwise -------------------------------------------------------------------------------------------------------


def _binary(kind):
    return lambda c, a, b: c.w.op(kind, c.tensor(a), c.tensor(b))


for _name, _kind in {"sub": "Sub", "div": "Div", "pow": "Pow"}.items():
    TABLE[_name] = _binary(_kind)


@rule("add")
def _add(c, a, b):
    return c.w.op("Or" if c.dtype == "bool" else "Add", c.tensor(a), c.tensor(b))


@rule("mul")
def _mul(c, a, b):
    return c.w.op("And" if c.dtype == "bool" else "Mul", c.tensor(a), c.tensor(b))


@rule("maximum")
def _maximum(c, a, b):
    return c.w.op("Max", c.tensor(a), c.tensor(b))


@rule("minimum")
def _minimum(c, a, b):
    return c.w.op("Min", c.tensor(a), c.tensor(b))


@rule("floor_divide", "_divide_floor")
def _floor_divide(c, a, b):
    x, y = c.tensor(a), c.tensor(b)
    if "float" in c.dtype:
        return c.w.op("Floor", c.w.op("Div", x, y))
    return c.w.op("Div", c.w.op("Sub", x, c.w.op("Mod", x, y)), y)


@rule("_divide_trunc")
def _divide_trunc(c, a, b):
    quotient = c.w.op("Div", c.tensor(a), c.tensor(b))
    return _trunc_name(c, quotient) if "float" in c.dtype else quotient


@rule("remainder")
def _remainder(c, a, b):
    x, y = c.tensor(a), c.tensor(b)
    if "float" not in c.dtype:
        return c.w.op("Mod", x, y)
    return c.w.op("Sub", x, c.w.op("Mul", c.w.op("Floor", c.w.op("Div", x, y)), y))


@rule("fmod")
def _fmod(c, a, b):
    return c.w.op("Mod", c.tensor(a), c.tensor(b), fmod=1)


def _unary(kind):
    return lambda c, x: c.w.op(kind, c.tensor(x))


for _name, _kind in {
    "neg": "Neg", "abs": "Abs", "sign": "Sign", "reciprocal": "Reciprocal", "sqrt": "Sqrt", "exp": "Exp", "log": "Log",
    "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "tanh": "Tanh",
    "sigmoid": "Sigmoid", "relu": "Relu", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "hardswish": "HardSwish", "clone": "Identity", "_alias": "Identity",
    "linalg_det": "Det",
}.items():  # fmt: skip
    TABLE[_name] = _unary(_kind)


@rule("floor", "ceil")
def _floor(c, x):
    if "float" not in c.dtype:
        return c.w.op("Identity", c.tensor(x))
    return c.w.op(c.node.target.name.capitalize(), c.tensor(x))


@rule("_clone_ordered")
def _clone_ordered(c, x, axes):
    return c.w.op("Identity", c.tensor(x))


@rule("_to_device")
def _to_device(c, x, where=None, home=None, non_blocking=False):
    return c.w.op("Identity", c.tensor(x))


@rule("square")
def _square(c, x):
    return c.w.op("Mul", c.tensor(x), c.tensor(x))


@rule("rsqrt")
def _rsqrt(c, x):
    return c.w.op("Reciprocal", c.w.op("Sqrt", c.tensor(x)))


def _then(before, kind, constant, swap=False):
    """Translates x to kind(before(x), constant)."""

    def run(c, x):
        inner = c.w.op(before, c.tensor(x)) if before else c.tensor(x)
        operands = (inner, c.tensor(constant))
        return c.w.op(kind, *(operands[::-1] if swap else operands))

    return run


TABLE["expm1"] = _then("Exp", "Sub", 1.0)
TABLE["log2"] = _then("Log", "Div", math.log(2.0))
TABLE["log10"] = _then("Log", "Div", math.log(10.0))
TABLE["exp2"] = _then(None, "Pow", 2.0, swap=True)
TABLE["erfc"] = _then("Erf", "Sub", 1.0, swap=True)
TABLE["deg2rad"] = _then(None, "Mul", math.pi / 180)
TABLE["rad2deg"] = _then(None, "Mul", 180 / math.pi)


@rule("log1p")
def _log1p(c, x):
    return c.w.op("Log", c.w.op("Add", c.tensor(x), c.tensor(1.0)))


def _trunc_name(c, name):
    return c.w.op("Mul", c.w.op("Sign", name), c.w.op("Floor", c.w.op("Abs", name)))


@rule("trunc")
def _trunc(c, x):
    return _trunc_name(c, c.tensor(x))


@rule("round")
def _round(c, x, decimals=0):
    factor = c.tensor(10.0**decimals)
    if not decimals:
        return c.w.op("Round", c.tensor(x))
    return c.w.op("Div", c.w.op("Round", c.w.op("Mul", c.tensor(x), factor)), factor)


@rule("where")
def _where(c, condition, a, b):
    return c.w.op("Where", c.tensor(condition, "bool"), c.tensor(a), c.tensor(b))


@rule("clamp")
def _clamp(c, x, low=None, high=None):
    out = c.tensor(x)
    if low is not None:
        out = c.w.op("Max", out, c.tensor(low))
    return out if high is None else c.w.op("Min", out, c.tensor(high))


def _comparison(kind, negate=False):
    def run(c, a, b):
        dtype = c.common(a, b)
        if dtype == "bool" and kind != "Equal":
            dtype = "int32"
        out = c.w.op(kind, c.tensor(a, dtype), c.tensor(b, dtype))
        return c.w.op("Not", out) if negate else out

    return run


for _name, _kind in {"eq": "Equal", "lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual"}.items():
    TABLE[_name] = _comparison(_kind)
TABLE["ne"] = _comparison("Equal", True)


def _bitwise(boolean, integers):
    return lambda c, a, b: c.w.op(boolean if c.dtype == "bool" else integers, c.tensor(a), c.tensor(b))


TABLE["bitwise_and"] = _bitwise("And", "BitwiseAnd")
TABLE["bitwise_or"] = _bitwise("Or", "BitwiseOr")
TABLE["bitwise_xor"] = _bitwise("Xor", "BitwiseXor")


@rule("bitwise_not")
def _bitwise_not(c, x):
    return c.w.op("Not" if c.dtype == "bool" else "BitwiseNot", c.tensor(x))


for _name, _kind in {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}.items():
    TABLE[_name] = lambda c, a, b, kind=_kind: c.w.op(kind, c.tensor(a, "bool"), c.tensor(b, "bool"))


@rule("logical_not")
def _logical_not(c, x):
    return c.w.op("Not", c.tensor(x, "bool"))


@rule("isnan")
def _isnan(c, x):
    return c.w.op("IsNaN", x.name)


@rule("isinf")
def _isinf(c, x):
    return c.w.op("IsInf", x.name)


@rule("isfinite")
def _isfinite(c, x):
    return c.w.op("Not", c.w.op("Or", c.w.op("IsNaN", x.name), c.w.op("IsInf", x.name)))


@rule("nan_to_num")
def _nan_to_num(c, x, nan=0.0, posinf=None, neginf=None):
    info = dtypes.finfo(dtypes.as_dtype(c.dtype))
    out = c.w.op("Where", c.w.op("IsNaN", x.name), c.tensor(nan or 0.0), x.name)
    out = (
        c.w.op("Min", out, c.tensor(info.max if posinf is None else posinf))
        if posinf is None
        else c.w.op("Where", c.w.op("IsInf", x.name, detect_negative=0), c.tensor(posinf), out)
    )
    if neginf is None:
        return c.w.op("Max", out, c.tensor(info.min))
    return c.w.op("Where", c.w.op("IsInf", x.name, detect_positive=0), c.tensor(neginf), out)


@rule("hypot")
def _hypot(c, a, b):
    x, y = c.tensor(a), c.tensor(b)
    return c.w.op("Sqrt", c.w.op("Add", c.w.op("Mul", x, x), c.w.op("Mul", y, y)))


@rule("lerp", "lerp_by_tensor")
def _lerp(c, a, b, weight):
    return c.w.op("Add", c.tensor(a), c.w.op("Mul", c.tensor(weight), c.w.op("Sub", c.tensor(b), c.tensor(a))))


def _with_value(kind):
    def translate(c, a, b, other, value=1):
        return c.w.op("Add", c.tensor(a), c.w.op(kind, c.w.op("Mul", c.tensor(b), c.tensor(value)), c.tensor(other)))

    return translate


TABLE.update(addcmul=_with_value("Mul"), addcdiv=_with_value("Div"))


@rule("to_dtype")
def _to_dtype(c, x, dtype):
    return c.w.op("Identity", x.name) if x.dtype == c.dtype else c.w.cast(x.name, c.dtype)


# -- activations -------------------------------------------------------------------------------------------------------


def _activate(c, kind, name):
    """Returns the activation of a tensor, for the ops that contain one."""
    w = c.w
    if kind == "relu":
        return w.op("Relu", name)
    if kind == "relu_squared":
        inner = w.op("Relu", name)
        return w.op("Mul", inner, inner)
    if kind == "silu":
        return w.op("Mul", name, w.op("Sigmoid", name))
    if w.opset >= 20:
        return w.op("Gelu", name, approximate="tanh" if kind == "gelu_tanh" else "none")
    half = w.op("Mul", name, c.tensor(0.5))
    if kind == "gelu_tanh":
        cubic = w.op("Mul", w.op("Mul", w.op("Mul", name, name), name), c.tensor(0.044715))
        inner = w.op("Tanh", w.op("Mul", w.op("Add", name, cubic), c.tensor(math.sqrt(2.0 / math.pi))))
    else:
        inner = w.op("Erf", w.op("Div", name, c.tensor(math.sqrt(2.0))))
    return w.op("Mul", half, w.op("Add", inner, c.tensor(1.0)))


@rule("gelu")
def _gelu(c, x, approximate="none"):
    return _activate(c, "gelu_tanh" if approximate == "tanh" else "gelu", c.tensor(x))


@rule("silu")
def _silu(c, x):
    return _activate(c, "silu", c.tensor(x))


@rule("relu_squared")
def _relu_squared(c, x):
    return _activate(c, "relu_squared", c.tensor(x))


@rule("gated")
def _gated(c, x, other=None, *, gate):
    if other is None:
        a, b = c.w.op("Split", c.tensor(x), n=2, axis=-1, num_outputs=2)
    else:
        a, b = c.tensor(x), c.tensor(other)
    return c.w.op("Mul", _activate(c, gate, a), b)


@rule("softmax")
def _softmax(c, x, dim, dtype=None):
    return c.w.op("Softmax", c.tensor(x), axis=dim)


@rule("log_softmax")
def _log_softmax(c, x, dim, dtype=None):
    return c.w.op("LogSoftmax", c.tensor(x), axis=dim)


@rule("leaky_relu")
def _leaky_relu(c, x, slope=0.01):
    return c.w.op("LeakyRelu", c.tensor(x), alpha=float(slope))


@rule("hardtanh")
def _hardtanh(c, x, low=-1.0, high=1.0):
    return c.w.op("Min", c.w.op("Max", c.tensor(x), c.tensor(low)), c.tensor(high))


@rule("hardsigmoid")
def _hardsigmoid(c, x):
    return c.w.op("HardSigmoid", c.tensor(x), alpha=1.0 / 6.0, beta=0.5)


@rule("hardshrink")
def _hardshrink(c, x, lambd=0.5):
    return c.w.op("Shrink", c.tensor(x), lambd=float(lambd), bias=0.0)


@rule("softshrink")
def _softshrink(c, x, lambd=0.5):
    return c.w.op("Shrink", c.tensor(x), lambd=float(lambd), bias=float(lambd))


@rule("threshold")
def _threshold(c, x, level, value):
    return c.w.op("Where", c.w.op("Greater", c.tensor(x), c.tensor(level)), c.tensor(x), c.tensor(value))


@rule("logsigmoid")
def _logsigmoid(c, x):
    return c.w.op("Neg", c.w.op("Softplus", c.w.op("Neg", c.tensor(x))))


@rule("elu")
def _elu(c, x, alpha=1.0, scale=1.0, rate=1.0):
    name = c.tensor(x)
    below = c.w.op(
        "Mul",
        c.w.op("Sub", c.w.op("Exp", c.w.op("Mul", c.w.op("Min", name, c.tensor(0.0)), c.tensor(rate))), c.tensor(1.0)),
        c.tensor(alpha),
    )
    out = c.w.op("Where", c.w.op("Greater", name, c.tensor(0.0)), name, below)
    return out if scale == 1 else c.w.op("Mul", out, c.tensor(scale))


@rule("softplus")
def _softplus(c, x, beta=1.0, limit=20.0):
    name = c.tensor(x)
    scaled = name if beta == 1 else c.w.op("Mul", name, c.tensor(beta))
    out = c.w.op("Softplus", scaled)
    out = out if beta == 1 else c.w.op("Div", out, c.tensor(beta))
    return c.w.op("Where", c.w.op("Greater", scaled, c.tensor(limit)), name, out)


# -- losses -----------------------------------------------------------------------------------------------------------


@rule("_squared_error")
def _squared_error(c, a, b):
    difference = c.w.op("Sub", c.tensor(a), c.tensor(b))
    return c.w.op("Mul", difference, difference)


@rule("_clipped_error")
def _clipped_error(c, a, b, *, delta, scale):
    w = c.w
    difference = w.op("Abs", w.op("Sub", c.tensor(a), c.tensor(b)))
    near = w.op("Min", difference, c.tensor(delta))
    return w.op("Mul", w.op("Mul", near, w.op("Sub", difference, w.op("Mul", near, c.tensor(0.5)))), c.tensor(scale))


@rule("binary_cross_entropy")
def _likelihood_error(c, p, target):
    w, one = c.w, c.tensor(1.0)
    yes = w.op("Max", w.op("Log", c.tensor(p)), c.tensor(-100.0))
    no = w.op("Max", w.op("Log", w.op("Sub", one, c.tensor(p))), c.tensor(-100.0))
    return w.op("Sub", w.op("Mul", w.op("Sub", c.tensor(target), one), no), w.op("Mul", c.tensor(target), yes))


@rule("_logistic_error")
def _logistic_error(c, x, target):
    w, name = c.w, c.tensor(x)
    share = w.op(
        "Sub", w.op("Mul", w.op("Sub", c.tensor(1.0), c.tensor(target)), name), w.op("Min", name, c.tensor(0.0))
    )
    return w.op("Add", share, w.op("Softplus", w.op("Neg", w.op("Abs", name))))


# -- reductions --------------------------------------------------------------------------------------------------------


def _axes(x, dim):
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return list(range(x.ndim))
    return [d % max(x.ndim, 1) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]


def _reduce(kind):
    def run(c, x, dim=None, keepdim=False):
        name = c.tensor(x)
        if c.dtype == "bool":
            name = c.w.cast(x.name, "int32")
        out = (
            c.w.op(kind, name, c.w.ints(*_axes(x, dim)), keepdims=int(keepdim)) if x.ndim else c.w.op("Identity", name)
        )
        return c.w.cast(out, "bool") if c.dtype == "bool" else out

    return run


for _name, _kind in {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp"}.items():  # fmt: skip
    TABLE[_name] = _reduce(_kind)
TABLE["max_of_all"] = lambda c, x: _reduce("ReduceMax")(c, x)
TABLE["min_of_all"] = lambda c, x: _reduce("ReduceMin")(c, x)


@rule("all", "any")
def _all(c, x, dim=None, keepdim=False):
    name = c.w.cast(c.tensor(x, "bool"), "int32")
    kind = "ReduceMin" if c.node.target.name == "all" else "ReduceMax"
    return c.w.cast(c.w.op(kind, name, c.w.ints(*_axes(x, dim)), keepdims=int(keepdim)), "bool")


@rule("var")
def _var(c, x, dim=None, keepdim=False, correction=1):
    name, axes = c.tensor(x), _axes(x, dim)
    mean = c.w.op("ReduceMean", name, c.w.ints(*axes), keepdims=1)
    centred = c.w.op("Sub", name, mean)
    squared = c.w.op("Mul", centred, centred)
    total = c.w.op("ReduceSum", squared, c.w.ints(*axes), keepdims=int(keepdim))
    count = c.w.op("ReduceProd", c.w.op("Gather", c.w.shape(name), c.w.ints(*axes)), keepdims=0)
    divisor = c.w.op("Sub", c.w.cast(count, c.dtype), c.tensor(correction))
    return c.w.op("Div", total, c.w.op("Max", divisor, c.tensor(0.0)))


@rule("std")
def _std(c, x, dim=None, keepdim=False, correction=1):
    return c.w.op("Sqrt", _var(c, x, dim, keepdim, correction))


@rule("norm")
def _norm(c, x, ord=2, dim=None, keepdim=False):
    if ord == 0:
        raise Unsupported("ord=0")
    axes, name = c.w.ints(*_axes(x, dim)), c.tensor(x)
    if ord in (1, 2):
        return c.w.op(f"ReduceL{int(ord)}", name, axes, keepdims=int(keepdim))
    absolute = c.w.op("Abs", name)
    if ord in (math.inf, -math.inf):
        return c.w.op("ReduceMax" if ord > 0 else "ReduceMin", absolute, axes, keepdims=int(keepdim))
    total = c.w.op("ReduceSum", c.w.op("Pow", absolute, c.tensor(float(ord))), axes, keepdims=int(keepdim))
    return c.w.op("Pow", total, c.tensor(1.0 / ord))


@rule("max", "min")
def _max(c, x, dim, keepdim=False):
    name, kind = x.name, c.node.target.name.capitalize()
    values = c.w.op(f"Reduce{kind}", name, c.w.ints(dim), keepdims=int(keepdim))
    return [values, c.w.op(f"Arg{kind}", name, axis=dim, keepdims=int(keepdim))]


@rule("argmax", "argmin")
def _argmax(c, x, dim=None, keepdim=False):
    kind = "ArgMax" if c.node.target.name == "argmax" else "ArgMin"
    name = c.w.cast(x.name, "int32") if x.dtype == "bool" else x.name
    if dim is not None:
        return c.w.op(kind, name, axis=dim, keepdims=int(keepdim))
    flat = c.w.op(kind, c.w.reshape(name, -1), axis=0, keepdims=0)
    return c.w.reshape(flat, *(1,) * x.ndim) if keepdim else flat


@rule("cumsum")
def _cumsum(c, x, dim, reverse=False):
    return c.w.op("CumSum", c.tensor(x), c.w.constant(np.int64(dim % max(x.ndim, 1))), reverse=int(reverse))


@rule("sort")
def _sort(c, x, dim=-1, descending=False):
    size = c.w.op("Gather", c.w.shape(x.name), c.w.ints(dim % x.ndim))
    return c.w.op("TopK", x.name, size, n=2, axis=dim, largest=int(descending), sorted=1)


@rule("topk")
def _topk(c, x, k, dim=-1, largest=True):
    return c.w.op("TopK", x.name, c.ints(k), n=2, axis=dim, largest=int(largest), sorted=1)


# -- shapes ------------------------------------------------------------------------------------------------------------


@rule("reshape")
def _reshape(c, x, shape, axes=None):  # `axes` is about memory
    return c.w.op(
        "Reshape", x.name, c.ints(shape), allowzero=1 if any(s == 0 for s in shape if isinstance(s, int)) else None
    )


@rule("permute")
def _permute(c, x, dims):
    return c.w.op("Transpose", x.name, perm=[d % x.ndim for d in dims]) if x.ndim else c.w.op("Identity", x.name)


@rule("expand")
def _expand(c, x, shape):
    return c.w.op("Expand", x.name, c.ints([1 if isinstance(s, int) and s == -1 else s for s in shape]))


@rule("cat")
def _cat(c, *tensors, dim=0):
    tensors = [t for t in tensors if not (t.ndim == 1 and t.example == (0,) and len(c.shape) > 1)]
    return c.w.op("Concat", *(c.tensor(t) for t in tensors), axis=dim)


@rule("stack")
def _stack(c, *tensors, dim=0):
    axis = dim % (tensors[0].ndim + 1)
    return c.w.op("Concat", *(c.w.op("Unsqueeze", c.tensor(t), c.w.ints(axis)) for t in tensors), axis=axis)


@rule("split")
def _split(c, x, sizes, dim=0):
    if len(sizes) == 1:
        return [c.w.op("Identity", x.name)]
    return c.w.op("Split", x.name, c.ints(sizes), n=len(sizes), axis=dim)


@rule("unbind")
def _unbind(c, x, dim=0):
    count = x.example[dim]
    if x.shape[dim] is None:
        raise Unsupported("unbind along a dynamic dimension")
    return [c.w.op("Gather", x.name, c.w.constant(np.int64(i)), axis=dim) for i in range(count)]


@rule("repeat")
def _repeat(c, x, repeats):
    missing = len(repeats) - x.ndim
    name = c.w.op("Unsqueeze", x.name, c.w.ints(*range(missing))) if missing else x.name
    return c.w.op("Tile", name, c.ints(repeats))


@rule("flip")
def _flip(c, x, dims):
    dims = [d % x.ndim for d in ((dims,) if isinstance(dims, int) else dims)]
    many = [-1] * len(dims)
    return c.w.op("Slice", x.name, c.w.ints(*many), c.w.ints(*[-(2**62)] * len(dims)), c.w.ints(*dims), c.w.ints(*many))


@rule("roll")
def _roll(c, x, shifts, dims):
    name = x.name
    for shift, dim in zip(shifts, dims, strict=True):
        n = x.example[dim]
        if n and shift % n:
            cut = -int(math.fmod(shift, n))  # counted from the end for positive shifts, so that the size may change
            cuts = [(*[slice(None)] * dim, part) for part in (slice(cut, None), slice(None, cut))]
            name = c.w.op("Concat", *[_basic_index(c, name, x.ndim, cut)[0] for cut in cuts], axis=dim)
    return name


@rule("slice")
def _slice_op(c, x, index):
    return _basic_index(c, x.name, x.ndim, index)[0]


def _basic_index(c, name, ndim, index):
    """Applies slices, integers and None. Returns (name, the axes of the result that ARRAY items index)."""
    w = c.w
    items = list(index)
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if Ellipsis not in [i for i in items if i is Ellipsis]:
        items.append(Ellipsis)
    at = next(k for k, i in enumerate(items) if i is Ellipsis)
    items[at : at + 1] = [slice(None)] * (ndim - used)
    starts, ends, axes, steps, picks, axis = [], [], [], [], [], 0
    for item in items:
        if item is None:
            continue
        if isinstance(item, slice) and item != slice(None):
            if isinstance(item.start, Size) or item.start or item.stop is not None or item.step not in (None, 1):
                starts.append(0 if item.start is None else item.start)
                ends.append(2**62 if item.stop is None else item.stop)
                axes.append(axis)
                steps.append(1 if item.step is None else item.step)
        elif isinstance(item, (int, Size)) and not isinstance(item, bool):
            picks.append((axis, item))
        axis += 1
    if axes:
        name = w.op("Slice", name, c.ints(starts), c.ints(ends), w.ints(*axes), c.ints(steps))
    for axis, item in reversed(picks):
        number = w.constant(np.int64(item)) if isinstance(item, int) else w.op("Squeeze", item.name)
        name = w.op("Gather", name, number, axis=axis)
    arrays, new, position = [], [], 0
    for item in items:
        if isinstance(item, (int, Size)) and not isinstance(item, bool):
            continue
        if item is None:
            new.append(position)
        elif item is ARRAY or (isinstance(item, str) and item == ARRAY):
            arrays.append(position)
        position += 1
    if new:
        name = w.op("Unsqueeze", name, w.ints(*new))
    return name if (axes or picks or new) else w.op("Identity", name), arrays


@rule("index")
def _index(c, x, *indices, layout):
    w, ndim = c.w, x.ndim
    if any(i.dtype == "bool" for i in indices):
        if len(layout) > 1 and any(item is not ARRAY and item != slice(None) for item in layout):
            raise Unsupported("an index with a mask, integers and None")
        return _masked(c, x, indices, layout)
    name, axes = _basic_index(c, x.name, ndim, layout)
    indices = [c.tensor(i, "int64") for i in indices]
    if len(axes) == 1:
        return w.op("Gather", name, indices[0], axis=axes[0])
    total = indices[0]
    for other in indices[1:]:
        total = w.op("Add", total, other)  # only for the common shape
    common = w.shape(total)
    stacked = w.op("Concat", *(w.op("Unsqueeze", w.op("Expand", i, common), w.ints(-1)) for i in indices), axis=-1)
    basic = len([i for i in layout if i is None]) - len([i for i in layout if isinstance(i, (int, Size))])
    rank = ndim + basic
    rest = [a for a in range(rank) if a not in axes]
    moved = name if axes == list(range(len(axes))) else w.op("Transpose", name, perm=[*axes, *rest])
    out = w.op("GatherND", moved, stacked)
    lead = len(c.shape) - len(rest)  # axes of the index arrays
    if axes != list(range(axes[0], axes[0] + len(axes))) or axes[0] == 0:
        return out
    before = axes[0]
    perm = [lead + i for i in range(before)] + list(range(lead)) + [lead + i for i in range(before, len(rest))]
    return w.op("Transpose", out, perm=perm)


def _masked(c, x, indices, layout):
    """Translates x[mask] and x[:, mask]."""
    w = c.w
    if len(indices) > 1:
        raise Unsupported("an index with several masks")
    axis = next(i for i, item in enumerate(layout) if item is ARRAY)
    mask = indices[0]
    if mask.ndim == 1:
        return w.op("Compress", x.name, mask.name, axis=axis)
    if axis:
        raise Unsupported("an index with a mask of several dimensions after a slice")
    return w.op("GatherND", x.name, w.op("Transpose", w.op("NonZero", mask.name), perm=[1, 0]))


@rule("gather")
def _gather(c, x, index, dim):
    return c.w.op("GatherElements", x.name, c.tensor(index, "int64"), axis=dim)


@rule("scatter")
def _scatter(c, x, src, index, dim):
    return c.w.op("ScatterElements", c.tensor(x), c.tensor(index, "int64"), _scatter_source(c, src, index), axis=dim)


def _scatter_source(c, src, index):
    """Returns the source of a scatter, in the shape of the index."""
    name = c.tensor(src)
    if isinstance(src, Value) and src.ndim == index.ndim:
        if src.example == index.example:
            return name
        axes = list(range(index.ndim))
        return c.w.op("Slice", name, c.w.ints(*[0] * index.ndim), c.w.shape(index.name), c.w.ints(*axes))
    return c.w.op("Expand", name, c.w.shape(index.name))


@rule("scatter_add")
def _scatter_add(c, x, src, index, dim):
    return _scatter_sum(c, c.tensor(x), src, index, dim)


@rule("scatter_zeros")
def _scatter_zeros(c, src, index, dim, shape):
    return _scatter_sum(c, c.w.op("Expand", c.tensor(0), c.ints(shape)), src, index, dim)


def _scatter_sum(c, start, src, index, dim):
    return c.w.op(
        "ScatterElements", start, c.tensor(index, "int64"), _scatter_source(c, src, index), axis=dim, reduction="add"
    )


@rule("_triangle")
def _triangle(c, x, diagonal=0, lower=True):
    name = x.name
    if x.dtype not in ("float32", "float64", "int64"):
        name = c.w.cast(name, "int64" if "int" in x.dtype or x.dtype == "bool" else "float32")
    diagonal = c.w.op("Squeeze", diagonal.name) if isinstance(diagonal, Size) else c.w.constant(np.int64(diagonal))
    out = c.w.op("Trilu", name, diagonal, upper=int(not lower))
    return out if name == x.name else c.w.cast(out, x.dtype)


@rule("diagonal")
def _diagonal(c, x, offset=0, dim1=0, dim2=1):
    a, b = dim1 % x.ndim, dim2 % x.ndim
    if x.shape[a] is None or x.shape[b] is None:
        raise Unsupported("a diagonal along dynamic dimensions")
    rest = [i for i in range(x.ndim) if i not in (a, b)]
    moved = c.w.op("Transpose", x.name, perm=[a, b, *rest])
    count = c.example[-1]
    rows = np.arange(count)[:, None] + np.array([[max(-offset, 0), max(offset, 0)]])
    out = c.w.op("GatherND", moved, c.w.constant(rows.astype(np.int64)))
    return c.w.op("Transpose", out, perm=[*range(1, len(rest) + 1), 0])


@rule("unfold")
def _unfold(c, x, dim, size, step):
    w = c.w
    length = w.op("Gather", w.shape(x.name), w.ints(dim))
    last = w.op("Sub", length, w.ints(size - 1))
    starts = w.op("Range", w.constant(np.int64(0)), w.op("Squeeze", last), w.constant(np.int64(step)))
    index = w.op("Add", w.op("Unsqueeze", starts, w.ints(1)), w.constant(np.arange(size, dtype=np.int64)[None]))
    out = w.op("Gather", x.name, index, axis=dim)  # (…, windows, size, …)
    if dim == x.ndim - 1:
        return out
    return w.op("Transpose", out, perm=[*range(dim + 1), *range(dim + 2, x.ndim + 1), dim + 1])


# -- products ----------------------------------------------------------------------------------------------------------


@rule("matmul")
def _matmul(c, a, b):
    return c.w.op("MatMul", c.tensor(a), c.tensor(b))


def _linear_name(c, x, weight, bias):
    out = c.w.op(
        "MatMul",
        c.tensor(x),
        c.w.op("Transpose", c.tensor(weight), perm=[1, 0]) if weight.ndim == 2 else c.tensor(weight),
    )
    return out if bias is None else c.w.op("Add", out, c.tensor(bias))


@rule("linear")
def _linear(c, x, weight, bias=None):
    return _linear_name(c, x, weight, bias)


@rule("linear_activation")
def _linear_activation(c, x, weight, bias=None, *, activation):
    return _activate(c, activation, _linear_name(c, x, weight, bias))


@rule("gelu_mlp")
def _gelu_mlp(c, x, weight1, weight2, bias1=None, bias2=None):
    hidden = _activate(c, "gelu_tanh", _linear_name(c, x, weight1, bias1))
    return _linear_name(c, Value(hidden, c.dtype, x.shape, x.example), weight2, bias2)


@rule("einsum")
def _einsum(c, *operands, spec):
    return c.w.op("Einsum", *(c.tensor(o) for o in operands), equation=spec)


@rule("euclidean_dist")
def _euclidean_dist(c, a, b):
    w = c.w
    difference = w.op("Sub", w.op("Unsqueeze", c.tensor(a), w.ints(-2)), w.op("Unsqueeze", c.tensor(b), w.ints(-3)))
    return w.op("ReduceL2", difference, w.ints(-1), keepdims=0)


@rule("scaled_dot_product_attention")
def _attention(c, query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    w = c.w
    if keep is not None:
        raise Unsupported("attention with dropout, call eval() before the export")
    names = {"q": c.tensor(query), "k": c.tensor(key), "v": c.tensor(value)}
    if query.ndim > 2 and key.example[-3] != query.example[-3]:  # grouped queries share the heads of keys and values
        for short, x in (("k", key), ("v", value)):
            groups = query.example[-3] // x.example[-3]
            at = x.ndim - 2
            shape = w.shape(names[short])
            wide = w.op("Unsqueeze", names[short], w.ints(at))
            lead = w.op("Slice", shape, w.ints(0), w.ints(at))
            tail = w.op("Slice", shape, w.ints(at), w.ints(x.ndim))
            wide = w.op("Expand", wide, w.op("Concat", lead, w.ints(groups), tail, axis=0))
            front = w.op("Slice", shape, w.ints(0), w.ints(at - 1))
            names[short] = w.op("Reshape", wide, w.op("Concat", front, w.ints(query.example[-3]), tail, axis=0))
    turned = w.op("Transpose", names["k"], perm=[*range(key.ndim - 2), key.ndim - 1, key.ndim - 2])
    scores = w.op("MatMul", w.op("Mul", names["q"], c.tensor(scale)), turned)
    if softcap is not None:
        scores = w.op("Mul", w.op("Tanh", w.op("Div", scores, c.tensor(softcap))), c.tensor(softcap))
    minus = c.tensor(-math.inf)
    if causal or window is not None:
        scores = w.op("Where", _band(c, names["q"], names["k"], causal, window), scores, minus)
    masked = mask is not None
    if masked:
        scores = (
            w.op("Where", mask.name, scores, minus) if mask.dtype == "bool" else w.op("Add", scores, c.tensor(mask))
        )
    weights = w.op("Softmax", scores, axis=-1)
    if masked:  # a row without visible positions gives zeros
        weights = w.op("Where", w.op("IsNaN", weights), c.tensor(0.0), weights)
    return w.op("MatMul", weights, names["v"])


def _band(c, q, k, causal, window):
    """Returns the mask (L, S) of the visible positions: `causal` aligns the first positions, as in PyTorch."""
    w = c.w
    zero, one = w.constant(np.int64(0)), w.constant(np.int64(1))
    length = w.op("Squeeze", w.op("Gather", w.shape(q), w.ints(-2)))
    columns = w.op("Squeeze", w.op("Gather", w.shape(k), w.ints(-2)))
    row = w.op("Unsqueeze", w.op("Range", zero, length, one), w.ints(1))
    column = w.op("Unsqueeze", w.op("Range", zero, columns, one), w.ints(0))
    distance = w.op("Sub", row, column)
    if window is None:
        return w.op("GreaterOrEqual", distance, zero)
    left, right = window
    found = []
    if causal:
        right = 0 if right is None or right < 0 else min(right, 0)
    if left is not None and left >= 0:
        found.append(w.op("LessOrEqual", distance, w.constant(np.int64(left))))
    if right is not None and right >= 0:
        found.append(w.op("GreaterOrEqual", distance, w.constant(np.int64(-right))))
    if not found:
        return w.op("GreaterOrEqual", distance, w.op("Neg", columns))
    return found[0] if len(found) == 1 else w.op("And", *found)


@rule("masked_softmax")
def _masked_softmax(c, x, mask=None, *, causal=False, dtype=None):
    scores, minus = c.tensor(x), c.tensor(-math.inf)
    if causal:
        scores = c.w.op(
            "Where",
            _band(
                c, scores, c.w.op("Transpose", scores, perm=[*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]), True, None
            ),
            scores,
            minus,
        )
    if mask is not None:
        scores = (
            c.w.op("Where", mask.name, scores, minus) if mask.dtype == "bool" else c.w.op("Add", scores, c.tensor(mask))
        )
    weights = c.w.op("Softmax", scores, axis=-1)
    return c.w.op("Where", c.w.op("IsNaN", weights), c.tensor(0.0), weights)


# -- convolutions and pools --------------------------------------------------------------------------------------------


@rule("convolution")
def _convolution(c, x, weight, bias=None, *, stride, padding, dilation, groups):
    return c.w.op(
        "Conv", c.tensor(x), c.tensor(weight), None if bias is None else c.tensor(bias), strides=list(stride),
        pads=[*padding, *padding], dilations=list(dilation), group=groups, kernel_shape=list(weight.example[2:]),
    )  # fmt: skip


@rule("convolution_input")
def _convolution_input(c, x, weight, bias=None, *, shape, stride, padding, dilation, groups):
    kernel = weight.example[2:]
    smallest = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, s, p, d, k in zip(x.example[2:], stride, padding, dilation, kernel, strict=True)
    ]
    extra = [a - b for a, b in zip(c.example[2:], smallest, strict=True)]
    return c.w.op(
        "ConvTranspose", c.tensor(x), c.tensor(weight), None if bias is None else c.tensor(bias), strides=list(stride),
        pads=[*padding, *padding], dilations=list(dilation), group=groups, kernel_shape=list(kernel), output_padding=extra,
    )  # fmt: skip


def _is_ceil(x, out, kernel, stride, padding, dilation):
    sizes = zip(x.example[2:], kernel, stride, padding, dilation, strict=True)
    return any((n + 2 * p - d * (k - 1) - 1) // s + 1 != o for (n, k, s, p, d), o in zip(sizes, out, strict=True))


@rule("max_pool")
def _max_pool(c, x, *, out_size, kernel, stride, padding, dilation):
    if c.used(1):
        raise Unsupported("the indices of a maximum pool")
    if any(isinstance(k, Size) for k in (*kernel, *stride)):
        return [_global_pool(c, x, "ReduceMax", out_size)]
    out = c.node.users  # the example shape of the result is in the metadata of the node that reads it
    example = next(iter(out)).meta["example_shape"][2:]
    ceil = _is_ceil(x, example, kernel, stride, padding, dilation)
    name = x.name if x.dtype in ("float32", "float64", "float16", "int8", "uint8") else c.w.cast(x.name, "float32")
    found = c.w.op(
        "MaxPool", name, kernel_shape=list(kernel), strides=list(stride), pads=[*padding, *padding], dilations=list(dilation), ceil_mode=int(ceil),
    )  # fmt: skip
    return [found if name == x.name else c.w.cast(found, x.dtype), None]


def _global_pool(c, x, kind, out_size):
    if any(n != 1 for n in out_size):
        raise Unsupported("adaptive pooling of a dynamic size to a size other than 1")
    return c.w.op(kind, c.tensor(x, x.dtype), c.w.ints(*range(2, x.ndim)), keepdims=1)


@rule("avg_pool")
def _avg_pool(c, x, *, out_size, kernel, stride, padding, scale):
    if any(isinstance(k, Size) for k in (*kernel, *stride)):
        return _global_pool(c, x, "ReduceMean", out_size)
    if not isinstance(scale, float) and not isinstance(scale, Value):
        raise Unsupported("an average pool with dynamic weights")
    count = float(np.prod(kernel))
    one = (1,) * len(kernel)
    ceil = _is_ceil(x, c.example[2:], kernel, stride, padding, one)
    name = x.name
    pads = [*padding, *padding]
    if ceil:  # the last windows reach past the padding: pad explicitly
        extra = [
            max((o - 1) * s + k - n - p, p)
            for n, o, s, k, p in zip(x.example[2:], c.example[2:], stride, kernel, padding, strict=True)
        ]
        if None in x.shape[2:]:
            raise Unsupported("an average pool with ceil_mode=True and dynamic sizes")
        name = c.w.op("Pad", name, c.w.ints(0, 0, *padding, 0, 0, *extra), c.tensor(0.0, x.dtype))
        pads = [0] * len(pads)
    out = c.w.op("AveragePool", name, kernel_shape=list(kernel), strides=list(stride), pads=pads, count_include_pad=1)
    if isinstance(scale, float) and abs(scale * count - 1) < 1e-12:
        return out
    factor = c.tensor(scale * count) if isinstance(scale, float) else c.w.op("Mul", c.tensor(scale), c.tensor(count))
    return c.w.op("Mul", out, factor)


# -- normalization -----------------------------------------------------------------------------------------------------


def _normalized_axes(x, width):
    """Returns the first axis of a norm over the last `width` elements."""
    width = width.example if isinstance(width, Size) else width
    total, axis = 1, x.ndim
    while axis > 0 and total < width:
        axis -= 1
        total *= x.example[axis]
    return min(axis, x.ndim - 1)


def _normed_name(c, name, axes, eps):
    """Returns a tensor with mean 0 and variance 1 along the axes."""
    w, axes = c.w, c.w.ints(*axes)
    centred = w.op("Sub", name, w.op("ReduceMean", name, axes, keepdims=1))
    variance = w.op("ReduceMean", w.op("Mul", centred, centred), axes, keepdims=1)
    return w.op("Div", centred, w.op("Sqrt", w.op("Add", variance, c.tensor(eps))))


def _layer_norm_name(c, name, x, weight, bias, width, eps):
    axis = _normalized_axes(x, width)
    shape = x.example[axis:]
    if None in x.shape[axis:]:
        out = _normed_name(c, name, range(axis, x.ndim), eps)
        out = out if weight is None else c.w.op("Mul", out, c.tensor(weight))
        return out if bias is None else c.w.op("Add", out, c.tensor(bias))
    scale = c.tensor(np.ones(shape)) if weight is None else c.tensor(weight)
    scale = c.w.reshape(scale, *shape) if weight is not None and weight.example != tuple(shape) else scale
    return c.w.op(
        "LayerNormalization",
        name,
        scale,
        None if bias is None else c.tensor(bias),
        axis=axis - x.ndim,
        epsilon=float(eps),
    )


def _rms_norm_name(c, name, x, weight, width, eps):
    axes = c.w.ints(*range(_normalized_axes(x, width), x.ndim))
    mean = c.w.op("ReduceMean", c.w.op("Mul", name, name), axes, keepdims=1)
    out = c.w.op("Div", name, c.w.op("Sqrt", c.w.op("Add", mean, c.tensor(eps))))
    return out if weight is None else c.w.op("Mul", out, c.tensor(weight))


@rule("layer_norm")
def _layer_norm(c, x, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    return _layer_norm_name(c, c.tensor(x), x, weight, bias, width, eps)


@rule("rms_norm")
def _rms_norm(c, x, weight=None, *, width, eps, dtype=None):
    return _rms_norm_name(c, c.tensor(x), x, weight, width, eps)


def _total(c, x, residual):
    c.dtype = x.dtype
    return c.tensor(x) if residual is None else c.w.op("Add", c.tensor(x), c.tensor(residual))


@rule("add_layer_norm")
def _add_layer_norm(c, x, residual=None, weight=None, bias=None, *, width, eps=1e-5, dtype=None):
    total = _total(c, x, residual)
    return [total, _layer_norm_name(c, total, x, weight, bias, width, eps)]


@rule("add_rms_norm")
def _add_rms_norm(c, x, residual=None, weight=None, *, width, eps, dtype=None):
    total = _total(c, x, residual)
    return [total, _rms_norm_name(c, total, x, weight, width, eps)]


def _per_channel(c, x, ndim):
    name = c.tensor(x)
    return c.w.op("Unsqueeze", name, c.w.ints(*range(1, ndim - 1))) if ndim > 2 else name


@rule("channel_affine")
def _channel_affine(c, x, scale, shift):
    product = c.w.op("Mul", c.tensor(x), _per_channel(c, scale, x.ndim))
    return c.w.op("Add", product, _per_channel(c, shift, x.ndim))


@rule("group_norm")
def _group_norm(c, x, weight=None, bias=None, *, num_groups, eps=1e-5, dtype=None):
    w, name = c.w, c.tensor(x)
    if isinstance(num_groups, Size):
        raise Unsupported("a dynamic number of groups")
    shape = w.shape(name)
    normed = _normed_name(c, w.op("Reshape", name, w.ints(0, num_groups, -1)), (2,), eps)
    out = w.op("Reshape", normed, shape)
    out = out if weight is None else w.op("Mul", out, _per_channel(c, weight, x.ndim))
    return out if bias is None else w.op("Add", out, _per_channel(c, bias, x.ndim))


@rule("batch_norm")
def _batch_norm(c, x, weight=None, bias=None, *, eps=1e-5, stats=None):
    raise Unsupported("batch normalization in training mode, call eval() before the export")


@rule("dropout")
def _dropout(c, x, *, mask):
    raise Unsupported("dropout, call eval() before the export")


# -- tables and recurrent layers ---------------------------------------------------------------------------------------


@rule("embedding")
def _embedding(c, weight, index, *, padding_idx=None, scale_grad_by_freq=False):
    return c.w.op("Gather", weight.name, c.tensor(index, "int64"), axis=0)


def _input_weights(c, x, gates):
    """Returns (input, weight (gates * H, I), bias or None) of a recurrent layer, whose input is the result of `linear`."""
    w = c.w
    node = x.node
    if node is not None and getattr(node.target, "name", "") == "linear" and c.values(node.args[0]).ndim == 3:
        inner, weight, *bias = node.args
        bias = bias[0] if bias else None
        return c.values(inner).name, c.values(weight).name, None if bias is None else c.values(bias).name
    width = x.example[-1]
    return x.name, w.constant(np.eye(width, dtype=dtypes.as_dtype(x.dtype).numpy)), None


def _ordered(c, name, order, count):
    """Returns rows of a weight with the gates in another order."""
    parts = c.w.op("Split", name, n=count, axis=0, num_outputs=count) if count > 1 else [name]
    return c.w.op("Concat", *(parts[i] for i in order), axis=0) if count > 1 else name


def _recurrent(c, kind, x, weight, states, order, hidden_bias=None, reverse=False, **attrs):
    """Adds a recurrent layer of one direction. Returns the names of its outputs."""
    w, count = c.w, len(order)
    c.dtype = x.dtype
    hidden = weight.example[1]
    data, w_in, b_in = _input_weights(c, x, count)
    first = w.op("Unsqueeze", _ordered(c, w_in, order, count), w.ints(0))
    second = w.op("Unsqueeze", _ordered(c, weight.name, order, count), w.ints(0))
    bias = None
    if b_in is not None or hidden_bias is not None:
        zeros = w.constant(np.zeros(count * hidden, dtypes.as_dtype(x.dtype).numpy))
        parts = [
            _ordered(c, b_in, order, count) if b_in else zeros,
            _ordered(c, hidden_bias, order, count) if hidden_bias else zeros,
        ]
        bias = w.op("Unsqueeze", w.op("Concat", *parts, axis=0), w.ints(0))
    states = [w.op("Unsqueeze", s.name, w.ints(0)) for s in states]
    outs = w.op(
        kind, data, first, second, bias, None, *states, n=1 + len(states), hidden_size=hidden,
        direction="reverse" if reverse else "forward", **attrs,
    )  # fmt: skip
    return [w.op("Squeeze", outs[0], w.ints(1)), *(w.op("Squeeze", s, w.ints(0)) for s in outs[1:])]


@rule(recording.lstm)
def _lstm(c, x, h, cell, weight, projection=None, reverse=False):
    if projection is not None:
        raise Unsupported("an LSTM with proj_size")
    return _recurrent(c, "LSTM", x, weight, (h, cell), (0, 3, 1, 2), None, reverse)


@rule(recording.gru)
def _gru(c, x, h, weight, bias, reverse=False):
    return _recurrent(c, "GRU", x, weight, (h,), (1, 0, 2), bias.name, reverse, linear_before_reset=1)


@rule(recording.rnn)
def _rnn(c, x, h, weight, reverse=False, relu=False):
    return _recurrent(c, "RNN", x, weight, (h,), (0,), None, reverse, activations=["Relu" if relu else "Tanh"])


# -- creation and writing ----------------------------------------------------------------------------------------------


@rule(creation.arange)
def _arange(c, *args, **options):
    args = (0, *args) if len(args) == 1 else args
    found = {"start": 0, "step": 1, **options, **dict(zip(("start", "end", "step"), args, strict=False))}
    start, end, step = found["start"], found["end"], found["step"]
    dtype = "int64" if not any(isinstance(v, float) for v in (start, end, step)) else "float32"
    names = [c.tensor(v, dtype) for v in (start, end, step)]
    out = c.w.op("Range", *names)
    return out if dtype == c.dtype else c.w.cast(out, c.dtype)


def _sized(value):
    def run(c, *size, **options):
        size = options.get("size", size)
        size = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        return c.w.op("Expand", c.tensor(value), c.ints(tuple(size)))

    return run


def _like(value):
    return lambda c, x, *args, **options: c.w.op("Expand", c.tensor(value), c.w.shape(x.name))


def _new(value):
    def run(c, x, *size, **options):
        return _sized(value)(c, *size, **options)

    return run


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    TABLE[getattr(creation, _name)] = _sized(_value)
    TABLE[getattr(creation, f"{_name}_like")] = _like(_value)


@rule(creation.full)
def _full(c, size, fill_value, **options):
    return c.w.op("Expand", c.tensor(fill_value), c.ints(tuple(size) if isinstance(size, (tuple, list)) else size))


@rule(creation.full_like)
def _full_like(c, x, fill_value, **options):
    return c.w.op("Expand", c.tensor(fill_value), c.w.shape(x.name))


@rule(creation.eye)
def _eye(c, n, m=None, **options):
    zeros = c.w.op("Expand", c.tensor(0.0, "float32"), c.ints((n, n if m is None else m)))
    return c.w.op("EyeLike", zeros, dtype=c.w.kind(c.dtype))


@rule(recording.constant)
def _constant(c, value):
    return c.w.op("Identity", value.name)


def _positions(c, x):
    """Returns the numbers of the elements of a tensor, in its shape."""
    w = c.w
    shape = w.shape(x.name)
    count = w.op("ReduceProd", shape, keepdims=0)
    return w.op("Reshape", w.op("Range", w.constant(np.int64(0)), count, w.constant(np.int64(1))), shape)


def _written(c, x, positions, source):
    """Writes values at positions of the flattened tensor."""
    w = c.w
    values = w.op("Expand", source, w.shape(positions))
    flat = w.op("ScatterElements", w.reshape(x.name, -1), w.reshape(positions, -1), w.reshape(values, -1), axis=0)
    return w.op("Reshape", flat, w.shape(x.name))


@rule(recording.set_item)
def _set_item(c, x, index, value):
    w = c.w
    items = list(index) if isinstance(index, tuple) else [index]
    arrays = [i for i in items if isinstance(i, Value)]
    source = c.tensor(value, x.dtype)
    if len(arrays) == 1 and arrays[0].dtype == "bool" and len(items) == 1:
        mask = arrays[0]
        if isinstance(value, Value) and value.ndim:
            raise Unsupported("an assignment of several values to a mask")
        name = mask.name if mask.ndim == x.ndim else w.op("Unsqueeze", mask.name, w.ints(*range(mask.ndim, x.ndim)))
        return w.op("Where", name, source, x.name)
    layout = tuple(ARRAY if isinstance(i, Value) else i for i in items)
    numbers = Value(_positions(c, x), "int64", x.shape, x.example)
    if not arrays:
        positions = _basic_index(c, numbers.name, x.ndim, layout)[0]
    else:
        inner = Call(w, c.node)
        inner.shape = (None,) * (max(a.ndim for a in arrays) + x.ndim - len(arrays))
        positions = _index(inner, numbers, *arrays, layout=layout)
    return _written(c, x, positions, source)


@rule(recording.write_region)
def _write_region(c, x, src, steps):
    positions = Value(_positions(c, x), "int64", x.shape, x.example)
    for op, attrs in steps:
        inner = Call(c.w, c.node)
        inner.dtype = "int64"
        positions = Value(
            TABLE[op.name](inner, positions, **attrs), "int64", (None,) * len(attrs.get("shape", positions.shape)), None
        )
    return _written(c, x, positions.name, c.tensor(src, x.dtype))


@rule(padding.pad)
def _pad(c, x, pad, mode="constant", value=None):
    widths = list(pad)
    before, after = [0] * x.ndim, [0] * x.ndim
    for i in range(len(widths) // 2):
        before[-1 - i], after[-1 - i] = widths[2 * i], widths[2 * i + 1]
    kind = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    if kind == "wrap" and c.w.opset < 19:
        raise Unsupported("circular padding before opset 19")
    number = c.tensor(0 if value is None else value, x.dtype) if mode == "constant" else None
    return c.w.op("Pad", x.name, c.ints([*before, *after]), number, mode=kind)


@rule("pad")
def _pad_op(c, x, *, widths, value=0.0):
    return c.w.op("Pad", x.name, c.ints([*(a for a, _ in widths), *(b for _, b in widths)]), c.tensor(value, x.dtype))


@rule(resample.interpolate)
def _interpolate(
    c, x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False
):
    w, d = c.w, x.ndim - 2
    kinds = {
        "nearest": "nearest",
        "nearest-exact": "nearest",
        "linear": "linear",
        "bilinear": "linear",
        "trilinear": "linear",
        "bicubic": "cubic",
    }
    if mode not in kinds:
        raise Unsupported(f"interpolate with mode={mode!r}")
    coordinates = "asymmetric" if mode == "nearest" else "align_corners" if align_corners else "half_pixel"
    if mode not in ("nearest", "nearest-exact") and not align_corners:
        coordinates = "pytorch_half_pixel"
    scales = sizes = None
    if size is not None:
        size = (size,) * d if isinstance(size, (int, Size)) else tuple(size)
        lead = w.op("Slice", w.shape(x.name), w.ints(0), w.ints(2))
        sizes = w.op("Concat", lead, c.ints(size), axis=0)
    else:
        factors = (scale_factor,) * d if isinstance(scale_factor, (int, float)) else tuple(scale_factor)
        if recompute_scale_factor and any(float(f) != int(f) for f in factors):
            raise Unsupported("interpolate with recompute_scale_factor=True")
        scales = w.constant(np.array([1.0, 1.0, *factors], np.float32))
    return w.op(
        "Resize", x.name, None, scales, sizes, mode=kinds[mode], coordinate_transformation_mode=coordinates,
        nearest_mode="floor" if mode == "nearest" else "round_prefer_ceil" if mode == "nearest-exact" else None,
        cubic_coeff_a=-0.5 if antialias else -0.75, antialias=int(antialias),
    )  # fmt: skip


@rule(resample.grid_sample)
def _grid_sample(c, x, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    if c.w.opset >= 20:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return c.w.op(
        "GridSample",
        x.name,
        c.tensor(grid, x.dtype),
        mode=mode,
        padding_mode=padding_mode,
        align_corners=int(bool(align_corners)),
    )


# -- detection ---------------------------------------------------------------------------------------------------------


def _nms_names(c, boxes, scores, threshold):
    w = c.w
    count = w.op("Gather", w.shape(scores), w.ints(0))
    found = w.op(
        "NonMaxSuppression", w.op("Unsqueeze", boxes, w.ints(0)), w.op("Unsqueeze", scores, w.ints(0, 1)), count, w.constant(np.array([threshold], np.float32)),
    )  # fmt: skip
    return w.op("Gather", found, w.constant(np.int64(2)), axis=1)


@rule(regions.nms)
def _nms(c, boxes, scores, iou_threshold):
    return _nms_names(c, c.tensor(boxes, "float32"), c.tensor(scores, "float32"), iou_threshold)


@rule(regions.batched_nms)
def _batched_nms(c, boxes, scores, idxs, iou_threshold):
    w, name = c.w, c.tensor(boxes, "float32")
    largest = w.op("ReduceMax", name, keepdims=0)
    apart = w.op("Mul", c.tensor(idxs, "float32"), w.op("Add", largest, w.constant(np.float32(1))))
    moved = w.op("Add", name, w.op("Unsqueeze", apart, w.ints(1)))
    return _nms_names(c, moved, c.tensor(scores, "float32"), iou_threshold)


@rule(regions.roi_align)
def _roi_align(c, x, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    w = c.w
    boxes = w.op("Slice", rois.name, w.ints(1), w.ints(5), w.ints(1))
    batch = w.cast(w.op("Gather", rois.name, w.constant(np.int64(0)), axis=1), "int64")
    return w.op(
        "RoiAlign", x.name, boxes, batch, output_height=pooled_height, output_width=pooled_width, spatial_scale=float(spatial_scale),
        sampling_ratio=max(sampling_ratio, 0), mode="avg",
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip


# -- sizes -------------------------------------------------------------------------------------------------------------


@rule(building.sym_size)
def _sym_size(c, x, dim):
    return Size(c.w.op("Shape", x.name, start=dim, end=dim + 1))


def _size_name(c, x):
    return x.name if isinstance(x, Size) else c.w.ints(x)


for _function, _kind in ((operator.add, "Add"), (operator.sub, "Sub"), (operator.mul, "Mul")):
    TABLE[_function] = lambda c, a, b, kind=_kind: Size(c.w.op(kind, _size_name(c, a), _size_name(c, b)))
TABLE[operator.floordiv] = lambda c, a, b: Size(
    c.w.op("Div", c.w.op("Sub", _size_name(c, a), c.w.op("Mod", _size_name(c, a), _size_name(c, b))), _size_name(c, b))
)
TABLE[float] = lambda c, a: Size(c.w.op("Squeeze", c.w.cast(a.name, "float32")), True)
TABLE[building._reciprocal] = lambda c, a: Size(
    c.w.op("Reciprocal", c.w.op("Squeeze", c.w.cast(a.name, "float32"))), True
)

for _name, _value in (("new_zeros", 0), ("new_ones", 1), ("new_empty", 0)):
    TABLE[vars(Tensor)[_name]] = _new(_value)


@rule(vars(Tensor)["new_full"])
def _new_full(c, x, size, fill_value, **options):
    return c.w.op("Expand", c.tensor(fill_value), c.ints(tuple(size) if isinstance(size, (tuple, list)) else size))


@rule(vars(Tensor)["nonzero"])
def _nonzero(c, x, as_tuple=False):
    found = c.w.op("NonZero", x.name)
    if not as_tuple:
        return c.w.op("Transpose", found, perm=[1, 0])
    return [c.w.op("Gather", found, c.w.constant(np.int64(i)), axis=0) for i in range(x.ndim)]
