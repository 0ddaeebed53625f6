"""Changes of placements, with gradients, on the local tensors of DTensors.

The gradient of a local tensor has a placement, too: the gradient of a shard is a shard, the gradient of a replicated
tensor is replicated, and the gradient of a partial sum is replicated. Every function here preserves this rule.

One exception saves communication. If all consumers of a replicated tensor compute partial sums, its gradient may be a
partial sum. An example are the column-parallel layers of one block. These mesh dimensions are called **varying**.

The backward passes are calls of the same Functions, so second derivatives communicate, too. Each process computes its term
of a partial sum from the gradient of the sum, so that gradient is varying.
"""

from __future__ import annotations

import numpy as np

from ...arrays.tensor import Tensor
from ...autograd.function import Function
from ...autograd.mode import no_grad
from ...nn import functional as F
from ...ops.creation import empty, zeros_like
from ...ops.movement import cat
from .. import collectives
from ..engine import ReduceOp
from .placement_types import Replicate, Shard, _BlockShard, _StridedShard, chunk


def _index(rows, like):
    return Tensor._wrap(rows) if like.device.type == "cpu" else Tensor._wrap(rows).to(like.device)


def slice_rows(x: Tensor, placement: Shard, parts: int, i: int) -> Tensor:
    """Returns the part of a tensor that process `i` stores, contiguous and with separate memory."""
    dim = placement.dim
    if isinstance(placement, _BlockShard):
        return x.index_select(dim, _index(placement.rows(x.shape[dim], parts, i), x))
    start, length = chunk(x.shape[dim], parts, i)
    return x.narrow(dim, start, length).clone().contiguous()


def gather_rows(x: Tensor, placement: Shard, n: int, group) -> Tensor:
    """Returns the tensor of size `n` along the sharded dimension from the shards of a group."""
    dim, size = placement.dim, group.size()
    each = -(-n // size)
    rest = [s for i, s in enumerate(x.shape) if i != dim]
    first = x.movedim(dim, 0)
    if first.shape[0] != each:
        first = F.pad(first, (*[0, 0] * len(rest), 0, each - first.shape[0]))
    out = empty((each * size, *rest), dtype=x.dtype, device=x.device)
    collectives.all_gather_into_tensor(out, first.contiguous(), group)
    out = out[:n] if each * size != n else out
    if isinstance(placement, _BlockShard):
        order = np.concatenate([placement.rows(n, size, i) for i in range(size)])
        out = out.index_select(0, _index(np.argsort(order), x))
    return out.movedim(0, dim).contiguous()


def reduce_scatter_rows(x: Tensor, placement: Shard, group, op: ReduceOp) -> Tensor:
    """Returns this process's shard of the sum of the tensors of a group."""
    dim, size, n = placement.dim, group.size(), x.shape[placement.dim]
    if isinstance(placement, _BlockShard):
        order = np.concatenate([placement.rows(n, size, i) for i in range(size)])
        x = x.index_select(dim, _index(order, x))
    each = -(-n // size)
    first = x.movedim(dim, 0)
    rest = list(first.shape[1:])
    if each * size != n:
        first = F.pad(first, (*[0, 0] * len(rest), 0, each * size - n))
    out = empty((each, *rest), dtype=x.dtype, device=x.device)
    collectives.reduce_scatter_tensor(out, first.contiguous(), op, group)
    return out[: chunk(n, size, group.rank())[1]].movedim(0, dim).contiguous()


def _reduced(x, group, op):
    out = x.detach().clone().contiguous()
    collectives.all_reduce(out, op, group)
    return out


class _Slice(Function):
    @staticmethod
    def forward(ctx, x, placement, group):
        ctx.placement, ctx.group, ctx.n = placement, group, x.shape[placement.dim]
        return slice_rows(x.detach(), placement, group.size(), group.rank())

    @staticmethod
    def backward(ctx, g):
        return _Gather.apply(g, ctx.placement, ctx.n, ctx.group, False), None, None


class _Gather(Function):
    @staticmethod
    def forward(ctx, x, placement, n, group, varying):
        ctx.placement, ctx.group, ctx.varying = placement, group, varying
        return gather_rows(x.detach(), placement, n, group)

    @staticmethod
    def backward(ctx, g):
        if ctx.varying:
            out = _ReduceScatter.apply(g, ctx.placement, ctx.group, ReduceOp.SUM)
        else:
            out = _Slice.apply(g, ctx.placement, ctx.group)
        return out, None, None, None, None


_EXTREMES = (ReduceOp.MAX, ReduceOp.MIN)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, x, group, op, varying):
        ctx.group, ctx.op, ctx.varying = group, op, varying
        out = _reduced(x, group, op)
        if op in _EXTREMES:
            ctx.save_for_backward((x == out) | x.isnan())  # the maximum of numbers with a NaN is that NaN
        return out

    @staticmethod
    def backward(ctx, g):
        g = _Copy.apply(_AllReduce.apply(g, ctx.group, ReduceOp.SUM, False) if ctx.varying else g, ctx.group)
        if ctx.op in _EXTREMES:  # equal terms share the gradient
            chosen = ctx.saved_tensors[0].to(g.dtype)
            return g * chosen / _reduced(chosen, ctx.group, ReduceOp.SUM), None, None, None
        return g / ctx.group.size() if ctx.op is ReduceOp.AVG else g, None, None, None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, x, placement, group, op):
        ctx.placement, ctx.group, ctx.op, ctx.n = placement, group, op, x.shape[placement.dim]
        return reduce_scatter_rows(x.detach(), placement, group, op)

    @staticmethod
    def backward(ctx, g):
        out = _Gather.apply(g, ctx.placement, ctx.n, ctx.group, True)
        return out / ctx.group.size() if ctx.op is ReduceOp.AVG else out, None, None, None


class _AllToAll(Function):
    """Changes the sharded dimension."""

    @staticmethod
    def forward(ctx, x, source, target, n, group):
        ctx.saved = source, target, x.shape[target.dim], group
        return _exchanged(x.detach(), source, target, n, group)

    @staticmethod
    def backward(ctx, g):
        source, target, n, group = ctx.saved
        return _AllToAll.apply(g, target, source, n, group), None, None, None, None


def _exchanged(x, source, target, n, group):
    """Returns the shard along `target.dim` from shards along `source.dim`, which has the size `n`."""
    size, me, width = group.size(), group.rank(), x.shape[target.dim]
    parts = [slice_rows(x, Shard(target.dim), size, i) for i in range(size)]
    out = []
    for i in range(size):
        shape = list(x.shape)
        shape[source.dim], shape[target.dim] = chunk(n, size, i)[1], chunk(width, size, me)[1]
        out.append(empty(shape, dtype=x.dtype, device=x.device))
    collectives.all_to_all(out, parts, group)
    return cat(out, source.dim)


class _Copy(Function):
    """Returns its input. The gradients of the processes are added: the consumers compute partial sums of it."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.detach()

    @staticmethod
    def backward(ctx, g):
        return _AllReduce.apply(g, ctx.group, ReduceOp.SUM, False), None


class _FirstOnly(Function):
    """Makes the values (`forward`) or the gradients a partial sum: the first process keeps them, the others have zeros."""

    @staticmethod
    def forward(ctx, x, group, in_forward):
        ctx.group, ctx.in_forward = group, in_forward
        return _first_only(x.detach(), group) if in_forward else x.detach()

    @staticmethod
    def backward(ctx, g):
        return _FirstOnly.apply(g, ctx.group, not ctx.in_forward), None, None


def _first_only(x, group):
    return x.clone() if group.rank() == 0 else zeros_like(x)


def copy_to(local: Tensor, mesh, mesh_dim: int) -> Tensor:
    """Marks a replicated tensor as the input of partial sums along a mesh dimension."""
    return local if mesh.size(mesh_dim) == 1 else _Copy.apply(local, mesh.get_group(mesh_dim))


def uncopy(local: Tensor, mesh, mesh_dim: int) -> Tensor:
    """Marks a varying tensor as the input of a function with replicated gradients."""
    return local if mesh.size(mesh_dim) == 1 else _FirstOnly.apply(local, mesh.get_group(mesh_dim), False)


def order_of(placements, dim: int) -> list[int]:
    """Returns the mesh dimensions that shard a dimension of the tensor, the outermost division first."""
    found = [i for i, p in enumerate(placements) if p.is_shard(dim)]
    return [i for i in found if type(placements[i]) is not _StridedShard] + [
        i for i in found if type(placements[i]) is _StridedShard
    ]


def rows_of(placements, sizes, coordinate, dim: int, n: int) -> np.ndarray:
    """Returns the positions along a dimension of size `n` that the process at a mesh coordinate stores."""
    rows = np.arange(n)
    for i in order_of(placements, dim):
        rows = rows[placements[i].rows(len(rows), sizes[i], coordinate[i])]
    return rows


def local_shape(shape, mesh, placements) -> tuple[int, ...]:
    """Returns the shape of this process's part of a tensor."""
    where = mesh.get_coordinate()
    return tuple(len(rows_of(placements, mesh.shape, where, d, n)) for d, n in enumerate(shape))


def redistributed(local: Tensor, mesh, shape, source, target, varying=frozenset()) -> Tensor:
    """Returns the local tensor of another layout.

    Args:
        local: local tensor.
        mesh: device mesh.
        shape: shape of the whole tensor.
        source: placements of `local`.
        target: placements of the result.
        varying: mesh dimensions in which a replicated result is varying.
    """
    source, target = list(source), list(target)
    if source == target:
        return local
    if local.device.type == "cpu" and mesh.device_type != "cpu":
        local = local.to(mesh.device_type)  # a shard in host memory
    where = mesh.get_coordinate()
    for i, p in enumerate(source):  # sums first, because the other changes require complete values
        if p.is_partial() and p != target[i]:
            group, op = mesh.get_group(i), ReduceOp.of(p.reduce_op)
            to = target[i]
            if (
                op not in _EXTREMES
                and to.is_shard()
                and len(order_of(target, to.dim)) == 1
                and not order_of(source, to.dim)
            ):
                local = _ReduceScatter.apply(local, to, group, op)
                source[i] = to
            else:
                local = _AllReduce.apply(local, group, op, i in varying and to.is_replicate())
                source[i] = Replicate()
    for dim in range(len(shape)):
        before, after = order_of(source, dim), order_of(target, dim)
        if [(i, source[i]) for i in before] == [(i, target[i]) for i in after]:
            continue
        if len(before) == 1 and type(source[before[0]]) is Shard:  # a shard of another dimension: exchange
            i = before[0]
            to = target[i]
            if (
                type(to) is Shard
                and to.dim != dim
                and len(order_of(target, to.dim)) == 1
                and not order_of(source, to.dim)
            ):
                local = _AllToAll.apply(local, source[i], to, shape[dim], mesh.get_group(i))
                source[i] = to
                continue
        for i in reversed(before):
            outer = [p if j != i and j in before[: before.index(i)] else Replicate() for j, p in enumerate(source)]
            n = len(rows_of(outer, mesh.shape, where, dim, shape[dim]))
            local = _Gather.apply(local, source[i], n, mesh.get_group(i), i in varying and target[i].is_replicate())
            source[i] = Replicate()
    for dim in range(len(shape)):
        for i in order_of(target, dim):
            if source[i] != target[i]:
                local = _Slice.apply(local, target[i], mesh.get_group(i))
                source[i] = target[i]
    for i, p in enumerate(target):
        if p.is_partial() and not source[i].is_partial():
            if not p.is_linear():  # each process has the value, and its part of the gradient
                local = copy_to(local, mesh, i)
                continue
            local = _FirstOnly.apply(local, mesh.get_group(i), True)
            if p.reduce_op == "avg":
                local = local * mesh.size(i)
    return local


def whole(local: Tensor, mesh, shape, placements) -> Tensor:
    """Returns the whole tensor without recording."""
    with no_grad():
        return redistributed(local.detach(), mesh, shape, placements, [Replicate()] * mesh.ndim)
