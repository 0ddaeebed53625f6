"""Adam and AdamW."""

import math

from ..backend import xp_of
from .optimizer import adam_kernel, cache_chunks, check_flags, check_range, count_step, number, zeros_for
from .together import FusedOptimizer


class Adam(FusedOptimizer):
    """Adaptive moments: steps along m / (sqrt(v) + eps), both running means corrected for their start.

    Args:
        lr: learning rate, a number or a 0-d tensor.
        betas: decay of the running means of the gradient and of its square; also `beta1=`, `beta2=`.
        weight_decay: added to the gradient as weight_decay * p (or, decoupled, taken from p directly).
        amsgrad: divide by the largest v so far. maximize: go up.
        decoupled_weight_decay: as AdamW.
        fused: True asks for the compiled kernel (and warns where it can't run), False for the plain rule, None
            for whichever is there. foreach: accepted; the result is the same.
        capturable: on a GPU with kernels, count steps in device memory, as a step that is captured into a CUDA graph does.

    Source: Kingma and Ba, 2015; amsgrad: Reddi et al., 2018.
    """

    decoupled = False

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
        beta1=None,
        beta2=None,
    ):
        betas = (betas[0] if beta1 is None else beta1, betas[1] if beta2 is None else beta2)
        check_range("learning rate", lr)
        check_range("epsilon value", eps)
        check_range("beta parameter at index 0", betas[0], 0.0, 1.0)
        check_range("beta parameter at index 1", betas[1], 0.0, 1.0)
        check_range("weight_decay value", weight_decay)
        check_flags(
            type(self).__name__, lr=lr, betas=betas, foreach=foreach, fused=fused, capturable=capturable,
            differentiable=differentiable,
        )  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
                "fused": fused, "decoupled_weight_decay": decoupled_weight_decay or self.decoupled,
            },
        )  # fmt: skip

    def update_together(self, together):
        group = together.group
        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
        for state, members in together.by_step():
            together.module.adamw(
                together.table(members, *(together.moments(name, members) for name in names)), state,
                tuple(number(b) for b in group["betas"]), group["eps"], group["weight_decay"],
                decoupled=group["decoupled_weight_decay"], amsgrad=group["amsgrad"], maximize=group["maximize"],
            )  # fmt: skip

    def update(self, p, g, state, group):
        lr, decay = number(group["lr"]), group["weight_decay"]
        betas = tuple(number(b) for b in group["betas"])
        t = count_step(state)
        arrays = [p, g, zeros_for(state, "exp_avg", p), zeros_for(state, "exp_avg_sq", p)]
        if group["amsgrad"]:
            arrays.append(zeros_for(state, "max_exp_avg_sq", p))
        shrink, pull = (1 - lr * decay, 0.0) if group["decoupled_weight_decay"] else (1.0, decay)
        step_size, root = lr / (1 - betas[0] ** t), math.sqrt(1 - betas[1] ** t)
        kernel = None if group["fused"] is False else adam_kernel(arrays, group["fused"])
        if kernel is not None:
            kernel(arrays, betas, group["eps"], shrink, pull, step_size, root)
            return
        for piece in cache_chunks(arrays):
            _step(
                xp_of(p),
                *piece,
                betas=betas,
                eps=group["eps"],
                shrink=shrink,
                pull=pull,
                step_size=step_size,
                root=root,
            )


def _step(xp, p, g, m, v, top=None, *, betas, eps, shrink, pull, step_size, root):
    """One Adam step on flat pieces, in place: shrink p, update m and v, p -= step_size * m / (sqrt(v) / root + eps)."""
    if shrink != 1.0:
        p *= shrink
    if pull:
        g = g + p * pull
    scratch = xp.multiply(g, 1 - betas[0], out=xp.empty_like(p))  # `out`, or a 0-d product would be a scalar
    m *= betas[0]
    m += scratch
    xp.multiply(g, g, out=scratch)
    scratch *= 1 - betas[1]
    v *= betas[1]
    v += scratch
    if top is not None:
        v = xp.maximum(top, v, out=top)
    xp.sqrt(v, out=scratch)
    scratch /= root
    scratch += eps
    xp.divide(m, scratch, out=scratch)
    scratch *= step_size
    p -= scratch


class AdamW(Adam):
    """Adam with decoupled weight decay: p shrinks by lr * weight_decay * p besides the Adam step.

    Source: Loshchilov and Hutter, 2019.
    """

    decoupled = True

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
        beta1=None,
        beta2=None,
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, beta1=beta1, beta2=beta2,
        )  # fmt: skip
