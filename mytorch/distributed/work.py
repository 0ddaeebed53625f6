"""Work: a running collective. Future: a value that is set later.

A collective that has started returns a Work. `wait` returns when the result is available. If the group's timeout
passes first, it raises an error with the collective's name and, if known, the missing ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

SPIN = 2e-4  # seconds to poll without a pause; most small collectives end within this time
LONGEST_PAUSE = 1e-3


class DistError(RuntimeError):
    """An error of a process group."""


class DistBackendError(DistError):
    """A collective failed, timed out, or differs from the collective that other processes called."""


class Work:
    """A running collective.

    Args:
        label: description of the collective for messages.
        timeout: seconds after which `wait` raises (default: no limit).
        explain: function that returns a sentence about the missing ranks after a timeout. With `early=True`, it returns
            an empty string unless the ranks have called different collectives.

    A subclass defines `poll`. The functions in `on_done` are called once, in order, when `poll` detects the end.
    """

    def __init__(self, label: str = "", timeout: float | None = None, explain: Callable[..., str] | None = None):
        self.label = label
        self.timeout = timeout
        self.explain = explain
        self.outputs: list = []
        self.error: Exception | None = None
        self.source = -1  # rank of the sender, for a receive that has ended
        self._on_done = []
        self._done = False
        self._future: Future | None = None

    def poll(self) -> bool:
        """Returns True if the transfer has ended."""
        return True

    def finish(self, action: Callable[[], Any]) -> Work:
        """Calls `action()` at the end, before any other code sees the result.

        Args:
            action: function without arguments.
        """
        self._on_done.append(action)
        return self

    def is_completed(self) -> bool:
        """Returns True if the result is available."""
        if not self._done and self.poll():
            self._complete()
        return self._done

    def _complete(self):
        for action in self._on_done:
            action()
        self._on_done.clear()
        self._done = True
        if self._future is not None:
            self._future.set_result(self.outputs)

    def is_success(self) -> bool:
        """Returns True if the collective ended without an error."""
        return self._done and self.error is None

    def exception(self) -> Exception | None:
        """Returns the error of the collective, or None."""
        return self.error

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Waits for the result and returns True.

        Args:
            timeout: a timedelta or seconds (default: the group's timeout).

        Raises:
            DistBackendError: after the timeout; the message names the collective and the missing ranks.
        """
        if self.is_completed():
            return True
        given = self.timeout if timeout is None else timeout
        limit = given.total_seconds() if isinstance(given, timedelta) else given
        start = time.monotonic()
        pause = 2e-5
        while not self.is_completed():
            waited = time.monotonic() - start
            if limit is not None and waited > limit:
                who = f" {self.explain()}" if self.explain else ""
                self.error = DistBackendError(f"{self.label} timed out after {limit:g} seconds.{who}")
                raise self.error
            if pause >= LONGEST_PAUSE and self.explain and (problem := self.explain(early=True)):
                self.error = DistBackendError(problem)
                raise self.error
            if waited > SPIN:
                time.sleep(pause)
                pause = min(pause * 1.5, LONGEST_PAUSE)
        return True

    synchronize = wait

    def result(self) -> list:
        """Returns the output tensors."""
        return self.outputs

    def get_future(self) -> Future:
        """Returns a Future of the list of output tensors."""
        if self._future is None:
            self._future = Future(self)
            if self._done:
                self._future.set_result(self.outputs)
        return self._future


class Future:
    """A value that is set later, by a Work or by `then` of another Future.

    Args:
        work: Work that sets the value; None if you call `set_result`.
        devices: ignored.
    """

    def __init__(self, work: Work | Future | None = None, *, devices: Any = None):
        self._source = work  # the Work or Future that sets the value
        self._value = None
        self._set = False
        self._callbacks = []

    def done(self) -> bool:
        """Returns True if the value is set."""
        if not self._set and self._source is not None:
            self._source.is_completed()
        return self._set

    is_completed = done

    def set_result(self, value: Any) -> None:
        """Sets the value and calls the callbacks."""
        self._value, self._set = value, True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def wait(self) -> Any:
        """Waits for the value and returns it.

        Raises:
            DistBackendError: if the collective did not end in time.
            RuntimeError: if no running collective sets the value.
        """
        if not self._set and self._source is not None:
            self._source.wait()
        if not self._set:
            raise RuntimeError("Future.wait: expected a running collective or a value, got neither. Call set_result.")
        return self._value

    def value(self) -> Any:
        """Returns the value.

        Raises:
            RuntimeError: if the value is not set yet.
        """
        if not self._set:
            raise RuntimeError("Future.value: the value is not set yet. Call wait() first.")
        return self._value

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Returns a Future of `callback(future)`, called when the value of this Future is set.

        Args:
            callback: function of this Future.
        """
        out = Future(self)
        if self._set:
            out.set_result(callback(self))
        else:
            self._callbacks.append(lambda future: out.set_result(callback(future)))
        return out

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Calls `callback(future)` when the value is set.

        Args:
            callback: function of this Future.
        """
        self.then(callback)
