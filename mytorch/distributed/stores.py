"""Stores: tables of keys and values that processes share, as in `torch.distributed`.

The base class converts arguments and results. Each subclass runs an operation of `_OPERATIONS` on its table: in memory
(`HashStore`), in a file (`FileStore`), or in another process over a socket (`TCPStore`).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta

from .rendezvous import _NONCE, _PROOF, PATIENCE, _proof, listen
from .work import DistError

_MAGIC = b"mtstore1"
_LARGEST = 1 << 30  # bytes of a message
_MOST_FIELDS = 1 << 16  # of a message
_GRACE = 30.0  # seconds that a client waits for the answer of the server after the timeout of the operation
_POLL = 0.01  # seconds between two looks at a file
_WORKERS = "init/"  # key that counts the processes of a TCPStore or FileStore


class DistStoreError(DistError):
    """An operation of a store failed or timed out."""


class DistNetworkError(DistError):
    """The connection to a TCPStore failed."""


# Each operation receives a dict of bytes, the table, and bytes. It returns a list of bytes, or None if the caller must wait.
def _get(table, *keys):
    return [table[key] for key in keys] if all(key in table for key in keys) else None


def _wait(table, *keys):
    return None if _get(table, *keys) is None else []


def _set(table, *pairs):
    table.update(zip(pairs[::2], pairs[1::2], strict=True))
    return []


def _add(table, key, amount):
    table[key] = str(int(table.get(key, b"0")) + int(amount)).encode()
    return [table[key]]


def _delete(table, key):
    return [b"1" if table.pop(key, None) is not None else b""]


def _check(table, *keys):
    return [b"1" if all(key in table for key in keys) else b""]


_OPERATIONS = {"get": _get, "wait": _wait, "set": _set, "add": _add, "delete": _delete, "check": _check}


def _encoded(value, what):
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{what}: expected str or bytes, got {type(value).__name__}. Convert the value with str(value)."
        )
    return value.encode()


def _seconds(timeout):
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


class Store:
    """The base class of stores: a table of keys and values that processes share.

    Keys are strings. Values are strings or bytes, and are returned as bytes. An operation that waits raises DistStoreError
    after the timeout of the store (default: 300 seconds).

    Example:
        >>> store = mytorch.distributed.HashStore()
        >>> store.set("epoch", "3")
        >>> store.get("epoch"), store.add("steps", 5)
        (b'3', 5)
    """

    def __init__(self):
        self._timeout = timedelta(seconds=300)

    def _request(self, operation, *fields, seconds=None):
        """Run an operation of `_OPERATIONS`; wait at most `seconds` (default: the timeout of the store)."""
        raise NotImplementedError(f"{type(self).__name__}: expected a store with the operation {operation!r}.")

    def set(self, key: str, value: str | bytes) -> None:
        """Stores a value, and replaces the previous value of the key.

        Args:
            key: name of the value.
            value: text or bytes.
        """
        self._request("set", _encoded(key, "set"), _encoded(value, "set"))

    def get(self, key: str) -> bytes:
        """Returns the value of a key. It waits until a process has set the key.

        Args:
            key: name of the value.

        Raises:
            DistStoreError: after the timeout.
        """
        return self._request("get", _encoded(key, "get"))[0]

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, which starts at 0, and returns the result.

        Args:
            key: name of the counter.
            amount: integer to add.

        Raises:
            ValueError: if the value of the key is not an integer.
        """
        return int(self._request("add", _encoded(key, "add"), str(int(amount)).encode())[0])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all keys exist.

        Args:
            keys: names of values.
            timeout: time limit (default: the timeout of the store).

        Raises:
            DistStoreError: after the timeout.
        """
        seconds = None if timeout is None else _seconds(timeout)
        self._request("wait", *(_encoded(key, "wait") for key in keys), seconds=seconds)

    def check(self, keys: Sequence[str]) -> bool:
        """Returns True if all keys exist.

        Args:
            keys: names of values.
        """
        return bool(self._request("check", *(_encoded(key, "check") for key in keys))[0])

    def delete_key(self, key: str) -> bool:
        """Deletes a key. Returns True if it existed.

        Args:
            key: name of the value.
        """
        return bool(self._request("delete", _encoded(key, "delete_key"))[0])

    def clone(self) -> Store:
        """Returns a store with the same table."""
        return self

    @property
    def timeout(self) -> timedelta:
        """The time limit of operations that wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time limit of operations that wait.

        Args:
            timeout: time limit.
        """
        self._timeout = timeout if isinstance(timeout, timedelta) else timedelta(seconds=float(timeout))


class HashStore(Store):
    """A store in the memory of this process. Its threads may share it.

    Example:
        >>> store = mytorch.distributed.HashStore()
        >>> store.set("leader", "rank 0")
        >>> store.get("leader"), store.check(["leader", "epoch"])
        (b'rank 0', False)
    """

    def __init__(self):
        super().__init__()
        self._table, self._changed = {}, threading.Condition()

    def _request(self, operation, *fields, seconds=None):
        seconds = _seconds(self.timeout) if seconds is None else seconds
        deadline = time.monotonic() + seconds
        with self._changed:
            while (result := _OPERATIONS[operation](self._table, *fields)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise _late(operation, seconds, fields)
                self._changed.wait(left)
            self._changed.notify_all()
        return result


def _late(operation, seconds, fields):
    names = ", ".join(f"/{field.decode(errors='replace')}" for field in fields)
    return DistStoreError(f"{operation} timeout after {seconds * 1000:.0f}ms, keys: {names}")


class FileStore(Store):
    """A store in a file, for processes on one machine or with a shared file system that has locks. It needs a Unix system.

    Args:
        file_name: path of the file, which is created if it does not exist.
        world_size: number of processes. The last of them deletes the file when its store is deleted. A negative number
            keeps the file (default: -1).

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "store")
        >>> first, second = (mytorch.distributed.FileStore(path, 2) for _ in range(2))
        >>> first.set("address", "127.0.0.1:1234")
        >>> second.get("address")
        b'127.0.0.1:1234'
    """

    def __init__(self, file_name: str, world_size: int = -1):
        super().__init__()
        self.path = os.fspath(file_name)
        self._world_size = world_size
        self.add(_WORKERS, 1)
        if world_size >= 0:
            weakref.finalize(self, _leave_file, self.path, world_size)

    def _request(self, operation, *fields, seconds=None):
        seconds = _seconds(self.timeout) if seconds is None else seconds
        deadline = time.monotonic() + seconds
        while (result := _in_file(self.path, operation, fields)) is None:
            if time.monotonic() >= deadline:
                raise _late(operation, seconds, fields)
            time.sleep(_POLL)
        return result

    def clone(self) -> Store:
        """Returns a store with the same file."""
        return FileStore(self.path)


def _in_file(path, operation, fields):
    """Run an operation on the table in a file, under the lock of the file."""
    import fcntl  # only on Unix

    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = file.read()
        fields_there = _unpacked(content)
        table = dict(zip(fields_there[::2], fields_there[1::2], strict=True))
        result = _OPERATIONS[operation](table, *fields)
        changed = _packed([x for pair in table.items() for x in pair])
        if changed != content:
            file.seek(0)
            file.write(changed)
            file.truncate()
    return result


def _leave_file(path, world_size):
    with contextlib.suppress(OSError):
        if os.path.exists(path) and int(_in_file(path, "add", (b"cleanup/", b"1"))[0]) >= world_size:
            os.remove(path)


def _packed(fields):
    """Return the bytes of a list of byte strings."""
    return b"".join(struct.pack("<I", len(field)) + field for field in fields)


def _unpacked(content):
    fields, position = [], 0
    while position < len(content):
        (length,) = struct.unpack_from("<I", content, position)
        fields.append(content[position + 4 : position + 4 + length])
        position += 4 + length
    return fields


class TCPStore(Store):
    """A store in the memory of one process, the master. The other processes connect to it.

    The master listens only at the address of `host_name`. The processes prove that they have the token of the launcher
    (MYTORCHRUN_TOKEN) without sending it. Without a token, any process that can reach the address may connect.

    Args:
        host_name: address of the master.
        port: port of the master. The master selects a free port for 0.
        world_size: number of processes, with the master (default: any number).
        is_master: True in the process with the table (default: False).
        timeout: time limit of the connection and of operations that wait (default: 300 seconds).
        wait_for_workers: the master waits until `world_size` processes are connected (default: True).
        multi_tenant: True to use the master that this process has at the same address with `multi_tenant`, if any (default: False).
        master_listen_fd: file descriptor of a bound socket for the master, which it closes (default: a new socket).
        use_libuv: accepted for PyTorch's signature; the transport is the same for both values.

    Raises:
        DistNetworkError: if the connection fails.
        DistBackendError: if the master cannot listen at the address.
        DistStoreError: if processes are missing after the timeout.

    Example:
        >>> master = mytorch.distributed.TCPStore("127.0.0.1", 0, is_master=True)
        >>> worker = mytorch.distributed.TCPStore("127.0.0.1", master.port)
        >>> master.set("learning rate", "0.1")
        >>> worker.get("learning rate")
        b'0.1'
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ):
        super().__init__()
        self.set_timeout(timeout)
        self._server = None
        self._lock = threading.Lock()
        if is_master:
            if multi_tenant:
                self._server = _shared.get((host_name, port))
            if self._server is None:
                self._server = _Server(host_name, port, master_listen_fd)
            port = self._server.port
            if multi_tenant:
                _shared[host_name, port] = self._server
        self.host, self.port = host_name, port
        self._connection = _connect(host_name, port, _seconds(self.timeout))
        self._file = self._connection.makefile("rb")
        self._count_workers(world_size if wait_for_workers else None, is_master)

    def _count_workers(self, world_size, is_master):
        connected = self.add(_WORKERS, 1)
        if world_size is not None and world_size > 0 and is_master:
            deadline = time.monotonic() + _seconds(self.timeout)
            while connected < world_size:
                if time.monotonic() > deadline:
                    raise DistStoreError(
                        f"TCPStore: expected {world_size} processes, got {connected} after {_seconds(self.timeout):g} seconds."
                    )
                time.sleep(_POLL)
                connected = self.add(_WORKERS, 0)

    def _request(self, operation, *fields, seconds=None):
        seconds = _seconds(self.timeout) if seconds is None else seconds
        with self._lock:
            try:
                self._connection.settimeout(seconds + _GRACE)
                _send(self._connection, [operation.encode(), repr(seconds).encode(), *fields])
                kind, *result = _receive(self._file)
            except (OSError, EOFError) as error:
                raise DistNetworkError(
                    f"TCPStore: the connection to {self.host}:{self.port} failed: {error}."
                ) from None
        if kind == b"ok":
            return result
        problem = {b"late": DistStoreError, b"value": ValueError}[kind]
        raise problem(result[0].decode())

    def clone(self) -> Store:
        """Returns a store with another connection to the master."""
        return TCPStore(self.host, self.port, timeout=self.timeout)

    def __del__(self):
        for name in ("_file", "_connection"):
            with contextlib.suppress(AttributeError, OSError):
                getattr(self, name).close()

    def __repr__(self):
        return f"TCPStore(host={self.host!r}, port={self.port}, is_master={self._server is not None})"


def _send(connection, fields):
    connection.sendall(struct.pack("<I", len(fields)) + _packed(fields))


def _exactly(file, n):
    content = file.read(n)
    if len(content) < n:
        raise EOFError("the other side closed it")
    return content


def _receive(file):
    """Read the fields of a message."""
    (count,) = struct.unpack("<I", _exactly(file, 4))
    if count > _MOST_FIELDS:
        raise OSError(f"expected at most {_MOST_FIELDS:,} fields, got {count:,}")
    fields, left = [], _LARGEST
    for _ in range(count):
        (length,) = struct.unpack("<I", _exactly(file, 4))
        left -= length
        if left < 0:
            raise OSError(f"expected at most {_LARGEST:,} bytes in a message")
        fields.append(_exactly(file, length))
    return fields


def _connect(host, port, seconds):
    """Return a connection to the server, after both sides have proved that they have the token."""
    deadline, problem = time.monotonic() + seconds, "no time left"
    while time.monotonic() < deadline:
        try:
            connection = socket.create_connection((host, port), timeout=min(PATIENCE, deadline - time.monotonic()))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                hello = _MAGIC + secrets.token_bytes(_NONCE)
                connection.sendall(hello)
                nonce = _bytes_of(connection, _NONCE)
                connection.sendall(_proof(b"store client", hello, nonce))
                if not hmac.compare_digest(_bytes_of(connection, _PROOF), _proof(b"store server", hello, nonce)):
                    raise OSError("the server does not have the token")
                return connection
            except BaseException:
                connection.close()
                raise
        except (OSError, EOFError, ValueError) as error:  # the master does not listen yet
            problem = error
            time.sleep(min(0.1, max(deadline - time.monotonic(), 0)))
    raise DistNetworkError(
        f"The client socket has timed out after {seconds * 1000:.0f}ms while trying to connect to ({host}, {port}): {problem}."
    )


def _bytes_of(connection, n):
    content = b""
    while len(content) < n:
        part = connection.recv(n - len(content))
        if not part:
            raise EOFError("the other side closed it")
        content += part
    return content


class _Server:
    """The table of a TCPStore, and one thread for each connection. The threads end with the connections."""

    def __init__(self, host, port, descriptor=None):
        if descriptor is None:
            self.socket = listen(host, port, 128)
        else:
            self.socket = socket.socket(fileno=descriptor)
            self.socket.listen(128)
        self.port = self.socket.getsockname()[1]
        weakref.finalize(self, _close, self.socket)
        threading.Thread(target=_accept, args=(self.socket, HashStore()), daemon=True).start()


_shared: weakref.WeakValueDictionary[tuple[str, int], _Server] = weakref.WeakValueDictionary()  # of `multi_tenant`


def _close(server):
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)  # ends `accept` in the other thread
    server.close()


def _accept(server, store):
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return  # the server was closed
        threading.Thread(target=_serve, args=(connection, store), daemon=True).start()


def _serve(connection, store):
    """Check the token of a client and answer its requests."""
    with connection, contextlib.suppress(OSError, EOFError, ValueError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE)
        hello = _bytes_of(connection, len(_MAGIC) + _NONCE)
        if hello[: len(_MAGIC)] != _MAGIC:
            return
        nonce = secrets.token_bytes(_NONCE)
        connection.sendall(nonce)
        if not hmac.compare_digest(_bytes_of(connection, _PROOF), _proof(b"store client", hello, nonce)):
            return
        connection.sendall(_proof(b"store server", hello, nonce))
        connection.settimeout(None)
        with connection.makefile("rb") as file:
            while True:
                _send(connection, _answer(store, _receive(file)))


def _answer(store, message):
    operation, seconds, *fields = message
    try:
        return [b"ok", *store._request(operation.decode(), *fields, seconds=float(seconds))]
    except DistStoreError as error:
        return [b"late", str(error).encode()]
    except (KeyError, TypeError, ValueError) as error:
        return [b"value", f"{operation.decode(errors='replace')}: {error}".encode()]
