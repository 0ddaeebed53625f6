"""Running programs under the real launcher, in tests."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
WITHOUT_FIGURES = ROOT / "tests" / "without_figures"


def needs_mpi():
    """Skip where mpi4py or mpiexec is missing."""
    pytest.importorskip("mpi4py")
    from mytorch.distributed.launcher import find_mpiexec

    if find_mpiexec() is None:
        pytest.skip("there is no mpiexec")


def environment(**extra):
    """This process's environment without a launcher's variables, with the repository on the path and without figures."""
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(WITHOUT_FIGURES), env.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**env, "OMP_NUM_THREADS": "1", **extra}


def connected(port):
    """A connection to a port of this machine on which something will listen soon."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        time.sleep(0.01)
    raise AssertionError(f"nothing listens on port {port}")


def launch(n, script, *args, timeout=60, options=(), limit=120, module="mytorch.distributed.run", **env):
    """Runs a script as n ranks; returns the result of subprocess.run."""
    if n > 1:
        needs_mpi()
    command = [
        sys.executable,
        "-m",
        module,
        "--cpu",
        "--nproc_per_node",
        str(n),
        "--timeout",
        str(timeout),
        *options,
        str(script),
        *map(str, args),
    ]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=limit, cwd=ROOT, env=environment(**env), check=False
        )
    except subprocess.TimeoutExpired as error:
        printed = b"\n".join(text or b"" for text in (error.stdout, error.stderr)).decode(errors="replace")
        pytest.fail(f"{script} on {n} ranks did not end in {limit} s:\n{printed}")


def results_of(n, program, path, **options):
    """The results that a program of checks has written."""
    done = launch(n, PROGRAMS / program, path, **options)
    if not Path(path).is_file():
        pytest.fail(
            f"{program} on {n} ranks wrote no results (exit code {done.returncode}):\n{done.stdout}\n{done.stderr}"
        )
    return json.loads(Path(path).read_text())


def checks_in(program):
    """The names of the checks in a program."""
    lines = (PROGRAMS / program).read_text().splitlines()
    return [line[4 : line.index("(")] for line in lines if line.startswith("def check_")]
