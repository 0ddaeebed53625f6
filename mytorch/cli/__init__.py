"""`mytorchrun`: configure, launch and test training on this machine.

    mytorchrun config             save the training settings of this machine
    mytorchrun launch script.py   start a script as several processes
    mytorchrun torchrun script.py start a PyTorch script, whose `import torch` imports mytorch
    mytorchrun test               test communication and training with the saved settings
    mytorchrun env                print versions and devices, for bug reports
    mytorchrun chat train         train a small chat model; see also `chat talk` and `chat serve`
    mytorchrun warmup             compile the CPU kernels ahead of time

`mytorchrun COMMAND --help` describes a command. `mytorchrun --version` prints the version.
"""

import os
import sys

from .._extensions import load
from ..version import __version__

# Each command is a module of this package with `main(argv)`, which returns the exit code.
COMMANDS = {"config": "configure"} | {name: name for name in ("launch", "torchrun", "test", "env", "warmup", "chat")}


def main(argv=None):
    """Run the command of the command line, and return its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"mytorchrun {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        print(f"mytorchrun: expected a command ({', '.join(COMMANDS)}), got {argv[0]!r}. See --help.", file=sys.stderr)
        return 2
    try:
        getattr(sys.stdout, "reconfigure", dict)(line_buffering=True)  # lines appear at once, also in a file or pipe
        try:
            code = load(f"cli.{COMMANDS[argv[0]]}").main(argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # for example in `mytorchrun env | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
