"""The GPU's paths, everywhere: tests of ops, layers, optimizers and models run again over a stand-in for CuPy.

These are parts of them, for the time's sake. All of them run so, which takes a quarter of an hour:

    python -m pytest tests --device cuda --stand-in --ignore tests/gpu --ignore tests/kernels
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


RUNS = [
    ("cuda", ("test_ops.py", "test_surface.py")),
    ("cuda", ("nn", "optim")),
    ("cuda", ("autograd", "models/test_generation.py", "programs")),
    ("cuda", ("tensors", "utils", "data/test_loader.py")),
    (
        "cuda",
        (
            "test_amp.py",
            "test_serialization.py",
            "test_parity_gpt2.py",
            "test_printing.py",
            "accelerate/test_accelerator.py",
            "vision/test_datasets.py",
        ),
    ),
    ("cuda:1", ("test_ops.py", "optim", "autograd")),  # while cuda:0 is the current GPU
]


def run_over_the_stand_in(device, *part, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "--device", device, "--stand-in", "--tb=short", *part]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.cpu_only
@pytest.mark.parametrize(("device", "part"), RUNS)
def test_over_the_stand_in(device, part):
    run_over_the_stand_in(device, *part)


@pytest.mark.cpu_only
def test_graphs_over_the_stand_in():
    pytest.importorskip("triton")
    run_over_the_stand_in("cuda", "gpu/test_graphs.py", TRITON_INTERPRET="1")


@pytest.mark.gpu
def test_graphs_on_a_gpu():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "ignore",
        "--device",
        "cuda",
        "--tb=short",
        str(TESTS / "gpu" / "test_graphs.py"),
    ]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
