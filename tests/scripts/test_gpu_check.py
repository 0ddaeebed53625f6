"""benchmarks/gpu_check.py at tiny sizes, with the fake CuPy and Triton's interpreter: all checks run without failures."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu_check  # noqa: E402

from benchmarks.gpu.correctness import CHECKS  # noqa: E402
from benchmarks.gpu.measure import Report  # noqa: E402
from benchmarks.gpu.table import TARGETS, show, summary, table, verdict  # noqa: E402

FIGURES = {
    "versions": 10,
    "ceilings": 5,
    "kernels": 80,
    "products": 70,
    "blocks": 12,
    "train": 2,
    "train-captured": 2,
    "train-tuned": 2,
    "parity": 10,
    "profile": 1,
    "sanitizer": 1,
    "torch": 60,
    "torch-train": 6,
}


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "sections",
    ["versions,ceilings,products,blocks", "kernels", "train", "train-captured", "parity,profile,sanitizer", "torch"],
)
def test_rehearsal(sections, tmp_path, request):
    """All sections: `python benchmarks/gpu_check.py --rehearse`, which takes two minutes."""
    if sections == "torch":
        request.getfixturevalue("torch")
    else:
        pytest.importorskip("triton")
    file = tmp_path / "gpu.json"
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(ROOT / "benchmarks/gpu_check.py"),
        "--rehearse",
        "--sections",
        sections,
        "--output",
        str(file),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=500
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr
    assert "targets: " in done.stdout
    results = json.loads(file.read_text(), parse_constant=lambda word: pytest.fail(f"{word} among the figures"))
    for name in sections.split(","):
        rows = results[name]["rows"]
        assert results[name]["problem"] is None
        assert len(rows) >= FIGURES[name]
        assert len({r["name"] for r in rows}) == len(rows)
        for row in rows:
            assert row["name"][:52] in done.stdout or name == "blocks"
            if name.startswith("train"):
                assert min(row["loss"], row["ms"], row["GiB"]) > 0
                assert row["name"] in TARGETS


def test_one_failure_loses_nothing_else(tmp_path, capsys):
    file = tmp_path / "report.jsonl"
    report = Report(file)
    report.attempt("good", lambda: {"ms": np.float32(1.0)})
    report.attempt("bad", lambda: 1 / 0)
    report.file.close()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["name"] for r in rows] == ["good", "bad"]
    results = {"kernels": {"rows": rows, "problem": None}}
    assert "division by zero" in table(results, ["kernels"])
    show(table, {"kernels": {"rows": [{"no": "name"}]}}, ["kernels"])
    assert "KeyError" in capsys.readouterr().err


LOSING = """
import sys, types
sys.path.insert(0, {folder!r})
from benchmarks.gpu.measure import Report

def broken():
    sys.modules["cupy"] = types.SimpleNamespace(cuda=types.SimpleNamespace(Device=lambda: 1 / 0))
    raise RuntimeError("an illegal memory access was encountered")

report = Report(sys.argv[-1])
for name in "abcde":
    report.attempt(name, broken if name in "bd" else lambda: dict(ms=1.0))
"""


def test_a_section_that_loses_the_gpu_is_started_again(tmp_path, monkeypatch, capsys):
    script = tmp_path / "losing.py"
    script.write_text(LOSING.format(folder=str(ROOT)))
    monkeypatch.setattr(gpu_check, "__file__", str(script))
    results = {}
    gpu_check.run_section("kernels", 60, results, False)
    assert results["kernels"]["problem"] is None
    assert ["error" in r for r in results["kernels"]["rows"]] == [False, True, False, True, False]
    assert "5 results, 2 failed" in capsys.readouterr().out


def test_targets_in_the_table():
    assert verdict({"name": "softmax forward fp32", "ms": 0.05, "floor": 0.047}) == "ok"
    assert verdict({"name": "softmax forward fp32", "ms": 0.094, "floor": 0.047}).startswith("MISSED 1.74")
    assert verdict({"name": "dropout forward fp32", "ms": 9.0, "floor": 0.047}) == ""
    step = {"name": "GPT-2 124M bf16 B32xT1024 captured", "ms": 60.0, "GiB": 16.0, "ktok/s": 1.0, "loss": 1.0}
    assert verdict(step) == "MISSED 1.06 × 15.1 GiB"
    assert set(gpu_check.RUNNERS) == set(gpu_check.SECTIONS)

    results = {"train-captured": {"rows": [step, {"name": "GPT-2 10.7M bf16 B32xT256 captured", "error": "a\nboom"}]}}
    text = table(results, ["train-captured"])
    assert "MISSED" in text
    assert "boom" in text
    assert "0 of 1 met" in summary(results)


def test_each_part_of_the_day_fits_into_nine_minutes():
    parts = {part: names.split(",") for part, names in gpu_check.DAY.items()}
    assert sorted(sum(parts.values(), [])) == sorted(gpu_check.SECTIONS)
    seconds = {part: sum(gpu_check.SECTIONS[name] for name in names) for part, names in parts.items()}
    assert max(seconds.values()) <= 480
    assert seconds["b"] + 200 <= 540  # pytest's


@pytest.mark.parametrize("major", ["12", "13"])
def test_the_extras_bring_cudas_libraries(major):
    """The CuPy wheel contains no NVRTC, headers, cuBLAS or NCCL."""
    (line,) = [x for x in (ROOT / "pyproject.toml").read_text().splitlines() if x.startswith(f"cuda{major} = ")]
    assert f"cupy-cuda{major}x[ctk]>=14" in line
    assert f"nvidia-nccl-cu{major}" in line
    assert "triton" in line


@pytest.mark.parametrize("home", CHECKS)
def test_checks_ask_for_no_fixtures(home):
    """The section `correctness` runs the checks without pytest. All arguments are in their parametrize marks."""
    for check in ast.parse((ROOT / "tests" / f"{home.replace('.', '/')}.py").read_text()).body:
        if isinstance(check, ast.FunctionDef) and check.name.startswith("test_"):
            marks = [
                m
                for m in check.decorator_list
                if isinstance(m, ast.Call) and ast.unparse(m.func).endswith("parametrize")
            ]
            given = {
                name.strip()
                for m in marks
                for name in ast.unparse(m.args[0]).strip("[]()'\"").replace("'", "").split(",")
            }
            assert {a.arg for a in check.args.args} - given <= {"together"}, check.name
