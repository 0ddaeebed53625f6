"""Sizes of dynamic dimensions, and the expressions that compute other sizes from them."""

import itertools
import math
import operator
from functools import reduce


class Dim:
    """A dynamic size of an input, for `dynamic_shapes` of `export`.

    `2 * dim` and `dim + 1` describe sizes that follow from another size. `Dim.DYNAMIC` and `Dim.AUTO` are dynamic sizes without
    a name. `Dim.STATIC` is a constant size.

    Args:
        name: name of the size.
        min: smallest value (default: 0).
        max: largest value (default: no limit).

    Example:
        >>> batch = mytorch.export.Dim("batch", min=1, max=64)
        >>> batch, 8 * batch + 1
        (batch, 8*batch + 1)
    """

    AUTO, DYNAMIC, STATIC = "AUTO", "DYNAMIC", "STATIC"

    def __init__(self, name, *, min=None, max=None):
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"Dim: expected an identifier as name, got {name!r}. Use a name such as 'batch'.")
        if min is not None and max is not None and min >= max:
            raise ValueError(f"Dim: expected min < max, got min={min} and max={max}.")
        self.__name__, self.min, self.max = name, min or 0, max
        self.root, self.factor, self.offset = self, 1, 0

    def _derived(self, factor, offset):
        made = Dim(self.root.__name__)
        made.root, made.factor, made.offset = self.root, factor, offset
        return made

    def __mul__(self, number):
        _require_int(number)
        return self._derived(self.factor * number, self.offset * number)

    __rmul__ = __mul__

    def __add__(self, number):
        _require_int(number)
        return self._derived(self.factor, self.offset + number)

    __radd__ = __add__

    def __sub__(self, number):
        return self + -number

    def __repr__(self):
        text = self.root.__name__
        text = f"{self.factor}*{text}" if self.factor != 1 else text
        return f"{text} + {self.offset}" if self.offset > 0 else f"{text} - {-self.offset}" if self.offset else text

    def value(self, sizes):
        """Returns the size.

        Args:
            sizes: {Dim without a factor: size}.
        """
        return self.factor * sizes[self.root] + self.offset


def _require_int(number):
    if not isinstance(number, int) or isinstance(number, bool):
        raise NotImplementedError(
            f"Dim: expected a product or sum with an integer, got {number!r}. Use a Dim with another name for other sizes."
        )


def dims(*names, min=None, max=None):
    """Creates several dynamic sizes.

    Args:
        names: their names.
        min: smallest value of each.
        max: largest value of each.

    Example:
        >>> mytorch.export.dims("batch", "length")
        (batch, length)
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


def plan_sizes(examples):
    """Chooses the sizes of several runs, so that the values of expressions identify them.

    Args:
        examples: {Dim: size of the example}.

    Returns:
        A list of {Dim: size}, one for each run. In run i + 1, only the size of dimension i differs from run 0.
    """
    roots = list(examples)
    if not roots:
        return [{}, {}]

    def clamp(root, n):
        """Returns a size within the limits that is not 0 or 1, which broadcast."""
        low = max(root.min, 2)
        n = max(n, low)
        return n if root.max is None else min(n, root.max)

    base = {r: clamp(r, examples[r]) for r in roots}

    def other(root, step):
        """Returns another size: smaller if the example is large, since a model may have a largest size."""
        n = base[root]
        down = n - step
        if down >= max(root.min, 3):
            return down
        up = n + step
        return up if root.max is None or up <= root.max else clamp(root, n - step)

    runs = [base]
    runs += [{**base, r: other(r, 1)} for r in roots]
    runs.append({r: other(r, 2 + i % 3) for i, r in enumerate(roots)})
    runs.append({r: other(r, 1 + (i + 1) % 2 * 2) for i, r in enumerate(roots)})
    return runs


def check_sizes(runs):
    """Returns the sizes of the last checks: a combination that no run had, small sizes and a large size."""
    if not runs[0]:
        return [{}]
    seen = [tuple(r.values()) for r in runs]
    options = [sorted({r[root] for r in runs}) for root in runs[0]]
    new = [c for c in itertools.product(*options) if c not in seen][:1]
    found = [dict(zip(runs[0], c, strict=True)) for c in new]
    for n in (1, 2, 3):
        found.append(
            {root: max(n, root.min) if root.max is None else min(max(n, root.min), root.max) for root in runs[0]}
        )
    found.append({root: min(2 * n + 3, root.max or 2 * n + 3) for root, n in runs[0].items()})
    found += [{**runs[0], root: max(1, root.min)} for root in runs[0]]
    return list({tuple(c.values()): c for c in found}.values())


# -- expressions -------------------------------------------------------------------------------------------------------
# An expression is an int, a Dim (its root), a Size, or (function of the module operator, expression, expression).


class Size:
    """The size of a value of the graph along an axis."""

    def __init__(self, value, axis):
        self.value, self.axis = value, axis


def fit(values, runs, own=(), others=()):
    """Returns an expression with given values in the runs, or None.

    Args:
        values: the value in each run.
        runs: the sizes of each run; see `plan_sizes`.
        own: [(Size, its value in each run)] of the inputs of the operation.
        others: the same for all earlier values.
    """
    values = tuple(values)
    if len(set(values)) == 1:
        return values[0]
    found = _affine(values, runs)
    if found is None:
        found = _monomial(values, runs)
    if found is None:
        found = _of_sizes(values, own)
    if found is None:
        found = _mixed(values, runs)
    if found is None:
        found = _floor(values, runs)
    if found is None:
        found = next((size for size, sizes in others if sizes == values), None)
    return found


def _total(terms):
    return reduce(lambda a, b: (operator.add, a, b), terms) if terms else 0


def _product(terms):
    return reduce(lambda a, b: (operator.mul, a, b), terms) if terms else 1


def _affine(values, runs):
    """Fits c0 + c1 d1 + c2 d2 + …"""
    roots, base = list(runs[0]), runs[0]
    terms, constant = [], values[0]
    coefficients = {}
    for i, root in enumerate(roots):
        step = runs[i + 1][root] - base[root]
        change = values[i + 1] - values[0]
        if not step:
            if change:
                return None
            continue
        if change % step:
            return None
        coefficients[root] = change // step
        constant -= coefficients[root] * base[root]
    for run, value in zip(runs, values, strict=True):
        if constant + sum(c * run[r] for r, c in coefficients.items()) != value:
            return None
    for root, c in coefficients.items():
        if c:
            terms.append(root if c == 1 else (operator.mul, root, c))
    if not terms:
        return None
    if constant:
        return (operator.add, _total(terms), constant)
    return _total(terms)


def _monomial(values, runs):
    """Fits c d1^e1 d2^e2 … with exponents 0, 1 and 2."""
    roots = list(runs[0])
    if 0 in values:
        return None
    for powers in itertools.product((0, 1, 2), repeat=len(roots)):
        if not any(powers):
            continue
        sizes = [math.prod(run[r] ** e for r, e in zip(roots, powers, strict=True)) for run in runs]
        if values[0] % sizes[0] == 0 and all(
            v == values[0] // sizes[0] * s for v, s in zip(values, sizes, strict=True)
        ):
            factors = [r for r, e in zip(roots, powers, strict=True) for _ in range(e)]
            c = values[0] // sizes[0]
            return _product(factors) if c == 1 else (operator.mul, _product(factors), c)
    return None


def _of_sizes(values, own):
    """Fits a size of an input of the operation, a product of two or three, or a size plus or times a constant."""
    for size, sizes in own:
        if sizes == values:
            return size
    varying = [(s, v) for s, v in own if len(set(v)) > 1]
    for count in (2, 3, 4):
        for combination in itertools.combinations(own if count < 3 else varying, count):
            if tuple(map(math.prod, zip(*(v for _, v in combination), strict=True))) == values:
                return _product([s for s, _ in combination])
    for size, sizes in varying:
        differences = {v - s for v, s in zip(values, sizes, strict=True)}
        if len(differences) == 1:
            return (operator.add, size, differences.pop())
        if (
            0 not in sizes
            and len({(v % s, v // s) for v, s in zip(values, sizes, strict=True)}) == 1
            and values[0] % sizes[0] == 0
        ):
            return (operator.mul, size, values[0] // sizes[0])
        for divisor in (2, 3, 4, 8, 16, 32):
            if tuple(s // divisor for s in sizes) == values:
                return (operator.floordiv, size, divisor)
    return None


def _mixed(values, runs):
    """Fits a product of dimensions times an affine expression."""
    roots = list(runs[0])
    for count in (1, 2):
        for combination in itertools.combinations_with_replacement(roots, count):
            sizes = [math.prod(run[r] for r in combination) for run in runs]
            if all(v % s == 0 for v, s in zip(values, sizes, strict=True)):
                rest = _affine([v // s for v, s in zip(values, sizes, strict=True)], runs)
                if rest is not None:
                    return (operator.mul, _product(list(combination)), rest)
    return None


def _floor(values, runs):
    """Fits (d + c) // k for one dimension."""
    for root in runs[0]:
        for k in (2, 3, 4, 5, 8, 16, 32, 64):
            for c in range(-k, 2 * k):
                if all((run[root] + c) // k == v for run, v in zip(runs, values, strict=True)):
                    return (operator.floordiv, (operator.add, root, c) if c else root, k)
    return None
