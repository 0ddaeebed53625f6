"""Function: custom ops with a backward pass, as in `torch.autograd.Function`.

`forward` and `backward` receive Tensors. Operations inside them are recorded only in a backward pass with
`create_graph=True`. The context stores Arrays and edges instead of Tensors, which avoids reference cycles.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .. import _extensions
from ..arrays import hooks
from ..arrays.array import Array
from ..arrays.errors import kind, warn
from ..arrays.tensor import Tensor, is_tensor
from ..ops.creation import zeros
from ..ops.dispatch.inplace import check_writable, set_edge
from ..ops.dispatch.op import annotate, attach, tensor_at
from . import walk
from .mode import enable_grad, get_mode, no_grad
from .node import Node, OutputEdge
from .saved import Packed, packed, unpacked


class _Saved:
    """A tensor saved for backward: its Array, the version of the Array, and the edge if the tensor is not an output."""

    __slots__ = ("array", "edge", "output", "version")

    def __init__(self, tensor, output):
        self.output = output
        self.edge = None if output is not None else tensor._mt_edge
        hooks = get_mode().saved_hooks
        if hooks is not None:
            counter = tensor._mt_data.shared_version_counter()
            raw = tensor._mt_data._array
            self.array = packed(raw, hooks, [(raw, self.edge)], tensor_at, [counter])
            return
        self.array = tensor._mt_data
        self.version = tensor._mt_data._version
        tensor._mt_data.shared_version_counter()


class FunctionCtx:
    """The context object that `forward` passes to `backward`. You can set any attribute on it.

    Attributes:
        needs_input_grad: for each argument of forward, True if it is a tensor that requires gradients.
    """

    _to_save = _to_save_for_forward = _dirty = _non_differentiable = needs_input_grad = _is_tensor = ()
    _saved = _node = None
    _materialize = _materialize_non_diff_grads = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Stores inputs or outputs of forward for backward, which reads them from `saved_tensors`.

        Args:
            tensors: tensors or None. Store other objects as attributes of the context.

        Raises:
            TypeError: an argument is not a tensor or None.
        """
        for i, t in enumerate(tensors):
            if t is not None and not is_tensor(t):
                raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type {kind(t)}")
        self._to_save = tuple(Tensor._of(t) if isinstance(t, Array) else t for t in tensors)

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Stores inputs or outputs of forward for `jvp`, which reads them from `saved_tensors`.

        Args:
            tensors: tensors or None.
        """
        self._to_save_for_forward = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that `save_for_backward` stored, as a tuple.

        Raises:
            RuntimeError: an earlier backward pass freed the tensors, or one of them was changed in place.
        """
        if self._saved is None:
            if self._node is None:
                return self._to_save
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Specify retain_graph=True if you need to backward through the graph a second time."
            )
        return tuple(self._unpack(s) for s in self._saved)

    saved_variables = saved_tensors

    def _unpack(self, saved):
        if not isinstance(saved, _Saved):
            return saved
        if isinstance(saved.array, Packed):
            array = Array._wrap(unpacked(saved.array))
        elif saved.array._version == saved.version:
            array = saved.array
        else:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: saved at "
                f"version {saved.version}, now at version {saved.array._version}. clone() it before changing it in place."
            )
        return Tensor._of(array, saved.edge if saved.output is None else self._node.output_edge(saved.output))

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Marks inputs that forward changes in place. Forward must return them.

        Args:
            tensors: the changed inputs.
        """
        self._dirty = _only_tensors("mark_dirty", tensors)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Marks outputs that are not differentiable, such as indices.

        Args:
            tensors: outputs of forward.
        """
        self._non_differentiable = _only_tensors("mark_non_differentiable", tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """Sets the gradient that backward receives for unused outputs.

        Args:
            value: True for tensors of zeros (the default), False for None.
        """
        if type(value) is not bool:
            raise TypeError(f"set_materialize_grads: expected a bool, got {kind(value)}.")
        self._materialize = value


def _only_tensors(name, values):
    for value in values:
        if not is_tensor(value):
            raise RuntimeError(
                f"{name}: expected tensors, got {kind(value)}. Store other objects as attributes of the context."
            )
    return values


class FunctionNode(Node):
    """The node of one call of a Function."""

    __slots__ = ("ctx", "function", "outputs")

    def __init__(self, function, ctx, plan, parents, outputs):
        first = outputs[0]
        super().__init__(None, plan, parents, (), (), first[0], first[1])
        self.function = function
        self.ctx = ctx
        self.outputs = outputs  # (shape, dtype) of each

    @property
    def label(self):
        return f"{self.function.__name__}Backward"

    def name(self):
        """Returns the name of the Function, followed by "Backward"."""
        return self.label

    def check(self):
        """Does nothing: the context checks saved tensors when backward reads them."""

    def release(self):
        self.ctx._saved = None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.ctx, name)  # in PyTorch, the node is the context

    def output_edge(self, i):
        """Returns the edge of output i."""
        return OutputEdge(self, i, *self.outputs[i]) if self.plan.ports else self


class _Plan:
    """The plan of a Function's node. It stores the number of outputs, and makes the engine call backward of the Function."""

    vjp = None
    names = ()
    passes_float32 = False

    def __init__(self, ports):
        self.ports = ports

    @staticmethod
    def run(node, g, arithmetic):
        return node.function._run_backward(node, g, arithmetic)


class _Meta(type):
    @property
    def _backward_cls(cls):
        """Returns the class of the nodes of this Function."""
        if "_node_class" not in cls.__dict__:
            body = {"__slots__": (), "_forward_cls": cls}
            cls._node_class = type(f"{cls.__name__}Backward", (FunctionNode,), body)
        return cls._node_class

    def __repr__(cls):
        return f"<class '{cls.__module__}.{cls.__qualname__}'>"


class Function(metaclass=_Meta):
    """Base class of custom differentiable functions. Call a function with `apply`, not with its constructor.

    A subclass defines static methods:

    * `forward(ctx, *args)` computes the result. Alternatively, define `forward(*args)` and
      `setup_context(ctx, inputs, output)`.
    * `backward(ctx, *grad_outputs)` returns a gradient, or None, for each argument of `forward`.
    * `jvp(ctx, *grad_inputs)` is optional. It computes tangents for forward-mode differentiation.

    Check the gradients of your function with `autograd.gradcheck`.

    Example:
        >>> class Cube(mytorch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x**3
        ...
        ...     @staticmethod
        ...     def backward(ctx, g):
        ...         (x,) = ctx.saved_tensors
        ...         return 3 * x**2 * g
        >>> x = tensor(2.0, requires_grad=True)
        >>> Cube.apply(x).backward()
        >>> x.grad.item()
        12.0
    """

    generate_vmap_rule = False

    def __init__(self, *args, **kwargs):
        warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke "
            "them on the class itself. Instantiating an autograd function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises an error: functions of PyTorch before 1.3 had no static methods, and were called like this.

        Args:
            args: any arguments.
            kwargs: any keyword arguments.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Define forward and backward as static "
            "methods, and call the function with apply."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the result. Override this method in a subclass.

        Args:
            args: the context, unless the subclass defines `setup_context`, and the arguments of `apply`.
            kwargs: further arguments of `apply`.

        Returns:
            A tensor or a tuple of tensors.
        """
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> Any:
        """Stores tensors for backward in the context. Override it if `forward` has no argument `ctx`.

        Args:
            ctx: the context.
            inputs: tuple of the arguments of forward.
            output: result of forward.
        """
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def jvp(ctx: FunctionCtx, *grad_inputs: Any) -> Any:
        """Computes the tangents of the outputs, for forward-mode differentiation (`autograd.forward_ad`).

        Args:
            ctx: the context.
            grad_inputs: the tangent of each argument of forward, or None.

        Returns:
            The tangent of each output.
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """Computes the results for a whole batch. Override it if that is faster than one call of `forward` for each sample.

        Without it, `func.vmap` calls `forward` for each sample. It also does so if an argument requires gradients inside of
        the mapped function, or if it requires gradients and has no dimension of samples.

        Args:
            info: has `batch_size`, and `randomness` as given to `func.vmap`.
            in_dims: for each argument, the dimension of the samples; None for an argument without one.
            args: the arguments of `apply`, tensors with the samples.

        Returns:
            The outputs, and the dimension of the samples in each of them; None for an output without one.
        """
        raise NotImplementedError("The vmap staticmethod is not overridden.")

    @classmethod
    def _batching_rule(cls):
        """Returns the `vmap` of a subclass, or None."""
        if cls.vmap is Function.vmap:
            return None
        if cls.generate_vmap_rule:
            raise RuntimeError(
                f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overriden vmap staticmethod. "
                "Please set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid ambiguity."
            )
        return cls.vmap

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        """Computes the gradients of the arguments of forward. Override this method in a subclass.

        Args:
            ctx: the context.
            grad_outputs: the gradient of each output of forward.

        Returns:
            A gradient for each argument of forward; None for arguments without a gradient.
        """
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs forward, and records the function if an argument requires gradients.

        Args:
            args: arguments of forward, without the context.
            kwargs: further arguments of forward.

        Returns:
            The result of forward.
        """
        if "vjp" in cls.__dict__ and "backward" in cls.__dict__:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. Define one of them."
            )
        interpreter = get_mode().interpreter
        if interpreter is not None:
            return interpreter.apply(cls, args, kwargs)
        return cls._apply(args, kwargs)[1]

    @classmethod
    def _run_jvp(cls, ctx, tangents):
        """Returns the tangents of the outputs as a tuple. In jvp, `saved_tensors` are the tensors of `save_for_forward`."""
        saved, ctx._saved = ctx._saved, ctx._to_save_for_forward
        try:
            found = cls.jvp(ctx, *tangents)
        finally:
            ctx._saved, ctx._to_save_for_forward = saved, ()
        return found if isinstance(found, tuple) else (found,)

    @classmethod
    def _apply(cls, args, kwargs, keep=False):
        """Returns (context, result, inputs changed in place) of one call. With `keep`, the context stores Tensors."""
        ctx = FunctionCtx()
        if cls.setup_context is not Function.setup_context and (kwargs or cls.forward.__defaults__):
            call = inspect.signature(cls.forward).bind(*args, **kwargs)
            call.apply_defaults()
            args, kwargs = call.args, call.kwargs
        edges = [a.edge if isinstance(a, Tensor) else None for a in args]
        ctx.needs_input_grad = tuple(e is not None for e in edges)
        ctx._is_tensor = tuple(isinstance(a, Tensor) for a in args)
        record = get_mode().grad and any(ctx.needs_input_grad)
        with no_grad():
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args, **kwargs)
            else:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
        outs = result if isinstance(result, tuple) else (result,)
        for o in outs:
            if isinstance(o, Tensor) and o._mt_view is not None and not _is_in(o, args):
                o._mt_view = (*o._mt_view[:2], None)  # an in-place change would replace the gradient of this function
        changed = _check_dirty([t for t in ctx._dirty if isinstance(t, Tensor)], args, outs) if ctx._dirty else ()
        for t in changed:
            t._mt_data._bump()  # also if forward wrote into it without autograd's knowledge
        if not record:
            if any(isinstance(o, Tensor) and _is_in(o, args) and not _is_in(o, changed) for o in outs):
                outs = tuple(_not_input(o, args, changed) for o in outs)
                result = outs if isinstance(result, tuple) else outs[0]
            return ctx, result, ctx._dirty
        outs = cls._own_outputs(ctx, args, outs, changed)
        differentiable = [
            isinstance(o, Tensor) and o._mt_data._array.dtype.kind in "fcV" and not _is_in(o, ctx._non_differentiable)
            for o in outs
        ]
        shapes = [
            (o._mt_data._array.shape, o._mt_data._array.dtype) if isinstance(o, Tensor) else ((), None) for o in outs
        ]
        if not ctx._materialize_non_diff_grads:
            shapes = [s if wanted else ((), None) for s, wanted in zip(shapes, differentiable, strict=True)]
        node = (cls.__dict__.get("_node_class") or cls._backward_cls)(
            cls, ctx, _Plan(len(outs) if len(outs) > 1 else 0), tuple(edges), shapes
        )
        if get_mode().anomaly:
            annotate(node, get_mode().replace(saved_hooks=None))
        ctx._saved = ctx._to_save if keep else tuple(_save(t, args, outs) for t in ctx._to_save)
        ctx._to_save = ()
        ctx._node = _Weak(node)
        attach(node, [o if d and not _is_in(o, changed) else None for o, d in zip(outs, differentiable, strict=True)])
        for i, o in enumerate(outs):
            if differentiable[i] and _is_in(o, changed):
                set_edge(o, node.output_edge(i))
        return ctx, outs if isinstance(result, tuple) else outs[0], changed

    @classmethod
    def _own_outputs(cls, ctx, args, outs, changed):
        """Replaces outputs that are also inputs by new tensors, unless they were marked dirty."""
        own = []
        for o in outs:
            if isinstance(o, Tensor) and not _is_in(o, changed):
                is_input = _is_in(o, args)
                if is_input or o._mt_edge is not None:
                    replaced = Tensor._of(o._mt_data)
                    if _is_in(o, ctx._non_differentiable):
                        ctx._non_differentiable = (*ctx._non_differentiable, replaced)
                    if is_input and o.edge is not None and not _is_in(o, ctx._non_differentiable):
                        base = o if o._mt_view is None else o._mt_view[0]
                        replaced._mt_view = (base, base._mt_edge, None)
                    ctx._to_save = tuple(replaced if t is o and not is_input else t for t in ctx._to_save)
                    o = replaced
            elif isinstance(o, Tensor):
                check_writable(o, cls.__name__)
            own.append(o)
        return tuple(own)

    @classmethod
    def _run_backward(cls, node, g, arithmetic):
        """Calls backward with Tensors. Returns (parent, gradient) pairs for the engine."""
        recorded = arithmetic is hooks.recorded_arithmetic
        grads = list(g) if isinstance(g, list) else [g]
        ctx, like = node.ctx, arithmetic.raw(next(x for x in grads if x is not None))
        for i, value in enumerate(grads):
            if value is None:
                if ctx._materialize and node.outputs[i][1] is not None:
                    grads[i] = Tensor._wrap(walk.raw.zeros(*node.outputs[i], like))
            elif not isinstance(value, Tensor):
                grads[i] = Tensor._wrap(value)
        ctx._node.node = node
        try:
            with enable_grad() if recorded else no_grad():
                by_vjp = cls.backward is Function.backward and hasattr(cls, "vjp")  # another name of backward
                results = (cls.vjp if by_vjp else cls.backward)(ctx, *grads)
        finally:
            ctx._node.node = None
        results = results if isinstance(results, tuple) else (results,)
        if len(results) > len(node.parents) and all(r is None for r in results[len(node.parents) :]):
            results = results[: len(node.parents)]
        if len(results) != len(node.parents):
            raise RuntimeError(
                f"function {node.label} returned an incorrect number of gradients (expected {len(node.parents)}, got {len(results)})"
            )
        pairs = []
        for i, (parent, value) in enumerate(zip(node.parents, results, strict=True)):
            if parent is None:
                if value is not None and not ctx._is_tensor[i]:
                    raise RuntimeError(
                        f"function {node.label} returned a gradient different than None at position {i + 1}, but the corresponding "
                        "forward input was not a Variable"
                    )
                continue
            if value is not None:
                _check_gradient(node, i, parent, value)
            if value is not None and not recorded:
                value = _borrowed(value._mt_data._array)
            elif isinstance(value, Array):
                value = Tensor._of(value)
            pairs.append((parent, value))
        return pairs


def _check_gradient(node, i, parent, value):
    """Checks a gradient that `backward` returned for argument i.

    Raises:
        RuntimeError: it is not a tensor, its shape is not a broadcast of the argument's shape, or it is complex and the
            argument is real.
    """
    if not is_tensor(value):
        raise RuntimeError(f"{node.label}: expected a Tensor or None as gradient, got {kind(value)}.")
    own, wanted = tuple(value.shape), tuple(parent.shape)
    if own != wanted and (
        len(own) < len(wanted) or any(n not in (1, m) for n, m in zip(wanted[::-1], own[::-1], strict=False))
    ):
        raise RuntimeError(
            f"Function {node.label} returned an invalid gradient at index {i} - got {list(own)} but expected shape compatible "
            f"with {list(wanted)}"
        )
    if value.is_complex() and parent.dtype.kind != "c":
        raise RuntimeError(
            f"{node.label}: expected a real gradient at index {i}, got {value.dtype}. Return its real part."
        )


def _check_dirty(tensors, args, outs):
    """Returns the tensors passed to `mark_dirty` that are inputs.

    Raises:
        RuntimeError: a tensor is not an output, or it is a view and there are several outputs.
    """
    for t in tensors:
        if not _is_in(t, outs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
                "modified inplace must all be outputs of the Function."
            )
        if not _is_in(t, args):
            warn(
                "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to pass "
                "it to mark_dirty()."
            )
        elif len(outs) > 1 and t._mt_view is not None:
            raise RuntimeError(
                "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
                "more than one Tensor: return them from two Functions."
            )
    return [t for t in tensors if _is_in(t, args)]


def _not_input(output, args, changed):
    """Returns a view of an output that is an input and was not changed: the caller gets another tensor, as in PyTorch."""
    if not isinstance(output, Tensor) or not _is_in(output, args) or _is_in(output, changed):
        return output
    with no_grad():
        return output.view_as(output)


def _is_in(x, values):
    return any(x is value for value in values)


def _borrowed(raw):
    """Returns a view of a gradient from a user. Other code may use the array, so the engine must not change it in place."""
    return raw.view() if hasattr(raw, "view") else raw


class _Weak:
    """A reference to the node that is set while backward runs. A permanent reference would be a cycle."""

    __slots__ = ("node",)

    def __init__(self, node):
        self.node = None

    def output_edge(self, i):
        return None if self.node is None else self.node.output_edge(i)


def _save(tensor, args, outs):
    if tensor is None:
        return None
    output = next((i for i, o in enumerate(outs) if o is tensor), None)
    return _Saved(tensor, None if _is_in(tensor, args) else output)


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `backward` that cannot be differentiated. A second derivative then raises an error.

    Args:
        backward: the static method `backward` of a Function.

    Raises:
        RuntimeError: the result of backward is differentiated.
    """

    @functools.wraps(backward)
    def once(ctx, *grads):
        if get_mode().grad:
            with no_grad():
                results = backward(ctx, *grads)
            results = results if isinstance(results, tuple) else (results,)
            # With an edge to all that the results depend on, also a gradient with respect to given tensors meets the error. The
            # results depend on all inputs of forward, whether it saved them or not.
            given = [t for t in grads if isinstance(t, Tensor)]
            sources = [t for t in given if t.requires_grad]
            sources += [Tensor._of(given[0]._mt_data, e) for e in ctx._node.node.parents if e is not None and given]
            return tuple(_refusing(r, sources) if isinstance(r, Tensor) else r for r in results)
        return backward(ctx, *grads)

    return once


class _Refuse(Function):
    @staticmethod
    def forward(ctx, tensor, *sources):
        return tensor.detach()

    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def _refusing(tensor, sources):
    """Returns a tensor whose differentiation raises an error, also with respect to `sources` only."""
    return _Refuse.apply(tensor, zeros((), requires_grad=True), *sources)


class InplaceFunction(Function):
    """A Function with an option `inplace`, for older programs."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace


__getattr__, __dir__ = _extensions.lazy(__name__)
