"""A linear layer on a GPU and its gradients. The kernel of the product (cuBLASLt) adds the bias.

The product for the weight's gradient can also sum the bias's gradient, but then cuBLASLt may not split its long inner
axis among the multiprocessors. So the default is a separate sum, and tuning measures both.
"""

import importlib
import math
import os

import numpy as np

WAYS = {"none": [{"way": "two kernels"}], "medium": [{"way": "one kernel"}]}


def accepts(input, weight, bias=None):
    """Accepts arrays of one dtype on a GPU, with one bias per output."""
    arrays = [a for a in (input, weight, bias) if a is not None]
    return not any(isinstance(a, np.ndarray) or a.dtype != input.dtype for a in arrays) and (
        bias is None or bias.shape == weight.shape[:1]
    )


def is_faster(input, weight, bias=None):
    """Returns True with a bias, which saves a pass over the output. Without a bias, the kernel equals the reference."""
    return bias is not None


def forward(xp, input, weight, bias=None):
    """Returns input @ weightᵀ + bias."""
    return xp.linear(input, weight, bias)


def vjp(g, input, weight, needs, float32_accum, xp):
    """Returns the gradients of input, weight and bias."""
    return backward(xp, g, input, weight, (*needs, False)[:3], float32_accum[1])


def backward(xp, g, input, weight, needs, float32_accum=False):
    """Returns the gradients of input, weight and bias, None where not needed. `float32_accum`: weight's gradient is float32."""
    count = math.prod(input.shape[:-1])
    g, rows = xp.reshape(g, (count, weight.shape[0])), xp.reshape(input, (count, weight.shape[1]))
    gw, gb = _weight_and_bias(xp, g, rows) if needs[1] and needs[2] else (None, None)
    if needs[1] and gw is None:
        gw = xp.matmul(g.T, rows, out=xp.empty(weight.shape, "float32")) if float32_accum else xp.matmul(g.T, rows)
    if needs[2] and gb is None:
        gb = _column_sums(xp, g)
    return xp.matmul(g, weight).reshape(input.shape) if needs[0] else None, gw, gb


def _weight_and_bias(xp, g, rows):
    """Returns the gradients of weight and bias by the faster method if tuning is enabled, otherwise (None, None)."""
    launch = _launcher()
    if launch is None or os.environ.get("TRITON_AUTOTUNE_MODE", "none") == "none":
        return None, None

    def attempt(candidate):
        one = candidate["way"] == "one kernel"
        return (xp.weight_gradients(g, rows) if one else None) or (xp.matmul(g.T, rows), _column_sums(xp, g))

    key = ("weight_gradients", g.dtype.name, launch.power_of_2(len(g)), g.shape[1], rows.shape[1])
    return attempt(launch.tuned(backward, key, WAYS, attempt))


def _column_sums(xp, g):
    """Returns the sum of the rows of g, computed by Triton if it is available."""
    launch = _launcher()
    if launch is None or not g.size or g.dtype.name not in ("float16", "bfloat16", "float32"):
        return xp.sum(g, axis=0)
    norm = importlib.import_module("mytorch.kernels.triton.norm")
    return norm.add_up(xp, xp.ascontiguousarray(g), g.dtype)


def _launcher():
    """Returns the module `launch` if Triton is usable, otherwise None."""
    try:
        launch = importlib.import_module("mytorch.kernels.launch")
    except ModuleNotFoundError:
        return None
    return None if launch.why_not() else launch
