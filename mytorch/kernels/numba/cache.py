"""Numba's cache of compiled functions, without errors for damaged files.

Numba reads its cache files with pickle. A truncated file, for example after a power failure, raises an error on import or on
the first call of a function. Here the function is compiled again, with a warning that names the file.
"""

import contextlib

from numba import njit
from numba.core.caching import FunctionCache

from ...base.errors import warn


class _Cache(FunctionCache):
    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # pickle raises any kind of error
            path, problem = self._cache_file._index_path, f"{type(error).__name__}: {error}"
            warn(f"Numba's cache file {path} is damaged ({problem}). The function is compiled again.")
            with contextlib.suppress(OSError):
                self.flush()


def cached(*signatures, **options):
    """Returns a decorator like `njit(signatures, cache=True, **options)` that ignores a damaged cache file."""

    def decorate(function):
        dispatcher = njit(**options)(function)
        if hasattr(dispatcher, "enable_caching"):  # False with NUMBA_DISABLE_JIT
            dispatcher._cache = _Cache(function)
            for signature in signatures:
                dispatcher.compile(signature)
            dispatcher._can_compile = not signatures
        return dispatcher

    return decorate
