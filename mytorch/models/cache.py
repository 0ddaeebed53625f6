"""KV cache: keys and values of earlier positions for a decoder's attention layers."""

from typing import Any

from ..arrays.array import on_input_device
from ..arrays.tensor import Tensor
from ..ops.attention import append_to_cache
from ..ops.creation import arange, empty
from ..ops.movement import cat


class LayerCache:
    """Keys and values of one layer, (B, H, positions, D), in memory that is allocated once.

    A layer with a window keeps only the last `window` positions. Its memory stores two windows. When the memory is full, the
    visible positions move to the front.

    Attributes:
        k: memory of the keys.
        v: memory of the values.
        first: position in the first row of the memory.
    """

    def __init__(self, owner: "KVCache", window: int | None = None):
        self.owner, self.window = owner, window
        self.k: Any = None
        self.v: Any = None
        self.first = 0

    @property
    def rows(self) -> int:
        """The number of positions in the memory."""
        window = self.window if self.owner.sliding else None
        return self.owner.capacity if window is None else min(self.owner.capacity, 2 * window)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None, bool]:
        """Adds the keys and values (B, H, T, D) of new positions.

        Args:
            k: keys.
            v: values.

        Returns:
            (k, v, mask, is_causal) for the attention of the new positions.
        """
        k, v = self.append(k, v)
        return (k, v, *self.owner.mask(v.shape[2], self.window, k.device))

    @on_input_device
    def append(self, k: Tensor, v: Tensor) -> list[Tensor]:
        """Adds keys and values like `extend`, and returns only (k, v).

        Args:
            k: keys.
            v: values.
        """
        start, T = self.owner.length, k.shape[2]
        if start + T > self.owner.capacity:
            raise ValueError(f"KVCache: expected at most {self.owner.capacity} positions, got {start + T}.")
        if self.k is None or self.k.shape[0] != k.shape[0] or self.k.dtype != k.dtype:
            self._allocate(k, v)
        if start == 0:
            self.first = 0
        seen = self.owner.first_seen(start, self.window)
        kept = start - seen  # earlier positions that the new ones see
        if start + T - self.first > self.rows:
            for store in (self.k, self.v):
                raw = store._mt_data._array
                raw[:, :, :kept] = raw[:, :, seen - self.first : start - self.first].copy()
            self.first = seen
        if kept + T > self.rows:  # more positions than the memory stores
            return self._long(k, v, kept)
        begin, end = start - self.first, start - self.first + T
        append_to_cache(self.k, self.v, k, v, begin)
        return [Tensor._wrap(store._mt_data._array[:, :, seen - self.first : end]) for store in (self.k, self.v)]

    def _allocate(self, k, v):
        if self.owner.length:
            raise ValueError(
                f"KVCache: expected {self.k.shape[0]} sequences of {self.k.dtype}, as in the {self.owner.length} cached "
                f"positions, got {k.shape[0]} sequences of {k.dtype}. Call reset() first."
            )
        B, H, _, D = k.shape
        self.k = empty(B, H, self.rows, D, dtype=k.dtype, device=k.device)
        self.v = empty(B, H, self.rows, v.shape[3], dtype=v.dtype, device=v.device)

    def _long(self, k, v, kept):
        whole = [cat([Tensor._wrap(s._mt_data._array[:, :, :kept]), new], 2) for s, new in ((self.k, k), (self.v, v))]
        left = min(self.window - 1, kept + k.shape[2])
        for store, new in zip((self.k, self.v), whole, strict=True):
            store._mt_data._array[:, :, :left] = new._mt_data._array[:, :, new.shape[2] - left :]
        self.first = self.owner.length + k.shape[2] - left
        return whole


class KVCache:
    """Keys and values of earlier positions for all attention layers of a decoder.

    Args:
        num_layers: number of attention layers.
        length: maximum number of positions.
        windows: for each layer, number of positions that a token sees, itself included, or None for all (default: all).
        sliding: layers with windows drop positions outside the window; `rewind` then cannot go back far.

    Attributes:
        length: number of cached positions, the same for all layers.
        padding: integers (B,), number of padding positions at the start of each row; None without padding.
    """

    def __init__(self, num_layers: int, length: int, windows: list[int | None] | None = None, sliding: bool = True):
        self.capacity, self.sliding = length, sliding
        self.length = 0
        self.padding: Any = None
        self.layers = [LayerCache(self, window) for window in windows or [None] * num_layers]
        self._masks: dict = {}  # shared by layers with equal windows

    def advance(self, count: int) -> None:
        """Notes that every layer has added positions.

        Args:
            count: number of added positions.
        """
        self.length += count
        self._masks.clear()

    def reset(self) -> None:
        """Removes all positions and keeps the memory."""
        self.length = 0
        self._masks.clear()

    def rewind(self, length: int) -> None:
        """Removes the positions from `length` on.

        Args:
            length: number of positions to keep.

        Raises:
            ValueError: if a layer with a window has already dropped positions that would become visible again.
        """
        for layer in self.layers:
            if not self.first_seen(length, layer.window) >= layer.first or length > self.length:
                raise ValueError(f"KVCache.rewind: cannot go back from {self.length} positions to {length}.")
        self.length = length
        self._masks.clear()

    def reorder(self, rows: Tensor) -> None:
        """Moves the contents of row rows[i] to row i, for beam search.

        Args:
            rows: int64 (B,).
        """
        index = rows._mt_data._array
        for layer in self.layers:
            for store in (layer.k, layer.v):
                raw, used = store._mt_data._array, self.length - layer.first
                raw[:, :, :used] = raw[:, :, :used][index]  # indexing by an array makes a copy
        if self.padding is not None:
            self.padding = self.padding[rows]
        self._masks.clear()

    @staticmethod
    def first_seen(position: int, window: int | None) -> int:
        """Returns the first position that `position` sees.

        Args:
            window: number of visible positions, or None for all.
        """
        return 0 if window is None else max(0, position - window + 1)

    def positions(self, T: int, device: Any = None) -> Tensor:
        """Returns the positions of T new tokens after the padding: (T,), or (B, T) with padding.

        Args:
            T: number of new tokens.
            device: device of the result.
        """
        here = arange(self.length, self.length + T, device=device)
        return here if self.padding is None else (here - self.padding[:, None]).clamp(min=0)

    def mask(self, columns: int, window: int | None, device: Any = None) -> tuple[Tensor | None, bool]:
        """Returns (mask, is_causal) for the attention of the newest positions to the last `columns` positions.

        Args:
            columns: number of positions.
            window: number of visible positions, or None for all.
            device: device of the mask.
        """
        start = self.length
        T = columns - (start - self.first_seen(start, window))
        if self.padding is None and (T == 1 or (start == 0 and (window is None or T <= window))):
            return None, T > 1  # the first positions, or a single position
        if (T, window) not in self._masks:
            row = arange(start, start + T, device=device)[:, None]
            column = arange(start + T - columns, start + T, device=device)
            mask = column <= row
            if window is not None:
                mask = mask & (column > row - window)
            if self.padding is not None:
                mask = mask & (column >= self.padding[:, None, None, None])  # (B, 1, T, columns)
            self._masks[T, window] = mask
        return self._masks[T, window], False

    def __len__(self):
        return self.length
