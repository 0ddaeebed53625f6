"""Worker processes: sent data, termination, and cleanup."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Large(Dataset):
    """Items of some megabytes and a little one."""

    def __init__(self, n=12, size=1 << 19):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {
            "x": mytorch.full((self.size,), float(i)),
            "name": str(i),
            "half": mytorch.ones(3, dtype=mytorch.bfloat16),
        }


class Sized(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return np.arange((i + 1) * 30000, dtype=np.int64)


class Draws(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return (float(np.random.rand()), random.random(), float(mytorch.rand(1)), get_worker_info().seed)


class Bad(Dataset):
    def __init__(self, what):
        self.what = what

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i != 3:
            return i
        if self.what == "exit":
            os._exit(7)
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "sleep":
            time.sleep(30)
        if self.what == "lambda":
            return lambda: 0
        raise ERRORS[self.what]


class Two(Exception):
    """Not made from one message."""

    def __init__(self, a, b):
        super().__init__(a, b)


class WithMessage(Exception):
    message = "something"

    def __init__(self, message):
        super().__init__(message)


ERRORS = {
    "value": ValueError("no three"),
    "key": KeyError("three"),
    "stop": RuntimeError("stop"),
    "two": Two(1, 2),
    "message": WithMessage("m"),
    "os": FileNotFoundError(2, "nothing"),
}


def first(batch):
    return batch


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def gone(pid):
    """Returns True if a process ends within a few seconds."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_large_batches_arrive_whole_and_writable(method):
    loader = DataLoader(Large(6), 2, num_workers=2, multiprocessing_context=method)
    assert loader.multiprocessing_context.get_start_method() == method
    for i, batch in enumerate(loader):
        assert batch["x"].shape == (2, 1 << 19)
        assert batch["x"].numpy().min(axis=1).tolist() == [2 * i, 2 * i + 1]
        assert batch["x"].numpy().max(axis=1).tolist() == [2 * i, 2 * i + 1]
        assert batch["name"] == [str(2 * i), str(2 * i + 1)]
        assert batch["half"].dtype is mytorch.bfloat16
        batch["x"].add_(1.0)
    assert i == 2


def test_batches_that_are_kept_do_not_change():
    loader = DataLoader(Large(20, 1 << 16), None, num_workers=2, prefetch_factor=3)
    kept = [batch["x"] for i, batch in enumerate(loader) if i % 3]
    views = [float(x[5:][-1]) for x in kept]
    assert views == [float(i) for i in range(20) if i % 3]


def test_batches_are_safe_in_a_forked_process():
    """The child process still reads a batch that the parent process has released."""
    loader = iter(DataLoader(Large(30, 1 << 16), None, num_workers=1))
    batch = next(loader)
    read, write = os.pipe()
    go, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go, 1)
        os.write(write, b"%d" % int(batch["x"].numpy().max()))
        os._exit(0)
    del batch
    for _ in loader:
        pass
    os.write(say, b"g")
    assert os.read(read, 9) == b"0"
    os.waitpid(child, 0)
    for end in (read, write, go, say):
        os.close(end)


def test_segments_are_used_again_and_given_back():
    before = descriptors()
    most = 0
    for _ in DataLoader(Large(40, 1 << 16), None, num_workers=2):
        most = max(most, descriptors() - before)
    assert most < 20
    del _
    assert descriptors() == before


def test_more_batches_than_descriptors_can_be_kept(monkeypatch):
    monkeypatch.setattr("mytorch.utils.data._utils.transport.LEASES", 5)
    before = descriptors()
    kept = list(DataLoader(Large(30, 1 << 15), None, num_workers=2))
    assert descriptors() - before < 20
    assert [float(b["x"].numpy().mean()) for b in kept] == list(range(30))
    del kept
    assert descriptors() == before


def test_growing_batches():
    sizes = [len(x) for x in DataLoader(Sized(), None, num_workers=1)]
    assert sizes == [(i + 1) * 30000 for i in range(8)]
    down = [
        x.tolist() == list(range(len(x))) for x in DataLoader(Sized(), None, num_workers=1, sampler=range(7, -1, -1))
    ]
    assert all(down)


def test_without_shared_memory(monkeypatch):
    monkeypatch.setattr("mytorch.utils.data._utils.transport._HAS_SHARED", False)
    values = [float(b["x"].numpy().mean()) for b in DataLoader(Large(6), None, num_workers=2)]
    assert values == list(range(6))


@pytest.mark.parametrize("how", ["break", "kill"])
def test_nothing_is_left_behind(how):
    before = descriptors()
    shm = set(os.listdir("/dev/shm"))
    iterator = iter(DataLoader(Large(20), 2, num_workers=2))
    batch = next(iterator)
    if how == "kill":
        os.kill(iterator._workers[1].process.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="killed by signal"):
            list(iterator)
        assert multiprocessing.active_children() == []  # also while the iterator lives
    del iterator
    assert multiprocessing.active_children() == []
    assert float(batch["x"][1, 5]) == 1.0
    del batch
    assert descriptors() == before
    assert set(os.listdir("/dev/shm")) == shm


@pytest.mark.parametrize("what", ["value", "key", "two", "message", "os"])
def test_errors_are_raised_as_pytorch_raises_them(what, torch):
    def attempt(lib):
        found = []
        iterator = iter(lib.utils.data.DataLoader(Bad(what), 2, num_workers=1, collate_fn=first))
        with pytest.raises(Exception) as error:
            found.extend(iterator)
        return found, type(error.value), str(error.value).splitlines(), list(iterator)

    mine, theirs = attempt(mytorch), attempt(torch)
    assert mine[0] == theirs[0] == [[0, 1]]
    assert mine[1] is theirs[1]
    assert mine[2][0] == theirs[2][0]
    assert mine[2][1] == theirs[2][1]
    assert mine[2][-1] == theirs[2][-1]
    assert "raise ERRORS[self.what]" in "".join(mine[2])
    assert mine[3] == theirs[3] == [[4, 5], [6, 7]]  # the epoch continues after the bad batch


def test_an_error_leaves_no_workers():
    try:
        list(DataLoader(Bad("value"), 2, num_workers=2))
    except ValueError:
        pass
    assert multiprocessing.active_children() == []


def test_unpicklable_items_raise_an_error():
    with pytest.raises(Exception, match=r"(?s)DataLoader worker process 1.*(pickle|local object)"):
        list(DataLoader(Bad("lambda"), 2, num_workers=2, collate_fn=first))

    class Local(Exception):
        pass

    class Raises(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            raise Local("defined in this function")

    with pytest.raises(RuntimeError, match=r"(?s)worker process 0.*Local: defined in this function"):
        list(DataLoader(Raises(), num_workers=1))


def unpickled(value):
    raise ImportError("can't be made here")


class Unloadable:
    def __reduce__(self):
        return unpickled, (1,)


def test_items_that_fail_to_unpickle_raise_an_error():
    iterator = iter(DataLoader([Unloadable()] * 3, None, num_workers=1))
    with pytest.raises(ImportError, match="can't be made here"):
        next(iterator)
    assert multiprocessing.active_children() == []


def test_the_dead_are_reported():
    with pytest.raises(RuntimeError, match=r"worker \(pid \d+\) exited unexpectedly with exit code 7"):
        list(DataLoader(Bad("exit"), 2, num_workers=2))
    with pytest.raises(RuntimeError, match=r"worker \(pid \d+\) is killed by signal: Killed.* exit code -9"):
        list(DataLoader(Bad("kill"), 2, num_workers=2))
    loader = DataLoader(Bad("exit"), 2, num_workers=1, persistent_workers=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="exit code 7"):
            list(loader)
    assert multiprocessing.active_children() == []


def test_timeout():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.5 seconds"):
        list(DataLoader(Bad("sleep"), 2, num_workers=2, timeout=0.5))
    assert time.monotonic() - start < 25
    assert multiprocessing.active_children() == []


def init(worker):
    get_worker_info().dataset.what = f"init {worker}"
    if worker == 1:
        raise ValueError("not this worker")


def test_worker_init_fn():
    iterator = iter(DataLoader(Bad("value"), 2, num_workers=2, worker_init_fn=init, collate_fn=first))
    assert next(iterator) == [0, 1]
    with pytest.raises(ValueError, match=r"(?s)worker process 1.*not this worker"):
        next(iterator)


def test_workers_are_seeded_as_pytorchs(torch):
    class Theirs(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return (
                float(np.random.rand()),
                random.random(),
                float(torch.rand(1)),
                torch.utils.data.get_worker_info().seed,
            )

    def draws(lib, data, **options):
        lib.manual_seed(11)
        loader = lib.utils.data.DataLoader(data, 2, num_workers=2, **options)
        return [[column.tolist() for column in batch] for _ in range(2) for batch in loader]

    for options in ({}, {"persistent_workers": True}):
        assert draws(mytorch, Draws(), **options) == draws(torch, Theirs(), **options)
    generators = [lib.Generator().manual_seed(4) for lib in (mytorch, torch)]
    assert draws(mytorch, Draws(), generator=generators[0]) == draws(torch, Theirs(), generator=generators[1])


class Slow(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        if i == 0:
            time.sleep(0.7)
        return i


def test_in_order():
    assert [int(x) for x in DataLoader(Slow(), None, num_workers=2)] == [0, 1, 2, 3, 4, 5]
    free = [int(x) for x in DataLoader(Slow(), None, num_workers=2, in_order=False)]
    assert free == [1, 3, 4, 5, 0, 2]


class Uneven(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        return iter([worker.id] * (2 + 5 * worker.id))


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_streams_of_uneven_length(in_order, persistent):
    loader = DataLoader(Uneven(), 2, num_workers=3, in_order=in_order, persistent_workers=persistent)
    for _ in range(3):
        found = [b.tolist() for b in loader]
        assert sorted(found) == sorted([[0, 0]] + 3 * [[1, 1]] + [[1]] + 6 * [[2, 2]])
        if in_order:
            assert [b[0] for b in found] == [0, 1, 2, 1, 2, 1, 2, 1, 2, 2, 2]


def test_persistent_workers_stay_and_start_again():
    class Pid(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, i):
            return os.getpid(), i

    loader = DataLoader(Pid(), 1, num_workers=2, persistent_workers=True)
    pids = set()
    for stop in (3, 40, 0, 40):
        found = []
        for pid, i in loader:
            if len(found) == stop:
                break
            pids.add(int(pid))
            found.append(int(i))
        assert found == list(range(stop))
    assert len(pids) == 2
    del loader
    assert multiprocessing.active_children() == []


PROGRAM = """
import os, sys, time, warnings
from mytorch.utils.data import DataLoader

mode, method = sys.argv[1:]


class Data:
    def __len__(self):
        return 10**6

    def __getitem__(self, i):
        if i > 8 and mode == "stuck":
            time.sleep(60)
        return os.getpid()


if __name__ == "__main__":
    iterator = iter(DataLoader(Data(), 1, num_workers=2, multiprocessing_context=method))
    print(int(next(iterator)), int(next(iterator)), flush=True)
    if mode == "leave":
        sys.exit()
    if mode == "consume":
        for _ in iterator:
            pass
    time.sleep(60)
"""


@pytest.fixture
def start(tmp_path):
    """Start a program that loads with two workers; returns it and their process numbers."""

    def run(mode, method="fork"):
        file = tmp_path / "program.py"
        file.write_text(PROGRAM)
        process = subprocess.Popen(
            [sys.executable, file, mode, method],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        return process, pids

    return run


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("mode", ["idle", "stuck", "consume"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_a_killed_parent(start, mode, method, number):
    process, pids = start(mode, method)
    process.send_signal(number)
    process.wait()
    assert all(gone(pid) for pid in pids)
    process.communicate()


@pytest.mark.parametrize("mode", ["idle", "consume"])
def test_keyboard_interrupt_leaves_no_process(start, mode):
    process, pids = start(mode)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert all(gone(pid) for pid in pids)
    assert process.returncode != 0
    assert error.count("KeyboardInterrupt") == 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_leaving_the_program_in_the_middle_of_an_epoch(start, method):
    process, pids = start("leave", method)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0
    assert error == ""
    assert all(gone(pid) for pid in pids)


def test_arrays_of_every_kind():
    big = np.random.default_rng(0).normal(size=(300, 400))
    fixed = big.copy()
    fixed.flags.writeable = False
    items = [
        np.asfortranarray(big),
        big[::2, ::3],
        fixed,
        np.zeros((0, 5)),
        np.array(3.0),
        big.astype(np.complex64),
        np.array([{"a": 1}] * 3, object),
        np.zeros(9000, [("a", "f4"), ("b", "i8")]),
        mytorch.tensor(big, requires_grad=True),
        mytorch.tensor(big).to(mytorch.bfloat16).T,
        mytorch.tensor(big).data,
        "x" * 200000,
        list(range(50000)),
    ]
    found = list(DataLoader(items, None, num_workers=2, collate_fn=first))
    for expected, item in zip(items, found, strict=True):
        assert type(item) is type(expected)
        assert getattr(item, "dtype", None) == getattr(expected, "dtype", None)
        assert getattr(item, "requires_grad", None) == getattr(expected, "requires_grad", None)
        if hasattr(item, "detach"):
            item, expected = item.detach(), expected.detach()
        np.testing.assert_array_equal(np.asarray(item), np.asarray(expected))


def test_loading_in_threads():
    found = []

    def load():
        found.append([int(x) for x in DataLoader(range(20), None, num_workers=2)])

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(20))] * 3


def test_long_lists_of_indices():
    parts = [range(0, 200000), range(200000, 400000)] * 3
    loader = DataLoader(range(400000), batch_sampler=[list(p) for p in parts], num_workers=2, collate_fn=sum)
    assert list(loader) == [sum(p) for p in parts]
