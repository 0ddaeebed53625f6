"""GPU memory: current use, peak use and out-of-memory errors, over the fake CuPy or a real GPU."""

import gc
import io

import pytest

import mytorch
from mytorch import cuda, nn
from mytorch.arrays import cupy_ns
from mytorch.cuda import memory

MIB = 1 << 20
N = 1 << 18  # elements; 1 MiB in float32


@pytest.fixture(autouse=True)
def fresh():
    gc.collect()
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    yield
    cupy_ns().get_default_memory_pool().set_limit(size=0)


def zeros(mib):
    return mytorch.zeros(mib * N, device="cuda")


def test_memory_in_use_its_peak_and_the_size_of_the_pool():
    before = cuda.memory_allocated()
    a = zeros(4)
    assert cuda.memory_allocated() == before + 4 * MIB
    assert a[:100].data_ptr() == a.data_ptr()
    assert cuda.memory_allocated() == before + 4 * MIB  # views own no memory
    b = a + 1
    del b
    assert cuda.memory_allocated() == before + 4 * MIB
    assert cuda.max_memory_allocated() == before + 8 * MIB
    held = cuda.memory_reserved()
    assert held >= before + 8 * MIB
    free, total = cuda.mem_get_info()
    assert free <= total - held
    cuda.empty_cache()
    assert before + 4 * MIB <= cuda.memory_reserved() < held
    assert cuda.max_memory_reserved() >= held
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == cuda.memory_allocated() == before + 4 * MIB
    stats = cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == stats["allocated_bytes.all.peak"] == before + 4 * MIB
    assert f"{(before + 4 * MIB) / MIB:.1f} MiB" in cuda.memory_summary()
    del a
    assert cuda.memory_allocated() == before


def test_the_watch_for_the_peak_ends_when_it_is_read():
    def watched():
        return memory._hooked.hook is not None

    before, a = cuda.memory_allocated(), zeros(4)
    assert watched()
    del a
    assert cuda.max_memory_allocated() == before + 4 * MIB
    assert not watched()
    a = zeros(8)
    assert cuda.max_memory_allocated() == before + 8 * MIB  # includes the memory in use now
    del a
    for _ in range(2):
        cuda.reset_peak_memory_stats()
    assert watched()
    del zeros(2)._mt_data
    assert cuda.memory_stats()["allocated_bytes.all.peak"] == before + 2 * MIB
    assert not watched()


def test_the_peak_of_a_training_step_holds_weights_gradients_and_state():
    mytorch.ones(8, 8, device="cuda") @ mytorch.ones(8, 8, device="cuda")  # takes the workspace of products
    before = cuda.memory_allocated()
    layer = nn.Linear(512, 512, bias=False, device="cuda")
    optimizer = mytorch.optim.AdamW(layer.parameters())
    for _ in range(2):
        layer(mytorch.ones(8, 512, device="cuda")).sum().backward()
        optimizer.step()
    assert cuda.memory_allocated() >= before + 4 * MIB
    optimizer.zero_grad()
    assert before + 3 * MIB <= cuda.memory_allocated() < before + 4 * MIB
    assert cuda.max_memory_allocated() >= before + 4 * MIB


def _leaf():
    return mytorch.zeros(N, device="cuda", requires_grad=True)


def _backward():
    loss = (_leaf() * 2).sum()
    return loss.backward


def _step(optimizer, **options):
    p = nn.Parameter(mytorch.zeros(N, device="cuda"))
    p.grad = mytorch.ones(N, device="cuda")
    return optimizer([p], lr=0.1, **options).step


def _indexed():
    x, i = zeros(1), mytorch.arange(N, device="cuda")
    return lambda: x[i]


def _added():
    x = zeros(1)
    return lambda: x + x


def _array():
    x = zeros(1).data
    return lambda: x * x


def _loaded():
    file = io.BytesIO()
    mytorch.save(zeros(1), file)
    file.seek(0)
    return lambda: mytorch.load(file)


ASKS = {
    "an op": _added, "a factory": lambda: lambda: zeros(1), "random numbers": lambda: lambda: mytorch.randn(N, device="cuda"),
    "a permutation": lambda: lambda: mytorch.randperm(N, device="cuda"), "a copy": lambda: lambda: mytorch.ones(N, device="cpu").to("cuda"),
    "a layer": lambda: lambda: nn.Linear(512, 512, device="cpu").to("cuda"), "an index": _indexed, "an Array": _array, "a file": _loaded, "backward": _backward,
    "SGD's momentum": lambda: _step(mytorch.optim.SGD, momentum=0.9), "AdamW": lambda: _step(mytorch.optim.AdamW),
    "RMSprop": lambda: _step(mytorch.optim.RMSprop), "a growing tensor": lambda: lambda: mytorch.ones(2, device="cuda").resize_(N),
}  # fmt: skip


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_running_out_of_memory_raises_an_error_that_can_be_caught(ask):
    work = ask()
    pool = cupy_ns().get_default_memory_pool()
    cuda.empty_cache()
    pool.set_limit(size=pool.total_bytes() + 4096)
    with pytest.raises(
        cuda.OutOfMemoryError,
        match=r"CUDA out of memory. Out of memory allocating [\d,]+ bytes .*arrays of this process use .*smaller batch",
    ):
        work()
    pool.set_limit(size=0)
    assert (zeros(1) + 1).sum().item() == N
    ask()()


def test_training_goes_on_after_a_batch_that_was_too_large():
    layer = nn.Linear(512, 512, device="cuda")
    optimizer = mytorch.optim.AdamW(layer.parameters())

    def step(rows):
        optimizer.zero_grad()
        loss = layer(mytorch.ones(rows, 512, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    first = step(4)
    cupy_ns().get_default_memory_pool().set_limit(size=cuda.memory_reserved() + 8 * MIB)
    with pytest.raises(cuda.OutOfMemoryError):
        step(1 << 14)
    assert step(4) < first


def test_a_fraction_of_the_memory_is_a_limit():
    _, total = cuda.mem_get_info()
    x = zeros(2)
    cuda.set_per_process_memory_fraction((cuda.memory_reserved() + MIB) / total)
    with pytest.raises(cuda.OutOfMemoryError):
        zeros(4)
    del x
    zeros(2)  # reuses the released memory
    cuda.set_per_process_memory_fraction(1.0)
    zeros(4)
    for fraction in (-0.1, 1.5):
        with pytest.raises(ValueError, match="Invalid fraction value"):
            cuda.set_per_process_memory_fraction(fraction)


def test_the_pool_is_freed_before_a_limit_raises_an_error():
    small = [zeros(1) for _ in range(6)]
    pool = cupy_ns().get_default_memory_pool()
    pool.set_limit(size=pool.total_bytes() + MIB)
    del small
    assert zeros(5).numel() == 5 * N
