"""`mytorchrun test`: a real run under the launcher with the user's configuration; a table, and PASS or what failed."""

import argparse
import importlib.util
import sys

from ..backend import cuda_available
from ..distributed.launcher import find_mpiexec
from .launch import configured, job, parser


def main(argv):
    """Run the command; 0 if everything passed."""
    prog = "mytorchrun test"
    p = parser(prog)
    for action in p._actions:
        if action.dest in ("script", "args"):
            action.nargs, action.help = "?", argparse.SUPPRESS
    args = p.parse_args(argv)
    if args.script is not None or args.module or args.no_python:
        p.error("it runs its own checks; leave the script out")
    args.script, args.args, args.module = "mytorch.cli.check", [], True
    args.output = args.output or "main"
    if args.timeout is None:
        args.timeout = 60.0
    alone = args.nproc_per_node is None and args.num_gpus is None and configured(args) is None
    if alone and not cuda_available() and importlib.util.find_spec("mpi4py") and find_mpiexec():
        args.nproc_per_node = "2"  # one process has nobody to talk to
    try:
        code = job(args).run()
    except (OSError, ValueError, RuntimeError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    if code:
        print("FAIL: see above.", file=sys.stderr)
    return code
