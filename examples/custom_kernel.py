"""An op of your own with a kernel of your own: one loop, compiled by Numba, in place of several passes of NumPy.

python -m examples.custom_kernel --save times.png
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import numpy as np

import mytorch
from examples.pictures import save_curves
from mytorch.cli.arguments import ArgumentParser, count, new_file, run_script
from mytorch.dispatch.op import op


@op(dtype="float")
def bent_identity(xp, input):
    """(sqrt(input^2 + 1) - 1) / 2 + input, elementwise: the reference, over NumPy's arrays or CuPy's."""
    return (xp.sqrt(input * input + 1.0) - 1.0) * 0.5 + input


bent_identity.grad(input=lambda g, input, xp: g * (input / xp.sqrt(input * input + 1.0) * 0.5 + 1.0))
bent_identity.register_kernel(cpu=__name__)  # this file is the kernel's module, with the three functions below


def accepts(input):
    """Which arrays the kernel takes."""
    return input.dtype == np.float32 and input.flags.c_contiguous


def forward(xp, input):
    """The op by one loop."""
    out = np.empty_like(input)
    compiled()[0](input.ravel(), out.ravel())
    return out


def vjp(g, input):
    """The gradients of the inputs, here of one: its parameters' names say what is saved for backward."""
    out = np.empty_like(input)
    compiled()[1](np.ascontiguousarray(g).ravel(), input.ravel(), out.ravel())
    return (out,)


_loops = []


def compiled():
    """The two loops, compiled once."""
    if not _loops:
        from numba import njit

        @njit(fastmath=True, error_model="numpy")  # so that the loop is vectorized
        def bend(x, out):
            for i in range(len(x)):
                out[i] = (np.sqrt(x[i] * x[i] + np.float32(1)) - np.float32(1)) * np.float32(0.5) + x[i]

        @njit(fastmath=True, error_model="numpy")  # so that the loop is vectorized
        def bend_back(g, x, out):
            for i in range(len(x)):
                out[i] = g[i] * (x[i] / np.sqrt(x[i] * x[i] + np.float32(1)) * np.float32(0.5) + np.float32(1))

        _loops.extend((bend, bend_back))
    return _loops


def seconds(x, fused, repeats):
    """The least time of a forward and a backward."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        bent_identity(x, fused=fused).sum().backward()
        times.append(time.perf_counter() - start)
        x.grad = None
    return min(times)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=30)
    parser.add_argument("--most", type=count, default=4**11, help="elements of the largest tensor")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="a picture of the times (needs matplotlib)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    x = mytorch.randn(1000, dtype=mytorch.float32)
    error = (bent_identity(x, fused=True) - bent_identity(x, fused=False)).abs().max().item()
    print(f"the kernel differs from the reference by {error:.1e}")
    small = mytorch.randn(5, dtype=mytorch.float64, requires_grad=True)
    print(
        f"first and second derivatives agree with finite differences: {mytorch.autograd.gradgradcheck(bent_identity, (small,))}"
    )
    sizes = [4**n for n in range(4, 12) if 4**n <= args.most]
    results = {True: [], False: []}
    for size in sizes:
        x = mytorch.randn(size, requires_grad=True)
        for fused, found in results.items():
            found.append(seconds(x, fused, args.repeats))
        print(
            f"{size:>8} elements: reference {results[False][-1] * 1e6:8.0f} µs, kernel {results[True][-1] * 1e6:8.0f} µs"
        )
    if args.save:
        per_element = {k: [t / n * 1e9 for t, n in zip(v, sizes, strict=True)] for k, v in results.items()}
        curves = {"reference (NumPy)": (sizes, per_element[False]), "kernel (Numba)": (sizes, per_element[True])}
        save_curves(args.save, curves, "elements", "ns per element, both ways", log="both")
    print(f"speedup {results[False][-1] / results[True][-1]:.2f} on {sizes[-1]} elements")


if __name__ == "__main__":
    run_script(main)
