"""The Accelerator on several processes against one process; run under the launcher."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.accelerate import Accelerator
from mytorch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

STEPS, BATCH, ACCUMULATION = 20, 4, 2


def me():
    return dist.get_rank(), dist.get_world_size()


def together(x):
    """The objects of all ranks."""
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, x)
    return out


def raises(kind, text, function):
    try:
        function()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError("no error")


class Points:
    """Item i is the same on every rank."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        x = np.random.default_rng(i).normal(size=5)
        return mytorch.from_numpy(x), mytorch.tensor([np.sin(x).sum()], dtype=mytorch.float64)


def build(seed=0):
    mytorch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = mytorch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    return model, optimizer, scheduler


def one_process():
    """Computes losses, gradients and norms in one process with all data."""
    n = me()[1]
    model, optimizer, scheduler = build()
    mytorch.manual_seed(7)
    loader = DataLoader(Points(STEPS * BATCH * n * ACCUMULATION), batch_size=BATCH * n, shuffle=True)
    losses, norms, grads = [], [], []
    total = 0.0
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y) / ACCUMULATION
        loss.backward()
        total += loss.item()
        if (i + 1) % ACCUMULATION == 0:
            losses.append(total)
            total = 0.0
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            grads.append([np.asarray(p.grad).copy() for p in model.parameters()])
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return losses, norms, grads, model


def check_clip_norm_is_rank_independent():
    """Ranks with equal gradients clip by the norm of one of them, not by that times the root of their number."""
    p = nn.Parameter(mytorch.tensor([3.0, 4.0]))
    accelerator = Accelerator()
    model = nn.Module()
    model.p = p
    accelerator.prepare(model)
    accelerator.backward((p * p).sum() / 2)
    assert abs(accelerator.clip_grad_norm_(1.0).item() - 5.0) < 1e-5
    assert abs(np.linalg.norm(np.asarray(p.grad)) - 1.0) < 1e-4


def check_who_is_here():
    accelerator = Accelerator(num_gpus=me()[1])
    rank, n = me()
    assert (accelerator.rank, accelerator.num_processes, accelerator.use_distributed) == (rank, n, True)
    assert accelerator.is_main_process() == (rank == 0) == bool(accelerator.is_main_process)
    assert accelerator.is_last_process == (rank == n - 1)
    assert accelerator.device == mytorch.device("cpu")
    raises(RuntimeError, f"num_gpus={n + 1}", lambda: Accelerator(num_gpus=n + 1))


def check_training_equals_one_process():
    losses, norms, grads, single = one_process()
    rank, n = me()
    accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATION, ddp_options={"bucket_cap_mb": 1 / 1024})
    model, optimizer, scheduler = build(seed=rank)
    mytorch.manual_seed(7 if rank == 0 else 1000 + rank)
    loader = DataLoader(Points(STEPS * BATCH * n * ACCUMULATION), batch_size=BATCH, shuffle=True)
    scheduler, model, loader, optimizer = accelerator.prepare(scheduler, model, loader, optimizer)
    assert len(loader) == STEPS * ACCUMULATION
    group = dist.group.WORLD
    step, total = 0, 0.0
    for x, y in loader:
        before = group.log.count
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if not accelerator.sync_grad:
                assert group.log.count == before, "a micro-step communicated"
            norm = accelerator.clip_grad_norm_(0.5)
            if accelerator.sync_grad:
                assert abs(norm.item() - norms[step]) < 1e-9
                assert len(set(together(norm.item()))) == 1
                for p, wanted in zip(model.parameters(), grads[step], strict=True):
                    assert abs(np.asarray(p.grad) - wanted).max() < 1e-6
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        total += accelerator.gather_for_metrics(loss) / ACCUMULATION
        if accelerator.sync_grad:
            assert abs(total - losses[step]) < 1e-6, f"step {step}"
            step, total = step + 1, 0.0
    assert step == STEPS
    assert scheduler.get_last_lr() == [1e-2 * 0.5**4]
    for a, b in zip(model.parameters(), single.parameters(), strict=True):
        assert abs(np.asarray(a.detach()) - np.asarray(b.detach())).max() < 1e-6


def check_metrics_without_padding():
    rank, n = me()
    accelerator = Accelerator()
    for size in (11, 12, 2 * n * 4, 1):
        for drop_last in (False, True):
            loader = accelerator.prepare(
                DataLoader(TensorDataset(mytorch.arange(size)), batch_size=2, drop_last=drop_last)
            )
            seen = []
            for (x,) in loader:
                assert len(x) == 2
                got, pair = accelerator.gather_for_metrics((x, {"a": x * 2}))
                assert (pair["a"] == got * 2).all().item()
                seen += got.tolist()
            wanted = list(range(size))
            assert seen == (wanted if not drop_last else wanted[: size // (2 * n) * 2 * n]), (size, drop_last, seen)
            assert len(set(together(len(loader)))) == 1
    assert accelerator.gather_for_metrics(float(rank)) == (n - 1) / 2
    assert accelerator.gather_for_metrics(mytorch.tensor(rank)) == (n - 1) / 2


def check_a_shuffled_epoch_sees_everything_once():
    rank, n = me()
    accelerator = Accelerator()
    mytorch.manual_seed(rank)
    for workers in (0, 2):
        loader = accelerator.prepare(
            DataLoader(TensorDataset(mytorch.arange(24)), batch_size=2, shuffle=True, num_workers=workers)
        )
        orders = []
        for _ in range(2):
            orders.append(sum(together([v for (x,) in loader for v in x.tolist()]), []))
            assert sorted(orders[-1]) == list(range(24))
        assert orders[0] != orders[1]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


def check_streams_and_loaders_without_batches():
    rank, n = me()
    accelerator = Accelerator()
    loader = accelerator.prepare(DataLoader(Stream(), batch_size=2))
    mine = [v for x in loader for v in x.tolist()]
    everything = together(mine)
    assert len({len(m) for m in everything}) == 1
    assert set(sum(everything, [])) == set(range(10))
    assert mine[:2] == [2 * rank, 2 * rank + 1]
    single = accelerator.prepare(DataLoader(list(range(7)), batch_size=None))
    assert [int(x) for x in single][:2] == [rank, rank + n]
    shared = DataLoader(list(range(9)), batch_size=1, sampler=DistributedSampler(list(range(9)), shuffle=False))
    assert [x.item() for x in accelerator.prepare(shared)][0] == rank


def check_gather_reduce_and_pad():
    rank, n = me()
    accelerator = Accelerator()
    x = mytorch.full((2, 3), float(rank))
    assert accelerator.gather(x).shape == (2 * n, 3)
    assert accelerator.gather(mytorch.tensor(float(rank))).tolist() == [float(r) for r in range(n)]
    assert accelerator.reduce(x, "sum")[0, 0].item() == n * (n - 1) / 2
    assert accelerator.reduce({"x": x}, "mean", scale=2.0)["x"][0, 0].item() == n - 1
    assert (x == rank).all().item()
    padded = accelerator.pad_across_processes(mytorch.ones(rank + 1, 2), pad_index=9)
    assert padded.shape == (n, 2)
    assert (padded[rank + 1 :] == 9).all().item()
    first = accelerator.pad_across_processes(mytorch.ones(2, rank + 1), dim=1, pad_first=True)
    assert first[0].tolist() == [0.0] * (n - rank - 1) + [1.0] * (rank + 1)
    assert accelerator.gather_for_metrics([{"rank": rank}], use_gather_object=True) == [{"rank": r} for r in range(n)]
    with accelerator.split_between_processes(list(range(2 * n + 1))) as share:
        assert sum(together(share), []) == list(range(2 * n + 1))
    with accelerator.split_between_processes(list(range(2 * n + 1)), apply_padding=True) as share:
        assert len(share) == 3
    if rank == n - 1:
        accelerator.set_trigger()
    assert accelerator.check_trigger()
    assert not accelerator.check_trigger()


def check_mixed_precision():
    rank, n = me()
    for precision in ("fp16", "bf16"):
        accelerator = Accelerator(mixed_precision=precision)
        mytorch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 1))
        optimizer = mytorch.optim.SGD(model.parameters(), lr=0.05)
        loader = DataLoader(Points(8 * n * 10), batch_size=8)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        losses = []
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x.float()), y.float())
            if i == 3 and rank == n - 1 and precision == "fp16":
                loss = loss * float("inf")  # on one rank; no rank may step
            before = [np.asarray(p.detach()).copy() for p in model.parameters()]
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(1.0)
            optimizer.step()
            if i == 3 and precision == "fp16":
                assert accelerator.optimizer_step_was_skipped
                assert all(
                    np.array_equal(a, np.asarray(p.detach())) for a, p in zip(before, model.parameters(), strict=True)
                )
            optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss))
        assert losses[-1] < losses[0]
        everyone = together([mytorch.from_numpy(np.asarray(p.detach())) for p in model.parameters()])
        assert all((a == b).all().item() for o in everyone for a, b in zip(o, everyone[0], strict=True))


def check_state_of_all_ranks():
    import tempfile

    rank, n = me()
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    folder = Path(box[0])
    accelerator = Accelerator()

    def make():
        model, optimizer, scheduler = build()
        loader = DataLoader(Points(8 * n * 6), batch_size=8, shuffle=True)
        return accelerator.prepare(model, optimizer, scheduler, loader)

    def step(model, optimizer, scheduler, batch):
        x, y = batch
        loss = nn.functional.mse_loss(model(x + 0.01 * mytorch.randn(5)), y)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        return accelerator.gather_for_metrics(loss)

    model, optimizer, scheduler, loader = make()
    mytorch.manual_seed(50 + rank)
    losses = []
    for i, batch in enumerate(loader):
        if i == 3:
            accelerator.save_state(folder / "checkpoint_3")
        losses.append(step(model, optimizer, scheduler, batch))
    accelerator.free_memory()
    mytorch.manual_seed(999)
    model, optimizer, scheduler, loader = make()
    accelerator.load_state(folder / "checkpoint_3")
    # batch 3 was already returned when the state was saved
    again = [step(model, optimizer, scheduler, batch) for batch in loader]
    assert len(again) == 2
    names = sorted(p.name for p in (folder / "checkpoint_3").iterdir())
    assert {f"random_states_{r}.bin" for r in range(n)} <= set(names), names
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    checks.run(globals(), sys.argv[1])
