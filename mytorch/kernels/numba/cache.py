"""A cache of Numba's compiled functions that neither damaged files nor other processes make wrong.

Numba reads its cache files with pickle. A truncated file, for example after a power failure, raises an error on import or on
the first call of a function. A changed byte in the machine code ends the process or gives wrong numbers. Here each file ends
with a checksum. A function with a damaged file is compiled again, with a warning that names the file.

Numba numbers the files of a function, in an index. Two processes that compile two signatures at the same time choose the same
number, and then one signature has the machine code of the other. Here the name of a file contains a hash of the signature and
of the processor, and no index is needed.
"""

import contextlib
import hashlib
import os
import pickle
import zlib
from pathlib import Path

import numba
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from ...arrays.errors import warn


def _checksum(data):
    return zlib.crc32(data).to_bytes(4, "little")


class _Files:
    """The files of a function: the compiled code of each signature, for each processor."""

    def __init__(self, folder, base, source):
        self.folder, self.base, self.source = Path(folder), base, source

    def path(self, key):
        """Returns the path of the file for a key of Numba: signature, processor, and hashes of the function's code."""
        return self.folder / f"{self.base}.{hashlib.sha256(repr(key[:2]).encode()).hexdigest()[:16]}.nbc"

    def _header(self, key):
        return pickle.dumps((numba.__version__, self.source, repr(key)))

    def save(self, key, data):
        """Writes compiled code under a temporary name, and renames the file."""
        content = self._header(key) + dumps(data)
        path = self.path(key)
        partial = path.with_name(f"{path.name}.{os.getpid()}.{id(data)}")
        try:
            partial.write_bytes(content + _checksum(content))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def load(self, key):
        """Returns the compiled code; None if there is none of this key, this version of Numba and this source.

        Raises:
            Exception: the file is damaged.
        """
        try:
            content = self.path(key).read_bytes()
        except FileNotFoundError:
            return None
        if _checksum(content[:-4]) != content[-4:]:
            raise ValueError("its checksum does not match")
        header = self._header(key)
        return pickle.loads(content[len(header) : -4]) if content.startswith(header) else None


class _Cache(FunctionCache):
    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # pickle raises any kind of error
            path = self._cache_file.path(self._index_key(sig, target_context.codegen()))
            warn(
                f"Numba's cache file {path} is damaged ({type(error).__name__}: {error}). The function is compiled again."
            )
            with contextlib.suppress(OSError):
                path.unlink()


def cached(*signatures, **options):
    """Returns a decorator like `njit(signatures, cache=True, **options)` that ignores a damaged cache file.

    A function without a source file, such as one typed into a Python prompt, is compiled but not stored.

    A closure may contain numbers, which become part of the name of the function. Numba numbers functions of one name in the order in which
    a process compiles them, so of two closures that it loads from the cache, one would run the machine code of the other.

    Raises:
        TypeError: a closure contains other values. Numba would not find it in the cache again.
    """

    def decorate(function):
        values = [cell.cell_contents for cell in function.__closure__ or ()]
        if not all(type(value) in (bool, int, float) for value in values):
            raise TypeError(f"{function.__qualname__}: the closure of a kernel may contain only numbers.")
        if values:
            function.__qualname__ = "_".join([function.__qualname__, *map(str, values)])
        dispatcher = njit(**options)(function)
        with contextlib.suppress(RuntimeError):  # Numba found no folder for the function's files
            dispatcher._cache = _Cache(function)
        for signature in signatures:
            dispatcher.compile(signature)
        dispatcher._can_compile = not signatures
        return dispatcher

    return decorate
