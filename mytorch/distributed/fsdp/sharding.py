"""fully_shard: parameters, gradients and optimizer state are divided over processes, module by module (FSDP2, ZeRO-3)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.parameter import Parameter
from ...arrays.tensor import Tensor
from ...autograd import walk
from ...autograd.mode import get_mode
from ...nn.module import Module
from ...nn.parameter import is_lazy
from ...utils._pytree import tree_map_only
from ..device_mesh import DeviceMesh, init_device_mesh
from ..objects import all_gather_bytes, decode, encode
from ..process_group import default_group, is_initialized
from ..reducer import _tensors
from .parameters import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, ParameterGroup


class _Context:
    """The data that all sharded modules below one root share.

    Attributes:
        states: the states of all sharded modules.
        order: the states in the order of the last forward, for prefetching in backward.
        reducing: the group that reduces its gradients.
    """

    def __init__(self):
        self.states, self.order = [], []
        self.reducing = None
        self.walk = None  # the backward pass that calls `finish`

    def reduced(self, group):
        """Waits for the reduction before the one that has just started, so that two buffers exist at most."""
        before, self.reducing = self.reducing, group
        if before is not None and before is not group:
            before.wait()

    def in_backward(self):
        """Calls `finish` at the end of the current backward pass."""
        current = walk.outermost_walk()  # a reentrant checkpoint runs a backward pass inside of backward
        if current is not None and self.walk is not current:
            self.walk = current
            current.callbacks.append(self.finish)

    def finish(self):
        """Completes a backward pass. A pass of `autograd.grad` adds nothing to gradients, so it reduces none."""
        reduces = self.walk.leaves
        self.walk = self.reducing = None
        for state in self.states:
            state.finish_backward(reduces)
        self.order.clear()


class _State:
    """The state of one sharded module, or of several modules with one group of parameters."""

    def __init__(self, modules, group, reshard_after_forward, policy):
        self.modules, self.group, self.policy = modules, group, policy
        self.waiting: set[Any] = set()  # modules whose forward is missing since the parameters were gathered
        self.reshard_after_forward = reshard_after_forward  # None: True, except in the root
        self.context = None
        self.is_root = False
        self.forward_prefetch: list[_State] = []
        self.backward_prefetch: list[_State] | None = None
        self.in_backward = False

    def ensure_context(self):
        """Creates the context in the first forward: the first module that runs is the root."""
        if self.context is not None:
            return
        self.is_root = True
        context = _Context()
        for module in (part for top in self.modules for part in top.modules()):
            if isinstance(module, FSDPModule):
                state = module._fsdp_state
                if state.context is not None and state is not self:
                    old = state.context
                    context.states += [s for s in old.states if s not in context.states]
                state.context = context
                state.is_root = state is self
                if state not in context.states:
                    context.states.append(state)
                if state.group is not None:
                    state.group.on_reduced = lambda group=state.group, c=context: c.reduced(group)
                    state.group.in_backward = context.in_backward
                    state.group.before_unpack = state.before_backward

    def cast_inputs(self, args, kwargs):
        """Casts floating point inputs to the dtype of the computation."""
        dtype = self.policy.param_dtype
        if dtype is None or not self.policy.cast_forward_inputs:
            return args, kwargs
        return tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, (args, kwargs))

    def before_forward(self):
        """Gathers the parameters, and starts to gather the ones to prefetch."""
        self.ensure_context()
        if not self.waiting:
            self.waiting.update(self.modules)
        if self.group is not None:
            self.group.unshard()
        for state in self.forward_prefetch:
            if state.group is not None:
                state.group.start_gather()

    def after_forward(self, module, out):
        """Releases the parameters after the last module, and gathers them again when backward reaches the outputs."""
        self.waiting.discard(module)
        recorded = get_mode().grad
        found = [t for t in _tensors(out) if t.requires_grad] if recorded else []
        for t in found:
            t.register_hook(self._on_output_gradient)
        if recorded and not self.in_backward and self.group is not None and self not in self.context.order[-1:]:
            self.context.order.append(self)
        keeps = self.is_root if self.reshard_after_forward is None else not self.reshard_after_forward
        if self.group is not None and not self.in_backward and not self.waiting and (not keeps or not found):
            self.group.reshard()
        if self.policy.output_dtype is not None:
            dtype = self.policy.output_dtype
            out = tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, out)
        return out

    def _on_output_gradient(self, g):
        self.before_backward()

    def before_backward(self):
        """Gathers the parameters for backward, and starts to gather the parameters of the module before."""
        self.context.in_backward()
        if self.in_backward or self.group is None:
            return
        self.in_backward = True
        self.group.unshard()
        if self.backward_prefetch is not None:
            following = self.backward_prefetch
        else:
            order = self.context.order
            i = order.index(self) if self in order else 0
            following = order[i - 1 : i] if i else []
        for state in following:
            if state.group is not None:
                state.group.start_gather()

    def finish_backward(self, reduces):
        """Completes a backward pass, for parameters that it did not reach."""
        self.in_backward = False
        self.waiting.clear()
        if self.group is not None:
            self.group.finish_backward(reduces)


class FSDPModule:
    """The class that `fully_shard` adds to the class of a module."""

    _fsdp_state: _State

    def __call__(self, *args, **kwargs):
        state = self._fsdp_state
        state.before_forward()
        args, kwargs = state.cast_inputs(args, kwargs)
        try:
            if state.group is not None and get_mode().grad:
                with state.group.hooks():
                    out = super().__call__(*args, **kwargs)  # type: ignore[misc]
            else:
                out = super().__call__(*args, **kwargs)  # type: ignore[misc]
        except BaseException:
            if state.group is not None and not state.in_backward:  # in backward, a checkpoint ends its second run early
                state.waiting.clear()
                state.group.reshard()
            raise
        return state.after_forward(self, out)

    _call_impl = _wrapped_call_impl = __call__

    def _apply(self, fn, recurse=True):
        if self._fsdp_state.group is not None:
            self._fsdp_state.group.reshard()  # the function changes the shards
        return super()._apply(fn, recurse)  # type: ignore[misc]

    def _states(self, recurse=True):
        """Returns the states of this module and of the sharded modules in it."""
        modules = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        return list(dict.fromkeys(m._fsdp_state for m in modules if isinstance(m, FSDPModule)))

    def _groups(self, recurse=True):
        return [state.group for state in self._states(recurse) if state.group is not None]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers the parameters of this module, without the parameters of sharded modules in it.

        Args:
            async_op: if True, returns a handle with `wait()` immediately (default: False).
        """
        group = self._fsdp_state.group
        if async_op:
            if group is not None:
                group.start_gather()
            return UnshardHandle(group)
        if group is not None:
            self._fsdp_state.ensure_context()
            group.unshard()
        return None

    def reshard(self) -> None:
        """Releases the gathered parameters of this module."""
        if self._fsdp_state.group is not None:
            self._fsdp_state.group.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Enables or disables the reduction of gradients, for gradient accumulation without communication.

        Args:
            requires_gradient_sync: False accumulates whole gradients in this process. The next backward with True reduces
                the sum.
            recurse: include the sharded modules in this module (default: True).
        """
        for group in self._groups(recurse):
            group.sync = bool(requires_gradient_sync)

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Enables or disables the reduction over copies in hybrid sharding.

        Args:
            requires_all_reduce: False adds the reduced shards in this process only.
            recurse: include the sharded modules in this module (default: True).
        """
        for group in self._groups(recurse):
            group.all_reduce = bool(requires_all_reduce)

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Sets `reshard_after_forward` of `fully_shard`.

        Args:
            reshard_after_forward: the new value.
            recurse: include the sharded modules in this module (default: True).
        """
        for state in self._states(recurse):
            state.reshard_after_forward = bool(reshard_after_forward)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Keeps the parameters gathered after backward, to save communication in gradient accumulation.

        Args:
            reshard_after_backward: False keeps the parameters gathered.
            recurse: include the sharded modules in this module (default: True).
        """
        for group in self._groups(recurse):
            group.reshard_after_backward = bool(reshard_after_backward)

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted for compatibility. Every backward pass completes its reductions."""

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Sets the number by which sums of gradients are divided (default: the number of processes).

        Args:
            factor: the number.
        """
        for group in self._groups():
            group.divide = float(factor)

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Sets the modules to gather during the forward of this module.

        Args:
            modules: sharded modules.
        """
        self._fsdp_state.forward_prefetch = [_state_of(m) for m in modules]

    def set_modules_to_backward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Sets the modules to gather during the backward of this module (default: the module before it in forward).

        Args:
            modules: sharded modules.
        """
        self._fsdp_state.backward_prefetch = [_state_of(m) for m in modules]


class UnshardHandle:
    """The handle of an asynchronous `unshard`; `wait()` blocks until the parameters are complete."""

    def __init__(self, group):
        self._group = group

    def wait(self) -> None:
        """Waits until the parameters are gathered."""
        if self._group is not None:
            self._group.unshard()


def _state_of(module):
    if not isinstance(module, FSDPModule):
        raise ValueError(f"fully_shard: expected modules that fully_shard was applied to, got {type(module).__name__}.")
    return module._fsdp_state


def _managed_parameters(modules, ignored):
    """Returns (name, parameter, owners) of the parameters that no inner sharded module and no other call manages."""
    found: dict[int, tuple[str, Any, list]] = {}
    visited = set()

    def visit(part, prefix):
        if part in visited:
            return
        visited.add(part)
        for key, p in part._parameters.items():
            if p is None or id(p) in ignored:
                continue
            if is_lazy(p):
                raise ValueError(
                    f"fully_shard: expected initialized parameters, got the lazy parameter {prefix}{key}. Run a forward first."
                )
            if "_sharded_in" in p.__dict__:
                raise ValueError(
                    f"fully_shard: expected tied parameters in one call, got {prefix}{key}, which is also in "
                    f"{p.__dict__['_sharded_in']}. Do not shard one of the modules separately."
                )
            found.setdefault(id(p), (prefix + key, p, []))[2].append((part, key))
        for key, child in part._modules.items():
            if child is not None and not isinstance(child, FSDPModule):
                visit(child, f"{prefix}{key}.")

    for i, module in enumerate(modules):
        visit(module, f"{i}." if len(modules) > 1 else "")
    return list(found.values())


def _check_same(members, group):
    """Compares names, shapes and dtypes over the processes.

    Raises:
        RuntimeError: on all processes; the message names the first difference.
    """
    if group.size() == 1:
        return
    mine = [[name, list(p.shape), p.dtype.name, bool(p.requires_grad)] for name, p, _ in members]
    group.enter("fully_shard: check of parameters")
    if len(set(all_gather_bytes(group.engine, hashlib.sha256(encode(mine)).digest()))) == 1:
        return
    every = [decode(content) for content in all_gather_bytes(group.engine, encode(mine))]
    for rank, other in zip(group.ranks, every, strict=True):
        for a, b in zip([*every[0], None], [*other, None], strict=False):
            if a != b:
                raise RuntimeError(
                    f"fully_shard: expected the same parameters on all ranks, got {b} on rank {rank} and {a} on rank "
                    f"{group.ranks[0]}. Create the same model on all ranks."
                )


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | None = None,
    shard_placement_fn: Callable[[Parameter], Any] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),
    offload_policy: OffloadPolicy = OffloadPolicy(),
    ignored_params: set[Parameter] | None = None,
) -> Any:
    """Shards the parameters, gradients and optimizer state of a module over processes, in place.

    Apply it to inner modules, such as the blocks of a transformer, and then to the whole model. Each call creates one
    group of parameters, which are gathered together before forward and backward. Create the optimizer afterward.

    Use it when a model, its gradients and optimizer state don't fit on one device; if they do,
    `DistributedDataParallel` sends less.

    Args:
        module: the module, or a list of modules with one group of parameters, such as the last norm and the head.
            Its class changes to a subclass with the methods of `FSDPModule`.
        mesh: mesh of one dimension, over which parameters are sharded, or of two dimensions: copies, and shards (hybrid
            sharding). By default, all processes.
        reshard_after_forward: release the parameters after forward, and gather them again in backward. By default, True
            for inner modules and False for the root.
        shard_placement_fn: must be None. Parameters are sharded along their first dimension.
        mp_policy: dtypes of computation and reduction.
        offload_policy: a `CPUOffloadPolicy` keeps the shards in host memory.
        ignored_params: parameters that are not sharded. Their gradients are not reduced.

    Returns:
        The module, or the list.

    Raises:
        TypeError: `module` is not a Module or a list of modules, or `offload_policy` is not an OffloadPolicy.
        ValueError: the module is sharded already, the mesh does not fit, or tied parameters are in several calls.
        RuntimeError: the processes have different parameters.
        NotImplementedError: `shard_placement_fn` is given.

    Source: Rajbhandari et al., ZeRO, 2020 (stage 3). Zhao et al., PyTorch FSDP, 2023.

    Example:
        >>> from mytorch.distributed.fsdp import fully_shard
        >>> mytorch.distributed.init_process_group()
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> for layer in (model[0], model[2]):
        ...     _ = fully_shard(layer)
        >>> _ = fully_shard(model)
        >>> optimizer = mytorch.optim.AdamW(model.parameters(), lr=0.1)
        >>> model(mytorch.ones(2, 4)).sum().backward()
        >>> optimizer.step()
        >>> type(model[0].weight).__name__, model[0].weight.placements
        ('DTensorParameter', (Shard(dim=0),))
        >>> mytorch.distributed.destroy_process_group()
    """
    modules = list(dict.fromkeys(module)) if isinstance(module, (list, tuple)) else [module]
    if not modules or not all(isinstance(part, Module) for part in modules):
        kinds = ", ".join(type(part).__name__ for part in modules)
        raise TypeError(f"fully_shard: expected a Module or a list of modules, got {kinds or 'an empty list'}.")
    if any(isinstance(part, FSDPModule) for part in modules):
        raise ValueError("fully_shard: expected a module that is not sharded yet, got a sharded one.")
    if shard_placement_fn is not None:
        raise NotImplementedError(
            "fully_shard: expected shard_placement_fn=None; parameters are sharded along dimension 0."
        )
    if not isinstance(offload_policy, OffloadPolicy):
        raise TypeError(f"fully_shard: expected an OffloadPolicy, got {type(offload_policy).__name__}.")
    if mesh is None:
        if not is_initialized():
            raise ValueError(
                "fully_shard: expected a process group. Call init_process_group or init_device_mesh first."
            )
        device = "cuda" if default_group().backend == "nccl" else "cpu"
        mesh = init_device_mesh(device, (default_group().size(),))
    if mesh.ndim > 2:
        raise ValueError(f"fully_shard: expected a mesh of 1 or 2 dimensions, got {mesh}. Take a sub-mesh, mesh['dp'].")
    if mesh.get_coordinate() is None:
        raise ValueError(f"fully_shard: rank {mesh.get_rank()} is not in the mesh {mesh}.")
    members = _managed_parameters(modules, {id(p) for p in ignored_params or ()})
    shard_mesh, replicate_mesh = mesh, None
    if mesh.ndim == 2:
        names = mesh.mesh_dim_names
        if names is None:
            raise ValueError("fully_shard: expected mesh_dim_names for a mesh of 2 dimensions, got None.")
        replicate_mesh, shard_mesh = mesh[names[0]], mesh[names[1]]
    _check_same(members, shard_mesh.get_group())
    group = None
    if members:
        for name, p, _ in members:
            p.__dict__["_sharded_in"] = f"{type(modules[0]).__name__} ({name})"
        offload = offload_policy if isinstance(offload_policy, CPUOffloadPolicy) else None
        pairs = [(p, owners) for _, p, owners in members]
        group = ParameterGroup(pairs, shard_mesh, replicate_mesh, mesh, mp_policy, offload)
    state = _State(modules, group, reshard_after_forward, mp_policy)
    for part in modules:
        cls = type(part)
        part.__class__ = type(
            f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__}
        )
        object.__setattr__(part, "_fsdp_state", state)
        if group is not None:
            part.register_state_dict_pre_hook(lambda *_: group.reshard())
            part._register_load_state_dict_pre_hook(lambda *_: group.reshard())
    return module


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Lets a method other than `forward` gather the parameters, such as `generate`.

    Args:
        module: the module. If it is not sharded, the call has no effect.

    Raises:
        ValueError: the module does not have the method.
    """
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"register_fsdp_forward_method: {type(module).__name__} has no method {method_name!r}.")
    method, state = getattr(module, method_name), module._fsdp_state

    def run(*args, **kwargs):
        state.before_forward()
        args, kwargs = state.cast_inputs(args, kwargs)
        if state.group is not None and get_mode().grad:
            with state.group.hooks():
                return state.after_forward(module, method(*args, **kwargs))
        return state.after_forward(module, method(*args, **kwargs))

    object.__setattr__(module, method_name, run)


__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]
