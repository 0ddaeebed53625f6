"""Programs: the steps of a tape after passes that remove work.

1. `remove_common`: a step that repeats an earlier step uses its result.
2. `remove_dead`: a step without an effect on a result is removed, unless it can raise an error.

`plan_memory` gives small results positions in one block of memory, which results with separate lifetimes share.
"""

import types

import numpy as np

from .arrays import HostNumber, Ref, layout_bytes, mapped, refs_in

ALIGN = 64
_ATOMS = (int, float, complex, str, bytes, bool, type(None), type(...), type, np.dtype)


class Program:
    """The steps of a tape.

    Args:
        results: numbers of the values that a run returns.

    Attributes:
        values: the `Value` of each array.
        steps: the steps.
        inputs, constants, numbers, conditions: see `Tape`.
        results: numbers of the values that a run returns.
        outside: storages that exist before a run.
        own: {storage: number of its first value} for the other storages.
        written: storages of inputs that the program changes.
        last_use: {storage: position of the last step that uses it}; the number of steps if it is used afterward.
        ends: {position of a step: numbers of the values in storages with their last use there}.
    """

    def __init__(self, tape, results):
        self.values, self.steps, self.results = tape.values, list(tape.steps), list(results)
        self.inputs, self.constants = list(tape.inputs), dict(tape.constants)
        self.numbers = list(tape.numbers)
        self.conditions = dict(tape.conditions)
        self.outside = {self.values[i].storage for i in (*self.inputs, *self.constants)}
        remove_common(self)
        remove_dead(self)
        self.written = {s for step in self.steps for s in step.writes} & self.outside
        self.own, self.last_use, self.ends = {}, {}, {}
        for position, step in enumerate(self.steps):
            for i in step.outs():
                if self.values[i].storage not in self.outside:
                    self.own.setdefault(self.values[i].storage, i)
            for i in (*step.refs(), *step.outs()):
                self.last_use[self.values[i].storage] = position
        for storage in (*self.written, *[self.values[i].storage for i in self.results]):
            self.last_use[storage] = len(self.steps)
        for i, value in enumerate(self.values):
            self.ends.setdefault(self.last_use.get(value.storage), []).append(i)

    def is_view(self, step):
        """Returns True if a step only creates views of its arguments."""
        outs = step.outs()
        plain = not step.writes and not getattr(step.function, "opaque", False)
        return plain and bool(outs) and all(self.values[i].is_view for i in outs)


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

    def rename(x):
        return Ref(renamed.get(x.index, x.index)) if type(x) is Ref else x

    results = set(program.results)
    for step in program.steps:
        step.args, step.kwargs = mapped(step.args, rename), mapped(step.kwargs, rename)
        key = None
        outs = step.outs()
        if not step.writes and isinstance(step.results, Ref):
            out = values[outs[0]]
            if out.is_view or (out.storage not in changed and outs[0] not in results):
                try:
                    key = step.function, _key(step.args, versions, values), _key(step.kwargs, versions, values)
                    first = known.get(key)
                except TypeError:
                    key = first = None
                if first is not None and first != outs[0] and outs[0] not in results:
                    renamed[outs[0]] = first
                    continue
                if key is not None:
                    known[key] = outs[0]
        for storage in step.writes:
            versions[storage] = versions.get(storage, 0) + 1
        kept.append(step)
    program.steps = kept
    # Views of a removed result are in the storage of the first result.
    moved = {values[old].storage: values[new].storage for old, new in renamed.items() if not values[old].is_view}
    for value in values:
        while value.storage in moved:
            value.storage = moved[value.storage]


_INDEXING = frozenset("getitem setitem take put take_along_axis put_along_axis add_rows".split())


def _may_raise(step):
    """Returns True if the elements of arguments can be wrong: indices out of range, and singular matrices."""
    if getattr(step.function, "__module__", None) == "numpy.linalg":
        return True
    return step.name in _INDEXING and bool(refs_in(step.args[1:2]))


def remove_dead(program):
    """Removes steps that change neither a result nor memory that outlives the program, and cannot raise an error."""
    values = program.values
    needed = set(program.results)
    live = {values[i].storage for i in needed} | program.outside
    kept = []
    for step in reversed(program.steps):
        outs = step.outs()
        used = any(i in needed for i in outs) or any(s in live for s in step.writes)
        if not used and not _may_raise(step):
            continue
        refs = step.refs()
        needed.update(refs)
        live.update(values[i].storage for i in refs)
        kept.append(step)
    program.steps = kept[::-1]


def plan_memory(program, storages):
    """Returns ({storage: position in a block of memory}, size of the block in bytes) for some storages of a program."""
    values, first = program.values, {}
    for position, step in enumerate(program.steps):
        for i in step.outs():
            first.setdefault(values[i].storage, position)
    positions, total, taken = {}, 0, []  # taken: (offset, end offset, last step)
    for storage in sorted(storages, key=lambda s: first[s]):
        size = -(-max(layout_bytes(values[program.own[storage]]), 1) // ALIGN) * ALIGN
        taken = [t for t in taken if t[2] >= first[storage]]
        offset = 0
        for begin, stop, _ in sorted(taken):
            if begin - offset >= size:
                break
            offset = max(offset, stop)
        taken.append((offset, offset + size, program.last_use[storage]))
        positions[storage] = offset
        total = max(total, offset + size)
    return positions, total


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

    for step in program.steps:
        outs = ", ".join(f"%{i}: {values[i]}" for i in refs_in(step.results))
        args = [show(x) for x in step.args] + [f"{k}={show(v)}" for k, v in step.kwargs.items()]
        line = f"{outs} = {step.name}({', '.join(args)})" if outs else f"{step.name}({', '.join(args)})"
        lines.append(line + (f"  # changes memory {', '.join(map(str, step.writes))}" if step.writes else ""))
    return "\n".join(lines)
