"""Rotary positions, and how they reach beyond the context that a model was trained for.

Source: Su et al., RoFormer, 2021; linear: Chen et al., Extending Context Window of Large Language Models via Positional Interpolation,
2023; yarn: Peng et al., YaRN, 2023, whose section 3.3 has the dynamic one; llama3: Grattafiori et al., Llama 3, 2024.
"""

import math
from typing import Any

from .._tensor import Tensor
from ..engine.mode import no_grad
from ..ops.creation import arange
from ..ops.movement import cat

_WANTED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}


def check(scaling: dict[str, Any] | None) -> None:
    """Refuse a rope_scaling of a kind that is not known, or that does not say enough.

    Raises:
        ValueError: so it is.
    """
    scaling = scaling or {}
    kind = scaling.get("rope_type")
    if kind is None:
        return
    if kind not in _WANTED:
        raise ValueError(f"LlamaConfig: rope_type is {kind!r}; known are {', '.join(_WANTED)}.")
    if lacking := [name for name in _WANTED[kind] if scaling.get(name) is None]:
        raise ValueError(f"LlamaConfig: rope_scaling of type {kind!r} does not say {', '.join(lacking)}.")


def trained_length(config: Any) -> int:
    """How many positions the model was trained for."""
    return (config.rope_scaling or {}).get("original_max_position_embeddings") or config.context_length


def frequencies(config: Any, length: int = 0) -> Tensor:
    """The angle by which each pair of a head's numbers turns from a position to the next, (head / 2,).

    Args:
        config: a LlamaConfig.
        length: how many positions there are, where that counts ("dynamic").
    """
    scaling, head, old = config.rope_scaling or {}, config.head, trained_length(config)
    kind, factor, theta = scaling.get("rope_type"), scaling.get("factor") or 1.0, config.rope_theta
    if kind == "dynamic":  # the longest wave as "linear" would stretch it, the shortest as it was
        theta *= (factor * max(length, old) / old - (factor - 1)) ** (head / (head - 2))
    plain = theta ** (arange(0, head, 2).float() * (-1.0 / head))
    if kind == "linear":
        return plain / factor
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = plain * (old / (2 * math.pi))  # within the context trained for
        share = ((turns - low) / (high - low)).clamp(0.0, 1.0)  # short waves stay, long ones are stretched
        return share * plain + (1 - share) * plain / factor
    if kind == "yarn":
        share = _stretched(scaling, head, theta, old)
        return (1 - share) * plain + share * plain / factor
    return plain


def _stretched(scaling, head, theta, old):
    """YaRN's share of stretching for each pair: none for those that turn often within the context trained for, all for slow ones."""

    def pair_that_turns(times):
        return head * math.log(old / (times * 2 * math.pi)) / (2 * math.log(theta))

    low, high = (pair_that_turns(scaling.get(name) or usual) for name, usual in (("beta_fast", 32), ("beta_slow", 1)))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head - 1)
    return ((arange(head // 2).float() - low) / ((high - low) or 0.001)).clamp(0.0, 1.0)


def magnitude(config: Any) -> float:
    """What cos and sin are multiplied with: YaRN makes scores larger, since more positions share the attention."""
    scaling = config.rope_scaling or {}
    if scaling.get("rope_type") != "yarn":
        return 1.0
    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]
    whole, part = scaling.get("mscale"), scaling.get("mscale_all_dim")
    longer = 0.1 * math.log(max(scaling["factor"], 1.0))
    return (longer * whole + 1.0) / (longer * part + 1.0) if whole and part else longer + 1.0


class Rotary:
    """The tables (cos, sin) of the positions seen so far; they grow, since contexts may be far longer than texts."""

    def __init__(self, config: Any):
        self.config = config
        self.tables: Any = None
        self.length = 0  # for which "dynamic" tables were made; 0 for all

    @no_grad()
    def __call__(self, positions: Tensor, stop: int, dtype: Any) -> tuple[Tensor, Tensor]:
        """cos and sin of `positions`, which lie below `stop`, (…, T, head)."""
        length = stop if stop > self.config.lasting else 0
        fits = self.tables is not None and len(self.tables[0]) >= stop and self.tables[0].device == positions.device
        if not fits or self.length != length:
            size = min(max(256, 2 * stop), max(stop, self.config.context_length))
            angles = arange(size).float()[:, None] * frequencies(self.config, length)
            angles, scale = cat([angles, angles], dim=-1), magnitude(self.config)
            self.tables = tuple((table * scale).to(positions.device) for table in (angles.cos(), angles.sin()))
            self.length = length
        cos, sin = self.tables
        return cos[positions].to(dtype), sin[positions].to(dtype)
