"""FullyShardedDataParallelPlugin: sharded models in the Accelerator, `Accelerator(fsdp=True)`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...accelerate import training_state
from ...amp import GradScaler
from ...arrays.array import Array
from ...arrays.tensor import Tensor
from ...files.serialization import save_state_dict
from ...nn.containers import ModuleList
from ...nn.module import Module
from ...optim.optimizer import Optimizer
from ..checkpoint.saving import INDEX, _announced, _planned, _verified, _World, read_index
from ..checkpoint.state_dict import (
    StateDictOptions,
    _as_dtensor,
    _local,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from ..device_mesh import DeviceMesh, init_device_mesh
from ..process_group import resolve
from ..reducer import broadcast_coalesced
from ..tensor.dtensor import DTensor
from .grad_scaler import ShardedGradScaler
from .parameters import MixedPrecisionPolicy
from .sharding import fully_shard
from .wrap import ModuleWrapPolicy, selected

TIMEOUT = 1800.0  # seconds that `save_state` waits for the parts of the other processes


@contextlib.contextmanager
def _without_parts(accelerator):
    """Lets the Accelerator save or load everything except the models and the optimizers."""
    models, optimizers = accelerator._models, accelerator._optimizers
    accelerator._models, accelerator._optimizers = [], []
    try:
        yield
    finally:
        accelerator._models, accelerator._optimizers = models, optimizers


class _Synchronization:
    """The part of a Reducer that the Accelerator uses, for a sharded model."""

    def __init__(self, model):
        self.model = model

    @property
    def sync(self):
        """True if the next backward reduces the gradients."""
        return self.model._fsdp_state.group.sync

    @sync.setter
    def sync(self, value):
        self.model.set_requires_gradient_sync(value)

    def remove(self):
        """Does nothing; a model stays sharded."""


class FullyShardedDataParallelPlugin:
    """Shards the models of an Accelerator with `fully_shard`.

    Args:
        modules: classes of submodules that are sharded separately, or their names (default: the items of each
            `nn.ModuleList`, such as the blocks of a transformer).
        reshard_after_forward: release parameters after forward (default: True, except in the root).
        mp_policy: dtypes of the gathered parameters and of the reduction (default: the original dtypes; autocast of the
            Accelerator applies to the computation).
        mesh: the processes (default: all).
        state_dict_type: form of the checkpoints of `save_state`. With "SHARDED_STATE_DICT" (default), each process writes its
            parts. With "FULL_STATE_DICT", the first process gathers and writes whole tensors, which an Accelerator without
            `fsdp` can load. `load_state` accepts both forms.

    Raises:
        ValueError: `state_dict_type` is another value.
    """

    def __init__(
        self,
        modules: Iterable[type[Module] | str] | None = None,
        reshard_after_forward: bool | None = None,
        mp_policy: MixedPrecisionPolicy | None = None,
        mesh: DeviceMesh | None = None,
        state_dict_type: str = "SHARDED_STATE_DICT",
    ):
        if state_dict_type not in ("SHARDED_STATE_DICT", "FULL_STATE_DICT"):
            raise ValueError(
                "FullyShardedDataParallelPlugin: expected state_dict_type 'SHARDED_STATE_DICT' or 'FULL_STATE_DICT', got "
                f"{state_dict_type!r}."
            )
        self.state_dict_type = state_dict_type
        self.modules = None if modules is None else list(modules)
        self.reshard_after_forward, self.mp_policy = reshard_after_forward, mp_policy or MixedPrecisionPolicy()
        self.mesh = mesh
        self.replaced: dict[int, tuple] = {}  # id of a parameter -> (the parameter, the sharded parameter)
        self.snapshots: dict[int, dict] = {}  # id of a model or optimizer -> its whole state, on the first process

    @staticmethod
    def drop_gradients(models: Iterable[Module]) -> None:
        """Forgets the gradients of an incomplete step, which are not reduced yet.

        Args:
            models: the sharded models.
        """
        for model in models:
            for group in getattr(model, "_groups", list)():
                for parameter in group.parameters:
                    parameter.accumulated = parameter.partial = None

    def prepare(self, accelerator: Any, objects: Iterable[Any]) -> None:
        """Shards models, and replaces the parameters of their optimizers. One process only loads sharded checkpoints.

        Args:
            objects: arguments of `Accelerator.prepare`.

        Raises:
            ValueError: an optimizer has parameters of no model, or has already made steps.
        """
        if "load_state" not in accelerator.__dict__:
            self._extend(accelerator, accelerator.num_processes > 1)
        if accelerator.num_processes == 1:
            return
        for model in objects:
            if isinstance(model, Module) and not hasattr(model, "_fsdp_state"):
                self._shard(accelerator, model)
        for optimizer in objects:
            inner = getattr(optimizer, "optimizer", optimizer)
            if isinstance(inner, Optimizer) and "consolidated" not in inner.__dict__:
                self._replace(inner)
        if accelerator.scaler is not None and type(accelerator.scaler) is GradScaler:
            scaler = ShardedGradScaler(accelerator.device.type)
            scaler.__dict__.update({k: v for k, v in accelerator.scaler.__dict__.items() if k != "_group"})
            accelerator.scaler = scaler

    def _shard(self, accelerator, model):
        model.to(accelerator.device)
        mesh = self.mesh
        if mesh is None:
            mesh = init_device_mesh("cpu" if accelerator.device.type == "cpu" else "cuda", (accelerator.num_processes,))
        broadcast_coalesced([*model.parameters(), *model.buffers()], 0, resolve(None))
        before = dict(model.named_parameters())
        policy = None
        if self.modules is not None:
            names = {m for m in self.modules if isinstance(m, str)}
            named = [type(m) for m in model.modules() if type(m).__name__ in names]
            missing = names - {cls.__name__ for cls in named}
            if missing:
                raise ValueError(f"Accelerator(fsdp): expected names of classes in the model, got {sorted(missing)}.")
            policy = ModuleWrapPolicy([*named, *(m for m in self.modules if not isinstance(m, str))])
        options: dict[str, Any] = {
            "mesh": mesh, "reshard_after_forward": self.reshard_after_forward, "mp_policy": self.mp_policy,
        }  # fmt: skip
        for part in selected(model, policy):
            fully_shard(part, **options)
        fully_shard(model, **options)
        after = dict(model.named_parameters())
        for name, p in before.items():
            self.replaced[id(p)] = p, after[name]
        accelerator._reducers[id(model)] = _Synchronization(model)

    def _replace(self, optimizer):
        """Gives an optimizer the sharded parameters, and state dicts of whole tensors."""
        if optimizer.state:
            raise ValueError("Accelerator(fsdp): expected a new optimizer, got one that has made steps.")
        for group in optimizer.param_groups:
            for i, p in enumerate(group["params"]):
                if id(p) in self.replaced:
                    group["params"][i] = self.replaced[id(p)][1]
                elif not isinstance(p, DTensor):
                    raise ValueError(
                        "Accelerator(fsdp): expected parameters of prepared models in the optimizer, got another one. Prepare the "
                        "model before or together with its optimizer."
                    )
        state_dict, load_state_dict = optimizer.state_dict, optimizer.load_state_dict
        params = [p for group in optimizer.param_groups for p in group["params"]]

        def whole_state():
            return self.snapshots.get(id(optimizer)) or state_dict()

        def load_whole_state(state):
            state = dict(state)
            state["state"] = {
                key: {name: _local(value, params[int(key)]) for name, value in values.items()}
                for key, values in state["state"].items()
            }
            load_state_dict(state)

        optimizer.state_dict, optimizer.load_state_dict = whole_state, load_whole_state
        optimizer.__dict__["consolidated"] = lambda keep: _whole_state(state_dict(), params, keep)

    def _extend(self, accelerator, several):
        """Replaces the methods that save and load; for one process, only `load_state`."""
        save_state, load_state = accelerator.save_state, accelerator.load_state

        def gathered_save_state(*args, **kwargs):
            main = bool(accelerator.is_main_process)
            for model in accelerator._models:
                self.snapshots[id(model)] = self.full(model)
            for optimizer in accelerator._optimizers:
                inner = getattr(optimizer, "optimizer", optimizer)
                self.snapshots[id(inner)] = inner.consolidated(main)
            try:
                return save_state(*args, **kwargs)
            finally:
                self.snapshots.clear()

        def sharded_save_state(output_dir, save_model_only=False, total_limit=None):
            path, world = Path(output_dir).absolute(), _World(None, False)
            accelerator.print(f"Saving Checkpoint to {output_dir}")
            plan = _planned(self._parts(accelerator, save_model_only), world, copy=False)
            ranks = None if save_model_only else training_state.collect(accelerator)

            def finish(folder):
                plan.finish(folder, world.size, TIMEOUT)
                with _without_parts(accelerator):
                    training_state.write_state(accelerator, folder, ranks)

            world.together("save_state", _announced(path, world, plan.write, finish, training_state._OURS.fullmatch))
            limit = accelerator.total_limit if total_limit is None else total_limit
            if limit is not None and accelerator.is_main_process:
                training_state.keep_newest(path, limit)
            accelerator.wait_for_everyone()
            return Path(output_dir)

        def load_either_state(input_dir):
            path, world = Path(input_dir).absolute(), _World(None, False)
            training_state.recover(path)
            if not (path / INDEX).is_file():
                load_state(input_dir)
                return
            names = read_index(path)["tensors"]
            model_only = training_state.read_manifest(path).get("model_only", False)
            state = self._parts(accelerator, model_only, names)
            fill = _verified(state, path, world)
            with _without_parts(accelerator):
                world.together("load_state", lambda: load_state(input_dir))
            fill()
            models = accelerator._models
            for optimizer, saved in zip(accelerator._optimizers, state.get("optimizers", {}).values(), strict=False):
                set_optimizer_state_dict(ModuleList(models), getattr(optimizer, "optimizer", optimizer), saved)
            accelerator.wait_for_everyone()

        def replace_weights(models, weights, directory):
            weights[:] = [self.snapshots[id(model)] for model in models]

        def save_model(model, save_directory):
            state = self.full(model)
            if accelerator.is_main_process:
                Path(save_directory).mkdir(parents=True, exist_ok=True)
                save_state_dict(state, Path(save_directory) / "model.safetensors")

        accelerator.load_state = load_either_state
        if not several:
            return
        accelerator._save_hooks.insert(0, replace_weights)
        whole = self.state_dict_type == "FULL_STATE_DICT"
        accelerator.save_state = gathered_save_state if whole else sharded_save_state
        accelerator.save_model = save_model
        accelerator.get_state_dict = self.full

    @staticmethod
    def _parts(accelerator, model_only, saved=None):
        """Returns the state of models and optimizers, of DTensors; with `saved`, only optimizers with a state of these names."""
        models = ModuleList(accelerator._models)
        state: dict[str, Any] = {"models": get_model_state_dict(models)}
        if model_only:
            return state
        optimizers = state["optimizers"] = {}
        for i, optimizer in enumerate(accelerator._optimizers):
            inner = getattr(optimizer, "optimizer", optimizer)
            new = not inner.state if saved is None else not any(n.startswith(f"optimizers.{i}.state.") for n in saved)
            optimizers[str(i)] = found = get_optimizer_state_dict(models, inner)
            if new:
                found["state"] = {}
        return state

    @staticmethod
    def full(model: Module) -> dict[str, Any]:
        """Returns the whole state dict of a model on the first process, and an empty dict on the others."""
        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def _whole_state(state, params, keep):
    """Returns a state dict of an optimizer with whole tensors; empty if `keep` is False. All processes call it."""
    out: dict[Any, dict] = {}
    for key, values in state["state"].items():
        entry = out[key] = {}
        for name, value in values.items():
            value = _as_dtensor(value, params[int(key)])
            if isinstance(value, DTensor):
                value = value.full_tensor().detach().to("cpu")
            entry[name] = Tensor._of(value) if isinstance(value, Array) else value
            if not keep:
                entry.clear()
    return {"state": out, "param_groups": state["param_groups"]}


__all__ = ["FullyShardedDataParallelPlugin"]
