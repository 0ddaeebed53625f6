"""Rendezvous: rank 0 listens at an address and sends a few bytes to every other rank.

Both sides prove that they have the launcher's token (MYTORCHRUN_TOKEN) without sending it. Each side sends random
bytes, and the other side returns their HMAC. A process without the token can therefore neither receive nor send the
content. Rank 0 serves the callers concurrently, with a time limit and a size limit for each:

    caller: magic, its random bytes, its rank        rank 0: its random bytes
    caller: HMAC of both and the rank                rank 0: length, content, HMAC of both and the content
    caller: "k"
"""

import contextlib
import errno
import hmac
import os
import secrets
import selectors
import socket
import struct
import time

from .work import DistBackendError

_MAGIC = b"mytorch2"
_NONCE = 16
_HELLO = len(_MAGIC) + _NONCE + 4
_PROOF = 32
LONGEST = 1 << 16  # bytes of content
PATIENCE = 5.0  # seconds for a caller to complete the exchange
CALLERS = 256  # simultaneous connections in addition to the ranks; above this number, the oldest is closed


def _proof(*parts):
    token = os.environ.get("MYTORCHRUN_TOKEN", "").encode()
    return hmac.digest(token, b"".join(parts), "sha256")


def _read(connection, n, deadline):
    """Read exactly n bytes.

    Raises:
        ConnectionError: if the other side closes the connection too early.
        TimeoutError: if the bytes do not arrive in time.
    """
    content = b""
    while len(content) < n:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = connection.recv(n - len(content))
        if not part:
            raise ConnectionError("the connection was closed before the message was complete")
        content += part
    return content


def listen(address, port, backlog):
    """Return a server socket at an address of this machine.

    With a token, it listens at all addresses if the machine has no such address (NAT).

    Raises:
        DistBackendError: if the port is in use or not permitted, or the token is missing.
    """
    family, token = socket.AF_INET6 if ":" in address else socket.AF_INET, os.environ.get("MYTORCHRUN_TOKEN")
    for host in (address, ""):
        if host in ("", "0.0.0.0", "::") and not token:
            raise DistBackendError(
                f"listen: expected an address of this machine, got {address}. Set MYTORCHRUN_TOKEN to listen at all addresses."
            )
        try:
            return socket.create_server((host, port), family=family, backlog=backlog)
        except OSError as error:
            if host and (error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)):
                continue
            taken = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise DistBackendError(
                f"listen: cannot open {address}:{port}: {taken}. Choose another port with MASTER_PORT or --master_port."
            ) from None
    raise AssertionError


def exchange(content, rank, size, address, port, timeout=None):
    """Send rank 0's `content`, bytes, to every rank.

    Args:
        content: bytes to send, on rank 0.
        rank: rank of this process.
        size: number of processes.
        address: address of rank 0.
        port: port of rank 0.
        timeout: seconds to wait for the others (default: 300).

    Raises:
        DistBackendError: if a rank is missing after the timeout, which rank 0 names, or if the port is in use.
    """
    if size == 1:
        return content
    deadline = time.monotonic() + (timeout or 300.0)
    if rank == 0:
        with listen(address, port, size + CALLERS) as server:
            _Service(server, content, size).run(deadline, f"{address}:{port}")
        return content
    return _fetch(rank, address, port, deadline)


class _Caller:
    """A connection and the state of its exchange."""

    def __init__(self, connection):
        self.connection = connection
        self.until = time.monotonic() + PATIENCE
        self.buffer = b""
        self.wanted = _HELLO
        self.hello = self.rank = None
        self.nonce = secrets.token_bytes(_NONCE)


class _Service:
    """The server on rank 0."""

    def __init__(self, server, content, size):
        self.server, self.content = server, content
        self.missing = set(range(1, size))
        self.most = size + CALLERS
        self.callers = {}  # in order of arrival
        self.selector = selectors.DefaultSelector()

    def run(self, deadline, where):
        """Serve until every rank has received the content.

        Raises:
            DistBackendError: if a rank is missing at the deadline.
        """
        self.server.setblocking(False)
        self.selector.register(self.server, selectors.EVENT_READ)
        try:
            while self.missing:
                now = time.monotonic()
                if now > deadline:
                    ranks = sorted(self.missing)
                    raise DistBackendError(f"init_process_group: ranks {ranks} did not connect to {where} in time.")
                for key, _ in self.selector.select(min(deadline - now, 0.5)):
                    if key.fileobj is self.server:
                        self._accept()
                    elif key.fileobj in self.callers:
                        self._hear(self.callers[key.fileobj])
                for caller in [c for c in self.callers.values() if time.monotonic() > c.until]:
                    self._drop(caller)
        finally:
            for caller in list(self.callers.values()):
                self._drop(caller)
            self.selector.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            connection, _ = self.server.accept()
            connection.setblocking(False)
            self.callers[connection] = _Caller(connection)
            self.selector.register(connection, selectors.EVENT_READ)
            if len(self.callers) > self.most:
                self._drop(next(iter(self.callers.values())))

    def _drop(self, caller):
        self.selector.unregister(caller.connection)
        with contextlib.suppress(OSError):
            caller.connection.recv(LONGEST)  # closing with unread bytes would reset the connection
        caller.connection.close()
        del self.callers[caller.connection]

    def _hear(self, caller):
        try:
            part = caller.connection.recv(caller.wanted - len(caller.buffer))
            caller.buffer += part
            if not part or (len(caller.buffer) == caller.wanted and not self._answer(caller)):
                self._drop(caller)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(caller)

    def _answer(self, caller):
        """Reply to a caller's message; returns False to close the connection."""
        said, caller.buffer = caller.buffer, b""
        if caller.hello is None:
            caller.hello, caller.wanted = said, _PROOF
            if said[: len(_MAGIC)] != _MAGIC:
                return False
            caller.connection.sendall(caller.nonce)
            return True
        if caller.rank is None:
            (rank,) = struct.unpack("<I", caller.hello[-4:])
            if not hmac.compare_digest(said, _proof(b"rank", caller.hello, caller.nonce)) or rank not in self.missing:
                return False
            caller.rank, caller.wanted = rank, 1
            proof = _proof(b"main", caller.hello, caller.nonce, self.content)
            caller.connection.sendall(struct.pack("<I", len(self.content)) + self.content + proof)
            return True
        self.missing.discard(caller.rank)
        return False


def _fetch(rank, address, port, deadline):
    problem = "no time left"
    while time.monotonic() < deadline:
        until = min(deadline, time.monotonic() + PATIENCE)
        try:
            with socket.create_connection((address, port), timeout=max(until - time.monotonic(), 1e-3)) as connection:
                hello = _MAGIC + secrets.token_bytes(_NONCE) + struct.pack("<I", rank)
                connection.sendall(hello)
                nonce = _read(connection, _NONCE, until)
                connection.sendall(_proof(b"rank", hello, nonce))
                (length,) = struct.unpack("<I", _read(connection, 4, until))
                if length > LONGEST:
                    raise ConnectionError(f"expected at most {LONGEST:,} bytes, got {length:,}")
                content = _read(connection, length, until)
                if not hmac.compare_digest(_read(connection, _PROOF, until), _proof(b"main", hello, nonce, content)):
                    raise ConnectionError("the server does not have the token; it is not rank 0")
                connection.sendall(b"k")
                return content
        except OSError as error:  # rank 0 does not listen yet
            problem = error
            time.sleep(0.1)
    raise DistBackendError(f"rank {rank} could not connect to rank 0 at {address}:{port}: {problem}.")
