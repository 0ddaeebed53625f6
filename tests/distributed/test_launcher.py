"""The launcher: environment, output and termination of the ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mytorch.distributed import environment as variables
from mytorch.distributed import run
from mytorch.distributed.launcher import last_words

from .launching import PROGRAMS, ROOT, environment, launch, needs_mpi


def alive(pid):
    """Returns True if a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids(path):
    return [int(p) for file in path.glob("*.pids") for p in file.read_text().split()]


def assert_no_orphans(path):
    until = time.monotonic() + 60  # on a busy machine the ranks get their turn late
    while any(alive(p) for p in pids(path)) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(pids(path)) >= 2
    assert [p for p in pids(path) if alive(p)] == []


@pytest.mark.parametrize(
    ("how", "code", "cause"),
    [
        ("kill", 137, "rank 1 was killed by SIGKILL"),
        ("raise", 1, "KeyError: 'the cause'"),
        ("exit", 7, "rank 1 failed with exit code 7"),
        ("sleep", 1, "rank 1 is missing"),
        ("stubborn", 137, "rank 1 was killed by SIGKILL"),
    ],
)
def test_the_first_failure_ends_all_ranks(how, code, cause, tmp_path):
    done = launch(3, PROGRAMS / "failing.py", how, tmp_path, timeout=3)  # the other ranks would sleep for ten minutes
    assert done.returncode == code, done.stderr
    end = done.stderr[done.stderr.index("mytorchrun:") :]
    assert cause in end
    if how == "raise":
        assert end.rstrip().endswith(cause)
    assert_no_orphans(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(number, tmp_path):
    needs_mpi()
    command = [
        sys.executable,
        "-m",
        "mytorch.distributed.run",
        "--cpu",
        "--nproc_per_node",
        "2",
        PROGRAMS / "failing.py",
        "graceful",
        tmp_path,
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    )
    for line in process.stdout:
        if "step 3" in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number, err
    assert "[0] saved by 0" in out
    assert "[1] saved by 1" in out
    assert f"ended by {signal.Signals(number).name}" in err
    assert_no_orphans(tmp_path)


def test_killing_the_launcher_leaves_nothing_behind(tmp_path):
    needs_mpi()
    command = [
        sys.executable,
        "-m",
        "mytorch.distributed.run",
        "--cpu",
        "--nproc_per_node",
        "2",
        PROGRAMS / "failing.py",
        "graceful",
        tmp_path,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment())
    for line in process.stdout:
        if "step 3" in line:
            break
    rank = (tmp_path / "1.pids").read_text().split()[0]
    supervisor = int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGSTOP)  # as one that gets its turn after the other rank's
    process.kill()
    process.communicate(timeout=120)
    time.sleep(1)
    os.kill(supervisor, signal.SIGCONT)
    assert_no_orphans(tmp_path)


SHOW = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
for open_mpis, ours in (("RANK", "RANK"), ("LOCAL_RANK", "LOCAL_RANK"), ("SIZE", "WORLD_SIZE")):
    assert os.environ["OMPI_COMM_WORLD_" + open_mpis] == os.environ[ours]
print(*[os.environ[n] for n in names], *sys.argv[1:])
print("no newline", end="")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "show.py"
    path.write_text(SHOW)
    return path


def test_torchruns_environment_and_output_by_rank(script):
    args = ["--num_gpus", "3", "--config", "x", "-m", "--master_port", "1"]  # arguments of the script
    done = launch(2, script, *args, options=("--master_addr", "127.0.0.1", "--master_port", "13456"))
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert lines == sorted(
        [f"[{r}] {r} {r} 2 2 0 127.0.0.1 13456 {' '.join(args)}" for r in range(2)]
        + [f"[{r}] no newline" for r in range(2)]
    )
    assert done.stderr == ""


def test_output_of_rank_0_alone(script):
    done = launch(2, script, options=("--output", "main", "--master_port", "13457"))
    assert done.stdout == "0 0 2 2 0 127.0.0.1 13457\nno newline"


def test_a_rank_may_end_long_after_the_others(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(
        "import time, mytorch\n"
        "mytorch.distributed.init_process_group('mpi')\n"
        "x = mytorch.ones(2)\n"
        "mytorch.distributed.all_reduce(x)\n"
        "time.sleep(2.5 * mytorch.distributed.get_rank())\n"
        "print(x.tolist())\n"
    )
    done = launch(2, script, limit=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] [2.0, 2.0]", "[1] [2.0, 2.0]"]


def test_one_process_is_shown_as_it_is(script):
    done = launch(1, script, module="mytorch.distributed.launch")
    assert done.stdout.startswith("0 0 1 1 0 127.0.0.1 ")
    assert done.stdout.endswith("\nno newline")


def test_the_older_form_and_modules(script):
    command = [sys.executable, "-m", "mytorch.distributed.launch", "--cpu", "--training_script", script, "--lr", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60, check=False)
    assert "--lr 1" in done.stdout
    command = [sys.executable, "-m", "mytorch.distributed.run", "--cpu", "-m", "show", "hi"]
    env = environment()
    env["PYTHONPATH"] += os.pathsep + str(script.parent)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=60, check=False)
    assert " hi\n" in done.stdout


@pytest.mark.parametrize(("restarts", "code", "lines"), [(0, 3, 1), (1, 3, 2), (2, 0, 3), (5, 0, 3)])
def test_a_failed_program_is_restarted(restarts, code, lines, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, sys\n"
        "with open(sys.argv[1], 'a') as file:\n"
        "    file.write(os.environ['MASTER_PORT'] + chr(10))\n"
        "sys.exit(3 if len(open(sys.argv[1]).readlines()) < 3 else 0)\n"
    )
    options = [
        "--max_restarts",
        str(restarts),
        "--rdzv-backend",
        "c10d",
        "--rdzv_endpoint",
        "127.0.0.1:29555",
        "--rdzv_id",
        "7",
    ]
    assert run.main(["--cpu", *options, str(script), str(tmp_path / "log")]) == code
    assert (tmp_path / "log").read_text() == "29555\n" * lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nproc_per_node", "zero"], "expected a number"),
        (["--nproc_per_node", "0"], "at least 1"),
        (["--nproc_per_node", "2", "--num_gpus", "3"], "only one of them"),
        (["--cpu", "--nproc_per_node", "2", "--nnodes", "2"], "mpiexec -hosts"),
        (["--node_rank", "1"], "from 0 to 0"),
        (["--timeout", "0"], "positive number of seconds"),
        (["--rdzv_endpoint", "host:x"], "expected HOST or HOST:PORT"),
    ],
)
def test_wrong_options(options, message, capsys):
    assert run.main([*options, "script.py"]) == 2
    import re

    assert re.search(message, capsys.readouterr().err)


def test_ranks_of_several_machines_are_numbered(monkeypatch):
    monkeypatch.setattr(run, "device_count", lambda: 4)
    args = run.parse(
        [
            "--nproc-per-node",
            "gpu",
            "--nnodes",
            "2",
            "--node-rank",
            "1",
            "--master-addr",
            "a",
            "--master-port",
            "5",
            "s.py",
            "--nnodes",
            "9",
        ]
    )
    job = run.job(args)
    assert (list(job.ranks), job.world, job.mpi) == ([4, 5, 6, 7], 8, False)
    assert (job.env["MASTER_ADDR"], job.env["MASTER_PORT"], job.env["NODE_RANK"]) == ("a", "5", "1")
    assert job.command[-2:] == ["--nnodes", "9"]
    with pytest.raises(ValueError, match="at most 4 processes"):
        run.job(run.parse(["--num_gpus", "5", "s.py"]))
    with pytest.raises(ValueError, match="same --master_addr"):
        run.job(run.parse(["--num_gpus", "4", "--nnodes", "2", "s.py"]))


def test_launchers_that_start_together_select_different_ports():
    ports = {run.job(run.parse(["--nproc_per_node", "1", "s.py"])).env["MASTER_PORT"] for _ in range(8)}
    assert len(ports) == 8


def test_a_command_that_does_not_exist():
    done = launch(1, "there_is_no_such.py")
    assert done.returncode == 2
    assert "there_is_no_such.py" in done.stderr


def test_final_output_keeps_chained_tracebacks_together():
    chained = "noise\nTraceback (most recent call last):\nA\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\nB\n"
    assert last_words(chained.encode()) == chained[6:]
    assert last_words(b"Traceback (most recent call last):\nold\nx\nTraceback (most recent call last):\nB\n").endswith(
        "last):\nB\n"
    )
    assert last_words(b"old\nTraceback (most recent call last):\nB") == "Traceback (most recent call last):\nB\n"
    assert last_words(b"a\nb\n") == "a\nb\n"


MACHINE = """
import sys
from mytorch.distributed import launcher
node, port, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
script = "import os, sys, time; print('rank', os.environ['RANK'], flush=True); "
script += "time.sleep(1); sys.exit(3)" if how == "fail" and node == 1 else "time.sleep(2 if sys.argv[1] == 'well' else 600)"
link = launcher.Link(node, 3, "127.0.0.1", port)
env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
sys.exit(launcher.Job([sys.executable, "-c", script, how], 2, mpi=False, env=env, first=2 * node, world=6, link=link).run())
"""


@pytest.mark.parametrize(("how", "codes"), [("well", [0, 0, 0]), ("fail", [1, 3, 1]), ("lost", [1, -9, 1])])
def test_launchers_of_several_machines_end_together(how, codes):
    from mytorch.distributed.launcher import free_port

    port = free_port()
    machines = [
        subprocess.Popen(
            [sys.executable, "-c", MACHINE, str(node), str(port), how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )
        for node in range(3)
    ]
    if how == "lost":
        for line in machines[1].stdout:
            if "rank 3" in line:
                break
        time.sleep(0.5)
        machines[1].kill()
    told = [m.communicate(timeout=120) for m in machines]
    assert [m.returncode for m in machines] == codes
    if how == "fail":
        assert "rank 2 failed with exit code 3" in told[1][1] or "rank 3 failed with exit code 3" in told[1][1]
        assert "failed on machine 1" in told[0][1]
        assert "failed on machine 1" in told[2][1]


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"])
def test_a_variable_that_is_not_an_integer_is_named(monkeypatch, name):
    for variable, value in (("RANK", "0"), ("WORLD_SIZE", "2"), (name, "x")):
        monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"^{name}: expected an integer, got 'x'"):
        variables.master() if name == "MASTER_PORT" else variables.place()
