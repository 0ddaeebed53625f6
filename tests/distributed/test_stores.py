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
    "delete_key": lambda r: (str(r.choice(KEYS)),),
    "check": lambda r: ([str(k) for k in r.choice(KEYS, 2)],),
    "wait": lambda r: ([str(r.choice(KEYS))],),
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


@pytest.mark.parametrize("kind", ["HashStore", "FileStore", "TCPStore"])
def test_random_operations_give_pytorchs_results(kind, tmp_path):
    theirs = pytest.importorskip("torch.distributed")
    pair = [made(library, kind, tmp_path / library.__name__) for library in (theirs, dist)]
    r = np.random.default_rng(0)
    for _ in range(120):
        name = str(r.choice(list(OPERATIONS)))
        if kind == "FileStore" and name == "delete_key":
            continue  # PyTorch's FileStore keeps deleted keys
        args = OPERATIONS[name](r)
        if name in ("get", "wait") and not pair[1].check([args[0]] if name == "get" else args[0]):
            continue  # PyTorch would wait
        expected, result = (outcome(lambda: getattr(store, name)(*args)) for store in pair)  # noqa: B023
        assert result == expected, (name, args)


@pytest.mark.parametrize("kind", ["HashStore", "FileStore", "TCPStore"])
def test_a_get_waits_for_another_thread(kind, tmp_path):
    store = made(dist, kind, tmp_path / "store")
    threading.Timer(0.1, lambda: store.clone().set("key", "x" * 100_000)).start()
    assert store.clone().get("key") == b"x" * 100_000


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
    assert store.get("text") == b"abc"  # the connection is usable after the errors


def test_classes_of_the_program_name_what_they_lack():
    class Mine(dist.Store):
        pass

    with pytest.raises(NotImplementedError, match="Mine"):
        Mine().get("key")
    with pytest.raises(AttributeError, match="Write the prefix into the keys"):
        dist.PrefixStore  # noqa: B018


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
store.set(sys.argv[2], "rank " + sys.argv[2])
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
    store.wait(["0", "1"], datetime.timedelta(seconds=120))
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert store.add("count", 0) == 100
    assert [store.get(str(i)) for i in range(2)] == [b"rank 0", b"rank 1"]


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
    port = store.port
    del store
    for _ in range(100):  # the thread of the server ends
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    raise AssertionError("the port is still open")


def test_masters_of_one_process_share_a_table():
    """With `multi_tenant`, stores of one process have one master, which ends with the last of them."""
    first = dist.TCPStore("127.0.0.1", 0, 1, True)
    port = first.port
    del first
    stores_ = [dist.TCPStore("127.0.0.1", port, None, True, multi_tenant=True) for _ in range(2)]
    stores_[0].set("a", "1")
    assert stores_[1].get("a") == b"1"
    with pytest.raises(dist.DistBackendError):
        dist.TCPStore("127.0.0.1", port, None, True)
    del stores_[0]
    assert dist.TCPStore("127.0.0.1", port).get("a") == b"1"
    del stores_[0]
    assert ("127.0.0.1", port) not in stores._shared


def test_a_master_listens_at_a_given_socket():
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    master = dist.TCPStore("127.0.0.1", port, 1, True, master_listen_fd=bound.detach())
    assert master.port == port
    dist.TCPStore("127.0.0.1", port).set("a", "1")
    assert master.get("a") == b"1"


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
