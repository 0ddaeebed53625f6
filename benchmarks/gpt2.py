"""Measure the time of a GPT-2 training step in mytorch and in eager PyTorch.

    python benchmarks/gpt2.py --model_size demo --context_length 64 --batch_size 12 --output gpt2.json

Each library runs in a separate process, because two thread pools in one process would disturb each other. The libraries take turns for
`--rounds` rounds of `--steps` steps, so other load on the machine affects both. A step consists of forward, backward, clipping to 1.0 and
AdamW.
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
    """Returns a description of the machine."""
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
    """Returns (model, optimizer, function that converts an array to a tensor, clipping function, version)."""
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
    """Receive numbers of steps, run the steps, and send (seconds, last loss). None ends the loop."""
    model, optimizer, tensor, clip, version = build(library, config)
    rng = np.random.default_rng(0)
    raw = [rng.integers(0, config.vocab_size, (batch_size, config.context_length + 1)) for _ in range(8)]
    batches = [(tensor(r[:, :-1].copy()), tensor(r[:, 1:].copy())) for r in raw]
    done = 0
    pipe.send(version)
    while (count := pipe.recv()) is not None:
        start = time.perf_counter()
        for _ in range(count):
            x, y = batches[done % len(batches)]
            loss = model(x, y)
            optimizer.zero_grad()
            loss.backward()
            clip(model.parameters(), 1.0)
            optimizer.step()
            done += 1
        last = loss.item()
        pipe.send((time.perf_counter() - start, last))


def main():
    p = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    p.add_argument("--model_size", default="demo", help="name of a size in GPT2Config")
    p.add_argument("--context_length", type=int, default=64, help="tokens per sequence")
    p.add_argument("--batch_size", type=int, default=12, help="sequences per step")
    p.add_argument("--vocab_size", type=int, default=65, help="size of the vocabulary")
    p.add_argument("--dropout_p", type=float, default=0.0, help="dropout probability")
    p.add_argument("--fused", action="store_true", help="use kernels wherever possible, not only if they are faster")
    p.add_argument("--rounds", type=int, default=7, help="number of rounds per library")
    p.add_argument("--steps", type=int, default=20, help="steps per round")
    p.add_argument("--output", help="path of a JSON file for the results")
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
        pipes[library], child = context.Pipe()
        context.Process(target=serve, args=(library, config, args.batch_size, child), daemon=True).start()
        versions[library] = pipes[library].recv()

    def run(library, steps):
        pipes[library].send(steps)
        seconds, loss = pipes[library].recv()
        return seconds / steps * 1000, loss

    losses = {library: run(library, 5)[1] for library in pipes}  # warm-up: compiles kernels and allocates memory
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
