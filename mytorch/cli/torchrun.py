"""`mytorchrun torchrun`: torchrun for PyTorch programs, whose `import torch` imports mytorch."""

from ..distributed.run import job, parse, run_job


def main(argv):
    """Start the ranks of the program, and return the exit code."""
    args = parse(argv, "mytorchrun torchrun")
    if not args.no_python:
        args.args = [*["-m"] * args.module, args.script, *args.args]
        args.script, args.module = "mytorch.distributed.elastic.torch_mode", True
    return run_job("mytorchrun torchrun", lambda: job(args), args.max_restarts)
