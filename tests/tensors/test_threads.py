"""The library's own threads: products cut over them, errors, forks, and a core that another program has taken."""

import importlib
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import mytorch
from mytorch.kernels import blas, threads
from tests.loops import loop

pytestmark = pytest.mark.cpu_only


@pytest.fixture
def three():
    """Sets three threads, independent of the number of cores."""
    before = threads.get_num_threads()
    threads.set_num_threads(3)
    yield
    threads.set_num_threads(before)


SHAPES = [
    ((300, 200), (200, 310)), ((310, 200), (200, 40)), ((7, 5000), (5000, 700)), ((1, 3000), (3000, 2000)), ((2000, 3000), (3000, 1)),
    ((9, 80, 90), (9, 90, 81)), ((2, 300, 90), (2, 90, 200)), ((4, 1, 150, 100), (3, 100, 160)), ((5, 100, 100), (100, 100)),
    ((400, 300), (2, 300, 40)), ((20, 300), (300, 310)), ((64, 90), (90, 65)), ((0, 500), (500, 30)), ((300, 1), (1, 70)), ((2, 90, 1), (1, 70)), ((1, 512), (512, 513)), ((5, 300), (300, 500)),
    ((500, 0), (0, 500)),
]  # fmt: skip


def among_nan(x):
    """Returns a copy of x in the middle of a larger matrix of NaN."""
    larger = mytorch.full((*x.shape[:-2], x.shape[-2] + 3, x.shape[-1] + 5), float("nan"), dtype=x.dtype)
    inside = larger[..., 2 : 2 + x.shape[-2], 3 : 3 + x.shape[-1]]
    return inside.copy_(x)


@loop
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_products_cut_over_threads_are_numpys(three, a, b, dtype):
    x, y = (np.random.default_rng(i).standard_normal(shape).astype(dtype) for i, shape in enumerate((a, b)))
    wanted = np.matmul(x.astype("float64"), y.astype("float64"))
    tolerance = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}[dtype] * (1 + np.abs(wanted).max(initial=0))
    x, y = mytorch.from_numpy(x), mytorch.from_numpy(y)
    pairs = (
        (x, y),
        (x.mT.contiguous().mT, y),
        (x, y.mT.contiguous().mT),
        (among_nan(x), among_nan(y.mT).mT),
        (among_nan(x).flip(-1), y.flip(-2)),
    )
    for left, right in pairs:
        got = mytorch.matmul(left, right)
        assert got.is_contiguous()
        assert got.shape == wanted.shape
        assert np.abs(got.numpy().astype("float64") - wanted).max(initial=0) <= tolerance


def test_products_write_into_an_array_that_is_given(three):
    x, y = mytorch.randn(300, 200), mytorch.randn(200, 300)
    wide = np.zeros((300, 600), np.float32)
    blas.product(x.numpy(), y.numpy(), wide[:, ::2][:, :300])
    assert np.allclose(wide[:, ::2], x.numpy() @ y.numpy(), atol=1e-3)
    assert not wide[:, 1::2].any()


def test_blas_has_the_programs_number_of_threads_again_afterwards():
    if not blas._openblas():
        pytest.skip("NumPy has another BLAS")
    get, put = blas._openblas()
    before = get()
    put(2)
    try:
        mytorch.randn(512, 512) @ mytorch.randn(512, 512)
        assert get() == 2
    finally:
        put(before)


def test_an_error_in_a_chunk_reaches_the_caller_when_all_have_ended(three):
    ran = []

    def work(i):
        ran.append(i)
        if i == 3:
            raise ValueError("chunk 3")

    with pytest.raises(ValueError, match="chunk 3"):
        threads.run(work, [(i,) for i in range(8)])
    assert sorted(ran) == list(range(8))


@pytest.mark.parametrize("looks", [0, 1, 10_000])
def test_every_chunk_is_done_once_however_long_threads_watch(three, looks, monkeypatch):
    pytest.importorskip("numba")
    importlib.import_module("mytorch.kernels.numba")
    monkeypatch.setattr(threads, "LOOKS", looks)
    failures = []

    def many(seed):
        for i in range(200):
            done = np.zeros(2 + (seed + i) % 7, np.int64)
            threads.run(lambda k, done=done: np.add.at(done, k, 1), [(k,) for k in range(len(done))])
            if not (done == 1).all():
                failures.append(done)

    callers = [threading.Thread(target=many, args=(seed,)) for seed in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not failures


def test_threads_that_are_late_have_nothing_to_catch_up_with(three):
    """After many jobs that ended before a helper came, the pool refers to none of them, and the next job gets help at once."""

    def short(i):
        pass

    class Work:
        def __call__(self, barrier):
            barrier.wait()

    for _ in range(3000):
        threads.run(short, [(i,) for i in range(3)])
    assert not threads._live
    work = Work()
    barrier = threading.Barrier(3, timeout=120)
    threads.run(work, [(barrier,)] * 3)
    dies = weakref.ref(work)
    del work
    end = time.monotonic() + 60
    while dies() is not None and time.monotonic() < end:
        time.sleep(0.01)
    assert dies() is None


def test_set_num_threads_is_how_many_work(three):
    inside, barrier = set(), threading.Barrier(3, timeout=120)

    def work():
        inside.add(threading.get_ident())
        barrier.wait()

    threads.run(work, [()] * 3)
    assert len(inside) == 3
    threads.set_num_threads(1)
    threads.run(lambda: inside.add(threading.get_ident()), [()] * 8)
    assert len(inside) == 3
    with pytest.raises(RuntimeError, match="positive"):
        mytorch.set_num_threads(0)


def _threads_under(**environment):
    script = "import mytorch; print(mytorch.get_num_threads())"
    names = ("MYTORCH_NUM_THREADS", "OMP_NUM_THREADS")
    kept = {k: v for k, v in os.environ.items() if k not in names}
    return int(subprocess.check_output([sys.executable, "-c", script], env=kept | environment))


def test_the_environment_sets_the_number_of_threads():
    assert _threads_under(OMP_NUM_THREADS="3") == 3
    assert _threads_under(OMP_NUM_THREADS="3", MYTORCH_NUM_THREADS="5") == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore")
def test_a_child_forked_during_products_of_other_threads_computes(three):
    x = mytorch.randn(300, 300)
    wanted, stop = (x @ x).numpy(), threading.Event()

    def busy():
        while not stop.is_set():
            x @ x

    workers = [threading.Thread(target=busy) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                ok = np.allclose((x @ x).numpy(), wanted, atol=1e-3)
                os._exit(0 if ok else 1)
            timer = threading.Timer(20, os.kill, (child, 9))
            timer.start()
            assert os.waitpid(child, 0)[1] == 0
            timer.cancel()
    finally:
        stop.set()
        for worker in workers:
            worker.join()
