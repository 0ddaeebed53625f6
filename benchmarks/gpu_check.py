"""Run all GPU checks and benchmarks: versions, training, parity with PyTorch, a profile, times, correctness, block sizes.

    python benchmarks/gpu_check.py [--output gpu.json] [--sections kernels,train | --day a] [--seconds 460]
    python benchmarks/gpu_check.py --interpret    # without a GPU: correctness in Triton's interpreter
    python benchmarks/gpu_check.py --rehearse     # without a GPU: all sections at tiny sizes over a fake CuPy, with invented times

Each section runs in a separate process with a time limit and reports each figure immediately. A crash or a hang therefore loses only the
remaining figures of the section. When a section ends, the script prints its part of the table and writes the JSON file. The most important
sections run first. PyTorch is measured in separate processes, if it is installed.

The time of a kernel is the median of several launches, measured with CUDA events. A write of 2 GB before each launch empties the L2 cache
and keeps the GPU busy while the CPU prepares the launch. The lower bound of a kernel is the time for its bytes or its operations at the
measured maximum rates of the GPU. TARGETS (gpu/table.py) lists the target times for an H200. The table shows which targets are met.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.gpu.sizes import LOST, STARTS  # noqa: E402
from benchmarks.gpu.table import show, summary, table  # noqa: E402

SECTIONS = {  # name -> time limit in seconds, most important first
    "versions": 20, "ceilings": 30, "train": 70, "train-captured": 70, "train-tuned": 90, "parity": 90, "profile": 45, "correctness": 75,
    "kernels": 90, "products": 60, "blocks": 70, "sanitizer": 40, "torch-train": 150, "torch": 100, "train-more": 110,
}  # fmt: skip
RUNNERS = {  # section -> module of benchmarks/gpu and function, imported in the process of the section
    "versions": "versions:versions", "ceilings": "versions:ceilings", "correctness": "correctness:correctness",
    "kernels": "kernels:kernels", "products": "products:products", "blocks": "products:blocks", "torch": "torch_kernels:torch_kernels",
    "train": "training:train", "train-captured": "training:train_captured", "train-more": "training:train_more",
    "torch-train": "training:torch_train", "train-tuned": "training:train_tuned", "parity": "parity:parity",
    "profile": "profile:profile", "sanitizer": "profile:sanitizer",
}  # fmt: skip


DAY = {  # the parts of gpu_day.sh
    "a": "versions,train,train-captured,train-tuned,parity,profile,correctness", "b": "ceilings,kernels,products,blocks,sanitizer",
    "c": "torch-train,torch,train-more",
}  # fmt: skip


def run_section(name, limit, results, interpret, rehearse=False):
    """Run a section in a separate process, and store its figures in results[name]."""
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as file:
        command = [
            sys.executable,
            __file__,
            "--section",
            name,
            "--report",
            file.name,
            *(["--rehearse"] if rehearse else []),
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        if interpret:
            environment["TRITON_INTERPRET"] = "1"
            command.append("--interpret")
        elif name in ("correctness", "kernels", "products"):
            environment["MYTORCH_KERNELS_ON"] = "cuda"
        if rehearse:
            environment["TRITON_INTERPRET"] = "1"
        started = time.perf_counter()
        problem = None
        with tempfile.TemporaryFile("w+") as log:  # a separate session: its child processes end with it
            for _ in range(STARTS):
                child = subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True
                )
                try:
                    child.wait(max(limit - (time.perf_counter() - started), 1))
                except BaseException as error:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                    if not isinstance(error, subprocess.TimeoutExpired):
                        raise
                    problem = f"stopped after {limit:.0f} s"
                if child.returncode != LOST:
                    break
            if child.returncode and not problem:
                log.seek(0)
                problem = f"exit {child.returncode}: {log.read()[-1500:]}"
        rows = [json.loads(line) for line in Path(file.name).read_text().splitlines() if line.endswith("}")]
    results[name] = {"rows": rows, "problem": problem, "seconds": round(time.perf_counter() - started, 1)}
    failed = [r["name"] for r in rows if "error" in r]
    state = "ok" if not problem and not failed else f"{len(failed)} failed" if failed else "incomplete"
    print(f"[{results[name]['seconds']:6.1f} s] {name}: {len(rows)} results, {state}", flush=True)
    for line in (problem or "").splitlines()[-4:]:
        print("           ", line)


def section(options):
    """Run one section in this process. With `part`, run only a share of the checks."""
    if options.rehearse:
        sys.path.insert(0, str(ROOT / "tests" / "gpu"))
        importlib.import_module("benchmarks_with_fake_cupy").prepare(importlib.import_module("benchmarks.gpu.sizes"))
    report = importlib.import_module("benchmarks.gpu.measure").Report(options.report)
    module, _, name = RUNNERS[options.section].partition(":")
    module = importlib.import_module(f"benchmarks.gpu.{module}")
    if options.part:
        return module.check_part(report, options.interpret, *map(int, options.part.split("/")))
    return getattr(module, name)(report, options.interpret)


def main():
    """Run the selected sections, write the JSON file and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="gpu_check.json", help="path of the JSON file (default: gpu_check.json)")
    parser.add_argument(
        "--sections", default=",".join(SECTIONS), help="comma-separated sections (default: all): " + ", ".join(SECTIONS)
    )
    parser.add_argument("--day", choices=DAY, help="run the sections of one part of gpu_day.sh")
    parser.add_argument(
        "--seconds", type=float, default=460, help="time limit for all sections, in seconds (default: 460)"
    )
    parser.add_argument(
        "--interpret", action="store_true", help="run only the correctness checks, in Triton's interpreter"
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="run all sections at tiny sizes over a fake CuPy, without a GPU"
    )
    parser.add_argument("--section", help=argparse.SUPPRESS)
    parser.add_argument("--report", help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.section:
        return section(options)
    selected = ["versions", "correctness"] if options.interpret else DAY.get(options.day, options.sections).split(",")
    unknown = [name for name in selected if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the running section
    results, end = {}, time.perf_counter() + options.seconds
    for name in selected:
        left = end - time.perf_counter()
        if left < 10:
            print(f"{name}: no time left")
            continue
        run_section(
            name,
            min(SECTIONS[name] * (4 if options.interpret else 1), left),
            results,
            options.interpret,
            options.rehearse,
        )
        Path(options.output).write_text(json.dumps(results, indent=1))
        show(table, results, [name])
    show(summary, results)
    failed = any("error" in r for s in results.values() for r in s["rows"]) or any(
        s["problem"] for s in results.values()
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
