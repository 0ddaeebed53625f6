"""The small tools: drawings of graphs, trees, timers, reports, and errors for missing packages."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import mytorch
from mytorch import nn, utils
from mytorch.utils import _pytree

torch = pytest.importorskip("torch")


def test_draw_names_leaves_operations_and_outputs():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = mytorch.randn(2, 3)
    loss = model(x).sum()
    text = utils.graph.draw(loss, params=model).dot()
    assert text.startswith("digraph {")
    boxes = dict(re.findall(r'(n\d+) \[label="([^"\\]*)', text))
    arrows = re.findall(r"(n\d+) -> (n\d+)", text)
    into = {name: {boxes[a] for a, b in arrows if boxes[b] == name} for name in boxes.values()}
    assert into["output"] == {"Sum"}
    assert into["Sum"] == {"Linear"}
    assert into["Linear"] == {"Tanh", "0.weight", "0.bias", "2.weight", "2.bias"}
    assert "(4, 3) float32" in text
    assert "(4, 3) float32" not in utils.graph.draw(loss, params=model, show_shapes=False).dot()
    assert str(model(x).sum().render(params=model)) == text
    assert str(utils.graph.draw(model, inputs=x)).count("Linear") == 2


def test_draw_of_shared_nodes_several_outputs_and_limits():
    x = mytorch.randn(3, 2, requires_grad=True)
    y = x * x
    a, b, _ = mytorch.unbind(y + y)
    text = utils.graph.draw([a.sum(), b], params={'say "x"': x}, direction="LR").dot()
    assert text.count('"Mul') == 1
    assert r"say \"x\"" in text
    assert '[label="1"]' in text
    assert text.count("Unbind") == 1
    for _ in range(50):
        y = y.exp()
    for drawing in (utils.graph.draw(y, max_nodes=5), y.render(max_nodes=5)):
        assert drawing.dot().count("Exp") == 5
        assert "…" in drawing.dot()
    deep = y
    for _ in range(3000):
        deep = deep * 1.0
    assert utils.graph.draw(deep).dot().count('"Mul') == 3001
    with pytest.raises(ValueError, match="direction"):
        utils.graph.draw(y, direction="up")
    with pytest.raises(ValueError, match="output 0 does not require grad"):
        utils.graph.draw(mytorch.ones(1))
    with pytest.raises(ValueError, match="Pass its arguments as inputs="):
        utils.graph.draw(nn.Linear(2, 2))


def test_draw_shows_saved_values_and_gradients():
    x, w = (mytorch.ones(*shape, requires_grad=True) for shape in ((2, 3), (3, 4)))
    h = x @ w
    h.retain_grad()
    loss = (h * h).sum()
    before = utils.graph.draw(loss, params={"x": x, "w": w})
    facts = {text[0]: text[1:] for _, text in before.boxes.values()}
    assert sorted(facts["Matmul"][1].removeprefix("saves ").split(", ")) == ["input 24 B", "other 48 B"]
    assert facts["x"] == ["(2, 3) float32"]
    assert before.caption == "3 operations, 2 leaves; saved for backward: 32 B"  # h once; x and w are there anyway
    loss.backward()
    facts = {text[0]: text[1:] for _, text in utils.graph.draw(loss, params={"x": x, "w": w}).boxes.values()}
    assert facts["w"] == ["(3, 4) float32", f"|grad| {12 * 12**0.5:.4g}"]
    assert facts["Matmul"] == ["(2, 4) float32", "saved values freed", f"|grad| {6 * 8**0.5:.4g}"]


def _svg_boxes(svg):
    """(x, y, width, height) of each box of a drawing, by its first line."""
    shape = r'<rect x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)" rx="5"[^>]*><text[^>]*>([^<]*)<'
    return {name: tuple(map(float, place)) for *place, name in re.findall(shape, svg)}


@pytest.mark.parametrize("direction", ["TB", "BT", "LR", "RL"])
def test_drawn_boxes_do_not_overlap_and_point_where_they_should(direction, tmp_path):
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])
    names = {f"p{i}": p for i, p in enumerate(model.parameters())}
    x = mytorch.randn(2, 3)
    y = model(x)
    drawing = utils.graph.draw((y + model[0](x)).sum(), params=names, direction=direction)
    svg = drawing.svg(engine="own")
    places = list(_svg_boxes(svg).values())
    assert len(_svg_boxes(svg)) == len({text[0] for _, text in drawing.boxes.values()})
    for i, (x0, y0, w0, h0) in enumerate(places):
        assert all(x0 + w0 <= x1 or x1 + w1 <= x0 or y0 + h0 <= y1 or y1 + h1 <= y0 for x1, y1, w1, h1 in places[:i])
    axis, sign = {"TB": (1, 1), "BT": (1, -1), "LR": (0, 1), "RL": (0, -1)}[direction]
    middle = {name: place[axis] + place[axis + 2] / 2 for name, place in _svg_boxes(svg).items()}
    assert sign * middle["Sum"] < sign * middle["output"]
    assert sign * middle["p0"] < sign * middle["Add"] < sign * middle["Sum"]
    ElementTree.fromstring(svg)
    for name in ("graph.svg", "graph.dot"):
        drawing.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 500
    if shutil.which("dot") is None:
        with pytest.raises(RuntimeError, match="Graphviz"):
            drawing.save(tmp_path / "graph.png")


def test_a_page_contains_every_fold_and_the_details_of_each_box(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))
    left, right = model(mytorch.randn(5, 3)).chunk(2, dim=1)
    loss = (left * right).sum()
    loss.backward(retain_graph=True)
    drawing = utils.graph.draw(loss, tmp_path / "graph.html", model)
    page = (tmp_path / "graph.html").read_text(encoding="utf-8")
    assert "https://" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    data = json.loads(re.search(r"const data = (.*);", page)[1])
    assert [len(fold["boxes"]) for fold in data["folds"]] == [len(f.boxes) for f in drawing.folds] == [14, 12, 7]
    assert data["shown"] == 0
    for fold in data["folds"]:  # the page identifies boxes and arrows by their order
        svg = ElementTree.fromstring(fold["svg"])
        name = "{http://www.w3.org/2000/svg}"
        assert [g.find(f"{name}text").text for g in svg.findall(f"{name}g")] == [text[0] for text, _ in fold["boxes"]]
        assert len(svg.findall(f"{name}path")) == len(fold["arrows"])
    shown = {text[0]: more for text, more in data["folds"][-1]["boxes"]}
    weight = model[0].weight.detach()
    assert (
        f"0.weight (4, 3) float32: values from {weight.min().item():.3g} to {weight.max().item():.3g}" in shown["0"][1]
    )
    assert "operations: Linear, Tanh" in shown["1"]
    assert any(line.startswith("LinearBackward saved input: (5, 4) float32, 80 B") for line in shown["2"])
    plain = utils.graph.draw(loss, params=model)
    plain.save(tmp_path / "plain.html")  # drawn without a path, so without details
    assert plain.more == {}
    assert '"shown": 0' in (tmp_path / "plain.html").read_text(encoding="utf-8")


def test_long_graphs_are_folded_by_module():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x):
            return x + self.down(self.up(self.norm(x)).relu())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.blocks = nn.Embedding(5, 4), nn.ModuleList([Block() for _ in range(6)])

        def forward(self, i):
            x = self.embed(i)
            for block in self.blocks:
                x = block(x)
            return x @ self.embed.weight.T  # tied: it does not pull the end of the graph to its start

    model = Net()
    loss = model(mytorch.tensor([[0, 3]])).sum()
    whole = utils.graph.draw(loss, params=model, fold=None)
    assert {kind for kind, _ in whole.boxes.values()} == {"leaf", "op", "output"}
    folded = utils.graph.draw(loss, params=model, fold=20)
    modules = [text for kind, text in folded.boxes.values() if kind == "module"]
    assert [text[0] for text in modules] == [f"blocks.{i}" for i in range(6)]
    assert all("84 parameters" in text for text in modules)
    assert len(_svg_boxes(folded.svg(engine="own"))) == len(folded.boxes) <= 21
    assert folded.caption == whole.caption


Point = namedtuple("Point", "x y")


def test_trees_agree_with_pytorchs():
    tree = {
        "a": [1, (2, 3)],
        "b": OrderedDict(c=Point(4, [5])),
        "d": deque([6], maxlen=3),
        "e": None,
        "f": defaultdict(list, g=[7]),
    }
    theirs, mine = torch.utils._pytree, _pytree
    leaves, spec = mine.tree_flatten(tree)
    assert leaves == theirs.tree_flatten(tree)[0] == mine.tree_leaves(tree)
    assert mine.tree_unflatten(leaves, spec) == tree
    assert spec == mine.tree_structure(tree)
    double = lambda x: None if x is None else x * 2  # noqa: E731
    assert mine.tree_map(double, tree) == theirs.tree_map(double, tree)
    assert mine.tree_map(lambda a, b: (a, b), [1, {"k": 2}], [3, {"k": 4}]) == [(1, 3), {"k": (2, 4)}]
    assert (
        mine.tree_map_only(int, lambda x: -x, [1, "a"])
        == theirs.tree_map_only(int, lambda x: -x, [1, "a"])
        == [-1, "a"]
    )
    assert mine.tree_all(lambda x: x > 0, [1, 2])
    assert mine.tree_any(lambda x: x > 1, [1, 2])
    assert mine.tree_leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2), 3]
    with pytest.raises(ValueError, match="leaves.* has length 1"):
        mine.tree_unflatten([1], spec)
    with pytest.raises(ValueError, match="differ in structure"):
        mine.tree_map(max, [1], [1, 2])

    class Box:
        def __init__(self, value):
            self.value = value

    mine.register_pytree_node(Box, lambda b: ([b.value], None), lambda c, _: Box(c[0]))
    assert mine.tree_map(lambda x: x + 1, [Box(1)])[0].value == 2
    with pytest.raises(ValueError, match="already registered"):
        mine.register_pytree_node(Box, None, None)

    @dataclasses.dataclass
    class Batch:
        x: object
        y: object = None
        name: object = "train"

    for library in (mine, theirs):
        library.register_dataclass(Batch, field_names=["x", "y"], drop_field_names=["name"])
    for batch in (Batch([1, 2]), Batch(1, (2, 3), "test"), [Batch(None, 4)]):
        assert mine.tree_leaves(batch) == theirs.tree_leaves(batch)
        assert mine.tree_map(str, batch) == theirs.tree_map(str, batch)
    with pytest.raises(ValueError, match="expected the fields"):
        mine.register_dataclass(dataclasses.make_dataclass("Other", ["a", "b"]), field_names=["a"])
    with pytest.raises(ValueError, match="dataclass"):
        mine.register_dataclass(int)


def test_timer():
    timer = utils.benchmark.Timer("x @ x", globals={"x": mytorch.randn(8, 8)}, label="products", num_threads=1)
    once = timer.timeit(20)
    assert once.number_per_run == 20
    assert 0 < once.median < 1
    auto = timer.blocked_autorange(min_run_time=0.02)
    assert sum(auto.raw_times) >= 0.02
    assert "products" in repr(auto)
    assert "measurements" in repr(auto)


def test_report_of_the_machine():
    text = utils.collect_env.get_pretty_env_info()
    assert f"mytorch version: {mytorch.__version__}" in text
    assert f"numpy=={np.__version__}" in text
    done = subprocess.run(
        [sys.executable, "-m", "mytorch.utils.collect_env"], capture_output=True, text=True, check=True
    )
    assert "python version" in done.stdout


def test_summary_writer_writes_or_names_the_missing_package(tmp_path):
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install tensorboardX"):
            from mytorch.utils.tensorboard import SummaryWriter
        return
    from mytorch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", mytorch.tensor(1.5, requires_grad=True), 0)
        writer.add_scalars("both", {"a": mytorch.tensor(1.0), "b": 2.0}, 0)
        writer.add_histogram("weights", mytorch.randn(100), 0)
        writer.add_image("picture", mytorch.rand(3, 4, 4), 0)
        with pytest.raises(NotImplementedError, match=r"utils\.graph\.draw"):
            writer.add_graph(None)
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) > 500


def test_dlpack():
    x = utils.dlpack.from_dlpack(torch.arange(3.0))
    assert x.tolist() == [0.0, 1.0, 2.0]
    assert torch.utils.dlpack.from_dlpack(utils.dlpack.to_dlpack(x)).tolist() == x.tolist()


def test_an_unknown_name_of_the_library_gets_a_suggestion():
    with pytest.raises(AttributeError, match="no attribute 'sofmax'. Did you mean: 'softmax'?"):
        mytorch.sofmax  # noqa: B018
    assert not hasattr(mytorch, "sofmax")


@pytest.mark.parametrize("name", ["masked", "quantization", "utils.cpp_extension", "package"])
def test_missing_names_raise_attribute_error(name):
    parent, _, last = name.rpartition(".")
    owner = getattr(mytorch, parent) if parent else mytorch
    with pytest.raises(AttributeError, match=f"module 'mytorch.*' has no attribute '{last}'"):
        getattr(owner, last)


@pytest.mark.cpu_only
def test_views_are_drawn_with_their_places_in_memory():
    x = mytorch.arange(12).reshape(3, 4)
    found = utils.views.draw(x[1:, ::2])
    assert "shape (2, 2), stride (4, 2), offset 4" in found
    used = re.findall(r'fill="#000">(\d+)</text>(?:<text[^>]*>(\d+)<)?', found)
    assert [number for number, place in used if not place] == ["4", "6", "8", "10"]
    assert [place for _, place in used if place] == ["4", "6", "8", "10"]
    with pytest.raises(ValueError, match="a vector or a matrix"):
        utils.views.draw(mytorch.ones(2, 2, 2))


@pytest.mark.cpu_only
def test_images_in_documents_are_up_to_date(monkeypatch):
    """`python docs/make_pictures.py` would change none of them."""
    folder = Path(__file__).parents[2] / "docs"
    monkeypatch.syspath_prepend(str(folder))
    import make_pictures

    made = make_pictures.pictures()
    assert {p.stem for p in (folder / "pictures").glob("*.svg")} - {"icon"} == set(made)
    assert [n for n, svg in made.items() if (folder / "pictures" / f"{n}.svg").read_text(encoding="utf-8") != svg] == []


def test_every_document_is_in_the_navigation_of_the_site():
    root = Path(__file__).parents[2]
    listed = set(re.findall(r": (\w+\.md)$", (root / "mkdocs.yml").read_text(), re.M))
    assert {p.name for p in (root / "docs").glob("*.md")} - listed <= {
        "cuda_graphs.md",
        "gallery.md",
        "migration.md",
    }  # two pointers, and a page that make_site.py adds
