"""Sharded checkpoints: each process writes its part to a safetensors file, and one index describes all parts.

A checkpoint is a directory:

    rank_0.safetensors …   the parts of the tensors that each process has written; a part has one writer
    objects.bin            numbers, strings and other plain values
    index.json             the dtype, shape and parts of each tensor, with a checksum for each part

The files are written to a temporary directory, which the first process renames when all files are complete. A directory
with this name is therefore always complete, and a killed save leaves the old checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from ...accelerate.training_state import _in_blocks, checksum
from ...arrays import CPU, device_of, dtypes, to_device
from ...arrays.array import Array
from ...arrays.tensor import Tensor
from ...files.limits import check_regular
from ...files.serialization import _CODES, _read_entry, _read_header, save_safetensors, write_json
from ...files.writing import atomic_write, recover, replace_directory
from ..collectives import all_gather_object, barrier, broadcast_object_list
from ..objects import decode, encode
from ..process_group import Group, is_initialized, resolve
from ..tensor.dtensor import DTensor
from .layout import boxes_of, overlap, raw_of

INDEX = "index.json"
_OBJECTS = "objects.bin"
VERSION = 1
PAUSE = 0.01  # seconds between looks at the files of the other processes


class CheckpointException(RuntimeError):
    """An error of one process while a checkpoint was saved or loaded. All processes raise it."""


def is_tensor_like(value):
    """Returns True for values that are stored in safetensors files."""
    return isinstance(value, (Tensor, Array, np.ndarray))


def flatten(tree: Any, prefix: tuple = ()) -> dict[tuple, Any]:
    """Returns {path: leaf} of nested dicts and lists. Lists without tensors are leaves.

    Raises:
        TypeError: a key is neither a string nor an integer.
    """
    if isinstance(tree, dict) and (tree or not prefix):
        items: Any = tree.items()
        for key, _ in items:
            if not isinstance(key, (str, int)):
                raise TypeError(f"distributed.checkpoint: expected keys of type str or int, got {key!r}.")
    elif isinstance(tree, list) and any(map(_has_tensor, tree)):
        items = enumerate(tree)
    else:
        return {prefix: tree}
    out: dict[tuple, Any] = {}
    for key, value in items:
        out |= flatten(value, (*prefix, key))
    return out


def _has_tensor(value):
    if isinstance(value, dict):
        return any(map(_has_tensor, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensor, value))
    return is_tensor_like(value)


def names_of(flat):
    """Returns {path: name}, where a name is the path joined by dots.

    Raises:
        ValueError: two paths have the same name.
    """
    names = {path: ".".join(map(str, path)) for path in flat}
    if len(set(names.values())) != len(names):
        twice = next(name for name in names.values() if list(names.values()).count(name) > 1)
        raise ValueError(f"distributed.checkpoint: expected different names, got {twice!r} twice. Rename a key.")
    return names


def _states(state_dict):
    """Replaces objects with a method `state_dict` by their state."""
    return {
        key: value.state_dict() if hasattr(value, "state_dict") and hasattr(value, "load_state_dict") else value
        for key, value in state_dict.items()
    }


class _World:
    """The processes that save or load together; a single process does not need a group."""

    def __init__(self, group, alone):
        self.group = resolve(group) if is_initialized() and not alone else None
        self.rank = 0 if self.group is None else self.group.rank()
        self.size = 1 if self.group is None else self.group.size()

    def gather(self, value):
        """Returns the values of all processes."""
        if self.group is None:
            return [value]
        every: list[Any] = [None] * self.size
        all_gather_object(every, value, self.group)
        return every

    def broadcast(self, value):
        """Returns the value of the first process."""
        if self.group is None:
            return value
        box = [value]
        broadcast_object_list(box, group=self.group, group_src=0)
        return box[0]

    def together(self, who, action):
        """Runs an action on each process. If one fails, all processes raise an error."""
        result, problem = None, None
        try:
            result = action()
        except Exception as error:
            problem = error
        texts = self.gather(None if problem is None else f"{type(problem).__name__}: {problem}")
        failed = [(rank, text) for rank, text in enumerate(texts) if text is not None]
        if failed:
            if len(failed) == self.size and problem is not None and len({text for _, text in failed}) == 1:
                raise problem
            rank, text = failed[0]
            raise CheckpointException(f"{who}: rank {rank} failed: {text}") from problem
        return result


# -- saving --------------------------------------------------------------------------------------------


class _Plan:
    """The parts that this process writes, the values of the checkpoint, and the index of all parts."""

    def __init__(self, state_dict, world):
        flat = flatten(_states(state_dict))
        names = names_of(flat)
        mine, self.objects, self.local = {}, {}, {}
        for path, value in flat.items():
            name = names[path]
            if is_tensor_like(value):
                boxes = boxes_of(value, name)
                raw = raw_of(value)
                dtype = dtypes.from_numpy(raw.dtype)
                mine[name] = [dtype.name, list(value.shape), [[list(b.offsets), list(b.sizes)] for b in boxes]]
                self.local[name] = value, boxes
            else:
                self.objects[name] = [list(path), value]
        self.mine = mine
        every = world.gather([mine, sorted(self.objects)])
        self.tensors, writers = {}, {}
        load = [0] * world.size
        for rank, (tensors, _) in enumerate(every):
            for name, (dtype, shape, boxes) in tensors.items():
                entry = self.tensors.setdefault(name, {"dtype": dtype, "shape": shape, "parts": []})
                if entry["dtype"] != dtype or entry["shape"] != shape:
                    raise ValueError(
                        f"save: expected equal dtypes and shapes of {name!r} on all ranks, got {dtype} {shape} on rank {rank} and "
                        f"{entry['dtype']} {entry['shape']} on another rank."
                    )
                for offsets, sizes in boxes:
                    writers.setdefault((name, tuple(offsets), tuple(sizes)), []).append(rank)
        for (name, offsets, sizes), ranks in writers.items():
            rank = min(ranks, key=lambda r: (load[r], r))
            load[rank] += math.prod(sizes)
            entry = self.tensors[name]
            part = {"file": f"rank_{rank}.safetensors", "key": f"{name}@{len(entry['parts'])}"}
            entry["parts"].append({**part, "offsets": list(offsets), "sizes": list(sizes)})
        self.file = f"rank_{world.rank}.safetensors"

    def stage(self, copy):
        """Collects this process's parts on the CPU, as copies if training goes on during the save."""
        self.arrays = {}
        for name, (value, boxes) in self.local.items():
            raw = raw_of(value)
            by_box = {(b.offsets, b.sizes): b for b in boxes}
            for part in self.tensors[name]["parts"]:
                if part["file"] == self.file:
                    box = by_box[tuple(part["offsets"]), tuple(part["sizes"])]
                    array = to_device(box.within(raw), CPU)
                    array = np.ascontiguousarray(array).reshape(box.sizes)
                    self.arrays[part["key"]] = array.copy() if copy and isinstance(raw, np.ndarray) else array
        self.content = encode(self.objects, "save")
        self.local = {}

    def write(self, folder):
        """Writes this process's file, and then its record: the file is complete."""
        folder = Path(folder)
        save_safetensors(self.arrays, folder / self.file)
        record = {key: checksum(_in_blocks(array.reshape(-1).view(np.uint8))) for key, array in self.arrays.items()}
        record = {"size": (folder / self.file).stat().st_size, "parts": record}
        atomic_write(folder / f"{self.file}.record", json.dumps(record).encode())

    def finish(self, folder, size, timeout):
        """Waits for the records of all processes and writes the index. The first process calls it."""
        folder, until = Path(folder), time.monotonic() + timeout
        files = {}
        for rank in range(size):
            path = folder / f"rank_{rank}.safetensors.record"
            failure = folder / f"rank_{rank}.failed"
            while not path.is_file():
                if failure.is_file():
                    raise CheckpointException(f"save: rank {rank} failed: {failure.read_text()}")
                if time.monotonic() > until:
                    raise CheckpointException(f"save: rank {rank} did not write its part within {timeout:g} seconds.")
                time.sleep(PAUSE)
            record = json.loads(path.read_bytes())
            files[f"rank_{rank}.safetensors"] = {"size": record["size"]}
            for entry in self.tensors.values():
                for part in entry["parts"]:
                    if part["file"] == f"rank_{rank}.safetensors":
                        part["checksum"] = record["parts"][part["key"]]
            path.unlink()
        atomic_write(folder / _OBJECTS, self.content)
        sums = checksum(_in_blocks(np.frombuffer(self.content, np.uint8)))
        files[_OBJECTS] = {"size": len(self.content), "checksum": sums}
        index = {"format": "mytorch-sharded", "version": VERSION, "time": time.time(), "files": files}
        write_json(folder / INDEX, {**index, "tensors": self.tensors})


def _folder(path, checkpoint_id):
    given = checkpoint_id if checkpoint_id is not None else path
    if given is None:
        raise ValueError("distributed.checkpoint: expected checkpoint_id, the directory, got None.")
    return Path(os.path.abspath(given))


def _announced(path, world, write, finish, ours=lambda name: True):
    """Runs `write(folder)` on all processes in one temporary directory; the first process completes and renames it.

    `ours(name)` is True for files of an old checkpoint that are removed.
    """
    if world.rank:
        folder = world.broadcast(None)
        if folder is None:
            raise CheckpointException(f"save: rank 0 could not create a directory for {path}.")
        return lambda: _write_part(write, folder, world.rank)
    ready: Future = Future()
    done: Future = Future()

    def fill(folder):
        ready.set_result(str(folder))
        _write_part(write, folder, 0)
        finish(folder)

    def replace():
        try:
            replace_directory(path, fill, ours=ours)
            done.set_result(None)
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            done.set_exception(error)

    thread = threading.Thread(target=replace, name="mytorch-checkpoint")
    thread.start()
    try:
        folder = ready.result()
    except BaseException:
        world.broadcast(None)
        raise
    world.broadcast(folder)
    return done.result


def _write_part(write, folder, rank):
    try:
        write(folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            (Path(folder) / f"rank_{rank}.failed").write_text(f"{type(error).__name__}: {error}")
        raise


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    process_group: Group = None,
    no_dist: bool = False,
    path: str | os.PathLike | None = None,
    timeout: float = 1800.0,
) -> Path:
    """Saves a checkpoint. Each process writes the parts of the DTensors that it stores; all processes call it.

    A plain tensor and a part that several processes store have one writer. An existing checkpoint is replaced when the
    new one is complete.

    Args:
        state_dict: nested dicts and lists of tensors, DTensors and plain values, and objects with `state_dict`.
        checkpoint_id: the directory, which all processes can access.
        process_group: the processes (default: all).
        no_dist: save in this process alone (default: False).
        path: another name of `checkpoint_id`.
        timeout: time limit of the slowest process in seconds (default: 1800).

    Returns:
        The directory.

    Raises:
        CheckpointException: a process failed. All processes raise it, and the old checkpoint is unchanged.
        ValueError: a tensor is a partial sum, or its shape differs between processes.

    Example:
        >>> import tempfile
        >>> from mytorch.distributed import checkpoint
        >>> folder = tempfile.mkdtemp() + "/step_1"
        >>> _ = checkpoint.save({"weight": mytorch.ones(2, 3), "step": 1}, checkpoint_id=folder)
        >>> state = {"weight": mytorch.zeros(2, 3), "step": 0}
        >>> checkpoint.load(state, checkpoint_id=folder)
        >>> state["weight"].sum().item(), state["step"]
        (6.0, 1)
    """
    folder, world = _folder(path, checkpoint_id), _World(process_group, no_dist)
    plan = _planned(state_dict, world, copy=False)
    complete = _announced(folder, world, plan.write, lambda f: plan.finish(f, world.size, timeout))
    world.together("save", complete)
    return folder


def _planned(state_dict, world, copy):
    """Returns the plan with this process's parts. An error of one process is raised on all processes."""

    def check():
        flat = flatten(_states(state_dict))
        for path, name in names_of(flat).items():
            if is_tensor_like(flat[path]):
                boxes_of(flat[path], name)
                dtype = dtypes.from_numpy(raw_of(flat[path]).dtype)
                if dtype not in _CODES:
                    raise TypeError(f"save: {name!r} has dtype {dtype.name}, which safetensors can't hold; cast it.")

    world.together("save", check)
    plan = _Plan(state_dict, world)
    world.together("save", lambda: plan.stage(copy))
    return plan


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    process_group: Group = None,
    path: str | os.PathLike | None = None,
    timeout: float = 1800.0,
) -> Future:
    """Copies the tensors, and saves the checkpoint in a thread while training continues.

    Args:
        state_dict: as in `save`.
        checkpoint_id: the directory, which all processes can access.
        process_group: the processes (default: all).
        path: another name of `checkpoint_id`.
        timeout: time limit of the slowest process in seconds (default: 1800).

    Returns:
        A Future. On the first process, `result()` waits until the checkpoint is complete, and returns the directory. On the
        other processes, it waits until the part of this process is written. Wait for it before the next save.

    Raises:
        ValueError: as in `save`.
    """
    folder, world = _folder(path, checkpoint_id), _World(process_group, False)
    plan = _planned(state_dict, world, copy=True)
    complete = _announced(folder, world, plan.write, lambda f: plan.finish(f, world.size, timeout))
    future: Future = Future()

    def run():
        try:
            complete()
            future.set_result(folder)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="mytorch-checkpoint-wait").start()
    return future


# -- loading ---------------------------------------------------------------------------------------------


def read_index(folder: str | os.PathLike) -> dict[str, Any]:
    """Returns the index of a checkpoint.

    Args:
        folder: the directory.

    Raises:
        FileNotFoundError: the directory is not a complete checkpoint.
        ValueError: the index is damaged, or of a later version.
    """
    path = Path(folder) / INDEX
    recover(Path(folder))
    if not path.is_file():
        raise FileNotFoundError(f"load: expected a checkpoint with {INDEX} in {folder}, found none.")
    try:
        index = json.loads(path.read_bytes())
        version, tensors = index["version"], index["tensors"]
        for entry in tensors.values():
            dtypes.as_dtype(entry["dtype"])
            for part in entry["parts"]:
                if Path(part["file"]).name != part["file"] or len(part["offsets"]) != len(entry["shape"]):
                    raise ValueError("a part is invalid")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"load: {path} is damaged ({str(error)[:200]}).") from None
    if version > VERSION:
        raise ValueError(f"load: expected version {VERSION} or earlier, got version {version} in {folder}.")
    return index


class _Files:
    """The files of a checkpoint, mapped into memory, with verified parts."""

    def __init__(self, folder, index):
        self.folder, self.index, self.open = Path(folder), index, {}

    def part(self, part, dtype):
        """Returns the array of a part.

        Raises:
            ValueError: the file is damaged.
        """
        name = part["file"]
        path = self.folder / name
        if name not in self.open:
            if not path.is_file():
                raise FileNotFoundError(f"load: {path} is missing.")
            size, expected = path.stat().st_size, self.index["files"].get(name, {}).get("size")
            if size != expected:
                raise ValueError(f"load: {path} is damaged: expected {expected:,} bytes, got {size:,}.")
            check_regular(path)
            content = np.memmap(path, np.uint8, "r")
            header, _, base = _read_header(content, str(path))
            self.open[name] = content, header, base
        content, header, base = self.open[name]
        try:
            found, shape, start, stop = _read_entry(header[part["key"]])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"load: {path} is damaged: it has no part {part['key']!r}.") from None
        raw = content[base + start : base + stop]
        if list(shape) != part["sizes"] or found.name != dtype or raw.size != math.prod(shape) * found.itemsize:
            raise ValueError(f"load: {path} is damaged: {part['key']!r} is {found.name} {list(shape)}.")
        if checksum(_in_blocks(raw)) != part["checksum"]:
            raise ValueError(f"load: {path} is damaged: the checksum of {part['key']!r} does not match.")
        return np.asarray(raw).view(found.numpy).reshape(shape)

    def objects(self):
        """Returns {name: (path, value)} of the plain values."""
        path, record = self.folder / _OBJECTS, self.index["files"].get(_OBJECTS, {})
        content = path.read_bytes() if path.is_file() else b""
        if checksum(_in_blocks(np.frombuffer(content, np.uint8))) != record.get("checksum"):
            raise ValueError(f"load: {path} is damaged: its checksum does not match.")
        return decode(content)


def _read_into(files, entry, value, name):
    """Returns [(target, source)] of the copies that fill a tensor."""
    raw, copies, filled = raw_of(value), [], 0
    boxes = boxes_of(value, name)
    for box in boxes:
        for part in entry["parts"]:
            common = overlap(box.offsets, box.sizes, part["offsets"], part["sizes"])
            if common is None:
                continue
            starts, sizes = common
            mine = tuple(
                slice(s - o + a, s - o + a + n)
                for s, o, a, n in zip(starts, box.offsets, box.local, sizes, strict=True)
            )
            theirs = tuple(slice(s - o, s - o + n) for s, o, n in zip(starts, part["offsets"], sizes, strict=True))
            copies.append((mine, part, theirs))
            filled += math.prod(sizes)
    wanted = sum(math.prod(box.sizes) for box in boxes)
    if filled != wanted:
        raise ValueError(f"load: the checkpoint contains {filled} of {wanted} elements of {name!r}; it is damaged.")
    return raw, copies


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    process_group: Group = None,
    no_dist: bool = False,
    path: str | os.PathLike | None = None,
    strict: bool = True,
) -> None:
    """Loads a checkpoint into the tensors of a state dict, in place. All processes call it.

    The number of processes and the placements may differ from the ones of the save. Each process reads the parts that
    overlap with its own parts.

    Args:
        state_dict: a dict of the structure that was saved. Tensors are filled, other values are replaced, and objects with
            `load_state_dict` receive their state.
        checkpoint_id: the directory.
        process_group: the processes (default: all).
        no_dist: load in this process alone (default: False).
        path: another name of `checkpoint_id`.
        strict: raise an error for names that the checkpoint does not contain (default: True).

    Raises:
        FileNotFoundError: the directory is not a complete checkpoint.
        ValueError: names or shapes differ, or a file is damaged. Nothing is changed.
        CheckpointException: a process failed. All processes raise it.
    """
    folder, world = _folder(path, checkpoint_id), _World(process_group, no_dist)
    _verified(state_dict, folder, world, strict)()
    if world.group is not None:
        barrier(world.group)


def _verified(state_dict, folder, world, strict=True):
    """Compares a state dict with a checkpoint and verifies the files. Returns a function that fills the state dict.

    If a process finds an error, all processes raise it. The function that is returned does not communicate.
    """
    states = _states(state_dict)
    flat = flatten(states)
    names = names_of(flat)

    def prepare():
        index = read_index(folder)
        files = _Files(folder, index)
        objects, todo, values = files.objects(), [], {}
        missing = [n for n in names.values() if n not in index["tensors"] and n not in objects]
        if missing and strict:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise ValueError(
                f"load: the checkpoint {folder} does not contain {', '.join(missing[:5])}{more}. It belongs to another model; "
                "pass strict=False to load the other names."
            )
        for where, value in flat.items():
            name = names[where]
            if name in missing:
                continue
            if is_tensor_like(value) != (name in index["tensors"]):
                kind = "a tensor" if name in index["tensors"] else "a plain value"
                raise ValueError(
                    f"load: {name!r} is {kind} in the checkpoint, and {type(value).__name__} in the state dict."
                )
            if not is_tensor_like(value):
                values[where] = objects[name][1]
                continue
            entry = index["tensors"][name]
            if list(value.shape) != entry["shape"]:
                raise ValueError(
                    f"load: expected {name!r} of shape {tuple(entry['shape'])} as in the checkpoint {folder}, got "
                    f"{tuple(value.shape)}. It belongs to another model."
                )
            todo.append((value, *_read_into(files, entry, value, name), entry["dtype"]))
        checked = {}
        for *_, copies, dtype in todo:  # all checksums, before the first change
            for _, part, _ in copies:
                checked.setdefault((part["file"], part["key"]), (part, dtype))
        arrays = {key: files.part(*pair) for key, pair in checked.items()}
        return todo, values, arrays

    todo, values, arrays = world.together("load", prepare)

    def fill():
        for value, raw, copies, _ in todo:
            for mine, part, theirs in copies:
                source = arrays[part["file"], part["key"]][theirs]
                if isinstance(raw, np.ndarray):
                    raw[mine] = source
                else:
                    raw[mine] = to_device(np.ascontiguousarray(source), device_of(raw))
            inner = value._local_tensor if isinstance(value, DTensor) else value
            if isinstance(inner, (Tensor, Array)):
                inner._mt_data._bump()
        for where, value in values.items():
            target: Any = states
            for key in where[:-1]:
                target = target[key]
            target[where[-1]] = value
        for key, original in state_dict.items():
            if states[key] is not original and hasattr(original, "load_state_dict"):
                original.load_state_dict(states[key])
            else:
                state_dict[key] = states[key]

    return fill


def latest(directory: str | os.PathLike) -> Path | None:
    """Returns the newest complete checkpoint in a directory, or None.

    Args:
        directory: a directory with checkpoints that `save` has written.
    """
    directory, found = Path(directory), []
    if not directory.is_dir():
        return None
    for old in directory.glob(".*.old"):
        recover(old.with_name(old.name[1 : -len(".old")]))
    for path in directory.iterdir():
        with contextlib.suppress(OSError, ValueError):
            if (path / INDEX).is_file():
                found.append((read_index(path)["time"], path))
    return max(found)[1] if found else None


__all__ = ["CheckpointException", "async_save", "latest", "load", "save"]
