"""Every loss of nn.functional against PyTorch: values, dtypes, and first and second derivatives.

The inputs are random, in float32 and float64, and scaled by 1, 30 and 300, so that exponentials saturate and overflow.
NaN and infinity must appear at the same positions as in PyTorch.
"""

import inspect
import itertools
import re

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")
F = mytorch.nn.functional

REDUCTIONS = ("mean", "sum", "none")
SHAPES = [(5,), (4, 3), (2, 3, 5), (), (0,), (3, 0)]
LARGE = (70, 300)  # enough elements for the compiled kernels

# Losses whose second derivative PyTorch does not implement. gradgradcheck tests them instead.
ONCE_DIFFERENTIABLE = {"ctc_loss", "multi_margin_loss", "multilabel_margin_loss"}

# Losses that subtract large numbers from each other. In float32 the errors are compared, not the results.
CANCELLING = {"binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss"}


class Sample:
    """The arguments of one call.

    Args:
        inputs: name -> float array; the gradients of these arguments are compared.
        constants: name -> array or number without a gradient. Float arrays are cast to the dtype of the test.
        options: other keyword arguments.
        reductions: the reductions to test.
    """

    def __init__(self, inputs, constants=None, options=None, reductions=REDUCTIONS):
        self.inputs, self.constants = inputs, constants or {}
        self.options, self.reductions = options or {}, reductions

    def __repr__(self):
        shown = {k: getattr(v, "shape", v) for k, v in {**self.inputs, **self.constants, **self.options}.items()}
        return ", ".join(f"{k}={v}" for k, v in shown.items())


def normal(r, shape, scale=1.0):
    return np.asarray(r.standard_normal(shape) * scale)


def signs(r, shape):
    return np.asarray(r.integers(0, 2, shape) * 2.0 - 1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def pairs(r, scale):
    """Samples of an input and a target of one shape, with ties at differences of 0, 1 and 0.5."""
    for shape in [*SHAPES, LARGE]:
        yield {"input": normal(r, shape, scale), "target": normal(r, shape, scale)}
    steps = np.arange(-4, 5) / 2
    yield {"input": steps, "target": np.zeros(9)}


def of_differences(r, scale, *options, weighted=True):
    for i, pair in enumerate(pairs(r, scale)):
        for more in options:
            yield Sample(pair, options=more)
            if weighted and i < 5:
                weight = np.asarray(r.random(pair["input"].shape))
                yield Sample({**pair, "weight": weight}, options=more)
    yield Sample({"input": normal(r, (4, 3), scale), "target": normal(r, (3,), scale)}, options=options[0])


def mse_loss(r, scale):
    return of_differences(r, scale, {})


def l1_loss(r, scale):
    return of_differences(r, scale, {})


def smooth_l1_loss(r, scale):
    return of_differences(r, scale, {}, {"beta": 0.5}, {"beta": 0}, weighted=False)


def huber_loss(r, scale):
    return of_differences(r, scale, {}, {"delta": 0.5})


def binary_cross_entropy(r, scale):
    for shape in [*SHAPES, LARGE]:
        p, t = sigmoid(normal(r, shape, scale)), r.random(shape)
        yield Sample({"input": p, "target": np.asarray(t)})
        yield Sample({"input": p}, {"target": np.asarray(np.round(t)), "weight": np.asarray(r.random(shape))})
    corners = np.array([0, 1, 1e-13, 1e-30, 1 - 1e-7, 1, 0, 0.3])
    yield Sample({"input": corners}, {"target": np.array([0, 1, 0.5, 0.5, 0.5, 0, 1, 0.7])})
    yield Sample(
        {"input": sigmoid(normal(r, (4, 3), scale))}, {"target": np.ones((4, 3)), "weight": np.asarray(r.random(3))}
    )


def binary_cross_entropy_with_logits(r, scale):
    for shape in [*SHAPES, LARGE]:
        x, t, w, p = (normal(r, shape, scale), *(np.asarray(r.random(shape)) for _ in range(3)))
        yield Sample({"input": x, "target": t})
        yield Sample({"input": x, "target": t}, {"weight": w})
        yield Sample({"input": x, "target": t}, {"pos_weight": p * 3})
        yield Sample({"input": x}, {"target": np.asarray(np.round(t)), "weight": w, "pos_weight": p})
    yield Sample({"input": normal(r, (4, 3), scale)}, {"target": r.random((4, 3)), "pos_weight": r.random(3)})
    yield Sample({"input": np.array([-1e4, -90, -89, 0, 89, 90, 1e4])}, {"target": np.array([1.0, 0, 1, 1, 0, 1, 0])})


def kl_div(r, scale):
    for shape in [*SHAPES, LARGE]:
        x = normal(r, shape, scale)
        t = np.asarray(r.random(shape))
        yield Sample({"input": x, "target": t}, reductions=(*REDUCTIONS, "batchmean"))
        yield Sample({"input": x, "target": normal(r, shape)}, options={"log_target": True})
    yield Sample({"input": normal(r, (5,), scale)}, {"target": np.array([0.0, 1.0, 0.5, 0.0, 2.0])})


def poisson_nll_loss(r, scale):
    for shape in SHAPES:
        x, t = normal(r, shape, scale), np.asarray(r.poisson(2.0, shape) * 1.0)
        yield Sample({"input": x}, {"target": t})
        yield Sample({"input": x}, {"target": t}, {"full": True})
        yield Sample({"input": np.abs(x), "target": t + 0.5}, {}, {"log_input": False, "full": True, "eps": 1e-3})


def gaussian_nll_loss(r, scale):
    for shape in SHAPES:
        x, t, v = normal(r, shape, scale), normal(r, shape, scale), np.asarray(r.random(shape) * scale)
        yield Sample({"input": x, "target": t, "var": v})
        yield Sample({"input": x, "target": t, "var": v * 1e-7}, options={"full": True, "eps": 1e-3})
    yield Sample({"input": normal(r, (4, 3), scale), "target": normal(r, (4, 3), scale), "var": r.random(4)})
    yield Sample({"input": normal(r, (4, 3), scale), "target": normal(r, (4, 3), scale), "var": r.random((4, 1))})
    yield Sample({"input": normal(r, (4, 3), scale), "target": normal(r, (4, 3), scale)}, options={"var": 2.0})


def hinge_embedding_loss(r, scale):
    for shape in SHAPES:
        yield Sample({"input": normal(r, shape, scale)}, {"target": signs(r, shape)})
        yield Sample({"input": normal(r, shape, scale)}, {"target": signs(r, shape)}, {"margin": 2.5})
    yield Sample({"input": np.arange(-2.0, 4.0)}, {"target": -np.ones(6)})


def soft_margin_loss(r, scale):
    for shape in SHAPES:  # PyTorch overflows from -88 on in float32; see test_soft_margin_loss_of_large_scores
        yield Sample({"input": np.clip(normal(r, shape, scale), -80, 80)}, {"target": signs(r, shape)})
    yield Sample({"input": np.array([-80.0, -50, -45, -20, 0, 20, 50, 80, 100])}, {"target": np.ones(9)})


def margin_ranking_loss(r, scale):
    for shape in SHAPES:
        two = {"input1": normal(r, shape, scale), "input2": normal(r, shape, scale)}
        yield Sample(two, {"target": signs(r, shape)})
        yield Sample(two, {"target": signs(r, shape)}, {"margin": 1.5})
    yield Sample({"input1": np.arange(-2.0, 3.0), "input2": np.zeros(5)}, {"target": np.ones(5)}, {"margin": 1})


def cosine_embedding_loss(r, scale):
    for shape in [(5,), (4, 3), (0, 3)]:
        two = {"input1": normal(r, shape, scale), "input2": normal(r, shape, scale)}
        yield Sample(two, {"target": signs(r, shape[:-1])})
        yield Sample(two, {"target": signs(r, shape[:-1])}, {"margin": 0.25})
    yield Sample({"input1": np.zeros((2, 3)), "input2": normal(r, (2, 3), scale)}, {"target": np.array([1.0, -1.0])})


def triplets(r, scale):
    for shape in [(5,), (4, 3), (2, 3, 5), (0, 3)]:
        yield {k: normal(r, shape, scale) for k in ("anchor", "positive", "negative")}
    same = normal(r, (4, 3), scale)
    yield {"anchor": same, "positive": same, "negative": normal(r, (4, 3), scale)}


def triplet_margin_loss(r, scale):
    for inputs in triplets(r, scale):
        for options in ({}, {"p": 1, "margin": 0.5}, {"swap": True}, {"p": 3.0, "eps": 1e-3}):
            yield Sample(inputs, options=options)


def triplet_margin_with_distance_loss(r, scale):
    for inputs in triplets(r, scale):
        yield Sample(inputs)
        yield Sample(
            inputs, options={"distance_function": lambda a, b: (a - b).abs().sum(-1), "swap": True, "margin": 2}
        )


def multi_margin_loss(r, scale):
    # PyTorch returns uninitialized memory for the mean and the sum of an empty batch.
    yield Sample({"input": np.zeros((0, 3))}, {"target": np.zeros(0, np.int64)}, reductions=("none",))
    for shape in [(5,), (4, 3), (1, 1)]:
        target = r.integers(0, shape[-1], shape[:-1])
        for options in ({}, {"p": 2, "margin": 0.5}):
            yield Sample({"input": normal(r, shape, scale)}, {"target": target}, options)
            weight = r.random(shape[-1])
            yield Sample({"input": normal(r, shape, scale)}, {"target": target, "weight": weight}, options)
    yield Sample({"input": np.array([[1.0, 0, 2, 3, -1]])}, {"target": np.array([2])})
    yield Sample({"input": np.array([[1.0, np.nan, 2]])}, {"target": np.array([2])})


def multilabel_margin_loss(r, scale):
    yield Sample({"input": np.zeros((0, 3))}, {"target": np.zeros((0, 3), np.int64)}, reductions=("none",))
    for shape in [(5,), (4, 3), (1, 1)]:
        target = np.asarray(np.sort(r.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1), axis=-1))
        target = np.where(r.random(shape) < 0.5, -1, target)
        yield Sample({"input": normal(r, shape, scale)}, {"target": target})
    yield Sample({"input": np.array([[1.0, 0, 2, 3, -1]])}, {"target": np.array([[2, 0, -1, 4, 4]])})
    yield Sample({"input": np.array([[1.0, np.nan, 2]])}, {"target": np.array([[2, -1, 0]])})


def multilabel_soft_margin_loss(r, scale):
    for shape in [(5,), (4, 3), (2, 3, 5), (0, 3), (3, 0)]:
        x, t = normal(r, shape, scale), np.asarray(r.random(shape))
        yield Sample({"input": x, "target": t})
        yield Sample({"input": x}, {"target": np.round(t), "weight": np.asarray(r.random(shape[-1]))})
    yield Sample({"input": np.array([-1e4, -90, -89, 0, 89, 90, 1e4])}, {"target": np.array([1.0, 0, 1, 1, 0, 1, 0])})


CLASSES = [((5,), ()), ((4, 5), (4,)), ((2, 5, 3), (2, 3)), ((0, 5), (0,)), ((2, 5, 0), (2, 0))]


def class_samples(r, scale, *options):
    """Samples with class indices: all kept, some ignored, all ignored; without and with class weights."""
    large = normal(r, (200, 130), scale)
    yield Sample({"input": large}, {"target": r.integers(0, 130, 200)}, {"ignore_index": 2}, ("mean", "none"))
    for shape, target_shape in CLASSES:
        x = normal(r, shape, scale)
        classes = shape[0] if len(shape) == 1 else shape[1]
        target = np.asarray(r.integers(0, classes, target_shape))
        some = np.where(r.random(target_shape) < 0.4, -100, target)
        for labels, more in ((target, {}), (some, {}), (some * 0 + 2, {"ignore_index": 2})):
            for weight in ({}, {"weight": r.random(classes)}):
                for further in options:
                    yield Sample({"input": x}, {"target": labels, **weight}, {**more, **further})


def nll_loss(r, scale):
    return class_samples(r, scale, {})


def cross_entropy(r, scale):
    yield from class_samples(r, scale, {}, {"label_smoothing": 0.2})
    for shape, _ in CLASSES:
        axis = 0 if len(shape) == 1 else 1
        t = np.exp(normal(r, shape))
        inputs = {"input": normal(r, shape, scale), "target": t / t.sum(axis, keepdims=True)}
        for options in ({}, {"label_smoothing": 0.2}):
            yield Sample(inputs, {}, options)
            yield Sample(inputs, {"weight": r.random(shape[axis])}, options)


def linear_cross_entropy(r, scale):
    # Multiples of 1/4, so that the logits are exact in float32. The bias makes them large: large inputs or weights would
    # also multiply the rounding errors of the probabilities.
    def quarters(shape, scale=1.0):
        return np.round(normal(r, shape, scale) * 4) / 4

    for rows in ((6,), (), (0,)):
        x, weight, bias = quarters((*rows, 4)), quarters((5, 4)), quarters(5, scale)
        target = np.asarray(r.integers(0, 5, rows))
        for constants in ({}, {"weight": r.random(5)}):
            for options in ({}, {"label_smoothing": 0.2}, {"ignore_index": 2}):
                inputs = {"input": x, "linear_weight": weight, "linear_bias": bias}
                yield Sample(inputs, {"target": target, **constants}, options)
    inputs = {"input": quarters((3, 4)), "linear_weight": quarters((5, 4))}
    yield Sample(inputs, {"target": np.full(3, 2)}, {"ignore_index": 2})


def ctc_loss(r, scale):
    for steps, batch, classes, longest in ((6, 3, 5, 3), (40, 4, 9, 8), (3, 2, 4, 3), (5, 1, 4, 0)):
        x = normal(r, (steps, batch, classes), scale)
        normalized = x - x.max(-1, keepdims=True)
        normalized = normalized - np.log(np.exp(normalized).sum(-1, keepdims=True))
        labels = r.integers(1, classes, (batch, longest))
        lengths = {
            "input_lengths": r.integers(1, steps + 1, batch),
            "target_lengths": r.integers(0, longest + 1, batch),
        }
        for values in (normalized, normal(r, x.shape)):
            for zero_infinity in (False, True):
                yield Sample({"log_probs": values}, {"targets": labels, **lengths}, {"zero_infinity": zero_infinity})
        joined = {
            "targets": np.concatenate([row[:n] for row, n in zip(labels, lengths["target_lengths"], strict=True)])
        }
        yield Sample({"log_probs": normalized}, {**joined, **lengths})
    yield Sample({"log_probs": normal(r, (6, 5))}, {"targets": np.array([1, 1, 4]), "input_lengths": np.array(6), "target_lengths": np.array(3)})  # fmt: skip
    yield Sample({"log_probs": normal(r, (4, 2, 5))}, {"targets": np.array([[4, 0], [2, 2]]), "input_lengths": np.array([0, 0]), "target_lengths": np.array([0, 1])}, {"blank": 3})  # fmt: skip


LOSS = re.compile("loss|cross_entropy|kl_div|nll")
GENERATORS = {n: f for n, f in globals().items() if inspect.isfunction(f) and LOSS.search(n)}


def tensor(lib, x, dtype, grad=False):
    x = np.asarray(x)
    if x.dtype.kind == "f":
        return lib.tensor(x.astype(dtype), requires_grad=grad)
    return lib.tensor(x)


def derivatives(lib, name, sample, reduction, dtype, twice):
    """The loss, the gradients of its inputs, and the second derivatives, as a dict of arrays."""
    r = np.random.default_rng(1)
    inputs = {k: tensor(lib, v, dtype, True) for k, v in sample.inputs.items()}
    constants = {k: tensor(lib, v, dtype) for k, v in sample.constants.items()}
    out = getattr(lib.nn.functional, name)(**inputs, **constants, **sample.options, reduction=reduction)
    results = {"loss": out}
    up = tensor(lib, r.standard_normal(tuple(out.shape)), dtype, True)
    first = lib.autograd.grad(out, list(inputs.values()), up, create_graph=twice, allow_unused=True)
    results |= {f"gradient of {k}": g for k, g in zip(inputs, first, strict=True)}
    if twice:
        for k, g in zip(inputs, first, strict=True):
            v = tensor(lib, r.standard_normal(sample.inputs[k].shape), dtype)
            if g is not None and g.requires_grad and v.numel():
                second = lib.autograd.grad(g, [*inputs.values(), up], v, retain_graph=True, allow_unused=True)
                names = [*inputs, "the upstream gradient"]
                results |= {f"derivative by {n} of gradient of {k}": s for n, s in zip(names, second, strict=True)}
    return results


def difference(ours, theirs, dtype, exact=None):
    """A description of the first difference between two dicts of results; None if they agree.

    With `exact`, the results of PyTorch in float64, an error may be as large as the largest error of PyTorch times 4.
    """
    tolerance = 1e-5 if dtype == "float32" else 1e-10
    for what in {**theirs, **ours}:
        a, b = ours.get(what), theirs.get(what)
        if a is None or b is None:  # an unused argument has a gradient of zero
            x = b if a is None else a
            if x is not None and np.asarray(x.detach()).any():
                return f"{what}: {a} instead of {b}"
            continue
        if a.dtype.name != str(b.dtype).removeprefix("torch.") or tuple(a.shape) != tuple(b.shape):
            return f"{what}: {a.dtype}{tuple(a.shape)} instead of {b.dtype}{tuple(b.shape)}"
        a, b = a.detach().numpy(), b.numpy(force=True)
        close = np.isclose(a, b, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
        if exact and not close.all():
            truth = exact[what].numpy(force=True)
            with np.errstate(invalid="ignore"):
                close |= np.abs(a - truth) <= 4 * np.nanmax(np.where(np.isfinite(b), np.abs(b - truth), 0))
        if not close.all():
            i = np.argmin(close)
            return f"{what}: {a.flat[i]} instead of {b.flat[i]} at {i} of {a.size}"
    return None


# Large logits test formulas, which do not depend on the device.
LARGE_LOGITS = [pytest.param(scale, marks=pytest.mark.slow) for scale in (30.0, 300.0)]


@loop(parts=4)
@pytest.mark.parametrize("scale", [1.0, *LARGE_LOGITS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.filterwarnings("ignore")
def test_loss(name, dtype, scale):
    failures = []
    twice = name not in ONCE_DIFFERENTIABLE
    with np.errstate(all="ignore"):
        samples = list(GENERATORS[name](np.random.default_rng(0), scale))
    for sample in samples:
        for reduction in sample.reductions:
            theirs = derivatives(torch, name, sample, reduction, dtype, twice)
            exact = None
            if dtype == "float32" and name in CANCELLING:
                exact = derivatives(torch, name, sample, reduction, "float64", twice)
            try:
                found = difference(derivatives(mytorch, name, sample, reduction, dtype, twice), theirs, dtype, exact)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            if found:
                failures.append(f"{sample}, reduction={reduction}\n        {found}")
    assert not failures, f"{len(failures)} of {name}({dtype}) differ:\n    " + "\n    ".join(failures)


def test_every_public_loss_has_samples():
    losses = {n for n in dir(F) if LOSS.search(n) and callable(getattr(F, n))}
    layers = {
        c._function.__name__ for n, c in vars(mytorch.nn).items() if n.endswith("Loss") and hasattr(c, "_function")
    }
    assert losses | layers == set(GENERATORS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_soft_margin_loss_of_large_scores(dtype):
    """PyTorch computes exp(-target * input), which overflows: the loss is inf and the gradient NaN."""
    x = mytorch.tensor([-1e4, -1e3, 1e3, 1e4], dtype=getattr(mytorch, dtype), requires_grad=True)
    loss = F.soft_margin_loss(x, mytorch.ones(4, dtype=x.dtype), reduction="none")
    (gradient,) = mytorch.autograd.grad(loss.sum(), x, create_graph=True)
    (second,) = mytorch.autograd.grad(gradient.sum(), x)
    assert loss.tolist() == [1e4, 1e3, 0, 0]
    assert gradient.tolist() == [-1, -1, 0, 0]
    assert second.tolist() == [0, 0, 0, 0]


def _soft_margin_of_ones(x):
    return F.soft_margin_loss(x, mytorch.ones_like(x), reduction="none")


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [F.softplus, F.logsigmoid, _soft_margin_of_ones])
def test_second_derivative_does_not_vanish_for_large_inputs(function, dtype):
    """The size of the second derivative is s (1 - s); 1 - s would round to 0 for x above 17 in float32."""
    magnitudes = np.concatenate([[0, 5, 15, 17, 18, 19.5], np.random.default_rng(0).uniform(0, 20, 50)])
    x = tensor(mytorch, np.concatenate([-magnitudes, magnitudes]), dtype, True)
    (gradient,) = mytorch.autograd.grad(function(x).sum(), x, create_graph=True)
    (second,) = mytorch.autograd.grad(gradient.sum(), x)
    decay = np.exp(-np.abs(x.detach().numpy().astype("float64")))
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(np.abs(second.numpy()), decay / (1 + decay) ** 2, rtol=tolerance)


@pytest.mark.parametrize(
    "name", ["multi_margin_loss", "multilabel_margin_loss", pytest.param("ctc_loss", marks=pytest.mark.slow)]
)
def test_second_derivatives_that_pytorch_lacks(name):
    for sample in GENERATORS[name](np.random.default_rng(0), 1.0):
        (x,) = sample.inputs.values()
        if x.size > 40 or not (x % 1).all():  # a large sample, or one with ties
            continue
        constants = {k: tensor(mytorch, v, "float64") for k, v in sample.constants.items()}

        def loss(x, sample=sample, constants=constants):
            x = x.log_softmax(-1) if name == "ctc_loss" else x  # the gradient presumes normalized probabilities
            return getattr(F, name)(x, **constants, **sample.options)

        x = tensor(mytorch, x, "float64", True)
        if np.isfinite(loss(x).item()):
            assert mytorch.autograd.gradcheck(loss, (x,))
            assert mytorch.autograd.gradgradcheck(loss, (x,))


def test_triplet_margin_with_distance_loss_shows_its_distance_function():
    arguments = {}, {"distance_function": "CosineSimilarity"}, {"distance_function": "PairwiseDistance", "swap": True}
    for options in arguments:
        layers = []
        for lib in (mytorch, torch):
            own = {k: getattr(lib.nn, v)() if isinstance(v, str) else v for k, v in options.items()}
            layers.append(lib.nn.TripletMarginWithDistanceLoss(**own))
        assert repr(layers[0]) == repr(layers[1])
        assert [n for n, _ in layers[0].named_modules()] == [n for n, _ in layers[1].named_modules()]
        inputs = np.random.default_rng(0).standard_normal((3, 4, 5))
        losses = [layer(*lib.tensor(inputs)) for layer, lib in zip(layers, (mytorch, torch), strict=True)]
        np.testing.assert_allclose(*(loss.numpy() for loss in losses), rtol=1e-12)
    for lib in (mytorch, torch):
        with pytest.raises(ValueError, match="margin to be greater than 0, got -1 instead"):
            lib.nn.TripletMarginWithDistanceLoss(margin=-1)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_weight_must_have_the_shape_of_input(name):
    for lib in (mytorch, torch):
        with pytest.raises(ValueError, match="[wW]eight"):
            getattr(lib.nn.functional, name)(lib.ones(2, 3), lib.ones(2, 3), weight=lib.ones(3))


@loop
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "name",
    "binary_cross_entropy_with_logits soft_margin_loss huber_loss hinge_embedding_loss mse_loss l1_loss smooth_l1_loss kl_div "
    "poisson_nll_loss".split(),
)
def test_dtypes_of_losses_of_mixed_precision(name, reduction):
    torch = pytest.importorskip("torch")
    for a, b in itertools.permutations(("float64", "float32", "float16", "bfloat16"), 2):
        theirs, ours = (
            getattr(L.nn.functional, name)(
                L.tensor([0.2, 0.4]).to(getattr(L, a)), L.tensor([0.3, 0.6]).to(getattr(L, b)), reduction=reduction
            )
            for L in (torch, mytorch)
        )
        assert str(theirs.dtype).rpartition(".")[2] == ours.dtype.name, (a, b)


@loop
@pytest.mark.parametrize("value", ["nan", "-inf"])
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(30))
def test_ctc_loss_of_undefined_probabilities(seed, dtype, large, value):
    """NaN reaches the loss if an alignment uses it, and a probability of zero removes alignments. Large inputs run the compiled loop."""
    rng = np.random.default_rng(seed)
    steps, batch = (40, 60) if large else (int(rng.integers(2, 7)), int(rng.integers(1, 4)))
    x = np.log(rng.dirichlet(np.ones(5), (steps, batch)))
    x[rng.integers(steps), rng.integers(batch), rng.integers(5)] = float(value)
    labels, read = rng.integers(1, 5, (batch, 2)), rng.integers(1, steps + 1, batch)
    used, results = rng.integers(0, 3, batch), []
    for L in (torch, mytorch):
        t = L.tensor(x, dtype=getattr(L, dtype if L is mytorch else "float64"), requires_grad=True)
        loss = L.nn.functional.ctc_loss(t, L.tensor(labels), L.tensor(read), L.tensor(used), reduction="none")
        loss.sum().backward()
        results.append((loss.detach().numpy(), t.grad.numpy()))
    (theirs, gradient), (mine, own) = results
    exact = dtype == "float64"
    np.testing.assert_allclose(mine, theirs, rtol=1e-9 if exact else 1e-5)
    fits = np.isfinite(gradient) & np.isfinite(theirs)[None, :, None]
    np.testing.assert_allclose(own[fits], gradient[fits], rtol=1e-6 if exact else 1e-3, atol=1e-9 if exact else 1e-5)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize(
    "shape", [(3,), (2, 3), (3, 3), (2, 3, 3), (3, 3, 3), (2, 3, 4), (3, 3, 2, 3), (2, 2, 2, 2), (0, 3), (2, 3, 0)]
)
def test_axis_of_the_classes(name, shape):
    """The classes are on axis 1 whenever the shapes allow it, also where they would fit on the last axis."""
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape).astype(np.float32)
    want = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = rng.integers(0, shape[min(1, len(shape) - 1)], want)
    upstream = rng.standard_normal(want).astype(np.float32)
    outcomes = []
    for L in (torch, mytorch):
        logits = L.tensor(x, requires_grad=True)
        loss = getattr(L.nn.functional, name)(logits, L.tensor(target), reduction="none")
        loss.backward(L.tensor(upstream))
        outcomes.append((loss.detach().numpy(), logits.grad.numpy()))
    for theirs, mine in zip(*outcomes, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
