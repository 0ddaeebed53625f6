"""Trains a sharded model with checkpoints; ranks are killed at random moments, and the launcher restarts all of them.

restarting.py FOLDER STEPS KILLS
"""

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.distributed import checkpoint
from mytorch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from mytorch.distributed.elastic import record
from mytorch.distributed.fsdp import fully_shard


def killer(rank, attempt, kills):
    """Kills one rank, another one in each attempt, at a random moment after it has begun."""
    if attempt < kills and attempt % dist.get_world_size() == rank:
        delay = random.Random(attempt).uniform(0.0, 0.4)
        threading.Thread(target=lambda: (time.sleep(delay), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()


@record
def main(folder, steps, kills):
    dist.init_process_group(timeout=60)
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 33), nn.GELU(), nn.Linear(33, 5))
    fully_shard(model[0])
    fully_shard(model)
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    done, latest = 0, checkpoint.latest(folder)
    if latest is not None:
        weights, state = get_state_dict(model, optimizer)
        everything = {"model": weights, "optimizer": state, "step": 0}
        checkpoint.load(everything, checkpoint_id=latest)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=everything["optimizer"])
        done = everything["step"]
    dist.barrier()
    saving = None
    for step in range(done, steps):
        if step == done + 1:
            killer(rank, attempt, kills)
        draw = np.random.default_rng([step, rank])
        x = mytorch.from_numpy(draw.standard_normal((4, 7)).astype(np.float32))
        loss = (model(x) - x[:, :5].sin()).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        dist.all_reduce(loss)
        if rank == 0:
            with open(Path(folder) / "losses.txt", "a") as file:
                file.write(f"{step} {loss.item().hex()} {attempt}\n")
        if step % 3 == 2:
            if saving is not None:
                saving.result()
            weights, state = get_state_dict(model, optimizer)
            everything = {"model": weights, "optimizer": state, "step": step + 1}
            saving = checkpoint.async_save(everything, checkpoint_id=Path(folder) / f"step_{step + 1}")
        time.sleep(0.01)
    if saving is not None:
        saving.result()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
