"""Generated training steps of DistributedDataParallel against one process: accumulation, unused parts, several outputs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.nn.parallel import DistributedDataParallel as DDP
from mytorch.utils.checkpoint import checkpoint

PARTS = "abcd"


class Parts(nn.Module):
    """Four linear layers, of which a forward uses some. The last two share a bias, and one layer can be frozen."""

    def __init__(self, seed, shared, frozen):
        super().__init__()
        draw = np.random.default_rng(seed)
        for name in PARTS:
            layer = nn.Linear(3, 2).double()
            for p in layer.parameters():
                p.data = mytorch.from_numpy(draw.normal(size=tuple(p.shape)))
            setattr(self, name, layer)
        self.scale = nn.Parameter(mytorch.tensor(0.5, dtype=mytorch.float64))  # 0-d
        self.empty = nn.Parameter(mytorch.zeros(0, 3, dtype=mytorch.float64))
        if shared:
            self.d.bias = self.c.bias
        if frozen:
            self.b.weight.requires_grad_(False)

    def forward(self, x, used, outputs, recompute=False):
        """A dict, list or tuple with the output of each part, or one tensor."""
        found = {}
        for name in used:
            layer = getattr(self, name)
            part = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
            found[name] = part.tanh() * (self.scale if name != "a" else 1) + self.empty.sum()
        if outputs == "sum":
            return sum(found.values()) if found else x.sum() * 0
        return (
            found if outputs == "dict" else list(found.values()) if outputs == "list" else (tuple(found.values()), {})
        )


def loss_of(out, chosen):
    """A loss of some of the outputs."""
    if isinstance(out, mytorch.Tensor):
        return out.square().sum()
    values = list(out.values()) if isinstance(out, dict) else list(out[0]) if isinstance(out, tuple) else out
    values = [v for i, v in enumerate(values) if i in chosen or len(values) == 1]
    return sum(v.square().sum() for v in values) if values else None


def gradients(model):
    return {n: None if p.grad is None else np.asarray(p.grad).copy() for n, p in model.named_parameters()}


def one_pattern(draw):
    """None, or the description of a difference."""
    n, rank = dist.get_world_size(), dist.get_rank()
    shared, frozen = (bool(draw.integers(2)) for _ in range(2))
    unused = bool(draw.integers(4))
    options = {
        "find_unused_parameters": unused and bool(draw.integers(3)), "gradient_as_bucket_view": bool(draw.integers(2)),
        "bucket_cap_mb": [25, 1e-5][draw.integers(2)],
    }  # fmt: skip
    options["static_graph"] = unused and not options["find_unused_parameters"]
    seed = int(draw.integers(1 << 30))
    one = Parts(seed, shared, frozen)
    model = DDP(Parts(seed, shared, frozen), **options)
    extra = bool(draw.integers(2))
    text = [f"{options}, shared={shared}, frozen={frozen}"]
    for _step in range(3):
        micros, keeps = int(draw.integers(1, 4)), bool(draw.integers(4) == 0)
        steps = []
        for micro in range(micros):
            each = []  # what each rank uses
            outputs, recompute = draw.choice(["sum", "dict", "list", "tuple"]), bool(draw.integers(3) == 0)
            same = [c for c in PARTS if draw.integers(3)] or ["a"]
            chosen = {int(draw.integers(len(same))), int(draw.integers(len(same)))}
            for _ in range(n):
                if not unused:
                    each.append((list(PARTS), set(range(4))))
                elif extra and not options["static_graph"]:  # other parts on each rank
                    mine = [c for c in PARTS if draw.integers(2)] if draw.integers(8) else []
                    each.append((mine or ([] if outputs == "sum" else ["c"]), {0, int(draw.integers(4))}))
                else:
                    each.append((same, chosen))
            x = mytorch.from_numpy(draw.normal(size=(n, 2, 3)))
            steps.append((micro < micros - 1, outputs, recompute, each, x))
        text.append(f"zero={not keeps} " + "; ".join(f"sync={not s[0]} {s[1]} {s[3]}" for s in steps))
        if not keeps:
            set_to_none = bool(draw.integers(2))
            one.zero_grad(set_to_none)
            model.zero_grad(set_to_none)
        for waits, outputs, recompute, each, x in steps:
            losses = [loss_of(one(x[r], used, outputs, recompute), chosen) for r, (used, chosen) in enumerate(each)]
            total = sum(loss for loss in losses if loss is not None) / n
            if isinstance(total, mytorch.Tensor) and total.requires_grad:
                total.backward()
            used, chosen = each[rank]

            def backward(x=x, used=used, outputs=outputs, recompute=recompute, chosen=chosen):
                loss = loss_of(model(x[rank], used, outputs, recompute), chosen)
                if loss is not None and loss.requires_grad:
                    loss.backward()

            if waits:
                with model.no_sync():
                    backward()
            else:
                backward()
        found, wanted = gradients(model.module), gradients(one)
        for name, w in wanted.items():
            f = found[name]
            if (f is None) != (w is None):
                return f"{name} has the gradient {f}, not {w}: {text}"
            if w is not None and not np.allclose(f, w, atol=1e-9):
                return f"{name} differs by {abs(f - w).max()} of {abs(w).max()}: {text}"
    return None


def check_generated_ddp_patterns():
    faults = checks.sweep(one_pattern, 25, 0)
    assert not faults, "\n".join(faults[:5])


# -- updates that processes share, and averages of parameters -----------------------------------------------------------

SHAPES = [(), (1,), (0, 3), (3,), (5, 2), (2, 1, 3), (7, 7)]
OPTIMIZERS = [("SGD", {"momentum": 0.9}), ("AdamW", {}), ("Adagrad", {}), ("RMSprop", {}), ("Adam", {"amsgrad": True})]


def tensors(draw, count):
    """Returns parameters of random shapes, dtypes and layouts, the same on each rank."""
    found = []
    for _ in range(count):
        x = draw.standard_normal(SHAPES[draw.integers(len(SHAPES))])
        x = mytorch.tensor(x, dtype=[mytorch.float64, mytorch.float32][draw.integers(2)])
        found.append(
            mytorch.nn.Parameter(
                x.transpose(0, -1).contiguous().transpose(0, -1) if draw.random() < 0.3 and x.ndim else x
            )
        )
    return found


def one_shared_update(draw):
    """ZeroRedundancyOptimizer against the optimizer of one process."""
    from mytorch.optim.zero import ZeroRedundancyOptimizer

    name, options = OPTIMIZERS[draw.integers(len(OPTIMIZERS))]
    views, added, steps = bool(draw.random() < 0.7), bool(draw.random() < 0.3), int(draw.integers(1, 4))
    shared = tensors(draw, int(draw.integers(1, 7)))
    alone = [mytorch.nn.Parameter(p.detach().clone()) for p in shared]
    text = f"{name}, views={views}, added={added}, {[tuple(p.shape) for p in shared]}"
    make = getattr(mytorch.optim, name)
    first = ZeroRedundancyOptimizer(
        shared[:1] if added else shared, make, lr=0.1, parameters_as_bucket_view=views, **options
    )
    second = make(alone[:1] if added else alone, lr=0.1, **options)
    if added and len(shared) > 1:
        first.add_param_group({"params": shared[1:], "lr": 0.01})
        second.add_param_group({"params": alone[1:], "lr": 0.01})
    for _ in range(steps):
        for p, q in zip(shared, alone, strict=True):
            p.grad = mytorch.tensor(draw.standard_normal(tuple(p.shape)), dtype=p.dtype)
            q.grad = p.grad.clone()
        versions = [p._version for p in shared]
        first.step()
        second.step()
        if any(p._version == v for p, v in zip(shared, versions, strict=True)):
            return f"a version did not change: {text}"
    for p, q in zip(shared, alone, strict=True):
        if p.shape != q.shape or not np.allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6, atol=1e-9):
            return f"{p} is not {q}: {text}"
    if views and len({p.untyped_storage().data_ptr() for p in shared if p.numel()}) > 2 * dist.get_world_size():
        return f"the parameters share no memory: {text}"
    return None


def one_average(draw):
    """PeriodicModelAverager against the mean of the values of all ranks."""
    from mytorch.distributed.model_averaging import PeriodicModelAverager

    period, warmup = int(draw.integers(1, 4)), int(draw.integers(0, 3))
    params = tensors(draw, int(draw.integers(1, 5)))
    unused = int(draw.integers(0, 3))
    averager = PeriodicModelAverager(period, warmup)
    groups = [{"params": params}] if draw.random() < 0.5 else params
    for i, p in enumerate(params):
        p.grad = None if i == unused else mytorch.zeros_like(p)
    for step in range(6):
        moves = [draw.standard_normal((dist.get_world_size(), *p.shape)) for p in params]
        every = [None] * dist.get_world_size()
        with mytorch.no_grad():
            for p, move in zip(params, moves, strict=True):
                p += mytorch.tensor(move[dist.get_rank()], dtype=p.dtype)
        dist.all_gather_object(every, [p.detach().numpy().copy() for p in params])
        averager.average_parameters(iter(groups))
        averaged = step >= warmup and (step - warmup) % period == 0
        for i, p in enumerate(params):
            wanted = np.mean([e[i] for e in every], 0) if averaged and i != unused else every[dist.get_rank()][i]
            if not np.allclose(p.detach().numpy(), wanted, rtol=1e-5, atol=1e-6):
                return f"step {step} of period {period} after {warmup}: parameter {i}, unused {unused}"
    return None


def check_generated_shared_updates():
    faults = checks.sweep(one_shared_update, 25, 1) + checks.sweep(one_average, 15, 2)
    assert not faults, "\n".join(faults[:5])


# -- batch normalization over the batches of all processes --------------------------------------------------------------


def agreed(fault):
    """The description of the first rank that has one, on all ranks."""
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, fault)
    return next((e for e in every if e), None)


def unequal(found, wanted, tolerance):
    """The description of a difference between two tensors, or None."""
    if (found is None) != (wanted is None):
        return f"{found}, not {wanted}"
    if found is None:
        return None
    a, b = (np.asarray(mytorch.as_tensor(t).detach().double()) for t in (found, wanted))
    fits = (
        found.dtype == wanted.dtype and a.shape == b.shape and np.allclose(a, b, tolerance, tolerance, equal_nan=True)
    )
    return None if fits else f"{found.dtype} {a.ravel()[:4]}, not {wanted.dtype} {b.ravel()[:4]}"


def one_batch_norm(draw):
    """SyncBatchNorm of batches of several sizes, also of size 0, against batch normalization of the joined batch."""
    n, rank, rest = (
        dist.get_world_size(),
        dist.get_rank(),
        tuple(int(k) for k in draw.integers(1, 4, draw.integers(0, 4))),
    )
    channels, momentum = int(draw.integers(1, 5)), [0.1, None, 0.0, 1.0][draw.integers(4)]
    dtype = [mytorch.float32, mytorch.float64, mytorch.float16, mytorch.bfloat16][draw.integers(4)]
    kind = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d][len(rest)]
    one = kind(channels, 1e-2, momentum, bool(draw.integers(3)), bool(draw.integers(3)))
    one.to(mytorch.float64 if dtype is mytorch.float64 else mytorch.float32)
    for p in one.parameters():
        p.data = mytorch.from_numpy(draw.normal(size=channels)).to(p.dtype)
        p.requires_grad_(bool(draw.integers(4)))
    shared = nn.SyncBatchNorm.convert_sync_batchnorm(
        kind(channels, 1e-2, momentum, one.affine, one.track_running_stats)
    )
    shared.to(mytorch.float64 if dtype is mytorch.float64 else mytorch.float32)
    shared.load_state_dict(one.state_dict())
    for p, q in zip(one.parameters(), shared.parameters(), strict=True):
        q.requires_grad_(p.requires_grad)
    rough = {mytorch.float16: 3e-2, mytorch.bfloat16: 2e-1, mytorch.float32: 1e-3}.get(dtype, 1e-8)
    for _ in range(3):
        sizes = [int(k) + 2 * (r == 0) for r, k in enumerate(draw.integers(0, 4, n))]
        train = bool(draw.integers(4)) or not one.track_running_stats
        text = f"{one} of {rest} in {dtype}, sizes {sizes}, train={train}"
        x, g = (mytorch.from_numpy(draw.normal(size=(sum(sizes), channels, *rest))).to(dtype) for _ in range(2))
        mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        y = x[mine].clone().requires_grad_()
        x.requires_grad_()
        wanted, found = one.train(train)(x), shared.train(train)(y)
        fault = unequal(found, wanted[mine], rough)
        again = train and bool(draw.integers(2))
        if again:  # second derivatives must not be left out
            (slope,) = mytorch.autograd.grad(found, y, g[mine], create_graph=True)
            try:
                (slope.square().sum() + found.sum()).backward()
                fault = fault or "second derivatives without an error"
            except RuntimeError as error:
                fault = fault if "once_differentiable" in str(error) else repr(error)
        else:
            wanted.backward(g)
            found.backward(g[mine])
            fault = fault or unequal(y.grad, x.grad[mine], 5 * rough)
        fault = agreed(fault)
        for (name, a), b in zip(one.named_parameters(), shared.parameters(), strict=True):
            if not again and a.grad is not None and fault is None:
                total = mytorch.as_tensor(b.grad).clone()
                dist.all_reduce(total)
                fault = agreed(unequal(total, mytorch.as_tensor(a.grad), 20 * rough) and f"gradient of {name}")
            a.grad = b.grad = None
        for (name, a), b in zip(one.named_buffers(), shared.buffers(), strict=True):
            fault = fault or agreed(unequal(b, a, max(rough, 1e-3)) and f"buffer {name}")
        if fault:
            return f"{fault}: {text}"
    return None


def check_generated_batch_norms():
    faults = checks.sweep(one_batch_norm, 60, 3)
    assert not faults, "\n".join(faults[:5])


if __name__ == "__main__":  # ddp_patterns.py COUNT SEED: a longer run
    checks.longer_sweep(one_pattern)
