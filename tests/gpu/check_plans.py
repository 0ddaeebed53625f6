"""Plan cache and cuBLASLt requests of `kernels/cublas.py`, over the fake libraries. Needs no GPU."""

import gc
import itertools
import json
import sys
import threading
import warnings

import numpy as np
import pytest
from check_products import library, near, rand, xp  # installs the fake libraries

import mytorch
from mytorch import arrays as backend
from mytorch.kernels import cublas, linear, products


@pytest.fixture
def fresh(monkeypatch):
    """No plans yet."""
    cublas._plans.clear()
    gc.collect()


def test_a_plan_is_made_once(fresh):
    a, a64 = rand(30, 20)
    b, b64 = rand(20, 10)
    made, out = (
        library.made,
        xp.empty((30, 10), "float32"),
    )  # a new one might be aligned otherwise, which is another plan
    near(cublas.matmul(a, b, out), a64 @ b64)
    first = library.made
    assert first > made
    assert len(cublas._plans) == 1
    for _ in range(3):
        near(cublas.matmul(a, b, out), a64 @ b64)
    assert library.made == first
    cublas.matmul(a[:7], b)
    assert library.made > first
    assert len(cublas._plans) == 2


def test_plans_are_bounded_and_freed(fresh, monkeypatch):
    monkeypatch.setattr(cublas, "_MOST_PLANS", 5)
    alive = len(library.objects)
    for n in range(1, 30):
        cublas.matmul(*(rand(n, n)[0] for _ in range(2)))
    assert len(cublas._plans) == 5
    assert len(library.objects) - alive == 5 * 5  # an operation, three layouts, a preference each
    cublas._plans.clear()
    assert len(library.objects) == alive


def test_one_handle_and_workspace(fresh):
    a, _ = rand(3, 3)
    cublas.matmul(a, a)
    homes = len(cublas._homes)
    cublas.matmul(a, a.T)
    assert len(cublas._homes) == homes
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        cublas.matmul(a, a)
    assert len(cublas._homes) == homes + 1
    assert sum(thing == "handle" for thing in library.objects.values()) == 1
    assert next(iter(cublas._homes.values()))[2] == 32 << 20


def test_precision_of_float32(fresh):
    a, _ = rand(8, 8)
    compute = []
    settings = mytorch.backends.cuda.matmul
    try:
        for precision in ("highest", "high", "medium"):
            mytorch.set_float32_matmul_precision(precision)
            assert settings.allow_tf32 == (precision != "highest")
            cublas.matmul(a, a)
            compute.append(library.calls[-1][-1])
        settings.allow_tf32 = False
        assert mytorch.get_float32_matmul_precision() == "highest"
        cublas.matmul(a, a)
        settings.allow_tf32 = True
        assert mytorch.get_float32_matmul_precision() == "high"
        cublas.matmul(a.astype(np.float64), a.astype(np.float64))
        assert library.calls[-1][-1] == cublas.COMPUTE_64F
        cublas.matmul(a, a)
    finally:
        settings.allow_tf32 = False
    assert compute == [68, 77, 77]
    assert library.calls[-1][-1] == 77


def test_missing_features_of_the_library(fresh, monkeypatch):
    """The library warns once, and CuPy multiplies."""
    x, x64 = rand(4, 8)
    w, w64 = rand(3, 8)
    monkeypatch.setattr(library, "unsupported", (2,))
    with pytest.raises(
        cublas.Unsupported,
        match=r"no algorithm \(CUBLAS_STATUS_NOT_SUPPORTED, 0 results\) for float32 \(4, 8\) @ \(8, 3\)",
    ):
        cublas.linear(x, w, activation="relu")
    library.why = None
    with pytest.raises(cublas.Unsupported):
        cublas.linear(x, w, activation="relu")
    assert library.why is None  # it was not asked again
    monkeypatch.setattr(library, "unsupported", (1,))
    by_cupy = products.functions(backend.cupy_ns().module)["matmul"]
    with pytest.warns(UserWarning, match=r"no algorithm .* Another library multiplies instead"):
        assert np.allclose(by_cupy(x, w.T).get(), x64 @ w64.T, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_cupy(x, w.T)
    library.why = None


def test_a_status_has_a_name(fresh):
    x, _ = rand(4, 8)
    cublas.matmul(x, x.T)
    plan = next(iter(cublas._plans.values()))
    plan.algorithms[0].algorithm[0] = 7
    with pytest.raises(
        RuntimeError, match=r"cublasLtMatmul returned CUBLAS_STATUS_INVALID_VALUE for float32 \(4, 8\) @ \(8, 4\)"
    ):
        cublas.matmul(x, x.T)
    assert "no algorithm" in library.why
    library.why = None


def test_threads_do_not_mix_their_biases(fresh):
    x, x64 = rand(5, 6)
    w, w64 = rand(7, 6)
    biases = [rand(7) for _ in range(8)]
    wrong = []

    def work(bias, bias64):
        for _ in range(50):
            if not np.allclose(cublas.linear(x, w, bias).get(), x64 @ w64.T + bias64, atol=1e-4):
                wrong.append(bias)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=pair) for pair in biases]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_a_workspace_is_freed_with_its_stream(fresh):
    count = len(cublas._homes)
    x, x64 = rand(4, 8)
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        near(cublas.matmul(x, x.T), x64 @ x64.T)
    gc.collect()
    assert len(cublas._homes) == count + 1
    del stream
    gc.collect()
    assert len(cublas._homes) == count


def test_algorithms_are_measured(fresh, monkeypatch, tmp_path):
    launch = pytest.importorskip("mytorch.kernels.launch")
    monkeypatch.setenv("TRITON_AUTOTUNE_MODE", "medium")
    monkeypatch.setenv("MYTORCH_CACHE_DIR", str(tmp_path))
    times = itertools.cycle([3.0, 1.0, 2.0])

    def measure(call):
        call()
        return next(times)

    tuned = launch.tuned
    monkeypatch.setattr(launch, "tuned", lambda *args: tuned(*args, measure=measure))
    x, x64 = rand(4, 8)
    total, total64 = rand(4, 4)
    cublas.matmul(x, x.T, total, accumulate=True)
    near(total, total64 + x64 @ x64.T)
    cublas.matmul(x, x.T, total)
    near(total, x64 @ x64.T)
    assert library.calls[-1][4] == 1
    (kept,) = json.loads(next(tmp_path.iterdir()).read_text()).values()
    assert kept == {"rank": 1}
    cublas._plans.clear()
    count = len(library.calls)
    cublas.matmul(x, x.T, total)
    assert len(library.calls) - count == 1
    assert library.calls[-1][4] == 1


def test_a_capture_takes_the_algorithm_that_was_kept(fresh, monkeypatch, tmp_path):
    """And the first where none was, without measuring; which the next call outside of a capture makes up for."""
    launch = pytest.importorskip("mytorch.kernels.launch")
    monkeypatch.setenv("TRITON_AUTOTUNE_MODE", "medium")
    monkeypatch.setenv("MYTORCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(launch, "INTERPRET", False)
    monkeypatch.setattr(launch, "_cache_file", lambda: tmp_path / "choices.json")
    monkeypatch.setattr(launch, "_choices", {})
    times = itertools.cycle([3.0, 1.0, 2.0])
    monkeypatch.setattr(launch, "milliseconds", lambda call: (call(), next(times))[1])
    (x, x64), (w, w64) = rand(4, 8), rand(6, 8)
    out, stream = xp.empty((4, 4), np.float32), xp.cuda.Stream(non_blocking=True)
    with stream:
        cublas.matmul(x, x.T, out)
        assert library.calls[-1][4] == 1
        for forgotten in (False, True):  # plans of this process, or from the file of an earlier process
            cublas._plans.clear()
            if forgotten:
                launch._choices.clear()
            count = len(library.calls)
            stream.begin_capture()
            kept, new = cublas.matmul(x, x.T, out), cublas.matmul(x, w.T)
            graph = stream.end_capture()
            assert [call[4] for call in library.calls[count:]] == [1, 0]
            graph.launch(stream)
            stream.synchronize()
            near(kept, x64 @ x64.T)
            near(new, x64 @ w64.T)
        count = len(library.calls)
        cublas.matmul(x, w.T)
        assert len(library.calls) - count == 4  # three were measured
        assert library.calls[-1][4] == 1


@pytest.mark.parametrize("way", ["one kernel", "two kernels"])
def test_ways_to_sum_the_gradient_of_a_bias(way, monkeypatch):
    launch = pytest.importorskip("mytorch.kernels.launch")
    monkeypatch.setenv("TRITON_AUTOTUNE_MODE", "medium")
    monkeypatch.setattr(launch, "tuned", lambda kernel, key, candidates, attempt: {"way": way, "rank": 0})
    (x, x64), (w, w64), (g, g64) = rand(5, 7, 16), rand(24, 16), rand(5, 7, 24)
    gx, gw, gb = linear.backward(backend.cupy_ns(), g, x, w, (True, True, True))
    near(gx, g64 @ w64)
    near(gw, np.einsum("bto,bti->oi", g64, x64))
    near(gb, g64.sum((0, 1)))
    assert linear.backward(backend.cupy_ns(), g, x, w, (False, False, True))[:2] == (None, None)
    gx, gw, gb = linear.backward(backend.cupy_ns(), g[:, :0], x[:, :0], w, (True, True, True))
    assert gx.shape == (5, 0, 16)
    near(gw, np.zeros((24, 16)))
    near(gb, np.zeros(24))


@pytest.mark.parametrize("word", ["cupy", "cublaslt", None, "mkl"])
def test_choice_of_the_library(word, monkeypatch):
    monkeypatch.setenv("MYTORCH_GEMM", word) if word else monkeypatch.delenv("MYTORCH_GEMM", raising=False)
    if word == "mkl":
        with pytest.raises(ValueError, match="MYTORCH_GEMM is 'mkl'"):
            products.functions(backend.cupy_ns().module)
        return
    names = products.functions(backend.cupy_ns().module)
    x, x64 = rand(4, 8)
    count = len(library.calls)
    near(names["matmul"](x, x.T), x64 @ x64.T)
    near(names["dot"](x[0], x[1]), np.asarray(x64[0] @ x64[1]))
    near(names["einsum"]("ij,kj->ik", x, x), x64 @ x64.T)
    assert len(library.calls) - count == (0 if word == "cupy" else 3)
    assert names["matmul"](xp.ones((2, 2), np.int64), xp.ones((2, 2), np.int64)).dtype == np.int64


def test_without_the_library(monkeypatch):
    monkeypatch.delenv("MYTORCH_GEMM", raising=False)
    x, x64 = rand(4, 8)

    def missing(*args):
        raise mytorch.arrays.errors.DeviceError("cuBLASLt can't be loaded.")

    monkeypatch.setattr(cublas, "matmul", missing)
    names = products.functions(backend.cupy_ns().module)
    with pytest.warns(UserWarning, match="CuPy multiplies matrices instead"):
        near(names["matmul"](x, x.T), x64 @ x64.T)
    near(names["matmul"](x, x.T), x64 @ x64.T)
    monkeypatch.setenv("MYTORCH_GEMM", "cublaslt")
    with pytest.raises(mytorch.arrays.errors.DeviceError):
        products.functions(backend.cupy_ns().module)["matmul"](x, x.T)


def test_a_capture_without_the_library(monkeypatch):
    """Triton multiplies, as CuPy's own products refuse."""
    pytest.importorskip("triton")
    monkeypatch.delenv("MYTORCH_GEMM", raising=False)
    (x, x64), (w, w64) = rand(2, 4, 8), rand(8, 5)

    def missing(*args):
        raise mytorch.arrays.errors.DeviceError("cuBLASLt can't be loaded.")

    monkeypatch.setattr(cublas, "matmul", missing)
    matmul = products.functions(backend.cupy_ns().module)["matmul"]
    with pytest.warns(UserWarning, match="CuPy multiplies matrices instead"):
        matmul(x, w)
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        out = matmul(x, w)
        graph = stream.end_capture()
        x *= 3
        graph.launch(stream)
    near(out, 3 * x64 @ w64)
