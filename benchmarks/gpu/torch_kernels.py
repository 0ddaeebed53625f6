"""Section `torch`: the measurements of the sections `kernels` and `products` in PyTorch."""

from . import sizes
from .measure import torch_timer
from .sizes import CLASSES, CONV, DEVICE, HEADS, LONG, LOSSES, ROWS, WIDTH


def torch_kernels(report, interpret):
    """Measure the same operations in PyTorch, with cuDNN's attention if possible."""
    import torch
    from torch.nn import functional as F

    milliseconds = torch_timer()

    def timed(name, call):
        report.attempt(name, lambda: {"ms": milliseconds(call)})

    def both(name, function, *inputs, suffix=""):
        """Measure forward and backward."""
        leaves = [x.requires_grad_() for x in inputs]
        timed(f"{name} forward{suffix}", lambda: function(*inputs))

        def prepare():
            out = function(*inputs)
            g = torch.ones_like(out)
            timed(f"{name} backward{suffix}", lambda: torch.autograd.grad(out, leaves, g, retain_graph=True))

        report.group(f"{name} backward{suffix} (set up)", lambda: prepare())

    def rows(dtype, kind):
        x = torch.randn(ROWS, WIDTH, device=DEVICE, dtype=dtype)
        w, b = torch.randn(WIDTH, device=DEVICE, dtype=dtype), torch.randn(WIDTH, device=DEVICE, dtype=dtype)
        both("softmax", lambda x: F.softmax(x, -1), x, suffix=kind)
        both("layer_norm", lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), x, w, b, suffix=kind)
        both("rms_norm", lambda x, w: F.rms_norm(x, (WIDTH,), w), x, w, suffix=kind)
        both("gelu", F.gelu, x, suffix=kind)
        both("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), x, suffix=kind)
        both("silu", F.silu, x, suffix=kind)
        both("dropout", lambda x: F.dropout(x, 0.1), x, suffix=kind)

    def tables(dtype, kind):
        index = torch.randint(0, CLASSES, (ROWS,), device=DEVICE)
        both(
            "embedding",
            lambda t: F.embedding(index, t),
            torch.randn(CLASSES, WIDTH, device=DEVICE, dtype=dtype),
            suffix=kind,
        )
        target = torch.randint(0, CLASSES, (LOSSES,), device=DEVICE)
        both(
            "cross_entropy",
            lambda x: F.cross_entropy(x, target),
            torch.randn(LOSSES, CLASSES, device=DEVICE, dtype=dtype),
            suffix=kind,
        )
        c, k = (
            torch.randn(*CONV, device=DEVICE, dtype=dtype),
            torch.randn(CONV[1], CONV[1], 3, 3, device=DEVICE, dtype=dtype),
        )
        both("conv2d", lambda c, k: F.conv2d(c, k, padding=1), c, k, suffix=kind)

    for dtype, kind in ((torch.float32, " fp32"), (torch.bfloat16, " bf16")):
        report.group(f"rows{kind}", lambda d=dtype, k=kind: rows(d, k))
        report.group(f"tables{kind}", lambda d=dtype, k=kind: tables(d, k))
        torch.cuda.empty_cache()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for shape, causal in ((HEADS, True), (HEADS, False), (LONG, True)):
        label = f" {'x'.join(map(str, shape))}{' causal' if causal else ''}"
        for backend, mark in ((SDPBackend.FLASH_ATTENTION, " (FlashAttention-2)"), (SDPBackend.CUDNN_ATTENTION, "")):
            inputs = [torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(3)]

            def attend(q, k, v, backend=backend, causal=causal):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            both("attention", attend, *inputs, suffix=label + mark)

    def linear(n, k):
        x, w, b = (torch.randn(*s, device=DEVICE, dtype=torch.bfloat16) for s in ((ROWS, k), (n, k), (n,)))
        timed(f"linear {k}->{n}", lambda: F.linear(x, w, b))
        timed(f"linear + gelu {k}->{n}", lambda: F.gelu(F.linear(x, w, b), approximate="tanh"))

    for n, k in ((3 * WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)):
        report.group(f"linear {k}->{n} (set up)", lambda n=n, k=k: linear(n, k))

    report.group("optimizers", lambda: _torch_optimizers(torch, timed))


def _torch_optimizers(torch, timed):
    parameters = [torch.zeros(s, device=DEVICE, requires_grad=True) for s in sizes.parameters()]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer = torch.optim.AdamW(parameters, fused=True)
    timed("AdamW 124M", optimizer.step)
    timed("gradient norm 124M", lambda: torch.nn.utils.get_total_norm([p.grad for p in parameters]))
