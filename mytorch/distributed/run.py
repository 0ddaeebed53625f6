"""`python -m mytorch.distributed.run`: start a script as several processes, with torchrun's options and environment.

    python -m mytorch.distributed.run --nproc_per_node 4 script.py --lr 0.1
    python -m mytorch.distributed.launch --num_gpus 2 --master_addr 127.0.0.1 --master_port 13333 script.py
    mytorchrun launch --cpu --nproc_per_node 2 script.py

Each process finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR and MASTER_PORT in its
environment.
"""

import argparse
import os
import sys

from ..backend import device_count
from .environment import DEFAULT_ADDRESS, DEFAULT_PORT
from .launcher import Job, Link, free_port


def parser(prog="mytorchrun launch", script=True, kind=argparse.ArgumentParser):
    """The options of the launcher, a parser of some kind; `script`: with the script, and its own arguments behind it."""
    p = kind(prog=prog, description="Start a script as several processes.", allow_abbrev=False)

    def add(name, *others, **options):
        p.add_argument(f"--{name}", *([f"--{name.replace('_', '-')}"] if "_" in name else []), *others, **options)

    each = 'processes on this machine: a number, "gpu" (one for each GPU), "cpu" (one for each core) or "auto"'
    add("nproc_per_node", metavar="N", help=each)
    add("num_gpus", metavar="N", type=int, help="processes on this machine, one for each GPU")
    add("cpu", action="store_true", help="train on the CPU, over MPI, even if there are GPUs")
    add("nnodes", type=int, help="machines (default 1)")
    add("node_rank", type=int, help="number of this machine (default 0)")
    add("master_addr", help=f"address of the first machine (default {DEFAULT_ADDRESS})")
    add("master_port", type=int, help=f"a port there (default {DEFAULT_PORT}, or a free one if that is taken)")
    add("standalone", action="store_true", help="this machine alone, at any free port")
    late = "how long a rank may wait in a collective before the program fails"
    add("timeout", type=float, metavar="SECONDS", help=late)
    shown = "show what all ranks print, each line with its rank (default), or rank 0's alone"
    add("output", choices=["all", "main"], help=shown)
    if not script:
        return p
    p.add_argument("-m", "--module", action="store_true", help="the script is a module's name, as for python -m")
    add("no_python", action="store_true", help="the script is a command, not a Python script")
    p.add_argument("script", help="what to run")
    p.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    return p


def parse(argv, prog="mytorchrun launch", make_parser=parser):
    """The options; `--training_script SCRIPT ARGS…`, an older form, means SCRIPT ARGS…"""
    argv = list(argv)
    for i, word in enumerate(argv):
        if word == "--training_script":
            argv[i : i + 1] = []
            break
        if word.endswith(".py"):
            break
    return make_parser(prog).parse_args(argv)


def processes(args):
    """(processes on this machine, whether they use the CPU).

    Raises:
        ValueError: a number that is not positive, or more than there are GPUs.
    """
    wanted = args.nproc_per_node
    if wanted is not None and args.num_gpus is not None and str(wanted) != str(args.num_gpus):
        raise ValueError(f"--nproc_per_node is {wanted} and --num_gpus {args.num_gpus}; give one of them.")
    wanted = args.num_gpus if wanted is None else wanted
    there = 0 if args.cpu else device_count()
    if wanted in (None, "auto", "gpu", "cpu"):
        if wanted == "gpu" and not there:
            raise ValueError('--nproc_per_node is "gpu", and there is none.')
        if wanted == "cpu":
            return os.cpu_count() or 1, True
        n = there if there else (os.cpu_count() or 1 if wanted == "auto" else 1)
        return max(n, 1), not there
    try:
        n = int(wanted)
    except ValueError:
        raise ValueError(f'--nproc_per_node is {wanted!r}; expected a number, "gpu", "cpu" or "auto".') from None
    if n < 1:
        raise ValueError(f"{n} processes were requested; expected at least 1.")
    if args.cpu or not there:
        if args.num_gpus is not None and not args.cpu and n > 1:
            raise ValueError(
                f"--num_gpus is {n}, and no GPU is usable here; use --cpu --nproc_per_node {n} to train on the CPU."
            )
        return n, True
    if n > there:
        raise ValueError(
            f"{n} processes were requested, and there are {there} GPUs; NCCL needs one for each (or use --cpu)."
        )
    return n, False


def job(args, env=None):
    """The Job that the options describe.

    Raises:
        ValueError: options that contradict each other or the machine.
        RuntimeError: mpiexec is needed and missing.
    """
    n, cpu = processes(args)
    nodes, node = args.nnodes or 1, args.node_rank or 0
    if not 0 <= node < nodes:
        raise ValueError(f"--node_rank is {node} and --nnodes {nodes}; expected a number in [0, {nodes - 1}].")
    if nodes > 1 and cpu:
        raise ValueError(
            "--nnodes: CPUs of several machines are joined by MPI itself; run `mpiexec -hosts a,b -n N python script.py`, or "
            "`srun -n N python script.py`. The script finds its rank there."
        )
    if nodes > 1 and (args.standalone or not args.master_addr or not args.master_port):
        raise ValueError("--nnodes: every machine must be given the same --master_addr and --master_port.")
    if args.timeout is not None and not args.timeout > 0:
        raise ValueError(f"--timeout is {args.timeout}; expected a positive number of seconds.")
    address = args.master_addr or DEFAULT_ADDRESS
    port = args.master_port
    if port is None:
        port = free_port(address if nodes == 1 else "", 0 if args.standalone else DEFAULT_PORT)
    env = {**(env or {}), "MASTER_ADDR": address, "MASTER_PORT": str(port), "PYTHONUNBUFFERED": "1"}
    env |= {"NODE_RANK": str(node), "GROUP_RANK": str(node)}
    if n > 1 and "OMP_NUM_THREADS" not in os.environ:
        env["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // n, 1))  # or the ranks take each other's cores
    if args.timeout is not None:
        env["MYTORCHRUN_TIMEOUT"] = str(args.timeout)
    if cpu:
        env["MYTORCHRUN_CPU"] = "1"
    interpreter = [] if args.no_python else [sys.executable, *["-m"] * args.module]
    command = [*interpreter, args.script, *args.args]
    if nodes > 1 and not os.environ.get("MYTORCHRUN_TOKEN"):
        danger = f"whoever reaches {address}:{port} can take part in this program"
        print(f"mytorchrun: {danger}; give all machines the same secret in MYTORCHRUN_TOKEN.", file=sys.stderr)
    link = Link(node, nodes, address, port) if nodes > 1 else None
    place = {"first": node * n, "world": nodes * n, "link": link}
    return Job(command, n, mpi=cpu and n > 1, env=env, output=args.output or "all", **place)


def run_job(prog, make):
    """Run the Job that `make()` gives; its exit code, and 2 with a sentence where a user can mend what is wrong."""
    try:
        return make().run()
    except (OSError, ValueError, RuntimeError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2


def main(argv=None, prog="python -m mytorch.distributed.run"):
    """Start the script that the command line names; its exit code."""
    args = parse(sys.argv[1:] if argv is None else argv, prog)
    return run_job(prog, lambda: job(args))


if __name__ == "__main__":
    sys.exit(main())
