"""Outputs of compiled functions that share memory."""

import numpy as np
import pytest

import mytorch
from mytorch.utils._pytree import tree_flatten

pytestmark = pytest.mark.cpu_only


def _several(x):
    h = x * 2
    return h, h[:, -1], h.detach()[0], h.T, h[1:].reshape(-1), h[:, -1:]


def _smaller_first(x):
    h = (x + 1).flatten()
    return h[::2], {"all": h, "again": h}, h.view(2, -1)


@pytest.mark.parametrize("function", [_several, _smaller_first])
def test_outputs_that_share_memory_still_share_it(function):
    compiled = mytorch.compile(function, fullgraph=True)
    draw = np.random.default_rng(0)
    for _ in range(4):
        numbers = draw.standard_normal((4, 6)).astype(np.float32)
        found = []
        for f in (function, compiled):
            x = mytorch.tensor(numbers, requires_grad=True)
            outs = tree_flatten(f(x))[0]
            weights = np.random.default_rng(1)
            loss = sum(
                (out * mytorch.tensor(weights.standard_normal(tuple(out.shape)).astype("f"))).sum()
                for out in outs
                if out.requires_grad
            )
            loss.backward()
            identical = [[a is b for a in outs] for b in outs]
            wants = [out.requires_grad for out in outs]
            with mytorch.no_grad():
                for k, out in enumerate(outs):
                    out.mul_(k + 2)
            found.append(
                ([out.tolist() for out in outs], [out.stride() for out in outs], x.grad.tolist(), identical, wants)
            )
        assert found[0] == found[1]
    assert compiled._mt_regions.programs
