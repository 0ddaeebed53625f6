"""Timing of small programs: `Timer(stmt="x @ y", globals={"x": x, "y": y}).timeit(100)`."""

import statistics
import timeit
from collections.abc import Callable
from typing import Any


class Measurement:
    """Times of a statement.

    Attributes:
        times: seconds per run, for each block.
        raw_times: seconds of each block.
        number_per_run: number of runs per block.
        median: median of the times in seconds.
        mean: mean of the times in seconds.
        iqr: interquartile range of the times in seconds.
    """

    def __init__(self, number_per_run: int, raw_times: list[float], description: str):
        self.number_per_run = number_per_run
        self.raw_times = raw_times
        self.description = description

    times = property(lambda self: [t / self.number_per_run for t in self.raw_times])
    median = property(lambda self: statistics.median(self.times))
    mean = property(lambda self: statistics.fmean(self.times))

    @property
    def iqr(self) -> float:
        """The interquartile range of the times in seconds."""
        if len(self.times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    def __repr__(self):
        unit, scale = next(
            (u, s) for u, s in (("s", 1), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)) if self.median >= s or u == "ns"
        )
        spread = f"  IQR:    {self.iqr / scale:.2f} {unit}\n" if len(self.times) > 1 else ""
        blocks = f"{len(self.times)} measurement{'s' if len(self.times) > 1 else ''}, {self.number_per_run} runs per measurement"
        return f"<mytorch.tools.benchmark.Measurement>\n{self.description}\n  Median: {self.median / scale:.2f} {unit}\n{spread}  {blocks}"


class Timer:
    """Times a statement; work on a GPU is included.

    Args:
        stmt: statement to time; see `timeit.Timer`.
        setup: statement to run first.
        globals: dict of names for the statements.
        label: label in the printed result.
        sub_label: second label.
        description: description in the printed result.
        num_threads: number of the library's threads while it runs (default: 1, as in PyTorch).
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        *,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        num_threads: int = 1,
    ):
        self.text = ", ".join(t for t in (label or str(stmt), sub_label, description) if t)
        self.num_threads = num_threads
        self._timer = timeit.Timer(stmt, setup, self._now, dict(globals or {}))

    @staticmethod
    def _now():
        from .. import cuda

        if cuda.is_available():
            cuda.synchronize()
        return timeit.default_timer()

    def _run(self, number):
        from ..kernels import threads

        before = threads.get_num_threads()
        threads.set_num_threads(self.num_threads)
        try:
            return self._timer.timeit(number)
        finally:
            threads.set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """Times `number` runs after a warmup, and returns a Measurement.

        Args:
            number: number of runs.
        """
        self._run(max(number // 100, 1))
        return Measurement(number, [self._run(number)], self.text)

    def blocked_autorange(
        self, callback: Callable[[int, float], None] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Times blocks of runs until min_run_time has passed. Each block takes at least a thousandth of this time.

        Args:
            callback: function of (number of runs, seconds), called after each block.
            min_run_time: total time in seconds.
        """
        number = 1
        while (t := self._run(number)) < min_run_time / 1000:
            number *= 10
        times = []
        while sum(times) < min_run_time:
            t = self._run(number)
            times.append(t)
            if callback is not None:
                callback(number, t)
        return Measurement(number, times, self.text)
