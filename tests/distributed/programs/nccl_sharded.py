"""fully_shard, DTensor, tensor parallelism and sharded checkpoints over the NCCL engine, with a fake CuPy and a fake NCCL.

The reference is a model of one process on the CPU. No GPU takes part.
"""

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "gpu")]

os.environ["FAKE_CUPY_DEVICES"] = os.environ["WORLD_SIZE"]  # one GPU for each rank

import fake_cublaslt
import fake_cupy
import fake_nccl

os.environ.pop("MYTORCHRUN_CPU", None)  # the launcher's variable for ranks without GPUs
fake_cupy.install()
fake_cublaslt.install()
fake_nccl.install()

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.accelerate import Accelerator
from mytorch.distributed import checkpoint as dcp
from mytorch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from mytorch.distributed.device_mesh import init_device_mesh
from mytorch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, ShardedGradScaler, fully_shard
from mytorch.distributed.nn import functional as DF
from mytorch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from mytorch.distributed.tensor.parallel import parallelize_module
from mytorch.distributed.tensor.parallel.plans import plan_of
from mytorch.models import GPT2, Llama

STEPS, BATCH = 4, 4


def model_of(kind, seed=0):
    mytorch.manual_seed(seed)
    shape = {"vocab_size": 31, "context_length": 8, "num_layers": 2, "num_heads": 2, "embed_dim": 10}
    return GPT2(**shape) if kind == "gpt2" else Llama(**{**shape, "embed_dim": 8})


def shard(model, **options):
    for block in model.transformer.h if isinstance(model, GPT2) else model.model.layers:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def mesh(*shape, names=("dp",)):
    return init_device_mesh("cuda", shape or (dist.get_world_size(),), mesh_dim_names=names)


def batch(step, rank, size, device):
    x = np.random.default_rng(step).integers(0, 31, (BATCH, 8))[rank * BATCH // size : (rank + 1) * BATCH // size]
    return mytorch.from_numpy(x).to(device), mytorch.from_numpy((x * 7 + 1) % 31).to(device)


def train(model, device="cuda", rank=0, size=1, accumulation=1, steps=range(STEPS), optimizer=None):
    """Losses and norms of the gradients."""
    optimizer, out = optimizer or mytorch.optim.AdamW(model.parameters(), lr=1e-2), []
    for step in steps:
        total = mytorch.zeros((), device=device)
        for micro in range(accumulation):
            if hasattr(model, "set_requires_gradient_sync"):
                model.set_requires_gradient_sync(micro == accumulation - 1)
            loss = model(*batch(step * accumulation + micro, rank, size, device)) / accumulation
            loss.backward()
            total += loss.full_tensor().detach() if isinstance(loss, DTensor) else loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            dist.all_reduce(total, dist.ReduceOp.AVG)
        out += [norm.item(), total.item()]
    return out


def close(a, b, tolerance=1e-5):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def check_fully_shard():
    for kind, accumulation, options in (("gpt2", 2, {}), ("llama", 1, {"reshard_after_forward": False})):
        expected = train(model_of(kind), "cpu", accumulation=accumulation)
        fake_nccl.calls.clear()
        model = shard(model_of(kind).to("cuda"), **options)
        close(train(model, "cuda", dist.get_rank(), dist.get_world_size(), accumulation), expected)
        assert {"allGather", "reduceScatter", "allReduce"} <= set(fake_nccl.calls)
        assert all(p.to_local().device.type == "cuda" for p in model.parameters())


def check_mixed_precision_and_the_scaler():
    policy = MixedPrecisionPolicy(param_dtype=mytorch.bfloat16, reduce_dtype=mytorch.float32, cast_forward_inputs=False)
    model = shard(model_of("llama").to("cuda"), mp_policy=policy)
    close(train(model, "cuda", dist.get_rank(), dist.get_world_size()), train(model_of("llama"), "cpu"), 0.1)
    layer = fully_shard(nn.Linear(4, dist.get_world_size()).to("cuda"))
    optimizer, scaler = mytorch.optim.SGD(layer.parameters(), lr=0.1), ShardedGradScaler("cuda", init_scale=4.0)
    scale = mytorch.ones(dist.get_world_size(), device="cuda")
    scale[0] = float("inf")  # the row of rank 0 overflows
    scaler.scale((layer(mytorch.ones(1, 4, device="cuda")) * scale).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0


def check_parameters_in_host_memory():
    expected = train(model_of("gpt2"), "cpu")
    for pinned in (False, True):
        model = shard(model_of("gpt2").to("cuda"), offload_policy=CPUOffloadPolicy(pin_memory=pinned))
        assert all(p.to_local().is_pinned() == pinned for p in model.parameters() if p.to_local().numel())
        close(train(model, "cuda", dist.get_rank(), dist.get_world_size()), expected)
        assert all(p.to_local().device.type == "cpu" for p in model.parameters())
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        assert whole["transformer.wte.weight"].shape == (31, 10)


def check_hybrid_sharding():
    grid = mesh(dist.get_world_size(), 1, names=("copies", "shards"))
    model = shard(model_of("gpt2").to("cuda"), mesh=grid)
    close(train(model, "cuda", dist.get_rank(), dist.get_world_size()), train(model_of("gpt2"), "cpu"))


def check_tensor_parallel_models():
    for kind, sequence in (("gpt2", True), ("llama", False)):
        model = model_of(kind).to("cuda")
        parallelize_module(model, mesh(names=("tp",)), plan_of(model, dist.get_world_size(), sequence))
        close(train(model, "cuda"), train(model_of(kind), "cpu"))


def check_dtensors():
    n, draw = dist.get_world_size(), np.random.default_rng(0)
    x, w = (mytorch.from_numpy(draw.standard_normal(s).astype("f")) for s in ((5, 3), (7, 3)))
    for a, b in ((Shard(0), Replicate()), (Shard(1), Shard(1)), (Replicate(), Shard(0))):
        mine = [distribute_tensor(t.to("cuda").requires_grad_(), mesh(), [p]) for t, p in ((x, a), (w, b))]
        whole = [t.clone().requires_grad_() for t in (x, w)]
        for function in (F.linear, lambda x, w: (x[:, None] * w).softmax(-1).sum(1)):
            out, expected = function(*mine), function(*whole)
            np.testing.assert_allclose(out.full_tensor().detach().cpu().numpy(), expected.detach().numpy(), atol=1e-5)
            out.full_tensor().square().sum().backward()
            expected.square().sum().backward()
        for d, t in zip(mine, whole, strict=True):
            np.testing.assert_allclose(d.grad.full_tensor().cpu().numpy(), np.asarray(t.grad), atol=1e-4)
    part = DTensor.from_local(mytorch.ones(3, 4, device="cuda") * (dist.get_rank() + 1), mesh(), [Partial()])
    for target in (Replicate(), Shard(0), Shard(1)):
        assert part.redistribute(placements=[target]).full_tensor().tolist() == [[n * (n + 1) / 2] * 4] * 3
    moved = distribute_tensor(mytorch.arange(12.0, device="cuda").reshape(4, 3), mesh(), [Shard(0)])
    assert moved.redistribute(placements=[Shard(1)]).full_tensor().reshape(-1).tolist() == list(range(12))


def check_collectives_with_gradients():
    rank, n = dist.get_rank(), dist.get_world_size()
    x = (mytorch.arange(3.0, device="cuda") + rank).requires_grad_()
    for out, expected in (
        (DF.all_reduce(x).sum(), n),
        (mytorch.stack(DF.all_gather(x)).sum(), n),
        (DF.broadcast(x, 0).sum(), n if rank == 0 else 0),
        (DF.reduce_scatter(mytorch.zeros(3, device="cuda"), [x * 1 for _ in range(n)]).sum(), n),
        (mytorch.stack(DF.all_to_all([mytorch.zeros(3, device="cuda")] * n, [x * 2 for _ in range(n)])).sum(), 2 * n),
        (sum(t.sum() for t in DF.gather(x, 0)), 1),
    ):
        x.grad = None
        out.backward()
        assert x.grad.tolist() == [float(expected)] * 3


def shared_folder():
    box = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(box)
    return Path(box[0])


def check_checkpoints():
    rank, n, folder = dist.get_rank(), dist.get_world_size(), shared_folder()
    model = shard(model_of("gpt2").to("cuda"))
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    train(model, "cuda", rank, n, steps=range(2), optimizer=optimizer)
    weights, state = get_state_dict(model, optimizer)
    saving = dcp.async_save({"model": weights, "optimizer": state}, checkpoint_id=folder / "step_2")
    later = train(model, "cuda", rank, n, steps=range(2, 4), optimizer=optimizer)
    saving.result()
    dist.barrier()
    other = model_of("gpt2", seed=9).to("cuda")
    parallelize_module(other, mesh(names=("tp",)), plan_of(other, n))
    optimizer = mytorch.optim.AdamW(other.parameters(), lr=1e-2)
    weights, state = get_state_dict(other, optimizer)
    everything = {"model": weights, "optimizer": state}
    dcp.load(everything, checkpoint_id=folder / "step_2")
    set_state_dict(other, optimizer, model_state_dict=weights, optim_state_dict=everything["optimizer"])
    close(train(other, "cuda", steps=range(2, 4), optimizer=optimizer), later)


def check_the_accelerator():
    folder, found = shared_folder(), []
    for seed, load in ((0, None), (5, folder / "state")):
        accelerator = Accelerator(fsdp=True)
        model = model_of("gpt2", seed)
        model, optimizer = accelerator.prepare(model, mytorch.optim.AdamW(model.parameters(), lr=1e-2))
        assert accelerator.device.type == "cuda"
        if load is None:
            train(model, "cuda", dist.get_rank(), dist.get_world_size(), steps=range(2), optimizer=optimizer)
            accelerator.save_state(folder / "state")
        else:
            accelerator.load_state(load)
        found.append(
            train(model, "cuda", dist.get_rank(), dist.get_world_size(), steps=range(2, 4), optimizer=optimizer)
        )
    assert found[0] == found[1]


if __name__ == "__main__":
    checks.run(globals(), sys.argv[1], "nccl")
