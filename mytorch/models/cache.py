"""What a decoder's attention layers remember of the positions so far: keys and values."""

from typing import Any

from .._array import on_input_device
from .._tensor import Tensor
from ..ops.attention import append_to_cache
from ..ops.creation import arange, empty
from ..ops.movement import cat


class LayerCache:
    """One layer's keys and values, (B, H, positions, D), in memory that is taken once and never copied afterwards.

    A layer with a window keeps the last `window` positions only: its memory holds two windows, and when that is full, what
    is still seen moves to the front.

    Attributes:
        k, v: the memory. first: the position that its first row holds.
    """

    def __init__(self, owner: "KVCache", window: int | None = None):
        self.owner, self.window = owner, window
        self.k: Any = None
        self.v: Any = None
        self.first = 0

    @property
    def rows(self) -> int:
        """How many positions the memory holds."""
        window = self.window if self.owner.sliding else None
        return self.owner.capacity if window is None else min(self.owner.capacity, 2 * window)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None, bool]:
        """Add the keys and values (B, H, T, D) of new positions.

        Returns:
            (k, v, mask, is_causal) for attention of the new positions: to all that they may see.
        """
        k, v = self.append(k, v)
        return (k, v, *self.owner.mask(v.shape[2], self.window, k.device))

    @on_input_device
    def append(self, k: Tensor, v: Tensor) -> list[Tensor]:
        """As `extend`; only (k, v)."""
        start, T = self.owner.length, k.shape[2]
        if start + T > self.owner.capacity:
            raise ValueError(f"KVCache: {start + T} positions don't fit in its {self.owner.capacity}.")
        if self.k is None or self.k.shape[0] != k.shape[0] or self.k.dtype != k.dtype:
            self._allocate(k, v)
        if start == 0:
            self.first = 0
        seen = self.owner.first_seen(start, self.window)
        kept = start - seen  # positions before the new ones that they still see
        if start + T - self.first > self.rows:
            for store in (self.k, self.v):
                raw = store._data._array
                raw[:, :, :kept] = raw[:, :, seen - self.first : start - self.first].copy()
            self.first = seen
        if kept + T > self.rows:  # more at once than the memory holds
            return self._long(k, v, kept)
        begin, end = start - self.first, start - self.first + T
        append_to_cache(self.k, self.v, k, v, begin)
        return [Tensor._wrap(store._data._array[:, :, seen - self.first : end]) for store in (self.k, self.v)]

    def _allocate(self, k, v):
        if self.owner.length:
            raise ValueError(
                f"KVCache: it holds {self.owner.length} positions of {self.k.shape[0]} sequences as {self.k.dtype}; "
                f"got {k.shape[0]} as {k.dtype}."
            )
        B, H, _, D = k.shape
        self.k = empty(B, H, self.rows, D, dtype=k.dtype, device=k.device)
        self.v = empty(B, H, self.rows, v.shape[3], dtype=v.dtype, device=v.device)

    def _long(self, k, v, kept):
        whole = [cat([Tensor._wrap(s._data._array[:, :, :kept]), new], 2) for s, new in ((self.k, k), (self.v, v))]
        left = min(self.window - 1, kept + k.shape[2])
        for store, new in zip((self.k, self.v), whole, strict=True):
            store._data._array[:, :, :left] = new._data._array[:, :, new.shape[2] - left :]
        self.first = self.owner.length + k.shape[2] - left
        return whole


class KVCache:
    """What a decoder's attention layers remember of the positions so far.

    Args:
        num_layers: attention layers.
        length: the most positions.
        windows: for each layer, how many positions a token sees, itself included; None for all. By default all see all.
        sliding: let layers with windows forget what is no longer seen; then `rewind` can't go back far.

    Attributes:
        length: how many positions there are, the same for all layers.
        padding: integers (B,), how many of the first positions of each row are nothing but padding; None for none.
    """

    def __init__(self, num_layers: int, length: int, windows: list[int | None] | None = None, sliding: bool = True):
        self.capacity, self.sliding = length, sliding
        self.length = 0
        self.padding: Any = None
        self.layers = [LayerCache(self, window) for window in windows or [None] * num_layers]
        self._masks: dict = {}  # layers of equal windows share them

    def advance(self, count: int) -> None:
        """Note that every layer has taken `count` more positions."""
        self.length += count
        self._masks.clear()

    def reset(self) -> None:
        """Forget everything, keep the memory."""
        self.length = 0
        self._masks.clear()

    def rewind(self, length: int) -> None:
        """Forget the positions from `length` on.

        Raises:
            ValueError: a layer with a window has already dropped positions that would be seen again.
        """
        for layer in self.layers:
            if not self.first_seen(length, layer.window) >= layer.first or length > self.length:
                raise ValueError(f"KVCache: it can't go back from {self.length} positions to {length}.")
        self.length = length
        self._masks.clear()

    def reorder(self, rows: Tensor) -> None:
        """Let row i continue what row rows[i] held: rows is int64 (B,)."""
        index = rows._data._array
        for layer in self.layers:
            for store in (layer.k, layer.v):
                raw, used = store._data._array, self.length - layer.first
                raw[:, :, :used] = raw[:, :, :used][index]  # indexed by an array: a copy
        if self.padding is not None:
            self.padding = self.padding[rows]
        self._masks.clear()

    @staticmethod
    def first_seen(position: int, window: int | None) -> int:
        """The first position that `position` sees."""
        return 0 if window is None else max(0, position - window + 1)

    def positions(self, T: int, device: Any = None) -> Tensor:
        """The positions of T new tokens, counted from the end of the padding: (T,), or (B, T) if there is padding."""
        here = arange(self.length, self.length + T, device=device)
        return here if self.padding is None else (here - self.padding[:, None]).clamp(min=0)

    def mask(self, columns: int, window: int | None, device: Any = None) -> tuple[Tensor | None, bool]:
        """(mask, is_causal) for attention of the newest positions to `columns` positions that end with them."""
        start = self.length
        T = columns - (start - self.first_seen(start, window))
        if self.padding is None and (T == 1 or (start == 0 and (window is None or T <= window))):
            return None, T > 1  # first or alone
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
