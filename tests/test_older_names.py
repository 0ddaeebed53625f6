"""Names of PyTorch that packages use: recurrent functions, windows, versions, and dispatch modes that see creations."""

import itertools
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")
from mytorch.compat import recurrent  # noqa: E402
from mytorch.compat.torch_version import TorchVersion  # noqa: E402
from mytorch.ops import windows as signal_windows  # noqa: E402


def both(draw, *shape):
    values = draw.normal(size=shape).astype(np.float32)
    return mytorch.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)


@loop
@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_recurrent_functions(mode, seed):
    """Random sizes and options, with the gradients of all weights."""
    pick, draw = random.Random(seed), np.random.default_rng(seed)
    layers, biases, two, first = pick.randint(1, 3), pick.random() < 0.5, pick.random() < 0.5, pick.random() < 0.5
    size, hidden, steps, batch = pick.randint(1, 4), pick.randint(1, 4), pick.randint(1, 5), pick.randint(1, 3)
    projected = pick.randint(1, hidden) if mode == "lstm" and hidden > 1 and pick.random() < 0.5 else 0
    gates, directions = {"lstm": 4, "gru": 3}.get(mode, 1), 1 + two
    params = []
    for layer, _ in itertools.product(range(layers), range(directions)):
        width = (projected or hidden) * directions if layer else size
        params += [both(draw, gates * hidden, width), both(draw, gates * hidden, projected or hidden)]
        params += [both(draw, gates * hidden), both(draw, gates * hidden)] if biases else []
        params += [both(draw, projected, hidden)] if projected else []
    x = both(draw, *((batch, steps) if first else (steps, batch)), size)
    h = both(draw, layers * directions, batch, projected or hidden)
    c = both(draw, layers * directions, batch, hidden)
    found = []
    for i, function in enumerate((recurrent.FUNCTIONS[mode], getattr(torch, mode))):
        state = (h[i], c[i]) if mode == "lstm" else h[i]
        results = function(x[i], state, [p[i] for p in params], biases, layers, 0.0, True, two, first)
        loss = sum((r * r).sum() for r in results)
        loss.backward()
        found.append([*results, x[i].grad, h[i].grad, *(p[i].grad for p in params)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(mine.detach()), theirs.detach().numpy(), rtol=2e-4, atol=2e-5)


def test_packed_sequences():
    draw = np.random.default_rng(1)
    x, h, c = both(draw, 6, 2), both(draw, 1, 3, 4), both(draw, 1, 3, 4)
    weights = [both(draw, 16, 2), both(draw, 16, 4), both(draw, 16), both(draw, 16)]
    found = []
    for i, (library, function) in enumerate(((mytorch, recurrent.FUNCTIONS["lstm"]), (torch, torch.lstm))):
        sizes = library.tensor([3, 2, 1])
        results = function(x[i], sizes, (h[i], c[i]), [w[i] for w in weights], True, 1, 0.0, False, False)
        found.append([r.detach().numpy() for r in results])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"])
@pytest.mark.parametrize("biases", [False, True])
def test_recurrent_cells(mode, biases):
    draw, gates = np.random.default_rng(3), {"lstm_cell": 4, "gru_cell": 3}.get(mode, 1)
    x, h, c = both(draw, 3, 2), both(draw, 3, 5), both(draw, 3, 5)
    weights = [both(draw, gates * 5, 2), both(draw, gates * 5, 5)]
    weights += [both(draw, gates * 5), both(draw, gates * 5)] if biases else []
    results = []
    for i, function in enumerate((recurrent.FUNCTIONS[mode], getattr(torch, mode))):
        result = function(x[i], (h[i], c[i]) if mode == "lstm_cell" else h[i], *(w[i] for w in weights))
        results.append([r.detach().numpy() for r in (result if mode == "lstm_cell" else [result])])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


OPTIONS = {
    "general_cosine": {"a": [0.4, 0.3, 0.2, 0.1]}, "general_hamming": {"alpha": 0.3}, "exponential": {"tau": 2.5},
    "gaussian": {"std": 1.7}, "kaiser": {"beta": 5.0},
}  # fmt: skip


@pytest.mark.parametrize("name", signal_windows.__all__)
def test_windows(name):
    for points, sym, dtype in itertools.product((0, 1, 2, 5, 8), (True, False), ("float32", "float64")):
        mine = getattr(signal_windows, name)(points, sym=sym, dtype=getattr(mytorch, dtype), **OPTIONS.get(name, {}))
        theirs = getattr(torch.signal.windows, name)(
            points, sym=sym, dtype=getattr(torch, dtype), **OPTIONS.get(name, {})
        )
        assert mine.dtype.name == dtype
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=f"{points} {sym}")
    with pytest.raises(ValueError, match="non-negative"):
        getattr(signal_windows, name)(-1, **OPTIONS.get(name, {}))


def test_versions():
    """All pairs of versions compare as in PyTorch."""
    texts = "2.13.0 2.13 2.13.0+cpu 2.2 2.13.1 2.13.0a0+git12 2.13.0rc1 2.14.0.dev20250101 10.0 1.13.1".split()
    names = "__lt__ __le__ __gt__ __ge__ __eq__ __ne__".split()
    for a, b, name in itertools.product(texts, [*texts, (2, 13), (2, 2, 1)], names):
        want = getattr(torch.torch_version.TorchVersion(a), name)(b)
        assert getattr(TorchVersion(a), name)(b) == want, (a, name, b)
    assert isinstance(TorchVersion("2.13.0"), str)


PROGRAM = """
    from torch.utils._python_dispatch import TorchDispatchMode
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))
    w = torch.ones(2, 2)
    for make in (
        lambda: torch.zeros(2), lambda: torch.ones((2, 3)), lambda: torch.empty(2), lambda: torch.full((2,), 1.0),
        lambda: torch.arange(3), lambda: torch.arange(1, 3), lambda: torch.arange(1, 9, 2), lambda: torch.rand(2, dtype=torch.float64),
        lambda: torch.randn(2), lambda: torch.randint(0, 3, (2,)), lambda: torch.randint(3, (2,)), lambda: torch.eye(2),
        lambda: torch.linspace(0, 1, 3), lambda: torch.tensor([1.0]), lambda: torch.as_tensor([1.0]), lambda: torch.as_tensor(w),
        lambda: torch.zeros_like(w), lambda: torch.rand_like(w), lambda: w.new_zeros(2), lambda: w.new_full((2,), 1.0),
        lambda: torch.randperm(3), lambda: torch.scalar_tensor(1.0), lambda: torch.tril_indices(2, 2),
        lambda: torch.zeros(2, dtype=torch.int64) + torch.ones(2), lambda: torch.nn.functional.relu(torch.zeros(2)),
    ):
        seen = []
        with Mode():
            result = make()
        print(*seen, tuple(result.shape), result.dtype)
    print(torch.zeros(2).shape, torch.__version__ >= (2, 0), torch._VF.lstm is torch.lstm)
    print(type(torch.linalg.slogdet(w)).__name__, type(torch.slogdet(w)).__name__, *torch.linalg.slogdet(w + torch.eye(2)))
    v = torch.arange(6.0).reshape(2, 3) + 1
    print(torch._weight_norm(v, torch.ones(2, 1), 0), torch._weight_norm(v, torch.ones(1, 3), 1), torch._weight_norm(v, torch.tensor(2.0), -1))
    print(torch.add(x1=w, x2=w), torch.sub(w, x2=w))
"""


def test_programs_print_the_same():
    """Creations in dispatch modes, and other names of torch, in programs of their users."""
    printed = []
    for first in ("import torch", "import mytorch; mytorch.install_as_torch(); import torch"):
        program = first + "\n" + textwrap.dedent(PROGRAM)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
        printed.append(done.stdout)
    assert printed[1] == printed[0]


def test_keywords_of_numpy_do_not_hide_errors():
    one = mytorch.ones(2)
    for wrong in ({"x2": one, "other": one}, {"y": one}, {"x1": one}):
        with pytest.raises(TypeError):
            mytorch.add(one, **wrong)
