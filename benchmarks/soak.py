"""A long run at small size: does anything grow that should not?

Training, evaluation, generation, checkpoints (saved, resumed, replaced) and epochs of a loader with workers, round after
round, beside a program that competes for the cores. After each round: resident memory, open files, threads, processes,
files in /tmp and /dev/shm, the objects that Python's collector knows. Writes JSON and a picture (SVG) and fails if
the second half of the run is above the first.

    python benchmarks/soak.py --minutes 60 --out benchmarks/results/soak
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

PANELS = {  # what is counted: (its title, how much the last quarter may lie above the second: of it, and at least)
    "resident_mb": ("resident memory, MB", 0.03, 8.0),
    "handles": ("open handles", 0.0, 0.0),
    "threads": ("threads", 0.0, 0.0),
    "processes": ("processes", 0.0, 0.0),
    "temporary": ("temporary files", 0.0, 0.0),
    "objects": ("objects of Python's collector", 0.005, 200.0),
}


class Blocks(Dataset):
    """Random blocks of tokens, the same for an index."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        tokens = np.random.default_rng(i).integers(0, 65, 33)
        return tokens[:-1], tokens[1:]


def compete(stop):
    """Work that takes the cores from the run, in turns of a second."""
    x = np.random.default_rng(0).normal(size=(256, 256))
    while not stop.is_set():
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            x @ x
        stop.wait(1.0)


def children(pid):
    """The processes below one, from /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def measure(folder, competitor):
    """What is counted, now: numbers by the names in PANELS."""
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
    """The things that are used in every round."""

    def __init__(self, folder):
        self.folder = folder
        self.round = 0
        self.begin()

    def begin(self):
        """Everything anew, as a program that starts."""
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
        """An epoch."""
        self.model.train()
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x).reshape(-1, 65), y.reshape(-1))
            self.accelerator.backward(loss)
            self.accelerator.clip_grad_norm_(1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()

    def evaluate(self):
        """The loss over an epoch, left in the middle every third time."""
        self.model.eval()
        with mytorch.no_grad():
            for i, (x, y) in enumerate(self.loader):
                F.cross_entropy(self.model(x).reshape(-1, 65), y.reshape(-1)).item()
                if self.round % 3 == 0 and i == 3:
                    break

    def generate(self):
        """A few tokens from a prompt."""
        self.model.generate(mytorch.tensor([[1, 2, 3]]), 20)

    def save_and_resume(self):
        """A checkpoint, and every fourth round a new beginning from the newest; one save of four fails."""
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
    """For each thing counted: its median in the second and in the last quarter, and whether that is flat."""
    n, found = len(samples), {}
    for name, (_, part, least) in PANELS.items():
        values = [sample[name] for sample in samples]
        early, late = (float(np.median(values[a : max(b, a + 1)])) for a, b in ((n // 4, n // 2), (3 * n // 4, n)))
        found[name] = {"second_quarter": early, "last_quarter": late, "flat": late - early <= max(part * early, least)}
    return found


def svg(samples, found):
    """The picture: a panel for each thing counted, over minutes."""
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
        colour = "#1f77b4" if found[name]["flat"] else "#d62728"
        parts.append(
            f'<rect x="{x0}" y="{y0}" width="{width}" height="{height}" fill="none" stroke="#999"/>'
            f'<text x="{x0}" y="{y0 - 8}">{title}</text>'
            f'<text x="{x0 - 6}" y="{y0 + 10}" text-anchor="end">{top:,.0f}</text>'
            f'<text x="{x0 - 6}" y="{y0 + height}" text-anchor="end">0</text>'
            f'<text x="{x0 + width}" y="{y0 + height + 16}" text-anchor="end">{times[-1]:.1f} min</text>'
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
    size = f'width="{2 * (width + left) + 40}" height="{3 * (height + 50) + 20}"'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>\n'


def main():
    """Run, write, and say whether all was flat; the exit code."""
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--minutes", type=float, default=60.0, help="how long (default an hour)")
    p.add_argument("--out", default="soak", help="the results' path without its suffix")
    p.add_argument("--no-load", action="store_true", help="without the program that competes for the cores")
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
    found = verdicts(samples)
    result = {"minutes": args.minutes, "rounds": run.round, "verdicts": found, "samples": samples}
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(f"{args.out}.json").write_text(json.dumps(result, indent=1) + "\n")
    Path(f"{args.out}.svg").write_text(svg(samples, found))
    for name, v in found.items():
        flat = "flat" if v["flat"] else "GROWS"
        print(f"{PANELS[name][0]:32} {v['second_quarter']:12,.1f} -> {v['last_quarter']:12,.1f}  {flat}")
    return 0 if all(v["flat"] for v in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
