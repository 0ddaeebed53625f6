"""Sections `train`, `small` and others: training steps of GPT-2, in mytorch and in PyTorch."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .sizes import BASE_MODEL, DEVICE, IMAGES, MORE_MODELS, NETWORK, SCRIPT, SMALL_MODEL, STEPS, TANH, TIME_STEPS

ROOT = Path(__file__).resolve().parents[2]


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


def _report_steps(report, name, tokens, step, wait, memory):
    """Measure `step()`, which returns a loss, for about TIME_STEPS seconds, and report the median of groups of STEPS steps.

    `tokens`: the number of tokens of a step, or None for images.

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
    rate = {} if tokens is None else {"ktok/s": tokens / ms}
    report(name, ms=ms, **rate, **{"GiB": gib, "loss": float(loss), "card": card})
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
    """Returns a training step (forward, backward, clipping, AdamW), a batch, and the configuration."""
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

    def step(x, y):
        with amp.autocast("cuda", dtype, enabled=half is not None):
            loss = model(x, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, (x, y), config


def _run_training(report, name, values, batch, half, captured):
    import mytorch

    step, inputs, config = make_step(values, batch, half)
    step = mytorch.compile_step(step) if captured else step
    tokens = batch * config.context_length
    _report_steps(report, name, tokens, lambda: step(*inputs), mytorch.cuda.synchronize, mytorch.cuda)


def _measure(report, models, captured, mark=""):
    for name, model in models.items():
        label = name + (" captured" if captured else "") + mark
        report.attempt(label, lambda n=label, m=model: _run_training(report, n, *m, captured=captured))


def train(report, interpret):
    """Measure eager training steps of the large model."""
    _measure(report, BASE_MODEL, captured=False)

    def tables():
        from mytorch.kernels.triton import multi

        return {"count": len(multi._tables)}

    # one per group of parameters if the pool repeats the addresses of gradients; hundreds would explain a slow eager step
    report.attempt("tables of addresses that the optimizer made", tables)


def train_captured(report, interpret):
    """Measure the same steps, captured as a CUDA graph by `mytorch.compile_step`.

    This is a separate section, because an error during a capture can break the process.
    """
    _measure(report, BASE_MODEL, captured=True)


def small(report, interpret):
    """Measure the small model, whose step is limited by the CPU."""
    _measure(report, SMALL_MODEL, captured=False)
    _measure(report, SMALL_MODEL, captured=True)


def _measure_images(report, lib, device, captured):
    """Measure SGD steps of ResNet-18 in mytorch or PyTorch, with bfloat16 by autocast, for images in both layouts."""
    from benchmarks.cpu import convolutions

    def run(name, layout):
        lib.manual_seed(0)
        model = getattr(convolutions, NETWORK)(lib).to(device, memory_format=layout)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        x = lib.randn(*IMAGES, device=device).to(memory_format=layout)
        y = lib.randint(0, 10, IMAGES[:1], device=device)

        def step(x, y):
            with lib.autocast(device, lib.bfloat16):
                loss = lib.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = lib.compile_step(step) if captured else step
        _report_steps(report, name, None, lambda: step(x, y), lib.cuda.synchronize, lib.cuda)

    for mark, layout in (("", lib.contiguous_format), (", channels last", lib.channels_last)):
        name = f"ResNet-18 bf16 B{IMAGES[0]}{mark}{' captured' if captured else ''}"
        report.attempt(name, lambda n=name, o=layout: run(n, o))


def images(report, interpret):
    """Measure training on images, eager and captured."""
    import mytorch

    _measure_images(report, mytorch, "cuda", captured=False)
    _measure_images(report, mytorch, "cuda", captured=True)


def torch_images(report, interpret):
    """Measure training on images in PyTorch."""
    import torch

    _measure_images(report, torch, DEVICE, captured=False)


def train_tuned(report, interpret):
    """Measure the captured steps, as they are and with tuned block sizes and algorithms."""
    _measure(report, BASE_MODEL, captured=True)
    os.environ["TRITON_AUTOTUNE_MODE"] = os.environ["TRITON_FLASH_AUTOTUNE_MODE"] = "medium"
    _measure(report, BASE_MODEL, captured=True, mark=", tuned")


def train_more(report, interpret):
    """Measure the other precisions in eager mode, and captured steps with Triton's attention or tuned block sizes."""
    _measure(report, MORE_MODELS, captured=False)
    from mytorch.kernels import registry

    cudnn = registry.CUDNN_ATTENTION.of["cuda"].load()
    if cudnn is not None:  # the other sections use cuDNN
        cudnn.attention.errors.append("measuring Triton's")
        _measure(report, BASE_MODEL, captured=True, mark=", Triton's attention")
        cudnn.attention.errors.pop()
    os.environ["TRITON_AUTOTUNE_MODE"] = os.environ["TRITON_FLASH_AUTOTUNE_MODE"] = "medium"
    _measure(report, {**SMALL_MODEL, **TANH}, captured=True, mark=", tuned")


def script(report, interpret):
    """Train a model with train_gpt2.py, captured and in bfloat16, on the text of prepare_demo.py."""

    def program(*command):
        fake = [ROOT / "tests" / "gpu" / "with_fake_cupy.py"] if DEVICE == "cpu" else []
        run = [sys.executable, "-W", "ignore", *fake, *command]
        done = subprocess.run([str(part) for part in run], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}: {(done.stdout + done.stderr)[-600:]}")

    def train():
        with tempfile.TemporaryDirectory() as folder:
            data, work = Path(folder) / "data", Path(folder) / "work"
            program("prepare_data/prepare_demo.py", "--path_to_save", data)
            program(
                "train_gpt2.py", "--device", "cuda", "--mixed_precision", "bf16", "--cuda_graph", "--max_lr", 1e-3, "--min_lr", 1e-4,
                "--gradient_accumulation_steps", 1, "--path_to_data", data, "--working_directory", work, "--project_name", "gpu", *SCRIPT,
            )  # fmt: skip
            lines = (work / "gpu" / "log.jsonl").read_text().splitlines()
        losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row]
        assert losses[-1] < losses[0], f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}"
        return {"value": f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}"}

    report.attempt("train_gpt2.py", train)


def _torch_step(values, batch, half, compiled):
    """Returns the training step of `make_step` in PyTorch, and the configuration."""
    import torch

    from benchmarks.torch_gpt2 import TorchGPT2

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

    return step, config


def _measure_torch(report, models, compiled):
    import torch

    def run(name, model):
        step, config = _torch_step(*model, compiled)
        tokens = model[1] * config.context_length
        _report_steps(report, name, tokens, step, torch.cuda.synchronize, torch.cuda)

    for name, model in models.items():
        label = name + (" compiled" if compiled else "")
        report.attempt(label, lambda n=label, m=model: run(n, m))


def torch_train(report, interpret):
    """Measure the steps of the large model in PyTorch, eager and compiled."""
    _measure_torch(report, BASE_MODEL, compiled=False)
    _measure_torch(report, BASE_MODEL, compiled=True)


def torch_warm(report, interpret):
    """Run one compiled step in PyTorch, which fills the cache of its compiler."""

    def run():
        import torch

        _torch_step(*next(iter(BASE_MODEL.values())), True)[0]()
        torch.cuda.synchronize()
        return {"value": "done"}

    report.attempt("one compiled step of PyTorch", run)


def torch_small(report, interpret):
    """Measure the small model in PyTorch."""
    _measure_torch(report, SMALL_MODEL, compiled=False)


def torch_more(report, interpret):
    """Measure the other precisions and compiled models in PyTorch."""
    _measure_torch(report, MORE_MODELS, compiled=False)
    _measure_torch(report, {**SMALL_MODEL, **TANH}, compiled=True)
