"""Parent process of one rank: starts it, sends its output to the launcher, and ends it with the launcher.

The file is run by path, `python supervise.py command …`, so that it does not import the library. The address of the
launcher is MYTORCHRUN_CONTROL, and the shared secret is MYTORCHRUN_CONTROL_TOKEN. Under mpiexec, the rank number comes
from MPI's variables, and the rank inherits the connection to MPI. A message in either direction is a letter, a
length, and bytes:

    h {"rank", "pid", …}   the rank has started         s number   send the rank a signal
    o bytes, e bytes       standard output and errors   k          kill the rank and its children
    x {"code"}             the rank has ended           q          quit
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

_RANKS = (
    ("RANK", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
)
_OTHERS = 3  # seconds to outlive the launcher: when one supervisor ends, MPI kills the other ranks


def send(connection, lock, kind, content=b""):
    """Send a message; the launcher may have ended."""
    with lock, contextlib.suppress(OSError):
        connection.sendall(struct.pack("<cI", kind, len(content)) + content)


def receive(stream):
    """Return the next message as (letter, bytes); (b"", b"") at the end."""
    try:
        kind, length = struct.unpack("<cI", stream.read(5))
        content = stream.read(length)
    except (OSError, struct.error):  # the launcher has ended
        return b"", b""
    return (kind, content) if len(content) == length else (b"", b"")


def die_with_parent():
    """On Linux, have the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def environment():
    """Return the environment of the rank: torchrun's variables, and Open MPI's variables.

    Raises:
        SystemExit: if no variable contains the rank.
    """
    env = dict(os.environ)
    for rank, local in _RANKS:
        if rank in env:
            env["RANK"] = env[rank]
            env["LOCAL_RANK"] = env.get(local, env[rank])
            for theirs, ours in (("RANK", "RANK"), ("LOCAL_RANK", "LOCAL_RANK"), ("SIZE", "WORLD_SIZE")):
                if ours in env:
                    env.setdefault(f"OMPI_COMM_WORLD_{theirs}", env[ours])
            return env
    sys.exit("supervise: expected RANK or MPI's variables in the environment, found neither.")


def kill_group(child, number):
    """Send a signal to the rank and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def connected():
    """Return a connection to the launcher."""
    host, _, port = os.environ["MYTORCHRUN_CONTROL"].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def started(command, env):
    """Start the rank and return its process."""

    def prepare():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent()

    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    own = {"start_new_session": True, "preexec_fn": prepare, "close_fds": False}  # keep the connection to mpiexec
    return subprocess.Popen(command, env=env, **pipes, **own)


def obey(messages, child):
    """Execute the launcher's commands until it sends `q` or ends."""
    while True:
        kind, content = receive(messages)
        if kind == b"s":
            if child.poll() is None:
                os.kill(child.pid, int(content))
            continue
        kill_group(child, signal.SIGKILL)
        if kind != b"k":
            if not kind:
                time.sleep(_OTHERS)
                if os.path.exists(os.environ.get("MYTORCHRUN_COLLECTIVE_LOG", "")):
                    os.remove(os.environ["MYTORCHRUN_COLLECTIVE_LOG"])
            os._exit(0)


def main():
    """Supervise the rank of the command line."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the launcher decides
    connection, env, lock = connected(), environment(), threading.Lock()
    child = started(sys.argv[1:], env)
    hello = {"rank": int(env["RANK"]), "pid": child.pid, "token": os.environ["MYTORCHRUN_CONTROL_TOKEN"]}
    send(connection, lock, b"h", json.dumps(hello).encode())

    def forward(pipe, kind):
        while True:
            content = os.read(pipe.fileno(), 1 << 16)
            if not content:
                return
            send(connection, lock, kind, content)

    pipes = ((child.stdout, b"o"), (child.stderr, b"e"))
    readers = [threading.Thread(target=forward, args=pair, daemon=True) for pair in pipes]
    for reader in readers:
        reader.start()

    def wait():
        code = child.wait()
        readers[1].join(0.2)
        kill_group(child, signal.SIGTERM)  # remaining child processes keep the output open
        for reader in readers:
            reader.join(1.0)
        kill_group(child, signal.SIGKILL)
        send(connection, lock, b"x", json.dumps({"code": code}).encode())

    threading.Thread(target=wait, daemon=True).start()
    obey(connection.makefile("rb"), child)


if __name__ == "__main__":
    main()
