"""make_graphed_callables: functions and modules whose forward and backward are CUDA graphs."""

from collections.abc import Callable
from typing import Any

from .. import backend, cuda
from .._tensor import Tensor
from ..autograd import grad
from ..autograd.function import Function
from ..base import capturing
from ..base.capturing import Capture
from ..base.config import temporarily
from ..base.pytree import tree_flatten, tree_unflatten
from ..cuda.graphs import CUDAGraph, copy_all, graph, graph_pool_handle, on_capture_stream
from ..dispatch.unwrap import raw_of
from .module import Module


def make_graphed_callables(
    callables: Callable | tuple[Callable, ...], sample_args: tuple, num_warmup_iters: int = 3,
    allow_unused_input: bool = False, pool: Any = None,
) -> Callable | tuple[Callable, ...]:  # fmt: skip
    """Functions (or modules) whose forward and backward are CUDA graphs, for use in a program that stays eager otherwise.

    Args:
        callables: a function or Module, or a tuple of them, called later in this order.
        sample_args: a tuple of tensors for each (for a single callable, the tuple itself): later inputs have these shapes,
            dtypes and requires_grad.
        num_warmup_iters: runs before the capture.
        allow_unused_input: whether an input or parameter may get no gradient.
        pool: as for `CUDAGraph.capture_begin`.

    Returns:
        The same number of callables. A Module is returned itself, with a new `forward` that is used while `training` is what
        it was here. Results lie in the graph's memory: the next call overwrites them.

    Raises:
        ValueError: a module with buffers that require grad or with hooks. TypeError: sample_args that aren't tensors on a GPU.
        RuntimeError, from a call: an input has another shape or requires_grad.

    Source: torch.cuda.make_graphed_callables.
    """
    single = not isinstance(callables, tuple)
    functions, samples = (callables, sample_args) if isinstance(callables, tuple) else ((callables,), (sample_args,))
    shared = graph_pool_handle() if pool is None else pool
    for c in functions:
        if isinstance(c, Module):
            if c._backward_hooks or c._forward_hooks or c._forward_pre_hooks:
                raise ValueError("make_graphed_callables: modules must have no hooks; register them afterwards.")
            if any(b.requires_grad for b in c.buffers()):
                raise ValueError("make_graphed_callables: modules must have no buffers that require grad.")
    parts = [_Graphed(c, tuple(args), allow_unused_input) for c, args in zip(functions, samples, strict=True)]
    with backend.device_guard(raw_of(parts[0].inputs[0])):
        for _ in range(num_warmup_iters):
            for part in parts:
                on_capture_stream(part.prepare)
        for part in parts:
            part.capture_forward(shared)
        for part in reversed(parts):
            part.capture_backward(shared)
    graphed = tuple(part.callable() for part in parts)
    return graphed[0] if single else graphed


class _Graphed:
    """One callable with its two graphs and the arrays that they read and write."""

    def __init__(self, function, samples, allow_unused):
        self.function = function
        self.allow_unused = allow_unused
        self.parameters = [p for p in function.parameters() if p.requires_grad] if isinstance(function, Module) else []
        leaves, self.spec = tree_flatten(samples)
        if not leaves or not all(isinstance(x, Tensor) and x.is_cuda for x in leaves):
            raise TypeError(
                "make_graphed_callables: sample_args must be tensors on a GPU, in nested lists, tuples and dicts."
            )
        self.inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in leaves]
        self.wanted = [x for x in self.inputs if x.requires_grad] + self.parameters
        self.forward_graph = self.backward_graph = None

    def _outputs(self):
        result = self.function(*tree_unflatten(self.inputs, self.spec))
        return tree_flatten(result)

    def _gradients(self, outputs, given):
        chosen = [(o, g) for o, g in zip(outputs, given, strict=True) if o.requires_grad]
        if not chosen or not self.wanted:
            return [None] * len(self.wanted)
        return grad([o for o, _ in chosen], self.wanted, [g for _, g in chosen], allow_unused=self.allow_unused)

    def prepare(self):
        """Run forward and backward once."""
        with temporarily(capturing, current=Capture(recording=False)):
            outputs, _ = self._outputs()
            self._gradients(outputs, [o.detach().clone() for o in outputs])

    def capture_forward(self, pool):
        self.forward_graph = CUDAGraph()
        with graph(self.forward_graph, pool):
            self.outputs, self.out_spec = self._outputs()

    def capture_backward(self, pool):
        self.given = [Tensor._wrap(raw_of(o).copy()) for o in self.outputs]
        self.backward_graph = CUDAGraph()
        with graph(self.backward_graph, pool):
            self.gradients = list(self._gradients(self.outputs, self.given))
        self.outputs = [o.detach() for o in self.outputs]

    def callable(self):
        """The function that replays; a Module with its forward replaced."""

        def replayed(*args):
            leaves, spec = tree_flatten(args)
            if spec != self.spec:
                raise RuntimeError("a graphed callable must be called with arguments nested like its sample_args.")
            for given, there in zip(leaves, self.inputs, strict=True):
                if (
                    tuple(given.shape) != tuple(there.shape)
                    or given.dtype != there.dtype
                    or given.requires_grad != there.requires_grad
                ):
                    raise RuntimeError(
                        f"a graphed callable takes inputs like its sample_args: expected {tuple(there.shape)} {there.dtype} with "
                        f"requires_grad={there.requires_grad}, got {tuple(given.shape)} {given.dtype} with requires_grad={given.requires_grad}."
                    )
            results = _Replay.apply(self, *leaves, *self.parameters)
            return tree_unflatten(list(results) if isinstance(results, tuple) else [results], self.out_spec)

        if not isinstance(self.function, Module):
            return replayed
        module, eager, training = self.function, self.function.forward, self.function.training
        module.forward = lambda *args: replayed(*args) if module.training is training else eager(*args)
        return module


class _Replay(Function):
    """A graphed callable's forward and backward: inputs are copied in, and its graphs replayed."""

    @staticmethod
    def forward(ctx, graphed, *tensors):
        ctx.graphed = graphed
        copy_all(graphed.inputs, tensors)
        graphed.forward_graph.replay()
        return tuple(o.detach() for o in graphed.outputs)

    @staticmethod
    def backward(ctx, *grads):
        graphed = ctx.graphed
        copy_all(graphed.given, grads)
        graphed.backward_graph.replay()
        found = iter(graphed.gradients)
        on_inputs = [next(found) if x.requires_grad else None for x in graphed.inputs]
        return (None, *(None if g is None else g.detach() for g in (*on_inputs, *found)))


for _module in (cuda, cuda.graphs):  # PyTorch's paths
    vars(_module)["make_graphed_callables"] = make_graphed_callables
