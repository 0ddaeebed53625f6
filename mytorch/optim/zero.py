"""ZeroRedundancyOptimizer: each process stores the optimizer state of some of the parameters and updates these."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from ..distributed.collectives import broadcast, gather_object
from ..distributed.process_group import ProcessGroup, is_initialized, resolve
from ..distributed.reducer import broadcast_coalesced
from ..ops.movement import cat
from .optimizer import Optimizer
from .options import Params


class ZeroRedundancyOptimizer(Optimizer):
    """Shards the state of an optimizer over the processes of a group.

    Every process updates its shard of the parameters with `optimizer_class` and broadcasts them. With n processes, each
    stores about 1/n of the state. The results equal the results of `optimizer_class` on one process.

    Args:
        params: parameters or groups, the same in all processes.
        optimizer_class: class of the optimizer, such as `mytorch.optim.AdamW`.
        process_group: the process group (default: the default group).
        parameters_as_bucket_view: if True, the parameters of each process become views of one tensor for each dtype, which is sent
            without copies (default: False).
        defaults: options of the optimizer.

    Raises:
        RuntimeError: there is no process group.

    Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020 (stage 1).
    """

    def __init__(
        self, params: Params, optimizer_class: type[Optimizer], process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any,
    ):  # fmt: skip
        if not is_initialized():
            raise RuntimeError("ZeroRedundancyOptimizer needs a process group; call init_process_group first.")
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not supported; leave it out.")
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self.process_group: Any = resolve(process_group)
        self.optimizer_class = optimizer_class
        self.optim: Any = None
        self._consolidated: dict[int, Any] | None = None
        super().__init__(params, defaults)
        self._share_out()

    def add_param_group(self, param_group: dict) -> None:
        """Adds a group and assigns its parameters to processes.

        Args:
            param_group: dict with a key "params" and any options.
        """
        super().add_param_group(param_group)
        if self.optim is not None:
            state = self.optim.state
            self._share_out()
            self.optim.state.update(state)

    def _share_out(self):
        """Assigns each parameter, the largest first, to the process with the fewest elements, and creates this process's optimizer."""
        n = self.process_group.size()
        self.owner, load = {}, [0] * n
        everything = [p for group in self.param_groups for p in group["params"]]
        for p in sorted(everything, key=lambda p: -p.numel()):
            least = load.index(min(load))
            self.owner[p] = least
            load[least] += p.numel()
        self._buckets: list = [self._join(theirs) if self.parameters_as_bucket_view else [] for theirs in self._owned()]
        me = self.process_group.rank()
        groups = [
            {**group, "params": [p for p in group["params"] if self.owner[p] == me]} for group in self.param_groups
        ]
        for group in groups:
            group.pop("param_names", None)
        self.optim = self.optimizer_class(groups, **self.defaults)
        for whole, part in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in part.items():
                whole.setdefault(name, value)

    def _copy_options(self, source, target):
        """Copies options between these groups, which a scheduler changes, and the groups of the inner optimizer."""
        for a, b in zip(source, target, strict=True):
            b.update({k: v for k, v in a.items() if k not in ("params", "param_names")})

    def step(self, closure: Callable | None = None) -> Any:
        """Updates this process's parameters and exchanges all parameters.

        Args:
            closure: function that computes the loss again and returns it (default: None).

        Returns:
            The result of the closure, or None.
        """
        self._consolidated = None
        self._copy_options(self.param_groups, self.optim.param_groups)
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self._copy_options(self.optim.param_groups, self.param_groups)
        for rank, theirs in enumerate(self._owned()):
            if not self.parameters_as_bucket_view:
                broadcast_coalesced(theirs, rank, self.process_group)
            for bucket in self._buckets[rank]:
                broadcast(bucket, group=self.process_group, group_src=rank)
            if self.parameters_as_bucket_view:
                for p in theirs:
                    p._mt_data._bump()
        return loss

    def _owned(self):
        """Returns the parameters of each process."""
        everything = [p for group in self.param_groups for p in group["params"]]
        return [[p for p in everything if self.owner[p] == rank] for rank in range(self.process_group.size())]

    def _join(self, parameters):
        """Makes the parameters views of new tensors, one for each dtype and device. Returns these tensors."""
        kinds: dict[Any, list] = {}
        for p in parameters:
            kinds.setdefault((p.dtype, p.device), []).append(p)
        buckets = []
        for same in kinds.values():
            bucket = cat([p.detach().reshape(-1) for p in same])
            for p, part in zip(same, bucket.split([p.numel() for p in same]), strict=True):
                p.data = part.view(p.shape)
            buckets.append(bucket)
        return buckets

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the whole state in one process, for its `state_dict()`. Every process must call this.

        Args:
            to: rank of the process that receives the state (default: 0).
        """
        self._copy_options(self.param_groups, self.optim.param_groups)
        number = {p: i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        mine = {str(number[p]): dict(state) for p, state in self.optim.state.items()}
        here = self.process_group.rank() == self.process_group.number_of(to)
        everyone: Any = [None] * self.process_group.size() if here else None
        gather_object(mine, everyone, dst=to, group=self.process_group)
        if here:
            self._consolidated = {int(i): state for part in everyone for i, state in part.items()}

    def state_dict(self) -> dict:
        """Returns the state dict of the whole optimizer, as `optimizer_class` would return it on one process.

        Raises:
            RuntimeError: this process has not received the state since the last step. Call `consolidate_state_dict` first.
        """
        if self._consolidated is None:
            raise RuntimeError(
                f"Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{self.process_group.ranks[self.process_group.rank()]})` on all ranks beforehand if you meant to save the "
                "global state."
            )
        packed = super().state_dict()
        return {"state": deepcopy(self._consolidated), "param_groups": packed["param_groups"]}

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads a whole state dict. Each process keeps only the state of the parameters that it updates.

        Args:
            state_dict: result of `state_dict`.
        """
        super().load_state_dict(state_dict)
        me = self.process_group.rank()
        mine = {p: state for p, state in self.state.items() if self.owner.get(p) == me}
        self.state.clear()
        self.optim.state.clear()
        self.optim.state.update(mine)
        self._copy_options(self.param_groups, self.optim.param_groups)
        self._consolidated = None


__all__ = ["ZeroRedundancyOptimizer"]
