"""The last layer and its cross-entropy as one function. A GPU never stores all logits at once."""

from ..autograd.mode import get_mode
from ..kernels.registry import UNFIT
from .dispatch.op import op
from .dispatch.unwrap import raw_of, watched
from .linalg import _linear
from .loss import _cross_entropy, _cross_entropy_grad, check_classes, class_indices


@op(name="linear_cross_entropy", dtype="same", autocast="half", integers=("target",))
def _linear_cross_entropy(
    xp, input, linear_weight, linear_bias=None, target=None, *, weight=None, ignore_index=-100, label_smoothing=0.0,
    reduction="mean", grads=True,
):  # fmt: skip
    """Computes the loss of rows (N, in); see the function `linear_cross_entropy`. `grads`: let the kernel compute the gradients, too."""
    logits = xp.call(_linear, input, linear_weight, linear_bias)
    out = xp.call(
        _cross_entropy, logits, target, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing,
        reduction=reduction,
    )  # fmt: skip
    return xp.astype(out, "float32") if out.dtype.itemsize == 2 else out


def _linear_cross_entropy_vjp(
    g, input, linear_weight, linear_bias, target, weight, ignore_index, label_smoothing, reduction, needs, xp
):
    logits = xp.call(_linear, input, linear_weight, linear_bias)
    gl = _cross_entropy_grad(g, logits, target, weight, ignore_index, label_smoothing, reduction, xp)
    gl = xp.astype(gl, input.dtype)
    return (
        xp.matmul(gl, linear_weight) if needs[0] else None,
        xp.matmul(xp.swapaxes(gl, 0, 1), input) if needs[1] else None,
        xp.sum(gl, axis=0) if needs[2] else None,
    )


_linear_cross_entropy.vjp(_linear_cross_entropy_vjp)
_linear_cross_entropy.register_kernel(cuda="mytorch.kernels.triton.linear_cross_entropy")


def by_kernel(input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing, fused):
    """Computes the loss with the kernel of the input's device, in float32 for half precision; None if no kernel can run.

    Args:
        input: (N, in).
        linear_weight: (C, in).
        target: class indices (N,).
        linear_bias: (C,), or None.
        weight: class weights, as in `cross_entropy`.
        reduction: as in `cross_entropy`.
        ignore_index: as in `cross_entropy`.
        label_smoothing: as in `cross_entropy`.
        fused: True requires a kernel.
    """
    plain = input.ndim == 2 and tuple(target.shape) == tuple(input.shape[:1]) and not target.dtype.is_floating_point
    problem = None if plain and reduction != "none" else UNFIT
    if _linear_cross_entropy.kernels.allowed(input.device.type, fused, problem) is None:
        return None
    index = class_indices(target, "linear_cross_entropy")
    check_classes(index, linear_weight.shape[0], ignore_index, "linear_cross_entropy")
    return _linear_cross_entropy(
        input, linear_weight, linear_bias, watched(index, target), weight=raw_of(weight),
        ignore_index=ignore_index, label_smoothing=float(label_smoothing), reduction=reduction, fused=fused,
        grads=get_mode().grad and any(t is not None and t.requires_grad for t in (input, linear_weight, linear_bias)),
    )  # fmt: skip
