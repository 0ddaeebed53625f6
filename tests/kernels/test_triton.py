"""Runs the checks of the kernels without a GPU: in Triton's interpreter, and through Triton's compiler for an H200.

On a GPU (`pytest -m gpu`) the same checks run on the GPU. Both modes change Triton for the whole process, so each set of checks
runs in a separate process:

* With `TRITON_INTERPRET=1`, check_*.py run the kernels on NumPy memory and compare them with float64.
* With `TRITON_INTERPRET=1`, every_*.py run the kernels on the memory of the fake CuPy, as a program on a GPU would run them.
* With `MYTORCH_COMPILE_ONLY=1`, every launch is compiled and assembled.

To run one set by hand, use `TRITON_INTERPRET=1 python -m pytest tests/kernels/check_attention.py`.
"""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import mytorch
from tests.own_process import ROOT, run_checks

HERE = Path(__file__).parent
pytest.importorskip("triton")


def version(package):
    return tuple(int(part) for part in metadata.version(package).split(".")[:2])


interprets = pytest.mark.skipif(
    version("triton") < (3, 9) and version("numpy") >= (2, 4),
    reason="this release's interpreter wants NumPy before 2.4",
)


@interprets
@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("check_*.py")))
def test_in_the_interpreter(name):
    run_checks(HERE / name, TRITON_INTERPRET="1")


@interprets
@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("every_*.py")))
def test_over_the_fake_cupy(name):
    run_checks(HERE / name, "--device", "cuda", "--fake-cupy", "--all-kernels", TRITON_INTERPRET="1")


@interprets
@pytest.mark.parametrize("name", ["check_ops.py", "check_groups.py"])
def test_as_on_a_gpu(name):
    """Ops with their GPU kernels, on arrays of the fake CuPy: also kernels within gradients of gradients."""
    run_checks(HERE / name, "--fake-cupy", "--all-kernels", TRITON_INTERPRET="1", MYTORCH_KERNELS_ON="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("check_*.py")))
def test_on_the_gpu(name):
    if not mytorch.cuda.is_available():
        pytest.skip("there is no GPU")
    run_checks(HERE / name, MYTORCH_KERNELS_ON="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("every_*.py")))
def test_programs_on_the_gpu(name):
    if not mytorch.cuda.is_available():
        pytest.skip("there is no GPU")
    run_checks(HERE / name, "--device", "cuda")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        f"check_{part}.py"
        for part in (
            "norm",
            "layers",
            "cross_entropy",
            "elementwise",
            "matmul",
            "multi",
            "conv",
            "random",
            "losses",
            "groups",
        )
    ],
)
def test_compiles_for_an_h200(name):
    run_checks(HERE / name, MYTORCH_COMPILE_ONLY="1")


@pytest.mark.slow
def test_attention_compiles_for_an_h200():
    code = (
        "import numpy as np, ml_dtypes\n"
        "from tests.kernels import compile_only\n"
        "from mytorch.arrays import numpy_ns as xp\n"
        "from mytorch.kernels.triton import attention\n"
        "for dtype, width, options in ((ml_dtypes.bfloat16, 64, {}), (np.float16, 128, {'window': (64, 64)}), (np.float32, 64, {}),\n"
        "                              (ml_dtypes.bfloat16, 80, {'dropout': (0.1, np.zeros(2, np.int64), 1)})):\n"
        "    q = np.zeros((2, 4, 256, width), dtype)\n"
        "    out, lse = attention.run_forward(xp, q, q[:, :2], q[:, :2], causal=True, **options)\n"
        "    attention.run_backward(xp, out, q, q[:, :2], q[:, :2], out, lse, causal=True, **options)\n"
        "shared = max(memory for _, _, _, memory, _ in compile_only.resources())\n"
        "assert shared <= 227 * 1024, shared\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=580)
    assert done.returncode == 0, done.stderr[-4000:]
