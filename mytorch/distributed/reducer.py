"""Reducer: averages gradients over processes during backward, for DistributedDataParallel and the Accelerator.

Parameters are assigned to buckets in reverse order, which is about the order of backward. When a parameter's gradient
is complete, a hook on the leaf writes it to its bucket. A full bucket starts its all-reduce immediately, and backward
continues with earlier layers in the meantime. `p.grad` is a view of the bucket, so no result is copied back.
All processes start the buckets in the same order, even if gradients arrive in different orders.

Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from ..arrays import device_of, on, to_device, xp_of
from ..arrays.array import Array
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode
from ..autograd.node import Leaf
from ..autograd.walk import outermost_walk
from ..ops.dispatch.unwrap import raw_of
from . import collectives
from .engine import ReduceOp
from .objects import all_gather_bytes, decode, encode
from .process_group import Group, resolve
from .work import Future

MB = 1 << 20
FIRST_BUCKET = MB  # a small first bucket lets communication start early
BROADCAST_CHUNK = 250 * MB


class GradBucket:
    """A bucket of gradients that are complete in this process; the argument of a communication hook."""

    def __init__(self, bucket: _Bucket, index: int, is_last: bool):
        self._bucket, self._index, self._is_last = bucket, index, is_last

    def index(self) -> int:
        """Returns the number of the bucket, in order of communication."""
        return self._index

    def buffer(self) -> Tensor:
        """Returns all gradients of the bucket as one flat tensor."""
        return self._bucket.tensor

    def set_buffer(self, buffer: Tensor) -> None:
        """Replaces the contents of the flat tensor.

        Args:
            buffer: flat tensor of the same size.
        """
        self._bucket.flat[...] = buffer._mt_data._array

    def gradients(self) -> list[Tensor]:
        """Returns the gradients as views of the flat tensor."""
        return [Tensor._of(view) for view in self._bucket.views]

    def parameters(self) -> list[Tensor]:
        """Returns the parameters of the gradients."""
        return list(self._bucket.params)

    def is_last(self) -> bool:
        """Returns True for the last bucket of the step."""
        return self._is_last


class _Bucket:
    """Gradients of some parameters in one flat array."""

    def __init__(self, params):
        self.params = params
        first = params[0]._mt_data._array
        xp, there = on(device_of(first))
        with there:
            self.flat = xp.zeros(sum(p._mt_data._array.size for p in params), first.dtype)
        self.tensor = Tensor._wrap(self.flat)
        self.views, start = [], 0
        for p in params:
            raw = p._mt_data._array
            self.views.append(Array._wrap(self.flat[start : start + raw.size].reshape(raw.shape)))
            start += raw.size
        self.waiting = len(params)
        self.future = None


def make_buckets(params, cap_bytes, first_bytes=FIRST_BUCKET):
    """Group the parameters, last first, into buckets of one dtype and device, and of about `cap_bytes`.

    A larger parameter gets a separate bucket.
    """
    return [_Bucket(group) for group in _groups(reversed(params), cap_bytes, min(first_bytes, cap_bytes))]


def _groups(tensors, cap_bytes, first_bytes):
    """Yield lists of tensors of one dtype and device, of about `cap_bytes` (`first_bytes` for the first list)."""
    groups, sizes, limits = {}, {}, {}
    for t in tensors:
        raw = t._mt_data._array
        kind = (raw.dtype, str(device_of(raw)))
        group = groups.setdefault(kind, [])
        if group and sizes[kind] + raw.nbytes > limits.get(kind, first_bytes):
            yield groups.pop(kind)
            group = groups[kind] = []
            sizes[kind], limits[kind] = 0, cap_bytes
        group.append(t)
        sizes[kind] = sizes.get(kind, 0) + raw.nbytes
    yield from groups.values()


class Reducer:
    """Averages gradients over a process group, bucket by bucket.

    Args:
        named: (name, parameter) of each parameter that requires a gradient.
        group: process group.
        cap_bytes: size of a bucket in bytes.
        find_unused: find the unused parameters after each forward.
        views: keep `p.grad` as a view of its bucket; if False, `p.grad` is a separate array.
        buffers: tensors that `before_forward` broadcasts from rank 0.

    Attributes:
        sync: True if the next backward communicates.
    """

    def __init__(self, named, group, cap_bytes, find_unused=False, views=True, buffers=()):
        self.group = group
        self.op = ReduceOp.AVG if group.engine.averages else ReduceOp.SUM
        self.buffers = list(buffers)
        self.find_unused, self.views = find_unused, views
        self.sync = True
        self.scale = 1.0  # factor of the averages: Join divides by another number of processes
        self.hook = None
        self.names = {id(p): name for name, p in named}
        params = [p for _, p in named]
        self.buckets = make_buckets(params, cap_bytes)
        self.where = {id(p): (b, i) for b in self.buckets for i, p in enumerate(b.params)}
        self.number = {id(p): i for i, p in enumerate(params)}
        self.used = np.zeros(len(params), np.int32)  # in this process, since the last communication
        self.ready = set()
        self.reachable = None  # ids of the parameters that the outputs depend on
        self.next = 0
        self.handles = [p.register_post_accumulate_grad_hook(self._on_gradient) for p in params]

    # -- before backward -------------------------------------------------------------------------

    def before_forward(self, sync, training=True):
        """Prepare a forward; if its backward communicates (`sync`), broadcast the buffers of rank 0."""
        if not get_mode().grad:
            return
        self.sync = sync
        if sync:
            self.check_finished()
            if training and self.buffers:
                broadcast_coalesced(self.buffers, 0, self.group)

    def after_forward(self, outputs):
        """Search for unused parameters after a forward whose backward communicates, if `find_unused` is set."""
        if self.find_unused and self.sync and get_mode().grad:
            self.look_for_unused(outputs)
            if not self.reachable:  # backward will not reach a parameter, but other processes wait for this one
                self._mark_all()

    def check_finished(self):
        """Check that all gradients of the last step have arrived.

        Raises:
            RuntimeError: if gradients are missing; the message names their parameters.
        """
        if not self.ready:
            return
        missing = [name for i, name in self.names.items() if i not in self.ready]
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. These parameters have no "
            f"gradient: {', '.join(missing[:10])}{' …' if len(missing) > 10 else ''}. Pass find_unused_parameters=True to "
            "DistributedDataParallel, and make sure that the loss uses all outputs of forward."
        )

    def look_for_unused(self, outputs):
        """Collect the parameters that the outputs of a forward depend on; repeated calls before backward accumulate."""
        leaves, seen = set(), set()
        todo = [t.edge for t in _tensors(outputs) if t.edge is not None]
        while todo:
            edge = todo.pop()
            if edge in seen:
                continue
            seen.add(edge)
            if type(edge) is Leaf:
                leaves.add(edge)
            todo.extend(parent for parent in edge.parents if parent is not None)
        found = {id(p) for b in self.buckets for p in b.params if p._mt_edge in leaves}
        self.reachable = found if self.reachable is None else self.reachable | found

    # -- during backward -------------------------------------------------------------------------

    def _on_gradient(self, p):
        """Handle the complete gradient of a leaf."""
        self.used[self.number[id(p)]] = 1
        if not self.sync:
            bucket, i = self.where[id(p)]
            view = bucket.views[i]
            if p.grad is not view:
                view._array[...] = raw_of(p.grad)
                view._bump()
                p._mt_edge.grad = view
            return
        if self.find_unused and not self.ready:
            outermost_walk().callbacks.append(self._at_end)
            if self.reachable is not None:
                for q in [q for b in self.buckets for q in b.params if id(q) not in self.reachable]:
                    self._mark(q)
        self._mark(p)
        if self.next == len(self.buckets):
            self._finish()

    def _at_end(self):
        """Complete a backward pass with `find_unused` if the loss depends on a part of the outputs only."""
        if self.ready:
            self._mark_all()

    def _mark_all(self):
        for q in [q for b in self.buckets for q in b.params if id(q) not in self.ready]:
            self._mark(q)
        self._finish()

    def _mark(self, p):
        """Mark a parameter as ready and start the buckets that are next in order."""
        bucket, i = self.where[id(p)]
        if id(p) in self.ready:
            raise RuntimeError(
                f"Expected to mark a variable ready only once: {self.names[id(p)]} got a second gradient in one backward. "
                "Do not use a parameter in several checkpointed parts, and do not omit it from forward's outputs if "
                "find_unused_parameters is set."
            )
        self.ready.add(id(p))
        view = bucket.views[i]
        if p.grad is None:
            view._array[...] = 0
        elif self.hook is None and self.op is ReduceOp.SUM and self.group.size() > 1:  # divide first: an average
            g = raw_of(p.grad)
            xp_of(g).multiply(g, g.dtype.type(1 / self.group.size()), out=view._array)
        elif p.grad is not view:
            view._array[...] = raw_of(p.grad)
        if p.grad is not None:
            view._bump()
            p._mt_edge.grad = view
        bucket.waiting -= 1
        while self.next < len(self.buckets) and self.buckets[self.next].waiting == 0:
            self._start(self.next)
            self.next += 1

    def _start(self, i):
        bucket = self.buckets[i]
        if self.hook is None:
            bucket.future = collectives.all_reduce(bucket.tensor, self.op, self.group, async_op=True)
            return
        state, hook = self.hook
        bucket.future = hook(state, GradBucket(bucket, i, i == len(self.buckets) - 1))
        if not isinstance(bucket.future, Future):
            raise RuntimeError(f"comm hook: expected a Future, got {type(bucket.future).__name__}.")

    def _finish(self):
        """Wait for all buckets and store the averages in `p.grad`."""
        used = None
        if self.find_unused:
            used = Tensor._wrap(to_device(self.used.copy(), device_of(self.buckets[0].flat)))
            collectives.all_reduce(used, ReduceOp.MAX, self.group)
            used = np.asarray(used._mt_data)
        for bucket in self.buckets:
            result = bucket.future.wait()
            bucket.future = None
            if self.hook is not None:
                result = result[0] if isinstance(result, (list, tuple)) else result
                if result is not bucket.tensor:
                    bucket.flat[...] = result._mt_data._array.reshape(-1)
            if self.scale != 1:
                bucket.flat *= bucket.flat.dtype.type(self.scale)
            bucket.waiting = len(bucket.params)
            for p, view in zip(bucket.params, bucket.views, strict=True):
                if used is None or used[self.number[id(p)]]:
                    view._bump()
                    p._mt_edge.grad = view if self.views else view.__deepcopy__({})
        self.used[:] = 0
        self.ready.clear()
        self.reachable = None
        self.next = 0

    def remove(self):
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()


def _tensors(x):
    """Yield the Tensors in nested containers."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict):
        for value in x.values():
            yield from _tensors(value)
    elif isinstance(x, (list, tuple)):
        for item in x:
            yield from _tensors(item)
    elif hasattr(x, "__dict__") and not callable(x):  # a dataclass of outputs, but not a Module
        for value in vars(x).values():
            if isinstance(value, (Tensor, dict, list, tuple)):
                yield from _tensors(value)


def replicate(module, group, *, init_sync=True, cap_bytes=25 * MB, find_unused=False, views=True, buffers=True):
    """Copy rank 0's parameters to all processes of the group, and return the Reducer of the gradients.

    Raises:
        RuntimeError: if the processes hold different parameters.
    """
    if init_sync:
        check_same_shapes(module, group)
        broadcast_coalesced([*module.parameters(), *module.buffers()], 0, group)
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    return Reducer(named, group, cap_bytes, find_unused, views, module.buffers() if buffers else ())


def check_same_shapes(module, group):
    """Compare the names, shapes and dtypes of parameters and buffers over the group.

    Raises:
        RuntimeError: in all processes; the message names the first difference.
    """
    if group.size() == 1:
        return
    members = [*module.named_parameters(), *module.named_buffers()]
    mine = [[name, list(t.shape), t.dtype.name, bool(t.requires_grad)] for name, t in members]
    group.enter("DistributedDataParallel: check of parameters")
    digest = hashlib.sha256(encode(mine)).digest()
    if len(set(all_gather_bytes(group.engine, digest))) == 1:
        return
    everyone = [decode(content) for content in all_gather_bytes(group.engine, encode(mine))]
    first = everyone[0]
    for rank, other in zip(group.ranks, everyone, strict=True):
        for a, b in zip(first, other, strict=False):
            if a != b:
                raise RuntimeError(
                    f"DistributedDataParallel: rank {rank} holds {_told(b)}, but rank {group.ranks[0]} holds {_told(a)}; "
                    "the model must be the same in all processes."
                )
        if len(first) != len(other):
            raise RuntimeError(
                f"DistributedDataParallel: rank {rank} holds {len(other)} parameters and buffers, rank {group.ranks[0]} "
                f"{len(first)}; the model must be the same in all processes."
            )


def _told(entry):
    name, shape, dtype, grad = entry
    return f"{name} of shape {tuple(shape)}, {dtype}{'' if grad else ', without gradient'}"


def broadcast_coalesced(tensors: Iterable[Tensor], src: int, group: Group = None) -> None:
    """Copies the tensors of process `src` to all processes, in place, in a few large transfers.

    Args:
        tensors: tensors to send or to overwrite.
        src: rank of the source within the group.
        group: process group (default: all processes).
    """
    _exchange(tensors, resolve(group), lambda flat, group: collectives.broadcast(flat, group=group, group_src=src))


def average_coalesced(tensors: Iterable[Tensor], group: Group = None) -> None:
    """Averages the tensors over all processes, in place, in a few large transfers.

    Args:
        tensors: tensors of floats.
        group: process group (default: all processes).
    """

    def average(flat, group):
        flat._mt_data._array /= group.size()
        collectives.all_reduce(flat, group=group)

    _exchange(tensors, resolve(group), average)


def _exchange(tensors, group, transfer):
    """Runs `transfer(flat tensor, group)` for the joined elements of tensors, and writes them back."""
    if group.size() == 1:
        return
    for chunk in _groups(tensors, BROADCAST_CHUNK, BROADCAST_CHUNK):
        raws = [t._mt_data._array for t in chunk]
        xp, there = on(device_of(raws[0]))
        with there:
            flat = xp.concatenate([r.reshape(-1) for r in raws])
            transfer(Tensor._wrap(flat), group)
            start = 0
            for t, r in zip(chunk, raws, strict=True):
                r[...] = flat[start : start + r.size].reshape(r.shape)
                t._mt_data._bump()
                start += r.size
