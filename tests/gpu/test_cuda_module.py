"""mytorch.cuda over the fake CuPy in a separate process, or on a GPU."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mytorch import cuda
from mytorch.arrays import capturing
from mytorch.arrays.config import temporarily

LINES = """
import mytorch
from mytorch import cuda
assert cuda.is_available() and cuda.device_count() >= 1
s, t = cuda.Stream(), cuda.current_stream()
assert s.device.type == "cuda" and t == cuda.current_stream()
with cuda.stream(s):
    x = mytorch.ones(4, device="cuda") * 2
event = s.record_event()
t.wait_event(event)
t.wait_stream(s)
event.synchronize()
assert event.query() and s.query()
start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
start.record(); end.record(); end.synchronize()
assert start.elapsed_time(end) >= 0
assert x.tolist() == [2.0] * 4
cuda.reset_peak_memory_stats()
assert cuda.max_memory_allocated() >= cuda.memory_allocated() >= 0
assert cuda.memory_reserved() >= 0 and len(cuda.mem_get_info()) == 2
assert "allocated_bytes.all.peak" in cuda.memory_stats() and "MiB" in cuda.memory_summary()
cuda.empty_cache()
p = cuda.get_device_properties(0)
assert p.total_memory > 0 and p.name and cuda.is_bf16_supported()
cuda.manual_seed_all(3)
cuda.synchronize()
y = mytorch.randn(3, 3, device="cuda")
assert y.is_cuda and y.cpu().device.type == "cpu" and y.to("cpu").cuda().is_cuda
assert y.pin_memory is not None
with cuda.device_of(y), cuda.nvtx.range("step {}", 3):
    cuda.nvtx.mark("here")
cuda.nvtx.range_push("outer"); cuda.nvtx.range_pop()
assert cuda.can_device_access_peer(0, 0) in (True, False)
a = y.__cuda_array_interface__
assert a["shape"] == (3, 3)
"""
STREAMS = """
import mytorch
from mytorch import cuda
x, first, second = mytorch.ones(4, 3, 5, device="cuda"), cuda.Stream(), cuda.Stream()
before = cuda.current_stream()
with cuda.stream(first):
    x[:, :, 1].T.cpu(), x[::2, 1].tolist(), repr(x[:, 1, ::2]), x.permute(2, 0, 1).numpy(force=True)
    assert cuda.current_stream() == first
    with cuda.stream(second):
        x[::2, 1].cpu()
        assert cuda.current_stream() == second
    assert cuda.current_stream() == first
assert cuda.current_stream() == before
cuda.set_stream(first)
with cuda.stream(second):
    assert cuda.current_stream() == second
assert cuda.current_stream() == first
x[::2, 1].cpu()
assert cuda.current_stream() == first
"""
INDICES = """
import os
os.environ["MYTORCH_CHECK_INDICES"] = "1"
import mytorch
from mytorch.nn import functional as F
x, table = mytorch.randn(3, 5, device="cuda"), mytorch.randn(4, 2, device="cuda")
wrong, good = (mytorch.tensor(v, device="cuda") for v in ([1, 7, 0], [1, -100, 0]))
for name, call in {
    "Target 7 is out of bounds for 5 classes": lambda: F.cross_entropy(x, wrong),
    "index out of range in self: index 7 is out of range for 4 rows": lambda: F.embedding(wrong, table),
    "index 7 is out of bounds for dimension 1": lambda: x.gather(1, wrong[:, None]),
    "expected values from 0 to 4": lambda: x.index_select(1, wrong),
    "Target 7 is out of bounds for 4 classes": lambda: F.linear_cross_entropy(x[:, :2], table, wrong),
}.items():
    try:
        call()
    except (IndexError, RuntimeError) as error:
        assert name in str(error), error
    else:
        raise SystemExit(f"no error: {name}")
assert F.cross_entropy(x, good).item() > 0
"""
OUT_OF_MEMORY = """
import cupy
def full(*args, **kwargs):
    raise cupy.cuda.memory.OutOfMemoryError(4000000, 0)
import mytorch
x = mytorch.ones(3, device="cuda")
from mytorch import backend
backend.cupy_ns().multiply = backend.cupy_ns().zeros = full
for f in (lambda: x * x, lambda: mytorch.zeros(1000, 1000, device="cuda")):
    try:
        f()
    except mytorch.cuda.OutOfMemoryError as error:
        assert "4,000,000 bytes" in str(error) and "GiB are free" in str(error) and "smaller batch" in str(error)
    else:
        raise SystemExit("no error")
"""


PARTS = """
import importlib.util
from mytorch.cli import env
parts = env.parts()
assert list(parts) == ["Driver", "CuPy", "Triton", "cuBLASLt", "cuDNN", "NCCL"], parts
assert parts["Driver"].startswith("works: CUDA driver 13000")
assert parts["CuPy"].startswith("works: 14")
assert parts["cuBLASLt"].startswith("does not work: ")  # its fake is not installed
assert parts["NCCL"].startswith("does not work: distributed: expected CuPy with NCCL")
if importlib.util.find_spec("triton") is None:
    assert parts["Triton"] == "does not work: Triton is not installed"
env._cudnn = lambda: 1 / 0
assert env.parts()["cuDNN"] == "does not work: division by zero"
lines = dict(env._gpus())
assert lines["CuPy"] == parts["CuPy"] and lines["GPU 0"].startswith("fake, 128.0 GiB")
"""


def _run(lines):
    install = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import fake_cupy; fake_cupy.install()\n"
    return subprocess.run([sys.executable, "-c", install + lines], capture_output=True, text=True)


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "lines",
    [LINES, STREAMS, INDICES, OUT_OF_MEMORY, PARTS],
    ids=["module", "streams stay current", "indices", "out_of_memory", "parts of the software"],
)
def test_over_the_fake_cupy(lines):
    done = _run(lines)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("lines", [LINES, STREAMS, INDICES], ids=["module", "streams stay current", "indices"])
def test_on_a_gpu(lines):
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr


def test_without_a_gpu_nothing_is_in_use():
    import mytorch

    if mytorch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert mytorch.cuda.memory_allocated() == mytorch.cuda.max_memory_allocated() == 0
    mytorch.cuda.empty_cache()
    with pytest.raises(RuntimeError, match="CuPy is not installed"):
        mytorch.cuda.Stream()


def test_another_thread_is_not_captured():
    """A relaxed capture records one stream of one thread. A thread that loads batches meanwhile must not notice it."""
    seen = []

    def load():
        capturing.refuse("a copy from the CPU", "do it before.")
        generator = object()
        capturing.note_draw(generator)
        seen.append((capturing.is_recording(), generator in capturing.current.generators))

    with temporarily(capturing, current=capturing.Capture(recording=True)):
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
        assert capturing.is_recording()
    assert seen == [(False, False)]


def test_events_of_several_processes_have_no_timing():
    with pytest.raises(ValueError, match="Event: expected enable_timing=False"):
        cuda.Event(enable_timing=True, interprocess=True)
