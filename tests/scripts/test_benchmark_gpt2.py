import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_the_benchmark_writes_its_figures_with_the_machines_name(torch, tmp_path):
    sizes = ["--context_length", "8", "--batch_size", "2", "--rounds", "2", "--steps", "1"]
    command = [sys.executable, str(ROOT / "benchmarks" / "gpt2.py"), *sizes, "--output", str(tmp_path / "out.json")]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["mytorch_over_torch"] > 0
    assert set(result["milliseconds_per_step"]) == {"mytorch", "torch"}
    assert result["machine"]["processor"]
    losses = result["loss_after_warm_up"]
    assert losses["mytorch"] == pytest.approx(losses["torch"], rel=1e-4)
