"""Runs the checks of this folder over the fake CuPy, each in a separate process; once with Triton's interpreter. On a GPU, with CuPy."""

import importlib.util
from pathlib import Path

import pytest

from tests.own_process import run_checks

HERE = Path(__file__).parent
RUNS = [
    (f"check_{name}.py", kernels)
    for name in ("random", "devices", "pinned", "sync", "cupy", "compile")
    for kernels in ("plain", "interpreter")
]
RUNS += [("check_memory.py", "plain"), ("check_streams.py", "plain")]


@pytest.mark.cpu_only
@pytest.mark.parametrize(("name", "kernels"), RUNS)
def test_over_the_fake_cupy(name, kernels):
    if kernels == "interpreter" and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    run_checks(
        "--fake-cupy",
        HERE / name,
        FAKE_CUPY_DEVICES="2" if "devices" in name else "1",
        TRITON_INTERPRET="1" if kernels == "interpreter" else None,
    )


@pytest.mark.cpu_only
def test_precision_under_autocast_over_the_fake_cupy():
    """Without Triton: the precision of every function. `tests/kernels/test_triton.py` runs the kernels, too."""
    program = HERE.parent / "kernels" / "every_op_autocast.py"
    run_checks(program, "--device", "cuda", "--fake-cupy", "-k", "not a_kernel_reads_half")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["random", "pinned", "sync", "cupy", "compile", "memory"])
def test_on_a_gpu(name):
    assert " passed" in run_checks(HERE / f"check_{name}.py")
