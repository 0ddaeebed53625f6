"""Attention with functions that change or mask the scores, as in `torch.nn.attention.flex_attention`.

`flex_attention` computes scaled dot product attention. A `score_mod` changes each score, and a `BlockMask` selects the
pairs of queries and keys. Blocks of pairs without a selected pair are not computed. The time of a sliding window is
therefore proportional to the width of the window.
"""

import inspect
import itertools
import math
from typing import NamedTuple

import numpy as np

from ...arrays import dtypes, xp_of
from ...arrays.tensor import Tensor
from ...func import vmap
from ...ops.attention import scaled_dot_product_attention
from ...ops.creation import arange, full, zeros
from ...ops.elementwise import where
from ...ops.movement import cat

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip
_DEFAULT_SPARSE_BLOCK_SIZE = 128  # the name in PyTorch, which packages import


class AuxRequest(NamedTuple):
    """Selects the additional results of `flex_attention`.

    Attributes:
        lse: return the logarithm of the sum of the exponentials of the scores.
        max_scores: return the largest score of each query.
    """

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The additional results of `flex_attention`; None for results that were not requested.

    Attributes:
        lse: logarithm of the sum of the exponentials of the scores (B, H, L).
        max_scores: largest score of each query (B, H, L).
    """

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch, head, token_q, token_kv):
    """Returns True for every pair of a query and a key.

    Args:
        batch: index of the batch.
        head: index of the head.
        token_q: position of the query.
        token_kv: position of the key.
    """
    return batch.new_ones((), dtype=dtypes.bool_)


def and_masks(*mask_mods):
    """Returns a mask function that is True where all mask functions are True.

    Args:
        mask_mods: mask functions.

    Raises:
        RuntimeError: an argument is not callable.
    """
    _check_functions(mask_mods)

    def and_mask(b, h, q_idx, kv_idx):
        result = b.new_ones((), dtype=dtypes.bool_)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods):
    """Returns a mask function that is True where at least one mask function is True.

    Args:
        mask_mods: mask functions.

    Raises:
        RuntimeError: an argument is not callable.
    """
    _check_functions(mask_mods)

    def or_mask(b, h, q_idx, kv_idx):
        result = b.new_zeros((), dtype=dtypes.bool_)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def _check_functions(mask_mods):
    if not all(callable(mask) for mask in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")


def _over_scores(function, with_score):
    """Maps a function of one score (or of no score) and four indices over all scores."""
    first = (0,) if with_score else ()
    none = (None,) if with_score else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = vmap(function, in_dims=(*(first or none), *dims), out_dims=0)
    return function


def _is_score_mod(function):
    """Returns True for a function with five parameters, which starts with the score.

    Raises:
        ValueError: the function has another number of parameters.
    """
    parameters = inspect.signature(function).parameters.values()
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)
    if count not in (4, 5):
        raise ValueError(
            f"create_mask: expected a mask_mod with 4 parameters or a score_mod with 5, got {count}. Use (b, h, q_idx, kv_idx)."
        )
    return count == 5


def _positions(n, device):
    return arange(n, device=device, dtype=dtypes.int64)


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device=None):
    """Computes a dense mask from a mask function or a score function.

    Args:
        mod_fn: `mask_mod(b, h, q_idx, kv_idx)` or `score_mod(score, b, h, q_idx, kv_idx)`. A score function receives scores
            of 0 and masks the pairs with a score of negative infinity.
        B: number of batches; None for 1.
        H: number of heads; None for 1.
        Q_LEN: number of queries.
        KV_LEN: number of keys.
        device: device of the mask (default: the default device).

    Returns:
        A tensor of booleans (B, H, Q_LEN, KV_LEN).

    Example:
        >>> from mytorch.nn.attention.flex_attention import create_mask
        >>> create_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 2)[0, 0].tolist()
        [[True, False], [True, True]]
    """
    B, H = B or 1, H or 1
    indices = [_positions(n, device) for n in (B, H, Q_LEN, KV_LEN)]
    if 0 in (Q_LEN, KV_LEN):
        return zeros(B, H, Q_LEN, KV_LEN, device=device, dtype=dtypes.bool_)
    if _is_score_mod(mod_fn):
        return _over_scores(mod_fn, True)(zeros(B, H, Q_LEN, KV_LEN, device=device), *indices) != -math.inf
    return _over_scores(mod_fn, False)(*indices).expand(B, H, Q_LEN, KV_LEN)


def _ordered(blocks):
    """Returns (number, indices) of the blocks of each row that are True. Their indices come first."""
    raw = blocks._mt_data._array
    xp = xp_of(raw)
    order = xp.argsort(~raw, axis=-1, kind="stable").astype(np.int32)
    return Tensor._wrap(raw.sum(axis=-1).astype(np.int32)), Tensor._wrap(order)


def _dense(number, indices):
    """Returns the blocks as a boolean raw array, the inverse of `_ordered`."""
    number, indices = number._mt_data._array, indices._mt_data._array
    xp = xp_of(indices)
    out = xp.zeros(indices.shape, bool)
    listed = xp.arange(indices.shape[-1]) < number[..., None]
    xp.put_along_axis(out, indices.astype(np.int64), listed, -1)
    return out


class BlockMask:
    """The blocks of pairs of queries and keys that `flex_attention` computes. Create it with `create_block_mask`.

    Attributes:
        seq_lengths: numbers of queries and keys.
        kv_num_blocks, kv_indices: the blocks of keys, for each block of queries, in which `mask_mod` decides.
        full_kv_num_blocks, full_kv_indices: the blocks in which all pairs are selected.
        q_num_blocks, q_indices, full_q_num_blocks, full_q_indices: the same blocks for each block of keys.
        BLOCK_SIZE: numbers of queries and of keys in a block.
        mask_mod: the mask function.

    Example:
        >>> from mytorch.nn.attention.flex_attention import create_block_mask
        >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
        >>> mask.shape, mask.sparsity()
        ((1, 1, 256, 256), 25.0)
    """

    _TENSORS = (
        "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
        "full_q_num_blocks", "full_q_indices",
    )  # fmt: skip

    def __init__(
        self, seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks=None, full_kv_indices=None, q_num_blocks=None,
        q_indices=None, full_q_num_blocks=None, full_q_indices=None, BLOCK_SIZE=(_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE), mask_mod=noop_mask,
    ):  # fmt: skip
        if kv_indices.ndim < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks, kv_indices, full_kv_num_blocks=None, full_kv_indices=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, mask_mod=None,
        seq_lengths=None, compute_q_blocks=True,
    ):  # fmt: skip
        """Creates a BlockMask from the blocks of keys of each block of queries.

        Args:
            kv_num_blocks: number of blocks in which `mask_mod` decides.
            kv_indices: indices of these blocks, which come first in each row.
            full_kv_num_blocks: number of blocks in which all pairs are selected (default: None).
            full_kv_indices: indices of these blocks (default: None).
            BLOCK_SIZE: size of a block, or sizes for queries and keys (default: 128).
            mask_mod: mask function (default: `noop_mask`).
            seq_lengths: numbers of queries and keys (default: whole blocks).
            compute_q_blocks: also store the blocks of queries of each block of keys (default: True).

        Raises:
            AssertionError: only one of the two arguments for full blocks is given.
        """
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        if seq_lengths is None:
            seq_lengths = kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1]
        q = fq = (None, None)
        if compute_q_blocks:
            q = _transposed(kv_num_blocks, kv_indices)
            fq = (None, None) if full_kv_indices is None else _transposed(full_kv_num_blocks, full_kv_indices)
        return cls(
            seq_lengths,
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            *q,
            *fq,
            size,
            mask_mod or noop_mask,
        )

    def as_tuple(self, flatten=True):
        """Returns all attributes as a tuple.

        Args:
            flatten: return the sequence lengths and block sizes as separate items (default: True).
        """
        tensors = [getattr(self, name) for name in self._TENSORS]
        lengths, size = (tuple(self.seq_lengths), tuple(self.BLOCK_SIZE))
        if flatten:
            return (*lengths, *tensors, *size, self.mask_mod)
        return (lengths, *tensors, size, self.mask_mod)

    @property
    def shape(self):
        """The sizes (B, H, queries, keys)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self):
        """Returns the number of pairs."""
        return math.prod(self.shape)

    def sparsity(self):
        """Returns the share of pairs in blocks that are not computed, in percent."""
        computed = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            computed += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - computed * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self):
        """Returns the computed blocks as a tensor of zeros and ones (B, H, blocks of queries, blocks of keys), int32."""
        blocks = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_indices is not None:
            blocks = blocks | _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return Tensor._wrap(blocks.astype(np.int32))

    def to(self, device):
        """Returns the mask on a device."""
        moved = {name: getattr(self, name) for name in self._TENSORS}
        moved = {name: value if value is None else value.to(device) for name, value in moved.items()}
        return BlockMask(self.seq_lengths, **moved, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        sizes = self.kv_num_blocks.shape[:3]
        padded = (*index, slice(None), slice(None), slice(None))[:3]
        # An integer keeps its dimension, with size 1.
        index = tuple(
            (slice(i % n, i % n + 1) if isinstance(i, int) else i) for i, n in zip(padded, sizes, strict=True)
        )
        parts = [
            None if value is None else value[index]
            for value in (self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices)
        ]
        return BlockMask.from_kv_blocks(
            *parts, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced_mask, seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def to_string(self, grid_size=(20, 20), limit=4):
        """Returns a drawing of the computed blocks: full squares for computed blocks, spaces for skipped blocks.

        Args:
            grid_size: largest number of rows and columns of the drawing; -1 for all blocks (default: (20, 20)).
            limit: largest number of drawings, one for each batch and head (default: 4).
        """
        blocks = np.asarray(self.to_dense().cpu()).astype(float)
        *batches, rows, columns = blocks.shape
        if grid_size == -1:
            most = rows, columns
        else:
            most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        row_step, column_step = (max(1, -(-n // m)) for n, m in zip((rows, columns), most, strict=True))
        drawings = []
        for number, index in enumerate(itertools.product(*map(range, batches))):
            if number == limit:
                drawings += [
                    "...", "To print out more, set BlockMask.to_string(limit=N)",
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or head",
                ]  # fmt: skip
                break
            text = f"{index}\n"
            for r in range(0, rows, row_step):
                for c in range(0, columns, column_step):
                    share = blocks[index][r : r + row_step, c : c + column_step].mean()
                    text += ("█" if share == 1 else " " if share == 0 else "░") * 2
                text += "\n"
            drawings.append(text)
        return "\n".join(drawings)

    def __str__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _sliced_mask(b, h, q_idx, kv_idx):
    raise RuntimeError(
        "flex_attention: expected a block mask with a mask function, got an indexed block mask. Assign its mask_mod."
    )


def _transposed(number, indices):
    blocks = _dense(number, indices)
    return _ordered(
        Tensor._wrap(np.swapaxes(blocks, -1, -2) if isinstance(blocks, np.ndarray) else blocks.swapaxes(-1, -2))
    )


def create_block_mask(
    mask_mod,
    B,
    H,
    Q_LEN,
    KV_LEN,
    device=None,
    BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE,
    _compile=False,
    separate_full_blocks=True,
):
    """Computes the blocks of pairs of queries and keys that a mask function selects.

    Args:
        mask_mod: `mask_mod(b, h, q_idx, kv_idx)`, which returns True for the pairs to compute. The arguments are integer
            tensors without dimensions.
        B: number of batches; None for a mask that does not depend on the batch.
        H: number of heads; None for a mask that does not depend on the head.
        Q_LEN: number of queries.
        KV_LEN: number of keys.
        device: device of the mask (default: the default device).
        BLOCK_SIZE: size of a block, or sizes for queries and keys (default: 128).
        _compile: accepted for compatibility; the result is the same (default: False).
        separate_full_blocks: store the blocks separately in which all pairs are selected, so that the mask function does
            not run for them (default: True).

    Returns:
        A BlockMask.

    Raises:
        ValueError: `mask_mod` has another number of parameters.

    Example:
        >>> from mytorch.nn.attention.flex_attention import create_block_mask
        >>> def causal(b, h, q_idx, kv_idx):
        ...     return q_idx >= kv_idx
        >>> create_block_mask(causal, None, None, 300, 300).kv_num_blocks.tolist()
        [[[1, 1, 1]]]
    """
    if _is_score_mod(mask_mod):
        raise ValueError("create_block_mask requires a mask_mod function with 4 parameters (b, h, q_idx, kv_idx).")
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    raw = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)._mt_data._array
    xp = xp_of(raw)
    rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
    padded = xp.zeros((*raw.shape[:2], rows * size[0], columns * size[1]), bool)
    padded[:, :, :Q_LEN, :KV_LEN] = raw
    tiles = padded.reshape(*raw.shape[:2], rows, size[0], columns, size[1])
    some, every = tiles.any(axis=(3, 5)), tiles.all(axis=(3, 5))
    parts = [*_ordered(Tensor._wrap(some & ~every if separate_full_blocks else some))]
    if separate_full_blocks:
        parts += _ordered(Tensor._wrap(every))
    return BlockMask.from_kv_blocks(*parts, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN))


def _check(query, key, value, block_mask, enable_gqa):
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise ValueError(
            f"flex_attention: expected tensors of 4 dimensions (B, H, L, E), got {query.ndim}, {key.ndim} and {value.ndim}. Use unsqueeze()."
        )
    if not (query.dtype is key.dtype is value.dtype):
        raise ValueError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype}, key.dtype: {key.dtype}, "
            f"and value.dtype: {value.dtype} instead."
        )
    if key.shape[:3] != value.shape[:3] or query.shape[3] != key.shape[3]:
        raise ValueError(
            f"flex_attention: expected query (B, H, L, E), key (B, H, S, E) and value (B, H, S, Ev), got {tuple(query.shape)}, "
            f"{tuple(key.shape)} and {tuple(value.shape)}. Transpose the heads to dimension 1."
        )
    if key.shape[0] not in (1, query.shape[0]):
        raise ValueError(
            f"flex_attention: expected key of batch size {query.shape[0]} or 1, got {key.shape[0]}. Expand it."
        )
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={query.shape[1]} and Hkv={key.shape[1]}. Try "
            "setting enable_gqa=True for GQA."
        )
    if enable_gqa and query.shape[1] % key.shape[1]:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={query.shape[1]} and Hkv={key.shape[1]}."
        )
    if block_mask is None:
        return
    if not isinstance(block_mask, BlockMask):
        raise TypeError(
            f"flex_attention: expected a BlockMask, got {type(block_mask).__name__}. Create it with create_block_mask."
        )
    lengths = query.shape[2], key.shape[2]
    if tuple(block_mask.seq_lengths) != lengths:
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={lengths[0]} and kv_len={lengths[1]}. "
            "As the block mask was created for other lengths than you're using it for, create a new block mask."
        )
    for size, mask_size, name in zip(query.shape[:2], block_mask.kv_indices.shape[:2], ("batch", "heads"), strict=True):
        if mask_size not in (1, size):
            raise ValueError(
                f"flex_attention: expected a block mask for {size} or 1 {name}, got {mask_size}. Create another block mask."
            )


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None,
    *, return_aux=None,
):  # fmt: skip
    """Computes attention with a function that changes the scores, and a mask whose empty blocks are skipped.

        score = score_mod(scale * query @ key.T, b, h, q_idx, kv_idx)
        result = softmax(score where the mask is True) @ value

    Gradients flow to the query, key and value, and to tensors that `score_mod` uses. A query without any selected key
    has a result of 0.

    Use it for sliding windows, ALiBi, packed documents and other changes of the scores. For a plain or causal mask,
    `F.scaled_dot_product_attention` is simpler.

    Args:
        query: queries (B, Hq, L, E).
        key: keys (B, Hkv, S, E).
        value: values (B, Hkv, S, Ev).
        score_mod: `score_mod(score, b, h, q_idx, kv_idx)`, which returns the new score (default: None). The arguments are
            tensors without dimensions.
        block_mask: result of `create_block_mask` (default: None, all pairs).
        scale: factor of the scores (default: 1 / sqrt(E)).
        enable_gqa: allow fewer heads of keys and values than of queries (default: False).
        return_lse: also return the logarithm of the sum of the exponentials of the scores (default: False).
        kernel_options: accepted for compatibility; options of GPU kernels have no effect on results (default: None).
        return_aux: an AuxRequest; the additional results are returned as an AuxOutput (default: None).

    Shape:
        result: (B, Hq, L, Ev).
        lse: (B, Hq, L).

    Returns:
        The result, or a tuple (result, lse) or (result, AuxOutput).

    Raises:
        ValueError: sizes, dtypes or the block mask do not fit.
        TypeError: `block_mask` is not a BlockMask.

    Example:
        >>> from mytorch.nn.attention.flex_attention import create_block_mask, flex_attention
        >>> q = k = v = mytorch.ones(1, 1, 2, 4)
        >>> mask = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 2, 2)
        >>> flex_attention(q, k, v, lambda score, b, h, q_idx, kv_idx: score * 0.5, mask).shape
        mytorch.Size([1, 1, 2, 4])

    See also: `nn.functional.scaled_dot_product_attention`.
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError(
            "flex_attention: expected return_lse or return_aux, got both. Use return_aux=AuxRequest(lse=True)."
        )
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    wants_more = return_lse or return_aux is not None
    call = _Attention(query, key, value, score_mod, block_mask, scale, wants_more)
    result, lse, largest = call.run()
    if return_aux is not None:
        return result, AuxOutput(lse if return_aux.lse else None, largest if return_aux.max_scores else None)
    return (result, lse) if return_lse else result


class _Attention:
    """One call of `flex_attention`."""

    def __init__(self, query, key, value, score_mod, block_mask, scale, wants_more):
        self.query, self.scale, self.wants_more = query, scale, wants_more
        repeats = query.shape[1] // key.shape[1]
        if repeats > 1:
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        self.key, self.value = (x.expand(query.shape[0], -1, -1, -1) for x in (key, value))
        self.score_mod = score_mod and _over_scores(score_mod, True)
        self.block_mask = block_mask
        self.mask_mod = block_mask and _over_scores(block_mask.mask_mod, False)
        self.wide = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
        self.device = query.device

    def run(self):
        """Returns (result, lse, largest scores)."""
        batches, heads = self.query.shape[:2]
        if self.block_mask is None:
            return self.some(slice(0, batches), slice(0, heads), None)
        blocks = self.block_mask
        mask_batches, mask_heads = blocks.kv_indices.shape[:2]
        partial = _host(_dense(blocks.kv_num_blocks, blocks.kv_indices))
        full_ones = None
        if blocks.full_kv_indices is not None:
            full_ones = _host(_dense(blocks.full_kv_num_blocks, blocks.full_kv_indices))
        rows = []
        for b in range(mask_batches):
            chosen = slice(0, batches) if mask_batches == 1 else slice(b, b + 1)
            columns = []
            for h in range(mask_heads):
                of_head = slice(0, heads) if mask_heads == 1 else slice(h, h + 1)
                tables = partial[b, h], None if full_ones is None else full_ones[b, h]
                columns.append(self.some(chosen, of_head, tables))
            rows.append([_cat(items, 1) for items in zip(*columns, strict=True)])
        return tuple(_cat(items, 0) for items in zip(*rows, strict=True))

    def some(self, batches, heads, tables):
        """Returns the results for some batches and heads, which have the same blocks."""
        query, key, value = (x[batches, heads] for x in (self.query, self.key, self.value))
        b, h = _positions(batches.stop, self.device)[batches], _positions(heads.stop, self.device)[heads]
        if tables is None:
            return self.rows(query, [key], [value], (b, h), slice(0, query.shape[2]), [slice(0, key.shape[2])], [False])
        rows, columns = self.block_mask.BLOCK_SIZE
        queries, keys, values = query.split(rows, 2), key.split(columns, 2), value.split(columns, 2)
        partial, complete = tables
        found = []
        for i, part in enumerate(queries):
            wanted = partial[i] if complete is None else partial[i] | complete[i]
            at = [j for j in np.flatnonzero(wanted).tolist() if j < len(keys)]
            spans = [slice(j * columns, j * columns + keys[j].shape[2]) for j in at]
            span = slice(i * rows, i * rows + part.shape[2])
            chosen = [keys[j] for j in at], [values[j] for j in at]
            found.append(self.rows(part, *chosen, (b, h), span, spans, [bool(partial[i][j]) for j in at]))
        if not found:
            return self.empty(query, value)
        return tuple(_cat(items, 2) for items in zip(*found, strict=True))

    def empty(self, query, value):
        """Returns the results of queries without keys."""
        shape = query.shape[:3]
        if not self.wants_more:
            return zeros(*shape, value.shape[3], dtype=query.dtype, device=self.device), None, None
        lowest = full(shape, -math.inf, dtype=self.wide, device=self.device)
        return zeros(*shape, value.shape[3], dtype=query.dtype, device=self.device), lowest, lowest

    def rows(self, query, keys, values, outer, rows, spans, masked):
        """Returns the results of some queries with some blocks of keys.

        Args:
            query: the queries.
            keys, values: the blocks.
            outer: indices of the batches and heads.
            rows: positions of the queries.
            spans: positions of the keys of each block.
            masked: True for each block in which the mask function decides.
        """
        if not keys or not query.shape[2] or not keys[0].shape[2]:
            return self.empty(query, values[0] if values else self.value)
        key, value = _cat(keys, 2), _cat(values, 2)
        q = _positions(rows.stop, self.device)[rows]
        allowed = self.allowed(outer, q, spans, masked) if any(masked) else None
        if self.score_mod is None and not self.wants_more and (allowed is None or bool(allowed.any(-1).all())):
            return scaled_dot_product_attention(query, key, value, allowed, scale=self.scale), None, None
        scores = (query @ key.transpose(-2, -1)).to(self.wide) * self.scale
        if self.score_mod is not None:
            position = _cat([_positions(s.stop, self.device)[s] for s in spans], 0)
            scores = self.score_mod(scores, *outer, q, position).to(self.wide)
        if allowed is not None:
            scores = where(allowed, scores, -math.inf)
        largest = scores.detach().amax(-1, keepdim=True)
        nothing = largest == -math.inf
        empty = bool(nothing.any())
        weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0) if empty else scores.softmax(-1)
        result = weights.to(query.dtype) @ value
        if not self.wants_more:
            return result, None, None
        lse = (
            scores.masked_fill(nothing, 0).logsumexp(-1, keepdim=True) if empty else scores.logsumexp(-1, keepdim=True)
        )
        lse = lse.masked_fill(nothing, -math.inf) if empty else lse
        return result, lse.squeeze(-1), largest.squeeze(-1)

    def allowed(self, outer, q, spans, masked):
        """Returns the mask of some queries and of the keys of some blocks. Full blocks need no call of the mask function."""
        shape = outer[0].shape[0], outer[1].shape[0], q.shape[0]
        parts = []
        for span, decide in zip(spans, masked, strict=True):
            if decide:
                keys = _positions(span.stop, self.device)[span]
                parts.append(self.mask_mod(*outer, q, keys).expand(*shape, keys.shape[0]))
            else:
                parts.append(Tensor._wrap(_ones(q, (*shape, span.stop - span.start))))
        return _cat(parts, 3)


def _ones(like, shape):
    return xp_of(like._mt_data._array).ones(shape, bool)


def _host(raw):
    return raw if isinstance(raw, np.ndarray) else raw.get()


def _cat(parts, dim):
    if parts[0] is None:  # additional results that were not requested
        return None
    return parts[0] if len(parts) == 1 else cat(list(parts), dim)
