"""Helpers of the programs: run every function named check_… in all ranks, and generated cases."""

import json
import sys
import traceback

import numpy as np

import mytorch.distributed as dist


def run(namespace, path, backend=None):
    """Run the checks; rank 0 writes {name: None or the traceback of the first rank that failed}."""
    dist.init_process_group(backend)
    results = {}
    for name, check in list(namespace.items()):
        if not name.startswith("check_"):
            continue
        try:
            check()
            mine = None
        except Exception:
            mine = traceback.format_exc()
            print(mine, file=sys.stderr, flush=True)  # the test shows it if the other ranks hang
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        results[name] = next((f"rank {r}: {text}" for r, text in enumerate(everyone) if text), None)
    if dist.get_rank() == 0:
        with open(path, "w") as file:
            json.dump(results, file)
    dist.destroy_process_group()
    sys.exit(any(results.values()))


def sweep(case, count, seed):
    """The descriptions of the faults of generated cases: `case(draw)` is None or a description, on each rank."""
    draw, faults = np.random.default_rng(seed), []
    for _ in range(count):
        result = case(draw)
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, result)
        faults += [f for f in every if f][:1]
    return faults


def longer_sweep(case):
    """Runs the program as `PROGRAM COUNT SEED`."""
    dist.init_process_group()
    faults = sweep(case, int(sys.argv[1]), int(sys.argv[2]))
    if dist.get_rank() == 0:
        print(f"{len(faults)} faults", *faults[:5], sep="\n- ")
    dist.destroy_process_group()
