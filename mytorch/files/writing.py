"""Writing files and directories such that a crash, a full disk or another thread leaves what was there before, or all.

What is being written has a name of its own that ends in `.partial`, is locked as long as its writer lives, and takes
its place by a rename. A writer that was killed leaves such a name behind; the next one in that directory removes it.
"""

import contextlib
import ctypes
import errno
import itertools
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

WAITS = (2, 5, 10)  # seconds before a directory is tried again that found the disk full
FULL = (errno.ENOSPC, errno.EDQUOT)
_PARTIAL = re.compile(r"\..+\.\d+(-\d+)?\.partial")
_numbers = itertools.count()
_cleaned = set()  # directories that were looked through already
_replacing = threading.RLock()  # one thread at a time exchanges directories


def _partial(path):
    """A name beside `path` that no other thread or process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.partial")


def _lock(handle):
    """Whether the lock on an open file or directory could be had (closing it gives it up); None where there are no locks."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return None if fcntl is None else True


def _open(path):
    """A new partial file beside `path`, locked, and its name."""
    while True:
        partial = _partial(path)
        file = open(partial, "wb")
        if _lock(file) is not False and partial.exists():  # else another process was cleaning up just now
            return file, partial
        file.close()


def clean_up(directory: str | os.PathLike[str]) -> None:
    """Remove what killed writers have left half-written in a directory; what is being written now is locked, and stays."""
    try:
        found = [entry for entry in os.scandir(os.fspath(directory)) if _PARTIAL.fullmatch(entry.name)]
        entries = [entry for entry in found if f".{os.getpid()}-" not in entry.name]  # other threads lock theirs soon
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            handle = os.open(entry.path, os.O_RDONLY)
            try:
                if _lock(handle) is True:
                    shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.remove(entry.path)
            finally:
                os.close(handle)


def _clean_up_once(directory):
    key = (os.getpid(), os.fspath(directory))
    if key not in _cleaned:
        _cleaned.add(key)
        clean_up(directory)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A binary file to write to, which takes the name `path` when the block ends without an error.

    A link stays and its target is replaced, which keeps its permissions; a device or a pipe is written to as it is.

    Raises:
        OSError: the disk is full; the message has path and size.
    """
    path = Path(os.path.realpath(path))
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        with open(path, "wb") as file:
            yield file
        return
    _clean_up_once(path.parent)
    file, partial = _open(path)
    try:
        try:
            if mode is not None:
                os.chmod(partial, stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            with contextlib.suppress(OSError):
                file.close()
    except BaseException as error:
        written = partial.stat().st_size if partial.exists() else 0
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            free = shutil.disk_usage(path.parent).free
            full = f"the disk is full: {path} needs more than {written:,} bytes, {free:,} are free. What was there is as it was."
            raise OSError(error.errno, full) from None
        raise
    sync_directory(path.parent)


def atomic_write(path: str | os.PathLike, content: bytes) -> None:
    """Write bytes to `path`; a crash leaves what was there before or all of it."""
    with atomic_file(path) as file:
        file.write(content)


def sync_directory(path: str | os.PathLike) -> None:
    """Make a rename in this directory survive a power cut, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- directories ----------------------------------------------------------------------------------


def _old(path):
    return path.with_name(f".{path.name}.old")


def recover(path: Path) -> None:
    """Put back what a crash in the middle of `replace_directory` has left under another name."""
    if not path.exists() and _old(path).is_dir():
        os.rename(_old(path), path)


def _write_when_there_is_room(write, partial, path, size, say):
    """Make `partial` and write into it, again after a moment while the disk is full; the open handle that locks it.

    Raises:
        OSError: it stays full; the message has path and size.
    """
    for wait in (*WAITS, None):
        shutil.rmtree(partial, ignore_errors=True)
        handle = None
        try:
            partial.mkdir()
            handle = os.open(partial, os.O_RDONLY) if os.name == "posix" else None
            if handle is not None:
                _lock(handle)
            write(partial)
            return handle
        except BaseException as error:
            if handle is not None:
                os.close(handle)
            if not isinstance(error, OSError) or error.errno not in FULL:
                raise
            size = max(size, sum(file.stat().st_size for file in partial.rglob("*") if file.is_file()))
            shutil.rmtree(partial, ignore_errors=True)
            free = shutil.disk_usage(path.parent).free
            full = f"The disk is full: {path} needs at least {size:,} bytes, {free:,} are free."
            if wait is None:
                raise OSError(error.errno, f"{full} What was saved before is as it was.") from None
            say(f"{full} Trying again in {wait} s.")
            time.sleep(wait)


def replace_directory(
    path: str | os.PathLike, write: Callable, size: int = 0, ours: Callable | None = None, say: Callable = str
) -> None:
    """Make or replace the directory `path` by what `write(directory)` writes; never half of it is seen.

    Args:
        size: at least so many bytes, for the message when the disk is full, which is tried again a few times.
        say: is told that the disk is full and it is tried again; by default nobody is.
        ours: tells by its name whether a file in the old directory may go; all others stay, unless `write` makes them.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    recover(path)
    shutil.rmtree(_old(path), ignore_errors=True)
    clean_up(path.parent)
    partial, handle = _partial(path), None
    try:
        handle = _write_when_there_is_room(write, partial, path, size, say)
        with _replacing:
            if path.exists():
                _keep_others(path, partial, ours or (lambda name: False))
                sync_directory(partial)
                _exchange(partial, path)
            else:
                sync_directory(partial)
                os.rename(partial, path)
    except BaseException:
        recover(path)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if handle is not None:
            os.close(handle)
    sync_directory(path.parent)


def _keep_others(old, new, ours):
    """Have in the directory `new` the files of `old` that `new` has not, by links where the system can."""
    for entry in os.scandir(old):
        target = new / entry.name
        if ours(entry.name) or target.exists() or _PARTIAL.fullmatch(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.copytree(entry.path, target, symlinks=True, copy_function=_link)
        else:
            _link(entry.path, target)


def _link(source, target):
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _exchange(new, path):
    """Give the directory `new` the name `path`: in one step where the system can (Linux), else in two; see `recover`."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # a C library without it
            names = os.fsencode(new), os.fsencode(path)
            if ctypes.CDLL(None).renameat2(-100, names[0], -100, names[1], 2) == 0:  # AT_FDCWD, RENAME_EXCHANGE
                return
    old = _old(path)
    shutil.rmtree(old, ignore_errors=True)
    os.rename(path, old)
    os.rename(new, path)
    shutil.rmtree(old, ignore_errors=True)
