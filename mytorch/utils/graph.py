"""Drawing of the computational graph, as text in Graphviz's DOT language: no package is needed to write it.

    open("graph.dot", "w").write(draw(loss, model))        # then: dot -Tsvg graph.dot > graph.svg

The language: https://graphviz.org/doc/info/lang.html
"""

from collections.abc import Iterable
from typing import Any

from ..graph.node import Leaf
from ..tensor import Tensor


def draw(
    outputs: Tensor | Iterable[Tensor],
    params: Any = None,
    *,
    direction: str = "TB",
    show_shapes: bool = True,
    max_nodes: int | None = None,
) -> str:
    """The graph that leads to `outputs`, as DOT text.

    Args:
        outputs: a tensor, or several.
        params: names for leaves: a Module, or a dict from names to tensors. Others are shown without a name.
        direction: where the arrows of forward point: "TB" (down), "BT", "LR" or "RL".
        show_shapes: write shapes and dtypes below the names.
        max_nodes: stop, and say so in the drawing, after that many.

    Returns:
        A string. Blue boxes are leaves, grey ones operations, green ones outputs; a number on an arrow says
        which output of an operation it comes from.

    Raises:
        ValueError: an output that requires no grad, or another direction.

    Example:
        >>> x = tensor(1.0, requires_grad=True)
        >>> text = mytorch.utils.graph.draw(x.exp(), {"x": x}, show_shapes=False)
        >>> text.splitlines()[-2]
        '  n1 [label="x", fillcolor="#a8cdf0"]'
    """
    if direction not in ("TB", "BT", "LR", "RL"):
        raise ValueError(f"draw: direction must be 'TB', 'BT', 'LR' or 'RL', got {direction!r}.")
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    for i, out in enumerate(outputs):
        if out.edge is None:
            raise ValueError(f"draw: output {i} does not require grad, so it has no graph.")
    named = dict(params.named_parameters()) if hasattr(params, "named_parameters") else dict(params or {})
    names = {t.edge: name for name, t in named.items() if t.edge is not None}
    lines = ["digraph {", f'  rankdir="{direction}"', '  node [shape=box, style=filled, fontname="monospace"]']
    numbers, waiting = {}, []

    def number_of(node):
        if node not in numbers:
            numbers[node] = len(numbers)
            waiting.append(node)
        return numbers[node]

    for i, out in enumerate(outputs):
        label = _label("output" if len(outputs) == 1 else f"output {i}", tuple(out.shape), out.dtype.name, show_shapes)
        lines.append(f'  out{i} [label="{label}", fillcolor="#b5e2b5"]')
        node = out.grad_fn or out.edge
        lines.append(f"  n{number_of(node)} -> out{i}{_port(node, out.output_nr)}")
    while waiting:
        node = waiting.pop()
        me = numbers[node]
        if type(node) is Leaf:
            label = _label(names.get(node, "leaf"), node.shape, node.dtype.name, show_shapes)
            lines.append(f'  n{me} [label="{label}", fillcolor="#a8cdf0"]')
            continue
        several = bool(node.plan.ports)
        label = _label(
            node.label, () if several else node.shape, "" if several else node.dtype.name, show_shapes and not several
        )
        lines.append(f'  n{me} [label="{label}", fillcolor="#dddddd"]')
        for parent, i in node.next_functions:
            if parent is None:
                continue
            if max_nodes is not None and parent not in numbers and len(numbers) >= max_nodes:
                lines.append(f'  more{me} [label="…", shape=plaintext, style=""]\n  more{me} -> n{me}')
                continue
            lines.append(f"  n{number_of(parent)} -> n{me}{_port(parent, i)}")
    return "\n".join([*lines, "}", ""])


def _port(node, i):
    return f' [label="{i}"]' if type(node) is not Leaf and node.plan.ports else ""


def _label(name, shape, dtype, show_shapes):
    name = str(name).replace("\\", "\\\\").replace('"', '\\"')
    return f"{name}\\n{tuple(shape)} {dtype}" if show_shapes else name
