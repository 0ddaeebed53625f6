"""What the sections of gpu_check.py share: how a figure is handed over, how a launch is timed, and its floor."""

import json
import os
import sys
import time
import traceback
from pathlib import Path

from .sizes import DEVICE, HOST_CALLS, LOST, REPEATS, WASTE

CEILINGS = {
    "TB/s": 4.3,
    "bf16 TFLOP/s": 790.0,
    "fp32 TFLOP/s": 51.0,
}  # measured on an H200; "ceilings" measures this card's


def card_is_lost():
    """Whether CUDA answers nothing but errors: after an illegal address, say, no call of this process succeeds any more."""
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
    """Where a section hands over its results, one line of JSON each. What the file has already isn't attempted again: a
    section that has lost the card ends with LOST, and is started anew to do the rest."""

    def __init__(self, path):
        self.done = (
            {json.loads(line)["name"] for line in Path(path).read_text().splitlines() if line.endswith("}")}
            if Path(path).exists()
            else set()
        )
        self.file = open(path, "a")

    def __call__(self, name, **values):
        self.file.write(json.dumps({"name": name, **values}, default=float) + "\n")
        self.file.flush()

    def attempt(self, name, function):
        """Report what the function returns (a dict; None if it has reported itself), or how it failed."""
        if name in self.done:
            return
        try:
            values = function()
            if values is not None:
                self(name, **values)
        except Exception as error:
            self(name, error=f"{traceback.format_exc()[-800:]}\n{type(error).__name__}: {str(error)[-300:]}")
            if card_is_lost():
                os._exit(LOST)


def timer(elapsed, event, flush):
    """A function (call, repeats) that times calls: `event` makes an event, `elapsed` is the ms between two, `flush` writes 2 GB."""

    def milliseconds(call):
        for _ in range(2):
            call()  # compiled, and every array in the pool
        times = []
        for _ in range(REPEATS):
            begin, end = event(), event()
            flush()  # the CPU is done with the launch before the card is done with this
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(elapsed(begin, end))
        return sorted(times)[REPEATS // 2]

    return milliseconds


def cupy_timer():
    """`timer` for CuPy."""
    import cupy as cp

    waste = cp.empty(WASTE, cp.uint8)
    return timer(cp.cuda.get_elapsed_time, cp.cuda.Event, lambda: waste.fill(0))


def torch_timer():
    """`timer` for PyTorch."""
    import torch

    waste = torch.empty(WASTE, dtype=torch.uint8, device=DEVICE)
    return timer(lambda a, b: a.elapsed_time(b), lambda: torch.cuda.Event(enable_timing=True), waste.zero_)


def floor_of(bytes_moved=0, flops=0, kind="bf16"):
    """The least time in ms by the card's ceilings."""
    return max(bytes_moved / CEILINGS["TB/s"] / 1e9, flops / CEILINGS[f"{kind} TFLOP/s"] / 1e9)


def host_time(cp, call):
    """The CPU's time for a call, in ms."""
    call()
    cp.cuda.Device().synchronize()
    started = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    spent = (time.perf_counter() - started) / HOST_CALLS
    cp.cuda.Device().synchronize()
    return {"ms": spent * 1e3, "floor": None}
