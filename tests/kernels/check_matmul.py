"""Matrix products with bias and activation in Triton's interpreter against float64."""

import numpy as np
import pytest

from mytorch.kernels.triton import matmul

from .cases import DTYPES, dev, near, rand, xp
from .check_elementwise import FORMULAS, _slope


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 65, 17), (130, 70, 200)])
def test_product(shape, dtype):
    m, n, k = shape
    a, a64 = rand(m, k, dtype=dtype)
    b, b64 = rand(n, k, dtype=dtype)
    bias, bias64 = rand(n, dtype=dtype)
    near(matmul.product(xp, a, b.T, factor=0.5), a64 @ b64.T * 0.5)
    near(matmul.product(xp, a.T.copy().T, b.T.copy(), bias), a64 @ b64.T + bias64)


def test_batches():
    a, a64 = rand(2, 3, 5, 70)
    b, b64 = rand(2, 3, 70, 9)
    near(matmul.product(xp, a, b), a64 @ b64)
    near(matmul.product(xp, a, b[0, 0]), a64 @ b64[0, 0])
    with pytest.raises(ValueError, match="can't be multiplied"):
        matmul.product(xp, a, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, *FORMULAS])
def test_linear(activation, dtype):
    x, x64 = rand(2, 21, 33, dtype=dtype)
    w, w64 = rand(45, 33, dtype=dtype, scale=0.3)
    b, b64 = rand(45, dtype=dtype)
    g, g64 = rand(2, 21, 45, dtype=dtype)
    inner64 = x64 @ w64.T + b64
    out, inner = matmul.linear(xp, x, w, b, activation, before=True)
    near(inner, inner64)
    f = FORMULAS.get(activation, lambda v: v)
    near(out, f(inner64), 1 if activation != "relu_squared" else 2)
    gx, gw, gb = matmul.linear_backward(xp, g, x, w, dev(inner64.astype(x.dtype)), activation)
    h = g64 * _slope(f, inner64)
    near(gx, h @ w64, 2)
    near(gw, np.einsum("bto,bti->oi", h, x64), 2)
    near(gb, h.sum((0, 1)), 2)
