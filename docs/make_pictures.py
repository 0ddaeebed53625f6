"""Draw the figures of the documentation with the library.

    PYTHONPATH=. python docs/make_pictures.py

The figures in strides.md show tensors and their storage (`mytorch.tools.views`). The figures in autograd.md and gradients.md show graphs
(`mytorch.tools.drawing`). Graphviz is not used, so the result is the same on all machines. A test compares the files with the result.
"""

from pathlib import Path

import mytorch
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.utils import graph, views


def strides():
    """Returns {name: SVG} of views."""
    x = mytorch.arange(12).reshape(3, 4)
    tensors = {
        "matrix": x,
        "transpose": x.T,
        "slice": x[1:, ::2],
        "expand": mytorch.arange(4).expand(3, 4),
        "windows": mytorch.arange(6).unfold(0, 3, 1),
    }
    return {name: views.draw(tensor) for name, tensor in tensors.items()}


def leaf(*values):
    return mytorch.tensor(values, requires_grad=True)


def walk():
    """Returns {name: SVG} of one graph before, during and after backward. Hooks draw the graph during backward."""
    drawings = {}
    a, b = leaf(1.0, 2.0), leaf(0.5, -0.5)
    c = a * b
    d = c.exp()
    e = c + d
    loss = e.sum()

    def draw(name):
        drawings[name] = graph.draw(loss, params={"a": a, "b": b}).svg("own")

    for tensor in (c, d, e, loss):
        tensor.retain_grad()
    draw("backward0")
    d.register_hook(lambda g: draw("backward1"))
    c.register_hook(lambda g: draw("backward2"))
    loss.backward()
    draw("backward3")
    return drawings


def compositions():
    """Returns {name: SVG} of two graphs of softmax: with its written gradient, and composed of other operations."""
    drawings = {}
    x = mytorch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 5.0]], requires_grad=True)
    for name, auto in (("softmax_own", False), ("softmax_composed", True)):
        drawings[name] = graph.draw(F.softmax(x, dim=1, auto=auto), params={"x": x}).svg("own")
    return drawings


def model():
    """Returns {name: SVG} of a small network, folded by module."""
    mytorch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(2)]
    net = nn.Sequential(*blocks, nn.Linear(8, 2))
    return {"folded": graph.draw(net, inputs=mytorch.ones(4, 8), fold=4).svg("own")}


def pictures():
    """Returns {name: SVG} of all figures."""
    return {**strides(), **walk(), **compositions(), **model()}


if __name__ == "__main__":
    folder = Path(__file__).parent / "pictures"
    folder.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
