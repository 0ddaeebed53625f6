"""Batches of sequences with different lengths: padded batches, and packed batches without padding."""

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...arrays.memory_format import contiguous_format
from ...arrays.tensor import Tensor
from ...ops.creation import tensor
from ...ops.dispatch.unwrap import on_device_of, to_cpu
from ...ops.movement import cat, stack

_Packed = namedtuple("_Packed", ("data", "batch_sizes", "sorted_indices", "unsorted_indices"))


class PackedSequence(_Packed):
    """A batch of sequences with different lengths, stored without padding.

    `pack_padded_sequence` and `pack_sequence` create it, and recurrent layers accept it.

    Args:
        data: elements of all sequences, ordered by step, (sum of the lengths, *).
        batch_sizes: number of sequences that reach each step.
        sorted_indices: order of the sequences in `data`, by decreasing length. `None` if they were sorted before.
        unsorted_indices: inverse permutation of `sorted_indices`.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([tensor([1.0, 2.0]), tensor([3.0])])
        >>> packed.data.tolist(), packed.batch_sizes.tolist()
        ([1.0, 3.0, 2.0], [2, 1])
    """

    def __new__(
        cls, data: Tensor, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> "PackedSequence":  # fmt: skip
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """Returns the same sequences with the data on another device or with another dtype.

        Args:
            args: arguments of `Tensor.to`.
            kwargs: keyword arguments of `Tensor.to`.
        """
        return PackedSequence(self.data.to(*args, **kwargs), *self[1:])

    def double(self) -> "PackedSequence":
        """Returns the same sequences as float64."""
        return PackedSequence(self.data.double(), *self[1:])

    def float(self) -> "PackedSequence":
        """Returns the same sequences as float32."""
        return PackedSequence(self.data.float(), *self[1:])


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Returns the inverse of a permutation, and `None` for `None`.

    Args:
        permutation: tensor of indices, or `None`.

    Example:
        >>> nn.utils.rnn.invert_permutation(tensor([2, 0, 1])).tolist()
        [1, 2, 0]
    """
    if permutation is None:
        return None
    return on_device_of(np.argsort(to_cpu(permutation._mt_data._array), kind="stable"), permutation)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs a padded batch of sequences.

    Use it when sequences in a batch differ much in length: recurrent layers then skip the padding.

    Args:
        input: padded batch, (T, N, *), or (N, T, *) if `batch_first`.
        lengths: length of each sequence.
        batch_first: if True, the shape is (N, T, *) (default: False).
        enforce_sorted: if True, the sequences must be sorted by decreasing length. Otherwise, the function sorts them
            (default: True).

    Returns:
        A `PackedSequence`.

    Raises:
        RuntimeError: a length is not positive, or the sequences are not sorted.

    Example:
        >>> batch = tensor([[1.0, 2.0], [3.0, 0.0]])
        >>> packed = nn.utils.rnn.pack_padded_sequence(batch, [2, 1], batch_first=True)
        >>> packed.data.tolist()
        [1.0, 3.0, 2.0]

    See also: `nn.utils.rnn.pad_packed_sequence`, `nn.LSTM`.
    """
    sizes = np.asarray(to_cpu(lengths._mt_data._array) if isinstance(lengths, Tensor) else lengths, np.int64)
    if sizes.size == 0 or (sizes <= 0).any():
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    order = None
    x = input.transpose(0, 1) if batch_first else input
    if sizes.max() > x.shape[0]:
        raise RuntimeError(f"pack_padded_sequence: expected lengths of at most {x.shape[0]}, got {sizes.max()}.")
    if enforce_sorted:
        if (np.diff(sizes) > 0).any():
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability."
            )
    else:
        order = on_device_of(np.argsort(-sizes, kind="stable"), input)
        sizes = sizes[to_cpu(order._mt_data._array)]
        x = x.index_select(1, order)
    # Sequences are sorted by length, so the active ones at each step are the first n.
    counts = [int((sizes > t).sum()) for t in range(int(sizes[0]))]
    data = cat([x[t, :n] for t, n in enumerate(counts)], 0)
    return PackedSequence(data, tensor(counts), order)


def _padded(data, counts, total, padding_value):
    """Returns (T, N, *) for packed data."""
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
    """Converts packed sequences to a padded batch.

    Args:
        sequence: a `PackedSequence`.
        batch_first: if True, the result has the shape (N, T, *) instead of (T, N, *) (default: False).
        total_length: length T of the result. By default, the length of the longest sequence.

    Returns:
        The tuple (padded batch, lengths).

    Raises:
        ValueError: `total_length` is smaller than the longest sequence.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([tensor([1.0, 2.0]), tensor([3.0])])
        >>> batch, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        >>> batch.tolist(), lengths.tolist()
        ([[1.0, 2.0], [3.0, 0.0]], [2, 1])

    See also: `nn.utils.rnn.pack_padded_sequence`.
    """
    counts = sequence.batch_sizes.tolist()
    if total_length is not None and total_length < len(counts):
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(counts)}"
        )
    out = _padded(sequence.data, counts, total_length or len(counts), padding_value)
    lengths = tensor([sum(n > i for n in counts) for i in range(counts[0])])
    out = out.transpose(0, 1) if batch_first else out
    if sequence.unsorted_indices is not None:
        out = out.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return out, lengths


def repack(padded: Tensor, like: PackedSequence) -> PackedSequence:
    """Packs a padded output with the lengths and the order of another packed batch.

    Args:
        padded: tensor of shape (T, N, *).
        like: the other packed batch.
    """
    counts = like.batch_sizes.tolist()
    data = cat([padded[t, :n] for t, n in enumerate(counts)], 0)
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Pads sequences of different lengths and stacks them into one batch.

    Use it in a `collate_fn` to make a batch of sequences of different lengths.

    Args:
        sequences: tensors of shape (T_i, *).
        batch_first: if True, the result has the shape (N, T, *) instead of (T, N, *) (default: False).
        padding_side: "right" or "left" (default: "right").

    Raises:
        RuntimeError: `sequences` is not iterable.

    Example:
        >>> nn.utils.rnn.pad_sequence([tensor([1, 2]), tensor([3])], batch_first=True).tolist()
        [[1, 2], [3, 0]]

    See also: `nn.utils.rnn.unpad_sequence`, `nn.utils.rnn.pack_sequence`.
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = list(sequences)  # also the rows of a tensor
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
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
    """Splits a padded batch into a list of sequences without padding.

    Args:
        padded_sequences: (T, N, *), or (N, T, *) if `batch_first`.
        lengths: length of each sequence, (N,).
        batch_first: if True, the shape is (N, T, *) (default: False).

    Raises:
        ValueError: there is another number of lengths than of sequences.

    Example:
        >>> batch = tensor([[1, 2], [3, 0]])
        >>> [s.tolist() for s in nn.utils.rnn.unpad_sequence(batch, tensor([2, 1]), batch_first=True)]
        [[1, 2], [3]]
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:n].clone(memory_format=contiguous_format) for row, n in zip(x, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences.

    Args:
        sequences: tensors of shape (T_i, *).
        enforce_sorted: if True, the sequences must be sorted by decreasing length. Otherwise, the function sorts them
            (default: True).

    Example:
        >>> nn.utils.rnn.pack_sequence([tensor([1, 2]), tensor([3])]).data.tolist()
        [1, 3, 2]
    """
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Returns the list of sequences in a `PackedSequence`.

    Args:
        packed_sequences: a `PackedSequence`.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([tensor([1, 2]), tensor([3])])
        >>> [s.tolist() for s in nn.utils.rnn.unpack_sequence(packed)]
        [[1, 2], [3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
