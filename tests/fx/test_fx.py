"""`mytorch.fx` compared with `torch.fx`: generated code, graphs and results."""

import copy
import operator
import pickle

import pytest

import mytorch
from mytorch import fx, nn
from tests import graph_models
from tests.loops import loop

LARGE = "resnet50 resnext50_32x4d wide_resnet50_2".split()
TRACED = [name for name, case in graph_models.CASES.items() if case.fx and name not in LARGE]


@loop
@pytest.mark.parametrize("name", TRACED)
def test_models_are_traced_printed_transformed_and_run(name):
    assert graph_models.check_fx(name) < 1e-5


# -- the same text as torch.fx -------------------------------------------------------------------------------------


def _programs(L, nn, F):
    """Programs for either library."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            self.scale = nn.Parameter(L.ones(4))
            self.register_buffer("shift", L.zeros(4))

        def forward(self, x, y=None):
            h = self.body(x) * self.scale + self.shift
            a, b = h.chunk(2, 1)
            h = L.cat([a, -b, ~(a > 0)], dim=1)
            h += 1
            return {"h": h.view(h.shape[0], -1), "parts": (a @ b.t(), 2 - a, [b**2, 3**a])}, h[:, 0:2], float("inf")

    class Inner(nn.Module):
        def forward(self, x, *, k=3):
            return F.relu(x, inplace=False) + k

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()
            self.layers = nn.ModuleList([nn.Conv1d(1, 1, 1), nn.Tanh()])

        def forward(self, x: L.Tensor) -> L.Tensor:
            for layer in self.layers:
                x = layer(x)
            return self.inner(x, k=2).to(L.float64)

    def functions(x, y):
        z = L.where(x > y, x, y) // 2 % 3
        return L.stack([z, x / y], 0).softmax(dim=-1), operator.getitem(x, (0, Ellipsis, None)), x.size(0)

    def created(x):
        return L.zeros(x.shape[0]) + L.arange(x.size(1)).sum()

    return {"net": Net(), "outer": Outer(), "functions": functions, "created": created}


@pytest.mark.parametrize("name", ["net", "outer", "functions", "created"])
def test_code_and_graphs_have_the_text_of_torch_fx(name):
    torch = pytest.importorskip("torch")
    mine = fx.symbolic_trace(_programs(mytorch, nn, nn.functional)[name])
    theirs = torch.fx.symbolic_trace(_programs(torch, torch.nn, torch.nn.functional)[name])
    assert mine.code.replace("mytorch.", "torch.") == theirs.code
    assert str(mine.graph).replace("mytorch.", "torch.").strip() == str(theirs.graph).strip()


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: list(x),
        lambda x: len(x),
        lambda x: range(x.shape[0]),
        lambda x: int(x),
    ],
)
def test_programs_that_cannot_be_traced_raise_the_errors_of_torch_fx(program):
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception) as theirs:
        torch.fx.symbolic_trace(program)
    with pytest.raises(Exception) as mine:
        fx.symbolic_trace(program)
    assert mine.type.__name__ == theirs.type.__name__
    assert str(mine.value).split(".")[0][:40] == str(theirs.value).split(".")[0][:40]


# -- graphs --------------------------------------------------------------------------------------------------------


def _traced():
    return fx.symbolic_trace(lambda x, y: mytorch.relu(x + y) * 2)


def test_nodes_are_inserted_replaced_and_erased():
    traced = _traced()
    relu = next(n for n in traced.graph.nodes if n.target is mytorch.relu)
    with traced.graph.inserting_after(relu):
        new = traced.graph.call_function(mytorch.tanh, (relu.args[0],))
    changed = relu.replace_all_uses_with(new)
    traced.graph.erase_node(relu)
    traced.graph.lint()
    traced.recompile()
    assert [n.name for n in changed] == ["mul"]
    assert len(traced.graph.nodes) == 6
    x, y = mytorch.randn(3), mytorch.randn(3)
    assert mytorch.equal(traced(x, y), mytorch.tanh(x + y) * 2)
    add = new.args[0]
    assert list(add.users) == [new]
    assert new.prev is add
    assert add.next is new
    assert new.all_input_nodes == [add]
    with traced.graph.inserting_before(new):
        other = traced.graph.call_method("neg", (add,))
    new.update_arg(0, other)
    assert list(add.users) == [other]
    assert [n.name for n in traced.graph.find_nodes(op="call_method")] == ["neg"]


def test_dead_code_is_removed_and_writes_are_kept():
    def f(x):
        mytorch.exp(x)
        y = x.clone()
        y.mul_(2)
        y[0] = 1
        return y

    traced = fx.symbolic_trace(f)
    assert traced.graph.eliminate_dead_code()
    traced.recompile()
    assert "exp" not in traced.code
    assert traced(mytorch.ones(2)).tolist() == [1.0, 2.0]


def test_graphs_are_built_by_hand():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.table = nn.Linear(3, 2), nn.ParameterDict({"a": nn.Parameter(mytorch.ones(2))})

    graph = fx.Graph()
    x = graph.placeholder("x", default_value=None)
    h = graph.call_module("layer", (x,))
    w = graph.get_attr("table.a")
    graph.output({"sum": graph.call_function(operator.add, (h, w)), "w": [w]})
    root = Root()
    made = fx.GraphModule(root, graph, "Made")
    assert type(made).__name__ == "Made"
    assert set(made.state_dict()) == {"layer.weight", "layer.bias", "table.a"}
    value = mytorch.randn(4, 3)
    assert mytorch.equal(made(value)["sum"], root.layer(value) + 1)
    filled = fx.GraphModule({"layer": root.layer, "table.a": mytorch.ones(2)}, copy.deepcopy(graph))
    assert mytorch.equal(filled(value)["sum"], made(value)["sum"])


def test_graph_modules_train_and_are_copied():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    traced = fx.symbolic_trace(model)
    assert set(traced.state_dict()) == set(model.state_dict())
    other = pickle.loads(pickle.dumps(traced))
    copied, shallow = copy.deepcopy(traced), copy.copy(traced)
    optimizer = mytorch.optim.SGD(traced.parameters(), lr=0.1)
    x = mytorch.randn(8, 3)
    traced(x).square().mean().backward()
    optimizer.step()
    assert mytorch.equal(traced.get_submodule("0").weight, model[0].weight)  # shared with the model
    assert not mytorch.equal(copied.get_submodule("0").weight, model[0].weight)
    assert mytorch.equal(shallow.eval()(x), traced.eval()(x))
    assert mytorch.equal(other.eval()(x), copied.eval()(x))
    assert copied.graph is not traced.graph
    assert copied.graph.owning_module is copied


def test_a_deep_copy_has_its_own_code():
    traced = _traced()
    copied = copy.deepcopy(traced)
    for node in copied.graph.nodes:
        if node.target is operator.mul:
            node.args = (node.args[0], 5)
    copied.recompile()
    one = mytorch.ones(1)
    assert (traced(one, one).item(), copied(one, one).item()) == (4.0, 10.0)


def test_submodules_are_added_and_deleted():
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert traced.add_submodule("extra.norm", nn.LayerNorm(2))
    assert not traced.add_submodule("0.weight.x", nn.ReLU())
    with traced.graph.inserting_before(traced.graph.output_node()):
        last = traced.graph.call_module("extra.norm", (traced.graph.output_node().args[0],))
    traced.graph.output_node().args = (last,)
    traced.recompile()
    assert mytorch.allclose(traced(mytorch.randn(3, 2)).mean(1), mytorch.zeros(3), atol=1e-5)
    assert traced.delete_submodule("1")
    assert not traced.delete_submodule("1")
    with pytest.raises(RuntimeError, match="lint: expected an attribute"):
        traced.graph.lint()


def test_concrete_arguments_are_constants():
    def f(x, flip=True, n=1):
        return -x * n if flip else x * n

    traced = fx.symbolic_trace(f, concrete_args={"flip": False})
    assert traced(mytorch.ones(1), False, 3).item() == 3.0
    with pytest.raises(AssertionError, match="flip has been specialized to have value False but got another value"):
        traced(mytorch.ones(1), True)
    with pytest.raises(RuntimeError, match="expected names of arguments, got 'other'"):
        fx.symbolic_trace(f, concrete_args={"other": 1})


def _leaf(x, n):
    return x * n if n > 1 else x


fx.wrap("_leaf")


@fx.wrap
def _decorated(x):
    return [row.sum() for row in x]


def test_wrapped_functions_and_math_are_single_nodes():
    import math

    def f(x):
        return _leaf(x, x.shape[0]) * math.sqrt(x.shape[1]), _decorated(x)[0]

    traced = fx.symbolic_trace(f)
    targets = [n.target for n in traced.graph.nodes if n.op == "call_function"]
    assert math.sqrt in targets
    assert _leaf in targets
    assert _decorated in targets
    out, first = traced(mytorch.ones(2, 4))
    assert out[0, 0].item() == 4.0
    assert first.item() == 4.0
    with pytest.raises(NotImplementedError, match="top level of a module"):
        fx.wrap("len")


def test_variable_arguments():
    def f(x, *rest, k=1, **options):
        return x + rest[0] * options["b"] + k

    traced = fx.symbolic_trace(f)
    assert traced(mytorch.ones(1), mytorch.ones(1), b=3).item() == 5.0


def test_a_tracer_decides_which_modules_are_leaves():
    class All(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.Sequential)

    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1))
    graph = All().trace(model)
    assert [n.op for n in graph.nodes] == [
        "placeholder",
        "call_module",
        "get_attr",
        "get_attr",
        "call_function",
        "output",
    ]
    x = mytorch.randn(3, 2)
    assert mytorch.equal(fx.GraphModule(model, graph)(x), model(x))


def test_tracing_leaves_the_functions_of_the_library_unchanged():
    before = (mytorch.relu.__code__, mytorch.zeros.__code__, nn.Module.__call__, nn.Module.__getattr__)
    fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError):
        fx.symbolic_trace(lambda x: bool(x))
    fx.Transformer(_traced()).transform()
    after = (mytorch.relu.__code__, mytorch.zeros.__code__, nn.Module.__call__, nn.Module.__getattr__)
    assert before == after


# -- patterns and passes -------------------------------------------------------------------------------------------


def test_patterns_are_replaced():
    def f(x, y):
        a = mytorch.sigmoid(x) * x
        b = mytorch.sigmoid(y) * y
        return mytorch.cat([a, b]) + mytorch.sigmoid(x).sum()

    traced = fx.symbolic_trace(f)
    matches = fx.replace_pattern(traced, lambda x: mytorch.sigmoid(x) * x, lambda x: nn.functional.silu(x))
    assert len(matches) == 2
    assert matches[0].anchor.name == "mul"
    assert traced.code.count("silu(") == 2
    x, y = mytorch.randn(3), mytorch.randn(3)
    assert mytorch.allclose(traced(x, y), f(x, y), atol=1e-6)


def test_patterns_with_several_results_constants_and_shared_values():
    def f(x):
        a, b = x.exp(), x.sin()
        return a + b, x.view(2, -1), x.view(4, -1)

    traced = fx.symbolic_trace(f)
    found = fx.replace_pattern(traced, lambda x: (x.exp(), x.sin()), lambda x: (x.cos(), x.neg()))
    assert len(found) == 1
    x = mytorch.randn(4)
    assert mytorch.allclose(traced(x)[0], x.cos() - x)
    assert len(fx.replace_pattern(traced, lambda x: x.view(4, -1), lambda x: x.reshape(1, -1))) == 1
    assert traced(x)[1].shape == (2, 2)
    assert traced(x)[2].shape == (1, 4)
    shared = fx.symbolic_trace(lambda x: (x.exp().neg(), x.exp() + 1))
    node = next(n for n in shared.graph.nodes if n.target == "exp")
    list(shared.graph.nodes)[-2].args = (node, 1)
    assert not fx.replace_pattern(shared, lambda x: x.exp().neg(), lambda x: x)  # another node needs exp
    with pytest.raises(ValueError, match="expected a pattern with an operation"):
        fx.replace_pattern(shared, lambda x: x, lambda x: x)


def test_convolutions_and_batch_norms_are_fused():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.shared = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
            self.last = nn.BatchNorm2d(4)

        def forward(self, x):
            h = self.shared(self.bn(self.conv(x)))
            return self.last(h) + h  # h has two users

    model = Block().eval()
    for norm in (model.bn, model.last):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        nn.init.uniform_(norm.weight)
    fused = fx.experimental.optimization.fuse(model)
    assert [n.target for n in fused.graph.nodes if n.op == "call_module"] == ["conv", "shared", "last"]
    x = mytorch.randn(2, 3, 6, 6)
    assert mytorch.allclose(fused(x), model(x), atol=1e-5)
    assert not hasattr(fused, "bn")
    assert model.conv.bias is None  # the model is unchanged


def test_shapes_are_propagated():
    traced = fx.symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()))
    x = mytorch.randn(2, 3, 5, 5)
    fx.passes.shape_prop.ShapeProp(traced).propagate(x)
    meta = {n.name: n.meta["tensor_meta"] for n in traced.graph.nodes}
    assert meta["_0"].shape == (2, 4, 3, 3)
    assert meta["output"].shape == (2, 36)
    assert meta["input_1"].stride == (75, 25, 5, 1)


def test_interpreters_name_the_failing_node():
    traced = fx.symbolic_trace(lambda x: (x @ x).sum())
    with pytest.raises(RuntimeError, match=r"While executing %matmul : \[num_users=1\]"):
        fx.Interpreter(traced).run(mytorch.ones(2, 3))
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
        fx.Interpreter(traced).run()


# -- errors --------------------------------------------------------------------------------------------------------


def test_errors_of_graphs():
    graph, other = fx.Graph(), fx.Graph()
    x, y = graph.placeholder("x"), other.placeholder("y")
    with pytest.raises(RuntimeError, match="expected nodes of the same graph"):
        graph.call_function(mytorch.relu, (y,))
    with pytest.raises(ValueError, match="expected a callable target"):
        graph.create_node("call_function", "relu", (x,))
    with pytest.raises(ValueError, match="expected an op in placeholder"):
        graph.create_node("call", "relu", (x,))
    used = graph.call_method("relu", (x,))
    with pytest.raises(RuntimeError, match="expected a node without users"):
        graph.erase_node(x)
    with pytest.raises(NotImplementedError, match="expected no change of the arguments"):
        graph.call_function(mytorch.cat, ([x, used],)).args[0].append(x)
    used.append(x)  # x now follows its user
    with pytest.raises(RuntimeError, match="expected arguments that are computed before"):
        graph.lint()
    with pytest.raises(RuntimeError, match="expected a Module or a dict as root"):
        fx.GraphModule(3, fx.Graph())
    with pytest.raises(NameError, match="module is not installed as a submodule"):
        fx.Tracer().path_of_module(nn.ReLU())
