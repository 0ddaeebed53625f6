"""Parts of a training script: interruptions, the log of a run, its checkpoints, and the speed of training.

Each part is independent of the others and of the Accelerator's training loop. `train_gpt2.py` uses all of them.
"""

import contextlib
import json
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

from ..autograd.mode import no_grad
from ..cuda import get_device_name
from ..files.writing import atomic_write, lock, remove_directory
from ..ops.creation import from_numpy, tensor
from ..ops.random import positions, set_positions
from .training_state import is_complete, newest_checkpoint, steps_of
from .utils import tqdm

__all__ = [
    "Interrupt", "Progress", "RunLog", "Throughput", "check_finite", "find_checkpoint", "ignore_interrupts", "keep_random_states", "mean_loss",
    "newest_checkpoint", "peak_flops", "remove_checkpoints", "steps_of", "warn_if_long",
]  # fmt: skip

CURVES = (("loss", "training"), ("validation_loss", "validation"))  # keys of records, and labels in a plot
FINISHING = "\nFinishing this step; Ctrl-C again quits without saving.\n"


class Interrupt:
    """Lets a training loop finish its step after Ctrl-C (SIGINT) or SIGTERM.

    In the `with` block, the first signal is remembered, and the loop asks for it with `received`. A second signal raises
    KeyboardInterrupt at once.

    Args:
        accelerator: an Accelerator, if several processes train together. All processes then stop at the same step, even if
            only one process received the signal.
        message: text that the main process writes to stderr at the first signal.

    Attributes:
        signal: the number of the first signal, or None.

    Example:
        >>> import signal
        >>> with mytorch.accelerate.Interrupt(message="") as interrupt:
        ...     for step in range(100):
        ...         if interrupt.received():
        ...             break
        ...         if step == 2:
        ...             signal.raise_signal(signal.SIGINT)  # or Ctrl-C
        >>> step, interrupt.signal == signal.SIGINT
        (3, True)
    """

    def __init__(self, accelerator: Any = None, message: str = FINISHING):
        self.accelerator = accelerator
        self.message = message if accelerator is None or accelerator.is_main_process else ""
        self.signal: int | None = None

    def __enter__(self) -> "Interrupt":
        self.before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def __call__(self, number, frame):
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        os.write(2, self.message.encode())  # not print: the signal may have interrupted a print

    def received(self) -> bool:
        """Returns True if any process received a signal. All processes must call this at the same point."""
        accelerator = self.accelerator
        if accelerator is not None and accelerator.num_processes > 1:
            number = int(accelerator.gather(tensor([self.signal or 0], device=accelerator.device)).max())
            self.signal = number or self.signal  # a signal that arrived after the gather counts at the next call
            return number > 0
        return self.signal is not None


def ignore_interrupts(worker: int = 0) -> None:
    """Ignores SIGINT in this process: the `worker_init_fn` of a DataLoader whose main process uses Interrupt.

    A terminal sends Ctrl-C to all processes. Without this function, worker processes would end before the step is done.

    Args:
        worker: number of the worker; ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def keep_random_states() -> Callable[[], None]:
    """Returns a function that restores the present states of the random generators of the library, NumPy and Python.

    Call it before a step that may be dropped (`Accelerator.drop_step`). It does not wait for a GPU.

    Example:
        >>> restore = mytorch.accelerate.keep_random_states()
        >>> x = mytorch.rand(2)
        >>> restore()
        >>> mytorch.equal(mytorch.rand(2), x)
        True
    """
    ours, numpys, pythons = positions(), np.random.get_state(legacy=False), random.getstate()

    def restore():
        set_positions(ours)
        np.random.set_state(numpys)
        random.setstate(pythons)

    return restore


def _record(line):
    """Return the record in a line of a log, or None for a line that a crash truncated or damaged."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("iteration"), int | float) else None


class RunLog:
    """The log of a training run as JSON lines: one JSON object per record.

    Args:
        path: path of the file. An existing file is replaced, except for the records that `iteration` keeps.
        iteration: number of completed iterations when a run resumes. Records up to this iteration are kept.
        writes: False for a log that writes nothing, for all processes except the main process.

    Attributes:
        records: the records as dicts.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/log.jsonl"
        >>> log = mytorch.accelerate.RunLog(path)
        >>> log.write(iteration=1, loss=2.5)
        >>> log.write(iteration=2, loss=2.25)
        >>> mytorch.accelerate.RunLog(path, iteration=1).records
        [{'iteration': 1, 'loss': 2.5}]
    """

    def __init__(self, path: str | Path, iteration: int = 0, writes: bool = True):
        self.path, self.writes = Path(path), writes
        self.records: list[dict[str, Any]] = []
        self._unwritten = ""
        if not writes:
            return
        if iteration and self.path.is_file():
            records = map(_record, self.path.read_text(errors="replace").splitlines())
            self.records = [record for record in records if record and record["iteration"] <= iteration]
        atomic_write(self.path, "".join(json.dumps(record) + "\n" for record in self.records).encode())

    def write(self, **record: Any) -> None:
        """Appends a record. If the disk is full, the record is written together with the next one.

        Args:
            **record: `iteration`, and any values that JSON can represent.
        """
        if not self.writes:
            return
        self.records.append(record)
        self._unwritten += json.dumps(record) + "\n"
        with contextlib.suppress(OSError), open(self.path, "a") as file:
            file.write(self._unwritten)
            self._unwritten = ""

    def plot(self, path: str | Path, curves: Iterable[tuple[str, str]] = CURVES, ylabel: str = "loss") -> None:
        """Draws values over the iterations and saves the figure. Does nothing without matplotlib or without records.

        Args:
            path: the image file.
            curves: pairs of a record's key and the curve's label. The first curve is a line, the others have markers. By default the
                training and validation losses.
            ylabel: label of the vertical axis.
        """
        if util.find_spec("matplotlib") is None or not self.records:
            return
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(xlabel="iteration", ylabel=ylabel)
        for i, (key, label) in enumerate(curves):
            points = [(record["iteration"], record[key]) for record in self.records if key in record]
            if points:
                axes.plot(*zip(*points, strict=True), label=label, marker="o" if i else None)
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(path, dpi=120)


# -- checkpoints --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def exclusive(folder: str | Path, writes: bool = True) -> Iterator[None]:
    """Reserves the folder of a run, so that no second run writes into it at the same time.

    The reservation ends with the block, and with the process if it is killed. On Windows nothing is reserved.

    Args:
        folder: the folder; it is created if it does not exist.
        writes: False for processes that do not write into the folder.

    Raises:
        BlockingIOError: another run is using the folder.

    Example:
        >>> import tempfile
        >>> with mytorch.accelerate.exclusive(tempfile.mkdtemp()):
        ...     pass  # train and save checkpoints
    """
    if not writes:
        yield
        return
    path = Path(folder) / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        while True:
            file = stack.enter_context(open(path, "w"))
            if lock(file) is False:
                raise BlockingIOError(
                    f"{folder}: expected a folder that no other run uses, got one that a run is using. Wait for that run to "
                    "end, or use another folder."
                )
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    break
            # A run that ended between open and lock has removed the file: lock the next one.
        stack.callback(path.unlink, missing_ok=True)
        yield


def find_checkpoint(folder: str | Path, name: str | Path = "latest") -> Path:
    """Returns the directory of a checkpoint that `Accelerator.save_state` wrote.

    Args:
        folder: the folder of a run, which contains its checkpoints.
        name: "latest" for the checkpoint with the most steps, a name in the folder, or a path.

    Raises:
        FileNotFoundError: if the checkpoint does not exist or is not complete.
    """
    if name == "latest":
        newest = newest_checkpoint(folder)
        if newest is None:
            raise FileNotFoundError(f"find_checkpoint: expected a checkpoint in {folder}, found none.")
        return newest
    for path in (Path(name), Path(folder) / name):
        if is_complete(path):
            return path
    raise FileNotFoundError(f"find_checkpoint: expected a complete checkpoint {name} in {folder}, found none.")


def remove_checkpoints(folder: str | Path) -> None:
    """Removes all complete checkpoints in a folder. Other files stay.

    Args:
        folder: the folder of a run, which may be missing.
    """
    folder = Path(folder)
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_complete(path):
            remove_directory(path)


# -- speed --------------------------------------------------------------------------------------------------------

PEAKS = {  # TFLOP/s of dense matrix multiplication in (float32, half precision), by a part of the GPU's name
    "H100": (67, 989), "H200": (67, 989), "A100": (19.5, 312), "L4": (30.3, 121), "V100": (15.7, 125), "T4": (8.1, 65),
    "4090": (82.6, 165), "3090": (35.6, 71),
}  # fmt: skip


def peak_flops(device: Any, half: bool = False, tflops: float | None = None) -> float | None:
    """Returns the highest number of operations per second of a device, by the manufacturer, or None for a CPU or an unknown GPU.

    Args:
        half: if True, use the GPU's value for half precision.
        tflops: a value in TFLOP/s (10**12 operations per second) that replaces the known value.

    Example:
        >>> mytorch.accelerate.peak_flops(mytorch.device("cpu"), tflops=0.2)
        200000000000.0
    """
    if tflops is not None:
        return tflops * 1e12
    name = get_device_name(device) if device.type == "cuda" else ""
    return next((peaks[half] * 1e12 for part, peaks in PEAKS.items() if part in name), None)


CPU_SPEED = 1e11  # operations per second of a CPU with two to four cores


def warn_if_long(accelerator: Any, operations: float, advice: str) -> float:
    """Prints an estimate of the training time on a CPU if it is more than an hour.

    Args:
        accelerator: the Accelerator. On a GPU nothing is printed.
        operations: the operations of this process, about 6 per parameter and token.
        advice: the end of the sentence.

    Returns:
        The estimate in hours; 0 on a GPU.

    Example:
        >>> accelerator = mytorch.accelerate.Accelerator(cpu=True)
        >>> hours = mytorch.accelerate.warn_if_long(accelerator, 1e15, "a smaller model takes minutes.")
        On a CPU that computes 100 GFLOP/s this takes about 3 hours; a smaller model takes minutes.
    """
    hours = operations / CPU_SPEED / 3600 if accelerator.device.type == "cpu" else 0.0
    if hours > 1:
        speed = f"{CPU_SPEED / 1e9:.0f} GFLOP/s"
        accelerator.print(f"On a CPU that computes {speed} this takes about {hours:,.0f} hours; {advice}")
    return hours


class Throughput:
    """Measures the speed of training in tokens per second, and as model FLOPs utilization (MFU).

    MFU is the fraction of the hardware's peak that the operations of the model need: tokens per second times operations
    per token, divided by the peak.

    Args:
        tokens_per_step: tokens in one step of all processes together.
        flops_per_token: operations per token in forward and backward, such as `model.flops_per_token()`.
        peak: operations per second of all devices together, see `peak_flops`. Without it there is no MFU.

    Source: Chowdhery et al., PaLM, 2022, appendix B.

    Example:
        >>> speed = mytorch.accelerate.Throughput(tokens_per_step=1024, flops_per_token=6e6, peak=1e12)
        >>> for step in range(3):
        ...     speed.step()
        >>> with speed.paused():  # the time of an evaluation does not count
        ...     pass
        >>> speed.tokens_per_second() > 0, speed.mfu(tokens_per_second=50_000)
        (True, 0.3)
    """

    def __init__(self, tokens_per_step: int, flops_per_token: float = 0.0, peak: float | None = None):
        self.tokens_per_step, self.flops_per_token, self.peak = tokens_per_step, flops_per_token, peak
        self.restart()

    def restart(self) -> None:
        """Starts a new measurement."""
        self.began, self.steps = time.perf_counter(), 0

    def step(self) -> None:
        """Counts a step."""
        self.steps += 1

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time of a block from the measurement."""
        began = time.perf_counter()
        yield
        self.began += time.perf_counter() - began

    def tokens_per_second(self) -> int:
        """Returns the speed since the last `restart`. On a GPU, wait for the steps before."""
        return int(self.steps * self.tokens_per_step / max(time.perf_counter() - self.began, 1e-9))

    def mfu(self, tokens_per_second: float) -> float | None:
        """Returns the model FLOPs utilization at a speed, or None if the peak is unknown.

        Args:
            tokens_per_second: the speed.
        """
        return round(tokens_per_second * self.flops_per_token / self.peak, 4) if self.peak else None


# -- losses -------------------------------------------------------------------------------------------------------


def check_finite(accelerator: Any, loss: Any, grad_norm: Any, advice: str = "") -> None:
    """Raises an error if the numbers of a training step are not finite. On a GPU this waits for the step.

    With a GradScaler the gradients may overflow, because the scaler skips such a step. In this case the loss is checked.

    Args:
        loss: the loss of this process.
        grad_norm: the norm of the gradients, which is the same in all processes.
        advice: the end of the error message.

    Raises:
        FloatingPointError: if the gradient norm or the loss is inf or NaN.

    Example:
        >>> accelerator = mytorch.accelerate.Accelerator(cpu=True)
        >>> mytorch.accelerate.check_finite(accelerator, loss=2.0, grad_norm=float("nan"), advice=" after step 3")
        Traceback (most recent call last):
        FloatingPointError: the gradient norm is nan after step 3
    """
    if accelerator.scaler is None:
        name, value = "gradient norm", float(grad_norm)
    else:
        name, value = "loss", accelerator.gather_for_metrics(loss)
    if not math.isfinite(value):
        raise FloatingPointError(f"the {name} is {value}{advice}")


def mean_loss(
    accelerator: Any, model: Any, batches: Any, interrupt: Interrupt | None = None, progress: "Progress | None" = None
) -> float | None:
    """Returns the mean loss of a model over the validation batches of all processes, or None if interrupted.

    Args:
        model: function of (inputs, targets) that returns the loss. The model is in evaluation mode during the call, and in
            training mode afterward.
        batches: sequence of pairs of NumPy arrays, with the same length in all processes.
        interrupt: Interrupt that ends the evaluation.
        progress: Progress that displays the number of the batch.
    """
    total, count = 0.0, len(batches)
    model.eval()
    try:
        with no_grad():
            for i in range(count):
                if progress is not None:
                    progress.evaluating(i, count)
                if interrupt is not None and interrupt.received():
                    return None
                x, y = (from_numpy(part).to(accelerator.device) for part in batches[i])
                total += accelerator.gather_for_metrics(model(x, y))
    finally:
        model.train()
    return total / count


# -- progress -----------------------------------------------------------------------------------------------------


class Progress:
    """Reports the steps of a training loop: a progress bar in a terminal, and lines of text, in a log and for trackers.

    Use it as a context manager, which closes the progress bar.

    Args:
        accelerator: prints on the main process, passes the values to its trackers, and averages losses over processes.
        log: the RunLog.
        speed: the Throughput, which counts the steps and is restarted after each line.
        total: number of steps of the whole run.
        done: number of steps before this start of the script.
        every: steps between lines. The last step always gets a line.

    Example:
        >>> import tempfile
        >>> log = mytorch.accelerate.RunLog(tempfile.mkdtemp() + "/log.jsonl")
        >>> accelerator = mytorch.accelerate.Accelerator(cpu=True)
        >>> speed = mytorch.accelerate.Throughput(tokens_per_step=1024)
        >>> with mytorch.accelerate.Progress(accelerator, log, speed, total=4, every=2) as progress:
        ...     for i in range(1, 5):
        ...         progress.step(i, loss=tensor(1 / i), lr=1e-3, grad_norm=tensor(0.5))  # doctest: +ELLIPSIS
        Iter:      2 | Loss:  0.5000 | LR:  1.00e-03 | GradNorm:   0.500 | Toks/Sec: ...
        Iter:      4 | Loss:  0.2500 | LR:  1.00e-03 | GradNorm:   0.500 | Toks/Sec: ...
        >>> [record["loss"] for record in log.records]
        [0.5, 0.25]
    """

    def __init__(
        self, accelerator: Any, log: RunLog, speed: Throughput, total: int, done: int = 0, every: int = 1
    ):  # fmt: skip
        self.accelerator, self.log, self.speed, self.total, self.every = accelerator, log, speed, total, every
        self.bar = tqdm(total=total, initial=done, unit="it", dynamic_ncols=True)
        self.shown = 0.0  # time of the last update of the bar

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error):
        self.bar.close()

    def is_line(self, iteration: int) -> bool:
        """Returns True if a step gets a line of text."""
        return iteration % self.every == 0 or iteration == self.total

    def step(self, iteration: int, loss: Any, lr: float, grad_norm: Any) -> None:
        """Counts a step and reports it if it is time for a line, or for a new text of the progress bar.

        Args:
            iteration: the number of steps that are done.
            loss: the mean loss of this process, a tensor.
            lr: the learning rate.
            grad_norm: the norm of the gradients, a tensor.
        """
        self.speed.step()
        self.bar.update()
        if not self.is_line(iteration) and not self._shows_again(0.5):
            return
        loss = self.accelerator.gather_for_metrics(loss)
        norm = float(grad_norm)  # synchronizes with the GPU, so that the speed is correct
        self.shown, rate = time.perf_counter(), self.speed.tokens_per_second()
        text = f"loss {loss:.3f}, lr {lr:.1e}, grad norm {norm:.2f}, {rate:,} tokens/s"
        self.bar.set_postfix_str(text, refresh=False)
        if self.is_line(iteration):
            mfu = self.speed.mfu(rate)
            self.accelerator.print(
                f"Iter: {iteration:6d} | Loss: {loss:7.4f} | LR: {lr:9.2e} | GradNorm: {norm:7.3f} | Toks/Sec: {rate:6d}"
                + (f" | MFU: {mfu:5.1%}" if mfu is not None else "")
            )
            more = {} if mfu is None else {"mfu": mfu}
            self.record(iteration, loss=loss, lr=lr, grad_norm=norm, tokens_per_second=rate, **more)
            self.speed.restart()

    def _shows_again(self, seconds):
        """Return True if there is a progress bar whose text is older than `seconds`."""
        return not self.bar.disable and time.perf_counter() - self.shown > seconds

    def record(self, iteration: int, **values: Any) -> None:
        """Writes values to the log and passes them to the accelerator's trackers.

        Args:
            iteration: number of completed steps.
            **values: names and values.
        """
        self.log.write(iteration=iteration, **values)
        self.accelerator.log(values, step=iteration)

    def evaluating(self, i: int, count: int) -> None:
        """Shows the progress of an evaluation in the progress bar.

        Args:
            i: number of completed batches.
            count: total number of batches.
        """
        if self._shows_again(0.2):
            self.bar.set_postfix_str(f"evaluating, {i} of {count} batches")
            self.shown = time.perf_counter()
