"""Every op on float16 and bfloat16 does what its record declares (`half=` in ops/dispatch/record.py).

The rows of tests/samples run in half precision, and each op that they call runs again in float32. Unless its record says
"itself", the results must be the float32 results, rounded once. Gradients must be those of the same formulas in float32 on
the same saved values. In-place variants and `out=` must give the results of the function.
"""

import inspect

import numpy as np
import pytest

import mytorch
from mytorch.ops import everything
from mytorch.ops.dispatch.op import Op
from mytorch.ops.dispatch.record import RECORDS
from tests.loops import loop
from tests.samples import ROWS
from tests.test_ops import _call, _inputs, _outputs, _values

pytestmark = pytest.mark.cpu_only
DTYPES = ["float16", "bfloat16"]
LOADED = {module.__name__ for module in vars(everything).values() if inspect.ismodule(module)}
RULES = {name: record for name, record in RECORDS.items() if record.half != "itself" and record.__module__ in LOADED}
F, nn, O = mytorch.nn.functional, mytorch.nn, everything
WINDOWS = {"kernel": (3,), "stride": (1,), "padding": (1,)}
WITHOUT_ROWS = {  # functions of a matrix (6, 6), for ops that no row calls; some of these ops run on a GPU only
    "cumprod": lambda x: mytorch.cumprod(x, 1),
    "logcumsumexp": lambda x: mytorch.logcumsumexp(x, 0),
    "einsum": lambda x: mytorch.einsum("ij,kj,jl->il", x, x, x),
    "batch_norm": lambda x: F.batch_norm(x, None, None, x[0], x[1], True),
    "channel_affine": lambda x: O.normalization._channel_affine(x, x[0], x[1]),
    "group_norm": lambda x: O.normalization._group_norm(x[None], x[0], x[1], num_groups=2),
    "add_layer_norm": lambda x: O.normalization._add_layer_norm(x, x + 1, x[0], x[1], width=6),
    "add_rms_norm": lambda x: O.normalization._add_rms_norm(x, x + 1, x[0], width=6, eps=1e-6),
    "convolution": lambda x: F.conv1d(x[None], x.reshape(2, 6, 3), x[0, :2], padding=1),
    "convolution_input": lambda x: F.conv_transpose1d(x[None], x.reshape(6, 2, 3), x[0, :2], padding=1),
    "convolution_weight": lambda x: O.conv.convolve_weight(x[None], x[None], **WINDOWS, dilation=(1,), groups=1),
    "avg_pool": lambda x: F.avg_pool1d(x[None], 3, 1, 1),
    "avg_pool_backward": lambda x: O.pool._sum_pool_spread(x[None], shape=(1, 6, 6), **WINDOWS, scale=1 / 3),
    "cross_entropy_soft": lambda x: O.loss._cross_entropy_soft(x, x.softmax(1)),
    "nll": lambda x: O.loss._nll(x, mytorch.arange(6)),
    "gated": lambda x: [O.gated._gated(x, gate=gate) for gate in O.gated.GATES],
    "linear_activation": lambda x: O.linear_activation.linear_activation(x, x, x[0], activation="silu"),
    "gelu_mlp": lambda x: O.linear_activation.gelu_mlp(x, x, x, x[0], x[1]),
    "lstm": lambda x: nn.LSTM(6, 4).to(x.dtype)(x[None]),
    "gru": lambda x: nn.GRU(6, 4).to(x.dtype)(x[None]),
    "rnn": lambda x: nn.RNN(6, 4).to(x.dtype)(x[None]),
}


def is_half(x):
    return getattr(x, "dtype", None) in (mytorch.float16, mytorch.bfloat16)


def wide(x):
    if type(x) in (list, tuple):
        return type(x)(map(wide, x))
    return x.astype(np.float32) if is_half(x) and hasattr(x, "astype") else x


def narrow(x, dtype):
    return x.astype(dtype) if x.dtype == np.float32 else x


def same(got, wanted, what):
    __tracebackhide__ = True
    assert got.dtype == wanted.dtype, f"{what}: {got.dtype}, expected {wanted.dtype}"
    np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64), err_msg=what)


def tensors(row, dtype, rng):
    return _inputs(_values(row, row.shapes, rng, "float32"), mytorch, dtype)


def calls_of(run, monkeypatch):
    """Returns (op, raw inputs, attributes) of the ops with a rule that a function calls in half precision."""
    found, execute = [], Op.execute

    def recorded(self, implementation, operands, attrs, *args, **kwargs):
        if self.half != "itself" and any(map(is_half, operands[0])):
            found.append((self, list(operands[0]), dict(attrs)))
        return execute(self, implementation, operands, attrs, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Op, "execute", recorded)
        run()
    return found


def calls_of_row(row, dtype, rng, monkeypatch):
    def run():
        for attrs in row.settings():
            _call(row, mytorch, tensors(row, dtype, rng), attrs)

    return calls_of(run, monkeypatch)


def run(op, raws, attrs):
    """Returns the leaves and the results of an op."""
    leaves = []
    for i, raw in enumerate(raws):
        leaf = mytorch.from_numpy(raw.copy()) if isinstance(raw, np.ndarray) else raw
        if leaf is not raw and i < op.floats and leaf.dtype.is_floating_point:
            leaf.requires_grad_()
        leaves.append(leaf)
    return leaves, _outputs(op.dispatch(*leaves, fused=False, **attrs))


def compare(op, raws, attrs, rng):
    """Compares an op on raw arrays in half precision with the same op in float32, and the gradients."""
    half = next(r.dtype for r in raws if is_half(r))
    leaves, got = run(op, raws, attrs)
    numbers = raws
    if op.elementwise and not op.keeps_python_scalars_float32:  # PyTorch rounds a number to the dtype of the tensor
        numbers = [float(half.type(r)) if type(r) in (float, int) else r for r in raws]
    wide_leaves, wanted = run(op, [wide(r) for r in numbers], attrs)
    for a, b in zip(got, wanted, strict=True):
        a, b = (t.detach()._mt_data._array for t in (a, b))
        same(a, b if attrs.get("dtype") is not None else narrow(b, half), op.name)
    node, wide_node = (getattr(results[0]._mt_edge, "node", results[0]._mt_edge) for results in (got, wanted))
    if op.half == "forward" or node is None:
        return
    wide_node.saved, wide_node.versions = wide(tuple(node.saved)), ()
    ups = [np.asarray(rng.standard_normal(tuple(t.shape))).astype(half) for t in got if t.requires_grad]
    grads = []
    for results, inputs, given in ((got, leaves, ups), (wanted, wide_leaves, wide(ups))):
        ends = [t for t in inputs if getattr(t, "requires_grad", False)]
        roots = [t for t in results if t.requires_grad]
        try:
            grads.append(mytorch.autograd.grad(roots, ends, [mytorch.from_numpy(u) for u in given], allow_unused=True))
        except NotImplementedError:  # an op without a gradient
            return
    for a, b in zip(*grads, strict=True):
        assert (a is None) == (b is None)
        # The product of an elementwise op is rounded before it is summed over broadcast axes, as in PyTorch.
        if a is not None and (a.shape == got[0].shape or not op.elementwise):
            same(a._mt_data._array, narrow(b._mt_data._array, half), f"gradient of {op.name}")


@loop
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [pytest.param(r, id=f"{r.name}{i}") for i, r in enumerate(ROWS)])
@pytest.mark.filterwarnings("ignore")
def test_ops_that_rows_call_round_once(row, dtype, rng, monkeypatch):
    for op, raws, attrs in calls_of_row(row, dtype, rng, monkeypatch):
        compare(op, raws, attrs, rng)


@loop
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(WITHOUT_ROWS))
def test_ops_without_rows_round_once(name, dtype, rng, monkeypatch):
    x = mytorch.tensor(rng.standard_normal((6, 6))).to(getattr(mytorch, dtype))
    found = calls_of(lambda: WITHOUT_ROWS[name](x), monkeypatch)
    assert found
    for op, raws, attrs in found:
        compare(op, raws, attrs, rng)


@loop
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name, record in RULES.items() if record.elementwise])
@pytest.mark.filterwarnings("ignore")
def test_elementwise_ops_round_once(name, dtype, rng):
    op, kind = RULES[name], getattr(mytorch, dtype).numpy
    attrs = {n: 1 if n == "n" else 0.7 for n, value in op.defaults.items() if value is inspect.Parameter.empty}
    for shapes in ([(40,)] * 3, [(5, 8), (8,), (5, 1)], [(0, 3)] * 3, [()] * 3):
        raws = [np.asarray(rng.standard_normal(s) * 2).astype(kind) for s in shapes[: len(op.inputs)]]
        try:
            op.dispatch(*map(mytorch.from_numpy, raws), **attrs)
        except NotImplementedError:  # an op on integers
            continue
        compare(op, raws, attrs, rng)


def test_every_rule_of_half_precision_is_compared(monkeypatch, rng):
    """Only decompositions, which PyTorch does not define for half precision, are not called above."""
    found = {name for name, record in RULES.items() if record.elementwise}
    for row in ROWS:
        found |= {op.name for op, *_ in calls_of_row(row, "bfloat16", rng, monkeypatch)}
    x = mytorch.ones(6, 6).bfloat16()
    for function in WITHOUT_ROWS.values():
        found |= {op.name for op, *_ in calls_of(lambda call=function: call(x), monkeypatch)}
    missing = {name for name in RULES.keys() - found if not RULES[name].__module__.endswith(".decompositions")}
    assert missing == {"along", "euclidean_dist", "sgn"}  # which receive float32, float64 or complex numbers


@loop
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [0.1, 3, 2.7])
@pytest.mark.parametrize("name", "add sub mul div pow remainder fmod floor_divide maximum minimum".split())
def test_numbers_in_place_and_in_out(name, number, dtype, rng):
    """A Python number is rounded in `x.op_(number)` and `op(x, number, out=y)` as in `op(x, number)`."""
    x = mytorch.tensor(rng.standard_normal(200) * 3).to(getattr(mytorch, dtype))
    function, variant = getattr(mytorch, name), getattr(mytorch.Tensor, name + "_", None)
    wanted = function(x, number)
    if variant is not None:
        same(variant(x.clone(), number)._mt_data._array, wanted._mt_data._array, f"{name}_")
    same(function(x, number, out=mytorch.empty_like(wanted))._mt_data._array, wanted._mt_data._array, f"{name}(out=)")


@loop
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [pytest.param(r, id=f"{r.name}{i}") for i, r in enumerate(ROWS)])
@pytest.mark.filterwarnings("ignore")
def test_in_place_variants_and_out_round_as_the_function(row, dtype, grad, rng):
    function, variant = getattr(mytorch, row.name, None), getattr(mytorch.Tensor, row.name + "_", None)
    if row.torch or row.ours or row.listed or row.name == "gather" or function is None or row.name == "where":
        pytest.skip("not called by its name")
    for attrs in row.settings():
        inputs = tensors(row, dtype, rng)
        wanted = _call(row, mytorch, inputs, attrs)
        if not isinstance(wanted, mytorch.Tensor) or not is_half(wanted):
            continue
        if variant is not None and wanted.shape == inputs[0].shape:
            target = inputs[0].clone().requires_grad_() if grad else inputs[0].clone()
            target = target * 1 if grad else target
            variant(target, *inputs[1:], **attrs)
            same(target.detach()._mt_data._array, wanted._mt_data._array, f"{row.name}_")
        if "out" in inspect.signature(function).parameters and not grad:
            out = function(*inputs, **attrs, out=mytorch.empty_like(wanted))
            same(out._mt_data._array, wanted._mt_data._array, f"{row.name}(out=)")
