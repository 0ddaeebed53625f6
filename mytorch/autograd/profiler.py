"""Wall time of forward ops and of named ranges, as a table; backward is timed as a whole by a range around it."""

import functools
import json
import os
import time
from collections import namedtuple

from ..graph.mode import ModeSwitch, get_mode, reset_mode, set_mode

_SORTS = {"cpu_time_total": 2, "self_cpu_time_total": 2, "cpu_time": 3, "count": 1, None: None}

Event = namedtuple("Event", "key count cpu_time_total cpu_time input_shapes")
Event.__doc__ = "All calls of one op or range: how many, microseconds in all and on average, and the shapes of inputs."


class EventList(list):
    """What `key_averages` gives: Events, and `table` to print them."""

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """The events as text, one a line.

        Args:
            sort_by: "cpu_time_total", "cpu_time" or "count", the largest first; None keeps the order of first calls.
            row_limit: how many lines; -1 for all.

        Raises:
            ValueError: another sort_by.
        """
        if sort_by not in _SORTS:
            raise ValueError(f"table: sort_by must be one of {[s for s in _SORTS if s]}, got {sort_by!r}.")
        place = _SORTS[sort_by]
        rows = list(self) if place is None else sorted(self, key=lambda e: -e[place])
        rows = rows if row_limit < 0 else rows[:row_limit]
        width = max([len(e.key) for e in rows] + [4])
        lines = [f"{'Name':<{width}}  {'Calls':>8}  {'Total ms':>12}  {'Mean us':>12}"]
        for e in rows:
            shapes = f"  {list(e.input_shapes)}" if e.input_shapes else ""
            lines.append(
                f"{e.key:<{width}}  {e.count:>8}  {e.cpu_time_total / 1e3:>12.3f}  {e.cpu_time:>12.2f}{shapes}"
            )
        return "\n".join(lines)


def _add(times, key, count, seconds):
    entry = times.setdefault(key, [0, 0.0])
    entry[0] += count
    entry[1] += seconds


class profile(ModeSwitch):
    """Within the block, measure the wall time of every forward op of the thread, and of `record_function` ranges.

    Args:
        enabled: False measures nothing.
        record_shapes: count calls with other shapes of inputs apart.
    """

    def __init__(self, enabled: bool = True, *, record_shapes: bool = False):
        super().__init__()
        self.enabled = enabled
        self.record_shapes = record_shapes
        self._found = {}  # (name, shapes) -> [calls, seconds]
        self._calls = []  # (name, start, seconds), in the order in which they ended

    def _changes(self):
        return {"profile": self if self.enabled else get_mode().profile}

    def clone(self):
        return self

    def run(self, op, inputs, fused, attrs):
        """Run an op and note its time; ops that it calls are part of it."""
        token = set_mode(get_mode().replace(profile=None))
        start = time.perf_counter()
        try:
            return op(*inputs, fused=fused, **attrs)
        finally:
            seconds = time.perf_counter() - start
            reset_mode(token)
            shapes = tuple(tuple(x.shape) for x in inputs if hasattr(x, "shape")) if self.record_shapes else ()
            self.note(op.name, seconds, shapes, start)

    def note(self, name, seconds, shapes=(), start=0.0):
        """Add one call."""
        _add(self._found, (name, shapes), 1, seconds)
        self._calls.append((name, start, seconds))

    def export_chrome_trace(self, path: str) -> None:
        """Write every call as a JSON file that chrome://tracing and ui.perfetto.dev show."""
        place = {"ph": "X", "cat": "cpu_op", "pid": os.getpid(), "tid": 0}
        events = [{"name": name, "ts": start * 1e6, "dur": s * 1e6, **place} for name, start, s in self._calls]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": sorted(events, key=lambda event: event["ts"])}, file)

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """An EventList of what was measured."""
        merged = {}
        for (name, shapes), (count, seconds) in self._found.items():
            _add(merged, (name, shapes if group_by_input_shape else ()), count, seconds)
        return EventList(Event(n, c, t * 1e6, t * 1e6 / c, shapes) for (n, shapes), (c, t) in merged.items())

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """The measured times as text; see EventList.table."""
        return self.key_averages().table(sort_by, row_limit)


class record_function:
    """A named range: within a `profile`, the block (or decorated function) is measured under this name."""

    def __init__(self, name: str, args: str | None = None):
        self.name = name

    def __enter__(self):
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exc):
        found = get_mode().profile
        if found is not None:
            found.note(self.name, time.perf_counter() - self._start, start=self._start)

    def __call__(self, function):
        @functools.wraps(function)
        def measured(*args, **kwargs):
            with record_function(self.name):
                return function(*args, **kwargs)

        return measured


__all__ = ["profile", "record_function"]
