"""Rotary positions, and their extension beyond the trained context length.

Source: Su et al., RoFormer, 2021. Linear: Chen et al., Extending Context Window of Large Language Models via Positional
Interpolation, 2023. Dynamic and YaRN: Peng et al., YaRN, 2023. Llama 3: Grattafiori et al., Llama 3, 2024.
"""

import math
from typing import Any

from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode, no_grad
from ..ops.creation import arange
from ..ops.movement import cat

_WANTED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}


def check(scaling: dict[str, Any] | None) -> None:
    """Check the options in rope_scaling.

    Raises:
        ValueError: if the type is unknown, or an option is missing.
    """
    scaling = scaling or {}
    kind = scaling.get("rope_type")
    if kind is None:
        return
    if kind not in _WANTED:
        raise ValueError(f"LlamaConfig: expected rope_type to be one of {', '.join(_WANTED)}, got {kind!r}.")
    if lacking := [name for name in _WANTED[kind] if scaling.get(name) is None]:
        raise ValueError(f"LlamaConfig: rope_scaling of type {kind!r} lacks {', '.join(lacking)}.")


def trained_length(config: Any) -> int:
    """Return the context length of the training."""
    return (config.rope_scaling or {}).get("original_max_position_embeddings") or config.context_length


def frequencies(config: Any, length: int = 0) -> Tensor:
    """Return the angle between successive positions for each pair of numbers in a head, (head / 2,).

    Args:
        config: a LlamaConfig.
        length: number of positions, for the type "dynamic".
    """
    scaling, head, old = config.rope_scaling or {}, config.head, trained_length(config)
    kind, factor, theta = scaling.get("rope_type"), scaling.get("factor") or 1.0, config.rope_theta
    if kind == "dynamic":  # the longest wave is scaled as in "linear", the shortest does not change
        theta *= (factor * max(length, old) / old - (factor - 1)) ** (head / (head - 2))
    plain = theta ** (arange(0, head, 2).float() * (-1.0 / head))
    if kind == "linear":
        return plain / factor
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = plain * (old / (2 * math.pi))  # rotations within the trained context
        share = ((turns - low) / (high - low)).clamp(0.0, 1.0)  # short waves stay, long waves are scaled
        return share * plain + (1 - share) * plain / factor
    if kind == "yarn":
        share = _stretched(scaling, head, theta, old)
        return (1 - share) * plain + share * plain / factor
    return plain


def _stretched(scaling, head, theta, old):
    """Return YaRN's share of scaling for each pair: 0 for pairs with many rotations in the trained context, 1 for slow pairs."""

    def pair_that_turns(times):
        return head * math.log(old / (times * 2 * math.pi)) / (2 * math.log(theta))

    low, high = (pair_that_turns(scaling.get(name) or usual) for name, usual in (("beta_fast", 32), ("beta_slow", 1)))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head - 1)
    return ((arange(head // 2).float() - low) / ((high - low) or 0.001)).clamp(0.0, 1.0)


def magnitude(config: Any) -> float:
    """Return YaRN's factor of cos and sin, which increases the attention scores for more positions."""
    scaling = config.rope_scaling or {}
    if scaling.get("rope_type") != "yarn":
        return 1.0
    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]
    whole, part = scaling.get("mscale"), scaling.get("mscale_all_dim")
    longer = 0.1 * math.log(max(scaling["factor"], 1.0))
    return (longer * whole + 1.0) / (longer * part + 1.0) if whole and part else longer + 1.0


class Rotary:
    """Tables of cos and sin that grow with the positions, because texts are usually shorter than the context."""

    def __init__(self, config: Any):
        self.config = config
        self.tables: Any = None
        self.length = 0  # length of the "dynamic" tables; 0 for any length

    @no_grad()
    def __call__(self, positions: Tensor, stop: int, dtype: Any) -> tuple[Tensor, Tensor]:
        """Return cos and sin, (…, T, head), of `positions`, which are below `stop`."""
        length = stop if stop > self.config.lasting else 0
        recorded = get_mode().interpreter is not None  # tables of a constant size, which do not depend on earlier calls
        fits = self.tables is not None and len(self.tables[0]) >= stop and self.tables[0].device == positions.device
        tables = self.tables
        if not fits or self.length != length or recorded:
            size = min(max(256, 2 * stop), max(stop, self.config.context_length))
            size = self.config.context_length if recorded else size
            angles = arange(size).float()[:, None] * frequencies(self.config, length)
            angles, scale = cat([angles, angles], dim=-1), magnitude(self.config)
            tables = tuple((table * scale).to(positions.device) for table in (angles.cos(), angles.sin()))
            if not recorded:
                self.tables, self.length = tables, length
        cos, sin = tables
        return cos[positions].to(dtype), sin[positions].to(dtype)
