"""Trains a sharded model with checkpoints; ranks are killed at random moments, and the launcher restarts all of them.

restarting.py FOLDER STEPS KILLS [accelerator]

The first attempt writes the losses of a run without kills to whole.txt.

With `accelerator`, the checkpoints are the ones of `Accelerator.save_state`, and the seed of the moments differs.
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
from mytorch.accelerate import Accelerator
from mytorch.accelerate.training_state import newest_checkpoint
from mytorch.distributed import checkpoint
from mytorch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from mytorch.distributed.elastic import record
from mytorch.distributed.fsdp import FullyShardedDataParallelPlugin, fully_shard


class Saved:
    """The training state with the checkpoints of `distributed.checkpoint`."""

    def __init__(self, folder):
        self.folder, self.saving = Path(folder), None
        mytorch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(7, 33), nn.GELU(), nn.Linear(33, 5))
        fully_shard(self.model[0])
        fully_shard(self.model)
        self.optimizer = mytorch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def load(self):
        """Loads the newest checkpoint. Returns its number of steps."""
        latest = checkpoint.latest(self.folder)
        if latest is None:
            return 0
        weights, state = get_state_dict(self.model, self.optimizer)
        everything = {"model": weights, "optimizer": state, "step": 0}
        checkpoint.load(everything, checkpoint_id=latest)
        state = everything["optimizer"]
        set_state_dict(self.model, self.optimizer, model_state_dict=weights, optim_state_dict=state)
        return everything["step"]

    def wait(self):
        if self.saving is not None:
            self.saving.result()

    def save(self, step):
        self.wait()
        weights, state = get_state_dict(self.model, self.optimizer)
        everything = {"model": weights, "optimizer": state, "step": step}
        self.saving = checkpoint.async_save(everything, checkpoint_id=self.folder / f"step_{step}")


class Accelerated(Saved):
    """The training state with the checkpoints of an Accelerator, which replace each other."""

    def __init__(self, folder):
        self.folder, self.saving, self.step = Path(folder), None, 0
        mytorch.manual_seed(0)
        self.accelerator = Accelerator(fsdp=FullyShardedDataParallelPlugin(modules=["GELU"]))
        model = nn.Sequential(nn.Linear(7, 33), nn.GELU(), nn.Linear(33, 5))
        optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.accelerator.register_for_checkpointing(self)

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]

    def load(self):
        latest = newest_checkpoint(self.folder)
        if latest is not None:
            self.accelerator.load_state(latest)
        return self.step

    def save(self, step):
        self.step = step
        self.accelerator.save_state(self.folder / f"step_{step % 2}", total_limit=2)


def killer(rank, attempt, kills, seed):
    """Kills one rank, another one in each attempt, at a random moment after it has begun."""
    if attempt < kills and attempt % dist.get_world_size() == rank:
        delay = random.Random(attempt + seed).uniform(0.0, 0.4)
        threading.Thread(target=lambda: (time.sleep(delay), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()


@record
def main(folder, steps, kills, kind=Saved):
    dist.init_process_group(timeout=60)
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if not attempt:
        steps_of(Saved(folder), 0, steps, Path(folder) / "whole.txt", attempt)
    saved = kind(folder)
    done = saved.load()
    dist.barrier()
    steps_of(saved, done, done + 1, Path(folder) / "losses.txt", attempt, saves=True)
    killer(rank, attempt, kills, 0 if kind is Saved else 100)
    steps_of(saved, done + 1, steps, Path(folder) / "losses.txt", attempt, saves=True)
    saved.wait()
    dist.barrier()
    dist.destroy_process_group()


def steps_of(saved, first, last, path, attempt, saves=False):
    """Trains and writes the losses; with `saves`, saves a checkpoint every three steps."""
    rank, model, optimizer = dist.get_rank(), saved.model, saved.optimizer
    for step in range(first, last):
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
            with open(path, "a") as file:
                file.write(f"{step} {loss.item().hex()} {attempt}\n")
        if saves and step % 3 == 2:
            saved.save(step + 1)
        if saves:
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]), Accelerated if sys.argv[4:] else Saved)
