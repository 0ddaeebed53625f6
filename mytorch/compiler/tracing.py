"""Tracing: runs a function once with TracedArrays and returns a `Trace`.

A trace leaves no effect. Parameters and buffers, gradients and random generators have their former values afterward. So a
trace can be abandoned at any point.
"""

import contextlib
import enum
import functools
import threading

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..amp import Policy
from ..backend import address
from ..base import hooks
from ..base.config import temporarily
from ..base.errors import GraphFreedError
from ..base.pytree import tree_flatten, tree_unflatten
from ..dispatch.record import RECORDS, Formula, Implementation
from ..engine import walk
from ..engine.mode import get_mode, in_mode
from ..engine.node import Leaf, OutputEdge
from ..kernels.kernel import Kernel
from ..ops.creation import is_tensor
from ..ops.random import Generator
from .arrays import Ref, Tape, TracedArray, Untraceable, current_tape, record_call, trace_ns
from .guards import VALUES
from .observe import position_in, user_line
from .program import is_dense
from .updates import record

_lock = threading.RLock()
_DRAWS = "uniform normal bernoulli exponential words words64 serial_normal rejecting library _by_kernel".split()
_STATES = "manual_seed seed set_state get_state clone_state next_subsequence".split()


class Trace:
    """The result of tracing a function.

    Attributes:
        tape: the steps of forward and backward.
        forward: number of steps of the forward part; the rest is backward.
        inputs: numbers of the values of the tensor arguments.
        captured: [(number of a value, Array)] for parameters and other tensors that the function reads.
        outputs: for each leaf of the result, an `Output` or a `_Same`.
        differentiable: for each tensor of the result, True if it requires gradients.
        upstream: numbers of the values of the gradients of the differentiable outputs.
        tensors: [(Tensor, Array, raw array, edge)] for `tensors`, before the trace.
        grads_before: [(Leaf, Array, number of a value)] for gradients before the trace.
        sources: for each gradient that backward computes, the positions of the outputs that depend on its target.
        targets: ("input", index) or ("edge", Leaf) for each gradient that backward computes.
        gradients: numbers of the values of these gradients, or None.
        grads: [(Leaf, Ref, None)]: gradients that the function itself stores.
        freed: True if the function itself ran backward through the result.
    """


class _Opaque:
    """A kernel as a kernel for TracedArrays: its functions are single steps."""

    def __init__(self, op, module):
        self.op, self.module = op, module
        real = op.by_kernel(module)
        traced = Implementation(op, _forward_of(real.forward, op.name), real.formulas, real.vjp, real.residuals)
        traced.is_kernel, traced.replays = True, real.replays
        traced.vjp = real.vjp and _opaque_formula(real.vjp, op.name)
        traced.formulas = real.formulas
        if real.formulas is not op.reference.formulas:
            traced.formulas = {name: _opaque_formula(f, op.name) for name, f in real.formulas.items()}
        elif real.vjp is op.reference.vjp:
            traced.vjp = real.vjp
        op.implementations[self] = traced

    def __getattr__(self, name):
        function = getattr(self.module, name)
        if not callable(function):
            return function
        return lambda *args, **kwargs: record_call(function, args, kwargs)

    def accepts(self, *arrays, **options):
        return self.module.accepts(*map(_value, arrays), **options)

    def is_faster(self, *arrays, **options):
        check = getattr(self.module, "is_faster", None)
        return check is None or check(*map(_value, arrays), **options)


def _value(x):
    return x.value if isinstance(x, TracedArray) else tuple(map(_value, x)) if isinstance(x, tuple) else x


class _NoKernel(Untraceable):
    """Raised if a kernel does not support the values of its arguments."""


def _forward_of(forward, name):
    def run(*args, **attrs):
        result = forward(*args, **attrs)
        if result is None:
            raise _NoKernel(f"the kernel of {name} does not support these values")
        return result

    run.__name__ = name

    def traced(xp, *raws, **attrs):
        try:
            return record_call(run, (xp, *raws), attrs)
        except _NoKernel:
            return None

    return traced


def _opaque_formula(formula, name):
    function = formula.function
    sums = formula.names.index("owned_sum") + 1 if "owned_sum" in formula.names else None

    def run(*args):
        return function(*args)

    run.__name__ = f"{name}_backward"

    def traced(*args):
        if sums is not None:
            args = (*args[:sums], None, *args[sums + 1 :])
        return record_call(run, args)

    return Formula(traced, formula.names)


class _TraceKernel:
    """The entry of a kernel in `Kernels.of["trace"]`, with the attributes of `LazyKernel`.

    Args:
        op: the op.
        kernel: the `LazyKernel`.
        smallest: smallest size of the first array for which the kernel is used, if it has no larger limit.
    """

    problem = None

    def __init__(self, op, kernel, smallest=0):
        self.op, self.kernel, self.smallest = op, kernel, smallest
        self.known = {}

    @property
    def module(self):
        real = self.kernel.module
        return real and self._opaque(real)

    def load(self):
        """Imports the kernel."""
        real = self.kernel.module or self.kernel.load()
        return real and self._opaque(real)

    @property
    def least(self):
        return max(self.kernel.least, self.smallest)

    @property
    def is_faster(self):
        check = self.kernel.is_faster
        return check and (lambda *arrays, **options: check(*map(_value, arrays), **options))

    def _opaque(self, real):
        if id(real) not in self.known:
            self.known[id(real)] = _Opaque(self.op, real)
        return self.known[id(real)]

    def better(self, *arrays, **options):
        real = self.kernel.module
        if real is None or self.kernel.better is None:
            return None
        found = self.kernel.better(*map(_value, arrays), **options)
        return found and self._opaque(found)


class _Plain:
    """The reference of an op as a kernel, so that it is one step."""

    least, is_faster, better = 0, None, None

    def __init__(self, op):
        self.module = Kernel(forward=op.forward, accepts=lambda *arrays, **options: True)


# Ops whose reference is translated to machine code, so that no kernel is used.
_FUSED = frozenset("relu leaky_relu hardtanh relu6 threshold mse_loss l1_loss smooth_l1_loss huber_loss".split())
# Ops whose reference is translated for small arrays, where the call of a kernel takes longer than the operation.
_SMALL_FUSED = frozenset(
    "sigmoid tanh silu softplus elu selu celu mish hardswish hardsigmoid logsigmoid softmax log_softmax layer_norm cross_entropy "
    "binary_cross_entropy binary_cross_entropy_with_logits".split()
)
_SMALL = 4096  # elements
_ONE_STEP = frozenset(["linalg_solve_triangular"])  # the reference of an op with many array operations is one step


@functools.cache
def register():
    """Registers the CPU kernels of all ops for TracedArrays."""
    for op in list(RECORDS.values()):
        if "cpu" in op.fused_on and op.name not in _FUSED:
            op.kernels.of["trace"] = _TraceKernel(op, op.kernels.of["cpu"], _SMALL if op.name in _SMALL_FUSED else 0)
        elif "numpy_ns" in op.forward.__code__.co_names or op.name in _ONE_STEP:  # another algorithm for NumPy's arrays
            op.kernels.of["trace"] = _TraceKernel(op, _Plain(op))
        else:
            continue
        op.fused_on = frozenset({*op.fused_on, "trace"})


class _Tracer:
    """Receives each op during a trace (`Mode.profile`), and replaces the arrays of its inputs by TracedArrays."""

    def __init__(self, tape):
        self.tape = tape
        self.arrays = {}  # id of an Array -> (Array, raw array)
        self.existing = set()  # values that existed before, so that the program changes them and not copies

    def lift(self, x):
        array = x._data if isinstance(x, Tensor) else x
        if not isinstance(array, Array) or isinstance(array._array, TracedArray):
            return
        if not self.tape.accepts(array._array):
            raise Untraceable(f"a tensor on {array.device} is used")
        self.arrays.setdefault(id(array), (array, array._array))
        array._array = self.tape.lift(array._array)

    def run(self, op, inputs, fused, attrs):
        if get_mode().saved_hooks is not None or get_mode().anomaly:
            raise Untraceable("it uses hooks on saved tensors or the detection of anomalies")
        for x in inputs:
            self.lift(x)
        with in_mode(get_mode().replace(profile=None)):
            return op.dispatch(*inputs, fused=fused, **attrs)


def _drawn(name, tape):
    original, state_of = getattr(Generator, name), Generator.get_state

    def draw(self, *args, **kwargs):
        if current_tape() is not tape:
            return original(self, *args, **kwargs)
        if name == "library":
            raise Untraceable("a distribution of NumPy's generator is drawn from")
        if self not in tape.generators:
            tape.generators[self] = state_of(self)
        bound = functools.partial(original, self)
        bound.__name__ = name
        return tape.call(bound, args, kwargs, kind="draw")

    return draw


def _drawn_subsequence(tape, original, state_of):
    def draw(self):
        if current_tape() is not tape:
            return original(self)
        if self not in tape.generators:
            tape.generators[self] = state_of(self)
        return tape.subsequence(functools.partial(original, self))

    return draw


def _refuse(name, tape):
    original = getattr(Generator, name)

    def refuse(self, *args, **kwargs):
        if current_tape() is tape:
            raise Untraceable("the state of a random generator is read or set")
        return original(self, *args, **kwargs)

    return refuse


@contextlib.contextmanager
def _recorded_draws(tape):
    """Records draws from random generators, and restores their states at the end."""
    originals = {name: getattr(Generator, name) for name in (*_DRAWS, *_STATES)}
    for name in _DRAWS:
        setattr(Generator, name, _drawn(name, tape))
    for name in _STATES:
        setattr(Generator, name, _refuse(name, tape))
    if tape.kind == "cuda":
        Generator.next_subsequence = _drawn_subsequence(tape, originals["next_subsequence"], originals["get_state"])
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(Generator, name, function)
        for generator, state in tape.generators.items():
            generator.set_state(state)


class _OnHost(Exception):
    """Raised if the update of an optimizer cannot be recorded."""


def _host_step(tape, tracer, on_host):
    """Returns the function that an optimizer calls during a trace instead of updating a group."""

    def update(optimizer, group):
        if current_tape() is not tape:
            return False
        if tape.records_updates and id(optimizer) not in on_host:
            try:
                record(optimizer, group, tracer)
                return True
            except (Untraceable, TypeError, AttributeError, ValueError) as error:
                on_host.add(id(optimizer))
                raise _OnHost from error
        params = [p for p in group["params"] if p.grad is not None]
        for p in params:
            tracer.lift(p)
            tracer.lift(p.grad)
        grads = [getattr(p.grad, "_data", p.grad)._array for p in params]

        def run():
            optimizer.update_group(group)

        run.__name__ = f"{type(optimizer).__name__}.step"
        run.params, run.optimizer, run.group = params, optimizer, group
        tape.host(run, grads, [p._data._array for p in params])
        return True

    return update


def trace(function, args, kwargs, tensors, new_tape=Tape):
    """Traces a call. It has no effect.

    Args:
        function: the function.
        args, kwargs: its arguments.
        tensors: tensors that the function can reach otherwise, such as parameters.
        new_tape: class of the tape.

    Raises:
        Untraceable: the function depends on the elements of a tensor, or does something else that a trace cannot contain.
    """
    on_host = set()  # optimizers whose updates run as usual between the steps of a replay
    while True:
        try:
            return _trace_once(function, args, kwargs, tensors, on_host, new_tape)
        except _OnHost:
            continue


def _trace_once(function, args, kwargs, tensors, on_host, new_tape):
    with _lock:
        if current_tape() is not None:
            raise Untraceable("a compiled function is called in a trace")
        tape = new_tape(user_line)
        tracer = _Tracer(tape)
        leaves, spec = tree_flatten((args, kwargs))
        edges = {}
        try:
            with (
                tape,
                _recorded_draws(tape),
                tape.replaced(),
                temporarily(hooks, update_on_host=_host_step(tape, tracer, on_host)),
            ):
                return _run(function, leaves, spec, tensors, tape, tracer, edges)
        except _OnHost:
            raise
        except Exception as error:  # the eager call reports errors of the program
            kind = "" if isinstance(error, Untraceable) else f"{type(error).__name__}: "
            raise Untraceable(f"{kind}{error} ({position_in(error, function)})") from error
        finally:
            for edge, grad in edges.items():
                edge.grad = grad
            for array, raw in tracer.arrays.values():
                array._array = raw
            tape.restore()
            for tensor_data, tensor in getattr(tracer, "owners", ()):
                tensor._data = tensor_data


class _Gradient:
    """The gradient of an argument during a trace: later arguments have other gradients, so every use of it raises an error."""

    def __getattr__(self, name):
        raise Untraceable("it uses the gradient of an argument")


def _run(function, leaves, spec, tensors, tape, tracer, edges):
    found = Trace()
    found.tape = tape
    found.inputs, inside, arguments, known = [], [], [], {}
    stored = []  # gradients of arguments that do not require gradients
    for leaf in leaves:
        if not is_tensor(leaf) or id(leaf) in known:
            inside.append(known.get(id(leaf), leaf))
            continue
        raw = leaf._data._array
        if not tape.accepts(raw):
            raise Untraceable(f"an argument is on {leaf.device}")
        traced = tape.lift(raw)
        if traced.index in found.inputs:
            raise Untraceable("two arguments share an array")
        found.inputs.append(traced.index)
        array = Array._wrap(traced)
        if isinstance(leaf, Array):
            inside.append(array)
            known[id(leaf)] = array
            continue
        tensor = known[id(leaf)] = Tensor._of(array, None)
        if leaf.requires_grad:
            tensor._edge = Leaf(traced)
            if leaf.edge.grad is not None:
                tensor._edge.grad = _Gradient()
            arguments.append((tensor._edge, tensor._edge.grad))
        elif leaf.__dict__.get("_grad") is not None:
            tensor.__dict__["_grad"] = _Gradient()
        stored.append((tensor, tensor.__dict__.get("_grad")))
        inside.append(tensor)
    tracer.owners = []
    for tensor in {id(t): t for t in tensors}.values():
        tracer.lift(tensor)
        tracer.owners.append((tensor._data, tensor))
        edge = tensor._edge
        if edge is not None and not isinstance(edge, Leaf):
            raise Untraceable("it reads a tensor with a graph that was recorded before")
        if isinstance(edge, Leaf):
            if edge not in edges:
                edges[edge] = edge.grad
            if edge.grad is not None:
                tracer.lift(edge.grad)
                if isinstance(edge.grad, Tensor):
                    raise Untraceable("a gradient has a graph")
    tracer.existing.update(tape.lifted)
    before = [(t, t._edge, t._data._array) for t in (*[x for x in inside if is_tensor(x)], *tensors)]
    found.tensors = [(t, t._data, tracer.arrays[id(t._data)][1], t._edge) for t in tensors]
    found.grads_before = [(edge, g, g._array.index) for edge, g in edges.items() if g is not None]
    args, kwargs = tree_unflatten(inside, spec)
    mode = get_mode()
    policy = mode.autocast
    if policy is not None:
        policy = Policy(policy.device_type, policy.dtype, None if policy.cache is None else {})
    with in_mode(mode.replace(autocast=policy, profile=tracer)):
        result = function(*args, **kwargs)
    changed = any(tensor.__dict__.get("_grad") is not grad for tensor, grad in stored)
    if changed or any(edge.grad is not grad for edge, grad in arguments):
        raise Untraceable("it changes the gradient of an argument")
    for tensor, edge, traced in before:
        if tensor._edge is not edge or tensor._data._array is not traced:
            raise Untraceable("it changes requires_grad, the graph or the memory of an argument or a parameter")
    outs, found.spec = tree_flatten(result)
    same = {id(t): original for t, original in zip(inside, leaves, strict=True) if is_tensor(original)}
    same.update({id(t): t for t in tensors})
    _outputs(found, outs, same, leaves, tape, tracer)
    roots = [out for out, wants in zip(outs, found.differentiable, strict=True) if wants]
    found.grads = []
    for edge, before in edges.items():
        now = edge.grad
        if now is before:
            continue
        if now is not None and (isinstance(now, Tensor) or not isinstance(now._array, TracedArray)):
            if isinstance(now, Tensor):
                raise Untraceable("a gradient has a graph")
            tracer.lift(now)
        found.grads.append((edge, None if now is None else Ref(now._array.index)))
    found.none = [edge for edge, before in edges.items() if before is None]
    found.some = [edge for edge, before in edges.items() if before is not None]
    found.forward = len(tape.steps)
    found.upstream, found.targets, found.gradients, found.freed = [], [], [], False
    found.sources = []
    if roots:
        _backward(found, roots, inside, leaves, edges, tape)
    found.captured = []
    arrays = {id(raw): array for array, raw in tracer.arrays.values()}
    inputs = {*found.inputs, *found.upstream}
    around = {tape.values[i].storage for i in found.inputs}
    used = {i for step in tape.steps for i in step.refs()}
    for index, raw in tape.lifted.items():
        if index not in inputs and index in used and tape.values[index].storage in around:
            raise Untraceable("it reads memory around an argument")
        if index not in inputs:
            found.captured.append((index, arrays.get(id(raw)) if index in tracer.existing else None, raw))
    return found


class Output:
    """An output that is computed.

    Attributes:
        index: number of the value.
        is_tensor: True for a Tensor, False for an Array.
        same: position of an earlier output that is the same object, or None.
    """

    def __init__(self, index, is_tensor, same):
        self.index, self.is_tensor, self.same = index, is_tensor, same


class View:
    """An output in the memory of another output. It is created from that output, so that both share memory.

    Attributes:
        base: position of the other output.
        shape, strides, offset: arguments of `as_strided`, in elements; the offset is relative to the other output.
        wants: True if the output requires gradients, which it gets through the other output.
    """

    def __init__(self, base, part, offset, wants):
        self.base, self.offset, self.wants = base, offset, wants
        self.shape, self.strides = part.shape, tuple(s // part.itemsize for s in part.strides)


def _offset_in(part, whole):
    """Returns the distance in elements from the start of an array that contains all elements of `part`; None for other arrays."""
    size, distance = part.itemsize, address(part) - address(whole)
    if part.dtype != whole.dtype or not is_dense(whole) or any(s < 0 or s % size for s in part.strides):
        return None
    end = distance + sum((n - 1) * s for n, s in zip(part.shape, part.strides, strict=True))
    return distance // size if distance % size == 0 and 0 <= distance <= end < whole.nbytes else None


def _outputs(found, outs, same, leaves, tape, tracer):
    """Describes the outputs. A replay returns copies, so outputs must not share memory with other tensors."""
    found.differentiable, found.outputs, earlier = [], [], {}
    outside = {tape.values[i].storage for i in found.inputs}
    outside |= {array._array.storage for array, _ in tracer.arrays.values() if isinstance(array._array, TracedArray)}
    for position, out in enumerate(outs):
        if not is_tensor(out) and not isinstance(out, (*VALUES, enum.Enum, np.generic, type)):
            raise Untraceable(f"it returns an object of type {type(out).__name__}")
        if not is_tensor(out) or id(out) in same:
            found.outputs.append(_Same(same.get(id(out), out), leaves))
            found.differentiable.append(False)
            continue
        if type(out) not in (Tensor, Array):
            raise Untraceable("it returns a subclass of Tensor")
        if isinstance(out._edge, Leaf):
            raise Untraceable("it returns a new tensor that requires gradients")
        is_new = id(out._data) not in tracer.arrays and tape.accepts(out._data._array)
        tracer.lift(out)
        traced = out._data._array
        if traced.storage in outside and not is_new:
            raise Untraceable("it returns a view of an argument or of another tensor that existed before")
        wants = isinstance(out, Tensor) and out.edge is not None
        first = next((i for i, other in earlier.items() if other is out), None)
        earlier[position] = out
        found.outputs.append(Output(traced.index, isinstance(out, Tensor), first))
        found.differentiable.append(wants and first is None)
        for i, other in earlier.items() if first is None else ():
            value = other._data._array
            if type(found.outputs[position]) is View:
                break
            if i == position or type(found.outputs[i]) is View or value.storage != traced.storage:
                continue  # an array that overlaps with a View also overlaps with its base
            if not tape.overlap(value.value, traced.value):
                continue
            if value is traced and not (wants and other.edge is not None):
                continue  # both outputs have the same Array
            _share(found, earlier, i, position)


def _share(found, outs, first, second):
    """Makes one of two outputs that share memory a View of the other one."""
    for part, whole in ((second, first), (first, second)):
        if part in {out.base for out in found.outputs if type(out) is View}:
            continue
        values = [outs[i]._data._array.value for i in (part, whole)]
        wants = [isinstance(outs[i], Tensor) and outs[i].edge is not None for i in (part, whole)]
        offset = _offset_in(*values)
        if offset is None or wants[0] > wants[1] or not all(isinstance(outs[i], Tensor) for i in (part, whole)):
            continue
        found.outputs[part] = View(whole, values[0], offset, wants[0])
        found.differentiable[part] = False
        return
    raise Untraceable("it returns tensors that share memory, and none contains the other")


class _Same:
    """An output that is not computed: an argument, a parameter, or a Python value."""

    def __init__(self, value, leaves):
        self.position = next((i for i, leaf in enumerate(leaves) if leaf is value and is_tensor(value)), None)
        self.value = None if self.position is not None else value


def _edges_behind(root):
    """Returns the edges that backward from an edge can reach. They must not have hooks or custom functions."""
    seen, todo = set(), [root]
    while todo:
        edge = todo.pop()
        if edge is None or edge in seen:
            continue
        seen.add(edge)
        if edge.hooks or edge.keeps_grad or edge in walk.node_hooks or getattr(edge, "post_hooks", None):
            raise Untraceable("a tensor has hooks")
        if getattr(getattr(edge, "plan", None), "run", None) is not None:
            raise Untraceable("it calls a custom autograd.Function")
        todo.extend(edge.parents)
    return seen


def _backward(found, roots, inside, leaves, edges, tape):
    """Adds the backward pass from the outputs to the trace."""
    targets = {}
    for i, tensor in enumerate(inside):
        if isinstance(tensor, Tensor) and is_tensor(leaves[i]) and isinstance(tensor._edge, Leaf):
            targets[tensor._edge] = ("input", i)
    for edge in edges:
        targets.setdefault(edge, ("edge", edge))
    reached = [_edges_behind(out.edge) for out in roots]
    starts = []
    for out in roots:
        g = tape.lift(tape.library.ones_like(out._data._array.value))
        found.upstream.append(g.index)
        starts.append((out.edge, g))
    result, into_leaf = {}, walk.raw.into_leaf

    def collect(leaf, g, owned):
        if current_tape() is tape:
            result[leaf] = g
        else:
            into_leaf(leaf, g, owned)

    try:
        with temporarily(walk.raw, into_leaf=collect):
            walk.run(starts)
    except GraphFreedError:
        if not all(any(getattr(edge, "saved", ()) is None for edge in behind) for behind in reached):
            raise Untraceable("it runs backward through some of its results") from None
        found.freed, found.upstream = True, []
        del tape.steps[found.forward :]
        return
    if any(step.kind == "check" for step in tape.steps[found.forward :]):
        raise Untraceable("its backward pass depends on the elements of an array")
    for edge, target in targets.items():
        g = result.get(edge)
        if g is not None:
            g = g if isinstance(g, TracedArray) else tape.lift(tape.library.asarray(g))
            found.targets.append(target)
            found.sources.append({k for k, behind in enumerate(reached) if edge in behind})
            found.gradients.append(g.index)


__all__ = ["OutputEdge", "Trace", "register", "trace", "trace_ns"]
