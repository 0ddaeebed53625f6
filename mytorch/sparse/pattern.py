"""Pattern: the positions of the stored elements of a sparse tensor, without their values.

A pattern never changes, so it caches everything that products and reductions derive from the positions: the order of the
rows, the transpose and the groups of duplicates. Tensors with different values share one pattern. A graph network
therefore sorts its adjacency matrix once, not in each step.
"""

import functools

import numpy as np

from ..arrays import ndarray, xp_of
from ..arrays.memory_format import layout


class _Layout(layout):
    """Kind of storage of a sparse tensor."""

    __slots__ = ()

    @property
    def name(self):
        """The name without "torch."."""
        return str.__str__(self)

    def __reduce__(self):
        return self.name  # a global of this module


sparse_coo, sparse_csr, sparse_csc = _Layout("sparse_coo"), _Layout("sparse_csr"), _Layout("sparse_csc")
COMPRESSED = {sparse_csr: ("crow", "col"), sparse_csc: ("ccol", "row")}
LAYOUTS = (sparse_coo, *COMPRESSED)


def expand_pointers(pointers):
    """Returns the row of each element from the pointers to the first element of each row."""
    count = int(pointers[-1])
    if isinstance(pointers, ndarray):
        return np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    xp = xp_of(pointers)
    return xp.searchsorted(pointers, xp.arange(count), side="right") - 1


def stacked_pointers(pointers):
    """Returns the pointers of a batch of matrices as the pointers of one matrix, in which the matrices follow each other."""
    if pointers.ndim == 1:
        return pointers
    xp = xp_of(pointers)
    pointers = pointers.reshape(-1, pointers.shape[-1]).astype(np.int64)
    counts = xp.diff(pointers).reshape(-1)
    return xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts)])


def pointers_of(sorted_rows, count):
    """Returns the pointers to the first element of each of `count` rows."""
    xp = xp_of(sorted_rows)
    return xp.searchsorted(sorted_rows, xp.arange(count + 1)).astype(np.int64)


class Groups:
    """A partition of elements. `segment_sum` adds the elements of each group.

    Attributes:
        order: the elements, sorted by group; None if they are sorted.
        starts: position in `order` at which each group begins.
        inverse: the group of each element.
    """

    __slots__ = ("inverse", "order", "starts")

    def __init__(self, keys):
        """Groups elements with equal keys. The groups have the order of the keys."""
        xp = xp_of(keys)
        rises = bool((keys[1:] >= keys[:-1]).all())
        self.order = None if rises else xp.argsort(keys, kind="stable")
        keys = keys if rises else keys[self.order]
        begins = xp.ones(len(keys), bool)
        begins[1:] = keys[1:] != keys[:-1]
        self.starts = xp.flatnonzero(begins)
        group = xp.cumsum(begins) - 1
        if rises:
            self.inverse = group
        else:
            self.inverse = xp.empty(len(keys), np.int64)
            self.inverse[self.order] = group

    @property
    def first(self):
        """One element of each group."""
        return self.starts if self.order is None else self.order[self.starts]


class Pattern:
    """The positions of the stored elements.

    Attributes:
        layout: `sparse_coo`, `sparse_csr` or `sparse_csc`.
        sizes: sizes of the sparse dimensions.
        indices: for COO, an int64 array (sparse dimensions, elements).
        pointers: for compressed layouts, the position at which each row (of CSR) or column (of CSC) begins, (*batch, rows + 1).
        inner: for compressed layouts, the column (of CSR) or row (of CSC) of each element, (*batch, elements of a matrix).
        coalesced: the positions are sorted and distinct.
    """

    def __init__(self, layout, sizes, indices=None, pointers=None, inner=None, coalesced=False):
        self.layout = layout
        self.sizes = tuple(sizes)
        self.pointers, self.inner = pointers, inner
        self.coalesced = coalesced or layout is not sparse_coo
        if indices is not None:
            self.indices = indices

    @functools.cached_property
    def indices(self):
        """The index of each element in each sparse dimension, also for compressed layouts."""
        outer, inner = expand_pointers(stacked_pointers(self.pointers)), self.inner.reshape(-1)
        rows = []
        for size in (*self.batch, self.pointers.shape[-1] - 1)[::-1]:
            rows.insert(0, outer % max(size, 1))
            outer = outer // max(size, 1)
        rows.insert(len(rows) if self.layout is sparse_csr else -1, inner)
        return xp_of(self.pointers).stack([i.astype(np.int64) for i in rows])

    @property
    def batch(self):
        """The sizes before the two sizes of the matrices of a compressed layout."""
        return self.sizes[:-2] if self.layout in COMPRESSED else ()

    @property
    def count(self):
        """The number of stored elements."""
        return int(self.inner.size) if self.layout in COMPRESSED else self.indices.shape[1]

    @property
    def dims(self):
        """The number of sparse dimensions."""
        return len(self.sizes)

    @functools.cached_property
    def linear(self):
        """The position of each element in row-major order of the sparse dimensions."""
        xp = xp_of(self.indices)
        linear = xp.zeros(self.count, np.int64)
        for i, size in enumerate(self.sizes):
            linear = linear * size + self.indices[i]
        return linear

    @functools.cached_property
    def groups(self):
        """The groups of elements with equal positions."""
        return Groups(self.linear)

    @functools.cached_property
    def merged(self):
        """The pattern with sorted and distinct positions."""
        if self.coalesced:
            return self
        return Pattern(self.layout, self.sizes, self.indices[:, self.groups.first], coalesced=True)

    @functools.cached_property
    def in_row_order(self):
        """A matrix in CSR format: (pointers, columns, order of the elements or None)."""
        if self.layout is sparse_csr:
            return self.pointers, self.inner, None
        rows, columns = self.indices
        if bool((rows[1:] >= rows[:-1]).all()):
            return pointers_of(rows, self.sizes[0]), columns, None
        order = xp_of(rows).argsort(rows, kind="stable")
        return pointers_of(rows[order], self.sizes[0]), columns[order], order

    @functools.cached_property
    def transposed(self):
        """The pattern of the transposed matrix, with the elements in the same order."""
        if self.layout in COMPRESSED:
            other = sparse_csc if self.layout is sparse_csr else sparse_csr
            sizes = (*self.batch, *self.sizes[:-3:-1])
            result = Pattern(other, sizes, pointers=self.pointers, inner=self.inner)
        else:
            result = Pattern(sparse_coo, self.sizes[::-1], self.indices[::-1])
        result.__dict__["transposed"] = self
        return result

    @functools.cached_property
    def sorted_rows(self):
        """True if the row of each element is not smaller than the row of the element before."""
        rows = self.indices[0]
        return bool((rows[1:] >= rows[:-1]).all())

    def as_coo(self):
        """Returns this pattern in COO layout, with the elements in the same order."""
        if self.layout is sparse_coo:
            return self
        return self._as_coo

    @functools.cached_property
    def _as_coo(self):
        linear = self.linear
        rising = bool((linear[1:] > linear[:-1]).all())
        return Pattern(sparse_coo, self.sizes, self.indices, coalesced=rising)

    def equals(self, other):
        """Returns True if another pattern has the same positions in the same order."""
        if self is other:
            return True
        if self.sizes != other.sizes or self.count != other.count:
            return False
        return bool((self.indices == other.indices).all())
