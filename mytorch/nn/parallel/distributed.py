"""DistributedDataParallel: every process computes on its own data, and gradients are averaged while backward runs."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..._tensor import Tensor
from ...base.config import temporarily
from ...base.pytree import tree_map_only
from ...distributed.process_group import ProcessGroup, resolve
from ...distributed.reducer import MB, GradBucket, replicate
from ...distributed.work import Future
from ..module import Module


class DistributedDataParallel(Module):
    """A module whose gradients are averaged over the processes of a group during backward.

    At the start all processes must hold the same parameters by name, shape and dtype; process 0's values are given to
    all. Afterwards each process works on its own part of the data; equal gradients keep the parameters equal.

    Args:
        module: the model, on its device.
        device_ids: the one GPU it is on, to which inputs are moved.
        broadcast_buffers: give process 0's buffers (running means) to all before each forward that counts.
        init_sync: check and broadcast at the start.
        process_group: the default group if None.
        bucket_cap_mb: size of a bucket in MB; 25 if None.
        find_unused_parameters: for models that do not use all parameters in each step; costs a walk of the
            graph. Parameters that no process used keep their gradient as it was.
        gradient_as_bucket_view: `p.grad` is a view of its bucket; False gives it memory of its own.
        static_graph: accepted; unused parameters are looked for, as find_unused_parameters does.

    Raises:
        RuntimeError: no parameter requires a gradient, or the processes hold different parameters.
    """

    def __init__(
        self, module: Module, device_ids: Sequence | None = None, output_device: Any = None, dim: int = 0,
        broadcast_buffers: bool = True, init_sync: bool = True, process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = True, static_graph: bool = False,
    ):  # fmt: skip
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(
                f"DistributedDataParallel: one process drives one device; device_ids is {list(device_ids)}."
            )
        if output_device is not None and (not device_ids or output_device != device_ids[0]):
            raise ValueError("DistributedDataParallel: outputs stay where the module is; leave output_device out.")
        if bucket_cap_mb is not None and not bucket_cap_mb > 0:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb is {bucket_cap_mb}; expected a positive number.")
        first = next((p for p in module.parameters() if p.requires_grad), None)
        if first is None:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient."
            )
        self.module = module
        self.dim = dim
        self.device = first.device
        self.device_ids = None if device_ids is None else list(device_ids)
        self.process_group = resolve(process_group)
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * MB)
        self.require_backward_grad_sync = True
        self.reducer = replicate(
            module,
            self.process_group,
            init_sync=init_sync,
            cap_bytes=self.bucket_bytes_cap,
            find_unused=find_unused_parameters or static_graph,
            views=gradient_as_bucket_view,
            buffers=broadcast_buffers,
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's forward."""
        self.reducer.before_forward(self.require_backward_grad_sync, self.training)
        if self.device_ids:
            inputs, kwargs = tree_map_only(Tensor, lambda t: t.to(self.device), (inputs, kwargs))
        out = self.module(*inputs, **kwargs)
        self.reducer.after_forward(out)
        return out

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose backward passes add up gradients in this process alone; the next one outside averages."""
        with temporarily(self, require_backward_grad_sync=False):
            yield

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Future]) -> None:
        """Let `hook(state, bucket)` communicate; it returns a Future of the averaged flat tensor.

        Raises:
            RuntimeError: there is one already. TypeError: it is not callable.
        """
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self.reducer.hook = (state, hook)

    def __getstate__(self):
        raise TypeError("DistributedDataParallel can't be pickled; save module.state_dict().")
