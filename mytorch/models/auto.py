"""Loading of a model from a Hugging Face directory, a run of train_gpt2.py or a GGUF file, for any supported architecture."""

from pathlib import Path
from typing import Any

from . import gguf_files, hugging_face, lora, run_files
from .gpt2 import GPT2
from .llama import Llama


def from_pretrained(path: str | Path, **changes: Any) -> Any:
    """Loads a GPT2 or Llama model. The `model_type` in config.json, or the GGUF metadata, selects the class.

    Args:
        path: a directory in Hugging Face's format, a name on Hugging Face's hub, or a GGUF file whose name ends in ".gguf". It can also be the
            folder or a checkpoint of train_gpt2.py, or a LoRA adapter in PEFT's format, which names its base model.
        **changes: fields of the config to change, such as `fused`.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/model"
        >>> mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=8, vocab_size=16).save_pretrained(path)
        >>> mytorch.models.from_pretrained(path).config.embed_dim
        8
    """
    if Path(path).suffix == ".gguf":
        return gguf_files.read_model(path, **changes)
    if run_files.is_run(path):
        return run_files.load_run(path, **changes)
    if (base := lora.base_of(path)) is not None:
        if lora.base_of(base) is not None:
            raise ValueError(
                f"from_pretrained: expected the adapter {path} to name a base model, got the adapter {base}."
            )
        return lora.merge(lora.load_adapter(from_pretrained(base, **changes), path)).eval()
    path = hugging_face.directory_of(path, "from_pretrained")
    values, _ = hugging_face.read_json(path, "from_pretrained")
    return (GPT2 if values.get("model_type", "gpt2") == "gpt2" else Llama).from_pretrained(path, **changes)
