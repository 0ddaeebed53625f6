"""Compares the connection of inputs with results: `requires_grad` of the results, and errors of missing derivatives.

A gradient that is silently missing is a wrong number: `igamma(a, x)` has no derivative with respect to a, so that backward
raises an error. The functions and inputs come from PyTorch's operator database.
"""

import numpy as np
import pytest

import mytorch
from tests import test_opinfo as database
from tests.loops import loop

torch = pytest.importorskip("torch")

SAMPLES = 1
DIFFERENT = {
    "addr": "with beta=0, PyTorch's result depends on `input`",
    "triangular_solve": "PyTorch's second result is a view of A",
}


def leaves(x):
    if isinstance(x, torch.Tensor):
        return [x]
    return (
        [t for item in (x.values() if isinstance(x, dict) else x) for t in leaves(item)]
        if type(x) in (list, tuple, dict)
        else []
    )


def mapped(x, function):
    if isinstance(x, torch.Tensor):
        return function(x)
    if type(x) is dict:
        return {k: mapped(v, function) for k, v in x.items()}
    return type(x)(mapped(v, function) for v in x) if type(x) in (list, tuple) else x


def differentiable(arguments, position, convert):
    """Returns a copy of arguments in which only the tensor at a position requires grad."""
    count = iter(range(10**6))

    def copy(t):
        t = t.detach().clone()
        return t.requires_grad_() if next(count) == position else t

    copied = mapped(arguments, copy)
    return database.convert(copied) if convert else copied


def outcome(function, arguments):
    """Returns, for each result: requires_grad, and True if its differentiation raises an error."""
    positional, named = arguments
    results = [r for r in database.flat(function(*positional, **named)) if hasattr(r, "requires_grad")]
    found = []
    for result in results:
        try:
            if result.requires_grad:
                (result * result).sum().abs().backward(retain_graph=True)
            found.append((result.requires_grad, False))
        except NotImplementedError:
            found.append((True, True))
        except RuntimeError as error:
            if "derivative" not in str(error):
                raise
            found.append((True, True))
    return found


def groups():
    """Returns {first letter of the name: [op, …]}. One test for each letter is faster than one for each op."""
    found = {}
    for param in database.cases():
        op, dtype = param.values
        if dtype == torch.float64 and op.name not in DIFFERENT and op.name not in database.RANDOM:
            found.setdefault(op.name.rpartition(".")[2][0], []).append(op)
    return found


GROUPS = groups()


def problems(op):
    """Yields a description of each tensor that is connected in another way than in PyTorch."""
    function = database.ours(op.name)
    for count, sample in enumerate(database.samples(op, torch.float64)):
        if count == SAMPLES:
            return
        arguments = [[sample.input, *sample.args], dict(sample.kwargs)]
        for position, tensor in enumerate(leaves(arguments)):
            if not tensor.is_floating_point():
                continue
            try:
                want = outcome(op.op, differentiable(arguments, position, False))
            except (RuntimeError, TypeError, ValueError):
                continue
            got = outcome(function, differentiable(arguments, position, True))
            pairs = zip(got, want, strict=True)  # a gradient that PyTorch does not have is allowed
            if any(g != w and not (w == (True, True) and g[0]) for g, w in pairs):
                yield f"{op.name}, tensor {position}: (requires grad, raises) is {got}, PyTorch's {want}"


@loop
@pytest.mark.parametrize("letter", sorted(GROUPS))
@pytest.mark.filterwarnings("ignore")
def test_the_same_inputs_are_connected(letter):
    found = [problem for op in GROUPS[letter] for problem in problems(op)]
    assert not found, "\n".join(found)


EMPTY = {
    "masked_scatter": lambda L, x, i, z: L.masked_scatter(z, L.zeros(4, 2) > 0, x),
    "scatter": lambda L, x, i, z: L.scatter(z, 0, i, x),
    "scatter_add": lambda L, x, i, z: L.scatter_add(z, 0, i, x),
    **{f"scatter_reduce {r}": (lambda L, x, i, z, r=r: L.scatter_reduce(z, 0, i, x, r)) for r in ("sum", "prod", "mean", "amax", "amin")},
    **{f"index_reduce {r}": (lambda L, x, i, z, r=r: L.index_reduce(z, 0, i[:, 0], x, r)) for r in ("prod", "mean", "amax", "amin")},
    "index_add": lambda L, x, i, z: L.index_add(z, 0, i[:, 0], x),
    "index_copy": lambda L, x, i, z: L.index_copy(z, 0, i[:, 0], x),
    "index_put": lambda L, x, i, z: L.index_put(z, (i[:, 0],), x),
    "put": lambda L, x, i, z: L.put(z, i, x),
    "cat": lambda L, x, i, z: L.cat([z, x]),
    "where": lambda L, x, i, z: L.where(x > 0, x, x),
    "matmul": lambda L, x, i, z: z[:, :0] @ x,
    "sum": lambda L, x, i, z: x.sum(),
    "prod": lambda L, x, i, z: x.prod(),
    "index_select": lambda L, x, i, z: L.index_select(x, 1, L.tensor([1, 0])),
    "gather": lambda L, x, i, z: L.gather(x, 0, i),
    "layer_norm": lambda L, x, i, z: L.nn.functional.layer_norm(x, (2,)),
    "linear": lambda L, x, i, z: L.nn.functional.linear(x, z),
    "embedding": lambda L, x, i, z: L.nn.functional.embedding(i, z) + x[:, None],
    "stack": lambda L, x, i, z: L.stack([x, x]),
    "setitem": lambda L, x, i, z: _assigned(z, i, x),
}  # fmt: skip


def _assigned(z, i, x):
    z = z.clone()
    z[i[:, 0]] = x
    return z


@pytest.mark.filterwarnings("ignore:index_reduce")  # PyTorch's, in its first call
@loop
@pytest.mark.parametrize("name", list(EMPTY))
def test_empty_inputs_are_connected(name):
    """An empty tensor contributes nothing, but its parameters receive gradients of zeros."""
    gradients = []
    for L in (torch, mytorch):
        w = L.ones(2, requires_grad=True)
        x = L.zeros(0, 2) * w
        result = EMPTY[name](L, x, L.zeros((0, 2), dtype=L.int64), L.ones(4, 2))
        assert result.requires_grad, f"{L.__name__}: the result does not require grad"
        result.sum().backward()
        gradients.append(w.grad.numpy())
    np.testing.assert_array_equal(gradients[1], gradients[0])


def test_class_weights_of_cross_entropy_have_a_derivative_for_probabilities_only():
    """PyTorch refuses them for class indices: a missing gradient of the weights would stay unnoticed."""
    F, weight = mytorch.nn.functional, mytorch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="not differentiable"):
        F.cross_entropy(mytorch.ones(2, 3), mytorch.tensor([0, 2]), weight)
    with mytorch.no_grad():
        assert F.cross_entropy(mytorch.ones(2, 3), mytorch.tensor([0, 2]), weight).item() > 0
    target = mytorch.tensor([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])
    F.cross_entropy(mytorch.ones(2, 3), target, weight, reduction="sum").backward()
    np.testing.assert_allclose(weight.grad.numpy(), np.log(3.0) * target.numpy().sum(0), rtol=1e-6)
