"""Atomic writing of files and directories: after a crash or a full disk, the old contents or all new contents exist.

New contents are written under a separate name that ends in `.partial`, locked while the writer runs, and renamed at the
end. A killed writer leaves this file. The next writer in the directory removes it.
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
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

WAITS = (2, 5, 10)  # seconds between attempts if the disk is full
FULL = (errno.ENOSPC, errno.EDQUOT)
_PARTIAL = re.compile(r"\..+\.\d+(-\d+)?\.partial")
_numbers = itertools.count()
_cleaned = set()  # directories that were already cleaned up
_replacing = threading.RLock()  # only one thread replaces directories at a time


class MissingFolderError(RuntimeError, FileNotFoundError):
    """The folder of a file does not exist. It is also the RuntimeError that PyTorch raises."""


def _partial(path):
    """Return a name next to `path` that no other thread or process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.partial")


def lock(handle: Any) -> bool | None:
    """Lock an open file or directory; closing it releases the lock. Returns success, or None without support for locks."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return None if fcntl is None else True


def _open(path):
    """Return a new, locked partial file next to `path`, and its name."""
    while True:
        partial = _partial(path)
        file = open(partial, "wb")
        if lock(file) is not False and partial.exists():  # otherwise another process has just removed it
            return file, partial
        file.close()


def clean_up(directory: str | os.PathLike[str]) -> None:
    """Removes partial files of killed writers in a directory. Files of running writers are locked and remain."""
    try:
        found = [entry for entry in os.scandir(os.fspath(directory)) if _PARTIAL.fullmatch(entry.name)]
        entries = [entry for entry in found if f".{os.getpid()}-" not in entry.name]  # not yet locked by other threads
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            handle = os.open(entry.path, os.O_RDONLY)
            try:
                if lock(handle) is True:
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
    """Opens a binary file for writing, which is renamed to `path` if the block ends without an error.

    The target of a link is replaced and keeps its permissions. A device or a pipe is written directly.

    Args:
        path: path of the file.

    Raises:
        OSError: if the disk is full; the message contains path and size.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise MissingFolderError(f"save: expected an existing folder, got {str(path.parent)!r}. Create it first.")
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
            with _synced(path.parent):
                os.replace(partial, path)
        finally:
            with contextlib.suppress(OSError):
                file.close()
    except BaseException as error:
        written = partial.stat().st_size if partial.exists() else 0
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            free = shutil.disk_usage(path.parent).free
            full = f"the disk is full: {path} needs more than {written:,} bytes, {free:,} are free. The old file is unchanged."
            raise OSError(error.errno, full) from None
        raise


def atomic_write(path: str | os.PathLike, content: bytes) -> None:
    """Writes bytes to a file atomically.

    Args:
        path: path of the file.
        content: the bytes.
    """
    with atomic_file(path) as file:
        file.write(content)


def sync_directory(path: str | os.PathLike) -> None:
    """Makes renames in a directory survive a power failure, if the system supports it.

    Args:
        path: the directory.
    """
    with _synced(path):
        pass


@contextlib.contextmanager
def _synced(directory):
    """Sync a directory after the block. It is opened before: once a file has its final name, others may move the directory."""
    if os.name != "posix":
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        yield
        os.fsync(handle)
    finally:
        os.close(handle)


# -- directories ----------------------------------------------------------------------------------


def _old(path):
    return path.with_name(f".{path.name}.old")


def recover(path: Path) -> None:
    """Restores a directory after a crash in the middle of `replace_directory`.

    Args:
        path: the directory.
    """
    if not path.exists() and _old(path).is_dir():
        with contextlib.suppress(FileNotFoundError):  # another process restores it at the same time
            os.rename(_old(path), path)


def _write_when_there_is_room(write, partial, path, size, say):
    """Create `partial` and write to it, and repeat if the disk is full. Returns the open handle with the lock.

    Raises:
        OSError: if the disk remains full; the message contains path and size.
    """
    for wait in (*WAITS, None):
        shutil.rmtree(partial, ignore_errors=True)
        handle = None
        try:
            partial.mkdir()
            handle = os.open(partial, os.O_RDONLY) if os.name == "posix" else None
            if handle is not None:
                lock(handle)
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
                raise OSError(error.errno, f"{full} The old files are unchanged.") from None
            say(f"{full} Trying again in {wait} s.")
            time.sleep(wait)


def replace_directory(
    path: str | os.PathLike, write: Callable, size: int = 0, ours: Callable | None = None, say: Callable = str
) -> None:
    """Creates or replaces a directory atomically.

    Args:
        path: the directory.
        write: function of a directory that writes the new files.
        size: minimum number of bytes to write, for the message if the disk is full.
        ours: function of a file name that returns True for old files to remove; other old files remain.
        say: function that displays a message if the disk is full.
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


def remove_directory(path: Path) -> None:
    """Removes a directory. If the process is killed, the next writer in the same folder removes the rest.

    Args:
        path: the directory.
    """
    doomed = _partial(path)
    os.rename(path, doomed)
    shutil.rmtree(doomed)


def _keep_others(old, new, ours):
    """Add the files of the directory `old` that are missing in `new`, as links if possible."""
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
    """Rename the directory `new` to `path`: in one step on Linux, otherwise in two steps; see `recover`."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # a C library without renameat2
            names = os.fsencode(new), os.fsencode(path)
            if ctypes.CDLL(None).renameat2(-100, names[0], -100, names[1], 2) == 0:  # AT_FDCWD, RENAME_EXCHANGE
                return
    old = _old(path)
    os.rename(path, old)
    os.rename(new, path)
    shutil.rmtree(old, ignore_errors=True)
