"""pytest in a separate process, for checks that change the library or Triton for the whole process."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_pytest(*arguments, **environment):
    """Runs pytest with the given files and options; returns its output. Variables are set, or removed if None.

    Raises:
        AssertionError: a test failed.
    """
    variables = {**os.environ, **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    command = [sys.executable, "-m", "pytest", "--tb=short", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += [str(argument) for argument in arguments]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def run_checks(*arguments, **environment):
    """Calls `run_pytest` on one thread and ignores warnings."""
    return run_pytest("-W", "ignore", *arguments, **{"OMP_NUM_THREADS": "1", **environment})
