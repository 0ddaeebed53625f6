"""Activations, one pass each way: GELU (both formulas), SiLU, ReLU, squared ReLU, and the gated SwiGLU and GEGLU.

    gelu       x * P(Z <= x), by erf                   silu     x * sigmoid(x)
    gelu_tanh  x * sigmoid(2u), u = c (x + 0.044715 x³)    relu2    max(x, 0)²
    swiglu     silu(a) * b                             geglu    gelu(a) * b

0.5 * (1 + tanh(u)) equals sigmoid(2u), which has no cancellation for negative u.

Backward: gx = g f'(x), and for out = f(a) b: ga = g b f'(a), gb = g f(a). With s = sigmoid(z) and s' = s (1 - s):

    (x P)' = P + x exp(-x² / 2) / sqrt(2π),   (x s)' = s + x s (1 - s) z'

Here z = x for SiLU, and z = 2u for GELU by tanh.

Grid: one program for each BLOCK elements (gated: of a row). Saved for backward: only the inputs, since computing f' again
is faster than reading it from memory. A gated unit may use the two halves of one array (…, 2C), the output of a linear layer,
without copying them. Accumulation: float32.
"""

import math

import triton
import triton.language as tl

from ..kernel import Kernel
from ..launch import cdiv, launch, power_of_2
from .common import LOG2E, contiguous, is_float, one_dtype

KINDS = {"gelu": 0, "gelu_tanh": 1, "silu": 2, "relu": 3, "relu_squared": 4}
BLOCK = 2048
GELU_CUBE = tl.constexpr(0.044715)  # u = sqrt(2 / π) (x + 0.044715 x³)
TWICE_ROOT = tl.constexpr(2 * math.sqrt(2 / math.pi))  # so 2u is this times (x + 0.044715 x³)
DENSITY = tl.constexpr(1 / math.sqrt(2 * math.pi))  # of the normal distribution at 0


@triton.jit
def _normal(x):
    """Returns P(Z <= x) and exp(-x² / 2), with half the instructions of `tl.erf`, which would be slower than the memory.

    The tail is P(Z > |x|) = exp(-x² / 2) t (c_0 + c_1 t + … + c_7 t⁷) with t = 1 / (1 + 0.3 |x|), in the form of Hastings, 1955. The
    coefficients are fitted for this library, with a relative error of 1.5e-7 up to |x| = 14, beyond which the tail is 0 in float32.
    """
    root = tl.rsqrt(tl.abs(x) * 0.3 + 1.0)
    t = root * root  # rsqrt is one instruction, a division is several
    # Horner's scheme for c_7 … c_0.
    tail = t * 0.035675832694315096 - 0.15720739316256163
    tail = tail * t + 0.20636077714077677
    tail = tail * t - 0.05369020684598406
    tail = tail * t + 0.1285650371870537
    tail = tail * t + 0.09991247533170515
    tail = tail * t + 0.12075411650031556
    tail = tail * t + 0.11962928851731931
    density = tl.exp2(x * x * (-0.5 * LOG2E))
    tail *= t * density
    # P(Z <= x) is the tail itself for x < 0: no 1 - (1 - tail), so no cancellation.
    return tl.where(x < 0, tail, 1.0 - tail), density


@triton.jit
def activate(x, KIND: tl.constexpr):
    """Returns the activation of a float32 block. matmul.py uses it too."""
    if KIND == 0:
        cdf, _ = _normal(x)
        out = x * cdf
    elif KIND == 1:
        out = x * tl.sigmoid((x + x * GELU_CUBE * x * x) * TWICE_ROOT)
    elif KIND == 2:
        out = x * tl.sigmoid(x)
    elif KIND == 3:
        out = tl.where(x > 0, x, x * 0.0)  # NaN stays NaN
    else:
        positive = tl.where(x > 0, x, x * 0.0)
        out = positive * positive
    return out


@triton.jit
def slope(x, KIND: tl.constexpr):
    """Returns the derivative of the activation."""
    if KIND == 0:
        cdf, density = _normal(x)
        out = cdf + x * DENSITY * density
    elif KIND == 1:
        s = tl.sigmoid((x + x * GELU_CUBE * x * x) * TWICE_ROOT)
        out = s + x * s * (1.0 - s) * TWICE_ROOT * (1.0 + x * (3.0 * GELU_CUBE) * x)
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
    """Computes BLOCK of `count` elements."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    x = tl.load(x_ptr + index, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + index, activate(x, KIND).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(g_ptr, x_ptr, gx_ptr, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Computes BLOCK of `count` elements of the gradient."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    x = tl.load(x_ptr + index, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + index, mask=inside, other=0.0).to(tl.float32)
    tl.store(gx_ptr + index, (g * slope(x, KIND)).to(gx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _gated_forward(a_ptr, b_ptr, out_ptr, stride_an, stride_bn, width, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Computes out_ptr (N, C), contiguous, from a_ptr and b_ptr (N, C) with row strides stride_an and stride_bn."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    a = tl.load(a_ptr + row * stride_an + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + row * stride_bn + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * width + cols, (activate(a, KIND) * b).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _gated_backward(g_ptr, a_ptr, b_ptr, ga_ptr, gb_ptr, stride_an, stride_bn, stride_gn, width,
                    KIND: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Computes ga_ptr and gb_ptr (N, C) with row stride stride_gn; g_ptr (N, C) is contiguous, a_ptr and b_ptr as in forward."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    g = tl.load(g_ptr + row * width + cols, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(a_ptr + row * stride_an + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + row * stride_bn + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(ga_ptr + row * stride_gn + cols, (g * b * slope(a, KIND)).to(ga_ptr.dtype.element_ty), mask=inside)
    tl.store(gb_ptr + row * stride_gn + cols, (g * activate(a, KIND)).to(gb_ptr.dtype.element_ty), mask=inside)


def apply(xp, x, kind):
    """Returns the activation `kind` (of KINDS) of x."""
    x = contiguous(xp, x)
    out = xp.empty_like(x)
    launch(_forward, (cdiv(x.size, BLOCK),), x, out, x.size, KIND=KINDS[kind], BLOCK=BLOCK, num_warps=4)
    return out


def apply_backward(xp, g, x, kind):
    """Returns the gradient of x."""
    g, x = contiguous(xp, g), contiguous(xp, x)
    gx = xp.empty_like(x)
    launch(_backward, (cdiv(x.size, BLOCK),), g, x, gx, x.size, KIND=KINDS[kind], BLOCK=BLOCK, num_warps=4)
    return gx


def _rows(xp, x):
    """Returns x as (N, C) with contiguous rows. A half of another array is not copied."""
    width = x.shape[-1]
    if x.ndim == 2 and x.strides[1] == x.itemsize and x.strides[0] >= width * x.itemsize:
        return x
    return contiguous(xp, x).reshape(math.prod(x.shape) // max(width, 1), width)


def _halves(x):
    """Returns the halves along the last axis as rows."""
    width = x.shape[-1] // 2
    flat = x.reshape(-1, 2 * width)
    return flat[:, :width], flat[:, width:]


def _pair(xp, a, b):
    """Returns a and b as rows: both arrays, or the halves of a."""
    return _halves(contiguous(xp, a)) if b is None else (_rows(xp, a), _rows(xp, b))


def _row_stride(x):
    return x.strides[0] // x.itemsize


def _launch_gated(kernel, a, b, *arrays, strides=(), kind):
    """Launches a kernel over the rows of a and b."""
    rows, width = a.shape
    block = min(power_of_2(max(width, 128)), 1024)
    steps = (_row_stride(a), _row_stride(b), *strides)
    launch(kernel, (rows, cdiv(width, block)), *arrays, *steps, width, KIND=KINDS[kind], BLOCK=block, num_warps=4)


def gated(xp, a, b=None, kind="silu"):
    """Returns activation(a) * b, or of the halves of a (…, 2C) if b is None: swiglu (silu), geglu (gelu, gelu_tanh), reglu (relu)."""
    out = xp.empty(a.shape if b is not None else (*a.shape[:-1], a.shape[-1] // 2), a.dtype)
    a, b = _pair(xp, a, b)
    _launch_gated(_gated_forward, a, b, a, b, out, kind=kind)
    return out


def gated_backward(xp, g, a, b=None, kind="silu"):
    """Returns the gradients of a and b; one array (…, 2C) if b is None."""
    out = xp.empty(a.shape, a.dtype) if b is None else (xp.empty(a.shape, a.dtype), xp.empty(b.shape, b.dtype))
    ga, gb = _halves(out) if b is None else out
    width = a.shape[-1]  # row stride of ga and gb, which may both be halves of one array
    a, b = _pair(xp, a, b)
    _launch_gated(_gated_backward, a, b, contiguous(xp, g), a, b, ga, gb, strides=(width,), kind=kind)
    return out


# -- kernels of the ops -----------------------------------------------------------------------------------------------


def _elementwise(kind):
    """Returns the kernel of an activation without options."""

    def forward(xp, input):
        return apply(xp, input, kind)

    def vjp(g, input, xp):
        return (apply_backward(xp, g, input, kind),)

    return Kernel(accepts=is_float, forward=forward, vjp=vjp)


silu, relu_squared = _elementwise("silu"), _elementwise("relu_squared")
_GELU = {"none": "gelu", "tanh": "gelu_tanh"}


def _gelu_accepts(input, *, approximate="none"):
    return is_float(input)


def _gelu_forward(xp, input, *, approximate="none"):
    return apply(xp, input, _GELU[approximate])


def _gelu_vjp(g, input, approximate, xp):
    return (apply_backward(xp, g, input, _GELU[approximate]),)


gelu = Kernel(accepts=_gelu_accepts, forward=_gelu_forward, vjp=_gelu_vjp)


def _glu_accepts(input, other=None, *, gate):
    """Accepts floats of one dtype and shape, or one array with an even last axis."""
    if not one_dtype(input, other) or input.ndim == 0 or input.size == 0:
        return False
    return input.shape[-1] % 2 == 0 if other is None else input.shape == other.shape


def _glu_forward(xp, input, other=None, *, gate):
    return gated(xp, input, other, gate)


def _glu_vjp(g, input, other, gate, xp):
    out = gated_backward(xp, g, input, other, gate)
    return (out, None) if other is None else out


glu = Kernel(accepts=_glu_accepts, forward=_glu_forward, vjp=_glu_vjp)
