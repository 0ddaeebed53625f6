"""benchmarks/gpu_check.py at tiny sizes, with the fake CuPy and Triton's interpreter: all checks run without failures."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu_check  # noqa: E402

from benchmarks.gpu import measure  # noqa: E402
from benchmarks.gpu.correctness import CHECKS  # noqa: E402
from benchmarks.gpu.measure import Report  # noqa: E402
from benchmarks.gpu.table import failures, show, steps, summary, table, verdict  # noqa: E402

FIGURES = {  # a section, and the least number of its results
    "versions": 20, "train": 2, "train-captured": 1, "together": 100, "torch-train": 2, "kernels": 30, "small": 2, "torch-small": 1,
    "profile": 1, "parity": 5, "again": 1, "train-tuned": 2, "products": 70, "blocks": 12, "sanitizer": 1, "kernels-more": 60, "torch": 60,
    "correctness": 100, "train-more": 4, "torch-more": 4, "parity-more": 10,
}  # fmt: skip
RUN = (
    "versions,torch-train,torch-small",
    "versions,train,products,again",
    "kernels,train-captured",
)  # the rest takes minutes


def gpu_check_process(folder, *flags, **options):
    """Starts gpu_check.py over the fakes."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(ROOT / "benchmarks/gpu_check.py"),
        "--rehearse",
        "--output",
        str(folder / "gpu.json"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


def rehearse(folder, *flags):
    """Returns the exit status, the printed text and the results of gpu_check.py over the fakes."""
    process = gpu_check_process(folder, *flags)
    out, err = process.communicate(timeout=500)
    assert "Traceback" not in err, err
    results = json.loads(
        (folder / "gpu.json").read_text(), parse_constant=lambda word: pytest.fail(f"{word} among the figures")
    )
    return process.returncode, out, results


@pytest.mark.cpu_only
@pytest.mark.parametrize("sections", RUN)
def test_rehearsal(sections, tmp_path, request):
    """All sections: `bash benchmarks/gpu_day.sh LOGS first --rehearse`, then `second` and `long`."""
    request.getfixturevalue("torch")
    pytest.importorskip("triton")
    code, out, results = rehearse(tmp_path, "--sections", sections)
    assert code == 0, out[-6000:]
    assert "targets: " in out
    assert out.strip().endswith("failures: 0\nnot run: 0")
    assert results["not run"] == {}
    written = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    for name in sections.split(","):
        rows = results["sections"][name]["rows"]
        assert rows == [row for row in written if row["section"] == name]
        assert results["sections"][name]["problem"] is None
        assert len(rows) >= FIGURES[name]
        assert len({r["name"] for r in rows}) == len(rows)
        for row in rows:
            assert row["name"][:52] in out
            assert row.get("ms") is None or row["ms"] > 0
    assert len(list(tmp_path.iterdir())) == 3  # and the log of gpu_day.sh; at most eight files can be brought back


# -- what can go wrong on a GPU: the other sections and all rows so far remain -----------------------------------------------------


@pytest.fixture(scope="module")
def fakes():
    pytest.importorskip("torch")


def test_a_hang_costs_one_section(tmp_path, fakes):
    """The results contain the place where the process hung."""
    code, out, results = rehearse(
        tmp_path, "--sections", "torch-train,torch-small", "--inject", "hang=torch-train", "--limit", "20"
    )
    hung, other = results["sections"]["torch-train"], results["sections"]["torch-small"]
    assert code == 1
    assert [row["name"] for row in hung["rows"]] == ["GPT-2 124M bf16 B32xT1024"]  # written before the hang
    assert hung["problem"].startswith("stopped after 20 s")
    assert "in failing" in hung["problem"]  # the stack of the function that hangs
    assert other["problem"] is None
    assert len(other["rows"]) == 1
    assert "failures: 1\n  torch-train: stopped after 20 s" in out


def test_a_crash_costs_one_section(tmp_path, fakes):
    code, out, results = rehearse(tmp_path, "--sections", "torch-train,torch-small", "--inject", "crash=torch-train")
    crashed = results["sections"]["torch-train"]
    assert code == 1
    assert crashed["problem"].startswith("exit -11")
    assert "Segmentation fault" in crashed["problem"]
    assert len(crashed["rows"]) == 1
    assert results["sections"]["torch-small"]["problem"] is None
    assert "torch-train: exit -11" in out.split("failures: 1")[1]


def test_a_lost_gpu_costs_one_result(tmp_path, fakes):
    """The section is started again and goes on with the next result; `again` repeats the lost one."""
    code, out, results = rehearse(tmp_path, "--sections", "torch-train,torch-small", "--inject", "lost=torch-train")
    lost = results["sections"]["torch-train"]
    assert code == 1
    assert lost["starts"] == 2
    assert [("error" in row, row.get("lost", False)) for row in lost["rows"]] == [(False, False), (True, True)]
    assert "ZeroDivisionError" in out.split("failures: 1")[1]
    assert results["sections"]["torch-small"]["problem"] is None

    again = tmp_path / "again"
    again.mkdir()
    code, out, results = rehearse(again, "--sections", "again", "--earlier", str(tmp_path / "gpu.jsonl"))
    (row,) = results["sections"]["again"]["rows"]
    assert row["name"] == "GPT-2 124M bf16 B32xT1024 compiled"
    assert row["ms"] > 0
    assert code == 0


def test_sigterm_writes_what_is_known(tmp_path, fakes):
    """The command ends its section with all processes, writes the results and prints them."""
    process = gpu_check_process(
        tmp_path, "--sections", "torch-small,torch-train,torch-more", "--inject", "hang=torch-train"
    )
    rows, until = tmp_path / "gpu.jsonl", time.monotonic() + 200
    while not (rows.exists() and '"torch-train"' in rows.read_text()) and time.monotonic() < until:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert len(results["sections"]["torch-small"]["rows"]) == 1
    assert len(results["sections"]["torch-train"]["rows"]) == 1
    assert results["sections"]["torch-train"]["problem"].startswith("the command was ended by SIGTERM")
    assert results["not run"] == {"torch-more": "the command was ended by SIGTERM"}
    assert out.strip().endswith("not run: 1\n  torch-more: the command was ended by SIGTERM")


def run_main(monkeypatch, tmp_path, section, *flags):
    """Runs main() with a replacement of run_section; returns the exit status and the results."""
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--output", str(tmp_path / "gpu.json"), *flags])
    monkeypatch.setattr(gpu_check, "run_section", section)
    monkeypatch.setattr(gpu_check, "_idle", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    return gpu_check.main(), json.loads((tmp_path / "gpu.json").read_text())


def test_a_section_starts_only_if_its_expected_time_is_left(monkeypatch, tmp_path, capsys):
    ran = {}

    def section(name, limit, results, options):
        ran[name] = limit
        results[name] = {"rows": [], "problem": None, "seconds": 0.0}

    code, results = run_main(monkeypatch, tmp_path, section, "--day", "first", "--seconds", "60")
    assert code == 1  # skipped sections are not a success
    assert list(ran) == [name for name in gpu_check.DAY["first"] if gpu_check.SECTIONS[name].expected < 60]
    assert all(limit <= min(gpu_check.SECTIONS[name].limit, 60) for name, limit in ran.items())
    assert list(results["not run"]) == ["together", "kernels"]
    assert "together: skipped, 60 s are left, 100 s expected" in capsys.readouterr().out
    code, results = run_main(monkeypatch, tmp_path, section)  # without a time limit, everything runs
    assert code == 0
    assert set(ran) == set(gpu_check.SECTIONS)


@pytest.mark.parametrize("how", ["problem", "error"])
def test_without_a_gpu_that_works_the_command_ends(monkeypatch, tmp_path, capsys, how):
    def section(name, limit, results, options):
        assert name == "versions"
        rows = [{"section": name, "name": "product", "error": "a\nwrong numbers"}] if how == "error" else []
        problem = "exit 1: no driver" if how == "problem" else None
        results[name] = {"rows": rows, "problem": problem, "seconds": 0.0}

    code, results = run_main(monkeypatch, tmp_path, section, "--day", "first")
    assert code == 1
    assert list(results["sections"]) == ["versions"]
    assert list(results["not run"]) == gpu_check.DAY["first"][1:]
    assert ("wrong numbers" if how == "error" else "no driver") in capsys.readouterr().out.split("failures: 1")[1]


def test_one_failure_loses_nothing_else(tmp_path, capsys):
    file = tmp_path / "report.jsonl"
    report = Report(file)
    report.attempt("good", lambda: {"ms": np.float32(1.0)})
    report.attempt("bad", lambda: 1 / 0)
    report.file.close()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["name"] for r in rows] == ["good", "bad"]
    again = Report(file)
    assert again.done == {"good", "bad"}
    again.attempt("good", lambda: pytest.fail("it is in the file"))
    again.file.close()
    other = Report(file, "another section", only=["wanted"])
    other.attempt("good", lambda: pytest.fail("it is not wanted"))
    other.group("several", lambda: other.attempt("wanted", lambda: {"ms": float("nan")}))
    other.file.close()
    assert json.loads(file.read_text().splitlines()[-1]) == {
        "section": "another section",
        "name": "wanted",
        "ms": "nan",
    }
    results = {"kernels": {"rows": rows, "problem": None}}
    assert "division by zero" in table(results, ["kernels"])
    show(table, {"kernels": {"rows": [{"no": "name"}]}}, ["kernels"])
    assert "KeyError" in capsys.readouterr().err


def test_lower_bounds_are_those_of_the_measured_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "CEILINGS", {})
    assert measure.floor_of(bytes_moved=1) is None
    rates = {"TB/s": 3.0, "bf16 TFLOP/s": 790.0}
    (tmp_path / "rows.jsonl").write_text(
        "".join(
            json.dumps({"section": "versions", "name": name, "value": value}) + "\n" for name, value in rates.items()
        )
    )
    Report(tmp_path / "rows.jsonl", "kernels").file.close()
    assert measure.floor_of(bytes_moved=3e9) == pytest.approx(1.0)
    assert measure.floor_of(flops=790e9) == pytest.approx(1.0)
    assert measure.floor_of(flops=1, kind="fp32") is None


def test_targets_in_the_table():
    assert verdict({"name": "softmax forward fp32", "ms": 0.05, "floor": 0.047}) == "ok"
    assert verdict({"name": "softmax forward fp32", "ms": 0.094, "floor": 0.047}).startswith("MISSED 1.74")
    assert verdict({"name": "dropout forward fp32", "ms": 9.0, "floor": 0.047}) == ""
    step = {"name": "GPT-2 124M bf16 B32xT1024 captured", "ms": 60.0, "GiB": 16.0, "ktok/s": 1.0, "loss": 1.0}
    assert verdict(step, "NVIDIA H200") == "MISSED 1.06 × 15.1 GiB"
    assert verdict(step, "NVIDIA H100 80GB HBM3") == ""  # the targets in ms hold for an H200
    other = {**step, "name": "GPT-2 124M bf16 B32xT1024 compiled", "ms": 80.0}
    results = {
        "versions": {"rows": [{"name": "card", "value": "NVIDIA H200, 132 multiprocessors"}], "problem": None},
        "train-captured": {
            "rows": [step, {"name": "GPT-2 10.7M bf16 B32xT256 captured", "error": "a\nboom"}],
            "problem": None,
        },
        "torch-train": {"rows": [other], "problem": None},
    }
    text = table(results, ["train-captured"])
    assert "MISSED" in text
    assert " 0.75 " in text  # the ratio to PyTorch's compiled step of the same run
    assert "boom" in text
    assert "0 of 1 met" in summary(results)
    assert "mytorch GPT-2 124M" in steps(results)
    assert failures(results, {"parity": "no time"}).splitlines()[-1] == "  parity: no time"


def test_every_section_belongs_to_one_command():
    """15 minutes of a GPU: two commands and two starts of the machine."""
    days = {
        day: [name for name in names if day == "first" or name != "versions"] for day, names in gpu_check.DAY.items()
    }
    assert sorted(sum(days.values(), [])) == sorted(gpu_check.SECTIONS)
    assert set(FIGURES) == set(gpu_check.SECTIONS)
    expected = {day: sum(gpu_check.SECTIONS[name].expected for name in names) for day, names in gpu_check.DAY.items()}
    assert expected["first"] <= 380
    assert expected["first"] + expected["second"] + 2 * 120 <= 900
    script = (ROOT / "benchmarks/gpu_day.sh").read_text()
    for day, most in (("first", 450), ("second", 180)):
        seconds = int(re.search(rf"{day}\) seconds=(\d+)", script)[1])
        assert expected[day] <= seconds <= most
    assert all(section.expected < section.limit for section in gpu_check.SECTIONS.values())


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
            assert {a.arg for a in check.args.args} - given <= {"together", "monkeypatch"}, check.name
