"""The scripts' command lines: help that shows defaults, and one line for what is wrong."""

import argparse
import sys

from ..base.errors import DeviceError


class _Formatter(argparse.HelpFormatter):
    def _get_help_string(self, action):
        text = action.help or ""
        if action.default in (None, False, argparse.SUPPRESS) or "default" in text:
            return text
        return f"{text} (default: %(default)s)"


class ArgumentParser(argparse.ArgumentParser):
    """argparse's, whose `error` prints one sentence instead of all flags before it."""

    def __init__(self, **options):
        super().__init__(**{"formatter_class": _Formatter, **options})

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


def run_script(name: str, main) -> None:
    """Run a script's main and exit with its code; what a user can mend ends it with one sentence."""
    try:
        code = main()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        code = 130
    except (OSError, ValueError, ImportError, FloatingPointError, DeviceError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        code = 1
    sys.exit(code)
