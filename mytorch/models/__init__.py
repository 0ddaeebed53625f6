"""Models that the scripts, benchmarks and tests share."""

from . import int8, lora
from .auto import from_pretrained
from .cache import KVCache
from .generation import generate, stream
from .gpt2 import GPT2, GPT2Config
from .llama import Llama, LlamaConfig
from .mixture import MixtureOfExperts

__all__ = [
    "GPT2", "GPT2Config", "KVCache", "Llama", "LlamaConfig", "MixtureOfExperts", "from_pretrained", "generate", "int8", "lora", "stream",
]  # fmt: skip
