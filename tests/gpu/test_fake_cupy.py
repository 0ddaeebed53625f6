"""The GPU code without a GPU: runs tests of ops, layers, optimizers and models over the fake CuPy.

Only a selection runs here, to save time: the files that reach code for devices, with every op but at most 60 cells of the other
loops (tests/loops.py), whose further dtypes and operands take the same path on a GPU. Each file runs on one of the two GPUs. This
command runs all tests:

    python -m pytest tests --device cuda --fake-cupy --ignore tests/gpu --ignore tests/kernels
"""

from pathlib import Path

import pytest

from tests.own_process import run_checks, run_pytest

TESTS = Path(__file__).resolve().parents[1]


RUNS = {  # the options, and the files
    # "cuda:1" is the stricter device, because cuda:0 is current: it needs what cuda:0 needs, and the right current device.
    "ops": ("--device cuda:1", "test_ops.py test_surface.py"),
    "layers": ("--device cuda --each 0 --cells 60", "nn programs"),
    # The model that remains has rotary positions, shared heads and a window.
    "generation": ("--device cuda -k not(llama)and(not(gpt2))", "models/test_generation.py"),
    "tensors": (
        "--device cuda --each 0 --cells 60",
        "tensors utils data/test_loader.py test_amp.py test_serialization.py test_parity_gpt2.py test_printing.py "
        "accelerate/test_accelerator.py vision/test_datasets.py",
    ),
    "training": ("--device cuda:1 --each 0 --cells 60", "optim autograd"),
}


def run_over_the_fake(options, *files, **environment):
    run_pytest(*options.split(), "--fake-cupy", *(TESTS / name for name in files), **environment)


@pytest.mark.cpu_only
@pytest.mark.parametrize("run", RUNS)
def test_over_the_fake_cupy(run):
    options, files = RUNS[run]
    run_over_the_fake(options, *files.split())


@pytest.mark.cpu_only
def test_graphs_over_the_fake_cupy():
    pytest.importorskip("triton")
    run_over_the_fake("--device cuda", "gpu/test_graphs.py", TRITON_INTERPRET="1")


@pytest.mark.gpu
def test_graphs_on_a_gpu():
    out = run_checks("--device", "cuda", TESTS / "gpu" / "test_graphs.py")
    assert " passed" in out
