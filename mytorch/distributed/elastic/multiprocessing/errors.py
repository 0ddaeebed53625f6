"""record: writes the error of a process to a file, as in `torch.distributed.elastic.multiprocessing.errors`."""

import contextlib
import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ....files.writing import atomic_write
from ...environment import place

F = TypeVar("F", bound=Callable)


def error_file() -> Path | None:
    """Returns the path of this process's error file, or None if TORCHELASTIC_ERROR_FILE is not set.

    With several processes, the name ends with the rank: `error.json` becomes `error_rank1.json`.
    """
    name = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not name:
        return None
    here, path = place(), Path(name)
    return path if here.world_size == 1 else path.with_name(f"{path.stem}_rank{here.rank}{path.suffix}")


def record(fn: F, error_handler: Callable[[BaseException], None] | None = None) -> F:
    """Decorates the main function of a program: an error is written to the file TORCHELASTIC_ERROR_FILE as JSON.

    The error is raised again, so the launcher prints its traceback and ends or restarts all ranks.

    Args:
        fn: the main function.
        error_handler: function of the error that replaces the file (default: None).

    Returns:
        The decorated function.

    Example:
        >>> from mytorch.distributed.elastic.multiprocessing.errors import record
        >>> @record
        ... def main():
        ...     return "trained"
        >>> main()
        'trained'
    """

    @functools.wraps(fn)
    def recorded(*args, **kwargs):
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            with contextlib.suppress(OSError):  # the original error is more important
                (error_handler or _write)(error)
            raise

    return recorded  # type: ignore[return-value]


def _write(error):
    path = error_file()
    if path is None:
        return
    here = place()
    extra = {
        "py_callstack": "".join(traceback.format_exception(error)), "timestamp": str(int(time.time())), "rank": here.rank,
    }  # fmt: skip
    message = {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}
    atomic_write(path, json.dumps({"message": message}).encode())


__all__ = ["error_file", "record"]
