"""The parameters of one module that `fully_shard` shards: their shards, and the collectives that join them.

Each parameter is divided along its first dimension. A group of parameters is gathered into one buffer before forward and
backward, and its gradients are reduced from one buffer:

    shards (S bytes) -- all-gather --> buffer (n, S) -- copy --> parameters
    gradients -- copy --> buffer (n, S) -- reduce-scatter --> shards of gradients
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...arrays import CPU, as_device, device_of, on, to_device, xp_of
from ...arrays.array import Array
from ...arrays.errors import InPlaceError
from ...arrays.parameter import Parameter
from ...arrays.tensor import Tensor
from ...autograd import walk
from ...autograd.mode import get_mode, in_mode
from ...autograd.node import Leaf
from .. import collectives
from ..engine import ReduceOp
from ..tensor.dtensor import DTensor, DTensorParameter, refuse_hooks
from ..tensor.placement_types import Replicate, Shard, _StridedShard, chunk
from ..tensor.redistribution import slice_rows


class MixedPrecisionPolicy(NamedTuple):
    """The dtypes of a module that `fully_shard` shards. The optimizer works in the original dtype.

    Attributes:
        param_dtype: dtype of the gathered parameters and of the computation (default: the original dtype).
        reduce_dtype: dtype of the gradients in the reduction (default: the dtype of the gradients).
        output_dtype: dtype to which floating point outputs are cast (default: no cast).
        cast_forward_inputs: cast floating point inputs to `param_dtype` (default: True).
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass(frozen=True)
class OffloadPolicy:
    """Keeps shards on the device of the computation."""


@dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """Keeps the shards of parameters, gradients and optimizer state in host memory, and the optimizer computes there.

    Only the gathered parameters of a module are on the GPU. On a CPU, all memory is host memory.

    Attributes:
        pin_memory: pin the shards of parameters, for faster copies to a GPU (default: True).
    """

    pin_memory: bool = True


def leaf_of(parameter: Tensor) -> Tensor:
    """Returns the plain tensor that the graph contains for a parameter, which can be a DTensor."""
    return parameter._local_tensor if isinstance(parameter, DTensor) else parameter


class ShardedParameter:
    """One parameter: its shard, which modules and optimizers see, and the whole parameter during forward and backward.

    Attributes:
        sharded: the parameter with the shard of this process.
        unsharded: the parameter that forward and backward use; its memory exists between `unshard` and `reshard`.
        owners: (module, name) of all modules that contain the parameter.
    """

    def __init__(self, parameter, owners, mesh, full_mesh, offload):
        self.owners, self.name = owners, f"{type(owners[0][0]).__name__}.{owners[0][1]}"
        self.mesh = mesh
        size, me = mesh.size(), mesh.get_local_rank()
        local = leaf_of(parameter)
        self.shape = tuple(local.shape)
        self.rows = local.shape[0] if local.ndim else 1
        self.each = -(-self.rows // size)  # rows of a shard with padding
        self.length = chunk(self.rows, size, me)[1]
        self.width = math.prod(self.shape[1:])
        if not local.ndim:
            raise ValueError(
                "fully_shard: expected parameters with at least one dimension, got a 0-d parameter. Give it the shape (1,)."
            )
        refuse_hooks(local, self.name, "fully_shard")
        device = device_of(local._mt_data._array)
        self.home = None  # device of the computation, if the shards are in host memory
        if offload is not None:
            self.home = as_device(mesh.device_type) if device.type == "meta" else device
        shard = slice_rows(local.detach(), Shard(0), size, me)
        if offload is not None and device is not CPU and device.type != "meta":
            shard = shard.to("cpu").pin_memory() if offload.pin_memory else shard.to("cpu")
        placements = [Shard(0)]
        if isinstance(parameter, DTensor):
            strided = any(p.is_shard(0) for p in parameter._placements)
            placements = [_StridedShard(0) if strided else Shard(0), *parameter._placements]
        if full_mesh.ndim > len(placements):  # copies of the shards, for hybrid sharding
            placements = [Replicate()] * (full_mesh.ndim - len(placements)) + placements
        self.sharded = DTensor._make(
            shard.requires_grad_(parameter.requires_grad), full_mesh, placements, parameter.shape, DTensorParameter
        )
        self.parallel = None  # (mesh, placements, shape) of a tensor-parallel parameter
        if isinstance(parameter, DTensor):
            self.parallel = parameter._mesh, parameter._placements, parameter._global_shape
        self.unsharded: Any = None
        self.accumulated = None  # gradient of passes without synchronization, in the dtype of the reduction
        self.partial = None  # shard of the gradient, and its use, that are not reduced over the copies yet
        self.version = 0  # of the shard, when it was gathered

    def local(self) -> Tensor:
        """Returns the shard of this process, a plain tensor."""
        return self.sharded._local_tensor

    @property
    def device(self):
        """The device of the computation. The shards can move, for example from the meta device."""
        return device_of(self.local()._mt_data._array) if self.home is None else self.home

    def adopt(self):
        """Replaces the sharded parameter by one that was assigned to the module, such as `load_state_dict(assign=True)`."""
        assigned = [module._parameters.get(name) for module, name in self.owners]
        fresh = next((p for p in assigned if p is not self.sharded and p is not self.unsharded), self.sharded)
        if fresh is self.sharded:
            return
        mine = self.sharded
        if not isinstance(fresh, DTensorParameter) or (
            (fresh._mesh, fresh._placements, fresh._global_shape) != (mine._mesh, mine._placements, mine._global_shape)
        ):
            raise ValueError(
                f"fully_shard: expected {self.name} to be a parameter with shape {tuple(mine.shape)} and placements "
                f"{mine._placements}, got {getattr(fresh, '_placements', type(fresh).__name__)}. Change sharded parameters "
                "in place, or assign nn.Parameter(distribute_tensor(...))."
            )
        self.sharded, self.version = fresh, -1

    def show(self, parameter):
        """Makes the modules contain the given version of the parameter."""
        for module, name in self.owners:
            module._parameters[name] = parameter

    def set_unsharded(self, raw, on_gradient):
        """Gives the unsharded parameter its memory, a raw array."""
        requires_grad = self.local().requires_grad
        if self.unsharded is None and self.parallel is None:
            self.unsharded = Parameter(Tensor._wrap(raw), requires_grad=False)
        elif self.unsharded is None:
            self.unsharded = DTensor._make(Tensor._wrap(raw), *self.parallel, DTensorParameter)
        leaf = leaf_of(self.unsharded)
        leaf._mt_data = Array._wrap(raw)
        if leaf.requires_grad != requires_grad:
            leaf.requires_grad_(requires_grad)
            if requires_grad:
                leaf.register_post_accumulate_grad_hook(lambda _: on_gradient(self))
        if isinstance(leaf._mt_edge, Leaf):
            leaf._mt_edge.shape, leaf._mt_edge.dtype = raw.shape, raw.dtype

    def free(self):
        """Releases the memory of the unsharded parameter."""
        if self.unsharded is not None:
            leaf_of(self.unsharded)._mt_data = _RELEASED


class _Released(Array):
    """The data of a parameter outside of its forward and backward. Any use of the elements raises an error."""

    __slots__ = ()

    @property
    def _array(self):
        raise RuntimeError(
            "fully_shard: expected a use of the parameter inside of the forward of its module, got a use after its memory was "
            "released. Call module.unshard() first."
        )


_RELEASED = object.__new__(_Released)


class _Saved(NamedTuple):
    """A view of a gathered parameter that an op saved for backward: the position, without the memory."""

    parameter: ShardedParameter
    version: int
    offset: int
    shape: tuple
    strides: tuple


class ParameterGroup:
    """The parameters of one module that `fully_shard` was applied to, without the parameters of inner modules.

    Args:
        parameters: (parameter, [(module, name), …]) of each parameter.
        mesh: 1-d mesh over which the parameters are sharded.
        replicate_mesh: 1-d mesh of copies, for hybrid sharding, or None.
        full_mesh: mesh of the sharded DTensors.
        policy: a MixedPrecisionPolicy.
        offload: a CPUOffloadPolicy, or None.
    """

    def __init__(self, parameters, mesh, replicate_mesh, full_mesh, policy, offload=None):
        self.mesh, self.replicate_mesh, self.policy = mesh, replicate_mesh, policy
        self.group, self.size, self.me = mesh.get_group(), mesh.size(), mesh.get_local_rank()
        self.parameters = [
            ShardedParameter(p, owners, mesh, self._mesh_of(p, full_mesh), offload) for p, owners in parameters
        ]
        for p in self.parameters:
            p.show(p.sharded)
        self.unsharded = False
        self.spans: list[tuple] = []  # (first address, last address, array, parameter) of the gathered parameters
        self.gathering = None  # (work, buffer, parts) of a running all-gather
        self.reducing = None  # (work, output, buffer) of a running reduce-scatter
        self.arrived: set[int] = set()  # parameters with a complete gradient in this backward
        self.sync = self.reshard_after_backward = True
        self.all_reduce = True
        self.divide: float | None = None
        # Functions of the module's state, called when a reduction or backward starts, and when backward needs the parameters
        self.on_reduced: Callable[[], None] = lambda: None
        self.in_backward: Callable[[], None] = lambda: None
        self.before_unpack: Callable[[], None] = lambda: None

    @staticmethod
    def _mesh_of(parameter, mesh):
        """Returns the mesh of the sharded parameter: the mesh of the shards, and of tensor parallelism."""
        if not isinstance(parameter, DTensor):
            return mesh
        root, other = mesh._root, parameter._mesh
        if root is None or other._root is not root:
            raise ValueError(
                f"fully_shard: expected a mesh that has the same parent as the mesh {other} of the parameter, got {mesh}. "
                "Take both from one init_device_mesh, such as mesh['dp'] and mesh['tp']."
            )
        return root[(*mesh.mesh_dim_names, *other.mesh_dim_names)]

    def _dtype(self, parameter):
        """Returns the raw dtype of a gathered parameter."""
        raw = parameter.local()._mt_data._array
        wanted = self.policy.param_dtype
        return raw.dtype if wanted is None or raw.dtype.kind not in "fV" else wanted.numpy

    def _by_dtype(self):
        """Returns {dtype: parameters}; each dtype is one message."""
        groups: dict[Any, list[ShardedParameter]] = {}
        for p in self.parameters:
            groups.setdefault(self._dtype(p), []).append(p)
        return groups

    # -- parameters --------------------------------------------------------------------------------

    def _versions(self):
        for p in self.parameters:
            p.local()._mt_data.shared_version_counter()
        return [p.local()._version for p in self.parameters]

    def start_gather(self):
        """Starts to gather the parameters."""
        if self.unsharded or self.gathering is not None:
            return
        works = []
        for p, version in zip(self.parameters, self._versions(), strict=True):
            p.version = version
        for dtype, members in self._by_dtype().items():
            xp, there = on(members[0].device)
            with there:
                total = sum(p.each * p.width for p in members)
                send = xp.zeros(total, dtype) if any(p.length != p.each for p in members) else xp.empty(total, dtype)
                start = 0
                for p in members:
                    raw = p.local()._mt_data._array
                    send[start : start + raw.size] = to_device(raw, members[0].device).reshape(-1)
                    start += p.each * p.width
                out = xp.empty((self.size, total), dtype) if self.size > 1 else send.reshape(1, -1)
            work = None
            if self.size > 1:
                work = collectives.all_gather_into_tensor(
                    Tensor._wrap(out), Tensor._wrap(send), self.group, async_op=True
                )
            works.append((work, out, members))
        self.gathering = works

    def unshard(self):
        """Makes the whole parameters available to the modules."""
        for p in self.parameters:
            p.adopt()
        if (self.unsharded or self.gathering is not None) and [p.version for p in self.parameters] != self._versions():
            self.reshard()  # the shards have changed since they were gathered
        if self.unsharded:
            return
        self.start_gather()
        for work, out, members in self.gathering or ():
            if work is not None:
                work.wait()
            start = 0
            for p in members:
                part = out[:, start : start + p.each * p.width]
                raw = part.reshape(self.size * p.each, p.width)[: p.rows]
                # Compact memory, so that an address belongs to one parameter: with one row for each process, the
                # reshape is a view that goes over the buffer of all parameters.
                raw = xp_of(raw).ascontiguousarray(raw).reshape(p.shape)
                p.set_unsharded(raw, self.on_gradient)
                start += p.each * p.width
        self.gathering = None
        self.unsharded = True
        raws = [(leaf_of(p.unsharded)._mt_data._array, p) for p in self.parameters]
        self.spans = [(_address(raw), _address(raw) + raw.nbytes, raw, p) for raw, p in raws if raw.size]
        self.show_unsharded()

    def show_unsharded(self):
        """Makes the modules contain the whole parameters."""
        for p in self.parameters:
            p.show(p.unsharded)

    def reshard(self):
        """Releases the whole parameters."""
        for p in self.parameters:
            p.adopt()
        if self.gathering is not None:
            for work, *_ in self.gathering:
                if work is not None:
                    work.wait()
            self.gathering = None
        if self.unsharded:
            self.unsharded, self.spans = False, []
            for p in self.parameters:
                p.free()
        for p in self.parameters:
            p.show(p.sharded)

    def write_back(self):
        """Copies the whole parameters to the shards."""
        for p in self.parameters:
            start = self.me * p.each
            raw = leaf_of(p.unsharded)._mt_data._array.reshape(p.rows, p.width)[start : start + p.length]
            mine = p.local()._mt_data
            mine._array[...] = to_device(raw.reshape(mine._array.shape), device_of(mine._array))
            mine._bump()

    # -- saved tensors -------------------------------------------------------------------------------

    def hooks(self):
        """Returns a context manager in which ops save positions in the gathered parameters instead of their memory."""
        mode = get_mode()
        outer = mode.saved_hooks

        def pack(tensor):
            raw = tensor._mt_data._array
            if raw.size:
                where = _address(raw)
                for start, stop, whole, p in self.spans:
                    if start <= where < stop and raw.dtype == whole.dtype:
                        return _Saved(p, p.version, where - start, raw.shape, raw.strides)
            return tensor if outer is None else (outer, outer[0](tensor))

        def unpack(value):
            if isinstance(value, _Saved):
                return Tensor._wrap(self._saved(value))
            return value if outer is None else value[0][1](value[1])

        return in_mode(mode.replace(saved_hooks=(pack, unpack)))

    def _saved(self, saved):
        """Returns a saved view; the parameters are gathered again if necessary."""
        if not self.unsharded:
            self.before_unpack()
            self.unshard()
        if saved.version != saved.parameter.version:
            raise InPlaceError(
                "fully_shard: one of the parameters needed for gradient computation has been modified by an inplace "
                f"operation: the shard of {saved.parameter.name} is at version {saved.parameter.version}; expected version "
                f"{saved.version} instead. Call backward before optimizer.step()."
            )
        raw = leaf_of(saved.parameter.unsharded)._mt_data._array
        if saved.offset == 0 and saved.shape == raw.shape and saved.strides == raw.strides:
            return raw
        flat = raw.reshape(-1)[saved.offset // raw.itemsize :]
        return xp_of(raw).lib.stride_tricks.as_strided(flat, saved.shape, saved.strides)

    # -- gradients -----------------------------------------------------------------------------------

    def on_gradient(self, parameter):
        """Handles the complete gradient of a parameter."""
        self.arrived.add(id(parameter))
        self.in_backward()
        if len(self.arrived) == sum(p.local().requires_grad for p in self.parameters):
            self.reduce()
            if self.reshard_after_backward and all(p.local().requires_grad for p in self.parameters):
                self.reshard()  # a frozen parameter may still be necessary for the gradient of the input

    def reduce(self):
        """Reduces the gradients of this backward pass, or keeps them without synchronization."""
        self.arrived.clear()
        if self.sync:
            self.start_reduce()
        else:
            self.keep()

    def finish_backward(self, reduces):
        """Completes a backward pass, also if it did not reach all parameters, or only passes before it did.

        Args:
            reduces: False for a pass that adds nothing to the gradients, so that the sums of earlier passes stay.
        """
        waiting = self.sync and any(
            p.accumulated is not None or (p.partial is not None and self.all_reduce) for p in self.parameters
        )
        if self.arrived or (waiting and reduces):
            self.reduce()
        self.wait()
        if self.reshard_after_backward:
            self.reshard()

    def keep(self):
        """Adds the gradients of a pass without synchronization to the accumulated gradients."""
        wanted = self.policy.reduce_dtype
        for p in self.parameters:
            g = self._take(p)
            if g is None:
                continue
            g = g if wanted is None or g.dtype == wanted.numpy else g.astype(wanted.numpy)
            if p.accumulated is None:
                p.accumulated = g
            else:
                p.accumulated += g

    @staticmethod
    def _take(p):
        """Returns the raw gradient of the unsharded parameter and clears it, or None."""
        if p.unsharded is None:
            return None
        leaf = leaf_of(p.unsharded)
        edge = leaf._mt_edge
        grad = None if edge is None else edge.grad
        if grad is None:
            return None
        edge.grad = None
        return (grad._mt_data if isinstance(grad, Tensor) else grad)._array

    def start_reduce(self):
        """Starts to reduce the gradients."""
        self.wait()
        pending: dict[Any, list] = {}
        for p in self.parameters:
            if not p.local().requires_grad:
                continue
            g, p_sum = self._take(p), p.accumulated
            p.accumulated = None
            if g is not None and p_sum is not None:
                g = p_sum + g.astype(p_sum.dtype)
            elif g is None:
                g = p_sum
            wanted = self.policy.reduce_dtype
            dtype = wanted.numpy if wanted is not None else self._dtype(p) if g is None else g.dtype
            pending.setdefault(dtype, []).append((p, g))
        self.reducing = []
        for dtype, members in pending.items():
            xp, there = on(members[0][0].device)
            with there:
                total = sum(p.each * p.width for p, _ in members)
                # The last numbers show all processes which parameters have a gradient. A parameter that no process
                # used keeps its gradient: zeros would let an optimizer decay it.
                send = xp.zeros((self.size, total + len(members)), dtype)
                start = 0
                for i, (p, g) in enumerate(members):
                    if g is not None:
                        self._copy_in(send[:, start : start + p.each * p.width], p, g)
                        send[:, total + i] = 1
                    start += p.each * p.width
                out = xp.empty(total + len(members), dtype) if self.size > 1 else send.reshape(-1)
            world = self.size * (1 if self.replicate_mesh is None else self.replicate_mesh.size())
            factor = world if self.divide is None else self.divide
            work = None
            if self.size > 1:
                # Divide first, to keep 16-bit sums in range; NCCL averages by itself.
                native = self.group.engine.averages and factor == self.size
                if not native:
                    send *= send.dtype.type(1 / factor)
                op = ReduceOp.AVG if native else ReduceOp.SUM
                work = collectives.reduce_scatter_tensor(
                    Tensor._wrap(out), Tensor._wrap(send), op, self.group, async_op=True
                )
            elif factor != 1:
                out *= out.dtype.type(1 / factor)
            self.reducing.append((work, out, [(p, g is not None) for p, g in members]))
        self.on_reduced()

    def _copy_in(self, target, p, g):
        """Copies a gradient to the rows of all ranks in the buffer of a reduction."""
        rows = g.reshape(p.rows, p.width)
        if not p.each * p.width:
            return
        whole = p.rows // p.each
        if whole:
            target[:whole].reshape(whole, p.each, p.width)[...] = rows[: whole * p.each].reshape(whole, p.each, p.width)
        rest = p.rows - whole * p.each
        if rest:
            target[whole, : rest * p.width] = rows[whole * p.each :].reshape(-1)

    def wait(self):
        """Waits for the reduction, and adds the result to the gradients of the shards."""
        reducing, self.reducing = self.reducing, None
        for work, out, members in reducing or ():
            if work is not None:
                work.wait()
            copies = self.replicate_mesh
            complete = copies is None or self.all_reduce
            used, parts, start = out[-len(members) :], [], 0
            for i, (p, _) in enumerate(members):
                part = out[start : start + math.prod(p.local().shape)]
                parts.append(part)
                start += p.each * p.width
                if p.partial is not None:
                    part += p.partial[0]
                    used[i] += p.partial[1]
                p.partial = None if complete else (part.copy(), used[i].copy())
            if not complete:
                continue
            if copies is not None and copies.size() > 1:
                collectives.all_reduce(Tensor._wrap(out), ReduceOp.SUM, copies.get_group())
            # A backward pass from the shards calls their hooks, and adds the gradients to `.grad`.
            roots = []
            for i, ((p, used_here), part) in enumerate(zip(members, parts, strict=True)):
                raw = p.local()._mt_data._array
                if used_here or bool(used[i]):  # on a GPU, reading the number waits, so only if necessary
                    roots.append((p.local()._mt_edge, to_device(part.reshape(raw.shape), device_of(raw))))
            walk.run(roots[::-1])


def _address(raw):
    """Returns the address of the first element of a raw array."""
    return raw.__array_interface__["data"][0] if isinstance(raw, np.ndarray) else raw.data.ptr
