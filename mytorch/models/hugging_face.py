"""A model's directory as Hugging Face writes it: config.json, and weights as safetensors, in one file or in shards."""

import importlib
import json
import re
from pathlib import Path

from ..files.writing import replace_directory
from ..serialization import load_safetensors, save_safetensors, write_json
from .tokenizer import save_tokenizer


def directory_of(name, who):
    """A model's directory: that of this name, or else what Hugging Face's hub has under it, brought by the hub's client to its cache.

    Raises:
        FileNotFoundError: there is neither.
    """
    path = Path(name)
    if path.exists() or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", str(name)):
        return path
    try:
        hub = importlib.import_module("huggingface_hub")
        return Path(
            hub.snapshot_download(str(name), allow_patterns=["config.json", "tokenizer.json", "model*.safetensors*"])
        )
    except ImportError:
        raise FileNotFoundError(f"{who}: there is no directory {name}. If it is a name on Hugging Face's hub, "
                                "install its client: pip install huggingface_hub.") from None  # fmt: skip
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{who}: {name} is no directory, and not had from Hugging Face's hub: {error}"
        ) from None


def read_json(path, who):
    """What `config.json` in a directory says, and its path.

    Raises:
        FileNotFoundError: there is none. ValueError: it is damaged.
    """
    file = path / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"{who}: {file} is missing; expected a Hugging Face model directory.")
    try:
        return dict(json.loads(file.read_text())), file
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{who}: {file} is damaged ({error}).") from None


def fields_of(values, table, file, who):
    """The fields of a config: `table` has, for each, (Hugging Face's name, the value where config.json leaves it out)."""
    if lacking := [name for name, default in table.values() if default is ... and name not in values]:
        raise ValueError(f"{who}: {file} does not say {', '.join(lacking)}.")
    return {field: values.get(name, default) for field, (name, default) in table.items()}


def check_options(values, supported, who):
    """Refuse options that a model has not: `supported` has the one value of each that it computes."""
    for option, usual in supported.items():
        if values.get(option, usual) != usual:
            raise ValueError(f"{who}: {option}={values[option]} is not supported; only {usual} is.")


def is_weights(name):
    """Whether a file in a model's directory holds weights, in one piece or in shards, or says which shard has which."""
    return re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?", name) is not None


def read_weights(path, who):
    """All tensors of `model.safetensors`, or of the shards that its index names.

    Raises:
        FileNotFoundError: a file is missing. ValueError: the index names one in another directory.
    """
    index = path / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{who}: {index} is damaged ({type(error).__name__}: {error}).") from None
    weights = {}
    for name in names:
        if Path(name).name != name:
            raise ValueError(f"{who}: {index} names {name!r}, which is not a file beside it.")
        if not (path / name).is_file():
            raise FileNotFoundError(f"{who}: {path / name} is missing.")
        weights.update(load_safetensors(path / name))
    return weights


def _shards(weights, limit):
    """The names of the weights, in lists of at most `limit` bytes each."""
    shards, room = [], 0
    for name, tensor in weights.items():
        size = tensor.numel() * tensor.element_size()
        if not shards or size > room:
            shards.append([])
            room = limit
        shards[-1].append(name)
        room -= size
    return shards


def write(path, weights, config, max_shard_size, tokenizer=None):
    """Make or replace a model's directory, in one step; files of other names in it stay."""
    size, shards = sum(x.numel() * x.element_size() for x in weights.values()), _shards(weights, max_shard_size)
    place = {}
    for i, names in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{i:05}-of-{len(shards):05}.safetensors"
        place.update(dict.fromkeys(names, file))

    def write_files(directory):
        for names in shards:
            part = {name: weights[name] for name in names}
            save_safetensors(part, directory / place[names[0]], metadata={"format": "pt"})
        if len(shards) > 1:
            index = {"metadata": {"total_size": size}, "weight_map": place}
            write_json(directory / "model.safetensors.index.json", index)
        write_json(directory / "config.json", config)
        if tokenizer is not None:
            save_tokenizer(tokenizer, directory / "tokenizer.json")

    replace_directory(path, write_files, size, is_weights)
