"""The graph as users see it: nodes, edges, and hooks on what is saved and on several gradients at once."""

import threading
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any, Literal

from .._tensor import RemovableHandle, Tensor
from ..backend import device_guard
from ..engine import walk
from ..engine.mode import ModeSwitch, get_mode, no_grad
from ..engine.node import Leaf, Node, OutputEdge


class saved_tensors_hooks(ModeSwitch):
    """Within the block, what ops save for backward is replaced by `pack_hook(tensor)`, and taken back in backward
    by `unpack_hook` of that.

    Args:
        pack_hook: tensor -> anything. It is given a tensor outside of the graph, over the saved memory.
        unpack_hook: what pack_hook gave -> a tensor of the same shape, dtype and device.

    Raises:
        RuntimeError: at entering, within `disable_saved_tensors_hooks`.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        super().__init__()
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def clone(self):
        return type(self)(self.pack_hook, self.unpack_hook)

    def _changes(self):
        refused = get_mode().hooks_refused
        if refused is not None:
            raise RuntimeError(refused)
        return {"saved_hooks": (self._pack, self.unpack_hook)}

    @no_grad()
    def _pack(self, tensor):
        before = tensor._version
        value = self.pack_hook(tensor)
        if tensor._version != before:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not "
                "be modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if "
                "you need to perform in-place operations on the input to a pack hook."
            )
        return value


class save_on_cpu(saved_tensors_hooks):
    """Within the block, what ops save for backward is kept on the CPU, and brought back for backward.

    Args:
        pin_memory: copy to page-locked memory, from which copies to the GPU are faster.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        self.pin_memory = pin_memory
        self.device_type = device_type

        def pack(tensor):
            copy = tensor.cpu() if tensor.is_cuda else tensor.clone()
            return tensor.device, copy.pin_memory() if pin_memory and tensor.is_cuda else copy

        def unpack(value):
            return value[1].to(value[0])

        super().__init__(pack, unpack)

    def clone(self):
        return type(self)(self.pin_memory, self.device_type)


class disable_saved_tensors_hooks(ModeSwitch):
    """Within the block, `saved_tensors_hooks` can't be entered: it raises a RuntimeError with this message."""

    def __init__(self, error_message: str):
        super().__init__()
        self.error_message = error_message

    def clone(self):
        return type(self)(self.error_message)

    def _changes(self):
        if get_mode().saved_hooks is not None:
            raise RuntimeError(self.error_message)
        return {"hooks_refused": self.error_message}


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Within the block, tensors that ops saved for backward may be changed in place: copies are saved."""

    def __init__(self):
        super().__init__(lambda tensor: tensor.clone(), lambda tensor: tensor)

    def clone(self):
        return type(self)()


class GradientEdge(namedtuple("GradientEdge", "node output_nr")):
    """A place in the graph: an output of a node. `autograd.grad` and `backward` take it as they take a tensor."""

    edge = None  # the edge itself, where `get_gradient_edge` knew it


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place of a tensor in the graph, without keeping the tensor.

    Raises:
        RuntimeError: it does not require grad.
    """
    edge = tensor.edge
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    found = GradientEdge(edge.node if type(edge) is OutputEdge else edge, getattr(edge, "index", 0))
    found.edge = edge
    return found


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Tell the graph that a tensor (or each of several) was changed in place by other means."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._data._bump()


def register_multi_grad_hook(
    tensors: Iterable[Tensor], fn: Callable[[Any], None], *, mode: Literal["all", "any"] = "all"
) -> "_Handles":
    """Call fn when the gradients of several tensors have been computed, in each backward.

    Args:
        tensors: tensors that require grad.
        fn: with mode "all", given a list of the gradients, None for tensors that backward does not reach; with
            "any", given the first gradient, once in each backward.

    Returns:
        A handle; `handle.remove()` takes the hooks away.

    Raises:
        ValueError: another mode.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = list(tensors)
    edges = [t.edge for t in tensors]
    lock = threading.Lock()
    state = {"waiting": None}

    def start(waiting):
        """Reset if this is another backward than at the last call."""
        if state["waiting"] is not waiting:
            reached = [edge in waiting for edge in edges]
            state.update(waiting=waiting, grads=[None] * len(edges), left=sum(reached), done=False)

    def hook_of(i):
        def hook(grad):
            with lock:
                start(walk.current_walk().waiting)
                if mode == "any":
                    if state["done"]:
                        return
                    state["done"] = True
                    given = grad
                else:
                    state["grads"][i] = grad
                    state["left"] -= 1
                    if state["left"]:
                        return
                    given = state["grads"]
                state["grads"] = None
            fn(given)

        return hook

    return _Handles([t.register_hook(hook_of(i)) for i, t in enumerate(tensors)])


class _Handles:
    """Several handles as one."""

    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        """Take all hooks away."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


def _register_hook(self, fn):
    """Call fn(grad_inputs, grad_outputs) after the node's formulas; a tuple that it returns replaces grad_inputs."""
    return RemovableHandle(self.node_hooks()["post"], fn)


def _register_prehook(self, fn):
    """Call fn(grad_outputs) before the node's formulas; a tuple that it returns replaces grad_outputs."""
    return RemovableHandle(self.node_hooks()["pre"], fn)


def _apply(self, *grads):
    """The gradients of the node's inputs, given those of its outputs."""
    if len(grads) != max(self.plan.ports, 1):
        raise TypeError(f"{self.label} expected {max(self.plan.ports, 1)} arguments, got {len(grads)} instead")
    self.check()
    raw = [None if g is None else g._data._array for g in grads]
    with no_grad(), device_guard(next((g for g in raw if g is not None), None)):
        pairs = list(walk._run_node(self, raw if self.plan.ports else raw[0], walk.raw))
    found = tuple(None if g is None else walk.raw.wrap(walk.raw.fit(g, parent)) for parent, g in pairs)
    return found[0] if len(found) == 1 else found


_hooks = {"register_hook": _register_hook, "register_prehook": _register_prehook}
for _kind, _methods in ((Leaf, _hooks), (Node, {**_hooks, "__call__": _apply})):
    for _name, _method in _methods.items():
        setattr(_kind, _name, _method)

__all__ = (
    "GradientEdge Node allow_mutation_on_saved_tensors disable_saved_tensors_hooks get_gradient_edge increment_version "
    "register_multi_grad_hook save_on_cpu saved_tensors_hooks"
).split()
