"""The soak's one round, and its verdicts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="it reads /proc")
def test_a_round_is_measured_and_growth_is_detected(tmp_path, monkeypatch):
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--minutes", "0", "--no-load", "--out", "x/soak"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    sample = json.loads((tmp_path / "x" / "soak.json").read_text())["samples"][0]
    assert sample["processes"] == 0
    assert (tmp_path / "x" / "soak.svg").read_text().count("<polyline") == 6
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import soak

    flat = [dict.fromkeys(soak.PANELS, 100.0) for _ in range(8)]
    assert all(v["flat"] for v in soak.verdicts(flat).values())
    growing = [dict.fromkeys(soak.PANELS, 1000.0 + 100 * i) for i in range(8)]
    assert not any(v["flat"] for v in soak.verdicts(growing).values())
