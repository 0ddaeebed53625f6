"""Stores: the results of PyTorch, a table that processes share, and the token of a TCPStore."""

import datetime
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from mytorch import distributed as dist
from mytorch.distributed import stores

from .launching import ROOT

KEYS = ("a", "b", "counter", "other counter")
OPERATIONS = {
    "set": lambda r: (str(r.choice(KEYS[:2])), str(r.integers(10))),
    "get": lambda r: (str(r.choice(KEYS)),),
    "add": lambda r: (str(r.choice(KEYS[2:])), int(r.integers(-5, 5))),
    "append": lambda r: (str(r.choice(KEYS[:2])), bytes(r.integers(0, 256, 3, np.uint8))),
    "compare_set": lambda r: (str(r.choice(KEYS[:2])), str(r.choice(["", "1", "2"])), str(r.integers(1, 3))),
    "delete_key": lambda r: (str(r.choice(KEYS)),),
    "check": lambda r: ([str(k) for k in r.choice(KEYS, 2)],),
    "wait": lambda r: ([str(r.choice(KEYS))],),
    "multi_get": lambda r: ([str(k) for k in r.choice(KEYS, 2)],),
    "multi_set": lambda r: ([*KEYS[:2]], [str(r.integers(3)), b"\xff\x00"]),
    "num_keys": lambda r: (),
    "queue_push": lambda r: ("queue", str(r.integers(10))),
    "queue_pop": lambda r: ("queue", False),
    "queue_len": lambda r: ("queue",),
}


def made(library, kind, path):
    if kind == "TCPStore":
        return library.TCPStore("127.0.0.1", 0, 1, True)
    return library.FileStore(str(path), 1) if kind == "FileStore" else library.HashStore()


def outcome(function):
    """Returns the result, or the word "error"."""
    try:
        return function()
    except Exception as error:
        return "error" if not isinstance(error, NotImplementedError) else "not implemented"


@pytest.mark.parametrize("prefix", [None, "part"])
@pytest.mark.parametrize("kind", ["HashStore", "FileStore", "TCPStore"])
def test_random_operations_give_pytorchs_results(kind, prefix, tmp_path):
    theirs = pytest.importorskip("torch.distributed")
    pair = [made(library, kind, tmp_path / library.__name__) for library in (theirs, dist)]
    if prefix:
        pair = [library.PrefixStore(prefix, store) for library, store in zip((theirs, dist), pair, strict=True)]
    r = np.random.default_rng(0)
    for _ in range(120):
        name = str(r.choice(list(OPERATIONS)))
        if kind == "FileStore" and name in ("num_keys", "delete_key"):
            continue  # PyTorch's FileStore keeps and counts deleted keys
        args = OPERATIONS[name](r)
        if name in ("get", "wait", "multi_get") and not pair[1].check([args[0]] if name == "get" else args[0]):
            continue  # PyTorch would wait
        expected, result = (outcome(lambda: getattr(store, name)(*args)) for store in pair)  # noqa: B023
        assert result == expected, (name, args)


@pytest.mark.parametrize("kind", ["HashStore", "FileStore", "TCPStore"])
def test_a_get_waits_for_another_thread(kind, tmp_path):
    store = made(dist, kind, tmp_path / "store")
    threading.Timer(0.1, lambda: store.clone().set("key", "x" * 100_000)).start()
    assert store.clone().get("key") == b"x" * 100_000
    threads = [threading.Thread(target=store.clone().barrier, args=("all", 3)) for _ in range(2)]
    for thread in threads:
        thread.start()
    store.barrier("all", 3)
    for thread in threads:
        thread.join(30)


def test_queues_wait_and_keep_their_order():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    worker = store.clone()
    threading.Timer(0.1, lambda: [store.queue_push("q", str(i)) for i in range(3)]).start()
    assert [worker.queue_pop("q") for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("kind", ["HashStore", "FileStore", "TCPStore"])
def test_errors_of_operations(kind, tmp_path):
    store = made(dist, kind, tmp_path / "store")
    store.set_timeout(datetime.timedelta(seconds=0.05))
    with pytest.raises(dist.DistStoreError, match="get timeout after 50ms, keys: /absent"):
        store.get("absent")
    with pytest.raises(dist.DistStoreError, match="wait timeout after 20ms"):
        store.wait(["absent"], datetime.timedelta(seconds=0.02))
    with pytest.raises(TypeError, match="set: expected str or bytes, got int"):
        store.set("key", 1)
    store.set("text", "abc")
    with pytest.raises(ValueError, match="abc"):
        store.add("text", 1)
    with pytest.raises(ValueError, match="one value for each key, got 2 keys and 1 values"):
        store.multi_set(["a", "b"], ["1"])
    assert store.get("text") == b"abc"  # the connection is usable after the errors


def test_classes_of_the_program_can_be_prefixed():
    class Mine(dist.Store):
        def set(self, key, value):
            self.seen = key, value

    mine = Mine()
    dist.PrefixStore("a", dist.PrefixStore("b", mine)).set("key", "1")
    assert mine.seen == ("b/a/key", "1")
    with pytest.raises(NotImplementedError, match="Mine"):
        mine.get("key")


def test_the_last_process_deletes_the_file(tmp_path):
    path = tmp_path / "store"
    first, second = dist.FileStore(path, 2), dist.FileStore(path, 2)
    del first
    assert path.exists()
    del second
    assert not path.exists()
    dist.FileStore(path)
    assert path.exists()


WORKER = """
import sys
from mytorch import distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), 3) if sys.argv[1].isdigit() else dist.FileStore(sys.argv[1], 3)
for _ in range(50):
    store.add("count", 1)
store.append("ranks", sys.argv[2])
store.barrier("end", 3)
"""


@pytest.mark.parametrize("kind", ["FileStore", "TCPStore"])
def test_processes_share_the_table(kind, tmp_path):
    if kind == "TCPStore":
        store = dist.TCPStore("127.0.0.1", 0, 3, True, wait_for_workers=False)
    else:
        store = dist.FileStore(tmp_path / "store", 3)
    where = str(store.port) if kind == "TCPStore" else store.path
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, where, str(i)], env=environment) for i in range(2)]
    store.barrier("end", 3, datetime.timedelta(seconds=120))
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert store.add("count", 0) == 100
    assert sorted(store.get("ranks")) == [ord("0"), ord("1")]


def test_a_missing_process_and_a_missing_master_raise():
    late = datetime.timedelta(seconds=0.5)
    with pytest.raises(dist.DistStoreError, match="expected 2 processes, got 1"):
        dist.TCPStore("127.0.0.1", 0, 2, True, late)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(dist.DistNetworkError, match="timed out after 500ms"):
        dist.TCPStore("127.0.0.1", port, timeout=late)
    with pytest.raises(dist.DistError, match="expected an address of this machine"):
        dist.TCPStore("0.0.0.0", 0, is_master=True, timeout=late)


def test_the_master_listens_only_at_its_address_and_closes_its_port():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    assert store._server.socket.getsockname()[0] == "127.0.0.1"
    again = dist.TCPStore("127.0.0.1", store.port, is_master=True, multi_tenant=True)
    store.set("key", "1")
    assert again.get("key") == b"1"
    port = store.port
    del store, again
    for _ in range(100):  # the thread of the server ends
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    raise AssertionError("the port is still open")


def test_a_client_without_the_token_is_refused(monkeypatch):
    monkeypatch.setenv("MYTORCHRUN_TOKEN", "right")
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    answers = []
    for hello in (b"x" * 24, stores._MAGIC + bytes(16)):
        with socket.create_connection(("127.0.0.1", store.port), timeout=10) as connection:
            connection.sendall(hello)
            answers.append(connection.recv(16))
            connection.sendall(bytes(32))
            assert connection.recv(1) == b""
    assert [len(answer) for answer in answers] == [0, 16]
    store.set("key", "1")
    assert store.get("key") == b"1"


def test_a_process_group_starts_with_a_store():
    dist.init_process_group("mpi", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert dist.get_world_size() == 1
        assert not dist._rank_not_in_group(None)
        assert dist._rank_not_in_group(dist.GroupMember.NON_GROUP_MEMBER)
        assert dist.distributed_c10d._get_default_group() is dist.GroupMember().WORLD
    finally:
        dist.destroy_process_group()
    with pytest.raises(ValueError, match="a store only with rank and world_size"):
        dist.init_process_group("mpi", store=dist.HashStore())
