"""The environment with torchvision and torchaudio and without PyTorch, in which the tests of this folder run programs.

python3 -m venv .venv-packages
.venv-packages/bin/pip install numpy ml_dtypes safetensors tqdm pillow
.venv-packages/bin/pip install --no-deps torchvision==0.28.0 "torchaudio==2.11.*"
MYTORCH_PACKAGES=.venv-packages/bin/python bash tests/run.sh tests/packages
"""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("MYTORCH_PACKAGES", "")
needs_packages = pytest.mark.skipif(
    not PYTHON, reason="MYTORCH_PACKAGES is not the Python of an environment; see tests/packages/environment.py"
)


def run_with_packages(*arguments, timeout=580, **options):
    """Runs Python in the environment and returns its output.

    Raises:
        AssertionError: the program failed.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [PYTHON, "-W", "ignore", *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
