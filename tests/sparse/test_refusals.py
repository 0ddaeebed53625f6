"""Refusals of features that the library does not have: each names the feature and an alternative."""

import subprocess
import sys

import pytest

import mytorch

pytestmark = pytest.mark.cpu_only
CALLS = [
    (lambda: mytorch.quantize_per_tensor(mytorch.ones(2), 0.1, 0, mytorch.qint8), "quantization", "quantize_"),
    (lambda: mytorch.ones(2).dequantize(), "quantization", "quantize_"),
    (lambda: mytorch.ones(2).qscheme(), "quantization", "quantize_"),
    (lambda: mytorch.ones(2).refine_names("N"), "named tensors", "positions of the dimensions"),
    (lambda: mytorch.ones(2).rename("N"), "named tensors", "einops"),
    (lambda: mytorch.ones(2).align_to("N"), "named tensors", "einops"),
    (lambda: mytorch.align_tensors(mytorch.ones(2)), "named tensors", "einops"),
    (lambda: mytorch.eye(2).to_sparse_bsr(1), "layouts of blocks", "sparse_csr"),
    (lambda: mytorch.eye(2).to_sparse(layout=mytorch.sparse_bsr), "sparse_bsr", "sparse_csr"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_refusals_name_the_feature_and_an_alternative(number):
    call, feature, instead = CALLS[number]
    with pytest.raises(NotImplementedError, match=feature) as error:
        call()
    assert instead in str(error.value)


def test_refusals_of_modules():
    code = """
import mytorch
mytorch.install_as_torch()
import importlib.util
from torch.distributed import rpc
from torch.ao.quantization import quantize_dynamic
for call in (lambda: rpc.init_rpc("worker"), lambda: quantize_dynamic(None), lambda: __import__("torchtext")):
    try:
        call()
    except (NotImplementedError, ImportError) as error:
        print(type(error).__name__, error)
print(importlib.util.find_spec("torchtext"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    assert "remote procedure calls" in lines[0] and "Use mytorch.distributed" in lines[0]  # noqa: PT018
    assert "quantization" in lines[1] and "Use mytorch.models.quantize_" in lines[1]  # noqa: PT018
    assert lines[2].startswith("ModuleNotFoundError import torchtext") and "Use mytorch.models" in lines[2]  # noqa: PT018
    assert lines[3] == "None"
