"""Replacement of patterns in graphs."""

from typing import NamedTuple

from ..nn import Module
from .graph import Graph
from .graph_module import GraphModule, _copy_attr
from .node import Node, map_arg
from .tracer import symbolic_trace


class Match(NamedTuple):
    """One replaced match.

    Attributes:
        anchor: the node that matched the result of the pattern.
        nodes_map: {node of the pattern: node of the graph}.
    """

    anchor: Node
    nodes_map: dict


def _graph_of(pattern):
    if isinstance(pattern, Graph):
        return pattern, None
    if isinstance(pattern, GraphModule):
        return pattern.graph, pattern
    traced = symbolic_trace(pattern)
    return traced.graph, traced


class _Matcher:
    """Matches the nodes of a pattern with the nodes of a graph, from the results to the inputs."""

    def __init__(self, module, pattern, pattern_module):
        self.module, self.pattern_module = module, pattern_module
        self.results = pattern.output_node().all_input_nodes
        self.inner = [n for n in pattern.nodes if n.op not in ("placeholder", "output")]

    def match(self, anchor, claimed):
        """Returns {node of the pattern: node of the graph} if the pattern ends at `anchor`, otherwise None."""
        found = {}
        if not self._same(self.results[0], anchor, found, claimed):
            return None
        for result in self.results[1:]:  # further results share nodes with the first
            if result in found:
                continue
            for node in anchor.graph.nodes:
                trial = dict(found)
                if self._same(result, node, trial, claimed):
                    found = trial
                    break
            else:
                return None
        inside = {found[n] for n in self.inner if n in found}
        for n in self.inner:
            if n in found and n not in self.results and any(user not in inside for user in found[n].users):
                return None  # another node needs an intermediate result
        return found

    def _same(self, pattern, node, found, claimed):
        if pattern in found:
            return found[pattern] is node
        if pattern.op == "placeholder":
            found[pattern] = node
            return True
        if not isinstance(node, Node) or node in claimed or node in found.values() or pattern.op != node.op:
            return False
        if pattern.op == "call_module":
            if type(self.pattern_module.get_submodule(pattern.target)) is not type(
                self.module.get_submodule(node.target)
            ):
                return False
        elif pattern.op != "get_attr" and pattern.target != node.target:
            return False
        found[pattern] = node
        return self._same_args(pattern.args, node.args, found, claimed) and self._same_args(
            dict(sorted(pattern.kwargs.items())), dict(sorted(node.kwargs.items())), found, claimed
        )

    def _same_args(self, pattern, value, found, claimed):
        if isinstance(pattern, Node):
            return self._same(pattern, value, found, claimed)
        if isinstance(pattern, (tuple, list)):
            return (
                isinstance(value, (tuple, list))
                and len(pattern) == len(value)
                and all(self._same_args(p, v, found, claimed) for p, v in zip(pattern, value, strict=True))
            )
        if isinstance(pattern, dict):
            return (
                isinstance(value, dict)
                and pattern.keys() == value.keys()
                and all(self._same_args(p, value[k], found, claimed) for k, p in pattern.items())
            )
        if isinstance(pattern, slice):
            return isinstance(value, slice) and all(
                self._same_args(getattr(pattern, n), getattr(value, n), found, claimed)
                for n in ("start", "stop", "step")
            )
        return type(pattern) is type(value) and pattern == value


def replace_pattern(gm, pattern, replacement):
    """Replaces each match of a pattern in a graph, and compiles the graph.

    The pattern and the replacement are functions of the same arguments, which stand for any values. A match has the same
    operations with the same constants. Its intermediate results must have no other users. Matches do not overlap.

    Args:
        gm: the GraphModule.
        pattern: function, module or GraphModule.
        replacement: function, module or GraphModule.

    Returns:
        A list of `Match`.

    Example:
        >>> traced = mytorch.fx.symbolic_trace(lambda x, y: mytorch.relu(x + y) * 2)
        >>> found = mytorch.fx.replace_pattern(traced, lambda a, b: mytorch.relu(a + b), lambda a, b: a - b)
        >>> len(found), traced(tensor(5.0), tensor(3.0)).item()
        (1, 4.0)
    """
    pattern_graph, pattern_module = _graph_of(pattern)
    new_graph, new_module = _graph_of(replacement)
    matcher = _Matcher(gm, pattern_graph, pattern_module)
    if not matcher.inner:
        raise ValueError("replace_pattern: expected a pattern with an operation, got a pattern that returns its input.")
    claimed, done = set(), []
    for anchor in list(gm.graph.nodes):
        if anchor._erased or anchor.op in ("placeholder", "output"):
            continue
        found = matcher.match(anchor, claimed)
        if found is None:
            continue
        done.append(_replace(gm, matcher, found, anchor, pattern_graph, new_graph))
        claimed.update(found[n] for n in matcher.inner)
    if isinstance(new_module, Module):
        for node in new_graph.nodes:
            if node.op in ("call_module", "get_attr"):
                *prefix, name = node.target.split(".")
                owner = gm
                for part in prefix:
                    owner = getattr(owner, part, None)
                if not hasattr(owner, name):
                    _copy_attr(new_module, gm, node.target)
    gm.graph.lint()
    gm.recompile()
    return done


def _replace(gm, matcher, found, anchor, pattern_graph, new_graph):
    """Replaces one match by a copy of the replacement."""
    inputs = [found.get(n) for n in pattern_graph.nodes if n.op == "placeholder"]
    targets = [n for n in new_graph.nodes if n.op == "placeholder"]
    if len(inputs) != len(targets):
        raise ValueError(
            f"replace_pattern: expected as many arguments as the pattern, {len(inputs)}, got {len(targets)} in the replacement."
        )
    values = dict(zip(targets, inputs, strict=True))
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    results = [found[n] for n in matcher.results]
    users = [u for r in results for u in r.users if u not in found.values()]
    first = min(users, key=order.get) if users else anchor.next
    before = set(values.values())
    with gm.graph.inserting_before(
        first if max(order.get(r, 0) for r in results) < order.get(first, 1 << 60) else anchor
    ):
        new = gm.graph.graph_copy(new_graph, values)
    created = [v for v in values.values() if isinstance(v, Node) and v not in before]
    new_results = []
    map_arg(new, new_results.append) if isinstance(new, (tuple, list, dict)) else new_results.append(new)
    if len(new_results) != len(results):
        raise ValueError(
            f"replace_pattern: expected {len(results)} results as in the pattern, got {len(new_results)} in the replacement."
        )
    for old, result in zip(results, new_results, strict=True):
        old.replace_all_uses_with(result, lambda user: user not in created)
    for n in reversed(matcher.inner):
        node = found[n]
        if not node._erased and not node.users:
            gm.graph.erase_node(node)
    return Match(anchor, found)
