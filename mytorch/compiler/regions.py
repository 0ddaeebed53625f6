"""Regions: the parts of a compiled call that run as one program, `loss.backward()` and the update of a parameter group.

A region compares everything that its program depends on before it runs. If something differs, the part runs eagerly, and is
recorded as another region. So a region is never stale.

A region runs eagerly once, is then recorded, and is kept only if its program is faster than the library's own code.
"""

import math
import os
import time

import numpy as np

from ..arrays import as_device, capturing, device_of, is_raw
from ..arrays.array import Array
from ..arrays.namespaces import Namespace
from ..autograd import walk
from ..autograd.node import Leaf, Node, OutputEdge, hooked, node_hooks_of
from ..ops.dispatch.overlap import overlaps_itself
from ..ops.dispatch.record import SavePlan
from ..optim.optimizer import Optimizer
from .arrays import Tape, Untraceable, record_call
from .matching import ARRAY, Layouts, Source, Varying, described, inputs_in, items_of, markers, merged, rebuilt
from .program import Program
from .replay import Instance
from .updates import Number, State, functions_of, numbered

ndarray = np.ndarray
LARGEST = 1 << 24  # bytes of inputs; the Python code between larger arrays takes no time that matters
FASTER = 0.95  # a program must take less than this part of the eager time
MOST_EDGES = 5000


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

    what, tape, instance = "region", Tape, Instance

    def __init__(self):
        self.program = self.reason = None
        self.calls, self.free, self.checked = 0, [], checks()
        self.eager = self.compiled = math.inf  # seconds of the fastest calls

    def turn(self):
        """Returns "eager" or "program" for the next call. The first calls alternate, to measure both."""
        if self.reason is not None or (
            self.program is None and capturing.is_recording()
        ):  # a recording waits for the GPU
            return "eager"
        if self.checked:
            return "program"
        self.calls += 1
        if self.calls > 8 or (self.tape is not Tape and self.calls > 1):  # times of a GPU are not known
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

    def take(self, *arguments):
        """Returns an instance of the program that no other thread uses, or None. The arguments are those of `record`."""
        program = self.program
        if program is None and not (self.try_recording(*arguments) and (program := self.program)):
            return None
        try:
            return self.free.pop()
        except IndexError:
            return self.instance(program)

    def try_recording(self, *arguments):
        """Records the program. Returns True if that was possible."""
        try:
            with np.errstate(all="ignore"):
                self.record(*arguments)
                self.free = [self.instance(self.program)]
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


# -- backward ---------------------------------------------------------------------------------------------------------


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

    def __init__(self, roots, known=()):
        super().__init__()
        edges = reachable(roots)
        if len(edges) > MOST_EDGES:
            raise Untraceable(f"its graph has {len(edges)} edges")
        numbers = {edge: i for i, edge in enumerate(edges)}
        self.edges = []
        for edge in edges:
            kind = type(edge)
            if kind is Node and edge.plan.run is not None:
                raise Untraceable("it contains a custom autograd.Function")
            if kind is Node and type(edge.saved) is not tuple:
                raise Untraceable("it uses hooks on saved tensors, or a graph that was freed")
            plan = edge.plan if kind is Node else edge.index if kind is OutputEdge else None
            saved = described(edge.saved) if kind is Node else ()
            parents = tuple(None if p is None else numbers[p] for p in edge.parents)
            self.edges.append((kind, plan, edge.shape, edge.dtype, parents, saved))
        for region in known:  # numbers that differ become inputs
            found = region.merged_with(self.edges)
            if found is not None:
                self.edges = found
                break
        inputs = [g for _, g in roots]
        for edge, (*_, saved) in zip(edges, self.edges, strict=True):
            if saved:
                inputs_in(edge.saved, saved, inputs)
        arrays = [x for x in inputs if is_raw(x)]
        self.tape, self.instance = classes_for(arrays)
        unique = {}
        for position, array in enumerate(arrays):
            unique.setdefault(id(array), position)
        self.first = list(unique.values())
        self.repeated = {i: unique[id(a)] for i, a in enumerate(arrays) if unique[id(a)] != i}
        self.layouts = Layouts([arrays[i] for i in self.first])
        size = sum(arrays[i].nbytes for i in self.first)
        if size > LARGEST and self.tape is Tape:
            raise Untraceable(f"its arrays have {size >> 20} MiB, so that programs are not faster")
        self.compare = self._comparison(len(roots))

    def merged_with(self, edges):
        """Returns the description that this region and other edges fit; None if more than numbers differ."""
        if self.reason is not None or len(edges) != len(self.edges):
            return None
        found = []
        for (*mine, saved), (*theirs, other) in zip(self.edges, edges, strict=True):
            both = merged(other, saved) if mine == theirs else None
            if both is None:
                return None
            found.append((*theirs, both))
        return found

    def _comparison(self, roots):
        """Returns the function from roots to (edges, arrays, numbers) of a graph with this structure, or None."""
        source, numbers = Source("compare", "roots"), []
        source.add(f"{''.join(f'(e{i}, a{i}), ' for i in range(roots))} = roots")
        count, known = roots, roots
        for i, (kind, plan, shape, dtype, parents, saved) in enumerate(self.edges):
            e = f"e{i}"
            source.require(
                f"type({e}) is {source.constant(kind)}", f"{e}.shape == {source.constant(shape)}",
                f"{e}.dtype == {source.constant(dtype)}", f"not {e}.hooks",
                f"not {e}.post_hooks" if kind is Leaf else f"not {e}.keeps_grad",
            )  # fmt: skip
            if kind is Leaf:
                continue
            if kind is OutputEdge:
                source.require(f"{e}.index == {plan}")
            else:
                source.require(f"{e}.plan is {source.constant(plan)}", f"type({e}.saved) is tuple")
                source.add(f"for counter, version in {e}.versions:")
                source.add(" if counter[0] != version: return None")
                if saved:
                    source.add(f"{''.join(f'v{k}, ' for k in range(len(saved)))} = {e}.saved")
                for k, description in enumerate(saved):
                    found = markers(description)
                    if not found:
                        source.require(source.equal(f"v{k}", description))
                        continue
                    names = []
                    for marker in found:
                        if marker is ARRAY:
                            names.append(f"a{count}")
                            count += 1
                        else:
                            names.append(f"n{len(numbers)}")
                            numbers.append(names[-1])
                    if description is ARRAY:
                        source.add(f"{names[0]} = v{k}")
                    else:
                        source.add("found = []")
                        source.require(f"inputs_in(v{k}, {source.constant(description)}, found)")
                        source.add(f"{', '.join(names)}, = found")
            names = [f"p{k}" for k in range(len(parents))]
            for k, number in enumerate(parents):
                if number == known:
                    names[k], known = f"e{known}", known + 1
            if parents:
                source.add(f"{''.join(f'{name}, ' for name in names)} = {e}.parents")
            for name, number in zip(names, parents, strict=True):
                if name[0] == "p":
                    source.require(f"{name} is {None if number is None else f'e{number}'}")
        edges = "".join(f"e{i}, " for i in range(len(self.edges)))
        source.require(f"len({{{edges}}}) == {len(self.edges)}")
        for i, j in self.repeated.items():
            source.require(f"a{i} is a{j}")
        arrays, numbers = (", ".join(names) for names in ([f"a{i}" for i in self.first], numbers))
        return source.function(f"({edges}), [{arrays}], [{numbers}]")

    def match(self, roots):
        """Returns (edges, arrays, numbers) of a graph with this structure, or None."""
        found = self.compare(roots)
        if found is None or not self.layouts.hold(found[1]):
            return None
        if found[2] and self.program is not None and not self.holds(None, found[2]):
            return None
        return None if hooked.any and any(node_hooks_of(edge) is not None for edge in found[0]) else found

    def shadow(self, roots, edges, arrays, numbers, library=None, plan_of=lambda plan: plan):
        """Returns (roots, edges) of a copy of a graph with other arrays, which has its own leaves.

        Args:
            roots, edges: the graph.
            arrays: the different arrays of the copy.
            numbers: the varying numbers of the copy.
            library: the namespace of the copy; None for the same one.
            plan_of: function from a plan to the plan of the copy.
        """
        numbered = dict(zip(self.first, arrays, strict=True))
        given = iter([numbered[self.repeated.get(i, i)] for i in range(len(self.first) + len(self.repeated))])
        starts = [next(given) for _ in roots]
        copies = []

        others = iter(numbers)

        def replaced(value, description):
            if description is ARRAY:
                return next(given)
            if type(description) is Varying:
                return next(others)
            if items_of(description) is not None:
                pairs = zip(items_of(value), items_of(description), strict=True)
                return rebuilt(value, [replaced(a, b) for a, b in pairs])
            return library if isinstance(value, Namespace) and library is not None else value

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

    def record(self, roots, edges, arrays, numbers):
        """Records the program: the walk over a copy of the graph with TracedArrays."""
        tape = self.tape()
        given = [Number(f"s[{k}]", x) for k, x in enumerate(numbers)]
        starts, copies = self.shadow(roots, edges, [*map(tape.input, arrays)], given, tape.namespace, _Plans())
        with tape:
            walk.run_eagerly(starts)
        self.freed = [i for i, edge in enumerate(copies) if type(edge) is Node and edge.saved is None]
        self.leaves, results = [], []
        with tape:
            for i, edge in enumerate(copies):
                if type(edge) is Leaf and edge.grad is not None:
                    raw = edge.grad._array if hasattr(edge.grad._array, "tape") else tape.lift(edge.grad._array)
                    self.leaves.append(i)
                    results.append((raw.copy() if overlaps_itself(raw.value) else raw).index)
        program = Program(tape, results)
        if program.written:
            raise Untraceable("a formula changes a saved array")
        self.numbers, self.holds = functions_of(program)
        self.program = program

    def run(self, roots, edges, arrays, numbers, keep_graph):
        """Runs backward by the program or eagerly."""
        turn = self.turn()
        start = time.perf_counter() if self.calls < 8 else 0.0
        if turn == "program" and (instance := self.take(roots, edges, arrays, numbers)) is not None:
            try:
                grads = instance.run(arrays.copy() if self.checked else arrays, self.numbers(None, numbers))
                self.free.append(instance)
            except Untraceable as error:
                self.drop(str(error))
            except Exception:  # the eager run raises the error, if it has one
                self.drop("an error in its program")
            else:
                if self.checked:
                    self.check(roots, edges, arrays, numbers, grads)
                if not keep_graph:
                    for i in self.freed:
                        edges[i].saved, edges[i].versions = None, ()
                for i, g in zip(self.leaves, grads, strict=True):
                    edges[i].accumulate(g, True)
                self.measured("compiled", start)
                return
        walk.run_eagerly(roots, keep_graph)
        self.measured("eager", start)

    def check(self, roots, edges, arrays, numbers, grads):
        """Compares the gradients with those of an eager walk over a copy of the graph."""
        starts, copies = self.shadow(roots, edges, [self.tape.copy_of(a) for a in arrays], numbers)
        walk.run_eagerly(starts)
        expected = {
            i: edge.grad._array for i, edge in enumerate(copies) if type(edge) is Leaf and edge.grad is not None
        }
        if list(expected) != self.leaves:
            raise Wrong("backward: other leaves have gradients")
        scale = max([_largest(e) for e in expected.values()], default=0.0)
        for g, e in zip(grads, expected.values(), strict=True):
            compare("a gradient", g, e, scale)


def classes_for(arrays):
    """Returns the classes of the tape and of the instances for arrays.

    Raises:
        Untraceable: they are on several devices, or on one without support.
    """
    if all(type(a) is ndarray for a in arrays):
        return Tape, Instance
    device = device_of(arrays[0])
    if any(device_of(a) is not device for a in arrays) or device.type != "cuda" or device is not as_device("cuda"):
        raise Untraceable("it uses several devices, or a device without support")
    from .gpu import GpuInstance, GpuTape

    return GpuTape, GpuInstance


def reachable(roots):
    """Returns the edges that are reachable from the roots, breadth-first.

    Raises:
        Untraceable: an edge has hooks, or an unknown class.
    """
    edges = [edge for edge, _ in roots]
    seen = set(edges)
    if len(seen) != len(edges):
        raise Untraceable("a tensor is a root twice")
    for edge in edges:
        if type(edge) not in (Node, Leaf, OutputEdge):
            raise Untraceable(f"its graph contains a {type(edge).__name__}")
        if edge.hooks or getattr(edge, "post_hooks", None) or node_hooks_of(edge) is not None:
            raise Untraceable("a tensor has hooks")
        if edge.keeps_grad and type(edge) is not Leaf:
            raise Untraceable("a tensor retains its gradient")
        for parent in edge.parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                edges.append(parent)
    return edges


# Ops with kernels whose gradient formula in NumPy is translated to machine code.
_FUSED = frozenset("relu leaky_relu hardtanh relu6 threshold mse_loss l1_loss smooth_l1_loss huber_loss".split())


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


def _largest(array):
    return float(np.abs(array[np.isfinite(array)].astype(np.complex128)).max(initial=0.0))


def compare(what, found, expected, scale=0.0):
    """Compares an array with the eager one.

    Args:
        what: its name in the error.
        found, expected: the arrays.
        scale: size of the numbers that were added; differences of their rounding errors are accepted.

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
            tolerance = 200 * float(np.finfo(found.dtype).eps)
            equal = np.allclose(a, b, tolerance, tolerance * max(scale, _largest(b), 1.0), equal_nan=True)
    if not equal:
        raise Wrong(f"{what}: {found}, eager: {expected}")


# -- optimizers -------------------------------------------------------------------------------------------------------


class Update(Region):
    """The update of one parameter group by a rule of the library.

    Args:
        group: the parameter group.

    Attributes:
        names: for each parameter with a gradient, the names of its state except "step".
        pattern: for each parameter with a gradient, the position of its number of steps among the different ones, or None.

    Raises:
        Untraceable: the update must run eagerly.
    """

    def __init__(self, optimizer, group):
        super().__init__()
        self.what = f"{type(optimizer).__name__}.step"
        kind = type(optimizer)
        own = Optimizer.__module__.rpartition(".")[0] + "."
        if not all(f.__module__.startswith(own) for f in (kind.update, kind.numbers)):
            raise Untraceable("its class defines another update rule")
        if group.get("differentiable") or group.get("capturable") or group.get("fused"):
            raise Untraceable("it is differentiable, capturable or fused")
        self.names, self.pattern = [], []
        self.compare = self._comparison(optimizer, group)
        self.counted = [k for k in self.pattern if k is not None]
        found = self.compare(optimizer, group)
        if found is None:
            raise Untraceable(
                "its class defines another step, or its parameters, gradients or states are not arrays on the CPU"
            )
        self.arrays_are_alone = all(a.base is None for a in found[0])
        self._set_layouts(found[0], range(len(found[0])))
        if any(type(a) is not ndarray or a.dtype.kind != "f" for a in found[0]):
            raise Untraceable("its parameters are not floats on the CPU")
        size = sum(a.nbytes for a in found[0])
        if size > LARGEST:
            raise Untraceable(f"its arrays have {size >> 20} MiB, so that programs are not faster")

    def _set_layouts(self, arrays, written):
        self.layouts = Layouts(arrays, written, self.arrays_are_alone)

    def _comparison(self, optimizer, group):
        """Returns the function from (optimizer, group) to (arrays, step counters, numbers of steps, parameters), or None."""
        kind, source = type(optimizer), Source("compare", "optimizer, group")
        source.add("kind = type(optimizer)")
        source.require(
            f"kind is {source.constant(kind)}", "optimizer._found_inf is None", "not optimizer._device_states",
            f"optimizer.kernels is {source.constant(optimizer.kernels)}",
            *[f"kind.{name} is {source.constant(getattr(owner, name))}" for owner, name in (
                (kind, "update"), (kind, "numbers"), (kind, "compiled"), (Optimizer, "step"), (Optimizer, "update_group"), (Optimizer, "_update_each"),
            )],
            "optimizer.__dict__.keys().isdisjoint(('update', 'numbers', 'compiled', 'update_group', '_update_each'))",
            f"len(group) == {len(group)}",
        )  # fmt: skip
        for name, value in group.items():
            if name in ("params", "param_names"):
                continue
            text = f"group[{name!r}]"
            if type(value) is tuple:
                source.require(f"type({text}) is tuple", f"len({text}) == {len(value)}")
            for part, item in (
                [(text, value)] if type(value) is not tuple else [(f"{text}[{i}]", x) for i, x in enumerate(value)]
            ):
                if type(item) not in (float, int, bool, str, type(None)):
                    raise Untraceable(f"the option {name} is a {type(item).__name__}")
                source.require(f"type({part}) is float" if type(item) is float else source.equal(part, item))
        params = group["params"]
        source.add(
            f"{''.join(f'p{i}, ' for i in range(len(params)))} = params = group['params']" if params else "params = ()"
        )
        source.add("states = optimizer.state")
        arrays, counters, known, kept = [], [], {}, []
        leaf = source.constant(Leaf)
        for i, p in enumerate(params):
            if p.grad is None:
                source.require(f"p{i}.grad is None")
                continue
            kept.append(f"p{i}")
            source.require(f"type(p{i}._mt_edge) is {leaf}")
            arrays += (f"p{i}._mt_data._array", f"p{i}._mt_edge.grad._array")
            state = optimizer.state.get(p, {})
            names = tuple(state)
            if not names:
                source.require(f"not states.get(p{i})")
            else:
                source.add(f"s = states.get(p{i})")
                source.require(f"tuple(s) == {names!r}")
            for k, name in enumerate(names):
                if name == "step":
                    source.add(f"c{i} = s['step']._mt_data._array")
                    source.add(f"n{i} = int(c{i}.item())")
                    source.require(f"type(c{i}) is {source.constant(ndarray)}", f"c{i}.dtype.kind == 'f'")
                else:
                    source.add(f"a{i}_{k} = s[{name!r}]._mt_data._array")
                    arrays.append(f"a{i}_{k}")
            self.names.append(tuple(name for name in names if name != "step"))
            if "step" in names:
                number = int(state["step"]._mt_data._array)
                if number in known:
                    source.require(f"n{i} == n{known[number][1]}")
                else:
                    known[number] = len(known), i
                self.pattern.append(known[number][0])
                counters.append(f"c{i}")
            else:
                self.pattern.append(None)
        steps = "".join(f"n{i}, " for _, i in known.values())
        return source.function(
            f"[{', '.join(arrays)}], ({''.join(f'{c}, ' for c in counters)}), ({steps}), ({''.join(f'{p}, ' for p in kept)})"
        )

    def match(self, optimizer, group):
        """Returns (arrays, step counters, numbers of steps, parameters) of a group with this form, or None."""
        found = self.compare(optimizer, group)
        if found is None or not self.layouts.hold(found[0]):
            return None
        # The program changes arrays and step counters, so they must not share memory.
        memory = [*map(id if self.arrays_are_alone else _memory, found[0]), *map(_memory, found[1])]
        if len({*memory}) != len(memory) or 0 in memory:
            return None
        return found if self.program is None or self.holds(group, found[2]) else None

    def record(self, optimizer, group, arrays, steps):
        """Records the program: the rule runs on TracedArrays, and decides by the current numbers."""
        tape = Tape()
        inputs = iter([*map(tape.input, arrays)])
        members = [
            (next(inputs), next(inputs), {name: Array._wrap(next(inputs)) for name in names}) for names in self.names
        ]
        options = numbered(group)
        with tape:
            for (p, g, values), k in zip(members, self.pattern, strict=True):
                step = None if k is None else Number(f"s[{k}]", steps[k])
                optimizer.update(p, -g if group.get("maximize") else g, State(values, step), options)
        program = Program(tape, [])
        if not {g.storage for _, g, _ in members}.isdisjoint(program.written):
            raise Untraceable("the rule changes a gradient")
        self.numbers, self.holds = functions_of(program)
        self._set_layouts(
            arrays, [k for k, i in enumerate(program.inputs) if program.values[i].storage in program.written]
        )
        self.program = program

    def run(self, optimizer, group, arrays, counters, steps, params):
        """Updates the group by the program or eagerly."""
        turn = self.turn()
        start = time.perf_counter() if self.calls < 8 else 0.0
        if turn == "program" and (instance := self.take(optimizer, group, arrays, steps)) is not None:
            expected = self._updated(optimizer, group, arrays, steps) if self.checked else None
            instance.run(arrays.copy() if self.checked else arrays, self.numbers(group, steps))
            self.free.append(instance)
            for counter, k in zip(counters, self.counted, strict=True):
                counter.fill(steps[k] + 1)
            for p in params:
                p._mt_data._bump()
            for found, array in zip(arrays, expected or (), strict=False):
                compare(self.what, found, array)
            self.measured("compiled", start)
            return
        optimizer.update_group(group)
        self.measured("eager", start)

    def _updated(self, optimizer, group, arrays, steps):
        """Returns the arrays as an eager update would change them."""
        copies = iter(found := [a.copy("K") for a in arrays])
        for names, k in zip(self.names, self.pattern, strict=True):
            p, g = next(copies), next(copies)
            state = {name: Array._wrap(next(copies)) for name in names}
            if k is not None:
                state["step"] = Array._wrap(np.array(steps[k], np.float32))
            optimizer.update(p, -g if group.get("maximize") else g, state, group)
        return found


def _memory(array):
    """Returns the id of the array that owns the memory of an array, or 0 if something else owns it."""
    while isinstance(array.base, ndarray):
        array = array.base
    return id(array) if array.base is None else 0
