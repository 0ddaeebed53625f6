"""Sequences of different lengths in one batch: padded, or packed without the padding."""

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..._tensor import Tensor
from ...dispatch.unwrap import on_device_of, to_cpu
from ...ops.creation import tensor
from ...ops.movement import cat, stack

_Packed = namedtuple("_Packed", ("data", "batch_sizes", "sorted_indices", "unsorted_indices"))


class PackedSequence(_Packed):
    """The elements of a batch of sequences, step by step: data, how many sequences each step has, and their order."""

    def __new__(
        cls, data: Tensor, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> "PackedSequence":  # fmt: skip
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """The same sequences with their data on another device or as another dtype."""
        return PackedSequence(self.data.to(*args, **kwargs), *self[1:])

    def double(self) -> "PackedSequence":
        """In float64."""
        return PackedSequence(self.data.double(), *self[1:])

    def float(self) -> "PackedSequence":
        """In float32."""
        return PackedSequence(self.data.float(), *self[1:])


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The order that undoes a permutation."""
    if permutation is None:
        return None
    return on_device_of(np.argsort(to_cpu(permutation._data._array), kind="stable"), permutation)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """A padded batch (T, N, …) without its padding.

    Args:
        lengths: of each sequence. enforce_sorted: they are in descending order; else they are sorted here.

    Raises:
        RuntimeError: lengths that are not positive, or not sorted though they should be.
    """
    sizes = np.asarray(to_cpu(lengths._data._array) if isinstance(lengths, Tensor) else lengths, np.int64)
    if sizes.size == 0 or (sizes <= 0).any():
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    order = None
    x = input.transpose(0, 1) if batch_first else input
    if enforce_sorted:
        if (np.diff(sizes) > 0).any():
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability."
            )
    else:
        order = on_device_of(np.argsort(-sizes, kind="stable"), input)
        sizes = sizes[to_cpu(order._data._array)]
        x = x.index_select(1, order)
    counts = [int((sizes > t).sum()) for t in range(int(sizes[0]))]
    data = cat([x[t, :n] for t, n in enumerate(counts)], 0)
    return PackedSequence(data, tensor(counts), order)


def _padded(data, counts, total, padding_value):
    """(T, N, …) from packed data."""
    steps, start = [], 0
    rows = counts[0]
    for n in counts:
        step = data[start : start + n]
        if n < rows:
            step = cat([step, data.new_full((rows - n, *data.shape[1:]), padding_value)], 0)
        steps.append(step)
        start += n
    while len(steps) < total:
        steps.append(data.new_full((rows, *data.shape[1:]), padding_value))
    return stack(steps, 0)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """(padded batch, lengths) of packed sequences.

    Args:
        sequence: what `pack_padded_sequence` made.
        batch_first: give (B, T, …) instead of (T, B, …).
        padding_value: what to fill with.
        total_length: T, if it shall be more than the longest.
    """
    counts = sequence.batch_sizes.tolist()
    if total_length is not None and total_length < len(counts):
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(counts)}"
        )
    out = _padded(sequence.data, counts, total_length or len(counts), padding_value)
    lengths = tensor([sum(n > i for n in counts) for i in range(counts[0])])
    if sequence.unsorted_indices is not None:
        out = out.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return (out.transpose(0, 1) if batch_first else out), lengths


def repack(padded: Tensor, like: PackedSequence) -> PackedSequence:
    """A padded (T, N, …) output packed as `like`."""
    counts = like.batch_sizes.tolist()
    data = cat([padded[t, :n] for t, n in enumerate(counts)], 0)
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences of different lengths as one batch, the shorter ones padded.

    Args:
        sequences: (T_i, ...) each. batch_first: (B, T, ...) instead of (T, B, ...).
        padding_value: what fills up. padding_side: "right" or "left".
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        missing = longest - s.shape[0]
        if missing:
            fill = s.new_full((missing, *s.shape[1:]), fill_value=padding_value)
            s = cat([s, fill] if padding_side == "right" else [fill, s], 0)
        rows.append(s)
    return stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch as a list.

    Args:
        padded_sequences: (T, B, …).
        lengths: of the sequences, (B,).
        batch_first: they are (B, T, …).
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :n] for i, n in enumerate(lengths.tolist())]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """A list of sequences, packed."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, as a list."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
