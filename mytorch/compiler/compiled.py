"""Compiled functions: `mytorch.compile` and `mytorch.compile_step`."""

import copy
import functools
import operator
import threading
import types
import weakref

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..backend import as_device, device_of
from ..base import capturing, dtypes
from ..base.pytree import tree_flatten, tree_unflatten
from ..engine import walk
from ..engine.mode import get_mode
from ..engine.node import Node
from ..nn.module import Module
from ..ops.creation import is_tensor
from ..ops.shapes import as_strided
from .arrays import Tape, Untraceable, current_tape, owner
from .gpu import GpuInstance, GpuTape
from .guards import TooMuch, guards_of
from .observe import Observer, executed_by, position_of
from .program import Program, listing
from .replay import Different, Instance
from .tracing import Output, View, register, trace

MOST = 8  # traces of one form of the arguments; further ones run eagerly
TRIES = 3  # eager calls that may have side effects, such as filling caches, before a function stays eager
SHORT = 16  # a part with fewer steps runs eagerly: the checks before a replay take longer than the steps
# Names in programs that differentiate twice, which compiled functions do not support.
_TWICE = frozenset("create_graph hessian hvp vhp jacobian vjp jvp gradcheck gradgradcheck".split())
_all = weakref.WeakSet()
stance = ["default"]  # see `set_stance`


_data, _raw, _edge, _grad = map(operator.attrgetter, ("_data", "_array", "_edge", "grad"))


def _identical(found, expected):
    return all(map(operator.is_, found, expected))


def _distinct(leaves):
    """Returns the tensors among the arguments. A tensor that is given twice occurs once."""
    return list({id(leaf): leaf for leaf in leaves if is_tensor(leaf)}.values())


class _Entry:
    """One trace of a function, with the conditions under which it is valid.

    Attributes:
        guards: the Python values that the function read.
        program: the program.
        free: instances that no call uses.
    """

    def __init__(self, found, guards):
        self.guards, self.program = guards, Program(found)
        self.spec, self.differentiable, self.freed = found.spec, found.differentiable, found.freed
        self.none, self.some = found.none, found.some
        self.free = []
        program = self.program
        tape = found.tape
        self.conditions = list(tape.conditions.values())
        for states, p, state, values in tape.states:  # the state of optimizers
            if state:
                guards.add(states, p, state)
            if values:
                guards.lengths.append((state, len(values)))
            for name, value in values.items():
                guards.add(state, name, value)
        for group, options in tape.groups:
            for name, value in options.items():
                guards.add(group, name, value)
        guards.prepare()
        self.tensors = tuple(zip(*found.tensors, strict=True)) or ((), (), (), ())
        self.leaves = [edge for edge in self.tensors[3] if edge is not None]
        self.nothing = [None] * max(len(self.none), len(self.some))
        self.grads_read = [
            (edge, array, array._array)
            for edge, array, index in found.grads_before
            if program.uses(program.values[index].storage)
        ]
        written = {s for step in program.steps for s in step.writes}
        values = program.values
        self.bumped = [
            array for index, array, _ in program.captured if array is not None and values[index].storage in written
        ]
        self.inputs_back = [k for k, index in enumerate(program.inputs) if values[index].storage in written]
        self.on_gpu = found.tape.kind == "cuda"
        self.read = {id(owner(raw)) for _, _, raw in program.captured}
        self.changed = {id(owner(raw)) for index, _, raw in program.captured if values[index].storage in written}
        backward = {i for step in program.steps[program.forward :] for i in step.refs()}
        storages = {values[i].storage for i in backward}
        self.watched = [
            array for index, array, _ in program.captured if array is not None and values[index].storage in storages
        ]
        self.saved = [k for k, index in enumerate(program.inputs) if values[index].storage in storages]
        self.copies_grads = False
        self.free.append(self._new_instance())
        kinds = [step.kind for step in program.steps]
        self.repeats_draws = list(tape.generators) if "check" in kinds else ()
        last = max((k for k, kind in enumerate(kinds) if kind == "check"), default=0)
        before = {s for step in program.steps[:last] for s in step.writes}
        # memory that is changed before a check, which restores it if the check fails
        self.undone = {
            id(raw): raw
            for index, array, raw in program.captured
            if array is not None and values[index].storage in before
        }.values()

    def holds(self):
        """Returns True if the trace is valid now."""
        tensors, arrays, raws, edges = self.tensors
        if not (
            _identical(map(_data, tensors), arrays)
            and _identical(map(_raw, arrays), raws)
            and _identical(map(_edge, tensors), edges)
            and _identical(map(_grad, self.none), self.nothing)
            and not any(map(operator.is_, map(_grad, self.some), self.nothing))
        ):
            return False
        for edge in self.leaves:
            if edge.hooks or edge.post_hooks:
                return False
        for edge, array, raw in self.grads_read:
            if edge.grad is not array or array._array is not raw:
                return False
        for compute, compare, other, result in self.conditions:
            if compare(compute(), other) is not result:
                return False
        return self.guards.hold()

    def accepts(self, leaves):
        """Returns False if the program changes memory that an argument shares with other arrays of the program."""
        if not self.inputs_back and not self.changed:
            return True
        roots = [id(owner(leaf._data._array)) for leaf in _distinct(leaves)]
        return self.changed.isdisjoint(roots) and (
            not self.inputs_back or (len(set(roots)) == len(roots) and self.read.isdisjoint(roots))
        )

    def instance(self):
        """Returns memory for a call."""
        if self.free:
            instance = self.free.pop()
            if not self._holds_grads(instance):
                return instance
            self.copies_grads = True  # the memory of the gradients now belongs to the user
        return self._new_instance()

    def _new_instance(self):
        return GpuInstance(self.program) if self.on_gpu else Instance(self.program)

    # -- one call ----------------------------------------------------------------------------------------------

    def run(self, leaves):
        """Runs the program on the arguments and returns the result."""
        program = self.program
        instance = self.instance()
        given = [leaf._data for leaf in _distinct(leaves)]
        undone = [(raw, raw.copy()) for raw in self.undone]
        try:
            instance.run_forward([array._array for array in given])
        except Exception:  # the call runs eagerly now
            for raw, copy_before in undone:
                raw[...] = copy_before
            for raw in program.counters:
                raw -= 1
            self.free.append(instance)
            raise
        for k in self.inputs_back:
            instance.store_input(k, given[k]._array)
            given[k]._bump()
        for array in self.bumped:
            array._bump()
        self._store_grads(instance)
        data, outs = {}, []
        for out in program.outputs:
            if type(out) is View or getattr(out, "same", None) is not None:
                outs.append(None)  # see `_share_memory`
                continue
            if type(out) is not Output:
                outs.append(out.value if out.position is None else leaves[out.position])
                continue
            if out.index not in data:
                data[out.index] = Array._wrap(instance.result(out.index))
            outs.append(Tensor._of(data[out.index]) if out.is_tensor else data[out.index])
        if any(self.differentiable):
            self._record(instance, outs, leaves, given)
        else:
            self._release(instance)
        self._share_memory(outs)
        return tree_unflatten(outs, self.spec)

    def _share_memory(self, outs):
        """Adds the outputs that are views of other outputs, or the same tensors."""
        for position, out in enumerate(self.program.outputs):
            if type(out) is View:
                base = outs[out.base] if out.wants else outs[out.base].detach()
                outs[position] = as_strided(base, out.shape, out.strides, base.storage_offset() + out.offset)
        for position, out in enumerate(self.program.outputs):
            if type(out) is Output and out.same is not None:
                outs[position] = outs[out.same]

    def _release(self, instance):
        """Makes an instance available for other calls."""
        instance.release()
        self.free.append(instance)

    def _holds_grads(self, instance):
        """Returns True if the user keeps gradients in the memory of an instance, which this call would overwrite."""
        for k, (edge, _) in enumerate(self.program.grads) if instance.grads else ():
            if instance.grads[k] is not None:
                wrapped, raw, block = instance.count(k)
                expected = instance.counts[k]
                if wrapped - (edge.grad is instance.grads[k]) > expected[0] or raw > expected[1] or block > expected[2]:
                    return True
        return False

    def _store_grads(self, instance):
        for k, (edge, ref) in enumerate(self.program.grads):
            if ref is None:
                edge.grad = None
                continue
            if self.on_gpu or self.copies_grads:
                edge.grad = Array._wrap(instance.result(ref.index))
                continue
            if instance.grads is None:
                instance.grads, instance.counts = ([None] * len(self.program.grads) for _ in range(2))
            if instance.grads[k] is None or instance.grads[k]._array is not instance.arrays[ref.index]:
                instance.grads[k] = Array._wrap(instance.arrays[ref.index])
                instance.counts[k] = instance.count(k)
            edge.grad = instance.grads[k]

    def _record(self, instance, outs, leaves, given):
        tensors = [out for out, wants in zip(outs, self.differentiable, strict=True) if wants]
        parents = tuple(leaves[where].edge if kind == "input" else where for kind, where in self.program.targets)
        versions = []
        for array in (*self.watched, *[given[k] for k in self.saved]):
            counter = array.shared_version_counter()
            versions.append((counter, counter[0]))
        state = None if self.freed else _Call(self, instance)
        if self.freed:
            self._release(instance)
        shapes = tuple(t._data._array.shape for t in tensors)
        kinds = tuple(t._data._array.dtype for t in tensors)
        many = len(tensors) > 1
        plan = _plan(len(tensors) if many else 0)
        saved = None if state is None else (state,)
        node = Node(
            _CompiledOp, plan, parents, saved, versions, shapes if many else shapes[0], kinds if many else kinds[0]
        )
        for i, tensor in enumerate(tensors):
            tensor._edge = node.output_edge(i)


def _gpu_of(raw):
    """Returns the device of an array on a GPU.

    Raises:
        Untraceable: the array is not on the CPU or on the current GPU.
    """
    device = device_of(raw)
    if device.type != "cuda" or device is not as_device("cuda"):
        raise Untraceable(f"an argument is on {device}")
    return device


class _Call:
    """The memory of one forward call until its backward has run."""

    def __init__(self, entry, instance):
        self.entry, self.instance = entry, instance

    def __del__(self):
        self.entry._release(self.instance)

    def backward(self, node, upstream):
        """Returns (parent, gradient) pairs."""
        found = self.instance.run_backward(upstream, walk.current_walk().keep_graph)
        reached = [
            any(g is not None and k in sources for k, g in enumerate(upstream))
            for sources in self.entry.program.sources
        ]
        return [(p, g if used else None) for p, g, used in zip(node.parents, found, reached, strict=True)]


class _CompiledOp:
    """The op of the nodes of compiled functions."""

    name = "compiled function"
    grad_name = torch_name = "CompiledFunctionBackward"
    undefined_grads, holomorphic = True, False


class _Plan:
    vjp = owned_sum = None
    names = ()
    passes_float32 = light = False

    def __init__(self, ports):
        self.ports = ports

    @staticmethod
    def run(node, g, arithmetic):
        if arithmetic is not walk.raw:
            raise RuntimeError("torch.compile with aot_autograd does not currently support double backward")
        return node.saved[0].backward(node, g if isinstance(g, list) else [g])


@functools.cache
def _plan(ports):
    return _Plan(ports)


# -- functions ---------------------------------------------------------------------------------------------------------


class Compiled:
    """A function that `compile` returned. Call it like the function.

    A function that cannot be recorded runs eagerly, but the modules that it calls are compiled, each as a function.

    Attributes:
        function: the function.
        entries: {form of the arguments: traces}.
        reasons: reasons for which calls ran eagerly.
        parts: {module: compiled forward method}, for the modules that the function calls when it runs eagerly.
    """

    def __init__(self, function, fullgraph=False, limit=None, is_part=False):
        functools.update_wrapper(self, function)
        self.function, self.fullgraph, self.is_part = function, fullgraph, is_part
        self.limit = MOST if limit is None else limit
        self.entries, self.reasons, self.parts = {}, [], {}
        self.eager = None  # the reason for which the function stays eager
        self.full = None  # the reason for which calls without a valid trace run eagerly
        self.tries = 0
        self.executed = None  # the code objects that earlier calls executed
        self.observed = {}  # form of the arguments -> guards of a call without side effects, which is traced next
        self.lock = threading.RLock()
        _all.add(self)

    def __get__(self, owner, cls=None):
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, *args, **kwargs):
        if current_tape() is not None or stance[0] == "force_eager":
            return self.function(*args, **kwargs)
        if self.eager is not None:
            self._check_fullgraph()
            return self._in_parts(args, kwargs)
        mode = get_mode()
        if mode.profile is not None or mode.interpreter is not None or mode.saved_hooks is not None or mode.anomaly:
            return self.function(*args, **kwargs)
        leaves, spec = _flat(args, kwargs)
        try:
            key = self._key(leaves, spec, mode)
        except Untraceable as error:
            return self._eagerly(error, args, kwargs)
        with self.lock:
            for entry in self.entries.get(key, ()):
                if entry.holds():
                    if not entry.accepts(leaves):
                        return self.function(*args, **kwargs)
                    states = [generator.get_state() for generator in entry.repeats_draws]
                    try:
                        return entry.run(leaves)
                    except Different:
                        for generator, state in zip(entry.repeats_draws, states, strict=True):
                            generator.set_state(state)
                    except Untraceable as error:  # a kernel does not support the new values
                        return self._eagerly(error, args, kwargs)
            return self._first(key, leaves, spec, args, kwargs)

    def _key(self, leaves, spec, mode):
        policy = mode.autocast
        key = [spec, mode.grad, mode.inference, policy and (policy.device_type, policy.dtype), dtypes.default_dtype()]
        tensors = {}
        for leaf in leaves:
            if is_tensor(leaf):
                if id(leaf) in tensors:
                    key.append(tensors[id(leaf)])  # the position of an earlier argument, which is the same tensor
                tensors.setdefault(id(leaf), len(tensors))
                raw = leaf._data._array
                if type(leaf) not in (Tensor, Array):
                    raise Untraceable("an argument is a subclass of Tensor")
                if type(raw) is not np.ndarray:
                    key.append(_gpu_of(raw))
                key += (type(leaf), raw.shape, raw.strides, raw.dtype)
                if type(leaf) is Tensor:
                    edge = leaf._edge
                    grad = leaf.__dict__.get("_grad") if edge is None else edge.grad
                    key += (edge is None, grad is None)
            else:
                key += (type(leaf), leaf if leaf or type(leaf) is not float else str(leaf))  # -0.0 == 0.0
        key = tuple(key)
        try:
            hash(key)
        except TypeError:
            raise Untraceable("an argument cannot be hashed") from None
        return key

    def _first(self, key, leaves, spec, args, kwargs):
        """Handles a call without a valid trace."""
        known = self.entries.get(key, [])
        if self.entries and stance[0] == "eager_on_recompile":
            return self.function(*args, **kwargs)
        if self.entries and stance[0] == "fail_on_recompile":
            raise RuntimeError(
                "Detected recompile when torch.compile stance is 'fail_on_recompile'. "
                + (f"The last trace is invalid: {known[-1].guards.changed()}." if known else "The arguments are new.")
            )
        if sum(map(len, self.entries.values())) >= self.limit * 4 or len(known) >= self.limit:
            if not self.full:  # the traces that exist are still used
                self.full = f"it has {self.limit} traces of one form of arguments, or {self.limit * 4} in total"
                if known:
                    self.full += f"; the last one is invalid because {known[-1].guards.changed()}"
                self.reasons.append(self.full)
            self._check_fullgraph()
            return self.function(*args, **kwargs)
        if capturing.is_recording():  # a trace waits for the GPU
            return self.function(*args, **kwargs)
        others = [leaf for leaf in leaves if not is_tensor(leaf)]
        register()  # before guards compare the dicts of kernels
        try:
            guards = guards_of(self.function, *others, executed=self.executed)
        except TooMuch as error:
            if self.executed is not None:
                return self._eagerly(error, args, kwargs)
            result, self.executed = executed_by(lambda: self.function(*args, **kwargs))
            return result
        except Untraceable as error:
            return self._eagerly(error, args, kwargs)
        if key not in self.observed or self.observed.pop(key).changed():  # the program may take another path
            observer = Observer(guards)
            result = observer.run(lambda: self.function(*args, **kwargs))
            is_new = not guards.skipped.isdisjoint(observer.executed)
            self.executed = (self.executed or set()) | observer.executed
            self.tries += 1
            problem = observer.problem or ("it calls other functions each time" if is_new else None)
            if problem is None:
                try:
                    self.observed[key] = guards_of(self.function, *others, executed=self.executed)
                    self.tries = 0
                except Untraceable as error:
                    problem = str(error)
            if problem is not None and (self.tries >= TRIES or (self.fullgraph and observer.called)):
                self._stay_eager(problem)
            return result
        try:
            tensors = [*filter(is_tensor, leaves), *guards.tensors]
            on_gpu = any(type(t._data._array) is not np.ndarray and t._data.device.type == "cuda" for t in tensors)
            new_tape = GpuTape if on_gpu else Tape
            found, executed = executed_by(lambda: trace(self.function, args, kwargs, guards.tensors, new_tape))
            if not guards.skipped.isdisjoint(executed):
                self.executed |= executed  # the program took another path, and its functions have no guards
                return self.function(*args, **kwargs)
            changed = guards.changed()
            if changed:
                raise Untraceable(f"it changes Python values: {changed} ({position_of(self.function)})")
            if self.is_part and len(found.tape.steps) < SHORT:
                raise Untraceable(f"it has fewer than {SHORT} operations")
            entry = _Entry(found, guards)
        except Untraceable as error:
            return self._eagerly(error, args, kwargs)
        except Exception as error:  # an error of the compiler, such as a processor that LLVM does not know
            return self._eagerly(f"{type(error).__name__} in the compiler: {error}", args, kwargs)
        self.entries.setdefault(key, []).append(entry)
        if not entry.holds() or not entry.accepts(leaves):
            return self.function(*args, **kwargs)
        return entry.run(leaves)

    def _eagerly(self, error, args, kwargs):
        self._stay_eager(str(error))
        return self.function(*args, **kwargs)

    def _stay_eager(self, reason):
        self.eager = reason
        self.reasons.append(reason)
        self._check_fullgraph()
        try:
            guards = guards_of(self.function, executed=self.executed)
        except Untraceable:
            return
        if not guards.names.isdisjoint(_TWICE):
            return
        module = getattr(self.function, "__self__", None)
        if isinstance(module, Module):
            modules = _called_by(module)
        else:
            reached = {id(m): m for m in guards.reached() if isinstance(m, Module)}
            inner = {id(m) for outer in reached.values() for m in outer.modules() if m is not outer}
            modules = [m for key, m in reached.items() if key not in inner]
        self.parts = {m: Compiled(m.forward, is_part=True) for m in modules if "forward" not in m.__dict__}

    def _in_parts(self, args, kwargs):
        """Runs the function eagerly, with compiled modules."""
        changed = []
        for module, part in self.parts.items():
            if "forward" not in module.__dict__:
                module.__dict__["forward"] = part
                changed.append(module)
        try:
            return self.function(*args, **kwargs)
        finally:
            for module in changed:
                module.__dict__.pop("forward", None)

    def _check_fullgraph(self):
        reason = self.eager or self.full
        if self.fullgraph and reason:
            raise RuntimeError(f"compile: expected a function without graph breaks (fullgraph=True), but {reason}.")

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.function, memo)

    def __reduce__(self):
        return _same, (self.function,)

    def reset(self):
        """Deletes all traces."""
        self.entries.clear()
        self.eager = self.full = self.executed = None
        self.tries, self.observed, self.parts = 0, {}, {}

    @property
    def trace(self):
        """The steps of the last trace, as text."""
        entries = [entry for entries in self.entries.values() for entry in entries]
        return listing(entries[-1].program) if entries else f"not traced{': ' + self.eager if self.eager else ''}"


def _called_by(module):
    """Returns the modules that a module calls: its children. A list of modules has no `forward`, so its children count."""
    found = {}
    for child in module.children():
        for m in _called_by(child) if type(child).forward is Module.forward else [child]:
            found[id(m)] = m
    return list(found.values())


def _same(function):
    return function


def _flat(args, kwargs):
    if not kwargs and all(type(a) is Tensor for a in args):
        return list(args), len(args)
    leaves, spec = tree_flatten((args, kwargs))
    return leaves, spec
