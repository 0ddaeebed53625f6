"""How ranks that share nothing but an address meet: rank 0 listens there and hands a few bytes to each.

A connection says the token that the launcher has given to all (MYTORCHRUN_TOKEN, empty without one), so a
stranger who finds the port gets nothing.
"""

import hmac
import os
import socket
import struct
import time

from .work import DistBackendError

_MAGIC = b"mytorch1"


def _token():
    return os.environ.get("MYTORCHRUN_TOKEN", "").encode().ljust(64, b"\0")[:64]


def _read(connection, n):
    """Exactly n bytes.

    Raises:
        ConnectionError: the other side has closed before.
    """
    content = b""
    while len(content) < n:
        part = connection.recv(n - len(content))
        if not part:
            raise ConnectionError("closed before its message was complete")
        content += part
    return content


def exchange(content, rank, size, address, port, timeout=None):
    """Rank 0's `content`, bytes, on every rank.

    Args:
        address, port: where rank 0 listens.
        timeout: seconds to wait for the others; None for 300.

    Raises:
        DistBackendError: not all came in time; on rank 0 the message names who did not.
    """
    if size == 1:
        return content
    deadline = time.monotonic() + (timeout or 300.0)
    if rank == 0:
        _serve(content, size, address, port, deadline)
        return content
    return _fetch(rank, address, port, deadline)


def _serve(content, size, address, port, deadline):
    missing = set(range(1, size))
    with socket.create_server(("", port), reuse_port=False, backlog=size) as server:
        while missing:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                raise DistBackendError(
                    f"init_process_group: ranks {sorted(missing)} did not come to {address}:{port} in time."
                ) from None
            with connection:
                connection.settimeout(5.0)
                try:
                    hello = _read(connection, len(_MAGIC) + 64 + 4)
                    (other,) = struct.unpack("<I", hello[-4:])
                    if hello[:8] != _MAGIC or not hmac.compare_digest(hello[8:72], _token()) or not 0 < other < size:
                        continue
                    connection.sendall(struct.pack("<I", len(content)) + content)
                    _read(connection, 1)
                    missing.discard(other)
                except (OSError, ConnectionError):
                    continue


def _fetch(rank, address, port, deadline):
    problem = None
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((address, port), timeout=5.0) as connection:
                connection.sendall(_MAGIC + _token() + struct.pack("<I", rank))
                (length,) = struct.unpack("<I", _read(connection, 4))
                content = _read(connection, length)
                connection.sendall(b"k")
                return content
        except (OSError, ConnectionError) as error:  # rank 0 is not there yet
            problem = error
            time.sleep(0.1)
    raise DistBackendError(f"init_process_group: rank {rank} did not reach rank 0 at {address}:{port}: {problem}.")
