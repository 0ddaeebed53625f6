"""Model directories in Hugging Face's format: config.json, and safetensors weights in one or several files."""

import importlib
import json
import math
import re
from pathlib import Path

from ..files.serialization import load_safetensors, save_safetensors, write_json
from ..files.writing import atomic_write, replace_directory
from .tokenizer import ends


def directory_of(name, who):
    """Return a model's directory. If `name` is not a directory, download it from Hugging Face's hub to the cache.

    Raises:
        FileNotFoundError: if neither exists.
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
        raise FileNotFoundError(f"{who}: directory {name} does not exist. If it is a name on Hugging Face's hub, "
                                "run `pip install huggingface_hub`.") from None  # fmt: skip
    except (OSError, ValueError) as error:
        raise FileNotFoundError(f"{who}: {name} is not a directory, and Hugging Face's hub failed: {error}") from None


def read_json(path, who):
    """Return the contents of `config.json` in a directory, and its path.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the file is damaged.
    """
    file = path / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"{who}: expected a Hugging Face model directory, but {file} is missing.")
    try:
        return dict(json.loads(file.read_text())), file
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{who}: {file} is damaged ({error}).") from None


def fields_of(values, table, file, who):
    """Return the fields of a config; `table` maps each to (Hugging Face's name, default in config.json).

    The default determines the type: a bool, a float, or otherwise a positive integer.

    Raises:
        ValueError: if a required value is missing, or a value has a wrong type or sign.
    """
    if lacking := [name for name, default in table.values() if default is ... and name not in values]:
        raise ValueError(f"{who}: {file} lacks {', '.join(lacking)}.")
    return {field: value_of(values, name, default, file, who) for field, (name, default) in table.items()}


def value_of(values, name, default, file, who, least=1):
    """Return one value of config.json, checked like in `fields_of`.

    Args:
        values: contents of config.json.
        name: the key. `null` selects the default.
        default: the default; its type determines the expected type.
        file: path of config.json, for messages.
        who: name of the function, for messages.
        least: smallest integer.

    Raises:
        ValueError: if the value has a wrong type or sign.
    """
    value = values.get(name)
    if value is None and default is not ...:
        return default
    if isinstance(default, bool):
        valid, rule = isinstance(value, bool), "true or false"
    elif isinstance(default, float):
        valid, rule = is_number(value) and value >= 0, "a finite number that is not negative"
    else:
        valid, rule = type(value) is int and value >= least, f"an integer of at least {least}"
    if not valid:
        raise ValueError(f"{who}: expected {name} to be {rule} in {file}, got {value!r:.60}.")
    return value


def is_number(value):
    """Return True for a finite int or float."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond float64
        return False


MOST_WEIGHTS = 100_000


def check_shapes(expected, actual, who, source):
    """Compare the shapes of weights with a config before the model is created, which would need time and memory.

    Args:
        expected: iterable of (name, shape). It can be longer than memory allows, and is read up to the first difference.
        actual: dict of the name and shape of each weight.
        who: name of the function, for messages.
        source: the file or directory, for messages.

    Raises:
        RuntimeError: if a weight is missing, has another shape, or is not in the model; or if there are more than
            MOST_WEIGHTS.
    """
    if len(actual) > MOST_WEIGHTS:
        raise RuntimeError(f"{who}: expected at most {MOST_WEIGHTS:,} weights in {source}, got {len(actual):,}.")
    known = set()
    for name, shape in expected:
        if name not in actual:
            raise RuntimeError(f"{who}: {source} has no weight {name}, which the config requires.")
        if tuple(actual[name]) != tuple(shape):
            raise RuntimeError(
                f"{who}: expected {name} of shape {tuple(shape)} according to the config, got {tuple(actual[name])} "
                f"in {source}."
            )
        known.add(name)
    if extra := [name for name in actual if name not in known]:
        raise RuntimeError(f"{who}: the model has no weight {extra[0]}, which is in {source}.")


def check_options(values, supported, who):
    """Raise an error for unsupported options; `supported` maps each option to its only supported value."""
    for option, usual in supported.items():
        if values.get(option, usual) != usual:
            raise ValueError(f"{who}: expected {option}={usual}, got {values[option]}, which is not supported.")


def is_weights(name):
    """Return True for a weight file of a model directory: all weights, a shard, or the index of shards."""
    return re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?", name) is not None


def read_weights(path, who):
    """Return all tensors of `model.safetensors`, or of the shards in its index.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the index names a file in another directory.
    """
    index = path / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        try:
            names = sorted(set(map(_file_name, json.loads(index.read_text())["weight_map"].values())))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{who}: {index} is damaged ({type(error).__name__}: {error}).") from None
    weights = {}
    for name in names:
        if Path(name).name != name or "\0" in name:
            raise ValueError(f"{who}: {index} names {name!r}, which is not a file in the same directory.")
        if not (path / name).is_file():
            raise FileNotFoundError(f"{who}: {path / name} is missing.")
        weights.update(load_safetensors(path / name))
    return weights


def _file_name(value):
    if not isinstance(value, str):
        raise TypeError(f"expected the name of a file in weight_map, got {value!r:.60}")
    return value


def _shards(weights, limit):
    """Split the names of the weights into lists of at most `limit` bytes each."""
    shards, room = [], 0
    for name, tensor in weights.items():
        size = tensor.numel() * tensor.element_size()
        if not shards or size > room:
            shards.append([])
            room = limit
        shards[-1].append(name)
        room -= size
    return shards


# Without the class, transformers would choose the tokenizer that is usual for the architecture.
_TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}


def write(path, weights, config, max_shard_size, tokenizer=None):
    """Create or replace the files of a model directory atomically; other files remain."""
    size, shards = sum(x.numel() * x.element_size() for x in weights.values()), _shards(weights, max_shard_size)
    # Without these numbers, transformers would end a text at the token that is usual for the architecture.
    marks = ends(tokenizer)
    config = {**config, **{f"{key}_token_id": marks.get(key, (None, None))[1] for key in ("bos", "eos")}}
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
            described = getattr(tokenizer, "to_hugging_face", tokenizer.to_dict)()
            atomic_write(directory / "tokenizer.json", json.dumps(described).encode())
            names = {f"{key}_token": name for key, (name, _) in marks.items()}
            write_json(directory / "tokenizer_config.json", {**_TOKENIZER_CONFIG, **names})

    replace_directory(path, write_files, size, is_weights)
