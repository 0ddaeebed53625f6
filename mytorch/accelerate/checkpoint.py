"""A checkpoint is a directory: weights, optimizers, schedules, scaler, random states, loaders' positions.

It is written next to its place and renamed when complete, so there is never half of one. The names are those
of the texts that promise them (`model.safetensors`, `optimizer.bin`, `mp_config.bin`); the content is
safetensors and JSON throughout.
"""

import errno
import json
import os
import random
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from ..base.pytree import tree_leaves
from ..ops.random import get_rng_state, gpu_states, set_gpu_states, set_rng_state
from ..serialization import load, load_safetensors, save_state_dict, save_tree, sync_directory, write_json
from ..tensor import Tensor

META = "accelerator.json"  # written last: a directory that has it is complete
VERSION = 1


def numbered(stem, i, suffix):
    """The name of the i-th file of a kind; the first has no number."""
    return f"{stem}{f'_{i}' if i else ''}{suffix}"


# -- directories ----------------------------------------------------------------------------------


def _old(path):
    return path.with_name(f".{path.name}.old")


def recover(path):
    """Put back what a crash in the middle of `replace_directory` has left under another name."""
    if not path.exists() and _old(path).is_dir():
        os.rename(_old(path), path)


WAITS = (2, 5, 10)  # seconds before a checkpoint is tried again that found the disk full


def _write_when_there_is_room(write, partial, path, size):
    """Make `partial` and write into it, again after a moment while the disk is full.

    Raises:
        OSError: it stays full; the message has path and size.
    """
    for wait in (*WAITS, None):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            return write(partial)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            shutil.rmtree(partial, ignore_errors=True)
            free = shutil.disk_usage(path.parent).free
            full = f"The disk is full: {path} needs about {size / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free."
            if wait is None:
                raise OSError(f"{full} What was saved before is as it was.") from None
            print(f"{full} Trying again in {wait} s.", file=sys.stderr, flush=True)
            time.sleep(wait)


def replace_directory(path, write, size=0):
    """Make or replace the directory `path` by what `write(directory)` writes; never half of it is seen.

    Files in it that are not of this module's making are kept, unless `write` makes them. A full disk is tried again a
    few times; `size`, in bytes, is for its message.
    """
    path = Path(os.path.abspath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    recover(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        _write_when_there_is_room(write, partial, path, size)
        sync_directory(partial)
        if path.exists():
            old = _old(path)
            shutil.rmtree(old, ignore_errors=True)
            os.rename(path, old)
            os.rename(partial, path)
            for entry in old.iterdir():
                if not _is_ours(entry.name) and not (path / entry.name).exists():
                    os.rename(entry, path / entry.name)
            shutil.rmtree(old)
        else:
            os.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        recover(path)
        raise
    sync_directory(path.parent)


_OURS = re.compile(
    r"(model|optimizer|scheduler|dataloader|random_states|custom_checkpoint)(_\d+)*\.(bin|safetensors)|mp_config\.bin|"
    + re.escape(META)
)


def _is_ours(name):
    return _OURS.fullmatch(name) is not None


def is_complete(path: str | Path) -> bool:
    """Whether `path` is a directory that `save_state` has finished."""
    return (Path(path) / META).is_file()


def saved_at(path: str | Path) -> float:
    """When a complete checkpoint was saved, in seconds since the epoch."""
    return json.loads((Path(path) / META).read_text())["time"]


def newest_checkpoint(directory: str | Path) -> Path | None:
    """The complete checkpoint in a directory that was saved last, or None."""
    directory = Path(directory)
    found = [entry for entry in directory.iterdir() if is_complete(entry)] if directory.is_dir() else []
    return max(found, key=saved_at, default=None)


def keep_newest(path: str | Path, limit: int) -> None:
    """Of the checkpoints named like `path`, but with other numbers at the end, keep the `limit` saved last."""
    path = Path(path)
    name = re.compile(re.escape(re.sub(r"\d+$", "", path.name)) + r"\d+")
    if not name.fullmatch(path.name):
        return
    found = [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name) and is_complete(entry)]
    for old in sorted(found, key=saved_at)[: -limit or None]:
        shutil.rmtree(old)


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
        "model_only": ranks is None,
        "micro_steps": accelerator.step_counter,
        "accumulation": accelerator.gradient_accumulation_steps,
        "processes": accelerator.num_processes,
        "files": sorted(entry.name for entry in directory.iterdir()),
    }
    write_json(directory / META, meta)


def read_state(accelerator, directory):
    """Restore what `write_state` wrote.

    Raises:
        FileNotFoundError: the directory, or a file in it, is missing.
        ValueError: it was written by a later version.
    """
    directory = Path(os.path.abspath(directory))
    recover(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"load_state: there is no directory {directory}.")
    meta = json.loads((directory / META).read_text()) if is_complete(directory) else {}
    if meta.get("version", VERSION) > VERSION:
        raise ValueError(f"load_state: {directory} was written by a later version of mytorch.")
    for i, model in enumerate(accelerator._models):
        model.load_state_dict(load_safetensors(_expect(directory, numbered("model", i, ".safetensors"))))
    if meta.get("model_only"):
        return
    for thing, name in _steppers(accelerator):
        thing.load_state_dict(load(_expect(directory, name)))
    before = meta.get("processes", 1)
    if before != accelerator.num_processes:
        accelerator.print(
            f"The checkpoint is of {before} processes, and there are {accelerator.num_processes}: the data goes on where it was, "
            "random generators are not restored."
        )
    for i, loader in enumerate(accelerator._loaders):
        mine = before == accelerator.num_processes
        loader.load_state_dict(load(_expect(directory, dataloader_file(i, accelerator.rank if mine else 0))))
    for thing, name in _custom(accelerator):
        thing.load_state_dict(load(_expect(directory, name)))
    if accelerator.scaler is not None:
        scaling = load(_expect(directory, "mp_config.bin"))
        saved_in = scaling.pop("mixed_precision", "fp16")
        if saved_in != "fp16":
            raise ValueError(
                f"load_state: {directory} was saved in {saved_in} and has no loss scale; load it with mixed_precision={saved_in!r}."
            )
        accelerator.scaler.load_state_dict(scaling)
    if before == accelerator.num_processes:
        set_random_states(load(_expect(directory, f"random_states_{accelerator.rank}.bin")))
    _align(accelerator, meta.get("micro_steps", 0), meta.get("accumulation"))


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


def checkpoint_size(accelerator):
    """About how many bytes a checkpoint takes: of the models' and optimizers' tensors."""
    states = [thing.state_dict() for thing in (*accelerator._models, *accelerator._optimizers)]
    leaves = tree_leaves(states)
    return sum(x.numel() * x.element_size() for x in leaves if isinstance(x, Tensor))


def _expect(directory, name):
    path = directory / name
    if not path.is_file():
        raise FileNotFoundError(
            f"load_state: {path} is missing; prepare the same objects, with the same precision, as when it was saved."
        )
    return path
