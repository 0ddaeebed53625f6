"""The small tools: drawing graphs, trees, timers, reports, and what is said where something is missing."""

import re
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest

import mytorch
from mytorch import nn, utils

torch = pytest.importorskip("torch")


def test_draw_names_leaves_operations_and_outputs():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = mytorch.randn(2, 3)
    loss = model(x).sum()
    text = utils.graph.draw(loss, model)
    assert text.startswith("digraph {")
    for name in ("0.weight", "0.bias", "2.weight", "2.bias", "SumBackward", "TanhBackward", "output"):
        assert f'label="{name}' in text
    boxes = dict(re.findall(r'(n\d+) \[label="([^"\\]*)', text))
    arrows = re.findall(r"(n\d+) -> (n\d+|out0)", text)
    into = {name: {boxes[a] for a, b in arrows if boxes.get(b) == name} for name in boxes.values()}
    assert into["SumBackward"] == {"LinearBackward"} or "AddBackward" in str(into["SumBackward"])
    assert len([b for _, b in arrows if b == "out0"]) == 1
    assert set(boxes) >= {a for a, _ in arrows}
    assert '"(4, 3) float32"' not in utils.graph.draw(loss, model, show_shapes=False)


def test_draw_of_shared_nodes_several_outputs_and_limits():
    x = mytorch.randn(3, 2, requires_grad=True)
    y = x * x
    a, b, _ = mytorch.unbind(y + y)
    text = utils.graph.draw([a.sum(), b], {'say "x"': x}, direction="LR")
    assert text.count("MulBackward") == 1
    assert r"say \"x\"" in text
    assert '[label="1"]' in text
    assert text.count("UnbindBackward") == 1
    for _ in range(50):
        y = y.exp()
    assert utils.graph.draw(y, max_nodes=5).count("ExpBackward") == 5
    assert "…" in utils.graph.draw(y, max_nodes=5)
    deep = y
    for _ in range(3000):
        deep = deep * 1.0
    assert utils.graph.draw(deep).count("MulBackward") == 3001
    with pytest.raises(ValueError, match="direction"):
        utils.graph.draw(y, direction="up")
    with pytest.raises(ValueError, match="output 0 does not require grad"):
        utils.graph.draw(mytorch.ones(1))


Point = namedtuple("Point", "x y")


def test_trees_agree_with_pytorchs():
    tree = {
        "a": [1, (2, 3)],
        "b": OrderedDict(c=Point(4, [5])),
        "d": deque([6], maxlen=3),
        "e": None,
        "f": defaultdict(list, g=[7]),
    }
    theirs, mine = torch.utils._pytree, utils._pytree
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


def test_summary_writer_says_what_to_install_or_writes(tmp_path):
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


@pytest.mark.parametrize("name", ["onnx", "quantization", "utils.cpp_extension", "package"])
def test_what_is_not_here_raises_attribute_error(name):
    parent, _, last = name.rpartition(".")
    owner = getattr(mytorch, parent) if parent else mytorch
    with pytest.raises(AttributeError, match=f"module 'mytorch.*' has no attribute '{last}'"):
        getattr(owner, last)
