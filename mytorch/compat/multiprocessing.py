"""`torch.multiprocessing`: Python's module with `spawn`. Queues and pipes copy tensors, except shared ones (`share_memory_`).

A new process does not replace `torch` by this library, so `spawn` forks under `install_as_torch`.
"""

import multiprocessing
import sys
import traceback
from multiprocessing import *  # noqa: F403

from ..arrays import config

__path__: list[str] = []  # PyTorch's module is a package
_RAISED = 71  # exit code of a process that has sent its traceback


class ProcessException(Exception):
    """A process of `spawn` failed. `error_index` is its number and `pid` its process id."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.error_index, self.pid = error_index, pid


class ProcessRaisedException(ProcessException):
    """A process of `spawn` ended with an exception. The message is the traceback."""


class ProcessExitedException(ProcessException):
    """A process of `spawn` ended with an exit code, or by a signal."""

    def __init__(self, msg, error_index, error_pid, exit_code):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code


def _run(fn, i, args, errors):
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.put((i, traceback.format_exc()[-30_000:]))  # fits into a pipe, which is not read in the meantime
        sys.exit(_RAISED)


class ProcessContext:
    """The processes of `spawn(join=False)`."""

    def __init__(self, processes, errors):
        self.processes, self.errors = processes, errors

    def pids(self):
        """Returns the process ids."""
        return [int(p.pid) for p in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Waits until all processes have ended, or one fails; then the others are ended.

        Returns:
            True if all have ended.

        Raises:
            ProcessException: if a process failed.
        """
        from multiprocessing.connection import wait  # rarely used

        running = [p.sentinel for p in self.processes if p.is_alive()]
        if running:
            wait(running, timeout)
        ended = not any(
            p.is_alive() for p in self.processes
        )  # before the exit codes, because a process may end in between
        failed = next((i for i, p in enumerate(self.processes) if p.exitcode), None)
        if failed is None:
            return ended
        process = self.processes[failed]
        for p in self.processes:
            if p.is_alive():
                p.terminate()
        for p in self.processes:
            p.join()
        if process.exitcode == _RAISED:
            i, text = self.errors.get()
            raise ProcessRaisedException(
                f"\n\n-- Process {i} terminated with the following error:\n{text}", i, process.pid
            )
        text = f"process {failed} terminated with exit code {process.exitcode}"
        raise ProcessExitedException(text, failed, process.pid, process.exitcode)


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Calls fn(i, *args) in `nprocs` processes, with i = 0, 1, …

    Args:
        args: further arguments.
        nprocs: number of processes.
        join: wait for the processes; otherwise return their ProcessContext.
        daemon: create daemon processes.
        start_method: start method of Python's multiprocessing.

    Raises:
        ProcessException: if a process failed; the others are ended.
    """
    forks = config.pytorch_mode and start_method == "spawn" and "fork" in multiprocessing.get_all_start_methods()
    mp = multiprocessing.get_context("fork" if forks else start_method)
    errors = mp.SimpleQueue()
    processes = [mp.Process(target=_run, args=(fn, i, args, errors), daemon=daemon) for i in range(nprocs)]
    for process in processes:
        process.start()
    context = ProcessContext(processes, errors)
    while join and not context.join():
        pass
    return None if join else context


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Starts processes, as `spawn` does.

    Args:
        fn: see `spawn`.
        args: see `spawn`.
        nprocs: see `spawn`.
        join: see `spawn`.
        daemon: see `spawn`.
        start_method: see `spawn`.
    """
    return spawn(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies():
    """Returns the only strategy; tensors are copied."""
    return {"file_system"}


def get_sharing_strategy():
    """Returns the only strategy; tensors are copied."""
    return "file_system"


def set_sharing_strategy(new_strategy):
    """Does nothing; tensors are copied."""
