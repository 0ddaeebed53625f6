"""Memory that several streams use: `Tensor.record_stream`.

`test_checks.py` runs this file over the fake CuPy. Within `fake_cupy.behind`, a freed block is given to the next array of its
stream at once, and the streams that use the tensors work as late as possible. Every case without `record_stream` therefore reads
memory that was overwritten, which shows that the case tests something.
"""

import sys

import numpy as np
import pytest

import mytorch
from mytorch import cuda
from mytorch.arrays import cupy_ns, in_flight

pytestmark = pytest.mark.skipif("fake_cupy" not in sys.modules, reason="needs the fake, which shows a race each time")
SHAPE = (6, 5)
DTYPES = (mytorch.float32, mytorch.float64, mytorch.bfloat16, mytorch.int64, mytorch.complex64, mytorch.bool)
# How the program uses the tensor: the views of it that the other stream reads, and the one that record_stream is called on.
FORMS = {
    "the tensor": lambda x: (x, x),
    "a view": lambda x: (x[1:], x),
    "recorded by a view": lambda x: (x, x[2]),
    "recorded by another view": lambda x: (x[:3], x[4:]),
    "transposed": lambda x: (x.t(), x),
    "as_strided": lambda x: (x.as_strided((3, 3), (5, 1), 2), x),
    "recorded by as_strided": lambda x: (x, x.as_strided((2, 2), (1, 1))),
    "detached": lambda x: (x.detach(), x),
    "flattened": lambda x: (x.view(-1), x.reshape(5, 6)),
}
USES = {
    "product": lambda x: x * x,
    "sum": lambda x: x.sum(0),
    "copy": lambda x: x.clone(),
    "in place": lambda x: mytorch.zeros(x.shape, dtype=x.dtype, device="cuda").copy_(x),
    "selection": lambda x: x[mytorch.tensor([1, 0], device="cuda")],
}
rng = np.random.default_rng(5)


def fake():
    return sys.modules["fake_cupy"]


def values(dtype):
    return mytorch.tensor(rng.integers(1, 9, SHAPE)).to(dtype)


def after_a_race(form, use, dtype, streams, record):
    """Returns the result of another stream than the one that owns the memory, and the right result."""
    owner, user = streams
    host = values(dtype)
    right = USES[use](FORMS[form](host.cuda())[0]).cpu()
    with fake().behind(user.cuda_stream):
        with cuda.stream(owner):
            x = host.to("cuda")
        user.wait_stream(owner)
        read, recorded = FORMS[form](x)
        with cuda.stream(user):
            result = USES[use](read)
        if record:
            recorded.record_stream(user)
        del x, read, recorded
        with cuda.stream(owner):
            others = [mytorch.zeros(SHAPE, dtype=dtype, device="cuda") for _ in range(3)]
        cuda.synchronize()
    assert all((other == 0).all() for other in others)
    return result.cpu(), right


def pairs():
    """The stream that owns the memory and the one that uses it."""
    side, second = cuda.Stream(), cuda.Stream()
    return {"side": (cuda.default_stream(), side), "default": (side, cuda.default_stream()), "both": (side, second)}


@pytest.mark.parametrize("pair", ["side", "default", "both"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", USES)
def test_another_stream_reads_before_the_memory_is_reused(form, use, pair):
    dtype = DTYPES[(len(form) + len(use) + len(pair)) % len(DTYPES)]
    got, right = after_a_race(form, use, dtype, pairs()[pair], record=True)
    assert got.tolist() == right.tolist()
    got, right = after_a_race(form, use, dtype, pairs()[pair], record=False)
    assert got.tolist() != right.tolist(), "the fake shows no race here, so this case tests nothing"


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    got, right = after_a_race("the tensor", "product", dtype, pairs()["side"], record=True)
    assert got.tolist() == right.tolist()


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("pinned", [True, False])
def test_prefetching(pinned, record):
    """Batches are copied on a separate stream, while the default stream works on the batch before."""
    batches = [values(mytorch.float32) for _ in range(6)]
    side, sums = cuda.Stream(), []
    with fake().behind(0):
        for batch in batches:
            with cuda.stream(side):
                x = (batch.pin_memory() if pinned else batch).to("cuda", non_blocking=True)
            cuda.current_stream().wait_stream(side)
            if record:
                x.record_stream(cuda.current_stream())
            sums.append((x * 2).sum())
            del x
        cuda.synchronize()
    right = [2 * float(batch.sum()) for batch in batches]
    assert ([float(s) for s in sums] == right) is record


def test_several_streams_and_calls():
    host, streams = values(mytorch.float32), [cuda.Stream() for _ in range(3)]
    with fake().behind():
        x = host.cuda()
        results = []
        for stream in streams:
            stream.wait_stream(cuda.current_stream())
            with cuda.stream(stream):
                results.append(x + 1)
            x.record_stream(stream)
            x.record_stream(stream)
        del x
        others = [mytorch.zeros(SHAPE, device="cuda") for _ in range(3)]
        cuda.synchronize()
    assert all(result.tolist() == (host + 1).tolist() for result in results)
    del others


def test_the_memory_comes_back():
    cuda.synchronize()
    before = cuda.memory_allocated()
    side = cuda.Stream()
    with fake().behind(side.cuda_stream):
        x = mytorch.ones(1000, device="cuda")
        used = cuda.memory_allocated()
        assert used > before
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            y = x + 1
        x.record_stream(side)
        x.record_stream(side)
        assert cuda.memory_allocated() > before
        del x
        assert len(in_flight._used) == 1
        cuda.memory_allocated()
        assert not in_flight._used
        assert len(in_flight._held) == 1  # the other stream has not used it yet
        cuda.synchronize()
    del y
    assert cuda.memory_allocated() == before
    assert not in_flight._held


def test_a_full_pool_waits_for_the_other_stream():
    side, pool = cuda.Stream(), cupy_ns().get_default_memory_pool()
    x = mytorch.ones(1 << 16, device="cuda")
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + 1024)
    try:
        x.record_stream(side)
        del x
        assert mytorch.zeros(1 << 16, device="cuda").sum().item() == 0
    finally:
        pool.set_limit(size=0)


def test_a_graph_keeps_the_memory():
    x, side = mytorch.ones(100, device="cuda"), cuda.Stream()
    graph = cuda.CUDAGraph()
    memory = x._mt_data._array.data.mem
    with cuda.graph(graph):
        y = x * 2
        x.record_stream(side)
    assert any(kept is memory for kept in graph._capture.kept)
    del x
    graph.replay()
    assert y.tolist() == [2.0] * 100
    assert not in_flight._used


def test_arguments():
    stream = cuda.Stream()
    assert mytorch.ones(2).record_stream(stream) is None  # no effect on a CPU
    assert mytorch.ones(0, device="cuda").record_stream(stream) is None
    with pytest.raises(TypeError, match=r"record_stream: expected a cuda\.Stream, got str"):
        mytorch.ones(2, device="cuda").record_stream("side")
