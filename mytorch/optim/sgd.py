"""Stochastic gradient descent."""

from .._array import Array
from ..backend import xp_of
from .optimizer import check_flags, check_range, number
from .together import FusedOptimizer


class SGD(FusedOptimizer):
    """p -= lr * d, where d is the gradient, with weight decay, and with momentum its running sum.

    Args:
        lr: learning rate. momentum: decay of the running sum. dampening: share of a new gradient left out.
        nesterov: look ahead along the momentum (needs momentum, no dampening). maximize: go up.
        foreach: accepted; the result is the same. fused: True asks for one kernel launch for all parameters on a GPU (and warns
            where it can't be), False for the plain rule, None for whichever is there.

    Source: Sutskever et al., 2013, in PyTorch's form.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        check_range("learning rate", lr)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_flags("SGD", lr=lr, foreach=foreach, fused=fused, differentiable=differentiable)
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
                "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
            },
        )  # fmt: skip

    def _state_of(self, p):
        return self.state[p] if p in self.state or self._remembers else {}

    def update_group(self, group):
        """Update one group; without momentum no parameter gets a state, as in PyTorch."""
        self._remembers = group["momentum"] != 0
        super().update_group(group)

    def update_together(self, together):
        group = together.group
        name = "momentum_buffer" if group["momentum"] else None
        for state, members in together.by_start(name):
            buffers = [together.moments(name, members)] if name else []
            together.module.sgd(
                together.table(members, *buffers), state, group["momentum"], group["dampening"], group["weight_decay"],
                nesterov=group["nesterov"], maximize=group["maximize"],
            )  # fmt: skip

    def update(self, p, g, state, group):
        momentum = group["momentum"]
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        if momentum:
            kept = state.get("momentum_buffer")
            if kept is None:
                state["momentum_buffer"] = Array._wrap(xp_of(p).array(g))
                average = g
            else:
                average = kept._array
                average *= momentum
                average += g * (1 - group["dampening"]) if group["dampening"] else g
            g = g + average * momentum if group["nesterov"] else average
        p -= g * number(group["lr"])
