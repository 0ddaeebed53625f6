"""Lion."""

from ..kernels.registry import Kernels, device_type
from .optimizer import Optimizer
from .options import Options, number
from .state import namespace_of, zeros_for

_ON_CPU = Kernels("Lion")  # none; on a GPU, `launch` runs a kernel


class Lion(Optimizer):
    """Implements Lion. All elements take steps of equal size, in the direction of the sign of a running mean.

        p = p - lr * weight_decay * p
        p = p - lr * sign(beta1 * m + (1 - beta1) * g)
        m = beta2 * m + (1 - beta2) * g

    Compared with AdamW, use a learning rate that is 3 to 10 times smaller and a weight decay that is 3 to 10 times larger.

    Use it to save memory compared with `AdamW`: it stores one buffer per parameter instead of two. Its learning rate is
    three to ten times smaller.

    Args:
        lr: learning rate (default: 1e-4). May be a 0-d tensor.
        betas: beta1 for the direction of the step, beta2 for the stored running mean (default: (0.9, 0.99)).
        weight_decay: decoupled weight decay (default: 0.0).

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
        if group.get("fused") and device_type(p) == "cpu":
            _ON_CPU.allowed("cpu", True)  # warns
        direction = xp.sign(mean * beta1 + g * (1 - beta1))
        if group["weight_decay"]:
            p *= 1 - lr * group["weight_decay"]
        p -= xp.astype(direction * lr, p.dtype)
        mean *= beta2
        mean += g * (1 - beta2)
