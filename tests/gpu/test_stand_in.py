"""The GPU's paths, everywhere: tests of ops, layers, optimizers and models run again over a stand-in for CuPy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def run_over_the_stand_in(*part, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "--device", "cuda", "--stand-in", "--tb=short", *part]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.cpu_only
@pytest.mark.parametrize("part", [("test_ops.py", "test_surface.py"), ("nn", "optim"), ("autograd", "models/test_generation.py", "programs")])
def test_over_the_stand_in(part):
    run_over_the_stand_in(*part)


@pytest.mark.cpu_only
def test_graphs_over_the_stand_in():
    pytest.importorskip("triton")
    run_over_the_stand_in("gpu/test_graphs.py", TRITON_INTERPRET="1")
