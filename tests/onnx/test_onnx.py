"""`mytorch.onnx`: files whose results in ONNX Runtime are equal to the results of the library."""

import numpy as np
import pytest

from tests.loops import loop

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import mytorch  # noqa: E402
from mytorch import nn  # noqa: E402
from mytorch.export import Dim, dims, export  # noqa: E402
from tests import graph_models  # noqa: E402
from tests.export.random_programs import Program  # noqa: E402
from tests.fx.test_fx import LARGE  # noqa: E402


@loop
@pytest.mark.parametrize("name", [name for name in graph_models.CASES if name not in LARGE])
def test_models_are_equal_in_onnx_runtime(name):
    program = graph_models.check_export(name)[1]
    assert graph_models.check_onnx(name, program) < 1e-4


@pytest.mark.parametrize("name", ["mixer", "activations", "gpt2", "style_transfer", "spatial_transformer"])
@pytest.mark.parametrize("options", [{"opset_version": 20}, {"do_constant_folding": False}])
def test_options_keep_the_results(name, options):
    assert graph_models.check_onnx(name, graph_models.check_export(name)[1], **options) < 1e-4


@loop
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    model, (rows, columns) = Program(seed), dims("rows", "columns", min=3)
    mytorch.manual_seed(seed)
    try:
        program = export(model, (mytorch.randn(3, 5, 4),), dynamic_shapes=({0: rows, 1: columns},))
    except ValueError:
        pytest.skip("tests/export checks the error")
    converted = mytorch.onnx.export(program)
    for sizes in ((3, 5), (7, 6), (4, 3)):
        x = mytorch.randn(*sizes, 4)
        with mytorch.no_grad():
            assert graph_models.difference(model(x), converted(x)) < 1e-4, sizes


# -- operations ------------------------------------------------------------------------------------------------------

FLOATS = """abs acos asin atan ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac log log10 log1p log2 neg positive rad2deg reciprocal
relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc isnan isinf isfinite nan_to_num logical_not""".split()


def _positive(*shape):
    return mytorch.rand(*shape) * 0.8 + 0.1


UNARY = {
    **{name: getattr(mytorch, name) for name in FLOATS},
    "acosh": lambda x: mytorch.acosh(x + 1), "atanh": mytorch.atanh, "asinh": mytorch.asinh, "half": lambda x: x.half() * 2,
    "var": lambda x: (x.var(), x.var(1), x.std((0, 2), keepdim=True), mytorch.var(x, dim=-1, unbiased=False)),
    "norms": lambda x: (x.norm(), x.norm(1, dim=1), mytorch.linalg.vector_norm(x, 3, dim=-1), x.norm(float("inf"), dim=0)),
    "reductions": lambda x: (x.sum(), x.mean((0, 1)), x.prod(1), x.amax((1, 2)), x.amin(0), x.logsumexp(-1, keepdim=True), x.max(), x.min()),
    "bools": lambda x: (x.all(), x.any(1), (x > 0.5).all(0), (x > 0.5).sum(1), (x > 0.5).float().mean()),
    "arg": lambda x: (x.argmax(), x.argmin(1), x.argmax(-1, keepdim=True), x.max(1)[1], x.min(2, keepdim=True), x.argsort(1), x.median(1)[0]),
    "topk": lambda x: (*x.topk(2), *x.topk(1, dim=1, largest=False), x.sort(0)[1], x.sort(2, descending=True)[0]),
    "shapes": lambda x: (x.permute(2, 0, 1), x.transpose(0, 2), x.unsqueeze(1).squeeze(1), x.flatten(), x[None].expand(2, -1, -1, -1), x.T),
    "joins": lambda x: (mytorch.cat([x, x.long()]), mytorch.stack([x, x], -1), *x.split([1, 2], 1), *x.chunk(2, 2), *x.unbind(1), x.repeat(2, 1, 1)),
    "slices": lambda x: (x[0], x[-1, :, 1], x[..., ::2], x[:, None, 1:], x[:, -2:-1], x[1:, :, :-1], x.narrow(1, 1, 2), x.select(2, -1)),
    "indices": lambda x: (x[[1, 0, 1]], x[:, [2, 0]], x[0, [1, 2]], x[[0, 1], [1, 2]], x[:, [0, 1], [1, 0]], x[[0, 1], :, [1, 0]], x.index_select(1, mytorch.tensor([2, 1]))),
    "masks": lambda x: (x.masked_fill(x > 0.5, -1.0), mytorch.where(x > 0.4, x, 0.0), x.clamp(0.2, 0.6), x.clamp(min=0.3), mytorch.tril(x), x.triu(1)),
    "gather": lambda x: (x.gather(1, (x * 2).long()), mytorch.zeros(2, 3, 4).scatter(1, (x * 2).long(), x), x.take_along_dim((x * 2).long(), 1)),
    "scatter": lambda x: (mytorch.zeros(2, 5, 4).scatter_add(1, (x * 3).long(), x), mytorch.zeros(2, 3, 4).scatter_(2, (x * 3).long(), 2.0)),
    "arithmetic": lambda x: (x // 0.3, x % 0.3, mytorch.fmod(x, 0.3), 2 - x, 2 / x, x**2, 2**x, x**-0.5, mytorch.maximum(x, 1 - x), mytorch.lerp(x, 1 - x, 0.3)),
    "integers": lambda x: ((x * 9).long() // 2, (x * 9).long() % 4, (x * 9 - 5).int() // 3, (x * 9).long() & 3, (x * 9).long() ^ 5, ~(x * 9).long(), -(x * 9).long() % 4),
    "comparisons": lambda x: (x == x, x != 1 - x, x > 0.5, x >= x, (x > 0.3) & (x < 0.7), (x > 0.3) | (x < 0.1), (x > 0.3) ^ (x < 0.7), (x * 5).long() == 2),
    "products": lambda x: (x @ x.transpose(1, 2), mytorch.einsum("bij,bkj->bik", x, x), mytorch.bmm(x, x.mT), mytorch.addmm(x[0], x[0, :, :3], x[1]), mytorch.cdist(x, x + 1), mytorch.outer(x[0, 0], x[0, 1])),
    "cumulative": lambda x: (x.cumsum(1), x.flip(0), x.roll(1, 2), x.diff(dim=1), mytorch.meshgrid(x[0, 0], x[0, 1], indexing="ij")[0]),
    "windows": lambda x: (x.unfold(2, 2, 1), x.unfold(1, 2, 1), mytorch.diagonal(x, 0, 1, 2), mytorch.diagonal(x, 1, 1, 2)),
    "created": lambda x: (mytorch.arange(1, 7, 2) + x.shape[1], mytorch.arange(end=4) * x, mytorch.arange(0.0, 1.0, 0.25) * x, mytorch.full((2, 2), 3.0) + x[0, 0, 0], mytorch.eye(3) @ x, mytorch.zeros_like(x) + 1, x.new_full((2,), 5) * x[0, 0, 1], mytorch.linspace(0, 1, 4) * x),
    "losses": lambda x: (nn.functional.mse_loss(x, 1 - x), nn.functional.l1_loss(x, x * 2), nn.functional.smooth_l1_loss(x, 1 - x, beta=0.3), nn.functional.huber_loss(x, 1 - x), nn.functional.binary_cross_entropy(x, 1 - x), nn.functional.binary_cross_entropy_with_logits(x - 0.5, x)),
    "normalize": lambda x: (nn.functional.normalize(x, dim=1), nn.functional.layer_norm(x, (3, 4)), nn.functional.rms_norm(x, (4,)), nn.functional.local_response_norm(x, 2)),
    "pools": lambda x: (nn.functional.max_pool1d(x, 2), nn.functional.avg_pool1d(x, 2, 1, 1), nn.functional.avg_pool1d(x, 3, 2, 1, True, False), nn.functional.adaptive_avg_pool1d(x, 2), nn.functional.adaptive_max_pool1d(x, 2), nn.functional.lp_pool1d(x, 2, 2)),
    "pads": lambda x: (nn.functional.pad(x, (1, 2), value=3.0), nn.functional.pad(x, (2, 1), "reflect"), nn.functional.pad(x, (1, 0, 0, 2)), nn.functional.pad(x, (-1, 1)), nn.functional.pad(x, (3, 1), "replicate")),
    "resized": lambda x: tuple(nn.functional.interpolate(x[:, None], size=(5, 7), mode=m) for m in ("nearest", "nearest-exact", "bilinear", "bicubic")) + (nn.functional.interpolate(x, scale_factor=1.5, mode="linear"), nn.functional.interpolate(x[:, None], size=(2, 9), mode="bilinear", align_corners=True)),
    "one_hot": lambda x: ((x * 3).long()[..., None] == mytorch.arange(3)).float(),
    "distances": lambda x: (mytorch.hypot(x, 1 - x), nn.functional.cosine_similarity(x, 1 - x, dim=-1), x.dist(1 - x)),
    "attention": lambda x: (nn.functional.scaled_dot_product_attention(x, x, x), nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True), nn.functional.scaled_dot_product_attention(x, x, x, x @ x.mT > 0.9), nn.functional.scaled_dot_product_attention(x, x, x, mytorch.zeros(3, 3, dtype=mytorch.bool))),
    "unfolded": lambda x: mytorch.cat([nn.functional.pixel_unshuffle(x[:, None, :2], 2), nn.functional.pixel_shuffle(x[:, :, None, :].permute(0, 3, 1, 2), 2).flatten(1)[:, :2, None, None].expand(2, 2, 1, 2)], 1),
}  # fmt: skip


class Whole(nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@loop
@pytest.mark.parametrize("name", UNARY)
def test_operations(name):
    mytorch.manual_seed(0)
    x, model = _positive(2, 3, 4), Whole(UNARY[name])
    converted = mytorch.onnx.export(model, (x,))
    for value in (x, _positive(2, 3, 4)):
        expected, found = model(value), converted(value)
        assert graph_models.difference(expected, found) < (2e-3 if name == "half" else 1e-5)
        assert [e.dtype for e in graph_models.flat(expected)] == [f.dtype for f in found]


# -- files -----------------------------------------------------------------------------------------------------------


def test_files_names_and_axes(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
    x, path = mytorch.randn(2, 3), tmp_path / "model.onnx"
    mytorch.onnx.export(
        model, x, path, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}
    )
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert proto.opset_import[0].version == 18
    assert [i.name for i in proto.graph.input] == ["x"]
    assert {i.name for i in proto.graph.initializer} >= {"0.weight", "0.bias"}
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    value = np.random.rand(5, 3).astype(np.float32)
    found = session.run(["y"], {"x": value})[0]
    assert np.allclose(found, model(mytorch.tensor(value)).detach().numpy(), atol=1e-6)
    mytorch.onnx.export(model, (x,), path, external_data=True)
    assert onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"input": value[:2]})[
        0
    ].shape == (2, 4)


def test_parameters_as_inputs():
    model, x = nn.Linear(3, 2), mytorch.randn(2, 3)
    bare = mytorch.onnx.export(model, x, export_params=False).model_proto
    assert [i.name for i in bare.graph.input] == ["input", "weight", "bias"]
    assert not {"weight", "bias"} & {i.name for i in bare.graph.initializer}
    kept = mytorch.onnx.export(model, x, keep_initializers_as_inputs=True).model_proto
    assert [i.name for i in kept.graph.input] == ["input", "weight", "bias"]
    assert {"weight", "bias"} <= {i.name for i in kept.graph.initializer}


def test_gpt2_generates_the_same_tokens_with_a_cache():
    mytorch.manual_seed(0)
    model = mytorch.models.GPT2(num_layers=2, num_heads=2, embed_dim=16, vocab_size=30, context_length=24).eval()
    step = mytorch.models.WithPast(model)
    batch, length, past = dims("batch", "length", "past")
    example = (mytorch.randint(0, 30, (2, 3)), *step.empty_past(2, 4))
    converted = mytorch.onnx.export(
        step, example, dynamic_shapes=({0: batch, 1: length}, [{0: batch, 2: past}] * 4), verify=True
    )
    tokens = mytorch.randint(0, 30, (1, 5))
    expected = model.generate(tokens, 12, temperature=0)
    found, state, new = tokens, step.empty_past(1), tokens
    for _ in range(12):
        logits, *state = converted(new, *state)
        new = logits[:, -1].argmax(-1, keepdim=True)
        found = mytorch.cat([found, new], 1)
    assert found.tolist() == expected.tolist()


# -- errors ----------------------------------------------------------------------------------------------------------


def test_unsupported_operations_name_the_line():
    for function, words in ((lambda x: mytorch.linalg.svd(x)[1], "svd"), (lambda x: x.lgamma(), "lgamma")):
        with pytest.raises(
            mytorch.onnx.UnsupportedOperatorError, match="expected operations with a translation"
        ) as error:
            mytorch.onnx.export(Whole(function), (_positive(3, 4),))
        assert f"got {words}" in str(error.value)
        assert "test_onnx.py" in str(error.value)
        assert "lambda x" in str(error.value)


def test_bad_arguments():
    model, x = nn.ReLU(), mytorch.ones(2, 3)
    with pytest.raises(ValueError, match="expected an opset_version from 18 to"):
        mytorch.onnx.export(model, x, opset_version=11)
    with pytest.raises(ValueError, match="expected at most 1 input_names, got 2"):
        mytorch.onnx.export(model, x, input_names=["a", "b"])
    with pytest.raises(ValueError, match="expected dynamic_axes or dynamic_shapes, got both"):
        mytorch.onnx.export(model, x, dynamic_axes={"input": [0]}, dynamic_shapes=({0: Dim("n")},))
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        mytorch.onnx.export(model, x, operator_export_type=1)


def test_dynamic_axes_name_the_tensors_of_nested_inputs():
    class Nested(nn.Module):
        def forward(self, pair, batch):
            return (pair[0] + pair[1]) * batch["a"] - batch["b"]

    def inputs(n):
        return [mytorch.randn(n, 2), mytorch.randn(n, 2)], {"a": mytorch.randn(n, 2), "b": mytorch.randn(n, 2)}

    model, names = Nested().eval(), ["first", "pair_1", "batch_a", "batch_b"]
    axes = {"first": [0], **{name: {0: "first_dim_0"} for name in names[1:]}}
    program = mytorch.onnx.export(model, inputs(3), dynamic_axes=axes, input_names=["first"])
    assert program.input_names == names
    other = inputs(5)
    assert np.allclose(program(*other)[0].numpy(), model(*other).numpy())
