"""Matrix products with a fused epilogue (bias, activation, factor) for any strides, sizes and batches; linear layer with activation.

A program computes a tile (BM, BN) of the product. It advances along the inner axis BK elements at a time, with the accumulator in
registers. Bias and activation are applied before the tile is written, which saves a pass over the output. The tiles are
numbered in groups of GROUP_ROWS rows, so that programs that run at the same time share their operands in the second-level
cache. Strides are arguments, so a transposed operand needs no copy: the products of backward, g @ w and gᵀ @ x, use
the same kernel.

Grid: one program for each tile of each matrix of the batch. Saved for backward: the operands and the input of the
activation. Accumulation: float32; float32 operands are multiplied exactly, not in TF32. Backward of y = x wᵀ + b: gx = g w, gw = gᵀ x,
gb = sum of the rows of g, with g = gy f'(inner) if an activation follows.

A linear layer with its activation has two implementations, and tuning chooses the faster one: product and bias by cuBLASLt
with a separate pass for the activation (the default), or everything in the epilogue of the product here. For the tanh
approximation of GELU, cuBLASLt has epilogues for forward and backward, which `gelu_mlp` uses between two linear layers.
"""

import math
from functools import lru_cache

import numpy as np
import triton
import triton.language as tl

from ..kernel import Kernel
from ..launch import cdiv, launch, power_of_2, tuned
from ..linear import backward as plain_backward
from .activation import KINDS, activate, apply, apply_backward
from .common import dot, one_dtype, strides_of
from .norm import add_up

GROUP_ROWS = tl.constexpr(8)  # rows of tiles that are computed together


@triton.jit
def _product(a_ptr, b_ptr, bias_ptr, out_ptr, before_ptr, m, n, k, stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn,
             stride_oz, stride_om, stride_on, factor,
             BIAS: tl.constexpr, ACT: tl.constexpr, BEFORE: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
             BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Computes a tile (BM, BN) of out_ptr (Z, M, N): a_ptr (Z, M, K) times b_ptr (Z, K, N), with any strides; bias_ptr (N,)."""
    tiles_m = tl.cdiv(m, BM)
    tiles_n = tl.cdiv(n, BN)
    z = (tl.program_id(0) // (tiles_m * tiles_n)).to(tl.int64)
    tile = tl.program_id(0) % (tiles_m * tiles_n)
    # Grouped order: within a group of GROUP_ROWS rows of tiles, go down the rows first and then to the next column.
    first_m = tile // (GROUP_ROWS * tiles_n) * GROUP_ROWS
    group_rows = tl.minimum(tiles_m - first_m, GROUP_ROWS)  # the last group may have fewer rows
    tile_m = first_m + (tile % (GROUP_ROWS * tiles_n)) % group_rows
    tile_n = (tile % (GROUP_ROWS * tiles_n)) // group_rows
    rows = tile_m * BM + tl.arange(0, BM)
    cols = tile_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    # Wrap around instead of masking: rows and columns past the end load valid memory, and are not stored.
    safe_rows = (rows % m).to(tl.int64)
    safe_cols = (cols % n).to(tl.int64)
    a_ptrs = a_ptr + z * stride_az + safe_rows[:, None] * stride_am + inner[None, :] * stride_ak
    b_ptrs = b_ptr + z * stride_bz + inner[:, None] * stride_bk + safe_cols[None, :] * stride_bn
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        # EVEN: K is a multiple of BK, so no load along the inner axis needs a mask.
        if EVEN:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=(start + inner < k)[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=(start + inner < k)[:, None], other=0.0)
        acc = dot(a, b, acc, PRECISION)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    acc *= factor
    if BIAS:
        acc += tl.load(bias_ptr + safe_cols).to(tl.float32)[None, :]
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    offset = z * stride_oz + rows.to(tl.int64)[:, None] * stride_om + cols[None, :].to(tl.int64) * stride_on
    # Backward of the activation needs its input.
    if BEFORE:
        tl.store(before_ptr + offset, acc.to(before_ptr.dtype.element_ty), mask=inside)
    if ACT >= 0:
        acc = activate(acc, ACT)
    tl.store(out_ptr + offset, acc.to(out_ptr.dtype.element_ty), mask=inside)


def _options(bm, bn, bk, warps, stages):
    return {"BM": bm, "BN": bn, "BK": bk, "num_warps": warps, "num_stages": stages}


@lru_cache
def _candidates(tall, short, wide):
    """Returns the candidate tiles. tall: at least 1024 × 256; short: at most 64 rows or columns; wide: float32."""
    # float32 runs on the plain cores, and needs twice the memory per element: smaller tiles.
    if wide:
        default = _options(32, 32, 32, 4, 2) if short else _options(64, 64, 16, 4, 3)
        medium = [_options(128, 64, 16, 8, 3), _options(128, 128, 16, 8, 3), _options(64, 64, 32, 4, 3)]
        return {"none": [default], "medium": medium, "max": [_options(64, 128, 16, 8, 2), _options(32, 64, 32, 4, 3)]}
    if tall:
        default = _options(128, 256, 64, 8, 3)
    elif short:
        default = _options(64, 64, 64, 4, 3)
    else:
        default = _options(128, 128, 64, 8, 3)
    medium = [
        _options(*o) for o in ((128, 128, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4))
    ]
    # At most 128 × 256 float32 accumulators: more do not fit into the registers of a program.
    large = [_options(bm, bn, bk, w, s) for bm in (64, 128, 256) for bn in (64, 128, 256) for bk in (32, 64, 128)
             for w in (4, 8) for s in (3, 4) if bm * bn <= 128 * 256]  # fmt: skip
    return {"none": [default], "medium": medium, "max": large}


def _matrices(x):
    """Returns x as (batch, rows, columns), a copy if the leading axes can't be merged, and its strides in elements."""
    x = x[None] if x.ndim == 2 else x.reshape(-1, *x.shape[-2:])
    return x, strides_of(x)


def product(xp, a, b, bias=None, *, activation=None, factor=1.0, before=False, dtype=None):
    """Returns activation(a @ b * factor + bias).

    Args:
        a: (…, M, K). b: (…, K, N), of a's leading axes, or (K, N) for all. One float dtype, any strides.
        bias: (N,). activation: a key of activation.KINDS.
        dtype: dtype of the output (default: dtype of a).
        before: also return the input of the activation, for backward.

    Returns:
        (…, M, N); with `before`, both.

    Raises:
        ValueError: shapes that don't fit. TypeError: dtypes that differ.
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2] or (b.ndim > 2 and a.shape[:-2] != b.shape[:-2]):
        raise ValueError(f"product: shapes {a.shape} and {b.shape} can't be multiplied.")
    if not one_dtype(a, b):
        raise TypeError(f"product: expected one of float32, float16, bfloat16 for both, got {a.dtype} and {b.dtype}.")
    shape = (*a.shape[:-1], b.shape[-1])
    # One matrix b for all batches: a single large product instead of a batch.
    if a.ndim > 2 and b.ndim == 2:
        a = a.reshape(-1, a.shape[-1])
    left, left_steps = _matrices(a)
    right, right_steps = _matrices(b)
    batch, m, k = left.shape
    n = right.shape[2]
    out = xp.empty((batch, m, n), dtype or a.dtype)
    kept = xp.empty((batch, m, n), a.dtype) if before else None
    wide = a.dtype.itemsize == 4

    def attempt(tile):
        launch(
            _product, (batch * cdiv(m, tile["BM"]) * cdiv(n, tile["BN"]),), left, right, bias, out, kept, m, n, k,
            *left_steps, *right_steps, *strides_of(out), float(factor),
            BIAS=bias is not None, ACT=-1 if activation is None else KINDS[activation], BEFORE=before, EVEN=k % tile["BK"] == 0,
            PRECISION="ieee" if wide else "tf32", **tile,
        )  # fmt: skip

    if m and n:
        transposed = [int(steps[2] != 1) for steps in (left_steps, right_steps)]
        key = (a.dtype.name, power_of_2(batch), power_of_2(m), n, k, *transposed, activation or "")
        attempt(tuned(_product, key, _candidates(m >= 1024 and n >= 256, min(m, n) <= 64, wide), attempt))
    return (out.reshape(shape), kept.reshape(shape)) if before else out.reshape(shape)


def linear(xp, x, weight, bias=None, activation=None, before=False):
    """Returns activation(x @ weightᵀ + bias) for x (…, in) and weight (out, in); with `before`, also the activation's input."""
    flat = x.reshape(-1, x.shape[-1])
    result = product(xp, flat, weight.T, bias, activation=activation, before=before)
    shape = (*x.shape[:-1], weight.shape[0])
    return (result[0].reshape(shape), result[1].reshape(shape)) if before else result.reshape(shape)


def linear_backward(xp, g, x, weight, inner=None, activation=None, needs=(True, True, True), bias_dtype=None):
    """Returns the gradients of x, weight and bias. `inner` is the activation's input."""
    if activation is not None:
        g = apply_backward(xp, g, inner, activation)
    g2 = xp.ascontiguousarray(g).reshape(-1, weight.shape[0])
    x2 = x.reshape(-1, x.shape[-1])
    gx = product(xp, g2, weight).reshape(x.shape) if needs[0] else None
    gw = product(xp, g2.T, x2, dtype=weight.dtype) if needs[1] else None
    gb = add_up(xp, g2, bias_dtype or weight.dtype) if needs[2] else None
    return gx, gw, gb


# -- kernel of the op: a linear layer with its activation ---------------------------------------------------------------

WAYS = {"none": [{"way": "two passes"}], "medium": [{"way": "epilogue"}]}


def _accepts(input, weight, bias=None, *, activation):
    return one_dtype(input, weight, bias) and input.size > 0 and weight.size > 0


def _linear_activation(xp, input, weight, bias=None, *, activation):
    """Returns activation(input @ weightᵀ + bias) and the activation's input."""

    def attempt(candidate):
        if candidate["way"] == "epilogue":
            return linear(xp, input, weight, bias, activation, before=True)
        inner = xp.linear(input, weight, bias)
        return apply(xp, inner, activation), inner

    if isinstance(input, np.ndarray):  # in Triton's interpreter
        return attempt(WAYS["medium"][0])
    key = ("linear_activation", input.dtype.name, power_of_2(math.prod(input.shape[:-1])), *weight.shape, activation)
    return attempt(tuned(_linear_activation, key, WAYS, attempt))


def _linear_activation_vjp(g, input, weight, bias, inner, activation, needs, xp):
    if isinstance(input, np.ndarray):
        return linear_backward(xp, g, input, weight, inner, activation, needs, None if bias is None else bias.dtype)
    return plain_backward(xp, apply_backward(xp, g, inner, activation), input, weight, needs)


linear_activation = Kernel(
    accepts=_accepts, forward=_linear_activation, vjp=_linear_activation_vjp, residuals=("inner",)
)


# -- two linear layers with tanh GELU between them: cuBLASLt's epilogues apply GELU and its derivative ------------------------

GELU_WAYS = {"none": [{"way": "epilogue"}], "medium": [{"way": "two passes"}]}


def _accepts_mlp(input, weight1, weight2, bias1=None, bias2=None):
    return (
        _accepts(input, weight1, bias1, activation="gelu_tanh")
        and one_dtype(input, weight2, bias2)
        and weight2.size > 0
    )


def _gelu_of_linear(xp, x, weight, bias):
    """Returns gelu(before) and before = x @ weightᵀ + bias."""

    def attempt(candidate):
        result = xp.linear_gelu(x, weight, bias) if candidate["way"] == "epilogue" else None
        # cuBLASLt returns None if it has no epilogue for this dtype or shape.
        if result is None:
            before = xp.linear(x, weight, bias)
            result = apply(xp, before, "gelu_tanh"), before
        return result

    key = ("gelu of linear", x.dtype.name, power_of_2(math.prod(x.shape[:-1])), *weight.shape, bias is not None)
    return attempt(tuned(_gelu_of_linear, key, GELU_WAYS, attempt))


def _gelu_gradients(xp, g, weight, before, bias):
    """Returns (g @ weight) * gelu'(before) and, with `bias`, its sum over rows, or None if the epilogue did not compute it."""

    def attempt(candidate):
        result = xp.gelu_gradients(g, weight, before, bias) if candidate["way"] == "epilogue" else None
        return result or (apply_backward(xp, xp.matmul(g, weight), before, "gelu_tanh"), None)

    key = ("gelu gradients", g.dtype.name, power_of_2(len(g)), *weight.shape, bias)
    return attempt(tuned(_gelu_gradients, key, GELU_WAYS, attempt))


def _gelu_mlp(xp, input, weight1, weight2, bias1=None, bias2=None):
    """Returns linear(gelu(before), weight2, bias2), before = linear(input, weight1, bias1), and gelu(before)."""
    if isinstance(input, np.ndarray):  # in Triton's interpreter
        hidden, before = linear(xp, input, weight1, bias1, "gelu_tanh", before=True)
        return linear(xp, hidden, weight2, bias2), before, hidden
    hidden, before = _gelu_of_linear(xp, input, weight1, bias1)
    return xp.linear(hidden, weight2, bias2), before, hidden


def _gelu_mlp_vjp(g, input, weight1, weight2, before, hidden, needs, float32_accum, xp):
    first = needs[0], needs[1], needs[3]
    if isinstance(input, np.ndarray):
        gh, gw2, gb2 = linear_backward(xp, g, hidden, weight2, needs=(any(first), needs[2], needs[4]))
        gx, gw1, gb1 = (
            linear_backward(xp, gh, input, weight1, before, "gelu_tanh", first) if any(first) else (None,) * 3
        )
        return gx, gw1, gw2, gb1, gb2
    _, gw2, gb2 = plain_backward(xp, g, hidden, weight2, (False, needs[2], needs[4]), float32_accum[2])
    gx = gw1 = gb1 = None
    if any(first):
        rows = xp.reshape(g, (math.prod(g.shape[:-1]), g.shape[-1]))
        gb, total = _gelu_gradients(xp, rows, weight2, before.reshape(len(rows), before.shape[-1]), needs[3])
        gx, gw1, gb1 = plain_backward(
            xp, gb, input, weight1, (needs[0], needs[1], needs[3] and total is None), float32_accum[1]
        )
        gb1 = gb1 if total is None else total
    return gx, gw1, gw2, gb1, gb2


gelu_mlp = Kernel(accepts=_accepts_mlp, forward=_gelu_mlp, vjp=_gelu_mlp_vjp, residuals=("before", "hidden"))
