"""Measure the overhead per call: the time of operations on tensors with a few elements, in mytorch and PyTorch.

    python benchmarks/overhead.py [--only sum,matmul] [--rounds 25] [--output overhead.json]

The tensors are so small that the arithmetic takes almost no time. Each figure is the fastest of several rounds on one thread. The libraries
take turns. The clock is the CPU time of the thread, so other programs do not affect it.
"""

import argparse
import json
import os
import sys
import time
import timeit
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpt2 import machine  # noqa: E402

import mytorch  # noqa: E402

UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor frac log log10 log1p log2 neg reciprocal "
    "relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc"
)
BINARY = "a + b|a - b|a * b|a / b|a ** 2|a * 2.0|1.0 - a|-a|a > b|a == b|a.maximum(b)|a.minimum(b)|a.pow(b)|a.atan2(b)"
OPS = """
    a.clamp(0.0, 1.0)|a.sum()|m.sum(1)|m.sum(1, keepdim=True)|a.mean()|m.mean(0)|m.max()|m.argmax(1)|m.var()
    a[1:3]|m[0]|m[:, 1]|m[i]|m[m > 0]|a.reshape(2, 2)|m.view(-1)|m.flatten()|m.unsqueeze(0)|m.transpose(0, 1)|m.T|m.t()
    m.permute(1, 0)|m.expand(3, 2, 8)|a.detach()|a.clone()|a.to(lib.float64)
    m @ w|F.linear(m, w, v)|lib.cat((a, b))|lib.stack((a, b))|lib.where(a > b, a, b)|m.gather(1, j)|m.chunk(2, 1)
    F.gelu(m)|F.silu(m)|F.softmax(m, -1)|F.log_softmax(m, -1)|F.layer_norm(m, (8,), v, v)|F.cross_entropy(m, i)|F.mse_loss(a, b)
    F.embedding(i, m)|F.scaled_dot_product_attention(q, q, q, is_causal=True)
"""
BACKWARD = """
    (a * b).sum().backward()|a.exp().backward(b0)|(m @ w).sum().backward()|F.linear(m, w, v).sum().backward()
    F.cross_entropy(m, i).backward()|F.layer_norm(m, (8,), v, v).sum().backward()
"""
CALLS = """
    linear(m)|mlp(m)|norm(m)|sgd.step()|adam.step()|linear.zero_grad()|sgd.zero_grad()
    Categorical(logits=m0).sample()|Categorical(logits=m0[0]).sample().item()|Categorical(logits=m).log_prob(i)|Normal(a, s).sample()
    Normal(a, s).log_prob(b)|act(m0[0])|a.item() if a.numel() == 1 else a.tolist()
"""


def split(text):
    return [statement for line in text.split("\n") for statement in line.strip().split("|") if statement]


def scope_of(lib, grad):
    """Returns the names in the statements: vectors a, b, v, matrices m, w, integers i, j, layers, optimizers and a policy."""
    nn = lib.nn

    def make(*shape):
        return (lib.rand(*shape) * 0.8 + 0.1).requires_grad_(grad)

    linear = nn.Linear(8, 8)
    mlp = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    parameters = {}
    for kind in ("sgd", "adam"):
        parameters[kind] = [nn.Parameter(lib.rand(4)) for _ in range(200)]
        for p in parameters[kind]:
            p.grad = lib.rand(4)
    Categorical, Normal = lib.distributions.Categorical, lib.distributions.Normal

    def act(observation):
        with lib.no_grad():
            return Categorical(logits=mlp(observation)).sample().item()

    return {
        "lib": lib, "F": nn.functional, "a": make(4), "b": make(4), "s": make(4), "v": make(8), "m": make(2, 8),
        "w": make(8, 8), "q": make(1, 2, 4, 8), "m0": lib.rand(2, 8), "b0": lib.rand(4), "i": lib.tensor([1, 0]),
        "j": lib.tensor([[1, 0], [0, 1]]), "linear": linear, "mlp": mlp, "norm": nn.LayerNorm(8), "act": act,
        "Categorical": Categorical, "Normal": Normal, "sgd": lib.optim.SGD(parameters["sgd"], lr=1e-9),
        "adam": lib.optim.Adam(parameters["adam"], lr=1e-9),
    }  # fmt: skip


def statements():
    """Yields (kind, statement, True if the inputs require gradients) for each row."""
    single = [f"a.{name}()" for name in UNARY.split()] + BINARY.split("|")
    for kind, rows, grads in (
        ("elementwise", single, (False, True)),
        ("op", split(OPS), (False, True)),
        ("backward", split(BACKWARD), (True,)),
        ("call", split(CALLS), (False,)),
    ):
        for statement in rows:
            for grad in grads:
                yield kind, statement, grad


def measure(statement, scopes, rounds):
    """Returns {library: microseconds per execution}, the fastest round of each library."""
    timers = {name: timeit.Timer(statement, timer=time.thread_time, globals=scope) for name, scope in scopes.items()}
    once = max(max(timer.timeit(3), timer.timeit(3)) / 3 for timer in timers.values())
    number = max(10, min(10_000, int(0.002 / once)))
    best = dict.fromkeys(timers, float("inf"))
    for _ in range(rounds):
        for name, timer in timers.items():
            best[name] = min(best[name], timer.timeit(number) / number * 1e6)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="number of rounds (default: 25)")
    parser.add_argument("--only", help="comma-separated words that select statements (default: all statements)")
    parser.add_argument("--output", help="path of a JSON file for the results")
    args = parser.parse_args()
    libraries = {"mytorch": mytorch}
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: only mytorch is measured.")
    else:
        torch.set_num_threads(1)
        libraries["torch"] = torch
    scopes = {grad: {name: scope_of(lib, grad) for name, lib in libraries.items()} for grad in (False, True)}
    rows = []
    for kind, statement, grad in statements():
        if args.only and not any(word in statement for word in args.only.split(",")):
            continue
        best = measure(statement, scopes[grad], args.rounds)
        row = {"what": statement, "kind": kind, "requires_grad": grad, **{k: round(v, 3) for k, v in best.items()}}
        if "torch" in row:
            row["ratio"] = round(row["mytorch"] / row["torch"], 2)
        rows.append(row)
        times = "  ".join(f"{name} {row[name]:8.2f}" for name in libraries)
        print(f"{statement:62} grad={grad!s:5} {times}  ratio {row.get('ratio', '-')}", flush=True)
    result = {"benchmark": "overhead", "unit": "microseconds", "machine": machine(), "rows": rows}
    if args.output:
        with open(args.output, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
