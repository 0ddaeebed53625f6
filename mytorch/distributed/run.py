"""`python -m mytorch.distributed.run`: start a script as several processes, with torchrun's options and variables.

    python -m mytorch.distributed.run --nproc_per_node 4 script.py --lr 0.1
    python -m mytorch.distributed.launch --num_gpus 2 --master_addr 127.0.0.1 --master_port 13333 script.py
    mytorchrun launch --cpu --nproc_per_node 2 script.py

Each process gets the environment variables RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR
and MASTER_PORT.
"""

import argparse
import os
import sys

from ..arrays import device_count
from .environment import DEFAULT_ADDRESS
from .launcher import Job, Link, free_port


def _machines(text):
    """Convert torchrun's N or N:N to a number."""
    least, _, most = text.partition(":")
    if not least.isdecimal() or (most or least) != least:
        raise argparse.ArgumentTypeError(f"expected a fixed number of machines, N or N:N, got {text}")
    return int(least)


def parser(prog="mytorchrun launch", script=True, kind=argparse.ArgumentParser):
    """Return the launcher's parser. With `script`, the parser also accepts a script and its arguments."""
    p = kind(prog=prog, description="Start a script as several processes.", allow_abbrev=False)

    def add(name, *others, **options):
        options.setdefault("default", os.environ.get(f"PET_{name.upper()}"))  # as torchrun, for Kubernetes
        p.add_argument(f"--{name}", *([f"--{name.replace('_', '-')}"] if "_" in name else []), *others, **options)

    each = 'number of processes on this machine, "gpu" (one per GPU), "cpu" (one per core) or "auto" (default: one per GPU, or 1 without a GPU)'
    add("nproc_per_node", metavar="N", help=each)
    add("num_gpus", metavar="N", type=int, help="number of processes on this machine, one per GPU (default: all GPUs)")
    add("cpu", action="store_true", help="train on the CPU over MPI, even if a GPU is available")
    add("nnodes", type=_machines, metavar="N", help="number of machines (default: 1)")
    add("node_rank", type=int, help="number of this machine, starting at 0 (default: 0)")
    add("master_addr", help=f"address of the first machine (default: {DEFAULT_ADDRESS})")
    add("master_port", type=int, help="port on the first machine (default: a free port)")
    add("standalone", action="store_true", help="single-machine mode; ignore --rdzv_endpoint")
    add("max_restarts", type=int, metavar="N", help="number of restarts of all ranks after a failure (default: 0)")
    add("rdzv_backend", choices=["static", "c10d"], help="accepted for torchrun; the ranks meet at the master address")
    add("rdzv_endpoint", metavar="HOST[:PORT]", help="same as --master_addr and --master_port")
    add("rdzv_id", help="name of the run; a launcher of another run cannot join (default: none)")
    late = "timeout of a collective in seconds (default: 600 for NCCL, 1800 for MPI)"
    add("timeout", type=float, metavar="SECONDS", help=late)
    shown = 'printed lines: "all" ranks, with the rank in front of each line, or only the "main" rank (default: all)'
    add("output", choices=["all", "main"], help=shown)
    if not script:
        return p
    p.add_argument("-m", "--module", action="store_true", help="script given as a module name, as for python -m")
    add("no_python", action="store_true", help="script is an executable command instead of a Python file")
    p.add_argument("script", help="script, module or command to run")
    p.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    return p


def parse(argv, prog="mytorchrun launch", make_parser=parser):
    """Parse the options; `--training_script SCRIPT ARGS…`, an older form, is the same as SCRIPT ARGS…"""
    argv = list(argv)
    for i, word in enumerate(argv):
        if word == "--training_script":
            argv[i : i + 1] = []
            break
        if word.endswith(".py"):
            break
    return make_parser(prog).parse_args(argv)


def processes(args):
    """Return (number of processes on this machine, whether they use the CPU).

    Raises:
        ValueError: if the number is not positive or exceeds the number of GPUs.
    """
    wanted = args.nproc_per_node
    if wanted is not None and args.num_gpus is not None and str(wanted) != str(args.num_gpus):
        raise ValueError(f"--nproc_per_node {wanted} and --num_gpus {args.num_gpus}: pass only one of them.")
    wanted = args.num_gpus if wanted is None else wanted
    there = 0 if args.cpu else device_count()
    if wanted in (None, "auto", "gpu", "cpu"):
        if wanted == "gpu" and not there:
            raise ValueError('--nproc_per_node: expected a GPU for "gpu", found none. Use --cpu to train on the CPU.')
        if wanted == "cpu":
            return os.cpu_count() or 1, True
        n = there if there else (os.cpu_count() or 1 if wanted == "auto" else 1)
        return max(n, 1), not there
    try:
        n = int(wanted)
    except ValueError:
        raise ValueError(f'--nproc_per_node: expected a number, "gpu", "cpu" or "auto", got {wanted!r}.') from None
    if n < 1:
        raise ValueError(f"--nproc_per_node: expected at least 1 process, got {n}.")
    if args.cpu or not there:
        if args.num_gpus is not None and not args.cpu and n > 1:
            raise ValueError(f"--num_gpus: expected {n} GPUs, found none. Use --cpu --nproc_per_node {n}.")
        return n, True
    if n > there:
        raise ValueError(
            f"--nproc_per_node: expected at most {there} processes (one per GPU), got {n}. Use --cpu to train on the CPU."
        )
    return n, False


def job(args, env=None):
    """Return the Job for the options.

    Raises:
        ValueError: if options contradict each other or the machine.
        RuntimeError: if mpiexec is required and missing.
    """
    n, cpu = processes(args)
    if args.rdzv_endpoint and not args.standalone:
        host, _, port = args.rdzv_endpoint.partition(":")
        if port and not port.isdecimal():
            raise ValueError(f"--rdzv_endpoint: expected HOST or HOST:PORT, got {args.rdzv_endpoint!r}.")
        args.master_addr, args.master_port = args.master_addr or host, args.master_port or (int(port) if port else None)
    nodes, node = args.nnodes or 1, args.node_rank or 0
    if not 0 <= node < nodes:
        raise ValueError(f"--node_rank: expected a number from 0 to {nodes - 1} with --nnodes {nodes}, got {node}.")
    if nodes > 1 and cpu:
        raise ValueError(
            "--nnodes: expected GPUs on several machines, got CPUs. For CPUs use MPI: run `mpiexec -hosts a,b -n N python "
            "script.py` or `srun -n N python script.py`. The script reads its rank from MPI."
        )
    if nodes > 1 and (args.standalone or not args.master_addr or not args.master_port):
        raise ValueError("--nnodes: expected the same --master_addr and --master_port on every machine.")
    if args.timeout is not None and not args.timeout > 0:
        raise ValueError(f"--timeout: expected a positive number of seconds, got {args.timeout}.")
    address = args.master_addr or DEFAULT_ADDRESS
    # The operating system selects the port: two launchers that start at once must not select the same one.
    port = free_port() if args.master_port is None else args.master_port
    env = {**(env or {}), "MASTER_ADDR": address, "MASTER_PORT": str(port), "PYTHONUNBUFFERED": "1"}
    env |= {"NODE_RANK": str(node), "GROUP_RANK": str(node), "TORCHELASTIC_RUN_ID": args.rdzv_id or "none"}
    if n > 1 and "OMP_NUM_THREADS" not in os.environ:
        env["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // n, 1))  # so that ranks do not compete for cores
    if args.timeout is not None:
        env["MYTORCHRUN_TIMEOUT"] = str(args.timeout)
    if cpu:
        env["MYTORCHRUN_CPU"] = "1"
    interpreter = [] if args.no_python else [sys.executable, *["-m"] * args.module]
    command = [*interpreter, args.script, *args.args]
    if nodes > 1 and not os.environ.get("MYTORCHRUN_TOKEN"):
        danger = f"any process that can connect to {address}:{port} can join this program"
        print(f"mytorchrun: {danger}. Set MYTORCHRUN_TOKEN to the same secret on all machines.", file=sys.stderr)
    link = Link(node, nodes, address, port, args.rdzv_id or "") if nodes > 1 else None
    place = {"first": node * n, "world": nodes * n, "link": link}
    return Job(command, n, mpi=cpu and n > 1, env=env, output=args.output or "all", **place)


def run_job(prog, make, restarts=0):
    """Run the Job that `make()` returns, and return its exit code. Print user errors and return 2."""
    try:
        restarts = restarts or 0
        for left in range(restarts, -1, -1):
            os.environ.update(TORCHELASTIC_RESTART_COUNT=str(restarts - left), TORCHELASTIC_MAX_RESTARTS=str(restarts))
            current = make()
            code = current.run()
            if code == 0 or current.signal is not None or not left:
                return code
            print(f"{prog}: the program ended with exit code {code}. Restarts left: {left}.", file=sys.stderr)
    except BrokenPipeError:  # the reader of the output has ended, for example `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError, RuntimeError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2


def main(argv=None, prog="python -m mytorch.distributed.run"):
    """Start the script of the command line, and return its exit code."""
    args = parse(sys.argv[1:] if argv is None else argv, prog)
    return run_job(prog, lambda: job(args), args.max_restarts)


if __name__ == "__main__":
    sys.exit(main())
