"""Functions for all sections of gpu_check.py: reporting a figure, timing a launch, and its lower bound."""

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
}  # measured on an H200; the section "ceilings" measures the rates of this GPU


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
    """Writes the results of a section to a file, as one line of JSON each.

    A section that loses the GPU exits with the code LOST and is started again. It then skips the results that are in the file.
    """

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
        """Call a function and report its result (a dictionary, or None if the function reported results itself) or its error."""
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
    """Returns the lower bound of the time in ms, from the maximum rates of the GPU."""
    return max(bytes_moved / CEILINGS["TB/s"] / 1e9, flops / CEILINGS[f"{kind} TFLOP/s"] / 1e9)


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
