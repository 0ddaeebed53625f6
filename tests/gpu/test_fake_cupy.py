"""The GPU code without a GPU: runs tests of ops, layers, optimizers and models over the fake CuPy.

Only a selection runs here, to save time. This command runs all tests in about a quarter of an hour:

    python -m pytest tests --device cuda --fake-cupy --ignore tests/gpu --ignore tests/kernels
"""

from pathlib import Path

import pytest

from tests.own_process import run_checks, run_pytest

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


def run_over_the_fake(device, *part, **environment):
    run_pytest("--device", device, "--fake-cupy", *(TESTS / name for name in part), **environment)


@pytest.mark.cpu_only
@pytest.mark.parametrize(("device", "part"), RUNS)
def test_over_the_fake_cupy(device, part):
    run_over_the_fake(device, *part)


@pytest.mark.cpu_only
def test_graphs_over_the_fake_cupy():
    pytest.importorskip("triton")
    run_over_the_fake("cuda", "gpu/test_graphs.py", TRITON_INTERPRET="1")


@pytest.mark.gpu
def test_graphs_on_a_gpu():
    out = run_checks("--device", "cuda", TESTS / "gpu" / "test_graphs.py")
    assert " passed" in out
