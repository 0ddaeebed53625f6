"""Measure compiled training steps on a CPU: mytorch, PyTorch and JAX.

    python -m benchmarks.compile [--only mlp_tiny,gpt_0p8m] [--threads 1,2] [--jax JAX_PYTHON] [--json compile.json]

The workloads are the steps of `benchmarks/cpu/steps.py`. Each workload and compiler runs in a separate process, and the processes take
turns. `jax_steps.py` contains five of the steps in JAX.
"""

import argparse
import json
import math
import os
import resource
import select
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from benchmarks.cpu.timing import ENVIRONMENT, LOOK, PAUSE, TURN, peak  # noqa: E402

COMPILERS = {  # name -> (library, environment)
    "torch": ("torch", {}),
    "torch.compile": ("torch", {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}),
    "jax.jit": ("jax", {}),
    "mytorch": ("mytorch", {}),
    "mytorch compiled": ("mytorch", {}),
    "mytorch compiled, NumPy": ("mytorch", {"MYTORCH_COMPILE": "numpy", "MYTORCH_FUSED": "0"}),
}
CALLS = 9  # calls until a step is compiled: mytorch measures both ways in its first calls, PyTorch compiles again when optimizer states exist
IN_JAX = "mlp_tiny mlp_mnist vae_mlp manual_attention gpt_0p8m".split()  # of jax_steps.py
SKIPPED = {"loader_epoch": "loads data and computes nothing that a compiler could change"}


def policy_act(L):
    """Returns the workload `policy_act` without `.item()`, which no compiler records."""
    nn = L.nn
    net, x = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)), L.randn(4)

    def run():
        return [L.distributions.Categorical(logits=net(x)).sample() for _ in range(20)]

    return run


def workloads():
    """Returns {name: function from a library to a step}."""
    from benchmarks.cpu.steps import WORKLOADS

    return {name: w for name, w in {**WORKLOADS, "policy_act": policy_act}.items() if name not in SKIPPED}


# -- the process of one workload and compiler -------------------------------------------------------------------------


def cpu_seconds():
    """Returns the CPU time of this process and of its finished child processes, such as C++ compilers."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def serve(compiler, workload, threads):
    """Creates a step, runs its first calls, and measures a turn for each line of the input."""
    library = COMPILERS[compiler][0]
    before = cpu_seconds()
    lib = __import__(library)
    imported, import_s = peak(), cpu_seconds() - before
    if library == "jax":
        from benchmarks.jax_steps import STEPS

        step = STEPS[workload]()
    else:
        lib.set_num_threads(threads)
        lib.manual_seed(0)
        step = workloads()[workload](lib)
    if compiler == "torch.compile":
        step = lib.compile(step)
    elif compiler.startswith("mytorch compiled"):
        step = lib.compile_step(step)
    before = cpu_seconds()
    for _ in range(CALLS):
        step()
    found = {"import_s": round(import_s, 2), "first_s": round(cpu_seconds() - before, 3)}
    if compiler.startswith("mytorch compiled"):
        text = lib.compiler.explain(step).splitlines()[0]
        found |= {"eager": text.removeprefix("runs eagerly: ")} if text.startswith("runs eagerly") else {}
    reply(found)
    for line in sys.stdin:
        if line.strip() == "memory":
            reply({"added_MB": round(peak() - imported, 1), "total_MB": round(peak(), 1)})
        else:
            reply(turn(step, time.process_time if json.loads(line) else time.perf_counter))


def turn(step, clock):
    """Returns the seconds of each step in one turn. Short steps are measured in groups."""
    count, seconds, end = 1, [], clock() + TURN
    while (start := clock()) < end or not seconds:
        for _ in range(count):
            step()
        elapsed = clock() - start
        if elapsed < LOOK:
            count *= 2
        else:
            seconds.append(elapsed / count)
    return seconds


def reply(value):
    """Writes a line of JSON to the output, which nothing else uses."""
    os.write(OUTPUT, (json.dumps(value) + "\n").encode())


# -- the main process -------------------------------------------------------------------------------------------------


class Peer:
    """The process of one workload and compiler.

    Raises:
        RuntimeError: the process failed or took too long.
    """

    def __init__(self, python, compiler, workload, threads, timeout):
        environment = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MYTORCH_NUM_THREADS", "NPROC"):
            environment[name] = str(threads)
        if threads == 1:
            environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        command = [python, __file__, "--serve", compiler, "--only", workload, "--threads", str(threads)]
        self.timeout = timeout
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, bufsize=0,
            env=environment | COMPILERS[compiler][1], start_new_session=True,
        )  # fmt: skip

    def read(self):
        """Returns the next reply."""
        data, end = b"", time.monotonic() + self.timeout
        while not data.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(end - time.monotonic(), 0))[0]:
                raise RuntimeError(f"took more than {self.timeout:.0f} s")
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise RuntimeError("the process ended")
            data += chunk
        value = json.loads(data)
        if "error" in value:
            raise RuntimeError(value["error"])
        return value

    def ask(self, request):
        """Sends a request and returns the reply."""
        self.process.stdin.write(json.dumps(request).encode() + b"\n" if request != "memory" else b"memory\n")
        return self.read()

    def stop(self):
        """Ends the process and its child processes."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.communicate()


def row(name, threads, args):
    """Returns the measurements of one workload."""
    peers, measured, failed = {}, {}, {}
    try:
        for compiler, (library, _) in COMPILERS.items():
            if compiler in args.without.split(","):
                continue
            if library == "jax":
                if not args.jax or name not in IN_JAX:
                    continue
            peer = Peer(args.jax if library == "jax" else sys.executable, compiler, name, threads, args.timeout)
            try:
                measured[compiler] = peer.read()
                peers[compiler] = peer
            except RuntimeError as error:
                failed[compiler] = str(error)
                peer.stop()
        seconds = {compiler: [] for compiler in peers}
        for _ in range(args.rounds):
            for compiler, peer in peers.items():
                seconds[compiler] += peer.ask(args.cpu_time)
                time.sleep(PAUSE)
        for compiler, peer in peers.items():
            measured[compiler] |= {
                "median": round(statistics.median(seconds[compiler]) * 1e3, 4),
                "min": round(min(seconds[compiler]) * 1e3, 4),
                **peer.ask("memory"),
            }
    finally:
        for peer in peers.values():
            peer.stop()
    clock = "CPU time" if args.cpu_time else "time"
    result = {"name": name, "threads": threads, "clock": clock, "measured": measured}
    return result | ({"failed": failed} if failed else {})


def write(path, rows, load):
    """Writes rows to a file. They replace rows with the same name and number of threads."""
    from benchmarks.gpt2 import machine

    path = Path(path)
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    merged = {(r["name"], r["threads"]): r for r in [*old, *rows]}
    result = {
        "benchmark": "compile", "unit": "milliseconds", "machine": machine(), "versions": versions(),
        "other_load": load, "skipped": SKIPPED, "rows": list(merged.values()),
    }  # fmt: skip
    path.write_text(json.dumps(result, indent=1) + "\n")


def versions():
    """Returns the versions of the libraries in this environment."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("numpy", "torch", "llvmlite", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="comma-separated workloads (default: all)")
    parser.add_argument("--threads", default="1", help="comma-separated numbers of threads (default: 1)")
    parser.add_argument("--rounds", type=int, default=5, help="number of turns of each compiler (default: 5)")
    parser.add_argument("--without", default="", help="comma-separated compilers to leave out: " + ", ".join(COMPILERS))
    parser.add_argument("--jax", help="Python interpreter of an environment with JAX (default: JAX is not measured)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds until a compiler is skipped (default: 120)")
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time, for a machine with other load")
    parser.add_argument("--busy", action="store_true", help="record in the JSON file that the machine had other load")
    parser.add_argument("--json", help="path of a JSON file for the rows; other rows in the file are kept")
    parser.add_argument("--serve", choices=COMPILERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        try:
            serve(args.serve, args.only, int(args.threads))
        except Exception as error:
            reply({"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"})
        return
    names = args.only.split(",") if args.only else list(workloads())
    for threads in map(int, args.threads.split(",")):
        print(
            f"{threads} thread{'s' * (threads > 1)}: milliseconds, the fastest step (seconds of the first {CALLS} calls)"
        )
        rows = []
        for name in names:
            rows.append(row(name, threads, args))
            print(line(rows[-1]), flush=True)
            if args.json:
                write(args.json, rows, args.busy)
        both = [r["measured"] for r in rows if {"mytorch compiled", "torch"} <= set(r["measured"])]
        if both:
            mean = statistics.fmean(math.log(m["mytorch compiled"]["min"] / m["torch"]["min"]) for m in both)
            print(f"  mytorch compiled / torch, geometric mean {math.exp(mean):.2f}")


def line(found):
    """Returns a row as text."""
    cells = [f"{name} {m['min']:.3f} ({m['first_s']:.1f})" for name, m in found["measured"].items()]
    cells += [f"{name}: {reason}" for name, reason in found.get("failed", {}).items()]
    return f"  {found['name']:20} " + "  ".join(cells)


if __name__ == "__main__":
    OUTPUT = os.dup(1)
    if "--serve" in sys.argv:
        os.dup2(2, 1)  # other outputs of the libraries
    main()
