"""The last layer and its loss together, without ever holding all logits.

GPT-2's logits, 32 × 1024 rows of 50304, are 3.3 GB in bfloat16 and as much again for their gradient. Here rows go
through in chunks: a chunk's logits = x @ wᵀ + b, their loss, their gradient written over them at once, and from it this
chunk's share of the gradients

    gx = gl @ w,    gw += glᵀ @ x,    gb += sum(gl).

So the gradients are ready when forward ends, and backward only scales them by the upstream number over the mean's divisor. Source: Liger
Kernel (Hsu et al., 2024). The products are cuBLAS's; the loss, its grid and its accumulation are cross_entropy.py's.
"""

import triton
import triton.language as tl

from ..launch import cdiv, launch, mode_for, tuned
from . import cross_entropy as ce
from .common import contiguous, is_float, one_dtype
from .norm import add_up

MOST_BYTES = 1 << 30  # of logits at a time; each chunk costs a pass over the weight's gradient


def chunk_rows(rows, classes, itemsize, most_bytes=MOST_BYTES):
    """How many rows go through at once: chunks of about one size, each of at most `most_bytes` or 1024 rows."""
    most = max(1024, most_bytes // max(classes * itemsize, 1))
    chunks = cdiv(rows, most)
    return max(1, min(rows, cdiv(cdiv(rows, max(chunks, 1)), 64) * 64))


def chosen_chunk(rows, classes, width, dtype, attempt):
    """How many rows go through at once: chunks of MOST_BYTES, or with TRITON_AUTOTUNE_MODE of twice that where it is quicker:
    they fill the card's last wave of tiles better, and add to the weight's gradient half as often.

    Args:
        attempt: called with a number of rows; does all the work with chunks of that size.
    """
    small, large = (chunk_rows(rows, classes, dtype.itemsize, most) for most in (MOST_BYTES, 2 * MOST_BYTES))
    if small == large or mode_for() == "none":
        return small
    candidates = {"none": [{"chunk": small}], "medium": [{"chunk": large}]}
    key = ("chunk", dtype.name, rows, classes, width)
    return tuned(_scale, key, candidates, lambda candidate: attempt(candidate["chunk"]))["chunk"]


def run(xp, input, weight, bias=None, *, target, class_weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean",
        softcap=None, needs=(True, True, True), chunk=None):  # fmt: skip
    """cross_entropy(input @ weightᵀ + bias, target) with its gradients.

    Args:
        input: (N, K). weight: (C, K). bias: (C,). target: (N,) class indices.
        class_weight, ignore_index, label_smoothing: as cross_entropy. reduction: "mean" or "sum".
        softcap: apply softcap * tanh(logits / softcap) first.
        needs: which of the gradients of input, weight and bias are wanted.
        chunk: rows at once.

    Returns:
        The loss (0-d, float32); what it was divided by (0-d, float32); and the gradients of the **sum** of the losses,
        None where not wanted: in float16 those of the mean would vanish. That of weight is float32.

    Raises:
        ValueError: reduction "none", whose gradients can't be known in forward.
        TypeError: dtypes that the kernels don't take.
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
    store = xp.empty((chunk, classes), input.dtype)  # of every chunk's logits in turn
    gx = xp.empty(input.shape, input.dtype) if needs[0] else None
    gw = xp.empty(weight.shape, "float32") if needs[1] else None
    gb = xp.zeros(classes, "float32") if bias is not None and needs[2] else None
    for start in range(0, rows, chunk):
        here = slice(start, min(start + chunk, rows))
        x, t = input[here], target[here]
        logits = xp.matmul(x, weight.T, out=store[: x.shape[0]])
        if bias is not None:
            logits += bias
        slope = None
        if softcap is not None:
            slope = xp.tanh(logits / softcap)
            logits = slope * softcap
        if not any(needs):
            ce.rows_forward(xp, logits, t, class_weight, ignore_index, label_smoothing, weight_sum, losses[here])
            continue
        ce.rows_both(xp, logits, t, class_weight, ignore_index, label_smoothing, weight_sum, losses[here])
        g = logits
        if slope is not None:
            g = (g * (1 - slope * slope)).astype(logits.dtype)
        if gx is not None:
            xp.matmul(g, weight, out=gx[here])
        if gw is not None and start:
            xp.add_matmul(gw, g.T, x)
        elif gw is not None:
            xp.matmul(g.T, x, out=gw)
        if gb is not None:
            gb += add_up(xp, g, "float32")
    return ce.add_losses(xp, losses, total, reduction, "float32"), total, gx, gw, gb


# -- as a kernel of the op --------------------------------------------------------------------------------------------

residuals = ("total", "gx", "gw", "gb")


def accepts(input, linear_weight, linear_bias=None, target=None, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean",
            grads=True):  # fmt: skip
    """Floats of one dtype; a mean or a sum, whose gradients forward can make."""
    return one_dtype(input, linear_weight, linear_bias) and is_float(weight) and reduction != "none" and input.size > 0


def forward(xp, input, linear_weight, linear_bias=None, target=None, *, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean",
            grads=True):  # fmt: skip
    """The loss, with the gradients of the sum of the losses."""
    return run(
        xp, input, linear_weight, linear_bias, target=target, class_weight=weight, ignore_index=ignore_index,
        label_smoothing=label_smoothing, reduction=reduction, needs=(grads,) * 3,
    )  # fmt: skip


def vjp(g, total, gx, gw, gb, needs, xp):
    """The gradients kept, times g / total."""
    scale = xp.asarray(g.astype("float32") / total)
    return tuple(scaled(xp, kept, scale) if wanted else None for kept, wanted in zip((gx, gw, gb), needs, strict=True))


@triton.jit
def _scale(x_ptr, scale_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """BLOCK of `count` elements times scale_ptr (1,)."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < count, other=0.0).to(tl.float32)
    tl.store(out_ptr + place, (x * tl.load(scale_ptr)).to(out_ptr.dtype.element_ty), mask=place < count)


def scaled(xp, x, scale):
    """x times a 0-d float32 array, in float32 on the way."""
    out = xp.empty_like(x)
    launch(_scale, (cdiv(x.size, 1024),), x, scale, out, x.size, BLOCK=1024, num_warps=4)
    return out
