"""ZeroRedundancyOptimizer: each process keeps the optimizer state of its share of the parameters, and updates those."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from ..distributed.collectives import gather_object
from ..distributed.process_group import ProcessGroup, is_initialized, resolve
from ..distributed.reducer import broadcast_coalesced
from .optimizer import Optimizer
from .options import Params


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose state is spread over the processes of a group.

    Every process updates the parameters that are its own, by `optimizer_class`, and gives them to the others. With
    n processes each holds about 1/n of the state; results equal those of the optimizer itself.

    Args:
        params: parameters or groups, the same in all processes.
        optimizer_class: such as `mytorch.optim.AdamW`.
        process_group: the default group if None.
        defaults: arguments of the optimizer.

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
        if overlap_with_ddp or parameters_as_bucket_view:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp and parameters_as_bucket_view are not supported; leave them out."
            )
        self.process_group: Any = resolve(process_group)
        self.optimizer_class = optimizer_class
        self.optim: Any = None
        self._consolidated: dict[int, Any] | None = None
        super().__init__(params, defaults)
        self._share_out()

    def add_param_group(self, param_group: dict) -> None:
        """Add a group, and share its parameters out."""
        super().add_param_group(param_group)
        if self.optim is not None:
            state = self.optim.state
            self._share_out()
            self.optim.state.update(state)

    def _share_out(self):
        """Give each parameter, the largest first, to the process that has least; make the optimizer of this one's."""
        n = self.process_group.size()
        self.owner, load = {}, [0] * n
        everything = [p for group in self.param_groups for p in group["params"]]
        for p in sorted(everything, key=lambda p: -p.numel()):
            least = load.index(min(load))
            self.owner[p] = least
            load[least] += p.numel()
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
        """A schedule changes the options of these groups; the inner optimizer's follow, and the other way round."""
        for a, b in zip(source, target, strict=True):
            b.update({k: v for k, v in a.items() if k not in ("params", "param_names")})

    def step(self, closure: Callable | None = None) -> Any:
        """Update this process's parameters and exchange; returns the closure's value."""
        self._consolidated = None
        self._copy_options(self.param_groups, self.optim.param_groups)
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self._copy_options(self.optim.param_groups, self.param_groups)
        for rank in range(self.process_group.size()):
            theirs = [p for group in self.param_groups for p in group["params"] if self.owner[p] == rank]
            if theirs:
                broadcast_coalesced(theirs, rank, self.process_group)
        return loss

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gather the whole state in process `to`, for its `state_dict()`; every process calls it."""
        self._copy_options(self.param_groups, self.optim.param_groups)
        number = {p: i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        mine = {str(number[p]): dict(state) for p, state in self.optim.state.items()}
        here = self.process_group.rank() == self.process_group.number_of(to)
        everyone: Any = [None] * self.process_group.size() if here else None
        gather_object(mine, everyone, dst=to, group=self.process_group)
        if here:
            self._consolidated = {int(i): state for part in everyone for i, state in part.items()}

    def state_dict(self) -> dict:
        """The state dict of the whole optimizer, as `optimizer_class` alone would give it.

        Raises:
            RuntimeError: in processes where `consolidate_state_dict` did not gather it since the last step.
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
        """Take over a whole state dict; each process keeps the state of its own parameters."""
        super().load_state_dict(state_dict)
        me = self.process_group.rank()
        mine = {p: state for p, state in self.state.items() if self.owner.get(p) == me}
        self.state.clear()
        self.optim.state.clear()
        self.optim.state.update(mine)
        self._copy_options(self.param_groups, self.optim.param_groups)
        self._consolidated = None


__all__ = ["ZeroRedundancyOptimizer"]
