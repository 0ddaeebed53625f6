"""Einstein summation over a namespace, by matrix products and elementwise products of two operands at a time."""

import numpy as np


def einsum(xp, spec, *arrays):
    """Computes an Einstein sum by matrix products and elementwise products of two operands at a time.

    Args:
        xp: namespace with matmul. spec: NumPy's notation, with "->" and without an ellipsis. arrays: one dtype.

    Returns:
        An array with the axes that follow "->".
    """
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
    # Each letter is a batch axis, an inner (summed) axis, a row axis or a column axis of a matrix product.
    batch = [c for c in left if c in right and c in keep]
    inner = [c for c in left if c in right and c not in keep]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    size = dict(zip(left + right, a.shape + b.shape, strict=True))
    term = "".join(batch + rows + columns)
    a = _arranged(xp, left, a, batch, rows, inner)
    b = _arranged(xp, right, b, batch, inner, columns)
    # Without an inner axis: a broadcast product (…, rows, 1) * (…, 1, columns).
    product = xp.matmul(a, b) if inner else a * b
    return term, xp.reshape(product, tuple(size[c] for c in term))


def _arranged(xp, term, array, batch, rows, columns):
    """Returns an operand as (*batch, rows, columns), with rows and columns merged into one axis each."""
    groups = [[c] for c in batch] + [rows, columns]
    array = xp.transpose(array, [term.index(c) for group in groups for c in group])
    size = dict(zip((c for group in groups for c in group), array.shape, strict=True))
    shape = [1] * len(groups)
    for i, group in enumerate(groups):
        for c in group:
            shape[i] *= size[c]
    return array if tuple(shape) == array.shape else xp.reshape(array, tuple(shape))
