"""`mytorchrun test`: run checks under the launcher with the saved settings, and print a table with PASS or FAIL."""

import importlib.util
import sys

from ..arrays import cuda_available
from ..distributed.launcher import find_mpiexec
from ..distributed.run import run_job
from .launch import configured, job, parser


def main(argv):
    """Run the command and return 0 if all checks passed."""
    prog = "mytorchrun test"
    p = parser(prog, script=False)
    p.description = "Test communication and training with several processes on this machine."
    p.epilog = "This command has other defaults than launch: --timeout 60, --output main, and 2 processes without GPUs and saved settings."
    args, others = p.parse_known_args(argv)
    if others:
        p.error(f"expected no script or other arguments, got {' '.join(others)}")
    args.script, args.args, args.module, args.no_python = "mytorch.cli.check", [], True, False
    args.output = args.output or "main"
    if args.timeout is None:
        args.timeout = 60.0
    alone = args.nproc_per_node is None and args.num_gpus is None and configured(args) is None
    if alone and not cuda_available() and importlib.util.find_spec("mpi4py") and find_mpiexec():
        args.nproc_per_node = "2"  # communication requires two processes
    code = run_job(prog, lambda: job(args))
    if code:
        print("mytorchrun test: FAIL. The messages above describe the failed checks.", file=sys.stderr)
    return code
