"""`mytorchrun`: configure, launch, test and describe training on this machine.

    mytorchrun config             ask how to train here, and remember it
    mytorchrun launch script.py   start a script as several processes
    mytorchrun test               check that it works, with a table
    mytorchrun env                versions and devices, for bug reports
    mytorchrun chat train         make a small model that answers; then chat talk, or chat serve for a page
    mytorchrun warmup             compile the CPU's kernels now, not at their first use

`mytorchrun COMMAND --help` says more; `mytorchrun --version` says which.
"""

import os
import sys

from .._extensions import load
from ..version import __version__

# Each command is a module here with `main(argv)`, which returns the exit code.
COMMANDS = {"config": "configure", "launch": "launch", "test": "test", "env": "env", "warmup": "warmup", "chat": "chat"}


def main(argv=None):
    """Run the command that the command line names."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"mytorchrun {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        print(f"mytorchrun: {argv[0]!r} is no command; expected one of {', '.join(COMMANDS)}.", file=sys.stderr)
        return 2
    try:
        code = load(f"cli.{COMMANDS[argv[0]]}").main(argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # of `mytorchrun env | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
