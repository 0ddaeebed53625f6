"""Time per training step of GPT-2, beside the same model in PyTorch eager, in one run.

    python benchmarks/gpt2.py --model_size demo --context_length 64 --batch_size 12 --output gpt2.json

Both take turns for `--rounds` rounds of `--steps` steps; the medians are compared, so that a neighbour's load
on the machine strikes both. A step is forward, backward, clipping to 1.0, AdamW.
"""

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np

import mytorch
from mytorch.models import GPT2, GPT2Config


def machine():
    """What the figures hold for."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        name = names[0] if names else name
    return {"processor": name, "cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def steps_of(model, optimizer, batches, clip):
    """A function that does a number of training steps and returns the last loss."""

    def run(count):
        for i in range(count):
            x, y = batches[i % len(batches)]
            loss = model(x, y)
            optimizer.zero_grad()
            loss.backward()
            clip(model.parameters(), 1.0)
            optimizer.step()
        return loss.item()

    return run


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--model_size", default="demo")
    p.add_argument("--context_length", type=int, default=64)
    p.add_argument("--batch_size", type=int, default=12)
    p.add_argument("--vocab_size", type=int, default=65)
    p.add_argument("--dropout_p", type=float, default=0.0)
    p.add_argument("--fused", action="store_true", help="ask for kernels everywhere; by default where they pay")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--output", help="also write the JSON to this file")
    args = p.parse_args()
    config = GPT2Config.sized(
        args.model_size,
        vocab_size=args.vocab_size,
        context_length=args.context_length,
        dropout_p=args.dropout_p,
        fused=args.fused or None,
    )
    rng = np.random.default_rng(0)
    raw = [rng.integers(0, args.vocab_size, (args.batch_size, args.context_length + 1)) for _ in range(8)]
    pairs = [(r[:, :-1].copy(), r[:, 1:].copy()) for r in raw]
    model = GPT2(config)
    runs = {
        "mytorch": steps_of(
            model,
            mytorch.optim.AdamW(model.parameter_groups(0.1), lr=1e-3, betas=(0.9, 0.99)),
            [(mytorch.from_numpy(x), mytorch.from_numpy(y)) for x, y in pairs],
            mytorch.nn.utils.clip_grad_norm_,
        )
    }
    versions = {"mytorch": mytorch.__version__, "numpy": np.__version__}
    try:
        import torch
        from torch_gpt2 import TorchGPT2
    except ImportError:
        torch = None
    if torch is not None:
        versions["torch"] = torch.__version__
        reference = TorchGPT2(config).take(model)
        runs["torch"] = steps_of(
            reference,
            torch.optim.AdamW(reference.parameter_groups(0.1), lr=1e-3, betas=(0.9, 0.99)),
            [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in pairs],
            torch.nn.utils.clip_grad_norm_,
        )
    times, losses = {name: [] for name in runs}, {}
    for name, run in runs.items():
        losses[name] = run(3)  # warm up: kernels compile, memory is taken
    for _ in range(args.rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run(args.steps)
            times[name].append((time.perf_counter() - began) / args.steps * 1000)
    result = {
        "benchmark": "gpt2",
        "machine": machine(),
        "versions": versions,
        "settings": vars(args),
        "milliseconds_per_step": {name: round(statistics.median(t), 3) for name, t in times.items()},
        "fastest_round": {name: round(min(t), 3) for name, t in times.items()},
        "loss_after_warm_up": losses,
    }
    if torch is not None:
        ratio = statistics.median(a / b for a, b in zip(times["mytorch"], times["torch"], strict=True))
        result["mytorch_over_torch"] = round(ratio, 3)
    text = json.dumps(result, indent=2)
    print(text)
    if args.output:
        Path(args.output).write_text(text + "\n")


if __name__ == "__main__":
    main()
