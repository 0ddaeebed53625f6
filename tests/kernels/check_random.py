"""Random numbers in Triton's interpreter compared with `mytorch/arrays/philox.py`: equal bits, except after log and sin."""

import numpy as np
import pytest

from mytorch.arrays import philox
from mytorch.kernels.launch import INTERPRET
from mytorch.kernels.triton import random

from .cases import COMPILE_ONLY, DTYPES, dev, host, xp

KINDS = {**DTYPES, "fp64": np.dtype(np.float64)}
SHAPES = [(0,), (1,), (3, 5), (1023,), (1024,), (2, 1025), (5001,)]
STATES = [(0, 0), (1234, 5), (-3, 2**31), (2**62 + 11, 2**33 + 1)]


def pair(name, state, call, *arguments):
    """A draw by the kernel and by the reference, in host memory."""
    state = np.array(state, np.int64)
    made = host(getattr(random, name)(xp, dev(state), call, *arguments))
    want = getattr(philox, name)(np, state, call, *arguments)
    assert made.shape == want.shape
    assert made.dtype == want.dtype
    return (want if COMPILE_ONLY else made), want


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_uniform(shape, dtype):
    for state in STATES:
        for call, bounds in ((1, ()), (2**31 - 1, (-0.3, 1.7)), (7, (0.1, 0.1001))):
            made, want = pair("uniform", state, call, shape, KINDS[dtype], *bounds)
            if dtype == "bf16" and bounds and INTERPRET:  # the interpreter cuts bits off where a GPU rounds
                assert np.abs(made.astype(np.float64) - want.astype(np.float64)).max(initial=0.0) <= 2**-7
            else:
                assert made.tobytes() == want.tobytes(), (state, bounds)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_normal(shape, dtype):
    near = {"fp64": 1e-13, "fp32": 4e-6, "fp16": 4e-3, "bf16": 3e-2}[dtype]
    for state in STATES:
        for call, parameters in ((1, ()), (9, (0.3, 1.7)), (2**20, (0.0, 0.02))):
            made, want = pair("normal", state, call, shape, KINDS[dtype], *parameters)
            scale = parameters[1] if parameters else 1.0
            assert np.abs(made.astype(np.float64) - want.astype(np.float64)).max(initial=0.0) <= near * scale * 4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_integers(shape):
    for low, span in (
        (0, 1),
        (-5, 10),
        (0, 50304),
        (2**31, 2**31),
        (3 * 2**30, 3 * 2**30),
        (-(2**40), 2**41 + 3),
        (-(2**63), 2**63 + 5),
        (-(2**63), 2**64),
    ):
        made, want = pair("integers", (77, 3), 4, shape, low, span)
        assert made.tobytes() == want.tobytes(), (low, span)
