"""Checks of `mytorchrun test`, run in every process: collectives, a DDP step, precision, kernels and bandwidth."""

import importlib.util
import sys
import time
import traceback

import numpy as np

import mytorch
from mytorch import distributed as dist
from mytorch import nn
from mytorch.accelerate import Accelerator
from mytorch.distributed import ReduceOp

CHECKS = {}


def check(name):
    """Register a check. The check returns text to print, or None if it does not apply."""

    def register(function):
        CHECKS[name] = function
        return function

    return register


def expect(got, wanted, what):
    """Compare a tensor with its expected value.

    Raises:
        AssertionError: if they differ.
    """
    got, wanted = np.asarray(got.detach().cpu().double()), np.asarray(wanted, np.float64)
    if not np.allclose(got, wanted, rtol=1e-6, atol=1e-6):
        raise AssertionError(
            f"{what}: expected {np.broadcast_to(wanted, got.shape).ravel()[:4]}, got {got.ravel()[:4]}"
        )


@check("all_reduce")
def all_reduce(device, rank, n):
    """Check every reduction, with the common dtypes."""
    ranks = np.arange(1, n + 1)
    results = {ReduceOp.SUM: ranks.sum(), ReduceOp.MAX: n, ReduceOp.MIN: 1, ReduceOp.PRODUCT: ranks.prod()}
    for dtype in (mytorch.float32, mytorch.float16, mytorch.bfloat16, mytorch.int64):
        for op, wanted in results.items():
            if wanted < 256:
                x = mytorch.full((1000,), rank + 1, dtype=dtype, device=device)
                dist.all_reduce(x, op)
                expect(x, wanted, f"all_reduce({op.value}, {dtype.name})")
    x = mytorch.full((3,), float(rank), device=device)
    dist.all_reduce(x, ReduceOp.AVG)
    expect(x, (n - 1) / 2, "all_reduce(avg)")
    return "sum, avg, min, max, product; float32, float16, bfloat16, int64"


@check("broadcast, reduce")
def broadcast_and_reduce(device, rank, n):
    """Check broadcast and reduce with every rank as root."""
    for other in range(n):
        x = mytorch.full((5,), float(rank), device=device)
        dist.broadcast(x, other)
        expect(x, other, "broadcast")
        x = mytorch.full((5,), float(rank + 1), device=device)
        dist.reduce(x, other)
        expect(x, n * (n + 1) / 2 if rank == other else rank + 1, "reduce")
    return "from and to every rank"


@check("gather, scatter")
def gathering(device, rank, n):
    """Check all functions that gather or scatter."""
    mine = mytorch.full((2, 3), float(rank), device=device)
    out = [mytorch.zeros(2, 3, device=device) for _ in range(n)]
    dist.all_gather(out, mine)
    dist.gather(mine, out if rank == 0 else None)
    for r in range(n):
        expect(out[r], r, "all_gather")
    joined = mytorch.zeros(2 * n, 3, device=device)
    dist.all_gather_into_tensor(joined, mine)
    expect(joined[-1], n - 1, "all_gather_into_tensor")
    dist.scatter(mine, [o + 1 for o in out] if rank == 0 else None)
    expect(mine, rank + 1, "scatter")
    dist.reduce_scatter(mine, out)
    expect(mine, n * rank, "reduce_scatter")
    dist.all_to_all(out, [mytorch.full((2, 3), float(10 * rank + r), device=device) for r in range(n)])
    for r in range(n):
        expect(out[r], 10 * r + rank, "all_to_all")
    return "all_gather, gather, scatter, reduce_scatter, all_to_all"


@check("send, receive")
def sending(device, rank, n):
    """Check sends and receives around a ring."""
    if n == 1:
        return None
    out = mytorch.zeros(4, device=device)
    ring = [
        dist.P2POp(dist.isend, mytorch.full((4,), float(rank), device=device), (rank + 1) % n),
        dist.P2POp(dist.irecv, out, (rank - 1) % n),
    ]
    if dist.get_backend() == "nccl" and rank % 2:
        ring.reverse()
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    expect(out, (rank - 1) % n, "recv")
    return "around a ring"


@check("objects")
def objects(device, rank, n):
    """Check plain data and tensors."""
    out = [None] * n
    dist.all_gather_object(out, {"rank": rank, "x": mytorch.ones(rank + 1)})
    box = [{"from": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(box)
    if [o["rank"] for o in out] != list(range(n)) or box != [{"from": 0}]:
        raise AssertionError(f"objects: got {out} and {box}")
    return "all_gather_object, broadcast_object_list"


@check("groups")
def groups(device, rank, n):
    """Check a group of half of the ranks."""
    members = list(range((n + 1) // 2))
    half = dist.new_group(members)
    if rank in members:
        x = mytorch.ones(2, device=device)
        dist.all_reduce(x, group=half)
        expect(x, len(members), "all_reduce in a group")
    return f"ranks {members}"


def _model():
    mytorch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))


def _batch(n):
    draw = np.random.default_rng(0)
    return (mytorch.from_numpy(draw.normal(size=(8 * n, k)).astype(np.float32)) for k in (16, 4))


@check("DDP step")
def ddp_step(device, rank, n):
    """Compare gradients of DDP with gradients of one process on the whole batch."""
    x, y = (t.to(device) for t in _batch(n))
    single, model = _model().to(device), nn.parallel.DistributedDataParallel(_model().to(device), bucket_cap_mb=0.002)
    nn.functional.mse_loss(single(x), y).backward()
    mine = slice(8 * rank, 8 * rank + 8)
    nn.functional.mse_loss(model(x[mine]), y[mine]).backward()
    pairs = zip(single.parameters(), model.parameters(), strict=True)
    worst = max(abs(np.asarray(a.grad) - np.asarray(b.grad)).max() for a, b in pairs)
    if worst > 1e-5:
        raise AssertionError(f"ddp_step: expected the gradients of one process, got a difference of {worst:.1e}")
    return f"{len(model.reducer.buckets)} buckets, gradients within {worst:.0e} of one process"


@check("Accelerator")
def accelerator_step(device, rank, n):
    """Take ten steps in the configured precision; on a GPU, in every precision."""
    precisions = []
    for precision in ("no", "fp16", "bf16") if device.type == "cuda" else (None,):
        accelerator = Accelerator(mixed_precision=precision or "no")
        model = _model()
        optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
        model, optimizer = accelerator.prepare(model, optimizer)
        x, y = (t.to(device) for t in _batch(1))
        losses = []
        for _ in range(10):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss))
        if not losses[-1] < losses[0]:
            raise AssertionError(f"the loss did not fall: {losses[0]:.3f}, then {losses[-1]:.3f}")
        precisions.append(accelerator.mixed_precision)
    return f"mixed precision: {', '.join(precisions)}"


@check("fused kernels")
def fused_kernels(device, rank, n):
    """Compare results and gradients of fused kernels with the reference, to single precision."""
    compiler = "triton" if device.type == "cuda" else "numba"
    if not importlib.util.find_spec(compiler):
        return f"not compared: {compiler} is not installed"
    F = nn.functional
    labels = mytorch.randint(0, 256, (64,), device=device)
    ops = {
        "softmax": lambda x: F.softmax(x, -1),
        "layer_norm": lambda x: F.layer_norm(x, (256,)),
        "gelu": F.gelu,
        "cross_entropy": lambda x: F.cross_entropy(x, labels),
    }
    data, upstream = mytorch.randn(64, 256, device=device), mytorch.randn(64, 256, device=device)
    for name, op in ops.items():
        results = []
        for fused in (False, True):
            x = data.clone().requires_grad_()
            with mytorch.fused(fused):
                out = op(x)
                (out * upstream if out.ndim else out).sum().backward()
            results.append((np.asarray(out.detach().cpu()), np.asarray(x.grad)))
        for got, wanted in zip(results[1], results[0], strict=True):
            if not np.allclose(got, wanted, rtol=1e-4, atol=1e-5):
                raise AssertionError(f"fused {name} differs from the reference by {abs(got - wanted).max():.1e}")
    return f"{', '.join(ops)} equal the reference"


@check("bandwidth")
def bandwidth(device, rank, n):
    """Measure an all-reduce of 16 MB in float32."""
    if n == 1:
        return None
    x = mytorch.zeros(4 << 20, device=device)
    best = float("inf")
    for _ in range(6):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(x)
        if device.type == "cuda":
            mytorch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    rate = 2 * (n - 1) / n * x.nbytes / best / 1e9
    return f"all_reduce of 16 MB in {best * 1e3:.1f} ms, {rate:.1f} GB/s on each link"


def main():
    """Run the checks; rank 0 prints the table. Returns 0 if all checks passed."""
    import warnings

    warnings.simplefilter("ignore")
    accelerator = Accelerator()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if accelerator.device.type == "cuda" else "mpi")
    rank, n, device = dist.get_rank(), dist.get_world_size(), accelerator.device
    if rank == 0:
        print(f"{n} process{'es' if n > 1 else ''} on {device.type}, backend {dist.get_backend()}")
    failed = []
    for name, function in CHECKS.items():
        try:
            mine = [True, function(device, rank, n)]
        except Exception as error:
            mine = [False, f"rank {rank}: {type(error).__name__}: {error}"]
            traceback.print_exc()
        everyone = [None] * n
        dist.all_gather_object(everyone, mine)
        wrong = [text for fine, text in everyone if not fine]
        if rank == 0:
            state = "FAIL" if wrong else "skip" if mine[1] is None else "ok"
            print(f"  {name:<18} {state:<5} {wrong[0] if wrong else mine[1] or 'requires two processes'}")
        if wrong:
            failed.append(name)
    if rank == 0:
        print(f"FAIL: {', '.join(failed)}" if failed else "PASS")
    dist.destroy_process_group()
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
