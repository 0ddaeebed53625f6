"""How ranks that share nothing but an address meet: rank 0 listens there and hands a few bytes to each.

Both sides prove that they know the token which the launcher has given to all (MYTORCHRUN_TOKEN), without saying it: each
sends random bytes, and answers the other's with their HMAC. So a stranger who finds the port gets nothing, and a stranger
who listens there gives nothing. Callers are served side by side, each within a few seconds, and none is read further than
the few bytes that it may say.

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
PATIENCE = 5.0  # seconds for a caller to say what it has to
CALLERS = 256  # at once, beside the ranks: of more, the longest there is sent away


def _proof(*parts):
    token = os.environ.get("MYTORCHRUN_TOKEN", "").encode()
    return hmac.digest(token, b"".join(parts), "sha256")


def _read(connection, n, deadline):
    """Exactly n bytes.

    Raises:
        ConnectionError: the other side has closed before. TimeoutError: they did not come in time.
    """
    content = b""
    while len(content) < n:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = connection.recv(n - len(content))
        if not part:
            raise ConnectionError("closed before its message was complete")
        content += part
    return content


def listen(address, port, backlog):
    """A server socket at an address of this machine; where it is none, as behind a translation of addresses, at all.

    Raises:
        DistBackendError: the port is taken, or may not be had.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for host in (address, ""):
        try:
            return socket.create_server((host, port), family=family, backlog=backlog)
        except OSError as error:
            if host and (error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)):
                continue
            taken = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror
            raise DistBackendError(
                f"can't listen at {address}:{port}: {taken}. Choose another port with MASTER_PORT or --master_port."
            ) from None
    raise AssertionError


def exchange(content, rank, size, address, port, timeout=None):
    """Rank 0's `content`, bytes, on every rank.

    Args:
        address, port: where rank 0 listens.
        timeout: seconds to wait for the others; None for 300.

    Raises:
        DistBackendError: not all came in time; on rank 0 the message names who did not. Or the port is taken.
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
    """A connection, and how far it has come."""

    def __init__(self, connection):
        self.connection = connection
        self.until = time.monotonic() + PATIENCE
        self.buffer = b""
        self.wanted = _HELLO
        self.hello = self.rank = None
        self.nonce = secrets.token_bytes(_NONCE)


class _Service:
    """Rank 0's side."""

    def __init__(self, server, content, size):
        self.server, self.content = server, content
        self.missing = set(range(1, size))
        self.most = size + CALLERS
        self.callers = {}  # in the order in which they came
        self.selector = selectors.DefaultSelector()

    def run(self, deadline, where):
        """Serve until every rank has been.

        Raises:
            DistBackendError: not all came in time.
        """
        self.server.setblocking(False)
        self.selector.register(self.server, selectors.EVENT_READ)
        try:
            while self.missing:
                now = time.monotonic()
                if now > deadline:
                    ranks = sorted(self.missing)
                    raise DistBackendError(f"init_process_group: ranks {ranks} did not come to {where} in time.")
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
            caller.connection.recv(LONGEST)  # closed with something unread, a connection breaks instead of ending
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
        """Reply to what a caller has said; whether it may go on."""
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
    problem = "there was no time"
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
                    raise ConnectionError(f"it wants to send {length:,} bytes, and is not rank 0")
                content = _read(connection, length, until)
                if not hmac.compare_digest(_read(connection, _PROOF, until), _proof(b"main", hello, nonce, content)):
                    raise ConnectionError("who listens there does not know the token, and is not rank 0")
                connection.sendall(b"k")
                return content
        except OSError as error:  # rank 0 is not there yet
            problem = error
            time.sleep(0.1)
    raise DistBackendError(f"init_process_group: rank {rank} did not reach rank 0 at {address}:{port}: {problem}.")
