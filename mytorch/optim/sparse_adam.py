"""SparseAdam, which is Adam for sparse gradients."""

import math

import numpy as np

from ..arrays import xp_of
from .optimizer import Optimizer
from .options import Options, number, refuse_unless
from .state import zeros_for


class SparseAdam(Optimizer):
    """Implements Adam for sparse gradients. Only the rows that have a gradient are updated.

        m[i] = beta1 * m[i] + (1 - beta1) * g[i]
        v[i] = beta2 * v[i] + (1 - beta2) * g[i]^2
        p[i] = p[i] - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m[i] / (sqrt(v[i]) + eps)

    Use it for large embeddings, where a dense optimizer would change every row in every step. `nn.Embedding` and
    `nn.EmbeddingBag` compute sparse gradients with `sparse=True`.

    Args:
        lr: learning rate, greater than 0 (default: 1e-3). May be a 0-d tensor.
        betas: decay rates beta1 and beta2 of the running means (default: (0.9, 0.999)).
        eps: added to the denominator, greater than 0 (default: 1e-8).

    Raises:
        ValueError: a parameter is complex, or an option is out of its range.
        RuntimeError: at the step, a gradient is dense.

    Example:
        >>> words = nn.Embedding(1000, 2, sparse=True)
        >>> before = words.weight.clone()
        >>> words(tensor([3, 7])).sum().backward()
        >>> optim.SparseAdam(words.parameters()).step()
        >>> (words.weight != before).any(dim=1).nonzero().flatten()
        tensor([3 7])
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
        """Updates one group from gradients in coordinate format.

        Args:
            group: the parameter group.

        Raises:
            RuntimeError: a gradient is dense.
        """
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            if not getattr(grad, "is_sparse", False):
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            grad = grad.coalesce()
            where = tuple(np.asarray(grad.indices().detach()))
            values = grad.values().detach()._mt_data._array
            self.update_at(p._mt_data._array, where, -values if group["maximize"] else values, self.state[p], group)
            p._mt_data._bump()

    def update_at(self, p, where, g, state, group):
        """Runs one step on some positions of a raw array.

        Args:
            p: raw array of the parameter.
            where: indices of the positions, one array for each sparse axis.
            g: values of the gradient at these positions.
            state: state of the parameter.
            group: the parameter group.
        """
        beta1, beta2 = group["betas"]
        t = state["step"] = state.get("step", 0) + 1
        m, v = zeros_for(state, "exp_avg", p), zeros_for(state, "exp_avg_sq", p)
        m[where] += (g - m[where]) * (1 - beta1)
        v[where] += (g * g - v[where]) * (1 - beta2)
        size = number(group["lr"]) * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        p[where] -= m[where] / (xp_of(p).sqrt(v[where]) + group["eps"]) * size
