"""Steps of two libraries timed in turn, each library in a process of its own.

In one process their pools of threads would disturb each other; in turn, other load on the machine strikes both. Between two
turns there is a pause, since the threads of a matrix product go on spinning for a while.
"""

import importlib
import math
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path

TURN, PAUSE = 0.15, 0.03  # seconds of steps, and of rest after them
LOOK = 1e-4  # seconds of steps, at least, between two looks at a clock, which itself takes a microsecond
ENVIRONMENT = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # with them NumPy may do without the machine's widest vectors


def sections():
    """The names of the sections: the modules beside this one that hold workloads."""
    files = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    return [name for name in files if name not in ("__main__", "timing")]


def timed(step, clock, turn):
    """Seconds of one step: the fastest of those that fit into a turn of so many seconds, several quick ones taken together."""
    count, fastest, end = 1, math.inf, clock() + turn
    while (began := clock()) < end or fastest == math.inf:
        for _ in range(count):
            step()
        took = clock() - began
        if took < LOOK:
            count *= 2
        else:
            fastest = min(fastest, took / count)
    return fastest


def peak():
    """The most memory that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def serve(library, section, threads, cpu_time, pipe):
    """Answer the name of a workload by making it, with the memory before and after; and the seconds of a turn by its fastest step."""
    lib = importlib.import_module(library)
    lib.set_num_threads(threads)
    workloads = importlib.import_module(f"benchmarks.cpu.{section}").WORKLOADS
    step, imported = None, peak()
    while True:
        try:
            asked = pipe.recv()
        except EOFError:  # the other end is closed
            return
        if isinstance(asked, float):
            pipe.send(timed(step, time.process_time if cpu_time else time.perf_counter, asked))
        else:
            lib.manual_seed(0)
            step = workloads[asked](lib)
            for _ in range(3):  # kernels are compiled, memory is found
                step()
            pipe.send((imported, peak()))


def started(library, section, threads, numpy=False, cpu_time=False):
    """(process, pipe) of a library whose number of threads was set before NumPy is loaded."""
    kept = dict(os.environ)
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MYTORCH_NUM_THREADS"):
        os.environ[name] = str(threads)
    if numpy:
        os.environ["MYTORCH_FUSED"] = "0"
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(library, section, threads, cpu_time, theirs)
    )  # no daemon, as a loader has processes of its own
    process.start()
    theirs.close()
    os.environ.clear()
    os.environ.update(kept)
    return process, ours


def memory(section, name, threads):
    """MB that each library takes at most for three steps beyond what its import took, in a process of its own."""
    found = {}
    for library in ("mytorch", "torch"):
        process, pipe = started(library, section, threads)
        pipe.send(name)
        imported, most = pipe.recv()
        found[library + "_MB"] = round(most - imported, 1)
        found[library + "_all_MB"] = round(most, 1)
        pipe.close()
        process.join()
    return found


def compared(section, names, threads, rounds, numpy=False, cpu_time=False, limit=None):
    """For each workload a row: its name, milliseconds of each library, and the ratio.

    Args:
        section, names: which. threads: of each library. rounds: turns of each. numpy: mytorch without compiled kernels.
        cpu_time: count the time that the process has a core, not what others take of it.
        limit: about how many seconds all of them may take, beside making them; turns are shorter where there are many.
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
