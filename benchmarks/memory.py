"""Measure the peak memory of training steps on a CPU: mytorch, its compiled step, and eager PyTorch.

    python benchmarks/memory.py [--only gpt_0p8m,resnet18_224] [--json benchmarks/results/memory.json]

Each step runs in a separate process on one thread. The result is the peak of the process minus the peak after the import of the library.
For mytorch, the import of Numba and its tables come on top, which load with the first large tensor: `numba_MB`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from benchmarks.cpu.timing import memory  # noqa: E402
from benchmarks.gpt2 import machine  # noqa: E402

STEPS = "gpt_0p8m,gpt_10p8m,gpt_124m,resnet18_224,unet_small"
NUMBA = """if 1:
    import mytorch, mytorch.nn, mytorch.optim
    from benchmarks.cpu.timing import peak
    before = peak()
    import mytorch.kernels.numba
    print(peak() - before)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", default=STEPS, help=f"comma-separated workloads of benchmarks/cpu/steps.py (default: {STEPS})"
    )
    parser.add_argument("--json", help="path of a JSON file for the rows")
    args = parser.parse_args()
    done = subprocess.run([sys.executable, "-c", NUMBA], cwd=ROOT, capture_output=True, text=True, check=True)
    numba, rows = round(float(done.stdout), 1), []
    print(f"Numba: {numba} MB")
    for name in args.only.split(","):
        row = {"name": name, "threads": 1, **memory("steps", name, 1, compiled=True)}
        row |= {key: round(row[key + "_MB"] / row["torch_MB"], 3) for key in ("mytorch", "compiled")}
        print("{name:16} mytorch {mytorch_MB:7.1f}  compiled {compiled_MB:7.1f}  torch {torch_MB:7.1f} MB  "
              "ratios {mytorch:.2f} {compiled:.2f}".format(**row), flush=True)  # fmt: skip
        rows.append(row)
        if args.json:
            result = {"benchmark": "memory", "unit": "MB", "machine": machine(), "numba_MB": numba, "rows": rows}
            Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
