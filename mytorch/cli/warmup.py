"""`mytorchrun warmup`: compile the CPU kernels ahead of time. Numba keeps them in its cache on disk."""

import functools
import importlib
import importlib.util
import math
import multiprocessing
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

import mytorch
from mytorch import nn
from mytorch.kernels import parts, threads
from mytorch.nn import functional as F
from mytorch.ops.quantized_linear import pack, quantized_linear
from mytorch.ops.random import standard_gamma

from .arguments import ArgumentParser, count


def _numbers(*shape):
    return mytorch.randn(*shape, requires_grad=True)


def _places(*shape):
    return mytorch.zeros(*shape, dtype=mytorch.int64)


def _layer(layer, *shape):
    """Return a layer's output in training and in evaluation mode."""
    x = _numbers(*shape)
    return layer(x), layer.eval()(x)


def _activation(function):
    return function(_numbers(128, 128))


def _convolutions():
    """Convolve with the channel counts of each tile size."""
    return [F.conv2d(_numbers(2, n, 9, 9), _numbers(n, n, 3, 3)) for n in (1, 4, 8)]


def _indices():
    x, index, rows = _numbers(128, 128), _places(128, 128), _places(128)
    at = [(1, index), (0, rows[:, None].expand(128, 128))]
    changed = [x.detach().scatter_reduce(*places, x.detach(), how) for how in ("amax", "amin", "prod") for places in at]
    also = [
        x.gather(0, index),
        x.scatter_add(0, index, x),
        x.scatter_add(1, index, x),
        x.scatter(0, index, x),
        x.scatter(1, index, x),
        x.index_select(1, rows),
        x.index_copy(0, rows, x),
    ]
    for dtype in (mytorch.int8, mytorch.int16, mytorch.int32, mytorch.int64):
        x.detach().to(dtype).flip(1)
    return x.gather(1, index), *also, *changed, F.embedding(rows, x), x.index_add(0, rows, x), x[rows]


def _choices():
    x, y = _numbers(128, 128), _numbers(128, 128)
    return mytorch.where(x > 0, x, y), x.masked_fill(y > 0, 0.0), mytorch.where(x > 0, mytorch.zeros(()), y)


def _sums():
    x = _numbers(128, 128)
    scans = [f(dim) for f in (x.cumsum, x.cumprod, lambda dim: x.cummax(dim).values) for dim in (0, 1)]
    x.detach().long().sum()
    return (
        x.sum(),
        x.sum(0),
        x.sum(1),
        x.logsumexp(0),
        x.logsumexp(1),
        x.var(1),
        x.norm(dim=1),
        x.norm(1, dim=1),
        x.prod(0),
        x.prod(1),
        x.topk(3)[0],
        *scans,
    )


def _halves():
    x = _numbers(128, 128)
    half = x.bfloat16()
    return x, half @ half, half @ half.T, half.float(), x.half().float()


def _draws():
    x = mytorch.full((1 << 15,), 20.0)
    mytorch.randperm(len(x))
    mytorch.poisson(x)
    mytorch.binomial(x * 10, x / 40)
    standard_gamma(x)
    for weights in (x, x.double()):
        mytorch.multinomial(weights, 2, replacement=True)
    return ()


def _searches():
    x = mytorch.ones(128, 128)
    for dtype in (mytorch.float32, mytorch.float64, mytorch.int64):
        values = x.to(dtype)
        mytorch.searchsorted(values[0], values), mytorch.searchsorted(values, values)
    return ()


def _attention():
    x = _numbers(2, 2, 64, 64)
    return F.scaled_dot_product_attention(x, x, x, is_causal=True), F.scaled_dot_product_attention(x[:, :, :1], x, x)


def _quantized():
    codes, scale, halves = np.ones((64, 64), np.int8), np.ones(64, np.float32), np.ones((64, 1), np.float16)
    for rows in (1, 16, 32):
        x = _numbers(rows, 64).detach()
        quantized_linear(x, weights=[codes], scales=[scale], offsets=[None], group_size=None)
        for inputs in (x, x * math.inf):  # infinite numbers need the loops without integers
            quantized_linear(inputs, weights=[pack(codes, 64)], scales=[halves], offsets=[None], group_size=64)
    return ()


def _losses():
    losses = F.mse_loss, F.huber_loss, F.binary_cross_entropy_with_logits
    return [loss(_numbers(128, 128), mytorch.ones(128, 128)) for loss in losses]


def _arithmetic():
    x, y, z = _numbers(128, 128), _numbers(128, 128), _numbers(128, 128)
    return x.lerp(y, 0.3), x.lerp(y, z), x.addcmul(y, z), x.addcdiv(y, z), x.rsqrt(), x.hypot(y)


def _functions():
    x = mytorch.ones(128, 128)
    for dtype in (mytorch.float32, mytorch.float64):
        for name, operands in parts.SCALAR.items():
            getattr(mytorch, name)(*[x.to(dtype)] * operands)
    return ()


def _steps(name, **options):
    p = nn.Parameter(mytorch.ones(128, 128))
    p.grad = mytorch.ones(128, 128)
    optimizer = getattr(mytorch.optim, name)([p], **options)
    optimizer.step(), optimizer.step()  # some optimizers use their running sums from the second step
    return ()


def _sparse_products():
    """Return products of CSR matrices of both dtypes and dense matrices."""
    matrices = [mytorch.ones(70, 70, dtype=dtype) for dtype in (mytorch.float32, mytorch.float64)]
    return [x.to_sparse_csr() @ x for x in matrices]


_ACTIVATIONS = (
    F.sigmoid, F.silu, F.relu, F.hardswish, F.leaky_relu, F.elu, F.softplus, F.logsigmoid, F.hardsigmoid, F.hardtanh, F.hardshrink,
    F.softshrink,
)  # fmt: skip


def _products():
    """Multiply matrices with more rows than columns and with fewer, each contiguous or transposed."""
    many, square, few = _numbers(160, 128), _numbers(128, 128), _numbers(96, 256)
    return many @ square, many @ square.T, few @ _numbers(256, 128), few @ _numbers(128, 256).T


# Tasks in order of submission; tasks with the longest compile time come first.
TASKS = {
    "convolution": _convolutions,
    "max_pool": lambda: F.max_pool2d(_numbers(8, 8, 20, 20), 2),
    "lstm": lambda: nn.LSTM(16, 16)(_numbers(4, 4, 16))[0],
    "gru": lambda: nn.GRU(16, 16)(_numbers(4, 4, 16))[0],
    "batch_norm": lambda: _layer(nn.BatchNorm2d(16), 4, 16, 16, 16),
    "indexing": _indices,
    "sums": _sums,
    "bfloat16": _halves,
    "random numbers": _draws,
    "searches": _searches,
    "cross_entropy": lambda: F.cross_entropy(_numbers(128, 128), _places(128)),
    "losses": _losses,
    "attention": _attention,
    "group_norm": lambda: F.group_norm(_numbers(4, 16, 16, 16), 4, _numbers(16), _numbers(16)),
    "layer_norm": lambda: F.layer_norm(_numbers(128, 128), (128,), _numbers(128), _numbers(128)),
    "softmax": lambda: [F.softmax(_numbers(128, 128), dim) for dim in (0, 1)],
    "log_softmax": lambda: [F.log_softmax(_numbers(128, 128), dim) for dim in (0, 1)],
    "gelu": lambda: [F.gelu(_numbers(128, 128), approximate=how) for how in ("none", "tanh")],
    "grid_sample": lambda: [
        F.grid_sample(_numbers(2, 3, 9, 9).to(dtype), _numbers(2, 9, 9, 2).to(dtype), align_corners=False)
        for dtype in (mytorch.float32, mytorch.float64)
    ],
    "ctc_loss": lambda: [
        F.ctc_loss(_numbers(16, 4, 8).to(dtype).log_softmax(-1), _places(4, 3) + 1, [16] * 4, [3] * 4)
        for dtype in (mytorch.float32, mytorch.float64)
    ],
    "linear": lambda: nn.Linear(515, 512)(_numbers(1, 515)),
    "products": _products,
    "quantized": _quantized,
    **{f.__name__: functools.partial(_activation, f) for f in _ACTIVATIONS},
    "sign": lambda: _numbers(128, 128).sign(),
    "error functions": lambda: [
        f(x) for f in (mytorch.erf, mytorch.erfc) for x in (_numbers(128, 128), _numbers(128, 128).double())
    ],
    "logaddexp": lambda: mytorch.logaddexp(_numbers(128, 128), _numbers(128, 128)),
    "where": _choices,
    "arithmetic": _arithmetic,
    "functions": _functions,
    **{name: functools.partial(_steps, name) for name in "Adam RMSprop Adagrad Adadelta Adamax NAdam".split()},
    "AMSGrad": lambda: _steps("Adam", amsgrad=True),
    "SGD": lambda: _steps("SGD"),
    "momentum": lambda: _steps("SGD", momentum=0.9),
    "sparse products": _sparse_products,
}


def perform(task):
    """Run a task forward and backward with every available kernel, and return the names of newly compiled kernels."""
    compiled = importlib.import_module("mytorch.kernels.numba.progress").compiled
    before = len(compiled)
    with mytorch.fused(True), threads.everything(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about ops without a kernel
        made = TASKS[task]()
        for out in made if isinstance(made, (tuple, list)) else (made,):
            if out.requires_grad:
                out.backward(mytorch.ones_like(out))
    return compiled[before:]


def _run(tasks, processes):
    """Yield (task, compiled kernels) for each task, as the tasks end."""
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
    with pool:
        running = {pool.submit(perform, task): task for task in tasks}
        for done in as_completed(running):
            yield running[done], done.result()


def main(argv):
    """Run the command and return 0, or 1 without Numba."""
    parser = ArgumentParser(prog="mytorchrun warmup", description="Compile the CPU kernels into Numba's cache on disk.")
    parser.add_argument("--processes", type=count, default=mytorch.get_num_threads(), help="parallel compile processes")
    only = f"kernel groups to compile (default: all): {', '.join(TASKS)}"
    parser.add_argument("--only", choices=list(TASKS), nargs="+", metavar="NAME", help=only)
    args = parser.parse_args(argv)
    if importlib.util.find_spec("numba") is None:
        print("mytorchrun warmup: Numba is not installed. Run `pip install numba`.", file=sys.stderr)
        return 1
    start, tasks, kernels = time.perf_counter(), args.only or list(TASKS), []
    for n, (task, compiled) in enumerate(_run(tasks, min(args.processes, len(tasks))), 1):
        kernels += compiled
        end = "\r" if sys.stdout.isatty() else "\n"
        print(f"{n}/{len(tasks)} {task}: {len(compiled)} compiled".ljust(60), end=end, flush=True)
    folder = importlib.import_module("mytorch.kernels.numba.optimizers").adam.stats.cache_path
    made, seconds = len(set(kernels)), time.perf_counter() - start
    compiled = f"{made} kernel{'s' * (made > 1)} compiled in {seconds:.1f} s,"
    what = compiled if made else "all kernels were already compiled,"
    print(f"{what} in {folder}".ljust(60))
    return 0
