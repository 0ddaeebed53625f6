"""Runs the checks of this folder over the stand-in for CuPy, each in a process of its own; once with Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNS = [
    (f"check_{name}.py", kernels)
    for name in ("random", "devices", "pinned", "sync", "cupy")
    for kernels in ("plain", "interpreter")
]
RUNS.append(("check_memory.py", "plain"))


@pytest.mark.cpu_only
@pytest.mark.parametrize(("name", "kernels"), RUNS)
def test_over_the_stand_in(name, kernels):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FAKE_CUPY_DEVICES": "2" if "devices" in name else "1"}
    environment.pop("TRITON_INTERPRET", None)
    if kernels == "interpreter":
        if importlib.util.find_spec("triton") is None:
            pytest.skip("Triton is not installed")
        environment["TRITON_INTERPRET"] = "1"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--stand-in",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        str(HERE / name),
    ]
    done = subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
