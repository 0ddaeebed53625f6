"""Sections `kernels` and `kernels-more`: each Triton kernel at the sizes of GPT-2 124M."""

from .measure import cupy_timer, floor_of, host_time
from .sizes import CLASSES, CONV, GROUPED, HEADS, LONG, LOSSES, ROWS, WIDTH, parameters


def kernels(report, interpret):
    """Measure the kernels of a training step: attention, softmax, norms, cross-entropy, AdamW, convolution."""
    _measure(report, main=True)


def more_kernels(report, interpret):
    """Measure all other kernels."""
    _measure(report, main=False)


def _measure(report, main):
    """Measure kernels at the sizes of GPT-2 124M, and report their lower bounds."""
    import cupy as cp
    import ml_dtypes
    import numpy as np

    from mytorch.arrays import config, cupy_ns
    from mytorch.arrays.dtypes import bfloat16
    from mytorch.kernels import registry
    from mytorch.kernels.triton import (
        activation,
        conv,
        cross_entropy,
        dropout,
        embedding,
        linear_cross_entropy,
        losses,
        matmul,
        multi,
        norm,
        rotary,
        softmax,
    )
    from mytorch.kernels.triton import attention as flash

    xp = cupy_ns()
    milliseconds = cupy_timer()
    types_of = {"fp32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}

    def rand(*shape, dtype="bf16"):
        return cp.random.standard_normal(shape, dtype=cp.float32).astype(types_of[dtype])

    def timed(name, call, **floor):
        report.attempt(name, lambda: {"ms": milliseconds(call), "floor": floor_of(**floor)})

    def row_kernels(dtype, size):
        x, g = rand(ROWS, WIDTH, dtype=dtype), rand(ROWS, WIDTH, dtype=dtype)
        w, b = rand(WIDTH, dtype="fp32"), rand(WIDTH, dtype="fp32")
        n = x.size * size
        out = softmax.softmax.forward(xp, x, dim=1)
        timed(f"softmax forward {dtype}", lambda: softmax.softmax.forward(xp, x, dim=1), bytes_moved=2 * n)
        timed(f"softmax backward {dtype}", lambda: softmax.softmax.vjp(g, out, 1, (x.dtype,), xp), bytes_moved=3 * n)
        _, mean, rstd = norm.layer_norm.forward(xp, x, w, b, width=WIDTH)
        shapes = [x.shape, w.shape, b.shape]
        timed(
            f"layer_norm forward {dtype}", lambda: norm.layer_norm.forward(xp, x, w, b, width=WIDTH), bytes_moved=2 * n
        )
        timed(
            f"layer_norm backward {dtype}",
            lambda: norm.layer_norm.vjp(g, x, w, b, shapes, mean, rstd, WIDTH, (True,) * 3, xp), bytes_moved=3 * n,
        )  # fmt: skip
        timed(
            f"add + layer_norm forward {dtype}",
            lambda: norm.forward(xp, x, w, b, width=WIDTH, eps=1e-5, residual=g),
            bytes_moved=4 * n,
        )
        stream = rand(ROWS, WIDTH, dtype="fp32")  # the residual stream of a transformer, to which x is added
        s = 4 * x.size
        timed(
            f"add_layer_norm forward {dtype} to fp32",
            lambda: norm.add_layer_norm.forward(xp, x, stream, w, b, width=WIDTH, dtype=bfloat16), bytes_moved=n + 2 * s + s // 2,
        )  # fmt: skip
        saved = norm.add_layer_norm.forward(xp, x, stream, w, b, width=WIDTH)
        dtypes, three = (x.dtype, stream.dtype), [x.shape, x.shape, w.shape, b.shape]
        timed(
            f"add_layer_norm backward {dtype} to fp32",
            lambda: norm.add_layer_norm.vjp((stream, g), saved[0], w, b, three, dtypes, *saved[2:], WIDTH, (True,) * 4, xp),
            bytes_moved=n + 3 * s + (n if dtype == "bf16" else 0),
        )  # fmt: skip

    def more_row_kernels(dtype, size):
        x, g, w = rand(ROWS, WIDTH, dtype=dtype), rand(ROWS, WIDTH, dtype=dtype), rand(WIDTH, dtype="fp32")
        n, shapes = x.size * size, [(ROWS, WIDTH), (WIDTH,), None]
        timed(
            f"softmax down the columns forward {dtype}",
            lambda: softmax.softmax.forward(xp, x, dim=0),
            bytes_moved=3 * n,
        )
        squares = x[: ROWS // WIDTH * WIDTH].reshape(-1, 1, WIDTH, WIDTH)
        timed(
            f"causal softmax forward {dtype}",
            lambda: softmax.masked_softmax.forward(xp, squares, causal=True),
            bytes_moved=2 * size * squares.size,
        )
        _, r = norm.rms_norm.forward(xp, x, w, width=WIDTH, eps=1e-5)
        timed(
            f"rms_norm forward {dtype}",
            lambda: norm.rms_norm.forward(xp, x, w, width=WIDTH, eps=1e-5),
            bytes_moved=2 * n,
        )
        timed(
            f"rms_norm backward {dtype}",
            lambda: norm.rms_norm.vjp(g, x, w, shapes, r, WIDTH, (True, True), xp),
            bytes_moved=3 * n,
        )
        for kind in ("gelu", "gelu_tanh", "silu", "relu_squared"):
            timed(f"{kind} forward {dtype}", lambda k=kind: activation.apply(xp, x, k), bytes_moved=2 * n)
            timed(f"{kind} backward {dtype}", lambda k=kind: activation.apply_backward(xp, g, x, k), bytes_moved=3 * n)
        one, needs = xp.ones((), x.dtype), (True, False)
        for kind in ("mse", "bce_logits"):
            timed(f"{kind} forward {dtype}", lambda k=kind: losses.forward(xp, x, g, kind=k), bytes_moved=2 * n)
            timed(
                f"{kind} backward {dtype}", lambda k=kind: losses.vjp(one, x, g, k, "mean", 1.0, needs, xp),
                bytes_moved=3 * n,
            )  # fmt: skip
        timed(f"swiglu forward {dtype}", lambda: activation.gated(xp, x, g), bytes_moved=3 * n)
        timed(f"swiglu backward {dtype}", lambda: activation.gated_backward(xp, g, x, g), bytes_moved=5 * n)
        state = cp.zeros(2, cp.int64)
        timed(f"dropout forward {dtype}", lambda: dropout.apply(xp, x, 0.1, state, 1), bytes_moved=2 * n)
        index = cp.random.randint(0, CLASSES, ROWS)
        table_ = rand(CLASSES, WIDTH, dtype=dtype)
        timed(f"embedding forward {dtype}", lambda: embedding.forward(xp, table_, index), bytes_moved=2 * n)
        timed(
            f"embedding backward {dtype}", lambda: embedding.vjp(g, index, None, False, table_.shape, None, xp),
            bytes_moved=2 * n + table_.nbytes,
        )  # fmt: skip
        q = x.reshape(-1, HEADS[2], WIDTH // HEADS[3], HEADS[3]).swapaxes(1, 2)
        cos = rand(HEADS[2], HEADS[3] // 2, dtype="fp32")
        timed(f"rotary {dtype}", lambda: rotary.rotate(xp, q, cos, cos), bytes_moved=2 * n)

    def class_losses(dtype, size):
        x = rand(LOSSES, CLASSES, dtype=dtype)
        target = cp.random.randint(0, CLASSES, LOSSES)
        g = cp.ones((), types_of[dtype])
        _, lse, total = cross_entropy.forward(xp, x, target=target)
        n = x.size * size
        timed(f"cross_entropy forward {dtype}", lambda: cross_entropy.forward(xp, x, target=target), bytes_moved=n)
        timed(
            f"cross_entropy backward {dtype}",
            lambda: cross_entropy.vjp(g, x, target, None, -100, 0.0, "mean", lse, total, xp), bytes_moved=2 * n,
        )  # fmt: skip

        if dtype == "bf16":
            losses_ = cp.empty(LOSSES, cp.float32)
            timed(
                "cross_entropy with its gradient bf16",
                lambda: cross_entropy.rows_both(xp, x, target, None, -100, 0.0, 0.0, losses_),
                bytes_moved=2 * n,
            )

    def attention(shape, causal):
        q, k, v, g = (rand(*shape) for _ in range(4))
        out, lse = flash.run_forward(xp, q, k, v, causal=causal)
        flops = 4 * shape[0] * shape[1] * shape[2] ** 2 * shape[3] / (2 if causal else 1)
        label = f"{'x'.join(map(str, shape))}{' causal' if causal else ''}"
        timed(f"attention forward {label}", lambda: flash.run_forward(xp, q, k, v, causal=causal), flops=flops)
        timed(
            f"attention backward {label}",
            lambda: flash.run_backward(xp, g, q, k, v, out, lse, causal=causal),
            flops=2.5 * flops,
        )
        gradients = flash.run_backward(xp, g, q, k, v, out, lse, causal=causal)[:3]
        report.attempt(
            f"attention by cuDNN {label}", lambda: by_cudnn(label, (q, k, v), g, causal, [out, *gradients], flops)
        )

    def by_cudnn(label, inputs, g, causal, wants, flops):
        """Measure cuDNN's attention, eager and captured, and compare the results with Triton. Without cuDNN, report the reason."""
        from mytorch import cuda

        kernel, scale = registry.CUDNN_ATTENTION.of["cuda"], inputs[0].shape[3] ** -0.5
        cudnn = kernel.load()
        if cudnn is None:
            return {"value": kernel.problem}
        if not cudnn.accepts(*inputs, causal=causal, scale=scale):
            raise RuntimeError("; ".join(cudnn.attention.warned) or "cuDNN does not take it")
        out, stats = cudnn.forward(xp, *inputs, causal=causal, scale=scale, flash=flash)

        def back():
            return cudnn.vjp(g, *inputs, out, stats, causal, scale, (True,) * 3 + (False,), xp, flash)

        def both():
            cudnn.forward(xp, *inputs, causal=causal, scale=scale, flash=flash)
            back()

        for name, got, expected in zip(("output", "gq", "gk", "gv"), (out, *back()[:3]), wants, strict=True):
            error = float(cp.abs(got.astype(cp.float32) - expected.astype(cp.float32)).max())
            largest = float(cp.abs(expected.astype(cp.float32)).max())
            assert error <= 0.04 * largest, (
                f"{name} differs from Triton's by {error:.3g}, the largest value is {largest:.3g}"
            )
        timed(
            f"attention by cuDNN forward {label}",
            lambda: cudnn.forward(xp, *inputs, causal=causal, scale=scale, flash=flash), flops=flops,
        )  # fmt: skip
        timed(f"attention by cuDNN backward {label}", back, flops=2.5 * flops)
        cuda.graphs.on_capture_stream(both)
        captured = cuda.CUDAGraph()
        with cuda.graph(captured):
            both()
        timed(f"attention by cuDNN captured, both ways {label}", captured.replay, flops=3.5 * flops)
        report.attempt(f"host time of attention by cuDNN both ways {label}", lambda: host_time(cp, both))
        assert not cudnn.attention.warned, cudnn.attention.warned
        return None

    def wide():
        x, g = rand(ROWS, 4 * WIDTH), rand(ROWS, 4 * WIDTH)
        timed("gelu forward bf16 of 4 × the width", lambda: activation.apply(xp, x, "gelu"), bytes_moved=2 * x.nbytes)
        timed(
            "gelu backward bf16 of 4 × the width",
            lambda: activation.apply_backward(xp, g, x, "gelu"),
            bytes_moved=3 * x.nbytes,
        )

    def products(n, k):
        x, w, b = rand(ROWS, k), rand(n, k), rand(n)
        flops = 2 * ROWS * n * k
        timed(f"linear {k}->{n}", lambda: matmul.linear(xp, x, w, b), flops=flops)
        timed(f"linear + gelu {k}->{n}", lambda: matmul.linear(xp, x, w, b, "gelu_tanh"), flops=flops)
        timed(f"linear {k}->{n} (cuBLAS by CuPy)", lambda: x @ w.T, flops=flops)

    def last_layer():
        rows = LOSSES // 2
        x, w = rand(rows, WIDTH), rand(CLASSES, WIDTH)
        target = cp.random.randint(0, CLASSES, rows)
        timed("linear + cross_entropy, with gradients",
              lambda: linear_cross_entropy.forward(xp, x, w, target=target), flops=6 * rows * CLASSES * WIDTH)  # fmt: skip

    def convolution(dtype):
        planes = CONV[1]
        x, w, g = rand(*CONV, dtype=dtype), rand(planes, planes, 3, 3, dtype=dtype), rand(*CONV, dtype=dtype)
        args = ((1, 1), (1, 1), (1, 1), 1)
        flops = 2 * x.size * planes * 9
        for mark, enabled in (("", True), (" by Triton", False)):
            config.cudnn_enabled = enabled
            convolutions(mark, dtype, x, w, g, args, flops)
        config.cudnn_enabled = True

    def convolutions(mark, dtype, x, w, g, args, flops):
        timed(f"conv2d forward{mark} {dtype}", lambda: conv.run_forward(xp, x, w, None, *args), flops=flops, kind=dtype)

        def back():
            conv.run_input(xp, g, w, CONV[2:], *args)
            conv.run_weight(xp, g, x, (3, 3), *args)

        timed(f"conv2d backward{mark} {dtype}", back, flops=2 * flops, kind=dtype)
        options = dict(zip(("stride", "padding", "dilation", "groups"), args, strict=True))
        timed(
            f"conv_transpose2d forward{mark} {dtype}", lambda: conv.conv_transpose.forward(xp, g, w, shape=CONV[2:], **options),
            flops=flops, kind=dtype,
        )  # fmt: skip

    def groups():
        x, w, g = rand(*GROUPED), rand(GROUPED[1], dtype="fp32"), rand(*GROUPED)
        _, mean, rstd = norm.group_norm.forward(xp, x, w, w, num_groups=32)
        timed(
            "group_norm forward bf16",
            lambda: norm.group_norm.forward(xp, x, w, w, num_groups=32),
            bytes_moved=2 * x.nbytes,
        )
        timed(
            "group_norm backward bf16",
            lambda: norm.group_norm.vjp(g, x, w, w, mean, rstd, 32, (True,) * 3, xp),
            bytes_moved=3 * x.nbytes,
        )

    def optimizers():
        columns = [[cp.zeros(s, cp.float32) for s in parameters()] for _ in range(4)]
        t = multi.Table(xp, *columns)
        state = multi.new_state(xp, lr=1e-3)
        n = sum(a.size for a in columns[0])
        timed("AdamW 124M", lambda: multi.adamw(t, state), bytes_moved=28 * n)
        timed("gradient norm 124M", lambda: multi.norm(t, state, 1.0), bytes_moved=4 * n)
        timed("unscale 124M", lambda: multi.unscale(t, state), bytes_moved=8 * n)
        s = multi.Table(xp, *columns[:3])
        timed("SGD momentum 124M", lambda: multi.sgd(s, state, 0.9), bytes_moved=20 * n)
        timed("Lion 124M", lambda: multi.lion(s, state), bytes_moved=20 * n)

    def small():
        x = rand(4, 64, dtype="fp32")
        report.attempt(
            "host time of a small softmax", lambda: host_time(cp, lambda: softmax.softmax.forward(xp, x, dim=1))
        )

    both = (("bf16", 2), ("fp32", 4))
    if main:
        report.group("attention", lambda: attention(HEADS, True))
        for dtype, size in both:
            report.group(f"row kernels {dtype}", lambda d=dtype, s=size: row_kernels(d, s))
            report.group(f"losses {dtype}", lambda d=dtype, s=size: class_losses(d, s))
            cp.get_default_memory_pool().free_all_blocks()
        report.group("optimizers", optimizers)
        for dtype in ("fp32", "bf16"):
            report.group(f"convolution {dtype}", lambda d=dtype: convolution(d))
        report.group("small", small)
        return
    for dtype, size in both:
        report.group(f"more row kernels {dtype}", lambda d=dtype, s=size: more_row_kernels(d, s))
    for shape, causal in ((HEADS, False), (LONG, True)):
        report.group(f"attention {shape}", lambda s=shape, c=causal: attention(s, c))
    report.group("gelu of 4 × the width", wide)
    for n, k in ((3 * WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)):
        report.group(f"products {k}->{n}", lambda n=n, k=k: products(n, k))
    report.group("last layer", last_layer)
    report.group("group norm", groups)
