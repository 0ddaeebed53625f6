"""`mytorchrun test`: a real run under the launcher with the user's configuration; a table, and PASS or what failed."""

import importlib.util
import sys

from ..backend import cuda_available
from ..distributed.launcher import find_mpiexec
from ..distributed.run import run_job
from .launch import configured, job, parser


def main(argv):
    """Run the command; 0 if everything passed."""
    prog = "mytorchrun test"
    p = parser(prog, script=False)
    p.description = "Check that several processes work here."
    args, others = p.parse_known_args(argv)
    if others:
        p.error(f"it runs its own checks; leave out {' '.join(others)}")
    args.script, args.args, args.module, args.no_python = "mytorch.cli.check", [], True, False
    args.output = args.output or "main"
    if args.timeout is None:
        args.timeout = 60.0
    alone = args.nproc_per_node is None and args.num_gpus is None and configured(args) is None
    if alone and not cuda_available() and importlib.util.find_spec("mpi4py") and find_mpiexec():
        args.nproc_per_node = "2"  # one process has nobody to talk to
    code = run_job(prog, lambda: job(args))
    if code:
        print("FAIL: see above.", file=sys.stderr)
    return code
