"""Compiled kernels that threads divide in machine code: each chunk once, several at a time, with errors, forks, and callers that compete."""

import importlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")
pytestmark = pytest.mark.cpu_only

from mytorch.kernels import threads  # noqa: E402
from mytorch.kernels.numba import indexing, pool  # noqa: E402
from mytorch.kernels.numba.common import exact  # noqa: E402


@pytest.fixture(autouse=True)
def three():
    """Sets three threads, independent of the number of cores."""
    before = threads.get_num_threads()
    threads.set_num_threads(3)
    yield
    threads.set_num_threads(before)


@exact
def count(out, also, value):
    """Adds to every element, and returns True if a negative one was among them."""
    found = False
    for i in range(len(out)):
        found = found or out[i] < 0
        out[i] += value * len(also)
    return found


@exact
def meet(chunk, seen, looks):
    """Waits until three chunks have begun. Returns True if they have."""
    pool._add(seen, 0, 1)
    while pool._read(seen, 0) < 3 and looks > 0:
        looks -= 1
    return pool._read(seen, 0) >= 3


@exact
def fail(out, limit):
    for i in range(len(out)):
        if out[i] == limit:
            raise ValueError("a number is at the limit")
        out[i] += 1


def test_chunks_run_at_the_same_time():
    begin = time.monotonic()
    while time.monotonic() < begin + 120:  # on a busy machine, the threads may come too late
        if threads.in_chunks(meet, 3, (np.arange(3),), np.zeros(1, np.int64), 10_000_000):
            return
    raise AssertionError("no three threads have worked together")


def test_no_more_threads_than_set():
    threads.in_chunks(meet, 3, (np.arange(3),), np.zeros(1, np.int64), 1)  # starts two helpers
    threads.set_num_threads(2)
    for _ in range(50):  # two threads begin two chunks, and a third chunk only after one of them has waited
        assert threads.in_chunks(meet, 3, (np.arange(3),), np.full(1, -1, np.int64), 2000) is False


@pytest.mark.parametrize("looks", [1, 10, 10_000])
def test_each_chunk_once_from_competing_threads(looks, monkeypatch):
    monkeypatch.setattr(threads, "LOOKS", looks)
    failures = []

    def many(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            length = int(rng.integers(2, 200))
            out, also = np.zeros(length, ("f4", "f8", "i4")[seed % 3]), np.zeros(int(rng.integers(0, 2)) * length)
            out[rng.integers(length)] = -1 if (negative := bool(rng.integers(2))) else 0
            expected = out.copy()
            chunks = int(rng.integers(2, 9))
            parts = threads.cut((expected, also), chunks, length)
            found = sum(count(*part, 2) for part in parts) > 0
            if threads.in_chunks(count, chunks, (out, also), 2, size=length) != found or (out != expected).any():
                failures.append((length, chunks))
            assert found == negative

    callers = [threading.Thread(target=many, args=(seed,)) for seed in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(120)
    assert not failures
    assert not threads.cells[pool.BUSY]
    assert not threads.cells[pool.INSIDE]


def test_layouts_and_arguments():
    """Rows of two-dimensional arrays in every layout, read-only arrays and tuples among the constants."""

    @exact
    def rows(out, x, y, numbers, shift):
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = x[i, j] * numbers[1] + y[j] + shift[0] + out.size / out.shape[0]

    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 12))
    y = rng.standard_normal(12)
    y.flags.writeable = False
    for a in (x, np.asfortranarray(x), rng.standard_normal((80, 12))[::2], np.broadcast_to(y, (40, 12))):
        for empty in (np.empty((40, 12)), np.empty((12, 40)).T):
            empty[:] = np.nan
            threads.in_chunks(rows, 5, (empty, a), y, (1, 3.0), (np.float32(0.5),))
            np.testing.assert_allclose(empty, a * 3 + y + 12.5)


def test_an_error_in_a_chunk_is_raised():
    out = np.arange(1000.0)
    with pytest.raises(ValueError, match="at the limit"):
        threads.in_chunks(fail, 6, (out,), 700.0)
    x, index = np.zeros((64, 100, 1), "i4"), np.full((64, 100, 1), 3, np.uint64)
    index[63, 99] = 100
    with pytest.raises(IndexError):
        threads.in_chunks(indexing._gather, 4, (x, index, x.copy()))
    out[:] = 0
    threads.in_chunks(fail, 6, (out,), 700.0)
    assert (out == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore")
def test_a_child_forked_while_kernels_are_divided_divides_kernels():
    stop = threading.Event()
    threads.in_chunks(
        count, 4, (np.zeros(1000), np.zeros(1000)), 1
    )  # a child forked while Numba compiles waits for its lock forever

    def busy():
        out, also = np.zeros(100_000), np.zeros(0)
        while not stop.is_set():
            threads.in_chunks(count, 4, (out, also), 0)

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                out = np.zeros(1000)
                threads.in_chunks(count, 4, (out, np.zeros(1000)), 1)
                os._exit(0 if (out == 250).all() and not threads.cells[pool.BUSY] else 1)
            timer = threading.Timer(20, os.kill, (child, 9))
            timer.start()
            assert os.waitpid(child, 0)[1] == 0
            timer.cancel()
    finally:
        stop.set()
        worker.join()


def test_every_kernel_is_divided_in_machine_code(monkeypatch):
    """No kernel of the library has arguments or results that only the slower way accepts."""
    warmup = importlib.import_module("mytorch.cli.warmup")
    refused = []

    def noted(kernel, *arguments):
        found = prepare(kernel, *arguments)
        if found is None:
            refused.append(kernel)
        return found

    prepare = pool._prepare
    monkeypatch.setattr(pool, "_prepare", noted)
    before = len(pool._prepared)
    for task in warmup.TASKS:
        warmup.perform(task)
    assert len(pool._prepared) > before + 30
    assert not refused


CLOSURES = """
import sys
import numpy as np
from mytorch.kernels import threads
from mytorch.kernels.numba.common import exact

threads.set_num_threads(2)

def times(factor):
    @exact
    def loop(x):
        for i in range(len(x)):
            x[i] *= factor
    return loop

loops = [(factor, times(factor)) for factor in map(int, sys.argv[1:])]
for divided in (False, True):
    for factor, loop in loops:
        x = np.ones(9)
        threads.in_chunks(loop, 3, (x,)) if divided else loop(x)
        assert (x == factor).all(), (factor, divided, x)
"""


def test_closures_from_the_cache_keep_their_code(tmp_path):
    """Two processes compile one each, under the same number. A third one loads both."""
    program = tmp_path / "program.py"
    program.write_text(CLOSURES)
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for factors in (["5"], ["2"], ["3"], ["2", "3"], ["3", "2"]):  # the first one compiles the library's functions, too
        subprocess.run([sys.executable, str(program), *factors], env=environment, check=True)


SIGNATURES = """
import sys
import numpy as np
from mytorch.kernels import threads
from mytorch.kernels.numba.cache import cached

@cached()
def double(x):
    for i in range(len(x)):
        x[i] *= 2

for dtype in sys.argv[1:]:
    x = np.ones(9, dtype)
    threads.in_chunks(double, 3, (x,))
    double(x)
    assert (x == 4).all(), (dtype, x)
assert not double.stats.cache_misses or len(sys.argv) == 2, double.stats
"""


def test_signatures_that_processes_compile_at_the_same_time_keep_their_code(tmp_path):
    program, dtypes = tmp_path / "program.py", ["f4", "f8", "i4", "i8", "u1", "u2"]
    program.write_text(SIGNATURES)
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    running = [subprocess.Popen([sys.executable, str(program), dtype], env=environment) for dtype in dtypes]
    codes = [process.wait() for process in running]
    assert not any(codes)
    subprocess.run([sys.executable, str(program), *dtypes], env=environment, check=True)


def test_closures_of_kernels_contain_numbers():
    def of(other):
        @exact
        def loop(x):
            return other(x)

        return loop

    with pytest.raises(TypeError, match="only numbers"):
        of(count)
