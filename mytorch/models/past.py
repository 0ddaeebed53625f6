"""Decoders with the keys and values of earlier positions as inputs and outputs, for exported programs."""

from typing import Any

from .. import nn
from ..arrays.tensor import Tensor
from ..ops.creation import arange
from ..ops.movement import cat


class _Layer:
    """Keys and values of one layer; see `cache.LayerCache`."""

    def __init__(self, owner: "_Past", k: Tensor, v: Tensor, window: int | None):
        self.owner, self.k, self.v, self.window = owner, k, v, window

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, bool]:
        """Returns (k, v, mask, is_causal) for the attention of new positions."""
        self.k, self.v = cat([self.k, k], 2), cat([self.v, v], 2)
        return self.k, self.v, self.owner.mask(k.shape[2], self.window, k.device), False


class _Past:
    """A KVCache without its own memory: it joins tensors."""

    def __init__(self, past: Any, windows: Any):
        pairs = list(zip(past[::2], past[1::2], strict=True))
        self.length, self.padding = past[0].shape[2], None
        self.layers = [_Layer(self, k, v, w) for (k, v), w in zip(pairs, windows or [None] * len(pairs), strict=True)]

    def positions(self, T: int, device: Any = None) -> Tensor:
        """Returns the positions of T new tokens."""
        return arange(self.length, self.length + T, device=device)

    def mask(self, T: int, window: int | None, device: Any) -> Tensor:
        """Returns the mask (T, all positions): True for visible positions."""
        row = arange(self.length, self.length + T, device=device)[:, None]
        column = arange(self.length + T, device=device)
        mask = column <= row
        return mask if window is None else mask & (column > row - window)

    def advance(self, count: int) -> None:
        """Does nothing, since `extend` has added the positions."""


class WithPast(nn.Module):
    """A GPT2 or Llama that receives and returns the keys and values of all layers, for `mytorch.export` and `mytorch.onnx`.

    Args:
        model: the language model.

    Shape: integers (B, T) to logits (B, T, vocab_size). For each layer, keys and values (B, H, P, D) of P earlier positions become
    keys and values (B, H, P + T, D). Pass P = 0 for the first call.

    Example:
        >>> model = mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=8, vocab_size=16, context_length=8).eval()
        >>> step = mytorch.models.WithPast(model)
        >>> tokens = tensor([[1, 2, 3]])
        >>> logits, *past = step(tokens[:, :2], *step.empty_past(1))
        >>> logits, *past = step(tokens[:, 2:], *past)
        >>> mytorch.allclose(logits[:, -1], model(tokens)[:, -1], atol=1e-5)
        True
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Returns the logits of the new positions, and all keys and values.

        Args:
            input: integers (B, T).
            past: keys and values of the first layer, of the second layer, and so on.
        """
        cache = _Past(past, self.model._windows())
        logits = self.model(input, cache=cache)
        return (logits, *(x for layer in cache.layers for x in (layer.k, layer.v)))

    def empty_past(self, batch_size: int, length: int = 0) -> list[Tensor]:
        """Returns keys and values of zeros for all layers.

        Args:
            batch_size: number of sequences.
            length: number of positions (default: 0).
        """
        config = self.model.config
        heads = getattr(config, "kv_heads", config.num_heads)
        width = getattr(config, "head", config.embed_dim // config.num_heads)
        weight = self.model.lm_head.weight
        return [weight.new_zeros(batch_size, heads, length, width) for _ in range(2 * config.num_layers)]
