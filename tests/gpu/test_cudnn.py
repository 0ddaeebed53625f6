"""Attention and convolutions by cuDNN, over the fake libraries and on a GPU; the fake's arguments compared with the real package."""

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

import mytorch
from tests.own_process import run_checks

HERE = Path(__file__).parent


@pytest.mark.cpu_only
def test_over_the_fake_libraries():
    pytest.importorskip("triton")
    files = [HERE / f"check_cudnn_{name}.py" for name in ("attention", "convolution", "plans")]
    run_checks(*files, TRITON_INTERPRET="1")


@pytest.mark.gpu
def test_on_the_gpu():
    if not mytorch.cuda.is_available():
        pytest.skip("there is no GPU")
    run_checks(HERE / "check_cudnn_attention.py", HERE / "check_cudnn_convolution.py", MYTORCH_KERNELS_ON="cuda")


@pytest.mark.cpu_only
def test_the_package_has_the_arguments_of_the_fake(monkeypatch):
    """The methods of the package are C++ functions without signatures, so their docstrings list the arguments."""
    if importlib.util.find_spec("cudnn") is None:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    from mytorch.kernels import cudnn

    package = cudnn.import_without_torch()
    real = getattr(getattr(package, "_pybind_module", package), "backend_graph", package.pygraph)
    monkeypatch.setattr(sys, "path", [str(HERE), *sys.path])
    import fake_cudnn

    for name in ("sdpa", "sdpa_backward", "conv_fprop", "conv_dgrad", "conv_wgrad", "__init__"):
        said = getattr(real, name).__doc__
        for argument in list(inspect.signature(getattr(fake_cudnn.pygraph, name)).parameters)[1:]:
            assert f"{argument}: " in said, f"{name} has no argument {argument}"
    for name in (
        "validate",
        "build_operation_graph",
        "create_execution_plans",
        "deselect_numeric_notes",
        "check_support",
        "build_plans",
        "execute",
    ):
        assert hasattr(package.pygraph, name)
    for enum in ("data_type", "heur_mode", "diagonal_alignment", "numerical_note"):
        for member in getattr(fake_cudnn, enum):
            assert hasattr(getattr(package, enum), member.name)
