"""Streams and events: CuPy's, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import backend
from ..backend import DeviceLike
from ..backend import device as Device


def _cuda():
    return backend.cupy_ns().cuda


def index_of(device: DeviceLike | None) -> int:
    """The number of a GPU; of the current one for None."""
    return _cuda().runtime.getDevice() if device is None else backend.as_device(device).index


class Event:
    """A mark in a stream's work, to wait for or to measure the time between two.

    Args:
        enable_timing: whether `elapsed_time` may be called.
        blocking: whether `synchronize` sleeps instead of spinning.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        self._options = {"block": blocking, "disable_timing": not enable_timing, "interprocess": interprocess}
        self._event: Any = None  # made on the GPU of the stream that it is first recorded in
        self._timed = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        """Mark what a stream (the current one by default) has been given so far."""
        stream = current_stream() if stream is None else stream
        with stream._guard():
            if self._event is None:
                self._event = _cuda().Event(**self._options)
            self._event.record(stream._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream wait here, without the CPU, until this event has come."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether everything before the mark is done."""
        return self._event is None or bool(self._event.done)

    def synchronize(self) -> None:
        """Wait on the CPU for it."""
        if self._event is not None:
            self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another.

        Raises:
            ValueError: one of them was made without enable_timing, or has not been recorded.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._event is None or end_event._event is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return _cuda().get_elapsed_time(self._event, end_event._event)


class Stream:
    """A queue of work on a GPU; `with cuda.stream(s):` makes it the current one.

    Args:
        device: whose queue; the current GPU's by default. priority: lower numbers go first (0, or -1 for high).
        stream: a CuPy stream to take over.
    """

    def __init__(self, device: DeviceLike | None = None, priority: int = 0, *, stream: Any = None):
        self._number = index_of(device)
        if stream is None:
            with _cuda().Device(self._number):
                stream = _cuda().Stream(non_blocking=True, priority=priority)
        self._stream = stream
        self._before = []  # what was current where it was entered

    @property
    def device(self) -> Device:
        """The GPU that it belongs to."""
        return backend.as_device(f"cuda:{self._number}")

    @property
    def cuda_stream(self) -> int:
        """The address that CUDA's own functions take."""
        return self._stream.ptr

    def synchronize(self) -> None:
        """Wait on the CPU until all its work is done."""
        with self._guard():
            self._stream.synchronize()

    def query(self) -> bool:
        """Whether all its work is done."""
        with self._guard():
            return bool(self._stream.done)

    def record_event(self, event: Event | None = None) -> Event:
        """A mark after what it has been given so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Go on only after an event; one that was not recorded has come."""
        if event._event is not None:
            with self._guard():
                self._stream.wait_event(event._event)

    def _guard(self):
        return _cuda().Device(self._number)

    def wait_stream(self, stream: Stream) -> None:
        """Go on only after what another stream has been given so far."""
        self.wait_event(stream.record_event())

    def __eq__(self, other):
        return isinstance(other, Stream) and (self._number, self.cuda_stream) == (other._number, other.cuda_stream)

    def __hash__(self):
        return hash((self._number, self.cuda_stream))

    def __repr__(self):
        return f"<mytorch.cuda.Stream device=cuda:{self._number} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        self._before.append((_cuda().runtime.getDevice(), _cuda().get_current_stream(self._number)))
        _cuda().Device(self._number).use()
        self._stream.__enter__()  # not `use`, which the next `with` within CuPy would undo
        return self

    def __exit__(self, *error):
        number, stream = self._before.pop()
        _cuda().Device(self._number).use()  # CuPy keeps a stack of streams for each device
        self._stream.__exit__(*(error or (None, None, None)))
        if _cuda().get_current_stream(self._number) != stream:  # that one was made current by `set_stream`
            stream.use()
        _cuda().Device(number).use()


def current_stream(device: DeviceLike | None = None) -> Stream:
    """The stream that a GPU's work goes to now."""
    number = index_of(device)
    return Stream(f"cuda:{number}", stream=_cuda().get_current_stream(number))


def default_stream(device: DeviceLike | None = None) -> Stream:
    """A GPU's null stream."""
    return Stream(device, stream=_cuda().Stream.null)


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one; None changes nothing."""
    if stream is not None:
        _cuda().Device(stream._number).use()
        stream._stream.use()


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """A context in which a stream is the current one; None changes nothing."""
    if stream is None:
        yield
        return
    with stream:
        yield
