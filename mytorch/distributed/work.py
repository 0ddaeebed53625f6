"""Work: a collective under way. Future: the value that it will have.

A Work is made when its collective has been started. `wait` returns when the result is there, or raises after
the group's timeout with the collective's name and, where it can be known, the ranks that did not come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

SPIN = 2e-4  # seconds of asking without a pause: most small collectives end within them
LONGEST_PAUSE = 1e-3


class DistError(RuntimeError):
    """Something went wrong between processes."""


class DistBackendError(DistError):
    """A collective failed, timed out, or was not the one that the other processes called."""


class Work:
    """A collective under way.

    Args:
        label: what it is, for messages.
        timeout: seconds after which `wait` raises.
        explain: a function that says, after a timeout, who is missing.

    A subclass defines `poll`. `on_done` are called once, in order, by whoever sees the end first.
    """

    def __init__(self, label: str = "", timeout: float | None = None, explain: Callable[[], str] | None = None):
        self.label = label
        self.timeout = timeout
        self.explain = explain
        self.outputs: list = []
        self.error: Exception | None = None
        self.source = -1  # of a receive, when it has ended: who has sent
        self._on_done = []
        self._done = False
        self._future: Future | None = None

    def poll(self) -> bool:
        """Whether the transfer has ended."""
        return True

    def finish(self, action: Callable[[], Any]) -> Work:
        """Call `action()` at the end, before anyone is told of it."""
        self._on_done.append(action)
        return self

    def is_completed(self) -> bool:
        """Whether the result is there."""
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
        """Whether it ended without an error."""
        return self._done and self.error is None

    def exception(self) -> Exception | None:
        """The error that it ended with, or None."""
        return self.error

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Return True when the result is there.

        Args:
            timeout: a timedelta or seconds, by default the group's.

        Raises:
            DistBackendError: not in time; the message names the collective and who is missing.
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
            if waited > SPIN:
                time.sleep(pause)
                pause = min(pause * 1.5, LONGEST_PAUSE)
        return True

    synchronize = wait

    def result(self) -> list:
        """The output tensors."""
        return self.outputs

    def get_future(self) -> Future:
        """A Future whose value is the list of output tensors."""
        if self._future is None:
            self._future = Future(self)
            if self._done:
                self._future.set_result(self.outputs)
        return self._future


class Future:
    """A value that will be there: of a Work, or of `then` on another Future.

    Args:
        work: what sets it; None for a future that somebody sets.
    """

    def __init__(self, work: Work | Future | None = None, *, devices: Any = None):
        self._source = work  # the Work or Future that sets it, when asked
        self._value = None
        self._set = False
        self._callbacks = []

    def done(self) -> bool:
        """Whether the value is there."""
        if not self._set and self._source is not None:
            self._source.is_completed()
        return self._set

    is_completed = done

    def set_result(self, value: Any) -> None:
        """Give it its value, and call what waits for it."""
        self._value, self._set = value, True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def wait(self) -> Any:
        """The value, when it is there.

        Raises:
            DistBackendError: the collective behind it did not end in time.
            RuntimeError: nothing will ever set it.
        """
        if not self._set and self._source is not None:
            self._source.wait()
        if not self._set:
            raise RuntimeError("Future.wait: nothing is under way that would set its value.")
        return self._value

    def value(self) -> Any:
        """The value that is there.

        Raises:
            RuntimeError: it is not.
        """
        if not self._set:
            raise RuntimeError("Future.value: the value is not there yet; call wait().")
        return self._value

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A Future of `callback(this future)`, called when this one's value is there."""
        out = Future(self)
        if self._set:
            out.set_result(callback(self))
        else:
            self._callbacks.append(lambda future: out.set_result(callback(future)))
        return out

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call `callback(this future)` when the value is there."""
        self.then(callback)
