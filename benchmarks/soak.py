"""Load test: detect growth of memory, files, threads or processes in a long run.

    python benchmarks/soak.py --minutes 60 --out benchmarks/results/soak

Each round trains, evaluates, generates, saves, resumes and replaces checkpoints, and loads data with workers. Another program competes for
the cores. After each round, the script records resident memory, open files, threads, processes, and files in /tmp and /dev/shm. It also
records the number of objects tracked by the garbage collector. It writes a JSON file and an SVG plot. The exit code is 1 if the last quarter of the run
is above the second quarter.
"""

import argparse
import contextlib
import gc
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import mytorch
from mytorch.accelerate import Accelerator
from mytorch.accelerate.training_state import newest_checkpoint
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F
from mytorch.optim import AdamW
from mytorch.utils.data import DataLoader, Dataset

PANELS = {  # quantity -> (title, allowed relative growth and allowed absolute growth from the second to the last quarter)
    "resident_mb": ("resident memory, MB", 0.03, 8.0),
    "handles": ("open handles", 0.0, 0.0),
    "threads": ("threads", 0.0, 0.0),
    "processes": ("processes", 0.0, 0.0),
    "temporary": ("temporary files", 0.0, 0.0),
    "objects": ("objects of Python's collector", 0.005, 200.0),
}


class Blocks(Dataset):
    """Random blocks of tokens. The same index always returns the same block."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        tokens = np.random.default_rng(i).integers(0, 65, 33)
        return tokens[:-1], tokens[1:]


def compete(stop):
    """Compete for the cores, in turns of one second."""
    x = np.random.default_rng(0).normal(size=(256, 256))
    while not stop.is_set():
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            x @ x
        stop.wait(1.0)


def children(pid):
    """Returns the child processes of a process, read from /proc."""
    result = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                result += [int(path.parent.name), *children(int(path.parent.name))]
    return result


def measure(folder, competitor):
    """Returns the current values of the quantities in PANELS."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "resident_mb": int(status["VmRSS"].split()[0]) / 1024,
        "handles": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "processes": len([pid for pid in children(os.getpid()) if pid != competitor]),
        "temporary": len(list(folder.rglob("*"))),
        "objects": len(gc.get_objects()),
    }


class Run:
    """The model, optimizer and data loader of all rounds."""

    def __init__(self, folder):
        self.folder = folder
        self.round = 0
        self.begin()

    def begin(self):
        """Create all objects again, like a new process."""
        mytorch.manual_seed(0)
        config = GPT2Config(vocab_size=65, context_length=32, num_layers=2, num_heads=2, embed_dim=32)
        model = GPT2(config)
        self.accelerator = Accelerator()
        self.accelerator.print = lambda *text: None
        loader = DataLoader(Blocks(), batch_size=8, shuffle=True, num_workers=2)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(
            model, AdamW(model.parameters(), lr=1e-3), loader
        )

    def train(self):
        """Train for one epoch."""
        self.model.train()
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x).reshape(-1, 65), y.reshape(-1))
            self.accelerator.backward(loss)
            self.accelerator.clip_grad_norm_(1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()

    def evaluate(self):
        """Compute the loss over an epoch. Every third call stops in the middle."""
        self.model.eval()
        with mytorch.no_grad():
            for i, (x, y) in enumerate(self.loader):
                F.cross_entropy(self.model(x).reshape(-1, 65), y.reshape(-1)).item()
                if self.round % 3 == 0 and i == 3:
                    break

    def generate(self):
        """Generate a few tokens from a prompt."""
        self.model.generate(mytorch.tensor([[1, 2, 3]]), 20)

    def save_and_resume(self):
        """Save a checkpoint, a state dict and a model. A further save fails. Every fourth round resumes from the newest checkpoint."""
        path = self.folder / f"checkpoint_{self.round}"
        self.accelerator.save_state(path, total_limit=2)
        mytorch.save({"model": self.model.state_dict()}, self.folder / "x.pt")
        mytorch.load(self.folder / "x.pt")
        self.model.save_pretrained(self.folder / "model")
        with contextlib.suppress(TypeError):
            mytorch.save({"x": mytorch.ones(1000), "not to be saved": object()}, self.folder / "x.pt")
        if self.round % 4 == 0:
            self.begin()
            self.accelerator.load_state(newest_checkpoint(self.folder))

    def __call__(self):
        self.round += 1
        loss = self.train()
        self.evaluate()
        self.generate()
        self.save_and_resume()
        return loss


def verdicts(samples):
    """Returns for each quantity the medians of the second and the last quarter, and True if there is no growth."""
    n, verdict_of = len(samples), {}
    for name, (_, part, least) in PANELS.items():
        values = [sample[name] for sample in samples]
        early, late = (float(np.median(values[a : max(b, a + 1)])) for a, b in ((n // 4, n // 2), (3 * n // 4, n)))
        verdict_of[name] = {
            "second_quarter": early,
            "last_quarter": late,
            "flat": late - early <= max(part * early, least),
        }
    return verdict_of


def svg(samples, verdict_of):
    """Returns the plot as SVG: one panel for each quantity, over minutes."""
    width, height, left = 360, 150, 60
    parts = []
    for k, (name, (title, *_)) in enumerate(PANELS.items()):
        x0, y0 = left + k % 2 * (width + left), 30 + k // 2 * (height + 50)
        values = [sample[name] for sample in samples]
        times = [sample["minutes"] for sample in samples]
        top = max(values) * 1.2 or 1
        points = " ".join(
            f"{x0 + width * t / max(times[-1], 1e-9):.1f},{y0 + height * (1 - v / top):.1f}"
            for t, v in zip(times, values, strict=True)
        )
        color = "#1f77b4" if verdict_of[name]["flat"] else "#d62728"
        parts.append(
            f'<rect x="{x0}" y="{y0}" width="{width}" height="{height}" fill="none" stroke="#999"/>'
            f'<text x="{x0}" y="{y0 - 8}">{title}</text>'
            f'<text x="{x0 - 6}" y="{y0 + 10}" text-anchor="end">{top:,.0f}</text>'
            f'<text x="{x0 - 6}" y="{y0 + height}" text-anchor="end">0</text>'
            f'<text x="{x0 + width}" y="{y0 + height + 16}" text-anchor="end">{times[-1]:.1f} min</text>'
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>'
        )
    size = f'width="{2 * (width + left) + 40}" height="{3 * (height + 50) + 20}"'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>\n'


def main():
    """Run the test, write the results, and return the exit code."""
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--minutes", type=float, default=60.0, help="duration in minutes (default: 60)")
    p.add_argument("--out", default="soak", help="path of the results without suffix (default: soak)")
    p.add_argument("--no-load", action="store_true", help="do not start the program that competes for the cores")
    args = p.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mytorch-soak-"))
    stop = multiprocessing.Event()
    other = multiprocessing.Process(target=compete, args=(stop,), daemon=True)
    if not args.no_load:
        other.start()
    samples, start = [], time.monotonic()
    run = Run(folder)
    try:
        while not samples or samples[-1]["minutes"] < args.minutes:
            loss = run()
            sample = {"minutes": (time.monotonic() - start) / 60, "round": run.round, "loss": loss}
            samples.append({**sample, **measure(folder, other.pid)})
    finally:
        stop.set()
        if other.pid is not None:
            other.join(5.0)
        shutil.rmtree(folder, ignore_errors=True)
    verdict_of = verdicts(samples)
    result = {"minutes": args.minutes, "rounds": run.round, "verdicts": verdict_of, "samples": samples}
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(f"{args.out}.json").write_text(json.dumps(result, indent=1) + "\n")
    Path(f"{args.out}.svg").write_text(svg(samples, verdict_of))
    for name, v in verdict_of.items():
        flat = "flat" if v["flat"] else "GROWS"
        print(f"{PANELS[name][0]:32} {v['second_quarter']:12,.1f} -> {v['last_quarter']:12,.1f}  {flat}")
    return 0 if all(v["flat"] for v in verdict_of.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
