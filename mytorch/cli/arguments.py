"""The scripts' command lines: help that shows defaults, and one line for what is wrong."""

import argparse
import dataclasses
import sys
import typing
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import DeviceError
from ..ops.creation import empty


class _Formatter(argparse.HelpFormatter):
    def _get_help_string(self, action):
        text = (action.help or "").strip()
        if action.default in (None, False, argparse.SUPPRESS) or "default" in text:
            return text
        return f"{text} (default: %(default)s)".strip()


class ArgumentParser(argparse.ArgumentParser):
    """argparse's, whose `error` prints one sentence instead of all flags before it, and whose help has every default."""

    def __init__(self, **options):
        super().__init__(**{"formatter_class": _Formatter, **options})

    def add_argument(self, *names, **options):
        """argparse's; a flag without help gets its default as one."""
        if options.get("default") not in (None, False, argparse.SUPPRESS):
            options.setdefault("help", "(default: %(default)s)")
        return super().add_argument(*names, **options)

    def error(self, message: str):
        """End the program with code 2 and a sentence."""
        self.exit(2, f"{self.prog}: {message.rstrip('.')}; see --help.\n")

    def parse_given(self, argv=None) -> tuple[argparse.Namespace, set[str]]:
        """(the arguments, the names of those that the command line gives)."""
        missing = object()
        names = [action.dest for action in self._actions if action.dest != "help"]
        args = self.parse_args(argv, argparse.Namespace(**dict.fromkeys(names, missing)))
        given = {name for name in names if getattr(args, name) is not missing}
        for name in set(names) - given:
            setattr(args, name, self.get_default(name))
        return args, given

    def parse_flags(self, flags: type, argv: Sequence[str] | None = None) -> tuple[Any, set[str]]:
        """Parses a command line whose flags are the fields of a dataclass that `flag` and `switch` made.

        A value is converted if the type of the field is int, float, `int | None` or `float | None`.

        Args:
            flags: the dataclass.
            argv: the command line, by default that of the process.

        Returns:
            An instance of the dataclass, and the names of the flags that the command line contains.

        Example:
            >>> from dataclasses import dataclass
            >>> from mytorch.cli.arguments import ArgumentParser, flag, switch
            >>> @dataclass
            ... class Flags:
            ...     seed: int = flag(1337, "seed of the weights")
            ...     quiet: bool = switch("print nothing")
            >>> ArgumentParser().parse_flags(Flags, ["--seed", "3"])
            (Flags(seed=3, quiet=False), {'seed'})
        """
        kinds = typing.get_type_hints(flags)
        for field in dataclasses.fields(flags):
            if "flag" not in field.metadata:
                continue
            kind, options = kinds[field.name], dict(field.metadata["flag"])
            if number := {int, float}.intersection((kind, *typing.get_args(kind))):
                options["type"] = number.pop()
            self.add_argument(f"--{field.name}", default=field.default, **options)
        values, given = self.parse_given(argv)
        return flags(**vars(values)), given


def flag(
    default: Any = None, help: str | None = None, *, saved: bool = True, fixed: bool = False, **options: Any
) -> Any:
    """Makes a field of a dataclass for a flag of `ArgumentParser.parse_flags`.

    Args:
        default: the value of a flag that is not given.
        help: the help text.
        saved: False for a flag that belongs to one start of a script, see `flags_to_save`.
        fixed: True for a flag that can't change when a run resumes, see `inherit_flags`.
        **options: other arguments of argparse's `add_argument`, such as `choices`.
    """
    about = {"flag": {"help": help, **options}, "saved": saved, "fixed": fixed}
    return dataclasses.field(default=default, metadata=about)


def switch(help: str, **options: Any) -> Any:
    """Makes a field like `flag`, for a flag without a value: False unless the command line contains the flag.

    Args:
        help: the help text.
        **options: `saved` and `fixed`, see `flag`.
    """
    return flag(False, help, action="store_true", **options)


def flags_to_save(flags: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass of flags as a dict, except flags that belong to one start of a script.

    Args:
        flags: an instance of the dataclass. Flags with `saved=False` are left out.
    """
    fields = dataclasses.fields(flags)
    return {f.name: getattr(flags, f.name) for f in fields if f.metadata.get("saved", True)}


def inherit_flags(
    flags: Any, given: Container[str], saved: dict[str, Any]
) -> list[tuple[str, Any, Any, bool]]:  # fmt: skip
    """Sets the flags that a command line does not give to saved values.

    Args:
        flags: an instance of the dataclass, which is changed.
        given: names of the flags on the command line, which keep their values.
        saved: a dict from `flags_to_save`. Other names are ignored.

    Returns:
        (name, value on the command line, saved value, `fixed` of the flag) of each given flag whose values differ.
    """
    differing = []
    for field in dataclasses.fields(flags):
        name = field.name
        if not field.metadata.get("saved") or name not in saved:
            continue
        if name not in given:
            setattr(flags, name, saved[name])
        elif getattr(flags, name) != saved[name]:
            differing.append((name, getattr(flags, name), saved[name], field.metadata["fixed"]))
    return differing


def count(text: str) -> int:
    """A flag's whole number of at least 1, as `type=` of an argument."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is given, at least 1 is expected")
    return number


def positive(text: str) -> float:
    """A flag's number above 0, as `type=` of an argument."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is given, a number above 0 is expected")
    return number


def new_file(path: str) -> str:
    """A flag's file that is to be written, in a folder that is there, as `type=` of an argument."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: there is no folder {folder}")
    return path


def usable_device(name: str) -> str:
    """A flag's device that this machine has, as `type=` of an argument."""
    try:
        if empty(0, device=name).device.type == "meta":
            raise DeviceError("tensors there have no numbers.")
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{name}: {error}") from None
    return name


def run_script(main) -> None:
    """Run a script's main and exit with its code; what a user can mend ends it with one sentence."""
    try:
        code = main()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        code = 130
    except (OSError, ValueError, ImportError, FloatingPointError, DeviceError) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        code = 1
    sys.exit(code)
