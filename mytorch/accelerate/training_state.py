"""Checkpoints: directories of weights, optimizers, schedulers, scaler, random states and loaders' positions.

A checkpoint is written to a temporary directory and renamed when complete, so a partial checkpoint never exists. Its
last file, the manifest, contains the size and checksum of every other file. Loading validates all files and all
changes before it applies the first change. The file names follow Hugging Face Accelerate (`model.safetensors`,
`optimizer.bin`); the contents are safetensors and JSON.
"""

import contextlib
import copy
import json
import math
import os
import random
import re
import sys
import time
import zlib
from pathlib import Path

import numpy as np

from ..arrays.array import Array
from ..arrays.errors import warn
from ..arrays.tensor import Tensor
from ..files.limits import check_regular
from ..files.serialization import load_content, save_state_dict, save_tree, write_json
from ..files.writing import clean_up, recover, remove_directory
from ..files.writing import replace_directory as replace
from ..nn.parameter import is_lazy
from ..ops.random import get_rng_state, gpu_states, set_gpu_states, set_rng_state
from ..utils._pytree import tree_leaves

META = "accelerator.json"  # written last: its presence marks a complete checkpoint
VERSION = 1


def numbered(stem, i, suffix):
    """Return the name of the i-th file of a kind; the first has no number."""
    return f"{stem}{f'_{i}' if i else ''}{suffix}"


# -- directories ----------------------------------------------------------------------------------


_OURS = re.compile(
    r"(model|optimizer|scheduler|dataloader|random_states|custom_checkpoint|rank)(_\d+)*\.(bin|safetensors)|mp_config\.bin|"
    r"objects\.bin|index\.json|" + re.escape(META)
)


def replace_directory(path, write, size=0):
    """Create or replace a checkpoint with the files of `write(directory)`, at least `size` bytes; see `files.writing`."""
    replace(path, write, size, _OURS.fullmatch, lambda text: print(text, file=sys.stderr, flush=True))


def is_complete(path: str | Path) -> bool:
    """Returns True if `path` is a complete checkpoint.

    Args:
        path: a directory.
    """
    return (Path(path) / META).is_file()


def read_manifest(directory: str | Path) -> dict:
    """Return the manifest of a checkpoint; empty if it has none.

    Raises:
        ValueError: if the manifest is damaged, or from a later version.
    """
    path = Path(directory) / META
    if not path.is_file():
        return {}
    try:
        meta = json.loads(path.read_bytes())
        version = meta.get("version", VERSION)
        numbers = [meta.get(k, 0) for k in ("time", "micro_steps", "processes", "sequence")]
        numbers += [meta.get("accumulation") or 0, version]
        if not all(isinstance(x, (int, float)) and math.isfinite(x) for x in numbers):
            raise ValueError("expected finite numbers")
        if not isinstance(meta.get("files", {}), (list, dict)):
            raise ValueError("expected a list or dict of files")
    except (AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"load_state: {path} is damaged ({str(error)[:200]}).") from None
    if version > VERSION:
        raise ValueError(f"load_state: expected version {VERSION} or earlier, got version {version} in {directory}.")
    return meta


def saved_at(path: str | Path) -> float:
    """Returns the time of a complete checkpoint, in seconds since the epoch.

    Args:
        path: the checkpoint.
    """
    return read_manifest(path).get("time", 0.0)


def _order(path):
    """Return the sort key of checkpoints: number of steps, order of saving, and time.

    Raises:
        ValueError: if the manifest is damaged.
    """
    meta = read_manifest(path)
    return meta.get("micro_steps", 0) // max(meta.get("accumulation") or 1, 1), *_turn(meta)


def steps_of(checkpoint: str | Path) -> int:
    """Returns the number of steps that a checkpoint contains."""
    return int(_order(Path(checkpoint))[0])


def _turn(meta):
    """Return the order of saving; for checkpoints of older versions, the time."""
    return meta.get("sequence", 0), meta.get("time", 0.0)


def _next_in_sequence(directory):
    """Return a number above the order of all checkpoints next to `directory`; the clock may be wrong."""
    return 1 + max((_manifest_or_none(path).get("sequence", 0) for path in directory.parent.iterdir()), default=0)


def _manifest_or_none(path):
    try:
        return read_manifest(path)
    except (OSError, ValueError):
        return {}


def newest_checkpoint(directory: str | Path) -> Path | None:
    """Returns the checkpoint in a directory with the most steps, or None.

    Damaged checkpoints are skipped with a warning. Remains of interrupted writes are removed.
    """
    directory, found = Path(directory), []
    clean_up(directory)
    if not directory.is_dir():
        return None
    for old in sorted(directory.glob(".*.old")):
        recover(old.with_name(old.name[1 : -len(".old")]))
    for path in filter(is_complete, directory.iterdir()):
        try:
            found.append((*_order(path), path))
        except ValueError as error:
            warn(f"newest_checkpoint: skipped {path}: {error}")
    for *_, path in sorted(found, reverse=True):
        try:
            verify(path)
            return path
        except (OSError, ValueError) as error:
            warn(f"newest_checkpoint: skipped {path}: {error}")
    return None


def keep_newest(path: str | Path, limit: int) -> None:
    """Removes old checkpoints whose names differ from `path` only in the number.

    Args:
        path: checkpoint to keep.
        limit: total number of checkpoints to keep.
    """
    path = Path(path)
    name = re.compile(re.escape(re.sub(r"\d+$", "", path.name)) + r"\d+")
    if not name.fullmatch(path.name):
        return
    others = [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name) and is_complete(entry)]
    others = sorted((x for x in others if x.name != path.name), key=lambda x: _turn(_manifest_or_none(x)))
    for old in others[: len(others) - limit + 1]:
        remove_directory(old)


# -- checksums ------------------------------------------------------------------------------------

_ROW = 1 << 16  # bytes
_BLOCK = 64 * _ROW  # 4 MiB, which fits the cache


def checksum(blocks):
    """Compute a checksum of uint8 arrays, each of _BLOCK bytes except the last, at memory speed.

    Each block is a square of 64-bit integers. The checksum is the CRC-32 of the sums of its rows and columns. Every
    change of fewer than four integers changes it.
    """
    crc = 0
    for block in blocks:
        whole = block.size // _ROW * _ROW
        words = block[:whole].view("<u8").reshape(-1, _ROW // 8)
        for axis in (0, 1):
            crc = zlib.crc32(np.add.reduce(words, axis, dtype=np.uint64), crc)
        crc = zlib.crc32(block[whole:], crc)
    return f"sums:{crc:08x}"


def _in_blocks(content):
    return (content[start : start + _BLOCK] for start in range(0, content.size, _BLOCK))


def _blocks_of(path):
    """Yield the blocks of a file; all use the same memory."""
    memory = np.empty(_BLOCK, np.uint8)
    with open(path, "rb") as file:
        while n := file.readinto(memory):
            yield memory[:n]


def _record(path):
    return {"size": path.stat().st_size, "checksum": checksum(_blocks_of(path))}


def _check(path, record, size, blocks):
    """Compare a file with its record in the manifest.

    Raises:
        ValueError: if they differ.
    """
    if size != record.get("size", size):
        raise ValueError(f"load_state: {path} is damaged: expected {record['size']:,} bytes, got {size:,}.")
    if record.get("checksum", "").startswith("sums:") and checksum(blocks) != record["checksum"]:
        raise ValueError(f"load_state: {path} is damaged: its checksum does not match.")


def _records(meta):
    files = meta.get("files", {})  # older checkpoints list only names
    records = files if isinstance(files, dict) else {name: {} for name in files if isinstance(name, str)}
    return {name: record for name, record in records.items() if Path(name).name == name and isinstance(record, dict)}


def verify(directory: str | Path) -> None:
    """Compares a checkpoint's files with its manifest.

    Args:
        directory: the checkpoint.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file has changed.
    """
    directory = Path(directory)
    for name, record in _records(read_manifest(directory)).items():
        path = _expect(directory, name)
        _check(path, record, path.stat().st_size, _blocks_of(path))


# -- random states --------------------------------------------------------------------------------


def random_states():
    """Return the states of the random generators of the library, NumPy and Python."""
    return {
        "mytorch": get_rng_state(),
        "cuda": gpu_states(),
        "numpy": np.random.get_state(legacy=False),
        "python": random.getstate(),
    }


def set_random_states(states):
    """Restore the states that `random_states` returned."""
    set_rng_state(states["mytorch"])
    set_gpu_states(states.get("cuda", {}))  # older files have none
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])


# -- contents -------------------------------------------------------------------------------------


def collect(accelerator):
    """Gather the state that exists once per process: random states and loaders' positions."""
    for optimizer in accelerator._optimizers:
        inner = getattr(optimizer, "optimizer", optimizer)
        if hasattr(inner, "consolidate_state_dict"):  # a ZeroRedundancyOptimizer
            inner.consolidate_state_dict(to=0)
    mine = {"random": random_states(), "loaders": [loader.state_dict() for loader in accelerator._loaders]}
    return accelerator.state.gather_objects(mine)


def dataloader_file(i, rank):
    """Return the file name of the i-th loader's position in a process."""
    return f"dataloader_{i}_{rank}.bin" if rank else f"dataloader_{i}.bin"


def _steppers(accelerator):
    """Yield (optimizer or scheduler, its file)."""
    for kind, things in (("optimizer", accelerator._optimizers), ("scheduler", accelerator._schedulers)):
        yield from ((thing, numbered(kind, i, ".bin")) for i, thing in enumerate(things))


def _custom(accelerator):
    """Yield (registered object, its file)."""
    return ((thing, f"custom_checkpoint_{i}.bin") for i, thing in enumerate(accelerator._custom))


def write_state(accelerator, directory, ranks):
    """Write the files that `read_state` reads.

    Args:
        directory: directory to write to.
        ranks: result of `collect`; None saves only the weights.
    """
    states = [model.state_dict() for model in accelerator._models]
    for hook in accelerator._save_hooks:
        hook(accelerator._models, states, directory)
    for i, state in enumerate(states):
        save_state_dict(state, directory / numbered("model", i, ".safetensors"))
    if ranks is not None:
        for thing, name in (*_steppers(accelerator), *_custom(accelerator)):
            save_tree(thing.state_dict(), directory / name)
        if accelerator.half is not None:
            scaling = {} if accelerator.scaler is None else accelerator.scaler.state_dict()
            save_tree({"mixed_precision": accelerator.mixed_precision, **scaling}, directory / "mp_config.bin")
        for rank, own in enumerate(ranks):
            save_tree(own["random"], directory / f"random_states_{rank}.bin")
            for i, position in enumerate(own["loaders"]):
                save_tree(position, directory / dataloader_file(i, rank))
    meta = {
        "version": VERSION,
        "time": time.time(),
        "sequence": _next_in_sequence(directory),
        "model_only": ranks is None,
        "micro_steps": accelerator.step_counter,
        "accumulation": accelerator.gradient_accumulation_steps,
        "processes": accelerator.num_processes,
        "files": {entry.name: _record(entry) for entry in sorted(directory.iterdir()) if entry.is_file()},
    }
    write_json(directory / META, meta)


def read_state(accelerator, directory):
    """Restore the state that `write_state` wrote. If an error occurs, nothing is changed.

    Raises:
        FileNotFoundError: if the directory or a file in it is missing.
        ValueError: if a file is damaged, or the checkpoint is from a later version.
        RuntimeError: if the weights belong to a different model.
    """
    directory = Path(os.path.abspath(directory))
    recover(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"load_state: the directory {directory} does not exist.")
    meta = read_manifest(directory)
    records = _records(meta)

    def read(name):
        path = _expect(directory, name)
        check_regular(path, "load_state")
        content = np.fromfile(path, np.uint8)
        _check(path, records.get(name, {}), content.size, _in_blocks(content))
        return load_content(content, str(path))

    changes = [(model, read(numbered("model", i, ".safetensors"))) for i, model in enumerate(accelerator._models)]
    for model, weights in changes:
        _check_weights(model, weights, directory)
    if meta.get("model_only"):
        _apply(changes)
        return
    before = meta.get("processes", 1)
    if before != accelerator.num_processes:
        accelerator.print(
            f"load_state: the checkpoint was saved by {before} processes, and now there are {accelerator.num_processes}. The "
            "position in the data is restored; the random generators are not."
        )
    mine = before == accelerator.num_processes
    rest = [(thing, read(name)) for thing, name in (*_custom(accelerator), *_steppers(accelerator))]
    for i, loader in enumerate(accelerator._loaders):
        name = dataloader_file(i, accelerator.rank if mine else 0)
        rest.append((loader, _expect_dict(read(name), directory / name)))
    if accelerator.scaler is not None:
        scaling = _expect_dict(read("mp_config.bin"), directory / "mp_config.bin")
        saved_in = scaling.pop("mixed_precision", "fp16")
        if saved_in != "fp16":
            raise ValueError(
                f"load_state: {directory} was saved in {saved_in} and has no loss scale. Use mixed_precision={saved_in!r}."
            )
        rest.append((accelerator.scaler, scaling))
    if mine:
        name = f"random_states_{accelerator.rank}.bin"
        rest.append((_RandomStates(), _expect_dict(read(name), directory / name)))
    _apply(rest + changes)  # weights last, when no other error can occur
    _align(accelerator, meta.get("micro_steps", 0), meta.get("accumulation"))


class _RandomStates:
    """The random generators as an object with a state dict."""

    def state_dict(self):
        return random_states()

    def load_state_dict(self, state):
        set_random_states(state)


def _expect_dict(state, path):
    if not isinstance(state, dict):
        raise ValueError(f"load_state: expected a dict in {path}, got {type(state).__name__}.")
    return state


def _check_weights(model, weights, directory):
    """Check that a model can load the weights; skipped for a model that renames its weights.

    Raises:
        RuntimeError: if names or shapes differ, or the saved object is not a dict.
    """
    _expect_dict(weights, directory)
    if any(module._load_state_dict_pre_hooks for module in model.modules()):
        return
    own = model.state_dict()
    wrong = [f"{name} is missing" for name in own.keys() - weights.keys()]
    wrong += [f"{name} is unexpected" for name in weights.keys() - own.keys()]
    for name in own.keys() & weights.keys():
        ours, theirs = (getattr(state[name], "shape", None) for state in (own, weights))
        if isinstance(own[name], Tensor) and not is_lazy(own[name]) and ours != theirs and (ours, theirs) != ((), (1,)):
            wrong.append(f"size mismatch for {name}: {tuple(theirs)} in the checkpoint, {tuple(ours)} in the model")
    if wrong:
        listed = "; ".join(sorted(wrong)[:20])
        raise RuntimeError(f"load_state: {directory} belongs to a different model; nothing was loaded: {listed}.")


def _apply(changes):
    """Load the state of each object; if one fails, restore the old state of all."""
    undo = []
    try:
        for thing, state in changes:
            if not hasattr(thing, "named_parameters"):  # weights were checked; a copy would double their memory
                # loading replaces an optimizer's tensors
                duplicate = copy.copy if hasattr(thing, "param_groups") else copy.deepcopy
                undo.append((thing, duplicate(thing.state_dict())))
            thing.load_state_dict(state)
    except BaseException as error:
        for thing, state in reversed(undo):
            with contextlib.suppress(Exception):
                thing.load_state_dict(state)
        if isinstance(error, (AttributeError, KeyError, IndexError, TypeError)):  # a state in another format
            kind = type(thing).__name__
            raise ValueError(
                f"load_state: expected a saved state of a {kind}, got another object ({type(error).__name__}: {error})."
            ) from error
        raise


def _align(accelerator, done, accumulation):
    """Adjust the count of backward passes so that the next one starts a step."""
    now = accelerator.gradient_accumulation_steps
    accumulation = accumulation or now  # missing in older files
    if done % accumulation:
        accelerator.print(
            f"load_state: the checkpoint was saved within a step, after {done % accumulation} of {accumulation} backward "
            "passes. It does not contain their gradients, so a new step starts."
        )
    accelerator.step_counter = done // accumulation * now


def least_size(accelerator, ranks):
    """Return the number of bytes of all arrays that `write_state` writes, without names and numbers."""
    states = [] if accelerator._save_hooks else [x for m in accelerator._models for x in tree_leaves(m.state_dict())]
    steppers = (
        [] if ranks is None else [thing.state_dict() for thing, _ in (*_steppers(accelerator), *_custom(accelerator))]
    )
    once = {id(getattr(x, "_mt_data", x)): x for x in tree_leaves([steppers, ranks])}.values()
    return sum(x.nbytes for x in (*states, *once) if isinstance(x, (Tensor, Array, np.ndarray)))


def _expect(directory, name):
    path = directory / name
    if not path.is_file():
        how = "Prepare the same objects with the same precision as when it was saved."
        if (directory / "index.json").is_file():
            how = "The checkpoint is sharded: load it with Accelerator(fsdp=True)."
        raise FileNotFoundError(f"load_state: {path} is missing. {how}")
    return path
