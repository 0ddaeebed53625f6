"""Drawings of computational graphs as SVG, as HTML or in Graphviz's DOT language, without other packages.

    draw(loss, "graph.svg", model)                  # the graph of a tensor; the module provides names and folding
    draw(loss, "graph.html", model)                 # a page with zoom, folding by module, and details of each box
    draw(model, "graph.svg", inputs=(x,))           # the graph of a module's outputs for these inputs
    loss.render().show()                            # in the browser; a notebook displays it automatically

A box is an operation: its name, shape and dtype of its result, its saved tensors with their size, and the norm of its
gradient if backward has computed one. Graphviz's `dot` computes the layout if it is installed, otherwise tools/layout.py.

The language: https://graphviz.org/doc/info/lang.html
"""

import json
import os
import shutil
import subprocess
import tempfile
import webbrowser
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

from ..arrays.tensor import Tensor
from ..autograd.node import Leaf
from ..autograd.saved import unpacked
from ..files.writing import atomic_write
from .layout import svg_of

COLOURS = {"leaf": "#a8cdf0", "op": "#e4e4e4", "module": "#f6d8a8", "output": "#b5e2b5", "more": "#ffffff"}


class Drawing:
    """A drawing of boxes and arrows, the result of `draw`.

    Attributes:
        boxes: key -> (kind, lines of text); the kinds are in `COLOURS`.
        arrows: (from, to, label), in the direction of forward.
        more: key -> additional text of a box on a page.
        folds: drawings of the same graph with increasing folding, including this one, for a page.
    """

    def __init__(self, direction, caption=""):
        self.boxes, self.arrows, self.more = {}, [], {}
        self.direction, self.caption = direction, caption
        self.folds = [self]

    def dot(self) -> str:
        """Returns the drawing in Graphviz's DOT language."""
        lines = ["digraph {", f'  rankdir="{self.direction}"', '  node [shape=box, style=filled, fontname="monospace"]']
        numbers = {key: i for i, key in enumerate(self.boxes)}
        for key, (kind, text) in self.boxes.items():
            label = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in text)
            lines.append(f'  n{numbers[key]} [label="{label}", fillcolor="{COLOURS[kind]}"]')
        for start, end, label in self.arrows:
            note = f' [label="{label}"]' if label else ""
            lines.append(f"  n{numbers[start]} -> n{numbers[end]}{note}")
        return "\n".join([*lines, "}", ""])

    def svg(self, engine: str | None = None) -> str:
        """Returns the drawing as SVG.

        Args:
            engine: "dot", "own", or None for dot if it is installed.
        """
        if engine == "dot" or (engine is None and shutil.which("dot")):
            return _by_dot(self.dot(), "svg").decode()
        return svg_of(self.boxes, self.arrows, COLOURS, self.direction, self.caption)

    def html(self) -> str:
        """Returns the drawing as a self-contained page: drag to move, scroll to zoom, click a box for details."""
        places = [{key: i for i, key in enumerate(fold.boxes)} for fold in self.folds]
        content = [
            {
                "svg": fold.svg(engine="own"),
                "boxes": [[text, fold.more.get(key, [])] for key, (_, text) in fold.boxes.items()],
                "arrows": [(place[start], place[end]) for start, end, _ in fold.arrows],
            }
            for fold, place in zip(self.folds, places, strict=True)
        ]
        data = json.dumps({"folds": content, "shown": self.folds.index(self)}).replace("<", "\\u003c")
        return Path(__file__).with_name("drawing.html").read_text(encoding="utf-8").replace("/*DATA*/", data)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the drawing to a file: .svg, .html, .dot or .gv; other formats (.png, .pdf) require Graphviz.

        Args:
            path: path of the file.

        Raises:
            RuntimeError: for another format without Graphviz.
        """
        kind = Path(path).suffix[1:].lower()
        if kind in ("dot", "gv"):
            content = self.dot().encode()
        elif kind in ("svg", "html"):
            content = (self.svg() if kind == "svg" else self.html()).encode()
        else:
            content = _by_dot(self.dot(), kind)
        atomic_write(path, content)

    def show(self) -> None:
        """Opens the drawing in the browser."""
        path = Path(tempfile.mkdtemp()) / "graph.svg"
        self.save(path)
        webbrowser.open(path.as_uri())

    def _repr_svg_(self):
        return self.svg()

    def __str__(self):
        return self.dot()


def draw(
    outputs: Any,
    path: str | os.PathLike | None = None,
    params: Any = None,
    *,
    inputs: Any = None,
    direction: str = "TB",
    show_shapes: bool = True,
    max_nodes: int | None = None,
    fold: int | None = 60,
) -> Drawing:
    """Draws the computational graph of tensors or of a module.

    Args:
        outputs: a tensor, several tensors, or a Module, which is called with `inputs`.
        path: path of a file to write; see `Drawing.save` (default: no file).
        params: names of leaves: a Module, or a dict from names to tensors. Other leaves have no name.
        inputs: argument of the module: a tensor or a tuple of tensors.
        direction: direction of the arrows: "TB" (top to bottom), "BT", "LR" or "RL".
        show_shapes: include shapes, saved tensors and gradients.
        max_nodes: maximum number of nodes; the drawing contains a note if nodes are missing.
        fold: maximum number of boxes; a larger graph is folded by module. None never folds. The parameters determine the
            module of an operation; an operation without parameters belongs to the module of the operation before it.

    Returns:
        A Drawing. Blue boxes are leaves, gray boxes operations, amber boxes folded modules, and green boxes outputs. A
        number on an arrow is the output number of an operation.

    Raises:
        ValueError: if an output does not require grad, a module has no inputs, or the direction is unknown.

    Example:
        >>> x = tensor(1.0, requires_grad=True)
        >>> print(mytorch.tools.drawing.draw(x.exp(), params={"x": x}, show_shapes=False).dot().splitlines()[4])
          n1 [label="Exp", fillcolor="#e4e4e4"]
    """
    if direction not in ("TB", "BT", "LR", "RL"):
        raise ValueError(f"draw: expected direction to be 'TB', 'BT', 'LR' or 'RL', got {direction!r}.")
    if hasattr(outputs, "named_parameters"):
        if inputs is None:
            raise ValueError("draw: expected inputs for a module, got none. Pass its arguments as inputs=.")
        outputs, params = outputs(*(inputs if isinstance(inputs, tuple) else (inputs,))), params or outputs
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    for i, out in enumerate(outputs):
        if out.edge is None:
            raise ValueError(f"draw: output {i} does not require grad, so it has no graph.")
    named = dict(params.named_parameters()) if hasattr(params, "named_parameters") else dict(params or {})
    names = {t.edge: name for name, t in named.items() if t.edge is not None}
    nodes, cut = _collect(outputs, max_nodes)
    groups = _groups(nodes, names) if hasattr(params, "named_parameters") else {}
    depth = _depth(nodes, groups, fold)
    more = path is not None and Path(path).suffix.lower() == ".html"

    def at(depth):
        drawing = Drawing(direction, _caption(nodes))
        _fill(drawing, nodes, cut, names, groups, depth, show_shapes, more)
        for i, out in enumerate(outputs):
            text = ["output" if len(outputs) == 1 else f"output {i}"]
            drawing.boxes[i] = ("output", text + [_shape_of(out)] * show_shapes)
            node = out.grad_fn or out.edge
            drawing.arrows.append((_key(node, groups, depth), i, _port(node, out.output_nr)))
        return drawing

    drawing = at(depth)
    if more:
        drawing.folds = [drawing if d == depth else at(d) for d in (None, *_depths(groups))]
    if path is not None:
        drawing.save(path)
    return drawing


def render(self: Tensor, path: str | os.PathLike | None = None, **options: Any) -> Drawing:
    """Draws the graph of this tensor.

    Args:
        path: path of a file to write.
        **options: options of `mytorch.utils.drawing.draw`.
    """
    return draw(self, path, **options)


def _collect(outputs, limit):
    """Return the nodes below the outputs, parents first, and the nodes whose parents were omitted."""
    found, order, cut = {}, [], set()
    stack = [(out.grad_fn or out.edge, False) for out in reversed(outputs)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in found:
            found[node] = True
            stack.append((node, True))
            for parent, _ in reversed(node.next_functions):
                if parent is None or parent in found:
                    continue
                if limit is not None and len(found) + sum(not d for _, d in stack) >= limit:
                    cut.add(node)
                else:
                    stack.append((parent, False))
    return order, cut


def _groups(nodes, names):
    """Return the path of each node's module: of its parameters, or the common path with its last parent."""
    groups, number, taken, owners = {}, {node: i for i, node in enumerate(nodes)}, set(), set()
    for node in nodes:
        if type(node) is Leaf:
            continue
        parents = [parent for parent, _ in node.next_functions if parent in number]
        own = [parent for parent in parents if parent in names and parent not in taken]
        if own:
            groups[node] = tuple(names[own[0]].split(".")[:-1])
            groups.update((leaf, groups[node]) for leaf in own)
            taken.update(own)  # a parameter that is used again, such as a tied weight, is ignored
            owners.add(node)
        else:
            last = max((p for p in parents if type(p) is not Leaf), key=number.get, default=None)
            path = groups.get(last, ())
            groups[node] = path[:-1] if last in owners else path
    return groups


def _depth(nodes, groups, fold):
    """Return the maximum depth of paths with at most `fold` boxes; at least 1."""
    depths = (None, *_depths(groups))
    few = (d for d in depths if fold is None or len({_key(node, groups, d) for node in nodes}) <= fold)
    return next(few, depths[-1])


def _depths(groups):
    """Return the possible depths of paths, deepest first."""
    return range(max(map(len, groups.values()), default=0), 0, -1)


def _key(node, groups, depth):
    """Return the box of a node: the node itself, or the module into which it is folded."""
    path = groups.get(node, ())
    return node if depth is None or len(path) < depth else ".".join(path[:depth])


def _fill(drawing, nodes, cut, names, groups, depth, show_shapes, more):
    """Add the boxes and arrows of the nodes to a drawing, with details for a page if `more`."""
    members = {}
    for node in nodes:
        members.setdefault(_key(node, groups, depth), []).append(node)
    for key, inside in members.items():
        if type(key) is str:
            drawing.boxes[key] = ("module", _module_text(key, inside, show_shapes))
        else:
            leaf = type(key) is Leaf
            name = names.get(key, "leaf") if leaf else key.label.removesuffix("Backward")
            drawing.boxes[key] = ("leaf" if leaf else "op", [name, *(_facts(key) if show_shapes else ())])
        if more:
            drawing.more[key] = _more(inside, names)
    drawn = set()
    for node in nodes:
        mine = _key(node, groups, depth)
        if node in cut:
            drawing.boxes["more", node] = ("more", ["…"])
            drawing.arrows.append((("more", node), mine, ""))
        for parent, i in node.next_functions:
            if parent is None:
                continue
            theirs, label = _key(parent, groups, depth), _port(parent, i)
            folded = str in (type(mine), type(theirs))
            if theirs in drawing.boxes and theirs != mine and not (folded and (theirs, mine) in drawn):
                drawn.add((theirs, mine))
                drawing.arrows.append((theirs, mine, label))


def _facts(node):
    """Return the lines below a node's name: result, saved tensors and gradient."""
    lines = [] if _port(node, "several") else [_shape_of(node)]
    saved = [f"{name} {_size(sum(a.nbytes for a in arrays))}" for name, arrays in _saved(node)]
    if saved:
        lines.append("saves " + ", ".join(saved))
    elif type(node) is not Leaf and node.saved is None and any(getattr(node.plan, n, ()) for n in ("inputs", "out")):
        lines.append("saved values freed")
    if node.grad is not None:
        lines.append(f"|grad| {float((node.grad * node.grad).sum().item()) ** 0.5:.4g}")
    return lines


def _module_text(name, nodes, show_shapes):
    leaves = [node for node in nodes if type(node) is Leaf]
    ops = len(nodes) - len(leaves)
    lines = [name, f"{ops} operation{'s' * (ops != 1)}"]
    if leaves:
        lines.append(f"{sum(prod(leaf.shape) for leaf in leaves):,} parameters")
    saved = _total(nodes)
    if saved:
        lines.append(f"saves {_size(saved)}")
    return lines if show_shapes else lines[:1]


def _more(nodes, names):
    """Return the details of a box: operations, saved tensors, and ranges of parameters and gradients."""
    lines = []
    if len(nodes) > 1:
        ops = Counter(node.label.removesuffix("Backward") for node in nodes if type(node) is not Leaf)
        lines.append("operations: " + ", ".join(f"{name} × {n}" if n > 1 else name for name, n in ops.items()))
    for node in nodes:
        if type(node) is Leaf:
            name = f"{names.get(node, 'leaf')} {_shape_of(node)}: " if len(nodes) > 1 else ""
            parts = ("values", node.variable), ("gradient", node.grad)
            lines += [f"{name}{part} {_range(x)}" for part, x in parts if x is not None and x.numel()]
        for kept, arrays in _saved(node):
            lines += [f"{node.label} saved {kept}: {_shape_of(a)}, {_size(a.nbytes)}" for a in arrays]
    return lines


def _range(x):
    x = (x.detach().abs() if x.is_complex() else x.detach()).double()
    low, high, mean = x.min().item(), x.max().item(), x.abs().mean().item()
    return f"from {low:.3g} to {high:.3g}, in absolute value {mean:.3g} on average"


def _saved(node):
    """Yield (name, arrays) that a node saves for backward."""
    if type(node) is Leaf or not node.saved:
        return []
    kept = []
    for name, value in zip(node.plan.names, node.saved, strict=False):
        value = unpacked(value)
        arrays = [v for v in (value if isinstance(value, list | tuple) else (value,)) if hasattr(v, "nbytes")]
        if arrays:
            kept.append((name, arrays))
    return kept


def _total(nodes):
    """Return the bytes that nodes save, except leaves; shared memory counts once."""
    leaves = [node.variable for node in nodes if type(node) is Leaf]
    own = {id(_whole(leaf._mt_data._array)) for leaf in leaves if leaf is not None}
    kept = {id(_whole(a)): _whole(a).nbytes for node in nodes for _, arrays in _saved(node) for a in arrays}
    return sum(size for key, size in kept.items() if key not in own)


def _whole(array):
    """Return the array that owns a view's memory."""
    while getattr(array, "base", None) is not None and hasattr(array.base, "nbytes"):
        array = array.base
    return array


def _caption(nodes):
    leaves = sum(type(node) is Leaf for node in nodes)
    ops, ends = len(nodes) - leaves, "leaf" if leaves == 1 else "leaves"
    return f"{ops} operation{'s' * (ops != 1)}, {leaves} {ends}; saved for backward: {_size(_total(nodes))}"


def _size(count):
    power = max(count.bit_length() - 1, 0) // 10
    return f"{count / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _shape_of(x):
    return f"{tuple(x.shape)} {x.dtype.name}"


def _port(node, i):
    return str(i) if type(node) is not Leaf and node.plan.ports else ""


def _by_dot(text, kind):
    """Return Graphviz's output."""
    if shutil.which("dot") is None:
        raise RuntimeError(
            f"draw: .{kind} files require Graphviz's `dot`, which is not installed. Use .svg or .dot, or install Graphviz."
        )
    return subprocess.run(["dot", f"-T{kind}"], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
