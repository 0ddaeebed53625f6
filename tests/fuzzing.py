"""Random calls compared with PyTorch: ops, layers, indexing, views and in-place changes, with arguments that may be invalid.

Case i of a seed is always the same case. A case is a valid call from PyTorch's operator database or from the tests of layers, with
up to three random changes. A change affects a shape, an order of strides, a dtype, a number, extreme values or an option.
`outcome` makes the call in both libraries and compares the results:

* ok: equal results, or both libraries raise an error.
* different: both return a result, and values, shapes, dtypes or gradients differ.
* spread: the results differ only where one of them is infinite or NaN, and the inputs contain inf or NaN, or overflow.
* accepted: PyTorch raises an error, and mytorch returns a result. "wider": PyTorch lacks a kernel for a dtype or a mix of dtypes.
* refused: mytorch raises its error, and PyTorch returns a result.
* words: the error is not an error of the library, but a raw NumPy or Python error.
* hang, crash: the process hangs or crashes. Only `python -m tests.fuzzing` survives it; it prints the number of cases of each kind.
  It records the signal of a crash and writes the stack into a separate file.

PyTorch sometimes corrupts memory, and a later allocation crashes. To find the call, preload glibc's libc_malloc_debug and set
`MALLOC_CHECK_=3`.

The table in docs/differences.md lists the known differences and their reasons.
"""

import argparse
import contextlib
import copy
import faulthandler
import itertools
import json
import linecache
import mmap
import os
import re
import signal
import struct
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch

import mytorch
from tests.exceptions import ELSEWHERE, OTHER_ARGUMENTS, RANDOM, UP_TO_SIGNS
from tests.nn.test_layers import LAYERS, build
from tests.test_opinfo import convert, flat, op_db, ours, samples, values

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = {"float64": 1e-6, "complex128": 1e-6, "float32": 1e-4, "complex64": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
EXTREMES = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30, 1e6, 1e-30, 1e-310, -1.0, 100.0]
INTEGERS = [-1, 0, 1, -2, 2, 3, -7, 7]
WIDER = re.compile(
    r"not implemented|types other than|not supported|not differentiable|MKL|INTERNAL ASSERT|unsupported|dtype|scalar type|same type|type [A-Z]\w+ but|can't be cast|"
    r"cannot be cast|[Cc]omplex|[Bb]ool|floating|integral|Half|Integer|bias type"
)
LOUD = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, ZeroDivisionError)
DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool", "complex128", "float16", "bfloat16"]


class Case:
    """A call: its name, the two functions, PyTorch's arguments, and True if gradients are compared."""

    def __init__(self, name, theirs, mine, args, kwargs, grad=False):
        self.name, self.theirs, self.mine, self.args, self.kwargs, self.grad = name, theirs, mine, args, kwargs, grad

    def __repr__(self):
        parts = [_short(a) for a in self.args] + [f"{k}={_short(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(parts)})" + (" with gradients" if self.grad else "")


def _short(x):
    if isinstance(x, torch.Tensor):
        data = f" = {x.tolist()}" if 0 < x.numel() <= 6 else ""
        strides = "" if x.is_contiguous() else f", strides {tuple(x.stride())}"
        return f"<{str(x.dtype)[6:]} {tuple(x.shape)}{strides}{data}>"
    if isinstance(x, (list, tuple)):
        return f"[{', '.join(map(_short, x))}]"
    return repr(x)


# -- valid calls and their random changes -------------------------------------------------------------------------------


def operators():
    """The database's ops that we have."""
    return [
        op
        for op in op_db
        if not op.name.startswith(ELSEWHERE)
        and not {op.name, f"{op.name}.{op.variant_test_name}"} & OTHER_ARGUMENTS
        and callable(ours(op.name))
        and op.name not in ("empty_strided", "new_empty_strided", "as_strided", "to")
    ]


_samples = {}


def sample(op, dtype, place):
    """Returns one of the first twelve samples of the database by its index; does not create later samples, which are slow."""
    key = op.name, op.variant_test_name, dtype
    found = _samples.get(key, [])
    if len(found) <= place and None not in found:
        torch.manual_seed(0)
        np.random.seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = list(itertools.islice(samples(op, dtype), place + 1))
        _samples[key] = found if len(found) > place else [*found, None]  # None: there are no more
    found = [s for s in _samples[key] if s is not None]
    return found[place % len(found)]


def _leaves(tree, path=()):
    """(path, leaf) of every number, text, None and tensor in nested lists and dictionaries."""
    if isinstance(tree, dict):
        return [leaf for k, v in tree.items() for leaf in _leaves(v, (*path, k))]
    if type(tree) is list:
        return [leaf for k, v in enumerate(tree) for leaf in _leaves(v, (*path, k))] + (
            [(path, tree)] if path[1:] else []
        )
    return [(path, tree)]


def _thawed(x):
    """Converts tuples to lists and clones tensors, so that parts can be changed."""
    if isinstance(x, torch.Tensor):
        y = x.detach().resolve_conj().resolve_neg()
        return y.clone(memory_format=torch.preserve_format)
    if isinstance(x, (list, tuple)):
        return [_thawed(v) for v in x]
    return {k: _thawed(v) for k, v in x.items()} if isinstance(x, dict) else x


def _put(tree, path, value):
    for step in path[:-1]:
        tree = tree[step]
    tree[path[-1]] = value


def _pick(rng, options):
    return options[int(rng.integers(len(options)))]


def _changed(x, rng):
    """Another value in place of x."""
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        return _pick(rng, [*INTEGERS, x + 1, -x])
    if isinstance(x, float):
        return _pick(rng, [0.0, -1.0, 0.5, 2.0, np.inf, np.nan, -x, 1])
    if isinstance(x, str):
        return _pick(rng, ["none", "sum", "mean", "nothing", x])
    if x is None:
        return _pick(rng, [None, 0, 1, -1, 2, True])
    if isinstance(x, list):
        return _pick(rng, [x[:-1], [*x, *copy.deepcopy(x[-1:])], x[::-1], tuple(x)]) if len(x) < 6 else x
    return _tensor_changed(x, rng) if isinstance(x, torch.Tensor) else x


def _tensor_changed(x, rng):
    kind = int(rng.integers(7))
    if kind <= 1 and x.numel() and (x.is_floating_point() or x.is_complex()):  # extreme values
        flat = x.contiguous().reshape(-1)
        for i in rng.integers(0, x.numel(), int(rng.integers(1, 4))):
            flat[int(i)] = float(_pick(rng, EXTREMES))
        return flat.reshape(x.shape)
    if kind == 2:
        return x.to(getattr(torch, _pick(rng, DTYPES)))
    if kind == 3 and x.numel() and not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool:
        flat = x.contiguous().reshape(-1)
        flat[int(rng.integers(x.numel()))] = _pick(rng, [-1, 0, 1, 2, 7, 100]) % 127
        return flat.reshape(x.shape)
    if kind == 4 and x.ndim > 1:  # other strides
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    shape = list(x.shape)
    at = int(rng.integers(len(shape))) if shape else 0
    change = int(rng.integers(6))
    if change == 0 and shape:
        del shape[at]
    elif change == 1:
        shape.insert(at, _pick(rng, [1, 2, 0]))
    elif shape:
        shape[at] = _pick(rng, [0, 1, shape[at] + 1, max(shape[at] - 1, 0), 2])
    count = int(np.prod(shape, dtype=np.int64))
    if count > 20000:
        return x
    if not x.numel():
        return torch.zeros(shape, dtype=x.dtype)
    flat = x.contiguous().reshape(-1)
    return flat[torch.arange(count) % x.numel()].reshape(shape)


def _op_case(rng, ops):
    op = _pick(rng, ops)
    wanted = _pick(rng, [torch.float64, torch.float64, torch.float32, torch.int64, torch.bool, torch.complex128])
    supported = op.supported_dtypes("cpu") or {torch.float64}
    dtype = (
        wanted
        if wanted in supported
        else torch.float64
        if torch.float64 in supported
        else _pick(rng, sorted(supported, key=str))
    )
    right = sample(op, dtype, int(rng.integers(12)))
    tree = [[_thawed(right.input), *(_thawed(a) for a in right.args)], {k: _thawed(v) for k, v in right.kwargs.items()}]
    for _ in range(_pick(rng, [0, 1, 1, 1, 1, 2, 2, 3])):
        leaves = _leaves(tree)
        path, leaf = _pick(rng, leaves)
        _put(tree, path, _changed(leaf, rng))
    grad = op.supports_autograd and op.name not in RANDOM and rng.random() < 0.3
    return Case(op.name, op.op, ours(op.name), tree[0], tree[1], grad)


def _layer_case(rng):
    text, shape = _pick(rng, LAYERS)
    numbers = [m.span() for m in re.finditer(r"(?<![\w.-])-?\d+(?![\w.])", text)]
    if numbers and rng.random() < 0.6:
        a, b = _pick(rng, numbers)
        text = text[:a] + str(_pick(rng, [*INTEGERS, int(text[a:b]) + 1])) + text[b:]
    x = torch.from_numpy(np.asarray(rng.standard_normal(shape)))
    if rng.random() < 0.6:
        x = _tensor_changed(x, rng)

    def run(lib):
        def call(x):
            lib.manual_seed(11)
            layer = build(lib, text).double()
            return layer(x)

        return call

    return Case("nn." + text, run(torch), run(mytorch), [x], {}, grad=rng.random() < 0.5)


def _index(rng, shape, lib_free=True):
    """A random index expression: numbers, slices, None, ..., booleans, tensors of both kinds."""
    parts, axis = [], 0
    while axis <= len(shape) and len(parts) < 5 and rng.random() < 0.85:
        n = shape[axis] if axis < len(shape) else 2
        kind = int(rng.integers(10))
        if kind <= 1:
            parts.append(int(rng.integers(-n - 1, n + 1)))
        elif kind <= 3:
            a, b = (int(v) for v in rng.integers(-n - 2, n + 3, 2))
            parts.append(slice(_pick(rng, [None, a]), _pick(rng, [None, b]), _pick(rng, [None, 1, 2, 3, None, 0, -1])))
        elif kind == 4:
            parts.append(None)
            continue
        elif kind == 5 and Ellipsis not in [p for p in parts if p is Ellipsis]:
            parts.append(Ellipsis)
            continue
        elif kind == 6:
            parts.append(_pick(rng, [True, False]))
            continue
        elif kind == 7:
            dims = int(rng.integers(1, 3))
            size = (
                tuple(shape[axis : axis + dims])
                if rng.random() < 0.85
                else tuple(int(v) for v in rng.integers(0, 4, dims))
            )
            parts.append(torch.from_numpy(np.asarray(rng.random(size) < 0.5)))
            axis += dims - 1
        elif kind == 8:
            parts.append([int(v) for v in rng.integers(-n, max(n, 1), int(rng.integers(0, 4)))])
        else:
            size = tuple(int(v) for v in rng.integers(0, 4, int(rng.integers(0, 3))))
            high = n + (rng.random() < 0.1)
            parts.append(torch.from_numpy(np.asarray(rng.integers(-n, max(high, 1), size))))
        axis += 1
    return parts


def _index_case(rng):
    shape = [int(v) for v in rng.integers(0, 5, int(rng.integers(0, 4)))]
    x = torch.from_numpy(np.asarray(rng.standard_normal(shape)))
    if rng.random() < 0.3 and x.ndim > 1:
        x = x.transpose(0, -1)
    index = _index(rng, list(x.shape))
    alone = len(index) == 1 and rng.random() < 0.5

    def get(x, *index):
        return x[index[0] if alone else index]

    def put(x, value, *index):
        y = x * 1
        y[index[0] if alone else index] = value
        return y

    if rng.random() < 0.5:
        return Case("getitem", get, get, [x, *index], {}, grad=rng.random() < 0.4)
    value = _pick(rng, [2.0, 3, True])
    if rng.random() < 0.6:
        size = tuple(int(v) for v in rng.integers(0, 4, int(rng.integers(0, 3))))
        with contextlib.suppress(Exception):
            size = tuple(x[index[0] if alone else tuple(index)].shape) if rng.random() < 0.7 else size
        value = torch.from_numpy(np.asarray(rng.standard_normal(size)))
    return Case("setitem", put, put, [x, value, *index], {}, grad=rng.random() < 0.4)


VIEWS = [
    "[0]", "[-1]", "[1:]", "[:2]", "[:, 1:]", "[::2]", "[None]", "[..., 0]", ".t()", ".transpose(0, -1)", ".unsqueeze(0)",
    ".squeeze()", ".diagonal()", ".view(-1)", ".reshape(-1)", ".flatten()", ".expand(2, *s)", ".unbind(0)[0]", ".unbind(-1)[-1]",
    ".split(2)[0]", ".chunk(2, -1)[0]", ".narrow(0, 1, 1)", ".detach()", ".unfold(0, 2, 1)", ".select(0, 1)", ".movedim(0, -1)",
    ".tensor_split(2)[1]", ".view_as(base)", ".as_strided((2,), (1,))", ".permute(*range(n))", ".swapaxes(0, -1)", ".real",
]  # fmt: skip
WRITES = [
    ".mul_(2)", ".add_(other)", ".mul_(other)", ".zero_()", ".fill_(3)", ".copy_(other)", ".exp_()", ".sigmoid_()", ".clamp_(-1, 1)",
    ".sub_(base)", ".div_(2)", ".relu_()", ".neg_()", ".t_()", ".squeeze_()", ".unsqueeze_(0)", ".add_(base[0])", ".tril_()",
    ".masked_fill_(other > 0, 2.0)", ".index_fill_(0, i, 1.0)", ".requires_grad_()", ".detach_()", ".addcmul_(other, other)", ".cumsum_(0)",
    ".lerp_(other, 0.5)", ".pow_(2)", ".transpose_(0, -1)", ".set_data(other)", ".__setitem__(0, 1.0)", ".__setitem__(0, other)",
]  # fmt: skip


def _program_case(rng):
    """Views of one tensor, changed in place: every value, and the gradient of the leaf."""
    shape = [int(v) for v in rng.integers(1, 4, int(rng.integers(1, 4)))]
    leaf, steps = bool(rng.random() < 0.2), []
    for _ in range(int(rng.integers(2, 7))):
        kind = rng.random()
        guard = rng.random() < 0.1 and kind >= 0.5  # views made under no_grad are another matter: docs/differences.md
        steps.append(
            (
                kind < 0.5,
                _pick(rng, VIEWS if kind < 0.5 else WRITES),
                int(rng.integers(99)),
                int(rng.integers(99)),
                guard,
            )
        )
    weights = rng.standard_normal(4000)

    def run(lib):
        def call(x):
            x.requires_grad_()
            base = x if leaf else x * 1.5
            known = [base]
            for viewing, text, a, b, guard in steps:
                t, other = known[a % len(known)], known[b % len(known)]
                names = {"t": t, "other": other, "base": base, "s": tuple(t.shape), "n": t.ndim, "i": lib.tensor([0])}
                with lib.no_grad() if guard else contextlib.nullcontext():
                    text = text.replace(".set_data(other)", ".copy_(other)").replace(".detach_()", ".detach()")
                    apart = None
                    if lib is torch and not viewing and other is not t and "other" in text:
                        apart = eval("t" + text, {**names, "t": t.detach().clone(), "other": other.detach().clone()})
                    if lib is torch and other is t and text == ".copy_(other)":
                        raise RuntimeError("PyTorch counts overlapping windows twice in a copy onto itself")
                    result = eval("t" + text, names)
                    if apart is not None and not torch.equal(apart.nan_to_num(), result.nan_to_num()):
                        raise RuntimeError("PyTorch reads elements that it has overwritten")
                if viewing:
                    known.append(result)
            total = sum((k * lib.tensor(weights[: k.numel()].reshape(tuple(k.shape)))).sum() for k in known)
            if total.requires_grad:
                total.backward()
            return (
                [k.detach() for k in known]
                + [float(k.requires_grad) for k in known]
                + [lib.zeros_like(x) if x.grad is None else lib.as_tensor(x.grad)]
            )

        return call

    text = "; ".join(f"{'no_grad ' * g}{a % 7} {s} {b % 7}" for _, s, a, b, g in steps)
    return Case(
        f"program[{'leaf; ' * leaf}{text}]",
        run(torch),
        run(mytorch),
        [torch.from_numpy(np.asarray(rng.standard_normal(shape)))],
        {},
    )


_ops = {}


def case(seed, number, only=None):
    """The case of a seed and a number, None where the draw is none; `only`: a part of the name of the ops to draw from."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _drawn(seed, number, only)


def _drawn(seed, number, only):
    rng = np.random.default_rng([seed, number])
    if only not in _ops:
        _ops[only] = [op for op in operators() if only is None or re.search(only, op.name)]
    family = 0 if only else rng.random()
    if family < 0.7:
        return _op_case(rng, _ops[only])
    if family < 0.8:
        return _layer_case(rng)
    return _index_case(rng) if family < 0.9 else _program_case(rng)


# -- outcomes --------------------------------------------------------------------------------------------------------


def own_words(error):
    """Returns True if a statement of the library (or Python, for the call itself) raised an error of a kind that PyTorch raises."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
    if file in (__file__, "<string>") or file.endswith(("test_opinfo.py", "test_layers.py", "contextlib.py")):
        return isinstance(error, (*LOUD, AttributeError))
    if not isinstance(error, LOUD):
        return False
    if "explained(" in linecache.getline(file, line):  # the generated callers, which are in no file
        return True
    if not file.startswith(str(Path(mytorch.__file__).parent)):
        return False
    positions = list(trace.tb_frame.f_code.co_positions())[trace.tb_lasti // 2]
    text = "".join(linecache.getline(file, n) for n in range(positions[0] or line, (positions[1] or line) + 1))
    return "raise " in text


def _call(function, args, kwargs, grad, as_tensor):
    tensors = [t for t in flat([args, list(kwargs.values())]) if isinstance(t, as_tensor)]
    if grad:
        for t in tensors:
            if t.dtype.is_floating_point or t.dtype.is_complex:
                t.requires_grad_()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*args, **kwargs), [t for t in tensors if grad and t.requires_grad]


def _close(a, b, bits, spread=False):
    """Returns True if two arrays are equal except for rounding, relative to their largest number. `spread`: only finite values."""
    if a.dtype.kind not in "fcV":
        return bool((a == b).all())
    kind = a.dtype.name
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
    if a.dtype.kind == "c":
        if spread:
            whole = np.isfinite(a) & np.isfinite(b)
            a, b = a[whole], b[whole]
        return _close(a.real, b.real, bits) and _close(a.imag, b.imag, bits)
    whole = np.isfinite(a)
    if spread:
        whole &= np.isfinite(b)
    elif not (whole == np.isfinite(b)).all() or not np.array_equal(a[~whole], b[~whole], equal_nan=True):
        return False
    a, b = a[whole], b[whole]
    tolerance = TOLERANCE.get(bits or kind, 1e-4)
    scale = np.abs(a).max(initial=0.0) if a.size else 0.0
    return bool((np.abs(a - b) <= tolerance * (np.abs(a) + min(scale, 1e12) + (1 if scale > 1e-20 else 0))).all())


def _array(x):
    if isinstance(x, (torch.Tensor, mytorch.Tensor)) and str(x.dtype).endswith("bfloat16"):
        return x.detach().float().numpy()
    return values(x)


def _differ(theirs, mine, shapes_only):
    theirs, mine = flat(theirs), flat(mine)
    if len(theirs) != len(mine):
        return "different", f"{len(mine)} results for {len(theirs)}"
    for a, b in zip(theirs, mine, strict=True):
        if isinstance(a, torch.Tensor) and isinstance(b, mytorch.Tensor) and str(a.dtype)[6:] != b.dtype.name:
            return "different", f"dtype {b.dtype} for {a.dtype}"
        x, y = _array(a), _array(b)
        if x.shape != y.shape:
            return "different", f"shape {y.shape} for {x.shape}"
        bits = str(a.dtype)[6:] if isinstance(a, torch.Tensor) else None
        if not shapes_only and not _close(x, y, bits):
            return _values(x, y, bits)
    return None


def _values(x, y, bits, what="values"):
    kind = "spread" if _close(x, y, bits, spread=True) else "different"
    return kind, f"{what}: {y.reshape(-1)[:6]} for {x.reshape(-1)[:6]}"


def outcome(case, started=lambda theirs: None):
    """Returns (kind, explanation); see the docstring of the module."""
    theirs_args, theirs_kwargs = copy.deepcopy((case.args, case.kwargs))
    try:
        mine_args, mine_kwargs = convert(case.args), convert(case.kwargs)
    except Exception:
        return "ok", "cannot be converted"
    want = got = refusal = error = None
    started(False)
    try:
        got, inputs = _call(case.mine, mine_args, mine_kwargs, case.grad, mytorch.Tensor)
    except Exception as raised:
        error = raised
    if error is not None and case.name == "lu_unpack":  # PyTorch writes outside of memory for pivots that do not fit,
        return ("ok" if own_words(error) else "words"), "PyTorch is not asked"  # of which a later call may die
    started(True)
    try:
        want, theirs = _call(case.theirs, theirs_args, theirs_kwargs, case.grad, torch.Tensor)
    except Exception as raised:
        refusal = raised
    if error is not None:
        told = f"{type(error).__name__}: {str(error)[:160]}" + (
            f" | PyTorch: {str(refusal)[:120]}" if refusal else " | PyTorch answers"
        )
        if not own_words(error):
            return "words", told + f" | {_place(error)}"
        return ("ok", told) if refusal is not None else ("refused", told)
    if refusal is not None:
        kind = "wider" if isinstance(refusal, NotImplementedError) or WIDER.search(str(refusal)) else "accepted"
        return kind, f"{type(refusal).__name__}: {str(refusal)[:160]}"
    shapes_only = case.name in RANDOM or case.name in UP_TO_SIGNS
    difference = _differ(want, got, shapes_only)
    if difference is not None:
        return difference
    if case.grad and not shapes_only and inputs and theirs:
        difference = _gradients_differ(want, got, theirs, inputs, started)
        if difference is not None:
            return difference
    return "ok", ""


def _gradients_differ(want, got, theirs, inputs, started):
    pairs = [(a, b) for a, b in zip(flat(want), flat(got), strict=True) if getattr(a, "requires_grad", False)]
    if not pairs:
        return None
    if not all(getattr(b, "requires_grad", False) for _, b in pairs):
        return "different", "a result does not require grad"
    rng = np.random.default_rng(0)
    ups = [torch.from_numpy(np.asarray(rng.standard_normal(tuple(a.shape)))).to(a.dtype) for a, _ in pairs]
    started(True)
    try:
        want = torch.autograd.grad([a for a, _ in pairs], theirs, ups, allow_unused=True)
    except Exception:
        return None
    ups = [convert(u) if u.dtype is not torch.bfloat16 else convert(u.float()).bfloat16() for u in ups]
    started(False)
    try:
        got = mytorch.autograd.grad([b for _, b in pairs], inputs, ups, allow_unused=True)
    except Exception as error:
        told = f"gradient: {type(error).__name__}: {str(error)[:160]}"
        return ("refused" if own_words(error) else "words"), told + f" | {_place(error)}"
    for a, b in zip(want, got, strict=True):
        a = np.zeros(()) if a is None else _array(a)
        b = np.zeros(()) if b is None else _array(b)
        if a.shape != b.shape and (np.any(a) or np.any(b)):
            return "different", f"gradient: shape {b.shape} for {a.shape}"
        if a.shape == b.shape and not _close(a, b, None):
            return _values(a, b, None, "gradient")
    return None


def _place(error):
    """The innermost line of the library in an error's trace."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        if "/mytorch/" in trace.tb_frame.f_code.co_filename:
            found = f"{trace.tb_frame.f_code.co_filename.split('/mytorch/')[-1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


# -- long runs ----------------------------------------------------------------------------------------------------------


def _work(seed, first, count, only, out, state):
    """Cases one after the other, each noted in shared memory before it runs."""
    torch.set_num_threads(1)
    faulthandler.enable(open(f"{out}.stacks", "a"))
    for number in range(first, count):
        state[:12] = struct.pack("<qi", number, 2)
        found = case(seed, number, only)
        if found is None:
            continue
        kind, told = outcome(
            found, lambda theirs, n=number: state.__setitem__(slice(0, 12), struct.pack("<qi", n, int(theirs)))
        )
        with open(out, "a") as file:
            file.write(
                json.dumps([number, found.name.split("(")[0], kind, told, repr(found)[:400] if kind != "ok" else ""])
                + "\n"
            )
    state[:12] = struct.pack("<qi", count, 2)


def run(seed, count, only, out, patience=15, first=0):
    """Runs cases 0 to count in a child process. Records a case that hangs or crashes, and continues in a new child process."""
    state = mmap.mmap(-1, 12)
    case(seed, 0, only)
    while first < count:
        child = os.fork()
        if not child:
            sys.stderr = open(os.devnull, "w")
            _work(seed, first, count, only, out, state)
            os._exit(0)
        seen, since, ended, status = None, time.monotonic(), 0, 0
        while not ended:
            time.sleep(0.2)
            ended, status = os.waitpid(child, os.WNOHANG)
            now = bytes(state[:12])
            if now != seen:
                seen, since = now, time.monotonic()
            elif not ended and time.monotonic() - since > patience:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
        number, theirs = struct.unpack("<qi", state[:12])
        if number >= count:
            return
        kind = ("crash" if ended else "hang") + (" of PyTorch" if theirs == 1 else "")
        with open(out, "a") as file:
            found = case(seed, number, only)
            if found is not None:
                told = f"signal {status & 127}" if status & 127 else f"exit code {status >> 8}" if ended else ""
                file.write(json.dumps([number, found.name.split("(")[0], kind, told, repr(found)[:400]]) + "\n")
        first = number + 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--only", help="regular expression for the names of the ops")
    parser.add_argument("--out", default="fuzz.jsonl")
    options = parser.parse_args()
    run(options.seed, options.cases, options.only, options.out, first=options.first)
    rows = [json.loads(line) for line in open(options.out)]
    print(len(rows), dict(Counter(row[2] for row in rows)))
