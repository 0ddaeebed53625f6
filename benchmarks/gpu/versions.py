"""Section `versions`: the software and the hardware, a smoke test of each part, and the maximum rates of the GPU."""

import importlib
import importlib.metadata as metadata
import os
import platform
import subprocess
from pathlib import Path

import numpy as np

from mytorch.cli import env as environment

from .measure import cupy_timer
from .sizes import SQUARE, WASTE


def _commit():
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip() or "unknown"
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def versions(report, interpret):
    """Report the versions of the software and the hardware."""
    report("commit", value=os.environ.get("COMMIT") or _commit())
    report("python", value=platform.python_version())
    report("processor", value=platform.processor() or platform.machine())
    for name in ("mytorch", "numpy", "cupy", "triton", "ml_dtypes"):
        try:
            report(name, value=importlib.import_module(name).__version__)
        except ImportError:
            report(name, value="not installed")
    for name in ("torch", "nvidia-cudnn-frontend", "nvmath-python"):
        try:
            report(name, value=metadata.version(name))
        except metadata.PackageNotFoundError:
            report(name, value="not installed")
    if interpret:
        return

    for name, part in environment.parts().items():
        report(name, value=part)  # what works, or why not
    report.attempt("card", _card)
    report.attempt("product", _product)
    report.attempt("Triton kernel", _softmax)
    report.attempt("captured graph", _graph)
    _rates(report)


def _card():
    import cupy as cp

    properties = cp.cuda.runtime.getDeviceProperties(0)
    memory = properties["totalGlobalMem"] / 2**30
    text = f"{properties['name'].decode()}, {properties['multiProcessorCount']} multiprocessors, {memory:.0f} GiB"
    return {"value": f"{text}, CUDA {cp.cuda.runtime.runtimeGetVersion()}, driver {cp.cuda.runtime.driverGetVersion()}"}


def _product():
    """A product on the GPU equals NumPy's."""
    import mytorch

    a, b = (np.random.default_rng(i).standard_normal((256, 256)).astype(np.float32) for i in (1, 2))
    got = mytorch.tensor(a, device="cuda") @ mytorch.tensor(b, device="cuda")
    return _close(got, a.astype(np.float64) @ b)


def _softmax():
    """A Triton kernel runs and is right."""
    import mytorch
    from mytorch.kernels import launch
    from mytorch.nn import functional as F

    assert launch.why_not() is None, launch.why_not()
    x = np.random.default_rng(3).standard_normal((37, 301)).astype(np.float32)
    with mytorch.fused(True):
        got = F.softmax(mytorch.tensor(x, device="cuda"), dim=1)
    e = np.exp(x.astype(np.float64))
    return _close(got, e / e.sum(1, keepdims=True))


def _graph():
    """A captured addition reads new values at each replay."""
    import mytorch

    x, graph = mytorch.ones(1000, device="cuda"), mytorch.cuda.CUDAGraph()
    with mytorch.cuda.graph(graph):
        y = x + 1
    x.fill_(5.0)
    graph.replay()
    return _close(y, np.full(1000, 6.0))


def _close(got, expected):
    error = float(np.abs(got.cpu().numpy().astype(np.float64) - expected).max())
    largest = float(np.abs(expected).max())
    assert error <= 1e-4 * largest, f"the largest error is {error:.3g}, and the largest value {largest:.3g}"
    return {"value": f"right, largest error {error:.1e}"}


def _rounded(x):
    return float(f"{x:.4g}")


def _rates(report):
    """Measure the rates of this GPU, with which the other sections compute lower bounds: copying and multiplication."""
    import cupy as cp
    import ml_dtypes

    milliseconds = cupy_timer()

    def copy():
        a = cp.zeros(WASTE // 2, cp.uint8)
        b = cp.empty_like(a)
        return {"value": _rounded(2 * a.nbytes / milliseconds(lambda: cp.copyto(b, a)) / 1e9)}

    def product(n, dtype):
        a = cp.random.standard_normal((n, n), dtype=cp.float32).astype(dtype)
        return {"value": _rounded(2 * n**3 / milliseconds(lambda: a @ a) / 1e9)}

    report.attempt("TB/s", copy)
    report.attempt("bf16 TFLOP/s", lambda: product(SQUARE, ml_dtypes.bfloat16))
    report.attempt("fp32 TFLOP/s", lambda: product(SQUARE, cp.float32))
    report.attempt("GiB of memory", lambda: {"value": round(cp.cuda.runtime.memGetInfo()[1] / 2**30, 1)})
