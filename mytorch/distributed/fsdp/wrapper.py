"""FullyShardedDataParallel: the older interface of sharded models, a module around `fully_shard`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ...arrays.config import temporarily
from ...arrays.tensor import Tensor
from ...autograd.mode import no_grad
from ...nn.module import Module
from ...nn.utils import clip_grad_norm_
from ...utils._pytree import tree_map_only
from ..checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from ..device_mesh import DeviceMesh
from ..process_group import Group, member_of
from ..reducer import broadcast_coalesced
from .parameters import MixedPrecisionPolicy
from .sharding import FSDPModule, fully_shard
from .wrap import selected


class ShardingStrategy(Enum):
    """The tensors that FullyShardedDataParallel shards."""

    FULL_SHARD = "parameters are released after forward and after backward"
    SHARD_GRAD_OP = "parameters are released after backward"
    NO_SHARD = "not supported; use DistributedDataParallel"
    HYBRID_SHARD = "FULL_SHARD in the second dimension of the mesh, copies in the first"


class BackwardPrefetch(Enum):
    """The time at which backward gathers the parameters of the next module. Both values gather before its backward."""

    BACKWARD_PRE = "before the backward of the current module"
    BACKWARD_POST = "after the backward of the current module"


class StateDictType(Enum):
    """The form of state dicts of FullyShardedDataParallel."""

    FULL_STATE_DICT = "whole tensors"
    SHARDED_STATE_DICT = "DTensors"


@dataclass
class FullStateDictConfig:
    """Options of FULL_STATE_DICT.

    Attributes:
        offload_to_cpu: copy the tensors to the CPU (default: False).
        rank0_only: only the first process receives the tensors (default: False).
    """

    offload_to_cpu: bool = False
    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig:
    """Options of SHARDED_STATE_DICT.

    Attributes:
        offload_to_cpu: copy the local tensors to the CPU (default: False).
    """

    offload_to_cpu: bool = False


class MixedPrecision(NamedTuple):
    """The dtypes of FullyShardedDataParallel.

    Attributes:
        param_dtype: dtype of the gathered parameters and of the computation.
        reduce_dtype: dtype of gradients in the reduction (default: `param_dtype`).
        buffer_dtype: dtype of floating point buffers.
        cast_forward_inputs: cast the inputs of submodules (default: False).
        cast_root_forward_inputs: cast the inputs of the model (default: True).
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True


class FullyShardedDataParallel(Module):
    """Shards a model over the processes of a group, as `fully_shard` does, which new programs should use.

    Args:
        module: the model.
        process_group: the processes (default: all).
        sharding_strategy: a ShardingStrategy (default: FULL_SHARD).
        cpu_offload: must be None.
        auto_wrap_policy: policy of `fsdp.wrap` that selects submodules with separate groups of parameters (default: one
            group).
        backward_prefetch: accepted for compatibility. The next parameters are gathered before the current backward.
        mixed_precision: a MixedPrecision.
        device_id: accepted for compatibility. Move the model to its device first.
        sync_module_states: the first process sends its parameters and buffers to the others (default: False).
        forward_prefetch: gather the next parameters before the current forward (default: False).
        use_orig_params: accepted for compatibility; the names of parameters are always the original ones.
        device_mesh: mesh of one dimension, or of two for HYBRID_SHARD.

    Raises:
        NotImplementedError: NO_SHARD or `cpu_offload`.
        ValueError: HYBRID_SHARD without a mesh of two dimensions.

    Example:
        >>> from mytorch.distributed.fsdp import FullyShardedDataParallel
        >>> mytorch.distributed.init_process_group()
        >>> model = FullyShardedDataParallel(nn.Linear(3, 2))
        >>> model(mytorch.ones(4, 3)).sum().backward()
        >>> tuple(model.state_dict()["weight"].shape)
        (2, 3)
        >>> mytorch.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        process_group: Group = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: Any = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        use_orig_params: bool = True,
        device_mesh: DeviceMesh | None = None,
    ):
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        if strategy is ShardingStrategy.NO_SHARD or cpu_offload is not None:
            raise NotImplementedError(
                "FullyShardedDataParallel: expected a sharding strategy and cpu_offload=None. Use DistributedDataParallel for "
                "NO_SHARD."
            )
        if strategy is ShardingStrategy.HYBRID_SHARD and (device_mesh is None or device_mesh.ndim != 2):
            raise ValueError("FullyShardedDataParallel: expected a device_mesh of 2 dimensions for HYBRID_SHARD.")
        if device_mesh is None:
            group = member_of(process_group)
            device_mesh = DeviceMesh.from_group(group, "cuda" if group.backend == "nccl" else "cpu")
        if sync_module_states:
            for i in range(device_mesh.ndim):
                broadcast_coalesced([*module.parameters(), *module.buffers()], 0, device_mesh.get_group(i))
        mixed = mixed_precision or MixedPrecision()
        if mixed.buffer_dtype is not None:
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.to(mixed.buffer_dtype)._mt_data
        policy = MixedPrecisionPolicy(
            mixed.param_dtype, mixed.reduce_dtype or mixed.param_dtype, None, mixed.cast_forward_inputs
        )
        parts = [] if auto_wrap_policy is None else selected(module, auto_wrap_policy)
        options: dict[str, Any] = {"mesh": device_mesh}
        if strategy is ShardingStrategy.SHARD_GRAD_OP:
            options["reshard_after_forward"] = False
        for part in parts:
            fully_shard(part, mp_policy=policy, **options)
        root = policy._replace(cast_forward_inputs=mixed.cast_root_forward_inputs)
        self.module = fully_shard(module, mp_policy=root, **options)
        if forward_prefetch:
            for before, after in zip([self.module, *parts], parts, strict=False):
                before.set_modules_to_forward_prefetch([after])
        self.__dict__["_kind"], self.__dict__["_config"] = StateDictType.FULL_STATE_DICT, FullStateDictConfig()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Any:
        """Yields (name, parameter) with the names of the model.

        Args:
            prefix: text before each name (default: "").
            recurse: include submodules (default: True).
            remove_duplicate: yield a shared parameter only once (default: True).
        """
        return self.module.named_parameters(prefix, recurse, remove_duplicate)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients without communication in a `with` block. The next backward outside reduces the sum."""
        groups = list(self.module._groups())
        before = [group.sync for group in groups]  # a block can be in another one
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            for group, sync in zip(groups, before, strict=True):
                group.sync = sync

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Scales the gradients so that their norm over all processes is at most `max_norm`. Returns the norm.

        Args:
            max_norm: largest norm.
            norm_type: order of the norm (default: 2).
        """
        return clip_grad_norm_(self.module.parameters(), max_norm, norm_type)

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False
    ) -> Iterator[None]:
        """Gathers the parameters in a `with` block.

        Args:
            module: the model.
            recurse: include submodules (default: True).
            writeback: keep changes of the parameters (default: True).
            rank0_only: accepted for compatibility; all processes gather the parameters.
        """
        modules = list(module.modules()) if recurse else [module, getattr(module, "module", module)]
        states = dict.fromkeys(m._fsdp_state for m in modules if isinstance(m, FSDPModule))
        groups = [state.group for state in states if state.group is not None]
        for group in groups:
            group.unshard()
        try:
            yield
        finally:
            with no_grad():
                for group in groups:
                    if writeback:
                        group.write_back()
                    group.reshard()

    # -- state dicts -------------------------------------------------------------------------------

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> None:
        """Sets the form of `state_dict` and `load_state_dict`.

        Args:
            module: the FullyShardedDataParallel.
            state_dict_type: a StateDictType (default: FULL_STATE_DICT).
            state_dict_config: a FullStateDictConfig or ShardedStateDictConfig.
            optim_state_dict_config: accepted for compatibility; `state_dict_config` applies.
        """
        module.__dict__["_kind"], module.__dict__["_config"] = state_dict_type, state_dict_config

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> Iterator[None]:
        """Sets the form of `state_dict` and `load_state_dict` in a `with` block.

        Args:
            module: the FullyShardedDataParallel.
            state_dict_type: a StateDictType.
            state_dict_config: a FullStateDictConfig or ShardedStateDictConfig.
            optim_state_dict_config: accepted for compatibility; `state_dict_config` applies.
        """
        with temporarily(module, _kind=state_dict_type, _config=state_dict_config):
            yield

    def _states(self, get, *args):
        """Returns what a function of `checkpoint.state_dict` returns in the form of `set_state_dict_type`."""
        full, config = self._kind is StateDictType.FULL_STATE_DICT, self._config
        offload = bool(config and config.offload_to_cpu)
        first_only = full and getattr(config, "rank0_only", False)
        states = get(
            *args, options=StateDictOptions(full_state_dict=full, cpu_offload=first_only or (offload and not full))
        )
        return tree_map_only(Tensor, lambda t: t.to("cpu"), states) if full and offload else states

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Returns the state dict of the model in the form of `set_state_dict_type`. All processes call it."""
        return self._states(get_model_state_dict, self.module)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Loads whole tensors or DTensors. All processes call it.

        Args:
            state_dict: result of `state_dict`.
            strict: raise an error for missing and unexpected names (default: True).
            assign: must be False.
        """
        if assign:
            raise NotImplementedError("FullyShardedDataParallel.load_state_dict: expected assign=False, got True.")
        return set_model_state_dict(self.module, state_dict, options=StateDictOptions(strict=strict))

    @staticmethod
    def optim_state_dict(model: Any, optim: Any, optim_state_dict: Any = None, group: Group = None) -> dict[str, Any]:
        """Returns the state of an optimizer by parameter name, in the form of `set_state_dict_type`.

        Args:
            model: the FullyShardedDataParallel.
            optim: the optimizer.
            optim_state_dict: must be None.
            group: must be None.

        Raises:
            NotImplementedError: `optim_state_dict` or `group` is given.
        """
        if optim_state_dict is not None or group is not None:
            raise NotImplementedError(
                "FullyShardedDataParallel.optim_state_dict: expected optim_state_dict=None and group=None. The state is the one "
                "of the optimizer, in the group of the model."
            )
        return model._states(get_optimizer_state_dict, model.module, optim)

    @staticmethod
    def optim_state_dict_to_load(model: Any, optim: Any, optim_state_dict: dict[str, Any], **kwargs: Any) -> dict:
        """Converts a result of `optim_state_dict` to the argument of `optim.load_state_dict`.

        Args:
            model: the FullyShardedDataParallel.
            optim: the optimizer.
            kwargs: accepted for compatibility.
        """
        set_optimizer_state_dict(model.module, optim, optim_state_dict)
        return optim.state_dict()


__all__ = [
    "BackwardPrefetch", "FullStateDictConfig", "FullyShardedDataParallel", "MixedPrecision", "ShardedStateDictConfig",
    "ShardingStrategy", "StateDictType",
]  # fmt: skip
