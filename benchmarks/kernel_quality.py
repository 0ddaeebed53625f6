"""Compile the Triton kernels for an H200, at the sizes of GPT-2 124M, and print their use of resources.

    python benchmarks/kernel_quality.py [--kernels attention,layer_norm]
    python benchmarks/kernel_quality.py --results    # writes benchmarks/results/gpu-kernels.json for docs/benchmarks.md

The kernels are compiled, not run, so no GPU is needed. The table contains for each launch:

* the number of programs, and this number divided by the number that 132 multiprocessors hold (waves);
* registers and spilled bytes per thread, shared memory, and programs per multiprocessor;
* the number of loads, asynchronous copies (cp.async, TMA) and stores by width in bits;
* the number of tensor core instructions (wgmma).
"""

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import triton

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kernels import compile_only  # noqa: E402

SEEN = []  # (key of the compiled kernel, grid, label)
LABEL = [""]
_compile = compile_only.launch
BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


def launch(kernel, grid, *args, **options):
    """Compile a launch, and record its grid."""
    before = len(compile_only.COMPILED)
    _compile(kernel, grid, *args, **options)
    if len(compile_only.COMPILED) > before:
        SEEN.append((list(compile_only.COMPILED)[-1], grid, LABEL[0]))


compile_only.home.launch = launch


def resources(compiled):
    """Returns the registers and the stack bytes of a thread, read with cuobjdump."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        text = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    return int(re.search(r"REG:(\d+)", text)[1]), int(re.search(r"STACK:(\d+)", text)[1])


_LOAD = re.compile(r"ld\.global(?:\.[a-zA-Z0-9_:]+)*?(?:\.(v[248]))?\.(?:b|u|s|f)(\d+)")
_STORE = re.compile(r"st\.global(?:\.[a-zA-Z0-9_:]+)*?(?:\.(v[248]))?\.(?:b|u|s|f)(\d+)")


def widths(ptx, pattern):
    """Returns {bits per thread: number of instructions with this width}."""
    return Counter(int((v or "v1")[1:]) * int(bits) for v, bits in pattern.findall(ptx))


def describe(key, grid, label):
    """Returns a row of the table."""
    name, compiled = compile_only.COMPILED[key]
    ptx = compiled.asm["ptx"]
    registers, stack = resources(compiled)
    warps, shared = compiled.metadata.num_warps, compiled.metadata.shared
    allocated = -(-registers // 8) * 8 * 32 * warps
    held = min(65536 // allocated, 64 // warps, 228 * 1024 // (shared + 1024), 32)
    programs = int(np.prod(grid))
    loads, stores = widths(ptx, _LOAD), widths(ptx, _STORE)
    copies = Counter(
        int(n, 0) * 8 for n in re.findall(r"cp\.async\.c[ag]\.shared\.global[^;]*?, (0x[0-9a-f]+|\d+)", ptx)
    )
    flying = sum(bits // 8 * n for bits, n in (loads + copies).items()) * 32 * warps * held
    return {
        "kernel": name.rpartition("triton.")[2], "at": label, "programs": programs, "warps": warps, "held": held,
        "waves": programs / (132 * max(held, 1)), "registers": registers, "stack": stack, "shared": shared, "loads": dict(loads),
        "stores": dict(stores), "copies": dict(copies), "wgmma": ptx.count("wgmma.mma_async"), "mma": ptx.count("mma.sync"),
        "KB": flying / 1024,
    }  # fmt: skip


def run(selected):
    """Compile the selected kernels."""
    from mytorch import bfloat16
    from mytorch.arrays import numpy_ns as xp
    from mytorch.kernels import triton as home

    rows, width, classes = 32768, 768, 50304

    def module(name):
        return importlib.import_module(f"{home.__name__}.{name}")

    def empty(*shape, dtype=BF16):
        return np.empty(shape, dtype)

    def norms(name):
        for dtype in (F32, BF16):
            LABEL[0] = f"{name} {rows}x{width} {dtype.name}"
            x, w = empty(rows, width, dtype=dtype), empty(width, dtype=F32)
            if name == "softmax":
                m = module("softmax").softmax
                m.forward(xp, x, dim=1)
                m.vjp(x, x, 1, (x.dtype,), xp)
                continue
            m = module("norm")
            rms = name == "rms_norm"
            _, _, mean, rstd = m.forward(xp, x, w, None if rms else w, width=width, eps=1e-5, rms=rms)
            m.backward(xp, x, x, w, mean, rstd, width=width, rms=rms, needs=(True, True, not rms))

    def residual_norm():
        LABEL[0] = f"layer_norm {rows}x{width}, bfloat16 added to a float32 stream"
        m, branch, stream, w = (
            module("norm"),
            empty(rows, width),
            empty(rows, width, dtype=F32),
            empty(width, dtype=F32),
        )
        _, _, mean, rstd = m.forward(xp, branch, w, width=width, eps=1e-5, residual=stream, dtype=bfloat16)
        m.backward(xp, branch, stream, w, mean, rstd, width=width, more=stream, also=branch, needs=(True, True, False))

    def losses():
        m = module("cross_entropy")
        for dtype, n in ((F32, 16384), (BF16, rows)):
            LABEL[0] = f"{n}x{classes} {dtype.name}"
            x, target = empty(n, classes, dtype=dtype), np.zeros(n, np.int64)
            _, lse, total = m.forward(xp, x, target=target)
            m.vjp(np.ones((), dtype), x, target, None, -100, 0.0, "mean", lse, total, xp)
            m.rows_both(xp, x, target, None, -100, 0.0, 0.0, empty(n, dtype=F32))

    def attention():
        m = module("attention")
        for shape, dtype in (((32, 12, 1024, 64), BF16), ((4, 16, 4096, 128), BF16), ((4, 8, 1024, 256), BF16),
                             ((4, 12, 1024, 64), F32), ((4, 8, 1024, 128), F32), ((4, 8, 1024, 256), F32)):  # fmt: skip
            LABEL[0] = f"{'x'.join(map(str, shape))} causal {dtype.name}"
            q = empty(*shape, dtype=dtype)
            out, lse = m.run_forward(xp, q, q, q, causal=True)
            m.run_backward(xp, out, q, q, q, out, lse, causal=True)

    def elementwise():
        m = module("activation")
        x = empty(rows, 4 * width)
        LABEL[0] = f"{rows}x{4 * width} bfloat16"
        m.apply(xp, x, "gelu")
        m.apply_backward(xp, x, x, "gelu")
        LABEL[0] = f"{rows}x{width} bfloat16"
        module("dropout").apply(xp, empty(rows, width), 0.1, np.zeros(2, np.int64), 1)
        table, index = empty(classes, width, dtype=F32), np.zeros(rows, np.int64)
        LABEL[0] = f"{rows} of {classes}x{width} float32"
        e = module("embedding")
        e.vjp(e.forward(xp, table, index), index, None, False, table.shape, None, xp)

    def optimizers():
        m = module("multi")
        LABEL[0] = "124M float32"
        shapes = [(classes, width), (1024, width)] + 12 * [
            (3 * width, width),
            (width, width),
            (4 * width, width),
            (width, 4 * width),
        ]
        columns = [[empty(*s, dtype=F32) for s in shapes] for _ in range(4)]
        table = m.Table(xp, *columns)
        state = m.new_state(xp)
        m.adamw(table, state)
        m.norm(table, state, 1.0)
        m.clip(table, state)

    def products():
        m = module("matmul")
        for k, n in ((width, 4 * width),):
            LABEL[0] = f"{rows}x{k}x{n} bfloat16"
            x, w, g = empty(rows, k), empty(n, k), empty(rows, n)
            m.linear(xp, x, w)
            m.linear_backward(xp, g, x, w, needs=(True, True, False))

    groups = {
        "softmax": lambda: norms("softmax"), "layer_norm": lambda: norms("layer_norm"), "rms_norm": lambda: norms("rms_norm"), "residual_norm": residual_norm,
        "cross_entropy": losses, "attention": attention, "elementwise": elementwise, "multi": optimizers, "matmul": products,
    }  # fmt: skip
    for name, group in groups.items():
        if selected is None or name in selected:
            group()
    return [describe(*seen) for seen in SEEN]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", action="store_true", help="write benchmarks/results/gpu-kernels.json")
    parser.add_argument(
        "--kernels",
        help="comma-separated groups (default: all): softmax, layer_norm, rms_norm, residual_norm, cross_entropy, attention, elementwise, multi, matmul",
    )
    options = parser.parse_args()
    rows = run(options.kernels.split(",") if options.kernels else None)
    if options.results:
        text = json.dumps({"triton": triton.__version__, "rows": rows}, indent=1)
        return (ROOT / "benchmarks" / "results" / "gpu-kernels.json").write_text(text + "\n") and None
    print(f"Triton {triton.__version__}")
    print(
        f"{'kernel':<28}{'input':<36}{'programs':>9}{'warps':>6}{'resident':>9}{'waves':>7}{'regs':>5}{'spilled':>8}{'shared':>8}{'wgmma':>6}{'KB in flight':>13}  loads / copies / stores"
    )
    for r in rows:
        print(
            f"{r['kernel']:<28}{r['at']:<36}{r['programs']:>9}{r['warps']:>6}{r['held']:>9}{r['waves']:>7.1f}{r['registers']:>5}{r['stack']:>8}"
            f"{r['shared']:>8}{r['wgmma']:>6}{r['KB']:>13.0f}  {r['loads']} / {r['copies']} / {r['stores']}"
            + (f" mma.sync {r['mma']}" if r["mma"] else "")
        )


if __name__ == "__main__":
    main()
