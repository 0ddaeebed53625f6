"""make_graphed_callables, which runs functions and modules as CUDA graphs."""

from collections.abc import Callable
from typing import Any

from .. import arrays as backend
from ..arrays import capturing
from ..arrays.capturing import Capture
from ..arrays.config import temporarily
from ..arrays.tensor import Tensor
from ..autograd import grad
from ..autograd.function import Function, once_differentiable
from ..cuda.graphs import CUDAGraph, copy_all, graph, graph_pool_handle, on_capture_stream
from ..ops.dispatch.unwrap import raw_of
from ..utils._pytree import tree_flatten, tree_unflatten
from .module import Module


def make_graphed_callables(
    callables: Callable | tuple[Callable, ...], sample_args: tuple, num_warmup_iters: int = 3,
    allow_unused_input: bool = False, pool: Any = None,
) -> Callable | tuple[Callable, ...]:  # fmt: skip
    """Returns functions or modules whose forward and backward replay CUDA graphs.

    The rest of the program can stay eager. Results are in the memory of the graph, and the next call overwrites them.

    Args:
        callables: a function or module, or a tuple of them. Call the results in the same order.
        sample_args: a tuple of tensors for each callable; for a single callable, the tuple itself. Later inputs must
            have the same shapes, dtypes and requires_grad.
        num_warmup_iters: number of runs before the capture (default: 3).
        allow_unused_input: if True, an input or parameter may have no gradient (default: False).
        pool: memory pool, as in `CUDAGraph.capture_begin`.

    Returns:
        The same number of callables. For a module, the module itself with a new `forward`. The module uses the new
        `forward` only while `training` has the same value as during the capture.

    Raises:
        ValueError: a module has hooks, or buffers that require a gradient.
        TypeError: `sample_args` contains objects other than tensors on a GPU.
        RuntimeError: a later input has another shape, dtype or requires_grad.

    Source: torch.cuda.make_graphed_callables.
    """
    single = not isinstance(callables, tuple)
    functions, samples = (callables, sample_args) if isinstance(callables, tuple) else ((callables,), (sample_args,))
    shared = graph_pool_handle() if pool is None else pool
    for c in functions:
        if isinstance(c, Module):
            if c._backward_hooks or c._forward_hooks or c._forward_pre_hooks:
                raise ValueError(
                    "make_graphed_callables: expected modules without hooks. Register hooks after the capture."
                )
            if any(b.requires_grad for b in c.buffers()):
                raise ValueError("make_graphed_callables: expected modules without buffers that require a gradient.")
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
    """A callable with its two graphs and the arrays that they read and write."""

    def __init__(self, function, samples, allow_unused):
        self.function = function
        self.allow_unused = allow_unused
        self.parameters = [p for p in function.parameters() if p.requires_grad] if isinstance(function, Module) else []
        leaves, self.spec = tree_flatten(samples)
        if not leaves or not all(isinstance(x, Tensor) and x.is_cuda for x in leaves):
            raise TypeError(
                "make_graphed_callables: expected sample_args of tensors on a GPU, in nested lists, tuples and dicts."
            )
        self.inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in leaves]
        self.targets = [x for x in self.inputs if x.requires_grad] + self.parameters
        self.forward_graph = self.backward_graph = None

    def _outputs(self):
        result = self.function(*tree_unflatten(self.inputs, self.spec))
        return tree_flatten(result)

    def _gradients(self, outputs, grad_outputs):
        chosen = [(o, g) for o, g in zip(outputs, grad_outputs, strict=True) if o.requires_grad]
        if not chosen or not self.targets:
            return [None] * len(self.targets)
        return grad([o for o, _ in chosen], self.targets, [g for _, g in chosen], allow_unused=self.allow_unused)

    def prepare(self):
        """Runs forward and backward once."""
        with temporarily(capturing, current=Capture(recording=False)):
            outputs, _ = self._outputs()
            self._gradients(outputs, [o.detach().clone() for o in outputs])

    def capture_forward(self, pool):
        self.forward_graph = CUDAGraph()
        with graph(self.forward_graph, pool):
            self.outputs, self.out_spec = self._outputs()

    def capture_backward(self, pool):
        self.grad_outputs = [Tensor._wrap(raw_of(o).copy()) for o in self.outputs]
        self.backward_graph = CUDAGraph()
        with graph(self.backward_graph, pool):
            self.gradients = list(self._gradients(self.outputs, self.grad_outputs))
        self.outputs = [o.detach() for o in self.outputs]

    def callable(self):
        """Returns the function that replays the graphs, or the module with a new `forward`."""

        def replayed(*args):
            leaves, spec = tree_flatten(args)
            if spec != self.spec:
                raise RuntimeError("graphed callable: expected arguments with the same nesting as sample_args.")
            for pair in zip(leaves, self.inputs, strict=True):
                got, expected = ((tuple(t.shape), t.dtype, t.requires_grad) for t in pair)
                if got != expected:
                    kind = "an input with (shape, dtype, requires_grad) of its sample"
                    raise RuntimeError(f"graphed callable: expected {kind}, {expected}, got {got}.")
            results = _Replay.apply(self, *leaves, *self.parameters)
            return tree_unflatten(list(results) if isinstance(results, tuple) else [results], self.out_spec)

        if not isinstance(self.function, Module):
            return replayed
        module, eager, training = self.function, self.function.forward, self.function.training
        module.forward = lambda *args: replayed(*args) if module.training is training else eager(*args)
        return module


class _Replay(Function):
    """Forward and backward of a graphed callable: copies the inputs to the graph's memory and replays the graph."""

    @staticmethod
    def forward(ctx, graphed, *tensors):
        ctx.graphed = graphed
        copy_all(graphed.inputs, tensors)
        graphed.forward_graph.replay()
        return tuple(o.detach() for o in graphed.outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        graphed = ctx.graphed
        copy_all(graphed.grad_outputs, grads)
        graphed.backward_graph.replay()
        gradients = iter(graphed.gradients)
        on_inputs = [next(gradients) if x.requires_grad else None for x in graphed.inputs]
        return (None, *(None if g is None else g.detach() for g in (*on_inputs, *gradients)))
