"""Measure a data-parallel training step: gradients exchanged during backward, after backward, or not at all.

    python benchmarks/ddp.py [--nproc 2] [--gbit 10] [--output ddp.json]

On one machine, communication uses the same cores as backward, so overlap gains little. `--gbit` emulates a link between machines. An
exchange then takes at least the time of a ring all-reduce over the link. The all-reduce sends 2 (n - 1) / n times the size of the
gradients, and the cores are free during this time. PyTorch's DDP over gloo is measured on the same machine without the link, if PyTorch is
installed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def model_of(lib, width, depth):
    """Returns `depth` linear layers with GELU."""
    layers = []
    for _ in range(depth):
        layers += [lib.nn.Linear(width, width), lib.nn.GELU()]
    return lib.nn.Sequential(*layers)


class Link:
    """Delays the all-reduces of an engine like a link of `gbit` Gbit/s, one at a time."""

    def __init__(self, engine, gbit):
        self.free = 0.0
        self.seconds_per_byte = 2 * (engine.size - 1) / engine.size * 8 / (gbit * 1e9)
        self.real = engine.all_reduce
        engine.all_reduce = self.all_reduce

    def all_reduce(self, x, op, label=""):
        work = self.real(x, op, label)
        self.free = due = max(self.free, time.monotonic()) + x.nbytes * self.seconds_per_byte
        real = work.poll
        work.poll = lambda: real() and time.monotonic() >= due
        return work


def timed(steps, barrier, rounds):
    """Returns {name: milliseconds}: medians over rounds in which the steps take turns, after two warm-up rounds."""
    times = {name: [] for name in steps}
    for i in range(rounds + 2):
        for name, step in steps.items():
            barrier()
            start = time.perf_counter()
            step()
            barrier()
            if i >= 2:
                times[name].append(time.perf_counter() - start)
    return {name: round(sorted(t)[len(t) // 2] * 1e3, 2) for name, t in times.items()}


def measure(args):
    """Measure the three times in each process. Rank 0 writes the result."""
    import mytorch
    import mytorch.distributed as dist

    dist.init_process_group("mpi")
    mytorch.manual_seed(0)
    model = mytorch.nn.parallel.DistributedDataParallel(
        model_of(mytorch, args.width, args.depth), bucket_cap_mb=args.bucket
    )
    optimizer = mytorch.optim.SGD(model.parameters(), lr=1e-3)
    x = mytorch.randn(args.batch, args.width)
    if args.gbit:
        Link(dist.group.WORLD.engine, args.gbit)

    def compute():
        model(x).pow(2).mean().backward()

    def after():
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    def overlapped():
        compute()
        after()

    def alone():
        with model.no_sync():
            compute()
        after()

    def sequential():
        with model.no_sync():
            compute()
        works = [dist.all_reduce(b.tensor, dist.ReduceOp.AVG, async_op=True) for b in model.reducer.buckets]
        for work in works:
            work.wait()
        after()

    row = timed({"none": alone, "after": sequential, "overlapped": overlapped}, dist.barrier, args.rounds)
    if dist.get_rank() == 0:
        row["buckets"] = len(model.reducer.buckets)
        Path(args.result).write_text(json.dumps(row))
    dist.barrier()


def measure_torch(args):
    """Measure the same step in PyTorch over gloo."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(
        model_of(torch, args.width, args.depth), bucket_cap_mb=args.bucket, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(args.batch, args.width)

    def step(sync=True):
        if sync:
            model(x).pow(2).mean().backward()
        else:
            with model.no_sync():
                model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    row = timed({"none": lambda: step(False), "overlapped": step}, dist.barrier, args.rounds)
    if dist.get_rank() == 0:
        Path(args.result).write_text(json.dumps(row))
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # threads of gloo sometimes abort the process at exit


def launch(args, *options):
    """Run this file in every process, and return the row that rank 0 wrote."""
    root = Path(__file__).resolve().parents[1]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
    }
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "row.json"
        shared = [f"--{name}={getattr(args, name)}" for name in ("width", "depth", "batch", "bucket", "rounds")]
        command = [
            sys.executable,
            "-m",
            "mytorch.distributed.run",
            "--cpu",
            "--nproc_per_node",
            str(args.nproc),
            __file__,
        ]
        subprocess.run([*command, *shared, "--result", str(result), *options], env=env, check=True)
        return json.loads(result.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nproc", type=int, default=2, help="number of processes (default: 2)")
    parser.add_argument("--width", type=int, default=1024, help="width of the layers (default: 1024)")
    parser.add_argument("--depth", type=int, default=8, help="number of layers (default: 8)")
    parser.add_argument("--batch", type=int, default=64, help="batch size of each process (default: 64)")
    parser.add_argument("--bucket", type=float, default=4.0, help="bucket size in MB (default: 4)")
    parser.add_argument(
        "--gbit", type=float, default=10.0, help="speed of the emulated link in Gbit/s, 0 for no link (default: 10)"
    )
    parser.add_argument("--rounds", type=int, default=15, help="number of measured rounds (default: 15)")
    parser.add_argument("--output", help="path of a JSON file for the results")
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.result:
        (measure_torch if args.torch else measure)(args)
        return
    from importlib.util import find_spec

    from gpt2 import machine

    rows = [{"library": "mytorch", "link": "shared memory", **launch(args, "--gbit=0")}]
    if args.gbit:
        rows.append(
            {"library": "mytorch", "link": f"{args.gbit:g} Gbit/s, emulated", **launch(args, f"--gbit={args.gbit}")}
        )
    if find_spec("torch") is not None:
        rows.append({"library": "torch, gloo", "link": "shared memory", **launch(args, "--torch")})
    for row in rows:
        cost = row["after"] - row["none"] if "after" in row else 0
        if cost > 0:
            row["hidden"] = round((row["after"] - row["overlapped"]) / cost, 2)
        row["ratio"] = round(row["overlapped"] / row["none"], 2)
    print("Milliseconds per step; hidden: fraction of the exchange time saved by overlap")
    print(f"{'library':12} {'link':22} {'no exchange':>12} {'after backward':>15} {'during backward':>16}  hidden")
    for row in rows:
        print(
            f"{row['library']:12} {row['link']:22} {row['none']:12.1f} {row.get('after', float('nan')):15.1f} {row['overlapped']:16.1f}  {row.get('hidden', '')}"
        )
    megabytes = round(args.depth * args.width * (args.width + 1) * 4 / 1e6, 1)
    record = {
        "benchmark": "ddp",
        "unit": "milliseconds per step",
        "machine": machine(),
        "processes": args.nproc,
        "gradients_MB": megabytes,
        "bucket_MB": args.bucket,
        "rows": rows,
    }
    if args.output:
        Path(args.output).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
