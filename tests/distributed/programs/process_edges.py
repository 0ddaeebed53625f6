"""Generated edges of several processes: collectives of all dtypes and layouts, hooks, and Join with uneven inputs."""

import copy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks
from mytorch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from mytorch.distributed.fsdp import fully_shard
from mytorch.distributed.join import Join
from mytorch.distributed.tensor import DTensor
from mytorch.nn.parallel import DistributedDataParallel as DDP

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
COMPLEX = ("complex64", "complex128")
# -- collectives ----------------------------------------------------------------------------------------------------


def of_layout(values, dtype, layout):
    """Returns a tensor with the values, and another layout in memory."""
    x = mytorch.from_numpy(np.array(values)).to(getattr(mytorch, dtype))
    if layout == "plain" or not x.ndim:
        return x
    if layout == "turned":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    wide = mytorch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, dtype=x.dtype)
    part = wide[..., 1::2] if layout == "stepped" else wide[..., 1 : x.shape[-1] + 1]
    part.copy_(x)
    return part


LAYOUTS = ("plain", "turned", "stepped", "offset")
SHAPES = ((), (1,), (0,), (5,), (2, 0, 3), (3, 4), (2, 1, 3))
REDUCTIONS = {
    "SUM": lambda v: v.sum(0), "PRODUCT": lambda v: v.prod(0), "MIN": lambda v: v.min(0), "MAX": lambda v: v.max(0),
    "AVG": lambda v: v.mean(0), "BAND": np.bitwise_and.reduce, "BOR": np.bitwise_or.reduce, "BXOR": np.bitwise_xor.reduce,
}  # fmt: skip


def reductions_of(dtype):
    if dtype == "bool":
        return ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    if dtype in INTEGERS:
        return ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    return ("SUM", "PRODUCT", "AVG") if dtype in COMPLEX else ("SUM", "PRODUCT", "MIN", "MAX", "AVG")


def reduced(values, op, dtype):
    if dtype == "bool":
        op = {"SUM": "MAX", "PRODUCT": "MIN"}.get(op, op)
    with np.errstate(all="ignore"):
        return REDUCTIONS[op](values)


def equals(tensor, wanted, dtype):
    found = tensor.detach()
    assert str(found.dtype).endswith(dtype), f"the dtype is {found.dtype}"
    found = np.asarray(found.to(mytorch.complex128) if dtype in COMPLEX else found.double())
    wanted = np.asarray(wanted, found.dtype)
    if dtype in INTEGERS:  # wraps
        wanted = np.asarray(wanted.astype(np.int64).astype(dtype), np.float64)
    assert found.shape == wanted.shape, f"the shape is {found.shape}"
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "complex64": 1e-6}.get(dtype, 1e-12)
    assert np.allclose(found, wanted, rtol=tolerance, atol=0), f"{found.tolist()}, not {wanted.tolist()}"


def one_collective(draw):
    """None, or the description of a difference."""
    n, rank = dist.get_world_size(), dist.get_rank()
    dtype = str(draw.choice([*FLOATS, *INTEGERS, *COMPLEX, "bool"]))
    shape = SHAPES[draw.integers(len(SHAPES))]
    layouts = [str(draw.choice(LAYOUTS)) for _ in range(2 * n + 1)]
    values = draw.integers(0, 2 if dtype == "bool" else 9, (n, n, *shape))  # of each process, for each process
    if dtype == "bool":
        values = values.astype(bool)
    if dtype in COMPLEX:
        values = values + 1j * draw.integers(0, 3, values.shape)
    op, root = str(draw.choice(reductions_of(dtype))), int(draw.integers(n))
    wait = bool(draw.integers(2))
    mine = of_layout(values[rank, 0], dtype, layouts[n])
    parts = [of_layout(values[rank, i], dtype, layouts[i]) for i in range(n)]
    empty = lambda i: of_layout(np.zeros(shape), dtype, layouts[n + i])  # noqa: E731
    reduce_op, here = dist.ReduceOp[op], rank == root
    name = str(
        draw.choice(
            "all_reduce broadcast reduce all_gather all_gather_into_tensor gather scatter reduce_scatter reduce_scatter_tensor "
            "all_to_all all_to_all_single send".split()
        )
    )
    text = f"{name}({op}) of {dtype} {shape}, {layouts}, root {root}, async={wait}"
    untouched = [(mine, values[rank, 0]), *zip(parts, values[rank], strict=True)]
    results = []  # (tensor, expected values)
    outs = [empty(i) for i in range(n)]
    joined = lambda v: v.reshape(n * shape[0], *shape[1:]) if shape else v.reshape(n)  # noqa: E731
    try:
        if name == "all_reduce":
            work = dist.all_reduce(mine, reduce_op, async_op=wait)
            results = [(mine, reduced(values[:, 0], op, dtype))]
        elif name == "broadcast":
            work = dist.broadcast(mine, root, async_op=wait)
            results = [(mine, values[root, 0])]
        elif name == "reduce":
            work = dist.reduce(mine, root, reduce_op, async_op=wait)
            results = [(mine, reduced(values[:, 0], op, dtype) if here else values[rank, 0])]
        elif name == "all_gather":
            work = dist.all_gather(outs, mine, async_op=wait)
            results = list(zip(outs, values[:, 0], strict=True))
        elif name == "all_gather_into_tensor":
            out = of_layout(joined(values[:, 0] * 0), dtype, layouts[-1])
            work = dist.all_gather_into_tensor(out, mine, async_op=wait)
            results = [(out, joined(values[:, 0]))]
        elif name == "gather":
            work = dist.gather(mine, outs if here else None, root, async_op=wait)
            results = list(zip(outs, values[:, 0], strict=True)) if here else []
        elif name == "scatter":
            work = dist.scatter(outs[0], parts if here else None, root, async_op=wait)
            results = [(outs[0], values[root, rank])]
        elif name == "reduce_scatter":
            work = dist.reduce_scatter(outs[0], parts, reduce_op, async_op=wait)
            results = [(outs[0], reduced(values[:, rank], op, dtype))]
        elif name == "reduce_scatter_tensor":
            whole = of_layout(joined(values[rank]), dtype, layouts[-1])
            work = dist.reduce_scatter_tensor(outs[0], whole, reduce_op, async_op=wait)
            results = [(outs[0], reduced(values[:, rank], op, dtype))]
        elif name == "all_to_all":
            work = dist.all_to_all(outs, parts, async_op=wait)
            results = list(zip(outs, values[:, rank], strict=True))
        elif name == "all_to_all_single":
            whole = of_layout(joined(values[rank]), dtype, layouts[-1])
            out = of_layout(joined(values[rank] * 0), dtype, layouts[-2])
            work = dist.all_to_all_single(out, whole, async_op=wait)
            results = [(out, joined(values[:, rank]))]
        else:
            sent = dist.isend(mine, (rank + 1) % n)
            work = dist.irecv(outs[0], (rank - 1) % n)
            wait = True
            sent.wait()
            results = [(outs[0], values[(rank - 1) % n, 0])]
            for function in (dist.send, dist.isend, dist.recv, dist.irecv):
                try:
                    function(mine, rank)
                except ValueError as error:
                    assert "same as the rank" in str(error)
                else:
                    raise AssertionError("a message to the own rank is accepted")
        if wait:
            work.wait()
        changed = {id(t) for t, _ in results}
        for tensor, wanted in [*results, *[(t, w) for t, w in untouched if id(t) not in changed]]:
            equals(tensor, wanted, dtype)
    except Exception as error:
        return f"{text}: {type(error).__name__} {error}"
    return None


def check_generated_collectives():
    faults = checks.sweep(one_collective, 300, 3)
    assert not faults, "\n".join(faults[:5])


# -- hooks ----------------------------------------------------------------------------------------------------------


def layers(draw):
    n = dist.get_world_size()
    sizes = [int(k) for k in draw.choice([1, 2, n - 1, n, n + 1, 5], 4)]
    made = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        made += [nn.Linear(a, b), nn.Tanh()]
    return sizes[0], made


def filled(module, seed):
    draw = np.random.default_rng(seed)
    for p in module.parameters():
        p.data = mytorch.from_numpy(draw.normal(size=tuple(p.shape))).to(p.dtype)
    return module.double()


WRAPPERS = {
    "ddp": lambda m: DDP(m), "ddp, views": lambda m: DDP(m, gradient_as_bucket_view=False, bucket_cap_mb=1e-5),
    "ddp, unused": lambda m: DDP(m, find_unused_parameters=True), "ddp, static": lambda m: DDP(m, static_graph=True),
    "fsdp": lambda m: fully_shard(m), "fsdp, layers": lambda m: (fully_shard(m[0]), fully_shard(m))[1],
    "fsdp, keeps": lambda m: fully_shard(m, reshard_after_forward=False),
    "fsdp, releases": lambda m: fully_shard(m, reshard_after_forward=True),
}  # fmt: skip


def number(x):
    """The sum of a tensor on this process, as a float."""
    return round(float(x.full_tensor().sum() if isinstance(x, DTensor) else x.sum()), 9)


def with_hooks(model, core, kinds, log, scale):
    """Registers hooks that note their arguments in the log, and change them."""
    first, last = core[0], core[-2]
    if "forward" in kinds:
        first.register_forward_pre_hook(lambda m, args: (log.append(("pre", number(args[0]))), (args[0] * scale,))[1])
        last.register_forward_hook(
            lambda m, args, kwargs, out: (log.append(("out", number(out))), out * scale)[1], with_kwargs=True
        )
    if "backward" in kinds:
        first.register_full_backward_hook(lambda m, gi, go: log.append(("back", number(go[0]))))
        last.register_full_backward_pre_hook(lambda m, go: (log.append(("before", number(go[0]))), (go[0] * scale,))[1])
    if "output" in kinds:
        core[1].register_forward_hook(
            lambda m, args, out: out.register_hook(lambda g: (log.append(("g", number(g))), g * scale)[1]) and None
        )
    if "node" in kinds:
        core[1].register_forward_hook(
            lambda m, args, out: out.grad_fn.register_hook(lambda gi, go: log.append(("node", number(go[0])))) and None
        )
    for name, p in core.named_parameters():
        if "tensor" in kinds:
            p.register_hook(lambda g: g * scale)
        if "accumulated" in kinds:
            p.register_post_accumulate_grad_hook(lambda p, name=name: log.append(("sum", name)))
    if "several" in kinds:
        register_multi_grad_hook(
            list(core.parameters()),
            lambda grads: log.append(("several", len(grads), sum(g is not None for g in grads))),
        )


def one_hooked(draw):
    """None, or the description of a difference from one process."""
    n, rank = dist.get_world_size(), dist.get_rank()
    width, made = layers(draw)
    wrapper, seed = str(draw.choice(list(WRAPPERS))), int(draw.integers(1 << 30))
    kinds = [k for k in "forward backward output node tensor accumulated several".split() if draw.integers(2)]
    if wrapper == "fsdp, layers" and "several" in kinds:
        kinds.remove("several")  # each group reduces its gradients in its own backward pass
    saves = bool(draw.integers(4) == 0)
    one = filled(nn.Sequential(*copy.deepcopy(made)), seed)
    model = WRAPPERS[wrapper](filled(nn.Sequential(*made), seed))
    core = model.module if wrapper.startswith("ddp") else model
    text = f"{wrapper}, {kinds}, saved hooks={saves}, {[tuple(p.shape) for p in core.parameters()]}"
    mine, theirs = [], []
    with_hooks(one, one, kinds, mine, 1.5)
    with_hooks(model, core, kinds, theirs, 1.5)
    for step in range(3):
        x = mytorch.from_numpy(draw.normal(size=(n, 3, width)))
        grads, kept = None, []
        for r in range(n):  # one process computes the steps of all
            if r == rank:
                mine.clear()
            one.zero_grad()
            one(x[r]).square().sum().backward()
            if r == rank:
                kept = list(mine)
            each = [np.asarray(p.grad).copy() for p in one.parameters()]
            grads = each if grads is None else [a + b for a, b in zip(grads, each, strict=True)]
        model.zero_grad()
        theirs.clear()
        if saves:
            with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
                loss = model(x[rank]).square().sum()
        else:
            loss = model(x[rank]).square().sum()
        loss.backward()
        for (name, p), g in zip(core.named_parameters(), grads, strict=True):
            found = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
            if found is None or not np.allclose(np.asarray(found), g / n, rtol=1e-9, atol=1e-12):
                return f"step {step}: gradient of {name} is {found}, not {g / n}: {text}"
        # The order of hooks of parameters is the order in which gradients are complete.
        at_end = ("sum", "several")
        found, wanted = (
            ([e for e in log if e[0] not in at_end], sorted(e for e in log if e[0] in at_end)) for log in (theirs, kept)
        )
        if (
            len(found[0]) != len(wanted[0])
            or found[1] != wanted[1]
            or not all(a[0] == b[0] and abs(a[1] - b[1]) < 1e-6 for a, b in zip(found[0], wanted[0], strict=True))
        ):
            return f"step {step}: the hooks noted {found}, not {wanted}: {text}"
    return None


def check_generated_hooks():
    faults = checks.sweep(one_hooked, 40, 4)
    assert not faults, "\n".join(faults[:5])


# -- Join -----------------------------------------------------------------------------------------------------------


class Counted(nn.Module):
    """A model with a buffer, a parameter that some steps do not use, and normalization."""

    def __init__(self, norm):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)
        self.extra = nn.Parameter(mytorch.zeros(2))
        self.norm = nn.BatchNorm1d(4) if norm else nn.Identity()
        self.register_buffer("steps", mytorch.zeros(1, dtype=mytorch.float64))

    def forward(self, x, uses):
        self.steps += 1
        out = self.b(self.norm(self.a(x)).tanh())
        return out * (1 + self.extra.sum().tanh()) if uses else out


def one_join(draw):
    """None, or the description of a difference from one process that runs the steps of all."""
    n, rank = dist.get_world_size(), dist.get_rank()
    seed, unused, initial = int(draw.integers(1 << 30)), bool(draw.integers(2)), bool(draw.integers(2))
    counts = [int(draw.integers(0, 4)) for _ in range(n)]
    micros, views, cap = int(draw.integers(1, 3)), bool(draw.integers(2)), [25, 1e-5][draw.integers(2)]
    hook = draw.choice(["none", "all_reduce", "fp16"]) if initial else "none"
    how = "join" if draw.integers(2) else "Join"
    text = (
        f"counts={counts}, micros={micros}, unused={unused}, initial={initial}, views={views}, cap={cap}, {hook}, {how}"
    )
    norm = max(counts) == min(counts) and bool(draw.integers(2))  # statistics of a process stay its own
    one, core = filled(Counted(norm), seed), filled(Counted(norm), seed)
    options = {"static_graph" if unused and draw.integers(2) else "find_unused_parameters": unused}
    model = DDP(
        core, gradient_as_bucket_view=views, bucket_cap_mb=cap, broadcast_buffers=bool(draw.integers(2)), **options
    )
    if hook != "none":
        model.register_comm_hook(None, allreduce_hook if hook == "all_reduce" else fp16_compress_hook)
    optimizers = [mytorch.optim.SGD(m.parameters(), lr=0.01, momentum=0.5) for m in (one, core)]
    uses = [not unused or bool(draw.integers(2)) for _ in range(4)]
    x = mytorch.from_numpy(draw.normal(size=(n, 4, micros, 2, 3)))
    context = (
        model.join(divide_by_initial_world_size=initial)
        if how == "join"
        else Join([model], divide_by_initial_world_size=initial)
    )
    with context:
        for i in range(counts[rank]):
            for k in range(micros - 1):
                with model.no_sync():
                    model(x[rank, i, k], uses[i]).square().sum().backward()
            model(x[rank, i, micros - 1], uses[i]).square().sum().backward()
            optimizers[1].step()
            optimizers[1].zero_grad()
    for i in range(max(counts)):
        active = [r for r in range(n) if i < counts[r]]
        divisor = n if initial else len(active)
        sum(one(x[r, i, k], uses[i]).square().sum() for r in active for k in range(micros)).div(divisor).backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
    for (name, p), q in zip(one.named_parameters(), core.parameters(), strict=True):
        a, b = np.asarray(q.detach()), np.asarray(p.detach())
        if not norm and not np.allclose(
            a, b, rtol=5e-2 if hook == "fp16" else 1e-7, atol=5e-3 if hook == "fp16" else 1e-9
        ):
            return f"{name} is {a.tolist()}, not {b.tolist()}: {text}"
    every = [None] * n
    dist.all_gather_object(every, [np.asarray(t.detach()).tolist() for t in [*core.parameters(), *core.buffers()]])
    if any(e != every[0] for e in every):
        return f"the processes end with different tensors: {text}"
    if float(core.steps) != max(counts) * micros:
        return f"the buffer is {float(core.steps)}: {text}"
    return None


def check_generated_joins():
    faults = checks.sweep(one_join, 40, 5)
    assert not faults, "\n".join(faults[:5])


if __name__ == "__main__":  # process_edges.py COUNT SEED NAME: a longer run
    checks.longer_sweep({"collective": one_collective, "hooked": one_hooked, "join": one_join}[sys.argv[3]])
