"""Selection, plan cache and fallback of cuDNN attention, over the fake libraries. Needs no GPU."""

import contextlib
import sys
import warnings

import pytest
from check_cudnn_attention import (
    attention,
    library,
    near,
    rand,
    taken,
    tensor,
    truth,
    xp,
)  # installs the fake libraries

import mytorch
from mytorch.kernels import cudnn, registry
from mytorch.kernels.cudnn import convolution
from mytorch.nn import functional as F

operations, convolutions = attention.attention, convolution.convolutions


def clear():
    for table in (operations.plans, operations.errors, operations.warned, library.why):
        table.clear()


@pytest.fixture(autouse=True)
def fresh():
    """No plans and no troubles yet."""
    clear()
    library.counts.update(planned=0, executed=0, backward=0)
    yield
    clear()


def step(shape=(2, 2, 9, 16), causal=True):
    """Forward and backward at random numbers, compared with float64."""
    found = [rand(*shape) for _ in range(4)]
    leaves = [tensor(x) for x, _ in found[:3]]
    out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    out.backward(mytorch.Tensor._wrap(found[3][0]))
    for got, want in zip((out, *[x.grad for x in leaves]), truth(*[x for _, x in found], causal, 0.25), strict=True):
        near(got, want, 3.0)


def test_plans_are_made_once_for_each_shape():
    for _ in range(3):
        step()
    assert library.counts == {"planned": 2, "executed": 6, "backward": 3}
    step((2, 2, 10, 16))
    assert library.counts["planned"] == 4
    step(causal=False)
    assert library.counts["planned"] == 6


def test_no_plan_is_made_for_a_prompt():
    """Without gradients, each prompt length would need a plan for a single call. Plans made in training are used."""
    q, k, v = (tensor(rand(2, 2, 9, 16)[0]) for _ in range(3))
    for planned in (0, 2):
        with mytorch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert library.counts == {"planned": planned, "executed": planned // 2 * 3, "backward": planned // 2}
        if not planned:
            step()


def test_plans_are_bounded(monkeypatch):
    monkeypatch.setattr(cudnn, "MOST_PLANS", 3)
    for length in range(4, 12):
        step((1, 1, length, 16))
    assert len(operations.plans) == 3


@pytest.mark.parametrize(
    "what", ["mask", "dropout", "window", "float32", "width", "deterministic", "short", "policy", "strides"]
)
def test_inputs_that_cudnn_does_not_support(what, monkeypatch):
    shape, dtype = (2, 2, 9, 12 if what == "width" else 16), "fp32" if what == "float32" else "bf16"
    q, k, v = (tensor(rand(*shape, dtype=dtype)[0]) for _ in range(3))
    options = {
        "mask": {"attn_mask": tensor(rand(9, 9)[0]).detach()},
        "dropout": {"dropout_p": 0.5},
        "window": {"window": (2, 1)},
    }
    if what == "short":
        monkeypatch.setattr(attention, "FEW", 128)
    if what == "strides":  # one key head for all, by a stride of 0
        k = mytorch.Tensor._wrap(xp.broadcast_to(k._mt_data._array[:, :1], shape))
    if what == "deterministic":
        mytorch.use_deterministic_algorithms(True)
    try:
        with mytorch.fused(False) if what == "policy" else contextlib.nullcontext():
            F.scaled_dot_product_attention(q, k, v, **options.get(what, {})).sum().backward()
    finally:
        mytorch.use_deterministic_algorithms(False)
    assert library.counts["executed"] == 0
    assert q.grad is not None


def test_a_captured_step_replays_it():
    found = [rand(2, 2, 9, 16) for _ in range(4)]
    q, k, v = (tensor(x) for x, _ in found[:3])

    @mytorch.compile_step
    def run(g):
        q.grad = k.grad = v.grad = None
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out.backward(g)
        return out, q.grad, k.grad, v.grad

    for number in range(6):
        g, g64 = rand(2, 2, 9, 16)
        outs = run(mytorch.Tensor._wrap(g))
        for got, want in zip(outs, truth(*[x for _, x in found[:3]], g64, True, 0.25), strict=True):
            near(got, want, 3.0)
        if number == 2:
            before = dict(library.counts)
    assert before["planned"] == library.counts["planned"] == 2
    assert library.counts["executed"] == before["executed"] + 2  # noted once, in the capture
    form = next(iter(run._mt_graphs._forms.values()))
    operations.plans.clear()
    assert sum(type(x) is cudnn.Plan for x in form.graph._capture.kept) == 2  # which the graph keeps


def test_a_shape_that_was_not_prepared_is_tritons_under_capture():
    q, k, v = (tensor(rand(1, 1, 9, 16)[0]) for _ in range(3))
    stream = mytorch.cuda.Stream()
    F.scaled_dot_product_attention(q, k, v)
    library.counts.update(planned=0, executed=0)
    graph = mytorch.cuda.CUDAGraph()
    with mytorch.cuda.graph(graph, stream=stream):
        assert taken(q, k, v, causal=False) is False
        assert not attention._planned(("backward", 0, False, 0.5), {}, q._mt_data._array.dtype)
    assert library.counts == {"planned": 0, "executed": 0, "backward": 0}


@pytest.mark.parametrize("where", ["plan", "plan backward", "execute"])
def test_a_rejection_warns_once_and_triton_runs(where):
    """If cuDNN refuses only backward, Triton's backward receives the log-sum-exp in its own units."""
    library.why[where] = "no kernel for that"
    with pytest.warns(UserWarning, match=r"no kernel for that\. Triton's kernel is used\."):
        step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step()
        step((2, 2, 11, 16))
    assert library.counts["backward"] == 0
    assert library.counts["executed"] == (3 if where == "plan backward" else 0)


def test_deterministic_mode_between_forward_and_backward():
    @contextlib.contextmanager
    def deterministic():
        mytorch.use_deterministic_algorithms(True)
        yield
        mytorch.use_deterministic_algorithms(False)

    found = [rand(2, 2, 9, 16) for _ in range(4)]
    leaves = [tensor(x) for x, _ in found[:3]]
    out = F.scaled_dot_product_attention(*leaves, is_causal=True)
    with deterministic():
        out.backward(mytorch.Tensor._wrap(found[3][0]))
    assert library.counts == {"planned": 1, "executed": 1, "backward": 0}
    for got, want in zip([x.grad for x in leaves], truth(*[x for _, x in found], True, 0.25)[1:], strict=True):
        near(got, want, 3.0)


def _loaded_again(monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    attention._choice.cache_clear()
    monkeypatch.setattr(cudnn, "_state", {})
    return registry.LazyKernel("mytorch.kernels.cudnn.attention", "cuda")


def test_why_not(monkeypatch):
    try:
        for word, why in (("triton", "MYTORCH_ATTENTION is triton"), ("cudnn", None)):
            kernel = _loaded_again(monkeypatch, MYTORCH_ATTENTION=word)
            assert (kernel.load() is None) == (why is not None)
            assert kernel.problem == why
        library.why["plan"] = "no kernel"
        with pytest.raises(RuntimeError, match="no kernel"):
            step()
        with pytest.raises(ValueError, match="'nobody'; it takes one of cudnn, triton"):
            _loaded_again(monkeypatch, MYTORCH_ATTENTION="nobody").load()
        kernel = _loaded_again(monkeypatch, MYTORCH_ATTENTION="")
        monkeypatch.setattr(cudnn.importlib.import_module("cudnn"), "backend_version", lambda: 90800)
        with pytest.warns(UserWarning, match=r"its version is 90800, and 9\.15\.1 or a newer one is needed"):
            assert kernel.load() is None
        kernel = _loaded_again(monkeypatch)
        monkeypatch.setitem(sys.modules, "cudnn", None)
        assert kernel.load() is None
        assert kernel.problem == "nvidia-cudnn-frontend is not installed"
    finally:
        monkeypatch.undo()
        attention._choice.cache_clear()


# -- convolutions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def convolved():
    """A function that convolves, forward and backward, and returns how many plans were made and executed."""
    for table in (convolutions.plans, convolutions.errors, convolutions.warned):
        table.clear()

    def run(shape=(2, 4, 6, 6), dtype="bf16", change=lambda x: x):
        before = dict(library.counts)
        x, w = tensor(change(rand(*shape, dtype=dtype)[0])), tensor(rand(8, shape[1], 3, 3, dtype=dtype)[0])
        F.conv2d(x, w).sum().backward()
        return tuple(library.counts[name] - before[name] for name in ("planned", "executed"))

    yield run
    for table in (convolutions.plans, convolutions.errors, convolutions.warned):
        table.clear()


def test_plans_of_convolutions(convolved):
    assert convolved() == (3, 3)
    assert convolved() == (0, 3)
    assert convolved((2, 4, 7, 6)) == (3, 3)
    assert convolved(dtype="fp32") == (3, 3)
    with mytorch.backends.cudnn.flags(enabled=True, deterministic=True):
        assert convolved() == (3, 3)
        plan = list(convolutions.plans.values())[-1]
        assert plan.graph.avoided == [library.numerical_note.NONDETERMINISTIC]
    notes = library.numerical_note
    for allowed, avoided in (
        (True, [notes.DOWN_CONVERT_INPUTS]),
        (False, [notes.DOWN_CONVERT_INPUTS, notes.TENSOR_CORE]),
    ):
        convolutions.plans.clear()
        with mytorch.backends.cudnn.flags(enabled=True, allow_tf32=allowed):
            convolved(dtype="fp32")
        assert [plan.graph.avoided for plan in convolutions.plans.values()] == [avoided] * 3


def test_convolutions_that_cudnn_does_not_compute(convolved):
    with mytorch.backends.cudnn.flags(enabled=False):
        assert convolved() == (0, 0)

    def unaligned(x):
        flat = xp.zeros(x.size + 1, x.dtype)[1:].reshape(x.shape)
        flat[...] = x
        return flat

    assert convolved(change=unaligned)[1] == 1  # only the input's gradient
    assert convolved((2, 4, 9, 6)) == (3, 3)
    for plan in list(convolutions.plans.values())[-3:]:
        plan.workspace = 1 << 60  # more than the GPU's memory
    assert convolved((2, 4, 9, 6)) == (0, 0)
    library.why["execute"] = "no reason"
    with pytest.warns(UserWarning, match=r"this convolution: no reason\. Triton's kernel is used\."):
        assert convolved((3, 4, 6, 6))[1] == 0
    del library.why["execute"]
    assert convolved() == (0, 0)  # after an error


def test_a_captured_convolution(convolved):
    assert convolved() == (3, 3)
    x, w = tensor(rand(2, 4, 6, 6)[0]), tensor(rand(8, 4, 3, 3)[0])
    graph = mytorch.cuda.CUDAGraph()
    with mytorch.cuda.graph(graph, stream=mytorch.cuda.Stream()):
        F.conv2d(x, w)
        F.conv2d(x[:1], w)  # not prepared: Triton's
    assert sum(type(item) is cudnn.Plan for item in graph._capture.kept) == 1


def test_settings_of_cudnn(monkeypatch):
    settings = mytorch.backends.cudnn
    assert settings.is_available()
    assert settings.version() == 91900
    assert (settings.enabled, settings.deterministic) == (True, False)
    monkeypatch.setattr(cudnn, "_state", {"problem": "no cuDNN"})
    assert not settings.is_available()
    assert settings.version() is None
