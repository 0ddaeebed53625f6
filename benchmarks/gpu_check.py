"""Run the GPU checks and benchmarks: versions, training, correctness, times of kernels, a profile, parity with PyTorch.

    python benchmarks/gpu_check.py                  # all sections, without a time limit for the whole
    python benchmarks/gpu_check.py --day first      # the most important sections, in the order of their importance
    python benchmarks/gpu_check.py --sections train,kernels --output gpu.json
    python benchmarks/gpu_check.py --interpret      # without a GPU: correctness in Triton's interpreter
    python benchmarks/gpu_check.py --rehearse       # without a GPU: all sections at tiny sizes over a fake CuPy, with invented times

Each section runs in a separate process group with a time limit, and writes each figure to a file as soon as it is known
(`gpu.jsonl` for the output `gpu.json`). A crash, a hang or a lost GPU therefore costs one section at most, and the end of the
command loses nothing. The last output of a section that failed is in the results, and all output is in `gpu.txt`. A section starts
only if the time that it is expected to take is left. PyTorch is measured in separate processes, if it is installed.

The time of a kernel is the median of several launches, measured with CUDA events. A write of 2 GB before each launch empties the L2
cache and keeps the GPU busy while the CPU prepares the launch. The lower bound of a kernel is the time for its bytes or its
operations at the rates that the section `versions` measures on the same GPU. The expected times of the sections are estimates.
"""

import argparse
import contextlib
import faulthandler
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.gpu.sizes import LOST, STARTS  # noqa: E402
from benchmarks.gpu.table import failures, show, steps, summary, table  # noqa: E402


class Section(NamedTuple):
    """A section: expected seconds (an estimate), time limit, and module and function in benchmarks/gpu."""

    expected: float
    limit: float
    runner: str


SECTIONS = {  # in the order in which they run
    # the first command: what must be known first
    "versions": Section(10, 60, "versions:versions"),  # the first import of the CUDA libraries reads 1 GB
    "train": Section(30, 90, "training:train"),  # compiles about 40 kernels
    "train-captured": Section(20, 60, "training:train_captured"),
    "together": Section(100, 120, "correctness:together"),
    "torch-train": Section(35, 70, "training:torch_train"),
    "kernels": Section(60, 70, "kernels:kernels"),
    "small": Section(20, 35, "training:small"),
    "torch-small": Section(10, 25, "training:torch_small"),
    "images": Section(20, 45, "training:images"),
    "torch-images": Section(15, 30, "training:torch_images"),
    "profile": Section(20, 40, "profile:profile"),
    "host": Section(6, 25, "profile:host"),
    "parity": Section(25, 55, "parity:parity"),
    # the second command: what failed, then what may be faster
    "again": Section(20, 60, "again:again"),
    "train-tuned": Section(45, 80, "training:train_tuned"),
    "products": Section(35, 50, "products:products"),
    "blocks": Section(25, 40, "products:blocks"),
    "sanitizer": Section(15, 40, "profile:sanitizer"),
    # for owners of a GPU
    "correctness": Section(60, 600, "correctness:correctness"),
    "kernels-more": Section(90, 600, "kernels:more_kernels"),
    "torch": Section(100, 600, "torch_kernels:torch_kernels"),
    "train-more": Section(110, 600, "training:train_more"),
    "torch-more": Section(150, 600, "training:torch_more"),
    "parity-more": Section(120, 600, "parity:parity_more"),
    "script": Section(40, 600, "training:script"),
}
_NAMES = list(SECTIONS)
DAY = {  # the commands of gpu_day.sh
    "first": _NAMES[: _NAMES.index("again")],
    "second": ["versions", *_NAMES[_NAMES.index("again") : _NAMES.index("correctness")]],
    "long": ["versions", *_NAMES[_NAMES.index("correctness") :]],
}
INNER = {"torch-warm": "training:torch_warm"}  # parts of a section that run in a separate process
ON_GPU = (
    "together",
    "correctness",
    "kernels",
    "kernels-more",
    "products",
    "again",
)  # tests.kernels.cases reads the variable


def _idle(seconds=10):
    """Wait until no process uses the GPU: a process that is still ending would disturb the next times."""
    if shutil.which("nvidia-smi") is None:
        return
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if not subprocess.run(query, capture_output=True, text=True, timeout=5).stdout.strip():
                return
        time.sleep(0.2)


def rows_of(path, name):
    """Returns the rows of a section in the file of rows."""
    if not Path(path).exists():
        return []
    # a process that was killed may have left half a line
    lines = [json.loads(line) for line in Path(path).read_text().splitlines() if line.endswith("}")]
    return [row for row in lines if row.get("section") == name]


class Stopped(BaseException):
    """Raised by SIGTERM and SIGINT."""


def _stop(number, frame):
    raise Stopped(signal.Signals(number).name)


def run_section(name, limit, results, options):
    """Run a section in a separate process group, and store its figures in results[name]."""
    output = Path(options.output)
    rows_file, texts = output.with_suffix(".jsonl"), output.with_suffix(".txt")
    command = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        "--section",
        name,
        "--output",
        str(output),
        "--limit",
        str(limit),
    ]
    for flag in ("rehearse", "interpret"):
        command += [f"--{flag}"] if getattr(options, flag) else []
    for option in ("inject", "earlier"):
        command += [f"--{option}", getattr(options, option)] if getattr(options, option) else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if options.interpret or options.rehearse:
        environment["TRITON_INTERPRET"] = "1"
    elif name in ON_GPU:
        environment["MYTORCH_KERNELS_ON"] = "cuda"
    started, problem, stopped, starts = time.perf_counter(), None, None, 0
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        while starts < STARTS:
            starts += 1
            child = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True)
            try:
                child.wait(max(limit - (time.perf_counter() - started), 1))
            except subprocess.TimeoutExpired:
                problem = f"stopped after {limit:.0f} s"
            except Stopped as error:
                problem, stopped = f"the command was ended by {error}", error
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)  # all that it has started, too
                child.wait()
            if problem or child.returncode != LOST:
                break
        log.seek(0)
        text = log.read()
    if child.returncode and not problem:
        lost = f"the GPU was lost {starts} times" if child.returncode == LOST else f"exit {child.returncode}"
        problem = lost
    if problem and text.strip():
        problem += f": {text[-1500:].strip()}"
    with texts.open("a") as file:
        file.write(f"==== {name}\n{text[-50000:]}\n")
    rows, seconds = rows_of(rows_file, name), round(time.perf_counter() - started, 1)
    expected = SECTIONS[name].expected if name in SECTIONS else None
    results[name] = {
        "rows": rows,
        "problem": problem,
        "seconds": seconds,
        "expected": expected,
        "limit": limit,
        "starts": starts,
    }
    failed = [row["name"] for row in rows if "error" in row]
    state = "incomplete" if problem else f"{len(failed)} failed" if failed else "ok"
    print(f"[{seconds:6.1f} s] {name}: {len(rows)} results, {state}", flush=True)
    for line in (problem or "").splitlines()[-4:]:
        print("           ", line)
    if stopped is not None:
        raise stopped


def section(options):
    """Run one section in this process. With `part`, run only a share of the checks."""
    faulthandler.enable()  # where a process crashed or hung is in its output
    if options.limit:
        faulthandler.dump_traceback_later(max(options.limit - 5, 0.8 * options.limit))
    if options.rehearse:
        sys.path.insert(0, str(ROOT / "tests" / "gpu"))
        fakes = importlib.import_module("benchmarks_with_fake_cupy")
        fakes.prepare(importlib.import_module("benchmarks.gpu.sizes"), options.section)
    measure = importlib.import_module("benchmarks.gpu.measure")
    only = json.loads(options.only) if options.only else None
    report = measure.Report(Path(options.output).with_suffix(".jsonl"), options.into or options.section, only)
    if options.rehearse and options.inject:
        fakes.inject(report, *options.inject.split("="), options.section)
    runner = SECTIONS[options.section].runner if options.section in SECTIONS else INNER[options.section]
    module, _, name = runner.partition(":")
    module = importlib.import_module(f"benchmarks.gpu.{module}")
    report.earlier, report.texts = options.earlier, Path(options.output).with_suffix(".txt")
    if options.part:
        return module.check_part(report, options.interpret, *map(int, options.part.split("/")))
    return getattr(module, name)(report, options.interpret)


def main():
    """Run the selected sections, write the files and print tables and failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="gpu_check.json", help="path of the JSON file (default: gpu_check.json)")
    parser.add_argument(
        "--sections", default=",".join(SECTIONS), help="comma-separated sections (default: all): " + ", ".join(SECTIONS)
    )
    parser.add_argument("--day", choices=DAY, help="run the sections of one command of gpu_day.sh")
    parser.add_argument(
        "--seconds", type=float, default=0, help="time limit for all sections, in seconds; 0: no limit (default: 0)"
    )
    parser.add_argument("--limit", type=float, help="time limit of each section in seconds (default: one per section)")
    parser.add_argument(
        "--earlier", help="rows (.jsonl) of an earlier run, of which the section `again` repeats what failed"
    )
    parser.add_argument(
        "--interpret", action="store_true", help="run only the correctness checks, in Triton's interpreter"
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="run all sections at tiny sizes over a fake CuPy, without a GPU"
    )
    for hidden in ("section", "part", "only", "into", "inject"):
        parser.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.output = str(Path(options.output).resolve())
    if options.section:
        return section(options)
    selected = DAY[options.day] if options.day else options.sections.split(",")
    selected = ["versions", "correctness"] if options.interpret else selected
    unknown = [name for name in selected if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    for suffix in (".jsonl", ".txt"):
        Path(options.output).with_suffix(suffix).unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    results, skipped = {}, {}
    end = time.perf_counter() + (options.seconds or float("inf"))
    stopped = None
    try:
        for name in selected:
            left, (expected, limit, _) = end - time.perf_counter(), SECTIONS[name]
            slow = 10 if options.interpret or options.rehearse else 1  # without a GPU, kernels are interpreted
            if stopped or left < expected:
                skipped[name] = stopped or f"{max(left, 0):.0f} s are left, {expected:.0f} s expected"
                print(f"{name}: skipped, {skipped[name]}", flush=True)
                continue
            run_section(name, min(options.limit or limit * slow, left), results, options)
            if not (options.rehearse or options.interpret):
                _idle()
            _write(options.output, results, skipped)
            show(table, results, [name])
            if name == "versions" and (results[name]["problem"] or any("error" in r for r in results[name]["rows"])):
                stopped = "`versions` failed"  # without a GPU that works, nothing else can
    except Stopped as error:
        ran = [*results, *skipped]
        skipped |= {name: f"the command was ended by {error}" for name in selected if name not in ran}
    _write(options.output, results, skipped)
    show(steps, results)
    show(summary, results)
    show(failures, results, skipped)
    failed = any("error" in r for s in results.values() for r in s["rows"]) or any(
        s["problem"] for s in results.values()
    )
    return 1 if failed or skipped else 0


def _write(output, results, skipped):
    """Write the results so that a reader never sees half of a file."""
    partial = Path(output).with_suffix(".part")
    partial.write_text(json.dumps({"sections": results, "not run": skipped}, indent=1))
    partial.replace(output)


if __name__ == "__main__":
    sys.exit(main())
