"""Regions: the parts of a compiled call that run as one program, `loss.backward()` and the update of a parameter group.

A region compares everything that its program depends on before it runs. If something differs, the part runs eagerly, and is
recorded as another region. So a region is never stale.

A region runs eagerly once, is then recorded, and is kept only if its program is faster than the library's own code.
"""

import math
import os
import time

import numpy as np

from .._array import Array
from ..backend import gpu as devices
from ..backend import numpy_ns
from ..backend.namespaces import Namespace
from ..dispatch.record import SavePlan
from ..engine import walk
from ..engine.node import Leaf, Node, OutputEdge, node_hooks
from ..optim.optimizer import Optimizer
from .arrays import Tape, Untraceable, record_call, trace_ns
from .program import Program
from .replay import Instance
from .updates import Number, State, functions_of, numbered, traced

ndarray = np.ndarray
LARGEST = 1 << 26  # bytes of inputs; the Python code between larger arrays takes no time that matters
FASTER = 0.95  # a program must take less than this part of the eager time
_ARRAY = object()  # stands for an array in the description of saved values
_ATOMS = (int, bool, str, type(None), type(...), type, np.dtype)


def checks():
    """Returns True if each region also runs eagerly, on copies, and its results are compared: `MYTORCH_COMPILE_CHECK=1`."""
    return os.environ.get("MYTORCH_COMPILE_CHECK") == "1"


class Wrong(AssertionError):
    """Raised with `MYTORCH_COMPILE_CHECK=1` if the results of a region differ from the eager ones."""


class Region:
    """A part of a program that is recorded, and the choice between its program and eager execution.

    Attributes:
        program: the program, or None.
        reason: the reason for which the region runs eagerly, or None.
    """

    what = "region"

    def __init__(self):
        self.program = self.reason = None
        self.calls, self.free = 0, []
        self.eager = self.compiled = math.inf  # seconds of the fastest calls

    def turn(self):
        """Returns "eager" or "program" for the next call. The first calls alternate, to measure both."""
        if self.reason is not None:
            return "eager"
        self.calls += 1
        if self.calls > 8:
            return "program"
        if self.calls == 8 and self.compiled > self.eager * FASTER:
            self.drop("the library's own code is as fast")
            return "eager"
        return "eager" if self.calls in (1, 4, 6) else "program"

    def drop(self, reason):
        """Makes the region run eagerly, and frees its program."""
        self.reason, self.program, self.free = reason, None, []

    def measured(self, kind, start):
        """Notes the time of a call. The first calls of both kinds are not counted."""
        if 2 < self.calls < 8:
            setattr(self, kind, min(getattr(self, kind), time.perf_counter() - start))

    def execute(self, arrays, numbers=()):
        """Runs the program on raw arrays. Returns its results.

        Args:
            arrays: the inputs.
            numbers: see `updates.py`.
        """
        instance = self.free.pop() if self.free else Instance(self.program)
        found = instance.run(arrays, numbers)
        self.free.append(instance)
        return found

    def try_recording(self, *arguments):
        """Records the program. Returns True if that was possible."""
        try:
            with np.errstate(all="ignore"):
                self.record(*arguments)
                self.free = [Instance(self.program)]
        except Untraceable as error:
            self.drop(str(error))
        except Exception as error:  # in a formula, or in the compiler: a processor that LLVM does not know
            self.drop(f"{type(error).__name__}: {error}")
        return self.program is not None

    def __str__(self):
        if self.reason is not None:
            return f"{self.what}: runs eagerly: {self.reason}"
        if self.program is None:
            return f"{self.what}: not recorded yet"
        return f"{self.what}: a program of {len(self.program.steps)} operations"


def same(a, b):
    """Returns True if two values are equal in type and bits."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is float:
        return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
    if kind is tuple or kind is list:
        return len(a) == len(b) and all(map(same, a, b))
    if kind is slice:
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if kind is complex:
        return same((a.real, a.imag), (b.real, b.imag))
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return isinstance(a, _ATOMS) and a == b


def layouts_of(arrays):
    """Returns what machine code depends on."""
    return [(a.shape, a.strides, a.dtype) for a in arrays]


# -- backward ---------------------------------------------------------------------------------------------------------


def described(value):
    """Returns the description of a saved value: the value itself, with `_ARRAY` for arrays.

    Raises:
        Untraceable: the value is an object of an unknown type.
    """
    if type(value) is ndarray:
        return _ARRAY
    if type(value) in (tuple, list):
        return type(value)(map(described, value))
    if type(value) is slice:
        return slice(described(value.start), described(value.stop), described(value.step))
    if isinstance(value, (*_ATOMS, float, complex, np.generic, Namespace)):
        return value
    raise Untraceable(f"an operation saves an object of type {type(value).__name__}")


def _matches(value, description, arrays):
    """Returns True if a saved value has a description. Appends its arrays to `arrays`."""
    if description is _ARRAY:
        arrays.append(value)
        return type(value) is ndarray
    if type(value) in (tuple, list):
        pairs = zip(value, description, strict=False)
        return (
            type(value) is type(description)
            and len(value) == len(description)
            and all(_matches(a, b, arrays) for a, b in pairs)
        )
    return same(value, description)


class Backward(Region):
    """Backward from given roots, over a graph of one structure.

    Args:
        roots: pairs (edge, gradient).

    Attributes:
        edges: a description of each edge that is reachable from the roots: (class, plan or index, shape, dtype, numbers of
            the parents, saved values).
        layouts: shape, strides and dtype of each array.
        first: position of the first occurrence of each array.
    """

    what = "backward"

    def __init__(self, roots):
        super().__init__()
        edges = reachable(roots)
        numbers = {edge: i for i, edge in enumerate(edges)}
        arrays = [g for _, g in roots]
        self.edges = []
        for edge in edges:
            kind = type(edge)
            if kind is Node and edge.plan.run is not None:
                raise Untraceable("it contains a custom autograd.Function")
            plan = edge.plan if kind is Node else edge.index if kind is OutputEdge else None
            saved = None
            if kind is Node:
                if type(edge.saved) is not tuple:
                    raise Untraceable("it uses hooks on saved tensors, or a graph that was freed")
                saved = described(edge.saved)
                _matches(edge.saved, saved, arrays)
            parents = tuple(None if p is None else numbers[p] for p in edge.parents)
            self.edges.append((kind, plan, edge.shape, edge.dtype, parents, saved))
        if any(type(a) is not ndarray for a in arrays):
            raise Untraceable("it uses arrays of several devices")
        unique = {}
        for position, array in enumerate(arrays):
            unique.setdefault(id(array), position)
        self.first = list(unique.values())
        self.repeated = [(i, unique[id(a)]) for i, a in enumerate(arrays) if unique[id(a)] != i]
        self.layouts = layouts_of(arrays)
        self.roots = len(roots)
        self.size = sum(arrays[i].nbytes for i in self.first)
        if self.size > LARGEST:
            raise Untraceable(f"its arrays have {self.size >> 20} MiB, so that programs are not faster")
        self.nodes = [i for i, edge in enumerate(self.edges) if edge[0] is Node]

    def match(self, roots):
        """Returns (edges, arrays) of a graph with this structure, or (None, None)."""
        edges, arrays = [edge for edge, _ in roots], [g for _, g in roots]
        if len(edges) != self.roots:
            return None, None
        for i, (kind, plan, shape, dtype, parents, saved) in enumerate(self.edges):
            edge = edges[i]
            if (
                type(edge) is not kind
                or edge.shape != shape
                or edge.dtype != dtype
                or edge.hooks
                or (edge.keeps_grad and kind is not Leaf)
            ):
                return None, None
            if kind is Leaf:
                if edge.post_hooks:
                    return None, None
                continue
            if kind is Node:
                if edge.plan is not plan or type(edge.saved) is not tuple:
                    return None, None
                for counter, version in edge.versions:
                    if counter[0] != version:
                        return None, None
                for value, description in zip(edge.saved, saved, strict=False):
                    if description is _ARRAY:
                        if type(value) is not ndarray:
                            return None, None
                        arrays.append(value)
                    elif value is not description and not _matches(value, description, arrays):
                        return None, None
            elif edge.index != plan:
                return None, None
            if len(edge.parents) != len(parents):
                return None, None
            for parent, number in zip(edge.parents, parents, strict=False):
                if number is None or parent is None:
                    if parent is not number:
                        return None, None
                elif number == len(edges):
                    edges.append(parent)
                elif number > len(edges) or edges[number] is not parent:
                    return None, None
        if len(edges) != len(self.edges) or len(set(edges)) != len(edges) or layouts_of(arrays) != self.layouts:
            return None, None
        for i, j in self.repeated:
            if arrays[i] is not arrays[j]:
                return None, None
        if node_hooks.data and any(edge in node_hooks for edge in edges):
            return None, None
        return edges, arrays

    def shadow(self, roots, edges, arrays, library=None, plan_of=lambda plan: plan):
        """Returns (roots, edges) of a copy of a graph with other arrays, which has its own leaves.

        Args:
            roots, edges: the graph.
            arrays: the arrays of the copy.
            library: the namespace of the copy; None for the same one.
            plan_of: function from a plan to the plan of the copy.
        """
        given = iter(arrays)
        starts = [next(given) for _ in roots]
        copies = []

        def replaced(value, description):
            if description is _ARRAY:
                return next(given)
            if type(description) in (tuple, list):
                return type(value)(replaced(a, b) for a, b in zip(value, description, strict=True))
            return library if value is numpy_ns and library is not None else value

        for edge, (kind, _, _, _, _, saved) in zip(edges, self.edges, strict=True):
            if kind is Leaf:
                copies.append(Leaf(edge))
            elif kind is OutputEdge:
                copies.append(OutputEdge(None, edge.index, edge.shape, edge.dtype))
            else:
                values = replaced(edge.saved, saved)
                copies.append(Node(edge.op, plan_of(edge.plan), (), values, (), edge.shape, edge.dtype))
        for edge, (kind, _, _, _, parents, _) in zip(copies, self.edges, strict=True):
            if kind is not Leaf:
                edge.parents = tuple(None if i is None else copies[i] for i in parents)
            if kind is OutputEdge:
                edge.node = edge.parents[0]
        return list(zip(copies[: len(roots)], starts, strict=True)), copies

    def record(self, roots, edges, arrays):
        """Records the program: the walk over a copy of the graph with TracedArrays."""
        tape = Tape()
        inputs = {i: tape.input(arrays[i]) for i in self.first}
        repeated = dict(self.repeated)
        lifted = [inputs[repeated.get(i, i)] for i in range(len(arrays))]
        starts, copies = self.shadow(roots, edges, lifted, trace_ns, _Plans())
        with tape:
            walk.run_eagerly(starts, keep_graph=True)
        self.leaves, results = [], []
        for i, edge in enumerate(copies):
            if type(edge) is Leaf and edge.grad is not None:
                raw = edge.grad._array
                self.leaves.append(i)
                results.append(raw.index if hasattr(raw, "tape") else tape.lift(raw).index)
        program = Program(tape, results)
        if program.written:
            raise Untraceable("a formula changes a saved array")
        self.program = program

    def run(self, roots, edges, arrays, keep_graph):
        """Runs backward by the program or eagerly."""
        turn = self.turn()
        start = time.perf_counter()
        if turn == "program" and (self.program is not None or self.try_recording(roots, edges, arrays)):
            try:
                grads = self.execute([arrays[i] for i in self.first])
            except Untraceable as error:
                self.drop(str(error))
            except Exception:  # the eager run raises the error, if it has one
                self.drop("an error in its program")
            else:
                if checks():
                    self.check(roots, edges, arrays, grads)
                if not keep_graph:
                    for i in self.nodes:
                        edges[i].release()
                for i, g in zip(self.leaves, grads, strict=True):
                    edges[i].accumulate(g, True)
                self.measured("compiled", start)
                return
        walk.run_eagerly(roots, keep_graph)
        self.measured("eager", start)

    def check(self, roots, edges, arrays, grads):
        """Compares the gradients with those of an eager walk over a copy of the graph."""
        starts, copies = self.shadow(roots, edges, [a.copy("K") for a in arrays])
        walk.run_eagerly(starts, keep_graph=True)
        expected = {i: edge.grad._array for i, edge in enumerate(copies) if type(edge) is Leaf and edge.grad is not None}
        if list(expected) != self.leaves:
            raise Wrong("backward: other leaves have gradients")
        for g, e in zip(grads, expected.values(), strict=True):
            compare("a gradient", g, e)


def reachable(roots):
    """Returns the edges that are reachable from the roots, breadth-first.

    Raises:
        Untraceable: an edge has hooks, or a class of its own.
    """
    edges = [edge for edge, _ in roots]
    seen = set(edges)
    if len(seen) != len(edges):
        raise Untraceable("a tensor is a root twice")
    for edge in edges:
        if type(edge) not in (Node, Leaf, OutputEdge):
            raise Untraceable(f"its graph contains a {type(edge).__name__}")
        if edge.hooks or getattr(edge, "post_hooks", None) or edge in node_hooks:
            raise Untraceable("a tensor has hooks")
        if edge.keeps_grad and type(edge) is not Leaf:
            raise Untraceable("a tensor retains its gradient")
        for parent in edge.parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                edges.append(parent)
    return edges


# Ops with kernels whose gradient formula in NumPy is translated to machine code, and those where that is better for few elements.
_FUSED = frozenset("relu leaky_relu hardtanh relu6 threshold mse_loss l1_loss smooth_l1_loss huber_loss".split())
_SMALL_FUSED = frozenset(
    "sigmoid tanh silu softplus elu selu celu mish hardswish hardsigmoid logsigmoid softmax log_softmax layer_norm cross_entropy "
    "binary_cross_entropy binary_cross_entropy_with_logits".split()
)


class _Plans:
    """Returns the plans of a recorded walk: the formulas of kernels are single steps."""

    def __init__(self):
        self.known = {}

    def __call__(self, plan):
        if plan not in self.known:
            self.known[plan] = _recorded_plan(plan)
        return self.known[plan]


def _recorded_plan(plan):
    implementation, op = plan.implementation, plan.op
    if not implementation.is_kernel:
        return plan
    reference = op.reference
    if op.name in _FUSED and not implementation.replays and plan.owned_sum is None:
        vjp, arguments, formulas = plan.recorded
    else:
        vjp, arguments, formulas = plan.vjp, plan.vjp_arguments, plan.formulas
        own = {f.function for f in reference.formulas.values()} | ({reference.vjp.function} if reference.vjp else set())
        vjp = vjp if vjp is None or vjp in own else _opaque(vjp, op.name, plan, arguments)
        formulas = tuple(
            (i, f if f in own else _opaque(f, op.name, plan, positions), positions) for i, f, positions in formulas
        )
    found = object.__new__(SavePlan)
    found.__dict__.update(plan.__dict__)
    found.vjp, found.vjp_arguments, found.formulas = vjp, arguments, formulas
    return found


def _opaque(function, name, plan, arguments):
    """Returns a formula of a kernel as a function that is recorded as one step."""
    sums = 1 + arguments.index(plan.owned_sum) if plan.owned_sum in arguments else None

    def run(*args):
        return function(*args)

    run.__name__, run.opaque = f"{name}_backward", True

    def recorded(*args):
        if sums is not None:
            args = (*args[:sums], None, *args[sums + 1 :])
        return record_call(run, args)

    return recorded


def compare(what, found, expected):
    """Compares an array with the eager one.

    Raises:
        Wrong: they differ by more than rounding.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise Wrong(f"{what}: {found.dtype}{found.shape}, eager: {expected.dtype}{expected.shape}")
    if found.dtype.kind not in "fc":
        equal = (found == expected).all()
    else:
        wide = np.complex128 if found.dtype.kind == "c" else np.float64
        a, b = found.astype(wide), expected.astype(wide)
        with np.errstate(all="ignore"):
            scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
            tolerance = 200 * float(np.finfo(found.dtype).eps)
            equal = np.allclose(a, b, tolerance, tolerance * scale, equal_nan=True)
    if not equal:
        raise Wrong(f"{what}: {found}, eager: {expected}")


# -- optimizers -------------------------------------------------------------------------------------------------------


class Update(Region):
    """The update of one parameter group by a rule of the library.

    Args:
        group: the `Group`.
    """

    def __init__(self, group):
        super().__init__()
        self.what = f"{type(group.optimizer).__name__}.step"
        self.function, self.options, self.names = group.function, group.constants, group.names
        self.layouts, self.pattern = layouts_of(group.arrays), group.pattern
        size = sum(a.nbytes for a in group.arrays)
        if size > LARGEST:
            raise Untraceable(f"its arrays have {size >> 20} MiB, so that programs are not faster")

    def accepts(self, group):
        """Returns True if a group has this form."""
        if (
            group.function is not self.function
            or group.names != self.names
            or group.pattern != self.pattern
            or not same(group.constants, self.options)
            or layouts_of(group.arrays) != self.layouts
        ):
            return False
        return self.program is None or self.holds(group.group, group.steps)

    def record(self, group):
        """Records the program: the rule runs on TracedArrays."""
        tape = Tape()
        options, optimizer = numbered(group.group), group.optimizer
        members = []
        for k, (p, g, state) in enumerate(group.members):
            raw, grad = tape.input(p), tape.input(g)
            members.append((raw, grad, {n: traced(state[n], tape) for n in group.names[k] if n != "step"}))
        with tape:
            for k, (raw, grad, values) in enumerate(members):
                step = group.number_of_steps(k)
                if step is not None:
                    values["step"] = step
                optimizer.update(raw, -grad if group.group.get("maximize") else grad, State(values, step), options)
        program = Program(tape, [])
        grads = {program.values[i].storage for i in group.gradients(program.inputs)}
        if not program.written.isdisjoint(grads):
            raise Untraceable("the rule changes a gradient")
        self.numbers, self.holds = functions_of(program)
        self.written = [
            k for k, i in enumerate(program.inputs) if program.values[i].storage in program.written
        ]  # fmt: skip
        self.program = program

    def run(self, group):
        """Updates the group by the program or eagerly."""
        turn = self.turn()
        start = time.perf_counter()
        if turn == "program" and (self.program is not None or self.try_recording(group)):
            if group.is_separate(self.written):
                expected = group.updated() if checks() else None
                self.execute(list(group.arrays), self.numbers(group.group, group.steps))
                group.finish()
                for found, array in zip(group.arrays, expected or (), strict=expected is not None):
                    compare(self.what, found, array)
                self.measured("compiled", start)
                return
        group.optimizer.update_group(group.group)
        self.measured("eager", start)


class Group:
    """A parameter group with everything that its update depends on.

    Attributes:
        function: the update rule.
        constants: the options except floats, which are read in each step.
        members: (raw parameter, raw gradient, state) of each parameter with a gradient.
        names: for each of them, the names of its state.
        arrays: all arrays.
        steps: the different numbers of finished steps.
        pattern: for each parameter, the position of its number in `steps`.

    Raises:
        Untraceable: the update must run eagerly.
    """

    def __init__(self, optimizer, group):
        kind = type(optimizer)
        self.optimizer, self.group, self.function = optimizer, group, kind.update
        own = optimizer.__dict__
        if (
            kind.update_group is not Optimizer.update_group
            or kind._update_each is not Optimizer._update_each
            or kind.step is not Optimizer.step
            or not kind.update.__module__.startswith(Optimizer.__module__.rpartition(".")[0] + ".")
            or not own.keys().isdisjoint(("update", "update_group", "_update_each", "kernels"))
        ):
            raise Untraceable("it has a step or an update rule of its own")
        if optimizer._found_inf is not None or optimizer._device_states or devices.several_gpus:
            raise Untraceable("it runs on a GPU")
        if group.get("differentiable") or group.get("capturable") or group.get("fused"):
            raise Untraceable("it is differentiable, capturable or fused")
        self.constants = [
            (name, _constant(value)) for name, value in group.items() if name not in ("params", "param_names")
        ]
        self.members, self.names, self.arrays, self.params = [], [], [], []
        self.steps, self.pattern, self.counters = [], [], []
        states, known = optimizer.state, {}
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            raw, g, state = p._data._array, grad._data._array, states.get(p, {})
            self.arrays += (raw, g)
            for name, value in state.items():
                if name != "step":
                    self.arrays.append(value._data._array)
            if "step" in state:
                counter = state["step"]._data._array
                number = int(counter)
                self.counters.append((counter, number + 1))
                if number not in known:
                    known[number] = len(self.steps)
                    self.steps.append(number)
                self.pattern.append(known[number])
            else:
                self.pattern.append(None)
            self.params.append(p)
            self.members.append((raw, g, state))
            self.names.append(tuple(state))
        if not all(type(a) is ndarray and a.dtype.kind == "f" for a in self.arrays):
            raise Untraceable("its parameters, gradients or states are not floats on the CPU")
        if not all(type(c) is ndarray and c.dtype.kind == "f" and c.ndim == 0 for c, _ in self.counters):
            raise Untraceable("its number of steps is not an array")

    def number_of_steps(self, k):
        """Returns the number of finished steps of a parameter as a Number, or None."""
        i = self.pattern[k]
        return None if i is None else Number(f"s[{i}]", self.steps[i])

    def gradients(self, inputs):
        """Returns the inputs that are gradients."""
        found, position = [], 0
        for names in self.names:
            found.append(inputs[position + 1])
            position += 2 + len(names) - ("step" in names)
        return found

    def is_separate(self, written):
        """Returns True if the arrays that the program changes are writable, and share no memory with others."""
        arrays = self.arrays
        if not all(arrays[k].flags.writeable for k in written):
            return False
        owners = arrays if all(a.base is None for a in arrays) else [_memory(a) for a in arrays]
        return not any(a is None for a in owners) and len(set(map(id, owners))) == len(owners)

    def finish(self):
        """Counts the step."""
        for counter, number in self.counters:
            counter.fill(number)
        for p in self.params:
            p._data._bump()

    def updated(self):
        """Returns the arrays as an eager update would change them."""
        found = []
        for raw, g, state in self.members:
            p, grad = raw.copy("K"), g.copy("K")
            copies = {name: Array._wrap(value._data._array.copy("K")) for name, value in state.items()}
            self.optimizer.update(p, -grad if self.group.get("maximize") else grad, copies, self.group)
            found += (p, grad, *[value._data._array for name, value in copies.items() if name != "step"])
        return found


def _constant(value):
    """Returns an option without its floats, which are inputs of the program.

    Raises:
        Untraceable: the option is an object of an unknown type.
    """
    if type(value) is float:
        return float
    if type(value) is tuple:
        return tuple(map(_constant, value))
    if type(value) in (int, bool, str, type(None)):
        return value
    raise Untraceable(f"an option is a {type(value).__name__}")


def _memory(array):
    """Returns the array that owns the memory of an array, or None if something else owns it."""
    while isinstance(array.base, ndarray):
        array = array.base
    return array if array.base is None else None
