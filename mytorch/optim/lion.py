"""Lion."""

from ..backend import xp_of
from .optimizer import check_flags, check_range, number, zeros_for
from .together import FusedOptimizer


class Lion(FusedOptimizer):
    """Steps of equal size in the direction of the sign of a running mean: p -= lr * sign(beta1 * m + (1 - beta1) * g).

    The learning rate should be 3 to 10 times smaller, and the weight decay as much larger, than AdamW's.

    Args:
        lr: learning rate. betas: decay of the mean in the step's direction, and of the mean that is kept.
        weight_decay: decoupled, p shrinks by lr * weight_decay * p. maximize: go up.
        foreach: accepted; the result is the same. capturable: as Adam's.
        fused: True asks for one kernel launch for all parameters on a GPU (and warns where it can't be), False for the plain
            rule, None for whichever is there.

    Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023.
    """

    def __init__(
        self,
        params,
        lr=1e-4,
        betas=(0.9, 0.99),
        weight_decay=0.0,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
        check_range("learning rate", lr)
        check_range("beta parameter at index 0", betas[0], 0.0, 1.0)
        check_range("beta parameter at index 1", betas[1], 0.0, 1.0)
        check_range("weight_decay value", weight_decay)
        check_flags(
            "Lion",
            lr=lr,
            betas=betas,
            foreach=foreach,
            fused=fused,
            capturable=capturable,
            differentiable=differentiable,
        )
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach,
                "capturable": capturable, "differentiable": differentiable, "fused": fused,
            },
        )  # fmt: skip

    def update_together(self, together):
        group = together.group
        for state, members in together.by_start(None):
            together.module.lion(
                together.table(members, together.moments("exp_avg", members)), state, group["betas"], group["weight_decay"],
                maximize=group["maximize"],
            )  # fmt: skip

    def update(self, p, g, state, group):
        xp, (beta1, beta2), lr = xp_of(p), group["betas"], number(group["lr"])
        mean = zeros_for(state, "exp_avg", p)
        way = xp.sign(mean * beta1 + g * (1 - beta1))
        if group["weight_decay"]:
            p *= 1 - lr * group["weight_decay"]
        p -= (way * lr).astype(p.dtype, copy=False)
        mean *= beta2
        mean += g * (1 - beta2)
