"""L-BFGS: a quasi-Newton method that remembers a few past steps."""

import math
from collections import namedtuple

from .._array import Array
from .._tensor import Tensor
from ..backend import device_guard, xp_of
from ..engine.mode import enable_grad, no_grad
from .optimizer import Optimizer
from .options import Options, number
from .state import raw_grad

_Point = namedtuple("_Point", "t loss g slope")  # along a search direction: step, loss, gradient, slope


class LBFGS(Optimizer):
    """Minimises a closure's loss with a limited-memory approximation of the inverse Hessian.

    Args:
        lr: the step along each direction (the first try, with a line search).
        max_iter, max_eval: iterations and evaluations of the closure in one `step`.
        tolerance_grad, tolerance_change: when to stop.
        history_size: how many past steps are kept.
        line_search_fn: None, or "strong_wolfe" for a line search.

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
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
    )

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
        """The gradients of all parameters, flat; complex ones as pairs."""
        parts = []
        for p in self._params:
            raw, g = p._data._array, raw_grad(p)
            xp = xp_of(raw)
            part = xp.zeros(raw.size, raw.dtype) if g is None else xp.ascontiguousarray(g).reshape(-1)
            parts.append(part.view(part.real.dtype) if part.dtype.kind == "c" else part)
        return xp_of(parts[0]).concatenate(parts)

    def _move(self, step, direction):
        start = 0
        for p in self._params:
            raw = p._data._array
            pairs = raw.dtype.kind == "c"
            size = raw.size * (2 if pairs else 1)
            change = direction[start : start + size] * step
            change = change.view(raw.dtype) if pairs else change
            raw += change.reshape(raw.shape).astype(raw.dtype)
            p._data._bump()
            start += size

    def step(self, closure):
        """Minimise for up to max_iter iterations; returns the loss before the first.

        Args:
            closure: clears the gradients, computes the loss, calls its backward and returns it.

        Raises:
            RuntimeError: a line search of another name.
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

        with no_grad(), device_guard(self._params[0]._data._array):
            first = evaluate()
            g = self._gradient()
            if _largest(g) > group["tolerance_grad"]:
                self._iterate(evaluate, float(first), g, group, state)
        return first

    def _iterate(self, evaluate, loss, g, group, state):
        lr, change = number(group["lr"]), group["tolerance_change"]
        start = state["func_evals"] - 1
        d, t, scale = _raw(state.get("d")), number(state.get("t")), number(state.get("H_diag"))
        history = _history(state)
        previous, before = _raw(state.get("prev_flat_grad")), state.get("prev_loss")
        shares = state.get("al")
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
            t = min(1.0, 1.0 / float(abs(g).sum())) * lr if state["n_iter"] == 1 else lr
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
            state["al"] = [*map(_kept, shares), *[None] * (group["history_size"] - len(shares))][
                : group["history_size"]
            ]
        state.update(
            d=_kept(d), t=t, old_dirs=[_kept(y) for y, _, _ in history], old_stps=[_kept(s) for _, s, _ in history],
            ro=[_kept(r) for _, _, r in history], H_diag=_kept(scale), prev_flat_grad=_kept(previous.copy()),
            prev_loss=before,
        )  # fmt: skip

    def _search(self, evaluate, t, d, origin, change, limit):
        """The point along d with the strong Wolfe conditions, where the parameters then are.

        First steps grow until an interval holds such a point, then cubics through its ends narrow it down.
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
    """-H g by the two-loop recursion, and the shares of the past steps that it took."""
    q, shares = -g, []
    for y, s, rho in reversed(history):
        a = (s @ q) * rho
        shares.append(a)
        q = q - y * a
    shares.reverse()
    r = q * scale
    for (y, s, rho), a in zip(history, shares, strict=True):
        r = r + s * (a - (y @ r) * rho)
    return r, shares


def _cubic(a, b, low, high):
    """Where the cubic through two points with their slopes is least, within [low, high]; Nocedal, eq. 3.59."""
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    bend = b.slope - a.slope + 2 * d2
    return min(max(b.t - (b.t - a.t) * ((b.slope + d2 - d1) / bend), low), high) if bend else (low + high) / 2.0


def _history(state):
    parts = [map(_raw, state.get(name) or ()) for name in ("old_dirs", "old_stps", "ro")]
    return list(zip(*parts, strict=True))


def _largest(x):
    return float(abs(x).max())


def _raw(value):
    value = value._data if isinstance(value, Tensor) else value
    return value._array if isinstance(value, Array) else value


def _kept(raw):
    """What the state holds: Arrays for arrays and their scalars, numbers as they are."""
    return Array(raw) if hasattr(raw, "dtype") else raw
