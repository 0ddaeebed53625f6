"""SparseAdam: Adam for gradients of which most rows are absent."""

import math

import numpy as np

from ..backend import xp_of
from .optimizer import Optimizer
from .options import Options, number, refuse_unless
from .state import zeros_for


class SparseAdam(Optimizer):
    """Adam that changes moments and parameters only where a sparse gradient holds a value.

    Args:
        lr, betas, eps: as Adam's; lr and eps above 0. maximize: go up.

    Raises:
        ValueError: a complex parameter, or an option out of its range.
        RuntimeError: at the step, a dense gradient.
    """

    options = Options(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False)
    complex_as_real = False

    def check_options(self, options):
        for name, words in (("lr", "learning rate"), ("eps", "epsilon value")):
            refuse_unless((number(options[name]) != 0.0, f"Invalid {words}: {options[name]}"))
        return super().check_options(options)

    def _begin(self, params, options):
        super()._begin(params, options)
        places = [
            [i, j] for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"]) if p.is_complex()
        ]
        if places:
            raise ValueError(f"Complex params at indices {places}: SparseAdam does not support complex parameters")

    def update_group(self, group):
        """Update one group from gradients in coordinate form."""
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            if not getattr(grad, "is_sparse", False):
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            grad = grad.coalesce()
            where = tuple(np.asarray(grad.indices().detach()))
            values = grad.values().detach()._data._array
            self.update_at(p._data._array, where, -values if group["maximize"] else values, self.state[p], group)
            p._data._bump()

    def update_at(self, p, where, g, state, group):
        """One step of the raw array p at the positions `where` (an index for each sparse axis)."""
        beta1, beta2 = group["betas"]
        t = state["step"] = state.get("step", 0) + 1
        m, v = zeros_for(state, "exp_avg", p), zeros_for(state, "exp_avg_sq", p)
        m[where] += (g - m[where]) * (1 - beta1)
        v[where] += (g * g - v[where]) * (1 - beta2)
        size = number(group["lr"]) * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        p[where] -= m[where] / (xp_of(p).sqrt(v[where]) + group["eps"]) * size
