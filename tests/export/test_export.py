"""`mytorch.export`: graphs of models with dynamic sizes."""

import io

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.export import Dim, dims, export
from tests import graph_models
from tests.fx.test_fx import LARGE
from tests.loops import loop

from .random_programs import Program

SMALL = [name for name in graph_models.CASES if name not in LARGE]


@loop
@pytest.mark.parametrize("name", SMALL)
def test_models_with_dynamic_sizes(name):
    found, program = graph_models.check_export(name)
    assert found < 1e-6
    file = io.BytesIO()
    mytorch.export.save(program, file)
    file.seek(0)
    module, loaded = program.module(), mytorch.export.load(file).module()
    for args in graph_models.examples(name):
        assert graph_models.difference(module(*args), loaded(*args)) == 0


@loop
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    """Equal results for all sizes, or an error that names the line of a condition."""
    model, (rows, columns) = Program(seed), dims("rows", "columns", min=3)
    mytorch.manual_seed(seed)
    try:
        program = export(model, (mytorch.randn(3, 5, 4),), dynamic_shapes=({0: rows, 1: columns},))
    except ValueError as error:
        assert seed in (9,), error  # noqa: PT017 - a condition of this program depends on a size
        return
    for sizes in ((3, 5), (3, 9), (7, 6), (4, 3)):
        x = mytorch.randn(*sizes, 4)
        with mytorch.no_grad():
            assert graph_models.difference(model(x), program.module()(x)) < 1e-6, sizes


class Structured(nn.Module):
    """A model with nested arguments and results."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("scale", mytorch.tensor([2.0, 3.0]))
        self.register_buffer("hidden", mytorch.ones(2), persistent=False)

    def forward(self, pair, options, *, factor=1.0):
        a, b = pair
        return {"sum": self.layer(a) * self.scale * factor + self.hidden, "rest": [b, options["x"] + 1]}, "text"


def _structured():
    x = mytorch.randn(4, 3)
    return (x, mytorch.ones(2)), {"x": mytorch.zeros(1, dtype=mytorch.int64)}


def test_nested_arguments_and_results():
    model, batch = Structured(), Dim("batch")
    program = export(model, _structured(), {"factor": 2.0}, dynamic_shapes={"pair": [{0: batch}, None]})
    pair, options = _structured()
    pair = (mytorch.randn(6, 3), pair[1])
    expected, found = model(pair, options, factor=2.0), program.module()(pair, options, factor=2.0)
    assert graph_models.difference(expected, found) == 0
    assert found[1] == "text"
    assert [n.target for n in program.module().graph.nodes if n.op == "placeholder"] == [
        "pair_0",
        "pair_1",
        "options_x",
    ]
    with pytest.raises(ValueError, match="expected arguments with the structure of the example"):
        program.module()(pair, options, factor=3.0)


def test_signature_and_state_dict():
    program = export(Structured(), _structured())
    signature = program.graph_signature
    assert signature.parameters == ("layer.weight", "layer.bias")
    assert signature.buffers == ("scale", "hidden")
    assert signature.user_inputs == ("pair_0", "pair_1", "options_x")
    assert signature.inputs_to_parameters == {"p_layer_weight": "layer.weight", "p_layer_bias": "layer.bias"}
    assert set(program.state_dict) == {"layer.weight", "layer.bias", "scale", "hidden"}
    values = [*program.state_dict.values(), *program.example_inputs[0][0], program.example_inputs[0][1]["x"]]
    assert len(program.graph_module(*values)) == len(signature.user_outputs) == 3
    assert "p_layer_weight: PARAMETER" in str(program)
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(1)


def test_modules_share_parameters_and_train():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    module = export(model, (mytorch.randn(2, 3),)).module()
    x = mytorch.randn(2, 3)
    module(x).sum().backward()
    found = [np.array(p.grad) for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    assert all(np.allclose(a, np.array(p.grad)) for a, p in zip(found, model.parameters(), strict=True))
    assert set(module.state_dict()) == set(model.state_dict())


def test_sizes_are_checked_when_the_program_runs():
    batch, half = Dim("batch", min=2, max=6), Dim("half")

    class Model(nn.Module):
        def forward(self, x, y):
            return x.reshape(x.shape[0], 2, -1).sum(1) + y.sum(0)

    program = export(
        Model(), (mytorch.ones(3, 8), mytorch.ones(3, 4)), dynamic_shapes=({0: batch, 1: 2 * half}, {0: batch, 1: half})
    )
    run = program.module()
    assert run(mytorch.ones(6, 10), mytorch.ones(6, 5)).shape == (6, 5)
    assert program.range_constraints == {"batch": (2, 6), "half": (0, None)}
    for shapes, words in (
        (((7, 8), (7, 4)), "expected size batch in dimension 0 of input x, got 7"),
        (((3, 8), (4, 4)), "expected size batch in dimension 0 of input y, got 4 with batch=3"),
        (((3, 7), (3, 3)), r"expected size 2\*half in dimension 1 of input x, got 7"),
        (((3, 8, 1), (3, 4)), "expected float32 with 2 dimensions for input x"),
    ):
        with pytest.raises(ValueError, match=words):
            run(*(mytorch.ones(*s) for s in shapes))
    static = export(nn.ReLU(), (mytorch.ones(2, 3),)).module()
    with pytest.raises(
        ValueError, match="expected size 3 in dimension 1 of input input, got 4. Declare it in dynamic_shapes"
    ):
        static(mytorch.ones(2, 4))


def _refused(function, *shape, sizes=({0: Dim("n")},)):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    with pytest.raises((ValueError, NotImplementedError)) as error:
        export(Model(), (mytorch.randn(*shape),), dynamic_shapes=sizes)
    return str(error.value)


def test_programs_that_cannot_be_exported_name_the_line():
    message = _refused(lambda x: x.exp() if x.sum() > 0 else x.sin().neg(), 4)
    assert "control flow that does not depend on sizes or values" in message or "other values" in message
    assert "test_export.py" in _refused(lambda x: sum(row for row in x), 3, 2)
    message = _refused(lambda x: x + mytorch.tensor(np.asarray(x.detach().numpy()).max()), 4)
    assert "an array [] that depends on the inputs in add" in message
    assert "test_export.py" in message
    assert "x + mytorch.tensor" in message
    message = _refused(lambda x: x + mytorch.randn(4), 4, sizes=None)
    assert "depends on the inputs" in message
    message = _refused(lambda x: x * (2 if x.shape[0] > 2 else 3), 4)
    assert "got other values for n=1" in message
    assert "Dim(name, min=…" in message
    assert "sums and products of dynamic sizes" in _refused(lambda x: mytorch.zeros(int(x.shape[0] ** 0.5 * 10)) + 1, 4)


def test_bad_arguments_of_export():
    model, x = nn.ReLU(), mytorch.ones(2, 3)
    with pytest.raises(ValueError, match="Expected `mod` to be an instance of `torch.nn.Module`"):
        export(lambda x: x, (x,))
    with pytest.raises(TypeError, match="expected a tuple of example arguments"):
        export(model, x)
    with pytest.raises(ValueError, match="expected names of arguments in dynamic_shapes, got 'y'"):
        export(model, (x,), dynamic_shapes={"y": {0: Dim("n")}})
    with pytest.raises(ValueError, match=r"expected dimensions of input input with shape \[2, 3\]"):
        export(model, (x,), dynamic_shapes=({2: Dim("n")},))
    with pytest.raises(ValueError, match="expected an identifier as name"):
        Dim("a b")
    with pytest.raises(ValueError, match="expected min < max"):
        Dim("a", min=3, max=2)
    with pytest.raises(NotImplementedError, match="expected a product or sum with an integer"):
        Dim("a") * 0.5
    with pytest.raises(ValueError, match=r"expected a size of the form 2\*n in dimension 1, got 3"):
        export(model, (x,), dynamic_shapes=({1: 2 * Dim("n")},))
    file = io.BytesIO()
    mytorch.save({"a": x}, file)
    file.seek(0)
    with pytest.raises(ValueError, match="expected a file of export.save"):
        mytorch.export.load(file)


def test_models_that_change_themselves_are_refused():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", mytorch.zeros(2))

        def forward(self, x):
            self.count[0] += 1
            return x + self.count

    with pytest.raises(
        NotImplementedError, match=r"got a change in place of a parameter or buffer at .*test_export.py"
    ):
        export(Counter(), (mytorch.ones(2),))
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match="expected a model in evaluation mode, got BatchNorm1d '1' in training mode"):
        export(model, (mytorch.ones(3, 2),))
    assert model[1].num_batches_tracked == 0
    with pytest.raises(ValueError, match="got Dropout '' in training mode"):
        export(nn.Dropout(0.5), (mytorch.ones(3, 2),))


def test_inputs_that_the_model_changes_keep_the_results():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Hardtanh(inplace=True))
    x = mytorch.randn(3)
    before = x.clone()
    program = export(model, (x,))
    assert mytorch.equal(x, before)
    assert mytorch.equal(program.module()(x), before.clamp(0, 1))


def test_export_in_a_program_with_subclasses():
    """A subclass with `__torch_function__` lets all public functions check their arguments."""
    model, x = nn.Sequential(nn.Linear(3, 4), nn.GELU()), mytorch.randn(2, 3)
    expected = str(export(model, (x,), dynamic_shapes=({0: Dim("n")},)).graph)

    class Logged(mytorch.Tensor):
        pass

    assert type(x.as_subclass(Logged) + 1) is Logged
    assert str(export(model, (x,), dynamic_shapes=({0: Dim("n")},)).graph) == expected


def test_unnamed_dimensions():
    program = export(nn.Softmax(-1), (mytorch.ones(2, 3),), dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.AUTO},))
    assert program.module()(mytorch.ones(5, 7)).shape == (5, 7)


def test_models_with_state_outside_of_the_recording():
    """A cache of the model that earlier calls filled does not become a constant of the graph."""
    model = mytorch.models.Llama(num_layers=1, num_heads=2, embed_dim=8, vocab_size=9, context_length=400).eval()
    tokens = mytorch.randint(0, 9, (2, 5))
    expected = model(tokens)
    program = export(model, (tokens,), dynamic_shapes=({1: Dim("length")},))
    assert graph_models.difference(expected, program.module()(tokens)) < 1e-6
    long = mytorch.randint(0, 9, (2, 390))
    with mytorch.no_grad():
        assert graph_models.difference(model(long), program.module()(long)) < 1e-6
