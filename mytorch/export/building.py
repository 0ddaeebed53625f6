"""From recordings of several runs to one graph.

The runs have other sizes and other values of the inputs. Equal numbers are constants; other numbers become expressions of sizes
(sizes.py). An array that differs and that no recorded operation computed cannot be exported.
"""

import operator

import numpy as np

from ..arrays.tensor import Tensor
from ..fx.graph import Graph
from ..ops.dispatch.unwrap import to_cpu
from ..utils import _pytree as pytree
from .recording import Constant, Value, describe
from .sizes import Dim, Size, fit


class Builder:
    """Builds a graph.

    Args:
        recordings: the recordings, one for each run.
        results: the encoded results of each run.
        runs: the sizes of each run.
        inputs: {name of an input: {axis: Dim}}.
        attributes: names of parameters and buffers.
    """

    def __init__(self, recordings, results, runs, inputs, attributes):
        self.recordings, self.results, self.runs = recordings, results, runs
        self.inputs, self.attributes = inputs, attributes
        self.graph, self.nodes, self.constants = Graph(), {}, {}
        self.sizes_of = {}
        self.entry = self.last_attribute = None

    def build(self):
        """Returns (graph, {name: array} of constants)."""
        for name in self.inputs:
            self.nodes[None, None, name] = self.last_attribute = self.graph.placeholder(name)
        self.aligned = self._aligned()
        for number, entries in self.aligned:
            self._add(number, entries)
        self.entry = None
        outputs = [self._argument(values) for values in zip(*self.results, strict=True)]
        self.graph.output(tuple(outputs))
        self.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
        self.graph.lint()
        return self.graph, self.constants

    # -- alignment --------------------------------------------------------------------------------------------------

    def _aligned(self):
        """Returns [(number in the first run, the entries of all runs)] of the entries that the results need."""
        needed = [_needed(r, result) for r, result in zip(self.recordings, self.results, strict=True)]
        first = needed[0]
        for numbers, recording in zip(needed[1:], self.recordings[1:], strict=True):
            for a, b in zip(first, numbers, strict=False):
                one, two = self.recordings[0].entries[a], recording.entries[b]
                if one.name != two.name or one.line != two.line:
                    raise self._error(
                        "control flow that does not depend on sizes or values",
                        f"{one.name} in one run and {two.name} in another",
                        one.line,
                    )
            if len(numbers) != len(first):
                longer, r = (first, self.recordings[0]) if len(first) > len(numbers) else (numbers, recording)
                line = r.entries[longer[min(len(first), len(numbers))]].line
                raise self._error(
                    "control flow that does not depend on sizes or values",
                    f"{len(first)} operations in one run and {len(numbers)} in another",
                    line,
                )
        # The numbers of the entries may differ between runs; Values refer to them.
        self.position = [{n: i for i, n in enumerate(numbers)} for numbers in needed]
        columns = zip(*needed, strict=True)
        return [
            (i, [r.entries[n] for r, n in zip(self.recordings, numbers, strict=True)])
            for i, numbers in enumerate(columns)
        ]

    def _error(self, rule, found, line=None):
        line = line or (self.entry and self.entry.line)
        where = f" at {describe(line)}" if line else ""
        return ValueError(
            f"export: expected {rule}, got {found}{where}. Change this line, or declare the size as static."
        )

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _add(self, number, entries):
        self.entry = entry = entries[0]
        self._own = None
        self._entries = entries
        args = [self._argument(values) for values in zip(*(e.args for e in entries), strict=True)]
        kwargs = {}
        for key in entry.kwargs:
            kwargs[key] = self._argument([e.kwargs[key] for e in entries])
        node = self.graph.call_function(entry.target, tuple(args), kwargs, name=entry.name)
        node.meta["line"] = entry.line
        node.meta["stack_trace"] = describe(entry.line)
        for i in range(len(entry.results)):
            if entry.several:
                item = self.graph.call_function(operator.getitem, (node, i))
                self._define((number, i), item, [e.results[i] for e in entries])
            else:
                self._define((number, None), node, [e.results[0] for e in entries])

    def _define(self, key, node, raws):
        self.nodes[(*key, None)] = node
        raw = raws[0]
        node.meta["shape"] = tuple(n if len({r.shape[i] for r in raws}) == 1 else None for i, n in enumerate(raw.shape))
        node.meta["dtype"] = raw.dtype.name
        node.meta["example_shape"] = tuple(raw.shape)
        if len({r.ndim for r in raws}) > 1:
            raise self._error("results with the same number of dimensions in all runs", "several numbers of dimensions")

    def _key(self, run, value):
        entry = value.entry if value.entry is None else self.position[run][value.entry]
        return (entry, value.part, value.name)

    def _argument(self, values):
        """Returns the argument of a node, from its values in all runs."""
        first = values[0]
        if isinstance(first, Value):
            keys = {self._key(run, v) if isinstance(v, Value) else None for run, v in enumerate(values)}
            if len(keys) > 1:
                raise self._error("the same program in all runs", "other operands")
            return self._node(keys.pop())
        if isinstance(first, Constant):
            return self._constant(values)
        if isinstance(first, (tuple, list)):
            if any(type(v) is not type(first) or len(v) != len(first) for v in values):
                raise self._error(
                    "arguments of the same length in all runs", f"{len(first)} and {[len(v) for v in values[1:]]} items"
                )
            return type(first)([self._argument(items) for items in zip(*values, strict=True)])
        if isinstance(first, dict):
            return {key: self._argument([v[key] for v in values]) for key in first}
        if isinstance(first, slice):
            return slice(*(self._argument([getattr(v, n) for v in values]) for n in ("start", "stop", "step")))
        if isinstance(first, (bool, str, type(None))) or not isinstance(first, (int, float, np.number)):
            if any(type(v) is not type(first) or not _same(v, first) for v in values):
                raise self._error("constant arguments", f"{first!r} and {values[-1]!r}")
            return first
        return self._number(values)

    def _node(self, key):
        if key not in self.nodes:
            name = key[2]
            if key[0] is not None or name not in self.attributes:
                raise self._error("values of the exported program", f"the unknown value {key}")
            with self.graph.inserting_after(self.last_attribute):
                self.nodes[key] = self.last_attribute = node = self.graph.get_attr(name)
            raw = self.attributes[name]
            node.meta.update(shape=tuple(raw.shape), dtype=raw.dtype.name, example_shape=tuple(raw.shape))
        return self.nodes[key]

    def _constant(self, values):
        arrays = [to_cpu(v.array) if isinstance(v, Constant) else None for v in values]
        first = arrays[0]
        for array in arrays[1:]:
            if (
                array is None
                or array.shape != first.shape
                or array.dtype != first.dtype
                or array.tobytes() != first.tobytes()
            ):
                raise self._error(
                    "values that recorded operations compute from the inputs",
                    f"an array {list(first.shape)} that depends on the inputs in {self.entry.name if self.entry else 'the result'}",
                )
        for name, array in self.constants.items():
            if array is first or (
                array.dtype == first.dtype
                and array.shape == first.shape
                and array.size < 65
                and array.tobytes() == first.tobytes()
            ):
                return self.nodes[None, None, name]
        name = f"_constant{len(self.constants)}"
        self.constants[name] = first
        self.attributes = {**self.attributes, name: first}
        return self._node((None, None, name))

    # -- numbers ----------------------------------------------------------------------------------------------------

    def _number(self, values):
        first = values[0]
        if all(_same(v, first) for v in values):
            return first.item() if isinstance(first, np.number) else first
        if any(isinstance(v, (bool, str, tuple, type(None))) for v in values):
            raise self._error("constant arguments", f"{first!r} and {values[-1]!r}")
        convert = None
        if isinstance(first, float):
            inverse = [round(1 / v) if v else 0 for v in values]
            if all(float(v).is_integer() for v in values):
                values, convert = [int(v) for v in values], float
            elif all(n and abs(v * n - 1) < 1e-12 for v, n in zip(values, inverse, strict=True)):
                values, convert = inverse, _reciprocal
        if isinstance(values[0], (int, np.integer)):
            found = fit([int(v) for v in values], self.runs, self._sizes_of_inputs(), self._all_sizes())
            if found is not None:
                node = self._expression(found)
                node.meta["example"] = int(values[0])
                return node if convert is None else self.graph.call_function(convert, (node,))
        raise self._error(
            "sizes that are sums and products of dynamic sizes",
            f"the values {', '.join(map(str, values))} for the sizes {', '.join(str(list(r.values())) for r in self.runs)}",
        )

    def _sizes_of_inputs(self):
        if self.entry is None:
            return []
        if self._own is None:
            found = []
            leaves = [
                pytree.tree_leaves((list(e.args), e.kwargs), is_leaf=lambda x: isinstance(x, slice))
                for e in self._entries
            ]
            for column in zip(*leaves, strict=False):
                if isinstance(column[0], Value):
                    found += self._sizes(column)
            self._own = found
        return self._own

    def _sizes(self, column):
        """Returns [(Size, values)] of a value, given as Value of each run."""
        shapes = [r.shapes[v.key] for r, v in zip(self.recordings, column, strict=True)]
        key = self._key(0, column[0])
        return [(Size(key, axis), tuple(s[axis] for s in shapes)) for axis in range(len(shapes[0]))]

    def _all_sizes(self):
        if "all" not in self.sizes_of:
            found = []
            for number, entries in self.aligned:
                for i in range(len(entries[0].results)):
                    shapes = [tuple(e.results[i].shape) for e in entries]
                    key = (number, i if entries[0].several else None, None)
                    found += [(Size(key, axis), tuple(s[axis] for s in shapes)) for axis in range(len(shapes[0]))]
            self.sizes_of["all"] = found
        return ((size, values) for size, values in self.sizes_of["all"] if size.value in self.nodes)

    def _expression(self, expression):
        """Returns a node or number for an expression."""
        if isinstance(expression, int):
            return expression
        if isinstance(expression, Dim):
            return self._dim(expression)
        if isinstance(expression, Size):
            return self._size(self._node(expression.value), expression.axis)
        function, left, right = expression
        return self.graph.call_function(function, (self._expression(left), self._expression(right)))

    def _size(self, node, axis):
        key = ("size", node, axis)
        if key not in self.sizes_of:
            with self.graph.inserting_after(node):
                self.sizes_of[key] = self.graph.call_function(sym_size, (node, axis), name="sym_size")
                self.sizes_of[key].meta["example"] = (
                    node.meta["example_shape"][axis] if "example_shape" in node.meta else None
                )
        return self.sizes_of[key]

    def _dim(self, root):
        """Returns the node of the size of an input."""
        for exact in (True, False):
            for name, axes in self.inputs.items():
                for axis, dim in axes.items():
                    if dim.root is root and (not exact or (dim.factor == 1 and dim.offset == 0)):
                        size = self._size(self.nodes[None, None, name], axis)
                        if exact:
                            return size
                        if ("dim", root) not in self.sizes_of:
                            with self.graph.inserting_after(size):
                                if dim.offset:
                                    size = self.graph.call_function(operator.sub, (size, dim.offset))
                            with self.graph.inserting_after(size):
                                self.sizes_of["dim", root] = self.graph.call_function(
                                    operator.floordiv, (size, dim.factor)
                                )
                        return self.sizes_of["dim", root]
        raise self._error("a dynamic size of an input", repr(root))


def _needed(recording, result):
    """Returns the sorted numbers of the entries that a result depends on."""
    needed, waiting = set(), []

    def visit(tree):
        for leaf in pytree.tree_leaves(tree, is_leaf=lambda x: isinstance(x, slice)):
            if isinstance(leaf, slice):
                visit([leaf.start, leaf.stop, leaf.step])
            elif isinstance(leaf, Value) and leaf.entry is not None and leaf.entry not in needed:
                needed.add(leaf.entry)
                waiting.append(leaf.entry)

    visit(list(result))
    while waiting:
        entry = recording.entries[waiting.pop()]
        visit([list(entry.args), entry.kwargs])
    return sorted(needed)


def _same(a, b):
    try:
        return type(a) is type(b) and (bool(a == b) or a != a)
    except Exception:
        return a is b


def _reciprocal(n):
    """Returns 1 / n."""
    return 1.0 / n


def sym_size(x, dim):
    """Returns the size of a tensor along a dimension.

    Args:
        dim: the dimension.

    Example:
        >>> mytorch.export.sym_size(mytorch.zeros(2, 3), 1)
        3
    """
    return x.size(dim) if isinstance(x, Tensor) else x.shape[dim]
