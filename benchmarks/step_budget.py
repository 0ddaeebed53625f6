"""Estimate the launches, memory traffic, operations and memory of a GPT-2 training step on a GPU, without a GPU.

    python benchmarks/step_budget.py [--model base|small|block] [--compile] [--batch 32] [--dtype bfloat16] [--activation gelu_tanh] [--all] [--output FILE.json]
    python benchmarks/step_budget.py --results    # writes benchmarks/results/gpu-budget.json (base and small) for docs/benchmarks.md

The real training step (autocast, forward, loss, backward, clipping, AdamW) runs with the real sizes on arrays with shape, dtype and address,
but without contents. The fake CuPy of the tests records sizes instead of computing, and Triton launches are recorded instead of started. So
launches, bytes and memory are counted exactly. **Times are estimates**:

* Lower bound of a launch: the larger of bytes / 4.3 TB/s and operations / 790 TFLOP/s (51 in float32). Both are the rates of a copy and of a
  large matrix multiplication, measured on an H200.
* Likely time: matrix multiplications at 85 % of the rate, attention at the rates of cuDNN (327 TFLOP/s forward, 243 backward), memory
  at 90 %.
* Host time: 15 µs per CuPy call, 5 µs per matrix multiplication and 3 µs per Triton launch. It matters only for steps that are not captured.
"""

import argparse
import bisect
import json
import math
import sys
import types
import weakref
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gpu")]

import fake_cupy  # noqa: E402

TB_PER_S, TFLOPS = (
    4.3,
    {1: 51.0, 2: 790.0, 4: 51.0, 8: 25.0},
)  # measured on an H200; operations by the size of an element
LIKELY = {
    "product": 0.85,
    "attention._forward": 327 / 790,
    "attention": 243 / 790,
    "memory": 0.9,
}  # fractions of the rates above, estimated
HOST_US = {"CuPy": 15.0, "cuBLAS": 5.0, "Triton": 3.0, "alloc": 3.6}

# -- records ----------------------------------------------------------------------------------------------------------

LAUNCHES = []  # dicts: what, path, phase, bytes, flops, ms, host_us
PHASE = ["build"]


def note(what, path, moved, flops=0, itemsize=2):
    """Record one launch."""
    ms = max(moved / TB_PER_S / 1e9, flops / TFLOPS[itemsize] / 1e9)
    share = LIKELY["memory"]
    if flops / TFLOPS[itemsize] > moved / TB_PER_S / 1e3:
        name = what.split()[0]
        share = LIKELY.get(name, LIKELY["attention"] if name.startswith("attention.") else LIKELY["product"])
    LAUNCHES.append(
        {
            "what": what,
            "path": path,
            "phase": PHASE[0],
            "bytes": moved,
            "flops": flops,
            "ms": ms,
            "likely": ms / share,
            "us": HOST_US[path],
        }
    )


class Pool:
    """A model of CuPy's memory pool: it splits the smallest sufficient free block, and merges adjacent free blocks.

    Attributes:
        total: bytes requested from the GPU, in separate regions.
    """

    def __init__(self):
        self.total = self.last = 0
        self.regions = []  # (address, size)
        self.free, self.sizes, self.starts = [], {}, {}  # sorted (size, address); {address: size}; {end: address}

    def take(self, size):
        """Returns the address of a block."""
        place = bisect.bisect_left(self.free, (size, 0))
        if place == len(self.free):
            self.regions.append((self.last, size))
            self.total, self.last = self.total + size, self.last + size + 1
            return self.regions[-1][0]
        whole, at = self.free[place]
        self._remove(at)
        if whole > size:
            self._add(at + size, whole - size)
        return at

    def give(self, at, size):
        """Free a block."""
        if at + size in self.sizes:
            size += self._remove(at + size)
        if at in self.starts:
            at = self.starts[at]
            size += self._remove(at)
        self._add(at, size)

    def _add(self, at, size):
        bisect.insort(self.free, (size, at))
        self.sizes[at], self.starts[at + size] = size, at

    def _remove(self, at):
        size = self.sizes.pop(at)
        del self.starts[at + size]
        self.free.remove((size, at))
        return size

    def held(self):
        """Returns the bytes held after all completely free regions were released."""
        return sum(size for at, size in self.regions if self.sizes.get(at) != size)


class Memory:
    """Live bytes of the fake arrays, their peak, and the memory pool."""

    now = peak = 0
    pool = Pool()

    @classmethod
    def take(cls, array):
        """Count an array that owns its memory, until it is freed."""
        size = -(-array.nbytes // 512) * 512  # rounded like CuPy's pool
        cls.now += size
        cls.peak = max(cls.peak, cls.now)
        weakref.finalize(array, cls._give, size, cls.pool, cls.pool.take(size) if size else None)

    @classmethod
    def _give(cls, size, pool, at):
        cls.now -= size
        if size:
            pool.give(at, size)


def size_of(x):
    """Returns the bytes read from an array. Elements repeated by a stride of 0 count once."""
    if not isinstance(x, np.ndarray):
        return 0
    return math.prod(n for n, s in zip(x.shape, x.strides, strict=True) if s) * x.itemsize


# -- arrays without contents --------------------------------------------------------------------------------------------


class Blank(np.ndarray):
    """An array that is never written to, so it uses no memory. Arithmetic returns another Blank."""

    def __array_finalize__(self, source):
        if self.base is None:
            Memory.take(self)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        arrays = [x for x in inputs if isinstance(x, np.ndarray)]
        tiny = [np.ones((1,) * max(x.ndim, 1), x.dtype) if isinstance(x, np.ndarray) else x for x in inputs]
        moved, flops = sum(map(size_of, arrays)), 0
        if method == "reduce":
            dtype = ufunc.reduce(np.ones(2, arrays[0].dtype), dtype=options.get("dtype")).dtype
            axis = options.get("axis", 0)
            axes = range(arrays[0].ndim) if axis is None else np.atleast_1d(axis) % arrays[0].ndim
            shape = [1 if i in axes else n for i, n in enumerate(arrays[0].shape)]
            shape = tuple(shape if options.get("keepdims") else [n for i, n in enumerate(shape) if i not in axes])
        elif ufunc is np.matmul:
            a, b = arrays
            dtype, flops = (
                a.dtype,
                2
                * math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
                * a.shape[-2]
                * a.shape[-1]
                * b.shape[-1],
            )
            shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        else:
            dtype = ufunc(*tiny).dtype
            shape = np.broadcast_shapes(*(np.shape(x) for x in inputs))
        target = (out[0] if isinstance(out, tuple) else out) if out is not None else blank(shape, dtype)
        shapes = " ".join("x".join(map(str, x.shape)) or "()" for x in arrays)
        note(
            f"{ufunc.__name__} {shapes} {target.dtype}",
            "cuBLAS" if flops else "CuPy",
            moved + size_of(target),
            flops,
            target.itemsize,
        )
        return target

    def __array_function__(self, function, kinds, args, kwargs):
        if function in (np.concatenate, np.stack):
            parts = args[0]
            shape = list(parts[0].shape)
            axis = args[1] if len(args) > 1 else kwargs.get("axis", 0)
            if function is np.stack:
                shape.insert(axis % (len(shape) + 1), len(parts))
            else:
                shape[axis] = sum(p.shape[axis] for p in parts)
            made = blank(tuple(shape), parts[0].dtype)
            note(f"{function.__name__} {'x'.join(map(str, shape))} {made.dtype}", "CuPy", 2 * made.nbytes)
            return made
        if function is np.where:
            return np.minimum(
                np.minimum(args[1], args[2]), np.zeros(args[0].shape, bool)
            )  # a result with the same number of bytes
        if function in (np.zeros_like, np.ones_like):
            return blank(args[0].shape, kwargs.get("dtype") or args[0].dtype)
        if function not in _VIEWS:
            raise NotImplementedError(f"step_budget: memory traffic of {function.__name__} is not defined")
        return super().__array_function__(function, kinds, args, kwargs)

    def astype(self, dtype, order="K", casting="unsafe", subok=True, copy=True):
        dtype = np.dtype(dtype)
        if dtype == self.dtype and not copy:
            return self
        return self._copied(f"cast {self.dtype} to {dtype}" if dtype != self.dtype else "copy", dtype)

    def copy(self, order="C"):
        return self._copied("copy", self.dtype)

    def reshape(self, *shape, order="C"):
        try:
            return super().reshape(*shape, order=order, copy=False)
        except ValueError:
            return self._copied("copy to reshape", self.dtype).reshape(*shape)

    def _copied(self, what, dtype):
        made = blank(self.shape, dtype)
        note(f"{what} {'x'.join(map(str, self.shape))}", "CuPy", size_of(self) + size_of(made))
        return made

    def __setitem__(self, index, value):
        to = self[index]
        to = to if isinstance(to, np.ndarray) else np.empty((), self.dtype)
        note(f"write {'x'.join(map(str, to.shape))} {self.dtype}", "CuPy", size_of(to) + size_of(value))

    def fill(self, value):
        note(f"fill {'x'.join(map(str, self.shape))}", "CuPy", size_of(self))


_VIEWS = {  # functions without memory traffic, or with traffic through a method
    np.reshape, np.transpose, np.swapaxes, np.moveaxis, np.expand_dims, np.squeeze, np.broadcast_to, np.split, np.empty_like,
    np.sum, np.mean, np.max, np.ndim, np.shape, np.size, np.ravel,
}  # fmt: skip


def blank(shape, dtype):
    """Returns a Blank that owns its memory."""
    return np.ndarray.__new__(Blank, shape, dtype)


def _wrap(x):
    """Returns a fake array over a result, converted to a Blank if necessary."""
    if isinstance(x, (np.ndarray, np.generic)):
        return fake_cupy.ndarray(np.asanyarray(x))
    return type(x)(_wrap(v) for v in x) if isinstance(x, (tuple, list)) else x


_plain_init = fake_cupy.ndarray.__init__


def _init(self, a):
    if not isinstance(a, Blank):
        a = blank(a.shape, a.dtype) if a.base is None else a.view(Blank)  # as_strided returns a view of another class
    _plain_init(self, a)


_FILLED = ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "arange")
_plain_getattr = fake_cupy._Functions.__getattr__


def _getattr(self, name):
    function = _plain_getattr(self, name)
    if not isinstance(function, types.FunctionType):
        return function

    def noted(*args, **kwargs):
        if name == "ascontiguousarray" and isinstance(args[0], fake_cupy.ndarray):
            return (
                args[0]
                if args[0]._a.flags.c_contiguous
                else fake_cupy.ndarray(args[0]._a._copied("copy to contiguous", args[0].dtype))
            )
        made = function(*args, **kwargs)
        shape = "x".join(map(str, getattr(made, "shape", ())))
        if name in _FILLED:
            note(f"{name} {shape} {made.dtype}", "CuPy", made.nbytes)
        elif name.startswith("empty"):
            note(f"empty {shape} {made.dtype}", "alloc", 0)
        elif name in ("array", "asarray") and not isinstance(args[0], fake_cupy.ndarray):
            note(f"copy to the GPU {shape} {made.dtype}", "CuPy", made.nbytes)
        return made

    return noted


# -- Triton's launches ------------------------------------------------------------------------------------------------

TABLES = {}  # id of a table of addresses -> (the table, bytes of each column)


def _products(name, module, args):
    """Returns the number of multiplications and additions of a launch."""
    named = args.get
    if module == "attention" and name in ("_forward", "_backward_keys", "_backward_queries"):
        out = args["out_ptr"] if name == "_forward" else args["gk_ptr" if name == "_backward_keys" else "gq_ptr"]
        pairs = math.prod(args["q_ptr"].shape[:2]) * args["length_q"] * args["length_k"] / (2 if named("RIGHT") else 1)
        return {"_forward": 4, "_backward_keys": 8, "_backward_queries": 6}[name] * pairs * out.shape[-1]
    if module == "matmul":
        return 2 * math.prod(args["out_ptr"].shape) * args["k"]
    return 0


def _moved(name, module, args):
    """Returns the bytes of a launch: each array once, except for kernels with tables of addresses or row lookups."""
    arrays = {key: a for key, a in args.items() if hasattr(a, "dtype")}
    if module == "multi" and "table_ptr" in args:
        columns = TABLES[id(args["table_ptr"])][1]
        if name == "_squares":
            return columns[args["WHICH"]]
        if name == "_multiply":
            return 2 * columns[args["WHICH"]]
        return (
            sum(columns) + sum(columns) - columns[1] - (columns[-1] if args.get("COPY") else 0)
        )  # all arrays except gradients are also written
    if module == "cross_entropy" and name == "_both":  # the row is read from memory once, and written
        return 2 * arrays["x_ptr"].nbytes
    if module == "embedding" and name == "_forward":
        return 2 * arrays["out_ptr"].nbytes
    if module == "embedding" and name == "_backward":
        return arrays["g_ptr"].nbytes + 2 * arrays["g_ptr"].size * 4
    return sum(size_of(a._a) for a in arrays.values())


def launch(kernel, grid, *args, **options):
    """Record a launch instead of starting it."""
    values = {**dict(zip(kernel.arg_names, args, strict=False)), **options}
    module = kernel.fn.__module__.rpartition(".")[2]
    name = kernel.fn.__name__
    big = max((a for a in args if hasattr(a, "dtype")), key=lambda a: a.nbytes)
    note(
        f"{module}.{name} {'x'.join(map(str, big.shape))} {big.dtype}", "Triton", _moved(name, module, values),
        _products(name, module, values), big.itemsize,
    )  # fmt: skip


def product(a, b, out, accumulate=False, epilogue=1, bias=None, aux=None):
    """Record a matrix multiplication of cuBLASLt."""
    shapes = " ".join("x".join(map(str, x.shape)) for x in (a, b))
    moved = sum(size_of(x._a) for x in (a, b, out, bias, aux) if x is not None) + (size_of(out._a) if accumulate else 0)
    shapes += " gelu" * bool(epilogue & 32) + " gelu's slope" * bool(epilogue & 64)
    flops = 2 * math.prod(out.shape) * a.shape[-1]
    note(f"matmul {shapes} {'added to ' if accumulate else ''}{out.dtype}", "cuBLAS", moved, flops, a.itemsize)
    return out


def install():
    """Install the blank arrays and the recorder. Call this before importing kernels of mytorch."""
    globals()["__name__"] = "cupy.step_budget"  # this name marks functions without side effects for mytorch.compile
    fake_cupy.wrap = _wrap
    fake_cupy.ndarray.__init__ = _init
    fake_cupy.ndarray.tobytes = lambda self: b""  # a trace compares the contents before and after the call of a kernel
    fake_cupy._Functions.__getattr__ = _getattr
    fake_cupy.install()
    from mytorch.kernels import cublas
    from mytorch.kernels import launch as home

    cublas._run = product
    home.launch = launch
    home.why_not = lambda: None
    home.processors = lambda: 132
    home.is_capturing = lambda: False
    from mytorch.kernels.triton import multi

    plain = multi.Table.__init__

    def init(self, xp, *columns):
        plain(self, xp, *columns)
        TABLES[id(self.table)] = (self.table, [sum(a.nbytes for a in column) for column in columns])

    multi.Table.__init__ = init


# -- the step ---------------------------------------------------------------------------------------------------------


def step_of(size, batch, half, activation="gelu", compiled=False):
    """Returns a function that runs one training step like train_gpt2.py, and the bytes of parameters and moments."""
    import mytorch
    from mytorch import amp
    from mytorch.models import GPT2, GPT2Config, fuse_
    from mytorch.models import gpt2 as home
    from mytorch.nn.utils import clip_grad_norm_

    others = {"vocab_size": 65, "context_length": 256} if size == "small" else {}
    config = GPT2Config.sized(size, activation=activation, **others)
    home.init = types.SimpleNamespace(normal_=lambda *a, **k: None, zeros_=lambda *a: None)  # contents are not needed
    model = fuse_(GPT2(config)).to("cuda")
    call = mytorch.compile(model) if compiled else model
    optimizer = mytorch.optim.AdamW(model.parameter_groups(0.1), lr=6e-4, betas=(0.9, 0.95))
    x, y = (mytorch.zeros(batch, config.context_length, dtype=mytorch.int64).to("cuda") for _ in range(2))

    def step():
        PHASE[0] = "forward"
        with amp.autocast("cuda", getattr(mytorch, half or "bfloat16"), enabled=half is not None):
            loss = call(x, y)
        PHASE[0] = "backward"
        loss.backward()
        PHASE[0] = "update"
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, model


def block_step(batch, half, compiled):
    """Returns a function that runs forward and backward of a transformer block without the library's fused ops, and the block."""
    import mytorch
    from mytorch import amp, nn

    width, heads, length = 768, 12, 1024

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(mytorch.empty(width))

        def forward(self, x):
            return x * mytorch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.gain

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before_attention, self.before_mlp = RMSNorm(), RMSNorm()
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            split = self.qkv(self.before_attention(x)).split(width, -1)
            q, k, v = (t.view(batch, length, heads, width // heads).transpose(1, 2) for t in split)
            scores = mytorch.where(mask, q @ k.mT * (width // heads) ** -0.5, float("-inf"))
            e = mytorch.exp(scores - scores.amax(-1, keepdim=True))
            y = (e / e.sum(-1, keepdim=True)) @ v
            x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
            h = self.up(self.before_mlp(x))
            return x + self.down(0.5 * h * (1 + mytorch.tanh(0.7978845608 * (h + 0.044715 * h * h * h))))

    mask = mytorch.ones(length, length).tril().to("cuda") > 0
    block = Block().to("cuda")
    call = mytorch.compile(block) if compiled else block
    x = mytorch.zeros(batch, length, width).to("cuda").requires_grad_()

    def step():
        PHASE[0] = "forward"
        with amp.autocast("cuda", getattr(mytorch, half or "bfloat16"), enabled=half is not None):
            out = call(x)
        PHASE[0] = "backward"
        out.backward(mytorch.empty_like(out, requires_grad=False))

    return step, block


def measure(size, batch, half, activation="gelu", compiled=False):
    """Returns the launches of a step and its memory.

    The memory consists of the peak, the size of parameters and moments, and the size of CuPy's pools for a captured step: the default pool
    after three steps, and the pool of the graph.
    """
    Memory.pool = Pool()
    if size == "block":
        step, model = block_step(batch, half, compiled)
    else:
        step, model = step_of(size, batch, half, activation, compiled)
    for _ in range(4 if compiled else 3):
        step()
    LAUNCHES.clear()
    resident, Memory.peak = Memory.now, Memory.now
    rest, Memory.pool = Memory.pool.held(), Pool()
    step()
    count = sum(p.numel() for p in model.parameters())
    return {"model": size, "batch": batch, "dtype": half, "parameters": count, "launches": list(LAUNCHES),
            "resident_GiB": resident / 2**30, "peak_GiB": Memory.peak / 2**30,
            "held_GiB": (rest + Memory.pool.total) / 2**30}  # fmt: skip


def kinds_of(rows):
    """Returns ((phase, launch), sums) for launches of one kind and size, longest first."""
    kinds = defaultdict(lambda: {"count": 0, "bytes": 0, "flops": 0, "ms": 0.0})
    for row in rows:
        kind = kinds[row["phase"], row["what"]]
        kind["count"] += 1
        for key in ("bytes", "flops", "ms"):
            kind[key] += row[key]
    return sorted(kinds.items(), key=lambda item: -item[1]["ms"])


def totals(rows):
    """Returns the sums over some launches."""
    started = [r for r in rows if r["path"] != "alloc"]
    products = [r for r in started if r["flops"]]
    return {
        "launches": len(started), "bound_ms": sum(r["ms"] for r in started), "likely_ms": sum(r["likely"] for r in started),
        "products_ms": sum(r["ms"] for r in products), "TFLOP": sum(r["flops"] for r in products) / 1e12,
        "GB_without_products": sum(r["bytes"] for r in started if not r["flops"]) / 1e9, "host_ms": sum(r["us"] for r in rows) / 1e3,
    }  # fmt: skip


def write_results():
    """Write the figures for docs/benchmarks.md: sums for the models, and the longest launches."""
    results = []
    for size, activation in (("base", "gelu"), ("base", "gelu_tanh"), ("small", "gelu")):
        estimate = measure(size, 32, "bfloat16", activation)
        estimate["model"] += ", GELU by tanh" * (activation == "gelu_tanh")
        rows = estimate.pop("launches")
        passes = [(phase, what, kind) for (phase, what), kind in kinds_of(rows) if not kind["flops"]][:12]
        estimate["all"] = totals(rows)
        estimate["passes"] = [{"phase": phase, "what": what, **kind} for phase, what, kind in passes]
        results.append(estimate)
    (ROOT / "benchmarks" / "results" / "gpu-budget.json").write_text(json.dumps(results, indent=1) + "\n")


def table(estimate, everything=False):
    """Returns the figures as text: launches grouped by kind and size, longest first."""
    lines = [f"{'launch (estimates, not measured)':<78}{'phase':>9}{'count':>7}{'MB':>10}{'GFLOP':>10}{'ms':>8}"]
    ordered = kinds_of(estimate["launches"])
    for (phase, what), kind in ordered if everything else ordered[:40]:
        lines.append(
            f"{what[:77]:<78}{phase:>9}{kind['count']:>7}{kind['bytes'] / 1e6:>10.1f}{kind['flops'] / 1e9:>10.1f}{kind['ms']:>8.3f}"
        )
    rows = estimate["launches"]
    lines.append("")
    for phase in ("forward", "backward", "update", "all"):
        sums = totals([r for r in rows if phase in (r["phase"], "all")])
        lines.append(
            f"{phase:<9} bound {sums['bound_ms']:6.2f} ms, likely {sums['likely_ms']:6.2f} (of the bound: products {sums['products_ms']:.2f}, "
            f"memory {sums['bound_ms'] - sums['products_ms']:.2f}: {sums['GB_without_products']:.1f} GB), {sums['launches']} launches, "
            f"host about {sums['host_ms']:.1f} ms if not captured"
        )
    for path in HOST_US:
        lines.append(f"  {path}: {sum(r['path'] == path for r in rows)} calls")
    lines.append(
        f"memory    resident {estimate['resident_GiB']:.2f} GiB (weights, moments), peak {estimate['peak_GiB']:.2f} GiB, "
        f"held by CuPy's pools {estimate['held_GiB']:.2f} GiB"
    )
    return "\n".join(lines)


def main():
    """Print the table, or write all launches as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model",
        default="base",
        choices=("demo", "small", "base", "large", "block"),
        help="size of the GPT-2 model, or a transformer block without fused ops, forward and backward (default: base)",
    )
    parser.add_argument("--batch", type=int, default=32, help="batch size (default: 32)")
    parser.add_argument(
        "--dtype",
        default="bfloat16",
        choices=("bfloat16", "float16", "float32"),
        help="dtype of autocast (default: bfloat16)",
    )
    parser.add_argument(
        "--activation", default="gelu", choices=("gelu", "gelu_tanh"), help="activation function (default: gelu)"
    )
    parser.add_argument("--compile", action="store_true", help="compile the model with mytorch.compile")
    parser.add_argument("--all", action="store_true", help="print all kinds of launches (default: the 40 longest)")
    parser.add_argument("--in-order", action="store_true", help="print all launches in order")
    parser.add_argument("--output", help="path of a JSON file for all launches in order")
    parser.add_argument("--results", action="store_true", help="write benchmarks/results/gpu-budget.json")
    options = parser.parse_args()
    install()
    if options.results:
        return write_results()
    estimate = measure(
        options.model,
        options.batch,
        None if options.dtype == "float32" else options.dtype,
        options.activation,
        options.compile,
    )
    if options.output:
        Path(options.output).write_text(json.dumps(estimate, indent=1))
    if options.in_order:
        for r in estimate["launches"]:
            print(f"{r['phase']:<9}{r['path']:<7}{r['what'][:90]:<92}{r['bytes'] / 1e6:>10.1f} MB{r['ms']:>8.3f} ms")
    print(table(estimate, options.all))


if __name__ == "__main__":
    main()
