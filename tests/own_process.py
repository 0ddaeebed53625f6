"""pytest in a process of its own, for checks that change the library, or Triton, for their whole process."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_pytest(*arguments, **environment):
    """Run pytest with these files and options, and variables that are set, or taken away by None; what it prints.

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
    """As `run_pytest`, on one thread, whatever is warned of."""
    return run_pytest("-W", "ignore", *arguments, **{"OMP_NUM_THREADS": "1", **environment})
