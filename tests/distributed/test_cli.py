"""mytorchrun: config, test, env and launch."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

import mytorch
from mytorch import cli
from mytorch.cli import configure, launch
from mytorch.cli.configuration import Configuration, default_path
from mytorch.distributed.launcher import Job

from .launching import ROOT, environment, needs_mpi


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def answer(monkeypatch, *answers):
    given = iter(answers)

    def fake(prompt):
        try:
            return next(given)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", fake)


def mytorchrun(*args, home, **options):
    return subprocess.run(
        [sys.executable, "-m", "mytorch.cli", *map(str, args)],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
        env=environment(XDG_CONFIG_HOME=str(home / "config")), **options,
    )  # fmt: skip


def test_commands(capsys):
    assert cli.main([]) == 0
    assert "mytorchrun config" in capsys.readouterr().out
    assert cli.main(["lunch"]) == 2
    assert "got 'lunch'" in capsys.readouterr().err


def test_mytorchrun_prints_its_version_and_its_help(capsys):
    assert cli.main([]) == 0
    assert "mytorchrun launch script.py" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"mytorchrun {mytorch.__version__}\n"


def test_config_without_questions(monkeypatch, capsys):
    monkeypatch.setattr(configure, "device_count", lambda: 0)
    assert cli.main(["config", "--default"]) == 0
    written = Configuration.read(default_path())
    assert (written.device, written.num_processes, written.master_port) == ("cpu", 1, 13333)
    assert str(default_path()) in capsys.readouterr().out
    assert cli.main(["config", "--show"]) == 0
    assert "device: cpu" in capsys.readouterr().out


def test_config_asks_again_after_a_wrong_answer(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(configure, "device_count", lambda: 0)
    answer(monkeypatch, "two", "0", "2", "", "70000", "14000", "fp8", "BF16", "on", "maybe", "y", "yes")
    path = tmp_path / "mine.yaml"
    assert cli.main(["config", "--config_file", str(path)]) == 0
    out = capsys.readouterr().out
    for wrong in ("got 'two'", "got '0'", "got '70000'", "got 'fp8'", "expected yes or no, got 'maybe'"):
        assert wrong in out
    assert Configuration.read(path) == Configuration(
        num_processes=2, master_port=14000, mixed_precision="bf16", fused="on", log_wandb=True
    )


def test_config_on_a_machine_with_gpus(monkeypatch, capsys):
    monkeypatch.setattr(configure, "device_count", lambda: 4)
    answer(monkeypatch, "gpu", "5", "2", "1,1", "1,3", "2", "1", "127.0.0.1", "10.0.0.1", "", "", "", "max", "", "")
    assert cli.main(["config"]) == 0
    c = Configuration.read(default_path())
    assert (c.device, c.num_processes, c.gpu_indices, c.num_machines, c.machine_rank) == ("gpu", 2, [1, 3], 2, 1)
    assert (c.master_addr, c.mixed_precision, c.autotune) == ("10.0.0.1", "bf16", "max")


def test_config_that_is_not_confirmed_or_finished_writes_nothing(monkeypatch, capsys):
    monkeypatch.setattr(configure, "device_count", lambda: 0)
    answer(monkeypatch, "1", "", "", "", "no")
    assert cli.main(["config"]) == 1
    answer(monkeypatch, "1")
    assert cli.main(["config"]) == 1
    assert "input ended" in capsys.readouterr().err
    assert not default_path().exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("num_processes: many", "num_processes: expected an integer from 1 to 65536, got 'many'"),
        ("colour: red", "got 'colour: red'"),
        ("mixed_precision: fp8", "mixed_precision: expected one of no, fp16, bf16, got 'fp8'"),
        ("gpu_indices: [0, 0]", "expected different numbers"),
        ("num_machines: 2", "other machines can reach"),
        ("just text", "expected one of the settings"),
    ],
)
def test_a_wrong_file_is_refused(line, message, tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        Configuration.read(path)
    assert cli.main(["launch", "--config", str(path), "script.py"]) == 2
    assert message in capsys.readouterr().err


def test_the_file_is_yaml():
    c = Configuration(
        mixed_precision="no", fused="on", master_addr="node-1.lan", gpu_indices=[0, 1], num_processes=2, log_wandb=True
    )
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(c.text()) == c.__dict__
    path = default_path()
    c.write(path)
    path.write_text(yaml.safe_dump(yaml.safe_load(c.text()), default_flow_style=None))
    assert Configuration.read(path) == c


def job_of(*words):
    return launch.job(launch.run.parse(words, "x", launch.parser))


def test_the_command_line_wins_over_the_file():
    Configuration(num_processes=3, mixed_precision="bf16", fused="off", timeout=9).write(default_path())
    job = job_of("script.py", "--config", "theirs")
    assert (job.n, job.mpi, job.env["MYTORCHRUN_TIMEOUT"]) == (3, True, "9")
    assert (job.env["MYTORCHRUN_MIXED_PRECISION"], job.env["MYTORCH_FUSED"]) == ("bf16", "0")
    assert job.command[-2:] == ["--config", "theirs"]
    job = job_of(
        "--nproc_per_node", "2", "--mixed_precision", "no", "--timeout", "5", "--master_port", "15000", "script.py"
    )
    assert (job.n, job.env["MYTORCHRUN_MIXED_PRECISION"]) == (2, "no")
    assert (job.env["MYTORCHRUN_TIMEOUT"], job.env["MASTER_PORT"]) == ("5.0", "15000")


def test_a_missing_file_is_named(capsys):
    assert cli.main(["launch", "--config", "nowhere.yaml", "script.py"]) == 2
    assert "nowhere.yaml" in capsys.readouterr().err


def test_env(home):
    done = mytorchrun("env", home=home)
    assert done.returncode == 0
    for name in ("Python: 3", "numpy: ", "MPI: ", "GPU", "Configuration: none"):
        assert name in done.stdout


@pytest.mark.parametrize("n", [1, 2])
def test_test_passes(n, home):
    if n > 1:
        needs_mpi()
    Configuration(num_processes=n).write(default_path())
    done = mytorchrun("test", home=home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("PASS\n")
    assert len(re.findall(r" ok  ", done.stdout)) == (10 if n > 1 else 8)  # a single process has no peer


def test_test_fails_where_something_is_wrong(home, tmp_path):
    """The test command detects a collective with a wrong result and names it."""
    broken = tmp_path / "site"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import mytorch.distributed as d\nreal = d.reduce\n"
        "def wrong(tensor, *a, **k):\n    real(tensor, *a, **k)\n    tensor.data[0] = 99\nd.reduce = wrong\n"
    )
    env = environment(XDG_CONFIG_HOME=str(home / "config"))
    env["PYTHONPATH"] = str(broken) + ":" + env["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, "-m", "mytorch.cli", "test", "--cpu"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=env,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "FAIL: broadcast, reduce" in done.stdout
    assert "reduce: expected" in done.stdout


def test_wrong_flags_are_one_line_and_help_shows_no_placeholders(capsys):
    for arguments in (["launch", "--colour"], ["test", "x.py"], ["env", "--colour"], ["config", "--colour"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert said.startswith(f"mytorchrun {arguments[0]}: ")
        assert said.endswith("; see --help.\n")
        assert len(said.splitlines()) == 1
    with pytest.raises(SystemExit):
        cli.main(["test", "--help"])
    said = capsys.readouterr().out
    assert "SUPPRESS" not in said
    assert "--nproc_per_node" in said


def test_env_may_be_cut_off():
    command = f"{sys.executable} -m mytorch.cli env | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.stdout.startswith("Python: ")
    assert done.stderr == ""


def test_config_checks_processes_and_addresses(monkeypatch, capsys):
    monkeypatch.setattr(configure.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(configure, "device_count", lambda: 0)
    answer(monkeypatch, "7", "2", "y e s", "127.0.0.1", "", "", "", "", "")
    assert cli.main(["config"]) == 0
    said = capsys.readouterr().out
    assert "expected an integer from 1 to 2, got '7'" in said
    assert "got 'y e s'" in said


def test_a_bar_of_rank_0_stays_below_the_lines_of_all(capfd):
    job = Job(["true"], 2, mpi=False, env={})
    job.terminal = True
    ranks = [SimpleNamespace(number=i, partial={b"o": b"", b"e": b""}, tail=b"") for i in range(2)]
    job._show(ranks[0], b"e", b"\r 10%|#  |")
    job._show(ranks[1], b"o", b"a line\n")
    job._show(ranks[1], b"e", b"\r 10%| of rank 1")
    job._show(ranks[0], b"e", b"\r100%|###|\n")
    out, err = capfd.readouterr()
    assert out == "[1] a line\n"
    wipe = "\033[K"
    assert err == f"\r[0]  10%|#  |{wipe}\r{wipe}\r[0]  10%|#  |{wipe}\r{wipe}[0] 100%|###|\n\r{wipe}"
    assert job.bar == b""
