"""Make docs/benchmarks.md from the JSON files in benchmarks/results.

python benchmarks/report.py
"""

import json
import math
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

HEAD = """# Benchmarks

The columns named "ratio" compare mytorch with PyTorch, measured alternately on the same machine. A ratio below 1 means that mytorch
is faster or smaller. The other columns have their unit in the heading. `python benchmarks/report.py` makes this page from `benchmarks/results/*.json`.

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
        path_taken = "kernels compiled by Numba" if "numba" in path.stem else "NumPy alone"
        rows.append(
            f"| {s['model_size']}, batch {s['batch_size']}, context {s['context_length']} | {path_taken} | {ms['mytorch']:.1f} | {ms['torch']:.1f} | "
            f"{r['mytorch_over_torch']:.2f} | {_machine(r)} |"
        )
    head = "## GPT-2: milliseconds per training step\n\nForward, backward, clipping, AdamW. `benchmarks/gpt2.py`.\n\n"
    return (
        head
        + "| model | path | mytorch | PyTorch eager | ratio | machine |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def _mean(ratios):
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def cpu():
    """The tables of common work on a CPU."""
    r = json.loads((RESULTS / "cpu.json").read_text())
    lines = [
        "## Common work on a CPU: milliseconds",
        "",
        f"`python -m benchmarks.cpu`, with Numba. {_machine(r)}. *memory*: MB that three steps take at most beyond what importing the "
        "library took (for mytorch Numba among it, about 60 MB); *in all*: of the whole process.",
    ]
    tables = dict.fromkeys((row["section"], row["threads"]) for row in r["rows"])
    for section, threads in tables:
        rows = [row for row in r["rows"] if (row["section"], row["threads"]) == (section, threads)]
        if section == "ops":
            lines += ops(rows, threads)
            continue
        lines += [
            "",
            f"### {section.capitalize()}, {threads} thread{'s' * (threads > 1)}",
            "",
            f"Clock: {rows[0]['clock']}. Geometric mean of {len(rows)}: {_mean([row['ratio'] for row in rows]):.2f}.",
            "",
            "| what | mytorch | PyTorch | ratio | memory | PyTorch's | in all | PyTorch's |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            sizes = [
                f"{row[k]:.0f}" if k in row else ""
                for k in ("mytorch_MB", "torch_MB", "mytorch_all_MB", "torch_all_MB")
            ]
            lines.append(
                f"| `{row['name']}` | {row['mytorch']:.3g} | {row['torch']:.3g} | {row['ratio']:.2f} | {' | '.join(sizes)} |"
            )
    return "\n".join(lines) + "\n"


def ops(rows, threads):
    """The lines on single ops: a ratio for each size."""
    sizes, found = ("small", "medium", "large", "odd"), {}
    for row in rows:
        name, _, size = row["name"].partition(" ")
        found.setdefault(name, {})[size or "large"] = row["ratio"]
    sizes = [size for size in sizes if any(size in ratios for ratios in found.values())]
    means = ", ".join(
        f"{size} {_mean([ratios[size] for ratios in found.values() if size in ratios]):.2f}" for size in sizes
    )
    ratios = [row["ratio"] for row in rows]
    return [
        "",
        f"### Single ops, {threads} thread{'s' * (threads > 1)}: ratios",
        "",
        f"Clock: {rows[0]['clock']}. `_fb`: forward and backward. Large is 1024 × 1024, medium 128 × 128, small 8 × 8, odd 257 × 1023 (`benchmarks/cpu/ops.py`). "
        f"Geometric mean of {len(ratios)}: {_mean(ratios):.2f} ({means}); {sum(r <= 1 for r in ratios)} at most 1, {sum(r > 2.5 for r in ratios)} above 2.5.",
        "",
        f"| op | {' | '.join(sizes)} |",
        "|---|" + "---|" * len(sizes),
        *(
            f"| `{name}` | {' | '.join(f'{ratio[size]:.2f}' if size in ratio else '' for size in sizes)} |"
            for name, ratio in found.items()
        ),
    ]


def overhead():
    """The table of host time per op."""
    r = json.loads((RESULTS / "overhead.json").read_text())
    by_kind = {}
    for row in r["rows"]:
        by_kind.setdefault(row["kind"], {}).setdefault(row["what"], {})[row["requires_grad"]] = row
    single = [row for found in by_kind.pop("elementwise").values() for row in found.values()]
    lines = [
        "## Host time per operation on a few numbers, microseconds",
        "",
        f"`benchmarks/overhead.py`. {_machine(r)}. {len(single)} elementwise operations, with and without gradients, are not in the table: "
        f"geometric mean {_mean([row['ratio'] for row in single]):.2f}, at most {max(row['ratio'] for row in single):.2f}.",
        "",
        "| what | mytorch | PyTorch | ratio | with grad: mytorch | PyTorch | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for rows in by_kind.values():
        for what, found in rows.items():
            cells = []
            for grad in (False, True):
                row = found.get(grad)
                cells += [f"{row[k]:.2f}" for k in ("mytorch", "torch", "ratio")] if row else ["", "", ""]
            lines.append(f"| `{what.replace('|', chr(92) + '|')}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


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
    return (
        head
        + "| library | link | no communication | after backward | overlapped |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def gpu():
    """What can be said of the GPU without one: what a step moves, and what Triton makes of the kernels."""
    lines = [
        "## GPU: counted and compiled, not run",
        "",
        "**No figure below was measured on a GPU.** `benchmarks/step_budget.py` runs one training step (bfloat16 autocast, loss, backward, "
        "clipping, AdamW) at its real sizes on arrays without contents and counts launches, bytes, products and memory. The bound "
        "gives each launch the larger of its bytes at 4.3 TB/s and its products at 790 TFLOP/s, rates measured on an H200 before; "
        '"likely" is a guess, with products at 85 %, attention at cuDNN\'s rates and memory at 90 % of that.',
        "",
        "| model | launches | products, TFLOP | other bytes, GB | bound, ms (products) | likely, ms | peak memory, GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    budget = json.loads((RESULTS / "gpu-budget.json").read_text())
    for r in budget:
        a = r["all"]
        lines.append(
            f"| {r['model']}, {r['parameters'] / 1e6:.1f}M, batch {r['batch']} | {a['launches']} | {a['TFLOP']:.2f} | {a['GB_without_products']:.1f} | "
            f"{a['bound_ms']:.1f} ({a['products_ms']:.1f}) | {a['likely_ms']:.1f} | {r['peak_GiB']:.1f} |"
        )
    lines += [
        "",
        f"The dearest launches of {budget[0]['model']} that are no products:",
        "",
        "| launch | phase | times | GB | bound, ms |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{k['what']}` | {k['phase']} | {k['count']} | {k['bytes'] / 1e9:.1f} | {k['ms']:.2f} |"
        for k in budget[0]["passes"]
    ]
    kernels = json.loads((RESULTS / "gpu-kernels.json").read_text())
    lines += [
        "",
        f"What Triton {kernels['triton']} makes of each kernel's default for compute capability 9.0 (`benchmarks/kernel_quality.py`): "
        "compiled, not run. *held*: programs that fit on a multiprocessor at a time; *rounds*: programs over what 132 "
        "multiprocessors hold; *stack*: bytes that a thread's registers spill; *bits*: of the widest load; *KB*: bytes on their way to a "
        "multiprocessor if each thread waits for its loads (about 40 keep the memory busy); *wgmma*: tensor-core instructions of Hopper; "
        "*ahead*: loads that are issued a turn of the loop ahead.",
        "",
        "| kernel | at | programs | held | rounds | registers | stack | shared, KB | bits | KB | wgmma | ahead |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in kernels["rows"]:
        widest = max(map(int, [*r["loads"], *r["copies"]]), default=0)
        lines.append(
            f"| `{r['kernel']}` | {r['at']} | {r['programs']} | {r['held']} × {r['warps']} warps | {r['waves']:.1f} | {r['registers']} | {r['stack']} | "
            f"{r['shared'] / 1024:.0f} | {widest} | {r['KB']:.0f} | {r['wgmma'] or ''} | {sum(r['copies'].values()) or ''} |"
        )
    return "\n".join([*lines, "", GPU_NOTES])


GPU_NOTES = """What this shows, and what was done about it:

* Every kernel that is bound by memory goes over its data once, by loads of 128 bits (64 in dropout, for four numbers a
  thread). Cross-entropy with its gradient (`_both`) reads a row twice, but two or three rows a multiprocessor fit into the
  second-level cache, so memory sees one reading. In backward of the norms all programs fit at once, and fetch the next rows while they work.
* Exact GELU would be bound by arithmetic with Triton's `erf` (38 instructions an element, where memory's time allows about
  28); with a formula of its own it takes 24.
* Attention multiplies by wgmma throughout, but for heads of 256 in backward, whose block of 32 keys takes the older
  instructions and so keeps everything in registers. In its inner loop at a width of 64, forward has 534 instructions a warp for
  128 × 64 scores, and tensor cores, exponentials and issue slots each need about 510 cycles: no one of them can be hidden
  wholly. Backward makes 7 products where one pass with atomics would make 5: it gives the same bits at every run.
* float32 attention with heads of 256 still spills in one kernel (360 bytes a thread); narrower heads do not.
"""


def main():
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join([HEAD, gpt2(), cpu(), overhead(), processes(), gpu()]))


if __name__ == "__main__":
    main()
