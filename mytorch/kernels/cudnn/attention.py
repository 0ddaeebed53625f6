"""Attention on a GPU by cuDNN.

On Hopper, cuDNN's kernels need about two thirds of the time of Triton's kernels. They are used for the common cases of training:
float16 and bfloat16, no mask or a causal mask, grouped queries, no dropout. All other cases use triton/attention.py. So does
deterministic mode, since the order of summation of cuDNN's query gradient is unspecified.

* **Plans** use the strides of the arrays, so nothing is copied. Without recording for backward, no plan is created, since prompts
  have many different lengths.
* **Statistics.** Forward saves the logarithm of each row's sum. cuDNN uses the natural logarithm, Triton base 2, so forward and
  backward must use the same backend. If cuDNN's backward fails, the values are converted for Triton's backward.

`MYTORCH_ATTENTION=cudnn|triton`, read once, selects one backend wherever it can run, for measurements.

Reference: NVIDIA, "cuDNN Frontend API", chapter "Attention".
"""

import math
import os
from functools import lru_cache

import numpy as np

from ...arrays import address, config, cupy_ns, hooks
from ...arrays.dtypes import bfloat16
from .. import cudnn
from ..heads import by_time, side_by_side

CHOICES = ("cudnn", "triton")
FEW = 128  # with fewer queries, Triton's kernel is faster
LOG2E = 1.4426950408889634

QUERY, KEY, VALUE, OUT, STATS, G, G_QUERY, G_KEY, G_VALUE = range(1, 10)  # numbers of a graph's arrays

residuals = ("stats",)


def why_not():
    """Returns the reason for not using cuDNN's attention, or None.

    Raises:
        ValueError: MYTORCH_ATTENTION has an unknown value.
        RuntimeError: MYTORCH_ATTENTION is cudnn, which can't be used.
    """
    if _choice() == "triton":
        return "MYTORCH_ATTENTION is triton"
    problem = cudnn.why_not()
    if problem and _choice() == "cudnn":
        raise RuntimeError(problem)
    return problem


@lru_cache
def _choice():
    """Returns MYTORCH_ATTENTION, or None."""
    choice = os.environ.get("MYTORCH_ATTENTION") or None
    if choice not in (None, *CHOICES):
        raise ValueError(f"MYTORCH_ATTENTION is {choice!r}; it takes one of {', '.join(CHOICES)}.")
    return choice


attention = cudnn.Operations("attention", is_required=lambda: _choice() == "cudnn")


def _place(x):
    """Returns (shape, strides in elements) of an array. Strides of axes of size 1 are made at least a row."""
    steps = zip(x.shape, x.strides, strict=True)
    return x.shape, tuple([step // x.itemsize if n > 1 else max(step // x.itemsize, x.shape[3]) for n, step in steps])


def _key(kind, arrays, causal, scale):
    """Returns the key of a plan."""
    layouts = [(x.shape, x.strides, x.dtype) for x in arrays]
    return (kind, cupy_ns().cuda.runtime.getDevice(), causal, scale, *layouts)


def _planned(key, layouts, dtype):
    """Returns the plan of a key for arrays {number: (shape, strides)}, or None."""
    kind, _, causal, scale = key[:4]
    if key not in attention.plans and not (kind == "backward" or hooks.is_grad_enabled() or _choice()):
        return None
    return attention.plan(key, lambda: cudnn.Plan(_graph(kind, dtype, layouts, causal, scale)))


def _graph(kind, dtype, layouts, causal, scale):
    """Builds a graph of attention, "forward" or "backward"."""
    graph = cudnn.new_graph(dtype)

    def dtype_of(number):
        return np.dtype(np.float32) if number == STATS else dtype

    def inputs(*numbers):
        return [cudnn.add_input(graph, number, layouts[number], dtype_of(number)) for number in numbers]

    options = {"name": kind, "attn_scale": scale}
    if causal:  # query i sees keys 0 … i
        # A band matrix whose right bound is the diagonal.
        options.update(diagonal_alignment=cudnn.library().diagonal_alignment.TOP_LEFT, diagonal_band_right_bound=0)
    q, k, v = inputs(QUERY, KEY, VALUE)
    if kind == "forward":
        outputs = dict(zip((OUT, STATS), graph.sdpa(q=q, k=k, v=v, generate_stats=True, **options), strict=True))
    else:
        o, g, stats = inputs(OUT, G, STATS)
        gradients = graph.sdpa_backward(q=q, k=k, v=v, o=o, dO=g, stats=stats, **options)
        outputs = dict(zip((G_QUERY, G_KEY, G_VALUE), gradients, strict=True))
    for number, tensor in outputs.items():
        cudnn.add_output(tensor, number, layouts[number], dtype_of(number))
    return graph


# -- kernel of the op -------------------------------------------------------------------------------------------------


@lru_cache
def _generation(device):
    """Returns the major compute capability: 9 for Hopper, 10 for Blackwell."""
    return int(cupy_ns().cuda.Device(device).compute_capability) // 10


def _here():
    return _generation(cupy_ns().cuda.runtime.getDevice())


def _reads(x):
    """Returns True if cuDNN can read an array without a copy: contiguous last axis, 16-byte alignment, no broadcast axes."""
    steps = [step for n, step in zip(x.shape[:3], x.strides, strict=False) if n > 1]
    return x.strides[3] == x.itemsize and all(s > 0 and not s % 16 for s in steps) and not address(x) % 16


def accepts(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Accepts half precision (B, H, L, D) without dropout and without a mask, except a causal one.

    Returns True only if cuDNN has a kernel and is expected to be faster: on Hopper and Blackwell, for more than a few queries.
    """
    if attention.errors or config.deterministic or any(x is not None for x in (mask, keep, window, softcap)):
        return False
    inputs = query, key, value
    plan_key = _key("forward", inputs, causal, scale)
    plan = attention.plans.get(plan_key)  # an existing plan means that all other conditions were checked before
    if plan is None and _takes(query, key, value, scale):
        batch, heads, length, _ = query.shape
        width = value.shape[3]
        layouts = {number: _place(x) for number, x in zip((QUERY, KEY, VALUE), inputs, strict=True)}
        layouts[OUT] = (batch, heads, length, width), (length * heads * width, width, heads * width, 1)  # `by_time`
        layouts[STATS] = (batch, heads, length, 1), (heads * length, length, 1, 1)
        plan = _planned(plan_key, layouts, query.dtype)
    return plan is not None and not (address(query) | address(key) | address(value)) % 16


def _takes(query, key, value, scale):
    """Checks all conditions of `accepts` except the plan."""
    dtype = query.dtype
    if dtype not in (np.float16, bfloat16.numpy) or not dtype == key.dtype == value.dtype or query.ndim != 4:
        return False
    if _choice() is None and (query.shape[2] < FEW or _here() not in (9, 10)):
        return False
    batch, heads, length, width = query.shape
    if key.shape[:3] != value.shape[:3] or key.ndim != 4 or key.shape[0] != batch or key.shape[3] != width:
        return False
    if not query.size or not value.size or heads % key.shape[1] or min(length, key.shape[2]) < 2 or not scale > 0:
        return False
    widest = 256 if _here() == 9 else 128
    return all(n <= widest and not n % 8 for n in (width, value.shape[3])) and all(map(_reads, (query, key, value)))


def forward(xp, query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None, flash):
    """softmax(query @ keyᵀ * scale) @ value, and the natural logarithm of each row's sum (B, H, L, 1).

    `flash` is kernels/triton/attention.py, which runs where cuDNN fails at the last moment.
    """
    out, stats = by_time(xp, query, value.shape[3]), xp.empty((*query.shape[:3], 1), np.float32)
    arrays = {QUERY: query, KEY: key, VALUE: value, OUT: out, STATS: stats}
    plan = attention.plans[_key("forward", (query, key, value), causal, scale)]
    if not attention.run(xp, plan, arrays):
        out, lse = flash.run_forward(xp, query, key, value, causal=causal, scale=scale)
        # Convert Triton's base-2 log-sum-exp to the natural logarithm.
        stats = (lse * np.float32(math.log(2)))[..., None]
    return out, stats


def vjp(g, query, key, value, out, stats, causal, scale, needs, xp, flash):
    """The gradients of query, key and value; `flash` as in `forward`."""
    if g.dtype != query.dtype:
        g = g.astype(query.dtype)
    if not _reads(g):
        strided, g = g, by_time(xp, query, value.shape[3])
        g[...] = strided
    grads = None
    if not attention.errors and not config.deterministic and all(map(_reads, (query, key, value, out))):
        grads = _gradients(xp, g, query, key, value, out, stats, causal, scale)
    if grads is None:
        lse = stats.reshape(stats.shape[:3]) * np.float32(LOG2E)
        options = {"causal": causal, "scale": scale, "needs": needs}
        return flash.run_backward(xp, g, query, key, value, out, lse, **options)
    return *[gx if needed else None for gx, needed in zip(grads, needs[:3], strict=True)], None


def _gradients(xp, g, query, key, value, out, stats, causal, scale):
    """Returns cuDNN's gradients of query, key and value; None if cuDNN has no kernel or fails."""
    grads = side_by_side(xp, query, key, value) or [by_time(xp, x, x.shape[3]) for x in (query, key, value)]
    arrays = dict(zip((QUERY, KEY, VALUE, OUT, STATS, G), (query, key, value, out, stats, g), strict=True))
    arrays.update(zip((G_QUERY, G_KEY, G_VALUE), grads, strict=True))
    layouts = {number: _place(x) for number, x in arrays.items()}
    plan = _planned(_key("backward", arrays.values(), causal, scale), layouts, query.dtype)
    return grads if plan is not None and attention.run(xp, plan, arrays) else None
