"""The section `parity`: 20 steps of GPT-2 by mytorch, eager and captured, beside PyTorch's from the same weights and batches.

PyTorch's steps are made by this file as a program of its own, so that its libraries and CuPy's are not in one process:

    python -m benchmarks.gpu.parity FILE.npz HALF DEVICE    # weights and batches in; a JSON of losses and norms on stdout
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

TOLERANCE = {None: (2e-4, 5e-3), "bfloat16": (5e-3, 5e-2)}  # of losses and of the gradients' norms, relative


def _config():
    from mytorch.models import GPT2Config

    values = {**BASE, "dropout_p": 0.0}
    return GPT2Config.sized(values.pop("size"), **values)


def _batches(config, steps, batch):
    """Tokens of which some are much more frequent than others, so that there is something to learn."""
    draw = np.random.default_rng(0).random((steps, 2, batch, config.context_length))
    return (draw**3 * config.vocab_size).astype(np.int64)


def _mytorch(config, state, batches, half, captured):
    """Losses and norms of steps by mytorch."""
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
    found = [step(*(mytorch.tensor(part, device="cuda") for part in pair)) for pair in batches]
    return np.array([[float(number) for number in pair] for pair in found])


def _pytorch(file, half, device):
    """The same by PyTorch."""
    import torch

    from benchmarks.torch_gpt2 import TorchGPT2
    from mytorch.models import GPT2Config

    with np.load(file) as kept:
        state = {name: torch.from_numpy(kept[name]) for name in kept.files if name not in ("batches", "config")}
        config, batches = GPT2Config(**json.loads(str(kept["config"]))), kept["batches"]
    model = TorchGPT2(config).to(device)
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameter_groups(0.1), lr=6e-4, betas=(0.9, 0.95))
    found = []
    for pair in torch.from_numpy(batches).to(device):
        with torch.autocast(device, getattr(torch, half or "float32"), enabled=half is not None):
            loss = model(*pair)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        found.append((loss.item(), norm.item()))
    return found


def compare(report, name, got, wanted, tolerance):
    """Report how far losses and norms lie apart, and an error if that is too far."""
    apart = np.abs(got / wanted - 1.0)
    loss, norm = apart.max(0)
    values = {"loss": got[-1, 0], "loss apart": loss, "norm apart": norm}
    if not (loss <= tolerance[0] and norm <= tolerance[1]):  # nor where one is NaN
        first = int(np.argmax(~(apart <= tolerance).all(1)))
        values["error"] = f"losses {loss:.2g} and norms {norm:.2g} apart, allowed {tolerance}; first at step {first}"
    report(name, **values)


def parity(report, interpret):
    """Eager, captured and PyTorch's steps, in float32 and bfloat16."""
    config, (steps, batch) = _config(), PARITY
    state = {name: np.array(x.cpu().numpy()) for name, x in gpt2_on_gpu(config).state_dict().items()}
    batches = _batches(config, steps, batch)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "start.npz"
        np.savez(file, batches=batches, config=json.dumps(dataclasses.asdict(config)), **state)
        for half in (None, "bfloat16"):
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
