"""The model that a directory in Hugging Face's form holds, whichever it is."""

from pathlib import Path
from typing import Any

from . import hugging_face
from .gpt2 import GPT2
from .llama import Llama


def from_pretrained(path: str | Path, **changes: Any) -> Any:
    """The GPT2 or Llama in a directory, by the `model_type` in its config.json; see their `from_pretrained`.

    Args:
        path: the directory.
        **changes: fields of the config to change, such as `fused`.
    """
    values, _ = hugging_face.read_json(Path(path), "from_pretrained")
    return (GPT2 if values.get("model_type", "gpt2") == "gpt2" else Llama).from_pretrained(path, **changes)
