"""Sections `parity` and `parity-more`: compare steps of GPT-2, eager and captured, with PyTorch, from equal weights and batches.

PyTorch runs in a separate process, so that its CUDA libraries do not conflict with CuPy. This file is also the program of that process:

    python -m benchmarks.gpu.parity FILE.npz HALF DEVICE    # reads weights and batches, prints losses and norms as JSON
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .sizes import BASE, DEVICE, PARITY
from .training import gpt2_on_gpu

TOLERANCE = {None: (2e-4, 5e-3), "bfloat16": (5e-3, 5e-2)}  # relative tolerance of losses and of gradient norms


def _config():
    from mytorch.models import GPT2Config

    values = {**BASE, "dropout_p": 0.0}
    return GPT2Config.sized(values.pop("size"), **values)


def _batches(config, steps, batch):
    """Returns batches of tokens with different frequencies, so that the loss can decrease."""
    draw = np.random.default_rng(0).random((steps, 2, batch, config.context_length))
    return (draw**3 * config.vocab_size).astype(np.int64)


def _mytorch(config, state, batches, half, captured):
    """Returns the losses and gradient norms of steps in mytorch."""
    import mytorch
    from mytorch.nn.utils import clip_grad_norm_

    model = gpt2_on_gpu(config)
    model.load_state_dict({name: mytorch.tensor(x) for name, x in state.items()})
    optimizer = mytorch.optim.AdamW(model.parameter_groups(0.1), lr=6e-4, betas=(0.9, 0.95), fused=True)

    def step(x, y):
        with mytorch.autocast("cuda", getattr(mytorch, half or "float32"), enabled=half is not None):
            loss = model(x, y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach(), norm

    step = mytorch.compile_step(step) if captured else step
    results = [step(*(mytorch.tensor(part, device="cuda") for part in pair)) for pair in batches]
    return np.array([[float(number) for number in pair] for pair in results])


def _pytorch(file, half, device):
    """Returns the losses and gradient norms of steps in PyTorch."""
    import torch

    from benchmarks.torch_gpt2 import TorchGPT2
    from mytorch.models import GPT2Config

    with np.load(file) as data:
        state = {name: torch.from_numpy(data[name]) for name in data.files if name not in ("batches", "config")}
        config, batches = GPT2Config(**json.loads(str(data["config"]))), data["batches"]
    model = TorchGPT2(config).to(device)
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameter_groups(0.1), lr=6e-4, betas=(0.9, 0.95))
    results = []
    for pair in torch.from_numpy(batches).to(device):
        with torch.autocast(device, getattr(torch, half or "float32"), enabled=half is not None):
            loss = model(*pair)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        results.append((loss.item(), norm.item()))
    return results


def compare(report, name, got, expected, tolerance):
    """Report the differences of losses and norms, and an error if they exceed the tolerance."""
    difference = np.abs(got / expected - 1.0)
    loss, norm = difference.max(0)
    values = {"loss": got[-1, 0], "loss apart": loss, "norm apart": norm}
    if not (loss <= tolerance[0] and norm <= tolerance[1]):  # also False for NaN
        first = int(np.argmax(~(difference <= tolerance).all(1)))
        values["error"] = f"losses {loss:.2g} and norms {norm:.2g} apart, allowed {tolerance}; first at step {first}"
    report(name, **values)


def parity(report, interpret):
    """Compare eager and captured steps with PyTorch in bfloat16."""
    _compare(report, ("bfloat16",), *PARITY)


def parity_more(report, interpret):
    """Compare twice as many steps, in float32 and bfloat16."""
    _compare(report, (None, "bfloat16"), 2 * PARITY[0], PARITY[1])


def _compare(report, halves, steps, batch):
    config = _config()
    state = {name: np.array(x.cpu().numpy()) for name, x in gpt2_on_gpu(config).state_dict().items()}
    batches = _batches(config, steps, batch)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "start.npz"
        np.savez(file, batches=batches, config=json.dumps(dataclasses.asdict(config)), **state)
        for half in halves:
            kind, made = half or "float32", {}
            for name, captured in (("eager", False), ("captured", True)):

                def run(name=name, captured=captured, half=half, made=made):
                    made[name] = _mytorch(config, state, batches, half, captured)

                report.attempt(f"{kind} {name} (run)", run)
            command = [sys.executable, "-m", "benchmarks.gpu.parity", file, str(half), DEVICE]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                report(f"{kind} PyTorch", error=done.stderr[-800:])
            else:
                made["PyTorch"] = np.array(json.loads(done.stdout.splitlines()[-1]))
            for one, other in (("eager", "PyTorch"), ("captured", "PyTorch"), ("captured", "eager")):
                if one in made and other in made:
                    compare(report, f"{kind} {one}, {other}", made[one], made[other], TOLERANCE[half])


if __name__ == "__main__":
    print(json.dumps(_pytorch(sys.argv[1], None if sys.argv[2] == "None" else sys.argv[2], sys.argv[3])))
