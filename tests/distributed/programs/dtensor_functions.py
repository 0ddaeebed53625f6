"""Functions of DTensors with generated shapes and placements, against the same functions of plain tensors.

A function has the value, the shape, the dtype and the gradients of the plain function, or it raises an error on all ranks.
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

import mytorch
import mytorch.distributed as dist
import mytorch.nn.functional as F
from mytorch.distributed.device_mesh import init_device_mesh
from mytorch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

SIZES = (0, 1, 1, 2, 3, 5)
REFUSED = ("DTensor", "sharding rule")
UNARY = """
    abs acos acosh angle asin asinh atan atanh ceil clone contiguous cos cosh deg2rad digamma double erf erfc erfinv exp exp2
    expm1 float floor frac half isfinite isinf isnan lgamma log log10 log1p log2 logit long bool neg positive rad2deg
    reciprocal relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc zeros_like ones_like nan_to_num
    logical_not signbit sgn negative fix sinc i0 erfcx
""".split()
ACTIVATIONS = "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus softsign".split()
BINARY = """
    add sub mul div true_divide multiply subtract divide atan2 hypot maximum minimum fmod remainder floor_divide copysign logaddexp
    pow float_power eq ne lt le gt ge xlogy fmax fmin rsub nextafter logaddexp2 isclose heaviside
""".split()
OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "**": lambda a, b: a**b, "%": lambda a, b: a % b, "//": lambda a, b: a // b, "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b,
}  # fmt: skip
REDUCTIONS = "sum mean amax amin prod norm var std argmax argmin logsumexp all any max min median nansum cumsum cumprod softmax log_softmax".split()


def shape_of(draw, low=1, high=3, sizes=SIZES):
    return tuple(int(draw.choice(sizes)) for _ in range(draw.integers(low, high + 1)))


def narrower(draw, shape):
    """A shape that broadcasts with another one, or rarely an arbitrary one: both functions must raise an error then."""
    if draw.random() < 0.1:
        return shape_of(draw, 0)
    start = draw.integers(0, len(shape) + 1)
    return tuple(1 if draw.random() < 0.3 else n for n in shape[start:])


def dims_of(draw, ndim):
    if not ndim:
        return -1
    return int(draw.integers(-ndim, ndim))


def elementwise(draw):
    shape = shape_of(draw, 0)
    kind = draw.integers(7)
    if kind == 0:
        name = draw.choice(UNARY)
        return name, lambda x: getattr(x, name)(), [shape]
    if kind == 1:
        name = draw.choice(ACTIVATIONS)
        return name, getattr(F, name), [shape]
    if kind == 2:
        name = draw.choice(BINARY)
        a, b = shape, narrower(draw, shape)
        return name, lambda x, y: getattr(mytorch, name)(x, y), [b, a] if draw.random() < 0.5 else [a, b]
    if kind == 3:
        name = draw.choice(list(OPERATORS))
        a, b = shape, narrower(draw, shape)
        return name, OPERATORS[name], [b, a] if draw.random() < 0.5 else [a, b]
    if kind == 4:
        name, number = draw.choice(list(OPERATORS)), [2, 2.5, np.float32(0.5), np.int64(3), True, 0][draw.integers(6)]
        if draw.random() < 0.5:
            return f"x {name} {number!r}", lambda x: OPERATORS[name](x, number), [shape]
        return f"{number!r} {name} x", lambda x: OPERATORS[name](number, x), [shape]
    if kind == 5:
        return [
            ("where", lambda x, y: mytorch.where(x > 0.5, x, y), [shape, narrower(draw, shape)]),
            ("where number", lambda x: mytorch.where(x > 0.5, x, 0.25), [shape]),
            ("lerp", lambda x, y: mytorch.lerp(x, y, 0.3), [shape, shape]),
            ("lerp tensor", lambda x, y, z: mytorch.lerp(x, y, z), [shape, shape, narrower(draw, shape)]),
            ("addcmul", lambda x, y, z: mytorch.addcmul(x, y, z, value=0.5), [shape, shape, narrower(draw, shape)]),
            ("addcdiv", lambda x, y, z: mytorch.addcdiv(x, y, z, value=0.5), [shape, shape, narrower(draw, shape)]),
            ("clamp", lambda x: x.clamp(0.4, 0.7), [shape]),
            ("clamp tensor", lambda x, y: x.clamp(min=y), [shape, narrower(draw, shape)]),
            ("masked_fill", lambda x, y: x.masked_fill(y > 0.5, 2.0), [shape, narrower(draw, shape)]),
            ("div floor", lambda x: x.div(0.3, rounding_mode="floor"), [shape]),
            ("div trunc", lambda x, y: x.div(y, rounding_mode="trunc"), [shape, shape]),
            ("add alpha", lambda x, y: x.add(y, alpha=3), [shape, narrower(draw, shape)]),
            ("add other", lambda x: x.add(other=1.5), [shape]),
            ("mul other", lambda x, y: x.mul(other=y), [shape, narrower(draw, shape)]),
            ("sub 0-d", lambda x: x - mytorch.tensor(0.75), [shape]),
            ("to double", lambda x: x.to(mytorch.float64), [shape]),
            ("to int", lambda x: (x * 10).to(mytorch.int64), [shape]),
            ("penalty", lambda x: (x * x).sum() + x.abs().mean(), [shape]),
            ("dropout 0", lambda x: F.dropout(x, 0.5, training=False), [shape]),
            ("threshold", lambda x: F.threshold(x, 0.5, 0.1), [shape]),
        ][draw.integers(20)]
    return [
        ("add_", lambda x, y: (x * 1).add_(y), [shape, narrower(draw, shape)]),
        ("mul_", lambda x, y: (x * 1).mul_(y), [shape, narrower(draw, shape)]),
        ("+=", lambda x, y: iadd(x * 1, y), [shape, narrower(draw, shape)]),
        ("clamp_", lambda x: (x * 1).clamp_(0.3, 0.6), [shape]),
        ("exp_", lambda x: (x * 1).exp_(), [shape]),
        ("zero_", lambda x: (x * 1).zero_(), [shape]),
        ("fill_", lambda x: (x * 1).fill_(2.5), [shape]),
        ("copy_", lambda x, y: (x * 1).copy_(y), [shape, shape]),
        ("lerp_", lambda x, y: (x * 1).lerp_(y, 0.25), [shape, shape]),
    ][draw.integers(9)]


def iadd(x, y):
    x += y
    return x


def reduction(draw):
    shape = shape_of(draw, 0)
    name, kind = draw.choice(REDUCTIONS), draw.integers(6)
    dim, keep = dims_of(draw, len(shape)), bool(draw.integers(2))
    if name == "norm":
        order = [1, 2, 2.0, float("inf"), 0.5, "fro", None][draw.integers(7)]
        return [
            (f"norm({order!r})", lambda x: x.norm(order), [shape]),
            (f"norm({order!r}, {dim})", lambda x: x.norm(order, dim, keep), [shape]),
            (f"norm(p={order!r}, dim={dim})", lambda x: x.norm(p=order, dim=dim, keepdim=keep), [shape]),
            (f"mytorch.norm({order!r}, {dim})", lambda x: mytorch.norm(x, order, dim), [shape]),
            ("norm()", lambda x: x.norm(), [shape]),
            ("norm(dim)", lambda x: x.norm(dim=dim), [shape]),
        ][kind]
    if name in ("var", "std") and kind > 2:
        return [
            (f"{name}({dim}, False)", lambda x: getattr(x, name)(dim, False), [shape]),
            (f"{name}(False)", lambda x: getattr(x, name)(False), [shape]),
            (f"{name}(correction=0)", lambda x: getattr(x, name)(dim=dim, correction=0, keepdim=keep), [shape]),
        ][kind - 3]
    first = lambda out: out if isinstance(out, mytorch.Tensor) else out[0]  # noqa: E731
    dims = (dim,) if len(shape) < 2 else tuple(sorted({dim % len(shape), 0}))
    return [
        (f"{name}()", lambda x: first(getattr(x, name)()), [shape]),
        (f"{name}({dim})", lambda x: first(getattr(x, name)(dim)), [shape]),
        (f"{name}({dim}, {keep})", lambda x: first(getattr(x, name)(dim, keep)), [shape]),
        (f"{name}(dim={dim}, keepdim={keep})", lambda x: first(getattr(x, name)(dim=dim, keepdim=keep)), [shape]),
        (f"mytorch.{name}({dim})", lambda x: first(getattr(mytorch, name)(x, dim)), [shape]),
        (f"{name}({dims})", lambda x: first(getattr(x, name)(dims)), [shape]),
    ][kind]


def movement(draw):
    shape = shape_of(draw)
    n = len(shape)
    a, b = dims_of(draw, n), dims_of(draw, n)
    order = [int(k) for k in draw.permutation(n)]
    size = shape[a]
    merged = [[-1], list(shape[:1]) + [-1], [1, *shape], [*shape, 1]]
    if n > 2:
        merged += [[shape[0] * shape[1], shape[2]], [shape[0], shape[1] * shape[2]], [shape[2], shape[1], shape[0]]]
    if n > 1:
        merged += [[shape[0] * shape[1], *shape[2:]], [shape[1], shape[0], *shape[2:]]]
    target = merged[draw.integers(len(merged))]
    start = int(draw.integers(0, size + 1))
    options = [
        ("transpose", lambda x: x.transpose(a, b)),
        ("t", lambda x: x.t()),
        ("T", lambda x: x.T),
        ("mT", lambda x: x.mT),
        ("movedim", lambda x: x.movedim(a, b)),
        ("permute", lambda x: x.permute(order)),
        ("permute *", lambda x: x.permute(*order)),
        ("unsqueeze", lambda x: x.unsqueeze(a)),
        ("squeeze", lambda x: x.squeeze()),
        (f"squeeze({a})", lambda x: x.squeeze(a)),
        (f"reshape({target})", lambda x: x.reshape(target)),
        (f"view({target})", lambda x: x.view(target)),
        ("view dtype", lambda x: (x * 1).detach().view(mytorch.int32)),
        ("flatten", lambda x: x.flatten()),
        ("flatten 1", lambda x: x.flatten(-2)),
        ("view_as", lambda x: (x * 2).view_as(x)),
        (f"expand({n})", lambda x: x.expand(2, *shape)),
        ("expand_as", lambda x: x.sum(a, keepdim=True).expand_as(x)),
        (f"flip({a})", lambda x: x.flip(a)),
        (f"flip({a}, {b})", lambda x: x.flip(a, b) if a % n != b % n else x.flip(a)),
        ("flip all", lambda x: x.flip(list(range(n)))),
        ("roll", lambda x: x.roll(1, a)),
        ("roll all", lambda x: x.roll(1)),
        (f"narrow({a}, {start})", lambda x: x.narrow(a, start, size - start)),
        ("split", lambda x: x.split(2, a)[-1]),
        ("split kw", lambda x: x.split(split_size=1, dim=a)[0] if size else x),
        ("chunk", lambda x: x.chunk(2, a)[0]),
        ("chunk kw", lambda x: x.chunk(chunks=3, dim=a)[-1]),
        ("unbind", lambda x: x.unbind(a)[-1] if size else x),
        ("select", lambda x: x.select(a, size - 1) if size else x),
        ("[0]", lambda x: x[0]),
        ("[-1:]", lambda x: x[-1:]),
        ("[..., :1]", lambda x: x[..., :1]),
        ("[::2]", lambda x: x[::2]),
        ("[None]", lambda x: x[None]),
        ("[:, None]", lambda x: x[:, None]),
        ("[[0, 0]]", lambda x: x[[0, 0]]),
        ("mask", lambda x: x[x > 0.5].sum()),
        ("cat", lambda x: mytorch.cat([x, x * 2], a)),
        ("stack", lambda x: mytorch.stack([x, x * 2], a)),
        ("tril", lambda x: x.tril()),
        ("triu", lambda x: x.triu()),
        ("topk", lambda x: x.topk(1, a)[0]),
        ("sort", lambda x: x.sort(a)[0]),
        ("repeat", lambda x: x.repeat(*[2] * n)),
        ("tile", lambda x: x.tile(2)),
        ("diag", lambda x: x.diagonal(0, a, b)),
        ("pad", lambda x: F.pad(x, (1, 2))),
        ("index_select", lambda x: x.index_select(a, mytorch.tensor([0, 0]))),
        ("gather", lambda x: x.gather(a, (x * 0).long())),
        ("unfold", lambda x: x.unfold(a, 1, 1)),
        ("glu", lambda x: F.glu(x, a)),
        ("normalize", lambda x: F.normalize(x, dim=a)),
        ("softmax kw", lambda x: F.softmax(input=x, dim=a)),
        ("contiguous", lambda x: x.transpose(a, b).contiguous()),
        ("tensor_split", lambda x: x.tensor_split(2, a)[0]),
        ("unflatten", lambda x: x.unflatten(a, (1, size))),
        ("swapaxes", lambda x: x.swapaxes(a, b)),
        ("diff", lambda x: x.diff(dim=a)),
        ("renorm", lambda x: x.renorm(2, a, 0.5)),
        ("std_mean", lambda x: mytorch.std_mean(x, a)[0]),
        ("var_mean", lambda x: mytorch.var_mean(x, dim=a)[1]),
        ("aminmax", lambda x: mytorch.aminmax(x)[0]),
        ("vector_norm", lambda x: mytorch.linalg.vector_norm(x, dim=a)),
        ("vector_norm all", lambda x: mytorch.linalg.vector_norm(x)),
        ("bool sum", lambda x: (x > 0.5).sum(a)),
        ("count_nonzero", lambda x: mytorch.count_nonzero(x, a)),
        ("dist", lambda x: mytorch.dist(x, x * 2)),
        ("outer", lambda x: mytorch.outer(x.flatten(), x.flatten())),
        ("cosine", lambda x: F.cosine_similarity(x, x + 1, dim=a)),
        ("mse", lambda x: F.mse_loss(x, x * x)),
        ("l1", lambda x: F.l1_loss(x, x * x, reduction="sum")),
        ("bce", lambda x: F.binary_cross_entropy_with_logits(x, (x * 0.5).detach())),
        ("smooth_l1", lambda x: F.smooth_l1_loss(x, x * x)),
        ("kl", lambda x: F.kl_div(x.log(), (x * 0.5).detach(), reduction="batchmean")),
    ]  # fmt: skip
    name, function = options[draw.integers(len(options))]
    return name, function, [shape]


def product(draw):
    m, k, n, batch = (int(draw.choice(SIZES)) for _ in range(4))
    classes, rows = int(draw.choice((1, 2, 3, 5))), int(draw.choice((1, 2, 3, 5)))
    if draw.random() < 0.1:
        k, other = (5, 6) if draw.random() < 0.5 else (3, 4)
        return [
            ("matmul of other sizes", lambda x, y: x @ y, [(m, k), (other, n)]),
            ("mv of other sizes", lambda x, y: x @ y, [(m, k), (other,)]),
            ("batches of other sizes", lambda x, y: x @ y, [(k, m, 2), (other, 2, n)]),
            ("linear of other sizes", lambda x, w: F.linear(x, w), [(m, k), (n, other)]),
            ("bias of another size", lambda x, w, b: F.linear(x, w, b), [(m, 2), (k, 2), (other,)]),
            ("bias of size 1", lambda x, w, b: F.linear(x, w, b), [(m, 2), (k, 2), (1,)]),
            ("bmm of matrices", lambda x, y: mytorch.bmm(x, y), [(m, k), (k, n)]),
            ("targets of another size", lambda x: F.cross_entropy(x, mytorch.zeros(other).long()), [(k, 3)]),
            ("mse of other sizes", lambda x, y: F.mse_loss(x, y), [(k, 2), (other, 2)]),
            ("other heads", lambda x, y: F.scaled_dot_product_attention(x, y, y), [(1, 4, 2, 3), (1, 2, 2, 3)]),
        ][draw.integers(10)]
    heads, kv = [(1, 1), (2, 1), (4, 2), (6, 2), (6, 3), (3, 3)][draw.integers(6)]
    index = mytorch.from_numpy(np.random.default_rng(5).integers(0, classes, (2, 3)))
    targets = mytorch.from_numpy(np.random.default_rng(6).integers(0, classes, rows))
    mean = ["mean", "sum", "none"][draw.integers(3)]
    return [
        ("matmul", lambda x, y: x @ y, [(m, k), (k, n)]),
        ("mm", lambda x, y: mytorch.mm(x, y), [(m, k), (k, n)]),
        ("mv", lambda x, y: x @ y, [(m, k), (k,)]),
        ("vm", lambda x, y: x @ y, [(k,), (k, n)]),
        ("dot", lambda x, y: x @ y, [(k,), (k,)]),
        ("bmm", lambda x, y: mytorch.bmm(x, y), [(batch, m, k), (batch, k, n)]),
        ("batched", lambda x, y: x @ y, [(batch, m, k), (k, n)]),
        ("batched 2", lambda x, y: x @ y, [(m, k), (batch, k, n)]),
        ("batched 1", lambda x, y: x @ y, [(1, m, k), (batch, k, n)]),
        ("batched 4", lambda x, y: x @ y, [(2, batch, m, k), (batch, k, n)]),
        ("linear", lambda x, w: F.linear(x, w), [(m, k), (n, k)]),
        ("linear 1", lambda x, w, b: F.linear(x, w, b), [(k,), (n, k), (n,)]),
        ("linear bias", lambda x, w, b: F.linear(x, w, b), [(batch, m, k), (n, k), (n,)]),
        ("addmm", lambda c, x, y: mytorch.addmm(c, x, y), [(m, n), (m, k), (k, n)]),
        ("einsum", lambda x, y: mytorch.einsum("ij,jk->ik", x, y), [(m, k), (k, n)]),
        ("embedding", lambda w: F.embedding(index, w), [(classes, n)]),
        ("embedding padding 0", lambda w: F.embedding(index, w, padding_idx=0), [(classes, n)]),
        ("embedding padding -1", lambda w: F.embedding(index, w, padding_idx=-1), [(classes, n)]),
        ("embedding max_norm", lambda w: F.embedding(index, w * 1, max_norm=0.5), [(classes, n)]),
        ("embedding freq", lambda w: F.embedding(index, w, scale_grad_by_freq=True), [(classes, n)]),
        ("cross_entropy", lambda x: F.cross_entropy(x, targets, reduction=mean), [(rows, classes)]),
        ("cross_entropy ignore", lambda x: F.cross_entropy(x, targets, ignore_index=0, reduction=mean), [(rows, classes)]),
        ("cross_entropy smooth", lambda x: F.cross_entropy(x, targets, label_smoothing=0.1, reduction=mean), [(rows, classes)]),
        ("cross_entropy probs", lambda x, y: F.cross_entropy(x, y.softmax(1), reduction=mean), [(rows, classes)] * 2),
        ("cross_entropy weight", lambda x, w: F.cross_entropy(x, targets, w.detach(), reduction=mean), [(rows, classes), (classes,)]),
        ("nll_loss", lambda x: F.nll_loss(x.log_softmax(1), targets), [(rows, classes)]),
        ("layer_norm", lambda x, w, b: F.layer_norm(x, (n,), w, b), [(batch, m, n), (n,), (n,)]),
        ("layer_norm 2", lambda x: F.layer_norm(x, (m, n)), [(batch, m, n)]),
        ("layer_norm kw", lambda x, w: F.layer_norm(input=x, normalized_shape=(n,), weight=w), [(m, n), (n,)]),
        ("rms_norm", lambda x, w: F.rms_norm(x, (n,), w), [(batch, m, n), (n,)]),
        ("group_norm", lambda x: F.group_norm(x, 1), [(batch, n, m)]),
        ("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), [(m, n)]),
        ("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, heads, 3, 4)] * 3),
        ("gqa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), [(2, heads, 3, 4), (2, kv, 3, 4), (2, kv, 3, 4)]),
        ("attention 1", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [(2, heads, 3, 4), (1, heads, 3, 4), (1, heads, 3, 4)]),
    ][draw.integers(35)]  # fmt: skip


KINDS = elementwise, reduction, movement, product


def composed(draw):
    """A function after another one, so that partial sums and other intermediate placements reach it."""
    name, inner, shapes = KINDS[draw.integers(3)](draw)
    outer_name, outer, outer_shapes = elementwise(draw)
    for _ in range(20):
        if len(outer_shapes) == 1:
            break
        outer_name, outer, outer_shapes = elementwise(draw)
    return f"{outer_name} after {name}", lambda *x: outer(floating(inner(*x))), shapes


def floating(x):
    return x if x.is_floating_point() else x * 1.0


def placements_of(draw, mesh, ndim):
    out = []
    for _ in range(mesh.ndim):
        choices = [
            Replicate(),
            Partial(),
            Partial("avg"),
            Partial("max"),
            Partial("min"),
            *[Shard(k) for k in range(ndim)] * 3,
        ]
        out.append(choices[draw.integers(len(choices))])
    return out


def distributed(x, mesh, placements):
    """(leaf, tensor) with the placements; a partial sum is computed from a leaf."""
    first = [Replicate() if p.is_partial() else p for p in placements]
    leaf = distribute_tensor(x.detach().clone().requires_grad_(), mesh, first, src_data_rank=None)
    return leaf, leaf if first == placements else leaf.redistribute(placements=placements)


def same(found, expected, text):
    assert tuple(found.shape) == tuple(expected.shape), (
        f"{text}: shape {tuple(found.shape)}, not {tuple(expected.shape)}"
    )
    assert found.dtype == expected.dtype, f"{text}: dtype {found.dtype}, not {expected.dtype}"
    whole = found.full_tensor() if isinstance(found, DTensor) else found
    assert tuple(whole.shape) == tuple(expected.shape), f"{text}: whole shape {tuple(whole.shape)}"
    a, b = (np.asarray(t.detach()).astype(np.float64) for t in (whole, expected))
    half = expected.dtype == mytorch.float16
    assert np.allclose(a, b, rtol=3e-3 if half else 2e-4, atol=3e-3 if half else 2e-5, equal_nan=True), (
        f"{text}: {a.ravel()[:6]}, not {b.ravel()[:6]}"
    )
    return whole


def one_case(name, function, shapes, mesh, draw):
    """ "equal", "refused", or the description of a fault."""
    inputs = [mytorch.from_numpy(draw.uniform(0.1, 0.9, s).astype(np.float32)).requires_grad_() for s in shapes]
    placements = [placements_of(draw, mesh, len(s)) for s in shapes]
    text = f"{name} of {shapes}, {placements}, mesh {tuple(mesh.shape)}"
    expected = problem = None
    try:
        expected = function(*inputs)
    except Exception as error:
        problem = error
    g = no_backward = None
    if isinstance(expected, mytorch.Tensor) and expected.requires_grad and expected.is_floating_point():
        g = mytorch.from_numpy(draw.normal(size=tuple(expected.shape))).to(expected.dtype)
        try:
            expected.backward(g)
        except Exception as error:
            no_backward = error
    made = [distributed(x, mesh, p) for x, p in zip(inputs, placements, strict=True)]
    try:
        out = function(*(d for _, d in made))
    except Exception as error:
        if problem is not None or any(word in str(error) for word in REFUSED) or isinstance(error, NotImplementedError):
            return "refused"
        return f"{text}: {type(error).__name__} {str(error)[:300]}"
    if problem is not None:
        return f"{text}: no error, a plain tensor has {type(problem).__name__} {str(problem)[:200]}"
    try:
        if not isinstance(out, mytorch.Tensor):
            return "equal" if out == expected else f"{text}: {out}, not {expected}"
        whole = same(out, expected, text)
        if expected.requires_grad != whole.requires_grad:
            return f"{text}: requires_grad is {whole.requires_grad}"
        if no_backward is not None:
            try:
                whole.backward(g)
            except type(no_backward):
                return "equal"
            return f"{text}: backward without {no_backward!r}"
        if g is not None:
            whole.backward(g)
            for x, (leaf, _) in zip(inputs, made, strict=True):
                if (x.grad is None) != (leaf.grad is None):
                    return f"{text}: gradient is {leaf.grad}, not {x.grad}"
                if x.grad is not None:
                    same(leaf.grad, x.grad, f"gradient, {text}")
    except AssertionError as error:
        return str(error)
    except Exception as error:
        return f"{text}: after forward, {type(error).__name__} {str(error)[:300]}"
    return "equal"


def meshes():
    n = dist.get_world_size()
    found = [init_device_mesh("cpu", (n,))]
    return found + [init_device_mesh("cpu", (2, n // 2))] if n == 4 else found


def sweep(count, seed, kinds=(*KINDS, composed)):
    """{result: number of cases}, and the descriptions of the faults."""
    draw, found = np.random.default_rng(seed), meshes()  # the same choices on all ranks
    counts, faults = {}, []
    for i in range(count):
        name, function, shapes = kinds[i % len(kinds)](draw)
        result = one_case(name, function, shapes, found[draw.integers(len(found))], draw)
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, result)
        worst = next((r for r in every if r not in ("equal", "refused")), None)
        if worst is None and len(set(every)) > 1:
            worst = f"{name} of {shapes}: the ranks have {every}"
        if worst is not None:
            faults.append(worst)
        key = worst and "fault" or result
        counts[key] = counts.get(key, 0) + 1
    return counts, faults


def check_generated_functions_of_dtensors():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts, faults = sweep(150, 0)
    assert not faults, "\n".join(faults[:5])
    assert counts["equal"] > 100, counts


if __name__ == "__main__":  # dtensor_functions.py COUNT SEED: a longer run
    dist.init_process_group()
    counts, faults = sweep(int(sys.argv[1]), int(sys.argv[2]))
    if dist.get_rank() == 0:
        print(counts, *faults[:20], sep="\n- ")
    dist.destroy_process_group()
