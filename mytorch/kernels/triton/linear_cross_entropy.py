"""The last layer and its loss together, without ever holding all logits.

GPT-2's logits, 32 × 1024 rows of 50304, are 3.3 GB in bfloat16 and as much again for their gradient. Here rows go
through in chunks: a chunk's logits = x @ wᵀ + b, their loss, their gradient written over them at once (its scale
is known, since the mean's divisor is counted first), and from it this chunk's share of the gradients

    gx = gl @ w,    gw += glᵀ @ x,    gb += sum(gl).

So the gradients are ready when forward ends, and backward only scales them by the upstream number. Source: Liger
Kernel (Hsu et al., 2024). The products are the caller's `matmul`; the loss is cross_entropy.py's.
"""

from . import cross_entropy as ce
from .common import contiguous, is_float
from .norm import add_up


def chunk_rows(rows, width, classes):
    """How many rows go through at once: about as many bytes of logits as the inputs take, at least 1024 rows."""
    chunks = max(1, -(-classes // max(width, 1)))
    chunk = max(1024, -(-rows // chunks))
    return min(rows, -(-chunk // 64) * 64)


def forward(xp, input, weight, bias=None, *, target, class_weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean",
            softcap=None, needs=(True, True, True), matmul=None, chunk=None):  # fmt: skip
    """cross_entropy(input @ weightᵀ + bias, target) with its gradients.

    Args:
        input: (N, K). weight: (C, K). bias: (C,). target: (N,) class indices.
        class_weight, ignore_index, label_smoothing: as cross_entropy. reduction: "mean" or "sum".
        softcap: apply softcap * tanh(logits / softcap) first.
        needs: which of the gradients of input, weight and bias are wanted.
        matmul: function of two raw arrays; xp.matmul if not given. chunk: rows at once.

    Returns:
        The loss (0-d, float32), and the gradients for an upstream gradient of 1, None where not wanted.

    Raises:
        ValueError: reduction "none", whose gradients can't be known in forward.
        TypeError: dtypes that the kernels don't take.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"linear_cross_entropy: reduction must be 'mean' or 'sum', got {reduction!r}; its gradients are made in forward.")
    if not is_float(input, weight, bias, class_weight):
        raise TypeError(f"linear_cross_entropy: expected float32, float16 or bfloat16, got {input.dtype} and {weight.dtype}.")
    matmul = matmul or xp.matmul
    rows, classes = input.shape[0], weight.shape[0]
    chunk = chunk or chunk_rows(rows, input.shape[1], classes)
    target = contiguous(xp, target)
    losses = xp.empty(rows, "float32")
    one = xp.ones((), "float32")
    total = ce.count(xp, target, class_weight, ignore_index) if reduction == "mean" else one
    weight_sum = ce.weight_sum_of(xp, class_weight, classes) if label_smoothing else 0.0
    gx = xp.empty_like(input) if needs[0] else None
    gw = xp.zeros(weight.shape, "float32") if needs[1] else None
    gb = xp.zeros(classes, "float32") if bias is not None and needs[2] else None
    for start in range(0, rows, chunk):
        rest = slice(start, min(start + chunk, rows))
        x, t = input[rest], target[rest]
        logits = contiguous(xp, matmul(x, weight.T))
        if bias is not None:
            logits += bias
        slope = None
        if softcap is not None:
            slope = xp.tanh(logits / softcap)
            logits = slope * softcap
        lse = ce.rows_forward(xp, logits, t, class_weight, ignore_index, label_smoothing, weight_sum, losses[rest])
        if not any(needs):
            continue
        g = ce.rows_backward(
            xp, one, logits, t, class_weight, lse, total, ignore_index, label_smoothing, weight_sum, reduction, into=logits
        )
        if slope is not None:
            g = (g * (1 - slope * slope)).astype(logits.dtype)
        if gx is not None:
            gx[rest] = matmul(g, weight)
        if gw is not None:
            gw += matmul(g.T, x)
        if gb is not None:
            gb += add_up(xp, g, "float32")
    loss = ce.add_losses(xp, losses, total, reduction, "float32")
    return (
        loss,
        gx,
        None if gw is None else gw.astype(weight.dtype, copy=False),
        None if gb is None else gb.astype(bias.dtype, copy=False),
    )
