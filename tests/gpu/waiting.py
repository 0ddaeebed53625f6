"""`no_sync` for the fake CuPy, and for a GPU: code within the block must not wait for the GPU."""

import contextlib
import sys

fake = sys.modules.get("fake_cupy")
CYCLES = 3_000_000_000  # about 1.5 s on an H100, much more than the CPU needs for a small step
SPIN = """
extern "C" __global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""


class HiddenWait(AssertionError):
    """The CPU waited for the GPU within `no_sync`."""


if fake is not None:
    no_sync, HiddenWait = fake.no_sync, fake.HiddenWait
else:

    @contextlib.contextmanager
    def no_sync():
        """Keeps the GPU busy. If the CPU is at the end of the block before the GPU, nothing in the block has waited.

        The code must have run before, because the first call of a kernel compiles and loads it.
        """
        import cupy

        spin = cupy.RawKernel(SPIN, "spin")
        spin((1,), (1,), (0,))
        cupy.cuda.Device().synchronize()
        spin((1,), (1,), (CYCLES,))
        busy = cupy.cuda.get_current_stream().record()
        yield
        waited = busy.done
        cupy.cuda.Device().synchronize()
        if waited:
            raise HiddenWait("the GPU had finished, so something has waited for it")
