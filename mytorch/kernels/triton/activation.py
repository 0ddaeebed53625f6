"""Activations, one pass each way: GELU (both formulas), SiLU, ReLU, squared ReLU, and the gated SwiGLU and GEGLU.

    gelu       x * P(Z <= x), by erf                   silu     x * sigmoid(x)
    gelu_tanh  x * sigmoid(2u), u = c (x + 0.044715 x³)    relu2    max(x, 0)²
    swiglu     silu(a) * b                             geglu    gelu(a) * b

0.5 * (1 + tanh(u)) is sigmoid(2u), which loses nothing near 0. Forward keeps only its inputs: computing the slope
again costs less than reading it back. A gated unit may take its halves from one array (…, 2C), as a linear layer
leaves them, without copying them apart.

Grid: a program for each block of elements. Accumulation: float32.
"""

import math

import triton
import triton.language as tl

from ..launch import cdiv, launch, power_of_2
from .common import contiguous, one_dtype

KINDS = {"gelu": 0, "gelu_tanh": 1, "silu": 2, "relu": 3, "relu_squared": 4}
BLOCK = 2048


@triton.jit
def _normal(x):
    """P(Z <= x) and exp(-x² / 2), in half the instructions of `tl.erf`, which would bind the kernel instead of memory.

    Of the tail, P(Z > |x|) = exp(-x² / 2) t (c_0 + c_1 t + … + c_7 t⁷) with t = 1 / (1 + 0.3 |x|), a fit of our own with a
    relative error of 1.5e-7 for |x| up to 14, beyond which the tail is 0 in float32. The form: Hastings, 1955.
    """
    root = tl.rsqrt(tl.abs(x) * 0.3 + 1.0)
    t = root * root  # rsqrt is one instruction, a division several
    tail = t * 0.035675832694315096 - 0.15720739316256163
    tail = tail * t + 0.20636077714077677
    tail = tail * t - 0.05369020684598406
    tail = tail * t + 0.1285650371870537
    tail = tail * t + 0.09991247533170515
    tail = tail * t + 0.12075411650031556
    tail = tail * t + 0.11962928851731931
    density = tl.exp2(x * x * -0.7213475204444817)
    tail *= t * density
    return tl.where(x < 0, tail, 1.0 - tail), density


@triton.jit
def activate(x, KIND: tl.constexpr):
    """The activation of a float32 block; matmul.py uses it too."""
    if KIND == 0:
        below, _ = _normal(x)
        out = x * below
    elif KIND == 1:
        out = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif KIND == 2:
        out = x * tl.sigmoid(x)
    elif KIND == 3:
        out = tl.where(x > 0, x, x * 0.0)  # NaN stays NaN
    else:
        kept = tl.where(x > 0, x, x * 0.0)
        out = kept * kept
    return out


@triton.jit
def slope(x, KIND: tl.constexpr):
    """The activation's derivative."""
    if KIND == 0:
        below, density = _normal(x)
        out = below + x * 0.3989422804014327 * density
    elif KIND == 1:
        s = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        out = s + x * s * (1.0 - s) * 1.5957691216057308 * (1.0 + 0.134145 * x * x)
    elif KIND == 2:
        s = tl.sigmoid(x)
        out = s * (1.0 + x * (1.0 - s))
    elif KIND == 3:
        out = tl.where(x > 0, 1.0, 0.0)
    else:
        out = tl.where(x > 0, 2.0 * x, 0.0)
    return out


@triton.jit
def _forward(x_ptr, out_ptr, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + place, activate(x, KIND).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(g_ptr, x_ptr, gx_ptr, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(gx_ptr + place, (g * slope(x, KIND)).to(gx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _gated_forward(a_ptr, b_ptr, out_ptr, a_stride, b_stride, width, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    a = tl.load(a_ptr + row * a_stride + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + row * b_stride + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * width + cols, (activate(a, KIND) * b).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _gated_backward(
    g_ptr, a_ptr, b_ptr, ga_ptr, gb_ptr, a_stride, b_stride, g_stride, width, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    g = tl.load(g_ptr + row * width + cols, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(a_ptr + row * a_stride + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + row * b_stride + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(ga_ptr + row * g_stride + cols, (g * b * slope(a, KIND)).to(ga_ptr.dtype.element_ty), mask=inside)
    tl.store(gb_ptr + row * g_stride + cols, (g * activate(a, KIND)).to(gb_ptr.dtype.element_ty), mask=inside)


def apply(xp, x, kind):
    """The activation `kind` (of KINDS) of x."""
    flat = contiguous(xp, x)
    out = xp.empty_like(flat)
    launch(_forward, (cdiv(x.size, BLOCK),), flat, out, x.size, KIND=KINDS[kind], BLOCK=BLOCK, num_warps=4)
    return out


def apply_backward(xp, g, x, kind):
    """The gradient of x."""
    flat = contiguous(xp, x)
    gx = xp.empty_like(flat)
    launch(
        _backward,
        (cdiv(x.size, BLOCK),),
        contiguous(xp, g),
        flat,
        gx,
        x.size,
        KIND=KINDS[kind],
        BLOCK=BLOCK,
        num_warps=4,
    )
    return gx


def _rows(xp, a, b):
    """a and b as rows: pointers at the first elements, with strides between rows; halves of one array stay where they are."""
    width = a.shape[-1]
    out = []
    for x in (a, b):
        if x.ndim == 2 and x.strides[1] == x.itemsize and x.strides[0] >= width * x.itemsize:
            out.append(x)
        else:
            out.append(contiguous(xp, x).reshape(math.prod(x.shape) // max(width, 1), width))
    return out


def _gate_grid(rows, width):
    block = min(power_of_2(max(width, 128)), 1024)
    return (rows, cdiv(width, block)), {"BLOCK": block, "num_warps": 4}


def _halves(x):
    """The halves along the last axis, as rows."""
    width = x.shape[-1] // 2
    flat = x.reshape(-1, 2 * width)
    return flat[:, :width], flat[:, width:]


def gated(xp, a, b=None, kind="silu"):
    """activation(a) * b, with the halves of a (…, 2C) if b is None: swiglu (silu), geglu (gelu, gelu_tanh), reglu (relu)."""
    shape = a.shape if b is not None else (*a.shape[:-1], a.shape[-1] // 2)
    a, b = _rows(xp, a, b) if b is not None else _halves(contiguous(xp, a))
    out = xp.empty(shape, a.dtype)
    grid, blocks = _gate_grid(*a.shape)
    launch(_gated_forward, grid, a, b, out, _row_stride(a), _row_stride(b), a.shape[1], KIND=KINDS[kind], **blocks)
    return out


def gated_backward(xp, g, a, b=None, kind="silu"):
    """The gradients of a and b; one array (…, 2C), if b is None."""
    whole = xp.empty(a.shape, a.dtype) if b is None else None
    ga, gb = (xp.empty(a.shape, a.dtype), xp.empty(b.shape, b.dtype)) if b is not None else (None, None)
    a, b = _rows(xp, a, b) if b is not None else _halves(contiguous(xp, a))
    to_a, to_b = (ga, gb) if whole is None else _halves(whole)
    stride = a.shape[1] * (1 if whole is None else 2)
    grid, blocks = _gate_grid(*a.shape)
    launch(
        _gated_backward, grid, contiguous(xp, g), a, b, to_a, to_b, _row_stride(a), _row_stride(b), stride, a.shape[1],
        KIND=KINDS[kind], **blocks,
    )  # fmt: skip
    return (ga, gb) if whole is None else whole


def _row_stride(x):
    return x.strides[0] // x.itemsize


def accepts_gate(a, b=None):
    """Floats of one dtype and shape, or one array with an even last axis."""
    return one_dtype(a, b) and a.ndim > 0 and (a.shape[-1] % 2 == 0 if b is None else a.shape == b.shape)
