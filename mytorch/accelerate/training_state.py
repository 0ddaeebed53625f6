"""A checkpoint is a directory: weights, optimizers, schedules, scaler, random states, loaders' positions.

It is written next to its place and takes it in one step when complete, so there is never half of one. Its last file,
the manifest, has the size and checksum of every other; loading reads and checks all of them, and what they would change,
before it changes anything. The names are those of the texts that promise them (`model.safetensors`, `optimizer.bin`,
`mp_config.bin`); the content is safetensors and JSON throughout.
"""

import contextlib
import copy
import json
import math
import os
import random
import re
import shutil
import sys
import time
import zlib
from pathlib import Path

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..base.errors import warn
from ..base.pytree import tree_leaves
from ..files.writing import clean_up, recover
from ..files.writing import replace_directory as replace
from ..nn.parameter import is_lazy
from ..ops.random import get_rng_state, gpu_states, set_gpu_states, set_rng_state
from ..serialization import load_content, save_state_dict, save_tree, write_json

META = "accelerator.json"  # written last: a directory that has it is complete
VERSION = 1


def numbered(stem, i, suffix):
    """The name of the i-th file of a kind; the first has no number."""
    return f"{stem}{f'_{i}' if i else ''}{suffix}"


# -- directories ----------------------------------------------------------------------------------


_OURS = re.compile(
    r"(model|optimizer|scheduler|dataloader|random_states|custom_checkpoint)(_\d+)*\.(bin|safetensors)|mp_config\.bin|"
    + re.escape(META)
)


def replace_directory(path, write, size=0):
    """Make or replace a checkpoint by what `write(directory)` writes, at least `size` bytes; see `files.writing`."""
    replace(path, write, size, _OURS.fullmatch, lambda text: print(text, file=sys.stderr, flush=True))


def is_complete(path: str | Path) -> bool:
    """Whether `path` is a directory that `save_state` has finished."""
    return (Path(path) / META).is_file()


def read_manifest(directory: str | Path) -> dict:
    """What a checkpoint says of itself; empty where it has no manifest.

    Raises:
        ValueError: the manifest is damaged, or of a later version.
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
            raise ValueError("a number is none")
        if not isinstance(meta.get("files", {}), (list, dict)):
            raise ValueError("its files are no table")
    except (AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"load_state: {path} is damaged ({str(error)[:200]}).") from None
    if version > VERSION:
        raise ValueError(f"load_state: {directory} was written by a later version of mytorch.")
    return meta


def saved_at(path: str | Path) -> float:
    """When a complete checkpoint was saved, in seconds since the epoch."""
    return read_manifest(path).get("time", 0.0)


def _order(path):
    """What checkpoints are ordered by: steps done, then which was saved after which, and only then the clock.

    Raises:
        ValueError: the manifest is damaged.
    """
    meta = read_manifest(path)
    return meta.get("micro_steps", 0) // max(meta.get("accumulation") or 1, 1), *_turn(meta)


def _turn(meta):
    """When a checkpoint was saved: counted, and, for older ones that are not, by the clock."""
    return meta.get("sequence", 0), meta.get("time", 0.0)


def _next_in_sequence(directory):
    """A number higher than that of any checkpoint beside `directory`, so that no clock is needed to tell their order."""
    return 1 + max((_manifest_or_none(path).get("sequence", 0) for path in directory.parent.iterdir()), default=0)


def _manifest_or_none(path):
    try:
        return read_manifest(path)
    except (OSError, ValueError):
        return {}


def newest_checkpoint(directory: str | Path) -> Path | None:
    """The checkpoint in a directory that is the furthest in training, whatever the clock said; None if there is none.

    Damaged ones are named in a warning and passed over; what killed writers left half-written is removed.
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
            warn(f"{path} is passed over: {error}")
    for *_, path in sorted(found, reverse=True):
        try:
            verify(path)
            return path
        except (OSError, ValueError) as error:
            warn(f"{path} is passed over: {error}")
    return None


def keep_newest(path: str | Path, limit: int) -> None:
    """Of the checkpoints named like `path`, but with other numbers, keep it and those saved last, `limit` in all."""
    path = Path(path)
    name = re.compile(re.escape(re.sub(r"\d+$", "", path.name)) + r"\d+")
    if not name.fullmatch(path.name):
        return
    others = [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name) and is_complete(entry)]
    others = sorted((x for x in others if x.name != path.name), key=lambda x: _turn(_manifest_or_none(x)))
    for old in others[: len(others) - limit + 1]:
        shutil.rmtree(old)


# -- checksums ------------------------------------------------------------------------------------

_ROW = 1 << 16  # bytes
_BLOCK = 64 * _ROW  # what is in the cache at once


def checksum(blocks):
    """A checksum of a sequence of uint8 arrays, each of _BLOCK bytes but the last, as quick as memory.

    Each block is a square of 64-bit words; the checksum is CRC-32 of the sums of its rows and of its columns, which any
    change of fewer than four words alters.
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
    """The blocks of a file, one after the other in the same memory."""
    memory = np.empty(_BLOCK, np.uint8)
    with open(path, "rb") as file:
        while n := file.readinto(memory):
            yield memory[:n]


def _record(path):
    return {"size": path.stat().st_size, "checksum": checksum(_blocks_of(path))}


def _check(path, record, size, blocks):
    """Compare a file with its record.

    Raises:
        ValueError: it is another.
    """
    if size != record.get("size", size):
        raise ValueError(f"load_state: {path} is damaged: it has {size:,} bytes, and {record['size']:,} were written.")
    if record.get("checksum", "").startswith("sums:") and checksum(blocks) != record["checksum"]:
        raise ValueError(f"load_state: {path} is damaged: its checksum is not that of what was written.")


def _records(meta):
    files = meta.get("files", {})  # an older checkpoint has their names alone
    records = files if isinstance(files, dict) else {name: {} for name in files if isinstance(name, str)}
    return {name: record for name, record in records.items() if Path(name).name == name and isinstance(record, dict)}


def verify(directory: str | Path) -> None:
    """Compare a checkpoint's files with its manifest.

    Raises:
        FileNotFoundError: one is missing. ValueError: one has changed since.
    """
    directory = Path(directory)
    for name, record in _records(read_manifest(directory)).items():
        path = _expect(directory, name)
        _check(path, record, path.stat().st_size, _blocks_of(path))


# -- random states --------------------------------------------------------------------------------


def random_states():
    """Where the library's, NumPy's and Python's generators are."""
    return {
        "mytorch": get_rng_state(),
        "cuda": gpu_states(),
        "numpy": np.random.get_state(legacy=False),
        "python": random.getstate(),
    }


def set_random_states(states):
    """Continue from what `random_states` returned."""
    set_rng_state(states["mytorch"])
    set_gpu_states(states.get("cuda", {}))  # an older file has none
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])


# -- what is in it --------------------------------------------------------------------------------


def collect(accelerator):
    """What only the processes themselves know, of all of them: random states and loaders' positions."""
    for optimizer in accelerator._optimizers:
        inner = getattr(optimizer, "optimizer", optimizer)
        if hasattr(inner, "consolidate_state_dict"):  # its state is spread over the processes
            inner.consolidate_state_dict(to=0)
    mine = {"random": random_states(), "loaders": [loader.state_dict() for loader in accelerator._loaders]}
    return accelerator.state.gather_objects(mine)


def dataloader_file(i, rank):
    """The name of the i-th loader's position in a process."""
    return f"dataloader_{i}_{rank}.bin" if rank else f"dataloader_{i}.bin"


def _steppers(accelerator):
    """(optimizer or schedule, its file)."""
    for kind, things in (("optimizer", accelerator._optimizers), ("scheduler", accelerator._schedulers)):
        yield from ((thing, numbered(kind, i, ".bin")) for i, thing in enumerate(things))


def _custom(accelerator):
    """(registered object, its file)."""
    return ((thing, f"custom_checkpoint_{i}.bin") for i, thing in enumerate(accelerator._custom))


def write_state(accelerator, directory, ranks):
    """Write everything that `read_state` restores.

    Args:
        ranks: what `collect` gave; None for the weights alone.
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
    """Restore what `write_state` wrote: all of it, or nothing.

    Raises:
        FileNotFoundError: the directory, or a file in it, is missing.
        ValueError: a file is damaged, or the checkpoint is of a later version.
        RuntimeError: the weights are of another model.
    """
    directory = Path(os.path.abspath(directory))
    recover(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"load_state: there is no directory {directory}.")
    meta = read_manifest(directory)
    records = _records(meta)

    def read(name):
        path = _expect(directory, name)
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
            f"The checkpoint is of {before} processes, and there are {accelerator.num_processes}: the data goes on where it was, "
            "random generators are not restored."
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
                f"load_state: {directory} was saved in {saved_in} and has no loss scale; load it with mixed_precision={saved_in!r}."
            )
        rest.append((accelerator.scaler, scaling))
    if mine:
        name = f"random_states_{accelerator.rank}.bin"
        rest.append((_RandomStates(), _expect_dict(read(name), directory / name)))
    _apply(rest + changes)  # the weights last: nothing else can go wrong then
    _align(accelerator, meta.get("micro_steps", 0), meta.get("accumulation"))


class _RandomStates:
    """The random generators, as something with a state dict."""

    def state_dict(self):
        return random_states()

    def load_state_dict(self, state):
        set_random_states(state)


def _expect_dict(state, path):
    if not isinstance(state, dict):
        raise ValueError(f"load_state: {path} holds a {type(state).__name__}; expected a dict.")
    return state


def _check_weights(model, weights, directory):
    """Whether a model's `load_state_dict` would take the weights; one that changes names itself is not asked.

    Raises:
        RuntimeError: names or shapes that don't match, or what was saved is no dict.
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
        raise RuntimeError(f"load_state: {directory} is of another model, and nothing was loaded: {listed}.")


def _apply(changes):
    """Give each object its state; if one can't take it, give those before, and it, their old ones back."""
    undo = []
    try:
        for thing, state in changes:
            if not hasattr(thing, "named_parameters"):  # a model's weights were checked, and a copy would be as large
                # loading puts new tensors in the place of an optimizer's old ones
                duplicate = copy.copy if hasattr(thing, "param_groups") else copy.deepcopy
                undo.append((thing, duplicate(thing.state_dict())))
            thing.load_state_dict(state)
    except BaseException as error:
        for thing, state in reversed(undo):
            with contextlib.suppress(Exception):
                thing.load_state_dict(state)
        if isinstance(error, (AttributeError, KeyError, IndexError, TypeError)):  # a state of another form
            kind = type(thing).__name__
            raise ValueError(
                f"load_state: the state saved for a {kind} is not one ({type(error).__name__}: {error})."
            ) from error
        raise


def _align(accelerator, done, accumulation):
    """Set the count of backward passes such that the next one begins a step, whatever the number of them was."""
    now = accelerator.gradient_accumulation_steps
    accumulation = accumulation or now  # an older file does not say
    if done % accumulation:
        accelerator.print(
            f"The checkpoint was saved within a step, after {done % accumulation} of {accumulation} backward passes; their "
            "gradients are not in it, and a new step begins."
        )
    accelerator.step_counter = done // accumulation * now


def least_size(accelerator, ranks):
    """The bytes of every array that `write_state` writes, to which names and numbers come; hooks may take weights away."""
    states = [] if accelerator._save_hooks else [x for m in accelerator._models for x in tree_leaves(m.state_dict())]
    steppers = (
        [] if ranks is None else [thing.state_dict() for thing, _ in (*_steppers(accelerator), *_custom(accelerator))]
    )
    once = {id(getattr(x, "_data", x)): x for x in tree_leaves([steppers, ranks])}.values()
    return sum(x.nbytes for x in (*states, *once) if isinstance(x, (Tensor, Array, np.ndarray)))


def _expect(directory, name):
    path = directory / name
    if not path.is_file():
        raise FileNotFoundError(
            f"load_state: {path} is missing; prepare the same objects, with the same precision, as when it was saved."
        )
    return path
