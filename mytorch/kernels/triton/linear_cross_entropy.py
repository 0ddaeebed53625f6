"""The last linear layer and its cross-entropy together, without storing all logits.

GPT-2's logits, 32 × 1024 rows of 50304, take 3.3 GB in bfloat16, and their gradient the same. Here the rows are processed in
chunks: compute the chunk's logits = x @ wᵀ + b and their loss, overwrite the logits with their gradient gl, and add
the chunk's share of the gradients

    gx = gl @ w,    gw += glᵀ @ x,    gb += sum(gl).

So the gradients are complete when forward ends. Backward only scales them by the upstream gradient over the divisor of the mean.
Source: Liger Kernel (Hsu et al., 2024). The products use cuBLAS; loss, grid and accumulation are the same as in cross_entropy.py.
"""

import triton
import triton.language as tl

from ..launch import cdiv, launch, mode_for, tuned
from . import cross_entropy as ce
from .common import contiguous, is_float, one_dtype
from .norm import add_up

MOST_BYTES = 1 << 30  # bytes of logits at a time; each chunk costs a pass over the weight's gradient


def chunk_rows(rows, classes, itemsize, most_bytes=MOST_BYTES):
    """Returns the rows per chunk: chunks of about equal size, each with at most `most_bytes` or 1024 rows."""
    most = max(1024, most_bytes // max(classes * itemsize, 1))
    chunks = cdiv(rows, most)
    # A multiple of 64 rows, so that the products have whole tiles.
    return max(1, min(rows, cdiv(cdiv(rows, max(chunks, 1)), 64) * 64))


def chosen_chunk(rows, classes, width, dtype, attempt):
    """Returns the rows per chunk: chunks of MOST_BYTES, or twice as large if TRITON_AUTOTUNE_MODE finds this faster.

    Larger chunks fill the GPU's last wave of tiles better, and add to the weight's gradient half as often.

    Args:
        attempt: function of a number of rows that does all the work with chunks of this size.
    """
    small, large = (chunk_rows(rows, classes, dtype.itemsize, most) for most in (MOST_BYTES, 2 * MOST_BYTES))
    if small == large or mode_for() == "none":
        return small
    candidates = {"none": [{"chunk": small}], "medium": [{"chunk": large}]}
    key = ("chunk", dtype.name, rows, classes, width)
    return tuned(_scale, key, candidates, lambda candidate: attempt(candidate["chunk"]))["chunk"]


def run(xp, input, weight, bias=None, *, target, class_weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean",
        softcap=None, needs=(True, True, True), chunk=None):  # fmt: skip
    """Returns cross_entropy(input @ weightᵀ + bias, target) and its gradients.

    Args:
        input: (N, K). weight: (C, K). bias: (C,). target: (N,) class indices.
        class_weight, ignore_index, label_smoothing: as cross_entropy. reduction: "mean" or "sum".
        softcap: apply softcap * tanh(logits / softcap) first.
        needs: flags for the gradients of input, weight and bias.
        chunk: rows per chunk.

    Returns:
        The loss (0-d, float32), its divisor (0-d, float32), and the gradients of the **sum** of the losses, None where not
        needed. In float16, gradients of the mean would underflow. The gradient of weight is float32.

    Raises:
        ValueError: reduction "none": forward cannot compute its gradients.
        TypeError: dtypes that the kernels do not support.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"linear_cross_entropy: reduction must be 'mean' or 'sum', got {reduction!r}; its gradients are made in forward."
        )
    if not is_float(input, weight, bias, class_weight):
        raise TypeError(
            f"linear_cross_entropy: expected float32, float16 or bfloat16, got {input.dtype} and {weight.dtype}."
        )
    rows, classes = input.shape[0], weight.shape[0]
    if chunk is None:
        options = {"target": target, "class_weight": class_weight, "ignore_index": ignore_index, "needs": needs,
                   "label_smoothing": label_smoothing, "reduction": reduction, "softcap": softcap}  # fmt: skip
        chunk = chosen_chunk(
            rows, classes, input.shape[1], input.dtype, lambda n: run(xp, input, weight, bias, **options, chunk=n)
        )
    target = contiguous(xp, target)
    class_weight = contiguous(xp, class_weight)
    losses = xp.empty(rows, "float32")
    total = ce.count(xp, target, class_weight, ignore_index) if reduction == "mean" else xp.ones((), "float32")
    weight_sum = ce.weight_sum_of(xp, class_weight, classes) if label_smoothing else 0.0
    buffer = xp.empty((chunk, classes), input.dtype)  # one buffer, reused for the logits of every chunk
    gx = xp.empty(input.shape, input.dtype) if needs[0] else None
    gw = xp.empty(weight.shape, "float32") if needs[1] else None
    gb = xp.zeros(classes, "float32") if bias is not None and needs[2] else None
    for start in range(0, rows, chunk):
        part = slice(start, min(start + chunk, rows))
        x, t = input[part], target[part]
        logits = xp.matmul(x, weight.T, out=buffer[: x.shape[0]])
        if bias is not None:
            logits += bias
        tanh = None
        if softcap is not None:
            tanh = xp.tanh(logits / softcap)
            logits = tanh * softcap
        # No gradient is needed: compute only the losses.
        if not any(needs):
            ce.rows_forward(xp, logits, t, class_weight, ignore_index, label_smoothing, weight_sum, losses[part])
            continue
        ce.rows_both(xp, logits, t, class_weight, ignore_index, label_smoothing, weight_sum, losses[part])
        # `rows_both` has overwritten the logits with their gradient.
        g = logits
        if tanh is not None:
            # d/dx softcap tanh(x / softcap) = 1 - tanh².
            g = (g * (1 - tanh * tanh)).astype(logits.dtype)
        if gx is not None:
            xp.matmul(g, weight, out=gx[part])
        # The first chunk writes the weight's gradient, the others add to it in float32.
        if gw is not None and start:
            xp.add_matmul(gw, g.T, x)
        elif gw is not None:
            xp.matmul(g.T, x, out=gw)
        if gb is not None:
            gb += add_up(xp, g, "float32")
    return ce.add_losses(xp, losses, total, reduction, "float32"), total, gx, gw, gb


# -- kernel of the op -------------------------------------------------------------------------------------------------

residuals = ("total", "gx", "gw", "gb")


def accepts(input, linear_weight, linear_bias=None, target=None, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean",
            grads=True):  # fmt: skip
    """Accepts floats of one dtype, and the reductions mean and sum. For these, forward can compute the gradients."""
    return one_dtype(input, linear_weight, linear_bias) and is_float(weight) and reduction != "none" and input.size > 0


def forward(xp, input, linear_weight, linear_bias=None, target=None, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean",
            grads=True):  # fmt: skip
    """Returns the loss, and the gradients of the sum of the losses."""
    return run(
        xp, input, linear_weight, linear_bias, target=target, class_weight=weight, ignore_index=ignore_index,
        label_smoothing=label_smoothing, reduction=reduction, needs=(grads,) * 3,
    )  # fmt: skip


def vjp(g, total, gx, gw, gb, needs, xp):
    """Returns the saved gradients times g / total."""
    scale = xp.asarray(g.astype("float32") / total)
    return tuple(
        scaled(xp, saved, scale) if needed else None for saved, needed in zip((gx, gw, gb), needs[:3], strict=True)
    )


@triton.jit
def _scale(x_ptr, scale_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """Multiplies BLOCK of `count` elements by scale_ptr (1,)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count, other=0.0).to(tl.float32)
    tl.store(out_ptr + index, (x * tl.load(scale_ptr)).to(out_ptr.dtype.element_ty), mask=index < count)


def scaled(xp, x, scale):
    """Returns x times a 0-d float32 array, multiplied in float32."""
    out = xp.empty_like(x)
    launch(_scale, (cdiv(x.size, 1024),), x, scale, out, x.size, BLOCK=1024, num_warps=4)
    return out
