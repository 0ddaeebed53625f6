"""Muon, which orthogonalizes the momentum."""

import math

from ..arrays import xp_of
from ..arrays.dtypes import bfloat16
from .optimizer import Optimizer
from .options import Options, check_range, number, refuse_unless
from .state import mean_into


class Muon(Optimizer):
    """Implements Muon, which orthogonalizes the running mean of the gradients of matrices.

        b = momentum * b + (1 - momentum) * g
        d = momentum * b + (1 - momentum) * g       with nesterov; otherwise d = b
        p = p - lr * weight_decay * p
        p = p - lr * factor * orthogonalize(d)

    Orthogonalization moves all singular values close to 1. Use another optimizer, such as AdamW, for biases, embeddings
    and other parameters that are not matrices.

    Use it for the matrices inside of a transformer, and `AdamW` for embeddings, norms and the last layer. It often
    needs fewer steps than AdamW alone.

    Args:
        lr: learning rate (default: 1e-3). May be a 0-d tensor.
        weight_decay: decoupled weight decay (default: 0.1).
        momentum: decay rate of the running mean (default: 0.95).
        nesterov: if True, uses Nesterov momentum (default: True).
        ns_coefficients: coefficients of the Newton-Schulz iteration (default: (3.4445, -4.7750, 2.0315)).
        eps: smallest norm to divide by (default: 1e-7).
        ns_steps: number of Newton-Schulz iterations (default: 5).
        adjust_lr_fn: "original" or None (default): factor = sqrt(max(1, rows / columns)). "match_rms_adamw": factor =
            0.2 * sqrt(max(rows, columns)), for learning rates tuned for AdamW.

    Raises:
        ValueError: a parameter is not a matrix, or an option is out of its range.

    Source: K. Jordan et al., Muon, 2024; Liu et al., Muon is Scalable for LLM Training, 2025.

    Example:
        >>> layer = nn.Linear(4, 3)
        >>> muon, adamw = optim.Muon([layer.weight]), optim.AdamW([layer.bias])
        >>> layer(mytorch.ones(2, 4)).sum().backward()
        >>> muon.step(), adamw.step()
        (None, None)
    """

    options = Options(
        lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.7750, 2.0315), eps=1e-7,
        ns_steps=5, adjust_lr_fn=None,
    )  # fmt: skip
    complex_as_real = False

    def check_options(self, options):
        momentum, decay, adjust = options["momentum"], options["weight_decay"], options["adjust_lr_fn"]
        check_range("lr", options["lr"], "learning rate")
        refuse_unless(
            (momentum >= 0.0, f"momentum should be >= 0 but is: {momentum}"),
            (decay >= 0.0, f"weight decay should be >= 0 but is: {decay}"),
            (
                adjust in (None, "original", "match_rms_adamw"),
                f"Adjust learning rate function {adjust} is not supported",
            ),
        )
        return options

    def _begin(self, params, options):
        super()._begin(params, options)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}"
                    )

    def update(self, p, g, state, group):
        if g.ndim != 2:  # of a group that was added later
            raise ValueError("Param gradient must be a 2D matrix")
        if p.dtype.kind == "c":
            raise RuntimeError("Muon does not support complex parameters")
        lr, momentum = number(group["lr"]), group["momentum"]
        average = mean_into(state, "momentum_buffer", p, g, 1 - momentum)
        d = g + (average - g) * momentum if group["nesterov"] else average
        d = orthogonalize(d, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            factor = 0.2 * math.sqrt(max(rows, columns))
        else:
            factor = math.sqrt(max(1, rows / columns))
        p *= 1 - lr * group["weight_decay"]
        p -= d.astype(p.dtype) * (lr * factor)


def orthogonalize(g, coefficients, steps, eps):
    """Returns a raw matrix with the same singular vectors and singular values close to 1, computed in bfloat16 steps.

    Each step is X <- a X + (b A + c A A) X with A = X Xᵀ. Products are summed in float32 and rounded.

    Raises:
        ValueError: 100 steps or more, or not three coefficients.
    """
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    xp, tall = xp_of(g), g.shape[0] > g.shape[1]

    def rounded(x):
        return x.astype(bfloat16.numpy).astype("float32")

    x = rounded(g.T if tall else g)
    norm = rounded(xp.sqrt((x * x).sum()))
    x = rounded(x / xp.maximum(norm, eps))
    for _ in range(steps):
        gram = rounded(xp.matmul(x, x.T))
        x = rounded(a * x + xp.matmul(rounded(b * gram + c * xp.matmul(gram, gram)), x))
    return x.T if tall else x
