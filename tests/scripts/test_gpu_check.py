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
    "versions": 20, "train": 2, "train-captured": 1, "together": 60, "torch-train": 2, "kernels": 30, "small": 2, "torch-small": 1,
    "images": 4, "torch-images": 2, "profile": 1, "host": 40, "parity": 3, "again": 1, "train-tuned": 2, "products": 70, "blocks": 12, "sanitizer": 1, "kernels-more": 60, "torch": 60,
    "correctness": 60, "train-more": 4, "torch-more": 4, "parity-more": 6, "script": 1,
}  # fmt: skip
RUN = (
    "versions,torch-train,torch-small,torch-images",
    "versions,train,again",
    "versions,kernels",
)  # the rest takes minutes


def gpu_check_process(folder, *flags, script=ROOT / "benchmarks/gpu_check.py"):
    """Starts gpu_check.py over the fakes."""
    command = [sys.executable, "-W", "ignore", str(script), "--rehearse", "--output", str(folder / "gpu.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def rehearse(folder, *flags, **options):
    """Returns the exit status, the printed text and the results of gpu_check.py over the fakes."""
    process = gpu_check_process(folder, *flags, **options)
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


TINY = """
import sys, types
sys.path[:0] = [{root!r}, {root!r} + "/benchmarks"]
import gpu_check

tiny = types.ModuleType("benchmarks.gpu.tiny")
tiny.run = lambda report, interpret: [report.attempt(name, lambda: dict(ms=1.0, loss=1.0, GiB=1.0, **{{"ktok/s": 1.0}})) for name in "abc"] and None
sys.modules["benchmarks.gpu.tiny"] = tiny
for name, section in gpu_check.SECTIONS.items():
    if name != "again":
        gpu_check.SECTIONS[name] = section._replace(runner="tiny:run")
gpu_check.__file__ = __file__
sys.exit(gpu_check.main())
"""


@pytest.fixture
def tiny(tmp_path):
    """gpu_check.py with three trivial results in each section, so that a test takes seconds."""
    script = tmp_path / "script" / "tiny.py"
    script.parent.mkdir()
    script.write_text(TINY.format(root=str(ROOT)))
    return str(script)


def names(section):
    return [row["name"] for row in section["rows"]]


def test_a_hang_costs_one_section(tmp_path, tiny):
    """The results contain the place where the process hung."""
    flags = ["--sections", "train,kernels,small", "--inject", "hang=kernels", "--limit", "12"]
    code, out, results = rehearse(tmp_path, *flags, script=tiny)
    before, hung, after = results["sections"].values()
    assert code == 1
    assert names(before) == names(after) == ["a", "b", "c"]
    assert names(hung) == ["a"]  # written before the hang
    assert hung["problem"].startswith("stopped after 12 s")
    assert "in failing" in hung["problem"]  # the stack of the function that hangs
    assert "failures: 1\n  kernels: stopped after 12 s" in out


def test_a_crash_costs_one_section(tmp_path, tiny):
    code, out, results = rehearse(
        tmp_path, "--sections", "train,kernels,small", "--inject", "crash=kernels", script=tiny
    )
    before, crashed, after = results["sections"].values()
    assert code == 1
    assert names(before) == names(after) == ["a", "b", "c"]
    assert names(crashed) == ["a"]
    assert crashed["problem"].startswith("exit -11")
    assert "Segmentation fault" in crashed["problem"]
    assert "in failing" in crashed["problem"]
    assert "kernels: exit -11" in out.split("failures: 1")[1]


def test_a_lost_gpu_costs_one_result(tmp_path, tiny):
    """The section is started again and goes on with the next result; `again` repeats the lost one."""
    code, out, results = rehearse(
        tmp_path, "--sections", "train,kernels,small", "--inject", "lost=kernels", script=tiny
    )
    before, lost, after = results["sections"].values()
    assert code == 1
    assert names(before) == names(after) == names(lost) == ["a", "b", "c"]
    assert lost["problem"] is None
    assert lost["starts"] == 2
    assert [("error" in row, row.get("lost", False)) for row in lost["rows"]] == [
        (False, False),
        (True, True),
        (False, False),
    ]
    assert "ZeroDivisionError" in out.split("failures: 1")[1]

    folder = tmp_path / "again"
    folder.mkdir()
    code, out, results = rehearse(folder, "--sections", "again", "--earlier", str(tmp_path / "gpu.jsonl"), script=tiny)
    assert code == 0
    (row,) = results["sections"]["again"]["rows"]
    assert (row["name"], row["ms"]) == ("b", 1.0)


def test_sigterm_writes_what_is_known(tmp_path, tiny):
    """The command ends its section with all processes, writes the results and prints them."""
    process = gpu_check_process(tmp_path, "--sections", "train,kernels,small", "--inject", "hang=kernels", script=tiny)
    rows, until = tmp_path / "gpu.jsonl", time.monotonic() + 100
    while not (rows.exists() and '"kernels"' in rows.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert [names(section) for section in results["sections"].values()] == [["a", "b", "c"], ["a"]]
    assert results["sections"]["kernels"]["problem"].startswith("the command was ended by SIGTERM")
    assert results["not run"] == {"small": "the command was ended by SIGTERM"}
    assert out.strip().endswith("not run: 1\n  small: the command was ended by SIGTERM")


def test_the_script_of_the_day(tmp_path, tiny):
    """At most eight files can be brought back from the GPU machine, and SIGTERM reaches the running section."""
    run = [
        "bash",
        str(ROOT / "benchmarks/gpu_day.sh"),
        str(tmp_path / "logs"),
        "first",
        "--rehearse",
        "--inject",
        "hang=torch-small",
    ]
    wrapper = tmp_path / "python"  # runs the tiny sections in place of gpu_check.py
    wrapper.write_text(f'#!/bin/sh\nshift\nexec "{sys.executable}" -W ignore "{tiny}" "$@"\n')
    wrapper.chmod(0o755)
    process = subprocess.Popen(run, env={**os.environ, "PYTHON": str(wrapper)}, stdout=subprocess.PIPE, text=True)
    rows, until = tmp_path / "logs" / "results.jsonl", time.monotonic() + 200
    while not (rows.exists() and '"torch-small"' in rows.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    written = {path.name for path in (tmp_path / "logs").iterdir()}
    assert written == {"results.json", "results.jsonl", "results.txt", "log.txt"}
    assert (tmp_path / "logs" / "log.txt").read_text() == out
    first = gpu_check.DAY["first"]
    at = first.index("torch-small")
    results = json.loads((tmp_path / "logs" / "results.json").read_text())
    assert list(results["sections"]) == first[: at + 1]
    assert list(results["not run"]) == first[at + 1 :]
    assert f"not run: {len(first) - at - 1}" in out
    assert out.splitlines()[-1].startswith("==== first: exit 1 after ")


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
