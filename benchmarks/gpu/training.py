"""Sections `train`, `train-captured`, `train-tuned`, `train-more` and `torch-train`: training steps of GPT-2."""

import os
import shutil
import subprocess
import sys
import time

from .sizes import DEVICE, MODELS, MORE_MODELS, STEPS, TANH, TIME_STEPS


def _config(values):
    from mytorch.models import GPT2Config

    values = dict(values)
    return GPT2Config.sized(values.pop("size"), **values)


def _card():
    """Returns the current clock, power and temperature of the GPU."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = "--query-gpu=clocks.sm,power.draw,temperature.gpu"
    return subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()


def _report_steps(report, name, config, batch, step, wait, memory):
    """Measure `step()`, which returns a loss, for about TIME_STEPS seconds, and report the median of groups of STEPS steps.

    Two further steps measure the memory with the module `memory`, because this measurement takes time.
    """
    for _ in range(4):
        loss = step()
    wait()
    start, groups = time.perf_counter(), []
    while len(groups) < 3 or (time.perf_counter() - start < TIME_STEPS and len(groups) < 40):
        started = time.perf_counter()
        for _ in range(STEPS):
            loss = step()
        wait()
        groups.append((time.perf_counter() - started) / STEPS)
    ms = sorted(groups)[len(groups) // 2] * 1e3
    for _ in range(STEPS):
        loss = step()
    card = _card()  # measured while the steps run
    memory.reset_peak_memory_stats()
    for _ in range(2):
        loss = step()
    wait()
    gib = memory.max_memory_allocated() / 2**30
    report(name, ms=ms, **{"ktok/s": batch * config.context_length / ms, "GiB": gib, "loss": float(loss), "card": card})
    if memory.__name__.startswith("mytorch") and "torch" in sys.modules:
        report(f"{name}: PyTorch was imported", error="Triton's native code, or another library, has imported torch")


def gpt2_on_gpu(config):
    """Returns a GPT2 with weights drawn on the GPU. On the CPU, drawing 124 million numbers takes 6 seconds."""
    import mytorch
    from mytorch.models import GPT2, fuse_

    mytorch.set_default_device("cuda")
    try:
        return fuse_(GPT2(config))
    finally:
        mytorch.set_default_device("cpu")


def make_step(values, batch, half):
    """Returns a training step (forward, backward, clipping, AdamW) with a default batch, and the configuration."""
    import mytorch
    from mytorch import amp
    from mytorch.nn.utils import clip_grad_norm_

    mytorch.manual_seed(0)
    config = _config(values)
    model = gpt2_on_gpu(config)
    optimizer = mytorch.optim.AdamW(model.parameter_groups(0.1), lr=6e-4, betas=(0.9, 0.95), fused=True)
    x, y = (mytorch.randint(0, config.vocab_size, (batch, config.context_length), device="cuda") for _ in range(2))
    scaler = amp.GradScaler(enabled=half == "float16")
    dtype = getattr(mytorch, half or "float32")

    def step(x=x, y=y):
        with amp.autocast("cuda", dtype, enabled=half is not None):
            loss = model(x, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, config


def _run_training(report, name, values, batch, half, captured):
    import mytorch

    step, config = make_step(values, batch, half)
    step = mytorch.compile_step(step) if captured else step
    _report_steps(report, name, config, batch, step, mytorch.cuda.synchronize, mytorch.cuda)


def train(report, interpret):
    """Measure eager training steps."""
    for name, model in MODELS.items():
        report.attempt(name, lambda n=name, m=model: _run_training(report, n, *m, captured=False))


def train_captured(report, interpret):
    """Measure the same steps, captured as a CUDA graph by `mytorch.compile_step`.

    This is a separate section, because an error during a capture can break the process.
    """
    import mytorch

    if not hasattr(mytorch, "compile_step"):
        report("captured steps", error="mytorch.compile_step is not there")
        return
    for name, model in reversed(MODELS.items()):  # the small model first, as a test of the capture
        report.attempt(
            f"{name} captured", lambda n=f"{name} captured", m=model: _run_training(report, n, *m, captured=True)
        )


def train_tuned(report, interpret):
    """Measure the captured steps with tuned block sizes and algorithms."""
    os.environ["TRITON_AUTOTUNE_MODE"] = os.environ["TRITON_FLASH_AUTOTUNE_MODE"] = "medium"
    for name, model in {**MODELS, **TANH}.items():
        report.attempt(
            f"{name} captured, tuned",
            lambda n=f"{name} captured, tuned", m=model: _run_training(report, n, *m, captured=True),
        )


def train_more(report, interpret):
    """Measure the other precisions in eager mode, and a captured step with Triton's attention instead of cuDNN's attention."""
    for name, model in MORE_MODELS.items():
        report.attempt(name, lambda n=name, m=model: _run_training(report, n, *m, captured=False))
    from mytorch.kernels import registry

    cudnn = registry.CUDNN_ATTENTION.of["cuda"].load()
    if cudnn is not None:  # the other sections use cuDNN
        cudnn._trouble.append("measuring Triton's")
        name, model = next(iter(MODELS.items()))
        name += " captured, Triton's attention"
        report.attempt(name, lambda: _run_training(report, name, *model, captured=True))


def torch_train(report, interpret):
    """Measure the steps in PyTorch, eager and compiled."""
    import torch

    from benchmarks.torch_gpt2 import TorchGPT2

    def run(name, values, batch, half, compiled):
        torch.manual_seed(0)
        config = _config(values)
        model = TorchGPT2(config).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameter_groups(0.1), lr=6e-4, betas=(0.9, 0.95), fused=True)
        x, y = (torch.randint(0, config.vocab_size, (batch, config.context_length), device=DEVICE) for _ in range(2))
        forward = torch.compile(model) if compiled else model
        scaler = torch.amp.GradScaler(DEVICE, enabled=half == "float16")

        def step():
            with torch.autocast(DEVICE, getattr(torch, half or "float32"), enabled=half is not None):
                loss = forward(x, y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        _report_steps(report, name, config, batch, step, torch.cuda.synchronize, torch.cuda)

    for compiled in (False, True):
        for name, model in {**MODELS, **(TANH if compiled else MORE_MODELS)}.items():
            label = name + (" compiled" if compiled else "")
            report.attempt(label, lambda n=label, m=model, c=compiled: run(n, *m, c))
