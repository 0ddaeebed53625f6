"""Measure common workloads on a CPU in mytorch and eager PyTorch.

    python -m benchmarks.cpu [--sections convolutions] [--only conv3x3_fb,resnet_cifar] [--threads 1,2] [--numpy] [--memory] [--limit 300] [--json cpu.json]

Each module of this folder is a section. Its table `WORKLOADS` maps a name to a function that receives a library (mytorch or torch) and
returns a step, a function without arguments. Each library runs in a separate process, and the libraries take turns (`timing.py`).
"""

import argparse
import importlib
import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from benchmarks.cpu.timing import compared, memory, sections  # noqa: E402
from benchmarks.gpt2 import machine  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sections",
        default=",".join(sections()),
        help="comma-separated sections (default: all): " + ", ".join(sections()),
    )
    parser.add_argument("--only", help="comma-separated workloads (default: all)")
    parser.add_argument("--threads", default="1", help="comma-separated numbers of threads (default: 1)")
    parser.add_argument("--rounds", type=int, default=7, help="number of turns of each library (default: 7)")
    parser.add_argument(
        "--limit", type=float, help="time limit of each section in seconds, without setup; shortens the turns"
    )
    parser.add_argument("--numpy", action="store_true", help="disable compiled kernels in mytorch")
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time, for a machine with other load")
    parser.add_argument("--memory", action="store_true", help="also measure peak memory, in two more processes")
    parser.add_argument(
        "--json", help="path of a JSON file for the rows; rows of other sections and thread counts in the file are kept"
    )
    args = parser.parse_args()
    only, rows = args.only and args.only.split(","), []
    for section in args.sections.split(","):
        names = [
            name for name in importlib.import_module(f"benchmarks.cpu.{section}").WORKLOADS if not only or name in only
        ]
        for threads in map(int, args.threads.split(",")) if names else ():
            print(
                f"{section}, {threads} thread{'s' * (threads > 1)}: milliseconds, the fastest of {args.rounds} turns",
                flush=True,
            )
            of_section = []
            for row in compared(section, names, threads, args.rounds, args.numpy, args.cpu_time, args.limit):
                row |= memory(section, row["name"], threads) if args.memory else {}
                clock = "CPU time" if args.cpu_time else "time"
                of_section.append({"section": section, "threads": threads, "clock": clock, **row})
                print(line(row), flush=True)
            print(
                f"  geometric mean {math.exp(sum(math.log(row['ratio']) for row in of_section) / len(of_section)):.2f}"
            )
            rows += of_section
            if args.json:
                write(args.json, rows, args.numpy)


def line(row):
    """Returns a row as text."""
    text = "  {name:24} mytorch {mytorch:9.3f}  torch {torch:9.3f}  ratio {ratio:6.2f}".format(**row)
    if "torch_MB" in row:
        text += (
            "  memory {mytorch_MB:7.1f} {torch_MB:7.1f} MB, total {mytorch_all_MB:7.1f} {torch_all_MB:7.1f} MB".format(
                **row
            )
        )
    return text


def write(path, rows, numpy_alone):
    """Write rows to a file. They replace rows with the same name, section and number of threads."""
    path = Path(path)
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    merged = {(row["section"], row["threads"], row["name"]): row for row in [*old, *rows]}
    result = {
        "benchmark": "cpu",
        "unit": "milliseconds",
        "machine": machine(),
        "numpy_alone": numpy_alone,
        "rows": list(merged.values()),
    }
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
