"""`torch.futures`: results that are set later. Callbacks run in the thread that sets the result."""

import threading
from typing import Generic, TypeVar

from ..arrays.errors import warn

T = TypeVar("T")


class Future(Generic[T]):
    """A result that another part of the program sets.

    Args:
        devices: devices of the result, which must be on the CPU (default: None).

    Example:
        >>> future = mytorch.futures.Future()
        >>> doubled = future.then(lambda f: 2 * f.wait())
        >>> future.set_result(3)
        >>> doubled.wait()
        6
    """

    def __init__(self, *, devices=None):
        self._ready, self._lock, self._callbacks = threading.Event(), threading.Lock(), []
        self._value = self._error = None

    def done(self):
        """Returns True if the result is set."""
        return self._ready.is_set()

    def wait(self):
        """Waits for the result and returns it, or raises its exception."""
        self._ready.wait()
        return self.value()

    def value(self):
        """Returns the result, or raises its exception.

        Raises:
            RuntimeError: the result is not set.
        """
        if not self.done():
            raise RuntimeError(
                "Future.value: expected a completed future, got one without a result. Call wait() first."
            )
        if self._error is not None:
            raise self._error
        return self._value

    def then(self, callback):
        """Returns a future of `callback(self)`, which runs when this future is complete.

        Args:
            callback: function of this future.
        """
        following = Future()

        def run(future):
            try:
                value = callback(future)
            except Exception as error:
                following.set_exception(error)
            else:
                following.set_result(value)

        self.add_done_callback(run)
        return following

    def add_done_callback(self, callback):
        """Calls `callback(self)` when this future is complete. Errors of the callback become warnings.

        Args:
            callback: function of this future.
        """
        with self._lock:
            waiting = not self.done()
            if waiting:
                self._callbacks.append(callback)
        if not waiting:
            self._call(callback)

    def set_result(self, result):
        """Sets the result.

        Raises:
            RuntimeError: the future is already complete.
        """
        self._complete(result, None)

    def set_exception(self, result):
        """Sets an exception, which `wait` raises.

        Args:
            result: the exception.
        """
        if not isinstance(result, Exception):
            raise TypeError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(None, result)

    def _complete(self, value, error):
        with self._lock:
            if self.done():
                raise RuntimeError("Future can only be marked completed once; its result is already set.")
            self._value, self._error = value, error
            self._ready.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback):
        """Calls a callback. As in PyTorch, its error does not reach the code that sets the result."""
        try:
            callback(self)
        except Exception as error:
            warn(f"Future: a callback raised {type(error).__name__}: {error}")


def collect_all(futures):
    """Returns a future of the list of futures, which is complete when all of them are complete."""
    futures, both, lock = list(futures), Future(), threading.Lock()
    left = [len(futures)]

    def count(future):
        with lock:
            left[0] -= 1
            complete = left[0] == 0
        if complete:
            both.set_result(futures)

    if not futures:
        both.set_result([])
    for future in futures:
        future.add_done_callback(count)
    return both


def wait_all(futures):
    """Waits for all futures and returns the list of their results."""
    return [future.wait() for future in collect_all(futures).wait()]
