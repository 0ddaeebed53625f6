"""Numba's cache of compiled functions, without errors for damaged files.

Numba reads its cache files with pickle. A truncated file, for example after a power failure, raises an error on import or on
the first call of a function. A changed byte in the machine code ends the process or gives wrong numbers. Here each file ends
with a checksum. A function with a damaged file is compiled again, with a warning that names the file.
"""

import contextlib
import pickle
import zlib

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile

from ...arrays.errors import warn


def _checksum(data):
    return zlib.crc32(data).to_bytes(4, "little")


def _check(content):
    if _checksum(content[:-4]) != content[-4:]:
        raise ValueError("its checksum does not match")


class _CheckedFile(IndexDataCacheFile):
    """The files of a function: an index of signatures, and the compiled code of each signature."""

    def __init__(self, *args):
        super().__init__(*args)
        self._version += " with checksums"  # files without checksums are ignored

    def _dump(self, obj):
        data = super()._dump(obj)
        return data + _checksum(data)

    def _load_index(self):
        with contextlib.suppress(FileNotFoundError), open(self._index_path, "rb") as file:
            if pickle.load(file) == self._version:
                _check(file.read())
        return super()._load_index()

    def _load_data(self, name):
        with open(self._data_path(name), "rb") as file:
            content = file.read()
        _check(content)
        return pickle.loads(content)


class _Cache(FunctionCache):
    def __init__(self, function):
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _CheckedFile(self._cache_path, self._impl.filename_base, locator.get_source_stamp())

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # pickle raises any kind of error
            path, problem = self._cache_file._index_path, f"{type(error).__name__}: {error}"
            warn(f"Numba's cache file {path} is damaged ({problem}). The function is compiled again.")
            with contextlib.suppress(OSError):
                self.flush()


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
