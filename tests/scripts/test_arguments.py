"""Flags of scripts as dataclasses: mytorch.cli.arguments."""

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from mytorch.cli.arguments import ArgumentParser, command_line, flag, flags_to_save, inherit_flags, switch


@dataclass
class Flags:
    width: int = flag(8, "width of the model", fixed=True)
    lr: float | None = flag(help="learning rate")
    steps: int = flag(10, "steps")
    kind: str = flag("a", "kind", choices=["a", "b"])
    folder: str | None = flag(help="folder", saved=False)
    quiet: bool = switch("print less", saved=False)
    computed: int = 0


def parse(*argv):
    return ArgumentParser().parse_flags(Flags, argv)


def test_flags_have_the_types_and_defaults_of_their_fields():
    assert parse() == (Flags(8, None, 10, "a", None, False), set())
    flags, given = parse("--lr", "1e-3", "--quiet", "--kind", "b", "--width", "4")
    assert flags == Flags(4, 1e-3, 10, "b", None, True)
    assert given == {"lr", "quiet", "kind", "width"}
    for argv in (["--steps", "x"], ["--kind", "c"], ["--computed", "1"]):
        with pytest.raises(SystemExit):
            parse(*argv)


def test_a_resumed_run_inherits_options_missing_from_the_command_line():
    saved = flags_to_save(Flags(width=4, lr=0.1, steps=20, folder="x", computed=3))
    assert saved == {"width": 4, "lr": 0.1, "steps": 20, "kind": "a", "computed": 3}
    flags, given = parse("--steps", "30", "--width", "5", "--kind", "a")
    differing = inherit_flags(flags, given, {**saved, "unknown": 1, "folder": "y"})
    assert flags == Flags(width=5, lr=0.1, steps=30)
    assert differing == [("width", 5, 4, True), ("steps", 30, 20, False)]


def test_help_shows_a_default_of_zero():
    parser = ArgumentParser(prog="p")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--quiet", action="store_true", help="print less")
    parser.add_argument("--name", help="name of the run")
    text = " ".join(parser.format_help().split())
    assert "seed of the weights (default: 0)" in text
    assert "(default: 0.0)" in text
    assert "(default: False)" not in text
    assert "(default: None)" not in text


def test_lines_appear_in_a_pipe_when_they_are_printed():
    program = "import sys, time\nfrom mytorch.cli.arguments import run_script\nrun_script(lambda: [print('a'), time.sleep(30)][0])"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "a\n"
        assert process.poll() is None
        process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="needs head")
def test_a_closed_pipe_is_not_an_error(tmp_path):
    script = tmp_path / "long.py"
    script.write_text("for i in range(30_000): print(i)\n")
    for words in (f"launch --cpu --nproc_per_node 1 {script}", "launch --help", "env"):
        command = f"{sys.executable} -m mytorch.cli {words} | head -1"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert "Broken pipe" not in done.stderr
        assert "BrokenPipe" not in done.stderr


def test_the_command_to_resume_names_the_interpreter_of_the_environment(tmp_path, monkeypatch):
    args = SimpleNamespace(given={"project_name"}, project_name="a b", run_name=None)
    for folder in (".venv/bin", "other/bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    for path, python in ((".venv/bin", "python"), ("other/bin", ".venv/bin/python"), ("nowhere", ".venv/bin/python")):
        monkeypatch.setenv("PATH", str(tmp_path / path))
        assert command_line("train.py", args, "project_name", "run_name") == f"{python} train.py --project_name 'a b'"
    monkeypatch.chdir(tmp_path / "other")
    assert command_line("train.py", args).startswith(f"{tmp_path}/.venv/bin/python ")
