"""Nodes and edges of the autograd graph, and hooks on saved tensors and on gradients."""

import threading
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any, Literal

from ..arrays import device_guard
from ..arrays.tensor import Tensor
from . import walk
from .mode import ModeSwitch, get_mode, no_grad
from .node import Leaf, Node, OutputEdge


class saved_tensors_hooks(ModeSwitch):
    """Replaces the tensors that ops save for backward in a `with` block, for example to compress them.

    Args:
        pack_hook: `pack_hook(tensor) -> object`, called when an op saves a tensor. The tensor is detached and shares the
            saved memory. The hook must not change it in place.
        unpack_hook: `unpack_hook(object) -> tensor`, called in backward. The tensor must have the shape, dtype and
            device of the saved tensor.

    Raises:
        RuntimeError: the block is inside `disable_saved_tensors_hooks`, or `pack_hook` changes its argument in place.

    Example:
        >>> x = mytorch.ones(3, requires_grad=True)
        >>> sizes = []
        >>> with mytorch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.shape) or t, lambda t: t):
        ...     y = (x * x).sum()
        >>> sizes[0]
        mytorch.Size([3])
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
    """Stores the tensors that ops save for backward on the CPU in a `with` block. Backward copies them to their device.

    Args:
        pin_memory: store them in page-locked memory, for faster copies to the GPU (default: False).
        device_type: for compatibility with PyTorch.
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
    """Makes `saved_tensors_hooks` raise an error in a `with` block.

    Args:
        error_message: message of the RuntimeError.
    """

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
    """Allows in-place changes of saved tensors in a `with` block. Ops save copies of the tensors.

    Example:
        >>> x = mytorch.ones(2, requires_grad=True)
        >>> y = x * 2
        >>> with mytorch.autograd.graph.allow_mutation_on_saved_tensors():
        ...     z = (y * y).sum()
        ...     _ = y.mul_(0)
        >>> z.backward()
        >>> x.grad.tolist()
        [8.0, 8.0]
    """

    def __init__(self):
        super().__init__(lambda tensor: tensor.clone(), lambda tensor: tensor)

    def clone(self):
        return type(self)()


class GradientEdge(namedtuple("GradientEdge", "node output_nr")):
    """An output of a node in the autograd graph. `autograd.grad` and `autograd.backward` accept it in place of a tensor.

    Attributes:
        node: the node.
        output_nr: the position of the output.
    """

    edge = None  # the edge, set by `get_gradient_edge`


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Returns the position of a tensor in the autograd graph, without a reference to the tensor.

    Args:
        tensor: a tensor that requires gradients.

    Raises:
        RuntimeError: the tensor does not require gradients.

    Example:
        >>> x = tensor(3.0, requires_grad=True)
        >>> edge = mytorch.autograd.graph.get_gradient_edge(x)
        >>> mytorch.autograd.grad(x * x, edge)[0].item()
        6.0
    """
    edge = tensor.edge
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    found = GradientEdge(edge.node if type(edge) is OutputEdge else edge, getattr(edge, "index", 0))
    found.edge = edge
    return found


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Increments the version of a tensor, after code outside of the library changed its memory.

    Backward then raises an error if it needs the former values.

    Args:
        tensor: a tensor, or several.
    """
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._mt_data._bump()


def register_multi_grad_hook(
    tensors: Iterable[Tensor], fn: Callable[[Any], None], *, mode: Literal["all", "any"] = "all"
) -> "_Handles":
    """Registers a function that backward calls when the gradients of several tensors are complete.

    Args:
        tensors: tensors that require gradients.
        fn: the hook. With mode "all", it receives a list of the gradients, with None for tensors that backward does not
            reach. With mode "any", it receives the first gradient, once in each backward pass.
        mode: "all" or "any" (default: "all").

    Returns:
        A handle; `handle.remove()` removes the hooks.

    Raises:
        ValueError: `mode` is not "all" or "any".

    Example:
        >>> x, y = (mytorch.ones(1, requires_grad=True) for _ in range(2))
        >>> show = lambda grads: print([g.item() for g in grads])
        >>> handle = mytorch.autograd.graph.register_multi_grad_hook((x, y), show)
        >>> (2 * x + 3 * y).backward()
        [2.0, 3.0]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = list(tensors)
    edges = [t.edge for t in tensors]
    lock = threading.Lock()
    state: dict[str, Any] = {"waiting": None}

    def start(outer, delivered):
        """Resets the state at the first call of each backward pass."""
        if state["waiting"] is not outer.waiting:
            left = -1 if delivered else sum(edge in outer.waiting for edge in edges)
            state.update(waiting=outer.waiting, grads=[None] * len(edges), left=left, done=False)
            if delivered and mode == "all":
                outer.callbacks.append(finish)

    def finish():
        """Calls the hook at the end of a pass in which the gradients arrive in parts, such as those of sharded modules."""
        grads, state["grads"] = state["grads"], None
        fn(grads)

    def hook_of(i):
        def hook(grad):
            with lock:
                current = walk.current_walk()
                # A pass of leaves only delivers gradients that the pass around it has computed.
                delivered = all(type(edge) is Leaf for edge in current.waiting)
                start(walk.outermost_walk() if delivered else current, delivered)
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
    """A handle of several hooks."""

    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        """Removes all hooks."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


def _apply(self, *grads):
    """Returns the gradients of the inputs of the node, for the given gradients of its outputs."""
    if len(grads) != max(self.plan.ports, 1):
        raise TypeError(f"{self.label} expected {max(self.plan.ports, 1)} arguments, got {len(grads)} instead")
    self.check()
    raw = [None if g is None else g._mt_data._array for g in grads]
    with no_grad(), device_guard(next((g for g in raw if g is not None), None)):
        pairs = list(walk._run_node(self, raw if self.plan.ports else raw[0], walk.raw))
    found = tuple(None if g is None else walk.raw.wrap(walk.raw.fit(g, parent)) for parent, g in pairs)
    return found[0] if len(found) == 1 else found


setattr(Node, "__call__", _apply)  # noqa: B010 (mypy refuses the assignment)

__all__ = (
    "GradientEdge Node allow_mutation_on_saved_tensors disable_saved_tensors_hooks get_gradient_edge increment_version "
    "register_multi_grad_hook save_on_cpu saved_tensors_hooks"
).split()
