"""Define a custom op with a custom Numba kernel: one compiled loop instead of several NumPy operations.

python -m examples.custom_kernel --save times.png
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import numpy as np

import mytorch
from examples.pictures import save_curves
from mytorch.cli.arguments import ArgumentParser, count, new_file, run_script
from mytorch.ops.dispatch.op import op


@op(dtype="float")
def bent_identity(xp, input):
    """Computes (sqrt(input^2 + 1) - 1) / 2 + input elementwise: the reference for NumPy and CuPy arrays."""
    return (xp.sqrt(input * input + 1.0) - 1.0) * 0.5 + input


bent_identity.grad(input=lambda g, input, xp: g * (input / xp.sqrt(input * input + 1.0) * 0.5 + 1.0))
bent_identity.register_kernel(cpu=__name__)  # the three functions below are the kernel


def accepts(input):
    """Returns True for arrays that the kernel supports."""
    return input.dtype == np.float32 and input.flags.c_contiguous


def forward(xp, input):
    """Computes the op with one loop."""
    out = np.empty_like(input)
    compiled()[0](input.ravel(), out.ravel())
    return out


def vjp(g, input):
    """Computes the gradients of the inputs. The names of the parameters select the values that are saved for backward."""
    out = np.empty_like(input)
    compiled()[1](np.ascontiguousarray(g).ravel(), input.ravel(), out.ravel())
    return (out,)


_loops = []


def compiled():
    """Compiles the two loops on the first call and returns them."""
    if not _loops:
        from numba import njit

        @njit(fastmath=True, error_model="numpy")  # allows vectorization
        def bend(x, out):
            for i in range(len(x)):
                out[i] = (np.sqrt(x[i] * x[i] + np.float32(1)) - np.float32(1)) * np.float32(0.5) + x[i]

        @njit(fastmath=True, error_model="numpy")  # allows vectorization
        def bend_back(g, x, out):
            for i in range(len(x)):
                out[i] = g[i] * (x[i] / np.sqrt(x[i] * x[i] + np.float32(1)) * np.float32(0.5) + np.float32(1))

        _loops.extend((bend, bend_back))
    return _loops


def seconds(x, fused, repeats):
    """Measures forward and backward; returns the shortest time in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        bent_identity(x, fused=fused).sum().backward()
        times.append(time.perf_counter() - start)
        x.grad = None
    return min(times)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=30, help="number of measurements per size")
    parser.add_argument("--most", type=count, default=4**11, help="number of elements of the largest tensor")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="image file for the times (needs matplotlib)")
    args = parser.parse_args()
    try:
        import numba  # noqa: F401  (it takes half a second to import)
    except ImportError:
        raise SystemExit('custom_kernel.py: needs Numba: pip install ".[numba]"') from None

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
        for fused, times in results.items():
            times.append(seconds(x, fused, args.repeats))
        print(
            f"{size:>8} elements: reference {results[False][-1] * 1e6:8.0f} µs, kernel {results[True][-1] * 1e6:8.0f} µs"
        )
    if args.save:
        per_element = {k: [t / n * 1e9 for t, n in zip(v, sizes, strict=True)] for k, v in results.items()}
        curves = {"reference (NumPy)": (sizes, per_element[False]), "kernel (Numba)": (sizes, per_element[True])}
        save_curves(args.save, curves, "elements", "ns per element, forward and backward", log="both")
    print(f"speedup {results[False][-1] / results[True][-1]:.2f} on {sizes[-1]} elements")


if __name__ == "__main__":
    run_script(main)
