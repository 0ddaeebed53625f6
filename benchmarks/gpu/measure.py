"""Functions for all sections of gpu_check.py: reporting a figure, timing a launch, and its lower bound."""

import json
import math
import os
import sys
import time
import traceback
from pathlib import Path

from .sizes import DEVICE, HOST_CALLS, LOST, REPEATS, WASTE

CEILINGS = {}  # "TB/s", "bf16 TFLOP/s", "fp32 TFLOP/s" of this GPU, as measured by the section `versions`


def card_is_lost():
    """Returns True if every CUDA call fails, for example after an illegal memory access."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    try:
        if cupy is not None:
            cupy.cuda.Device().synchronize()
        elif hasattr(torch, "cuda") and torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except Exception:
        return True
    return False


class Report:
    """Appends the results of a section to the file of all sections, as one line of JSON each.

    A section that loses the GPU exits with the code LOST and is started again. It then skips the results that are in the file.

    Args:
        path: the file.
        section: name of the section.
        only: names of the results to make (default: all).
    """

    def __init__(self, path, section="", only=None):
        self.path, self.section, self.only = path, section, only
        lines = Path(path).read_text().splitlines() if Path(path).exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        self.done = {row["name"] for row in rows if row["section"] == section}
        CEILINGS.update({row["name"]: row["value"] for row in rows if row["name"] in RATES and "value" in row})
        self.file = open(path, "a")

    def __call__(self, name, **values):
        row = {"section": self.section, "name": name, **values}
        self.file.write(json.dumps(_plain(row), default=float) + "\n")
        self.file.flush()

    def attempt(self, name, function):
        """Call a function and report its result (a dictionary, or None if the function reported results itself) or its error."""
        if name in self.done or (self.only is not None and name not in self.only):
            return
        self._try(name, function)

    def group(self, name, function):
        """Call a function that reports results by `attempt`, and report an error of the function itself."""
        if name not in self.done:
            self._try(name, function)

    def _try(self, name, function):
        try:
            values = function()
            if values is not None:
                self(name, **values)
        except Exception as error:
            text = f"{traceback.format_exc()[-800:]}\n{type(error).__name__}: {str(error)[-300:]}"
            if not card_is_lost():
                return self(name, error=text)
            self(name, error=text, lost=True)
            os._exit(LOST)


RATES = ("TB/s", "bf16 TFLOP/s", "fp32 TFLOP/s")


def _plain(x):
    """Returns a row without NaN and infinities, which JSON does not have, as text."""
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    return x if not isinstance(x, float) or math.isfinite(x) else str(x)


def timer(elapsed, event, flush):
    """Returns a function (call, repeats) that measures calls.

    Args:
        event: creates an event.
        elapsed: returns the milliseconds between two events.
        flush: writes 2 GB.
    """

    def milliseconds(call):
        for _ in range(2):
            call()  # compiles the kernel and fills the memory pool
        times = []
        for _ in range(REPEATS):
            begin, end = event(), event()
            flush()  # keeps the GPU busy until the CPU has finished the launch
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(elapsed(begin, end))
        return sorted(times)[REPEATS // 2]

    return milliseconds


def cupy_timer():
    """Returns `timer` for CuPy."""
    import cupy as cp

    waste = cp.empty(WASTE, cp.uint8)
    return timer(cp.cuda.get_elapsed_time, cp.cuda.Event, lambda: waste.fill(0))


def torch_timer():
    """Returns `timer` for PyTorch."""
    import torch

    waste = torch.empty(WASTE, dtype=torch.uint8, device=DEVICE)
    return timer(lambda a, b: a.elapsed_time(b), lambda: torch.cuda.Event(enable_timing=True), waste.zero_)


def floor_of(bytes_moved=0, flops=0, kind="bf16"):
    """Returns the lower bound of the time in ms, from the measured rates of the GPU; None if they were not measured."""
    needed = {"TB/s": bytes_moved, f"{kind} TFLOP/s": flops}
    if any(amount and name not in CEILINGS for name, amount in needed.items()):
        return None
    return max(amount / CEILINGS[name] / 1e9 for name, amount in needed.items() if amount)


def host_time(cp, call):
    """Returns the CPU time of a call in ms."""
    call()
    cp.cuda.Device().synchronize()
    started = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    spent = (time.perf_counter() - started) / HOST_CALLS
    cp.cuda.Device().synchronize()
    return {"ms": spent * 1e3, "floor": None}
