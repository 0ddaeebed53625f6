"""Changes of DTensors in place, through views, `out=` and assignments, and second derivatives, against plain tensors.

A change has the effect of the same change of a plain tensor, or it raises an error on all ranks and has no effect.
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks
import numpy as np
from dtensor_functions import KINDS, distributed, floating, meshes, placements_of, same

import mytorch
import mytorch.distributed as dist
import mytorch.nn.functional as F
from mytorch.distributed.tensor import DTensor, Shard, distribute_tensor

REFUSED = ("DTensor", "sharding rule", "in place", "inplace")


def shape_of(draw):
    n = dist.get_world_size()
    return tuple(int(draw.choice([1, 2, n - 1, n, n + 1, 2 * n])) for _ in range(draw.integers(1, 4)))


def view_of(draw, shape):
    """(name, function, shape of the result)"""
    n = len(shape)
    if not n:
        return "itself", lambda x: x, shape
    k, m = int(draw.integers(n)), int(draw.integers(n))
    i = int(draw.integers(shape[k]))
    lead = (slice(None),) * k
    options = [
        (f"[{k}: {i}]", lambda x: x[(*lead, i)]),
        (f"[{k}: {i}:]", lambda x: x[(*lead, slice(i, None))]),
        (f"[{k}: :{i + 1}]", lambda x: x[(*lead, slice(0, i + 1))]),
        ("[...]", lambda x: x[...]),
        ("[None]", lambda x: x[None]),
        (f"select({k}, {i})", lambda x: x.select(k, i)),
        (f"narrow({k}, {i})", lambda x: x.narrow(k, i, shape[k] - i)),
        (f"transpose({k}, {m})", lambda x: x.transpose(k, m)),
        ("T", lambda x: x.T if n == 2 else x),
        ("mT", lambda x: x.mT if n > 1 else x),
        (f"movedim({k}, {m})", lambda x: x.movedim(k, m)),
        ("permute", lambda x: x.permute(*reversed(range(n)))),
        (f"unsqueeze({k})", lambda x: x.unsqueeze(k)),
        (f"squeeze({k})", lambda x: x.squeeze(k)),
        ("view(-1)", lambda x: x.view(-1)),
        ("flatten", lambda x: x.flatten(0, -1) if n > 1 else x),
        (f"unflatten({k})", lambda x: x.unflatten(k, (1, shape[k]))),
        (f"chunk(2, {k})", lambda x: x.chunk(2, k)[0]),
        (f"split(1, {k})", lambda x: x.split(1, k)[-1]),
        (f"unbind({k})", lambda x: x.unbind(k)[i]),
        ("iterated", lambda x: list(x)[-1]),
        ("detach", lambda x: x.detach()),
        ("data", lambda x: x.data),
        ("expand_as", lambda x: x.expand_as(x)),
        ("view_as", lambda x: x.view_as(x)),
    ]
    name, function = options[draw.integers(len(options))]
    try:
        return name, function, tuple(function(mytorch.zeros(shape)).shape)
    except RuntimeError:  # view of a transposed tensor
        return "itself", lambda x: x, shape


def change_of(draw, shape):
    """(name, function of (tensor, other tensor))"""
    k = int(draw.integers(len(shape))) if shape else 0
    i = int(draw.integers(shape[k])) if shape else 0
    index = (*(slice(None),) * k, i) if shape else ()
    options = [
        ("zero_", lambda x, y: x.zero_()),
        ("fill_", lambda x, y: x.fill_(2.5)),
        ("mul_", lambda x, y: x.mul_(3)),
        ("add_", lambda x, y: x.add_(y, alpha=2)),
        ("sub_", lambda x, y: x.sub_(y)),
        ("copy_", lambda x, y: x.copy_(y)),
        ("clamp_", lambda x, y: x.clamp_(0.3, 0.6)),
        ("lerp_", lambda x, y: x.lerp_(y, 0.25)),
        ("masked_fill_", lambda x, y: x.masked_fill_(y > 0.5, 7.0)),
        ("relu inplace", lambda x, y: F.relu(x.sub_(0.5), inplace=True)),
        ("silu inplace", lambda x, y: F.silu(x, True)),
        ("leaky_relu inplace", lambda x, y: F.leaky_relu(x.sub_(0.5), 0.1, True)),
        ("hardtanh inplace", lambda x, y: F.hardtanh(x, 0.2, 0.4, inplace=True)),
        ("dropout inplace", lambda x, y: F.dropout(x, 0.0, True, True)),
        (f"[{index}] = 4", lambda x, y: x.__setitem__(index, 4.0)),
        (f"[{index}] = y", lambda x, y: x.__setitem__(index, y[index])),
        ("[mask] = 5", lambda x, y: x.__setitem__(y > 0.5, 5.0)),
        ("[...] = y", lambda x, y: x.__setitem__(..., y)),
        ("[0] *= 2", lambda x, y: x[0].mul_(2) if shape else x.mul_(2)),
        ("out of add", lambda x, y: mytorch.add(y, y, out=x)),
        ("out of mul", lambda x, y: mytorch.mul(y, 3, out=x)),
        ("out of exp", lambda x, y: mytorch.exp(y, out=x)),
        ("out of sum", lambda x, y: mytorch.sum(y[None], 0, out=x)),
        ("out of cat", lambda x, y: mytorch.cat([y], out=x) if shape else x.copy_(y)),
        ("out of where", lambda x, y: mytorch.where(y > 0.5, y, y * 2, out=x)),
        ("out of clamp", lambda x, y: mytorch.clamp(y, 0.2, 0.5, out=x)),
    ]
    return options[draw.integers(len(options))]


def one_change(draw):
    """None, or the description of a difference."""
    found = meshes()
    mesh = found[draw.integers(len(found))]
    shape = shape_of(draw)
    views, part = [], shape
    for _ in range(draw.integers(0, 4)):
        name, function, part = view_of(draw, part)
        views.append((name, function))
    name, change = change_of(draw, part)
    placements = [placements_of(draw, mesh, len(s)) for s in (shape, part)]
    records = bool(draw.integers(2))
    text = f"{name} of {[v for v, _ in views]} of {shape}, {placements}, mesh {tuple(mesh.shape)}, recorded={records}"
    x, y = (mytorch.from_numpy(draw.uniform(0.1, 0.9, s).astype(np.float32)) for s in (shape, part))
    upstream = mytorch.from_numpy(draw.normal(size=shape).astype(np.float32))
    leaves = [distributed(t, mesh, p) for t, p in zip((x, y), placements, strict=True)]
    x.requires_grad_(records)
    whole, before = x * 1, x.detach().clone()
    parts = leaves[0][1] * 1
    if not records:
        parts, whole = parts.detach(), whole.detach()
    other = leaves[1][1].detach()

    def run(tensor, other):
        for _, function in views:
            tensor = function(tensor)
        change(tensor, other)

    problem = None
    try:
        run(whole, y)
    except Exception as error:
        problem = error
    try:
        run(parts, other)
        refused = False
    except Exception as error:
        refused = True
        if problem is None and not any(word in str(error) for word in REFUSED):
            return f"{text}: {type(error).__name__} {str(error)[:300]}"
    if problem is not None:
        return None if refused else f"{text}: no error, a plain tensor has {problem!r}"
    try:
        if refused:
            same(parts, before, f"after an error, {text}")
            return None
        result = same(parts, whole, text)
        if records:
            whole.backward(upstream)
            result.backward(upstream)
            same(leaves[0][0].grad, x.grad, f"gradient, {text}")
    except AssertionError as error:
        return str(error)
    except Exception as error:
        return f"{text}: after the change, {type(error).__name__} {str(error)[:300]}"
    return None


def one_second_derivative(draw):
    """Gradients of the squared norm of a gradient, of a function of the sweep with other placements before and after it."""
    found = meshes()
    mesh = found[draw.integers(len(found))]
    name, function, shapes = KINDS[draw.integers(4)](draw)
    placements = [placements_of(draw, mesh, len(s)) for s in shapes]
    text = f"second derivative of {name} of {shapes}, {placements}, mesh {tuple(mesh.shape)}"
    inputs = [mytorch.from_numpy(draw.uniform(0.2, 0.8, s)).requires_grad_() for s in shapes]
    made = [distributed(x, mesh, p) for x, p in zip(inputs, placements, strict=True)]
    after = placements_of(draw, mesh, 0)

    def second(leaves, tensors):
        out = function(*tensors)
        if not isinstance(out, mytorch.Tensor) or not out.requires_grad:
            return None
        out = floating(out)
        loss = out.sin().sum()
        loss = loss.redistribute(placements=after) if isinstance(loss, DTensor) else loss
        first = mytorch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        total = sum((g * g).sum() for g in first if g is not None)
        if not total.requires_grad:
            return first, None
        for leaf in leaves:
            leaf.grad = None
        total.backward()
        return first, [leaf.grad for leaf in leaves]

    try:
        wanted = second(inputs, inputs)
    except Exception:
        return None
    try:
        result = second([leaf for leaf, _ in made], [d for _, d in made])
    except Exception as error:
        known = any(w in str(error) for w in REFUSED) or isinstance(error, NotImplementedError)
        once = "differentiate twice" in str(error)
        return None if known or once else f"{text}: {type(error).__name__} {str(error)[:300]}"
    if (wanted is None) != (result is None):
        return f"{text}: {result}, not {wanted}"
    try:
        for a, b in zip(result or (), wanted or (), strict=True):
            if b is None or a is None:
                assert a is None or all(not same(t, t, text).any() for t in a), text
                continue
            for g, h in zip(a, b, strict=True):
                assert (g is None) == (h is None), text
                if h is not None and np.isfinite(np.asarray(h.detach())).all():
                    same(g, h, text)
    except AssertionError as error:
        return str(error)
    return None


def check_generated_changes_of_dtensors():
    faults = checks.sweep(one_change, 150, 6)
    assert not faults, "\n".join(faults[:5])


def check_generated_second_derivatives_of_dtensors():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        faults = checks.sweep(one_second_derivative, 80, 7)
    assert not faults, "\n".join(faults[:5])


def check_norms_of_parts_without_elements():
    mesh = meshes()[0]
    for rows in (1, 2, mesh.size() + 1):
        for kind in (1.0, 2.0, float("inf")):
            plain = mytorch.nn.Parameter(mytorch.zeros(rows, 2))
            divided = distribute_tensor(mytorch.nn.Parameter(mytorch.zeros(rows, 2)), mesh, [Shard(0)])
            plain.grad = mytorch.arange(2.0 * rows).reshape(rows, 2) + 1
            divided.grad = distribute_tensor(plain.grad.clone(), mesh, [Shard(0)])
            norms = [mytorch.nn.utils.clip_grad_norm_([p], 0.5, kind) for p in (plain, divided)]
            same(norms[1], norms[0], f"norm {kind} of {rows} rows")
            same(divided.grad, plain.grad, f"gradient clipped by norm {kind} of {rows} rows")


if __name__ == "__main__":  # dtensor_changes.py COUNT SEED NAME: a longer run
    warnings.simplefilter("ignore")
    checks.longer_sweep({"change": one_change, "second": one_second_derivative}[sys.argv[3]])
