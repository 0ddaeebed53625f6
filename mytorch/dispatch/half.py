"""Half precision on a CPU: results and gradients are computed in float32 and rounded once, as in PyTorch.

NumPy would round float16 after each step, and Python numbers before the first step. Elementwise ops run their reference in
float32 (`in_float32`), and other ops their kernel, if it accepts the inputs in float32 (`kernel_in_float32`).
"""

import copy
from functools import wraps

import numpy as np

from ..backend import ON_NUMPY, is_raw, numpy_ns, xp_of
from ..base import dtypes
from .record import Implementation

FLOAT32 = np.dtype(np.float32)


def kind_of_half(raws):
    """ "V" if bfloat16 is among the first arrays, "f" for float16, else ""."""
    for raw in raws[:3]:
        dtype = getattr(raw, "dtype", None)
        if dtype is not None and dtype.itemsize == 2 and dtype.kind in "Vf":
            return dtype.kind
    return ""


def stays_wide(raw, result):
    """Returns True if an array with one element is not rounded to the half precision of the other inputs."""
    return not raw.ndim and result.itemsize == 2 and result.is_floating_point and xp_of(raw) in ON_NUMPY


def in_float32(record):
    """Returns the implementation of an elementwise op for half precision on a CPU."""
    found = record.implementations.get(FLOAT32)
    if found is None:
        reference = record.reference
        formulas = {name: _widened(f) for name, f in reference.formulas.items()}
        vjp = _widened(reference.vjp)
        found = record.implementations[FLOAT32] = Implementation(record, _forward_of(record), formulas, vjp)
    return found


# Reductions whose gradient sums, divides or cancels: one rounding of each step would be visible.
GRADIENT_IN_FLOAT32 = {"softmax", "log_softmax", "masked_softmax", "var", "std", "norm", "logsumexp", "logcumsumexp"}


def gradient_in_float32(record):
    """Returns the reference implementation of an op whose gradient in half precision is computed in float32 on a CPU."""
    found = record.implementations.get((FLOAT32, "gradient"))
    if found is None:
        reference = record.reference
        found = record.implementations[FLOAT32, "gradient"] = copy.copy(reference)
        found.plans = {}
        found.formulas = {name: _widened(f) for name, f in reference.formulas.items()}
        found.vjp = _widened(reference.vjp)
    return found


def _forward_of(record):
    def forward(xp, *inputs, **attrs):
        half = next(x.dtype for x in inputs if _is_half(x))
        if not record.keeps_python_scalars_float32:
            # PyTorch rounds a Python number to the dtype of the tensor first, so 0.1 is 0.0999756 in float16 here, too.
            with np.errstate(over="ignore"):
                inputs = [float(half.type(x)) if type(x) in (float, int) else x for x in inputs]
        out = xp.asarray(record.forward(xp, *map(_wide, inputs), **attrs))
        return out.astype(half) if out.dtype is FLOAT32 else out

    return forward


def kernel_in_float32(record, raws, attrs, fused):
    """Returns the implementation that runs a CPU kernel of an op on inputs in float32, or None if no kernel is selected."""
    module = record.kernels.find("cpu", fused, [_wide_half(x) for x in raws], attrs)
    if module is None:
        return None
    found = record.implementations.get((FLOAT32, module))
    if found is None:
        # A copy of the implementation, because the same kernel also runs on float32 without rounding. Its plans hold the formulas, so
        # it cannot share them either.
        found = record.implementations[FLOAT32, module] = copy.copy(record.by_kernel(module))
        found.plans = {}
        found.forward = _rounded_forward(record, found.forward, len(found.residuals))
        found.vjp = _widened(found.vjp, _wide_half)
        found.formulas = {name: _widened(f, _wide_half) for name, f in found.formulas.items()}
    return found


def _rounded_forward(record, kernel, count):
    """Returns a kernel's forward for half precision. It rounds the outputs, and not the last `count` results, the residuals."""

    def forward(xp, *inputs, **attrs):
        half = next(x.dtype for x in inputs if _is_half(x))
        result = kernel(xp, *map(_wide_half, inputs), **attrs)
        if not isinstance(result, tuple):
            return result if result is None else numpy_ns.cast(result, half)
        outputs = [numpy_ns.cast(x, half) if x.dtype is FLOAT32 else x for x in result[: len(result) - count]]
        return (*outputs, *result[len(result) - count :])

    return forward


def _widened(formula, wide=None):
    """Returns a gradient formula that computes in float32. Its result is rounded, except if a kernel computes it.

    The engine rounds the result of a kernel, or passes it to the float32 weight from which the operand was cast.
    """

    def function(g, *values):
        result = formula.function(*map(wide or _wide, (g, *values)))
        if wide is None and _is_half(g):
            many = result if isinstance(result, tuple) else (result,)
            many = tuple([x.astype(g.dtype) if is_raw(x) and x.dtype is FLOAT32 else x for x in many])
            result = many if isinstance(result, tuple) else many[0]
        return result

    return formula and formula._replace(function=function)


def _is_half(x):
    return is_raw(x) and x.dtype.itemsize == 2 and x.dtype.kind in "Vf"


def _wide_half(x):
    """Converts an array in half precision, or each array of a list or tuple, to float32."""
    if isinstance(x, (list, tuple)):
        return type(x)(map(_wide_half, x))
    return numpy_ns.cast(x, FLOAT32) if _is_half(x) else x


def _wide(x):
    """Converts an array of floats or integers to float32."""
    return x.astype(FLOAT32) if is_raw(x) and x.dtype.kind in "fViu" and x.dtype is not FLOAT32 else x


def once_rounded(function):
    """Decorates a function of several ops: half precision is computed in float32, and only the results are rounded."""

    @wraps(function)
    def rounding(input, *args, **kwargs):
        dtype = getattr(input, "dtype", None)
        if dtype is None or dtype.itemsize != 2 or not dtype.is_floating_point:
            return function(input, *args, **kwargs)
        floats = [
            t for t in (*args, *kwargs.values()) if hasattr(t, "requires_grad") and t.dtype.category >= dtypes.FLOAT
        ]
        # With mixed dtypes, the function itself decides between promotion and an error.
        if any(t.dtype is not dtype for t in floats):
            return function(input, *args, **kwargs)

        def wide(t):
            return t.float() if getattr(t, "dtype", None) is dtype else t

        result = function(wide(input), *map(wide, args), **{name: wide(t) for name, t in kwargs.items()})
        return tuple(t.to(dtype) for t in result) if isinstance(result, tuple) else result.to(dtype)

    return rounding


def once_rounded_on_cpu(function):
    """As `once_rounded`; on a GPU, the function receives half precision, for which it has kernels."""
    rounding = once_rounded(function)

    @wraps(function)
    def on_cpu(input, *args, **kwargs):
        return (rounding if input.device.type == "cpu" else function)(input, *args, **kwargs)

    return on_cpu


def back_to_bfloat16(result):
    """Rounds float32 results to bfloat16."""
    first = result[0] if isinstance(result, tuple) else result
    if getattr(first, "dtype", None) is None or first.dtype.kind != "f":
        return result
    first = first.astype(dtypes.bfloat16.numpy)
    return (first, *result[1:]) if isinstance(result, tuple) else first
