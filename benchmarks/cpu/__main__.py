"""Common work on a CPU beside PyTorch eager, section by section.

    python -m benchmarks.cpu [--sections convolutions] [--only conv3x3_fb,resnet_cifar] [--threads 1,2] [--numpy] [--output cpu.json]

A section is a module of this folder: `WORKLOADS` is a table of name -> function that is handed a library (mytorch or torch) and
returns a step, a function of no arguments. Each library has a process of its own and they take turns (`timing.py`). `--numpy`
does without Numba's kernels.
"""

import argparse
import importlib
import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from benchmarks.cpu.timing import compared, sections  # noqa: E402
from benchmarks.gpt2 import machine  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", default=",".join(sections()), help="of " + ", ".join(sections()))
    parser.add_argument("--only", help="names of workloads; the others are left out")
    parser.add_argument("--threads", default="1", help="numbers of threads, each measured: 1,2")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each library")
    parser.add_argument("--numpy", action="store_true", help="mytorch without its compiled kernels")
    parser.add_argument("--output", help="also write the JSON to this file")
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
            for row in compared(section, names, threads, args.rounds, args.numpy):
                of_section.append({"section": section, "threads": threads, **row})
                print(
                    "  {name:24} mytorch {mytorch:9.3f}  torch {torch:9.3f}  ratio {ratio:6.2f}".format(**row),
                    flush=True,
                )
            print(
                f"  geometric mean {math.exp(sum(math.log(row['ratio']) for row in of_section) / len(of_section)):.2f}"
            )
            rows += of_section
    if args.output:
        result = {
            "benchmark": "cpu",
            "unit": "milliseconds",
            "machine": machine(),
            "numpy_alone": args.numpy,
            "rows": rows,
        }
        Path(args.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
