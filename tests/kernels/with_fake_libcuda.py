"""Launches through Triton's own driver and launcher over a libcuda that runs nothing (test_launch.py starts it)."""

import ctypes
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import triton
import triton.language as tl
from triton._C.libtriton import native_specialize_impl
from triton.backends.nvidia.compiler import CUDABackend

from mytorch.kernels import launch as home

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
import fake_cupy  # noqa: E402

cp = fake_cupy.install()
library = ctypes.CDLL(os.environ["TRITON_LIBCUDA_PATH"] + "/libcuda.so.1")
launches, wanted = (ctypes.c_int.in_dll(library, name) for name in ("launches", "wanted"))
parameters = (ctypes.c_uint64 * 64).in_dll(library, "parameters")


@triton.jit(do_not_specialize=["call"])
def mixed(x, out, hint, n, stride, call, eps, BLOCK: tl.constexpr, ADD: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i * stride, i < n, 0).to(tl.float32) * eps + call
    if hint is not None:
        value += tl.load(hint)
    tl.store(out + i, value + 1 if ADD else value, i < n)


def note(number):
    """Returns the arguments of the last launch in libcuda: (name, grid, threads, stream, first parameters)."""
    grid = tuple((ctypes.c_uint * 3).in_dll(library, "grid"))
    threads = ctypes.c_uint.in_dll(library, "threads").value
    stream = ctypes.c_uint64.in_dll(library, "stream").value
    return (
        (ctypes.c_char * 512).in_dll(library, "name").value.decode(),
        grid,
        threads,
        stream,
        list(parameters[:number]),
    )


def as_float(bits):
    return np.array(bits & 0xFFFFFFFF, np.uint32).view(np.float32).item()


def check(x, out, hint, n, stride, call, eps, expected, times=3):
    """Every launch passes the same non-constant arguments to libcuda, with the JIT and without it."""
    wanted.value = len(expected)
    for turn in range(times):
        before = launches.value
        home.launch(mixed, (5, 2), x, out, hint, n, stride, call, eps, BLOCK=64, ADD=True, num_warps=2)
        assert launches.value == before + 1
        called, grid, threads, stream, got = note(len(expected))
        assert (called, grid, threads, stream) == ("mixed", (5, 2, 1), 64, cp.cuda.get_current_stream().ptr), (
            called,
            grid,
            threads,
            stream,
        )
        for bits, (kind, value) in zip(got, expected, strict=True):
            seen = (
                bits
                if kind == "i64"
                else as_float(bits)
                if kind == "f32"
                else np.uint32(bits & 0xFFFFFFFF).view(np.int32).item()
            )
            assert seen == value, (turn, kind, seen, value)


def specialised_as_triton_does(array):
    """Values that need another specialization in Triton never run with a kernel compiled for other values."""
    integers = [0, 1, -1, 2, 15, 16, 17, -16, 2**31 - 1, 2**31, 2**31 + 1, -(2**31), -(2**31) - 1, 2**40, 2**40 + 3]
    arrays = [array[offset:] for offset in (0, 1, 2, 4, 8)]
    arrays += [array.astype(dtype) for dtype in (np.float16, np.int64, np.uint8, np.bool_)]
    seen = {}
    for x, n in [(array, n) for n in integers] + [(x, 7) for x in arrays]:
        kernel = Noted()
        home.launch(kernel, (1,), x, n, BLOCK=64)
        ((key, _),) = home._compiled.pop(id(kernel)).items()
        seen.setdefault(key, set()).add((_triton_says(home.Pointer(x)), _triton_says(n)))
    assert all(len(says) == 1 for says in seen.values()), seen


class Noted:
    """A kernel that compiles nothing."""

    arg_names = ("x", "n", "BLOCK")

    def __getitem__(self, grid):
        return lambda *args, **options: SimpleNamespace(run=None, function=None, packed_metadata=None)


def _triton_says(argument):
    return native_specialize_impl(CUDABackend, argument, False, True, True)


def main():
    array = cp.zeros(4096, np.float32)
    half, odd = cp.zeros(4096, np.float16), array[1:]
    at = {name: ("i64", a.data.ptr) for name, a in (("array", array), ("half", half), ("odd", odd))}
    for stream in (cp.cuda.Stream.null, cp.cuda.Stream(non_blocking=True)):
        with stream:
            check(array, half, None, 48, 1, 7, 0.5, [at["array"], at["half"], ("i32", 48), ("i32", 7), ("f32", 0.5)])
            check(
                array,
                half,
                None,
                64,
                3,
                1,
                0.25,
                [at["array"], at["half"], ("i32", 64), ("i32", 3), ("i32", 1), ("f32", 0.25)],
            )
            check(
                half,
                array,
                array,
                49,
                16,
                32,
                0.5,
                [at["half"], at["array"], at["array"], ("i32", 49), ("i32", 16), ("i32", 32), ("f32", 0.5)],
            )
            check(odd, array, None, 1, 1, 5, 2.0, [at["odd"], at["array"], ("i32", 5), ("f32", 2.0)])
            check(
                array,
                odd,
                None,
                1 << 33,
                1,
                -3,
                2.0,
                [at["array"], at["odd"], ("i64", 1 << 33), ("i32", -3), ("f32", 2.0)],
            )
    specialised_as_triton_does(array)
    assert home.why_not() is None
    assert "torch" not in sys.modules
    print(triton.__version__, launches.value, "launches")


if __name__ == "__main__":
    main()
