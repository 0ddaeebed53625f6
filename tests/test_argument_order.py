"""Positional arguments of functions and methods: in PyTorch mode, they have the order of the schemas of PyTorch's operators.

The names of arguments may differ, so a table lists names that mean the same. Functions with several overloads have one
signature here, and their calls are compared by their results. The file is also a script that prints the signatures and
the results in PyTorch mode.
"""

import inspect
import json
import os
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
PLACES = ("torch", "torch.Tensor", "torch.linalg", "torch.special", "torch.fft")
# Name in a schema -> names here.
SAME = {
    "self": "input A tensor tensors x b L a weight tensor1 elements", "other": "B tensor2 element", "indices": "index indices_or_sections sections",
    "sections": "indices_or_sections", "src": "other", "the_template": "other", "exponent": "other", "values": "other",
    "split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections", "axis0": "dim0", "axis1": "dim1", "input2": "L tau",
    "input3": "other", "s": "stream", "n": "n_fft", "train": "training", "value": "src", "weights": "weight", "scalar": "other tensor1", "scalars": "other value",
    "element": "elements", "test_element": "test_elements", "tensor_indices_or_sections": "indices_or_sections", "tensors": "arrays",
    "tensor": "tensor1", "scalar1": "tensor1", "scalar2": "tensor2", "from": "from_", "A": "input", "input": "A", "b": "B other",
    "mat2": "mat", "key": "element index", "grad_tensors": "gradient",
}  # fmt: skip
# Functions with overloads that one signature cannot show. `CALLS` has a call of each.
OVERLOADED = frozenset(
    "add add_ sub sub_ subtract subtract_ max min random_ std std_mean var var_mean nuclear_norm randint_like "
    "repeat_interleave result_type gru lstm rnn_relu rnn_tanh einsum".split()
)
# Arguments of other devices and layouts, functions of PyTorch that are Python code, and operators of TorchScript.
OTHER = frozenset(
    "mm bmm addmm baddbmm _validate_sparse_coo_tensor_args _validate_sparse_compressed_tensor_args backward copy_ sort eq ne stft "
    "tensordot searchsorted".split()
)
CALLS = """
torch.add(a, 2, b)
torch.add(a, b, alpha=2)
torch.subtract(a, b, alpha=2)
torch.sub(a, 2, b)
torch.rsub(a, 3, 2)
a.clone().sub_(2, b)
torch.max(a, b)
torch.min(a, 1, True)
torch.std(a, False)
torch.var(a, 0, False, True)
torch.var_mean(a, False)
torch.std_mean(a, 1, False)
torch.nuclear_norm(a, True)
torch.repeat_interleave(torch.tensor([1, 2]))
torch.einsum("ij,ij->i", a, b)
torch.batch_norm(a, v, w, u, u.abs(), False, 0.1, 1e-5, True)
torch.batch_norm(a, v, w, None, None, True, 0.1, 1e-5, False)
torch.instance_norm(c, w[:2], v[:2], u[:2], u[:2].abs(), False, 0.1, 1e-5, True)
torch.layer_norm(a, [3], v, w, 1e-3, True)
torch.group_norm(c, 2, None, None, 1e-3, False)
torch.embedding(a, i)
torch.embedding(a, i, -1, False, False)
torch.embedding(weight=a, indices=i, padding_idx=1)
torch.dropout(a, 0.5, False)
torch.alpha_dropout(a, 0.5, train=False)
torch.rrelu(a, 0.1, 0.3, False, torch.Generator())
torch.adaptive_max_pool1d(c, 2)
torch.cosine_embedding_loss(a, b, y, 0.1, 2)
torch.binary_cross_entropy_with_logits(a, b, None, None, 0)
torch.kl_div(a, b.abs(), 2)
torch.triplet_margin_loss(a, b, a + 1, 1.0, 2.0, 1e-6, False, 0)
torch.gru(a, torch.tensor([1, 1]), u[None, None], (g, g, g[:, 0], g[:, 0]), True, 1, 0.0, False, False)
torch.hsplit(a, sections=3)
torch.isin(elements=i, test_element=1)
torch.linalg.eigh(input=a.T @ a)[0]
torch.linalg.vector_norm(input=a)
torch.matrix_power(input=a.T @ a, n=2)
torch.triangular_solve(input=v[:, None], A=torch.eye(3))
torch.addcmul(a, 0.5, b, b)
torch.addcdiv(a, 0.5, b, b)
a.clone().addcdiv_(-0.5, b, b)
torch.addmm(0.5, g[:3], a.T, b)
torch.addmm(0.5, g[:3], 2, a.T, b)
g[:3].clone().addmm_(2, a.T, b)
torch.addmv(0.5, u, 2, g[:3], v)
u.addmv(2, g[:3], v)
torch.addr(0.5, g[:3], 2, v, w)
torch.addbmm(0.5, g[:3], 2, c.mT, c)
torch.baddbmm(0.5, c[:, :, :1], 2, c, c.mT[:, :, :1])
torch.baddbmm(0.5, c[:, :, :1], c, c.mT[:, :, :1])
"""
SETUP = """
a = torch.tensor([[0.3, -1.2, 0.7], [1.9, 0.4, -0.6]])
b = torch.tensor([[1.1, 0.2, -0.9], [-0.3, 0.8, 1.7]])
c = torch.stack([a, b])
g = torch.arange(27.0).reshape(9, 3) / 20 - 0.5
u, v, w = g[2] + 0.2, g[5], g[8]
i, y = torch.tensor([1, 0]), torch.tensor([1, -1])
"""


def results(torch):
    """Returns {call: [shapes and values]}."""
    found = {}
    for call in CALLS.strip().split("\n"):
        names = {"torch": torch}
        exec(SETUP, names)
        value = eval(call, names)
        found[call] = [[x.tolist(), str(x.dtype)] for x in (value if isinstance(value, (tuple, list)) else (value,))]
    return found


def signatures(names):
    """Prints {name: (positional names, True if there are more)} and the results of `CALLS` as JSON."""
    import mytorch

    mytorch.install_as_torch()
    found = {}
    for name in names:
        place, _, last = name.removeprefix("torch.").rpartition(".")
        home = getattr(mytorch, place) if place else mytorch
        function = getattr(home, last, None)
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            continue
        several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        positional = [p.name for p in parameters if p.kind < p.VAR_POSITIONAL]
        found[name] = positional[1:] if place == "Tensor" else positional, several
    print(json.dumps([found, results(mytorch)]))


if __name__ == "__main__":
    signatures(sys.stdin.read().split())
    raise SystemExit


def schemas(torch):
    """Returns {name: positional names of each overload}."""
    operators, found = {}, {}
    for schema in torch._C._jit_get_all_schemas():
        tensors = any("Tensor" in str(a.type) for a in schema.arguments)  # otherwise it is one of TorchScript
        if schema.name.startswith("aten::") and tensors and not any(a.is_out for a in schema.arguments):
            positional = [(a.name, str(a.type)) for a in schema.arguments if not a.kwarg_only]
            operators.setdefault(schema.name[6:], []).append(positional)
    for place in PLACES:
        home = torch
        for part in place.split(".")[1:]:
            home = getattr(home, part)
        prefix = place.split(".")[-1] + "_" if place not in PLACES[:2] else ""
        for name in dir(home):
            if prefix + name in operators and callable(getattr(home, name)):
                # The tensor of a method is its first argument, wherever the operator has it.
                overloads = [
                    [n for i, (n, kind) in enumerate(o) if (n != "self" if any(m == "self" for m, _ in o) else i)]
                    if place == "torch.Tensor" else [n for n, _ in o]
                    for o in operators[prefix + name]
                ]  # fmt: skip
                found[f"{place}.{name}"] = overloads
    return found


def matches(expected, own, several):
    """Returns True if the own names are the expected ones, at least as many and in this order."""
    pairs = list(zip(expected, own))  # noqa: B905 - the lengths are compared below
    same = all(mine in (name, *SAME.get(name, "").split()) for name, mine in pairs)
    return same and (len(own) >= len(expected) or several)


def test_positional_arguments_have_the_order_of_pytorch():
    torch = pytest.importorskip("torch")
    expected = schemas(torch)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__], input=" ".join(expected), capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    own, values = json.loads(done.stdout)
    assert len(own) > 900
    different = [
        f"{name}: expected {overload}, got {own[name][0]}"
        for name, overloads in expected.items()
        for overload in overloads
        if name in own and name.rpartition(".")[2] not in OVERLOADED | OTHER and not matches(overload, *own[name])
    ]
    with warnings.catch_warnings():  # of deprecated overloads
        warnings.simplefilter("ignore")
        expected_values = results(torch)
    for call, wanted in expected_values.items():
        for (value, dtype), (wanted_value, wanted_dtype) in zip(values[call], wanted, strict=True):
            if dtype != wanted_dtype or not np.allclose(value, wanted_value, 1e-4, 1e-5):
                different.append(f"{call}: expected {wanted_value}, got {value}")
    assert different == [], "\n".join(different)
