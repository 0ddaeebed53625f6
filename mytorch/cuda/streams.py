"""Streams and events, with PyTorch's API over CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import arrays as backend
from ..arrays import DeviceLike
from ..arrays import device as Device


def _cuda():
    return backend.cupy_ns().cuda


def index_of(device: DeviceLike | None) -> int:
    """Return the number of a GPU; None is the current GPU."""
    return _cuda().runtime.getDevice() if device is None else backend.as_device(device).index


class Event:
    """A mark in the work of a stream, for synchronization and timing.

    Args:
        enable_timing: enable `elapsed_time`.
        blocking: let `synchronize` sleep instead of spinning.
        interprocess: set CUDA's flag for events of several processes, which have no timing.

    Raises:
        ValueError: if both enable_timing and interprocess are True, which CUDA does not support.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if enable_timing and interprocess:
            raise ValueError("Event: expected enable_timing=False for an event with interprocess=True, got True.")
        self._options = {"block": blocking, "disable_timing": not enable_timing, "interprocess": interprocess}
        self._event: Any = None  # created on the GPU of the first stream that records it
        self._timed = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        """Marks the current end of a stream's work.

        Args:
            stream: the stream (default: the current stream).
        """
        stream = current_stream() if stream is None else stream
        with stream._guard():
            if self._event is None:
                self._event = _cuda().Event(**self._options)
            self._event.record(stream._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Makes a stream wait for this event; the CPU continues.

        Args:
            stream: the stream (default: the current stream).
        """
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Returns True if all work before the mark is done."""
        return self._event is None or bool(self._event.done)

    def synchronize(self) -> None:
        """Waits for the event on the CPU."""
        if self._event is not None:
            self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Returns the milliseconds between this event and another event.

        Args:
            end_event: the later event.

        Raises:
            ValueError: if an event has no timing or has not been recorded.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._event is None or end_event._event is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return _cuda().get_elapsed_time(self._event, end_event._event)


class Stream:
    """A queue of work on a GPU; `with cuda.stream(s):` selects it.

    Args:
        device: the GPU (default: the current GPU).
        priority: 0, or -1 for high priority.
        stream: a CuPy stream to wrap.
    """

    def __init__(self, device: DeviceLike | None = None, priority: int = 0, *, stream: Any = None):
        self._number = index_of(device)
        if stream is None:
            with _cuda().Device(self._number):
                stream = _cuda().Stream(non_blocking=True, priority=priority)
        self._stream = stream
        self._before = []  # earlier current streams

    @property
    def device(self) -> Device:
        """The GPU of the stream."""
        return backend.as_device(f"cuda:{self._number}")

    @property
    def cuda_stream(self) -> int:
        """The address of the CUDA stream."""
        return self._stream.ptr

    def synchronize(self) -> None:
        """Waits on the CPU for all work of the stream."""
        with self._guard():
            self._stream.synchronize()

    def query(self) -> bool:
        """Returns True if all work of the stream is done."""
        with self._guard():
            return bool(self._stream.done)

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event after the current work of the stream and returns it.

        Args:
            event: the event (default: a new event).
        """
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Makes the stream wait for an event. An event that was not recorded has no effect."""
        if event._event is not None:
            with self._guard():
                self._stream.wait_event(event._event)

    def _guard(self):
        return _cuda().Device(self._number)

    def wait_stream(self, stream: Stream) -> None:
        """Makes the stream wait for the current work of another stream.

        Args:
            stream: the other stream.
        """
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
        self._stream.__enter__()  # not `use`, because CuPy's next `with` would restore the old stream
        return self

    def __exit__(self, *error):
        number, stream = self._before.pop()
        _cuda().Device(self._number).use()  # CuPy stores a stack of streams per device
        self._stream.__exit__(*(error or (None, None, None)))
        if _cuda().get_current_stream(self._number) != stream:  # `set_stream` had selected it
            stream.use()
        _cuda().Device(number).use()


def current_stream(device: DeviceLike | None = None) -> Stream:
    """Returns the current stream of a GPU.

    Args:
        device: the GPU (default: the current GPU).
    """
    number = index_of(device)
    return Stream(f"cuda:{number}", stream=_cuda().get_current_stream(number))


def default_stream(device: DeviceLike | None = None) -> Stream:
    """Returns the default (null) stream of a GPU.

    Args:
        device: the GPU (default: the current GPU).
    """
    return Stream(device, stream=_cuda().Stream.null)


def set_stream(stream: Stream | None) -> None:
    """Selects the current stream.

    Args:
        stream: the stream; None has no effect.
    """
    if stream is not None:
        _cuda().Device(stream._number).use()
        stream._stream.use()


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Context manager that selects a stream.

    Args:
        stream: the stream; None has no effect.
    """
    if stream is None:
        yield
        return
    with stream:
        yield
