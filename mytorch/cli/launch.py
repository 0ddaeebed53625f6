"""`mytorchrun launch`: the launcher, with the settings of `mytorchrun config` as defaults."""

import os

from ..distributed import run
from ..distributed.environment import DEFAULT_PORT
from .arguments import ArgumentParser
from .configuration import PRECISIONS, Configuration, default_path


def parser(prog, script=True):
    """Return a parser with the options of the launcher and of the settings."""
    p = run.parser(prog, script, ArgumentParser)
    where = f"settings file (default: {default_path()}, if it exists)"
    p.add_argument("--config", "--config_file", "--config-file", metavar="FILE", help=where)
    precision = "precision, instead of the saved setting (default: saved setting)"
    p.add_argument("--mixed_precision", "--mixed-precision", choices=PRECISIONS, help=precision)
    return p


def configured(args):
    """Return the settings from --config or from the user's file, or None.

    Raises:
        FileNotFoundError: if the file of --config is missing.
        ValueError: if the file is invalid.
    """
    if args.config is not None:
        return Configuration.read(args.config)
    return Configuration.read(default_path()) if default_path().is_file() else None


def job(args):
    """Return the Job for the command line; missing options come from the settings.

    Raises:
        FileNotFoundError: see `configured`.
        ValueError: see `configured` and `run.job`.
        RuntimeError: see `run.job`.
    """
    settings = configured(args)
    env = {}
    if settings is not None:
        env = settings.environment()
        asked = args.num_gpus is not None or args.nproc_per_node is not None
        if not asked:
            args.nproc_per_node = str(settings.num_processes)
        args.cpu = args.cpu or (settings.device == "cpu" and args.num_gpus is None)
        if settings.device == "gpu" and settings.gpu_indices and not args.cpu:
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, settings.gpu_indices)))
        if args.nnodes is None and not args.standalone:
            args.nnodes = settings.num_machines
        if args.node_rank is None and args.nnodes and args.nnodes > 1:
            args.node_rank = settings.machine_rank
        if not args.standalone:
            args.master_addr = args.master_addr or settings.master_addr
            if settings.num_machines > 1 or settings.master_port != DEFAULT_PORT:
                args.master_port = args.master_port or settings.master_port
        if args.timeout is None and settings.timeout:
            args.timeout = settings.timeout
    if args.mixed_precision is not None:
        env["MYTORCHRUN_MIXED_PRECISION"] = args.mixed_precision
    return run.job(args, env)


def main(argv, prog="mytorchrun launch"):
    """Run the command and return the exit code of the script."""
    args = run.parse(argv, prog, parser)
    return run.run_job(prog, lambda: job(args), args.max_restarts)
