"""What a profile has measured: events, their averages, tables and traces; names and fields are those of `torch.autograd.profiler_util`.

Beyond PyTorch's, an event knows which kernels it took and why not (`fused`, from kernels/registry.py), and its module (`module`).
"""

import gzip
import json
import os
from collections import Counter
from typing import Any, NamedTuple

FORWARD, BACKWARD, USER, MODULE = 0, 1, 7, "module"  # scopes; the numbers are PyTorch's RecordScope
_CATEGORIES = {FORWARD: "cpu_op", BACKWARD: "cpu_op", USER: "user_annotation", MODULE: "python_function"}


class Interval(NamedTuple):
    """From when to when, in microseconds."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Its length."""
        return self.end - self.start


class _Times:
    """What events and their averages have: means, and numbers as text."""

    device_time_total = self_device_time_total = device_time = 0.0  # there is no clock on the device
    device_type = "CPU"

    @property
    def cpu_time(self):
        """Microseconds of one call, on average."""
        return self.cpu_time_total / self.count

    cpu_time_str = property(lambda self: _time(self.cpu_time))
    cpu_time_total_str = property(lambda self: _time(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: _time(self.self_cpu_time_total))


class FunctionEvent(_Times):
    """One call of an op, of a node in backward, of a module, or of a `record_function` range.

    Attributes:
        name, key: what ran: an op's name, a node's ("MulBackward0"), "nn.Module: " and a module's path, or a range's.
        time_range: an Interval. thread: the number of its thread.
        sequence_nr: of a recorded op and of its node in backward, the same; -1 for what is neither.
        cpu_parent, cpu_children: within which event it ran, and which ran within it.
        input_shapes: with record_shapes. stack: with with_stack, innermost line first; a node has its forward's.
        fused: how often which kernel ran, or "no: " and why not; empty where none is written for this.
        module: with with_modules, the path of the module; a node has its forward's.
        forward: of a node, the event of its forward, if that was measured.
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
        self.self_cpu_memory_usage = self.self_device_memory_usage = 0

    time_range = property(lambda self: Interval(self.start, self.end))
    cpu_time_total = property(lambda self: max(self.end - self.start, 0.0))  # 0: it has not ended
    is_user_annotation = property(lambda self: self.scope == USER)

    @property
    def self_cpu_time_total(self):
        """Microseconds in it that are of no event within it."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def cpu_memory_usage(self):
        """Bytes of arrays that were made less those that were freed, with all within it."""
        return self.self_cpu_memory_usage + sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def device_memory_usage(self):
        """The same of a GPU's memory."""
        return self.self_device_memory_usage + sum(child.device_memory_usage for child in self.cpu_children)

    def __repr__(self):
        return f"<FunctionEvent {self.name} cpu_time={self.cpu_time_str} input_shapes={self.input_shapes}>"


_SUMS = "cpu_time_total self_cpu_time_total cpu_memory_usage self_cpu_memory_usage device_memory_usage self_device_memory_usage"


class FunctionEventAvg(_Times):
    """All events of one key: how many, and the sums of their times and bytes; the other fields are the first one's."""

    def __init__(self):
        self.key, self.count, self.fused = None, 0, Counter()
        for name in _SUMS.split():
            setattr(self, name, 0)

    def add(self, other: Any) -> "FunctionEventAvg":
        """Add an event, or another average."""
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
    """A list of events or of averages, which prints as its `table`."""

    def __str__(self):
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds in all."""
        return sum(event.self_cpu_time_total for event in self)

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
        total.key = "Total"
        return total

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False,
        *, group_by_module: bool = False,
    ) -> "EventList":  # fmt: skip
        """The averages of all events of one name.

        Args:
            group_by_input_shapes: and of equal shapes.
            group_by_stack_n: and of so many equal lines of the stack, from the innermost on.
            group_by_overload_name: changes nothing: names are without overloads.
            group_by_module: and of one module.
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
        """The events as text, one a line; columns in which nothing would stand are left out.

        Args:
            sort_by: a field, such as "self_cpu_time_total" or "cpu_memory_usage", the largest first; None keeps the order.
            row_limit: how many lines; -1 for all.
            max_src_column_width, max_name_column_width, max_shapes_column_width: where text is cut.
            header: a line above.
            top_level_events_only: only events that ran within no other.
            time_unit: "s", "ms" or "us"; None: as it fits.

        Raises:
            ValueError: another sort_by.
        """
        rows = [e for e in self if not top_level_events_only or getattr(e, "cpu_parent", None) is None]
        if not rows:
            return ""
        if sort_by is not None:
            field = sort_by.replace("cuda", "device")
            if not isinstance(getattr(rows[0], field, None), (int, float)):
                raise ValueError(
                    f"table: sort_by must be count, cpu_time, device_time, {', '.join(_SUMS.split())}, got {sort_by!r}."
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
        """Write a line for each event with a stack: the stack, outermost first, and a number, as flame graphs are drawn of.

        Args:
            metric: "self_cpu_time_total" or "self_cuda_time_total".

        Raises:
            ValueError: another metric.
        """
        metrics = ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]
        if metric not in metrics:
            raise ValueError(f"metric should be one of: {metrics}")
        field = "self_cpu_time_total" if metric == metrics[0] else "self_device_time_total"
        plain = str.maketrans(" ;\t\n", "____")
        with open(path, "w", encoding="utf-8") as file:
            for event in self:
                value = int(getattr(event, field))
                if event.stack and value > 0:
                    file.write(";".join(line.translate(plain) for line in reversed(event.stack)) + f" {value}\n")

    def export_chrome_trace(self, path: str | os.PathLike, memory: Any = (), metadata: Any = None) -> None:
        """Write the events as JSON that chrome://tracing and ui.perfetto.dev show, gzipped if the name ends in ".gz".

        Args:
            memory: (microseconds, bytes, bytes in all) of what was made or freed. metadata: further keys of the file.
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
        with (gzip.open if str(path).endswith(".gz") else open)(path, "wt", encoding="utf-8") as file:
            json.dump(whole, file)


def _traced(event, place):
    """An event as Chrome's trace has it."""
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
    """The columns of a table: title, and the text of an event."""

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
        ("Kernel", lambda e: _cut(", ".join(f"{c} x {k}" if e.count > 1 else k for k, c in e.fused.items()), name)),
        ("Module", lambda e: _cut(e.module, name)),
        ("Input Shapes", lambda e: _cut(str(e.input_shapes or ""), shapes)),
        ("Source Location", lambda e: _cut(" < ".join(e.stack), source)),
    ]  # fmt: skip


def _cut(text, width):
    return text if len(text) <= width else text[: width - 3] + "..."


def _time(us, unit=None):
    """Microseconds as text."""
    unit = unit or ("s" if us >= 1e6 else "ms" if us >= 1e3 else "us")
    return f"{us / {'s': 1e6, 'ms': 1e3, 'us': 1.0}[unit]:.3f}{unit}"


def _bytes(count):
    """A number of bytes as text."""
    for power, name in ((30, "GB"), (20, "MB"), (10, "KB")):
        if abs(count) >= 1 << power:
            return f"{count / (1 << power):.2f} {name}"
    return f"{count} B"


__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]
