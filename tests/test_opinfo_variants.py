"""The ops of PyTorch's operator database on variants of its samples: with axes of size 0, and in other memory layouts."""

import copy

import numpy as np
import pytest

from tests import test_opinfo as opinfo
from tests.exceptions import IN_VARIANTS, RANDOM, UP_TO_SIGNS
from tests.loops import loop

torch = opinfo.torch
tree_leaves, tree_map_only = torch.utils._pytree.tree_leaves, torch.utils._pytree.tree_map_only
SAMPLES = 3
REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError)


def without(size):
    """Returns a function that shortens the axes of one size to 0."""

    def shorten(t):
        short = t.detach()
        for axis, n in enumerate(t.shape):
            short = short.narrow(axis, 0, 0) if n == size else short
        return short.clone().requires_grad_(t.requires_grad)

    return shorten


def in_layout(rng):
    """Returns a function that stores a tensor with its axes in a random order, or a vector with gaps."""

    def laid_out(t):
        x = t.detach()
        if x.ndim > 1:
            order = rng.permutation(x.ndim).tolist()
            x = x.permute(order).contiguous().permute(np.argsort(order).tolist())
        else:
            x = torch.stack([x, x], -1)[..., 0]
        return x.requires_grad_(t.requires_grad)

    return laid_out


def variants(sample, rng):
    parts = [sample.input, list(sample.args), dict(sample.kwargs)]
    for size in sorted({n for t in tree_leaves(parts) if isinstance(t, torch.Tensor) for n in t.shape if n}):
        yield tree_map_only(torch.Tensor, without(size), parts)
    yield tree_map_only(torch.Tensor, in_layout(rng), parts)


CASES = [
    pytest.param(case.values[0], id=case.id)
    for case in opinfo.cases()
    if case.values[1] is torch.float64 and case.values[0].name not in IN_VARIANTS
]


@loop(parts=2)
@pytest.mark.parametrize("op", CASES)
@pytest.mark.filterwarnings("ignore")
def test_variants(op):
    rng = np.random.default_rng(0)
    function, differentiable = opinfo.ours(op.name), op.supports_autograd
    for _, sample in zip(range(SAMPLES), opinfo.samples(op, torch.float64, differentiable), strict=False):
        for input, args, kwargs in variants(sample, rng):
            try:
                theirs = op.op(input, *args, **kwargs)
            except REFUSALS:
                continue
            arguments = opinfo.convert([input, args, list(kwargs.values())])
            mine = function(arguments[0], *arguments[1], **dict(zip(kwargs, arguments[2], strict=True)))
            pairs = list(zip(opinfo.flat(theirs), opinfo.flat(mine), strict=True))
            if op.name in RANDOM:
                assert all(tuple(a.shape) == tuple(b.shape) for a, b in pairs if hasattr(a, "shape"))
                continue
            if op.name not in UP_TO_SIGNS:
                for a, b in pairs:
                    opinfo.compare(a, b, "result")
            if differentiable:
                variant = copy.copy(sample)
                variant.input, variant.args, variant.kwargs = input, tuple(args), kwargs
                opinfo.compare_gradients(variant, theirs, mine, arguments, False)
