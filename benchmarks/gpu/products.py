"""Sections `products` and `blocks`: matrix multiplication by each library, and attention with other block sizes."""

import math

from .measure import cupy_timer, floor_of, host_time
from .sizes import BATCHED, CLASSES, HEADS, ROWS, SQUARE, WIDTH


def products(report, interpret):
    """Measure matrix multiplication at the sizes of GPT-2 in each library.

    The results are compared with float64. The section also checks captures and measures the CPU time of a call.
    """
    import cupy as cp
    import ml_dtypes

    from mytorch.arrays import cupy_ns
    from mytorch.kernels import cublas
    from mytorch.kernels.triton import matmul as by_triton

    xp, milliseconds = cupy_ns(), cupy_timer()
    ways = {"cuBLASLt": cublas.matmul, "CuPy": cp.matmul, "Triton": lambda a, b: by_triton.product(xp, a, b)}
    types_of = {"bf16": ml_dtypes.bfloat16, "fp16": cp.float16, "fp32": cp.float32}

    def rand(*shape, dtype="bf16"):
        return cp.random.standard_normal(shape, dtype=cp.float32).astype(types_of[dtype])

    def right(got, a, b, dtype):
        """Compare some rows and columns with float64, with a tolerance for rounding of the sums."""
        rows, columns = (cp.arange(0, n, max(n // 64, 1)) for n in got.shape[-2:])
        wide = a[..., rows, :].astype(cp.float64), b[..., columns].astype(cp.float64)
        error = cp.abs(got[..., rows, :][..., columns] - cp.matmul(*wide)).max()
        bound = {"bf16": 8e-3, "fp16": 1e-3, "fp32": 1e-5}[dtype] * float(cp.abs(got).max().astype(cp.float64))
        assert float(error) <= bound, f"error {float(error):.3g} above {bound:.3g}"

    def compare(label, a, b, dtype="bf16", names=tuple(ways)):
        flops = 2 * math.prod(a.shape) * b.shape[-1]

        def run(way):
            right(way(a, b), a, b, dtype)
            ms = milliseconds(lambda: way(a, b))
            return {
                "ms": ms,
                "floor": floor_of(flops=flops, kind="fp32" if dtype == "fp32" else "bf16"),
                "TFLOP/s": flops / ms / 1e9,
            }

        for name in names:
            report.attempt(f"{label} ({name})", lambda way=ways[name]: run(way))

    def layer(n, k):
        x, w, g = rand(ROWS, k), rand(n, k), rand(ROWS, n)
        compare(f"x Wᵀ {k}->{n}", x, w.T)
        compare(f"g W {k}->{n}", g, w)
        compare(f"gᵀ x {k}->{n}", g.T, x)
        b = rand(n)
        flops = 2 * ROWS * n * k
        for name, call in (
            ("linear with bias", lambda: cublas.linear(x, w, b)), ("linear with bias and GELU", lambda: cublas.linear(x, w, b, activation="gelu_tanh", before=True)),
            ("gradients of weight and bias", lambda: cublas.weight_gradients(g, x)),
            ("g W with GELU's slope", lambda: cublas.gelu_gradients(g, w, x)),
            ("g W with GELU's slope and its sums", lambda: cublas.gelu_gradients(g, w, x, True)),
        ):  # fmt: skip
            report.attempt(
                f"{name} {k}->{n} (cuBLASLt)",
                lambda call=call: {"ms": milliseconds(call), "floor": floor_of(flops=flops)},
            )

    for n, k in ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (CLASSES, WIDTH)):
        report.group(f"layer {k}->{n}", lambda n=n, k=k: layer(n, k))

    def others():
        q, k = rand(*BATCHED), rand(*BATCHED)
        compare("q kᵀ 384x1024x64", q, k.swapaxes(1, 2))
        heads = rand(HEADS[0], HEADS[2], HEADS[1], HEADS[3]).swapaxes(1, 2)
        compare("q kᵀ (32,12,1024,64) views", heads, heads.swapaxes(2, 3), names=("cuBLASLt", "CuPy"))
        for dtype in ("fp16", "fp32"):
            a = rand(SQUARE, SQUARE, dtype=dtype)
            compare(f"8192³ {dtype}", a, a, dtype, ("cuBLASLt", "CuPy"))

    report.group("batches, other dtypes", others)

    def captured():
        """Check that the replay of a captured multiplication uses the current contents of its operands."""
        stream = cp.cuda.Stream(non_blocking=True)
        a, b, bias = rand(256, 512), rand(512, 384), rand(384)
        with stream:
            out = cublas.matmul(a, b)
            second = cublas.linear(a, b.T, bias)
            stream.synchronize()
            stream.begin_capture()
            cublas.matmul(a, b, out)
            second = cublas.linear(a, b.T, bias)
            graph = stream.end_capture()
            a[...] = rand(256, 512)
            graph.launch(stream)
            stream.synchronize()
            right(out, a, b, "bf16")
            right(second - bias, a, b, "bf16")
        return {}

    report.attempt("products captured into a graph", captured)

    a, b = rand(64, 64), rand(64, 64)
    for name, way in ways.items():
        report.attempt(f"host time of a small product ({name})", lambda way=way: host_time(cp, lambda: way(a, b)))


def blocks(report, interpret):
    """Measure attention at the size of GPT-2 with each block size of TRITON_FLASH_AUTOTUNE_MODE=medium."""
    import cupy as cp
    import ml_dtypes

    from mytorch.arrays import cupy_ns
    from mytorch.kernels.triton import attention

    xp, milliseconds, candidates = cupy_ns(), cupy_timer(), attention._candidates
    q, k, v, g = (cp.random.standard_normal(HEADS, dtype=cp.float32).astype(ml_dtypes.bfloat16) for _ in range(4))
    out, lse = attention.run_forward(xp, q, k, v, causal=True)
    calls = {
        "forward": lambda: attention.run_forward(xp, q, k, v, causal=True),
        "queries": lambda: attention.run_backward(
            xp, g, q, k, v, out, lse, causal=True, needs=(True, False, False, False)
        ),
        "keys": lambda: attention.run_backward(
            xp, g, q, k, v, out, lse, causal=True, needs=(False, True, True, False)
        ),  # includes the kernel for delta
    }
    for turn in range(5):
        for name, call in calls.items():
            known = candidates(name, HEADS[3], False)
            several = [*known["none"], *known["medium"]]
            if turn < len(several):
                options = several[turn]

                def run(name=name, call=call, options=options, default=turn == 0):
                    attention._candidates = lambda kernel, *rest: (
                        {"none": [options]} if kernel == name else candidates(kernel, *rest)
                    )
                    return {
                        "kernel": f"attention {name}",
                        "options": str(options),
                        "default": default,
                        "ms": milliseconds(call),
                    }

                report.attempt(f"{name} {options}", run)
