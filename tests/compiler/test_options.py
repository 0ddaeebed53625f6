"""Options that differ between calls of a compiled function: each op with a numeric option, on tensors whose sizes are all equal.

With equal sizes, another axis or index changes neither shapes nor dtypes, so that only the comparison of the numbers decides
whether a recorded program fits.
"""

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F
from tests.loops import loop
from tests.samples import ROWS
from tests.test_ops import _call, _inputs, _outputs, _values

pytestmark = pytest.mark.cpu_only
CALLS = 12  # a region is measured in its first eight calls


def variants(value):
    """Returns other values of a numeric option."""
    if type(value) is int:
        return [value + 1, value - 1, value + 2, 0, -1, 1]
    if type(value) is float:
        return [value * 0.5, value * 1.5, value + 1.0]
    if type(value) in (tuple, list) and value:
        return [type(value)([*value[:i], x, *value[i + 1 :]]) for i, v in enumerate(value) for x in variants(v)[:3]]
    return []


def eager(row, values, attrs, upstream=None):
    """Returns the arrays of (outputs, gradients, upstream gradients), or None if the op refuses the options."""
    inputs = _inputs(values, mytorch, "float32", grad=True)
    try:
        outputs = [y for y in _outputs(_call(row, mytorch, inputs, attrs)) if y.requires_grad]
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    if not outputs:
        return None
    rng = np.random.default_rng(1)
    upstream = [mytorch.tensor(rng.standard_normal(y.shape), dtype=y.dtype) for y in outputs]
    mytorch.autograd.backward(outputs, upstream)
    return [y.detach().numpy() for y in outputs], [x.grad.numpy() for x in inputs if x.grad is not None], upstream


def compiled(row, values, attrs, step, upstream):
    inputs = _inputs(values, mytorch, "float32", grad=True)
    outputs = step(row, inputs, attrs, upstream)
    return [y.detach().numpy() for y in outputs], [x.grad.numpy() for x in inputs if x.grad is not None]


CASES = [
    pytest.param(row, name, id=f"{row.name}-{row.shapes}-{name}")
    for row in ROWS
    if row.grad and row.name not in ("dropout", "rrelu", "alpha_dropout", "feature_alpha_dropout", "gumbel_softmax")
    for name, options in row.attrs.items()
    if any(variants(value) for value in options)
]


@loop(parts=2)
@pytest.mark.parametrize(("row", "name"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_options(row, name, rng):
    for shapes in ([tuple(4 for _ in shape) for shape in row.shapes], row.shapes):
        values = _values(row, shapes, rng, "float32")
        for attrs in row.settings()[:3]:
            others = [{**attrs, name: x} for x in variants(attrs[name])]
            if name == "dim" and len(shapes[0]) > 1:
                others += [{**attrs, name: d} for d in range(len(shapes[0]))]
            expected = [(a, found) for a in [attrs, *others] if (found := eager(row, values, a)) is not None]
            if len(expected) > 1:
                break
        else:
            continue

        @mytorch.compile
        def step(row, inputs, attrs, upstream):
            outputs = [y for y in _outputs(_call(row, mytorch, inputs, attrs)) if y.requires_grad]
            mytorch.autograd.backward(outputs, upstream)
            return outputs

        for k in range(CALLS):
            a, (outputs, grads, upstream) = expected[k % len(expected)]
            mine = compiled(row, values, a, step, upstream)
            for found, wanted in zip((*mine[0], *mine[1]), (*outputs, *grads), strict=True):
                np.testing.assert_allclose(found, wanted, 1e-5, 1e-5, err_msg=f"call {k}, {a}")


def test_padding_index():
    """`padding_idx` is compared with integers, in a formula without floats."""
    ids, weight = mytorch.tensor([[0, 1, 2], [2, 1, 1]]), mytorch.randn(3, 4)

    @mytorch.compile
    def step(weight, k):
        loss = (F.embedding(ids, weight, padding_idx=k) ** 2).sum()
        loss.backward()
        return loss

    for k in [0, 1, 2] * 4:
        w, expected = weight.clone().requires_grad_(), weight.clone().requires_grad_()
        step(w, k)
        (F.embedding(ids, expected, padding_idx=k) ** 2).sum().backward()
        assert mytorch.equal(w.grad, expected.grad), k
