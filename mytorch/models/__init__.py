"""Models that the scripts, benchmarks and tests share."""

from .generation import KVCache, generate, stream
from .gpt2 import GPT2, GPT2Config

__all__ = ["GPT2", "GPT2Config", "KVCache", "generate", "stream"]
