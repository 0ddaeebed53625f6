"""Trackers for logged numbers: Weights & Biases, TensorBoard, and files in JSON lines and CSV format."""

import csv
import io
import json
import math
import os
import time
from importlib import util
from pathlib import Path

from ..files.writing import atomic_write


def plain(value):
    """Convert a value for JSON; 0-d tensors become numbers."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # JSON has no NaN
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


class Table:
    """A CSV file of the logged values: one row per call, one column per name.

    A new name adds a column. The file is then rewritten.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.columns, self.rows = ["step", "time"], []
        if self.path.is_file():
            with open(self.path, newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                self.rows = list(reader)
                self.columns = list(reader.fieldnames or self.columns)

    def add(self, row):
        """Write a row.

        Args:
            row: dict of plain values.
        """
        row = {k: json.dumps(v) if isinstance(v, (dict, list)) else v for k, v in row.items()}
        self.rows.append(row)
        new = [name for name in row if name not in self.columns]
        rewrite = new or not self.path.is_file()
        self.columns += new
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns)
        if rewrite:
            writer.writeheader()
        writer.writerows(self.rows if rewrite else [row])
        if rewrite:
            atomic_write(self.path, text.getvalue().encode())
            return
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            file.write(text.getvalue())


class JSONLinesTracker:
    """Writes one JSON object per line, {"step": …, "time": …, **values}, and a CSV file with the same values."""

    name = "jsonl"

    def __init__(self, project_name, run_name=None, config=None, directory="."):
        self.path = Path(directory) / f"{run_name or project_name}.jsonl".replace(os.sep, "_")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.path, "a", encoding="utf-8")
        self.table = Table(self.path.with_suffix(".csv"))
        if config:
            self._write({"config": plain(config)})

    def _write(self, record):
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()

    def log(self, values, step=None):
        """Write a line."""
        record = {"step": step, "time": round(time.time(), 3), **plain(values)}
        self._write(record)
        self.table.add(record)

    def finish(self):
        """Close the file."""
        self.file.close()


class WandbTracker:
    """Logs to a run of Weights & Biases. WANDB_MODE=offline stores the run on this machine."""

    name = "wandb"

    def __init__(self, project_name, run_name=None, config=None, directory="."):
        import wandb

        self.run = wandb.init(project=project_name, name=run_name, config=plain(config or {}), dir=str(directory))

    def log(self, values, step=None):
        """Send the numbers of a step."""
        self.run.log(plain(values), step=step)

    def finish(self):
        """Wait until all data is sent."""
        self.run.finish()


class TensorBoardTracker:
    """Writes numbers for TensorBoard with tensorboardX."""

    name = "tensorboard"

    def __init__(self, project_name, run_name=None, config=None, directory="."):
        from ..utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(Path(directory) / (run_name or project_name)))
        for key, value in plain(config or {}).items():
            self.writer.add_text(key, str(value))

    def log(self, values, step=None):
        """Write the numbers of a step; strings are written as text."""
        for key, value in plain(values).items():
            add = self.writer.add_scalar if isinstance(value, (int, float)) else self.writer.add_text
            add(key, value, step)

    def finish(self):
        """Close the file."""
        self.writer.close()


TRACKERS = {tracker.name: tracker for tracker in (WandbTracker, TensorBoardTracker, JSONLinesTracker)}


def known_trackers(log_with):
    """Return `log_with` as a list of names and trackers.

    Raises:
        ValueError: if a name is unknown.
    """
    kinds = log_with if isinstance(log_with, (list, tuple)) else [] if log_with is None else [log_with]
    kinds = ["wandb" if kind == "all" else getattr(kind, "value", kind) for kind in kinds]
    for kind in kinds:
        if isinstance(kind, str) and kind not in TRACKERS:
            raise ValueError(f"Accelerator: expected log_with to be {', '.join(TRACKERS)} or a tracker, got {kind!r}.")
    return kinds


def open_tracker(kind, project_name, run_name, config, directory):
    """Open a tracker; if wandb is not installed, WandbTracker is replaced by JSONLinesTracker.

    Args:
        kind: name in TRACKERS, or a tracker.
        config: options to store with the run.
        directory: directory of the tracker's files.

    Returns:
        The tracker, and a message for the user or None.
    """
    if not isinstance(kind, str):
        return kind, None
    if kind != "wandb":
        return TRACKERS[kind](project_name, run_name, config, directory), None
    if util.find_spec("wandb") is not None:
        return WandbTracker(project_name, run_name, config, directory), None
    tracker = JSONLinesTracker(project_name, run_name, config, directory)
    return tracker, f"wandb is not installed; metrics are written to {tracker.path}. Run `pip install wandb` to use it."
