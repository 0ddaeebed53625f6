"""Programs: the steps of a trace after passes that remove work, with a plan of the memory.

Passes, in order:

1. `remove_common`: a step that repeats an earlier step uses its result.
2. `remove_dead`: a step without an effect on a result is removed, unless it can raise an error.
3. `plan_memory`: each storage gets a position in one block of memory, which storages with separate lifetimes share.
"""

import types

import numpy as np

from .arrays import HostNumber, Ref, mapped, refs_in

ALIGN = 64
_ATOMS = (int, float, complex, str, bytes, bool, type(None), type(...), type, np.dtype)


class Program:
    """The steps of a trace.

    Attributes:
        values: the `Value` of each array.
        steps: the steps of the forward part, then of the backward part.
        forward: number of steps of the forward part.
        inputs, captured, outputs, upstream, targets, gradients, grads: see `Trace`.
        positions: {storage: offset in bytes} in the block of memory.
        size: size of the block in bytes.
        own: storages in the block, each with the value that describes its layout.
    """

    def __init__(self, trace):
        tape = trace.tape
        self.values, self.steps, self.forward = tape.values, list(tape.steps), trace.forward
        self.trace = trace
        self.inputs, self.captured, self.outputs = trace.inputs, trace.captured, trace.outputs
        self.upstream, self.targets, self.gradients = trace.upstream, trace.targets, trace.gradients
        self.sources = trace.sources
        self.grads = trace.grads
        self.numbers = [compute for _, compute in sorted(tape.numbers.values(), key=lambda pair: pair[0])]
        self.counters = list({id(raw): raw for raw in tape.counters}.values())
        self.lifted = {*self.inputs, *self.upstream, *(index for index, _, _ in self.captured)}
        self.outside = {self.values[i].storage for i in self.lifted}
        remove_common(self)
        remove_dead(self)
        plan_memory(self)
        self.calls = None  # set by gpu.py: the calls of both parts
        self.loose = None  # set by replay.py: storages of arrays that functions allocate in each run
        self.native = {}  # position of the first step of a function -> (function, its table)
        self._last = {}
        for position, step in enumerate(self.steps):
            for i in (*step.refs(), *step.outs()):
                self._last[self.values[i].storage] = position
        self._used = {*self._last, *(s for step in self.steps for s in step.writes)}
        self._used.update(self.values[i].storage for i in self.results())
        for storage in (*self.outside, *(self.values[i].storage for i in self.results())):
            self._last[storage] = len(self.steps)

    def uses(self, storage):
        """Returns True if the program reads, changes or returns the memory of a storage."""
        return storage in self._used

    def used(self):
        """Returns the storages that the program uses."""
        return self._last.keys()

    def last_use(self, storage):
        """Returns the position of the last step that uses a storage; the number of steps if it is used afterward."""
        return self._last[storage]

    def results(self):
        """Returns the numbers of the values that a caller receives."""
        refs = [x.index for x in self.outputs if hasattr(x, "index")]
        return [*refs, *self.gradients, *[ref.index for _, ref in self.grads if ref is not None]]

    def is_view(self, step):
        """Returns True if a step only creates views of its arguments, which memory at fixed positions needs only once."""
        outs = step.outs()
        return not step.writes and step.kind == "array" and bool(outs) and all(self.values[i].is_view for i in outs)


def _key(x, versions, values):
    """Returns a hashable description of an argument; raises TypeError if there is none."""
    if type(x) is Ref:
        return "ref", x.index, versions.get(values[x.index].storage, 0)
    if type(x) is HostNumber:
        return "number", x.index
    if isinstance(x, (tuple, list)):
        return (type(x), *[_key(item, versions, values) for item in x])
    if isinstance(x, dict):
        return tuple((k, _key(v, versions, values)) for k, v in x.items())
    if isinstance(x, slice):
        return "slice", *[_key(v, versions, values) for v in (x.start, x.stop, x.step)]
    if isinstance(x, _ATOMS):
        return type(x), str(x) if isinstance(x, float) else x
    raise TypeError


def remove_common(program):
    """Replaces steps that repeat an earlier step on unchanged memory. Fresh memory that is changed later is not shared."""
    values, changed = program.values, {s for step in program.steps for s in step.writes}
    versions, known, renamed, kept = {}, {}, {}, []
    forward = program.forward

    def rename(x):
        return Ref(renamed.get(x.index, x.index)) if type(x) is Ref else x

    results = set(program.results())
    for position, step in enumerate(program.steps):
        step.args, step.kwargs = mapped(step.args, rename), mapped(step.kwargs, rename)
        key = None
        outs = step.outs()
        if step.kind == "array" and not step.writes and isinstance(step.results, Ref):
            out = values[outs[0]]
            if out.is_view or (out.storage not in changed and outs[0] not in results):
                try:
                    key = step.function, _key(step.args, versions, values), _key(step.kwargs, versions, values)
                    first = known.get(key)
                except TypeError:
                    key = first = None
                if first is not None and first != outs[0] and outs[0] not in results:
                    renamed[outs[0]] = first
                    forward -= position < program.forward
                    continue
                if key is not None:
                    known[key] = outs[0]
        for storage in step.writes:
            versions[storage] = versions.get(storage, 0) + 1
        kept.append(step)
    program.steps, program.forward = kept, forward
    # Views of a removed result are in the storage of the first result.
    for old, new in renamed.items():
        moved, target = values[old].storage, values[new].storage
        if moved != target and not values[old].is_view:
            for value in values:
                if value.storage == moved:
                    value.storage = target


_INDEXING = frozenset("getitem setitem take put take_along_axis put_along_axis add_rows".split())


def _may_raise(step):
    """Returns True if the elements of arguments can be wrong: indices out of range, and singular matrices."""
    if getattr(step.function, "__module__", None) == "numpy.linalg":
        return True
    return step.name in _INDEXING and bool(refs_in(step.args[1:2]))


def remove_dead(program):
    """Removes steps that change neither a result nor memory that outlives the program, and cannot raise an error."""
    values = program.values
    needed = set(program.results())
    live = {values[i].storage for i in needed} | program.outside
    kept, forward = [], 0
    for position in range(len(program.steps) - 1, -1, -1):
        step = program.steps[position]
        outs = step.outs()
        used = any(i in needed for i in outs) or any(s in live for s in step.writes)
        if step.kind == "array" and not used and not _may_raise(step):
            continue
        refs = step.refs()
        needed.update(refs)
        live.update(values[i].storage for i in refs)
        kept.append(step)
        forward += position < program.forward
    program.steps, program.forward = kept[::-1], forward


def plan_memory(program):
    """Gives each storage of the program a position in one block of memory."""
    values = program.values
    first, last, layout = {}, {}, {}
    for position, step in enumerate(program.steps):
        for i in step.outs():
            storage = values[i].storage
            if storage not in program.outside and not (values[i].is_view and storage in layout):
                first.setdefault(storage, position)
                layout.setdefault(storage, i)
        for i in (*step.refs(), *step.outs()):
            last[values[i].storage] = position
    end = len(program.steps)
    for i in program.results():
        last[values[i].storage] = end
    program.own = layout
    program.positions, program.size = {}, 0
    taken = []  # (offset, end offset, last step)
    for storage in sorted(layout, key=lambda s: first[s]):
        size = -(-max(layout_bytes(values[layout[storage]]), 1) // ALIGN) * ALIGN
        taken = [t for t in taken if t[2] >= first[storage]]
        offset = 0
        for begin, stop, _ in sorted(taken):
            if begin - offset >= size:
                break
            offset = max(offset, stop)
        taken.append((offset, offset + size, last.get(storage, end)))
        program.positions[storage] = offset
        program.size = max(program.size, offset + size)


def layout_bytes(value):
    """Returns the size of the memory of an array in bytes."""
    if 0 in value.shape:
        return 0
    return sum((n - 1) * abs(s) for n, s in zip(value.shape, value.strides, strict=True)) + value.dtype.itemsize


def is_dense(value):
    """Returns True if the elements of a value fill its memory, in any order of the axes."""
    expected = value.dtype.itemsize
    for n, s in sorted(zip(value.shape, value.strides, strict=True), key=lambda pair: (pair[1], pair[0])):
        if n != 1 and s != expected:
            return False
        expected *= n
    return True


def listing(program):
    """Returns the steps as text, one line each."""
    lines = []
    values = program.values

    def show(x):
        if type(x) is Ref:
            return repr(x)
        if isinstance(x, (tuple, list)):
            return "(" + ", ".join(map(show, x)) + ")"
        if isinstance(x, (types.FunctionType, types.BuiltinFunctionType, np.ufunc)):
            return x.__name__
        return repr(x)

    for position, step in enumerate(program.steps):
        if position == program.forward and program.forward < len(program.steps):
            lines.append("# backward")
        outs = ", ".join(f"%{i}: {values[i]}" for i in refs_in(step.results))
        args = [show(x) for x in step.args] + [f"{k}={show(v)}" for k, v in step.kwargs.items()]
        line = f"{outs} = {step.name}({', '.join(args)})" if outs else f"{step.name}({', '.join(args)})"
        lines.append(line + (f"  # changes memory {', '.join(map(str, step.writes))}" if step.writes else ""))
    return "\n".join(lines)
