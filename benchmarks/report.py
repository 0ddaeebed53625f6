"""Make docs/benchmarks.md from the JSON files in benchmarks/results.

    python benchmarks/report.py
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

HEAD = """# Benchmarks

Every figure is a ratio against PyTorch, measured in turn with it on the same machine; below 1 is faster than
PyTorch. `python benchmarks/report.py` makes this page from `benchmarks/results/*.json`.

Nothing on this page was run on a GPU. The Triton kernels were compiled for one (compute capability 9.0) and their results
compared with float64 in Triton's interpreter; CuPy's paths ran over a stand-in (`tests/gpu`). `python benchmarks/gpu_check.py`
checks and times all of it on a GPU in one run.
"""


def _machine(result):
    m = result["machine"]
    return f"{m['processor']}, {m['cores']} cores, Python {m['python']}"


def gpt2():
    """The table of training steps."""
    rows = []
    for path in sorted(RESULTS.glob("gpt2-*.json")):
        r = json.loads(path.read_text())
        s, ms = r["settings"], r["milliseconds_per_step"]
        road = "kernels compiled by Numba" if "numba" in path.stem else "NumPy alone"
        rows.append(
            f"| {s['model_size']}, batch {s['batch_size']}, context {s['context_length']} | {road} | {ms['mytorch']:.1f} | {ms['torch']:.1f} | "
            f"{r['mytorch_over_torch']:.2f} | {_machine(r)} |"
        )
    head = "## GPT-2: milliseconds per training step\n\nForward, backward, clipping, AdamW. `benchmarks/gpt2.py`.\n\n"
    return head + "| model | road | mytorch | PyTorch eager | ratio | machine |\n|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


def overhead():
    """The table of host time per op."""
    r = json.loads((RESULTS / "overhead.json").read_text())
    rows = [
        f"| `{row['what']}` | {'yes' if row['requires_grad'] else 'no'} | {row['mytorch']:.2f} | {row['torch']:.2f} | {row['ratio']:.2f} |"
        for row in r["rows"]
    ]
    head = f"## Host time per operation on four floats, microseconds\n\n`benchmarks/overhead.py`. {_machine(r)}.\n\n"
    return head + "| what | grad | mytorch | PyTorch | ratio |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


def processes():
    """The table of data-parallel steps."""
    r = json.loads((RESULTS / "ddp.json").read_text())
    rows = [
        f"| {row['library']} | {row['link']} | {row['none']:.0f} | {row['after']:.0f} | {row['overlapped']:.0f} |"
        if "after" in row
        else f"| {row['library']} | {row['link']} | {row['none']:.0f} | | {row['overlapped']:.0f} |"
        for row in r["rows"]
    ]
    head = (
        f"## Data-parallel steps on {r['processes']} processes, milliseconds\n\nWithout communication, with the gradients averaged after "
        f"backward, and while it runs; {r['gradients_MB']:.0f} MB of gradients in buckets of {r['bucket_MB']:.0f} MB. "
        f"`benchmarks/ddp.py`. {_machine(r)}.\n\n"
    )
    return head + "| library | link | no communication | after backward | overlapped |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


def main():
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join([HEAD, gpt2(), overhead(), processes()]))


if __name__ == "__main__":
    main()
