"""Measure sparse products, and attention with masks of blocks.

    python benchmarks/sparse.py [--only products,attention] [--rounds 5] [--output sparse.json]

`products` compares sparse matrix products and a training step of a graph network with PyTorch. `attention` compares flex_attention with
scaled_dot_product_attention with a dense mask, in mytorch. Each figure is the fastest of several rounds on one thread. The clock is the CPU
time of the process, so other programs do not affect it.
"""

import argparse
import json
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np  # noqa: E402
from gpt2 import machine  # noqa: E402

import mytorch  # noqa: E402
from mytorch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402
from mytorch.nn.functional import scaled_dot_product_attention  # noqa: E402

# (nodes, elements for each node, columns)
SIZES = [(2000, 8, 16), (10000, 16, 64), (50000, 8, 32)]


def fastest(run, rounds):
    """Returns the shortest CPU time of a call in ms, after one call without measurement."""
    run()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times) * 1000


def matrix(lib, layout, nodes, degree):
    rng = np.random.default_rng(0)
    indices = np.unique(np.stack([np.repeat(np.arange(nodes), degree), rng.integers(0, nodes, nodes * degree)]), axis=1)
    values = rng.standard_normal(indices.shape[1]).astype("float32")
    x = lib.sparse_coo_tensor(lib.tensor(indices), lib.tensor(values), (nodes, nodes)).coalesce()
    return x if layout == "coo" else x.to_sparse_csr()


def products(rounds):
    """Returns the times of products and of a training step in both libraries."""
    import torch

    torch.set_num_threads(1)
    torch.sparse.check_sparse_tensor_invariants.disable()  # the default, which warns if it is not explicit
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
    rows = []
    for nodes, degree, columns in SIZES:
        for layout in ("coo", "csr"):
            row = {"nodes": nodes, "degree": degree, "columns": columns, "layout": layout}
            for lib in (mytorch, torch):
                x = matrix(lib, layout, nodes, degree)
                dense = lib.ones(nodes, columns, requires_grad=True)
                weight = lib.ones(columns, columns, requires_grad=True)

                def forward(lib=lib, x=x, dense=dense):
                    with lib.no_grad():
                        lib.sparse.mm(x, dense)

                def step(lib=lib, x=x, dense=dense, weight=weight):
                    weight.grad = None
                    lib.sparse.mm(x, (lib.sparse.mm(x, dense.detach() @ weight)).relu() @ weight).sum().backward()

                name = lib.__name__
                row[f"{name}_forward_ms"] = fastest(forward, rounds)
                row[f"{name}_step_ms"] = fastest(step, rounds)
            row["forward_ratio"] = row["mytorch_forward_ms"] / row["torch_forward_ms"]
            row["step_ratio"] = row["mytorch_step_ms"] / row["torch_step_ms"]
            rows.append(row)
            print(json.dumps({name: round(n, 3) if isinstance(n, float) else n for name, n in row.items()}), flush=True)
    return rows


MASKS = {
    "causal": lambda b, h, q, kv: q >= kv,
    "window of 256": lambda b, h, q, kv: (q >= kv) & (q - kv < 256),
    "documents of 512": lambda b, h, q, kv: (q // 512 == kv // 512) & (q >= kv),
}


def attention(rounds, length=2048):
    """Returns the times of attention with a mask of blocks and with a dense mask."""
    rows = []
    q, k, v = (mytorch.randn(1, 4, length, 64, requires_grad=True) for _ in range(3))
    positions = mytorch.arange(length)
    for name, mask_mod in MASKS.items():
        block_mask = create_block_mask(mask_mod, None, None, length, length)
        dense = mask_mod(0, 0, positions[:, None], positions[None])
        row = {"mask": name, "length": length, "sparsity_percent": block_mask.sparsity()}
        for kind, run in (
            ("flex", partial(flex_attention, q, k, v, block_mask=block_mask)),
            ("dense_mask", partial(scaled_dot_product_attention, q, k, v, attn_mask=dense)),
        ):
            with mytorch.no_grad():
                row[f"{kind}_forward_ms"] = fastest(run, rounds)
            row[f"{kind}_step_ms"] = fastest(lambda run=run: run().sum().backward(), rounds)
        row["forward_ratio"] = row["flex_forward_ms"] / row["dense_mask_forward_ms"]
        row["step_ratio"] = row["flex_step_ms"] / row["dense_mask_step_ms"]
        rows.append(row)
        print(json.dumps({name: round(n, 3) if isinstance(n, float) else n for name, n in row.items()}), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="products,attention", help="measurements, separated by commas (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per measurement (default: 5)")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    results = {"machine": machine()}
    for kind in args.only.split(","):
        results[kind] = {"products": products, "attention": attention}[kind](args.rounds)
    if args.output:
        args.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
