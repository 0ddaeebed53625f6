"""DistributedDataParallel, which averages gradients over processes during backward."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..._extensions import LazyMethod
from ...arrays.config import temporarily
from ...arrays.tensor import Tensor
from ...distributed.process_group import ProcessGroup, resolve
from ...distributed.reducer import MB, GradBucket, replicate
from ...distributed.work import Future
from ...utils._pytree import tree_map_only
from ..module import Module


class DistributedDataParallel(Module):
    """Averages the gradients of a module over the processes of a group during backward.

    Each process computes on its own part of the data. At the start, all processes must have parameters with the same
    names, shapes and dtypes, and process 0 sends its values to the other processes. Equal gradients then keep the
    parameters equal.

    Use it when the model fits on each device and you want more samples per second; `fully_shard` is for models that
    don't fit.

    Args:
        module: the model, on its device.
        device_ids: list with the one GPU of the module. Inputs are moved to it.
        output_device: `None`, or the device in `device_ids`.
        dim: accepted for compatibility, without effect (default: 0).
        broadcast_buffers: if True, process 0 sends its buffers to the others before each synchronized forward
            (default: True).
        init_sync: if True, checks and sends the parameters at the start (default: True).
        process_group: the processes. By default, all processes.
        bucket_cap_mb: size of a gradient bucket in MB. By default, 25.
        find_unused_parameters: if True, supports models that do not use all parameters in each step. This requires a
            traversal of the graph. Parameters that no process used keep their gradient (default: False).
        check_reduction: accepted for compatibility, without effect (default: False).
        gradient_as_bucket_view: if True, `p.grad` is a view of its bucket. Otherwise, it has separate memory
            (default: True).
        static_graph: if True, finds unused parameters as with `find_unused_parameters` (default: False).

    Raises:
        RuntimeError: no parameter requires a gradient, or the processes have different parameters.
        ValueError: `device_ids`, `output_device` or `bucket_cap_mb` is invalid.

    The guide docs/distributed.md has a complete program.

    See also: `mytorch.distributed.init_process_group`.
    """

    def __init__(
        self, module: Module, device_ids: Sequence | None = None, output_device: Any = None, dim: int = 0,
        broadcast_buffers: bool = True, init_sync: bool = True, process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = True, static_graph: bool = False,
    ):  # fmt: skip
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(f"DistributedDataParallel: expected at most one device in device_ids, got {device_ids}.")
        if output_device is not None and (not device_ids or output_device != device_ids[0]):
            raise ValueError(
                f"DistributedDataParallel: expected output_device to be {device_ids}, got {output_device}."
            )
        if bucket_cap_mb is not None and not bucket_cap_mb > 0:
            raise ValueError(f"DistributedDataParallel: expected bucket_cap_mb to be positive, got {bucket_cap_mb}.")
        first = next((p for p in module.parameters() if p.requires_grad), None)
        if first is None:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient."
            )
        if device_ids and all(p.device.type == "cpu" for p in module.parameters()):
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device "
                f"GPU modules, but got device_ids {list(device_ids)} and a module on the CPU. Leave device_ids out."
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
            module, self.process_group, init_sync=init_sync, cap_bytes=self.bucket_bytes_cap, views=gradient_as_bucket_view,
            find_unused=find_unused_parameters or static_graph, buffers=broadcast_buffers,
        )  # fmt: skip

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        self.reducer.before_forward(self.require_backward_grad_sync, self.training)
        if self.device_ids:
            inputs, kwargs = tree_map_only(Tensor, lambda t: t.to(self.device), (inputs, kwargs))
        out = self.module(*inputs, **kwargs)
        self.reducer.after_forward(out)
        return out

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Disables the averaging of gradients, as a context manager. Use it to accumulate gradients over several batches.

        Backward passes in the context accumulate gradients of this process only. The next backward pass outside the
        context averages the accumulated gradients.
        """
        with temporarily(self, require_backward_grad_sync=False):
            yield

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Future]) -> None:
        """Replaces the communication of gradients by a hook.

        Args:
            state: first argument of the hook.
            hook: function that is called as `hook(state, bucket)`, and returns a Future of the averaged flat tensor.

        Raises:
            RuntimeError: a hook is already registered.
            TypeError: `hook` is not callable.
        """
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        if not callable(hook):
            raise TypeError(f"Communication hook must be callable, got {type(hook).__name__}.")
        self.reducer.hook = (state, hook)

    def __getstate__(self):
        raise TypeError("DistributedDataParallel can't be pickled. Save module.state_dict() instead.")


setattr(DistributedDataParallel, "join", LazyMethod(DistributedDataParallel, "join", "distributed.join"))  # noqa: B010
