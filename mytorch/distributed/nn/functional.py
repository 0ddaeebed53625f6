"""Collectives that autograd differentiates. The backward pass of each is a collective, so all processes must run it.

Each function returns its result and leaves its inputs unchanged.
"""

from collections.abc import Sequence

from ...arrays.arguments import describe
from ...arrays.dtypes import bool_
from ...arrays.tensor import Tensor
from ...autograd.function import Function
from ...ops.creation import empty_like, ones_like, zeros_like
from .. import collectives
from ..engine import ReduceOp
from ..process_group import Group, member_of

_LINEAR = (ReduceOp.SUM, ReduceOp.AVG)


def _group(group):
    return member_of(group)


def _copy(tensor):
    return tensor.detach().clone().contiguous()


def _check_linear(op, who):
    if op not in _LINEAR:
        raise RuntimeError(
            f"{who}: expected ReduceOp.SUM or ReduceOp.AVG for a gradient, got ReduceOp.{op.name}. Detach the input."
        )


def _is_mine(group, rank):
    return group.ranks[group.rank()] == rank


def _zeros(tensor):
    """Returns zeros that depend on a tensor: the second derivative runs the same collectives in all processes."""
    return tensor.masked_fill(ones_like(tensor, dtype=bool_), 0)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src, ctx.group = src, group
        out = _copy(tensor)
        collectives.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx, g):
        total = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, g)
        return None, None, total if _is_mine(ctx.group, ctx.src) else _zeros(total)


class _Gather(Function):
    @staticmethod
    def forward(ctx, dst, group, tensor):
        ctx.dst, ctx.group = dst, group
        out = [empty_like(tensor) for _ in range(group.size())]
        mine = _is_mine(group, dst)
        collectives.gather(tensor.detach().contiguous(), out if mine else None, dst, group)
        return tuple(out) if mine else tuple(zeros_like(t) for t in out)

    @staticmethod
    def backward(ctx, *grads):
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx, src, group, *tensors):
        ctx.src, ctx.group = src, group
        out = empty_like(tensors[0])
        mine = _is_mine(group, src)
        collectives.scatter(out, [t.detach().contiguous() for t in tensors] if mine else None, src, group)
        return out

    @staticmethod
    def backward(ctx, g):
        return None, None, *_Gather.apply(ctx.src, ctx.group, g)


class _Reduce(Function):
    @staticmethod
    def forward(ctx, dst, op, group, tensor):
        ctx.dst, ctx.op, ctx.group = dst, op, group
        out = _copy(tensor)
        collectives.reduce(out, dst, op, group)
        return out

    @staticmethod
    def backward(ctx, g):
        _check_linear(ctx.op, "reduce")
        out = _Broadcast.apply(ctx.dst, ctx.group, g)
        return None, None, None, out / ctx.group.size() if ctx.op is ReduceOp.AVG else out


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, op, group, tensor):
        ctx.op, ctx.group = op, group
        out = _copy(tensor)
        collectives.all_reduce(out, op, group)
        return out

    @staticmethod
    def backward(ctx, g):
        _check_linear(ctx.op, "all_reduce")
        return None, None, _AllReduce.apply(ctx.op, ctx.group, g)


class _AllGather(Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        out = [empty_like(tensor) for _ in range(group.size())]
        collectives.all_gather(out, tensor.detach().contiguous(), group)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, *grads)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, op, group, *tensors):
        ctx.op, ctx.group = op, group
        out = empty_like(tensors[group.rank()])
        collectives.reduce_scatter(out, [t.detach().contiguous() for t in tensors], op, group)
        return out

    @staticmethod
    def backward(ctx, g):
        _check_linear(ctx.op, "reduce_scatter")
        out = _AllGather.apply(ctx.group, g)
        scale = ctx.group.size() if ctx.op is ReduceOp.AVG else 1
        return None, None, *(out if scale == 1 else [t / scale for t in out])


class _AllToAll(Function):
    @staticmethod
    def forward(ctx, group, outputs, *tensors):
        ctx.group, ctx.inputs = group, [empty_like(t) for t in tensors]
        out = [empty_like(t) for t in outputs]
        collectives.all_to_all(out, [t.detach().contiguous() for t in tensors], group)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        return None, None, *_AllToAll.apply(ctx.group, ctx.inputs, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx, group, like, received, sent, tensor):
        ctx.group, ctx.received, ctx.sent = group, received, sent
        out = empty_like(like)
        collectives.all_to_all_single(out, tensor.detach().contiguous(), received, sent, group)
        ctx.save_for_backward(tensor)
        return out

    @staticmethod
    def backward(ctx, g):
        (tensor,) = ctx.saved_tensors
        out = _AllToAllSingle.apply(ctx.group, tensor.detach(), ctx.sent, ctx.received, g)
        return None, None, None, None, out


def broadcast(tensor: Tensor, src: int, group: Group = None) -> Tensor:
    """Returns the tensor of process `src`. The gradients of all processes are added on `src`.

    Args:
        tensor: input on `src`; on the other processes, a tensor of the same shape and dtype.
        src: global rank of the source.
    """
    return _Broadcast.apply(src, _group(group), tensor)


def gather(tensor: Tensor, dst: int = 0, group: Group = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all processes on process `dst`, and zeros on the other processes.

    Args:
        dst: global rank of the destination (default: 0).
    """
    return _Gather.apply(dst, _group(group), tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Group = None) -> Tensor:
    """Returns this process's tensor of the list on process `src`.

    Args:
        tensors: one tensor for each process. On processes other than `src`, only the shapes are used.
        src: global rank of the source (default: 0).
    """
    return _Scatter.apply(src, _group(group), *tensors)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Tensor:
    """Returns the reduction of the tensors of all processes on process `dst`, and the input on the other processes.

    Args:
        dst: global rank of the destination.
        op: reduction: `ReduceOp.SUM` (default), `AVG`, or another one without a gradient.
    """
    return _Reduce.apply(dst, ReduceOp.of(op), _group(group), tensor)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Tensor:
    """Returns the reduction of the tensors of all processes. The gradient is reduced in the same way.

    Args:
        op: reduction: `ReduceOp.SUM` (default), `AVG`, or another one without a gradient.

    Example:
        >>> mytorch.distributed.init_process_group()
        >>> x = tensor([1.0, 2.0], requires_grad=True)
        >>> mytorch.distributed.nn.functional.all_reduce(x).sum().backward()
        >>> x.grad.tolist()
        [1.0, 1.0]
        >>> mytorch.distributed.destroy_process_group()
    """
    return _AllReduce.apply(ReduceOp.of(op), _group(group), tensor)


def all_gather(tensor: Tensor, group: Group = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all processes. The gradients of each tensor are added on its process.

    Args:
        tensor: input of this process, of the same shape in all processes.
    """
    return _AllGather.apply(_group(group), tensor)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """Reduces the lists of all processes element by element, and returns this process's element.

    Args:
        output: tensor of the shape of the result. As in PyTorch, use the returned tensor.
        input_list: one tensor for each process.
        op: reduction: `ReduceOp.SUM` (default), `AVG`, or another one without a gradient.

    Raises:
        ValueError: the shapes of `output` and of this process's input differ.
    """
    group = _group(group)
    mine = input_list[group.rank()]
    if tuple(output.shape) != tuple(mine.shape):
        raise ValueError(f"reduce_scatter: expected an output of shape {tuple(mine.shape)}, got {tuple(output.shape)}.")
    return _ReduceScatter.apply(ReduceOp.of(op), group, *input_list)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Group = None
) -> tuple[Tensor, ...]:
    """Sends tensor i to process i, and returns the received tensors.

    Args:
        output_tensor_list: tensors of the shapes of the results. As in PyTorch, use the returned tensors.
        input_tensor_list: one tensor for each process.
    """
    return _AllToAll.apply(_group(group), [t.detach() for t in output_tensor_list], *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
) -> Tensor:
    """Splits the input along its first axis, sends part i to process i, and returns the received parts.

    Args:
        output: tensor of the shape of the result. As in PyTorch, use the returned tensor.
        input: input of this process.
        output_split_sizes: number of rows received from each process (default: equal parts).
        input_split_sizes: number of rows sent to each process (default: equal parts).
    """
    return _AllToAllSingle.apply(_group(group), output.detach(), output_split_sizes, input_split_sizes, input)


describe(
    globals(),
    group="process group (default: all processes).",
    tensor="input of this process.",
    op="reduction: `ReduceOp.SUM` (default), `AVG`, or another one without gradients.",
)

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip
