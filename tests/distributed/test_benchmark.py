"""benchmarks/ddp.py runs and prints its measurements."""

import json
import subprocess
import sys

from .launching import ROOT, environment, needs_mpi


def test_the_benchmark_of_overlap(tmp_path):
    needs_mpi()
    command = [
        sys.executable,
        ROOT / "benchmarks" / "ddp.py",
        "--width",
        "64",
        "--depth",
        "3",
        "--batch",
        "8",
        "--bucket",
        "0.02",
        "--gbit",
        "1",
    ]
    done = subprocess.run(
        [*command, "--rounds", "3", "--output", tmp_path / "ddp.json"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "ddp.json").read_text())
    ours = [row for row in record["rows"] if row["library"] == "mytorch"]
    assert [row["link"] for row in ours] == ["shared memory", "1 Gbit/s, emulated"]
    assert all(row["buckets"] > 1 and row["none"] > 0 and row["after"] > 0 and row["overlapped"] > 0 for row in ours)
