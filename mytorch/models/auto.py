"""The model that a directory in Hugging Face's form holds, or a GGUF file, whichever it is."""

from pathlib import Path
from typing import Any

from . import gguf_files, hugging_face
from .gpt2 import GPT2
from .llama import Llama


def from_pretrained(path: str | Path, **changes: Any) -> Any:
    """The GPT2 or Llama in a directory, by the `model_type` in its config.json; see their `from_pretrained`. Or that in a GGUF file.

    Args:
        path: the directory, or a name on Hugging Face's hub; or a file whose name ends in .gguf, see `gguf_files.read_model`.
        **changes: fields of the config to change, such as `fused`.
    """
    if Path(path).suffix == ".gguf":
        return gguf_files.read_model(path, **changes)
    path = hugging_face.directory_of(path, "from_pretrained")
    values, _ = hugging_face.read_json(path, "from_pretrained")
    return (GPT2 if values.get("model_type", "gpt2") == "gpt2" else Llama).from_pretrained(path, **changes)
