"""Generated modules under `fully_shard` against one process: shapes of parameters, saved views, accumulation, hooks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np

import mytorch
import mytorch.distributed as dist
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.autograd import Function
from mytorch.autograd.graph import saved_tensors_hooks
from mytorch.distributed.device_mesh import init_device_mesh
from mytorch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from mytorch.distributed.tensor import DTensor
from mytorch.utils.checkpoint import checkpoint


class Keep(Function):
    """Saves a view of its input."""

    @staticmethod
    def forward(ctx, p):
        ctx.save_for_backward(p, p.transpose(0, -1))
        return p * p

    @staticmethod
    def backward(ctx, g):
        p, turned = ctx.saved_tensors
        return g * (p + turned.transpose(0, -1))


def row(x, p):
    """`x` with as many elements as a row of the parameter."""
    width = int(np.prod(p.shape[1:]))
    return x.flatten()[:1].expand(width).reshape(p.shape[1:]) * 0.5 if width else x.new_zeros(p.shape[1:])


# Functions of (x, p) that save the parameter, a view, a part, a cast or a result of it.
SAVES = {
    "square": lambda x, p: p.square(),
    "times x": lambda x, p: p * row(x, p),
    "itself": lambda x, p: p * p,
    "detached": lambda x, p: p * p.detach(),
    "data": lambda x, p: p * p.data,
    "transposed": lambda x, p: p.transpose(0, -1) * p.transpose(0, -1),
    "product": lambda x, p: p.flatten(1) @ p.flatten(1).t() if p.ndim > 1 else p.outer(p),
    "linear": lambda x, p: F.linear(row(x, p).flatten().expand(2, -1), p.flatten(1)) if p.ndim > 1 else p * x.sum(),
    "first": lambda x, p: p[0] * p[0] if len(p) else p * 1,
    "last rows": lambda x, p: p[1:] * p[:-1],
    "every second": lambda x, p: p[::2] * x.mean() * p[::2],
    "columns": lambda x, p: p[..., ::2] * p[..., ::2],
    "flipped": lambda x, p: p.flip(0) * p,
    "expanded": lambda x, p: (p.expand(3, *p.shape) * p).sum(0),
    "reshaped": lambda x, p: p.reshape(-1) * p.view(-1),
    "narrow": lambda x, p: p.narrow(0, len(p) // 2, len(p) - len(p) // 2).square(),
    "unbind": lambda x, p: sum((q * q).sum() for q in p.unbind(0)) if len(p) else p * 1,
    "chunks": lambda x, p: mytorch.cat([q * q * x.sum() for q in p.chunk(2)]),
    "diagonal": lambda x, p: p.diagonal(0, 0, -1).square() if p.ndim > 1 else p.square(),
    "double": lambda x, p: p.double() * p.double(),
    "cast twice": lambda x, p: p.double().float() * x.mean(),
    "indexed": lambda x, p: p[[0, 0, -1]] * 2 if len(p) else p * 1,
    "softmax": lambda x, p: p.softmax(-1) * p,
    "exp": lambda x, p: p.exp(),
    "norm": lambda x, p: p.norm() + p.square().sum(),
    "where": lambda x, p: mytorch.where(p > 0, p * p, p),
    "custom": lambda x, p: Keep.apply(p),
    "recomputed": lambda x, p: checkpoint(lambda q: q * q * x.sum(), p, use_reentrant=False),
    "hooks": lambda x, p: hooked(p),
    "as_strided": lambda x, p: p.as_strided((p.numel(),), (1,)).square(),
    "unsqueezed": lambda x, p: p.unsqueeze(0) * p[None],
    "unfold": lambda x, p: p.unfold(0, 1, 1).square() if len(p) else p * 1,
    "other": lambda x, p: (x.unsqueeze(-1) * p.flatten()).sum(0),
    "einsum": lambda x, p: mytorch.einsum("i,i->", p.flatten(), p.flatten()),
    "bits": lambda x, p: p * (p.view(mytorch.int32) > 0),
    "layer_norm": lambda x, p: F.layer_norm(x.sum() * 0.1 + p.detach(), p.shape[-1:]) * p if p.shape[-1] else p * 1,
    "embedding": lambda x, p: F.embedding(mytorch.tensor([0, len(p) - 1]), p.flatten(1)) if p.ndim > 1 and len(p) else p * 3,
    "recomputed in backward": lambda x, p: checkpoint(lambda q, x: q * q * x.sum(), p, x, use_reentrant=True) if p.requires_grad else p * 1,
    "sum": lambda x, p: p.sum() * x.sum(),
}  # fmt: skip


def hooked(p):
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return p * p


def gradients(loss, params):
    """Returns the gradients of a loss as `backward` computes them, without changing those of the parameters."""
    before = [p.grad for p in params]
    for p in params:
        p.grad = None
    loss.backward()
    found = [p.grad for p in params]
    for p, g in zip(params, before, strict=True):
        p.grad = g
    return found


class Layer(nn.Module):
    """A module with parameters of generated shapes; a forward uses some of them."""

    def __init__(self, specs, draw):
        super().__init__()
        self.functions = [function for _, function, _ in specs]
        for i, (shape, _, trains) in enumerate(specs):
            p = nn.Parameter(mytorch.from_numpy(draw.normal(size=shape).astype(np.float32)), requires_grad=trains)
            self.register_parameter(f"p{i}", p)
        self.inner = nn.Linear(3, 3)
        for p in self.inner.parameters():
            p.data = mytorch.from_numpy(draw.normal(size=tuple(p.shape)).astype(np.float32))

    def forward(self, x, used):
        total = 0
        for i, name in enumerate(self.functions):
            if i in used:
                total = total + SAVES[name](x, getattr(self, f"p{i}")).float().mean().nan_to_num()
        return mytorch.tanh(self.inner(x)) + total * 0.5


class Model(nn.Module):
    def __init__(self, layers, seed):
        super().__init__()
        draw = np.random.default_rng(seed)
        self.layers = nn.ModuleList([Layer(specs, draw) for specs in layers])
        self.head = nn.Parameter(mytorch.from_numpy(draw.normal(size=(2, 3)).astype(np.float32)))

    def forward(self, x, used):
        for layer, indices in zip(self.layers, used, strict=True):
            if indices is not None:
                x = layer(x, indices)
        return x @ self.head.t()


def specs_of(draw, n):
    sizes = [1, 1, 2, 3, n, n + 1, 2 * n, 2 * n - 1, 0, 5]
    specs = []
    for _ in range(draw.integers(1, 5)):
        shape = (int(draw.integers(0, 2 * n + 1)), *(int(draw.choice(sizes)) for _ in range(draw.integers(0, 3))))
        specs.append((shape, str(draw.choice(list(SAVES))), bool(draw.integers(6))))
    return specs


def mesh_of(draw, n):
    kind = draw.integers(3)
    if kind == 0:
        return None
    shape = (n,) if kind == 1 else [(n, 1), (1, n), (2, n // 2)][draw.integers(3 if n % 2 == 0 else 2)]
    return MESHES.setdefault(shape, init_device_mesh("cpu", shape, mesh_dim_names=("a", "b")[: len(shape)]))


MESHES = {}


def sharded(model, draw, mesh):
    options = {"mesh": mesh} if mesh is not None else {}
    options["offload_policy"] = CPUOffloadPolicy() if draw.integers(4) == 0 else OffloadPolicy()
    options["mp_policy"] = MixedPrecisionPolicy(reduce_dtype=[None, mytorch.float64][draw.integers(2)])
    reshard = [None, True, False][draw.integers(3)]
    kind = draw.integers(4)
    if kind == 1:
        for layer in model.layers:
            fully_shard(layer, reshard_after_forward=reshard, **options)
    elif kind == 2:
        fully_shard(list(model.layers), reshard_after_forward=reshard, **options)
    elif kind == 3:
        fully_shard(model.layers[-1].inner, **options)
    return fully_shard(model, reshard_after_forward=reshard, **options)


def one_model(draw):
    """None, or the description of a difference from one process."""
    n, rank = dist.get_world_size(), dist.get_rank()
    layers = [specs_of(draw, n) for _ in range(draw.integers(1, 4))]
    seed = int(draw.integers(1 << 30))
    one, mesh = Model(layers, seed), mesh_of(draw, n)
    model = sharded(Model(layers, seed), draw, mesh)
    hybrid = mesh is not None and mesh.ndim == 2
    text = f"{layers}, mesh {mesh}"
    called, scale = [], float(draw.choice([1.0, 0.5]))
    hooks = bool(draw.integers(2))
    for name, p in model.named_parameters():
        if hooks and p.requires_grad:
            p.register_hook(lambda g: g * scale)
            p.register_post_accumulate_grad_hook(lambda p, name=name: called.append(name))
    optimizers = [mytorch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=0.05) for m in (one, model)]
    pending = {}
    for step in range(int(draw.integers(1, 5))):
        sync, reduces = bool(draw.integers(3)), bool(draw.integers(3)) or not hybrid
        model.set_requires_gradient_sync(sync)
        model.set_requires_all_reduce(reduces)
        used = [None if draw.integers(6) == 0 else {i for i in range(len(s)) if draw.integers(5)} for s in layers]
        x = mytorch.from_numpy(draw.normal(size=(n, 4, 3)).astype(np.float32))
        text += f"; sync={sync}, all_reduce={reduces}, used={used}"
        grads = gradients(
            sum(one(part, used).square().mean() for part in x) / n, [p for p in one.parameters() if p.requires_grad]
        )
        model(x[rank], used).square().mean().backward()
        trained = [(name, p) for name, p in one.named_parameters() if p.requires_grad]
        for (name, _), g in zip(trained, grads, strict=True):
            if g is not None:
                pending[name] = g if name not in pending else pending[name] + g
        if sync and reduces:
            for name, p in trained:
                if name in pending:
                    g = pending[name] * (scale if hooks else 1)
                    p.grad = g if p.grad is None else p.grad + g
            if hooks and sorted(called) != sorted(pending):
                return f"hooks of {sorted(called)} were called, not of {sorted(pending)}: {text}"
            pending = {}
        elif called:
            return f"hooks were called before the gradient was complete: {text}"
        called.clear()
        for (name, p), q in zip(one.named_parameters(), model.parameters(), strict=True):
            assert isinstance(q, DTensor)
            if (p.grad is None) != (q.grad is None):
                return f"step {step}: {name} has the gradient {q.grad}, not {p.grad}: {text}"
            if p.grad is not None:
                problem = differs(q.grad.full_tensor(), p.grad)
                if problem:
                    return f"step {step}: gradient of {name} {problem}: {text}"
        if sync and reduces and draw.integers(2):
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            text += ", step"
    for (name, p), q in zip(one.named_parameters(), model.parameters(), strict=True):
        problem = differs(q.detach().full_tensor(), p.detach(), 1e-3)
        if problem:
            return f"{name} {problem}: {text}"
    return None


def differs(found, wanted, tolerance=2e-5):
    a, b = np.asarray(found), np.asarray(wanted)
    if a.shape != b.shape:
        return f"has the shape {a.shape}, not {b.shape}"
    worst = abs(a - b).max() if a.size else 0
    return (
        None if worst <= tolerance * max(1, abs(b).max() if b.size else 0) else f"differs by {worst} of {abs(b).max()}"
    )


def check_generated_sharded_modules():
    faults = checks.sweep(one_model, 10, 0)
    assert not faults, "\n".join(faults[:5])


if __name__ == "__main__":  # fsdp_modules.py COUNT SEED: a longer run
    checks.longer_sweep(one_model)
