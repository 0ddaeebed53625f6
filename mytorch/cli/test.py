"""`mytorchrun test`: a real run under the launcher with the user's configuration; a table, and PASS or what failed."""

import importlib.util
import shutil
import sys
from pathlib import Path

from ..backend import cuda_available
from .launch import configured, job, parser


def _has_mpi():
    """Whether processes on CPUs can be started: mpi4py, and an mpiexec beside this Python or on the path."""
    beside = Path(sys.executable).with_name("mpiexec")
    return importlib.util.find_spec("mpi4py") is not None and bool(beside.exists() or shutil.which("mpiexec"))


def main(argv):
    """Run the command; 0 if everything passed."""
    prog = "mytorchrun test"
    p = parser(prog)
    for action in p._actions:
        if action.dest in ("script", "args"):
            action.nargs, action.help = "?", "==SUPPRESS=="
    args = p.parse_args(argv)
    if args.script is not None or args.module or args.no_python:
        p.error("it runs its own checks; leave the script out")
    args.script, args.args, args.module = "mytorch.cli.check", [], True
    args.output = args.output or "main"
    if args.timeout is None:
        args.timeout = 60.0
    alone = args.nproc_per_node is None and args.num_gpus is None and configured(args) is None
    if alone and not cuda_available() and _has_mpi():
        args.nproc_per_node = "2"  # one process has nobody to talk to
    try:
        code = job(args).run()
    except (OSError, ValueError, RuntimeError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    if code:
        print("FAIL: see above.", file=sys.stderr)
    return code


