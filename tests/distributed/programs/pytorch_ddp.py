"""A PyTorch program for torchrun that does not mention mytorch."""

import json
import os
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group(backend="gloo", init_method="env://")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    assert rank == int(os.environ["RANK"]) and world_size == int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 60, dtype=torch.float64).reshape(30, 2)
    y = (x.sin().sum(1, keepdim=True) > 0).double()
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True, seed=4)
    loader = DataLoader(dataset, batch_size=5, sampler=sampler)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    model = DDP(model, bucket_cap_mb=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, dtype=torch.float64)
        for i, (a, b) in enumerate(loader):
            last = i == len(loader) - 1 or i % 2 == 1
            with nullcontext() if last else model.no_sync():
                loss = nn.functional.binary_cross_entropy_with_logits(model(a), b)
                loss.backward()
            total[0] += loss.detach()
            total[1] += 1
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        losses.append((total[0] / total[1]).item())
    gathered = [torch.zeros(1, dtype=torch.float64) for _ in range(world_size)]
    dist.all_gather(gathered, torch.tensor([losses[-1]], dtype=torch.float64))
    assert len({g.item() for g in gathered}) == 1
    objects = [None] * world_size
    dist.all_gather_object(objects, {"rank": rank})
    assert [o["rank"] for o in objects] == list(range(world_size))
    dist.barrier()
    if rank == 0:
        with open(sys.argv[1], "w") as file:
            json.dump(losses, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
