"""Uses sharded models in the wrong way that its first argument names; every rank writes its error and the time that it took.

wrong_input.py HOW FOLDER
"""

import os
import sys
import time
from pathlib import Path

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.distributed.device_mesh import init_device_mesh
from mytorch.distributed.fsdp import fully_shard
from mytorch.distributed.tensor import Replicate, Shard, distribute_tensor


def model_of(width=8):
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 4))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    return fully_shard(model)


def world_size(rank, n, folder):
    """The environment of one rank has another number of processes."""
    dist.destroy_process_group()
    os.environ["WORLD_SIZE"] = str(n + rank)
    dist.init_process_group(timeout=60)


def mesh(rank, n, folder):
    """One rank creates a mesh of another shape."""
    init_device_mesh("cpu", (n,) if rank else (n, 1))
    dist.barrier()


def layouts(rank, n, folder):
    """The ranks redistribute to different placements."""
    d = distribute_tensor(mytorch.ones(4, 4), init_device_mesh("cpu", (n,)), [Shard(0)])
    d.redistribute(placements=[Shard(1) if rank else Replicate()])


def before_a_collective(rank, n, folder):
    """One rank raises between forward and backward, and then takes part in another collective."""
    loss = model_of()(mytorch.ones(2, 4)).sum()
    if rank:
        raise KeyError("the cause")
    loss.backward()


how, folder = sys.argv[1], Path(sys.argv[2])
dist.init_process_group(timeout=3 if how == "before_a_collective" else 60)
place, size, start = dist.get_rank(), dist.get_world_size(), time.monotonic()
try:
    globals()[how](place, size, folder)
except Exception as error:
    (folder / f"{place}.new").write_text(f"{time.monotonic() - start:.1f} {type(error).__name__}: {error}")
    (folder / f"{place}.new").rename(folder / f"{place}.txt")
    until = time.monotonic() + 60  # the launcher ends the other ranks when this one ends
    while time.monotonic() < until and not all((folder / f"{r}.txt").exists() for r in range(size)):
        time.sleep(0.01)
    raise
