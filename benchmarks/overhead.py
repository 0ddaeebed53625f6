"""Host time per operation on four floats, beside PyTorch in the same run.

    python benchmarks/overhead.py [--output overhead.json]

The arrays are so small that what is measured is the library, not the arithmetic. Each row is the fastest of
several rounds, taken in turn with PyTorch's.
"""

import argparse
import json
import sys
import timeit
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpt2 import machine

import mytorch

ROWS = {
    "a + b": "a + b",
    "a * b": "a * b",
    "a * 2.0": "a * 2.0",
    "a.exp()": "a.exp()",
    "a.sum()": "a.sum()",
    "a[1:3]": "a[1:3]",
    "a.reshape(2, 2)": "a.reshape(2, 2)",
}
BACKWARD = {"(a * b).sum().backward()": "(a * b).sum().backward()"}


def measure(statement, scope, number, rounds):
    """Microseconds per execution, the fastest round."""
    return min(timeit.repeat(statement, globals=scope, number=number, repeat=rounds)) / number * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", help="also write the JSON to this file")
    args = parser.parse_args()
    libraries = {"mytorch": mytorch}
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed; only this library is measured.")
    else:
        torch.set_num_threads(1)
        libraries["torch"] = torch
    rows = []
    for kind, statements, grads in (("op", ROWS, (False, True)), ("backward", BACKWARD, (True,))):
        for label, statement in statements.items():
            for grad in grads:
                row = {"what": label, "kind": kind, "requires_grad": grad}
                for name, lib in libraries.items():
                    scope = {"a": lib.randn(4, requires_grad=grad), "b": lib.randn(4, requires_grad=grad)}
                    row[name] = round(measure(statement, scope, 20_000 if kind == "op" else 5_000, args.rounds), 3)
                if "torch" in row:
                    row["ratio"] = round(row["mytorch"] / row["torch"], 2)
                rows.append(row)
                print(
                    f"{label:28} grad={grad!s:5} "
                    + "  ".join(f"{k} {row[k]:7.2f}" for k in libraries)
                    + f"  ratio {row.get('ratio', '-')}"
                )
    result = {"benchmark": "overhead", "unit": "microseconds", "machine": machine(), "rows": rows}
    if args.output:
        with open(args.output, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
