"""Runs a program with the fake CuPy: `python tests/gpu/with_fake_cupy.py train_gpt2.py --device cuda …`.

With TRITON_INTERPRET=1 Triton's kernels run too, in its interpreter; without, the library does without kernels.
"""

import os
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import fake_cublaslt
import fake_cupy

fake_cupy.install()
if os.environ.get("TRITON_INTERPRET") != "1":
    os.environ.setdefault("MYTORCH_FUSED", "0")
fake_cublaslt.install()
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
