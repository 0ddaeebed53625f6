"""fully_shard, DTensor, tensor parallelism and sharded checkpoints against one process; run under the launcher."""

import functools
import sys
import tempfile
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.accelerate import Accelerator
from mytorch.amp import GradScaler
from mytorch.autograd.graph import register_multi_grad_hook
from mytorch.distributed import checkpoint as dcp
from mytorch.distributed import collectives
from mytorch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from mytorch.distributed.device_mesh import DeviceMesh, init_device_mesh
from mytorch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    FullyShardedDataParallelPlugin,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    ShardedGradScaler,
    StateDictType,
    fully_shard,
)
from mytorch.distributed.fsdp import wrapper as fsdp_wrapper
from mytorch.distributed.fsdp.wrap import ModuleWrapPolicy
from mytorch.distributed.join import Join
from mytorch.distributed.mpi import MPIEngine
from mytorch.distributed.nn import functional as DF
from mytorch.distributed.optim import ZeroRedundancyOptimizer
from mytorch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from mytorch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from mytorch.distributed.tensor.parallel.plans import plan_of
from mytorch.models import GPT2, Llama
from mytorch.models.gpt2 import Block
from mytorch.utils.checkpoint import checkpoint
from mytorch.utils.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)

STEPS, BATCH = 20, 12  # BATCH of all ranks together


def raises(kind, text, action):
    try:
        action()
    except kind as error:
        assert text in str(error), f"{error}"
        assert str(error).count("\n") == 0 or "Traceback" not in str(error)
    else:
        raise AssertionError(f"no error with {text!r}")


@functools.cache
def world_mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))


@functools.cache
def grid():
    """A mesh of data parallelism × 2 for tensor parallelism."""
    return init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))


def model_of(kind, seed=0, **changes):
    mytorch.manual_seed(seed)
    if kind == "gpt2":  # odd sizes: 31 tokens, width 10
        shape = {
            "vocab_size": 31,
            "context_length": 8,
            "num_layers": 2,
            "num_heads": 2,
            "embed_dim": 10,
            "use_bias": True,
        }
        return GPT2(**shape | changes)
    shape = {"vocab_size": 31, "context_length": 8, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 16}
    return Llama(**shape | changes)


def blocks_of(model):
    return model.transformer.h if isinstance(model, GPT2) else model.model.layers


def shard(model, **options):
    for block in blocks_of(model):
        fully_shard(block, **options)
    return fully_shard(model, **options)


def batch(step, rank=0, size=1):
    draw = np.random.default_rng(step)
    x = draw.integers(0, 31, (BATCH, 8))[rank * BATCH // size : (rank + 1) * BATCH // size]
    return mytorch.from_numpy(x), mytorch.from_numpy((x * 7 + 1) % 31)


def mean(value):
    total = mytorch.tensor(float(value), dtype=mytorch.float64)
    dist.all_reduce(total, dist.ReduceOp.AVG)
    return total.item()


def train(model, rank=0, size=1, accumulation=1, clip=None, steps=STEPS, first=0, optimizer=None):
    """Losses, and norms with clipping; `size` parts of each batch."""
    optimizer = optimizer or mytorch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for step in range(first, first + steps):
        total = 0.0
        for micro in range(accumulation):
            if hasattr(model, "set_requires_gradient_sync"):
                model.set_requires_gradient_sync(micro == accumulation - 1)
            loss = model(*batch(step * accumulation + micro, rank, size)) / accumulation
            loss.backward()
            total += loss.item()
        if clip is not None:
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(total))
    return losses


def close(a, b, tolerance=1e-5):
    worst = max(abs(x - y) for x, y in zip(a, b, strict=True))
    assert worst < tolerance, f"losses differ by {worst}"


def same_weights(model, reference, tolerance=2e-4):
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    for name, value in reference.state_dict().items():
        worst = abs(whole[name].numpy() - value.numpy()).max()
        assert worst < tolerance, f"{name} differs by {worst}"


@functools.cache
def reference(kind, accumulation=1, clip=None, freeze=False):
    model = model_of(kind)
    if freeze:
        blocks_of(model)[0].requires_grad_(False)
    return train(model, accumulation=accumulation, clip=clip), model


# -- FSDP ------------------------------------------------------------------------------------------


def against_one_process(kind, accumulation=1, clip=None, freeze=False, prepare=lambda m: m, **options):
    model = model_of(kind)
    if freeze:
        blocks_of(model)[0].requires_grad_(False)
    model = shard(prepare(model), **options)
    losses, single = reference(kind, accumulation, clip, freeze)
    close(train(model, dist.get_rank(), dist.get_world_size(), accumulation, clip), losses)
    same_weights(model, single)
    return model


def check_fsdp_gpt2_with_tied_weights():
    model = against_one_process("gpt2")
    assert model.lm_head.weight is model.transformer.wte.weight
    assert isinstance(model, GPT2)
    shapes = [tuple(p.to_local().shape) for p in model.parameters()]
    assert len(set(map(str, shapes))) > 3


def check_fsdp_llama():
    against_one_process("llama", reshard_after_forward=False)


def check_fsdp_accumulates_and_clips():
    against_one_process("gpt2", accumulation=2, clip=0.5, reshard_after_forward=True)


def check_fsdp_with_frozen_parameters():
    against_one_process("gpt2", freeze=True, clip=0.5)


def check_fsdp_with_activation_checkpointing():
    def inside(model):
        for block in blocks_of(model):
            block.mlp.forward = functools.partial(checkpoint, block.mlp.forward, use_reentrant=False)
        return model

    against_one_process("gpt2", prepare=inside)
    model = shard(model_of("gpt2", gradient_checkpointing=True))  # the calls of the blocks are checkpointed
    close(train(model, dist.get_rank(), dist.get_world_size(), steps=4), reference("gpt2")[0][:4])


def check_fsdp_mixed_precision():
    """The result with n processes is the result of one process with the same policy, within the rounding of bfloat16."""
    policy = MixedPrecisionPolicy(param_dtype=mytorch.bfloat16, reduce_dtype=mytorch.float32, cast_forward_inputs=False)
    alone = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("all", "one"))["one"]
    single = train(shard(model_of("gpt2"), mesh=alone, mp_policy=policy), steps=6)
    model = shard(model_of("gpt2"), mp_policy=policy)
    close(train(model, dist.get_rank(), dist.get_world_size(), steps=6), single, 2e-2)
    assert all(p.dtype is mytorch.float32 for p in model.parameters())


def check_gradients_equal_ddp():
    model, plain = shard(model_of("gpt2")), nn.parallel.DistributedDataParallel(model_of("gpt2"))
    for m in (model, plain):
        m(*batch(0, dist.get_rank(), dist.get_world_size())).backward()
    for (name, p), q in zip(model.named_parameters(), plain.module.parameters(), strict=True):
        assert tuple(p.shape) == tuple(q.shape)
        worst = abs(p.grad.full_tensor().numpy() - np.asarray(q.grad)).max()
        assert worst < 1e-6, f"gradient of {name} differs by {worst}"


def check_second_backward_and_unused_parameters():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 5), nn.Linear(3, 5)

        def forward(self, x, both):
            return self.a(x) + self.b(x) if both else self.a(x)

    mytorch.manual_seed(0)
    plain = Two()
    mytorch.manual_seed(0)
    model = fully_shard(Two())
    x = mytorch.arange(6.0).reshape(2, 3)
    for both in (True, False, True):
        for m in (plain, model):
            m(x, both).square().sum().backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.full_tensor().numpy(), np.asarray(q.grad), rtol=1e-5)
    with mytorch.no_grad():
        np.testing.assert_allclose(model(x, True).numpy(), plain(x, True).numpy(), rtol=1e-5)
    assert isinstance(model.a.weight, DTensor)  # released after a forward without backward


def check_prefetch_and_order_of_messages():
    model = shard(model_of("gpt2"))
    blocks = list(blocks_of(model))
    model.set_modules_to_forward_prefetch([blocks[0]])
    blocks[0].set_modules_to_forward_prefetch([blocks[1]])
    blocks[1].set_modules_to_backward_prefetch([blocks[0]])
    close(train(model, dist.get_rank(), dist.get_world_size(), steps=4), reference("gpt2")[0][:4])
    handle = model.unshard(async_op=True)
    handle.wait()
    assert not isinstance(model.transformer.wpe.weight, DTensor)
    model.reshard()


def check_changed_shards_are_gathered_again():
    """A forward without backward leaves gathered parameters in the root; the next one sees a change of the shards."""
    model = shard(model_of("gpt2"), reshard_after_forward=False)
    before = model(*batch(0)).item()
    with mytorch.no_grad():
        for block in blocks_of(model):
            for p in block._fsdp_state.group.parameters:
                p.sharded.mul_(0.5)
    assert abs(model(*batch(0)).item() - before) > 1e-4


def check_bytes_of_a_step():
    """Two all-gathers and one reduce-scatter of all parameters: 3 (n - 1) / n times the bytes of the parameters.

    The reduce-scatter also sends a number for each parameter, which tells whether it has a gradient.
    """
    sent = [0]
    originals = collectives.all_gather_into_tensor, collectives.reduce_scatter_tensor
    n = dist.get_world_size()

    def counted(original, position):
        def call(*args, **kwargs):
            sent[0] += (
                args[position].nbytes * (n - 1) // (n if position else 1) if position else args[1].nbytes * (n - 1)
            )
            return original(*args, **kwargs)

        return call

    model = shard(model_of("llama"), reshard_after_forward=True)
    collectives.all_gather_into_tensor = counted(originals[0], 0)
    collectives.reduce_scatter_tensor = counted(originals[1], 1)
    try:
        model(*batch(0, dist.get_rank(), n)).backward()
    finally:
        collectives.all_gather_into_tensor, collectives.reduce_scatter_tensor = originals
    total = sum(-(-p.shape[0] // n) * n * (p.numel() // p.shape[0]) * 4 for p in model.parameters())  # with padding
    assert sent[0] == 3 * (n - 1) * total // n + (n - 1) * 4 * len(list(model.parameters())), (sent[0], total)


def check_bytes_of_tensor_parallelism():
    """A ring sends 2 (n - 1) / n times the bytes of an all-reduce. There are 4 of activations for each block, and 2 more.

    The cross-entropy reduces three numbers for each token. Sequence parallelism replaces an all-reduce of activations by an all-gather
    and a reduce-scatter, and adds the gradients of norms and of GPT-2's positions.
    """
    if dist.get_world_size() != 2:
        return
    n, width, layers, tokens, length, sent = 2, 16, 3, 32, 8, [0]
    sizes = {
        "all_reduce": lambda x, op, *rest: 2 * (n - 1) * x.nbytes // n,
        "all_gather": lambda out, x, *rest: (n - 1) * x.nbytes,
        "reduce_scatter": lambda out, x, op, *rest: (n - 1) * out.nbytes,
    }
    originals = {name: getattr(MPIEngine, name) for name in (*sizes, "all_to_all", "broadcast", "gather", "scatter")}

    def counting(name):
        def call(engine, *args, **kwargs):
            sent[0] += sizes[name](*args)  # another collective is a KeyError
            return originals[name](engine, *args, **kwargs)

        return call

    for kind, sequence in (("gpt2", False), ("gpt2", True), ("llama", False), ("llama", True)):
        model = model_of(kind, num_layers=layers, embed_dim=width, num_heads=4, vocab_size=32)
        parallelize_module(model, grid()["tp"], plan_of(model, 2, sequence))
        x = mytorch.arange(tokens).reshape(-1, length) % 31
        sent[0] = 0
        for name in originals:
            setattr(MPIEngine, name, counting(name))
        try:
            model(x, x).backward()
        finally:
            for name, original in originals.items():
                setattr(MPIEngine, name, original)
        reduced = (4 * layers + 2) * tokens * width + 3 * tokens
        gathered = 0
        if sequence:
            reduced += (2 * layers + 1) * (2 if kind == "gpt2" else 1) * width
            gathered = length * width if kind == "gpt2" else 0
        assert sent[0] == (2 * (n - 1) * reduced + (n - 1) * gathered) * 4 // n, (kind, sequence, sent[0])


def check_memory_of_a_step():
    """The peak is at most: shards of parameters, gradients and state, and twice the largest group in parameters and gradients."""
    n, width, layers = dist.get_world_size(), 256, 6
    mytorch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width, bias=False), nn.ReLU()) for _ in range(layers)))
    tracemalloc.start()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    for p in list(model.parameters()):
        assert isinstance(p, DTensor)
    optimizer = mytorch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(mytorch.ones(2, width)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    tracemalloc.reset_peak()
    model(mytorch.ones(2, width)).sum().backward()
    optimizer.step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    one = width * width * 4
    whole = layers * one
    formula = 4 * whole / n + 6 * one  # two gathered groups with their buffers, a gradient and its buffer
    assert peak < formula + 1_000_000, (peak, formula)
    assert peak > 3 * whole / n


def check_fully_sharded_data_parallel():
    mixed = MixedPrecision(param_dtype=mytorch.float32)
    model = FullyShardedDataParallel(
        model_of("gpt2", seed=dist.get_rank()), auto_wrap_policy=ModuleWrapPolicy({Block}), sync_module_states=True,
        mixed_precision=mixed, forward_prefetch=True,
    )  # fmt: skip
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in model_of("gpt2").named_parameters()]
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, rank, n = [], dist.get_rank(), dist.get_world_size()
    for step in range(4):
        total = 0
        for micro in range(2):
            with nullcontext() if micro else model.no_sync():
                loss = model(*batch(2 * step + micro, rank, n)) / 2
                loss.backward()
            total += loss.item()
        losses.append(model.clip_grad_norm_(0.5).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(total))
    close(losses, reference("gpt2", 2, 0.5)[0][: len(losses)])
    whole = model.state_dict()
    assert not isinstance(whole["lm_head.weight"], DTensor)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        assert isinstance(model.state_dict()["lm_head.weight"], DTensor)
    with FullyShardedDataParallel.summon_full_params(model), mytorch.no_grad():
        model.module.transformer.wpe.weight.zero_()
    assert model.state_dict()["transformer.wpe.weight"].abs().sum().item() == 0
    model.load_state_dict(whole)
    np.testing.assert_array_equal(
        model.state_dict()["transformer.wpe.weight"].numpy(), whole["transformer.wpe.weight"].numpy()
    )
    state = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    optimizer.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, state))


def small(seed=0):
    mytorch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))


def check_forms_of_fsdp_state_dicts():
    """Each option has its own effect: where the tensors are, which processes have them, and whether they are whole."""
    model = FullyShardedDataParallel(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)))
    optimizer = mytorch.optim.AdamW(model.parameters())
    model(mytorch.ones(2, 3)).sum().backward()
    optimizer.step()
    rank, kinds, of = dist.get_rank(), fsdp_wrapper.StateDictType, FullyShardedDataParallel
    for offload in (False, True):
        for first_only in (False, True):
            config = fsdp_wrapper.FullStateDictConfig(offload_to_cpu=offload, rank0_only=first_only)
            with of.state_dict_type(model, kinds.FULL_STATE_DICT, config):
                states = [model.state_dict(), of.optim_state_dict(model, optimizer).get("state", {})]
            assert [len(s) for s in states] == ([0, 0] if first_only and rank else [4, 4]), (
                offload,
                first_only,
                states,
            )
            assert not any(isinstance(t, DTensor) for t in states[0].values())
        config = fsdp_wrapper.ShardedStateDictConfig(offload_to_cpu=offload)
        with of.state_dict_type(model, kinds.SHARDED_STATE_DICT, config):
            assert [isinstance(t, DTensor) for t in model.state_dict().values()] == [True] * 4
    raises(
        NotImplementedError,
        "optim_state_dict=None",
        lambda: of.optim_state_dict(model, optimizer, optimizer.state_dict()),
    )
    with model.no_sync():
        optimizer.zero_grad()
        with model.no_sync():
            model(mytorch.ones(2, 3)).sum().backward()
        model(mytorch.ones(2, 3)).sum().backward()
        assert all(p.grad is None for p in model.parameters())
    model(mytorch.ones(2, 3)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def check_meta_models_lists_of_modules_and_assigned_parameters():
    x, reference = mytorch.arange(12.0).reshape(4, 3), small()
    for offload in (OffloadPolicy(), CPUOffloadPolicy()):
        with mytorch.device("meta"):
            model = small()
        pair = [model[1], model[2]]
        assert fully_shard(pair, offload_policy=offload) is pair
        fully_shard(model, offload_policy=offload)
        assert len(model._groups()) == 2
        model.to_empty(device="cpu").load_state_dict(reference.state_dict())
        np.testing.assert_allclose(model(x).detach().numpy(), reference(x).detach().numpy(), rtol=1e-5)
        doubled = {
            k: nn.Parameter(v.detach() * 2) if isinstance(v, DTensor) else v for k, v in model.state_dict().items()
        }
        model.load_state_dict(doubled, assign=True)
        assert model[0].weight is doubled["0.weight"]
        model(x).sum().backward()
        found = model[0].weight.full_tensor().detach().numpy()
        np.testing.assert_array_equal(found, 2 * reference[0].weight.detach().numpy())
        assert doubled["0.weight"].grad is not None
    model[0].weight = nn.Parameter(mytorch.ones(5, 3))
    raises(ValueError, "Linear.weight to be a parameter with shape (5, 3)", lambda: model(x))


def check_optimizers_of_sharded_parameters():
    """Each optimizer of the library has the weights of one process, or raises an error."""
    refused = []
    for kind in vars(mytorch.optim).values():
        if not (isinstance(kind, type) and issubclass(kind, mytorch.optim.Optimizer)):
            continue
        if kind in (mytorch.optim.Optimizer, mytorch.optim.SparseAdam):  # which requires sparse gradients
            continue
        one, model = nn.Linear(3, 4, bias=False), nn.Linear(3, 4, bias=False)
        with mytorch.no_grad():
            for m in (one, model):
                m.weight.copy_(mytorch.linspace(-1, 1, 12).reshape(4, 3))
        fully_shard(model)
        try:
            for m in (one, model):
                optimizer = kind(m.parameters(), lr=0.1)
                for step in range(3):

                    def closure(m=m, optimizer=optimizer, step=step):
                        optimizer.zero_grad()
                        loss = m(mytorch.arange(6.0).reshape(2, 3) - step).square().mean()
                        loss.backward()
                        return loss

                    optimizer.step(closure)
        except NotImplementedError:
            refused.append(kind.__name__)
            continue
        whole = model.weight.detach().full_tensor().numpy()
        np.testing.assert_allclose(whole, one.weight.detach().numpy(), rtol=1e-5, err_msg=kind.__name__)
    assert sorted(refused) == ["Adafactor", "LBFGS", "Muon"], refused


def check_an_optimizer_in_backward():
    one, model = small(), shard_each(small())
    for m in (one, model):
        for p in m.parameters():
            optimizer = mytorch.optim.AdamW([p], lr=0.1)
            p.register_post_accumulate_grad_hook(lambda p, o=optimizer: (o.step(), o.zero_grad())[0])
        for step in range(3):
            m(mytorch.arange(12.0).reshape(4, 3) * (step + 1)).square().mean().backward()
    same_weights(model, one, 1e-5)


def shard_each(model):
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def check_wrong_use_of_sharded_parameters():
    plain = small()
    plain[0].weight.register_hook(lambda g: g)
    raises(ValueError, "got hooks of Linear.weight", lambda: fully_shard(plain))
    model = fully_shard(small(), reshard_after_forward=True)
    loss = model(mytorch.ones(4, 3)).square().mean()
    with mytorch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    raises(RuntimeError, "modified by an inplace operation", loss.backward)
    rank = dist.get_rank()
    raises(ValueError, "should not be the same as the rank", lambda: dist.send(mytorch.ones(1), rank))
    raises(ValueError, "should not be the same as the rank", lambda: dist.recv(mytorch.ones(1), rank))


def check_checkpoint_wrapper():
    for impl in CheckpointImpl:
        for wrap in (functools.partial(checkpoint_wrapper, checkpoint_impl=impl), offload_wrapper):
            for first in (True, False):
                one, model = (nn.Sequential(small(), nn.Linear(1, 2)) for _ in range(2))
                if first:
                    fully_shard(model[0])
                apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, nn.Sequential))
                fully_shard(model)
                assert list(model.state_dict()) == list(one.state_dict())
                x = mytorch.arange(12.0).reshape(4, 3)
                for m in (one, model):
                    m(x.clone().requires_grad_()).square().sum().backward()
                for p, q in zip(one.parameters(), model.parameters(), strict=True):
                    np.testing.assert_allclose(q.grad.full_tensor().numpy(), np.asarray(p.grad), rtol=1e-4, atol=1e-5)
                optimizer = mytorch.optim.AdamW(model.parameters())
                optimizer.step()
                names = get_state_dict(model, optimizer)[1]["state"]
                assert set(names) == {name for name, _ in one.named_parameters()}


def check_scaler_skips_on_all_ranks():
    for kind in (GradScaler, ShardedGradScaler):
        skips_on_all_ranks(kind("cpu", init_scale=4.0))


def skips_on_all_ranks(scaler):
    model = fully_shard(nn.Linear(4, dist.get_world_size()))
    optimizer = mytorch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().full_tensor().numpy().copy()
    scale = mytorch.ones(dist.get_world_size())
    scale[0] = float("inf")  # the row of rank 0 overflows
    scaler.scale((model(mytorch.ones(1, 4)) * scale).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    np.testing.assert_array_equal(model.weight.detach().full_tensor().numpy(), before)


def check_gradient_penalty():
    """The norm of the gradient of the input is a part of the loss, so backward runs through the first backward."""
    n, rank = dist.get_world_size(), dist.get_rank()

    def build():
        mytorch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 1))

    def loss(model, x):
        x = x.clone().requires_grad_()
        y = model(x)
        (g,) = mytorch.autograd.grad(y.sum(), x, create_graph=True)
        return y.square().mean() + (g.norm(dim=1) - 1).square().mean()

    batches = mytorch.randn(n, 4, 3, generator=mytorch.Generator().manual_seed(1))
    for reshard in (True, False):
        one, model = build(), build()
        for layer in (model[0], model[3]):
            fully_shard(layer, reshard_after_forward=reshard)
        fully_shard(model)
        calls = []
        model[0].weight.register_post_accumulate_grad_hook(calls.append)
        for last in (False, True):
            model.set_requires_gradient_sync(last)
            (sum(loss(one, x) for x in batches) / n).backward()
            loss(model, batches[rank]).backward()
        assert len(calls) == 1  # the first backward of the last pass leaves the sum of the other pass alone
        for p, q in zip(one.parameters(), model.parameters(), strict=True):
            np.testing.assert_allclose(q.grad.full_tensor().numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-6)


def check_hooks_of_several_gradients_are_called_once():
    """The gradients of each group of parameters arrive separately, and the hook gets all of them together."""
    for mode in ("all", "any"):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(2, 2))
        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(model)
        model[0].weight.requires_grad_(False)
        trained, calls = [p for p in model.parameters() if p.requires_grad], []
        handle = register_multi_grad_hook(trained, calls.append, mode=mode)
        for n in (1, 2):
            model(mytorch.ones(2, 3)).sum().backward()
            assert len(calls) == n
        if mode == "all":
            for p, g in zip(trained, calls[-1], strict=True):
                assert tuple(g.shape) == tuple(p.shape)
        handle.remove()
        model(mytorch.ones(2, 3)).sum().backward()
        assert len(calls) == 2


# -- DTensor and tensor parallelism ----------------------------------------------------------------


def against_plain(function, shapes, placements, mesh):
    """Values and gradients of a function of DTensors equal the ones of plain tensors."""
    inputs = [mytorch.randn(*shape).requires_grad_() for shape in shapes]
    expected = function(*inputs)
    upstream = mytorch.randn(*expected.shape)
    expected.backward(upstream)
    sharded = [
        distribute_tensor(x.detach().clone().requires_grad_(), mesh, p) for x, p in zip(inputs, placements, strict=True)
    ]
    out = function(*sharded).full_tensor()
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), atol=2e-5, err_msg=str(placements))
    out.backward(upstream)
    for x, d in zip(inputs, sharded, strict=True):
        np.testing.assert_allclose(
            d.grad.full_tensor().numpy(), np.asarray(x.grad), atol=5e-5, err_msg=f"gradient, {placements}"
        )


LAYOUTS = {1: (Replicate(), Shard(0)), 2: (Replicate(), Shard(0), Shard(1)), 3: (Replicate(), Shard(0), Shard(2))}
INDEX, TARGETS = mytorch.tensor([[0, 3, 8], [2, 2, 1]]), mytorch.tensor([0, 3, -100, 6, 2])
FUNCTIONS = [  # with the shapes of their arguments
    (lambda x: (x * 2 + x.exp()).tanh(), [(5, 3)]),
    (lambda x: x.sum(), [(5, 3)]),
    (lambda x: x.mean(0), [(5, 3)]),
    (lambda x: x.amax(1), [(5, 3)]),
    (lambda x: x.softmax(-1), [(5, 3)]),
    (lambda x: x.transpose(0, 1) * 1, [(5, 3)]),
    (lambda x: x.unsqueeze(1) * 1, [(5, 3)]),
    (lambda x: x.reshape(20, 6) * 1, [(4, 5, 6)]),
    (lambda x: x.reshape(4, 5, 2, 3) * 1, [(4, 5, 6)]),
    (lambda x: x[:, 1:] * 1, [(4, 5, 6)]),
    (lambda x: x.permute(2, 0, 1) * 1, [(4, 5, 6)]),
    (lambda x, y: x + y, [(5, 3), (5, 3)]),
    (lambda x, y: x * y, [(5, 3), (3,)]),
    (lambda x, y: x @ y, [(5, 3), (3, 7)]),
    (lambda x, y: 1 / (1 + (x - y) ** 2), [(5, 1), (1, 3)]),
    (lambda x, w, b: F.linear(x, w, b), [(5, 3), (7, 3), (7,)]),
    (lambda x, w, b: F.linear(x, w, b), [(2, 4, 3), (7, 3), (7,)]),
    (lambda x, w: F.layer_norm(x, (3,), w), [(5, 3), (3,)]),
    (lambda x, w: F.rms_norm(x, (3,), w), [(5, 3), (3,)]),
    (lambda w: F.embedding(INDEX, w), [(9, 4)]),
    (lambda x: F.cross_entropy(x, TARGETS), [(5, 7)]),
    (lambda x, w: F.linear_cross_entropy(x, w, TARGETS), [(5, 3), (7, 3)]),
]


def check_functions_of_dtensors():
    """Every function with random placements of its arguments, in meshes of one and two dimensions."""
    draw = np.random.default_rng(0)  # the same choices on all ranks
    mytorch.manual_seed(0)
    meshes = [world_mesh(), grid()] if dist.get_world_size() == 4 else [world_mesh()]
    for function, shapes in FUNCTIONS:
        for mesh in meshes:
            for _ in range(4):
                placements = [
                    [LAYOUTS[len(s)][draw.integers(len(LAYOUTS[len(s)]))] for _ in range(mesh.ndim)] for s in shapes
                ]
                against_plain(function, shapes, placements, mesh)


def check_redistribution():
    draw = np.random.default_rng(1)
    mytorch.manual_seed(0)
    meshes = [world_mesh(), grid()] if dist.get_world_size() == 4 else [world_mesh()]
    for mesh in meshes:
        for _ in range(12):
            source, target = ([LAYOUTS[3][draw.integers(3)] for _ in range(mesh.ndim)] for _ in range(2))
            against_plain(
                lambda x, target=target: x.redistribute(placements=target) if isinstance(x, DTensor) else x * 1,
                [(4, 3, 5)], [source], mesh,
            )  # fmt: skip
    part = DTensor.from_local(mytorch.ones(3, 2) * (dist.get_rank() + 1), world_mesh(), [Partial()])
    n = dist.get_world_size()
    for target in (Replicate(), Shard(0), Shard(1)):
        assert part.redistribute(placements=[target]).full_tensor().tolist() == [[n * (n + 1) / 2] * 2] * 3


def check_sharded_tensors_are_never_read_as_whole_ones():
    d = distribute_tensor(mytorch.arange(float(4 * dist.get_world_size())), world_mesh(), [Shard(0)])
    for use in (np.asarray, mytorch.fft.fft, lambda d: d.numpy(), lambda d: mytorch.save(d, tempfile.TemporaryFile())):
        raises((RuntimeError, NotImplementedError, TypeError), "DTensor", lambda use=use: use(d))
    raises(RuntimeError, "mixed", lambda: d + mytorch.ones(d.numel()))
    p = distribute_tensor(nn.Parameter(mytorch.ones(4, 4)), world_mesh(), [Shard(0)])
    p.grad = p.detach() * 0
    raises(NotImplementedError, "Muon", lambda: mytorch.optim.Muon([p]).step())
    raises(RuntimeError, "DTensor", lambda: dist.all_reduce(d))


def check_tensor_parallel_models():
    for kind, sequence in (("gpt2", False), ("gpt2", True), ("llama", False), ("llama", True)):
        model = model_of(kind)
        parallelize_module(model, grid()["tp"], plan_of(model, 2, sequence))
        losses, single = reference(kind, clip=0.5)
        close(train(model, clip=0.5), losses)
        same_weights(model, single)


def check_fsdp_and_tensor_parallel():
    if dist.get_world_size() != 4:
        return
    for kind, sequence, steps in (("gpt2", True, STEPS), ("llama", False, 5)):
        model, mesh = model_of(kind), grid()
        parallelize_module(model, mesh["tp"], plan_of(model, 2, sequence))
        model = shard(model, mesh=mesh["dp"])
        losses, _ = reference(kind, clip=0.5)
        close(train(model, mesh["dp"].get_local_rank(), 2, clip=0.5, steps=steps), losses[: 2 * steps])


def check_hybrid_sharding():
    if dist.get_world_size() == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
        model = shard(model_of("gpt2"), mesh=mesh)
        close(train(model, dist.get_rank(), 4, steps=5), reference("gpt2")[0][:5])


# -- collectives with gradients, meshes, Join ------------------------------------------------------


def check_collectives_with_gradients():
    rank, n = dist.get_rank(), dist.get_world_size()
    x = (mytorch.arange(3.0) + rank).requires_grad_()
    weight = mytorch.arange(1.0, n + 1)

    def grad(out):
        x.grad = None
        out.backward()
        return np.asarray(x.grad).tolist()

    assert grad(DF.all_reduce(x).sum() * (rank + 1)) == [n * (n + 1) / 2] * 3
    assert grad(DF.all_reduce(x, dist.ReduceOp.AVG).sum()) == [1.0] * 3
    assert grad((mytorch.stack(DF.all_gather(x)) * weight.unsqueeze(1)).sum()) == [n * (rank + 1.0)] * 3
    assert grad(DF.broadcast(x, 0).sum()) == [float(n) if rank == 0 else 0.0] * 3
    assert grad(DF.reduce(x, 0).sum() * (rank + 1)) == [1.0] * 3

    def parts():
        return [x * (i + 1) for i in range(n)]

    out = DF.reduce_scatter(mytorch.zeros(3), parts())
    assert out.tolist() == [(rank + 1.0) * (n * i + n * (n - 1) / 2) for i in range(3)]
    assert grad(out.sum()) == [n * (n + 1) / 2] * 3
    out = mytorch.stack(DF.all_to_all([mytorch.zeros(3)] * n, parts()))
    assert out[:, 0].tolist() == [i * (rank + 1.0) for i in range(n)]
    assert grad(out.sum()) == [n * (n + 1) / 2] * 3
    assert grad(sum(t.sum() for t in DF.gather(x, 0)) * 2) == [2.0] * 3
    assert grad(DF.scatter(parts(), 0).sum()) == ([n * (n + 1) / 2] * 3 if rank == 0 else [0.0] * 3)
    y = mytorch.arange(2.0 * n).requires_grad_()
    DF.all_to_all_single(mytorch.zeros(2 * n), y).pow(2).sum().backward()
    assert np.asarray(y.grad).tolist() == [2.0 * i for i in range(2 * n)]
    raises(RuntimeError, "expected ReduceOp.SUM", lambda: DF.all_reduce(x, dist.ReduceOp.MAX).sum().backward())


def check_meshes():
    n, rank = dist.get_world_size(), dist.get_rank()
    raises(ValueError, f"mesh_shape with {n} positions", lambda: init_device_mesh("cpu", (n, 2)))
    raises(ValueError, "different ranks", lambda: DeviceMesh("cpu", [0, 0]))
    raises(ValueError, "different names", lambda: init_device_mesh("cpu", (n,), mesh_dim_names=("a", "b")))
    raises(KeyError, "expected one of the names", lambda: world_mesh()["tp"])
    if n == 4:
        mesh = grid()
        assert mesh["tp"].get_local_rank() == rank % 2
        assert dist.get_process_group_ranks(mesh.get_group("dp")) == [rank % 2, rank % 2 + 2]
        assert mesh._flatten("all").size() == 4
        assert mesh["dp", "tp"] == mesh


def check_parameters_of_dtensors():
    layer, mesh = nn.Linear(3, 4), world_mesh()

    def partition(name, module, mesh):
        for key, p in list(module.named_parameters(recurse=False)):
            module.register_parameter(key, nn.Parameter(distribute_tensor(p, mesh, [Shard(0)]), key == "weight"))

    distribute_module(layer, mesh, partition)
    assert isinstance(layer.weight, nn.Parameter) and isinstance(layer.weight, DTensor)
    assert layer.weight.placements == (Shard(0),)
    assert (layer.weight.requires_grad, layer.bias.requires_grad) == (True, False)
    inputs = distribute_tensor(mytorch.ones(2, 3), mesh, [Replicate()])
    layer(inputs).sum().backward()
    assert layer.weight.grad.full_tensor().tolist() == [[2.0] * 3] * 4


def check_varying_inputs_of_other_functions():
    """A layer of tensor parallelism can use its input in a function without partial sums, too."""

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(mytorch.arange(8.0).reshape(2, 4))

        def forward(self, x):
            return (x * self.scale).sum() + x.sum()

    plain, model = Gate(), Gate()
    distribute_module(model, world_mesh(), lambda name, m, mesh: set_scale(m, mesh))
    layouts = {"input_layouts": Replicate(), "desired_input_layouts": Replicate()}
    parallelize_module(model, world_mesh(), PrepareModuleInput(**layouts))
    values = mytorch.linspace(0, 1, 8).reshape(2, 4)
    x, y = values.clone().requires_grad_(), values.clone().requires_grad_()
    plain(x).backward()
    model(y).full_tensor().backward()
    np.testing.assert_allclose(np.asarray(y.grad), np.asarray(x.grad))


def set_scale(module, mesh):
    module.scale = nn.Parameter(distribute_tensor(module.scale.detach(), mesh, [Shard(1)]))


def check_errors_on_every_rank():
    n, rank = dist.get_world_size(), dist.get_rank()
    raises(RuntimeError, "expected the same parameters on all ranks", lambda: fully_shard(nn.Linear(3, 2 + rank)))
    raises(ValueError, "in one call", lambda: _tied())
    raises(ValueError, "not sharded yet", lambda: fully_shard(fully_shard(nn.Linear(2, 2))))
    raises(
        ValueError,
        "matches none",
        lambda: parallelize_module(nn.Linear(2, 2), world_mesh(), {"a.b": ColwiseParallel()}),
    )
    raises(ValueError, "divisible by 3", lambda: plan_of(model_of("gpt2"), 3))
    raises(ValueError, "1 placements", lambda: distribute_tensor(mytorch.ones(4), world_mesh(), [Shard(0), Shard(0)]))
    raises(
        ValueError,
        "local tensor of shape",
        lambda: DTensor.from_local(mytorch.ones(2), world_mesh(), [Shard(0)], shape=(9 * n,)),
    )
    raises(NotImplementedError, "nn.Linear", lambda: parallelize_module(nn.ReLU(), world_mesh(), RowwiseParallel()))
    model = shard(model_of("gpt2"))
    raises(
        RuntimeError,
        "size mismatch",
        lambda: model.load_state_dict(model_of("gpt2", num_heads=1, context_length=9).state_dict()),
    )


def _tied():
    model = model_of("gpt2")
    fully_shard(model.lm_head)
    fully_shard(model)


def check_join_with_zero():
    rank, n = dist.get_rank(), dist.get_world_size()
    for views, initial, zero in ((True, True, True), (False, False, True), (False, False, False)):
        one = small()[::2]
        model = nn.parallel.DistributedDataParallel(small()[::2], gradient_as_bucket_view=views)
        other = mytorch.optim.AdamW(one.parameters(), lr=0.1)
        optimizer = mytorch.optim.AdamW(model.parameters(), lr=0.1)
        if zero:
            optimizer = ZeroRedundancyOptimizer(model.parameters(), mytorch.optim.AdamW, lr=0.1)
        x = mytorch.arange(float(n * 4 * 6)).reshape(n, 4, 2, 3) / 50
        joined = Join([model, optimizer], divide_by_initial_world_size=initial) if zero else model.join(initial)
        with joined:
            for i in range(1 + rank):
                model(x[rank, i]).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        for i in range(n):
            active = [k for k in range(n) if i < 1 + k]
            (sum(one(x[k, i]).square().sum() for k in active) / (n if initial else len(active))).backward()
            other.step()
            other.zero_grad()
        for p, q in zip(one.parameters(), model.parameters(), strict=True):
            np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-4, atol=1e-5)


def check_join():
    rank, n = dist.get_rank(), dist.get_world_size()
    mytorch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
    reference = nn.Linear(3, 1)
    reference.load_state_dict(model.module.state_dict())
    optimizer, other = (mytorch.optim.SGD(m.parameters(), lr=0.1) for m in (model, reference))
    x = mytorch.arange(3.0).reshape(1, 3)
    with Join([model], divide_by_initial_world_size=False):
        for _ in range(2 + rank):
            (model(x) * (rank + 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for step in range(n + 1):
        active = [r for r in range(n) if step < 2 + r]
        sum((reference(x) * (r + 1)).sum() for r in active).div(len(active)).backward()
        other.step()
        other.zero_grad()
    np.testing.assert_allclose(model.module.weight.detach().numpy(), reference.weight.detach().numpy(), rtol=1e-5)


# -- checkpoints -----------------------------------------------------------------------------------


def shared_folder():
    box = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(box)
    return Path(box[0])


def state_of(model, optimizer, step):
    weights, state = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": state, "step": step}


def check_checkpoints_are_loaded_in_other_layouts():
    rank, n, folder = dist.get_rank(), dist.get_world_size(), shared_folder()
    model = shard(model_of("gpt2"))
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    train(model, rank, n, steps=3, optimizer=optimizer)
    future = dcp.async_save(state_of(model, optimizer, 3), checkpoint_id=folder / "step_3")
    later = train(model, rank, n, steps=3, first=3, optimizer=optimizer)  # while it is written
    future.result()
    dist.barrier()
    assert dcp.latest(folder) == folder / "step_3"
    others = [(shard(model_of("gpt2", seed=9)), rank, n), (model_of("gpt2", seed=9), 0, 1)]
    if n % 2 == 0:
        parallel = model_of("gpt2", seed=9)
        parallelize_module(parallel, grid()["tp"], plan_of(parallel, 2))
        others.append((shard(parallel, mesh=grid()["dp"]), grid()["dp"].get_local_rank(), n // 2))
    for other, part, parts in others:
        optimizer = mytorch.optim.AdamW(other.parameters(), lr=1e-2)
        state = state_of(other, optimizer, 0)
        dcp.load(state, checkpoint_id=folder / "step_3")
        assert state["step"] == 3
        set_state_dict(other, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        close(train(other, part, parts, steps=3, first=3, optimizer=optimizer), later)


def check_wrong_and_damaged_checkpoints():
    folder = shared_folder()
    weight = distribute_tensor(mytorch.arange(12.0).reshape(4, 3), world_mesh(), [Shard(0)])
    dcp.save({"weight": weight, "plain": mytorch.ones(2), "note": "first"}, checkpoint_id=folder / "a")
    Errors = ValueError, FileNotFoundError, dcp.CheckpointException
    load = functools.partial(dcp.load, checkpoint_id=folder / "a")
    raises(Errors, "does not contain other", lambda: load({"other": mytorch.ones(2)}))
    raises(Errors, "expected 'plain' of shape (2,)", lambda: load({"plain": mytorch.ones(3)}))
    raises(Errors, "expected 'plain' of shape (2,)", lambda: load({"plain": mytorch.ones(2 + dist.get_rank())}))
    raises(Errors, "found none", lambda: dcp.load({"plain": mytorch.ones(2)}, checkpoint_id=folder / "b"))
    raises(
        (TypeError, dcp.CheckpointException),
        "keys",
        lambda: dcp.save({(1, 2): mytorch.ones(2)}, checkpoint_id=folder / "a"),
    )
    mine = {"plain": mytorch.zeros(2)} if dist.get_rank() else {"other": mytorch.ones(3)}  # another model on one rank
    raises(Errors, "does not contain other", lambda: load(mine))
    target = {"weight": distribute_tensor(mytorch.zeros(4, 3), world_mesh(), [Shard(1)]), "note": ""}
    load(target)
    assert target["note"] == "first"
    assert target["weight"].full_tensor().tolist() == weight.full_tensor().tolist()
    dist.barrier()
    if dist.get_rank() == 0:
        path = folder / "a" / "rank_0.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    dist.barrier()
    raises(Errors, "damaged", lambda: load({"weight": target["weight"], "plain": mytorch.ones(2)}))


def check_the_accelerator_saves_parts_and_loads_them_in_other_layouts():
    """`save_state` of each process writes its parts; the state continues in other meshes and without sharding."""
    rank, n, folder = dist.get_rank(), dist.get_world_size(), shared_folder()

    def run(plugin, steps, load=None, save=None, seed=0):
        accelerator = Accelerator(fsdp=plugin)
        model = model_of("gpt2", seed)
        optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = mytorch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
        if load is not None:
            accelerator.load_state(load)
        for step in range(*steps):
            accelerator.backward(model(*batch(step, rank, n)))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if save is not None:
            save(accelerator)
        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

    def differ(a, b):
        return max(abs(a[name].numpy() - b[name].numpy()).max() for name in a)

    run(True, (0, 3), save=lambda a: a.save_state(folder / "parts"))
    names = sorted(path.name for path in (folder / "parts").iterdir())
    assert f"rank_{n - 1}.safetensors" in names
    assert "model.safetensors" not in names
    sizes = [(folder / "parts" / f"rank_{r}.safetensors").stat().st_size for r in range(n)]
    assert max(sizes) < 1.3 * sum(sizes) / n  # no process writes the whole model
    whole = run(True, (0, 6))
    assert differ(run(True, (3, 6), load=folder / "parts", seed=9), whole) == 0
    copies = init_device_mesh("cpu", (n, 1), mesh_dim_names=("copies", "shards"))  # each process has all parameters
    plugin = FullyShardedDataParallelPlugin(mesh=copies, state_dict_type="FULL_STATE_DICT")
    found = run(plugin, (3, 6), load=folder / "parts", seed=9, save=lambda a: a.save_state(folder / "whole"))
    assert differ(found, whole) < 2e-4
    assert (folder / "whole" / "model.safetensors").is_file()
    assert differ(run(True, (6, 6), load=folder / "whole", seed=9), found) == 0
    before = run(True, (0, 0), save=lambda a: a.save_state(folder / "parts"))  # replaces; the optimizer is new
    assert differ(run(True, (0, 6), load=folder / "parts", seed=9), whole) == 0
    assert differ(run(True, (0, 0), load=folder / "parts", seed=9), before) == 0
    run(True, (0, 0), save=lambda a: a.save_state(folder / "weights", save_model_only=True))
    assert differ(run(True, (0, 0), load=folder / "weights", seed=9), before) == 0
    other = Accelerator(fsdp=True)
    model = other.prepare(model_of("gpt2", embed_dim=12))
    before = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    raises(ValueError, "belongs to another model", lambda: other.load_state(folder / "weights"))
    assert differ(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), before) == 0
    raises(ValueError, "state_dict_type", lambda: FullyShardedDataParallelPlugin(state_dict_type="LOCAL"))


from dtensor_arguments import check_generated_arguments_of_dtensors  # noqa: E402, F401
from dtensor_changes import (  # noqa: E402
    check_generated_changes_of_dtensors,  # noqa: F401
    check_generated_second_derivatives_of_dtensors,  # noqa: F401
    check_norms_of_parts_without_elements,  # noqa: F401
)
from dtensor_functions import check_generated_functions_of_dtensors  # noqa: E402, F401
from fsdp_modules import check_generated_sharded_modules  # noqa: E402, F401
from training_programs import check_generated_training_programs  # noqa: E402, F401

if __name__ == "__main__":
    checks.run(globals(), sys.argv[1])
