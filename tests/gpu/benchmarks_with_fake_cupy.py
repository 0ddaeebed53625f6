"""benchmarks/gpu_check.py without a GPU: a fake CuPy, a fake torch.cuda, invented times and small sizes."""

import contextlib
import functools
import os
import signal
import sys
import time

import fake_cublaslt
import fake_cudnn
import fake_cupy
import numpy as np

SIZES = {
    "ROWS": 32, "WIDTH": 16, "CLASSES": 40, "HEADS": (1, 2, 16, 16), "LONG": (1, 1, 32, 32), "LOSSES": 8, "CONV": (2, 4, 6, 6), "GROUPED": (2, 32, 4, 4), "IMAGES": (2, 3, 4, 4), "NETWORK": "resnet_cifar",
    "SQUARE": 32, "BATCHED": (3, 16, 16), "TIME_STEPS": 0, "STEPS": 1, "PARITY": (3, 2), "REPEATS": 1, "HOST_CALLS": 3, "CASES": 1, "WASTE": 1 << 12,
    "DEVICE": "cpu", "TESTS": 1,
    "SCRIPT": ("--model_size", "demo", "--context_length", 8, "--batch_size", 2, "--train_iterations", 6, "--eval_interval", 6,
               "--eval_iterations", 1, "--log_iter", 1, "--warmup_steps", 2),
}  # fmt: skip


def prepare(sizes, section):
    """Make a section of gpu_check do all that it does with little of everything; `sizes` is benchmarks/gpu/sizes.py."""
    for name, value in SIZES.items():
        assert hasattr(sizes, name), f"sizes.py has no {name}"
        setattr(sizes, name, value)
    cp = fake_cupy.install()
    fake_cublaslt.install()
    fake_cudnn.install()
    from mytorch.kernels.cudnn import attention

    attention.FEW = 2
    rng = np.random.default_rng(0)
    cp.random.standard_normal = lambda size=None, dtype=float: fake_cupy.wrap(rng.standard_normal(size).astype(dtype))
    cp.random.randint = lambda low, high=None, size=None, dtype=int: fake_cupy.wrap(
        rng.integers(low, high, size, dtype)
    )
    cp.cuda.get_elapsed_time = lambda start, end: 1.0
    sizes.BASE.update(vocab_size=48, context_length=8)
    sizes.SMALL.update(vocab_size=32, context_length=8)
    for config, *_ in sizes.TANH.values():
        config.update(sizes.BASE)
    for models in (sizes.BASE_MODEL, sizes.SMALL_MODEL, sizes.MORE_MODELS, sizes.TANH):
        models.update({name: (config, 2, half) for name, (config, _, half) in models.items()})
    from mytorch.models import gpt2

    gpt2.SIZES.update(base=(1, 2, 32), small=(1, 2, 16))
    if section.startswith("torch"):
        _torch_without_a_gpu()


def inject(report, kind, where, section):
    """Make a section fail at its second result: `hang`, `crash` (of the process), or `lost` (the GPU, at two results)."""
    if section != where:
        return
    attempt, made = report.attempt, []

    def failing(name, function):
        if name in report.done:
            return attempt(name, function)
        made.append(name)
        if len(made) == 2 and kind == "hang":
            time.sleep(1e6)
        if len(made) == 2 and kind == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if len(made) == 2 and kind == "lost":
            sys.modules["benchmarks.gpu.measure"].card_is_lost = lambda: True
            return attempt(name, lambda: 1 / 0)
        return attempt(name, function)

    report.attempt = failing


class _Event:
    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        assert enable_timing

    def record(self, stream=None):
        """Nothing is timed."""

    synchronize = record

    def elapsed_time(self, end):
        """One millisecond, always."""
        return 1.0


def _torch_without_a_gpu():
    import torch
    from torch.nn import attention

    torch.cuda.Event = _Event
    torch.cuda.synchronize = torch.cuda.reset_peak_memory_stats = lambda device=None: None
    torch.cuda.max_memory_allocated = lambda device=None: 1 << 30
    attention.sdpa_kernel = functools.wraps(attention.sdpa_kernel)(
        lambda backends, set_priority=False: contextlib.nullcontext()
    )
    torch.compile = functools.partial(torch.compile, backend="eager")
