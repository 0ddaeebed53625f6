"""Adafactor, which stores the second moments of matrices as the product of a row and a column."""

import math

from ..arrays import xp_of
from ..arrays.dtypes import finfo, from_numpy
from .optimizer import Optimizer
from .options import Options, check_range, number, refuse_unless
from .state import count_step, kept


class Adafactor(Optimizer):
    """Implements Adafactor, which needs little memory for the second moments of matrices.

        r, c = running means of g^2 over each row and each column
        v = r * c / mean(r)
        u = g / sqrt(max(v, eps[0]^2))
        step = max(eps[1], rms(p)) * min(lr, 1 / sqrt(t))
        p = p - lr * weight_decay * p - step * u / max(1, rms(u) / d)

    For parameters with fewer than two axes, v is the running mean of g^2. In step t, the running means keep the
    fraction 1 - t^beta2_decay.

    Use it when the optimizer's state doesn't fit in memory: a matrix needs one number per row and column, not two per
    element.

    Args:
        lr: largest relative step size, and factor of the weight decay (default: 1e-2). May be a 0-d tensor.
        beta2_decay: exponent of the decay of the running means, at most 0 (default: -0.8).
        eps: smallest root mean square of the gradients, and smallest scale of a parameter (default: (None, 1e-3)). None is
            the machine epsilon of the dtype.
        d: root mean square above which an update is scaled down (default: 1.0).
        weight_decay: decoupled weight decay (default: 0.0).

    Raises:
        ValueError: an option is out of its range.
        RuntimeError: at the step, a parameter is complex.

    Source: Shazeer and Stern, 2018, with PyTorch's modifications.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.Adafactor([p], lr=0.25).step()  # the first step is lr * rms(p) * sign(gradient)
        >>> p
        tensor([0.75000], requires_grad=True)
    """

    options = Options(lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0).keyword_only(
        foreach=None, maximize=False
    )
    complex_as_real = False

    def check_options(self, options):
        lr, decay, d, weight_decay = (options[name] for name in ("lr", "beta2_decay", "d", "weight_decay"))
        check_range("lr", lr, "learning rate")
        refuse_unless(
            (decay <= 0.0, f"beta2_decay should be <= 0 but is: {decay}"),
            *(
                (e is None or e >= 0.0, f"epsilon{i} should be >= 0 but is: {e}")
                for i, e in enumerate(options["eps"], 1)
            ),
            (d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}"),
            (weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}"),
        )
        return options

    def numbers(self, group, t):
        lr = number(group["lr"])
        return lr, t ** group["beta2_decay"], min(lr, 1 / math.sqrt(t))

    def update(self, p, g, state, group):
        xp = xp_of(p)
        if p.dtype.kind == "c":
            raise RuntimeError("Adafactor does not support complex parameters")
        floor, scale = group["eps"]
        if floor is None:
            floor = finfo(from_numpy(p.dtype)).eps
        lr, fresh, step = self.at_step(group, count_step(state))
        step *= max(scale, _rms(p))
        if group["weight_decay"]:
            p *= 1 - lr * group["weight_decay"]
        squares = g * g
        if g.ndim > 1:
            row = _mean_into(xp, state, "row_var", squares, -1, fresh)
            column = _mean_into(xp, state, "col_var", squares, -2, fresh)
            v = xp.matmul(row, column) / xp.maximum(row.mean(axis=-2, keepdims=True), floor)
        else:
            v = _mean_into(xp, state, "variance", squares, None, fresh)
        update = g / xp.sqrt(xp.maximum(v, floor * floor))
        p -= (update * (step / max(1.0, _rms(update) / group["d"]))).astype(p.dtype)


def _rms(x):
    """Returns the root mean square of a raw array as a float; 0 for an empty array."""
    return math.sqrt(float((x * x).sum(dtype="float64" if x.dtype == "float64" else "float32")) / max(x.size, 1))


def _mean_into(xp, state, name, squares, axis, fresh):
    """Moves the running mean `name` by the fraction `fresh` toward the mean of squares along an axis."""
    now = squares if axis is None else squares.mean(axis=axis, keepdims=True)
    if name not in state:
        state[name] = kept(xp.zeros_like(now))
    mean = state[name]._mt_data._array
    mean += (now - mean) * fresh
    return mean
