"""Language models (GPT-2, Llama) with generation, fine-tuning, quantization and file formats."""

from . import lora, run_files
from .auto import from_pretrained
from .cache import KVCache
from .fusion import fuse_
from .generation import generate, stream
from .gguf_files import save_gguf
from .gpt2 import GPT2, GPT2Config
from .llama import Llama, LlamaConfig
from .mixture import MixtureOfExperts
from .past import WithPast
from .quantization import QuantizedLinear, quantize_

__all__ = [
    "GPT2", "GPT2Config", "KVCache", "Llama", "LlamaConfig", "MixtureOfExperts", "QuantizedLinear", "WithPast", "from_pretrained", "fuse_",
    "generate", "lora", "quantize_", "save_gguf", "stream",
]  # fmt: skip
