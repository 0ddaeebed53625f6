"""Expressions whose results, or errors, are compared with PyTorch. A process in PyTorch mode evaluates the same expressions."""

import copy
import itertools
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

import mytorch
from tests.loops import loop

from ..own_process import ROOT

DATA = (
    "torch.tensor([1, 2])", "torch.tensor([1.0, 2.0])", "torch.tensor([True])", "torch.tensor(3)", "torch.ones(2).double()",
    "np.float32(3)", "3.0", "True", "'ab'", "None", "np.array(3)", "np.array([1.5], np.float16)", "np.array([1, 2])",
    "np.array([True])", "[1, 2]", "(2.0, 3.0)", "[]", "range(3)", "torch.Size([2, 1])", "2", "np.int64(3)", "object()",
    "torch.ones(2).storage()", "torch.tensor([1]).storage()", "torch.ones(2).untyped_storage()", "(x for x in [1])", "[[1], [2]]",
)  # fmt: skip
OPERANDS = (
    "torch.tensor([True, False])", "torch.tensor([1, 2])", "torch.tensor([1.0, 2.0])", "torch.tensor(True)", "torch.tensor(2)",
    "True", "1", "1.5",
)  # fmt: skip
SEQUENCES = (
    "[[np.ones(3), 1.0]]", "[[1, 2, 3], np.ones(2)]", "[np.ones((3, 3)), np.ones((3, 0))]", "[[1, 2], 3]", "[1, [2]]",
    "[[1, 2], [3, 4, 5]]", "[[1, 2], [3, 'a']]", "[[[1], [2]], [[3], 4]]", "[None]", "[np.ones((3, 3)), np.ones((3, 2))]",
    "[torch.ones(2), torch.ones(3)]", "[torch.tensor([1.0]), torch.tensor([2.0])]", "[[torch.tensor([1.0]), 2.0]]", "circular",
)  # fmt: skip
EQUATIONS = ". ..|... ...|1|,|ai|ai...|a->... .|a->..|a->1|a->aa|a->i|...|a|a->|aa|...a->a...".split("|")
INDICES = ("0", "-1", "1", "None", "...", "()", ":", "True", "(0, 0)", "torch.tensor(0)")
SIZES = (
    "[1.0]",
    "'ab'",
    "[2, torch.tensor(3)]",
    "torch.tensor([1, 2])",
    "[np.int64(2)]",
    "torch.ones(2)",
    "[True]",
    "3",
)
IN_PLACE = (
    "isub iadd imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift add sub mul matmul pow eq lt and".split()
)
SHAPES = ((0, 3), (2, 0), (0,), (3, 0, 2), (2, 3))
NAN = "torch.tensor([[nan, 1.0], [0.0, nan], [0.0, 1.0], [nan, 1.0], [0.0, 1.0]])"


def cases():
    """Yields the expressions."""
    for name, data in itertools.product(("Tensor", "FloatTensor", "LongTensor", "BoolTensor"), DATA):
        yield f"shape_of(torch.{name}({data}))" if data in SIZES_ONLY else f"torch.{name}({data})"
        yield f"shape_of(torch.{name}({data}, device='cuda'))"
    for name in ("Tensor", "FloatTensor", "LongTensor"):
        yield from (f"shape_of(torch.{name}({args}))" for args in ("", "2, 3", "-1", "size=(2, 3)", "2, device='cpu'"))
    for a, b in itertools.product(OPERANDS, OPERANDS):
        yield f"({a}) - ({b})" if "torch" in a + b else f"torch.rsub(torch.tensor(2), {b})"
    yield from (f"torch.tensor({data})" for data in SEQUENCES)
    yield from (f"torch.einsum({equation!r}, torch.ones(2))" for equation in EQUATIONS)
    yield from ("torch.einsum('aa', torch.ones(2, 3))", "torch.einsum('', [])", "torch.einsum(torch.ones(2), [-1])")
    yield from (f"torch.tensor(5)[{index}]" for index in INDICES)
    yield from (f"torch.Size({size})" for size in SIZES)
    yield from ("type((2,) + torch.Size([1])).__name__", "type(torch.Size([1]) * 2).__name__", "torch.Size([1]) + [1]")
    yield from (f"torch.tensor(3).__{op}__(object())" for op in IN_PLACE)
    for shape, dim in [(s, d) for s in SHAPES for d in range(len(s))]:
        yield f"torch.unique(torch.zeros({shape}), dim={dim}, return_inverse=True, return_counts=True)"
    yield from (f"torch.unique({NAN}, dim={dim}, return_inverse=True, return_counts=True)" for dim in (0, 1))
    for dtype, n in (
        ("uint8", 256),
        ("uint8", 257),
        ("half", 2049),
        ("half", 2050),
        ("bfloat16", 257),
        ("bfloat16", 258),
    ):
        yield f"torch.randperm({n}, dtype=torch.{dtype}).sort()[0][:3]"
    yield from (f"torch.cat([torch.empty(0)] * {n}, dim={dim})" for n, dim in ((1, 1), (2, 1), (2, 5), (2, 0)))
    yield from (f"~torch.ones(2, dtype=torch.{dtype})" for dtype in ("float32", "complex64", "int64", "bool"))
    yield from (f"torch.ones(2, dtype=torch.{dtype}).numpy()" for dtype in ("bfloat16", "float16", "bool"))
    yield from (f"torch.ones(1, dtype=torch.{dtype}).dtype == None" for dtype in ("float64", "float32", "int64"))
    for cell, sizes in itertools.product(("RNNCell", "GRUCell", "LSTMCell"), ((3, 5), (4, 6), (1, 5), (4, 1), (4, 5))):
        state = f"torch.zeros{sizes}" if cell != "LSTMCell" else f"(torch.zeros(4, 5), torch.zeros{sizes})"
        yield f"shape_of(nn.{cell}(3, 5)(torch.zeros(4, 3), {state}))"
    for layer, sizes in itertools.product(("RNN", "GRU", "LSTM"), ((2, 4, 5), (2, 4, 7), (2, 1, 5), (1, 4, 5), (4, 5))):
        state = f"torch.zeros{sizes}" if layer != "LSTM" else f"(torch.zeros{sizes}, torch.zeros(2, 4, 5))"
        yield f"shape_of(nn.{layer}(3, 5, 2)(torch.zeros(6, 4, 3), {state})[0])"
    for kinds in itertools.product(("float32", "float64"), repeat=3):
        q, k, v = (f"torch.ones(1, 2, 3, 4, dtype=torch.{kind})" for kind in kinds)
        yield f"shape_of(F.scaled_dot_product_attention({q}, {k}, {v}))"
    yield "F.grid_sample(torch.empty(1, 1, 0, 2), torch.empty(1, 1, 1, 2), align_corners=False)"
    yield "torch.log1p(torch.tensor([1e-30 + 2e-30j, -0.5 + 0.1j, 3j, 1e30 + 1e30j]))"
    yield from (
        f"torch.finfo(torch.{d}).resolution" for d in ("float16", "bfloat16", "float32", "float64", "float8_e5m2")
    )


SIZES_ONLY = ("torch.Size([2, 1])", "2", "np.int64(3)", "np.array(3)")


def shape_of(value):
    """Returns the dtype and shape of a tensor without its values."""
    return str(value.dtype), tuple(value.shape) if hasattr(value, "dtype") else [shape_of(v) for v in value]


def described(value):
    """Returns a value as text that both libraries can agree on."""
    if isinstance(value, (tuple, list)) and not hasattr(value, "numel"):
        return [described(v) for v in value]
    if hasattr(value, "detach"):
        numbers = value.detach().to(value.dtype)
        return [str(value.dtype), list(value.shape), repr(rounded(numbers.tolist())), value.requires_grad]
    return repr(rounded(value.tolist()) if isinstance(value, np.ndarray) else value)


def rounded(values):
    """Returns nested numbers with 5 digits."""
    if isinstance(values, list):
        return [rounded(v) for v in values]
    if isinstance(values, complex):
        return rounded(values.real), rounded(values.imag)
    return float(f"{values:.5g}") if isinstance(values, float) else values


def answers(torch):
    """Returns {expression: its described value, or the name of the builtin error class}."""
    circular = [0]
    circular.append(circular)
    names = {
        "torch": torch,
        "nn": torch.nn,
        "F": torch.nn.functional,
        "np": np,
        "nan": float("nan"),
        "circular": circular,
    }
    found = {}
    for case in cases():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[case] = described(eval(case, {**names, "shape_of": shape_of}))
            except Exception as error:
                found[case] = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return json.loads(json.dumps(found))


# PyTorch returns duplicates here.
ACCEPTED = frozenset(("torch.randperm(258, dtype=torch.bfloat16).sort()[0][:3]",))


def test_the_same_answers_as_pytorch():
    torch = pytest.importorskip("torch")
    code = (
        "import json, mytorch; mytorch.install_as_torch(); import torch\n"
        "from tests.tensors.test_same_answers import answers\nprint(json.dumps(answers(torch)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    here, there = json.loads(done.stdout.splitlines()[-1]), answers(torch)
    different = {
        case: (there[case], here[case]) for case in there if there[case] != here[case] and case not in ACCEPTED
    }
    assert not different, "\n".join(f"{case}: PyTorch {a}, here {b}" for case, (a, b) in different.items())


@pytest.mark.cpu_only
def test_copies_of_views_share_the_copied_memory():
    torch = pytest.importorskip("torch")
    import mytorch

    for library in (torch, mytorch):
        x = library.arange(12.0)
        for views in ((x, x[3:]), (x[3:], x), (x.reshape(3, 4).t(), x[2:7:2]), (x[1:], x[2:], x)):
            copied = copy.deepcopy(list(views))
            copied[0].add_(10)
            expected = [v.clone() for v in views]
            whole = library.arange(12.0)
            target = whole.as_strided(tuple(views[0].shape), views[0].stride(), views[0].storage_offset())
            target.add_(10)
            for view, copy_of, before in zip(views, copied, expected, strict=True):
                same = whole.as_strided(tuple(view.shape), view.stride(), view.storage_offset())
                assert copy_of.tolist() == same.tolist()
                assert view.tolist() == before.tolist()  # the original did not change
                assert copy_of.stride() == view.stride()
    layer = mytorch.nn.Linear(2, 2)
    layer.alias = layer.weight.data
    copied = copy.deepcopy(layer)
    assert copied.weight.untyped_storage()._cdata != layer.weight.untyped_storage()._cdata


@loop
@pytest.mark.parametrize("start", [0, 1, -3, 0.0, -0.0, 0.5])
@pytest.mark.parametrize("step", [1, 1.0, 3, 0.125, -2])
@pytest.mark.parametrize("dtype", [None, "float16", "float32", "float64", "int32", "int64"])
def test_ranges(torch, start, step, dtype):
    if dtype and dtype.startswith("int") and int(step) == 0:
        pytest.skip("a step of 0")
    found = [L.arange(start, start + 50 * step, step, dtype=dtype and getattr(L, dtype)) for L in (mytorch, torch)]
    assert str(found[0].dtype).removeprefix("mytorch.") == str(found[1].dtype).removeprefix("torch.")
    assert found[0].tolist() == found[1].tolist()


@loop
@pytest.mark.parametrize("values", [[0, 5, 5], [], [1], [-1, 3], [127], [-128, 0], [100, 0, 0, 3]], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32", "bool"])
def test_bincount(torch, values, dtype):
    found = []
    for L in (mytorch, torch):
        x = L.tensor(values).to(getattr(L, dtype))
        for call in (
            lambda x=x: x.bincount(),
            lambda x=x: x[::2].bincount(minlength=200),
            lambda x=x: x[None].bincount(),
        ):
            try:
                found.append(call().tolist())
            except (RuntimeError, NotImplementedError) as error:
                found.append(type(error))
    assert found[:3] == found[3:]
