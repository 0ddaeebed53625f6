"""Unauthorized connections to the ports of the rendezvous and the launcher, and cleanup after failed launches."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from mytorch import distributed as dist
from mytorch.distributed import launcher, rendezvous
from mytorch.distributed.launcher import free_port

from .launching import ROOT, connected, environment, launch, needs_mpi

CASES = int(os.environ.get("CASES", "3"))
HELLO = rendezvous._MAGIC + bytes(16)


def silent(connection, r):
    """Keeps the connection open without sending data."""


def random_bytes(connection, r):
    connection.sendall(r.bytes(int(r.integers(1, 200))))


def half_a_hello(connection, r):
    connection.sendall(HELLO[: r.integers(1, len(HELLO))])


def a_rank_without_the_token(connection, r):
    connection.sendall(HELLO + int(r.integers(1, 3)).to_bytes(4, "little"))
    with contextlib.suppress(OSError):
        connection.recv(16)
        connection.sendall(r.bytes(32))


def the_older_hello(connection, r):
    connection.sendall(b"mytorch1" + bytes(64) + (1).to_bytes(4, "little"))


def much(connection, r):
    with contextlib.suppress(OSError):
        for _ in range(50):
            connection.sendall(bytes(1 << 16))


def gone_at_once(connection, r):
    connection.close()


STRANGERS = [silent, random_bytes, half_a_hello, a_rank_without_the_token, the_older_hello, much, gone_at_once]


@pytest.mark.parametrize("token", ["secret", ""])
@pytest.mark.parametrize("behave", STRANGERS, ids=lambda f: f.__name__)
def test_unauthorized_connections_get_no_data_and_cause_no_delay(behave, token, monkeypatch):
    """Without a token, a client needs only the protocol. Random proofs are still rejected."""
    monkeypatch.setenv("MYTORCHRUN_TOKEN", token)
    port, got, r = free_port(), {}, np.random.default_rng(0)

    def rank(i):
        got[i] = rendezvous.exchange(b"the id" if i == 0 else None, i, 3, "127.0.0.1", port, 120)

    threads = [threading.Thread(target=rank, args=(0,))]
    threads[0].start()
    strangers = [connected(port) for _ in range(20 * CASES)]
    for stranger in strangers:
        with contextlib.suppress(OSError):
            behave(stranger, r)
    start = time.monotonic()
    for i in (1, 2):
        threads.append(threading.Thread(target=rank, args=(i,)))
        threads[-1].start()
    for thread in threads:
        thread.join(120)
    assert time.monotonic() - start < 30
    assert got == dict.fromkeys(range(3), b"the id")
    for stranger in strangers:
        with contextlib.suppress(OSError):
            assert b"the id" not in stranger.recv(1000)
        stranger.close()


def long_content(connection, r):
    connection.recv(100)
    connection.sendall(bytes(16))
    connection.recv(100)
    connection.sendall(b"\xff\xff\xff\x7f" + bytes(1000))


def content_without_a_proof(connection, r):
    connection.recv(100)
    connection.sendall(bytes(16))
    connection.recv(100)
    connection.sendall(b"\x06\0\0\0" + b"the id" + r.bytes(32))


def short_and_gone(connection, r):
    connection.recv(100)
    connection.sendall(bytes(int(r.integers(0, 16))))


@pytest.mark.parametrize("behave", [long_content, content_without_a_proof, short_and_gone], ids=lambda f: f.__name__)
def test_a_false_rank_0_is_not_believed(behave):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        behave(connection, np.random.default_rng(0))

        threading.Thread(target=serve, daemon=True).start()
        port = server.getsockname()[1]
        with pytest.raises(dist.DistBackendError, match="rank 1 could not connect"):
            rendezvous.exchange(None, 1, 2, "127.0.0.1", port, 0.5)


def test_the_rendezvous_listens_at_the_given_address(monkeypatch):
    port = free_port()
    monkeypatch.delenv("MYTORCHRUN_TOKEN", raising=False)
    with rendezvous.listen("127.0.0.1", port, 5) as server:
        assert server.getsockname() == ("127.0.0.1", port)
        with pytest.raises(dist.DistBackendError, match=rf"127\.0\.0\.1:{port}: the port is in use\. Choose"):
            rendezvous.exchange(b"id", 0, 2, "127.0.0.1", port, 1)
        link = launcher.Link(0, 2, "127.0.0.1", port - 1)
        with pytest.raises(RuntimeError, match="the port is in use"):
            link.attach(launcher.Job([], 1, mpi=False, env={}), contextlib.ExitStack())
    with pytest.raises(dist.DistBackendError, match="Set MYTORCHRUN_TOKEN to listen at all addresses"):
        rendezvous.listen("192.0.2.1", port, 5)  # not an address of this machine
    monkeypatch.setenv("MYTORCHRUN_TOKEN", "secret")
    with rendezvous.listen("192.0.2.1", port, 5) as server:
        assert server.getsockname()[0] == "0.0.0.0"


def test_a_stranger_cannot_make_the_launcher_grow(tmp_path):
    """A supervisor's port: much is sent to it, and many connections are opened, while a rank runs."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, socket, time\n"
        "host, port = os.environ['MYTORCHRUN_CONTROL'].split(':')\n"
        "size = lambda: int(open(f'/proc/{launcher}/statm').read().split()[1]) * 4096\n"
        "stat = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()\n"
        "launcher = stat[1]\n"
        "before = size()\n"
        "held = [socket.create_connection((host, int(port))) for _ in range(100)]\n"
        "try:\n"
        "    for _ in range(300):\n"
        "        held[0].sendall(b'h\\xff\\xff\\xff\\x7f' + bytes(1 << 18))\n"
        "except OSError: print('cut off')\n"
        "time.sleep(0.5)\n"
        "print('grown', size() - before < 20 << 20)\n"
    )
    done = launch(1, script)
    assert done.returncode == 0, done.stderr
    assert "cut off" in done.stdout
    assert "grown True" in done.stdout


FAILURES = {
    "before init": "if r == 1: os._exit(3)\nd.init_process_group('mpi')\nd.barrier()",
    "killed": "d.init_process_group('mpi')\nif r == 1: os.kill(os.getpid(), 9)\nd.all_reduce(mytorch.ones(5))",
    "raises": "d.init_process_group('mpi')\nif r == 0: raise ValueError\nd.all_reduce(mytorch.ones(5))",
    "leaves": "d.init_process_group('mpi')\nsys.exit(r)",
}


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no /dev/shm")
def test_failed_launches_leave_nothing_in_shared_memory(how, tmp_path):
    needs_mpi()
    script = tmp_path / "script.py"
    start = "import os, sys, mytorch\nimport mytorch.distributed as d\nr = int(os.environ['RANK'])\n"
    script.write_text(start + FAILURES[how])
    before = set(os.listdir("/dev/shm"))
    assert launch(2, script).returncode != 0
    left = [n for n in set(os.listdir("/dev/shm")) - before if not launcher._is_mapped(f"/dev/shm/{n}")]
    left = [n for n in left if n.startswith(("mpich", "mytorch"))]
    if left:  # files of another launch that ended during this test
        time.sleep(1.0)
        left = [n for n in left if os.path.exists(f"/dev/shm/{n}")]
    assert left == []


def test_the_launcher_warns_without_a_token_on_several_machines():
    program = "import sys; from mytorch.distributed import run; run.job(run.parse(sys.argv[1:]))"
    options = ["--nnodes", "2", "--no_python", "--master_addr", "127.0.0.1", "--master_port", "1234", "x.py"]
    for token, count in (("", 1), ("secret", 0)):
        env = environment(MYTORCHRUN_TOKEN=token)
        done = subprocess.run([sys.executable, "-c", program, *options], env=env, cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
        assert done.stderr.count("connect to 127.0.0.1:1234") == count or "GPUs on several machines" in done.stderr
