"""`mytorchrun torchrun`: torchrun for PyTorch programs, whose `import torch` imports mytorch."""

from ..distributed.run import job, parse, parser, run_job


def _parser(prog):
    p = parser(prog)
    p.description = "Start a PyTorch script as several processes, in which `import torch` imports mytorch."
    return p


def main(argv):
    """Start the ranks of the program, and return the exit code."""
    args = parse(argv, "mytorchrun torchrun", _parser)
    if not args.no_python:
        args.args = [*["-m"] * args.module, args.script, *args.args]
        args.script, args.module = "mytorch.distributed.elastic.torch_mode", True
    return run_job("mytorchrun torchrun", lambda: job(args), args.max_restarts)
