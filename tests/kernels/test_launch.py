"""The arguments that `launch` passes to a compiled kernel, and the stored choices of tuning. Needs no GPU."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("triton")

from mytorch.arrays import numpy_ns
from mytorch.kernels import launch as home
from mytorch.kernels.registry import LazyKernel


class Array:
    """The attributes of a CuPy array that `launch` reads."""

    def __init__(self, address, dtype):
        self.data = SimpleNamespace(ptr=address)
        self.dtype = np.dtype(dtype)


class Kernel:
    """A fake JITFunction that records its arguments and returns a fake compiled kernel."""

    arg_names = ("x_ptr", "out_ptr", "n", "eps", "BLOCK", "FLAG")

    def __init__(self):
        self.compiled = []
        self.started = []

    def __getitem__(self, grid):
        def run(*args, **options):
            self.compiled.append((grid, args, options))
            return SimpleNamespace(
                run=lambda *a: self.started.append(a), function="function", packed_metadata="metadata"
            )

        return run


@pytest.fixture
def card(monkeypatch):
    """A device 0 with stream 77, on which nothing is interpreted."""
    monkeypatch.setattr(home, "INTERPRET", False)
    monkeypatch.setattr(home, "_compiled", {})
    monkeypatch.setattr(home, "_device", lambda: 0)
    monkeypatch.setattr(home, "_stream", lambda: SimpleNamespace(ptr=77))


def test_later_launches_go_straight_to_the_compiled_kernel(card):
    kernel = Kernel()
    x, out = Array(1024, np.float16), Array(2048, np.float32)
    home.launch(kernel, (3,), x, out, 48, 0.5, BLOCK=64, FLAG=True, num_warps=4)
    grid, args, options = kernel.compiled[0]
    assert grid == (3,)
    assert [a.dtype for a in args[:2]] == ["fp16", "fp32"]
    assert [a.data_ptr() for a in args[:2]] == [1024, 2048]
    assert args[2:] == (48, 0.5)
    assert options == {"BLOCK": 64, "FLAG": True, "num_warps": 4}
    home.launch(kernel, (5, 2), Array(4096, np.float16), out, 64, 0.25, BLOCK=64, FLAG=True, num_warps=4)
    assert len(kernel.compiled) == 1
    assert kernel.started == [(5, 2, 1, 77, "function", "metadata", None, None, None, 4096, 2048, 64, 0.25, 64, True)]
    home.launch(kernel, (0,), x, out, 48, 0.5, BLOCK=64, FLAG=True, num_warps=4)
    assert len(kernel.started) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"x": Array(1028, np.float16)},
        {"x": Array(1024, np.float32)},
        {"x": None},
        {"n": 1},
        {"n": 49},
        {"n": 1 << 33},
        {"BLOCK": 128},
    ],
)
def test_values_that_triton_specializes_on_are_compiled_again(card, change):
    kernel = Kernel()
    base = {"x": Array(1024, np.float16), "n": 48, "BLOCK": 64}
    for values in (base, base | change, base, base | change):
        home.launch(
            kernel, (1,), values["x"], Array(2048, np.float32), values["n"], 0.5, BLOCK=values["BLOCK"], FLAG=False
        )
    assert len(kernel.compiled) == 2
    assert len(kernel.started) == 2


def test_numbers_of_numpy_are_numbers(card):
    kernel = Kernel()
    x, out = Array(1024, np.float16), Array(2048, np.float32)
    for n, eps in ((48, 0.5), (np.int64(48), np.float32(0.5)), (np.int32(48), np.float64(0.5))):
        home.launch(kernel, (1,), x, out, n, eps, BLOCK=64, FLAG=True)
    assert len(kernel.compiled) == 1
    assert kernel.started[0] == kernel.started[1]
    assert [type(v) for v in kernel.started[1][-4:-2]] == [int, float]
    with pytest.raises(TypeError, match="it was given ndarray"):
        home.launch(kernel, (1,), np.zeros(3), out, 48, 0.5, BLOCK=64, FLAG=True)


def test_a_dtype_that_triton_lacks():
    with pytest.raises(TypeError, match="no dtype for complex64"):
        home.type_name(np.dtype(np.complex64))


def kernel_of_this_file():
    """The kernel whose source identifies the stored choices."""


CANDIDATES = {"none": [{"B": 1}], "medium": [{"B": 2}, {"B": 3}], "max": [{"B": 4}]}
TIMES = {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0}


def choose(monkeypatch, mode, broken=(), key=("fp32", 8)):
    """Returns (the choice, the tried options) of `tuned` with an empty cache, as in a new process."""
    monkeypatch.setenv("TRITON_FLASH_AUTOTUNE_MODE", mode)
    monkeypatch.setattr(home, "INTERPRET", True)
    monkeypatch.setattr(home, "_choices", {})
    tried = []

    def attempt(candidate):
        if candidate["B"] in broken:
            raise RuntimeError("too much shared memory")
        tried.append(candidate["B"])

    def measure(call):
        call()
        return TIMES[tried[-1]]

    found = home.tuned(kernel_of_this_file, key, CANDIDATES, attempt, "TRITON_FLASH_AUTOTUNE_MODE", measure)
    return found["B"], tried


def test_tuning_keeps_its_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("MYTORCH_CACHE_DIR", str(tmp_path))
    assert choose(monkeypatch, "none") == (1, [])
    assert choose(monkeypatch, "medium") == (3, [1, 2, 3])
    assert choose(monkeypatch, "medium") == (3, [])  # from the file
    assert choose(monkeypatch, "max") == (4, [1, 2, 3, 4])
    assert choose(monkeypatch, "medium", broken=(3,), key=("fp32", 16)) == (2, [1, 2])
    (file,) = tmp_path.iterdir()
    assert len(json.loads(file.read_text())) == 3
    file.write_text("{not json")
    assert choose(monkeypatch, "medium") == (3, [1, 2, 3])
    with pytest.raises(RuntimeError, match="none of 3 candidates"):
        choose(monkeypatch, "medium", broken=(1, 2, 3), key=("fp32", 32))
    with pytest.raises(ValueError, match="takes one of none, medium, max"):
        choose(monkeypatch, "some")


def test_a_capture_uses_measured_choices_and_measures_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("MYTORCH_CACHE_DIR", str(tmp_path))
    assert choose(monkeypatch, "medium") == (3, [1, 2, 3])
    monkeypatch.setattr(home, "is_capturing", lambda: True)
    assert choose(monkeypatch, "medium") == (3, [])
    assert choose(monkeypatch, "medium", key=("fp32", 16)) == (1, [])
    monkeypatch.setattr(home, "is_capturing", lambda: False)
    assert choose(monkeypatch, "medium", key=("fp32", 16)) == (3, [1, 2, 3])  # the default was not kept as a choice


def test_tritons_native_code_does_not_import_pytorch(monkeypatch):
    """Triton 3.6 imports the class Tensor from torch only once."""
    found = []

    def specialize(backend, value, *options):
        found.append(importlib.import_module("torch").Tensor)

    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    native = importlib.import_module("triton._C.libtriton")
    monkeypatch.setattr(native, "native_specialize_impl", specialize)
    home._spare_pytorch()
    assert "torch" not in sys.modules
    assert len(found) == 1
    assert found[0].__module__ != "torch"
    monkeypatch.setitem(sys.modules, "torch", sys)
    home._spare_pytorch()  # it is there already: Triton may have it
    assert len(found) == 1
    assert sys.modules["torch"] is sys


def test_the_chunks_of_the_last_layer_are_chosen_by_measuring(monkeypatch, tmp_path):
    last = importlib.import_module("mytorch.kernels.triton.linear_cross_entropy")
    monkeypatch.setenv("MYTORCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(home, "INTERPRET", True)
    tried, half = [], np.dtype(np.float16)
    quicker = lambda *args: home.tuned(*args, measure=lambda call: [call(), -tried[-1]][1])  # noqa: E731
    monkeypatch.setattr(last, "tuned", quicker)
    monkeypatch.setenv("TRITON_AUTOTUNE_MODE", "none")
    assert last.chosen_chunk(32768, 50304, 768, half, tried.append) == 8192
    monkeypatch.setenv("TRITON_AUTOTUNE_MODE", "medium")
    assert last.chosen_chunk(32768, 50304, 768, half, tried.append) == 16384
    assert last.chosen_chunk(1000, 50304, 768, half, tried.append) == 1000
    assert tried == [8192, 16384]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_cudnns_setting_chooses_the_precision_of_convolutions(monkeypatch, dtype):
    """TF32 by default, as in PyTorch; exact products run on the plain cores, by other tiles."""
    conv = importlib.import_module("mytorch.kernels.triton.conv")
    settings, started = importlib.import_module("mytorch").backends.cudnn, []
    monkeypatch.setattr(conv, "launch", lambda kernel, grid, *args, **options: started.append(options))
    x, w = np.zeros((2, 3, 9, 7), dtype), np.zeros((5, 3, 3, 3), dtype)
    monkeypatch.setattr(conv.config, "convolution_tf32", True)
    for allowed in (True, False):
        settings.allow_tf32 = allowed
        assert settings.allow_tf32 is allowed
        conv.run_forward(numpy_ns, x, w, None, (1, 1), (0, 0), (1, 1), 1)
        conv.run_input(numpy_ns, np.zeros((2, 5, 7, 5), dtype), w, (9, 7), (1, 1), (0, 0), (1, 1), 1)
    exact = dtype == np.float32
    assert [o["PRECISION"] for o in started] == ["tf32"] * 2 + ["ieee" if exact else "tf32"] * 2
    assert (started[0]["BM"] != started[2]["BM"]) == exact


def test_attention_multiplies_float32_on_the_tensor_cores(monkeypatch):
    attention = importlib.import_module("mytorch.kernels.triton.attention")
    monkeypatch.setattr(attention.config, "float32_matmul_precision", "highest")
    assert attention._precision(True) == "tf32x3"
    monkeypatch.setattr(attention.config, "float32_matmul_precision", "high")
    assert attention._precision(True) == "tf32"


def test_without_a_driver_ops_run_without_kernels(monkeypatch):
    def broken():
        raise OSError("gcc is missing")

    for name, value in (("INTERPRET", False), ("_device", None), ("_trouble", None), ("start", broken)):
        monkeypatch.setattr(home, name, value)
    kernel = LazyKernel("mytorch.kernels.triton.activation:gelu", "cuda")
    with pytest.warns(UserWarning, match="gcc is missing"):
        assert kernel.load() is None
    assert "gcc is missing" in kernel.problem
    assert home.why_not() == kernel.problem


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_through_tritons_own_driver(tmp_path):
    """Compiled for an H200 and given to a libcuda that runs nothing: the arguments arrive as Triton's JIT hands them over."""
    import triton

    here = Path(__file__).parent
    include = Path(triton.__file__).parent / "backends/nvidia/include"
    library = [
        "gcc",
        "-shared",
        "-fPIC",
        "-I",
        include,
        "-Wl,-soname,libcuda.so.1",
        "-o",
        tmp_path / "libcuda.so.1",
        here / "fake_libcuda.c",
    ]
    subprocess.run(library, check=True, capture_output=True)
    path = os.pathsep.join([str(here.parents[1]), str(Path(triton.__file__).parents[1])])
    paths = {"TRITON_LIBCUDA_PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": path}
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", here / "with_fake_libcuda.py"], capture_output=True, text=True,
        env={**environment, **paths, "TRITON_CACHE_DIR": str(tmp_path / "cache")}, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "30 launches" in done.stdout
