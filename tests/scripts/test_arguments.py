"""Flags of scripts as dataclasses: mytorch.cli.arguments."""

from dataclasses import dataclass

import pytest

from mytorch.cli.arguments import ArgumentParser, flag, flags_to_save, inherit_flags, switch


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


def test_a_run_that_resumes_inherits_what_the_command_line_does_not_give():
    saved = flags_to_save(Flags(width=4, lr=0.1, steps=20, folder="x", computed=3))
    assert saved == {"width": 4, "lr": 0.1, "steps": 20, "kind": "a", "computed": 3}
    flags, given = parse("--steps", "30", "--width", "5", "--kind", "a")
    differing = inherit_flags(flags, given, {**saved, "unknown": 1, "folder": "y"})
    assert flags == Flags(width=5, lr=0.1, steps=30)
    assert differing == [("width", 5, 4, True), ("steps", 30, 20, False)]
