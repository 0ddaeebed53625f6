"""Everything about the GPU in one command: versions, training, parity with PyTorch, a profile, times, correctness, block sizes.

    python benchmarks/gpu_check.py [--output gpu.json] [--sections kernels,train | --day a] [--seconds 460]
    python benchmarks/gpu_check.py --interpret          # no GPU: correctness alone, in Triton's interpreter
    python benchmarks/gpu_check.py --rehearse           # no GPU: every section at tiny sizes over a stand-in, with made-up times

Each section runs in a process of its own with a time limit, and hands over each figure as soon as it has it, so a crash
or a hang loses nothing but what came after it; its part of the table is printed, and the JSON written, when it ends. The
sections stand in the order of their worth, should time run out. PyTorch is measured in its own processes, where it is
installed. A kernel's time is the median of several by CUDA events, each after a write that empties the second-level cache
and keeps the card busy while the CPU prepares the launch; its floor is what the card's ceilings allow for the bytes or the
products that the kernel can't avoid. TARGETS says what is to be reached on an H200; figures that have one say whether.
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

SECTIONS = {  # name -> seconds, in the order of their worth
    "versions": 20, "ceilings": 30, "train": 70, "train-captured": 70, "train-tuned": 90, "parity": 90, "profile": 45, "correctness": 75,
    "kernels": 90, "products": 60, "blocks": 70, "sanitizer": 40, "torch-train": 150, "torch": 100, "train-more": 110,
}  # fmt: skip
RUNNERS = {  # section -> module of benchmarks/gpu and function, imported in the section's own process
    "versions": "versions:versions", "ceilings": "versions:ceilings", "correctness": "correctness:correctness",
    "kernels": "kernels:kernels", "products": "products:products", "blocks": "products:blocks", "torch": "torch_kernels:torch_kernels",
    "train": "training:train", "train-captured": "training:train_captured", "train-more": "training:train_more",
    "torch-train": "training:torch_train", "train-tuned": "training:train_tuned", "parity": "parity:parity",
    "profile": "profile:profile", "sanitizer": "profile:sanitizer",
}  # fmt: skip


DAY = {  # the parts of gpu_day.sh, each useful alone
    "a": "versions,train,train-captured,train-tuned,parity,profile,correctness", "b": "ceilings,kernels,products,blocks,sanitizer",
    "c": "torch-train,torch,train-more",
}  # fmt: skip


def run_section(name, limit, results, interpret, rehearse=False):
    """Run a section in a process of its own; what it reported goes to results[name]."""
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
        with tempfile.TemporaryFile("w+") as said:  # a session of its own: what a section has started ends with it
            for _ in range(STARTS):
                child = subprocess.Popen(
                    command, stdout=said, stderr=said, env=environment, cwd=ROOT, start_new_session=True
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
                said.seek(0)
                problem = f"exit {child.returncode}: {said.read()[-1500:]}"
        rows = [json.loads(line) for line in Path(file.name).read_text().splitlines() if line.endswith("}")]
    results[name] = {"rows": rows, "problem": problem, "seconds": round(time.perf_counter() - started, 1)}
    failed = [r["name"] for r in rows if "error" in r]
    state = "ok" if not problem and not failed else f"{len(failed)} failed" if failed else "incomplete"
    print(f"[{results[name]['seconds']:6.1f} s] {name}: {len(rows)} results, {state}", flush=True)
    for line in (problem or "").splitlines()[-4:]:
        print("           ", line)


def section(options):
    """Run one section in this process, or with `part` a share of the checks."""
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
    """Run the sections that were asked for, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="gpu_check.json")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="some of " + ", ".join(SECTIONS))
    parser.add_argument("--day", choices=DAY, help="the sections of one part of gpu_day.sh")
    parser.add_argument("--seconds", type=float, default=460, help="for all sections together")
    parser.add_argument("--interpret", action="store_true", help="correctness alone, in Triton's interpreter")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="every section at tiny sizes over a stand-in for CuPy, which needs no GPU",
    )
    parser.add_argument("--section", help=argparse.SUPPRESS)
    parser.add_argument("--report", help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.section:
        return section(options)
    wanted = ["versions", "correctness"] if options.interpret else DAY.get(options.day, options.sections).split(",")
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a section that runs is ended too
    results, end = {}, time.perf_counter() + options.seconds
    for name in wanted:
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
