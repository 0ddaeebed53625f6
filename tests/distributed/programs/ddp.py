"""DistributedDataParallel against one process on the joined batch; run under the launcher."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.distributed.algorithms.ddp_comm_hooks import default_hooks
from mytorch.nn.parallel import DistributedDataParallel as DDP

STEPS, BATCH = 20, 6  # BATCH on each rank


class Tied(nn.Module):
    """An embedding that is also the last layer, a branch that not every step uses, two dtypes of nothing."""

    def __init__(self, branch=False):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.hidden = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))
        self.branch = nn.Linear(8, 8) if branch else None
        self.never = nn.Linear(2, 2) if branch else None
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x, use=False):
        h = self.norm(self.embed(x))
        h = h + self.hidden(h)
        if use:
            h = h + self.branch(h)
        return self.head(h)


def data(step):
    """The joined batch of a step, (world × BATCH, 5) tokens and targets."""
    draw = np.random.default_rng(step)
    x = draw.integers(0, 11, (BATCH * dist.get_world_size(), 5))
    return mytorch.from_numpy(x), mytorch.from_numpy((x * 7 + 1) % 11)


def mine(t):
    return t[dist.get_rank() * BATCH : (dist.get_rank() + 1) * BATCH]


def loss_of(out, y):
    return nn.functional.cross_entropy(out.reshape(-1, 11), y.reshape(-1))


def build(seed, branch=False):
    mytorch.manual_seed(seed)
    return Tied(branch).double()


def uses_branch(step):
    return step % 3 != 1


def reference(accumulation, branch):
    """Losses and gradients of one process on the joined batches."""
    model = build(0, branch)
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, grads = [], []
    for step in range(STEPS):
        for micro in range(accumulation):
            x, y = data(step * accumulation + micro)
            loss = loss_of(model(x, branch and uses_branch(step)), y) / accumulation
            loss.backward()
            losses.append(loss.item() * accumulation)
        grads.append({n: None if p.grad is None else np.asarray(p.grad).copy() for n, p in model.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()
    return losses, grads, model


def against_one_process(accumulation=1, branch=False, set_to_none=True, **options):
    losses, grads, single = reference(accumulation, branch)
    model = DDP(build(dist.get_rank(), branch), **options)  # other weights on each rank: rank 0's count
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    i = 0
    for step in range(STEPS):
        for micro in range(accumulation):
            x, y = data(step * accumulation + micro)
            use = branch and uses_branch(step)

            def backward(x=x, y=y, use=use):
                loss = loss_of(model(mine(x), use), mine(y)) / accumulation
                loss.backward()
                return loss.item() * accumulation

            if micro < accumulation - 1:
                with model.no_sync():
                    value = backward()
            else:
                value = backward()
            total = mytorch.tensor(value, dtype=mytorch.float64)
            dist.all_reduce(total, dist.ReduceOp.AVG)
            assert abs(total.item() - losses[i]) < 1e-6, f"loss {i}: {total.item()} and {losses[i]}"
            i += 1
        for name, p in model.module.named_parameters():
            wanted = grads[step][name]
            assert (p.grad is None) == (wanted is None) or not set_to_none, f"step {step}: {name} has gradient {p.grad}"
            if p.grad is not None and wanted is not None:
                worst = abs(np.asarray(p.grad) - wanted).max()
                assert worst < 1e-6, f"step {step}: gradient of {name} differs by {worst}"
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
    for (name, a), b in zip(model.module.named_parameters(), single.parameters(), strict=True):
        assert abs(np.asarray(a.detach()) - np.asarray(b.detach())).max() < 1e-6, name
    return model


def check_twenty_steps():
    model = against_one_process()
    assert len(model.reducer.buckets) == 1


def check_twenty_steps_with_accumulation():
    against_one_process(accumulation=3)


def check_buckets_of_a_kilobyte():
    model = against_one_process(bucket_cap_mb=1 / 1024)
    assert len(model.reducer.buckets) > 3
    against_one_process(accumulation=2, bucket_cap_mb=1 / 1024)


def check_buckets_of_25_megabytes():
    against_one_process(bucket_cap_mb=25)


def check_an_unused_branch():
    against_one_process(branch=True, find_unused_parameters=True)
    against_one_process(branch=True, find_unused_parameters=True, accumulation=2, bucket_cap_mb=1 / 1024)


def check_gradients_of_their_own():
    against_one_process(gradient_as_bucket_view=False)


def check_gradients_set_to_zero():
    against_one_process(set_to_none=False)


def check_gradients_live_in_the_bucket():
    model = DDP(build(0))
    x, y = data(0)
    loss_of(model(mine(x)), mine(y)).backward()
    for p in model.parameters():
        bucket, i = model.reducer.where[id(p)]
        assert p.grad is bucket.views[i] and np.shares_memory(p.grad._array, bucket.flat)


def check_communication_begins_before_backward_ends():
    model = DDP(build(0), bucket_cap_mb=1 / 1024)
    seen = []
    start = model.reducer._start
    model.reducer._start = lambda i: (seen.append(len(model.reducer.ready)), start(i))[1]
    x, y = data(0)
    loss_of(model(mine(x)), mine(y)).backward()
    assert seen[0] < len(model.reducer.number) and seen == sorted(seen)


def check_no_sync_does_not_communicate():
    model = DDP(build(0))
    before = model.process_group.log.count
    x, y = data(0)
    with model.no_sync():
        loss_of(model(mine(x)), mine(y)).backward()
    assert model.process_group.log.count == before
    assert model.require_backward_grad_sync


def check_a_second_backward_without_forward_averages_too():
    model = DDP(nn.Linear(3, 1).double())
    x = mytorch.full((2, 3), float(dist.get_rank() + 1), dtype=mytorch.float64)
    loss = model(x).sum()
    loss.backward(retain_graph=True)
    model.module.weight.grad = None
    loss.backward()
    mean = 2 * (dist.get_world_size() + 1) / 2
    assert abs(np.asarray(model.module.weight.grad) - mean).max() < 1e-12


def check_used_in_one_rank_only():
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)

        def forward(self, x, which):
            return getattr(self, which)(x)

    rank, n = dist.get_rank(), dist.get_world_size()
    model = DDP(Either(), find_unused_parameters=True)
    model(mytorch.ones(1, 2), "a" if rank == 0 else "b").sum().backward()
    assert abs(np.asarray(model.module.a.weight.grad) - 1 / n).max() < 1e-6
    assert abs(np.asarray(model.module.b.weight.grad) - (n - 1) / n).max() < 1e-6


def check_an_unfinished_step_is_an_error():
    model = DDP(build(0, branch=True))
    x, y = data(0)
    loss_of(model(mine(x)), mine(y)).backward()
    try:
        model(mine(x))
    except RuntimeError as error:
        assert "branch.weight" in str(error) and "find_unused_parameters" in str(error)
    else:
        raise AssertionError("no error")


def check_other_shapes_are_an_error_on_all_ranks():
    try:
        DDP(nn.Linear(3, 3 + (dist.get_rank() == 1)))
    except RuntimeError as error:
        assert "rank 1 holds weight of shape (4, 3)" in str(error), error
    else:
        raise AssertionError("no error")
    try:
        DDP(nn.Linear(3, 3, bias=dist.get_rank() == 0))
    except RuntimeError as error:
        assert "parameters and buffers" in str(error), error
    else:
        raise AssertionError("no error")


def check_buffers_follow_rank_0():
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    for _ in range(3):
        model(mytorch.randn(8, 4) + dist.get_rank()).sum().backward()
    model(mytorch.zeros(8, 4))
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, {k: v for k, v in model.module.state_dict().items() if "running" in k or "num" in k})
    for k in out[0]:
        assert all((o[k] == out[0][k]).all().item() for o in out), k
    assert out[0]["1.num_batches_tracked"].item() == 4


def check_batch_norm_over_all_processes():
    rank, n = dist.get_rank(), dist.get_world_size()
    draw = np.random.default_rng(3)
    for shape in ((4, 5), (4, 5, 3, 2)):
        x = draw.normal(2.0, 3.0, (4 * n, *shape[1:]))
        g = draw.normal(size=x.shape)
        mytorch.manual_seed(0)
        single = nn.Sequential(nn.BatchNorm1d(5) if len(shape) == 2 else nn.BatchNorm2d(5)).double()
        single[0].weight.data = mytorch.from_numpy(draw.normal(size=5)).data
        import copy

        model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(single)))
        assert isinstance(model.module[0], nn.SyncBatchNorm)
        part = slice(4 * rank, 4 * rank + 4)
        for _ in range(2):
            whole, mine = (mytorch.from_numpy(a.copy()).requires_grad_() for a in (x, x[part]))
            a, b = single(whole), model(mine)
            a.backward(mytorch.from_numpy(g))
            b.backward(mytorch.from_numpy(g[part]))
            assert abs(np.asarray(a.detach())[part] - np.asarray(b.detach())).max() < 1e-12
            assert abs(np.asarray(whole.grad)[part] - np.asarray(mine.grad)).max() < 1e-12
        for p, q in zip(single.parameters(), model.parameters(), strict=True):
            assert abs(np.asarray(p.grad) / n - np.asarray(q.grad)).max() < 1e-12  # DDP averages
        for p, q in zip(single.buffers(), model.buffers(), strict=True):
            assert abs(np.asarray(p) - np.asarray(q)).max() < 1e-12
    model.eval()
    assert abs(np.asarray(single.eval()(whole).detach())[part] - np.asarray(model(mine).detach())).max() < 1e-12


def check_compression_hooks():
    for hook, dtype, tolerance in (
        (default_hooks.fp16_compress_hook, mytorch.float16, 2e-3),
        (default_hooks.bf16_compress_hook, mytorch.bfloat16, 2e-2),
        (default_hooks.allreduce_hook, mytorch.float64, 1e-12),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), mytorch.float16, 2e-3),
    ):
        plain, model = DDP(build(0)), DDP(build(0), bucket_cap_mb=1 / 1024)
        model.register_comm_hook(None, hook)
        x, y = data(0)
        for m in (plain, model):
            loss_of(m(mine(x)), mine(y)).backward()
        for a, b in zip(plain.parameters(), model.parameters(), strict=True):
            a, b = np.asarray(a.grad), np.asarray(b.grad)
            assert abs(a - b).max() <= tolerance * abs(a).max(), (hook, abs(a - b).max())
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, [mytorch.from_numpy(np.asarray(p.grad)) for p in model.parameters()])
        assert all((a == b).all().item() for o in everyone for a, b in zip(o, everyone[0], strict=True))
    try:
        model.register_comm_hook(None, hook)
    except RuntimeError as error:
        assert "once" in str(error)


def check_a_users_hook():
    def mean_by_hand(group, bucket):
        assert bucket.index() >= 0 and len(bucket.gradients()) == len(bucket.parameters())
        work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
        return work.get_future().then(lambda f: f.value()[0] / dist.get_world_size(group))

    model, plain = DDP(build(0)), DDP(build(0))
    model.register_comm_hook(dist.group.WORLD, mean_by_hand)
    x, y = data(0)
    for m in (plain, model):
        loss_of(m(mine(x)), mine(y)).backward()
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        assert abs(np.asarray(a.grad) - np.asarray(b.grad)).max() < 1e-12


def check_checkpointed_blocks():
    from mytorch.utils.checkpoint import checkpoint

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return x

    mytorch.manual_seed(0)
    model = DDP(Blocks().double())
    x = mytorch.full((2, 4), float(dist.get_rank()), dtype=mytorch.float64)
    model(x).sum().backward()
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, [float(p.grad.sum()) for p in model.parameters()])
    assert all(o == out[0] for o in out)


def check_zero_redundancy():
    from mytorch.distributed.optim import ZeroRedundancyOptimizer

    def train(make):
        model = DDP(build(0))
        optimizer = make(model.parameters())
        for step in range(5):
            x, y = data(step)
            loss_of(model(mine(x)), mine(y)).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    whole, plain = train(lambda p: mytorch.optim.AdamW(p, lr=1e-2))
    model, optimizer = train(lambda p: ZeroRedundancyOptimizer(p, mytorch.optim.AdamW, lr=1e-2))
    for a, b in zip(whole.parameters(), model.parameters(), strict=True):
        assert (a == b).all().item()
    kept = sum(s["exp_avg"].numel() for s in optimizer.optim.state.values())
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, kept)
    assert sum(counts) == sum(p.numel() for p in model.parameters()) and max(counts) < sum(counts)
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        state = optimizer.state_dict()
        wanted = plain.state_dict()
        for k in wanted["state"]:
            assert (state["state"][k]["exp_avg_sq"] == wanted["state"][k]["exp_avg_sq"]).all().item()
    else:
        state = None
    box = [state]
    dist.broadcast_object_list(box, src=0)
    again = ZeroRedundancyOptimizer(model.parameters(), mytorch.optim.AdamW, lr=1.0)
    again.load_state_dict(box[0])
    assert again.param_groups[0]["lr"] == 1e-2
    assert len(again.optim.state) == len(optimizer.optim.state)
    x, y = data(9)
    for m, o in ((whole, plain), (model, again)):
        loss_of(m(mine(x)), mine(y)).backward()
        o.step()
    for a, b in zip(whole.parameters(), model.parameters(), strict=True):
        assert (a == b).all().item()


from ddp_patterns import (  # noqa: E402
    check_generated_batch_norms,  # noqa: F401
    check_generated_ddp_patterns,  # noqa: F401
    check_generated_shared_updates,  # noqa: F401
)
from process_edges import (  # noqa: E402
    check_generated_collectives,  # noqa: F401
    check_generated_hooks,  # noqa: F401
    check_generated_joins,  # noqa: F401
)

if __name__ == "__main__":
    checks.run(globals(), sys.argv[1])
