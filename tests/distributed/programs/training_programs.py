"""Generated training programs over several processes against one process: DDP, ZeRO, FSDP of both generations, DTensors.

A program draws a model with odd and tiny shapes, a strategy, optimizers, accumulation, clipping, hooks, precision, and a change
to another layout by way of the state dicts. Each rank trains the same model alone on the batches of all ranks.
"""

import copy
import functools
import sys
import tempfile
import traceback
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.amp import GradScaler
from mytorch.autograd.graph import register_multi_grad_hook
from mytorch.distributed import checkpoint as dcp
from mytorch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from mytorch.distributed.device_mesh import init_device_mesh
from mytorch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, ShardedGradScaler, fully_shard
from mytorch.distributed.optim import ZeroRedundancyOptimizer
from mytorch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from mytorch.nn.parallel import DistributedDataParallel
from mytorch.utils._pytree import tree_map_only

WIDTH = 4  # of the features between two layers


class Scale(nn.Module):
    """A vector, a number with one element, and a parameter without elements."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.number = nn.Parameter(mytorch.ones(width)), nn.Parameter(mytorch.ones(1))
        self.nothing = nn.Parameter(mytorch.ones(0, 3))

    def forward(self, x):
        return x * self.weight + self.number + self.nothing.sum()


class Narrow(nn.Module):
    """Two linear layers with few features between them, of which one may be skipped."""

    def __init__(self, width, inner):
        super().__init__()
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return x + self.up(mytorch.tanh(self.down(x)))


class Tied(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(mytorch.sin(self.one(x)))


class Recurrent(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.cell = nn.GRU(width, inner, batch_first=True)
        self.up = nn.Linear(inner, width)

    def forward(self, x):
        return x + self.up(self.cell(x.unsqueeze(1).expand(-1, 2, -1))[0][:, -1])


class Convolution(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv1d(1, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x.unsqueeze(1)).mean(1)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        x = x.unsqueeze(0)
        return (x + self.attention(x, x, x, need_weights=False)[0]).squeeze(0)


class Table(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, x):
        return x + self.table(mytorch.arange(len(x)) % self.table.num_embeddings)


LAYERS = {
    "linear": lambda draw: nn.Linear(WIDTH, WIDTH, bias=bool(draw.integers(2))),
    "layer_norm": lambda draw: nn.LayerNorm(WIDTH),
    "rms_norm": lambda draw: nn.RMSNorm(WIDTH),
    "tanh": lambda draw: nn.Tanh(),
    "scale": lambda draw: Scale(WIDTH),
    "narrow": lambda draw: Narrow(WIDTH, int(draw.integers(1, 8))),
    "tied": lambda draw: Tied(WIDTH),
    "recurrent": lambda draw: Recurrent(WIDTH, int(draw.integers(1, 4))),
    "convolution": lambda draw: Convolution(int(draw.integers(1, 4))),
    "attention": lambda draw: Attention(WIDTH),
    "table": lambda draw: Table(int(draw.integers(1, 6)), WIDTH),
}
SPLIT = ["linear", "layer_norm", "tanh", "narrow", "tied"]  # layers whose functions have rules for sharded tensors


class Model(nn.Module):
    def __init__(self, names, draw):
        super().__init__()
        self.layers = nn.ModuleList([LAYERS[name](draw) for name in names])
        self.head = nn.Linear(WIDTH, int(draw.integers(1, 4)))
        for p in self.parameters():
            p.data = mytorch.from_numpy(draw.normal(size=tuple(p.shape)).astype(np.float32) * 0.5)

    def forward(self, x, skipped=()):
        for i, layer in enumerate(self.layers):
            if i not in skipped:
                x = layer(x)
        return self.head(x)


# With a usual eps, Adam makes noise of gradients that are zero, such as those of a key's bias, as large as a gradient.
OPTIMIZERS = [
    lambda p: mytorch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    lambda p: mytorch.optim.SGD(p, lr=0.05, nesterov=True, momentum=0.5),
    lambda p: mytorch.optim.AdamW(p, lr=0.01, eps=1e-3),
    lambda p: mytorch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1, eps=1e-3),
    lambda p: mytorch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.1, eps=1e-3),
    lambda p: mytorch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.1),
    lambda p: mytorch.optim.Adamax(p, lr=0.01, eps=1e-3),
    lambda p: mytorch.optim.NAdam(p, lr=0.01, eps=1e-3),
]


class Program:
    """The choices of one program, and its state on this rank."""

    def __init__(self, draw):
        self.n, self.rank = dist.get_world_size(), dist.get_rank()
        self.draw = draw
        self.strategy = str(draw.choice(["ddp", "zero", "fsdp", "fsdp", "fsdp1", "dtensor"]))
        kinds = SPLIT if self.strategy == "dtensor" else list(LAYERS)
        self.names = [str(draw.choice(kinds)) for _ in range(draw.integers(1, 5))]
        self.one = Model(self.names, draw)
        names = [name for name, _ in self.one.named_parameters()]
        self.frozen = {name for name in names if draw.integers(8) == 0} if len(names) > 2 else set()
        self.frozen.discard("head.bias")
        for name, p in self.one.named_parameters():
            p.requires_grad_(name not in self.frozen)
        self.half = self.strategy != "dtensor" and draw.integers(5) == 0  # autocast
        self.penalty = not self.half and self.strategy in ("ddp", "zero", "fsdp") and draw.integers(4) == 0
        self.skips = self.strategy != "fsdp1" and draw.integers(3) == 0
        self.kinds = [
            int(k) for k in draw.integers(len(OPTIMIZERS), size=1 + (self.strategy != "zero" and draw.integers(3) == 0))
        ]
        self.clip = [None, ("norm", 2.0), ("norm", 1.0), ("norm", float("inf")), ("value", None)][draw.integers(5)]
        if self.clip == ("norm", float("inf")) and "scale" in self.names:
            self.clip = None  # the largest element of a tensor without elements is an error
        if self.strategy == "fsdp1" and self.clip == ("value", None):
            self.clip = None
        self.hooks = self.strategy != "fsdp1" and draw.integers(2) == 1
        self.to_none = bool(draw.integers(2))
        self.scaler = draw.integers(4) == 0 and self.strategy in ("ddp", "fsdp")
        self.calls, self.passes, self.options, self.moved = [], 0, "", None
        self.start = copy.deepcopy(self.one)
        self.model = self.wrap(copy.deepcopy(self.one))
        self.optimizers = [self.make_optimizers(self.one, False), self.make_optimizers(self.model, True)]
        self.schedulers = [
            [mytorch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in group] if self.strategy != "zero" else []
            for group in self.optimizers
        ]
        if self.scaler:
            options = {"init_scale": 128.0, "growth_interval": 2}
            kinds = (GradScaler, ShardedGradScaler if self.strategy == "fsdp" and draw.integers(2) else GradScaler)
            self.scalers = [kind("cpu", **options) for kind in kinds]
        if self.hooks:
            ps = [p for p in self.model.parameters() if p.requires_grad]
            register_multi_grad_hook(ps, lambda grads: self.calls.append(len(grads)))

    def describe(self):
        shown = [
            "strategy",
            "options",
            "names",
            "frozen",
            "half",
            "penalty",
            "skips",
            "kinds",
            "clip",
            "hooks",
            "to_none",
            "scaler",
            "moved",
        ]
        return {name: getattr(self, name) for name in shown}

    def wrap(self, model):
        draw = self.draw
        if self.strategy in ("ddp", "zero"):
            options = {"find_unused_parameters": bool(self.skips)}
            options["gradient_as_bucket_view"] = bool(draw.integers(2))
            options["bucket_cap_mb"] = [25, 0.0001][draw.integers(2)]
            if not self.skips and draw.integers(4) == 0 and not self.penalty:
                options["static_graph"] = True
            self.options = str(options)
            return DistributedDataParallel(model, **options)
        if self.strategy == "fsdp":
            reshard = [None, True, False][draw.integers(3)]
            self.options = f"reshard={reshard}"
            for layer in model.layers:
                if draw.integers(2) and any(True for _ in layer.parameters()):
                    fully_shard(layer, reshard_after_forward=reshard)
                    self.options += " inner"
            return fully_shard(model, reshard_after_forward=reshard)
        if self.strategy == "fsdp1":
            for i, layer in enumerate(model.layers):
                if draw.integers(2) and any(True for _ in layer.parameters()):
                    model.layers[i] = FullyShardedDataParallel(layer, use_orig_params=True)
            return FullyShardedDataParallel(model, use_orig_params=True)
        mesh = world_mesh()

        def place(name, module, mesh):
            for key, p in list(module._parameters.items()):
                if p is not None and not isinstance(p, DTensor):
                    where = [Replicate(), Shard(0), Shard(p.ndim - 1)][draw.integers(3)]
                    fresh = placed.get(id(p))
                    if fresh is None:
                        fresh = placed[id(p)] = nn.Parameter(
                            distribute_tensor(p.detach(), mesh, [where]), requires_grad=p.requires_grad
                        )
                        kept.append(p)
                    module.register_parameter(key, fresh)

        placed, kept = {}, []
        return distribute_module(model, mesh, place)

    def make_optimizers(self, model, sharded):
        ps = [p for p in model.parameters() if p.requires_grad]
        parts = [ps[0::2], ps[1::2]] if len(self.kinds) == 2 and len(ps) > 1 else [ps]
        made = []
        for kind, part in zip(self.kinds, parts, strict=False):
            if sharded and self.strategy == "zero":
                sample = OPTIMIZERS[kind]([nn.Parameter(mytorch.ones(1))])
                defaults = {
                    k: v
                    for k, v in sample.defaults.items()
                    if k not in ("foreach", "fused", "differentiable", "capturable", "decoupled_weight_decay")
                }
                made.append(ZeroRedundancyOptimizer(part, type(sample), **defaults))
            else:
                made.append(OPTIMIZERS[kind](part))
        return made

    def loss(self, model, x, skipped):
        x = x.clone()
        context = mytorch.autocast("cpu", dtype=mytorch.bfloat16) if self.half else nullcontext()
        if self.penalty:
            x = x.requires_grad_()
        with context:
            y = model(x, skipped)
        loss = y.float().square().mean()
        if self.penalty:
            (g,) = mytorch.autograd.grad(y.sum(), x, create_graph=True)
            loss = loss + 0.1 * (g.norm() - 1) ** 2
        return loss

    def no_sync(self, last):
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
            return nullcontext()
        return nullcontext() if last or self.strategy == "dtensor" else self.model.no_sync()

    def step(self):
        """One step of both; returns a description of a difference, or None."""
        draw, n = self.draw, self.n
        micro, accumulate = int(draw.integers(1, 4)), bool(draw.integers(2))
        for k in range(micro):
            last = k == micro - 1 or not accumulate
            skipped = (
                {int(i) for i in draw.integers(len(self.names), size=1)} if self.skips and draw.integers(2) else set()
            )
            batches = mytorch.from_numpy(draw.normal(size=(n, 3, WIDTH)).astype(np.float32))
            scale = (lambda loss: self.scalers[0].scale(loss)) if self.scaler else (lambda loss: loss)
            for x in batches:
                scale(self.loss(self.one, x, skipped)).backward()
            self.passes += last
            with self.no_sync(last):
                if self.strategy == "dtensor":
                    where = [Replicate(), Shard(0)][draw.integers(2)]
                    x = distribute_tensor(batches.flatten(0, 1), world_mesh(), [where])
                    y = self.model(x, skipped)
                    mine = y.square().mean()
                    mine = mine.full_tensor() if isinstance(mine, DTensor) else mine
                    mine.backward()
                else:
                    mine = self.loss(self.model, batches[self.rank], skipped)
                    (self.scalers[1].scale(mine) if self.scaler else mine).backward()
        for p in self.one.parameters():
            if p.grad is not None:
                p.grad /= n
        problem = self.compare("gradient", lambda p: p.grad)
        if problem:
            return problem
        if self.hooks and self.strategy == "fsdp" and not self.skips and len(self.calls) != self.passes:
            return f"the hook of several gradients was called {len(self.calls)} times in {self.passes} passes"
        if self.scaler:
            for scaler, group in zip(self.scalers, self.optimizers, strict=True):
                for o in group:
                    scaler.unscale_(o)
        problem = self.clipped()
        if problem:
            return problem
        for which, group in enumerate(self.optimizers):
            for o in group:
                self.scalers[which].step(o) if self.scaler else o.step()
            if self.scaler:
                self.scalers[which].update()
            for s in self.schedulers[which]:
                s.step()
            for o in group:
                o.zero_grad(set_to_none=self.to_none)
        return self.compare("value", lambda p: p.detach())

    def clipped(self):
        if self.clip is None:
            return None
        models, (kind, order) = (self.one, self.model), self.clip
        if kind == "value":
            for model in models:
                nn.utils.clip_grad_value_(model.parameters(), 0.05)
            return None
        a = nn.utils.clip_grad_norm_(self.one.parameters(), 0.5, order)
        if self.strategy == "fsdp1":
            b = self.model.clip_grad_norm_(0.5, order)
        else:
            b = nn.utils.clip_grad_norm_(self.model.parameters(), 0.5, order)
        b = b.full_tensor() if isinstance(b, DTensor) else b
        problem = differs(b, a, 2e-2 if self.half else 1e-4)
        return problem and f"norm {problem}"

    def compare(self, what, of):
        for (name, p), q in zip(self.one.named_parameters(), self.model.parameters(), strict=True):
            a, b = of(p), of(q)
            if a is None or b is None:
                if (a is None) != (b is None) and not (a is None and not bool(as_full(b).any())):
                    return f"{what} of {name} is {b}, not {a}"
                continue
            problem = differs(b, a, 2e-2 if self.half else 2e-4)
            if problem:
                return f"{what} of {name} {problem}"
        return None

    def move(self):
        """Continues in a new model with another layout, by way of the state dicts in memory or in files."""
        how = str(self.draw.choice(["whole", "sharded"] if self.skips else ["whole", "sharded", "file"]))
        if self.strategy not in ("ddp", "fsdp") or len(self.kinds) > 1 or self.hooks or self.scaler:
            return
        self.one.zero_grad()
        model = self.wrap(copy.deepcopy(self.start))
        optimizers = self.make_optimizers(model, True)
        options = StateDictOptions(full_state_dict=how == "whole")
        states = get_state_dict(self.model, self.optimizers[1], options=options)
        if how == "file":
            states = by_file(states, get_state_dict(model, optimizers), self.rank)
        elif how == "sharded":  # to the layout of the new model
            options = StateDictOptions(full_state_dict=True)
            states = tree_map_only(DTensor, DTensor.full_tensor, states)
        set_state_dict(model, optimizers, model_state_dict=states[0], optim_state_dict=states[1], options=options)
        schedulers = [mytorch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in optimizers]
        for old, new in zip(self.schedulers[1], schedulers, strict=True):
            new.load_state_dict(old.state_dict())
        for old, new in zip(self.optimizers[1], optimizers, strict=True):
            for a, b in zip(old.param_groups, new.param_groups, strict=True):
                b["lr"] = a["lr"]  # a new scheduler starts with the first rate
        self.model, self.optimizers[1], self.schedulers[1], self.moved = model, optimizers, schedulers, how


def by_file(states, found, rank):
    """Saves state dicts to a shared folder, and loads them into those of a new model."""
    folders = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folders)
    dcp.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=folders[0])
    found = {"model": found[0], "optimizer": found[1]}
    dcp.load(found, checkpoint_id=folders[0])
    return found["model"], found["optimizer"]


@functools.cache
def world_mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def as_full(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def differs(found, wanted, tolerance):
    a, b = (np.asarray(as_full(x).float() if hasattr(x, "float") else x, np.float64) for x in (found, wanted))
    if a.shape != b.shape:
        return f"has the shape {a.shape}, not {b.shape}"
    worst = abs(a - b).max() if a.size else 0
    return (
        None
        if worst <= tolerance * max(0.1, abs(b).max() if b.size else 0)
        else f"differs by {worst} of {abs(b).max()}"
    )


def one_program(draw):
    """None, or the description of a difference from one process."""
    program = None
    try:
        program = Program(draw)
        steps = int(draw.integers(1, 4))
        for step in range(steps):
            problem = program.step()
            if problem:
                return f"step {step}: {problem}: {program.describe()}"
            if step == 0 and steps > 1 and draw.integers(2):
                program.move()
    except Exception as error:
        return f"{type(error).__name__}: {error}: {program and program.describe()}\n{''.join(traceback.format_exc()[-1500:])}"
    return None


def check_generated_training_programs():
    faults = checks.sweep(one_program, 8, 0)
    assert not faults, "\n".join(faults[:5])


if __name__ == "__main__":  # training_programs.py COUNT SEED: a longer run
    checks.longer_sweep(one_program)
