"""Every collective against its known answer; run under the launcher."""

import sys
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import ReduceOp

FLOATS = (mytorch.float64, mytorch.float32, mytorch.float16, mytorch.bfloat16)
INTEGERS = (mytorch.int64, mytorch.int32, mytorch.int16, mytorch.int8, mytorch.uint8)


def me():
    return dist.get_rank(), dist.get_world_size()


def numbers(rank, dtype=mytorch.float64, shape=(3, 4)):
    """Returns small integers that differ between ranks."""
    return mytorch.from_numpy(np.random.default_rng(rank).integers(1, 5, shape)).to(dtype)


def everyone(dtype=mytorch.float64, shape=(3, 4)):
    return np.stack([np.asarray(numbers(r, dtype, shape).double().data) for r in range(dist.get_world_size())])


def same(tensor, expected):
    got = np.asarray(tensor.double().data)
    assert np.array_equal(got, np.asarray(expected, np.float64)), f"{got} is not {expected}"


def check_who_is_here():
    rank, n = me()
    assert 0 <= rank < n and dist.is_initialized() and dist.get_backend() == "mpi"
    assert dist.get_process_group_ranks() == list(range(n)) and dist.get_rank(dist.group.WORLD) == rank


def check_all_reduce_in_every_dtype():
    for dtype in FLOATS + INTEGERS:
        for op, reduce in (
            (ReduceOp.SUM, np.sum),
            (ReduceOp.PRODUCT, np.prod),
            (ReduceOp.MIN, np.min),
            (ReduceOp.MAX, np.max),
        ):
            x = numbers(me()[0], dtype)
            assert dist.all_reduce(x, op) is None
            assert x.dtype is dtype
            same(x, reduce(everyone(dtype), 0))


def check_all_reduce_average_and_bits():
    rank, n = me()
    x = mytorch.full((2, 3), float(rank), dtype=mytorch.float64)
    dist.all_reduce(x, ReduceOp.AVG)
    assert abs(x - (n - 1) / 2).max().item() < 1e-15
    bits = mytorch.tensor([1 << rank])
    dist.all_reduce(bits, ReduceOp.BOR)
    assert bits.item() == (1 << n) - 1
    flags = mytorch.tensor([rank == 0, True, False])
    dist.all_reduce(flags)
    assert flags.tolist() == [True, True, False]
    dist.all_reduce(flags, ReduceOp.PRODUCT)
    assert flags.tolist() == [True, True, False]


def check_what_can_not_be_reduced():
    for make, op in ((mytorch.arange, ReduceOp.AVG), (mytorch.ones, ReduceOp.BXOR)):
        try:
            dist.all_reduce(make(3), op)
        except TypeError as error:
            assert "ReduceOp" in str(error)
        else:
            raise AssertionError("no error")


def check_half_precision_is_added_in_float32():
    rank, n = me()
    x = mytorch.full((1,), 1.0 if rank == 0 else 2.0**-9, dtype=mytorch.bfloat16)
    dist.all_reduce(x)
    assert x.item() == float(mytorch.tensor(1 + (n - 1) * 2.0**-9).to(mytorch.bfloat16).item())


def check_tensors_that_are_not_contiguous():
    x = numbers(me()[0]).t()
    dist.all_reduce(x)
    same(x, everyone().sum(0).T)
    base = mytorch.zeros(4, 4, dtype=mytorch.float64)
    dist.broadcast(base[:, 1], 0)
    row = mytorch.full((4,), float(me()[0]))
    dist.broadcast(row[::2], 1)
    assert row.tolist() == [1.0, me()[0], 1.0, me()[0]]


def check_broadcast():
    for source in range(me()[1]):
        for dtype in (mytorch.float32, mytorch.bool, mytorch.complex64, mytorch.bfloat16):
            x = numbers(me()[0], dtype) if dtype is not mytorch.bool else numbers(me()[0]) > 2
            dist.broadcast(x, src=source)
            wanted = numbers(source, dtype) if dtype is not mytorch.bool else numbers(source) > 2
            assert (x == wanted).all().item()


def check_broadcast_changes_the_version():
    x = mytorch.ones(2)
    before = x._version
    dist.broadcast(x, 0)
    assert x._version > before


def check_reduce_keeps_the_others():
    rank, n = me()
    x = numbers(rank)
    dist.reduce(x, dst=n - 1)
    same(x, everyone().sum(0) if rank == n - 1 else np.asarray(numbers(rank).data))


def check_all_gather():
    rank, n = me()
    out = [mytorch.zeros(3, 4, dtype=mytorch.float64) for _ in range(n)]
    dist.all_gather(out, numbers(rank))
    for r in range(n):
        same(out[r], everyone()[r])
    joined = mytorch.zeros(3 * n, 4, dtype=mytorch.float64)
    dist.all_gather_into_tensor(joined, numbers(rank))
    same(joined, everyone().reshape(3 * n, 4))
    try:
        dist.all_gather(out[:1], numbers(rank))
    except ValueError as error:
        assert f"expected {n} tensors" in str(error)
    else:
        raise AssertionError("no error")


def check_gather_and_scatter():
    rank, n = me()
    out = [mytorch.zeros(3, 4, dtype=mytorch.float64) for _ in range(n)] if rank == 1 else None
    dist.gather(numbers(rank), out, dst=1)
    if rank == 1:
        for r in range(n):
            same(out[r], everyone()[r])
    mine = mytorch.zeros(2, dtype=mytorch.int64)
    dist.scatter(mine, [mytorch.tensor([r, 2 * r]) for r in range(n)] if rank == 0 else None, src=0)
    assert mine.tolist() == [rank, 2 * rank]


def check_reduce_scatter():
    rank, n = me()
    for dtype in (mytorch.float64, mytorch.float16, mytorch.int32):
        parts = [numbers(10 * rank + i, dtype, (2, 2)) for i in range(n)]
        out = mytorch.zeros(2, 2, dtype=dtype)
        dist.reduce_scatter(out, parts)
        wanted = sum(np.asarray(numbers(10 * r + rank, dtype, (2, 2)).double().data) for r in range(n))
        same(out, wanted)
        dist.reduce_scatter_tensor(out, mytorch.cat(parts), op=ReduceOp.MAX)
        same(out, np.max([np.asarray(numbers(10 * r + rank, dtype, (2, 2)).double().data) for r in range(n)], 0))


def check_all_to_all():
    rank, n = me()
    out = [mytorch.zeros(r + 1, dtype=mytorch.int64) for r in range(n)]
    dist.all_to_all(out, [mytorch.full((rank + 1,), 10 * rank + i) for i in range(n)])
    for r in range(n):
        assert out[r].tolist() == [10 * r + rank] * (r + 1)
    single = mytorch.zeros(n, 2)
    dist.all_to_all_single(single, mytorch.arange(2.0 * n).reshape(n, 2) + 100 * rank)
    assert single[:, 0].tolist() == [100.0 * r + 2 * rank for r in range(n)]
    splits = [1 + (rank + i) % 2 for i in range(n)]
    uneven = mytorch.zeros(sum(splits))
    dist.all_to_all_single(uneven, mytorch.full((sum(splits),), float(rank)), splits, splits)
    assert uneven.tolist() == [float(r) for r in range(n) for _ in range(splits[r])]


def check_send_and_receive():
    rank, n = me()
    x = mytorch.full((3,), float(rank))
    after, before = (rank + 1) % n, (rank - 1) % n
    works = [dist.isend(x, after), dist.irecv(got := mytorch.zeros(3), before)]
    for work in works:
        work.wait()
    assert got.tolist() == [float(before)] * 3
    if rank == 0:
        dist.send(mytorch.arange(4), 1, tag=7)
    elif rank == 1:
        got = mytorch.zeros(4, dtype=mytorch.int64)
        assert dist.recv(got, tag=7) == 0
        assert got.tolist() == [0, 1, 2, 3]
    if rank in (0, 1):  # bytes are never interpreted as another dtype
        for sent, wanted in (
            ("float32", "int32"),
            ("bfloat16", "float16"),
            ("float64", "complex64"),
            ("int64", "int64"),
        ):
            if rank == 0:
                dist.send(mytorch.ones(4, dtype=getattr(mytorch, sent)), 1, tag=9)
                continue
            got = mytorch.zeros(4, dtype=getattr(mytorch, wanted))
            try:
                dist.recv(got, 0, tag=9)
                assert sent == wanted
                assert got.tolist() == [1] * 4
            except dist.DistBackendError as error:
                assert sent != wanted
                assert f"expected 4 numbers of {wanted}, but 4 numbers of {sent} was sent" in str(error)
    ring = [dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, got := mytorch.zeros(3), before)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    assert got.tolist() == [float(before)] * 3


def check_asynchronous_works_in_any_order():
    rank, n = me()
    tensors = [mytorch.full((1000 * (i + 1),), float(rank + i)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for i, work in reversed(list(enumerate(works))):
        assert work.wait() is True and work.is_completed() and work.is_success()
        assert (tensors[i] == sum(r + i for r in range(n))).all().item()
    future = dist.all_reduce(tensors[0], async_op=True).get_future().then(lambda f: f.value()[0] + 1)
    assert future.wait()[0].item() == n * sum(range(n)) + 1


def check_objects():
    rank, n = me()
    out = [None] * n
    dist.all_gather_object(out, {"rank": rank, "list": [1, 2.5, None], "tensor": mytorch.ones(rank + 1)})
    assert (
        [o["rank"] for o in out] == list(range(n))
        and out[n - 1]["tensor"].shape == (n,)
        and out[0]["list"] == [1, 2.5, None]
    )
    objects = ["a", {"b": rank}, mytorch.arange(3)] if rank == 1 else [None] * 3
    dist.broadcast_object_list(objects, src=1)
    assert objects[:2] == ["a", {"b": 1}] and objects[2].tolist() == [0, 1, 2]
    gathered = [None] * n if rank == 0 else None
    dist.gather_object(rank * 2, gathered, dst=0)
    assert rank or gathered == [2 * r for r in range(n)]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(n)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]
    try:
        dist.all_gather_object(out, object())
    except TypeError:
        pass
    else:
        raise AssertionError("an object that is not plain data was sent")


def check_groups():
    rank, n = me()
    pair = dist.new_group([0, n - 1])
    if rank in (0, n - 1):
        assert (
            dist.get_world_size(pair) == 2
            and dist.get_group_rank(pair, n - 1) == 1
            and dist.get_global_rank(pair, 1) == n - 1
        )
        x = mytorch.full((2,), float(rank + 1))
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [n + 1.0] * 2
        dist.broadcast(x.fill_(float(rank)), src=n - 1, group=pair)
        assert x.tolist() == [n - 1.0] * 2
    else:
        assert pair is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(pair) == -1
        assert dist.all_reduce(mytorch.ones(1), group=pair) is None
    alone = [dist.new_group([r]) for r in range(n)][rank]
    x = mytorch.ones(1)
    dist.all_reduce(x, group=alone)
    assert x.item() == 1


def check_a_timeout_names_who_is_missing():
    rank, n = me()
    group = dist.new_group(timeout=timedelta(seconds=0.5))
    if rank == n - 1:
        mytorch.ones(1)
    else:
        try:
            dist.all_reduce(mytorch.ones(2, 2), group=group)
        except dist.DistBackendError as error:
            text = str(error)
            assert "all_reduce(sum, float32 (2, 2))" in text and "0.5 seconds" in text and f"rank {n - 1}" in text, text
        else:
            raise AssertionError("no error")


def check_a_disagreement_is_an_error():
    rank, n = me()
    group = dist.new_group(timeout=timedelta(seconds=1))
    try:
        dist.all_reduce(mytorch.ones(3 + rank), group=group)
    except dist.DistBackendError as error:
        assert "disagree" in str(error) or "timed out" in str(error)
        told = "disagree" in str(error)
    else:
        raise AssertionError("no error")
    out = [None] * n
    dist.all_gather_object(out, told)
    assert any(out)


def check_the_sampler_shares_the_data():
    from mytorch.utils.data import DataLoader, DistributedSampler, TensorDataset

    rank, n = me()
    dataset = TensorDataset(mytorch.arange(10))
    sampler = DistributedSampler(dataset, seed=3)
    assert (sampler.rank, sampler.num_replicas) == (rank, n)
    orders = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        mine = [x.item() for (batch,) in DataLoader(dataset, batch_size=2, sampler=sampler) for x in batch]
        out = [None] * n
        dist.all_gather_object(out, mine)
        assert len({len(o) for o in out}) == 1 and set(sum(out, [])) == set(range(10))
        orders.append(sum(out, []))
    assert orders[0] != orders[1]


if __name__ == "__main__":
    checks.run(globals(), sys.argv[1])
