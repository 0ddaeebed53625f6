"""Models that the scripts, benchmarks and tests share."""

from .cache import KVCache
from .generation import generate, stream
from .gpt2 import GPT2, GPT2Config
from .llama import Llama, LlamaConfig

__all__ = ["GPT2", "GPT2Config", "KVCache", "Llama", "LlamaConfig", "generate", "stream"]
