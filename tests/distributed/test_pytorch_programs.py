"""A PyTorch program for torchrun, unmodified, under both libraries and the same launcher."""

import json

import pytest

from .launching import PROGRAMS, launch

AS_TORCH = """
import runpy, sys
import mytorch
mytorch.install_as_torch()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_ddp_program(tmp_path):
    pytest.importorskip("torch")
    wrapper = tmp_path / "as_torch.py"
    wrapper.write_text(AS_TORCH)
    program = PROGRAMS / "pytorch_ddp.py"
    ours = launch(2, wrapper, program, tmp_path / "ours.json")
    assert ours.returncode == 0, ours.stderr
    assert ours.stderr.count('backend="gloo" runs over MPI') == 1
    theirs = launch(2, program, tmp_path / "theirs.json")
    assert (tmp_path / "theirs.json").is_file(), theirs.stderr  # gloo sometimes aborts at its end
    mine, reference = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("ours", "theirs"))
    assert mine == pytest.approx(reference, abs=1e-7)  # weights are drawn in float32
    assert mine[-1] < mine[0]
