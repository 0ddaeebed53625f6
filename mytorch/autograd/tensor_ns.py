"""The namespace `xp` over Tensors: functions with the names and arguments of NumPy that call recorded ops.

With this namespace, a gradient formula or the reference forward of an op runs on Tensors, so that the result can be
differentiated again (`create_graph=True`). It contains only the functions that formulas use. Add a function here if a new
formula needs it.
"""

import numpy as np

from ..arrays import MetaArray, dtypes, hooks, meta_ns, numpy_ns, xp_of
from ..arrays.array import Array
from ..arrays.memory_format import laid_out
from ..arrays.tensor import Tensor
from ..ops import complex as complex_
from ..ops import creation, elementwise, indexing, movement, reduction
from ..ops.dispatch.half import is_half
from ..ops.dispatch.inplace import constant
from ..ops.dispatch.op import op
from ..ops.dispatch.record import RECORDS
from ..ops.dispatch.unwrap import raw_of
from ..ops.padding import pad
from . import walk
from .mode import enable_grad, get_mode
from .node import OutputEdge, accumulating, refuse_shape


def _tensor(x):
    return (
        x
        if isinstance(x, (Tensor, int, float, bool))
        else Tensor._wrap(np.asarray(x) if isinstance(x, np.generic) else x)
    )


def _axis(function):
    """Converts a reduction to a function with the NumPy arguments `axis` and `keepdims`."""

    def reduce(x, axis=None, keepdims=False, initial=None):
        return function(x, dim=axis, keepdim=keepdims)

    return reduce


class TensorNamespace:
    """Functions with NumPy names over Tensors. `arrays`, the namespace of the device, creates constants."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __getattr__(self, name):
        raise NotImplementedError(
            f"a gradient formula uses {name!r}, which is missing in autograd/tensor_ns.py. Add it for second derivatives."
        )

    def __repr__(self):
        return "<namespace over Tensors>"

    def call(self, record, *inputs, **attrs):
        """Calls another op, recorded."""
        return record(*inputs, **attrs)

    def detach(self, x):
        """Returns x without its graph."""
        return x.detach() if isinstance(x, Tensor) else x

    def conj(self, x):
        """Returns the complex conjugate of x."""
        return x.conj() if isinstance(x, Tensor) and x.dtype.is_complex else x

    def is_complex(self, x):
        return x.dtype.is_complex

    def real(self, x):
        return complex_.real(x)

    def sign(self, x):
        """Returns -1, 0 or 1; for complex numbers z / |z|."""
        return elementwise.sgn(x)

    def astype(self, x, dtype):
        """Casts x to a dtype of this library or of NumPy."""
        return elementwise.cast(x, dtypes.as_dtype(dtype))

    def asarray(self, x, dtype=None):
        """Returns a constant Tensor of a raw array or number."""
        out = x if isinstance(x, Tensor) else Tensor._wrap(self.arrays.asarray(x))
        return out if dtype is None else self.astype(out, dtype)

    def where(self, condition, x, y):
        """Returns x where the condition is true and y elsewhere. The condition can be a Python bool."""
        if isinstance(condition, (bool, np.bool_)):
            like = x if isinstance(x, Tensor) else y
            chosen = x if condition else y
            if isinstance(chosen, Tensor) or not isinstance(like, Tensor):
                return chosen
            condition = xp_of(raw_of(like)).full(
                tuple(like.shape), condition
            )  # not like * 0, which is NaN at infinities
        return elementwise._where(_tensor(condition), x, y)

    def gather(self, x, index, dim):
        """Returns the elements of x at the raw `index` along `dim`."""
        return x[xp_of(index).grid(index, dim)]

    def sum_of_squares(self, x, axis=None, keepdims=False):
        """Returns the sum of |x|^2 over axes."""
        square = x * x if not x.dtype.is_complex else elementwise.abs(x) ** 2
        return self.sum(square, axis=axis, keepdims=keepdims)

    def sum_of_magnitudes(self, x, axis=None, keepdims=False):
        """Returns the sum of |x| over axes."""
        return self.sum(elementwise.abs(x), axis=axis, keepdims=keepdims)

    def transpose(self, x, axes=None):
        """Returns x with reversed axes, or with axes in the given order."""
        return movement.permute(x, *(range(x.ndim)[::-1] if axes is None else axes))

    def reshape(self, x, shape):
        return movement.reshape(x, *shape) if isinstance(shape, (tuple, list)) else movement.reshape(x, shape)

    def broadcast_to(self, x, shape):
        return movement.expand(x, *shape) if isinstance(x, Tensor) else x

    def expand_dims(self, x, axis):
        """Returns x with a new axis. Raw index arrays stay raw."""
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
        """Returns the larger of x and y. If a number is equal to an element of x, the element gets no gradient."""
        return elementwise.maximum(x, y) if isinstance(y, Tensor) else self.where(x <= y, y, x)

    def minimum(self, x, y):
        """Returns the smaller of x and y. If a number is equal to an element of x, the element gets no gradient."""
        return elementwise.minimum(x, y) if isinstance(y, Tensor) else self.where(x >= y, y, x)

    def clip(self, x, low, high):
        return self.where(x >= high, high, self.where(x <= low, low, x))

    def pad(self, x, widths, constant_values=0):
        """Pads x with a constant; `widths` has (before, after) for each axis."""
        return pad(x, [n for pair in widths[::-1] for n in pair], "constant", constant_values)

    def exp(self, x, out=None):
        """Returns e to the power of x. `out` is for raw arrays and is ignored."""
        return elementwise.exp.fast_call(x)

    def matmul(self, a, b):
        """Multiplies matrices. As with arrays, dtypes are promoted, which PyTorch mode refuses in programs."""
        if a.dtype is not b.dtype:
            dtype = dtypes.promote_types(a.dtype, b.dtype)
            a, b = elementwise.cast(a, dtype), elementwise.cast(b, dtype)
        return RECORDS["matmul"].fast_call(a, b)

    def divide(self, x, y, out=None):
        return x / y

    def max(self, x, axis=None, keepdims=False, initial=None):
        """Returns the maximum as a constant. Formulas use it to shift exponents, which does not change derivatives."""
        return reduction.amax(x.detach(), () if axis is None else axis, keepdims)


def _composed(record, inputs, fused, attrs):
    """Runs the reference of an op over Tensors, or the op itself if that is not possible."""
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if tensors and not record.view and not record.variadic and record.is_differentiable:
        try:
            return over_tensors(record, tensors[0], inputs, attrs)
        except (NotImplementedError, AttributeError, TypeError):  # the reference needs raw arrays
            pass
    return record.dispatch(*inputs, fused=fused, **attrs)


def over_tensors(record, first, inputs, attrs):
    """Returns the outputs of the reference forward of an op over Tensors. Integer inputs are raw arrays."""
    inputs = [*inputs[: record.floats], *map(raw_of, inputs[record.floats :])]
    out = record.forward(tensor_ns(xp_of(first._mt_data._array)), *inputs, **attrs)
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
    """Returns the namespace over Tensors on the device of a raw namespace."""
    if arrays is meta_ns and get_mode().interpreter is not None:  # for tensors of a batch, with constants of numbers
        arrays = numpy_ns
    if arrays not in _by_namespace:
        _by_namespace[arrays] = TensorNamespace(arrays)
    return _by_namespace[arrays]


@op(dtype="same", layout=None)
def _alias(xp, input):
    """Returns the input with a new edge, so that one derivative can end there and another can continue."""
    return input


_alias.grad(input=lambda g: g)


class RecordedArithmetic:
    """The arithmetic of a backward pass that is recorded: gradients are Tensors."""

    @staticmethod
    def fit(g, edge):
        shape = tuple(g.shape)
        if shape != edge.shape:
            axes = walk.repeated_axes(shape, edge.shape)
            g = (reduction.sum(g, axes, True) if axes else g).reshape(edge.shape)
        return elementwise.cast(g, dtypes.from_numpy(edge.dtype))

    @staticmethod
    def replays(node):
        """Returns True if backward differentiates the graph of the reference, whose nodes conjugate complex gradients."""
        return node.plan.implementation.replays

    @staticmethod
    def formulas(node, g):
        found = RecordedArithmetic._gradients(node, g)
        if node.op.name in _PIECEWISE_LINEAR and get_mode().interpreter is None:
            found = [(parent, _dependent(g, parent)) for parent, g in found]
        elif node.op.name in ("fmod", "remainder"):  # linear in the first input
            found = [(parent, _dependent(g, parent) if parent is node.parents[1] else g) for parent, g in found]
        return found

    @staticmethod
    def _gradients(node, g):
        if node.plan.implementation.replays:
            return _replay(node, g)
        saved, plan = _attached(node), node.plan
        vjp, vjp_arguments, formulas = plan.recorded
        g, saved = in_float32(node.op, g), in_float32(node.op, saved)
        if vjp is not None:
            results = vjp(g, *[saved[k] for k in vjp_arguments])
            walk.check_tuple(node, results)
            return [(node.parents[i], results[i]) for i in plan.needed]
        return [(node.parents[i], f(g, *[saved[k] for k in arguments])) for i, f, arguments in formulas]

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
        return g if isinstance(g, Tensor) else Tensor._of(g._mt_data)

    @staticmethod
    def raw(g):
        return g._mt_data._array

    @staticmethod
    def stack(rows):
        return movement.stack(list(rows))

    @staticmethod
    def start(raw):
        """Returns the first gradient of a backward pass. Inside vmap, tensors without elements become ones."""
        return tensor_ns(meta_ns).ones(raw.shape, raw.dtype) if isinstance(raw, MetaArray) else Tensor._wrap(raw)

    @staticmethod
    def constant(raw):
        return tensor_ns(meta_ns).zeros(raw.shape, raw.dtype) if isinstance(raw, MetaArray) else Tensor._wrap(raw)

    @staticmethod
    def into_leaf(leaf, g, owned):
        with accumulating:
            if leaf.grad is not None:
                refuse_shape(leaf.grad.shape, g.shape)
                g = elementwise._add.fast_call(g, leaf.grad)
            elif isinstance(g, Tensor) and get_mode().interpreter is None:
                # A copy in the layout of the leaf. Its derivative is the same.
                g = Tensor._of(Array._wrap(laid_out(g._mt_data._array, False, leaf.variable)), g._mt_edge)
            leaf.grad = g
        leaf.run_post_hooks()


# The derivative is constant almost everywhere. As in PyTorch, the gradient requires gradients anyway, which are 0, so that a
# gradient penalty on a network of these functions runs.
_PIECEWISE_LINEAR = frozenset(
    "avg_pool hardshrink hardsigmoid hardtanh leaky_relu max_pool nll_loss relu softshrink threshold".split()
)


def _dependent(g, parent):
    """Returns a gradient with zero derivatives with respect to the input of its node, if it has no others."""
    if parent is None or not isinstance(g, Tensor) or g.requires_grad:
        return g
    return constant(Tensor._of(g._mt_data, parent), g)


def _attached(node):
    """Returns the saved values of a node, with inputs and outputs as Tensors in the graph."""
    op_record, names = node.op, node.plan.names
    saved = list(node.saved)
    for k, name in enumerate(names):
        value = saved[k]
        if name == "xp":
            saved[k] = tensor_ns(value)
        elif name in op_record.inputs and name not in op_record.integers:
            if op_record.variadic and name == op_record.inputs[-1]:
                saved[k] = [_input(node, i, v, e) for i, (v, e) in enumerate(zip(value, node.parents, strict=True))]
            elif value is not None and hasattr(value, "shape"):
                i = op_record.inputs.index(name)
                saved[k] = _input(node, i, value, node.parents[i] if i < len(node.parents) else None)
        elif name in op_record.outputs_names and hasattr(value, "shape"):
            i = op_record.outputs_names.index(name)
            saved[k] = _output(node, i, value)
    return saved


def in_float32(record, value):
    """Casts a Tensor, or each of a list or tuple, to float32, if an op computes gradients of half precision in float32."""
    if record.half not in ("cpu", "everywhere"):
        return value
    if type(value) in (list, tuple):
        return type(value)([in_float32(record, v) for v in value])
    half = isinstance(value, Tensor) and is_half(value._mt_data._array.dtype)
    return elementwise.cast(value, dtypes.float32) if half else value


def _restored(tensor, node, is_output, i):
    """Returns a saved value of a node with its tangents, if an interpreter tracks it."""
    interpreter = get_mode().interpreter
    if interpreter is not None:
        interpreter.restore(tensor, node, is_output, i)
    return tensor


def _input(node, i, raw, edge):
    """Returns a saved input of a node as a Tensor on its edge."""
    return _restored(Tensor._of(Array._wrap(raw), edge), node, False, i)


def _output(node, i, raw):
    """Returns an output of a node as a Tensor on the edge of the node. Integer outputs, such as indices, stay raw."""
    if raw.dtype.kind not in "fcV":
        return raw
    edge = OutputEdge(node, i, raw.shape, raw.dtype) if node.plan.ports else node
    return _restored(Tensor._of(Array._wrap(raw), edge), node, True, i)


def _replay(node, g):
    """Returns differentiable gradients for an op with residuals, or for an op that ran with a kernel.

    The reference forward runs again over Tensors, and its graph is differentiated. Constant residuals would give wrong
    second derivatives.
    """
    plan, record = node.plan, node.op
    values = dict(zip(plan.names, node.saved, strict=True))
    inputs, ends = [], {}
    if record.saves_sum:  # the sum of the first two inputs, which is an output of the node
        total = _alias.fast_call(_output(node, 0, values[record.outputs_names[0]]))
        inputs, ends = [total, None], {i: total._mt_edge for i in (0, 1) if plan.needs[i]}
    for i, name in enumerate(record.inputs):
        if i < len(inputs):
            continue
        value = values[name]
        edge = node.parents[i] if i < len(node.parents) else None
        if value is None or not hasattr(value, "shape") or i >= record.floats:
            inputs.append(value)
            continue
        t = _input(node, i, value, edge)
        if edge is not None and plan.needs[i]:
            with enable_grad():
                t = _alias.fast_call(t)
            ends[i] = t._mt_edge
        inputs.append(in_float32(record, t))
    attrs = {name: values[name] for name in record.attrs}
    with enable_grad():
        if record.residuals or not record.is_differentiable:  # not differentiable: a kernel for a composition of ops
            out = over_tensors(record, next(t for t in inputs if isinstance(t, Tensor)), inputs, attrs)
        else:
            out = record(*inputs, fused=False, **attrs)
    if isinstance(out, (tuple, list)):
        upstream = g if isinstance(g, list) else [g]
        roots = [(o._mt_edge, u) for o, u in zip(out, upstream, strict=False) if u is not None]
    else:
        roots = [(out._mt_edge, g)]
    found = walk.run(roots, keep_graph=True, targets=set(ends.values()), leaves=False, arithmetic=RecordedArithmetic)
    return [(node.parents[i], found.get(edge)) for i, edge in ends.items()]


hooks.recorded_arithmetic = RecordedArithmetic
