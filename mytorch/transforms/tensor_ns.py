"""The namespace xp over Tensors: NumPy's names and arguments, recorded ops underneath.

With it a gradient formula, or the reference forward of an op, runs on Tensors, so that the result can be
differentiated again (`create_graph=True`). It holds what formulas use, no more; a formula that needs
another name adds it here.
"""

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..backend import MetaArray, meta_ns, numpy_ns, xp_of
from ..base import dtypes, hooks
from ..dispatch.op import op
from ..dispatch.record import RECORDS
from ..dispatch.unwrap import raw_of
from ..engine import walk
from ..engine.mode import enable_grad, get_mode
from ..engine.node import OutputEdge, accumulating
from ..ops import complex as complex_
from ..ops import creation, elementwise, indexing, movement, reduction
from ..ops.padding import pad


def _tensor(x):
    return (
        x
        if isinstance(x, (Tensor, int, float, bool))
        else Tensor._wrap(np.asarray(x) if isinstance(x, np.generic) else x)
    )


def _axis(function):
    """A reduction with NumPy's `axis` and `keepdims`."""

    def reduce(x, axis=None, keepdims=False, initial=None):
        return function(x, dim=axis, keepdim=keepdims)

    return reduce


class TensorNamespace:
    """Functions named as NumPy's, over Tensors; constants are made by `arrays`, the namespace of their device."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __getattr__(self, name):
        raise NotImplementedError(
            f"a gradient formula asks for {name!r}, which transforms/tensor_ns.py does not offer; second derivatives need it there."
        )

    def __repr__(self):
        return "<namespace over Tensors>"

    def call(self, record, *inputs, **attrs):
        """Another op, recorded."""
        return record(*inputs, **attrs)

    def detach(self, x):
        """x without its graph."""
        return x.detach() if isinstance(x, Tensor) else x

    def conj(self, x):
        """The complex conjugate; x itself if it is real, or a number."""
        return x.conj() if isinstance(x, Tensor) and x.dtype.is_complex else x

    def is_complex(self, x):
        return x.dtype.is_complex

    def real(self, x):
        return complex_.real(x)

    def sign(self, x):
        """-1, 0 or 1; for complex numbers z / |z|."""
        return elementwise.sgn(x)

    def astype(self, x, dtype):
        """x as a dtype, ours or NumPy's."""
        return elementwise.cast(x, dtypes.as_dtype(dtype))

    def asarray(self, x, dtype=None):
        """x, a raw array or number, as a constant."""
        out = x if isinstance(x, Tensor) else Tensor._wrap(self.arrays.asarray(x))
        return out if dtype is None else self.astype(out, dtype)

    def where(self, condition, x, y):
        """x where the condition holds, else y; the condition may be a Python bool."""
        if isinstance(condition, (bool, np.bool_)):
            like = x if isinstance(x, Tensor) else y
            chosen = x if condition else y
            return chosen if isinstance(chosen, Tensor) or not isinstance(like, Tensor) else like * 0 + chosen
        return elementwise._where(_tensor(condition), x, y)

    def gather(self, x, index, dim):
        """x's elements at the raw `index` along `dim`."""
        return x[xp_of(index).grid(index, dim)]

    def sum_of_squares(self, x, axis=None, keepdims=False):
        """The sum of |x|^2 over axes."""
        square = x * x if not x.dtype.is_complex else elementwise.abs(x) ** 2
        return self.sum(square, axis=axis, keepdims=keepdims)

    def transpose(self, x, axes=None):
        """The axes reversed, or in the given order."""
        return movement.permute(x, *(range(x.ndim)[::-1] if axes is None else axes))

    def reshape(self, x, shape):
        return movement.reshape(x, *shape) if isinstance(shape, (tuple, list)) else movement.reshape(x, shape)

    def broadcast_to(self, x, shape):
        return movement.expand(x, *shape) if isinstance(x, Tensor) else x

    def expand_dims(self, x, axis):
        """A new axis; index arrays, which are constants, stay raw."""
        return movement.unsqueeze(x, axis) if isinstance(x, Tensor) else xp_of(x).expand_dims(x, axis)

    def squeeze(self, x, axis=None):
        return movement.squeeze(x, axis)

    def swapaxes(self, x, a, b):
        return movement.transpose(x, a, b)

    def concatenate(self, arrays, axis=0):
        return movement.cat(list(arrays), axis)

    def stack(self, arrays, axis=0):
        return movement.stack(list(arrays), axis)

    def flip(self, x, axis):
        return movement.flip(x, axis)

    def take_along_axis(self, x, index, axis):
        return indexing._gather(x, index, dim=axis % x.ndim)

    def arange(self, n):
        return Tensor._wrap(self.arrays.arange(n))

    def zeros(self, shape, dtype=None):
        return Tensor._wrap(self.arrays.zeros(shape, dtypes.as_numpy(dtype or dtypes.default_dtype())))

    def ones(self, shape, dtype=None):
        return Tensor._wrap(self.arrays.ones(shape, dtypes.as_numpy(dtype or dtypes.default_dtype())))

    def zeros_like(self, x):
        return creation.zeros_like(x)

    def ones_like(self, x):
        return creation.ones_like(x)

    def maximum(self, x, y):
        """The larger of two; where a number ties with x it is the number, which has no gradient."""
        return elementwise.maximum(x, y) if isinstance(y, Tensor) else self.where(x <= y, y, x)

    def clip(self, x, low, high):
        return self.where(x >= high, high, self.where(x <= low, low, x))

    def pad(self, x, widths, constant_values=0):
        """x with a constant around it; (before, after) for each axis."""
        return pad(x, [n for pair in widths[::-1] for n in pair], "constant", constant_values)

    def exp(self, x, out=None):
        """e to the x; `out`, a place to write to for raw arrays, is not used."""
        return elementwise.exp.fast_call(x)

    def divide(self, x, y, out=None):
        return x / y

    def max(self, x, axis=None, keepdims=False, initial=None):
        """The maximum as a constant: it shifts exponents, and the shift cancels in the derivative."""
        return reduction.amax(x.detach(), () if axis is None else axis, keepdims)


def _composed(record, inputs, fused, attrs):
    """Run an op's reference over Tensors; as it is where that can't be."""
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if tensors and not record.view and not record.variadic and record.is_differentiable:
        try:
            return over_tensors(record, tensors[0], inputs, attrs)
        except (NotImplementedError, AttributeError, TypeError):  # it asks for what only raw arrays have
            pass
    return record.dispatch(*inputs, fused=fused, **attrs)


def over_tensors(record, first, inputs, attrs):
    """Returns the outputs of an op's reference forward over Tensors, of which `first` is one; integer inputs are raw arrays there."""
    inputs = [*inputs[: record.floats], *map(raw_of, inputs[record.floats :])]
    out = record.forward(tensor_ns(xp_of(first._data._array)), *inputs, **attrs)
    count = len(record.residuals)
    return out if not count else out[0] if len(out) == count + 1 else out[:-count]


hooks.run_composed = _composed
_functions = {r.xp_name: r.fast_call for r in RECORDS.values() if r.xp_name is not None}
_functions.update(abs=elementwise.abs.fast_call, sum=_axis(reduction.sum), mean=_axis(reduction.mean))
_functions["cumsum"] = lambda x, axis: reduction.cumsum(x, axis)
for _name, _function in _functions.items():
    if _name not in vars(TensorNamespace):
        setattr(TensorNamespace, _name, staticmethod(_function))

_by_namespace = {}


def tensor_ns(arrays):
    """The namespace over Tensors that lie where the arrays of a raw namespace do."""
    if (
        arrays is meta_ns and get_mode().interpreter is not None
    ):  # over tensors that stand for others, with constants of numbers
        arrays = numpy_ns
    if arrays not in _by_namespace:
        _by_namespace[arrays] = TensorNamespace(arrays)
    return _by_namespace[arrays]


@op(dtype="same")
def _alias(xp, input):
    """input under a new edge, so that a derivative can stop there and go on later."""
    return input


_alias.grad(input=lambda g: g)


class RecordedArithmetic:
    """How the engine computes gradients that have a graph of their own: on Tensors."""

    @staticmethod
    def fit(g, edge):
        shape = tuple(g.shape)
        if shape != edge.shape:
            axes = walk.repeated_axes(shape, edge.shape)
            g = (reduction.sum(g, axes, True) if axes else g).reshape(edge.shape)
        return elementwise.cast(g, dtypes.from_numpy(edge.dtype))

    @staticmethod
    def formulas(node, g):
        if node.plan.implementation.replays:
            return _replay(node, g)
        saved, plan = _attached(node), node.plan
        if plan.vjp is not None:
            results = plan.vjp(g, *[saved[k] for k in plan.vjp_arguments])
            return [(node.parents[i], results[i]) for i in plan.needed]
        return [(node.parents[i], f(g, *[saved[k] for k in arguments])) for i, f, arguments in plan.formulas]

    @staticmethod
    def conj(g):
        return g.conj() if g.dtype.is_complex else g

    @staticmethod
    def zeros(shape, dtype, like):
        return tensor_ns(xp_of(like)).zeros(shape, dtype)

    @staticmethod
    def wrap(g):
        return g

    @staticmethod
    def unwrap(g):
        return g if isinstance(g, Tensor) else Tensor._of(g._data)

    @staticmethod
    def raw(g):
        return g._data._array

    @staticmethod
    def stack(rows):
        return movement.stack(list(rows))

    @staticmethod
    def start(raw):
        """The gradient that backward begins with: within vmap, ones are what has no elements."""
        return tensor_ns(meta_ns).ones(raw.shape, raw.dtype) if isinstance(raw, MetaArray) else Tensor._wrap(raw)

    @staticmethod
    def constant(raw):
        return tensor_ns(meta_ns).zeros(raw.shape, raw.dtype) if isinstance(raw, MetaArray) else Tensor._wrap(raw)

    @staticmethod
    def into_leaf(leaf, g, owned):
        with accumulating:
            leaf.grad = g if leaf.grad is None else elementwise._add.fast_call(g, leaf.grad)
        leaf.run_post_hooks()


def _attached(node):
    """What a node saved, with the inputs and outputs among it tied to the graph again."""
    op_record, names = node.op, node.plan.names
    saved, (given, outs) = list(node.saved), _followed(node)
    for k, name in enumerate(names):
        value = saved[k]
        if name == "xp":
            saved[k] = tensor_ns(value)
        elif name in op_record.inputs and name not in op_record.integers:
            if op_record.variadic and name == op_record.inputs[-1]:
                saved[k] = [_input(given, i, v, e) for i, (v, e) in enumerate(zip(value, node.parents, strict=True))]
            elif value is not None and hasattr(value, "shape"):
                i = op_record.inputs.index(name)
                saved[k] = _input(given, i, value, node.parents[i] if i < len(node.parents) else None)
        elif name in op_record.outputs_names and hasattr(value, "shape"):
            i = op_record.outputs_names.index(name)
            saved[k] = outs[i] if outs and value.dtype.kind in "fcV" else _output(node, i, value)
    return saved


def _followed(node):
    """The inputs and outputs of a node's op that the interpreter of this block follows; two times () if there are none."""
    interpreter = get_mode().interpreter
    return (interpreter and interpreter.kept(node)) or ((), ())


def _input(given, i, raw, edge):
    """An input that a node saved as a Tensor on its edge: the very one that was given, where an interpreter has kept it."""
    kept = given[i] if i < len(given) else None
    return kept if isinstance(kept, Tensor) else Tensor._of(Array._wrap(raw), edge)


def _output(node, i, raw):
    """An output of a node as a Tensor on the node's edge; integer outputs, such as indices, stay raw."""
    if raw.dtype.kind not in "fcV":
        return raw
    if not node.plan.ports:
        return Tensor._of(Array._wrap(raw), node)
    port = OutputEdge(node, i, raw.shape, raw.dtype)
    return Tensor._of(Array._wrap(raw), port)


def _replay(node, g):
    """The gradient of an op with residuals, or of one that ran by a kernel, as something differentiable.

    Its reference forward is run again over Tensors and that graph is differentiated; residuals taken as
    constants would give wrong second derivatives.
    """
    plan, record = node.plan, node.op
    values = dict(zip(plan.names, node.saved, strict=True))
    inputs, ends = [], {}
    given, _ = _followed(node)
    if record.saves_sum:  # the sum of the first two inputs, an output of the node's own
        total = _alias.fast_call(_output(node, 0, values[record.outputs_names[0]]))
        inputs, ends = [total, None], {i: total._edge for i in (0, 1) if plan.needs[i]}
    for i, name in enumerate(record.inputs):
        if i < len(inputs):
            continue
        value = values[name]
        edge = node.parents[i] if i < len(node.parents) else None
        if value is None or not hasattr(value, "shape") or i >= record.floats:
            inputs.append(value)
            continue
        t = _input(given, i, value, edge)
        if edge is not None and plan.needs[i]:
            with enable_grad():
                t = _alias.fast_call(t)
            ends[i] = t._edge
        inputs.append(t)
    attrs = {name: values[name] for name in record.attrs}
    with enable_grad():
        if record.residuals or not record.is_differentiable:  # the latter: a kernel for what ops compose
            out = over_tensors(record, next(t for t in inputs if isinstance(t, Tensor)), inputs, attrs)
        else:
            out = record(*inputs, fused=False, **attrs)
    if isinstance(out, (tuple, list)):
        upstream = g if isinstance(g, list) else [g]
        roots = [(o._edge, u) for o, u in zip(out, upstream, strict=False) if u is not None]
    else:
        roots = [(out._edge, g)]
    found = walk.run(roots, keep_graph=True, targets=set(ends.values()), leaves=False, arithmetic=RecordedArithmetic)
    return [(node.parents[i], found.get(edge)) for i, edge in ends.items()]


hooks.recorded_arithmetic = RecordedArithmetic
