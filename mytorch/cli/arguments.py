"""Command-line parsing for the scripts: help with defaults, and one-line error messages."""

import argparse
import dataclasses
import os
import shlex
import shutil
import sys
import typing
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from ..arrays.errors import DeviceError
from ..ops.creation import empty


def _is_shown(default):
    return default is not None and default is not False and default is not argparse.SUPPRESS


class _Formatter(argparse.HelpFormatter):
    def _get_help_string(self, action):
        text = (action.help or "").strip()
        if not _is_shown(action.default) or "default" in text:
            return text
        return f"{text} (default: %(default)s)".strip()


class ArgumentParser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that shows every default in its help, and prints errors as one line."""

    def __init__(self, **options):
        super().__init__(**{"formatter_class": _Formatter, **options})

    def add_argument(self, *names, **options):
        """Adds an argument like argparse; the default is the help text of a flag without one.

        Args:
            *names: names of the argument.
            **options: arguments of argparse's `add_argument`.
        """
        if _is_shown(options.get("default")):
            options.setdefault("help", "(default: %(default)s)")
        return super().add_argument(*names, **options)

    def error(self, message: str):
        """Prints a message and exits with code 2."""
        self.exit(2, f"{self.prog}: {message.rstrip('.')}; see --help.\n")

    def parse_given(self, argv=None) -> tuple[argparse.Namespace, set[str]]:
        """Parses a command line.

        Args:
            argv: the command line (default: `sys.argv`).

        Returns:
            The arguments, and the names of the arguments that the command line contains.
        """
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
            argv: the command line (default: `sys.argv`).

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
        default: value of a missing flag.
        help: help text.
        saved: False for a flag that belongs to one start of a script, see `flags_to_save`.
        fixed: True for a flag that cannot change when a run resumes, see `inherit_flags`.
        **options: other arguments of argparse's `add_argument`, such as `choices`.
    """
    about = {"flag": {"help": help, **options}, "saved": saved, "fixed": fixed}
    return dataclasses.field(default=default, metadata=about)


def switch(help: str, **options: Any) -> Any:
    """Makes a field like `flag`, for a flag without a value: False unless the command line contains the flag.

    Args:
        help: help text.
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


def command_line(script: str, args: Any, *names: str) -> str:
    """Returns the command that starts a script again with some of the flags that the user gave, in the same environment.

    Args:
        script: path of the script.
        args: the parsed arguments; `args.given` contains the names of the flags that the user gave.
        names: the flags to repeat.
    """
    flags = [part for n in names if n in args.given for part in (f"--{n}", str(getattr(args, n)))]
    usual, current = shutil.which("python"), os.path.abspath(sys.executable)
    inside = os.path.relpath(current) if current.startswith(os.getcwd() + os.sep) else current
    # `python` can be another interpreter, without the packages of an environment that is not activated.
    python = "python" if usual and os.path.dirname(os.path.abspath(usual)) == os.path.dirname(current) else inside
    return shlex.join([python, os.path.relpath(script), *flags])


def inherit_flags(
    flags: Any, given: Container[str], saved: dict[str, Any]
) -> list[tuple[str, Any, Any, bool]]:  # fmt: skip
    """Sets the flags that a command line does not contain to saved values.

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
    """Converts a flag to an integer of at least 1, as `type=` of an argument.

    Args:
        text: value on the command line.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text}")
    return number


def positive(text: str) -> float:
    """Converts a flag to a number above 0, as `type=` of an argument.

    Args:
        text: value on the command line.
    """
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return number


def new_file(path: str) -> str:
    """Checks the path of an output file, as `type=` of an argument. Its folder must exist.

    Args:
        path: value on the command line.
    """
    folder = Path(path).parent
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in an existing folder, got {path}. Create {folder} first")
    return path


def usable_device(name: str) -> str:
    """Checks that this machine has a device, as `type=` of an argument.

    Args:
        name: value on the command line.
    """
    try:
        if empty(0, device=name).device.type == "meta":
            raise DeviceError("expected 'cpu' or 'cuda', got 'meta', whose tensors have no data")
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"expected a device of this machine, got {name}. {error}") from None
    return name


def run_script(main) -> None:
    """Runs a script's main function and exits with its return code. User errors are printed in one line.

    Args:
        main: function without arguments that returns the exit code.
    """
    getattr(sys.stdout, "reconfigure", dict)(line_buffering=True)  # lines appear at once, also in a file or pipe
    try:
        code = main()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        code = 130
    except (OSError, ValueError, ImportError, FloatingPointError, DeviceError) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        code = 1
    sys.exit(code)
