"""Adafactor: second moments of matrices kept as the product of a row and a column."""

import math

from .._array import Array
from ..backend import xp_of
from ..base.dtypes import finfo, from_numpy
from .optimizer import Optimizer
from .options import Options, check_range, number, refuse_unless
from .state import count_step


class Adafactor(Optimizer):
    """Divides by a root mean square that is kept, for matrices, as row and column means only.

    Args:
        lr: the largest relative step, and the factor of weight decay; a number or a 0-d tensor.
        beta2_decay: the running mean at step t forgets 1 - t**beta2_decay of what it was.
        eps: (floor of the root mean square, None for the dtype's eps; floor of a parameter's own scale).
        d: how many times its root mean square an update may exceed before it is scaled down.
        weight_decay: p shrinks by lr * weight_decay * p. maximize: go up. foreach: accepted.

    Raises:
        RuntimeError: at the step, a complex parameter.

    Source: Shazeer and Stern, 2018, in PyTorch's form.
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

    def update(self, p, g, state, group):
        xp, lr = xp_of(p), number(group["lr"])
        if p.dtype.kind == "c":
            raise RuntimeError("Adafactor does not support complex parameters")
        floor, scale = group["eps"]
        if floor is None:
            floor = finfo(from_numpy(p.dtype)).eps
        t = count_step(state)
        fresh = t ** group["beta2_decay"]
        step = max(scale, _rms(p)) * min(lr, 1 / math.sqrt(t))
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
    """The root mean square of a raw array, a float; 0 for an empty one, as its norm is."""
    return math.sqrt(float((x * x).sum(dtype="float64" if x.dtype == "float64" else "float32")) / max(x.size, 1))


def _mean_into(xp, state, name, squares, axis, fresh):
    """Move the running mean `name` by the share `fresh` towards the mean of squares along an axis."""
    now = squares if axis is None else squares.mean(axis=axis, keepdims=True)
    if name not in state:
        state[name] = Array._wrap(xp.zeros_like(now))
    kept = state[name]._array
    kept += (now - kept) * fresh
    return kept
