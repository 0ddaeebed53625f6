"""Lion."""

from .optimizer import Optimizer
from .options import Options, number
from .state import namespace_of, zeros_for


class Lion(Optimizer):
    """Steps of equal size in the direction of the sign of a running mean: p -= lr * sign(beta1 * m + (1 - beta1) * g).

    The learning rate should be 3 to 10 times smaller, and the weight decay as much larger, than AdamW's.

    Args:
        lr: learning rate. betas: decay of the mean in the step's direction, and of the mean that is kept.
        weight_decay: decoupled, p shrinks by lr * weight_decay * p. maximize: go up.
        foreach, fused: as SGD's. capturable: as Adam's.

    Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023.

    Example:
        >>> p = nn.Parameter(tensor([1.0, 1.0]))
        >>> (tensor([9.0, -0.1]) * p).sum().backward()
        >>> optim.Lion([p], lr=0.5).step()
        >>> p.tolist()
        [0.5, 1.5]
    """

    options = Options(lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0).keyword_only(
        maximize=False, foreach=None, capturable=False, differentiable=False, fused=None
    )

    def launch(self, fused):
        group = fused.group
        for state, members in fused.by_start(None):
            table = fused.table(members, fused.moments("exp_avg", members))
            fused.kernels.lion(table, state, group["betas"], group["weight_decay"], maximize=group["maximize"])

    def update(self, p, g, state, group):
        xp, (beta1, beta2), lr = namespace_of(p), group["betas"], number(group["lr"])
        mean = zeros_for(state, "exp_avg", p)
        direction = xp.sign(mean * beta1 + g * (1 - beta1))
        if group["weight_decay"]:
            p *= 1 - lr * group["weight_decay"]
        p -= xp.astype(direction * lr, p.dtype)
        mean *= beta2
        mean += g * (1 - beta2)
