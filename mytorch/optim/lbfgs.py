"""L-BFGS: a quasi-Newton method that remembers a few past steps."""

import numpy as np

from ..autograd.mode import enable_grad, no_grad
from .optimizer import Optimizer, number


class LBFGS(Optimizer):
    """Minimises a closure's loss with a limited-memory approximation of the inverse Hessian.

    Args:
        max_iter, max_eval: iterations and evaluations of the closure in one `step`.
        tolerance_grad, tolerance_change: when to stop.
        history_size: how many past steps are kept.
        line_search_fn: None, or "strong_wolfe" for a line search.

    Source: Nocedal and Wright, Numerical Optimization, 2nd ed., chapters 3 and 7.
    """

    def __init__(
        self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100, line_search_fn=None
    ):
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(
            params,
            {
                "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )  # fmt: skip
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _gradient(self):
        parts = []
        for p in self.param_groups[0]["params"]:
            raw = p._data._array
            parts.append(np.zeros(raw.size, raw.dtype) if p.grad is None else np.asarray(p.grad).reshape(-1))
        return np.concatenate(parts)

    def _move(self, step, direction):
        start = 0
        for p in self.param_groups[0]["params"]:
            raw = p._data._array
            raw += (direction[start : start + raw.size] * step).reshape(raw.shape).astype(raw.dtype)
            p._data._bump()
            start += raw.size

    def step(self, closure):
        """Minimise for up to max_iter iterations; returns the loss before the first."""
        group = self.param_groups[0]
        state = self.state[group["params"][0]]

        def evaluate():
            with enable_grad():
                return closure()

        with no_grad():
            first = evaluate()
            loss, evaluations = float(first), 1
            g = self._gradient()
            if np.abs(g).max() <= group["tolerance_grad"]:
                return first
            history = state.setdefault("history", [])
            direction, previous, scale = state.get("d"), state.get("prev_flat_grad"), state.get("H_diag", 1.0)
            iterations = state.get("n_iter", 0)
            t = state.get("t", number(group["lr"]))
            for _ in range(group["max_iter"]):
                iterations += 1
                if iterations == 1:
                    direction, scale = -g, 1.0
                else:
                    y, s = g - previous, direction * t
                    if y @ s > 1e-10:
                        if len(history) == group["history_size"]:
                            history.pop(0)
                        history.append((y, s, 1.0 / (y @ s)))
                        scale = (y @ s) / (y @ y)
                    direction = self._direction(g, history, scale)
                previous = g.copy()
                lr = number(group["lr"])
                t = min(1.0, 1.0 / np.abs(g).sum()) * lr if iterations == 1 else lr
                slope = g @ direction
                if slope > -group["tolerance_change"]:
                    break
                before = loss
                if group["line_search_fn"] == "strong_wolfe":
                    t, loss, g, used = self._search(evaluate, t, direction, loss, g, slope)
                    evaluations += used
                else:
                    self._move(t, direction)
                    loss = float(evaluate())
                    g = self._gradient()
                    evaluations += 1
                if evaluations >= group["max_eval"] or np.abs(g).max() <= group["tolerance_grad"]:
                    break
                if np.abs(direction * t).max() <= group["tolerance_change"] or abs(loss - before) < group["tolerance_change"]:
                    break
            state.update(d=direction, t=t, prev_flat_grad=previous, H_diag=scale, n_iter=iterations)
        return first

    @staticmethod
    def _direction(g, history, scale):
        """The two-loop recursion."""
        q, shares = -g, []
        for y, s, rho in reversed(history):
            a = (s @ q) * rho
            shares.append(a)
            q = q - y * a
        r = q * scale
        for (y, s, rho), a in zip(history, reversed(shares), strict=True):
            r = r + s * (a - (y @ r) * rho)
        return r

    def _search(self, evaluate, t, direction, loss, g, slope, c1=1e-4, c2=0.9, limit=25):
        """A step that satisfies the strong Wolfe conditions, by bracketing and bisection of cubic estimates."""
        at = 0.0
        low, high = (0.0, loss, g, slope), None
        used = 0
        while used < limit:
            self._move(t - at, direction)
            at = t
            value = float(evaluate())
            gradient = self._gradient()
            used += 1
            rise = gradient @ direction
            here = (t, value, gradient, rise)
            if value > loss + c1 * t * slope or (value >= low[1] and low[0] > 0):
                high = here
            elif abs(rise) <= -c2 * slope:
                return t, value, gradient, used
            elif rise >= 0:
                high, low = low, here
            else:
                if high is not None and rise * (high[0] - low[0]) >= 0:
                    high = low
                low = here
            if high is None:
                t *= 2.0
                continue
            if abs(high[0] - low[0]) * np.abs(direction).max() < 1e-9:
                break
            t = 0.5 * (low[0] + high[0])
        self._move(low[0] - at, direction)
        return low[0], low[1], low[2], used
