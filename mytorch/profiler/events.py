"""Events of a profile, their averages, tables and traces, with the names of `torch.autograd.profiler_util`.

Additional fields are `fused`, the selected kernels or the reason for none (kernels/registry.py), and `module`.
"""

import gzip
import json
import os
from collections import Counter
from typing import Any, NamedTuple

from ..files.writing import atomic_write

FORWARD, BACKWARD, USER, MODULE = 0, 1, 7, "module"  # scopes; the numbers are PyTorch's RecordScope values
_CATEGORIES = {FORWARD: "cpu_op", BACKWARD: "cpu_op", USER: "user_annotation", MODULE: "python_function"}


class Interval(NamedTuple):
    """A time interval in microseconds."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Returns the length of the interval."""
        return self.end - self.start


class _Times:
    """Base class of events and averages: means, and numbers as text."""

    device_time_total = self_device_time_total = device_time = 0.0  # device time is not measured
    device_type = "CPU"

    @property
    def cpu_time(self):
        """The average time of one call in microseconds."""
        return self.cpu_time_total / self.count

    cpu_time_str = property(lambda self: _time(self.cpu_time))
    cpu_time_total_str = property(lambda self: _time(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: _time(self.self_cpu_time_total))


class FunctionEvent(_Times):
    """One call of an op, a backward node, a module, or a `record_function` range.

    Attributes:
        name: name of an op, a node ("MulBackward0"), a module ("nn.Module: " and its path), or a range.
        key: the same as name.
        time_range: Interval of the event.
        thread: number of the thread.
        sequence_nr: number shared by an op and its backward node; -1 for other events.
        cpu_parent: enclosing event.
        cpu_children: events within it.
        input_shapes: shapes of the inputs, with record_shapes.
        stack: source lines with with_stack, innermost first; a node has the lines of its forward.
        fused: number of calls of each kernel, or "no: " and the reason; empty if there is no kernel for the op.
        module: path of the module with with_modules; a node has the module of its forward.
        forward: event of a node's forward, if it was measured.
    """

    count = 1

    def __init__(self, name, scope, thread, number):
        self.name = self.key = name
        self.scope, self.thread, self.id = scope, thread, number
        self.start = self.end = 0.0
        self.sequence_nr = -1
        self.cpu_parent, self.cpu_children = None, []
        self.input_shapes, self.stack, self.module = [], [], ""
        self.fused, self.forward = Counter(), None
        self.self_cpu_memory_usage = self.self_device_memory_usage = self.flops = 0

    time_range = property(lambda self: Interval(self.start, self.end))
    cpu_time_total = property(lambda self: max(self.end - self.start, 0.0))  # 0 if it has not ended
    is_user_annotation = property(lambda self: self.scope == USER)

    @property
    def self_cpu_time_total(self):
        """The time in microseconds outside inner events."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def cpu_memory_usage(self):
        """The bytes of allocated arrays minus freed arrays, including inner events."""
        return self.self_cpu_memory_usage + sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def device_memory_usage(self):
        """The same for GPU memory."""
        return self.self_device_memory_usage + sum(child.device_memory_usage for child in self.cpu_children)

    def __repr__(self):
        return f"<FunctionEvent {self.name} cpu_time={self.cpu_time_str} input_shapes={self.input_shapes}>"


_SUMS = "cpu_time_total self_cpu_time_total cpu_memory_usage self_cpu_memory_usage device_memory_usage self_device_memory_usage flops"


class FunctionEventAvg(_Times):
    """All events with one key: their number, and the sums of times and bytes. Other fields come from the first event."""

    def __init__(self):
        self.key, self.count, self.fused = None, 0, Counter()
        for name in _SUMS.split():
            setattr(self, name, 0)

    def add(self, other: Any) -> "FunctionEventAvg":
        """Adds an event or another average.

        Args:
            other: the event or average.
        """
        if self.key is None:
            for name in ("key", "scope", "input_shapes", "stack", "module", "is_user_annotation"):
                setattr(self, name, getattr(other, name))
        for name in ("count", "fused", *_SUMS.split()):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    __iadd__ = add

    def __repr__(self):
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


class EventList(list):
    """A list of events or averages; `print` displays its `table`."""

    def __str__(self):
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """The total time in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def total_average(self) -> FunctionEventAvg:
        """Returns one average over all events."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
        total.key = "Total"
        return total

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False,
        *, group_by_module: bool = False,
    ) -> "EventList":  # fmt: skip
        """Returns the averages of events with the same name.

        Args:
            group_by_input_shapes: group by the shapes of the inputs too.
            group_by_stack_n: group by this number of stack lines too, innermost first.
            group_by_overload_name: ignored; names have no overloads.
            group_by_module: group by the module too.
        """
        found = {}
        for event in self:
            shapes = str(event.input_shapes) if group_by_input_shapes else ""
            stack = tuple(event.stack[:group_by_stack_n])
            key = event.key, event.is_user_annotation, shapes, stack, event.module if group_by_module else ""
            found.setdefault(key, FunctionEventAvg()).add(event)
        for average in found.values():
            average.stack = average.stack[:group_by_stack_n]
            average.input_shapes = average.input_shapes if group_by_input_shapes else ""
            average.module = average.module if group_by_module else ""
        return EventList(found.values())

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
        max_name_column_width: int = 55, max_shapes_column_width: int = 80, header: str | None = None,
        top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:  # fmt: skip
        """Returns the events as a text table, without empty columns.

        Args:
            sort_by: field to sort by in decreasing order, such as "self_cpu_time_total" or "cpu_memory_usage".
            row_limit: maximum number of rows; -1 for all.
            max_src_column_width: maximum width of the source column in characters.
            max_name_column_width: maximum width of the name column in characters.
            max_shapes_column_width: maximum width of the shapes column in characters.
            header: line above the table.
            top_level_events_only: only events without an enclosing event.
            time_unit: "s", "ms" or "us" (default: chosen by size).

        Raises:
            ValueError: if sort_by is unknown.
        """
        rows = [e for e in self if not top_level_events_only or getattr(e, "cpu_parent", None) is None]
        if not rows:
            return ""
        if sort_by is not None:
            field = sort_by.replace("cuda", "device")
            if not isinstance(getattr(rows[0], field, None), (int, float)):
                raise ValueError(
                    f"table: expected sort_by to be count, cpu_time, device_time, {', '.join(_SUMS.split())}, got {sort_by!r}."
                )
            rows.sort(key=lambda e: -getattr(e, field))
        whole = self.self_cpu_time_total
        columns = _columns(whole, max_src_column_width, max_name_column_width, max_shapes_column_width, time_unit)
        cells = [(title, [text(e) for e in (rows if row_limit < 0 else rows[:row_limit])]) for title, text in columns]
        always = ("Name", "CPU total", "# of Calls")
        cells = [(t, c) for t, c in cells if t in always or any(x not in ("", "0 B") for x in c)]
        widths = [max(len(t), *map(len, c)) for t, c in cells]
        lines = ["  ".join(t.rjust(w) for (t, _), w in zip(cells, widths, strict=True))]
        rule = "  ".join("-" * w for w in widths)
        for row in zip(*[c for _, c in cells], strict=True):
            lines.append("  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True)))
        top = [header] if header else []
        return "\n".join([*top, rule, lines[0], rule, *lines[1:], rule, f"Self CPU time total: {_time(whole)}", ""])

    def export_stacks(self, path: str, metric: str) -> None:
        """Writes one line per event with a stack: the stack, outermost first, and a number, for flame graphs.

        Args:
            path: path of the file.
            metric: "self_cpu_time_total" or "self_cuda_time_total".

        Raises:
            ValueError: if the metric is unknown.
        """
        metrics = ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]
        if metric not in metrics:
            raise ValueError(f"metric should be one of: {metrics}")
        field = "self_cpu_time_total" if metric == metrics[0] else "self_device_time_total"
        plain = str.maketrans(" ;\t\n", "____")
        lines = [
            ";".join(line.translate(plain) for line in reversed(event.stack)) + f" {value}\n"
            for event in self
            if event.stack and (value := int(getattr(event, field))) > 0
        ]
        atomic_write(path, "".join(lines).encode())

    def export_chrome_trace(self, path: str | os.PathLike, memory: Any = (), metadata: Any = None) -> None:
        """Writes the events as JSON for chrome://tracing and ui.perfetto.dev, gzipped if the name ends in ".gz".

        Args:
            path: path of the file.
            memory: (microseconds, bytes, total bytes) of each allocation and release.
            metadata: additional keys of the file.
        """
        place = {"pid": os.getpid()}
        found = [e for event in self for e in _traced(event, {**place, "tid": event.thread})]
        for time, change, total in memory:
            what = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "ts": time}
            facts = {"Bytes": change, "Total Allocated": total}
            found.append({**what, "args": facts, **place, "tid": self[0].thread if self else 0})
        for event in self:
            if event.scope == BACKWARD and event.forward is not None:
                flow = {"id": event.sequence_nr, "cat": "fwdbwd", "name": "fwdbwd", **place}
                found.append({"ph": "s", "ts": event.forward.start, "tid": event.forward.thread, **flow})
                found.append({"ph": "f", "bp": "e", "ts": event.start, "tid": event.thread, **flow})
        whole = {"schemaVersion": 1, "displayTimeUnit": "ms", **(metadata or {})}
        whole["traceEvents"] = sorted(found, key=lambda e: e["ts"])
        content = json.dumps(whole).encode()
        atomic_write(path, gzip.compress(content) if str(path).endswith(".gz") else content)


def _traced(event, place):
    """Return an event in Chrome's trace format."""
    facts = {"External id": event.id}
    if event.sequence_nr >= 0:
        facts["Sequence number"] = event.sequence_nr
    further = {
        "Input Dims": event.input_shapes, "Call stack": ";".join(event.stack), "Module Hierarchy": event.module,
        "Kernel": ", ".join(event.fused),
    }  # fmt: skip
    facts |= {name: value for name, value in further.items() if value}
    when = {"ts": event.start, "dur": event.cpu_time_total}
    yield {"ph": "X", "cat": _CATEGORIES[event.scope], "name": event.name, **when, "args": facts, **place}


def _columns(whole, source, name, shapes, unit):
    """Return the columns of a table: title, and function of an event that returns text."""

    def share(us):
        return f"{100 * us / whole:.2f}%" if whole else "0.00%"

    return [
        ("Name", lambda e: _cut(e.key, name)),
        ("Self CPU %", lambda e: share(e.self_cpu_time_total)),
        ("Self CPU", lambda e: _time(e.self_cpu_time_total, unit)),
        ("CPU total %", lambda e: share(e.cpu_time_total)),
        ("CPU total", lambda e: _time(e.cpu_time_total, unit)),
        ("CPU time avg", lambda e: _time(e.cpu_time, unit)),
        ("CPU Mem", lambda e: _bytes(e.cpu_memory_usage)),
        ("Self CPU Mem", lambda e: _bytes(e.self_cpu_memory_usage)),
        ("Device Mem", lambda e: _bytes(e.device_memory_usage)),
        ("# of Calls", lambda e: str(e.count)),
        ("Total KFLOPs", lambda e: f"{e.flops / 1000:.3f}" if e.flops else ""),
        ("Kernel", lambda e: _cut(", ".join(f"{c} x {k}" if e.count > 1 else k for k, c in e.fused.items()), name)),
        ("Module", lambda e: _cut(e.module, name)),
        ("Input Shapes", lambda e: _cut(str(e.input_shapes or ""), shapes)),
        ("Source Location", lambda e: _cut(" < ".join(e.stack), source)),
    ]  # fmt: skip


def _cut(text, width):
    return text if len(text) <= width else text[: width - 3] + "..."


def _time(us, unit=None):
    """Format microseconds."""
    unit = unit or ("s" if us >= 1e6 else "ms" if us >= 1e3 else "us")
    return f"{us / {'s': 1e6, 'ms': 1e3, 'us': 1.0}[unit]:.3f}{unit}"


def _bytes(count):
    """Format a number of bytes."""
    for power, name in ((30, "GB"), (20, "MB"), (10, "KB")):
        if abs(count) >= 1 << power:
            return f"{count / (1 << power):.2f} {name}"
    return f"{count} B"


__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]
