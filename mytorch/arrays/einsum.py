"""Einstein summation over a namespace, by matrix products and elementwise products of two operands at a time."""

import functools
import itertools
import math

import numpy as np


def einsum(xp, spec, *arrays):
    """Computes an Einstein sum by matrix products and elementwise products of two operands at a time.

    Args:
        xp: namespace with matmul. spec: NumPy's notation, with "->" and without an ellipsis. arrays: one dtype.

    Returns:
        An array with the axes that follow "->".
    """
    if len(arrays) == 2 and (plan := _two(spec)) is not None:
        roles, order = plan
        array = _multiplied(xp, *arrays, roles)
        return array if order is None else xp.transpose(array, order)
    terms, output = spec.split("->")
    terms, arrays = terms.split(","), list(arrays)
    if len(arrays) > 2:
        # einsum_path needs only shapes: arrays of one element, broadcast.
        shapes = [np.broadcast_to(np.float32(0), a.shape) for a in arrays]
        order = np.einsum_path(spec, *shapes, optimize="greedy")[0][1:]
    else:
        order = [tuple(range(len(arrays)))]
    for positions in order:
        operands = [(terms[i], arrays[i]) for i in positions]
        terms, arrays = ([x for i, x in enumerate(xs) if i not in positions] for xs in (terms, arrays))
        term, array = operands.pop(0)
        while operands:
            other = operands.pop(0)
            # Letters that are still needed: in the output, or in an operand that comes later.
            keep = set(output).union(*terms, *(t for t, _ in operands))
            left = _alone(xp, term, array, keep.union(other[0]))
            term, array = _pair(xp, *left, *_alone(xp, *other, keep.union(left[0])), keep)
        terms.append(term)
        arrays.append(array)
    term, array = _alone(xp, terms[0], arrays[0], set(output))
    return xp.transpose(array, [term.index(c) for c in output])


@functools.lru_cache(1024)
def _two(spec):
    """Returns how to multiply two operands: their roles, and the order of the axes of the product or None. Returns None if an
    operand has a repeated letter, or one that occurs nowhere else."""
    terms, output = spec.split("->")
    left, right = terms.split(",")
    if any(
        len(set(term)) < len(term) or not set(term) <= {*other, *output}
        for term, other in ((left, right), (right, left))
    ):
        return None
    roles = _roles(left, right, frozenset(output))
    return roles, None if roles[0] == output else [roles[0].index(c) for c in output]


def _alone(xp, term, array, keep):
    """Returns one operand with repeated axes replaced by their diagonal, and axes that occur nowhere else summed."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            first = term.index(c)
            second = term.index(c, first + 1)
            array = xp.diagonal(array, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + c
    lone = tuple(i for i, c in enumerate(term) if c not in keep)
    if lone:
        kept = tuple(n for c, n in zip(term, array.shape, strict=True) if c in keep)
        array = xp.reshape(xp.sum(array, axis=lone, keepdims=True), kept)
        term = "".join(c for c in term if c in keep)
    return term, array


def _pair(xp, left, a, right, b, keep):
    """Returns the product of two operands, summed over the shared axes that are not in `keep`."""
    roles = _roles(left, right, frozenset(keep))
    return roles[0], _multiplied(xp, a, b, roles)


def _multiplied(xp, a, b, roles):
    """Returns the product of two operands with the roles of `_roles`."""
    _, summed, first, second, places = roles
    sizes = a.shape + b.shape
    a, b = _arranged(xp, a, *first), _arranged(xp, b, *second)
    # Without an inner axis: a broadcast product (…, rows, 1) * (…, 1, columns).
    product = xp.matmul(a, b) if summed else a * b
    shape = tuple([sizes[i] for i in places])
    return product if product.shape == shape else xp.reshape(product, shape)


@functools.lru_cache(1024)
def _roles(left, right, keep):
    """Returns how `_pair` multiplies two operands.

    These are the term of the product, whether it sums, the arguments of `_arranged` for each operand, and the positions of the sizes
    of the result in the sizes of both operands.
    """
    # Each letter is a batch axis, an inner (summed) axis, a row axis or a column axis of a matrix product.
    batch = [c for c in left if c in right and c in keep]
    inner = [c for c in left if c in right and c not in keep]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    term = "".join(batch + rows + columns)
    ones = (1,) * len(batch)
    first = tuple(left.index(c) for c in batch + rows + inner), (*ones, len(rows), len(inner))
    second = tuple(right.index(c) for c in batch + inner + columns), (*ones, len(inner), len(columns))
    return term, bool(inner), first, second, tuple((left + right).index(c) for c in term)


def _arranged(xp, array, order, counts):
    """Returns an operand with its axes in an order, and with `counts[i]` neighbors merged into axis i."""
    if order != tuple(range(len(order))):
        array = xp.transpose(array, order)
    sizes, shape = iter(array.shape), []
    for count in counts:
        shape.append(math.prod(itertools.islice(sizes, count)))
    return array if tuple(shape) == array.shape else xp.reshape(array, tuple(shape))
