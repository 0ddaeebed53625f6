"""L-BFGS, a quasi-Newton method that stores a few past steps."""

import math
from collections import namedtuple

from ..arrays import device_guard, hooks, xp_of
from ..arrays.array import Array
from ..autograd.mode import enable_grad, no_grad
from .optimizer import Optimizer
from .options import Options, number
from .state import raw_grad

_Point = namedtuple("_Point", "t loss g slope")  # along a search direction: step, loss, gradient, slope


class LBFGS(Optimizer):
    """Implements L-BFGS, which minimizes a loss with an approximation of the inverse Hessian.

        d = -H * gradient
        p = p + t * d

    H is the limited-memory approximation of the inverse Hessian. The step size t is `lr`, reduced in the first
    iteration, or the result of a line search.

    Use it for small, smooth problems with the whole data set in each step, such as fitting a curve: it needs far fewer
    steps than `Adam`, and a closure.

    Args:
        lr: step size along each direction; with a line search, the first step size that it tries (default: 1).
        max_iter: maximum number of iterations per call of `step` (default: 20).
        max_eval: maximum number of evaluations of the closure per call of `step` (default: max_iter * 1.25).
        tolerance_grad: stops if no element of the gradient is larger (default: 1e-7).
        tolerance_change: stops if the change of the parameters or of the loss is smaller (default: 1e-9).
        history_size: number of past steps that are stored (default: 100).
        line_search_fn: None (default), or "strong_wolfe" for a line search.

    Raises:
        ValueError: there is more than one parameter group.

    Source: Nocedal and Wright, Numerical Optimization, 2nd ed., chapters 3 and 7; M. Schmidt, minFunc, 2005.

    Example:
        >>> p = nn.Parameter(tensor([5.0]))
        >>> optimizer = optim.LBFGS([p], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((p - 2) ** 2).sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item(), round(p.item(), 4)
        (9.0, 2.0)
    """

    options = Options(
        lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100,
        line_search_fn=None,
    )  # fmt: skip

    def check_options(self, options):
        if options["max_eval"] is None:
            options["max_eval"] = options["max_iter"] * 5 // 4
        return super().check_options(options)

    def _begin(self, params, options):
        super()._begin(params, options)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self):
        return self.param_groups[0]["params"]

    def _gradient(self):
        """Returns the gradients of all parameters as one vector. Complex gradients become pairs of real numbers."""
        parts = []
        for p in self._params:
            raw, g = p._mt_data._array, raw_grad(p)
            xp = xp_of(raw)
            part = xp.zeros(raw.size, raw.dtype) if g is None else xp.ascontiguousarray(g).reshape(-1)
            parts.append(part.view(part.real.dtype) if part.dtype.kind == "c" else part)
        return hooks.shown(Array(xp_of(parts[0]).concatenate(parts)))

    def _move(self, step, direction):
        start = 0
        for p in self._params:
            size = p.numel() * (2 if p.dtype.is_complex else 1)
            part = direction[start : start + size]
            part = part.to(p.real.dtype).view(p.dtype) if p.dtype.is_complex else part
            p.add_(part.reshape(p.shape), alpha=step)
            start += size

    def step(self, closure):
        """Minimizes the loss for up to `max_iter` iterations.

        Args:
            closure: function that clears the gradients, computes the loss, calls its backward and returns it.

        Returns:
            The loss before the first iteration.

        Raises:
            RuntimeError: `line_search_fn` is unknown.
        """
        group = self.param_groups[0]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate():
            state["func_evals"] += 1
            with enable_grad():
                return closure()

        with no_grad(), device_guard(self._params[0]._mt_data._array):
            first = evaluate()
            g = self._gradient()
            if _largest(g) > group["tolerance_grad"]:
                self._iterate(evaluate, float(first), g, group, state)
        return first

    def _iterate(self, evaluate, loss, g, group, state):
        lr, change = number(group["lr"]), group["tolerance_change"]
        start = state["func_evals"] - 1
        d, t, scale, previous, before, shares = map(
            state.get, ("d", "t", "H_diag", "prev_flat_grad", "prev_loss", "al")
        )
        history = list(zip(*[state.get(name) or () for name in ("old_dirs", "old_stps", "ro")], strict=True))
        for i in range(group["max_iter"]):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                d, scale, history = -g, 1, []
            else:
                y, s = g - previous, d * t
                if float(y @ s) > 1e-10:
                    history = [*history, (y, s, 1.0 / (y @ s))][-group["history_size"] :]
                    scale = (y @ s) / (y @ y)
                d, shares = _direction(g, history, scale)
            previous, before = g, loss
            t = min(1.0, 1.0 / abs(g).sum()) * lr if state["n_iter"] == 1 else lr
            slope = float(g @ d)
            if slope > -change:
                break
            if group["line_search_fn"] is not None:
                limit = group["max_eval"] - (state["func_evals"] - start)
                t, loss, g, _ = self._search(evaluate, t, d, _Point(0, loss, g, slope), change, limit)
            else:
                self._move(t, d)
                if i + 1 < group["max_iter"]:
                    loss, g = float(evaluate()), self._gradient()
            if state["func_evals"] - start >= group["max_eval"] or _largest(g) <= group["tolerance_grad"]:
                break
            if _largest(d * t) <= change or abs(loss - before) < change:
                break
        if shares is not None:
            state["al"] = [*shares, *[None] * (group["history_size"] - len(shares))][: group["history_size"]]
        dirs, steps, ro = ([past[i] for past in history] for i in range(3))
        state.update(
            d=d, t=t, old_dirs=dirs, old_stps=steps, ro=ro, H_diag=scale, prev_flat_grad=previous, prev_loss=before
        )

    def _search(self, evaluate, t, d, origin, change, limit):
        """Returns a point along d that satisfies the strong Wolfe conditions. The parameters are then at this point.

        The step grows until an interval contains a suitable point. Cubic interpolation through the ends then narrows the interval.
        """
        c1, c2 = 1e-4, 0.9
        at, tries = 0, 0

        def look(t):
            nonlocal at
            self._move(t - at, d)
            at = t
            loss, g = float(evaluate()), self._gradient()
            return _Point(t, loss, g, float(g @ d))

        def high(point):
            return point.loss > origin.loss + c1 * point.t * origin.slope

        last, here = origin, look(t)
        ends = None
        while tries < limit:
            if high(here) or (tries > 1 and here.loss >= last.loss) or here.slope >= 0:
                if not high(here) and abs(here.slope) <= -c2 * origin.slope:
                    return here
                ends = [last, here]
                break
            if abs(here.slope) <= -c2 * origin.slope:
                return here
            t = _cubic(last, here, here.t + 0.01 * (here.t - last.t), here.t * 10)
            last, here = here, look(t)
            tries += 1
        ends = ends or [origin, here]
        stuck, width = False, _largest(d)
        low = 0 if ends[0].loss <= ends[1].loss else 1
        while tries < limit and abs(ends[1].t - ends[0].t) * width >= change:
            left, right = sorted(p.t for p in ends)
            t, margin = _cubic(*ends, left, right), 0.1 * (right - left)
            if min(right - t, t - left) < margin:  # too near an end: move inwards, at the second time if not on it
                if stuck or t >= right or t <= left:
                    t = right - margin if abs(t - right) < abs(t - left) else left + margin
                    stuck = False
                else:
                    stuck = True
            else:
                stuck = False
            here = look(t)
            tries += 1
            if high(here) or here.loss >= ends[low].loss:
                ends[1 - low] = here
                low = 0 if ends[0].loss <= ends[1].loss else 1
                continue
            done = abs(here.slope) <= -c2 * origin.slope
            if not done and here.slope * (ends[1 - low].t - ends[low].t) >= 0:
                ends[1 - low] = ends[low]
            ends[low] = here
            if done:
                break
        self._move(ends[low].t - at, d)
        return ends[low]


def _direction(g, history, scale):
    """Returns -H g, computed by the two-loop recursion, and the coefficients of the past steps."""
    q, shares = -g, []
    for y, s, rho in reversed(history):
        a = (s @ q) * rho
        shares.append(a)
        q = q.sub(y, alpha=a)
    shares.reverse()
    r = q * scale
    for (y, s, rho), a in zip(history, shares, strict=True):
        r = r.add(s, alpha=a - (y @ r) * rho)
    return r, shares


def _cubic(a, b, low, high):
    """Returns the minimizer, within [low, high], of the cubic through two points with their slopes; Nocedal, eq. 3.59."""
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    bend = b.slope - a.slope + 2 * d2
    return min(max(b.t - (b.t - a.t) * ((b.slope + d2 - d1) / bend), low), high) if bend else (low + high) / 2.0


def _largest(x):
    return float(abs(x).max())
