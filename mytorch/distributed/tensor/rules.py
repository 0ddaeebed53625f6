"""Sharding rules: how public functions compute with DTensors.

A rule chooses placements for the inputs, calls the function with the local tensors, and wraps the result. Autograd
records the local computation; `redistribution.py` describes the placements of gradients.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from ...arrays import hooks
from ...arrays.dtypes import dtype
from ...arrays.overriding import NOTHING
from ...arrays.tensor import Tensor
from ...autograd.function import Function, once_differentiable
from ...autograd.mode import no_grad
from ...nn import functional as F
from ...nn.utils import clip
from ...ops.creation import empty, ones_like, zeros
from ...ops.random import positions
from ...optim.adafactor import Adafactor
from ...optim.lbfgs import LBFGS
from ...optim.muon import Muon
from ...optim.optimizer import register_optimizer_step_pre_hook
from ...utils._pytree import tree_map_only
from .. import collectives
from ..engine import ReduceOp
from .dtensor import ON_FIRST, RULES, DTensor, _distributed, changeable, local_access, local_of
from .placement_types import Partial, Placement, Replicate, Shard
from .redistribution import local_shape, redistributed, rows_of


def _rule(*names):
    def register(rule):
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


# -- helpers -----------------------------------------------------------------------------------------


def _tensors_of(value, found):
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _tensors_of(item, found)
    elif isinstance(value, dict):
        _tensors_of(list(value.values()), found)
    return found


def _dtensors(func, args, kwargs=None, plain=False):
    """Returns the DTensors among the arguments, which must have one mesh.

    Args:
        plain: allow plain tensors, which count as replicated.
    """
    found = _tensors_of([args, kwargs or {}], [])
    mine = [t for t in found if isinstance(t, DTensor)]
    if any(d._mesh != mine[0]._mesh for d in mine):
        raise ValueError(
            f"{func.__name__}: expected DTensors on one mesh, got {sorted({str(d._mesh) for d in mine})}. Redistribute "
            "them to the same mesh."
        )
    if not plain and any(not isinstance(t, DTensor) and t.ndim for t in found):
        raise RuntimeError(
            f"{func.__name__}: got mixed mytorch.Tensor and DTensor, need to convert all mytorch.Tensor to DTensor before "
            "calling distributed operators. Use DTensor.from_local or distribute_tensor."
        )
    return mine


def varying(d: DTensor) -> DTensor:
    """Returns a replicated DTensor of which all consumers must compute partial sums of the gradient."""
    every = [Replicate()] * d._mesh.ndim
    dims = frozenset(range(d._mesh.ndim))
    return DTensor._make(local_of(d, every, dims), d._mesh, every, d._global_shape, varying=dims)


def _dim(k, ndim):
    """Returns a dimension as a number from 0. A 0-d tensor accepts 0 and -1."""
    ndim = max(ndim, 1)
    if not -ndim <= k < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {k})")
    return k % ndim


def _wrap(local, like, placements, shape):
    return DTensor._make(local, like._mesh, placements, shape)


def _replicated(d):
    return [Replicate()] * d._mesh.ndim


def _random_state():
    words, _, others = positions()
    return words.numpy().tobytes(), others


def _computed(func, args, kwargs, like, placements):
    """Calls a function of local tensors whose result has copies: it must not draw random numbers, which differ between processes."""
    if all(p.is_shard() or like._mesh.size(i) == 1 for i, p in enumerate(placements)):
        return func(*args, **kwargs)
    before = _random_state()
    result = func(*args, **kwargs)
    if _random_state() != before:
        raise NotImplementedError(
            f"{func.__name__}: DTensor has no sharding rule for random numbers that each process draws for a copy of the result. "
            "Compute with to_local(), or with F.dropout, which has a rule."
        )
    return result


def _run_replicated(func, args, kwargs, mine):
    """Calls a function with replicated inputs."""
    every = _replicated(mine[0])
    args, kwargs = tree_map_only(DTensor, lambda d: local_of(d, every), (args, kwargs))
    return tree_map_only(
        Tensor, lambda t: _wrap(t, mine[0], every, t.shape), _computed(func, args, kwargs, mine[0], every)
    )


@_rule("default")
def _default(func, args, kwargs):
    mine = _dtensors(func, args, kwargs)
    name = func.__name__
    if name.endswith("_") and not name.startswith("__"):
        raise NotImplementedError(f"{name}: DTensor has no sharding rule for it. Work on d.to_local().")
    if not all(p.is_replicate() for d in mine for p in d._placements):
        raise NotImplementedError(
            f"{name}: DTensor has no sharding rule for it with placements {[d._placements for d in mine]}. "
            "Redistribute the inputs to Replicate(), or compute with to_local()."
        )
    return _run_replicated(func, args, kwargs, mine)


# -- metadata ----------------------------------------------------------------------------------------


@_rule("is_floating_point", "is_complex", "element_size", "get_device", "is_signed", "is_inference", "is_pinned")
def _metadata(func, args, kwargs):
    return func(args[0]._local_tensor, *args[1:], **kwargs)


@_rule("retain_grad")
def _retain(func, args, kwargs):
    return func(args[0]._local_tensor)


# -- gradients ---------------------------------------------------------------------------------------


def _starts(outputs, gradients):
    """Returns the local tensors at which backward starts, and their gradients."""
    roots, starts = [], []
    gradients = [None] * len(outputs) if gradients is None else gradients
    for d, g in zip(outputs, gradients, strict=False):
        if isinstance(d, DTensor):
            if g is None and d.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            placements = [Replicate() if p.is_partial() else p for p in d._placements]
            d = local_of(d, placements)
            g = ones_like(d.detach()) if g is None else local_of(g, placements) if isinstance(g, DTensor) else g
        roots.append(d)
        starts.append(g)
    return roots, starts


def _sequence(x):
    return x if x is None or isinstance(x, (list, tuple)) else (x,)


@_rule("backward")
def _backward(func, args, kwargs):
    def bound(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
        return _sequence(tensors), _sequence(grad_tensors), retain_graph, create_graph, _sequence(inputs)

    outputs, gradients, retain_graph, create_graph, inputs = bound(*args, **kwargs)
    inputs = tree_map_only(DTensor, lambda d: d._local_tensor, inputs)
    return func(*_starts(outputs, gradients), retain_graph, create_graph, inputs)


@_rule("grad")
def _grad(func, args, kwargs):
    def bound(outputs, inputs, grad_outputs=None, *rest, **options):
        return _sequence(outputs), _sequence(inputs), _sequence(grad_outputs), rest, options

    outputs, inputs, gradients, rest, options = bound(*args, **kwargs)
    if options.get("is_grads_batched"):
        raise NotImplementedError("grad: expected is_grads_batched=False for DTensors. Call grad for each gradient.")
    local = tree_map_only(DTensor, lambda d: d._local_tensor, list(inputs))
    roots, starts = _starts(outputs, gradients)
    results = func(roots, local, starts, *rest, **options)
    return tuple(
        _wrap(g, d, d._grad_placements(), d._global_shape) if isinstance(d, DTensor) and g is not None else g
        for d, g in zip(inputs, results, strict=True)
    )


# -- element-wise functions --------------------------------------------------------------------------

_POINTWISE = """
    abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bfloat16 bitwise_and bitwise_not bitwise_or bitwise_xor
    bool ceil celu clamp clamp_max clamp_min clip clone contiguous copysign cos cosh cpu cuda deg2rad digamma div divide double
    elu eq erf erfcx fmax fmin heaviside erfc erfinv exp exp2 expm1 float float_power floor floor_divide fmod frac ge gelu glu_gate greater greater_equal
    gt half hardshrink hardsigmoid hardswish hardtanh hypot int isclose isfinite isinf isnan ldexp le leaky_relu lerp less
    less_equal lgamma log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit logsigmoid long lt
    masked_fill maximum minimum mish mul multiply nan_to_num ne neg negative not_equal ones_like positive pow rad2deg
    reciprocal relu relu6 relu_squared remainder round rsqrt rsub selu sigmoid sign silu sin sinh softplus softsign sqrt square
    sub subtract swiglu tan tanh to true_divide trunc type_as where xlogy zeros_like full_like empty_like
    i0 logaddexp2 nextafter sgn signbit sinc threshold
    __eq__ __radd__ __rsub__ __rmul__ __rtruediv__ __rpow__ __and__ __or__ __xor__ __invert__ __floordiv__ __rmod__ __rfloordiv__
""".split()
# Functions that can be applied to the terms of a sum: of one tensor, of two sums, and of a sum and a number.
_LINEAR = ("neg", "negative", "clone", "contiguous", "zeros_like")
_SUMS = ("add", "sub", "subtract", "__radd__", "__rsub__")
_SCALES = ("mul", "multiply", "div", "divide", "true_divide", "__rmul__")


# Functions with an argument `inplace`, the last one.
_WITH_INPLACE = "relu relu6 elu selu celu leaky_relu hardtanh silu mish hardswish hardsigmoid threshold".split()


def _broadcast(shapes):
    ndim = max(map(len, shapes), default=0)
    out = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, ndim - len(shape)):
            if 1 != out[i] != n != 1:  # the local parts can fit although the tensors do not
                raise RuntimeError(
                    f"The size of tensor a ({out[i]}) must match the size of tensor b ({n}) at non-singleton dimension {i}"
                )
            out[i] = out[i] if n == 1 else n
    return tuple(out)


def _scales(operands, kwargs):
    """Returns True for a finite number that is not 0: the terms that are zeros stay zeros."""
    number = operands[1] if len(operands) == 2 else 0
    return type(number) in (int, float) and number != 0 and math.isfinite(number) and not kwargs.get("rounding_mode")


def _common(func, mine, args, kwargs, shape):
    """Returns the placements of the result of an element-wise function."""
    mesh, name = mine[0]._mesh, func.__name__
    operands = [a for a in args if not isinstance(a, (list, tuple))] + [kwargs[k] for k in ("other",) if k in kwargs]
    linear = (
        name in _LINEAR
        or (name in _SUMS and len(operands) == len(mine) == 2)
        or (name in _SCALES and len(mine) == 1 and operands[0] is mine[0] and _scales(operands, kwargs))
    )
    out: list[Placement] = []
    for i in range(mesh.ndim):
        kinds = [d._placements[i] for d in mine]
        shard = None
        for d, p in zip(mine, kinds, strict=True):
            if shard is None and p.is_shard() and d._global_shape[p.dim] == shape[p.dim + len(shape) - d.ndim]:
                shard = p.at(p.dim + len(shape) - d.ndim)
        if shard is not None:
            out.append(shard)
            continue
        keeps = linear and all(p == kinds[0] and p.is_partial() and p.is_linear() for p in kinds)
        out.append(kinds[0] if keeps else Replicate())
    return out


def _aligned(d, placements, shape):
    """Returns the local tensor of an input for a result with the given placements and shape."""
    target, copies = [], []
    lead = len(shape) - d.ndim
    for i, p in enumerate(placements):
        if p.is_shard():
            own = p.dim - lead
            if own < 0 or d._global_shape[own] != shape[p.dim]:  # broadcast
                target.append(Replicate())
                copies.append(i)
            else:
                target.append(p.at(own))
        else:
            target.append(p)
    return local_of(d, target, copies)


@_rule(*_POINTWISE)
def _pointwise(func, args, kwargs):
    mine = _dtensors(func, args, kwargs)
    shape = _broadcast([t.shape for t in _tensors_of([args, kwargs], [])])
    placements = _common(func, mine, args, kwargs, shape)
    if func.__name__ in _WITH_INPLACE and (kwargs.get("inplace") or (args[-1] is True and len(args) > 1)):
        changeable(args[0], func.__name__)
    args, kwargs = tree_map_only(DTensor, lambda d: _aligned(d, placements, shape), (args, kwargs))
    return _wrap(func(*args, **kwargs), mine[0], placements, shape)


@_rule(*(
    "add_ sub_ mul_ div_ clamp_ clamp_min_ clamp_max_ neg_ abs_ sqrt_ exp_ lerp_ addcmul_ addcdiv_ pow_ relu_ "
    "masked_fill_ square_ reciprocal_ sigmoid_ tanh_ round_ nan_to_num_"
).split())  # fmt: skip
def _in_place(func, args, kwargs):
    _dtensors(func, args, kwargs)
    me = args[0]
    if not isinstance(me, DTensor):
        raise RuntimeError(
            f"{func.__name__}: expected a DTensor to change, got a plain tensor. Call full_tensor() of the operand."
        )
    changeable(me, func.__name__)
    shape = _broadcast([t.shape for t in _tensors_of([args, kwargs], [])])
    if shape != me._global_shape:
        raise RuntimeError(
            f"output with shape {list(me._global_shape)} doesn't match the broadcast shape {list(shape)}"
        )
    args, kwargs = tree_map_only(DTensor, lambda d: _aligned(d, me._placements, shape), (args, kwargs))
    func(me._local_tensor, *args[1:], **kwargs)
    return me


@_rule("zero_", "fill_")
def _fill(func, args, kwargs):
    if args[0]._gathered or func.__name__ == "fill_":  # zeros are the sum of zeros
        changeable(args[0], func.__name__)
    func(args[0]._local_tensor, *args[1:], **kwargs)
    return args[0]


@_rule("copy_")
def _copy(func, args, kwargs):
    me, source = args[0], args[1] if len(args) > 1 else kwargs["other"]
    if not isinstance(me, DTensor):
        raise RuntimeError(
            "copy_: expected a plain tensor as source of a plain tensor, got a DTensor. Call full_tensor()."
        )
    changeable(me, "copy_")
    if tuple(source.shape) != tuple(me.shape):
        raise RuntimeError(f"copy_: expected a source of shape {tuple(me.shape)}, got {tuple(source.shape)}.")
    if isinstance(source, DTensor):
        local = local_of(source, me._placements)
    else:
        local = _distributed(source, me._mesh, me._placements, None)
    me._local_tensor.copy_(local.to(me._local_tensor.dtype))
    return me


@_rule("normal_", "uniform_", "bernoulli_", "exponential_", "trunc_normal_")
def _random_in_place(func, args, kwargs):
    """Draws the whole tensor, and keeps this process's part: the numbers equal the numbers of one process."""
    me = args[0]
    changeable(me, func.__name__)
    full = zeros(tuple(me.shape), dtype=me.dtype, device=me.device)
    func(full, *args[1:], **kwargs)
    with no_grad():
        local = _same_on_copies(_distributed(full, me._mesh, me._placements, None), me)
        me._local_tensor.copy_(local)
    return me


def _same_on_copies(local, d):
    """Sends the random numbers of the first process to the processes that store a copy."""
    for i, p in enumerate(d._placements):
        if not p.is_shard() and d._mesh.size(i) > 1:
            collectives.broadcast(local, group=d._mesh.get_group(i), group_src=0)
    return local


@_rule("dropout")
def _dropout(func, args, kwargs):
    def bound(input, p=0.5, training=True, inplace=False, **rest):
        return p, training, inplace

    p, training, inplace = bound(*args, **kwargs)
    (d,) = _dtensors(func, args[:1])
    if inplace:
        changeable(d, "dropout")
    placements = [Replicate() if q.is_partial() else q for q in d._placements]
    local = local_of(d, placements)
    if training and p:
        mask = _same_on_copies(func(ones_like(local.detach()), p, True), d)
        local = local.mul_(mask) if inplace else local * mask
    return _wrap(local, d, placements, d._global_shape)


# -- products ----------------------------------------------------------------------------------------


def _as_dtensor(t, like):
    """Returns a plain tensor as a replicated DTensor."""
    return t if t is None or isinstance(t, DTensor) else _wrap(t, like, _replicated(like), t.shape)


@_rule("linear")
def _linear(func, args, kwargs):
    names = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    mine = _dtensors(func, args, kwargs, plain=True)
    x, w, b = (_as_dtensor(names.get(n), mine[0]) for n in ("input", "weight", "bias"))
    options = {k: v for k, v in names.items() if k not in ("input", "weight", "bias")}
    last = x.ndim - 1
    if w.ndim != 2 or not x.ndim or x.shape[-1] != w.shape[1] or (b is not None and tuple(b.shape) != (w.shape[0],)):
        return _run_replicated(func, (x, w, b), options, [x])  # an error, or a bias that is broadcast
    px, pw, pb, out = [], [], [], []
    cx, cw, cb = [], [], []
    for i in range(x._mesh.ndim):
        a, c = x._placements[i], w._placements[i]
        if c.is_shard(0):  # column parallel
            px.append(Replicate()), pw.append(c), pb.append(c.at(0)), out.append(c.at(last))
            cx.append(i)
        elif c.is_shard(1) or (a.is_shard(last) and not c.is_shard()):  # row parallel
            split = c if c.is_shard(1) else cast(Shard, a).at(1)
            px.append(split.at(last)), pw.append(split), pb.append(Partial()), out.append(Partial())
        elif a.is_shard() and not c.is_shard():  # batch or sequence parallel
            px.append(a), pw.append(Replicate()), pb.append(Replicate()), out.append(a)
            cw.append(i), cb.append(i)
        else:
            px.append(Replicate()), pw.append(Replicate()), pb.append(Replicate()), out.append(Replicate())
    bias = None if b is None else local_of(b, pb, cb)
    local = func(local_of(x, px, cx), local_of(w, pw, cw), bias, **options)
    return _wrap(local, x, out, (*x.shape[:-1], w.shape[0]))


@_rule("matmul", "mm", "mv", "dot", "bmm", "__matmul__", "__rmatmul__")
def _matmul(func, args, kwargs):
    mine = _dtensors(func, args, kwargs)
    a, b = args[0], args[1] if len(args) > 1 else next(iter(kwargs.values()))
    if func.__name__ == "__rmatmul__":
        return _matmul(Tensor.matmul, (b, a), {})
    if min(a.ndim, b.ndim) < 1 or len(mine) < 2:
        return _default(func, args, kwargs)
    dims = {"mm": (2, 2), "bmm": (3, 3), "mv": (2, 1), "dot": (1, 1)}.get(func.__name__, (a.ndim, b.ndim))
    if dims != (a.ndim, b.ndim) or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        return _run_replicated(func, (a, b), {}, mine)  # raises an error
    if b.ndim == 1:
        return (a @ b.unsqueeze(1)).squeeze(-1)
    if a.ndim == 1:
        return (a.unsqueeze(0) @ b).squeeze(-2)
    batch = _broadcast([a.shape[:-2], b.shape[:-2]])
    shape = (*batch, a.shape[-2], b.shape[-1])
    n = len(shape)
    pa, pb, ca, cb, out = [], [], [], [], []
    for i in range(a._mesh.ndim):
        p, q = a._placements[i], b._placements[i]
        inner = p.is_shard(a.ndim - 1) or q.is_shard(b.ndim - 2)
        same = p.is_shard() and q.is_shard() and p.dim < a.ndim - 2 and p.dim - a.ndim == q.dim - b.ndim
        if inner:
            split = p if p.is_shard(a.ndim - 1) else q
            pa.append(split.at(a.ndim - 1)), pb.append(split.at(b.ndim - 2)), out.append(Partial())
        elif same and a.shape[p.dim] == b.shape[q.dim]:
            pa.append(p), pb.append(q), out.append(p.at(p.dim + n - a.ndim))
        elif q.is_shard(b.ndim - 1) and not p.is_shard():
            pa.append(Replicate()), pb.append(q), out.append(q.at(n - 1)), ca.append(i)
        elif p.is_shard() and (p.dim == a.ndim - 2 or b.ndim == 2):
            pa.append(p), pb.append(Replicate()), out.append(p.at(p.dim + n - a.ndim)), cb.append(i)
        else:
            pa.append(Replicate()), pb.append(Replicate()), out.append(Replicate())
    return _wrap(func(local_of(a, pa, ca), local_of(b, pb, cb)), a, out, shape)


class _VocabParallel(Function):
    """The rows of a table that is divided by rows. Rows of other processes are zeros."""

    @staticmethod
    def forward(ctx, weight, index, start, padding):
        outside = (index < start) | (index >= start + weight.shape[0])
        local = (index - start).masked_fill(outside, 0)
        ctx.rows = weight.shape[0]
        ctx.save_for_backward(local, outside if padding is None else outside | (index == padding))
        if not weight.shape[0]:
            return zeros((*index.shape, weight.shape[1]), dtype=weight.dtype, device=weight.device)
        # Row 0 can be infinite or NaN, and times 0 it would be NaN.
        return F.embedding(local, weight).masked_fill(outside.unsqueeze(-1), 0)

    @staticmethod
    def backward(ctx, g):
        local, outside = ctx.saved_tensors
        rows = g.masked_fill(outside.unsqueeze(-1), 0).flatten(0, -2)
        if not ctx.rows:  # still a function of g: the second derivative runs the same collectives in all processes
            return rows[:0], None, None, None
        out = zeros((ctx.rows, g.shape[-1]), dtype=g.dtype, device=g.device)
        out.index_add_(0, local.reshape(-1), rows)
        return out, None, None, None


@_rule("embedding")
def _embedding(func, args, kwargs):
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    given = dict(zip(names, args, strict=False)) | kwargs
    mine = _dtensors(func, args, kwargs, plain=True)
    index, w = (_as_dtensor(given.pop(n), mine[0]) for n in ("input", "weight"))
    if w.ndim != 2:  # an error in PyTorch mode
        return _run_replicated(func, (index, w), given, [w])
    rows = any(p.is_shard(0) for p in w._placements)
    options = [n for n in ("max_norm", "scale_grad_by_freq", "sparse") if given.get(n) not in (None, False)]
    if options and any(not p.is_replicate() for p in w._placements):
        raise NotImplementedError(
            f"embedding: expected a replicated DTensor as weight, got {options} and {w._placements}."
        )
    pi, pw, cw, out = [], [], [], []
    for i in range(w._mesh.ndim):
        p, q = index._placements[i], w._placements[i]
        if q.is_shard(0):
            pi.append(Replicate()), pw.append(q), out.append(Partial())
        elif q.is_shard(1):
            pi.append(Replicate()), pw.append(q), out.append(q.at(index.ndim))
        elif p.is_shard():
            pi.append(p), pw.append(Replicate()), out.append(p), cw.append(i)
        else:
            pi.append(Replicate()), pw.append(Replicate()), out.append(Replicate())
    local_index, local_w = local_of(index, pi), local_of(w, pw, cw)
    if rows:
        mesh = w._mesh
        where = rows_of(pw, mesh.shape, mesh.get_coordinate(), 0, w.shape[0])
        bad = (local_index < 0) | (local_index >= w.shape[0])
        if w.device.type == "cpu" and bool(bad.any()):
            raise IndexError(f"embedding: expected indices from 0 to {w.shape[0] - 1}, got others.")
        padding = given.get("padding_idx")
        padding = padding + w.shape[0] if padding is not None and padding < 0 else padding
        local = _VocabParallel.apply(local_w, local_index, int(where[0]) if len(where) else 0, padding)
    else:
        local = func(local_index, local_w, **given)
    return _wrap(local, w, out, (*index.shape, w.shape[1]))


# -- normalization, softmax, attention ---------------------------------------------------------------


@_rule("layer_norm", "rms_norm", "rmsnorm")
def _norm(func, args, kwargs):
    mine = _dtensors(func, args, kwargs, plain=True)
    x = _as_dtensor(args[0], mine[0])
    size = args[1] if len(args) > 1 else kwargs.get("normalized_shape", x.shape[-1:])
    lead = x.ndim - (len(size) if isinstance(size, (list, tuple)) else 1)
    placements = [p if p.is_shard() and p.dim < lead else Replicate() for p in x._placements]
    copies = [i for i, p in enumerate(placements) if p.is_shard()]

    def local(d):
        return local_of(_as_dtensor(d, mine[0]), _replicated(mine[0]), copies)

    rest, kwargs = tree_map_only(Tensor, local, (args[1:], kwargs))
    args = (local_of(x, placements), *rest)
    return _wrap(func(*args, **kwargs), x, placements, x.shape)


def _keeping(func, args, kwargs, dims):
    """Runs a function of one DTensor that combines elements along `dims` only; shards of other dimensions stay."""
    (d,) = _dtensors(func, args, kwargs)
    dims = {_dim(k, d.ndim) for k in dims}
    placements = [p if p.is_shard() and p.dim not in dims else Replicate() for p in d._placements]

    def wrap(t):
        kept = {p.dim for p in placements if p.is_shard()}
        return _wrap(t, d, placements, [d.shape[k] if k in kept else n for k, n in enumerate(t.shape)])

    return tree_map_only(Tensor, wrap, func(local_of(d, placements), *args[1:], **kwargs))


@_rule("topk", "sort", "argsort", "glu", "cummax", "cummin", "logcumsumexp")
def _along_last(func, args, kwargs):
    """Functions along one dimension, by default the last one."""
    place = 2 if func.__name__ == "topk" else 1
    dim = kwargs.get("dim", args[place] if len(args) > place else -1)
    return _keeping(func, args, kwargs, [dim]) if type(dim) is int else _default(func, args, kwargs)


@_rule("tril", "triu")
def _triangle(func, args, kwargs):
    return _keeping(func, args, kwargs, (-2, -1))


@_rule("normalize")
def _normalize(func, args, kwargs):
    return _keeping(func, args, kwargs, [kwargs.get("dim", args[2] if len(args) > 2 else 1)])


@_rule("roll")
def _roll(func, args, kwargs):
    dims = kwargs.get("dims", args[2] if len(args) > 2 else None)
    if dims is None or dims == ():
        return _default(func, args, kwargs)
    return _keeping(func, args, kwargs, dims if isinstance(dims, (list, tuple)) else [dims])


@_rule("pad")
def _pad(func, args, kwargs):
    sizes = kwargs.get("pad", args[1] if len(args) > 1 else None)
    return _keeping(func, args, kwargs, range(args[0].ndim - len(sizes) // 2, args[0].ndim))


@_rule("expand", "expand_as", "broadcast_to")
def _expand(func, args, kwargs):
    (d,) = _dtensors(func, args[:1])
    like = next((a for a in args[1:] if isinstance(a, Tensor)), None)
    if like is not None:
        func, args, kwargs = Tensor.expand, (d, tuple(like.shape)), {}
    shape = tuple(func(empty(tuple(d.shape), device="meta"), *args[1:], **kwargs).shape)
    lead = len(shape) - d.ndim
    placements = [
        p.at(p.dim + lead) if p.is_shard() and d.shape[p.dim] == shape[p.dim + lead] else Replicate()
        for p in d._placements
    ]
    local = _aligned(d, placements, shape)
    result = _wrap(local.expand(local_shape(shape, d._mesh, placements)), d, placements, shape)
    return _view(d, result, local is not d._local_tensor)


@_rule(*"mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits".split())
def _loss(func, args, kwargs):
    """Losses of each element, and their sum or mean. The function itself checks other arguments and shapes."""
    reduction = kwargs.get("reduction", "mean")
    tensors = _tensors_of([args, kwargs], [])
    by_weight = "weight" in kwargs and not func.__name__.startswith("binary")  # the mean can divide by the weights
    fits = tuple(tensors[0].shape) == tuple(tensors[1].shape) == _broadcast([t.shape for t in tensors])
    known = {"target", "reduction", "beta", "delta", "weight", "pos_weight"}
    if by_weight or not fits or len(args) > 2 or kwargs.keys() - known or reduction not in ("none", "mean", "sum"):
        return _run_replicated(func, args, kwargs, _dtensors(func, args, kwargs))
    each = _pointwise(func, args, {**kwargs, "reduction": "none"})
    return each if reduction == "none" else each.mean() if reduction == "mean" else each.sum()


@_rule("softmax", "log_softmax", "cumsum", "cumprod", "flip")
def _along(func, args, kwargs):
    dim = kwargs.get("dim", kwargs.get("axis", kwargs.get("dims", args[1] if len(args) > 1 else None)))
    if dim is None:
        return _default(func, args, kwargs)
    if func.__name__ == "flip" and len(args) > 2:
        dim = args[1:]
    return _keeping(func, args, kwargs, dim if isinstance(dim, (list, tuple)) else [dim])


@_rule("scaled_dot_product_attention")
def _attention(func, args, kwargs):
    mine = _dtensors(func, args, kwargs)
    qkv, rest = args[:3], args[3:]
    if len(qkv) < 3 or len(mine) != 3 or any(d.ndim != qkv[0].ndim for d in qkv):
        return _default(func, args, kwargs)
    placements = []
    for i, p in enumerate(qkv[0]._placements):  # shards of the batch and of the heads stay
        sizes = {d.shape[p.dim] for d in qkv} if p.is_shard() else set()
        # With fewer heads of keys, each process needs the keys of its queries.
        grouped = kwargs.get("enable_gqa") and p.is_shard(qkv[0].ndim - 3)
        fits = len(sizes) == 1 or (grouped and not any(n % qkv[0]._mesh.size(i) for n in sizes))
        placements.append(p if p.is_shard() and p.dim < qkv[0].ndim - 2 and fits else Replicate())
    out = _computed(func, (*(local_of(d, placements) for d in qkv), *rest), kwargs, qkv[0], placements)
    shape = list(out.shape)
    for p in placements:
        if p.is_shard():
            shape[p.dim] = qkv[0].shape[p.dim]
    return _wrap(out, qkv[0], placements, shape)


# -- reductions --------------------------------------------------------------------------------------


@_rule(
    "sum",
    "mean",
    "all",
    "any",
    "amax",
    "amin",
    "max",
    "min",
    "prod",
    "norm",
    "var",
    "std",
    "argmax",
    "argmin",
    "logsumexp",
    "median",
    "nanmedian",
    "nansum",
    "nanmean",
    "count_nonzero",
    "std_mean",
    "var_mean",
    "vector_norm",
)
def _reduce(func, args, kwargs):
    d = args[0]
    if not isinstance(d, DTensor):
        return _default(func, args, kwargs)
    name = func.__name__
    lead = 1 + (name in ("norm", "vector_norm"))  # norm(p, dim, keepdim)
    dim = kwargs.get("dim", kwargs.get("axis", args[lead] if len(args) > lead else None))
    last = lead + 1 + (name in ("var", "std", "var_mean", "std_mean"))  # var(dim, unbiased, keepdim)
    keepdim = kwargs.get("keepdim", kwargs.get("keepdims", args[last] if len(args) > last else False))
    # all and any along no dimension convert the elements to bool. The other functions reduce all dimensions.
    every = dim is None or (dim == () and name not in ("all", "any"))
    if dim is None and "nuc" in (*args[1:2], kwargs.get("p"), kwargs.get("ord")):  # a norm of matrices
        every, dim = False, (-2, -1)
    dims = range(d.ndim) if every else dim if isinstance(dim, (list, tuple)) else [dim]
    if not all(type(k) is int for k in dims):
        return _default(func, args, kwargs)
    dims = {_dim(k, d.ndim) for k in dims}
    source, out = [], []
    cast_to = kwargs.get("dtype")  # a term of a sum can be rounded only if the whole sum keeps its fraction
    linear = name in ("sum", "mean") and (cast_to is None or cast_to.is_floating_point or cast_to.is_complex)
    for p in d._placements:
        if p.is_shard() and p.dim in dims and name in ("sum", "mean"):
            source.append(p), out.append(Partial())
        elif p.is_shard() and p.dim not in dims:
            source.append(p), out.append(p.at(p.dim if keepdim else p.dim - sum(k < p.dim for k in dims)))
        elif p.is_partial() and p.is_linear() and linear:
            source.append(p), out.append(p)
        else:
            source.append(Replicate()), out.append(Replicate())
    local = local_of(d, source)
    part, count = (math.prod(shape[k] for k in dims) if d.ndim else 1 for shape in (local.shape, d.shape))
    if name == "mean" and part != count:
        # The mean of the part is in the range of the dtype where the sum is not. The mean of an empty part is not 0, and
        # the mean of integers is an error on all ranks.
        kind = cast_to or d.dtype
        empty_part = not part and (kind.is_floating_point or kind.is_complex)
        result = (Tensor.sum if empty_part else func)(local, *args[1:], **kwargs) * (part / count if part else 1)
    else:
        result = func(local, *args[1:], **kwargs)
    shape = tuple(1 if k in dims else n for k, n in enumerate(d.shape) if keepdim or k not in dims)
    return tree_map_only(Tensor, lambda t: _wrap(t, d, out, shape), result)


# -- shapes ------------------------------------------------------------------------------------------


def _view(d, result, gathered=False):
    """Returns results that are views of a DTensor: of its local part, otherwise of elements that were gathered."""
    if gathered or d._gathered:
        tree_map_only(DTensor, lambda part: part.__dict__.update(_gathered=True), result)
    return result


def _moved(func, args, kwargs, place):
    """Runs a function that moves dimensions: `place[k]` is the new position of dimension k."""
    (d,) = _dtensors(func, args[:1])
    out = [p.at(place[p.dim]) if p.is_shard() else p for p in d._placements]
    local = func(d._local_tensor, *args[1:], **kwargs)
    shape = [0] * d.ndim
    for k, n in enumerate(d.shape):
        shape[place[k]] = n
    return _view(d, _wrap(local, d, out, shape))


@_rule("transpose", "swapaxes", "swapdims")
def _transpose(func, args, kwargs):
    a, b = (_dim(k, args[0].ndim) for k in (*args[1:], *kwargs.values()))
    place = list(range(max(args[0].ndim, 1)))
    place[a], place[b] = b, a
    return _moved(func, args, kwargs, place)


@_rule("t")
def _t(func, args, kwargs):
    return _moved(func, args, kwargs, [1, 0] if args[0].ndim == 2 else list(range(args[0].ndim)))


@_rule("movedim", "moveaxis")
def _movedim(func, args, kwargs):
    order = list(range(max(args[0].ndim, 1)))
    source, target = (_dim(k, len(order)) if type(k) is int else None for k in (*args[1:], *kwargs.values()))
    if source is None or target is None:
        return _default(func, args, kwargs)
    order.insert(target, order.pop(source))
    return args[0].permute(order) if args[0].ndim else args[0]


@_rule("permute")
def _permute(func, args, kwargs):
    dims = args[1:] if len(args) > 2 else (*args[1:], *kwargs.values())[0]
    dims = [_dim(k, args[0].ndim) for k in ([dims] if type(dims) is int else dims)]
    return _moved(func, args, kwargs, [dims.index(k) for k in range(args[0].ndim)])


@_rule("unsqueeze")
def _unsqueeze(func, args, kwargs):
    (d,) = _dtensors(func, args[:1])
    k = _dim((*args[1:], *kwargs.values())[0], d.ndim + 1)
    out = [p.at(p.dim + (p.dim >= k)) if p.is_shard() else p for p in d._placements]
    return _view(d, _wrap(func(d._local_tensor, k), d, out, (*d.shape[:k], 1, *d.shape[k:])))


@_rule("view", "reshape", "flatten", "view_as", "reshape_as", "unflatten", "squeeze")
def _reshape(func, args, kwargs):
    """Keeps a shard if its dimension stays, or is the first of merged or divided dimensions."""
    (d,) = _dtensors(func, args[:1])
    if any(isinstance(a, Tensor) for a in (*args[1:], *kwargs.values())):  # view_as, reshape_as
        func, args, kwargs = Tensor.reshape, (d, tuple((*args[1:], *kwargs.values())[0].shape)), {}
    if any(isinstance(a, dtype) for a in (*args[1:], *kwargs.values())):  # view(dtype)
        return _default(func, args, kwargs)
    if not any(p.is_shard() for p in d._placements):
        every = [Replicate() if p.is_partial() else p for p in d._placements]
        local = func(local_of(d, every), *args[1:], **kwargs)
        return _view(d, _wrap(local, d, every, local.shape), tuple(every) != d._placements)
    shape = tuple(func(empty(tuple(d.shape), device="meta"), *args[1:], **kwargs).shape)
    source, out = [], []
    for i, p in enumerate(d._placements):
        where = _kept_dim(d.shape, shape, cast(Shard, p).dim, d._mesh.size(i)) if p.is_shard() else None
        keeps = where is not None and type(p) is Shard and sum(q.is_shard() for q in d._placements) == 1
        source.append(p if keeps else Replicate())
        out.append(cast(Shard, p).at(where) if keeps else Replicate())
    local = local_of(d, source)
    inner = list(shape)
    for i, p in enumerate(out):
        if p.is_shard():
            inner[p.dim] = (
                -(-inner[p.dim] // d._mesh.size(i))
                if inner[p.dim] % d._mesh.size(i) == 0
                else local.shape[source[i].dim]
            )
    return _view(d, _wrap(local.reshape(tuple(inner)), d, out, shape), tuple(source) != d._placements)


def _kept_dim(before, after, dim, parts):
    """Returns the position of a sharded dimension after a reshape, or None if the reshape divides its shards."""
    lead = math.prod(before[:dim])
    product = 1
    for k, n in enumerate(after):
        if product == lead and n != 1:
            same = n == before[dim]
            size = before[dim]
            divides = size and n and not (size % parts or n % parts) and (size % n == 0 or n % size == 0)
            if n == 1 or not (same or divides):
                return None
            return k
        product *= n
    return None


@_rule("split", "chunk", "unbind", "narrow", "select", "__getitem__")
def _parts(func, args, kwargs):
    """Keeps shards of dimensions that the function does not touch."""
    (d,) = _dtensors(func, args[:1])
    name = func.__name__
    touched: set[int] = set(range(d.ndim))
    if name != "__getitem__":
        dim = kwargs.get(
            "dim",
            args[2]
            if name in ("split", "chunk") and len(args) > 2
            else args[1]
            if name != "split" and name != "chunk" and len(args) > 1
            else 0,
        )
        touched = {dim % d.ndim}
    else:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if any(isinstance(t, DTensor) for t in _tensors_of(index, [])):
            return _run_replicated(func, args, kwargs, _dtensors(func, args, plain=True))
        if all(isinstance(k, slice) for k in index):
            touched = {k for k, part in enumerate(index) if part != slice(None)}
    if any(p.is_shard() for p in d._placements) and (name in ("unbind", "select")):
        touched = set(range(d.ndim))
    source = [p if p.is_shard() and p.dim not in touched else Replicate() for p in d._placements]
    result = func(local_of(d, source), *args[1:], **kwargs)

    def wrap(t):
        shape = list(t.shape)
        for p in source:
            if p.is_shard():
                shape[p.dim] = d.shape[p.dim]
        return _wrap(t, d, source, shape)

    picks = name == "__getitem__" and any(isinstance(k, (Tensor, list)) for k in index)  # a copy of the elements
    return _view(d, tree_map_only(Tensor, wrap, result), tuple(source) != d._placements and not picks)


@_rule("__setitem__")
def _set_item(func, args, kwargs):
    """Changes the whole tensor, and keeps this process's part."""
    me, index, value = args
    if not isinstance(me, DTensor):
        raise RuntimeError(
            "__setitem__: expected a DTensor to change, got a plain tensor. Call full_tensor() of the value."
        )
    _dtensors(func, [me, value])
    changeable(me, "__setitem__")
    every = _replicated(me)
    index, value = tree_map_only(DTensor, lambda d: local_of(d, every), (index, value))
    if all(p.is_replicate() for p in me._placements):
        return func(me._local_tensor, index, value)
    whole = local_of(me, every).clone()
    func(whole, index, value)
    me._local_tensor.copy_(redistributed(whole, me._mesh, me._global_shape, every, me._placements))
    return None


@_rule(
    "cat", "concat", "stack", "einsum", "gather", "index_select", "take_along_dim", "repeat", "outer", "equal", "allclose",
    "nll_loss", "kl_div", "cosine_similarity",
)  # fmt: skip
def _of_whole_tensors(func, args, kwargs):
    """Functions that every process computes from the whole tensors."""
    mine = _dtensors(func, args, kwargs)
    return _run_replicated(func, args, kwargs, mine)


# -- losses ------------------------------------------------------------------------------------------


class _ParallelCrossEntropy(Function):
    """The cross-entropy of each row of logits that are divided by classes."""

    @staticmethod
    def forward(ctx, logits, target, start, ignore_index, group):
        x = logits.float() if logits.itemsize == 2 else logits
        top = x.amax(1) if x.shape[1] else zeros((x.shape[0],), dtype=x.dtype, device=x.device) - math.inf
        top = top.clone()
        collectives.all_reduce(top, ReduceOp.MAX, group)
        inside = (target >= start) & (target < start + x.shape[1])
        local = (target - start) * inside
        exps = (x - top.unsqueeze(1)).exp()
        both = zeros((2, x.shape[0]), dtype=x.dtype, device=x.device)
        both[0] = exps.sum(1)
        if x.shape[1]:
            both[1] = x.gather(1, local.unsqueeze(1)).squeeze(1).masked_fill(inside.logical_not(), 0)
        collectives.all_reduce(both, ReduceOp.SUM, group)
        ctx.save_for_backward(exps / both[0].unsqueeze(1), local, inside, target != ignore_index)
        ctx.dtype = logits.dtype
        return (both[0].log() + top - both[1]).masked_fill(target == ignore_index, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        softmax, local, inside, counted = ctx.saved_tensors
        out = softmax.clone()
        if out.shape[1]:
            out.scatter_add_(1, local.unsqueeze(1), -(inside.to(out.dtype)).unsqueeze(1))
        g = g.masked_fill(counted.logical_not(), 0)  # the mean of no rows has an infinite gradient
        return (out * g.unsqueeze(1)).to(ctx.dtype), None, None, None, None


@_rule("cross_entropy")
def _cross_entropy(func, args, kwargs):
    names = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
    given = dict(zip(names, args, strict=False)) | kwargs
    mine = _dtensors(func, args, kwargs, plain=True)
    logits, target = (_as_dtensor(given[n], mine[0]) for n in ("input", "target"))
    sharded = [i for i, p in enumerate(logits._placements) if p.is_shard(1)]
    rows = [i for i, p in enumerate(logits._placements) if p.is_shard() and i not in sharded]
    usual = {"ignore_index", "reduction", "input", "target", "fused"}
    plain_options = all(k in usual or v is None or (k == "label_smoothing" and v == 0) for k, v in given.items())
    fits = logits.ndim == 2 and target.ndim == 1 and logits.shape[0] == target.shape[0]
    fits = fits and logits.is_floating_point()
    if len(sharded) != 1 or rows or not fits or not plain_options:
        every = _replicated(logits)
        args, kwargs = tree_map_only(Tensor, lambda t: local_of(_as_dtensor(t, mine[0]), every), (args, kwargs))
        local = func(*args, **kwargs)
        return _wrap(local, logits, every, local.shape)
    mesh, (i,) = logits._mesh, sharded
    placements = [p if k == i else Replicate() for k, p in enumerate(logits._placements)]
    where = rows_of(placements, mesh.shape, mesh.get_coordinate(), 1, logits.shape[1])
    ignore = given.get("ignore_index", -100)
    index = local_of(target, _replicated(target)).detach().long()
    if index.device.type == "cpu":
        wrong = (index != ignore) & ((index < 0) | (index >= logits.shape[1]))
        if bool(wrong.any()):
            raise IndexError(f"cross_entropy: expected targets from 0 to {logits.shape[1] - 1}, got others.")
    start = int(where[0]) if len(where) else logits.shape[1]
    each = _ParallelCrossEntropy.apply(local_of(logits, placements), index, start, ignore, mesh.get_group(i))
    reduction = given.get("reduction", "mean")
    if reduction == "mean":
        each = each.sum() / (index != ignore).sum().to(each.dtype)
    elif reduction == "sum":
        each = each.sum()
    elif reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _wrap(each.to(logits.dtype), logits, _replicated(logits), each.shape)


@_rule("linear_cross_entropy")
def _linear_cross_entropy(func, args, kwargs):
    names = ("input", "linear_weight", "target")
    given = dict(zip(names, args, strict=False)) | kwargs
    if len(args) > 3 or given.keys() - {*names, "fused"}:
        return _default(func, args, kwargs)
    logits = F.linear(given["input"], given["linear_weight"])
    return F.cross_entropy(logits, given["target"])


# -- gradient clipping and optimizers ------------------------------------------------------------------


def _power_sums(grads, norm_type):
    """Returns the sum of the powers of all gradients, each element once, over all processes."""
    groups: dict[tuple, list] = {}
    for g in grads:
        key: tuple = ()
        if isinstance(g, DTensor):
            if any(p.is_partial() for p in g._placements):
                g = g.redistribute(placements=[Replicate() if p.is_partial() else p for p in g._placements])
            key = tuple((id(g._mesh), i) for i, p in enumerate(g._placements) if p.is_shard())
            groups.setdefault(key, []).append((g._local_tensor, g._mesh))
        else:
            groups.setdefault(key, []).append((g, None))
    total = None
    op = ReduceOp.MAX if norm_type == math.inf else ReduceOp.SUM
    for key, members in groups.items():
        parts = [t.detach() for t, _ in members if t.numel()]  # a process can have no part of a tensor
        first = members[0][0]
        norm = clip.get_total_norm(parts, norm_type) if parts else zeros((), dtype=first.dtype, device=first.device)
        part = norm.double() if norm_type == math.inf else norm.double() ** norm_type
        where = part.device
        for _, i in key:  # gradients in host memory are reduced on the device of the mesh
            part = part.to(members[0][1].device_type)
            collectives.all_reduce(part, op, members[0][1].get_group(i))
        part = part.to(where)
        if total is None:
            total = part
        else:
            total = total.maximum(part) if norm_type == math.inf else total + part
    return total


def _total_norm(tensors, norm_type, error_if_nonfinite):
    norm_type = float(norm_type)
    if norm_type <= 0:
        raise ValueError(f"clip_grad_norm_: expected a positive norm_type for DTensors, got {norm_type}.")
    with no_grad():
        total = _power_sums(tensors, norm_type)
        dtype = tensors[0].dtype if tensors[0].itemsize > 2 else None
        total = total if norm_type == math.inf else total ** (1.0 / norm_type)
        total = total.to(dtype) if dtype is not None else total.float()
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. "
            "To disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def _gradients(parameters):
    return [p.grad if isinstance(p.grad, Tensor) else Tensor._of(p.grad) for p in parameters if p.grad is not None]


def _get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    return _total_norm(list(tensors), norm_type, error_if_nonfinite)


def _clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    grads = _gradients(parameters)
    if not grads:
        return zeros(())
    total = _total_norm(grads, norm_type, error_if_nonfinite)
    _clip_grads_with_norm_(parameters, max_norm, total)
    return total


def _clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    total = total_norm.full_tensor() if isinstance(total_norm, DTensor) else total_norm
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    with no_grad():
        for g in _gradients(parameters):
            (g._local_tensor if isinstance(g, DTensor) else g).mul_(scale.to(g.dtype))


def _clip_grad_value_(parameters, clip_value, foreach=None):
    with no_grad():
        for g in _gradients(parameters):
            (g._local_tensor if isinstance(g, DTensor) else g).clamp_(-clip_value, clip_value)


_CLIPPING = {
    "get_total_norm": _get_total_norm,
    "clip_grad_norm_": _clip_grad_norm_,
    "clip_grads_with_norm_": _clip_grads_with_norm_,
    "clip_grad_value_": _clip_grad_value_,
}


def _clip_sharded(name, tensors, *args):
    """Runs a function of `nn.utils.clip` if one of the tensors is a DTensor. Otherwise returns NOTHING."""
    return _CLIPPING[name](tensors, *args) if any(isinstance(t, DTensor) for t in tensors) else NOTHING


def any_process(found, group):
    """Returns on all processes of a group whether one of them found an infinite gradient; `found` as in `GradScaler._unscale`."""
    if not isinstance(found, (bool, np.bool_)):
        if found is not None:
            collectives.all_reduce(Tensor._wrap(found), ReduceOp.MAX, group)
        return found
    where = "cpu" if group is None else group.engine.device_type
    flag = Tensor._wrap(np.array([found], np.int32)).to(where)
    collectives.all_reduce(flag, ReduceOp.MAX, group)
    return bool(flag.item())


def _unscale_sharded(scaler, optimizer):
    with local_access():
        found = scaler._unscale(optimizer)
    grads = (p.grad for group in optimizer.param_groups for p in group["params"])
    for mesh in dict.fromkeys(g._mesh for g in grads if isinstance(g, DTensor)):
        for i in range(mesh.ndim):
            found = any_process(found, mesh.get_group(i))
    return found


_NOT_ELEMENTWISE = (Adafactor, LBFGS, Muon)


def _sharded_parameters(optimizer):
    groups = getattr(optimizer, "param_groups", ())  # an optimizer around another one may not have groups
    return any(isinstance(p, DTensor) for group in groups for p in group["params"])


def _before_step(optimizer, args, kwargs):
    """Lets an optimizer update the local parts. Rules that combine elements of a parameter would compute wrong steps."""
    if not _sharded_parameters(optimizer) or "update_group" in optimizer.__dict__:
        return
    if isinstance(optimizer, _NOT_ELEMENTWISE):
        raise NotImplementedError(
            f"{type(optimizer).__name__}.step: expected plain parameters, got DTensors. Use an optimizer that updates each "
            "element separately, such as AdamW."
        )
    update = optimizer.update_group

    def update_group(group):
        with local_access():
            update(group)

    optimizer.update_group = update_group


def _activate():
    """Lets gradient clipping, scalers and optimizers support DTensors, when the first DTensor is created."""
    hooks.clip_sharded, hooks.unscale_sharded = _clip_sharded, _unscale_sharded
    register_optimizer_step_pre_hook(_before_step)


ON_FIRST.append(_activate)
