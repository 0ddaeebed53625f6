"""Generated programs compared with PyTorch: losses, in-place changes, keywords, copies, subclasses and empty operands.

Case i of a family and a seed is always the same program. A program is drawn first and then runs in both libraries; it returns a list of
observations: tensors, numbers, names and flags. `outcome` compares the lists. The kinds of outcome are the kinds of tests/fuzzing.py.

* losses: each loss with extreme logits, reductions, weights and options; first and second gradients.
* inplace: programs of ops, views, in-place changes, hooks and no_grad blocks, at a size without and a size with compiled kernels.
* keywords: calls of PyTorch's operator database with positional arguments passed by name, or with an unknown name.
* copies: tensors, modules and optimizers that are pickled, saved or copied, and then changed.
* subclasses: calls of the operator database with subclasses and `__torch_function__`.
* empty: calls of the operator database in which one size becomes 0.

`python -m tests.comparisons losses --cases 5000 --seed 3` prints the differences, and survives crashes of PyTorch.
"""

import argparse
import contextlib
import copy
import functools
import inspect
import io
import os
import pickle
import re
import signal
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch.overrides import get_testing_overrides

import mytorch
from tests import fuzzing
from tests.exceptions import OTHER_ARGUMENTS, RANDOM, UP_TO_SIGNS
from tests.fuzzing import WIDER, _close, _pick, own_words
from tests.nn.test_layers import LAYERS, build
from tests.test_opinfo import convert, flat, ours

NAN, INF = float("nan"), float("inf")


class Program:
    """A drawn program: a name, a text that describes it, and a function of the library that returns observations."""

    def __init__(self, name, text, run, exact=None, strides=False):
        self.name, self.text, self.run, self.exact, self.strides = name, text, run, exact, strides

    def __repr__(self):
        return f"{self.name}: {self.text}"


def chance(rng, p):
    return bool(rng.random() < p)


def tensor(L, values, dtype=None, grad=False):
    out = L.tensor(values) if dtype is None else L.tensor(values, dtype=getattr(L, dtype))
    return out.requires_grad_() if grad else out


# -- losses -------------------------------------------------------------------------------------------------------------

SCALES = [1, 1, 30, 300, 1e4, 1e-3, 1e-30, 1e19]
ELEMENTWISE = """mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div poisson_nll_loss
gaussian_nll_loss hinge_embedding_loss soft_margin_loss""".split()
OF_CLASSES = "cross_entropy nll_loss multi_margin_loss".split()
OF_ROWS = """multilabel_margin_loss multilabel_soft_margin_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss
triplet_margin_with_distance_loss ctc_loss""".split()


def _losses(rng):
    name = _pick(rng, ELEMENTWISE + OF_CLASSES + OF_ROWS)
    dtype, scale = _pick(rng, ["float32", "float64"]), _pick(rng, SCALES)
    n, c = int(rng.integers(0 if chance(rng, 0.05) else 1, 5)), int(rng.integers(1, 6))
    options = {"reduction": _pick(rng, ["mean", "sum", "none"])}
    if name == "ctc_loss":
        return _ctc(rng, dtype, scale, options)
    shape = (
        (n, c)
        if name in OF_ROWS + ["multi_margin_loss"]
        else (n, c, *(int(s) for s in rng.integers(1, 4, rng.integers(0, 3))))
    )
    if name in ELEMENTWISE and chance(rng, 0.2):
        shape = shape[: int(rng.integers(0, 2))]
    inputs = [rng.standard_normal(shape) * scale]
    if chance(rng, 0.3) and inputs[0].size:
        inputs[0].reshape(-1)[rng.integers(inputs[0].size)] = _pick(
            rng, [0.0, -0.0, 1e30, -1e30, 88.8, -104.0, INF, -INF, NAN, 1e-40]
        )
    through, labels, extra = None, None, {}
    signs = rng.choice([-1.0, 1.0], shape)
    if name == "binary_cross_entropy":
        through = _pick(rng, ["sigmoid", "clamp", "softmax"])
        inputs.append(_pick(rng, [rng.random(shape), (rng.random(shape) < 0.5) * 1.0]))
    elif name == "binary_cross_entropy_with_logits":
        inputs.append(_pick(rng, [rng.random(shape), (rng.random(shape) < 0.5) * 1.0]))
        if chance(rng, 0.3):
            extra["pos_weight"] = rng.random(shape[-1:]) * 3
    elif name == "kl_div":
        through, options["log_target"] = "log_softmax" if shape else None, chance(rng, 0.5)
        inputs.append(
            -rng.random(shape)
            if options["log_target"]
            else _pick(rng, [rng.random(shape), (rng.random(shape) < 0.5) * 1.0])
        )
        options["reduction"] = _pick(rng, ["mean", "sum", "none", "batchmean"])
    elif name == "poisson_nll_loss":
        options.update(log_input=chance(rng, 0.6), full=chance(rng, 0.5), eps=_pick(rng, [1e-8, 1e-3]))
        inputs.append(rng.integers(0, 9, shape) * 1.0)
    elif name == "gaussian_nll_loss":
        inputs += [rng.standard_normal(shape), rng.random(shape) * _pick(rng, [1.0, 1e-8, 1e4])]
        options.update(full=chance(rng, 0.5), eps=_pick(rng, [1e-6, 1e-2]))
    elif name in ("hinge_embedding_loss", "soft_margin_loss"):
        inputs.append(signs)
    elif name in OF_CLASSES:
        labels = rng.integers(0, c, (n, *shape[2:]))
        if name == "cross_entropy" and chance(rng, 0.3):
            labels, inputs = None, [*inputs, rng.random(shape)]
        if name != "multi_margin_loss":
            through = "log_softmax" if name == "nll_loss" else None
            if labels is not None and chance(rng, 0.4):
                labels = np.where(rng.random(labels.shape) < _pick(rng, [0.3, 1.0]), -100, labels)
            if name == "cross_entropy":
                options["label_smoothing"] = _pick(rng, [0.0, 0.1, 0.5, 1.0])
        else:
            options.update(p=_pick(rng, [1, 2]), margin=_pick(rng, [1.0, 0.3]))
        if chance(rng, 0.4):
            extra["weight"] = rng.random(c) * _pick(rng, [1.0, 3.0, 0.0])
    elif name == "multilabel_margin_loss":
        labels = np.stack(
            [np.where(np.arange(c) < rng.integers(0, c + 1), rng.permutation(c), -1) for _ in range(n)] or [np.zeros(c)]
        )[:n]
        labels = labels.astype(np.int64)
    elif name == "multilabel_soft_margin_loss":
        inputs.append((rng.random(shape) < 0.5) * 1.0)
        if chance(rng, 0.4):
            extra["weight"] = rng.random(c)
    elif name == "cosine_embedding_loss":
        inputs += [rng.standard_normal(shape) * scale, signs[:, 0]]
        options["margin"] = _pick(rng, [0.0, 0.5])
    elif name == "margin_ranking_loss":
        inputs += [rng.standard_normal(shape) * scale, signs]
        options["margin"] = _pick(rng, [0.0, 1.0])
    elif name.startswith("triplet"):
        inputs += [rng.standard_normal(shape) * scale, rng.standard_normal(shape) * scale]
        options.update(margin=_pick(rng, [1.0, 0.1]), swap=chance(rng, 0.5))
        if name == "triplet_margin_loss":
            options.update(p=_pick(rng, [1.0, 2.0, 3.0]), eps=_pick(rng, [1e-6, 1e-3]))
    else:
        inputs.append(rng.standard_normal(shape) * _pick(rng, [1.0, scale]))
        if name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss") and chance(rng, 0.2):
            inputs[1] = inputs[0].copy()
        if name == "smooth_l1_loss":
            options["beta"] = _pick(rng, [0.0, 1.0, 0.1, 50.0])
        if name == "huber_loss":
            options["delta"] = _pick(rng, [1.0, 0.1, 50.0])
        if name in ("mse_loss", "l1_loss", "huber_loss") and chance(rng, 0.3):
            extra["weight"] = rng.random(shape)
    leaves = [True] + [chance(rng, 0.3) and name not in ("cosine_embedding_loss",) for _ in inputs[1:]]
    return _loss_program(name, inputs, leaves, labels, through, options, extra, dtype, int(rng.integers(99)))


def _ctc(rng, dtype, scale, options):
    t, n, c, s = (int(rng.integers(1, m)) for m in (12, 4, 6, 5))
    inputs = [rng.standard_normal((t, n, c + 1)) * scale]
    labels = rng.integers(1, c + 1, (n, s))
    lengths = rng.integers(1, t + 1, n).tolist(), rng.integers(0, s + 1, n).tolist()
    options["zero_infinity"] = chance(rng, 0.5)
    return _loss_program("ctc_loss", inputs, [True], labels, "log_softmax", options, {}, dtype, 0, lengths)


def _loss_program(name, inputs, leaves, labels, through, options, extra, dtype, seed, lengths=()):
    def run(L, dtype=dtype):
        # The numbers of the drawn dtype, also if the program computes in float64 for comparison.
        args = [
            tensor(L, v.astype(text_dtype).astype(dtype), None, leaf) for v, leaf in zip(inputs, leaves, strict=True)
        ]
        x = args[0]
        if through in ("sigmoid", "clamp"):
            x = x.sigmoid() if through == "sigmoid" else x.clamp(0, 1)
        elif through:
            axis = 1 if x.ndim > 1 and name != "ctc_loss" else -1
            x = getattr(x, through)(axis)
        rest = [*args[1:], *([] if labels is None else [L.tensor(labels)]), *(L.tensor(v) for v in lengths)]
        named = {k: tensor(L, v.astype(text_dtype).astype(dtype)) for k, v in extra.items()}
        loss = getattr(L.nn.functional, name)(x, *rest, **options, **named)
        out, wrt = [loss], [a for a in args if a.requires_grad]
        up = np.random.default_rng(seed).standard_normal(tuple(loss.shape)).astype(dtype)
        first = L.autograd.grad(loss, wrt, L.tensor(up), create_graph=True, allow_unused=True)
        out += first
        downs = [
            (g * tensor(L, np.random.default_rng(i).standard_normal(tuple(g.shape)).astype(dtype))).sum()
            for i, g in enumerate(first)
            if g is not None and g.requires_grad
        ]
        if downs:
            out += L.autograd.grad(sum(downs), wrt, allow_unused=True)
        return out

    text_dtype = dtype
    said = f"{[v.tolist() for v in inputs]} {leaves} {None if labels is None else labels.tolist()} {through} {options} { ({k: v.tolist() for k, v in extra.items()}) } {dtype} {lengths}"
    return Program(name, said, run, exact=functools.partial(run, torch, "float64"))


# -- in-place programs at two sizes -----------------------------------------------------------------------------------

COMPUTE = {
    "relu": lambda F, t: F.relu(t), "gelu": lambda F, t: F.gelu(t), "silu": lambda F, t: F.silu(t), "sigmoid": lambda F, t: t.sigmoid(),
    "tanh": lambda F, t: t.tanh(), "exp": lambda F, t: (t * 0.1).exp(), "softmax": lambda F, t: t.softmax(-1), "square": lambda F, t: t.square(),
    "log_softmax": lambda F, t: F.log_softmax(t, -1), "layer_norm": lambda F, t: F.layer_norm(t, t.shape[-1:]), "sum": lambda F, t: t.sum(-1, keepdim=True) + t,
    "mul": lambda F, t: t * t, "div": lambda F, t: t / (t * t + 1), "abs": lambda F, t: t.abs(), "clamp": lambda F, t: t.clamp(-0.5, 0.5), "mean": lambda F, t: t - t.mean(),
    "cumsum": lambda F, t: t.cumsum(-1), "matmul": lambda F, t: t @ t.mT, "pow": lambda F, t: t**3, "elu": lambda F, t: F.elu(t), "leaky": lambda F, t: F.leaky_relu(t, 0.1),
    "softplus": lambda F, t: F.softplus(t), "where": lambda F, t: t.where(t > 0, t * 2), "max": lambda F, t: t.amax(-1, keepdim=True) * t, "sqrt": lambda F, t: (t.abs() + 0.1).sqrt(),
    "rms_norm": lambda F, t: F.rms_norm(t, t.shape[-1:]), "clone": lambda F, t: t.clone(), "contiguous": lambda F, t: t.contiguous(), "reshape": lambda F, t: t.reshape(-1),
    "flip": lambda F, t: t.flip(0), "roll": lambda F, t: t.roll(1, -1), "log1p": lambda F, t: t.abs().log1p(), "normalize": lambda F, t: F.normalize(t, dim=-1),
    "std": lambda F, t: t - t.std(-1, keepdim=True), "mse": lambda F, t: F.mse_loss(t, t * 0.5, reduction="none"), "hardtanh": lambda F, t: F.hardtanh(t),
}  # fmt: skip
VIEW = {
    "[0:1]": lambda t: t[0:1], "[..., 1:]": lambda t: t[..., 1:], "[::2]": lambda t: t[::2], "mT": lambda t: t.mT, "view": lambda t: t.view(-1), "unsqueeze": lambda t: t.unsqueeze(0),
    "narrow": lambda t: t.narrow(-1, 0, 2), "diagonal": lambda t: t.diagonal(), "chunk": lambda t: t.chunk(2, -1)[1], "unbind": lambda t: t.unbind(0)[0], "squeeze": lambda t: t.squeeze(),
    "detach": lambda t: t.detach(), "view_as": lambda t: t.view_as(t), "select": lambda t: t.select(-1, 0), "split": lambda t: t.split(1, -1)[0], "unflatten": lambda t: t.unflatten(-1, (2, -1)),
    "movedim": lambda t: t.movedim(0, -1), "as_strided": lambda t: t.as_strided((2, 2), (1, 2)), "expand": lambda t: t.unsqueeze(0).expand(2, *t.shape),
}  # fmt: skip
CHANGE = {
    "add_": lambda F, t, o: t.add_(o), "mul_": lambda F, t, o: t.mul_(o), "sub_ scalar": lambda F, t, o: t.sub_(0.5), "zero_": lambda F, t, o: t.zero_(), "fill_": lambda F, t, o: t.fill_(2),
    "relu_": lambda F, t, o: t.relu_(), "sigmoid_": lambda F, t, o: t.sigmoid_(), "tanh_": lambda F, t, o: t.tanh_(), "clamp_": lambda F, t, o: t.clamp_(-0.3, 0.3), "exp_": lambda F, t, o: t.mul_(0.1).exp_(),
    "copy_": lambda F, t, o: t.copy_(o), "set 0": lambda F, t, o: t.__setitem__(0, 1.5), "set slice": lambda F, t, o: t.__setitem__(slice(1), o[:1]), "set mask": lambda F, t, o: t.__setitem__(t > 0.5, 0.0),
    "masked_fill_": lambda F, t, o: t.masked_fill_(o > 0, 0.1), "silu": lambda F, t, o: F.silu(t, inplace=True), "elu": lambda F, t, o: F.elu(t, inplace=True), "leaky": lambda F, t, o: F.leaky_relu(t, 0.2, inplace=True),
    "hardtanh": lambda F, t, o: F.hardtanh(t, inplace=True), "mish": lambda F, t, o: F.mish(t, inplace=True), "neg_": lambda F, t, o: t.neg_(), "div_": lambda F, t, o: t.div_(2.0), "square_": lambda F, t, o: t.square_(),
    "addcmul_": lambda F, t, o: t.addcmul_(o, o, value=0.5), "lerp_": lambda F, t, o: t.lerp_(o, 0.25), "pow_": lambda F, t, o: t.pow_(2), "eq_": lambda F, t, o: t.eq_(0), "cumsum_": lambda F, t, o: t.cumsum_(-1),
    "index_fill_": lambda F, t, o: t.index_fill_(0, (o > 9).nonzero()[:0, 0], 2.0), "t_": lambda F, t, o: t.transpose_(0, -1), "unsqueeze_": lambda F, t, o: t.unsqueeze_(0), "detach_": lambda F, t, o: t.detach_(),
    "abs_": lambda F, t, o: t.abs_(), "sqrt_": lambda F, t, o: t.abs_().add_(0.1).sqrt_(), "sub_ o": lambda F, t, o: t.sub_(o, alpha=2), "tril_": lambda F, t, o: t.tril_(), "+=": lambda F, t, o: t.__iadd__(o),
    "softplus": lambda F, t, o: t.copy_(F.softplus(t)), "dropout 0": lambda F, t, o: F.dropout(t, 0.0, True, inplace=True), "celu": lambda F, t, o: F.celu(t, inplace=True), "selu": lambda F, t, o: F.selu(t, inplace=True),
}  # fmt: skip
OTHER = ["hook", "retain_grad", "requires_grad", "backward"]


def _inplace(rng):
    steps = []
    for _ in range(int(rng.integers(3, 9))):
        kind = _pick(rng, ["compute", "compute", "view", "change", "change", "change", "other"])
        table = {"compute": list(COMPUTE), "view": list(VIEW), "change": list(CHANGE), "other": OTHER}[kind]
        steps.append((kind, _pick(rng, table), int(rng.integers(99)), int(rng.integers(99)), chance(rng, 0.08)))
    double, width, dtype = chance(rng, 0.15), int(_pick(rng, [4, 6, 8])), _pick(rng, ["float32", "float64", "float32"])

    def at_size(L, rows, dtype):
        x = tensor(
            L, np.random.default_rng(0).standard_normal((rows, width)).astype("float32").astype(dtype), None, True
        )
        known, retained, F = [x * 1.25], [], L.nn.functional
        for kind, what, a, b, guard in steps:
            t, o = known[a % len(known)], known[b % len(known)]
            if what == "matmul" and (t.ndim < 2 or max(t.shape) > 5000):
                continue  # too large
            with L.no_grad() if guard else contextlib.nullcontext():
                if kind == "compute":
                    known.append(COMPUTE[what](F, t))
                elif kind == "view":
                    known.append(VIEW[what](t))
                elif kind == "change":
                    shared = o.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
                    if o is t or (shared and o.shape != t.shape):  # PyTorch reads elements that it has changed
                        o = o.detach().clone()
                    CHANGE[what](F, t, o)
                elif what == "hook":
                    t.grad_fn  # noqa: B018 - PyTorch ends the process if the graph of a changed view is not computed yet
                    t.register_hook(lambda g: g * 0.5)
                elif what == "retain_grad":
                    t.retain_grad()
                    retained.append(t)
                elif what == "requires_grad":
                    known.append(t.detach().requires_grad_())
                elif what == "backward":
                    t.sum().backward(retain_graph=True)
        parts = [
            (k * tensor(L, np.cos(np.arange(k.numel(), dtype=np.float64)).astype(dtype).reshape(tuple(k.shape)))).sum()
            for k in known
            if k.requires_grad
        ]
        observed = [k.detach().clone() for k in known] + [
            f"{k.requires_grad} {k.is_leaf} {k.grad_fn is None} {k._version} {tuple(k.shape)}" for k in known
        ]
        if parts and double:
            (g,) = L.autograd.grad(sum(parts), x, create_graph=True, allow_unused=True)
            observed.append(None if g is None else g.detach().clone())
            parts = [(g * g).sum()] if g is not None and g.requires_grad else []
        if parts:
            sum(parts).backward()
        return observed + [t.grad for t in [x, *retained]]

    def run(L, dtype=dtype):
        out, refused = [], []
        for rows in (2, 4200 if width == 8 else 600):
            try:
                out.append(at_size(L, rows, dtype))
            except Exception as error:
                out.append(["refused"])
                refused.append(error)
        if len(refused) == 2:
            raise refused[-1]
        return out

    text = "; ".join(f"{'no_grad ' * g}{k} {w} {a} {b}" for k, w, a, b, g in steps)
    return Program(
        "program", f"{text} double={double} {width} {dtype}", run, exact=functools.partial(run, torch, "float64")
    )


# -- calls of the operator database -----------------------------------------------------------------------------------


@functools.cache
def _operators():
    return [
        op for op in fuzzing.operators() if op.name not in RANDOM | UP_TO_SIGNS | OTHER_ARGUMENTS and "item" != op.name
    ]


@functools.cache
def _signatures():
    """Names of the arguments of PyTorch's functions, by the name in the database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = get_testing_overrides()
    found = {}
    for function, replacement in table.items():
        with contextlib.suppress(Exception):
            path = torch.overrides.resolve_name(function)
            found[path.removeprefix("torch.")] = list(inspect.signature(replacement).parameters)
    return found


def _sample(rng, dtypes=(torch.float64, torch.float64, torch.float32, torch.int64, torch.bool, torch.complex128)):
    op = _pick(rng, _operators())
    supported = op.supported_dtypes("cpu") or {torch.float64}
    dtype = _pick(rng, list(dtypes))
    dtype = dtype if dtype in supported else _pick(rng, sorted(supported & set(dtypes), key=str) or [torch.float64])
    sample = fuzzing.sample(op, dtype, int(rng.integers(10)))
    args = [fuzzing._thawed(sample.input), *(fuzzing._thawed(a) for a in sample.args)]
    return op, args, {k: fuzzing._thawed(v) for k, v in sample.kwargs.items()}


def _observed(L, out, inputs, grad):
    """Returns the results, and the gradients of the inputs by fixed upstream gradients."""
    results = flat(out)
    observed = list(results)
    if grad:
        marked = [r for r in results if getattr(r, "requires_grad", False)]
        if marked:
            rng = np.random.default_rng(0)
            ups = [tensor(L, rng.standard_normal(tuple(r.shape))).to(r.dtype) for r in marked]
            found = L.autograd.grad(marked, inputs, ups, allow_unused=True)
            observed += [None if g is None else g.contiguous() for g in found]  # their strides may differ
    return observed


def _call_program(op, args, kwargs, grad, strides=False, functions=None):
    def run(L):
        function = (functions or {torch: op.op, mytorch: ours(op.name)})[L]
        a, k = (copy.deepcopy((args, kwargs))) if L is torch else (convert(args), convert(kwargs))
        inputs = [
            t
            for t in flat([a, list(k.values())])
            if isinstance(t, L.Tensor) and (t.dtype.is_floating_point or t.dtype.is_complex)
        ]
        for t in inputs if grad else ():
            t.requires_grad_()
        return _observed(L, function(*a, **k), inputs, grad)

    said = ", ".join([fuzzing._short(a) for a in args] + [f"{k}={fuzzing._short(v)}" for k, v in kwargs.items()])
    return Program(op.name, f"{said}{' with gradients' * grad}", run, strides=strides)


def _keywords(rng):
    for _ in range(50):
        op, args, kwargs = _sample(rng)
        names = _signatures().get(op.name) or _signatures().get("Tensor." + op.name)
        # The database calls some functions with another order of arguments.
        other_order = op.name.startswith(("einsum", "nn.functional.pad", "where", "polygamma"))
        if names and len(names) >= len(args) and not other_order:
            break
    else:
        return None
    theirs = (
        functools.reduce(getattr, op.name.split("."), torch)
        if not hasattr(torch.Tensor, op.name) or hasattr(torch, op.name)
        else getattr(torch.Tensor, op.name)
    )
    kept = int(rng.integers(0 if chance(rng, 0.2) else 1, len(args) + 1))
    kwargs = {**dict(zip(names[kept:], args[kept:], strict=False)), **kwargs}
    args = args[:kept]
    if chance(rng, 0.2):
        kwargs[_pick(rng, ["zzz", "axes", "other_", "inputs", "dims_", "keep_dim", "reduced", "a"])] = _pick(
            rng, [1, 0, None, True]
        )
    elif chance(rng, 0.2) and kwargs:
        key = _pick(rng, sorted(kwargs))
        kwargs = {(k + "s" if k == key else k): v for k, v in kwargs.items()}
    return _call_program(
        op, args, kwargs, op.supports_autograd and chance(rng, 0.3), functions={torch: theirs, mytorch: ours(op.name)}
    )


def _empty(rng):
    for _ in range(50):
        op, args, kwargs = _sample(rng)
        tensors = [t for t in flat([args, list(kwargs.values())]) if isinstance(t, torch.Tensor) and t.ndim]
        if tensors:
            break
    else:
        return None
    sizes = sorted({n for t in tensors for n in t.shape})
    size, one = _pick(rng, sizes), chance(rng, 0.25)
    chosen = _pick(rng, tensors)

    def cut(x):
        if isinstance(x, torch.Tensor) and x.ndim and (not one or x is chosen):
            axes = [i for i, n in enumerate(x.shape) if n == size]
            for axis in axes[:1] if one else axes:
                x = x.narrow(axis, 0, 0)
            return x.clone()
        if isinstance(x, list):
            return [cut(v) for v in x]
        return {k: cut(v) for k, v in x.items()} if isinstance(x, dict) else x

    strides = not op.name.startswith("fft.")  # PyTorch's transforms move the transformed axes
    return _call_program(op, cut(args), cut(kwargs), op.supports_autograd and chance(rng, 0.5), strides)


def _subclasses(rng):
    op, args, kwargs = _sample(rng, (torch.float64, torch.float32, torch.int64))
    kind = _pick(rng, ["plain", "plain", "logged", "refusing", "duck", "child"])
    tensors = [t for t in flat([args, list(kwargs.values())]) if isinstance(t, torch.Tensor)]
    which = {i for i in range(len(tensors)) if chance(rng, 0.6)} or {0}
    grad = op.supports_autograd and chance(rng, 0.3)

    def called(function):
        return re.sub("^(special_|linalg_|fft_|_)", "", getattr(function, "__name__", "?"))

    def run(L):
        calls = []

        class Plain(L.Tensor):
            pass

        class Child(Plain):
            pass

        class Logged(L.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                calls.append(called(func))
                return super().__torch_function__(func, types, args, kwargs or {})

        class Refusing(L.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return NotImplemented

        class Duck:
            def __init__(self, data):
                self.data = data

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                calls.append(called(func))
                return L.tensor(7)

        classes = {"plain": Plain, "logged": Logged, "refusing": Refusing, "child": Child}
        a, k = copy.deepcopy((args, kwargs)) if L is torch else (convert(args), convert(kwargs))
        counter = iter(range(99))

        def wrap(x):
            if isinstance(x, L.Tensor):
                number = next(counter)
                if grad and (x.dtype.is_floating_point or x.dtype.is_complex):
                    x.requires_grad_()
                if number not in which:
                    return x
                if kind == "duck":
                    return Duck(x)
                second = kind == "child" and number % 2
                return x.as_subclass(Plain if second else classes[kind])
            if isinstance(x, (list, tuple)):
                return type(x)(map(wrap, x))
            return {key: wrap(v) for key, v in x.items()} if isinstance(x, dict) else x

        L.ones(1).as_subclass(Plain)  # mytorch looks for other classes with __torch_function__ from here on
        a, k = wrap(a), wrap(k)
        out = (op.op if L is torch else ours(op.name))(*a, **k)
        return [
            *flat(out),
            *(type(t).__name__ for t in flat(out)),
            str(calls),
            *(t.grad_fn is None for t in flat(out) if isinstance(t, L.Tensor)),
        ]

    said = ", ".join([fuzzing._short(v) for v in args] + [f"{k}={fuzzing._short(v)}" for k, v in kwargs.items()])
    return Program(op.name, f"{kind} {sorted(which)} {said}{' with gradients' * grad}", run)


# -- copies -----------------------------------------------------------------------------------------------------------

LAYOUTS = {
    "whole": lambda t: t, "transposed": lambda t: t.t(), "rows": lambda t: t[1:], "columns": lambda t: t[:, 1:], "steps": lambda t: t[::2], "expanded": lambda t: t[0].expand(3, -1),
    "one": lambda t: t[1, 1], "empty": lambda t: t[:0], "flat": lambda t: t.reshape(-1), "diagonal": lambda t: t.diagonal(), "reversed axes": lambda t: t.unsqueeze(0).permute(2, 0, 1),
}  # fmt: skip


def _by_pickle(protocol):
    return lambda L, x: pickle.loads(pickle.dumps(x, protocol))


def _by_save(**options):
    def copied(L, x):
        file = io.BytesIO()
        L.save(x, file, **options)
        file.seek(0)
        return L.load(file)

    return copied


COPY = {
    **{f"pickle {p}": _by_pickle(p) for p in (2, 3, 4, 5)}, "deepcopy": lambda L, x: copy.deepcopy(x), "copy": lambda L, x: copy.copy(x), "save": _by_save(),
}  # fmt: skip
OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "RMSprop": {"momentum": 0.5},
    "Adagrad": {},
    "NAdam": {},
    "Adamax": {},
    "Rprop": {},
    "ASGD": {},
    "Adadelta": {},
}


def _copies(rng):
    kind = _pick(rng, ["tensors", "tensors", "layer", "optimizer", "tied", "parameters", "other"])
    how, again = _pick(rng, list(COPY)), _pick(rng, list(COPY))
    dtype = _pick(rng, ["float32", "float64", "int64", "uint8", "bool", "complex64", "float16", "bfloat16", "int8"])
    layouts = [_pick(rng, list(LAYOUTS)) for _ in range(int(rng.integers(1, 4)))]
    grad, seed, flag = chance(rng, 0.4), int(rng.integers(99)), chance(rng, 0.5)
    text, shape = _pick(rng, LAYERS)
    optimizer = _pick(rng, list(OPTIMIZERS))

    whole = "pickle" not in how + again  # pickle copies the elements of a view, not its memory: docs/differences.md

    def facts(t):
        memory = f"{tuple(t.stride())} {t.storage_offset()} {t.is_contiguous()}" if whole else ""
        text = f"{type(t).__name__} {t.dtype} {tuple(t.shape)} {t.requires_grad} {t.is_leaf} {t.grad is None} {memory}"
        return [t, text.replace("mytorch.", "torch.")]

    def module_facts(layer):
        out = [type(layer).__name__, layer.training, *layer.state_dict()]
        for t in layer.state_dict().values():
            out += facts(t) if hasattr(t, "stride") else [str(t)]
        return out + [f"{n} {p.requires_grad} {p.grad is None}" for n, p in layer.named_parameters()]

    def run(L):
        L.manual_seed(seed)
        through = lambda x: COPY[again](L, COPY[how](L, x))  # noqa: E731
        base = tensor(L, np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 9, (4, 5)), dtype)
        if kind == "tensors":
            views = [LAYOUTS[name](base) for name in layouts]
            if grad and base.dtype.is_floating_point and len(views) == 1:
                views = [views[0].detach().requires_grad_()]
            copied = through(views)
            out = [f for t in copied for f in facts(t)]
            if whole and not grad and copied[0].numel() and 0 not in copied[0].stride():
                copied[0].fill_(1)  # changes the tensors that share its memory
                out += [*copied, base, copied[0].data_ptr() == views[0].data_ptr()]
            return out
        if kind == "layer":
            layer = build(L, text)
            layer.train(flag)
            copied = COPY[how](L, layer) if how != "save" else COPY["deepcopy"](L, layer)
            x = tensor(L, np.random.default_rng(1).standard_normal(shape).astype("float32"))
            L.manual_seed(1)
            result = copied(x)
            return module_facts(copied) + [r.detach() for r in flat(result) if isinstance(r, L.Tensor)]
        if kind == "tied":
            a, b = L.nn.Linear(3, 3), L.nn.Linear(3, 3)
            b.weight = a.weight
            a.bias.requires_grad_(flag)
            net = L.nn.Sequential(a, L.nn.ReLU(), b)
            net.extra = a.weight
            net(L.ones(2, 3)).sum().backward()
            copied = COPY[how](L, net) if how != "save" else COPY["deepcopy"](L, net)
            same = copied[0].weight is copied[2].weight, copied.extra is copied[0].weight, copied[0].weight is a.weight
            return [
                *map(str, same),
                *module_facts(copied),
                *[p.grad for p in copied.parameters() if p.grad is not None],
            ]
        if kind == "optimizer":
            layer = L.nn.Linear(3, 2)
            made = getattr(L.optim, optimizer)(layer.parameters(), lr=0.1, **OPTIMIZERS[optimizer])
            for _ in range(2):
                made.zero_grad()
                layer(L.ones(4, 3)).square().sum().backward()
                made.step()
            state = through(made.state_dict())
            fresh = getattr(L.optim, optimizer)(layer.parameters(), lr=0.5)
            fresh.load_state_dict(state)
            if flag:
                state["param_groups"][0]["lr"] = 7.0  # the optimizer has its own copy
                made.param_groups[0]["lr"] = 8.0
            fresh.step()
            told = [(k, v) for k, v in sorted(fresh.param_groups[0].items()) if k != "params"]
            return [
                str(told),
                *layer.parameters(),
                *[v for s in fresh.state_dict()["state"].values() for v in s.values() if hasattr(v, "shape")],
            ]
        if kind == "parameters":
            p = L.nn.Parameter(base.float(), requires_grad=flag)
            items = {
                "a": p,
                "b": [p, L.nn.Buffer(base.float())],
                "c": L.nn.ParameterList([p]),
                "d": L.nn.ParameterDict({"x": p}),
            }
            if flag:
                (p * 2).sum().backward()
            copied = COPY[how](L, items) if how != "save" else COPY["deepcopy"](L, items)
            same = (
                copied["a"] is copied["b"][0],
                copied["a"] is copied["c"][0],
                copied["a"] is copied["d"]["x"],
                copied["a"] is p,
            )
            return [
                *map(str, same),
                *facts(copied["a"]),
                copied["b"][1],
                copied["b"][1].requires_grad,
                copied["a"].grad,
            ]
        values = [L.Size([2, 3]), L.float16, L.device("cpu"), L.finfo(L.float32).max]
        values += [base.sum()]
        names = [str(v).replace("mytorch.", "torch.") for v in through(values[:4])]
        return [*names, *through(values[4:])]

    return Program(
        "copies",
        f"{kind} {how} {again} {dtype} {layouts} {grad} {flag} {text if kind == 'layer' else ''} {optimizer if kind == 'optimizer' else ''}",
        run,
    )


# -- outcomes ---------------------------------------------------------------------------------------------------------

FAMILIES = {
    "losses": _losses,
    "inplace": _inplace,
    "keywords": _keywords,
    "copies": _copies,
    "subclasses": _subclasses,
    "empty": _empty,
}


def case(family, seed, number):
    """Returns the program of a seed and a number, or None if the draw is not a program."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return FAMILIES[family](np.random.default_rng([seed, number, sorted(FAMILIES).index(family)]))


def _leaves(observed):
    return [leaf for o in observed for leaf in (_leaves(o) if isinstance(o, (list, tuple)) else [o])]


def _observe(run):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return _leaves(run()), None
        except Exception as error:
            return None, error


def _steps(tensor):
    """Returns the strides of the axes that have more than one element."""
    return [step for step, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def _difference(theirs, mine, strides=False):
    if len(theirs) != len(mine):
        return (
            "different",
            f"{len(mine)} observations for {len(theirs)}: {str([m for m in mine if isinstance(m, str)][-2:])[:200]}",
        )
    worst = None
    for i, (a, b) in enumerate(zip(theirs, mine, strict=True)):
        if not isinstance(a, torch.Tensor) or not isinstance(b, mytorch.Tensor):
            if a is None or b is None:  # no gradient is a gradient of zeros
                rest = b if a is None else a
                if rest is not None and np.any(fuzzing._array(rest)):
                    return "different", f"observation {i}: {b!r} for {a!r}"
                continue
            if type(a) in (str, bool) or type(b) in (str, bool):
                if a != b:
                    return "different", f"observation {i}: {b!r} for {a!r}"
                continue
        elif str(a.dtype)[6:] != b.dtype.name:
            return "different", f"observation {i}: dtype {b.dtype} for {a.dtype}"
        elif strides and tuple(a.shape) == tuple(b.shape) and _steps(a) != _steps(b) and a.numel() > 1:
            return "different", f"observation {i}: strides {tuple(b.stride())} for {tuple(a.stride())}"
        x, y = fuzzing._array(a), fuzzing._array(b)
        if x.shape != y.shape:
            return "different", f"observation {i}: shape {y.shape} for {x.shape}"
        bits = str(a.dtype)[6:] if isinstance(a, torch.Tensor) else None
        if not _close(x, y, bits) and not _close(y, x, bits):  # both: a rounded zero has no relative error
            kind, told = fuzzing._values(x, y, bits)
            if kind == "different" or worst is None:
                worst = kind, f"observation {i}: {told}"
            if kind == "different":
                return worst
    return worst


def outcome(program):
    """Returns (kind, explanation); see the docstring of tests/fuzzing.py."""
    mine, error = _observe(lambda: program.run(mytorch))
    theirs, refusal = _observe(lambda: program.run(torch))
    if error is not None:
        told = f"{type(error).__name__}: {str(error)[:200]} | PyTorch: {str(refusal)[:120] if refusal else 'answers'}"
        if type(error) is type(refusal) and str(error) == str(refusal):  # the program itself is wrong
            return "ok", told
        if not own_words(error) and not re.search(
            "got an unexpected keyword|missing [1-9] required|takes [0-9a-z ]* positional|got multiple values",
            str(error),
        ):
            return "words", f"{told} | {fuzzing._place(error)}"
        return ("ok", told) if refusal is not None else ("refused", told)
    if refusal is not None:
        kind = "wider" if isinstance(refusal, NotImplementedError) or WIDER.search(str(refusal)) else "accepted"
        return kind, f"{type(refusal).__name__}: {str(refusal)[:200]}"
    found = _difference(theirs, mine, program.strides)
    if found is not None and program.exact is not None:
        exact, failed = _observe(program.exact)
        if (
            failed is None
            and _difference(
                [
                    e.to(t.dtype) if isinstance(e, torch.Tensor) and isinstance(t, torch.Tensor) else e
                    for e, t in zip(exact, theirs, strict=False)
                ],
                mine,
            )
            is None
        ):
            return "ok", "closer to the result in float64"
    return found or ("ok", "")


def _worker(family, seed, first, last, progress, results):
    for number in range(first, last):
        progress.seek(0)
        progress.write(f"{number:9}")
        progress.flush()
        signal.setitimer(signal.ITIMER_PROF, 60)  # of CPU time: the machine may be busy
        program = case(family, seed, number)
        kind, told = ("none", "") if program is None else outcome(program)
        signal.setitimer(signal.ITIMER_PROF, 0)
        results.write(
            f"{number}\t{kind}\t{program.name if program else ''}\t{told!r}\t{(program.text if program else '')[:1500]!r}\n"
        )
        results.flush()


def run(family, seed, cases, path, first=0):
    """Runs cases in processes that may crash, and writes a line for each case."""
    with open(path, "a") as results, tempfile.NamedTemporaryFile("w+") as progress:
        while first < cases:
            pid = os.fork()
            if pid == 0:
                _worker(family, seed, first, cases, progress, results)
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            if status == 0:
                return
            progress.seek(0)
            number = int(progress.read())
            results.write(f"{number}\tcrash\t{status}\t''\t''\n")
            results.flush()  # or the next process writes it again
            first = number + 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--out", default="comparisons.tsv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run(options.family, options.seed, options.cases, options.out)
    rows = [line.split("\t") for line in Path(options.out).read_text().splitlines()]
    print(options.family, len(rows), dict(Counter(row[1] for row in rows)))
    for row in rows:
        if row[1] not in ("ok", "wider", "none"):
            print(*row[:4], re.sub(r"\s+", " ", row[4])[:300])
