"""The scripts' command lines: help that shows defaults, and one line for what is wrong."""

import argparse
import sys
from pathlib import Path

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
