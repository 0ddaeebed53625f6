"""Measure steps of two libraries that take turns, each in a separate process.

In one process, the two thread pools would disturb each other. Because the libraries take turns, other load on the machine affects both. A
pause separates the turns, because the threads of a matrix multiplication continue to spin for a while.
"""

import importlib
import math
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path

TURN, PAUSE = 0.15, 0.03  # seconds per turn, and of the pause after it
LOOK = 1e-4  # minimum seconds between two readings of the clock, which take about a microsecond
ENVIRONMENT = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
)  # these variables may disable the widest vector instructions in NumPy


def sections():
    """Returns the names of the sections: the modules of this folder with workloads."""
    files = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    return [name for name in files if name not in ("__main__", "timing")]


def timed(step, clock, turn):
    """Returns the seconds of the fastest step in a turn of `turn` seconds. Short steps are measured in groups."""
    count, fastest, end = 1, math.inf, clock() + turn
    while (start := clock()) < end or fastest == math.inf:
        for _ in range(count):
            step()
        elapsed = clock() - start
        if elapsed < LOOK:
            count *= 2
        else:
            fastest = min(fastest, elapsed / count)
    return fastest


def peak():
    """Returns the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def serve(library, section, threads, cpu_time, pipe):
    """Serve requests over a pipe.

    The name of a workload creates the workload and returns the memory before and after; with a "+" at the end, the step is compiled. A
    number of seconds runs a turn and returns the seconds of the fastest step.
    """
    lib = importlib.import_module(library)
    lib.set_num_threads(threads)
    workloads = importlib.import_module(f"benchmarks.cpu.{section}").WORKLOADS
    step, imported = None, peak()
    while True:
        try:
            request = pipe.recv()
        except EOFError:  # the other process closed the pipe
            return
        if isinstance(request, float):
            pipe.send(timed(step, time.process_time if cpu_time else time.perf_counter, request))
        else:
            lib.manual_seed(0)
            step = workloads[request.removesuffix("+")](lib)
            if request.endswith("+"):
                step = lib.compile_step(step)
            for _ in range(4):  # compiles kernels and allocates memory; the compiler records two steps
                step()
            pipe.send((imported, peak()))


def started(library, section, threads, numpy=False, cpu_time=False):
    """Returns (process, pipe) for a library. The number of threads is set before NumPy is imported."""
    saved = dict(os.environ)
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MYTORCH_NUM_THREADS"):
        os.environ[name] = str(threads)
    if numpy:
        os.environ["MYTORCH_FUSED"] = "0"
    parent, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(library, section, threads, cpu_time, child)
    )  # not a daemon, because a DataLoader starts processes
    process.start()
    child.close()
    os.environ.clear()
    os.environ.update(saved)
    return process, parent


def memory(section, name, threads, compiled=False):
    """Returns the peak memory of four steps in each library, in MB: the increase after the import, and the total.

    `compiled` also measures the compiled step of mytorch.
    """
    result = {}
    for key, library, end in (("mytorch", "mytorch", ""), ("torch", "torch", ""), ("compiled", "mytorch", "+"))[
        : 2 + compiled
    ]:
        process, pipe = started(library, section, threads)
        pipe.send(name + end)
        imported, total = pipe.recv()
        result[key + "_MB"] = round(total - imported, 1)
        result[key + "_all_MB"] = round(total, 1)
        pipe.close()
        process.join()
    return result


def compared(section, names, threads, rounds, numpy=False, cpu_time=False, limit=None):
    """Yields a row for each workload: its name, the milliseconds of each library, and the ratio.

    Args:
        section: name of the section.
        names: names of the workloads.
        threads: number of threads of each library.
        rounds: number of turns of each library.
        numpy: disables compiled kernels in mytorch.
        cpu_time: measures CPU time instead of elapsed time.
        limit: approximate time limit for all workloads in seconds, without setup. Many workloads get shorter turns.
    """
    turn = TURN if limit is None else min(TURN, max(limit / (2 * rounds * len(names)) - PAUSE, 0.005))
    running = {library: started(library, section, threads, numpy, cpu_time) for library in ("mytorch", "torch")}
    try:
        for name in names:
            for _, pipe in running.values():
                pipe.send(name)
                pipe.recv()
                time.sleep(PAUSE)
            times = {library: [] for library in running}
            for _ in range(rounds):
                for library, (_, pipe) in running.items():
                    pipe.send(turn)
                    times[library].append(pipe.recv())
                    time.sleep(PAUSE)
            row = {library: round(min(t) * 1e3, 5) for library, t in times.items()}
            yield {"name": name, **row, "ratio": round(row["mytorch"] / row["torch"], 3)}
    finally:
        for process, pipe in running.values():
            pipe.close()
            process.join()
