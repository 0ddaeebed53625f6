"""Collectives on Tensors and Arrays, with PyTorch's names and arguments.

This module converts tensors to the contiguous raw arrays that an engine requires. A list of tensors becomes one
array. When the transfer ends, the results are written back to the tensors. With `async_op=True` a function returns
a Work, and the results are available after `wait()`.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

from ..arrays import CPU, device_of, to_device, xp_of
from ..arrays.arguments import describe
from ..arrays.array import Array
from ..arrays.dtypes import as_dtype
from ..arrays.tensor import Tensor
from .engine import ReduceOp
from .objects import all_gather_bytes, broadcast_bytes, decode, encode
from .process_group import Group, member_of, resolve
from .work import Work

F = TypeVar("F", bound=Callable)
Tensors = Sequence[Tensor]


class _Sent:
    """A contiguous raw array on the engine's device. If it is a copy, `restore` writes it back."""

    def __init__(self, tensor, engine, what):
        self.array = _array_of(tensor, what)
        raw = self.array._array
        self.tensor = tensor
        if engine.device_type == "cuda" and device_of(raw).type != "cuda":
            raise RuntimeError(f"{what}: No backend type associated with device type cpu; the group's backend is nccl.")
        here = to_device(raw, CPU) if engine.device_type == "cpu" else raw
        self.raw = here if here.flags.c_contiguous else xp_of(here).ascontiguousarray(here)
        self.is_copy = self.raw is not raw

    def restore(self):
        """Write the result to the tensor unless the tensor already holds it, and note the change."""
        if self.is_copy:
            mine = self.array._array
            mine[...] = to_device(self.raw, device_of(mine)).reshape(mine.shape)
        self.array._bump()


def _array_of(tensor, what):
    inner = getattr(tensor, "_mt_data", tensor)
    if not isinstance(inner, Array):
        raise TypeError(f"{what}: expected a Tensor, got {type(tensor).__name__}.")
    return inner


def _describe(raw):
    return f"{as_dtype(raw.dtype).name} {tuple(raw.shape)}"


def _finish(group, work, outputs, async_op, actions=()):
    """Return a Work, or wait until the transfer ends."""
    for action in actions:
        work.finish(action)
    work.outputs = outputs
    if async_op:
        group.engine.watch(work)
        return work
    work.wait()
    return None


def _in_group(function: F) -> F:
    """Decorate a collective: resolve `group`, and skip the call in a process outside the group."""
    position = function.__code__.co_varnames.index("group")

    @functools.wraps(function)
    def collective(*args, **kwargs):
        if len(args) > position:
            group = resolve(args[position])
            args = (*args[:position], group, *args[position + 1 :])
        else:
            group = kwargs["group"] = resolve(kwargs.get("group"))
        return None if group is None else function(*args, **kwargs)

    return cast(F, collective)


def _root(group, rank, group_rank, what, default=None):
    """Return the rank within the group that src/dst or group_src/group_dst names."""
    if group_rank is not None:
        if rank is not None:
            raise ValueError(f"{what}: expected a global rank or a group rank, got both. Pass only one of them.")
        return int(group_rank)
    rank = default if rank is None else rank
    if rank is None:
        raise ValueError(f"{what}: expected the rank of the other process, got none. Pass src or dst.")
    return group.number_of(int(rank))


def _peer(group, rank, group_rank, what, role):
    """Return the rank within the group of the other process of a send or receive."""
    found = _root(group, rank, group_rank, what)
    if found == group.rank() and group.size() > 1:
        raise ValueError(
            f"{what}: Invalid {role} rank: {role} rank should not be the same as the rank of the current process."
        )
    return found


@_in_group
def barrier(group: Group = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits until all processes of the group reach this call.

    Args:
        device_ids: ignored; each process uses one device.
    """
    return _finish(group, group.engine.barrier(group.enter("barrier")), [], async_op)


@_in_group
def monitored_barrier(
    group: Group = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """Waits like `barrier`. If the barrier times out, the error names missing ranks.

    Args:
        timeout: seconds, or a timedelta (default: the group's timeout).
        wait_all_ranks: name all missing ranks in the error (default: False, the first missing rank).
    """
    work = group.engine.barrier(group.enter("monitored_barrier"))
    work.explain = work.explain and functools.partial(work.explain, None if wait_all_ranks else 1)
    work.wait(timeout)


@_in_group
def broadcast(
    tensor: Tensor, src: int | None = None, group: Group = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Copies the tensor of process `src` to all processes, in place.

    Args:
        tensor: tensor to send on `src`; tensor to overwrite on the other processes.
    """
    root = _root(group, src, group_src, "broadcast")
    sent = _Sent(tensor, group.engine, "broadcast")
    label = group.enter(f"broadcast({_describe(sent.raw)}, src={group.ranks[root]})")
    return _finish(group, group.engine.broadcast(sent.raw, root, label), [tensor], async_op, [sent.restore])


@_in_group
def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False) -> Work | None:
    """Reduces the tensors of all processes; every process gets the result, in place.

    The MPI backend adds 16-bit floats in float32. The NCCL backend uses NCCL's own reduction.

    Args:
        tensor: input; it is overwritten with the result.
    """
    op = ReduceOp.of(op)
    sent = _Sent(tensor, group.engine, "all_reduce")
    label = group.enter(f"all_reduce({op.value}, {_describe(sent.raw)})")
    return _finish(group, group.engine.all_reduce(sent.raw, op, label), [tensor], async_op, [sent.restore])


@_in_group
def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduces the tensors of all processes; only `dst` gets the result, in place.

    Args:
        tensor: input; on `dst` it is overwritten with the result.
    """
    op = ReduceOp.of(op)
    root = _root(group, dst, group_dst, "reduce")
    sent = _Sent(tensor, group.engine, "reduce")
    label = group.enter(f"reduce({op.value}, {_describe(sent.raw)}, dst={group.ranks[root]})")
    actions = [sent.restore] if group.rank() == root else []
    return _finish(group, group.engine.reduce(sent.raw, root, op, label), [tensor], async_op, actions)


# -- one to many, many to one ---------------------------------------------------------------------


def _same(tensors, like, group, what):
    """Check a list with one tensor per process.

    Raises:
        ValueError: if the length is not the group's size, or a tensor has another size or dtype.
    """
    tensors = list(tensors)
    if len(tensors) != group.size():
        raise ValueError(f"{what}: expected {group.size()} tensors (one per process), got {len(tensors)}.")
    mine = _array_of(like, what)
    for t in tensors:
        other = _array_of(t, what)._array
        if other.size != mine._array.size or other.dtype != mine._array.dtype:
            raise ValueError(
                f"{what}: expected tensors of equal size and dtype, got {_describe(other)} and {_describe(mine._array)}."
            )
    return tensors


def _joined(tensors, engine, what):
    """Concatenate the raw arrays of tensors."""
    raws = [_Sent(t, engine, what).raw.reshape(-1) for t in tensors]
    return xp_of(raws[0]).concatenate(raws)


def _hand_out(flat, tensors):
    """Return a function that copies consecutive parts of an array to tensors."""

    def action():
        start = 0
        for array in (_array_of(tensor, "") for tensor in tensors):
            mine = array._array
            part = flat.reshape(-1)[start : start + mine.size]
            mine[...] = to_device(part, device_of(mine)).reshape(mine.shape)
            array._bump()
            start += mine.size

    return action


@_in_group
def all_gather(tensor_list: Tensors, tensor: Tensor, group: Group = None, async_op: bool = False) -> Work | None:
    """Gathers the tensors of all processes into `tensor_list`.

    Args:
        tensor_list: output, one tensor per process.
        tensor: input of this process.
    """
    tensor_list = _same(tensor_list, tensor, group, "all_gather")
    sent = _Sent(tensor, group.engine, "all_gather")
    out = xp_of(sent.raw).empty((group.size(), sent.raw.size), sent.raw.dtype)
    label = group.enter(f"all_gather({_describe(sent.raw)})")
    actions = [_hand_out(out, tensor_list)]
    return _finish(group, group.engine.all_gather(out, sent.raw, label), tensor_list, async_op, actions)


@_in_group
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Gathers the tensors of all processes into `output_tensor`, concatenated or stacked along the first axis.

    Args:
        output_tensor: output, with `group size × input size` elements.
        input_tensor: input of this process.

    Raises:
        ValueError: if the output's number of elements or its dtype does not match.
    """
    sent = _Sent(input_tensor, group.engine, "all_gather_into_tensor")
    out = _Sent(output_tensor, group.engine, "all_gather_into_tensor")
    if out.raw.size != sent.raw.size * group.size() or out.raw.dtype != sent.raw.dtype:
        raise ValueError(
            f"all_gather_into_tensor: expected {group.size()} times the input {_describe(sent.raw)}, got {_describe(out.raw)}."
        )
    label = group.enter(f"all_gather_into_tensor({_describe(sent.raw)})")
    return _finish(group, group.engine.all_gather(out.raw, sent.raw, label), [output_tensor], async_op, [out.restore])


_all_gather_base = all_gather_into_tensor


@_in_group
def gather(
    tensor: Tensor,
    gather_list: Tensors | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Gathers the tensors of all processes into `gather_list` on process `dst`.

    Args:
        tensor: input of this process.
        gather_list: output on `dst`, one tensor per process; None on the other processes.

    Raises:
        ValueError: if `dst` has no list, or another process has one.
    """
    root = _root(group, dst, group_dst, "gather", default=0)
    sent = _Sent(tensor, group.engine, "gather")
    out, actions = None, []
    if group.rank() == root:
        if gather_list is None:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        gather_list = _same(gather_list, tensor, group, "gather")
        out = xp_of(sent.raw).empty((group.size(), sent.raw.size), sent.raw.dtype)
        actions = [_hand_out(out, gather_list)]
    elif gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    label = group.enter(f"gather({_describe(sent.raw)}, dst={group.ranks[root]})")
    return _finish(group, group.engine.gather(out, sent.raw, root, label), gather_list or [], async_op, actions)


@_in_group
def scatter(
    tensor: Tensor,
    scatter_list: Tensors | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Sends one tensor of `scatter_list` on process `src` to each process.

    Args:
        tensor: output of this process.
        scatter_list: input on `src`, one tensor per process; None on the other processes.

    Raises:
        ValueError: if `src` has no list, or another process has one.
    """
    root = _root(group, src, group_src, "scatter", default=0)
    out = _Sent(tensor, group.engine, "scatter")
    joined = None
    if group.rank() == root:
        if scatter_list is None:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        joined = _joined(_same(scatter_list, tensor, group, "scatter"), group.engine, "scatter")
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    label = group.enter(f"scatter({_describe(out.raw)}, src={group.ranks[root]})")
    return _finish(group, group.engine.scatter(out.raw, joined, root, label), [tensor], async_op, [out.restore])


@_in_group
def reduce_scatter(
    output: Tensor, input_list: Tensors, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False
) -> Work | None:
    """Reduces the lists of all processes element by element; each process gets one element of the result.

    Args:
        output: output of this process.
        input_list: input, one tensor per process.
    """
    joined = _joined(_same(input_list, output, group, "reduce_scatter"), group.engine, "reduce_scatter")
    return _reduce_scatter(group, output, joined, op, async_op, "reduce_scatter")


@_in_group
def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False
) -> Work | None:
    """Reduces the tensors of all processes and splits the result in order of ranks; each process gets one part.

    Args:
        output: output of this process.
        input: input, with `group size × output size` elements.

    Raises:
        ValueError: if the input's number of elements or its dtype does not match.
    """
    sent = _Sent(input, group.engine, "reduce_scatter_tensor")
    mine = _array_of(output, "reduce_scatter_tensor")._array
    if sent.raw.size != mine.size * group.size() or sent.raw.dtype != mine.dtype:
        raise ValueError(
            f"reduce_scatter_tensor: expected {group.size()} times the output {_describe(mine)}, got {_describe(sent.raw)}."
        )
    return _reduce_scatter(group, output, sent.raw.reshape(-1), op, async_op, "reduce_scatter_tensor")


_reduce_scatter_base = reduce_scatter_tensor


def _reduce_scatter(group, output, flat, op, async_op, what):
    op = ReduceOp.of(op)
    out = _Sent(output, group.engine, what)
    label = group.enter(f"{what}({op.value}, {_describe(out.raw)})")
    work = group.engine.reduce_scatter(out.raw.reshape(-1), flat, op, label)
    return _finish(group, work, [output], async_op, [out.restore])


@_in_group
def all_to_all(
    output_tensor_list: Tensors, input_tensor_list: Tensors, group: Group = None, async_op: bool = False
) -> Work | None:
    """Sends tensor i of the input list to process i, and receives tensor i of the output list from process i.

    Args:
        output_tensor_list: output, one tensor per process.
        input_tensor_list: input, one tensor per process.

    Raises:
        ValueError: if a list does not have one tensor per process.
    """
    engine, n = group.engine, group.size()
    if len(output_tensor_list) != n or len(input_tensor_list) != n:
        raise ValueError(
            f"all_to_all: expected {n} tensors, got {len(input_tensor_list)} and {len(output_tensor_list)}."
        )
    joined = _joined(input_tensor_list, engine, "all_to_all")
    in_counts = [_array_of(t, "all_to_all")._array.size for t in input_tensor_list]
    out_counts = [_array_of(t, "all_to_all")._array.size for t in output_tensor_list]
    out = xp_of(joined).empty(sum(out_counts), joined.dtype)
    label = group.enter(f"all_to_all({as_dtype(joined.dtype).name})")
    work = engine.all_to_all(out, joined, out_counts, in_counts, label)
    return _finish(group, work, output_tensor_list, async_op, [_hand_out(out, output_tensor_list)])


@_in_group
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Splits `input` along its first axis, sends part i to process i, and concatenates the received parts.

    Args:
        output: output of this process.
        input: input of this process.
        output_split_sizes: number of rows received from each process (default: equal parts).
        input_split_sizes: number of rows sent to each process (default: equal parts).

    Raises:
        ValueError: if the rows do not divide evenly, or the split sizes do not add up to the rows.
    """
    sent = _Sent(input, group.engine, "all_to_all_single")
    out = _Sent(output, group.engine, "all_to_all_single")

    def counts(raw, splits, name):
        rows = raw.shape[0] if raw.ndim else 1
        if not splits:
            if rows % group.size():
                raise ValueError(
                    f"all_to_all_single: expected {name} rows divisible by {group.size()} processes, got {rows}."
                )
            splits = [rows // group.size()] * group.size()
        if sum(splits) != rows or len(splits) != group.size():
            raise ValueError(
                f"all_to_all_single: expected {group.size()} {name}_split_sizes with the sum {rows}, got {list(splits)}."
            )
        return [s * (raw.size // max(rows, 1)) for s in splits]

    out_counts, in_counts = counts(out.raw, output_split_sizes, "output"), counts(sent.raw, input_split_sizes, "input")
    label = group.enter(f"all_to_all_single({as_dtype(sent.raw.dtype).name})")
    work = group.engine.all_to_all(out.raw.reshape(-1), sent.raw.reshape(-1), out_counts, in_counts, label)
    return _finish(group, work, [output], async_op, [out.restore])


# -- between two ----------------------------------------------------------------------------------


@_in_group
def isend(
    tensor: Tensor, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Starts to send a tensor to process `dst`, and returns a Work.

    Args:
        tensor: tensor to send; do not change it until the Work is done.
    """
    to = _peer(group, dst, group_dst, "send", "destination")
    sent = _Sent(tensor, group.engine, "send")
    label = f"send({_describe(sent.raw)}) from rank {group.ranks[group.rank()]} to rank {group.ranks[to]}"
    work = group.engine.send(sent.raw, to, tag, label)
    work.explain = None
    return _finish(group, work, [tensor], True)


@_in_group
def irecv(
    tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Starts to receive a tensor from process `src`, and returns a Work.

    Args:
        tensor: output; it is overwritten with the received data.
        src: rank of the source; None accepts any source.
    """
    source = None if src is None and group_src is None else _peer(group, src, group_src, "recv", "source")
    out = _Sent(tensor, group.engine, "recv")
    who = "any rank" if source is None else f"rank {group.ranks[source]}"
    label = f"recv({_describe(out.raw)}) on rank {group.ranks[group.rank()]} from {who}"
    work = group.engine.receive(out.raw, source, tag, label)
    work.explain = None
    return _finish(group, work, [tensor], True, [out.restore])


def send(
    tensor: Tensor, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None
) -> None:
    """Sends a tensor to process `dst`; returns when you may change the tensor again.

    Args:
        tensor: tensor to send.
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None
) -> int:
    """Receives a tensor from process `src`, and returns the rank of the sender.

    Args:
        tensor: output; it is overwritten with the received data.
        src: rank of the source; None accepts any source.
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return member_of(group).ranks[work.source]


class P2POp:
    """A send or receive for `batch_isend_irecv`.

    Args:
        op: `isend` or `irecv`.
        tensor: tensor to send or to receive into.
        peer: global rank of the other process.
        group: process group (default: all processes).
        tag: number that a send and its receive must share.
        group_peer: rank of the other process within the group; replaces `peer`.
    """

    def __init__(
        self,
        op: Callable,
        tensor: Tensor,
        peer: int | None = None,
        group: Group | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ):
        if op not in (isend, irecv):
            raise ValueError(f"P2POp: expected op to be isend or irecv, got {op!r}.")
        self.op, self.tensor, self.peer = op, tensor, peer
        self.group, self.tag, self.group_peer = group, tag, group_peer


def batch_isend_irecv(p2p_op_list: Iterable[P2POp]) -> list[Work | None]:
    """Starts several sends and receives, and returns one Work for each.

    Args:
        p2p_op_list: the operations to start.
    """
    return [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]


# -- objects --------------------------------------------------------------------------------------


@_in_group
def all_gather_object(object_list: list, obj: Any, group: Group = None) -> None:
    """Gathers Python objects of all processes into `object_list`.

    Args:
        object_list: output, one item per process.
        obj: input of this process: plain data (numbers, strings, lists, dicts) and tensors.

    Raises:
        TypeError: if an object is neither plain data nor a tensor. Objects are never pickled.
    """
    content = encode(obj, "all_gather_object")
    label = group.enter("all_gather_object")
    for i, one in enumerate(all_gather_bytes(group.engine, content, label)):
        object_list[i] = decode(one)


@_in_group
def gather_object(
    obj: Any,
    object_gather_list: list | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
) -> None:
    """Gathers Python objects of all processes into `object_gather_list` on process `dst`.

    Args:
        obj: input of this process: plain data and tensors.
        object_gather_list: output on `dst`, one item per process; None on the other processes.
    """
    root = _root(group, dst, group_dst, "gather_object", default=0)
    here = group.rank() == root
    if here and object_gather_list is None:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    everyone = all_gather_bytes(group.engine, encode(obj, "gather_object"), group.enter("gather_object"))
    if here and object_gather_list is not None:
        for i, one in enumerate(everyone):
            object_gather_list[i] = decode(one)


@_in_group
def broadcast_object_list(
    object_list: list, src: int | None = None, group: Group = None, device: Any = None, group_src: int | None = None
) -> None:
    """Copies the Python objects of process `src` to all processes, in place.

    Args:
        object_list: list to send on `src`; list to overwrite on the other processes.
        device: ignored; objects are sent from CPU memory.

    Raises:
        TypeError: if an object is neither plain data nor a tensor. Objects are never pickled.
    """
    root = _root(group, src, group_src, "broadcast_object_list", default=0)
    content = encode(list(object_list), "broadcast_object_list") if group.rank() == root else b""
    label = group.enter(f"broadcast_object_list({len(object_list)})")
    received = decode(broadcast_bytes(group.engine, content, root, label))
    if group.rank() != root:
        object_list[:] = received


@_in_group
def scatter_object_list(
    scatter_object_output_list: list,
    scatter_object_input_list: list | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
) -> None:
    """Sends one Python object of the list on process `src` to each process.

    Args:
        scatter_object_output_list: output; its first item is overwritten.
        scatter_object_input_list: input on `src`, one object per process; None on the other processes.
    """
    root = _root(group, src, group_src, "scatter_object_list", default=0)
    content = b""
    if group.rank() == root:
        if scatter_object_input_list is None:
            raise ValueError("source rank must provide non-None scatter_object_input_list")
        items = list(scatter_object_input_list)
        if len(items) != group.size():
            raise ValueError(f"scatter_object_list: expected {group.size()} objects, got {len(items)}.")
        content = encode(items, "scatter_object_list")
    label = group.enter("scatter_object_list")
    scatter_object_output_list[0] = decode(broadcast_bytes(group.engine, content, root, label))[group.rank()]


describe(
    globals(),
    op="reduction: `ReduceOp.SUM`, `AVG`, `PRODUCT`, `MIN` or `MAX`.",
    src="global rank of the source.",
    dst="global rank of the destination.",
    group="process group (default: all processes).",
    tag="number that a send and its receive must share.",
    async_op="if True, return a Work immediately; otherwise wait.",
    group_src="rank of the source within the group; replaces `src`.",
    group_dst="rank of the destination within the group; replaces `dst`.",
)


__all__ = [
    "P2POp", "ReduceOp", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "irecv", "isend", "monitored_barrier", "recv", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
]  # fmt: skip
