"""Files of a training run next to the weights: `model_meta.json`, which describes the model, and `tokenizer.json`.

`train_gpt2.py` writes them into each checkpoint and into the folder of the run. `inference_gpt2.py` reads them.
"""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from ..files.serialization import load_safetensors, write_json
from . import lora
from .gpt2 import GPT2, GPT2Config
from .gpt2 import SIZES as SIZES
from .llama import NANOCHAT, Llama, LlamaConfig
from .tokenizer import characters, load_tokenizer

_META, _TOKENIZER, _WEIGHTS = "model_meta.json", "tokenizer.json", "model.safetensors"

ARCHITECTURES: dict[str, dict[str, Any]] = {  # name -> fields of the config
    "gpt2": {},
    "llama": {},
    "qwen": {"qk_norm": True, "tie_embeddings": True},
    "mistral": {},  # with a window of half the context
    "moe": {"num_experts": 8},
    "nanochat": NANOCHAT,
}


def config_of(architecture: str, size: str, context_length: int, **fields: Any) -> Any:
    """Returns the config of a new model: a GPT2Config for "gpt2", otherwise a LlamaConfig.

    Args:
        architecture: a name in ARCHITECTURES.
        size: a name such as "demo", see `GPT2Config.sized`.
        context_length: the maximum number of positions.
        **fields: other fields of the config.

    Example:
        >>> mytorch.models.run_files.config_of("mistral", "demo", context_length=64).sliding_window
        32
    """
    fields = {"context_length": context_length, **fields, **ARCHITECTURES[architecture]}
    if architecture == "mistral":
        fields["sliding_window"] = max(1, context_length // 2)
    return (GPT2Config if architecture == "gpt2" else LlamaConfig).sized(size, **fields)


def model_of(meta: dict[str, Any], **changes: Any) -> Any:
    """Returns a new model with the config in a run's metadata. The weights are random.

    Args:
        meta: the metadata from `read_meta`.
        **changes: fields of the config to change, such as `fused`.
    """
    kind = GPT2 if meta.get("architecture", "gpt2") == "gpt2" else Llama
    return kind(kind.config_class.from_dict({**meta["model"], **changes}))


def is_run(path: str | Path) -> bool:
    """Returns True for the folder of a run of train_gpt2.py, or for one of its checkpoints."""
    return (Path(path) / _META).is_file()


def load_run(path: str | Path, **changes: Any) -> Any:
    """Returns the model of a run of train_gpt2.py, with its tokenizer. LoRA matrices are merged.

    Args:
        path: a checkpoint, or the folder of a run, of which the final or the newest checkpoint is used.
        **changes: fields of the config to change, such as `fused`.

    Raises:
        FileNotFoundError: there is no checkpoint with whole weights.
        ValueError: the weights belong to another model.
    """
    path = Path(path)
    numbered = sorted(path.glob("checkpoint_*"), key=lambda p: int(digits) if (digits := p.name[11:]).isdigit() else -1)
    folders = [path, path / "final_checkpoint", *reversed(numbered)]
    checkpoint = next((folder for folder in folders if (folder / _WEIGHTS).is_file()), None)
    if checkpoint is None:
        raise FileNotFoundError(
            f"from_pretrained: expected a checkpoint with {_WEIGHTS} in the run {path}, got none. A sharded run has one at its end."
        )
    meta = read_meta(checkpoint)
    model = model_of(meta, **changes)
    if (training := meta.get("training", {})).get("lora_r"):
        lora.inject(model, training["lora_target_modules"], training["lora_r"], training["lora_alpha"])
    try:
        model.load_state_dict(load_safetensors(checkpoint / _WEIGHTS))
    except RuntimeError as error:
        raise ValueError(
            f"from_pretrained: the weights in {checkpoint} are not those of its {_META}: {error}"
        ) from None
    lora.merge(model)
    for folder in (checkpoint, checkpoint.parent):
        if (folder / _TOKENIZER).is_file():
            with contextlib.suppress(ImportError):  # a tokenizer of a package that is not installed
                model.tokenizer = load_tokenizer(folder / _TOKENIZER)
            break
    return model


def save_fine_tuned(accelerator: Any, model: Any, folder: str | Path, base: str | None, adapter: bool) -> None:
    """Writes a trained model in Hugging Face's format, or its LoRA matrices in PEFT's format. All processes call it.

    The first process gathers and writes the weights of a sharded model.

    Args:
        accelerator: the Accelerator that has prepared the model.
        model: the GPT2 or Llama.
        folder: the folder of the run.
        base: name or path of the base model, for the adapter.
        adapter: write only the LoRA matrices.
    """
    weights = accelerator.get_state_dict(model) if accelerator.fsdp else None
    if not accelerator.is_main_process:
        return
    if weights is not None:
        whole = GPT2(model.config) if isinstance(model, GPT2) else Llama(model.config)
        if layers := dict(lora._layers(model)):
            one = next(iter(layers.values()))
            lora.inject(whole, list(layers), one.rank, one.alpha, one.dropout_p)
        whole.load_state_dict(weights)
        whole.tokenizer, model = model.tokenizer, whole
    if adapter:
        lora.save_adapter(model, Path(folder) / "adapter", base)
        accelerator.print(f"Saved the adapter in PEFT's format: {Path(folder) / 'adapter'}")
    else:
        model.save_pretrained(Path(folder) / "hugging_face")
        accelerator.print(f"Saved the model in Hugging Face's format: {Path(folder) / 'hugging_face'}")


def write_meta(folder: str | Path, meta: dict[str, Any], data: str | Path) -> None:
    """Writes the metadata of a run into a folder, and copies the tokenizer of the data if there is one.

    Args:
        folder: the folder, which is created if it is missing.
        meta: a dict with the keys "architecture", "model" (the fields of the config) and "training" (the flags).
        data: the folder of the training data.
    """
    folder, tokenizer = Path(folder), Path(data) / _TOKENIZER
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer.is_file():
        shutil.copyfile(tokenizer, folder / _TOKENIZER)
    write_json(folder / _META, meta)


def check_limits(config: Any, tokens: int, context_length: int, data: str | Path, source: str | Path) -> None:
    """Raises an error if token files or a context length exceed the limits of a pretrained model.

    Args:
        config: the model's configuration.
        tokens: vocabulary size of the token files.
        context_length: length of the training sequences.
        data: folder of the token files.
        source: path of the pretrained model.

    Raises:
        ValueError: the vocabulary or the context length of the model is smaller.
    """
    if tokens > config.vocab_size:
        raise ValueError(
            f"--path_to_data: expected at most {config.vocab_size} tokens, as in the model of --init_from, got {tokens} in {data}. "
            f"Prepare the text with --tokenizer {source}."
        )
    if context_length > config.context_length:
        raise ValueError(
            f"--context_length: expected at most {config.context_length}, as in the model of --init_from, got {context_length}."
        )


def read_meta(checkpoint: str | Path) -> dict[str, Any]:
    """Reads the metadata of a checkpoint. In older runs they are in the folder of the run.

    Args:
        checkpoint: directory of the checkpoint.

    Raises:
        FileNotFoundError: if there is no metadata.
    """
    checkpoint = Path(checkpoint)
    for folder in (checkpoint, checkpoint.parent):
        if (folder / _META).is_file():
            try:
                return dict(json.loads((folder / _META).read_text()))
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(f"read_meta: {folder / _META} is damaged ({error}).") from None
    raise FileNotFoundError(f"expected a checkpoint of train_gpt2.py, but {checkpoint / _META} is missing.")


def check_tokenizer(data: str | Path, checkpoint: str | Path) -> None:
    """Compares the tokenizer of a data folder with the tokenizer of a checkpoint, if both have one.

    Args:
        data: folder of the training data.
        checkpoint: directory of the checkpoint.

    Raises:
        ValueError: if the tokenizers differ.
    """
    ours, theirs = Path(data) / _TOKENIZER, Path(checkpoint) / _TOKENIZER
    if not (ours.is_file() and theirs.is_file()):
        return
    data_, run = (json.loads(file.read_text()) for file in (ours, theirs))
    if (characters(data_) or data_) != (characters(run) or run):  # characters have two formats
        raise ValueError(
            f"--path_to_data: expected data with the tokenizer of {checkpoint}, got another tokenizer in {data}."
        )
