"""The last layer and its cross-entropy as one function: on a GPU the logits are never all there at once."""

from .. import config
from ..autograd.mode import get_mode
from ..backend import is_raw
from .bind import public
from .core import op
from .linalg import _linear
from .loss import _cross_entropy, _cross_entropy_grad, check_reduction, class_indices, cross_entropy, raw_of


@op(name="linear_cross_entropy", dtype="same", autocast="half")
def _linear_cross_entropy(
    xp, input, linear_weight, linear_bias=None, *, target, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean",
    grads=True,
):  # fmt: skip
    """The loss of rows (N, in); see the function of this name. `grads`: whether a kernel should make the gradients too."""
    logits = xp.call(_linear, input, linear_weight, linear_bias)
    out = xp.call(
        _cross_entropy, logits, target=target, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing,
        reduction=reduction,
    )  # fmt: skip
    return xp.astype(out, "float32") if out.dtype.itemsize == 2 else out


def _linear_cross_entropy_vjp(
    g, input, linear_weight, linear_bias, target, weight, ignore_index, label_smoothing, reduction, needs, xp
):
    logits = xp.call(_linear, input, linear_weight, linear_bias)
    options = (weight, ignore_index, label_smoothing, reduction)
    kept = target != ignore_index
    index = target * kept
    rows = kept.astype("float32") if weight is None else weight.astype("float32")[index] * kept
    total = rows.sum() if reduction == "mean" else 1.0
    gl = _cross_entropy_grad(g, logits, target, *options, xp.asarray(rows) if is_raw(rows) else rows, total, xp)
    gl = xp.astype(gl, input.dtype)
    return (
        xp.matmul(gl, linear_weight) if needs[0] else None,
        xp.matmul(xp.swapaxes(gl, 0, 1), input) if needs[1] else None,
        xp.sum(gl, axis=0) if needs[2] else None,
    )


_linear_cross_entropy.vjp(_linear_cross_entropy_vjp)
_linear_cross_entropy.fuse(cuda="mytorch.kernels.triton.linear_cross_entropy")


@public(method=False, function=False)
def linear_cross_entropy(
    input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None, label_smoothing=0.0, fused=None
):
    """cross_entropy(linear(input, linear_weight, linear_bias), target), with less memory where a kernel can do it.

    Args:
        input: (…, in). linear_weight: (C, in). linear_bias: (C,).
        target: class indices (…), or probabilities of the logits' shape.
        weight, reduction, label_smoothing: as cross_entropy. ignore_index: -100 if not given.

    Returns:
        The loss; in float32 where the kernel computes it from half precision.

    Raises:
        ValueError: shapes that don't fit, a reduction that is not known.
    """
    check_reduction(reduction)
    ignore_index = -100 if ignore_index is None else ignore_index
    asked = config.fused_policy.get() if fused is None else fused
    kernel = _linear_cross_entropy.kernels.get(input.device.type)
    rows = input.ndim > 1 and tuple(target.shape) == tuple(input.shape[:-1]) and not target.dtype.is_floating_point
    if kernel is None or asked is False or not rows or reduction == "none" or kernel.ready() is None:
        logits = _linear(input, linear_weight, fused=fused) if linear_bias is None else _linear(input, linear_weight, linear_bias, fused=fused)
        options = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
        return cross_entropy(logits, target, fused=fused, **options)
    if input.shape[-1] != linear_weight.shape[-1]:
        raise ValueError(f"linear_cross_entropy: input {tuple(input.shape)} doesn't fit linear_weight {tuple(linear_weight.shape)}.")
    return _linear_cross_entropy(
        input.reshape(-1, input.shape[-1]), linear_weight, linear_bias,
        target=class_indices(target, "linear_cross_entropy").reshape(-1), weight=raw_of(weight), ignore_index=ignore_index,
        label_smoothing=float(label_smoothing), reduction=reduction, fused=fused,
        grads=get_mode().grad and any(t is not None and t.requires_grad for t in (input, linear_weight, linear_bias)),
    )  # fmt: skip
