"""A PyTorch program for torchrun that trains small transformers with DDP, FSDP and tensor parallelism.

    pytorch_sharded.py results.json MODE …

A mode is a name of a function below. The results are {mode: losses of all steps}.
"""

import json
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS, BATCH, LENGTH, VOCABULARY, WIDTH, HEADS = 20, 12, 8, 30, 24, 4


class Attention(nn.Module):
    def __init__(self, rotary, bias):
        super().__init__()
        self.head, self.rotary = WIDTH // HEADS, rotary
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=bias) for _ in range(4))

    def turn(self, x):
        angles = torch.arange(x.shape[-2]).unsqueeze(1) * 100.0 ** -torch.linspace(0, 1, self.head // 2)
        a, b = x.chunk(2, dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x):
        q, k, v = (
            f(x).reshape(x.shape[0], x.shape[1], -1, self.head).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class Block(nn.Module):
    def __init__(self, llama):
        super().__init__()
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.llama = llama
        self.norm1, self.attention, self.norm2 = norm(WIDTH), Attention(llama, not llama), norm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 50, bias=not llama), nn.Linear(50, WIDTH, bias=not llama)
        self.gate = nn.Linear(WIDTH, 50, bias=False) if llama else None

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        h = F.silu(self.gate(h)) * self.up(h) if self.llama else F.gelu(self.up(h))
        return x + self.down(h)


class Transformer(nn.Module):
    def __init__(self, llama):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = None if llama else nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(llama) for _ in range(2)])
        self.norm = nn.RMSNorm(WIDTH) if llama else nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if not llama:
            self.head.weight = self.embed.weight

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).reshape(-1, VOCABULARY).float(), targets.reshape(-1))


def build(kind):
    torch.manual_seed(0)
    return Transformer(kind == "llama")


def batch(step, rank, size):
    tokens = (torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) * (2 * step + 3) + step) % VOCABULARY
    part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    return tokens[part], ((tokens * 7 + 1) % VOCABULARY)[part]


def train(model, rank, size, accumulation=1, clip=None, sync=lambda last: None):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for step in range(STEPS):
        total = torch.zeros((), dtype=torch.float64)
        for micro in range(accumulation):
            sync(micro == accumulation - 1)
            loss = model(*batch(step * accumulation + micro, rank, size)) / accumulation
            loss.backward()
            loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
            total += loss.detach().double()
        if clip is not None:
            norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
            losses.append(float(norm))
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        losses.append(float(total) / dist.get_world_size())
    return losses


def shard(model, mesh, **options):
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def ddp(kind):
    model = nn.parallel.DistributedDataParallel(build(kind))
    return train(model, dist.get_rank(), dist.get_world_size())


def fsdp(kind):
    model = shard(build(kind), init_device_mesh("cpu", (dist.get_world_size(),)))
    return train(model, dist.get_rank(), dist.get_world_size())


def accumulated(kind):
    """Accumulation without communication, clipping, and a frozen block."""
    model = build(kind)
    for p in model.blocks[0].parameters():
        p.requires_grad_(False)
    model = shard(model, init_device_mesh("cpu", (dist.get_world_size(),)))
    return train(model, dist.get_rank(), dist.get_world_size(), 2, 0.5, model.set_requires_gradient_sync)


def mixed(kind):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    model = shard(build(kind), init_device_mesh("cpu", (dist.get_world_size(),)), mp_policy=policy)
    return train(model, dist.get_rank(), dist.get_world_size())


def parallelized(kind, mesh):
    plan = {}
    for i in range(2):
        names = ["attention.q", "attention.k", "attention.v", "up", *(["gate"] if kind == "llama" else [])]
        plan |= {f"blocks.{i}.{name}": ColwiseParallel() for name in names}
        plan |= {f"blocks.{i}.{name}": RowwiseParallel() for name in ("attention.o", "down")}
    if kind == "llama":
        plan["embed"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
        plan["head"] = ColwiseParallel(output_layouts=Replicate())
        plan["norm"] = None
    return parallelize_module(build(kind), mesh, {name: style for name, style in plan.items() if style})


def tp(kind):
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    return train(parallelized(kind, mesh["tp"]), 0, 1)


def fsdp_tp(kind):
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = shard(parallelized(kind, mesh["tp"]), mesh["dp"])
    return train(model, mesh["dp"].get_local_rank(), mesh["dp"].size())


def main():
    dist.init_process_group("gloo")
    results = {}
    for mode in sys.argv[2:]:
        for kind in ("gpt2", "llama"):
            results[f"{mode} {kind}"] = globals()[mode](kind)
    assert Shard(0) == Shard(0)
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as file:
            json.dump(results, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
