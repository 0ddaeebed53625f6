"""Launcher: starts the ranks of this machine, prints their output, and ends them together.

Ranks on CPUs are started through mpiexec, which MPI requires. Ranks on GPUs, and a single rank, are plain processes.
In both cases each rank has a parent process (`supervise.py`) that reports to the launcher over a socket. Exit codes,
signals and output are therefore the same. The first rank that fails determines the result of the program. The
launcher sends SIGTERM to the other ranks, later SIGKILL, and prints the end of the failed rank's output again.
If the launcher is killed, the supervisors notice the closed connection and end the ranks.
"""

import contextlib
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .collective_log import CollectiveLog
from .rendezvous import CALLERS, listen

END_AFTER = 5.0  # seconds from SIGTERM to SIGKILL after a failure
INTERRUPT_AFTER = 30.0  # seconds to SIGKILL after Ctrl-C or SIGTERM: a rank may be writing a checkpoint
START_WITHIN = 120.0  # seconds until all ranks have connected
STRANGERS = 10.0  # seconds until a connection must identify itself
_SAYING = 4096  # bytes that it may send before
_MESSAGE = 1 << 20  # bytes of a supervisor's message
_TAIL = 16384  # bytes of a rank's error output to keep


def find_mpiexec():
    """Return the path of mpiexec, or None. The mpich wheel puts it next to Python, which is preferred to the PATH."""
    return shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")


def mpiexec_command(n):
    """Return the command line of mpiexec for n processes on this machine.

    Raises:
        RuntimeError: if mpiexec is missing.
    """
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise RuntimeError("several CPU processes require mpiexec. Run `pip install mpi4py mpich`.")
    about = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    if "Open MPI" in about or "OpenRTE" in about:
        return [mpiexec, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-n", str(n)]
    return [mpiexec, "-launcher", "fork", "-n", str(n)]  # MPICH: "fork" starts local processes, without SLURM's srun


def free_port():
    """Return a port that is free on all addresses of this machine."""
    # Below 32768, where systems take the ports of outgoing connections from: such a connection could take the port before a server does.
    for port in (*(20000 + secrets.randbelow(12768) for _ in range(50)), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("", port))
                return probe.getsockname()[1]
    raise OSError("no port is free.")


_SHM = Path("/dev/shm")


def shared_segments():
    """Return the names of MPI's shared memory segments on this machine."""
    if not _SHM.is_dir():
        return set()
    return {name for name in os.listdir(_SHM) if name.startswith(("mpich", "vader", "sm_segment", "openmpi", "ompi"))}


def remove_segments(before):
    """Remove segments of ranks that ended without MPI_Finalize: new, owned by this user, and not mapped.

    Args:
        before: result of `shared_segments` before the ranks started.
    """
    for name in shared_segments() - before:
        path = str(_SHM / name)
        with contextlib.suppress(OSError):
            if os.stat(path).st_uid == os.getuid() and not _is_mapped(path):
                os.remove(path)


def _is_mapped(path):
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if path in maps.read_text():
                return True
    return False


class Rank:
    """State of one rank, as seen by the launcher."""

    def __init__(self, number):
        self.number = number
        self.connection = None
        self.pid = None
        self.code = None
        self.partial = {b"o": b"", b"e": b""}
        self.tail = b""

    def send(self, kind, content=b""):
        """Send a message to the supervisor, which may have ended."""
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.sendall(struct.pack("<cI", kind, len(content)) + content)


class Link:
    """Connection between the launchers of several machines: a failure on one machine ends all ranks.

    The launcher of the first machine listens on port MASTER_PORT + 1, and the others connect to it. Each sends one
    line: "done" if all ranks of the machine ended well, and an error message otherwise. A closed connection counts as
    a failure. A connection begins with the user's MYTORCHRUN_TOKEN, if it is set.
    """

    def __init__(self, node, nodes, address, port, run_id=""):
        self.node, self.nodes = node, nodes
        self.address, self.port = address, port + 1
        self.token = (os.environ.get("MYTORCHRUN_TOKEN", "") + run_id).encode()
        self.others = {}  # connection -> received bytes
        self.job = None
        self.said = False
        self.server = None

    def attach(self, job, stack):
        """Listen or connect, and join the event loop of the job."""
        self.job = job
        if self.node == 0:
            self.server = stack.enter_context(listen(self.address, self.port, self.nodes + CALLERS))
            job.selector.register(self.server, selectors.EVENT_READ, self._accept)
            return
        until = time.monotonic() + START_WITHIN
        while True:
            try:
                connection = socket.create_connection((self.address, self.port), timeout=5.0)
                break
            except OSError as error:
                if time.monotonic() > until or job.signal is not None:
                    raise RuntimeError(
                        f"machine {self.node}: no connection to the launcher at {self.address}:{self.port}: {error}"
                    ) from None
                time.sleep(0.2)
        connection.sendall(self.token + b"\n")
        self._add(connection, known=True)

    def _accept(self, server):
        strangers = [c for c, state in self.others.items() if state[0] is False]
        if len(strangers) >= CALLERS:  # drop the oldest
            self.job.selector.unregister(strangers[0])
            strangers[0].close()
            del self.others[strangers[0]]
        self._add(server.accept()[0], known=False)

    def _add(self, connection, known):
        connection.settimeout(None)
        self.others[connection] = [known, b""]
        self.job.selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection):
        state = self.others[connection]
        try:
            content = connection.recv(4096)
        except OSError:
            content = b""
        state[1] += content
        *lines, state[1] = state[1].split(b"\n")
        if len(state[1]) > _SAYING:
            content, lines = b"", []
        for line in lines:
            if not state[0]:
                state[0] = secrets.compare_digest(line, self.token)
                if not state[0]:
                    content = b""
                    break
            elif line == b"done":
                state[0] = None  # it may close now
            else:
                self._failed(line.decode(errors="replace"))
        if not content:
            self.job.selector.unregister(connection)
            connection.close()
            if self.others.pop(connection)[0]:
                self._failed("a machine was lost")

    def _failed(self, what):
        if self.job.failed is None and self.job.reason is None:
            self.job.reason = what
            self.tell(what)  # the first machine informs the others
            self.job.end(END_AFTER)

    def tell(self, what):
        """Send a line to the other launchers, once."""
        if self.said:
            return
        self.said = True
        for connection in self.others:
            with contextlib.suppress(OSError):
                connection.sendall(what.encode() + b"\n")


class Job:
    """The ranks of one program on this machine.

    Args:
        command: command line of each rank.
        n: number of ranks on this machine.
        mpi: start the ranks through mpiexec.
        env: environment variables to add for all ranks.
        first: number of the first rank on this machine.
        world: number of ranks on all machines.
        output: "all" prints the lines of every rank with its number; "main" prints rank 0 only, unchanged.
        link: Link to the launchers of the other machines, or None.
    """

    def __init__(self, command, n, *, mpi, env, first=0, world=None, output="all", link=None):
        self.command, self.mpi = list(command), mpi
        self.n, self.first = n, first
        self.world = n if world is None else world
        self.output = output
        self.terminal, self.bar = sys.stderr.isatty(), b""
        self.link = link
        self.env = {**os.environ, **env}
        self.ranks = {first + i: Rank(first + i) for i in range(n)}
        self.failed = None  # (rank, code) of the first failed rank
        self.reason = None  # of a failure outside the ranks
        self.signal = None
        self.deadline = None
        self.processes = []
        self.who, self.buffers = {}, {}  # by connection: the rank, and the start of its next message
        self.strangers = {}  # connections without identification, with their times
        self.selector = selectors.DefaultSelector()

    # -- starting --------------------------------------------------------------------------------

    def run(self):
        """Run the program and return its exit code."""
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        wanted = [s for s in signals if signal.getsignal(s) != signal.SIG_IGN]  # nohup ignores SIGHUP
        handlers = {s: signal.signal(s, self._interrupted) for s in wanted}
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [signal.signal(s, h) for s, h in handlers.items()])
            stack.callback(lambda: [key.fileobj.close() for key in self.selector.get_map().values()])
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=self.n))
            self.token = secrets.token_hex(16)
            control = f"127.0.0.1:{server.getsockname()[1]}"
            self.env.update(MYTORCHRUN_CONTROL=control, MYTORCHRUN_CONTROL_TOKEN=self.token)
            if self.world == self.n > 1:
                log = CollectiveLog.create(self.n)
                stack.callback(lambda: os.path.exists(log) and os.remove(log))
                self.env["MYTORCHRUN_COLLECTIVE_LOG"] = log
            if self.world == self.n:
                self.env["MYTORCHRUN_TOKEN"] = self.token
            self.log = stack.enter_context(tempfile.TemporaryFile())
            self.selector.register(server, selectors.EVENT_READ, self._accept)
            if self.link is not None:
                self.link.attach(self, stack)
            if self.mpi:
                stack.callback(remove_segments, shared_segments())
            stack.callback(self._end_processes)
            self._start()
            self._loop()
            for rank in self.ranks.values():
                self._flush(rank)
            self._end_processes()
            if self.link is not None:
                well = self.failed is None and self.reason is None
                self.link.tell("done" if well else f"a rank of machine {self.link.node} failed")
            return self._report()

    def _start(self):
        supervise = [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervise.py")), *self.command]
        self.started = time.monotonic()

        def start(command, env):
            streams = {"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log}
            self.processes.append(subprocess.Popen(command, env=env, start_new_session=True, **streams))

        common = {**self.env, "WORLD_SIZE": str(self.world), "LOCAL_WORLD_SIZE": str(self.n)}
        if self.terminal:  # width for progress bars, after "[0] "
            common |= {"MYTORCHRUN_TERMINAL": "1", "COLUMNS": str(shutil.get_terminal_size().columns - 5)}
        if self.mpi:
            for name in ("RANK", "LOCAL_RANK"):
                common.pop(name, None)
            start([*mpiexec_command(self.n), *supervise], common)
        else:
            for i in range(self.n):
                start(supervise, {**common, "RANK": str(self.first + i), "LOCAL_RANK": str(i)})

    # -- the loop --------------------------------------------------------------------------------

    def _loop(self):
        while any(rank.code is None for rank in self.ranks.values()):
            for key, _ in self.selector.select(0.1):
                key.data(key.fileobj)
            now = time.monotonic()
            for connection in [c for c, since in self.strangers.items() if now - since > STRANGERS]:
                self._close(connection)
            missing = [rank.number for rank in self.ranks.values() if rank.connection is None]
            if missing and self.failed is None:
                ended = all(p.poll() is not None for p in self.processes)
                if ended or now - self.started > START_WITHIN:
                    self.reason = f"rank {missing[0]} did not start"
                    return
            if missing and self.deadline is not None and now > self.deadline:
                return
            if self.deadline is not None and now > self.deadline:
                self.deadline = now + 2.0
                for rank in self.ranks.values():
                    if rank.code is None:
                        rank.send(b"k")

    def _accept(self, server):
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffers[connection] = b""
        self.selector.register(connection, selectors.EVENT_READ, self._read)
        if len(self.strangers) >= CALLERS:  # drop the oldest
            self._close(next(iter(self.strangers)))
        self.strangers[connection] = time.monotonic()

    def _close(self, connection):
        self.selector.unregister(connection)
        connection.close()
        self.strangers.pop(connection, None)
        del self.buffers[connection]

    def _read(self, connection):
        try:
            content = connection.recv(1 << 17)
        except OSError:
            content = b""
        buffer = self.buffers[connection] + content
        while content and len(buffer) >= 5:
            kind, length = struct.unpack("<cI", buffer[:5])
            if length > (_MESSAGE if connection in self.who else _SAYING):
                content = b""
                break
            if len(buffer) < 5 + length:
                break
            message, buffer = buffer[5 : 5 + length], buffer[5 + length :]
            if connection not in self.who:
                if not self._welcome(connection, kind, message):
                    content = b""
            elif kind == b"x":
                self._ended(self.who[connection], json.loads(message)["code"])
            elif kind in (b"o", b"e"):
                self._show(self.who[connection], kind, message)
        self.buffers[connection] = buffer
        if not content:
            self._close(connection)
            rank = self.who.get(connection)
            if rank is not None and rank.code is None:  # the supervisor has ended, and with it the rank
                self._ended(rank, -signal.SIGKILL)

    def _welcome(self, connection, kind, message):
        """Return True if this is the supervisor of one of the ranks; it must send the token."""
        try:
            hello = json.loads(message) if kind == b"h" else None
        except ValueError:
            return False
        given = str(hello.get("token")) if isinstance(hello, dict) else ""
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return False
        rank = self.ranks.get(hello["rank"])
        if rank is None or rank.connection is not None:
            return False
        self.who[connection] = rank
        del self.strangers[connection]
        rank.connection, rank.pid = connection, hello["pid"]
        if self.deadline is not None:
            rank.send(b"s", str(int(self.signal or signal.SIGTERM)).encode())
        return True

    # -- output ----------------------------------------------------------------------------------

    def _show(self, rank, kind, content):
        if kind == b"e":
            rank.tail = (rank.tail + content)[-_TAIL:]
        stream = (sys.stdout if kind == b"o" else sys.stderr).buffer
        if self.output == "main" or self.world == 1:
            if rank.number == 0:
                stream.write(content)
                stream.flush()
            return
        *lines, rest = (rank.partial[kind] + content).split(b"\n")
        rank.partial[kind] = rest[max(rest.rfind(b"\r", 0, -1), 0) :]
        if self.bar and lines:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        for line in lines:
            self._line(rank, stream, line)
        stream.flush()
        if rank.number == 0 and kind == b"e":
            self._show_bar(rest if b"\r" in rest else b"")
        elif self.bar and lines:
            self._show_bar(self.bar)

    def _show_bar(self, text):
        """Print the progress bar of rank 0 below the other lines if the output is a terminal."""
        text = text.rstrip(b"\r").rpartition(b"\r")[2].rstrip()
        if self.terminal and (text or self.bar):
            sys.stderr.buffer.write(b"\r" + (b"[0] " + text if text else b"") + b"\033[K")
            sys.stderr.flush()
        self.bar = text if self.terminal else b""

    @staticmethod
    def _line(rank, stream, line):
        line = line.rstrip(b"\r").rpartition(b"\r")[2]  # the last state of a progress bar
        stream.write(b"[%d] " % rank.number + line + b"\n")

    def _flush(self, rank):
        for kind, stream in ((b"o", sys.stdout.buffer), (b"e", sys.stderr.buffer)):
            if rank.partial[kind]:
                self._line(rank, stream, rank.partial[kind])
                rank.partial[kind] = b""
            stream.flush()

    # -- ending ----------------------------------------------------------------------------------

    def _ended(self, rank, code):
        rank.code = code
        if code != 0 and self.failed is None:
            self.failed = (rank.number, code) if self.reason is None else None
            if self.link is not None and self.reason is None:
                self.link.tell(f"rank {rank.number} failed on machine {self.link.node}")
            self.end(END_AFTER if self.signal is None else 2 * END_AFTER, quietly=self.signal is not None)

    def end(self, within, quietly=False):
        """Send SIGTERM to the ranks and set the time of SIGKILL.

        Args:
            within: seconds until SIGKILL.
            quietly: send no SIGTERM, because the ranks have already received a signal.
        """
        limit = time.monotonic() + within
        self.deadline = limit if self.deadline is None else min(limit, self.deadline)
        if not quietly:
            self._signal_ranks(signal.SIGTERM)

    def _signal_ranks(self, number):
        for rank in self.ranks.values():
            if rank.code is None:
                rank.send(b"s", str(int(number)).encode())

    def _interrupted(self, number, frame):
        if self.signal is not None:  # the second signal ends the ranks immediately
            self.deadline = 0.0
            return
        self.signal = number
        self.deadline = time.monotonic() + INTERRUPT_AFTER
        self._signal_ranks(number)

    def _end_processes(self):
        """Wait for mpiexec and the supervisors, and kill processes that do not end."""
        for rank in self.ranks.values():
            rank.send(b"q")
        until = time.monotonic() + 3.0
        for process in self.processes:
            try:
                process.wait(max(until - time.monotonic(), 0.05))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _report(self):
        """Print the reason of a failure and return the exit code."""
        if self.failed is None and self.reason is None:
            return 0
        if self.failed is None:
            self.log.seek(0)
            sys.stderr.write(f"mytorchrun: {self.reason}.\n{self.log.read().decode(errors='replace')}")
            sys.stderr.flush()
            return 1
        number, code = self.failed
        if self.signal is not None and code in (-self.signal, 128 + self.signal):
            text = f"ended by {signal.Signals(self.signal).name}.\n"
        elif self.signal is not None and code == -signal.SIGKILL:
            code = -self.signal
            text = f"ended by {signal.Signals(self.signal).name}; rank {number} did not end in time and was killed.\n"
        else:
            how = f"failed with exit code {code}" if code > 0 else f"was killed by {signal_name(-code)}"
            text = f"rank {number} {how}"
            if self.world > 1:
                last = last_words(self.ranks[number].tail)
                text += "; the other ranks were ended." + (f" Last lines of its output:\n{last}" if last else "\n")
            else:
                text += ".\n"
        sys.stderr.write(f"mytorchrun: {text}")
        sys.stderr.flush()
        return code if code > 0 else 128 - code


def signal_name(number):
    """Return the name of a signal, with a frequent cause."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"{name} (out of memory?)" if number == signal.SIGKILL else name


def last_words(tail):
    """Return the traceback at the end of a rank's error output, or its last twenty lines."""
    text = tail.decode(errors="replace")
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not starts:
        lines = lines[-20:]
    else:
        first = starts[-1]
        for earlier in reversed(starts[:-1]):  # include chained exceptions
            between = "\n".join(lines[earlier:first])
            if "During handling of the above" not in between and "direct cause of the following" not in between:
                break
            first = earlier
        lines = lines[first:]
    return "".join(line + "\n" for line in lines)
