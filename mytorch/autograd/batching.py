"""vmap with batching rules: the function runs once, with tensors that represent a whole batch.

Inside a `Batch`, a tensor of the batch has a shape and a dtype but no elements. It is a MetaArray, so that code outside of
ops cannot compute with it. Its `value` is a tensor with the batch along axis 0. An op with a tensor of the batch runs its
rule on the values, outside of the batch. So batches can be nested, and graphs and tangents of the values are tracked.

* Elementwise ops run unchanged after their axes are aligned. `RULES` has the other ops, most of which count axes from 1.
* An op with residuals but without a rule is composed of other ops, as in forward mode.
* Gradients inside (`vmap(grad(f))`) are recorded for the tensors of the batch. The nodes store these tensors (`kept`), so
  that backward runs with them, op by op, by the same rules.

An op without a rule raises `Unbatched`, and vmap calls the function once for each index instead.

Source: Bradbury et al.: JAX, 2018 (vmap); the design of torch.func's batching rules.
"""

import weakref
from typing import NamedTuple

import numpy as np

from ..arrays import MetaArray, assign, copied, device_of, dtypes, hollow, is_raw, memory_owner, numpy_ns
from ..arrays.tensor import Parts, Tensor
from ..ops import everything  # noqa: F401 - the rules name records of all operations
from ..ops.dispatch.inplace import keep_original
from ..ops.dispatch.interpreter import Interpreter, interpreting
from ..ops.dispatch.op import set_view
from ..ops.dispatch.record import RECORDS
from ..ops.dispatch.unwrap import raw_of
from ..ops.indexing import joined, layout_of
from .forward_mode import Level, _tangents_of
from .mode import get_mode
from .node import OutputEdge


class Unbatched(NotImplementedError):
    """Raised for operations without a batching rule."""


class VmapInfo(NamedTuple):
    """What a Function's `vmap` learns of the call."""

    batch_size: int
    randomness: str


class Draws:
    """Which random numbers the calls of a vmapped function draw, and the states of the generators before the first draw.

    Args:
        randomness: "same" for equal numbers in each call, "different", or "error".
    """

    def __init__(self, randomness):
        self.randomness, self.states = randomness, {}

    def note(self, generator):
        """Stores the state of a generator before it draws.

        Raises:
            RuntimeError: `randomness` is "error".
        """
        if self.randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
                "randomness flags on vmap or perform the randomness operation out of vmap"
            )
        if generator not in self.states:
            self.states[generator] = generator.position()

    def rewind(self):
        """Lets all generators draw the same numbers again."""
        for generator, position in self.states.items():
            generator.set_position(position)


class Batch(Interpreter):
    """One call of a vmapped function, for a batch of `size` samples."""

    def __init__(self, size, own=(), draws=None):
        super().__init__()
        self.size, self.draws = size, draws
        self.own = {id(memory_owner(raw_of(tensor))) for tensor in own}  # the memory of the arguments
        self.nodes = weakref.WeakKeyDictionary()
        self.written = False  # True after an argument was changed in place, so that the function can't be called again

    def value(self, x):
        """Returns the value of a tensor or raw array of this batch, with the batch first; None for other objects.

        Raises:
            Unbatched: code outside of ops created the tensor, so that it has no value.
        """
        raw = getattr(getattr(x, "_mt_data", x), "_array", x)
        if not isinstance(raw, MetaArray):
            return None
        if raw.batch is None:
            raise Unbatched("vmap: a tensor without elements.")
        return raw.value if raw.batch is self else None

    def stand_for(self, value):
        """Returns a tensor of the batch for a value."""
        raw = value._mt_data._array
        if isinstance(raw, MetaArray) and raw.batch in (None, self):
            raise Unbatched("vmap: a rule gave a tensor without elements.")
        stands = hollow(raw.shape[1:], raw.dtype)
        stands.batch, stands.value, stands.home = self, value, device_of(raw)
        return Tensor._wrap(stands)

    def spread(self, x, value):
        """Returns the value of a tensor with the batch first. A tensor that all samples share is expanded."""
        return value if value is not None else x.expand(self.size, *x.shape)

    # -- ops ------------------------------------------------------------------------------------------------------

    def __call__(self, record, inputs, fused, attrs):
        mode = get_mode()
        if mode.autocast is not None:
            inputs, attrs = mode.autocast.cast(record, inputs, attrs)
        values = [self.value(x) for x in inputs]
        if all(v is None for v in values) and all(self.value(a) is None for a in attrs.values()):
            with self.outside():
                return record.dispatch(*inputs, fused=fused, **attrs)
        rule = RULES.get(record.name) or (_elementwise if record.elementwise else None)
        if rule is None:
            with interpreting(self, autocast=None):
                return _COMPOSITES.get(record.name, _composed)(self, record, inputs, attrs)
        try:
            with interpreting(self.outer, autocast=None):
                found = rule(self, Call(record, inputs, values, {**record.defaults, **attrs}))
        except Unbatched:
            with interpreting(self, autocast=None):
                return _composed(self, record, inputs, attrs)
        found = tuple(found) if record.outputs else (found,)
        outs = tuple(map(self.stand_for, found))
        if record.view:
            for i, (out, value) in enumerate(zip(outs, found, strict=True)):
                if value._mt_view is not None and value._mt_view[0] is (
                    values[0]._base if values[0]._mt_view else values[0]
                ):
                    set_view(out, inputs[0], Parts(((record, attrs, i),)) if record.outputs else ((record, attrs),))
        self.record(record, inputs, outs, attrs, mode)
        return outs if record.outputs else outs[0]

    def record(self, record, inputs, outs, attrs, mode):
        """Records an op for the tensors of the batch."""
        edges = [x.edge if isinstance(x, Tensor) else None for x in inputs]
        mask = sum(1 << i for i, e in enumerate(edges) if e is not None)
        if not mask or not mode.grad or not (record.is_differentiable or record.lacks_gradient):
            return
        arrays = [getattr(x, "_mt_data", None) for x in inputs]
        raws = [x if a is None else a._array for x, a in zip(inputs, arrays, strict=True)]
        results = tuple(o._mt_data._array for o in outs)
        operands = raws, edges, arrays, mask, numpy_ns
        record.record(outs, results, record.reference, (None,) * len(record.residuals), operands, attrs, mode)
        edge = outs[0]._mt_edge
        if edge is not None and self.outer is not None:
            tangents = [[_tangents_of(x) if isinstance(x, Tensor) else {} for x in given] for given in (inputs, outs)]
            self.nodes[edge.node if type(edge) is OutputEdge else edge] = tangents

    def restore(self, tensor, node, is_output, i):
        super().restore(tensor, node, is_output, i)
        stored = self.nodes.get(node, ((), ()))[is_output]
        for level, tangent in (stored[i] if i < len(stored) else {}).items():
            level.give(tensor, tangent)

    def detach(self, tensor, cut=None):
        if self.value(tensor) is not None:
            return Tensor._of(tensor._mt_data)
        return super().detach(tensor, cut)

    def cut(self, tensor):
        """Returns a tensor of the batch in the same memory, without the graphs and tangents of outer levels."""
        return self.stand_for(self.value(tensor).detach())

    def elements(self, tensor):
        value = self.value(tensor)
        return super().elements(tensor) if value is None else value

    def follows(self, x):
        return self.value(x) is not None or super().follows(x)

    # -- in place -------------------------------------------------------------------------------------------------

    def check_write(self, tensor, name):
        super().check_write(tensor, name)
        if name in ("resize_", "set_") and self.value(tensor) is not None:
            raise Unbatched(f"vmap: {name} changes the memory of a tensor of the batch.")

    def original(self, tensor):
        value = self.value(tensor)
        if value is None or self.outer is None:
            return super().original(tensor)
        return Tensor._of(self.stand_for(self.outer.original(value))._mt_data, tensor.edge)

    def writable(self, tensor, source):
        value = self.value(tensor)
        if value is None and self.value(source) is None:
            return super().writable(tensor, source)
        with self.outside():
            value = value if value is not None else tensor.expand(self.size, *tensor.shape).clone()
            return self.stand_for(super().writable(value, self.value(source)))

    def adopt(self, tensor, result):
        value = self.value(tensor)
        new = None if result is None else self.value(result)
        if value is None and new is None:
            super().adopt(tensor, result)
            return
        if value is None or result is None:
            raise Unbatched(
                "vmap: an in-place operation changes a tensor that all samples share, or writes a constant."
            )
        self.refuse_graph(tensor, result)
        self.written = self.written or id(memory_owner(raw_of(value))) in self.own
        with self.outside():
            if new is not None:
                keep_original(value, new)
            value.copy_(result if new is None else new)

    def set_item(self, tensor, index, value):
        own, new = self.value(tensor), self.value(value)
        if own is None and new is None:
            super().set_item(tensor, index, value)
            return
        items = index if isinstance(index, tuple) else (index,)
        if own is None or any(isinstance(i, np.ndarray) for i in items):
            raise Unbatched(
                "vmap: an assignment changes a tensor that all samples share, or uses a tensor as an index."
            )
        self.refuse_graph(tensor, value)
        self.written = self.written or id(memory_owner(raw_of(own))) in self.own
        with self.outside():
            region = own[(slice(None), *items)]
            if new is not None:
                region.copy_(_with_rank(new, region.ndim - 1))
            elif isinstance(value, (Tensor, int, float, bool)):
                own[(slice(None), *items)] = value
            else:
                own[(slice(None), *items)] = Tensor._wrap(np.asarray(value))

    def refuse_graph(self, *tensors):
        """Raises an error for in-place operations on tensors of the batch that require gradients."""
        if get_mode().grad and any(isinstance(t, Tensor) and t._mt_edge is not None for t in tensors):
            raise Unbatched("vmap: an in-place operation changes a tensor of the batch that requires gradients.")

    def draw(self, generator):
        super().draw(generator)
        self.draws.note(generator)
        if self.draws.randomness == "different" and self.size > 1:
            raise Unbatched("vmap: the function draws random numbers.")

    def check_out(self, tensors):
        if any(isinstance(t, Tensor) and self.value(t) is not None for t in tensors):
            raise Unbatched("vmap: the argument out is not supported.")
        super().check_out(tensors)

    def apply(self, function, args, kwargs):
        values = [self.value(a) if isinstance(a, Tensor) else None for a in args]
        if all(value is None for value in values):
            return super().apply(function, args, kwargs)
        recorded = get_mode().grad and any(isinstance(a, Tensor) and a.edge is not None for a in args)
        in_dims = tuple(None if value is None else 0 for value in values)
        arguments = [a if value is None else value for a, value in zip(args, values, strict=True)]
        try:
            rule = function._batching_rule()
            if rule is not None and not recorded and not kwargs:
                with self.outside():
                    return self._results(rule(VmapInfo(self.size, self.draws.randomness), in_dims, *arguments))
        except Exception:
            self.written = True  # the program's error, which a call for each sample would hide
            raise
        raise Unbatched(f"vmap: {function.__name__} is a custom autograd.Function.")

    def _results(self, found):
        """Returns the outputs of a Function's `vmap` as tensors of the batch."""
        if not isinstance(found, tuple) or len(found) != 2:
            raise RuntimeError(
                "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible "
                "with the output."
            )
        outputs, out_dims = found
        single = not isinstance(outputs, tuple)
        outputs = (outputs,) if single else outputs
        out_dims = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(outputs)
        results = tuple(
            out if dim is None else self.stand_for(out.movedim(dim, 0))
            for out, dim in zip(outputs, out_dims, strict=True)
        )
        return results[0] if single else results


class Samples(Interpreter):
    """Calls of a vmapped function for one sample after the other. It refuses in-place changes of tensors that all samples share.

    A tensor is shared if two samples change its memory, unless the memory belongs to the batched arguments `own`.
    """

    def __init__(self, own, draws):
        super().__init__()
        self.own = {id(memory_owner(raw_of(tensor))) for tensor in own}
        self.draws = draws
        self.sample = 0
        self.changed = {}  # id of the memory -> (memory, number of the sample that changed it, [(array, copy before the change)])

    def next(self):
        """Returns a context manager in which the function runs for the next sample."""
        self.sample += 1
        if self.draws.randomness == "same":
            self.draws.rewind()
        return self.inside()

    def __call__(self, record, inputs, fused, attrs):
        with self.outside():
            return record.dispatch(*inputs, fused=fused, **attrs)

    def draw(self, generator):
        super().draw(generator)
        self.draws.note(generator)

    def check_write(self, tensor, name):
        super().check_write(tensor, name)
        memory = memory_owner(raw_of(tensor))
        if id(memory) in self.own:
            return
        raw = raw_of(tensor)
        _, sample, changes = self.changed.setdefault(id(memory), (memory, self.sample, []))
        if sample != self.sample:
            for array, before in reversed(changes):
                assign(array, before)
            raise RuntimeError(
                f"vmap: inplace arithmetic(self, *extra_args) is not possible: {name} changes a tensor that all samples share. "
                "Please try to use out-of-place operators instead of inplace arithmetic."
            )
        changes.append((raw, copied(raw)))


class Call:
    """A call of an op for its rule: the record, the inputs, their values (None for shared inputs) and the attributes."""

    def __init__(self, record, inputs, values, attrs):
        self.record, self.inputs, self.values, self.attrs = record, inputs, values, attrs
        self.ndims = [getattr(x, "ndim", 0) for x in inputs]

    def run(self, *inputs, **changes):
        """Runs the op with other inputs and changed attributes."""
        return self.record.dispatch(*inputs, **{**self.attrs, **changes})

    def only(self):
        """Returns the value of the first input.

        Raises:
            Unbatched: another input has a batch, or an attribute is a tensor of the batch.
        """
        if self.values[0] is None or any(v is not None for v in self.values[1:]):
            raise Unbatched(f"vmap: {self.record.name} with several batched inputs.")
        if any(isinstance(attr, MetaArray) for attr in self.attrs.values()):
            raise Unbatched(f"vmap: {self.record.name} with a batched attribute.")
        return self.values[0]


def _with_rank(value, rank):
    """Returns a value with `rank` axes after the batch, by inserting axes of size 1 after the batch."""
    missing = rank + 1 - value.ndim
    return value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:]) if missing > 0 else value


def _aligned(call):
    """Returns the inputs of a call with aligned axes."""
    rank = max(call.ndims)
    return [x if v is None else _with_rank(v, rank) for x, v in zip(call.inputs, call.values, strict=True)]


def _elementwise(batch, call):
    aligned = _aligned(call)
    kinds = {x.dtype for x in call.inputs if isinstance(x, Tensor)}
    if len(kinds) > 1 and 0 in call.ndims:  # 0-d tensors have axes now, but must not decide the dtype
        ranks = ([], [], [])
        which = call.record.promoted or range(len(aligned))
        for i in which:
            x = call.inputs[i]
            if isinstance(x, Tensor):
                ranks[0 if x.ndim else 1].append(x.dtype)
            elif x is not None:
                ranks[2].append(dtypes.of_number(x))
        result = dtypes.result_type(*ranks)
        aligned = [x.to(result) if i in which and isinstance(x, Tensor) else x for i, x in enumerate(aligned)]
    return call.run(*aligned)


def _composed(batch, record, inputs, attrs):
    if not record.residuals:
        raise Unbatched(f"vmap: {record.name} has no batching rule.")
    return Level.composed(record, inputs, attrs)


RULES = {}  # name of an op -> function of (batch, call) that returns the result of the op, batch first
_COMPOSITES = {}  # name -> function of (batch, record, inputs, attrs), for ops that run as others


def rule(*names):
    """Registers the rule of some ops."""

    def give(function):
        for name in names:
            assert name in RECORDS, name
            RULES[name] = function
        return function

    return give


rule(
    "to_dtype", "clone", "conj", "_alias", "_to_device", "_triangle", "view_as_real", "view_as_complex", "std",
    "_clone_ordered", "inverse", "cholesky", "eigh", "svd", "qr", "linalg_det", "logabsdet", "sign_of_det", "adjugate", "pinv",
    "along",
)(lambda batch, call: call.run(call.only(), *call.inputs[1:]))  # fmt: skip


# -- axes, counted from 1 --------------------------------------------------------------------------------------------


def _along(name="dim"):
    """Returns the rule of an op along an axis, several axes, or all axes (None)."""

    def run(batch, call):
        value, n, dim = call.only(), call.ndims[0], call.attrs[name]
        if call.record.name == "sum" and value.dtype is dtypes.bool_:
            value = value.long()
        scalar = n == 0
        if scalar:
            value, n = value.reshape(batch.size, 1), 1
        if dim is None or (name == "dim" and isinstance(dim, (tuple, list)) and not len(dim)):
            dim = tuple(range(1, n + 1))
            if call.record.name in ("argmax", "argmin"):
                value, dim = value.reshape(batch.size, -1), 1
        else:
            dim = tuple(d % n + 1 for d in dim) if isinstance(dim, (tuple, list)) else dim % n + 1
        out = call.run(value, **{name: dim})
        if not scalar:
            return out
        return tuple(o.reshape(batch.size) for o in out) if call.record.outputs else out.reshape(batch.size)

    return run


rule(
    "sum", "mean", "var", "std", "cumsum", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any", "sort", "topk", "prod", "cumprod", "softmax",
    "log_softmax", "logsumexp", "norm", "logcumsumexp", "fft", "split", "unbind", "unfold",
)(_along())  # fmt: skip
rule("flip", "roll")(_along("dims"))


@rule("as_strided")
def _as_strided(batch, call):
    """Runs as_strided with offsets relative to the first sample, so that each sample reads its own elements."""
    value, attrs = call.only(), call.attrs
    (start, strides, places), between = attrs["memory"], value.stride(0)
    memory = start, (between, *strides), places
    return call.run(value, size=(batch.size, *attrs["size"]), stride=(between, *attrs["stride"]), memory=memory)


@rule("diagonal")
def _diagonal(batch, call):
    n, attrs = call.ndims[0], call.attrs
    return call.run(call.only(), dim1=attrs["dim1"] % n + 1, dim2=attrs["dim2"] % n + 1)


@rule("permute")
def _permute(batch, call):
    n = call.ndims[0]
    return call.run(call.only(), dims=(0, *(d % n + 1 for d in call.attrs["dims"])))


@rule("reshape")
def _reshape(batch, call):
    value, shape = call.only(), tuple(call.attrs["shape"])
    if -1 in shape:
        known = -int(np.prod(shape))
        shape = tuple((value[0].numel() // known if known else 0) if n == -1 else n for n in shape)
    axes = call.attrs.get("axes")
    axes = axes and (0, *[None if axis is None else axis + 1 for axis in axes])
    return call.run(value, shape=(batch.size, *shape), axes=axes)


@rule("expand")
def _expand(batch, call):
    shape = call.attrs["shape"]
    return call.run(_with_rank(call.only(), len(shape)), shape=(batch.size, *shape))


@rule("repeat")
def _repeat(batch, call):
    repeats = call.attrs["repeats"]
    return call.run(_with_rank(call.only(), len(repeats)), repeats=(1, *repeats))


@rule("pad", "unpad")
def _pad(batch, call):
    return call.run(call.only(), widths=((0, 0), *call.attrs["widths"]))


@rule("cat", "stack")
def _joined(batch, call):
    dim, n = call.attrs["dim"], max(call.ndims) + (call.record.name == "stack")
    return call.run(*map(batch.spread, call.inputs, call.values), dim=dim % n + 1)


# -- indices ---------------------------------------------------------------------------------------------------------


def _raw(batch, x):
    """Returns the raw array of a batched index, batch first; None for an index without a batch."""
    value = batch.value(x)
    return None if value is None else value._mt_data._array


def _raw_for_each(batch, x):
    """Returns the raw array of an index, batch first. A shared index is expanded."""
    raw = _raw(batch, x)
    return np.broadcast_to(x, (batch.size, *x.shape)) if raw is None else raw


def _index_for(batch, index):
    """Converts an index of a tensor to an index of its value.

    Raises:
        Unbatched: index arrays follow other items, or the index has a mask of the batch.
    """
    items = index if isinstance(index, tuple) else (index,)
    arrays = [i for i, item in enumerate(items) if isinstance(item, np.ndarray)]
    if not any(_raw(batch, items[i]) is not None for i in arrays):
        if arrays and arrays[-1] - arrays[0] != len(arrays) - 1:
            raise Unbatched("vmap: index arrays that are not adjacent.")
        return (slice(None), *items)
    if arrays != list(range(len(arrays))) or any(items[i].dtype.kind == "b" for i in arrays):
        raise Unbatched("vmap: batched index arrays after other items, or batched masks.")
    rank = max(items[i].ndim for i in arrays)
    first = np.arange(batch.size).reshape(batch.size, *(1,) * rank)
    own = [_raw(batch, items[i]) for i in arrays]
    own = [
        items[i] if r is None else r.reshape(batch.size, *(1,) * (rank + 1 - r.ndim), *r.shape[1:])
        for i, r in zip(arrays, own, strict=True)
    ]
    return (first, *own, *items[len(arrays) :])


@rule("slice")
def _slice(batch, call):
    return call.run(call.only(), index=(slice(None), *call.attrs["index"]))


@rule("index", "index_zeros")
def _index(batch, call):
    index = _index_for(batch, joined(call.attrs["layout"], tuple(map(raw_of, call.inputs[1:]))))
    arrays = [i for i in index if isinstance(i, np.ndarray)]
    changes = {"shape": (batch.size, *call.attrs["shape"])} if "shape" in call.attrs else {}
    return call.run(batch.spread(call.inputs[0], call.values[0]), *arrays, layout=layout_of(index), **changes)


@rule("gather", "put_along", "scatter_zeros", "scatter", "scatter_add")
def _at(batch, call):
    changes = {"dim": call.attrs["dim"] % call.ndims[0] + 1}
    if "shape" in call.attrs:
        changes["shape"] = (batch.size, *call.attrs["shape"])
    inputs = [batch.spread(x, v) for x, v in zip(call.inputs[:-1], call.values, strict=False)]
    return call.run(*inputs, _raw_for_each(batch, raw_of(call.inputs[-1])), **changes)


@rule("embedding")
def _embedding(batch, call):
    weight, index = call.values
    if weight is not None or index is None or call.attrs["scale_grad_by_freq"]:
        raise Unbatched("vmap: a batched embedding table.")
    return call.run(call.inputs[0], index)


@rule("embedding_backward")
def _embedding_backward(batch, call):
    raw, (rows, *rest) = _raw(batch, call.inputs[1]), call.attrs["shape"]
    if call.attrs["padding_idx"] is not None or call.attrs["scale_grad_by_freq"]:
        raise Unbatched("vmap: the gradient of an embedding with padding.")
    index = raw_of(call.inputs[1]) if raw is None else raw
    index = index + rows * np.arange(batch.size).reshape(-1, *(1,) * (index.ndim - (raw is not None)))
    out = call.run(batch.spread(call.inputs[0], call.values[0]), index, shape=(batch.size * rows, *rest))
    return out.reshape(batch.size, rows, *rest)


# -- products --------------------------------------------------------------------------------------------------------


@rule("matmul", "linalg_solve")
def _matmul(batch, call):
    a, b = _aligned(call)
    if call.values[1] is None and b.ndim == 2 and call.record.name == "matmul":  # one large product
        return call.run(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    return call.run(a, b)


@rule("linear")
def _linear(batch, call):
    (x, weight, bias), values = (*call.inputs, None)[:3], (*call.values, None)[:3]
    if values[1] is None and values[2] is None:
        return call.run(values[0], weight, *call.inputs[2:])
    rows = x if values[0] is None else values[0]
    lead = tuple(x.shape[:-1])
    rows = rows.reshape(*rows.shape[: rows.ndim - x.ndim], -1, x.shape[-1])
    out = rows @ (weight if values[1] is None else values[1]).transpose(-1, -2)
    out = out if bias is None else out + (bias if values[2] is None else values[2].unsqueeze(1))
    return out.reshape(batch.size, *lead, weight.shape[0])


@rule("einsum")
def _einsum(batch, call):
    given, _, out = call.attrs["spec"].partition("->")
    letter = next(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in call.attrs["spec"])
    terms = [t if v is None else letter + t for t, v in zip(given.split(","), call.values, strict=True)]
    tensors = [x if v is None else v for x, v in zip(call.inputs, call.values, strict=True)]
    return call.run(*tensors, spec=f"{','.join(terms)}->{letter}{out}")


def _folded(value):
    """Merges the batch and the first axis."""
    return value.reshape(-1, *value.shape[2:])


@rule("max_pool", "avg_pool", "group_norm", "channel_affine")
def _by_sample(batch, call):
    """Runs an op that treats each item of its first axis separately."""
    out = call.run(_folded(call.only()), *call.inputs[1:])
    parts = [o.reshape(batch.size, -1, *o.shape[1:]) for o in (out if call.record.outputs else (out,))]
    return parts if call.record.outputs else parts[0]


@rule("max_pool_backward", "max_pool_gather", "avg_pool_backward")
def _gradient_by_sample(batch, call):
    attrs, changes = call.attrs, {}
    if "chosen" in attrs:
        chosen = _raw_for_each(batch, attrs["chosen"])
        changes["chosen"] = chosen.reshape(-1, *chosen.shape[2:])
    if "shape" in attrs:
        n, *rest = attrs["shape"]
        changes["shape"] = (batch.size * n, *rest)
    out = call.run(_folded(batch.spread(call.inputs[0], call.values[0])), **changes)
    return out.reshape(batch.size, -1, *out.shape[1:])


@rule("convolution", "convolution_input")
def _convolution(batch, call):
    (x, weight, bias), (own, kernels, shift) = (*call.inputs, None)[:3], (*call.values, None)[:3]
    n = x.shape[0]
    if kernels is None and shift is None:
        out = call.run(_folded(own), weight, *call.inputs[2:])
        return out.reshape(batch.size, n, *out.shape[1:])
    out = _in_groups(batch, batch.spread(x, own), batch.spread(weight, kernels), call)
    if bias is not None:
        shift = batch.spread(bias, shift)
        out = out + shift.reshape(batch.size, 1, -1, *(1,) * (out.ndim - 3))
    return out


def _in_groups(batch, x, weight, call):
    """Runs a convolution with a weight for each sample as a grouped convolution."""
    size, n, groups = batch.size, x.shape[1], call.attrs["groups"]
    channels = x.transpose(0, 1).reshape(n, size * x.shape[2], *x.shape[3:])
    out = call.run(channels, weight.reshape(-1, *weight.shape[2:]), None, groups=size * groups)
    return out.reshape(n, size, -1, *out.shape[2:]).transpose(0, 1)


@rule("convolution_weight")
def _convolution_weight(batch, call):
    g, x = map(batch.spread, call.inputs, call.values)
    size, n = batch.size, g.shape[1]
    g, x = (t.transpose(0, 1).reshape(n, size * t.shape[2], *t.shape[3:]) for t in (g, x))
    out = call.run(g, x, groups=size * call.attrs["groups"])
    return out.reshape(size, -1, *out.shape[1:])


# -- rows, losses, noise ---------------------------------------------------------------------------------------------


@rule("dropout")
def _dropout(batch, call):
    if not is_raw(call.attrs["mask"]):
        raise Unbatched("vmap: dropout by a kernel, which creates the mask.")
    return call.run(call.only())


@rule("layer_norm", "rms_norm")
def _rows(batch, call):
    """Runs a norm on the rows of the values."""
    return call.run(call.only(), *call.inputs[1:])


def _cross_entropy(batch, record, inputs, attrs):
    (logits, target), attrs = inputs, {**record.defaults, **attrs}
    if attrs["weight"] is not None or attrs["label_smoothing"] or attrs["dtype"] is not None:
        raise Unbatched("vmap: cross_entropy with weights or smoothing.")
    target = Tensor._wrap(raw_of(target))
    counts = target != attrs["ignore_index"]
    log_p = RECORDS["log_softmax"].dispatch(logits, dim=-1)
    losses = -(log_p.gather(-1, (target * counts).unsqueeze(-1)).squeeze(-1) * counts.to(logits.dtype))
    if attrs["reduction"] == "none":
        return losses
    return losses.sum() if attrs["reduction"] == "sum" else losses.sum() / counts.sum().to(logits.dtype)


_COMPOSITES["cross_entropy"] = _cross_entropy
