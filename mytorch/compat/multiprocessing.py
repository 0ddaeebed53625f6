"""`torch.multiprocessing`: Python's own, and `spawn`. Tensors go between processes as copies.

A process that was started anew does not know that `torch` is this library: under `install_as_torch`, `spawn` forks.
"""

import multiprocessing
import sys
import traceback
from multiprocessing import *  # noqa: F403

from ..base import config

_RAISED = 71  # the exit code of a process that has put its traceback into the queue


class ProcessException(Exception):
    """A process of `spawn` failed; `error_index` says which, and `pid`."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.error_index, self.pid = error_index, pid


class ProcessRaisedException(ProcessException):
    """A process of `spawn` ended with an exception, whose traceback is the message."""


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
        errors.put((i, traceback.format_exc()[-30_000:]))  # less than a pipe holds, which nobody empties meanwhile
        sys.exit(_RAISED)


class ProcessContext:
    """The processes of `spawn(join=False)`."""

    def __init__(self, processes, errors):
        self.processes, self.errors = processes, errors

    def pids(self):
        """The processes' numbers."""
        return [int(p.pid) for p in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Wait for all, or until one fails: then the others are ended. Whether all have ended.

        Raises:
            ProcessException: one failed.
        """
        from multiprocessing.connection import wait  # rarely used

        running = [p.sentinel for p in self.processes if p.is_alive()]
        if running:
            wait(running, timeout)
        ended = not any(p.is_alive() for p in self.processes)  # asked before the exit codes: one may end in between
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
    """Call fn(i, *args) in `nprocs` processes, i being 0, 1, …

    Args:
        join: wait for them; otherwise their ProcessContext is returned.

    Raises:
        ProcessException: one of them failed; the others were ended.
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


def get_all_sharing_strategies():
    """The one there is: tensors are copied."""
    return {"file_system"}


def get_sharing_strategy():
    """The one there is: tensors are copied."""
    return "file_system"


def set_sharing_strategy(new_strategy):
    """Accepted: tensors are copied."""
