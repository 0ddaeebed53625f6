"""`mytorchrun env`: print versions, devices, which parts of the GPU's software work and why not, and settings."""

import importlib
import importlib.util
import os
import platform
import subprocess
import sys
import warnings
from pathlib import Path

from ..arrays import cuda_available, cupy_ns, device_count, gpu
from ..distributed.launcher import find_mpiexec
from ..distributed.nccl import load as load_nccl
from ..utils.collect_env import version_of
from ..version import __version__
from .arguments import ArgumentParser
from .configuration import Configuration, default_path

PACKAGES = (
    "numpy ml_dtypes safetensors tqdm numba triton cupy-cuda12x cupy-cuda13x nvidia-nccl-cu12 nvidia-nccl-cu13 nvidia-cudnn-cu12 "
    "nvidia-cudnn-cu13 nvidia-cudnn-frontend mpi4py mpich openmpi wandb tiktoken"
).split()
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
VARIABLES = ("MYTORCH", "CUDA_VISIBLE_DEVICES", "NCCL_", "TRITON_", "WANDB_MODE", *THREADS)
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")


def _memory():
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (OSError, ValueError, AttributeError):
        return "unknown"


def _mpi():
    path = find_mpiexec()
    if path is None:
        return "no mpiexec"
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    lines = [line.strip() for line in done.stdout.splitlines() if "ersion" in line or "Open MPI" in line]
    return f"{path} ({lines[0] if lines else 'unknown version'})"


def _driver():
    runtime = cupy_ns().cuda.runtime
    return f"works: CUDA driver {runtime.driverGetVersion()}, runtime {runtime.runtimeGetVersion()}"


def _cupy():
    xp = cupy_ns()
    assert int(xp.arange(4).sum()) == 6  # compiles a kernel with NVRTC
    return f"works: {xp.module.__version__}"


def _triton():
    if importlib.util.find_spec("triton") is None:
        return "does not work: Triton is not installed"
    launch = importlib.import_module("mytorch.kernels.launch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reason is the result
        reason = launch.why_not()
    return f"does not work: {reason}" if reason else f"works: {version_of('triton')}"


def _cublaslt():
    return f"works: {importlib.import_module('mytorch.kernels.cublas').load().cublasLtGetVersion()}"


def _cudnn():
    cudnn = importlib.import_module("mytorch.kernels.cudnn")
    reason = cudnn.why_not()
    return f"does not work: {reason}" if reason else f"works: {cudnn.library().backend_version()}"


def _nccl():
    return f"works: {load_nccl().get_version()}"


def parts():
    """Returns what of the GPU's software works, and the reason if it does not, by name."""
    checks = {
        "Driver": _driver,
        "CuPy": _cupy,
        "Triton": _triton,
        "cuBLASLt": _cublaslt,
        "cuDNN": _cudnn,
        "NCCL": _nccl,
    }
    found = {}
    for name, check in checks.items():
        try:
            found[name] = check()
        except Exception as error:  # errors of CUDA's libraries have no common class
            found[name] = f"does not work: {error or type(error).__name__}"
    return found


def _gpus():
    if not cuda_available():
        yield "GPUs", gpu.problem
        return
    yield from parts().items()
    runtime = cupy_ns().cuda.runtime
    for i in range(device_count()):
        p = runtime.getDeviceProperties(i)
        memory, capability = f"{p['totalGlobalMem'] / 2**30:.1f} GiB", f"{p['major']}.{p['minor']}"
        yield f"GPU {i}", f"{p['name'].decode()}, {memory}, compute capability {capability}"


def report():
    """Yield (name, value) pairs."""
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    yield "Platform", platform.platform()
    yield "CPU", f"{os.cpu_count()} cores, {platform.machine()}"
    yield "Memory", _memory()
    yield "mytorch", f"{__version__} ({Path(__file__).parents[1]})"
    for package in PACKAGES:
        version = version_of(package)
        if version is not None:
            yield package, version
    yield "MPI", _mpi()
    yield from _gpus()
    for name in sorted(os.environ):
        if name.startswith(VARIABLES) and not any(word in name for word in _SECRET):
            yield name, os.environ[name]
    path = default_path()
    if path.is_file():
        try:
            yield "Configuration", f"{path}\n  " + Configuration.read(path).text().rstrip().replace("\n", "\n  ")
        except ValueError as error:
            yield "Configuration", f"wrong: {error}"
    else:
        yield "Configuration", f"none ({path})"


def main(argv):
    """Run the command and return 0."""
    ArgumentParser(
        prog="mytorchrun env",
        description="Print versions, devices, which parts of the GPU's software work, and settings.",
    ).parse_args(argv)
    for name, value in report():
        print(f"{name}: {value}" if "\n" in value else " ".join(f"{name}: {value}".split()))
    return 0
