"""Time per training step of GPT-2, beside the same model in PyTorch eager, in one run.

    python benchmarks/gpt2.py --model_size demo --context_length 64 --batch_size 12 --output gpt2.json

Each library has a process of its own (their thread pools would disturb each other in one), and they take
turns for `--rounds` rounds of `--steps` steps, so that other load on the machine strikes both. A step is
forward, backward, clipping to 1.0, AdamW.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from importlib import util
from pathlib import Path

import numpy as np

import mytorch
from mytorch.models import GPT2, GPT2Config, fuse_


def machine():
    """What the figures hold for."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        name = names[0] if names else name
    return {
        "name": platform.node(),
        "processor": name,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def build(library, config):
    """(model, optimizer, function from an array to a tensor, clipping function, version)."""
    mytorch.manual_seed(0)
    model = GPT2(config)
    if library == "mytorch":
        fuse_(model)
        tensor, clip, AdamW = mytorch.from_numpy, mytorch.nn.utils.clip_grad_norm_, mytorch.optim.AdamW
        version = mytorch.__version__
    else:
        import torch
        from torch_gpt2 import TorchGPT2

        model = TorchGPT2(config).take(model)
        tensor, clip, AdamW = torch.from_numpy, torch.nn.utils.clip_grad_norm_, torch.optim.AdamW
        version = torch.__version__
    optimizer = AdamW(model.parameter_groups(0.1), lr=1e-3, betas=(0.9, 0.99))
    return model, optimizer, tensor, clip, version


def serve(library, config, batch_size, pipe):
    """Answer each number of steps with (seconds, last loss), until told None."""
    model, optimizer, tensor, clip, version = build(library, config)
    rng = np.random.default_rng(0)
    raw = [rng.integers(0, config.vocab_size, (batch_size, config.context_length + 1)) for _ in range(8)]
    batches = [(tensor(r[:, :-1].copy()), tensor(r[:, 1:].copy())) for r in raw]
    done = 0
    pipe.send(version)
    while (count := pipe.recv()) is not None:
        began = time.perf_counter()
        for _ in range(count):
            x, y = batches[done % len(batches)]
            loss = model(x, y)
            optimizer.zero_grad()
            loss.backward()
            clip(model.parameters(), 1.0)
            optimizer.step()
            done += 1
        last = loss.item()
        pipe.send((time.perf_counter() - began, last))


def main():
    p = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    p.add_argument("--model_size", default="demo")
    p.add_argument("--context_length", type=int, default=64)
    p.add_argument("--batch_size", type=int, default=12)
    p.add_argument("--vocab_size", type=int, default=65)
    p.add_argument("--dropout_p", type=float, default=0.0)
    p.add_argument("--fused", action="store_true", help="ask for kernels everywhere; by default where they pay")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--output", help="also write the JSON to this file")
    args = p.parse_args()
    config = GPT2Config.sized(
        args.model_size,
        vocab_size=args.vocab_size,
        context_length=args.context_length,
        dropout_p=args.dropout_p,
        fused=args.fused or None,
    )
    context = multiprocessing.get_context("spawn")
    pipes, versions = {}, {"numpy": np.__version__}
    for library in ("mytorch", "torch"):
        if util.find_spec(library) is None:
            continue
        pipes[library], theirs = context.Pipe()
        context.Process(target=serve, args=(library, config, args.batch_size, theirs), daemon=True).start()
        versions[library] = pipes[library].recv()

    def run(library, steps):
        pipes[library].send(steps)
        seconds, loss = pipes[library].recv()
        return seconds / steps * 1000, loss

    losses = {library: run(library, 5)[1] for library in pipes}  # warm up: kernels compile, memory is taken
    times = {library: [] for library in pipes}
    for _ in range(args.rounds):
        for library in pipes:
            times[library].append(run(library, args.steps)[0])
    for pipe in pipes.values():
        pipe.send(None)
    result = {
        "benchmark": "gpt2",
        "machine": machine(),
        "versions": versions,
        "settings": vars(args),
        "milliseconds_per_step": {name: round(statistics.median(t), 3) for name, t in times.items()},
        "fastest_round": {name: round(min(t), 3) for name, t in times.items()},
        "loss_after_warm_up": losses,
    }
    if "torch" in times:
        ratio = statistics.median(a / b for a, b in zip(times["mytorch"], times["torch"], strict=True))
        result["mytorch_over_torch"] = round(ratio, 3)
    text = json.dumps(result, indent=2)
    print(text)
    if args.output:
        Path(args.output).write_text(text + "\n")


if __name__ == "__main__":
    main()
