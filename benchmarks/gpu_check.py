"""Everything about the GPU in one command, under 8 minutes: versions, training, times, correctness, block sizes.

    python benchmarks/gpu_check.py [--output gpu.json] [--sections kernels,train] [--seconds 460]
    python benchmarks/gpu_check.py --interpret          # no GPU: correctness alone, in Triton's interpreter
    python benchmarks/gpu_check.py --rehearse           # no GPU: every section at tiny sizes over a stand-in, with made-up times

Each section runs in a process of its own with a time limit, and hands over each figure as soon as it has it, so a crash
or a hang loses nothing but what came after it; its part of the table is printed, and the JSON written, when it ends. The
sections stand in the order of their worth, should time run out. PyTorch is measured in its own processes, where it is
installed. A kernel's time is the median of several by CUDA events, each after a write that empties the second-level cache
and keeps the card busy while the host prepares the launch; its floor is what the card's ceilings allow for the bytes or the
products that the kernel can't avoid. TARGETS says what is to be reached on an H200; figures that have one say whether.
"""

import argparse
import importlib
import importlib.metadata as metadata
import inspect
import itertools
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CEILINGS = {
    "TB/s": 4.3,
    "bf16 TFLOP/s": 790.0,
    "fp32 TFLOP/s": 51.0,
}  # measured on an H200; "ceilings" measures this card's
SECTIONS = {  # name -> seconds, in the order of their worth
    "versions": 30, "ceilings": 40, "train": 100, "train-captured": 80, "kernels": 110, "correctness": 130, "products": 60,
    "blocks": 70, "torch-train": 90, "train-more": 80, "torch": 70,
}  # fmt: skip
DEVICE = "cuda"  # PyTorch's; tests/gpu/rehearsal.py makes it the CPU, and the sizes small
ROWS, WIDTH, CLASSES = 32768, 768, 50304
HEADS, LONG = (32, 12, 1024, 64), (4, 16, 4096, 128)
LOSSES = 16384  # rows
CONV, GROUPED = (128, 64, 56, 56), (32, 128, 56, 56)
SQUARE, BATCHED = 8192, (384, 1024, 64)
TIME_STEPS, STEPS = 4.0, 5  # seconds of training steps, steps between two waits
REPEATS, HOST_CALLS, CASES = 9, 1000, None  # launches timed, calls for the host's time, cases of each check
WASTE = 1 << 31  # bytes written between launches
STARTS, LOST = 6, 77  # how often a process is started that keeps losing the card; the exit code that says so
WITHIN = 1.15  # of the floor: the kernels below, on an H200
NEAR_FLOOR = ("softmax", "layer_norm", "rms_norm", "cross_entropy", "AdamW 124M")
TARGETS = {  # what is to be reached on an H200: ms, and for training GiB
    "attention forward 32x12x1024x64 causal": (0.158, None),  # cuDNN's times
    "attention backward 32x12x1024x64 causal": (0.53, None),
    "GPT-2 124M bf16 B32xT1024": (80.8, 27.3),  # PyTorch, eager
    "GPT-2 124M bf16 B32xT1024 captured": (61.8, 15.1),  # PyTorch, compiled; the goal is 52
    "GPT-2 small bf16 B32xT256": (14.6, None),
    "GPT-2 small bf16 B32xT256 captured": (4.0, None),
    "GPT-2 124M fp16 B32xT1024": (83.0, None),
    "GPT-2 124M fp32 B8xT1024": (156.0, None),
}
CHECKS = tuple(
    f"kernels.check_{name}"
    for name in ("norm", "cross_entropy", "elementwise", "attention", "matmul", "multi", "conv", "random", "ops")
)
CHECKS = (*CHECKS, "gpu.check_products")

# -- the process that looks after the others ------------------------------------------------------------------------------


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


def target_of(row):
    """(ms, GiB) that a figure is to reach, None where nothing is said."""
    if row["name"] in TARGETS:
        return TARGETS[row["name"]]
    near = row.get("floor") and row["name"].startswith(NEAR_FLOOR)
    return (WITHIN * row["floor"] if near else None), None


def verdict(row):
    """ "ok" or what was missed by how much; "" without a target."""
    ms, gib = target_of(row)
    missed = [
        f"{row[key] / most:.2f} × {most:.3g} {key}"
        for key, most in (("ms", ms), ("GiB", gib))
        if most and not row[key] <= most
    ]
    missed += ["the loss is " + str(row["loss"])] if not math.isfinite(row.get("loss", 0.0)) else []
    return "MISSED " + ", ".join(missed) if missed else "ok" if ms else ""


def _last(text):
    return (text.splitlines() or ["?"])[-1][:110]


def table(results, names):
    """The figures of some sections as lines of text."""
    lines = []
    rows = {name: {r["name"]: r for r in results.get(name, {}).get("rows", [])} for name in SECTIONS}
    for name in names:
        own = rows[name]
        if name in ("versions", "ceilings"):
            lines += [f"{key:<28}{r['value'] if 'value' in r else _last(r['error'])}" for key, r in own.items()]
        elif name == "correctness":
            good = sum("error" not in r for r in own.values())
            lines.append(f"{good} of {len(own)} checks against float64 passed")
            lines += [f"  FAILED {r['name']}: {_last(r['error'])}" for r in own.values() if "error" in r]
        elif name in ("kernels", "products", "torch"):
            lines.append(f"{'kernel':<52}{'ms':>9}{'floor':>9}{'× floor':>9}{'PyTorch':>9}{'× PyTorch':>11}")
            measured = {**rows["kernels"], **rows["products"]}
            for label in dict.fromkeys([*measured, *own]) if name == "torch" else own:
                mine, other = measured.get(label, {}), rows["torch"].get(label, {})
                ms, floor, torch_ms = mine.get("ms"), mine.get("floor"), other.get("ms")
                cells = [
                    ms,
                    floor,
                    ms / floor if ms and floor else None,
                    torch_ms,
                    ms / torch_ms if ms and torch_ms else None,
                ]
                text = "".join(
                    f"{'-' if c is None else f'{c:.3f}':>{w}}" for c, w in zip(cells, (9, 9, 9, 9, 11), strict=True)
                )
                errors = [_last(r["error"]) for r in (mine, other) if "error" in r]
                lines.append(f"{label:<52}{text}  {errors[0] if errors else verdict(mine) if ms else ''}")
        elif name == "blocks":
            for kernel in dict.fromkeys(r["kernel"] for r in own.values() if "ms" in r):
                lines.append(kernel)
                timed = sorted(
                    (r for r in own.values() if r.get("kernel") == kernel and "ms" in r), key=lambda r: r["ms"]
                )
                lines += [
                    f"  {r['ms']:.3f} ms  {r['options']}{'   (the default)' if r['default'] else ''}" for r in timed
                ]
            lines += [f"  {r['name']}: {_last(r['error'])}" for r in own.values() if "error" in r]
        else:
            lines.append(f"{'training step':<52}{'ms':>9}{'ktok/s':>9}{'peak GiB':>10}{'loss':>9}")
            library = "PyTorch" if name == "torch-train" else "mytorch"
            for r in own.values():
                label = f"{library + ' ' + r['name']:<52}"
                if "error" in r:
                    lines.append(label + "  " + _last(r["error"]))
                else:
                    said = verdict(r) if library == "mytorch" else ""
                    lines.append(f"{label}{r['ms']:>9.2f}{r['ktok/s']:>9.0f}{r['GiB']:>10.2f}{r['loss']:>9.3f}  {said}")
    return "\n".join(lines)


def summary(results):
    """How many targets were met, and which were not."""
    own = [
        r for name, s in results.items() if not name.startswith("torch") for r in s["rows"] if "ms" in r and verdict(r)
    ]
    missed = [f"  {r['name']}: {verdict(r)[7:]}" for r in own if verdict(r) != "ok"]
    return "\n".join([f"targets: {len(own) - len(missed)} of {len(own)} met", *missed])


def show(make, *args):
    """Print what `make` makes of the results; should it fail, the figures are in the file, and what comes next is worth more."""
    try:
        print(make(*args) + "\n", flush=True)
    except Exception:
        traceback.print_exc()


def main():
    """Run the sections that were asked for, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="gpu_check.json")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="some of " + ", ".join(SECTIONS))
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
        if options.rehearse:
            sys.path.insert(0, str(ROOT / "tests" / "gpu"))
            importlib.import_module("rehearsal").prepare(sys.modules[__name__])
        if options.part:
            return check_part(Report(options.report), options.interpret, *map(int, options.part.split("/")))
        return RUNNERS[options.section](Report(options.report), options.interpret)
    wanted = ["versions", "correctness"] if options.interpret else options.sections.split(",")
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


def card_is_lost():
    """Whether CUDA answers nothing but errors: after an illegal address, say, no call of this process succeeds any more."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    try:
        if cupy is not None:
            cupy.cuda.Device().synchronize()
        elif hasattr(torch, "cuda") and torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except Exception:
        return True
    return False


class Report:
    """Where a section hands over its results, one line of JSON each. What the file has already isn't attempted again: a
    section that has lost the card ends with LOST, and is started anew to do the rest."""

    def __init__(self, path):
        self.done = (
            {json.loads(line)["name"] for line in Path(path).read_text().splitlines() if line.endswith("}")}
            if Path(path).exists()
            else set()
        )
        self.file = open(path, "a")

    def __call__(self, name, **values):
        self.file.write(json.dumps({"name": name, **values}, default=float) + "\n")
        self.file.flush()

    def attempt(self, name, function):
        """Report what the function returns (a dict; None if it has reported itself), or how it failed."""
        if name in self.done:
            return
        try:
            values = function()
            if values is not None:
                self(name, **values)
        except Exception as error:
            self(name, error=f"{traceback.format_exc()[-800:]}\n{type(error).__name__}: {str(error)[-300:]}")
            if card_is_lost():
                os._exit(LOST)


def timer(elapsed, event, flush):
    """A function (call, repeats) that times calls: `event` makes an event, `elapsed` is the ms between two, `flush` writes 2 GB."""

    def milliseconds(call):
        for _ in range(2):
            call()  # compiled, and every array in the pool
        times = []
        for _ in range(REPEATS):
            begin, end = event(), event()
            flush()  # the host is done with the launch before the card is done with this
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(elapsed(begin, end))
        return sorted(times)[REPEATS // 2]

    return milliseconds


def cupy_timer():
    """`timer` for CuPy."""
    import cupy as cp

    waste = cp.empty(WASTE, cp.uint8)
    return timer(cp.cuda.get_elapsed_time, cp.cuda.Event, lambda: waste.fill(0))


def torch_timer():
    """`timer` for PyTorch."""
    import torch

    waste = torch.empty(WASTE, dtype=torch.uint8, device=DEVICE)
    return timer(lambda a, b: a.elapsed_time(b), lambda: torch.cuda.Event(enable_timing=True), waste.zero_)


# -- versions, ceilings -----------------------------------------------------------------------------------------------------


def versions(report, interpret):
    """What is installed, and on what."""
    report("python", value=platform.python_version())
    report("processor", value=platform.processor() or platform.machine())
    for name in ("mytorch", "numpy", "cupy", "triton", "ml_dtypes"):
        try:
            report(name, value=importlib.import_module(name).__version__)
        except ImportError:
            report(name, value="not installed")
    for name in ("torch", "nvidia-cudnn-frontend", "nvmath-python"):
        try:
            report(name, value=metadata.version(name))
        except metadata.PackageNotFoundError:
            report(name, value="not installed")
    if interpret:
        return

    def card():
        import cupy as cp

        properties = cp.cuda.runtime.getDeviceProperties(0)
        memory = properties["totalGlobalMem"] / 2**30
        text = f"{properties['name'].decode()}, {properties['multiProcessorCount']} multiprocessors, {memory:.0f} GiB"
        return {
            "value": f"{text}, CUDA {cp.cuda.runtime.runtimeGetVersion()}, driver {cp.cuda.runtime.driverGetVersion()}"
        }

    report.attempt("card", card)


def ceilings(report, interpret):
    """What this card reaches: copying, and products."""
    import cupy as cp
    import ml_dtypes

    milliseconds = cupy_timer()

    def copy():
        a = cp.zeros(WASTE // 2, cp.uint8)
        b = cp.empty_like(a)
        return {"value": round(2 * a.nbytes / milliseconds(lambda: cp.copyto(b, a)) / 1e9, 2)}

    def product(n, dtype):
        a = cp.random.standard_normal((n, n), dtype=cp.float32).astype(dtype)
        return {"value": round(2 * n**3 / milliseconds(lambda: a @ a) / 1e9, 1)}

    report.attempt("TB/s", copy)
    report.attempt("bf16 TFLOP/s", lambda: product(SQUARE, ml_dtypes.bfloat16))
    report.attempt("fp16 TFLOP/s", lambda: product(SQUARE, cp.float16))
    report.attempt("fp32 TFLOP/s", lambda: product(SQUARE, cp.float32))
    report.attempt("GiB of memory", lambda: {"value": round(cp.cuda.runtime.memGetInfo()[1] / 2**30, 1)})


# -- correctness: the checks of tests/kernels, without pytest ---------------------------------------------------------------


def _pytest_or_stand_in():
    """pytest, or as much of it as the checks use."""
    try:
        return importlib.import_module("pytest")
    except ImportError:
        from contextlib import contextmanager

        @contextmanager
        def raises(kind, match=None):
            try:
                yield
            except kind:
                return
            raise AssertionError(f"{kind.__name__} was not raised")

        def parametrize(names, values, ids=None):
            def mark(function):
                function.pytestmark = [
                    types.SimpleNamespace(args=(names, values)),
                    *getattr(function, "pytestmark", []),
                ]
                return function

            return mark

        module = types.ModuleType("pytest")
        module.mark = types.SimpleNamespace(parametrize=parametrize)
        module.raises = raises
        module.fixture = lambda **kwargs: lambda function: function
        sys.modules["pytest"] = module
        return module


def _cases(function):
    """The argument dicts of a parametrized test."""
    axes = []
    for mark in getattr(function, "pytestmark", []):
        names, values = mark.args[:2]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        axes.append([dict(zip(names, v if len(names) > 1 else (v,), strict=True)) for v in values])
    for parts in itertools.product(*axes):
        yield {k: v for part in parts for k, v in part.items()}


def correctness(report, interpret):
    """Every kernel at odd sizes in each dtype, forward and backward, against float64; several processes compile at once."""
    workers = max(1, min(os.cpu_count() or 1, 12))

    def start(i):
        return subprocess.Popen([*sys.orig_argv, "--part", f"{i}/{workers}"], stderr=subprocess.PIPE, text=True)

    for i, worker in enumerate([start(i) for i in range(workers)]):
        for _ in range(STARTS):
            _, errors = worker.communicate()
            if worker.returncode != LOST:
                break
            worker = start(i)
        if worker.returncode:
            report(f"worker {i}", error=f"exit {worker.returncode}: {errors[-800:]}")


def check_part(report, interpret, part, parts):
    """Every `parts`-th check, from `part` on."""
    _pytest_or_stand_in()
    todo = []
    for home in CHECKS:
        name = home.partition(".check_")[2]
        if name in ("ops", "products") and interpret:
            continue  # they want fixtures and stand-ins: python -m pytest tests/kernels tests/gpu
        try:
            module = importlib.import_module(f"tests.{home}")
        except Exception as error:
            report(name, error=f"{type(error).__name__}: {error}")
            continue
        for label, function in vars(module).items():
            if label.startswith("test_") and callable(function):
                cases = list(itertools.islice(_cases(function), 2 if interpret else CASES))
                missing = set(inspect.signature(function).parameters) - set(cases[0])
                if missing == {"together"}:  # the only fixture that a check asks for
                    home = importlib.import_module("mytorch.optim.fused")
                    cases = [{**case, "together": home} for case in cases]
                todo += [
                    (
                        f"{name}: {label[5:]}[{','.join(str(v) for v in case.values() if not isinstance(v, types.ModuleType))}]",
                        function,
                        case,
                    )
                    for case in cases
                ]
    for label, function, case in todo[part::parts]:
        report.attempt(label, lambda f=function, c=case: f(**c) or {})


# -- times ------------------------------------------------------------------------------------------------------------------


def floor_of(bytes_moved=0, flops=0, kind="bf16"):
    """The least time in ms by the card's ceilings."""
    return max(bytes_moved / CEILINGS["TB/s"] / 1e9, flops / CEILINGS[f"{kind} TFLOP/s"] / 1e9)


def kernels(report, interpret):
    """Each kernel at the sizes of GPT-2 124M, beside its floor."""
    import cupy as cp
    import ml_dtypes
    import numpy as np

    from mytorch.backend import cupy_ns
    from mytorch.base.dtypes import bfloat16
    from mytorch.kernels import triton as home

    xp = cupy_ns()
    milliseconds = cupy_timer()
    modules = {n: importlib.import_module(f"{home.__name__}.{n}") for n in (
        "softmax", "log_softmax", "masked_softmax", "add_layer_norm", "conv_transpose", "layer_norm", "rms_norm", "norm", "group_norm", "cross_entropy", "linear_cross_entropy",
        "activation", "dropout", "embedding", "rotary", "attention", "matmul", "conv", "multi")}  # fmt: skip
    m = types.SimpleNamespace(**modules)
    types_of = {"fp32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}

    def rand(*shape, dtype="bf16"):
        return cp.random.standard_normal(shape, dtype=cp.float32).astype(types_of[dtype])

    def timed(name, call, **floor):
        report.attempt(name, lambda: {"ms": milliseconds(call), "floor": floor_of(**floor)})

    def row_kernels(dtype, size):
        x, g = rand(ROWS, WIDTH, dtype=dtype), rand(ROWS, WIDTH, dtype=dtype)
        w, b = rand(WIDTH, dtype="fp32"), rand(WIDTH, dtype="fp32")
        n = x.size * size
        out = m.softmax.forward(xp, x, dim=1)
        timed(f"softmax forward {dtype}", lambda: m.softmax.forward(xp, x, dim=1), bytes_moved=2 * n)
        timed(f"softmax backward {dtype}", lambda: m.softmax.vjp(g, x, out, 1, xp), bytes_moved=3 * n)
        timed(f"softmax down the columns forward {dtype}", lambda: m.softmax.forward(xp, x, dim=0), bytes_moved=3 * n)
        squares = x[: ROWS // WIDTH * WIDTH].reshape(-1, 1, WIDTH, WIDTH)
        timed(
            f"causal softmax forward {dtype}",
            lambda: m.masked_softmax.forward(xp, squares, causal=True),
            bytes_moved=2 * size * squares.size,
        )
        _, mean, rstd = m.layer_norm.forward(xp, x, w, b, width=WIDTH)
        shapes = [x.shape, w.shape, b.shape]
        timed(f"layer_norm forward {dtype}", lambda: m.layer_norm.forward(xp, x, w, b, width=WIDTH), bytes_moved=2 * n)
        timed(
            f"layer_norm backward {dtype}",
            lambda: m.layer_norm.vjp(g, x, w, b, shapes, mean, rstd, WIDTH, (True,) * 3, xp), bytes_moved=3 * n,
        )  # fmt: skip
        timed(
            f"add + layer_norm forward {dtype}",
            lambda: m.norm.forward(xp, x, w, b, width=WIDTH, eps=1e-5, residual=g),
            bytes_moved=4 * n,
        )
        stream = rand(ROWS, WIDTH, dtype="fp32")  # as in a transformer: x is added to it
        s = 4 * x.size
        timed(
            f"add_layer_norm forward {dtype} to fp32",
            lambda: m.add_layer_norm.forward(xp, x, stream, w, b, width=WIDTH, dtype=bfloat16), bytes_moved=n + 2 * s + s // 2,
        )  # fmt: skip
        kept = m.add_layer_norm.forward(xp, x, stream, w, b, width=WIDTH)
        dtypes, three = (x.dtype, stream.dtype), [x.shape, x.shape, w.shape, b.shape]
        timed(
            f"add_layer_norm backward {dtype} to fp32",
            lambda: m.add_layer_norm.vjp((stream, g), kept[0], w, b, three, dtypes, *kept[2:], WIDTH, (True,) * 4, xp),
            bytes_moved=n + 3 * s + (n if dtype == "bf16" else 0),
        )  # fmt: skip
        _, r = m.rms_norm.forward(xp, x, w, width=WIDTH, eps=1e-5)
        timed(
            f"rms_norm forward {dtype}", lambda: m.rms_norm.forward(xp, x, w, width=WIDTH, eps=1e-5), bytes_moved=2 * n
        )
        timed(
            f"rms_norm backward {dtype}",
            lambda: m.rms_norm.vjp(g, x, w, shapes, r, WIDTH, (True, True), xp),
            bytes_moved=3 * n,
        )
        for kind in ("gelu", "gelu_tanh", "silu", "relu_squared"):
            timed(f"{kind} forward {dtype}", lambda k=kind: m.activation.apply(xp, x, k), bytes_moved=2 * n)
            timed(
                f"{kind} backward {dtype}", lambda k=kind: m.activation.apply_backward(xp, g, x, k), bytes_moved=3 * n
            )
        timed(f"swiglu forward {dtype}", lambda: m.activation.gated(xp, x, g), bytes_moved=3 * n)
        timed(f"swiglu backward {dtype}", lambda: m.activation.gated_backward(xp, g, x, g), bytes_moved=5 * n)
        state = cp.zeros(2, cp.int64)
        timed(f"dropout forward {dtype}", lambda: m.dropout.apply(xp, x, 0.1, state, 1), bytes_moved=2 * n)
        index = cp.random.randint(0, CLASSES, ROWS)
        table_ = rand(CLASSES, WIDTH, dtype=dtype)
        timed(f"embedding forward {dtype}", lambda: m.embedding.forward(xp, table_, index=index), bytes_moved=2 * n)
        timed(
            f"embedding backward {dtype}", lambda: m.embedding.vjp(g, index, None, False, table_.shape, xp),
            bytes_moved=2 * n + table_.nbytes,
        )  # fmt: skip
        q = x.reshape(-1, HEADS[2], WIDTH // HEADS[3], HEADS[3]).swapaxes(1, 2)
        cos = rand(HEADS[2], HEADS[3] // 2, dtype="fp32")
        timed(f"rotary {dtype}", lambda: m.rotary.rotate(xp, q, cos, cos), bytes_moved=2 * n)

    def losses(dtype, size):
        x = rand(LOSSES, CLASSES, dtype=dtype)
        target = cp.random.randint(0, CLASSES, LOSSES)
        g = cp.ones((), types_of[dtype])
        _, lse, total = m.cross_entropy.forward(xp, x, target=target)
        n = x.size * size
        timed(f"cross_entropy forward {dtype}", lambda: m.cross_entropy.forward(xp, x, target=target), bytes_moved=n)
        timed(
            f"cross_entropy backward {dtype}",
            lambda: m.cross_entropy.vjp(g, x, target, None, -100, 0.0, "mean", lse, total, xp), bytes_moved=2 * n,
        )  # fmt: skip

        if dtype == "bf16":
            losses_ = cp.empty(LOSSES, cp.float32)
            timed(
                "cross_entropy with its gradient bf16",
                lambda: m.cross_entropy.rows_both(xp, x, target, None, -100, 0.0, 0.0, losses_),
                bytes_moved=2 * n,
            )

    def attention(shape, causal):
        q, k, v, g = (rand(*shape) for _ in range(4))
        out, lse = m.attention.run_forward(xp, q, k, v, causal=causal)
        flops = 4 * shape[0] * shape[1] * shape[2] ** 2 * shape[3] / (2 if causal else 1)
        label = f"{'x'.join(map(str, shape))}{' causal' if causal else ''}"
        timed(f"attention forward {label}", lambda: m.attention.run_forward(xp, q, k, v, causal=causal), flops=flops)
        timed(
            f"attention backward {label}",
            lambda: m.attention.run_backward(xp, g, q, k, v, out, lse, causal=causal),
            flops=2.5 * flops,
        )

    report.attempt("attention", lambda: attention(HEADS, True))
    for dtype, size in (("bf16", 2), ("fp32", 4)):
        report.attempt(f"row kernels {dtype}", lambda d=dtype, s=size: row_kernels(d, s))
        report.attempt(f"losses {dtype}", lambda d=dtype, s=size: losses(d, s))
        cp.get_default_memory_pool().free_all_blocks()
    for shape, causal in ((HEADS, False), (LONG, True)):
        report.attempt(f"attention {shape}", lambda s=shape, c=causal: attention(s, c))

    def wide():
        x, g = rand(ROWS, 4 * WIDTH), rand(ROWS, 4 * WIDTH)
        timed("gelu forward bf16 of 4 × the width", lambda: m.activation.apply(xp, x, "gelu"), bytes_moved=2 * x.nbytes)
        timed(
            "gelu backward bf16 of 4 × the width",
            lambda: m.activation.apply_backward(xp, g, x, "gelu"),
            bytes_moved=3 * x.nbytes,
        )

    report.attempt("gelu of 4 × the width", lambda: wide())

    def products(n, k):
        x, w, b = rand(ROWS, k), rand(n, k), rand(n)
        flops = 2 * ROWS * n * k
        timed(f"linear {k}->{n}", lambda: m.matmul.linear(xp, x, w, b), flops=flops)
        timed(f"linear + gelu {k}->{n}", lambda: m.matmul.linear(xp, x, w, b, "gelu_tanh"), flops=flops)
        timed(f"linear {k}->{n} (cuBLAS by CuPy)", lambda: x @ w.T, flops=flops)

    def last_layer():
        rows = LOSSES // 2
        x, w = rand(rows, WIDTH), rand(CLASSES, WIDTH)
        target = cp.random.randint(0, CLASSES, rows)
        timed("linear + cross_entropy, with gradients",
              lambda: m.linear_cross_entropy.forward(xp, x, w, target=target), flops=6 * rows * CLASSES * WIDTH)  # fmt: skip

    for n, k in ((3 * WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)):
        report.attempt(f"products {k}->{n}", lambda n=n, k=k: products(n, k))
    report.attempt("last layer", lambda: last_layer())

    def convolution(dtype):
        planes = CONV[1]
        x, w, g = rand(*CONV, dtype=dtype), rand(planes, planes, 3, 3, dtype=dtype), rand(*CONV, dtype=dtype)
        args = ((1, 1), (1, 1), (1, 1), 1)
        flops = 2 * x.size * planes * 9
        timed(f"conv2d forward {dtype}", lambda: m.conv.run_forward(xp, x, w, None, *args), flops=flops, kind=dtype)

        def back():
            m.conv.run_input(xp, g, w, CONV[2:], *args)
            m.conv.run_weight(xp, g, x, (3, 3), *args)

        timed(f"conv2d backward {dtype}", back, flops=2 * flops, kind=dtype)
        options = dict(zip(("stride", "padding", "dilation", "groups"), args, strict=True))
        timed(
            f"conv_transpose2d forward {dtype}", lambda: m.conv_transpose.forward(xp, g, w, shape=CONV[2:], **options),
            flops=flops, kind=dtype,
        )  # fmt: skip

    def groups():
        x, w, g = rand(*GROUPED), rand(GROUPED[1], dtype="fp32"), rand(*GROUPED)
        _, mean, rstd = m.group_norm.forward(xp, x, w, w, num_groups=32)
        timed(
            "group_norm forward bf16",
            lambda: m.group_norm.forward(xp, x, w, w, num_groups=32),
            bytes_moved=2 * x.nbytes,
        )
        timed(
            "group_norm backward bf16",
            lambda: m.group_norm.vjp(g, x, w, w, mean, rstd, 32, (True,) * 3, xp),
            bytes_moved=3 * x.nbytes,
        )

    for dtype in ("fp32", "bf16"):
        report.attempt(f"convolution {dtype}", lambda d=dtype: convolution(d))
    report.attempt("group norm", lambda: groups())

    def optimizers():
        shapes = [(CLASSES, WIDTH), (1024, WIDTH)] + 12 * [
            (3 * WIDTH, WIDTH),
            (WIDTH, WIDTH),
            (4 * WIDTH, WIDTH),
            (WIDTH, 4 * WIDTH),
            (WIDTH,),
            (WIDTH,),
        ]
        columns = [[cp.zeros(s, cp.float32) for s in shapes] for _ in range(4)]
        t = m.multi.Table(xp, *columns)
        state = m.multi.new_state(xp, lr=1e-3)
        n = sum(a.size for a in columns[0])
        timed("AdamW 124M", lambda: m.multi.adamw(t, state), bytes_moved=28 * n)
        timed("gradient norm 124M", lambda: m.multi.norm(t, state, 1.0), bytes_moved=4 * n)
        timed("unscale 124M", lambda: m.multi.unscale(t, state), bytes_moved=8 * n)
        s = m.multi.Table(xp, *columns[:3])
        timed("SGD momentum 124M", lambda: m.multi.sgd(s, state, 0.9), bytes_moved=20 * n)
        timed("Lion 124M", lambda: m.multi.lion(s, state), bytes_moved=20 * n)

    report.attempt("optimizers", lambda: optimizers())

    def host():
        x = rand(4, 64, dtype="fp32")
        m.softmax.forward(xp, x, dim=1)
        cp.cuda.Device().synchronize()
        started = time.perf_counter()
        for _ in range(HOST_CALLS):
            m.softmax.forward(xp, x, dim=1)
        spent = (time.perf_counter() - started) / HOST_CALLS
        cp.cuda.Device().synchronize()
        return {"ms": spent * 1e3, "floor": None}

    report.attempt("host time of a small softmax", host)


def products(report, interpret):
    """Matrix products at GPT-2's sizes by each library, checked against float64; their capture; their cost on the host."""
    import cupy as cp
    import ml_dtypes

    from mytorch.backend import cupy_ns
    from mytorch.kernels import cublas
    from mytorch.kernels.triton import matmul as by_triton

    xp, milliseconds = cupy_ns(), cupy_timer()
    ways = {"cuBLASLt": cublas.matmul, "CuPy": cp.matmul, "Triton": lambda a, b: by_triton.product(xp, a, b)}
    types_of = {"bf16": ml_dtypes.bfloat16, "fp16": cp.float16, "fp32": cp.float32}

    def rand(*shape, dtype="bf16"):
        return cp.random.standard_normal(shape, dtype=cp.float32).astype(types_of[dtype])

    def right(got, a, b, dtype):
        """Check some rows and columns against float64, to what rounding the sums may make of them."""
        rows, columns = (cp.arange(0, n, max(n // 64, 1)) for n in got.shape[-2:])
        wide = a[..., rows, :].astype(cp.float64), b[..., columns].astype(cp.float64)
        error = cp.abs(got[..., rows, :][..., columns] - cp.matmul(*wide)).max()
        bound = {"bf16": 8e-3, "fp16": 1e-3, "fp32": 1e-5}[dtype] * float(cp.abs(got).max().astype(cp.float64))
        assert float(error) <= bound, f"error {float(error):.3g} above {bound:.3g}"

    def compare(label, a, b, dtype="bf16", names=tuple(ways)):
        flops = 2 * math.prod(a.shape) * b.shape[-1]

        def run(way):
            right(way(a, b), a, b, dtype)
            ms = milliseconds(lambda: way(a, b))
            return {
                "ms": ms,
                "floor": floor_of(flops=flops, kind="fp32" if dtype == "fp32" else "bf16"),
                "TFLOP/s": flops / ms / 1e9,
            }

        for name in names:
            report.attempt(f"{label} ({name})", lambda way=ways[name]: run(way))

    def layer(n, k):
        x, w, g = rand(ROWS, k), rand(n, k), rand(ROWS, n)
        compare(f"x Wᵀ {k}->{n}", x, w.T)
        compare(f"g W {k}->{n}", g, w)
        compare(f"gᵀ x {k}->{n}", g.T, x)
        b = rand(n)
        flops = 2 * ROWS * n * k
        for name, call in (
            ("linear with bias", lambda: cublas.linear(x, w, b)), ("linear with bias and GELU", lambda: cublas.linear(x, w, b, activation="gelu_tanh", before=True)),
            ("gradients of weight and bias", lambda: cublas.weight_gradients(g, x)),
        ):  # fmt: skip
            report.attempt(
                f"{name} {k}->{n} (cuBLASLt)",
                lambda call=call: {"ms": milliseconds(call), "floor": floor_of(flops=flops)},
            )

    for n, k in ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (CLASSES, WIDTH)):
        report.attempt(f"layer {k}->{n}", lambda n=n, k=k: layer(n, k))

    def others():
        q, k = rand(*BATCHED), rand(*BATCHED)
        compare("q kᵀ 384x1024x64", q, k.swapaxes(1, 2))
        heads = rand(HEADS[0], HEADS[2], HEADS[1], HEADS[3]).swapaxes(1, 2)
        compare("q kᵀ (32,12,1024,64) views", heads, heads.swapaxes(2, 3), names=("cuBLASLt", "CuPy"))
        for dtype in ("fp16", "fp32"):
            a = rand(SQUARE, SQUARE, dtype=dtype)
            compare(f"8192³ {dtype}", a, a, dtype, ("cuBLASLt", "CuPy"))

    report.attempt("batches, other dtypes", others)

    def captured():
        """A product captured into a graph gives the product of what lies in its operands when it is replayed."""
        stream = cp.cuda.Stream(non_blocking=True)
        a, b, bias = rand(256, 512), rand(512, 384), rand(384)
        with stream:
            out = cublas.matmul(a, b)
            second = cublas.linear(a, b.T, bias)
            stream.synchronize()
            stream.begin_capture()
            cublas.matmul(a, b, out)
            second = cublas.linear(a, b.T, bias)
            graph = stream.end_capture()
            a[...] = rand(256, 512)
            graph.launch(stream)
            stream.synchronize()
            right(out, a, b, "bf16")
            right(second - bias, a, b, "bf16")
        return {}

    report.attempt("products captured into a graph", captured)

    def host(way):
        a, b = rand(64, 64), rand(64, 64)
        way(a, b)
        cp.cuda.Device().synchronize()
        started = time.perf_counter()
        for _ in range(HOST_CALLS):
            way(a, b)
        spent = (time.perf_counter() - started) / HOST_CALLS
        cp.cuda.Device().synchronize()
        return {"ms": spent * 1e3, "floor": None}

    for name, way in ways.items():
        report.attempt(f"host time of a small product ({name})", lambda way=way: host(way))


def blocks(report, interpret):
    """Attention's kernels at GPT-2's size with each of the block sizes that TRITON_FLASH_AUTOTUNE_MODE=medium would try."""
    import cupy as cp
    import ml_dtypes

    from mytorch.backend import cupy_ns
    from mytorch.kernels.triton import attention

    xp, milliseconds, candidates = cupy_ns(), cupy_timer(), attention._candidates
    q, k, v, g = (cp.random.standard_normal(HEADS, dtype=cp.float32).astype(ml_dtypes.bfloat16) for _ in range(4))
    out, lse = attention.run_forward(xp, q, k, v, causal=True)
    calls = {
        "forward": lambda: attention.run_forward(xp, q, k, v, causal=True),
        "queries": lambda: attention.run_backward(
            xp, g, q, k, v, out, lse, causal=True, needs=(True, False, False, False)
        ),
        "keys": lambda: attention.run_backward(
            xp, g, q, k, v, out, lse, causal=True, needs=(False, True, True, False)
        ),  # and delta
    }
    for turn in range(5):
        for name, call in calls.items():
            known = candidates(name, HEADS[3], False)
            several = [*known["none"], *known["medium"]]
            if turn < len(several):
                options = several[turn]

                def run(name=name, call=call, options=options, default=turn == 0):
                    attention._candidates = lambda kernel, *rest: (
                        {"none": [options]} if kernel == name else candidates(kernel, *rest)
                    )
                    return {
                        "kernel": f"attention {name}",
                        "options": str(options),
                        "default": default,
                        "ms": milliseconds(call),
                    }

                report.attempt(f"{name} {options}", run)


def torch_kernels(report, interpret):
    """The same work in PyTorch, with cuDNN's attention where it runs."""
    import torch
    from torch.nn import functional as F

    milliseconds = torch_timer()

    def timed(name, call):
        report.attempt(name, lambda: {"ms": milliseconds(call)})

    def both(name, function, *inputs, suffix=""):
        """Forward, and backward of it."""
        leaves = [x.requires_grad_() for x in inputs]
        timed(f"{name} forward{suffix}", lambda: function(*inputs))

        def prepare():
            out = function(*inputs)
            g = torch.ones_like(out)
            timed(f"{name} backward{suffix}", lambda: torch.autograd.grad(out, leaves, g, retain_graph=True))

        report.attempt(f"{name} backward{suffix} (set up)", lambda: prepare())

    def rows(dtype, kind):
        x = torch.randn(ROWS, WIDTH, device=DEVICE, dtype=dtype)
        w, b = torch.randn(WIDTH, device=DEVICE, dtype=dtype), torch.randn(WIDTH, device=DEVICE, dtype=dtype)
        both("softmax", lambda x: F.softmax(x, -1), x, suffix=kind)
        both("layer_norm", lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), x, w, b, suffix=kind)
        both("rms_norm", lambda x, w: F.rms_norm(x, (WIDTH,), w), x, w, suffix=kind)
        both("gelu", F.gelu, x, suffix=kind)
        both("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), x, suffix=kind)
        both("silu", F.silu, x, suffix=kind)
        both("dropout", lambda x: F.dropout(x, 0.1), x, suffix=kind)

    def tables(dtype, kind):
        index = torch.randint(0, CLASSES, (ROWS,), device=DEVICE)
        both(
            "embedding",
            lambda t: F.embedding(index, t),
            torch.randn(CLASSES, WIDTH, device=DEVICE, dtype=dtype),
            suffix=kind,
        )
        target = torch.randint(0, CLASSES, (LOSSES,), device=DEVICE)
        both(
            "cross_entropy",
            lambda x: F.cross_entropy(x, target),
            torch.randn(LOSSES, CLASSES, device=DEVICE, dtype=dtype),
            suffix=kind,
        )
        c, k = (
            torch.randn(*CONV, device=DEVICE, dtype=dtype),
            torch.randn(CONV[1], CONV[1], 3, 3, device=DEVICE, dtype=dtype),
        )
        both("conv2d", lambda c, k: F.conv2d(c, k, padding=1), c, k, suffix=kind)

    for dtype, kind in ((torch.float32, " fp32"), (torch.bfloat16, " bf16")):
        report.attempt(f"rows{kind}", lambda d=dtype, k=kind: rows(d, k))
        report.attempt(f"tables{kind}", lambda d=dtype, k=kind: tables(d, k))
        torch.cuda.empty_cache()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for shape, causal in ((HEADS, True), (HEADS, False), (LONG, True)):
        label = f" {'x'.join(map(str, shape))}{' causal' if causal else ''}"
        for backend, mark in ((SDPBackend.FLASH_ATTENTION, " (FlashAttention-2)"), (SDPBackend.CUDNN_ATTENTION, "")):
            inputs = [torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(3)]

            def attend(q, k, v, backend=backend, causal=causal):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            both("attention", attend, *inputs, suffix=label + mark)

    def linear(n, k):
        x, w, b = (torch.randn(*s, device=DEVICE, dtype=torch.bfloat16) for s in ((ROWS, k), (n, k), (n,)))
        timed(f"linear {k}->{n}", lambda: F.linear(x, w, b))
        timed(f"linear + gelu {k}->{n}", lambda: F.gelu(F.linear(x, w, b), approximate="tanh"))

    for n, k in ((3 * WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)):
        report.attempt(f"linear {k}->{n} (set up)", lambda n=n, k=k: linear(n, k))

    report.attempt("optimizers", lambda: _torch_optimizers(torch, timed))


def _torch_optimizers(torch, timed):
    shapes = [(CLASSES, WIDTH), (1024, WIDTH)] + 12 * [
        (3 * WIDTH, WIDTH),
        (WIDTH, WIDTH),
        (4 * WIDTH, WIDTH),
        (WIDTH, 4 * WIDTH),
        (WIDTH,),
        (WIDTH,),
    ]
    parameters = [torch.zeros(s, device=DEVICE, requires_grad=True) for s in shapes]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer = torch.optim.AdamW(parameters, fused=True)
    timed("AdamW 124M", optimizer.step)
    timed("gradient norm 124M", lambda: torch.nn.utils.get_total_norm([p.grad for p in parameters]))


# -- training -----------------------------------------------------------------------------------------------------------------

BASE, SMALL = {"size": "base"}, {"size": "small", "vocab_size": 65, "context_length": 256}
MODELS = {  # name -> (config, batch, half precision or None)
    "GPT-2 124M bf16 B32xT1024": (BASE, 32, "bfloat16"),
    "GPT-2 small bf16 B32xT256": (SMALL, 32, "bfloat16"),
}
MORE_MODELS = {"GPT-2 124M fp16 B32xT1024": (BASE, 32, "float16"), "GPT-2 124M fp32 B8xT1024": (BASE, 8, None)}


def _config(values):
    from mytorch.models import GPT2Config

    values = dict(values)
    return GPT2Config.sized(values.pop("size"), **values)


def _report_steps(report, name, config, batch, step, wait, memory):
    """Time `step()`, which returns a loss, over about TIME_STEPS seconds (the median of groups of STEPS, each waited for), and
    then see what it takes of the module `memory`, whose watch costs time."""
    for _ in range(4):
        loss = step()
    wait()
    begun, groups = time.perf_counter(), []
    while len(groups) < 3 or (time.perf_counter() - begun < TIME_STEPS and len(groups) < 40):
        started = time.perf_counter()
        for _ in range(STEPS):
            loss = step()
        wait()
        groups.append((time.perf_counter() - started) / STEPS)
    ms = sorted(groups)[len(groups) // 2] * 1e3
    memory.reset_peak_memory_stats()
    for _ in range(2):
        loss = step()
    wait()
    gib = memory.max_memory_allocated() / 2**30
    report(name, ms=ms, **{"ktok/s": batch * config.context_length / ms, "GiB": gib, "loss": float(loss)})


def _run_training(report, name, values, batch, half, captured):
    """Forward, backward, clip, AdamW."""
    import mytorch
    from mytorch import amp, cuda
    from mytorch.models import GPT2
    from mytorch.nn.utils import clip_grad_norm_

    mytorch.manual_seed(0)
    config = _config(values)
    model = GPT2(config).to("cuda")
    optimizer = mytorch.optim.AdamW(model.parameter_groups(0.1), lr=6e-4, betas=(0.9, 0.95), fused=True)
    x, y = (mytorch.randint(0, config.vocab_size, (batch, config.context_length), device="cuda") for _ in range(2))
    scaler = amp.GradScaler(enabled=half == "float16")
    dtype = getattr(mytorch, half or "float32")

    def step(x, y):
        with amp.autocast("cuda", dtype, enabled=half is not None):
            loss = model(x, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    if captured:
        step = mytorch.compile_step(step)
    _report_steps(report, name, config, batch, lambda: step(x, y), cuda.synchronize, cuda)


def train(report, interpret):
    """Training steps, eager."""
    for name, model in MODELS.items():
        report.attempt(name, lambda n=name, m=model: _run_training(report, n, *m, captured=False))


def train_captured(report, interpret):
    """TRAIN CAPTURED: the same steps replayed from a CUDA graph by `mytorch.compile_step`; of its own process, since an
    error during capture can make the rest of a process useless."""
    import mytorch

    if not hasattr(mytorch, "compile_step"):
        report("captured steps", error="mytorch.compile_step is not there")
        return
    for name, model in reversed(MODELS.items()):  # the small one shows first whether capturing works
        report.attempt(
            f"{name} captured", lambda n=f"{name} captured", m=model: _run_training(report, n, *m, captured=True)
        )


def train_more(report, interpret):
    """The other precisions, eager."""
    for name, model in MORE_MODELS.items():
        report.attempt(name, lambda n=name, m=model: _run_training(report, n, *m, captured=False))


def torch_train(report, interpret):
    """The same in PyTorch, eager and compiled."""
    import torch

    sys.path.insert(0, str(ROOT / "benchmarks"))
    from torch_gpt2 import TorchGPT2

    def run(name, values, batch, half, compiled):
        torch.manual_seed(0)
        config = _config(values)
        model = TorchGPT2(config).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameter_groups(0.1), lr=6e-4, betas=(0.9, 0.95), fused=True)
        x, y = (torch.randint(0, config.vocab_size, (batch, config.context_length), device=DEVICE) for _ in range(2))
        forward = torch.compile(model) if compiled else model
        scaler = torch.amp.GradScaler(DEVICE, enabled=half == "float16")

        def step():
            with torch.autocast(DEVICE, getattr(torch, half or "float32"), enabled=half is not None):
                loss = forward(x, y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        _report_steps(report, name, config, batch, step, torch.cuda.synchronize, torch.cuda)

    for compiled in (False, True):
        for name, model in MODELS.items() if compiled else {**MODELS, **MORE_MODELS}.items():
            label = name + (" compiled" if compiled else "")
            report.attempt(label, lambda n=label, m=model, c=compiled: run(n, *m, c))


RUNNERS = {
    "versions": versions, "ceilings": ceilings, "correctness": correctness, "kernels": kernels, "products": products, "blocks": blocks, "torch": torch_kernels,
    "train": train, "train-captured": train_captured, "train-more": train_more, "torch-train": torch_train,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
