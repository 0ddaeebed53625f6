"""Write the pictures of the documents, which the library draws: PYTHONPATH=. python docs/make_pictures.py

Those of strides.md are tensors over their storage (`mytorch.tools.views`), those of autograd.md, gradients.md and fusion.md graphs
(`mytorch.tools.drawing`), laid out without Graphviz, so that they are the same everywhere; a test compares them.
"""

from pathlib import Path

import mytorch
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.utils import graph, views


def strides():
    """{name: SVG} of tensors that read the same memory in different ways."""
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
    """{name: SVG} of one graph before backward, while it runs and after it; drawn by hooks, which see it half done."""
    found = {}
    a, b = leaf(1.0, 2.0), leaf(0.5, -0.5)
    c = a * b
    d = c.exp()
    e = c + d
    loss = e.sum()

    def draw(name):
        found[name] = graph.draw(loss, params={"a": a, "b": b}).svg("own")

    for tensor in (c, d, e, loss):
        tensor.retain_grad()
    draw("backward0")
    d.register_hook(lambda g: draw("backward1"))
    c.register_hook(lambda g: draw("backward2"))
    loss.backward()
    draw("backward3")
    return found


def compositions():
    """{name: SVG} of the graphs of one function: its own gradient, and composed of other operations."""
    found = {}
    x = mytorch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 5.0]], requires_grad=True)
    for name, auto in (("softmax_own", False), ("softmax_composed", True)):
        found[name] = graph.draw(F.softmax(x, dim=1, auto=auto), params={"x": x}).svg("own")
    return found


def model():
    """{name: SVG} of a small network, folded by module."""
    mytorch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(2)]
    net = nn.Sequential(*blocks, nn.Linear(8, 2))
    return {"folded": graph.draw(net, inputs=mytorch.ones(4, 8), fold=4).svg("own")}


def pictures():
    """{name: SVG} of all."""
    return {**strides(), **walk(), **compositions(), **model()}


if __name__ == "__main__":
    folder = Path(__file__).parent / "pictures"
    folder.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
