"""Sections `versions` and `ceilings`: versions of the software, the hardware, and the maximum rates of the GPU."""

import importlib
import importlib.metadata as metadata
import platform

from .measure import cupy_timer
from .sizes import SQUARE, WASTE


def versions(report, interpret):
    """Report the versions of the software and the hardware."""
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

    def cublaslt():
        from mytorch.kernels import cublas

        return {"value": cublas.load().cublasLtGetVersion()}

    report.attempt("cuBLASLt", cublaslt)

    def cudnn():
        from mytorch.kernels import registry

        kernel = registry.CUDNN_ATTENTION.of["cuda"]
        return {"value": kernel.problem if kernel.load() is None else kernel.module._library.backend_version()}

    report.attempt("cuDNN's attention", cudnn)

    def card():
        import cupy as cp

        properties = cp.cuda.runtime.getDeviceProperties(0)
        memory = properties["totalGlobalMem"] / 2**30
        text = f"{properties['name'].decode()}, {properties['multiProcessorCount']} multiprocessors, {memory:.0f} GiB"
        return {
            "value": f"{text}, CUDA {cp.cuda.runtime.runtimeGetVersion()}, driver {cp.cuda.runtime.driverGetVersion()}"
        }

    report.attempt("card", card)


def ceilings(report, interpret):
    """Measure the maximum rates of this GPU: copying and matrix multiplication."""
    import cupy as cp
    import ml_dtypes

    milliseconds = cupy_timer()

    def copy():
        a = cp.zeros(WASTE // 2, cp.uint8)
        b = cp.empty_like(a)
        return {"value": round(2 * a.nbytes / milliseconds(lambda: cp.copyto(b, a)) / 1e9, 2)}

    def product(n, dtype):
        a = cp.random.standard_normal((n, n), dtype=cp.float32).astype(dtype)
        return {"value": round(2 * n**3 / milliseconds(lambda: a @ a) / 1e9, 1)}

    report.attempt("TB/s", copy)
    report.attempt("bf16 TFLOP/s", lambda: product(SQUARE, ml_dtypes.bfloat16))
    report.attempt("fp16 TFLOP/s", lambda: product(SQUARE, cp.float16))
    report.attempt("fp32 TFLOP/s", lambda: product(SQUARE, cp.float32))
    report.attempt("GiB of memory", lambda: {"value": round(cp.cuda.runtime.memGetInfo()[1] / 2**30, 1)})
